/*
 * cases_narrow.c: keys and values of 8 bits, each of its dtype, beside queries of 16 or 32: scales as factors
 * of scores, as mods of k and v by head, token and block of keys, q2 and k2, rows that do not start at 16
 * bytes, sequences, few queries, pages. In: nothing. Out: cases at the end of the list.
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

void group_narrow(struct case_list *list)
{
    add_ahead(list);
    add_dims(list);
}
