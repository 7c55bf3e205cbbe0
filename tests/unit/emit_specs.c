/*
 * emit_specs.c: generated texts of odd specs: names, dtypes and constants that would not be valid text as
 * they are, and what of a spec is left to its kernel.
 */
#include "check.h"
#include "kernel.h"
#include "emit_call.h"
#include "gen/gen.h"
#include "gen/emit/emit.h"
#include "nvrtc.h"
#include "runtime/rt.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- odd specs ------------------------------------------------------------------------------- */

static void make_pass_of(const char *name, const char *text, lathe_pass pass, const char *problem_text,
                         struct source *out)
{
    struct diag diag = {0};
    struct signature sig;
    struct problem problem;
    struct plan plan;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = spec_load(name, text, strlen(text), &diag);
    CHECK(ir != NULL);
    signature_make(ir, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    CHECK_EQ(plan_of(ir, pass, &problem, &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(emit_by(ir, pass, &problem, &H100, &plan, out, &err), LATHE_OK);
    ir_free(ir);
}

static void make_source_of(const char *name, const char *text, const char *problem_text, struct source *out)
{
    make_pass_of(name, text, LATHE_FORWARD, problem_text, out);
}

/* The generated header has `wanted` and not `unwanted` (NULL: anything goes). */
static void check_variant(const char *text, const char *problem, const char *wanted, const char *unwanted)
{
    struct source s;
    make_source_of("odd.lua", text, problem, &s);
    const char *variant = text_named(&s, "variant.gen.cuh")->data;
    CHECK_HAS(variant, wanted);
    CHECK(unwanted == NULL || strstr(variant, unwanted) == NULL);
    source_free(&s);
}

/* Names of files stand behind generated lines, in comments. */
TEST(names_of_specs_stay_in_comments)
{
    static const char text[] = "return attention { score_mod = function(s) return tanh(s) * 3.0 end }";
    static const char odd[] = "a folder/odd \"; evil(); \\";
    static const char *const refused[] = {"a\n#error evil.lua", "a\r#error evil.lua", "a\v.lua", "\x7f.lua",
                                          "a\n/b.lua"};
    struct source s;
    make_source_of(odd, text, "dtype=bf16,h=2,q=64,d=64", &s);
    int seen = 0;
    for (int i = 0; i < s.n_texts; i++)
        for (const char *at = s.text[i].data; at && (at = strstr(at, "evil();")) != NULL; at++) {
            const char *line = at;
            while (line > s.text[i].data && line[-1] != '\n')
                line--;
            const char *comment = strstr(line, "// odd \"; evil(); \\:1\n");
            CHECK(comment != NULL && comment < at);
            seen++;
        }
    CHECK(seen > 0);
    source_free(&s);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct diag diag = {0};
        CHECK(spec_load(refused[i], text, strlen(text), &diag) == NULL);
        CHECK_EQ(diag.n, 1);
        CHECK_HAS(diag.entry[0].text, "the name of a spec has no line breaks");
        CHECK(strpbrk(diag.entry[0].file, "\n\r\v\x7f") == NULL);
    }
}

#define ATTENTION "dtype=bf16,h=2,q=64,d=64,d_v=128"

TEST(names_of_inputs_and_of_their_strides_differ)
{
    check_variant("return attention { inputs = { t = tensor('f32', 'h', 'm'), t_s0 = scalar('f32'), t_n1 = "
                  "scalar('f32') },\n"
                  "  score_mod = function(s, at, x) return s * x.t(at.h, 0) * x.t_s0 * x.t_n1 end }",
                  ATTENTION ",m=3", "x.s0_t", "x.in_t_s0 + ");
}

TEST(an_index_of_a_vector_mod_may_be_of_another_dim)
{
    check_variant("return attention { inputs = { g = tensor('f32', 'd') },\n"
                  "  value_mod = function(v, at, x) return v * x.g(at.i) end }",
                  ATTENTION, "m_clamp_index(i, cfg::D)", NULL);
}

TEST(columns_beyond_the_row_read_inside_of_tensors)
{
    check_variant("return rowwise { inputs = { b = tensor('f32', 'rows', 'n') },\n"
                  "  forward = function(x, at, p) return x + p.b(at.row, at.i + 1) end }",
                  "dtype=bf16,rows=4,n=33", "m_clamp_index(c.f0, z.n)", NULL);
    check_variant("return rowwise { inputs = { b = tensor('f32', 8) },\n"
                  "  forward = function(x, at, p) return x + p.b(at.i) end }",
                  "dtype=bf16,rows=4,n=33", "m_clamp_index(i, 8)", "m_load_columns");
    check_variant("return rowwise { inputs = { g = tensor('f32', 'rows') },\n"
                  "  forward = function(x, at, p) return x * p.g(at.row) end }",
                  "dtype=bf16,rows=4,n=33", "at.row2 * x.s2_g", NULL);
}

TEST(lines_at_computed_places_are_loaded_with_operands)
{
    static const char RESULTS[] = "b=2,t=40,d=64,words=30,dtype=bf16";
    check_variant("return elementwise { over = { 'b', 't', 'd' }, results = { y = tensor('float') },\n"
                  "  inputs = { table = tensor('float', 'words', 'd'), id = tensor('i32', 'b', 't') },\n"
                  "  forward = function(v, at, x) return x.table(x.id(at.b, at.t), at.d) end }",
                  RESULTS, "load_lanes<W, SHARED>(x.in_table + ", "m_load_columns");
    /* an operand says where: it has to be there first */
    check_variant(
        "return elementwise { over = { 'b', 't', 'd' }, results = { y = tensor('float') },\n"
        "  inputs = { table = tensor('float', 'words', 'd') }, operands = { id = tensor('i32', 'b', 't') },\n"
        "  forward = function(v, at, x) return x.table(v.id, at.d) end }",
        RESULTS, "m_load_columns<W>(x.in_table + ", NULL);
}

TEST(columns_of_inputs_that_are_left_out_are_not_loaded)
{
    check_variant(
        "return rowwise { inputs = { w = tensor('f32', 'n', { optional = true }), u = tensor('f32', 'n') },\n"
        "  forward = function(x, at, p) return x * p.w(at.i) + p.u(at.i) end }",
        "dtype=bf16,rows=4,n=32,w=none", "x.in_u", "in_w");
}

TEST(constants_of_every_kind_are_valid_text)
{
    check_variant("return attention { score_mod = function(s, at) return where(lt(at.kv, 0), 0 / 0, s) end }",
                  ATTENTION, "m_nan()", NULL);
    check_variant("return attention { score_mod = function(s, at) return s + max(at.kv, -2147483648) end }",
                  ATTENTION, "(-2147483647 - 1)", "-2147483648)");
}

TEST(finals_of_an_empty_row_are_the_epilogue_of_the_starting_state)
{
    check_variant("return attention { online_func = online_func { online_rowscales = { m = 0.0 },\n"
                  "  online_fwd = function(s, r) return s, { m = r.m + rowsum(s) }, 1.0 end,\n"
                  "  online_fwd_epilogue = function(r, at) return 1.0, { lse = max(r.m, at.d) } end,\n"
                  "  forward = function(s) return s end } }",
                  ATTENTION, "finals[0] = 64.0f;", "finals[0] = -INF;");
}

/* What the kernel does for all elements together is left to it only where nothing takes another value on the
 * way. */
#define WEIGHTS(step)                                                                                        \
    "return attention { online_func = online_func { online_rowscales = { l = 0.0 },\n"                       \
    "  online_fwd = function(s, r) local p = relu(s) return p, { l = r.l + rowsum(" step ") }, 1.0 end,\n"   \
    "  online_fwd_epilogue = function(r) return 1.0, { l = r.l } end,\n"                                     \
    "  forward = function(s) return relu(s) end } }"

TEST(a_maximum_of_weights_waits_where_they_are_not_added_up)
{
    check_variant("return attention { online_func = elementwise_weights(relu) }", ATTENTION,
                  "RELU_WAITS = true", "m_relu");
    check_variant(WEIGHTS("p"), ATTENTION, "RELU_WAITS = false", NULL);
}

TEST(a_cap_is_left_to_the_kernel_where_products_are_used_once)
{
    check_variant("return attention { score_mod = function(s) return 30.0 * tanh(s / 30.0) end }", ATTENTION,
                  "CAPPED = true", "m_tanh");
    check_variant("return attention { score_mod = function(s) return 30.0 * tanh(s / 30.0) + s end }",
                  ATTENTION, "m_tanh", "CAPPED = true");
    check_variant("return attention { score_mod = function(s, at) return 30.0 * tanh(s / (at.q + 1.0)) end }",
                  ATTENTION, "m_tanh", "CAPPED = true");
    check_variant("return attention { score_mod = function(s) local t = tanh(s) return 3.0 * t + t * t end }",
                  ATTENTION, "CAP_FACTOR = 1.0f", "m_tanh");
}

TEST(a_spec_may_be_called_after_a_kernel)
{
    struct source s;
    make_source_of("a_mod_b.lua", "return attention { mask_mod = causal }", ATTENTION, &s);
    CHECK(strstr(s.text[0].data, "heads/vector_mod.cuh") == NULL);
    source_free(&s);
}

/* What a thread adds up and leaves at its end cannot go where an operand of its points says. */
TEST(a_scatter_by_operands_is_not_kept_to_the_end)
{
    static const char text[] =
        "return elementwise { over = { 'b', 't', 'i' },\n"
        "  operands = { x = tensor('float', 'b', 't', 'i'), id = tensor('i32', 'b') },\n"
        "  inputs = { table = tensor('float', 'words', 'i', { grad = true }) },\n"
        "  results = { y = tensor('float') },\n"
        "  forward = function(v, at, x) return v.x + x.table(v.id, at.i) end }";
    struct source s;
    make_pass_of("scatter.lua", text, LATHE_BACKWARD, "dtype=bf16,b=4,t=100,i=256,words=5", &s);
    CHECK(strstr(text_named(&s, "variant.gen.cuh")->data, "sum.c0") == NULL);
    source_free(&s);
}

/* Of rows that are read again, a pass reads those tensors that it reduces. */
TEST(a_pass_reads_what_it_reduces)
{
    static const struct {
        const char *spec, *problem, *reads; /* NULL: all of them */
    } row[] = {{"rms_norm_gate", "dtype=bf16,rows=64,n=8192", "PASS_READS[] = {1};"},
               {"rms_norm_gate", "dtype=bf16,rows=64,n=4104", NULL}, /* wait in shared memory */
               {"rms_norm_residual", "dtype=bf16,rows=64,n=8192", NULL}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct source s;
        make_pass(row[i].spec, LATHE_FORWARD, row[i].problem, &s);
        const char *const text = text_named(&s, "variant.gen.cuh")->data;
        CHECK((strstr(text, "PASS_READS") != NULL) == (row[i].reads != NULL));
        CHECK(!row[i].reads || strstr(text, row[i].reads) != NULL);
        source_free(&s);
    }
}

static void check_passes(const char *spec, const char *problem, const char *passes)
{
    struct source s;
    make_pass(spec, LATHE_BACKWARD, problem, &s);
    CHECK(strstr(text_named(&s, "variant.gen.cuh")->data, passes) != NULL);
    source_free(&s);
}

/* exp(x - m) / l is exp(x - lse); in f32 that is less exact, and without lse there is nothing to take. */
TEST(given_logarithms_of_sums_spare_reductions)
{
    check_passes("logsumexp", "dtype=bf16,rows=64,n=8192", "PASSES = 0, REDUCTIONS = 0");
    check_passes("cross_entropy", "dtype=f16,rows=64,n=8192", "PASSES = 0, REDUCTIONS = 0");
    check_passes("log_softmax", "dtype=bf16,rows=64,n=8192", "PASSES = 1, REDUCTIONS = 1");
    check_passes("log_softmax", "dtype=bf16,rows=64,n=8192,lse=none", "PASSES = 2, REDUCTIONS = 3");
    check_passes("log_softmax", "dtype=f32,rows=64,n=8192", "PASSES = 2, REDUCTIONS = 3");
    check_passes("log_softmax_inner", "dtype=bf16,rows=64,n=512", "PASSES = 1, REDUCTIONS = 1");
    check_passes("logsumexp", "dtype=f32,rows=64,n=8192", "PASSES = 2, REDUCTIONS = 2");
    check_passes("logsumexp", "dtype=bf16,rows=64,n=8192,lse=none", "PASSES = 2, REDUCTIONS = 2");
    check_passes("softmax", "dtype=bf16,rows=64,n=8192", "PASSES = 2, REDUCTIONS = 3");
}

#define SCALED(x, y, dims, type, formula)                                                                    \
    "{ over = { " dims " }, operands = { " x " = tensor('" type "') }, results = { " y                       \
    " = tensor('float') }, "                                                                                 \
    "forward = function(v, at, x) return " formula " end }"

/* How many maps have a text, and how many of them each is for. */
static void check_maps(const char *first, const char *second, const char *wanted)
{
    char text[1024];
    struct source s;
    snprintf(text, sizeof text, "return elementwise { inputs = { s = scalar('f32') }, %s, %s }", first,
             second);
    make_pass_of("pair.lua", text, LATHE_FORWARD, "dtype=bf16,rows=64,n=256,m=64", &s);
    CHECK(strstr(text_named(&s, "variant.gen.cuh")->data, wanted) != NULL);
    source_free(&s);
}

TEST(maps_that_are_alike_are_one_text)
{
    const char *const first = SCALED("a", "y", "'rows', 'n'", "float", "v.a * x.s + at.n");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "v.b * x.s + at.n"), "MAPS = 1, ALIKE = 2");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "at.n + x.s * v.b"), "MAPS = 1, ALIKE = 2");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "v.b * x.s + at.m"), "MAPS = 2, ALIKE = 1");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "v.b * x.s + at.n + 1"), "MAPS = 2, ALIKE = 1");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "v.b * x.s + at.n * 2"), "MAPS = 2, ALIKE = 1");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "float", "v.b - x.s + at.n"), "MAPS = 2, ALIKE = 1");
    check_maps(first, SCALED("b", "z", "'m', 'n'", "f32", "v.b * x.s + at.n"), "MAPS = 2, ALIKE = 1");
    check_maps(first, SCALED("b", "z", "'m', 'n', 'rows'", "float", "v.b * x.s + at.n"),
               "MAPS = 2, ALIKE = 1");
    check_maps(SCALED("a", "y", "'rows', 'n'", "float", "v.a - x.s"),
               SCALED("b", "z", "'m', 'n'", "float", "x.s - v.b"), "MAPS = 2, ALIKE = 1");
}

