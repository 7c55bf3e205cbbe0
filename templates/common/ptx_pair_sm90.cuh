// common/ptx_pair_sm90.cuh: one-instruction wrappers for clusters of two blocks that hand each other tiles, beside
// common/ptx_sm90.cuh and common/ptx_cluster.cuh. tests/emulate has the same list. Addresses are said as those of this
// block; the peer is the other one.
#pragma once
#include "common/ptx_cluster.cuh"
#include "common/ptx_sm90.cuh"

// At the peer's mbarrier: that a place is free, or has been read. Of the block's scope, for only copies of the async
// proxy write to such places, as for a multicast in CUTLASS: .release.cluster would wait until all that the thread has
// stored anywhere has arrived, and .acquire.cluster would throw L1 away.
DEV void mbarrier_arrive_peer(u32 barrier)
{
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
                 "r"(cluster_rank() ^ 1u)
                 : "memory");
}

// tma_load to the same place of both blocks; its bytes arrive at the same mbarrier of each.
DEV void tma_load_both(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, u64 l2)
{
    asm volatile(
        "{\n.reg .b16 both;\nmov.b16 both, 3;\n"
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], both, %7;\n}" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(l2)
        : "memory");
}

// `bytes` of this block's shared memory, a multiple of 16, to `to` of the peer; they arrive at its `barrier`: then they
// have been read here.
DEV void copy_to_peer(u32 to, u32 from, u32 bytes, u32 barrier)
{
    asm volatile(
        "{\n.reg .u32 there, counter;\nmapa.shared::cluster.u32 there, %0, %4;\n"
        "mapa.shared::cluster.u32 counter, %3, %4;\n"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [counter];\n}" ::"r"(
            to),
        "r"(from), "r"(bytes), "r"(barrier), "r"(cluster_rank() ^ 1u)
        : "memory");
}

// A word to `address` of the peer; 4 bytes arrive at its `barrier`.
DEV void push_to_peer(u32 address, u32 x, u32 barrier)
{
    exchange_push<2>(address, __uint_as_float(x), barrier, cluster_rank() ^ 1u);
}
