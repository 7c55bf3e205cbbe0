/*
 * cases_fp8.c: q, k and v of e4m3 on Hopper, whose weights are rounded to it, too: masks, scores, scales,
 * online functions, head dims and lengths of every kind. In: nothing. Out: cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char FP8[] = "attention_fwd_fp8_sm90";
/* Weights that e4m3 has, of scores that are places alone: o is as exact as of 16 bits. */
#define POWERS                                                                                               \
    "score_mod = function(s, at) return 0.0 * s - ((at.kv + 3 * at.q) % 5) * 0.6931471805599453 end"
static const struct inline_spec FP8_SPECS[] = {
    {"whole", "return attention {}\n"},
    {"powers", "return attention { mask_mod = causal, " POWERS " }\n"},
    {"places", /* which key each weight is for: a query sees one */
     "return attention { mask_mod = function(at) return eq(at.kv, (7 * at.q + 3) % at.len_kv) end }\n"},
    {"by_head", "return attention { inputs = { ks = tensor('f32', 'h_kv'), vs = tensor('f32', 'h_kv') },\n"
                "  mask_mod = causal, score_mod = function(s, at, x) return s * x.ks(at.h_kv) end,\n"
                "  output_mod = function(o, at, x) return o * x.vs(at.h_kv) end }\n"},
    {"by_block", "return attention { inputs = { ks = tensor('f32', 'b', 'kv') },\n"
                 "  score_mod = function(s, at, x) return s * x.ks(at.b, at.kv // 16) end,\n"
                 "  mask_mod = function(at) return ge(at.q, at.kv) & lt(at.q - at.kv, 50) end }\n"},
    {"holes", /* row 0 sees nothing, and the others none of the first half */
     "return attention { mask_mod = function(at)\n"
     "  return ge(at.kv * 2, at.len_kv) & ne(at.kv % 3, 0) & gt(at.row, 0) end }\n"},
    {"bounded", /* weights of either sign, up to 3 */
     "return attention { online_func = elementwise_weights(function(s) return 3.0 * tanh(s) end) }\n"},
};
static const char *const FP8_SHIPPED[] = {"causal",    "alibi", "softcap", "sliding_window", "document",
                                          "prefix_lm", "sinks", "sigmoid", "softmax_one",    "relative_bias"};

static struct test_case of_fp8(const struct inline_spec *spec, lathe_dtype dtype, int d, int d_v)
{
    struct test_case c = case_of_attention("fp8", spec->name, spec->text, dtype, d, d_v, 90);
    c.template_name = FP8;
    c.dtypes = "q=f8e4m3,k=f8e4m3,v=f8e4m3";
    c.exact = strcmp(spec->name, "powers") == 0 || strcmp(spec->name, "places") == 0 ? 0.1 : 0.0;
    return c;
}

void group_fp8(struct case_list *list)
{
    static const int DIMS[][2] = {{64, 64},  {128, 128}, {256, 256}, {80, 128},
                                  {128, 48}, {16, 16},   {192, 128}, {64, 224}};
    static const struct {
        int b, h, h_kv, q, kv;
    } SHAPE[] = {
        {2, 4, 2, 70, 75}, {1, 2, 1, 200, 333}, {2, 2, 2, 1, 130}, {1, 6, 2, 5, 64}, {1, 1, 1, 300, 129}};
    int n = 0;
    for (int i = 0; i < COUNT(FP8_SPECS) + COUNT(FP8_SHIPPED); i++)
        for (int k = 0; k < 3; k++, n++) {
            const struct inline_spec shipped = {i < COUNT(FP8_SPECS) ? "" : FP8_SHIPPED[i - COUNT(FP8_SPECS)],
                                                NULL};
            const int *dims = DIMS[k < 2 ? (i + k) % 2 : n % COUNT(DIMS)];
            const int s = (i + 2 * k) % COUNT(SHAPE);
            struct test_case c = of_fp8(i < COUNT(FP8_SPECS) ? &FP8_SPECS[i] : &shipped,
                                        n % 3 ? LATHE_BF16 : LATHE_F16, dims[0], dims[1]);
            c.layout = n % 2 ? LAYOUT_COMPACT : LAYOUT_SWAPPED;
            case_shape(&c, SHAPE[s].b, SHAPE[s].h, SHAPE[s].h_kv, SHAPE[s].q, SHAPE[s].kv);
            case_add(list, &c);
        }
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c = of_fp8(&FP8_SPECS[1 + i % 2], LATHE_BF16, DIMS[i][0], DIMS[i][1]);
        case_shape(&c, 1, 2, 1, 90, 170);
        case_add(list, &c);
    }
}
