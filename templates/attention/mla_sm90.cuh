// attention/mla_sm90.cuh: latent attention for sm_90a: V is the first columns of K, and many query heads share one head
// of keys.
//
// `decode`: a block has 64 rows of a key head (attention/decode_rows.cuh) and a part of the keys. Three warpgroups have
// roles of their own. One brings tiles of 64 keys by cp.async into a ring, each in pieces of a third of its columns, so
// that the first product begins before the tile is whole. One sums all scores of a tile, weighs them, leaves the
// weights and the factors of o in shared memory, and has the left half of the columns of o; the other one has the right
// half. Both halves take V out of the tile that K is. `merge` of attention/decode_merge.cuh ends the rows.
//
// Keys of 8 bits (NARROW_K) come to registers, panels ahead, and from there to the ring as key_mod makes them.
//
// Launch: n_b * n_h_kv * tiles * parts blocks of THREADS threads; of packed sequences (rows / BM + sequences) * n_h_kv
// * parts.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_tiles.cuh"
#include "attention/latent_narrow.cuh"
#include "attention/latent_rows.cuh"
#include "common/ptx_once.cuh"
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
static_assert(!cfg::NARROW_K || (cfg::D - cfg::D2) % 16 == 0, "rows of 8 bits are read 16 bytes at a time");

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

// Of a thread, out of 64 K in all: of who brings tiles, of who weighs scores and of who has the right half alone.
// Addresses of rows of two tensors take more than 40; panels of 8 bits under way have 48 beside them.
constexpr int LOADER_REGISTERS = cfg::NARROW_K ? 120 : 56;
constexpr int SCORE_REGISTERS = 224;
constexpr int RIGHT_REGISTERS = cfg::NARROW_K ? 160 : 224;

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

// Of a piece: cp.async arrives for its thread, ordinary stores are counted by the warp.
constexpr int ARRIVALS = cfg::NARROW_K ? GROUP / 32 : GROUP;

DEV void init_barriers(u32 shared)
{
    if (threadIdx.x == 0) {
#pragma unroll
        for (u32 i = 0; i < cfg::STAGES; i++) {
#pragma unroll
            for (u32 piece = 0; piece < PIECES; piece++) {
                mbarrier_init(layout::full(shared, i, piece), ARRIVALS + (piece == 0)); // and who tells which it is
            }
            mbarrier_init(layout::empty(shared, i), 2 * GROUP / 32);
        }
        mbarrier_init_fence();
    }
}

// ---- the warpgroup that brings tiles -----------------------------------------------------------------

// Which tile comes to a place that is free.
DEV void tell_tile(u32 shared, place at, int code)
{
    if (threadIdx.x == 0) {
        store_shared(layout::code(shared, at.stage), static_cast<u32>(code));
        mbarrier_arrive(layout::full(shared, at.stage, 0));
    }
}

DEV void end_tiles(u32 shared, place at)
{
    wait(layout::empty(shared, at.stage), at.parity ^ 1u, "a place for the end");
    tell_tile(shared, at, part_cursor<1>::END);
    if (ARRIVALS == GROUP || lane_id() == 0) {
        mbarrier_arrive(layout::full(shared, at.stage, 0));
    }
}

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
    tell_tile(shared, at, code);
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
    end_tiles(shared, at);
}

// ---- the same of keys of 8 bits ------------------------------------------------------------------------

// Four lanes have the 64 numbers of a panel of a row, and a warp two times 8 rows. So what eight lanes store at once
// lies in different banks. AHEAD panels are under way: those that are still to be stored of the tile at hand, and then
// those of the next one, each asked for as soon as there are registers for it. Their lines come to L2 a tile ahead.
constexpr int STORED_PANELS = (D1 + 63) / 64;
constexpr int AHEAD = STORED_PANELS < 5 ? STORED_PANELS : 5;
constexpr int BEHIND = (cfg::D_PAD - D1) / 8; // chunks of a row of k2, and of nothing

DEV int stored_row() { return static_cast<int>(fresh_thread() % GROUP / 32 * 16) + lane_id() / 4; } // and 8 behind it
DEV int stored_column() { return lane_id() % 4 * 16; }                                              // of a panel
DEV bool has_stored(int panel) { return (panel + 1) * 64 <= D1 || panel * 64 + stored_column() < D1; }

// A thread's rows of a tile. Beyond the last key that one is read anew: its pairs count nowhere.
template <class PARAMS> DEV int stored_key(const PARAMS &p, int code, int i)
{
    return min(tile_cursor::number(code) * cfg::BN + stored_row() + 8 * i, p.z.len_kv - 1);
}
struct stored_rows {
    page_place place[2];
    const cfg::stored_k *k[2]; // from its column of a panel on

    template <class PARAMS> __device__ __forceinline__ void find(const PARAMS &p, const work &w, int code)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            place[i] = find_page(p, w.b, stored_key(p, code, i));
            k[i] = static_cast<const cfg::stored_k *>(p.k) + w.h_kv * p.k_h + place[i].page * p.k_b +
                   place[i].row * p.k_t + stored_column();
        }
    }
    // Of k2; or null.
    template <class PARAMS>
    __device__ __forceinline__ const cfg::element_k *pair(const PARAMS &p, const work &w, int i) const
    {
        if constexpr (requires { p.k2; }) {
            return static_cast<const cfg::element_k *>(p.k2) + w.h_kv * p.k2_h + place[i].page * p.k2_b +
                   place[i].row * p.k2_t;
        } else {
            return nullptr;
        }
    }
    // A lane has every fourth line of its rows.
    template <class PARAMS> __device__ __forceinline__ void prefetch(const PARAMS &p, const work &w) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int first = 0; first < D1; first += 4 * 128) {
                const int column = first + lane_id() % 4 * 128;
                if (first + 4 * 128 <= D1 || column < D1) {
                    prefetch_once(k[i] - stored_column() + column);
                }
            }
