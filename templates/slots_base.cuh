// slots_base.cuh: the hand-written half of the slot contract, which the generated headers include: sizes,
// tile classes, reductions, forms of a vector mod. slots.cuh, included after them, checks the other half.
#pragma once
#include "base.cuh"

struct sizes {            // of attention
    int n_b, n_h, n_h_kv; // batch, query heads, key heads
    int len_q, len_kv;
    int q_start; // position of query row 0 among the keys
};

struct row_sizes { // of rowwise: rows0 * rows1 * rows rows of n elements
    int rows0, rows1, rows, n;
};

enum tile_class { TILE_NONE, TILE_SOME, TILE_ALL }; // live pairs of a tile
enum reduction { RED_SUM, RED_MAX, RED_MIN };
struct no_mod { // a vector mod that is not there
    static constexpr bool PRESENT = false;
    static constexpr int STAGES = 0;
    struct head {
    };
    struct vals {
    };
};

enum vector_form {
    FORM_ELEMENT,
    FORM_HALF,
    FORM_INTERLEAVED
}; // what output() sees: one element, or a rotary pair

// What the attention kernel leaves in a row of o for the output mod where no pair is live: that row of o is 0, whatever
// the mod makes of zeros. A NaN that no instruction gives.
[[maybe_unused]] constexpr u32 EMPTY_ROW = 0xffc0dea0u;

template <int OP> DEV float red_identity()
{
    static_assert(OP == RED_SUM || OP == RED_MAX || OP == RED_MIN,
                  "a reduction is RED_SUM, RED_MAX or RED_MIN");
    return OP == RED_SUM ? 0.0f : OP == RED_MAX ? -INF : INF;
}
template <int OP> DEV float red_combine(float a, float b)
{
    return OP == RED_SUM ? a + b : OP == RED_MAX ? fmaxf(a, b) : fminf(a, b);
}
template <int OP, int N> DEV float red_lanes(float x) // over N adjacent lanes
{
    return OP == RED_SUM ? lanes_sum<N>(x) : OP == RED_MAX ? lanes_max<N>(x) : lanes_min<N>(x);
}
