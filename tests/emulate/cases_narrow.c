/*
 * cases_narrow.c: keys and values of 8 bits, each of its dtype, beside queries of 16 or 32: scales as factors
 * of scores, as mods of k and v by head, token and block of keys, q2 and k2, rows that do not start at 16
 * bytes, sequences, few queries, pages, gradients. In: nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char *const DTYPES[] = {"k=f8e4m3,v=f8e4m3", "k=f8e5m2,v=i8", "k=i8,v=f8e5m2", "v=f8e4m3",
                                     "k=f8e4m3"};
static const struct inline_spec SPECS[] = {
    {"whole", "return attention {}\n"},
    {"by_head", "return attention { inputs = { ks = tensor('f32', 'h_kv'), vs = tensor('f32', 'h_kv') },\n"
                "  mask_mod = causal, score_mod = function(s, at, x) return s * x.ks(at.h_kv) end,\n"
                "  output_mod = function(o, at, x) return o * x.vs(at.h_kv) end }\n"},
    {"by_token", "return attention { inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv'),\n"
                 "    vs = tensor('f32', 'b', 'h_kv', 'kv') }, mask_mod = causal,\n"
                 "  key_mod = function(k, at, x) return k * x.ks(at.b, at.h_kv, at.pos) end,\n"
                 "  value_mod = function(v, at, x) return v * x.vs(at.b, at.h_kv, at.pos) end }\n"},
    {"by_block",
     "return attention { inputs = { ks = tensor('f32', 'b', 'kv'), vs = tensor('f32', 'h_kv') },\n"
     "  key_mod = function(k, at, x) return k * x.ks(at.b, at.pos // 16) end,\n"
     "  value_mod = function(v, at, x) return v * x.vs(at.h_kv) + 0.01 * at.i end,\n"
     "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 50) end }\n"},
};
static const char *const SHIPPED[] = {"sinks",     "softcap", "qk_norm", "rope",
                                      "retention", "sigmoid", "document"};

static struct test_case of(const struct inline_spec *spec, int i, lathe_dtype dtype, int d, int d_v, int sm)
{
    struct test_case c = case_of_attention("narrow", spec->name, spec->text, dtype, d, d_v, sm);
    c.dtypes = DTYPES[i % COUNT(DTYPES)];
    c.layout = i % 3 == 0 ? LAYOUT_COMPACT : i % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
    return c;
}

/* By a pass ahead of the kernel: Hopper's, the portable one in each dtype. */
static void add_ahead(struct case_list *list)
{
    for (int i = 0; i < COUNT(SPECS) + COUNT(SHIPPED); i++)
        for (int k = 0; k < 3; k++) {
            static const lathe_dtype dtype[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
            const struct inline_spec shipped = {i < COUNT(SPECS) ? "" : SHIPPED[i - COUNT(SPECS)], NULL};
            struct test_case c = of(i < COUNT(SPECS) ? &SPECS[i] : &shipped, i + k, dtype[k], 64, 64, 90);
            c.template_name = k == 0 ? "attention_fwd_sm90" : NULL;
            case_shape(&c, 2, 4, 2, 40 + 30 * k, 75 + 20 * i);
            case_add(list, &c);
        }
}

static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{16, 24}, {72, 40}, {100, 33}, {128, 256}};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            struct test_case c = of(&SPECS[i % 2], i + layout, LATHE_BF16, DIMS[i][0], DIMS[i][1], 80);
            c.layout = (enum layout)layout;
            case_shape(&c, 1, 2, 1, 37, 70);
            case_add(list, &c);
        }
}

/* ---- few queries against many keys: the kernel reads 8 bits itself ------------------------------------ */

static const char NARROW_DECODE[] = "attention_decode_narrow";
static const char NARROW_FWD[] = "attention_fwd_narrow";
static const struct inline_spec SCALED[] = {
    {"whole", "return attention {}\n"},
    {"by_head", "return attention { inputs = { ks = tensor('f32', 'h_kv'), vs = tensor('f32', 'h_kv') },\n"
                "  mask_mod = causal, score_mod = function(s, at, x) return s * x.ks(at.h_kv) end,\n"
                "  output_mod = function(o, at, x) return o * x.vs(at.h_kv) end }\n"},
    {"by_key", "return attention { inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv') },\n"
               "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 300) end,\n"
               "  score_mod = function(s, at, x) return s * x.ks(at.b, at.h_kv, at.kv) end }\n"},
    {"growing", /* weights from far below f16's to far above, which only those of one row in eight are */
     "return attention { score_mod = function(s, at) return s + 0.15 * (at.len_kv - at.kv) - 70.0 +\n"
     "    where(eq(at.h % 8, 3), 60.0, 0.0) end,\n"
     "  online_func = elementwise_weights(function(s) return exp(min(s, 80.0)) end) }\n"},
    {"holes", /* no row sees any of the first half, and row 0 nothing at all */
     "return attention { mask_mod = function(at)\n"
     "  return ge(at.kv * 2, at.len_kv) & ne(at.kv % 3, 0) & gt(at.row, 0) end }\n"},
};
static const char *const DECODED[] = {"sinks", "softcap", "retention", "sigmoid",
                                      "alibi", "relu",    "fp8_cache"};
