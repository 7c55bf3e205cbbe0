// attention/backward/latent_sm90.cuh: attention backward for sm_90a of latent attention in its absorbed form: head dims
// 552 to 576, V that is the first columns of K, query heads that share a head of keys.
//
// Few heads of keys leave few blocks of keys, but query rows are many: here a block has 64 queries of one head, whose
// Q, dO and sums of dq' stay, and walks the key tiles that the mask leaves, each block of a head from another one on.
// K is loaded once a tile, and V with it. One warp classes tiles and loads; two warpgroups have 32 queries each for
// s^T = K Q^T and dw^T = V dO^T, hand weights and ds to each other through shared memory, and have half the columns
// each of dq' += ds K, in registers, and of dk' = ds^T Q + w^T dO, which goes 96 columns at a time to memory, by
// vector atomics.
//
// Of a tile of 64 by 64: 5504 clocks of products, 147 KB of additions, 74 KB of loads. Shared memory, in KB: K 72, Q
// 72, dO 64, weights and ds 16. Registers of a thread: dq' 144, dk' 48; before these s and dw, 16 each.
//
// Launch: a block for each query tile of each head. dk' is 0 before, and still without an adjoint of a mod.
#pragma once
#include "attention/backward/pairs.cuh"
#include "common/tma_sm90.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D % 8 == 0 && cfg::D_V % 8 == 0, "TMA takes strides of 16 bytes");
static_assert(cfg::BACK_WGMMA && cfg::BACK_BM == 64 && cfg::BACK_BN == 64 && cfg::BACK_WARPS == 8 &&
                  cfg::BACK_SPLIT == 2 && cfg::BACK_STAGES == 1,
              "tiles of 64 queries and 64 keys, of which two warpgroups have half the queries each");
static_assert(!variant::MAP && variant::SITES == 0 && !cfg::DETERMINISTIC,
              "tiles are judged where they are met; pairs have no sites, and dk' no order");
static_assert(cfg::DK_F32 && cfg::DV_F32 && !cfg::BACK_DQ_STORED, "dk' is added in floats, dq' written once");

struct latent_back_params { // the maps are made of the rest at launch
    tensor_map q, k, v, dout;
    back_params p;
};

namespace back
{

constexpr int COLUMNS = 576, VALUES = 512; // of tiles in shared memory
static_assert(DK == COLUMNS && cfg::D_V <= VALUES && cfg::D_V <= cfg::D, "cfg::D is 552 to 576, cfg::D_V at most 512");
constexpr int SLICE = 96; // columns of dk' and dq' of a product
constexpr int SLICES = COLUMNS / 2 / SLICE;
constexpr bool IS_BF16 = same_type<cfg::operand, bf16>;

// All tiles lie as panels of 32 columns, of which a slice has three.
using panel = panels<32>;
constexpr int PANEL_BYTES = 64 * panel::SPAN;
constexpr int K_PANELS = COLUMNS / 32, V_PANELS = VALUES / 32, SLICE_PANELS = SLICE / 32;

struct layout { // offsets in bytes
    static constexpr int K_BYTES = K_PANELS * PANEL_BYTES;
    static constexpr int DO_BYTES = V_PANELS * PANEL_BYTES;
    static constexpr int PAIRS_BYTES = 64 * 128; // of weights or ds: [key][query]
    static constexpr int K = 0;
    static constexpr int Q = K + K_BYTES;
    static constexpr int DO = Q + K_BYTES;
    static constexpr int W = DO + DO_BYTES;
    static constexpr int DS = W + PAIRS_BYTES;
    static constexpr int ROWS = DS + PAIRS_BYTES;
    static constexpr int TABLE = ROWS + ROW_VALUES * BM * 4;
    static constexpr int RING = TABLE + (variant::BACK_DIAG ? 4 * (BM + BN) : 0);
    static constexpr int Q_THERE = RING + ring_barriers<1>::BYTES;
    static constexpr int TILE = Q_THERE + 8; // twice the tile in K's place, and whether all its pairs are live
    static constexpr int BYTES = TILE + 8;
    static_assert(BYTES <= 232448, "a block has at most 227 KiB of shared memory");
};
constexpr u32 NO_TILE = ~0u;

constexpr int LATENT_THREADS = FIRST_THREAD + THREADS;
constexpr int LOADER_REGISTERS = 24, WORKER_REGISTERS = 240; // of a thread, out of 64 K in all

// Named barriers of both warpgroups.
enum named_barrier { PAIRS_READ = 1, TABLE_THERE = 2, PAIRS_THERE = 3, ROWS_THERE = 4 };

using k_place = ring_place<1>;
DEV ring_barriers<1> ring_at(u32 shared) { return {shared + layout::RING}; }

// The queries of a block: the last tiles first, which have most keys under a causal mask.
struct row_block {
    int b, h, tile;
};
DEV row_block nth_rows(const sizes &z, u32 n)
{
    const u32 heads = static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h);
    const u32 head = n % heads;
    const u32 n_h = static_cast<u32>(z.n_h);
    return {static_cast<int>(head / n_h), static_cast<int>(head % n_h),
            query_tiles(z) - 1 - static_cast<int>(n / heads)};
}

