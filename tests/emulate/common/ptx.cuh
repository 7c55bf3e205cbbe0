// ptx.cuh: templates/common/ptx.cuh for the host: the same names and signatures, each instruction as the PTX manual defines it. The
// extra arguments, always left out, say where a call stands.
#pragma once

#define DEV [[maybe_unused]] static __device__ __forceinline__

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

// ---- registers -----------------------------------------------------------------------------------------

DEV void keep(const char *&) {}
DEV void keep(u32 &) {}
DEV void keep(int &) {}
DEV void hold_in_thread(u32 &) {}
DEV void forget_memory() {}
DEV void after(int &, float) {}
DEV u32 fresh_thread() { return threadIdx.x; }
DEV u32 fresh_block() { return blockIdx.x; }
DEV u32 cluster_rank() { return emulate_cluster_rank(); }

// ---- conversions ---------------------------------------------------------------------------------------

DEV float float_from_f16(u16 x) { return static_cast<float>(__builtin_bit_cast(_Float16, x)); }
DEV u16 f16_from_float(float x)
{
    return x != x ? u16{0x7fff} : __builtin_bit_cast(u16, static_cast<_Float16>(x));
}
DEV u16 bf16_from_float(float x)
{
    const u32 bits = __float_as_uint(x);
    return x != x ? u16{0x7fff} : static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
DEV u32 f16x2_from_floats(float low, float high) { return f16_from_float(low) | static_cast<u32>(f16_from_float(high)) << 16; }
DEV u32 bf16x2_from_floats(float low, float high) { return bf16_from_float(low) | static_cast<u32>(bf16_from_float(high)) << 16; }
DEV float emulate_relu(float x) { return x < 0.0f ? 0.0f : x; }
DEV u32 f16x2_from_floats_relu(float low, float high) { return f16x2_from_floats(emulate_relu(low), emulate_relu(high)); }
DEV u32 bf16x2_from_floats_relu(float low, float high) { return bf16x2_from_floats(emulate_relu(low), emulate_relu(high)); }

DEV u32 f16x2_max(u32 a, u32 b)
{
    return f16x2_from_floats(fmaxf(float_from_f16(static_cast<u16>(a)), float_from_f16(static_cast<u16>(b))), fmaxf(float_from_f16(static_cast<u16>(a >> 16)), float_from_f16(static_cast<u16>(b >> 16))));
}
DEV u32 f16x2_min(u32 a, u32 b)
{
    return f16x2_from_floats(fminf(float_from_f16(static_cast<u16>(a)), float_from_f16(static_cast<u16>(b))), fminf(float_from_f16(static_cast<u16>(a >> 16)), float_from_f16(static_cast<u16>(b >> 16))));
}
DEV u32 bf16x2_max(u32 a, u32 b)
{
    return bf16x2_from_floats(fmaxf(__uint_as_float(a << 16), __uint_as_float(b << 16)), fmaxf(__uint_as_float(a >> 16 << 16), __uint_as_float(b >> 16 << 16)));
}
DEV u32 bf16x2_min(u32 a, u32 b)
{
    return bf16x2_from_floats(fminf(__uint_as_float(a << 16), __uint_as_float(b << 16)), fminf(__uint_as_float(a >> 16 << 16), __uint_as_float(b >> 16 << 16)));
}

// ---- the special function unit ------------------------------------------------------------------------------

DEV float exp2_approx(float x)
{
    const float y = exp2f(emulate_flush(x));
    return x == rintf(x) ? emulate_flush(y) : emulate_flush(emulate_inexact(y, x, 0x1p-22f));
}
DEV float log2_approx(float x)
{
    const float y = log2f(x);
    if (y == rintf(y)) {
        return y; // exact at powers of two
    }
    return x > 0.5f && x < 2.0f ? y + (emulate_inexact(1.0f, x, 0x1p-22f) - 1.0f) : emulate_inexact(y, x, 0x1p-22f);
}
DEV float log2_normal(float x) { return log2_approx(emulate_flush(x)); }
DEV float rcp_approx(float x) { return emulate_rcp(x); }
DEV int warp_min(int x, EMULATE_PLACE)
{
    for (int i = 16; i > 0; i /= 2) {
        x = min(x, __shfl_xor_sync(0xffffffffu, x, i, 32, file, line));
    }
    return x;
}
DEV u32 warp_or(u32 x, EMULATE_PLACE)
{
    for (int i = 16; i > 0; i /= 2) {
        x |= __shfl_xor_sync(0xffffffffu, x, i, 32, file, line);
    }
    return x;
}
DEV u32 warp_and(u32 x, EMULATE_PLACE) { return ~warp_or(~x, file, line); }
DEV int warp_max(int x, EMULATE_PLACE)
{
    for (int i = 16; i > 0; i /= 2) {
        x = max(x, __shfl_xor_sync(0xffffffffu, x, i, 32, file, line));
    }
    return x;
}
DEV float min_nan(float a, float b) { return a != a || b != b ? __builtin_nanf("") : a < b ? a : b; }
DEV float max_nan(float a, float b) { return a != a || b != b ? __builtin_nanf("") : a < b ? b : a; }
DEV float sqrt_approx(float x) { return emulate_inexact(sqrtf(x), x, 0x1p-23f); }
DEV float rsqrt_approx(float x) { return emulate_inexact(1.0f / sqrtf(x), x, 0x1p-22f); }
DEV float sin_approx(float x) { return sinf(emulate_flush(x)) + (emulate_inexact(1.0f, x, 0x1.6p-21f) - 1.0f); }
DEV float cos_approx(float x) { return cosf(emulate_flush(x)) + (emulate_inexact(1.0f, x, 0x1.6p-21f) - 1.0f); }
DEV float tanh_approx(float x) { return emulate_inexact(tanhf(x), x, 0x1p-11f); }

// ---- global memory that is read once -----------------------------------------------------------------------

DEV int count_sms() { return 1; }
DEV void let_next_begin() {}
DEV void wait_for_launch_before() { emulate_wait_for_launch(); }
DEV void prefetch_line(const void *) {}
DEV uint4 load_once16(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const uint4 *>(p), file, line); }
DEV uint4 load_first16(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const uint4 *>(p), file, line); }
DEV uint4 load_last16(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const uint4 *>(p), file, line); }
DEV uint2 load_first8(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const uint2 *>(p), file, line); }
DEV uint2 load_once8(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const uint2 *>(p), file, line); }
DEV u32 load_once4(const void *p, EMULATE_PLACE) { return __ldg(static_cast<const u32 *>(p), file, line); }

