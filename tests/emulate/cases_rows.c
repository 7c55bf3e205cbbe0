/*
 * cases_rows.c: the matrix of row-wise specs, both passes: lengths beside the edges of vectors, blocks and
 * shared memory, gradients in every form, scans, rows along an inner dim, every operation of the language.
 *
 * In: the default or the full run. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Specs of several rows, or of results alone. */
static const char *const MANY[] = {"rms_norm_residual", "layer_norm_residual", "gate_rms_norm",
                                   "rms_norm_gate",     "srms_norm",           "l2_norm",
                                   "logsumexp",         "cross_entropy",       "softmax_inner",
                                   "log_softmax_inner", "mean_pool",           "cumsum",
                                   "revcumsum",         "chunk_cumsum",        "cumsum_packed",
                                   "logcumsumexp",      "revlogcumsumexp",     "group_norm",
                                   "group_rms_norm",    "logcumsumexp_packed"};

static void add_rowwise(struct case_list *list, const char *spec, lathe_dtype dtype, int64_t n, bool full)
{
    static const struct {
        int leading;
        int rows0, rows1, rows;
        enum layout layout;
        bool absent;
    } ROWS[] = {{1, 1, 1, 7, LAYOUT_COMPACT, false},    {2, 1, 3, 5, LAYOUT_PADDED, false},
                {3, 2, 2, 3, LAYOUT_MISALIGNED, false}, {3, 2, 3, 1, LAYOUT_SWAPPED, true},
                {1, 1, 1, 67, LAYOUT_MISALIGNED, true}, {1, 1, 1, 0, LAYOUT_COMPACT, false}};
    for (int i = 0; i < COUNT(ROWS); i++) {
        struct test_case c = case_of_attention("rowwise", spec, NULL, dtype, -1, -1, 80);
        if (!full && n > 4096 && i != 0 && i != 2)
            continue;
        c.dim[SYM_ROWS0] = ROWS[i].rows0;
        c.dim[SYM_ROWS1] = ROWS[i].rows1;
        c.dim[SYM_ROWS] = n > 4096 ? (ROWS[i].rows + 1) / 2 : ROWS[i].rows;
        c.dim[SYM_N] = n;
        c.leading = ROWS[i].leading;
        c.layout = ROWS[i].layout;
        c.absent = ROWS[i].absent;
        c.may_refuse = c.absent; /* nothing may be left to compute */
        case_add(list, &c);
    }
}

static void group_rowwise(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"softmax", "log_softmax", "rms_norm", "layer_norm"};
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_F16, LATHE_BF16};
    static const int N[] = {1, 31, 33, 255, 257, 1025, 8192, 65537, 16, 128, 512, 384};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int t = 0; t < COUNT(DTYPE); t++)
            for (int k = 0; k < COUNT(N); k++)
                if (full || (i + t + k) % 4 == 0 || N[k] == 512)
                    add_rowwise(list, SPEC[i], DTYPE[t], N[k], full);
    for (int i = 0; i < COUNT(MANY); i++)
        for (int t = 0; t < COUNT(DTYPE); t++)
            for (int k = 0; k < COUNT(N); k++)
                if (full || (i + 2 * t + k) % 9 == 0)
                    add_rowwise(list, MANY[i], DTYPE[t], N[k], full);
}

/* ---- rowwise, backward -----------------------------------------------------------------------------------
 */

/* Every form of a gradient: of scalars, of columns of a table, of a row's own value, of an element that all
 * rows read. */
static const struct inline_spec GRADIENT_SPECS[] = {
    {"noise", SPEC_noise /* dropout of a row, and numbers that a hash of its place chooses */},
    {"peaks",
     SPEC_peaks /* given extrema of values that are computed: not those that a kernel would compare with */},
    {"sums", SPEC_sums}, {"constant", SPEC_constant /* and gradients that are zero, in every shape */},
    {"scatter", SPEC_scatter /* by data, by row, by column; two reads of one input */},
    {"own_sizes", SPEC_rows_own_sizes /* of a dim that an input names for itself */},
    {"inner_gates",
     SPEC_inner_gates /* h_i = gate_i h_(i-1) + x_i, by scans of a scan; the gates are rows along an inner dim,
                       too */}
,
}
;

