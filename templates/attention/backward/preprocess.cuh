// attention/backward/preprocess.cuh: kernel: what attention backward needs of each query row before its main loop:
// delta = sum o' do', the row values of variant::back_row, sites that a row adds to once; and a copy of do where its
// rows are not aligned. Where a row's finals are large it finds what they have lost (attention/backward/split.cuh).
//
// Launch: n_b * n_h * ceil(len_q / PRE_ROWS) blocks of PRE_THREADS threads; 4 split::TABLE_BYTES of shared memory where
// LATHE_SPLITS.
//
// Memory is what it waits for. A team of threads reads a row, several rows one after the other; then a row has one
// thread, and row values are read and written in a row.
#pragma once
#include "attention/backward/split.cuh"

constexpr int PRE_THREADS = 256;
constexpr int PRE_ROWS = 64;

namespace pre
{

using o_type = pick<cfg::BACK_O_F32, float, cfg::element_o>::type;

// Of an SM: what rows with large finals need of registers is not to take them from all others.
// threads that an SM of every architecture
constexpr int BLOCKS = LATHE_SPLITS ? (HAS_SEQUENCES<back_pre_params> ? 1024 : 1536) / PRE_THREADS : 1;
// has; a sequence
// takes registers,
// too
constexpr int V = 8; // elements of a vector
constexpr int VECTORS = cfg::D_V / V;

__host__ __device__ constexpr int team_of(int vectors) // threads of a row: a power of two
{
    int t = 4;
    while (t < vectors && t < 32) {
        t *= 2;
    }
    return t;
}
constexpr int TEAM = team_of(VECTORS);
constexpr int PER_THREAD = (VECTORS + TEAM - 1) / TEAM;
constexpr int AT_ONCE = PRE_THREADS / TEAM; // rows that a block works on at once
static_assert(cfg::D_V % V == 0 && PRE_ROWS % AT_ONCE == 0, "a block's rows are a whole number of turns");

template <class T> struct rows_of { // of one head
    const T *from;
    i64 stride;
    i64 step; // from one element to the next
    bool aligned;
    __device__ __forceinline__ rows_of(const void *base, i64 offset, i64 row_stride, i64 element_stride)
        : from(static_cast<const T *>(base) + offset), stride(row_stride), step(element_stride)
    {
        const u64 mask = sizeof(T) == 4 ? 31 : 15;
        aligned =
            step == 1 && ((reinterpret_cast<u64>(from) | static_cast<u64>(row_stride) * sizeof(T)) & (mask & 15)) == 0;
    }
    template <bool ALIGNED> __device__ __forceinline__ void load(int row, int vector, float (&x)[V]) const
    {
        const T *at = from + row * stride + vector * V * (ALIGNED ? 1 : step);
        if constexpr (ALIGNED) {
            load_vec<V, T>(at, x);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) {
                x[i] = to_float(at[i * step]);
            }
        }
    }
};

constexpr int SLOTS = max_of(variant::ROW_SITES, 1);
constexpr bool READ_O = variant::DELTA || variant::EMPTY_BY_O;
constexpr int TURNS = PRE_ROWS / AT_ONCE;
// turns whose loads are under way together
constexpr int UNROLL = PER_THREAD == 1 && sizeof(o_type) == 2 ? min_of(TURNS, 4) : 1;

struct row_result {
    float delta;
    bool zero; // every element of o is 0, or the forward kernel says that the row has no live pair
};

// A thread's share of one row.
template <bool COPY, bool ALIGNED> DEV row_result look(const rows_of<o_type> &o, const rows_of<cfg::element_o> &dout,
                                                       cfg::element_o *copy, int row, int thread)
{
    row_result r{0.0f, true};
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        const int vector = thread + k * TEAM;
        if (VECTORS % TEAM != 0 && vector >= VECTORS) {
            continue;
        }
        float d[V];
        dout.template load<ALIGNED>(row, vector, d);
        if constexpr (COPY) {
            store_vec<V, cfg::element_o>(copy + static_cast<i64>(row) * cfg::D_V + vector * V, d);
        }
        if constexpr (READ_O) {
            float x[V];
            o.template load<ALIGNED>(row, vector, x);
#pragma unroll
            for (int i = 0; i < V; i++) {
                const bool none = cfg::BACK_O_F32 && __float_as_uint(x[i]) == EMPTY_ROW;
                r.delta = none ? r.delta : r.delta + x[i] * d[i];
                r.zero = r.zero && (none || x[i] == 0.0f);
            }
        }
    }
    return r;
}

