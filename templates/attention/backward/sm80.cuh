// attention/backward/sm80.cuh: portable attention backward, sm_80 and up: dk', dv' of a key tile and what it adds to
// dq'.
//
// A block takes BN keys of one key head and walks the query tiles that the mask leaves, of every query head of the
// group, so dk' and dv' stay in registers; where neither is wanted, a part of them (APART below). Products are turned:
// s^T = K Q^T and dw^T = V dO^T, so that a thread's keys are the same for the whole kernel and weights are the A
// operand of dv' += w^T dO as they stand. SPLIT warps share the same keys: each has its part of the queries of a tile
// and of the columns of dk' and dv', and they hand w^T and ds^T to each other through shared memory (SPLIT == 1: only
// ds^T goes there, for dq' = ds K). A warp's own part of the queries comes first, from registers, and covers the wait
// for the others.
//
// Two stages: Q, dO and row values of the next tile come while one is computed; two barriers a tile. One stage: they
// come under dq'; three barriers where warps share keys.
#pragma once
#include "attention/backward/sm80_products.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16> || same_type<cfg::operand, float>,
              "cfg::operand is f16, bf16 or float");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0,
              "cfg::D and cfg::D_V are multiples of 8: rows are copied 16 bytes at a time");

// What to choose: the first that fits. Bytes, of back::layout below, are for two row values and no diagonals; registers
// those of the causal softmax with a learned slope on sm_80 / sm_90a (nvcc 13.0), none of which spills. Two small
// blocks an SM hide each other's barriers, and 32 keys a warp are the least to read from shared memory; from d = 96 on
// they take SPLIT warps for registers' sake.
//
//     d, d_v      BM x BN   WARPS  SPLIT  STAGES   bytes   registers   where a block may have
//     64, 64      32 x 128    4      1      2      57888   255 / 255   163 KB or more: two blocks an SM
//     64, 64      32 x 128    4      1      1      49440   255 / 255   99 KB: two blocks an SM
//     96, 96      64 x 128    8      2      2     132128   255 / 255   163 KB
//     96, 96      32 x 64     4      1      1      41248   167 / 167   99 KB: two blocks an SM
//     128, 128    64 x 128    8      2      2     164896   254 / 254   163 KB
//     128, 128    64 x 128    8      2      1     131616   254 / 253   163 KB, with more row values or diagonals
//     128, 128    64 x 64     8      4      1      82464   174 / 172   99 KB
//     160, 160    64 x 64     8      2      2     140320   178 / 178   163 KB
//     160, 160    64 x 64     8      2      1      98848   186 / 182   99 KB
//     256, 256    64 x 64     8      4      2     214048   254 / 251   227 KB; d = d_v = 192: 164896, 250 / 255
//     256, 256    64 x 64     8      4      1     148000   254 / 254   163 KB
//     192, 192    32 x 64     8      2      1      82208   178 / 178   99 KB
//     256, 256    32 x 32     4      2      1      69920   255 / 244   99 KB
//
// Of f32, with 16 keys a warp, since hi and lo of weights and slopes take the registers of more (the causal softmax):
//
//      64,  64    64 x 128    8      1      2     164896   254 / 255   163 KB
//      64,  64    64 x 64     4      1      1      82464   224         99 KB
//     128, 128    64 x 64     8      2      2     230432       / 241   227 KB
//     128, 128    64 x 64     8      2      1     164384   189         163 KB
//     128, 128    32 x 32     4      2      1      74016   170         99 KB
//     256, 256    32 x 64     8      2      1     213280       / 255   227 KB; spills one word
//     256, 256    32 x 32     4      2      1     139552   255         163 KB
//     224, 224    32 x 16     2      2      1      90400   255         99 KB; spills one word

namespace back
{

struct layout { // offsets in bytes
    static constexpr int K = 0;
    static constexpr int V = K + BN * DK * ELEMENT;
    static constexpr int RING = V + BN * DV * ELEMENT;
    static constexpr int Q = 0; // within a stage
    static constexpr int DO = Q + BM * DK * ELEMENT;
    static constexpr int ROWS = DO + BM * DV * ELEMENT;
    static constexpr int STAGE = ROWS + ROW_VALUES * BM * 4;
    static constexpr int DS = RING + STAGES * STAGE;
    static constexpr int W = DS + BN * BM * ELEMENT;
    static constexpr int TABLE_BYTES = variant::BACK_DIAG ? 4 * (BM + BN) : 0; // two of them
    static constexpr int TABLE = W + (SPLIT > 1 ? BN * BM * ELEMENT : 0);
    static constexpr int POSITIONS = TABLE + 2 * TABLE_BYTES; // of the tile at hand and the next, 16 bytes each
    static constexpr int SUMS = POSITIONS + 32;
    static constexpr int BYTES = SUMS + SUMS_BYTES;
};

// Where neither dk nor dv is wanted, nothing joins the queries of a block of keys: there are thread blocks for each of
// its query heads, and for each PART_TILES of its query tiles. Few keys of many queries, as the weights of compressed
// blocks are found of, would leave most multiprocessors idle else.
constexpr bool APART = !cfg::WANT_DK && !cfg::WANT_DV && !variant::MAP && !cfg::DETERMINISTIC;
constexpr int PART_TILES = 32;

// The query tiles of such a thread block, one a lane.
struct query_part {
    int head;  // of the group
    int first; // tile
    int mine = TILE_NONE;

