/*
 * chunks_back.c: the formulas by which linear/backward/keyed_delta.cuh goes back through the delta rule
 * behind a decay by key channel, in double precision, against the recurrence's gradients by complex steps
 * (exact to rounding). A chunk has blocks; what is left of one token when another one reads is a product of
 * what is left at the borders of their blocks, and no exponent is above 0. In: nothing; values are drawn from
 * a seed.
 */
#include "check.h"

#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { T = 29, CHUNK = 12, BLOCK = 4, D = 5, V = 4, CHUNKS = (T + CHUNK - 1) / CHUNK };
static const double SCALE = 0.7;

/* Everything that has a gradient, and the gradients; each a run of numbers. */
struct numbers {
    double q[T][D], k[T][D], v[T][V], g[T][D], beta[T], s[D][V];
};
enum { NUMBERS = sizeof(struct numbers) / sizeof(double) };
struct problem {
    struct numbers x;
    double out[T][V], end[D][V]; /* what flows back to o and to the last state */
};

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-52 - 1;
}

/* Keys are unit vectors; some decays leave 1e-9 of a channel, one beta is 0. */
static void fill(struct problem *p)
{
    uint64_t seed = 11;
    for (double *at = (double *)p; at < (double *)(p + 1); at++)
        *at = draw(&seed);
    for (int t = 0; t < T; t++) {
        double square = 0;
        for (int i = 0; i < D; i++) {
            square += p->x.k[t][i] * p->x.k[t][i];
            p->x.g[t][i] = (t * D + i) % 13 == 0 ? -20 : -fabs(p->x.g[t][i]);
        }
        for (int i = 0; i < D; i++)
            p->x.k[t][i] /= sqrt(square);
        p->x.beta[t] = t == 7 ? 0 : 0.5 + 0.5 * p->x.beta[t];
    }
}

/* <o, out> + <last state, end>, token by token, one number moved by an imaginary step. */
static double loss(const struct problem *p, int moved)
{
    static const double STEP = 1e-30;
    static double complex x[NUMBERS];
    static double complex s[D][V];
    double complex sum = 0;
    for (int n = 0; n < NUMBERS; n++)
        x[n] = ((const double *)&p->x)[n] +
               (n == moved ? STEP : 0) * (double complex)I; /* CMPLX is not in every clang */
    const double complex *q = x;
    const double complex *k = q + T * D;
    const double complex *v = k + T * D;
    const double complex *g = v + T * V;
    const double complex *beta = g + T * D;
    memcpy(s, beta + T, sizeof s);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < V; j++) {
            double complex seen = 0;
            double complex o = 0;
            for (int i = 0; i < D; i++) {
                s[i][j] *= cexp(g[t * D + i]);
                seen += k[t * D + i] * s[i][j];
            }
            for (int i = 0; i < D; i++) {
                s[i][j] += k[t * D + i] * beta[t] * (v[t * V + j] - seen);
                o += SCALE * q[t * D + i] * s[i][j];
            }
            sum += o * p->out[t][j];
        }
    for (int n = 0; n < D * V; n++)
        sum += (&s[0][0])[n] * (&p->end[0][0])[n];
    return cimag(sum) / STEP;
}

/* ---- a chunk ----------------------------------------------------------------------------------------- */

struct chunk {
    const struct problem *p;
    int first, n;
    double c[CHUNK][D], ends[CHUNK / BLOCK][D]; /* sums of logarithms from a block's start on; all of them */
    double a[CHUNK][CHUNK], t[CHUNK][CHUNK];    /* (1 + diag(beta) N)^-1 diag(beta) */
    double x[CHUNK][V], s[D][V];                /* what tokens write, the state in front */
};

static double left(double log)
{
    CHECK(log <= 0);
    return exp(log);
}

/* Of channel i, from one block's end to another one's start. */
static double between(const struct chunk *c, int from, int to, int i)
{
    double log = 0;
    for (int b = from + 1; b < to; b++)
        log += c->ends[b][i];
    return left(log);
}

