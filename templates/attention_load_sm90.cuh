// attention_load_sm90.cuh: the warp that loads: which query tiles there are, which key tiles each of them has,
// and TMA loads of both, in one stream across query tiles.
#pragma once
#include "attention_layout_sm90.cuh"

DEV const u8 *find_map_row(const attention_params &p, const work_place &at)
{
    if constexpr (variant::MAP) {
        const i64 n_h = variant::MAP_PER_HEAD ? p.z.n_h : 1;
        const i64 map_head = (variant::MAP_PER_BATCH ? at.b : 0) * n_h + (variant::MAP_PER_HEAD ? at.h : 0);
        return p.map + (map_head * at.n_tiles + at.query_tile) * ((p.z.len_kv + cfg::BN - 1) / cfg::BN);
    } else {
        return nullptr;
    }
}

using place = ring_place<cfg::STAGES>;

// The number and class of the tile stands beside its K.
DEV void load_k(const hopper_params &params, const rings &ring, u32 shared, place at, int tile, int h_kv,
                int b)
{
    const u32 full = ring.k.full(at.stage());
    ring.k.wait_empty(at);
    store_shared(shared + shared_layout::TILES + 4 * at.stage(), static_cast<u32>(tile));
    if (tile == tile_cursor::END) {
        mbarrier_arrive(full);
    } else {
        mbarrier_arrive_expect(full, shared_layout::K_BYTES);
        load_tile<cfg::BN, cfg::D_PAD>(shared + shared_layout::K + at.stage() * shared_layout::K_BYTES,
                                       &params.k, full, (tile >> 1) * cfg::BN, h_kv, b, L2_KEEP);
    }
}

DEV void load_v(const hopper_params &params, const rings &ring, u32 shared, place at, int tile, int h_kv,
                int b)
{
    const u32 full = ring.v.full(at.stage());
    ring.v.wait_empty(at);
    mbarrier_arrive_expect(full, shared_layout::V_BYTES);
    load_tile<cfg::BN, cfg::DV_PAD>(shared + shared_layout::V + at.stage() * shared_layout::V_BYTES,
                                    &params.v, full, (tile >> 1) * cfg::BN, h_kv, b, L2_KEEP);
}

// Of one round. Each warpgroup gives its Q back at a time of its own.
DEV void load_q(const hopper_params &params, u32 shared, u32 round, const work_place &at)
{
#pragma unroll 1
    for (u32 i = 0; i < shared_layout::GROUPS; i++) {
        const ring_barriers<1> ring = rings::q(shared, i);
        ring.wait_empty({round & 1u});
        mbarrier_arrive_expect(ring.full(0), shared_layout::Q_BYTES);
        load_tile<64, cfg::D_PAD>(shared + shared_layout::Q + i * shared_layout::SLAB, &params.q,
                                  ring.full(0), at.row0 + 64 * static_cast<int>(i), at.h, at.b, L2_STREAM);
    }
}

// One round: K of each tile together with V of the one before; after the last tile END takes a stage of K. Q
// comes after the first K, which may be loaded while the round before still needs its Q.
DEV void load_round(const hopper_params &params, u32 shared, u32 round, place &k, place &v, bool leader)
{
    const attention_params &p = params.p;
    const work_place at = find_place(p.z, round, 0);
    const int h_kv = at.h / (p.z.n_h / p.z.n_h_kv);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const at_head a{p.x, p.z, head};
    const u8 *map_row = find_map_row(p, at);
    const rings ring = rings::at(shared);
    tile_cursor cursor{TILE_NONE};
    int before = tile_cursor::IDLE;
#pragma unroll 1
    do {
        const int tile = cursor.next(before, p, a, map_row, at.row0);
        if (leader) {
            load_k(params, ring, shared, k, tile, h_kv, at.b);
            k = k.next();
            if (before >= 0) {
                load_v(params, ring, shared, v, before, h_kv, at.b);
                v = v.next();
            } else {
                load_q(params, shared, round, at);
            }
        }
        __syncwarp();
        before = tile;
    } while (before != tile_cursor::END);
}

DEV void load_all(const hopper_params &params, u32 shared)
{
    const bool leader = elect_one();
    place k{0};
    place v{0};
#pragma unroll 1
    for (u32 round = 0; is_there(params.p.z, round); round++) {
        load_round(params, shared, round, k, v, leader);
    }
}
