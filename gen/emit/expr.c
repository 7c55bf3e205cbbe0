/*
 * expr.c: C++ text for IR nodes. In: roots, and a scope that names what is already at hand. Out: one
 * line per node in pool order, each with the spec line it came from. Deterministic: local values are
 * numbered per function, constants are written as hexadecimal floats.
 */
#include "gen/emit/emit.h"
#include "gen/base/text.h"
#include "gen/ir/kind.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- classes --------------------------------------------------------------------------------- */

static enum value_class classify_node(const struct emitter *e, const struct ir_node *n)
{
    bool axis = (n->span & (SPAN_KV | SPAN_DIM)) != 0;
    const int end = kinds[e->w->kind].row_leaves;
    bool dynamic = n->phase > 0 || (n->op == OP_PARAM && n->index >= LEAF_STATE && n->index < end);
    bool element = n->op == OP_PARAM && axis;
    for (int k = 0; k < n->n_args; k++) {
        dynamic |= e->class_of[n->arg[k]] == CLASS_DYNAMIC;
        element |= e->class_of[n->arg[k]] == CLASS_ELEMENT;
    }
    if (axis)
        return element || dynamic || (n->span & SPAN_Q) ? CLASS_ELEMENT : CLASS_COL;
    return dynamic ? CLASS_DYNAMIC : n->span & SPAN_Q ? CLASS_ROW : CLASS_HEAD;
}

/* ---- integers that may wrap around ----------------------------------------------------------- */

static const double ANY_INTEGER = 0x1p31;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* A bound on the absolute value; ANY_INTEGER where the text has to wrap around or nothing is known. */
static double bound_of(const struct emitter *e, const struct ir_node *n)
{
    const double a = n->n_args > 0 ? e->most[n->arg[0]] : ANY_INTEGER;
    const double b = n->n_args > 1 ? e->most[n->arg[1]] : ANY_INTEGER;
    const double end = kinds[e->w->kind].positions_end;
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return fabs(n->value);
    case OP_AT:
    case OP_PARAM: /* corners of tiles */
        return end > 0 && n->index < LEAF_READ ? end : ANY_INTEGER;
    case OP_ADD:
    case OP_SUB:
        return a + b;
    case OP_MUL:
        return a * b;
    case OP_NEG:
    case OP_ABS:
    case OP_IDIV:
        return a;
    case OP_MOD:
        return b;
    case OP_MIN:
    case OP_MAX:
        return larger(a, b);
    case OP_CLAMP:
        return larger(b, e->most[n->arg[2]]);
    case OP_WHERE:
        return larger(b, e->most[n->arg[2]]);
    default:
        return ANY_INTEGER;
    }
}

static bool is_integer(const struct emitter *e, int node, double value)
{
    const struct ir_node *n = &e->w->node[node];
    return n->op == OP_CONST && n->value == value;
}

/* Whatever the compiler would make a negation of (common/ptx_negate.cuh); NULL: it would not. */
static const char *negation_text(const struct emitter *e, const struct ir_node *n)
{
    if (n->op == OP_NEG || (n->op == OP_MUL && is_integer(e, n->arg[1], -1)))
        return "negate(%0)";
    if ((n->op == OP_SUB && is_integer(e, n->arg[0], 0)) || (n->op == OP_MUL && is_integer(e, n->arg[0], -1)))
        return "negate(%1)";
    return NULL;
}

/* Of sums and products that the language lets wrap around and C++ does not; NULL: the op's own text serves.
 */
static const char *wrapping_text(const struct emitter *e, const struct ir_node *n)
{
    if (n->type != TYPE_I32)
        return NULL;
    const char *negation = negation_text(e, n);
    if (negation)
        return negation;
    switch ((enum ir_op)n->op) {
    case OP_ADD:
        return bound_of(e, n) < ANY_INTEGER ? NULL : "m_add(%0, %1)";
    case OP_SUB:
        return bound_of(e, n) < ANY_INTEGER ? NULL : "m_sub(%0, %1)";
    case OP_MUL:
        return bound_of(e, n) < ANY_INTEGER ? NULL : "m_mul(%0, %1)";
    case OP_NOT:
        return "(~%0)";
    default:
        return NULL;
    }
}

