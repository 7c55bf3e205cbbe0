/*
 * inputs.c: what a spec says about its inputs beside their dtypes: sizes of dims with names of their own,
 * read as at.n_NAME, and ranges of integers, from which data is drawn. Expected values are written out here.
 * Specs are texts of this file.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static lathe_status forward(const char *text, const lathe_arg *args, int n, lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, NULL, 0, err);
    ir_free(ir);
    return status;
}

/* ---- sizes -----------------------------------------------------------------------------------------------
 */

TEST(own_sizes_of_a_map)
{
    const int64_t words = 5;
    const int64_t n = 3;
    float table[5] = {0};
    float x[3] = {1, 2, 3};
    float y[3];
    const lathe_arg args[] = {{"x", x, LATHE_F32, 1, &n, NULL},
                              {"y", y, LATHE_F32, 1, &n, NULL},
                              {"table", table, LATHE_F32, 1, &words, NULL}};
    lathe_error err = {0};
    forward("return elementwise { over = { 'n' }, inputs = { table = tensor('f32', 'words') },\n"
            "  operands = { x = tensor('f32') }, results = { y = tensor('f32') },\n"
            "  forward = function(v, at, p) return v.x * at.n_words + 0.0 * p.table(0) end }",
            args, 3, &err);
    CHECK_STR(err.text, "");
    for (int i = 0; i < 3; i++)
        CHECK(y[i] == 5.0F * x[i]);
}

TEST(the_size_of_what_is_left_out_is_0)
{
    const int64_t shape[2] = {1, 2};
    float x[2] = {1, 2};
    float y[2];
    const lathe_arg args[] = {{"x", x, LATHE_F32, 2, shape, NULL}, {"y", y, LATHE_F32, 2, shape, NULL}};
    lathe_error err = {0};
    forward("return rowwise { inputs = { w = tensor('f32', 'words', { optional = true }) },\n"
            "  forward = function(x, at, p) return x + at.n_words end }",
            args, 2, &err);
    CHECK_STR(err.text, "");
    CHECK(y[0] == 1.0F && y[1] == 2.0F);
}

TEST(unknown_sizes_are_listed)
{
    static const char text[] = "return attention { inputs = { page = tensor('i32', 'slots') },\n"
                               "  score_mod = function(s, at) return s + at.n_leaves end }";
    struct diag diag = {0};
    CHECK(spec_load("test.lua", text, strlen(text), &diag) == NULL);
    CHECK_HAS(diag.entry[0].text, "'at' has no field 'n_leaves' here");
    CHECK_HAS(diag.entry[0].text, "n_slots)");
    CHECK_EQ(diag.entry[0].line, 2);
}

/* ---- ranges ----------------------------------------------------------------------------------------------
 */

static double unit_of(void *state)
{
    uint64_t *s = state;
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*s >> 11) + 0.5) / 9007199254740992.0;
}

/* Of the only input of a spec: a tensor [rows, 50], with n=9. */
static void draw(const char *options, lathe_dtype dtype, double *low, double *high, bool *falls)
{
    char text[400];
    int32_t data[200];
    const int64_t shape[2] = {4, 50};
    const lathe_arg t = {"t", data, dtype, 2, shape, NULL};
    int64_t dim[SYM_COUNT] = {[SYM_N] = 9, [SYM_ROWS0] = 2, [SYM_ROWS1] = 3, [SYM_ROWS] = 4};
    uint64_t state = 11;
    snprintf(text, sizeof text,
             "return rowwise { inputs = { t = tensor('%s', 'rows', 'w', { %s }) },\n"
             "  forward = function(x, at, p) return x + p.t(0, 0) end }",
             lathe_dtype_text(dtype), options);
    struct ir *ir = load_spec(text);
    CHECK(input_fill(&ir->input[0], dim, &t, unit_of, &state));
    *low = *high = dtype_load(dtype, data, 0);
    *falls = false;
    for (int64_t i = 0; i < 200; i++) {
        const double value = dtype_load(dtype, data, i);
        *low = value < *low ? value : *low;
        *high = value > *high ? value : *high;
        *falls |= i % 50 > 0 && value < dtype_load(dtype, data, i - 1);
    }
    ir_free(ir);
}

