/*
 * limits.c: a spec that is too large for one kernel is refused with the limit that it exceeds.
 */
#include "check.h"
#include "kernel.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/emit/emit.h"
#include "runtime/rt.h"

#include <stdio.h>
#include <string.h>

/* What says why there is no kernel: the plan, or the emitter. */
static void why_none(const char *text, lathe_pass pass, const char *problem_text, char *why, size_t size)
{
    static const struct device device = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    struct source source;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(text, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    lathe_status status = plan_of(ir, pass, &problem, &device, &plan, &err);
    if (status == LATHE_OK)
        status = emit_by(ir, pass, &problem, &device, &plan, &source, &err);
    CHECK_EQ(status, LATHE_UNSUPPORTED);
    snprintf(why, size, "%s", err.text);
    ir_free(ir);
}

#define SUM(n, term) "local y = 0.0\n  for k = 1, " #n " do y = y + " term " end\n"
#define ROWS         "dtype=bf16,rows=64,n=1024"
#define PAIRS        "dtype=bf16,b=1,h=2,h_kv=2,q=64,kv=64,d=64,d_v=64"

TEST(what_is_too_large_is_said)
{
    static const struct {
        lathe_pass pass;
        const char *problem, *text, *why;
    } CASE[] = {
        {LATHE_FORWARD, ROWS,
         "return rowwise { forward = function(x)\n  " SUM(9, "rowsum(exp(x * k))") "  return x * y end }",
         "test: too large for one kernel, which has at most 8 reductions of a row; make it several specs"},
        {LATHE_FORWARD, PAIRS,
         "return attention { key_mod = function(x)\n  " SUM(9, "dimsum(exp(x * k))") "  return x * y end }",
         "at most 8 reductions of a row"},
        {LATHE_FORWARD, PAIRS,
         "return attention { score_mod = function(s, at)\n  " SUM(
             65, "exp(k * f32(at.h)) * sin(k * s)") "  return y end }",
         "at most 64 values that are kept for a head, a row or a column"},
        {LATHE_FORWARD, "dtype=bf16,rows=64,n=4096",
         "local inputs = {}\nfor k = 1, 7 do inputs['w' .. k] = tensor('float', 'rows', 'n') end\n"
         "return rowwise { inputs = inputs, forward = function(v, at, x)\n"
         "  " SUM(7, "x['w' .. k](at.row, at.i) * v") "  return y / rowsum(y * y) end }",
         "rowwise_inner_scan: the forward pass needs more than 6 tensors of rows that are read"},
        {LATHE_BACKWARD, "dtype=f32,rows=64,n=33",
         "return rowwise { forward = function(v)\n  local y = v\n"
         "  for k = 1, 5000 do y = y * 1.0001 + v end\n  return y end }",
         "test.lua: the backward formula needs more than 20000 nodes"},
        /* the check takes these; what follows makes more of them */
        {LATHE_FORWARD, PAIRS,
         "return attention { score_mod = function(s)\n  " SUM(3500, "sin(k * s)") "  return y end }",
         "the formulas need more than 20000 nodes"},
        {LATHE_BACKWARD, PAIRS,
         "return attention { score_mod = function(s)\n  " SUM(2500, "sin(k * s)") "  return y end }",
         "the formulas need more than 20000 nodes"},
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        char why[sizeof((lathe_error *)0)->text];
        why_none(CASE[i].text, CASE[i].pass, CASE[i].problem, why, sizeof why);
        CHECK_HAS(why, CASE[i].why);
    }
}

/* Blocks that take their work in turn number it in 32 bits: `more`, where the numbers would begin anew, is
   refused, though its tensors are small, and `most` is not. */
static void work_is_counted(const char *spec, lathe_pass pass, const char *more, const char *most)
{
    static const struct device device = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
    const size_t offset[MAX_BUFFERS] = {0};
    const struct bound_args none = {{0}};
    static unsigned char block[PARAM_BLOCK_BYTES];
    static char workspace[1]; /* nothing is launched */
    struct signature sig;
    struct problem problem;
    struct plan plan;
    static struct source source;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(spec, pass, &sig);
    lathe_status worst[2] = {LATHE_OK, LATHE_OK};
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(problem_parse(&sig, i ? more : most, &problem, &err), LATHE_OK);
        CHECK_EQ(plan_of(ir, pass, &problem, &device, &plan, &err), LATHE_OK);
        CHECK_EQ(emit_by(ir, pass, &problem, &device, &plan, &source, &err), LATHE_OK);
        for (int k = 0; k < source.n_launches && worst[i] == LATHE_OK; k++)
            worst[i] =
                lathe__params_fill(&source.launch[k], &sig, &problem, &none, workspace, offset, block, &err);
        source_free(&source);
    }
    CHECK_EQ(worst[0], LATHE_OK);
    CHECK_EQ(worst[1], LATHE_ARG);
    CHECK_HAS(err.text, "no more pieces of work than kernels number in 32 bits, given more");
    ir_free(ir);
}

TEST(work_that_blocks_take_in_turn_is_counted)
{
    work_is_counted("return elementwise { over = { 'o', 'l', 'd' }, results = { r = tensor('float', 'o') },\n"
                    "  operands = { x = tensor('float', 'o', 'l'), y = tensor('float', 'l', 'd') },\n"
                    "  forward = function(v) return { r = exp(v.x * v.y) } end }",
                    LATHE_FORWARD, "dtype=f32,o=262144,l=16,d=65536", "dtype=f32,o=131072,l=16,d=65536");
    work_is_counted("chunk_cumsum", LATHE_FORWARD, "dtype=bf16,rows0=1073741824,rows1=1,n=129,rows=1",
                    "dtype=bf16,rows0=536870912,rows1=1,n=129,rows=1");
    work_is_counted("causal", LATHE_BACKWARD, "dtype=bf16,b=65535,h=1,q=1,kv=16777215,d=16,dk=none,dv=none",
                    "dtype=bf16,b=16384,h=1,q=1,kv=16777215,d=16,dk=none,dv=none");
}
