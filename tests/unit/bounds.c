/*
 * bounds.c: the class of a tile against the mask evaluated on every pair of it: never "all" with a dead pair,
 * never "none" with a live one; and exact where interval arithmetic can be (causal, windows, prefixes).
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/attention/lower.h"
#include "gen/attention/tile_map.h"
#include "gen/plan/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALARS = 3 };
struct scalars { /* i32 scalars of a spec, in its order; all but the named ones have their default */
    int32_t value[SCALARS];
    lathe_arg arg[SCALARS];
    const lathe_arg *input[MAX_INPUTS];
};

static void set_scalars(struct scalars *s, const int *value)
{
    static const char *const name[] = {"m", "n", "p"};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < SCALARS; i++) {
        s->value[i] = value[i];
        s->arg[i] = (lathe_arg){name[i], &s->value[i], LATHE_I32, 0, NULL, NULL};
        s->input[i] = &s->arg[i];
    }
}

/* ---- as on the device: integers wrap around, floats are f32 -------------------------------------- */

static int32_t wrap(int64_t v)
{
    return (int32_t)(uint32_t)v;
}

static double device_op(enum ir_op op, enum ir_type type, const double *a)
{
    if (type == TYPE_F32)
        return (double)(float)scalar_op(op, type, a);
    if (type != TYPE_I32)
        return scalar_op(op, type, a);
    const int64_t x = (int64_t)a[0];
    const int64_t y = (int64_t)a[1];
    const int64_t down = y == 0 ? 0 : x / y - (x % y != 0 && (x % y < 0) != (y < 0));
    switch (op) {
    case OP_ADD:
        return wrap(x + y);
    case OP_SUB:
        return wrap(x - y);
    case OP_MUL:
        return wrap(x * y);
    case OP_NEG:
        return wrap(-x);
    case OP_ABS:
        return wrap(x < 0 ? -x : x);
    case OP_IDIV: /* by 0: some number */
        return wrap(down);
    case OP_MOD:
        return wrap(x - y * down);
    default:
        return scalar_op(op, type, a);
    }
}

static double leaf(const struct ir *ir, const struct ir_node *n, const struct tile_at *t, int64_t row,
                   int64_t kv)
{
    const double corner[] = {
        (double)t->row0, (double)t->row1, (double)(t->row0 + t->q_start), (double)(t->row1 + t->q_start),
        (double)t->kv0,  (double)t->kv1};
    switch ((enum ir_op)n->op) {
    case OP_CONST:
        return n->value;
    case OP_AT:
        return (double)(n->index == AT_KV ? kv : n->index == AT_ROW ? row : row + t->q_start);
    case OP_PARAM:
        return corner[n->index - LEAF_ROW0];
    default:
        return t->input && t->input[n->index] ? *(const int32_t *)t->input[n->index]->data
                                              : ir->input[n->index].default_value;
    }
}

/* Of every node below the root, into value. */
static bool device_value(const struct ir *ir, int root, const bool *used, const struct tile_at *t,
                         int64_t row, int64_t kv, double *value)
{
    for (int i = 0; i <= root; i++) {
        const struct ir_node *n = &ir->node[i];
        double a[IR_MAX_ARGS] = {0};
        if (!used[i])
            continue;
        for (int k = 0; k < n->n_args; k++)
            a[k] = value[n->arg[k]];
        value[i] = n->op <= OP_LOAD ? leaf(ir, n, t, row, kv)
                                    : device_op((enum ir_op)n->op, (enum ir_type)n->type, a);
    }
    return value[root] != 0;
}

struct on_device { /* one mask and its bounds there */
    const struct ir *ir;
    bool *used;
    double *value;
};

static enum tile_class claimed(const struct on_device *d, const struct tile_at *t)
{
    const int *root = d->ir->bounds.root;
    if (device_value(d->ir, root[0], d->used, t, 0, 0, d->value))
        return TILE_ALL;
    return device_value(d->ir, root[1], d->used, t, 0, 0, d->value) ? TILE_SOME : TILE_NONE;
}

