/*
 * cases_linear.c: the matrix of linear attention, both passes: every decay with what goes beside it, packed
 * sequences, states, head groups, layouts.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

#define SPEC(name) #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

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

struct shape {
    int b, h, h_k, t, seqs, slots;
    enum layout layout;
    const char *without; /* names between spaces */
};

/* Chunks of 64 tokens and beside them, states that are there or not, packed sequences of which some are
   empty, a pool of states in which one sequence has none. */
static const struct shape SHAPES[] = {
    {2, 4, 2, 70, 2, 2, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 1, 133, 1, 1, LAYOUT_PADDED,
     " cu state_index state state_out norm norm_out dstate_out dnorm_out dstate dnorm "},
    {1, 2, 2, 150, 5, 5, LAYOUT_SWAPPED, " state_index "},
    {3, 2, 1, 1, 3, 5, LAYOUT_MISALIGNED, " cu "},
    {1, 2, 1, 128, 1, 1, LAYOUT_SPREAD, " cu state_index state norm dstate_out dnorm_out "},
};

static void add(struct case_list *list, struct test_case c, const struct shape *s)
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

static void add_spec(struct case_list *list, const struct inline_spec *spec, lathe_pass pass,
                     lathe_dtype dtype, int d, int d_v, int sm)
{
    struct test_case c = case_of_attention("linear", spec->name, spec->text, dtype, d, d_v, sm);
    c.group = pass == LATHE_BACKWARD ? "linear_gradients" : "linear";
    c.pass = pass;
    c.deterministic = pass == LATHE_BACKWARD;
    for (int i = 0; i < COUNT(SHAPES); i++)
        add(list, c, &SHAPES[i]);
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
    add(list, c, &SHAPES[0]);
    add(list, c, &SHAPES[2]);
}

/* linear/delta_chunks.cuh: head dims whose tiles differ, parts of a tile, parts of a block's value channels.
 */
static void add_chunked(struct case_list *list)
{
    static const char *const NAME[] = {"plain", "by_token", "backwards", "delta_rule", "gated_delta"};
    static const int DIMS[][2] = {{128, 72}, {72, 128}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int i = 0; i < COUNT(SPECS); i++)
            for (int d = 0; d < COUNT(DIMS) && strcmp(SPECS[i].name, NAME[k]) == 0; d++)
                add_spec(list, &SPECS[i], LATHE_FORWARD, LATHE_BF16, DIMS[d][0], DIMS[d][1], d ? 90 : 86);
}

/* Chunks of 64 tokens and places beside their ends, packed sequences of each such length, empty ones among
   them; value groups, states or none of them. */
static const struct shape CHUNKS[] = {
    {1, 2, 2, 1, 1, 1, LAYOUT_COMPACT, " cu state_index "},
    {2, 2, 1, 63, 2, 2, LAYOUT_PADDED, " cu state_index "},
    {1, 2, 2, 64, 1, 1, LAYOUT_COMPACT, " cu state_index state norm dstate_out dnorm_out "},
    {2, 4, 2, 65, 2, 2, LAYOUT_SWAPPED,
     " cu state_index state state_out norm norm_out dstate_out dnorm_out dstate dnorm "},
    {1, 2, 2, 200, 1, 1, LAYOUT_MISALIGNED, " cu state_index "},
    {1, 2, 1, 260, 6, 6, LAYOUT_SPREAD, " state_index "},
};

/* And longer ones, whose sums along the tokens cancel. */
static const struct shape LONG[] = {
    {1, 1, 1, 1100, 1, 1, LAYOUT_COMPACT, " cu state_index state dstate "},
    {1, 2, 1, 1300, 3, 3, LAYOUT_SPREAD, " state_index "},
};

/* linear/backward/chunks_sm90.cuh: decays that it serves, with what goes beside them; head dims of one slice
   of channels and of two, whole ones and parts. */
static void add_chunked_back(struct case_list *list)
{
    static const char *const NAME[] = {"plain",    "by_head",   "learned_head",
                                       "by_token", "backwards", "with_resets"};
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 64}};
    int n = 0;
    for (int k = 0; k < COUNT(NAME); k++)
        for (int i = 0; i < COUNT(SPECS); i++) {
            if (strcmp(SPECS[i].name, NAME[k]) != 0)
                continue;
            for (int d = 0; d < 2; d++, n++) {
                const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
                struct test_case c =
                    case_of_attention("linear", SPECS[i].name, SPECS[i].text, LATHE_BF16, dim[0], dim[1], 90);
                c.group = "linear_chunks";
                c.pass = LATHE_BACKWARD;
                c.deterministic = true;
                c.template_name = "linear_additive_bwd_sm90";
                for (int s = 0; s < COUNT(CHUNKS); s++)
                    add(list, c, &CHUNKS[s]);
                for (int s = 0; s < COUNT(LONG) && k > 0 && d == k % 2; s++)
                    add(list, c, &LONG[s]);
            }
        }
}

