/*
 * emit.c: generated texts: byte-identical from run to run, as the golden files say for a few (spec, problem)
 * pairs, complete (every include is in the source), and recipes whose parameter blocks hold together.
 */
#include "check.h"
#include "kernel.h"
#include "emit_call.h"
#include "loaded.h"
#include "gen/gen.h"
#include "gen/emit/emit.h"
#include "nvrtc.h"
#include "runtime/rt.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compare(const char *name, const char *spec, lathe_pass pass, const char *problem)
{
    struct source s;
    char path[128];
    make_pass(spec, pass, problem, &s);
    snprintf(path, sizeof path, "tests/emit/%s.cuh", name);
    const struct text *t = text_named(&s, "variant.gen.cuh");
    if (check_update()) {
        FILE *f = fopen(check_source_path(path), "wb");
        CHECK(f != NULL);
        CHECK_EQ(fwrite(t->data, 1, t->size, f), t->size);
        fclose(f);
    }
    FILE *f = fopen(check_source_path(path), "rb");
    CHECK(f != NULL);
    char *expected = calloc(1, t->size + 4096);
    CHECK(expected != NULL);
    size_t n = fread(expected, 1, t->size + 4095, f);
    fclose(f);
    expected[n] = 0;
    CHECK_STR(t->data, expected);
    free(expected);
    source_free(&s);
}

/* Two, that a reader sees what is written; tests/stubs.sh compiles texts of all templates, and
 * tests/same_code.sh compares machine code before and after a change. */
TEST(golden_attention) /* a mask whose reads are told by ranges */
{
    compare("document_d128", "document", LATHE_FORWARD, "dtype=bf16,b=1,h=2,q=64,d=128");
}

TEST(golden_rowwise) /* cells, and places of scatters that stay */
{
    compare("group_rms_norm_bwd", "group_rms_norm", LATHE_BACKWARD,
            "dtype=bf16,rows=64,n=8192,groups_of=8,channels_of=4");
}

/* However many launches have a struct, it is declared once; also one that only files of the template name. */
TEST(parameter_structs_are_declared_once)
{
    static const char *const type[] = {"struct mod_params {", "struct linear_back_params {",
                                       "struct back_mod_params {"};
    struct source s;
    make_pass("kda", LATHE_BACKWARD, "dtype=bf16,b=1,h=2,t=64,d=64", &s);
    const char *text = text_named(&s, "variant.gen.cuh")->data;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        const char *first = strstr(text, type[i]);
        CHECK(first != NULL);
        CHECK(strstr(first + 1, type[i]) == NULL);
    }
    source_free(&s);
}

/* Of attention and linear attention; no text of theirs says one type of all. */
TEST(every_tensor_has_a_type_of_its_own)
{
    static const char *const with_heads[][2] = {{"causal", "dtype=bf16,b=1,h=2,q=64,d=64"},
                                                {"qk_norm", "dtype=f32,b=1,h=2,q=64,d=64"},
                                                {"kda", "dtype=f16,b=1,h=2,t=64,d=64"},
                                                {"gated_delta", "dtype=bf16,b=1,h=2,t=64,d=64"}};
    for (size_t i = 0; i < sizeof with_heads / sizeof *with_heads; i++) {
        struct source s;
        make_pass(with_heads[i][0], LATHE_BACKWARD, with_heads[i][1], &s);
        const char *config = text_named(&s, "config.gen.cuh")->data;
        CHECK(strstr(config, "using element_q = ") && strstr(config, "using element_k = "));
        CHECK(strstr(config, "using element_v = ") && strstr(config, "using element_o = "));
        CHECK(strstr(config, "using operand = ") && !strstr(config, "using element = "));
        CHECK_EQ(strstr(config, "using element_state = float;") != NULL, i >= 2);
        for (int t = 0; t < s.n_texts; t++)
            CHECK(!strstr(s.text[t].data, "cfg::element>") && !strstr(s.text[t].data, "cfg::element "));
        source_free(&s);
    }
    struct source s;
    make_pass("softmax", LATHE_FORWARD, "dtype=bf16,rows=64,n=128", &s);
    CHECK(strstr(text_named(&s, "config.gen.cuh")->data, "using element = bf16;"));
    source_free(&s);
}

