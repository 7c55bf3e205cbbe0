/*
 * cases_mla.c: wide head dims, and values that are the first elements of keys: every row of tiles, groups of
 * query heads, masks, tables and online functions of every kind, keys in pages, parts without a live key. In:
 * nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define V_IS_K      "v = 'k', scale = 0.05, "

static const char MLA[] = "attention_mla";
static const struct inline_spec SPECS[] = {
    {"whole", "return attention { " V_IS_K "}\n"},
    {"causal", "return attention { " V_IS_K "mask_mod = causal }\n"},
    {"apart", "return attention { mask_mod = causal }\n"},
    {"window", /* most parts have nothing */
     "return attention { " V_IS_K
     "mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40) end }\n"},
    {"by_head",
     "return attention { " V_IS_K
     "mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40 + 30 * at.h) end,\n"
     "  score_mod = function(s, at) return s - exp2(-8.0 * (at.h + 1) / at.n_h) * (at.q - at.kv) end }\n"},
    {"documents",
     "return attention { " V_IS_K "inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, x)\n"
     "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) // 9, x.doc(at.b, at.kv) // 9) end }\n"},
    {"tables", "return attention { " V_IS_K
               "inputs = { slope = tensor('f32', 'b', 'h'), bias = tensor('f32', 'h', 'kv'),\n"
               "    near = tensor('f32', 'h', 64) }, mask_mod = causal,\n"
               "  score_mod = function(s, at, x)\n"
               "    return s + x.slope(at.b, at.h) * 0.01 * (at.q - at.kv) + x.bias(at.h, at.kv)\n"
               "      + x.near(at.h, clamp(at.q - at.kv, 0, 63)) + 0.01 * at.len_q end }\n"},
    {"holes", /* no row sees any of the first half, and row 0 nothing at all */
     "return attention { " V_IS_K "mask_mod = function(at)\n"
     "  return ge(at.kv * 2, at.len_kv) & ne(at.kv % 3, 0) & gt(at.row, 0) end }\n"},
    {"mods", /* of what is no key: through the workspace */
     "return attention { " V_IS_K "query_mod = function(x) return 0.5 * x end,\n"
     "  output_mod = function(o) return o + 0.5 end }\n"},
};
static const struct inline_spec OWN[] = {{"gate", SPEC_gate}, {"squares", SPEC_squares}};
static const char *const SHIPPED[] = {"mla", "sigmoid", "sinks", "softcap", "retention"};

static const struct {
    int b, h, h_kv, q, kv;
} SHAPES[] = {
    {2, 16, 1, 1, 300}, {1, 20, 1, 4, 130}, {1, 6, 2, 3, 97},
    {1, 70, 1, 1, 40},  {1, 2, 1, 33, 65},  {1, 3, 1, 2, 0},
};
/* Of keys in pages. */
static const struct {
    int page, most;
} PAGES[] = {{64, 5}, {16, 13}, {1, 150}, {3, 40}};

static void set_shape(struct test_case *c, int shape)
{
    c->template_name = MLA;
    case_shape(c, SHAPES[shape].b, SHAPES[shape].h, SHAPES[shape].h_kv, SHAPES[shape].q, SHAPES[shape].kv);
    c->layout = shape % 3 == 0 ? LAYOUT_COMPACT : shape % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
}

static void add(struct case_list *list, struct test_case c, int shape)
{
    set_shape(&c, shape);
    case_add(list, &c);
}

/* Of a batch, some of whose keys are in use. */
static void add_paged(struct case_list *list, struct test_case c, int shape, int pages)
{
    set_shape(&c, shape);
    c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
    c.without = " cu_q cu_kv ";
    if (pages >= 0) {
        c.dim[SYM_PAGE] = PAGES[pages].page;
        c.dim[SYM_MOST] = PAGES[pages].most;
        c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
        c.dim[SYM_POOL] = 3 * c.dim[SYM_MOST] + 3;
    }
    case_add(list, &c);
}

