// attention_fwd_sm90.cuh: attention forward for sm_90a: TMA, wgmma, warpgroups with roles of their own.
//
// A block takes tiles of BM query rows, one after the other (tile_order_sm90.cuh). One warp of the first
// warpgroup walks the key tiles that the mask leaves and loads them, in one stream across query tiles; the
// other warpgroups own 64 rows each: scores, weights and o stay in their registers. Q K of a tile runs with
// P V of the tile before, under the softmax between them. Warpgroups meet only at the rings' barriers.
#pragma once
#include "attention_parts.cuh"
#include "tile_order_sm90.cuh"
#include "tma_sm90.cuh"

static_assert(
    attention_variant<variant, inputs, attention_params>,
    "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
    "and the notes below name the first one that is missing");
static_assert(same_type<cfg::element, f16> || same_type<cfg::element, bf16>, "cfg::element is f16 or bf16");
static_assert(cfg::D % 8 == 0 && cfg::D_V % 8 == 0,
              "cfg::D and cfg::D_V are multiples of 8: TMA takes strides of 16 bytes");
static_assert(cfg::D_PAD == round_up(cfg::D, 16),
              "cfg::D_PAD is cfg::D rounded up to 16, the depth of one wgmma");
static_assert(cfg::DV_PAD == round_up(cfg::D_V, 16) && cfg::DV_PAD <= 256,
              "cfg::DV_PAD is cfg::D_V rounded up to 16, and at most 256, the width of one wgmma");
static_assert(cfg::WARPS == 8 || cfg::WARPS == 12 || cfg::WARPS == 16,
              "cfg::WARPS, those that compute, is 8, 12 or 16");
static_assert(cfg::BM == 16 * cfg::WARPS, "cfg::BM is 16 cfg::WARPS: a warp owns 16 rows");
static_assert(cfg::BN % 16 == 0 && cfg::BN >= 16 && cfg::BN <= 128,
              "cfg::BN is a multiple of 16 in 16 .. 128");
static_assert(cfg::STAGES >= 1 && cfg::STAGES <= 8, "cfg::STAGES is 1 .. 8");

struct hopper_params { // what the kernel takes; the maps are made of the rest at launch
    tensor_map q, k, v;
    attention_params p;
};

// ---- shared memory --------------------------------------------------------------------------------------

// Bytes of dynamic shared memory: with a place of its own for o where that fits, else in the place of Q. As
// C, for the planner:
//     groups = warps / 4; q = 64 * d_pad * 2; o = o_f32 ? 0 : 64 * dv_pad * 2;
//     k = round_up(stages * bn * d_pad * 2, 1024); v = round_up(stages * bn * dv_pad * 2, 1024);
//     rest = k + v + 32 * stages + 16 * groups + 96 + (diag ? groups * 8 * (64 + bn) : 0);
//     smem = groups * (q + o) + rest <= 232448 ? groups * (q + o) + rest : groups * max(q, o) + rest;
constexpr int SMEM_LIMIT = 232448;
__host__ __device__ constexpr int hopper_smem_bytes(int warps, int bn, int stages, int d_pad, int dv_pad,
                                                    bool o_f32, bool diag)
{
    const int groups = warps / 4;
    const int q = 64 * d_pad * 2;
    const int o = o_f32 ? 0 : 64 * dv_pad * 2;
    const int k = round_up(stages * bn * d_pad * 2, 1024);
    const int v = round_up(stages * bn * dv_pad * 2, 1024);
    const int rest = k + v + 32 * stages + 16 * groups + 96 + (diag ? groups * 8 * (64 + bn) : 0);
    return groups * (q + o) + rest <= SMEM_LIMIT ? groups * (q + o) + rest : groups * max_of(q, o) + rest;
}

