// attention/backward/wide_sm90.cuh: attention backward for sm_90a, head dims 128 to 256: the work of
// attention/backward/sm90.cuh where a warpgroup has no registers for whole rows of dk' and dv'.
//
// A block takes 64 keys of one key head. Two warpgroups share them: of a tile each has 64 of the 128 queries for s^T =
// K Q^T and dw^T = V dO^T, and half the columns of dk' and dv', for which it needs the weights and ds of all queries:
// its own are A operands in registers, the other's come through shared memory. dq' of its own queries it adds to memory
// from registers: in pairs of blocks half the columns of it, for the keys of both
// (attention/backward/wide_sm90_peer.cuh).
#pragma once
#include "attention/backward/sm90_pairs.cuh"
#include "attention/backward/sm90_store.cuh"
#include "attention/backward/wide_sm90_layout.cuh"

namespace back
{

struct key_sums { // of this warpgroup's columns
    float dk[PART_K / 8][4];
    float dv[PART_V / 8][4];
};

// ---- products ----------------------------------------------------------------------------------------

// Without panels nothing keeps a warpgroup from being two tiles ahead of the other, and arriving twice where that one
// has not been once.
constexpr bool HAS_PANELS = cfg::WANT_DV || WANT_DS;

constexpr bool IS_BF16 = same_type<cfg::operand, bf16>;

// In a cluster a shared address has the block's rank in bits 24 and up.
DEV u32 matrix_at(u32 address) { return of_the_warp(PAIRED ? address & 0xffffffu : address); }

// Starts x = A B^T: the block's keys of K or V, and 64 queries of Q or dO from `b` on. PART: columns of a part.
template <int PART> DEV void start_turned(float (&x)[NB][4], u32 keys, u32 queries)
{
    using shape = panels<PART>;
    wgmma<64>::fence(x);
    const u64 a = shape::descriptor(matrix_at(keys), 16);
    const u64 b = shape::descriptor(matrix_at(queries), 16);
#pragma unroll
    for (int i = 0; i < SPLIT * PART / 16; i++) {
        const int panel = i / shape::STEPS;
        const int along = i % shape::STEPS * 32;
        wgmma<64>::ss<IS_BF16>(x, a + descriptor_step(panel * BN * shape::SPAN + along),
                               b + descriptor_step(panel * BM * shape::SPAN + along), i != 0);
    }
    wgmma_commit();
}

// Starts out += X^T Y of 64 queries, `rows` their rows in this warpgroup's columns of Q or dO. X^T: operands in
// registers.
template <int PART> DEV void start_own(float (&out)[PART / 8][4], const u32 (&x)[NB / 2][4], u32 rows)
{
    using shape = panels<PART>;
    wgmma<PART>::fence(out);
    const u64 b = shape::descriptor(matrix_at(rows), BM * shape::SPAN);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma<PART>::template rs<IS_BF16>(out, x[i], b + descriptor_step(i * 16 * shape::SPAN), 1);
    }
    wgmma_commit();
}
// The same; X^T is the panel [key][query].
template <int PART> DEV void start_other(float (&out)[PART / 8][4], u32 panel, u32 rows)
{
    using shape = panels<PART>;
    wgmma<PART>::fence(out);
    const u64 a = panels<64>::descriptor(matrix_at(panel), 16);
    const u64 b = shape::descriptor(matrix_at(rows), BM * shape::SPAN);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma<PART>::template ss<IS_BF16, false, true>(out, a + descriptor_step(i * 32),
                                                       b + descriptor_step(i * 16 * shape::SPAN), 1);
    }
    wgmma_commit();
}

// Starts dq' = ds K of 64 queries and the columns of one part: ds is the panel [key][query]. ADDS: to what is there.
template <bool ADDS = false> DEV void start_dq(float (&dq)[PART_K / 8][4], u32 panel, u32 keys)
{
    using shape = panels<PART_K>;
    wgmma<PART_K>::fence(dq);
    const u64 a = panels<64>::descriptor(matrix_at(panel), 16);
    const u64 b = shape::descriptor(matrix_at(keys), BN * shape::SPAN);
#pragma unroll
    for (int i = 0; i < BN / 16; i++) {
        wgmma<PART_K>::ss<IS_BF16, true, true>(dq, a + descriptor_step(i * 16 * 128),
                                               b + descriptor_step(i * 16 * shape::SPAN), ADDS || i != 0);
    }
    wgmma_commit();
}