static void add_backward(struct case_list *list, const char *spec, const char *text, lathe_dtype dtype,
                         int64_t n, bool full)
{
    static const struct {
        int leading;
        int rows0, rows1, rows;
        enum layout layout;
        bool absent;
        unsigned unwanted;
    } ROWS[] = {{1, 1, 1, 7, LAYOUT_COMPACT, false, 0},    {2, 1, 3, 5, LAYOUT_PADDED, true, 0},
                {3, 2, 2, 3, LAYOUT_MISALIGNED, false, 0}, {1, 1, 1, 301, LAYOUT_COMPACT, false, 0},
                {1, 1, 1, 67, LAYOUT_COMPACT, true, 1},    {1, 1, 1, 20, LAYOUT_PADDED, false, 2},
                {1, 1, 1, 0, LAYOUT_COMPACT, false, 0}};
    for (int i = 0; i < COUNT(ROWS); i++) {
        struct test_case c = case_of_attention("backward", spec, text, dtype, -1, -1, i % 2 ? 80 : 90);
        if ((!full && n > 4096 && i != 0 && i != 2) || (text && ROWS[i].leading > 1))
            continue;
        c.pass = LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = ROWS[i].rows0;
        c.dim[SYM_ROWS1] = ROWS[i].rows1;
        c.dim[SYM_ROWS] = n > 4096                       ? (ROWS[i].rows + 1) / 2
                          : n > 512 && ROWS[i].rows > 40 ? 40
                                                         : ROWS[i].rows;
        c.dim[SYM_N] = n;
        c.leading = ROWS[i].leading;
        c.layout = ROWS[i].layout;
        c.absent = ROWS[i].absent;
        c.unwanted = ROWS[i].unwanted;
        c.blocks = i == 3 ? 5 : i == 4 ? 64 : 0;
        c.may_refuse =
            ROWS[i].unwanted > 0 || ROWS[i].absent; /* no gradient may be left to want, no seed be there */
        case_add(list, &c);
    }
}

static void group_rows_backward(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"softmax", "log_softmax", "rms_norm", "layer_norm"};
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_F16, LATHE_BF16};
    static const int N[] = {1, 31, 33, 255, 257, 1025, 8192, 65537, 16, 128, 512, 1024, 2048, 384, 448};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int t = 0; t < COUNT(DTYPE); t++)
            for (int k = 0; k < COUNT(N); k++)
                if (full || (i + t + k) % 5 == 0 || (N[k] == 512 && t == 2))
                    add_backward(list, SPEC[i], NULL, DTYPE[t], N[k], full);
    for (int i = 0; i < COUNT(MANY); i++)
        for (int t = 0; t < COUNT(DTYPE); t++)
            for (int k = 0; k < COUNT(N); k++)
                if (full || (i + 2 * t + k) % 9 == 0)
                    add_backward(list, MANY[i], NULL, DTYPE[t], N[k], full);
    for (int i = 0; i < COUNT(GRADIENT_SPECS); i++)
        for (int k = 0; k < COUNT(N); k++)
            if (full ? N[k] != 65537 : k % 4 == i)
                add_backward(list, GRADIENT_SPECS[i].name, GRADIENT_SPECS[i].text, DTYPE[k % 3], N[k], full);
}

/* Of several lines, which share a last dim that is no multiple of a vector; columns of a line alone, so that
   4 are added up at once, and beside what is added up otherwise. */
static const struct inline_spec PART_SPECS[] = {
    {"lines", SPEC_lines},
    {"mixed", SPEC_mixed},
};

/* What blocks leave of column sums: parts that one thread adds up, as many as a round has and one more, those
   that threads share, more than are there; columns that fill no block and several, n odd and no multiple of
   4. As planned: rows than blocks, more and fewer. */
static void group_parts(struct case_list *list)
{
    static const struct {
        const char *spec;
        int n, rows, blocks;
        lathe_dtype dtype;
    } CASE[] = {{"layer_norm", 1032, 9, 1, LATHE_BF16},   {"layer_norm", 1032, 40, 8, LATHE_F16},
                {"layer_norm", 1040, 40, 9, LATHE_BF16},  {"rms_norm", 2056, 40, 17, LATHE_BF16},
                {"layer_norm", 520, 600, 18, LATHE_F32},  {"rms_norm", 1028, 70, 35, LATHE_F32},
                {"layer_norm", 136, 1300, 0, LATHE_BF16}, {"layer_norm", 1032, 600, 530, LATHE_BF16},
                {"layer_norm", 1032, 50, 0, LATHE_BF16},  {"rms_norm", 1024, 1200, 0, LATHE_BF16},
                {"layer_norm", 1001, 40, 17, LATHE_BF16}, {"rms_norm", 333, 200, 140, LATHE_F32},
                {"layer_norm", 65, 400, 0, LATHE_F16},    {"layer_norm", 259, 600, 136, LATHE_BF16},
                {"lines", 1032, 40, 9, LATHE_BF16},       {"lines", 520, 80, 40, LATHE_F32},
                {"lines", 33, 300, 0, LATHE_BF16},        {"mixed", 1032, 40, 9, LATHE_BF16},
                {"mixed", 264, 300, 150, LATHE_F32},      {"mixed", 77, 60, 17, LATHE_F16}};
    for (int i = 0; i < 2 * COUNT(CASE); i++) {
        const char *text = NULL;
        for (int k = 0; k < COUNT(PART_SPECS); k++)
            if (strcmp(PART_SPECS[k].name, CASE[i / 2].spec) == 0)
                text = PART_SPECS[k].text;
        struct test_case c =
            case_of_attention("parts", CASE[i / 2].spec, text, CASE[i / 2].dtype, -1, -1, i % 2 ? 80 : 90);
        c.pass = LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = CASE[i / 2].rows;
        c.dim[SYM_N] = CASE[i / 2].n;
        c.leading = 1;
        c.layout = i % 2 ? LAYOUT_PADDED : LAYOUT_COMPACT;
        c.blocks = CASE[i / 2].blocks;
        c.deterministic = i % 4 > 1;
        case_add(list, &c);
    }
}

