// attention_bwd_sm90.cuh: attention backward for sm_90a: the work of attention_bwd_sm80.cuh by TMA and wgmma.
//
// A block takes BN = 128 keys of one key head. Two warpgroups own 64 of them each: s^T = K Q^T, dw^T = V dO^T, and
// dv' += w^T dO, dk' += ds^T Q with w^T and ds^T as A operands in registers. Only ds^T goes through shared memory: dq' =
// ds K needs both halves. The warpgroups take turns at it: one computes dq' of a tile alone, the other only announces
// its half of ds^T and goes on, so they run half a tile apart and one's pairs lie under the other's products.
// Of the first warpgroup one warp walks the query tiles and loads them; another adds finished tiles of dq' to memory.
#pragma once
#include "back_pairs.cuh"
#include "tma_sm90.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::element, f16> || same_type<cfg::element, bf16>, "cfg::element is f16 or bf16");
static_assert(cfg::D % 8 == 0 && cfg::D_V % 8 == 0, "cfg::D and cfg::D_V are multiples of 8: TMA takes strides of 16 bytes");
static_assert(back::DK <= 128 && back::DV <= 128, "cfg::D and cfg::D_V are at most 128: registers hold dk' and dv'");
static_assert(back::WARPS == 8 && back::SPLIT == 1 && back::BN == 128, "two warpgroups of 64 keys each");
static_assert(back::BM == 64 || (back::BM == 128 && back::DK <= 64 && back::DV <= 64),
              "cfg::BACK_BM is 64, or 128 up to 64 columns: registers hold the scores");

struct hopper_back_params { // what the kernel takes; the maps are made of the rest at launch
    tensor_map q, k, v, dout;
    back_params p;
};

// Bytes of dynamic shared memory. As C, for the planner (dk, dv: d and d_v rounded up to 16):
//     smem = 128 * (dk + dv) * 2 + stages * bm * (dk + dv) * 2 + (want_dq ? 2 * 128 * bm * 2 + bm * dk * 4 : 0)
//         + stages * (rows * bm * 4 + 32) + (diag ? 16 * (bm + 64) : 0) + 48
__host__ __device__ constexpr int hopper_back_smem_bytes(int bm, int stages, int dk, int dv, int rows, bool want_dq,
                                                         bool diag)
{
    return 128 * (dk + dv) * 2 + stages * bm * (dk + dv) * 2 + (want_dq ? 2 * 128 * bm * 2 + bm * dk * 4 : 0) +
           stages * (rows * bm * 4 + 32) + (diag ? 16 * (bm + 64) : 0) + 48;
}

