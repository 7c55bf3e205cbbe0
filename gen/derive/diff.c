/*
 * diff.c: reverse mode on the node pool. In: roots and their seeds (dL/d root). Out: for every leaf that
 * can have a gradient a node with its adjoint, in the same pool; the list is freed by diff_free.
 * One sweep from high node numbers to low visits a node after all its users, so every node is visited
 * once however often it is shared. A rule per op of ops.def sits in RULES.
 * An adjoint varies at most with what its node varies with, and with q: sums over rows are the caller's, and
 * all sums of elementwise.
 */
#include "gen/derive/diff.h"
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/ir/spec.h"

#include <stdlib.h>

enum { ZERO = -1 }; /* no contribution: the derivative is zero everywhere */
enum { SPAN_SUMMED = SPAN_KV | SPAN_DIM | SPAN_SPLIT };
static const double LN_2 = 0.693147180559945309417232121458;
static const double LOG2_E = 1.442695040888963407359924681002;
static const double INV_SQRT_TAU = 0.398942280401432677939946059934; /* 1 / sqrt(2 pi) */
static const double TWO_OVER_SQRT_PI = 1.128379167095512573896158903122;

/* What a rule sees: the user node `self`, copied because the pool may move, and its adjoint g. */
struct use {
    int self;
    struct ir_node node;
    int g;
};

static int number(struct ir *ir, double value)
{
    return ir_const(ir, value, TYPE_F32);
}

static int times(struct ir *ir, int a, int b)
{
    return ir2(ir, OP_MUL, a, b);
}

static int plus(struct ir *ir, int a, int b)
{
    return ir2(ir, OP_ADD, a, b);
}

static int minus(struct ir *ir, int a, int b)
{
    return ir2(ir, OP_SUB, a, b);
}

/* g where the condition holds, else 0: a selection, so an infinite g does no harm elsewhere. */
static int where(struct ir *ir, int condition, int g)
{
    return ir3(ir, OP_WHERE, condition, g, number(ir, 0.0));
}

/* ---- rules: numbers ---------------------------------------------------------------------------- */

static int rule_zero(struct ir *ir, const struct use *u, int k)
{
    (void)ir;
    (void)u;
    (void)k;
    return ZERO;
}

static int rule_pass(struct ir *ir, const struct use *u, int k)
{
    (void)ir;
    (void)k;
    return u->g;
}

static int rule_sub(struct ir *ir, const struct use *u, int k)
{
    return k == 0 ? u->g : ir1(ir, OP_NEG, u->g);
}

/* A square's two halves at once: twice g is often a value of the row. */
static int rule_mul(struct ir *ir, const struct use *u, int k)
{
    if (u->node.arg[0] == u->node.arg[1])
        return k == 0 ? times(ir, times(ir, number(ir, 2.0), u->g), u->node.arg[0]) : ZERO;
    return times(ir, u->g, u->node.arg[1 - k]);
}

static int rule_div(struct ir *ir, const struct use *u, int k)
{
    int quotient = ir2(ir, OP_DIV, u->g, u->node.arg[1]);
    return k == 0 ? quotient : ir1(ir, OP_NEG, times(ir, quotient, u->self));
}

/* a mod b = a - floor(a / b) b */
static int rule_mod(struct ir *ir, const struct use *u, int k)
{
    if (k == 0)
        return u->g;
    return ir1(ir, OP_NEG, times(ir, u->g, ir2(ir, OP_IDIV, u->node.arg[0], u->node.arg[1])));
}

/* d x^y = y x^(y-1) dx + x^y ln(x) dy. A constant exponent has no dy, so x may be negative there; the
   exponents 0, 1 and 2 need no power (and 0 has no 0 * inf at x = 0). */
static int rule_pow(struct ir *ir, const struct use *u, int k)
{
    int x = u->node.arg[0];
    int y = u->node.arg[1];
    if (k == 1) {
        int slope = times(ir, times(ir, u->g, u->self), ir1(ir, OP_LOG, x));
        return where(ir, ir2(ir, OP_GT, x, number(ir, 0.0)), slope);
    }
    if (ir->node[y].op == OP_CONST && ir->node[y].value == 0.0)
        return ZERO;
    if (ir->node[y].op == OP_CONST && ir->node[y].value == 1.0)
        return u->g;
    int lower = ir2(ir, OP_SUB, y, number(ir, 1.0));
    bool square = ir->node[y].op == OP_CONST && ir->node[y].value == 2.0;
    return times(ir, times(ir, u->g, y), square ? x : ir2(ir, OP_POW, x, lower));
}

