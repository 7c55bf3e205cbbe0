// attention/mla.cuh: attention with head dims beyond 256, or whose V is the first columns of K, sm_80 and up: absorbed
// latent attention above all, where many query heads share one head of keys of 512 + 64 elements.
//
// `decode`: a block has BM rows of a key head (attention/decode_rows.cuh) and a part of the keys, whose tiles of BN
// keys all of its warps bring by cp.async, STAGES - 1 ahead. SLICES warps share 16 rows: each sums scores over every
// SLICES'th step of 16 elements of the head dim, the sums of all are put together in shared memory, in the same order
// by each, and each weighs them and has every SLICES'th 16 columns of o. So o of 512 columns has room in registers,
// scores are computed once, and where V_IS_K a tile is read once for both products. `merge` of
// attention/decode_merge.cuh ends the rows.
//
// Launch: n_b * n_h_kv * tiles * parts blocks of THREADS threads; of packed sequences (rows / BM + sequences) * n_h_kv
// * parts.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_tiles.cuh"
#include "attention/latent_narrow.cuh"
#include "attention/latent_rows.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(parts_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not say how parts of a row are merged");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0,
              "rows are copied 16 bytes at a time");
static_assert(cfg::BM == 16 || cfg::BM == 32 || cfg::BM == 64 || cfg::BM == 128,
              "whole blocks of 16 rows, a power of two of them");
static_assert(cfg::BN == 16 || cfg::BN == 32 || cfg::BN == 64, "a tile has 16, 32 or 64 keys");
static_assert(cfg::STAGES >= 2 && cfg::STAGES <= 8, "cfg::STAGES is 2 .. 8");
static_assert(!variant::MAP, "tiles are judged by the blocks that meet them");
static_assert(!cfg::NARROW_K || (cfg::D - cfg::D2) % 16 == 0, "rows of 8 bits are copied 16 bytes at a time");

namespace mla
{

using namespace decode;

constexpr int GROUPS = cfg::BM / WARP_ROWS;
constexpr int SLICES = cfg::WARPS / GROUPS;
static_assert(cfg::WARPS % GROUPS == 0 && (SLICES == 1 || SLICES == 2 || SLICES == 4), "1, 2 or 4 warps share 16 rows");
static_assert(cfg::D_PAD == round_up(cfg::D, 16 * SLICES) && cfg::DV_PAD == round_up(cfg::D_V, 16 * SLICES),
              "slices are alike");
static_assert(cfg::DV_PAD / SLICES <= 256, "16 rows of o need so many registers of each thread, halved");
static_assert(!cfg::V_IS_K || cfg::DV_PAD <= cfg::D_PAD, "columns of V are columns of K");

// ---- shared memory -----------------------------------------------------------------------------------

struct layout { // offsets in bytes
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * ELEMENT_BYTES<cfg::operand>;
    static constexpr int STAGE_BYTES =
        K_BYTES + (cfg::V_IS_K ? 0 : cfg::BN * cfg::DV_PAD * ELEMENT_BYTES<cfg::operand>);
    static constexpr int RING = cfg::BM * cfg::D_PAD * ELEMENT_BYTES<cfg::operand>; // behind Q
    static constexpr int SUMS = RING + cfg::STAGES * STAGE_BYTES;
    static constexpr int BYTES = SUMS + (SLICES > 1 ? cfg::WARPS * (cfg::BN / 8) * 32 * 16 : 0);

