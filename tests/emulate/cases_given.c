/*
 * cases_given.c: rows whose log-sum-exp is given and has lost the logarithm, since a finite mask value covers
 * the row whole: gradients of every template that reads a given statistic.
 *
 * In: nothing. Out: cases at the end of the list; see cases.c.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* Of three rows the second is -1e9 as a whole, and all of its elements weigh the same in f32; the third is
   near 5000. Doubles would tell x beside 1e9: there x - detach(x) has its gradient, and is 0. */
#define COVERED(x) "  local row, z = at.row % 3, 1e-3 * (" x ")\n"
#define F32        COVERED("x") "  z = where(eq(row, 1), z - 1e9, where(eq(row, 2), z + 5000.0, z))\n"
#define F64        COVERED("x") "  z = where(eq(row, 1), z - detach(z) - 1e9, where(eq(row, 2), z + 5000.0, z))\n"
#define TABLE                                                                                                \
    "rowwise { inputs = { b = tensor('float', 'n', { grad = true }) }, forward = function(y, at, p)\n  "     \
    "local x = y * p.b(at.i)\n"
#define PLAIN "rowwise { forward = function(x, at)\n"
#define INNER "rowwise { along = -2, forward = function(x, at)\n"
#define LSE   "  local m = detach(rowmax(z))\n  local lse = m + log(rowsum(exp(z - m)))\n"
#define ALONE "  return { lse = lse } end }\n"
#define MINUS "  return z - lse, { lse = lse } end }\n"

/* A reduction of weights: it needs the norm in the first pass. */
#define WEIGHED "  return x * rowsum(tanh(exp(z - m) / rowsum(exp(z - m)))), { lse = lse } end }\n"

static const struct {
    const char *name;
    const char *text;
    const char *reference;
} SPEC[] = {{"covered", "return " PLAIN F32 LSE ALONE, "return " PLAIN F64 LSE ALONE},
            {"covered_log_softmax", "return " PLAIN F32 LSE MINUS, "return " PLAIN F64 LSE MINUS},
            {"covered_table", "return " TABLE F32 LSE ALONE, "return " TABLE F64 LSE ALONE},
            {"covered_weighed", "return " PLAIN F32 LSE WEIGHED, "return " PLAIN F64 LSE WEIGHED},
            {"covered_inner", "return " INNER F32 LSE ALONE, "return " INNER F64 LSE ALONE},
            {"covered_inner_minus", "return " INNER F32 LSE MINUS, "return " INNER F64 LSE MINUS}};

void group_given(struct case_list *list)
{
    static const struct {
        int spec, sm, n, rows;
        lathe_dtype dtype;
        enum layout layout;
    } CASE[] = {
        {0, 80, 33, 7, LATHE_BF16, LAYOUT_COMPACT},      {0, 90, 64, 37, LATHE_BF16, LAYOUT_COMPACT},
        {0, 80, 1024, 5, LATHE_BF16, LAYOUT_PADDED},     {0, 90, 8192, 5, LATHE_BF16, LAYOUT_COMPACT},
        {0, 90, 4096, 200, LATHE_BF16, LAYOUT_COMPACT},  {0, 80, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},
        {0, 90, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},   {0, 80, 20001, 3, LATHE_BF16, LAYOUT_COMPACT},
        {1, 80, 33, 70, LATHE_BF16, LAYOUT_MISALIGNED},  {1, 90, 1024, 5, LATHE_BF16, LAYOUT_COMPACT},
        {1, 90, 8192, 5, LATHE_BF16, LAYOUT_COMPACT},    {1, 80, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},
        {1, 90, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},   {1, 90, 16, 300, LATHE_F16, LAYOUT_COMPACT},
        {2, 80, 33, 7, LATHE_BF16, LAYOUT_COMPACT},      {2, 90, 1024, 5, LATHE_BF16, LAYOUT_COMPACT},
        {2, 90, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},   {2, 80, 20001, 3, LATHE_BF16, LAYOUT_COMPACT},
        {3, 90, 1024, 5, LATHE_BF16, LAYOUT_COMPACT},    {3, 80, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},
        {3, 90, 32768, 4, LATHE_BF16, LAYOUT_COMPACT},   {4, 80, 33, 72, LATHE_BF16, LAYOUT_COMPACT},
        {4, 90, 33, 72, LATHE_BF16, LAYOUT_COMPACT},     {4, 90, 1024, 72, LATHE_BF16, LAYOUT_COMPACT},
        {4, 90, 257, 67, LATHE_BF16, LAYOUT_MISALIGNED}, {5, 90, 33, 72, LATHE_BF16, LAYOUT_COMPACT},
        {5, 90, 1024, 72, LATHE_BF16, LAYOUT_COMPACT},   {5, 80, 700, 67, LATHE_BF16, LAYOUT_MISALIGNED}};
    for (int i = 0; i < COUNT(CASE); i++) {
        struct test_case c = case_of_attention("given", SPEC[CASE[i].spec].name, SPEC[CASE[i].spec].text,
                                               CASE[i].dtype, -1, -1, CASE[i].sm);
        c.reference = SPEC[CASE[i].spec].reference;
        c.pass = LATHE_BACKWARD;
        c.layout = CASE[i].layout;
        c.dim[SYM_ROWS0] = 1;
        c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = CASE[i].rows;
        c.dim[SYM_N] = CASE[i].n;
        c.leading = 1;
        case_add(list, &c);
    }
}
