// heads/vector_mod.cuh: kernels: the query, key, value and output mods, on every row of a [b, h, token, dim] tensor.
//
// Launch of each: n_b * n_h * ceil(len / MOD_TOKENS) blocks of MOD_THREADS threads (n_h and len of this tensor); no
// shared memory. A kernel exists where its mod has stages.
//
// A thread holds two vectors of a row, `low` at i and `high` at i + dim / 2: both halves of a half-split pair and both
// members of an interleaved one are then its own, and only reductions talk across the team of a row. Halves of the
// first so many elements alone are not: for such a stage the row changes places through shared memory, before it and
// after it.
#pragma once
#include "common/concepts.cuh"

static_assert(vector_mod<variant::query_mod, inputs> && vector_mod<variant::key_mod, inputs> &&
                  vector_mod<variant::value_mod, inputs> && vector_mod<variant::output_mod, inputs>,
              "variant.gen.cuh does not fill the slots of its vector mods: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(cfg::D % 8 == 0 && cfg::D >= 8 && cfg::D <= 576, "cfg::D is a multiple of 8 from 8 to 576");
static_assert(cfg::D_V % 8 == 0 && cfg::D_V >= 8 && cfg::D_V <= 512, "cfg::D_V is a multiple of 8 from 8 to 512");

constexpr int MOD_THREADS = 256;
constexpr int MOD_TOKENS = 64;

namespace mods
{

__host__ __device__ constexpr int power_of_two(int n) // the next one up
{
    int p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

template <int DIM> struct shape {
    static constexpr int HALF = DIM / 2;
    static constexpr int V = HALF % 8 == 0 ? 8 : 4; // elements of a vector
    static constexpr int VECTORS = HALF / V;        // of half a row
    static constexpr int TEAM = min_of(32, max_of(MOD_THREADS / MOD_TOKENS, power_of_two(VECTORS))); // threads of a row
    static constexpr int PER_THREAD = (VECTORS + TEAM - 1) / TEAM;
    static constexpr int AT_ONCE = MOD_THREADS / TEAM; // rows that a block works on at once
    // of an aligned address
    template <class T> static constexpr u64 MASK = static_cast<u64>(min_of(16, V *static_cast<int>(sizeof(T))) - 1);
    static_assert(MOD_TOKENS % AT_ONCE == 0, "a block's tokens are a whole number of turns");
};

template <int DIM> struct row_values {
    float low[shape<DIM>::PER_THREAD][shape<DIM>::V];
    float high[shape<DIM>::PER_THREAD][shape<DIM>::V];
};

// Elements `step` apart, or a vector.
template <int V, class T> DEV void load(const T *p, bool aligned, i64 step, float (&out)[V])
{
    if (aligned) {
        load_vec<V, T>(p, out);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            out[i] = to_float(p[i * step]);
        }
    }
}
// From one element of a row of src to the next: told where some tensor's rows need not be aligned.
template <class PARAMS> DEV i64 src_step(const PARAMS &p)
{
    if constexpr (requires { p.src_d; }) {
        return p.src_d;
    } else {
        return 1;
    }
}

template <int V, class T> DEV void store(T *p, bool aligned, const float (&in)[V])
{
    if (aligned) {
        store_vec<V, T>(p, in);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            p[i] = from_float<T>(in[i]);
        }
    }
}

// Of how many elements, the first ones, stage S makes pairs.
template <class MOD, int S, int DIM> DEV constexpr int paired_of()
{
    if constexpr (requires { MOD::PAIRED; }) {
        return MOD::PAIRED[S] > 0 ? MOD::PAIRED[S] : DIM;
    } else {
        return DIM;
    }
}

// Where slot i of `low` (or of `high`) lies in its row, or lies while halves of the first PAIRED elements are pairs.
template <int DIM, int PAIRED> DEV int place_of(int i, bool high)
{
    constexpr int HALF = DIM / 2;
    if constexpr (PAIRED == DIM) {
        return high ? i + HALF : i;
    } else {
        return i < PAIRED / 2 ? (high ? i + PAIRED / 2 : i) : (high ? i + HALF : i + PAIRED / 2);
    }
}

// A place in shared memory for the row of this thread's team, one for all that change_places is made for.
template <int DIM> DEV float *room_of_row()
{
    using s = shape<DIM>;
    __shared__ float room[s::AT_ONCE][DIM];
    return room[static_cast<int>(threadIdx.x) / s::TEAM];
}

// The row's values from the places that FROM pairs give them to those of TO pairs, of which one is DIM. All lanes come
// here.
template <int DIM, int FROM, int TO> DEV void change_places(row_values<DIM> &x, int thread)
{
    using s = shape<DIM>;
    float *row = room_of_row<DIM>();
    __syncwarp();
#pragma unroll
    for (int n = 0; n < s::PER_THREAD * s::V; n++) {
        const int i = (thread + n / s::V * s::TEAM) * s::V + n % s::V;
        if (i < s::HALF) {
            row[place_of<DIM, FROM>(i, false)] = x.low[n / s::V][n % s::V];
            row[place_of<DIM, FROM>(i, true)] = x.high[n / s::V][n % s::V];
        }
    }
    __syncwarp();
#pragma unroll
    for (int n = 0; n < s::PER_THREAD * s::V; n++) {
        const int i = (thread + n / s::V * s::TEAM) * s::V + n % s::V;
        if (i < s::HALF) {
            x.low[n / s::V][n % s::V] = row[place_of<DIM, TO>(i, false)];
            x.high[n / s::V][n % s::V] = row[place_of<DIM, TO>(i, true)];
        }
    }
}

// Does stage S need other places than those that rows are read and written in?
template <class MOD, int S, int DIM> inline constexpr bool MOVES = MOD::FORM[S] ==
                                                                   FORM_HALF &&paired_of<MOD, S, DIM>() != DIM;

// f(a, b, at.i) for every element or pair of form FORM that this thread holds; b is 0 for a lone element. Pairs are
// made of the first PAIRED elements.
template <int FORM, int DIM, int PAIRED, class F> DEV void each(row_values<DIM> &x, int thread, const F &f)
{
    using s = shape<DIM>;
    constexpr bool ALL = PAIRED == DIM;
#pragma unroll
    for (int k = 0; k < s::PER_THREAD; k++) {
        const int vector = thread + k * s::TEAM;
        if (s::VECTORS % s::TEAM != 0 && vector >= s::VECTORS) {
            continue;
        }
        const int i = vector * s::V;
        if constexpr (FORM == FORM_HALF) {
#pragma unroll
            for (int j = 0; j < s::V; j++) {
                if (ALL || i + j < PAIRED / 2) {
                    f(x.low[k][j], x.high[k][j], i + j);
                }
            }
        } else if constexpr (FORM == FORM_INTERLEAVED) {
#pragma unroll
            for (int j = 0; j < s::V; j += 2) {
                if (ALL || i + j < PAIRED) {
                    f(x.low[k][j], x.low[k][j + 1], (i + j) / 2);
                }
                if (ALL || i + j + s::HALF < PAIRED) {
                    f(x.high[k][j], x.high[k][j + 1], (i + j + s::HALF) / 2);
                }
            }
        } else {
            static_assert(FORM == FORM_ELEMENT, "a form is FORM_ELEMENT, FORM_HALF or FORM_INTERLEAVED");
            float none = 0.0f;
#pragma unroll
            for (int j = 0; j < s::V; j++) {
                f(x.low[k][j], none, i + j);
                f(x.high[k][j], none, i + j + s::HALF);
            }
        }
    }
}

template <class MOD, int S> inline constexpr int SLOTS = max_of(MOD::REDUCTIONS[S], 1);

template <class MOD, int S, int DIM> DEV void run_stage(row_values<DIM> &x, typename MOD::vals &vals,
                                                        const mod_params &p, const typename MOD::head &head, int thread,
                                                        int token)
{
    constexpr int FORM = MOD::FORM[S];
    constexpr int PAIRED = paired_of<MOD, S, DIM>();
    constexpr int REDUCTIONS = MOD::REDUCTIONS[S];
    if constexpr (MOVES<MOD, S, DIM>) {
        change_places<DIM, DIM, PAIRED>(x, thread);
    }
    MOD::template begin<S>(vals, p.x, p.z, head, token, p.pos0 + token);
    repeat<0, MOD::PASSES[S]>([&]<int P>() {
        float red[SLOTS<MOD, S>] = {};
        repeat<0, REDUCTIONS>([&]<int R>() {
            if constexpr (MOD::template reduce_pass<S>(R) == P) {
                constexpr int OP = MOD::template reduce_op<S>(R);
                float sum = red_identity<OP>();
                each<FORM, DIM, PAIRED>(x, thread, [&](float a, float b, int i) {
                    sum = red_combine<OP>(sum, MOD::template operand<S, R>(a, b, i, p.x, p.z, head, vals));
                });
                red[R] = red_lanes<OP, shape<DIM>::TEAM>(sum);
            }
        });
        MOD::template update<S, P>(vals, red, p.x, p.z, head);
    });
    each<FORM, DIM, PAIRED>(x, thread,
                            [&](float &a, float &b, int i) { MOD::template output<S>(a, b, i, p.x, p.z, head, vals); });
    if constexpr (MOVES<MOD, S, DIM>) {
        change_places<DIM, PAIRED, DIM>(x, thread);
    }
}

// The rows of a block.
struct rows {
    int b, h, tile; // tile: of MOD_TOKENS of them
    i64 first;      // where row 0 lies: where batches are sequences, not in front of all others
    int room;       // rows that there are: of keys, more than are in use
};
DEV rows rows_of_batch(const mod_params &p)
{
    const int tiles = (p.len + MOD_TOKENS - 1) / MOD_TOKENS;
    const int block = static_cast<int>(blockIdx.x);
    return {block / tiles / p.n_h, block / tiles % p.n_h, block % tiles, 0, p.len};
}

// Every thread of a warp comes along to the end, since reductions shuffle: rows beyond the last are computed from
// zeros.
template <class MOD, class SOURCE, class OUT, int DIM> DEV void run(const mod_params &p, const rows &at)
{
    using s = shape<DIM>;
    const int tile = at.tile;
    const int h = at.h;
    const int b = at.b;
    const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
    const SOURCE *src = static_cast<const SOURCE *>(p.src) + (b * p.src_b + h * p.src_h + at.first * p.src_t);
    OUT *dst = static_cast<OUT *>(p.dst) + (b * p.dst_b + h * p.dst_h + at.first * p.dst_t);
    const i64 step = src_step(p);
    const bool src_aligned = step == 1 && ((reinterpret_cast<u64>(src) | static_cast<u64>(p.src_t) * sizeof(SOURCE)) &
                                           s::template MASK<SOURCE>) == 0;
    const bool dst_aligned =
        ((reinterpret_cast<u64>(dst) | static_cast<u64>(p.dst_t) * sizeof(OUT)) & s::template MASK<OUT>) == 0;
    const typename MOD::head head = MOD::make_head(p.x, p.z, b, h);

    int token = tile * MOD_TOKENS + static_cast<int>(threadIdx.x) / s::TEAM;
#pragma unroll 1
    for (int turn = 0; turn < MOD_TOKENS / s::AT_ONCE; turn++, token += s::AT_ONCE) {
        if (tile * MOD_TOKENS + turn * s::AT_ONCE >= p.len) {
            break;
        }
        row_values<DIM> x = {};
        const bool exists = token < p.len;
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (exists && vector < s::VECTORS) {
                const SOURCE *from = src + (token * p.src_t + vector * s::V * step);
                load<s::V, SOURCE>(from, src_aligned, step, x.low[k]);
                load<s::V, SOURCE>(from + s::HALF * step, src_aligned, step, x.high[k]);
            }
        }
        bool empty = false;
        if constexpr (sizeof(SOURCE) == 4) {
            empty = __float_as_uint(x.low[0][0]) == EMPTY_ROW;
        }
        typename MOD::vals vals = {};
        repeat<0, MOD::STAGES>(
            [&]<int S>() { run_stage<MOD, S, DIM>(x, vals, p, head, thread, min(token, p.len - 1)); });
        if (empty) {
            x = {};
        }
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (exists && vector < s::VECTORS) {
                OUT *to = dst + (token * p.dst_t + vector * s::V);
                store<s::V, OUT>(to, dst_aligned, x.low[k]);
                store<s::V, OUT>(to + s::HALF, dst_aligned, x.high[k]);
            }
        }
    }
}

