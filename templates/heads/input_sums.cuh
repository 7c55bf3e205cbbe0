// heads/input_sums.cuh: sums into gradients of inputs: to an address, or to none.
#pragma once
#include "common/concepts.cuh"

namespace back
{

DEV void add_sum(float *to, float x)
{
    if (to != nullptr) {
        add_global(to, x);
    }
}

DEV void add_sum(exact_sum *to, float x)
{
    if (to != nullptr && x != 0.0f) {
        add_exact(to, x);
    }
}

// To an element with one adder in each kernel: `adds` says that something has been written to it before. An exact_sum
// has many adders, and is always added to.
DEV void store_or_add(float *to, float x, bool adds)
{
    if (to != nullptr) {
        *to = adds ? *to + x : x;
    }
}
DEV void store_or_add(exact_sum *to, float x, bool) { add_sum(to, x); }

// Of all lanes of a warp, each with an address of its own or none: one addition where they are the same.
template <class SUM> DEV void add_sum_of_lanes(SUM *to, float x)
{
    const u32 some = __ballot_sync(ALL_LANES, to != nullptr);
    if (some == 0) {
        return;
    }
    const int leader = __ffs(static_cast<int>(some)) - 1;
    const u64 mine = reinterpret_cast<u64>(to);
    const u32 low = __shfl_sync(ALL_LANES, static_cast<u32>(mine), leader);
    const u32 high = __shfl_sync(ALL_LANES, static_cast<u32>(mine >> 32), leader);
    if (__all_sync(ALL_LANES, to == nullptr || mine == (static_cast<u64>(high) << 32 | low))) {
        const float sum = lanes_sum<32>(to != nullptr ? x : 0.0f);
        if (lane_id() == leader) {
            add_sum(to, sum);
        }
    } else {
        add_sum(to, x);
    }
}

} // namespace back
