// linear/delta_loader_sm90.cuh: a block of the delta rule by wgmma: its first warpgroup, which loads chunks and makes
// pairs, beside those that walk.
#pragma once
#include "linear/delta_walk_sm90.cuh"

namespace linear
{

constexpr int DELTA_THREADS = (1 + GROUPS) * LOADERS;
constexpr int LOADER_REGISTERS = 88, WALK_REGISTERS = 208; // of 168; two warpgroups have as many as they want

template <class P, delta_task TASK> struct delta_loader {
    using operand = cfg::operand;
    static constexpr bool PAIRS = TASK != DELTA_STATE; // is what tokens see of each other needed?
    static constexpr bool AHEAD = GROUPS == 1; // of the wait for a place: two warpgroups that walk are slower for it
    const P &p;
    const work &w;
    delta_span span;
    int columns; // of v; 0: zeros in their place
    u32 shared;
    unsigned char *bytes;

    __device__ __forceinline__ void load(int n) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const int place = span.nth<TASK>(n) * CHUNK_TOKENS;
        load_tokens<CHUNK_PAD>(tiles + delta_stage::K,
                               elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h), p.k_t, w.s, place,
                               cfg::D);
        if constexpr (TASK == DELTA_GRADIENT) { // what flows back to o
            load_tokens<BLOCK_COLUMNS>(
                tiles + delta_stage::V,
                elements<cfg::element_o>(p.dout, w.s.batch * p.dout_b + w.h * p.dout_h + w.first), p.dout_t, w.s, place,
                columns);
        } else {
            load_tokens<BLOCK_COLUMNS>(tiles + delta_stage::V,
                                       elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t,
                                       w.s, place, columns);
        }
        load_inverse(tiles + delta_stage::INVERSE, span.nth<TASK>(n));
        if constexpr (PAIRS) {
            load_tokens<CHUNK_PAD>(tiles + delta_stage::Q,
                                   elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h), p.q_t, w.s, place,
                                   cfg::D);
        }
    }
    __device__ __forceinline__ void load_inverse(u32 tile, int n) const
    {
        const i64 which = (chunk_number(p, w.s, 0) + n) * p.z.n_h + w.h;
        static_assert(PANEL == INVERSE_BYTES, "a tile of T is a panel");
        load_inverse_tiles<LOADERS>(elements<cfg::operand>(p.inverse, which * INVERSE_STORED),
                                    [&](int row, int part) { return tile + panel::offset<PANEL_ROWS>(row, part); });
    }
    // By the first warp: G, and what tokens read and write by.
    __device__ __forceinline__ void put_factors(const logs &own, int n) const
    {
        float *to =
            reinterpret_cast<float *>(bytes + delta_layout::FACTORS) + delta_ring::nth(n).stage * delta_factors::COUNT;
        const float last = own.sum(to + delta_factors::SUMS);
        const float end = __shfl_sync(ALL_LANES, last, 31);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float sum = k == 0 ? last - own.x[1] : last;
            to[delta_factors::READ + 2 * lane_id() + k] = exp2_approx(sum);
            to[delta_factors::WRITE + 2 * lane_id() + k] = exp2_approx(end - sum);
        }
    }
    // What a token reads of its chunk; of DELTA_GRADIENT, what is read of it: rows are keys, columns are queries. Where
    // a chunk's decay is mild, a product of a token's own factors: no exponent for a pair.
    template <bool MILD> __device__ __forceinline__ void weigh(float (&s)[8][4], u32 factors, float end) const
    {
        constexpr bool BACK = TASK == DELTA_GRADIENT;
        constexpr int ROWS = !MILD ? delta_factors::SUMS : BACK ? delta_factors::WRITE : delta_factors::READ;
        constexpr int COLUMNS = !MILD ? delta_factors::SUMS : BACK ? delta_factors::READ : delta_factors::WRITE;
        const int row0 = product_warp() * 16 + lane_id() / 4;
        float from[2] = {};
#pragma unroll
        for (int r = 0; DECAYS && r < 2; r++) {
            from[r] = load_shared(factors + static_cast<u32>(4 * (ROWS + row0 + 8 * r)));
            from[r] = MILD ? from[r] * w.scale * exp2_approx(-end) : from[r];
        }
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const int to = b * 8 + lane_id() % 4 * 2;
            float2 column = {};
            if constexpr (DECAYS) {
                column = load_shared8(factors + static_cast<u32>(4 * (COLUMNS + to)));
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = row0 + i / 2 * 8;
                const bool live = BACK ? to + i % 2 >= row : to + i % 2 <= row;
                const float other = i % 2 ? column.y : column.x;
                const float apart = BACK ? other - from[i / 2] : from[i / 2] - other;
                const float by = !DECAYS ? w.scale
                                 : MILD  ? from[i / 2] * other
                                         : w.scale * exp2_approx(live ? apart : 0.0f);
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
        start_scores<operand, CHUNK_PAD, CHUNK_TOKENS>(
            s, tiles + (TASK == DELTA_GRADIENT ? delta_stage::K : delta_stage::Q),
            tiles + (TASK == DELTA_GRADIENT ? delta_stage::Q : delta_stage::K));
        wait_products<0>(s);
        const float end =
            DECAYS ? load_shared(factors + static_cast<u32>(4 * (delta_factors::SUMS + CHUNK_TOKENS - 1))) : 0.0f;
        if (end > MILD_END) {
            weigh<true>(s, factors, end);
        } else {
            weigh<false>(s, factors, end);
        }
        pairs.wait_taken(n);
        leave_scores<operand>(shared + delta_layout::PAIRS, s, 0);
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
        const int chunks = span.count;
        const bool sums = DECAYS && threadIdx.x < 32;
        logs own = {};
#pragma unroll 1
        for (int n = 0; n < STAGES; n++) {
            clear_inverse_tiles<LOADERS>([&](int row, int part) {
                return delta_ring::tiles(shared, n) + delta_stage::INVERSE + panel::offset<PANEL_ROWS>(row, part);
            });
            if (sums && n < chunks) {
                own.fetch(p, w, span.nth<TASK>(n) * CHUNK_TOKENS);
            }
            start(own, n, chunks, sums);
        }
        copy_wait<STAGES - 1>();
        ring.fill(0);
        if (PAIRS && AHEAD && chunks > 0) {
            leave_pairs(ring, 0);
        }
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const int next = n + STAGES;
            if constexpr (PAIRS && !AHEAD) {
                leave_pairs(ring, n);
            }
            copy_wait<STAGES - 2>();
            if (n + 1 < chunks) {
                ring.fill(n + 1);
                if constexpr (PAIRS && AHEAD) {
                    leave_pairs(ring, n + 1);
                }
            }
            if (next < chunks) { // its gates are on their way while the place is still in use
                if (sums) {
                    own.fetch(p, w, span.nth<TASK>(next) * CHUNK_TOKENS);
                }
                ring.wait_empty(next);
            }
            start(own, next, chunks, sums);
        }
    }
};

// f(ring): what the warpgroups do that go with the state.
template <delta_task TASK, class P, class F>
DEV void delta_block(const P &p, const work &w, const delta_span &span, int columns, unsigned char *bytes, const F &f)
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
        delta_loader<P, TASK>{p, w, span, columns, shared, bytes}.run(ring);
    } else {
        if constexpr (GROUPS > 1) {
            registers_up<WALK_REGISTERS>();
        }
        f(ring, shared);
    }
}

} // namespace linear