static int rule_neg(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return ir1(ir, OP_NEG, u->g);
}

/* ---- rules: functions of one number. Where the value itself gives the slope, it is used again. ---- */

static int rule_exp(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, u->self);
}

static int rule_exp2(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, times(ir, u->self, number(ir, LN_2)));
}

static int rule_log(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return ir2(ir, OP_DIV, u->g, u->node.arg[0]);
}

static int rule_log2(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return ir2(ir, OP_DIV, times(ir, u->g, number(ir, LOG2_E)), u->node.arg[0]);
}

static int rule_sqrt(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return ir2(ir, OP_DIV, times(ir, u->g, number(ir, 0.5)), u->self);
}

static int rule_rsqrt(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    int cube = times(ir, u->self, times(ir, u->self, u->self));
    return times(ir, u->g, times(ir, cube, number(ir, -0.5)));
}

static int rule_sin(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, ir1(ir, OP_COS, u->node.arg[0]));
}

static int rule_cos(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return ir1(ir, OP_NEG, times(ir, u->g, ir1(ir, OP_SIN, u->node.arg[0])));
}

static int rule_tanh(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, minus(ir, number(ir, 1.0), times(ir, u->self, u->self)));
}

static int rule_sigmoid(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, times(ir, u->self, minus(ir, number(ir, 1.0), u->self)));
}

/* silu = x s, with s = sigmoid(x): slope s + silu (1 - s) */
static int rule_silu(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    int s = ir1(ir, OP_SIGMOID, u->node.arg[0]);
    int rest = times(ir, u->self, minus(ir, number(ir, 1.0), s));
    return times(ir, u->g, plus(ir, s, rest));
}

static int rule_relu(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return where(ir, ir2(ir, OP_GT, u->node.arg[0], number(ir, 0.0)), u->g);
}

static int rule_erf(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    int x = u->node.arg[0];
    int bell = ir1(ir, OP_EXP, ir1(ir, OP_NEG, times(ir, x, x)));
    return times(ir, u->g, times(ir, bell, number(ir, TWO_OVER_SQRT_PI)));
}

/* The normal density phi, the slope of the distribution function Phi. Numbers are made before they are used:
   arguments are evaluated in any order, and nodes are numbered. */
static int density(struct ir *ir, int x)
{
    int minus_half = number(ir, -0.5);
    int scale = number(ir, INV_SQRT_TAU);
    return times(ir, ir1(ir, OP_EXP, times(ir, times(ir, x, x), minus_half)), scale);
}

static int rule_normal(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    return times(ir, u->g, density(ir, u->node.arg[0]));
}

/* gelu = x Phi(x): slope Phi(x) + x phi(x) */
static int rule_gelu(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    int x = u->node.arg[0];
    int distribution = ir1(ir, OP_NORMAL, x);
    int steep = times(ir, x, density(ir, x));
    return times(ir, u->g, plus(ir, distribution, steep));
}

static int rule_abs(struct ir *ir, const struct use *u, int k)
{
    (void)k;
    int x = u->node.arg[0];
    int zero = number(ir, 0.0);
    int falling = where(ir, ir2(ir, OP_LT, x, zero), ir1(ir, OP_NEG, u->g));
    return ir3(ir, OP_WHERE, ir2(ir, OP_GT, x, zero), u->g, falling);
}

/* ---- rules: choices ---------------------------------------------------------------------------- */

/* min and max: the whole to the operand that is the result, a half to each of two equal ones. NaN is never
   the result of a number and NaN, so the number has all of it. */
static int rule_choice(struct ir *ir, const struct use *u, int k)
{
    int mine = u->node.arg[k];
    int half = times(ir, u->g, number(ir, 0.5));
    int share = ir3(ir, OP_WHERE, ir2(ir, OP_EQ, mine, u->node.arg[1 - k]), half, u->g);
    return where(ir, ir2(ir, OP_EQ, mine, u->self), share);
}

