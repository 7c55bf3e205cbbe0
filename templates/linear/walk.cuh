// linear/walk.cuh: walks along the tokens of a sequence with columns of the state, all rows of them: what o is read
// from.
#pragma once
#include "common/elements.cuh"
#include "linear/rule.cuh"
#include "linear/tokens.cuh"

static_assert(linear_variant<variant, inputs>,
              "variant.gen.cuh does not fill the slots of linear attention: "
              "templates/contracts/linear.md lists them, and the notes below name the first one that is missing");

namespace linear
{

// The sum of keys is one more column of the state, of values that are 1: each thread has it beside its own.
constexpr int BESIDE = cfg::NORMALISE ? 1 : 0;
using columns = shape<cfg::D>;
constexpr int WIDE = columns::N + BESIDE;
using state_tile = tile<cfg::D, WIDE>;

DEV float normaliser(float sum) { return sum + 1e-10f; } // finite where the sum is 0

// In f16 a state is multiplied by a power of two before it is rounded, which brings its largest element near 2^13; and
// what undoes that.
constexpr bool STATE_SCALED = same_type<cfg::operand, f16>;
struct state_scale {
    float by, back;
    DEV state_scale of(float largest)
    {
        const int exponent = min(max(__float_as_int(largest) >> 23, 27), 240); // and 127
        return {__int_as_float((267 - exponent) << 23), __int_as_float((exponent - 13) << 23)};
    }
};

struct batch : rule_vectors<columns::TOKENS, columns::PAD> { // of tokens, as the walk takes them
    static constexpr int TOKENS = columns::TOKENS;
    alignas(16) float q[TOKENS][columns::PAD];
    alignas(16) float k[TOKENS][columns::PAD];
    alignas(16) float v[TOKENS][columns::COLUMNS];
    alignas(16) float keys[TOKENS][DECAY_BY_KEY ? columns::PAD : 4];         // decay_by of rows,
    alignas(16) float values[TOKENS][DECAY_BY_VALUE ? columns::COLUMNS : 4]; // of columns,
    float all[TOKENS];                                                       // the whole state
    float beta[TOKENS];
    float beside[TOKENS];                                   // the value of the column that is the sum of keys
    alignas(16) float bonus[cfg::BONUS ? columns::PAD : 4]; // the same for all tokens
};

// Which state a sequence has; below 0: none.
template <class P> DEV i64 slot_of(const P &p, const sequence &s)
{
    if (p.state_index == nullptr) {
        return s.number;
    }
    const i64 slot = p.state_index[s.number * p.state_index_step];
    return slot < p.slots ? slot : -1;
}

// What a block works on.
struct work {
    sequence s;
    int h, h_kv, first, left; // columns of the block from `first` on, `left` of them exist
    typename variant::head head;
    float scale;