struct shared_layout {                            // offsets in bytes
    static constexpr int GROUPS = cfg::WARPS / 4; // warpgroups that compute
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * 2;
    static constexpr int V_BYTES = cfg::BN * cfg::DV_PAD * 2;
    static constexpr int Q_BYTES = 64 * cfg::D_PAD * 2; // of a warpgroup
    static constexpr int O_BYTES = cfg::O_F32 ? 0 : 64 * cfg::DV_PAD * 2;
    static constexpr int BYTES = hopper_smem_bytes(cfg::WARPS, cfg::BN, cfg::STAGES, cfg::D_PAD, cfg::DV_PAD,
                                                   cfg::O_F32, variant::DIAG);
    static constexpr int RINGS =
        round_up(cfg::STAGES * K_BYTES, 1024) + round_up(cfg::STAGES * V_BYTES, 1024);
    static constexpr int DIAG_BYTES = 4 * (64 + cfg::BN); // of one table; a warpgroup has two
    static constexpr int AFTER =
        32 * cfg::STAGES + 16 * GROUPS + 96 + (variant::DIAG ? GROUPS * 2 * DIAG_BYTES : 0);
    static constexpr int SLAB = (BYTES - RINGS - AFTER) / GROUPS; // Q and o of a warpgroup
    static constexpr bool OWN_O = SLAB >= Q_BYTES + O_BYTES;
    static constexpr int Q = 0; // within the slab
    static constexpr int O = OWN_O ? Q_BYTES : 0;
    static constexpr int K = GROUPS * SLAB; // stages, one after the other
    static constexpr int V = K + round_up(cfg::STAGES * K_BYTES, 1024);
    static constexpr int TILES = K + RINGS;   // which tile is in each stage of K: 4 bytes each
    static constexpr int ROUNDS = TILES + 32; // of each warp that computes: 4 bytes
    static constexpr int K_RING = ROUNDS + 64;
    static constexpr int V_RING = K_RING + ring_barriers<cfg::STAGES>::BYTES;
    static constexpr int Q_RING =
        V_RING + ring_barriers<cfg::STAGES>::BYTES; // full and empty, of each warpgroup
    static constexpr int DIAG = K_RING + 32 * cfg::STAGES + 16 * GROUPS;
    static_assert(Q_RING + 16 * GROUPS <= DIAG && cfg::STAGES * 4 <= 32 && cfg::WARPS * 4 <= 64 &&
                      Q_BYTES % 1024 == 0 && SLAB % 1024 == 0,
                  "places do not overlap");
    static_assert(BYTES <= SMEM_LIMIT, "a block has at most 227 KiB of shared memory");
};

constexpr int THREADS = 128 + cfg::WARPS * 32;
constexpr int NB = cfg::BN / 8;
constexpr int DB = cfg::DV_PAD / 8;

// Of a thread, out of 64 K in all: what the loading warpgroup gives up goes to the others.
constexpr int LOADER_REGISTERS = cfg::WARPS == 8 ? 24 : 32;
constexpr int WORKER_REGISTERS = cfg::WARPS == 8 ? 240 : cfg::WARPS == 12 ? 160 : 112;

// ---- which rows ----------------------------------------------------------------------------------------

// Number of the thread's warpgroup among those that compute, as one register for the warp.
DEV u32 worker_group()
{
    return __shfl_sync(ALL_LANES, fresh_thread() / 128 - 1, 0);
}

// Where a warp of those that compute works, in the how manieth round of its block.
DEV work_place find_place(const sizes &z, u32 round, int warp)
{
    const query_tile tile = nth_query_tile(z, fresh_block() + round * gridDim.x);
    work_place at;
    at.b = tile.b;
    at.h = tile.h;
    at.query_tile = tile.number;
    at.n_tiles = query_tiles(z);
    at.row0 = at.query_tile * cfg::BM;
    at.lane = lane_id();
    at.warp_row = 16 * warp;
    at.first_row = at.row0 + at.warp_row + at.lane / 4;
    return at;
}

DEV bool is_there(const sizes &z, u32 round)
{
    return fresh_block() + static_cast<u64>(round) * gridDim.x < all_query_tiles(z);
}

// ---- the warp that loads -------------------------------------------------------------------------------