    // Of the part of this number, out of those of a block of keys.
    __device__ __forceinline__ query_part(u32 number, u32 of_head)
        : head(static_cast<int>(number / of_head)), first(static_cast<int>(number % of_head) * PART_TILES)
    {
    }
    __device__ __forceinline__ position next(const position &last, const back_params &p, const key_block &at)
    {
        const int h = at.head(head);
        if (last.tile < 0) {
            mine = classify(p, at.b, h, variant::make_head(p.x, p.z, at.b, h), first + lane_id(), at.tile);
        }
        const u32 some = __ballot_sync(ALL_LANES, mine != TILE_NONE && first + lane_id() > last.tile);
        if (some == 0) {
            return {at.group, 0, false};
        }
        const int lane = __ffs(static_cast<int>(some)) - 1;
        return {head, first + lane, ((__ballot_sync(ALL_LANES, mine == TILE_ALL) >> lane) & 1u) != 0};
    }
};

// What the thread block of this number walks, and the number of its block of keys.
DEV auto begin_walk(const sizes &launched, u32 &number)
{
    if constexpr (APART) {
        const u32 of_head = static_cast<u32>((query_tiles(launched) + PART_TILES - 1) / PART_TILES);
        const u32 of_block = static_cast<u32>(launched.group()) * of_head;
        const u32 part = number % of_block;
        number /= of_block;
        return query_part{part, of_head};
    } else {
        return walk{};
    }
}

// The key tile of the block of that number; of sequences, p is of its own from here on. False: it has none.
template <class PARAMS> DEV bool find_keys(PARAMS &p, u32 number, key_block &at)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        const int n_h = p.z.n_h_kv;
        sequences::tile found;
        if (!sequences::tile_of<BN>(sequences::keys(p), p.z.n_b, static_cast<int>(number) / n_h, found)) {
            return false;
        }
        const int room = sequences::room(p, found.b);
        const i64 tiles = sequences::tiles_before<BM>(p, found.b) * p.z.n_h;
        if constexpr (cfg::DETERMINISTIC) { // the last keys first: those before them wait for their turns
            const int last = (room - 1) / BN;
            found.number = room > 0 && found.number <= last ? last - found.number : found.number;
            p.order += 1 + tiles;
        }
        at = {found.b, static_cast<int>(number) % n_h, found.number, found.number * BN, p.z.group()};
        const bool some = at.kv0 < room;
        p.rows += tiles * (BM * ROW_VALUES);
        p.dq += tiles * dq_shape::FLOATS;
        sequences::enter(p, at.b);
        return some;
    } else {
        at = nth_block(p.z, number);
        return true;
    }
}

// Keys whose gradients a sequence has: also those that are not in use, of which they are 0.
template <class PARAMS> DEV int keys_of(const PARAMS &launched, const sizes &z, int b)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return sequences::room(launched, b);
    } else {
        return z.len_kv;
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int bwd = back::layout::BYTES;
}

