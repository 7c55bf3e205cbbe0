// linear/runs.cuh: few long sequences in runs, where the gates leave so little of a state that a piece need not wait
// for it.
//
// A run is the stretch of pieces that one block walks. A token's factor of the state, (I - beta k' k) D, shrinks any
// state by the channel that loses least, or grows it by |1 - beta |k|^2| where that is above 1; a kernel ahead tells
// the sum of each chunk (linear/shrinks.cuh). Where few chunks ahead of a piece leave less than 2^-ENOUGH, a run begins
// there, with no state so many chunks earlier. Other pieces belong to the run in front of them, so that under weak
// gates there is one run, as without pieces.
//
// What is left out is 2^-ENOUGH of the state that those chunks begin with, whose size the gates do not tell. So runs
// leave of each column the largest element of both: of the state where the next run's chunks begin, and of the state in
// front of the run's own piece. Behind them, a second launch looks whether what is left out is within 2^-30 of what is
// there, column by column, and walks again where it is not, NaN and infinity among them, from where the run before
// ended. The last state is given by that launch, since it may lie where the first one was.
//
// Behind the front tokens that grow a state (a logarithm above 0, beta |k|^2 above 2) would grow what is left out, too.
// A sequence is one run where any piece may: by more than WITHIN bits on its way, or LEFT bits in all. So what is left
// out stays below 2^-24 of the column's largest element in front of the piece, whatever becomes of that.
#pragma once
#include "linear/chunk.cuh"
#include "linear/pieces.cuh"

namespace linear
{

static_assert(cfg::PIECES <= 32, "a lane for each piece of a sequence");

struct run_rule {
    static constexpr float ENOUGH = 46.0f;    // to the base 2
    static constexpr float LARGEST = 4096.0f; // 2^-46 of it in each of 256 channels is below 2^-30 of what is there
    static constexpr float WITHIN = 4.0f, LEFT = 1.0f / 16.0f; // of up to 32 pieces in a row 2 bits are left
    // Of a column: the largest elements of the state that is left out, where it is, and in front of the piece.
    DEV void judge(bool &right, const float &of_lost, const float &of_front)
    {
        const float lost = of_lost;
        const bool little = lost <= LARGEST * of_front;
        const bool finite = lost < __uint_as_float(0x7f800000u);
        right &= little & finite;
    }
};

// Of one sequence, by all lanes of a warp.
struct run_starts {
    int most, length, count; // pieces, tokens, pieces that there are
    u32 starts;              // a bit for each piece that a run begins with
    int own_ahead;           // chunks ahead of this lane's piece

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
};

} // namespace linear