/* clamp(x, lo, hi) = min(max(x, lo), hi); x inside [lo, hi], both ends included, gets all of it, and lo in
   the place of NaN. */
static int rule_clamp(struct ir *ir, const struct use *u, int k)
{
    int x = u->node.arg[0];
    int lo = u->node.arg[1];
    int hi = u->node.arg[2];
    if (k == 2)
        return where(ir, ir2(ir, OP_GT, ir2(ir, OP_MAX, x, lo), hi), u->g);
    int taken = ir2(ir, OP_EQ, k == 0 ? x : lo, u->self);
    int other = k == 0 ? ir2(ir, OP_GT, lo, hi) : ir2(ir, OP_GE, x, lo);
    return where(ir, ir2(ir, OP_AND, taken, ir1(ir, OP_NOT, other)), u->g);
}

static int rule_where(struct ir *ir, const struct use *u, int k)
{
    if (k == 0)
        return ZERO;
    int condition = k == 1 ? u->node.arg[0] : ir1(ir, OP_NOT, u->node.arg[0]);
    return where(ir, condition, u->g);
}

/* ---- rules: reductions ------------------------------------------------------------------------- */

static bool varies(const struct ir *ir, int node, uint8_t axis)
{
    return (ir->node[node].span & axis) != 0;
}

/* Every element gets the adjoint; a value that does not vary was counted once per element. */
static int rule_sum(struct ir *ir, const struct use *u, int k)
{
    uint8_t axis = ir_op_axis(u->node.op);
    return varies(ir, u->node.arg[k], axis) ? u->g : ir_reduce_sum(ir, axis, u->g);
}

/* The elements that equal the extremum share the adjoint evenly. */
static int rule_extremum(struct ir *ir, const struct use *u, int k)
{
    uint8_t axis = ir_op_axis(u->node.op);
    int element = u->node.arg[k];
    if (!varies(ir, element, axis))
        return u->g;
    int reached = ir2(ir, OP_EQ, element, u->self);
    int ties = ir_reduce_sum(ir, axis, where(ir, reached, number(ir, 1.0)));
    return where(ir, reached, ir2(ir, OP_DIV, u->g, ties));
}

/* ---- rules: scans. What an element adds to all behind it comes back from them, in the same segments. ----
 */

static int rule_scan(struct ir *ir, const struct use *u, int k)
{
    const int *arg = u->node.arg;
    const int start = arg[u->node.n_args - 1];
    const enum scan_form form = ir_scan_form(u->node.op);
    if (k == u->node.n_args - 1)
        return ZERO;
    if (form == SCAN_SUM)
        return ir2(ir, ir_scan_reversed(u->node.op, SCAN_SUM), u->g, start);
    const enum ir_op back = ir_scan_reversed(u->node.op, SCAN_WEIGHTED);
    const struct ir_at at = {u->node.file, u->node.line};
    if (form == SCAN_LOG) { /* do_i / dx_j = e^(x_j - o_i) */
        const int with[] = {u->g, ir1(ir, OP_NEG, u->self), arg[0], start};
        return ir_make(ir, back, with, at);
    }
    if (k == 2)
        return times(ir, u->g, u->self);
    const int with[] = {u->g, arg[2], arg[1], start};
    const int of_value = ir_make(ir, back, with, at);
    return k == 0 ? of_value : times(ir, of_value, arg[0]);
}

/* What an element gave comes back to it. */
static int rule_places(struct ir *ir, const struct use *u, int k)
{
    const enum ir_op back = u->node.op == OP_PLACED ? OP_TAKEN : OP_PLACED;
    return k == 0 ? ir2(ir, back, u->g, u->node.arg[1]) : ZERO;
}

/* ---- the table --------------------------------------------------------------------------------- */