// 1 block a multiprocessor in f32: all registers that it asks for, or a few spill
#if LATHE_COMPILED(bwd)
extern "C" __global__ void __launch_bounds__(back::THREADS, back::IN_F32 ? 1 : 0)
    LATHE_ENTRY(bwd)(const __grid_constant__ back_params launched)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);

    auto &&p = own_params(launched);
    const sizes &z = p.z;
    u32 number = fresh_block();
    if constexpr (cfg::DETERMINISTIC) { // the order in which blocks begin: none waits for one that has not
        if (query_tiles(z) > 0) {
            if (threadIdx.x == 0) {
                store_shared(shared, take_ticket(block_counter(p)));
            }
            __syncthreads();
            number = __float_as_uint(load_shared(shared));
            __syncthreads();
        }
    }
    const u32 slots = shared + layout::POSITIONS;
    const int group = z.group();
    const auto load = [&](const key_block &at, const position &to, u32 stage) {
        const int h = at.h_kv * group + to.head;
        const u32 ring = shared + layout::RING + stage * layout::STAGE;
        const tile_loader<BM, PARTS * cfg::D, PARTS * DK, THREADS> q_rows(
            static_cast<const cfg::element_q *>(p.q) + at.b * p.q_b + h * p.q_h, p.q_t);
        const tile_loader<BM, PARTS * cfg::D_V, PARTS * DV, THREADS> do_rows(
            static_cast<const cfg::element_o *>(p.dout) + at.b * p.dout_b + h * p.dout_h, p.dout_t);
        q_rows.load(ring + layout::Q, to.tile * BM, z.len_q - to.tile * BM);
        do_rows.load(ring + layout::DO, to.tile * BM, z.len_q - to.tile * BM);
        if constexpr (ROW_VALUES > 0) {
            load_rows(ring + layout::ROWS, p, at.b, h, to.tile);
        }
    };
    const auto fill = [&](const key_block &at, const position &to, u32 turn) {
        if constexpr (variant::BACK_DIAG) {
            fill_table<BN, THREADS>(shared + layout::TABLE + turn * layout::TABLE_BYTES, p,
                                    variant::make_head(p.x, z, at.b, at.h_kv * group + to.head), to.tile * BM, at.kv0,
                                    static_cast<int>(fresh_thread()));
        }
    };

    auto tiles = begin_walk(launched.z, number);
    int at_head = 0;
    {
        key_block at;
        if (!find_keys(p, number, at)) {
            return;
        }
        const tile_loader<BN, PARTS * cfg::D, PARTS * DK, THREADS> k_rows(
            static_cast<const cfg::element_k *>(p.k) + at.b * p.k_b + at.h_kv * p.k_h, p.k_t);
        const tile_loader<BN, PARTS * cfg::D_V, PARTS * DV, THREADS> v_rows(
            static_cast<const cfg::element_v *>(p.v) + at.b * p.v_b + at.h_kv * p.v_h, p.v_t);
        k_rows.load(shared + layout::K, at.kv0, z.len_kv - at.kv0);
        v_rows.load(shared + layout::V, at.kv0, z.len_kv - at.kv0);
        const position begin = tiles.next({0, -32, false}, p, at);
        if (begin.head < group) {
            load(at, begin, 0);
            fill(at, begin, 0);
        }
        copy_commit();
        if (threadIdx.x == 0) {
            keep_position(slots, begin);
            keep_block(slots, at);
        }
        at_head = begin.head;
    }
    if constexpr (IN_F32) {
        copy_wait<0>();
        split_tile<BN, DK, THREADS>(shared + layout::K);
        split_tile<BN, DV, THREADS>(shared + layout::V);
    }
    __syncthreads();

    warp_sums sums;
    clear(sums.dk);
    clear(sums.dv);
    variant::head head;
    variant::col col[COLS];
    site_sums<NB, COLS> gathered;
    const site_context<NB, COLS> sites{p, head, gathered,
                                       shared + layout::SUMS + static_cast<u32>(4 * TABLE_FLOATS * place().warp)};
    const auto begin_head = [&] {
        const key_block at = kept_block(z, slots);
        head = variant::make_head(p.x, z, at.b, at.h_kv * group + at_head);
        sites.clear();
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            col[c] = variant::make_col(p.x, z, head, at.kv0 + place().key() + 8 * c);
        }
    };
    if (at_head < group) {
        begin_head();
    }

    u32 turn = 0; // parity of the tile at hand
