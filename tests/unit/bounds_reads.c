/*
 * bounds_reads.c: the class of a tile of a mask that reads data, from the ranges of what it reads by row and
 * by column, against the mask evaluated on every pair of it.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"
#include "gen/attention/tile_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- masks that read data ----------------------------------------------------------------------- */

enum { ROWS = 50, KEYS = 70 };

struct data {
    int32_t row[ROWS], column[KEYS];
    int64_t n_rows, n_keys;
    lathe_arg arg[2];
};

static void make_data(struct data *d, bool sorted)
{
    d->n_rows = ROWS;
    d->n_keys = KEYS;
    for (int i = 0; i < ROWS; i++)
        d->row[i] = sorted ? i / 9 : rand() % 4;
    for (int i = 0; i < KEYS; i++)
        d->column[i] = sorted ? i / 9 : rand() % 4;
    d->arg[0] = (lathe_arg){"a", d->row, LATHE_I32, 1, &d->n_rows, NULL};
    d->arg[1] = (lathe_arg){"b", d->column, LATHE_I32, 1, &d->n_keys, NULL};
}

static void at_pair(struct eval_env *env, const struct ir *ir, const struct data *d, int row,
                    const double *kv)
{
    *env = (struct eval_env){.ir = ir, .axis = SPAN_KV, .n = 1};
    env->at[AT_Q] = env->at[AT_ROW] = row;
    env->at[AT_LEN_Q] = ROWS;
    env->at[AT_LEN_KV] = KEYS;
    env->at_axis[AT_KV] = kv;
    env->input[0] = &d->arg[0];
    env->input[1] = &d->arg[1];
}

static double value_at(const struct ir *ir, const struct data *d, int root, int row, int key)
{
    struct eval_env env;
    double kv = key;
    at_pair(&env, ir, d, row, &kv);
    CHECK(eval_run(&env, &root, 1));
    double v = env.value[root][0];
    eval_free(&env);
    return v;
}

/* What the bounds say of a tile on which reads are in these ranges; *rest: does what is no interval of keys
   hold everywhere? */
static enum tile_class class_of_ranges(const struct ir *ir, const struct data *d, const struct tile_at *t,
                                       const double *range, bool *rest)
{
    double corner[] = {(double)t->row0, (double)t->row1, (double)t->row0,
                       (double)t->row1, (double)t->kv0,  (double)t->kv1};
    struct eval_env env;
    double kv = 0;
    at_pair(&env, ir, d, 0, &kv);
    for (int p = LEAF_ROW0; p < LEAF_TENSOR; p++)
        env.param[p] = &corner[p - LEAF_ROW0];
    for (int p = 0; p < 2 * ir->lowered.n_reads; p++)
        env.param[LEAF_READ + p] = &range[p];
    if (!eval_run(&env, ir->lowered.read_bounds.root, ir->lowered.read_bounds.n_roots)) { /* beyond 2^31 */
        eval_free(&env);
        return TILE_SOME;
    }
    bool all = env.value[ir->lowered.read_bounds.root[0]][0] != 0;
    bool some = env.value[ir->lowered.read_bounds.root[1]][0] != 0;
    *rest = ir->lowered.read_bounds.n_roots > 2 && env.value[ir->lowered.read_bounds.root[2]][0] != 0;
    eval_free(&env);
    return all ? TILE_ALL : some ? TILE_SOME : TILE_NONE;
}

/* As attention/mask_tiles_kernel.cuh does it: the range of every read on the tile, then the bounds. */
static enum tile_class class_by_reads(const struct ir *ir, const struct data *d, const struct tile_at *t,
                                      bool *rest)
{
    double range[2 * MAX_MASK_READS];
    for (int k = 0; k < ir->lowered.n_reads; k++) {
        range[2 * k] = 1e9;
        range[2 * k + 1] = -1e9;
        for (int row = (int)t->row0; row <= t->row1; row++)
            for (int key = (int)t->kv0; key <= t->kv1; key++) {
                double v = value_at(ir, d, ir->lowered.read[k], row, key);
                range[2 * k] = v < range[2 * k] ? v : range[2 * k];
                range[2 * k + 1] = v > range[2 * k + 1] ? v : range[2 * k + 1];
            }
    }
    return class_of_ranges(ir, d, t, range, rest);
}

static int live_pairs(const struct ir *ir, const struct data *d, const struct tile_at *t, int root)
{
    int n = 0;
    for (int row = (int)t->row0; row <= t->row1; row++)
        for (int key = (int)t->kv0; key <= t->kv1; key++)
            n += value_at(ir, d, root, row, key) != 0;
    return n;
}

static void compare_reads(const char *mask, bool sorted, int *decided, int *uniform, int *cut)
{
    char text[512];
    struct data d;
    snprintf(text, sizeof text,
             "return attention { inputs = { a = tensor('i32', 'q'), b = tensor('i32', 'kv') },\n"
             "mask_mod = function(at, x) return %s end }",
             mask);
    struct ir *ir = load_spec(text);
    key_interval_pass(ir);
    bounds_build_reads(ir);
    CHECK(ir->lowered.n_reads > 0);
    make_data(&d, sorted);
    for (int i = 0; i < 150; i++) {
        struct tile_at t = {.row0 = rand() % (ROWS - 6)};
        t.kv0 = rand() % (KEYS - 6);
        t.row1 = t.row0 + rand() % 6;
        t.kv1 = t.kv0 + rand() % 6;
        bool rest = false;
        int n = live_pairs(ir, &d, &t, ir->mask.root[0]);
        int pairs = (int)((t.row1 - t.row0 + 1) * (t.kv1 - t.kv0 + 1));
        enum tile_class truth = n == 0 ? TILE_NONE : n == pairs ? TILE_ALL : TILE_SOME;
        enum tile_class claim = class_by_reads(ir, &d, &t, &rest);
        if (rest)
            CHECK_EQ(live_pairs(ir, &d, &t, ir->lowered.keys_left.root[0]), pairs);
        *cut += rest && claim == TILE_SOME;
        if (claim != TILE_SOME)
            CHECK_EQ(claim, truth);
        *decided += claim != TILE_SOME;
        *uniform += truth != TILE_SOME;
    }
    ir_free(ir);
}

