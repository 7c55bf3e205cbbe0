/*
 * cases_served.c: linear attention as servers call it: states of a pool that are read from one slot and
 * written to another, packed sequences that end before the tensors do, states in 16 bits, and states behind
 * tokens.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"
#include "tensor_values.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define SPEC(name)  #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

struct served {
    struct inline_spec spec;
    const char *template_name; /* NULL: what is planned */
    lathe_dtype dtype;
    int d, d_v, sm;
};

/* Every kernel of a forward pass. */
static const struct served EACH[] = {
    {{SPEC(gated_delta)}, "linear_recurrent", LATHE_F32, 32, 48, 80},
    {{SPEC(normalised)}, "linear_recurrent", LATHE_F16, 64, 40, 80},
    {{SPEC(by_token)}, "linear_additive", LATHE_BF16, 64, 72, 80},
    {{SPEC(key_normalised)}, "linear_additive", LATHE_BF16, 32, 48, 90},
    {{SPEC(gated_delta)}, "linear_delta", LATHE_BF16, 64, 72, 80},
    {{SPEC(gated_delta)}, "linear_delta_sm90", LATHE_BF16, 64, 72, 90},
    {{SPEC(keyed_delta)}, "linear_keyed_delta", LATHE_BF16, 64, 72, 90},
    {{SPEC(read_and_write)}, "linear_dplr", LATHE_BF16, 64, 72, 80},
};

static void add(struct case_list *list, const struct served *of, int t, int seqs, int slots,
                enum layout layout, struct test_case more)
{
    struct test_case c =
        case_of_attention("linear", of->spec.name, of->spec.text, of->dtype, of->d, of->d_v, of->sm);
    c.group = "linear_served";
    c.template_name = of->template_name;
    c.dim[SYM_B] = more.without && strstr(more.without, " cu ") ? seqs : 1;
    c.dim[SYM_H] = 2;
    c.dim[SYM_H_K] = 1;
    c.dim[SYM_T] = t;
    c.dim[SYM_SEQS] = seqs;
    c.dim[SYM_SLOTS] = slots;
    c.layout = layout;
    c.without = more.without;
    c.with = more.with;
    c.ends = more.ends;
    c.in_place = more.in_place;
    c.pass = more.pass == LATHE_BACKWARD ? LATHE_BACKWARD : LATHE_FORWARD;
    c.deterministic = c.pass == LATHE_BACKWARD;
    c.dtypes = more.dtypes;
    const int64_t tokens = c.dim[SYM_B] * t;
    c.dim[SYM_KEPT] = !case_has(&c, "states") ? -1
                      : more.in_place         ? slots
                      : c.template_name       ? kept_before(&c, tokens) + 1
                                              : (tokens + 2) / 3;
    case_add(list, &c);
}

#define HALF(type)                                                                                           \
    "state=" type ",state_out=" type ",norm=" type ",norm_out=" type ",states=" type ",norms=" type

#define HALF_BACK(type)                                                                                      \
    "state=" type ",norm=" type ",dstate=" type ",dnorm=" type ",dstate_out=" type ",dnorm_out=" type

/* Token by token: each form of a step. */
static void add_kept(struct case_list *list)
{
    static const struct served KEPT[] = {
        {{SPEC(gated_delta)}, NULL, LATHE_BF16, 64, 72, 80},
        {{SPEC(normalised)}, NULL, LATHE_F16, 32, 40, 80},
        {{SPEC(with_bonus)}, NULL, LATHE_F32, 136, 16, 90},
        {{SPEC(backwards)}, NULL, LATHE_BF16, 40, 256, 80},
        {{SPEC(delta_reader)}, NULL, LATHE_F32, 32, 16, 90},
        {{SPEC(by_value)}, NULL, LATHE_F16, 256, 72, 80},
    };
    static const char *const WITH[] = {" states norms states_index ",
                                       " states norms states_index state_out_index "};
    for (int k = 0; k < COUNT(KEPT); k++) {
        add(list, &KEPT[k], 41, 6, 12, LAYOUT_SWAPPED, (struct test_case){.with = WITH[1], .ends = 38});
        if (k < 2) /* batches */
            add(list, &KEPT[k], 13, 3, 3, LAYOUT_COMPACT,
                (struct test_case){.without = " cu state_index ", .with = WITH[0]});
        add(list, &KEPT[k], 40, 5, 20, k % 2 ? LAYOUT_PADDED : LAYOUT_COMPACT,
            (struct test_case){.without = " state_out norm_out ", .with = WITH[0], .in_place = true});
        add(list, &KEPT[k], 6, 3, 3, LAYOUT_MISALIGNED,
            (struct test_case){.without = " state_index ",
                               .with = WITH[0],
                               .dtypes = k % 2                        ? HALF("f16")
                                         : KEPT[k].dtype == LATHE_F32 ? NULL
                                                                      : HALF("bf16")});
    }
}

