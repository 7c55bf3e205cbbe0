// emulator.hpp: the part of CUDA C++ that the templates use, for a host compiler; included ahead of a kernel's text.
//
// A thread of a block is a fiber. Warp collectives and barriers are calls into the core (emulator.cpp), which suspends the
// fiber until the others have come. No standard header: the kernels' texts use short names of their own.
#pragma once
#include "emulate.h"

extern "C" void *memcpy(void *, const void *, unsigned long) noexcept; // as NVRTC has it

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local // the core brings a block's own there when it goes on; nothing else of a kernel is thread-local

// ---- where a thread is ----------------------------------------------------------------------------------------

struct emulate_dim3 {
    unsigned x, y, z;
};
extern "C" emulate_dim3 threadIdx, blockIdx, blockDim, gridDim; // set by the core whenever a fiber goes on

// Where in the kernel's text a call stands: for reports, and to see that lanes meet at one place.
struct emulate_place {
    const char *file;
    int line;
};
#define EMULATE_HERE                                                                                                               \
    emulate_place { file, line }
#define EMULATE_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- vectors ---------------------------------------------------------------------------------------------------

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// ---- the core ---------------------------------------------------------------------------------------------------

extern "C" {
enum emulate_shuffle_kind { EMULATE_SHUFFLE_XOR, EMULATE_SHUFFLE_INDEX, EMULATE_SHUFFLE_UP, EMULATE_SHUFFLE_DOWN };
unsigned emulate_shuffle(unsigned mask, unsigned value, int lane, int width, emulate_shuffle_kind kind, emulate_place at);
unsigned emulate_ballot(unsigned mask, bool vote, emulate_place at);
unsigned emulate_match(unsigned mask, unsigned long long value, emulate_place at);
void emulate_syncwarp(unsigned mask, emulate_place at);
void emulate_syncthreads(emulate_place at);
void emulate_cluster_barrier(unsigned size, emulate_place at);
void emulate_push(unsigned address, float x, unsigned barrier, unsigned rank, unsigned size, emulate_place at); // st.async
[[noreturn]] void emulate_misaligned(const void *p, unsigned bytes, emulate_place at); // a vector access to global memory
void emulate_wait_turn(const unsigned *word, unsigned turn, emulate_place at);
void emulate_wait_told(const unsigned *word, emulate_place at); // until it is not 0
void emulate_tell(unsigned long long *word, unsigned long long x); // a relaxed store, and load
unsigned long long emulate_observe(const unsigned long long *word);
void emulate_pause(); // another block may come in between
// global.hpp: what other blocks are told of global memory. An atomic is in that order, and no other block comes in between.
enum emulate_order { EMULATE_RELAXED, EMULATE_RELEASE, EMULATE_ACQ_REL };
void emulate_atomic(const void *p, unsigned bytes, emulate_order order, bool writes);
void emulate_sum(const void *p, unsigned bytes, bool floats); // data is added to
void emulate_fence();
void emulate_fence_async_global();
void emulate_wait_for_launch();
unsigned emulate_shared_address(const void *p, emulate_place at);
void emulate_copy(unsigned to, const void *from, int bytes, emulate_place at); // cp.async, 16 bytes a thread
void emulate_copy_commit();
void emulate_copy_wait(int pending);
void emulate_load_matrix4(unsigned *r, unsigned address, bool transposed, emulate_place at);
void emulate_store_matrix4(const unsigned *r, unsigned address, bool transposed, emulate_place at);
void emulate_mma(float *c, const unsigned *a, unsigned b0, unsigned b1, bool bf16, emulate_place at);
void emulate_store_shared(unsigned address, const void *from, unsigned bytes, emulate_place at);
void emulate_load_shared(void *to, unsigned address, unsigned bytes, emulate_place at);
// sm_90: hopper.hpp
enum emulate_element { EMULATE_F16, EMULATE_BF16, EMULATE_E4M3 };
struct emulate_wgmma_call {
    float *d;
    unsigned n;
    unsigned long long a, b;
    const unsigned *a_registers; // nullptr: A is in shared memory
    unsigned a_copy[4];
    int sum;
    emulate_element of;      // of A and B
    bool a_turned, b_turned; // stored [k][row], [k][n]
};
unsigned emulate_elect(emulate_place at);
void emulate_set_registers(unsigned registers, bool up, emulate_place at);
unsigned emulate_named_barrier(unsigned id, unsigned threads, bool vote, emulate_place at); // whether any vote was true
void emulate_named_arrive(unsigned id, unsigned threads, emulate_place at);
void emulate_mbarrier_init(unsigned address, unsigned arrivals, emulate_place at);
void emulate_mbarrier_init_fence();
void emulate_mbarrier_arrive(unsigned address, unsigned bytes, emulate_place at);
void emulate_mbarrier_wait(unsigned address, unsigned parity, emulate_place at);
void emulate_tma_load(unsigned to, const void *map, unsigned barrier, unsigned rank, const int *first, emulate_place at);
unsigned emulate_cluster_rank(); // pair.hpp
void emulate_arrive_peer(unsigned barrier, emulate_place at);
void emulate_load_both(unsigned to, const void *map, unsigned barrier, const int *first, emulate_place at);
void emulate_copy_to_peer(unsigned to, unsigned from, unsigned bytes, unsigned barrier, emulate_place at);
void emulate_tma_store(const void *map, unsigned from, unsigned rank, const int *first, emulate_place at);
void emulate_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned barrier, emulate_place at);
void emulate_bulk_add(float *to, unsigned from, unsigned bytes, emulate_place at);
void emulate_bulk_store(float *to, unsigned from, unsigned bytes, emulate_place at);
void emulate_bulk_commit();
void emulate_bulk_wait(unsigned pending, bool read, emulate_place at); // until the bytes have been read, or are in global memory
void emulate_fence_async_proxy();
void emulate_wgmma(emulate_wgmma_call *call, emulate_place at);
void emulate_wgmma_fence(emulate_wgmma_call *call, emulate_place at);
void emulate_wgmma_commit(emulate_place at);
void emulate_wgmma_wait(unsigned pending, emulate_place at);
// y, moved by up to `relative` of itself; the same for the same x: the error of an approximate instruction
float emulate_inexact(float y, float x, float relative);
}

