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
#include "runtime/base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct axis { /* of a position, and where formulas read how far it goes; fields of one group move together */
    int field, size_field, sym, group;
    int64_t most;
};
static const struct axis AXES[] = {
    {AT_POS, AT_LEN_T, SYM_T, 0, 1 << 24}, {AT_T, AT_LEN_T, SYM_T, 0, 1 << 24},
    {AT_I, AT_D, SYM_D, 1, 256},           {AT_J, AT_D_V, SYM_D_V, 2, 256},
    {AT_H, AT_N_H, SYM_H, 3, 1024},        {AT_H_K, AT_N_H_K, SYM_H_K, 3, 1024},
    {AT_B, AT_N_B, SYM_B, 4, 1 << 16}};
enum { N_AXES = sizeof AXES / sizeof *AXES };

enum { NEAR = 1024, STEPS_OF_TWO = 16 }; /* every place up to NEAR, then so many between powers of two */
enum { MOST_ENDS = 4 };                  /* inputs whose ends are paired with each other */
static const double FAR_VALUE = 1e4;     /* an end of a range that is infinite */

struct gate {
    const struct ir *ir;
    const struct prover *p;
    int root;
    double least, most; /* what the gate must be within */
    const char *name;
    int ends; /* a bit for each input: it is at the high end of what it may be, not the low one */
    const struct axis *axis; /* what moves */
    int64_t place;           /* and where it is */
    bool last;               /* other positions are the last ones; else 0 */
    bool fixed;              /* nothing is read */
    bool *used;
    double *value;
};

/* ---- one place ------------------------------------------------------------------------------------- */

static double input_value(const struct gate *g, int input)
{
    const struct input *in = &g->ir->input[input];
    const struct input_range *r = &in->range;
    if (in->optional)
        return in->default_value;
    if (!r->real)
        return 0;
    const double end = g->ends >> input % MOST_ENDS & 1 ? r->most : r->least;
    return isfinite(end) ? end : copysign(FAR_VALUE, end);
}

static int64_t size_of(const struct prover *p, const struct axis *a)
{
    return p->given && p->given->dim[a->sym] >= 0 ? p->given->dim[a->sym] : a->most;
}

static double field_value(const struct gate *g, int field)
{
    double value = 0;
    for (int i = 0; i < N_AXES; i++) {
        const struct axis *a = &AXES[i];
        const int64_t n = size_of(g->p, a);
        const bool moves = a->group == g->axis->group;
        if (a->size_field == field)
            return (double)n;
        if (a->field == field)
            value = (double)(moves && g->place < n ? g->place : (moves || g->last) && n > 0 ? n - 1 : 0);
    }
    return value;
}