/* By chunks: behind every n-th token of some sequences, between of others, which go token by token. */
static void add_kept_by_chunk(struct case_list *list)
{
    static const struct served KEPT[] = {
        {{SPEC(by_token)}, "linear_additive", LATHE_BF16, 64, 72, 80},
        {{SPEC(key_normalised)}, "linear_additive", LATHE_BF16, 32, 48, 90},
        {{SPEC(backwards)}, "linear_additive", LATHE_F16, 40, 256, 80},
        {{SPEC(gated_delta)}, "linear_delta", LATHE_BF16, 64, 72, 80},
        {{SPEC(gated_delta)}, "linear_delta_sm90", LATHE_BF16, 64, 136, 90},
        {{SPEC(keyed_delta)}, "linear_keyed_delta", LATHE_BF16, 64, 72, 90},
        {{SPEC(delta_backwards)}, "linear_keyed_delta", LATHE_F16, 128, 40, 80},
        {{SPEC(read_and_write)}, "linear_dplr", LATHE_BF16, 64, 72, 80},
    };
    static const char *const WITH[] = {" states norms states_index ",
                                       " states norms states_index state_out_index "};
    for (int k = 0; k < COUNT(KEPT); k++) {
        add(list, &KEPT[k], 505, 12, 24, LAYOUT_SWAPPED, (struct test_case){.with = WITH[1], .ends = 498});
        add(list, &KEPT[k], 200, 3, 3, LAYOUT_PADDED,
            (struct test_case){.without = " cu state_index ",
                               .with = WITH[0],
                               .dtypes = k % 2 ? HALF("f16") : HALF("bf16")});
        add(list, &KEPT[k], 300, 5, 64, LAYOUT_COMPACT,
            (struct test_case){.without = " state_out norm_out ", .with = WITH[0], .in_place = true});
        add(list, &KEPT[k], 9, 3, 3, LAYOUT_MISALIGNED,
            (struct test_case){.without = " cu state_index ", .with = WITH[0]});
        if (k % 3 == 2 || k == 0 || k == 4) { /* few long sequences, of which some kernels make pieces */
            add(list, &KEPT[k], 2400, 2, 2, LAYOUT_COMPACT,
                (struct test_case){.without = " cu state_index ", .with = WITH[0]});
            add(list, &KEPT[k], 2400, 1, 64, LAYOUT_COMPACT,
                (struct test_case){.without = " cu state_out norm_out ", .with = WITH[0], .in_place = true});
        }
    }
}

/* linear/delta_runs.cuh: states behind tokens of runs, beside the first ones and over them; a pool. */
static void add_kept_in_runs(struct case_list *list)
{
    static const struct served OF = {{SPEC(gated_cut)}, "linear_delta_runs_sm90", LATHE_BF16, 64, 72, 90};
    static const char *const WITH = " states norms states_index ";
    add(list, &OF, 2400, 2, 2, LAYOUT_COMPACT,
        (struct test_case){.without = " cu state_index ", .with = WITH});
    add(list, &OF, 2400, 1, 64, LAYOUT_COMPACT,
        (struct test_case){.without = " cu state_out norm_out ", .with = WITH, .in_place = true});
    add(list, &OF, 2400, 2, 6, LAYOUT_COMPACT,
        (struct test_case){.with = " state_out_index ", .ends = 2390, .in_place = true});
}

/* States in 16 bits, of whole rows and of parts, in each kernel. */
static void add_halves(struct case_list *list)
{
    for (int k = 1; k < COUNT(EACH); k++) {
        const char *const dtypes = k % 2 ? HALF("f16") : HALF("bf16");
        add(list, &EACH[k], 130, 3, 3, LAYOUT_PADDED,
            (struct test_case){.without = " state_index ", .dtypes = dtypes});
        add(list, &EACH[k], 5, 2, 5, LAYOUT_COMPACT,
            (struct test_case){.with = " state_out_index ", .dtypes = dtypes, .in_place = true});
        add(list, &EACH[k], 9, 2, 2, LAYOUT_MISALIGNED,
            (struct test_case){.without = " state_index ", .dtypes = dtypes});
    }
}

