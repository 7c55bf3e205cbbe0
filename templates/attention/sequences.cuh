// attention/sequences.cuh: sequences that are packed one behind the other, and batches of which not all keys are in
// use: a block finds the sequence that its tile of queries is of, and from there on has parameters of that sequence
// alone, as of a dense launch: pointers at its first tokens, its lengths, and at.b its number.
//
// Nothing on the host knows lengths: a launch has as many tiles as there may be, floor(tokens / ROWS) + sequences of a
// head. Sequence i has those from floor(cu[i] / ROWS) + i on, of which some may be left over. What the lists say is
// clamped into the tensors, so wrong ones read and write nothing else.
#pragma once
#include "common/contract.cuh"

constexpr int Q_START_BY_LENGTH = -2147483647 - 1; // runtime/recipe/recipe.h

template <class PARAMS> constexpr bool HAS_SEQUENCES = requires(PARAMS p) { p.cu_q; };

namespace sequences {

DEV int place(const int *cu, i64 step, int i, int tokens) { return min(max(cu[i * step], 0), tokens); }

// The place of tile 0 of sequence i among the tiles of a head.
template <int ROWS, class PARAMS> DEV int first_tile(const PARAMS &p, int i) { return place(p.cu_q, p.cu_q_step, i, p.z.len_q) / ROWS + i; }

struct tile {
    int b, number;
};
template <int ROWS, class PARAMS> DEV tile find(const PARAMS &p, int slot)
{
    int low = 0;
    int high = p.z.n_b - 1; // the last one that begins there or before
#pragma unroll 1
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (first_tile<ROWS>(p, middle) <= slot) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return {low, slot - first_tile<ROWS>(p, low)};
}

// Sequence b in the place of all.
template <class PARAMS> DEV void enter(PARAMS &p, int b)
{
    int first_q = 0;
    int first_kv = 0;
    if (p.cu_q != nullptr) {
        const int *keys = p.cu_kv != nullptr ? p.cu_kv : p.cu_q;
        const i64 step = p.cu_kv != nullptr ? p.cu_kv_step : p.cu_q_step;
        first_q = place(p.cu_q, p.cu_q_step, b, p.z.len_q);
        first_kv = place(keys, step, b, p.z.len_kv);
        p.z.len_q = max(place(p.cu_q, p.cu_q_step, b + 1, p.z.len_q) - first_q, 0);
        p.z.len_kv = max(place(keys, step, b + 1, p.z.len_kv) - first_kv, 0);
    }
    if (p.used_kv != nullptr) {
        p.z.len_kv = place(p.used_kv, p.used_kv_step, b, p.z.len_kv);
    }
    p.z.q_start = p.z.q_start == Q_START_BY_LENGTH ? p.z.len_kv - p.z.len_q : p.z.q_start;
    p.enter(first_q, first_kv);
}

} // namespace sequences

// A copy that a block may change, or what was launched.
template <class PARAMS> DEV decltype(auto) own_params(const PARAMS &launched)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return PARAMS(launched);
    } else {
        return (launched);
    }
}
