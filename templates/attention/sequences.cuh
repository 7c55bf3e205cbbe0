// attention/sequences.cuh: sequences that are packed one behind the other, and batches of which not all keys are in
// use: a block finds the sequence that its tile of queries is of, and from there on has parameters of that sequence
// alone, as of a dense launch: pointers at its first tokens, its lengths, and at.b its number.
//
// Nothing on the host knows lengths: a launch has as many tiles as there may be, floor(tokens / ROWS) + sequences of a
// head. Sequence i has those from floor(cu[i] / ROWS) + i on, of which some may be left over. What the lists say is
// clamped into the tensors, so wrong ones read and write nothing else. Keys in pages have places of their own for each
// sequence, as many as its pages hold.
#pragma once
#include "common/contract.cuh"

constexpr int Q_START_BY_LENGTH = -2147483647 - 1; // runtime/recipe/recipe.h

template <class PARAMS> constexpr bool HAS_SEQUENCES = requires(PARAMS p) { p.cu_q; };
template <class PARAMS> constexpr bool HAS_PAGES = requires(PARAMS p) { p.pages; }; // attention/key_rows.cuh

namespace sequences
{

DEV int place(const int *cu, i64 step, int i, int tokens) { return min(max(cu[i * step], 0), tokens); }

// Where sequences begin among all queries, or all keys, and how many rows of a tile a token has.
struct places {
    const int *cu;
    i64 step;
    int tokens;
    int rows = 1;
    __device__ __forceinline__ int at(int i) const { return place(cu, step, i, tokens); }
};
template <class PARAMS> DEV places queries(const PARAMS &p) { return {p.cu_q, p.cu_q_step, p.z.len_q}; }
template <class PARAMS> DEV places keys(const PARAMS &p)
{
    const bool own = p.cu_kv != nullptr;
    return {own ? p.cu_kv : p.cu_q, own ? p.cu_kv_step : p.cu_q_step, p.z.len_kv};
}

// The place of tile 0 of sequence i among the tiles of a head.
template <int ROWS> DEV int first_tile(const places &of, int i) { return of.at(i) * of.rows / ROWS + i; }

struct tile {
    int b, number;
};
// The last sequence that begins at `slot` or before. begin(i): where the i'th does.
template <class F> DEV int last_from(int n_b, int slot, const F &begin)
{
    int low = 0;
    int high = n_b - 1;
#pragma unroll 1
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (begin(middle) <= slot) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}
template <int ROWS> DEV tile find(const places &of, int n_b, int slot)
{
    const int b = last_from(n_b, slot, [&](int i) { return first_tile<ROWS>(of, i); });
    return {b, slot - first_tile<ROWS>(of, b)};
}

// Where the tokens of a sequence begin, and how many there are: of keys, those in use.
struct extent {
    int first_q, first_kv, len_q, len_kv;
};
template <class PARAMS> DEV extent find_extent(const PARAMS &p, int b)
{
    extent e = {0, 0, p.z.len_q, p.z.len_kv};
    if (p.cu_q != nullptr) {
        const places of_q = queries(p);
        const places of_kv = keys(p);
        e.first_q = of_q.at(b);
        e.first_kv = HAS_PAGES<PARAMS> ? 0 : of_kv.at(b);
        e.len_q = max(of_q.at(b + 1) - e.first_q, 0);
        e.len_kv = HAS_PAGES<PARAMS> ? p.z.len_kv : max(of_kv.at(b + 1) - e.first_kv, 0);
    }
    if (p.used_kv != nullptr) {
        e.len_kv = place(p.used_kv, p.used_kv_step, b, e.len_kv);
    }
    return e;
}

// That sequence in the place of all.
template <class PARAMS> DEV void enter(PARAMS &p, const extent &e)
{
    p.z.len_q = e.len_q;
    p.z.len_kv = e.len_kv;
    p.z.q_start = p.z.q_start == Q_START_BY_LENGTH ? e.len_kv - e.len_q : p.z.q_start;
    p.enter(e.first_q, e.first_kv);
}
template <class PARAMS> DEV void enter(PARAMS &p, int b) { enter(p, find_extent(p, b)); }

// Tile number `slot` of a head: of packed sequences, or batch by batch. False: there is no sequence.
template <int ROWS> DEV bool tile_of(const places &of, int n_b, int slot, tile &found)
{
    if (n_b == 0) {
        return false;
    }
    if (of.cu != nullptr) {
        found = find<ROWS>(of, n_b, slot);
    } else {
        const int tiles = max((of.tokens + ROWS - 1) / ROWS, 1);
        found = {slot / tiles, slot % tiles};
    }
    return found.number >= 0;
}

// Where a buffer has tiles of ROWS queries, sequence by sequence: how many of a head are ahead of sequence b.
template <int ROWS, class PARAMS> DEV i64 tiles_before(const PARAMS &p, int b)
{
    return p.cu_q != nullptr ? first_tile<ROWS>(queries(p), b) : b * ((p.z.len_q + ROWS - 1) / ROWS);
}

// Keys that sequence b has room for, of which fewer may be in use.
template <class PARAMS> DEV int room(const PARAMS &p, int b)
{
    return p.cu_q != nullptr ? max(keys(p).at(b + 1) - keys(p).at(b), 0) : p.z.len_kv;
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

// Of the kernels of vector mods: where a block's rows lie. p becomes the sequence's. False: it has none.
template <int ROWS, class PARAMS, class PLACE> DEV bool enter_rows(PARAMS &p, PLACE &at)
{
    const bool queries = p.of_queries != 0;
    const sequences::places of = queries ? sequences::queries(p) : sequences::keys(p);
    const int block = static_cast<int>(blockIdx.x);
    sequences::tile found;
    if (!sequences::tile_of<ROWS>(of, p.z.n_b, block / p.n_h, found)) {
        return false;
    }
    const int keys = HAS_PAGES<PARAMS> ? 0 : sequences::room(p, found.b); // of pages nothing is moved
    sequences::enter(p, found.b);
    p.len = queries ? p.z.len_q : p.z.len_kv;
    p.pos0 = queries ? p.z.q_start : 0;
    at = {found.b, block % p.n_h, found.number, of.cu != nullptr ? of.at(found.b) : 0, queries ? p.len : keys};
    return found.number * ROWS < at.room;
}
