/*
 * emit_call.h: texts and recipes of a shipped spec, for the rooms that look at them. The caller frees the
 * source.
 */
#ifndef LATHE_TESTS_EMIT_CALL_H
#define LATHE_TESTS_EMIT_CALL_H

#include "check.h"
#include "kernel.h"
#include "loaded.h"
#include "gen/gen.h"

#include <string.h>

static const struct device H100 = {.sm = 90, .sm_count = 132, .smem_bytes = 232448, .arch = "sm_90a"};
static const struct device A100 = {.sm = 80, .sm_count = 108, .smem_bytes = 166912, .arch = "sm_80"};

static inline void make_on(const struct device *device, const char *spec, lathe_pass pass,
                           const char *problem_text, struct source *out)
{
    struct signature sig;
    struct problem problem;
    lathe_error err = {.status = LATHE_OK};
    struct ir *ir = load_signed(spec, pass, &sig);
    CHECK_EQ(problem_parse(&sig, problem_text, &problem, &err), LATHE_OK);
    CHECK_EQ(kernel_make_source(ir, pass, &sig, &problem, device, out, &err), LATHE_OK);
    ir_free(ir);
}

static inline void make_pass(const char *spec, lathe_pass pass, const char *problem_text, struct source *out)
{
    make_on(&H100, spec, pass, problem_text, out);
}

static inline void make_source(const char *spec, const char *problem_text, struct source *out)
{
    make_pass(spec, LATHE_FORWARD, problem_text, out);
}

static inline const struct text *text_named(const struct source *s, const char *name)
{
    for (int i = 0; i < s->n_texts; i++)
        if (strcmp(s->text[i].name, name) == 0)
            return &s->text[i];
    CHECK(false);
    return NULL;
}

#endif