static enum tile_class by_looking(const struct on_device *d, const struct tile_at *t)
{
    int64_t n = 0;
    for (int64_t row = t->row0; row <= t->row1; row++)
        for (int64_t kv = t->kv0; kv <= t->kv1; kv++)
            n += device_value(d->ir, d->ir->mask.root[0], d->used, t, row, kv, d->value);
    int64_t all = (t->row1 - t->row0 + 1) * (t->kv1 - t->kv0 + 1);
    return n == 0 ? TILE_NONE : n == all ? TILE_ALL : TILE_SOME;
}

static void one_tile(const struct on_device *d, const struct scalars *s, int *decided, int *uniform)
{
    struct tile_at t = {.q_start = rand() % 40 - 20}; /* compilers draw in an initializer in any order */
    t.row0 = rand() % 40;
    t.kv0 = rand() % 60;
    t.row1 = t.row0 + rand() % 6;
    t.kv1 = t.kv0 + rand() % 6;
    t.input = s ? s->input : NULL;
    const enum tile_class there = claimed(d, &t);
    const enum tile_class here = bounds_class(d->ir, &t); /* undecided where an integer is beyond 2^31 */
    const enum tile_class truth = by_looking(d, &t);
    if (here != TILE_SOME)
        CHECK_EQ(here, there);
    if (there != TILE_SOME)
        CHECK_EQ(there, truth);
    *uniform += truth != TILE_SOME;
    *decided += there != TILE_SOME;
}

/* A claim must be the truth. Counts the random tiles that are uniform, and of these the decided ones. */
static void compare_tiles(const struct ir *ir, const struct scalars *s, int tiles, int *decided, int *uniform)
{
    const int root[] = {ir->mask.root[0], ir->bounds.root[0], ir->bounds.root[1]};
    struct on_device d = {ir, calloc((size_t)ir->n_nodes, sizeof *d.used),
                          calloc((size_t)ir->n_nodes, sizeof *d.value)};
    CHECK(d.used && d.value);
    ir_mark(ir, root, 3, d.used);
    for (int i = 0; i < tiles; i++)
        one_tile(&d, s, decided, uniform);
    free(d.used);
    free(d.value);
}

static void compare(const char *text, int *decided, int *uniform)
{
    struct ir *ir = load_spec(text);
    *decided = 0;
    *uniform = 0;
    srand(7);
    compare_tiles(ir, NULL, 400, decided, uniform);
    ir_free(ir);
}

static void compare_exact(const char *text)
{
    int decided;
    int uniform;
    compare(text, &decided, &uniform);
    CHECK(uniform > 50);
    CHECK_EQ(decided, uniform);
}

TEST(causal_is_exact)
{
    compare_exact("return attention { mask_mod = causal }");
}

TEST(windows_are_exact)
{
    compare_exact("local function near(at) return lt(at.q - at.kv, 9) end\n"
                  "return attention { mask_mod = both(causal, near) }");
}

TEST(prefixes_are_exact)
{
    compare_exact("return attention { mask_mod = either(causal, function(at) return lt(at.kv, 13) end) }");
}

TEST(negation_is_exact)
{
    compare_exact("return attention { mask_mod = function(at) return ~ge(at.q, at.kv) end }");
}

/* Blocks by bits of positions that are not negative: as by // and %, of which the bounds are exact. */
TEST(bits_decide_as_much_as_quotients)
{
    static const char *const masks[][2] = {{"ge(at.row >> 3, at.kv >> 3)", "ge(at.row // 8, at.kv // 8)"},
                                           {"lt(at.kv & 15, 12)", "lt(at.kv % 16, 12)"},
                                           {"eq(at.row >> 2, 3) ~ lt(at.kv, 8)",
                                            "ne(where(eq(at.row // 4, 3), 1, 0), "
                                            "where(lt(at.kv, 8), 1, 0))"}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        int decided[2];
        int uniform[2];
        for (int k = 0; k < 2; k++) {
            char text[256];
            snprintf(text, sizeof text, "return attention { mask_mod = function(at) return %s end }",
                     masks[i][k]);
            compare(text, &decided[k], &uniform[k]);
        }
        CHECK_EQ(uniform[0], uniform[1]);
        CHECK(decided[0] >= decided[1] && decided[1] > 0);
    }
}

