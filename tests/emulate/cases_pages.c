/*
 * cases_pages.c: keys and values in pages: of 1 to 256 keys, heads or tokens first, NaN in pages that no key
 * in use lies in and beside the last key; dense and packed queries, rows that are cut by keys. In: nothing.
 * Out: cases at the end of the list.
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
     "  return eq(x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) // 9, x.doc(at.b, at.kv) // 9) end }\n"},
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
    {"left_padded", /* tiles ahead of a sequence's first key are not read: NaN is in them */
     "return attention { inputs = { live_from = tensor('i32', 'b') }, mask_mod = function(at, x)\n"
     "  return ge(at.kv, x.live_from(at.b)) & ge(at.q, at.kv) end }\n"},
};
/* Mods of q and o: keys and values lie in pages as they are. */
static const char ENDS[] =
    "return attention { query_mod = half(function(a, b, at)\n"
    "    return a * cos(0.1 * at.pos) - b, b * cos(0.1 * at.pos) + a end),\n"
    "  output_mod = function(o, at) return o + 0.01 * at.pos + 0.1 * at.b end, mask_mod = "
    "causal }\n";
static const char *const SHIPPED[] = {"retention", "sigmoid", "sinks", "softcap", "dropout", "relu"};
static const struct {
    int page, most;
} PAGES[] = {{1, 200}, {3, 67}, {16, 13}, {64, 4}, {256, 1}};

/* Of queries: in batches, or packed. */
static const struct {
    int seqs, h, h_kv, q;
    const char *without;
} SHAPES[] = {
    {3, 4, 2, 70, " cu_q cu_kv "}, {7, 4, 2, 420, " cu_kv "}, {3, 2, 1, 33, " cu_q cu_kv used_kv "}};
static const struct {
    int b, h, h_kv, q;
} FEW[] = {{3, 8, 2, 1}, {3, 4, 4, 5}, {3, 8, 1, 3}, {3, 4, 2, 33}};

static void set_pages(struct test_case *c, int pages, int times, int seqs)
{
    c->dim[SYM_SEQS] = seqs;
    c->dim[SYM_PAGE] = PAGES[pages].page;
    c->dim[SYM_MOST] = PAGES[pages].most * times;
    c->dim[SYM_KV] = c->dim[SYM_PAGE] * c->dim[SYM_MOST];
    c->dim[SYM_POOL] = seqs * c->dim[SYM_MOST] + 3;
    c->layout = pages % 2 ? LAYOUT_SWAPPED : pages == 2 ? LAYOUT_PADDED : LAYOUT_COMPACT;
}

static void add(struct case_list *list, struct test_case c, int shape, int pages)
{
    c.without = SHAPES[shape].without;
    set_pages(&c, pages, 1, SHAPES[shape].seqs);
    c.dim[SYM_B] = strstr(c.without, "cu_q") ? SHAPES[shape].seqs : 1;
    c.dim[SYM_H] = SHAPES[shape].h;
    c.dim[SYM_H_KV] = SHAPES[shape].h_kv;
    c.dim[SYM_Q] = SHAPES[shape].q;
    case_add(list, &c);
}

static void add_few(struct case_list *list, struct test_case c, int shape, int pages)
{
    c.template_name = "attention_decode";
    c.without = " cu_q cu_kv ";
    set_pages(&c, pages, 3, FEW[shape].b);
    c.dim[SYM_B] = FEW[shape].b;
    c.dim[SYM_H] = FEW[shape].h;
    c.dim[SYM_H_KV] = FEW[shape].h_kv;
    c.dim[SYM_Q] = FEW[shape].q;
    case_add(list, &c);
}

/* Packed queries of few tokens each. */
static void add_few_packed(struct case_list *list, struct test_case c, int pages, const char *without)
{
    c.template_name = "attention_decode";
    c.without = without;
    set_pages(&c, pages, 3, 6);
    c.dim[SYM_B] = 1;
    c.dim[SYM_H] = 8;
    c.dim[SYM_H_KV] = 2;
    c.dim[SYM_Q] = 31;
    case_add(list, &c);
}

/* On Hopper a tile of keys is boxes that lie within pages: several to a tile, several to a page, and parts of
   both where neither divides the other. */
static const struct {
    int page, most;
} HOPPER_PAGES[] = {{16, 13}, {64, 4}, {32, 9}, {128, 3}, {256, 2}};
static const struct {
    int seqs, h, h_kv, q, blocks;
    const char *without;
} HOPPER_SHAPES[] = {{3, 4, 2, 270, 3, " cu_q cu_kv "},
                     {7, 4, 2, 420, 0, " cu_kv "},
                     {40, 1, 1, 90, 3, " cu_kv "},
                     {3, 2, 1, 130, 0, " cu_q cu_kv used_kv "}};