static double leaf_value(const struct gate *g, const struct ir_node *n)
{
    if (n->op == OP_CONST)
        return n->value;
    if (n->op == OP_AT)
        return field_value(g, n->index);
    return input_value(g, n->index);
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
    return v < g->least || v > g->most || (isnan(v) && g->fixed);
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

/* A node of the formula itself that is this field; -1: there is none. */
static int node_of(const struct gate *g, int field)
{
    for (int i = 0; i <= g->root; i++)
        if (g->used[i] && ir_is_at(g->ir, i, field))
            return i;
    return -1;
}

static void say_field(struct phrase *to, const struct gate *g, int field)
{
    char name[40];
    const int node = node_of(g, field);
    if (node < 0)
        return;
    expression_text(g->ir, NULL, node, name, sizeof name);
    lathe__say(to, "%s%s = %.0f", to->text[0] ? ", " : "", name, field_value(g, field));
}

/* "at.pos = 1569, at.i = 255" */
static void say_place(struct phrase *to, const struct gate *g)
{
    for (int k = 0; k < N_AXES; k++)
        say_field(to, g, AXES[k].field);
    for (int k = 0; k < N_AXES; k++)
        if (AXES[k].field != AT_T) /* whose size is named already */
            say_field(to, g, AXES[k].size_field);
}

static bool sees_size(const struct gate *g)
{
    bool sees = false;
    for (int k = 0; k < N_AXES; k++)
        sees |= node_of(g, AXES[k].size_field) >= 0;
    return sees;
}

static void say(struct gate *g, int64_t at, struct proof *out)
{
    char formula[80];
    char bounds[64];
    struct phrase place = {{0}, 0};
    leaves(g, at);
    expression_text(g->ir, NULL, g->root, formula, sizeof formula);
    say_place(&place, g);
    if (isinf(g->least))
        snprintf(bounds, sizeof bounds, "at most %g", g->most);
    else
        snprintf(bounds, sizeof bounds, "from %g to %g", g->least, g->most);
    proof_warn(out, proof_line(g->ir, g->root), "%s is %.9g at %.100s, it must be %s: %s", g->name,
               proof_shown(g->value[g->root]), place.text, bounds, formula);
}

/* Where it has left at the first place already, a run of the recurrence says so, if its sizes are no matter.
 */
static void look_along(struct gate *g, const struct axis *a, struct proof *out)
{
    const int n = g->ir->n_inputs < MOST_ENDS ? g->ir->n_inputs : MOST_ENDS;
    bool said = false;
    g->axis = a;
    for (int i = 0; i < 2 << n && !said; i++) {
        g->last = i >> n;
        g->ends = i & ((1 << n) - 1);
        const int64_t none = sees_size(g) ? 0 : -1;
        const int64_t at = leaves(g, 0) ? none : first_place(g, size_of(g->p, a));
        said = at >= 0;
        if (said)
            say(g, at, out);
    }
}

/* What the formula is made of, but for the places at which it reads inputs. */
static void mark(struct gate *g)
{
    memset(g->used, 0, (size_t)g->ir->n_nodes * sizeof *g->used);
    g->used[g->root] = true;
    for (int i = g->root; i >= 0; i--)
        for (int k = 0; g->used[i] && g->ir->node[i].op != OP_LOAD && k < g->ir->node[i].n_args; k++)
            g->used[g->ir->node[i].arg[k]] = true;
}

/* Data that the call gives has its own places. */
static bool reads_given(struct gate *g)
{
    bool some = false;
    g->fixed = true;
    for (int i = 0; i <= g->root; i++) {
        const struct ir_node *n = &g->ir->node[i];
        const bool reads = g->used[i] && (n->op == OP_LOAD || n->op == OP_SCALAR);
        g->fixed &= !reads;
        some |= reads && n->op == OP_LOAD && given_arg(g->p, g->ir->input[n->index].name) != NULL;
    }
    return some;
}

static void look_at(struct gate *g, const struct ir_fn *fn, struct proof *out)
{
    g->root = fn->root[0];
    mark(g);
    if (reads_given(g))
        return;
    for (int i = 0; i < N_AXES; i++)
        if (node_of(g, AXES[i].field) >= 0 || node_of(g, AXES[i].size_field) >= 0)
            look_along(g, &AXES[i], out);
}

void prove_gates(struct prover *p, struct proof *out)
{
    const struct ir_linear *l = &p->ir->linear;
    const size_t n = (size_t)p->ir->n_nodes;
    struct gate g = {
        .ir = p->ir, .p = p, .used = calloc(n, sizeof(bool)), .value = calloc(n, sizeof(double))};
    for (int k = 0; g.used && g.value && k < LINEAR_SLOTS; k++) {
        const struct linear_slot *slot = linear_slot_of((enum linear_function)(k + 1));
        if (l->slot[k].n_roots == 0 || !slot->range)
            continue;
        g.name = slot->name;
        g.least = slot->least;
        g.most = slot->most;
        look_at(&g, &l->slot[k], out);
    }
    if (!g.used || !g.value) {
        lathe_error err = {.status = LATHE_OK};
        host_out_of_memory(&err);
        proof_refused(out, &err);
    }
    free(g.used);
    free(g.value);
}
