// attention/backward/sm90.cuh: attention backward for sm_90a: dk', dv' of a key tile and what it adds to dq', with TMA,
// wgmma and warpgroups with roles of their own.
//
// A block takes 128 keys of one key head. One warp walks the query tiles that the mask leaves, of every query head of
// the group, and loads Q, dO and row values; two warpgroups own 64 keys each. Products are turned, s^T = K Q^T and dw^T
// = V dO^T, so that weights and ds, rounded, are as they stand the A operands of dv' += w^T dO and dk' += ds^T Q. Only
// ds goes through shared memory, for dq' = ds K: the warpgroups take turns at that, so one computes pairs while the
// other's products run. What a turn leaves in the slab another warp adds to memory.
#pragma once
#include "attention/backward/sm90_load.cuh"
#include "attention/backward/sm90_pairs.cuh"
#include "attention/backward/sm90_store.cuh"

namespace back
{

struct key_sums {
    float dk[DK / 8][4];
    float dv[DV / 8][4];
};

// ---- products ----------------------------------------------------------------------------------------

// Starts dw^T = V dO^T. The last steps along a row of V are in registers.
struct value_rows {
    static constexpr int STEPS = cfg::BACK_V_STEPS;
    static constexpr int FIRST = DV / 16 - STEPS;
    u32 rows; // address of the warpgroup's rows
    u32 kept[max_of(STEPS, 1)][4];

    __device__ __forceinline__ void load()
    {
        const int row = static_cast<int>(fresh_thread() % 128 / 32 * 16) + lane_id() % 16;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            load_matrix4(kept[i], rows + panels<DV>::offset<BN>(row, 2 * (FIRST + i) + lane_id() / 16));
        }
    }
    __device__ __forceinline__ void start(float (&dw)[NB][4], u32 dout) const
    {
        using shape = panels<DV>;
        constexpr bool IS_BF16 = same_type<cfg::operand, bf16>;
        wgmma<BM>::fence(dw);
        const u64 a = shape::descriptor(of_the_warp(rows), 16);
        const u64 b = shape::descriptor(of_the_warp(dout), 16);
#pragma unroll
        for (int i = 0; i < DV / 16; i++) {
            const int panel = i / shape::STEPS;
            const int along = i % shape::STEPS * 32;
            const u64 to = b + descriptor_step(panel * BM * shape::SPAN + along);
            if (i < FIRST) {
                wgmma<BM>::template ss<IS_BF16>(dw, a + descriptor_step(panel * BN * shape::SPAN + along), to, i != 0);
            } else {
                wgmma<BM>::template rs<IS_BF16, false>(dw, kept[i - FIRST], to, i != 0);
            }
        }
        wgmma_commit();
    }
};

// Starts 64 rows of dq' = ds K.
DEV void start_dq(float (&dq)[DK / 8][4], u32 ds, u32 keys)
{
    using shape = panels<DK>;
    wgmma<DK>::fence(dq);
    const u64 a = panels<BN>::descriptor(of_the_warp(ds), 16);
    const u64 b = shape::descriptor(of_the_warp(keys), BN * shape::SPAN);
#pragma unroll
    for (int i = 0; i < BN / 16; i++) {
        wgmma<DK>::template ss<same_type<cfg::operand, bf16>, false, true>(
            dq, a + descriptor_step(i / 4 * BM * 128 + i % 4 * 32), b + descriptor_step(i * 16 * shape::SPAN), i != 0);
    }
    wgmma_commit();
}

// A warp's ds^T, as operands, to the warpgroup's panel of the tile [query][key].
DEV void store_turned(const u32 (&x)[NB / 2][4], u32 panel)
{
    const int lane = lane_id();
    const int chunk = static_cast<int>(fresh_thread() % 128 / 32) * 2 + lane / 8 % 2;
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
        store_matrix4_transposed(panel + panels<64>::offset<BM>(16 * k + lane % 8 + lane / 16 * 8, chunk), x[k]);
    }
}