static double reads(const struct chunk *c, int t, int i)
{
    return left(c->c[t][i]);
}

static double writes(const struct chunk *c, int t, int i)
{
    return left(c->ends[t / BLOCK][i] - c->c[t][i]);
}

/* What is left of token u, channel i, when token t reads. */
static double weight(const struct chunk *c, int t, int u, int i)
{
    if (t / BLOCK > u / BLOCK)
        return reads(c, t, i) * between(c, u / BLOCK, t / BLOCK, i) * writes(c, u, i);
    double all = 1;
    for (int w = u + 1; w <= t; w++)
        all *= left(c->p->x.g[c->first + w][i]);
    return all;
}

static double from_start(const struct chunk *c, int t, int i)
{
    return between(c, -1, t / BLOCK, i) * reads(c, t, i);
}

static double to_end(const struct chunk *c, int t, int i)
{
    return writes(c, t, i) * between(c, t / BLOCK, CHUNK / BLOCK, i);
}

static double whole(const struct chunk *c, int i)
{
    return between(c, -1, CHUNK / BLOCK, i);
}

static void prepare(struct chunk *c, const struct problem *p, int first)
{
    const struct numbers *x = &p->x;
    double n[CHUNK][CHUNK] = {{0}};
    memset(c, 0, sizeof *c);
    c->p = p;
    c->first = first;
    c->n = T - first < CHUNK ? T - first : CHUNK;
    for (int t = 0; t < c->n; t++)
        for (int i = 0; i < D; i++)
            c->ends[t / BLOCK][i] = c->c[t][i] = (t % BLOCK ? c->c[t - 1][i] : 0) + x->g[first + t][i];
    for (int t = 0; t < c->n; t++)
        for (int u = 0; u <= t; u++)
            for (int i = 0; i < D; i++) {
                const double key = x->k[first + u][i] * weight(c, t, u, i);
                c->a[t][u] += SCALE * x->q[first + t][i] * key;
                n[t][u] += u < t ? x->k[first + t][i] * key : 0;
            }
    for (int t = 0; t < c->n; t++)
        for (int u = 0; u <= t; u++) {
            double sum = t == u ? x->beta[first + u] : 0;
            for (int w = u; w < t; w++)
                sum -= x->beta[first + t] * n[t][w] * c->t[w][u];
            c->t[t][u] = sum;
        }
}

/* s becomes the state behind the chunk. */
static void go_forward(struct chunk *c, double (*s)[V])
{
    double r[CHUNK][V];
    memcpy(c->s, s, sizeof c->s);
    for (int t = 0; t < c->n; t++)
        for (int j = 0; j < V; j++) {
            r[t][j] = c->p->x.v[c->first + t][j];
            for (int i = 0; i < D; i++)
                r[t][j] -= c->p->x.k[c->first + t][i] * from_start(c, t, i) * s[i][j];
            for (int u = 0; u <= t; u++)
                c->x[t][j] += c->t[t][u] * r[u][j];
        }
    for (int i = 0; i < D; i++)
        for (int j = 0; j < V; j++) {
            s[i][j] *= whole(c, i);
            for (int t = 0; t < c->n; t++)
                s[i][j] += c->p->x.k[c->first + t][i] * to_end(c, t, i) * c->x[t][j];
        }
}

/* dv of the chunk from the gradient of the state behind it. */
static void solve_back(const struct chunk *c, double (*ds)[V], double (*dv)[V])
{
    double dx[CHUNK][V] = {{0}};
    for (int t = 0; t < c->n; t++)
        for (int j = 0; j < V; j++) {
            for (int u = t; u < c->n; u++)
                dx[t][j] += c->a[u][t] * c->p->out[c->first + u][j];
            for (int i = 0; i < D; i++)
                dx[t][j] += c->p->x.k[c->first + t][i] * to_end(c, t, i) * ds[i][j];
        }
    for (int t = 0; t < c->n; t++)
        for (int j = 0; j < V; j++)
            for (int u = t; u < c->n; u++)
                dv[t][j] += c->t[u][t] * dx[u][j];
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int j = 0; j < V; j++)
        sum += a[j] * b[j];
    return sum;
}