// ---- warps and blocks ---------------------------------------------------------------------------------------------

template <class T> T emulate_shuffle_as(unsigned mask, T value, int lane, int width, emulate_shuffle_kind kind, emulate_place at)
{
    static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
    return __builtin_bit_cast(T, emulate_shuffle(mask, __builtin_bit_cast(unsigned, value), lane, width, kind, at));
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATE_PLACE)
{
    return emulate_shuffle_as(mask, value, lanes, width, EMULATE_SHUFFLE_XOR, EMULATE_HERE);
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATE_PLACE)
{
    return emulate_shuffle_as(mask, value, lane, width, EMULATE_SHUFFLE_INDEX, EMULATE_HERE);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, EMULATE_PLACE)
{
    return emulate_shuffle_as(mask, value, static_cast<int>(lanes), width, EMULATE_SHUFFLE_UP, EMULATE_HERE);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, EMULATE_PLACE)
{
    return emulate_shuffle_as(mask, value, static_cast<int>(lanes), width, EMULATE_SHUFFLE_DOWN, EMULATE_HERE);
}
inline unsigned __ballot_sync(unsigned mask, bool vote, EMULATE_PLACE) { return emulate_ballot(mask, vote, EMULATE_HERE); }
inline int __any_sync(unsigned mask, bool vote, EMULATE_PLACE) { return emulate_ballot(mask, vote, EMULATE_HERE) != 0; }
inline int __all_sync(unsigned mask, bool vote, EMULATE_PLACE) { return emulate_ballot(mask, !vote, EMULATE_HERE) == 0; }
template <class T> unsigned __match_any_sync(unsigned mask, T value, EMULATE_PLACE)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "lanes are matched by 4 or 8 bytes");
    return emulate_match(mask, static_cast<unsigned long long>(value), EMULATE_HERE);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATE_PLACE) { emulate_syncwarp(mask, EMULATE_HERE); }