/* linear/additive.cuh: every form that it serves; head dims of one group of 64 key channels to four, value
   channels of one warp to several blocks. */
static void add_additive(struct case_list *list)
{
    static const char *const NAME[] = {
        "by_key",         "mild_key",     "mixed_key",  "with_bonus",     "mild_bonus", "bonus_alone",
        "key_normalised", "normalised",   "all_tokens", "all_normalised", "plain",      "by_token",
        "token_bonus",    "learned_head", "backwards",  "with_resets",    "turned"};
    static const int DIMS[][2] = {{128, 72}, {64, 128}, {256, 40}, {40, 16}, {136, 256}, {16, 48}};
    int n = 0;
    for (int k = 0; k < COUNT(NAME); k++)
        for (int i = 0; i < COUNT(SPECS); i++) {
            if (strcmp(SPECS[i].name, NAME[k]) != 0)
                continue;
            for (int d = 0; d < 2; d++, n++) {
                const int *dim = DIMS[d == 0 ? 0 : (k + 1) % COUNT(DIMS)];
                struct test_case c =
                    case_of_attention("linear", SPECS[i].name, SPECS[i].text,
                                      (k + d) % 2 ? LATHE_BF16 : LATHE_F16, dim[0], dim[1], n % 3 ? 90 : 86);
                c.group = "linear_steps";
                c.template_name = "linear_additive";
                for (int s = 1; s < COUNT(CHUNKS); s++)
                    if ((s + n) % 3 == 0 || s == COUNT(CHUNKS) - 1)
                        add(list, c, &CHUNKS[s]);
                add(list, c, &SHAPES[n % COUNT(SHAPES)]);
            }
        }
}

/* The same where sequences are few and long: in pieces, of which the last one is shorter; packed ones of
   which one is empty and one is a piece; a pool of states. */
static const struct shape PIECES[] = {
    {1, 2, 1, 2330, 1, 1, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 2, 2400, 5, 5, LAYOUT_PADDED, " state_index "},
    {2, 1, 1, 2304, 2, 3, LAYOUT_COMPACT, " cu "},
};

/* Decays that leave something of a piece. */
static const struct inline_spec WEAK[] = {{SPEC(weak_key)}, {SPEC(weak_token)}};

/* Keys that resemble each other, which powers of a triangle would not stand. */
static const struct inline_spec ALIKE[] = {{SPEC(delta_alike)}, {SPEC(gated_alike)}, {SPEC(keyed_alike)}};

/* Gates that are no number. */
static const struct inline_spec LOST[] = {
    {SPEC(lost_token)}, {SPEC(lost_key)}, {SPEC(lost_value)}, {SPEC(lost_delta)}};

static const char *text_among(const struct inline_spec *spec, int n, const char *name)
{
    const char *text = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(spec[i].name, name) == 0)
            text = spec[i].text;
    return text;
}

static const char *text_of(const char *name)
{
    const char *text = text_among(SPECS, COUNT(SPECS), name);
    text = text ? text : text_among(WEAK, COUNT(WEAK), name);
    text = text ? text : text_among(ALIKE, COUNT(ALIKE), name);
    return text ? text : text_among(LOST, COUNT(LOST), name);
}

static void add_in_pieces(struct case_list *list, const struct inline_spec *spec, int k)
{
    struct test_case c = case_of_attention("linear", spec->name, spec->text, k % 2 ? LATHE_BF16 : LATHE_F16,
                                           k % 3 ? 72 : 64, 16, k % 2 ? 80 : 90);
    c.group = "linear_steps";
    c.template_name = "linear_additive";
    add(list, c, &PIECES[k % COUNT(PIECES)]);
    add(list, c, &PIECES[(k + 1) % COUNT(PIECES)]);
}

