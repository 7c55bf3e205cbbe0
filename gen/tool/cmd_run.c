/*
 * cmd_run.c: `lathe run`: one kernel on random or given data, timed, and compared with the host device.
 * In: parsed options. Out: lines on standard output and the .npy files asked for. Launches go through the
 * public API; only device memory and events come from the runtime. Everything is freed before it returns.
 */
#include "gen/tool/run.h"
#include "runtime/driver/memory.h"
#include "runtime/jit/jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session { /* the device side of a run */
    struct run *run;
    const struct plan *plan; /* to be taken; NULL: the best */
    lathe_ctx *ctx;
    lathe_spec *spec;
    lathe_kernel *kernel;
    const struct driver *driver; /* NULL on the host device */
    bool pushed;
    void *workspace;
    struct stopwatch watch;
    lathe_arg arg[MAX_ARGS]; /* device data */
    double kernel_seconds;
    struct progress progress;
    struct text_buf text; /* the report, as far as it is not printed */
    struct facts facts;   /* which writes it */
};

static void log_line(void *user, int level, const char *text)
{
    struct session *s = user;
    if (level == 0)
        tool_complain("%s", text);
    else if (level == 1)
        progress_text(&s->progress, "%.150s", text);
}

static lathe_status open_spec(struct session *s, const struct options *o, lathe_error *err)
{
    struct spec_params params;
    lathe_param given[MAX_GIVEN_PARAMS];
    if (!tool_params(o, &params)) /* it was read once before */
        return lathe__fail(err, LATHE_ARG, "--param: expected numbers");
    for (int i = 0; i < params.n; i++)
        given[i] = (lathe_param){params.item[i].name, params.item[i].value};
    return lathe_spec_open(&s->spec, o->operand[0], NULL, 0, given, params.n, err);
}

static lathe_status open_session(struct session *s, lathe_error *err)
{
    const struct options *o = s->run->o;
    const lathe_options options = {
        .device = o->device, .cache_dir = o->cache_dir, .log = log_line, .log_user = s};
    TRY(lathe_ctx_create(&s->ctx, &options, err));
    s->ctx->device = device_asked(&s->ctx->device, o);
    if (s->plan) {
        struct device *device = &s->ctx->device;
        snprintf(device->template_name, sizeof device->template_name, "%s", s->plan->row->name);
        snprintf(device->tile, sizeof device->tile, "%s", s->plan->tile);
    }
    s->driver = lathe_ctx_device(s->ctx) == LATHE_DEVICE_HOST ? NULL : s->ctx->driver;
    TRY(open_spec(s, o, err));
    run_args(s->run, s->arg);
    const double start = tool_seconds_now();
    s->ctx->deterministic = s->run->problem.deterministic;
    TRY(lathe_kernel_get(&s->kernel, s->ctx, s->spec, o->pass, s->arg, s->run->n, err));
    s->kernel_seconds = tool_seconds_now() - start;
    return s->driver ? lathe__context_enter(s->driver, s->ctx->context, &s->pushed, err) : LATHE_OK;
}

static bool is_scalar(const struct run *run, const struct run_tensor *t)
{
    return lathe__is_host_value(&run->sig.arg[t->sig]);
}

static lathe_status move_to_device(struct session *s, lathe_error *err)
{
    size_t size = 0;
    TRY(lathe_workspace_size(&size, s->kernel, s->arg, s->run->n, err));
    if (!s->driver) {
        s->workspace = size ? malloc(size) : NULL;
        return size && !s->workspace ? lathe__fail_memory(err) : LATHE_OK;
    }
    progress_text(&s->progress, "copying tensors to the device");
    for (int i = 0; i < s->run->n; i++) {
        struct run_tensor *t = &s->run->tensor[i];
        if (is_scalar(s->run, t))
            continue;
        TRY(lathe__device_alloc(s->driver, &t->device, t->bytes, err));
        TRY(lathe__device_upload(s->driver, t->device, t->host, t->bytes, err));
        s->arg[i].data = t->device;
    }
    TRY(lathe__device_alloc(s->driver, &s->workspace, size, err));
    return lathe__stopwatch_create(s->driver, &s->watch, err);
}