bool emitter_open(struct emitter *e, const struct ir *lowered, const struct signature *sig,
                  const struct problem *problem, struct text_buf *out)
{
    struct ir *w = ir_clone(lowered);
    *e = (struct emitter){.w = w, .sig = sig, .problem = problem, .out = out};
    if (!w)
        return false;
    size_t n = (size_t)w->n_nodes;
    e->name = calloc(n, sizeof *e->name);
    e->class_of = calloc(n, sizeof *e->class_of);
    e->mark = calloc(n, sizeof *e->mark);
    e->most = calloc(n, sizeof *e->most);
    e->of_three = calloc(n, sizeof *e->of_three);
    if (!e->name || !e->class_of || !e->mark || !e->most || !e->of_three)
        return false;
    least_mark(w, e->of_three);
    for (size_t i = 0; i < n; i++) {
        e->class_of[i] = (uint8_t)classify_node(e, &w->node[i]);
        const double most = bound_of(e, &w->node[i]);
        e->most[i] = most < ANY_INTEGER ? most : ANY_INTEGER;
    }
    return true;
}

void emitter_close(struct emitter *e)
{
    free(e->name);
    free(e->class_of);
    free(e->mark);
    free(e->most);
    free(e->of_three);
    ir_free(e->w);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

void scope_clear(struct emitter *e)
{
    memset(e->name, 0, (size_t)e->w->n_nodes * sizeof *e->name);
    e->temp = 0;
}

void scope_set(struct emitter *e, int node, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->name[node], NODE_NAME_BYTES, fmt, args);
    va_end(args);
}

void scope_param(struct emitter *e, int param, const char *text)
{
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->w->node[i].op == OP_PARAM && e->w->node[i].index == param)
            scope_set(e, i, "%s", text);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static void decimal_comment(double value, char *out, size_t size)
{
    snprintf(out, size, "%.7g", value);
    for (char *c = out; *c; c++)
        if (!strchr("0123456789+-e", *c))
            *c = '.'; /* whatever the locale's point is */
}

void float_text(double value, char *out, size_t size)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    int exponent = (int)(bits >> 23 & 255);
    const char *sign = bits >> 31 ? "-" : "";
    if (exponent == 255)
        snprintf(out, size, "%s", isnan(f) ? "m_nan()" : bits >> 31 ? "-INF" : "INF");
    else if (f == floorf(f) && fabsf(f) < 1e6f)
        snprintf(out, size, "%s%d.0f", sign, abs((int)f));
    else {
        char decimal[32];
        decimal_comment(value, decimal, sizeof decimal);
        uint32_t mantissa = (bits & 0x7fffff) << 1;
        snprintf(out, size, "%s0x%d.%06" PRIx32 "p%df /* %s */", sign, exponent > 0, mantissa,
                 exponent > 0 ? exponent - 127 : -126, decimal);
    }
}

static const char *at_text(int field)
{
    static const char *const text[AT_COUNT] = {
        [AT_B] = "h.b",
        [AT_H] = "h.h",
        [AT_H_KV] = "h.h_kv",
        [AT_Q] = "r.q",
        [AT_KV] = "c.kv",
        [AT_I] = "i",
        [AT_POS] = "v.pos",
        [AT_N_B] = "z.n_b",
        [AT_N_H] = "z.n_h",
        [AT_N_H_KV] = "z.n_h_kv",
        [AT_LEN_Q] = "z.len_q",
        [AT_LEN_KV] = "z.len_kv",
        [AT_D] = "cfg::D",
        [AT_D_V] = "cfg::D_V",
        [AT_COL] = "i",
        [AT_T] = "v.t",
        [AT_J] = "i",
        [AT_H_K] = "h.h_kv",
        [AT_N_H_K] = "z.n_h_kv",
        [AT_LEN_T] = "z.len_q",
        [AT_N] = "z.n",
        [AT_KV_START] = "x.kv_start",
        [AT_KV_CHUNK] = "x.kv_chunk",
        [AT_KV_STEP] = "x.kv_step",
        [AT_H_START] = "x.h_start",
        [AT_ALL_KV] = "x.all_kv",
        [AT_ALL_H] = "x.all_h",
        [AT_N_ROWS] = "(z.rows0 * z.rows1 * z.rows)",
    };
    return text[field];
}

