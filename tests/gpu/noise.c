/*
 * noise.c: how far a result may move because a kernel rounds on the way, as a sample.
 *
 * In: a case, its values, and (backward pass of attention) the o that a forward pass saved. Out: the same
 * values moved by random amounts of the size of one rounding, for another launch of the reference; what its
 * results differ by from the first one's is what roundings of that size do to each row: much where terms
 * cancel, nothing where nothing contributes. The caller frees them.
 *
 * Moved is what a kernel rounds, or something with the same effect: query and key where the spec's mods make
 * them anew, or its score function is approximate; value and do for the rounded weights and slopes; the
 * gradient of lse for delta = sum o do with a rounded o; of f32, whose products are rounded, query and key of
 * every spec; row-wise, x, dy and the weight for sums in fp32, and the gradient of the statistic for the sum
 * that stands behind it.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Half of the largest relative rounding error of bf16: samples are of this size whatever the run's dtype is.
 */
static const double UNIT = 0x1p-9;
static const double SINGLE = 0x1p-23; /* a few roundings of fp32 */
enum { CHUNK = 64 }; /* tokens, behind which kernels of linear attention begin a gradient's sum anew */

/* Attention of f32, whose cases have no run of 16 bits: products of bf16 (templates/common/mma_f32.cuh). */
static bool has_products(const struct test_case *c)
{
    return !c->spec->rowwise && !c->sums && c->run[0].dtype == LATHE_F32;
}

double noise_size(const struct test_case *c, lathe_dtype dtype)
{
    if (has_products(c)) {
        return 0x1p-17 / UNIT; /* of a product: one lo that is rounded, of either factor */
    }
    if (c->spec->rowwise || dtype == LATHE_F32) {
        return SINGLE / UNIT; /* several roundings of fp32, and an approximate root */
    }
    return dtype == LATHE_F16 ? 0x1p-12 / UNIT : 1.0;
}

double sums_noise_size(lathe_dtype dtype)
{
    return dtype == LATHE_F32 ? SINGLE / UNIT : dtype == LATHE_F16 ? 0x1p-12 / UNIT : 1.0;
}

void sums_noise(double *moved, const double *value, int64_t count, const char *name, uint64_t *random)
{
    static const char *const ROUNDED[] = {"q", "k", "q2", "k2", "v", "do"};
    bool is_rounded = false;
    for (size_t i = 0; i < sizeof ROUNDED / sizeof *ROUNDED; i++) {
        is_rounded |= strcmp(name, ROUNDED[i]) == 0;
    }
    for (int64_t i = 0; i < count; i++) {
        moved[i] = is_rounded ? value[i] * (1.0 + UNIT * random_gaussian(random)) : value[i];
    }
}

/* The gradient of a decay's logarithm is what reads the state from its token on, q dq, less what writes it, k
 * dk, of its chunk. Most of their products q k v do are there twice and cancel, as those of a token with
 * itself always do, but each side adds them up in another order: what is left is a part of the products, of a
 * few roundings of fp32, and not of their difference. No value that is moved shows it, for then both sides
 * move alike. All tokens ahead of a product in its chunk have its error, so that an element to which all of
 * them add has it as often; where elements are of a token each has it once. An input of these specs moves a
 * logarithm by at most about as much as it is moved itself. */
double sums_left(double products, int64_t tokens, bool each)
{
    const double shared = tokens < CHUNK ? (double)tokens : (double)CHUNK;
    return SINGLE * products * (each ? sqrt(shared) : shared);
}

bool noise_matters(const struct test_case *c)
{
    return c->pass == LATHE_BACKWARD || c->spec->score_noise > 0.0;
}

