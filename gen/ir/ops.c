/*
 * ops.c: what is known of each operator: its row of ops.def. In: an op. Out: names, arity, axis, scans.
 */
#include "gen/ir/pool.h"

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

const struct op_row *ir_op_row(int op)
{
    return &ROWS[op];
}
