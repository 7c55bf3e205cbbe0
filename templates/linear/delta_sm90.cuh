// linear/delta_sm90.cuh: kernel: the delta rule with no decay or one number a token, in chunks of 64 tokens by wgmma.
//
// Launch: sequences * h * BLOCK_SLICES blocks of DELTA_THREADS threads, delta_smem_bytes() of shared memory, behind `inverse` (linear/delta_inverse.cuh), which
// leaves T; or up to cfg::PIECES times as many, of pieces of few long sequences, behind `states` and `scan`. A block has BLOCK_COLUMNS columns of the state of one head. Its first warpgroup loads chunks and makes what their tokens see of each other, the
// pairs scale (q k') e^(G_i - G_j), with G the sum of the logarithms from the chunk's start on; the others go with 64 columns of the state each from chunk to
// chunk (linear/delta_walk_sm90.cuh). Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/delta_walk_sm90.cuh"

namespace linear {

constexpr int DELTA_THREADS = (1 + GROUPS) * LOADERS;
constexpr int LOADER_REGISTERS = 88, WALK_REGISTERS = 208; // of 168; two warpgroups have as many as they want
constexpr int LEAST_PIECES = 4; // fewer would not gain what it costs to know how each begins
constexpr int SCAN_THREADS = 512, SCAN_COLUMNS = 8;
constexpr int SCAN_SHARES = SCAN_THREADS / CHUNK_PAD, SCAN_EACH = CHUNK_PAD / SCAN_SHARES;
constexpr int SCAN_OWN = CHUNK_PAD * SCAN_COLUMNS / SCAN_THREADS; // elements of a thread
struct scan_layout { // in shared memory
    float before[CHUNK_PAD][SCAN_COLUMNS], sums[SCAN_SHARES][SCAN_COLUMNS][CHUNK_PAD];
};
static_assert(sizeof(scan_layout) == 32 * CHUNK_PAD + 16384, "the planner says the same");
// As C, for the planner: stages * (256 * pad + 8192 * groups + 8976) + 8208
constexpr int delta_smem_bytes() { return delta_layout::END; }
static_assert(delta_smem_bytes() == STAGES * (256 * CHUNK_PAD + 8192 * GROUPS + 8976) + 8208, "the planner says the same");

template <bool STATES> struct delta_loader { // STATES: what the state alone needs
    using element = cfg::element;
    const linear_params &p;
    const work &w;
    delta_span span;
    int columns; // of v; 0: zeros in their place
    u32 shared;
    unsigned char *bytes;

    __device__ __forceinline__ void load(int n) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const int place = (span.first + n) * CHUNK_TOKENS;
        load_tokens<CHUNK_PAD>(tiles + delta_stage::K, elements(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h), p.k_t, w.s, place, cfg::D);
        load_tokens<BLOCK_COLUMNS>(tiles + delta_stage::V, elements(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t, w.s, place, columns);
        load_inverse(tiles + delta_stage::INVERSE, span.first + n);
        if constexpr (!STATES) {
            load_tokens<CHUNK_PAD>(tiles + delta_stage::Q, elements(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h), p.q_t, w.s, place, cfg::D);
        }
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
        const int chunks = span.count;
        const bool sums = DECAYS && threadIdx.x < 32;
        logs own = {};
#pragma unroll 1
        for (int n = 0; n < STAGES; n++) {
            if (sums && n < chunks) {
                own.fetch(p, w, (span.first + n) * CHUNK_TOKENS);
            }
            start(own, n, chunks, sums);
        }
        copy_wait<STAGES - 1>();
        ring.fill(0);
#pragma unroll 1
        for (int n = 0; n < chunks; n++) {
            const int next = n + STAGES;
            if constexpr (!STATES) {
                leave_pairs(ring, n);
            }
            copy_wait<STAGES - 2>();
            if (n + 1 < chunks) {
                ring.fill(n + 1);
            }
            if (next < chunks) { // its gates are on their way while the place is still in use
                if (sums) {
                    own.fetch(p, w, (span.first + next) * CHUNK_TOKENS);
                }
                ring.wait_empty(next);
            }
            start(own, next, chunks, sums);
        }
    }
};

// f(ring): what the warpgroups do that go with the state.
template <bool STATES, class F> DEV void delta_block(const linear_params &p, const work &w, const delta_span &span, int columns, unsigned char *bytes, const F &f)
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
        delta_loader<STATES>{p, w, span, columns, shared, bytes}.run(ring);
    } else {
        if constexpr (GROUPS > 1) {
            registers_up<WALK_REGISTERS>();
        }
        f(ring, shared);
    }
}

