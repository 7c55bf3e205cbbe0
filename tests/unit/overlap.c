/*
 * overlap.c: which tensors of a call may lie in one piece of memory.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static char memory[4096];

static const char TEXT[] = "return elementwise { over = { 'rows', 'n' },\n"
                           "  operands = { x = tensor('f32'), u = tensor('f32') },\n"
                           "  results = { y = tensor('f32', { alias = 'x' }), z = tensor('f32') },\n"
                           "  forward = function(v) return { y = v.x, z = v.u } end }";

struct lie { /* where a tensor of 4 x 8 floats lies */
    int offset;
    int64_t strides[2];
};

static lathe_status bind(struct lie x, struct lie u, struct lie y, struct lie z, lathe_error *err)
{
    static const int64_t shape[] = {4, 8};
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed(TEXT, LATHE_FORWARD, &sig);
    const lathe_arg args[] = {{"x", memory + 4 * x.offset, LATHE_F32, 2, shape, x.strides},
                              {"u", memory + 4 * u.offset, LATHE_F32, 2, shape, u.strides},
                              {"y", memory + 4 * y.offset, LATHE_F32, 2, shape, y.strides},
                              {"z", memory + 4 * z.offset, LATHE_F32, 2, shape, z.strides}};
    const lathe_status status = problem_from_args(&sig, args, 4, true, &problem, err);
    ir_free(ir);
    return status;
}

static void good(struct lie x, struct lie u, struct lie y, struct lie z)
{
    lathe_error err = {0};
    const lathe_status status = bind(x, u, y, z, &err);
    CHECK_STR(err.text, "");
    CHECK_EQ(status, LATHE_OK);
}

static void bad(struct lie x, struct lie u, struct lie y, struct lie z, const char *part)
{
    lathe_error err = {0};
    CHECK_EQ(bind(x, u, y, z, &err), LATHE_ARG);
    CHECK_HAS(err.text, part);
}

