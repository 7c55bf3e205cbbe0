/*
 * mask_blocks.c: for how many rows and keys a mask is the same, and the class of a tile within such a block,
 * against the mask evaluated on every pair of it.
 */
#include "check.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"
#include "gen/attention/mask_tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 13, TOKENS = 96, NO_BLOCKS = -1 };

struct block_case {
    const char *mask; /* an expression of at and x */
    int rows, keys;   /* of a block; 0: of any number */
};

static const struct block_case CASES[] = {
    {"eq(x.t(at.row // 8, at.kv // 8), 1)", 8, 8},
    {"eq(x.t(at.row // 8, at.kv // 16), 1) & ge(at.q, at.kv)", 8, 16},
    {"eq(x.t(at.row // 8, at.kv // 8), 1) & lt(abs(at.q - at.kv), 21)", 8, 8},
    {"eq(x.t(at.row // 2 // 4, at.kv // 8), 1)", 8, 8},
    {"eq(x.t(at.row >> 3, at.kv >> 4), 1)", 8, 16},
    {"eq(x.t(at.row // 8, at.kv // 12), 1) | eq(at.row // 12, at.kv // 8)", 4, 4},
    {"eq(x.t(at.row // 8, at.kv // 8), x.t(at.row // 16, at.kv // 8))", 8, 8},
    {"ne(x.t(at.row // 8, at.kv // 8), 1) & ge(at.row // 8, at.kv // 8)", 8, 8},
    {"ge(x.t(at.row // 8 + 1, (at.kv // 8) * 2 % 11), 1) & ge(at.q, at.kv) & ge(at.kv, 5)", 8, 8},
    {"eq(x.t(at.row // 8, at.kv // 8), 1) | ge(at.q, at.kv)", NO_BLOCKS, 0},
    {"eq(x.t(at.row // 8, at.kv // 8), 1) & eq(at.kv % 3, 0)", NO_BLOCKS, 0},
    {"eq(x.t(at.q // 8, at.kv // 8), 1)", NO_BLOCKS, 0}, /* at.q begins anywhere */
    {"eq(x.t((at.row + 4) // 8, at.kv // 8), 1)", NO_BLOCKS, 0},
    {"eq(x.t(at.row // 8, at.kv // (1 + at.len_kv // 32)), 1)", NO_BLOCKS, 0},
    {"eq(x.t(at.row // 8, 3), 1)", NO_BLOCKS, 0}, /* no table of pairs: it is judged otherwise */
};

struct table {
    int32_t value[LINES * LINES];
    int64_t shape[2];
    lathe_arg arg;
};

static void make_table(struct table *t)
{
    for (int i = 0; i < LINES * LINES; i++)
        t->value[i] = rand() % 3 != 0;
    t->shape[0] = t->shape[1] = LINES;
    t->arg = (lathe_arg){"t", t->value, LATHE_I32, 2, t->shape, NULL};
}

static struct ir *load(const char *mask)
{
    char text[512];
    struct diag diag = {0};
    snprintf(text, sizeof text,
             "return attention { inputs = { t = tensor('i32', 'm', 'n') },\nmask_mod = function(at, x) "
             "return %s end }",
             mask);
    struct ir *ir = spec_load("mask.lua", text, strlen(text), &diag);
    if (!ir)
        fprintf(stderr, "%s: %s\n", mask, diag.entry[0].text);
    CHECK(ir != NULL);
    key_interval_pass(ir);
    mask_blocks_pass(ir);
    CHECK(!ir->failed);
    return ir;
}

static void fill_env(struct eval_env *env, const struct ir *ir, const struct table *t, const double *kv)
{
    *env = (struct eval_env){.ir = ir, .axis = SPAN_KV, .n = 1};
    env->at[AT_LEN_Q] = env->at[AT_LEN_KV] = TOKENS;
    env->at_axis[AT_KV] = kv;
    env->input[0] = &t->arg;
}

static int live_pairs(const struct ir *ir, const struct table *t, const struct tile_at *tile, int root)
{
    int n = 0;
    for (int64_t row = tile->row0; row <= tile->row1; row++)
        for (int64_t key = tile->kv0; key <= tile->kv1; key++) {
            struct eval_env env;
            const double kv = (double)key;
            fill_env(&env, ir, t, &kv);
            env.at[AT_ROW] = (double)row;
            env.at[AT_Q] = (double)(row + tile->q_start);
            CHECK(eval_run(&env, &root, 1));
            n += env.value[root][0] != 0;
            eval_free(&env);
        }
    return n;
}

