// linear/delta_cuts.cuh: kernel: where few long sequences are cut, and by what (linear/delta_runs.cuh), of each head.
//
// Launch: a block for each head of each sequence, a warp for each of up to cfg::PIECES pieces, behind `inverse` or
// `prepare`.
#pragma once
#include "linear/delta_inverse.cuh"
#include "linear/delta_runs.cuh"
#include "linear/kept.cuh"

namespace linear
{

// What is told of the chunks of a sequence, a lane for each of 32.
template <class P> struct delta_told {
    const P &p;
    const work &w;
    float loss, growth; // the loss is without the growth

    __device__ __forceinline__ void fetch(int chunk, bool some)
    {
        loss = 0.0f;
        growth = 0.0f;
        if (some) {
            const i64 which = (chunk_number(p, w.s, 0) + chunk) * p.z.n_h + w.h;
            float of_warp[4];
            load_vec<4, float>(chunk_tells::of(p, which), of_warp);
            growth = (of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3]);
            loss = chunk_tells::of(p, which)[chunk_tells::LOSS] - growth;
        }
    }
    // Of this lane's chunk and those of the lanes in front.
    __device__ __forceinline__ float sum() const
    {
        float sum = loss;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float before = __shfl_up_sync(ALL_LANES, sum, static_cast<u32>(step));
            sum += lane_id() >= step ? before : 0.0f;
        }
        return sum;
    }
    // How many chunks ahead of `begin` leave nothing, of up to `most`.
    __device__ __forceinline__ int ahead_of(int begin, int most)
    {
        float before = 0.0f;
#pragma unroll 1
        for (int first = 0; first < most; first += 32) {
            const int k = first + lane_id();
            fetch(begin - 1 - k, k < most);
            const float shrinks = before + sum();
            const u32 enough = __ballot_sync(ALL_LANES, k < most && shrinks >= run_rule::ENOUGH);
            if (enough != 0) {
                return first + __ffs(static_cast<int>(enough));
            }
            before = __shfl_sync(ALL_LANES, shrinks, 31);
        }
        return delta_runs::GOES_ON;
    }
    // Whether tokens of these chunks may make a state larger.
    __device__ __forceinline__ bool may_grow(int begin, int end)
    {
        float level = 0.0f;
        bool little = true;
#pragma unroll 1
        for (int first = begin; first < end; first += 32) {
            fetch(first + lane_id(), first + lane_id() < end);
            const float behind = level - sum();
            const float ahead = __shfl_up_sync(ALL_LANES, behind, 1u);
            little &= (lane_id() == 0 ? level : ahead) + growth <= run_rule::WITHIN;
            level = __shfl_sync(ALL_LANES, behind, 31);
        }
        return __all_sync(ALL_LANES, little) == 0 || !(level <= run_rule::LEFT);
    }
};

// Does a run take longer than transitions would? Lanes have pieces, of `each` chunks, and what is ahead of theirs.
DEV bool has_long_run(u32 starts, int count, int ahead, int each)
{
    const u32 behind = starts & ~((2u << lane_id()) - 1u);
    const int next = behind != 0 ? __ffs(static_cast<int>(behind)) - 1 : count;
    const int chunks = ahead + (next - lane_id()) * each;
    const bool begins = (starts >> lane_id() & 1u) != 0;
    return __any_sync(ALL_LANES, begins && 2 * chunks > delta_runs::LONGEST_HALVES * each) != 0;
}

template <class P> DEV void delta_cuts(const P &p)
{
    __shared__ int ahead[cfg::PIECES];
    __shared__ int grows[cfg::PIECES];
    const pieces all = pieces::of<BLOCK_SLICES, delta_runs::LEAST>(p);
    const int head = static_cast<int>(blockIdx.x);
    const int number = static_cast<int>(threadIdx.x) / 32;
    const work w = work::of_number<1, 1>(p, 1, head);
    const piece own = piece::of(number, all.most, w.s.length);
    if (all.most == 1) {
        return;
    }
    delta_told<P> told = {p, w, 0.0f, 0.0f};
    if (own.exists()) {
        const int begin = own.begin / CHUNK_TOKENS;
        const int chunks = begin / max(number, 1); // of each piece in front
        const int some = number == 0 ? 0 : told.ahead_of(begin, chunks);
        const bool large = told.may_grow(begin, begin + chunks_of(own.length));
        if (lane_id() == 0) {
            ahead[number] = some;
            grows[number] = large ? 1 : 0;
        }
    }
    __syncthreads();
    if (number == 0) {
        const int at = min(lane_id(), cfg::PIECES - 1);
        const bool live = lane_id() < own.count;
        // a piece may not write what the first one has yet to read
        const bool none = __any_sync(ALL_LANES, live && grows[at] != 0) != 0 || keeps_over_states(p);
        int mine = !live || (none && lane_id() > 0) ? delta_runs::GOES_ON : ahead[at];
        const u32 starts = __ballot_sync(ALL_LANES, mine >= 0);
        const int each = chunks_of(own.length);
        if (has_long_run(starts, own.count, mine, each) && all.most >= delta_runs::LEAST_OF_TRANSITIONS) {
            mine = delta_runs::BY_TRANSITIONS;
        }
        if (lane_id() < cfg::PIECES) {
            delta_runs::cuts(p, head)[lane_id()] = mine;
        }
    }
}

} // namespace linear

#if LATHE_COMPILED(cuts)
extern "C" __global__ void __launch_bounds__(32 * cfg::PIECES)
    LATHE_ENTRY(cuts)(const __grid_constant__ linear_params p)
{
    linear::delta_cuts(p);
}
#endif
