// attention/fwd_sm90.cuh: attention forward for sm_90a: TMA, wgmma, warpgroups with roles of their own.
//
// A block takes tiles of BM query rows, one after the other (attention/scheduler_sm90.cuh). One warp of the first
// warpgroup walks the key tiles that the mask leaves and loads them, in one stream across query tiles, another
// loads Q; the other warpgroups own 64 rows each: scores, weights and o stay in their registers. Q K of a tile runs
// with P V of the tile before, under the softmax between them. Warpgroups meet only at the rings' barriers.
#pragma once
#include "attention/fwd_sm90_load.cuh"
#include "attention/fwd_sm90_store.cuh"
#include "attention/fwd_sm90_weights.cuh"

// ---- the tiles of a warpgroup ------------------------------------------------------------------------

// The table of a tile, by the whole warpgroup, under its Q K; the one before may still be in use.
DEV u32 make_diagonals(const at_head &a, const tile_reader &reader, int q0, int tile)
{
    if constexpr (variant::DIAG) {
        const int thread = static_cast<int>(fresh_thread() % 128);
        const u32 table =
            reader.shared + shared_layout::DIAG + (2 * reader.group + reader.k.turn()) * shared_layout::DIAG_BYTES;
        fill_diagonals<64, cfg::BN, 128>(table, a, q0, tile / KEY_TILE * cfg::BN, thread);
        barrier_sync(1 + reader.group, 128);
        return table + static_cast<u32>((thread / 32 * 16 + mma_fragment<1>::first_row(lane_id()) -
                                         mma_fragment<1>::first_column(lane_id()) + cfg::BN - 1) *
                                        4);
    } else {
        return 0;
    }
}

DEV void clear_output(warp_work &w)
{
#pragma unroll
    for (int i = 0; i < 4 * DB; i++) {
        w.o[0][i / 4][i % 4] = 0.0f;
    }
}

// All key tiles of these rows: runs of tiles that have something for them, and tiles in between that only the
// other warpgroups need. q0: position of the warpgroup's first row. Where no tile has something for them, o stays what
// it was, and none of the rows has been seen.
DEV void attend_all(warp_work &w, const at_head &a, tile_reader &reader, int q0)
{
    float scale[2];
    int sum = 0; // o has no tile yet
    if constexpr (TILE_SUMS) {
        clear_output(w);
    }
    reader.find_first();
    int tile = reader.ahead;
#pragma unroll 1
    while (tile != NO_TILE) {
        if (!reader.lives(tile)) {
            reader.skip_tile();
            if constexpr (variant::DIAG) {
                barrier_sync(1 + reader.group, 128); // the tables take turns by places of K
            }
            tile = reader.ahead;
            continue;
        }
        reader.wait_k();
        reader.start_scores(w);
        reader.look_ahead();
        u32 entry = make_diagonals(a, reader, q0, tile);
        wgmma<cfg::BN>::wait<0>(w.s[0]);
        weigh_first<variant>(w, a, reader, tile, entry, scale);
        products::pack<NB, variant::RELU_WAITS>(w.p, w.s[0]);
        if constexpr (variant::RESCALE) {
            if (sum != 0) {
                rescale(w.o, scale);
            }
        }
#pragma unroll 1
        while (true) {
            tile = reader.ahead;
            if (!reader.lives(tile)) {
                break;
            }
            reader.wait_k();
            reader.start_scores(w);
            reader.look_ahead();
            reader.start_output(w, sum);
            entry = make_diagonals(a, reader, q0, tile);
            wgmma<cfg::BN>::wait<1>(w.s[0]);
            weigh_next<variant>(w, a, reader, tile, entry, scale);
            reader.finish_output(w);
            products::pack<NB, variant::RELU_WAITS>(w.p, w.s[0]);
            if constexpr (variant::RESCALE && !variant::KEEPS) {
                rescale(w.o, scale);
            }
        }
        reader.start_output(w, sum);
        reader.finish_output(w);
    }
    if (!variant::SCATTERED && sum == 0) {
        clear_output(w); // not needed, but other masks' main loops are compiled into more instructions without it
    }
    if constexpr (variant::DIAG) {
        barrier_sync(1 + reader.group, 128); // a query tile without keys changes the turn of the tables
    }
}

