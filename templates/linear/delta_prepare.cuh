// linear/delta_prepare.cuh: kernel: in the place of linear/delta_inverse.cuh where q or k has a mod. It reads all keys
// of a chunk, so it makes of them what its own products and the kernels behind it take, and of the queries the same:
// neither mod has a launch, and no key is read twice.
//
// Launch: as there; six blocks have room on a multiprocessor of Hopper. Of the heads of v that share one of k the
// first leaves its keys and the last its queries.
#pragma once
#include "heads/vector_mod.cuh"
#include "linear/delta_inverse.cuh"

namespace linear
{

struct prepared_keys {
    static constexpr int QUERIES = static_cast<int>(sizeof(matrix)); // where they wait: nothing is there yet
    template <class MOD> static constexpr bool HAS = MOD::PRESENT &&MOD::STAGES > 0;

    // Of a mod whose rows had to be moved for their alignment nothing is given: it has a launch.
    template <class P> DEV bool makes_keys(const P &p)
    {
        return HAS<typename variant::key_mod> && p.given_k != nullptr;
    }
    template <class P> DEV bool makes_queries(const P &p, const inverse_work &at)
    {
        return HAS<typename variant::query_mod> && p.given_q != nullptr && (at.w.h + 1) % p.z.group() == 0;
    }
    template <class P> DEV void load(const P &p, const inverse_work &at, unsigned char *bytes)
    {
        const u32 shared = shared_address(bytes);
        if (makes_keys(p)) {
            load_chunk<cfg::element_k>(p, at, shared, p.given_k, p.given_k_b, p.given_k_h, p.given_k_t);
        } else {
            load_chunk<cfg::element_k>(p, at, shared, p.k, p.k_b, p.k_h, p.k_t);
        }
        if (makes_queries(p, at)) {
            load_chunk<cfg::element_q>(p, at, shared + QUERIES, p.given_q, p.given_q_b, p.given_q_h, p.given_q_t);
        }
    }
    template <class P> DEV void finish(const P &p, const inverse_work &at, unsigned char *bytes)
    {
        if constexpr (HAS<typename variant::query_mod>) {
            if (makes_queries(p, at)) {
                make_rows<typename variant::query_mod, false>(
                    p, at, bytes + QUERIES, made<cfg::element_q>(p.q, at.w.s.batch * p.q_b + at.w.h_kv * p.q_h), p.q_t);
            }
        }
        if constexpr (HAS<typename variant::key_mod>) {
            if (makes_keys(p)) {
                cfg::element_k *to = at.w.h % p.z.group() == 0
                                         ? made<cfg::element_k>(p.k, at.w.s.batch * p.k_b + at.w.h_kv * p.k_h)
                                         : nullptr;
                make_rows<typename variant::key_mod, true>(p, at, bytes, to, p.k_t);
            }
        }
        __syncthreads();
    }
    // Where what a mod makes lies, which the kernels behind this one only read.
    template <class T> DEV T *made(const void *base, i64 offset)
    {
        return static_cast<T *>(const_cast<void *>(base)) + offset;
    }
    // Each row of a tile, as MOD makes it, to global memory where `to` is not nullptr, and where KEPT back to its
    // place; rows that do not exist stay zeros.
    template <class MOD, bool KEPT, class P, class T>
    DEV void make_rows(const P &p, const inverse_work &at, unsigned char *tile, T *to, i64 stride)
    {
        using s = mods::shape<cfg::D>;
        constexpr int AT_ONCE = THREADS / s::TEAM;
        const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
        const typename MOD::head head = MOD::make_head(p.x, p.z, at.w.s.batch, at.w.h_kv);
        mod_params own = {};
        own.z = p.z;
        own.x = p.x;
#pragma unroll 1
        for (int row = static_cast<int>(threadIdx.x) / s::TEAM; row < CHUNK_TOKENS; row += AT_ONCE) {
            const bool exists = at.w.has(at.place + row);
            const int token = sequence::token(at.w.s, min(at.place + row, at.w.s.length - 1));
            mods::row_values<cfg::D> x = {};
            each_vector(row, thread, [&](int offset, int, int k, bool high) {
                load_vec<s::V, cfg::operand>(operand_at(tile, offset), high ? x.high[k] : x.low[k]);
            });
            typename MOD::vals vals = {};
            repeat<0, MOD::STAGES>(
                [&]<int S>() { mods::run_stage<MOD, S, cfg::D>(x, vals, own, head, thread, token); });
            each_vector(row, thread, [&](int offset, int element, int k, bool high) {
                const float(&y)[s::V] = high ? x.high[k] : x.low[k];
                if (KEPT && exists) {
                    store_vec<s::V, cfg::operand>(operand_at(tile, offset), y);
                }
                if (exists && to != nullptr) {
                    store_vec<s::V, T>(to + (token * stride + element), y);
                }
            });
        }
    }
    DEV cfg::operand *operand_at(unsigned char *tile, int offset)
    {
        return reinterpret_cast<cfg::operand *>(tile + offset);
    }
    // f(bytes from the tile on, element, vector of a half, which half), of this thread's vectors of a row.
    template <class F> DEV void each_vector(int row, int thread, const F &f)
    {
        using s = mods::shape<cfg::D>;
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (vector < s::VECTORS) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int element = vector * s::V + half * s::HALF;
                    f(static_cast<int>(swizzle<CHUNK_PAD>::offset(row, element / 8)) +
                          element % 8 * ELEMENT_BYTES<cfg::operand>,
                      element, k, half == 1);
                }
            }
        }
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int prepare = static_cast<int>(sizeof(linear::inverse_layout));
}

#if LATHE_COMPILED(prepare)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS, 6)
    LATHE_ENTRY(prepare)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::invert<linear::prepared_keys>(
        p, shared_bytes, [](float beta) { return beta; }, [](i64, const linear::inverse_layout &) {});
}
#endif
