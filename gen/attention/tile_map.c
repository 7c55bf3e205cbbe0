/*
 * tile_map.c: where the tiles of a mask are judged: by the kernels that meet them, from their corners, or
 * once a launch by a kernel of its own, which writes a map for the others. In: a spec, lowered or not, with
 * its bounds. Out: which of both, and from how many heads on that kernel may look at pairs.
 */
#include "gen/attention/tile_map.h"
#include "gen/ir/spec.h"

#include <stdlib.h>

/* Integer divisions by what only a launch tells, in the bounds of a tile. Each takes some 30 instructions of
   the one warp that judges a tile, beside 130 for all the rest of a causal mask's: eight of them are felt in
   the main loop. */
enum { FEW_DIVISIONS = 6 };

static bool is_division(const struct ir *ir, const struct ir_node *n)
{
    return (n->op == OP_IDIV || n->op == OP_MOD) && ir->node[n->arg[1]].op != OP_CONST;
}

/* Does the value differ from tile to tile? */
static bool is_of_tile(const struct ir_node *n, const bool *of_tile)
{
    bool found = n->op == OP_PARAM;
    for (int k = 0; k < n->n_args; k++)
        found = found || of_tile[n->arg[k]];
    return found;
}

static int divisions(const struct ir *ir, const struct ir_fn *bounds)
{
    int count = 0;
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    bool *of_tile = calloc((size_t)ir->n_nodes + 1, sizeof *of_tile);
    if (used && of_tile && bounds->n_roots > 0) {
        ir_mark(ir, bounds->root, bounds->n_roots, used);
        for (int i = 0; i < ir->n_nodes; i++) {
            of_tile[i] = used[i] && is_of_tile(&ir->node[i], of_tile);
            count += of_tile[i] && is_division(ir, &ir->node[i]);
        }
    }
    free(used);
    free(of_tile);
    return count;
}

/* Does the mask read by all of these axes, or, of 0, by any? */
static bool mask_reads_by(const struct ir *ir, int axes)
{
    if (ir->mask.n_roots == 0)
        return false;
    bool found = false;
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    if (!used)
        return true;
    ir_mark(ir, ir->mask.root, 1, used);
    for (int i = 0; i < ir->n_nodes && !found; i++)
        found = used[i] && ir->node[i].op == OP_LOAD && ir->node[i].span != 0 &&
                (ir->node[i].span & axes) == axes;
    free(used);
    return found;
}

bool bounds_mask_reads_data(const struct ir *ir)
{
    return mask_reads_by(ir, 0);
}

bool tile_map_reads_pairs(const struct ir *ir)
{
    return mask_reads_by(ir, SPAN_Q | SPAN_KV);
}

bool tile_map_wanted(const struct ir *ir)
{
    return ir->mask.n_roots > 0 &&
           (bounds_mask_reads_data(ir) || ir->open >= 0 || divisions(ir, &ir->bounds) > FEW_DIVISIONS);
}

bool tile_map_of_ranges(const struct ir *ir)
{
    return ir->lowered.n_reads > 0 && ir->lowered.n_boxes == 0 && ir->lowered.read_open < 0 &&
           divisions(ir, &ir->lowered.read_bounds) <= FEW_DIVISIONS;
}

/* Instructions of a thread for a pair: what of the mask is neither its row's nor its column's, and a few to
   fetch those. */
static double look_cost(const struct ir *ir)
{
    enum { FETCH = 3, READ = 10, DIVISION = 30, BY_CONSTANT = 8, FUNCTION = 4 };
    double cost = FETCH;
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    if (used)
        ir_mark(ir, ir->mask.root, 1, used);
    for (int i = 0; used && i < ir->n_nodes; i++) {
        const struct ir_node *n = &ir->node[i];
        const bool of_pair = (n->span & SPAN_Q) && (n->span & SPAN_KV);
        const bool divides = n->op == OP_IDIV || n->op == OP_MOD;
        const bool function = (n->op >= OP_EXP && n->op <= OP_GELU) || n->op == OP_DIV || n->op == OP_POW;
        if (!used[i] || !of_pair)
            continue;
        cost += n->op == OP_LOAD     ? READ
                : is_division(ir, n) ? DIVISION
                : divides            ? BY_CONSTANT
                : function           ? FUNCTION
                                     : 1;
    }
    free(used);
    return cost;
}

/* A multiprocessor has 128 instructions a cycle, beside the additions and multiplications of products. The
   backward pass has five products for two. */
int tile_map_look_heads(const struct ir *ir, const struct problem *problem, double fmas, bool backward)
{
    const double flops = 2.0 * (double)(problem->dim[SYM_D] + problem->dim[SYM_D_V]) * (backward ? 2.5 : 1.0);
    const double main = 128 * flops / fmas;
    const double heads = look_cost(ir) / (main > 1 ? main : 1);
    return heads > 1 ? (int)heads + 1 : 1;
}
