/*
 * ir.c: the node pool: one node per value, types, spans, phases, folding, substitution.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>

static const struct ir_at HERE = {1, 7};

static struct ir *pool(void)
{
    struct ir *ir = ir_new();
    CHECK(ir != NULL);
    ir->kind = KIND_ATTENTION;
    return ir;
}

TEST(equal_nodes_are_one)
{
    struct ir *ir = pool();
    int s = ir_param(ir, LEAF_S, HERE);
    int two = ir_const(ir, 2.0, TYPE_F32);
    CHECK_EQ(ir2(ir, OP_MUL, s, two), ir2(ir, OP_MUL, two, s)); /* commutative */
    CHECK(ir2(ir, OP_SUB, s, two) != ir2(ir, OP_SUB, two, s));
    CHECK_EQ(ir_param(ir, LEAF_S, (struct ir_at){1, 99}), s); /* whatever the line */
    ir_free(ir);
}

TEST(many_nodes_stay_apart)
{
    struct ir *ir = pool();
    int first[3000];
    for (int i = 0; i < 3000; i++)
        first[i] = ir_const(ir, i + 0.5, TYPE_F32);
    for (int i = 0; i < 3000; i++) {
        CHECK_EQ(ir_const(ir, i + 0.5, TYPE_F32), first[i]);
        CHECK_CLOSE(ir->node[first[i]].value, i + 0.5, 0);
    }
    ir_free(ir);
}