/* The contribution to operand k, or ZERO. */
static int (*const RULES[OP_COUNT])(struct ir *ir, const struct use *u, int k) = {
    [OP_CONST] = rule_zero,        [OP_AT] = rule_zero,
    [OP_PARAM] = rule_zero,        [OP_SCALAR] = rule_zero,
    [OP_LOAD] = rule_zero,         [OP_ADD] = rule_pass,
    [OP_SUB] = rule_sub,           [OP_MUL] = rule_mul,
    [OP_DIV] = rule_div,           [OP_IDIV] = rule_zero,
    [OP_MOD] = rule_mod,           [OP_POW] = rule_pow,
    [OP_NEG] = rule_neg,           [OP_EXP] = rule_exp,
    [OP_EXP2] = rule_exp2,         [OP_LOG] = rule_log,
    [OP_LOG2] = rule_log2,         [OP_SQRT] = rule_sqrt,
    [OP_RSQRT] = rule_rsqrt,       [OP_SIN] = rule_sin,
    [OP_COS] = rule_cos,           [OP_TANH] = rule_tanh,
    [OP_SIGMOID] = rule_sigmoid,   [OP_SILU] = rule_silu,
    [OP_RELU] = rule_relu,         [OP_ERF] = rule_erf,
    [OP_GELU] = rule_gelu,         [OP_NORMAL] = rule_normal,
    [OP_ABS] = rule_abs,           [OP_MIN] = rule_choice,
    [OP_MAX] = rule_choice,        [OP_CLAMP] = rule_clamp,
    [OP_FLOOR] = rule_zero,        [OP_CEIL] = rule_zero,
    [OP_LT] = rule_zero,           [OP_LE] = rule_zero,
    [OP_GT] = rule_zero,           [OP_GE] = rule_zero,
    [OP_EQ] = rule_zero,           [OP_NE] = rule_zero,
    [OP_WHERE] = rule_where,       [OP_AND] = rule_zero,
    [OP_OR] = rule_zero,           [OP_NOT] = rule_zero,
    [OP_XOR] = rule_zero,          [OP_SHL] = rule_zero,
    [OP_SHR] = rule_zero,          [OP_RANDOM] = rule_zero,
    [OP_F32] = rule_pass,          [OP_I32] = rule_zero,
    [OP_DETACH] = rule_zero,       [OP_ROWMAX] = rule_extremum,
    [OP_ROWMIN] = rule_extremum,   [OP_ROWSUM] = rule_sum,
    [OP_DIMMAX] = rule_extremum,   [OP_DIMSUM] = rule_sum,
    [OP_CUMSUM] = rule_scan,       [OP_REVCUMSUM] = rule_scan,
    [OP_SPLITMAX] = rule_extremum, [OP_SPLITSUM] = rule_sum,
    [OP_LOGCUMSUMEXP] = rule_scan, [OP_REVLOGCUMSUMEXP] = rule_scan,
    [OP_RANK] = rule_zero,         [OP_CUMEXPSUM] = rule_scan,
    [OP_REVCUMEXPSUM] = rule_scan, [OP_PLACED] = rule_places,
    [OP_TAKEN] = rule_places,
};

bool diff_has_rule(enum ir_op op)
{
    return op < OP_COUNT && RULES[op] != NULL;
}

/* ---- the sweep --------------------------------------------------------------------------------- */

struct sweep {
    struct ir *ir;
    int n;        /* nodes before the sweep; what is made on the way is never visited */
    bool *used;   /* below a root */
    bool *needs;  /* a gradient passes through here to a leaf that wants one */
    int *adjoint; /* node number, or ZERO: nothing arrived */
};

static bool wants_gradient(const struct ir *ir, const struct ir_node *n)
{
    if (n->type != TYPE_F32)
        return false;
    if (n->op == OP_SCALAR || n->op == OP_LOAD)
        return ir->input[n->index].grad;
    return n->op == OP_PARAM;
}

static void find_needs(struct sweep *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct ir_node *n = &s->ir->node[i];
        bool passes = RULES[n->op] != rule_zero;
        s->needs[i] = s->used[i] && wants_gradient(s->ir, n);
        for (int k = 0; s->used[i] && passes && n->type == TYPE_F32 && k < n->n_args; k++)
            s->needs[i] |= s->needs[n->arg[k]];
    }
}

/* Add a contribution to a node's adjoint, summed over the axes that the node lacks. `span` is what the
   user of the node varies with: a contribution that is the same along such an axis counts per element. */
