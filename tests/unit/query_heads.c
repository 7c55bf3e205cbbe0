/*
 * query_heads.c: linear attention whose states are read by several heads of q, on the host device, against
 * the same spec without them on k and v that are repeated: results, and gradients added up. In: text of
 * specs. Nothing else. Out: failures.
 */
#include "linear_bench.h"

#include <stdio.h>

enum { G = 3, D = 4, V = 3, MOST = 4096 };

struct pair { /* the spec, and the other */
    struct bench one, many;
};

struct shape { /* of a tensor by heads: [outer, heads, inner] */
    int64_t outer, heads, inner;
};

static struct shape shape_of(const lathe_arg *t)
{
    struct shape s = {t->shape[0], t->shape[1], 1};
    for (int i = 2; i < t->ndim; i++)
        s.inner *= t->shape[i];
    return s;
}

/* "k" of "k" and "dk". */
static bool is_of(const char *name, const char *tensor)
{
    return strcmp(name, tensor) == 0 || (name[0] == 'd' && strcmp(name + 1, tensor) == 0);
}

static bool is_by_head(const char *name)
{
    return !is_of(name, "cu") && !is_of(name, "turn");
}

/* Where element i of a tensor of the other spec, by heads of q, comes from in that of the spec. */
static int64_t source(const struct pair *p, const char *name, const lathe_arg *many, int64_t i)
{
    const struct shape s = shape_of(many);
    const int64_t head = i / s.inner % s.heads;
    const int64_t shared = head / G / (p->one.size.h / p->one.size.h_k);
    const int64_t from = is_of(name, "q")   ? shared * G + head % G
                         : is_of(name, "k") ? shared
                         : is_of(name, "o") ? head
                                            : head / G;
    const int64_t heads = is_of(name, "q")   ? p->one.size.h_k * G
                          : is_of(name, "k") ? p->one.size.h_k
                          : is_of(name, "o") ? s.heads
                                             : p->one.size.h;
    return (i / s.inner / s.heads * heads + from) * s.inner + i % s.inner;
}

static int64_t count(const lathe_arg *t)
{
    const struct shape s = shape_of(t);
    return s.outer * s.heads * s.inner;
}

static bool is_first(const lathe_arg *t, int64_t i)
{
    return i / shape_of(t).inner % G == 0;
}

/* The same numbers; of gradients of a last state the first head of q has all. */
static void give(struct pair *p)
{
    for (int k = 0; k < p->many.n; k++) {
        lathe_arg *to = &p->many.arg[k];
        const lathe_arg *from = find(&p->one, to->name);
        const bool seed = strcmp(to->name, "dstate_out") == 0 || strcmp(to->name, "dnorm_out") == 0;
        double *number = data(&p->many, to->name);
        CHECK(from != NULL);
        if (to->dtype == LATHE_I32)
            continue;
        if (!is_by_head(to->name)) {
            memcpy(number, from->data, (size_t)to->shape[0] * sizeof *number);
            continue;
        }
        for (int64_t i = 0; i < count(to); i++)
            number[i] = seed && !is_first(to, i) ? 0 : ((double *)from->data)[source(p, to->name, to, i)];
    }
}

/* What of the other spec adds up to a result; states of all heads of q are the same. */
static void compare(struct pair *p, const char *name)
{
    const bool state = strcmp(name, "state_out") == 0 || strcmp(name, "norm_out") == 0;
    const lathe_arg *one = find(&p->one, name);
    const lathe_arg *many = find(&p->many, name);
    static double sum[MOST];
    if (!one)
        return;
    CHECK(many != NULL);
    const int64_t n = is_by_head(name) ? count(one) : one->shape[0];
    CHECK(n <= MOST);
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < (is_by_head(name) ? count(many) : n); i++)
        if (!state || is_first(many, i))
            sum[is_by_head(name) ? source(p, name, many, i) : i] += ((double *)many->data)[i];
    for (int64_t i = 0; i < n; i++)
        CHECK_CLOSE(((double *)one->data)[i], sum[i], 1e-11);
}

