/*
 * optimizer.c: Lion and AdamW on lists of tensors on the host device, against loops written out here;
 * rounding at random. Each test frees what it makes.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 5, MOST = 700 };
static const int32_t LENGTHS[TENSORS] = {3, 0, 513, 1, MOST};

struct list { /* of f32 tensors */
    float data[TENSORS][MOST];
    void *pointer[TENSORS];
};

static void fill(struct list *l, unsigned seed, double low, double high)
{
    uint64_t state = seed * 2654435761u + 1u;
    if (!l)
        abort();
    for (int t = 0; t < TENSORS; t++) {
        l->pointer[t] = l->data[t];
        for (int i = 0; i < MOST; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            l->data[t][i] = (float)(low + (high - low) * (double)(state >> 11) / 9007199254740992.0);
        }
    }
}

static lathe_status run(const char *spec, const lathe_arg *args, int n, lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load_signed(spec, LATHE_FORWARD, &sig);
    const lathe_status status = host_forward(ir, &sig, args, n, NULL, 0, err);
    ir_free(ir);
    return status;
}

static const int64_t COUNT[] = {TENSORS};

static lathe_arg list_arg(const char *name, struct list *l)
{
    return (lathe_arg){name, (void *)l->pointer, LATHE_F32, 1, COUNT, NULL};
}
static lathe_arg lengths_arg(void)
{
    return (lathe_arg){"lengths", (void *)(uintptr_t)LENGTHS, LATHE_I32, 1, COUNT, NULL};
}
static lathe_arg number(const char *name, float *value)
{
    return (lathe_arg){name, value, LATHE_F32, 0, NULL, NULL};
}

static void steps_of_lion(struct list *p, struct list *g, struct list *m, float lr, float decay, int steps)
{
    float b1 = 0.9f;
    float b2 = 0.99f;
    for (int k = 0; k < steps; k++) {
        lathe_error err = {0};
        CHECK_EQ(run("lion",
                     (lathe_arg[]){list_arg("p", p), list_arg("g", g), list_arg("m", m), lengths_arg(),
                                   number("lr", &lr), number("decay", &decay), number("beta1", &b1),
                                   number("beta2", &b2)},
                     8, &err),
                 LATHE_OK);
    }
}

/* In place, five steps; a large learning rate tells a decay apart from the gradient from one inside of it. */
TEST(lion_in_place)
{
    struct list *p = malloc(sizeof *p);
    struct list *g = malloc(sizeof *g);
    struct list *m = malloc(sizeof *m);
    CHECK(p && g && m);
    fill(p, 1, -1.0, 1.0);
    fill(g, 2, -1.0, 1.0);
    fill(m, 3, -0.2, 0.2);
    for (int i = 0; i < 100; i++)
        g->data[4][i] = m->data[4][i] = 0.0f; /* nothing to go by: only the decay moves p */
    struct list *p0 = malloc(sizeof *p0);
    struct list *m0 = malloc(sizeof *m0);
    CHECK(p0 && m0);
    *p0 = *p;
    *m0 = *m;
    steps_of_lion(p, g, m, 0.1f, 0.5f, 5);
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < MOST; i++) {
            double w = (double)p0->data[t][i];
            double mean = (double)m0->data[t][i];
            const double grad = (double)g->data[t][i];
            for (int k = 0; k < (i < LENGTHS[t] ? 5 : 0); k++) {
                const double u = 0.9 * mean + 0.1 * grad;
                w = w * (1.0 - 0.1 * 0.5) - 0.1 * (u > 0.0 ? 1.0 : u < 0.0 ? -1.0 : 0.0);
                mean = 0.99 * mean + 0.01 * grad;
            }
            CHECK_CLOSE(p->data[t][i], w, 1e-6);
            CHECK_CLOSE(m->data[t][i], mean, 1e-6);
        }
    free(p), free(g), free(m), free(p0), free(m0);
}

