// attention/row_states.cuh: how the row states of parts of a row become one, by the spec's `combine`.
#pragma once
#include "common/concepts.cuh"

template <class V, class I>
concept row_states_variant = requires(const I &x, const sizes &z, const typename V::state &s,
                                      const typename V::merge &t, float *floats)
{
    {
        V::init(true)
        } -> gives<typename V::state>;
    static_cast<bool>(V::STATES >= 0);
    V::merge::PASSES + V::merge::REDUCTIONS + V::merge::REDUCE_PASS[0] + V::merge::REDUCE_OP[0];
    requires V::merge::REDUCTIONS == 0 || requires
    {
        {
            V::merge::template operand<0>(s, t, x, z)
            } -> gives<float>;
    };
    {
        V::merge::factor(s, t, x, z)
        } -> gives<float>;
    {
        V::merge::merged(t, x, z)
        } -> gives<typename V::state>;
    V::merge::write(s, floats);
    {
        V::merge::read(floats)
        } -> gives<typename V::state>;
};

namespace row_states
{

using merge = variant::merge;
constexpr int RECORD = variant::STATES + 1; // floats of a row and part: its states, and whether it has had a live pair

struct no_share {
    template <int OP> DEV float over(float x) { return x; }
};
struct warp_share { // parts are lanes
    template <int OP> DEV float over(float x) { return red_lanes<OP, 32>(x); }
};

template <int R, int P> DEV void reset(merge &t)
{
    if constexpr (R < merge::REDUCTIONS) {
        if constexpr (merge::REDUCE_PASS[R] == P) {
            t.red[R] = red_identity<merge::REDUCE_OP[R]>();
        }
        reset<R + 1, P>(t);
    }
}
template <int R, int P> DEV void gather(merge &t, const variant::state &s, const inputs &x, const sizes &z)
{
    if constexpr (R < merge::REDUCTIONS) {
        if constexpr (merge::REDUCE_PASS[R] == P) {
            t.red[R] = red_combine<merge::REDUCE_OP[R]>(t.red[R], merge::operand<R>(s, t, x, z));
        }
        gather<R + 1, P>(t, s, x, z);
    }
}
template <int R, int P, class SHARE> DEV void share(merge &t)
{
    if constexpr (R < merge::REDUCTIONS) {
        if constexpr (merge::REDUCE_PASS[R] == P) {
            t.red[R] = SHARE::template over<merge::REDUCE_OP[R]>(t.red[R]);
        }
        share<R + 1, P, SHARE>(t);
    }
}

// What `combine` reduces of the parts that `each` hands to its argument: those that have had a live pair.
template <class SHARE, int P = 0, class EACH>
DEV void merge_states(merge &t, const EACH &each, const inputs &x, const sizes &z)
{
    if constexpr (P < merge::PASSES) {
        reset<0, P>(t);
        each([&](const variant::state &s) { gather<0, P>(t, s, x, z); });
        share<0, P, SHARE>(t);
        merge_states<SHARE, P + 1>(t, each, x, z);
    }
}

} // namespace row_states
