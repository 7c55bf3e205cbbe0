// attention_load_sm90.cuh: the warp that loads: which query tiles its block takes, which key tiles the mask leaves
// of each, and TMA loads of both, in one stream across query tiles.
#pragma once
#include "attention_layout_sm90.cuh"

DEV const u8 *find_map_row(const attention_params &p, const hopper_place &at)
{
    if constexpr (variant::MAP) {
        const i64 n_h = variant::MAP_PER_HEAD ? p.z.n_h : 1;
        const i64 map_head = (variant::MAP_PER_BATCH ? at.b : 0) * n_h + (variant::MAP_PER_HEAD ? at.h : 0);
        return p.map + (map_head * at.n_tiles + at.query_tile) * ((p.z.len_kv + cfg::BN - 1) / cfg::BN);
    } else {
        return nullptr;
    }
}

// Walks the key tiles of which the mask leaves something for a query tile, in ascending order. 32 are classified
// at a time, one a lane, and for each warpgroup's rows, so that no computing warp has to.
struct key_tiles {
    static constexpr int BEFORE = -32 * KEY_TILE; // before the first one
    static constexpr int END = -1;                // after the last one
    u32 mine;                                     // classes of this lane's tile of the current 32

    // row0: of the query tile; tokens: of a warpgroup.
    DEV u32 classify(const at_head &a, const u8 *map_row, int row0, int tokens, int tile)
    {
        const int kv0 = tile * cfg::BN; // len_kv + 31 BN fits
        const int kv1 = min(kv0 + cfg::BN, a.z.len_kv) - 1;
        u32 classes = 0;
        if (kv1 >= kv0) {
#pragma unroll 1
            for (int i = 0; i < shared_layout::GROUPS; i++) {
                const int row1 = min(row0 + tokens, a.z.len_q) - 1;
                int c = TILE_ALL;
                if constexpr (variant::MAP) {
                    c = map_row[tile];
                } else if constexpr (variant::MASKED) {
                    c = static_cast<int>(variant::classify(a.x, a.z, a.head, row0, max(row0, row1), kv0, kv1));
                }
                if (c == TILE_ALL && kv1 < kv0 + cfg::BN - 1) {
                    c = TILE_SOME;
                }
                classes |= row1 < row0 ? 0 : static_cast<u32>(c) << (2 * i);
                row0 += i % SHARERS == SHARERS - 1 ? tokens : 0;
            }
        }
        return classes;
    }

    // What comes after `last`: KEY_TILE times its number, and its classes; or END.
    __device__ __forceinline__ int next(int last, const at_head &a, const u8 *map_row, int row0, int tokens)
    {
        if (last == END) {
            return END;
        }
        int first = (last / KEY_TILE) & ~31; // of the current 32
        u32 some = __ballot_sync(ALL_LANES, mine != 0 && lane_id() > ((last / KEY_TILE) & 31));
#pragma unroll 1
        while (some == 0) {
            first += 32;
            if (first >= (a.z.len_kv + cfg::BN - 1) / cfg::BN) {
                return END;
            }
            mine = classify(a, map_row, row0, tokens, first + lane_id());
            some = __ballot_sync(ALL_LANES, mine != 0);
        }
        const int bit = __ffs(static_cast<int>(some)) - 1;
        return (first + bit) * KEY_TILE + static_cast<int>(__shfl_sync(ALL_LANES, mine, bit));
    }
};

struct loader { // of the warp that loads; one of its threads, the leader, writes and waits
    const hopper_params &params;
    u32 shared;
    bool leader;
    place k, v;
    int before, h_kv, b; // the key tile whose V comes next, or a negative number

    // tile: as key_tiles gives it.
    __device__ __forceinline__ void load_k(int tile, u32 last, const hopper_place &at)
    {
        const ring_barriers<cfg::STAGES> ring = rings::at(shared).k;
        const u32 full = ring.full(k.stage);
        ring.wait_empty(k);
        store_shared(shared + shared_layout::TILES + 4 * k.stage,
                     tile == key_tiles::END ? NO_TILE : static_cast<u32>(tile) | last);
        if (tile == key_tiles::END) {
            mbarrier_arrive(full);
        } else {
            mbarrier_arrive_expect(full, shared_layout::K_BYTES);
            load_tile<cfg::BN, cfg::D_PAD>(shared + shared_layout::K + k.stage * shared_layout::K_BYTES,
                                           &params.k, full, tile / KEY_TILE * cfg::BN,
                                           at.h / (params.p.z.n_h / params.p.z.n_h_kv), at.b, L2_KEEP);
        }
        k = k.next();
    }

