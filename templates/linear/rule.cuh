// linear/rule.cuh: the vectors by which a token reads the state before it writes, and by which it writes what it has
// read: a reader a and a writer b of a spec, made of the token's key and of inputs, token by token.
//
// With the delta rule they stand for its keys: S = D o S + b' beta (v - a S). Without it there are both, and what is
// read is added beside v under the key: S = D o S + b' (a S) + k' v. cfg::READS_BEFORE: a reads the state ahead of D.
#pragma once
#include "linear/tile.cuh"

namespace linear
{

constexpr int OF_READER = FUNCTIONS + 1, OF_WRITER = FUNCTIONS + 2; // behind enum linear_function
constexpr bool BY_RULE = cfg::HAS_READER || cfg::HAS_WRITER || cfg::READS_BEFORE;
constexpr bool ADDS_SEEN = !cfg::DELTA && cfg::HAS_READER, LOOKS = cfg::DELTA || cfg::HAS_READER;

// Of tokens, where the spec has them: a and b.
template <int TOKENS, int WIDE, bool READER = cfg::HAS_READER, bool WRITER = cfg::HAS_WRITER> struct rule_vectors {
};
template <int TOKENS, int WIDE> struct rule_vectors<TOKENS, WIDE, true, false> {
    alignas(16) float a[TOKENS][WIDE];
};
template <int TOKENS, int WIDE> struct rule_vectors<TOKENS, WIDE, false, true> {
    alignas(16) float b[TOKENS][WIDE];
};
template <int TOKENS, int WIDE> struct rule_vectors<TOKENS, WIDE, true, true> {
    alignas(16) float a[TOKENS][WIDE];
    alignas(16) float b[TOKENS][WIDE];
};

// What reads the state before the token writes; under what its value is written.
template <class B> DEV const float *reader_at(const B &batch, int n)
{
    if constexpr (cfg::HAS_READER) {
        return batch.a[n];
    } else {
        return batch.k[n];
    }
}
template <class B> DEV const float *writer_at(const B &batch, int n)
{
    if constexpr (cfg::DELTA && cfg::HAS_WRITER) {
        return batch.b[n];
    } else {
        return batch.k[n];
    }
}

// Elements of a and b at channel i of a key element k. The load is unconditional, since a branch would serialise loads:
// a place beyond the end reads the last token's row, and its value is dropped.
template <class V, class P, class W> DEV float made_reader(const P &p, const W &w, int place, int i, float k)
{
    if constexpr (cfg::HAS_READER) {
        const float x = V::reader(p.x, p.z, w.head, w.row(p, place), i, k);
        return w.has(place) && i < cfg::D ? x : 0.0f;
    } else {
        return k;
    }
}
template <class V, class P, class W> DEV float made_writer(const P &p, const W &w, int place, int i, float k)
{
    if constexpr (cfg::HAS_WRITER) {
        const float x = V::writer(p.x, p.z, w.head, w.row(p, place), i, k);
        return w.has(place) && i < cfg::D ? x : 0.0f;
    } else {
        return k;
    }
}

// A batch gets the vectors of its tokens, of channels from `first` on; a loader has their keys.
template <class V, class LOADER, class B> DEV void put_vectors(const LOADER &l, B &to, int place, int first)
{
    if constexpr (cfg::HAS_READER) {
        l.k.put_made(to.a, [&](int n, int i, float k) { return made_reader<V>(l.p, l.w, place + n, first + i, k); });
    }
    if constexpr (cfg::HAS_WRITER) {
        l.k.put_made(to.b, [&](int n, int i, float k) { return made_writer<V>(l.p, l.w, place + n, first + i, k); });
    }
}

// ---- columns of the state ------------------------------------------------------------------------------

// A token's part of the state; error(x) sees what the delta rule corrects by, before beta, or what was read.
template <class S, class B, int W, class F>
DEV void write_by_rule(S &state, const B &batch, int n, float (&value)[W], const F &error)
{
    float seen[W] = {};
    if constexpr (cfg::READS_BEFORE) {
        state.read(reader_at(batch, n), seen);
    }
    decay_state(state, batch, n);
    if constexpr (!cfg::READS_BEFORE) {
        state.read(reader_at(batch, n), seen);
    }
    sum_rows(seen);
    if constexpr (cfg::DELTA) {
#pragma unroll
        for (int i = 0; i < W; i++) {
            value[i] -= seen[i];
        }
        error(value);
#pragma unroll
        for (int i = 0; i < W; i++) {
            value[i] *= batch.beta[n];
        }
    } else {
        error(seen);
        state.add(batch.b[n], seen);
    }
    state.add(writer_at(batch, n), value);
}

// Its gradient, of which the token has taken what flows back to o: that of its value, of this thread's rows, and of
// what was read, of all rows. With the delta rule that of the value is of all rows, and the other -beta times it.
template <class S, class B, int W>
DEV void back_by_rule(S &state, const B &batch, int n, float (&sum)[W], float (&seen)[W])
{
    state.read(writer_at(batch, n), sum);
    if constexpr (cfg::DELTA) {
        sum_rows(sum);
#pragma unroll
        for (int i = 0; i < W; i++) {
            seen[i] = -batch.beta[n] * sum[i];
        }
    } else {
        state.read(batch.b[n], seen);
        sum_rows(seen);
    }
    if constexpr (!cfg::READS_BEFORE) {
        state.add(reader_at(batch, n), seen);
    }
    decay_state(state, batch, n);
    if constexpr (cfg::READS_BEFORE) {
        state.add(reader_at(batch, n), seen);
    }
}

} // namespace linear