// Of a whole sequence, or of a piece, which begins with what `scan` has left. A launch whose blocks are not as many as there are pieces is not meant.
DEV void delta_chunked(const linear_params &p, unsigned char *bytes)
{
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int unit = static_cast<int>(blockIdx.x) % max(all.units, 1);
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, unit);
    const piece own = piece::of(static_cast<int>(blockIdx.x) / max(all.units, 1), all.most, w.s.length);
    const i64 slot = slot_of(p, w.s);
    const bool cut = all.most > 1;
    if (cut != (p.pieces > 1) || !own.exists()) {
        return;
    }
    if (slot < 0) {
        if (own.number == 0) {
            store_none<BLOCK_COLUMNS, DELTA_THREADS>(p, w);
        }
        return;
    }
    const delta_span span = delta_span::of(own);
    delta_block<false>(p, w, span, w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = delta_walk<false>;
        const walker walk{p, w, shared};
        float state[walker::DEPTH / 8][4] = {};
        if (!cut) {
            walk.load_state(state, slot);
        } else if (own.number > 0 || p.state != nullptr) {
            const float *from = delta_parts::of(p, all, unit / BLOCK_SLICES, own.number) + w.first * CHUNK_PAD;
            walker::each_of_part(state, [&](float &a, int at) { a = from[at]; });
        }
        walk.walk(state, ring, span);
        if (own.is_last()) {
            walk.store_state(state, slot);
        }
    });
}

// What a piece makes of the state in front of it: the first one of the state that was given, which is also kept, as what comes out may lie where it was; the others,
// but the last one, of none, and the matrix by which they multiply what was there.
DEV void delta_states(const linear_params &p, unsigned char *bytes)
{
    constexpr int SLICES = BLOCK_SLICES + MATRIX_SLICES;
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int heads = max(p.x.seqs * p.z.n_h, 1);
    const int slice = static_cast<int>(blockIdx.x) % SLICES;
    const int head = static_cast<int>(blockIdx.x) / SLICES % heads;
    const bool matrix = slice >= BLOCK_SLICES;
    const int first = (matrix ? slice - BLOCK_SLICES : slice) * BLOCK_COLUMNS;
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, head * BLOCK_SLICES + (matrix ? 0 : slice));
    const piece own = piece::of(static_cast<int>(blockIdx.x) / SLICES / heads, all.most, w.s.length);
    const i64 slot = slot_of(p, w.s);
    const bool adds = !own.is_last();
    const bool keeps = !matrix && own.number == 0 && p.state != nullptr;
    if (all.most == 1 || !own.exists() || slot < 0 || (matrix ? !adds || own.number == 0 : !adds && !keeps)) {
        return;
    }
    const delta_span span = adds ? delta_span::of(own) : delta_span{0, 0};
    delta_block<true>(p, w, span, matrix ? 0 : w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = delta_walk<true>;
        const walker walk{p, w, shared};
        float state[walker::DEPTH / 8][4] = {};
        if (matrix) {
            walker::each_of_part(state, [&](float &a, int at) { a = at / CHUNK_PAD + first == at % CHUNK_PAD ? 1.0f : 0.0f; });
        } else if (keeps) {
            walk.load_state(state, slot);
            walker::store_part(state, delta_parts::of(p, all, head, 0) + first * CHUNK_PAD);
        }
        walk.walk(state, ring, span);
        if (adds && (!matrix || first + walker::row() < CHUNK_PAD)) {
            walker::store_part(state, delta_parts::of(p, all, head, matrix ? own.number : own.number + 1) + (matrix ? delta_parts::STATE : 0) + first * CHUNK_PAD);
        }
    });
}