static void give(struct sweep *s, int node, uint8_t span, int contribution)
{
    struct ir *ir = s->ir;
    unsigned extra =
        (unsigned)(span | ir->node[contribution].span) & SPAN_SUMMED & ~(unsigned)ir->node[node].span;
    if (kinds[ir->kind].points)
        extra = 0; /* the sums of a leaf are linear: the caller adds up points */
    for (unsigned axis = SPAN_KV; axis <= SPAN_SPLIT; axis <<= 1)
        if (extra & axis)
            contribution = ir_reduce_sum(ir, (uint8_t)axis, contribution);
    bool first = s->adjoint[node] == ZERO;
    s->adjoint[node] = first ? contribution : plus(ir, s->adjoint[node], contribution);
}

/* A formula without a place, one of a seed and of constants, has that of what it is derived from. */
static void take_place(struct ir_node *derived, const struct ir_node *from)
{
    if (derived->line == 0 && derived->n_args > 0) {
        derived->file = from->file;
        derived->line = from->line;
    }
}

static bool visit(struct sweep *s, int number_of_node, struct diag *diag)
{
    struct use u = {number_of_node, s->ir->node[number_of_node], s->adjoint[number_of_node]};
    if (!diff_has_rule((enum ir_op)u.node.op)) {
        diag_add(diag, s->ir->file[u.node.file], u.node.line, "'%s' has no derivative; wrap it in detach()",
                 ir_op_name(u.node.op));
        return false;
    }
    for (int k = 0; k < u.node.n_args; k++) {
        if (!s->needs[u.node.arg[k]])
            continue;
        const int before = s->ir->n_nodes;
        int contribution = RULES[u.node.op](s->ir, &u, k);
        for (int i = before; i < s->ir->n_nodes; i++)
            take_place(&s->ir->node[i], &u.node);
        if (contribution != ZERO)
            give(s, u.node.arg[k], u.node.span, contribution);
    }
    return true;
}

static bool run_sweep(struct sweep *s, const int *root, const int *seed, int n_roots, struct diag *diag)
{
    ir_mark(s->ir, root, n_roots, s->used);
    find_needs(s);
    for (int i = 0; i < s->n; i++)
        s->adjoint[i] = ZERO;
    for (int i = 0; i < n_roots; i++)
        if (s->needs[root[i]])
            give(s, root[i], s->ir->node[root[i]].span, seed[i]);
    bool ok = true;
    for (int i = s->n - 1; i >= 0; i--)
        if (s->adjoint[i] != ZERO)
            ok &= visit(s, i, diag);
    return ok;
}

static bool collect(const struct sweep *s, struct diff_result *out)
{
    for (int i = 0; i < s->n; i++)
        out->n += s->adjoint[i] != ZERO && wants_gradient(s->ir, &s->ir->node[i]);
    out->item = calloc((size_t)out->n + 1, sizeof *out->item);
    if (!out->item)
        return false;
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->adjoint[i] != ZERO && wants_gradient(s->ir, &s->ir->node[i]))
            out->item[n++] = (struct adjoint){i, s->adjoint[i]};
    return true;
}

bool diff(struct ir *ir, const int *root, const int *seed, int n_roots, struct diff_result *out,
          struct diag *diag)
{
    *out = (struct diff_result){0, NULL};
    size_t n = (size_t)ir->n_nodes;
    struct sweep s = {ir, ir->n_nodes, calloc(n + 1, sizeof *s.used), calloc(n + 1, sizeof *s.needs),
                      calloc(n + 1, sizeof *s.adjoint)};
    bool ok = s.used && s.needs && s.adjoint;
    bool ruled = !ok || run_sweep(&s, root, seed, n_roots, diag);
    ok = ok && ruled && collect(&s, out);
    if (ruled && (!ok || ir->failed)) {
        if (ir->n_nodes >= IR_MAX_NODES)
            diag_add(diag, ir->file[1], 0, "the backward formula needs more than %d nodes", IR_MAX_NODES);
        ok = false;
    }
    free(s.used);
    free(s.needs);
    free(s.adjoint);
    if (!ok)
        diff_free(out);
    return ok;
}

void diff_free(struct diff_result *r)
{
    free(r->item);
    *r = (struct diff_result){0, NULL};
}
