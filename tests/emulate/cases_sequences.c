/*
 * cases_sequences.c: packed sequences of attention, and batches of which not all keys are in use: lengths of
 * 0, 1, a tile and one more, many short ones. In: nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct inline_spec SPECS[] = {
    {"whole", "return attention {}\n"},
    {"causal", "return attention { mask_mod = causal }\n"},
    {"window",
     "return attention { mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 20) end }\n"},
    {"documents",
     "return attention { inputs = { doc = tensor('i32', 'b', 'kv') }, mask_mod = function(at, x)\n"
     "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)), x.doc(at.b, at.kv)) end }\n"},
    {"tables", /* over sequences, over tokens, and over distances along diagonals */
     "return attention { inputs = { slope = tensor('f32', 'b', 'h'), bias = tensor('f32', 'h', 'kv'),\n"
     "    lift = tensor('float', 'b', 'q') }, mask_mod = causal,\n"
     "  score_mod = function(s, at, x)\n"
     "    return s + x.slope(at.b, at.h) * 0.05 * (at.q - at.kv) + x.bias(at.h, at.kv) * (1 + x.lift(at.b, "
     "at.row))\n"
     "      + 0.01 * at.len_q - 0.01 * at.len_kv end }\n"},
    {"learned", /* gradients of inputs over sequences, over tokens, and of all together */
     "return attention { inputs = { slope = tensor('f32', 'b', 'h', { grad = true }), bias = tensor('f32', "
     "'h', 'kv', "
     "{ grad = true }),\n"
     "    lift = tensor('f32', 'b', 'q', { grad = true }), gain = scalar('f32', { grad = true }) }, mask_mod "
     "= causal,\n"
     "  score_mod = function(s, at, x)\n"
     "    return s * (1 + 0.1 * x.gain) + x.slope(at.b, at.h) * 0.05 * (at.q - at.kv) + x.bias(at.h, at.kv)\n"
     "      + x.lift(at.b, at.row) end }\n"},
};
static const char *const SHIPPED[] = {"retention", "sigmoid", "sinks", "softcap", "softmax_one", "relu"};

static const struct {
    int seqs, h, h_kv, q, kv;
    const char *without;
} SHAPES[] = {
    {7, 4, 2, 420, 430, " used_kv "},      {7, 2, 2, 420, 430, " _ "},
    {30, 2, 1, 90, 90, " cu_kv used_kv "}, {7, 2, 1, 420, 430, " o lse "}, /* the forward kernel runs first */
    {3, 2, 1, 70, 100, " cu_q cu_kv "},
};

/* Of the kernels for Hopper. */
static const struct {
    int seqs, h, h_kv, q, kv;
    const char *without;
} PACKED[] = {
    {7, 4, 2, 420, 430, " used_kv "},        {7, 2, 2, 420, 430, " _ "},
    {30, 2, 1, 90, 90, " cu_kv used_kv "},   {SEQUENCES_ALONE, 2, 1, 420, 400, " used_kv o lse "},
    {45, 2, 2, 600, 600, " cu_kv used_kv "},
};

static void add(struct case_list *list, struct test_case c, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        c.without = SHAPES[i].without;
        c.dim[SYM_SEQS] = SHAPES[i].seqs;
        c.dim[SYM_B] = i == COUNT(SHAPES) - 1 ? SHAPES[i].seqs : 1;
        c.dim[SYM_H] = SHAPES[i].h;
        c.dim[SYM_H_KV] = SHAPES[i].h_kv;
        c.dim[SYM_Q] = SHAPES[i].q;
        c.dim[SYM_KV] = SHAPES[i].kv;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        c.pass = LATHE_FORWARD;
        if (strstr(c.without, " o ") == NULL)
            case_add(list, &c);
        c.pass = LATHE_BACKWARD;
        case_add(list, &c);
    }
}

