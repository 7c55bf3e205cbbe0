/*
 * cases_keyed.c: the matrix of linear attention with the delta rule in chunks, whose decays are of key
 * channels, and of what else these kernels serve: linear/keyed_delta.cuh, linear/backward/keyed_delta.cuh.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases_linear.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define SPEC(name)  #name, SPEC_##name /* tests/emulate/specs/NAME.lua */

/* linear/keyed_delta.cuh: gates that are mild and steep ones, that leave nothing, keys that are alike; head
   dims of one group of 64 key channels to four, value channels of one warp to several blocks. */
static const struct inline_spec KEYED[] = {
    {SPEC(keyed_delta)}, {SPEC(keyed_resets)}, {SPEC(keyed_alike)}, {SPEC(keyed_backwards)}, {"kda", NULL}};

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
            for (int s = 0; s < COUNT(LINEAR_CHUNKS); s++)
                if ((s + n) % 2 == 0 || s == COUNT(LINEAR_CHUNKS) - 1)
                    add_linear(list, c, &LINEAR_CHUNKS[s]);
            add_linear(list, c, &LINEAR_SHAPES[n % COUNT(LINEAR_SHAPES)]);
            add_linear(list, c, &LINEAR_STEPS[n % COUNT(LINEAR_STEPS)]);
            c.in_place = true;
            add_linear(list, c, &LINEAR_OVER[n % 3]);
        }
}

/* The same in pieces: gates that leave nothing of a state, some of it, and so much that there is one run;
   values under which too little is left out; a state that is given where the first one was. */
static void add_keyed_pieces(struct case_list *list)
{
    static const struct inline_spec PIECED[] = {
        {SPEC(keyed_pieces)}, {SPEC(keyed_falls)}, {SPEC(keyed_alike)}, {SPEC(keyed_grows)}};
    static const int DIMS[][2] = {{64, 72}, {40, 16}, {136, 16}, {64, 16}};
    for (int k = 0; k < COUNT(PIECED); k++) {
        struct test_case c =
            case_of_attention("linear", PIECED[k].name, PIECED[k].text, k == 2 ? LATHE_F16 : LATHE_BF16,
                              DIMS[k][0], DIMS[k][1], k % 2 ? 80 : 90);
        c.group = "linear_keys";
        c.template_name = "linear_keyed_delta";
        for (int s = 0; s < COUNT(LINEAR_PIECES); s++)
            if (k < 2 || s == 0)
                add_linear(list, c, &LINEAR_PIECES[s]);
        c.in_place = true;
        add_linear(list, c, &LINEAR_OVER[3]);
    }
}

/* A run of the last piece that is not right, so that the last state is that of its second walk. */
static void add_keyed_last(struct case_list *list)
{
    static const struct linear_shape SHORT = {1, 2, 1, 2312, 1, 1, LAYOUT_COMPACT, " cu state_index "};
    struct test_case c =
        case_of_attention("linear", "keyed_falls_last", SPEC_keyed_falls_last, LATHE_BF16, 40, 16, 80);
    c.group = "linear_keys";
    c.template_name = "linear_keyed_delta";
    add_linear(list, c, &SHORT);
}

/* Other decays, and none, where linear/delta_chunks.cuh serves neither dtype nor head dim. */
static void add_keyed_beside(struct case_list *list)
{
    static const char *const NAME[] = {"delta_rule", "gated_delta", "delta_by_head", "delta_backwards"};
    static const int DIMS[][2] = {{256, 40}, {128, 72}, {64, 128}, {136, 16}};
    for (int k = 0; k < COUNT(NAME); k++) {
        struct test_case c =
            case_of_attention("linear", NAME[k], linear_text(NAME[k]), k % 3 ? LATHE_F16 : LATHE_BF16,
                              DIMS[k][0], DIMS[k][1], k % 2 ? 90 : 80);
        c.group = "linear_keys";
        c.template_name = "linear_keyed_delta";
        add_linear(list, c, &LINEAR_CHUNKS[1 + k]);
        add_linear(list, c, &LINEAR_CHUNKS[COUNT(LINEAR_CHUNKS) - 1]);
        add_linear(list, c, &LINEAR_STEPS[k % COUNT(LINEAR_STEPS)]);
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
            for (int s = 0; s < COUNT(LINEAR_CHUNKS); s++)
                if ((s + k + d) % 2 == 0 || s == COUNT(LINEAR_CHUNKS) - 1)
                    add_linear(list, c, &LINEAR_CHUNKS[s]);
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
        const char *keyed = linear_text_among(KEYED, COUNT(KEYED), ROW[k].name);
        struct test_case c =
            case_of_attention("linear", ROW[k].name, keyed ? keyed : linear_text(ROW[k].name), ROW[k].dtype,
                              ROW[k].d, ROW[k].d_v, ROW[k].sm);
        c.group = "linear_keyed";
        c.pass = LATHE_BACKWARD;
        c.deterministic = true;
        c.template_name = "linear_keyed_delta_bwd";
        add_linear(list, c, &LINEAR_CHUNKS[1 + k % 4]);
        add_linear(list, c, &LINEAR_CHUNKS[COUNT(LINEAR_CHUNKS) - 1]);
        add_linear(list, c, &LINEAR_SHAPES[k % COUNT(LINEAR_SHAPES)]);
    }
}

/* q, k and v without mods, which would copy them: each has strides of its own; in f16 columns
   of a state that differ by far. */
static void add_keyed_bare(struct case_list *list)
{
    static const struct linear_shape APART[] = {
        {2, 4, 2, 70, 2, 2, LAYOUT_PADDED, " cu state_index "},
        {1, 4, 2, 200, 6, 7, LAYOUT_PADDED, " "},
    };
    for (int k = 0; k < 4; k++) {
        const bool back = k >= 2;
        struct test_case c = case_of_attention("linear", "keyed_bare", SPEC_keyed_bare,
                                               k % 2 ? LATHE_F16 : LATHE_BF16, 64, 40, k % 2 ? 80 : 90);
        c.group = back ? "linear_keyed" : "linear_keys";
        c.pass = back ? LATHE_BACKWARD : LATHE_FORWARD;
        c.deterministic = back;
        c.template_name = back ? "linear_keyed_delta_bwd" : "linear_keyed_delta";
        for (int s = 0; s < COUNT(APART); s++)
            add_linear(list, c, &APART[s]);
        if (k % 2 == 0)
            continue;
        c.spec = "keyed_columns";
        c.text = SPEC_keyed_columns;
        add_linear(list, c, &LINEAR_CHUNKS[4]);
    }
}

void linear_keyed_cases(struct case_list *list)
{
    add_keyed(list);
    add_keyed_pieces(list);
    add_keyed_last(list);
    add_keyed_beside(list);
    add_keyed_back(list);
    add_keyed_back_beside(list);
    add_keyed_bare(list);
}