    // SLICES blocks of COLUMNS of `of` columns for each head of each sequence.
    template <int SLICES, int COLUMNS, class P> DEV work of_block(const P &p, int of)
    {
        return of_number<SLICES, COLUMNS>(p, of, static_cast<int>(blockIdx.x));
    }
    template <int SLICES, int COLUMNS, class P> DEV work of_number(const P &p, int of, int block)
    {
        work w;
        w.first = block % SLICES * COLUMNS;
        w.left = of - w.first;
        w.h = block / SLICES % p.z.n_h;
        w.h_kv = p.z.key_head(w.h);
        w.s = sequence_of(p.cu, p.cu_step, p.z, block / SLICES / p.z.n_h);
        w.head = variant::make_head(p.x, p.z, w.s.batch, w.h);
        w.scale = variant::scale(p.x, p.z, w.head);
        return w;
    }
    // Places that do not exist have the row of one that does.
    template <class P> __device__ __forceinline__ typename variant::row row(const P &p, int place) const
    {
        const int at = max(0, min(place, s.length - 1));
        return variant::make_row(p.x, p.z, head, sequence::token(s, at), sequence::position(s, at));
    }
    __device__ __forceinline__ bool has(int place) const { return place < s.length; }
    template <class P>
    __device__ __forceinline__ float log2_decay(const P &p, const typename variant::row &row, int channel) const
    {
        return log2_of_decay(variant::decay(p.x, p.z, head, row, channel));
    }
    template <class P> __device__ __forceinline__ float all(const P &p, int place) const
    {
        return has(place) ? decay_by(variant::decay(p.x, p.z, head, row(p, place), 0)) : 0.0f;
    }
    template <class P> __device__ __forceinline__ float channel(const P &p, int place, int channel, int channels) const
    {
        return has(place) && channel < channels ? decay_by(variant::decay(p.x, p.z, head, row(p, place), channel))
                                                : 0.0f;
    }
    template <class P> __device__ __forceinline__ float beta(const P &p, int place) const
    {
        return has(place) ? variant::delta(p.x, p.z, head, row(p, place)) : 0.0f;
    }
};
constexpr int COLUMN_SLICES = (cfg::D_V + columns::COLUMNS - 1) / columns::COLUMNS;

template <class T> DEV const T *elements(const void *base, i64 offset) { return static_cast<const T *>(base) + offset; }

// q, k and a vector along the columns, of T: v, or what flows back to o.
template <class P, class T> struct column_loader {
    static constexpr int TOKENS = batch::TOKENS;
    const P &p;
    const work &w;
    const T *value;
    i64 value_t;
    fetcher<cfg::element_q, columns::PAD, TOKENS> q;
    fetcher<cfg::element_k, columns::PAD, TOKENS> k;
    fetcher<T, columns::COLUMNS, TOKENS> v;

    __device__ __forceinline__ column_loader(const P &params, const work &of, const T *values, i64 stride)
        : p(params), w(of), value(values), value_t(stride)
    {
    }
    __device__ __forceinline__ void get(int place)
    {
        q.get(elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h), p.q_t, cfg::D, w.s, place);
        k.get(elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h), p.k_t, cfg::D, w.s, place);
        v.get(value, value_t, w.left, w.s, place);
    }
    // With what formulas say of the tokens.
    __device__ __forceinline__ void put(batch &to, int place) const
    {
        q.put(to.q, [&](int) { return w.scale; });
        k.put(to.k);
        v.put(to.v);
        if constexpr (BY_RULE) {
            put_vectors<variant>(*this, to, place, 0);
        }
        each_of_batch<TOKENS, 1>(place, [&](int n, int at, int) {
            if constexpr (cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN) {
                to.all[n] = w.all(p, at);
            }
            if constexpr (cfg::DELTA) {
                to.beta[n] = w.beta(p, at);
            }
        });
        if constexpr (DECAY_BY_KEY) {
            each_of_batch<TOKENS, columns::PAD>(
                place, [&](int n, int at, int i) { to.keys[n][i] = w.channel(p, at, i, cfg::D); });
        }
        if constexpr (DECAY_BY_VALUE) {
            each_of_batch<TOKENS, columns::COLUMNS>(
                place, [&](int n, int at, int j) { to.values[n][j] = w.channel(p, at, w.first + j, cfg::D_V); });
        }
    }
    __device__ __forceinline__ void put_bonus(batch &to) const
    {
        if constexpr (cfg::BONUS) {
            each_of_batch<1, columns::PAD>(
                0, [&](int, int, int i) { to.bonus[i] = i < cfg::D ? variant::bonus(p.x, p.z, w.head, i) : 0.0f; });
        }
    }
};

DEV void decay_state(state_tile &state, const batch &b, int n)
{
    if constexpr (DECAY_BY_KEY) {
        state.decay_rows(b.keys[n]);
    } else if constexpr (DECAY_BY_VALUE) {
        float own[columns::N];
        float by[WIDE];
        load_vec<columns::N, float>(&b.values[n][columns::column()], own);
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            by[i] = own[min_of(i, columns::N - 1)]; // there is no sum of keys beside such a decay
        }
        state.decay_columns(by);
    } else if constexpr (DECAYS) {
        state.decay(b.all[n]);
    }
}
// Of this thread's columns.
DEV void load_value(const batch &b, int n, float beside, float (&value)[WIDE])
{
    float own[columns::N];
    load_vec<columns::N, float>(&b.v[n][columns::column()], own);
#pragma unroll
    for (int i = 0; i < columns::N; i++) {
        value[i] = own[i];
    }
    if constexpr (cfg::NORMALISE) {
        value[columns::N] = beside;
    }
}

