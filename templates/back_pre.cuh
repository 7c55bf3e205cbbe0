// back_pre.cuh: kernel: what attention backward needs of each query row before its main loop: delta = sum o' do', the row
// values of variant::back_row, sites that a row adds to once; and a copy of do where its rows are not aligned.
//
// Launch: n_b * n_h * ceil(len_q / PRE_ROWS) blocks of PRE_THREADS threads; no shared memory.
#pragma once
#include "back_parts.cuh"

constexpr int PRE_THREADS = 256;
constexpr int PRE_ROWS = 64;

namespace pre {

using element = cfg::element;
using o_type = pick<cfg::BACK_O_F32, float, cfg::element>::type;

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
    bool aligned;
    __device__ __forceinline__ rows_of(const void *base, i64 offset, i64 row_stride)
        : from(static_cast<const T *>(base) + offset), stride(row_stride)
    {
        const u64 mask = sizeof(T) == 4 ? 31 : 15;
        aligned = ((reinterpret_cast<u64>(from) | static_cast<u64>(row_stride) * sizeof(T)) & (mask & 15)) == 0;
    }
    __device__ __forceinline__ void load(int row, int vector, float (&x)[V]) const
    {
        const T *at = from + row * stride + vector * V;
        if (aligned) {
            load_vec<V, T>(at, x);
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) {
                x[i] = to_float(at[i]);
            }
        }
    }
};

constexpr int SLOTS = max_of(variant::ROW_SITES, 1);

struct row_result {
    float delta;
    bool zero; // every element of o is 0, or the forward kernel says that the row has no live pair
};

// A thread's share of one row.
DEV row_result look(const back_pre_params &p, const rows_of<o_type> &o, const rows_of<element> &dout, element *copy, int row,
                    int thread)
{
    constexpr bool READ_O = variant::DELTA || variant::EMPTY_BY_O;
    row_result r{0.0f, true};
#pragma unroll
    for (int k = 0; k < PER_THREAD; k++) {
        const int vector = thread + k * TEAM;
        if (VECTORS % TEAM != 0 && vector >= VECTORS) {
            continue;
        }
        float d[V];
        dout.load(row, vector, d);
        if (copy != nullptr) {
            store_vec<V, element>(copy + static_cast<i64>(row) * cfg::D_V + vector * V, d);
        }
        if constexpr (READ_O) {
            float x[V];
            o.load(row, vector, x);
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

} // namespace pre

extern "C" __global__ void __launch_bounds__(PRE_THREADS) LATHE_ENTRY(bwd_pre)(const __grid_constant__ back_pre_params p)
{
    using namespace pre;
    const sizes &z = p.z;
    const int tiles = (z.len_q + PRE_ROWS - 1) / PRE_ROWS;
    const int block = static_cast<int>(blockIdx.x);
    const int h = block / tiles % z.n_h;
    const int b = block / tiles / z.n_h;
    const int thread = static_cast<int>(threadIdx.x) % TEAM;
    const variant::head head = variant::make_head(p.x, z, b, h);
    const rows_of<o_type> o(p.o, b * p.o_b + h * p.o_h, p.o_t);
    const rows_of<element> dout(p.dout, b * p.dout_b + h * p.dout_h, p.dout_t);
    element *copy = p.dout_copy == nullptr ? nullptr
                                           : static_cast<element *>(p.dout_copy) +
                                                 (static_cast<i64>(b) * z.n_h + h) * z.len_q * cfg::D_V;
    const i64 line = static_cast<i64>(back::query_tiles(z)) * back::BM; // row values of a head
    const i64 group = line * z.n_b * z.n_h;
    float *values = p.rows + (static_cast<i64>(b) * z.n_h + h) * line;

    float sums[SLOTS] = {}; // of SITE_HEAD
    int row = block % tiles * PRE_ROWS + static_cast<int>(threadIdx.x) / TEAM;
#pragma unroll 1
    for (int turn = 0; turn < PRE_ROWS / AT_ONCE; turn++, row += AT_ONCE) {
        row_result r{0.0f, true};
        if (row < z.len_q) {
            r = look(p, o, dout, copy, row, thread);
        }
        const float delta = variant::DELTA ? lanes_sum<TEAM>(r.delta) : 0.0f;
        const bool zero = variant::EMPTY_BY_O && lanes_max<TEAM>(r.zero ? 0.0f : 1.0f) == 0.0f;
        if (thread != 0 || row >= z.len_q) {
            continue;
        }
        float out[max_of(variant::BACK_ROWS, 1)] = {};
        float site[SLOTS] = {};
        const variant::row values_of_row = variant::make_row(p.x, z, head, row);
        variant::back_row(p, head, values_of_row, delta, zero, out, site);
#pragma unroll
        for (int k = 0; k < variant::BACK_ROWS; k++) {
            values[k * group + row] = out[k];
        }
        back::repeat<0, variant::ROW_SITES>([&]<int G>() {
            if constexpr (variant::ROW_SITE_FORM[G] == SITE_HEAD) {
                sums[G] += site[G];
            } else {
                static_assert(variant::ROW_SITE_FORM[G] == SITE_ROW, "a row site is SITE_HEAD or SITE_ROW");
                back::add_sum(variant::template row_site_address<G>(p.g, p.x, z, head, values_of_row), site[G]);
            }
        });
    }
    back::repeat<0, variant::ROW_SITES>([&]<int G>() {
        if constexpr (variant::ROW_SITE_FORM[G] == SITE_HEAD) {
            const float sum = lanes_sum<32>(sums[G]);
            if (lane_id() == 0) {
                back::add_sum(variant::template row_site_address<G>(p.g, p.x, z, head, variant::row{}), sum);
            }
        }
    });
}
