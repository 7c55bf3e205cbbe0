/*
 * mask_tiles.h: what a mask does to a tile.
 */
#ifndef LATHE_GEN_MASK_TILES_H
#define LATHE_GEN_MASK_TILES_H

#include "gen/ir/ir.h"
#include "lathe_types.h"

#include <stdbool.h>

struct ir;

enum tile_class { TILE_NONE, TILE_SOME, TILE_ALL };
/* Class of the tile of query rows [row0, row1] and keys [kv0, kv1], inclusive, by interval arithmetic; the
   emitted device function computes exactly this. Reads of tensors are unknown. */
struct tile_at {
    double at[AT_COUNT]; /* fields of span 0 */
    int64_t q_start;
    int64_t row0, row1, kv0, kv1;
    const lathe_arg *const *input; /* [MAX_INPUTS], for reads indexed by head or batch alone; NULL: unknown */
};
/* Fill ir->bounds from ir->mask: two bools over the corners of a tile, "every pair is live" and "some pair
   may be". Called once, by check. */
void bounds_build(struct ir *ir);
/* Of a lowered spec: ir->lowered.read_bounds from ir->mask, and from ir->lowered.keys_left where that is
 * there already. */
void bounds_build_reads(struct ir *ir);
/* Of a lowered spec with keys_left, from the corners of a tile on which same[i] nodes have one value. */
struct ir_fn bounds_of_block(struct ir *ir, const bool *same);
enum tile_class bounds_class(const struct ir *ir, const struct tile_at *t);

#endif