static void add_hopper(struct case_list *list, struct test_case c, int shape, int pages)
{
    const int seqs = HOPPER_SHAPES[shape].seqs;
    c.template_name = "attention_fwd_sm90";
    c.without = HOPPER_SHAPES[shape].without;
    c.dim[SYM_SEQS] = seqs;
    c.dim[SYM_B] = strstr(c.without, "cu_q") ? seqs : 1;
    c.dim[SYM_H] = HOPPER_SHAPES[shape].h;
    c.dim[SYM_H_KV] = HOPPER_SHAPES[shape].h_kv;
    c.dim[SYM_Q] = HOPPER_SHAPES[shape].q;
    c.dim[SYM_PAGE] = HOPPER_PAGES[pages].page;
    c.dim[SYM_MOST] = HOPPER_PAGES[pages].most;
    c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
    c.dim[SYM_POOL] = seqs * c.dim[SYM_MOST] + 3;
    c.layout = pages % 2 ? LAYOUT_SWAPPED : pages == 2 ? LAYOUT_PADDED : LAYOUT_COMPACT;
    c.blocks = HOPPER_SHAPES[shape].blocks;
    case_add(list, &c);
}

/* Pages that sequences have in common, many tiles of keys, queries that stand elsewhere, columns of o that
   two warpgroups share, few rows of tiles. */
static void add_hopper_more(struct case_list *list)
{
    static const struct {
        int d, d_v, seqs, h, h_kv, q, page, most, pool, blocks;
        lathe_dtype dtype;
        bool q_start;
        const char *without;
    } MORE[] = {
        {64, 64, 7, 4, 2, 420, 16, 13, 29, 3, LATHE_BF16, false, " cu_kv "},
        {128, 128, 5, 2, 1, 150, 64, 4, 11, 0, LATHE_F16, false, " cu_q cu_kv "},
        {128, 128, 3, 2, 2, 65, 128, 9, 30, 0, LATHE_BF16, true, " cu_q cu_kv "},
        {64, 64, 1, 1, 1, 200, 256, 20, 21, 0, LATHE_BF16, false, " cu_q cu_kv used_kv "},
        {128, 512, 3, 1, 1, 70, 32, 5, 18, 0, LATHE_BF16, false, " cu_q cu_kv "},
        {128, 256, 7, 1, 1, 420, 16, 9, 66, 2, LATHE_F16, false, " cu_kv "},
        {16, 24, 4, 1, 1, 90, 16, 6, 27, 0, LATHE_BF16, false, " cu_q cu_kv "},
        {64, 64, 3, 1, 1, 0, 32, 3, 12, 0, LATHE_BF16, false, " cu_q cu_kv "},
    };
    for (int i = 0; i < COUNT(MORE); i++) {
        struct test_case c = case_of_attention("paged_sm90", SPECS[i % 3].name, SPECS[i % 3].text,
                                               MORE[i].dtype, MORE[i].d, MORE[i].d_v, 90);
        c.template_name = "attention_fwd_sm90";
        c.without = MORE[i].without;
        c.has_q_start = MORE[i].q_start;
        c.dim[SYM_SEQS] = MORE[i].seqs;
        c.dim[SYM_B] = strstr(c.without, "cu_q") ? MORE[i].seqs : 1;
        c.dim[SYM_H] = MORE[i].h;
        c.dim[SYM_H_KV] = MORE[i].h_kv;
        c.dim[SYM_Q] = MORE[i].q;
        c.dim[SYM_PAGE] = MORE[i].page;
        c.dim[SYM_MOST] = MORE[i].most;
        c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
        c.dim[SYM_POOL] = MORE[i].pool;
        c.layout = i % 3 == 0 ? LAYOUT_SWAPPED : i % 3 == 1 ? LAYOUT_COMPACT : LAYOUT_PADDED;
        c.blocks = MORE[i].blocks;
        case_add(list, &c);
    }
}

