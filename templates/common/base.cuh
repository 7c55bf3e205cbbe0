// common/base.cuh: what every other header stands on: types, packing, vector loads and stores, warp shuffles.
#pragma once
#include "common/ptx.cuh"

#define INF __int_as_float(0x7f800000)

// Every kernel stands between `#if LATHE_COMPILED(role)` and `#endif`. Compiled are those that are launched, for which
// the generated LATHE_KERNEL_role is 1; all of them where LATHE_KERNELS does not say that they are named. Of a text
// with several kernels some may be compiled apart, at the same time: then LATHE_PART says for which part this is, and
// the generated LATHE_PART_role in which a kernel is, 0 where there is none.
#ifdef LATHE_PART
#define LATHE_COMPILED(role) (LATHE_KERNEL_##role && LATHE_PART == LATHE_PART_##role)
#else
#define LATHE_COMPILED(role) (!LATHE_KERNELS || LATHE_KERNEL_##role)
#endif

// ---- types -------------------------------------------------------------------------------------------

struct f16 { // storage only: arithmetic is in float
    u16 bits;
};
struct bf16 {
    u16 bits;
};

// f.operator()<I> .. <N - 1>. Four to a level: the body is inlined once more for each level above it.
template <int I, int N, class F> DEV void repeat(const F &f)
{
    if constexpr (N - I >= 1) {
        f.template operator()<I>();
    }
    if constexpr (N - I >= 2) {
        f.template operator()<I + 1>();
    }
    if constexpr (N - I >= 3) {
        f.template operator()<I + 2>();
    }
    if constexpr (N - I >= 4) {
        f.template operator()<I + 3>();
    }
    if constexpr (N - I >= 5) {
        repeat<I + 4, N>(f);
    }
}

template <class A, class B> inline constexpr bool same_type = false;
template <class A> inline constexpr bool same_type<A, A> = true;

DEV float to_float(float x) { return x; }
DEV float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
DEV float to_float(f16 x) { return float_from_f16(x.bits); }

template <class T> DEV T from_float(float x) // round to nearest even
{
    if constexpr (same_type<T, float>) {
        return x;
    } else {
        static_assert(same_type<T, f16> || same_type<T, bf16>, "from_float gives float, f16 or bf16");
        if constexpr (same_type<T, f16>) {
            return f16{f16_from_float(x)};
        } else {
            return bf16{bf16_from_float(x)};
        }
    }
}

// Two floats as one register of two 16-bit elements, the first in the low half.
// RELU: of what is not negative, and 0 of the rest.
template <class T, bool RELU = false> DEV u32 pack(float low, float high)
{
    static_assert(same_type<T, f16> || same_type<T, bf16>, "pack gives f16 or bf16 pairs");
    if constexpr (RELU) {
        return same_type<T, f16> ? f16x2_from_floats_relu(low, high) : bf16x2_from_floats_relu(low, high);
    } else if constexpr (same_type<T, f16>) {
        return f16x2_from_floats(low, high);
    } else {
        return bf16x2_from_floats(low, high);
    }
}

template <class T> DEV void unpack(u32 x, float &low, float &high)
{
    low = to_float(T{static_cast<u16>(x & 0xffffu)});
    high = to_float(T{static_cast<u16>(x >> 16)});
}

__host__ __device__ constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }
__host__ __device__ constexpr int min_of(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int max_of(int a, int b) { return a > b ? a : b; }

// ---- scalar loads, for the inputs of a spec: the kernel never writes them ----------------------------

DEV float m_load(const float *base, i64 offset) { return __ldg(base + offset); }
DEV float m_load(const f16 *base, i64 offset)
{
    return to_float(f16{__ldg(reinterpret_cast<const u16 *>(base) + offset)});
}
DEV float m_load(const bf16 *base, i64 offset)
{
    return to_float(bf16{__ldg(reinterpret_cast<const u16 *>(base) + offset)});
}
DEV int m_load(const int *base, i64 offset) { return __ldg(base + offset); }
DEV int m_load(const u8 *base, i64 offset) { return static_cast<int>(__ldg(base + offset)); }

// An index inside [0, n): an index out of range reads a wrong value, never memory that is not the tensor's.
DEV int m_clamp_index(int i, int n) { return max(0, min(i, n - 1)); }

// ---- vector loads and stores -------------------------------------------------------------------------

// The bytes of V elements as registers of 4 bytes: moved 16, 8 or 4 bytes at a time.
template <int BYTES> struct words {
    static_assert(BYTES >= 4 && (BYTES & (BYTES - 1)) == 0, "a vector has 4, 8, 16, 32 ... bytes");
    static constexpr int ALIGN = BYTES < 16 ? BYTES : 16;
    u32 word[BYTES / 4];
};

template <int BYTES> DEV bool is_aligned(const void *p)
{
    return (reinterpret_cast<u64>(p) & static_cast<u64>(words<BYTES>::ALIGN - 1)) == 0;
}

// p is aligned to min(BYTES, 16). Through the read-only path where CONSTANT: memory that no one writes.
template <int BYTES, bool CONSTANT = false> DEV words<BYTES> load_words(const void *p)
{
    words<BYTES> w;
    if constexpr (BYTES == 4) {
        const u32 *s = static_cast<const u32 *>(p);
        w.word[0] = CONSTANT ? __ldg(s) : *s;
    } else if constexpr (BYTES == 8) {
        const uint2 *s = static_cast<const uint2 *>(p);
        const uint2 x = CONSTANT ? __ldg(s) : *s;
        w.word[0] = x.x;
        w.word[1] = x.y;
    } else {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            const uint4 *s = static_cast<const uint4 *>(p) + i;
            const uint4 x = CONSTANT ? __ldg(s) : *s;
            w.word[4 * i] = x.x;
            w.word[4 * i + 1] = x.y;
            w.word[4 * i + 2] = x.z;
            w.word[4 * i + 3] = x.w;
        }
    }
    return w;
}

