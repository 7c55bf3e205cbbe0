/*
 * cases_backward.c: the matrix of attention's backward pass: which specs meet which sizes, layouts, and which
 * tensors are left out. In and out: the list of cases.c, which grows.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Gradients of inputs in all the ways in which a spec may read them, and finals that carry a gradient. A
   spec's place draws its sizes and its kernel: new ones come last. */
static const struct inline_spec SPECS[] = {
    {"slopes", SPEC_slopes /* learned ALiBi */},
    {"distances", DISTANCES},
    {"hashes", HASHES},
    {"partial_rotary", PARTIAL_ROTARY},
    {"learned_scale", SPEC_learned_scale},
    {"grouped_scale", SPEC_grouped_scale},
    {"pair_gradient", SPEC_pair_gradient},
    {"tokens", SPEC_tokens /* per query, per key, by distance; all of them twice */},
    {"gate", SPEC_gate /* forward reads an input itself, and a final that is no logarithm */},
    {"mod_gradients", SPEC_mod_gradients},
    {"smoothed", SPEC_smoothed /* weights e^s + 1 of a sum: a final's worth is no multiple of delta as it is written */},
    {"parts", SPEC_parts /* the same of two finals, of inputs with gradients, of keys that the mask scatters, of mods */},
    {"saved", SPEC_saved /* a final whose gradient needs row states */},
    {"final_inputs", SPEC_final_inputs /* finals of inputs, in rows without live pairs, too */},
    {"final_states", SPEC_final_states /* the same of states, beside weights that are all 0 in some rows */},
    {"state_keys", SPEC_state_keys /* a state reads by key */},
    {"row_gates", SPEC_row_gates /* an element of each number that a mod makes */},
};

/* Where weights grow with the square of the score, gradients of scores far apart are beyond f16. */
static lathe_dtype dtype_of(const char *text, bool half)
{
    return half && !(text && strstr(text, "s * s")) ? LATHE_F16 : LATHE_BF16;
}

/* Lists of query tiles of more than 32: rows without keys, and one head's list after the other's. */
static const struct inline_spec MARKED = {
    "marked", "return attention { inputs = { n = tensor('i32', 'b', 'h', 'q') }, mask_mod = function(at, x)\n"
              "  return ge(at.q + 2000, at.kv) & ne(x.n(at.b, at.h, at.row) % 4, 1) end }\n"};

struct shape {
    int b, h, h_kv, q, kv;
    enum layout layout;
    const char *without; /* names between spaces */
    bool deterministic;
};

/* Rows without keys, lengths beside tiles, groups; what is computed again where it is not given; gradients
 * left out. */
static const struct shape SHAPES[] = {
    {2, 4, 2, 65, 130, LAYOUT_COMPACT, "", false},
    {1, 2, 1, 130, 63, LAYOUT_PADDED, "", true},
    {1, 2, 2, 33, 97, LAYOUT_SWAPPED, " o dlse ", false},
    {1, 4, 2, 70, 70, LAYOUT_MISALIGNED, " lse dq ", false},
    {1, 2, 1, 17, 140, LAYOUT_COMPACT, " o lse n dlse dn dtop dk ", true},
    {1, 2, 1, 40, 50, LAYOUT_PADDED, " dlse dn dv dslope dt dr dgain dbias dsink dtable ", false},
    {1, 2, 1, 17, 0, LAYOUT_COMPACT, "", false},
    {1, 2, 1, 0, 17, LAYOUT_COMPACT, "", true},
    {1, 1, 1, 1, 1, LAYOUT_COMPACT, " dq dk dv ", false},
};
static const struct shape MORE_SHAPES[] = {
    {2, 6, 2, 200, 200, LAYOUT_SWAPPED, " dlse ", true}, {1, 1, 1, 257, 129, LAYOUT_PADDED, " o lse ", false},
    {1, 2, 1, 1, 300, LAYOUT_COMPACT, " dq ", false},    {1, 3, 1, 300, 1, LAYOUT_COMPACT, " dk dv ", false},
    {3, 2, 2, 64, 64, LAYOUT_MISALIGNED, " o ", true},   {1, 2, 1, 128, 128, LAYOUT_COMPACT, " dlse ", false},
};

static const struct shape LONG_SHAPES[] = {{1, 2, 1, 1100, 20, LAYOUT_COMPACT, "", true},
                                           {1, 2, 1, 1030, 20, LAYOUT_COMPACT, " dlse ", false}};
