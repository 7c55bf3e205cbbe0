/*
 * cases_linear.c: the matrix of linear attention, both passes: every decay with what goes beside it, token by
 * token; shipped specs; and what every kernel has to stand. cases_additive.c, cases_delta.c and cases_keyed.c
 * have what is of their kernels alone.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases_linear.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define SPEC(name)  #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

static const struct inline_spec SPECS[] = {
    {SPEC(plain)},           {SPEC(by_head)},        {SPEC(learned_head)},     {SPEC(by_token)},
    {SPEC(by_key)},          {SPEC(by_value)},       {SPEC(delta_rule)},       {SPEC(gated_delta)},
    {SPEC(keyed_delta)},     {SPEC(valued_delta)},   {SPEC(with_bonus)},       {SPEC(bonus_alone)},
    {SPEC(normalised)},      {SPEC(all_tokens)},     {SPEC(all_normalised)},   {SPEC(backwards)},
    {SPEC(with_resets)},     {SPEC(mild_key)},       {SPEC(mixed_key)},        {SPEC(mild_bonus)},
    {SPEC(token_bonus)},     {SPEC(key_normalised)}, {SPEC(delta_by_head)},    {SPEC(delta_with_resets)},
    {SPEC(delta_backwards)}, {SPEC(turned)},         {SPEC(normalised_bonus)}, {SPEC(read_and_write)},
    {SPEC(read_before)},     {SPEC(read_backwards)}, {SPEC(delta_reader)},     {SPEC(delta_writer)},
    {SPEC(delta_first)},     {SPEC(read_by_value)},
};

/* Decays that leave something of a piece. */
static const struct inline_spec WEAK[] = {{SPEC(weak_key)}, {SPEC(weak_token)}};

/* Keys that resemble each other, which powers of a triangle would not stand. */
static const struct inline_spec ALIKE[] = {{SPEC(delta_alike)}, {SPEC(gated_alike)}, {SPEC(keyed_alike)}};

/* Gates that are no number. */
static const struct inline_spec LOST[] = {
    {SPEC(lost_token)}, {SPEC(lost_key)}, {SPEC(lost_value)}, {SPEC(lost_delta)}};

const char *linear_text_among(const struct inline_spec *spec, int n, const char *name)
{
    const char *text = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(spec[i].name, name) == 0)
            text = spec[i].text;
    return text;
}

const char *linear_text(const char *name)
{
    const char *text = linear_text_among(SPECS, COUNT(SPECS), name);
    text = text ? text : linear_text_among(WEAK, COUNT(WEAK), name);
    text = text ? text : linear_text_among(ALIKE, COUNT(ALIKE), name);
    return text ? text : linear_text_among(LOST, COUNT(LOST), name);
}

/* Chunks of 64 tokens and beside them, states that are there or not, packed sequences of which some are
   empty, a pool of states in which one sequence has none. */
const struct linear_shape LINEAR_SHAPES[] = {
    {2, 4, 2, 70, 2, 2, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 1, 133, 1, 1, LAYOUT_PADDED,
     " cu state_index state state_out norm norm_out dstate_out dnorm_out dstate dnorm "},
    {1, 2, 2, 150, 5, 5, LAYOUT_SWAPPED, " state_index "},
    {3, 2, 1, 1, 3, 5, LAYOUT_MISALIGNED, " cu "},
    {1, 2, 1, 128, 1, 1, LAYOUT_SPREAD, " cu state_index state norm dstate_out dnorm_out "},
};

/* Chunks of 64 tokens and places beside their ends, packed sequences of each such length, empty ones among
   them; value groups, states or none of them. */
const struct linear_shape LINEAR_CHUNKS[] = {
    {1, 2, 2, 1, 1, 1, LAYOUT_COMPACT, " cu state_index "},
    {2, 2, 1, 63, 2, 2, LAYOUT_PADDED, " cu state_index "},
    {1, 2, 2, 64, 1, 1, LAYOUT_COMPACT, " cu state_index state norm dstate_out dnorm_out "},
    {2, 4, 2, 65, 2, 2, LAYOUT_SWAPPED,
     " cu state_index state state_out norm norm_out dstate_out dnorm_out dstate dnorm "},
    {1, 2, 2, 200, 1, 1, LAYOUT_MISALIGNED, " cu state_index "},
    {1, 2, 1, 260, 6, 6, LAYOUT_SPREAD, " state_index "},
};

/* The same beside ends of steps of 16 tokens. */
const struct linear_shape LINEAR_STEPS[] = {
    {1, 2, 1, 145, 1, 1, LAYOUT_PADDED, " cu state_index "},
    {1, 4, 2, 200, 6, 7, LAYOUT_COMPACT, " "},
};

