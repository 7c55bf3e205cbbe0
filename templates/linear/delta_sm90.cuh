// linear/delta_sm90.cuh: kernel: the delta rule with no decay or one number a token, in chunks of 64 tokens by wgmma.
//
// Launch: sequences * h * BLOCK_SLICES blocks of DELTA_THREADS threads, delta_smem_bytes() of shared memory, behind `inverse` (linear/delta_inverse.cuh), which
// leaves T. A block has BLOCK_COLUMNS columns of the state of one head. Its first warpgroup loads chunks and makes what their tokens see of each other, the
// pairs scale (q k') e^(G_i - G_j), with G the sum of the logarithms from the chunk's start on; the others go with 64 columns of the state each from chunk to
// chunk (linear/delta_walk_sm90.cuh). Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/delta_walk_sm90.cuh"

namespace linear {

constexpr int DELTA_THREADS = (1 + GROUPS) * LOADERS;
constexpr int LOADER_REGISTERS = 88, WALK_REGISTERS = 208; // of 168; two warpgroups have as many as they want
// As C, for the planner: stages * (256 * pad + 8192 * groups + 8976) + 8208
constexpr int delta_smem_bytes() { return delta_layout::END; }
static_assert(delta_smem_bytes() == STAGES * (256 * CHUNK_PAD + 8192 * GROUPS + 8976) + 8208, "the planner says the same");

struct delta_loader {
    using element = cfg::element;
    const linear_params &p;
    const work &w;
    u32 shared;
    unsigned char *bytes;