TEST(undecided_forms_are_sound)
{
    static const char *const masks[] = {
        "eq(at.q % 4, at.kv % 4)",
        "ne(at.q // 8, at.kv // 8)",
        "lt(abs(at.q - at.kv), 5)",
        "gt(clamp(at.q - at.kv, -3, 3) * 2, 1)",
        "le(max(at.q, at.kv) - min(at.q, at.kv), 4)",
        "lt(f32(at.q) * 0.5, floor(at.kv / 3))",
        "lt(sin(at.q * 1.0), 0.5) & ge(at.q, at.kv)",
        "eq(at.q & 7, at.kv & 7)",
        "ge(at.q >> 3, at.kv >> 3)",
        "lt((at.q - at.kv) >> 30, 2)",
        "eq((at.q - at.kv) & -4, 4)",
        "lt(at.q, 9) ~ lt(at.kv, 5)",
        "ge(at.q, at.kv) ~ gt(at.q | at.kv, 12)",
        "lt(at.kv * 0x7feb352d ~ at.q << 28, 0)",
        "lt(random(3, at.b, at.h, at.q, at.kv), 0.25)",
    };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char text[256];
        int decided;
        int uniform;
        snprintf(text, sizeof text, "return attention { mask_mod = function(at) return %s end }", masks[i]);
        compare(text, &decided, &uniform);
    }
}

/* ---- values given at the launch ------------------------------------------------------------------- */

/* By scalars m, n, p of these values, and with their values as constants of the spec. */
static void compare_scalars(const char *mask, const int *value, int *by_scalars, int *by_constants,
                            int *uniform)
{
    char text[1024];
    struct scalars s;
    int same = 0;
    snprintf(text, sizeof text,
             "local m, n, p = %d, %d, %d\nreturn attention { mask_mod = function(at) return %s end }",
             value[0], value[1], value[2], mask);
    struct ir *ir = load_spec(text);
    const int seed = rand();
    srand((unsigned)seed);
    compare_tiles(ir, NULL, 60, by_constants, &same);
    ir_free(ir);
    snprintf(text, sizeof text,
             "return attention { inputs = { m = scalar('i32'), n = scalar('i32'), p = scalar('i32') },\n"
             "mask_mod = function(at, x) local m, n, p = x.m, x.n, x.p return %s end }",
             mask);
    ir = load_spec(text);
    set_scalars(&s, value);
    srand((unsigned)seed);
    compare_tiles(ir, &s, 60, by_scalars, uniform);
    ir_free(ir);
}

static int random_scalar(void)
{
    static const int unusual[] = {1, -1, INT32_MAX, INT32_MIN, 46341, -46341, 1 << 30};
    const int kind = rand() % 6;
    const int some = rand() % 30 - 12;
    return kind == 0 ? unusual[rand() % 7] : some == 0 ? 7 : some;
}