/* Gradients that are added up by atomics, without rounding. */
static void group_deterministic_rows(struct case_list *list)
{
    static const int N[] = {33, 128, 1025, 3000};
    for (int k = 0; k < 2 * COUNT(N); k++) {
        const bool own = k % 2;
        struct test_case c =
            case_of_attention("backward", own ? "scatter" : "group_norm", own ? GRADIENT_SPECS[2].text : NULL,
                              k % 3 ? LATHE_BF16 : LATHE_F32, -1, -1, k % 4 < 2 ? 90 : 80);
        c.pass = LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 61;
        c.dim[SYM_N] = N[k / 2];
        c.leading = 1;
        c.blocks = k % 4 == 3 ? 7 : 0;
        c.deterministic = true;
        case_add(list, &c);
    }
}

/* Rows that have places: keys that change with every row and with the outer dims alone, groups of columns
   that are whole vectors and others, a place for a whole row; blocks that have many rows of a place, and few.
 */
static void group_places(struct case_list *list)
{
    static const char text[] =
        "return rowwise { inputs = { weight = tensor('float', 3, 'width', { grad = true }), "
        "bias = tensor('f32', 3, 7, { grad = true }), part = tensor('f32', 4, { grad = true }) },\n"
        "  forward = function(x, at, p)\n"
        "    local g = at.row % 3\n"
        "    local r = rsqrt(rowsum(x * x) / at.n + 0.1)\n"
        "    return x * r * p.weight(g, at.i // 210) + p.bias(g, at.i // 1200) + p.part(at.row % 4)\n"
        "  end }\n";
    static const struct {
        int leading, rows1, rows, n, blocks;
    } ROWS[] = {{2, 9, 3, 1040, 3},
                {2, 2, 12, 3000, 2},
                {1, 1, 13, 8192, 4},
                {2, 7, 3, 4096, 0},
                {2, 40, 3, 2056, 10}};
    for (int i = 0; i < 3 * COUNT(ROWS); i++) {
        const int row = i / 3;
        const bool own = i % 3 > 0;
        struct test_case c =
            case_of_attention("places", own ? "places" : "group_norm", own ? text : NULL,
                              i % 4 == 3 ? LATHE_F32 : LATHE_BF16, -1, -1, i % 4 == 1 ? 80 : 90);
        c.pass = i % 3 == 2 ? LATHE_FORWARD : LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = ROWS[row].rows1;
        c.dim[SYM_ROWS] = ROWS[row].rows;
        c.dim[SYM_N] = ROWS[row].n;
        c.leading = ROWS[row].leading;
        c.blocks = ROWS[row].blocks;
        c.deterministic = c.pass == LATHE_BACKWARD && row % 2;
        case_add(list, &c);
    }
}

/* Columns divided by what is the same everywhere: by more and by less than a vector has, by one, by negative
   numbers. */
static void group_column_divisions(struct case_list *list)
{
    static const char text[] =
        "return rowwise { forward = function(x, at)\n"
        "  local up = at.i // 1 + 3 * (at.i // 2) + 5 * (at.i % 3) + 7 * (at.i // 7) + 11 * (at.i % 8)\n"
        "  local down = 17 * (at.i // -1) + 19 * (at.i % -2) + 23 * (at.i // -5) + 29 * (at.i % -9)\n"
        "  return x * 0.125 + up + 13 * (at.i // 9) + down + 31 * (at.i // -300)\n"
        "end }\n";
    static const int N[] = {40, 64, 1000, 1025, 8192};
    for (int i = 0; i < 2 * COUNT(N); i++) {
        struct test_case c =
            case_of_attention("divided", "divided", text, i % 2 ? LATHE_BF16 : LATHE_F32, -1, -1, 90);
        c.pass = LATHE_FORWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 5;
        c.dim[SYM_N] = N[i / 2];
        c.leading = 1;
        case_add(list, &c);
    }
}

