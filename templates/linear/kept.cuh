// linear/kept.cuh: states behind tokens that have a place in `states`, as every walk of a forward pass leaves them.
//
// A walk by chunks holds the state behind the last token of each chunk, or of each step of linear/additive.cuh, and
// leaves it there. Which tokens have a place the device alone knows: `kept_inside` of linear/recurrent_kept.cuh looks
// ahead of the chunks: a sequence that has one elsewhere goes token by token, all others by chunks.
#pragma once
#include "linear/walk.cuh"

namespace linear
{

template <class P> constexpr bool KEEPS = requires(const P &p) { p.states_index; };
template <class P> constexpr bool KEEPS_BY_CHUNK = requires(const P &p) { p.kept_inside; };

// Where the state behind the token of a place goes; -1: nowhere. What is beyond the places is none of them.
template <class P> DEV int kept_place(const P &p, const work &w, int place)
{
    if constexpr (KEEPS<P>) {
        if (w.has(place)) {
            const i64 token = sequence::token(w.s, place);
            const int to = p.states_index[w.s.batch * p.states_index_b + token * p.states_index_t];
            return to < p.kept ? to : -1;
        }
    }
    return -1;
}
// The same of the last token of a chunk, or of a step, of TOKENS from `place` on.
template <int TOKENS, class P> DEV int kept_behind(const P &p, const work &w, int place)
{
    return kept_place(p, w, min(place + TOKENS, w.s.length) - 1);
}
// store(a head's state, strides of channels and columns, its sum of keys, stride).
template <class P, class F> DEV void keep_state(const P &p, const work &w, int to, const F &store)
{
    if constexpr (KEEPS<P>) {
        if (to >= 0) {
            store(head_of(p.states, to * p.states_b + w.h * p.states_h), p.states_i, p.states_j,
                  head_of(p.norms, to * p.norms_b + w.h * p.norms_h), p.norms_i);
        }
    }
}
// Is a sequence not for the kernels of chunks?
template <class P> DEV bool goes_by_token(const P &p, const sequence &s)
{
    if constexpr (KEEPS_BY_CHUNK<P>) {
        return p.kept_inside[s.number] != 0;
    }
    return false;
}
// Do states behind tokens lie where those lie that sequences begin with?
template <class P> DEV bool keeps_over_states(const P &p)
{
    if constexpr (KEEPS<P>) {
        return p.states == p.state;
    }
    return false;
}

} // namespace linear