namespace back {

constexpr int LOADER_REGISTERS = 24; // of a thread; what the first warpgroup gives up goes to the others
constexpr int WORKER_REGISTERS = 240;

enum named_barrier { BAR_WORKERS = 1, BAR_SLAB_EMPTY = 2, BAR_SLAB_FULL = 3, BAR_GROUP = 4 /* and 5 */, BAR_DS = 6 /* and 7 */ };
constexpr u32 WORKERS = 256;      // threads that compute
constexpr u32 SLAB_USERS = 128 + 32; // a warpgroup and the warp that adds
constexpr u32 NO_LINE = ~0u;

struct layout { // offsets in bytes
    static constexpr int Q_BYTES = BM * DK * 2, DO_BYTES = BM * DV * 2, ROWS_BYTES = variant::BACK_ROWS * BM * 4;
    static constexpr int DS_BYTES = cfg::WANT_DQ ? BN * BM * 2 : 0;
    static constexpr int K = 0;
    static constexpr int V = K + BN * DK * 2;
    static constexpr int Q = V + BN * DV * 2; // stages, one after the other
    static constexpr int DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * DO_BYTES; // two of them
    static constexpr int SLAB = DS + 2 * DS_BYTES;    // a tile of dq'
    static constexpr int ROWS = SLAB + (cfg::WANT_DQ ? dq_shape::FLOATS * 4 : 0);
    static constexpr int TABLE_BYTES = variant::BACK_DIAG ? 4 * (BM + 64) : 0; // two of each warpgroup
    static constexpr int TABLE = ROWS + STAGES * ROWS_BYTES;
    static constexpr int POSITIONS = TABLE + 4 * TABLE_BYTES; // of each stage, 16 bytes
    static constexpr int LINE = POSITIONS + 16 * STAGES;      // of the tile in the slab
    static constexpr int RING = LINE + 16;
    static constexpr int KV_BARRIER = RING + 16 * STAGES;
    static constexpr int NUMBER = KV_BARRIER + 8; // of the block, under DETERMINISTIC
    static constexpr int BYTES =
        hopper_back_smem_bytes(BM, STAGES, DK, DV, variant::BACK_ROWS, cfg::WANT_DQ, variant::BACK_DIAG);
    static_assert(NUMBER + 24 == BYTES && Q % 1024 == 0 && DO % 1024 == 0 && DS % 1024 == 0 && SLAB % 1024 == 0);
};

using ring_at = ring_place<STAGES>;
DEV ring_barriers<STAGES> ring(u32 shared) { return {shared + layout::RING}; }

// ---- products ---------------------------------------------------------------------------------------------

// Starts t = A B^T: this warpgroup's 64 keys of K or V (`a`: its first row), and the BM queries of Q or dO; COLS deep.
template <int COLS> DEV void start_turned(float (&t)[NB][4], u32 a, u32 b)
{
    using shape = panels<COLS>;
    wgmma<BM>::fence(t);
    const u64 keys = shape::descriptor(of_the_warp(a), 16);
    const u64 queries = shape::descriptor(of_the_warp(b), 16);
#pragma unroll
    for (int i = 0; i < COLS / 16; i++) {
        const int panel = i / shape::STEPS;
        const int along = i % shape::STEPS * 32;
        wgmma<BM>::template ss<same_type<element, bf16>>(t, keys + descriptor_step(panel * BN * shape::SPAN + along),
                                                         queries + descriptor_step(panel * BM * shape::SPAN + along),
                                                         i != 0);
    }
    wgmma_commit();
}

// Starts 64 rows of dq' = ds K. `ds`: those 64 queries of ds^T, which is stored [key][query].
DEV void start_dq(float (&dq)[DK / 8][4], u32 ds, u32 k)
{
    wgmma<DK>::fence(dq);
    const u64 queries = panels<64>::descriptor(of_the_warp(ds), BN * 128);
    const u64 keys = panels<DK>::descriptor(of_the_warp(k), BN * panels<DK>::SPAN);
#pragma unroll
    for (int i = 0; i < BN / 16; i++) {
        wgmma<DK>::template ss<same_type<element, bf16>, true, true>(
            dq, queries + descriptor_step(i * 16 * 128), keys + descriptor_step(i * 16 * panels<DK>::SPAN), i != 0);
    }
    wgmma_commit();
}

// ---- the warp that loads ------------------------------------------------------------------------------------

DEV void load_queries(const hopper_back_params &params, u32 shared, const key_block &at, const position &to, u32 stage)
{
    const back_params &p = params.p;
    const int h = at.h_kv * (p.z.n_h / p.z.n_h_kv) + to.head;
    const u32 full = ring(shared).full(stage);
    mbarrier_arrive_expect(full, layout::Q_BYTES + layout::DO_BYTES + layout::ROWS_BYTES);
    load_tile<BM, DK>(shared + layout::Q + stage * layout::Q_BYTES, &params.q, full, to.tile * BM, h, at.b, L2_KEEP);
    load_tile<BM, DV>(shared + layout::DO + stage * layout::DO_BYTES, &params.dout, full, to.tile * BM, h, at.b, L2_KEEP);
    const i64 stride = static_cast<i64>(query_tiles(p.z)) * BM * p.z.n_b * p.z.n_h;
    const float *rows = p.rows + (tile_line(p.z, at.b, h) + to.tile) * BM;
#pragma unroll
    for (int k = 0; k < variant::BACK_ROWS; k++) {
        tma_load_line(shared + layout::ROWS + stage * layout::ROWS_BYTES + static_cast<u32>(k * BM * 4),
                      rows + k * stride, BM * 4, full);
    }
}

DEV void load_all(const hopper_back_params &params, u32 shared, const key_block &at)
{
    const bool leader = elect_one();
    const int group = params.p.z.n_h / params.p.z.n_h_kv;
    if (leader) {
        const u32 barrier = shared + layout::KV_BARRIER;
        mbarrier_arrive_expect(barrier, BN * (DK + DV) * 2);
        load_tile<BN, DK>(shared + layout::K, &params.k, barrier, at.kv0, at.h_kv, at.b, L2_STREAM);
        load_tile<BN, DV>(shared + layout::V, &params.v, barrier, at.kv0, at.h_kv, at.b, L2_STREAM);
    }
    walk tiles;
    position now{0, -32, false};
    ring_at to{0, 0};
#pragma unroll 1
    do {
        now = tiles.next(now, params.p, at);
        if (leader) {
            ring(shared).wait_empty(to);
            keep_position(shared + layout::POSITIONS + 16 * to.stage, now);
            if (now.head < group) {
                load_queries(params, shared, at, now, to.stage);
            } else {
                mbarrier_arrive(ring(shared).full(to.stage));
            }
        }
        to = to.next();
        __syncwarp();
    } while (now.head < group);
}

// ---- the warp that adds dq' -----------------------------------------------------------------------------------

// With the slab comes the number of its tile, and the head of the group beside it.
DEV void add_all(const hopper_back_params &params, u32 shared, const key_block &at)
{
    const back_params &p = params.p;
    const bool leader = elect_one();
#pragma unroll 1
    while (true) {
        barrier_arrive(BAR_SLAB_EMPTY, SLAB_USERS);
        barrier_sync(BAR_SLAB_FULL, SLAB_USERS);
        const int head = kept_head(shared + layout::LINE);
        const int tile = kept_tile(shared + layout::LINE);
        if (tile < 0) {
            break;
        }
        const int h = at.h_kv * (p.z.n_h / p.z.n_h_kv) + head;
        const i64 line = tile_line(p.z, at.b, h) + tile;
        u32 before = 0;
        if constexpr (cfg::DETERMINISTIC) {
            before = turn_of(p, at, variant::make_head(p.x, p.z, at.b, h), h, tile);
        }
        if (leader) {
            if constexpr (cfg::DETERMINISTIC) {
                wait_turn(p.order + line, before);
            }
            tma_add_line(p.dq + line * dq_shape::FLOATS, shared + layout::SLAB, dq_shape::FLOATS * 4, L2_KEEP);
            tma_commit();
            if constexpr (cfg::DETERMINISTIC) {
                tma_wait<0>();
                fence_async_global();
                end_turn(p.order + line);
            } else {
                tma_wait_read<0>();
            }
        }
        __syncwarp();
    }
}

// ---- the warpgroups that compute --------------------------------------------------------------------------------

struct worker {
    float dk[1][DBK][4];
    float dv[1][DBV][4];
    u32 shared;
    ring_at from;
    u32 round; // of tiles: the parity says whose turn at dq' it is
};

DEV u32 my_group() // as one register for the warp
{
    return __shfl_sync(ALL_LANES, fresh_thread() / 128 - 1, 0);
}

// This warpgroup's 64 keys of ds^T to its tile in shared memory.
DEV void store_ds(const u32 (&ds)[NB / 2][4], u32 tile)
{
    const place at;
#pragma unroll
    for (int b = 0; b < NB / 2; b++) {
        store_matrix4(tile + panels<BM>::offset<BN>(at.key0() + (at.lane & 15), 2 * b + at.lane / 16), ds[b]);
    }
    fence_async_proxy();
}

// dq' of the tile, by one warpgroup, to the slab, once that is empty.
DEV void make_dq(u32 shared, u32 ds, int head, int tile)
{
    constexpr int PARTS = BM / 64;
    float dq[PARTS][DK / 8][4];
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        start_dq(dq[i], ds + static_cast<u32>(i * BN * 128), shared + layout::K);
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        wgmma<DK>::wait<0>(dq[i]);
    }
    barrier_sync(BAR_SLAB_EMPTY, SLAB_USERS);
    const u32 thread = fresh_thread() % 128;
    const u32 to = shared + layout::SLAB + thread * 16;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
#pragma unroll
        for (int d = 0; d < DK / 8; d++) {
            store_shared16(to + static_cast<u32>((i * (DK / 8) + d) * 2048), dq[i][d]);
        }
    }
    if (thread == 0) {
        keep_position(shared + layout::LINE, {head, tile, false});
    }
    fence_async_proxy();
    barrier_arrive(BAR_SLAB_FULL, SLAB_USERS);
}

