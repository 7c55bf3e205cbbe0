/*
 * gradient.c: the backward pass of an elementwise spec as another elementwise spec. In: a checked spec. Out:
 * ir->maps.gradient, owned by the spec. A result becomes an operand, its gradient; every operand and input
 * with a gradient gets a result:
 *
 *  - stored, where each point reads an element of its own;
 *  - summed, where it lacks dims of the map, or is a scalar, or is read at plain indices that lack dims;
 *  - scattered, where it is read at indices that are computed, or at several places.
 */
#include "gen/elementwise/gradient.h"
#include "gen/base/diag.h"
#include "gen/derive/diff.h"
#include "gen/ir/spec.h"

#include <stdio.h>
#include <string.h>

struct deriving {
    struct ir *g;
    struct diag *diag;
    struct diff_result adjoint[MAX_MAPS];
    bool ok;
};

static bool want(struct deriving *d, bool condition, const char *what)
{
    if (!condition) {
        diag_add(d->diag, d->g->file[1], 0, "the backward pass has too many %s", what);
        d->ok = false;
    }
    return condition;
}

/* A result d<name>, whose values the caller appends to its map. NULL: too many. */
static struct map_tensor *add_result(struct deriving *d, const char *name, int map, enum tensor_use use)
{
    struct ir *g = d->g;
    if (!want(d, g->maps.n_tensors < MAX_TENSORS, "tensors"))
        return NULL;
    struct map_tensor *t = &g->maps.tensor[g->maps.n_tensors++];
    *t = (struct map_tensor){
        .map = (uint8_t)map, .use = (uint8_t)use, .dtype = LATHE_F32, .alias = -1, .dither = -1, .input = -1};
    snprintf(t->name, sizeof t->name, "d%.*s", NAME_MAX_BYTES - 2, name);
    return t;
}

static void add_root(struct deriving *d, int map, int node)
{
    struct ir_fn *fn = &d->g->maps.map[map].fn;
    if (want(d, fn->n_roots < MAX_ROOTS, "values of a point"))
        fn->root[fn->n_roots++] = node;
}

/* ---- operands ------------------------------------------------------------------------------------ */

static int adjoint_of(const struct deriving *d, int map, int leaf)
{
    for (int i = 0; i < d->adjoint[map].n; i++)
        if (d->adjoint[map].item[i].leaf == leaf)
            return d->adjoint[map].item[i].adjoint;
    return ir_const(d->g, 0.0, TYPE_F32);
}

static void derive_operand(struct deriving *d, int k)
{
    struct ir *g = d->g;
    const struct map_tensor operand = g->maps.tensor[k];
    const bool own = operand.n_dims == g->maps.map[operand.map].n_over;
    struct map_tensor *t = add_result(d, operand.name, operand.map, own ? USE_STORE : USE_SUM);
    if (!t)
        return;
    t->form = operand.form;
    t->n_dims = operand.n_dims;
    memcpy(t->dim, operand.dim, sizeof t->dim);
    t->line = operand.line;
    if (own)
        t->dtype = operand.dtype;
    for (int half = 0; half < (t->form == STAGE_ELEMENT ? 1 : 2); half++)
        add_root(d, operand.map, adjoint_of(d, operand.map, ir_operand(g, k, half)));
}

/* ---- inputs -------------------------------------------------------------------------------------- */

struct site { /* where an input is read */
    int map;
    int leaf;
    int adjoint;
};

static int find_sites(const struct deriving *d, int input, struct site *out, int max)
{
    int n = 0;
    for (int m = 0; m < d->g->maps.n_maps; m++)
        for (int i = 0; i < d->adjoint[m].n; i++) {
            const struct adjoint *a = &d->adjoint[m].item[i];
            const struct ir_node *leaf = &d->g->node[a->leaf];
            if ((leaf->op != OP_LOAD && leaf->op != OP_SCALAR) || leaf->index != input)
                continue;
            if (n < max)
                out[n] = (struct site){m, a->leaf, a->adjoint};
            n++;
        }
    return n;
}

