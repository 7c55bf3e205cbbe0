// attention/mla_sm90.cuh: latent attention for sm_90a: V is the first columns of K, and many query heads share one head
// of keys.
//
// `decode`: a block has 64 rows of a key head (attention/decode_rows.cuh) and a part of the keys. Three warpgroups have
// roles of their own. One brings tiles of 64 keys by cp.async into a ring, each in pieces of a third of its columns, so
// that the first product begins before the tile is whole. One sums all scores of a tile, weighs them, leaves the
// weights and the factors of o in shared memory, and has the left half of the columns of o; the other one has the right
// half. Both halves take V out of the tile that K is. `merge` of attention/decode_merge.cuh ends the rows.
//
// Launch: n_b * n_h_kv * tiles * parts blocks of THREADS threads; of packed sequences (rows / BM + sequences) * n_h_kv
// * parts.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_tiles.cuh"
#include "attention/latent_rows.cuh"
#include "common/tma_sm90.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(parts_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not say how parts of a row are merged");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D % 8 == 0 && cfg::D_V % 8 == 0, "rows are copied 16 bytes at a time");
static_assert(cfg::BM == 64 && cfg::BN == 64 && cfg::WARPS == 12,
              "a warpgroup has 64 rows, a panel of V 64 keys; three warpgroups");
static_assert(cfg::V_IS_K && cfg::DV_PAD <= cfg::D_PAD, "V is the first columns of K");
static_assert(cfg::D_PAD == round_up(cfg::D, 64) && cfg::DV_PAD == round_up(cfg::D_V, 128),
              "whole panels, for each half of o");
static_assert(cfg::DV_PAD <= 512, "half a row of o of 64 rows needs DV_PAD / 4 registers of each thread");
static_assert(cfg::STAGES == 2 || cfg::STAGES == 3, "cfg::STAGES is 2 or 3");
static_assert(!variant::MAP, "tiles are judged by the blocks that meet them");

namespace mla
{

constexpr int PANELS = cfg::D_PAD / 64;
constexpr int PIECE = (PANELS + 2) / 3; // panels that arrive together
constexpr int PIECES = (PANELS + PIECE - 1) / PIECE;
constexpr int PANEL_BYTES = 64 * 128;
constexpr int COLUMNS = cfg::DV_PAD / 2; // of o of a warpgroup
constexpr int NB = cfg::BN / 8;
constexpr int DB = COLUMNS / 8;
constexpr int GROUP = 128; // threads of a warpgroup

// of a thread, out of 64 K in all; addresses of rows of two tensors take more than 40
constexpr int LOADER_REGISTERS = 56;
constexpr int WORKER_REGISTERS = 224;

// ---- shared memory -----------------------------------------------------------------------------------

struct layout {                                             // offsets in bytes
    static constexpr int TILE_BYTES = PANELS * PANEL_BYTES; // of Q, which is first, and of a stage
    static constexpr int RING = TILE_BYTES;
    static constexpr int WEIGHTS = RING + cfg::STAGES * TILE_BYTES;
    static constexpr int SCALES = WEIGHTS + PANEL_BYTES; // of 64 rows; at the end: whether they have had a live pair
    static constexpr int CODES = SCALES + 256;           // of each stage: which tile lies there
    static constexpr int FULL = CODES + 16;              // barriers, of each piece of each stage
    static constexpr int EMPTY = FULL + 8 * cfg::STAGES * PIECES;
    static constexpr int BYTES = SCALES + 512;
    static_assert(EMPTY + 8 * cfg::STAGES <= BYTES && BYTES <= 232448, "a block has at most 227 KiB of shared memory");

