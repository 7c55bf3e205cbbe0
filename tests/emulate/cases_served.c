/*
 * cases_served.c: linear attention as servers call it: states of a pool that are read from one slot and
 * written to another, packed sequences that end before the tensors do.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"

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
};

static void add(struct case_list *list, const struct served *of, int t, int seqs, int slots,
                enum layout layout, struct test_case more)
{
    struct test_case c =
        case_of_attention("linear", of->spec.name, of->spec.text, of->dtype, of->d, of->d_v, of->sm);
    c.group = "linear_served";
    c.template_name = of->template_name;
    c.dim[SYM_B] = 1;
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
    case_add(list, &c);
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
    /* few long sequences in pieces */
    static const int PIECED[] = {2, 5, 6};
    for (int k = 0; k < COUNT(PIECED); k++)
        add(list, &EACH[PIECED[k]], 2400, 2, 6, LAYOUT_COMPACT,
            (struct test_case){.with = " state_out_index ", .ends = 2390, .in_place = true});
}
