/*
 * intervals.c: an interval for every value of a spec, over all rows, keys and elements of one call's sizes.
 * In: the graph, sizes, a condition that holds. Out: intervals in the caller's array. Sums and differences
 * are kept as affine forms of positions and of what is no sum, so that at.q - at.kv under at.q >= at.kv is
 * not negative. Sizes are numbers here.
 */
#include "gen/prove/index_ranges.h"
#include "gen/arguments/input_ranges.h"
#include "gen/ir/scalar.h"
#include "gen/ir/spec.h"
#include "gen/prove/kind_proofs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS = 6, CONDITIONS = 24, MOST_SIDES = 2 };
static const struct interval ANY = {-HUGE_VAL, HUGE_VAL};

struct form { /* constant + sum of coef * atom; an atom is a node, or -1 - a field of `at` */
    int n;
    int atom[TERMS];
    double coef[TERMS];
    double constant;
};
struct state {
    const struct interval_call *call;
    const struct ir *ir;
    const int64_t *dim;
    struct interval *out;
    struct form *form;
    int sides; /* of where() inside of each other that are found again */
    bool failed;
    int n_conditions;
    struct form condition[CONDITIONS]; /* is not negative */
};

/* ---- leaves -------------------------------------------------------------------------------------- */

static int64_t size_of(const struct state *s, int sym)
{
    return s->dim[sym] > 0 ? s->dim[sym] : 0;
}

static struct interval below(int64_t n)
{
    return (struct interval){0, n > 0 ? (double)(n - 1) : 0};
}

static struct interval exactly(double value)
{
    return (struct interval){value, value};
}

static int map_sym(const struct state *s, int k)
{
    const struct ir_map *map = s->call->map;
    return map && k < map->n_over ? map->over[k] : SYM_ONE;
}

static int64_t all_rows(const struct state *s)
{
    int64_t n = size_of(s, SYM_ROWS);
    for (int sym = SYM_ROWS0; sym <= SYM_ROWS1; sym++)
        n *= s->dim[sym] > 0 ? s->dim[sym] : 1;
    return n;
}

static struct interval of_field(const struct state *s, int field)
{
    static const int size_sym[AT_COUNT] = {
        [AT_N_B] = SYM_B,     [AT_N_H] = SYM_H,   [AT_N_H_KV] = SYM_H_KV, [AT_LEN_Q] = SYM_Q,
        [AT_LEN_KV] = SYM_KV, [AT_D] = SYM_D,     [AT_D_V] = SYM_D_V,     [AT_N] = SYM_N,
        [AT_N_H_K] = SYM_H_K, [AT_LEN_T] = SYM_T,
    };
    static const int index_sym[AT_COUNT] = {
        [AT_B] = SYM_B,   [AT_H] = SYM_H,     [AT_H_KV] = SYM_H_KV, [AT_KV] = SYM_KV,
        [AT_COL] = SYM_N, [AT_H_K] = SYM_H_K, [AT_T] = SYM_T};
    const struct kind_proofs *proofs = proofs_of(s->ir);
    const int64_t start = size_of(s, SYM_KV) - size_of(s, SYM_Q);
    if (field >= AT_FREE0)
        return exactly((double)size_of(s, SYM_FREE + field - AT_FREE0));
    if (field >= AT_SIZE0)
        return exactly((double)size_of(s, map_sym(s, field - AT_SIZE0)));
    if (field >= AT_INDEX0)
        return below(size_of(s, map_sym(s, field - AT_INDEX0)));
    if (size_sym[field])
        return exactly((double)size_of(s, size_sym[field]));
    if (field == AT_POS)
        return below(size_of(s, proofs->position));
    if (index_sym[field])
        return below(size_of(s, index_sym[field]));
    if (field == AT_I || field == AT_J)
        return below(s->call->head_dim);
    if (field == AT_UPDATE)
        return below(ir_updates(s->ir));
    if (field == AT_N_ROWS)
        return exactly((double)all_rows(s));
    if (field == AT_ROW)
        return below(proofs->row == SYM_ROWS ? all_rows(s) : size_of(s, proofs->row));
    const struct interval row = below(size_of(s, SYM_Q)); /* at.q */
    return (struct interval){row.low + (double)start, row.high + (double)start};
}

