/*
 * phases.c: reductions by pass. In: marked nodes of a pool, whose `phase` says how many reductions stand
 * below one another. Out: the reductions, those of one pass side by side.
 */
#include "gen/ir/phases.h"
#include "gen/ir/spec.h"

bool phases_find(const struct ir *w, const bool *used, struct phases *out)
{
    *out = (struct phases){0};
    for (int phase = 1; phase <= UINT8_MAX; phase++) {
        bool more = false;
        for (int i = 0; i < w->n_nodes; i++) {
            more |= used[i] && w->node[i].phase >= phase;
            if (!used[i] || !ir_op_is_reduction(w->node[i].op) || w->node[i].phase != phase)
                continue;
            if (out->n == MAX_REDUCTIONS)
                return false;
            out->node[out->n] = i;
            out->pass[out->n++] = phase - 1;
            out->passes = phase;
        }
        if (!more)
            break;
    }
    return true;
}
