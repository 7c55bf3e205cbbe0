// linear/keyed_delta_runs.cuh: few long sequences in runs (linear/runs.cuh), behind a decay by key channel: `prepare`
// tells by how much chunks shrink a state (prepared::SHRINKS).
#pragma once
#include "linear/keyed_delta_walk.cuh"
#include "linear/runs.cuh"

namespace linear
{

// Of one sequence, columns of a block.
struct keyed_parts {
    float *parts;
};
struct keyed_runs : keyed_parts, run_starts, run_rule {
    static constexpr int LEAST = 3, MOST_AHEAD = 4; // pieces; chunks, no more than any piece but the last one has
    // What a run leaves: the last state, and largest elements, of columns of each thread, in front and for the next.
    static constexpr int STATE = VALUE_PAD * KEY_PAD, MARK = 2 * KEYED_THREADS, FRONT = STATE, LAST = FRONT + MARK,
                         PART = LAST + MARK;
    static_assert(MOST_AHEAD * CHUNK_TOKENS <= piece::LEAST_TOKENS && KEY_PAD <= 256, "as above");
    // BYTES: of what is prepared of a chunk.
    template <int BYTES, class P> DEV keyed_runs of(const P &p, const work &w, const pieces &all, int unit)
    {
        keyed_runs r = {{p.parts + static_cast<i64>(unit) * all.most * PART},
                        {all.most, w.s.length, piece::of(0, all.most, w.s.length).count, 1, 0},
                        {}};
        const int begin = r.first_chunk(lane_id());
        float shrinks = 0.0f;
#pragma unroll
        for (int k = 1; k <= MOST_AHEAD; k++) {
            if (lane_id() > 0 && lane_id() < r.count && k <= begin && shrinks < ENOUGH) {
                const unsigned char *chunk = prepared::of<BYTES>(p, w.s, w.h, (begin - k) * CHUNK_TOKENS);
                shrinks += *reinterpret_cast<const float *>(chunk + prepared::SHRINKS);
                r.own_ahead = k;
            }
        }
        const u32 ready = __ballot_sync(ALL_LANES, shrinks >= ENOUGH);
        r.starts |= ready != 0 && r.template may_grow<BYTES>(p, w) ? 0 : ready;
        return r;
    }
    // Whether the tokens of any piece may grow a state, a lane for each of them.
    template <int BYTES, class P> __device__ __forceinline__ bool may_grow(const P &p, const work &w) const
    {
        const int end = lane_id() < count ? first_chunk(lane_id() + 1) : 0;
        float level = 0.0f;
        bool little = true;
#pragma unroll 4
        for (int k = first_chunk(lane_id()); k < end; k++) {
            const unsigned char *chunk = prepared::of<BYTES>(p, w.s, w.h, k * CHUNK_TOKENS);
            const float *tells = reinterpret_cast<const float *>(chunk + prepared::SHRINKS);
            little &= level + tells[1] <= WITHIN;
            level -= tells[0];
        }
        return __any_sync(ALL_LANES, !little || !(level <= LEFT)) != 0;
    }
    __device__ __forceinline__ float *of_piece(int number) const { return parts + static_cast<i64>(number) * PART; }

    __device__ __forceinline__ void store(const state_columns &s, int number) const
    {
        float *to = of_piece(number) + threadIdx.x;
#pragma unroll
        for (int n = 0; n < 4 * state_columns::BLOCKS; n++) {
            to[n * KEYED_THREADS] = s.x[n / 4][n % 4];
        }
    }
    __device__ __forceinline__ void load(state_columns &s, int number) const
    {
        const float *from = of_piece(number) + threadIdx.x;
#pragma unroll
        for (int n = 0; n < 4 * state_columns::BLOCKS; n++) {
            s.x[n / 4][n % 4] = from[n * KEYED_THREADS];
        }
    }
    // which: FRONT or LAST. Bits of numbers that are not below 0 are in the same order, and those of NaN are last.
    __device__ __forceinline__ void mark(const state_columns &s, int number, int which) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int largest = 0;
#pragma unroll
            for (int n = 0; n < state_columns::BLOCKS; n++) {
                largest = max(largest, __float_as_int(fabsf(s.x[n][2 * h])));
                largest = max(largest, __float_as_int(fabsf(s.x[n][2 * h + 1])));
            }
            largest = max(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
            largest = max(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
            of_piece(number)[which + h * KEYED_THREADS + static_cast<int>(threadIdx.x)] = __int_as_float(largest);
        }
    }
    // Whether a run has lost nothing by how it began, behind the run of piece `before`; of all columns of the block.
    __device__ __forceinline__ bool is_right(int number, int before) const
    {
        const float *front = of_piece(number) + FRONT;
        const float *last = of_piece(before) + LAST;
        bool right = true;
#pragma unroll
        for (int n = lane_id(); n < MARK; n += 32) {
            judge(right, last[n], front[n]);
        }
        return __all_sync(ALL_LANES, right) != 0;
    }
};

} // namespace linear
