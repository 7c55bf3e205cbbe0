// common/contract.cuh: the hand-written half of the slot contract, which the generated headers include: sizes,
// tile classes, reductions, forms of a vector mod. common/concepts.cuh, included after them, checks the other half.
#pragma once
#include "common/base.cuh"

struct sizes {            // of attention
    int n_b, n_h, n_h_kv; // batch, query heads, key heads
    int len_q, len_kv;
    int q_start; // position of query row 0 among the keys

    // Query heads of a key head. Unsigned: ptxas 13.0, out of registers, has computed the magnitude of the wrong
    // number.
    __device__ __forceinline__ int group() const
    {
        return static_cast<int>(static_cast<unsigned>(n_h) / static_cast<unsigned>(n_h_kv));
    }
    __device__ __forceinline__ int key_head(int h) const
    {
        return static_cast<int>(static_cast<unsigned>(h) / static_cast<unsigned>(group()));
    }
};

struct row_sizes { // of rowwise: rows0 * rows1 * rows rows of n elements
    int rows0, rows1, rows, n;
};

template <bool FIRST, class A, class B> struct pick { // one of two types
    using type = A;
};
template <class A, class B> struct pick<false, A, B> {
    using type = B;
};

// Of row-wise kernels: tensors of rows, or of one value per row, with the strides of rows0, rows1, rows and n, which is
// 1 but for cfg::INNER.
struct row_source {
    const void *data;
    long long stride[4];
};
struct row_target {
    void *data;
    long long stride[4];
};
struct row_gradient { // of an input: dims in front that it does not have are 1
    float *data;
    long long stride[4], size[4];
};
// a gradient that is added up by atomics, compact, of variant::SCATTER_EXACT as exact_sum; dims that it does not have
// are last, and 1
struct scatter_target {
    float *to;
    long long n[4];
};
struct row_at { // a row by its flat number, and by its three
    int row, row0, row1, row2;
};

template <class... A> struct type_list {
};
template <int K, class LIST> struct pick_type;
template <int K, class A, class... REST> struct pick_type<K, type_list<A, REST...>> {
    using type = typename pick_type<K - 1, type_list<REST...>>::type;
};
template <class A, class... REST> struct pick_type<0, type_list<A, REST...>> {
    using type = A;
};
// Of elementwise: points along each dim of a map, and a tensor with its strides by dim of the map, in elements; 0 along
// a dim that it lacks.
constexpr int MAP_DIMS = 5;
struct alignas(8) map_sizes {
    int n[MAP_DIMS + 1]; // the last: are all tensors of its points compact, from 16 bytes on?
};
struct map_tensor {
    void *data; // nullptr: not wanted
    long long s[MAP_DIMS];
};
struct map_counts { // elements along each dim of an input
    long long n[4];
};

// Live pairs of a tile. Cut, in maps of the forward kernels: those between each row's first and last key, and only
// those.
enum tile_class { TILE_NONE, TILE_SOME, TILE_ALL, TILE_CUT };
constexpr int MAP_WORD = 4; // bytes, of which a line of the forward kernels' map has a whole number
enum reduction { RED_SUM, RED_MAX, RED_MIN };

// What a scan gives for element i, from the elements j up to it (or from it on) of its segment.
enum scan_form {
    SCAN_SUM,      // the sum of value_j
    SCAN_LOG,      // log of the sum of e^power_j
    SCAN_WEIGHTED, // the sum of value_j e^(power_j + shift_i); 0 where an exponent is -inf
    // how many of the row are in front of value_i in falling order, equal ones as they lie; NaN counts as -inf
    SCAN_RANK,
    SCAN_PLACED, // value_j of the element whose shift_j, a rank, is i
    SCAN_TAKEN   // value_j of element j = shift_i
};
struct scan_input { // one element
    float value, power, shift;
    bool start; // a segment begins here
};
struct no_mod { // a vector mod that is not there
    static constexpr bool PRESENT = false;
    static constexpr int STAGES = 0;
    struct head {
    };
    struct vals {
    };
};

enum vector_form { FORM_ELEMENT, FORM_HALF, FORM_INTERLEAVED }; // what output() sees: one element, or a rotary pair