static void add_pieces(struct case_list *list)
{
    static const char *const NAME[] = {"plain",          "mild_key",   "mixed_key",      "with_bonus",
                                       "key_normalised", "all_tokens", "all_normalised", "backwards"};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int i = 0; i < COUNT(SPECS); i++)
            if (strcmp(SPECS[i].name, NAME[k]) == 0)
                add_in_pieces(list, &SPECS[i], k);
    for (int k = 0; k < COUNT(WEAK); k++)
        add_in_pieces(list, &WEAK[k], k);
}

/* A first state and the last one in one memory: a step, steps, chunks and pieces; a pool of states, of which
   some are nobody's and stay. */
static const struct shape OVER[] = {
    {3, 2, 1, 1, 3, 5, LAYOUT_PADDED, " cu "},
    {2, 4, 2, 70, 2, 2, LAYOUT_COMPACT, " cu state_index "},
    {1, 2, 2, 150, 5, 7, LAYOUT_SWAPPED, " "},
    {1, 2, 1, 2330, 1, 1, LAYOUT_COMPACT, " cu state_index "}, /* in pieces where the kernel has them */
};

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
        struct test_case c =
            case_of_attention("linear", ROW[k].name, text_of(ROW[k].name), dtype, k % 3 ? 64 : 40, 72, 80);
        c.group = "linear";
        c.template_name = ROW[k].template_name;
        c.in_place = true;
        for (int s = 0; s < ROW[k].shapes; s++)
            add(list, c, &OVER[s]);
    }
}

/* linear/backward/delta_walk.cuh and delta_sm90.cuh: with a decay and without, gates that leave nothing,
   betas of 0, from the last token to the first, an output mod that reads v; head dims of one slice of
   channels and of two. */
static const struct shape ONE_TOKEN = {1, 4, 4, 1, 1, 1, LAYOUT_COMPACT, " cu state_index "};

static void add_delta_back(struct case_list *list, const char *template_name, bool hopper)
{
    static const char *const NAME[] = {"delta_rule", "gated_delta", "delta_by_head", "delta_with_resets",
                                       "delta_backwards"};
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 64}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int i = 0; i < COUNT(SPECS); i++) {
            if (strcmp(SPECS[i].name, NAME[k]) != 0)
                continue;
            for (int d = 0; d < 2; d++) {
                const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
                struct test_case c = case_of_attention("linear", SPECS[i].name, SPECS[i].text, LATHE_BF16,
                                                       dim[0], dim[1], hopper || k % 2 ? 90 : 80);
                c.group = "linear_delta";
                c.pass = LATHE_BACKWARD;
                c.deterministic = true;
                c.template_name = template_name;
                add(list, c, &ONE_TOKEN);
                for (int s = 1; s < COUNT(CHUNKS); s++)
                    add(list, c, &CHUNKS[s]);
            }
        }
}

/* linear/keyed_delta.cuh: gates that are mild and steep ones, that leave nothing, keys that are alike; head
   dims of one group of 64 key channels to four, value channels of one warp to several blocks. */
static const struct inline_spec KEYED[] = {
    {SPEC(keyed_delta)}, {SPEC(keyed_resets)}, {SPEC(keyed_alike)}, {SPEC(keyed_backwards)}, {"kda", NULL}};

static const struct shape KEYED_SHAPES[] = {
    {1, 2, 1, 145, 1, 1, LAYOUT_PADDED, " cu state_index "},
    {1, 4, 2, 200, 6, 7, LAYOUT_COMPACT, " "},
};

/* Other decays, and none, where linear/delta_chunks.cuh serves neither dtype nor head dim. */
static void add_keyed_beside(struct case_list *list)
{
    static const char *const NAME[] = {"delta_rule", "gated_delta", "delta_by_head", "delta_backwards"};
    static const int DIMS[][2] = {{256, 40}, {128, 72}, {64, 128}, {136, 16}};
    for (int k = 0; k < COUNT(NAME); k++) {
        struct test_case c =
            case_of_attention("linear", NAME[k], text_of(NAME[k]), k % 3 ? LATHE_F16 : LATHE_BF16, DIMS[k][0],
                              DIMS[k][1], k % 2 ? 90 : 80);
        c.group = "linear_keys";
        c.template_name = "linear_keyed_delta";
        add(list, c, &CHUNKS[1 + k]);
        add(list, c, &CHUNKS[COUNT(CHUNKS) - 1]);
        add(list, c, &KEYED_SHAPES[k % COUNT(KEYED_SHAPES)]);
    }
}