/* Slots in a row that are taken: what a search may have to pass over. */
static int longest_run(const struct ir *ir)
{
    int run = 0;
    int longest = 0;
    for (int i = 0; i < ir->table_size; i++) {
        run = ir->table[i] ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Constants with few bits, and chains of operations on them, spread over the table. */
TEST(nodes_are_spread_over_the_table)
{
    static const double STEP[] = {1.0, 0.5, 1.0 / 3.0, 1048576.0};
    for (int k = 0; k < 4; k++) {
        struct ir *ir = pool();
        int sum = ir_param(ir, LEAF_S, HERE);
        for (int i = 1; i < IR_MAX_NODES / 2; i++)
            sum = ir2(ir, i % 2 ? OP_ADD : OP_MUL, sum, ir_const(ir, (i + 0.5) * STEP[k], TYPE_F32));
        CHECK(ir->n_nodes > IR_MAX_NODES - 10);
        CHECK(longest_run(ir) < 100);
        ir_free(ir);
    }
}

TEST(the_pool_is_bounded)
{
    struct ir *ir = pool();
    for (int i = 0; i < IR_MAX_NODES + 10; i++)
        (void)ir_const(ir, i + 0.25, TYPE_F32);
    CHECK(ir->failed);
    CHECK_EQ(ir->n_nodes, IR_MAX_NODES);
    ir_free(ir);
}

TEST(types_promote)
{
    struct ir *ir = pool();
    int q = ir_at_field(ir, AT_Q, HERE);
    int s = ir_param(ir, LEAF_S, HERE);
    int sum = ir2(ir, OP_ADD, q, s);
    CHECK_EQ(ir->node[sum].type, TYPE_F32);
    CHECK_EQ(ir->node[ir2(ir, OP_ADD, q, q)].type, TYPE_I32);
    CHECK_EQ(ir->node[ir2(ir, OP_DIV, q, q)].type, TYPE_F32);
    CHECK_EQ(ir->node[ir2(ir, OP_IDIV, q, q)].type, TYPE_I32);
    CHECK_EQ(ir->node[ir2(ir, OP_LT, q, s)].type, TYPE_BOOL);
    CHECK_EQ(ir->node[ir1(ir, OP_I32, s)].type, TYPE_I32);
    ir_free(ir);
}

TEST(type_errors_say_what_to_write)
{
    struct ir *ir = pool();
    int q = ir_at_field(ir, AT_Q, HERE);
    int c = ir2(ir, OP_LT, q, q);
    const int number_and_bool[IR_MAX_ARGS] = {q, c};
    const int where_of_number[IR_MAX_ARGS] = {q, q, q};
    CHECK_HAS(ir_type_error(ir, OP_ADD, number_and_bool), "where(c, 1.0, 0.0)");
    const int two_floats[IR_MAX_ARGS] = {ir1(ir, OP_F32, q), ir1(ir, OP_F32, q)};
    CHECK_HAS(ir_type_error(ir, OP_AND, number_and_bool), "got one of each");
    CHECK_HAS(ir_type_error(ir, OP_XOR, two_floats), "lt(a, b)");
    CHECK_HAS(ir_type_error(ir, OP_SHL, two_floats), "write i32(a)");
    CHECK_HAS(ir_type_error(ir, OP_SHR, number_and_bool), "where(c, 1, 0)");
    CHECK(ir_type_error(ir, OP_OR, (const int[IR_MAX_ARGS]){q, q}) == NULL);
    CHECK(ir_type_error(ir, OP_OR, (const int[IR_MAX_ARGS]){c, c}) == NULL);
    CHECK_HAS(ir_type_error(ir, OP_WHERE, where_of_number), "condition first");
    CHECK_HAS(ir_type_error(ir, OP_ROWMAX, &q), "does not vary along the row");
    CHECK_HAS(ir_type_error(ir, OP_DIMSUM, &q), "query_mod");
    CHECK(ir_type_error(ir, OP_SUB, (const int[IR_MAX_ARGS]){q, q}) == NULL);
    ir_free(ir);
}

TEST(spans_and_phases)
{
    struct ir *ir = pool();
    int s = ir_param(ir, LEAF_S, HERE);
    int m = ir1(ir, OP_ROWMAX, s);
    int p = ir1(ir, OP_EXP, ir2(ir, OP_SUB, s, m));
    int l = ir1(ir, OP_ROWSUM, p);
    CHECK_EQ(ir->node[s].span, SPAN_Q | SPAN_KV);
    CHECK_EQ(ir->node[m].span, SPAN_Q);
    CHECK_EQ(ir->node[m].phase, 1);
    CHECK_EQ(ir->node[p].span, SPAN_Q | SPAN_KV);
    CHECK_EQ(ir->node[p].phase, 1);
    CHECK_EQ(ir->node[l].phase, 2);
    CHECK_EQ(ir->node[ir_at_field(ir, AT_H, HERE)].span, 0);
    ir_free(ir);
}

TEST(constants_fold)
{
    struct ir *ir = pool();
    int a = ir_const(ir, 7, TYPE_I32);
    int b = ir_const(ir, -2, TYPE_I32);
    int quotient = ir2(ir, OP_IDIV, a, b);
    CHECK_EQ(ir->node[quotient].op, OP_CONST);
    CHECK_CLOSE(ir->node[quotient].value, -4, 0); /* floor, as Lua */
    CHECK_CLOSE(ir->node[ir2(ir, OP_MOD, a, b)].value, -1, 0);
    int zero = ir_const(ir, 0, TYPE_I32);
    CHECK_EQ(ir->node[ir2(ir, OP_IDIV, a, zero)].op, OP_IDIV); /* left for the line to be named */
    int e = ir1(ir, OP_EXP, ir_const(ir, 1.0, TYPE_F32));
    CHECK_CLOSE(ir->node[e].value, exp(1.0), 1e-15);
    int huge = ir_const(ir, 2147483647, TYPE_I32);
    CHECK_CLOSE(ir->node[ir2(ir, OP_ADD, huge, huge)].value, -2, 0); /* 2^32 - 2 */
    CHECK_CLOSE(ir->node[ir1(ir, OP_NOT, a)].value, -8, 0);
    CHECK_CLOSE(ir->node[ir2(ir, OP_AND, a, b)].value, 6, 0);
    int all = ir_const(ir, -1, TYPE_I32);
    int q = ir_at_field(ir, AT_Q, HERE);
    CHECK_EQ(ir2(ir, OP_AND, q, all), q);
    CHECK_EQ(ir->node[ir2(ir, OP_AND, q, ir_const(ir, 1, TYPE_I32))].op, OP_AND); /* 1 is not all bits */
    CHECK_EQ(ir2(ir, OP_XOR, q, zero), q);
    CHECK_EQ(ir2(ir, OP_SHL, q, zero), q);
    ir_free(ir);
}

TEST(identities_keep_the_operand)
{
    struct ir *ir = pool();
    int s = ir_param(ir, LEAF_S, HERE);
    int one = ir_const(ir, 1.0, TYPE_F32);
    CHECK_EQ(ir2(ir, OP_MUL, s, one), s);
    CHECK_EQ(ir2(ir, OP_DIV, s, one), s);
    int yes = ir_const(ir, 1, TYPE_BOOL);
    CHECK_EQ(ir3(ir, OP_WHERE, yes, s, one), s);
    /* 0 * s is not 0 where s is infinite */
    CHECK_EQ(ir->node[ir2(ir, OP_MUL, s, ir_const(ir, 0.0, TYPE_F32))].op, OP_MUL);
    ir_free(ir);
}

TEST(substitution_rebuilds_the_graph)
{
    struct ir *ir = pool();
    int s = ir_param(ir, LEAF_S, HERE);
    int w = ir1(ir, OP_TANH, ir2(ir, OP_ADD, s, ir_const(ir, 1.0, TYPE_F32)));
    int qk = ir_param(ir, LEAF_QK, HERE);
    int half = ir2(ir, OP_MUL, qk, ir_const(ir, 0.5, TYPE_F32));
    int replaced = ir_substitute(ir, w, &s, &half, 1);
    CHECK(!ir_depends_on(ir, replaced, OP_PARAM, LEAF_S));
    CHECK(ir_depends_on(ir, replaced, OP_PARAM, LEAF_QK));
    CHECK(ir_depends_on(ir, w, OP_PARAM, LEAF_S)); /* the old graph is as it was */
    ir_free(ir);
}

TEST(clones_are_independent)
{
    struct ir *ir = pool();
    int s = ir_param(ir, LEAF_S, HERE);
    struct ir *copy = ir_clone(ir);
    CHECK(copy != NULL);
    int before = ir->n_nodes;
    (void)ir1(copy, OP_EXP, s);
    CHECK_EQ(ir->n_nodes, before);
    CHECK_EQ(copy->n_nodes, before + 1);
    ir_free(copy);
    ir_free(ir);
}
