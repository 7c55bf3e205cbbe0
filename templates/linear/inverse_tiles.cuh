// linear/inverse_tiles.cuh: T of a chunk (linear/delta_inverse.cuh) in memory and on its way into a block: each element
// as two numbers of 16 bits.
//
// What one number is off by is alike for all tokens whose keys are: along them it adds up, and where beta is near 2
// nothing makes it smaller again. In memory is a matrix of the first numbers, with nothing in the blocks of 16 x 16
// above the diagonal, and one of the second numbers behind it; in shared memory a tile of each, INVERSE_BYTES apart,
// with zeros there.
#pragma once
#include "linear/chunk.cuh"

namespace linear
{

constexpr int INVERSE_STORED = 2 * INVERSE_ELEMENTS;
constexpr int INVERSE_BYTES = OPERAND * INVERSE_ELEMENTS; // of either tile
// of 16 bytes, of either
constexpr int INVERSE_STEPS = CHUNK_TOKENS / 16, INVERSE_UNITS = INVERSE_STEPS * (INVERSE_STEPS + 1) / 2 * 32;
static_assert(INVERSE_STEPS == 4, "inverse_unit counts blocks so");

// Two elements: what 16 bits have of them, and what that is short of.
struct two_words {
    u32 high, low;
    DEV two_words of(float x, float y)
    {
        two_words s;
        float kept[2];
        s.high = pack<cfg::operand>(x, y);
        unpack<cfg::operand>(s.high, kept[0], kept[1]);
        s.low = pack<cfg::operand>(x - kept[0], y - kept[1]);
        return s;
    }
};

struct inverse_unit { // eight elements of a row
    int row, column;
    DEV inverse_unit of(int n)
    {
        const int block = n / 32;
        const int i = (block >= 1 ? 1 : 0) + (block >= 3 ? 1 : 0) + (block >= 6 ? 1 : 0);
        return {16 * i + n % 32 / 2, 16 * (block - i * (i + 1) / 2) + n % 2 * 8};
    }
    DEV inverse_unit above(int n) // of the blocks above the diagonal
    {
        const int block = n / 32;
        const int i = 1 + (block >= 1 ? 1 : 0) + (block >= 3 ? 1 : 0);
        return {16 * (block - i * (i - 1) / 2) + n % 32 / 2, 16 * i + n % 2 * 8};
    }
};

// place(row, 16 bytes of it): where they lie in the first tile.
template <int OF_BLOCK, class F> DEV void load_inverse_tiles(const cfg::operand *from, const F &place)
{
    constexpr int ACROSS = CHUNK_TOKENS / 8;
    const int thread = static_cast<int>(fresh_thread()) % OF_BLOCK;
    const int step = thread / ACROSS / 16;
    const int last = thread % ACROSS / 2; // from this step on
    const u32 to = place(thread / ACROSS, thread % ACROSS);
    const cfg::operand *own = from + 8 * thread;
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS * ACROSS / OF_BLOCK; i++) {
        // rows are as long in both memories, and eight of them apart alike
        const u32 row = static_cast<u32>(i * OF_BLOCK * 16);
        if (last <= step + i * OF_BLOCK / ACROSS / 16) {
            copy16_async(to + row, own + 8 * i * OF_BLOCK, 16);
            copy16_async(to + row + INVERSE_BYTES, own + 8 * i * OF_BLOCK + INVERSE_ELEMENTS, 16);
        }
    }
}
// Once: nothing else is ever written there.
template <int OF_BLOCK, class F> DEV void clear_inverse_tiles(const F &place)
{
    constexpr int UNITS = INVERSE_STEPS * (INVERSE_STEPS - 1) / 2 * 32;
    for (int n = static_cast<int>(threadIdx.x) % OF_BLOCK; n < 2 * UNITS; n += OF_BLOCK) {
        const inverse_unit own = inverse_unit::above(n % UNITS);
        const float zeros[4] = {};
        store_shared16(place(own.row, own.column / 8) + (n >= UNITS ? INVERSE_BYTES : 0), zeros);
    }
}

} // namespace linear
