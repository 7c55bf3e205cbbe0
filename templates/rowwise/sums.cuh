// rowwise/sums.cuh: for rowwise/registers.cuh: what a block leaves of its sums over rows, and what adds up the blocks.
#pragma once
#include "rowwise/rows.cuh"

namespace many
{

struct totals { // of one thread, over the rows of its block
    float column[VECTORS][COLUMNS][V];
    float sum[SUMS];
};

// ---- what a block leaves -----------------------------------------------------------------------------

// Of several teams: one after the other, through shared memory.
struct gathering {
    float column[WHOLE_BLOCK || !COLUMN_SUMS ? 1 : cfg::THREADS * VECTORS * V];
    float sum[SUMS][cfg::ROWS_PER_BLOCK];
};

// Of a cluster: where fewer run at once than there are parts, those that nobody has are nothing.
DEV void clear_parts(const rows_params &p)
{
    const int parts = min(cfg::BLOCKS / CLUSTER, p.z.rows0 * p.z.rows1 * p.z.rows);
#pragma unroll 1
    for (int part = static_cast<int>(blockIdx.x + gridDim.x) / CLUSTER; part < parts;
         part += static_cast<int>(gridDim.x) / CLUSTER) {
        for (int i = lane_in_team(); i < variant::COLUMNS * p.z.n; i += TEAM) {
            p.columns[static_cast<i64>(part) * variant::COLUMNS * p.z.n + i] = 0.0f;
        }
        if (lane_in_team() < variant::SUMS) {
            p.sums[part * variant::SUMS + lane_in_team()] = 0.0f;
        }
    }
}

template <class TOTALS> DEV void leave_columns(const rows_params &p, const TOTALS &total, gathering &shared)
{
    const int lane = lane_in_team();
    const int team = team_of_thread();
    repeat<0, variant::COLUMNS>([&]<int S>() {
        float *to = p.columns + (static_cast<i64>(blockIdx.x / CLUSTER) * variant::COLUMNS + S) * p.z.n;
        if constexpr (WHOLE_BLOCK) {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                const int i = own_first() + v * STEP;
                if (i < p.z.n) {
                    store_vec<V>(to + i, total.column[v][S]);
                }
            }
        } else {
            constexpr int ROW = TEAM * VECTORS * V;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    shared.column[team * ROW + (lane + v * TEAM) * V + j] = total.column[v][S][j];
                }
            }
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < p.z.n; i += cfg::THREADS) {
                float sum = 0.0f;
                for (int t = 0; t < cfg::ROWS_PER_BLOCK; t++) {
                    sum += shared.column[t * ROW + i];
                }
                to[i] = sum;
            }
            __syncthreads();
        }
    });
}

template <class TOTALS> DEV void leave_sums(const rows_params &p, const TOTALS &total, gathering &shared)
{
    const int team = team_of_thread();
    if (lane_in_team() == 0) {
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            shared.sum[s][team] = total.sum[s];
        }
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < variant::SUMS && (CLUSTER == 1 || cluster_rank() == 0)) {
        float sum = 0.0f;
        for (int t = 0; t < cfg::ROWS_PER_BLOCK; t++) {
            sum += shared.sum[threadIdx.x][t];
        }
        p.sums[static_cast<i64>(blockIdx.x / CLUSTER) * variant::SUMS + threadIdx.x] = sum;
    }
}

// ---- what adds up the blocks -------------------------------------------------------------------------

// Every GRADS-th block has the same gradient, a thread one of its elements, or 4 side by side. SHARES threads have the
// same ones, and each adds up every SHARES-th part; SUM_ROUND of its loads are under way at once. What they have is
// added up in their order, so that a sum does not depend on who comes first.
__host__ __device__ constexpr bool sums_columns_alone()
{
    bool alone = true;
    for (int k = 0; k < variant::SITES; k++) {
        alone &= variant::SITE_COLUMN[k];
    }
    return alone;
}

constexpr int SUM_WIDTH = V % 4 == 0 && sums_columns_alone() ? 4 : 1; // elements of a thread: n is a multiple of V
constexpr int GRADS = max_of(variant::GRADS, 1);
using sums_beside = typename pick_type<SUM_WIDTH == 4, type_list<float, float4>>::type;
constexpr int SHARES = variant::SUM_SHARES;
constexpr int SUM_LANES = SUM_THREADS / SHARES; // beside each other
static_assert(SUM_LANES * SUM_WIDTH >= 32, "lanes beside each other read 128 bytes of a part, or more");

struct element_place { // in a gradient: the first of SUM_WIDTH side by side, and how many of them there are
    i64 to;
    int count;
};
struct elements : element_place {
    i64 outer, last; // which line along the last dim, and where there
};

DEV i64 line_of(const row_gradient &g) { return (g.size[3] + SUM_WIDTH - 1) / SUM_WIDTH; } // threads for it

DEV elements find_elements(const row_gradient &g, i64 number)
{
    elements e = {{0, 0}, 0, number * SUM_WIDTH};
    if constexpr (variant::GRAD_DIMS > 1) {
#pragma unroll 1
        for (int d = 3; d == 3 || (d > 0 && number > 0); d--) { // one text for all dims
            const i64 index = take_index(number, d == 3 ? line_of(g) : g.size[d]) * (d == 3 ? SUM_WIDTH : 1);
            e.to += index * g.stride[d];
            e.last = d == 3 ? index : e.last;
            e.outer = d == 3 ? number : e.outer;
        }
        e.to += number * g.stride[0];
    } else {
        e.to = e.last * g.stride[3];
        number = 0;
    }
    e.count = number < g.size[0] ? static_cast<int>(min(g.size[3] - e.last, static_cast<i64>(SUM_WIDTH))) : 0;
    return e;
}