    // Of the tile before.
    __device__ __forceinline__ void load_v()
    {
        if (before >= 0) {
            const ring_barriers<cfg::STAGES> ring = rings::at(shared).v;
            const u32 full = ring.full(v.stage);
            ring.wait_empty(v);
            mbarrier_arrive_expect(full, shared_layout::V_BYTES);
            load_tile<cfg::BN, cfg::DV_PAD>(shared + shared_layout::V + v.stage * shared_layout::V_BYTES,
                                            &params.v, full, before / KEY_TILE * cfg::BN, h_kv, b, L2_KEEP);
            v = v.next();
        }
    }

    // Of the block's query tile `round`. Each warpgroup gives its Q back at a time of its own.
    __device__ __forceinline__ void load_q(u32 round, const hopper_place &at) const
    {
        const q_place to = q_place::nth(round);
#pragma unroll 1
        for (u32 i = 0; i < shared_layout::GROUPS; i++) {
            const ring_barriers<cfg::Q_STAGES> ring = rings::q(shared, i);
            const u32 full = ring.full(to.stage);
            ring.wait_empty(to);
            const u32 q = shared + i * shared_layout::SLAB + to.stage * shared_layout::Q_BYTES;
            const int token = at.row0 + at.tokens * static_cast<int>(i / SHARERS);
            if constexpr (cfg::PACK) {
                mbarrier_arrive_expect(full, static_cast<u32>(at.tokens * at.heads * cfg::D_PAD * 2));
                load_packed_tile<64, cfg::D_PAD>(q, &params.q, full, token, at.h / at.heads, at.b, L2_STREAM);
            } else {
                mbarrier_arrive_expect(full, shared_layout::Q_BYTES);
                load_tile<64, cfg::D_PAD>(q, &params.q, full, token, at.h, at.b, L2_STREAM);
            }
        }
    }

    // The number behind that of this round: asked for well before it is needed.
    __device__ __forceinline__ u32 take_number(u32 number) const
    {
        if constexpr (cfg::DYNAMIC) {
            return gridDim.x + atomicAdd(params.p.tile_counter, 1u);
        } else {
            return number + gridDim.x;
        }
    }

    // One query tile: K of each key tile together with V of the one before, which may be of another query tile.
    // Q comes after the first K and the V before it, which do not wait for the Q before to be done with.
    __device__ __forceinline__ void load_round(u32 round, u32 number)
    {
        const attention_params &p = params.p;
        const hopper_place at = find_place(p, number, 0);
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
        const at_head a{p.x, p.z, head};
        const u8 *map_row = find_map_row(p, at);
        const u32 next = leader ? take_number(number) : 0;
        key_tiles tiles{0};
        bool first = true;
        int tile = tiles.next(key_tiles::BEFORE, a, map_row, at.row0, at.tokens);
#pragma unroll 1
        do {
            const int after = tiles.next(tile, a, map_row, at.row0, at.tokens);
            if (leader) {
                if (after == key_tiles::END) {
                    store_shared(number_place(shared, round + 1), next);
                }
                load_k(tile, after == key_tiles::END ? LAST : 0, at);
                load_v();
                if (first) {
                    load_q(round, at);
                }
            }
            before = tile;
            h_kv = at.h / (p.z.n_h / p.z.n_h_kv);
            b = at.b;
            first = false;
            tile = after;
            __syncwarp();
        } while (tile != key_tiles::END);
    }
};

DEV void load_all(const hopper_params &params, u32 shared)
{
    loader l = {params, shared, elect_one(), {0, 0}, {0, 0}, key_tiles::END, 0, 0};
    u32 number = fresh_block();
#pragma unroll 1
    for (u32 round = 0; number < all_query_tiles(params.p); round++) {
        l.load_round(round, number);
        number = __float_as_uint(load_shared(number_place(shared, round + 1)));
    }
    if (l.leader) {
        l.load_v();
    }
}
