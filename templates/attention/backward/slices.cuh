// attention/backward/slices.cuh: attention backward for head dims beyond what a block has registers and shared memory
// for, and for V that is a part of K, sm_80 and up: dk' and dv' of a key tile and what it adds to dq'.
//
// A block takes BN keys of one key head and walks the query tiles that the mask leaves, as attention/backward/sm80.cuh
// does, but nothing of D columns is kept: rows come SLICE columns at a time, one slice ahead. A tile of queries has two
// rounds. The first adds up s^T = K Q^T and dw^T = V dO^T over the slices, and makes them w^T and ds^T. The second
// brings the slices again: w^T dO, ds^T Q and ds K of a slice have room in registers, and are added in memory, in
// floats: dk' and dv' by the one thread that has this place for the whole walk, so without atomics and in one order,
// dq' as in sm80.cuh. Where V is the first columns of K, so are dv' those of dk', and the same thread has both.
//
// Launch: as sm80.cuh. dk' and dv' are 0 before, and still without an adjoint of a mod.
#pragma once
#include "attention/backward/sm80_products.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0,
              "cfg::D and cfg::D_V are multiples of 8: rows are copied 16 bytes at a time");

namespace back
{

constexpr int SLICE = 64; // columns
constexpr int SLICE_BLOCKS = SLICE / 8;
constexpr int D_SLICES = (cfg::D + SLICE - 1) / SLICE;
constexpr int V_SLICES = (cfg::D_V + SLICE - 1) / SLICE;
constexpr int FIRST_ROUND = D_SLICES + V_SLICES; // steps
// even: the last step of a tile and the first of the next have places of their own
constexpr int STEPS = 2 * FIRST_ROUND;

struct slice_layout {                                                        // offsets in bytes
    static constexpr int KEYS = 0;                                           // within a stage: of K or V
    static constexpr int QUERIES = BN * SLICE * ELEMENT_BYTES<cfg::operand>; // of Q or dO
    static constexpr int STAGE = (BN + BM) * SLICE * ELEMENT_BYTES<cfg::operand>;
    static constexpr int DS = 2 * STAGE;
    static constexpr int ROWS = DS + BN * BM * ELEMENT_BYTES<cfg::operand>;
    static constexpr int TABLE = ROWS + ROW_VALUES * BM * 4;
    static constexpr int SUMS = TABLE + (variant::BACK_DIAG ? 4 * (BM + BN) : 0);
    static constexpr int BYTES = SUMS + SUMS_BYTES;
};
static_assert(SPLIT == 1 && STAGES == 2 && MT == 1, "a warp has 16 keys of its own");
static_assert(cfg::DK_F32 && cfg::DV_F32, "dk' and dv' are added in floats");
static_assert(WARPS * 16 == SLICE, "a warp has 16 columns of dq' of a slice");

// Rows of a tensor, of which the tile has `left` from `from` on, and of these the `columns` that a slice has; the rest
// are zeros.
template <int ROWS, class T> DEV void load_slice(u32 tile, const T *from, i64 stride, int left, int columns)
{
    using shape = swizzle<SLICE>;
#pragma unroll
    for (int first = 0; first < ROWS * shape::CHUNKS; first += THREADS) {
        const int i = first + static_cast<int>(fresh_thread());
        const int row = i / shape::CHUNKS;
        const int chunk = i % shape::CHUNKS;
        const bool inside = row < left && chunk * 8 < columns;
        copy16_async(tile + shape::offset(row, chunk), from + (inside ? row * stride + chunk * 8 : 0), inside ? 16 : 0);
    }
}

// Where the block's keys and the queries of a tile lie.
struct slice_sources {
    const cfg::element_k *k;
    const cfg::element_v *v;
    const cfg::element_q *q;
    const cfg::element_o *dout;
    int keys, queries; // that exist
};
DEV slice_sources find_sources(const back_params &p, const key_block &at, const position &to)
{
    const int h = at.head(to.head);
    const i64 row0 = static_cast<i64>(to.tile) * BM;
    return {static_cast<const cfg::element_k *>(p.k) + at.b * p.k_b + at.h_kv * p.k_h + at.kv0 * p.k_t,
            static_cast<const cfg::element_v *>(p.v) + at.b * p.v_b + at.h_kv * p.v_h + at.kv0 * p.v_t,
            static_cast<const cfg::element_q *>(p.q) + at.b * p.q_b + h * p.q_h + row0 * p.q_t,
            static_cast<const cfg::element_o *>(p.dout) + at.b * p.dout_b + h * p.dout_h + row0 * p.dout_t,
            p.z.len_kv - at.kv0,
            p.z.len_q - to.tile * BM};
}

// What a step brings: in the first round slices of K and Q, then of V and dO; in the second of dO, then of K and Q.
DEV void load_step(u32 shared, const back_params &p, const slice_sources &from, int step)
{
    const u32 stage = shared + static_cast<u32>(step % 2 * slice_layout::STAGE);
    const bool again = step >= FIRST_ROUND;
    const int in_round = again ? step - FIRST_ROUND : step;
    const bool of_values = again ? in_round < V_SLICES : in_round >= D_SLICES;
    const int slice = again == of_values ? in_round : in_round - (again ? V_SLICES : D_SLICES);
    const int column = slice * SLICE;
    if (of_values) {
        if (!again) {
            load_slice<BN>(stage + slice_layout::KEYS, from.v + column, p.v_t, from.keys, cfg::D_V - column);
        }
        load_slice<BM>(stage + slice_layout::QUERIES, from.dout + column, p.dout_t, from.queries, cfg::D_V - column);
    } else {
        load_slice<BN>(stage + slice_layout::KEYS, from.k + column, p.k_t, from.keys, cfg::D - column);
        load_slice<BM>(stage + slice_layout::QUERIES, from.q + column, p.q_t, from.queries, cfg::D - column);
    }
}

// s += X Y^T over a slice, for the warp's keys and all queries of the tile.
DEV void add_products(float (&s)[MT][NB][4], u32 stage)
{
    const place here;
    float more[MT][NB][4];
    multiply_rows<cfg::operand, SLICE>(more, stage + slice_layout::KEYS + offset_a<SLICE>(here.lane, here.key0()),
                                       stage + slice_layout::QUERIES + offset_b<SLICE>(here.lane));
#pragma unroll
    for (int b = 0; b < NB; b++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][b][i] += more[0][b][i];
        }
    }
}

