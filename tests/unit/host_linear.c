/*
 * host_linear.c: linear attention on the host device. Forward against sums over pairs of tokens, which no
 * recurrence makes, and for the delta rule against products of matrices; backward against central
 * differences of the forward pass, all gradients of each spec. Bad input gets its sentence. Specs are text in
 * the test; a bench holds every argument of both passes in f64 and frees it.
 */
#include "linear_bench.h"

#include <math.h>
#include <stdio.h>

static void forward(struct bench *b)
{
    const lathe_status status = run(b, 0);
    CHECK_STR(b->err.text, "");
    CHECK(status == LATHE_OK);
}

static int64_t count_of(const lathe_arg *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    return count;
}

/* ---- gradients against differences ---------------------------------------------------------------- */

/* <o, do> + <state_out, dstate_out> + <norm_out, dnorm_out>, and how large its terms are. */
static double loss(struct bench *b, double *size)
{
    static const char *const results[][2] = {
        {"o", "do"}, {"state_out", "dstate_out"}, {"norm_out", "dnorm_out"}};
    double sum = 0;
    *size = 0;
    forward(b);
    for (int i = 0; i < 3; i++) {
        const lathe_arg *t = find(b, results[i][0]);
        for (int64_t k = 0; t && k < count_of(t); k++) {
            const double term = ((double *)t->data)[k] * data(b, results[i][1])[k];
            sum += term;
            *size += fabs(term);
        }
    }
    return sum;
}

static void check_gradient(struct bench *b, const char *name, const char *of)
{
    const lathe_arg *gradient = find(b, name);
    double *value = data(b, of);
    for (int64_t k = 0; k < count_of(gradient); k++) {
        const double step = 1e-5;
        const double before = value[k];
        double size;
        value[k] = before + step;
        const double above = loss(b, &size);
        value[k] = before - step;
        const double difference = (above - loss(b, &size)) / (2 * step);
        value[k] = before;
        const double derived = ((double *)gradient->data)[k];
        if (!(fabs(derived - difference) < 1e-7 * (1 + size)))
            fprintf(stderr, "%s: %s[%lld]: derived %.9g, by differences %.9g\n", b->ir->name, name,
                    (long long)k, derived, difference);
        CHECK(fabs(derived - difference) < 1e-7 * (1 + size));
    }
}

static void check_gradients(const char *text, const struct size *size)
{
    struct bench b;
    int compared = 0;
    open_bench(&b, text, size);
    const lathe_status status = run(&b, 1);
    CHECK_STR(b.err.text, "");
    CHECK(status == LATHE_OK);
    for (int i = 0; i < b.sig[1].n_args; i++) {
        const struct sig_arg *a = &b.sig[1].arg[i];
        if (a->role != ROLE_OUT_OPTIONAL)
            continue;
        check_gradient(&b, a->name, a->name + 1);
        compared++;
    }
    CHECK(compared >= 4);
    close_bench(&b);
}

static const struct size SMALL = {2, 4, 2, 6, 3, 2, 0};
static const struct size PACKED = {1, 2, 1, 9, 3, 2, 4}; /* 3, 0, 1 and 5 tokens */

#define TOKEN_GATE                                                                                           \
    "inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }) },\n"                                    \
    "decay = function(at, x) return x.g(at.b, at.h, at.t) end,\n"

/* Reader and writer that are inputs, and those beside a delta rule that are made of keys. */
#define RULE_OF_INPUTS                                                                                       \
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }),\n"       \
    "    a = tensor('float', 'b', 'h', 't', 'd', { grad = true }),\n"                                        \
    "    w = tensor('float', 'b', 'h', 't', 'd', { grad = true }) },\n"                                      \
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,\n"                                    \
    "  reader = function(k, at, x) return x.a(at.b, at.h, at.t, at.i) end,\n"                                \
    "  writer = function(k, at, x) return x.w(at.b, at.h, at.t, at.i) end"