// ---- the warp that loads -----------------------------------------------------------------------------

template <int COUNT> DEV void load_panels(u32 to, const tensor_map *map, u32 full, int token, int head, int batch)
{
#pragma unroll 1
    for (int i = 0; i < COUNT; i++) {
        tma_load(to + static_cast<u32>(i * PANEL_BYTES), map, full, i * 32, token, head, batch, L2_KEEP);
    }
}

DEV void load_all(const latent_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const ring_barriers<1> ring = ring_at(shared);
    const row_block at = nth_rows(p.z, fresh_block());
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const bool leader = elect_one();
    const int tiles = key_tiles(p.z);
    // Blocks that run at the same time begin at different keys: their additions to dk' do not meet.
    const int start = tiles > 0 ? static_cast<int>(fresh_block() % static_cast<u32>(tiles)) : 0;
    u32 count = 0;
    if (leader) {
        mbarrier_arrive_expect(shared + layout::Q_THERE, layout::K_BYTES + layout::DO_BYTES);
        load_panels<K_PANELS>(shared + layout::Q, &params.q, shared + layout::Q_THERE, at.tile * BM, at.h, at.b);
        load_panels<V_PANELS>(shared + layout::DO, &params.dout, shared + layout::Q_THERE, at.tile * BM, at.h, at.b);
    }
    __syncwarp();
#pragma unroll 1
    for (int first = 0; first < tiles; first += 32) {
        const int mine = first + lane_id() + start;
        const int c = first + lane_id() < tiles
                          ? classify(p, at.b, at.h, head, at.tile, mine < tiles ? mine : mine - tiles)
                          : static_cast<int>(TILE_NONE);
        const u32 whole = __ballot_sync(ALL_LANES, c == TILE_ALL);
#pragma unroll 1
        for (u32 some = __ballot_sync(ALL_LANES, c != TILE_NONE); some != 0; some &= some - 1) {
            const int bit = __ffs(static_cast<int>(some)) - 1;
            const int tile = first + bit + start < tiles ? first + bit + start : first + bit + start - tiles;
            if (leader) {
                ring.wait_empty(k_place::nth(count));
                store_shared(shared + layout::TILE, static_cast<u32>(2 * tile) + (whole >> bit & 1u));
                mbarrier_arrive_expect(ring.full(0), layout::K_BYTES);
                load_panels<K_PANELS>(shared + layout::K, &params.k, ring.full(0), tile * BN, at.h / p.z.group(), at.b);
            }
            __syncwarp();
            count++;
        }
    }
    if (leader) {
        ring.wait_empty(k_place::nth(count));
        store_shared(shared + layout::TILE, NO_TILE);
        mbarrier_arrive(ring.full(0));
    }
    __syncwarp();
}

// ---- products ----------------------------------------------------------------------------------------