// Weights and gradients of scores of the tile at hand, which is there.
DEV void weigh(float (&s)[1][NB][4], float (&dw)[1][NB][4], const worker &w, const back_params &p, const variant::head &head,
               const variant::col (&col)[COLS], const site_context<NB, COLS> &sites, int kv0)
{
    const u32 shared = w.shared;
    const u32 slot = shared + layout::POSITIONS + 16 * w.from.stage;
    const int row0 = kept_tile(slot) * BM;
    const bool whole = kept_whole(slot);
    const u32 group = my_group();
    u32 entry = 0;
    if constexpr (variant::BACK_DIAG) {
        const u32 table = shared + layout::TABLE + (2 * group + (w.round & 1)) * layout::TABLE_BYTES;
        fill_table<64, 128>(table, p, head, row0, kv0 + 64 * static_cast<int>(group), static_cast<int>(fresh_thread() % 128));
        barrier_sync(BAR_GROUP + group, 128);
        const place at;
        entry = table + static_cast<u32>((at.query() - at.key() % 64 + 63) * 4);
    }
    wgmma<BM>::wait<0>(s[0]);
    if constexpr (WANT_DW) {
        wgmma<BM>::wait<0>(dw[0]);
    }
    const place at;
    const u32 rows = shared + layout::ROWS + w.from.stage * layout::ROWS_BYTES + static_cast<u32>(at.query() * 4);
    const int key = kv0 + at.key();
    sites.clear_tile();
    if (whole) {
        pairs<true>(s, dw, p, head, col, sites, row0 + at.query(), key, rows, entry);
    } else {
        pairs<false>(s, dw, p, head, col, sites, row0 + at.query(), key, rows, entry);
    }
    sites.end_tile(row0 + p.z.q_start - (kv0 + at.key0()));
}

