/*
 * split_final.c: finals that are a large value plus the logarithm of another. In: a spec's IR. Out: what is
 * large and what is not, as nodes, and formulas whose exponentials take the two one after the other.
 *
 * Which terms of a final are large nobody knows; those that stand outside of a logarithm may be.
 */
#include "gen/attention/split_final.h"
#include "gen/derive/algebra.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <stdlib.h>

static const double LN_2 = 0.693147180559945309417232121458;

static bool is_exponential(const struct ir *ir, int node)
{
    return ir->node[node].op == OP_EXP || ir->node[node].op == OP_EXP2;
}

/* c of exp(x + c final), 0 where there is no such term. */
static double power_of_final(const struct ir *ir, const struct monomial *m, int k)
{
    for (int i = 0; i < m->n; i++) {
        const struct ir_node *n = &ir->node[m->term[i].node];
        if (m->term[i].linear && n->op == OP_PARAM && n->index == LEAF_FINAL + k)
            return m->term[i].by;
    }
    return 0;
}

/* c of every final in an exponential's argument. False: out of memory. */
static bool powers_of_finals(struct ir *ir, int exponential, double *power)
{
    const struct ir_node n = ir->node[exponential];
    struct monomial m;
    if (!poly_expand_exponential(ir, n.arg[0], &m))
        return false;
    for (int k = 0; k < ir->n_finals; k++)
        power[k] = power_of_final(ir, &m, k) * (n.op == OP_EXP2 ? LN_2 : 1);
    return true;
}

/* ---- the parts of a final -------------------------------------------------------------------------- */

static int linear_sum(struct ir *ir, const struct monomial *m)
{
    int sum = -1;
    for (int i = 0; i < m->n; i++) {
        const struct log_term *t = &m->term[i];
        if (!t->linear)
            continue;
        const int value = t->by == 1 ? t->shown : ir2(ir, OP_MUL, t->shown, ir_const(ir, t->by, TYPE_F32));
        sum = sum < 0 ? value : ir2(ir, OP_ADD, sum, value);
    }
    return sum;
}

/* The operand of where() beside a constant; -1: it is none. */
static int guarded_operand(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    for (int k = 1; k < 3 && n->op == OP_WHERE; k++)
        if (ir->node[n->arg[3 - k]].op == OP_CONST && ir->node[n->arg[k]].op != OP_CONST)
            return k;
    return -1;
}

/* Both sides of a guard by what takes their places. */
static int guard_again(struct ir *ir, int guard, int operand, int value, int other)
{
    const int test = ir->node[guard].arg[0];
    return ir3(ir, OP_WHERE, test, operand == 1 ? value : other, operand == 1 ? other : value);
}

/* What is no term of its own: a factor of exp(value). */
static struct monomial rest_of(const struct monomial *form)
{
    struct monomial rest = {.coefficient = form->coefficient};
    for (int i = 0; i < form->n; i++)
        if (!form->term[i].linear)
            rest.term[rest.n++] = form->term[i];
    return rest;
}

struct parts { /* of a final */
    struct monomial form;
    int n_large; /* terms that may be large */
    int norm;    /* product of guarded factors; -1: none yet */
};

/* A guard over both, as of where(gt(l, 0), m + log(l), -inf), stays around each of them. False: out of
   memory. */
static bool split_guarded(struct ir *ir, struct log_term *t, double power, struct parts *p)
{
    const int guard = t->shown;
    const int operand = guarded_operand(ir, guard);
    struct monomial form;
    struct monomial norm = {.coefficient = 1};
    if (operand < 0)
        return true;
    if (!poly_expand_exponential(ir, ir->node[guard].arg[operand], &form))
        return false;
    const struct monomial rest = rest_of(&form);
    if (rest.n == 0 || !monomial_times(&norm, &rest, power * t->by))
        return true;
    const int large = linear_sum(ir, &form);
    const int factor = guard_again(ir, guard, operand, monomial_build(ir, &norm), ir_const(ir, 1, TYPE_F32));
    t->shown = guard_again(ir, guard, operand, large < 0 ? ir_const(ir, 0, TYPE_F32) : large,
                           ir->node[guard].arg[3 - operand]);
    p->norm = p->norm < 0 ? factor : ir2(ir, OP_MUL, p->norm, factor);
    p->n_large -= large < 0;
    return true;
}