    DEV u32 stage(u32 shared, u32 number) { return shared + RING + number * TILE_BYTES; }
    DEV u32 code(u32 shared, u32 number) { return shared + CODES + number * 4; }
    DEV u32 full(u32 shared, u32 number, u32 piece) { return shared + FULL + 8 * (number * PIECES + piece); }
    DEV u32 empty(u32 shared, u32 number) { return shared + EMPTY + 8 * number; }
};
using place = ring_place<cfg::STAGES>;

enum named { WEIGHTS_THERE = 1, WEIGHTS_READ = 2, Q_THERE = 3 }; // barriers

DEV void wait(u32 barrier, u32 parity, const char *what)
{
    if constexpr (cfg::BOUND_WAITS) {
        mbarrier_wait_bounded(barrier, parity, what);
    } else {
        mbarrier_wait(barrier, parity);
    }
}
// Of a piece, for wgmma: cp.async writes as ordinary stores do.
DEV void wait_piece(u32 shared, place at, u32 piece)
{
    wait(layout::full(shared, at.stage, piece), at.parity, "a piece of a tile");
    fence_async_proxy();
}
// Once the first piece of a tile is there.
DEV int wait_code(u32 shared, place at)
{
    wait_piece(shared, at, 0);
    return static_cast<int>(__shfl_sync(ALL_LANES, __float_as_uint(load_shared(layout::code(shared, at.stage))), 0));
}
// By a warp whose products have read the tile.
DEV void leave(u32 shared, place at)
{
    if (lane_id() == 0) {
        mbarrier_arrive(layout::empty(shared, at.stage));
    }
}

DEV void init_barriers(u32 shared)
{
    if (threadIdx.x == 0) {
#pragma unroll
        for (u32 i = 0; i < cfg::STAGES; i++) {
#pragma unroll
            for (u32 piece = 0; piece < PIECES; piece++) {
                mbarrier_init(layout::full(shared, i, piece), GROUP + (piece == 0)); // and who tells which tile it is
            }
            mbarrier_init(layout::empty(shared, i), 2 * GROUP / 32);
        }
        mbarrier_init_fence();
    }
}

// ---- the warpgroup that brings tiles -----------------------------------------------------------------

constexpr int OWN_ROWS = 4; // of a thread: 8 lanes copy 128 bytes of a row, and a warp has 16 rows

DEV void bring_tile(const attention_params &p, const work &w, u32 shared, place at, int code)
{
    const int thread = static_cast<int>(fresh_thread() % GROUP);
    const int row = thread / 32 * 16 + thread % 32 / 8;
    const int chunk = thread % 8;
    const int kv0 = tile_cursor::number(code) * cfg::BN;
    const key_columns source[OWN_ROWS] = {
        {p, w, kv0 + row}, {p, w, kv0 + row + 4}, {p, w, kv0 + row + 8}, {p, w, kv0 + row + 12}};
    wait(layout::empty(shared, at.stage), at.parity ^ 1u, "a place for a tile");
    if (thread == 0) {
        store_shared(layout::code(shared, at.stage), static_cast<u32>(code));
        mbarrier_arrive(layout::full(shared, at.stage, 0));
    }
    const u32 to = layout::stage(shared, at.stage);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
#pragma unroll
        for (int panel = piece * PIECE; panel < min(PANELS, (piece + 1) * PIECE); panel++) {
            const int column = panel * 64 + chunk * 8;
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++) {
                const bool inside = source[i].inside(column);
                copy16_async(to + panels<cfg::D_PAD>::offset<64>(row + 4 * i, panel * 8 + chunk),
                             source[i].at(inside ? column : 0), inside ? 16 : 0);
            }
        }
        mbarrier_arrive_copies(layout::full(shared, at.stage, static_cast<u32>(piece)));
    }
}

DEV void bring_all(const attention_params &p, const work &w, const key_tiles &keys, u32 shared)
{
    part_cursor<1> cursor;
    cursor.start(keys);
    place at{0, 0};
#pragma unroll 1
    while (true) {
        const int code = cursor.next(p, w);
        if (code < 0) {
            break;
        }
        bring_tile(p, w, shared, at, code);
        at = at.next();
    }
    wait(layout::empty(shared, at.stage), at.parity ^ 1u, "a place for the end");
    if (threadIdx.x == 0) {
        store_shared(layout::code(shared, at.stage), static_cast<u32>(part_cursor<1>::END));
        mbarrier_arrive(layout::full(shared, at.stage, 0));
    }
    mbarrier_arrive(layout::full(shared, at.stage, 0));
}

// ---- rows of o ---------------------------------------------------------------------------------------

// The first of the thread's rows, in a warpgroup that computes.
DEV int first_row() { return static_cast<int>(fresh_thread() % GROUP / 32 * WARP_ROWS) + lane_id() / 4; }

DEV void clear(float (&o)[1][DB][4])
{
#pragma unroll
    for (int i = 0; i < DB * 4; i++) {
        o[0][i / 4][i % 4] = 0.0f;
    }
}

// seen: bit r: the thread's row r has had a live pair. column0: of the half.
DEV void store_half(const float (&o)[1][DB][4], const attention_params &p, const work &w, u32 seen, int column0)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first_row() + 8 * r;
        if (i >= w.rows) {
            continue;
        }
        float *to = o_of(p, w, i) + mma_fragment<1>::first_column(lane_id());
#pragma unroll
        for (int d = 0; d < DB; d++) {
            const int column = column0 + 8 * d;
            if (cfg::D_V == cfg::DV_PAD || column < cfg::D_V) {
                *reinterpret_cast<float2 *>(to + column) =
                    (seen >> r & 1u) != 0 ? make_float2(o[0][d][2 * r], o[0][d][2 * r + 1]) : make_float2(0.0f, 0.0f);
            }
        }
    }
}

// ---- scores, weights and the left half ---------------------------------------------------------------