/* Packed queries of few tokens each, against keys in pages or beside each other. */
static void add_packed(struct case_list *list, struct test_case c, bool pages)
{
    add_paged(list, c, 0, pages ? 1 : -1);
    c = list->item[--list->n];
    c.without = pages ? " cu_kv " : " used_kv ";
    c.dim[SYM_B] = 1;
    c.dim[SYM_SEQS] = 6;
    c.dim[SYM_H] = 8;
    c.dim[SYM_Q] = 31;
    c.dim[SYM_KV] = pages ? c.dim[SYM_KV] : 1400;
    c.dim[SYM_POOL] = pages ? 6 * c.dim[SYM_MOST] + 3 : -1;
    case_add(list, &c);
}

/* Widths of swizzles, with V in K and apart. */
static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{576, 512}, {576, 512}, {272, 272}, {320, 24},  {512, 512},
                                  {80, 40},   {128, 512}, {24, 16},   {400, 136}, {264, 264}};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(DIMS); i++) {
        const int sm = SM[i % COUNT(SM)];
        const lathe_dtype dtype = i % 2 ? LATHE_F16 : LATHE_BF16;
        if (DIMS[i][1] <= DIMS[i][0])
            add(list,
                case_of_attention("mla", SPECS[1].name, SPECS[1].text, dtype, DIMS[i][0], DIMS[i][1], sm),
                i % COUNT(SHAPES));
        add(list, case_of_attention("mla", SPECS[2].name, SPECS[2].text, dtype, DIMS[i][0], DIMS[i][1], sm),
            (i + 1) % COUNT(SHAPES));
    }
}

static void add_tiles(struct case_list *list)
{
    static const char *const tile[] = {"64x32s3w8", "64x32s2w8", "64x16s2w8", "32x32s2w8",
                                       "32x16s2w4", "16x32s2w4", "16x16s2w4"};
    for (int i = 0; i < COUNT(tile); i++) {
        struct test_case c =
            case_of_attention("mla", SPECS[1].name, SPECS[1].text, LATHE_BF16, 160, 128, i % 2 ? 80 : 90);
        c.tile = tile[i];
        add(list, c, i % 4);
    }
}

/* Gradients of the absorbed form by wgmma: masks of every class of tile, groups of heads, batches, rows with
   large finals, gradients that are not wanted, and head dims that leave columns empty. */
static void add_latent_backward(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {
        {"mla", NULL},
        {"whole", "return attention { " V_IS_K "}\n"},
        {"window", "return attention { " V_IS_K
                   "mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40) end }\n"},
        {"capped", "return attention { " V_IS_K "mask_mod = causal,\n"
                   "  score_mod = function(s) return 20 * tanh(s / 20) end }\n"},
        {"by_distance",
         "return attention { " V_IS_K "mask_mod = causal,\n"
         "  score_mod = function(s, at) return s - exp2(-8.0 * (at.h + 1) / at.n_h) * (at.q - at.kv)\n"
         "    + 0.3 * sin(0.2 * (at.q - at.kv)) end }\n"},
        {"weights", "return attention { " V_IS_K
                    "online_func = elementwise_weights(function(s) return sigmoid(s) end) }\n"},
        {"rotated", "return attention { " V_IS_K "mask_mod = causal, query_mod = half(function(a, b, at)\n"
                    "  return a * cos(0.1 * at.pos) - b, b * cos(0.1 * at.pos) + a end) }\n"},
    };
    static const struct {
        int b, h, h_kv, q, kv;
    } SHAPE[] = {
        {1, 4, 1, 150, 150}, {2, 2, 2, 64, 200}, {1, 6, 2, 70, 33}, {1, 3, 1, 1, 130}, {1, 2, 1, 200, 0}};
    static const int DIMS[][2] = {{576, 512}, {576, 480}, {552, 128}};
    static const char *const WITHOUT[] = {"", " dlse ", " dq ", " dk ", ""};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int k = 0; k < COUNT(SHAPE); k++) {
            if (i > 1 && k != i % 3)
                continue;
            const int *dim = DIMS[i < 2 ? k % 3 : 0];
            struct test_case c = case_of_attention("latent_back", SPEC[i].name, SPEC[i].text,
                                                   (i + k) % 2 ? LATHE_F16 : LATHE_BF16, dim[0], dim[1], 90);
            c.pass = LATHE_BACKWARD;
            case_shape(&c, SHAPE[k].b, SHAPE[k].h, SHAPE[k].h_kv, SHAPE[k].q, SHAPE[k].kv);
            c.template_name = "attention_bwd_latent_sm90";
            c.layout = (enum layout)((i + k) % (LAYOUT_PADDED + 1));
            c.without = WITHOUT[i < 2 ? (i + k) % COUNT(WITHOUT) : 0];
            c.skewed = k == 1;
            c.beside = k == 0 ? 4 : 0;
            case_add(list, &c);
        }
    struct test_case c = case_of_attention("latent_back", "mla_decoupled", NULL, LATHE_BF16, 512, 512, 90);
    c.dim[SYM_D2] = 64;
    c.pass = LATHE_BACKWARD;
    c.template_name = "attention_bwd_latent_sm90";
    case_shape(&c, 1, 4, 1, 90, 100);
    case_add(list, &c);
}