// ---- cp.async ---------------------------------------------------------------------------------------------------

DEV u32 shared_address(const void *p, EMULATE_PLACE) { return emulate_shared_address(p, EMULATE_HERE); }
DEV void copy16_async(u32 to, const void *from, int bytes, EMULATE_PLACE) { emulate_copy(to, from, bytes, EMULATE_HERE); }
DEV u64 keep_policy() { return 0; }
DEV u64 leave_policy() { return 0; }
template <int OFFSET> DEV void copy16_as_async(u32 to, const void *from, int bytes, u64, EMULATE_PLACE) { emulate_copy(to + OFFSET, from, bytes, EMULATE_HERE); }
DEV void copy_commit() { emulate_copy_commit(); }
template <int PENDING> DEV void copy_wait() { emulate_copy_wait(PENDING); }

DEV void barrier_sync(u32 id, u32 threads, EMULATE_PLACE) { emulate_named_barrier(id, threads, false, EMULATE_HERE); }
DEV void barrier_arrive(u32 id, u32 threads, EMULATE_PLACE) { emulate_named_arrive(id, threads, EMULATE_HERE); }

// ---- ldmatrix ---------------------------------------------------------------------------------------------------

DEV void load_matrix4(u32 (&r)[4], u32 address, EMULATE_PLACE) { emulate_load_matrix4(r, address, false, EMULATE_HERE); }
DEV void load_matrix4_transposed(u32 (&r)[4], u32 address, EMULATE_PLACE) { emulate_load_matrix4(r, address, true, EMULATE_HERE); }