// dq' of the tile at `ds`, into the slab of this turn.
DEV void fill_slab(u32 shared, u32 keys, u32 ds, u32 turn)
{
    float dq[BM / 64][DK / 8][4];
#pragma unroll
    for (int half = 0; half < BM / 64; half++) {
        start_dq(dq[half], ds + static_cast<u32>(half * 64 * 128), keys);
    }
#pragma unroll
    for (int half = 0; half < BM / 64; half++) {
        wgmma<DK>::template wait<0>(dq[half]);
    }
    barrier_sync(SLAB_EMPTY + turn % SLABS, SLAB_THREADS);
    const u32 to = shared + layout::SLAB + turn % SLABS * layout::SLAB_BYTES + fresh_thread() % 128 * 16;
#pragma unroll
    for (int half = 0; half < BM / 64; half++) {
#pragma unroll
        for (int d = 0; d < DK / 8; d++) {
            store_shared16(to + static_cast<u32>((half * (DK / 8) + d) * 2048), dq[half][d]);
        }
    }
    fence_async_proxy();
    barrier_arrive(SLAB_FULL + turn % SLABS, SLAB_THREADS);
}

// ---- tiles -------------------------------------------------------------------------------------------

// The tile in this stage, once it is there.
DEV tile_position wait_tile(u32 shared, place_in_ring at)
{
    ring_at(shared).template wait_full<cfg::BOUND_WAITS>(at);
    return get_position(position_place(shared, at.stage));
}

struct worker {
    const back_params &p;
    u32 shared;
    u32 group; // number of the warpgroup
    u32 round;
    int key; // first key of the thread, in the tensor

    // All query tiles of the block. `now`: the first one, in the stage `from`, which ends behind that of the last one.
    // Stages take turns as the warpgroups do at dq': a tile's stage is its turn.
    __device__ __forceinline__ void run(key_sums &sums, tile_position now, place_in_ring &from) const
    {
        variant::col col[COLS];
        variant::head head = enter_head(now.head, col);
        site_sums<NB, COLS> gathered;
        const worker_sites sites{p, head, gathered,
                                 shared + layout::SUMS + static_cast<u32>(4 * TABLE_FLOATS * place().warp)};
        sites.clear();
        value_rows values{value_rows_of(shared, round) + group * 64 * panels<DV>::SPAN, {}};
        values.load();
#pragma unroll 1
        while (true) {
            const place_in_ring next_from = from.next();
            tile_position next;
            const u32 stage = from.stage;
            const u32 turn = stage;
            const u32 ds = shared + layout::DS + turn * layout::DS_BYTES;
            if (now.class_of(group) == TILE_NONE) {
                clear_ds(ds);
                next = finish_tile(now, stage, turn, next_from);
            } else {
                next = step(sums, now, stage, turn, head, col, sites, values, next_from);
            }
            if (cfg::WANT_DQ && turn == group) {
                fill_slab(shared, key_rows(shared, round), ds, turn);
            }
            from = next_from;
            if (now.last) {
                break;
            }
            if (next.head != now.head) {
                sites.end_head(col, key);
                head = enter_head(next.head, col);
                sites.clear();
            }
            now = next;
        }
        rounds_at(shared).leave_keys(keys_of(round));
        sites.end_head(col, key);
    }