/* Every operation of integers, by divisors and factors of either sign, up to those that wrap around. */
TEST(values_of_the_launch_are_sound)
{
    static const char *const masks[] = {
        "lt(at.q // m - at.kv // n, 3)",
        "eq(at.q % m, at.kv % m)",
        "le(abs(at.q % m - at.kv % n), 2)",
        "lt(clamp(at.q, -9, 9) % clamp(p, 2, 9), 5) | ge(at.q // m, at.kv // m)",
        "ge(clamp(at.q, -40, 40) * clamp(m, -9, 9), at.kv * clamp(n, -9, 9))",
        "lt((at.q - at.kv) * (at.q + at.kv), clamp(m, -999, 999))",
        "gt(at.q // (at.kv + 1), clamp(m, -5, 5))",
        "gt(at.q % (at.kv - 20), 3)",
        "lt(max(at.q, m) - min(at.kv, n) // p, 2000000000)",
        "ge(at.q * m, at.kv - n)",
        "lt(abs(at.q - m), abs(at.kv + n)) & ge(at.q * at.q * at.q * at.q * at.q * at.q * at.q, m)",
        "(lt(m, 0) & le(at.q // n, 1)) | (ge(m, 0) & gt(where(eq(m, 1), at.kv, at.kv % p), 1))",
        "le(-at.q // m, at.kv // -n)",
    };
    srand(23);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        int decided = 0;
        int uniform = 0;
        for (int k = 0; k < 60; k++) {
            char text[512];
            struct scalars s;
            int value[SCALARS];
            for (int j = 0; j < SCALARS; j++)
                value[j] = random_scalar();
            snprintf(
                text, sizeof text,
                "return attention { inputs = { m = scalar('i32'), n = scalar('i32'), p = scalar('i32') },\n"
                "mask_mod = function(at, x) local m, n, p = x.m, x.n, x.p return %s end }",
                masks[i]);
            struct ir *ir = load_spec(text);
            set_scalars(&s, value);
            compare_tiles(ir, &s, 12, &decided, &uniform);
            ir_free(ir);
        }
        CHECK(decided > 100);
    }
}

/* A neighbourhood in three dims, and both forms of block diffusion: as much is decided by scalars as by
 * constants. */
