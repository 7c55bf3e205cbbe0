/*
 * bounds_test.c: does result_compare take infinities where a dtype's range ends, and only there?
 * In: nothing; results are made here, two elements each. Every test owns what it makes.
 */
#include "cases.h"
#include "check.h"

#include <math.h>
#include <string.h>

/* Of a row of two elements, {1, `expected`}, a device gave {first, got}: what is wrong, or NULL. */
static bool is_taken(lathe_dtype dtype, enum role role, double first, double expected, double got)
{
    const double reference[] = {1.0, expected};
    const struct spread none = {.size = 0.0};
    unsigned char bytes[2 * sizeof(double)];
    char why[256] = "";
    double worst = 0.0;
    struct test_case c;
    struct tensor t;
    memset(&c, 0, sizeof c);
    memset(&t, 0, sizeof t);
    c.pass = role == ROLE_GRADIENT ? LATHE_BACKWARD : LATHE_FORWARD;
    c.run[0].dtype = dtype;
    t.row.role = role;
    t.row.name[0] = 'y';
    t.dtype = dtype;
    t.ndim = 1;
    t.shape[0] = t.count = t.span = 2;
    t.strides[0] = 1;
    t.bytes = bytes;
    memset(bytes, 0xFF, sizeof bytes); /* not a number, in every format */
    dtype_put(dtype, bytes, 0, dtype_round(dtype, first));
    if (!isnan(got))
        dtype_put(dtype, bytes, 1, dtype_round(dtype, got));
    return result_compare(&t, reference, &none, &c, &worst, why, sizeof why) == NULL;
}

static const enum role ROLES[] = {ROLE_RESULT, ROLE_GRADIENT, ROLE_FINAL};
enum { N_ROLES = sizeof ROLES / sizeof *ROLES };

TEST(infinities_are_right_where_the_reference_overflows)
{
    const double infinity = (double)INFINITY;
    for (int k = 0; k < N_ROLES; k++) {
        CHECK(is_taken(LATHE_F16, ROLES[k], 1.0, 65520.56, infinity));
        CHECK(is_taken(LATHE_F16, ROLES[k], 1.0, -65520.56, -infinity));
        CHECK(is_taken(LATHE_F16, ROLES[k], 1.0, 1e6, infinity));
        CHECK(is_taken(LATHE_BF16, ROLES[k], 1.0, 3.4e38, infinity));
        CHECK(is_taken(LATHE_F32, ROLES[k], 1.0, 1e39, infinity));
    }
}

/* A sum in f32 may end on the other side of the limit. */
TEST(beside_the_limit_both_are_right)
{
    for (int k = 0; k < 2; k++) {
        CHECK(is_taken(LATHE_F16, ROLES[k], 1.0, 65520.56, 65504.0));
        CHECK(is_taken(LATHE_F16, ROLES[k], 1.0, 65519.0, (double)INFINITY));
    }
}

TEST(other_infinities_and_saturated_results_are_wrong)
{
    const double infinity = (double)INFINITY;
    for (int k = 0; k < N_ROLES; k++) {
        CHECK(!is_taken(LATHE_F16, ROLES[k], 1.0, 65000.0, infinity));
        CHECK(!is_taken(LATHE_F16, ROLES[k], 1.0, 65520.56, -infinity));
        CHECK(!is_taken(LATHE_F16, ROLES[k], 1.0, 70000.0, 65504.0));
        CHECK(!is_taken(LATHE_F16, ROLES[k], 1.0, 70000.0, (double)NAN));
        CHECK(!is_taken(LATHE_BF16, ROLES[k], 1.0, 70000.0, infinity));
        CHECK(!is_taken(LATHE_F32, ROLES[k], 1.0, 1e38, infinity));
    }
}

/* An infinity, right as it is, hides nothing else of its row. */
TEST(the_rest_of_a_row_is_compared)
{
    for (int k = 0; k < N_ROLES; k++)
        CHECK(!is_taken(LATHE_F16, ROLES[k], 1.5, 70000.0, (double)INFINITY));
}