// One tile, up to dq'. The stage is given back.
DEV void compute_tile(worker &w, const hopper_back_params &params, const variant::head &head, const variant::col (&col)[COLS],
                      const site_context<NB, COLS> &sites, int kv0, int number, int tile)
{
    const u32 shared = w.shared;
    const u32 group = my_group();
    const u32 q = shared + layout::Q + w.from.stage * layout::Q_BYTES;
    const u32 dout = shared + layout::DO + w.from.stage * layout::DO_BYTES;
    const u32 ds_tile = shared + layout::DS + (w.round & 1) * layout::DS_BYTES;
    u32 weights[NB / 2][4];
    u32 ds[NB / 2][4];
    {
        float s[1][NB][4];
        float dw[1][NB][4];
        start_turned<DK>(s[0], shared + layout::K + group * 64 * panels<DK>::SPAN, q);
        if constexpr (WANT_DW) {
            start_turned<DV>(dw[0], shared + layout::V + group * 64 * panels<DV>::SPAN, dout);
        } else {
            clear(dw);
        }
        weigh(s, dw, w, params.p, head, col, sites, kv0);
        pack_weights<element, NB>(weights, s[0]);
        pack_weights<element, NB>(ds, dw[0]);
    }
    if constexpr (cfg::WANT_DQ) {
        store_ds(ds, ds_tile);
    }
    if constexpr (cfg::WANT_DV) {
        start_pv<element, DV, BM>(w.dv[0], weights, dout, 1);
    }
    if constexpr (cfg::WANT_DK) {
        start_pv<element, DK, BM>(w.dk[0], ds, q, 1);
    }
    const bool mine = (w.round & 1) == group;
    if constexpr (cfg::WANT_DQ) {
        if (mine) {
            barrier_sync(BAR_DS + group, WORKERS);
        } else {
            barrier_arrive(BAR_DS + (group ^ 1), WORKERS);
        }
    }
    if constexpr (cfg::WANT_DV) {
        wgmma<DV>::wait<0>(w.dv[0]);
    }
    if constexpr (cfg::WANT_DK) {
        wgmma<DK>::wait<0>(w.dk[0]);
    }
    if (lane_id() == 0) {
        mbarrier_arrive(ring(shared).empty(w.from.stage));
    }
    if constexpr (cfg::WANT_DQ) {
        if (mine) {
            make_dq(shared, ds_tile, number, tile);
        }
    }
}

// The next tile: its head of the group, the number of heads at the end; as one register for the warp.
DEV position next_position(const worker &w)
{
    ring(w.shared).wait_full<cfg::BOUND_WAITS>(w.from);
    const u32 slot = w.shared + layout::POSITIONS + 16 * w.from.stage;
    return {__shfl_sync(ALL_LANES, kept_head(slot), 0), __shfl_sync(ALL_LANES, kept_tile(slot), 0), false};
}

