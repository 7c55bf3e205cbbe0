/*
 * words.c: a problem as text reads back as the problem that it was, as far as it is compiled in; a spec's
 * path is one word of a shell.
 */
#include "check.h"
#include "kernel.h"
#include "gen/gen.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct problem parse(const struct signature *sig, const char *text)
{
    struct problem p;
    lathe_error err = {0};
    if (problem_parse(sig, text, &p, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return p;
}

/* Bits of tensor inputs: scalars and outputs are never compiled in. */
static uint64_t inputs(const struct signature *sig)
{
    uint64_t bits = 0;
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].role == ROLE_INPUT)
            bits |= arg_bit(i);
    return bits;
}

static void same_code(const struct signature *sig, const struct problem *a, const struct problem *b)
{
    CHECK_EQ(memcmp(a->dtype, b->dtype, sizeof a->dtype), 0);
    CHECK_EQ(a->dim[SYM_D], b->dim[SYM_D]);
    CHECK_EQ(a->dim[SYM_D_V], b->dim[SYM_D_V]);
    CHECK_EQ(a->dim[SYM_N], b->dim[SYM_N]);
    CHECK_EQ(a->present & inputs(sig), b->present & inputs(sig));
    CHECK_EQ(a->unaligned, b->unaligned);
    CHECK_EQ(a->folded, b->folded);
    for (int i = 0; i < sig->n_args; i++)
        CHECK_EQ(a->arg_dtype[i], b->arg_dtype[i]);
}

static void read_back(const struct signature *sig, const char *text)
{
    struct text_buf built = {0};
    const struct problem p = parse(sig, text);
    problem_built_text(sig, &p, &built);
    CHECK(built.data != NULL);
    const struct problem again = parse(sig, built.data);
    same_code(sig, &p, &again);
    text_free(&built);
}

static struct ir *load(const char *name, const char *text)
{
    struct diag diag = {0};
    struct ir *ir = spec_load(name, text, strlen(text), &diag);
    if (!ir)
        check_fail(__FILE__, __LINE__, name);
    return ir;
}

TEST(problems_of_every_shipped_spec_read_back)
{
    int n = 0;
    for (const struct embedded *e = embedded_files; e->name; e++) {
        struct signature sig;
        char text[512];
        size_t size;
        if (strncmp(e->name, "specs/", 6) != 0 || strcmp(e->name, "specs/prelude.lua") == 0)
            continue;
        struct ir *ir = load(e->name, e->data);
        signature_make(ir, LATHE_FORWARD, &sig);
        const bool attention = strcmp(sig.kind, "attention") == 0;
        const bool rowwise = strcmp(sig.kind, "rowwise") == 0;
        size = (size_t)snprintf(text, sizeof text, "dtype=f16%s",
                                attention ? ",h=4,d=96,d_v=64"
                                : rowwise ? ",n=777"
                                          : "");
        for (int k = 0; k < sig.n_free; k++)
            size += (size_t)snprintf(text + size, sizeof text - size, ",%s=5", sig.free_name[k]);
        read_back(&sig, text);
        for (int i = 0; i < sig.n_args; i++)
            if (sig.arg[i].role == ROLE_INPUT && sig.arg[i].optional) {
                snprintf(text + size, sizeof text - size, ",%s=none", sig.arg[i].name);
                read_back(&sig, text);
            }
        ir_free(ir);
        n++;
    }
    CHECK(n > 15);
}

static const char CHOICES[] =
    "return attention { inputs = { bias = tensor(\"float\", \"h\", \"width\", { optional = true }) },\n"
    "  score_mod = function(s, at, x) return s + x.bias(at.h, 0) end }\n";

