/*
 * ir.c: the node pool. Nodes are hash-consed (one node per distinct value), folded where all operands
 * are constants, and typed, spanned and phased as they are made. In: ops and operands. Out: node
 * numbers that stay valid until ir_free. Relies on operands standing before their users.
 */
#include "gen/ir/kind.h"
#include "gen/ir/scalar.h"
#include "gen/ir/spec.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum in_rule { IN_N, IN_F, IN_L, IN_I, IN_C, IN_P };
enum out_rule { OUT_S, OUT_F, OUT_I, OUT_B };
enum { COMM = 1, RED = 2, SCAN = 4 };

struct op_row {
    const char *id;
    const char *spelling;
    int arity;
    enum in_rule in;
    enum out_rule out;
    const char *cuda;
    int flags;
};

static const struct op_row ROWS[OP_COUNT] = {
    [OP_CONST] = {"const", "", 0, IN_N, OUT_S, NULL, 0},
    [OP_AT] = {"at", "", 0, IN_N, OUT_S, NULL, 0},
    [OP_PARAM] = {"param", "", 0, IN_N, OUT_S, NULL, 0},
    [OP_SCALAR] = {"scalar", "", 0, IN_N, OUT_S, NULL, 0},
    [OP_LOAD] = {"load", "", 0, IN_N, OUT_S, NULL, 0},
#define OP(id, spelling, arity, in, out, cuda, flags)                                                        \
    [OP_##id] = {#id, spelling, arity, IN_##in, OUT_##out, cuda, flags},
#include "gen/ir/ops.def"
#undef OP
};

const char *ir_op_name(int op)
{
    static const char *const symbol[OP_COUNT] = {
        [OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*",  [OP_DIV] = "/",  [OP_IDIV] = "//",
        [OP_MOD] = "%", [OP_POW] = "^", [OP_NEG] = "-",  [OP_AND] = "&",  [OP_OR] = "|",
        [OP_NOT] = "~", [OP_XOR] = "~", [OP_SHL] = "<<", [OP_SHR] = ">>",
    };
    if (symbol[op])
        return symbol[op];
    return ROWS[op].spelling[0] ? ROWS[op].spelling : ROWS[op].id;
}

const char *ir_op_spelling(int op)
{
    return ROWS[op].spelling;
}

const char *ir_op_cuda(int op)
{
    return ROWS[op].cuda && ROWS[op].cuda[0] ? ROWS[op].cuda : NULL;
}

int ir_op_arity(int op)
{
    return ROWS[op].arity;
}

bool ir_op_commutes(int op)
{
    return (ROWS[op].flags & COMM) != 0;
}

bool ir_op_is_reduction(int op)
{
    return (ROWS[op].flags & RED) != 0;
}

bool ir_op_is_scan(int op)
{
    return (ROWS[op].flags & SCAN) != 0;
}

enum scan_form ir_scan_form(int op)
{
    const bool log = op == OP_LOGCUMSUMEXP || op == OP_REVLOGCUMSUMEXP;
    const bool weighted = op == OP_CUMEXPSUM || op == OP_REVCUMEXPSUM;
    if (op == OP_RANK || op == OP_PLACED || op == OP_TAKEN)
        return op == OP_RANK ? SCAN_RANK : op == OP_PLACED ? SCAN_PLACED : SCAN_TAKEN;
    return log ? SCAN_LOG : weighted ? SCAN_WEIGHTED : SCAN_SUM;
}

int ir_scan_start(const struct ir_node *scan)
{
    return ir_scan_form(scan->op) >= SCAN_RANK ? -1 : scan->arg[scan->n_args - 1];
}

bool ir_scan_is_reverse(int op)
{
    return op == OP_REVCUMSUM || op == OP_REVLOGCUMSUMEXP || op == OP_REVCUMEXPSUM;
}

enum ir_op ir_scan_reversed(int op, enum scan_form form)
{
    static const enum ir_op OF[][2] = {[SCAN_SUM] = {OP_REVCUMSUM, OP_CUMSUM},
                                       [SCAN_LOG] = {OP_REVLOGCUMSUMEXP, OP_LOGCUMSUMEXP},
                                       [SCAN_WEIGHTED] = {OP_REVCUMEXPSUM, OP_CUMEXPSUM}};
    return OF[form][ir_scan_is_reverse(op)];
}

int ir_stage_paired(const struct ir_stage *stage, int n)
{
    return stage->paired > 0 ? stage->paired : n;
}

int ir_dim_for_pairs(const struct ir *ir, int dim)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            if (ir->mod[m].stage[s].paired > dim)
                dim = ir->mod[m].stage[s].paired;
    return dim;
}

uint8_t ir_op_axis(int op)
{
    switch (op) {
    case OP_ROWMAX:
    case OP_ROWMIN:
    case OP_ROWSUM:
        return SPAN_KV;
    case OP_DIMMAX:
    case OP_DIMSUM:
        return SPAN_DIM;
    case OP_SPLITMAX:
    case OP_SPLITSUM:
        return SPAN_SPLIT;
    default:
        return 0;
    }
}

const char *ir_type_name(int type)
{
    static const char *const name[] = {"f32", "i32", "bool"};
    return name[type];
}

void ir_free(struct ir *ir)
{
    if (!ir)
        return;
    ir_free(ir->gradient); /* whose own is NULL */
    free(ir->node);
    free(ir->table);
    free(ir);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h ^= value + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdu;
}

static uint64_t hash_node(const struct ir_node *n)
{
    uint64_t bits;
    memcpy(&bits, &n->value, sizeof bits);
    uint64_t h = mix(mix(n->op, n->type), (uint64_t)(uint16_t)n->index);
    for (int i = 0; i < n->n_args; i++)
        h = mix(h, (uint64_t)n->arg[i]);
    h = mix(mix(h, bits), (uint64_t)n->span | (uint64_t)n->rounded << 8);
    h = (h ^ h >> 32) *
        0xff51afd7ed558ccdu; /* products carry upwards, and a short double has its bits there */
    return h ^ h >> 29;
}

static bool same_node(const struct ir_node *a, const struct ir_node *b)
{
    return a->op == b->op && a->type == b->type && a->index == b->index && a->n_args == b->n_args &&
           a->span == b->span && a->rounded == b->rounded && memcmp(a->arg, b->arg, sizeof a->arg) == 0 &&
           memcmp(&a->value, &b->value, sizeof a->value) == 0;
}

static bool grow_table(struct ir *ir)
{
    int size = ir->table_size ? ir->table_size * 2 : 1024;
    int32_t *table = calloc((size_t)size, sizeof *table);
    if (!table)
        return false;
    for (int i = 0; i < ir->n_nodes; i++) {
        uint64_t slot = hash_node(&ir->node[i]) & (uint64_t)(size - 1);
        while (table[slot])
            slot = (slot + 1) & (uint64_t)(size - 1);
        table[slot] = i + 1;
    }
    free(ir->table);
    ir->table = table;
    ir->table_size = size;
    return true;
}

static bool grow_pool(struct ir *ir)
{
    int capacity = ir->capacity ? ir->capacity * 2 : 256;
    struct ir_node *node = realloc(ir->node, (size_t)capacity * sizeof *node);
    if (!node)
        return false;
    ir->node = node;
    ir->capacity = capacity;
    return true;
}

/* With room for nodes: 0, which stands for a node that could not be made, can always be looked at. */
struct ir *ir_new(void)
{
    struct ir *ir = calloc(1, sizeof *ir);
    if (!ir)
        return NULL;
    if (!grow_table(ir) || !grow_pool(ir)) {
        ir_free(ir);
        return NULL;
    }
    ir->node[0] = (struct ir_node){.op = OP_CONST};
    return ir;
}

/* Find an equal node or append this one. */
static int intern(struct ir *ir, const struct ir_node *n)
{
    if (ir->n_nodes * 2 >= ir->table_size && !grow_table(ir)) {
        ir->failed = true;
        return 0;
    }
    uint64_t mask = (uint64_t)(ir->table_size - 1);
    uint64_t slot = hash_node(n) & mask;
    for (; ir->table[slot]; slot = (slot + 1) & mask)
        if (same_node(&ir->node[ir->table[slot] - 1], n))
            return ir->table[slot] - 1;
    if (ir->n_nodes >= IR_MAX_NODES || (ir->n_nodes == ir->capacity && !grow_pool(ir))) {
        ir->failed = true;
        return 0;
    }
    ir->node[ir->n_nodes] = *n;
    ir->table[slot] = ++ir->n_nodes;
    return ir->n_nodes - 1;
}

static struct ir_node blank(enum ir_op op, enum ir_type type, struct ir_at at)
{
    return (struct ir_node){.op = (uint8_t)op,
                            .type = (uint8_t)type,
                            .placed = op == OP_CONST || op == OP_AT,
                            .arg = {-1, -1, -1, -1, -1},
                            .file = at.file,
                            .line = at.line};
}

int ir_const(struct ir *ir, double value, enum ir_type type)
{
    struct ir_node n = blank(OP_CONST, type, (struct ir_at){0, 0});
    n.value = isnan(value) ? (double)NAN : value;
    return intern(ir, &n);
}

static bool is_corner(enum ir_op op, int index)
{
    return op == OP_PARAM && index >= LEAF_ROW0 && index <= LEAF_KV1;
}

int ir_leaf(struct ir *ir, enum ir_op op, int index, enum ir_type type, uint8_t span, struct ir_at at)
{
    struct ir_node n = blank(op, type, at);
    n.index = (int16_t)index;
    n.span = span;
    n.placed |= (op == OP_SCALAR && !ir->input[index].grad) || is_corner(op, index);
    return intern(ir, &n);
}

static int rounded_const(struct ir *ir, double value, enum ir_type type)
{
    struct ir_node n = blank(OP_CONST, type, (struct ir_at){0, 0});
    n.value = isnan(value) ? (double)NAN : value;
    n.rounded = type == TYPE_F32;
    return intern(ir, &n);
}

static uint8_t param_span(int param)
{
    if (param >= LEAF_STATE && param < LEAF_SPLIT_STATE)
        return SPAN_Q;
    if (param >= LEAF_SPLIT_STATE && param < LEAF_DW)
        return SPAN_Q | SPAN_SPLIT;
    if (((param >= LEAF_DFINAL && param < LEAF_DX) || param >= LEAF_DSTAT) && param != LEAF_V)
        return SPAN_Q;
    switch (param) {
    case LEAF_V:
    case LEAF_X:
    case LEAF_LO:
    case LEAF_HI:
    case LEAF_DX:
    case LEAF_DLO:
    case LEAF_DHI:
        return SPAN_Q | SPAN_DIM;
    default:
        return SPAN_Q | SPAN_KV;
    }
}

int ir_param(struct ir *ir, int param, struct ir_at at)
{
    return ir_leaf(ir, OP_PARAM, param, TYPE_F32, param_span(param), at);
}

int ir_operand(struct ir *ir, int tensor, int half)
{
    const struct map_tensor *t = &ir->tensor[tensor];
    const bool integer = t->dtype == LATHE_I32 || t->dtype == LATHE_U8;
    unsigned span = 0;
    for (int d = 0; d < t->n_dims; d++)
        span |= 1u << t->dim[d];
    return ir_leaf(ir, OP_PARAM, LEAF_TENSOR + 2 * tensor + half, integer ? TYPE_I32 : TYPE_F32,
                   (uint8_t)span, (struct ir_at){0, 0});
}

int ir_at_field(struct ir *ir, int field, struct ir_at at)
{
    static const uint8_t span[AT_COUNT] = {
#define AT_SPAN(id, name, bits) bits,
        AT_MAP(AT_SPAN)
#undef AT_SPAN
    };
    return ir_leaf(ir, OP_AT, field, TYPE_I32, span[field], at);
}

static void take_operand(const struct ir *ir, struct ir_node *n, int arg)
{
    const struct ir_node *a = &ir->node[arg];
    n->arg[n->n_args++] = arg;
    n->span |= a->span;
    n->placed &= a->placed;
    if (a->phase > n->phase)
        n->phase = a->phase;
}

int ir_load(struct ir *ir, int input, const int *index, int count, struct ir_at at)
{
    bool is_float = ir->input[input].dtype != LATHE_I32 && ir->input[input].dtype != LATHE_U8;
    struct ir_node n = blank(OP_LOAD, is_float ? TYPE_F32 : TYPE_I32, at);
    n.index = (int16_t)input;
    for (int i = 0; i < count; i++)
        take_operand(ir, &n, index[i]);
    return intern(ir, &n);
}

/* ---- types ----------------------------------------------------------------------------------- */

static const char *reduction_error(const struct ir *ir, enum ir_op op, int arg)
{
    uint8_t axis = ir_op_axis((int)op);
    if (ir->node[arg].type == TYPE_BOOL)
        return "takes a number, got a bool; use where(c, 1.0, 0.0)";
    if (ir->node[arg].span & axis)
        return NULL;
    if (axis == SPAN_KV && kinds[ir->kind].points)
        return "belongs in rowwise { ... }; in elementwise a result that lacks a dim of `over` is the sum "
               "along it";
    if (axis == SPAN_KV && (ir->node[arg].span & SPAN_DIM))
        return "runs along a row of scores; along the head dim write dimsum or dimmax";
    if (axis == SPAN_KV)
        return "value does not vary along the row (it is already one per row)";
    if (axis == SPAN_DIM)
        return "value does not vary along the head dim; dimsum and dimmax belong in query_mod, key_mod, "
               "value_mod and "
               "output_mod";
    return "value does not vary along the splits; splitmax and splitsum belong in combine";
}

/* Bits are those of integers; & | ~ also take bools, and then all of them. */
static const char *bits_error(const struct ir *ir, const struct op_row *row, const int *arg)
{
    bool logic = row->in == IN_L;
    int n_bools = 0;
    for (int i = 0; i < row->arity; i++) {
        n_bools += ir->node[arg[i]].type == TYPE_BOOL;
        if (ir->node[arg[i]].type == TYPE_F32)
            return logic ? "takes bools, such as lt(a, b), or integers; got a float: write i32(a)"
                         : "takes integers, got a float: write i32(a)";
    }
    if (n_bools > 0 && !logic)
        return "takes integers, got a bool; use where(c, 1, 0)";
    return n_bools > 0 && n_bools < row->arity
               ? "takes two bools or two integers, got one of each; use ne(a, 0) or where(c, 1, 0)"
               : NULL;
}

const char *ir_type_error(const struct ir *ir, enum ir_op op, const int *arg)
{
    const struct op_row *row = &ROWS[op];
    if (ir_op_is_reduction((int)op))
        return reduction_error(ir, op, arg[0]);
    if (op == OP_F32 || op == OP_I32)
        return NULL;
    if (row->in == IN_I || row->in == IN_L)
        return bits_error(ir, row, arg);
    if (row->in == IN_P && ir->node[arg[1]].op != OP_RANK)
        return "takes a rank second, as in placed(v, rank(s)): no two elements may have one place";
    for (int i = 0; i < row->arity; i++) {
        bool is_bool = ir->node[arg[i]].type == TYPE_BOOL;
        bool want_bool = row->in == IN_C && i == 0;
        if (want_bool && !is_bool)
            return "takes a condition first, such as lt(a, b); got a number";
        if (!want_bool && is_bool)
            return "takes numbers, got a bool; use where(c, 1.0, 0.0)";
    }
    return NULL;
}

static bool wants_float(const struct ir *ir, enum ir_op op, const int *arg)
{
    const struct op_row *row = &ROWS[op];
    if (row->in == IN_F || row->in == IN_P)
        return row->in == IN_F;
    int first = row->in == IN_C ? 1 : 0;
    bool any_float = false;
    for (int i = first; i < row->arity; i++)
        any_float |= ir->node[arg[i]].type == TYPE_F32;
    return any_float && op != OP_F32 && op != OP_I32;
}

static int to_float(struct ir *ir, int arg)
{
    if (ir->node[arg].type != TYPE_I32)
        return arg;
    return ir1(ir, OP_F32, arg);
}

static enum ir_type result_type(const struct ir *ir, const struct op_row *row, const int *arg)
{
    switch (row->out) {
    case OUT_F:
        return TYPE_F32;
    case OUT_I:
        return TYPE_I32;
    case OUT_B:
        return TYPE_BOOL;
    default:
        return (enum ir_type)ir->node[arg[row->in == IN_C ? 1 : 0]].type;
    }
}

/* ---- folding --------------------------------------------------------------------------------- */

static bool is_const(const struct ir *ir, int n, double value)
{
    return ir->node[n].op == OP_CONST && ir->node[n].value == value;
}

bool ir_f32_holds(const struct ir *ir, int node)
{
    const struct ir_node *n = &ir->node[node];
    const double size = fabs(n->value);
    return n->op != OP_CONST || n->type != TYPE_F32 || !isfinite(size) || size == 0 ||
           (size <= (double)FLT_MAX && size >= (double)FLT_MIN);
}

/* What leaves the other operand as it is: all bits of &, none of the others; -1 where there is none. */
static int simplify_bits(const struct ir *ir, enum ir_op op, const int *arg)
{
    const bool shift = op == OP_SHL || op == OP_SHR;
    const double all = ir->node[arg[0]].type == TYPE_BOOL ? 1 : -1;
    const double neutral = op == OP_AND ? all : 0;
    if (is_const(ir, arg[1], neutral))
        return arg[0];
    return !shift && is_const(ir, arg[0], neutral) ? arg[1] : -1;
}

/* Identities that hold for every operand, NaN and infinity included; -1 where none applies. */
static int simplify(const struct ir *ir, enum ir_op op, const int *arg)
{
    switch (op) {
    case OP_ADD:
        return ir->node[arg[0]].type == TYPE_I32 && is_const(ir, arg[1], 0)   ? arg[0]
               : ir->node[arg[0]].type == TYPE_I32 && is_const(ir, arg[0], 0) ? arg[1]
                                                                              : -1;
    case OP_SUB:
        return is_const(ir, arg[1], 0) ? arg[0] : -1;
    case OP_MUL:
        return is_const(ir, arg[1], 1) ? arg[0] : is_const(ir, arg[0], 1) ? arg[1] : -1;
    case OP_DIV:
        return is_const(ir, arg[1], 1) ? arg[0] : -1;
    case OP_F32:
        return ir->node[arg[0]].type == TYPE_F32 ? arg[0] : -1;
    case OP_I32:
        return ir->node[arg[0]].type == TYPE_I32 ? arg[0] : -1;
    case OP_WHERE:
        return ir->node[arg[0]].op == OP_CONST ? (ir->node[arg[0]].value != 0 ? arg[1] : arg[2])
               : arg[1] == arg[2]              ? arg[1]
                                               : -1;
    case OP_AND:
    case OP_OR:
    case OP_XOR:
    case OP_SHL:
    case OP_SHR:
        return simplify_bits(ir, op, arg);
    default:
        return -1;
    }
}

static bool all_const(const struct ir *ir, const int *arg, int n)
{
    for (int i = 0; i < n; i++)
        if (ir->node[arg[i]].op != OP_CONST)
            return false;
    return true;
}

/* Constants fold where the result is a number of its type: a division of integers by zero is left to be
   reported with its line. */
static bool fold(const struct ir *ir, enum ir_op op, enum ir_type type, const int *arg, bool rounded,
                 double *out)
{
    if (ir_op_is_reduction((int)op) || ir_op_is_scan((int)op) || !all_const(ir, arg, ROWS[op].arity))
        return false;
    bool integers = ir->node[arg[0]].type == TYPE_I32;
    double v[IR_MAX_ARGS] = {0};
    for (int i = 0; i < ROWS[op].arity; i++)
        v[i] = ir->node[arg[i]].rounded ? (double)(float)ir->node[arg[i]].value : ir->node[arg[i]].value;
    if (integers && (op == OP_IDIV || op == OP_MOD) && v[1] == 0)
        return false;
    *out = scalar_op(op, type, v);
    if (rounded && type == TYPE_F32)
        *out = (double)(float)*out;
    return true;
}

/* Of operands that have the operation's type. */
static int make(struct ir *ir, enum ir_op op, int *arg, struct ir_at at, bool rounded)
{
    const struct op_row *row = &ROWS[op];
    int same = simplify(ir, op, arg);
    if (same >= 0)
        return same;
    enum ir_type type = result_type(ir, row, arg);
    double value;
    if (fold(ir, op, type, arg, rounded, &value))
        return rounded ? rounded_const(ir, value, type) : ir_const(ir, value, type);
    if ((row->flags & COMM) && arg[0] > arg[1]) {
        int swap = arg[0];
        arg[0] = arg[1];
        arg[1] = swap;
    }
    struct ir_node n = blank(op, type, at);
    n.rounded = rounded && type == TYPE_F32;
    n.placed = !ir_op_is_reduction((int)op) && !ir_op_is_scan((int)op);
    for (int i = 0; i < row->arity; i++)
        take_operand(ir, &n, arg[i]);
    if (ir_op_is_scan((int)op))
        n.span |= SPAN_Q | SPAN_KV; /* an element of its own, also of what is the same everywhere */
    if (ir_op_is_reduction((int)op)) {
        n.span &= (uint8_t)~ir_op_axis((int)op);
        n.phase++;
    }
    return intern(ir, &n);
}

/* ---- what decides by positions ------------------------------------------------------------------ */

static bool steps(enum ir_op op)
{
    return op == OP_FLOOR || op == OP_CEIL || op == OP_IDIV || op == OP_MOD;
}

static bool decides(const struct ir *ir, enum ir_op op, const int *arg)
{
    const bool compares = op >= OP_LT && op <= OP_NE;
    return (compares || steps(op) || op == OP_I32) && ir->node[arg[0]].type == TYPE_F32;
}

bool ir_decides(const struct ir *ir, const struct ir_node *n)
{
    return n->n_args > 0 && decides(ir, (enum ir_op)n->op, n->arg);
}

/* Node i in its rounded form, from those of its operands. Integers and bools have been decided already. */
static int round_node(struct ir *ir, int i, const int *map)
{
    const struct ir_node n = ir->node[i];
    int arg[IR_MAX_ARGS] = {0};
    if (n.type != TYPE_F32 || n.rounded || n.op == OP_RANDOM) /* a multiple of 2^-24 below 1 */
        return i;
    if (n.n_args == 0) {
        struct ir_node leaf = n;
        leaf.rounded = true;
        return intern(ir, &leaf);
    }
    for (int k = 0; k < n.n_args; k++)
        arg[k] = map[n.arg[k]];
    return n.op == OP_DETACH ? arg[0] : make(ir, (enum ir_op)n.op, arg, (struct ir_at){n.file, n.line}, true);
}

/* A placed value in f32, each of its operations rounded. */
static int rounded_form(struct ir *ir, int node)
{
    if (ir->node[node].rounded || ir->node[node].type != TYPE_F32)
        return node;
    int *map = malloc(((size_t)node + 1) * sizeof *map);
    bool *used = calloc((size_t)node + 1, sizeof *used);
    int result = node;
    if (map && used) {
        used[node] = true;
        for (int i = node; i >= 0; i--)
            for (int k = 0; used[i] && k < ir->node[i].n_args; k++)
                used[ir->node[i].arg[k]] = true;
        for (int i = 0; i <= node; i++)
            map[i] = used[i] ? round_node(ir, i, map) : i;
        result = map[node];
    } else {
        ir->failed = true;
    }
    free(map);
    free(used);
    return result;
}

/* A constant or a number given at the launch is no position: beside data, and beside each other, they stay
   what they are. */
static bool round_operands(struct ir *ir, int *arg, int n)
{
    bool any = false;
    bool all = true;
    for (int i = 0; i < n; i++) {
        const int op = ir->node[arg[i]].op;
        any |= ir->node[arg[i]].placed && op != OP_CONST && op != OP_SCALAR;
        all &= ir->node[arg[i]].placed;
    }
    for (int i = 0; i < n && any; i++)
        arg[i] = ir->node[arg[i]].placed ? rounded_form(ir, arg[i]) : arg[i];
    return any && all;
}

int ir_make(struct ir *ir, enum ir_op op, const int *given, struct ir_at at)
{
    const struct op_row *row = &ROWS[op];
    int arg[IR_MAX_ARGS] = {0};
    bool floats = wants_float(ir, op, given);
    for (int i = 0; i < row->arity; i++)
        arg[i] = floats && !(row->in == IN_C && i == 0) ? to_float(ir, given[i]) : given[i];
    const bool rounded =
        row->arity > 0 && !ir->estimates && decides(ir, op, arg) && round_operands(ir, arg, row->arity);
    return make(ir, op, arg, at, rounded);
}

int ir_again(struct ir *ir, const struct ir_node *n, const int *arg)
{
    const struct ir_at at = {n->file, n->line};
    int operand[IR_MAX_ARGS] = {0};
    bool placed = n->rounded;
    if (n->op == OP_LOAD)
        return ir_load(ir, n->index, arg, n->n_args, at);
    for (int k = 0; k < n->n_args; k++)
        placed &= ir->node[arg[k]].placed;
    if (!placed)
        return ir_make(ir, (enum ir_op)n->op, arg, at);
    for (int k = 0; k < n->n_args; k++)
        operand[k] = rounded_form(ir, arg[k]);
    return make(ir, (enum ir_op)n->op, operand, at, true);
}

static struct ir_at place_of(const struct ir *ir, int node)
{
    return (struct ir_at){ir->node[node].file, ir->node[node].line};
}

int ir1(struct ir *ir, enum ir_op op, int a)
{
    int arg[IR_MAX_ARGS] = {a};
    return ir_make(ir, op, arg, place_of(ir, a));
}

int ir2(struct ir *ir, enum ir_op op, int a, int b)
{
    int arg[IR_MAX_ARGS] = {a, b};
    return ir_make(ir, op, arg, place_of(ir, ir->node[a].line ? a : b));
}

int ir3(struct ir *ir, enum ir_op op, int a, int b, int c)
{
    int arg[IR_MAX_ARGS] = {a, b, c};
    return ir_make(ir, op, arg, place_of(ir, ir->node[a].line ? a : ir->node[b].line ? b : c));
}

int ir_reduce_sum(struct ir *ir, uint8_t axis, int a)
{
    enum ir_op op = axis == SPAN_KV ? OP_ROWSUM : axis == SPAN_DIM ? OP_DIMSUM : OP_SPLITSUM;
    return ir1(ir, op, a);
}