/* Head dims that are no multiple of 8: tensors are copied to rows that are. */
static void add_odd(struct case_list *list)
{
    static const int DIMS[][2] = {{100, 100}, {100, 64}, {64, 50}, {17, 33}, {250, 255}};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    static const int SM[] = {80, 90, 86};
    static const char *const SPEC[] = {"causal", "alibi", "document"};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < 3; k++) {
            struct test_case c = case_of_attention("odd", SPEC[(i + k) % 3], NULL, DTYPE[k], DIMS[i][0],
                                                   DIMS[i][1], SM[i % 3]);
            c.dim[SYM_B] = 2;
            c.dim[SYM_H] = 4;
            c.dim[SYM_H_KV] = 2;
            c.dim[SYM_Q] = 1 + 35 * k;
            c.dim[SYM_KV] = 97;
            c.template_name = "attention_fwd_sm80";
            c.layout = (enum layout)((i + k) % LAYOUT_COUNT);
            case_add(list, &c);
            c.dim[SYM_KV] = 20; /* rows without keys */
            if (strcmp(c.spec, "causal") == 0)
                case_add(list, &c);
        }
}

/* Beyond 256, and no multiple of 8. */
static void add_odd_wide(struct case_list *list)
{
    static const int DIMS[][2] = {{300, 300}, {300, 64}, {576, 510}, {100, 301}, {300, 264}};
    static const char *const SPEC[] = {"causal", "alibi", "sinks"};
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c = case_of_attention("odd", SPEC[i % 3], NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                               DIMS[i][0], DIMS[i][1], i % 2 ? 80 : 90);
        c.dim[SYM_B] = 2;
        c.dim[SYM_H] = 4;
        c.dim[SYM_H_KV] = 2;
        c.dim[SYM_Q] = 1 + 16 * i;
        c.dim[SYM_KV] = 97;
        c.template_name = "attention_mla";
        c.layout = (enum layout)(i % LAYOUT_COUNT);
        case_add(list, &c);
        c.group = "odd_back";
        c.pass = LATHE_BACKWARD;
        c.template_name = "attention_bwd_slices";
        c.dim[SYM_Q] = 20;
        if (DIMS[i][1] % 8 == 0)
            case_add(list, &c);
    }
}

/* The same backward: copies of do, too, and gradients that come from wider rows; o that is given is not read.
 */