static enum tile_class class_of(const struct ir *ir, const struct table *t, const struct tile_at *tile)
{
    const double corner[] = {(double)tile->row0,
                             (double)tile->row1,
                             (double)(tile->row0 + tile->q_start),
                             (double)(tile->row1 + tile->q_start),
                             (double)tile->kv0,
                             (double)tile->kv1};
    struct eval_env env;
    const double kv = 0;
    fill_env(&env, ir, t, &kv);
    for (int p = LEAF_ROW0; p < LEAF_TENSOR; p++)
        env.param[p] = &corner[p - LEAF_ROW0];
    CHECK(eval_run(&env, ir->lowered.blocks.bounds.root, 2));
    const bool all = env.value[ir->lowered.blocks.bounds.root[0]][0] != 0;
    const bool some = env.value[ir->lowered.blocks.bounds.root[1]][0] != 0;
    eval_free(&env);
    return all ? TILE_ALL : some ? TILE_SOME : TILE_NONE;
}

static int below(int n)
{
    return rand() % n;
}

/* A part of a block, as one that the end of the tensors cuts is. */
static struct tile_at draw_tile(const struct ir *ir)
{
    const int rows = ir->lowered.blocks.rows;
    const int keys = ir->lowered.blocks.keys;
    struct tile_at t = {.q_start = below(9)};
    t.row0 = below(TOKENS / rows) * rows;
    t.kv0 = below(TOKENS / keys) * keys;
    t.row1 = t.row0 + below(rows);
    t.kv1 = t.kv0 + below(keys);
    return t;
}

static void compare(const struct ir *ir, const struct table *t, int *decided)
{
    for (int i = 0; i < 100; i++) {
        const struct tile_at tile = draw_tile(ir);
        const int pairs = (int)((tile.row1 - tile.row0 + 1) * (tile.kv1 - tile.kv0 + 1));
        const int n = live_pairs(ir, t, &tile, ir->mask.root[0]);
        const enum tile_class claim = class_of(ir, t, &tile);
        if (claim != TILE_SOME)
            CHECK_EQ(n, claim == TILE_ALL ? pairs : 0);
        else /* the interval of keys alone cuts it */
            CHECK_EQ(live_pairs(ir, t, &tile, ir->lowered.keys_left.root[0]), pairs);
        decided[claim]++;
    }
}

TEST(blocks_are_found_and_judged)
{
    srand(5);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct ir *ir = load(CASES[i].mask);
        struct table t;
        int decided[3] = {0};
        if (CASES[i].rows == NO_BLOCKS) {
            if (ir->lowered.blocks.bounds.n_roots != 0)
                fprintf(stderr, "%s\n", CASES[i].mask);
            CHECK_EQ(ir->lowered.blocks.bounds.n_roots, 0);
            CHECK(!mask_blocks_hold(ir, 1, 1));
            ir_free(ir);
            continue;
        }
        CHECK_EQ(ir->lowered.blocks.rows, CASES[i].rows);
        CHECK_EQ(ir->lowered.blocks.keys, CASES[i].keys);
        make_table(&t);
        compare(ir, &t, decided);
        CHECK(decided[TILE_NONE] > 0);
        CHECK(decided[TILE_ALL] > 0);
        ir_free(ir);
    }
}

TEST(a_table_alone_leaves_nothing_to_ask)
{
    struct ir *ir = load("eq(x.t(at.row // 8, at.kv // 16), 1)");
    struct table t;
    int decided[3] = {0};
    srand(6);
    make_table(&t);
    compare(ir, &t, decided);
    CHECK_EQ(decided[TILE_SOME], 0);
    ir_free(ir);
}

TEST(tiles_hold_where_they_divide_blocks)
{
    struct ir *ir = load("eq(x.t(at.row // 192, at.kv // 128), 1)");
    CHECK(mask_blocks_hold(ir, 64, 128));
    CHECK(mask_blocks_hold(ir, 192, 64));
    CHECK(!mask_blocks_hold(ir, 128, 64));
    CHECK(!mask_blocks_hold(ir, 64, 80));
    ir_free(ir);
    ir = load("eq(x.t(at.row // 30000000, at.kv // 64), 1)"); /* further than positions reach */
    CHECK(mask_blocks_hold(ir, 128, 64));
    ir_free(ir);
}
