/*
 * template.h: templates as rows of a table: what the planner, the texts and reports ask of one. A kind's rows
 * are in its templates.c, in the order in which they are preferred, and the row of the kind names them.
 */
#ifndef LATHE_GEN_TEMPLATE_H
#define LATHE_GEN_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "gen/plan/isa.h"
#include "gen/plan/serves.h"
#include "lathe_types.h"

struct attention_traits;
struct device;
struct plan;
struct problem;
struct kernel_request;
struct linear_template;
struct text_buf;

struct launch_file { /* of a kernel beside the main one */
    const char *role;
    const char *file;
};

/* Which numbers of struct plan are a template's. */
enum plan_form {
    PLAN_ATTENTION,
    PLAN_ATTENTION_BACK, /* and those of the forward kernel beside it */
    PLAN_ROW_REGISTERS,
    PLAN_ROW_STAGED,
    PLAN_ROW_INNER,
    PLAN_ROW_SCAN,
    PLAN_MAPS,
    PLAN_LINEAR,
    PLAN_COMBINE /* of attention: rows of which there are parts */
};

struct template_row {
    const char *name; /* NULL: behind the last row */
    const char *file;
    enum plan_form form;
    lathe_pass pass;
    enum isa isa;
    struct serves serves; /* columns of what it takes; what they do not say, `ok` asks */
    const char *unproven; /* new to hardware: why it is taken only by its name; NULL: it is taken */
    bool plain_waits;     /* and its waits have no bound: with one, its wgmmas spill, or wait for each other
                             (C7510) */
    /* Fill the plan, or say why not in `why` (REASON_BYTES). */
    bool (*ok)(const struct kernel_request *r, struct plan *plan, char *why);
    void (*define)(struct text_buf *t, const struct plan *plan); /* macros of the config; NULL: none */
    void (*config)(struct text_buf *t, const struct problem *problem,
                   const struct plan *plan); /* its constants */
    /* Of the numbers of a kernel, for people: "d128_v128_m128n64s2w4". */
    void (*label)(const struct problem *problem, const struct plan *plan, char *out, size_t size);
    const struct linear_template *linear; /* of linear attention, its file in gen/linear; NULL: of others */
    const struct launch_file *beside;     /* in the order of inclusion, up to a role of NULL; NULL: none */
    /* Those of lathe__lengths of a problem by which this template's kernels differ; NULL: none. */
    int (*lengths)(const struct problem *problem, const struct device *device);
    const struct attention_traits *attention; /* of attention alone: what its emitters ask */
    bool any_batch; /* under DETERMINISTIC_BATCH what a row gets does not depend on the rest of the batch */
};

#endif
