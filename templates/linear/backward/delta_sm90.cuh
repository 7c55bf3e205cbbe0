// linear/backward/delta_sm90.cuh: kernels: the two walks of the delta rule's backward pass along the chunks of a
// sequence, by wgmma (delta_parts.cuh has the formulas).
//
// Launch of bwd_states and bwd_back: sequences * h * BLOCK_SLICES blocks of DELTA_THREADS threads,
// smem_bytes::bwd_states of shared memory; or of bwd_states twice as many, which walk both ways at once, where what
// flows back to o does not wait for o. A block has BLOCK_COLUMNS columns of the state of one head, or of its gradient,
// which stay in registers as in linear/delta_walk_sm90.cuh; its first warpgroup loads chunks and makes what is read of
// their tokens. They leave what those of delta_walk.cuh do, but states as [value channel][key channel], turned as in
// shared memory.
#pragma once
#include "linear/backward/delta_chunks.cuh"
#include "linear/delta_loader_sm90.cuh"

namespace linear
{

static_assert(cfg::STATE_BY_COLUMN && CHUNK_PAD == PAD_D && BLOCK_SLICES * BLOCK_COLUMNS == PAD_V,
              "the kernel behind the walks reads states so");

// States on their way to memory, behind what the walks have in shared memory: 16 value channels of each warp, in the
// order in which bwd_chunks has them there.
struct states_layout {
    // bytes
    static constexpr int PART = 16 * PAD_D * OPERAND, FIRST = round_up(delta_layout::END, 128),
                         END = FIRST + 4 * GROUPS * PART;
};

// A state, rounded, as a walk has it: a line of each warp.
template <int STEPS> DEV void leave_state(const linear_back_params &p, const work &w, u32 shared, void *base, int place,
                                          const u32 (&a)[STEPS][4])
{
    const int warp = static_cast<int>(threadIdx.x - LOADERS) / 32;
    const u32 part = shared + static_cast<u32>(states_layout::FIRST + warp * states_layout::PART);
    if (lane_id() == 0) {
        tma_wait_read<0>();
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        store_matrix4(part + swizzle<PAD_D>::offset(lane_id() % 16, 2 * k + lane_id() / 16), a[k]);
    }
    fence_written();
    __syncwarp();
    if (lane_id() == 0) {
        cfg::operand *to =
            static_cast<cfg::operand *>(base) + (state_place(p, w, place) + (w.first + 16 * warp) * PAD_D);
        tma_store_line(reinterpret_cast<float *>(to), part, states_layout::PART, L2_STREAM);
        tma_commit();
    }
}
// All states have left shared memory.
DEV void wait_for_states()
{
    if (lane_id() == 0) {
        tma_wait_read<0>();
    }
}
// Where the first token of a sequence has a line of p.written or p.dwritten.
DEV cfg::operand *lines_of_values(void *base, const linear_back_params &p, const work &w)
{
    return static_cast<cfg::operand *>(base) + (first_line(p, w) * cfg::D_V + w.first);
}

struct leave_forward {
    using walker = delta_walk<linear_back_params, DELTA_STATE>;
    const walker &walk;

    template <int STEPS> __device__ __forceinline__ void state(const u32 (&a)[STEPS][4], int place) const
    {
        leave_state(walk.p, walk.w, walk.shared, walk.p.states, place, a);
    }
    template <int STEPS> __device__ __forceinline__ void written(const u32 (&x)[STEPS][4], u32 values, int place) const
    {
        walk.store_tokens(x, place, values, lines_of_values(walk.p.written, walk.p, walk.w), cfg::D_V);
    }
};

struct gradient_walk {
    using operand = cfg::operand;
    using columns = delta_walk<linear_back_params, DELTA_GRADIENT>;
    static constexpr int DEPTH = columns::DEPTH, STEPS = columns::STEPS;
    static constexpr bool FROM_REGISTERS = cfg::DV_F32 || cfg::SKIP; // dv: more than is rounded
    const linear_back_params &p;
    const work &w;
    u32 shared;
    columns own;

