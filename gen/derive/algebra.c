/*
 * algebra.c: normal forms of IR values. In: nodes. Out: sums of monomials, plain structs of the caller, and
 * nodes built from them. Forms are made bottom-up over the pool, each node once: its sum of monomials, and
 * the monomial that its exponential is. A form is of the value almost everywhere: where(eq(m, -inf), a, x) is
 * x of a row maximum m, as is where(gt(z, 0), x, a) of a sum z of exponentials (guards.c), and detach(x) is
 * x, which holds once derivatives are taken.
 */
#include "gen/derive/algebra.h"
#include "gen/derive/guards.h"
#include "gen/ir/spec.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const double LN_2 = 0.693147180559945309417232121458;
static const double NEGLIGIBLE = 1e-12; /* of an exponent: a sum that cancels leaves rounding */

struct forms {
    struct ir *ir;
    bool *used;
    struct guards guards;
    int opaque;     /* a node that is taken as it is; -1: none */
    int *slot;      /* of a used node, in the arrays below */
    int *canonical; /* node without guards */
    struct poly *value;
    struct monomial *power; /* exp(value) */
};

/* ---- monomials --------------------------------------------------------------------------------- */

static bool add_term(struct monomial *m, const struct log_term *t, double times)
{
    const double by = t->by * times;
    for (int i = 0; i < m->n; i++) {
        if (m->term[i].node != t->node || m->term[i].linear != t->linear)
            continue;
        m->term[i].by += by;
        if (fabs(m->term[i].by) < NEGLIGIBLE)
            m->term[i] = m->term[--m->n];
        return true;
    }
    if (m->n == MONOMIAL_TERMS)
        return false;
    m->term[m->n] = *t;
    m->term[m->n++].by = by;
    return true;
}

bool monomial_times(struct monomial *a, const struct monomial *b, double power)
{
    struct monomial result = *a;
    result.coefficient *= power == 1 ? b->coefficient : pow(b->coefficient, power);
    if (!(fabs(result.coefficient) <= (double)FLT_MAX) ||
        (result.coefficient != 0 && fabs(result.coefficient) < (double)FLT_MIN)) /* no constant of a kernel */
        return false;
    for (int i = 0; i < b->n; i++)
        if (!add_term(&result, &b->term[i], power))
            return false;
    *a = result;
    return true;
}

static struct monomial one(void)
{
    return (struct monomial){.coefficient = 1};
}

static struct monomial of_node(const struct forms *f, int node, bool linear)
{
    struct monomial m = one();
    m.term[m.n++] = (struct log_term){f->canonical[node], node, linear, 1};
    return m;
}

/* ---- canonical nodes --------------------------------------------------------------------------- */

static int canonical_node(struct forms *f, int i)
{
    const struct ir_node n = f->ir->node[i];
    int arg[IR_MAX_ARGS] = {0};
    const int branch = guards_branch(&f->guards, i);
    for (int k = 0; k < n.n_args; k++)
        arg[k] = f->canonical[n.arg[k]];
    if (n.op == OP_DETACH)
        return arg[0];
    if (branch > 0)
        return arg[branch];
    if (n.n_args == 0)
        return i;
    return ir_again(f->ir, &n, arg);
}

/* ---- forms of one node --------------------------------------------------------------------------- */

static const struct poly *value_of(const struct forms *f, int node)
{
    return &f->value[f->slot[node]];
}

/* As one monomial, to be raised or divided by: a sum is a term of its own. */
static struct monomial single(const struct forms *f, int node)
{
    const struct poly *p = value_of(f, node);
    return p->n == 1 ? p->item[0] : of_node(f, node, false);
}

static const struct monomial *power_of(const struct forms *f, int node)
{
    return &f->power[f->slot[node]];
}

static bool sum_value(const struct forms *f, int a, int b, double sign, struct poly *out)
{
    const struct poly *right = value_of(f, b);
    *out = *value_of(f, a);
    for (int i = 0; i < right->n; i++) {
        if (out->n == POLY_MONOMIALS)
            return false;
        out->item[out->n] = right->item[i];
        out->item[out->n++].coefficient *= sign;
    }
    return true;
}

static bool poly_product(const struct poly *a, const struct poly *b, struct poly *out)
{
    *out = (struct poly){0};
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            if (out->n == POLY_MONOMIALS)
                return false;
            out->item[out->n] = a->item[i];
            if (!monomial_times(&out->item[out->n++], &b->item[j], 1))
                return false;
        }
    return true;
}

/* node^by: of a positive factor, or to an integer power. */
static bool power_value(const struct forms *f, int node, double by, struct poly *out)
{
    const struct monomial base_form = single(f, node);
    const struct monomial *base = &base_form;
    *out = (struct poly){.n = 1, .item = {one()}};
    return (base->coefficient > 0 || by == floor(by)) && monomial_times(&out->item[0], base, by);
}

static bool quotient_value(const struct forms *f, int a, int b, struct poly *out)
{
    struct poly inverse;
    return power_value(f, b, -1, &inverse) && poly_product(value_of(f, a), &inverse, out);
}