/* ---- the forward pass before a backward pass ---------------------------------------------------- */

struct forward {
    struct signature sig;
    lathe_kernel *kernel;
    int n;
    lathe_arg arg[MAX_ARGS];
    int n_scratch;
    void *scratch[MAX_ARGS + 1]; /* results that the backward pass does not read, and the workspace */
};

static lathe_status take_memory(struct session *s, struct forward *f, size_t bytes, void **out,
                                lathe_error *err)
{
    *out = s->driver || !bytes ? NULL : malloc(bytes);
    if (!s->driver && bytes && !*out)
        return lathe__fail_memory(err);
    if (s->driver)
        TRY(lathe__device_alloc(s->driver, out, bytes, err));
    f->scratch[f->n_scratch++] = *out;
    return LATHE_OK;
}

/* The shape of a result is that of its gradient. */
static lathe_status add_scratch(struct session *s, struct forward *f, const char *name, lathe_error *err)
{
    char seed[NAME_MAX_BYTES + 2];
    snprintf(seed, sizeof seed, "d%s", name);
    const struct run_tensor *t = run_find(s->run, seed);
    if (!t)
        return lathe__fail(err, LATHE_ARG, "the forward pass needs '%s', which has no gradient '%s'", name,
                           seed);
    lathe_arg *a = &f->arg[f->n++];
    *a = s->arg[t - s->run->tensor];
    a->name = name;
    return take_memory(s, f, t->bytes, &a->data, err);
}

static lathe_status forward_args(struct session *s, struct forward *f, lathe_error *err)
{
    for (int i = 0; i < f->sig.n_args; i++) {
        const struct sig_arg *a = &f->sig.arg[i];
        const struct run_tensor *t = run_find(s->run, a->name);
        const bool output = a->role == ROLE_OUT || a->role == ROLE_OUT_OPTIONAL;
        if (t && (!output || t->from_forward))
            f->arg[f->n++] = s->arg[t - s->run->tensor];
        else if (a->role == ROLE_OUT)
            TRY(add_scratch(s, f, a->name, err));
    }
    return LATHE_OK;
}

static lathe_status launch_forward(struct session *s, struct forward *f, lathe_error *err)
{
    size_t size = 0;
    void *workspace = NULL;
    struct device *device = &s->ctx->device;
    const bool only = device->template_only;
    TRY(forward_args(s, f, err));
    device->template_only = false; /* --template names one of the backward pass */
    const lathe_status got = lathe_kernel_get(&f->kernel, s->ctx, s->spec, LATHE_FORWARD, f->arg, f->n, err);
    device->template_only = only;
    TRY(got);
    TRY(lathe_workspace_size(&size, f->kernel, f->arg, f->n, err));
    TRY(take_memory(s, f, size, &workspace, err));
    TRY(lathe_launch(f->kernel, f->arg, f->n, workspace, NULL, err));
    return s->driver ? lathe__device_wait(s->driver, err) : LATHE_OK;
}

static bool needs_forward(const struct run *run)
{
    bool needs = false;
    for (int i = 0; i < run->n; i++)
        needs = needs || run->tensor[i].from_forward;
    return needs;
}

static lathe_status run_forward(struct session *s, lathe_error *err)
{
    if (!needs_forward(s->run))
        return LATHE_OK;
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return lathe__fail_memory(err);
    progress_text(&s->progress, "running the forward pass");
    signature_make(s->run->ir, LATHE_FORWARD, &f->sig);
    const lathe_status status = launch_forward(s, f, err);
    lathe_kernel_release(f->kernel);
    for (int i = 0; i < f->n_scratch; i++) {
        if (s->driver)
            lathe__device_free(s->driver, f->scratch[i]);
        else
            free(f->scratch[i]);
    }
    free(f);
    return status;
}

/* ---- launches ---------------------------------------------------------------------------------- */

