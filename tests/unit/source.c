/*
 * source.c: two sources are the same where texts and recipes are, and differ where any field of a recipe
 * does.
 */
#include "check.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

static const struct param PARAM = {.kind = PARAM_PRODUCT, .arg = 2, .dim = 1, .offset = 8};

static void fill(struct source *s, struct param *param)
{
    static char text[] = "int x;";
    memset(s, 0, sizeof *s);
    *param = PARAM;
    param->product.scale = 3;
    param->product.n = 1;
    param->product.factor[0].tile = 64;
    s->n_texts = 1;
    snprintf(s->text[0].name, sizeof s->text[0].name, "kernel.cu");
    s->text[0].data = text;
    s->text[0].size = sizeof text - 1;
    s->n_buffers = 1;
    s->n_launches = 1;
    struct launch *l = &s->launch[0];
    snprintf(l->entry, sizeof l->entry, "lathe_kernel");
    l->grid.n = 1;
    l->param = param;
    l->n_params = 1;
    l->n_maps = 1;
}

/* `change` is made to the second of two that were the same; p is its parameter, l its launch, m its map. */
#define CHECK_TOLD_APART(change)                                                                             \
    do {                                                                                                     \
        struct source first;                                                                                 \
        struct source second;                                                                                \
        struct param of_first;                                                                               \
        struct param of_second;                                                                              \
        struct param *const p = &of_second;                                                                  \
        struct launch *const l = &second.launch[0];                                                          \
        struct tensor_map_row *const m = &l->map[0];                                                         \
        fill(&first, &of_first);                                                                             \
        fill(&second, p);                                                                                    \
        CHECK(source_same(&first, &second));                                                                 \
        CHECK(p &&l &&m);                                                                                    \
        change;                                                                                              \
        CHECK(!source_same(&first, &second));                                                                \
    } while (0)

TEST(launches_of_which_a_field_differs_are_not_the_same)
{
    CHECK_TOLD_APART(l->entry[0]++);
    CHECK_TOLD_APART(l->grid.scale++);
    CHECK_TOLD_APART(l->grid.factor[0].sym++);
    CHECK_TOLD_APART(l->threads++);
    CHECK_TOLD_APART(l->smem_bytes++);
    CHECK_TOLD_APART(l->n_params--);
    CHECK_TOLD_APART(l->param_bytes++);
    CHECK_TOLD_APART(l->n_maps--);
    CHECK_TOLD_APART(l->grid_limit++);
    CHECK_TOLD_APART(l->cluster++);
    CHECK_TOLD_APART(l->early = !l->early);
    CHECK_TOLD_APART(l->kept = !l->kept);
    CHECK_TOLD_APART(l->grid_share++);
}

TEST(parameters_of_which_a_field_differs_are_not_the_same)
{
    CHECK_TOLD_APART(p->kind--);
    CHECK_TOLD_APART(p->arg++);
    CHECK_TOLD_APART(p->dim++);
    CHECK_TOLD_APART(p->offset++);
    CHECK_TOLD_APART(p->product.scale++);
    CHECK_TOLD_APART(p->product.n--);
    CHECK_TOLD_APART(p->product.factor[0].sym++);
    CHECK_TOLD_APART(p->product.factor[0].tile++);
    CHECK_TOLD_APART(p->product.factor[0].times++);
}

TEST(tensor_maps_of_which_a_field_differs_are_not_the_same)
{
    CHECK_TOLD_APART(m->offset++);
    CHECK_TOLD_APART(m->data++);
    CHECK_TOLD_APART(m->strides++);
    CHECK_TOLD_APART(m->columns++);
    CHECK_TOLD_APART(m->dim[2]++);
    CHECK_TOLD_APART(m->dtype++);
    CHECK_TOLD_APART(m->swizzle++);
    CHECK_TOLD_APART(m->box_tokens++);
    CHECK_TOLD_APART(m->packed = !m->packed);
    CHECK_TOLD_APART(m->pack++);
}

TEST(texts_and_buffers_count_too)
{
    CHECK_TOLD_APART(second.text[0].name[0]++);
    CHECK_TOLD_APART(second.text[0].size--);
    CHECK_TOLD_APART(second.buffer[0].zero = true);
    CHECK_TOLD_APART(second.buffer[0].bytes.scale++);
    CHECK_TOLD_APART(second.buffer[0].most.scale++);
    CHECK_TOLD_APART(second.n_buffers--);
}