static void add_odd_backward(struct case_list *list)
{
    static const int DIMS[][2] = {{100, 100}, {100, 64}, {64, 50}, {17, 33}, {250, 255}};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    static const int SM[] = {80, 90, 86};
    static const struct inline_spec SPEC[] = {{"causal", NULL}, {"slopes", SPEC_slopes}, {"document", NULL}};
    static const char *const WITHOUT[] = {"", " o lse ", " dq dv ", " dk "};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < 3; k++) {
            const struct inline_spec *spec = &SPEC[(i + k) % 3];
            struct test_case c = case_of_attention("odd_back", spec->name, spec->text, DTYPE[k], DIMS[i][0],
                                                   DIMS[i][1], SM[(i + k) % 3]);
            c.pass = LATHE_BACKWARD;
            c.dim[SYM_B] = 2;
            c.dim[SYM_H] = 4;
            c.dim[SYM_H_KV] = 2;
            c.dim[SYM_Q] = 1 + 35 * k;
            c.dim[SYM_KV] = 97 - 70 * (k == 2);
            c.template_name = "attention_bwd_sm80";
            c.layout = (enum layout)((i + k) % LAYOUT_COUNT);
            c.without = WITHOUT[(i + k) % COUNT(WITHOUT)];
            c.deterministic = i % 2 != 0;
            case_add(list, &c);
        }
}

/* Gradients of wide head dims, and of values that lie in keys. */
static void add_wide_backward(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {{"mla", NULL},
                                              {"apart", "return attention { mask_mod = causal }\n"},
                                              {"slopes", SPEC_slopes} /* a gradient of an input */,
                                              {"relative_bias", NULL},
                                              {"rope", NULL},
                                              {"document", NULL},
                                              {"tokens", SPEC_tokens},
                                              {"sinks", NULL}};
    static const int DIMS[][2] = {{576, 512}, {320, 24}, {264, 272}, {288, 512}, {272, 272}, {400, 136}};
    static const char *const WITHOUT[] = {"", " dlse ", " dq dv ", " dk ", " dv dlse "};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int k = 0; k < (i < 2 ? 4 : 2); k++) {
            const int *dim = DIMS[i == 0 ? 0 : (i + k) % COUNT(DIMS)];
            struct test_case c =
                case_of_attention("wide_back", SPEC[i].name, SPEC[i].text, k % 2 ? LATHE_F16 : LATHE_BF16,
                                  dim[0], dim[1], SM[(i + k) % 3]);
            c.pass = LATHE_BACKWARD;
            c.dim[SYM_B] = 1 + k % 2;
            c.dim[SYM_H] = 4;
            c.dim[SYM_H_KV] = k % 2 + 1;
            c.dim[SYM_Q] = 20 + 55 * k;
            c.dim[SYM_KV] = 97 - 60 * (k == 2);
            c.template_name = "attention_bwd_slices";
            c.layout = (enum layout)((i + k) % LAYOUT_COUNT);
            c.without = WITHOUT[(i + k) % COUNT(WITHOUT)];
            c.deterministic = i % 2 == k % 2;
            c.skewed = (i + k) % 4 == 3;
            case_add(list, &c);
        }
}

/* The same of head dims that other templates have, which runs the forward kernel first where it is asked to.
 */
static void add_values_in_keys(struct case_list *list)
{
    static const char *const WITHOUT[] = {"", " o lse ", " dlse ", " dq "};
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < 2; k++) {
            struct test_case c =
                case_of_attention("wide_back", SPECS[i].name, SPECS[i].text, k ? LATHE_F16 : LATHE_BF16,
                                  k ? 72 : 192, k ? 40 : 128, k ? 80 : 90);
            c.pass = LATHE_BACKWARD;
            c.dim[SYM_B] = 2;
            c.dim[SYM_H] = 6;
            c.dim[SYM_H_KV] = 2;
            c.dim[SYM_Q] = k ? 33 : 70;
            c.dim[SYM_KV] = k ? 20 : 130;
            c.template_name = "attention_bwd_slices";
            c.tile = k ? "32x64w4p1s2" : NULL;
            c.layout = (enum layout)((i + k) % LAYOUT_COUNT);
            c.without = WITHOUT[(i + k) % COUNT(WITHOUT)];
            case_add(list, &c);
        }
}

