/*
 * cases_delta.c: the matrix of linear attention with the delta rule in chunks, whose decays are of tokens:
 * linear/delta_chunks.cuh, linear/delta_sm90.cuh, and the files of the same names of the backward pass.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases_linear.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define SPEC(name)  #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

static const struct linear_shape ONE_TOKEN = {1, 4, 4, 1, 1, 1, LAYOUT_COMPACT, " cu state_index "};

/* linear/backward/delta_walk.cuh and delta_sm90.cuh: with a decay and without, gates that leave nothing,
   betas of 0, from the last token to the first, an output mod that reads v; head dims of one slice of
   channels and of two. */
static void add_delta_back(struct case_list *list, const char *template_name, bool hopper)
{
    static const char *const NAME[] = {"delta_rule", "gated_delta", "delta_by_head", "delta_with_resets",
                                       "delta_backwards"};
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 64}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
            struct test_case c = case_of_attention("linear", NAME[k], linear_text(NAME[k]), LATHE_BF16,
                                                   dim[0], dim[1], hopper || k % 2 ? 90 : 80);
            c.group = "linear_delta";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = template_name;
            add_linear(list, c, &ONE_TOKEN);
            for (int s = 1; s < COUNT(LINEAR_CHUNKS); s++)
                add_linear(list, c, &LINEAR_CHUNKS[s]);
        }
}

/* linear/delta_sm90.cuh: as backward, and value channels of a block and a part of one; the last state in the
   place of the first one. */
static void add_delta_sm90(struct case_list *list)
{
    static const char *const NAME[] = {"delta_rule", "gated_delta", "delta_by_head", "delta_backwards"};
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 16}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
            struct test_case c =
                case_of_attention("linear", NAME[k], linear_text(NAME[k]), LATHE_BF16, dim[0], dim[1], 90);
            c.group = "linear_delta";
            c.template_name = "linear_delta_sm90";
            for (int s = 1; s < COUNT(LINEAR_CHUNKS); s++)
                add_linear(list, c, &LINEAR_CHUNKS[s]);
            add_linear(list, c, &LINEAR_SHAPES[2]);
            c.in_place = true;
            add_linear(list, c, &LINEAR_OVER[1 + d]);
            if (k == 1 || d == 1) { /* and in pieces */
                add_linear(list, c, &LINEAR_OVER[3]);
                c.in_place = false;
                add_linear(list, c, &LINEAR_PIECES[k % COUNT(LINEAR_PIECES)]);
            }
        }
}

/* And with two warpgroups of 64 columns a block, which the plan takes for so many heads, and for such pieces.
 */
static void add_delta_groups(struct case_list *list)
{
    static const struct linear_shape SHAPE[] = {
        {17, 4, 2, 70, 17, 17, LAYOUT_COMPACT, " cu state_index "},
        {1, 8, 4, 2310, 1, 1, LAYOUT_PADDED, " cu state_index "},
    };
    for (int i = 0; i < COUNT(SHAPE); i++) {
        struct test_case c = case_of_attention("linear", "gated_delta", linear_text("gated_delta"),
                                               LATHE_BF16, i ? 128 : 64, i ? 128 : 72, 90);
        c.group = "linear_delta";
        c.template_name = "linear_delta_sm90";
        add_linear(list, c, &SHAPE[i]);
    }
}

/* linear/delta_runs.cuh: gates that leave nothing of a state, so that pieces begin by themselves, in some
   heads for one piece too much, which waits, or for more, which go by transitions; gates at the limit; values
   under which too little is left out; tokens that make a state larger; gates that leave nearly all; packed
   sequences, of which some are short; sequences cut in two and in three. */
