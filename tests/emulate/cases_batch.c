/*
 * cases_batch.c: deterministic=batch: what a sequence gets does not depend on what else is in the batch. Each
 * case runs as ever, and then some of its sequences run alone (alone.c). In: nothing. Out: cases at the end
 * of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Some spec, template and lengths each: by form of the call, as `without` says. */
static const struct {
    const char *spec, *template_name;
    lathe_dtype dtype;
    lathe_pass pass;
    int sm, d, d_v, b, seqs, h, h_kv, q, kv, page;
    const char *without;
} CASES[] = {
#define DENSE " cu_q cu_kv used_kv pages "
#define USED  " cu_q cu_kv pages "
    {"causal", "attention_decode", LATHE_BF16, 0, 90, 64, 64, 3, 3, 8, 2, 1, 1100, -1, DENSE},
    {"causal", "attention_decode", LATHE_F16, 0, 80, 128, 128, 4, 4, 8, 2, 2, 2000, -1, USED},
    {"sliding_window", "attention_decode", LATHE_BF16, 0, 90, 64, 64, 3, 3, 4, 1, 7, 5000, -1, USED},
    {"alibi", "attention_decode", LATHE_BF16, 0, 90, 64, 64, 3, 3, 4, 2, 3, 1200, 16, " cu_q cu_kv "},
    {"causal", "attention_decode", LATHE_BF16, 0, 80, 64, 64, 3, 3, 2, 1, 1, 20000, -1, USED},
    {"softcap", "attention_decode", LATHE_BF16, 0, 80, 64, 64, 3, 3, 40, 2, 1, 900, -1, DENSE},
    {"mla", "attention_mla", LATHE_BF16, 0, 80, 192, 128, 3, 3, 16, 1, 1, 2300, -1, USED},
    {"mla", "attention_mla_sm90", LATHE_BF16, 0, 90, 192, 128, 3, 3, 16, 1, 2, 2300, -1, USED},
    {"mla", "attention_mla", LATHE_F16, 0, 90, 320, 256, 1, 4, 16, 1, 9, 2600, 16, " cu_kv "},
    {"causal", "attention_fwd_sm80", LATHE_BF16, 0, 80, 64, 64, 3, 3, 4, 2, 200, 300, -1, DENSE},
    {"causal", "attention_fwd_sm80", LATHE_BF16, 0, 90, 128, 128, 1, 5, 4, 2, 300, 300, -1,
     " cu_kv used_kv pages "},
    {"document", "attention_fwd_sm80", LATHE_F16, 0, 80, 64, 64, 3, 3, 2, 1, 150, 150, -1, DENSE},
    {"relative_bias", "attention_fwd_sm80", LATHE_F32, 0, 80, 64, 64, 3, 3, 2, 1, 100, 130, -1, USED},
    {"causal", "attention_bwd_sm80", LATHE_BF16, 1, 80, 64, 64, 3, 3, 4, 2, 200, 300, -1, DENSE},
    {"sliding_window", "attention_bwd_sm80", LATHE_F16, 1, 90, 128, 128, 2, 2, 4, 1, 150, 170, -1, DENSE},
    {"relative_bias", "attention_bwd_sm80", LATHE_F32, 1, 80, 64, 64, 2, 2, 2, 1, 90, 130, -1, DENSE},
    {"causal", "attention_bwd_sm80", LATHE_BF16, 1, 80, 64, 64, 1, 5, 4, 2, 400, 400, -1,
     " cu_kv used_kv pages "},
    {"sliding_window", "attention_bwd_sm80", LATHE_F16, 1, 90, 128, 128, 1, 4, 2, 1, 300, 420, -1,
     " used_kv pages "},
    {"full", "attention_bwd_sm80", LATHE_F32, 1, 80, 64, 64, 3, 3, 2, 1, 90, 200, -1, USED},
    {"causal", "attention_bwd_sm80", LATHE_F16, 1, 80, 64, 64, 1, 6, 2, 2, 700, 700, -1,
     " cu_kv used_kv pages o lse "},
    {"mla", "attention_bwd_slices", LATHE_BF16, 1, 80, 320, 256, 2, 2, 4, 1, 40, 97, -1, DENSE},
};