// ---- plain shared memory ---------------------------------------------------------------------------------------

DEV void store_shared(u32 address, u32 x, EMULATE_PLACE) { emulate_store_shared(address, &x, 4, EMULATE_HERE); }
DEV void store_shared(u32 address, float x, EMULATE_PLACE) { emulate_store_shared(address, &x, 4, EMULATE_HERE); }
DEV float load_shared(u32 address, EMULATE_PLACE)
{
    float x;
    emulate_load_shared(&x, address, 4, EMULATE_HERE);
    return x;
}
DEV uint4 load_shared16(u32 address, EMULATE_PLACE)
{
    uint4 x;
    emulate_load_shared(&x, address, 16, EMULATE_HERE);
    return x;
}

DEV float2 load_shared8(u32 address, EMULATE_PLACE)
{
    float2 x;
    emulate_load_shared(&x, address, 8, EMULATE_HERE);
    return x;
}

DEV void store_shared16(u32 address, const float (&x)[4], EMULATE_PLACE) { emulate_store_shared(address, x, 16, EMULATE_HERE); }

// ---- global memory that several blocks change -------------------------------------------------------------------

#ifndef EMULATE_HOPPER
#define EMULATE_HOPPER 1
#endif
constexpr int ADD_WIDTH = EMULATE_HOPPER ? 4 : 1;
DEV void add_global(float *p, float x)
{
    emulate_sum(p, sizeof x, true);
    emulate_add(p, x);
}
DEV void add_global(u64 *p, u64 x)
{
    emulate_sum(p, sizeof x, false);
    emulate_add(p, x);
}
DEV void add_global4(float *p, const float (&x)[4], EMULATE_PLACE)
{
    emulate_check_aligned(p, 16, EMULATE_HERE);
    emulate_sum(p, 16, true);
    for (int i = 0; i < 4; i++) {
        emulate_add(p + i, x[i]);
    }
}
DEV u32 take_ticket(u32 *p) { return emulate_add_in_order(p, 1u, EMULATE_RELAXED); }
DEV u32 take_turn(u32 *p) { return emulate_add_in_order(p, 1u, EMULATE_ACQ_REL); }
DEV void wait_turn(const u32 *p, u32 turn, EMULATE_PLACE) { emulate_wait_turn(p, turn, EMULATE_HERE); }
DEV void end_turn(u32 *p) { emulate_add_in_order(p, 1u, EMULATE_RELEASE); }
DEV void publish_one(u64 *p, u64 a)
{
    emulate_tell(p, a);
    emulate_pause();
}
DEV void publish_both(u64 *p, u64 a, u64 b)
{
    publish_one(p, a);
    publish_one(p + 1, b);
}
DEV void observe_both(const u64 *p, u64 &a, u64 &b)
{
    a = emulate_observe(p);
    b = emulate_observe(p + 1);
    emulate_pause();
}
DEV void wait_told(const u64 *p, EMULATE_PLACE) { emulate_wait_told(reinterpret_cast<const u32 *>(p) + 1, EMULATE_HERE); }
DEV void fence_global()
{
    emulate_fence();
    emulate_pause();
}

// ---- mma.sync -------------------------------------------------------------------------------------------------

DEV void mma_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, EMULATE_PLACE) { emulate_mma(c, a, b0, b1, false, EMULATE_HERE); }
DEV void mma_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, EMULATE_PLACE) { emulate_mma(c, a, b0, b1, true, EMULATE_HERE); }