#define AT(offset, ...)                                                                                      \
    (struct lie)                                                                                             \
    {                                                                                                        \
        (offset),                                                                                            \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

TEST(compact_tensors)
{
    good(AT(0, 8, 1), AT(32, 8, 1), AT(64, 8, 1), AT(96, 8, 1));
    good(AT(0, 8, 1), AT(32, 8, 1), AT(0, 8, 1), AT(96, 8, 1)); /* y where x is */
    good(AT(0, 8, 1), AT(0, 8, 1), AT(64, 8, 1), AT(96, 8, 1)); /* operands may share */
    bad(AT(0, 8, 1), AT(32, 8, 1), AT(1, 8, 1), AT(96, 8, 1),
        "argument 'y': expected memory of its own, given some of that of 'x'");
    bad(AT(0, 8, 1), AT(32, 8, 1), AT(0, 1, 4), AT(96, 8, 1),
        "'y': expected memory of its own, given some of that of 'x'");
    bad(AT(0, 8, 1), AT(32, 8, 1), AT(64, 8, 1), AT(32, 8, 1),
        "'z': expected memory of its own, given some of that of 'u'");
    bad(AT(0, 8, 1), AT(32, 8, 1), AT(64, 8, 1), AT(95, 8, 1),
        "'y': expected memory of its own, given some of that of 'z'");
    bad(AT(0, 8, 1), AT(0, 8, 1), AT(0, 8, 1), AT(96, 8, 1),
        "'y': expected memory of its own, given some of that of 'u'");
}

/* What one map writes another may not read: its points are others, as are those of pairs of the other form.
 */
static lathe_status bind_two(const char *text, int64_t n, lathe_error *err)
{
    const int64_t length[] = {n};
    struct signature sig;
    struct problem problem;
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    const lathe_arg args[] = {{"a", memory, LATHE_F32, 1, length, NULL}, /* y goes there */
                              {"c", memory, LATHE_F32, 1, length, NULL},
                              {"z", memory + 2048, LATHE_F32, 1, length, NULL}};
    const lathe_status status = problem_from_args(&sig, args, 3, true, &problem, err);
    ir_free(ir);
    return status;
}

TEST(operands_of_other_points)
{
    static const char *const APART[] = {
        "return elementwise { { over = { 'n' }, operands = { a = tensor('f32') }, results = { y = "
        "tensor('f32', "
        "{ alias = 'a' }) }, forward = function(v) return v.a + 1.0 end },\n"
        "{ over = { 'n' }, operands = { c = tensor('f32') }, results = { z = tensor('f32') }, forward = "
        "function(v) return v.c * 10.0 end } }",
        "return elementwise { over = { 'n' }, operands = { a = tensor('f32', half('n')), c = tensor('f32', "
        "interleaved('n')) },\n"
        "results = { y = tensor('f32', half('n'), { alias = 'a' }), z = tensor('f32', half('n')) }, forward "
        "= "
        "function(v) return { y = { lo = v.a.lo, hi = v.a.hi + 1.0 }, z = { lo = v.c.lo, hi = v.c.hi } } end "
        "}"};
    static const char TOGETHER[] = "return elementwise { over = { 'n' }, operands = { a = tensor('f32'), c = "
                                   "tensor('f32') }, results = { y = "
                                   "tensor('f32', { alias = 'a' }), z = tensor('f32') }, forward = "
                                   "function(v) return { y = v.a + 1.0, z = "
                                   "v.c } end }";
    for (int i = 0; i < 2; i++) {
        lathe_error err = {0};
        CHECK_EQ(bind_two(APART[i], 16, &err), LATHE_ARG);
        CHECK_HAS(err.text, "argument 'a': expected memory of its own, given some of that of 'c'");
    }
    lathe_error err = {0};
    CHECK_EQ(bind_two(TOGETHER, 16, &err), LATHE_OK);
}

/* Columns of one wider matrix, and every other element. */
TEST(interleaved_tensors)
{
    good(AT(0, 32, 1), AT(8, 32, 1), AT(16, 32, 1), AT(24, 32, 1));
    good(AT(0, 32, 1), AT(8, 32, 1), AT(0, 32, 1), AT(24, 32, 1));
    good(AT(0, 32, 2), AT(1, 32, 2), AT(16, 32, 2), AT(17, 32, 2));
    good(AT(0, 24, 1), AT(8, 24, 1), AT(200, 8, 1), AT(16, 24, 1)); /* a period that is no power of two */
    good(AT(16, 24, 1), AT(8, 24, 1), AT(200, 8, 1), AT(0, 24, 1));
    bad(AT(0, 32, 1), AT(8, 32, 1), AT(16, 32, 1), AT(23, 32, 1),
        "'y': expected memory of its own, given some of that of 'z'");
    bad(AT(0, 32, 1), AT(8, 32, 1), AT(28, 32, 1), AT(100, 8, 1), "'y': expected memory of its own");
    bad(AT(0, 32, 2), AT(1, 32, 2), AT(16, 32, 2), AT(14, 32, 2), "'y': expected memory of its own");
}

/* y left out goes over x, whose elements then lie apart as those of a result do. */
TEST(elements_of_what_is_written_in_place_lie_apart)
{
    static const struct {
        int64_t strides[2];
        const char *refusal;
    } cases[] = {
        {{8, 1}, ""},
        {{1, 4}, ""},
        {{16, 2}, ""},
        {{0, 1},
         "argument 'x': 'y' is left out and would be written over it: expected elements that lie apart, "
         "given stride 0 in dim 0"},
        {{8, 0}, "'y' is left out and would be written over it"},
        {{4, 1}, "'y' is left out and would be written over it"},
    };
    static const int64_t shape[] = {4, 8};
    struct signature sig;
    struct ir *ir = load_signed(TEXT, LATHE_FORWARD, &sig);
    for (int i = 0; i < 6; i++) {
        struct problem problem;
        lathe_arg args[] = {{"x", memory, LATHE_F32, 2, shape, cases[i].strides},
                            {"u", memory + 1024, LATHE_F32, 2, shape, NULL},
                            {"z", memory + 2048, LATHE_F32, 2, shape, NULL},
                            {"y", memory + 3072, LATHE_F32, 2, shape, NULL}};
        const bool refused = cases[i].refusal[0] != 0;
        lathe_error err = {0};
        CHECK_EQ(problem_from_args(&sig, args, 3, true, &problem, &err), refused ? LATHE_ARG : LATHE_OK);
        CHECK_HAS(err.text, cases[i].refusal);
        err.text[0] = 0;
        CHECK_EQ(problem_from_args(&sig, args, 4, true, &problem, &err), LATHE_OK); /* y elsewhere */
        args[3].data = NULL; /* and where it is not known yet */
        CHECK_EQ(problem_from_args(&sig, args, 4, false, &problem, &err), LATHE_OK);
    }
    ir_free(ir);
}

/* Points read an operand that is turned at other places than those that they write. */
TEST(turned_operands_may_not_share_with_a_result)
{
    static const char text[] = "return elementwise { over = { 't', 'i' },\n"
                               "  operands = { x = tensor('f32', 't', 'i'), u = tensor('f32', 'i', 't') },\n"
                               "  results = { y = tensor('f32', 't', 'i', { alias = 'x' }) },\n"
                               "  forward = function(v) return { y = v.x + v.u } end }";
    static const int64_t shape[] = {8, 8};
    struct signature sig;
    struct problem problem;
    lathe_error err = {0};
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    lathe_arg args[] = {{"x", memory, LATHE_F32, 2, shape, NULL}, {"u", memory, LATHE_F32, 2, shape, NULL}};
    CHECK_EQ(problem_from_args(&sig, args, 2, true, &problem, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected memory of its own");
    args[1].data = memory + 2048;
    CHECK_EQ(problem_from_args(&sig, args, 2, true, &problem, &err), LATHE_OK);
    ir_free(ir);
}

/* Row-wise: y exactly where a row that is read lies, nothing else. */
TEST(rows_may_be_written_in_place)
{
    static const char text[] =
        "return rowwise { inputs = { u = tensor('float', 'rows', 'n'), w = tensor('f32', 'n') },\n"
        "  forward = function(x, at, p)\n"
        "    local h = x + p.u(at.row, at.i)\n"
        "    return h * p.w(at.i), { z = h, top = rowmax(h) }\n"
        "  end }";
    static const struct {
        int offset[6]; /* of x, u, w, y, z, top, in floats */
        const char *part;
    } cases[] = {
        {{0, 32, 64, 96, 128, 160}, NULL},
        {{0, 32, 64, 0, 32, 160}, NULL},
        {{0, 0, 64, 0, 32, 160}, NULL},
        {{0, 32, 64, 1, 128, 160}, "argument 'y': expected memory of its own, given some of that of 'x'"},
        {{0, 32, 64, 40, 128, 160}, "'y': expected memory of its own, given some of that of 'u'"},
        {{0, 32, 64, 64, 128, 160}, "'y': expected memory of its own, given some of that of 'w'"},
        {{0, 32, 64, 96, 96, 160}, "'y': expected memory of its own, given some of that of 'z'"},
        {{0, 32, 64, 96, 128, 0}, "'top': expected memory of its own, given some of that of 'x'"},
    };
    static const int64_t shape[] = {4, 8};
    struct signature sig;
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const name[] = {"x", "u", "w", "y", "z", "top"};
        lathe_arg args[6];
        struct problem problem;
        lathe_error err = {0};
        for (int k = 0; k < 6; k++)
            args[k] = (lathe_arg){name[k],
                                  memory + 4 * cases[i].offset[k],
                                  LATHE_F32,
                                  k == 2 || k == 5 ? 1 : 2,
                                  k == 2 ? shape + 1 : shape,
                                  NULL};
        CHECK_EQ(problem_from_args(&sig, args, 6, true, &problem, &err),
                 cases[i].part ? LATHE_ARG : LATHE_OK);
        CHECK_HAS(err.text, cases[i].part ? cases[i].part : "");
    }
    ir_free(ir);
}

struct place { /* of a tensor [1, h, t, 8] of bf16 in one memory of 2048 elements */
    const char *name;
    int heads, offset, head_stride, token_stride;
};

static lathe_status place_all(const struct signature *sig, const struct place *place, int n, lathe_error *err)
{
    int64_t shape[8][4];
    int64_t strides[8][4];
    lathe_arg args[8];
    struct problem problem;
    for (int i = 0; i < n; i++) {
        const struct place *p = &place[i];
        const bool row = strcmp(p->name, "lse") == 0;
        memcpy(shape[i], (int64_t[]){1, p->heads, 4, 8}, sizeof shape[i]);
        memcpy(strides[i], (int64_t[]){0, p->head_stride, p->token_stride, 1}, sizeof strides[i]);
        args[i] = (lathe_arg){
            p->name, memory + 2 * p->offset, row ? LATHE_F32 : LATHE_BF16, row ? 3 : 4, shape[i], strides[i]};
    }
    return problem_from_args(sig, args, n, true, &problem, err);
}

/* Whatever an attention reads may be a part of one tensor, as may its gradients, but no result lies in what
   is read or written elsewhere: other blocks read it later. */
TEST(results_of_attention_have_memory_of_their_own)
{
    static const struct {
        lathe_pass pass;
        struct place place[8];
        const char *part;
    } cases[] = {
        /* one projection of 2 + 2 + 2 heads a token, and o beside it */
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48}, {"k", 2, 16, 8, 48}, {"v", 2, 32, 8, 48}, {"o", 2, 192, 8, 16}},
         ""},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48}, {"k", 2, 16, 8, 48}, {"v", 2, 16, 8, 48}, {"o", 2, 192, 8, 16}},
         ""},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48}, {"k", 2, 16, 8, 48}, {"v", 2, 32, 8, 48}, {"o", 2, 0, 8, 48}},
         "argument 'o': expected memory of its own, given some of that of 'q'"},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48}, {"k", 2, 16, 8, 48}, {"v", 2, 32, 8, 48}, {"o", 2, 180, 8, 16}},
         "argument 'o': expected memory of its own, given some of that of 'v'"},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48},
          {"k", 2, 16, 8, 48},
          {"v", 2, 32, 8, 48},
          {"o", 2, 192, 8, 16},
          {"lse", 2, 250, 4, 1}},
         "'o': expected memory of its own, given some of that of 'lse'"},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 48}, {"k", 2, 16, 8, 48}, {"v", 2, 32, 8, 48}, {"o", 2, 192, 8, 8}},
         "argument 'o': expected an output whose elements lie apart, given stride 8 in dim 1"},
        {LATHE_FORWARD,
         {{"q", 2, 0, 8, 0}, {"k", 2, 16, 8, 8}, {"v", 2, 32, 8, 48}, {"o", 2, 192, 8, 15}},
         "argument 'o': expected an output whose elements lie apart, given stride 15 in dim 2"},
        {LATHE_BACKWARD,
         {{"q", 2, 0, 8, 48},
          {"k", 2, 16, 8, 48},
          {"v", 2, 32, 8, 48},
          {"do", 2, 192, 8, 16},
          {"dq", 2, 400, 8, 48},
          {"dk", 2, 416, 8, 48},
          {"dv", 2, 432, 8, 48}},
         ""},
        {LATHE_BACKWARD,
         {{"q", 2, 0, 8, 48},
          {"k", 2, 16, 8, 48},
          {"v", 2, 32, 8, 48},
          {"do", 2, 192, 8, 16},
          {"dq", 2, 400, 8, 48},
          {"dk", 2, 416, 8, 48},
          {"dv", 2, 416, 8, 48}},
         "'dk': expected memory of its own, given some of that of 'dv'"},
        {LATHE_BACKWARD,
         {{"q", 2, 0, 8, 48},
          {"k", 2, 16, 8, 48},
          {"v", 2, 32, 8, 48},
          {"do", 2, 192, 8, 16},
          {"dq", 2, 0, 8, 48}},
         "'dq': expected memory of its own, given some of that of 'q'"},
    };
    static const char text[] = "return attention {}";
    struct ir *ir = load_spec(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct signature sig;
        lathe_error err = {0};
        int n = 0;
        while (n < 8 && cases[i].place[n].name)
            n++;
        signature_make(ir, cases[i].pass, &sig);
        const lathe_status status = place_all(&sig, cases[i].place, n, &err);
        CHECK_HAS(err.text, cases[i].part);
        CHECK_EQ(status, cases[i].part[0] ? LATHE_ARG : LATHE_OK);
    }
    ir_free(ir);
}