static const struct {
    int b, h, h_kv, q, kv;
} FEW[] = {{2, 8, 2, 1, 1030}, {1, 4, 4, 5, 777}, {1, 8, 1, 3, 600}, {2, 5, 1, 4, 900}, {1, 4, 2, 33, 520}};

static struct test_case few(const struct inline_spec *spec, int i, lathe_dtype dtype, int d, int d_v, int sm)
{
    struct test_case c = of(spec, i, dtype, d, d_v, sm);
    const int shape = i % COUNT(FEW);
    c.template_name = NARROW_DECODE;
    case_shape(&c, FEW[shape].b, FEW[shape].h, FEW[shape].h_kv, FEW[shape].q, FEW[shape].kv);
    return c;
}

/* Every pair of dtypes, on tensor cores of both dtypes, before and from sm_89 on. */
static void add_few(struct case_list *list)
{
    for (int i = 0; i < COUNT(SCALED) + COUNT(DECODED); i++)
        for (int k = 0; k < 2; k++) {
            const struct inline_spec shipped = {i < COUNT(SCALED) ? "" : DECODED[i - COUNT(SCALED)], NULL};
            const struct inline_spec *spec = i < COUNT(SCALED) ? &SCALED[i] : &shipped;
            const struct test_case c =
                few(spec, i + 3 * k, k && strcmp(spec->name, "growing") != 0 ? LATHE_F16 : LATHE_BF16,
                    i % 3 ? 64 : 128, i % 3 ? 64 : 128, (i + k) % 3 ? 90 : 80);
            case_add(list, &c);
        }
    for (int i = 0; i < 4 * COUNT(DTYPES); i++) {
        struct test_case c = few(&SCALED[1], i, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, i % 4 < 2 ? 90 : 80);
        c.dtypes = DTYPES[i / 4];
        case_add(list, &c);
    }
}

/* Of k and v one is of 16 bits, and has a mod, which another kernel computes ahead. */
static void add_mods_of_halves(struct case_list *list)
{
    static const struct inline_spec BENT[] = {
        {"bent_keys", "return attention { mask_mod = causal, key_mod = function(k) return tanh(k) end }\n"},
        {"bent_values",
         "return attention { mask_mod = causal, value_mod = function(v) return tanh(v) end }\n"},
    };
    for (int i = 0; i < 4 * COUNT(BENT); i++) {
        const int k = i % COUNT(BENT);
        const bool decodes = i < 2 * COUNT(BENT);
        struct test_case c =
            few(&BENT[k], i, i % 4 < 2 ? LATHE_BF16 : LATHE_F16, 64, 64, i % 4 < 2 ? 90 : 80);
        c.dtypes = k == 0 ? "v=i8" : "k=f8e4m3";
        if (!decodes) {
            c.template_name = NARROW_FWD;
            case_shape(&c, 2, 4, 2, 70, 150 + i);
        }
        case_add(list, &c);
    }
}

static void add_few_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{32, 96}, {96, 32}, {256, 256}, {192, 128}, {160, 224}};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < 2; k++) {
            struct test_case c =
                few(&SCALED[i % 2], i + k, k ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1], k ? 80 : 90);
            c.dtypes = k ? "k=f8e4m3,v=i8" : "k=i8,v=f8e4m3";
            case_add(list, &c);
        }
}

/* Codes of every size, the largest and those that are no number among them, by every kernel that widens. */
static void add_codes(struct case_list *list)
{
    static const struct inline_spec LOUD = {
        "loud", "return attention { score_mod = function(s) return s * 0.0001 end }\n"};
    static const struct {
        const char *template_name;
        lathe_dtype dtype;
        int sm;
    } KERNEL[] = {{NULL, LATHE_BF16, 80},          {"attention_fwd_sm90", LATHE_F16, 90},
                  {NARROW_DECODE, LATHE_BF16, 90}, {NARROW_DECODE, LATHE_F16, 80},
                  {NARROW_FWD, LATHE_BF16, 90},    {NARROW_FWD, LATHE_F16, 80},
                  {NARROW_FWD, LATHE_F32, 80}};
    for (int i = 0; i < 3 * COUNT(KERNEL); i++) {
        const int k = i / 3;
        struct test_case c = few(&LOUD, i, KERNEL[k].dtype, 64, 64, KERNEL[k].sm);
        c.template_name = KERNEL[k].template_name;
        c.dtypes = DTYPES[i % 3];
        c.loud = 150.0;
        case_shape(&c, 1, 2, 1, 3, 150);
        case_add(list, &c);
    }
}

struct sequences {
    int seqs, q, page, most;
    const char *without;
};