/* The same backward: gradients of states have the states' dtype. */
static void add_halves_back(struct case_list *list)
{
    static const struct served BACK[] = {
        {{SPEC(gated_delta)}, "linear_recurrent_bwd", LATHE_BF16, 32, 48, 80},
        {{SPEC(normalised)}, "linear_recurrent_bwd", LATHE_F16, 64, 40, 80},
        {{SPEC(by_token)}, "linear_additive_bwd_sm90", LATHE_BF16, 64, 72, 90},
        {{SPEC(by_key)}, "linear_additive_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(normalised)}, "linear_additive_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(gated_delta)}, "linear_delta_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(gated_delta)}, "linear_delta_bwd_sm90", LATHE_BF16, 64, 72, 90},
        {{SPEC(keyed_delta)}, "linear_keyed_delta_bwd", LATHE_BF16, 64, 72, 90},
    };
    for (int k = 0; k < COUNT(BACK); k++) {
        const char *const dtypes = k % 2 ? HALF_BACK("f16") : HALF_BACK("bf16");
        add(list, &BACK[k], 130, 3, 3, LAYOUT_PADDED,
            (struct test_case){.pass = LATHE_BACKWARD, .dtypes = dtypes});
        add(list, &BACK[k], 9, 2, 2, LAYOUT_MISALIGNED,
            (struct test_case){.pass = LATHE_BACKWARD, .dtypes = dtypes});
    }
}

/* Gradients of states of a pool, in their slots; sequences that have none begin with 0. */
static void add_pools_back(struct case_list *list)
{
    static const struct served POOL[] = {
        {{SPEC(gated_delta)}, "linear_recurrent_bwd", LATHE_BF16, 32, 48, 80},
        {{SPEC(normalised)}, "linear_recurrent_bwd", LATHE_F32, 64, 40, 80},
        {{SPEC(by_token)}, "linear_additive_bwd_sm90", LATHE_BF16, 64, 72, 90},
        {{SPEC(by_key)}, "linear_additive_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(normalised)}, "linear_additive_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(gated_delta)}, "linear_delta_bwd", LATHE_BF16, 64, 72, 80},
        {{SPEC(gated_delta)}, "linear_delta_bwd_sm90", LATHE_BF16, 64, 72, 90},
        {{SPEC(keyed_delta)}, "linear_keyed_delta_bwd", LATHE_BF16, 64, 72, 90},
        {{SPEC(delta_writer)}, "linear_keyed_rule_bwd", LATHE_BF16, 64, 40, 80},
    };
    for (int k = 0; k < COUNT(POOL); k++) {
        add(list, &POOL[k], 130, 3, 7, LAYOUT_PADDED,
            (struct test_case){.pass = LATHE_BACKWARD, .with = " state_index "});
        add(list, &POOL[k], 70, 4, 5, LAYOUT_SWAPPED,
            (struct test_case){.pass = LATHE_BACKWARD, .with = " state_index state_out_index "});
    }
}

/* Values as wide as RetNet's. */
static void add_wide(struct case_list *list)
{
    static const struct served WIDE[] = {
        {{SPEC(by_head)}, "linear_additive", LATHE_BF16, 256, 512, 80},
        {{SPEC(key_normalised)}, "linear_additive", LATHE_F16, 64, 504, 90},
        {{SPEC(turned)}, NULL, LATHE_F16, 32, 264, 80},
        {{SPEC(gated_delta)}, NULL, LATHE_F32, 64, 512, 80},
        {{SPEC(normalised)}, "linear_recurrent", LATHE_BF16, 136, 328, 90},
    };
    for (int k = 0; k < COUNT(WIDE); k++) {
        add(list, &WIDE[k], 70, 3, 3, k % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED,
            (struct test_case){.without = " state_index "});
        add(list, &WIDE[k], 3, 1, 1, LAYOUT_MISALIGNED, (struct test_case){.without = " cu state_index "});
    }
    add(list, &WIDE[0], 2400, 1, 1, LAYOUT_COMPACT, (struct test_case){.without = " cu state_index "});
    add(list, &WIDE[3], 9, 2, 2, LAYOUT_COMPACT,
        (struct test_case){.without = " state_index ", .with = " states norms states_index "});
}

