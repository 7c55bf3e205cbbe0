/*
 * tile_map.h: where tiles of a mask are judged: by the kernels that meet them, or once a launch.
 */
#ifndef LATHE_GEN_TILE_MAP_H
#define LATHE_GEN_TILE_MAP_H

#include <stdbool.h>

struct ir;
struct problem;

/* Does a mask read tensors by row or by column? */
bool bounds_mask_reads_data(const struct ir *ir);
/* Once a launch, by a kernel that writes a map: where a mask reads data, where nothing is known of some
   comparison on a tile, or where bounds divide much by values of the launch. */
bool tile_map_wanted(const struct ir *ir);
/* Of such a mask: are the least and the largest values of its reads on a tile all that has to be known? */
bool tile_map_of_ranges(const struct ir *ir);
/* Does such a mask read tensors by both row and column? */
bool tile_map_reads_pairs(const struct ir *ir);
/* From so many heads on that have a line of the map in common, a look at all pairs of a tile costs no more
   than what the main kernel does there without it. */
int tile_map_look_heads(const struct ir *ir, const struct problem *problem, double fmas, bool backward);

#endif
