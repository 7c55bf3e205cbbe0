// attention/mask_tiles_kernel.cuh: kernel: for a mask that is judged once a launch, which tiles of the forward kernel,
// MAP_ROWS queries each, have no live pair, some, or all of them; or, where the kernel finds that itself from what the
// mask reads, the ranges of that. Launch and result: attention/mask_tiles.cuh.
#pragma once
#include "attention/mask_tiles.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");

#if LATHE_COMPILED(map)
extern "C" __global__ void __launch_bounds__(MAP_THREADS) LATHE_ENTRY(map)(const __grid_constant__ map_params p)
{
    let_next_begin();
    if constexpr (variant::READ_RANGES) {
        tilemap::write_ranges<variant, cfg::BN>(p);
    } else if constexpr (variant::MAP_BLOCKS) {
        tilemap::block_classes<variant, variant::MAP_ROWS, cfg::BN, MAP_WORD>::write(p);
    } else {
        tilemap::write_classes<variant::MAP_ROWS, cfg::BN, MAP_WORD, true>(p);
    }
}
#endif