DEV void compute_round(const hopper_params &params, warp_work &w, tile_reader &reader, const query_tile &tile)
{
    auto &&p = tokens_at::read(reader.shared, reader.round).enter(params.p);
    const int warp = static_cast<int>(fresh_thread() / 32) - 4;
    const hopper_place at = find_place(p, tile, reader.share, warp);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const at_head a{p.x, p.z, head};
    w.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.rows.row[r] = variant::make_row(a.x, a.z, a.head, at.row(r));
        w.rows.state[r] = variant::init(mma_fragment<1>::leads(at.lane));
    }
    attend_all(w, a, reader, at.group_row0() + p.z.q_start);
    store_rows(w, params, reader);
}

DEV void compute_all(const hopper_params &params, u32 shared)
{
    keep(shared); // not found again for every use
    tile_reader reader = tile_reader::start(__shfl_sync(ALL_LANES, shared, 0), share_of_head(params.p));
    warp_work w;
    clear_output(w); // products take o along even where its value does not count
#pragma unroll 1
    while (true) {
        reader.wait_q();
        const query_tile tile = reader.query();
        if (tile.number == query_tile::NONE) {
            break;
        }
        compute_round(params, w, reader, tile);
        reader.round++;
    }
    wait_for_stores();
}

// Rows of Q that no load fills, for 64 is no multiple of the heads that take turns: 0, once and for all.
DEV void clear_rests(const attention_params &p, u32 shared)
{
    const int filled = group_tokens(p) * packed_heads(p);
    constexpr int CHUNKS = QK_WORDS / 8;
    for (u32 i = threadIdx.x; i < (64 - filled) * CHUNKS * shared_layout::GROUPS * cfg::Q_STAGES; i += THREADS) {
        const int chunk = static_cast<int>(i) % CHUNKS;
        const int row = filled + static_cast<int>(i) / CHUNKS % (64 - filled);
        const u32 slot = i / CHUNKS / (64 - filled);
        const u32 to = shared + slot / cfg::Q_STAGES * shared_layout::SLAB +
                       slot % cfg::Q_STAGES * shared_layout::Q_BYTES + panels<QK_WORDS>::offset<64>(row, chunk);
#pragma unroll
        for (u32 k = 0; k < 16; k += 4) {
            store_shared(to + k, 0u);
        }
    }
    fence_async_proxy();
}

// ---- kernel ------------------------------------------------------------------------------------------

#if LATHE_COMPILED(fwd)
extern "C" __global__ void __launch_bounds__(THREADS, 1) LATHE_ENTRY(fwd)(const __grid_constant__ hopper_params params)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    const u32 warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0); // the same for a whole warp, as the compiler sees
    using queries = query_stream<attention_params>;
    queries begin = {};
    if (warp == 1) {
        begin = queries::start(params.p, shared);
    }
    if (threadIdx.x == 0) {
        const rings ring = rings::at(shared);
        ring.k.init(cfg::WARPS);
        ring.v.init(cfg::WARPS);
#pragma unroll
        for (u32 i = 0; i < shared_layout::GROUPS; i++) {
            rings::q(shared, i).init(4);
        }
#pragma unroll
        for (u32 i = 0; i < shared_layout::ROUNDS; i++) {
            mbarrier_init(told_barrier(shared, i), 1);
            mbarrier_init(ending_barrier(shared, i), 1);
        }
        mbarrier_init_fence();
    }
    if constexpr (cfg::PACK) {
        clear_rests(params.p, shared);
    }
    __syncthreads();
    if (warp < 4) {
        if constexpr (SHARED_OUT) {
            registers_down<LOADER_REGISTERS>();
        }
        if (warp == 0) {
            load_keys(params, shared);
        } else if (warp == 1 && queries::takes_part()) {
            queries::load(params, shared, begin);
        }
    } else {
        if constexpr (SHARED_OUT) {
            registers_up<WORKER_REGISTERS>();
        }
        compute_all(params, shared);
    }
}
#endif
