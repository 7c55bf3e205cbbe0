/*
 * source.c: what crosses from gen/ to runtime/, compared and freed. In: sources. Out: whether two are the
 * same; of one, texts and rows of its recipe are freed. The struct itself is the caller's. (What a launch
 * computes from a recipe is in runtime/recipe/bind.c, because a library with its kernels compiled in needs
 * that too.)
 */
#include "runtime/recipe/bind.h"

#include <stdlib.h>
#include <string.h>

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

/* Every field counts, of a launch and of what it holds: a recipe stands for all archs that share it. */

static bool same_product(const struct product *a, const struct product *b)
{
    bool same = a->scale == b->scale && a->n == b->n && a->grouped == b->grouped;
    for (int i = 0; same && i < a->n; i++)
        same = a->factor[i].sym == b->factor[i].sym && a->factor[i].tile == b->factor[i].tile &&
               a->factor[i].plus == b->factor[i].plus && a->factor[i].times == b->factor[i].times;
    return same;
}

static bool same_map(const struct tensor_map_row *a, const struct tensor_map_row *b)
{
    return a->offset == b->offset && a->data == b->data && a->strides == b->strides &&
           a->columns == b->columns && memcmp(a->dim, b->dim, sizeof a->dim) == 0 && a->dtype == b->dtype &&
           a->swizzle == b->swizzle && a->box_tokens == b->box_tokens && a->packed == b->packed &&
           a->pack == b->pack;
}

static bool same_launch(const struct launch *a, const struct launch *b)
{
    bool same = strcmp(a->entry, b->entry) == 0 && same_product(&a->grid, &b->grid) &&
                a->threads == b->threads && a->smem_bytes == b->smem_bytes && a->n_params == b->n_params &&
                a->param_bytes == b->param_bytes && a->n_maps == b->n_maps &&
                a->grid_share == b->grid_share && a->grid_limit == b->grid_limit &&
                a->cluster == b->cluster && a->when == b->when && a->least == b->least &&
                a->most == b->most && a->early == b->early && a->kept == b->kept;
    for (int i = 0; same && i < a->n_params; i++)
        same = a->param[i].kind == b->param[i].kind && a->param[i].arg == b->param[i].arg &&
               a->param[i].dim == b->param[i].dim && a->param[i].offset == b->param[i].offset &&
               same_product(&a->param[i].product, &b->param[i].product);
    for (int i = 0; same && i < a->n_maps; i++)
        same = same_map(&a->map[i], &b->map[i]);
    return same;
}

bool source_same(const struct source *a, const struct source *b)
{
    bool same = a->n_texts == b->n_texts && a->n_launches == b->n_launches && a->n_buffers == b->n_buffers;
    for (int i = 0; same && i < a->n_texts; i++)
        same = strcmp(a->text[i].name, b->text[i].name) == 0 && a->text[i].size == b->text[i].size &&
               memcmp(a->text[i].data, b->text[i].data, a->text[i].size) == 0;
    for (int i = 0; same && i < a->n_launches; i++)
        same = same_launch(&a->launch[i], &b->launch[i]);
    for (int i = 0; same && i < a->n_buffers; i++)
        same = a->buffer[i].zero == b->buffer[i].zero &&
               same_product(&a->buffer[i].bytes, &b->buffer[i].bytes) &&
               same_product(&a->buffer[i].most, &b->buffer[i].most);
    return same;
}