TEST(the_same_input_gives_the_same_bytes)
{
    struct source a;
    struct source b;
    make_source("document", "dtype=bf16,b=1,h=2,q=64,d=128", &a);
    (void)setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one: text must not follow it */
    make_source("document", "dtype=bf16,b=1,h=2,q=64,d=128", &b);
    CHECK_EQ(a.n_texts, b.n_texts);
    for (int i = 0; i < a.n_texts; i++)
        CHECK_STR(a.text[i].data, b.text[i].data);
    CHECK_EQ(a.n_launches, 2); /* the tile map, then the kernel, which waits for it where it reads it */
    CHECK(!a.launch[0].early && a.launch[1].early);
    CHECK(a.launch[0].kept && !a.launch[1].kept);
    source_free(&a);
    source_free(&b);
}

/* ---- numbers that a template and a recipe share ------------------------------------------------ */

/* The number behind "NAME = " in a text. */
static int number_in(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, " %s = ", name);
    const char *at = strstr(text, key);
    if (!at)
        check_fail(__FILE__, __LINE__, name);
    return atoi(at + strlen(key));
}

static const struct launch *find_launch(const struct source *s, const char *role)
{
    for (int i = 0; i < s->n_launches; i++) {
        const size_t size = strlen(s->launch[i].entry);
        if (size > strlen(role) && strcmp(s->launch[i].entry + size - strlen(role), role) == 0)
            return &s->launch[i];
    }
    return NULL;
}
static const struct launch *launch_named(const struct source *s, const char *role)
{
    const struct launch *l = find_launch(s, role);
    if (!l)
        check_fail(__FILE__, __LINE__, role);
    return l;
}

TEST(recipes_have_the_numbers_of_the_templates)
{
    struct source s;
    make_source("rope", "dtype=bf16,b=1,h=2,q=64,d=128", &s);
    const char *mod = text_named(&s, "heads/vector_mod.cuh")->data;
    const struct launch *l = launch_named(&s, "_mod_q");
    CHECK_EQ(l->threads, number_in(mod, "MOD_THREADS"));
    CHECK_EQ(l->grid.factor[l->grid.n - 1].sym, SYM_Q);
    CHECK_EQ(l->grid.factor[l->grid.n - 1].tile, number_in(mod, "MOD_TOKENS"));
    source_free(&s);
    make_source("document", "dtype=bf16,b=1,h=2,q=64,d=128", &s);
    const char *config = text_named(&s, "config.gen.cuh")->data;
    const int map_threads = number_in(text_named(&s, "attention/mask_tiles.cuh")->data, "MAP_THREADS");
    l = launch_named(&s, "_map");
    CHECK_EQ(l->threads, map_threads);
    CHECK_EQ(l->grid.factor[l->grid.n - 1].sym, SYM_KV); /* a warp classifies a tile */
    CHECK_EQ(l->grid.factor[l->grid.n - 1].tile, number_in(config, "BN") * map_threads / 32);
    CHECK_EQ(launch_named(&s, "_fwd")->threads,
             (number_in(config, "WARPS") + 4) * 32); /* a warpgroup loads */
    source_free(&s);
    make_on(&H100, "document", LATHE_BACKWARD, "dtype=bf16,b=1,h=2,q=64,d=128", &s);
    config = text_named(&s, "config.gen.cuh")->data;
    l = launch_named(&s, "_bwd_map");
    CHECK_EQ(l->threads,
             number_in(text_named(&s, "attention/backward/query_lists.cuh")->data, "BACK_MAP_THREADS"));
    CHECK_EQ(l->grid.factor[l->grid.n - 1].sym, SYM_KV); /* a block for each key tile */
    CHECK_EQ(l->grid.factor[l->grid.n - 1].tile, number_in(config, "BACK_BN"));
    source_free(&s);
    make_on(&A100, "document", LATHE_FORWARD, "dtype=bf16,b=1,h=2,q=64,d=128", &s);
    config = text_named(&s, "config.gen.cuh")->data;
    CHECK_EQ(launch_named(&s, "_fwd")->threads, number_in(config, "WARPS") * 32);
    source_free(&s);
}