// MOD::ROW elements of rows of DIM, which zeros fill up; where WIDE, rows of DIM floats that attention has left become
// rows of ROW.
template <class MOD, class SOURCE, class OUT, int DIM, bool WIDE>
DEV void copy_rows(const mod_params &p, const rows &at)
{
    static_assert(MOD::STAGES == 0, "rows of another length are copied as they are");
    constexpr int COLUMNS = WIDE ? MOD::ROW : DIM;
    const SOURCE *src = static_cast<const SOURCE *>(p.src) + (at.b * p.src_b + at.h * p.src_h + at.first * p.src_t);
    OUT *dst = static_cast<OUT *>(p.dst) + (at.b * p.dst_b + at.h * p.dst_h + at.first * p.dst_t);
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x); n < MOD_TOKENS * COLUMNS; n += MOD_THREADS) {
        const int token = at.tile * MOD_TOKENS + n / COLUMNS;
        const int i = n % COLUMNS;
        if (token >= p.len) {
            break;
        }
        const SOURCE *row = src + token * p.src_t;
        float x = i < MOD::ROW ? to_float(row[i * src_step(p)]) : 0.0f;
        if constexpr (WIDE) {
            x = __float_as_uint(row[0]) == EMPTY_ROW ? 0.0f : x;
        }
        dst[token * p.dst_t + i] = from_float<OUT>(x);
    }
}

