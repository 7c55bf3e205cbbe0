/*
 * row_scans.c: scans along rows, and parameters of groups of rows, against formulas written out by hand in
 * double precision, forward and backward, on the host device. As in row_ops.c nothing here goes through the
 * evaluator.
 */
#include "row_call.h"

/* ---- scans
 * -------------------------------------------------------------------------------------------------- */

TEST(sums_up_to_and_from_each_element)
{
    for (int s = 0; s < 2 * N_SIZES; s++) {
        const int r = SIZES[s / 2][0];
        const int n = SIZES[s / 2][1];
        const bool reverse = s % 2;
        struct call c;
        double want[MAX_SIZE];
        double dx_want[MAX_SIZE];
        open_call(&c, reverse ? "revcumsum" : "cumsum");
        const double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int k = 0; k < r; k++) {
            double up = 0;
            double down = 0;
            for (int i = 0; i < n; i++) {
                const int left = k * n + i;
                const int right = k * n + n - 1 - i;
                (reverse ? dx_want : want)[left] = up += (reverse ? dy : x)[left];
                (reverse ? want : dx_want)[right] = down += (reverse ? x : dy)[right];
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        close_call(&c);
    }
}

/* Sequences of 3, 1 and 4 steps, in chunks of 2: nothing crosses a boundary, in either direction. */
TEST(sums_in_chunks_of_packed_sequences)
{
    enum { T = 8, C = 3 };
    static const int32_t SINCE[T] = {0, 1, 2, 0, 0, 1, 2, 3};
    static const int BEGIN[2][T] = {{0, 0, 2, 3, 4, 4, 6, 6},
                                    {0, 0, 0, 3, 4, 4, 4, 4}}; /* of the segment of each step */
    static const int64_t SHAPE[] = {T, C};
    static const int64_t STEPS[] = {T};
    for (int whole_sequences = 0; whole_sequences < 2; whole_sequences++) {
        const double scale = whole_sequences ? 1.0 : 0.5;
        struct call c;
        double want[T * C] = {0};
        double dx_want[T * C] = {0};
        open_call(&c, whole_sequences ? "cumsum_packed" : "chunk_cumsum");
        const double *x = add(&c, "x", GIVEN, SHAPE, 2);
        const double *dy = add(&c, "dy", SEED, SHAPE, 2);
        const double *y = add(&c, "y", RESULT, SHAPE, 2);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 2);
        memcpy(add(&c, "since", GIVEN, STEPS, 1), SINCE, sizeof SINCE);
        c.arg[c.n - 1].dtype = LATHE_I32;
        if (!whole_sequences) {
            whole(&c, "chunk", 2);
            scalar(&c, "scale", scale);
        }
        for (int t = 0; t < T; t++)
            for (int from = BEGIN[whole_sequences][t]; from <= t; from++)
                for (int k = 0; k < C; k++) {
                    want[t * C + k] += scale * x[from * C + k];
                    dx_want[from * C + k] += scale * dy[t * C + k];
                }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, T * C);
        same(dx, dx_want, T * C);
        close_call(&c);
    }
}

/* log of the sum of e^x from x[first] to x[last]. */
static double log_sum(const double *x, int first, int last)
{
    return lse_of(x + first, last - first + 1);
}

/* y_i = log sum_{j <= i} e^x_j, dx_j = sum_{i >= j} dy_i e^(x_j - y_i), and the same from the other end. x
   climbs by thousands: no e^x exists. */
TEST(logarithms_of_sums_up_to_and_from_each_element)
{
    for (int s = 0; s < 2 * N_SIZES; s++) {
        const int r = SIZES[s / 2][0];
        const int n = SIZES[s / 2][1];
        const bool reverse = s % 2;
        struct call c;
        double want[MAX_SIZE] = {0};
        double dx_want[MAX_SIZE] = {0};
        open_call(&c, reverse ? "revlogcumsumexp" : "logcumsumexp");
        double *x = rows(&c, "x", GIVEN, r, n);
        const double *dy = rows(&c, "dy", SEED, r, n);
        const double *y = rows(&c, "y", RESULT, r, n);
        const double *dx = rows(&c, "dx", GRADIENT, r, n);
        for (int i = 0; i < r * n; i++)
            x[i] = 2.0 * x[i] + (i % 50 == 0 ? 3000.0 * sin(i) : 0.0);
        for (int k = 0; k < r; k++)
            for (int i = 0; i < n; i++) {
                const double all = log_sum(x + k * n, reverse ? i : 0, reverse ? n - 1 : i);
                want[k * n + i] = all;
                for (int j = reverse ? i : 0; j <= (reverse ? n - 1 : i); j++)
                    dx_want[k * n + j] += dy[k * n + i] * exp(x[k * n + j] - all);
            }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, (int64_t)r * n);
        same(dx, dx_want, (int64_t)r * n);
        close_call(&c);
    }
}