static struct interval hull(struct interval a, struct interval b)
{
    return (struct interval){fmin(a.low, b.low), fmax(a.high, b.high)};
}

static struct interval of_input(const struct state *s, const struct input *in)
{
    struct value_range r;
    struct interval v = ANY;
    if (input_range(in, s->dim, &r))
        v = (struct interval){(double)r.low, fmax((double)r.low, (double)r.high - 1)};
    else if (in->dtype == LATHE_U8)
        v = (struct interval){0, 255};
    return in->optional && !isinf(v.low) ? hull(v, exactly(in->default_value)) : v;
}

/* ---- affine forms -------------------------------------------------------------------------------- */

static struct form constant_form(double value)
{
    return (struct form){.constant = value};
}

static struct form atom_form(int atom)
{
    return (struct form){.n = 1, .atom = {atom}, .coef = {1}};
}

/* a + factor * b. False: too many terms. */
static bool add_forms(struct form *a, const struct form *b, double factor)
{
    a->constant += factor * b->constant;
    for (int i = 0; i < b->n; i++) {
        int k = 0;
        while (k < a->n && a->atom[k] != b->atom[i])
            k++;
        if (k == TERMS)
            return false;
        if (k == a->n) {
            a->atom[a->n] = b->atom[i];
            a->coef[a->n++] = 0;
        }
        a->coef[k] += factor * b->coef[i];
        if (a->coef[k] == 0) {
            a->n--;
            a->atom[k] = a->atom[a->n];
            a->coef[k] = a->coef[a->n];
        }
    }
    return true;
}

static struct interval of_atom(const struct state *s, int atom)
{
    return atom < 0 ? of_field(s, -1 - atom) : s->out[atom];
}

static struct interval of_form(const struct state *s, const struct form *f)
{
    struct interval v = exactly(f->constant);
    for (int i = 0; i < f->n; i++) {
        const struct interval a = of_atom(s, f->atom[i]);
        v.low += f->coef[i] * (f->coef[i] > 0 ? a.low : a.high);
        v.high += f->coef[i] * (f->coef[i] > 0 ? a.high : a.low);
    }
    return v;
}

/* What the conditions say beside: a form plus a multiple of one that is not negative, in which an atom is
 * gone. */
static struct interval tighten(const struct state *s, const struct form *f, struct interval v)
{
    for (int c = 0; c < s->n_conditions; c++) {
        const struct form *g = &s->condition[c];
        for (int i = 0; i < f->n; i++)
            for (int k = 0; k < g->n; k++) {
                struct form rest = *f;
                const double factor = f->coef[i] / g->coef[k];
                if (g->atom[k] != f->atom[i] || !add_forms(&rest, g, -factor))
                    continue;
                if (factor < 0) /* f <= f + |factor| g */
                    v.high = fmin(v.high, of_form(s, &rest).high);
                else
                    v.low = fmax(v.low, of_form(s, &rest).low);
            }
    }
    return v;
}

/* ---- conditions ---------------------------------------------------------------------------------- */

static void add_condition(struct state *s, int left, int right, double less)
{
    struct form g = s->form[left]; /* left - right - less is not negative */
    if (s->n_conditions == CONDITIONS || !add_forms(&g, &s->form[right], -1))
        return;
    g.constant -= less;
    s->condition[s->n_conditions++] = g;
}

static void add_comparison(struct state *s, const struct ir_node *n, bool holds)
{
    const int a = n->arg[0];
    const int b = n->arg[1];
    const double one = s->ir->node[a].type == TYPE_I32 ? 1 : 0;
    const bool less = n->op == OP_LT || n->op == OP_LE;
    if (n->op == OP_EQ || n->op == OP_NE) {
        if ((n->op == OP_EQ) != holds)
            return;
        add_condition(s, a, b, 0);
        add_condition(s, b, a, 0);
        return;
    }
    const bool strict = (n->op == OP_LT || n->op == OP_GT) == holds;
    if (less == holds)
        add_condition(s, b, a, strict ? one : 0);
    else
        add_condition(s, a, b, strict ? one : 0);
}