TEST(data_is_drawn_from_the_range)
{
    double low;
    double high;
    bool falls;
    draw("range = { 3, 7 }", LATHE_I32, &low, &high, &falls);
    CHECK(low == 3 && high == 6 && falls);
    draw("range = { 0, 'n' }", LATHE_I32, &low, &high, &falls);
    CHECK(low == 0 && high == 8 && falls);
    draw("range = { -1, 'n - 6' }", LATHE_I32, &low, &high, &falls);
    CHECK(low == -1 && high == 2);
    draw("range = { 'n', 'rows' }", LATHE_I32, &low, &high, &falls); /* all leading dims: 24 */
    CHECK(low == 9 && high == 23);
    draw("range = { 0, 'n+1' }, sorted = true", LATHE_I32, &low, &high, &falls);
    CHECK(low == 0 && high == 9 && !falls);
    draw("range = { 250, 256 }, sorted = true", LATHE_U8, &low, &high, &falls);
    CHECK(low == 250 && high == 255 && !falls);
    draw("range = { -2147483648, 2147483648 }", LATHE_I32, &low, &high, &falls);
    CHECK(low < -1e8 && high > 1e8);
    draw("range = { 0.5, 2 }", LATHE_F32, &low, &high, &falls);
    CHECK(low > 0.5 && low < 0.6 && high < 2 && high > 1.9);
    draw("range = { -inf, -1 }", LATHE_F32, &low, &high, &falls);
    CHECK(low < -3 && high < -1 && high > -1.1);
    draw("range = { 0, inf }", LATHE_BF16, &low, &high, &falls);
    CHECK(low > 0 && low < 0.1 && high > 2);
}

static void refuse(const char *options, const char *part)
{
    char text[300];
    struct diag diag = {0};
    snprintf(text, sizeof text, "return attention {\n inputs = { t = %s },\n mask_mod = causal }", options);
    CHECK(spec_load("test.lua", text, strlen(text), &diag) == NULL);
    CHECK_HAS(diag.entry[0].text, part);
    CHECK_EQ(diag.entry[0].line, 2);
}

TEST(ranges_that_are_none)
{
    static const char form[] = "input 't': option 'range' is { low, high }, low <= value < high";
    refuse("tensor('i32', 'b', { range = 3 })", form);
    refuse("tensor('i32', 'b', { range = { 3 } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 1, 2 } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 1.5 } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 'kv q' } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 'kv * 2' } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 'kv + ' } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 'kv + 12345678901234567890' } })", form);
    refuse("tensor('i32', 'b', { range = { 0, '' } })", form);
    refuse("tensor('i32', 'b', { range = { 0, 4294967296 } })", form);
    refuse("tensor('i32', 'b', { range = { 2, 2 } })", "option 'range' has no value: 2 <= value < 2");
    refuse("tensor('u8', 'b', { range = { -1, 2 } })", "within 0 <= value < 256");
    refuse("tensor('i32', 'b', { range = { 0, 'leaves' } })",
           "its range names 'leaves', which is no dim here");
    refuse("tensor('f32', 'b', { range = { 0, 'kv' } })", "option 'range' of floats is { least, most }");
    refuse("tensor('f32', 'b', { range = { 2, 2 } })", "option 'range' of floats is { least, most }");
    refuse("tensor('f32', 'b', { sorted = true })", "option 'sorted' is of integers");
    refuse("scalar('i32', { sorted = true })", "option 'sorted' is of tensors");
    refuse("tensor('i32', 'b', { sorted = 1 })", "option 'sorted' is true, false, or the name of the input");
    refuse("tensor('i32', 'b', 'q', { sorted = 'many' })",
           "sorted by 'many', which is no i32 input of its dims");
}

/* The size of a dim that only another input has; of dims of the map, in elementwise. */
TEST(ranges_name_dims_of_any_input)
{
    struct ir *ir =
        load_spec("return elementwise { over = { 'b', 't' }, results = { y = tensor('f32') },\n"
                  "  inputs = { a = tensor('i32', 'b', { range = { 0, 'zoo' } }), z = tensor('f32', 'zoo'),\n"
                  "             c = tensor('i32', 'ends', { range = { 0, 't + 1' } }) },\n"
                  "  forward = function(v, at, x) return x.z(x.a(at.b)) + x.c(0) end }");
    struct value_range range;
    int64_t dim[SYM_COUNT] = {0};
    for (int k = 0; k < ir->n_free; k++)
        dim[SYM_FREE + k] = strcmp(ir->free_name[k], "zoo") == 0 ? 17
                            : strcmp(ir->free_name[k], "t") == 0 ? 5
                                                                 : 99;
    CHECK(input_range(&ir->input[0], dim, &range) && range.low == 0 && range.high == 17);
    CHECK(input_range(&ir->input[1], dim, &range) && range.low == 0 && range.high == 6);
    CHECK(!input_range(&ir->input[2], dim, &range));
    ir_free(ir);
}

