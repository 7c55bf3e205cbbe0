// linear/mod_rows.cuh: rows of a tile in shared memory as a mod of q or k makes them, in the place of the mod's own
// launch.
#pragma once
#include "heads/vector_mod.cuh"
#include "linear/walk.cuh"

namespace linear
{

// Rows `from`, from + `step` .. ahead of `to`: this thread's; a team of mods::shape has a row.
struct mod_rows {
    int from, step, to;

    template <class MOD> static constexpr bool HAS = MOD::PRESENT &&MOD::STAGES > 0;

    // Each row of a tile of COLS, whose first one is token `place`, as MOD makes it, to global memory where `out` is
    // not nullptr, and where KEPT back to its place; rows that do not exist stay zeros.
    template <class MOD, int COLS, bool KEPT, class P, class T> __device__ __forceinline__ void
    make(const P &p, const work &w, int place, unsigned char *tile, T *out, i64 stride) const
    {
        using s = mods::shape<cfg::D>;
        const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
        const typename MOD::head head = MOD::make_head(p.x, p.z, w.s.batch, w.h_kv);
        mod_params own = {};
        own.z = p.z;
        own.x = p.x;
#pragma unroll 1
        for (int row = from; row < to; row += step) {
            const bool exists = w.has(place + row);
            const int token = sequence::token(w.s, min(place + row, w.s.length - 1));
            mods::row_values<cfg::D> x = {};
            each_vector<COLS>(row, thread, [&](int offset, int, int k, bool high) {
                load_vec<s::V, cfg::operand>(operand_at(tile, offset), high ? x.high[k] : x.low[k]);
            });
            typename MOD::vals vals = {};
            repeat<0, MOD::STAGES>(
                [&]<int S>() { mods::run_stage<MOD, S, cfg::D>(x, vals, own, head, thread, token); });
            each_vector<COLS>(row, thread, [&](int offset, int element, int k, bool high) {
                const float(&y)[s::V] = high ? x.high[k] : x.low[k];
                if (KEPT && exists) {
                    store_vec<s::V, cfg::operand>(operand_at(tile, offset), y);
                }
                if (exists && out != nullptr) {
                    store_vec<s::V, T>(out + (token * stride + element), y);
                }
            });
        }
    }
    DEV cfg::operand *operand_at(unsigned char *tile, int offset)
    {
        return reinterpret_cast<cfg::operand *>(tile + offset);
    }
    // f(bytes from the tile on, element, vector of a half, which half), of this thread's vectors of a row.
    template <int COLS, class F> DEV void each_vector(int row, int thread, const F &f)
    {
        using s = mods::shape<cfg::D>;
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (vector < s::VECTORS) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int element = vector * s::V + half * s::HALF;
                    f(static_cast<int>(swizzle<COLS>::offset(row, element / 8)) +
                          element % 8 * ELEMENT_BYTES<cfg::operand>,
                      element, k, half == 1);
                }
            }
        }
    }
};

} // namespace linear