// x times `factor` to the block's rows of dk' or dv' in memory, of which the slice begins at `column` and has DIM in
// all.
template <int DIM>
DEV void add_keys(const float (&x)[MT][SLICE_BLOCKS][4], float factor, void *out, i64 row_stride, int left, int column)
{
    const place at;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        const int row = at.key() + 8 * c;
        float *to = static_cast<float *>(out) + row * row_stride;
#pragma unroll
        for (int d = 0; d < SLICE_BLOCKS; d++) {
            const int i = column + 8 * d + 2 * (at.lane % 4);
            if (row < left && i < DIM) {
                float2 *two = reinterpret_cast<float2 *>(to + i);
                const float2 before = *two;
                *two = make_float2(before.x + x[0][d][2 * c] * factor, before.y + x[0][d][2 * c + 1] * factor);
            }
        }
    }
}

// dq' of a slice: ds K, of which a warp has all rows and 16 columns, added to the tile's place in memory.
DEV void add_dq_slice(u32 turned, u32 keys, float *tile, int slice)
{
    using shape = dq_shape;
    constexpr int BLOCKS = BM / 16; // of rows
    const place at;
    float dq[BLOCKS][2][4];
    clear(dq);
    const piece_of_columns<BM, 2 * BLOCKS> a(turned + offset_b<BM>(at.lane), 0);
    const piece_of_columns<SLICE, 2> b(keys + offset_b_transposed<SLICE>(at.lane), at.warp);
    multiply<BN / 16>(
        dq,
        [&](int k, four(&to)[BLOCKS]) {
#pragma unroll
            for (int m = 0; m < BLOCKS; m++) {
                load_four_transposed(to[m], a.at(2 * m) + static_cast<u32>(k * 16 * tile_shape<BM>::ROW_BYTES));
            }
        },
        b);
#pragma unroll
    for (int d = 0; d < 2; d++) {
        const int block = slice * SLICE_BLOCKS + 2 * at.warp + d; // of 8 columns
        if (D_SLICES * SLICE != DK && block >= DK / 8) {
            continue;
        }
#pragma unroll
        for (int m = 0; m < BLOCKS; m++) {
            const int owner = m / shape::MT * shape::ACROSS + block / shape::DB;
            const int fragment = m % shape::MT * shape::DB + block % shape::DB;
            add_fragment(tile + owner * 32 * shape::REGISTERS + shape::offset(fragment * 4, at.lane), dq[m][d]);
        }
    }
}

} // namespace back

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int bwd = back::slice_layout::BYTES;
}

