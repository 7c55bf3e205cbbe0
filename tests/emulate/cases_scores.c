/*
 * cases_scores.c: rows that large finite mask values cover whole, in kernels of both passes. In and out: the
 * list of cases.c, which grows.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#define CHOSEN(value)                                                                                        \
    "return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), s, " value ") end }"
#define ADDED(value)                                                                                         \
    "return attention { score_mod = function(s, at) return s + where(ge(at.q, at.kv), 0.0, " value ") end }"

/* What f32 leaves of a value that is added to scores: itself. The scores' gradients go through all the same.
 */
#define REPLACED(value)                                                                                      \
    "return attention { score_mod = function(s, at)\n"                                                       \
    "  return where(ge(at.q, at.kv), s, s - detach(s) + " value ") end }"

static const struct {
    const char *name, *text, *reference;
} MASKS[] = {
    {"chosen_1e4", CHOSEN("-1e4"), NULL},
    {"chosen_1e6", CHOSEN("-1e6"), NULL},
    {"chosen_1e7", CHOSEN("-1e7"), NULL},
    {"chosen_1e9", CHOSEN("-1e9"), NULL},
    {"chosen_1e30", CHOSEN("-1e30"), NULL},
    {"chosen_lowest", CHOSEN("-3.4028234663852886e38"), NULL},
    {"added_1e4", ADDED("-1e4"), NULL},
    {"added_1e9", ADDED("-1e9"), REPLACED("-1e9")},
    {"added_1e30", ADDED("-1e30"), REPLACED("-1e30")},
    {"added_lowest", ADDED("-3.4028234663852886e38"), REPLACED("-3.4028234663852886e38")},
    /* along diagonals; a table; a sink; a state beside; a weight that is a sum; a guard around the lse */
    {"far", SPEC_far,
     "return attention { score_mod = function(s, at) return where(gt(at.q - at.kv, 9) | gt(at.kv, at.q), s - "
     "detach(s) - "
     "1e9, s - tanh(0.1 * (at.q - at.kv))) end }"},
    {"learned", SPEC_learned, NULL},
    {"sunk", SPEC_sunk,
     "return attention { inputs = { sink = tensor('f32', 'h', { grad = true }) }, score_mod = "
     "function(s, at) return where(ge(at.q, at.kv), s, -1e9) end, online_func = "
     "softmax_with_sink(function(at, x) return x.sink(at.h) - detach(x.sink(at.h)) - 1e9 end) }"},
    {"binary", SPEC_binary, NULL},
    {"guarded", SPEC_guarded, NULL},
};

static void add(struct case_list *list, struct test_case c, int b, int q, int kv, enum layout layout)
{
    c.dim[SYM_B] = b;
    c.dim[SYM_H] = 2;
    c.dim[SYM_H_KV] = 1;
    c.dim[SYM_Q] = q;
    c.dim[SYM_KV] = kv;
    c.layout = layout;
    case_add(list, &c);
}

/* The first rows have no key at or before them; q = kv: none is covered whole, and rows of both kinds. */
static void add_sizes(struct case_list *list, const struct test_case *c, bool full)
{
    add(list, *c, 1, 65, 40, LAYOUT_COMPACT);
    if (full) {
        add(list, *c, 2, 200, 70, LAYOUT_PADDED);
        add(list, *c, 1, 70, 70, LAYOUT_SWAPPED);
    }
}

static void add_backward(struct case_list *list, struct test_case c, const char *template_name, bool full)
{
    c.pass = LATHE_BACKWARD;
    c.group = "mask_gradients";
    c.template_name = template_name;
    add_sizes(list, &c, full);
}

/* Plain kernels multiply before they subtract: m is off by up to 2^-22 of itself as an exponent of 2, and all
   weights of a row by the same factor. f16 holds that up to scores of 1e7, bf16 up to 1e8. A large constant
   in the score has the kernel subtract first, and then any score will do. 0.1 is no power of two, which would
   hide the rounding. */
static void add_loud(struct case_list *list, bool full)
{
    static const struct {
        const char *name;
        const char *text;
        lathe_dtype dtype;
        double loud; /* q k is this squared, times sqrt(d), up to 4 times as large */
    } LOUD[] = {{"loud", SPEC_loud, LATHE_F16, 1700},
                {"loud", SPEC_loud, LATHE_BF16, 5000},
                {"loud_bounded", SPEC_loud_bounded, LATHE_F16, 12000},
                {"loud_bounded", SPEC_loud_bounded, LATHE_BF16, 12000}};
    for (int i = 0; i < 2 * COUNT(LOUD); i++) {
        struct test_case c = case_of_attention("mask_values", LOUD[i / 2].name, LOUD[i / 2].text,
                                               LOUD[i / 2].dtype, 64, 64, i % 2 ? 90 : 80);
        c.loud = LOUD[i / 2].loud;
        c.template_name = i % 2 ? "attention_fwd_sm90" : NULL;
        add_sizes(list, &c, full);
        if (i >= 6) /* gradients of q are beyond f16 */
            add_backward(list, c, i % 2 ? "attention_bwd_sm90" : NULL, full);
    }
}

void group_scores(struct case_list *list, bool full)
{
    add_loud(list, full);
    for (int i = 0; i < COUNT(MASKS); i++) {
        const lathe_dtype dtype = i % 2 ? LATHE_F16 : LATHE_BF16;
        struct test_case c =
            case_of_attention("mask_values", MASKS[i].name, MASKS[i].text, dtype, 64, 64, 80);
        struct test_case hopper =
            case_of_attention("mask_values", MASKS[i].name, MASKS[i].text, dtype, 72, 40, 90);
        struct test_case wide =
            case_of_attention("mask_values", MASKS[i].name, MASKS[i].text, dtype, 192, 192, 90);
        c.reference = hopper.reference = wide.reference = MASKS[i].reference;
        add_sizes(list, &c, full);
        hopper.template_name = "attention_fwd_sm90";
        add_sizes(list, &hopper, full);
        c.deterministic = i % 3 == 0;
        hopper.deterministic = i % 3 == 1;
        add_backward(list, c, NULL, full);
        add_backward(list, hopper, "attention_bwd_sm90", full);
        if (full || i % 3 == 0)
            add_backward(list, wide, "attention_bwd_wide_sm90", full);
    }
}
