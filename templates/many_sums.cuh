// many_sums.cuh: for rowwise_many.cuh: what a block leaves of its sums over rows, and what adds up the blocks.
#pragma once
#include "many_rows.cuh"

namespace many {

struct totals { // of one thread, over the rows of its block
    float column[VECTORS][COLUMNS][V];
    float sum[SUMS];
};

// ---- what a block leaves ---------------------------------------------------------------------------------------

// Of several teams: one after the other, through shared memory.
struct gathering {
    float column[WHOLE_BLOCK || !COLUMN_SUMS ? 1 : cfg::THREADS * VECTORS * V];
    float sum[SUMS][cfg::ROWS_PER_BLOCK];
};

// Of a cluster: where fewer run at once than there are parts, those that nobody has are nothing.
DEV void clear_parts(const many_params &p)
{
    const int parts = min(cfg::BLOCKS / CLUSTER, p.z.rows0 * p.z.rows1 * p.z.rows);
#pragma unroll 1
    for (int part = static_cast<int>(blockIdx.x + gridDim.x) / CLUSTER; part < parts; part += static_cast<int>(gridDim.x) / CLUSTER) {
        for (int i = lane_in_team(); i < variant::COLUMNS * p.z.n; i += TEAM) {
            p.columns[static_cast<i64>(part) * variant::COLUMNS * p.z.n + i] = 0.0f;
        }
        if (lane_in_team() < variant::SUMS) {
            p.sums[part * variant::SUMS + lane_in_team()] = 0.0f;
        }
    }
}

template <class TOTALS> DEV void leave_columns(const many_params &p, const TOTALS &total, gathering &shared)
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

template <class TOTALS> DEV void leave_sums(const many_params &p, const TOTALS &total, gathering &shared)
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

// ---- what adds up the blocks -------------------------------------------------------------------------------------

DEV void add_up(const many_sum_params &p)
{
    constexpr int STEPS = SUM_THREADS / 32; // warps, each with its share of the parts
    __shared__ float shared[STEPS][32];
    const int rows = p.z.rows0 * p.z.rows1 * p.z.rows;
    const int row_parts = min(cfg::BLOCKS / CLUSTER, (rows + cfg::ROWS_PER_BLOCK - 1) / cfg::ROWS_PER_BLOCK);
    const int column_parts = IN_REGISTERS ? row_parts : min(cfg::COLUMN_PARTS, rows);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const variant::head head = variant::make_head(p.x, p.z);
    repeat<0, variant::GRADS>([&]<int G>() {
        const row_gradient &g = p.grad[G];
        const i64 count = g.size[0] * g.size[1] * g.size[2] * g.size[3];
#pragma unroll 1
        for (i64 base = static_cast<i64>(blockIdx.x) * 32; base < count; base += static_cast<i64>(gridDim.x) * 32) {
            const i64 e = base + lane;
            float sum = 0.0f;
            repeat<0, variant::SITES>([&]<int S>() {
                if constexpr (variant::SITE_GRAD[S] == G && variant::SITE_SCATTERED[S]) {
                    constexpr int SLOT = variant::SITE_SLOT[S];
                    if constexpr (SLOT >= 0) { // else an earlier site has brought it
                        if (warp == 0 && e < count) {
                            if constexpr (variant::SCATTER_EXACT) {
                                sum += exact_total(reinterpret_cast<const exact_sum *>(p.scattered[SLOT])[e]);
                            } else {
                                sum += p.scattered[SLOT][e];
                            }
                        }
                    }
                } else if constexpr (variant::SITE_GRAD[S] == G) {
                    const int column = e < count ? variant::column_of<S>(g, p.x, p.z, head, e) : -1;
                    constexpr int SLOT = variant::SITE_SLOT[S];
                    const bool by_column = variant::SITE_COLUMN[S];
                    const float *from = by_column ? p.columns + static_cast<i64>(SLOT) * p.z.n + max(column, 0) : p.sums + SLOT;
                    const i64 stride = by_column ? static_cast<i64>(variant::COLUMNS) * p.z.n : variant::SUMS;
                    const int parts = column < 0 ? 0 : by_column ? column_parts : row_parts;
#pragma unroll 4
                    for (int k = warp; k < parts; k += STEPS) {
                        sum += from[k * stride];
                    }
                }
            });
            shared[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && e < count) {
                float all = shared[0][lane];
#pragma unroll
                for (int k = 1; k < STEPS; k++) {
                    all += shared[k][lane];
                }
                i64 to = 0;
                i64 rest = e;
#pragma unroll
                for (int d = 3; d > 0; d--) {
                    to += take_index(rest, g.size[d]) * g.stride[d];
                }
                to += rest * g.stride[0];
                g.data[to] = all;
            }
            __syncthreads();
        }
    });
}

} // namespace many
