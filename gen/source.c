/*
 * source.c: the two operations on what crosses from gen/ to runtime/. In: a source, or a product of sizes and
 * a problem that binds them. Out: nothing, or a number that saturates instead of wrapping. The texts
 * of a source belong to it; the struct itself is the caller's.
 */
#include "source.h"

#include <stdlib.h>

void source_free(struct source *source)
{
    if (!source)
        return;
    for (int i = 0; i < source->n_texts; i++) {
        free(source->text[i].data);
        source->text[i].data = NULL;
        source->text[i].size = 0;
    }
    source->n_texts = 0;
}

/* A size that is not bound (of an absent optional argument) counts as 0: there is nothing of it. */
int64_t product_value(const struct product *p, const struct problem *problem)
{
    int64_t value = p->scale;
    for (int i = 0; i < p->n; i++) {
        const int64_t dim = problem->dim[p->factor[i].sym];
        const int64_t tile = p->factor[i].tile > 1 ? p->factor[i].tile : 1;
        const int64_t count = dim > 0 ? (dim - 1) / tile + 1 : 0;
        if (count == 0)
            return 0;
        if (__builtin_mul_overflow(value, count, &value))
            value = INT64_MAX;
    }
    return value;
}
