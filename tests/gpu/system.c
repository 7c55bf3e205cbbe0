/*
 * system.c: what is about the library and not about one kernel: threads, graphs, times, processes.
 *
 * In: the contexts that main opened and the options. Out: lines on standard output, counts in totals.
 * Tests that need an empty or a warm cache make a folder under /tmp and remove it; the processes they start
 * are this binary again with --child.
 */
#include "system.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test_case small_case(const char *spec, lathe_dtype dtype, int64_t head_dim)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    c.spec = spec_find(spec);
    c.rounding = LATHE_BF16;
    c.seed = 5;
    c.leading = 1;
    for (int i = 0; i < DIM_COUNT; i++) {
        c.dim[i] = 1;
    }
    c.dim[DIM_H] = c.dim[DIM_H_KV] = 2;
    c.dim[DIM_Q] = c.dim[DIM_KV] = 100;
    c.dim[DIM_D] = c.dim[DIM_D_V] = head_dim;
    c.dim[DIM_ROWS] = 3;
    c.dim[DIM_N] = 300;
    c.n_runs = 1;
    c.run[0] = (struct case_run){dtype, LAYOUT_COMPACT};
    return c;
}

void verdict(struct totals *totals, bool passed, const char *name, const char *note)
{
    char line[640];
    (void)snprintf(line, sizeof line, "%s", note);
    one_line(line);
    totals->passed += passed;
    totals->failed += !passed;
    (void)printf("%s%-9s %s%s%s\n", passed ? "" : "  FAILED ", name, passed ? "passed" : "",
                 *line ? ": " : "", line);
    (void)fflush(stdout);
}

void opened_close(struct opened *o)
{
    ready_close(&o->ready, &o->side);
    case_data_close(&o->data);
    lathe_spec_destroy(o->spec);
}

bool opened_place(struct opened *o, const struct device *device, const char *spec, lathe_dtype dtype,
                  int64_t head_dim, lathe_error *err)
{
    memset(o, 0, sizeof *o);
    memset(err, 0, sizeof *err);
    o->side.device = device;
    o->test = small_case(spec, dtype, head_dim);
    if (!case_data_open(&o->data, &o->test)) {
        (void)snprintf(err->text, sizeof err->text, "out of host memory");
        return false;
    }
    return ready_place(&o->ready, &o->side, &o->test, &o->data, o->test.run[0], err) == LATHE_OK;
}

bool opened_kernel(struct opened *o, const struct side *side, lathe_error *err)
{
    o->side = *side;
    return spec_open(&o->spec, o->test.spec, err) == LATHE_OK &&
           ready_kernel(&o->ready, side, o->spec, LATHE_FORWARD, err) == LATHE_OK;
}

bool opened_open(struct opened *o, const struct side *side, const char *spec, lathe_dtype dtype,
                 int64_t head_dim, lathe_error *err)
{
    return opened_place(o, side->device, spec, dtype, head_dim, err) && opened_kernel(o, side, err);
}

bool side_open(struct side *side, const struct device *device, const char *cache, lathe_log_fn *log,
               void *user, lathe_error *err)
{
    return side_open_with(side, device, cache, log, user, false, err);
}

bool side_open_with(struct side *side, const struct device *device, const char *cache, lathe_log_fn *log,
                    void *user, int deterministic, lathe_error *err)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    options.deterministic = deterministic;
    options.device = device_ordinal(device);
    options.cache_dir = cache;
    options.log = log;
    options.log_user = user;
    side->device = device;
    side->ctx = NULL;
    side->stream = NULL;
    if (lathe_ctx_create(&side->ctx, &options, err) != LATHE_OK) {
        return false;
    }
    side->stream = device_stream_new(device);
    return true;
}

void side_close(struct side *side)
{
    device_stream_free(side->device, side->stream);
    lathe_ctx_destroy(side->ctx);
}

/* ---- threads on one context --------------------------------------------------------------------- */

static const struct {
    const char *spec;
    lathe_dtype dtype;
} MIXTURE[] = {{"causal", LATHE_BF16},   {"softmax", LATHE_F32}, {"alibi", LATHE_F16},
               {"rms_norm", LATHE_BF16}, {"causal", LATHE_F16},  {"sinks", LATHE_BF16}};
enum { MIXTURE_SIZE = 6, THREADS = 8, ROUNDS = 12 };

struct crowd {
    const struct side *side;
    pthread_mutex_t lock;
    struct opened *first[MIXTURE_SIZE]; /* results of one thread alone */
    int arrived;                        /* members so far: each starts at another place of the mixture */
    int wrong;
    char why[512];
};

static void note_wrong(struct crowd *crowd, const char *why)
{
    (void)pthread_mutex_lock(&crowd->lock);
    if (crowd->wrong++ == 0) {
        (void)snprintf(crowd->why, sizeof crowd->why, "%.500s", why);
    }
    (void)pthread_mutex_unlock(&crowd->lock);
}

/* Compare outputs with those of the thread that ran alone, bit by bit. */
static bool same_outputs(const struct ready *a, const struct ready *b)
{
    for (int i = 0; i < a->n_tensors; i++) {
        const struct tensor *t = &a->tensor[i];
        const size_t size = (size_t)t->span * lathe_dtype_size(t->dtype);
        if (tensor_is_output(t) && t->given && memcmp(t->bytes, b->tensor[i].bytes, size) != 0) {
            return false;
        }
    }
    return true;
}