/* That a bool node holds, or does not. */
static void suppose(struct state *s, int node, bool holds, int depth)
{
    const struct ir_node *n = &s->ir->node[node];
    if (n->op == OP_NOT)
        suppose(s, n->arg[0], !holds, depth);
    else if (n->op >= OP_LT && n->op <= OP_NE)
        add_comparison(s, n, holds);
    else if (n->op == (holds ? OP_AND : OP_OR) && depth > 0)
        for (int k = 0; k < 2; k++)
            suppose(s, n->arg[k], holds, depth - 1);
}

/* ---- operations ---------------------------------------------------------------------------------- */

static struct interval within_32_bits(const struct ir_node *n, struct interval v)
{
    const bool leaves = n->type == TYPE_I32 && (v.low < INT32_MIN || v.high > INT32_MAX);
    return leaves ? ANY : v;
}

static struct interval corners(double (*of)(double a, double b), struct interval a, struct interval b)
{
    const double v[4] = {of(a.low, b.low), of(a.low, b.high), of(a.high, b.low), of(a.high, b.high)};
    struct interval r = {v[0], v[0]};
    for (int i = 0; i < 4; i++) {
        if (isnan(v[i]))
            return ANY;
        r = hull(r, exactly(v[i]));
    }
    return r;
}

static double times(double a, double b)
{
    return a == 0 || b == 0 ? 0 : a * b;
}

static double over(double a, double b)
{
    return a / b;
}

static double floor_over(double a, double b)
{
    return floor(a / b);
}

static struct interval quotient(const struct ir_node *n, struct interval a, struct interval b)
{
    if (n->type == TYPE_I32 && b.low >= 0 && b.high > 0)
        b.low = fmax(b.low, 1); /* 0 is another matter */
    if (b.low <= 0 && b.high >= 0)
        return ANY;
    return corners(n->op == OP_IDIV ? floor_over : over, a, b);
}

static struct interval modulo(const struct ir_node *n, struct interval a, struct interval b)
{
    const double less = n->type == TYPE_I32 ? 1 : 0;
    if (n->type == TYPE_I32 && b.low >= 0 && b.high > 0)
        b.low = fmax(b.low, 1);
    if (b.low <= 0)
        return b.high < 0 ? (struct interval){b.low + less, 0} : ANY;
    if (a.low >= 0 && a.high < b.low)
        return a;
    return (struct interval){0, a.low >= 0 ? fmin(a.high, b.high - less) : b.high - less};
}

static struct interval magnitude(struct interval a)
{
    const bool both = a.low < 0 && a.high > 0;
    return (struct interval){both ? 0 : fmin(fabs(a.low), fabs(a.high)), fmax(fabs(a.low), fabs(a.high))};
}

/* Of a function that grows. */
static struct interval grown(const struct ir_node *n, struct interval a)
{
    const double low = scalar_op((enum ir_op)n->op, TYPE_F32, &a.low);
    const double high = scalar_op((enum ir_op)n->op, TYPE_F32, &a.high);
    return (struct interval){isnan(low) ? -HUGE_VAL : low, isnan(high) ? HUGE_VAL : high};
}

static struct interval whole(struct interval a)
{
    if (isinf(a.low) || isinf(a.high))
        return ANY;
    return (struct interval){fmax(trunc(a.low), INT32_MIN), fmin(trunc(a.high), INT32_MAX)};
}

/* Of integers that are not negative: no bit above those that they have. */
static struct interval of_bits(const struct ir_node *n, struct interval a, struct interval b)
{
    if (n->op == OP_AND && (a.low >= 0 || b.low >= 0))
        return (struct interval){0, a.low < 0 ? b.high : b.low < 0 ? a.high : fmin(a.high, b.high)};
    if (n->op == OP_AND || a.low < 0 || b.low < 0 || isinf(a.high) || isinf(b.high))
        return ANY;
    return (struct interval){0, exp2(floor(log2(fmax(fmax(a.high, b.high), 1))) + 1) - 1};
}

/* Up is a product by a power of two, beyond 32 bits as well; down by a number of bits that is fixed. */
static struct interval shifted(const struct ir_node *n, struct interval a, struct interval b)
{
    const double all = 64; /* bits: as far beyond 32 as any more of them */
    if (!(b.low >= 0))
        return ANY;
    if (n->op == OP_SHL)
        return corners(times, a, (struct interval){exp2(fmin(b.low, all)), exp2(fmin(b.high, all))});
    const double by = exp2(b.low);
    return b.low != b.high || b.low > 31 || a.low < 0
               ? ANY
               : (struct interval){floor(a.low / by), floor(a.high / by)};
}