/* -inf adds nothing and has no gradient; before the first finite element the sum is empty. Infinity and NaN
 * stay, from where they are on. */
TEST(logarithms_of_sums_with_infinities)
{
    enum { N = 6 };
    static const double X[3][N] = {{-(double)INFINITY, -(double)INFINITY, 1.0, -(double)INFINITY, 2.0, 0.5},
                                   {1.0, 2.0, (double)INFINITY, 3.0, 0.0, 1.0},
                                   {1.0, 2.0, (double)NAN, 3.0, 0.0, 1.0}};
    struct call c;
    open_call(&c, "logcumsumexp");
    double *x = rows(&c, "x", GIVEN, 3, N);
    const double *dy = rows(&c, "dy", SEED, 3, N);
    const double *y = rows(&c, "y", RESULT, 3, N);
    const double *dx = rows(&c, "dx", GRADIENT, 3, N);
    memcpy(x, X, sizeof X);
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    for (int i = 0; i < 2; i++) {
        CHECK(y[i] == -(double)INFINITY);
        CHECK(dx[i] == 0.0);
    }
    for (int i = 2; i < N; i++)
        CHECK_CLOSE(y[i], log_sum(x, 2, i), 1e-12);
    CHECK(dx[3] == 0.0);
    CHECK_CLOSE(dx[5], dy[5] * exp(0.5 - y[5]), 1e-12);
    for (int i = 2; i < N; i++) {
        CHECK(y[N + i] == (double)INFINITY);
        CHECK(isnan(y[2 * N + i]));
    }
    CHECK_CLOSE(y[2 * N + 1], log_sum(X[2], 0, 1), 1e-12);
    close_call(&c);
}

/* Sequences of 3, 1, 0 and 4 steps, whole and in chunks of 2. */
TEST(logarithms_of_sums_in_packed_sequences)
{
    enum { T = 8, C = 3 };
    static const int32_t SINCE[T] = {0, 1, 2, 0, 0, 1, 2, 3};
    static const int BEGIN[2][T] = {{0, 0, 0, 3, 4, 4, 4, 4}, {0, 0, 2, 3, 4, 4, 6, 6}};
    static const int64_t SHAPE[] = {T, C};
    static const int64_t STEPS[] = {T};
    for (int chunked = 0; chunked < 2; chunked++) {
        struct call c;
        double dx_want[T * C] = {0};
        open_call(&c, "logcumsumexp_packed");
        const double *x = add(&c, "x", GIVEN, SHAPE, 2);
        const double *dy = add(&c, "dy", SEED, SHAPE, 2);
        const double *y = add(&c, "y", RESULT, SHAPE, 2);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 2);
        memcpy(add(&c, "since", GIVEN, STEPS, 1), SINCE, sizeof SINCE);
        c.arg[c.n - 1].dtype = LATHE_I32;
        if (chunked)
            whole(&c, "chunk", 2);
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        for (int t = 0; t < T; t++)
            for (int k = 0; k < C; k++) {
                double sum = 0.0;
                for (int from = BEGIN[chunked][t]; from <= t; from++)
                    sum += exp(x[from * C + k]);
                CHECK_CLOSE(y[t * C + k], log(sum), 1e-12);
                for (int from = BEGIN[chunked][t]; from <= t; from++)
                    dx_want[from * C + k] += dy[t * C + k] * exp(x[from * C + k]) / sum;
            }
        same(dx, dx_want, T * C);
        close_call(&c);
    }
}

/* ---- group_norm: rows are groups, weights and biases of a channel of a group
 * ------------------------------------- */

/* x [b, groups, channels, width], the last two as one: the channel of an element, and its group, by their
 * places. */
