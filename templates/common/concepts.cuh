// common/concepts.cuh: includes the generated headers and checks them against the contract of README.md. A kernel includes this
// and asserts the concept of its kind, so that a missing slot is one readable error.
#pragma once
#include "common/contract.cuh"
#include "config.gen.cuh"
#include "common/math.cuh"
#include "variant.gen.cuh"

template <class A> struct bare {
    using type = A;
};
template <class A> struct bare<const A> {
    using type = A;
};
template <class A> struct bare<A &> {
    using type = typename bare<A>::type;
};
template <class A, class B>
concept gives = same_type<typename bare<A>::type, B>;

// clang-format off
template <class V, class I, class P>
concept attention_variant = requires(const I &x, const P &p, const sizes &z, const typename V::head &head, const typename V::row &row,
                                     const typename V::col &col, typename V::state &state, typename V::tile &tile, float e, float *finals,
                                     int i, float (*sum)(float)) {
    p.q; p.k; p.v; p.o; p.map; p.x;
    p.q_b + p.q_h + p.q_t + p.k_b + p.k_h + p.k_t + p.v_b + p.v_h + p.v_t + p.o_b + p.o_h + p.o_t;
    { p.z } -> gives<sizes>;
    V::DIAG && V::MASKED && V::MAP && V::MAP_PER_BATCH && V::MAP_PER_HEAD && V::MAP_BLOCKS && V::RESCALE && V::KEEPS && V::READ_RANGES && V::READS >= 0 && V::REDUCE_LAZY[0];
    V::DEAD_ONCE && V::dead() < e && V::SHARED_COLS;
    static_cast<bool>(V::LOGISTIC && V::RELU_WAITS && V::CAPPED && V::ELEMENT_COLS);
    V::PASSES + V::REDUCTIONS + V::FINALS + V::REDUCE_PASS[0] + V::REDUCE_OP[0];
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i) } -> gives<typename V::row>;
    { V::make_col(x, z, head, i) } -> gives<typename V::col>;
    { V::make_diag(x, z, head, i) } -> gives<float>;
    { V::live(x, z, head, row, col) } -> gives<bool>;
    { V::first_key(x, z, head, row) } -> gives<int>;
    { V::last_key(x, z, head, row) } -> gives<int>;
    { V::among(x, z, head, row, col) } -> gives<bool>;
    static_cast<int>(V::classify(x, z, head, i, i, i, i));
    { V::init(true) } -> gives<typename V::state>;
    V::begin(tile, state, x, z, head, row, i);
    { V::template element<0>(e, x, z, head, row, col, e, tile) } -> gives<float>;
    requires V::REDUCTIONS == 0 || requires { { V::template operand<0>(e, x, z, head, row, col, e, tile) } -> gives<float>; };
    V::template update<0>(tile, state, finals, x, z, head, row, i);
    { V::o_scale(tile) } -> gives<float>;
    V::next(state, tile);
    V::join(state, sum);
    { V::finish(state, finals, x, z, head, row) } -> gives<float>;
    V::store_finals(p, i, i, i, finals);
    V::empty_finals(finals, x, z, head, row);
};

template <class V, class I>
concept linear_variant = requires(const I &x, const sizes &z, const typename V::head &head, const typename V::row &row, int i) {
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i, i) } -> gives<typename V::row>;
    { V::scale(x, z, head) } -> gives<float>;
    { V::decay(x, z, head, row, i) } -> gives<float>;
    { V::delta(x, z, head, row) } -> gives<float>;
    { V::bonus(x, z, head, i) } -> gives<float>;
};

