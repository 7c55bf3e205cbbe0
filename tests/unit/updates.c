/*
 * updates.c: linear attention whose tokens make several updates of the state, on the host device, against a
 * plain recurrence in complex numbers; its gradients against that recurrence's by complex steps. In: text of
 * specs. Nothing else. Out: failures.
 */
#include "linear_bench.h"

#include <complex.h>
#include <stdio.h>

enum { N = 3, D = 3, V = 2, MOST_NUMBERS = 4096, MOST_T = 9 };
static const double STEP = 1e-30;

/* The delta rule behind a decay by token: betas of updates. */
#define TEXT                                                                                                 \
    "return linear_attention { updates = 3,\n"                                                               \
    "  inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }),\n"                                    \
    "             beta = tensor('float', 'b', 'h', 't', 3, { grad = true }) },\n"                            \
    "  key_mod = function(k, at) return k + 0.1 * at.update + 0.01 * at.pos end,\n"                          \
    "  decay = function(at, x) return x.g(at.b, at.h, at.t) end,\n"                                          \
    "  delta = function(at, x) return x.beta(at.b, at.h, at.t, at.update) end "

struct side { /* numbers of the spec's arguments, of which one has moved */
    struct bench *b;
    const char *moved;
    int64_t at;
};

static double complex number(const struct side *s, const char *name, int64_t i)
{
    const bool moves = s->moved && strcmp(s->moved, name) == 0 && s->at == i;
    return data(s->b, name)[i] + (moves ? STEP : 0) * (double complex)I;
}

struct head { /* of a sequence: its tokens are first .. first + n - 1 of t of batch `row` */
    int64_t row, sequence, h, first, n;
};

static int64_t shared(const struct bench *b, int64_t h)
{
    return h / (b->size.h / b->size.h_k);
}

/* One update: number u of token t, in the order of memory. */
static void update(const struct side *s, const struct head *at, int64_t t, int u, double complex S[D][V])
{
    const struct size *z = &s->b->size;
    const int64_t token = (at->row * z->h + at->h) * z->t + at->first + t;
    const int64_t row = (at->row * z->h + at->h) * z->t * N + (at->first + t) * N + u;
    const int64_t key = (at->row * z->h_k + shared(s->b, at->h)) * z->t * N + (at->first + t) * N + u;
    double complex k[D];
    for (int i = 0; i < D; i++)
        k[i] = number(s, "k", key * D + i) + 0.1 * u + 0.01 * (double)t;
    for (int j = 0; j < V; j++) {
        double complex seen = 0;
        for (int i = 0; i < D; i++)
            seen += k[i] * S[i][j];
        const double complex add = number(s, "beta", token * N + u) * (number(s, "v", row * V + j) - seen);
        for (int i = 0; i < D; i++)
            S[i][j] += k[i] * add;
    }
}

/* <o, do> of a token behind its updates; o: written, where it is wanted. */
static double complex read_token(const struct side *s, const struct head *at, int64_t t,
                                 double complex S[D][V], double *o)
{
    const struct size *z = &s->b->size;
    const int64_t query = (at->row * z->h_k + shared(s->b, at->h)) * z->t + at->first + t;
    const int64_t row = (at->row * z->h + at->h) * z->t + at->first + t;
    double complex sum = 0;
    for (int j = 0; j < V; j++) {
        double complex x = 0;
        for (int i = 0; i < D; i++)
            x += number(s, "q", query * D + i) * S[i][j] / csqrt(D);
        sum += x * data(s->b, "do")[row * V + j];
        if (o)
            o[row * V + j] = creal(x);
    }
    return sum;
}

