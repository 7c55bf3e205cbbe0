/*
 * cases_additive.c: the matrix of linear attention without the delta rule in chunks: linear/additive.cuh,
 * linear/backward/additive.cuh and linear/backward/chunks_sm90.cuh.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases_linear.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

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
        for (int d = 0; d < 2; d++, n++) {
            const int *dim = DIMS[d == 0 ? 0 : (k + 1) % COUNT(DIMS)];
            struct test_case c =
                case_of_attention("linear", NAME[k], linear_text(NAME[k]),
                                  (k + d) % 2 ? LATHE_BF16 : LATHE_F16, dim[0], dim[1], n % 3 ? 90 : 86);
            c.group = "linear_steps";
            c.template_name = "linear_additive";
            for (int s = 1; s < COUNT(LINEAR_CHUNKS); s++)
                if ((s + n) % 3 == 0 || s == COUNT(LINEAR_CHUNKS) - 1)
                    add_linear(list, c, &LINEAR_CHUNKS[s]);
            add_linear(list, c, &LINEAR_SHAPES[n % COUNT(LINEAR_SHAPES)]);
        }
}

/* In pieces, too. */
static void add_in_pieces(struct case_list *list, const char *spec, int k)
{
    struct test_case c = case_of_attention("linear", spec, linear_text(spec), k % 2 ? LATHE_BF16 : LATHE_F16,
                                           k % 3 ? 72 : 64, 16, k % 2 ? 80 : 90);
    c.group = "linear_steps";
    c.template_name = "linear_additive";
    add_linear(list, c, &LINEAR_PIECES[k % COUNT(LINEAR_PIECES)]);
    add_linear(list, c, &LINEAR_PIECES[(k + 1) % COUNT(LINEAR_PIECES)]);
}

static void add_pieces(struct case_list *list)
{
    static const char *const NAME[] = {"plain",          "mild_key",   "mixed_key",      "with_bonus",
                                       "key_normalised", "all_tokens", "all_normalised", "backwards"};
    static const char *const WEAK[] = {"weak_key", "weak_token"}; /* something of a piece is left */
    for (int k = 0; k < COUNT(NAME); k++)
        add_in_pieces(list, NAME[k], k);
    for (int k = 0; k < COUNT(WEAK); k++)
        add_in_pieces(list, WEAK[k], k);
}

/* Longer ones than LINEAR_CHUNKS, whose sums along the tokens cancel. */
static const struct linear_shape LONG[] = {
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
        for (int d = 0; d < 2; d++, n++) {
            const int *dim = DIMS[d == 0 ? 0 : 1 + k % 3];
            struct test_case c =
                case_of_attention("linear", NAME[k], linear_text(NAME[k]), LATHE_BF16, dim[0], dim[1], 90);
            c.group = "linear_chunks";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = "linear_additive_bwd_sm90";
            for (int s = 0; s < COUNT(LINEAR_CHUNKS); s++)
                add_linear(list, c, &LINEAR_CHUNKS[s]);
            for (int s = 0; s < COUNT(LONG) && k > 0 && d == k % 2; s++)
                add_linear(list, c, &LONG[s]);
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
            struct test_case c = case_of_attention("linear", NAME[k], linear_text(NAME[k]), LATHE_BF16,
                                                   dim[0], dim[1], k % 2 ? 90 : 80);
            c.group = "linear_blocks";
            c.pass = LATHE_BACKWARD;
            c.deterministic = true;
            c.template_name = "linear_additive_bwd";
            for (int s = 0; s < COUNT(LINEAR_CHUNKS); s++)
                if (k < 3 || (s + k + d) % 2 == 0 || s == COUNT(LINEAR_CHUNKS) - 1)
                    add_linear(list, c, &LINEAR_CHUNKS[s]);
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
        struct test_case c = case_of_attention("linear", ROW[k].name, linear_text(ROW[k].name), ROW[k].dtype,
                                               ROW[k].d, ROW[k].d_v, 90);
        c.group = "linear_blocks";
        c.pass = LATHE_BACKWARD;
        c.deterministic = true;
        c.template_name = "linear_additive_bwd";
        add_linear(list, c, &LINEAR_CHUNKS[1 + k % 4]);
        add_linear(list, c, &LINEAR_CHUNKS[COUNT(LINEAR_CHUNKS) - 1]);
        add_linear(list, c, &LINEAR_SHAPES[k % COUNT(LINEAR_SHAPES)]);
    }
}

void linear_additive_cases(struct case_list *list)
{
    add_additive(list);
    add_pieces(list);
    add_chunked_back(list);
    add_additive_back(list);
    add_additive_back_beside(list);
}