inline void __syncthreads(EMULATE_PLACE) { emulate_syncthreads(EMULATE_HERE); }

// ---- global memory ------------------------------------------------------------------------------------------------

inline void emulate_check_aligned(const void *p, unsigned bytes, emulate_place at)
{
    if ((reinterpret_cast<unsigned long long>(p) & (bytes - 1)) != 0) {
        emulate_misaligned(p, bytes, at);
    }
}
template <class T> T __ldg(const T *p, EMULATE_PLACE)
{
    emulate_check_aligned(p, sizeof(T), EMULATE_HERE);
    return *p;
}
template <class T> void __stcs(T *p, T x, EMULATE_PLACE)
{
    emulate_check_aligned(p, sizeof(T), EMULATE_HERE);
    *p = x;
}
// Fibers are switched in calls of the core alone, and it is told of no access in these.
#define EMULATE_WHOLE __attribute__((noinline, no_sanitize("thread")))
template <class T> EMULATE_WHOLE T emulate_add(T *p, T x)
{
    const T before = *p;
    *p = before + x;
    return before;
}
template <class T> EMULATE_WHOLE T emulate_swap(T *p, T expected, T x)
{
    const T before = *p;
    *p = before == expected ? x : before;
    return before;
}
template <class T> T emulate_add_in_order(T *p, T x, emulate_order order)
{
    emulate_pause();
    emulate_atomic(p, sizeof(T), order, true);
    const T before = emulate_add(p, x);
    emulate_pause();
    return before;
}
template <class T> T atomicAdd(T *p, T x) { return emulate_add_in_order(p, x, EMULATE_RELAXED); }
template <class T> T atomicCAS(T *p, T expected, T x)
{
    emulate_pause();
    const T before = emulate_swap(p, expected, x);
    emulate_atomic(p, sizeof(T), EMULATE_RELAXED, before == expected);
    emulate_pause();
    return before;
}

// ---- bits -----------------------------------------------------------------------------------------------------------

constexpr float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
constexpr float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
constexpr int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
constexpr unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __float2int_rz(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? -0x7fffffff - 1 : static_cast<int>(x);
}
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// ---- numbers ----------------------------------------------------------------------------------------------------------

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }

extern "C" {
float expf(float) noexcept;
float exp2f(float) noexcept;
float logf(float) noexcept;
float log2f(float) noexcept;
float sinf(float) noexcept;
float cosf(float) noexcept;
float tanhf(float) noexcept;
float erff(float) noexcept;
float erfcf(float) noexcept;
float powf(float, float) noexcept;
float fmodf(float, float) noexcept;
float sqrtf(float) noexcept;
float fabsf(float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float rintf(float) noexcept;
float fmaxf(float, float) noexcept;
float fminf(float, float) noexcept;
float fmaf(float, float, float) noexcept;
}
inline float emulate_flush(float x) // .ftz: a subnormal number is a zero
{
    return __builtin_fabsf(x) < 0x1p-126f ? x * 0.0f : x;
}
inline float emulate_rcp(float x) // rcp.approx.ftz: exact where x is a power of two
{
    const float y = 1.0f / emulate_flush(x);
    return (__float_as_uint(x) & 0x7fffffu) == 0 ? emulate_flush(y) : emulate_flush(emulate_inexact(y, x, 0x1p-23f));
}
// 2 ulp; where |b| is above 2^126, 0 or, for an infinite a, NaN
inline float __fdividef(float a, float b) { return a * emulate_rcp(b); }

// ---- a kernel as the core calls it: its parameter block is of the type that its text says ----------------------------------

template <class P> void emulate_call(void (*kernel)(P), const void *params) { kernel(*static_cast<const P *>(params)); }
template <class P> constexpr unsigned emulate_size(void (*)(P)) { return sizeof(P); }
#define EMULATE_KERNEL(number, entry)                                                                                              \
    extern "C" void emulate_thread_##number(const void *params) { emulate_call(entry, params); }                                   \
    extern "C" const unsigned emulate_bytes_##number = emulate_size(entry);
