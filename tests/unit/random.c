/*
 * random.c: Philox4x32 against the known answers of its authors' library (Random123, kat_vectors), random()
 * against Philox written out here, and its statistics: what chance allows at four deviations.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

TEST(known_answers)
{
    static const struct {
        int rounds;
        uint32_t counter[4], key[2], word[4];
    } KNOWN[] = {
        {7, {0, 0, 0, 0}, {0, 0}, {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
        {7,
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
        {7,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
        {10, {0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {10,
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {10,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        uint32_t word[4];
        philox4x32(KNOWN[i].rounds, KNOWN[i].counter, KNOWN[i].key, word);
        for (int k = 0; k < 4; k++)
            CHECK_EQ(word[k], KNOWN[i].word[k]);
    }
}

/* The README's words: the word by bits 0 and 3 of kv, of the counter without them. */
TEST(which_word_it_is)
{
    static const int32_t at[][5] = {{0, 0, 0, 0, 0},
                                    {1, 2, 3, 4, 5},
                                    {-1, 7, 31, 70000, 65544},
                                    {123456789, 0, 5, -3, 9},
                                    {5, 1, 0, 2, -1}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const int32_t *a = at[i];
        const uint32_t kv = (uint32_t)a[4];
        const uint32_t rest = kv - kv % 2 - (kv / 8 % 2) * 8;
        uint32_t word[4];
        philox4x32(7, (uint32_t[]){(uint32_t)a[3], rest, (uint32_t)a[2], (uint32_t)a[1]},
                   (uint32_t[]){(uint32_t)a[0], 0}, word);
        const double expected = (double)(word[kv % 2 + 2 * (kv / 8 % 2)] / 256) / 16777216.0;
        CHECK(random_uniform(a[0], a[1], a[2], a[3], a[4]) == expected);
        CHECK(expected >= 0.0 && expected < 1.0);
    }
}

enum { SIDE = 512 };

/* Mean and variance of the uniform distribution, and no correlation between neighbours of any kind. */
TEST(uniform_and_independent)
{
    static const int32_t step[][4] = {{0, 0, 0, 1}, {0, 0, 0, 2}, {0, 0, 0, 8},
                                      {0, 0, 1, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}};
    const double n = (double)SIDE * SIDE;
    double sum = 0.0;
    double square = 0.0;
    double product[6] = {0.0};
    double seeds = 0.0;
    for (int32_t q = 0; q < SIDE; q++)
        for (int32_t kv = 0; kv < SIDE; kv++) {
            const double u = random_uniform(42, 1, 2, q, kv) - 0.5;
            sum += u;
            square += u * u;
            seeds += u * (random_uniform(43, 1, 2, q, kv) - 0.5);
            for (int k = 0; k < 6; k++)
                product[k] +=
                    u * (random_uniform(42, 1 + step[k][0], 2 + step[k][1], q + step[k][2], kv + step[k][3]) -
                         0.5);
        }
    CHECK(fabs(sum / n) < 4.0 * sqrt(1.0 / 12.0 / n));
    CHECK(fabs(square / n - 1.0 / 12.0) < 4.0 * sqrt(1.0 / 180.0 / n));
    CHECK(fabs(seeds / n) < 4.0 / 12.0 / sqrt(n));
    for (int k = 0; k < 6; k++)
        CHECK(fabs(product[k] / n) < 4.0 / 12.0 / sqrt(n));
}

/* Sixteen boxes: chi squared of 15 degrees of freedom, mean 15, deviation sqrt(30). */
TEST(boxes_are_filled_evenly)
{
    double count[16] = {0.0};
    double chi = 0.0;
    const double expected = (double)SIDE * SIDE / 16.0;
    for (int32_t q = 0; q < SIDE; q++)
        for (int32_t kv = 0; kv < SIDE; kv++)
            count[(int)(random_uniform(-9, 0, 0, q, kv) * 16.0)] += 1.0;
    for (int k = 0; k < 16; k++)
        chi += (count[k] - expected) * (count[k] - expected) / expected;
    CHECK(chi > 15.0 - 4.0 * sqrt(30.0) / 2.0 && chi < 15.0 + 4.0 * sqrt(30.0));
}