struct seen { // in shared memory, of the block's rows
    float delta[PRE_ROWS];
    float zero[PRE_ROWS]; // 0: all of o is
};

// Rows beyond the last: the last one again.
template <bool COPY, bool ALIGNED> DEV void look_at_rows(seen &to, const rows_of<o_type> &o,
                                                         const rows_of<cfg::element_o> &dout, cfg::element_o *copy,
                                                         int row0, int len)
{
    const int thread = static_cast<int>(threadIdx.x) % TEAM;
    const int first = static_cast<int>(threadIdx.x) / TEAM;
#pragma unroll 1
    for (int turn = 0; turn < TURNS; turn += UNROLL) {
        row_result r[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            r[i] = look<COPY, ALIGNED>(o, dout, copy, min(row0 + first + (turn + i) * AT_ONCE, len - 1), thread);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const float delta = variant::DELTA ? lanes_sum<TEAM>(r[i].delta) : 0.0f;
            const float zero = variant::EMPTY_BY_O ? lanes_max<TEAM>(r[i].zero ? 0.0f : 1.0f) : 1.0f;
            if (thread == 0) {
                to.delta[first + (turn + i) * AT_ONCE] = delta;
                to.zero[first + (turn + i) * AT_ONCE] = zero;
            }
        }
    }
}

// What the main kernel counts by, of one tile: by one thread.
template <class PARAMS> DEV void begin_tile(const PARAMS &p, i64 line)
{
    p.order[line] = 0;
    *back::order_word(p, line) = 0;
    *back::order_word(p, line, 1) = 0;
    if (line == 0) {
        *back::block_counter(p) = 0;
    }
}
// How many pieces of a block of keys have been left, of each warp: by the first block.
template <class PARAMS> DEV void begin_pieces(const PARAMS &p)
{
    if constexpr (cfg::BACK_PIECES > 0) {
        for (int i = static_cast<int>(threadIdx.x); i < cfg::BACK_PIECES * back::WARPS; i += PRE_THREADS) {
            p.pieces[i] = 0.0f;
        }
    }
}

// What the tile of the block's rows tells of its norms; and that there are none behind the last row, where the tile
// goes on. By one thread.
template <class PARAMS>
DEV void leave_record(const PARAMS &p, const float *norms, i64 group, i64 first, int row0, bool large)
{
    uint4 *record = reinterpret_cast<uint4 *>(p.rows + back::ROW_VALUES * group) + (first + row0) / PRE_ROWS;
    *record = back::norm_record(large, norms + row0);
    if (row0 + PRE_ROWS >= p.z.len_q && (row0 + PRE_ROWS) % back::BM != 0) {
        record[1] = back::norm_record(false, norms);
    }
}

} // namespace pre

#if LATHE_SPLITS
namespace smem_bytes
{
constexpr int bwd_pre = 4 * split::TABLE_BYTES;
}
#endif