// T: of the tensor. WIDE: o is float where the attention kernel left it so.
template <class MOD, class T, int DIM, bool WIDE> DEV void run_rows(const mod_params &p, const rows &at)
{
    using source = typename pick<WIDE, float, T>::type;
    if constexpr (requires { MOD::ROW; }) {
        copy_rows<MOD, source, T, DIM, WIDE>(p, at);
    } else {
        run<MOD, source, T, DIM>(p, at);
    }
}

template <class MOD, class T, int DIM, bool WIDE = false, class PARAMS> DEV void run_if_present(const PARAMS &launched)
{
    if constexpr (!MOD::PRESENT) {
        return;
    } else if constexpr (requires {
                             launched.cu_q;
                         }) { // batches are sequences: attention/sequences.cuh finds that of a block
        PARAMS p = launched;
        rows at;
        if (enter_rows<MOD_TOKENS>(p, at)) {
            run_rows<MOD, T, DIM, WIDE>(p, at);
        }
    } else {
        run_rows<MOD, T, DIM, WIDE>(launched, rows_of_batch(launched));
    }
}

// Elements of a row that the caller has, of the DIM that kernels have.
template <class MOD, int DIM> DEV constexpr int row_of()
{
    if constexpr (requires { MOD::ROW; }) {
        return MOD::ROW;
    } else {
        return DIM;
    }
}

} // namespace mods