/* The delta rule in chunks with as many. */
static void add_wide_delta(struct case_list *list)
{
    static const struct served DELTA[] = {
        {{SPEC(gated_delta)}, "linear_delta", LATHE_BF16, 64, 512, 80},
        {{SPEC(gated_delta)}, "linear_delta_sm90", LATHE_BF16, 64, 320, 90},
        {{SPEC(keyed_delta)}, "linear_keyed_delta", LATHE_F16, 64, 512, 90},
        {{SPEC(read_and_write)}, "linear_dplr", LATHE_BF16, 64, 264, 80},
    };
    for (int k = 0; k < COUNT(DELTA); k++) {
        add(list, &DELTA[k], 100, 3, 3, k % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED,
            (struct test_case){.without = " state_index "});
        add(list, &DELTA[k], 131, 2, 2, LAYOUT_COMPACT,
            (struct test_case){.without = " cu state_index ", .with = " states norms states_index "});
    }
}

/* Gradients in bands of 128 value channels: the last band whole, or some of it; packed sequences with states
   and a pool of them, and one batch alone. */
static void add_bands(struct case_list *list)
{
    static const struct served BACK[] = {
        {{SPEC(keyed_delta)}, "linear_keyed_delta_bwd", LATHE_BF16, 64, 320, 90},
        {{SPEC(by_key)}, "linear_additive_bwd", LATHE_BF16, 136, 264, 80},
        {{SPEC(by_token)}, "linear_additive_bwd", LATHE_F16, 64, 512, 80},
        {{SPEC(gated_delta)}, "linear_keyed_delta_bwd", LATHE_F16, 72, 512, 80},
        {{SPEC(delta_writer)}, "linear_keyed_rule_bwd", LATHE_BF16, 64, 384, 80},
        {{SPEC(read_and_write)}, "linear_dplr_bwd", LATHE_BF16, 64, 320, 80},
        {{SPEC(by_head)}, "linear_additive_bwd", LATHE_BF16, 256, 512, 90},
        {{SPEC(with_bonus)}, "linear_additive_bwd", LATHE_F16, 64, 384, 80},
        {{SPEC(backwards)}, "linear_additive_bwd", LATHE_BF16, 64, 320, 90},
        {{SPEC(keyed_backwards)}, "linear_keyed_delta_bwd", LATHE_BF16, 128, 384, 90},
        {{SPEC(read_backwards)}, "linear_dplr_bwd", LATHE_F16, 128, 512, 90},
        {{SPEC(updates_gated)}, "linear_keyed_delta_bwd", LATHE_BF16, 64, 512, 90},
    };
    for (int k = 0; k < COUNT(BACK); k++) {
        add(list, &BACK[k], 100, 3, 3, k % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED,
            (struct test_case){.pass = LATHE_BACKWARD});
        add(list, &BACK[k], 77, 4, 5, LAYOUT_PADDED,
            (struct test_case){.pass = LATHE_BACKWARD, .with = " state_index state_out_index "});
        add(list, &BACK[k], 65, 1, 1, k % 2 ? LAYOUT_COMPACT : LAYOUT_MISALIGNED,
            (struct test_case){.pass = LATHE_BACKWARD,
                               .without = " cu state state_index dstate dstate_out "});
    }
}

void group_served(struct case_list *list)
{
    for (int k = 0; k < COUNT(EACH); k++) {
        const bool by_token = strcmp(EACH[k].template_name, "linear_recurrent") == 0;
        const int t = by_token ? 40 : 300;
        struct test_case slots = {.without = " ", .with = " state_out_index "};
        add(list, &EACH[k], t, 6, 12, LAYOUT_SWAPPED, slots);
        slots.in_place = true;
        slots.ends = t - 9; /* tokens behind the last sequence are not written */
        add(list, &EACH[k], t, 6, 12, LAYOUT_PADDED, slots);
        add(list, &EACH[k], 7, 5, 11, LAYOUT_COMPACT,
            (struct test_case){.with = " state_out_index ", .ends = 5});
        add(list, &EACH[k], t, 3, 3, LAYOUT_SPREAD,
            (struct test_case){.without = " state_index ", .ends = t / 2});
    }
    add_kept(list);
    add_halves(list);
    add_halves_back(list);
    add_pools_back(list);
    add_wide(list);
    /* few long sequences in pieces */
    static const int PIECED[] = {2, 5, 6};
    for (int k = 0; k < COUNT(PIECED); k++)
        add(list, &EACH[PIECED[k]], 2400, 2, 6, LAYOUT_COMPACT,
            (struct test_case){.with = " state_out_index ", .ends = 2390, .in_place = true});
    add_kept_by_chunk(list);
    add_kept_in_runs(list);
    add_wide_delta(list);
    add_bands(list);
}
