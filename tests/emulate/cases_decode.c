/*
 * cases_decode.c: rows that are cut by keys: few queries against many keys, of groups of query heads of every
 * kind, with masks, tables and online functions of their own; parts without a live key. In: nothing. Out:
 * cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char DECODE[] = "attention_decode";

static const struct inline_spec SPECS[] = {
    {"whole", "return attention {}\n"},
    {"causal", "return attention { mask_mod = causal }\n"},
    {"window", /* most parts have nothing */
     "return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 150) end }\n"},
    {"by_head",
     "return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 40 + 90 * at.h) "
     "end,\n"
     "  score_mod = function(s, at) return s - exp2(-8.0 * (at.h + 1) / at.n_h) * (at.q - at.kv) end }\n"},
    {"documents",
     "return attention { inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, x)\n"
     "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) // 9, x.doc(at.b, at.kv) // 9) end }\n"},
    {"tree", /* every query sees the context, and of the last keys those that a table has */
     "return attention { inputs = { seen = tensor('f32', 'q', 'q') }, mask_mod = function(at, x)\n"
     "  local place = at.kv - (at.len_kv - at.len_q)\n"
     "  return lt(place, 0) | gt(x.seen(at.row, clamp(place, 0, at.len_q - 1)), 0.0) end }\n"},
    {"tables", /* over sequences and heads, over tokens, and over distances */
     "return attention { inputs = { slope = tensor('f32', 'b', 'h'), bias = tensor('f32', 'h', 'kv'),\n"
     "    near = tensor('f32', 'h', 64) }, mask_mod = causal,\n"
     "  score_mod = function(s, at, x)\n"
     "    return s + x.slope(at.b, at.h) * 0.01 * (at.q - at.kv) + x.bias(at.h, at.kv)\n"
     "      + x.near(at.h, clamp(at.q - at.kv, 0, 63)) + 0.01 * at.len_q end }\n"},
    {"holes", /* no row sees any of the first half, and row 0 nothing at all */
     "return attention { mask_mod = function(at)\n"
     "  return ge(at.kv * 2, at.len_kv) & ne(at.kv % 3, 0) & gt(at.row, 0) end }\n"},
    {"left_padded", /* tiles ahead of a sequence's first key are not read: NaN is in them */
     "return attention { inputs = { live_from = tensor('i32', 'b') }, mask_mod = function(at, x)\n"
     "  return ge(at.kv, x.live_from(at.b)) & ge(at.q, at.kv) end }\n"},
};
static const char *const SHIPPED[] = {"retention", "sigmoid", "sinks", "softcap", "dropout", "relu"};
static const struct inline_spec OWN[] = {
    {"mean_abs", SPEC_mean_abs}, {"gate", SPEC_gate}, {"squares", SPEC_squares}};

static const struct {
    int b, h, h_kv, q, kv;
} SHAPES[] = {
    {2, 8, 2, 1, 1030}, {1, 4, 4, 5, 777}, {1, 8, 1, 3, 600}, {2, 5, 1, 4, 900}, {1, 4, 2, 33, 520}};

static void add(struct case_list *list, struct test_case c, int shape)
{
    c.template_name = DECODE;
    case_shape(&c, SHAPES[shape].b, SHAPES[shape].h, SHAPES[shape].h_kv, SHAPES[shape].q, SHAPES[shape].kv);
    c.layout = shape % 3 == 0 ? LAYOUT_COMPACT : shape % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
    case_add(list, &c);
}

static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{64, 64}, {96, 96}, {80, 40}, {128, 256}, {256, 256}, {16, 24}, {192, 128}};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < 2; k++)
            add(list,
                case_of_attention("decode", SPECS[1].name, SPECS[1].text, k ? LATHE_F16 : LATHE_BF16,
                                  DIMS[i][0], DIMS[i][1], SM[(i + k) % 3]),
                (i + 2 * k) % COUNT(SHAPES));
}

