/*
 * cases_pages_back.c: gradients of keys in pages: of 1 to 256 keys, pages that sequences share, pages and
 * rows that no key in use lies in; dense and packed queries; every kernel of the backward pass between the
 * two copies. In: nothing. Out: cases at the end of the list.
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
    {"learned", /* gradients of inputs over sequences, over keys of all sequences and of each, over queries */
     "return attention { inputs = { slope = tensor('f32', 'b', 'h', { grad = true }),\n"
     "    bias = tensor('f32', 'h', 'kv', { grad = true }), own = tensor('f32', 'b', 'kv', { grad = true "
     "}),\n"
     "    lift = tensor('f32', 'b', 'q', { grad = true }) },\n"
     "  mask_mod = causal,\n"
     "  score_mod = function(s, at, x)\n"
     "    return s + x.slope(at.b, at.h) * 0.05 * (at.q - at.kv) + x.bias(at.h, at.kv) + x.own(at.b, at.kv)\n"
     "      + x.lift(at.b, at.row) + 0.01 * at.len_q - 0.01 * at.len_kv end }\n"},
};
static const char *const SHIPPED[] = {"sigmoid", "sinks", "softcap"};
/* Mods of q and o: keys and values lie in pages as they are. */
static const char ENDS[] =
    "return attention { query_mod = half(function(a, b, at)\n"
    "    return a * cos(0.1 * at.pos) - b, b * cos(0.1 * at.pos) + a end),\n"
    "  output_mod = function(o, at) return o + 0.01 * at.pos + 0.1 * at.b end, mask_mod = "
    "causal }\n";
static const struct {
    int page, most;
} PAGES[] = {{16, 13}, {64, 4}, {3, 67}, {256, 1}, {1, 150}, {32, 7}, {128, 2}};

/* Of queries: in batches, or packed; shared: sequences have pages in common. */
static const struct {
    int seqs, h, h_kv, q;
    bool shared;
    const char *without;
} SHAPES[] = {{3, 4, 2, 70, false, " cu_q cu_kv "},        {7, 4, 2, 340, true, " cu_kv "},
              {3, 2, 1, 33, true, " cu_q cu_kv used_kv "}, {7, 2, 2, 340, false, " cu_kv o lse "},
              {3, 2, 1, 150, false, " cu_kv used_kv "},    {5, 2, 1, 40, true, " cu_q cu_kv o lse "}};
enum { DENSE_WHOLE = 2 }; /* the one that is as dense as any, once keys are copied */

static void add(struct case_list *list, struct test_case c, int shape, int pages)
{
    const int seqs = SHAPES[shape].seqs;
    c.pass = LATHE_BACKWARD;
    c.without = SHAPES[shape].without;
    c.dim[SYM_SEQS] = seqs;
    c.dim[SYM_B] = strstr(c.without, "cu_q") ? seqs : 1;
    c.dim[SYM_H] = SHAPES[shape].h;
    c.dim[SYM_H_KV] = SHAPES[shape].h_kv;
    c.dim[SYM_Q] = SHAPES[shape].q;
    c.dim[SYM_PAGE] = PAGES[pages].page;
    c.dim[SYM_MOST] = PAGES[pages].most;
    c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
    c.dim[SYM_POOL] = (SHAPES[shape].shared ? 2 : seqs) * c.dim[SYM_MOST] + 3;
    c.layout = pages % 2 ? LAYOUT_SWAPPED : pages == 2 ? LAYOUT_PADDED : LAYOUT_COMPACT;
    case_add(list, &c);
}

static struct test_case case_of(const char *spec, const char *text, lathe_dtype dtype, int d, int d_v, int sm,
                                const char *template_name)
{
    struct test_case c = case_of_attention("paged_back", spec, text, dtype, d, d_v, sm);
    c.template_name = template_name;
    return c;
}

static void add_kernels(struct case_list *list)
{
    static const struct {
        const char *template_name;
        lathe_dtype dtype;
        int sm, d, d_v, shape;
    } KERNEL[] = {
        {"attention_bwd_sm90", LATHE_BF16, 90, 64, 64, 1},
        {"attention_bwd_sm90", LATHE_F16, 90, 128, 128, 3},
        {"attention_bwd_sm90", LATHE_BF16, 90, 64, 64, 4},
        {"attention_bwd_sm90", LATHE_BF16, 90, 128, 64, 2},
        {"attention_bwd_wide_sm90", LATHE_F16, 90, 192, 128, 1},
        {"attention_bwd_wide_sm90", LATHE_BF16, 90, 256, 256, 2},
        {"attention_bwd_slices", LATHE_F16, 80, 320, 128, 2},
        {"attention_bwd_sm80", LATHE_F32, 80, 64, 64, 1},
        {"attention_bwd_sm80", LATHE_F32, 86, 40, 80, 5},
        {"attention_bwd_sm80", LATHE_F16, 86, 128, 128, 0},
        {"attention_bwd_sm80", LATHE_BF16, 80, 80, 40, 3},
    };
    for (int i = 0; i < COUNT(KERNEL); i++)
        add(list,
            case_of(SPECS[1].name, SPECS[1].text, KERNEL[i].dtype, KERNEL[i].d, KERNEL[i].d_v, KERNEL[i].sm,
                    KERNEL[i].template_name),
            KERNEL[i].shape, i % COUNT(PAGES));
}

