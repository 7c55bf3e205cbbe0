/*
 * judge_test.c: does judge_results find what is wrong in a row where numbers end, and take what is right?
 * In: nothing; the outputs are made here, two rows of two elements. Every test owns what it makes.
 */
#include "harness.h"
#include "check.h"

#include <math.h>
#include <string.h>

enum manner { ROWS, GRADIENT, VALUES, N_MANNERS };

/* Of the rows {1, `expected`} and {2, 3} a kernel gave {1, got} and {2, other}. */
static bool is_taken(enum manner manner, double expected, double got, double other)
{
    double value[] = {1.0, expected, 2.0, 3.0};
    const double result[] = {1.0, got, 2.0, other};
    const struct bounds bounds = {
        .row = 1e-3, .final = 1e-3, .mean = 0.02, .gradient = manner == GRADIENT ? 1e-3 : 0.0};
    char why[256] = "";
    struct tensor t;
    memset(&t, 0, sizeof t);
    memcpy(t.name, "y", 2);
    t.role = manner == ROWS ? ROLE_OUT : ROLE_OUT_OPTIONAL;
    t.dtype = LATHE_F32;
    t.ndim = 2;
    t.shape[0] = t.shape[1] = 2;
    t.count = 4;
    t.value = value;
    return judge_results(&t, &bounds, result, why, sizeof why) == NULL;
}

static const double INF = (double)INFINITY;
static const double NOT_A_NUMBER = (double)NAN;

TEST(numbers_are_compared)
{
    for (int k = 0; k < N_MANNERS; k++) {
        CHECK(is_taken((enum manner)k, 5.0, 5.0, 3.0));
        CHECK(!is_taken((enum manner)k, 5.0, 7.0, 3.0));
        CHECK(!is_taken((enum manner)k, 5.0, 5.0, 7.0));
    }
}

TEST(an_end_that_is_right_is_taken)
{
    for (int k = 0; k < N_MANNERS; k++) {
        CHECK(is_taken((enum manner)k, INF, INF, 3.0));
        CHECK(is_taken((enum manner)k, -INF, -INF, 3.0));
        CHECK(is_taken((enum manner)k, NOT_A_NUMBER, NOT_A_NUMBER, 3.0));
    }
}

TEST(any_other_end_is_wrong)
{
    const double ends[] = {INF, -INF, NOT_A_NUMBER, 5.0};
    for (int k = 0; k < N_MANNERS; k++)
        for (int e = 0; e < 4; e++)
            for (int g = 0; g < 4; g++)
                CHECK(is_taken((enum manner)k, ends[e], ends[g], 3.0) == (e == g));
}

/* What is right as it is hides nothing of the other rows. */
TEST(the_rest_is_compared_beside_an_end)
{
    const double ends[] = {INF, -INF, NOT_A_NUMBER};
    for (int k = 0; k < N_MANNERS; k++)
        for (int e = 0; e < 3; e++)
            CHECK(!is_taken((enum manner)k, ends[e], ends[e], 7.0));
}
