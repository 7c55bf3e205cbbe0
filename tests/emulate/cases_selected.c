/*
 * cases_selected.c: rows that have lists of blocks of keys (attention_selected): groups of query heads of
 * every size, lists with entries that are no blocks and that come again, windows that cut blocks, by head
 * too, packed sequences, keys that are not in use, pages. In: nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Of n entries of the list `near`, in blocks of so many keys. */
#define CHOICE(n, keys)                                                                                      \
    "local function chosen(at, x)\n"                                                                         \
    "  local any = eq(x.near(at.b, at.h_kv, at.row, 0), at.kv // " keys ")\n"                                \
    "  for i = 1, " n " - 1 do any = any | eq(at.kv // " keys ", x.near(at.b, at.h_kv, at.row, i)) end\n"    \
    "  return any\nend\n"                                                                                    \
    "local near = tensor('i32', 'b', 'h_kv', 'q', " n ")\n"

static const struct inline_spec SPECS[] = {
    /* numbers from -3 to 3 or so: some are no blocks, and some come again */
    {"again",
     CHOICE("7", "16") "return attention { inputs = { near = near }, mask_mod = both(causal, chosen) }\n"},
    {"both sides", CHOICE("3", "48") "return attention { inputs = { near = near }, mask_mod = chosen }\n"},
    {"window by head",
     CHOICE("33",
            "32") "return attention { inputs = { near = near }, mask_mod = function(at, x)\n"
                  "  return ge(at.q, at.kv) & lt(at.q - at.kv, 10 + 9 * at.h) & chosen(at, x) end,\n"
                  "  score_mod = function(s, at) return s - 0.01 * (at.h + 1) * (at.q - at.kv) end }\n"},
    {"sigmoid",
     CHOICE("2", "16") "return attention { inputs = { near = near }, mask_mod = both(chosen, causal),\n"
                       "  online_func = elementwise_weights(sigmoid) }\n"},
    {"sinks and output",
     CHOICE(
         "1",
         "64") "return attention { inputs = { near = near, sink = tensor('f32', 'h') }, mask_mod = chosen,\n"
               "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end),\n"
               "  output_mod = function(o) return o + 0.5 end }\n"},
};

static const char TWO_PAIRS[] = CHOICE(
    "4", "64") "return attention { inputs = { near = near }, mask_mod = both(causal, chosen), qk2 = true }\n";

static const struct {
    int b, h, h_kv, q, kv;
} SHAPES[] = {{1, 16, 1, 9, 300}, {2, 4, 2, 33, 130}, {1, 5, 5, 17, 17},  {1, 34, 2, 5, 1030},
              {2, 32, 1, 3, 63},  {1, 2, 1, 70, 40},  {1, 2, 2, 1030, 40}};
enum { FEW = 6 }; /* of them: the others are for more queries than a list of the backward pass has */

static void add(struct case_list *list, struct test_case c, int shape)
{
    c.template_name = c.pass == LATHE_BACKWARD ? "attention_bwd_selected" : "attention_selected";
    case_shape(&c, SHAPES[shape].b, SHAPES[shape].h, SHAPES[shape].h_kv, SHAPES[shape].q, SHAPES[shape].kv);
    c.layout = shape % 3 == 0 ? LAYOUT_COMPACT : shape % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
    case_add(list, &c);
}

static struct test_case of(const char *group, int spec, lathe_dtype dtype, int d, int d_v, int sm)
{
    return spec < 0 ? case_of_attention(group, "nsa_selected", NULL, dtype, d, d_v, sm)
                    : case_of_attention(group, SPECS[spec].name, SPECS[spec].text, dtype, d, d_v, sm);
}

static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{64, 64},   {96, 96},   {80, 40}, {128, 128},
                                  {256, 256}, {192, 128}, {16, 24}, {128, 256}};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < 2; k++)
            add(list,
                of("selected", k ? 2 : -1, i % 2 == k ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1],
                   SM[(i + k) % 3]),
                (i + 2 * k) % FEW);
}

static void add_back(struct case_list *list, struct test_case c)
{
    c.pass = LATHE_BACKWARD;
    c.template_name = "attention_bwd_selected";
    case_add(list, &c);
}

