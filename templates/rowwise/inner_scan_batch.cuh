// rowwise/inner_scan_batch.cuh: for rowwise/inner_scan.cuh and rowwise/inner_scan_lookback.cuh: what scans take of the
// places of a batch, and rows that go out.
#pragma once
#include "rowwise/inner_scan_carries.cuh"
#include "rowwise/inner_scan_segments.cuh"

namespace many
{

template <int S> struct taken { // by scan S, of one row of a batch
    scan_input x[PLACES];
    aggregate one[PLACES];
};

// The element of a row at place k of a batch, which stands at `at`. PART: the row may end before it, where `end` says.
template <int S, bool PART> DEV scan_input take_term(aggregate &one, const batch &b, int at, int k,
                                                     const rows_params &p, const variant::head &head,
                                                     const strip_values &vals, int end, int j)
{
    const int i = b.base + k;
    const bool here = !PART || i < end;
    float e[IN];
    float known[SCANS];
    scan_input x = {};
    unpack_piece(b.held[at], e, j);
#pragma unroll
    for (int s = 0; s < S; s++) {
        known[s] = b.q[at].of[s][j];
    }
    variant::scan_term<S>(e, i, p.x, p.z, head, b.col[at], vals.of[j], known, x);
    x.start = variant::SCAN_STARTS[S] == 2 ? here && x.start : (b.starts[S] >> k & 1) != 0;
    x.value = here ? x.value : 0.0f;
    one = here ? element_aggregate<S>(x) : nothing<S>();
    return x;
}
template <int S, bool PART> DEV void take_terms(taken<S> &to, const batch &b, const rows_params &p,
                                                const variant::head &head, const strip_values &vals, int end, int j)
{
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        to.x[k] = take_term<S, PART>(to.one[k], b, k, k, p, head, vals, end, j);
    }
}

template <int S> DEV int place_in_walk(int step) { return in_reverse<S>() ? PLACES - 1 - step : step; }

template <int S> DEV void walk_apart(float (&q)[PLACES], aggregate &walked, const taken<S> &terms)
{
#pragma unroll
    for (int step = 0; step < PLACES; step++) {
        const int k = place_in_walk<S>(step);
        const bool start = terms.x[k].start;
        const aggregate with = with_element<S>(walked, terms.one[k], start);
        q[k] = scan_value<S>(with, terms.x[k]);
        walked = handed_on<S>(walked, with, start);
    }
}

struct targets {
    char *of[OUT];
};

struct finished { // a place of the rows that go out
    float of[OUT][V];
};

// Place i, which stands at `at`, of row j of the lane.
DEV void finish_row(finished &to, const batch &b, int at, int i, const rows_params &p, const variant::head &head,
                    const strip_values &vals, int j)
{
    float e[IN];
    float y[OUT];
    float site[COLUMNS];
    float q[SCANS];
    unpack_piece(b.held[at], e, j);
#pragma unroll
    for (int m = 0; m < SCANS; m++) {
        q[m] = b.q[at].of[m][j];
    }
    variant::output(e, i, p.x, p.z, head, b.col[at], vals.of[j], q, y, site);
    repeat<0, variant::OUT>([&]<int K>() { to.of[K][j] = y[K]; });
}

DEV void move_targets(targets &to, const rows_params &p, int places)
{
    repeat<0, variant::OUT>(
        [&]<int K>() { to.of[K] += places * (p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>))); });
}

struct packed { // a place of the rows that go out
    u32 word[OUT][V];
};
template <int K> DEV void pack_pair(u32 (&to)[V], const float (&y)[V], int pair) // of rows of the lane
{
    using T = out_type<K>;
    if constexpr (sizeof(T) == 4) {
        to[2 * pair] = __float_as_uint(y[2 * pair]);
        to[2 * pair + 1] = __float_as_uint(y[2 * pair + 1]);
    } else {
        to[pair] = pack<T>(y[2 * pair], y[2 * pair + 1]);
    }
}
template <int K> DEV void store_packed(char *to, const u32 (&x)[V])
{
    if constexpr (OUT_WORDS<K> == 4) {
        __stcs(reinterpret_cast<uint4 *>(to), make_uint4(x[0], x[1], x[2], x[3]));
    } else if constexpr (OUT_WORDS<K> == 2) {
        __stcs(reinterpret_cast<uint2 *>(to), make_uint2(x[0], x[1]));
    } else {
        __stcs(reinterpret_cast<u32 *>(to), x[0]);
    }
}

// Row j of the lane at all places; pairs of rows are packed.
DEV void finish_rows(packed (&to)[PLACES], finished (&y)[PLACES], const batch &b, const rows_params &p,
                     const variant::head &head, const strip_values &vals, int j)
{
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        finish_row(y[k], b, k, b.base + k, p, head, vals, j);
        if (j % 2 == 1) {
            repeat<0, variant::OUT>([&]<int K>() { pack_pair<K>(to[k].word[K], y[k].of[K], j / 2); });
        }
    }
}
DEV void store_places(const targets &to, const packed (&out)[PLACES], const rows_params &p)
{
    targets at = to;
#pragma unroll
    for (int k = 0; k < PLACES; k++) {
        repeat<0, variant::OUT>([&]<int K>() {
            store_packed<K>(at.of[K], out[k].word[K]);
            at.of[K] += p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>));
        });
    }
}
// `n` rows of the first `places`, in loops: it is seldom asked, and soon compiled.
DEV void store_some_places(const targets &to, packed (&out)[PLACES], const rows_params &p, int places, int n)
{
    targets at = to;
#pragma unroll 1
    for (int k = 0; k < places; k++) {
        repeat<0, variant::OUT>([&]<int K>() {
            store_some_words<K>(reinterpret_cast<out_type<K> *>(at.of[K]), out[0].word[K], n);
            at.of[K] += p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>));
        });
        move_on<false>(out);
    }
}

// Of place k of the batch that begins at `to`, for single rows.
DEV void store_some_rows(const targets &to, const finished &out, const rows_params &p, int k, int n)
{
    repeat<0, variant::OUT>([&]<int K>() {
        out_type<K> *row =
            reinterpret_cast<out_type<K> *>(to.of[K] + k * p.out[K].stride[3] * static_cast<int>(sizeof(out_type<K>)));
#pragma unroll
        for (int j = 0; j < V; j++) {
            if (j < n) {
                row[j] = from_float<out_type<K>>(out.of[K][j]);
            }
        }
    });
}

DEV void find_targets(targets &to, const rows_params &p, const strip &s, int base)
{
    repeat<0, variant::OUT>([&]<int K>() {
        to.of[K] = reinterpret_cast<char *>(row_of<out_type<K>>(p.out[K], s.at) + base * p.out[K].stride[3]);
    });
}

} // namespace many
