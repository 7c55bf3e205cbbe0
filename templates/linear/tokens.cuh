// linear/tokens.cuh: which sequence a block works on, and vectors of its tokens on their way from global to shared
// memory.
//
// Places count the tokens of a sequence in the order in which the state takes them up: from the last token on where
// cfg::REVERSE.
#pragma once
#include "linear/tile.cuh"

namespace linear
{

// enum linear_decay of common/contract.cuh
constexpr bool DECAYS = cfg::DECAY != DECAY_NONE;
constexpr bool DECAY_BY_KEY = cfg::DECAY == DECAY_KEY, DECAY_BY_VALUE = cfg::DECAY == DECAY_VALUE;

struct sequence {
    int number, batch;
    int first, length; // tokens
    DEV int token(const sequence &s, int place) { return s.first + (cfg::REVERSE ? s.length - 1 - place : place); }
    DEV int position(const sequence &s, int place) { return cfg::REVERSE ? s.length - 1 - place : place; }
};
// `cu`: where packed sequences begin; what is out of order there reads wrong tokens, never memory that is not the
// tensor's.
DEV sequence sequence_of(const int *cu, i64 step, const sizes &z, int number)
{
    if constexpr (cfg::PACKED) {
        const int first = max(0, min(cu[number * step], z.len_q));
        return {number, 0, first, max(first, min(cu[(number + 1) * step], z.len_q)) - first};
    } else {
        return {number, number, 0, z.len_q};
    }
}

// Rows of T of which `left` elements exist from `from` on, TOKENS at a time; places that do not exist are zeros.
template <class T, int PAD, int TOKENS> struct fetcher {
    static constexpr int VECTORS = PAD / 4;
    static constexpr int PER_THREAD = (TOKENS * VECTORS + THREADS - 1) / THREADS;
    static constexpr int BYTES = 4 * static_cast<int>(sizeof(T));
    words<BYTES> w[PER_THREAD];

    __device__ __forceinline__ void get(const T *from, i64 stride, int left, const sequence &s, int place)
    {
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * THREADS;
            const int row = place + n / VECTORS;
            const int element = n % VECTORS * 4;
            w[i] = {};
            if (n < TOKENS * VECTORS && row < s.length && element < left) {
                w[i] = load_words<BYTES>(from + (sequence::token(s, row) * stride + element));
            }
        }
    }
    // factor(n): what token n of the batch is multiplied by.
    template <class F> __device__ __forceinline__ void put(float (&to)[TOKENS][PAD], const F &factor) const
    {
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * THREADS;
            if (n < TOKENS * VECTORS) {
                const float by = factor(n / VECTORS);
                float x[4];
                unpack_words<4, T>(w[i], x);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    x[k] *= by;
                }
                store_vec<4, float>(&to[n / VECTORS][n % VECTORS * 4], x);
            }
        }
    }
    __device__ __forceinline__ void put(float (&to)[TOKENS][PAD]) const
    {
        put(to, [](int) { return 1.0f; });
    }
    // f(n, element, x): what is made of element x of token n of the batch.
    template <class F> __device__ __forceinline__ void put_made(float (&to)[TOKENS][PAD], const F &f) const
    {
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            const int n = static_cast<int>(threadIdx.x) + i * THREADS;
            if (n < TOKENS * VECTORS) {
                float x[4];
                unpack_words<4, T>(w[i], x);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    x[k] = f(n / VECTORS, n % VECTORS * 4 + k, x[k]);
                }
                store_vec<4, float>(&to[n / VECTORS][n % VECTORS * 4], x);
            }
        }
    }
};

// f(number of the token in the batch, place, element) for all elements of a batch, a thread each; some places do not
// exist.
template <int TOKENS, int PAD, class F> DEV void each_of_batch(int place, const F &f)
{
#pragma unroll
    for (int i = 0; i < (TOKENS * PAD + THREADS - 1) / THREADS; i++) {
        const int n = static_cast<int>(threadIdx.x) + i * THREADS;
        if (TOKENS * PAD % THREADS == 0 || n < TOKENS * PAD) {
            f(n / PAD, place + n / PAD, n % PAD);
        }
    }
}

// W adjacent elements of a row that need not be aligned.
template <int W, class T> DEV void store_any(T *to, const float (&x)[W])
{
    if (is_aligned<W *static_cast<int>(sizeof(T))>(to)) {
        store_vec<W, T>(to, x);
    } else {
#pragma unroll
        for (int i = 0; i < W; i++) {
            to[i] = from_float<T>(x[i]);
        }
    }
}

// See ALL_LOST. What rounding lifts above 0, as in log(sigmoid(x)), loses nothing; a larger one has no such number.
DEV float decay_by(float log)
{
    if (log > 0.0f) {
        return log <= 0x1p-16f ? 0.0f : m_nan();
    }
    if (log > -0.25f) {
        return log * (1.0f + log * (1.0f / 2.0f) *
                                 (1.0f + log * (1.0f / 3.0f) *
                                             (1.0f + log * (1.0f / 4.0f) *
                                                         (1.0f + log * (1.0f / 5.0f) * (1.0f + log * (1.0f / 6.0f))))));
    }
    const float left = exp2_approx(log * 0x1.715476p0f);
    return left == 0.0f ? ALL_LOST : left; // NaN stays
}

// The logarithm of a decay to the base 2, where sums of them are made: exp2_approx makes 0 of LEAST_LOG, and a gate of
// -1e4 would cost the sums behind it their digits. NaN stays, which fmaxf drops.
constexpr float LEAST_LOG = -128.0f;
DEV float log2_of_decay(float log) { return log * 0x1.715476p0f < LEAST_LOG ? LEAST_LOG : log * 0x1.715476p0f; }

} // namespace linear