static void add_keyed(struct case_list *list)
{
    static const int DIMS[][2] = {{128, 72}, {64, 128}, {256, 40}, {40, 16}, {136, 200}, {16, 48}};
    for (int k = 0, n = 0; k < COUNT(KEYED); k++)
        for (int d = 0; d < 2; d++, n++) {
            const int *dim = DIMS[d == 0 ? k % 2 : 1 + k];
            struct test_case c =
                case_of_attention("linear", KEYED[k].name, KEYED[k].text, n % 2 ? LATHE_F16 : LATHE_BF16,
                                  dim[0], dim[1], n % 3 ? 90 : 80);
            c.group = "linear_keys";
            c.template_name = "linear_keyed_delta";
            for (int s = 0; s < COUNT(CHUNKS); s++)
                if ((s + n) % 2 == 0 || s == COUNT(CHUNKS) - 1)
                    add(list, c, &CHUNKS[s]);
            add(list, c, &SHAPES[n % COUNT(SHAPES)]);
            add(list, c, &KEYED_SHAPES[n % COUNT(KEYED_SHAPES)]);
            c.in_place = true;
            add(list, c, &OVER[n % 3]);
        }
}

/* The same in pieces: gates that leave nothing of a state, some of it, and so much that there is one run;
   values under which too little is left out; a state that is given where the first one was. */
static void add_keyed_pieces(struct case_list *list)
{
    static const struct inline_spec PIECED[] = {
        {SPEC(keyed_pieces)}, {SPEC(keyed_falls)}, {SPEC(keyed_alike)}};
    static const int DIMS[][2] = {{64, 72}, {40, 16}, {136, 16}};
    for (int k = 0; k < COUNT(PIECED); k++) {
        struct test_case c =
            case_of_attention("linear", PIECED[k].name, PIECED[k].text, k == 2 ? LATHE_F16 : LATHE_BF16,
                              DIMS[k][0], DIMS[k][1], k % 2 ? 80 : 90);
        c.group = "linear_keys";
        c.template_name = "linear_keyed_delta";
        for (int s = 0; s < COUNT(PIECES); s++)
            if (k < 2 || s == 0)
                add(list, c, &PIECES[s]);
        c.in_place = true;
        add(list, c, &OVER[3]);
    }
}

/* linear/backward/additive.cuh: every form that it serves; head dims of one group of channels and of two,
   whole ones and parts. */
static void add_additive_back(struct case_list *list)
{
    static const char *const NAME[] = {"by_key",      "mild_key", "mixed_key",    "with_bonus", "mild_bonus",
                                       "bonus_alone", "plain",    "learned_head", "backwards",  "with_resets",
                                       "turned",      "by_token", "token_bonus"};
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 64}};
    for (int k = 0; k < COUNT(NAME); k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
            struct test_case c = case_of_attention("linear", NAME[k], text_of(NAME[k]), LATHE_BF16, dim[0],
                                                   dim[1], k % 2 ? 90 : 80);
            c.group = "linear_blocks";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = "linear_additive_bwd";
            for (int s = 0; s < COUNT(CHUNKS); s++)
                if (k < 3 || (s + k + d) % 2 == 0 || s == COUNT(CHUNKS) - 1)
                    add(list, c, &CHUNKS[s]);
        }
}

/* linear/backward/keyed_delta.cuh: gates as forward; head dims of one slice of channels and of two. */
static void add_keyed_back(struct case_list *list)
{
    static const int DIMS[][2] = {{128, 128}, {64, 72}, {40, 128}, {128, 64}};
    for (int k = 0; k < COUNT(KEYED); k++)
        for (int d = 0; d < 2; d++) {
            const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
            struct test_case c = case_of_attention("linear", KEYED[k].name, KEYED[k].text, LATHE_BF16, dim[0],
                                                   dim[1], d == 1 && k % 2 ? 80 : 90);
            c.group = "linear_keyed";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = "linear_keyed_delta_bwd";
            for (int s = 0; s < COUNT(CHUNKS); s++)
                if ((s + k + d) % 2 == 0 || s == COUNT(CHUNKS) - 1)
                    add(list, c, &CHUNKS[s]);
        }
}

/* linear/backward/keyed_delta.cuh of f16, whose states are scaled, and behind decays that linear_delta_bwd
   serves in bf16 alone; betas of 0 and gates of -1e4; where blocks share the key channels, which are more
   than 128 or have no room. */