DEV void compute_tiles(worker &w, const hopper_back_params &params, const key_block &at)
{
    const back_params &p = params.p;
    const int group = p.z.n_h / p.z.n_h_kv;
    const place here;
    const int key = at.kv0 + here.key();
    site_sums<NB, COLS> gathered;
    position now = next_position(w);
#pragma unroll 1
    while (now.head < group) { // a head of the group
        const int number = now.head;
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.h_kv * group + number);
        const site_context<NB, COLS> sites{p, head, gathered};
        sites.clear();
        variant::col col[COLS];
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            col[c] = variant::make_col(p.x, p.z, head, key + 8 * c);
        }
#pragma unroll 1
        do {
            compute_tile(w, params, head, col, sites, at.kv0, number, now.tile);
            w.from = w.from.next();
            w.round++;
            now = next_position(w);
        } while (now.head == number);
        sites.end_head(col, key);
    }
}

DEV void compute_all(const hopper_back_params &params, u32 shared, const key_block &at)
{
    const back_params &p = params.p;
    worker w;
    w.shared = shared;
    w.from = {0, 0};
    w.round = 0;
    clear(w.dk);
    clear(w.dv);
    mbarrier_wait(shared + layout::KV_BARRIER, 0);
    compute_tiles(w, params, at);
    if constexpr (cfg::WANT_DQ) { // no tile more: says who had the last one, for the slab is then its own
        if ((w.round & 1) != my_group()) {
            barrier_sync(BAR_SLAB_EMPTY, SLAB_USERS);
            if (fresh_thread() % 128 == 0) {
                keep_position(shared + layout::LINE, {0, -1, false});
            }
            barrier_arrive(BAR_SLAB_FULL, SLAB_USERS);
        }
    }
    const auto sync = [] { barrier_sync(BAR_WORKERS, WORKERS); };
    sync(); // K and V make place for dk' and dv'
    const int left = p.z.len_kv - at.kv0;
    if constexpr (cfg::WANT_DK) {
        using out = typename pick<cfg::DK_F32, float, element>::type;
        const int h = at.h_kv * (p.z.n_h / p.z.n_h_kv);
        const float factor = variant::ds_factor(p.x, p.z, variant::make_head(p.x, p.z, at.b, h));
        store_keys<cfg::DK_F32, cfg::D, DK>(w.dk, factor, shared + layout::K,
                                            static_cast<out *>(p.dk) + at.b * p.dk_b + at.h_kv * p.dk_h + at.kv0 * p.dk_t,
                                            p.dk_t, left, sync);
    }
    if constexpr (cfg::WANT_DV) {
        using out = typename pick<cfg::DV_F32, float, element>::type;
        store_keys<cfg::DV_F32, cfg::D_V, DV>(w.dv, 1.0f, shared + layout::V,
                                              static_cast<out *>(p.dv) + at.b * p.dv_b + at.h_kv * p.dv_h + at.kv0 * p.dv_t,
                                              p.dv_t, left, sync);
    }
}

} // namespace back

// ---- kernel -----------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(128 + back::WORKERS, 1)
    LATHE_ENTRY(bwd)(const __grid_constant__ hopper_back_params params)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    const back_params &p = params.p;
    if (threadIdx.x == 0) {
        ring(shared).init(WARPS);
        mbarrier_init(shared + layout::KV_BARRIER, 1);
        mbarrier_init_fence();
        u32 number = fresh_block();
        if constexpr (cfg::DETERMINISTIC) { // the order in which blocks begin: none waits for one that has not
            number = take_ticket(p.order + tile_line(p.z, p.z.n_b, 0)); // behind the turns
        }
        store_shared(shared + layout::NUMBER, number);
    }
    __syncthreads();
    const key_block at = nth_block(p.z, __float_as_uint(load_shared(shared + layout::NUMBER)));
    if (threadIdx.x < 128) {
        registers_down<LOADER_REGISTERS>();
        if (threadIdx.x < 32) {
            load_all(params, shared, at);
        } else if (cfg::WANT_DQ && threadIdx.x < 64) {
            add_all(params, shared, at);
        }
    } else {
        registers_up<WORKER_REGISTERS>();
        compute_all(params, shared, at);
    }
}