static const struct shape LONG_ON_HOPPER[] = {{1, 1, 1, 2200, 20, LAYOUT_COMPACT, " dlse ", true},
                                              {1, 2, 1, 2060, 20, LAYOUT_COMPACT, "", false}};

static void add_shape(struct case_list *list, struct test_case c, const struct shape *s)
{
    case_shape(&c, s->b, s->h, s->h_kv, s->q, s->kv);
    c.layout = s->layout;
    c.without = s->without;
    c.deterministic = s->deterministic;
    case_add(list, &c);
}

static void add_shapes(struct case_list *list, struct test_case c, const struct shape *shape, int n)
{
    for (int i = 0; i < n; i++) {
        c.skewed = i % 4 == 3;
        add_shape(list, c, &shape[i]);
    }
}

static struct test_case backward(const char *spec, const char *text, lathe_dtype dtype, int d, int d_v,
                                 int sm)
{
    struct test_case c = case_of_attention("gradients", spec, text, dtype, d, d_v, sm);
    c.pass = LATHE_BACKWARD;
    return c;
}

static void add_all(struct case_list *list, const struct test_case *c, bool full)
{
    add_shapes(list, *c, SHAPES, COUNT(SHAPES));
    if (full)
        add_shapes(list, *c, MORE_SHAPES, COUNT(MORE_SHAPES));
}

static void group_dims(struct case_list *list, bool full)
{
    static const int DIMS[][3] = {{16, 16, 80},   {24, 40, 80},   {72, 72, 80},   {96, 96, 90},
                                  {128, 128, 80}, {128, 128, 86}, {192, 128, 80}, {128, 256, 90},
                                  {192, 192, 90}, {256, 256, 80}, {256, 256, 86}, {64, 256, 86}};
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c =
            backward("causal", NULL, i % 2 ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1], DIMS[i][2]);
        add_shapes(list, c, SHAPES, 2);
        if (full)
            add_shapes(list, c, MORE_SHAPES, COUNT(MORE_SHAPES));
    }
}

/* ---- Hopper ----------------------------------------------------------------------------------------------
 */

static void add_hopper(struct case_list *list, const char *spec, const char *text, lathe_dtype dtype,
                       const int *dim, bool every_shape, bool full)
{
    struct test_case c = case_of_attention("hopper_gradients", spec, text, dtype, dim[0], dim[1], 90);
    c.pass = LATHE_BACKWARD;
    c.template_name = dim[0] > 128 || dim[1] > 128 ? "attention_bwd_wide_sm90" : "attention_bwd_sm90";
    add_shapes(list, c, SHAPES, full || every_shape ? COUNT(SHAPES) : 4);
    if (full)
        add_shapes(list, c, MORE_SHAPES, COUNT(MORE_SHAPES));
}

/* The last blocks of keys in pieces: blocks beside multiples of those that take them in turn, so that some
 * are whole; fewer; shares that cross heads of a group and ends of blocks; a sum of one kind left out. */
static void group_pieces(struct case_list *list)
{
    static const int DIMS[][2] = {{64, 64}, {128, 128}, {72, 40}, {192, 192}, {256, 256}, {128, 64}};
    static const struct inline_spec SPEC[] = {
        {"full", NULL}, {"relative_bias", NULL}, {"unmasked", SPEC_unmasked},
        {"full", NULL}, {"relative_bias", NULL}, {"relu", NULL}};
    static const struct {
        int blocks;
        struct shape shape;
    } CUT[] = {
        {3, {1, 2, 1, 650, 500, LAYOUT_COMPACT, "", false}},
        {5, {2, 4, 2, 260, 300, LAYOUT_PADDED, " o lse dlse ", false}},
        {4, {1, 1, 1, 1100, 150, LAYOUT_SWAPPED, " dv dlse ", false}},
        {0, {1, 2, 2, 1030, 130, LAYOUT_MISALIGNED, " dk ", false}},
        {5, {1, 8, 1, 400, 500, LAYOUT_COMPACT, " dq ", false}},
        {3, {1, 2, 1, 1030, 1400, LAYOUT_COMPACT, "", false}},
    };
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c = case_of_attention("hopper_pieces", SPEC[i].name, SPEC[i].text,
                                               i % 2 ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1], 90);
        c.pass = LATHE_BACKWARD;
        c.template_name = DIMS[i][0] > 128 ? "attention_bwd_wide_sm90" : "attention_bwd_sm90";
        for (int k = 0; k < COUNT(CUT) - (i != 1);
             k++) { /* the last is long: many waves, shares of unequal lengths */
            c.blocks = CUT[k].blocks;
            add_shape(list, c, &CUT[k].shape);
            if (k == 0) { /* the same texts */
                c.blocks = 0;
                c.beside = CUT[k].blocks;
                add_shape(list, c, &CUT[k].shape);
                c.beside = 0;
            }
        }
    }
}