static void add_keyed_back_beside(struct case_list *list)
{
    static const struct {
        const char *name;
        lathe_dtype dtype;
        int d, d_v, sm;
    } ROW[] = {
        {"kda", LATHE_F16, 128, 128, 90},
        {"keyed_delta", LATHE_F16, 64, 72, 90},
        {"keyed_resets", LATHE_F16, 40, 128, 90},
        {"keyed_alike", LATHE_F16, 128, 64, 90},
        {"keyed_backwards", LATHE_F16, 64, 16, 90},
        {"gated_delta", LATHE_F16, 128, 128, 90},
        {"delta_rule", LATHE_F16, 64, 72, 90},
        {"delta_by_head", LATHE_F16, 40, 128, 90},
        {"delta_with_resets", LATHE_F16, 128, 64, 90},
        {"delta_backwards", LATHE_F16, 16, 40, 90},
        {"kda", LATHE_BF16, 128, 128, 80},
        {"kda", LATHE_BF16, 256, 40, 90},
        {"keyed_delta", LATHE_F16, 136, 72, 80},
        {"gated_delta", LATHE_F16, 256, 256, 90},
        {"delta_by_head", LATHE_BF16, 256, 128, 90},
        {"keyed_alike", LATHE_BF16, 192, 136, 90},
        {"keyed_backwards", LATHE_BF16, 64, 200, 90},
        {"delta_rule", LATHE_BF16, 200, 16, 80},
        {"delta_with_resets", LATHE_F16, 128, 72, 80},
        {"keyed_resets", LATHE_F16, 256, 64, 80},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        const char *keyed = text_among(KEYED, COUNT(KEYED), ROW[k].name);
        struct test_case c = case_of_attention("linear", ROW[k].name, keyed ? keyed : text_of(ROW[k].name),
                                               ROW[k].dtype, ROW[k].d, ROW[k].d_v, ROW[k].sm);
        c.group = "linear_keyed";
        c.pass = LATHE_BACKWARD;
        c.deterministic = true;
        c.template_name = "linear_keyed_delta_bwd";
        add(list, c, &CHUNKS[1 + k % 4]);
        add(list, c, &CHUNKS[COUNT(CHUNKS) - 1]);
        add(list, c, &SHAPES[k % COUNT(SHAPES)]);
    }
}

/* linear/backward/additive.cuh of f16, whose states are scaled, of head dims beyond 128, whose key channels
   two blocks share, and with a normaliser. */
static void add_additive_back_beside(struct case_list *list)
{
    static const struct {
        const char *name;
        lathe_dtype dtype;
        int d, d_v;
    } ROW[] = {
        {"by_key", LATHE_F16, 128, 128},     {"mild_key", LATHE_F16, 64, 72},
        {"mixed_key", LATHE_F16, 40, 128},   {"with_bonus", LATHE_F16, 128, 64},
        {"mild_bonus", LATHE_F16, 64, 16},   {"plain", LATHE_F16, 128, 72},
        {"by_token", LATHE_F16, 64, 128},    {"backwards", LATHE_F16, 16, 40},
        {"turned", LATHE_F16, 64, 64},       {"weak_key", LATHE_F16, 64, 128},
        {"with_resets", LATHE_F16, 40, 40},  {"by_key", LATHE_BF16, 256, 40},
        {"mild_key", LATHE_BF16, 136, 256},  {"mixed_key", LATHE_BF16, 192, 136},
        {"with_bonus", LATHE_BF16, 256, 64}, {"turned", LATHE_BF16, 200, 72},
        {"backwards", LATHE_BF16, 64, 200},  {"by_token", LATHE_BF16, 256, 72},
        {"weak_key", LATHE_F16, 256, 256},   {"learned_head", LATHE_F16, 144, 48},
        {"normalised", LATHE_BF16, 64, 64},  {"key_normalised", LATHE_BF16, 128, 72},
        {"normalised", LATHE_BF16, 200, 40}, {"key_normalised", LATHE_BF16, 40, 128},
    };
    for (int k = 0; k < COUNT(ROW); k++) {
        struct test_case c = case_of_attention("linear", ROW[k].name, text_of(ROW[k].name), ROW[k].dtype,
                                               ROW[k].d, ROW[k].d_v, 90);
        c.group = "linear_blocks";
        c.pass = LATHE_BACKWARD;
        c.deterministic = true;
        c.template_name = "linear_additive_bwd";
        add(list, c, &CHUNKS[1 + k % 4]);
        add(list, c, &CHUNKS[COUNT(CHUNKS) - 1]);
        add(list, c, &SHAPES[k % COUNT(SHAPES)]);
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
        add(list, c, &CHUNKS[2]);
        add(list, c, &CHUNKS[4]);
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
                case_of_attention("linear", NAME[k], text_of(NAME[k]), LATHE_BF16, dim[0], dim[1], 90);
            c.group = "linear_delta";
            c.template_name = "linear_delta_sm90";
            for (int s = 1; s < COUNT(CHUNKS); s++)
                add(list, c, &CHUNKS[s]);
            add(list, c, &SHAPES[2]);
            c.in_place = true;
            add(list, c, &OVER[1 + d]);
            if (k == 1 || d == 1) { /* and in pieces */
                add(list, c, &OVER[3]);
                c.in_place = false;
                add(list, c, &PIECES[k % COUNT(PIECES)]);
            }
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
            struct test_case c = case_of_attention("linear", NAME[n], text_of(NAME[n]), ROW[k].dtype,
                                                   ROW[k].d, ROW[k].d_v, ROW[k].sm);
            c.group = ROW[k].group;
            c.pass = ROW[k].pass;
            c.deterministic = c.pass == LATHE_BACKWARD;
            c.template_name = ROW[k].template_name;
            c.exact = c.pass == LATHE_FORWARD && n < 2 ? 2.5 : 0.0;
            add(list, c, &CHUNKS[(k + n) % 5]);
            add(list, c, &KEYED_SHAPES[0]);
            add(list, c, &CHUNKS[COUNT(CHUNKS) - 1]);
        }
}