// What the decay of linear attention varies with, each also with the head: DECAY_KEY scales the rows of the state,
// DECAY_VALUE its columns.
enum linear_decay { DECAY_NONE, DECAY_HEAD, DECAY_TOKEN, DECAY_KEY, DECAY_VALUE };

// Of the backward pass: whose formula a site is in.
enum linear_function { OF_SCALE, OF_DECAY, OF_DELTA, OF_BONUS, FUNCTIONS };

// Where a token stands in its sequence. `cu`: where each of n packed sequences begins, `step` elements apart; nullptr:
// there is one.
DEV int packed_position(const int *cu, i64 step, int n, int token)
{
    if (cu == nullptr) {
        return token;
    }
    int low = 0;
    for (int high = n; high - low > 1;) { // of those that begin at the same place the last has tokens
        const int middle = (low + high) / 2;
        (cu[middle * step] <= token ? low : high) = middle;
    }
    return token - cu[low * step];
}

// ---- backward ----------------------------------------------------------------------------------------

struct no_back { // the adjoint of a vector mod that is not there
    static constexpr bool PRESENT = false;
    static constexpr int STAGES = 0;
    struct head {
    };
    struct vals {
    };
};

// What the address of a site depends on, beside batch and head: the place in an input's gradient that a pair, a row or
// an element of a vector adds to. SITE_DIM: at.i of a vector mod.
enum site_form { SITE_HEAD, SITE_ROW, SITE_COLUMN, SITE_DIAGONAL, SITE_ELEMENT, SITE_DIM };

// A sum of floats without rounding: word k below 5 counts 2^(32 k - 96), with a sign of its own and room for 2^31
// additions. What is below 2^-96 is dropped; the last word counts what is no number below 2^64.
struct exact_sum {
    unsigned long long word[6];
};
DEV void add_exact(exact_sum *to, float x)
{
    const u32 bits = __float_as_uint(x);
    const int exponent = static_cast<int>((bits >> 23) & 0xffu);
    if (exponent >= 64 + 127) {
        add_global(&to->word[5], u64{1});
        return;
    }
    u32 mantissa = (bits & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0u);
    int place = (exponent > 0 ? exponent : 1) - 150 + 96; // of the last bit, from 2^-96
    if (place < 0) {
        mantissa = place > -32 ? mantissa >> -place : 0u;
        place = 0;
    }
    const u64 wide = static_cast<u64>(mantissa) << (place % 32);
    const u64 low = wide & 0xffffffffu;
    const u64 high = wide >> 32;
    const bool negative = (bits >> 31) != 0;
    if (low != 0) {
        add_global(&to->word[place / 32], negative ? 0 - low : low);
    }
    if (high != 0) {
        add_global(&to->word[place / 32 + 1], negative ? 0 - high : high);
    }
}
DEV void add_global(exact_sum *to, float x) { add_exact(to, x); }
template <int W> DEV void add_lanes(exact_sum *to, const float (&x)[W])
{
#pragma unroll
    for (int k = 0; k < W; k++) {
        add_exact(to + k, x[k]);
    }
}
DEV float exact_total(const exact_sum &sum)
{
    if (sum.word[5] != 0) {
        return __uint_as_float(0x7fffffffu);
    }
    i64 word[5];
    i64 carry = 0;
#pragma unroll
    for (int k = 0; k < 5; k++) { // below the last, words become digits from 0 to 2^32 - 1
        word[k] = static_cast<i64>(sum.word[k]) + carry;
        carry = k < 4 ? word[k] >> 32 : 0;
        word[k] = k < 4 ? word[k] & 0xffffffffll : word[k];
    }
    double x = 0.0;
#pragma unroll
    for (int k = 4; k >= 0; k--) { // each is exact, and from the top so are sums that cancel
        x = x * 0x1p32 + static_cast<double>(word[k]);
    }
    return static_cast<float>(x * 0x1p-96);
}

// What the attention kernel leaves in a row of o for the output mod where no pair is live: that row of o is 0, whatever
// the mod makes of zeros. A NaN that no instruction gives.
[[maybe_unused]] constexpr u32 EMPTY_ROW = 0xffc0dea0u;