static bool exponential_value(const struct monomial *base, double by, struct poly *out)
{
    *out = (struct poly){.n = 1, .item = {one()}};
    return monomial_times(&out->item[0], base, by);
}

static bool guard_value(const struct forms *f, int node, struct poly *out)
{
    *out = *value_of(f, f->ir->node[node].arg[guards_branch(&f->guards, node)]);
    struct monomial *m = &out->item[0];
    if (out->n == 1 && m->n == 1 && m->coefficient == 1 && m->term[0].by == 1 && !m->term[0].linear)
        m->term[0].shown = node;
    return true;
}

/* What is built of the terms has no gradient either. */
static void show_detached(struct ir *ir, struct monomial *m)
{
    for (int i = 0; i < m->n; i++)
        m->term[i].shown = ir1(ir, OP_DETACH, m->term[i].shown);
}

/* The sum of monomials; false: the node is a term of its own. */
static bool find_value(const struct forms *f, int i, struct poly *out)
{
    const struct ir_node *n = &f->ir->node[i];
    const int a = n->arg[0];
    const int b = n->arg[1];
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        *out = (struct poly){.n = n->value != 0, .item = {{.coefficient = n->value}}};
        return isfinite(n->value);
    case OP_ADD:
        return sum_value(f, a, b, 1, out);
    case OP_SUB:
        return sum_value(f, a, b, -1, out);
    case OP_NEG:
        *out = *value_of(f, a);
        for (int k = 0; k < out->n; k++)
            out->item[k].coefficient = -out->item[k].coefficient;
        return true;
    case OP_MUL:
        return poly_product(value_of(f, a), value_of(f, b), out);
    case OP_DIV:
        return quotient_value(f, a, b, out);
    case OP_EXP:
        return exponential_value(power_of(f, a), 1, out);
    case OP_EXP2:
        return exponential_value(power_of(f, a), LN_2, out);
    case OP_SQRT:
        return power_value(f, a, 0.5, out);
    case OP_RSQRT:
        return power_value(f, a, -0.5, out);
    case OP_POW:
        return f->ir->node[b].op == OP_CONST && power_value(f, a, f->ir->node[b].value, out);
    case OP_DETACH:
        *out = *value_of(f, a);
        for (int k = 0; k < out->n; k++)
            show_detached(f->ir, &out->item[k]);
        return true;
    case OP_WHERE:
        return guards_branch(&f->guards, i) > 0 && guard_value(f, i, out);
    default:
        return false;
    }
}

/* m = base^by; logarithms need a positive base. */
static bool raised(const struct monomial *base, double by, struct monomial *m)
{
    *m = one();
    return base->coefficient > 0 && monomial_times(m, base, by);
}

/* exp(by log(node)) */
static bool logarithm(const struct forms *f, int node, double by, struct monomial *out)
{
    const struct monomial base = single(f, node);
    return raised(&base, by, out);
}

static bool sum_power(const struct forms *f, int a, int b, double sign, struct monomial *out)
{
    *out = *power_of(f, a);
    return monomial_times(out, power_of(f, b), sign);
}

static bool scaled_power(const struct forms *f, int node, int constant, bool inverse, struct monomial *out)
{
    if (f->ir->node[constant].op != OP_CONST)
        return false;
    double c = f->ir->node[constant].value;
    return raised(power_of(f, node), inverse ? 1 / c : c, out);
}

static bool guard_power(const struct forms *f, int node, struct monomial *out)
{
    *out = *power_of(f, f->ir->node[node].arg[guards_branch(&f->guards, node)]);
    if (out->n == 1 && out->coefficient == 1 && out->term[0].by == 1 && out->term[0].linear)
        out->term[0].shown = node;
    return true;
}

/* exp(value) as a monomial; false: its logarithm is the node. */
static bool find_power(const struct forms *f, int i, struct monomial *out)
{
    const struct ir_node *n = &f->ir->node[i];
    const int a = n->arg[0];
    const int b = n->arg[1];
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        *out = (struct monomial){.coefficient = exp(n->value)};
        return isfinite(out->coefficient) && out->coefficient > 0;
    case OP_ADD:
        return sum_power(f, a, b, 1, out);
    case OP_SUB:
        return sum_power(f, a, b, -1, out);
    case OP_NEG:
        return raised(power_of(f, a), -1, out);
    case OP_MUL:
        return scaled_power(f, a, b, false, out) || scaled_power(f, b, a, false, out);
    case OP_DIV:
        return scaled_power(f, a, b, true, out);
    case OP_LOG:
        return logarithm(f, a, 1, out);
    case OP_LOG2:
        return logarithm(f, a, 1 / LN_2, out);
    case OP_DETACH:
        *out = *power_of(f, a);
        show_detached(f->ir, out);
        return true;
    case OP_WHERE:
        return guards_branch(&f->guards, i) > 0 && guard_power(f, i, out);
    default:
        return false;
    }
}