struct score_rows {
    thread_rows<1, packed> rows;
    float s[1][NB][4];
    u32 p[NB / 2][4];
    float o[1][DB][4];
};

// Rows of all heads of the tile; those that are not there are zeros.
DEV void load_queries(const attention_params &p, const work &w, u32 shared)
{
    using shape = panels<cfg::D_PAD>;
    constexpr int CHUNKS = cfg::D_PAD / 8;
    for (int i = static_cast<int>(threadIdx.x % GROUP); i < 64 * CHUNKS; i += GROUP) {
        const int row = i / CHUNKS;
        const int chunk = i % CHUNKS;
        const bool inside = row < w.rows && (cfg::D == cfg::D_PAD || chunk * 8 < cfg::D);
        copy16_async(shared + shape::offset<64>(row, chunk),
                     query_columns(p, w, inside ? row : 0, inside ? chunk * 8 : 0), inside ? 16 : 0);
    }
    copy_commit();
    copy_wait<0>();
    fence_async_proxy();
    barrier_sync(Q_THERE, GROUP);
}

// Starts s = Q K^T, of each piece once it is there; the first one is.
DEV void start_scores(score_rows &own, u32 shared, place at)
{
    using shape = panels<cfg::D_PAD>;
    constexpr u64 STEP = descriptor_step(PANEL_BYTES);
    constexpr bool BF16 = same_type<cfg::operand, bf16>;
    const u64 a = shape::descriptor(of_the_warp(shared), 16);
    const u64 b = shape::descriptor(of_the_warp(layout::stage(shared, at.stage)), 16);
    wgmma<cfg::BN>::ss4<BF16, true, 2, 2>(own.s[0], a, b, 0);
#pragma unroll
    for (int panel = 1; panel < PANELS; panel++) {
        if (panel % PIECE == 0) {
            wait_piece(shared, at, panel / PIECE);
            wgmma<cfg::BN>::fence(own.s[0]);
        }
        wgmma<cfg::BN>::ss4<BF16, false, 2, 2>(own.s[0], a + panel * STEP, b + panel * STEP, 1);
    }
    wgmma_commit();
}

template <bool WHOLE> DEV void weigh(score_rows &own, const at_rows &a, int code, float (&scale)[2])
{
    score_tile<WHOLE, 1, NB, packed, false, true, packed> scores{own.s,
                                                                 own.rows,
                                                                 a,
                                                                 tile_cursor::number(code) * cfg::BN +
                                                                     mma_fragment<1>::first_column(lane_id()),
                                                                 0u,
                                                                 WHOLE,
                                                                 tile_cursor::class_of(code) == TILE_CUT};
    scores.run(scale);
}

// The weights of all rows to shared memory, and by what o is to be scaled ahead of them.
DEV void leave_weights(const score_rows &own, u32 shared, const float (&scale)[2])
{
    const int lane = lane_id();
    const int row = first_row() - mma_fragment<1>::first_row(lane) + (lane & 7) + 8 * (lane >> 3 & 1);
    const u32 to = shared + layout::WEIGHTS;
    barrier_sync(WEIGHTS_READ, 2 * GROUP);
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
        store_matrix4(to + panels<cfg::BN>::offset<64>(row, 2 * k + (lane >> 4)), own.p[k]);
    }
    if constexpr (variant::RESCALE) {
        if (mma_fragment<1>::leads(lane)) {
            store_shared(shared + layout::SCALES + static_cast<u32>(4 * first_row()), scale[0]);
            store_shared(shared + layout::SCALES + static_cast<u32>(4 * first_row() + 32), scale[1]);
        }
    }
    fence_async_proxy();
    barrier_arrive(WEIGHTS_THERE, 2 * GROUP);
}

DEV void begin_rows(score_rows &own, const attention_params &p, const work &w)
{
    own.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        own.rows.row[r] = w.row(p.x, p.z, first_row() + 8 * r);
        own.rows.state[r] = variant::init(mma_fragment<1>::leads(lane_id()));
    }
    clear(own.o);
}

// The scores of a tile become weights, whose product with V's left half is started.
DEV void meet_tile(score_rows &own, const at_rows &a, u32 shared, place at, int code, bool exists)
{
    float scale[2] = {1.0f, 1.0f};
    if (!exists) { // rows that are not there take part in products alone
#pragma unroll
        for (int i = 0; i < NB * 4; i++) {
            own.s[0][i / 4][i % 4] = 0.0f;
        }
    } else if (tile_cursor::class_of(code) == TILE_ALL) {
        weigh<true>(own, a, code, scale);
    } else {
        weigh<false>(own, a, code, scale);
    }
    __syncwarp();
    pack_weights<cfg::operand, NB>(own.p, own.s[0]);
    leave_weights(own, shared, scale);
    if constexpr (variant::RESCALE) {
        rescale(own.o, scale);
    }
    start_pv<cfg::operand, COLUMNS, cfg::BN>(own.o[0], own.p, layout::stage(shared, at.stage), 1);
}

