/*
 * eval.c: the value of IR nodes in double precision. In: an environment that says what the leaves are and
 * which span bit runs over arrays. Out: env->value, one double or n doubles per node, valid until the
 * next eval_run; eval_free frees it. Nodes are taken in pool order, so operands are there before users.
 * Integers are doubles that hold 32-bit values; what leaves that range wraps around, as in two's complement.
 * Nodes that are `rounded` are rounded to f32, which makes them what a kernel computes: sums, products,
 * quotients and roots of f32 numbers in double precision round to the f32 number that is nearest to the exact
 * one.
 */
#include "gen/ir/eval.h"
#include "gen/ir/scalar.h"
#include "gen/ir/spec.h"
#include "gen/ir/tensor.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

struct arena {   /* behind env->memory */
    int n_nodes; /* entries of value, used and below */
    double **value;
    bool *used;
    int *below; /* the nodes below the roots, in pool order: n_below */
    int n_below;
    double *data;
    size_t n_data;
};

static bool fail(struct eval_env *env, int node, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* env->error: "file:line: text" by the node's place. Returns false. */
static bool fail(struct eval_env *env, int node, const char *fmt, ...)
{
    char text[384];
    va_list args;
    va_start(args, fmt);
    lathe__format(text, sizeof text, fmt, args);
    va_end(args);
    env->error_node = node;
    const struct ir_node *n = node >= 0 ? &env->ir->node[node] : NULL;
    if (n && n->line > 0 && n->file < env->ir->n_files)
        snprintf(env->error, sizeof env->error, "%.100s:%d: %s", env->ir->file[n->file], n->line, text);
    else
        snprintf(env->error, sizeof env->error, "%s", text);
    return false;
}

static bool along_axis(const struct eval_env *env, int node)
{
    return (env->ir->node[node].span & env->axis) != 0;
}

static size_t width(const struct eval_env *env, int node)
{
    return along_axis(env, node) ? (size_t)env->n : 1;
}

static bool grow_nodes(struct arena *m, int n_nodes)
{
    if (n_nodes <= m->n_nodes)
        return true;
    double **value = realloc(m->value, (size_t)n_nodes * sizeof *value);
    if (value)
        m->value = value;
    bool *used = realloc(m->used, (size_t)n_nodes * sizeof *used);
    if (used)
        m->used = used;
    int *below = realloc(m->below, (size_t)n_nodes * sizeof *below);
    if (below)
        m->below = below;
    if (!value || !used || !below)
        return false;
    m->n_nodes = n_nodes;
    return true;
}

static bool grow_data(struct arena *m, size_t n_data)
{
    if (n_data <= m->n_data)
        return true;
    const size_t capacity = n_data + n_data / 2;
    double *data = malloc(capacity * sizeof *data);
    if (!data)
        return false;
    free(m->data); /* of the last run: nothing to keep */
    m->data = data;
    m->n_data = capacity;
    return true;
}

/* Give every node below the roots its place. */
static bool lay_out(struct eval_env *env, const int *root, int n_roots)
{
    struct arena *m = env->memory ? env->memory : calloc(1, sizeof *m);
    env->memory = m;
    env->value = NULL;
    if (!m || !grow_nodes(m, env->ir->n_nodes))
        return false;
    ir_mark(env->ir, root, n_roots, m->used);
    size_t n_data = 1;
    m->n_below = 0;
    for (int i = 0; i < env->ir->n_nodes; i++) {
        m->value[i] = NULL;
        if (!m->used[i])
            continue;
        m->below[m->n_below++] = i;
        n_data += width(env, i);
    }
    if (!grow_data(m, n_data))
        return false;
    double *next = m->data;
    for (int k = 0; k < m->n_below; k++) {
        m->value[m->below[k]] = next;
        next += width(env, m->below[k]);
    }
    env->value = m->value;
    return true;
}

void eval_free(struct eval_env *env)
{
    struct arena *m = env->memory;
    if (m) {
        free(m->value);
        free(m->used);
        free(m->below);
        free(m->data);
        free(m);
    }
    env->memory = NULL;
    env->value = NULL;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static void fill(struct eval_env *env, int node, double value)
{
    const size_t n = width(env, node);
    for (size_t j = 0; j < n; j++)
        env->value[node][j] = value;
}

static bool run_at(struct eval_env *env, int node)
{
    static const char *const name[AT_COUNT] = {
#define AT_NAME(id, text, span) text,
        AT_MAP(AT_NAME)
#undef AT_NAME
    };
    const int field = env->ir->node[node].index;
    if (!along_axis(env, node))
        env->value[node][0] = env->at[field];
    else if (env->at_axis[field])
        memcpy(env->value[node], env->at_axis[field], width(env, node) * sizeof(double));
    else if (env->n > 0)
        return fail(env, node, "at.%s has no value here", name[field]);
    return true;
}

static bool run_param(struct eval_env *env, int node)
{
    const double *given = env->param[env->ir->node[node].index];
    if (width(env, node) == 0)
        return true;
    if (!given)
        return fail(env, node, "parameter %d of the function has no value here", env->ir->node[node].index);
    memcpy(env->value[node], given, width(env, node) * sizeof(double));
    return true;
}

static void run_scalar(struct eval_env *env, int node)
{
    const int input = env->ir->node[node].index;
    const lathe_arg *t = env->input[input];
    fill(env, node, t ? dtype_load(t->dtype, t->data, 0) : env->ir->input[input].default_value);
}

static void dim_name(char *out, size_t size, const struct ir *ir, const struct sig_dim *dim)
{
    static const char *const text[SYM_FREE] = {
#define SYM_TEXT(id, spelling, what) spelling,
        SYM_MAP(SYM_TEXT)
#undef SYM_TEXT
    };
    if (dim->literal > 0)
        snprintf(out, size, "%d", dim->literal);
    else
        snprintf(out, size, "%s", dim->sym < SYM_FREE ? text[dim->sym] : ir->free_name[dim->sym - SYM_FREE]);
}

bool eval_fail_index(struct eval_env *env, int node, int input, int dim, double index, int64_t size)
{
    const struct input *in = &env->ir->input[input];
    char name[NAME_MAX_BYTES];
    dim_name(name, sizeof name, env->ir, &in->dim[dim]);
    if (size == 0)
        return fail(env, node, "%s: index %.0f of dim %d (%s): that dim has no elements", in->name, index,
                    dim, name);
    return fail(env, node, "%s: index %.0f of dim %d (%s) is outside 0..%lld", in->name, index, dim, name,
                (long long)size - 1);
}

/* The dims of a tensor as a read sees them. Where it has more than indices, or fewer, the first index counts
   all leading dims: a row number. */
struct place {
    int leading;
    int64_t size[IR_MAX_ARGS];
    int64_t stride[IR_MAX_ARGS]; /* of all but the first */
};

static struct place place_of(const lathe_arg *t, int n_args)
{
    struct place p = {.leading = t->ndim - n_args + 1, .size = {1}};
    for (int d = 0; d < p.leading; d++)
        p.size[0] *= t->shape[d];
    for (int k = 1; k < n_args; k++) {
        p.size[k] = t->shape[p.leading + k - 1];
        p.stride[k] = tensor_stride(t, p.leading + k - 1);
    }
    return p;
}

static int64_t first_offset(const lathe_arg *t, const struct place *p, int64_t index)
{
    int64_t element = 0;
    for (int d = p->leading - 1; d >= 0; d--) {
        element += (d > 0 ? index % t->shape[d] : index) * tensor_stride(t, d);
        index /= t->shape[d];
    }
    return element;
}

static bool run_load(struct eval_env *env, int node)
{
    const struct ir_node *n = &env->ir->node[node];
    const lathe_arg *t = env->input[n->index];
    if (!t) {
        fill(env, node, env->ir->input[n->index].default_value);
        return true;
    }
    const struct place place = place_of(t, n->n_args);
    const size_t count = width(env, node);
    for (size_t j = 0; j < count; j++) {
        int64_t element = 0;
        for (int k = 0; k < n->n_args; k++) {
            const double index = env->value[n->arg[k]][along_axis(env, n->arg[k]) ? j : 0];
            if (!(index >= 0.0 && index < (double)place.size[k]))
                return eval_fail_index(env, node, env->ir->node[node].index, k, index, place.size[k]);
            element += k == 0 ? first_offset(t, &place, (int64_t)index) : (int64_t)index * place.stride[k];
        }
        env->value[node][j] = dtype_load(t->dtype, t->data, element);
    }
    return true;
}

/* ---- inner nodes ----------------------------------------------------------------------------- */

static bool run_op(struct eval_env *env, int node)
{
    const struct ir_node *n = &env->ir->node[node];
    const enum ir_op op = (enum ir_op)n->op;
    const double *from[IR_MAX_ARGS];
    size_t step[IR_MAX_ARGS];
    for (int k = 0; k < IR_MAX_ARGS; k++) {
        const int arg = n->arg[k < n->n_args ? k : 0]; /* stands in for one that the op lacks */
        from[k] = env->value[arg];
        step[k] = along_axis(env, arg) ? 1 : 0;
    }
    const size_t count = width(env, node);
    double *out = env->value[node];
    scalar_function(op, (enum ir_type)n->type)(out, count, from, step);
    const size_t whole = n->type == TYPE_I32 ? scalar_wrap(out, count) : count;
    if (whole < count)
        return fail(env, node, "integer division by zero: %.0f %s 0", from[0][whole * step[0]],
                    ir_op_name(n->op));
    if (op == OP_DETACH && env->tape && !eval_tape_run(env->tape, out, count))
        return fail(env, -1, "out of memory for what detach() gives");
    return true;
}

/* Of n values, or of one value that stands for n. Extremes skip NaN, as the device does. */
static double reduce(enum ir_op op, const double *v, bool spread, int n)
{
    const bool sum = op == OP_ROWSUM || op == OP_DIMSUM || op == OP_SPLITSUM;
    if (sum && !spread)
        return n > 0 ? v[0] * n : 0.0;
    double result = sum ? 0.0 : op == OP_ROWMIN ? (double)INFINITY : -(double)INFINITY;
    for (int j = 0; j < n; j++) {
        const double x = v[spread ? j : 0];
        if (sum)
            result += x;
        else if (op == OP_ROWMIN ? x < result : x > result)
            result = x;
    }
    return result;
}

static bool run_reduction(struct eval_env *env, int node)
{
    const struct ir_node *n = &env->ir->node[node];
    if (ir_op_axis(n->op) != env->axis)
        return fail(env, node, "%s cannot be evaluated along another axis than its own", ir_op_name(n->op));
    env->value[node][0] =
        reduce((enum ir_op)n->op, env->value[n->arg[0]], along_axis(env, n->arg[0]), env->n);
    return true;
}

/* A sum of s_j e^t_j as sum e^top, top the largest t_j so far: nothing overflows, and nothing is lost. */
struct pair {
    double top;
    double sum;
};

static struct pair pair_join(struct pair a, struct pair b)
{
    const double less = a.top - b.top;
    const double scale = a.top == b.top ? 1.0 : exp(-fabs(less));
    if (less >= 0.0)
        return (struct pair){a.top, a.sum + b.sum * scale};
    return (struct pair){b.top, a.sum * scale + b.sum};
}

/* An operand of a node, along the axis. */
static double operand_at(const struct eval_env *env, int node, int operand, int j)
{
    const int arg = env->ir->node[node].arg[operand];
    return env->value[arg][j * along_axis(env, arg)];
}

/* Element j, which has e^-inf of what it is worth where its exponent is -inf. */
static struct pair pair_of(const struct eval_env *env, int node, enum scan_form form, int j)
{
    const double value = form == SCAN_LOG ? 1.0 : operand_at(env, node, 0, j);
    const double power = form == SCAN_SUM ? 0.0 : operand_at(env, node, form == SCAN_WEIGHTED, j);
    return (struct pair){power, power == -(double)INFINITY ? 0.0 * value : value};
}

static double pair_value(const struct eval_env *env, int node, enum scan_form form, int j, struct pair all)
{
    if (form == SCAN_LOG)
        return all.top + log(all.sum);
    if (form == SCAN_SUM)
        return all.sum;
    const double shift = operand_at(env, node, 2, j);
    return all.top == -(double)INFINITY || shift == -(double)INFINITY ? 0.0 * all.sum
                                                                      : all.sum * exp(all.top + shift);
}

struct ranked {
    double value;
    int place;
};

/* In falling order, equal ones as they lie. */
static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left;
    const struct ranked *b = right;
    return a->value > b->value || (a->value == b->value && a->place < b->place) ? -1 : 1;
}

/* NaN counts as -inf: it is behind all numbers. */
static bool run_rank(struct eval_env *env, int node)
{
    struct ranked *row = malloc(((size_t)env->n + 1) * sizeof *row);
    if (!row)
        return fail(env, -1, "out of memory for the order of %d elements", env->n);
    for (int j = 0; j < env->n; j++) {
        const double x = operand_at(env, node, 0, j);
        row[j] = (struct ranked){isnan(x) ? -(double)INFINITY : x, j};
    }
    qsort(row, (size_t)env->n, sizeof *row, compare_ranked);
    for (int k = 0; k < env->n; k++)
        env->value[node][row[k].place] = k;
    free(row);
    return true;
}

/* Elements go to their ranks, or come from there. */
static void run_places(struct eval_env *env, int node, enum scan_form form)
{
    for (int j = 0; j < env->n; j++) {
        const int place = (int)operand_at(env, node, 1, j);
        env->value[node][form == SCAN_PLACED ? place : j] =
            operand_at(env, node, 0, form == SCAN_PLACED ? j : place);
    }
}

/* Of the elements up to each, or from each on, within segments that begin where the last operand is not 0. */
static bool run_scan(struct eval_env *env, int node)
{
    const struct ir_node *n = &env->ir->node[node];
    const enum scan_form form = ir_scan_form(n->op);
    const bool reverse = ir_scan_is_reverse(n->op);
    const struct pair none = {form == SCAN_SUM ? 0.0 : -(double)INFINITY, 0.0};
    struct pair all = none;
    if (env->axis != SPAN_KV)
        return fail(env, node, "%s runs along a row", ir_op_name(n->op));
    if (form == SCAN_RANK)
        return run_rank(env, node);
    if (form == SCAN_PLACED || form == SCAN_TAKEN) {
        run_places(env, node, form);
        return true;
    }
    for (int k = 0; k < env->n; k++) {
        const int j = reverse ? env->n - 1 - k : k;
        const int edge = reverse ? j + 1 : j; /* where the segment of what was summed so far begins */
        if (edge < env->n && operand_at(env, node, n->n_args - 1, edge) != 0.0)
            all = none;
        all = pair_join(all, pair_of(env, node, form, j));
        env->value[node][j] = pair_value(env, node, form, j, all);
    }
    return true;
}

static bool run_node(struct eval_env *env, int node)
{
    const struct ir_node *n = &env->ir->node[node];
    switch (n->op) {
    case OP_CONST:
        env->value[node][0] = n->value;
        return true;
    case OP_AT:
        return run_at(env, node);
    case OP_PARAM:
        return run_param(env, node);
    case OP_SCALAR:
        run_scalar(env, node);
        return true;
    case OP_LOAD:
        return run_load(env, node);
    default:
        if (ir_op_is_scan(n->op))
            return run_scan(env, node);
        return ir_op_is_reduction(n->op) ? run_reduction(env, node) : run_op(env, node);
    }
}

static void round_values(double *value, size_t n)
{
    for (size_t j = 0; j < n; j++)
        value[j] = (double)(float)value[j];
}

bool eval_run(struct eval_env *env, const int *root, int n_roots)
{
    env->error[0] = 0;
    env->error_node = -1;
    if (!lay_out(env, root, n_roots))
        return fail(env, -1, "out of memory for %d values per node", env->n);
    const struct arena *m = env->memory;
    for (int k = 0; k < m->n_below; k++) { /* of pools of a thousand nodes a row needs a few */
        const int i = m->below[k];
        if (!run_node(env, i))
            return false;
        if (env->ir->node[i].rounded)
            round_values(env->value[i], width(env, i));
        if (env->mode && !eval_mode_apply(env, i, width(env, i)))
            return fail(env, -1, "out of memory for the branches that were taken");
    }
    return true;
}
