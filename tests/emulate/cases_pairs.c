/*
 * cases_pairs.c: attention backward in pairs of thread blocks. Few columns, so that many pairs meet at the
 * same tiles in little time, in as many orders as --seeds says; then as many columns as the kernel is for.
 * And the same kernel without pairs, which lathe tune may take. In: the default or the full run. Out: cases
 * at the end of the list.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct {
    const char *spec;
    int d, d_v;
    bool deterministic;
} KERNELS[] = {
    {"full", 32, 32, false},
    {"causal", 32, 32, false},
    {"document", 32, 64, false},
    {"full", 32, 32, true},
    {"causal", 32, 32, true},
    {"sliding_window", 32, 32, false},
    {"document", 32, 32, true},
    {"full", 256, 256, false},
    {"causal", 256, 256, false},
    {"relative_bias", 64, 32, true},
    {"sliding_window", 192, 128, false},
};

/* Pairs of one head at the same time, as on a large device: they begin at different tiles and then follow
 * each other round. */
static const struct {
    int beside, b, h, h_kv, q, kv;
    const char *without;
} SIZES[] = {
    {4, 1, 6, 1, 256, 256, ""},      {8, 1, 1, 1, 390, 600, ""},  {16, 1, 2, 1, 520, 513, ""},
    {8, 2, 1, 1, 260, 390, " dv "},  {16, 2, 2, 2, 390, 500, ""}, {5, 1, 8, 2, 140, 300, " dk "},
    {4, 1, 2, 1, 0, 130, ""},        {4, 2, 1, 1, 130, 0, ""},    {8, 1, 2, 2, 1030, 520, ""},
    {8, 8, 2, 1, 33, 40, " dv dk "}, {4, 3, 3, 3, 64, 129, ""},
};

static const struct {
    const char *spec, *tile;
    int d;
    bool deterministic;
} SINGLE[] = {
    {"causal", "128x64w8p2s2", 32, false},
    {"document", "128x64w8p2s2", 64, true},
    {"full", "128x64w8p2s1", 256, false},
};

static void add_single(struct case_list *list, bool full)
{
    for (int i = 0; i < (full ? COUNT(SINGLE) : 1); i++) {
        struct test_case c =
            case_of_attention("pairs", SINGLE[i].spec, NULL, LATHE_BF16, SINGLE[i].d, SINGLE[i].d, 90);
        c.pass = LATHE_BACKWARD;
        c.template_name = "attention_bwd_wide_sm90";
        c.tile = SINGLE[i].tile;
        c.deterministic = SINGLE[i].deterministic;
        c.beside = 6;
        c.dim[SYM_B] = 1;
        c.dim[SYM_H] = c.dim[SYM_H_KV] = 2;
        c.dim[SYM_Q] = 270;
        c.dim[SYM_KV] = 330;
        case_add(list, &c);
    }
}

void group_pairs(struct case_list *list, bool full)
{
    add_single(list, full);
    for (int i = 0; i < (full ? COUNT(KERNELS) : 3); i++) {
        struct test_case c = case_of_attention("pairs", KERNELS[i].spec, NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                               KERNELS[i].d, KERNELS[i].d_v, 90);
        c.pass = LATHE_BACKWARD;
        c.template_name = "attention_bwd_wide_sm90";
        c.deterministic = KERNELS[i].deterministic;
        for (int k = 0; k < (full ? COUNT(SIZES) : 2); k++) {
            c.beside = SIZES[k].beside;
            case_shape(&c, SIZES[k].b, SIZES[k].h, SIZES[k].h_kv, SIZES[k].q, SIZES[k].kv);
            c.without = SIZES[k].without;
            case_add(list, &c);
        }
    }
}