struct rings {
    ring_barriers<cfg::STAGES> k, v;
    DEV rings at(u32 shared) { return {{shared + shared_layout::K_RING}, {shared + shared_layout::V_RING}}; }
    // Q of a warpgroup: a ring of one stage.
    DEV ring_barriers<1> q(u32 shared, u32 group) { return {shared + shared_layout::Q_RING + 16 * group}; }
};

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

// ---- the warps that compute ----------------------------------------------------------------------------

struct warp_work {
    thread_rows<1> rows;
    float s[1][NB][4];
    float o[1][DB][4];
    u32 p[NB / 2][4]; // weights of the tile whose P V is next
};

struct tile_reader { // of one warp
    u32 shared;
    u32 places; // in the rings: of K, and 256 times that of V

    // Of its warpgroup. Found anew for each tile: a register less in between.
    __device__ __forceinline__ u32 slab() const { return shared + worker_group() * shared_layout::SLAB; }
    __device__ __forceinline__ place k_place() const { return {places & 255u}; }
    __device__ __forceinline__ place v_place() const { return {places >> 8}; }

    // Which query tile of the block is at hand: in shared memory, for it is not needed between tiles.
    __device__ __forceinline__ u32 round_place() const
    {
        return shared + shared_layout::ROUNDS + 4 * (fresh_thread() / 32 - 4);
    }
    __device__ __forceinline__ u32 round() const { return __float_as_uint(load_shared(round_place())); }
    __device__ __forceinline__ void set_round(u32 round) const
    {
        __syncwarp();
        if (lane_id() == 0) {
            store_shared(round_place(), round);
        }
        __syncwarp();
    }

    // The tile in the next stage of K, once it is there: as the cursor gives it.
    __device__ __forceinline__ int next_tile() const
    {
        rings::at(shared).k.wait_full<cfg::BOUND_WAITS>(k_place());
        const u32 tile = __float_as_uint(load_shared(shared + shared_layout::TILES + 4 * k_place().stage()));
        return static_cast<int>(__shfl_sync(ALL_LANES, tile, 0)); // one register for the warp
    }
    __device__ __forceinline__ void start_scores(warp_work &w) const
    {
        start_qk<cfg::element, cfg::BN, cfg::D_PAD>(w.s[0], slab() + shared_layout::Q,
                                                    shared + shared_layout::K +
                                                        k_place().stage() * shared_layout::K_BYTES);
    }
    __device__ __forceinline__ void start_output(warp_work &w) const
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v_place());
        start_pv<cfg::element, cfg::DV_PAD, cfg::BN>(
            w.o[0], w.p, shared + shared_layout::V + v_place().stage() * shared_layout::V_BYTES, 1);
    }
    __device__ __forceinline__ void wait_q() const
    {
        rings::q(shared, worker_group()).wait_full<cfg::BOUND_WAITS>({round() & 1u});
    }
    // After the products that read it.
    __device__ __forceinline__ void leave(u32 empty) const
    {
        if (lane_id() == 0) {
            mbarrier_arrive(empty);
        }
    }
    __device__ __forceinline__ void leave_q() const { leave(rings::q(shared, worker_group()).empty(0)); }
    __device__ __forceinline__ void leave_k()
    {
        leave(rings::at(shared).k.empty(k_place().stage()));
        places = v_place().index << 8 | k_place().next().index;
    }
    // A tile whose V is of no use: its place is left once it is there, so that no phase is missed.
    __device__ __forceinline__ void skip_v()
    {
        rings::at(shared).v.wait_full<cfg::BOUND_WAITS>(v_place());
        __syncwarp();
        leave_v();
    }
    __device__ __forceinline__ void leave_v()
    {
        leave(rings::at(shared).v.empty(v_place().stage()));
        places = v_place().next().index << 8 | k_place().index;
    }
};