static void add_delta_runs(struct case_list *list)
{
    static const struct inline_spec CUT[] = {
        {SPEC(gated_cut)},   {SPEC(gated_grows)},     {SPEC(gated_threshold)}, {SPEC(gated_falls)},
        {SPEC(gated_alike)}, {SPEC(delta_backwards)}, {SPEC(delta_by_head)},   {SPEC(gated_some)}};
    static const int DIMS[][2] = {{128, 72}, {64, 40}, {40, 16}};
    static const struct linear_shape SHAPE[] = {
        {1, 4, 2, 2330, 1, 1, LAYOUT_COMPACT, " cu state_index "},
        {1, 4, 4, 2900, 4, 5, LAYOUT_PADDED, " "},
        {2, 3, 1, 2304, 2, 3, LAYOUT_COMPACT, " cu "},
    };
    static const struct linear_shape FEW[] = {
        {1, 5, 5, 2310, 1, 1, LAYOUT_COMPACT, " cu state_index "}, /* three pieces of 512 value channels */
        {1, 6, 3, 2310, 1, 1, LAYOUT_COMPACT, " cu state_index "}, /* two */
        {1, 8, 4, 2310, 1, 1, LAYOUT_PADDED, " cu state_index "},  /* blocks of two warpgroups */
    };
    for (int k = 0; k < COUNT(CUT); k++) {
        struct test_case c = case_of_attention("linear", CUT[k].name, CUT[k].text, LATHE_BF16, DIMS[k % 3][0],
                                               DIMS[k % 3][1], 90);
        c.group = "linear_runs";
        c.template_name = "linear_delta_runs_sm90";
        c.exact = k == 4 ? 2.5 : 0.0;
        for (int s = 0; s < COUNT(SHAPE); s++)
            if (k < 4 || s == 0)
                add_linear(list, c, &SHAPE[s]);
        c.in_place = true;
        add_linear(list, c, &LINEAR_OVER[3]);
    }
    for (int s = 0; s < COUNT(FEW); s++) {
        struct test_case c = case_of_attention("linear", CUT[0].name, CUT[0].text, LATHE_BF16,
                                               s == 2 ? 128 : 16, s == 2 ? 128 : 512, 90);
        c.group = "linear_runs";
        c.template_name = "linear_delta_runs_sm90";
        add_linear(list, c, &FEW[s]);
    }
}

/* linear/delta_prepare.cuh: mods that read zeros, tokens and heads, that need other places, of q alone; heads
   of v that share one of k, from rows that are aligned and that are not. */
static void add_delta_mods(struct case_list *list)
{
    static const struct inline_spec MODDED[] = {{SPEC(delta_mods)}, {SPEC(delta_queries)}};
    static const int DIMS[][2] = {{128, 72}, {40, 16}};
    for (int k = 0; k < COUNT(MODDED); k++)
        for (int i = 0; i < 2; i++) {
            struct test_case c = case_of_attention("linear", MODDED[k].name, MODDED[k].text, LATHE_BF16,
                                                   DIMS[i][0], DIMS[i][1], i == k ? 90 : 80);
            c.group = "linear_delta";
            c.template_name = i == k ? "linear_delta_sm90" : "linear_delta";
            add_linear(list, c, &LINEAR_SHAPES[0]);
            add_linear(list, c, &LINEAR_CHUNKS[0]);
            add_linear(list, c, &LINEAR_CHUNKS[4]);
            add_linear(list, c, &LINEAR_CHUNKS[5]);
        }
}

/* What is hard on the delta rule, by every kernel of it: keys that resemble each other, where betas are near
   1 and near 2; gates of 0 and gates that leave nothing beside betas of 0, whose o is 0. */
static void add_delta_stress(struct case_list *list)
{
    static const char *const NAME[] = {"delta_alike", "gated_alike", "delta_with_resets"};
    static const struct {
        const char *group, *template_name;
        lathe_pass pass;
        lathe_dtype dtype;
        int d, d_v, sm;
    } ROW[] = {
        {"linear_delta", "linear_delta_sm90", LATHE_FORWARD, LATHE_BF16, 128, 72, 90},
        {"linear_delta", "linear_delta", LATHE_FORWARD, LATHE_BF16, 64, 40, 80},
        {"linear_keys", "linear_keyed_delta", LATHE_FORWARD, LATHE_F16, 128, 40, 80},
        {"linear", "linear_recurrent", LATHE_FORWARD, LATHE_F16, 64, 16, 80},
        {"linear_delta", "linear_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 128, 72, 90},
        {"linear_gradients", "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_BF16, 64, 16, 80},
        {"linear_keyed", "linear_keyed_delta_bwd", LATHE_BACKWARD, LATHE_F16, 128, 72, 90},
    };
    for (int k = 0; k < COUNT(ROW); k++)
        for (int n = 0; n < COUNT(NAME); n++) {
            struct test_case c = case_of_attention("linear", NAME[n], linear_text(NAME[n]), ROW[k].dtype,
                                                   ROW[k].d, ROW[k].d_v, ROW[k].sm);
            c.group = ROW[k].group;
            c.pass = ROW[k].pass;
            c.deterministic = c.pass == LATHE_BACKWARD;
            c.template_name = ROW[k].template_name;
            c.exact = c.pass == LATHE_FORWARD && n < 2 ? 2.5 : 0.0;
            add_linear(list, c, &LINEAR_CHUNKS[(k + n) % 5]);
            add_linear(list, c, &LINEAR_STEPS[0]);
            add_linear(list, c, &LINEAR_CHUNKS[COUNT(LINEAR_CHUNKS) - 1]);
        }
}

void linear_delta_cases(struct case_list *list)
{
    add_delta_sm90(list);
    add_delta_runs(list);
    add_delta_mods(list);
    add_delta_groups(list);
    add_delta_stress(list);
    add_delta_back(list, "linear_delta_bwd", false);
    add_delta_back(list, "linear_delta_bwd_sm90", true);
}
