/*
 * backward_split.c: rows of attention whose finals are so large that f32 has lost their last part. In: the
 * formulas of backward.c. Out: the same from LEAF_HIGH and LEAF_NORM, where a final is a sum that may be
 * large. What kernels do in such rows is in templates/attention/backward/split.cuh.
 */
#include "gen/attention/backward.h"
#include "gen/lower/ranges.h"

#include <stdlib.h>

/* Finals of scores below it are never as large as the templates' SPLIT_FROM, 2^12: log of the longest row
 * is 17. */
static const double SMALL = 4000;

bool backward_splits(const struct backward *b)
{
    for (int k = 0; k < MAX_STATE; k++)
        if (b->split[k].found)
            return true;
    return false;
}

/* The row state itself, but for a guard: of a maximum of scores. */
static bool is_state(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    for (int side = 1; n->op == OP_WHERE && side < 3; side++)
        if (ir->node[n->arg[side]].op == OP_CONST) {
            n = &ir->node[n->arg[3 - side]];
            side = 0;
        }
    return n->op == OP_PARAM && n->index >= LEAF_STATE && n->index < LEAF_FINAL;
}

/* Whatever the data. */
static bool scores_are_small(struct ir *ir)
{
    const int root = ir->score.n_roots > 0 ? ir->score.root[0] : -1;
    struct range *range = calloc((size_t)ir->n_nodes, sizeof *range);
    ir->failed |= !range;
    if (range && root >= 0)
        ranges_of_all(ir, root, range);
    const bool small = range && root >= 0 && range[root].low >= -SMALL && range[root].high <= SMALL;
    free(range);
    return small;
}

struct split_context {
    struct ir *ir;
    const struct final_split *split;
    int high[MAX_STATE];
    int norm[MAX_STATE];
};

static void split_root(void *context, int *root)
{
    const struct split_context *c = context;
    *root = final_splits_apply(c->ir, *root, c->split, c->high, c->norm);
}

bool backward_split(struct ir *ir, struct backward *b)
{
    struct split_context context = {.ir = ir, .split = b->split};
    const bool small = scores_are_small(ir);
    if (!final_splits_find(ir, b->split))
        return false;
    for (int k = 0; k < MAX_STATE; k++) {
        struct final_split *split = &b->split[k];
        split->found = split->found && !(small && is_state(ir, split->high));
        if (!split->found)
            continue;
        context.high[k] = ir_param(ir, LEAF_HIGH + k, (struct ir_at){0, 0});
        context.norm[k] = ir_param(ir, LEAF_NORM + k, (struct ir_at){0, 0});
    }
    if (backward_splits(b))
        backward_each_root(b, ir, split_root, &context);
    return !ir->failed;
}