// Scores become weights. `entry`: of the thread's first row and column in the table of diagonals.
template <bool WHOLE> DEV void weigh(warp_work &w, const at_head &a, int tile, u32 entry, float (&scale)[2])
{
    score_tile<WHOLE, 1, NB> scores{w.s, w.rows, a, tile * cfg::BN + 2 * (lane_id() & 3), entry};
    scores.run(scale);
}

DEV void weigh_tile(warp_work &w, const at_head &a, int tile, u32 entry, float (&scale)[2])
{
    if ((tile & 1) != 0) {
        weigh<true>(w, a, tile >> 1, entry, scale);
    } else {
        weigh<false>(w, a, tile >> 1, entry, scale);
    }
}

// The table of a tile, by the whole warpgroup, under its Q K; the one before may still be in use.
DEV u32 make_diagonals(const at_head &a, const tile_reader &reader, int q0, int tile)
{
    if constexpr (variant::DIAG) {
        const u32 group = worker_group();
        const int thread = static_cast<int>(fresh_thread() % 128);
        const u32 table = reader.shared + shared_layout::DIAG +
                          (2 * group + (reader.k_place().index & 1u)) * shared_layout::DIAG_BYTES;
        fill_diagonals<64, cfg::BN, 128>(table, a, q0, (tile >> 1) * cfg::BN, thread);
        barrier_sync(1 + group, 128);
        return table +
               static_cast<u32>((thread / 32 * 16 + lane_id() / 4 - 2 * (lane_id() & 3) + cfg::BN - 1) * 4);
    } else {
        return 0;
    }
}

// What the mask leaves of the block's tile for these 64 rows: the tile as the cursor gives it, or IDLE for
// nothing.
DEV int own_part(const at_head &a, int tile, int row0)
{
    const int row1 = min(row0 + 64, a.z.len_q) - 1;
    if (row1 < row0) {
        return tile_cursor::IDLE;
    }
    if constexpr (variant::MASKED && !variant::MAP) {
        if ((tile & 1) == 0) {
            const int kv0 = (tile >> 1) * cfg::BN;
            const int c = static_cast<int>(
                variant::classify(a.x, a.z, a.head, row0, row1, kv0, min(kv0 + cfg::BN, a.z.len_kv) - 1));
            return c == TILE_NONE ? static_cast<int>(tile_cursor::IDLE)
                                  : tile + static_cast<int>(c == TILE_ALL && kv0 + cfg::BN <= a.z.len_kv);
        }
    }
    return tile;
}

// All key tiles of these rows: runs of tiles that have something for them, and tiles in between that only the
// other warpgroups need. row0: the warpgroup's first row.
DEV void attend_all(warp_work &w, const at_head &a, tile_reader &reader, int row0)
{
    float scale[2];
    int tile = reader.next_tile();
    reader.wait_q();
#pragma unroll 1
    while (tile != tile_cursor::END) {
        tile = own_part(a, tile, row0);
        if (tile == tile_cursor::IDLE) {
            reader.leave_k();
            reader.skip_v();
            if constexpr (variant::DIAG) {
                barrier_sync(1 + worker_group(), 128); // the tables take turns by places of K
            }
            tile = reader.next_tile();
            continue;
        }
        reader.start_scores(w);
        u32 entry = make_diagonals(a, reader, row0 + a.z.q_start, tile);
        wgmma<cfg::BN>::wait<0>(w.s[0]);
        reader.leave_k();
        weigh_tile(w, a, tile, entry, scale);
        pack_weights<cfg::element, NB>(w.p, w.s[0]);
        if constexpr (variant::RESCALE) {
            rescale(w.o, scale);
        }
#pragma unroll 1
        while (true) {
            tile = reader.next_tile();
            const int part =
                tile == tile_cursor::END ? static_cast<int>(tile_cursor::END) : own_part(a, tile, row0);
            if (part < 0) {
                break;
            }
            reader.start_scores(w);
            reader.start_output(w);
            entry = make_diagonals(a, reader, row0 + a.z.q_start, part);
            wgmma<cfg::BN>::wait<1>(w.s[0]);
            reader.leave_k();
            weigh_tile(w, a, part, entry, scale);
            wgmma<cfg::DV_PAD>::wait<0>(w.o[0]);
            reader.leave_v();
            pack_weights<cfg::element, NB>(w.p, w.s[0]);
            if constexpr (variant::RESCALE) {
                rescale(w.o, scale);
            }
        }
        reader.start_output(w);
        wgmma<cfg::DV_PAD>::wait<0>(w.o[0]);
        reader.leave_v();
    }
    reader.leave_k(); // END
    if constexpr (variant::DIAG && shared_layout::OWN_O) {
        barrier_sync(1 + worker_group(), 128); // END has changed the turn of the tables
    }
}