static lathe_status launch(struct session *s, lathe_error *err)
{
    return lathe_launch(s->kernel, s->arg, s->run->n, s->workspace, NULL, err);
}

/* Seconds of one launch: of the device's own clock, or of the host device's work. */
static lathe_status time_once(struct session *s, double *seconds, lathe_error *err)
{
    if (s->driver) {
        TRY(lathe__stopwatch_start(s->driver, &s->watch, NULL, err));
        TRY(launch(s, err));
        return lathe__stopwatch_stop(s->driver, &s->watch, NULL, seconds, err);
    }
    const double start = tool_seconds_now();
    TRY(launch(s, err));
    *seconds = tool_seconds_now() - start;
    return LATHE_OK;
}

static lathe_status time_all(struct session *s, double *seconds, lathe_error *err)
{
    if (s->driver) { /* a first launch pays for what is lazy */
        progress_text(&s->progress, "running");
        TRY(launch(s, err));
        TRY(lathe__device_wait(s->driver, err));
    }
    for (int i = 0; i < s->run->o->repeat; i++) {
        progress_text(&s->progress, "running, launch %d of %d", i + 1, s->run->o->repeat);
        TRY(time_once(s, &seconds[i], err));
    }
    return LATHE_OK;
}

static lathe_status move_to_host(struct session *s, lathe_error *err)
{
    for (int i = 0; s->driver && i < s->run->n; i++) {
        const struct run_tensor *t = &s->run->tensor[i];
        if (run_is_output(s->run, t))
            TRY(lathe__device_download(s->driver, t->host, t->device, t->bytes, err));
    }
    return LATHE_OK;
}

static void close_session(struct session *s)
{
    if (s->driver) {
        for (int i = 0; i < s->run->n; i++)
            lathe__device_free(s->driver, s->run->tensor[i].device);
        lathe__device_free(s->driver, s->workspace);
        lathe__stopwatch_destroy(s->driver, &s->watch);
        lathe__context_leave(s->driver, s->pushed);
    } else {
        free(s->workspace);
    }
    lathe_kernel_release(s->kernel);
    lathe_spec_destroy(s->spec);
    lathe_ctx_destroy(s->ctx);
}

/* ---- report ------------------------------------------------------------------------------------ */

static void report_ready(const struct session *s, struct facts *f)
{
    char time[32];
    const bool from_disk = s->kernel->module->from_disk;
    run_time_text(s->kernel_seconds, time, sizeof time);
    facts_number(f, "ready_seconds", s->kernel_seconds);
    facts_bool(f, "from_cache", from_disk);
    facts_line(f, "ready in   %s (%s)\n", time, from_disk ? "from the cache on disk" : "compiled");
}

static void report(const struct session *s, double *seconds)
{
    struct facts *f = s->run->facts;
    struct text_buf text = {0};
    const struct source *source = lathe__kernel_source(s->kernel);
    const char *label = source ? source->label : s->run->ir->name;
    problem_text(&s->run->sig, &s->run->problem, &text);
    facts_string(f, "kernel", label);
    facts_string(f, "device", lathe_ctx_device_name(s->ctx));
    facts_string(f, "problem", text.data ? text.data : "");
    facts_line(f, "kernel     %s\ndevice     %s\nproblem    %s\n", label, lathe_ctx_device_name(s->ctx),
               text.data ? text.data : "");
    text_free(&text);
    if (s->driver)
        report_ready(s, f);
    run_report_rate(s->run, run_report_time(f, seconds, s->run->o->repeat));
}

/* For people, what is there so far. */
static void show(struct session *s)
{
    if (s->run->o->json)
        return;
    (void)tool_print(&s->text);
    fflush(stdout);
}

/* Once more, with what the host has now, results included: what the kernel does not write shows. */
static lathe_status run_again(struct session *s, lathe_error *err)
{
    for (int i = 0; s->driver && i < s->run->n; i++) {
        const struct run_tensor *t = &s->run->tensor[i];
        if (!is_scalar(s->run, t) && !t->from_forward)
            TRY(lathe__device_upload(s->driver, t->device, t->host, t->bytes, err));
    }
    TRY(launch(s, err));
    if (s->driver)
        TRY(lathe__device_wait(s->driver, err));
    return move_to_host(s, err);
}