/* Mods of q, k, v and o: by position, by sequence and by token, with gradients of what they read. */
static const struct inline_spec MODS[] = {
    {"rope", NULL},
    {"qk_norm", NULL},
    {"all mods",
     "local function turn(a, b, at)\n"
     "  local w = 0.1 * at.pos + at.i\n"
     "  return a * cos(w) - b * sin(w), a * sin(w) + b * cos(w)\n"
     "end\n"
     "return attention { inputs = { of_token = tensor('f32', 'b', 'q', { grad = true }),\n"
     "    of_key = tensor('f32', 'b', 'kv', { grad = true }), of_sequence = tensor('f32', 'b', 'h', { grad = "
     "true }),\n"
     "    of_column = tensor('f32', 'd_v', { grad = true }) },\n"
     "  query_mod = chain(half(turn), function(v, at, x) return v * (1 + 0.2 * x.of_token(at.b, at.q - "
     "at.len_kv + at.len_q)) end),\n"
     "  key_mod = chain(function(v, at, x) return v * rsqrt(dimsum(v * v) / at.d + 1e-6) end, half(turn)),\n"
     "  value_mod = function(v, at, x) return v * (1 + 0.2 * x.of_key(at.b, at.kv)) end,\n"
     "  output_mod = function(o, at, x) return o * x.of_column(at.i) + 0.1 * x.of_sequence(at.b, at.h) end,\n"
     "  mask_mod = causal }\n"},
    {"ends", /* of q and o alone: beside pages, too */
     "return attention { query_mod = half(function(a, b, at)\n"
     "    return a * cos(0.1 * at.pos) - b, b * cos(0.1 * at.pos) + a end),\n"
     "  output_mod = function(o, at) return o + 0.01 * at.pos + 0.1 * at.b end, mask_mod = causal }\n"},
    {"row_gates", SPEC_row_gates}, /* by row, where keys begin ahead of queries */
};

static void add_mods(struct case_list *list)
{
    for (int i = 0; i < COUNT(MODS); i++)
        for (int k = 0; k < COUNT(SHAPES); k++)
            if (i > 0 || k > 2)
                add(list,
                    case_of_attention("varlen_mods", MODS[i].name, MODS[i].text,
                                      (i + k) % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, k % 2 ? 90 : 80),
                    k, 1);
}

/* Rows that are copied: of head dims that are no multiple of 8, and such as are not aligned. */
static void add_copies(struct case_list *list)
{
    static const int DIMS[][2] = {{100, 100}, {64, 50}, {17, 33}, {64, 64}};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    for (int i = 0; i < COUNT(SHAPES); i++) {
        const int first = list->n;
        add(list,
            case_of_attention("varlen_mods", SPECS[1].name, SPECS[1].text, DTYPE[i % 3], DIMS[i % 4][0],
                              DIMS[i % 4][1], i % 2 ? 80 : 90),
            i, 1);
        for (int k = first; k < list->n && i % 4 % 3 == 0; k++)
            list->item[k].layout = LAYOUT_MISALIGNED;
        list->n -= i % 4 == 3; /* gradients of rows of do that are not aligned are refused */
    }
}

static void add_hopper_gradients(struct case_list *list, struct test_case c, bool mods)
{
    c.pass = LATHE_BACKWARD;
    if (!c.template_name)
        c.template_name = "attention_bwd_sm90";
    for (int i = 0; i < COUNT(PACKED); i++) {
        if (mods && PACKED[i].seqs == SEQUENCES_ALONE)
            continue; /* a mod makes NaN of no gradient where its row is NaN */
        c.without = PACKED[i].without;
        c.dim[SYM_SEQS] = PACKED[i].seqs;
        c.dim[SYM_B] = 1;
        c.dim[SYM_H] = PACKED[i].h;
        c.dim[SYM_H_KV] = PACKED[i].h_kv;
        c.dim[SYM_Q] = PACKED[i].q;
        c.dim[SYM_KV] = PACKED[i].kv;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        c.beside = i == 0 ? 4 : 0;
        case_add(list, &c);
        c.beside = 0;
    }
}

