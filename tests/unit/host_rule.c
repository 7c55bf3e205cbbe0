/*
 * host_rule.c: linear attention with a reader and a writer on the host device: all gradients against complex
 * steps of a recurrence that is written out here, and o and the last state with them. Specs are text in the
 * test.
 */
#include "linear_bench.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>

/* One head of each batch, all tensors contiguous: a recurrence that knows nothing of the one that is tested,
   on numbers of which one has an imaginary part. What delta stands for is written out. */
struct token_rule {
    bool delta, first;
    int64_t t, d, d_v;
    double complex *q, *k, *v, *g, *a, *w, *beta, *state;
    const double *out, *dstate; /* do, dstate_out */
};

static double complex rule_loss(const struct token_rule *r)
{
    double complex s[64];
    double complex u[8];
    double complex loss = 0;
    memcpy(s, r->state, (size_t)(r->d * r->d_v) * sizeof *s);
    for (int64_t t = 0; t < r->t; t++) {
        const int64_t at = t * r->d;
        for (int64_t j = 0; j < r->d_v; j++) {
            u[j] = 0;
            for (int64_t i = 0; i < r->d; i++)
                u[j] += r->a[at + i] * s[i * r->d_v + j] * (r->first ? 1 : cexp(r->g[at + i]));
            for (int64_t i = 0; i < r->d; i++) {
                const double complex v = r->v[t * r->d_v + j];
                const double complex new = r->delta ? r->w[at + i] * r->beta[t] * (v - u[j])
                                                    : r->w[at + i] * u[j] + r->k[at + i] * v;
                s[i * r->d_v + j] = s[i * r->d_v + j] * cexp(r->g[at + i]) + new;
                loss += r->q[at + i] * s[i * r->d_v + j] * r->out[t * r->d_v + j];
            }
        }
    }
    for (int64_t i = 0; i < r->d * r->d_v; i++)
        loss += s[i] * r->dstate[i];
    return loss;
}

/* Of head `head`: the tensor, which the recurrence has as complex numbers. */
static double complex *complex_of(struct bench *b, const char *name, int64_t head, int64_t n)
{
    double complex *to = calloc((size_t)n, sizeof *to);
    CHECK(to != NULL);
    for (int64_t i = 0; i < n && find(b, name); i++)
        to[i] = data(b, name)[head * n + i];
    return to;
}

static void check_steps(struct bench *b, const struct token_rule *r, const char *name, double complex *x,
                        int64_t head, int64_t n)
{
    static const double STEP = 1e-30;
    for (int64_t i = 0; i < n && find(b, name); i++) {
        const double complex was = x[i];
        x[i] += STEP * (double complex)I;
        CHECK_CLOSE(data(b, name)[head * n + i], cimag(rule_loss(r)) / STEP, 1e-12);
        x[i] = was;
    }
}

/* <o, do> + <state_out, dstate_out> of a head, as the host device has made them. */
static double loss_of(struct bench *b, const struct token_rule *r, int64_t head)
{
    const int64_t values = r->t * r->d_v;
    const int64_t state = r->d * r->d_v;
    double sum = 0;
    for (int64_t i = 0; i < values; i++)
        sum += data(b, "o")[head * values + i] * r->out[i];
    for (int64_t i = 0; i < state; i++)
        sum += data(b, "state_out")[head * state + i] * r->dstate[i];
    return sum;
}

static void check_rule(const char *text, bool delta, bool first)
{
    static const struct size ONE = {.b = 2, .h = 1, .h_k = 1, .t = 9, .d = 6, .d_v = 4};
    struct bench b;
    open_bench(&b, text, &ONE);
    CHECK_EQ(run(&b, 0), LATHE_OK);
    CHECK_EQ(run(&b, 1), LATHE_OK);
    for (int64_t n = 0; n < ONE.b; n++) {
        struct token_rule r = {.delta = delta, .first = first, .t = ONE.t, .d = ONE.d, .d_v = ONE.d_v};
        const int64_t keys = r.t * r.d;
        const int64_t values = r.t * r.d_v;
        r.q = complex_of(&b, "q", n, keys);
        r.k = complex_of(&b, "k", n, keys);
        r.v = complex_of(&b, "v", n, values);
        r.g = complex_of(&b, "g", n, keys);
        r.a = complex_of(&b, "a", n, keys);
        r.w = complex_of(&b, "w", n, keys);
        r.beta = complex_of(&b, "beta", n, r.t);
        r.state = complex_of(&b, "state", n, r.d * r.d_v);
        r.out = data(&b, "do") + n * values;
        r.dstate = data(&b, "dstate_out") + n * r.d * r.d_v;
        CHECK_CLOSE(loss_of(&b, &r, n), creal(rule_loss(&r)), 1e-12);
        check_steps(&b, &r, "dq", r.q, n, keys);
        check_steps(&b, &r, "dk", r.k, n, keys);
        check_steps(&b, &r, "dv", r.v, n, values);
        check_steps(&b, &r, "dg", r.g, n, keys);
        check_steps(&b, &r, "da", r.a, n, keys);
        check_steps(&b, &r, "dw", r.w, n, keys);
        check_steps(&b, &r, "dbeta", r.beta, n, r.t);
        check_steps(&b, &r, "dstate", r.state, n, r.d * r.d_v);
        double complex *const block[] = {r.q, r.k, r.v, r.g, r.a, r.w, r.beta, r.state};
        for (size_t i = 0; i < sizeof block / sizeof *block; i++)
            free(block[i]);
    }
    close_bench(&b);
}

TEST(gradients_of_the_rule_are_complex_steps)
{
    static const char inputs[] =
        "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }),\n"
        "    a = tensor('float', 'b', 'h', 't', 'd', { grad = true }),\n"
        "    w = tensor('float', 'b', 'h', 't', 'd', { grad = true })%s }, scale = 1.0,\n"
        "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,\n"
        "  reader = function(_, at, x) return x.a(at.b, at.h, at.t, at.i) end,\n"
        "  writer = function(_, at, x) return x.w(at.b, at.h, at.t, at.i) end, read_first = %s%s }";
    for (int i = 0; i < 4; i++) {
        char text[1024];
        const bool delta = i % 2 != 0;
        const bool first = i / 2 != 0;
        snprintf(text, sizeof text, inputs,
                 delta ? ",\n beta = tensor('float', 'b', 'h', 't', { grad = true })" : "",
                 first ? "true" : "false",
                 delta ? ",\n  delta = function(at, x) return x.beta(at.b, at.h, at.t) end" : "");
        check_rule(text, delta, first);
    }
}