template <int BYTES> DEV void store_words(void *p, const words<BYTES> &w)
{
    if constexpr (BYTES == 4) {
        *static_cast<u32 *>(p) = w.word[0];
    } else if constexpr (BYTES == 8) {
        *static_cast<uint2 *>(p) = make_uint2(w.word[0], w.word[1]);
    } else {
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            static_cast<uint4 *>(p)[i] =
                make_uint4(w.word[4 * i], w.word[4 * i + 1], w.word[4 * i + 2], w.word[4 * i + 3]);
        }
    }
}

// How memory is read. READ_AGAIN: others or later passes read it, too. READ_ONCE: it goes past L1, which so keeps what
// is read by column. READ_FIRST, READ_LAST: of several times by the same block, and READ_FIRST where that is once and
// the caches are to keep it all the same (common/ptx.cuh).
enum reading { READ_AGAIN, READ_ONCE, READ_FIRST, READ_LAST };

template <reading HOW> DEV uint4 load_as16(const void *p)
{
    return HOW == READ_FIRST ? load_first16(p) : HOW == READ_LAST ? load_last16(p) : load_once16(p);
}

// V adjacent elements as floats and back; the address is aligned to min(V * sizeof(T), 16).
template <int V, class T, bool CONSTANT = false> DEV void load_vec(const T *p, float (&out)[V])
{
    if constexpr (V * sizeof(T) < 4) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            out[i] = to_float(p[i]);
        }
    } else {
        const words<static_cast<int>(V * sizeof(T))> w = load_words<static_cast<int>(V * sizeof(T)), CONSTANT>(p);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if constexpr (sizeof(T) == 4) {
                out[i] = __uint_as_float(w.word[i]);
            } else {
                out[i] = to_float(T{static_cast<u16>(w.word[i / 2] >> (16 * (i % 2)))});
            }
        }
    }
}

template <int V, class T> DEV void store_vec(T *p, const float (&in)[V])
{
    if constexpr (V * sizeof(T) < 4) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            p[i] = from_float<T>(in[i]);
        }
    } else {
        words<static_cast<int>(V * sizeof(T))> w;
#pragma unroll
        for (int i = 0; i < static_cast<int>(V * sizeof(T)) / 4; i++) {
            if constexpr (sizeof(T) == 4) {
                w.word[i] = __float_as_uint(in[i]);
            } else {
                w.word[i] = pack<T>(in[2 * i], in[2 * i + 1]);
            }
        }
        store_words(p, w);
    }
}

// What m_load gives for V adjacent elements, from their bytes.
template <int V, class T> DEV void unpack_words(const words<static_cast<int>(V * sizeof(T))> &w,
                                                decltype(m_load(static_cast<const T *>(nullptr), 0)) (&out)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        if constexpr (same_type<T, float>) {
            out[i] = __uint_as_float(w.word[i]);
        } else if constexpr (sizeof(T) == 4) {
            out[i] = static_cast<int>(w.word[i]);
        } else if constexpr (sizeof(T) == 2) {
            out[i] = to_float(T{static_cast<u16>(w.word[i / 2] >> (16 * (i % 2)))});
        } else {
            out[i] = static_cast<int>((w.word[i / 4] >> (8 * (i % 4))) & 0xffu);
        }
    }
}

// COLUMNS_APART: values that stay in registers over all rows. The addresses of the path of strided, unaligned and last
// columns, which is seldom taken, are made when they are needed: else they take registers over all rows.
enum columns_manner { COLUMNS_PLAIN, COLUMNS_APART };

DEV u32 load_bits(const float *p) { return __float_as_uint(__ldg(p)); }
DEV u32 load_bits(const f16 *p) { return __ldg(&p->bits); }
DEV u32 load_bits(const bf16 *p) { return __ldg(&p->bits); }
DEV u32 load_bits(const int *p) { return static_cast<u32>(__ldg(p)); }
DEV u32 load_bits(const u8 *p) { return __ldg(p); }