static void run_node(struct state *s, int node);

/* What a side of where() is computed from, found again under its condition; `plain`: without. */
static struct interval of_side(struct state *s, int side, struct interval plain)
{
    const size_t n = (size_t)side + 1;
    bool *const used = calloc((size_t)s->ir->n_nodes, sizeof *used);
    struct interval *const out = malloc(n * sizeof *out);
    struct form *const form = malloc(n * sizeof *form);
    struct interval v = plain;
    if (used && out && form) {
        memcpy(out, s->out, n * sizeof *out);
        memcpy(form, s->form, n * sizeof *form);
        ir_mark(s->ir, &side, 1, used);
        s->sides++;
        for (int i = 0; i <= side; i++)
            if (used[i])
                run_node(s, i);
        s->sides--;
        v = s->out[side];
        memcpy(s->out, out, n * sizeof *out);
        memcpy(s->form, form, n * sizeof *form);
    }
    s->failed |= !used || !out || !form;
    free(used);
    free(out);
    free(form);
    return v;
}

static struct interval under(struct state *s, int condition, bool holds, int side, struct interval plain)
{
    const int before = s->n_conditions;
    suppose(s, condition, holds, 8);
    const bool known = s->n_conditions > before;
    struct interval v = tighten(s, &s->form[side], plain);
    if (known && v.low <= v.high && s->sides < MOST_SIDES)
        v = of_side(s, side, v);
    s->n_conditions = before;
    return v;
}

static struct interval of_where(struct state *s, const struct ir_node *n, const struct interval *a)
{
    const struct interval yes = under(s, n->arg[0], true, n->arg[1], a[1]);
    const struct interval no = under(s, n->arg[0], false, n->arg[2], a[2]);
    if (yes.low > yes.high || no.low > no.high) /* never taken */
        return yes.low > yes.high ? a[2] : a[1];
    return hull(yes, no);
}

static struct interval of_op(struct state *s, const struct ir_node *n, const struct interval *a)
{
    switch ((enum ir_op)n->op) {
    case OP_ADD: /* of more terms than a form holds */
        return (struct interval){a[0].low + a[1].low, a[0].high + a[1].high};
    case OP_SUB:
        return (struct interval){a[0].low - a[1].high, a[0].high - a[1].low};
    case OP_MUL:
        return n->arg[0] == n->arg[1] ? corners(times, magnitude(a[0]), magnitude(a[0]))
                                      : corners(times, a[0], a[1]);
    case OP_DIV:
    case OP_IDIV:
        return quotient(n, a[0], a[1]);
    case OP_MOD:
        return modulo(n, a[0], a[1]);
    case OP_ABS:
        return magnitude(a[0]);
    case OP_MIN:
        return (struct interval){fmin(a[0].low, a[1].low), fmin(a[0].high, a[1].high)};
    case OP_MAX:
        return (struct interval){fmax(a[0].low, a[1].low), fmax(a[0].high, a[1].high)};
    case OP_CLAMP:
        return (struct interval){fmin(fmax(a[0].low, a[1].low), a[2].low),
                                 fmin(fmax(a[0].high, a[1].high), a[2].high)};
    case OP_AND:
    case OP_OR:
    case OP_XOR:
        return of_bits(n, a[0], a[1]);
    case OP_SHL:
    case OP_SHR:
        return shifted(n, a[0], a[1]);
    case OP_NOT:
        return (struct interval){-1 - a[0].high, -1 - a[0].low};
    case OP_RANDOM:
        return (struct interval){0, 1};
    case OP_WHERE:
        return of_where(s, n, a);
    case OP_EXP:
    case OP_EXP2:
    case OP_LOG:
    case OP_LOG2:
    case OP_SQRT:
    case OP_TANH:
    case OP_SIGMOID:
    case OP_RELU:
    case OP_ERF:
    case OP_FLOOR:
    case OP_CEIL:
        return grown(n, a[0]);
    case OP_SIN:
    case OP_COS:
        return (struct interval){-1, 1};
    case OP_I32:
        return whole(a[0]);
    case OP_RANK:
        return below(size_of(s, SYM_N));
    case OP_PLACED:
    case OP_TAKEN:
        return a[0];
    case OP_ROWMAX:
    case OP_ROWMIN:
    case OP_DIMMAX:
        return a[0];
    default:
        return ANY;
    }
}

