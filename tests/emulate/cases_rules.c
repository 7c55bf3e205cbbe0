/*
 * cases_rules.c: the matrix of linear attention whose tokens read the state and write by vectors of their
 * own, in chunks: with the delta rule (GDN-2, Comba), and where what is read is written beside v (DPLR,
 * RWKV-7).
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases_linear.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#define SPEC(name) #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

/* Beside ends of chunks of 64 tokens and of steps of 16; packed sequences of which some are empty, a pool of
   states in which one sequence has none; a first state, or none; a step of generation. */
static const struct linear_shape SHAPES[] = {
    {2, 2, 1, 63, 2, 2, LAYOUT_PADDED, " cu state_index "},
    {1, 2, 2, 64, 1, 1, LAYOUT_COMPACT, " cu state_index state dstate_out "},
    {1, 2, 1, 145, 1, 1, LAYOUT_MISALIGNED, " cu state_index "},
    {1, 4, 2, 200, 6, 7, LAYOUT_SWAPPED, " "},
    {1, 2, 1, 260, 6, 6, LAYOUT_SPREAD, " state_index "},
    {3, 2, 1, 1, 3, 5, LAYOUT_COMPACT, " cu "},
};

/* Vectors of their own, ahead of the decay and behind it; decays of every form; keys that are alike, gates
   that are mild, steep, and leave nothing. */
static const struct inline_spec ONE[] = {{SPEC(delta_reader)}, {SPEC(delta_writer)}, {SPEC(delta_first)},
                                         {SPEC(rule_resets)},  {SPEC(rule_mixed)},   {SPEC(rule_alike)},
                                         {"comba", NULL},      {"gdn2", NULL},       {"precond_kda", NULL}};
static const struct inline_spec TWO[] = {
    {SPEC(read_and_write)}, {SPEC(read_before)}, {SPEC(read_backwards)}, {SPEC(low_rank_resets)},
    {SPEC(low_rank_alike)}, {"rwkv7", NULL},     {"dplr", NULL},         {"iplr", NULL}};

/* Head dims of one group of 64 key channels to four, value channels of one warp to several blocks. */
static void add_forward(struct case_list *list, const struct inline_spec *spec, int n,
                        const char *template_name)
{
    static const int DIMS[][2] = {{128, 72}, {64, 128}, {256, 40}, {40, 16}, {136, 200}, {16, 48}};
    for (int k = 0; k < n; k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? k % 2 : 1 + k % 5];
            struct test_case c =
                case_of_attention("linear", spec[k].name, spec[k].text, (k + d) % 2 ? LATHE_F16 : LATHE_BF16,
                                  dim[0], dim[1], (k + d) % 3 ? 90 : 80);
            c.group = "linear_rules";
            c.template_name = template_name;
            for (int s = 0; s < COUNT(SHAPES); s++)
                if ((s + k + d) % 2 == 0 || s == 3)
                    add_linear(list, c, &SHAPES[s]);
            c.in_place = true;
            add_linear(list, c, &SHAPES[(k + d) % COUNT(SHAPES)]);
        }
}

/* Behind the decay, then ahead of it. */
static const struct inline_spec BACK[] = {
    {SPEC(delta_writer)}, {SPEC(rule_mixed)},    {SPEC(rule_behind)},           {SPEC(rule_steep)},
    {"gdn2", NULL},       {"precond_kda", NULL}, {"precond_gated_delta", NULL}, {"comba", NULL},
    {SPEC(delta_reader)}, {SPEC(delta_first)},   {SPEC(rule_resets)},           {SPEC(rule_alike)}};

/* linear/backward/keyed_rule.cuh: vectors that read behind the decay, then ahead of it; head dims of one
   slice of channels and more, value channels of one and more. */
static void add_backward(struct case_list *list, const struct inline_spec *spec, int n,
                         const char *template_name)
{
    static const int DIMS[][2] = {{128, 128}, {64, 72},  {40, 128}, {128, 64},
                                  {192, 136}, {256, 40}, {64, 16}};
    for (int k = 0; k < n; k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? k % 2 : 1 + k % 6];
            struct test_case c =
                case_of_attention("linear", spec[k].name, spec[k].text, (k + d) % 3 ? LATHE_BF16 : LATHE_F16,
                                  dim[0], dim[1], dim[0] > 128 || (k + d) % 2 ? 90 : 80);
            c.group = "linear_rules_back";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = template_name;
            for (int s = 0; s < COUNT(SHAPES); s++)
                if ((s + k + d) % 2 == 0 || s == 4)
                    add_linear(list, c, &SHAPES[s]);
        }
}

/* Keys that are all alike, betas at both ends, gates of every strength in one chunk, and sequences of every
 * length. */
static void add_hard(struct case_list *list)
{
    static const struct linear_shape FORWARD = {1, 4, 2, 498, 12, 13, LAYOUT_PADDED, " "};
    static const struct linear_shape BACKWARD = {1, 2, 1, 498, 12, 12, LAYOUT_SWAPPED, " state_index "};
    static const struct {
        struct inline_spec spec;
        const char *template_name;
        lathe_dtype dtype;
        int d, d_v, sm;
    } ROW[] = {
        {{SPEC(rule_hard)}, "linear_keyed_delta", LATHE_F16, 72, 40, 80},
        {{SPEC(rule_hard_first)}, "linear_keyed_delta", LATHE_BF16, 136, 16, 90},
        {{SPEC(low_rank_hard)}, "linear_dplr", LATHE_F16, 72, 136, 90},
        {{SPEC(low_rank_hard)}, "linear_dplr", LATHE_BF16, 16, 40, 80},
        {{SPEC(read_before)}, "linear_dplr", LATHE_F16, 136, 72, 80},
        {{SPEC(rule_hard)}, "linear_keyed_rule_bwd", LATHE_BF16, 72, 40, 90},
        {{SPEC(rule_hard)}, "linear_keyed_rule_bwd", LATHE_F16, 40, 72, 80},
        {{SPEC(rule_hard_first)}, "linear_keyed_rule_bwd", LATHE_BF16, 128, 40, 90},
        {{SPEC(rule_hard_first)}, "linear_keyed_rule_bwd", LATHE_F16, 72, 64, 80},
        {{SPEC(low_rank_hard)}, "linear_dplr_bwd", LATHE_BF16, 72, 40, 90},
        {{SPEC(low_rank_hard)}, "linear_dplr_bwd", LATHE_F16, 64, 128, 80},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        struct test_case c = case_of_attention("linear", ROW[k].spec.name, ROW[k].spec.text, ROW[k].dtype,
                                               ROW[k].d, ROW[k].d_v, ROW[k].sm);
        const bool back = strstr(ROW[k].template_name, "_bwd") != NULL;
        c.group = back ? "linear_rules_back" : "linear_rules";
        c.template_name = ROW[k].template_name;
        c.pass = back ? LATHE_BACKWARD : LATHE_FORWARD;
        c.deterministic = back;
        struct linear_shape shape = back ? BACKWARD : FORWARD;
        shape.layout = k % 2 ? LAYOUT_PADDED : LAYOUT_COMPACT;
        add_linear(list, c, &shape);
    }
}

void group_rules(struct case_list *list)
{
    add_backward(list, BACK, COUNT(BACK), "linear_keyed_rule_bwd");
    add_backward(list, TWO, COUNT(TWO), "linear_dplr_bwd");
    add_forward(list, ONE, COUNT(ONE), "linear_keyed_delta");
    add_forward(list, TWO, COUNT(TWO), "linear_dplr");
    add_hard(list);
}