/* Packed; of batches the first keys alone; in pages. */
static void add_sequences(struct case_list *list)
{
    static const struct {
        int seqs, q, kv;
        const char *without;
    } CALLS[] = {{7, 420, 430, " used_kv "}, {30, 90, 90, " cu_kv used_kv "}, {7, 420, 430, " _ "}};
    for (int i = 0; i < COUNT(CALLS) * 3; i++) {
        struct test_case c = of("selected_varlen", i % 3 - 1, LATHE_BF16, 64, 64, i % 2 ? 80 : 90);
        c.template_name = "attention_selected";
        c.without = CALLS[i / 3].without;
        c.dim[SYM_SEQS] = CALLS[i / 3].seqs;
        c.dim[SYM_B] = 1;
        c.dim[SYM_H] = 4;
        c.dim[SYM_H_KV] = 2;
        c.dim[SYM_Q] = CALLS[i / 3].q;
        c.dim[SYM_KV] = CALLS[i / 3].kv;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        case_add(list, &c);
        add_back(list, c);
    }
    for (int i = 0; i < 3; i++) {
        struct test_case c = of("selected_varlen", i - 1, LATHE_F16, 64, 64, 90);
        c.without = " cu_q cu_kv ";
        c.dim[SYM_SEQS] = 3;
        c.template_name = "attention_selected";
        c.dim[SYM_B] = 3;
        c.dim[SYM_H] = 4;
        c.dim[SYM_H_KV] = 2;
        c.dim[SYM_Q] = 21;
        c.dim[SYM_PAGE] = i == 0 ? -1 : i == 1 ? 16 : 3;
        c.dim[SYM_KV] = 192;
        if (i > 0) {
            c.dim[SYM_MOST] = 192 / c.dim[SYM_PAGE];
            c.dim[SYM_POOL] = 3 * c.dim[SYM_MOST] + 3;
        }
        case_add(list, &c);
        if (i == 0)
            add_back(list, c);
    }
    struct test_case c = of("selected_varlen", 3, LATHE_BF16, 32, 32, 90); /* a sequence of two ranges */
    c.without = " cu_kv used_kv ";
    c.dim[SYM_B] = c.dim[SYM_SEQS] = 1;
    c.dim[SYM_H] = c.dim[SYM_H_KV] = 2;
    c.dim[SYM_Q] = c.dim[SYM_KV] = 1030;
    add_back(list, c);
}

/* Rows end as parts of themselves. */
static void add_as_parts(struct case_list *list)
{
    for (int i = 0; i < COUNT(SPECS); i++) {
        struct test_case c = of("selected", i, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, i % 2 ? 80 : 90);
        c.parts = true;
        add(list, c, i % FEW);
    }
}

/* Gradients: of every head dim that tiles are chosen by, of tokens in two ranges (LIST_RANGE of
   attention/backward/selected_lists.cuh), with some of them not asked for, and with the forward kernel in
   front. */
static void add_gradients(struct case_list *list, bool full)
{
    static const int DIMS[][2] = {{64, 64}, {128, 128}, {80, 40}, {192, 256}, {16, 24}};
    static const char *const WITHOUT[] = {" dlse ",    "",          " dlse dq ",
                                          " dk dlse ", " dv dlse ", " o lse dlse "};
    static const char *const TILES[] = {"64x64w4p2s1"};
    static const int SM[] = {90, 80, 86};
    for (int i = -1; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? 6 : 4); k++) {
            const int *dim = DIMS[(i + 1 + 2 * k) % COUNT(DIMS)];
            struct test_case c =
                of("selected_back", i, k % 2 ? LATHE_F16 : LATHE_BF16, dim[0], dim[1], SM[k % 3]);
            c.pass = LATHE_BACKWARD;
            c.without = WITHOUT[(i + 1 + k) % COUNT(WITHOUT)];
            c.skewed = (i + k) % 4 == 3;
            add(list, c, (i + 1 + k) % FEW);
        }
    for (int i = 0; i < COUNT(TILES); i++) {
        struct test_case c = of("selected_back", -1, LATHE_BF16, 128, 128, 90);
        c.pass = LATHE_BACKWARD;
        c.tile = TILES[i];
        add(list, c, i % FEW);
    }
    struct test_case c = of("selected_back", 3, LATHE_BF16, 32, 32, 90);
    c.pass = LATHE_BACKWARD;
    add(list, c, FEW);
    c = case_of_attention("selected_back", "two pairs", TWO_PAIRS, LATHE_BF16, 64, 64, 90);
    c.pass = LATHE_BACKWARD;
    c.dim[SYM_D2] = 16;
    add(list, c, 1);
}

void group_selected(struct case_list *list, bool full)
{
    for (int i = -1; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? FEW : 3); k++)
            add(list, of("selected", i, k % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, k == 1 ? 80 : 90),
                (2 * i + 2 + k) % FEW);
    add_dims(list);
    add_sequences(list);
    add_as_parts(list);
    add_gradients(list, full);
}