// A warp's 16 keys of weights or ds to the warpgroup's panel [key][query].
DEV void store_panel(const u32 (&x)[NB / 2][4], u32 panel)
{
    const place at;
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
        store_matrix4(panel + panels<64>::offset<64>(at.key0() + at.lane % 16, 2 * k + at.lane / 16), x[k]);
    }
    fence_async_proxy();
}

// ---- tiles -------------------------------------------------------------------------------------------

// The tile in this stage, once it is there.
DEV tile_position wait_tile(u32 shared, q_place q)
{
    q_ring(shared).template wait_full<BOUND_WORKERS>(q, "Q");
    return get_position(position_place(shared, q.stage));
}

struct worker {
    const back_params &p;
    u32 shared;
    u32 group; // number of the warpgroup: of its part
    u32 round;
    int key; // first key of the thread, in the tensor

    __device__ __forceinline__ u32 other() const { return group ^ 1u; }
    __device__ __forceinline__ u32 weights_of(u32 part) const
    {
        return shared + layout::W + part * layout::PANEL_BYTES;
    }
    __device__ __forceinline__ u32 ds_of(u32 part) const { return shared + layout::DS + part * layout::PANEL_BYTES; }

    // All query tiles of the block. `now`: the first one, in the places that end behind those of the last one.
    __device__ __forceinline__ void run(key_sums &sums, tile_position now, q_place &q, do_place &dout) const
    {
        variant::col col[COLS];
        variant::head head = enter_head(now.head, col);
        site_sums<NB, COLS> gathered;
        const worker_sites sites{p, head, gathered,
                                 shared + layout::SUMS + static_cast<u32>(4 * TABLE_FLOATS * place().warp)};
        sites.clear();
        bool first = true;
#pragma unroll 1
        while (true) {
            step(sums, now, q, dout, first, head, col, sites);
            q = q.next();
            dout = dout.next();
            if (now.last) {
                break;
            }
            first = false;
            const tile_position next = wait_tile(shared, q);
            if (next.head != now.head) {
                sites.end_head(col, key);
                head = enter_head(next.head, col);
                sites.clear();
            }
            now = next;
        }
        rounds_at(shared).leave_keys(place_of_round<1>(round));
        sites.end_head(col, key);
        barrier_sync(ALL_WORKERS, THREADS); // no one reads panels any more
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

    // Address of the diagonal of the thread's first query and key. The table of the tile before has been read:
    // DS_READY.
    __device__ __forceinline__ u32 make_table(const variant::head &head, int row0) const
    {
        if constexpr (variant::BACK_DIAG) {
            const u32 table = shared + layout::TABLE + group * layout::TABLE_BYTES;
            const int thread = static_cast<int>(fresh_thread() % 128);
            for (int i = thread; i < 64 + 63; i += 128) {
                store_shared(
                    table + static_cast<u32>(i * 4),
                    variant::make_back_diag(p.x, p.z, head, row0 + p.z.q_start - (key - place().key()) - 63 + i));
            }
            barrier_sync(OF_GROUP + group, 128);
            return table + static_cast<u32>((2 * (thread % 4) - (thread / 32 * 16 + lane_id() / 4) + 63) * 4);
        } else {
            return 0;
        }
    }

    // Behind the last product with V.
    __device__ __forceinline__ void leave_values(const tile_position &now) const
    {
        if (now.last) {
            rounds_at(shared).leave_values(place_of_round<1>(round));
        }
    }

    __device__ __forceinline__ void leave(u32 empty) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            mbarrier_arrive(empty);
        }
    }

    __device__ __forceinline__ void step(key_sums &sums, const tile_position &now, q_place q_at, do_place do_at,
                                         bool first, const variant::head &head, const variant::col (&col)[COLS],
                                         const worker_sites &sites) const
    {
        using k_shape = panels<PART_K>;
        using v_shape = panels<PART_V>;
        const u32 q = shared + layout::Q + q_at.stage * layout::Q_BYTES;
        const u32 dout = shared + layout::DO;
        const int row0 = now.row0() + static_cast<int>(group * 64);
        const int seen = now.class_of(group);
        float s[NB][4];
        float dw[NB][4];
        u32 operand[NB / 2][4];
        u32 ds_operand[NB / 2][4];

        if constexpr (PAIRED) {
            peer_at(shared).x().template wait_full<BOUND_WORKERS>({0, 0}, "own half of K");
        }
        start_turned<PART_K>(s, shared + layout::K, q + group * 64 * k_shape::SPAN);
        do_ring(shared).template wait_full<BOUND_WORKERS>(do_at, "dO");
        if constexpr (WANT_DW) {
            start_turned<PART_V>(dw, shared + layout::V, dout + group * 64 * v_shape::SPAN);
        }
        const place here;
        tile_pairs pairs{p,
                         head,
                         col,
                         position_place(shared, q_at.stage),
                         key,
                         shared + layout::ROWS + q_at.stage * layout::ROWS_BYTES + static_cast<u32>(4 * here.query()),
                         make_table(head, row0)};
        live_pairs live{};
        if constexpr (KEEPS_LIVE) {
            pairs.find_live(live, seen);
        }
        float2 ahead[NB];
        pairs.load_ahead<variant::WEIGHT_READS>(ahead);
        wgmma<64>::wait<WANT_DW ? 1 : 0>(s);
        if constexpr (PAIRED) {
            leave(peer_at(shared).x().empty(0));
        }
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
        if (HAS_PANELS && !first) {
            barrier_sync(PANELS_READ + other(), THREADS);
        }
        if constexpr (cfg::WANT_DV) {
            store_panel(operand, weights_of(group));
            barrier_arrive(W_READY + group, THREADS);
            start_own<PART_V>(sums.dv, operand,
                              dout + group * (BM * PART_V * ELEMENT_BYTES<cfg::element_o>)+group * 64 * v_shape::SPAN);
            if constexpr (PAIRED) {
                start_other_dv(sums, dout); // weights' panels take the other block's ds as soon as they have been read
            }
        }
        if constexpr (WANT_DW) {
            pairs.load_ahead<variant::SLOPE_READS>(ahead);
            wgmma<64>::wait<cfg::WANT_DV ? PAIR : 0>(dw);
            leave_values(now);
            if constexpr (!EXACT_WEIGHTS) {
                unpack_weights(w, operand);
            }
            sites.clear_tile();
            pairs.slope(dw, s, w, ahead, sites, live);
            sites.end_tile(row0 + p.z.q_start - (key - lane_id() / 4));
        } else {
            leave_values(now);
        }
        if constexpr (PAIRED) {
            if constexpr (cfg::WANT_DV) {
                wgmma<PART_V>::template wait<0>(sums.dv);
            }
            leave(peer_at(shared).w_read(read_panel()));
            leave(do_ring(shared).empty(0));
        }
        if constexpr (WANT_DS) {
            pack_weights<cfg::operand, NB>(ds_operand, dw);
            pairs.drop_dead(ds_operand, seen, live);
            if constexpr (PAIRED) {
                // that of the tile before has been sent
                wait_phase<BOUND_WORKERS>(peer_at(shared).got(group), do_at.parity ^ 1u, "ds sent, worker");
            }
            barrier_sync(OF_GROUP + group, 128); // its warps have read the panel of the tile before
            store_panel(ds_operand, ds_of(group));
            if constexpr (PAIRED) {
                leave(peer_at(shared).made(group));
            }
            barrier_arrive(DS_READY + group, THREADS);
        } else {
            fence_async_proxy(); // row values have been read before TMA brings others
        }
        if constexpr (cfg::WANT_DV && !PAIRED) {
            start_other_dv(sums, dout);
        }
        if constexpr (cfg::WANT_DK) {
            start_own<PART_K>(sums.dk, ds_operand,
                              q + group * (BM * PART_K * ELEMENT_BYTES<cfg::element_q>)+group * 64 * k_shape::SPAN);
        }
        if constexpr (WANT_DS) {
            barrier_sync(DS_READY + other(), THREADS);
        }
        if constexpr (cfg::WANT_DK) {
            start_other<PART_K>(sums.dk, ds_of(other()),
                                q + group * (BM * PART_K * ELEMENT_BYTES<cfg::element_q>)+other() * 64 * k_shape::SPAN);
        }
        if constexpr (!PAIRED) {
            if constexpr (cfg::WANT_DV) {
                wgmma<PART_V>::template wait<cfg::WANT_DK ? 2 : 0>(sums.dv);
            }
            leave(do_ring(shared).empty(0));
        }
        if constexpr (cfg::WANT_DK) {
            wgmma<PART_K>::template wait<0>(sums.dk);
        }
        leave(q_ring(shared).empty(q_at.stage));
        if (HAS_PANELS && !now.last) {
            barrier_arrive(PANELS_READ + group, THREADS);
        }
        if constexpr (cfg::WANT_DQ) {
            barrier_sync(OF_GROUP + group, 128); // this warpgroup's ds is there
            if constexpr (PAIRED) {
                add_pair_dq(now, do_at);
            } else {
                add_dq(now, do_at);
            }
        }
    }

    // Where PAIRED: the panel whose W_READ this warp is counted at. It was full of ds that the panel's own warpgroup
    // has read.
    __device__ __forceinline__ u32 read_panel() const { return cfg::WANT_DV ? other() : group; }

    __device__ __forceinline__ void start_other_dv(key_sums &sums, u32 dout) const
    {
        barrier_sync(W_READY + other(), THREADS);
        start_other<PART_V>(sums.dv, weights_of(other()),
                            dout + group * (BM * PART_V * ELEMENT_BYTES<cfg::element_o>)+other() * 64 *
                                       panels<PART_V>::SPAN);
    }

    // Of this warpgroup's 64 queries of the tile and this block's half of the columns, for the keys of both blocks.
    __device__ __forceinline__ void add_pair_dq(const tile_position &now, do_place at) const
    {
        const peer_places peer = peer_at(shared);
        const u32 mine = cluster_rank();
        constexpr u32 HALF = BN * PART_K * ELEMENT_BYTES<cfg::element_k>;
        float dq[PART_K / 8][4];
        start_dq(dq, ds_of(group), shared + layout::K + mine * HALF);
        peer.x().template wait_full<BOUND_WORKERS>({0, 1}, "other half of K");
        wait_phase<BOUND_WORKERS>(peer.full(group), at.parity, "ds of the other, worker");
        start_dq<true>(dq, weights_of(group), shared + layout::K + (mine ^ 1u) * HALF);
        wgmma<PART_K>::template wait<0>(dq);
        leave(peer.x().empty(0));
        float *to = dq_place(now) + static_cast<i64>(mine * (PART_K / 8)) * 512;
        dq_ring(shared).template wait_full<BOUND_WORKERS>(at, "turn, worker");
        put_dq(to, dq, __float_as_uint(load_shared(shared + layout::FIRST)) != 0);
        leave(dq_ring(shared).empty(0));
    }

    __device__ __forceinline__ float *dq_place(const tile_position &now) const
    {
        const key_block block = rounds_at(shared).block(round);
        const i64 line = tile_line(p.z, own_batch(p, block.b), block.head(now.head)) + now.tile();
        return p.dq + line * dq_shape::FLOATS + static_cast<i64>(group * 64 * DK + fresh_thread() % 128 * 4);
    }
    __device__ __forceinline__ void put_dq(float *to, const float (&dq)[PART_K / 8][4], bool store) const
    {
        if (store) {
#pragma unroll
            for (int d = 0; d < PART_K / 8; d++) {
                store_vec<4, float>(to + d * 512, dq[d]);
            }
        } else {
#pragma unroll
            for (int d = 0; d < PART_K / 8; d++) {
                add_global4(to + d * 512, dq[d]);
            }
        }
    }

    // Of this warpgroup's 64 queries of the tile. Turns at dq go as those at dO.
    __device__ __forceinline__ void add_dq(const tile_position &now, do_place at) const
    {
        float *to = dq_place(now);
        dq_ring(shared).template wait_full<BOUND_WORKERS>(at, "turn, worker");
        const bool store = __float_as_uint(load_shared(shared + layout::FIRST)) != 0;
#pragma unroll
        for (int part = 0; part < SPLIT; part++) {
            float dq[PART_K / 8][4];
            start_dq(dq, ds_of(group),
                     shared + layout::K + static_cast<u32>(part * BN * PART_K * ELEMENT_BYTES<cfg::element_k>));
            wgmma<PART_K>::template wait<0>(dq);
            put_dq(to + part * (PART_K / 8) * 512, dq, store);
        }
        leave(dq_ring(shared).empty(0));
    }
};