/* Linear attention: long sequences that would be cut in pieces, few tokens, packed sequences of any length.
 */
static const struct {
    const char *name, *text, *template_name;
    lathe_dtype dtype;
    lathe_pass pass;
    int sm, b, seqs, h, t;
} LINEAR[] = {
    {"by_token", SPEC_by_token, "linear_additive", LATHE_BF16, 0, 80, 2, 2, 2, 2400},
    {"by_token", SPEC_by_token, "linear_additive", LATHE_BF16, 0, 90, 1, 5, 2, 300},
    {"by_key", SPEC_by_key, "linear_additive", LATHE_F16, 0, 80, 1, 6, 2, 40},
    {"delta_rule", SPEC_delta_rule, "linear_delta", LATHE_BF16, 0, 80, 1, 5, 2, 300},
    {"gated_delta", SPEC_gated_delta, "linear_delta", LATHE_BF16, 0, 80, 3, 3, 2, 12},
    {"keyed_delta", SPEC_keyed_delta, "linear_keyed_delta", LATHE_BF16, 0, 80, 1, 4, 2, 150},
    {"by_token", SPEC_by_token, "linear_additive_bwd", LATHE_BF16, 1, 80, 1, 4, 2, 200},
    {"gated_delta", SPEC_gated_delta, "linear_delta_bwd", LATHE_BF16, 1, 80, 1, 4, 2, 200},
};

static void add_linear(struct case_list *list)
{
    for (int i = 0; i < COUNT(LINEAR); i++) {
        struct test_case c =
            case_of_attention("batch", LINEAR[i].name, LINEAR[i].text, LINEAR[i].dtype, 64, 64, LINEAR[i].sm);
        c.template_name = LINEAR[i].template_name;
        c.pass = LINEAR[i].pass;
        c.deterministic = DETERMINISTIC_BATCH;
        c.dim[SYM_B] = LINEAR[i].b;
        c.dim[SYM_H] = c.dim[SYM_H_K] = LINEAR[i].h;
        c.dim[SYM_T] = LINEAR[i].t;
        c.dim[SYM_SEQS] = c.dim[SYM_SLOTS] = LINEAR[i].seqs;
        c.without = LINEAR[i].b < LINEAR[i].seqs ? " state_index " : " cu state_index ";
        case_add(list, &c);
    }
}

void group_batch(struct case_list *list, bool full)
{
    (void)full;
    add_linear(list);
    for (int i = 0; i < COUNT(CASES); i++) {
        const bool in_lists = strstr(CASES[i].without, "used_kv") == NULL || CASES[i].b < CASES[i].seqs;
        struct test_case c = case_of_attention(in_lists ? "batch_varlen" : "batch", CASES[i].spec, NULL,
                                               CASES[i].dtype, CASES[i].d, CASES[i].d_v, CASES[i].sm);
        c.template_name = CASES[i].template_name;
        c.pass = CASES[i].pass;
        c.without = CASES[i].without;
        c.deterministic = DETERMINISTIC_BATCH;
        c.beside = strstr(CASES[i].without, " lse ") ? 6 : 0; /* blocks that wait for their turns */
        case_shape(&c, CASES[i].b, CASES[i].h, CASES[i].h_kv, CASES[i].q, CASES[i].kv);
        c.dim[SYM_SEQS] = CASES[i].seqs;
        if (CASES[i].page > 0) {
            c.dim[SYM_PAGE] = CASES[i].page;
            c.dim[SYM_MOST] = (CASES[i].kv + CASES[i].page - 1) / CASES[i].page;
            c.dim[SYM_KV] = c.dim[SYM_PAGE] * c.dim[SYM_MOST];
            c.dim[SYM_POOL] = CASES[i].seqs * c.dim[SYM_MOST] + 3;
        }
        case_add(list, &c);
    }
}