/* dq, dk as a reader and as a writer of one channel; returns what crosses the chunk's end. */
static double give_channel(const struct chunk *c, double (*ds)[V], double (*dv)[V], struct numbers *to, int i,
                           double *flow)
{
    const struct numbers *x = &c->p->x;
    double cross = whole(c, i) * dot(c->s[i], ds[i]);
    for (int t = 0; t < c->n; t++) {
        const int at = c->first + t;
        const double key = to_end(c, t, i) * dot(c->x[t], ds[i]);
        double query = from_start(c, t, i) * dot(c->p->out[at], c->s[i]);
        double reader = -from_start(c, t, i) * dot(dv[t], c->s[i]);
        double writer = key;
        for (int u = 0; u <= t; u++) {
            query += dot(c->p->out[at], c->x[u]) * x->k[c->first + u][i] * weight(c, t, u, i);
            reader -= u < t ? dot(dv[t], c->x[u]) * x->k[c->first + u][i] * weight(c, t, u, i) : 0;
        }
        for (int u = t; u < c->n; u++) {
            const double by = weight(c, u, t, i);
            writer += SCALE * dot(c->p->out[c->first + u], c->x[t]) * x->q[c->first + u][i] * by;
            writer -= u > t ? dot(dv[u], c->x[t]) * x->k[c->first + u][i] * by : 0;
        }
        to->q[at][i] = SCALE * query;
        to->k[at][i] = reader + writer;
        flow[t] = x->q[at][i] * SCALE * query + x->k[at][i] * (reader - writer);
        cross += x->k[at][i] * key;
    }
    return cross;
}

/* ds becomes the gradient of the state in front of the chunk. */
static void go_back(const struct chunk *c, double (*ds)[V], struct numbers *to)
{
    const struct numbers *x = &c->p->x;
    double dv[CHUNK][V] = {{0}};
    solve_back(c, ds, dv);
    memcpy(to->v[c->first], dv, (size_t)c->n * sizeof dv[0]);
    for (int i = 0; i < D; i++) {
        double flow[CHUNK];
        double behind = give_channel(c, ds, dv, to, i, flow);
        for (int t = c->n - 1; t >= 0; t--)
            to->g[c->first + t][i] = behind += flow[t];
    }
    for (int t = 0; t < c->n; t++) {
        const double beta = x->beta[c->first + t];
        to->beta[c->first + t] = beta > 0 ? dot(dv[t], c->x[t]) / (beta * beta) : (double)NAN;
    }
    for (int i = 0; i < D; i++)
        for (int j = 0; j < V; j++) {
            ds[i][j] *= whole(c, i);
            for (int t = 0; t < c->n; t++)
                ds[i][j] +=
                    from_start(c, t, i) * (SCALE * x->q[c->first + t][i] * c->p->out[c->first + t][j] -
                                           x->k[c->first + t][i] * dv[t][j]);
        }
}

TEST(the_delta_rule_by_key_channel_goes_back_in_chunks)
{
    static struct problem p;
    static struct chunk chunk[CHUNKS];
    static struct numbers gradient;
    fill(&p);
    memcpy(gradient.s, p.x.s, sizeof gradient.s);
    for (int n = 0; n < CHUNKS; n++) {
        prepare(&chunk[n], &p, n * CHUNK);
        go_forward(&chunk[n], gradient.s);
    }
    memcpy(gradient.s, p.end, sizeof gradient.s);
    for (int n = CHUNKS - 1; n >= 0; n--)
        go_back(&chunk[n], gradient.s, &gradient);
    for (int n = 0; n < NUMBERS; n++) {
        const double want = loss(&p, n);
        const double got = ((double *)&gradient)[n];
        const bool beta_0 = n == (int)(&p.x.beta[7] - (double *)&p.x); /* X / beta is no number there */
        CHECK(beta_0 ? isnan(got) : fabs(got - want) <= 1e-13 * (1 + fabs(want)));
    }
}