/* Two rows are made of two tensors, which the first pass reduces each by itself, in either order. */
#define BOTH_REDUCED(body)                                                                                   \
    "return rowwise { inputs = { r = tensor('float', 'rows', 'n', { grad = true }) },\n"                     \
    "  forward = function(v, at, x) local r = x.r(at.row, at.i) " body " end }\n"
static const char BOTH[] =
    BOTH_REDUCED("return v * rowmax(abs(v)) + r * rsqrt(rowsum(r * r) + 1.0), { both = v + r }");
static const char BOTH_TURNED[] = BOTH_REDUCED(
    "local size = rowmax(abs(r)) return v * rsqrt(rowsum(v * v) + 1.0) + r * size, { both = v + r }");

/* Rows that every pass reads again: full ones and others, one tensor and two, values of columns and of
   places, few rows and more than blocks; and layouts that those kernels refuse. */
static void group_again(struct case_list *list)
{
    static const struct {
        const char *spec;
        lathe_pass pass;
        int n;
        lathe_dtype dtype;
        const char *text;
    } CASE[] = {{"rms_norm", LATHE_FORWARD, 8192, LATHE_BF16, NULL},
                {"rms_norm", LATHE_FORWARD, 4104, LATHE_F16, NULL},
                {"l2_norm", LATHE_FORWARD, 4096, LATHE_BF16, NULL},
                {"srms_norm", LATHE_FORWARD, 3076, LATHE_F32, NULL},
                {"srms_norm", LATHE_BACKWARD, 8192, LATHE_BF16, NULL},
                {"l2_norm", LATHE_BACKWARD, 5000, LATHE_F16, NULL},
                {"l2_norm", LATHE_BACKWARD, 2052, LATHE_F32, NULL},
                {"rms_norm_residual", LATHE_FORWARD, 8192, LATHE_BF16, NULL},
                {"rms_norm_gate", LATHE_FORWARD, 8192, LATHE_BF16, NULL},
                {"rms_norm_residual", LATHE_FORWARD, 6008, LATHE_F16, NULL},
                {"group_rms_norm", LATHE_FORWARD, 8192, LATHE_BF16, NULL},
                {"log_softmax", LATHE_BACKWARD, 8192, LATHE_BF16, NULL},
                {"both_reduced", LATHE_FORWARD, 8192, LATHE_BF16, BOTH},
                {"both_reduced_turned", LATHE_FORWARD, 4096, LATHE_F16, BOTH_TURNED}};
    static const enum layout LAYOUT[] = {LAYOUT_COMPACT, LAYOUT_PADDED, LAYOUT_MISALIGNED};
    for (int i = 0; i < 2 * COUNT(CASE); i++) {
        struct test_case c = case_of_attention("again", CASE[i / 2].spec, CASE[i / 2].text, CASE[i / 2].dtype,
                                               -1, -1, i % 3 ? 90 : 80);
        c.pass = CASE[i / 2].pass;
        c.layout = i % 2 ? LAYOUT[i / 2 % COUNT(LAYOUT)] : LAYOUT_COMPACT;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = i % 2 ? 2 : 1;
        c.dim[SYM_ROWS] = i % 4 == 3 ? 1 : 5;
        c.dim[SYM_N] = CASE[i / 2].n;
        c.leading = i % 2 ? 2 : 1;
        case_add(list, &c);
    }
}

/* Sums of columns beside rows that nothing reduces: of one tensor's columns, two and three, where rows with a
   reduction are written late. */