template <int OP> DEV float red_identity()
{
    static_assert(OP == RED_SUM || OP == RED_MAX || OP == RED_MIN, "a reduction is RED_SUM, RED_MAX or RED_MIN");
    return OP == RED_SUM ? 0.0f : OP == RED_MAX ? -INF : INF;
}
template <int OP> DEV float red_combine(float a, float b)
{
    return OP == RED_SUM ? a + b : OP == RED_MAX ? fmaxf(a, b) : fminf(a, b);
}
template <int OP, class T> DEV u32 red_combine_pairs(u32 a, u32 b) // of f16 or bf16, but for sums
{
    if constexpr (same_type<T, f16>) {
        return OP == RED_MAX ? f16x2_max(a, b) : f16x2_min(a, b);
    } else {
        return OP == RED_MAX ? bf16x2_max(a, b) : bf16x2_min(a, b);
    }
}
// ---- spreads: sums of squared distances from the mean, each beside the sum which that is made of -----

// Two parts of a row, of `count` elements each: their spreads about their own means make one about the mean of both.
DEV float join_spreads(float a, float b, float sum_a, float sum_b, float count)
{
    const float apart = (sum_a - sum_b) * (1.0f / count);
    return a + b + apart * apart * (0.5f * count);
}
// A thread's elements so far, number * W of them, and W more.
template <int W> DEV float add_to_spread(float spread, float sum, const float (&x)[W], int number)
{
    float term[W];
#pragma unroll
    for (int j = 0; j < W; j++) {
        term[j] = x[j];
    }
    const auto add_up = [&] {
#pragma unroll
        for (int step = 1; step < W; step *= 2) {
#pragma unroll
            for (int j = 0; j + step < W; j += 2 * step) {
                term[j] += term[j + step];
            }
        }
        return term[0];
    };
    const float more = add_up();
#pragma unroll
    for (int j = 0; j < W; j++) {
        const float apart = x[j] - more * (1.0f / W);
        term[j] = apart * apart;
    }
    if (number == 0) {
        return add_up();
    }
    const float apart = (sum - static_cast<float>(number) * more) * (1.0f / static_cast<float>(number * W));
    return spread + add_up() + apart * apart * (static_cast<float>(W * number) / static_cast<float>(number + 1));
}
// Over N adjacent lanes that have `count` elements each; the sum, too.
template <int N> DEV void lanes_spread(float &sum, float &spread, int count)
{
#pragma unroll
    for (int i = N / 2; i > 0; i /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, sum, i);
        spread = join_spreads(spread, __shfl_xor_sync(ALL_LANES, spread, i), sum, other,
                              static_cast<float>(N / 2 / i * count));
        sum += other;
    }
}
// Over parts of `count` elements each that lie in memory: sum_of(k), variance_of(k), k < PARTS. All lanes get the same.
template <int PARTS, class SUMS, class SPREADS>
DEV void parts_spread(float &sum, float &spread, int count, const SUMS &sum_of, const SPREADS &variance_of)
{
    const int lane = lane_id();
    if constexpr (PARTS <= 32 && (PARTS & (PARTS - 1)) == 0) {
        sum = sum_of(lane % PARTS);
        spread = variance_of(lane % PARTS);
        lanes_spread<PARTS>(sum, spread, count);
    } else {
        float own = 0.0f;
#pragma unroll
        for (int first = 0; first < PARTS; first += 32) {
            own += first + lane < PARTS ? sum_of(first + lane) : 0.0f;
        }
        sum = lanes_sum<32>(own);
        own = 0.0f;
#pragma unroll
        for (int first = 0; first < PARTS; first += 32) {
            if (first + lane < PARTS) {
                const float apart = (sum_of(first + lane) - sum * (1.0f / PARTS)) * (1.0f / static_cast<float>(count));
                own += variance_of(first + lane) + apart * apart * static_cast<float>(count);
            }
        }
        spread = lanes_sum<32>(own);
    }
}

template <int OP, int N> DEV float red_lanes(float x) // over N adjacent lanes
{
    return OP == RED_SUM ? lanes_sum<N>(x) : OP == RED_MAX ? lanes_max<N>(x) : lanes_min<N>(x);
}