struct parts_of_site {
    const float *first;
    i64 stride;
    int count; // 0 where nothing belongs to these elements
};

template <int S> DEV void find_parts(parts_of_site &parts, const rows_sum_params &p, const variant::head &head,
                                     const row_gradient &g, const elements &e)
{
    constexpr int SLOT = variant::SITE_SLOT[S];
    const int rows = p.z.rows0 * p.z.rows1 * p.z.rows;
    const int row_parts = min(cfg::BLOCKS / CLUSTER, (rows + cfg::ROWS_PER_BLOCK - 1) / cfg::ROWS_PER_BLOCK);
    const int column = e.count > 0 ? variant::column_of<S>(g, p.x, p.z, head, e.outer, e.last) : -1;
    if constexpr (variant::SITE_COLUMN[S]) {
        parts.first = p.columns + static_cast<i64>(SLOT) * p.z.n + max(column, 0);
        parts.stride = static_cast<i64>(variant::COLUMNS) * p.z.n;
        parts.count = column < 0 ? 0 : IN_REGISTERS ? row_parts : min(cfg::COLUMN_PARTS, rows);
    } else {
        parts.first = p.sums + SLOT;
        parts.stride = variant::SUMS;
        parts.count = column < 0 ? 0 : row_parts;
    }
}

DEV void add(float &sum, float x) { sum += x; }
DEV void add(float4 &sum, float4 x) { sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w); }

DEV void add_parts(sums_beside &sum, const parts_of_site &parts, int share)
{
    const float *from = parts.first + share * parts.stride;
#pragma unroll 1
    for (int part = share; part < parts.count; part += SHARES * variant::SUM_ROUND) {
        sums_beside x[variant::SUM_ROUND] = {};
#pragma unroll
        for (int k = 0; k < variant::SUM_ROUND; k++) {
            if (part + k * SHARES < parts.count) {
                x[k] = *reinterpret_cast<const sums_beside *>(from);
            }
            from += SHARES * parts.stride;
        }
#pragma unroll
        for (int k = 0; k < variant::SUM_ROUND; k++) {
            add(sum, x[k]);
        }
    }
}

template <int S> DEV float take_scattered(const rows_sum_params &p, const row_gradient &g, const elements &e)
{
    constexpr int SLOT = variant::SITE_SLOT[S];
    const i64 at = e.outer * g.size[3] + e.last;
    if constexpr (SLOT < 0) { // an earlier site has brought it
        return 0.0f;
    } else if constexpr (variant::SCATTER_EXACT) {
        return exact_total(reinterpret_cast<const exact_sum *>(p.scattered[SLOT])[at]);
    } else {
        return p.scattered[SLOT][at];
    }
}

// What a share of the parts of the gradient's sites adds: sites take turns in one text.
DEV void add_sites(sums_beside &sum, const rows_sum_params &p, const variant::head &head, int grad, const elements &e,
                   int share)
{
    const row_gradient &g = p.grad[grad];
    int site = 0;
    int end = 0;
    repeat<0, variant::SITES>([&]<int S>() {
        site += variant::SITE_GRAD[S] < grad ? 1 : 0;
        end += variant::SITE_GRAD[S] <= grad ? 1 : 0;
    });
#pragma unroll 1
    for (; site < end; site++) {
        parts_of_site parts = {nullptr, 0, 0};
        repeat<0, variant::SITES>([&]<int S>() {
            if (site == S) {
                if constexpr (!variant::SITE_SCATTERED[S]) {
                    find_parts<S>(parts, p, head, g, e);
                } else if constexpr (SUM_WIDTH == 1) {
                    sum += e.count > 0 && share == 0 ? take_scattered<S>(p, g, e) : 0.0f;
                }
            }
        });
        if constexpr (variant::COLUMNS + variant::SUMS > 0) {
            add_parts(sum, parts, share);
        }
    }
}

DEV void add_up(const rows_sum_params &p)
{
    constexpr int ELEMENTS = SUM_LANES * SUM_WIDTH; // of a block
    __shared__ __align__(16) float shared[SHARES * ELEMENTS];
    __shared__ element_place place[SUM_LANES];
    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % SUM_LANES;
    const int grad = static_cast<int>(blockIdx.x) % GRADS;
    const variant::head head = variant::make_head(p.x, p.z);
    const row_gradient &g = p.grad[grad];
    const i64 count = g.size[0] * g.size[1] * g.size[2] * line_of(g);
#pragma unroll 1
    for (i64 first = blockIdx.x / GRADS * SUM_LANES; first < count; first += gridDim.x / GRADS * SUM_LANES) {
        const elements e = find_elements(g, first + lane);
        sums_beside sum = {};
        add_sites(sum, p, head, grad, e, thread / SUM_LANES);
        reinterpret_cast<sums_beside *>(shared)[thread] = sum;
        if (thread < SUM_LANES) {
            place[lane] = e;
        }
        __syncthreads();
#pragma unroll 1
        for (int i = thread; i < ELEMENTS; i += SUM_THREADS) { // neighbours write neighbours
            const element_place &at = place[i / SUM_WIDTH];
            float all = shared[i];
#pragma unroll 4
            for (int k = 1; k < SHARES; k++) {
                all += shared[k * ELEMENTS + i];
            }
            if (i % SUM_WIDTH < at.count) {
                g.data[at.to + i % SUM_WIDTH * g.stride[3]] = all;
            }
        }
        __syncthreads();
    }
}

} // namespace many