TEST(scalars_decide_as_much_as_constants)
{
    static const struct {
        const char *mask;
        int value[SCALARS];
    } cases[] = {
        {"le(abs(at.q // (m * n) - at.kv // (m * n)), 1) & le(abs(at.q % (m * n) // n - at.kv % (m * n) // "
         "n), 1) & "
         "le(abs(at.q % n - at.kv % n), 2)",
         {4, 6, 1}},
        {"(eq(at.q % n // p, at.kv % n // p) & ~(ge(at.q, n) & lt(at.kv, n)))"
         " | (gt(at.q % n // p, at.kv % n // p) & ge(at.kv, n))",
         {0, 30, 4}},
        {"(eq(where(ge(at.q, n), at.q - n, at.q) // p, where(ge(at.kv, n), at.kv - n, at.kv) // p) & "
         "~(ge(at.q, n) & lt(at.kv, n))) | (gt(where(ge(at.q, n), at.q - n, at.q) // p, "
         "where(ge(at.kv, n), at.kv - n, at.kv) // p) & ge(at.kv, n))",
         {0, 30, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int scalars = 0;
        int constants = 0;
        int uniform = 0;
        srand(31);
        for (int k = 0; k < 10; k++)
            compare_scalars(cases[i].mask, cases[i].value, &scalars, &constants, &uniform);
        CHECK_EQ(scalars, constants);
        CHECK(uniform > 150);
        CHECK(10 * scalars > 7 * uniform);
    }
}

TEST(no_mask_is_all)
{
    struct ir *ir = load_spec("return attention {}");
    struct tile_at t = {.row1 = 3, .kv1 = 3};
    CHECK_EQ(bounds_class(ir, &t), TILE_ALL);
    ir_free(ir);
}

TEST(reads_of_data_are_found)
{
    struct ir *by_pair = load_spec("return attention { inputs = { d = tensor('i32', 'kv') },\n"
                                   "mask_mod = function(at, x) return eq(x.d(at.kv), 1) end }");
    struct ir *by_head = load_spec("return attention { inputs = { d = tensor('i32', 'h') },\n"
                                   "mask_mod = function(at, x) return lt(at.kv, x.d(at.h)) end }");
    CHECK(bounds_mask_reads_data(by_pair));
    CHECK(!bounds_mask_reads_data(by_head));
    ir_free(by_pair);
    ir_free(by_head);
}

/* ---- where tiles are judged ---------------------------------------------------------------------- */

static bool wants_map(const char *inputs, const char *mask)
{
    char text[1024];
    snprintf(text, sizeof text,
             "return attention { inputs = { %s }, mask_mod = function(at, x) return %s end }", inputs, mask);
    struct ir *ir = load_spec(text);
    const bool wanted = tile_map_wanted(ir);
    ir_free(ir);
    return wanted;
}

TEST(tiles_are_judged_once_a_launch_where_that_pays)
{
    static const char SCALARS_OF[] = "m = scalar('i32'), n = scalar('i32')";
    CHECK(!wants_map("", "ge(at.q, at.kv)"));
    CHECK(!wants_map(SCALARS_OF, "lt(at.q - at.kv, x.n) & eq(at.q // x.n, at.kv // x.n)"));
    CHECK(!wants_map("", "eq(at.q % 64 // 8, at.kv % 64 // 8) & eq(at.q // 64, at.kv // 64)"));
    CHECK(!wants_map("t = tensor('i32', 'h')", "lt(at.kv, x.t(at.h))"));
    CHECK(wants_map(SCALARS_OF, "eq(at.q % x.n // x.m, at.kv % x.n // x.m)"));
    CHECK(wants_map("", "lt(sin(0.1 * at.q), 0.5)"));
    CHECK(wants_map("t = tensor('u8', 'q', 'kv')", "ne(x.t(at.row, at.kv), 0)"));
    CHECK(wants_map("t = tensor('i32', 'kv')", "ne(x.t(at.kv), 0)"));
}

/* The ranges of reads do where they are all that is to be known. */
TEST(ranges_of_reads_do_or_do_not)
{
    static const struct {
        const char *mask;
        bool enough;
    } cases[] = {
        {"eq(x.a(at.row), x.b(at.kv)) & ge(at.q, at.kv)", true},
        {"eq(x.a(at.row), x.b(at.kv)) & lt(sin(0.1 * at.q), 0.5)", false},
        {"eq(x.a(at.row), x.b((at.kv + at.row) % 9))", false},
        {"eq(x.a(at.row) % x.a(0) // x.b(0), x.b(at.kv) % x.a(0) // x.b(0))", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "return attention { inputs = { a = tensor('i32', 'q'), b = tensor('i32', 'kv') },\n"
                 "mask_mod = function(at, x) return %s end }",
                 cases[i].mask);
        struct ir *ir = load_spec(text);
        bounds_build_reads(ir);
        CHECK(tile_map_wanted(ir));
        CHECK_EQ(tile_map_of_ranges(ir), cases[i].enough);
        ir_free(ir);
    }
}

TEST(dear_masks_are_looked_at_for_several_heads)
{
    struct problem p = {0};
    struct ir *cheap =
        load_spec("return attention { mask_mod = function(at) return lt(sin(at.q * 1.0), 0.5) & "
                  "ge(at.q, at.kv) end }");
    struct ir *dear =
        load_spec("return attention { inputs = { t = tensor('u8', 'q', 'kv'), n = scalar('i32') },\n"
                  "mask_mod = function(at, x) return ne((x.t(at.row, at.kv) + at.q * at.kv) % x.n, 0) "
                  "end }");
    p.dim[SYM_D] = p.dim[SYM_D_V] = 128;
    CHECK_EQ(tile_map_look_heads(cheap, &p, isas[ISA_SM90A].fmas, false), 1);
    CHECK_EQ(tile_map_look_heads(dear, &p, isas[ISA_SM90A].fmas, false), 2);
    CHECK_EQ(tile_map_look_heads(dear, &p, isas[ISA_SM90A].fmas, true), 1);
    p.dim[SYM_D] = p.dim[SYM_D_V] = 16;
    CHECK_EQ(tile_map_look_heads(cheap, &p, isas[ISA_SM90A].fmas, false), 2);
    CHECK_EQ(tile_map_look_heads(dear, &p, isas[ISA_SM90A].fmas, false), 15);
    CHECK_EQ(tile_map_look_heads(dear, &p, isas[ISA_SM80].fmas, false), 8);
    ir_free(cheap);
    ir_free(dear);
}

/* ---- tables read by row and column ---------------------------------------------------------------- */

enum { TALL = 7, WIDE = 9 };

struct table {
    int32_t entry[TALL * WIDE];
    int64_t shape[2];
    lathe_arg arg;
};

/* The value of a node on the tile, at places i, j of a box, with the box's range. */
static double box_value(const struct ir *ir, const struct table *x, const struct tile_at *t, int node,
                        double i, double j, const double *range)
{
    const double corner[] = {(double)t->row0, (double)t->row1, (double)t->row0,
                             (double)t->row1, (double)t->kv0,  (double)t->kv1};
    struct eval_env env = {.ir = ir, .axis = SPAN_KV, .n = 0};
    env.input[0] = &x->arg;
    for (int p = LEAF_ROW0; p < LEAF_TENSOR; p++)
        env.param[p] = &corner[p - LEAF_ROW0];
    env.param[LEAF_BOX] = &range[0];
    env.param[LEAF_BOX + 1] = &range[1];
    env.param[LEAF_PLACE] = &i;
    env.param[LEAF_PLACE + 1] = &j;
    CHECK(eval_run(&env, &node, 1));
    const double value = env.value[node][0];
    eval_free(&env);
    return value;
}

static void box_of_tile(const struct ir *ir, const struct table *x, const struct tile_at *t, double *range)
{
    const struct mask_box *box = &ir->lowered.box[0];
    const double nothing[2] = {0, 0};
    range[0] = 1e9;
    range[1] = -1e9;
    for (double i = 0; i < box_value(ir, x, t, box->count[0], 0, 0, nothing); i++)
        for (double j = 0; j < box_value(ir, x, t, box->count[1], 0, 0, nothing); j++) {
            const double v = box_value(ir, x, t, box->load, i, j, nothing);
            range[0] = v < range[0] ? v : range[0];
            range[1] = v > range[1] ? v : range[1];
        }
}

/* Blocks of 8 x 8 pairs: what a tile reads lies in a box of few entries, which tells the tile. */
TEST(tables_of_blocks_are_read_in_boxes)
{
    struct table x = {.shape = {TALL, WIDE}};
    struct ir *ir =
        load_spec("return attention { inputs = { s = tensor('i32', 7, 9) }, mask_mod = function(at, x)\n"
                  "return ge(x.s(at.row // 8, at.kv // 8), 2) & ge(at.kv + 40, at.q) end }");
    int decided = 0;
    int uniform = 0;
    srand(41);
    for (int i = 0; i < TALL * WIDE; i++)
        x.entry[i] = rand() % 4;
    x.arg = (lathe_arg){"s", x.entry, LATHE_I32, 2, x.shape, NULL};
    bounds_build_reads(ir);
    CHECK_EQ(ir->lowered.n_reads, 0);
    CHECK_EQ(ir->lowered.n_boxes, 1);
    CHECK_EQ(ir->lowered.read_open, -1);
    CHECK(!tile_map_of_ranges(ir));
    for (int i = 0; i < 300; i++) {
        struct tile_at t = {.row0 = rand() % 50};
        t.kv0 = rand() % 65;
        double range[2];
        int live = 0;
        t.row1 = t.row0 + rand() % 6;
        t.kv1 = t.kv0 + rand() % 6;
        const int pairs = (int)((t.row1 - t.row0 + 1) * (t.kv1 - t.kv0 + 1));
        box_of_tile(ir, &x, &t, range);
        for (int64_t row = t.row0; row <= t.row1; row++)
            for (int64_t kv = t.kv0; kv <= t.kv1; kv++)
                live += x.entry[row / 8 * WIDE + kv / 8] >= 2 && kv + 40 >= row;
        const bool all = box_value(ir, &x, &t, ir->lowered.read_bounds.root[0], 0, 0, range) != 0;
        const bool some = box_value(ir, &x, &t, ir->lowered.read_bounds.root[1], 0, 0, range) != 0;
        CHECK(!all || live == pairs);
        CHECK(some || live == 0);
        decided += all || !some;
        uniform += live == 0 || live == pairs;
    }
    CHECK(uniform > 100);
    CHECK_EQ(decided, uniform); /* a tile of one block, or of blocks alike */
    ir_free(ir);
}
