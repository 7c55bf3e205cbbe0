// attention/backward/row_sums.cuh: kernel: what pairs add up to per row before attention's backward pass: sums over a
// row's live pairs of values of e = <q', k'> and dw = <do', v'> that no product with o gives. variant::back_row takes
// them as row values.
//
// Launch: n_b * n_h * ceil(len_q / ROWS) blocks of THREADS threads, layout::BYTES of shared memory. A warp has 16 rows,
// four lanes a row; every row is added up in one order: the same bits in every run. Tiles of KEYS keys that no row of
// the block reaches are skipped.
#pragma once
#include "attention/backward/split.cuh"

namespace row_sums
{

constexpr int THREADS = 128;
constexpr int ROWS = 64;                                        // of a block: 16 of each warp
constexpr int KEYS = 32;                                        // of a tile
constexpr int ELEMENT = static_cast<int>(sizeof(cfg::operand)); // bytes
// of 16 bits: tiles of f32 lie as tiles of twice as many columns
constexpr int HALVES = ELEMENT / 2;
constexpr int DK = round_up(cfg::D, 16);
constexpr int DV = round_up(cfg::D_V, 16);
constexpr int NB = KEYS / 8;
constexpr int FLOATS = max_of(variant::SUM_ROWS, 1); // row values that a pair reads

struct layout { // offsets in bytes
    static constexpr int Q = 0;
    static constexpr int DO = Q + ROWS * DK * ELEMENT;
    static constexpr int K = DO + ROWS * DV * ELEMENT;
    static constexpr int V = K + KEYS * DK * ELEMENT;
    static constexpr int BYTES = V + KEYS * DV * ELEMENT;
};

// The 4 bytes at `at`: one f32, or two elements of 16 bits that are `step` apart.
template <class T> DEV u32 four_bytes(const T *at, i64 step)
{
    if constexpr (sizeof(T) == 4) {
        return __float_as_uint(at[0]);
    } else {
        return static_cast<u32>(at[0].bits) | static_cast<u32>(at[step].bits) << 16;
    }
}

// Rows of do' that do not start at multiples of 16 bytes, by single elements, `step` apart.
DEV void load_unaligned(u32 tile, const cfg::element_o *from, i64 stride, i64 step, int left)
{
    using shape = swizzle<HALVES * DV>;
    constexpr int CHUNK = 8 / HALVES; // elements
    for (int i = static_cast<int>(threadIdx.x); i < ROWS * shape::CHUNKS; i += THREADS) {
        const int row = i / shape::CHUNKS;
        const int chunk = i % shape::CHUNKS;
#pragma unroll
        for (int pair = 0; pair < 4; pair++) {
            u32 two = 0;
            if (row < left && chunk * CHUNK < cfg::D_V) { // D_V is a multiple of 8
                two = four_bytes(from + row * stride + (chunk * CHUNK + 2 / HALVES * pair) * step, step);
            }
            store_shared(tile + shape::offset(row, chunk) + static_cast<u32>(4 * pair), two);
        }
    }
}

struct row_of_thread {
    variant::row row;
    int first, last; // keys that may be live; last < first: none is
    float values[FLOATS];
    float sum[variant::ROW_SUMS];
};

// place: of the row in the block.
DEV row_of_thread make_row(const row_sums_params &p, const variant::head &head, int number, const split::parts &finals,
                           int place)
{
    const bool exists = number < p.z.len_q;
    row_of_thread r;
    r.row = variant::make_row(p.x, p.z, head, min(number, p.z.len_q - 1));
    r.first = exists ? max(variant::first_key(p.x, p.z, head, r.row), 0) : 0;
    r.last = exists ? min(variant::last_key(p.x, p.z, head, r.row), p.z.len_kv - 1) : -1;
    split::sum_row<variant>(finals, place, p, head, r.row, r.values);
#pragma unroll
    for (int k = 0; k < variant::ROW_SUMS; k++) {
        r.sum[k] = 0.0f;
    }
    return r;
}

// By the whole block.
DEV void find_parts(split::parts &finals, const row_sums_params &p, const variant::head &head, int b, int h, int row0,
                    u32 shared)
{
    static_assert(ROWS == split::ROWS && THREADS / 32 == split::ROWS / 16, "a warp has 16 rows");
    split::take_given(finals, p, head, row0);
    __syncthreads();
    if (split::some_is_large(finals)) {
        split::split_rows(finals, p, head, b, h, row0, shared);
        __syncthreads();
    }
}

// Pairs of the thread's two rows with the tile whose first key of the thread is `key`.
DEV void add_pairs(row_of_thread (&rows)[2], const float (&s)[1][NB][4], const float (&dw)[1][NB][4],
                   const row_sums_params &p, const variant::head &head, int key)
{
#pragma unroll
    for (int b = 0; b < NB; b++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const int number = key + 8 * b + j;
            const variant::col col = variant::make_col(p.x, p.z, head, min(number, p.z.len_kv - 1));
#pragma unroll
            for (int r = 0; r < 2; r++) {
                bool live = number >= rows[r].first && number <= rows[r].last;
                if constexpr (variant::SCATTERED) {
                    live = live && variant::among(p.x, p.z, head, rows[r].row, col);
                }
                float part[variant::ROW_SUMS];
                variant::sum_pair(s[0][b][2 * r + j], dw[0][b][2 * r + j], p.x, p.z, head, rows[r].row, col,
                                  rows[r].values, part);
#pragma unroll
                for (int k = 0; k < variant::ROW_SUMS; k++) {
                    rows[r].sum[k] += live ? part[k] : 0.0f;
                }
            }
        }
    }
}