    __device__ __forceinline__ void load(int n) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const int place = n * CHUNK_TOKENS;
        load_tokens<CHUNK_PAD>(tiles + delta_stage::K, elements(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h), p.k_t, w.s, place, cfg::D);
        load_tokens<BLOCK_COLUMNS>(tiles + delta_stage::V, elements(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t, w.s, place, w.left);
        load_inverse(tiles + delta_stage::INVERSE, n);
        load_tokens<CHUNK_PAD>(tiles + delta_stage::Q, elements(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h), p.q_t, w.s, place, cfg::D);
    }
    __device__ __forceinline__ void load_inverse(u32 tile, int n) const
    {
        const i64 which = (chunk_number(p, w.s, 0) + n) * p.z.n_h + w.h;
        const element *from = elements(p.inverse, which * INVERSE_ELEMENTS);
#pragma unroll
        for (int i = 0; i < INVERSE_ELEMENTS / 8 / LOADERS; i++) {
            const int at = static_cast<int>(fresh_thread()) + i * LOADERS;
            copy16_async(tile + panel::offset<PANEL_ROWS>(at / 8, at % 8), from + at * 8, 16);
        }
    }
    // By the first warp: G, and what tokens read and write by.
    __device__ __forceinline__ void put_factors(const logs &own, int n) const
    {
        float *to = reinterpret_cast<float *>(bytes + delta_layout::FACTORS) + delta_ring::nth(n).stage * delta_factors::COUNT;
        const float last = own.sum(to + delta_factors::SUMS);
        const float end = __shfl_sync(ALL_LANES, last, 31);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float sum = k == 0 ? last - own.x[1] : last;
            to[delta_factors::READ + 2 * lane_id() + k] = exp2_approx(sum);
            to[delta_factors::WRITE + 2 * lane_id() + k] = exp2_approx(end - sum);
        }
    }
    // What a token reads of its chunk. Where a chunk's decay is mild, a product of a token's own factors: no exponent for a pair.
    template <bool MILD> __device__ __forceinline__ void weigh(float (&s)[8][4], u32 factors, float end) const
    {
        const int row0 = product_warp() * 16 + lane_id() / 4;
        float from[2] = {};
#pragma unroll
        for (int r = 0; DECAYS && r < 2; r++) {
            from[r] = load_shared(factors + static_cast<u32>(4 * ((MILD ? delta_factors::READ : delta_factors::SUMS) + row0 + 8 * r)));
            from[r] = MILD ? from[r] * w.scale * exp2_approx(-end) : from[r];
        }
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const int to = b * 8 + lane_id() % 4 * 2;
            float2 key = {};
            if constexpr (DECAYS) {
                key = load_shared8(factors + static_cast<u32>(4 * ((MILD ? delta_factors::WRITE : delta_factors::SUMS) + to)));
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool live = to + i % 2 <= row0 + i / 2 * 8;
                const float other = i % 2 ? key.y : key.x;
                const float by = !DECAYS ? w.scale : MILD ? from[i / 2] * other : w.scale * exp2_approx(live ? from[i / 2] - other : 0.0f);
                s[b][i] = live ? s[b][i] * by : 0.0f;
            }
        }
    }
    __device__ __forceinline__ void leave_pairs(const delta_ring &ring, int n) const
    {
        constexpr float MILD_END = -80.0f;
        const u32 tiles = delta_ring::tiles(shared, n);
        const u32 factors = factors_of(shared, n);
        const pairs_barriers pairs = pairs_barriers::of(shared);
        float s[8][4];
        ring.wait_full(n);
        start_scores<element, CHUNK_PAD, CHUNK_TOKENS>(s, tiles + delta_stage::Q, tiles + delta_stage::K);
        wait_products<0>(s);
        const float end = DECAYS ? load_shared(factors + static_cast<u32>(4 * (delta_factors::SUMS + CHUNK_TOKENS - 1))) : 0.0f;
        if (end > MILD_END) {
            weigh<true>(s, factors, end);
        } else {
            weigh<false>(s, factors, end);
        }
        pairs.wait_taken(n);
        leave_scores<element>(shared + delta_layout::PAIRS, s, 0);
        pairs.made();
    }
    // A group of copies for each chunk, also of one that is not there.
    __device__ __forceinline__ void start(const logs &own, int n, int chunks, bool sums) const
    {
        if (n < chunks) {
            load(n);
        }
        copy_commit();
        if (sums && n < chunks) {
            put_factors(own, n);
        }
    }
    __device__ __forceinline__ void run(const delta_ring &ring) const
    {
        const int chunks = chunks_of(w.s.length);
        const bool sums = DECAYS && threadIdx.x < 32;
        logs own = {};
#pragma unroll 1
        for (int n = 0; n < STAGES; n++) {
            if (sums && n < chunks) {
                own.fetch(p, w, n * CHUNK_TOKENS);
            }
            start(own, n, chunks, sums);
        }
        copy_wait<STAGES - 1>();
        ring.fill(0);
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const int next = n + STAGES;
            leave_pairs(ring, n);
            copy_wait<STAGES - 2>();
            if (n + 1 < chunks) {
                ring.fill(n + 1);
            }
            if (next < chunks) { // its gates are on their way while the place is still in use
                if (sums) {
                    own.fetch(p, w, next * CHUNK_TOKENS);
                }
                ring.wait_empty(next);
            }
            start(own, next, chunks, sums);
        }
    }
};

DEV void delta_by_chunk(const linear_params &p, const work &w, i64 slot, unsigned char *bytes)
{
    const u32 shared = shared_address(bytes);
    const delta_ring ring = delta_ring::of(shared);
    if (threadIdx.x == 0) {
        ring.init(4 * GROUPS);
        pairs_barriers::of(shared).init();
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < LOADERS) {
        if constexpr (GROUPS > 1) {
            registers_down<LOADER_REGISTERS>();
        }
        delta_loader{p, w, shared, bytes}.run(ring);
    } else {
        if constexpr (GROUPS > 1) {
            registers_up<WALK_REGISTERS>();
        }
        delta_walk{p, w, shared}.run(ring, slot);
    }
}

DEV void delta_chunked(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<BLOCK_COLUMNS, DELTA_THREADS>(p, w);
    } else {
        delta_by_chunk(p, w, slot, bytes);
    }
}

} // namespace linear

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1) LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_chunked(p, shared_bytes);
}
#endif