    // Of a head of the group, with its columns. The block's place is found again: no registers for it in between.
    __device__ __forceinline__ variant::head enter_head(int number, variant::col (&col)[COLS]) const
    {
        const key_block at = rounds_at(shared).block(round);
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.head(number));
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            col[c] = variant::make_col(p.x, p.z, head, key + 8 * c);
        }
        return head;
    }

    // Address of the diagonal of the thread's first query and key, in a table made under way.
    __device__ __forceinline__ u32 make_table(const variant::head &head, int row0, u32 turn) const
    {
        if constexpr (variant::BACK_DIAG) {
            const u32 table = shared + layout::TABLE + (2 * group + turn) * layout::TABLE_BYTES;
            fill_table<64, 128>(table, p, head, row0, key - place().key() + static_cast<int>(group * 64),
                                static_cast<int>(fresh_thread() % 128));
            barrier_sync(OF_GROUP + group, 128);
            const int first_key = static_cast<int>(fresh_thread() % 128 / 32 * 16) + lane_id() / 4;
            return table + static_cast<u32>((2 * (lane_id() % 4) - first_key + 63) * 4);
        } else {
            return 0;
        }
    }

    // Nothing of the tile is for this warpgroup.
    __device__ __forceinline__ void clear_ds(u32 ds) const
    {
        if constexpr (cfg::WANT_DQ) {
            const u32 none[NB / 2][4] = {};
            store_turned(none, ds + group * static_cast<u32>(BM * 128));
            fence_async_proxy();
        }
    }

    // This warpgroup's ds is there. Waits for its products, gives the stage back, and tells which tile comes next.
    __device__ __forceinline__ tile_position finish_tile(const tile_position &now, u32 stage, u32 turn,
                                                         place_in_ring next_from, key_sums *sums = nullptr) const
    {
        if constexpr (cfg::WANT_DQ) {
            if (turn == group) {
                barrier_sync(DS_READY + turn, THREADS);
            } else {
                barrier_arrive(DS_READY + turn, THREADS);
            }
        }
        tile_position next = now;
        if (!now.last) {
            next = wait_tile(shared, next_from);
        }
        if (sums != nullptr) {
            if constexpr (cfg::WANT_DK) {
                wgmma<DK>::wait<0>(sums->dk);
            }
            if constexpr (cfg::WANT_DV) {
                wgmma<DV>::wait<0>(sums->dv);
            }
        }
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(ring_at(shared).empty(stage));
        }
        return next;
    }

    __device__ __forceinline__ tile_position step(key_sums &sums, const tile_position &now, u32 stage, u32 turn,
                                                  const variant::head &head, const variant::col (&col)[COLS],
                                                  const worker_sites &sites, const value_rows &values,
                                                  place_in_ring next_from) const
    {
        const u32 q = shared + layout::RING + stage * layout::STAGE;
        const u32 dout = q + layout::Q_BYTES;
        const u32 ds = shared + layout::DS + turn * layout::DS_BYTES;
        const int row0 = now.row0();
        const int seen = now.class_of(group);
        float s[NB][4];
        float dw[NB][4];
        u32 operand[NB / 2][4];
        u32 ds_operand[NB / 2][4];

        start_qk<cfg::operand, BM, DK, BN>(s, key_rows(shared, round) + group * 64 * panels<DK>::SPAN, q);
        if constexpr (WANT_DW) {
            values.start(dw, dout);
        }
        tile_pairs pairs{p,
                         head,
                         col,
                         position_place(shared, stage),
                         key,
                         shared + layout::ROWS + stage * layout::ROWS_BYTES + static_cast<u32>(16 * (lane_id() % 4)),
                         make_table(head, row0, turn)};
        live_pairs live{};
        if constexpr (KEEPS_LIVE) {
            pairs.find_live(live, seen);
        }
        float2 ahead[NB];
        pairs.load_ahead<variant::WEIGHT_READS>(ahead);
        wgmma<BM>::template wait<WANT_DW ? 1 : 0>(s);
        float w[NB][4];
        pairs.weigh(w, s, ahead);
        if constexpr (variant::NORM && EXACT_WEIGHTS) {
            if (tile_is_large(pairs.tile_rows())) {
                pairs.normalise(w);
            }
        }
        pack_weights<cfg::operand, NB>(operand, w);
        if constexpr (variant::NORM && !EXACT_WEIGHTS) {
            if (tile_is_large(pairs.tile_rows())) {
                pairs.normalise(operand);
            }
        }
        pairs.drop_dead(operand, seen, live);
        settle(operand);
        if constexpr (cfg::WANT_DV && cfg::BACK_EARLY_DV) {
            start_pv<cfg::operand, DV, BM>(sums.dv, operand, dout, 1);
        }
        if constexpr (WANT_DW) {
            pairs.load_ahead<variant::SLOPE_READS>(ahead);
            wgmma<BM>::template wait<cfg::WANT_DV && cfg::BACK_EARLY_DV ? 1 : 0>(dw);
            if constexpr (!EXACT_WEIGHTS) {
                unpack_weights(w, operand);
            }
            sites.clear_tile();
            pairs.slope(dw, s, w, ahead, sites, live);
            sites.end_tile(row0 + p.z.q_start - (key - lane_id() / 4));
        }
        if constexpr (WANT_DS) {
            pack_weights<cfg::operand, NB>(ds_operand, dw);
            pairs.drop_dead(ds_operand, seen, live);
        }
        if constexpr (cfg::WANT_DQ) {
            store_turned(ds_operand, ds + group * static_cast<u32>(BM * 128));
        }
        if constexpr (cfg::WANT_DV && !cfg::BACK_EARLY_DV) {
            start_pv<cfg::operand, DV, BM>(sums.dv, operand, dout, 1);
        }
        if constexpr (cfg::WANT_DK) {
            start_pv<cfg::operand, DK, BM>(sums.dk, ds_operand, q, 1);
        }
        fence_async_proxy(); // ds is seen by wgmma, and row values have been read before TMA brings others
        return finish_tile(now, stage, turn, next_from, &sums);
    }
};