struct span_of_keys {
    int first, last; // last < first: none
};

// From the least to the largest key of the block's rows. All threads call.
DEV span_of_keys keys_of_block(int (&ends)[2][THREADS / 32], const row_of_thread (&rows)[2])
{
    int first = 0x7fffffff;
    int last = -1;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows[r].last >= rows[r].first) {
            first = min(first, rows[r].first);
            last = max(last, rows[r].last);
        }
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        first = min(first, __shfl_xor_sync(ALL_LANES, first, lanes));
        last = max(last, __shfl_xor_sync(ALL_LANES, last, lanes));
    }
    if (lane_id() == 0) {
        ends[0][threadIdx.x / 32] = first;
        ends[1][threadIdx.x / 32] = last;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        first = min(first, ends[0][w]);
        last = max(last, ends[1][w]);
    }
    return {first, last};
}

// s = X Y^T for 16 rows of the tile at x, from row0 on, and the KEYS rows of the one at y.
template <class T, int COLUMNS> DEV void multiply(float (&s)[1][NB][4], u32 x, u32 y, int row0)
{
    const u32 x_address = x + lane_offset_a<HALVES * COLUMNS>(lane_id(), row0);
    const u32 y_address = y + lane_offset_b<HALVES * COLUMNS>(lane_id());
    if constexpr (same_type<T, float>) {
        product_qk_f32<1, NB, COLUMNS>(s, x_address, y_address);
    } else {
        const a_fragments<1, 1> none{};
        product_qk<T, 1, NB, COLUMNS, false>(s, x_address, none, y_address);
    }
}