// The state in front of each piece from the second on: S = M S + what the piece before has made of none. A block has
// SCAN_COLUMNS columns of a head's state. Threads of a channel have shares of the sum over all channels, and their
// part of the next matrix is under way meanwhile.
DEV void delta_scan(const linear_params &p, unsigned char *bytes)
{
    scan_layout &shared = *reinterpret_cast<scan_layout *>(bytes);
    constexpr int SLICES = delta_parts::COLUMNS / SCAN_COLUMNS;
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int head = static_cast<int>(blockIdx.x) / SLICES;
    const int first = static_cast<int>(blockIdx.x) % SLICES * SCAN_COLUMNS;
    const sequence s = sequence_of(p.cu, p.cu_step, p.z, head / p.z.n_h);
    const int count = piece::of(0, all.most, s.length).count;
    const int channel = static_cast<int>(threadIdx.x) % CHUNK_PAD;
    const int share = static_cast<int>(threadIdx.x) / CHUNK_PAD; // also the first of its own columns
    if (all.most == 1 || count < 3 || slot_of(p, s) < 0) {
        return;
    }
    const auto part_of = [&](int n) { return delta_parts::of(p, all, head, n) + (first + share) * CHUNK_PAD + channel; };
    const auto fetch = [&](float (&m)[SCAN_EACH], int n) {
        const float *matrix = delta_parts::of(p, all, head, n) + delta_parts::STATE + share * SCAN_EACH * CHUNK_PAD + channel;
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
            m[c] = matrix[c * CHUNK_PAD];
        }
    };
    float next[SCAN_EACH];
    float x[SCAN_OWN];
    fetch(next, 1);
#pragma unroll
    for (int i = 0; i < SCAN_OWN; i++) {
        x[i] = part_of(1)[i * SCAN_SHARES * CHUNK_PAD];
    }
#pragma unroll 1
    for (int n = 2; n < count; n++) {
        float *part = part_of(n);
        float by[SCAN_EACH];
        float own[SCAN_OWN];
        float sum[SCAN_COLUMNS] = {};
#pragma unroll
        for (int i = 0; i < SCAN_OWN; i++) {
            shared.before[channel][share + i * SCAN_SHARES] = x[i];
            own[i] = part[i * SCAN_SHARES * CHUNK_PAD];
        }
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
            by[c] = next[c];
        }
        if (n + 1 < count) {
            fetch(next, n);
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
#pragma unroll
            for (int k = 0; k < SCAN_COLUMNS; k++) {
                sum[k] += by[c] * shared.before[share * SCAN_EACH + c][k];
            }
        }
#pragma unroll
        for (int k = 0; k < SCAN_COLUMNS; k++) {
            shared.sums[share][k][channel] = sum[k];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SCAN_OWN; i++) {
            x[i] = own[i];
#pragma unroll
            for (int j = 0; j < SCAN_SHARES; j++) {
                x[i] += shared.sums[j][share + i * SCAN_SHARES][channel];
            }
            part[i * SCAN_SHARES * CHUNK_PAD] = x[i];
        }
    }
}

} // namespace linear

#if LATHE_COMPILED(states)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1) LATHE_ENTRY(states)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_states(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(scan)
extern "C" __global__ void __launch_bounds__(linear::SCAN_THREADS) LATHE_ENTRY(scan)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_scan(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1) LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_chunked(p, shared_bytes);
}
#endif
