/*
 * host_times.c: how long the host device takes for many short sequences: as long as for as many batches of
 * the same size, which are the same work. Times are of this process, the least of three; the bounds are wide.
 */
#include "check.h"
#include "loaded.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SEQUENCES = 16000, D = 4 };

/* Both passes of a spec with one token for each sequence, one head, packed by the list `cu`, or in batches.
 */
static double seconds_of(const char *spec, lathe_pass pass, const char *cu)
{
    static float in[SEQUENCES * D];
    static float out[3][SEQUENCES * D];
    static int32_t start[SEQUENCES + 1];
    const int64_t shape[] = {cu ? 1 : SEQUENCES, 1, cu ? SEQUENCES : 1, D};
    const int64_t list[] = {SEQUENCES + 1};
    const lathe_arg all[] = {
        {"q", in, LATHE_F32, 4, shape, NULL},      {"k", in, LATHE_F32, 4, shape, NULL},
        {"v", in, LATHE_F32, 4, shape, NULL},      {cu, start, LATHE_I32, 1, list, NULL},
        {"o", out[0], LATHE_F32, 4, shape, NULL},  {"do", in, LATHE_F32, 4, shape, NULL},
        {"dq", out[0], LATHE_F32, 4, shape, NULL}, {"dk", out[1], LATHE_F32, 4, shape, NULL},
        {"dv", out[2], LATHE_F32, 4, shape, NULL}};
    struct signature sig;
    struct ir *ir = load_signed(spec, pass, &sig);
    lathe_arg arg[sizeof all / sizeof all[0]];
    double best = (double)INFINITY;
    int n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].name && lathe__arg_find(&sig, all[i].name, 0) >= 0 &&
            !(pass == LATHE_BACKWARD && strcmp(all[i].name, "o") == 0))
            arg[n++] = all[i];
    for (int i = 0; i <= SEQUENCES; i++)
        start[i] = i;
    for (int i = 0; i < SEQUENCES * D; i++)
        in[i] = 0.25f;
    for (int i = 0; i < 3; i++) {
        lathe_error err = {.status = LATHE_OK};
        const clock_t begin = clock();
        const lathe_status status = pass == LATHE_BACKWARD ? host_backward(ir, &sig, arg, n, &err)
                                                           : host_forward(ir, &sig, arg, n, NULL, 0, &err);
        const double seconds = (double)(clock() - begin) / (double)CLOCKS_PER_SEC;
        CHECK_STR(err.text, "");
        CHECK_EQ(status, LATHE_OK);
        best = seconds < best ? seconds : best;
    }
    ir_free(ir);
    return best;
}

static void check_times(const char *spec, const char *cu)
{
    for (int pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++) {
        const double apart = seconds_of(spec, (lathe_pass)pass, NULL);
        const double packed = seconds_of(spec, (lathe_pass)pass, cu);
        if (packed > 6 * apart + 0.03)
            (void)fprintf(stderr, "%s, pass %d: packed %g s, as batches %g s\n", spec, pass, packed, apart);
        CHECK(packed <= 6 * apart + 0.03);
    }
}

TEST(packed_linear_attention_takes_the_time_of_batches)
{
    check_times("linear", "cu");
}

TEST(packed_attention_takes_the_time_of_batches)
{
    check_times("full", "cu_q");
}