static bool meets(const int64_t *shape, const int64_t *strides)
{
    static bool taken[256];
    memset(taken, 0, sizeof taken);
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t k = 0; k < shape[1]; k++)
            for (int64_t l = 0; l < shape[2]; l++) {
                bool *place = &taken[i * strides[0] + k * strides[1] + l * strides[2]];
                if (*place)
                    return true;
                *place = true;
            }
    return false;
}

/* Against every element's place, for every small shape and some strides: among them many that interleave. */
TEST(outputs_that_interleave_are_told_from_those_that_meet)
{
    unsigned draw = 7;
    int apart = 0;
    for (int i = 0; i < 20000; i++) {
        int64_t shape[3];
        int64_t strides[3];
        for (int k = 0; k < 3; k++) {
            draw = draw * 1103515245U + 12345U;
            shape[k] = 1 + (draw >> 16) % 5;
            strides[k] = 1 + (draw >> 20) % 20;
        }
        const lathe_arg arg = {"y", memory, LATHE_F32, 3, shape, strides};
        CHECK_EQ(lathe__meeting_dim(&arg) >= 0, meets(shape, strides));
        apart += !meets(shape, strides);
    }
    CHECK(apart > 5000);
}

TEST(interleaved_outputs_of_any_size)
{
    static const struct {
        int64_t shape[3], strides[3];
        int dim;
    } cases[] = {
        {{3, 2, 1}, {2, 3, 1}, -1},
        {{4, 2, 1}, {2, 3, 1}, -1},
        {{4, 3, 1}, {2, 3, 1}, 1},            /* 3 * 2 is 2 * 3 */
        {{1000, 999, 1}, {999, 1000, 1}, -1}, /* no two multiples below 999000 are the same */
        {{1001, 1000, 1}, {999, 1000, 1}, 1},
        {{2000000000, 2, 1}, {2, 3, 1}, -1},
        {{2000000000, 3, 1}, {2, 3, 1}, 1},                      /* soon found */
        {{2, 1000000, 8}, {8000000, 8, 1}, -1},                  /* one after the other */
        {{1 << 20, 1 << 20, 1}, {1 << 20, (1 << 20) + 1, 1}, 1}, /* not to be searched in a call: refused */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const lathe_arg arg = {"y", memory, LATHE_F32, 3, cases[i].shape, cases[i].strides};
        CHECK_EQ(lathe__meeting_dim(&arg), cases[i].dim);
    }
}

