// back_map.cuh: kernel: the same as tilemap.cuh for the tiles of attention backward. Launch and result: tile_classes.cuh.
#pragma once
#include "tile_classes.cuh"

extern "C" __global__ void __launch_bounds__(MAP_THREADS) LATHE_ENTRY(bwd_map)(const __grid_constant__ map_params p)
{
    tilemap::write_classes<cfg::BACK_BM, cfg::BACK_BN>(p);
}
