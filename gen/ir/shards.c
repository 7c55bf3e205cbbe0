/*
 * shards.c: may a call have a part of the tokens? In: formulas as they were traced. Out: the line that would
 * come out otherwise.
 */
#include "gen/ir/shards.h"

#include <stdlib.h>

static bool counts(const struct ir *ir, int i, const struct shard_axis *axis)
{
    const struct ir_node *n = &ir->node[i];
    if (ir_is_at(ir, i, axis->length) || (axis->position >= 0 && ir_is_at(ir, i, axis->position)))
        return true;
    for (int k = 0; k < n->n_args; k++) {
        const bool index = ir_is_at(ir, n->arg[k], axis->index);
        const bool place = n->op == OP_LOAD && ir->input[n->index].dim[k].literal == 0 &&
                           ir->input[n->index].dim[k].sym == axis->sym;
        if (index != place)
            return true;
    }
    return false;
}

int shards_line(const struct ir *ir, const struct ir_fn *const *fn, int n, const struct shard_axis *axis)
{
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    int found = used ? -1 : 0;
    for (int f = 0; f < n && found < 0; f++) {
        ir_mark(ir, fn[f]->root, fn[f]->n_roots, used);
        for (int i = 0; i < ir->n_nodes && found < 0; i++)
            found = used[i] && counts(ir, i, axis) ? ir->node[i].line : -1;
        for (int r = 0; r < fn[f]->n_roots && found < 0; r++)
            found = ir_is_at(ir, fn[f]->root[r], axis->index) ? ir->node[fn[f]->root[r]].line : -1;
    }
    free(used);
    return found;
}

int shards_mods_line(const struct ir *ir, const struct shard_axis *axis)
{
    int found = -1;
    for (int k = 0; k < MOD_COUNT; k++)
        for (int s = 0; s < ir->mod[k].n_stages && found < 0; s++) {
            const struct ir_fn *const fn = &ir->mod[k].stage[s].fn;
            found = shards_line(ir, &fn, 1, axis);
        }
    return found;
}