// The kernel; a function of the namespace, as other kernels of the text have constants of the same names.
DEV void add_up_rows(const row_sums_params &launched, u32 shared)
{
    __shared__ int ends[2][THREADS / 32];
    auto &&p = own_params(launched);
    const sizes &z = p.z;
    back::query_work work;
    const auto dense = [&] {
        const u32 tiles = static_cast<u32>((z.len_q + ROWS - 1) / ROWS);
        const u32 line = blockIdx.x / tiles;
        return back::query_work{static_cast<int>(line / static_cast<u32>(z.n_h)),
                                static_cast<int>(line % static_cast<u32>(z.n_h)), static_cast<int>(blockIdx.x % tiles)};
    };
    if (!back::find_queries<ROWS>(
            p, work, [](auto &, i64) {}, dense)) {
        return;
    }
    const int b = work.b;
    const int h = work.h;
    const int row0 = work.tile * ROWS;
    const int h_kv = z.key_head(h);
    const int lane = lane_id();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int first_row = row0 + warp * 16 + lane / 4;
    const variant::head head = variant::make_head(p.x, z, b, h);
    __shared__ split::parts finals;
    find_parts(finals, p, head, b, h, row0, shared);
    const int place = first_row - row0;
    row_of_thread rows[2] = {make_row(p, head, first_row, finals, place),
                             make_row(p, head, first_row + 8, finals, place + 8)};
    const span_of_keys keys = keys_of_block(ends, rows);

    const cfg::element_o *dout =
        static_cast<const cfg::element_o *>(p.dout) + b * p.dout_b + h * p.dout_h + row0 * p.dout_t;
    const tile_loader<ROWS, HALVES * cfg::D, HALVES * DK, THREADS> q_rows(
        static_cast<const cfg::element_q *>(p.q) + b * p.q_b + h * p.q_h, p.q_t);
    const tile_loader<ROWS, HALVES * cfg::D_V, HALVES * DV, THREADS> do_rows(dout, p.dout_t);
    const tile_loader<KEYS, HALVES * cfg::D, HALVES * DK, THREADS> k_rows(
        static_cast<const cfg::element_k *>(p.k) + b * p.k_b + h_kv * p.k_h, p.k_t);
    const tile_loader<KEYS, HALVES * cfg::D_V, HALVES * DV, THREADS> v_rows(
        static_cast<const cfg::element_v *>(p.v) + b * p.v_b + h_kv * p.v_h, p.v_t);
    q_rows.load(shared + layout::Q, row0, z.len_q - row0);
    const i64 step = back::dout_step(p);
    if (step == 1 && ((reinterpret_cast<u64>(dout) | static_cast<u64>(p.dout_t) * ELEMENT) & 15) == 0) {
        do_rows.load(shared + layout::DO, 0, z.len_q - row0);
    } else {
        load_unaligned(shared + layout::DO, dout, p.dout_t, step, z.len_q - row0);
    }
#pragma unroll 1
    for (int kv0 = keys.first / KEYS * KEYS; kv0 <= keys.last; kv0 += KEYS) {
        __syncthreads(); // the tile before is read
        k_rows.load(shared + layout::K, kv0, z.len_kv - kv0);
        v_rows.load(shared + layout::V, kv0, z.len_kv - kv0);
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        float s[1][NB][4];
        float dw[1][NB][4];
        multiply<cfg::operand, DK>(s, shared + layout::Q, shared + layout::K, warp * 16);
        multiply<cfg::operand, DV>(dw, shared + layout::DO, shared + layout::V, warp * 16);
        add_pairs(rows, s, dw, p, head, kv0 + 2 * (lane % 4));
    }
    copy_commit(); // where there was no key: nothing may be under way at the end
    copy_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int k = 0; k < variant::ROW_SUMS; k++) {
            rows[r].sum[k] = sum4(rows[r].sum[k]);
        }
        if (lane % 4 == 0 && first_row + 8 * r < z.len_q) {
            variant::store_sums(p, b, h, first_row + 8 * r, rows[r].sum);
        }
    }
}

} // namespace row_sums

namespace smem_bytes
{
constexpr int bwd_rows = row_sums::layout::BYTES;
}

#if LATHE_COMPILED(bwd_rows)
extern "C" __global__ void __launch_bounds__(row_sums::THREADS)
    LATHE_ENTRY(bwd_rows)(const __grid_constant__ row_sums_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    row_sums::add_up_rows(p, shared_address(shared_bytes));
}
#endif
