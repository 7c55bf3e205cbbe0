/*
 * position_cone.c: values that a spec decides by, of positions, sizes and constants: in f32, each operation
 * rounded, as kernels and the host device have them, and in double precision. In: a function of a spec,
 * numbers for the fields of `at`. Out: whether a decision differs, and whether anything comes of that.
 */
#include "gen/ir/scalar.h"
#include "gen/ir/spec.h"
#include "gen/ir/tensor.h"
#include "gen/prove/index_ranges.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/positions.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdlib.h>

/* ---- fields ---------------------------------------------------------------------------------------- */

bool field_is_size(int field)
{
    const bool size = field >= AT_N_B && field <= AT_D_V;
    return size || field == AT_N || field == AT_N_ROWS || field == AT_N_H_K || field == AT_LEN_T ||
           field >= AT_SIZE0;
}

static int field_sym(const struct cones *c, int field)
{
    static const int SYM[AT_COUNT] = {
        [AT_N_B] = SYM_B,     [AT_N_H] = SYM_H,   [AT_N_H_KV] = SYM_H_KV, [AT_LEN_Q] = SYM_Q,
        [AT_LEN_KV] = SYM_KV, [AT_D] = SYM_D,     [AT_D_V] = SYM_D_V,     [AT_N] = SYM_N,
        [AT_N_H_K] = SYM_H_K, [AT_LEN_T] = SYM_T, [AT_B] = SYM_B,         [AT_H] = SYM_H,
        [AT_H_KV] = SYM_H_KV, [AT_Q] = SYM_KV,    [AT_KV] = SYM_KV,       [AT_COL] = SYM_N,
        [AT_H_K] = SYM_H_K,   [AT_T] = SYM_T};
    const struct ir_map *map = c->context->map;
    const int k = field >= AT_SIZE0 ? field - AT_SIZE0 : field - AT_INDEX0;
    if (field >= AT_FREE0)
        return SYM_FREE + field - AT_FREE0;
    if (field >= AT_INDEX0)
        return map && k < map->n_over ? map->over[k] : SYM_ONE;
    if (field == AT_ROW)
        return proofs_of(c->ir)->row;
    if (field == AT_POS)
        return proofs_of(c->ir)->position;
    if (field == AT_I || field == AT_J)
        return c->context->dim_sym;
    return SYM[field];
}

double field_given(const struct cones *c, int field)
{
    const struct prove_given *given = c->p->given;
    const int sym = field_sym(c, field);
    if (!given || sym == SYM_ONE)
        return 0;
    const int64_t other = sym == SYM_KV && !field_is_size(field) ? given->dim[SYM_Q] : 0;
    return fmax(0, (double)(other > given->dim[sym] ? other : given->dim[sym]));
}

double field_end(const struct cones *c, int field)
{
    const double given = field_given(c, field);
    if (given > 0)
        return fmin(given, 0x1p24);
    if (field == AT_UPDATE)
        return ir_updates(c->ir);
    switch (field_sym(c, field)) {
    case SYM_B:
        return 4096;
    case SYM_H:
    case SYM_H_KV:
    case SYM_H_K:
        return 256;
    case SYM_D:
    case SYM_D_V:
        return 1024;
    default:
        return 0x1p24;
    }
}

/* ---- what a node varies with ------------------------------------------------------------------------- */

static bool is_position(const struct ir *ir, int node, int field)
{
    const int inner = ir->node[node].op == OP_F32 ? ir->node[node].arg[0] : node;
    return ir_is_at(ir, inner, field);
}

/* at.q - at.kv, in either order, or a comparison of the two: +1, -1; 0: it is something else. */
static int distance_sign(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    if (n->op != OP_SUB && !(n->op >= OP_LT && n->op <= OP_NE))
        return 0;
    if (is_position(ir, n->arg[0], AT_Q) && is_position(ir, n->arg[1], AT_KV))
        return 1;
    return is_position(ir, n->arg[0], AT_KV) && is_position(ir, n->arg[1], AT_Q) ? -1 : 0;
}

static bool is_known(const struct cones *c, const struct ir_node *n)
{
    if (n->op != OP_SCALAR)
        return n->placed && n->op != OP_RANDOM;
    return given_arg(c->p, c->ir->input[n->index].name) || c->ir->input[n->index].optional;
}

static uint64_t vars_of(const struct cones *c, int node)
{
    const struct ir_node *n = &c->ir->node[node];
    uint64_t vars = 0;
    if (!is_known(c, n))
        return UINT64_C(1) << OPAQUE;
    if (n->op == OP_AT)
        return field_is_size(n->index) && field_given(c, n->index) > 0 ? 0 : UINT64_C(1) << n->index;
    if (distance_sign(c->ir, node))
        return UINT64_C(1) << DISTANCE;
    for (int k = 0; k < n->n_args; k++)
        vars |= c->vars[n->arg[k]];
    return vars;
}