/* ---- one node ------------------------------------------------------------------------------------ */

/* False: the node is an atom of its own. */
static bool make_form(const struct state *s, const struct ir_node *n, struct form *f)
{
    if (n->op == OP_CONST) {
        *f = constant_form(n->value);
        return !isinf(n->value) && !isnan(n->value);
    }
    if (n->op == OP_AT) {
        /* a row of queries is at.q less where they begin */
        const int field = n->index == AT_ROW && proofs_of(s->ir)->row == SYM_Q ? AT_Q : n->index;
        const struct interval v = of_field(s, n->index);
        *f = v.low == v.high ? constant_form(v.low) : atom_form(-1 - field);
        if (field != n->index && v.low != v.high)
            f->constant = (double)(size_of(s, SYM_Q) - size_of(s, SYM_KV));
        return true;
    }
    if (n->op == OP_F32 || n->op == OP_DETACH) {
        *f = s->form[n->arg[0]];
        return true;
    }
    const bool sum = n->op == OP_ADD || n->op == OP_SUB || n->op == OP_NEG;
    if (sum) {
        *f = n->op == OP_NEG ? constant_form(0) : s->form[n->arg[0]];
        return add_forms(f, &s->form[n->arg[n->n_args - 1]], n->op == OP_ADD ? 1 : -1);
    }
    for (int k = 0; k < 2 && n->op == OP_MUL; k++)
        if (s->form[n->arg[k]].n == 0) {
            *f = constant_form(0);
            return add_forms(f, &s->form[n->arg[1 - k]], s->form[n->arg[k]].constant);
        }
    return false;
}

static struct interval of_node(struct state *s, int node)
{
    const struct ir_node *n = &s->ir->node[node];
    struct interval a[IR_MAX_ARGS] = {{0, 0}};
    for (int k = 0; k < n->n_args; k++)
        a[k] = within_32_bits(&s->ir->node[n->arg[k]], s->out[n->arg[k]]);
    if (n->type == TYPE_BOOL)
        return (struct interval){0, 1};
    if (n->op == OP_SCALAR || n->op == OP_LOAD)
        return of_input(s, &s->ir->input[n->index]);
    if (n->op == OP_PARAM)
        return ANY;
    const bool atom = s->form[node].n == 1 && s->form[node].atom[0] == node;
    const struct interval v = atom ? of_op(s, n, a) : of_form(s, &s->form[node]);
    return n->rounded ? (struct interval){(double)(float)v.low, (double)(float)v.high} : v;
}

static void run_node(struct state *s, int node)
{
    const struct ir_node *n = &s->ir->node[node];
    struct form f;
    if (n->type == TYPE_BOOL || !make_form(s, n, &f))
        f = atom_form(node);
    s->form[node] = f;
    struct interval v = of_node(s, node);
    if (n->type != TYPE_BOOL)
        v = tighten(s, &s->form[node], v);
    s->out[node] = isnan(v.low) || isnan(v.high) ? ANY : v;
    if (within_32_bits(n, s->out[node]).low != s->out[node].low)
        s->form[node] = atom_form(node); /* wrapped: no sum any more */
}

bool intervals_run(const struct interval_call *call, const bool *used, int last, struct interval *out)
{
    struct state s = {.call = call, .ir = call->ir, .dim = call->dim, .out = out};
    s.form = calloc((size_t)last + 1, sizeof *s.form);
    if (!s.form)
        return false;
    for (int pass = 0; pass < 2; pass++) { /* the condition's own nodes come first */
        for (int i = 0; i <= last; i++)
            if (used[i])
                run_node(&s, i);
        if (call->condition < 0)
            break;
        s.n_conditions = 0;
        suppose(&s, call->condition, true, 8);
    }
    free(s.form);
    return !s.failed;
}
