/*
 * host_rowwise.c: row-wise operators on the host device against loops written out here, in long double.
 * Specs are text in the test; each test frees what it makes.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static double *noise(int64_t n, unsigned seed)
{
    double *v = malloc((size_t)n * sizeof *v);
    uint64_t state = seed * 2654435761u + 1u;
    CHECK(v != NULL);
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        v[i] = (double)(state >> 11) / 4503599627370496.0 - 1.0; /* -1 .. 1 */
    }
    return v;
}

static lathe_status forward(const char *text, const lathe_arg *args, int n, const int64_t *rows,
                            int64_t n_rows)
{
    struct diag diag = {0};
    struct signature sig;
    lathe_error err = {0};
    struct ir *ir = spec_load("t.lua", text, strlen(text), &diag);
    diag_to_error(&diag, LATHE_SPEC, &err);
    CHECK_STR(err.text, "");
    signature_make(ir, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, rows, n_rows, &err);
    CHECK_STR(err.text, "");
    ir_free(ir);
    return status;
}

static const char ROW_SOFTMAX[] =
    "return rowwise { forward = function(x, at)\n"
    "  local p = exp(x - rowmax(x))\n"
    "  return p / rowsum(p), { lse = log(rowsum(p)) + rowmax(x), least = rowmin(x) }\n"
    "end }";

/* Three leading dims, rows padded, in place. */
TEST(rowwise_softmax)
{
    const int64_t shape[] = {2, 3, 4, 17};
    const int64_t strides[] = {3 * 4 * 20, 4 * 20, 20, 1};
    double *x = noise(2 * 3 * 4 * 20, 7);
    double *before = noise(2 * 3 * 4 * 20, 7);
    double lse[24];
    double least[24];
    const lathe_arg args[] = {{"x", x, LATHE_F64, 4, shape, strides},
                              {"y", x, LATHE_F64, 4, shape, strides},
                              {"lse", lse, LATHE_F64, 3, shape, NULL},
                              {"least", least, LATHE_F64, 3, shape, NULL}};
    CHECK_EQ(forward(ROW_SOFTMAX, args, 4, NULL, 0), LATHE_OK);
    for (int row = 0; row < 24; row++) {
        const double *in = before + row * 20;
        long double sum = 0.0L;
        double smallest = in[0];
        for (int i = 0; i < 17; i++) {
            sum += expl((long double)in[i]);
            smallest = fmin(smallest, in[i]);
        }
        for (int i = 0; i < 17; i++)
            CHECK_CLOSE(x[row * 20 + i], (double)(expl((long double)in[i]) / sum), 1e-14);
        for (int i = 17; i < 20; i++)
            CHECK(x[row * 20 + i] == in[i]);
        CHECK_CLOSE(lse[row], (double)logl(sum), 1e-14);
        CHECK(least[row] == smallest);
    }
    free(x);
    free(before);
}

static const char LAYER_NORM[] =
    "return rowwise { inputs = { weight = tensor('f32', 'n'), bias = tensor('f32', 'n', { optional = true, "
    "default = 0.25 }),\n"
    "    eps = scalar('f32', { default = 0.5 }) },\n"
    "  forward = function(x, at, p)\n"
    "    local mean = rowsum(x) / at.n\n"
    "    local rstd = rsqrt(rowsum((x - mean) * (x - mean)) / at.n + p.eps)\n"
    "    return (x - mean) * rstd * p.weight(at.i) + p.bias(at.i), { mean = mean, rstd = rstd }\n"
    "  end }";

static void naive_layer_norm(const float *x, const float *weight, int n, double *y, double *mean,
                             double *rstd)
{
    long double sum = 0.0L;
    long double square = 0.0L;
    for (int i = 0; i < n; i++)
        sum += (long double)x[i];
    for (int i = 0; i < n; i++)
        square += powl((long double)x[i] - sum / n, 2.0L);
    *mean = (double)(sum / n);
    *rstd = (double)(1.0L / sqrtl(square / n + 0.5L));
    for (int i = 0; i < n; i++)
        y[i] = ((double)x[i] - *mean) * *rstd * (double)weight[i] + 0.25;
}

/* One leading dim, chosen rows, defaults of an absent tensor and an absent scalar. */
TEST(rowwise_layer_norm)
{
    enum { ROWS = 5, N = 33 };
    const int64_t shape[] = {ROWS, N};
    const int64_t weight_shape[] = {N};
    const int64_t rows[] = {1, 4};
    double *random = noise(ROWS * N, 9);
    float x[ROWS * N];
    float y[ROWS * N] = {0};
    float weight[N];
    float mean[ROWS] = {0};
    float rstd[ROWS] = {0};
    for (int i = 0; i < ROWS * N; i++)
        x[i] = (float)random[i];
    for (int i = 0; i < N; i++)
        weight[i] = (float)random[i + N];
    const lathe_arg args[] = {{"x", x, LATHE_F32, 2, shape, NULL},
                              {"y", y, LATHE_F32, 2, shape, NULL},
                              {"weight", weight, LATHE_F32, 1, weight_shape, NULL},
                              {"mean", mean, LATHE_F32, 1, shape, NULL},
                              {"rstd", rstd, LATHE_F32, 1, shape, NULL}};
    CHECK_EQ(forward(LAYER_NORM, args, 5, rows, 2), LATHE_OK);
    for (int row = 0; row < ROWS; row++) {
        double expected[N];
        double expected_mean;
        double expected_rstd;
        naive_layer_norm(x + row * N, weight, N, expected, &expected_mean, &expected_rstd);
        const bool chosen = row == 1 || row == 4;
        for (int i = 0; i < N; i++)
            CHECK_CLOSE((double)y[row * N + i], chosen ? expected[i] : 0.0, 1e-7);
        CHECK_CLOSE((double)mean[row], chosen ? expected_mean : 0.0, 1e-7);
        CHECK_CLOSE((double)rstd[row], chosen ? expected_rstd : 0.0, 1e-7);
    }
    free(random);
}

/* x without leading dims is one row; at.row and at.i count; a result per row is spread. */
TEST(rowwise_indices)
{
    const int64_t one_row[] = {4};
    const int64_t two_rows[] = {2, 2, 3};
    double x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    double y[12] = {0};
    lathe_arg args[] = {{"x", x, LATHE_F64, 1, one_row, NULL}, {"y", y, LATHE_F64, 1, one_row, NULL}};
    CHECK_EQ(forward("return rowwise { forward = function(x, at) return x * at.i end }", args, 2, NULL, 0),
             LATHE_OK);
    for (int i = 0; i < 4; i++)
        CHECK(y[i] == (i + 1.0) * i);
    args[0].ndim = args[1].ndim = 3;
    args[0].shape = args[1].shape = two_rows;
    CHECK_EQ(forward("return rowwise { forward = function(x, at) return rowsum(x) + 100.0 * at.row end }",
                     args, 2, NULL, 0),
             LATHE_OK);
    for (int i = 0; i < 12; i++)
        CHECK(y[i] == 9.0 * (i / 3) + 6.0 + 100.0 * (i / 3));
}
