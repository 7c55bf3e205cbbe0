/*
 * source.c: the end of what crosses from gen/ to runtime/. In: a source. Out: nothing; its texts and the rows
 * of its recipe are freed. The struct itself is the caller's. (What a launch computes from a recipe is in
 * runtime/bind.c, because a library with its kernels compiled in needs that too.)
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
    for (int i = 0; i < source->n_launches; i++) {
        free((void *)(uintptr_t)source->launch[i].param);
        source->launch[i].param = NULL;
        source->launch[i].n_params = 0;
    }
    source->n_texts = 0;
    source->n_launches = 0;
}