const char *node_text(struct emitter *e, int node, char *buf, size_t size)
{
    const struct ir_node *n = &e->w->node[node];
    if (e->name[node][0])
        snprintf(buf, size, "%s", e->name[node]);
    else if (n->op == OP_CONST && n->type == TYPE_F32)
        float_text(n->value, buf, size);
    else if (n->op == OP_CONST && n->type == TYPE_BOOL)
        snprintf(buf, size, "%s", yes(n->value != 0));
    else if (n->op == OP_CONST && n->value == -2147483648.0)
        snprintf(buf, size, "(-2147483647 - 1)"); /* 2147483648 alone would be a long */
    else if (n->op == OP_CONST)
        snprintf(buf, size, n->value < 0 ? "(%d)" : "%d", (int)n->value);
    else if (n->op == OP_AT && n->index == AT_ROW)
        snprintf(buf, size, "%s", kinds[e->w->kind].row_text);
    else if (ir_free_size(n) >= 0)
        snprintf(buf, size, "x.size_%s", e->w->free_name[ir_free_size(n)]);
    else if (n->op == OP_AT)
        snprintf(buf, size, "%s", at_text(n->index));
    else if (n->op == OP_SCALAR)
        snprintf(buf, size, "x.in_%s", e->w->input[n->index].name);
    else
        snprintf(buf, size, "unnamed_%d", node); /* cannot happen: it would not compile */
    return buf;
}

const char *c_type(int ir_type)
{
    static const char *const name[] = {"float", "int", "bool"};
    return name[ir_type];
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Certainly inside of its dim. at.i is not: a mod of v may read a dim of d, and threads beyond the end of a
   row compute too. */
static bool is_own_index(const struct ir *w, int index, const struct sig_dim *dim)
{
    static const struct {
        int field;
        int sym;
    } OWN[] = {{AT_B, SYM_B}, {AT_H, SYM_H}, {AT_H_KV, SYM_H_KV}, {AT_H_K, SYM_H_K}, {AT_T, SYM_T}};
    const struct ir_node *n = &w->node[index];
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++)
        if (n->op == OP_AT && n->index == OWN[i].field && dim->literal == 0 && dim->sym == OWN[i].sym)
            return true;
    return n->op == OP_CONST && dim->literal > 0 && n->value >= 0 && n->value < dim->literal;
}

void input_size_text(const struct emitter *e, int input, int d, char *out, size_t size)
{
    static const char *const text[SYM_FREE] = {
        [SYM_B] = "z.n_b",         [SYM_H] = "z.n_h",       [SYM_H_KV] = "z.n_h_kv",
        [SYM_Q] = "z.len_q",       [SYM_KV] = "z.len_kv",   [SYM_D] = "cfg::D",
        [SYM_D_V] = "cfg::D_V",    [SYM_N] = "z.n",         [SYM_ROWS] = "z.rows",
        [SYM_T] = "z.len_q",       [SYM_H_K] = "z.n_h_kv",  [SYM_SEQS] = "x.seqs",
        [SYM_ALL_KV] = "x.all_kv", [SYM_ALL_H] = "x.all_h", [SYM_ALL_H_KV] = "x.all_h_kv",
    };
    const struct sig_dim *dim = &e->w->input[input].dim[d];
    if (dim->literal > 0)
        snprintf(out, size, "%d", dim->literal);
    else if (dim->sym == SYM_T && ir_steps(e->w) > 1) /* kernels count steps */
        snprintf(out, size, "(z.len_q / %d)", ir_steps(e->w));
    else if (dim->sym < SYM_FREE)
        snprintf(out, size, "%s", text[dim->sym]);
    else
        snprintf(out, size, "x.n%d_%s", d, e->w->input[input].name);
}

void index_text(struct emitter *e, const struct ir_node *n, int d, struct text_buf *t)
{
    char index[128];
    char bound[64];
    node_text(e, n->arg[d], index, sizeof index);
    input_size_text(e, n->index, d, bound, sizeof bound);
    if (is_own_index(e->w, n->arg[d], &e->w->input[n->index].dim[d]))
        text_add(t, "%s", index);
    else
        text_add(t, "m_clamp_index(%s, %s)", index, bound);
}

/* Offset of a read in its tensor: (long long)h.h * x.s0_table + ..., whose strides are members of `object`.
   The index is clamped where it is not certainly inside, so that no spec reads outside of its tensors. */