#define RULE_OF_KEYS                                                                                         \
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', { grad = true }),\n"            \
    "    a = tensor('f32', 'h', { grad = true }),\n"                                                         \
    "    w = tensor('float', 'b', 'h_k', 't', 'd', { grad = true }),\n"                                      \
    "    beta = tensor('float', 'b', 'h', 't', { grad = true }) },\n"                                        \
    "  delta = function(at, x) return x.beta(at.b, at.h, at.t) end,\n"                                       \
    "  decay = function(at, x) return x.g(at.b, at.h, at.t) end"

static const char *const DERIVED[] = {
    "return linear_attention {}",
    "return linear_attention { " TOKEN_GATE " }",
    "return linear_attention { " TOKEN_GATE " reverse = true, scale = 0.7 }",
    "return linear_attention { " TOKEN_GATE " normalise = true,\n"
    "  query_mod = function(q) return exp(q) end, key_mod = function(k) return exp(k) end }",
    "return linear_attention { inputs = { a = tensor('f32', 'h', { grad = true }) },\n"
    "  decay = function(at, x) return -exp(x.a(at.h)) end }",
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) },\n"
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end }",
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) },\n"
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }",
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true }),\n"
    "    u = tensor('f32', 'h', 'd', { grad = true }) },\n"
    "  decay = function(at, x) return -exp(x.g(at.b, at.h, at.t, at.i)) end,\n"
    "  bonus = function(at, x) return x.u(at.h, at.i) end, normalise = true,\n"
    "  query_mod = function(q) return exp(q) end, key_mod = function(k) return exp(k) end }",
    "return linear_attention { inputs = { beta = tensor('float', 'b', 'h', 't', { grad = true }) },\n"
    "  delta = function(at, x) return x.beta(at.b, at.h, at.t) end,\n"
    "  key_mod = function(k) return k * rsqrt(dimsum(k * k) + 1e-6) end }",
    "return linear_attention { inputs = { beta = tensor('float', 'b', 'h', 't', { grad = true }),\n"
    "    g = tensor('float', 'b', 'h', 't', 'd', { grad = true }) }, reverse = true,\n"
    "  delta = function(at, x) return x.beta(at.b, at.h, at.t) end,\n"
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end }",
    "return linear_attention { inputs = { beta = tensor('float', 'b', 'h', 't', { grad = true }),\n"
    "    g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) },\n"
    "  delta = function(at, x) return 2.0 * sigmoid(x.beta(at.b, at.h, at.t)) end,\n"
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }",
    "return linear_attention { causal = false, normalise = true,\n"
    "  query_mod = function(q) return exp(q) end, key_mod = function(k) return exp(k) end }",
    "return linear_attention { inputs = { gate = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }),\n"
    "    d_skip = tensor('f32', 'h', { grad = true }), gain = tensor('f32', 'd_v', { grad = true }),\n"
    "    s = tensor('f32', 'h', { grad = true }) },\n"
    "  scale = function(at, x) return exp(x.s(at.h)) end,\n"
    "  value_mod = function(v, at, x) return silu(v) * x.gain(at.i) end,\n"
    "  output_mod = chain(function(o, at, x, v) return o + x.d_skip(at.h) * v end,\n"
    "    half(function(lo, hi, at) return lo * cos(at.pos) - hi, hi + lo * sin(at.pos) end),\n"
    "    function(o, at, x, v) return o * rsqrt(dimsum(o * o) / at.d_v + 0.1) * silu(x.gate(at.b, at.h, "
    "at.t, at.i))"
    " + tanh(v) end) }",
    "return linear_attention { inputs = { f = tensor('float', 'b', 'h_k', 't', 'd', { grad = true }) },\n"
    "  key_mod = function(k, at, x) return 1.0 - sigmoid(x.f(at.b, at.h_k, at.t, at.i)) end,\n"
    "  decay = function(at, x) return log(sigmoid(x.f(at.b, at.h_k, at.t, at.i))) end }",
    RULE_OF_INPUTS ", read_first = true }",
    RULE_OF_INPUTS ", reverse = true, query_mod = unit, key_mod = unit }",
    RULE_OF_KEYS ", reader = function(k, at, x) return k * x.a(at.h) end, read_first = true }",
    RULE_OF_KEYS ", writer = function(k, at, x) return sin(k) * x.w(at.b, at.h_k, at.t, at.i) end }",
    RULE_OF_KEYS ", reader = function(k, at, x) return x.a(at.h) end,\n"
                 "  writer = function(k, at, x) return x.beta(at.b, at.h, at.t) * k end, reverse = true }",
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }),\n"
    "    a = tensor('float', 'b', 'h', 't', 'd', { grad = true }) }, read_first = true,\n"
    "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end,\n"
    "  reader = function(k, at, x) return x.a(at.b, at.h, at.t, at.i) end,\n"
    "  writer = function(k) return -0.5 * k end }",
};

