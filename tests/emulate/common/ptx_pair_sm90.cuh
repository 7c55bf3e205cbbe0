// ptx_pair_sm90.cuh: templates/common/ptx_pair_sm90.cuh for the host.
#pragma once
#include "common/ptx_cluster.cuh"
#include "common/ptx_sm90.cuh"

DEV void mbarrier_arrive_peer(u32 barrier, EMULATE_PLACE) { emulate_arrive_peer(barrier, EMULATE_HERE); }
DEV void tma_load_both(u32 to, const tensor_map *map, u32 barrier, int x, int y, int z, int w, u64, EMULATE_PLACE)
{
    const int first[4] = {x, y, z, w};
    emulate_load_both(to, map, barrier, first, EMULATE_HERE);
}
DEV void copy_to_peer(u32 to, u32 from, u32 bytes, u32 barrier, EMULATE_PLACE) { emulate_copy_to_peer(to, from, bytes, barrier, EMULATE_HERE); }
DEV void push_to_peer(u32 address, u32 x, u32 barrier, EMULATE_PLACE) { emulate_push(address, __uint_as_float(x), barrier, cluster_rank() ^ 1u, 2, EMULATE_HERE); }