#pragma unroll 1
    while (at_head < group) {
        copy_wait<0>();
        const u32 ring = shared + layout::RING + (STAGES == 2 ? turn * layout::STAGE : 0u);
        if constexpr (IN_F32) {
            split_tile<BM, DK, THREADS>(ring + layout::Q);
            split_tile<BM, DV, THREADS>(ring + layout::DO);
        }
        __syncthreads(); // the tile at hand is there for all; no one reads what is written next
        const u32 slot = slots + turn * 16;
        const u32 next_slot = slots + (turn ^ 1) * 16;
        const auto prepare = [&] { // the next tile
            const key_block at = kept_block(z, slots);
            const position next = tiles.next({at_head, kept_tile(slot), false}, p, at);
            if (fresh_thread() == 0) {
                keep_position(next_slot, next);
            }
            if (next.head < group) {
                if constexpr (STAGES == 2) {
                    load(at, next, turn ^ 1);
                }
                fill(at, next, turn ^ 1);
            }
            if constexpr (STAGES == 2) {
                copy_commit();
            }
        };
        if constexpr (SPLIT > 1) { // with keys of its own a warp has no registers for it yet
            prepare();
        }

        float s[MT][NB][4];
        float dw[MT][NB][4];
        {
            const place here;
            const int rows = here.query0();
            multiply_rows<cfg::operand, DK>(s, shared + layout::K + offset_a<DK>(here.lane, here.key0()),
                                            ring + static_cast<u32>(layout::Q + rows * DK * ELEMENT) +
                                                offset_b<DK>(here.lane));
            if constexpr (WANT_DW) {
                multiply_rows<cfg::operand, DV>(dw, shared + layout::V + offset_a<DV>(here.lane, here.key0()),
                                                ring + static_cast<u32>(layout::DO + rows * DV * ELEMENT) +
                                                    offset_b<DV>(here.lane));
            } else {
                clear(dw);
            }
        }
        {
            const place here;
            const int row0 = kept_tile(slot) * BM;
            const int kv0 = kept(slots + 24) * BN;
            const u32 rows = ring + static_cast<u32>(layout::ROWS + here.query() * 4);
            const u32 entries = shared + layout::TABLE + turn * layout::TABLE_BYTES +
                                static_cast<u32>((here.query() - here.key() + BN - 1) * 4);
            sites.clear_tile();
            if (tile_is_large(ring + layout::ROWS)) {
                pairs<false, variant::NORM>(s, dw, p, head, col, sites, row0 + here.query(), kv0 + here.key(), rows,
                                            entries);
            } else if (kept_whole(slot)) {
                pairs<true>(s, dw, p, head, col, sites, row0 + here.query(), kv0 + here.key(), rows, entries);
            } else {
                pairs<false>(s, dw, p, head, col, sites, row0 + here.query(), kv0 + here.key(), rows, entries);
            }
            sites.end_tile(row0 + here.query0() + z.q_start - (kv0 + here.key0()));
        }
        {
            const turned weights(s);
            const turned ds(dw);
            if constexpr (SPLIT == 1) {
                prepare();
            }
            if constexpr (SHARE_W) {
                weights.store(shared + layout::W);
            }
            if constexpr (WANT_DS) {
                ds.store(shared + layout::DS);
            }
            if constexpr (cfg::WANT_DV) {
                add_own<DV>(sums.dv, weights, ring + layout::DO);
            }
            if constexpr (cfg::WANT_DK) {
                add_own<DK>(sums.dk, ds, ring + layout::Q);
            }
        }
        __syncthreads();
        if constexpr (cfg::WANT_DV) {
            add_others<DV>(sums.dv, shared + layout::W, ring + layout::DO);
        }
        if constexpr (cfg::WANT_DK) {
            add_others<DK>(sums.dk, shared + layout::DS, ring + layout::Q);
        }
        const int next_head = kept_head(next_slot);
        if constexpr (STAGES == 1) {
            if constexpr (SPLIT > 1) {
                __syncthreads(); // Q and dO are read
            }
            if (next_head < group) {
                load(kept_block(z, slots), {next_head, kept_tile(next_slot), false}, 0);
            }
            copy_commit();
        }
        if constexpr (cfg::WANT_DQ) {
            const key_block at = kept_block(z, slots);
            const int h = at.h_kv * group + at_head;
            const int tile = kept_tile(slot);
            const i64 line = tile_line(z, own_batch(p, at.b), h) + tile;
            if constexpr (cfg::DETERMINISTIC) {
                if (place().warp == 0) {
                    const u32 before = turn_of(p, at, head, h, tile);
                    if (lane_id() == 0) {
                        wait_turn(p.order + line, before);
                    }
                }
                __syncthreads();
            }
            add_dq(shared + layout::DS, shared + layout::K, p.dq + line * dq_shape::FLOATS);
            if constexpr (cfg::DETERMINISTIC) {
                fence_global();
                __syncthreads();
                if (threadIdx.x == 0) {
                    end_turn(p.order + line);
                }
            }
        }
        if (next_head != at_head) {
            sites.end_head(col, kept(slots + 24) * BN + place().key());
            at_head = next_head;
            if (at_head < group) {
                begin_head();
            }
        }
        turn ^= 1;
    }

    const key_block at = kept_block(z, slots);
    const int left = keys_of(launched, z, at.b) - at.kv0;
    copy_wait<0>();
    __syncthreads(); // K and V make place for dk' and dv'
    const auto sync = [] { __syncthreads(); };
    if constexpr (cfg::WANT_DK) {
        using out = typename pick<cfg::DK_F32, float, cfg::element_k>::type;
        store_keys<out, cfg::D, DK>(
            sums.dk, variant::ds_factor(p.x, z, variant::make_head(p.x, z, at.b, at.h_kv * group)), shared + layout::K,
            static_cast<out *>(p.dk) + at.b * p.dk_b + at.h_kv * p.dk_h + at.kv0 * p.dk_t, p.dk_t, left, sync);
    }
    if constexpr (cfg::WANT_DV) {
        using out = typename pick<cfg::DV_F32, float, cfg::element_v>::type;
        store_keys<out, cfg::D_V, DV>(sums.dv, 1.0f, shared + layout::V,
                                      static_cast<out *>(p.dv) + at.b * p.dv_b + at.h_kv * p.dv_h + at.kv0 * p.dv_t,
                                      p.dv_t, left, sync);
    }
}
#endif