TEST(the_host_device_holds_data_against_its_range)
{
    static const char text[] =
        "return elementwise { over = { 'b', 't' }, results = { y = tensor('f32') },\n"
        "  inputs = { table = tensor('f32', 'words'),\n"
        "    id = tensor('i32', 'b', 't', { range = { 0, 'words' } }),\n"
        "    cu = tensor('i32', 'ends', { sorted = true }) },\n"
        "  forward = function(v, at, x) return x.table(clamp(x.id(at.b, at.t), 0, 2)) + x.cu(0) end }";
    const int64_t words = 3;
    const int64_t ends = 4;
    const int64_t shape[2] = {2, 2};
    float table[3] = {1, 2, 3};
    float y[4] = {0};
    int32_t id[4] = {0, 1, 2, 1};
    int32_t cu[4] = {0, 1, 1, 5};
    const lathe_arg args[] = {{"y", y, LATHE_F32, 2, shape, NULL},
                              {"table", table, LATHE_F32, 1, &words, NULL},
                              {"id", id, LATHE_I32, 2, shape, NULL},
                              {"cu", cu, LATHE_I32, 1, &ends, NULL}};
    lathe_error err = {0};
    CHECK_EQ(forward(text, args, 4, &err), LATHE_OK);
    CHECK(y[0] == 1 && y[2] == 3);
    id[2] = 3;
    CHECK_EQ(forward(text, args, 4, &err), LATHE_ARG);
    CHECK_STR(err.text,
              "argument 'id': expected values from 0 to 2 (its range, test.lua:3), given 3 at [1,0]");
    id[2] = 2;
    cu[2] = 0;
    CHECK_EQ(forward(text, args, 4, &err), LATHE_ARG);
    CHECK_STR(err.text,
              "argument 'cu': expected values that do not fall along the last dim (sorted, test.lua:4), "
              "given 0 behind 1 at [2]");
}

/* ---- the data of proofs ----------------------------------------------------------------------------------
 */

/* index 5 is never read where ids are below leaves = 5; sizes, data and what is left out are the caller's. */
static const char PAGES[] =
    "return attention { inputs = { page = tensor('i32', 'b', 'slots', { range = { 0, 'leaves' } }),\n"
    "    bias = tensor('f32', 'leaves', { grad = true }), more = tensor('f32', 'h', { optional = true }) },\n"
    "  score_mod = function(s, at, x) return s + x.more(at.h) + x.bias(x.page(at.b, at.kv // 2)) end }";

static int prove_sizes(const char *text, const struct prove_given *given, struct proof *proof)
{
    struct ir *ir = load_spec(text);
    const int n = prove_with(ir, 5, given, proof);
    ir_free(ir);
    return n;
}

TEST(proofs_take_what_is_given)
{
    struct proof proof[PROOF_MAX];
    struct prove_given given;
    struct ir *ir = load_spec(PAGES);
    prove_given_init(&given);
    for (int k = 0; k < ir->n_free; k++)
        given.dim[SYM_FREE + k] = strcmp(ir->free_name[k], "leaves") == 0 ? 5 : 40;
    ir_free(ir);
    given.dim[SYM_B] = 1;
    given.dim[SYM_H] = 3;
    given.dim[SYM_KV] = 80;
    given.n_absent = 1;
    snprintf(given.absent[0], sizeof given.absent[0], "more");
    int n = prove_sizes(PAGES, &given, proof);
    for (int i = 0; i < n; i++)
        CHECK_STR(proof[i].passed ? "" : proof[i].note, "");
    given.dim[SYM_KV] = 81; /* one more than there are slots for */
    n = prove_sizes(PAGES, &given, proof);
    CHECK(!proof[0].passed);
    CHECK_HAS(proof[0].note, "page: index 40 of dim 1 (slots) is outside 0..39");
    CHECK_HAS(proof[0].tried, "b=1,h=3,h_kv=3,");
    CHECK_HAS(proof[0].tried, "kv=81,");
    CHECK_HAS(proof[0].tried, "; page from 0 to 4 (its range); seed 5");
    CHECK_EQ(n, 9);
}

TEST(proofs_take_given_tensors)
{
    struct proof proof[PROOF_MAX];
    struct prove_given given;
    int32_t page[2] = {7, 99};
    const int64_t shape[2] = {1, 2};
    prove_given_init(&given);
    given.dim[SYM_B] = 1;
    given.dim[SYM_KV] = 4;
    for (int k = 0; k < 2; k++)
        given.dim[SYM_FREE + k] = 2;
    given.n = 1;
    given.arg[0] = (lathe_arg){"page", page, LATHE_I32, 2, shape, NULL};
    prove_sizes(PAGES, &given, proof);
    CHECK(!proof[0].passed);
    CHECK_HAS(proof[0].note,
              "argument 'page': expected values from 0 to 1 (its range, test.lua:1), given 7 at [0,0]");
}

/* As a value that is given at the call. */
TEST(defaults_are_rounded_as_values_are)
{
    static const char TEXT[] =
        "return attention { inputs = { t = scalar('f32', { default = 0.1 }), n = scalar('i32', { default = 3 "
        "}) }, score_mod = function(s, at, x) return s * x.t + x.n end }";
    struct ir *ir = load_spec(TEXT);
    CHECK_EQ(ir->n_inputs, 2);
    for (int i = 0; i < 2; i++)
        CHECK(ir->input[i].default_value == (ir->input[i].dtype == LATHE_F32 ? (double)0.1f : 3.0));
    ir_free(ir);
}