#pragma unroll
            for (int first = 0; first < cfg::D2; first += 4 * 64) {
                const int column = first + lane_id() % 4 * 64;
                if (first + 4 * 64 <= cfg::D2 || column < cfg::D2) {
                    prefetch_once(pair(p, w, i) + column);
                }
            }
        }
    }
    __device__ __forceinline__ void ask(uint4 (&stored)[2], int panel) const
    {
        if (has_stored(panel)) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                stored[i] = load_once16(k[i] + panel * 64);
            }
        }
    }
    // Those of k2 to the tile at `to`, with zeros behind.
    template <class PARAMS> __device__ __forceinline__ void copy_pair(const PARAMS &p, const work &w, u32 to) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const cfg::element_k *k2 = pair(p, w, i);
#pragma unroll
            for (int first = 0; first < BEHIND; first += 4) {
                const int chunk = first + lane_id() % 4;
                const bool inside = D1 + chunk * 8 < cfg::D;
                if (BEHIND % 4 == 0 || chunk < BEHIND) {
                    copy16_async(to + panels<cfg::D_PAD>::offset<64>(stored_row() + 8 * i, D1 / 8 + chunk),
                                 inside ? k2 + chunk * 8 : p.k, inside ? 16 : 0);
                }
            }
        }
    }
};

// What key_mod reads of a tile's rows is asked for ahead, so that its lines are near when numbers are made.
template <class MOD, class PARAMS> DEV float ask_mod(const PARAMS &p, const typename MOD::head &head, int code)
{
    float sum = 0.0f;
    if constexpr (MOD::PRESENT) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float x[1] = {1.0f};
            modify<MOD>(x, p, head, stored_key(p, code, i), lane_id() % 4 * (D1 / 4));
            sum += x[0];
        }
    }
    return sum;
}

template <class MOD, class PARAMS> DEV void store_panel(const PARAMS &p, const typename MOD::head &head,
                                                        const uint4 (&stored)[2], u32 to, int code, int panel)
{
    if (has_stored(panel)) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const u32 word[4] = {stored[i].x, stored[i].y, stored[i].z, stored[i].w};
            u32 pair[8];
            widen16<MOD, cfg::stored_k>(pair, word, p, head, stored_key(p, code, i), panel * 64 + stored_column());
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int chunk = panel * 8 + stored_column() / 8 + half;
                store_half16(to + panels<cfg::D_PAD>::offset<64>(stored_row() + 8 * i, chunk), pair, half);
            }
        }
    }
}

// By each warp: its rows of a piece are there.
DEV void leave_piece(u32 shared, place at, int piece)
{
    fence_async_proxy();
    __syncwarp();
    if (lane_id() == 0) {
        mbarrier_arrive(layout::full(shared, at.stage, static_cast<u32>(piece)));
    }
}

template <class PARAMS> DEV void bring_narrow(const PARAMS &p, const work &w, const key_tiles &keys, u32 shared)
{
    using mod = variant::key_mod;
    const typename mod::head head = mod_head<mod>(p, w.b, w.h_kv);
    part_cursor<1> cursor;
    cursor.start(keys);
    int code = cursor.next(p, w);
    uint4 stored[STORED_PANELS][2] = {};
    stored_rows rows = {};
    if (code >= 0) {
        rows.find(p, w, code);
#pragma unroll
        for (int panel = 0; panel < AHEAD; panel++) {
            rows.ask(stored[panel], panel);
        }
    }
    place at{0, 0};
#pragma unroll 1
    while (code >= 0) {
        int next = cursor.next(p, w);
        stored_rows then = rows;
        float sum = 0.0f;
        if (next >= 0) {
            then.find(p, w, next);
            then.prefetch(p, w);
            sum = ask_mod<mod>(p, head, next);
        }
        wait(layout::empty(shared, at.stage), at.parity ^ 1u, "a place for a tile");
        tell_tile(shared, at, code);
        const u32 to = layout::stage(shared, at.stage);
        rows.copy_pair(p, w, to);
        copy_commit();
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++) {
            if (panel < STORED_PANELS) {
                store_panel<mod>(p, head, stored[panel], to, code, panel);
            }
            if (panel + 1 == PANELS || (panel + 1) % PIECE == 0) {
                if ((panel + 1) * 64 > D1) {
                    copy_wait<0>();
                }
                leave_piece(shared, at, panel / PIECE);
            }
            const int ahead = (panel + AHEAD) % STORED_PANELS; // behind the fence, which waits for what was asked for
            if (panel + AHEAD < STORED_PANELS) {
                rows.ask(stored[ahead], ahead);
            } else if (panel < STORED_PANELS && next >= 0) {
                then.ask(stored[ahead], ahead);
            }
        }
        after(next, sum);
        rows = then;
        code = next;
        at = at.next();
    }
    end_tiles(shared, at);
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
        if constexpr (cfg::NARROW_K) {
            bring_narrow(p, w, keys, shared);
        } else {
            bring_all(p, w, keys, shared);
        }
    } else if (group == 1) {
        registers_up<SCORE_REGISTERS>();
        score_all(p, w, shared);
    } else {
        if constexpr (cfg::NARROW_K) {
            registers_down<RIGHT_REGISTERS>();
        } else {
            registers_up<RIGHT_REGISTERS>();
        }
        gather_right(p, w, shared);
    }
}
#endif
