// norms.cuh: for the kernels of rows: rows whose logarithm of a sum is given, and too large for f32 to hold the
// logarithm, are added up once more. Few rows are: each warp does it alone, from memory. Rows may be written over where
// they are read, so nobody goes on before all are done.
#pragma once
#include "rowwise/rows.cuh"

namespace many
{

template <class VARIANT> __host__ __device__ constexpr int count_norms()
{
    if constexpr (requires { VARIANT::NORMS; }) {
        return VARIANT::NORMS;
    } else {
        return 0;
    }
}

// Are norms needed before the first pass is over? Else nobody waits for what is given while it is made.
template <class VARIANT> __host__ __device__ constexpr bool norms_first()
{
    if constexpr (count_norms<VARIANT>() > 0) {
        return VARIANT::PASSES == 0 || VARIANT::NORMS_FIRST;
    } else {
        return true;
    }
}

// Rows along an inner dim: a lane has rows of its own, and all warps have the same. Else LANES beside each other share
// one.
template <class VARIANT, bool INNER_DIM> DEV void add_up_row(typename VARIANT::vals &vals, const rows_params &p,
                                                             const typename VARIANT::head &head, const row_at &at,
                                                             bool here)
{
    constexpr int NORMS = count_norms<VARIANT>();
    constexpr int LANES = INNER_DIM ? 1 : min_of(TEAM, 32);
    float sum[NORMS] = {};
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % LANES; i < (here ? p.z.n : 0); i += LANES) {
        float e[max_of(VARIANT::IN, 1)];
        repeat<0, VARIANT::IN>([&]<int K>() {
            const in_type<K> *row = row_of<in_type<K>>(p.in[K], at);
            e[K] = m_load(row + (INNER_DIM ? i * p.in[K].stride[3] : i), 0);
        });
        VARIANT::add_to_norms(e, i, p.x, p.z, head, vals, sum);
    }
#pragma unroll
    for (int k = 0; k < NORMS; k++) {
        sum[k] = red_lanes<RED_SUM, LANES>(sum[k]);
    }
    VARIANT::take_norms(vals, sum, p, head, at);
}

// All who may write the rows that a warp has just read.
DEV void exchange_readers()
{
    if constexpr (CLUSTER > 1) {
        cluster_barrier<CLUSTER>();
    } else if constexpr (WHOLE_BLOCK || INNER) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

// By all threads of a block, or of a cluster, behind begin() of the row, once: ahead of the passes (FIRST) or behind
// what the first one adds up. `here`: there is one.
template <bool FIRST, class VARIANT = variant> DEV void find_norms(typename VARIANT::vals &vals, const rows_params &p,
                                                                   const typename VARIANT::head &head, const row_at &at,
                                                                   bool here)
{
    if constexpr (count_norms<VARIANT>() > 0 && norms_first<VARIANT>() == FIRST) {
        if (__any_sync(ALL_LANES, here && VARIANT::has_large(vals))) {
            add_up_row<VARIANT, INNER>(vals, p, head, at, here);
            exchange_readers();
        }
    }
}

} // namespace many