TEST(gradients_are_differences)
{
    for (size_t i = 0; i < sizeof DERIVED / sizeof DERIVED[0]; i++)
        check_gradients(DERIVED[i], &SMALL);
}

TEST(gradients_of_packed_sequences_are_differences)
{
    for (size_t i = 0; i < sizeof DERIVED / sizeof DERIVED[0]; i++)
        check_gradients(DERIVED[i], &PACKED);
}

/* ---- forward against sums over pairs -------------------------------------------------------------- */

/* The logarithm of the decay of a token: [b, h, t], or with a channel behind. */
static double gate(struct bench *b, int64_t batch, int64_t h, int64_t t, int64_t channel)
{
    const lathe_arg *g = find(b, "g");
    if (!g)
        return 0;
    const int64_t token = (batch * b->size.h + h) * b->size.t + t;
    return ((double *)g->data)[g->ndim == 4 ? token * g->shape[3] + channel : token];
}

struct pairs { /* how a spec reads its state */
    bool reverse, all_tokens, by_value;
    const double *bonus; /* [h, d] */
};

/* What the pair of channels has of token `from` at `to`, by steps `first` .. `last` of decays. */
static double kept(struct bench *b, const struct pairs *p, int64_t batch, int64_t h, int64_t first,
                   int64_t last, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t t = first; t <= last; t++)
        sum += gate(b, batch, h, t, p->by_value ? j : i);
    return exp(sum);
}

/* o of one token of a sequence [first, end), all in one batch, whose state is number `sequence`. */
static double pair_sum(struct bench *b, const struct pairs *p, int64_t batch, int64_t sequence, int64_t first,
                       int64_t end, int64_t h, int64_t t, int64_t j)
{
    const struct size *s = &b->size;
    const int64_t h_k = h / (s->h / s->h_k);
    const double *q = data(b, "q") + ((batch * s->h_k + h_k) * s->t + t) * s->d;
    const double *k = data(b, "k") + (batch * s->h_k + h_k) * s->t * s->d;
    const double *v = data(b, "v") + (batch * s->h + h) * s->t * s->d_v;
    const double *state = data(b, "state") + (sequence * s->h + h) * s->d * s->d_v;
    const bool before = p->bonus != NULL;
    double sum = 0;
    for (int64_t i = 0; i < s->d; i++) {
        const int64_t lo = p->reverse ? t + before : first;
        const int64_t hi = p->reverse ? end - 1 : t - before;
        sum += q[i] * state[i * s->d_v + j] * kept(b, p, batch, h, lo, hi, i, j);
        for (int64_t from = first; from < end; from++) {
            const bool earlier = p->reverse ? from > t : from < t;
            const double bonus = p->bonus ? p->bonus[h * s->d + i] : 1;
            double w = p->all_tokens ? 1 : from == t ? bonus : 0;
            if (earlier && !p->all_tokens)
                w = p->reverse ? kept(b, p, batch, h, t + before, from - 1, i, j)
                               : kept(b, p, batch, h, from + 1, t - before, i, j);
            sum += q[i] * w * k[from * s->d + i] * v[from * s->d_v + j];
        }
        if (p->all_tokens) /* no decay goes with it */
            continue;
    }
    return sum / sqrt((double)s->d);
}