/* Of both gradients of layer_norm, whose parts are as many as the clusters of the plan, or its blocks. */
static void check_sum(const char *problem, int shares, int round, int columns)
{
    struct source s;
    make_on(&H100, "layer_norm", LATHE_BACKWARD, problem, &s);
    const char *variant = text_named(&s, "variant.gen.cuh")->data;
    const struct launch *l = launch_named(&s, "_sum");
    CHECK_EQ(l->threads, number_in(text_named(&s, "rowwise/rows.cuh")->data, "SUM_THREADS"));
    CHECK_EQ(number_in(variant, "SUM_SHARES"), shares);
    CHECK_EQ(number_in(variant, "SUM_ROUND"), round);
    CHECK_EQ(l->grid.scale, 2);
    CHECK_EQ(l->grid.factor[0].sym, SYM_N);
    CHECK_EQ(l->grid.factor[0].tile, columns);
    source_free(&s);
}

TEST(blocks_share_the_parts_of_column_sums)
{
    check_sum("dtype=bf16,rows=1024,n=262144", 1, 8, 1024); /* 8 parts */
    check_sum("dtype=bf16,rows=4096,n=65536", 2, 6, 512);   /* 33: 17 of a thread */
    check_sum("dtype=bf16,rows=16384,n=8192", 8, 6, 128);   /* 132 */
    check_sum("dtype=bf16,rows=16384,n=1024", 32, 7, 32);   /* 1056 */
    check_sum("dtype=bf16,rows=16384,n=257", 8, 8, 32);     /* a column to a thread */
}

static int times_in(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

/* Whole and, where it has several, in parts. */
static void check_compiled(const struct compiler *compiler, const struct source *s, int kernels)
{
    static const char *const arch = "sm_90a";
    for (int parts = 0; parts <= (s->n_parts > 1 ? 1 : 0); parts++) {
        unsigned char *image;
        size_t size;
        char *log;
        lathe_error err = {0};
        CHECK_EQ(parts ? lathe__compile_parts(compiler, s, arch, &image, &size, &log, &err)
                       : lathe__compile(s, &arch, 1, &image, &size, &log, compiler, &err),
                 LATHE_OK);
        for (int i = 0; i < s->n_launches; i++) {
            char quoted[NAME_MAX_BYTES + 2];
            snprintf(quoted, sizeof quoted, "'%s'", s->launch[i].entry);
            CHECK_EQ(times_in(log, quoted), 1);
        }
        CHECK_EQ(times_in(log, "Compiling entry function"), kernels);
        free(image);
        free(log);
    }
}

TEST(only_kernels_that_are_launched_are_compiled)
{
    struct compiler *compiler = open_compiler();
    struct source s;
    make_pass("cumsum", LATHE_FORWARD, "dtype=bf16,rows=64,n=256", &s); /* its file has two more */
    CHECK_EQ(s.n_launches, 1);
    check_compiled(compiler, &s, 1);
    source_free(&s);
    make_pass("layer_norm", LATHE_BACKWARD, "dtype=bf16,rows=64,n=256", &s);
    CHECK_EQ(s.n_parts, 2);
    check_compiled(compiler, &s, 2);
    source_free(&s);
    make_pass("act_silu", LATHE_FORWARD, "dtype=bf16,n=256", &s);
    check_compiled(compiler, &s, 1);
    source_free(&s);
    lathe__compiler_close(compiler);
}

static int part_of(const struct source *s, const char *role)
{
    const char *last = "";
    int part = -1;
    for (int i = 0; i < s->n_launches; i++) {
        const size_t size = strlen(s->launch[i].entry);
        last = size > strlen(role) ? s->launch[i].entry + size - strlen(role) : "";
        if (strcmp(last, role) == 0)
            part = s->launch[i].part;
    }
    return part;
}

/* Each alone, and the text has no line about it: what an emulated kernel is known by does not change. */
TEST(several_long_kernels_are_compiled_apart)
{
    static const char *const long_role[] = {"_bwd_chunks", "_bwd_states", "_bwd_prepare"};
    struct compiler *compiler = open_compiler();
    struct source s;
    make_pass("kda", LATHE_BACKWARD, "dtype=bf16,b=1,h=2,t=512,d=64", &s);
    CHECK_EQ(s.n_parts, 4);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(part_of(&s, long_role[i]), i + 1);
        CHECK_STR(s.part_role[i + 1], long_role[i] + 1);
    }
    CHECK_EQ(part_of(&s, "_bwd_heads"), 0);
    CHECK_EQ(times_in(text_named(&s, "config.gen.cuh")->data, "LATHE_PART_"), 0);
    source_free(&s);
    make_pass("gla", LATHE_BACKWARD, "dtype=bf16,b=1,h=2,t=512,d=32", &s);
    CHECK_EQ(s.n_parts, 3);
    if (LATHE_TEST_EVERY == 1) /* seconds of NVRTC, which no sanitizer looks at */
        check_compiled(compiler, &s, 3);
    source_free(&s);
    lathe__compiler_close(compiler);
}