// dk' and dv' of a warp's keys, straight to memory: what follows K and V in shared memory is on its way. keys: that
// have such.
DEV void store_sums(const back_params &p, const key_sums &sums, const key_block &at, int keys)
{
    const int warp_key = place().key0();
    const int left = keys - at.kv0 - warp_key;
    if constexpr (cfg::WANT_DV) {
        store_warp_keys<pick<cfg::DV_F32, float, cfg::element_v>::type>(
            sums.dv, 1.0f, warp_key, p.dv, at.b * p.dv_b + at.h_kv * p.dv_h, p.dv_t, at.kv0, left, cfg::D_V);
    }
    if constexpr (cfg::WANT_DK) {
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.head(0));
        store_warp_keys<pick<cfg::DK_F32, float, cfg::element_k>::type>(
            sums.dk, variant::ds_factor(p.x, p.z, head), warp_key, p.dk, at.b * p.dk_b + at.h_kv * p.dk_h, p.dk_t,
            at.kv0, left, cfg::D);
    }
}

DEV void compute_all(const hopper_back_params &params, u32 shared)
{
    const block_rounds rounds = rounds_at(shared);
    place_in_ring from{0, 0};
#pragma unroll 1
    for (u32 round = 0;; round++) {
        rounds.told().template wait_full<cfg::BOUND_WAITS>(round_place::nth(round));
        if (rounds.block(round).group == 0) {
            break;
        }
        const back_params &p = params_of_round(params.p, round);
        key_sums sums;
        clear(sums.dk);
        clear(sums.dv);
        const tile_position first = wait_tile(shared, from);
        rounds.keys().template wait_full<cfg::BOUND_WAITS>(keys_of(round));
        if (first.word != NO_TILE) {
            const worker w{p, shared, worker_group(), round, rounds.block(round).kv0 + place().key()};
            w.run(sums, first, from);
        } else {
            rounds.leave_keys(keys_of(round));
            if (lane_id() == 0) {
                mbarrier_arrive(ring_at(shared).empty(from.stage));
            }
            from = from.next();
            // a turn has been left out: no one comes to a barrier twice before another has been there
            barrier_sync(ALL_WORKERS, THREADS);
        }
        if (is_whole(p, sums, rounds, round)) {
            store_sums(p, sums, rounds.block(round), keys_of_round(p, round));
        }
        rounds.leave(round);
    }
    // the last turn may be the other warpgroup's, which meets the adder alone
    if constexpr (cfg::WANT_DQ && SLABS == 1) {
        barrier_sync(ALL_WORKERS, THREADS);
    }
    if (cfg::WANT_DQ && worker_group() < SLABS) {
        barrier_sync(SLAB_EMPTY + worker_group(), SLAB_THREADS); // as often as the other side has come
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int bwd = back::layout::BYTES;
}

#if LATHE_COMPILED(bwd)
extern "C" __global__ void __launch_bounds__(back::HOPPER_THREADS, 1)
    LATHE_ENTRY(bwd)(const __grid_constant__ hopper_back_params params)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    if (threadIdx.x == 0) {
        ring_at(shared).init(WARPS);
        rounds_at(shared).init();
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<LOADER_REGISTERS>();
        const u32 warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0);
        if (warp == 0) {
            load_all(params, shared);
        } else if (warp == 1 && cfg::WANT_DQ) {
            add_all(params, shared);
        }
    } else {
        registers_up<WORKER_REGISTERS>();
        compute_all(params, shared);
    }
}
#endif