// A kernel that is not present is empty and never launched. One without stages copies: rows that do not start at
// multiples of 16 bytes move to where they do.
#if LATHE_COMPILED(mod_q)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(mod_q)(const __grid_constant__ mod_params p)
{
    mods::run_if_present<variant::query_mod, cfg::element_q, cfg::D>(p);
}
#endif

#if LATHE_COMPILED(mod_k)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(mod_k)(const __grid_constant__ mod_params p)
{
    mods::run_if_present<variant::key_mod, cfg::element_k, cfg::D>(p);
}
#endif

#if LATHE_COMPILED(mod_v)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(mod_v)(const __grid_constant__ mod_params p)
{
    mods::run_if_present<variant::value_mod, cfg::element_v, cfg::D_V>(p);
}
#endif

#if LATHE_COMPILED(mod_o)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(mod_o)(const __grid_constant__ mod_params p)
{
    mods::run_if_present<variant::output_mod, cfg::element_o, cfg::D_V, cfg::O_F32>(p);
}
#endif

// Rows of do, which are as long as those of v.
#if LATHE_COMPILED(mod_do)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(mod_do)(const __grid_constant__ mod_params p)
{
    mods::run_if_present<variant::value_mod, cfg::element_o, cfg::D_V>(p);
}
#endif