static void element_text(struct emitter *e, const struct ir_node *n, const char *object, struct text_buf *t)
{
    const char *name = e->w->input[n->index].name;
    if (e->w->input[n->index].rows == INPUT_VALUE) { /* where a row begins: `at` is its place */
        text_add(t, "at.row0 * %s.s0_%s + at.row1 * %s.s1_%s + at.row2 * %s.s2_%s", object, name, object,
                 name, object, name);
        return;
    }
    for (int d = 0; d < n->n_args; d++) {
        text_add(t, d ? " + (long long)" : "(long long)");
        index_text(e, n, d, t);
        text_add(t, " * %s.s%d_%s", object, d, name);
    }
}

static void load_text(struct emitter *e, const struct ir_node *n, struct text_buf *t)
{
    text_add(t, "m_load(x.in_%s, ", e->w->input[n->index].name);
    element_text(e, n, "x", t);
    text_add(t, ")");
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Of operations that round, where something decides by them: functions of common/exact.cuh. All others give
   what one of their operands is, or an integer, and their own text serves. */
static const char *rounded_text(const struct ir_node *n)
{
    static const char *const text[OP_COUNT] = {
        [OP_ADD] = "exact_add(%0, %1)",       [OP_SUB] = "exact_sub(%0, %1)",
        [OP_MUL] = "exact_mul(%0, %1)",       [OP_DIV] = "exact_div(%0, %1)",
        [OP_IDIV] = "exact_floordiv(%0, %1)", [OP_MOD] = "exact_floormod(%0, %1)",
        [OP_POW] = "exact_pow(%0, %1)",       [OP_EXP] = "exact_exp(%0)",
        [OP_EXP2] = "exact_exp2(%0)",         [OP_LOG] = "exact_log(%0)",
        [OP_LOG2] = "exact_log2(%0)",         [OP_SQRT] = "exact_sqrt(%0)",
        [OP_RSQRT] = "exact_rsqrt(%0)",       [OP_SIN] = "exact_sin(%0)",
        [OP_COS] = "exact_cos(%0)",           [OP_TANH] = "exact_tanh(%0)",
        [OP_SIGMOID] = "exact_sigmoid(%0)",   [OP_SILU] = "exact_silu(%0)",
        [OP_ERF] = "exact_erf(%0)",           [OP_NORMAL] = "exact_normal(%0)",
        [OP_GELU] = "exact_gelu(%0)",
    };
    return n->rounded ? text[n->op] : NULL;
}

static void op_text(struct emitter *e, int node, struct text_buf *t)
{
    const struct ir_node *n = &e->w->node[node];
    const char *wraps = n->rounded ? rounded_text(n) : wrapping_text(e, n);
    for (const char *c = wraps ? wraps : ir_op_cuda(n->op); *c; c++) {
        if (*c != '%') {
            text_add_bytes(t, c, 1);
            continue;
        }
        char operand[128];
        c++;
        const int arg = n->arg[*c - '0'];
        const bool settles = e->of_three[node] && least_may_negate(e->w, arg);
        text_add(t, settles ? "settled(%s)" : "%s", node_text(e, arg, operand, sizeof operand));
    }
}

static void emit_line(struct emitter *e, int node)
{
    const struct ir_node *n = &e->w->node[node];
    struct text_buf t = {0};
    if (n->op == OP_LOAD)
        load_text(e, n, &t);
    else
        op_text(e, node, &t);
    /* Integers and bools are no constants: the front end of nvcc and NVRTC tries to evaluate a constant's
       initializer anew wherever it is read, which is exponential along a chain of them. */
    text_add(e->out, "        %s%s t%d = %s;", n->type == TYPE_F32 ? "const " : "", c_type(n->type), e->temp,
             t.data ? t.data : "");
    if (n->line) {
        const char *slash = strrchr(e->w->file[n->file], '/');
        text_add(e->out, "  // %s:%d", slash ? slash + 1 : e->w->file[n->file], n->line);
    }
    text_add(e->out, "\n");
    text_fail_with(e->out, &t);
    text_free(&t);
    scope_set(e, node, "t%d", e->temp++);
}

/* Nodes below the roots, stopping at named ones. */
static void mark_needed(struct emitter *e, const int *root, int n_roots)
{
    memset(e->mark, 0, (size_t)e->w->n_nodes * sizeof *e->mark);
    for (int i = 0; i < n_roots; i++)
        e->mark[root[i]] = true;
    for (int i = e->w->n_nodes - 1; i >= 0; i--)
        for (int k = 0; e->mark[i] && !e->name[i][0] && k < e->w->node[i].n_args; k++)
            e->mark[e->w->node[i].arg[k]] = true;
}

void emit_values(struct emitter *e, const int *root, int n_roots)
{
    mark_needed(e, root, n_roots);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && !e->name[i][0] && e->w->node[i].op >= OP_LOAD)
            emit_line(e, i);
}