// q (u k)', of this thread's rows: what weighs a token's own pair.
DEV float own_weight(const batch &b, int n)
{
    float own = 0.0f;
#pragma unroll
    for (int g = 0; g < columns::GROUPS; g++) {
        const int row = 4 * (lane_id() % ROW_LANES + ROW_LANES * g);
        float q[4];
        float k[4];
        float u[4];
        load_vec<4, float>(&b.q[n][row], q);
        load_vec<4, float>(&b.k[n][row], k);
        load_vec<4, float>(&b.bonus[row], u);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            own += q[e] * k[e] * u[e];
        }
    }
    return own;
}
template <int W> DEV void add_times(float (&sum)[W], float factor, const float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        sum[i] += factor * x[i];
    }
}

// One token: `sum` gets what it reads, of this thread's rows. error(value) sees what the delta rule corrects by, before
// beta.
template <bool READS, bool WRITES, class F>
DEV void step(state_tile &state, const batch &b, int n, float (&sum)[WIDE], const F &error)
{
    float value[WIDE];
    load_value(b, n, 1.0f, value);
    if constexpr (READS && cfg::BONUS) {
        state.read(b.q[n], sum);
        add_times(sum, own_weight(b, n), value);
    }
    if constexpr (WRITES && BY_RULE) {
        write_by_rule(state, b, n, value, error);
    } else if constexpr (WRITES) {
        decay_state(state, b, n);
        if constexpr (cfg::DELTA) {
            float seen[WIDE] = {};
            state.read(b.k[n], seen);
            sum_rows(seen);
            add_times(value, -1.0f, seen);
            error(value);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                value[i] *= b.beta[n];
            }
        }
        state.add(b.k[n], value);
    }
    if constexpr (READS && !cfg::BONUS) {
        state.read(b.q[n], sum);
    }
}

// Along all tokens. out.store(place, o) gets what a token reads, out.error(place, error) what the delta rule corrects
// by; out.after(place, state) comes behind each batch, of tokens up to `place`.
template <bool READS, bool WRITES, class LOADER, class OUT>
DEV void walk(batch (&shared)[2], LOADER &loader, state_tile &state, OUT &out)
{
    constexpr int TOKENS = batch::TOKENS;
    static_assert(TOKENS % 4 == 0, "tokens are read out in fours");
    const int length = loader.w.s.length;
    __syncthreads();
    loader.get(0);
    loader.put(shared[0], 0);
    loader.put_bonus(shared[0]);
    loader.put_bonus(shared[1]);
    __syncthreads();
#pragma unroll 1
    for (int place = 0, now = 0; place < length; place += TOKENS, now ^= 1) {
        const bool more = place + TOKENS < length;
        if (more) {
            loader.get(place + TOKENS);
        }
        const batch &b = shared[now];
#pragma unroll 1
        for (int first = 0; first < min(TOKENS, length - place); first += 4) {
            float part[4][WIDE] = {};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                step<READS, WRITES>(state, b, first + i, part[i],
                                    [&](const float(&error)[WIDE]) { out.error(place + first + i, error); });
            }
            if constexpr (READS) {
                float o[WIDE];
                sum_rows_of_four(part, o);
                if (lane_id() % ROW_LANES < 4) {
                    out.store(place + first + lane_id() % 4, o);
                }
            }
        }
        out.after(min(place + TOKENS, length), state);
        if (more) {
            loader.put(shared[now ^ 1], place + TOKENS);
        }
        __syncthreads();
    }
}

// ---- states in memory --------------------------------------------------------------------------------