static void group_hopper(struct case_list *list, bool full)
{
    static const int DIMS[][2] = {{256, 256}, {192, 128}, {96, 96}, {80, 40}, {64, 128}};
    for (int i = 0; i < COUNT(SPECS) - 1; i++) /* the last leaves out tiles of 64 keys */
        for (int k = 0; k < (full || i == 1 ? COUNT(HOPPER_PAGES) : 2); k++)
            add_hopper(list,
                       case_of_attention("paged_sm90", SPECS[i].name, SPECS[i].text,
                                         k % 2 ? LATHE_F16 : LATHE_BF16, k % 2 ? 64 : 128, k % 2 ? 64 : 128,
                                         90),
                       (i + k) % COUNT(HOPPER_SHAPES), (i + 2 * k) % COUNT(HOPPER_PAGES));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_hopper(list, case_of_attention("paged_sm90", SHIPPED[i], NULL, LATHE_BF16, 64, 64, 90),
                   i % COUNT(HOPPER_SHAPES), i % COUNT(HOPPER_PAGES));
    for (int i = 0; i < COUNT(DIMS); i++)
        add_hopper(list,
                   case_of_attention("paged_sm90", SPECS[1].name, SPECS[1].text, LATHE_F16, DIMS[i][0],
                                     DIMS[i][1], 90),
                   i % 2, i);
    for (int i = 0; i < 2; i++)
        add_hopper(list, case_of_attention("paged_sm90", "ends", ENDS, LATHE_BF16, 64, 64, 90), i, i + 1);
    struct test_case pair =
        case_of_attention("paged_sm90", "pair", "return attention { qk2 = true }\n", LATHE_BF16, 128, 64, 90);
    pair.dim[SYM_D2] = 64;
    add_hopper(list, pair, 1, 1);
    add_hopper_more(list);
}

static void add_dims(struct case_list *list)
{
    static const int DIMS[][2] = {{128, 128}, {96, 96},   {80, 40}, {256, 256},
                                  {16, 24},   {192, 128}, {64, 128}};
    static const int SM[] = {90, 80, 86};
    for (int i = 0; i < COUNT(DIMS); i++) {
        add(list,
            case_of_attention("paged", SPECS[1].name, SPECS[1].text, i % 2 ? LATHE_F16 : LATHE_BF16,
                              DIMS[i][0], DIMS[i][1], SM[i % 3]),
            0, i % COUNT(PAGES));
        add_few(list,
                case_of_attention("decode_paged", SPECS[1].name, SPECS[1].text,
                                  i % 2 ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1], SM[(i + 1) % 3]),
                i % COUNT(FEW), (i + 2) % COUNT(PAGES));
    }
}

void group_pages(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(PAGES) : 3); k++) {
            add(list, case_of_attention("paged", SPECS[i].name, SPECS[i].text, LATHE_BF16, 64, 64, 80),
                (i + k) % COUNT(SHAPES), (i + 2 * k) % COUNT(PAGES));
            add_few(list,
                    case_of_attention("decode_paged", SPECS[i].name, SPECS[i].text, LATHE_BF16, 64, 64,
                                      k % 2 ? 80 : 90),
                    (i + k) % COUNT(FEW), (i + 2 * k) % COUNT(PAGES));
        }
    for (int i = 0; i < COUNT(SHIPPED); i++) {
        add(list, case_of_attention("paged", SHIPPED[i], NULL, LATHE_F16, 64, 64, 80), i % COUNT(SHAPES),
            i % COUNT(PAGES));
        add_few(list, case_of_attention("decode_paged", SHIPPED[i], NULL, LATHE_F16, 64, 64, 90),
                i % COUNT(FEW), (i + 1) % COUNT(PAGES));
    }
    add_dims(list);
    for (int i = 0; i < 2; i++) {
        add(list, case_of_attention("paged", "ends", ENDS, LATHE_BF16, 64, 64, 80), i, i + 1);
        add_few(list, case_of_attention("decode_paged", "ends", ENDS, LATHE_F16, 64, 64, 90), i + 1, i);
    }
    add_few_packed(list, case_of_attention("decode_paged", "ends", ENDS, LATHE_BF16, 64, 64, 90), 2,
                   " cu_kv ");
    add(list, case_of_attention("paged", "row_gates", SPEC_row_gates, LATHE_BF16, 64, 64, 80), 1, 2);
    add_few(list, case_of_attention("decode_paged", "row_gates", SPEC_row_gates, LATHE_F16, 64, 64, 90), 1,
            2);
    add_few_packed(list,
                   case_of_attention("decode_paged", "row_gates", SPEC_row_gates, LATHE_BF16, 64, 64, 90), 1,
                   " cu_kv ");
    for (int i = 0; i < COUNT(SPECS); i++)
        add_few_packed(
            list, case_of_attention("decode_paged", SPECS[i].name, SPECS[i].text, LATHE_BF16, 64, 64, 90),
            (i + 2) % COUNT(PAGES), i == 1 ? " cu_kv used_kv " : " cu_kv ");
    group_hopper(list, full);
}