static void group_unreduced(struct case_list *list)
{
    static const char SCALE[] = "return rowwise { inputs = { w = tensor('float', 'n', { grad = true }) },\n"
                                "  forward = function(v, at, x) return v * x.w(at.i) end }\n";
    static const char AFFINE[] = "return rowwise { inputs = { w = tensor('float', 'n', { grad = true }), b = "
                                 "tensor('float', 'n', { grad = "
                                 "true }) },\n"
                                 "  forward = function(v, at, x) return v * x.w(at.i) + x.b(at.i) end }\n";
    static const struct {
        const char *spec, *text;
        int n;
        lathe_dtype dtype;
    } CASE[] = {{"scale", SCALE, 81920, LATHE_F32},    {"affine", AFFINE, 4096, LATHE_F32},
                {"affine", AFFINE, 5120, LATHE_BF16},  {"affine", AFFINE, 8192, LATHE_F16},
                {"affine", AFFINE, 20480, LATHE_BF16}, {"affine", AFFINE, 65536, LATHE_F32},
                {"affine", AFFINE, 131072, LATHE_F16}};
    for (int i = 0; i < COUNT(CASE); i++) {
        struct test_case c =
            case_of_attention("unreduced", CASE[i].spec, CASE[i].text, CASE[i].dtype, -1, -1, 90);
        c.pass = LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 5;
        c.dim[SYM_N] = CASE[i].n;
        c.leading = 1;
        c.layout = i % 3 == 1 ? LAYOUT_PADDED : LAYOUT_COMPACT;
        case_add(list, &c);
    }
}

/* What is read under a condition of the launch is the mean alone; its variance is made of the same sum. */
static const char CENTRED[] =
    "return rowwise { inputs = { r = tensor('float', 'rows', 'n'), centre = scalar('i32', { default = 0 }) "
    "},\n"
    "  forward = function(v, at, x)\n"
    "    local s = v + x.r(at.row, at.i) + 2.0\n"
    "    local mean = rowsum(s) / at.n\n"
    "    local rstd = rsqrt(rowsum((s - mean) * (s - mean)) / at.n + 1e-6)\n"
    "    return (s - where(ne(x.centre, 0), mean, 0.0)) * rstd, { s = s }\n  end }\n";

/* Variances in the pass of their mean: of a thread's vectors, of lanes, of warps, few and many, their number
   a power of two or not, of the blocks of a cluster; of one tensor and two, also of rows that passes read
   again. */
static void group_spreads(struct case_list *list)
{
    static const struct {
        const char *spec;
        int n, rows;
        lathe_dtype dtype;
    } CASE[] = {
        {"centred", 4096, 5, LATHE_BF16},
        {"centred", 40960, 3, LATHE_BF16},
        {"layer_norm", 128, 19, LATHE_BF16},
        {"layer_norm", 256, 9, LATHE_F16},
        {"layer_norm", 512, 9, LATHE_BF16},
        {"layer_norm", 12288, 3, LATHE_F16},
        {"layer_norm", 20480, 3, LATHE_BF16},
        {"layer_norm", 40960, 3, LATHE_BF16},
        {"layer_norm_residual", 256, 9, LATHE_F16},
        {"layer_norm_residual", 24576, 3, LATHE_BF16},
        {"layer_norm_residual", 65536, 2, LATHE_F16},
        {"group_norm", 2560, 5, LATHE_F16},
        {"group_norm", 8192, 5, LATHE_BF16},
        {"layer_norm_residual", 4608, 5, LATHE_F16},
        {"layer_norm_residual", 8192, 5, LATHE_BF16},
    };
    for (int i = 0; i < COUNT(CASE); i++) {
        const char *text = strcmp(CASE[i].spec, "centred") == 0 ? CENTRED : NULL;
        struct test_case c = case_of_attention("spreads", CASE[i].spec, text, CASE[i].dtype, -1, -1, 90);
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = i % 2 ? 2 : 1;
        c.dim[SYM_ROWS] = CASE[i].rows;
        c.dim[SYM_N] = CASE[i].n;
        c.leading = i % 2 ? 2 : 1;
        c.layout = i % 3 ? LAYOUT_COMPACT : LAYOUT_PADDED;
        c.blocks = i % 2;
        case_add(list, &c);
    }
}

/* Rows of powers so large that their products with log2(e) are rounded to more than the powers of floats. */
static const char FAR_ROWS[] =
    "return rowwise { forward = function(x, at)\n"
    "  return where(gt(logcumsumexp(where(gt(x, 1e9), x, -1e31), 0.0), -2e31), 1.0, 2.0) end }\n";

/* Scans of exponentials whose references are far apart. */
static void group_far(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"logcumsumexp", "revlogcumsumexp", "logcumsumexp_packed", "far_rows"};
    static const int N[] = {33, 257, 1024, 1025, 8192, 40000};
    for (int i = 0; i < COUNT(SPEC); i++)
        for (int k = 0; k < COUNT(N); k++)
            for (int pass = 0; pass < 2; pass++) {
                struct test_case c = case_of_attention("apart", SPEC[i], i == 3 ? FAR_ROWS : NULL,
                                                       (i + k) % 2 ? LATHE_BF16 : LATHE_F32, -1, -1, 90);
                if (!full && (i + k + pass) % 2 && N[k] > 1024)
                    continue;
                c.pass = pass ? LATHE_BACKWARD : LATHE_FORWARD;
                c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
                c.dim[SYM_ROWS] = 3;
                c.dim[SYM_N] = N[k];
                c.leading = 1;
                c.skewed = true;
                case_add(list, &c);
            }
}

