// attention/narrow_mods.cuh: rows of k and v of 8 bits (cfg::source_k, source_v) become rows of what tensor cores
// multiply, through their mods where a spec has them: the launches of attention/vector_mods.cuh, of another type.
#pragma once
#include "attention/vector_mods.cuh"
#include "common/narrow.cuh"

// What mods::run finds by the type of its tensor.
template <int V, class T>
requires IS_NARROW<T> DEV void load(const T *p, bool aligned, i64 step, float (&out)[V])
{
    if (aligned) {
        load_narrow<V>(p, out);
    } else {
#pragma unroll
        for (int i = 0; i < V; i++) {
            out[i] = to_float(p[i * step]);
        }
    }
}

namespace mods
{

// Of DIM columns of a row those that are in this tensor: of k not those of k2.
template <class MOD, int DIM> DEV constexpr int columns_of()
{
    if constexpr (requires { MOD::COLUMNS; }) {
        return MOD::COLUMNS;
    } else {
        return DIM;
    }
}

template <class MOD, class SOURCE, class OUT, int DIM, class PARAMS>
DEV void widen_rows(const PARAMS &p, const rows &at)
{
    if constexpr (requires { MOD::ROW; }) {
        copy_rows<MOD, SOURCE, OUT, DIM, false>(p, at);
    } else {
        run<MOD, SOURCE, OUT, DIM>(p, at);
    }
}

template <class MOD, class SOURCE, class OUT, int DIM, class PARAMS> DEV void widen(const PARAMS &launched)
{
    if constexpr (!MOD::PRESENT) {
        return;
    } else if constexpr (requires { launched.cu_q; }) {
        PARAMS p = launched;
        rows at;
        if (enter_rows<MOD_TOKENS>(p, at)) {
            widen_rows<MOD, SOURCE, OUT, DIM>(p, at);
        }
    } else {
        widen_rows<MOD, SOURCE, OUT, DIM>(launched, rows_of_batch(launched));
    }
}

} // namespace mods

#if LATHE_COMPILED(narrow_k)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(narrow_k)(const __grid_constant__ mod_params p)
{
    mods::widen<variant::key_mod, cfg::source_k, cfg::element_k, mods::columns_of<variant::key_mod, cfg::D>()>(p);
}
#endif

#if LATHE_COMPILED(narrow_v)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(narrow_v)(const __grid_constant__ mod_params p)
{
    mods::widen<variant::value_mod, cfg::source_v, cfg::element_v, cfg::D_V>(p);
}
#endif