static double complex run_head(const struct side *s, const struct head *at, double *o, double *state)
{
    const struct size *z = &s->b->size;
    const bool reverse = s->b->ir->linear.reverse;
    const int64_t place = (at->sequence * z->h + at->h) * D * V;
    double complex S[D][V];
    double complex sum = 0;
    for (int i = 0; i < D * V; i++)
        S[i / V][i % V] = number(s, "state", place + i);
    for (int64_t n = 0; n < at->n; n++) {
        const int64_t t = reverse ? at->n - 1 - n : n;
        for (int i = 0; i < D * V; i++)
            S[i / V][i % V] *= cexp(number(s, "g", (at->row * z->h + at->h) * z->t + at->first + t));
        for (int u = 0; u < N; u++)
            update(s, at, t, reverse ? N - 1 - u : u, S);
        sum += read_token(s, at, t, S, o);
    }
    for (int i = 0; i < D * V; i++) {
        sum += S[i / V][i % V] * data(s->b, "dstate_out")[place + i];
        if (state)
            state[place + i] = creal(S[i / V][i % V]);
    }
    return sum;
}

/* <o, do> + <state_out, dstate_out>. */
static double complex recurrence(const struct side *s, double *o, double *state)
{
    const struct size *z = &s->b->size;
    const int32_t *cu = z->seqs ? find(s->b, "cu")->data : NULL;
    double complex sum = 0;
    for (int64_t n = 0; n < (cu ? z->seqs : z->b); n++)
        for (int64_t h = 0; h < z->h; h++) {
            const struct head at = {cu ? 0 : n, n, h, cu ? cu[n] : 0, cu ? cu[n + 1] - cu[n] : z->t};
            sum += run_head(s, &at, o, state);
        }
    return sum;
}

static int64_t count(const lathe_arg *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

static void check_spec(const char *text, const struct size *size)
{
    static const char *const GIVEN[] = {"q", "k", "v", "g", "beta", "state"};
    static double o[MOST_NUMBERS];
    static double state[MOST_NUMBERS];
    struct bench b;
    open_bench(&b, text, size);
    CHECK_EQ((int)count(find(&b, "k")), (int)(N * count(find(&b, "q"))));
    struct side s = {&b, NULL, 0};
    recurrence(&s, o, state);
    for (int pass = 0; pass < 2; pass++) {
        CHECK(run(&b, pass) == LATHE_OK);
        CHECK_STR(b.err.text, "");
    }
    for (int64_t i = 0; i < count(find(&b, "o")); i++)
        CHECK_CLOSE(data(&b, "o")[i], o[i], 1e-12);
    for (int64_t i = 0; i < count(find(&b, "state_out")); i++)
        CHECK_CLOSE(data(&b, "state_out")[i], state[i], 1e-12);
    for (size_t k = 0; k < sizeof GIVEN / sizeof *GIVEN; k++) {
        char name[16];
        snprintf(name, sizeof name, "d%s", GIVEN[k]);
        s.moved = GIVEN[k];
        for (s.at = 0; s.at < count(find(&b, GIVEN[k])); s.at++)
            CHECK_CLOSE(data(&b, name)[s.at], cimag(recurrence(&s, NULL, NULL)) / STEP, 1e-11);
    }
    close_bench(&b);
}

static const struct size SMALL = {2, 4, 2, 5, D, V, 0};
static const struct size PACKED = {1, 2, 1, MOST_T, D, V, 4}; /* 3, 0, 1 and 5 tokens */

TEST(updates_are_steps_of_a_token)
{
    check_spec(TEXT "}", &SMALL);
    check_spec(TEXT "}", &PACKED);
}

TEST(reverse_takes_the_last_update_first)
{
    check_spec(TEXT ", reverse = true }", &SMALL);
    check_spec(TEXT ", reverse = true }", &PACKED);
}

/* One update says nothing. */
TEST(one_update_is_none)
{
    struct bench b;
    open_bench(
        &b,
        "return linear_attention { updates = 1, value_mod = function(v, at) return v + f32(at.update) end }",
        &SMALL);
    CHECK_EQ((int)count(find(&b, "k")), (int)count(find(&b, "q")));
    CHECK(run(&b, 0) == LATHE_OK);
    close_bench(&b);
}

/* k has as many rows as q has tokens times updates. */
TEST(rows_of_k_are_counted)
{
    struct bench b;
    open_bench(&b, TEXT "}", &SMALL);
    find(&b, "k")->shape = find(&b, "q")->shape;
    CHECK(run(&b, 0) == LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'k': expected shape [b=2,h_k=2,3*t=5,d=3], given [2,2,5,3]");
    close_bench(&b);
}