/* Rows that are neighbours in memory, 16 bytes of them and more: alone, beyond what shared memory holds, with
   fewer blocks than strips, and where the last ones do not fill 16 bytes (n = 1). */
static void group_neighbours(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"softmax_inner", "log_softmax_inner", "mean_pool", "chunk_cumsum",
                                       "cumsum_packed"};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F32, LATHE_F16};
    static const struct {
        int leading, rows0, rows1, rows, n, blocks;
        enum layout layout;
    } ROWS[] = {{1, 1, 1, 16, 7500, 0, LAYOUT_COMPACT}, {2, 1, 2, 40, 33, 1, LAYOUT_PADDED},
                {3, 2, 3, 24, 700, 2, LAYOUT_SWAPPED},  {1, 1, 1, 136, 1, 0, LAYOUT_COMPACT},
                {1, 1, 1, 21, 1, 0, LAYOUT_COMPACT},    {1, 1, 1, 200, 1030, 0, LAYOUT_COMPACT}};
    for (int i = 0; i < COUNT(SPEC) * COUNT(ROWS) * 2; i++) {
        const int row = i / 2 % COUNT(ROWS);
        for (int t = 0; t < COUNT(DTYPE); t++) {
            struct test_case c = case_of_attention("neighbours", SPEC[i / 2 / COUNT(ROWS)], NULL, DTYPE[t],
                                                   -1, -1, i % 4 ? 90 : 80);
            c.pass = i % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
            c.dim[SYM_ROWS0] = ROWS[row].rows0;
            c.dim[SYM_ROWS1] = ROWS[row].rows1;
            c.dim[SYM_ROWS] = ROWS[row].rows;
            c.dim[SYM_N] = ROWS[row].n;
            c.leading = ROWS[row].leading;
            c.layout = ROWS[row].layout;
            c.blocks = ROWS[row].blocks;
            if (full || (i + t) % 3 == 0)
                case_add(list, &c);
        }
    }
}

/* Scans of many tensors. */
static void group_scans(struct case_list *list)
{
    static const char text[] =
        "return rowwise { along = -2, inputs = { a = tensor('float', 'rows', 'n', { grad = true }),\n"
        "  b = tensor('float', 'rows', 'n', { grad = true }), c = tensor('float', 'rows', 'n', { grad = true "
        "}) "
        "},\n"
        "  forward = function(x, at, p)\n"
        "    local r, i = at.row, at.i\n"
        "    return cumsum(x * p.a(r, i) + p.b(r, i) * p.c(r, i), 0.0)\n"
        "  end }\n";
    static const int N[] = {700, 33};
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F32};
    for (int i = 0; i < 2 * COUNT(N) * COUNT(DTYPE); i++) {
        struct test_case c =
            case_of_attention("scans", "inner_products", text, DTYPE[i / 4], -1, -1, i % 2 ? 80 : 89);
        c.pass = i % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 136;
        c.dim[SYM_N] = N[i / 2 % 2];
        c.leading = 1;
        case_add(list, &c);
    }
}

/* h_i = gate_i h_(i-1) + x_i along an inner dim: a scan of a scan. */
static const char DECAYS[] =
    "return rowwise { along = -2, inputs = { gate = tensor('float', 'rows', 'n', { grad = true }) },\n"
    "  forward = function(x, at, p)\n"
    "    local decay = cumsum(-0.01 * sigmoid(p.gate(at.row, at.i)), 0.0)\n"
    "    return cumexpsum(x, -decay, decay, 0.0)\n"
    "  end }\n";

/* Plain sums in both directions: two walks, the second of which begins anew from where the first was. */
static const char TO_AND_FRO[] =
    "return rowwise { along = -2, forward = function(x)\n"
    "  return cumsum(x, 0.0) * 0.1 + revcumsum(revcumsum(0.1 * x, 0.0) + cumsum(x, 0.0), 0.0) * 0.01 end }\n";

/* +inf at a place: what comes behind it in its segment has the sum +inf, and no gradient. */
static const char BEHIND_INF[] =
    "return rowwise { along = -2, forward = function(x, at)\n"
    "  return logcumsumexp(where(eq(at.i % 64, 5), inf, x), where(eq(at.i % 90, 0), 1.0, 0.0)) end }\n";