static void check_pairs(const char *text, const struct size *size, const struct pairs *how)
{
    static const int64_t places[] = {0, 3, 3, 4, 9};
    struct bench b;
    struct pairs p = *how;
    open_bench(&b, text, size);
    p.bonus = find(&b, "u") ? data(&b, "u") : NULL;
    forward(&b);
    const struct size *s = &b.size;
    const int64_t n = s->seqs > 0 ? s->seqs : s->b;
    int64_t compared = 0;
    for (int64_t sequence = 0; sequence < n; sequence++) {
        const int64_t batch = s->seqs > 0 ? 0 : sequence;
        const int64_t first = s->seqs > 0 ? places[sequence] : 0;
        const int64_t end = s->seqs > 0 ? places[sequence + 1] : s->t;
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t t = first; t < end; t++)
                for (int64_t j = 0; j < s->d_v; j++, compared++) {
                    const double o = data(&b, "o")[((batch * s->h + h) * s->t + t) * s->d_v + j];
                    const double wanted = pair_sum(&b, &p, batch, sequence, first, end, h, t, j);
                    CHECK(fabs(o - wanted) < 1e-12);
                }
    }
    CHECK_EQ(compared, s->b * s->h * s->t * s->d_v);
    close_bench(&b);
}

TEST(forward_is_a_sum_over_pairs)
{
    static const struct {
        const char *text;
        struct pairs pairs;
    } spec[] = {
        {"return linear_attention {}", {.reverse = false}},
        {"return linear_attention { reverse = true }", {.reverse = true}},
        {"return linear_attention { causal = false }", {.all_tokens = true}},
        {"return linear_attention { " TOKEN_GATE " }", {.reverse = false}},
        {"return linear_attention { " TOKEN_GATE " reverse = true }", {.reverse = true}},
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd') },\n"
         "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end }",
         {.reverse = false}},
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd_v') },\n"
         "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.j) end }",
         {.by_value = true}},
        {"return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't', 'd'), u = tensor('f32', "
         "'h', 'd') },\n"
         "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end,\n"
         "  bonus = function(at, x) return x.u(at.h, at.i) end }",
         {.reverse = false}},
    };
    for (size_t i = 0; i < sizeof spec / sizeof spec[0]; i++) {
        check_pairs(spec[i].text, &SMALL, &spec[i].pairs);
        check_pairs(spec[i].text, &PACKED, &spec[i].pairs);
    }
}

/* ---- the delta rule against matrices ---------------------------------------------------------------- */

/* S = (I - beta k' k) D S + beta k' v, by one entry at a time. */
static void matrix_step(const struct size *s, const double *k, const double *v, const double *decay,
                        double beta, double *state)
{
    double next[64];
    for (int64_t i = 0; i < s->d; i++)
        for (int64_t j = 0; j < s->d_v; j++) {
            double sum = beta * k[i] * v[j];
            for (int64_t m = 0; m < s->d; m++)
                sum += ((i == m ? 1.0 : 0.0) - beta * k[i] * k[m]) * exp(decay[m]) * state[m * s->d_v + j];
            next[i * s->d_v + j] = sum;
        }
    memcpy(state, next, (size_t)(s->d * s->d_v) * sizeof *next);
}

TEST(delta_rule_is_a_product_of_matrices)
{
    struct bench b;
    open_bench(&b,
               "return linear_attention { inputs = { beta = tensor('float', 'b', 'h', 't'),\n"
               "    g = tensor('float', 'b', 'h', 't', 'd') }, scale = 1.0,\n"
               "  delta = function(at, x) return x.beta(at.b, at.h, at.t) end,\n"
               "  decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end }",
               &SMALL);
    forward(&b);
    const struct size *s = &b.size;
    for (int64_t head = 0; head < s->b * s->h; head++) {
        const int64_t shared = head / s->h * s->h_k + head % s->h / (s->h / s->h_k);
        double *state = data(&b, "state") + head * s->d * s->d_v;
        for (int64_t t = 0; t < s->t; t++) {
            const int64_t token = head * s->t + t;
            const double *q = data(&b, "q") + (shared * s->t + t) * s->d;
            matrix_step(s, data(&b, "k") + (shared * s->t + t) * s->d, data(&b, "v") + token * s->d_v,
                        data(&b, "g") + token * s->d, data(&b, "beta")[token], state);
            for (int64_t j = 0; j < s->d_v; j++) {
                double wanted = 0;
                for (int64_t i = 0; i < s->d; i++)
                    wanted += q[i] * state[i * s->d_v + j];
                CHECK_CLOSE(data(&b, "o")[token * s->d_v + j], wanted, 1e-13);
            }
        }
        for (int64_t i = 0; i < s->d * s->d_v; i++)
            CHECK_CLOSE(data(&b, "state_out")[head * s->d * s->d_v + i], state[i], 1e-13);
    }
    close_bench(&b);
}

