/*
 * hgrn.c: the shipped spec of HGRN on the host device, against h_t = e^g_t h_(t-1) + v_t in complex numbers,
 * and its gradients against that scan's by complex steps. In: specs/hgrn.lua. Out: failures.
 */
#include "linear_bench.h"

#include <complex.h>
#include <stdio.h>

enum { B = 2, H = 2, T = 6, D = 3, V = 2, MOST_TEXT = 2048 };
static const double STEP = 1e-30;

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

/* <o, do> + <state_out, dstate_out>; the scan is in row 0 of a state, and others are not written. o: where
 * wanted. */
static double complex scan(const struct side *s, double *o)
{
    double complex sum = 0;
    for (int64_t n = 0; n < B * H * V; n++) {
        const int64_t row = n / V;
        const int64_t place = row * D * V + n % V;
        double complex rest[D] = {0};
        for (int i = 0; i < D; i++)
            rest[i] = number(s, "state", place + i * V);
        for (int64_t t = 0; t < T; t++) {
            const int64_t at = (row * T + t) * V + n % V;
            for (int i = 0; i < D; i++)
                rest[i] = cexp(number(s, "g", at)) * rest[i] + (i == 0 ? number(s, "v", at) : 0);
            sum += rest[0] * data(s->b, "do")[at];
            if (o)
                o[at] = creal(rest[0]);
        }
        for (int i = 0; i < D; i++)
            sum += rest[i] * data(s->b, "dstate_out")[place + i * V];
    }
    return sum;
}

static void read_spec(char *text)
{
    FILE *f = fopen(check_source_path("specs/hgrn.lua"), "rb");
    CHECK(f != NULL);
    text[fread(text, 1, MOST_TEXT - 1, f)] = 0;
    fclose(f);
}

TEST(hgrn_is_a_scan_of_elements)
{
    static const char *const GIVEN[] = {"v", "g", "state"};
    static const int64_t COUNT[] = {B * H * T * V, B * H * T * V, B * H * D * V};
    static const struct size size = {B, H, 1, T, D, V, 0};
    double o[B * H * T * V];
    char text[MOST_TEXT];
    struct bench b;
    read_spec(text);
    open_bench(&b, text, &size);
    CHECK(find(&b, "k") == NULL);
    struct side s = {&b, NULL, 0};
    scan(&s, o);
    for (int pass = 0; pass < 2; pass++) {
        CHECK(run(&b, pass) == LATHE_OK);
        CHECK_STR(b.err.text, "");
    }
    for (int64_t i = 0; i < COUNT[0]; i++)
        CHECK_CLOSE(data(&b, "o")[i], o[i], 1e-12);
    for (size_t k = 0; k < 3; k++) {
        char name[16];
        snprintf(name, sizeof name, "d%s", GIVEN[k]);
        s.moved = GIVEN[k];
        for (s.at = 0; s.at < COUNT[k]; s.at++)
            CHECK_CLOSE(data(&b, name)[s.at], cimag(scan(&s, NULL)) / STEP, 1e-12);
    }
    close_bench(&b);
}