static void shape_sequences(struct test_case *c, const struct sequences *of, int kv)
{
    c->without = of->without;
    c->dim[SYM_SEQS] = of->seqs;
    c->dim[SYM_B] = strstr(of->without, "cu_q") ? of->seqs : 1;
    c->dim[SYM_H] = 8;
    c->dim[SYM_H_KV] = 2;
    c->dim[SYM_Q] = of->q;
    c->dim[SYM_KV] = kv;
    if (of->page == 0)
        return;
    c->dim[SYM_PAGE] = of->page;
    c->dim[SYM_MOST] = of->most;
    c->dim[SYM_KV] = c->dim[SYM_PAGE] * c->dim[SYM_MOST];
    c->dim[SYM_POOL] = (int64_t)of->seqs * c->dim[SYM_MOST] + 3;
}

/* Lists of sequences are given to cases of such a group; beside pages to all. */
static void add_sequences(struct case_list *list, struct test_case *c)
{
    if (c->without && !case_has_pages(c))
        c->group = "narrow_varlen";
    case_add(list, c);
}

/* Batches with keys in use, packed sequences, and pages: of 16 keys, of more, of fewer than a tile has. */
static void add_few_sequences(struct case_list *list)
{
    static const struct sequences OF[] = {
        {3, 1, 0, 0, " cu_q cu_kv "},    {6, 31, 0, 0, " used_kv "},        {3, 1, 16, 40, " cu_q cu_kv "},
        {3, 5, 64, 12, " cu_q cu_kv "},  {6, 31, 16, 40, " cu_kv "},        {4, 2, 3, 220, " cu_q cu_kv "},
        {2, 33, 256, 3, " cu_q cu_kv "}, {5, 12, 64, 12, " cu_kv used_kv "}};
    for (int i = 0; i < 2 * COUNT(OF); i++) {
        const int k = i % COUNT(OF);
        struct test_case c = few(&SCALED[i % 3], i, i % 2 ? LATHE_F16 : LATHE_BF16, i % 3 ? 64 : 128,
                                 i % 3 ? 64 : 128, i < COUNT(OF) ? 90 : 80);
        shape_sequences(&c, &OF[k], 1400);
        add_sequences(list, &c);
    }
}

/* ---- many queries, whose kernel reads 8 bits itself ---------------------------------------------------- */

/* Contiguous, by its name: every dtype of q, every pair of dtypes, tiles of every kind of mask. */
static void add_many(struct case_list *list)
{
    static const struct inline_spec SELECTED = {"nsa_selected", NULL};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    static const int DIMS[][2] = {{64, 64}, {128, 128}, {96, 32}, {256, 256}, {16, 48}, {192, 128}};
    for (int i = 0; i < COUNT(SCALED) + COUNT(DECODED) + 1; i++)
        for (int k = 0; k < 2; k++) {
            const struct inline_spec shipped = {
                i < COUNT(SCALED) || i == COUNT(SCALED) + COUNT(DECODED) ? "" : DECODED[i - COUNT(SCALED)],
                NULL};
            const struct inline_spec *spec = i < COUNT(SCALED)                     ? &SCALED[i]
                                             : i == COUNT(SCALED) + COUNT(DECODED) ? &SELECTED
                                                                                   : &shipped;
            const int dims = (i + 3 * k) % COUNT(DIMS);
            struct test_case c =
                of(spec, i + 3 * k, strcmp(spec->name, "growing") ? DTYPE[(i + k) % 3] : LATHE_BF16,
                   DIMS[dims][0], DIMS[dims][1], (i + k) % 2 ? 90 : 80);
            c.template_name = NARROW_FWD;
            case_shape(&c, 2, 4, 2, 70 + 60 * k, 150 + 13 * i);
            case_add(list, &c);
        }
}

static void add_many_sequences(struct case_list *list)
{
    static const struct sequences OF[] = {
        {3, 90, 0, 0, " cu_q cu_kv "},   {4, 300, 0, 0, " used_kv "},       {2, 140, 16, 20, " cu_q cu_kv "},
        {3, 70, 64, 5, " cu_q cu_kv "},  {4, 300, 16, 30, " cu_kv "},       {2, 150, 3, 70, " cu_q cu_kv "},
        {2, 33, 256, 3, " cu_q cu_kv "}, {5, 260, 64, 6, " cu_kv used_kv "}};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    for (int i = 0; i < 3 * COUNT(OF); i++) {
        const int k = i % COUNT(OF);
        struct test_case c =
            of(&SCALED[i % 3], i, DTYPE[i % 3], i % 2 ? 64 : 128, i % 2 ? 64 : 128, i < COUNT(OF) ? 90 : 80);
        c.template_name = NARROW_FWD;
        shape_sequences(&c, &OF[k], 400);
        add_sequences(list, &c);
    }
}

/* ---- gradients as of the rounded numbers, in the dtype of q ------------------------------------------- */