    DEV u32 stage(u32 shared, int number) { return shared + static_cast<u32>(RING + number * STAGE_BYTES); }
};

// ---- products ----------------------------------------------------------------------------------------

constexpr int NB = cfg::BN / 8;
constexpr int KSTEPS = cfg::D_PAD / (16 * SLICES);
constexpr int DB = cfg::DV_PAD / (8 * SLICES);
constexpr int V_COLS = cfg::V_IS_K ? cfg::D_PAD : cfg::DV_PAD; // of the tile that V lies in
constexpr bool Q_IN_REGS = KSTEPS <= 10;

// What a warp has.
struct place {
    int lane, group, slice;
    DEV place here()
    {
        const int warp = static_cast<int>(threadIdx.x / 32);
        return {lane_id(), warp / SLICES, warp % SLICES};
    }
};

struct warp_rows {
    thread_rows<1, packed> rows;
    float o[1][DB][4];
    a_fragments<1, Q_IN_REGS ? KSTEPS : 1> q;
};

// Address of the same row, `n` of the warp's own steps of two chunks further on. Those of a slice begin at chunk 2
// slice: bits that no whole round of all slices touches.
template <int COLS> DEV u32 step_along(u32 address, int n) { return swizzle<COLS>::along(address, 2 * SLICES * n); }

// Of this lane, in the rows of its warp.
DEV u32 q_address(u32 shared, const place &at)
{
    return shared + swizzle<cfg::D_PAD>::offset(at.group * WARP_ROWS + (at.lane & 15), 2 * at.slice + (at.lane >> 4));
}
DEV void keep_queries(warp_rows &own, u32 address)
{
#pragma unroll
    for (int k = 0; k < KSTEPS; k++) {
        load_matrix4(own.q.r[k][0], step_along<cfg::D_PAD>(address, k));
    }
}

// The slice's part of Q K^T. q: of q_address, where Q is read each time.
DEV void product_scores(float (&s)[1][NB][4], const warp_rows &own, u32 q, u32 k_address)
{
    constexpr int PAIRS = NB / 2;
    constexpr int LOADS = KSTEPS * PAIRS;
#pragma unroll
    for (int i = 0; i < NB * 4; i++) {
        s[0][i / 4][i % 4] = 0.0f;
    }
    u32 a[2][4];
    u32 b[2][4];
    if constexpr (!Q_IN_REGS) {
        load_matrix4(a[0], q);
    }
    load_matrix4(b[0], k_address);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS;
        const int n = i % PAIRS;
        if (i + 1 < LOADS) {
            load_matrix4(b[(i + 1) & 1], step_along<cfg::D_PAD>(k_address, (i + 1) / PAIRS) +
                                             static_cast<u32>((i + 1) % PAIRS * 16 * swizzle<cfg::D_PAD>::ROW_BYTES));
        }
        if constexpr (!Q_IN_REGS) {
            if (n == 0 && k + 1 < KSTEPS) {
                load_matrix4(a[(k + 1) & 1], step_along<cfg::D_PAD>(q, k + 1));
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if constexpr (Q_IN_REGS) {
                mma_16x8x16<cfg::operand>(s[0][2 * n + half], own.q.r[k][0], b[i & 1][2 * half],
                                          b[i & 1][2 * half + 1]);
            } else {
                mma_16x8x16<cfg::operand>(s[0][2 * n + half], a[k & 1], b[i & 1][2 * half], b[i & 1][2 * half + 1]);
            }
        }
    }
}

// The slice's columns of P V.
DEV void product_columns(warp_rows &own, const float (&s)[1][NB][4], u32 v_address)
{
    constexpr int PAIRS = DB / 2;
    constexpr int LOADS = NB / 2 * PAIRS;
    u32 b[2][4];
    u32 a[4];
    load_matrix4_transposed(b[0], v_address);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const int k = i / PAIRS;
        const int d = i % PAIRS;
        if (i + 1 < LOADS) {
            load_matrix4_transposed(b[(i + 1) & 1],
                                    step_along<V_COLS>(v_address, (i + 1) % PAIRS) +
                                        static_cast<u32>((i + 1) / PAIRS * 16 * swizzle<V_COLS>::ROW_BYTES));
        }
        if (d == 0) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
                a[2 * n] = pack<cfg::operand>(s[0][2 * k + n][0], s[0][2 * k + n][1]);
                a[2 * n + 1] = pack<cfg::operand>(s[0][2 * k + n][2], s[0][2 * k + n][3]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_16x8x16<cfg::operand>(own.o[0][2 * d + n], a, b[i & 1][2 * n], b[i & 1][2 * n + 1]);
        }
    }
}

// ---- scores of all slices ----------------------------------------------------------------------------