/* ---- dropout ------------------------------------------------------------------------------------- */

enum { B = 2, H = 4, H_KV = 2, Q = 5, KV = 21, D = 3, D_V = 4 };
static const int64_t Q_SHAPE[] = {B, H, Q, D};
static const int64_t K_SHAPE[] = {B, H_KV, KV, D};
static const int64_t V_SHAPE[] = {B, H_KV, KV, D_V};
static const int64_t O_SHAPE[] = {B, H, Q, D_V};

struct attention {
    double q[B][H][Q][D], k[B][H_KV][KV][D], v[B][H_KV][KV][D_V], dout[B][H][Q][D_V], dlse[B][H][Q];
    double o[B][H][Q][D_V], lse[B][H][Q];
    double dq[B][H][Q][D], dk[B][H_KV][KV][D], dv[B][H_KV][KV][D_V];
};

static void fill(double *x, size_t n, double seed)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 1.5 * sin(seed + 1.7 * (double)i);
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* What a weight is multiplied by. */
static double kept(double p, int32_t seed, int b, int h, int row, int kv)
{
    const int q = row + KV - Q;
    const uint32_t place = (uint32_t)(kv - kv % 2 - kv / 8 % 2 * 8);
    uint32_t word[4];
    philox4x32(7, (uint32_t[]){(uint32_t)q, place, (uint32_t)h, (uint32_t)b}, (uint32_t[]){(uint32_t)seed, 0},
               word);
    return (double)(word[kv % 2 + 2 * (kv / 8 % 2)] >> 8) * 0x1p-24 >= p ? 1.0 / (1.0 - p) : 0.0;
}

static void row_by_hand(struct attention *t, double p, int32_t seed, int b, int h, int i)
{
    const int g = h / (H / H_KV);
    const double scale = 1.0 / sqrt((double)D);
    double w[KV];
    double dw[KV];
    double sum = 0.0;
    double delta = 0.0;
    for (int j = 0; j < KV; j++)
        sum += w[j] = exp(scale * dot(t->q[b][h][i], t->k[b][g][j], D));
    t->lse[b][h][i] = log(sum);
    for (int j = 0; j < KV; j++) {
        w[j] /= sum;
        dw[j] = kept(p, seed, b, h, i, j) * dot(t->dout[b][h][i], t->v[b][g][j], D_V);
        delta += w[j] * dw[j];
        for (int e = 0; e < D_V; e++) {
            t->o[b][h][i][e] += kept(p, seed, b, h, i, j) * w[j] * t->v[b][g][j][e];
            t->dv[b][g][j][e] += kept(p, seed, b, h, i, j) * w[j] * t->dout[b][h][i][e];
        }
    }
    for (int j = 0; j < KV; j++) {
        const double ds = w[j] * (dw[j] - delta + t->dlse[b][h][i]);
        for (int e = 0; e < D; e++) {
            t->dq[b][h][i][e] += scale * ds * t->k[b][g][j][e];
            t->dk[b][g][j][e] += scale * ds * t->q[b][h][i][e];
        }
    }
}

static void reset(struct attention *t)
{
    memset(t, 0, sizeof *t);
    fill(&t->q[0][0][0][0], sizeof t->q / sizeof(double), 0.1);
    fill(&t->k[0][0][0][0], sizeof t->k / sizeof(double), 0.2);
    fill(&t->v[0][0][0][0], sizeof t->v / sizeof(double), 0.3);
    fill(&t->dout[0][0][0][0], sizeof t->dout / sizeof(double), 0.4);
    fill(&t->dlse[0][0][0], sizeof t->dlse / sizeof(double), 0.5);
}

static void by_hand(struct attention *t, double p, int32_t seed)
{
    reset(t);
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < Q; i++)
                row_by_hand(t, p, seed, b, h, i);
}

