/*
 * cases_positions.c: masks, branches, steps and indices that are made of positions in f32, each of which f32
 * and double precision decide otherwise somewhere (at.q = 100 for the factor 0.29), in kernels of every kind.
 * The host device has to decide as they do. In and out: the list of cases.c, which grows.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#define MASK(text)  "return attention { mask_mod = function(at) return " text " end }"
#define SCORE(text) "return attention { score_mod = function(s, at) return s + " text " end }"

static const struct inline_spec SPECS[] = {
    {"floors", MASK("eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29)) | lt(at.kv, 3)")},
    {"vanishes", MASK("gt(exp(f32(at.q - at.kv)), 0.0)")}, /* from -104 on; from -88 on it is subnormal */
    {"threshold",
     "return attention { inputs = { thr = tensor('f32', 'h') },\n"
     "  mask_mod = function(at, x) return lt(x.thr(at.h), f32(at.q) * 0.29 - 29.0) | eq(at.q, at.kv) "
     "end }"},
    {"quotients",
     MASK("lt((f32(at.q) * 0.1) % 0.7, 0.5) & le(sqrt(f32(at.kv)) * 3.0, f32(at.q) // 0.9) | eq(at.q, "
          "at.kv)")},
    {"functions", "return attention { mask_mod = function(at)\n"
                  "  local d = f32(at.q - at.kv)\n"
                  "  return gt(sin(d * 0.3) + tanh(d * 0.01) + sigmoid(d) * log(abs(d) + 1.0), 0.1)\n"
                  "    | gt(gelu(d) // 0.7, silu(d) / 0.3) | gt(erf(d) * rsqrt(abs(d) + 0.3) + exp2(d) ^ "
                  "0.1, cos(d)) | eq(at.q, "
                  "at.kv) end }"},
    {"stairs", SCORE("floor(f32(at.q - at.kv) * 0.29)")},
    {"branches", SCORE("where(ge(f32(at.q) * 0.29, 29.0), -0.5 * f32(at.kv) * 0.1, 1.0)")},
    {"buckets",
     "return attention { inputs = { t = tensor('f32', 'h', 64, { grad = true }) },\n"
     "  score_mod = function(s, at, x)\n"
     "    return s + x.t(at.h, clamp(i32(f32(abs(at.q - at.kv)) * 0.29), 0, 63)) end }"}, /* exp() is above 0
                                                                                             but in f32; of a
                                                                                             step that keeps
                                                                                             m, too */
    {"band", SCORE("where(gt(exp(-f32(abs(at.q - at.kv)) * 10.0), 0.0), 0.0, -5.0)")},
    {"bands", SCORE("where(ne(exp2(-f32(abs(at.q - at.kv) + at.h) * 14.0), 0.0), 0.0, -5.0)")},
};

static const struct {
    lathe_pass pass;
    const char *template_name;
    int sm;
} KERNELS[] = {{LATHE_FORWARD, NULL, 80},
               {LATHE_FORWARD, "attention_fwd_sm90", 90},
               {LATHE_BACKWARD, NULL, 80},
               {LATHE_BACKWARD, "attention_bwd_sm90", 90}};

static void group_attention(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < COUNT(KERNELS); k++) {
            struct test_case c =
                case_of_attention("positions", SPECS[i].name, SPECS[i].text,
                                  (i + k) % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, KERNELS[k].sm);
            if (!full && (i + k) % 2 && i > 1)
                continue;
            c.pass = KERNELS[k].pass;
            c.template_name = KERNELS[k].template_name;
            c.dim[SYM_B] = 1;
            c.dim[SYM_H] = 2;
            c.dim[SYM_H_KV] = 1;
            c.dim[SYM_Q] = 150;
            c.dim[SYM_KV] = 217;
            case_add(list, &c);
        }
}

static void group_others(struct case_list *list)
{
    static const char ROWS[] = "return rowwise { forward = function(x, at)\n"
                               "  return x * (1.0 + floor(f32(at.i) * 0.29)) + where(gt(exp(-8.0 * "
                               "f32(at.row)), 0.0), 1.0, 0.0) end }";
    static const char TOKENS[] =
        "return linear_attention { decay = function(at)\n"
        "  return where(eq(floor(f32(at.pos) * 0.29) % 2.0, 0.0), -0.3, -0.01) end }";
    static const char MAP[] = "return elementwise { over = { 'n' }, operands = { x = tensor('float') },\n"
                              "  results = { y = tensor('float') },\n"
                              "  forward = function(x, at) return x.x * floor(f32(at.n) * 0.29) end }";
    for (int k = 0; k < 6; k++) {
        static const char *const name[] = {"rows", "tokens", "map"};
        static const char *const text[] = {ROWS, TOKENS, MAP};
        const int kind = k / 2;
        struct test_case c =
            case_of_attention("positions", name[kind], text[kind], kind == 1 ? LATHE_BF16 : LATHE_F32,
                              kind == 1 ? 64 : -1, kind == 1 ? 64 : -1, 90);
        c.pass = k % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        if (kind == 0) {
            c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
            c.dim[SYM_ROWS] = 21;
            c.dim[SYM_N] = 301;
            c.leading = 1;
        } else if (kind == 1) {
            c.dim[SYM_B] = c.dim[SYM_SEQS] = c.dim[SYM_SLOTS] = 1;
            c.dim[SYM_H] = c.dim[SYM_H_K] = 2;
            c.dim[SYM_T] = 133;
            c.without = " cu state_index state state_out norm norm_out dstate_out dnorm_out dstate dnorm ";
        } else {
            for (int i = 0; i < SYM_COUNT; i++)
                c.dim[i] = -1;
            c.sizes = "n=301";
        }
        case_add(list, &c);
    }
}

void group_positions(struct case_list *list, bool full)
{
    group_attention(list, full);
    group_others(list);
}
