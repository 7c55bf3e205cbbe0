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
        case_shape(&c, s->b, s->h, s->h_kv, s->q, s->kv);
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
    if (strcmp(spec, "sandwich") == 0)
        c.dim[SYM_FREE] = 300; /* distances */
    if (strcmp(spec, "pair_bias") ==
        0) { /* all batches share the bias: heads and batches add to one element */
        c.dim[SYM_FREE] = 1;
        c.may_refuse = pass == LATHE_BACKWARD;
    }
    return c;
}

/* Convolutions over time: channels in vectors and beside them, sequences shorter and longer than the taps,
 * without what is optional; the backward pass of those that have one. */
static void add_convolutions(struct case_list *list)
{
    static const char *const CONV[] = {"short_conv", "short_conv_back", "rms_norm_conv", "short_conv_step"};
    static const struct {
        const char *sizes;
        enum layout layout;
        bool absent, deterministic;
    } SIZE[] = {
        {"b=2,t=19,c=40,seqs=5", LAYOUT_COMPACT, false, false},
        {"b=1,t=70,c=33,seqs=11", LAYOUT_MISALIGNED, false, true},
        {"b=3,t=2,c=16,seqs=4", LAYOUT_PADDED, true, false},
        {"b=1,t=1,c=264,seqs=1", LAYOUT_SWAPPED, false, false},
        {"b=2,t=0,c=8,seqs=2", LAYOUT_COMPACT, true, false},
    };
    for (int i = 0; i < COUNT(CONV) * COUNT(SIZE); i++)
        for (int pass = LATHE_FORWARD; pass <= (i / COUNT(SIZE) % 2 ? LATHE_FORWARD : LATHE_BACKWARD);
             pass++) {
            const int k = i % COUNT(SIZE);
            struct test_case c;
            memset(&c, 0, sizeof c);
            for (int d = 0; d < SYM_COUNT; d++)
                c.dim[d] = -1;
            c.group = "variants";
            c.spec = CONV[i / COUNT(SIZE)];
            c.pass = (lathe_pass)pass;
            c.dtype = k == 1 ? LATHE_F32 : k == 3 ? LATHE_F16 : LATHE_BF16;
            c.sm = k == 3 ? 80 : 90;
            c.sizes = SIZE[k].sizes;
            c.layout = SIZE[k].layout;
            c.absent = SIZE[k].absent;
            c.deterministic = pass == LATHE_BACKWARD && SIZE[k].deterministic;
            case_add(list, &c);
        }
}

void group_variants(struct case_list *list, bool full)
{
    add_convolutions(list);
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