// Starts x = A B^T: 64 keys of K or V, and this warpgroup's 32 queries of Q or dO.
template <int COUNT> DEV void start_turned(float (&x)[NB][4], u32 keys, u32 queries)
{
    wgmma<8 * NB>::fence(x);
    const u64 a = panel::descriptor(of_the_warp(keys), 16);
    const u64 b = panel::descriptor(of_the_warp(queries), 16);
#pragma unroll
    for (int i = 0; i < COUNT * panel::STEPS; i++) {
        const u64 step = descriptor_step(i / panel::STEPS * PANEL_BYTES + i % panel::STEPS * 32);
        wgmma<8 * NB>::template ss<IS_BF16>(x, a + step, b + step, i != 0);
    }
    wgmma_commit();
}

// Starts dq' += ds K of a slice of columns, of which `keys` are the first panel.
DEV void start_dq(float (&dq)[SLICE / 8][4], u32 ds, u32 keys)
{
    wgmma<SLICE>::fence(dq);
    const u64 a = panels<64>::descriptor(of_the_warp(ds), 16);
    const u64 b = panel::descriptor(of_the_warp(keys), PANEL_BYTES);
#pragma unroll
    for (int i = 0; i < BN / 16; i++) {
        wgmma<SLICE>::template ss<IS_BF16, true, true>(dq, a + descriptor_step(i * 16 * 128),
                                                       b + descriptor_step(i * 16 * panel::SPAN), 1);
    }
    wgmma_commit();
}

// Starts dk' = X^T Y, or dk' += X^T Y, of N columns: X^T is [key][query], `rows` the first panel of Q or dO.
template <int N> DEV void start_dk(float (&dk)[N / 8][4], u32 pairs, u32 rows, int sum)
{
    wgmma<N>::fence(dk);
    const u64 a = panels<64>::descriptor(of_the_warp(pairs), 16);
    const u64 b = panel::descriptor(of_the_warp(rows), PANEL_BYTES);
#pragma unroll
    for (int i = 0; i < BM / 16; i++) {
        wgmma<N>::template ss<IS_BF16, false, true>(dk, a + descriptor_step(i * 32),
                                                    b + descriptor_step(i * 16 * panel::SPAN), i == 0 ? sum : 1);
    }
    wgmma_commit();
}

// ---- tiles -------------------------------------------------------------------------------------------

struct row_sums { // of this warpgroup's columns
    float dq[SLICES][SLICE / 8][4];
};

struct worker {
    const back_params &p;
    u32 shared;
    int group; // number of the warpgroup
    const row_block &at;
    bool large; // norms are beside the row values

    // This warp's pairs of 16 keys and 32 queries to a tile [key][query].
    __device__ __forceinline__ void store_pairs(const float (&x)[NB][4], u32 to) const
    {
        const place here;
        u32 packed[NB / 2][4];
        pack_weights<cfg::operand, NB>(packed, x);
#pragma unroll
        for (int k = 0; k < NB / 2; k++) {
            store_matrix4(
                to + panels<64>::offset<64>(here.key0() + here.lane % 16, here.part() * NB + 2 * k + here.lane / 16),
                packed[k]);
        }
    }