/* The same where sequences are few and long: in pieces, of which the last one is shorter; packed ones of
   which one is empty and one is a piece; a pool of states. */
const struct linear_shape LINEAR_PIECES[] = {
    {1, 2, 1, 2330, 1, 1, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 2, 2400, 5, 5, LAYOUT_PADDED, " state_index "},
    {2, 1, 1, 2304, 2, 3, LAYOUT_COMPACT, " cu "},
};

/* A first state and the last one in one memory: a step, steps, chunks and pieces; a pool of states, of which
   some are nobody's and stay. */
const struct linear_shape LINEAR_OVER[] = {
    {3, 2, 1, 1, 3, 5, LAYOUT_PADDED, " cu "},
    {2, 4, 2, 70, 2, 2, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 2, 150, 5, 7, LAYOUT_SWAPPED, " "},
    {1, 2, 1, 2330, 1, 1, LAYOUT_COMPACT, " cu state_index "}, /* in pieces where the kernel has them */
};

void add_linear(struct case_list *list, struct test_case c, const struct linear_shape *s)
{
    c.dim[SYM_B] = s->b;
    c.dim[SYM_H] = s->h;
    c.dim[SYM_H_K] = s->h_k;
    c.dim[SYM_T] = s->t;
    c.dim[SYM_SEQS] = s->seqs;
    c.dim[SYM_SLOTS] = c.pass == LATHE_BACKWARD ? s->seqs : s->slots;
    c.layout = s->layout;
    c.without = s->without;
    case_add(list, &c);
}

static void add_spec(struct case_list *list, const char *spec, lathe_pass pass, lathe_dtype dtype, int d,
                     int d_v, int sm)
{
    struct test_case c = case_of_attention("linear", spec, linear_text(spec), dtype, d, d_v, sm);
    c.group = pass == LATHE_BACKWARD ? "linear_gradients" : "linear";
    c.pass = pass;
    c.deterministic = pass == LATHE_BACKWARD;
    for (int i = 0; i < COUNT(LINEAR_SHAPES); i++)
        add_linear(list, c, &LINEAR_SHAPES[i]);
}

/* What is shipped, by name, in two shapes each. */
static void add_shipped(struct case_list *list, const char *name, lathe_pass pass, lathe_dtype dtype)
{
    const struct inline_spec spec = {name, NULL};
    struct test_case c = case_of_attention("linear", spec.name, spec.text, dtype, 32, 16, 80);
    c.group = pass == LATHE_BACKWARD ? "linear_gradients" : "linear";
    c.pass = pass;
    c.deterministic = pass == LATHE_BACKWARD;
    c.dim[SYM_FREE] = 16; /* pairs of flao_lrpe */
    add_linear(list, c, &LINEAR_SHAPES[0]);
    add_linear(list, c, &LINEAR_SHAPES[2]);
}

/* linear/delta_chunks.cuh: head dims whose tiles differ, parts of a tile, parts of a block's value channels.
 */
static void add_chunked(struct case_list *list)
{
    static const char *const NAME[] = {"plain", "by_token", "backwards", "delta_rule", "gated_delta"};
    static const int DIMS[][2] = {{128, 72}, {72, 128}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int d = 0; d < COUNT(DIMS); d++)
            add_spec(list, NAME[k], LATHE_FORWARD, LATHE_BF16, DIMS[d][0], DIMS[d][1], d ? 90 : 86);
}

static void add_over(struct case_list *list)
{
    static const struct {
        const char *name, *template_name;
        int shapes;
    } ROW[] = {
        {"plain", "linear_recurrent", 3},     {"keyed_delta", "linear_recurrent", 3},
        {"by_value", "linear_recurrent", 3},  {"all_tokens", "linear_recurrent", 3},
        {"by_token", "linear_additive", 3},   {"gated_delta", "linear_delta", 3},
        {"backwards", "linear_additive", 3},  {"by_key", "linear_additive", 4},
        {"weak_token", "linear_additive", 4}, {"with_bonus", "linear_additive", 3},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        const lathe_dtype dtype =
            k % 2 || strcmp(ROW[k].template_name, "linear_delta") == 0 ? LATHE_BF16 : LATHE_F16;
        struct test_case c = case_of_attention("linear", ROW[k].name, linear_text(ROW[k].name), dtype,
                                               k % 3 ? 64 : 40, 72, 80);
        c.group = "linear";
        c.template_name = ROW[k].template_name;
        c.in_place = true;
        for (int s = 0; s < ROW[k].shapes; s++)
            add_linear(list, c, &LINEAR_OVER[s]);
    }
}