TEST(choices_read_back)
{
    struct signature sig;
    struct text_buf text = {0};
    struct ir *ir = load("choices.lua", CHOICES);
    signature_make(ir, LATHE_FORWARD, &sig);
    read_back(&sig, "width=3,bias=f16");
    read_back(&sig, "width=3,bias=none");
    read_back(&sig, "width=3,dtype=f32,unaligned=q+o");
    read_back(&sig, "bias=none,unaligned=v");
    read_back(&sig, "width=3,unaligned=q,folded=k+v");
    const struct problem p = parse(&sig, "b=3,h=4,q=7,width=3,bias=f16,d=64,unaligned=k+v");
    spec_words("a dir/it's.lua", &sig, &p, &text);
    CHECK_STR(text.data, "'a dir/it'\\''s.lua' --problem dtype=bf16,d=64,width=3,bias=f16,unaligned=k+v");
    text_free(&text);
    problem_text(&sig, &p, &text);
    CHECK_STR(text.data, "dtype=bf16,b=3,h=4,h_kv=4,q=7,kv=7,d=64,d_v=64,width=3");
    text_free(&text);
    ir_free(ir);
}

TEST(wrong_names_of_unaligned_tensors)
{
    static const char *const WRONG[] = {"unaligned=",    "unaligned=q+",  "unaligned=+",
                                        "unaligned=q+q", "unaligned=lse", "unaligned=k,unaligned=v",
                                        "unaligned=q+x", "unaligned=qk"};
    struct signature sig;
    struct problem p;
    struct ir *ir = load("choices.lua", CHOICES);
    signature_make(ir, LATHE_FORWARD, &sig);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        lathe_error err = {0};
        CHECK_EQ(problem_parse(&sig, WRONG[i], &p, &err), LATHE_ARG);
        CHECK_HAS(err.text, "unaligned");
    }
    ir_free(ir);
}

/* ---- what a key is made of ------------------------------------------------------------------------ */

static void make_source(const char *problem_text, const struct device *device, struct source *out)
{
    struct signature sig;
    struct plan plan;
    struct diag diag = {0};
    lathe_error err = {0};
    struct ir *ir = spec_load("causal", NULL, 0, &diag);
    CHECK(ir != NULL);
    signature_make(ir, LATHE_FORWARD, &sig);
    const struct problem p = parse(&sig, problem_text);
    CHECK_EQ(plan_of(ir, LATHE_FORWARD, &p, device, &plan, &err), LATHE_OK);
    CHECK_EQ(emit_by(ir, LATHE_FORWARD, &p, device, &plan, out, &err), LATHE_OK);
    ir_free(ir);
}

/* A cache that was filled without a GPU is found by every device of the architecture, for every length:
   neither reaches the texts. */
TEST(texts_depend_on_the_architecture_and_on_what_is_compiled_in)
{
    static const struct device DEVICES[][2] = {
        {{.sm = 80, .sm_count = 108, .smem_bytes = 163 * 1024, .arch = "sm_80"},
         {.sm = 80, .sm_count = 56, .smem_bytes = 163 * 1024, .arch = "sm_80"}},
        {{.sm = 90, .sm_count = 132, .smem_bytes = 227 * 1024, .arch = "sm_90a"},
         {.sm = 90, .sm_count = 78, .smem_bytes = 227 * 1024, .arch = "sm_90a"}},
    };
    for (size_t i = 0; i < sizeof DEVICES / sizeof DEVICES[0]; i++) {
        struct source *two = calloc(2, sizeof *two);
        CHECK(two != NULL);
        make_source("d=128", &DEVICES[i][0], &two[0]);
        make_source("d=128,b=3,h=12,h_kv=3,q=77,kv=5001", &DEVICES[i][1], &two[1]);
        CHECK_EQ(two[0].n_texts, two[1].n_texts);
        for (int k = 0; k < two[0].n_texts; k++) {
            CHECK_STR(two[0].text[k].name, two[1].text[k].name);
            CHECK_STR(two[0].text[k].data, two[1].text[k].data);
        }
        source_free(&two[0]);
        source_free(&two[1]);
        free(two);
    }
}