    // Weights and ds of a tile: where s and dw have been.
    __device__ __forceinline__ void make_pairs(const variant::head &head, int kv0, bool whole) const
    {
        const place mine;
        float s[MT][NB][4];
        float dw[MT][NB][4];
        const u32 queries = static_cast<u32>(group * 8 * NB * panel::SPAN);
        start_turned<K_PANELS>(s[0], shared + layout::K, shared + layout::Q + queries);
        start_turned<V_PANELS>(dw[0], shared + layout::K, shared + layout::DO + queries);
        const int key = kv0 + mine.key();
        const int row = at.tile * BM + mine.query();
        variant::col col[COLS];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            col[c] = variant::make_col(p.x, p.z, head, key + 8 * c);
        }
        barrier_sync(PAIRS_READ, THREADS); // those of the tile before
        if constexpr (variant::BACK_DIAG) {
            fill_table<BN, THREADS>(shared + layout::TABLE, p, head, at.tile * BM, kv0,
                                    static_cast<int>(fresh_thread()) - FIRST_THREAD);
            barrier_sync(TABLE_THERE, THREADS);
        }
        wgmma<8 * NB>::wait<0>(s[0]);
        wgmma<8 * NB>::wait<0>(dw[0]);
        const u32 rows = shared + layout::ROWS + static_cast<u32>(4 * mine.query());
        const u32 entries = shared + layout::TABLE + static_cast<u32>(4 * (mine.query() - mine.key() + BN - 1));
        site_sums<NB, COLS> none;
        const site_context<NB, COLS> sites{p, head, none, 0};
        if (large) {
            pairs<false, variant::NORM>(s, dw, p, head, col, sites, row, key, rows, entries);
        } else if (whole) {
            pairs<true>(s, dw, p, head, col, sites, row, key, rows, entries);
        } else {
            pairs<false>(s, dw, p, head, col, sites, row, key, rows, entries);
        }
        store_pairs(s[0], shared + layout::W);
        store_pairs(dw[0], shared + layout::DS);
        fence_async_proxy();
        barrier_sync(PAIRS_THERE, THREADS);
    }

    __device__ __forceinline__ void add_dq(row_sums &sums) const
    {
#pragma unroll
        for (int i = 0; i < SLICES; i++) {
            start_dq(sums.dq[i], shared + layout::DS,
                     shared + layout::K + static_cast<u32>((group * SLICES + i) * SLICE_PANELS * PANEL_BYTES));
        }
#pragma unroll
        for (int i = 0; i < SLICES; i++) {
            wgmma<SLICE>::wait<0>(sums.dq[i]);
        }
    }

    // dk' of the tile, of this warpgroup's columns. factor: what ds^T Q is multiplied by.
    __device__ __forceinline__ void add_dk(float *to, int left, float factor) const
    {
#pragma unroll 1
        for (int i = group * SLICES; i < (group + 1) * SLICES; i++) {
            const int first = i * SLICE_PANELS;
            const u32 rows = static_cast<u32>(first * PANEL_BYTES);
            float dk[SLICE / 8][4];
            start_dk<SLICE>(dk, shared + layout::DS, shared + layout::Q + rows, 0);
            wgmma<SLICE>::wait<0>(dk);
#pragma unroll
            for (int d = 0; d < SLICE / 8; d++) {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    dk[d][k] *= factor;
                }
            }
            if (first + SLICE_PANELS <= V_PANELS) {
                start_dk<SLICE>(dk, shared + layout::W, shared + layout::DO + rows, 1);
            } else {
                constexpr int REST = 8 * panel::SPAN / 16; // columns of dO behind the last whole slice
                static_assert(V_PANELS % SLICE_PANELS == 1 && REST == 32, "dO ends with one panel of a slice");
                start_dk<REST>(reinterpret_cast<float(&)[REST / 8][4]>(dk), shared + layout::W,
                               shared + layout::DO + rows, 1);
            }
            wgmma<SLICE>::wait<0>(dk);
            add_slice(dk, to + i * SLICE, left, cfg::D - i * SLICE);
        }
    }

    // A slice to memory, of which `left` rows and `columns` exist: two lanes exchange what they have, so that each has
    // four floats of one row.
    __device__ __forceinline__ void add_slice(const float (&dk)[SLICE / 8][4], float *to, int left, int columns) const
    {
        const place mine;
        const bool odd = mine.lane % 2 != 0;
        const int row = mine.key() + (odd ? 8 : 0);
        const int column = mine.lane % 4 / 2 * 4;
        to += row * p.dk_t + column;
#pragma unroll
        for (int d = 0; d < SLICE / 8; d++) {
            float four[4];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float other = __shfl_xor_sync(ALL_LANES, odd ? dk[d][j] : dk[d][2 + j], 1);
                four[j] = odd ? other : dk[d][j];
                four[2 + j] = odd ? dk[d][2 + j] : other;
            }
            if (row < left && 8 * d + column < columns) {
                add_global4(to + 8 * d, four);
            }
        }
    }

    __device__ __forceinline__ void run(row_sums &sums) const
    {
        const ring_barriers<1> ring = ring_at(shared);
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
        const int h_kv = at.h / p.z.group();
#pragma unroll 1
        for (u32 count = 0;; count++) {
            ring.wait_full(k_place::nth(count));
            const u32 code = __shfl_sync(ALL_LANES, __float_as_uint(load_shared(shared + layout::TILE)), 0);
            if (code == NO_TILE) {
                break;
            }
            const int kv0 = static_cast<int>(code >> 1) * BN;
            make_pairs(head, kv0, (code & 1u) != 0);
            if constexpr (cfg::WANT_DQ) {
                add_dq(sums);
            }
            __syncwarp();
            if (lane_id() == 0) {
                mbarrier_arrive(ring.empty(0));
            }
            if constexpr (cfg::WANT_DK) {
                float *to = static_cast<float *>(p.dk) + at.b * p.dk_b + h_kv * p.dk_h + kv0 * p.dk_t;
                add_dk(to, p.z.len_kv - kv0, variant::ds_factor(p.x, p.z, head));
            }
        }
    }

    // dq' of the block's rows: the order is dq_of_wgmma's.
    __device__ __forceinline__ void store_dq(const row_sums &sums) const
    {
        const i64 line = tile_line(p.z, at.b, at.h) + at.tile;
        float *to = p.dq + line * dq_shape::FLOATS + group * (SLICES * SLICE / 8) * 512 + fresh_thread() % 128 * 4;
#pragma unroll
        for (int i = 0; i < SLICES; i++) {
#pragma unroll
            for (int d = 0; d < SLICE / 8; d++) {
                store_vec<4, float>(to + (i * (SLICE / 8) + d) * 512, sums.dq[i][d]);
            }
        }
    }
};