// dk' and dv' of a warp's keys and this warpgroup's columns. keys: that have such.
DEV void store_sums(const back_params &p, const key_sums &sums, const key_block &at, int keys)
{
    const int warp_key = static_cast<int>(fresh_thread() % 128 / 32 * 16); // first key of the warp, in the block
    const int left = keys - at.kv0 - warp_key;
    const int part = static_cast<int>(worker_group());
    if constexpr (cfg::WANT_DV) {
        store_warp_keys<pick<cfg::DV_F32, float, cfg::element_v>::type>(
            sums.dv, 1.0f, warp_key, p.dv, at.b * p.dv_b + at.h_kv * p.dv_h + part * PART_V, p.dv_t, at.kv0, left,
            min(PART_V, cfg::D_V - part * PART_V));
    }
    if constexpr (cfg::WANT_DK) {
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.head(0));
        store_warp_keys<pick<cfg::DK_F32, float, cfg::element_k>::type>(
            sums.dk, variant::ds_factor(p.x, p.z, head), warp_key, p.dk,
            at.b * p.dk_b + at.h_kv * p.dk_h + part * PART_K, p.dk_t, at.kv0, left,
            min(PART_K, cfg::D - part * PART_K));
    }
}

// Where PAIRED: tells the warp that relays this warpgroup's panel that no tile comes any more. All eight warps are
// counted where they are in a tile.
DEV void end_relay(u32 shared)
{
    const peer_places peer = peer_at(shared);
    const u32 panel = cfg::WANT_DV ? worker_group() ^ 1u : worker_group();
    if (lane_id() == 0) {
        if (place().key0() == 0) {
            store_shared(peer.ended(panel), 1u);
        }
        mbarrier_arrive(peer.w_read(panel));
    }
}