/* A second pair of q and k: read where keys are cut into parts, also of pages; copied for whole rows. */
static void add_pairs(struct case_list *list)
{
    static const struct inline_spec PAIRS[] = {
        {"mla_decoupled", NULL},
        {"pair_apart",
         "return attention { qk2 = true, mask_mod = causal }\n"}, /* of all elements is the scale made */
        {"pair_window", "return attention { qk2 = true, v = 'k', scale = 0.05, output_mod = function(o) "
                        "return o + 0.5 end,\n"
                        "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40) end,\n"
                        "  score_mod = function(s, at) return s - exp2(-8.0 * (at.h + 1) / at.n_h) * (at.q - "
                        "at.kv) / at.d end }\n"}};
    static const int DIMS[][3] = {{512, 64, 512}, {128, 64, 128}, {40, 8, 24}, {64, 72, 64}, {24, 40, 16}};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(PAIRS); i++)
        for (int k = 0; k < COUNT(DIMS); k++) {
            struct test_case c =
                case_of_attention("second_pair", PAIRS[i].name, PAIRS[i].text, k % 2 ? LATHE_F16 : LATHE_BF16,
                                  DIMS[k][0], DIMS[k][2], SM[(i + k) % 3]);
            c.dim[SYM_D2] = DIMS[k][1];
            add(list, c, (i + k) % COUNT(SHAPES));
            c.layout = LAYOUT_MISALIGNED; /* copied here, too */
            set_shape(&c, (i + k) % 5);
            c.layout = k % 2 ? LAYOUT_MISALIGNED : LAYOUT_SPREAD;
            case_add(list, &c);
            if (k > 0) {
                set_shape(&c, (i + k) % 5);
                c.template_name = "attention_fwd_sm80";
                case_add(list, &c);
            }
            if (i < 2 && k < 3)
                add_paged(list, c, i, k - 1);
        }
    struct test_case c =
        case_of_attention("second_pair", PAIRS[1].name, PAIRS[1].text, LATHE_F32, 64, 32, 80);
    c.dim[SYM_D2] = 16;
    set_shape(&c, 4);
    c.template_name = "attention_fwd_sm80";
    case_add(list, &c);
}

/* Gradients of both pairs, of which some may not be asked for. */
static void add_pairs_backward(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {
        {"mla_decoupled", NULL},
        {"pair_apart", "return attention { qk2 = true, mask_mod = causal }\n"},
        {"pair_slopes",
         "return attention { qk2 = true, inputs = { slope = tensor('f32', 'h', { grad = true }) },\n"
         "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40) end,\n"
         "  score_mod = function(s, at, x) return s - x.slope(at.h) * (at.q - at.kv) / at.d end,\n"
         "  output_mod = function(o) return o + 0.5 end }\n"}};
    static const int DIMS[][3] = {{128, 64, 128}, {40, 8, 24}, {64, 72, 64}, {24, 40, 16}, {512, 64, 512}};
    static const char *const TEMPLATE[] = {"attention_bwd_sm80", "attention_bwd_slices", "attention_bwd_sm90",
                                           "attention_bwd_wide_sm90"};
    static const char *const WITHOUT[] = {"",      " dq2 ",    " dk dv ", " dq dlse ",
                                          " dk2 ", " dq dq2 ", " o lse "};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int k = 0; k < COUNT(DIMS); k++)
            for (int t = 0; t < COUNT(TEMPLATE); t++) {
                const bool hopper = t > 1;
                const bool wide = DIMS[k][0] > 256;
                const bool in_keys = i == 0;
                if ((in_keys || wide) != (t == 1) || (t == 2 && DIMS[k][0] + DIMS[k][1] > 128) ||
                    (wide && i == 2))
                    continue;
                struct test_case c = case_of_attention("second_pair_back", SPEC[i].name, SPEC[i].text,
                                                       DTYPE[t == 0 ? (i + k) % 3 : k % 2], DIMS[k][0],
                                                       DIMS[k][2], hopper ? 90 : 80 + 6 * (k % 2));
                c.pass = LATHE_BACKWARD;
                c.dim[SYM_D2] = DIMS[k][1];
                c.dim[SYM_B] = 2;
                c.dim[SYM_H] = 4;
                c.dim[SYM_H_KV] = 1 + k % 2;
                c.dim[SYM_Q] = 20 + 35 * (k % 3);
                c.dim[SYM_KV] = 97 - 70 * (k == 3);
                c.template_name = TEMPLATE[t];
                c.layout = (enum layout)((i + k + t) % LAYOUT_COUNT);
                c.without = wide ? "" : WITHOUT[(i + k + t) % COUNT(WITHOUT)];
                c.deterministic = (k + t) % 3 == 0;
                case_add(list, &c);
            }
    for (int k = 0; k < COUNT(DIMS) - 1; k++) { /* whole rows for Hopper */
        struct test_case c = case_of_attention("second_pair", SPEC[2].name, SPEC[2].text,
                                               k % 2 ? LATHE_F16 : LATHE_BF16, DIMS[k][0], DIMS[k][2], 90);
        c.dim[SYM_D2] = DIMS[k][1];
        set_shape(&c, 4 - k % 2);
        c.template_name = "attention_fwd_sm90";
        c.layout = (enum layout)(k % LAYOUT_COUNT);
        case_add(list, &c);
    }
}