// Where a lane's four scores of a block of 8 keys lie, of one slice of its rows.
DEV u32 sums_of(u32 shared, const place &at, int slice, int block)
{
    return shared + static_cast<u32>(layout::SUMS + (((at.group * SLICES + slice) * NB + block) * 32 + at.lane) * 16);
}
DEV void leave_sums(const float (&s)[1][NB][4], u32 shared, const place &at)
{
#pragma unroll
    for (int n = 0; n < NB; n++) {
        store_shared16(sums_of(shared, at, at.slice, n), s[0][n]);
    }
}
// In the order of slices, so that all warps of the rows have the same bits.
DEV void add_sums(float (&s)[1][NB][4], u32 shared, const place &at)
{
#pragma unroll
    for (int n = 0; n < NB; n++) {
#pragma unroll
        for (int slice = 0; slice < SLICES; slice++) {
            const uint4 x = load_shared16(sums_of(shared, at, slice, n));
            const u32 word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[0][n][i] = slice == 0 ? __uint_as_float(word[i]) : s[0][n][i] + __uint_as_float(word[i]);
            }
        }
    }
}

// ---- rows and tiles ----------------------------------------------------------------------------------

// Rows of all heads of the tile; those that are not there are zeros.
DEV void load_queries(const attention_params &p, const work &w, u32 shared)
{
    using shape = swizzle<cfg::D_PAD>;
    for (int i = static_cast<int>(threadIdx.x); i < cfg::BM * shape::CHUNKS; i += THREADS) {
        const int row = i / shape::CHUNKS;
        const int chunk = i % shape::CHUNKS;
        const bool inside = row < w.rows && (cfg::D == cfg::D_PAD || chunk * 8 < cfg::D);
        const int from = inside ? row : 0;
        copy16_async(shared + shape::offset(row, chunk), query_columns(p, w, from, inside ? chunk * 8 : 0),
                     inside ? 16 : 0);
    }
}

DEV void begin_rows(warp_rows &own, const attention_params &p, const work &w, int first)
{
    own.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        own.rows.row[r] = w.row(p.x, p.z, first + 8 * r);
        own.rows.state[r] = variant::init((lane_id() & 3) == 0);
    }
#pragma unroll
    for (int i = 0; i < DB * 4; i++) {
        own.o[0][i / 4][i % 4] = 0.0f;
    }
}

using key_loader = block_rows<cfg::BN, cfg::D, cfg::D_PAD, THREADS, attention_params>;
using value_loader = block_rows<cfg::BN, cfg::D_V, cfg::DV_PAD, THREADS, attention_params>;

// Rows of k with those of k2 behind them; of pages, both lie at the same place of theirs.
template <class PARAMS> DEV void load_keys(const PARAMS &p, const work &w, u32 stage, int kv0)
{
    if constexpr (requires { p.k2; }) {
        using shape = swizzle<cfg::D_PAD>;
        for (int i = static_cast<int>(threadIdx.x); i < cfg::BN * shape::CHUNKS; i += THREADS) {
            const int row = i / shape::CHUNKS;
            const int column = i % shape::CHUNKS * 8;
            const key_columns source(p, w, kv0 + row);
            const bool inside = source.inside(column);
            copy16_async(stage + shape::offset(row, column / 8), source.at(inside ? column : 0), inside ? 16 : 0);
        }
    } else {
        key_loader(p, static_cast<const cfg::element_k *>(p.k), w.b, p.k_b, w.h_kv, p.k_h, p.k_t)
            .load(stage, kv0, p.z.len_kv - kv0);
    }
}

// ---- keys of 8 bits ----------------------------------------------------------------------------------

// A thread brings 16 bytes of a row to where the first of two chunks of operands is to lie, and makes both of them once
// they are there: no one else reads or writes those places before. What has been made of them is rounded once, as where
// a kernel ahead widens rows.
constexpr int NARROW_CHUNKS = D1 / 16; // of a row