static void group_hopper(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"causal",    "softcap", "relative_bias", "document", "sinks",
                                       "retention", "qk_norm", "full",          "alibi",    "sliding_window",
                                       "prefix_lm", "sigmoid", "relu",          "rope",     "softmax_one",
                                       "causal",    "dropout"};
    static const int DIMS[][2] = {{64, 64},   {128, 128}, {72, 40}, {192, 192},
                                  {256, 256}, {192, 128}, {24, 40}, {64, 64}};
    for (int i = 0; i < COUNT(SPEC) + COUNT(SPECS); i++) {
        const bool own = i >= COUNT(SPEC);
        add_hopper(list, own ? SPECS[i - COUNT(SPEC)].name : SPEC[i],
                   own ? SPECS[i - COUNT(SPEC)].text : NULL,
                   dtype_of(own ? SPECS[i - COUNT(SPEC)].text : NULL, i % 2), DIMS[i % COUNT(DIMS)],
                   i == 0 || i == 4, full); /* of either kernel one with no queries, no keys */
    }
    add_hopper(list, "block_mask", NULL, LATHE_BF16, DIMS[1], false, full);
    add_hopper(list, "document", NULL, LATHE_BF16, DIMS[0], false, full); /* not the wide kernel, as above */
    /* shared memory for one slab of dq: both warpgroups take turns at it */
    add_hopper(list, "relative_bias", NULL, LATHE_BF16, DIMS[1], true, full);
    add_hopper(list, "retention", NULL, LATHE_F16, DIMS[0], true, full);
}

/* Tables that are read at computed places: of a size that is in the spec, by lane, by warp, and one that no
   shared memory holds beside others, or of a size that the launch tells; an element for all pairs, for those
   of a row, and given once for several heads. */
static const struct inline_spec TABLES[] = {
    {"tables", SPEC_tables},
    {"one_entry", SPEC_one_entry /* all lanes meet */},
    {"named_tables", SPEC_named_tables},
};

/* Tensors whose last stride is not 1, as the gradient of a plain sum is: read by mods, copied, or added up
   with o, by every kernel that may see them first. */
static void group_spread(struct case_list *list)
{
    static const char *const SPEC[] = {"causal", "rope", "qk_norm", "mod_gradients", "smoothed"};
    static const struct shape SOME[] = {{2, 4, 2, 65, 130, LAYOUT_SPREAD, "", false},
                                        {1, 2, 1, 70, 63, LAYOUT_SPREAD, " o lse dlse ", true}};
    for (int i = 0; i < 2 * COUNT(SPEC); i++) {
        const char *text = NULL;
        for (int k = 0; k < COUNT(SPECS); k++)
            text = strcmp(SPECS[k].name, SPEC[i / 2]) == 0 ? SPECS[k].text : text;
        struct test_case c = backward(SPEC[i / 2], text, i % 4 ? LATHE_BF16 : LATHE_F16, i % 3 ? 64 : 192, 64,
                                      i % 2 ? 90 : 80);
        c.group = i % 2 ? "hopper_spread" : "spread";
        if (i % 2)
            c.template_name = i % 3 ? "attention_bwd_sm90" : "attention_bwd_wide_sm90";
        add_shapes(list, c, SOME, COUNT(SOME));
    }
    for (int i = 0; i < 4; i++) {
        struct test_case c = case_of_attention(i % 2 ? "hopper_spread" : "spread", i / 2 ? "rope" : "causal",
                                               NULL, LATHE_BF16, 64, 64, i % 2 ? 90 : 80);
        c.template_name = i % 2 ? "attention_fwd_sm90" : NULL;
        add_shape(list, c, &SOME[0]);
    }
}