/* A start that is the same at all places begins anew at each of them, or nowhere. */
static const char FLAGGED[] =
    "return rowwise { along = -2, inputs = { flag = scalar('f32') },\n"
    "  forward = function(x, at, p) return cumsum(x, where(gt(p.flag, 0.0), 1.0, 0.0)) end }\n";
/* Parts that end just behind the places that are looked at first, with other segments there. */
static const char FAR_CUTS[] =
    "return rowwise { along = -2, forward = function(x, at)\n"
    "  local i = at.i % 256\n"
    "  return logcumsumexp(x, where(eq(i, 0) | eq(i, 20) | eq(i, 128) | eq(i, 178), 1.0, 0.0)) end }\n";
/* What warps hand on of a sum that begins anew inside of batches, beside a scan with powers. */
static const char BEGUN_INSIDE[] =
    "return rowwise { along = -2, forward = function(x)\n"
    "  return logcumsumexp(x, 0.0) + cumsum(0.1 * x, where(gt(x, 1.5), 1.0, 0.0)) end }\n";
/* The third scan is of the first walk, and of a tensor that no other scan there reads. */
static const char BACK_AND_ON[] =
    "return rowwise { along = -2, inputs = { b = tensor('float', 'rows', 'n', { grad = true }) },\n"
    "  forward = function(x, at, p)\n"
    "    return 0.1 * cumsum(x, 0.0) + 0.1 * revcumsum(x, 0.0) + 0.1 * cumsum(p.b(at.row, at.i), 0.0)\n  end "
    "}\n";
/* Powers so large that their products with log2(e) are rounded to more than the powers of floats. */
static const char FAR_BELOW[] =
    "return rowwise { along = -2, forward = function(x, at)\n"
    "  local far = where(lt(at.i % 40, 20), -1e31, x)\n"
    "  return where(gt(logcumsumexp(far, where(eq(at.i % 80, 0), 1.0, 0.0)), -2e31), 1.0, 2.0) end }\n";
static const char FAR_GRADIENT[] =
    "return rowwise { along = -2, forward = function(x, at)\n"
    "  local far = where(lt(at.i % 40, 20), -1e31, x)\n"
    "  return max(logcumsumexp(far, where(eq(at.i % 80, 0), 1.0, 0.0)), -20.0) end }\n";
/* As many scans as there may be. */
static const char FOUR_SUMS[] =
    "return rowwise { along = -2, inputs = { since = tensor('i32', 'n') },\n"
    "  forward = function(x, at, p)\n"
    "    local s = where(eq(p.since(at.i), 0), 1.0, 0.0)\n"
    "    return cumsum(x, s) + cumsum(x * x, s) + cumsum(abs(x), s) + cumsum(tanh(x), s)\n  end }\n";

/* Warps that walk along strips of their own, whole and cut into parts, and along one that they share: with
   starts or without, references far apart, gates. */
static void group_walks(struct case_list *list)
{
    static const struct {
        const char *name, *text;
    } SPEC[] = {{"chunk_cumsum", NULL},        {"cumsum_packed", NULL},
                {"logcumsumexp_packed", NULL}, {"decays", DECAYS},
                {"to_and_fro", TO_AND_FRO},    {"behind_inf", BEHIND_INF},
                {"flagged", FLAGGED},          {"four_sums", FOUR_SUMS},
                {"far_cuts", FAR_CUTS},        {"begun_inside", BEGUN_INSIDE},
                {"back_and_on", BACK_AND_ON},  {"far_below", FAR_BELOW},
                {"far_gradient", FAR_GRADIENT}};
    static const struct {
        int rows0, rows1, rows, n, blocks;
        enum layout layout;
    } ROWS[] = {{2, 3, 24, 77, 1, LAYOUT_COMPACT},   {2, 2, 70, 300, 2, LAYOUT_PADDED},
                {1, 1, 136, 130, 0, LAYOUT_COMPACT}, {1, 2, 24, 1300, 1, LAYOUT_COMPACT},
                {1, 1, 24, 2500, 1, LAYOUT_COMPACT},  /* where walks were is counted by strip */
                {1, 1, 40, 1500, 1, LAYOUT_COMPACT}}; /* few strips and many segments: cut, from a counter */
    for (int i = 0; i < COUNT(SPEC) * COUNT(ROWS) * 4; i++) {
        const int row = i / 4 % COUNT(ROWS);
        const bool shipped = !SPEC[i / 4 / COUNT(ROWS)].text;
        if (i / 4 / COUNT(ROWS) > 5 && row > 0 && row + 1 < COUNT(ROWS))
            continue; /* the last ones: what the rows are is not what they are about */
        struct test_case c =
            case_of_attention("walks", SPEC[i / 4 / COUNT(ROWS)].name, SPEC[i / 4 / COUNT(ROWS)].text,
                              i % 4 / 2 ? LATHE_F32 : LATHE_BF16, -1, -1, 90);
        c.pass = i % 2 ? LATHE_BACKWARD : LATHE_FORWARD;
        c.dim[SYM_ROWS0] = shipped ? ROWS[row].rows0 : 1;
        c.dim[SYM_ROWS1] = shipped ? ROWS[row].rows1 : 1;
        c.dim[SYM_ROWS] = shipped ? ROWS[row].rows : 3 * ROWS[row].rows;
        c.dim[SYM_N] = ROWS[row].n;
        c.leading = shipped ? 3 : 1;
        c.layout = ROWS[row].layout;
        c.blocks = shipped ? ROWS[row].blocks : 1;
        c.skewed = i % 3 == 0;
        case_add(list, &c);
    }
}

