/*
 * cases_parts.c: parts of rows of attention, and parts put together: by every template of the forward pass,
 * of online functions with and without row states, with mods and masks that leave rows without a live pair.
 * In: nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* ---- rows end as parts ----------------------------------------------------------------------------------
 */

static const struct inline_spec SPECS[] = {
    {"softmax", "return attention {}\n"},
    {"holes", /* row 0 has no live pair, nor has any row one in the first half of the keys */
     "return attention { mask_mod = function(at)\n"
     "  return ge(at.kv * 2, at.len_kv) & ne(at.kv % 3, 0) & gt(at.row, 0) end }\n"},
    {"sink_and_norm", /* neither the sink nor the mod of o has a say in a part */
     "return attention { inputs = { sink = tensor('f32', 'h'), w = tensor('f32', 'd_v') }, mask_mod = "
     "causal,\n"
     "  online_func = softmax_with_sink(function(at, x) return x.sink(at.h) end),\n"
     "  output_mod = function(o, at, x) return o * rsqrt(dimsum(o * o) / at.d_v + 1e-6) * x.w(at.i) end }\n"},
    {"mean_abs", SPEC_mean_abs},
};
static const char *const SHIPPED[] = {"retention", "sinks", "softcap", "sigmoid",
                                      "rope",      "alibi", "document"};

static const char HOPPER[] = "attention_fwd_sm90";
static const char DECODE[] = "attention_decode";

static const struct {
    int b, h, h_kv, q, kv;
} SHAPES[] = {{2, 4, 2, 65, 130}, {1, 2, 1, 130, 63}, {1, 2, 2, 33, 0}},
  FEW[] = {{2, 8, 2, 1, 1030}, {1, 4, 4, 5, 777}, {1, 4, 2, 33, 520}};

static void set_shape(struct test_case *c, int shape, bool few)
{
    c->parts = true;
    c->dim[SYM_B] = few ? FEW[shape].b : SHAPES[shape].b;
    c->dim[SYM_H] = few ? FEW[shape].h : SHAPES[shape].h;
    c->dim[SYM_H_KV] = few ? FEW[shape].h_kv : SHAPES[shape].h_kv;
    c->dim[SYM_Q] = few ? FEW[shape].q : SHAPES[shape].q;
    c->dim[SYM_KV] = few ? FEW[shape].kv : SHAPES[shape].kv;
    c->layout = shape % 3 == 0 ? LAYOUT_PADDED : shape % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_COMPACT;
}

static void add(struct case_list *list, struct test_case c, const char *template_name, int shape)
{
    c.template_name = template_name;
    set_shape(&c, shape, template_name == DECODE);
    case_add(list, &c);
}

/* By each template: portable, of three dtypes; Hopper's; of rows that are cut by keys. */
static void add_spec(struct case_list *list, const char *name, const char *text, int i)
{
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    static const int DIMS[][2] = {{64, 64}, {128, 128}, {96, 40}, {64, 256}};
    const int *d = DIMS[i % COUNT(DIMS)];
    const lathe_dtype half = i % 2 ? LATHE_F16 : LATHE_BF16;
    for (int shape = 0; shape < COUNT(SHAPES); shape++) {
        const lathe_dtype dtype = DTYPE[(i + shape) % 3];
        add(list, case_of_attention("row_parts", name, text, dtype, 64, 64, shape % 2 ? 80 : 90), NULL,
            shape);
        add(list, case_of_attention("row_parts", name, text, half, d[0], d[1], 90), HOPPER, shape);
    }
    for (int few = 0; few < 2; few++)
        add(list, case_of_attention("row_parts", name, text, half, d[0], d[1], few ? 80 : 90), DECODE,
            (i + few) % 3);
}

/* Keys in use, some of them none, and a position of the first query. */
static void add_used(struct case_list *list)
{
    for (int k = 0; k < 2; k++) {
        struct test_case c =
            case_of_attention("varlen_parts", "causal", NULL, LATHE_BF16, 64, 64, k ? 80 : 90);
        c.template_name = k ? DECODE : NULL;
        set_shape(&c, k, k);
        c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
        c.without = " cu_q cu_kv ";
        case_add(list, &c);
        c = case_of_attention("row_parts", "causal", NULL, LATHE_F16, 64, 64, 90);
        c.template_name = k ? HOPPER : NULL;
        set_shape(&c, 0, false);
        c.has_q_start = true;
        c.q_start = k ? 20 : -30;
        case_add(list, &c);
    }
}

/* Head dims beyond 256, and values that lie in keys. */
static void add_wide(struct case_list *list)
{
    struct test_case c = case_of_attention("row_parts", "mla", NULL, LATHE_BF16, 272, 264, 90);
    c.template_name = "attention_mla";
    set_shape(&c, 2, true);
    case_add(list, &c);
}

