// linear/keyed_delta_runs.cuh: few long sequences in pieces, where the gates leave so little of a state that a piece
// need not wait for it.
//
// A run is the stretch of pieces that one block walks. A token's factor of the state, (I - beta k' k) D, shrinks any
// state by the channel that loses least, or grows it by |1 - beta |k|^2| where that is above 1; `prepare` leaves the
// sum of each chunk (prepared::SHRINKS). Where few chunks ahead of a piece leave less than 2^-ENOUGH, a run begins
// there, with no state so many chunks earlier. Other pieces belong to the run in front of them, so that under weak
// gates there is one run, as without pieces.
//
// What is left out is 2^-ENOUGH of the state that those chunks begin with, whose size the gates do not tell. So runs
// leave of each column the largest element of both: of the state where the next run's chunks begin, and of the state in
// front of the run's own piece. Behind them, a second launch looks whether what is left out is within 2^-30 of what is
// there, column by column, and has the runs again for which it is not, NaN and infinity among them, from where the one
// before ended. The last state is given by that launch, since it may lie where the first one was.
//
// Behind the front tokens that grow a state (a logarithm above 0, beta |k|^2 above 2) would grow what is left out, too.
// A sequence is one run where any piece may: by more than WITHIN bits on its way, or LEFT bits in all. So what is left
// out stays below 2^-24 of the column's largest element in front of the piece, whatever becomes of that.
#pragma once
#include "linear/chunk.cuh"
#include "linear/keyed_delta_walk.cuh"
#include "linear/pieces.cuh"

namespace linear
{

static_assert(cfg::PIECES <= 32, "a lane for each piece of a sequence");

// Of one sequence, columns of a block.
struct keyed_runs {
    static constexpr int LEAST = 3, MOST_AHEAD = 4; // pieces; chunks, no more than any piece but the last one has
    static constexpr float ENOUGH = 46.0f;          // to the base 2
    static constexpr float LARGEST = 4096.0f; // 2^-46 of it in each of 256 channels is below 2^-30 of what is there
    static constexpr float WITHIN = 4.0f, LEFT = 1.0f / 16.0f; // of up to 32 pieces in a row 2 bits are left
    // What a run leaves: the last state, and largest elements, of columns of each thread, in front and for the next.
    static constexpr int STATE = VALUE_PAD * KEY_PAD, MARK = 2 * KEYED_THREADS, FRONT = STATE, LAST = FRONT + MARK,
                         PART = LAST + MARK;
    static_assert(MOST_AHEAD * CHUNK_TOKENS <= piece::LEAST_TOKENS && KEY_PAD <= 256, "as above");
    float *parts;
    int most, length, count; // pieces, tokens, pieces that there are
    u32 starts;              // a bit for each piece that a run begins with
    int own_ahead;           // chunks ahead of this lane's piece

    // BYTES: of what is prepared of a chunk.
    template <int BYTES, class P> DEV keyed_runs of(const P &p, const work &w, const pieces &all, int unit)
    {
        keyed_runs r = {p.parts + static_cast<i64>(unit) * all.most * PART, all.most, w.s.length,
                        piece::of(0, all.most, w.s.length).count,           1,        0};
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
    __device__ __forceinline__ bool begins(int number) const { return (starts >> number & 1u) != 0; }
    // The piece that the next run begins with; `count`: there is none.
    __device__ __forceinline__ int next(int number) const
    {
        const u32 behind = starts & ~((2u << number) - 1u);
        return behind != 0 ? __ffs(static_cast<int>(behind)) - 1 : count;
    }
    __device__ __forceinline__ int first_chunk(int number) const
    {
        return chunks_of(piece::of(number, most, length).begin);
    }
    // Where the run of a piece starts with no state, or with the first one.
    __device__ __forceinline__ int start(int number) const
    {
        return first_chunk(number) - __shfl_sync(ALL_LANES, own_ahead, number % 32);
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
            const float lost = last[n];
            const bool little = lost <= LARGEST * front[n];
            const bool finite = lost < __uint_as_float(0x7f800000u);
            right &= little & finite;
        }
        return __all_sync(ALL_LANES, right) != 0;
    }
};

} // namespace linear