static struct test_case case_of_wide(const char *name, const char *text, lathe_dtype dtype, int d, int dv)
{
    struct test_case c = case_of_attention("varlen_wide_gradients", name, text, dtype, d, dv, 90);
    c.template_name = "attention_bwd_wide_sm90";
    return c;
}

/* Head dims beyond 128, with parts of v's columns and of k's that have other widths. */
static void add_wide_gradients(struct case_list *list)
{
    static const int DIMS[][2] = {{192, 128}, {160, 192}, {200, 64}, {224, 224}};
    for (int i = 0; i < COUNT(SPECS); i++)
        add_hopper_gradients(
            list, case_of_wide(SPECS[i].name, SPECS[i].text, i % 2 ? LATHE_F16 : LATHE_BF16, 192, 128),
            false);
    for (int i = 1; i < COUNT(SHIPPED); i += 2)
        add_hopper_gradients(
            list, case_of_wide(SHIPPED[i], NULL, LATHE_BF16, DIMS[i / 2 + 1][0], DIMS[i / 2 + 1][1]), false);
    for (int i = 2; i < COUNT(MODS); i++)
        add_hopper_gradients(list, case_of_wide(MODS[i].name, MODS[i].text, LATHE_F16, 192, 128), true);
    struct test_case pair = /* latent attention as it is trained: 128 columns and 64 rotary ones */
        case_of_wide("pair", "return attention { qk2 = true, mask_mod = causal }\n", LATHE_BF16, 192, 128);
    pair.dim[SYM_D2] = 64;
    add_hopper_gradients(list, pair, false);
}

/* On Hopper tiles are read and written within the bounds of one sequence, and found by lanes that look at one
   each: more sequences than lanes, lengths of keys that are not those of queries, more tiles than blocks. */
static const struct {
    int seqs, h, h_kv, q, kv;
    const char *without;
} HOPPER_SHAPES[] = {
    {7, 4, 2, 420, 430, " used_kv "},      {7, 2, 2, 420, 430, " _ "},
    {30, 2, 1, 90, 90, " cu_kv used_kv "}, {5, 2, 1, 1500, 1500, " cu_kv used_kv "},
    {70, 1, 1, 300, 310, " _ "},           {5, 4, 2, 250, 310, " cu_q cu_kv "},
};
enum { HOPPER_PACKED_SHAPES = COUNT(HOPPER_SHAPES) - 1 }; /* batches are last */

static void add_hopper(struct case_list *list, struct test_case c, int first, int n)
{
    c.template_name = "attention_fwd_sm90";
    c.pass = LATHE_FORWARD;
    for (int i = first; i < first + n; i++) {
        c.without = HOPPER_SHAPES[i].without;
        c.dim[SYM_B] = i < HOPPER_PACKED_SHAPES ? 1 : HOPPER_SHAPES[i].seqs;
        c.dim[SYM_SEQS] = HOPPER_SHAPES[i].seqs;
        c.dim[SYM_H] = HOPPER_SHAPES[i].h;
        c.dim[SYM_H_KV] = HOPPER_SHAPES[i].h_kv;
        c.dim[SYM_Q] = HOPPER_SHAPES[i].q;
        c.dim[SYM_KV] = HOPPER_SHAPES[i].kv;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        c.blocks = i % 2 ? 3 : 0;
        c.beside = i == 1 ? 3 : 0;
        case_add(list, &c);
    }
}

/* Batches of which not all keys are in use. */
static void add_in_use(struct case_list *list)
{
    const int shape = COUNT(HOPPER_SHAPES) - 1;
    for (int i = 0; i < COUNT(SPECS) - 1; i++)
        add_hopper(list,
                   case_of_attention("varlen_sm90", SPECS[i].name, SPECS[i].text,
                                     i % 2 ? LATHE_F16 : LATHE_BF16, i % 2 ? 64 : 128, i % 2 ? 64 : 128, 90),
                   shape, 1);
    for (int i = 1; i < COUNT(MODS); i++)
        add_hopper(list, case_of_attention("varlen_sm90", MODS[i].name, MODS[i].text, LATHE_BF16, 64, 64, 90),
                   shape, 1);
    add_hopper(list, case_of_attention("varlen_sm90", "softcap", NULL, LATHE_BF16, 80, 40, 90), shape, 1);
}