static void group_tables(struct case_list *list)
{
    static const int DIMS[][3] = {{64, 64, 80},   {64, 64, 90},  {128, 128, 90},
                                  {256, 192, 90}, {128, 96, 80}, {256, 256, 86}};
    static const int KINDS[] = {40, 30, 5, 0};
    static const struct shape SOME[] = {{2, 4, 2, 65, 130, LAYOUT_COMPACT, "", false},
                                        {1, 2, 1, 130, 63, LAYOUT_PADDED, "", true},
                                        {1, 4, 2, 170, 270, LAYOUT_SWAPPED, " dq dk dv dmiddle ", false},
                                        {1, 1, 1, 1, 1, LAYOUT_COMPACT, " o lse dlse ", false}};
    for (int i = 0; i < COUNT(DIMS); i++)
        for (int k = 0; k < COUNT(TABLES) + COUNT(KINDS) - 1; k++) {
            const int spec = k < COUNT(TABLES) ? k : COUNT(TABLES) - 1;
            struct test_case c = backward(TABLES[spec].name, TABLES[spec].text,
                                          i % 2 ? LATHE_F16 : LATHE_BF16, DIMS[i][0], DIMS[i][1], DIMS[i][2]);
            c.group = DIMS[i][2] == 90 ? "hopper_tables" : "tables";
            if (DIMS[i][2] == 90)
                c.template_name = DIMS[i][0] > 128 ? "attention_bwd_wide_sm90" : "attention_bwd_sm90";
            if (spec == COUNT(TABLES) - 1)
                c.dim[SYM_FREE] = KINDS[k - spec];
            if (strcmp(TABLES[spec].name, "one_entry") == 0)
                c.exact =
                    4.0; /* one number, to which rounding of every row of o adds: of 40 seeds five beyond 1 */
            c.hollow = c.dim[SYM_FREE] == 0;
            add_shapes(list, c, SOME, c.hollow ? 1 : COUNT(SOME));
        }
}

/* Few queries whose weights are nearly all one key's, so that its score's gradient is what rounding leaves.
 */
static void group_sharp(struct case_list *list)
{
    static const char *const SPEC[] = {"full", "prefix_lm", "alibi"};
    static const struct shape SHARP[] = {
        {1, 2, 1, 1, 300, LAYOUT_COMPACT, "", true},
        {1, 2, 2, 17, 300, LAYOUT_COMPACT, "", true},
        {1, 2, 1, 1, 1000, LAYOUT_PADDED, "", true},
        {1, 2, 1, 17, 1000, LAYOUT_COMPACT, "", false},
    };
    for (int i = 0; i < 2 * COUNT(SPEC); i++) {
        struct test_case c = backward(SPEC[i / 2], NULL, i % 3 ? LATHE_BF16 : LATHE_F16, 64, 64, 90);
        if (i % 2) {
            c.group = "hopper_gradients";
            c.template_name = "attention_bwd_sm90";
        }
        c.skewed = true;
        for (int k = 0; k < COUNT(SHARP); k++)
            add_shape(list, c, &SHARP[k]);
    }
}

/* Neither dk nor dv is wanted: query heads, and every 32 query tiles, have thread blocks of their own. */
static void group_apart(struct case_list *list)
{
    static const struct inline_spec SPEC[] = {{"relative_bias", NULL},
                                              {"nsa_compressed", NULL},
                                              {"tokens", SPEC_tokens},
                                              {"causal", NULL},
                                              {"document", NULL}};
    static const struct shape SOME[] = {{1, 4, 2, 1100, 40, LAYOUT_COMPACT, " dk dv ", false},
                                        {2, 4, 1, 1030, 20, LAYOUT_PADDED, " dq dk dv ", false},
                                        {1, 2, 1, 0, 17, LAYOUT_COMPACT, " dk dv ", false},
                                        {1, 2, 1, 150, 140, LAYOUT_COMPACT, " dk dv ", true}};
    for (int i = 0; i < COUNT(SPEC); i++) {
        struct test_case c = backward(SPEC[i].name, SPEC[i].text, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 40, 80);
        c.group = "queries_apart";
        c.may_refuse = i == 1; /* heads that add to one element, in order */
        add_shapes(list, c, SOME, COUNT(SOME));
    }
    struct test_case c = backward("causal", NULL, LATHE_BF16, 64, 64, 80);
    c.group = "queries_apart";
    c.without = " dk dv used_kv ";
    c.dim[SYM_SEQS] = 5;
    c.dim[SYM_B] = 1;
    c.dim[SYM_H] = 2;
    c.dim[SYM_H_KV] = 1;
    c.dim[SYM_Q] = 2300;
    c.dim[SYM_KV] = 60;
    case_add(list, &c);
}

/* ---- f32 -------------------------------------------------------------------------------------------------
 */

/* Every row of tiles: those of sm_86 are the small ones. */
static void f32_dims(struct case_list *list, bool full)
{
    static const int DIMS[][3] = {{16, 16, 80},   {24, 40, 90},   {64, 64, 86},   {72, 96, 80},
                                  {128, 128, 80}, {128, 128, 90}, {128, 128, 86}, {192, 128, 90},
                                  {256, 256, 90}, {256, 256, 80}, {192, 192, 86}, {64, 256, 86}};
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c = backward("causal", NULL, LATHE_F32, DIMS[i][0], DIMS[i][1], DIMS[i][2]);
        c.group = "f32_backward";
        add_shapes(list, c, SHAPES, 2);
        if (full)
            add_shapes(list, c, MORE_SHAPES, COUNT(MORE_SHAPES));
    }
}

