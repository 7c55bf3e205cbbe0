// ptx_cluster.cuh: one-instruction wrappers for clusters of SIZE blocks (sm_90 and up), beside ptx.cuh. tests/emulate has the same list.
#pragma once
#include "ptx.cuh"

// Every thread of every block of the cluster: what each has written to shared memory before is there for the others afterwards.
template <int SIZE> DEV void cluster_barrier()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

// The word at `address` of block `rank`'s shared memory.
template <int SIZE> DEV float load_cluster(u32 address, u32 rank)
{
    float x;
    asm volatile("{\n\t.reg .u32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %1, %2;\n\t"
                 "ld.shared::cluster.f32 %0, [there];\n\t}"
                 : "=f"(x)
                 : "r"(address), "r"(rank)
                 : "memory");
    return x;
}