static void add_back(struct case_list *list)
{
    static const struct {
        const char *spec, *template_name;
        lathe_dtype dtype;
        int d, d_v, sm;
    } OF[] = {
        {"by_head", "attention_bwd_sm80", LATHE_BF16, 64, 64, 80},
        {"softcap", "attention_bwd_sm80", LATHE_F32, 32, 32, 80},
        {"sinks", "attention_bwd_sm80", LATHE_F16, 100, 33, 80},
        {"retention", "attention_bwd_sm90", LATHE_BF16, 64, 64, 90},
        {"by_head", "attention_bwd_sm90", LATHE_F16, 128, 128, 90},
        {"document", "attention_bwd_sm90", LATHE_BF16, 72, 40, 90},
        {"fp8_cache", "attention_bwd_sm90", LATHE_BF16, 64, 64, 90},
        {"causal", "attention_bwd_wide_sm90", LATHE_BF16, 192, 128, 90},
        {"nsa_selected", "attention_bwd_selected", LATHE_BF16, 64, 64, 80},
        {"causal", "attention_bwd_slices", LATHE_BF16, 272, 64, 80},
        {"mla", "attention_bwd_slices", LATHE_BF16, 80, 64, 80},
        {"fp8_cache", "attention_bwd_sm80", LATHE_F16, 64, 64, 80}, /* whose forward pass holds weights */
        {"fp8_cache", "attention_bwd_sm90", LATHE_F16, 128, 128, 90}};
    for (int i = 0; i < 2 * COUNT(OF); i++) {
        const int k = i % COUNT(OF);
        const bool by_head = strcmp(OF[k].spec, "by_head") == 0;
        const struct inline_spec spec = {by_head ? SCALED[1].name : OF[k].spec,
                                         by_head ? SCALED[1].text : NULL};
        struct test_case c = of(&spec, i, OF[k].dtype, OF[k].d, OF[k].d_v, OF[k].sm);
        c.pass = LATHE_BACKWARD;
        c.template_name = OF[k].template_name;
        c.dtypes = strcmp(OF[k].spec, "mla") == 0 ? "k=f8e4m3" : c.dtypes;
        if (i >= COUNT(OF) && OF[k].dtype == LATHE_F16 && strcmp(OF[k].spec, "fp8_cache") == 0)
            c.without = " o lse ";
        case_shape(&c, 2, 4, 2, 70, 90);
        case_add(list, &c);
    }
}

static void add_back_sequences(struct case_list *list)
{
    static const struct sequences OF[] = {{3, 90, 0, 0, " cu_q cu_kv "}, {4, 150, 0, 0, " used_kv "}};
    for (int i = 0; i < 2 * COUNT(OF); i++) {
        const int k = i % COUNT(OF);
        struct test_case c =
            of(&SCALED[1], i, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, i < COUNT(OF) ? 80 : 90);
        c.pass = LATHE_BACKWARD;
        c.template_name = i == 3 ? "attention_bwd_sm90" : "attention_bwd_sm80";
        shape_sequences(&c, &OF[k], 120);
        add_sequences(list, &c);
    }
}

/* Mods that are products by a value of the key, which become factors of scores and of weights: behind softcap
   and a sink, by chains and quotients, of one tensor alone, in pages, of keys in use. */
static const struct inline_spec MODDED[] = {
    {"mods_by_token", "return attention { inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv'),\n"
                      "    vs = tensor('f32', 'b', 'h_kv', 'kv') }, mask_mod = causal,\n"
                      "  key_mod = function(k, at, x) return k * x.ks(at.b, at.h_kv, at.pos) end,\n"
                      "  value_mod = function(v, at, x) return v * x.vs(at.b, at.h_kv, at.pos) end }\n"},
    {"mods_by_block",
     "return attention { inputs = { ks = tensor('f32', 'b', 'kv'), vs = tensor('f32', 'h_kv') },\n"
     "  key_mod = function(k, at, x) return x.ks(at.b, at.pos // 16) * k / (1.5 + at.h_kv) end,\n"
     "  value_mod = chain(function(v) return -v end, function(v, at, x) return v * x.vs(at.h_kv) * 0.5 "
     "end),\n"
     "  score_mod = function(s) return 8.0 * tanh(s / 8.0) end,\n"
     "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 500) end }\n"},
    {"mods_of_retention", /* weights that are no softmax's */
     "return attention { inputs = { vs = tensor('f32', 'kv') }, mask_mod = causal,\n"
     "  value_mod = function(v, at, x) return v * x.vs(at.pos) end,\n"
     "  online_func = elementwise_weights(function(s) return sigmoid(s) end) }\n"},
    {"mod_of_keys",
     "return attention { inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv') }, mask_mod = causal,\n"
     "  key_mod = function(k, at, x) return k * x.ks(at.b, at.h_kv, at.pos) end }\n"},
};

