/*
 * ops.c: the four faces of every op. Walks the table of gen/ir/ops.def: a row without an evaluator case, a
 * derivative, CUDA text whose functions exist in templates/common/math.cuh, or a line in
 * specs/reference/operations.md fails.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_source(const char *path)
{
    FILE *f = fopen(check_source_path(path), "rb");
    CHECK(f != NULL);
    char *data = calloc(1, 200000);
    CHECK(data != NULL);
    CHECK(fread(data, 1, 199999, f) > 0);
    fclose(f);
    return data;
}

/* Operands for which every op has a finite value. */
static double evaluate(int op, enum ir_type type)
{
    const double arg[IR_MAX_ARGS] = {ir_op_arity(op) == 3 && op == OP_WHERE ? 1 : 3, 2, 5};
    return scalar_op((enum ir_op)op, type, arg);
}

TEST(every_op_has_a_name)
{
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        CHECK(ir_op_name(op)[0] != 0);
        CHECK(ir_op_arity(op) >= 1 && ir_op_arity(op) <= IR_MAX_ARGS);
    }
}

TEST(every_op_evaluates)
{
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        bool boolean = op >= OP_LT && op <= OP_NE;
        bool bits =
            op == OP_AND || op == OP_OR || op == OP_NOT || op == OP_XOR || op == OP_SHL || op == OP_SHR;
        if (ir_op_is_reduction(op) || ir_op_is_scan(op))
            continue;
        double v = evaluate(op, boolean ? TYPE_BOOL : bits ? TYPE_I32 : TYPE_F32);
        if (!isfinite(v))
            fprintf(stderr, "%s has no value\n", ir_op_name(op));
        CHECK(isfinite(v));
    }
}

TEST(every_op_has_a_derivative_rule)
{
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        if (!diff_has_rule((enum ir_op)op))
            fprintf(stderr, "%s has no rule\n", ir_op_name(op));
        CHECK(diff_has_rule((enum ir_op)op));
    }
}

/* Each m_name( of a CUDA text is defined as a function of common/math.cuh. */
TEST(every_op_has_cuda_text)
{
    char *math = read_source("templates/common/math.cuh");
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        if (ir_op_is_reduction(op) || ir_op_is_scan(op))
            continue;
        const char *text = ir_op_cuda(op);
        CHECK(text != NULL);
        const char *name = strstr(text, "m_");
        if (!name)
            continue;
        char defined[64];
        size_t n = strcspn(name, "(");
        snprintf(defined, sizeof defined, " %.*s(", (int)n, name);
        CHECK_HAS(math, defined);
    }
    free(math);
}

TEST(every_op_has_a_line_in_the_manual)
{
    char *manual = read_source("specs/reference/operations.md");
    for (int op = OP_LOAD + 1; op < OP_COUNT; op++) {
        const char *name = ir_op_spelling(op);
        if (!name[0])
            continue;
        char cell[32];
        snprintf(cell, sizeof cell, "`%s(", name);
        bool compared = op >= OP_LT && op <= OP_NE; /* they share a row */
        if (compared)
            snprintf(cell, sizeof cell, "`%s", name);
        CHECK_HAS(manual, cell);
    }
    free(manual);
}