// Row values of the block's queries to shared memory, norms behind them. True: one of them is large.
DEV bool take_rows(const back_params &p, const row_block &at, u32 to)
{
    const i64 stride = static_cast<i64>(query_tiles(p.z)) * BM * p.z.n_b * p.z.n_h;
    const i64 line = tile_line(p.z, at.b, at.h) + at.tile;
    const int row = static_cast<int>(fresh_thread()) - FIRST_THREAD;
    bool large = false;
    if constexpr (NORM_RECORDS) {
        const float *records = p.rows + ROW_VALUES * stride + line * (BM / NORM_ROWS * (RECORD_BYTES / 4));
        const uint4 record = *reinterpret_cast<const uint4 *>(records);
        large = record.x != 0;
        if (large && row < BM) {
            store_shared(to + static_cast<u32>((variant::BACK_ROWS * BM + row) * 4), norms_of(record)[row]);
        }
    }
    if (row < BM) {
#pragma unroll
        for (int k = 0; k < variant::BACK_ROWS; k++) {
            store_shared(to + static_cast<u32>((k * BM + row) * 4), p.rows[k * stride + line * BM + row]);
        }
    }
    barrier_sync(ROWS_THERE, THREADS);
    return large;
}

DEV void compute_all(const latent_back_params &params, u32 shared)
{
    const back_params &p = params.p;
    const row_block at = nth_rows(p.z, fresh_block());
    const int group = static_cast<int>(__shfl_sync(ALL_LANES, fresh_thread() / 128 - 1, 0));
    const worker w{p, shared, group, at, take_rows(p, at, shared + layout::ROWS)};
    row_sums sums;
#pragma unroll
    for (int i = 0; i < SLICES; i++) {
#pragma unroll
        for (int d = 0; d < SLICE / 8; d++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                sums.dq[i][d][k] = 0.0f;
            }
        }
    }
    mbarrier_wait(shared + layout::Q_THERE, 0);
    w.run(sums);
    if constexpr (cfg::WANT_DQ) {
        w.store_dq(sums);
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int bwd = back::layout::BYTES;
}

#if LATHE_COMPILED(bwd)
extern "C" __global__ void __launch_bounds__(back::LATENT_THREADS, 1)
    LATHE_ENTRY(bwd)(const __grid_constant__ latent_back_params params)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    if (threadIdx.x == 0) {
        ring_at(shared).init(WARPS);
        mbarrier_init(shared + layout::Q_THERE, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<LOADER_REGISTERS>();
        if (__shfl_sync(ALL_LANES, threadIdx.x / 32, 0) == 0) {
            load_all(params, shared);
        }
    } else {
        registers_up<WORKER_REGISTERS>();
        compute_all(params, shared);
    }
}
#endif