/* Every op of the language, in groups whose terms are of one size: in f32, and in 16 bits with the fast
 * functions. */
#define ROWS(name, body)                                                                                     \
    {                                                                                                        \
        name, "return rowwise { forward = function(x, at) " body " end }\n"                                  \
    }

static const struct inline_spec OP_SPECS[] = {
    ROWS("exponentials", "return exp(0.5 * x) + exp2(-x)"),
    ROWS("logarithms", "return log(abs(x) + 0.01) - log2(1.0 + x * x)"),
    ROWS("roots", "return sqrt(abs(x)) + rsqrt(x * x + 0.1) + 1.0 / (2.0 + x * x)"),
    ROWS("angles", "return sin(5.0 * x) + cos(at.i * 100.0)"),
    ROWS("activations", "return tanh(x) + 2.0 * sigmoid(x) + silu(x) - relu(x)"),
    ROWS("normal", "return erf(x) + gelu(x) + gelu(-x) + normal_cdf(2.0 * x)"),
    ROWS("steps",
         "return abs(x) + min(x, 0.3) * max(x, -0.3) + clamp(x, -0.5, 0.5) + floor(x) + ceil(2.0 * x)"),
    ROWS("powers", "return abs(x) ^ 1.5 + x ^ 2 - x ^ 3 + (x * x + 1.0) ^ -1 + 1.1 ^ x"),
    ROWS("quotients", "return f32((at.i - 100) // 7) * 0.01 + f32((at.i - 100) % 7) + f32(at.i // -3) * 0.01 "
                      "+ f32(at.i % -5) + x // 0.5 + x % 0.75 + x % -0.75"),
    ROWS("choices", "return where(gt(x, 0.0) & lt(x, 1.0) | eq(at.i, 3), x, -x) + where(~le(x, 0.5), 1.0, "
                    "0.0) + where(ne(at.i % 2, 0), 0.25, 0.0) + "
                    "f32(i32(4.0 * x)) + where(ge(at.i, 9), abs(at.i - 20), min(at.i, 5)) * 0.1 + "
                    "f32(clamp(at.i, 2, 6)) + f32(max(at.i, 3))"),
    ROWS("ints", "return f32(i32(4e9 * x)) * 1e-9 + f32(i32((x - x) / (x - x)))"), /* beyond them, too */
    ROWS("passes", "local low, high = rowmin(x), rowmax(x)\n"
                   "  local share = rowsum((x - low) / (high - low + 1.0)) / at.n\n"
                   "  return (x - low) * share + rowmax(x * share), { low = low, share = share }"),
};

static void group_ops(struct case_list *list, bool full)
{
    static const lathe_dtype DTYPE[] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    for (int i = 0; i < COUNT(OP_SPECS); i++)
        for (int t = 0; t < (full ? 3 : 2); t++) {
            struct test_case c =
                case_of_attention("ops", OP_SPECS[i].name, OP_SPECS[i].text, DTYPE[t], -1, -1, 80);
            c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
            c.dim[SYM_ROWS] = 5;
            c.dim[SYM_N] = 333;
            c.leading = 1;
            case_add(list, &c);
        }
}

void group_rows(struct case_list *list, bool full)
{
    group_rowwise(list, full);
    group_rows_backward(list, full);
    group_deterministic_rows(list);
    group_parts(list);
    group_places(list);
    group_column_divisions(list);
    group_again(list);
    group_unreduced(list);
    group_spreads(list);
    group_far(list, full);
    group_neighbours(list, full);
    group_ops(list, full);
    group_scans(list);
    group_ranks(list);
    group_walks(list);
    group_orders(list);
    group_selections(list);
}