/* ---- states ------------------------------------------------------------------------------------------ */

/* The argument of a copy of the call, whose tokens are `n` from `first` on: the same memory. */
static void take_tokens(const struct bench *b, lathe_arg *t, int64_t first, int64_t n, int64_t *shape,
                        int64_t *strides)
{
    for (int i = 0; i < b->sig[0].n_args; i++) {
        const struct sig_arg *a = &b->sig[0].arg[i];
        for (int d = 0; d < a->ndim && strcmp(a->name, t->name) == 0; d++) {
            if (a->dim[d].sym != SYM_T)
                continue;
            int64_t stride = 1;
            for (int k = t->ndim - 1; k >= 0; k--) {
                strides[k] = stride;
                shape[k] = k == d ? n : t->shape[k];
                stride *= t->shape[k];
            }
            t->data = (double *)t->data + first * strides[d];
            t->shape = shape;
            t->strides = strides;
            return;
        }
    }
}

/* Tokens `first` .. first + n - 1 alone; the state is read and written in place, the sum of keys apart. */
static void run_part(struct bench *b, int64_t first, int64_t n, double *state, double *norm)
{
    double next[64]; /* SMALL has fewer */
    lathe_arg args[MOST_ARGS];
    int64_t shape[MOST_ARGS][MAX_DIMS];
    int64_t strides[MOST_ARGS][MAX_DIMS];
    const int count = select_args(b, 0, "", args);
    for (int i = 0; i < count; i++) {
        if (strncmp(args[i].name, "state", 5) == 0)
            args[i].data = state;
        else if (strcmp(args[i].name, "norm") == 0)
            args[i].data = norm;
        else if (strcmp(args[i].name, "norm_out") == 0)
            args[i].data = next;
        else
            take_tokens(b, &args[i], first, n, shape[i], strides[i]);
    }
    const lathe_status status = host_forward(b->ir, &b->sig[0], args, count, NULL, 0, &b->err);
    CHECK_STR(b->err.text, "");
    CHECK(status == LATHE_OK);
    const lathe_arg *sum = find(b, "norm");
    CHECK(!sum || count_of(sum) <= (int64_t)(sizeof next / sizeof *next));
    if (sum)
        memcpy(norm, next, (size_t)count_of(sum) * sizeof *next);
}

static double *copy_of(struct bench *b, const char *name)
{
    const lathe_arg *t = find(b, name);
    double *copy = calloc(t ? (size_t)count_of(t) + 1 : 1, sizeof *copy);
    CHECK(copy != NULL);
    if (t)
        memcpy(copy, t->data, (size_t)count_of(t) * sizeof *copy);
    return copy;
}