static int mark_roots(struct cones *c)
{
    const struct index_context *context = c->context;
    int root[4 * MAX_ROOTS + 1];
    int n = 0;
    for (int f = 0; f < context->n_fns; f++)
        for (int i = 0; i < context->fn[f]->n_roots; i++)
            root[n++] = context->fn[f]->root[i];
    if (n == 0)
        return 0;
    ir_mark(c->ir, root, n, c->used);
    for (int i = 0; i < n; i++)
        c->outside[root[i]] = true;
    return n;
}

/* Those with more variables than a decision count as outside of it: cone_matters. */
static void look(struct cones *c)
{
    const struct ir *ir = c->ir;
    mark_roots(c);
    for (int i = 0; i < ir->n_nodes; i++)
        c->vars[i] = vars_of(c, i);
}

bool cones_open(struct cones *c, const struct prover *p, const struct index_context *context)
{
    const size_t n = (size_t)p->ir->n_nodes + 1;
    c->ir = p->ir;
    c->p = p;
    c->context = context;
    c->used = calloc(n, sizeof *c->used);
    c->outside = calloc(n, sizeof *c->outside);
    c->vars = calloc(n, sizeof *c->vars);
    c->value[0] = calloc(n, sizeof *c->value[0]);
    c->value[1] = calloc(n, sizeof *c->value[1]);
    const bool ok = c->used && c->outside && c->vars && c->value[0] && c->value[1];
    if (ok)
        look(c);
    return ok;
}

void cones_close(struct cones *c)
{
    for (int k = 0; k < 2; k++) {
        for (int i = 0; c->value[k] && i < c->ir->n_nodes; i++)
            free(c->value[k][i]);
        free(c->value[k]);
    }
    free(c->used);
    free(c->outside);
    free(c->vars);
}

bool cone_decides(const struct cones *c, int node)
{
    const struct ir_node *n = &c->ir->node[node];
    bool rounded = false;
    for (int k = 0; k < n->n_args; k++)
        rounded |= c->ir->node[n->arg[k]].rounded && c->ir->node[n->arg[k]].n_args > 0;
    return c->used[node] && rounded && ir_decides(c->ir, n) && !(c->vars[node] >> OPAQUE & 1);
}

/* ---- values ------------------------------------------------------------------------------------------ */

static double scalar_value(const struct cones *c, const struct ir_node *n)
{
    const lathe_arg *t = given_arg(c->p, c->ir->input[n->index].name);
    return t && t->data ? dtype_load(t->dtype, t->data, 0) : c->ir->input[n->index].default_value;
}

static double leaf_value(const struct cones *c, const struct ir_node *n, int lane)
{
    if (n->op == OP_CONST)
        return n->value;
    return n->op == OP_SCALAR ? scalar_value(c, n) : c->field[n->index][lane];
}

static double node_value(const struct cones *c, int node, int precision, int lane)
{
    const struct ir_node *n = &c->ir->node[node];
    const int sign = distance_sign(c->ir, node);
    double a[IR_MAX_ARGS] = {0};
    double v;
    if (n->n_args == 0) {
        v = leaf_value(c, n, lane);
    } else if (sign && n->op == OP_SUB) {
        v = sign * c->distance[lane];
    } else {
        for (int k = 0; k < n->n_args; k++)
            a[k] = c->value[precision][n->arg[k]] ? c->value[precision][n->arg[k]][lane] : 0;
        if (sign) {
            a[0] = sign * c->distance[lane];
            a[1] = 0;
        }
        v = scalar_op((enum ir_op)n->op, (enum ir_type)n->type, a);
    }
    return precision == IN_F32 && n->rounded ? (double)(float)v : v;
}

/* Nodes with no other variables. A distance is a leaf where at.q and at.kv are none. */
static bool within(const struct cones *c, int node, uint64_t vars)
{
    return c->used[node] && (c->vars[node] & ~vars) == 0;
}

static uint64_t vars_with_distance(uint64_t vars)
{
    const uint64_t both = UINT64_C(1) << AT_Q | UINT64_C(1) << AT_KV;
    return (vars & both) == both ? vars | UINT64_C(1) << DISTANCE : vars;
}

static bool make_room(struct cones *c, int node)
{
    for (int k = 0; k < 2; k++)
        if (!c->value[k][node])
            c->value[k][node] = malloc(LANES * sizeof(double));
    return c->value[0][node] && c->value[1][node];
}