#if LATHE_COMPILED(bwd_pre)
extern "C" __global__ void __launch_bounds__(PRE_THREADS, pre::BLOCKS)
    LATHE_ENTRY(bwd_pre)(const __grid_constant__ back_pre_params launched)
{
    using namespace pre;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    auto &&p = own_params(launched);
    const sizes &z = p.z;
    back::query_work work{};
    const auto move = [](auto &q, i64 tiles) { q.rows += tiles * back::TILE_ROWS_FLOATS; };
    if (!back::find_queries<PRE_ROWS>(p, work, move, [] { return back::query_work{}; })) {
        return;
    }
    constexpr bool FOUND = HAS_SEQUENCES<back_pre_params>;
    const int tiles = (z.len_q + PRE_ROWS - 1) / PRE_ROWS;
    const int block = static_cast<int>(blockIdx.x);
    const int h = FOUND ? work.h : block / tiles % z.n_h;
    const int b = FOUND ? work.b : block / tiles / z.n_h;
    const variant::head head = variant::make_head(p.x, z, b, h);
    const rows_of<o_type> o(p.o, b * p.o_b + h * p.o_h, p.o_t, 1);
    const rows_of<cfg::element_o> dout(p.dout, b * p.dout_b + h * p.dout_h, p.dout_t, back::dout_step(p));
    cfg::element_o *copy = p.dout_copy == nullptr ? nullptr
                                                  : static_cast<cfg::element_o *>(p.dout_copy) +
                                                        (static_cast<i64>(b) * z.n_h + h) * z.len_q * cfg::D_V;
    const i64 line = static_cast<i64>(back::query_tiles(z)) * back::BM; // row values of a head
    const i64 group = line * back::own_batches(p) * z.n_h;
    float *values = p.rows + (static_cast<i64>(back::own_batch(p, b)) * z.n_h + h) * line;

    __shared__ seen of_row;
    __shared__ split::parts finals;
    const int row0 = FOUND ? work.tile * PRE_ROWS : block % tiles * PRE_ROWS;
    const int place = static_cast<int>(threadIdx.x);
    const int row = row0 + place;
    const bool has_row = place < PRE_ROWS && row < z.len_q;
    static_assert(PRE_ROWS == split::ROWS && PRE_ROWS == back::NORM_ROWS, "finals of a block's rows");
    split::take_given(finals, p, head, row0);
    if constexpr (cfg::BACK_DQ_STORED && !FOUND) {
        if (threadIdx.x == 0 && row0 % back::BM == 0) {
            begin_tile(p, back::tile_line(z, b, h) + row0 / back::BM);
        }
        if (block == 0) {
            begin_pieces(p);
        }
    }
    if (copy != nullptr) {
        look_at_rows<true, false>(of_row, o, dout, copy, row0, z.len_q);
    } else if constexpr (READ_O) {
        if (dout.aligned && o.aligned) {
            look_at_rows<false, true>(of_row, o, dout, copy, row0, z.len_q);
        } else {
            look_at_rows<false, false>(of_row, o, dout, copy, row0, z.len_q);
        }
    }
    __syncthreads();
    const bool large = split::some_is_large(finals); // of the block's rows
    if (large) {
        split::split_rows(finals, p, head, b, h, row0, shared_address(shared_bytes));
        __syncthreads();
    }

    if constexpr (back::NORM_RECORDS) {
        if (threadIdx.x == 0) {
            leave_record(p, values + variant::BACK_ROWS * group, group, values - p.rows, row0, large);
        }
    }
    float sums[SLOTS] = {}; // of SITE_HEAD
    if (has_row) {
        const float delta = variant::DELTA ? of_row.delta[place] : 0.0f;
        const bool zero = variant::EMPTY_BY_O && of_row.zero[place] == 0.0f;
        float out[max_of(back::ROW_VALUES, 1)] = {};
        float site[SLOTS] = {};
        const variant::row values_of_row = variant::make_row(p.x, z, head, row);
        split::back_row(finals, place, p, head, values_of_row, delta, zero, out, site);
        if constexpr (variant::NORM) {
            values[variant::BACK_ROWS * group + back::row_place(row)] =
                large ? -out[variant::BACK_ROWS] : out[variant::BACK_ROWS];
        }
#pragma unroll
        for (int k = 0; k < variant::BACK_ROWS; k++) {
            values[k * group + back::row_place(row)] = out[k];
        }
        repeat<0, variant::ROW_SITES>([&]<int G>() {
            if constexpr (variant::ROW_SITE_FORM[G] == SITE_HEAD) {
                sums[G] += site[G];
            } else {
                static_assert(variant::ROW_SITE_FORM[G] == SITE_ROW, "a row site is SITE_HEAD or SITE_ROW");
                back::add_sum(variant::template row_site_address<G>(p.g, p.x, z, head, values_of_row), site[G]);
            }
        });
    }
    if (place >= PRE_ROWS) {
        return; // whole warps
    }
    repeat<0, variant::ROW_SITES>([&]<int G>() {
        if constexpr (variant::ROW_SITE_FORM[G] == SITE_HEAD) {
            const float sum = lanes_sum<32>(sums[G]);
            if (lane_id() == 0) {
                back::add_sum(variant::template row_site_address<G>(p.g, p.x, z, head, variant::row{}), sum);
            }
        }
    });
}
#endif
