/*
 * pool.h: private to ops.c, ir.c and make.c: rows of ops.def, and nodes on their way into the pool.
 */
#ifndef LATHE_IR_POOL_H
#define LATHE_IR_POOL_H

#include "gen/ir/spec.h"

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
const struct op_row *ir_op_row(int op);

/* Find an equal node or append this one. */
int ir_intern(struct ir *ir, const struct ir_node *n);
struct ir_node ir_blank(enum ir_op op, enum ir_type type, struct ir_at at);
/* One more operand of a node that is not in the pool yet. */
void ir_take_operand(const struct ir *ir, struct ir_node *n, int arg);

#endif