/* Pairs that Hopper's kernel reads by panels of 64 columns, or copies where their rows are not aligned. */
static void add_panels(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {
        {"pair_apart", "return attention { qk2 = true, mask_mod = causal }\n"},
        {"pair_head", "return attention { qk2 = true, score_mod = function(s, at) return s - 0.01 * at.h * "
                      "(at.q - at.kv) end }\n"},
        {"mla_decoupled", NULL}};
    static const int DIMS[][3] = {{128, 64, 128}, {64, 64, 64}, {64, 128, 64}, {128, 128, 128}};
    static const int SHAPE[][5] = {{2, 4, 2, 70, 130}, {1, 6, 2, 33, 300}, {1, 3, 1, 200, 90}};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < COUNT(SHAPE); k++) {
            const struct inline_spec *spec = &SPEC[(i + k) % COUNT(SPEC)];
            if (DIMS[i][2] > DIMS[i][0] && spec->text == NULL)
                continue;
            struct test_case c =
                case_of_attention("second_pair", spec->name, spec->text, k % 2 ? LATHE_F16 : LATHE_BF16,
                                  DIMS[i][0], DIMS[i][2], 90);
            c.dim[SYM_D2] = DIMS[i][1];
            c.dim[SYM_B] = SHAPE[k][0];
            c.dim[SYM_H] = SHAPE[k][1];
            c.dim[SYM_H_KV] = SHAPE[k][2];
            c.dim[SYM_Q] = SHAPE[k][3];
            c.dim[SYM_KV] = SHAPE[k][4];
            c.template_name = "attention_fwd_sm90";
            c.layout = (enum layout)((i + k) % LAYOUT_COUNT);
            case_add(list, &c);
        }
}