static void add_few_mods(struct case_list *list)
{
    static const char *const OF[] = {"k=f8e4m3,v=f8e4m3", "k=i8,v=f8e5m2", "k=f8e5m2,v=i8"};
    for (int i = 0; i < COUNT(MODDED); i++)
        for (int k = 0; k < COUNT(FEW) - 1; k++) { /* the last has more queries than few */
            const bool half = i == COUNT(MODDED) - 1 && k % 2;
            struct test_case c = few(&MODDED[i], k, half ? LATHE_F16 : LATHE_BF16, k % 2 ? 64 : 128,
                                     k % 2 ? 64 : 128, (i + k) % 3 ? 90 : 80);
            c.dtypes = OF[(i + k) % COUNT(OF)];
            case_add(list, &c);
        }
    for (int i = 0; i < COUNT(MODDED); i++)
        for (int k = 0; k < 3; k++) {
            struct test_case c = few(&MODDED[i], i + k, k < 2 ? LATHE_BF16 : LATHE_F16, 128, 64, k ? 80 : 90);
            c.dtypes = OF[(i + k) % COUNT(OF)];
            c.without = k ? " cu_q cu_kv used_kv " : " cu_q cu_kv ";
            c.dim[SYM_SEQS] = c.dim[SYM_B] = 3;
            c.dim[SYM_H] = 8;
            c.dim[SYM_H_KV] = 2;
            c.dim[SYM_Q] = 1 + 2 * k;
            c.dim[SYM_PAGE] = k ? 16 : 64;
            c.dim[SYM_MOST] = k ? 40 : 12;
            c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
            c.dim[SYM_POOL] = 3 * c.dim[SYM_MOST] + 3;
            case_add(list, &c);
        }
}

/* Latents of 8 bits, which are the values, too, beside rotary elements of 16. */
static const struct inline_spec LATENT[] = {
    {"latent", "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 0.07 }\n"},
    {"latent_tokens",
     "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 0.07,\n"
     "  inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv', 4) }, key_mod = function(k, at, x)\n"
     "  return k * x.ks(at.b, at.h_kv, at.pos, clamp(at.i // 32, 0, 3)) end }\n"},
    {"latent_whole", "return attention { v = 'k', inputs = { ks = tensor('f32', 'kv') }, mask_mod = causal,\n"
                     "  key_mod = function(k, at, x) return k * x.ks(at.pos) end }\n"},
};
static void add_latent(struct case_list *list)
{
    static const struct {
        const char *template_name;
        int sm, d, d2, d_v;
    } KERNEL[] = {{"attention_mla", 80, 64, 32, 64},
                  {"attention_mla", 90, 128, 64, 96},
                  {"attention_mla_sm90", 90, 128, 64, 128}};
    for (int i = 0; i < COUNT(LATENT) * COUNT(KERNEL); i++) {
        const int k = i % COUNT(KERNEL);
        struct test_case c = of(&LATENT[i / COUNT(KERNEL)], i, i % 2 ? LATHE_F16 : LATHE_BF16, KERNEL[k].d,
                                KERNEL[k].d_v, KERNEL[k].sm);
        c.template_name = KERNEL[k].template_name;
        c.dtypes = i % 2 ? "k=i8" : "k=f8e4m3";
        if (i / COUNT(KERNEL) < 2)
            c.dim[SYM_D2] = KERNEL[k].d2;
        case_shape(&c, 2, 5, 1, 1 + k, 150);
        case_add(list, &c);
    }
}

/* Values that are what key_mod makes of keys, of 8 bits and of 16, in every kernel that has such values. */
static void add_latent_whole(struct case_list *list)
{
    static const char *const KERNEL[] = {"attention_fwd_sm80", "attention_fwd_sm90", "attention_decode",
                                         "attention_mla", "attention_mla_sm90"};
    for (int i = 0; i < 2 * COUNT(KERNEL); i++) {
        const int k = i % COUNT(KERNEL);
        struct test_case c = of(&LATENT[COUNT(LATENT) - 1], i, LATHE_BF16, 128, 128, k == 0 ? 80 : 90);
        c.template_name = KERNEL[k];
        c.dtypes = i < COUNT(KERNEL) ? NULL : "k=f8e4m3";
        case_shape(&c, 2, 4, 1, 3, 150);
        case_add(list, &c);
    }
}

/* The same, read by the kernel itself: tiles of every shape, keys in use, packed queries, pages. */
struct latent_kernel {
    int sm, d, d2, d_v, h, q;
};
enum { LATENT_KERNELS = 4 };

static void add_latents_read(struct case_list *list, const char *template_name,
                             const struct latent_kernel kernel[LATENT_KERNELS])
{
    static const struct {
        const char *without;
        int seqs, q, page, most;
    } OF[] = {{" cu_q cu_kv ", 3, 1, 0, 0},
              {" cu_q cu_kv ", 3, 2, 64, 5},
              {" used_kv ", 5, 21, 0, 0},
              {" cu_kv ", 5, 21, 3, 60}};
    for (int i = 0; i < COUNT(LATENT) * (LATENT_KERNELS + COUNT(OF)); i++) {
        const int spec = i % COUNT(LATENT);
        const int k = i / COUNT(LATENT);
        const struct latent_kernel *own = &kernel[k < LATENT_KERNELS ? k : k % 2];
        struct test_case c = of(&LATENT[spec], i, i % 2 ? LATHE_F16 : LATHE_BF16, own->d, own->d_v, own->sm);
        c.template_name = template_name;
        c.dtypes = i % 3 == 0 ? "k=f8e4m3" : i % 3 == 1 ? "k=i8" : "k=f8e5m2";
        if (spec < COUNT(LATENT) - 1)
            c.dim[SYM_D2] = own->d2;
        case_shape(&c, 2, own->h, 1, own->q, own->d > 128 ? 70 : 150);
        if (k >= LATENT_KERNELS) {
            const int n = k - LATENT_KERNELS;
            c.without = OF[n].without;
            c.dim[SYM_SEQS] = OF[n].seqs;
            c.dim[SYM_B] = strstr(OF[n].without, "cu_q") ? OF[n].seqs : 1;
            c.dim[SYM_H] = 4;
            c.dim[SYM_Q] = OF[n].q;
            c.dim[SYM_KV] = 300;
            if (OF[n].page > 0) {
                c.dim[SYM_PAGE] = OF[n].page;
                c.dim[SYM_MOST] = OF[n].most;
                c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
                c.dim[SYM_POOL] = (int64_t)OF[n].seqs * c.dim[SYM_MOST] + 3;
            }
        }
        add_sequences(list, &c);
    }
}