// f(element, row, column of the block), of what is of the state itself and exists, `left` columns.
template <class F> DEV void each_of_state(state_tile &state, int left, const F &f)
{
    state.each_place([&](float &a, int row, int n) {
        if (n < columns::N && row < cfg::D && columns::column() + n < left) {
            f(a, row, columns::column() + n);
        }
    });
}
// Of the sum of keys, which each thread has.
template <class F> DEV void each_of_norm(state_tile &state, const F &f)
{
    state.each_place([&](float &a, int row, int n) {
        if (n == columns::N && row < cfg::D) {
            f(a, row);
        }
    });
}
// Are this thread's columns of all rows vectors of 16 or 8 bytes?
DEV bool is_in_vectors(const work &w, const cfg::element_state *base, i64 s_i, i64 s_j)
{
    constexpr int N = columns::N;
    return s_j == 1 && s_i % N == 0 && columns::column() + N <= w.left &&
           is_aligned<ELEMENT_BYTES<cfg::element_state> * N>(base + w.first + columns::column());
}
DEV void load_state(state_tile &state, const work &w, const cfg::element_state *from, i64 s_i, i64 s_j)
{
    if (from != nullptr && is_in_vectors(w, from, s_i, s_j)) {
        state.each_row([&](float(&x)[WIDE], int row) {
            float own[columns::N] = {};
            if (row < cfg::D) {
                load_vec<columns::N, cfg::element_state>(from + (row * s_i + w.first + columns::column()), own);
            }
#pragma unroll
            for (int n = 0; n < columns::N; n++) {
                x[n] = own[n];
            }
        });
    } else if (from != nullptr) {
        each_of_state(state, w.left,
                      [&](float &a, int row, int column) { a = to_float(from[row * s_i + (w.first + column) * s_j]); });
    }
}
DEV void store_state(state_tile &state, const work &w, cfg::element_state *to, i64 s_i, i64 s_j)
{
    if (to != nullptr && is_in_vectors(w, to, s_i, s_j)) {
        state.each_row([&](float(&x)[WIDE], int row) {
            float own[columns::N];
#pragma unroll
            for (int n = 0; n < columns::N; n++) {
                own[n] = x[n];
            }
            if (row < cfg::D) {
                store_vec<columns::N, cfg::element_state>(to + (row * s_i + w.first + columns::column()), own);
            }
        });
    } else if (to != nullptr) {
        each_of_state(state, w.left, [&](float &a, int row, int column) {
            to[row * s_i + (w.first + column) * s_j] = from_float<cfg::element_state>(a);
        });
    }
}
DEV void load_norm(state_tile &state, const cfg::element_state *from, i64 s_i)
{
    if (cfg::NORMALISE && from != nullptr) {
        each_of_norm(state, [&](float &a, int row) { a = to_float(from[row * s_i]); });
    }
}
// By the threads of a head that have its first column.
DEV void store_norm(state_tile &state, const work &w, cfg::element_state *to, i64 s_i)
{
    if (cfg::NORMALISE && to != nullptr && w.first == 0 && columns::column() == 0) {
        each_of_norm(state, [&](float &a, int row) { to[row * s_i] = from_float<cfg::element_state>(a); });
    }
}
// Of a sequence without a state, by THREADS threads for COLUMNS columns: zeros, whatever an output mod makes of them.
template <int COLUMNS, int THREADS, class P> DEV void store_none(const P &p, const work &w)
{
    const int wide = min(COLUMNS, w.left);
    for (int n = static_cast<int>(threadIdx.x); n < w.s.length * wide; n += THREADS) {
        const i64 at = w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, n / wide) * p.o_t + w.first + n % wide;
        if constexpr (cfg::O_F32) {
            static_cast<float *>(p.o)[at] = __uint_as_float(EMPTY_ROW);
        } else {
            static_cast<cfg::element_o *>(p.o)[at] = from_float<cfg::element_o>(0.0f);
        }
    }
}
// nullptr where there is none: of one head of a state.
template <class T> DEV T *head_of(T *base, i64 offset) { return base == nullptr ? base : base + offset; }

} // namespace linear