DEV void end_rows(score_rows &own, const attention_params &p, const work &w, u32 shared)
{
    barrier_sync(WEIGHTS_READ, 2 * GROUP);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(own.rows.state[r], sum_of_four{});
        const int i = first_row() + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        if ((lane_id() & 3) == 0) {
            store_shared(shared + layout::SCALES + static_cast<u32>(4 * i), static_cast<u32>(seen));
            if (i < w.rows) {
                write_record(record_of(p, w, i), own.rows.state[r], seen);
            }
        }
    }
    barrier_arrive(WEIGHTS_THERE, 2 * GROUP);
    store_half(own.o, p, w, own.rows.seen, 0);
}

DEV void score_all(const attention_params &p, const work &w, u32 shared)
{
    score_rows own;
    load_queries(p, w, shared);
    begin_rows(own, p, w);
    const packed::head none{};
    const at_rows a{p.x, p.z, none};
    const bool exists = static_cast<int>(fresh_thread() % GROUP / 32 * WARP_ROWS) < w.rows;
    place at{0, 0};
#pragma unroll 1
    while (true) {
        const int code = wait_code(shared, at);
        if (code < 0) {
            break;
        }
        start_scores(own, shared, at);
        wgmma<cfg::BN>::wait<0>(own.s[0]);
        meet_tile(own, a, shared, at, code, exists);
        wgmma<COLUMNS>::wait<0>(own.o[0]);
        leave(shared, at);
        at = at.next();
    }
    end_rows(own, p, w, shared);
}

// ---- the right half ----------------------------------------------------------------------------------

DEV void start_right(float (&o)[1][DB][4], u32 shared, place at)
{
    constexpr bool BF16 = same_type<cfg::operand, bf16>;
    constexpr int RIGHT = COLUMNS * 128; // bytes of the panels of the left half
    const u64 a = panels<cfg::BN>::descriptor(of_the_warp(shared + layout::WEIGHTS), 16);
    const u64 b = panels<COLUMNS>::descriptor(of_the_warp(layout::stage(shared, at.stage) + RIGHT), PANEL_BYTES);
    wgmma<COLUMNS>::fence(o[0]);
#pragma unroll
    for (int k = 0; k < cfg::BN / 16; k++) {
        wgmma<COLUMNS>::ss<BF16, false, true>(o[0], a + k * descriptor_step(32), b + k * descriptor_step(16 * 128), 1);
    }
    wgmma_commit();
}

DEV void gather_right(const attention_params &p, const work &w, u32 shared)
{
    float o[1][DB][4];
    const u32 scales = shared + layout::SCALES + static_cast<u32>(4 * first_row());
    clear(o);
    place at{0, 0};
#pragma unroll 1
    while (true) {
        barrier_arrive(WEIGHTS_READ, 2 * GROUP); // by now those of the tile before
        if (wait_code(shared, at) < 0) {
            break;
        }
        barrier_sync(WEIGHTS_THERE, 2 * GROUP);
        fence_async_proxy();
        if constexpr (variant::RESCALE) {
            const float scale[2] = {load_shared(scales), load_shared(scales + 32)};
            rescale(o, scale);
        }
        start_right(o, shared, at);
        wgmma<COLUMNS>::wait<0>(o[0]);
        leave(shared, at);
        at = at.next();
    }
    barrier_sync(WEIGHTS_THERE, 2 * GROUP);
    u32 seen = __float_as_uint(load_shared(scales));
    seen |= __float_as_uint(load_shared(scales + 32)) << 1;
    store_half(o, p, w, seen, COLUMNS);
}

} // namespace mla

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int decode = mla::layout::BYTES;
}

#if LATHE_COMPILED(decode)
extern "C" __global__ void __launch_bounds__(decode::THREADS, 1)
    LATHE_ENTRY(decode)(const __grid_constant__ attention_params launched)
{
    using namespace mla;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    const u32 group = __shfl_sync(ALL_LANES, threadIdx.x / GROUP, 0); // the same for a whole warp, as the compiler sees
    auto &&p = own_params(launched);
    let_next_begin();
    work w;
    if (!find_work<false>(p, w)) {
        return;
    }
    const key_tiles keys = find_keys(p, w);
    if (keys.n == 0) {
        write_nothing(p, w);
        return;
    }
    init_barriers(shared);
    __syncthreads();
    if (group == 0) {
        registers_down<LOADER_REGISTERS>();
        bring_all(p, w, keys, shared);
    } else if (group == 1) {
        registers_up<WORKER_REGISTERS>();
        score_all(p, w, shared);
    } else {
        registers_up<WORKER_REGISTERS>();
        gather_right(p, w, shared);
    }
}
#endif