static void make_forms(struct forms *f, int i)
{
    struct poly *value = &f->value[f->slot[i]];
    struct monomial *power = &f->power[f->slot[i]];
    f->canonical[i] = canonical_node(f, i);
    if (f->ir->node[i].type != TYPE_F32 || i == f->opaque || !find_value(f, i, value))
        *value = (struct poly){.n = 1, .item = {of_node(f, i, false)}};
    if (f->ir->node[i].type != TYPE_F32 || !find_power(f, i, power))
        *power = of_node(f, i, true);
}

/* ---- doors ----------------------------------------------------------------------------------------- */

static bool forms_open(struct forms *f, struct ir *ir, int opaque, const int *root, int n_roots)
{
    const size_t n = (size_t)ir->n_nodes;
    size_t n_used = 0;
    *f = (struct forms){.ir = ir,
                        .opaque = opaque,
                        .used = calloc(n + 1, sizeof *f->used),
                        .slot = calloc(n + 1, sizeof *f->slot),
                        .canonical = calloc(n + 1, sizeof *f->canonical)};
    if (!guards_open(&f->guards, ir) || !f->used || !f->slot || !f->canonical)
        return false;
    ir_mark(ir, root, n_roots, f->used);
    for (size_t i = 0; i < n; i++)
        if (f->used[i])
            f->slot[i] = (int)n_used++;
    f->value = calloc(n_used + 1, sizeof *f->value);
    f->power = calloc(n_used + 1, sizeof *f->power);
    if (!f->value || !f->power)
        return false;
    for (size_t i = 0; i < n; i++) /* what canonical_node makes on the way is not visited */
        if (f->used[i])
            make_forms(f, (int)i);
    return true;
}

static void forms_close(struct forms *f)
{
    free(f->used);
    guards_close(&f->guards);
    free(f->slot);
    free(f->canonical);
    free(f->value);
    free(f->power);
}

bool poly_expand(struct ir *ir, int opaque, const int *root, int n_roots, struct poly *out)
{
    struct forms f;
    bool ok = forms_open(&f, ir, opaque, root, n_roots);
    for (int i = 0; ok && i < n_roots; i++)
        out[i] = *value_of(&f, root[i]);
    forms_close(&f);
    return ok;
}

bool poly_expand_exponential(struct ir *ir, int root, struct monomial *out)
{
    struct forms f;
    bool ok = forms_open(&f, ir, -1, &root, 1);
    if (ok)
        *out = *power_of(&f, root);
    forms_close(&f);
    return ok;
}

/* ---- back to nodes ---------------------------------------------------------------------------------- */

static int times(struct ir *ir, int a, int b) /* -1: nothing yet */
{
    return a < 0 ? b : ir2(ir, OP_MUL, a, b);
}

static int build_power(struct ir *ir, int node, double by)
{
    if (by == 1)
        return node;
    if (by == 2)
        return ir2(ir, OP_MUL, node, node);
    if (by == 0.5)
        return ir1(ir, OP_SQRT, node);
    return ir2(ir, OP_POW, node, ir_const(ir, by, TYPE_F32));
}

/* exp of the linear terms, or -1. */
static int build_exponential(struct ir *ir, const struct monomial *m)
{
    int sum = -1;
    for (int i = 0; i < m->n; i++) {
        const struct log_term *t = &m->term[i];
        if (!t->linear)
            continue;
        int size =
            fabs(t->by) == 1 ? t->shown : ir2(ir, OP_MUL, t->shown, ir_const(ir, fabs(t->by), TYPE_F32));
        if (sum < 0)
            sum = t->by < 0 ? ir1(ir, OP_NEG, size) : size;
        else
            sum = ir2(ir, t->by < 0 ? OP_SUB : OP_ADD, sum, size);
    }
    return sum < 0 ? -1 : ir1(ir, OP_EXP, sum);
}

int monomial_build(struct ir *ir, const struct monomial *m)
{
    int above = build_exponential(ir, m);
    int below = -1;
    for (int i = 0; i < m->n; i++) {
        const struct log_term *t = &m->term[i];
        if (t->linear)
            continue;
        int factor = build_power(ir, t->shown, fabs(t->by));
        if (t->by > 0)
            above = times(ir, above, factor);
        else
            below = times(ir, below, factor);
    }
    const bool negative = m->coefficient == -1 && above >= 0;
    if (m->coefficient != 1 && !negative)
        above = times(ir, above, ir_const(ir, m->coefficient, TYPE_F32));
    if (above < 0)
        above = ir_const(ir, 1, TYPE_F32);
    if (negative)
        above = ir1(ir, OP_NEG, above);
    return below < 0 ? above : ir2(ir, OP_DIV, above, below);
}

int poly_build(struct ir *ir, const struct poly *p)
{
    int sum = -1;
    for (int i = 0; i < p->n; i++) {
        int item = monomial_build(ir, &p->item[i]);
        sum = sum < 0 ? item : ir2(ir, OP_ADD, sum, item);
    }
    return sum < 0 ? ir_const(ir, 0, TYPE_F32) : sum;
}
