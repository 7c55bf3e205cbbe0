/*
 * cases_variants.c: shipped specs of masks, scores and weights that papers have: natten, sliding tiles, block
 * diffusion, graphs, gates, pairs, HSTU. In: nothing. Out: cases at the end of the list, both passes,
 * portable and Hopper's.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char *const SPEC[] = {"natten_1d",     "natten_2d",       "natten_3d",     "sliding_tile",
                                   "shared_prefix", "block_diffusion", "global_window", "flamingo",
                                   "graphormer",    "sandwich",        "forgetting",    "hstu",
                                   "pair_bias",     "max_score"};

struct shape {
    int b, h, h_kv, q, kv;
    enum layout layout;
    const char *without; /* backward: names between spaces */
    bool deterministic;
};
/* The first is larger than a tile both ways. */
static const struct shape SHAPES[] = {
    {2, 4, 2, 140, 140, LAYOUT_COMPACT, "", false},
    {1, 2, 1, 70, 130, LAYOUT_PADDED, " o lse dlse ", true},
    {1, 2, 2, 97, 63, LAYOUT_SWAPPED, " dq ", false},
};

static void add_shapes(struct case_list *list, struct test_case c, int n)
{
    for (int i = 0; i < n; i++) {
        const struct shape *s = &SHAPES[i];
        c.dim[SYM_B] = s->b;
        c.dim[SYM_H] = s->h;
        c.dim[SYM_H_KV] = s->h_kv;
        c.dim[SYM_Q] = s->q;
        c.dim[SYM_KV] = s->kv;
        c.layout = s->layout;
        c.without = c.pass == LATHE_BACKWARD ? s->without : NULL;
        c.deterministic = c.pass == LATHE_BACKWARD && s->deterministic;
        c.infinite = i == 1 && c.pass == LATHE_FORWARD && strcmp(c.spec, "pair_bias") == 0;
        case_add(list, &c);
    }
}

static struct test_case variant(const char *spec, lathe_dtype dtype, int d, int sm, lathe_pass pass)
{
    struct test_case c = case_of_attention("variants", spec, NULL, dtype, d, d, sm);
    c.pass = pass;
    if (strcmp(spec, "pair_bias") ==
        0) { /* all batches share the bias: heads and batches add to one element */
        c.dim[SYM_FREE] = 1;
        c.may_refuse = pass == LATHE_BACKWARD;
    }
    return c;
}

void group_variants(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPEC); i++) {
        const lathe_dtype one = i % 2 ? LATHE_F16 : LATHE_BF16;
        const lathe_dtype other = i % 2 ? LATHE_BF16 : LATHE_F16;
        struct test_case hopper = variant(SPEC[i], other, 64, 90, LATHE_FORWARD);
        struct test_case back = variant(SPEC[i], one, 64, 90, LATHE_BACKWARD);
        hopper.template_name = "attention_fwd_sm90";
        back.template_name = "attention_bwd_sm90";
        add_shapes(list, variant(SPEC[i], one, i % 3 ? 64 : 128, 80, LATHE_FORWARD), COUNT(SHAPES));
        add_shapes(list, hopper, full ? COUNT(SHAPES) : 2);
        add_shapes(list, variant(SPEC[i], other, 64, 80, LATHE_BACKWARD), COUNT(SHAPES));
        add_shapes(list, back, full ? COUNT(SHAPES) : 2);
        if (full || i >= COUNT(SPEC) - 4) {
            add_shapes(list, variant(SPEC[i], LATHE_F32, 64, 80, LATHE_FORWARD), 2);
            add_shapes(list, variant(SPEC[i], LATHE_F32, 64, 80, LATHE_BACKWARD), 2);
        }
    }
}