static void check_text(const char *slots, const struct size *size)
{
    static const char *const RESULT[] = {"o",  "state_out", "norm_out", "dq",     "dk",   "dv",
                                         "dg", "dbeta",     "dturn",    "dstate", "dnorm"};
    char text[2048];
    struct size repeated = *size;
    struct pair p;
    repeated.h_k = repeated.h *= G;
    snprintf(text, sizeof text, "return linear_attention { %s, query_heads = %d }", slots, G);
    open_bench(&p.one, text, size);
    snprintf(text, sizeof text, "return linear_attention { %s }", slots);
    open_bench(&p.many, text, &repeated);
    CHECK_EQ((int)find(&p.one, "q")->shape[1], (int)(G * size->h_k));
    CHECK_EQ((int)find(&p.one, "o")->shape[1], (int)(G * size->h));
    give(&p);
    for (int pass = 0; pass < 2; pass++) {
        CHECK(run(&p.one, pass) == LATHE_OK);
        CHECK_STR(p.one.err.text, "");
        CHECK(run(&p.many, pass) == LATHE_OK);
        CHECK_STR(p.many.err.text, "");
    }
    for (size_t k = 0; k < sizeof RESULT / sizeof *RESULT; k++)
        compare(&p, RESULT[k]);
    close_bench(&p.one);
    close_bench(&p.many);
}

static void check_spec(const char *slots)
{
    static const struct size SMALL = {2, 4, 2, 5, D, V, 0};
    static const struct size PACKED = {1, 2, 2, 9, D, V, 4}; /* 3, 0, 1 and 5 tokens */
    check_text(slots, &SMALL);
    check_text(slots, &PACKED);
}

#define GATED                                                                                                \
    "inputs = { g = tensor('float', 'b', 'h', 't', { grad = true, range = { -1, 0 } }),"                     \
    " turn = tensor('float', 'd', { grad = true }) },"                                                       \
    "key_mod = function(k, at, x) return exp(0.1 * k) + x.turn(at.i) + 0.01 * at.pos end,"                   \
    "decay = function(at, x) return x.g(at.b, at.h, at.t) end "
#define DELTA                                                                                                \
    "inputs = { g = tensor('float', 'b', 'h', 't', 'd', { grad = true, range = { -1, 0 } }),"                \
    " beta = tensor('float', 'b', 'h', 't', { grad = true, range = { 0, 1 } }) },"                           \
    "value_mod = function(v, at) return v + 0.01 * at.t end,"                                                \
    "decay = function(at, x) return x.g(at.b, at.h, at.t, at.i) end "
#define BETA "delta = function(at, x) return x.beta(at.b, at.h, at.t) end "

TEST(heads_of_q_read_a_state_as_if_k_and_v_were_repeated)
{
    check_spec(GATED);
    check_spec(GATED ", reverse = true");
    check_spec(GATED ", normalise = true");
    check_spec("scale = 0.5");
}

TEST(heads_of_q_read_what_the_delta_rule_leaves)
{
    check_spec(DELTA "," BETA);
    check_spec(DELTA "," BETA ", read_first = true, reverse = true");
    check_spec(DELTA ", reader = function(k, at, x) return -k end,"
                     "writer = function(k, at, x) return 0.1 * k * x.beta(at.b, at.h, at.t) end");
}

TEST(heads_of_q_are_counted)
{
    static const struct size SMALL = {2, 4, 2, 5, D, V, 0};
    struct bench b;
    open_bench(&b, "return linear_attention { query_heads = 3 }", &SMALL);
    find(&b, "q")->shape = find(&b, "k")->shape;
    CHECK(run(&b, 0) == LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'q': expected shape [b=2,3*h_k,t,d], given [2,2,5,4]");
    close_bench(&b);
}

/* One says nothing. */
TEST(one_head_of_q_is_what_there_is)
{
    static const struct size SMALL = {2, 4, 2, 5, D, V, 0};
    struct bench b;
    open_bench(&b, "return linear_attention { query_heads = 1 }", &SMALL);
    CHECK_EQ((int)find(&b, "q")->shape[1], 2);
    CHECK(run(&b, 0) == LATHE_OK);
    close_bench(&b);
}