static bool find_parts(struct ir *ir, int k, struct final_split *out)
{
    struct parts p = {.norm = -1};
    struct monomial norm = {.coefficient = 1};
    bool ok = poly_expand_exponential(ir, ir->epilogue.root[1 + k], &p.form);
    if (!ok)
        return false;
    const struct monomial rest = rest_of(&p.form);
    p.n_large = p.form.n - rest.n;
    for (int i = 0; i < p.form.n && ok; i++)
        ok = !p.form.term[i].linear || split_guarded(ir, &p.form.term[i], out->power, &p);
    if (!ok || p.n_large == 0 || (rest.n == 0 && p.norm < 0) || !monomial_times(&norm, &rest, out->power))
        return ok;
    out->high = linear_sum(ir, &p.form);
    out->norm = p.norm;
    if (rest.n > 0 || norm.coefficient != 1) {
        const int plain = monomial_build(ir, &norm);
        out->norm = p.norm < 0 ? plain : ir2(ir, OP_MUL, plain, p.norm);
    }
    out->found = true;
    return true;
}

bool final_splits_find(struct ir *ir, struct final_split out[MAX_STATE])
{
    const int root = ir->forward.n_roots > 0 ? ir->forward.root[0] : -1;
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    bool ok = used != NULL;
    for (int k = 0; k < MAX_STATE; k++)
        out[k] = (struct final_split){.high = -1, .norm = -1};
    if (ok && root >= 0)
        ir_mark(ir, &root, 1, used);
    for (int i = 0; i <= root && ok; i++) {
        double power[MAX_STATE];
        if (!used[i] || !is_exponential(ir, i))
            continue;
        ok = powers_of_finals(ir, i, power);
        for (int k = 0; k < ir->n_finals && ok; k++)
            out[k].power = out[k].power == 0 ? power[k] : out[k].power;
    }
    for (int k = 0; k < ir->n_finals && ok; k++)
        ok = out[k].power == 0 || find_parts(ir, k, &out[k]);
    free(used);
    return ok;
}

/* ---- formulas ---------------------------------------------------------------------------------------- */

/* exp(x + c final) of operands that are rewritten already. `from`: the node as it was. */
static int split_exponential(struct ir *ir, int from, int arg, const struct final_split *split,
                             const int *high, const int *norm)
{
    double power[MAX_STATE];
    int factor = -1;
    const struct ir_node n = ir->node[from];
    if (!powers_of_finals(ir, from, power)) {
        ir->failed = true;
        return from;
    }
    for (int k = 0; k < ir->n_finals; k++) {
        if (!split[k].found || power[k] == 0)
            continue;
        const int final = ir_param(ir, LEAF_FINAL + k, (struct ir_at){0, 0});
        const double by = power[k] / split[k].power;
        const int f = fabs(by - 1) < 1e-12 ? norm[k] : ir2(ir, OP_POW, norm[k], ir_const(ir, by, TYPE_F32));
        arg = ir_substitute(ir, arg, &final, &high[k], 1);
        factor = factor < 0 ? f : ir2(ir, OP_MUL, factor, f);
    }
    const int value = ir_make(ir, (enum ir_op)n.op, (int[IR_MAX_ARGS]){arg}, (struct ir_at){n.file, n.line});
    return factor < 0 ? value : ir2(ir, OP_MUL, value, factor);
}

int final_splits_apply(struct ir *ir, int root, const struct final_split *split, const int *high,
                       const int *norm)
{
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used); /* as it is now: the pool grows below */
    int *map = calloc((size_t)root + 1, sizeof *map);
    int result = root;
    if (!used || !map)
        ir->failed = true;
    else
        ir_mark(ir, &root, 1, used);
    for (int i = 0; used && map && i <= root; i++) {
        const struct ir_node n = ir->node[i];
        int arg[IR_MAX_ARGS] = {0};
        bool same = true;
        for (int k = 0; k < n.n_args; k++) {
            arg[k] = used[i] ? map[n.arg[k]] : n.arg[k];
            same &= arg[k] == n.arg[k];
        }
        map[i] = i;
        if (used[i] && !n.rounded && is_exponential(ir, i))
            map[i] = split_exponential(ir, i, arg[0], split, high, norm);
        else if (used[i] && !same)
            map[i] = ir_again(ir, &n, arg);
        result = i == root ? map[i] : result;
    }
    free(used);
    free(map);
    return result;
}