// Columns i .. i + V - 1 of a row of n, `stride` elements apart: vectors where they are adjacent. Both ways give bytes,
// and numbers are made of them
// behind both: else a vector would be waited for where it is loaded, and loads of several inputs would follow each
// other. Not of values that are loaded once.
template <int V, int MANNER = COLUMNS_PLAIN, class T> DEV void
m_load_columns(const T *base, i64 stride, int i, int n, decltype(m_load(static_cast<const T *>(nullptr), 0)) (&out)[V])
{
    constexpr int BYTES = static_cast<int>(V * sizeof(T));
    constexpr bool VECTORS = V > 1 && BYTES >= 4 && (V & (V - 1)) == 0;
    bool whole = false;
    if constexpr (VECTORS) {
        whole = stride == 1 && n - i >= V && is_aligned<BYTES>(base + i);
    }
    if constexpr (VECTORS && MANNER == COLUMNS_PLAIN) {
        constexpr int EACH = 4 / static_cast<int>(sizeof(T)); // to a word
        words<BYTES> w = {};
        if (whole) {
            w = load_words<BYTES, true>(base + i);
        } else {
#pragma unroll
            // one path for strided, unaligned and last columns: it costs compile time, not speed
            for (int k = 0; k < V; k++) {
                w.word[k / EACH] |= load_bits(base + m_clamp_index(i + k, n) * stride) << (32 / EACH * (k % EACH));
            }
        }
        unpack_words<V, T>(w, out);
    } else {
        if constexpr (VECTORS) {
            if (whole) {
                unpack_words<V, T>(load_words<BYTES, true>(base + i), out);
                return;
            }
            keep(i);
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            out[k] = m_load(base, m_clamp_index(i + k, n) * stride);
        }
    }
}

// ---- warps -------------------------------------------------------------------------------------------

constexpr u32 ALL_LANES = 0xffffffffu;

DEV int lane_id() { return static_cast<int>(threadIdx.x) & 31; }

// Over groups of N adjacent lanes (a power of two); every lane gets the result.
template <int N> DEV float lanes_sum(float x)
{
#pragma unroll
    for (int i = N / 2; i > 0; i /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, i);
    }
    return x;
}
template <int N> DEV float lanes_max(float x)
{
#pragma unroll
    for (int i = N / 2; i > 0; i /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, i));
    }
    return x;
}
template <int N> DEV float lanes_min(float x)
{
#pragma unroll
    for (int i = N / 2; i > 0; i /= 2) {
        x = fminf(x, __shfl_xor_sync(ALL_LANES, x, i));
    }
    return x;
}

// Of the four threads that share rows of a fragment.
DEV float sum4(float x) { return lanes_sum<4>(x); }

// Four words of each of the four lanes of a row: word i of lane j becomes word j of lane i.
DEV uint4 transpose_four(u32 (&word)[4], int lane)
{
    const bool odd = (lane & 1) != 0;
    const bool high = (lane & 2) != 0;
    const u32 x = __shfl_xor_sync(ALL_LANES, odd ? word[0] : word[1], 1);
    const u32 y = __shfl_xor_sync(ALL_LANES, odd ? word[2] : word[3], 1);
    const u32 a0 = odd ? x : word[0];
    const u32 a1 = odd ? word[1] : x;
    const u32 b0 = odd ? y : word[2];
    const u32 b1 = odd ? word[3] : y;
    const u32 z0 = __shfl_xor_sync(ALL_LANES, high ? a0 : b0, 2);
    const u32 z1 = __shfl_xor_sync(ALL_LANES, high ? a1 : b1, 2);
    return high ? make_uint4(z0, z1, b0, b1) : make_uint4(a0, a1, z0, z1);
}

// Adds W adjacent floats to memory that others add to at the same time.
template <int W> DEV void add_lanes(float *p, const float (&x)[W])
{
    if constexpr (W % 4 == 0 && ADD_WIDTH == 4) {
        if ((reinterpret_cast<u64>(p) & 15u) == 0) {
#pragma unroll
            for (int k = 0; k < W; k += 4) {
                const float four[4] = {x[k], x[k + 1], x[k + 2], x[k + 3]};
                add_global4(p + k, four);
            }
            return;
        }
    }
#pragma unroll
    for (int k = 0; k < W; k++) {
        add_global(p + k, x[k]);
    }
}

// ---- places of sums ----------------------------------------------------------------------------------

// a / b of numbers that are not negative. A call, since a division of 64 bits is long, and one element in thousands
// asks for it.
[[maybe_unused]] static __device__ __noinline__ i64 quotient(i64 a, i64 b)
{
    return ((a | b) >> 32) != 0 ? a / b : static_cast<i64>(static_cast<u32>(a) / static_cast<u32>(b));
}

// The last index of a number whose last digit counts to n; what is left is the number of the others.
DEV i64 take_index(i64 &number, i64 n)
{
    const i64 others = quotient(number, n);
    const i64 index = number - others * n;
    number = others;
    return index;
}