// o and finals of a round to memory. Gives Q back.
DEV void store_rows(warp_work &w, const hopper_params &params, tile_reader &reader)
{
    // Found again, so that nothing of it stays in registers meanwhile.
    const attention_params &p = params.p;
    const int warp = static_cast<int>(fresh_thread() / 32) - 4;
    const work_place at = find_place(p.z, reader.round(), warp);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    if constexpr (shared_layout::OWN_O || cfg::O_F32) {
        reader.leave_q();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.rows.row[r] = variant::make_row(p.x, p.z, head, at.first_row + 8 * r);
    }
    finish_rows(w.rows, w.o, p, {p.x, p.z, head}, at);
    const i64 o_head = at.b * p.o_b + at.h * p.o_h;
    if constexpr (cfg::O_F32) {
        store_o_f32(w.o, static_cast<float *>(p.o) + o_head, p.o_t, at, p.z.len_q);
    } else {
        if constexpr (shared_layout::OWN_O) {
            __syncwarp(); // the round before has read its o
        } else {
            barrier_sync(1 + worker_group(), 128); // no one reads this Q any more
        }
        store_o(w.o, reader.slab() + static_cast<u32>(shared_layout::O + warp % 4 * 16 * cfg::DV_PAD * 2),
                static_cast<cfg::element *>(p.o) + o_head, p.o_t, at, p.z.len_q);
        if constexpr (!shared_layout::OWN_O) {
            fence_async_proxy(); // the next Q comes into this place
            __syncwarp();
            reader.leave_q();
        }
    }
}

DEV void compute_round(const hopper_params &params, tile_reader &reader)
{
    const attention_params &p = params.p;
    const int warp = static_cast<int>(fresh_thread() / 32) - 4;
    const work_place at = find_place(p.z, reader.round(), warp);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const at_head a{p.x, p.z, head};
    warp_work w;
    w.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.rows.row[r] = variant::make_row(a.x, a.z, a.head, at.first_row + 8 * r);
        w.rows.state[r] = variant::init((at.lane & 3) == 0);
    }
#pragma unroll
    for (int i = 0; i < 4 * DB; i++) {
        w.o[0][i / 4][i % 4] = 0.0f;
    }
    attend_all(w, a, reader, at.row0 + warp / 4 * 64);
    store_rows(w, params, reader);
}

DEV void compute_all(const hopper_params &params, u32 shared)
{
    tile_reader reader{shared, 0};
    reader.set_round(0);
#pragma unroll 1
    while (is_there(params.p.z, reader.round())) {
        compute_round(params, reader);
        reader.set_round(reader.round() + 1);
    }
}

// ---- kernel ---------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    LATHE_ENTRY(fwd)(const __grid_constant__ hopper_params params)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    if (threadIdx.x == 0) {
        const rings ring = rings::at(shared);
        ring.k.init(cfg::WARPS);
        ring.v.init(cfg::WARPS);
#pragma unroll
        for (u32 i = 0; i < shared_layout::GROUPS; i++) {
            rings::q(shared, i).init(4);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_down<LOADER_REGISTERS>();
        if (threadIdx.x < 32) {
            load_all(params, shared);
        }
    } else {
        registers_up<WORKER_REGISTERS>();
        compute_all(params, shared);
    }
}