/* Every index is the index of a dim of the map that is as long, no dim twice: *t gets them. */
static bool plain_indices(const struct ir *g, const struct site *s, const struct input *in,
                          struct map_tensor *t)
{
    const struct ir_node *leaf = &g->node[s->leaf];
    const struct ir_map *map = &g->maps.map[s->map];
    for (int d = 0; d < leaf->n_args; d++) {
        const struct ir_node *index = &g->node[leaf->arg[d]];
        const int k = index->index - AT_INDEX0;
        const bool own = index->op == OP_AT && k >= 0 && k < map->n_over;
        if (!own || in->dim[d].literal > 0 || in->dim[d].sym != map->over[k] || map->list ||
            (t->n_dims > 0 && memchr(t->dim, k, (size_t)t->n_dims)))
            return false;
        t->dim[t->n_dims++] = (uint8_t)k;
    }
    return true;
}

static void scatter_site(struct deriving *d, int tensor, const struct site *s)
{
    struct ir_map *map = &d->g->maps.map[s->map];
    if (!want(d, map->n_scatters < MAX_SCATTERS, "reads of inputs"))
        return;
    const struct ir_node *leaf = &d->g->node[s->leaf];
    struct map_scatter *to = &map->scatter[map->n_scatters++];
    *to = (struct map_scatter){.tensor = tensor, .value = s->adjoint};
    for (int k = 0; k < leaf->n_args; k++)
        to->index[k] = leaf->arg[k];
}

static void derive_input(struct deriving *d, int input)
{
    struct ir *g = d->g;
    const struct input *in = &g->input[input];
    struct site site[MAX_SCATTERS];
    struct map_tensor plain = {.n_dims = 0};
    const int n = find_sites(d, input, site, MAX_SCATTERS);
    if (!want(d, n <= MAX_SCATTERS, "reads of inputs"))
        return;
    const bool is_plain = n == 1 && plain_indices(g, &site[0], in, &plain);
    const int map = n > 0 ? site[0].map : 0;
    const bool own = plain.n_dims == g->maps.map[map].n_over;
    struct map_tensor *t = add_result(d, in->name, map, !is_plain ? USE_SCATTER : own ? USE_STORE : USE_SUM);
    if (!t)
        return;
    t->input = input;
    t->line = in->line;
    if (is_plain) {
        t->n_dims = plain.n_dims;
        memcpy(t->dim, plain.dim, sizeof t->dim);
        add_root(d, map, site[0].adjoint);
        return;
    }
    for (int i = 0; i < n; i++)
        scatter_site(d, g->maps.n_tensors - 1, &site[i]);
}

/* ---- maps ---------------------------------------------------------------------------------------- */

/* Results turn into operands, and the map's adjoints are taken. */
static void open_map(struct deriving *d, int m)
{
    struct ir *g = d->g;
    struct ir_map *map = &g->maps.map[m];
    int seed[MAX_ROOTS];
    int root[MAX_ROOTS];
    int n = 0;
    int r = 0;
    for (int i = 0; i < g->maps.n_tensors; i++) {
        struct map_tensor *t = &g->maps.tensor[i];
        if (t->map != m || t->use == USE_READ)
            continue;
        for (int half = 0; half < (t->form == STAGE_ELEMENT ? 1 : 2); half++, r++) {
            if (t->dtype == LATHE_I32)
                continue; /* an integer has no gradient */
            root[n] = map->fn.root[r];
            seed[n++] = ir_operand(g, i, half);
        }
    }
    d->ok &= diff(g, root, seed, n, &d->adjoint[m], d->diag);
    map->fn.n_roots = 0;
}

static bool is_float_result(const struct map_tensor *t)
{
    return t->use != USE_READ && t->dtype != LATHE_I32;
}

