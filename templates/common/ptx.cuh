// common/ptx.cuh: one-instruction wrappers, sm_80 and up, and with common/ptx_sm90.cuh the only files with asm in them:
// types of registers alone, no name of any other header but common/base.cuh's integer types.
// tests/emulate/common/ptx.cuh is the same list in C++ for the host: keep them alike.
#pragma once

#define DEV [[maybe_unused]] static __device__ __forceinline__

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// ---- registers ---------------------------------------------------------------------------------------

// The compiler takes x for changed here: it can neither split the computation of x nor move it out of a loop, nor
// hold in registers what it derived from x before.
DEV void keep(const char *&x) { asm volatile("" : "+l"(x)); }
DEV void keep(u32 &x) { asm volatile("" : "+r"(x)); }
DEV void keep(int &x) { asm volatile("" : "+r"(x)); }

// What was read from memory before is read again behind this.
DEV void forget_memory() { asm volatile("" ::: "memory"); }

// What is computed from x waits until y is known.
DEV void after(int &x, float y) { asm volatile("" : "+r"(x) : "f"(y)); }

// threadIdx.x and blockIdx.x, read anew: what is computed from them is not kept from one use to the next.
DEV u32 fresh_thread()
{
    u32 x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}
DEV u32 fresh_block()
{
    u32 x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}
DEV u32 cluster_rank() // of the block in its cluster; from sm_90 on
{
    u32 x;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x));
    return x;
}

// ---- conversions: round to nearest even --------------------------------------------------------------