TEST(the_part_of_short_kernels_has_a_long_one_where_there_are_none)
{
    struct source s;
    make_pass("gla", LATHE_FORWARD, "dtype=bf16,b=1,h=2,t=512,d=64", &s);
    CHECK_EQ(s.n_parts, 3);
    CHECK_EQ(part_of(&s, "_fwd"), 1);
    CHECK_STR(s.part_role[1], ""); /* its text says so */
    CHECK_EQ(part_of(&s, "_chunks"), 2);
    CHECK_STR(s.part_role[2], "chunks");
    CHECK_EQ(part_of(&s, "_states"), 0);
    source_free(&s);
    make_pass("causal", LATHE_FORWARD, "dtype=bf16,b=1,h=8,q=1,kv=16384,d=64", &s);
    CHECK_EQ(s.n_parts, 2);
    CHECK_EQ(part_of(&s, "_decode"), 1);
    CHECK_EQ(part_of(&s, "_merge"), 0);
    source_free(&s);
}

TEST(lengths_do_not_change_the_text)
{
    struct source a;
    struct source b;
    make_source("alibi", "dtype=bf16,b=1,h=2,q=64,d=128", &a);
    make_source("alibi", "dtype=bf16,b=16,h=64,h_kv=16,q=1000,kv=77,d=128", &b);
    CHECK_EQ(a.n_texts, b.n_texts);
    for (int i = 0; i < a.n_texts; i++)
        CHECK_STR(a.text[i].data, b.text[i].data);
    source_free(&a);
    source_free(&b);
}