static void turn_results(struct ir *g)
{
    int results = 0;
    for (int i = 0; i < g->maps.n_tensors; i++)
        results += is_float_result(&g->maps.tensor[i]);
    for (int i = 0; i < g->maps.n_tensors; i++) {
        struct map_tensor *t = &g->maps.tensor[i];
        if (t->use == USE_READ)
            continue;
        t->alias = t->dither = -1;
        if (t->dtype == LATHE_I32) {
            t->use = USE_NONE;
            continue;
        }
        char name[NAME_MAX_BYTES];
        snprintf(name, sizeof name, "d%.*s", NAME_MAX_BYTES - 2, t->name);
        memcpy(t->name, name, sizeof name);
        t->use = USE_READ;
        t->grad = false;
        t->optional = results > 1;
    }
}

/* What no gradient reads may be left out. */
static void relax_operands(struct ir *g, int n_operands)
{
    for (int i = 0; i < n_operands; i++) {
        struct map_tensor *t = &g->maps.tensor[i];
        const struct ir_map *map = &g->maps.map[t->map];
        bool used = false;
        for (int half = 0; half < 2; half++)
            for (int r = 0; r < map->fn.n_roots; r++)
                used |= ir_depends_on(g, map->fn.root[r], OP_PARAM, LEAF_TENSOR + 2 * i + half);
        for (int s = 0; s < map->n_scatters; s++) {
            used |= ir_depends_on(g, map->scatter[s].value, OP_PARAM, LEAF_TENSOR + 2 * i);
            used |= ir_depends_on(g, map->scatter[s].value, OP_PARAM, LEAF_TENSOR + 2 * i + 1);
            for (int k = 0; k < g->input[g->maps.tensor[map->scatter[s].tensor].input].n_dims; k++)
                used |= ir_depends_on(g, map->scatter[s].index[k], OP_PARAM, LEAF_TENSOR + 2 * i);
        }
        if (!used && !t->optional) {
            t->optional = t->unread = true;
            t->default_value = 0.0;
        }
    }
}

static void derive(struct deriving *d)
{
    struct ir *g = d->g;
    const int n = g->maps.n_tensors;
    for (int m = 0; m < g->maps.n_maps && d->ok; m++)
        open_map(d, m);
    bool wanted[MAX_TENSORS];
    for (int i = 0; i < n; i++)
        wanted[i] = g->maps.tensor[i].use == USE_READ && g->maps.tensor[i].grad;
    turn_results(g);
    for (int i = 0; i < n && d->ok; i++)
        if (wanted[i])
            derive_operand(d, i);
    for (int i = 0; i < g->n_inputs && d->ok; i++)
        if (g->input[i].grad)
            derive_input(d, i);
    relax_operands(g, n);
}

bool gradient_make(struct ir *ir, struct diag *diag)
{
    ir_free(ir->maps.gradient);
    ir->maps.gradient = NULL;
    bool any = false;
    for (int i = 0; i < ir->maps.n_tensors; i++)
        any |= is_float_result(&ir->maps.tensor[i]);
    for (int m = 0; m < ir->maps.n_maps; m++)
        any &= !ir->maps.map[m].list; /* optimizers: nobody asks */
    for (int i = 0; i < ir->maps.n_tensors; i++)
        any &= !ir->maps.tensor[i].slot; /* caches: who reads a slot is not known here */
    if (!any)
        return true;
    struct deriving d = {.g = ir_clone(ir), .diag = diag, .ok = true};
    if (!d.g) {
        diag_add(diag, ir->file[1], 0, "out of memory");
        return false;
    }
    derive(&d);
    for (int m = 0; m < ir->maps.n_maps; m++)
        diff_free(&d.adjoint[m]);
    ir->maps.gradient = d.g;
    const bool ok = d.ok && !d.g->failed;
    if (!ok && diag->n == 0)
        diag_add(diag, ir->file[1], 0, "out of memory");
    return ok;
}