/* Relative deviation of an argument's elements, in roundings. */
static double deviation_of(const struct test_case *c, const struct arg_row *row)
{
    const bool scores = strcmp(row->name, "q") == 0 || strcmp(row->name, "k") == 0 ||
                        strcmp(row->name, "q2") == 0 || strcmp(row->name, "k2") == 0;
    const bool weights = strcmp(row->name, "v") == 0 || strcmp(row->name, "do") == 0;
    if (c->spec->rowwise) {
        return row->role == ROLE_TENSOR || row->role == ROLE_INPUT ? 1.0 : 0.0;
    }
    const double score = has_products(c) ? fmax(c->spec->score_noise, 1.0) : c->spec->score_noise;
    return scores ? score : (weights && c->pass == LATHE_BACKWARD ? 1.0 : 0.0);
}

static const double *value_of(const struct case_data *data, const char *name, int64_t *count,
                              const struct test_case *c)
{
    for (int i = 0; i < data->n; i++) {
        if (data->value[i] && strcmp(data->row[i].name, name) == 0) {
            struct tensor t;
            tensor_shape(&t, &data->row[i], c);
            *count = t.count;
            return data->value[i];
        }
    }
    *count = 0;
    return NULL;
}

/* What one element of row `row` adds to the gradient of its statistic, or to delta, but for a factor near 1.
 */
static double term_of(const double *a, const double *b, const double *gain, int64_t n, int64_t row, int64_t i)
{
    return a[row * n + i] * b[row * n + i] * (gain ? gain[i] : 1.0);
}

/* The gradients of statistics, which the case may leave out: value + deviation of the sum behind it. */
static void move_seed(struct case_data *noisy, int seed, const struct test_case *c,
                      const struct case_data *data, int64_t rows, uint64_t *random)
{
    int64_t count = 0;
    int64_t more = 0;
    const double *const a = value_of(data, c->spec->rowwise ? "x" : "o", &count, c);
    const double *const b = value_of(data, c->spec->rowwise ? "dy" : "do", &more, c);
    const double *gain = c->spec->rowwise ? value_of(data, "weight", &more, c) : NULL;
    const int64_t n = rows > 0 ? count / rows : 0;
    gain = more == n ? gain : NULL; /* one that is read at other places is near 1, too */
    for (int64_t row = 0; row < rows && a && b; row++) {
        double squares = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const double term = term_of(a, b, gain, n, row, i);
            squares += term * term;
        }
        noisy->value[seed][row] += UNIT * sqrt(squares) * random_gaussian(random);
    }
}

static bool is_moved_seed(const struct test_case *c, const struct arg_row *row)
{
    return row->role == ROLE_SEED && c->spec->seed_noise && strcmp(row->name, c->spec->seed_noise) == 0;
}

static bool move_argument(struct case_data *noisy, int i, const struct test_case *c,
                          const struct case_data *data, uint64_t *random)
{
    struct tensor t;
    const struct arg_row *row = &noisy->row[i];
    tensor_shape(&t, row, c);
    if (!data->value[i] && !is_moved_seed(c, row)) {
        return true;
    }
    noisy->value[i] = calloc(t.count > 0 ? (size_t)t.count : 1, sizeof *noisy->value[i]);
    if (!noisy->value[i]) {
        return false;
    }
    const double deviation = UNIT * deviation_of(c, row);
    for (int64_t k = 0; k < t.count && data->value[i] && t.given; k++) {
        const double value = data->value[i][k];
        noisy->value[i][k] = deviation > 0.0 ? value * (1.0 + deviation * random_gaussian(random)) : value;
    }
    if (is_moved_seed(c, row)) {
        move_seed(noisy, i, c, data, t.count, random);
        noisy->row[i].role = ROLE_TENSOR; /* given, whatever the case leaves out */
        noisy->row[i].optional = false;
    }
    return true;
}

bool noise_data_open(struct case_data *noisy, const struct test_case *c, const struct case_data *data,
                     int sample)
{
    uint64_t random = c->seed * 2 + (uint64_t)sample + 99;
    memset(noisy, 0, sizeof *noisy);
    noisy->n = data->n;
    memcpy(noisy->row, data->row, sizeof noisy->row);
    for (int i = 0; i < data->n; i++) {
        if (!move_argument(noisy, i, c, data, &random)) {
            return false;
        }
    }
    return true;
}