/* Gates so strong that most of what their gradient is a difference of is there twice: within 3e-3 and 4e-3 of
   it, if both times it has been rounded alike. And dv, as near where pairs within 16 tokens are more exact
   than 16 bits, strong gates or not. */
static void add_strong_back(struct case_list *list)
{
    static const struct {
        struct inline_spec spec;
        const char *group, *template_name;
        double exact;
    } ROW[] = {{{SPEC(strong_key)}, "linear_blocks", "linear_additive_bwd", 0.14},
               {{SPEC(steady_key)}, "linear_blocks", "linear_additive_bwd", 0.14},
               {{SPEC(strong_keyed)}, "linear_keyed", "linear_keyed_delta_bwd", 0.2}};
    for (int k = 0; k < COUNT(ROW); k++) {
        struct test_case c =
            case_of_attention("linear", ROW[k].spec.name, ROW[k].spec.text, LATHE_BF16, 128, 128, 90);
        c.group = ROW[k].group;
        c.pass = LATHE_BACKWARD;
        c.deterministic = true;
        c.template_name = ROW[k].template_name;
        c.exact = ROW[k].exact;
        add_linear(list, c, &LINEAR_CHUNKS[2]);
        add_linear(list, c, &LINEAR_CHUNKS[4]);
    }
}

/* By every kernel: nothing that such a gate is multiplied into may be a number. Where tokens go in chunks,
   NaN spreads over the chunk: sequences begin with it, and dk and dv, which later tokens alone are in, are
   left out. */