TEST(adamw_with_corrected_starts)
{
    struct list *p = malloc(sizeof *p);
    struct list *g = malloc(sizeof *g);
    struct list *m = malloc(sizeof *m);
    struct list *s = malloc(sizeof *s);
    struct list *p0 = malloc(sizeof *p0);
    CHECK(p && g && m && s && p0);
    fill(p, 1, -1.0, 1.0);
    fill(g, 2, -1.0, 1.0);
    fill(m, 3, 0.0, 0.0);
    fill(s, 4, 0.0, 0.0);
    *p0 = *p;
    float lr = 0.01f;
    float decay = 0.1f;
    float b1 = 0.9f;
    float b2 = 0.99f;
    for (int t = 1; t <= 3; t++) {
        float bias1 = (float)(1.0 - pow(0.9, t));
        float bias2 = (float)(1.0 - pow(0.99, t));
        lathe_error err = {0};
        CHECK_EQ(
            run("adamw",
                (lathe_arg[]){list_arg("p", p), list_arg("g", g), list_arg("m", m), list_arg("s", s),
                              lengths_arg(), number("lr", &lr), number("decay", &decay), number("beta1", &b1),
                              number("beta2", &b2), number("bias1", &bias1), number("bias2", &bias2)},
                11, &err),
            LATHE_OK);
    }
    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < LENGTHS[t]; i++) {
            double w = (double)p0->data[t][i];
            double mean = 0.0;
            double square = 0.0;
            const double grad = (double)g->data[t][i];
            for (int k = 1; k <= 3; k++) {
                w -= 0.01 * 0.1 * w;
                mean = 0.9 * mean + 0.1 * grad;
                square = 0.99 * square + 0.01 * grad * grad;
                w -= 0.01 * (mean / (1.0 - pow(0.9, k))) / (sqrt(square / (1.0 - pow(0.99, k))) + 1e-8);
            }
            CHECK_CLOSE(p->data[t][i], w, 1e-5);
        }
    free(p), free(g), free(m), free(s), free(p0);
}

/* Rounded at random: always to a neighbour, what is exact stays, the mean is kept, the same seed gives the
 * same bits. */