template <class PARAMS> DEV void bring_narrow(const PARAMS &p, const work &w, u32 stage, int kv0)
{
    using shape = swizzle<cfg::D_PAD>;
    constexpr int BEHIND = shape::CHUNKS - 2 * NARROW_CHUNKS; // chunks of k2, and of nothing
    for (int i = static_cast<int>(threadIdx.x); i < cfg::BN * NARROW_CHUNKS; i += THREADS) {
        const int row = i / NARROW_CHUNKS;
        const int chunk = i % NARROW_CHUNKS;
        const bool exists = kv0 + row < p.z.len_kv;
        const page_place at = exists ? find_page(p, w.b, kv0 + row) : page_place{0, 0};
        const cfg::stored_k *k =
            static_cast<const cfg::stored_k *>(p.k) + w.h_kv * p.k_h + at.page * p.k_b + at.row * p.k_t;
        copy16_async(stage + shape::offset(row, 2 * chunk), k + chunk * 16, exists ? 16 : 0);
    }
    for (int i = static_cast<int>(threadIdx.x); i < cfg::BN * BEHIND; i += THREADS) {
        const int row = i / BEHIND;
        const int column = D1 + i % BEHIND * 8;
        const bool inside = column < cfg::D && kv0 + row < p.z.len_kv;
        const page_place at = inside ? find_page(p, w.b, kv0 + row) : page_place{0, 0};
        const void *from = p.k;
        if constexpr (requires { p.k2; }) {
            from = static_cast<const cfg::element_k *>(p.k2) + w.h_kv * p.k2_h + at.page * p.k2_b + at.row * p.k2_t +
                   (inside ? column - D1 : 0);
        }
        copy16_async(stage + shape::offset(row, column / 8), from, inside ? 16 : 0);
    }
}

// The thread's own chunks of the tile at hand. Rows that are not there are zeros.
template <class MOD, class T, class PARAMS> DEV void widen_keys(const PARAMS &p, const work &w, u32 stage, int kv0)
{
    using shape = swizzle<cfg::D_PAD>;
    const typename MOD::head head = mod_head<MOD>(p, w.b, w.h_kv);
    for (int i = static_cast<int>(threadIdx.x); i < cfg::BN * NARROW_CHUNKS; i += THREADS) {
        const int row = i / NARROW_CHUNKS;
        const int chunk = i % NARROW_CHUNKS;
        const bool exists = kv0 + row < p.z.len_kv;
        const uint4 stored = load_shared16(stage + shape::offset(row, 2 * chunk));
        const u32 word[4] = {stored.x, stored.y, stored.z, stored.w};
        u32 pair[8];
        widen16<MOD, T>(pair, word, p, head, exists ? kv0 + row : 0, chunk * 16);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            pair[j] = exists ? pair[j] : 0u;
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            store_half16(stage + shape::offset(row, 2 * chunk + half), pair, half);
        }
    }
}

// ---- tiles -------------------------------------------------------------------------------------------

DEV void load_tile(const attention_params &p, const work &w, u32 stage, int code)
{
    if (code >= 0) {
        const int kv0 = tile_cursor::number(code) * cfg::BN;
        if constexpr (cfg::NARROW_K) {
            bring_narrow(p, w, stage, kv0);
        } else {
            load_keys(p, w, stage, kv0);
        }
        if constexpr (!cfg::V_IS_K) {
            value_loader(p, static_cast<const cfg::element_v *>(p.v), w.b, p.v_b, w.h_kv, p.v_h, p.v_t)
                .load(stage + layout::K_BYTES, kv0, p.z.len_kv - kv0);
        }
    }
    copy_commit();
}

// Scores become weights, and o gathers V by them.
DEV void gather(warp_rows &own, float (&s)[1][NB][4], const at_rows &a, u32 stage, int code, const place &at)
{
    score_tile<false, 1, NB, packed, false, true, packed> scores{s,
                                                                 own.rows,
                                                                 a,
                                                                 tile_cursor::number(code) * cfg::BN +
                                                                     2 * (at.lane & 3),
                                                                 0u,
                                                                 tile_cursor::class_of(code) == TILE_ALL,
                                                                 tile_cursor::class_of(code) == TILE_CUT};
    float scale[2];
    scores.run(scale);
    if constexpr (variant::RESCALE) {
        rescale(own.o, scale);
    }
    const u32 v = stage + (cfg::V_IS_K ? 0u : static_cast<u32>(layout::K_BYTES));
    product_columns(own, s, v + swizzle<V_COLS>::offset(at.lane & 15, 2 * at.slice + (at.lane >> 4)));
}