/* Mods go through the workspace, as for whole rows. */
static void add_mods(struct case_list *list)
{
    static const char *const mods[] = {"rope", "qk_norm"};
    for (int i = 0; i < COUNT(mods); i++)
        add(list, case_of_attention("decode", mods[i], NULL, LATHE_BF16, 64, 64, 90), i);
    add(list,
        case_of_attention("decode", "output",
                          "return attention { mask_mod = function(at) return gt(at.row, 0) end,\n"
                          "  output_mod = function(o) return o + 0.5 end }\n",
                          LATHE_BF16, 64, 64, 90),
        1);
    for (int i = 0; i < 3; i++)
        add(list, case_of_attention("decode", "row_gates", SPEC_row_gates, LATHE_BF16, 64, 64, i ? 80 : 90),
            i);
    struct test_case c = case_of_attention("decode", SPECS[1].name, SPECS[1].text, LATHE_BF16, 64, 64, 90);
    c.layout = LAYOUT_MISALIGNED;
    add(list, c, 0);
    list->item[list->n - 1].layout = LAYOUT_MISALIGNED;
}

static void add_used(struct case_list *list)
{
    for (int i = 0; i < COUNT(SPECS); i++) {
        struct test_case c = case_of_attention("decode_varlen", SPECS[i].name, SPECS[i].text, LATHE_BF16, 64,
                                               64, i % 2 ? 80 : 90);
        c.without = " cu_q cu_kv ";
        add(list, c, i % COUNT(SHAPES));
        c = list->item[list->n - 1];
        list->n--;
        c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
        case_add(list, &c);
    }
}

/* Queries of their own number in each sequence: none, fewer rows than a warp has, as many, and several tiles.
 */
static const struct {
    int seqs, h, h_kv, q, kv;
    const char *without;
} PACKED[] = {{6, 8, 2, 31, 1400, " used_kv "}, {6, 5, 1, 31, 1400, " _ "}, {5, 4, 4, 12, 2000, " used_kv "}};

static void add_packed(struct case_list *list, struct test_case c, int shape)
{
    add(list, c, shape);
    c = list->item[--list->n];
    c.without = PACKED[shape].without;
    c.dim[SYM_B] = 1;
    c.dim[SYM_SEQS] = PACKED[shape].seqs;
    c.dim[SYM_H] = PACKED[shape].h;
    c.dim[SYM_H_KV] = PACKED[shape].h_kv;
    c.dim[SYM_Q] = PACKED[shape].q;
    c.dim[SYM_KV] = PACKED[shape].kv;
    case_add(list, &c);
}

static void add_all_packed(struct case_list *list)
{
    static const int DIMS[][2] = {{128, 128}, {80, 40}, {256, 256}};
    for (int i = 0; i < COUNT(SPECS); i++)
        if (strcmp(SPECS[i].name, "tree") != 0) /* has a table of pairs */
            add_packed(list,
                       case_of_attention("decode_varlen", SPECS[i].name, SPECS[i].text, LATHE_BF16, 64, 64,
                                         i % 2 ? 80 : 90),
                       i % COUNT(PACKED));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_packed(list, case_of_attention("decode_varlen", SHIPPED[i], NULL, LATHE_F16, 64, 64, 90),
                   i % COUNT(PACKED));
    add_packed(list, case_of_attention("decode_varlen", "rope", NULL, LATHE_BF16, 64, 64, 80), 0);
    add_packed(list, case_of_attention("decode_varlen", "qk_norm", NULL, LATHE_F16, 64, 64, 90), 1);
    for (int i = 0; i < COUNT(DIMS); i++)
        add_packed(list,
                   case_of_attention("decode_varlen", SPECS[1].name, SPECS[1].text, LATHE_F16, DIMS[i][0],
                                     DIMS[i][1], i % 2 ? 80 : 90),
                   i);
}

void group_decode(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(SHAPES) : 2); k++)
            add(list,
                case_of_attention("decode", SPECS[i].name, SPECS[i].text, LATHE_BF16, 128, 128,
                                  k % 2 ? 80 : 90),
                (i + (k ? 4 + (i % 2) : 0) * (k < 2) + k * (k >= 2)) % COUNT(SHAPES));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add(list, case_of_attention("decode", SHIPPED[i], NULL, LATHE_BF16, 64, 64, 90), i % COUNT(SHAPES));
    for (int i = 0; i < COUNT(OWN); i++)
        add(list, case_of_attention("decode", OWN[i].name, OWN[i].text, LATHE_F16, 64, 64, 90),
            (i + 1) % COUNT(SHAPES));
    add_dims(list);
    add_mods(list);
    add_used(list);
    add_all_packed(list);
}