static void check_dither(lathe_dtype dtype, double value, double spacing)
{
    enum { N = 20000 };
    const char text[] =
        "return elementwise { over = { 'n' }, inputs = { seed = scalar('i32'), a = scalar('f32') },\n"
        "  results = { y = tensor('float', { dither = 'seed' }) }, forward = function(v, at, x) return x.a "
        "end }";
    static uint16_t y[3][N];
    struct signature sig;
    struct ir *ir = load_signed(text, LATHE_FORWARD, &sig);
    float a = (float)value;
    double sum = 0.0;
    const int64_t n = N;
    for (int k = 0; k < 3; k++) {
        int32_t seed = k < 2 ? 5 : 6;
        lathe_error err = {0};
        CHECK_EQ(host_forward(ir, &sig,
                              (lathe_arg[]){{"y", y[k], dtype, 1, &n, NULL},
                                            {"a", &a, LATHE_F32, 0, NULL, NULL},
                                            {"seed", &seed, LATHE_I32, 0, NULL, NULL}},
                              3, NULL, 0, &err),
                 LATHE_OK);
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    CHECK(spacing <= 0.0 || memcmp(y[0], y[2], sizeof y[0]) != 0);
    for (int i = 0; i < N; i++) {
        const double got = dtype_load(dtype, y[0], i);
        CHECK(fabs(got - value) <= spacing);
        sum += got - value;
    }
    CHECK(fabs(sum / N) <= spacing * 4.0 * 0.5 / sqrt((double)N)); /* four deviations of a fair coin */
    ir_free(ir);
}

TEST(rounding_at_random)
{
    check_dither(LATHE_BF16, (double)1.003f, 0x1p-7);
    check_dither(LATHE_BF16, (double)-3.3e-30f, 0x1p-105);
    check_dither(LATHE_BF16, 1.25, 0.0);
    check_dither(LATHE_F16, (double)1.0003f, 0x1p-10);
    check_dither(LATHE_F16, (double)-1234.56f, 1.0);
    check_dither(LATHE_F16, (double)3.3e-6f, 0x1p-24); /* subnormal */
    check_dither(LATHE_F16, 0x1p-24, 0.0);
    check_dither(LATHE_F16, 0.0, 0.0);
}

/* The arrays of no tensors may lie anywhere, and so at one place. */
TEST(lists_of_no_tensors_have_no_memory_in_common)
{
    static const char *const name[] = {"p", "g", "m", "s", "w"};
    static const int64_t none[] = {0};
    static const int64_t one[] = {1};
    static float *array[1];
    static int32_t length[1];
    float lr = 0.1f;
    lathe_error err = {0};
    lathe_arg args[7] = {number("lr", &lr), {"lengths", length, LATHE_I32, 1, none, NULL}};
    for (int i = 0; i < 5; i++)
        args[2 + i] = (lathe_arg){name[i], array, LATHE_F32, 1, none, NULL};
    CHECK_EQ(run("adamw_master", args, 7, &err), LATHE_OK);
    for (int i = 1; i < 7; i++)
        args[i].shape = one;
    CHECK_EQ(run("adamw_master", args, 7, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'w': expected memory of its own, given some of that of 'p'");
}

/* Tied weights that are given twice, as two views, would be stepped twice at once. */
TEST(tensors_of_lists_have_memory_of_their_own)
{
    enum { P, G, M, P_NEW, LISTS };
    struct list *l[LISTS];
    for (int i = 0; i < LISTS; i++) {
        CHECK((l[i] = malloc(sizeof *l[i])) != NULL);
        fill(l[i], (unsigned)i + 1, -1.0, 1.0);
    }
    float lr = 0.1f;
    lathe_error err = {0};
    lathe_arg args[] = {list_arg("p", l[P]), list_arg("g", l[G]), list_arg("m", l[M]),
                        lengths_arg(),       number("lr", &lr),   list_arg("p_new", l[P_NEW])};
    const struct {
        int list, number, in, at, offset; /* tensor `number` of a list lies at an element of another one */
        int n;                            /* arguments: with p_new, or without it */
        const char *told;                 /* NULL: it may */
    } row[] = {
        {P, 0, P, 2, 510, 5,
         "argument 'p': expected tensors with memory of their own, given tensor 0 in some of that "
         "of tensor 2 of 'p'"},
        {P, 0, P, 2, 513, 5, NULL},
        {P, 1, P, 2, 0, 5, NULL}, /* no elements */
        {G, 0, G, 2, 0, 5, NULL}, /* read alone */
        {G, 2, P, 2, 0, 5,
         "argument 'p': expected tensors with memory of their own, given tensor 2 in some of that of "
         "tensor 2 of 'g'"},
        {M, 3, P, 0, 2, 5,
         "argument 'm': expected tensors with memory of their own, given tensor 3 in some of that of "
         "tensor 0 of 'p'"},
        {P_NEW, 2, P, 2, 0, 6, NULL}, /* its alias */
        {P_NEW, 2, P, 2, 1, 6,
         "argument 'p_new': expected tensors with memory of their own, given tensor 2 in some of "
         "that of tensor 2 of 'p'"},
        {P_NEW, 0, P, 4, 0, 6, "argument 'p_new'"},
        {P_NEW, 4, G, 4, 0, 6, "argument 'p_new'"},
        {P, 0, P, 2, 510, 6, NULL}, /* read alone, beside p_new */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        void **place = &l[row[i].list]->pointer[row[i].number];
        void *before = *place;
        *place = &l[row[i].in]->data[row[i].at][row[i].offset];
        CHECK_EQ(run("lion", args, row[i].n, &err), row[i].told ? LATHE_ARG : LATHE_OK);
        if (row[i].told)
            CHECK_HAS(err.text, row[i].told);
        *place = before;
    }
    for (int i = 0; i < LISTS; i++)
        free(l[i]);
}

TEST(lists_are_bound_by_their_lengths)
{
    struct list *p = malloc(sizeof *p);
    CHECK(p != NULL);
    fill(p, 1, -1.0, 1.0);
    float lr = 0.1f;
    const int64_t strides[] = {2};
    lathe_error err = {0};
    lathe_arg args[] = {list_arg("p", p), list_arg("g", p), list_arg("m", p), number("lr", &lr),
                        lengths_arg()};
    CHECK_EQ(run("lion", args, 4, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'lengths': missing; expected shape [tensors=5]");
    args[0].strides = strides;
    CHECK_EQ(run("lion", args, 5, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'p': expected last stride 1");
    args[0].strides = NULL;
    args[4].strides = strides;
    CHECK_EQ(run("lion", args, 5, &err), LATHE_ARG);
    CHECK_HAS(err.text, "argument 'lengths': expected last stride 1");
    free(p);
}
