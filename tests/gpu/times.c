/*
 * times.c: how long the host side takes, against the bars of the project.
 *
 * In: the device and this binary's path. Out: a line per measurement with its bar. A missed bar is counted
 * apart and is a failure with --strict only, because a busy machine misses them too.
 */
#include "system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20000, LAUNCHES = 100, BURSTS = 21, CHILDREN = 7 };

static double seconds_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return values[n / 2];
}

/* scale: 1e6 for microseconds, 1e3 for milliseconds. */
static void report(const char *what, double seconds, double bar, double scale, const char *unit,
                   const struct options *options, struct totals *totals)
{
    const bool met = seconds <= bar;
    (void)printf("%-42s %9.3f %s  (bar %g %s)  %s\n", what, seconds * scale, unit, bar * scale, unit,
                 met ? "ok" : "MISS");
    (void)fflush(stdout);
    totals->bars_missed += !met;
    totals->failed += !met && options->strict;
    totals->passed += met;
}

/* ---- compiling from cold --------------------------------------------------------------------------- */

/* hopper: whether a template of Hopper was taken. */
static bool time_kernel_get(const struct side *side, const char *spec, lathe_dtype dtype, int64_t head_dim,
                            double *seconds, bool *hopper, lathe_error *err)
{
    struct opened o;
    const double start = seconds_now();
    const bool good = opened_open(&o, side, spec, dtype, head_dim, err);
    *seconds = seconds_now() - start;
    *hopper = good && strstr(lathe_kernel_info(o.ready.kernel), "_sm90") != NULL;
    opened_close(&o);
    return good;
}

/* The first compilation of a process also opens NVRTC; so it is shown apart. */
static const struct {
    const char *label;
    const char *spec;
    lathe_dtype dtype;
    int64_t head_dim;
    double bar;
    double hopper_bar;
    bool portable; /* with that template in any case */
} COMPILE[] = {
    {"attention, NVRTC opened too", "causal", LATHE_BF16, 128, 0.8, 1.0, false},
    {"attention causal d128", "causal", LATHE_F16, 128, 0.8, 1.0, false},
    {"attention alibi d64", "alibi", LATHE_BF16, 64, 0.8, 1.0, false},
    {"attention softcap d128", "softcap", LATHE_BF16, 128, 0.8, 1.0, false},
    {"attention document d128", "document", LATHE_BF16, 128, 0.8, 1.0, false},
    {"attention causal d128", "causal", LATHE_F16, 128, 0.8, 1.0, true},
    {"attention alibi d64", "alibi", LATHE_BF16, 64, 0.8, 1.0, true},
    {"attention softcap d128", "softcap", LATHE_BF16, 128, 0.8, 1.0, true},
    {"attention document d128", "document", LATHE_BF16, 128, 0.8, 1.0, true},
    {"rowwise softmax", "softmax", LATHE_BF16, 0, 0.2, 0.2, false},
    {"rowwise layer_norm", "layer_norm", LATHE_BF16, 0, 0.2, 0.2, false},
};
enum { COMPILES = sizeof COMPILE / sizeof COMPILE[0] };

/* side[0] takes any template, side[1] the portable one. */
static bool open_sides(struct side side[2], const struct device *device, lathe_error *err)
{
    bool good = side_open(&side[0], device, "", NULL, NULL, err);
    (void)setenv("LATHE_TEMPLATE", "attention_fwd_sm80", 1);
    good = good && side_open(&side[1], device, "", NULL, NULL, err);
    (void)unsetenv("LATHE_TEMPLATE");
    return good;
}

int child_cold(void)
{
    char why[256] = "";
    lathe_error err = {0};
    struct side side[2] = {{0}};
    (void)setenv("CUDA_CACHE_DISABLE", "1", 1); /* NVRTC 13 asks the driver for what anyone compiled before */
    struct device *device = device_open(false, why, sizeof why);
    bool good = device && open_sides(side, device, &err);
    for (int i = 0; i < COMPILES && good; i++) {
        double seconds = 0.0;
        bool hopper = false;
        const int64_t head_dim = COMPILE[i].head_dim ? COMPILE[i].head_dim : 64;
        good = time_kernel_get(&side[COMPILE[i].portable], COMPILE[i].spec, COMPILE[i].dtype, head_dim,
                               &seconds, &hopper, &err);
        if (good) {
            (void)printf("%.9f %d\n", seconds, hopper);
        }
    }
    if (!good) {
        (void)printf("-1 %s\n", *why ? why : err.text);
    }
    (void)fflush(stdout);
    return good ? 0 : 1;
}

static void report_compile(int n, const char *line, const struct options *options, struct totals *totals)
{
    char label[64];
    char *end = NULL;
    const double seconds = strtod(line, &end);
    const bool hopper = strtol(end, NULL, 10) != 0;
    (void)snprintf(label, sizeof label, "cold, %s%s", COMPILE[n].label,
                   hopper                     ? " (Hopper)"
                   : COMPILE[n].head_dim != 0 ? " (portable)"
                                              : "");
    report(label, seconds, hopper ? COMPILE[n].hopper_bar : COMPILE[n].bar, 1.0, "s", options, totals);
}