    // What flows back to o, as the state's gradient takes it up.
    __device__ __forceinline__ void weigh_outputs(u32 (&z)[STEPS][4], u32 factors) const
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 by =
                    DECAYS ? columns::pair_of(factors, delta_factors::READ, 2 * k + i / 2) : float2{1.0f, 1.0f};
                float low;
                float high;
                unpack<operand>(z[k][i], low, high);
                z[k][i] = pack<operand>(low * (by.x * w.scale), high * (by.y * w.scale));
            }
        }
    }
    // What tokens read of the state, with its sign.
    DEV void pack_read(u32 (&z)[STEPS][4], const float (&y)[8][4], u32 factors)
    {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            const float2 by = DECAYS ? columns::pair_of(factors, delta_factors::READ, b) : float2{1.0f, 1.0f};
#pragma unroll
            for (int r = 0; r < 2; r++) {
                z[b / 2][b % 2 * 2 + r] = pack<operand>(-by.x * y[b][2 * r], -by.y * y[b][2 * r + 1]);
            }
        }
    }
    __device__ __forceinline__ i64 values_at() const { return w.s.batch * p.dv_b + w.h * p.dv_h + w.first; }
    __device__ __forceinline__ void store_values(const float (&dv)[8][4], int place) const
    {
        using target = dv_element;
        if (p.dv == nullptr) {
            return;
        }
        target *base = static_cast<target *>(p.dv) + values_at();
        own.each_of_tokens(dv, place, [&](float x, int at, int column) {
            if constexpr (!cfg::DV_F32) { // what comes to v through the output mod
                x += p.skip[line_of(p, w, at) * cfg::D_V + w.first + column];
            }
            base[sequence::token(w.s, at) * p.dv_t + column] = from_float<target>(x);
        });
    }
    __device__ __forceinline__ void leave_values(const u32 (&dv)[STEPS][4], int place, u32 values) const
    {
        uint4 line[STEPS];
        columns::by_token(line, dv, values);
        own.store_lines(line, place, lines_of_values(p.dwritten, p, w), cfg::D_V);
        if constexpr (!FROM_REGISTERS) {
            if (p.dv != nullptr) {
                own.store_lines(line, place, static_cast<cfg::element_v *>(p.dv) + values_at(), p.dv_t);
            }
        }
    }
    // The chunk that is next: what flows back to o, and that weighed by the pairs, on its way.
    struct outputs {
        u32 z[STEPS][4];
        float weighed[8][4];
    };
    __device__ __forceinline__ void start_outputs(outputs &out, const delta_ring &ring, int n) const
    {
        const u32 values = columns::values_of(delta_ring::tiles(shared, n));
        ring.wait_full(n);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            load_matrix4_transposed(out.z[k], values + place_of_rows(16 * k));
        }
        pairs_barriers::of(shared).wait_made(n);
        fence_products(out.weighed);
        add_inter<operand, CHUNK_TOKENS>(out.weighed, out.z, shared + delta_layout::PAIRS, 0);
        commit_products();
    }
    __device__ __forceinline__ void end_outputs(outputs &out) const
    {
        wait_products<0>(out.weighed);
        pairs_barriers::of(shared).taken();
    }
    // y = T' x.
    DEV void start_inverse(float (&y)[8][4], const u32 (&x)[STEPS][4], u32 inverse)
    {
        const u64 b = panel::descriptor(of_the_warp(inverse), PANEL);
        fence_products(y);
#pragma unroll
        for (int n = 0; n < 2 * STEPS; n++) { // what its first numbers lack first
            const int at = (n < STEPS ? PANEL : 0) + n % STEPS * 16 * 128;
            wgmma<64>::template rs<true>(y, x[n % STEPS], b + descriptor_step(at), n == 0 ? 0 : 1);
        }
        commit_products();
    }
    // The n-th chunk of the walk, whose first token is at `place`; state: the gradient of the state behind it, then in
    // front of it. No product is under way where the next one begins: ptxas would wait for each.
    __device__ __forceinline__ void step(float (&state)[DEPTH / 8][4], outputs &out, const delta_ring &ring, int n,
                                         int place, bool more) const
    {
        const u32 tiles = delta_ring::tiles(shared, n);
        const u32 factors = factors_of(shared, n);
        const u32 values = columns::values_of(tiles);
        u32 x[STEPS][4];
        float y[8][4];
        {
            u32 a[DEPTH / 16][4];
            pack_weights<operand, DEPTH / 8>(a, state);
            fence_products(y);
            add_inter<operand, DEPTH>(y, a, tiles + delta_stage::K, 0);
            commit_products();
            leave_state(p, w, shared, p.dstates, place, a);
            wait_products<0>(y);
        }
        columns::weigh(y, factors, delta_factors::WRITE, 1.0f);
#pragma unroll
        for (int b = 0; b < 8; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[b][i] += out.weighed[b][i];
            }
        }
        pack_weights<operand, 8>(x, y);
        if constexpr (DECAYS) {
            columns::decay(state, factors);
        }
        weigh_outputs(out.z, factors);
        start_inverse(y, x, tiles + delta_stage::INVERSE);
        start_update<operand, DEPTH>(state, out.z, tiles + delta_stage::Q);
        wait_products<1>(y);
        pack_weights<operand, 8>(x, y);
        if constexpr (FROM_REGISTERS) {
            store_values(y, place);
        }
        u32 written[STEPS][4];
        pack_read(written, y, factors);
        start_update<operand, DEPTH>(state, written, tiles + delta_stage::K);
        leave_values(x, place, values);
        if (more) {
            wait_products<1>(state); // z has been read
            start_outputs(out, ring, n + 1);
        }
        wait_products<0>(state);
        if (more) {
            end_outputs(out);
        }
        ring.leave(n);
    }
};