/* Packed sequences, of which some are empty; lengths of batches; what the forward pass gives left out. */
static void f32_sequences(struct case_list *list)
{
    static const char *const WITHOUT[] = {" used_kv ", " o lse used_kv ", " cu_q cu_kv "};
    for (int i = 0; i < COUNT(WITHOUT); i++) {
        struct test_case c = backward("causal", NULL, LATHE_F32, 64, 64, 90);
        c.group = "f32_backward";
        c.dim[SYM_SEQS] = i == 2 ? 3 : 7;
        c.dim[SYM_B] = i == 2 ? 3 : 1;
        c.dim[SYM_H] = 2;
        c.dim[SYM_H_KV] = 1;
        c.dim[SYM_Q] = i == 2 ? 70 : 420;
        c.dim[SYM_KV] = i == 2 ? 100 : 430;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_SWAPPED;
        c.without = WITHOUT[i];
        case_add(list, &c);
    }
}

/* Products of three of bf16 each: bounds are such that one of bf16, or of tf32, fails. */
void group_f32_backward(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"full",      "causal",   "alibi",       "sliding_window",
                                       "prefix_lm", "document", "softcap",     "relative_bias",
                                       "sigmoid",   "relu",     "sinks",       "retention",
                                       "rope",      "qk_norm",  "softmax_one", "dropout"};
    for (int i = 0; i < COUNT(SPEC); i++) {
        struct test_case c = backward(SPEC[i], NULL, LATHE_F32, 64, 64, i % 2 ? 90 : 80);
        c.group = "f32_backward";
        add_shapes(list, c, SHAPES, full || i < 2 ? COUNT(SHAPES) : 5);
    }
    for (int i = 0; i < COUNT(SPECS); i++) {
        struct test_case c =
            backward(SPECS[i].name, SPECS[i].text, LATHE_F32, 64, i % 3 == 1 ? 40 : 64, i % 2 ? 90 : 86);
        c.group = "f32_backward";
        add_shapes(list, c, SHAPES, full ? COUNT(SHAPES) : 6);
    }
    f32_dims(list, full);
    f32_sequences(list);
}

void group_backward(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"full",         "causal",     "alibi",          "sliding_window",
                                       "prefix_lm",    "document",   "softcap",        "relative_bias",
                                       "sigmoid",      "relu",       "retention",      "softmax_one",
                                       "sinks",        "rope",       "qk_norm",        "dropout",
                                       "rope_partial", "block_mask", "nsa_compressed", "nsa_selected"};
    for (int i = 0; i < COUNT(SPEC); i++) {
        const int d = i % 2 ? 128 : 64;
        struct test_case c =
            backward(SPEC[i], NULL, i % 3 ? LATHE_BF16 : LATHE_F16, d, d, i % 3 == 1 ? 90 : 80);
        c.may_refuse = strcmp(SPEC[i], "nsa_compressed") == 0; /* heads that add to one element, in order */
        const struct test_case other = backward(SPEC[i], NULL, i % 3 ? LATHE_F16 : LATHE_BF16, 64, 64, 80);
        add_all(list, &c, full);
        if (full)
            add_all(list, &other, full);
    }
    for (int i = 0; i < COUNT(SPECS); i++) {
        const struct test_case c = backward(SPECS[i].name, SPECS[i].text, dtype_of(SPECS[i].text, i % 2 == 0),
                                            64, i % 3 == 1 ? 40 : 64, 80);
        add_all(list, &c, full);
    }
    group_dims(list, full);
    group_hopper(list, full);
    group_pieces(list);
    struct test_case c = backward(MARKED.name, MARKED.text, LATHE_BF16, 16, 16, 80);
    add_shapes(list, c, LONG_SHAPES, COUNT(LONG_SHAPES));
    c = case_of_attention("hopper_gradients", MARKED.name, MARKED.text, LATHE_BF16, 72, 16, 90);
    c.pass = LATHE_BACKWARD;
    c.template_name = "attention_bwd_sm90";
    add_shapes(list, c, LONG_ON_HOPPER, COUNT(LONG_ON_HOPPER));
    group_sharp(list);
    group_tables(list);
    group_spread(list);
    group_apart(list);
}