/* Of 8 bits, which become numbers of q's dtype as they are copied; gradients are in that dtype. */
static void add_narrow(struct case_list *list)
{
    static const struct {
        const char *dtypes, *template_name;
        lathe_dtype dtype;
        int spec, sm, d, d_v, shape;
    } OF[] = {
        {"k=f8e4m3,v=f8e4m3", "attention_bwd_sm90", LATHE_BF16, 1, 90, 64, 64, 1},
        {"k=i8,v=f8e5m2", "attention_bwd_sm90", LATHE_F16, 4, 90, 128, 128, 3},
        {"k=f8e5m2,v=i8", "attention_bwd_sm80", LATHE_F16, 1, 80, 64, 64, 0},
        {"v=f8e4m3", "attention_bwd_sm80", LATHE_BF16, 2, 86, 48, 80, 3},
        {"k=f8e4m3", "attention_bwd_sm80", LATHE_BF16, 3, 80, 64, 32, 4},
        {"k=f8e4m3,v=i8", "attention_bwd_sm80", LATHE_F32, 1, 80, 64, 64, 1},
        {"k=i8,v=i8", "attention_bwd_sm80", LATHE_F32, 0, 86, 32, 96, 2},
        {"k=f8e4m3,v=f8e4m3", "attention_bwd_wide_sm90", LATHE_BF16, 1, 90, 192, 128, 2},
        {"k=i8,v=f8e4m3", "attention_bwd_slices", LATHE_F16, 1, 80, 320, 128, 2},
    };
    for (int i = 0; i < COUNT(OF); i++) {
        struct test_case c = case_of(SPECS[OF[i].spec].name, SPECS[OF[i].spec].text, OF[i].dtype, OF[i].d,
                                     OF[i].d_v, OF[i].sm, OF[i].template_name);
        c.dtypes = OF[i].dtypes;
        add(list, c, OF[i].shape, i % COUNT(PAGES));
    }
    for (int i = 0; i < 2; i++) {
        struct test_case c = case_of(i ? "mla" : "fp8_cache", NULL, LATHE_BF16, i ? 192 : 64, i ? 128 : 64,
                                     80, i ? "attention_bwd_slices" : "attention_bwd_sm80");
        c.dtypes = i ? "k=f8e4m3" : "k=f8e4m3,v=i8";
        add(list, c, DENSE_WHOLE, i);
    }
}

void group_pages_back(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(PAGES) : 3); k++)
            add(list,
                case_of(SPECS[i].name, SPECS[i].text, k % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, 80,
                        "attention_bwd_sm80"),
                (i + 2 * k) % COUNT(SHAPES), (i + 2 * k) % COUNT(PAGES));
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add(list, case_of(SHIPPED[i], NULL, LATHE_BF16, 64, 64, 90, "attention_bwd_sm90"), i % 2 ? 3 : 1, i);
    for (int i = 0; i < 2; i++)
        add(list, case_of("ends", ENDS, LATHE_BF16, 64, 64, 80, "attention_bwd_sm80"), i, i);
    add_kernels(list);
    add_narrow(list);
    add(list, case_of("mla", NULL, LATHE_BF16, 192, 128, 80, "attention_bwd_slices"), DENSE_WHOLE, 1);
    for (int i = 0; i < 2; i++) { /* the same bits whatever the order of blocks */
        struct test_case c =
            case_of(SPECS[1].name, SPECS[1].text, LATHE_BF16, 64, 64, 80, "attention_bwd_sm80");
        c.deterministic = DETERMINISTIC_RUNS;
        add(list, c, i ? DENSE_WHOLE : 1, i);
    }
    for (int i = 0; i < 3; i++) { /* dk alone, dv alone, dq alone */
        static const unsigned UNWANTED[] = {5, 3, 6};
        struct test_case c =
            case_of(SPECS[1].name, SPECS[1].text, LATHE_F16, 64, 64, 80, "attention_bwd_sm80");
        c.unwanted = UNWANTED[i];
        add(list, c, i, i);
    }
}