template <class V, class I, class P, class G>
concept backward_variant = requires(const I &x, const P &p, const G &g, const sizes &z, const typename V::head &head, const typename V::row &row,
                                    const typename V::col &col, float e, float *floats, int i) {
    p.q; p.k; p.v; p.dout; p.rows; p.dq; p.dk; p.dv; p.map; p.order; p.x; p.g;
    p.q_b + p.q_h + p.q_t + p.k_b + p.k_h + p.k_t + p.v_b + p.v_h + p.v_t + p.dout_b + p.dout_h + p.dout_t + p.dk_b + p.dk_h + p.dk_t + p.dv_b +
        p.dv_h + p.dv_t;
    { p.z } -> gives<sizes>;
    V::BACK_DIAG && V::MASKED && V::MAP && V::MAP_PER_BATCH && V::MAP_PER_HEAD && V::MAP_BLOCKS && V::DELTA && V::EMPTY_BY_O;
    V::SHARED_ROWS || true;
    V::BACK_ROWS + V::SITES + V::ROW_SITES + V::SITE_FORM[0] + V::ROW_SITE_FORM[0];
    V::NORM || true;
    { V::make_head(x, z, i, i) } -> gives<typename V::head>;
    { V::make_row(x, z, head, i) } -> gives<typename V::row>;
    { V::make_col(x, z, head, i) } -> gives<typename V::col>;
    { V::make_back_diag(x, z, head, i) } -> gives<float>;
    { V::live(x, z, head, row, col) } -> gives<bool>;
    { V::first_key(x, z, head, row) } -> gives<int>;
    { V::last_key(x, z, head, row) } -> gives<int>;
    requires !V::SCATTERED || requires { { V::among(x, z, head, row, col) } -> gives<bool>; };
    static_cast<int>(V::classify(x, z, head, i, i, i, i));
    V::pair(e, e, x, z, head, row, col, e, floats, *floats, *floats, floats);
    requires V::SITES == 0 || requires { V::template site_address<0>(g, x, z, head, row, col, i); };
    requires V::ROW_SITES == 0 || requires { V::template row_site_address<0>(g, x, z, head, row); };
    { V::ds_factor(x, z, head) } -> gives<float>;
};

// What attention_bwd_sm90 wants beside: pair() in two steps.
template <class V, class I>
concept split_backward_variant = requires(const I &x, const sizes &z, const typename V::head &head, const typename V::row &row,
                                          const typename V::col &col, float e, float *floats) {
    V::WEIGHT_READS | V::SLOPE_READS;
    V::WEIGHT_DIAG || V::SLOPE_DIAG;
    { V::weight(e, x, z, head, row, col, e, floats) } -> gives<float>;
    V::slope(e, e, e, x, z, head, row, col, e, floats, *floats, floats);
};

// A mod with stages on pairs of the first elements alone also has PAIRED: of how many, for each stage; 0: of all.
template <class M, class I>
concept vector_mod = requires(const I &x, const sizes &z, const typename M::head &head, typename M::vals &vals, float a, float *red, int i) {
    requires M::STAGES == 0 || requires {
        M::FORM[0] + M::PASSES[0] + M::REDUCTIONS[0];
        { M::make_head(x, z, i, i) } -> gives<typename M::head>;
        M::template begin<0>(vals, x, z, head, i, i);
        M::template output<0>(a, a, i, x, z, head, vals);
        requires M::REDUCTIONS[0] == 0 || requires {
            M::template reduce_pass<0>(0) + M::template reduce_op<0>(0);
            { M::template operand<0, 0>(a, a, i, x, z, head, vals) } -> gives<float>;
            M::template update<0, 0>(vals, red, x, z, head);
        };
    };
};

template <class V, class I, class P>
concept rowwise_variant = requires(const I &x, const P &p, const row_sizes &z, const typename V::head &head, const typename V::col &col,
                                   typename V::col (&cols)[4], typename V::vals &vals, float e, float *red, int i) {
    p.x; p.y; p.in;
    p.x_0 + p.x_1 + p.x_2 + p.y_0 + p.y_1 + p.y_2;
    { p.z } -> gives<row_sizes>;
    V::COLS && V::PASSES + V::REDUCTIONS + V::STATS + V::REDUCE_PASS[0] + V::REDUCE_OP[0];
    { V::make_head(x, z) } -> gives<typename V::head>;
    V::template make_cols<4>(x, z, head, i, cols);
    V::begin(vals, x, z, head, i);
    requires V::REDUCTIONS == 0 || requires { { V::template operand<0>(e, i, x, z, head, col, vals) } -> gives<float>; };
    requires V::PASSES == 0 || requires { V::template update<0>(vals, red, x, z, head); };
    { V::output(e, i, x, z, head, col, vals) } -> gives<float>;
    V::store_stats(p, i, i, i, vals);
};

