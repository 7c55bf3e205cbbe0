// ptx_sm90.cuh: templates/common/ptx_sm90.cuh for the host: the same names and signatures. The extra arguments, always left out, say where
// a call stands.
#pragma once
#include "common/ptx.cuh"

struct alignas(64) tensor_map {
    unsigned char opaque[128];
};
static_assert(sizeof(emulate_tensor_map) <= sizeof(tensor_map), "the test's driver writes the one in place of the other");

DEV bool elect_one(EMULATE_PLACE) { return emulate_elect(EMULATE_HERE) != 0; }
template <int REGISTERS> DEV void registers_down(EMULATE_PLACE) { emulate_set_registers(REGISTERS, false, EMULATE_HERE); }
template <int REGISTERS> DEV void registers_up(EMULATE_PLACE) { emulate_set_registers(REGISTERS, true, EMULATE_HERE); }
DEV bool barrier_any(u32 id, u32 threads, bool vote, EMULATE_PLACE) { return emulate_named_barrier(id, threads, vote, EMULATE_HERE) != 0; }

// ---- mbarriers --------------------------------------------------------------------------------------------------------------

DEV void mbarrier_init(u32 barrier, u32 arrivals, EMULATE_PLACE) { emulate_mbarrier_init(barrier, arrivals, EMULATE_HERE); }
DEV void mbarrier_init_fence() { emulate_mbarrier_init_fence(); }
DEV void mbarrier_arrive(u32 barrier, EMULATE_PLACE) { emulate_mbarrier_arrive(barrier, 0, EMULATE_HERE); }
DEV void mbarrier_arrive_expect(u32 barrier, u32 bytes, EMULATE_PLACE) { emulate_mbarrier_arrive(barrier, bytes, EMULATE_HERE); }
DEV void mbarrier_arrive_copies(u32 barrier, EMULATE_PLACE) // at once, with the fence of the one who waits
{
    emulate_copy_commit();
    emulate_copy_wait(0);
    emulate_fence_async_proxy();
    emulate_mbarrier_arrive(barrier, 0, EMULATE_HERE);
}
DEV void mbarrier_wait(u32 barrier, u32 parity, EMULATE_PLACE) { emulate_mbarrier_wait(barrier, parity, EMULATE_HERE); }
DEV void wait_turn_bounded(const u32 *p, u32 turn, const char *, EMULATE_PLACE) { emulate_wait_turn(p, turn, EMULATE_HERE); }
DEV void mbarrier_wait_bounded(u32 barrier, u32 parity, const char *, EMULATE_PLACE) { emulate_mbarrier_wait(barrier, parity, EMULATE_HERE); }

// ---- TMA ----------------------------------------------------------------------------------------------------------------------

constexpr u64 L2_STREAM = 0x12F0000000000000ull;
constexpr u64 L2_KEEP = 0x14F0000000000000ull;
DEV void tma_load(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, u64, EMULATE_PLACE)
{
    const int first[4] = {x, y, z, w};
    emulate_tma_load(to, map, barrier, 4, first, EMULATE_HERE);
}
DEV void tma_load5(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, int v, u64, EMULATE_PLACE)
{
    const int first[5] = {x, y, z, w, v};
    emulate_tma_load(to, map, barrier, 5, first, EMULATE_HERE);
}
DEV void tma_store(const tensor_map *map, u32 from, int x, int y, int z, int w, EMULATE_PLACE)
{
    const int first[4] = {x, y, z, w};
    emulate_tma_store(map, from, 4, first, EMULATE_HERE);
}
DEV void tma_store5(const tensor_map *map, u32 from, int x, int y, int z, int w, int v, EMULATE_PLACE)
{
    const int first[5] = {x, y, z, w, v};
    emulate_tma_store(map, from, 5, first, EMULATE_HERE);
}
DEV void tma_load_line(u32 to, const void *from, u32 bytes, u32 barrier, EMULATE_PLACE) { emulate_bulk_load(to, from, bytes, barrier, EMULATE_HERE); }
DEV void tma_add_line(float *to, u32 from, u32 bytes, u64, EMULATE_PLACE) { emulate_bulk_add(to, from, bytes, EMULATE_HERE); }
DEV void tma_store_line(float *to, u32 from, u32 bytes, u64, EMULATE_PLACE) { emulate_bulk_store(to, from, bytes, EMULATE_HERE); }
DEV void tma_commit() { emulate_bulk_commit(); }
template <int PENDING> DEV void tma_wait_read(EMULATE_PLACE) { emulate_bulk_wait(PENDING, true, EMULATE_HERE); }
template <int PENDING> DEV void tma_wait(EMULATE_PLACE) { emulate_bulk_wait(PENDING, false, EMULATE_HERE); }
DEV void fence_async_proxy() { emulate_fence_async_proxy(); }
DEV void fence_async_global() { emulate_fence_async_global(); }