/* A skip's adjoint needs no o, that of a gate does. */
TEST(o_is_made_again_where_an_adjoint_reads_it)
{
    static const struct {
        const char *spec, *problem;
        bool again;
    } row[] = {{"mamba2", "dtype=bf16,h=2,t=64,d=64", false},
               {"flao_lrpe", "dtype=bf16,h=2,t=64,d=64", true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct source s;
        make_pass(row[i].spec, LATHE_BACKWARD, row[i].problem, &s);
        CHECK(launch_named(&s, "bwd_o") != NULL);
        CHECK_EQ(find_launch(&s, "bwd_again") != NULL, row[i].again);
        source_free(&s);
    }
}

TEST(one_file_has_no_includes_left)
{
    struct source s;
    struct text_buf t = {0};
    make_source("qk_norm", "dtype=bf16,b=1,h=2,q=64,d=128", &s);
    emit_inline(&s, &t);
    CHECK(!t.failed);
    CHECK(strstr(t.data, "#include") == NULL);
    CHECK(strstr(t.data, "// qk_norm.lua:2") != NULL);
    text_free(&t);
    source_free(&s);
}

TEST(parameters_do_not_overlap)
{
    static const char *const specs[] = {"causal", "document", "relative_bias", "qk_norm", "sigmoid"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct source s;
        make_source(specs[i], "dtype=bf16,b=1,h=2,q=64,d=128", &s);
        for (int k = 0; k < s.n_launches; k++) {
            const struct launch *l = &s.launch[k];
            uint32_t end = 0;
            for (int p = 0; p < l->n_params; p++) {
                int kind = l->param[p].kind;
                bool small = kind == PARAM_ARG_STRIDE32 || kind == PARAM_SYM || kind == PARAM_SCALAR_F32 ||
                             kind == PARAM_SCALAR_I32 || kind == PARAM_Q_START;
                uint32_t bytes = small ? 4 : 8;
                CHECK_EQ(l->param[p].offset % bytes, 0);
                CHECK(l->param[p].offset >= end);
                end = l->param[p].offset + bytes;
            }
            CHECK(end <= l->param_bytes);
        }
        source_free(&s);
    }
}

/* Whatever a recipe includes: a pass that runs the forward kernel first has both sets of templates. */
TEST(every_template_has_room_in_a_source)
{
    enum { GENERATED = 3 }; /* kernel.cu, config.gen.cuh, variant.gen.cuh */
    int n = GENERATED;
    for (const struct embedded *file = embedded_files; file->name; file++)
        n += strncmp(file->name, "templates/", 10) == 0;
    CHECK(n > GENERATED);
    CHECK(n <= MAX_TEXTS);
}

static bool has_launch(const struct source *s, const char *entry)
{
    for (int i = 0; i < s->n_launches; i++)
        if (strcmp(s->launch[i].entry, entry) == 0)
            return true;
    return false;
}

/* Constants of a config are named by roles: a long name of a spec must not cut one short. */
TEST(kernels_of_a_spec_with_a_long_name_have_their_roles)
{
    static const char *const SPEC[] = {"rwkv7", "kda", "document", "rope"};
    for (int i = 0; i < 8; i++) {
        const lathe_pass pass = i % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        struct source own;
        struct source renamed;
        struct signature sig;
        struct problem problem;
        lathe_error err = {.status = LATHE_OK};
        make_on(&H100, SPEC[i / 2], pass, "dtype=bf16,b=2,h=4,d=64", &own);
        struct ir *ir = load_signed(SPEC[i / 2], pass, &sig);
        snprintf(ir->name, sizeof ir->name, "%s", "a_name_of_more_than_forty_letters_and_digits");
        CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=2,h=4,d=64", &problem, &err), LATHE_OK);
        CHECK_EQ(kernel_make_source(ir, pass, &sig, &problem, &H100, &renamed, &err), LATHE_OK);
        CHECK_EQ(own.n_launches, renamed.n_launches);
        for (int k = 0; k < own.n_launches; k++)
            CHECK_STR(strstr(own.launch[k].entry, "_bf16_"), strstr(renamed.launch[k].entry, "_bf16_"));
        ir_free(ir);
        source_free(&own);
        source_free(&renamed);
    }
}

TEST(a_backward_pass_of_a_mask_that_reads_data_may_run_the_forward_kernel)
{
#define SIZES "dtype=bf16,b=2,h=4,h_kv=2,q=140,kv=200,o=none,lse=none"
    static const char *const PROBLEM[] = {SIZES ",d=64",  SIZES ",d=64,deterministic=1",
                                          SIZES ",d=16",  SIZES ",d=40,unaligned=q+k+v+do",
                                          SIZES ",d=128", SIZES ",d=192,d_v=128"};
#undef SIZES
    enum { PROBLEMS = sizeof PROBLEM / sizeof *PROBLEM };
    for (int i = 0; i < 2 * PROBLEMS; i++) {
        struct source s;
        make_on(i < PROBLEMS ? &H100 : &A100, "document", LATHE_BACKWARD, PROBLEM[i % PROBLEMS], &s);
        CHECK(has_launch(&s, "document_bf16_fwd"));
        CHECK(has_launch(&s, "document_bf16_map"));
        CHECK(has_launch(&s, "document_bf16_bwd_map"));
        source_free(&s);
    }
}

TEST(floats_are_exact)
{
    static const double values[] = {0.1, -1.0 / 3.0, 1e-30, 3e38, 1e-42, 0.0, -0.0, 5.0, -7.0, 1234567.0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[64];
        float_text(values[i], text, sizeof text);
        CHECK(strtof(text, NULL) == (float)values[i]);
    }
    char text[64];
    float_text(-1.0 / 0.0, text, sizeof text);
    CHECK_STR(text, "-INF");
}

/* What the compiler takes for a negation, ptxas may lose: tests/specs/good/least_of_negated.lua. */
TEST(negated_integers_have_a_function_of_their_own)
{
    static const char *const WAY[] = {"-v.x", "0 - v.x", "v.x * -1", "-1 * v.x"};
    for (size_t i = 0; i <= sizeof WAY / sizeof *WAY; i++) {
        const bool negates = i < sizeof WAY / sizeof *WAY;
        char text[512];
        struct source s;
        snprintf(text, sizeof text,
                 "return elementwise { over = { 'n' }, operands = { x = tensor('i32'), y = tensor('i32') },\n"
                 "  results = { r = tensor('i32') }, forward = function(v) return min(%s, v.y) end }\n",
                 negates ? WAY[i] : "1 - v.x");
        make_pass(text, LATHE_FORWARD, "n=64", &s);
        const char *variant = text_named(&s, "variant.gen.cuh")->data;
        CHECK_EQ(strstr(variant, " = negate(p0)") != NULL, negates);
        CHECK_EQ(strstr(variant, "#include \"common/ptx_negate.cuh\"") != NULL, negates);
        source_free(&s);
    }
}

/* Of three numbers, what the compiler may make a negation of: gen/emit/least.c. */
TEST(integers_in_minima_of_three_are_settled)
{
    static const struct {
        const char *formula;
        int settled;
    } OF[] = {
        {"min(min(v.y, 3 - v.x - 3), v.z)", 1},
        {"max(v.z, max(v.x // -1, v.y))", 1},
        {"min(min(v.y, v.x - v.z), v.z - v.x - v.y)", 2},
        {"min(clamp(v.y, -7, v.z - v.x), v.z)", 1},
        {"max(clamp(v.x - v.y, -7, v.z), v.y)", 0},     /* the largest, behind the least */
        {"max(clamp(v.x - v.y - v.x, -7, 9), v.y)", 1}, /* which are turned around between constants */
        {"min(where(lt(v.x - v.z, v.y), v.x - v.z, v.y), v.z)", 2},
        {"where(lt(min(v.x - v.z, v.y), v.z), min(v.x - v.z, v.y), v.z)", 1},
        {"max(max(abs(v.x), v.y), v.z)", 1},
        {"max(max(v.x - 3, v.y * 2), v.z // 4)", 0}, /* of a leaf and a constant: no negations */
        {"max(min(v.y, v.x - v.z), v.z)", 0},
        {"min(v.y, v.x - v.z)", 0},
        {"clamp(v.y - v.x, 0, 63)", 0},
        {"min(v.y, v.x - v.z) - min(v.z, v.x - v.y)", 0},
    };
    for (size_t i = 0; i < sizeof OF / sizeof *OF; i++) {
        char text[512];
        struct source s;
        int settled = 0;
        snprintf(
            text, sizeof text,
            "return elementwise { over = { 'n' }, operands = { x = tensor('i32'), y = tensor('i32'),\n"
            "  z = tensor('i32') }, results = { r = tensor('i32') }, forward = function(v) return %s end }\n",
            OF[i].formula);
        make_pass(text, LATHE_FORWARD, "n=64", &s);
        const char *variant = text_named(&s, "variant.gen.cuh")->data;
        for (const char *at = variant; (at = strstr(at, "settled(")) != NULL; at++)
            settled++;
        CHECK_EQ(settled, OF[i].settled);
        CHECK_EQ(strstr(variant, "#include \"common/ptx_negate.cuh\"") != NULL, settled > 0);
        source_free(&s);
    }
}

/* Rows that do not start at multiples of 16 bytes are moved, each tensor by its own launch. */
TEST(unaligned_rows_are_moved)
{
    struct signature sig;
    struct problem problem;
    struct plan plan;
    struct source s;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed("causal", LATHE_FORWARD, &sig);
    CHECK_EQ(problem_parse(&sig, "dtype=bf16,b=2,h=4,h_kv=2,q=10,kv=20,d=64,d_v=128", &problem, &err),
             LATHE_OK);
    problem.unaligned = 1u << lathe__arg_find(&sig, "k", 0) | 1u << lathe__arg_find(&sig, "o", 0);
    CHECK_EQ(plan_of(ir, LATHE_FORWARD, &problem, &H100, &plan, &err), LATHE_OK);
    CHECK_EQ(emit_by(ir, LATHE_FORWARD, &problem, &H100, &plan, &s, &err), LATHE_OK);
    CHECK_EQ(s.n_launches, 3);
    CHECK_STR(s.launch[0].entry, "causal_bf16_mod_k");
    CHECK_STR(s.launch[1].entry, "causal_bf16_fwd");
    CHECK_STR(s.launch[2].entry, "causal_bf16_mod_o");
    CHECK(!s.launch[1].early); /* it reads what the launch before it writes, and does not wait */
    CHECK_EQ(s.n_buffers, 3);  /* and the counter of tiles */
    CHECK_EQ(product_value(&s.buffer[0].bytes, &problem), 2 * 2 * 20 * 64 * 2);
    CHECK_EQ(product_value(&s.buffer[1].bytes, &problem), 2 * 4 * 10 * 128 * 2);
    CHECK_EQ(product_value(&s.launch[0].grid, &problem), 2 * 2);
    source_free(&s);
    ir_free(ir);
}

/* The kernel beside a plain sum: compiled apart, behind the one that leaves it its rows. What is told of
 * parts has a word for each row of each of them and of their groups. */
TEST(sums_that_are_handed_on_have_a_kernel_of_their_own)
{
    struct source s;
    make_on(&H100, "cumsum_packed", LATHE_BACKWARD, "dtype=bf16,rows0=3,rows=200,n=5000", &s);
    CHECK_EQ(s.n_launches, 2);
    CHECK_EQ(s.n_parts, 2);
    CHECK_STR(s.launch[0].entry, "cumsum_packed_bf16_rows");
    CHECK_STR(s.launch[1].entry, "cumsum_packed_bf16_lookback");
    CHECK(s.launch[0].part != s.launch[1].part);
    CHECK_EQ(s.launch[0].param_bytes, s.launch[1].param_bytes);
    struct problem problem = {.dim = {[SYM_ROWS0] = 3, [SYM_ROWS1] = 1, [SYM_ROWS] = 200, [SYM_N] = 5000}};
    const int strips = 3 * 2;                            /* of 128 rows */
    const int groups = (5000 + 8 * 256 - 1) / (8 * 256); /* of eight parts of 256 places */
    CHECK_EQ(product_value(&s.buffer[0].bytes, &problem), strips * groups * (16 + 9 * 128 * 8));
    CHECK(!s.buffer[0].zero); /* by the first kernel, where it is asked for */
    source_free(&s);
    make_on(&H100, "logcumsumexp_packed", LATHE_FORWARD, "dtype=bf16,rows=200,n=5000", &s);
    CHECK_EQ(s.n_launches, 1);
    source_free(&s);
}

static int launches_of(const struct source *s, const char *role)
{
    int n = 0;
    for (int i = 0; i < s->n_launches; i++)
        n += strstr(s->launch[i].entry, role) != NULL;
    return n;
}

/* Sums without rounding take 48 bytes an element: for gradients alone to which more than one token adds. */
TEST(elements_of_one_token_need_no_exact_sum)
{
    static const struct {
        const char *spec;
        int sums, zeroed;
    } rows[] = {
        {"rwkv7", 0, 0}, /* kappa: read by reader and writer, at one place */
        {"gdn2", 0, 1},  /* write: read by a mod, once for each element */
        {"hgrn2", 0, 0}, /* g: of a head of k, by the decay and by a mod */
        {"comba", 1, 0}, /* part: one for all tokens of a head */
        /* With more value channels than d the last ones would meet. */
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) },\n"
         "  value_mod = function(v, at, x) return v * x.g(at.b, at.h, at.t, at.i) end }",
         1, 0},
        /* All channels read the last element of a dim that is shorter. */
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 1, { grad = true }) },\n"
         "  decay = function(at, x) return -exp(x.g(at.b, at.h, at.t, at.i)) end }",
         1, 0},
        /* Of all pairs of heads those are read that belong together. */
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 'h_k', 't', { grad = true }) "
         "},\n"
         "  decay = function(at, x) return -exp(x.g(at.b, at.h, at.h_k, at.t)) end }",
         0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct source s;
        make_on(&H100, rows[i].spec, LATHE_BACKWARD, "dtype=bf16,b=2,h=4,t=256,d=64", &s);
        CHECK_EQ(launches_of(&s, "bwd_sum"), rows[i].sums);
        CHECK_EQ(launches_of(&s, "bwd_zero"), rows[i].zeroed);
        source_free(&s);
    }
}