/* In a process of its own, which finds nothing compiled. */
static void time_compiles(const struct options *options, struct totals *totals)
{
    char line[512] = "";
    int output = -1;
    const int pid = child_start(options, "cold", "", &output);
    FILE *stream = pid > 0 ? fdopen(output, "r") : NULL;
    int n = 0;
    while (n < COMPILES && stream && fgets(line, sizeof line, stream) && line[0] != '-') {
        report_compile(n, line, options, totals);
        n++;
    }
    if (stream) {
        (void)fclose(stream);
    }
    if (pid <= 0 || child_wait(pid) != 0 || n < COMPILES) {
        verdict(totals, false, "compile", line);
    }
}

/* ---- a new process with a warm disk cache ------------------------------------------------------------ */

/* Before the clock runs: CUDA's own start (context, a memset kernel, a stream) and the tensors. In the
   time: context, spec, kernel from the disk cache, launch, and the wait for its result. */
int child_first_call(const char *cache)
{
    char why[256] = "";
    lathe_error err = {0};
    struct side side = {0};
    struct opened o;
    struct device *device = device_open(false, why, sizeof why);
    if (!device || !opened_place(&o, device, "causal", LATHE_BF16, 128, &err)) {
        (void)printf("-1 %s\n", *why ? why : err.text);
        return 1;
    }
    lathe_stream warm = device_stream_new(device);
    (void)(ready_poison(&o.ready, &o.side) && device_sync(device, warm));
    device_stream_free(device, warm);
    const double start = seconds_now();
    const bool good = side_open(&side, device, cache, NULL, NULL, &err) && opened_kernel(&o, &side, &err) &&
                      ready_launch(&o.ready, &side, false, &err) == LATHE_OK;
    (void)printf("%.9f %s\n", seconds_now() - start, good ? "" : err.text);
    (void)fflush(stdout);
    return good ? 0 : 1;
}

static bool read_child(const struct options *options, const char *cache, double *first, char *why,
                       size_t size)
{
    char line[512] = "";
    int output = -1;
    const int pid = child_start(options, "first-call", cache, &output);
    FILE *stream = pid > 0 ? fdopen(output, "r") : NULL;
    const bool spoke = stream && fgets(line, sizeof line, stream);
    if (stream) {
        (void)fclose(stream);
    }
    if (pid <= 0 || child_wait(pid) != 0 || !spoke) {
        (void)snprintf(why, size, "a process with a warm cache failed: %.400s", line);
        return false;
    }
    *first = strtod(line, NULL);
    return true;
}

static void time_first_calls(const struct options *options, struct totals *totals)
{
    char cache[256] = "";
    char why[512] = "";
    double first[CHILDREN] = {0};
    double cold = 0.0;
    bool good = folder_make(cache, sizeof cache) && read_child(options, cache, &cold, why, sizeof why);
    for (int i = 0; i < CHILDREN && good; i++) {
        good = read_child(options, cache, &first[i], why, sizeof why);
    }
    folder_remove(cache);
    if (!good) {
        verdict(totals, false, "first", why);
        return;
    }
    report("first call, new process, warm disk cache", median(first, CHILDREN), 5e-3, 1e3, "ms", options,
           totals);
}

/* ---- repeated calls ------------------------------------------------------------------------------------ */

static bool time_gets(struct opened *o, double *seconds, lathe_error *err)
{
    const double start = seconds_now();
    for (int i = 0; i < CALLS; i++) {
        lathe_kernel *kernel = NULL;
        if (lathe_kernel_get(&kernel, o->side.ctx, o->spec, LATHE_FORWARD, o->ready.arg, o->ready.n, err) !=
            LATHE_OK) {
            return false;
        }
        lathe_kernel_release(kernel);
    }
    *seconds = (seconds_now() - start) / CALLS;
    return true;
}

/* Bursts stay below the depth of the launch queue, so that no launch waits for the GPU. */
static bool time_launches(struct opened *o, double *seconds, lathe_error *err)
{
    double burst[BURSTS] = {0};
    for (int i = 0; i < BURSTS; i++) {
        const double start = seconds_now();
        for (int k = 0; k < LAUNCHES; k++) {
            if (lathe_launch(o->ready.kernel, o->ready.arg, o->ready.n, o->ready.workspace, o->side.stream,
                             err) != LATHE_OK) {
                return false;
            }
        }
        burst[i] = (seconds_now() - start) / LAUNCHES;
        (void)device_sync(o->side.device, o->side.stream);
    }
    *seconds = median(burst, BURSTS);
    return true;
}

static void time_calls(const struct device *device, const struct options *options, struct totals *totals)
{
    struct side side = {0};
    struct opened o;
    lathe_error err = {0};
    double get = 0.0;
    double launch = 0.0;
    memset(&o, 0, sizeof o);
    const bool good = side_open(&side, device, "", NULL, NULL, &err) &&
                      opened_open(&o, &side, "causal", LATHE_BF16, 64, &err) &&
                      ready_launch(&o.ready, &side, false, &err) == LATHE_OK && time_gets(&o, &get, &err) &&
                      time_launches(&o, &launch, &err);
    opened_close(&o);
    side_close(&side);
    if (!good) {
        verdict(totals, false, "calls", err.text);
        return;
    }
    report("lathe_kernel_get, repeated", get, 2e-6, 1e6, "us", options, totals);
    report("lathe_launch, host side", launch, 5e-6, 1e6, "us", options, totals);
}

void times_run(const struct device *device, const struct options *options, struct totals *totals)
{
    time_compiles(options, totals);
    time_first_calls(options, totals);
    time_calls(device, options, totals);
}