DEV void compute_all(const hopper_back_params &params, u32 shared)
{
    const block_rounds rounds = rounds_at(shared);
    q_place q{0, 0};
    do_place dout{0, 0};
#pragma unroll 1
    for (u32 round = 0;; round++) {
        rounds.told().template wait_full<BOUND_WORKERS>(round_place::nth(round), "round, worker");
        if (rounds.block(round).group == 0) {
            break;
        }
        const back_params &p = params_of_round(params.p, round);
        key_sums sums;
        clear(sums.dk);
        clear(sums.dv);
        const tile_position first = wait_tile(shared, q);
        rounds.keys().template wait_full<BOUND_WORKERS>(place_of_round<1>(round), "K");
        rounds.values().template wait_full<BOUND_WORKERS>(place_of_round<1>(round), "V");
        if (first.word != NO_TILE) {
            const int key = rounds.block(round).kv0 + static_cast<int>(fresh_thread() % 128 / 32 * 16) + lane_id() / 4;
            const worker w{p, shared, worker_group(), round, key};
            w.run(sums, first, q, dout);
        } else {
            rounds.leave_keys(place_of_round<1>(round));
            rounds.leave_values(place_of_round<1>(round));
            if (lane_id() == 0) {
                mbarrier_arrive(q_ring(shared).empty(q.stage));
            }
            q = q.next();
        }
        if (is_whole(p, sums, rounds, round)) {
            store_sums(p, sums, rounds.block(round), keys_of_round(p, round));
        }
        rounds.leave(round);
    }
    if constexpr (PAIRED) {
        end_relay(shared);
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

#ifndef LATHE_CLUSTER // not in pairs
#define LATHE_CLUSTER
#endif
namespace smem_bytes
{
constexpr int bwd = back::layout::BYTES;
}

#if LATHE_COMPILED(bwd)
extern "C" __global__ void LATHE_CLUSTER __launch_bounds__(back::HOPPER_THREADS, 1)
    LATHE_ENTRY(bwd)(const __grid_constant__ hopper_back_params params)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    if (threadIdx.x == 0) {
        q_ring(shared).init(WARPS);
        do_ring(shared).init(WARPS);
        dq_ring(shared).init(WARPS);
        rounds_at(shared).init();
        if constexpr (PAIRED) {
            peer_at(shared).init();
        }
        mbarrier_init_fence();
    }
    if constexpr (PAIRED) {
        __syncwarp();
        cluster_barrier<2>();
    } else {
        __syncthreads();
    }
    if (threadIdx.x < 128) {
        registers_down<LOADER_REGISTERS>();
        const u32 warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0);
        if (warp == 0) {
            load_all(params, shared);
        } else if (warp == 1 && cfg::WANT_DQ) {
            add_all(params, shared);
        } else if (PAIRED && warp >= 2 && elect_one()) {
            const u32 g = warp - 2, at = g * layout::PANEL_BYTES;
            relay_panel(peer_at(shared), g, shared + layout::W + at, shared + layout::DS + at, layout::PANEL_BYTES);
        }
    } else {
        registers_up<WORKER_REGISTERS>();
        compute_all(params, shared);
    }
    if constexpr (PAIRED) { // the other's arrivals find this block's memory
        __syncwarp();
        cluster_barrier<2>();
    }
}
#endif