template <class V, class I, class P>
concept rows_variant = requires(const I &x, const P &p, const row_sizes &z, const row_at &at, const row_gradient &g, const typename V::head &head,
                                const typename V::col &col, typename V::col (&cols)[4], typename V::vals &vals, const float (&e)[V::IN > 0 ? V::IN : 1],
                                float (&y)[V::OUT > 0 ? V::OUT : 1], float (&site)[V::COLUMNS > 0 ? V::COLUMNS : 1], float *red, int i) {
    p.in[0].data; p.out[0].data; p.kept[0].data; p.columns; p.sums; p.values; p.x;
    { p.z } -> gives<row_sizes>;
    V::COLS && V::REDUCE_COLS && V::PASSES + V::REDUCTIONS + V::REDUCE_PASS[0] + V::REDUCE_OP[0];
    V::IN + V::OUT + V::KEPT + V::COLUMNS + V::SUMS + V::SITES + V::GRADS + V::SITE_GRAD[0] + V::SITE_SLOT[0] + V::SITE_COLUMN[0] + V::SITE_SCATTERED[0] + V::GRAD_DIMS + V::SUM_SHARES + V::SUM_ROUND;
    V::SCATTERS + V::SCATTER_TO[0]; p.scatter[0].n[0];
    { V::make_head(x, z) } -> gives<typename V::head>;
    V::template make_cols<4>(x, z, head, i, cols);
    V::begin(vals, p, head, at);
    requires V::REDUCTIONS == 0 || requires { { V::template operand<0>(e, i, x, z, head, col, vals) } -> gives<float>; };
    requires V::PASSES == 0 || requires { V::template update<0>(vals, red, x, z, head); };
    V::output(e, i, x, z, head, col, vals, e, y, site);
    V::SCANS + V::WALKS + V::CHUNK + V::SCAN_FORM[0] + V::SCAN_WALK[0] + V::SCAN_STARTS[0] + V::SCAN_BESIDE[0] + V::COLS_BESIDE_STARTS + V::WALK_REVERSE[0];
    V::sums(x, z, head, vals, red);
    V::keep_row(x, z, head, vals, red);
    { V::template column_of<0>(g, x, z, head, 0ll, 0ll) } -> gives<int>;
};
// clang-format on

// ---- what a row-wise variant may leave out; README.md ----------------------------------------------------------