DEV void store_matrix4_transposed(u32 address, const u32 (&r)[4], EMULATE_PLACE) { emulate_store_matrix4(r, address, true, EMULATE_HERE); }
DEV void store_matrix4(u32 address, const u32 (&r)[4], EMULATE_PLACE) { emulate_store_matrix4(r, address, false, EMULATE_HERE); }

// ---- wgmma --------------------------------------------------------------------------------------------------------------------

DEV void wgmma_commit(EMULATE_PLACE) { emulate_wgmma_commit(EMULATE_HERE); }
template <int N> struct wgmma {
    static_assert(N % 16 == 0 && N >= 16 && N <= 256, "a width of templates/common/ptx_sm90.cuh");
    template <bool BF16, bool A_TURNED = false, bool B_TURNED = false> DEV void ss(float (&d)[N / 8][4], u64 a, u64 b, int sum, EMULATE_PLACE)
    {
        emulate_wgmma_call call = {d[0], N, a, b, nullptr, {}, sum, BF16 ? EMULATE_BF16 : EMULATE_F16, A_TURNED,
                                   B_TURNED};
        emulate_wgmma(&call, EMULATE_HERE);
    }
    template <bool BF16, bool B_TURNED = true> DEV void rs(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, int sum, EMULATE_PLACE)
    {
        emulate_wgmma_call call = {d[0], N, 0, b, a, {}, sum, BF16 ? EMULATE_BF16 : EMULATE_F16, false, B_TURNED};
        emulate_wgmma(&call, EMULATE_HERE);
    }
    template <bool BF16, bool FIRST, int A_STEP, int B_STEP, bool A_TURNED = false, bool B_TURNED = false>
    DEV void ss4(float (&d)[N / 8][4], u64 a, u64 b, int sum, EMULATE_PLACE)
    {
        if constexpr (FIRST) {
            fence(d, file, line);
        }
        for (u64 i = 0; i < 4; i++) {
            ss<BF16, A_TURNED, B_TURNED>(d, a + i * A_STEP, b + i * B_STEP, i == 0 ? sum : 1, file, line);
        }
    }
    template <bool BF16, bool FIRST, int B_STEP, bool B_TURNED = true>
    DEV void rs4(float (&d)[N / 8][4], const u32 (*a)[4], u64 b, int sum, EMULATE_PLACE)
    {
        if constexpr (FIRST) {
            fence(d, file, line);
        }
        for (u64 i = 0; i < 4; i++) {
            rs<BF16, B_TURNED>(d, a[i], b + i * B_STEP, i == 0 ? sum : 1, file, line);
        }
    }
    DEV void fence(float (&d)[N / 8][4], EMULATE_PLACE)
    {
        emulate_wgmma_call call = {d[0], N, 0, 0, nullptr, {}, 0, EMULATE_F16, false, false};
        emulate_wgmma_fence(&call, EMULATE_HERE);
    }
    template <int PENDING> DEV void wait(float (&)[N / 8][4], EMULATE_PLACE) { emulate_wgmma_wait(PENDING, EMULATE_HERE); }
};
