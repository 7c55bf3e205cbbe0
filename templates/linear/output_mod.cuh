// linear/output_mod.cuh: kernel: the output mod beside packed sequences. Tokens behind the last of them are nobody's:
// their o is not written.
//
// Launch: as of heads/vector_mod.cuh, of all tokens.
#pragma once
#include "heads/vector_mod.cuh"

#if LATHE_COMPILED(mod_o_packed)
extern "C" __global__ void __launch_bounds__(MOD_THREADS)
    LATHE_ENTRY(mod_o_packed)(const __grid_constant__ mod_params launched)
{
    mod_params p = launched;
    p.len = p.seqs > 0 ? min(p.len, p.cu[p.seqs * p.cu_step]) : 0;
    mods::run_rows<variant::output_mod, cfg::element_o, cfg::D_V, cfg::O_F32>(p, mods::rows_of_batch(launched));
}
#endif
