/*
 * alike.c: do the maps of a spec differ in nothing but their tensors and sizes? In: a lowered spec, its
 * arguments, a plan. Out: yes or no. Such maps are one piece of text, which takes less time to compile than
 * two; each has its own part of the parameters. Tensors are compared in the order in which a map has them,
 * formulas node by node.
 */
#include "gen/elementwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdlib.h>
#include <string.h>

struct match {
    const struct emitter *e;
    int m;                  /* the map that is compared with map 0 */
    int image[MAX_TENSORS]; /* of a tensor of map 0; -1: it has none */
    int *node;              /* of a node of map 0's formulas; -1: not asked for so far */
    int (*pair)[2];         /* of nodes, to be compared; no more than there are nodes */
    int n_pairs;
};

static bool same_type(const struct emitter *e, int a, int b)
{
    const int first = lathe__arg_find(e->sig, e->w->maps.tensor[a].name, 0);
    const int second = lathe__arg_find(e->sig, e->w->maps.tensor[b].name, 0);
    return first >= 0 && second >= 0 && e->problem->arg_dtype[first] == e->problem->arg_dtype[second];
}

static bool same_tensor(const struct emitter *e, int a, int b)
{
    const struct map_tensor *t = &e->w->maps.tensor[a];
    const struct map_tensor *u = &e->w->maps.tensor[b];
    bool same = t->use == u->use && t->form == u->form && t->dtype == u->dtype && t->n_dims == u->n_dims &&
                t->dither == u->dither && !t->slot && !u->slot && operand_used(e, a) == operand_used(e, b) &&
                same_type(e, a, b);
    for (int d = 0; d < t->n_dims && same; d++)
        same = t->dim[d] == u->dim[d];
    return same && t->use != USE_SUM && t->use != USE_SCATTER;
}

/* The next tensor of map m, from `at` on, that its points have; -1: there is none. */
static int next_tensor(const struct ir *w, int m, int at)
{
    while (at < w->maps.n_tensors && (w->maps.tensor[at].map != m || w->maps.tensor[at].use == USE_NONE))
        at++;
    return at < w->maps.n_tensors ? at : -1;
}

static bool match_tensors(struct match *c)
{
    const struct ir *w = c->e->w;
    int a = next_tensor(w, 0, 0);
    int b = next_tensor(w, c->m, 0);
    for (int i = 0; i < w->maps.n_tensors; i++)
        c->image[i] = -1;
    while (a >= 0 && b >= 0 && same_tensor(c->e, a, b)) {
        c->image[a] = b;
        a = next_tensor(w, 0, a + 1);
        b = next_tensor(w, c->m, b + 1);
    }
    bool same = a < 0 && b < 0;
    for (int i = 0; i < w->maps.n_tensors && same; i++)
        if (c->image[i] >= 0 && w->maps.tensor[i].alias >= 0)
            same = w->maps.tensor[c->image[i]].alias == c->image[w->maps.tensor[i].alias];
        else if (c->image[i] >= 0)
            same = w->maps.tensor[c->image[i]].alias < 0;
    return same;
}

/* Node b must be what node a is; asked for once. */
static bool match_node(struct match *c, int a, int b)
{
    if (c->node[a] >= 0)
        return c->node[a] == b;
    c->node[a] = b;
    c->pair[c->n_pairs][0] = a;
    c->pair[c->n_pairs++][1] = b;
    return true;
}

static bool same_index(const struct match *c, const struct ir_node *x, const struct ir_node *y)
{
    if (x->op != OP_PARAM || x->index < LEAF_TENSOR)
        return x->index == y->index;
    const int value = x->index - LEAF_TENSOR;
    return c->image[value / 2] >= 0 && y->index == LEAF_TENSOR + 2 * c->image[value / 2] + value % 2;
}

/* But for their operands. */
static bool same_node(const struct match *c, int a, int b)
{
    const struct ir_node *x = &c->e->w->node[a];
    const struct ir_node *y = &c->e->w->node[b];
    return x->op == y->op && x->type == y->type && x->n_args == y->n_args && x->span == y->span &&
           memcmp(&x->value, &y->value, sizeof x->value) == 0 && same_index(c, x, y);
}

/* The operands of a sum or product stand in the order in which they were made. */
static bool match_operands(struct match *c, const struct ir_node *x, const struct ir_node *y)
{
    const bool turned = ir_op_commutes(x->op) && !same_node(c, x->arg[0], y->arg[0]);
    bool same = true;
    for (int k = 0; k < x->n_args && same; k++)
        same = match_node(c, x->arg[k], y->arg[turned ? 1 - k : k]);
    return same;
}

static bool match_formulas(struct match *c)
{
    const struct ir *w = c->e->w;
    const struct ir_fn *f = &w->maps.map[0].fn;
    const struct ir_fn *g = &w->maps.map[c->m].fn;
    bool same = f->n_roots == g->n_roots;
    for (int r = 0; r < f->n_roots && same; r++)
        same = match_node(c, f->root[r], g->root[r]);
    while (same && c->n_pairs > 0) {
        c->n_pairs--;
        const int a = c->pair[c->n_pairs][0];
        const int b = c->pair[c->n_pairs][1];
        same = same_node(c, a, b) && match_operands(c, &w->node[a], &w->node[b]);
    }
    return same;
}

static bool is_like_first(struct match *c, const struct plan *plan)
{
    const struct ir_map *first = &c->e->w->maps.map[0];
    const struct ir_map *map = &c->e->w->maps.map[c->m];
    c->n_pairs = 0;
    for (int i = 0; i < c->e->w->n_nodes; i++)
        c->node[i] = -1;
    return !map->list && map->n_over == first->n_over && map->n_scatters == 0 &&
           plan->maps.loop[c->m] == plan->maps.loop[0] && plan->maps.outer[c->m] == plan->maps.outer[0] &&
           match_tensors(c) && match_formulas(c);
}

bool maps_are_alike(struct emitter *e, const struct plan *plan)
{
    const struct ir *w = e->w;
    const size_t nodes = (size_t)w->n_nodes + 1;
    struct match c = {.e = e, .node = malloc(nodes * sizeof(int)), .pair = malloc(nodes * sizeof(int[2]))};
    const bool room = c.node && c.pair;
    bool alike = room && w->maps.n_maps > 1 && !w->maps.map[0].list && w->maps.map[0].n_scatters == 0 &&
                 !plan->maps.gather;
    for (c.m = 1; c.m < w->maps.n_maps && alike; c.m++)
        alike = is_like_first(&c, plan);
    free(c.node);
    free(c.pair);
    e->out->failed |= !room;
    return alike;
}