DEV void walk_forward(const linear_back_params &p, unsigned char *bytes, int block)
{
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, block);
    const delta_span span{0, chunks_of(w.s.length)};
    delta_block<DELTA_STATE>(p, w, span, w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = leave_forward::walker;
        const walker walk{p, w, shared};
        float state[walker::DEPTH / 8][4] = {};
        walk.load_state(state, w.s.number);
        walk.walk(state, ring, span, leave_forward{walk});
        wait_for_states();
    });
}

DEV void walk_back(const linear_back_params &p, unsigned char *bytes, int block)
{
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, block);
    const delta_span span{0, chunks_of(w.s.length)};
    delta_block<DELTA_GRADIENT>(p, w, span, w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = gradient_walk::columns;
        const gradient_walk walk{p, w, shared, {p, w, shared}};
        float state[walker::DEPTH / 8][4] = {};
        gradient_walk::outputs out = {};
        const cfg::element_state *from = head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h);
        if (from != nullptr) {
            walker::each_in_memory(state, w, p.dstate_out_i, p.dstate_out_j,
                                   [&](float &a, i64 at) { a = to_float(from[at]); });
        }
        if (span.count > 0) {
            walk.start_outputs(out, ring, 0);
            walk.end_outputs(out);
        }
#pragma unroll 1
        for (int n = 0; n < span.count; n++) {
            walk.step(state, out, ring, n, span.nth<DELTA_GRADIENT>(n) * CHUNK_TOKENS, n + 1 < span.count);
        }
        wait_for_states();
        cfg::element_state *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
        if (to != nullptr) {
            walker::each_in_memory(state, w, p.dstate_i, p.dstate_j,
                                   [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
        }
    });
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_states = linear::states_layout::END;
constexpr int bwd_back = linear::states_layout::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_states)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1)
    LATHE_ENTRY(bwd_states)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const int block = static_cast<int>(blockIdx.x);
    // blocks of the way back, which takes longer
    const int back = static_cast<int>(gridDim.x) - p.x.seqs * p.z.n_h * linear::BLOCK_SLICES;
    if (block < back) {
        linear::walk_back(p, shared_bytes, block);
    } else {
        linear::walk_forward(p, shared_bytes, block - back);
    }
}
#endif

#if LATHE_COMPILED(bwd_back)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1)
    LATHE_ENTRY(bwd_back)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_back(p, shared_bytes, static_cast<int>(blockIdx.x));
}
#endif
