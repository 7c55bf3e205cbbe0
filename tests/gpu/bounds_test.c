/*
 * bounds_test.c: does result_compare take infinities where a dtype's range ends, and only there? Does it take
 * what fp32 leaves of a decay's gradient, and no more? In: nothing; results are made here. Every test owns
 * what it makes.
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

/* ---- the gradient of a decay --------------------------------------------------------------------------- */

enum { TOKENS = 64, D = 64 };

/* One head of linear attention without a decay, whose tokens have one gradient each: of a logarithm of 0. */
struct head {
    int tokens;
    double q[TOKENS][D], k[TOKENS][D], v[TOKENS][D], dout[TOKENS][D];
    double exact[TOKENS];  /* the state ahead of a token times the gradient of the state at it */
    double single[TOKENS]; /* q dq less k dk of all tokens from it on, in fp32 */
    double products;       /* the norm of all of these, and of v dv */
};

static double pair_of(const double *a, const double *b)
{
    double sum = 0.0;
    for (int i = 0; i < D; i++)
        sum += a[i] * b[i];
    return sum;
}

static void make_exact(struct head *h)
{
    for (int t = 0; t < h->tokens; t++) {
        h->exact[t] = 0.0;
        for (int reader = t; reader < h->tokens; reader++)
            for (int writer = 0; writer < t; writer++)
                h->exact[t] += pair_of(h->q[reader], h->k[writer]) * pair_of(h->v[writer], h->dout[reader]);
    }
}

/* One channel's gradient at token t, of a row of the state that is a sum over `x` times what is read by: of q
 * dq over the tokens up to t, of k dk over those from t on. */
static float channel_back(const struct head *h, int t, int i, bool of_query)
{
    float row[D] = {0.0F};
    const int end = of_query ? t + 1 : h->tokens;
    for (int s = of_query ? 0 : t; s < end; s++)
        for (int j = 0; j < D; j++)
            row[j] +=
                (float)(of_query ? h->k[s][i] : h->q[s][i]) * (float)(of_query ? h->v[s][j] : h->dout[s][j]);
    float sum = 0.0F;
    for (int j = 0; j < D; j++)
        sum += row[j] * (float)(of_query ? h->dout[t][j] : h->v[t][j]);
    return sum;
}

static void make_single(struct head *h)
{
    float behind[D] = {0.0F};
    for (int t = h->tokens - 1; t >= 0; t--) {
        float sum = 0.0F;
        for (int i = 0; i < D; i++) {
            const float reads = (float)h->q[t][i] * channel_back(h, t, i, true);
            const float writes = (float)h->k[t][i] * channel_back(h, t, i, false);
            behind[i] += reads - writes;
            sum += behind[i];
            h->products += (double)reads * (double)reads + (double)writes * (double)writes;
        }
        for (int j = 0; j < D; j++) {
            double dv = 0.0;
            for (int reader = t; reader < h->tokens; reader++)
                dv += pair_of(h->q[reader], h->k[t]) * h->dout[reader][j];
            h->products += h->v[t][j] * dv * h->v[t][j] * dv;
        }
        h->single[t] = (double)sum;
    }
    h->products = sqrt(h->products);
}

static void make_head(struct head *h, int tokens, uint64_t seed)
{
    double(*const all[])[D] = {h->q, h->k, h->v, h->dout};
    memset(h, 0, sizeof *h);
    h->tokens = tokens;
    for (int n = 0; n < 4; n++)
        for (int t = 0; t < tokens; t++)
            for (int i = 0; i < D; i++)
                all[n][t][i] = dtype_round(LATHE_F32, random_gaussian(&seed));
    make_exact(h);
    make_single(h);
}

/* Of the gradient of a number that all tokens read, with these slopes, in fp32 and off by `more`. */
static bool gradient_is_taken(const struct head *h, const double *slope, double more)
{
    double expected = 0.0;
    double got = more;
    for (int t = 0; t < h->tokens; t++) {
        expected += slope[t] * h->exact[t];
        got += slope[t] * h->single[t];
    }
    const struct spread left = {.least = sums_left(h->products, h->tokens, false)};
    unsigned char bytes[sizeof(double)];
    char why[256] = "";
    double worst = 0.0;
    struct test_case c = {.pass = LATHE_BACKWARD, .sums = true, .run[0].dtype = LATHE_F32};
    struct tensor t = {.dtype = LATHE_F32, .ndim = 1, .shape = {1}, .strides = {1}, .count = 1, .span = 1};
    t.row.role = ROLE_GRADIENT;
    t.bytes = bytes;
    dtype_put(LATHE_F32, bytes, 0, dtype_round(LATHE_F32, got));
    return result_compare(&t, &expected, &left, &c, &worst, why, sizeof why) == NULL;
}

/* A token's pair with itself is in q dq and in k dk, and nothing else is: the gradient is 0. */
TEST(of_one_token_what_fp32_leaves_is_taken)
{
    static struct head h;
    for (uint64_t seed = 1; seed < 20; seed++) {
        const double slope[1] = {1.0};
        make_head(&h, 1, seed);
        CHECK(gradient_is_taken(&h, slope, 0.0));
        CHECK(!gradient_is_taken(&h, slope, 1e-5 * h.products));
    }
}

/* Of tokens whose gradients add up to 0, too. */
TEST(of_tokens_that_cancel_what_fp32_leaves_is_taken)
{
    static struct head h;
    for (uint64_t seed = 1; seed < 4; seed++) {
        double slope[TOKENS];
        make_head(&h, TOKENS, seed);
        double along = 0.0;
        for (int t = 0; t < TOKENS; t++)
            along += h.exact[t];
        const double share = along / pair_of(h.exact, h.exact);
        for (int t = 0; t < TOKENS; t++)
            slope[t] = 0.5 * (1.0 - share * h.exact[t]);
        CHECK(gradient_is_taken(&h, slope, 0.0));
        CHECK(!gradient_is_taken(&h, slope, 1e-4 * h.products));
    }
}