/* Packed queries beside a second pair, keys of a cache, and both: copied but for pages. */
static void add_packed_pairs(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {
        {"mla_decoupled", NULL}, {"pair_apart", "return attention { qk2 = true, mask_mod = causal }\n"}};
    static const struct {
        const char *template_name, *without;
        int seqs, q, kv;
    } SHAPE[] = {{"attention_fwd_sm80", " used_kv ", 7, 120, 130},
                 {"attention_fwd_sm80", " cu_kv used_kv ", 9, 90, 90},
                 {"attention_fwd_sm80", " cu_q cu_kv ", 3, 40, 100},
                 {"attention_bwd_sm80", " used_kv ", 7, 120, 130},
                 {"attention_bwd_sm80", " cu_kv dq2 ", 9, 90, 90},
                 {"attention_bwd_sm80", " o lse used_kv ", 4, 70, 100},
                 {"attention_bwd_sm80", " cu_q cu_kv dk ", 3, 40, 100}};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int k = 0; k < 2; k++) {
            struct test_case c =
                case_of_attention("second_pair", SPEC[i].name, SPEC[i].text, k ? LATHE_F16 : LATHE_BF16,
                                  k ? 96 : 512, k ? 64 : 512, k ? 80 : 90);
            c.dim[SYM_D2] = k ? 32 : 64;
            add_packed(list, c, k == i);
            if (k)
                add_packed(list, c, k != i);
        }
    for (int i = 0; i < COUNT(SHAPE); i++) {
        const bool backward = strstr(SHAPE[i].template_name, "_bwd_") != NULL;
        struct test_case c =
            case_of_attention(backward ? "second_pair_back" : "second_pair", SPEC[1].name, SPEC[1].text,
                              i % 3 == 2 ? LATHE_F32
                              : i % 3    ? LATHE_F16
                                         : LATHE_BF16,
                              48, 40, 80);
        c.pass = backward ? LATHE_BACKWARD : LATHE_FORWARD;
        c.template_name = SHAPE[i].template_name;
        c.without = SHAPE[i].without;
        c.dim[SYM_D2] = 16;
        c.dim[SYM_SEQS] = SHAPE[i].seqs;
        c.dim[SYM_B] = strstr(c.without, "cu_q") ? SHAPE[i].seqs : 1;
        c.dim[SYM_H] = 4;
        c.dim[SYM_H_KV] = 2;
        c.dim[SYM_Q] = SHAPE[i].q;
        c.dim[SYM_KV] = SHAPE[i].kv;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        case_add(list, &c);
    }
}

/* Mods of q and o that read gates of each query. */
static void add_row_gates(struct case_list *list)
{
    static const struct inline_spec SPEC = {
        "gated",
        "return attention { " V_IS_K "mask_mod = causal, inputs = { s = tensor('f32', 'b', 'h', 'q'),\n"
        "    g = tensor('float', 'b', 'h', 'q', 'd_v') },\n"
        "  query_mod = function(q, at, x) return q * x.s(at.b, at.h, at.row) end,\n"
        "  output_mod = function(o, at, x) return o * sigmoid(x.g(at.b, at.h, at.row, at.i)) end }\n"};
    for (int i = 0; i < 3; i++)
        add(list, case_of_attention("mla", SPEC.name, SPEC.text, LATHE_BF16, 144, 128, i % 2 ? 80 : 90), i);
    add_paged(list, case_of_attention("mla_paged", SPEC.name, SPEC.text, LATHE_F16, 144, 128, 90), 1, 1);
    add_packed(list, case_of_attention("mla_paged", SPEC.name, SPEC.text, LATHE_BF16, 144, 128, 90), true);
}

/* By wgmma, three warpgroups: every spec whose v lies in k, dims with and without columns beyond them, rows
   in one tile and in two, keys in pages of every size, a second pair. */
