/*
 * prove_gates.c: decays and betas made of positions, channels and heads, further out than a run of the
 * recurrence gets: up to 2^24 tokens, 256 channels, 1024 heads, or what the call says. In: a prover. Out: a
 * warning in a verdict, with the first place at which a formula leaves the range that it must have.
 */
#include "gen/host/host.h"
#include "gen/ir/scalar.h"
#include "gen/linear/prove.h"
#include "gen/prove/index_ranges.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct axis { /* of a position, and where formulas read how far it goes */
    int field, size_field, sym;
    int64_t most;
};
static const struct axis AXES[] = {{AT_POS, AT_LEN_T, SYM_T, 1 << 24}, {AT_T, AT_LEN_T, SYM_T, 1 << 24},
                                   {AT_I, AT_D, SYM_D, 256},           {AT_J, AT_D_V, SYM_D_V, 256},
                                   {AT_H, AT_N_H, SYM_H, 1024},        {AT_H_K, AT_N_H_K, SYM_H_K, 1024},
                                   {AT_B, AT_N_B, SYM_B, 1 << 16}};
enum { N_AXES = sizeof AXES / sizeof *AXES };

enum { NEAR = 1024, STEPS_OF_TWO = 16 }; /* every place up to NEAR, then so many between powers of two */
static const double FAR_VALUE = 1e4;     /* an end of a range that is infinite */

struct gate {
    const struct ir *ir;
    const struct prover *p;
    int root;
    double least, most; /* what the gate must be within */
    const char *name;
    int end;       /* inputs are at the low or the high end of what they may be: 0, 1 */
    int field;     /* of at: what moves */
    int64_t place; /* and where it is; other positions are 0 */
    bool *used;
    double *value;
};

/* ---- one place ------------------------------------------------------------------------------------- */

static double input_value(const struct gate *g, const struct input *in)
{
    const struct input_range *r = &in->range;
    if (in->optional)
        return in->default_value;
    if (!r->real)
        return 0;
    const double end = g->end ? r->most : r->least;
    return isfinite(end) ? end : copysign(FAR_VALUE, end);
}

static int64_t size_of(const struct prover *p, const struct axis *a)
{
    return p->given && p->given->dim[a->sym] >= 0 ? p->given->dim[a->sym] : a->most;
}

static double field_value(const struct gate *g, int field)
{
    for (int i = 0; i < N_AXES; i++)
        if (AXES[i].size_field == field)
            return (double)size_of(g->p, &AXES[i]);
    return field == g->field ? (double)g->place : 0;
}

static double leaf_value(const struct gate *g, const struct ir_node *n)
{
    if (n->op == OP_CONST)
        return n->value;
    if (n->op == OP_AT)
        return field_value(g, n->index);
    return input_value(g, &g->ir->input[n->index]);
}

static double gate_value(const struct gate *g)
{
    for (int i = 0; i <= g->root; i++) {
        const struct ir_node *n = &g->ir->node[i];
        double a[IR_MAX_ARGS] = {0};
        if (!g->used[i])
            continue;
        const bool leaf = n->n_args == 0 || n->op == OP_LOAD;
        for (int k = 0; k < n->n_args && !leaf; k++)
            a[k] = g->value[n->arg[k]];
        const double v = leaf ? leaf_value(g, n) : scalar_op((enum ir_op)n->op, (enum ir_type)n->type, a);
        g->value[i] = n->rounded ? (double)(float)v : v;
    }
    return g->value[g->root];
}

static bool leaves(struct gate *g, int64_t place)
{
    g->place = place;
    const double v = gate_value(g);
    return v < g->least || v > g->most;
}

/* ---- all places ------------------------------------------------------------------------------------ */

/* The first place at which it leaves, among those that are looked at and those between the last two. */
static int64_t first_place(struct gate *g, int64_t n)
{
    int64_t before = 0;
    for (int64_t at = 1; at < n; at = at < NEAR ? at + 1 : at + at / STEPS_OF_TWO) {
        if (leaves(g, at)) {
            while (at - before > 1) {
                const int64_t middle = before + (at - before) / 2;
                *(leaves(g, middle) ? &at : &before) = middle;
            }
            return at;
        }
        before = at;
    }
    return n > 1 && leaves(g, n - 1) ? n - 1 : -1;
}

static void say(struct gate *g, int64_t at, struct proof *out)
{
    char formula[80], position[40];
    int node = 0;
    while (!g->used[node] || !ir_is_at(g->ir, node, g->field))
        node++;
    leaves(g, at);
    expression_text(g->ir, NULL, g->root, formula, sizeof formula);
    expression_text(g->ir, NULL, node, position, sizeof position);
    proof_warn(out, proof_line(g->ir, g->root), "%s is %.9g at %s = %lld, it must be %s: %s", g->name,
               proof_shown(g->value[g->root]), position, (long long)at,
               isinf(g->least) ? "at most 0" : "from 0 to 2", formula);
}

static void look_along(struct gate *g, const struct axis *a, struct proof *out)
{
    bool said = false;
    g->field = a->field;
    for (g->end = 0; g->end < 2 && !said; g->end++) {
        /* Where it has left at 0, a run of the recurrence says so. */
        const int64_t at = leaves(g, 0) ? -1 : first_place(g, size_of(g->p, a));
        said = at >= 0;
        if (said)
            say(g, at, out);
    }
}

/* Data that the call gives has its own places. */
static bool reads_given(const struct gate *g)
{
    bool some = false;
    for (int i = 0; i <= g->root; i++)
        some |= g->used[i] && g->ir->node[i].op == OP_LOAD &&
                given_arg(g->p, g->ir->input[g->ir->node[i].index].name) != NULL;
    return some;
}

static void look_at(struct gate *g, const struct ir_fn *fn, struct proof *out)
{
    g->root = fn->root[0];
    ir_mark(g->ir, fn->root, 1, g->used);
    if (reads_given(g))
        return;
    for (int i = 0; i < N_AXES; i++)
        if (ir_depends_on(g->ir, g->root, OP_AT, AXES[i].field))
            look_along(g, &AXES[i], out);
}

void prove_gates(struct prover *p, struct proof *out)
{
    const struct ir_linear *l = &p->ir->linear;
    const size_t n = (size_t)p->ir->n_nodes;
    struct gate g = {
        .ir = p->ir, .p = p, .used = calloc(n, sizeof(bool)), .value = calloc(n, sizeof(double))};
    if (g.used && g.value && l->decay.n_roots > 0) {
        g.name = "decay";
        g.least = -HUGE_VAL;
        look_at(&g, &l->decay, out);
    }
    if (g.used && g.value && l->delta.n_roots > 0) {
        memset(g.used, 0, n * sizeof(bool));
        g.name = "delta";
        g.least = 0;
        g.most = 2;
        look_at(&g, &l->delta, out);
    }
    if (!g.used || !g.value) {
        lathe_error err = {.status = LATHE_OK};
        host_out_of_memory(&err);
        proof_refused(out, &err);
    }
    free(g.used);
    free(g.value);
}