bool cone_values(struct cones *c, int node, int lanes)
{
    bool below[IR_MAX_NODES];
    const uint64_t vars = vars_with_distance(c->vars[node]);
    ir_mark(c->ir, &node, 1, below);
    for (int i = 0; i <= node; i++) {
        if (!below[i] || !within(c, i, vars)) /* operands of a distance */
            continue;
        if (!make_room(c, i))
            return false;
        for (int k = 0; k < 2; k++)
            for (int lane = 0; lane < lanes; lane++)
                c->value[k][i][lane] = node_value(c, i, k, lane);
    }
    return true;
}

/* What the decision is: of a remainder, how many times the divisor was taken away. */
static double decided(const struct cones *c, int node, int precision, int lane)
{
    const struct ir_node *n = &c->ir->node[node];
    double *const *value = c->value[precision];
    if (n->op == OP_MOD) {
        const double a[2] = {value[n->arg[0]][lane], value[n->arg[1]][lane]};
        return (double)(float)scalar_op(OP_IDIV, TYPE_F32, a);
    }
    return n->type == TYPE_F32 ? (double)(float)value[node][lane] : value[node][lane];
}

bool cone_differs(const struct cones *c, int node, int lane)
{
    const double a = decided(c, node, IN_F32, lane);
    const double b = decided(c, node, IN_DOUBLE, lane);
    return !(a == b || (isnan(a) && isnan(b)));
}

/* ---- what comes of it -------------------------------------------------------------------------------- */

/* Is a part of the mask that has no other variables false there? */
static bool is_masked(const struct cones *c, uint64_t vars, const double *value)
{
    const struct ir *ir = c->ir;
    int stack[64];
    int n = 0;
    bool masked = false;
    if (!c->context->masked)
        return false;
    stack[n++] = ir->mask.root[0];
    while (n > 0) {
        const int i = stack[--n];
        if (ir->node[i].op == OP_AND && n + 2 <= 64) {
            stack[n++] = ir->node[i].arg[0];
            stack[n++] = ir->node[i].arg[1];
        } else {
            masked |= (c->vars[i] & ~vars) == 0 && value[i] == 0;
        }
    }
    return masked;
}

struct change { /* at one lane, in f32: as it is, and with the other side of one decision */
    double *value[2];
    bool *changed;
};

static void follow(const struct cones *c, struct change *g, int i, int lane)
{
    const struct ir_node *n = &c->ir->node[i];
    const int sign = distance_sign(c->ir, i);
    for (int k = 0; k < 2; k++) {
        double a[IR_MAX_ARGS] = {0};
        for (int m = 0; m < n->n_args; m++)
            a[m] = g->value[k][n->arg[m]];
        if (sign) {
            a[0] = sign * c->distance[lane];
            a[1] = 0;
        }
        double v = n->n_args == 0            ? leaf_value(c, n, lane)
                   : sign && n->op == OP_SUB ? a[0]
                                             : scalar_op((enum ir_op)n->op, (enum ir_type)n->type, a);
        g->value[k][i] = n->rounded ? (double)(float)v : v;
    }
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Does a changed value leave the decision's variables: as a result, or for something with more of them? */
static bool leaves(const struct cones *c, const struct change *g, uint64_t vars)
{
    const struct ir *ir = c->ir;
    for (int i = 0; i < ir->n_nodes; i++) {
        if (!c->used[i])
            continue;
        if (within(c, i, vars) && g->changed[i] && c->outside[i])
            return true;
        for (int k = 0; k < ir->node[i].n_args && !within(c, i, vars); k++)
            if (within(c, ir->node[i].arg[k], vars) && g->changed[ir->node[i].arg[k]])
                return true;
    }
    return false;
}

static bool change_matters(struct cones *c, struct change *g, int node, int lane)
{
    const uint64_t vars = vars_with_distance(c->vars[node]);
    for (int i = 0; i < c->ir->n_nodes; i++) {
        if (!within(c, i, vars))
            continue;
        follow(c, g, i, lane);
        if (i == node)
            g->value[1][i] = c->ir->node[i].type == TYPE_F32 ? (double)(float)c->value[IN_DOUBLE][i][lane]
                                                             : c->value[IN_DOUBLE][i][lane];
        g->changed[i] = !same_number(g->value[0][i], g->value[1][i]);
    }
    return leaves(c, g, vars) && !is_masked(c, vars, g->value[0]);
}

bool cone_matters(struct cones *c, int node, int lane, lathe_status *status)
{
    const size_t n = (size_t)c->ir->n_nodes;
    struct change g = {{calloc(n, sizeof(double)), calloc(n, sizeof(double))}, calloc(n, sizeof(bool))};
    const bool room = g.value[0] && g.value[1] && g.changed;
    const bool matters = room && change_matters(c, &g, node, lane);
    *status = room ? *status : LATHE_MEMORY;
    free(g.value[0]);
    free(g.value[1]);
    free(g.changed);
    return matters;
}