/* Parts of `n` tokens with states handed over in place give what the whole gives. */
static void check_parts(const char *text, int64_t n)
{
    struct bench b;
    open_bench(&b, text, &SMALL);
    forward(&b);
    double *o = copy_of(&b, "o");
    double *state = copy_of(&b, "state");
    double *norm = copy_of(&b, "norm");
    const bool reverse = b.ir->linear.reverse;
    const int64_t parts = (b.size.t + n - 1) / n;
    for (int64_t part = 0; part < parts; part++) {
        const int64_t first = (reverse ? parts - 1 - part : part) * n;
        run_part(&b, first, first + n < b.size.t ? n : b.size.t - first, state, norm);
    }
    for (int64_t i = 0; i < count_of(find(&b, "o")); i++)
        CHECK_CLOSE(data(&b, "o")[i], o[i], 1e-13);
    for (int64_t i = 0; i < count_of(find(&b, "state")); i++)
        CHECK_CLOSE(state[i], data(&b, "state_out")[i], 1e-13);
    for (int64_t i = 0; find(&b, "norm") && i < count_of(find(&b, "norm")); i++)
        CHECK_CLOSE(norm[i], data(&b, "norm_out")[i], 1e-13);
    free(o);
    free(state);
    free(norm);
    close_bench(&b);
}

TEST(states_are_handed_over)
{
    for (size_t i = 0; i < sizeof DERIVED / sizeof DERIVED[0]; i++) {
        if (strstr(DERIVED[i], "causal = false") || strstr(DERIVED[i], "at.pos"))
            continue; /* a part knows neither later tokens nor how many came before */
        check_parts(DERIVED[i], 1);
        check_parts(DERIVED[i], 4);
    }
}

/* A pool of five states, of which two sequences have one each and one has none. */
TEST(states_of_a_pool)
{
    static const int32_t places[] = {4, -1, 0};
    static const struct size size = {3, 1, 1, 4, 2, 2, 0};
    const int64_t three[] = {3};
    const int64_t pool[] = {5, 1, 2, 2};
    double state[20];
    double before[20];
    lathe_arg args[MOST_ARGS];
    struct bench b;
    open_bench(&b,
               "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't') },\n"
               "decay = function(at, x) return 0.5 * x.g(at.b, at.h, at.t) end }",
               &size);
    for (int i = 0; i < 12; i++)
        data(&b, "g")[i] = -unit(&b);
    for (int i = 0; i < 20; i++)
        before[i] = state[i] = 2 * unit(&b) - 1;
    memcpy(data(&b, "state"), state + 16, 4 * sizeof *state);
    memcpy(data(&b, "state") + 8, state, 4 * sizeof *state);
    forward(&b);
    double *o = copy_of(&b, "o");
    int n = select_args(&b, 0, "", args);
    for (int i = 0; i < n; i++)
        if (strncmp(args[i].name, "state", 5) == 0) {
            args[i].data = state;
            args[i].shape = pool;
        }
    args[n++] = (lathe_arg){"state_index", (void *)places, LATHE_I32, 1, three, NULL};
    data(&b, "g")[4] = 1; /* nobody looks at a sequence that is skipped */
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_OK);
    for (int64_t i = 0; i < count_of(find(&b, "o")); i++)
        CHECK_CLOSE(data(&b, "o")[i], i / 8 == 1 ? 0.0 : o[i], 1e-15);
    for (int i = 0; i < 4; i++) {
        CHECK_CLOSE(state[16 + i], data(&b, "state_out")[i], 1e-15);
        CHECK_CLOSE(state[i], data(&b, "state_out")[8 + i], 1e-15);
    }
    for (int i = 4; i < 16; i++)
        CHECK(state[i] == before[i]);
    free(o);
    close_bench(&b);
}

/* ---- bad input --------------------------------------------------------------------------------------- */

static void check_refused(struct bench *b, int pass, const char *part)
{
    CHECK(run(b, pass) != LATHE_OK);
    CHECK_HAS(b->err.text, part);
}

TEST(bad_numbers_are_refused)
{
    struct bench b;
    open_bench(&b,
               "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't'),\n"
               "    beta = tensor('float', 'b', 'h', 't') },\n"
               "  decay = function(at, x) return 2.0 * x.g(at.b, at.h, at.t) end,\n"
               "  delta = function(at, x) return 2.0 * x.beta(at.b, at.h, at.t) end }",
               &SMALL);
    for (int64_t i = 0; i < count_of(find(&b, "g")); i++) {
        data(&b, "g")[i] = -1;
        data(&b, "beta")[i] = 0.5;
    }
    forward(&b);
    data(&b, "g")[7] = 0.25; /* batch 0, head 1, token 1 */
    check_refused(&b, 0,
                  "t.lua:3: decay: expected the logarithm of a factor of at most 1, a number of at most 0, "
                  "given 0.5 at token 1 of head 1 in batch 0");
    check_refused(&b, 1, "t.lua:3: decay: expected");
    data(&b, "g")[7] = 0;
    data(&b, "beta")[8] = 1.25;
    check_refused(&b, 0,
                  "t.lua:4: delta: expected a number from 0 to 2, beyond which the state may grow "
                  "without end, given 2.5 at token 2 of head 1 in batch 0");
    close_bench(&b);
}