static void add_latent_read(struct case_list *list)
{
    static const struct latent_kernel PORTABLE[LATENT_KERNELS] = {
        {80, 64, 32, 64, 5, 1}, {90, 128, 64, 96, 70, 1}, {90, 512, 64, 512, 16, 2}, {90, 48, 16, 40, 3, 7}};
    static const struct latent_kernel BY_WGMMA[LATENT_KERNELS] = {{90, 144, 16, 128, 5, 1},
                                                                  {90, 128, 64, 96, 70, 1},
                                                                  {90, 512, 64, 512, 16, 2},
                                                                  {90, 272, 40, 200, 3, 7}};
    add_latents_read(list, "attention_mla_narrow", PORTABLE);
    add_latents_read(list, "attention_mla_narrow_sm90", BY_WGMMA);
}

/* Online functions and masks of that kernel: rows in two tiles, many tiles of keys, of all classes. */
static void add_latent_online(struct case_list *list)
{
    static const struct inline_spec ONLINE[] = {
        {"latent_window", "return attention { v = 'k', scale = 0.1,\n"
                          "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 100) end,\n"
                          "  score_mod = function(s) return 5.0 * tanh(s / 5.0) end,\n"
                          "  inputs = { ks = tensor('f32', 'kv', 'd') },\n"
                          "  key_mod = function(k, at, x) return k * x.ks(at.pos, at.i) + 0.25 end }\n"},
        {"latent_sigmoid", "return attention { v = 'k', mask_mod = causal, scale = 0.1,\n"
                           "  inputs = { ks = tensor('f32', 'b', 'h_kv') },\n"
                           "  key_mod = chain(function(k) return k * 0.5 end,\n"
                           "                  function(k, at, x) return k * x.ks(at.b, at.h_kv) end),\n"
                           "  online_func = elementwise_weights(function(s) return sigmoid(s) end) }\n"},
        {"latent_sinks", "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 0.07,\n"
                         "  inputs = { sink = tensor('f32', 'h') },\n"
                         "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end) }\n"},
        {"latent_all", "return attention { qk2 = true, v = 'k', scale = 0.07 }\n"},
    };
    for (int i = 0; i < 2 * COUNT(ONLINE); i++) {
        struct test_case c = of(&ONLINE[i / 2], i, i % 2 ? LATHE_F16 : LATHE_BF16, 192, 128, 90);
        c.template_name = "attention_mla_narrow_sm90";
        c.dtypes = i % 3 == 0 ? "k=f8e5m2" : i % 3 == 1 ? "k=f8e4m3" : "k=i8";
        if (strstr(ONLINE[i / 2].text, "qk2"))
            c.dim[SYM_D2] = 64;
        case_shape(&c, 2, i % 2 ? 80 : 24, 1, 1 + i, i % 2 ? 515 : 320);
        c.parts = i % 4 == 3;
        case_add(list, &c);
    }
}

/* The same of any queries, in pages. */
static void add_many_mods(struct case_list *list)
{
    static const struct sequences OF[] = {{2, 90, 16, 12, " cu_q cu_kv "}, {3, 150, 32, 6, " cu_kv "}};
    for (int i = 0; i < 3 * COUNT(MODDED); i++) {
        const bool half = i >= 2 * COUNT(MODDED);
        struct test_case c = of(&MODDED[i % COUNT(MODDED)], i,
                                half    ? LATHE_F16
                                : i % 3 ? LATHE_BF16
                                        : LATHE_F32,
                                64, 64, i % 2 ? 90 : 80);
        c.template_name = NARROW_FWD;
        c.dtypes = i % 2 ? "k=f8e4m3,v=i8" : "k=i8,v=f8e4m3";
        shape_sequences(&c, &OF[half ? 0 : i / COUNT(MODDED)], 200);
        add_sequences(list, &c);
    }
}

/* ---- what writes such caches ------------------------------------------------------------------------------
 */

static const char *const MAPS[][2] = {
    {"double", "return elementwise { over = { \"rows\", \"n\" }, operands = { x = tensor(\"float\") },\n"
               "  results = { y = tensor(\"float\"), z = tensor(\"float\") },\n"
               "  forward = function(v) return { y = 40.0 * v.x * v.x * v.x, z = 1e-3 * v.x } end }\n"},
    {"rope_append", NULL},
    {"cache_append", NULL}};
