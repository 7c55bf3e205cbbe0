// ptx_cluster.cuh: templates/ptx_cluster.cuh for the host: the same names and signatures. The extra arguments, always left out, say where
// a call stands.
#pragma once
#include "ptx.cuh"

template <int SIZE> DEV void cluster_barrier(EMULATE_PLACE) { emulate_cluster_barrier(SIZE, EMULATE_HERE); }
template <int SIZE> DEV float load_cluster(u32 address, u32 rank, EMULATE_PLACE)
{
    float x;
    emulate_cluster_load(&x, address, rank, SIZE, EMULATE_HERE);
    return x;
}
