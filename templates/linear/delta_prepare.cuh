// linear/delta_prepare.cuh: kernel: in the place of linear/delta_inverse.cuh where q or k has a mod. It reads all keys
// of a chunk, so it makes of them what its own products and the kernels behind it take, and of the queries the same:
// neither mod has a launch, and no key is read twice.
//
// Launch: as there; six blocks have room on a multiprocessor of Hopper. Of the heads of v that share one of k the
// first leaves its keys and the last its queries.
#pragma once
#include "linear/delta_inverse.cuh"
#include "linear/mod_rows.cuh"

namespace linear
{

struct prepared_keys {
    static constexpr int QUERIES = static_cast<int>(sizeof(matrix)); // where they wait: nothing is there yet
    template <class MOD> static constexpr bool HAS = mod_rows::HAS<MOD>;

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
    template <class MOD, bool KEPT, class P, class T>
    DEV void make_rows(const P &p, const inverse_work &at, unsigned char *tile, T *to, i64 stride)
    {
        constexpr int TEAM = mods::shape<cfg::D>::TEAM;
        const mod_rows own = {static_cast<int>(threadIdx.x) / TEAM, THREADS / TEAM, CHUNK_TOKENS};
        own.make<MOD, CHUNK_PAD, KEPT>(p, at.w, at.place, tile, to, stride);
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