/* What a slot gives as it is has the slot's range, and says so by the input's name. */
TEST(inputs_of_slots_have_a_range)
{
    struct bench b;
    open_bench(&b, "return linear_attention { " TOKEN_GATE " }", &SMALL);
    data(&b, "g")[0] = 1;
    check_refused(&b, 0,
                  "argument 'g': expected values from -inf to 0 (its range, t.lua:1), given 1 at [0,0,0]");
    data(&b, "g")[0] = -(double)INFINITY;
    forward(&b);
    close_bench(&b);
}

TEST(bad_sequences_are_refused)
{
    struct bench b;
    open_bench(&b, "return linear_attention {}", &PACKED);
    int32_t *cu = find(&b, "cu")->data;
    cu[4] = 10;
    check_refused(&b, 0, "argument 'cu': expected it to end at or before t=9, given 10");
    cu[4] = 8;
    check_refused(&b, 1,
                  "argument 'cu': expected it to end at t=9; a backward pass takes tensors without tokens "
                  "behind the last sequence, given 8");
    cu[4] = 9;
    cu[2] = 2;
    check_refused(&b, 0, "argument 'cu': expected places that do not fall, given 2 behind 3 (sequence 1)");
    cu[2] = 3;
    cu[0] = 1;
    check_refused(&b, 0, "argument 'cu': expected it to begin at 0, given 1");
    close_bench(&b);
}

/* The call once more with one argument that is another. */
static void check_argument(struct bench *b, lathe_arg other, const char *part)
{
    lathe_arg args[MOST_ARGS];
    int n = select_args(b, 0, other.name, args);
    args[n++] = other;
    CHECK(host_forward(b->ir, &b->sig[0], args, n, NULL, 0, &b->err) == LATHE_ARG);
    CHECK_HAS(b->err.text, part);
}

TEST(bad_states_are_refused)
{
    static const int32_t twice[] = {1, 1};
    static const int32_t beyond[] = {0, 2};
    const int64_t two[] = {2};
    struct bench b;
    open_bench(&b, "return linear_attention { normalise = true }", &SMALL);
    const int64_t wide[] = {2, 4, 3, 3};
    const int64_t more[] = {3, 4, 3, 2};
    void *state = data(&b, "state");
    check_argument(&b, (lathe_arg){"state", state, LATHE_F64, 4, wide, NULL},
                   "argument 'state': expected shape [slots=2,h=4,d=3,d_v=2], given [2,4,3,3]");
    check_argument(&b, (lathe_arg){"state", state, LATHE_BF16, 4, more, NULL},
                   "argument 'state': expected dtype f64 as of 'norm', given bf16");
    check_argument(&b, (lathe_arg){"state", state, LATHE_I32, 4, more, NULL},
                   "argument 'state': expected dtype f32, f16 or bf16, given i32");
    check_argument(&b, (lathe_arg){"state_index", (void *)twice, LATHE_I32, 1, two, NULL},
                   "argument 'state_index': expected a state of its own for each sequence, given 1 for "
                   "sequences 0 and 1");
    check_argument(&b, (lathe_arg){"state_index", (void *)beyond, LATHE_I32, 1, two, NULL},
                   "argument 'state_index': expected states from 0 to 1, or -1, given 2 for sequence 1");
    lathe_arg args[MOST_ARGS];
    const int n = select_args(&b, 0, "norm", args);
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'state': expected 'norm' beside it, which is not given");
    close_bench(&b);
}