// By all warps; those whose rows are not there come for the barrier alone.
DEV void meet_tile(warp_rows &own, const at_rows &a, u32 shared, u32 stage, int code, const place &at, bool exists)
{
    float s[1][NB][4];
    if (exists) {
        product_scores(
            s, own, q_address(shared, at),
            stage + swizzle<cfg::D_PAD>::offset((at.lane & 7) + (at.lane >> 4) * 8, 2 * at.slice + (at.lane >> 3 & 1)));
    }
    if constexpr (SLICES > 1) {
        if (exists) {
            leave_sums(s, shared, at);
        }
        __syncthreads();
        if (exists) {
            add_sums(s, shared, at);
        }
    }
    if (exists) {
        gather(own, s, a, stage, code, at);
    }
}

// first: the thread's first row.
DEV void end_rows(warp_rows &own, const attention_params &p, const work &w, const place &at, int first)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(own.rows.state[r], sum_of_four{});
        const int i = first + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        if (i >= w.rows) {
            continue;
        }
        if (at.slice == 0 && (at.lane & 3) == 0) {
            write_record(record_of(p, w, i), own.rows.state[r], seen);
        }
        float *to = o_of(p, w, i);
#pragma unroll
        for (int d = 0; d < DB; d++) {
            const int column = 16 * (at.slice + SLICES * (d / 2)) + 8 * (d % 2);
            if (cfg::D_V == cfg::DV_PAD || column < cfg::D_V) {
                *reinterpret_cast<float2 *>(to + column + 2 * (at.lane & 3)) =
                    seen ? make_float2(own.o[0][d][2 * r], own.o[0][d][2 * r + 1]) : make_float2(0.0f, 0.0f);
            }
        }
    }
}

// ---- all tiles of a part -----------------------------------------------------------------------------

// `own` is begun, and has its rows of Q, when the first tile is there.
DEV void walk(warp_rows &own, const attention_params &p, const work &w, const key_tiles &keys, u32 shared,
              const place &at, int first)
{
    constexpr int AHEAD = cfg::STAGES - 1;
    part_cursor<1> cursor;
    int queue[AHEAD]; // tiles on their way
    cursor.start(keys);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        queue[i] = cursor.next(p, w);
        load_tile(p, w, layout::stage(shared, i), queue[i]); // Q comes with the first
    }
    begin_rows(own, p, w, first);
    const packed::head none{};
    const at_rows a{p.x, p.z, none};
    const bool exists = at.group * WARP_ROWS < w.rows;
    int stage = 0;
    int fill = AHEAD;
    [[maybe_unused]] bool begun = false;
#pragma unroll 1
    while (queue[0] >= 0) {
        copy_wait<AHEAD - 1>();
        if constexpr (cfg::NARROW_K) {
            widen_keys<variant::key_mod, cfg::stored_k>(p, w, layout::stage(shared, stage),
                                                        tile_cursor::number(queue[0]) * cfg::BN);
        }
        __syncthreads(); // the tile at hand is there, and no one reads those before it, nor their sums
        const int code = queue[0];
        const int next = cursor.next(p, w);
        load_tile(p, w, layout::stage(shared, fill), next);
#pragma unroll
        for (int i = 0; i + 1 < AHEAD; i++) {
            queue[i] = queue[i + 1];
        }
        queue[AHEAD - 1] = next;
        if constexpr (Q_IN_REGS) {
            if (!begun) {
                keep_queries(own, q_address(shared, at));
                begun = true;
            }
        }
        meet_tile(own, a, shared, layout::stage(shared, stage), code, at, exists);
        stage = stage + 1 == cfg::STAGES ? 0 : stage + 1;
        fill = fill + 1 == cfg::STAGES ? 0 : fill + 1;
    }
    copy_wait<0>();
}

} // namespace mla

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int decode = mla::layout::BYTES;
}

#if LATHE_COMPILED(decode)
extern "C" __global__ void __launch_bounds__(decode::THREADS)
    LATHE_ENTRY(decode)(const __grid_constant__ attention_params launched)
{
    using namespace mla;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
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
    const place at = place::here();
    const int first = at.group * WARP_ROWS + at.lane / 4;
    load_queries(p, w, shared);
    warp_rows own;
    walk(own, p, w, keys, shared, at, first);
    end_rows(own, p, w, at, first);
}
#endif