static const struct {
    int map;
    const char *sizes, *dtypes;
} APPENDED[] = {{0, "rows=9,n=64", "y=f8e4m3,z=f8e4m3"},
                {0, "rows=40,n=33", "y=f8e5m2,z=f8e5m2"},
                {0, "rows=7,n=100", "y=i8,z=f16"},
                {0, "rows=3,n=1030", "x=f32,y=f8e4m3,z=f8e5m2"},
                {1, "b=2,t=9,h=4,h_kv=2,i=32,slots=40", "k_cache=f8e4m3,v_cache=f8e4m3"},
                {1, "b=2,t=9,h=2,h_kv=2,i=20,slots=40", "k_cache=f8e5m2,v_cache=f8e4m3"},
                {2, "b=2,t=9,h_kv=3,i=64,slots=40", "k_cache=f8e4m3,v_cache=f8e4m3"},
                {2, "b=1,t=30,h_kv=2,i=40,slots=70", "k_cache=f8e5m2,v_cache=f8e4m3"}};

static void add_appended(struct case_list *list)
{
    for (int i = 0; i < 4 * COUNT(APPENDED); i++) {
        struct test_case c;
        const int k = i / 4;
        memset(&c, 0, sizeof c);
        for (int d = 0; d < SYM_COUNT; d++)
            c.dim[d] = -1;
        c.group = "narrow";
        c.spec = MAPS[APPENDED[k].map][0];
        c.text = MAPS[APPENDED[k].map][1];
        c.dtype = i % 2 ? LATHE_F16 : LATHE_BF16;
        c.sm = 90;
        c.sizes = APPENDED[k].sizes;
        c.layout = (enum layout)(i % LAYOUT_COUNT);
        c.dtypes = APPENDED[k].dtypes;
        case_add(list, &c);
    }
}

/* ---- queries of f16, whose weights have scales far from 1 ------------------------------------------------
 */

/* Factors of weights by key, far below what f16 holds and far above: o is brought back behind them. */
#define FACTORED(of, least, most, back)                                                                      \
    "return attention { " of "inputs = { vs = tensor('f32', 'b', 'h_kv', 'kv') }, mask_mod = causal,\n"      \
    "  online_func = softmax_times(function(at, x)\n"                                                        \
    "    return x.vs(at.b, at.h_kv, at.kv) * where(eq(at.h % 2, 0), " least ", " most ") end),\n"            \
    "  output_mod = function(o, at) return o * where(eq(at.h % 2, 0), " back " end }\n"
static const struct inline_spec FACTORED_LATENTS = {"factors_of_latents",
                                                    FACTORED("v = 'k', ", "1e-7", "1e6", "1e7, 1e-6)")};
static const struct inline_spec FACTORS[] = {
    {"small_factors", FACTORED("", "1e-5", "1e-7", "1e5, 1e7)")},
    {"far_factors", FACTORED("", "1e-12", "1e7", "1e12, 1e-7)")},
    {"factor_of_head", /* the same for a row: one of o */
     "return attention { inputs = { vs = tensor('f32', 'h_kv') }, mask_mod = causal,\n"
     "  online_func = softmax_times(function(at, x) return x.vs(at.h_kv) * 1e-9 end),\n"
     "  output_mod = function(o) return o * 1e9 end }\n"},
    {"factors_of_sigmoid", /* weights without row states */
     "return attention { inputs = { vs = tensor('f32', 'kv') },\n"
     "  online_func = online_func { online_rowscales = {}, online_fwd = function(s, r, at, x)\n"
     "    return sigmoid(s) * x.vs(at.kv) * 1e-8, {}, 1.0 end,\n"
     "  online_fwd_epilogue = function() return 1.0, {} end,\n"
     "  forward = function(s, final, at, x) return sigmoid(s) * x.vs(at.kv) * 1e-8 end,\n"
     "  combine = function() return 1.0, {} end },\n"
     "  output_mod = function(o) return o * 1e8 end }\n"},
    {"powers", /* exponentials of the key alone */
     "return attention { inputs = { vs = tensor('f32', 'h_kv', 'kv') }, mask_mod = causal,\n"
     "  online_func = softmax_times(function(at, x)\n"
     "    return exp2(4.0 * x.vs(at.h_kv, at.kv) + where(eq(at.h % 2, 0), -30.0, 20.0)) end),\n"
     "  output_mod = function(o, at) return o * where(eq(at.h % 2, 0), 1e9, 1e-6) end }\n"},
    {"gates", /* values of the key alone that are bounded, and constants that it chooses between */
     "return attention { inputs = { vs = tensor('f32', 'h_kv', 'kv') }, mask_mod = causal,\n"
     "  online_func = softmax_times(function(at, x) local v = x.vs(at.h_kv, at.kv)\n"
     "    return where(eq(at.h % 2, 0), sigmoid(v - 16.0), where(gt(v, 0.0), 1e6, 2e6)) end),\n"
     "  output_mod = function(o, at) return o * where(eq(at.h % 2, 0), 1e7, 1e-6) end }\n"},
    {"sums", /* a factor of the row, which a sum has in each of its terms */
     "return attention { inputs = { hs = tensor('f32', 'h') }, mask_mod = causal,\n"
     "  online_func = online_func { online_rowscales = {}, online_fwd = function(s, r, at, x)\n"
     "    return (sigmoid(s) + 1.0) * x.hs(at.h) * 1e-8 + max(s, 0.0) * 1e-8 * x.hs(at.h), {}, 1.0 end,\n"
     "  online_fwd_epilogue = function() return 1.0, {} end,\n"
     "  forward = function(s, final, at, x)\n"
     "    return (sigmoid(s) + 1.0) * x.hs(at.h) * 1e-8 + max(s, 0.0) * 1e-8 * x.hs(at.h) end,\n"
     "  combine = function() return 1.0, {} end }, output_mod = function(o) return o * 1e8 end }\n"},
    {"ends_of_f32",
     "return attention { inputs = { vs = tensor('f32', 'h_kv', 'kv') },\n"
     "  online_func = softmax_times(function(at, x) local v = clamp(x.vs(at.h_kv, at.kv), -1.0, 1.0)\n"
     "    return where(eq(at.h % 2, 0), 9e37 + 5e36 * v, 2e-36 + 1e-37 * v) end),\n"
     "  output_mod = function(o, at) return o * where(eq(at.h % 2, 0), 1e-37, 5e35) end }\n"},
};
enum { ENDS_OF_F32 = COUNT(FACTORS) - 1 }; /* parts of rows, which nothing divides, are beyond them */