void emit_return(struct emitter *e, int value, const char *otherwise)
{
    char text[128];
    emit_values(e, &value, value >= 0);
    const bool settles = value >= 0 && e->settles_returned && least_may_negate(e->w, value);
    text_add(e->out, settles ? "        return settled(%s);\n" : "        return %s;\n",
             value >= 0 ? node_text(e, value, text, sizeof text) : otherwise);
}

/* ---- structs of values ----------------------------------------------------------------------- */

bool field_add(struct emitter *e, struct field_set *set, int node)
{
    for (int i = 0; i < set->n; i++)
        if (set->node[i] == node)
            return true;
    if (set->n == MAX_FIELDS) {
        text_exceed(e->out, MAX_FIELDS, "values that are kept for a head, a row or a column");
        return false;
    }
    set->node[set->n++] = node;
    return true;
}

static bool is_leaf(const struct ir *w, int node)
{
    return w->node[node].op < OP_LOAD;
}

bool fields_collect(struct emitter *e, struct field_set *set, enum value_class class, const int *root,
                    int n_roots)
{
    bool ok = true;
    ir_mark(e->w, root, n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        for (int k = 0; e->mark[i] && k < e->w->node[i].n_args; k++) {
            int a = e->w->node[i].arg[k];
            if (e->class_of[a] == class && e->class_of[i] != class && !is_leaf(e->w, a))
                ok &= field_add(e, set, a);
        }
    for (int i = 0; i < n_roots; i++)
        if (e->class_of[root[i]] == class && !is_leaf(e->w, root[i]))
            ok &= field_add(e, set, root[i]);
    return ok;
}

void fields_name(struct emitter *e, const struct field_set *set)
{
    for (int i = 0; i < set->n; i++)
        if (e->w->node[set->node[i]].op != OP_CONST)
            scope_set(e, set->node[i], "%s.f%d", set->object, i);
}

void fields_declare(struct emitter *e, const struct field_set *set, const char *fixed_members)
{
    text_add(e->out, "    struct %s {\n", set->type);
    if (fixed_members[0])
        text_add(e->out, "        %s\n", fixed_members);
    for (int i = 0; i < set->n; i++)
        text_add(e->out, "        %s f%d;\n", c_type(e->w->node[set->node[i]].type), i);
    text_add(e->out, "    };\n");
}

void fields_assign(struct emitter *e, const struct field_set *set, const bool *only)
{
    for (int i = 0; i < set->n; i++) {
        if (only && !only[i])
            continue;
        char text[128];
        emit_values(e, &set->node[i], 1);
        text_add(e->out, "        %s.f%d = %s;\n", set->object, i,
                 node_text(e, set->node[i], text, sizeof text));
    }
}

/* May dim d be 0 while there are pairs? */
static bool may_be_empty(const struct emitter *e, int input, int d)
{
    const struct sig_dim *dim = &e->w->input[input].dim[d];
    return dim->literal <= 0 && dim->sym >= SYM_FREE;
}

/* Nowhere where the input has no elements: the clamped index would be no one's. */
void emit_address(struct emitter *e, int leaf)
{
    const struct ir_node n = e->w->node[leaf];
    struct text_buf t = {0};
    const char *name = e->w->input[n.index].name;
    if (n.op == OP_LOAD) {
        emit_values(e, n.arg, n.n_args);
        element_text(e, &n, "g", &t);
    }
    text_add(e->out, "        return ");
    bool guarded = false;
    for (int d = 0; n.op == OP_LOAD && d < n.n_args; d++) {
        char size[64];
        input_size_text(e, n.index, d, size, sizeof size);
        if (may_be_empty(e, n.index, d))
            text_add(e->out, "%s%s <= 0", guarded ? " || " : "", size), guarded = true;
    }
    text_add(e->out, "%sg.d_%s + (%s);\n", guarded ? " ? nullptr : " : "", name, t.size ? t.data : "0");
    text_fail_with(e->out, &t);
    text_free(&t);
}