TEST(reads_by_row_and_column_are_bounded)
{
    static const char *const masks[] = {
        "eq(x.a(at.row), x.b(at.kv)) & ge(at.q, at.kv)",
        "ne(x.a(at.row), 2) | lt(x.b(at.kv), 1)",
        "lt(abs(at.q - at.kv), x.a(at.row) + x.b(at.kv))",
        "eq(x.a(at.row), x.b(clamp(at.kv - 1, 0, 69))) | eq(x.b(at.kv), 3)",
        "(gt(x.a(at.row), 1) & eq(x.b(at.kv), 0)) | (~gt(x.a(at.row), 1) & ge(at.q, at.kv))",
    };
    srand(11);
    for (int i = 0; i < 10; i++) {
        int decided = 0;
        int uniform = 0;
        int cut = 0;
        compare_reads(masks[i / 2], i % 2 == 0, &decided, &uniform, &cut);
        CHECK(decided > 10);
        if (i == 0) {
            CHECK_EQ(decided, uniform); /* sorted documents need no look at pairs */
            CHECK(cut > 0);
        }
    }
}

/* A corner that wraps on the device may say that nothing is live. */
TEST(ids_that_would_wrap_decide_nothing)
{
    static const struct {
        const char *mask;
        double range[4]; /* of a, of b */
        enum tile_class claim;
    } cases[] = {
        {"le(x.a(at.row) - x.b(at.kv), 0)", {-0x1p31 + 9, 5, 6, 7}, TILE_SOME},
        {"le(x.a(at.row) - x.b(at.kv), 0)", {-100, 5, 6, 7}, TILE_ALL},
        {"le(x.a(at.row) - x.b(at.kv), 0)", {8, 0x1p30 - 512, -0x1p30 + 512, 7}, TILE_NONE},
        {"ge(x.a(at.row) + x.b(at.kv), 0)", {0, 0x1p31 - 2, 0, 1}, TILE_SOME},
        {"ge(-x.a(at.row), x.b(at.kv))", {-0x1p31, -0x1p31, 0, 1}, TILE_SOME},
        {"ge(-x.a(at.row), x.b(at.kv))", {-0x1p31 + 1, -0x1p31 + 1, 0, 1}, TILE_ALL},
        {"ge(abs(x.a(at.row)), x.b(at.kv))", {-0x1p31, -0x1p31, 0, 1}, TILE_SOME},
        {"ge(x.a(at.row) // x.b(at.kv), 0)", {8, 9, 3, 4}, TILE_ALL},
        {"ge(x.a(at.row) // x.b(at.kv), 0)", {8, 9, -4, -3}, TILE_NONE},
        {"ge(x.a(at.row) // x.b(at.kv), 0)", {8, 9, -1, 1}, TILE_SOME},
        {"ge(x.a(at.row) // x.b(at.kv), 0)", {-0x1p31, -9, -1, -1}, TILE_SOME},
        {"lt(x.a(at.row) % x.b(at.kv), 4)", {-90, 90, 2, 4}, TILE_ALL},
        {"gt(x.a(at.row) % x.b(at.kv), 0)", {-90, 90, -4, -2}, TILE_NONE},
        {"ge(x.a(at.row) * 1000, x.b(at.kv))", {1, 2147483, 0, 1}, TILE_ALL},
        {"ge(x.a(at.row) * x.b(at.kv), 0)", {1, 46340, 1, 46340}, TILE_ALL},
        {"ge(x.a(at.row) * x.b(at.kv), 0)", {1, 46341, 1, 46341}, TILE_SOME},
        {"ge(x.a(at.row) + 2000000000, x.b(at.kv))", {1, 2, 0, 1}, TILE_ALL},
        {"ge(x.a(at.row) + 2000000000, x.b(at.kv))", {1, 147483648, 0, 1}, TILE_SOME},
        {"eq(x.a(at.row), x.b(at.kv))", {-0x1p31, -0x1p31, 0, 1}, TILE_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct data d;
        bool rest = false;
        const struct tile_at t = {.row1 = 5, .kv1 = 5};
        snprintf(text, sizeof text,
                 "return attention { inputs = { a = tensor('i32', 'q'), b = tensor('i32', 'kv') },\n"
                 "mask_mod = function(at, x) return %s end }",
                 cases[i].mask);
        struct ir *ir = load_spec(text);
        bounds_build_reads(ir);
        make_data(&d, true);
        const bool swapped =
            ir->lowered.n_reads == 2 && strcmp(ir->input[ir->node[ir->lowered.read[0]].index].name, "b") == 0;
        const double *r = cases[i].range;
        const double turned[4] = {r[2], r[3], r[0], r[1]};
        CHECK_EQ(ir->lowered.n_reads, 2);
        CHECK_EQ(class_of_ranges(ir, &d, &t, swapped ? turned : r, &rest), cases[i].claim);
        ir_free(ir);
    }
}