static void *crowd_member(void *argument)
{
    struct crowd *crowd = argument;
    struct side side = *crowd->side;
    if (!device_bind(side.device)) {
        note_wrong(crowd, device_error());
        return NULL;
    }
    (void)pthread_mutex_lock(&crowd->lock);
    const int number = crowd->arrived++;
    (void)pthread_mutex_unlock(&crowd->lock);
    side.stream = device_stream_new(side.device);
    for (int round = 0; round < ROUNDS; round++) {
        const int pick = (round * 5 + number) % MIXTURE_SIZE;
        struct opened own;
        lathe_error err;
        const bool launched = opened_open(&own, &side, MIXTURE[pick].spec, MIXTURE[pick].dtype, 48, &err) &&
                              ready_launch(&own.ready, &side, false, &err) == LATHE_OK;
        if (!launched) {
            note_wrong(crowd, err.text);
        } else if (!same_outputs(&own.ready, &crowd->first[pick]->ready)) {
            note_wrong(crowd, "a result differs from that of one thread alone");
        }
        opened_close(&own);
    }
    device_stream_free(side.device, side.stream);
    return NULL;
}

static void run_crowd(struct crowd *crowd)
{
    pthread_t thread[THREADS];
    int started = 0;
    while (started < THREADS && pthread_create(&thread[started], NULL, crowd_member, crowd) == 0) {
        started++;
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(thread[i], NULL);
    }
    if (started == 0) {
        note_wrong(crowd, "no thread could be started");
    }
}

/* The expected results come from another context, so the crowd meets a context that has compiled nothing. */
static void test_threads(const struct device *device, struct totals *totals)
{
    struct crowd crowd;
    struct opened *alone = calloc(MIXTURE_SIZE, sizeof *alone);
    struct side shared = {0};
    struct side lonely = {0};
    lathe_error err = {0};
    memset(&crowd, 0, sizeof crowd);
    (void)pthread_mutex_init(&crowd.lock, NULL);
    crowd.side = &shared;
    bool good = alone && side_open(&shared, device, "", NULL, NULL, &err) &&
                side_open(&lonely, device, "", NULL, NULL, &err);
    int opened = 0;
    for (; opened < MIXTURE_SIZE && good; opened++) {
        crowd.first[opened] = &alone[opened];
        good = opened_open(&alone[opened], &lonely, MIXTURE[opened].spec, MIXTURE[opened].dtype, 48, &err) &&
               ready_launch(&alone[opened].ready, &lonely, false, &err) == LATHE_OK;
    }
    if (good) {
        run_crowd(&crowd);
    }
    for (int i = 0; i < opened; i++) {
        opened_close(&alone[i]);
    }
    free(alone);
    side_close(&lonely);
    side_close(&shared);
    (void)pthread_mutex_destroy(&crowd.lock);
    verdict(totals, good && crowd.wrong == 0, "threads", good ? crowd.why : err.text);
}

/* ---- graphs ---------------------------------------------------------------------------------------- */

static bool capture_and_replay(struct opened *o, char *why, size_t size)
{
    const struct device *device = o->side.device;
    lathe_error err = {0};
    bool good = device_capture_begin(device, o->side.stream);
    if (!good) {
        (void)snprintf(why, size, "%s", device_error());
        return false;
    }
    const lathe_status status =
        lathe_launch(o->ready.kernel, o->ready.arg, o->ready.n, o->ready.workspace, o->side.stream, &err);
    struct graph *graph = device_capture_end(device, o->side.stream);
    if (status != LATHE_OK || !graph) {
        (void)snprintf(why, size, "%s", status != LATHE_OK ? err.text : device_error());
        device_graph_free(device, graph);
        return false;
    }
    for (int replay = 0; replay < 3 && good; replay++) {
        good = ready_poison(&o->ready, &o->side) && device_graph_launch(device, graph, o->side.stream) &&
               ready_fetch(&o->ready, &o->side, true);
        if (!good) {
            (void)snprintf(why, size, "%s", device_error());
        } else if (ready_difference(&o->ready)) {
            (void)snprintf(why, size, "replay %d of %s gave another '%s' than the plain launch", replay,
                           o->test.spec->name, ready_difference(&o->ready));
            good = false;
        }
    }
    device_graph_free(device, graph);
    return good;
}

/* causal: one kernel; document: a map of the mask first; qk_norm: mods through the workspace. */
static void test_graphs(const struct side *side, struct totals *totals)
{
    static const char *const SPEC[] = {"causal", "document", "qk_norm", "layer_norm"};
    char why[768] = "";
    bool good = true;
    for (size_t i = 0; i < sizeof SPEC / sizeof SPEC[0] && good; i++) {
        struct opened o;
        lathe_error err;
        good = opened_open(&o, side, SPEC[i], LATHE_BF16, 64, &err) &&
               ready_launch(&o.ready, side, false, &err) == LATHE_OK;
        if (!good) {
            (void)snprintf(why, sizeof why, "%s: %.600s", SPEC[i], err.text);
        }
        good = good && capture_and_replay(&o, why, sizeof why);
        opened_close(&o);
    }
    verdict(totals, good, "graphs", why);
}

void system_run(const struct bench *shared, const struct options *options, struct totals *totals)
{
    test_threads(shared->tested.device, totals);
    if (options->dry) {
        (void)printf("graphs, times, processes: skipped, they need a GPU\n");
        return;
    }
    test_graphs(&shared->tested, totals);
    if (!options->quick) {
        test_race(options, totals);
        times_run(shared->tested.device, options, totals);
    }
}