static int verify(struct session *s)
{
    lathe_error err = {0};
    int code = CODE_OK;
    if (run_verify_samples(s->run)) {
        code = run_verify_sample(s->run);
        if (code != CODE_OK && code != CODE_FAILED)
            return code;
        if (run_again(s, &err) != LATHE_OK)
            return complain_error(&err);
    }
    const int compared = run_verify(s->run);
    if (!s->driver) {
        facts_line(s->run->facts,
                   "verify     the host device was compared with itself: that its results come "
                   "again, and not that the spec is right, which `lathe check` proves\n");
        show(s);
        tool_warn_proofs(s->run->ir);
    }
    return compared > code ? compared : code;
}

static int finish(struct session *s, double *seconds)
{
    struct run *run = s->run;
    run->facts = &s->facts;
    facts_begin(run->facts, &s->text, run->o->json);
    report(s, seconds);
    show(s);
    const int written = run_write(run); /* before --verify uses the tensors for a sample */
    facts_open(run->facts, "verify", '[');
    const int code = run->o->verify ? verify(s) : CODE_OK;
    facts_close(run->facts);
    facts_bool(run->facts, "verified", run->o->verify && code == CODE_OK);
    facts_end(run->facts);
    (void)tool_print(&s->text);
    return written > code ? written : code;
}

/* Everything up to the last launch. */
static lathe_status run_launches(struct session *s, double *seconds, lathe_error *err)
{
    TRY(open_session(s, err));
    TRY(move_to_device(s, err));
    TRY(run_forward(s, err));
    return time_all(s, seconds, err);
}

lathe_status run_measure(struct run *run, const struct plan *plan, double *seconds, char label[128],
                         lathe_error *err)
{
    struct session s;
    memset(&s, 0, sizeof s);
    s.run = run;
    s.plan = plan;
    progress_start(&s.progress, "preparing the kernel");
    const lathe_status status = run_launches(&s, seconds, err);
    progress_stop(&s.progress);
    if (status == LATHE_OK)
        snprintf(label, 128, "%s",
                 lathe__kernel_source(s.kernel) ? lathe__kernel_source(s.kernel)->label : "");
    run_sort_seconds(seconds, run->o->repeat);
    close_session(&s);
    for (int i = 0; i < run->n; i++)
        run->tensor[i].device = NULL;
    return status;
}

static int run_session(struct run *run)
{
    struct session s;
    lathe_error err = {0};
    double *seconds = calloc((size_t)run->o->repeat, sizeof *seconds);
    memset(&s, 0, sizeof s);
    s.run = run;
    if (!seconds) {
        tool_complain("out of memory");
        return CODE_ENVIRONMENT;
    }
    progress_start(&s.progress, "preparing the kernel");
    lathe_status status = run_launches(&s, seconds, &err);
    if (status == LATHE_OK)
        status = move_to_host(&s, &err);
    progress_stop(&s.progress);
    const int code = status == LATHE_OK ? finish(&s, seconds) : complain_error(&err);
    close_session(&s);
    free(seconds);
    return code;
}

int cmd_run(const struct options *o)
{
    if (strcmp(o->operand[0], "nsa") == 0) /* no spec: several in order */
        return run_nsa(o);
    struct run *run = calloc(1, sizeof *run); /* large for a stack */
    struct progress progress;
    int code = CODE_ENVIRONMENT;
    if (!run) {
        tool_complain("out of memory");
        return code;
    }
    run->o = o;
    run->ir = tool_spec(o->operand[0], o, &code);
    if (run->ir) {
        progress_start(&progress, "making tensors");
        code = run_prepare(run, o->verify);
        progress_stop(&progress);
    }
    if (run->ir && code == CODE_OK)
        code = run_verify_fits(run);
    if (run->ir && code == CODE_OK)
        code = run_session(run);
    run_free(run);
    ir_free(run->ir);
    free(run);
    return code;
}