/* Both passes of a shipped spec; p and seed are given where it takes them. */
static void by_spec(struct attention *t, const char *name, float p, int32_t seed)
{
    reset(t);
    struct ir *ir = load_spec(name);
    struct signature sig;
    lathe_error err = {.status = LATHE_OK};
    const lathe_arg args[] = {
        {"q", t->q, LATHE_F64, 4, Q_SHAPE, NULL},
        {"k", t->k, LATHE_F64, 4, K_SHAPE, NULL},
        {"v", t->v, LATHE_F64, 4, V_SHAPE, NULL},
        {"o", t->o, LATHE_F64, 4, O_SHAPE, NULL},
        {"lse", t->lse, LATHE_F64, 3, Q_SHAPE, NULL},
        {"do", t->dout, LATHE_F64, 4, O_SHAPE, NULL},
        {"dlse", t->dlse, LATHE_F64, 3, Q_SHAPE, NULL},
        {"dq", t->dq, LATHE_F64, 4, Q_SHAPE, NULL},
        {"dk", t->dk, LATHE_F64, 4, K_SHAPE, NULL},
        {"dv", t->dv, LATHE_F64, 4, V_SHAPE, NULL},
        {"p", &p, LATHE_F32, 0, NULL, NULL},
        {"seed", &seed, LATHE_I32, 0, NULL, NULL},
    };
    lathe_arg some[12];
    const int scalars = ir->n_inputs; /* both, or none */
    memcpy(some, args, 5 * sizeof *args);
    memcpy(some + 5, args + 10, 2 * sizeof *args);
    signature_make(ir, LATHE_FORWARD, &sig);
    CHECK_EQ(host_forward(ir, &sig, some, 5 + scalars, NULL, 0, &err), LATHE_OK);
    signature_make(ir, LATHE_BACKWARD, &sig);
    CHECK_EQ(host_backward(ir, &sig, args, 10 + scalars, &err), LATHE_OK);
    ir_free(ir);
}

static void same(const struct attention *a, const struct attention *b, double tolerance)
{
    const double *x = &a->o[0][0][0][0]; /* from o to the end of dv */
    const double *y = &b->o[0][0][0][0];
    const size_t n = (sizeof *a - offsetof(struct attention, o)) / sizeof(double);
    for (size_t i = 0; i < n; i++)
        CHECK_CLOSE(x[i], y[i], tolerance);
}

TEST(dropout_by_hand)
{
    static const double rate[] = {0.25, 0.5, 0.875};
    static struct attention given;
    static struct attention expected;
    for (int i = 0; i < 3; i++) {
        by_spec(&given, "dropout", (float)rate[i], 1234567 * (i - 1));
        by_hand(&expected, rate[i], 1234567 * (i - 1));
        same(&given, &expected, 1e-12);
    }
}

/* p = 0 is softmax to the last bit; p = 1 leaves nothing, and no NaN. */
TEST(dropout_of_none_and_of_all)
{
    static struct attention none;
    static struct attention all;
    static struct attention full;
    by_spec(&none, "dropout", 0.0F, 99);
    by_spec(&full, "full", 0.0F, 0);
    same(&none, &full, 0.0);
    by_spec(&all, "dropout", 1.0F, 99);
    for (int i = 0; i < B * H * Q * D_V; i++)
        CHECK((&all.o[0][0][0][0])[i] == 0.0);
    for (int i = 0; i < B * H_KV * KV * D_V; i++)
        CHECK((&all.dv[0][0][0][0])[i] == 0.0);
    for (int i = 0; i < B * H * Q; i++)
        CHECK((&all.lse[0][0][0])[i] == (&full.lse[0][0][0])[i]);
}

/* As many are kept as p says, over rows, columns, heads and seeds. */
TEST(dropout_keeps_its_share)
{
    static const double rate[] = {0.1, 0.25, 0.5, 0.9};
    for (int i = 0; i < 4; i++) {
        double count = 0.0;
        const double n = 8.0 * SIDE * SIDE;
        for (int32_t part = 0; part < 8; part++)
            for (int32_t q = 0; q < SIDE; q++)
                for (int32_t kv = 0; kv < SIDE; kv++)
                    count += random_uniform(i + 100 * (part % 2), part / 4, part / 2 % 2, q, kv) >= rate[i];
        CHECK(fabs(count / n - (1.0 - rate[i])) < 4.0 * sqrt(rate[i] * (1.0 - rate[i]) / n));
    }
}