/* ---- what a recipe fills parameters from ----------------------------------------------------- */

static bool is_of_argument(const struct param *p)
{
    return p->kind == PARAM_ARG_DATA || p->kind == PARAM_ARG_STRIDE || p->kind == PARAM_ARG_STRIDE32 ||
           p->kind == PARAM_SCALAR_F32 || p->kind == PARAM_SCALAR_I32 || p->kind == PARAM_APART;
}

/* A launch reads the argument by this number: one that the pass does not take would be memory ahead of them.
 */
static void check_arguments(const char *spec, const struct signature *sig, const struct source *s)
{
    for (int k = 0; k < s->n_launches; k++)
        for (int i = 0; i < s->launch[k].n_params; i++) {
            const struct param *p = &s->launch[k].param[i];
            const bool takes = p->arg >= 0 && p->arg < sig->n_args;
            if (is_of_argument(p) && !takes)
                check_fail(__FILE__, __LINE__, spec);
            if (is_of_argument(p) && p->kind != PARAM_ARG_DATA && p->kind != PARAM_APART)
                CHECK(p->dim == 0 || p->dim < sig->arg[p->arg].ndim);
        }
}

/* Kernels of the first of these problems that a spec has and that is served, with and without `more`. */
static int check_pass(const char *spec, lathe_pass pass, const struct device *device, const char *more)
{
    static const char *const SIZES[] = {"dtype=bf16,d=64", "dtype=bf16,d=64,q=1,kv=8192", "dtype=bf16,n=256",
                                        "dtype=bf16"};
    struct signature sig;
    struct ir *ir = load_signed(spec, pass, &sig);
    int made = 0;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct problem problem;
        struct source s;
        lathe_error err = {.status = LATHE_OK};
        char text[128];
        snprintf(text, sizeof text, "%s%s", SIZES[i], more);
        if (problem_parse(&sig, text, &problem, &err) != LATHE_OK ||
            kernel_make_source(ir, pass, &sig, &problem, device, &s, &err) != LATHE_OK)
            continue;
        check_arguments(spec, &sig, &s);
        source_free(&s);
        made++;
    }
    ir_free(ir);
    return made;
}

TEST(parameters_are_of_arguments_that_the_pass_takes)
{
    int made = 0;
    for (const struct embedded *e = embedded_files; e->name; e++) {
        char name[64];
        if (strncmp(e->name, "specs/", 6) != 0 || strcmp(e->name, "specs/prelude.lua") == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strlen(e->name) - 10, e->name + 6);
        for (lathe_pass pass = LATHE_FORWARD; pass <= LATHE_COMBINE; pass++)
            made += check_pass(name, pass, &H100, "") + check_pass(name, pass, &A100, "");
        made += check_pass(name, LATHE_FORWARD, &H100, ",part_o=f32,part_rows=f32");
        made += check_pass(name, LATHE_COMBINE, &H100, ",parts=2,merged_o=f32,merged_rows=f32");
    }
    CHECK(made > 300);
}