/* ---- parts become rows ------------------------------------------------------------------------------- */

/* Fewer parts than a warp has lanes, as many, and more; d_v of one lane, of all, of several turns, and of
   rows that end within four elements. */
static const struct {
    int parts, b, h, q, d_v;
    enum layout layout;
} JOINED[] = {{2, 2, 3, 5, 128, LAYOUT_COMPACT}, {1, 1, 2, 7, 8, LAYOUT_SWAPPED},
              {5, 2, 2, 3, 64, LAYOUT_PADDED},   {32, 1, 2, 3, 256, LAYOUT_SWAPPED},
              {37, 1, 2, 5, 40, LAYOUT_PADDED},  {70, 1, 1, 5, 512, LAYOUT_COMPACT}},
  ODD[] = {{3, 2, 2, 5, 64, LAYOUT_MISALIGNED},
           {4, 1, 2, 5, 33, LAYOUT_COMPACT},
           {3, 1, 3, 5, 130, LAYOUT_PADDED}};

static void add_joined(struct case_list *list, const char *name, const char *text, lathe_dtype dtype,
                       int shape, bool odd)
{
    const int d_v = odd ? ODD[shape].d_v : JOINED[shape].d_v;
    struct test_case c = case_of_attention("combine", name, text, dtype, d_v, d_v, shape % 2 ? 80 : 90);
    c.template_name = "attention_combine";
    c.pass = LATHE_COMBINE;
    c.dim[SYM_PARTS] = odd ? ODD[shape].parts : JOINED[shape].parts;
    c.dim[SYM_B] = odd ? ODD[shape].b : JOINED[shape].b;
    c.dim[SYM_H] = c.dim[SYM_H_KV] = odd ? ODD[shape].h : JOINED[shape].h;
    c.dim[SYM_Q] = c.dim[SYM_KV] = odd ? ODD[shape].q : JOINED[shape].q;
    c.layout = odd ? ODD[shape].layout : JOINED[shape].layout;
    case_add(list, &c);
}

static const char TURNED[] = /* the mod of o knows where its rows are */
    "return attention { output_mod = half(function(a, b, at)\n"
    "  local w = 0.1 * at.pos\n"
    "  return a * cos(w) - b * sin(w), a * sin(w) + b * cos(w) end) }\n";

static void group_combine(struct case_list *list)
{
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
    static const char *const ENDS[] = {"retention", "sinks", "softmax_one", "sigmoid"};
    for (int shape = 0; shape < COUNT(JOINED); shape++) {
        for (int i = 0; i < COUNT(ENDS); i++)
            add_joined(list, ENDS[i], NULL, DTYPE[(i + shape) % 3], shape, false);
        add_joined(list, SPECS[0].name, SPECS[0].text, DTYPE[shape % 3], shape, false);
        add_joined(list, SPECS[2].name, SPECS[2].text, DTYPE[(shape + 1) % 3], shape, false);
        add_joined(list, SPECS[3].name, SPECS[3].text, DTYPE[(shape + 2) % 3], shape, false);
    }
    for (int shape = 0; shape < COUNT(ODD); shape++)
        for (int k = 0; k < 3; k++)
            add_joined(list, SPECS[0].name, SPECS[0].text, DTYPE[k], shape, true);
    for (int shape = 0; shape < COUNT(JOINED) + COUNT(ODD); shape++) { /* into a part */
        const bool odd = shape >= COUNT(JOINED);
        const int own = odd ? shape - COUNT(JOINED) : shape;
        add_joined(list, SPECS[0].name, SPECS[0].text, DTYPE[shape % 3], own, odd);
        list->item[list->n - 1].parts = true;
        add_joined(list, ENDS[shape % 4], NULL, DTYPE[(shape + 1) % 3], own, odd);
        list->item[list->n - 1].parts = true;
    }
    add_joined(list, "turned", TURNED, LATHE_BF16, 0, false);
    list->item[list->n - 1].has_q_start = true;
    list->item[list->n - 1].q_start = 11;
    add_joined(list, "row_gates", SPEC_row_gates, LATHE_BF16, 2, false);
    list->item[list->n - 1].has_q_start = true;
    list->item[list->n - 1].q_start = 11;
}

void group_row_parts(struct case_list *list)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        add_spec(list, SPECS[i].name, SPECS[i].text, i);
    for (int i = 0; i < COUNT(SHIPPED); i++)
        add_spec(list, SHIPPED[i], NULL, i + 1);
    add_used(list);
    add_wide(list);
    group_combine(list);
}