static void add_wgmma(struct case_list *list, bool full)
{
    static const char *const BY_WGMMA = "attention_mla_sm90";
    static const int DIMS[][2] = {{192, 128}, {576, 512}, {144, 128}, {320, 256}, {512, 512}, {200, 72}};
    static const struct inline_spec PAIR = {"mla_decoupled", NULL};
    const int first = list->n;
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(SHAPES) : 2); k++)
            if (strcmp(SPECS[i].name, "apart") != 0)
                add(list,
                    case_of_attention("mla_sm90", SPECS[i].name, SPECS[i].text,
                                      k % 2 ? LATHE_F16 : LATHE_BF16,
                                      DIMS[k == 0 ? 0 : (i + k) % COUNT(DIMS)][0],
                                      DIMS[k == 0 ? 0 : (i + k) % COUNT(DIMS)][1], 90),
                    (i + k) % COUNT(SHAPES));
    add(list, case_of_attention("mla_sm90", "mla", NULL, LATHE_BF16, 576, 512, 90), 0);
    for (int i = 0; i < COUNT(SPECS) - 1; i++)
        if (strcmp(SPECS[i].name, "apart") != 0)
            add_paged(list,
                      case_of_attention("mla_sm90", SPECS[i].name, SPECS[i].text, LATHE_BF16, 144, 128, 90),
                      i % 5, i % COUNT(PAGES));
    add_paged(list, case_of_attention("mla_sm90", SPECS[1].name, SPECS[1].text, LATHE_F16, 192, 128, 90), 0,
              -1);
    struct test_case c = case_of_attention("mla_sm90", PAIR.name, PAIR.text, LATHE_BF16, 128, 128, 90);
    c.dim[SYM_D2] = 64;
    add(list, c, 0);
    add_paged(list, c, 1, 1);
    c.dim[SYM_D2] = 72;
    add(list, c, 3);
    c = case_of_attention("mla_sm90", SPECS[0].name, SPECS[0].text, LATHE_BF16, 144, 128, 90);
    add(list, c, 0);
    list->item[list->n - 1].layout = LAYOUT_MISALIGNED; /* K is copied, and V is in the copy */
    for (int pages = 0; pages < 2; pages++)
        add_packed(list,
                   case_of_attention("mla_sm90", SPECS[1].name, SPECS[1].text, LATHE_BF16, 144, 128, 90),
                   pages);
    for (int i = first; i < list->n; i++)
        list->item[i].template_name = BY_WGMMA;
}

void group_mla(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(SHAPES) : 2); k++)
            add(list,
                case_of_attention("mla", SPECS[i].name, SPECS[i].text, LATHE_BF16, 192, 128, k % 2 ? 80 : 90),
                (i + k) % COUNT(SHAPES));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add(list, case_of_attention("mla", SHIPPED[i], NULL, LATHE_F16, i ? 288 : 576, i ? 64 : 512, 90),
            i % COUNT(SHAPES));
    for (int i = 0; i < COUNT(OWN); i++)
        add(list, case_of_attention("mla", OWN[i].name, OWN[i].text, LATHE_F16, 272, 48, 86), i);
    add_dims(list);
    add_tiles(list);
    add_odd(list);
    add_odd_wide(list);
    add_odd_backward(list);
    add_wide_backward(list);
    add_latent_backward(list);
    add_values_in_keys(list);
    add_pairs(list);
    for (int i = 0; i < COUNT(SPECS) - 1; i++)
        add_paged(list,
                  case_of_attention("mla_paged", SPECS[i].name, SPECS[i].text, LATHE_BF16, 144, 128, 90),
                  i % 5, i % COUNT(PAGES));
    add_paged(list, case_of_attention("mla_paged", "mla", NULL, LATHE_BF16, 576, 512, 80), 1, 0);
    add_paged(list, case_of_attention("mla_paged", SPECS[1].name, SPECS[1].text, LATHE_F16, 96, 64, 90), 0,
              -1);
    struct test_case c = case_of_attention("mla", SPECS[0].name, SPECS[0].text, LATHE_BF16, 144, 128, 90);
    add(list, c, 0);
    list->item[list->n - 1].layout = LAYOUT_MISALIGNED; /* K is copied, and V is in the copy */
    /* What other templates make of a v that is k. */
    c.template_name = "attention_fwd_sm80";
    set_shape(&c, 4);
    c.template_name = "attention_fwd_sm80";
    case_add(list, &c);
    add_pairs_backward(list);
    for (int i = 1; i < 3; i++)
        for (int pages = 0; pages < 2; pages++)
            add_packed(list,
                       case_of_attention(pages ? "mla_paged" : "decode_varlen", SPECS[i].name, SPECS[i].text,
                                         LATHE_BF16, 144, 128, 90),
                       pages);
    add_packed_pairs(list);
    add_row_gates(list);
    add_panels(list);
    add_wgmma(list, full);
}