// Whether a reduction looks at a column's values. Where the variant does not say, the compiler has to find out.
template <class VARIANT> __host__ __device__ constexpr bool reduces_columns()
{
    if constexpr (requires { VARIANT::REDUCE_COLS; }) {
        return VARIANT::REDUCE_COLS;
    } else {
        return VARIANT::COLS;
    }
}
// Values of columns that depend on the row, too.
template <class VARIANT, int V> DEV void fill_cells(const inputs &x, const row_sizes &z, const typename VARIANT::head &head,
                                                    const typename VARIANT::vals &vals, typename VARIANT::col (&c)[V])
{
    if constexpr (requires { VARIANT::CELLS; }) {
        VARIANT::template make_cells<V>(x, z, head, vals, c);
    }
}
// Values of columns that two to a register lose nothing: all fields of col came from tensors of cfg::element. 0: not, or it is not asked for.
template <class VARIANT> __host__ __device__ constexpr int fields_of()
{
    if constexpr (requires { VARIANT::FIELDS; }) {
        return VARIANT::FIELDS;
    } else {
        return 0;
    }
}
template <class VARIANT> __host__ __device__ constexpr bool has_cells() { return requires { VARIANT::CELLS; }; }
// Rows have places: what they read, and add to, of inputs at computed indices is told by the column and by the row's KEYS.
template <class VARIANT> __host__ __device__ constexpr bool has_places() { return requires { VARIANT::KEYS; }; }
// Whether the places of scatter K never fall along a row, or never rise, by more than 1 from one column to the next.
template <class VARIANT, int K> __host__ __device__ constexpr bool is_steady()
{
    if constexpr (requires { VARIANT::SCATTER_STEADY[K]; }) {
        return VARIANT::SCATTER_STEADY[K];
    } else {
        return false;
    }
}
// Tensors of which pass P reduces something, as bits.
template <class VARIANT, int P> __host__ __device__ constexpr int reads_of_pass()
{
    if constexpr (requires { VARIANT::PASS_READS[P]; }) {
        return VARIANT::PASS_READS[P];
    } else {
        return -1;
    }
}
// Of tensor K that is read or written: it has so many elements of each row; 0: all.
template <class VARIANT, int K> __host__ __device__ constexpr int first_of_in()
{
    if constexpr (requires { VARIANT::IN_FIRST[K]; }) {
        return VARIANT::IN_FIRST[K];
    } else {
        return 0;
    }
}
template <class VARIANT, int K> __host__ __device__ constexpr int first_of_out()
{
    if constexpr (requires { VARIANT::OUT_FIRST[K]; }) {
        return VARIANT::OUT_FIRST[K];
    } else {
        return 0;
    }
}
// The bits of what those elements are that a row is too short for.
template <class VARIANT, int K> __host__ __device__ constexpr int fill_of_out()
{
    if constexpr (requires { VARIANT::OUT_FILL[K]; }) {
        return VARIANT::OUT_FILL[K];
    } else {
        return 0;
    }
}
// The tensor whose elements themselves reduction R compares; -1: another reduction.
template <class VARIANT, int R> __host__ __device__ constexpr int compared_tensor()
{
    if constexpr (requires { VARIANT::REDUCE_RAW[R]; }) {
        return VARIANT::REDUCE_RAW[R];
    } else {
        return -1;
    }
}
// The reduction that adds up the elements from whose mean reduction R, a later one of the same pass, adds up squared distances;
// -1: another reduction. Rows are full then.
template <class VARIANT, int R> __host__ __device__ constexpr int spread_about()
{
    if constexpr (requires { VARIANT::REDUCE_VARIANCE[R]; }) {
        return VARIANT::REDUCE_VARIANCE[R];
    } else {
        return -1;
    }
}
template <class VARIANT> __host__ __device__ constexpr bool has_spreads() { return requires { VARIANT::REDUCE_VARIANCE[0]; }; }
// Of reduction R, that reduction; -1: there is none.
template <class VARIANT, int R> __host__ __device__ constexpr int variance_beside()
{
    int of = -1;
    if constexpr (requires { VARIANT::REDUCE_VARIANCE[R]; }) {
        for (int k = 0; k < VARIANT::REDUCTIONS; k++) {
            of = VARIANT::REDUCE_VARIANCE[k] == R ? k : of;
        }
    }
    return of;
}
// Whether few vectors add to reduction R, and whether that of n elements from i on may.
template <class VARIANT, int R> __host__ __device__ constexpr bool adds_seldom()
{
    if constexpr (requires { VARIANT::REDUCE_SOME[R]; }) {
        return VARIANT::REDUCE_SOME[R];
    } else {
        return false;
    }
}
template <class VARIANT, int R> DEV bool may_add(int i, int n, const inputs &x, const row_sizes &z, const typename VARIANT::head &head,
                                               const typename VARIANT::vals &vals)
{
    if constexpr (adds_seldom<VARIANT, R>()) {
        return VARIANT::template some<R>(i, n, x, z, head, vals);
    } else {
        return true;
    }
}