TEST(group_norm_with_a_weight_of_each_channel)
{
    enum {
        B = 3,
        GROUPS = 4,
        CHANNELS = 3,
        WIDTH = 5,
        N = CHANNELS * WIDTH,
        ROWS = B * GROUPS,
        PARAMS = GROUPS * CHANNELS
    };
    static const int64_t SHAPE[] = {B, GROUPS, N};
    static const int64_t TABLE[] = {GROUPS, CHANNELS};
    for (int mean_kept = 0; mean_kept < 2; mean_kept++) { /* layer norm of a group, or rms norm */
        struct call c;
        double want[ROWS * N];
        double dx_want[ROWS * N];
        double dw_want[PARAMS] = {0};
        double db_want[PARAMS] = {0};
        open_call(&c, mean_kept ? "group_rms_norm" : "group_norm");
        const double *x = add(&c, "x", GIVEN, SHAPE, 3);
        const double *dy = add(&c, "dy", SEED, SHAPE, 3);
        const double *y = add(&c, "y", RESULT, SHAPE, 3);
        const double *dx = add(&c, "dx", GRADIENT, SHAPE, 3);
        const double *w = add(&c, "weight", GIVEN, TABLE, 2);
        const double *dw = add(&c, "dweight", GRADIENT, TABLE, 2);
        const double *b = mean_kept ? NULL : add(&c, "bias", GIVEN, TABLE, 2);
        const double *db = mean_kept ? NULL : add(&c, "dbias", GRADIENT, TABLE, 2);
        whole(&c, "groups", GROUPS);
        whole(&c, "channels", CHANNELS);
        scalar(&c, "eps", 1e-5);
        for (int k = 0; k < ROWS; k++) {
            double mean = 0;
            double square = 0;
            double u_sum = 0;
            double ux_sum = 0;
            for (int i = 0; i < N && !mean_kept; i++)
                mean += x[k * N + i] / N;
            for (int i = 0; i < N; i++)
                square += (x[k * N + i] - mean) * (x[k * N + i] - mean) / N;
            const double rstd = 1.0 / sqrt(square + 1e-5);
            for (int i = 0; i < N; i++) {
                const int at = k * N + i;
                const int param = k % GROUPS * CHANNELS + i / WIDTH;
                const double norm = (x[at] - mean) * rstd;
                want[at] = norm * w[param] + (b ? b[param] : 0.0);
                dw_want[param] += dy[at] * norm;
                db_want[param] += dy[at];
                u_sum += mean_kept ? 0.0 : dy[at] * w[param] / N;
                ux_sum += dy[at] * w[param] * norm / N;
            }
            for (int i = 0; i < N; i++) {
                const int at = k * N + i;
                const int param = k % GROUPS * CHANNELS + i / WIDTH;
                dx_want[at] = (dy[at] * w[param] - u_sum - (x[at] - mean) * rstd * ux_sum) * rstd;
            }
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        same(y, want, ROWS * N);
        same(dx, dx_want, ROWS * N);
        same(dw, dw_want, PARAMS);
        if (db)
            same(db, db_want, PARAMS);
        close_call(&c);
    }
}

/* ---- means over chunks of packed sequences
 * ----------------------------------------------------------------------- */

/* Lengths 3, 0, 1, 4 and 2 in chunks of 2: the tails of the first and the third divide by 1, the empty one
 * has no chunk. */
TEST(means_over_chunks_of_packed_sequences)
{
    enum { SEQUENCES = 5, TOKENS = 10, D = 3, CHUNK = 2, CHUNKS = 6 };
    static const int32_t LENGTHS[SEQUENCES] = {3, 0, 1, 4, 2};
    static const int64_t SHAPE[] = {TOKENS, D};
    static const int64_t MEANS[] = {CHUNKS, D};
    static const int64_t NUMBERS[] = {CHUNKS};
    static const int64_t STEPS[] = {CHUNK};
    struct call c;
    int32_t first[CHUNKS];
    int32_t length[CHUNKS];
    double want[CHUNKS * D] = {0};
    double dx_want[TOKENS * D] = {0};
    int n = 0;
    int start = 0;
    for (int s = 0; s < SEQUENCES; s++) {
        for (int from = 0; from < LENGTHS[s]; from += CHUNK, n++) {
            first[n] = start + from;
            length[n] = LENGTHS[s] - from < CHUNK ? LENGTHS[s] - from : CHUNK;
        }
        start += LENGTHS[s];
    }
    CHECK_EQ(n, CHUNKS);
    open_call(&c, "mean_pool_packed");
    const double *x = add(&c, "values", GIVEN, SHAPE, 2);
    const double *dmean = add(&c, "dmean", SEED, MEANS, 2);
    const double *mean = add(&c, "mean", RESULT, MEANS, 2);
    const double *dx = add(&c, "dvalues", GRADIENT, SHAPE, 2);
    memcpy(add(&c, "first", GIVEN, NUMBERS, 1), first, sizeof first);
    c.arg[c.n - 1].dtype = LATHE_I32;
    memcpy(add(&c, "length", GIVEN, NUMBERS, 1), length, sizeof length);
    c.arg[c.n - 1].dtype = LATHE_I32;
    memcpy(add(&c, "place", GIVEN, STEPS, 1), (int32_t[]){0, 1}, CHUNK * sizeof(int32_t));
    c.arg[c.n - 1].dtype = LATHE_I32;
    run(&c, LATHE_FORWARD);
    run(&c, LATHE_BACKWARD);
    for (int k = 0; k < CHUNKS; k++)
        for (int t = first[k]; t < first[k] + length[k]; t++)
            for (int i = 0; i < D; i++) {
                want[k * D + i] += x[t * D + i] / length[k];
                dx_want[t * D + i] = dmean[k * D + i] / length[k];
            }
    same(mean, want, CHUNKS * D);
    same(dx, dx_want, TOKENS * D);
    close_call(&c);
}

/* ---- ranks ------------------------------------------------------------------------------------------- */

enum { RANKED = 24, CHOSEN = 8 };

/* Is an element in front of another one in falling order? NaN counts as -inf. */
static bool is_in_front(const double *x, int i, int j)
{
    const double a = isnan(x[i]) ? -(double)INFINITY : x[i];
    const double b = isnan(x[j]) ? -(double)INFINITY : x[j];
    return a > b || (a == b && i < j);
}

TEST(the_largest_of_a_row_are_kept_and_equal_ones_by_their_place)
{
    struct call c;
    double want[RANKED] = {0};
    double dx_want[RANKED] = {0};
    open_call(&c, "largest");
    double *x = rows(&c, "x", GIVEN, 1, RANKED);
    const double *dy = rows(&c, "dy", SEED, 1, RANKED);
    const double *y = rows(&c, "y", RESULT, 1, RANKED);
    const double *dx = rows(&c, "dx", GRADIENT, 1, RANKED);
    for (int live = RANKED; live >= 0; live -= 6) { /* fewer numbers than are asked for, at last, and none */
        for (int i = 0; i < RANKED; i++)
            x[i] = i >= live ? (i % 2 ? (double)NAN : -(double)INFINITY)
                   : i == 5  ? (double)INFINITY
                             : (double)(i * 7 % 5);
        for (int i = 0; i < RANKED; i++) {
            int before = 0;
            for (int k = 0; k < RANKED; k++)
                before += k != i && is_in_front(x, k, i);
            const bool chosen = before < CHOSEN;
            want[i] = chosen ? x[i] : 0.0;
            dx_want[i] = chosen ? dy[i] : 0.0;
        }
        run(&c, LATHE_FORWARD);
        run(&c, LATHE_BACKWARD);
        for (int i = 0; i < RANKED; i++) {
            CHECK(y[i] == want[i] || (isnan(y[i]) && isnan(want[i])));
            CHECK(dx[i] == dx_want[i]);
        }
    }
    close_call(&c);
}

/* ---- first elements ---------------------------------------------------------------------------------- */

enum { ORDERED = 3, SHORT = 5 };

/* The places of a row's elements in falling order. */
static void order_of(const double *x, int n, int *place)
{
    for (int i = 0; i < n; i++) {
        int before = 0;
        for (int k = 0; k < n; k++)
            before += k != i && is_in_front(x, k, i);
        place[before] = i;
    }
}

static void check_first(struct call *c, int n)
{
    const double *x = rows(c, "x", GIVEN, ORDERED, n);
    const double *values = rows(c, "values", RESULT, ORDERED, CHOSEN);
    const int32_t *places = (const int32_t *)(const void *)rows(c, "places", RESULT, ORDERED, CHOSEN);
    c->arg[c->n - 1].dtype = LATHE_I32;
    const double *dvalues = rows(c, "dvalues", SEED, ORDERED, CHOSEN);
    const double *dx = rows(c, "dx", GRADIENT, ORDERED, n);
    ((double *)c->data[0])[1] = (double)NAN;
    ((double *)c->data[0])[n + 1] = ((double *)c->data[0])[n + 3] = 7.0;
    run(c, LATHE_FORWARD);
    c->is_gradient[1] = c->is_gradient[2] = false;
    run(c, LATHE_BACKWARD);
    for (int r = 0; r < ORDERED; r++) {
        int place[RANKED];
        double want[RANKED] = {0};
        order_of(x + r * n, n, place);
        for (int k = 0; k < CHOSEN; k++) {
            const double value = k < n ? x[r * n + place[k]] : -(double)INFINITY;
            CHECK(values[r * CHOSEN + k] == value || (isnan(value) && isnan(values[r * CHOSEN + k])));
            CHECK_EQ(places[r * CHOSEN + k], k < n ? place[k] : -1);
            if (k < n)
                want[place[k]] = dvalues[r * CHOSEN + k];
        }
        same(dx + r * n, want, n);
    }
}

TEST(the_first_of_an_order_are_results_of_their_own_length)
{
    static const int LENGTH[] = {RANKED, CHOSEN, SHORT};
    for (size_t i = 0; i < sizeof LENGTH / sizeof *LENGTH; i++) {
        struct call c;
        open_call(&c, "topk");
        check_first(&c, LENGTH[i]);
        close_call(&c);
    }
}