#if LATHE_COMPILED(bwd)
extern "C" __global__ void __launch_bounds__(back::THREADS, 1) LATHE_ENTRY(bwd)(const __grid_constant__ back_params p)
{
    using namespace back;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    const sizes &z = p.z;
    u32 number = fresh_block();
    if constexpr (cfg::DETERMINISTIC) { // the order in which blocks begin: none waits for one that has not
        if (query_tiles(z) > 0) {
            if (threadIdx.x == 0) {
                store_shared(shared, take_ticket(p.order + tile_line(z, z.n_b, 0))); // behind the turns
            }
            __syncthreads();
            number = __float_as_uint(load_shared(shared));
            __syncthreads();
        }
    }
    const key_block at = nth_block(z, number);
    const int left = z.len_kv - at.kv0;
    const u32 rows = shared + slice_layout::ROWS;
    walk tiles;
    position here = tiles.next({0, -32, false}, p, at);
    int head_number = -1; // of those below
    variant::head head;
    variant::col col[COLS];
    site_sums<NB, COLS> gathered;
    const site_context<NB, COLS> sites{p, head, gathered,
                                       shared + slice_layout::SUMS + static_cast<u32>(4 * TABLE_FLOATS * place().warp)};
#pragma unroll 1
    while (here.head < at.group) {
        const int h = at.head(here.head);
        if (here.head != head_number) {
            head_number = here.head;
            head = variant::make_head(p.x, z, at.b, h);
            sites.clear();
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                col[c] = variant::make_col(p.x, z, head, at.kv0 + place().key() + 8 * c);
            }
        }
        const slice_sources from = find_sources(p, at, here);
        const int row0 = here.tile * BM;
        // The slices of this step are there for all, and those of the next one on their way.
        const auto begin_step = [&](int step) {
            copy_wait<0>();
            __syncthreads();
            if (step + 1 < STEPS) {
                load_step(shared, p, from, step + 1);
            }
            copy_commit();
            return shared + static_cast<u32>(step % 2 * slice_layout::STAGE);
        };
        load_step(shared, p, from, 0);
        if constexpr (ROW_VALUES > 0) {
            load_rows(rows, p, at.b, h, here.tile);
        }
        if constexpr (variant::BACK_DIAG) {
            fill_table<BN, THREADS>(shared + slice_layout::TABLE, p, head, row0, at.kv0,
                                    static_cast<int>(fresh_thread()));
        }
        copy_commit();

        float s[MT][NB][4];
        float dw[MT][NB][4];
        clear(s);
        clear(dw);
#pragma unroll 1
        for (int step = 0; step < D_SLICES; step++) {
            add_products(s, begin_step(step));
        }
#pragma unroll 1
        for (int step = D_SLICES; step < FIRST_ROUND; step++) {
            const u32 stage = begin_step(step);
            if constexpr (WANT_DW) {
                add_products(dw, stage);
            }
        }
        {
            const place mine;
            const u32 own_rows = rows + static_cast<u32>(mine.query() * 4);
            const u32 entries =
                shared + slice_layout::TABLE + static_cast<u32>((mine.query() - mine.key() + BN - 1) * 4);
            const int row = row0 + mine.query();
            const int key = at.kv0 + mine.key();
            sites.clear_tile();
            if (tile_is_large(rows)) {
                pairs<false, variant::NORM>(s, dw, p, head, col, sites, row, key, own_rows, entries);
            } else if (here.whole) {
                pairs<true>(s, dw, p, head, col, sites, row, key, own_rows, entries);
            } else {
                pairs<false>(s, dw, p, head, col, sites, row, key, own_rows, entries);
            }
            sites.end_tile(row0 + mine.query0() + z.q_start - (at.kv0 + mine.key0()));
        }
        const turned weights(s);
        const turned ds(dw);
        if constexpr (WANT_DS) {
            ds.store(shared + slice_layout::DS); // the next step's barrier is ahead of those who read it
        }
#pragma unroll 1
        for (int slice = 0; slice < V_SLICES; slice++) {
            const u32 stage = begin_step(FIRST_ROUND + slice);
            if constexpr (cfg::WANT_DV) {
                float sum[MT][SLICE_BLOCKS][4];
                clear(sum);
                add_own<SLICE>(sum, weights, stage + slice_layout::QUERIES);
                add_keys<cfg::D_V>(sum, 1.0f,
                                   static_cast<float *>(p.dv) + at.b * p.dv_b + at.h_kv * p.dv_h + at.kv0 * p.dv_t,
                                   p.dv_t, left, slice * SLICE);
            }
        }
        const i64 line = tile_line(z, at.b, h) + here.tile;
        if constexpr (cfg::WANT_DQ && cfg::DETERMINISTIC) {
            if (place().warp == 0) {
                const u32 before = turn_of(p, at, head, h, here.tile);
                if (lane_id() == 0) {
                    wait_turn(p.order + line, before);
                }
            }
        }
#pragma unroll 1
        for (int slice = 0; slice < D_SLICES; slice++) {
            const u32 stage = begin_step(FIRST_ROUND + V_SLICES + slice); // behind a barrier: it is the block's turn
            if constexpr (cfg::WANT_DK) {
                float sum[MT][SLICE_BLOCKS][4];
                clear(sum);
                add_own<SLICE>(sum, ds, stage + slice_layout::QUERIES);
                add_keys<cfg::D>(sum, variant::ds_factor(p.x, z, variant::make_head(p.x, z, at.b, at.head(0))),
                                 static_cast<float *>(p.dk) + at.b * p.dk_b + at.h_kv * p.dk_h + at.kv0 * p.dk_t,
                                 p.dk_t, left, slice * SLICE);
            }
            if constexpr (cfg::WANT_DQ) {
                add_dq_slice(shared + slice_layout::DS, stage + slice_layout::KEYS, p.dq + line * dq_shape::FLOATS,
                             slice);
            }
        }
        if constexpr (cfg::WANT_DQ && cfg::DETERMINISTIC) {
            fence_global();
            __syncthreads();
            if (threadIdx.x == 0) {
                end_turn(p.order + line);
            }
        }
        here = tiles.next(here, p, at);
        if (here.head != head_number) {
            sites.end_head(col, at.kv0 + place().key());
        }
    }
    copy_wait<0>();
}
#endif