static void group_hopper(struct case_list *list, bool full)
{
    static const int DIMS[][2] = {{256, 256}, {192, 128}, {96, 96}, {80, 40}};
    for (int i = 0; i < COUNT(SPECS) - 1; i++)
        for (int d = 64; d <= 128; d += 64)
            add_hopper(list,
                       case_of_attention("varlen_sm90", SPECS[i].name, SPECS[i].text,
                                         i % 2 ? LATHE_F16 : LATHE_BF16, d, d, 90),
                       (i + d / 64) % 2, full || i == 1 ? HOPPER_PACKED_SHAPES - (i + d / 64) % 2 : 2);
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_hopper(list, case_of_attention("varlen_sm90", SHIPPED[i], NULL, LATHE_BF16, 64, 64, 90), i % 3,
                   1);
    for (int i = 0; i < COUNT(DIMS); i++)
        add_hopper(list,
                   case_of_attention("varlen_sm90", SPECS[1].name, SPECS[1].text, LATHE_F16, DIMS[i][0],
                                     DIMS[i][1], 90),
                   1, 1);
    for (int i = 1; i < COUNT(MODS); i++)
        add_hopper(list, case_of_attention("varlen_sm90", MODS[i].name, MODS[i].text, LATHE_BF16, 64, 64, 90),
                   i % 2, 1);
    for (int d2 = 32; d2 <= 64; d2 += 32) { /* copied, read */
        struct test_case c =
            case_of_attention("varlen_sm90", "pair", "return attention { qk2 = true, mask_mod = causal }\n",
                              LATHE_BF16, 64 + d2, 64, 90);
        c.dim[SYM_D2] = d2;
        add_hopper(list, c, 1, 1);
    }
    add_in_use(list);
}

void group_sequences(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int d = 64; d <= (full || i == 1 ? 128 : 64); d += 64)
            add(list,
                case_of_attention("varlen", SPECS[i].name, SPECS[i].text, i % 2 ? LATHE_F16 : LATHE_BF16, d,
                                  d, i % 2 ? 90 : 80),
                0, COUNT(SHAPES));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add(list, case_of_attention("varlen", SHIPPED[i], NULL, LATHE_BF16, 64, 64, 80), i % 3, 1);
    add_mods(list);
    add_copies(list);
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int d = 64; d <= (full || i == 1 ? 128 : 64); d += 64)
            add_hopper_gradients(list,
                                 case_of_attention("varlen_hopper_gradients", SPECS[i].name, SPECS[i].text,
                                                   i % 2 ? LATHE_F16 : LATHE_BF16, d, d, 90),
                                 false);
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_hopper_gradients(list,
                             case_of_attention("varlen_hopper_gradients", SHIPPED[i], NULL, LATHE_BF16,
                                               i % 2 ? 128 : 72, i % 2 ? 128 : 72, 90),
                             false);
    for (int i = 1; i < COUNT(MODS); i++)
        add_hopper_gradients(list,
                             case_of_attention("varlen_hopper_gradients", MODS[i].name, MODS[i].text,
                                               i % 2 ? LATHE_F16 : LATHE_BF16, i % 2 ? 128 : 64,
                                               i % 2 ? 128 : 64, 90),
                             true);
    add_wide_gradients(list);
    struct test_case pair = case_of_attention("varlen_hopper_gradients", "pair",
                                              "return attention { qk2 = true }\n", LATHE_F16, 64, 40, 90);
    pair.dim[SYM_D2] = 16;
    add_hopper_gradients(list, pair, false);
    group_hopper(list, full);
}
