/*
 * lower.c: maps as kernels compute them. In: a spec, or the maps of its gradient. Out: a rewritten clone
 * without the results that nobody takes.
 */
#include "gen/elementwise/columns.h"
#include "gen/elementwise/lower.h"
#include "gen/ir/log.h"
#include "gen/ir/spec.h"
#include "gen/lower/rewrite.h"
#include "gen/plan/request.h"

#include <stdlib.h>

/* Results that nobody takes go, with what only they need. */
static void lower_map(struct rewriter *r, int m)
{
    struct ir *w = r->w;
    struct ir_map *map = &w->maps.map[m];
    struct ir_fn kept = {0};
    int root = 0;
    for (int i = 0; i < w->maps.n_tensors; i++) {
        struct map_tensor *t = &w->maps.tensor[i];
        if (t->map != m || t->use == USE_READ)
            continue;
        const int values = t->use == USE_SCATTER ? 0 : t->form == STAGE_ELEMENT ? 1 : 2;
        const bool wanted = t->alias >= 0 || !rewrite_leaves_out(r, t->name);
        for (int half = 0; half < values; half++, root++)
            if (wanted)
                kept.root[kept.n_roots++] = map->fn.root[root];
        if (!wanted)
            t->use = USE_NONE;
    }
    map->fn = kept;
    rewrite_fn(r, &map->fn, -1);
}

/* After every map: a scatter's tensor may belong to another one. */
static void lower_scatters(struct rewriter *r, struct ir_map *map)
{
    int n = 0;
    for (int s = 0; s < map->n_scatters; s++) {
        struct map_scatter to = map->scatter[s];
        if (r->w->maps.tensor[to.tensor].use == USE_NONE)
            continue;
        to.value = rewrite_node(r, to.value, -1);
        for (int d = 0; d < r->w->input[r->w->maps.tensor[to.tensor].input].n_dims; d++)
            to.index[d] = rewrite_node(r, to.index[d], -1);
        map->scatter[n++] = to;
    }
    map->n_scatters = n;
}

/* Maps as they are in *out, which the caller frees with ir_free. Else as rewriter_close of lower/rewrite.h.
 */
static lathe_status lower_maps(const struct ir *ir, const struct signature *sig,
                               const struct problem *problem, struct ir **out)
{
    struct rewriter r;
    if (!rewriter_open(&r, ir, sig, problem))
        return LATHE_MEMORY;
    ir_log_begin(r.w, "maps");
    for (int m = 0; m < r.w->maps.n_maps; m++)
        lower_map(&r, m);
    for (int m = 0; m < r.w->maps.n_maps; m++)
        lower_scatters(&r, &r.w->maps.map[m]);
    ir_passed(r.w, "rewrite");
    return rewriter_close(&r, out);
}

lathe_status elementwise_lower(struct kernel_request *r)
{
    r->maps = calloc(1, sizeof *r->maps);
    if (!r->maps)
        return LATHE_MEMORY;
    if (r->pass == LATHE_BACKWARD && r->ir->maps.gradient)
        r->spec = r->ir->maps.gradient;
    if (r->pass == LATHE_BACKWARD && !r->ir->maps.gradient)
        return LATHE_OK;
    return request_settle(r, lower_maps(r->spec, r->sig, r->problem, &r->maps->w));
}

void elementwise_release(struct kernel_request *r)
{
    if (r->maps)
        ir_free(r->maps->w);
    free(r->maps);
}