enum { DK_AND_DV = 1 << 1 | 1 << 2 };
static void add_lost(struct case_list *list)
{
    static const struct {
        const char *name, *group, *template_name;
        lathe_pass pass;
        lathe_dtype dtype;
        int sm;
    } ROW[] = {
        {"lost_token", "linear", "linear_recurrent", LATHE_FORWARD, LATHE_F32, 80},
        {"lost_key", "linear", "linear_recurrent", LATHE_FORWARD, LATHE_F32, 80},
        {"lost_value", "linear", "linear_recurrent", LATHE_FORWARD, LATHE_F16, 80},
        {"lost_token", "linear", "linear_additive", LATHE_FORWARD, LATHE_BF16, 80},
        {"lost_key", "linear", "linear_additive", LATHE_FORWARD, LATHE_F16, 80},
        {"lost_delta", "linear_delta", "linear_delta", LATHE_FORWARD, LATHE_BF16, 80},
        {"lost_delta", "linear_delta", "linear_delta_sm90", LATHE_FORWARD, LATHE_BF16, 90},
        {"lost_delta", "linear_keys", "linear_keyed_delta", LATHE_FORWARD, LATHE_F16, 80},
        {"lost_token", "linear_gradients", "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 80},
        {"lost_key", "linear_gradients", "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 80},
        {"lost_token", "linear_chunks", "linear_additive_bwd_sm90", LATHE_BACKWARD, LATHE_BF16, 90},
        {"lost_token", "linear_blocks", "linear_additive_bwd", LATHE_BACKWARD, LATHE_BF16, 80},
        {"lost_key", "linear_blocks", "linear_additive_bwd", LATHE_BACKWARD, LATHE_BF16, 80},
        {"lost_delta", "linear_delta", "linear_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 80},
        {"lost_delta", "linear_delta", "linear_delta_bwd_sm90", LATHE_BACKWARD, LATHE_BF16, 90},
        {"lost_delta", "linear_keyed", "linear_keyed_delta_bwd", LATHE_BACKWARD, LATHE_F16, 90},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        struct test_case c = case_of_attention("linear", ROW[k].name, linear_text(ROW[k].name), ROW[k].dtype,
                                               64, 64, ROW[k].sm);
        c.group = ROW[k].group;
        c.pass = ROW[k].pass;
        c.deterministic = c.pass == LATHE_BACKWARD;
        c.template_name = ROW[k].template_name;
        c.unwanted = c.pass == LATHE_BACKWARD ? DK_AND_DV : 0;
        add_linear(list, c, &LINEAR_CHUNKS[1]);
        add_linear(list, c, &LINEAR_SHAPES[2]);
    }
}

/* Of the gradient of an input, elements that no token reads are zeros. */
static void add_diagonals(struct case_list *list)
{
    struct test_case c =
        case_of_attention("linear_gradients", "diagonals", SPEC_diagonals, LATHE_F16, 64, 64, 80);
    c.pass = LATHE_BACKWARD;
    add_linear(list, c, &LINEAR_SHAPES[0]);
    c.dtype = LATHE_F32;
    add_linear(list, c, &LINEAR_SHAPES[0]);
}

/* linear/updates.cuh around every template that it may stand around: tokens and chunks of updates and places
   beside their ends, packed sequences of which some are empty, rows that are not aligned, a pool of states.
 */
static void add_updates(struct case_list *list)
{
    static const struct inline_spec UPDATED[] = {{SPEC(updates_gated)},
                                                 {SPEC(updates_keyed)},
                                                 {SPEC(updates_backwards)},
                                                 {SPEC(updates_added)},
                                                 {"gated_delta_product", NULL}};
    static const struct {
        int spec;
        const char *template_name;
        lathe_pass pass;
        lathe_dtype dtype;
        int d, d_v, sm;
    } ROW[] = {
        {0, "linear_recurrent", LATHE_FORWARD, LATHE_F32, 32, 48, 80},
        {0, "linear_delta", LATHE_FORWARD, LATHE_BF16, 64, 40, 80},
        {0, "linear_delta_sm90", LATHE_FORWARD, LATHE_BF16, 64, 72, 90},
        {0, "linear_keyed_delta", LATHE_FORWARD, LATHE_F16, 64, 16, 80},
        {0, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 32, 48, 80},
        {0, "linear_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 64, 72, 80},
        {0, "linear_delta_bwd_sm90", LATHE_BACKWARD, LATHE_BF16, 64, 72, 90},
        {0, "linear_keyed_delta_bwd", LATHE_BACKWARD, LATHE_F16, 64, 16, 80},
        {1, "linear_keyed_delta", LATHE_FORWARD, LATHE_BF16, 64, 40, 90},
        {1, "linear_keyed_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 64, 40, 90},
        {2, "linear_recurrent", LATHE_FORWARD, LATHE_BF16, 40, 16, 80},
        {2, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 40, 16, 80},
        {3, "linear_recurrent", LATHE_FORWARD, LATHE_F16, 32, 40, 80},
        {3, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 32, 40, 80},
        {4, "linear_delta", LATHE_FORWARD, LATHE_BF16, 32, 16, 80},
        {4, "linear_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 32, 16, 80},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        const struct inline_spec *spec = &UPDATED[ROW[k].spec];
        struct test_case c = case_of_attention("linear", spec->name, spec->text, ROW[k].dtype, ROW[k].d,
                                               ROW[k].d_v, ROW[k].sm);
        c.group = "linear_updates";
        c.pass = ROW[k].pass;
        c.deterministic = c.pass == LATHE_BACKWARD;
        c.template_name = ROW[k].template_name;
        add_linear(list, c, &LINEAR_SHAPES[k % 2]);
        add_linear(list, c, &LINEAR_SHAPES[2]);
        add_linear(list, c, &LINEAR_SHAPES[3]);
        if (k < 3) {
            struct linear_shape apart = LINEAR_SHAPES[2];
            apart.layout = k == 0 ? LAYOUT_SPREAD : k == 1 ? LAYOUT_PADDED : LAYOUT_MISALIGNED;
            c.ends = 141; /* tokens behind the last sequence are not written */
            add_linear(list, c, &apart);
        }
    }
}

/* linear/query_heads.cuh around templates of every family, at the same places. */
static void add_query_heads(struct case_list *list)
{
    static const struct inline_spec READ[] = {
        {SPEC(heads_added)}, {SPEC(heads_gated)}, {SPEC(heads_normalised)}, {SPEC(heads_rule)}};
    static const struct {
        int spec;
        const char *template_name;
        lathe_pass pass;
        lathe_dtype dtype;
        int d, d_v, sm;
    } ROW[] = {
        {0, "linear_recurrent", LATHE_FORWARD, LATHE_F32, 32, 48, 80},
        {1, "linear_recurrent", LATHE_FORWARD, LATHE_BF16, 40, 16, 80},
        {0, "linear_additive", LATHE_FORWARD, LATHE_BF16, 64, 40, 80},
        {0, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 32, 48, 80},
        {0, "linear_additive_bwd_sm90", LATHE_BACKWARD, LATHE_BF16, 64, 64, 90},
        {1, "linear_delta", LATHE_FORWARD, LATHE_BF16, 64, 40, 80},
        {1, "linear_delta_sm90", LATHE_FORWARD, LATHE_BF16, 64, 72, 90},
        {1, "linear_keyed_delta", LATHE_FORWARD, LATHE_F16, 64, 16, 80},
        {1, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 32, 48, 80},
        {1, "linear_delta_bwd", LATHE_BACKWARD, LATHE_BF16, 64, 72, 80},
        {1, "linear_delta_bwd_sm90", LATHE_BACKWARD, LATHE_BF16, 64, 72, 90},
        {1, "linear_keyed_delta_bwd", LATHE_BACKWARD, LATHE_F16, 64, 16, 80},
        {2, "linear_additive", LATHE_FORWARD, LATHE_F16, 32, 40, 80},
        {2, "linear_additive_bwd", LATHE_BACKWARD, LATHE_BF16, 32, 40, 80},
        {3, "linear_dplr", LATHE_FORWARD, LATHE_BF16, 64, 32, 80},
        {3, "linear_recurrent_bwd", LATHE_BACKWARD, LATHE_F32, 32, 16, 80},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        const struct inline_spec *spec = &READ[ROW[k].spec];
        struct test_case c = case_of_attention("linear", spec->name, spec->text, ROW[k].dtype, ROW[k].d,
                                               ROW[k].d_v, ROW[k].sm);
        c.group = "linear_heads";
        c.pass = ROW[k].pass;
        c.deterministic = c.pass == LATHE_BACKWARD;
        c.template_name = ROW[k].template_name;
        add_linear(list, c, &LINEAR_SHAPES[k % 2]);
        add_linear(list, c, &LINEAR_SHAPES[2]);
        add_linear(list, c, &LINEAR_SHAPES[3]);
        if (k < 2) {
            struct linear_shape apart = LINEAR_SHAPES[2];
            apart.layout = k == 0 ? LAYOUT_SPREAD : LAYOUT_PADDED;
            c.ends = 141; /* tokens behind the last sequence are not written */
            add_linear(list, c, &apart);
        }
    }
}

/* linear/output_mod.cuh: o of tokens behind the last sequence is left alone, whatever the mod makes of what
   lies there: memory before is NaN, of which a maximum would make a number. */
static void add_early_ends(struct case_list *list)
{
    static const struct {
        const char *template_name;
        lathe_dtype dtype;
    } ROW[] = {{"linear_additive", LATHE_BF16}, {"linear_recurrent", LATHE_F32}};
    for (int k = 0; k < COUNT(ROW); k++) {
        struct test_case c =
            case_of_attention("linear", "floor",
                              "return linear_attention { output_mod = function(o) return max(o, -0.25) end }",
                              ROW[k].dtype, 64, 40, 80);
        struct linear_shape apart = LINEAR_SHAPES[2];
        apart.layout = k == 0 ? LAYOUT_SPREAD : LAYOUT_PADDED;
        c.group = "linear_heads";
        c.template_name = ROW[k].template_name;
        c.ends = 141;
        add_linear(list, c, &apart);
        c.ends = 0;
        add_linear(list, c, &apart);
    }
}

void group_linear(struct case_list *list, bool full)
{
    add_query_heads(list);
    add_diagonals(list);
    add_updates(list);
    add_chunked(list);
    add_over(list);
    linear_additive_cases(list);
    linear_delta_cases(list);
    linear_keyed_cases(list);
    static const char *const SHIPPED[] = {"linear",
                                          "linear_elu",
                                          "retention_linear",
                                          "lightning",
                                          "simple_gla",
                                          "mamba2",
                                          "gla",
                                          "hgrn2",
                                          "rwkv6",
                                          "delta_rule",
                                          "gated_delta",
                                          "kda",
                                          "flao",
                                          "flao_lrpe",
                                          "rwkv7",
                                          "dplr",
                                          "iplr",
                                          "comba",
                                          "gdn2",
                                          "precond_gated_delta",
                                          "precond_kda",
                                          "hgrn"};
    for (int i = 0; i < COUNT(SHIPPED); i++)
        for (int pass = 0; pass < 2; pass++)
            add_shipped(list, SHIPPED[i], pass ? LATHE_BACKWARD : LATHE_FORWARD,
                        i % 2 ? LATHE_BF16 : LATHE_F32);

    static const int DIMS[][2] = {{32, 48}, {64, 16}, {136, 40}, {16, 256}};
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int pass = 0; pass < 2; pass++)
            for (int k = 0; k < (full ? COUNT(DIMS) : 2); k++) {
                add_spec(list, SPECS[i].name, pass ? LATHE_BACKWARD : LATHE_FORWARD,
                         DTYPE[k == 0 ? 0 : 1 + (i + k) % 2], DIMS[(k + i) % COUNT(DIMS)][0],
                         DIMS[(k + i) % COUNT(DIMS)][1], k % 2 ? 90 : 80);
            }
    add_strong_back(list);
    add_lost(list);
    add_early_ends(list);
}
