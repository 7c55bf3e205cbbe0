// attention/latent_rows.cuh: where rows of Q and K lie in kernels for latent attention, 16 bytes at a time: in q and k,
// and behind them in q2 and k2 where a spec has them, of pages too.
#pragma once
#include "attention/decode_rows.cuh"
#include "attention/key_rows.cuh"

namespace mla
{

using namespace decode;

constexpr int D1 = cfg::D - cfg::D2; // columns of q and k; the rest are those of q2 and k2
static_assert(D1 % 8 == 0 && cfg::D2 >= 0, "16 bytes are of one tensor");
static_assert(!cfg::V_IS_K || cfg::D_V <= D1, "V is a part of k, and not of k2");

// Of a row of Q, or of q2 where the columns are beyond D1.
template <class PARAMS> DEV const cfg::element_q *query_columns(const PARAMS &p, const work &w, int row, int column)
{
    if constexpr (requires { p.q2; }) {
        if (column >= D1) {
            return static_cast<const cfg::element_q *>(p.q2) + w.b * p.q2_b + w.head(row) * p.q2_h +
                   w.token(row) * p.q2_t + (column - D1);
        }
    }
    return static_cast<const cfg::element_q *>(p.q) + w.b * p.q_b + w.head(row) * p.q_h + w.token(row) * p.q_t + column;
}

// A row of K with that of k2 behind it; of pages, both lie at the same place of theirs.
struct key_columns {
    const cfg::element_k *k, *k2; // k2: where column 0 would be
    bool exists;

    template <class PARAMS> __device__ __forceinline__ key_columns(const PARAMS &p, const work &w, int key)
    {
        exists = key < p.z.len_kv;
        const page_place at = exists ? find_page(p, w.b, key) : page_place{0, 0};
        k = static_cast<const cfg::element_k *>(p.k) + w.h_kv * p.k_h + at.page * p.k_b + at.row * p.k_t;
        k2 = k;
        if constexpr (requires { p.k2; }) {
            k2 = static_cast<const cfg::element_k *>(p.k2) + w.h_kv * p.k2_h + at.page * p.k2_b + at.row * p.k2_t - D1;
        }
    }
    __device__ __forceinline__ bool inside(int column) const
    {
        return exists && (cfg::D == cfg::D_PAD || column < cfg::D);
    }
    // Of a column inside; of others 0 is asked for, which is not read.
    __device__ __forceinline__ const cfg::element_k *at(int column) const
    {
        return (cfg::D2 == 0 || column < D1 ? k : k2) + column;
    }
};

} // namespace mla
