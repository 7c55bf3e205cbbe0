/*
 * cases_gathered.c: keys and values of 8 bits in pages, which are copied out of them ahead of Hopper's
 * kernel: pages of 1 to 256 keys, pages that sequences share, dense and packed queries, keys in use and all
 * of them, NaN in pages that no key in use lies in and beside the last key. In: nothing. Out: cases at the
 * end of the list.
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
    {"window",
     "return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 20) end }\n"},
    {"tables", /* over sequences, over queries, over keys of all sequences and of each, and over distances */
     "return attention { inputs = { slope = tensor('f32', 'b', 'h'), bias = tensor('f32', 'h', 'kv'),\n"
     "    lift = tensor('float', 'b', 'q'), own = tensor('f32', 'b', 'kv'), near = tensor('f32', 'h', 64) "
     "},\n"
     "  mask_mod = causal,\n"
     "  score_mod = function(s, at, x)\n"
     "    return s + x.slope(at.b, at.h) * 0.05 * (at.q - at.kv) + x.bias(at.h, at.kv) * (1 + x.lift(at.b, "
     "at.row))\n"
     "      + x.own(at.b, at.kv) + x.near(at.h, clamp(at.q - at.kv, 0, 63)) + 0.01 * at.len_q - 0.01 * "
     "at.len_kv end }\n"},
    {"documents",
     "return attention { inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, x)\n"
     "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) // 9, x.doc(at.b, at.kv) // 9) end }\n"},
    {"factors", /* mods of k and v that are products by a value of the key */
     "return attention { inputs = { ks = tensor('f32', 'b', 'h_kv', 'kv'),\n"
     "    vs = tensor('f32', 'b', 'h_kv', 'kv') }, mask_mod = causal,\n"
     "  key_mod = function(k, at, x) return k * x.ks(at.b, at.h_kv, at.pos) end,\n"
     "  value_mod = function(v, at, x) return v * x.vs(at.b, at.h_kv, at.pos) end }\n"},
    {"ends", "return attention { query_mod = half(function(a, b, at)\n"
             "    return a * cos(0.1 * at.pos) - b, b * cos(0.1 * at.pos) + a end),\n"
             "  output_mod = function(o, at) return o + 0.01 * at.pos + 0.1 * at.b end, mask_mod = "
             "causal }\n"},
};
static const struct inline_spec LATENT = {"latent",
                                          "return attention { v = 'k', mask_mod = causal, scale = 0.07 }\n"};
static const char *const SHIPPED[] = {"retention", "sigmoid",   "sinks", "softcap",     "alibi",
                                      "relu",      "fp8_cache", "hstu",  "nsa_selected"};

/* pool: of pages, where sequences share them; 0: each has its own. */
static const struct shape {
    int seqs, h, h_kv, q, page, most, pool, blocks;
    const char *without;
} SHAPES[] = {{3, 4, 2, 270, 16, 13, 0, 3, " cu_q cu_kv "},
              {7, 4, 2, 420, 64, 4, 0, 0, " cu_kv "},
              {3, 2, 1, 130, 3, 67, 0, 0, " cu_q cu_kv used_kv "},
              {40, 1, 1, 90, 32, 9, 120, 3, " cu_kv "},
              {5, 8, 2, 160, 256, 1, 0, 0, " cu_kv used_kv "},
              {3, 4, 4, 70, 1, 150, 400, 2, " cu_q cu_kv "},
              {7, 4, 2, 420, 24, 9, 40, 0, " cu_kv "},
              {1, 2, 1, 200, 128, 5, 0, 0, " cu_q cu_kv "}};

static void add(struct case_list *list, const struct inline_spec *spec, int i, lathe_dtype dtype, int d,
                int d_v)
{
    const struct shape *of = &SHAPES[i % COUNT(SHAPES)];
    struct test_case c = case_of_attention("gathered", spec->name, spec->text, dtype, d, d_v, 90);
    c.template_name = "attention_fwd_gathered_sm90";
    c.dtypes = spec == &LATENT                      ? (i % 2 ? "k=f8e4m3" : "k=i8")
               : strcmp(spec->name, "factors") == 0 ? DTYPES[i % 3]
                                                    : DTYPES[i % COUNT(DTYPES)];
    c.without = of->without;
    c.dim[SYM_SEQS] = of->seqs;
    c.dim[SYM_B] = strstr(of->without, "cu_q") ? of->seqs : 1;
    c.dim[SYM_H] = of->h;
    c.dim[SYM_H_KV] = of->h_kv;
    c.dim[SYM_Q] = of->q;
    c.dim[SYM_PAGE] = of->page;
    c.dim[SYM_MOST] = of->most;
    c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
    c.dim[SYM_POOL] = of->pool > 0 ? of->pool : (int64_t)of->seqs * of->most + 3;
    /* Padded batches of q, and pages of 16 bits, are no whole tokens apart, which TMA wants. */
    const bool padded = c.dim[SYM_B] == 1 && strchr(c.dtypes, ',');
    c.layout = i % 3 == 0 ? LAYOUT_COMPACT : i % 3 == 1 || !padded ? LAYOUT_SWAPPED : LAYOUT_PADDED;
    c.blocks = of->blocks;
    c.parts = i % 11 == 10 && strcmp(spec->name, "ends") != 0;
    case_add(list, &c);
}

/* Every shape, every pair of dtypes. */
static void add_shapes(struct case_list *list)
{
    for (int i = 0; i < 3 * COUNT(SHAPES); i++)
        add(list, &SPECS[i % 3], i, i % 2 ? LATHE_F16 : LATHE_BF16, i % 2 ? 64 : 128, i % 2 ? 64 : 128);
}

static void add_specs(struct case_list *list)
{
    for (int i = 0; i < 2 * COUNT(SPECS); i++)
        add(list, &SPECS[i % COUNT(SPECS)], i + 3, i < COUNT(SPECS) ? LATHE_BF16 : LATHE_F16, 64, 64);
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add(list, &(struct inline_spec){SHIPPED[i], NULL}, i, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 64);
    for (int i = 0; i < 3; i++)
        add(list, &LATENT, 2 * i + 1, i % 2 ? LATHE_F16 : LATHE_BF16, 128, i == 2 ? 64 : 128);
}

static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{256, 256}, {192, 128}, {96, 96}, {80, 48},
                                  {64, 128},  {128, 512}, {16, 32}, {128, 256}};
    for (int i = 0; i < COUNT(DIMS); i++)
        add(list, &SPECS[1], i, i % 2 ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1]);
}

void group_gathered(struct case_list *list)
{
    add_shapes(list);
    add_specs(list);
    add_dims(list);
}