/* ---- linear attention -------------------------------------------------------------------------------- */

static lathe_status bind_linear(lathe_pass pass, const char *const *extra, const int *offset,
                                lathe_error *err)
{
    enum { B = 1, H = 2, T = 3, D = 4, MOST = 12 };
    static const char text[] = "return linear_attention { normalise = true }";
    static const int64_t rows[] = {B, H, T, D};
    static const int64_t state[] = {B, H, D, D};
    static float memory_of[MOST][B * H * D * D];
    const char *const forward[] = {"q", "k", "v", "o", NULL};
    const char *const backward[] = {"q", "k", "v", "do", "dq", NULL};
    struct signature sig;
    struct problem problem;
    lathe_arg args[MOST];
    int n = 0;
    struct ir *ir = load_signed(text, pass, &sig);
    for (const char *const *name = pass == LATHE_BACKWARD ? backward : forward; *name; name++, n++)
        args[n] = (lathe_arg){*name, memory_of[n], LATHE_F32, 4, rows, NULL};
    for (int i = 0; extra[i]; i++, n++) /* pairs: the second where the first is, so many floats further on */
        args[n] = (lathe_arg){extra[i],  i % 2 ? (float *)args[n - 1].data + offset[i / 2] : memory_of[n],
                              LATHE_F32, strstr(extra[i], "norm") ? 3 : 4,
                              state,     NULL};
    const lathe_status status = problem_from_args(&sig, args, n, true, &problem, err);
    ir_free(ir);
    return status;
}

TEST(a_state_alone_goes_on_in_its_place)
{
    enum { APART = 2 * 4 * 4 };
    static const char *const states[] = {"state", "state_out", "norm", "norm_out", NULL};
    static const char *const gradients[] = {"dstate_out", "dstate", "dnorm_out", "dnorm", NULL};
    lathe_error err = {0};
    CHECK_EQ(bind_linear(LATHE_FORWARD, states, (int[]){0, APART}, &err), LATHE_OK);
    CHECK_EQ(bind_linear(LATHE_FORWARD, states, (int[]){1, APART}, &err), LATHE_ARG);
    CHECK_HAS(err.text, "state_out");
    CHECK_EQ(bind_linear(LATHE_FORWARD, states, (int[]){0, 0}, &err), LATHE_ARG);
    CHECK_HAS(err.text, "norm_out");
    CHECK_EQ(bind_linear(LATHE_BACKWARD, gradients, (int[]){0, APART}, &err), LATHE_ARG);
    CHECK_HAS(err.text, "dstate");
    CHECK_EQ(bind_linear(LATHE_BACKWARD, gradients, (int[]){APART, 0}, &err), LATHE_ARG);
    CHECK_HAS(err.text, "dnorm");
}
