// ptx_cluster.cuh: templates/common/ptx_cluster.cuh for the host: the same names and signatures. The extra arguments, always left out, say where
// a call stands.
#pragma once
#include "common/ptx.cuh"

template <int SIZE> DEV void cluster_barrier(EMULATE_PLACE) { emulate_cluster_barrier(SIZE, EMULATE_HERE); }
DEV void exchange_init(u32 exchange, EMULATE_PLACE)
{
    emulate_mbarrier_init(exchange, 1, EMULATE_HERE);
    emulate_mbarrier_init_fence();
}
DEV void exchange_expect(u32 exchange, u32 bytes, EMULATE_PLACE) { emulate_mbarrier_arrive(exchange, bytes, EMULATE_HERE); }
template <int SIZE> DEV void exchange_push(u32 address, float x, u32 exchange, u32 rank, EMULATE_PLACE)
{
    emulate_push(address, x, exchange, rank, SIZE, EMULATE_HERE);
}
template <int SIZE> DEV void exchange_wait(u32 exchange, u32 parity, EMULATE_PLACE) { emulate_mbarrier_wait(exchange, parity, EMULATE_HERE); }