/* And with two warpgroups of 64 columns a block, which the plan takes for so many heads, and for such pieces.
 */
static void add_delta_groups(struct case_list *list)
{
    static const struct shape SHAPE[] = {
        {17, 4, 2, 70, 17, 17, LAYOUT_COMPACT, " cu state_index "},
        {1, 8, 4, 2310, 1, 1, LAYOUT_PADDED, " cu state_index "},
    };
    for (int i = 0; i < COUNT(SHAPE); i++) {
        struct test_case c = case_of_attention("linear", "gated_delta", text_of("gated_delta"), LATHE_BF16,
                                               i ? 128 : 64, i ? 128 : 72, 90);
        c.group = "linear_delta";
        c.template_name = "linear_delta_sm90";
        add(list, c, &SHAPE[i]);
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
            add(list, c, &SHAPES[0]);
            add(list, c, &CHUNKS[0]);
            add(list, c, &CHUNKS[4]);
            add(list, c, &CHUNKS[5]);
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
        struct test_case c =
            case_of_attention("linear", ROW[k].name, text_of(ROW[k].name), ROW[k].dtype, 64, 64, ROW[k].sm);
        c.group = ROW[k].group;
        c.pass = ROW[k].pass;
        c.deterministic = c.pass == LATHE_BACKWARD;
        c.template_name = ROW[k].template_name;
        c.unwanted = c.pass == LATHE_BACKWARD ? DK_AND_DV : 0;
        add(list, c, &CHUNKS[1]);
        add(list, c, &SHAPES[2]);
    }
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
        add(list, c, &SHAPES[k % 2]);
        add(list, c, &SHAPES[2]);
        add(list, c, &SHAPES[3]);
    }
}

void group_linear(struct case_list *list, bool full)
{
    add_updates(list);
    add_over(list);
    add_additive(list);
    add_pieces(list);
    add_chunked(list);
    add_chunked_back(list);
    add_delta_back(list, "linear_delta_bwd", false);
    add_keyed(list);
    add_keyed_pieces(list);
    add_keyed_beside(list);
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
                add_spec(list, &SPECS[i], pass ? LATHE_BACKWARD : LATHE_FORWARD,
                         DTYPE[k == 0 ? 0 : 1 + (i + k) % 2], DIMS[(k + i) % COUNT(DIMS)][0],
                         DIMS[(k + i) % COUNT(DIMS)][1], k % 2 ? 90 : 80);
            }
    add_additive_back(list);
    add_keyed_back(list);
    add_additive_back_beside(list);
    add_strong_back(list);
    add_delta_sm90(list);
    add_delta_mods(list);
    add_delta_groups(list);
    add_delta_stress(list);
    add_lost(list);
    add_delta_back(list, "linear_delta_bwd_sm90", true);
    add_keyed_back_beside(list);
}