DEV float float_from_f16(u16 x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
DEV u16 f16_from_float(float x)
{
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEV u16 bf16_from_float(float x)
{
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEV u32 f16x2_from_floats(float low, float high)
{
    u32 y;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
DEV u32 bf16x2_from_floats(float low, float high)
{
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
// The same of what is not negative, 0 of the rest; no number stays none.
DEV u32 f16x2_from_floats_relu(float low, float high)
{
    u32 y;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}
DEV u32 bf16x2_from_floats_relu(float low, float high)
{
    u32 y;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

// The larger, the smaller of two pairs; of a number and no number, the number.
DEV u32 f16x2_max(u32 a, u32 b)
{
    u32 y;
    asm("max.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
DEV u32 f16x2_min(u32 a, u32 b)
{
    u32 y;
    asm("min.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
DEV u32 bf16x2_max(u32 a, u32 b)
{
    u32 y;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}
DEV u32 bf16x2_min(u32 a, u32 b)
{
    u32 y;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
}

// ---- the special function unit: not volatile, so that equal values are computed once and unused ones not at all ----

DEV float exp2_approx(float x) // 2 ulp; exact at integers; results below 2^-126 are 0
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float log2_approx(float x) // absolute error 2^-22 between 1/2 and 2, relative 2^-22 elsewhere
{
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float log2_normal(float x) // the same, in one instruction; what is below 2^-126 counts as 0
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float rcp_approx(float x) // 1 ulp
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV int warp_min(int x) // over all 32 lanes
{
    int y;
    asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
DEV u32 warp_or(u32 x)
{
    u32 y;
    asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
DEV u32 warp_and(u32 x)
{
    u32 y;
    asm volatile("redux.sync.and.b32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
DEV int warp_max(int x)
{
    int y;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
DEV float min_nan(float a, float b) // NaN if one of them is
{
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEV float max_nan(float a, float b)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEV float sqrt_approx(float x) // 1 ulp
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float rsqrt_approx(float x) // 2 ulp
{
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float sin_approx(float x) // absolute error 2^-20.5 between -pi and pi
{
    float y;
    asm("sin.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float cos_approx(float x)
{
    float y;
    asm("cos.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float tanh_approx(float x) // relative error 2^-11
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- global memory that is read once: past L1 --------------------------------------------------------

DEV uint4 load_once16(const void *p)
{
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p));
    return x;
}
DEV uint2 load_once8(const void *p)
{
    uint2 x;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p));
    return x;
}
DEV u32 load_once4(const void *p)
{
    u32 x;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(x) : "l"(p));
    return x;
}

// Global memory that is read more than once by the same block: L1 and L2 keep what `first` has read until `last` has
// read it, and then let go of it before anything else, so that what is written stays longer and leaves in larger
// pieces. What is read once gains by `first`, too (README.md has the figures).
DEV u64 keep_policy()
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEV u64 leave_policy()
{
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEV uint4 load_first16(const void *p)
{
    uint4 x;
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p), "l"(keep_policy()));
    return x;
}
DEV uint2 load_first8(const void *p)
{
    uint2 x;
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(x.x), "=r"(x.y)
                 : "l"(p), "l"(keep_policy()));
    return x;
}
DEV uint4 load_last16(const void *p)
{
    uint4 x;
    asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(p), "l"(leave_policy()));
    return x;
}

// Launches that may begin early (struct launch's `early`): the one before says that from here on the next one may, and
// the next one waits for all that it has written. Elsewhere, and before sm_90, the next one begins when the one before
// is done.
DEV void let_next_begin()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEV void wait_for_launch_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEV int count_sms() // of the device: at least
{
    int n;
    asm("mov.u32 %0, %%nsmid;" : "=r"(n));
    return n;
}

// The line of 128 bytes comes to L2, which gives it up last.
DEV void prefetch_line(const void *p) { asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(p) : "memory"); }

DEV u32 shared_address(const void *p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }
// ---- cp.async: global to shared, 16 bytes a thread ---------------------------------------------------

// Copies `bytes` (16 or 0) and fills the rest of the 16 with zeros; with 0 nothing is read.
DEV void copy16_async(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
// The same, OFFSET bytes behind `to`, under a policy of L2. `to` must be a register of the thread: of a register of the
// warp, beside a policy, ptxas (CUDA 13.0) makes an instruction that the device refuses. tests/spills.sh looks for it.
template <int OFFSET> DEV void copy16_as_async(u32 to, const void *from, int bytes, u64 policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0 + %4], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
                 "r"(bytes), "l"(policy), "n"(OFFSET)
                 : "memory");
}
// A minimum is always a register of the thread; no shared address is as large as this one.
DEV void hold_in_thread(u32 &to) { asm volatile("min.u32 %0, %0, 0x7fffffff;" : "+r"(to)); }
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's newest groups are still under way.
template <int PENDING> DEV void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Named barrier `id` (1 .. 15) of `threads` threads, a multiple of 32.
DEV void barrier_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// Is counted there and goes on. What it has written is seen by those who wait there.
DEV void barrier_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// ---- ldmatrix: four 8x8 matrices of 16-bit elements --------------------------------------------------

// Lane l gives the address of row l % 8 of matrix l / 8, and gets of matrix i, in r[i], elements (l / 4, 2 (l % 4) +
// {0, 1}).
DEV void load_matrix4(u32 (&r)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// The same of the transposed matrices: elements (2 (l % 4) + {0, 1}, l / 4) as stored.
DEV void load_matrix4_transposed(u32 (&r)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

// ---- plain shared memory -----------------------------------------------------------------------------

DEV void store_shared(u32 address, u32 x) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory"); }
DEV void store_shared(u32 address, float x)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
DEV float load_shared(u32 address)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
    return x;
}
DEV uint4 load_shared16(u32 address)
{
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

DEV float2 load_shared8(u32 address)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

DEV void store_shared16(u32 address, const float (&x)[4])
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}

// ---- global memory that several blocks change --------------------------------------------------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define ADD_GLOBAL4 1
#else
#define ADD_GLOBAL4 0
#endif
[[maybe_unused]] constexpr int ADD_WIDTH = ADD_GLOBAL4 ? 4 : 1; // adjacent floats that one thread adds at once

DEV void add_global(float *p, float x) { asm volatile("red.global.add.f32 [%0], %1;" ::"l"(p), "f"(x) : "memory"); }
DEV void add_global(u64 *p, u64 x) { asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
DEV void add_global4(float *p, const float (&x)[4]) // p is a multiple of 16 bytes; ADD_WIDTH is 4
{
#if ADD_GLOBAL4
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#endif
}
DEV u32 take_ticket(u32 *p) // what it was; one more afterwards
{
    u32 x;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(x) : "l"(p) : "memory");
    return x;
}
DEV u32 take_turn(u32 *p) // the same; who takes a later one sees what was written before
{
    u32 x;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(x) : "l"(p) : "memory");
    return x;
}
// Until *p is `turn`, which blocks with lower tickets make it: what they had written before is then visible.
DEV void wait_turn(const u32 *p, u32 turn)
{
    u32 x;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    } while (x != turn);
}
DEV void end_turn(u32 *p) { asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p) : "memory"); }
// Words that are 0 until a block tells a number there: what is told of it, not 0, is in the upper half, and comes with
// it.
DEV void publish_both(u64 *p, u64 a, u64 b)
{
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(a), "l"(b) : "memory");
}
DEV void publish_one(u64 *p, u64 a) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(a) : "memory"); }
DEV void observe_both(const u64 *p, u64 &a, u64 &b)
{
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
}
DEV void wait_told(const u64 *p)
{
    u64 x;
    do {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    } while (x >> 32 == 0);
}
DEV void fence_global() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ---- mma.sync: c += a b, fp32 sums -------------------------------------------------------------------

// With g = lane / 4 and t = lane % 4, a 16x16, b 16x8, c 16x8:
//   a[0] (g, 2t..)  a[1] (g + 8, 2t..)  a[2] (g, 2t + 8..)  a[3] (g + 8, 2t + 8..)
//   b0 (2t.., g)  b1 (2t + 8.., g)      c[2 r + j] (g + 8 r, 2t + j)
DEV void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