static void add_factors(struct case_list *list)
{
    static const struct {
        const char *template_name, *dtypes;
        int sm, q, kv;
        bool parts; /* of rows, in the place of o */
    } OF[] = {{NARROW_DECODE, "k=f8e4m3,v=f8e4m3", 90, 1, 1030, false},
              {NARROW_DECODE, "v=i8", 80, 5, 777, false},
              {NARROW_FWD, "k=f8e4m3,v=f8e4m3", 90, 70, 150, false},
              {NARROW_FWD, "k=i8,v=f8e5m2", 80, 90, 200, false},
              {"attention_fwd_sm90", "k=f8e4m3,v=f8e4m3", 90, 150, 300, false},
              {"attention_fwd_sm90", NULL, 90, 70, 150, false},
              {"attention_fwd_sm80", "v=i8", 80, 70, 150, false},
              {"attention_fwd_sm80", NULL, 90, 90, 170, false},
              {"attention_decode", NULL, 90, 3, 900, false},
              {"attention_decode", "k=f8e4m3,v=f8e4m3", 80, 1, 1030, false},
              {"attention_mla", NULL, 80, 3, 150, false},
              {"attention_fwd_sm80", NULL, 80, 70, 150, true},
              {"attention_fwd_sm90", "v=f8e4m3", 90, 70, 150, true},
              {NARROW_DECODE, "v=f8e4m3", 90, 3, 700, true}};
    static const struct {
        const char *template_name, *dtypes;
        int sm;
    } LATENTS[] = {{"attention_mla", NULL, 80},
                   {"attention_mla", "k=f8e4m3", 90},
                   {"attention_mla_sm90", NULL, 90},
                   {"attention_mla_sm90", "k=i8", 90},
                   {"attention_mla_narrow", "k=f8e4m3", 90},
                   {"attention_mla_narrow_sm90", "k=f8e4m3", 90},
                   {"attention_fwd_sm80", NULL, 80}};
    for (int i = 0; i < COUNT(LATENTS); i++) {
        struct test_case c = of(&FACTORED_LATENTS, i, LATHE_F16, 128, 128, LATENTS[i].sm);
        c.template_name = LATENTS[i].template_name;
        c.dtypes = LATENTS[i].dtypes;
        case_shape(&c, 2, 4, 1, 3, 150);
        case_add(list, &c);
    }
    for (int i = 0; i < COUNT(FACTORS) * COUNT(OF); i++) {
        const int k = i % COUNT(OF);
        if (i / COUNT(OF) == ENDS_OF_F32 && OF[k].parts)
            continue;
        struct test_case c = of(&FACTORS[i / COUNT(OF)], i, LATHE_F16, 64, 64, OF[k].sm);
        c.template_name = OF[k].template_name;
        c.dtypes = OF[k].dtypes;
        c.parts = OF[k].parts;
        case_shape(&c, 2, 4, 2, OF[k].q, OF[k].kv);
        case_add(list, &c);
    }
}

void group_narrow(struct case_list *list)
{
    add_ahead(list);
    add_dims(list);
    add_few(list);
    add_mods_of_halves(list);
    add_few_dims(list);
    add_codes(list);
    add_few_sequences(list);
    add_few_mods(list);
    add_latent(list);
    add_latent_whole(list);
    add_latent_read(list);
    add_latent_online(list);
    add_many_mods(list);
    add_many(list);
    add_many_sequences(list);
    add_back(list);
    add_back_sequences(list);
    add_factors(list);
    add_appended(list);
    add_narrow_rows(list);
}
