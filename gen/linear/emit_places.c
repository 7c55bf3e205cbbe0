/*
 * emit_places.c: where a tensor of linear attention lives, in parameter structs: an argument, or a buffer of
 * the workspace. In: a place. Out: rows and their text.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/linear/emit.h"

#include <stdio.h>

static const char *const BHT[] = {"b", "h", "t"};

void linear_pointer(struct params *p, const char *type, const char *name, const struct place *t)
{
    params_pointer(p, type, name, t->arg >= 0 ? PARAM_ARG_DATA : PARAM_WORK_DATA,
                   t->arg >= 0 ? t->arg : t->buffer);
}

void linear_strides(struct params *p, const char *name, const struct place *t)
{
    if (t->arg >= 0) {
        params_strides(p, name, BHT, t->arg, 3, 0);
        return;
    }
    for (int d = 0; d < 3; d++) {
        char member[32];
        struct product stride = product_of(t->dim);
        if (d < 2)
            product_times(&stride, SYM_T, 1);
        if (d < 1)
            product_times(&stride, t->heads, 1);
        snprintf(member, sizeof member, "%s_%s", name, BHT[d]);
        params_product(p, member, &stride);
    }
}

void linear_to_workspace(struct place *t, int element_bytes, const struct emitter *e, struct source *out)
{
    struct product bytes = product_of((int64_t)t->dim * element_bytes);
    product_times(&bytes, SYM_B, 1);
    product_times(&bytes, t->heads, 1);
    product_times(&bytes, SYM_T, 1);
    t->arg = -1;
    t->buffer = add_buffer(out, e, bytes);
}

/* From one element of a row to the next. */
void linear_element_step(struct params *p, const char *name, const struct place *t)
{
    static const char *const step[] = {"d"};
    const struct product one = product_of(1);
    char member[32];
    snprintf(member, sizeof member, "%s_d", name);
    if (t->arg >= 0)
        params_strides(p, name, step, t->arg, 1, 3);
    else
        params_product(p, member, &one);
}
