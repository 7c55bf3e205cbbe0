/*
 * cases_f32.c: attention of f32 tensors, whose products are three of bf16 each, on the portable kernels. In:
 * nothing. Out: cases at the end of the list. Bounds are such that one product of bf16, or of tf32, fails.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct inline_spec OWN[] = {{"partial_rotary", PARTIAL_ROTARY},
                                         {"mods", SPEC_mods},
                                         {"outputs", SPEC_outputs},
                                         {"distances", DISTANCES},
                                         {"pair_bias", SPEC_pair_bias},
                                         {"stripes", SPEC_stripes},
                                         {"blocks", SPEC_blocks},
                                         {"bare", SPEC_bare},
                                         {"logistic_sums", SPEC_logistic_sums},
                                         {"mean_abs", SPEC_mean_abs},
                                         {"steep", SPEC_steep},
                                         {"squares", SPEC_squares},
                                         {"capped", SPEC_capped}};
static const char *const SHIPPED[] = {"full",    "causal",        "alibi",   "sliding_window", "document",
                                      "softcap", "relative_bias", "sigmoid", "relu",           "retention",
                                      "sinks",   "rope",          "qk_norm", "dropout"};

struct shape {
    int b, h, h_kv, q, kv, layout;
    bool skewed, infinite;
};
/* Lengths on and beside the edges of tiles, rows without keys, groups. */
static const struct shape SHAPES[] = {
    {2, 2, 1, 65, 65, LAYOUT_COMPACT, false, false},    {1, 4, 2, 130, 257, LAYOUT_PADDED, false, false},
    {1, 2, 2, 130, 63, LAYOUT_SWAPPED, false, false},   {2, 3, 1, 1, 127, LAYOUT_SWAPPED, false, false},
    {1, 2, 1, 64, 130, LAYOUT_COMPACT, true, false},    {1, 2, 1, 70, 140, LAYOUT_PADDED, false, true},
    {1, 2, 1, 17, 0, LAYOUT_COMPACT, false, false},     {1, 2, 1, 0, 17, LAYOUT_COMPACT, false, false},
    {2, 2, 1, 65, 66, LAYOUT_MISALIGNED, false, false},
};

static void add_shapes(struct case_list *list, struct test_case c, int n)
{
    for (int i = 0; i < n; i++) {
        const struct shape *s = &SHAPES[i];
        case_shape(&c, s->b, s->h, s->h_kv, s->q, s->kv);
        c.layout = (enum layout)s->layout;
        c.skewed = s->skewed;
        c.infinite = s->infinite;
        case_add(list, &c);
    }
}

/* Widths of swizzles, and each row of tiles: those of sm_86 are the small ones. */
static void add_dims(struct case_list *list)
{
    static const int DIMS[][3] = {{16, 16, 80},   {24, 40, 90},   {72, 96, 80},
                                  {128, 128, 80}, {128, 128, 86}, {192, 256, 90},
                                  {256, 256, 80}, {256, 256, 86}, {192, 128, 86}};
    for (int i = 0; i < COUNT(DIMS); i++)
        add_shapes(
            list, case_of_attention("f32", "causal", NULL, LATHE_F32, DIMS[i][0], DIMS[i][1], DIMS[i][2]), 3);
}

/* Packed sequences, of which some are empty; keys in pages. */
static void add_packed(struct case_list *list)
{
    struct test_case c = case_of_attention("f32", "causal", NULL, LATHE_F32, 64, 64, 90);
    c.dim[SYM_B] = 1;
    c.dim[SYM_H] = 2;
    c.dim[SYM_H_KV] = 1;
    c.dim[SYM_Q] = 200;
    c.dim[SYM_KV] = 230;
    c.dim[SYM_SEQS] = 5;
    c.without = " used_kv ";
    case_add(list, &c);
    c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
    c.dim[SYM_Q] = 70;
    c.dim[SYM_PAGE] = 16;
    c.dim[SYM_MOST] = 13;
    c.dim[SYM_KV] = 208;
    c.dim[SYM_POOL] = 42;
    c.without = " cu_q cu_kv ";
    case_add(list, &c);
}

void group_f32(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_shapes(list, case_of_attention("f32", SHIPPED[i], NULL, LATHE_F32, 64, 64, i % 2 ? 90 : 80),
                   full || i < 3 ? COUNT(SHAPES) : 6);
    for (int i = 0; i < COUNT(OWN); i++)
        add_shapes(list,
                   case_of_attention("f32", OWN[i].name, OWN[i].text, LATHE_F32, 64, i % 2 ? 64 : 40, 90),
                   full ? COUNT(SHAPES) : 6);
    add_dims(list);
    add_packed(list);
}
