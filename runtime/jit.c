/*
 * jit.c: spec x arguments -> a kernel that can run. In: a context, a spec, arguments; out: a kernel, the
 * caller's until lathe_kernel_release. The way: problem -> table in memory -> plan -> emit -> key -> module
 * (build.c). One of two files of the project that see both gen/ and runtime/; specs are
 * wrapped here for that reason. On the host device there is nothing to build: a launch evaluates the spec.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rt.h"
#include "../gen/gen.h"

struct lathe_spec {
    atomic_int references; /* the user's, and one of every kernel */
    struct ir *ir;
    struct signature sig[2]; /* by pass */
    uint64_t presence[2];    /* by pass: lathe__built_presence */
    bool shipped;
};

/* ---- specs ---------------------------------------------------------------------------------------- */

static void spec_release(struct lathe_spec *spec)
{
    if (!spec || atomic_fetch_sub(&spec->references, 1) != 1)
        return;
    ir_free(spec->ir);
    free(spec);
}

static void describe_pass(struct lathe_spec *spec, lathe_pass pass)
{
    struct signature *sig = &spec->sig[pass];
    signature_make(spec->ir, pass, sig);
    spec->presence[pass] = lathe__built_presence(sig);
}

static lathe_status load(lathe_spec **out, const char *name, const char *text, size_t size, struct diag *diag,
                         lathe_error *err)
{
    struct lathe_spec *spec = calloc(1, sizeof *spec);
    if (!spec)
        return lathe__fail_memory(err);
    atomic_init(&spec->references, 1);
    spec->ir = spec_load(name, text, size, diag);
    if (!spec->ir) {
        free(spec);
        if (diag->n == 0)
            return lathe__fail_memory(err);
        diag_to_error(diag, LATHE_SPEC, err);
        return LATHE_SPEC;
    }
    describe_pass(spec, LATHE_FORWARD);
    describe_pass(spec, LATHE_BACKWARD);
    *out = spec;
    return LATHE_OK;
}

static lathe_status load_with_diag(lathe_spec **out, const char *name, const char *text, size_t size,
                                   lathe_error *err)
{
    struct diag *diag = calloc(1, sizeof *diag);
    if (!diag)
        return lathe__fail_memory(err);
    const lathe_status status = load(out, name, text, size, diag, err);
    free(diag);
    return status;
}

lathe_status lathe_spec_load(lathe_spec **out, const char *path, lathe_error *err)
{
    char shipped[128];
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!path)
        return lathe__fail(err, LATHE_ARG, "path: expected a file or the name of a shipped spec, given NULL");
    if (!strchr(path, '/') && strlen(path) < NAME_MAX_BYTES) {
        snprintf(shipped, sizeof shipped, "specs/%s.lua", path);
        const struct embedded *file = embedded_find(shipped);
        if (file) {
            const lathe_status status = load_with_diag(out, shipped, file->data, file->size, err);
            if (*out)
                (*out)->shipped = true;
            return status;
        }
    }
    return load_with_diag(out, path, NULL, 0, err);
}

lathe_status lathe_spec_parse(lathe_spec **out, const char *name, const char *text, size_t size,
                              lathe_error *err)
{
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_spec pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    if (!name || !text)
        return lathe__fail(err, LATHE_ARG, "%s: expected a string, given NULL", name ? "text" : "name");
    return load_with_diag(out, name, text, size, err);
}

void lathe_spec_destroy(lathe_spec *spec)
{
    spec_release(spec);
}

/* ---- checks --------------------------------------------------------------------------------------- */

static bool on_host(const struct lathe_ctx *ctx)
{
    return ctx->ordinal == LATHE_DEVICE_HOST;
}

static lathe_status check_call(const struct lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                               lathe_error *err)
{
    if (!ctx || !spec)
        return lathe__fail(err, LATHE_ARG, "%s: expected an object, given NULL", ctx ? "spec" : "ctx");
    if (pass != LATHE_FORWARD && pass != LATHE_BACKWARD)
        return lathe__fail(err, LATHE_ARG, "pass: expected LATHE_FORWARD or LATHE_BACKWARD, given %d",
                           (int)pass);
    return LATHE_OK;
}

static lathe_status bind_problem(const struct lathe_ctx *ctx, const struct signature *sig,
                                 const lathe_arg *args, int n, struct problem *problem,
                                 struct bound_args *bound, lathe_error *err)
{
    TRY(problem_from_args(sig, args, n, false, problem, err));
    problem->deterministic = sig->backward && ctx->deterministic;
    TRY(lathe__args_bind(sig, args, n, bound, err));
    return on_host(ctx) ? LATHE_OK : lathe__args_fit_gpu(sig, problem, bound, err);
}

/* ---- what is compiled in -------------------------------------------------------------------------- */

/* Fields of a problem that code depends on. Lengths are not among them, but the length of a row (rowwise)
   decides how much of it fits into registers, and where keys are many attention may take other tiles. An
   optional tensor that is absent is folded away; scalars and outputs are launch parameters. */
struct fast_key {
    const struct lathe_spec *spec; /* kernels hold a reference, so the address names one spec */
    int64_t d;
    int64_t d_v;
    int64_t n;
    uint64_t present;
    uint64_t unaligned;
    uint64_t folded;
    uint8_t pass;
    uint8_t deterministic;
    uint8_t dtype;
    uint8_t many_keys;
    uint8_t arg_dtype[MAX_ARGS];
};
_Static_assert(sizeof(struct fast_key) <= FLIGHT_KEY_BYTES, "the table's keys are too short");

static void fast_key_make(const struct device *device, const struct lathe_spec *spec, lathe_pass pass,
                          const struct problem *problem, unsigned char out[FLIGHT_KEY_BYTES])
{
    struct fast_key key;
    memset(&key, 0, sizeof key);
    key.spec = spec;
    key.d = problem->dim[SYM_D];
    key.d_v = problem->dim[SYM_D_V];
    key.n = problem->dim[SYM_N];
    key.present = problem->present & spec->presence[pass];
    key.unaligned = problem->unaligned;
    key.folded = problem->folded;
    key.pass = (uint8_t)pass;
    key.deterministic = problem->deterministic;
    key.dtype = (uint8_t)problem->dtype;
    key.many_keys = plan_asks_keys(pass, problem, device) && lathe__many_keys(problem);
    memcpy(key.arg_dtype, problem->arg_dtype, sizeof key.arg_dtype);
    memset(out, 0, FLIGHT_KEY_BYTES);
    memcpy(out, &key, sizeof key);
}

/* ---- build ---------------------------------------------------------------------------------------- */

lathe_status lathe__build_blob(const struct compiler *compiler, const struct source *source, const char *arch,
                               struct cache_blob *out, lathe_error *err)
{
    struct text_buf readable = {0};
    if (lathe__parts_pay(compiler, source))
        TRY(lathe__compile_parts(compiler, source, arch, &out->image, &out->image_size, &out->log, err));
    else
        TRY(lathe__compile(source, &arch, 1, &out->image, &out->image_size, &out->log, compiler, err));
    out->log_size = strlen(out->log);
    snprintf(out->label, sizeof out->label, "%s", source->label);
    emit_inline(source, &readable);
    if (!readable.failed) {
        out->readable = readable.data;
        out->readable_size = readable.size;
    } else {
        text_free(&readable); /* only people miss it */
    }
    return LATHE_OK;
}

static lathe_status describe(struct lathe_kernel *kernel, const char *arch, lathe_error *err)
{
    struct text_buf text = {0};
    char key[KEY_TEXT_BYTES];
    const struct plan *plan = kernel->plan;
    lathe__key_text(kernel->key, key);
    text_add(&text, "kernel: %s\ntemplate: %s\narch: %s\n", kernel->source->label, plan->template_name, arch);
    if (plan->bm > 0)
        text_add(&text, "tile: %d queries x %d keys, %d stages, %d warps\n", plan->bm, plan->bn, plan->stages,
                 plan->warps);
    for (int i = 0; i < kernel->source->n_launches; i++)
        text_add(&text, "%s: %d threads, %d registers, %d bytes of stack, %d bytes of shared memory\n",
                 kernel->source->launch[i].entry, kernel->source->launch[i].threads,
                 kernel->module->registers[i], kernel->module->local_bytes[i],
                 kernel->source->launch[i].smem_bytes);
    if (kernel->is_tuned)
        text_add(&text, "tuned: %.6g s a launch on %s\n", kernel->tuned.seconds, kernel->tuned.device);
    text_add(&text, "plan: %s\nkey: %s\nfrom: %s\n", plan->reason, key,
             kernel->module->from_system ? "system cache"
             : kernel->module->from_disk ? "disk cache"
                                         : "compiler");
    if (text.failed) {
        text_free(&text);
        return lathe__fail_memory(err);
    }
    kernel->info = text.data;
    return LATHE_OK;
}

static lathe_status make_module(struct lathe_kernel *kernel, const struct compiler *compiler,
                                lathe_error *err)
{
    struct lathe_ctx *ctx = kernel->ctx;
    char options[MAX_OPTIONS][OPTION_BYTES];
    char arch[16];
    bool substituted = false;
    TRY(lathe__compiler_arch(compiler, ctx->device.arch, arch, &substituted, err));
    if (substituted)
        lathe__report(&ctx->report, 1,
                      "NVRTC %d.%d does not know %s; compiling PTX for %s, which the driver finishes",
                      compiler->major, compiler->minor, ctx->device.arch, arch);
    const int n = lathe__compile_options(arch, options);
    lathe__key_make(kernel->source, (const char(*)[OPTION_BYTES])options, n, compiler->identity, kernel->key);
    struct module_work work = {
        .ctx = ctx, .source = kernel->source, .arch = arch, .identity = compiler->identity};
    TRY(lathe__module_get(&work, kernel->key, &kernel->module, err));
    return describe(kernel, arch, err);
}

/* Code that some compiler made for this source: in the system cache, or, where nothing can be compiled, in
   the user's. *found false: there is none that loads. */
static lathe_status find_module(struct lathe_kernel *kernel, struct cache *cache, bool *found,
                                lathe_error *err)
{
    struct lathe_ctx *ctx = kernel->ctx;
    char arch[16];
    struct cache_blob blob;
    struct module_work work = {.ctx = ctx, .source = kernel->source, .arch = arch, .found = &blob};
    work.from_system = cache == &ctx->system_cache;
    *found = false;
    if (!lathe__cache_find_made(cache, kernel->source, ctx->device.arch, ctx->driver->version, kernel->key,
                                arch, &blob))
        return LATHE_OK;
    lathe_status status = lathe__module_get(&work, kernel->key, &kernel->module, err);
    lathe__blob_free(&blob);
    if (status == LATHE_CUDA && !ctx->offline) {
        lathe__report(&ctx->report, 0, "kernel cache %s: %s does not load and is compiled instead: %s",
                      cache->path, kernel->source->label, err ? err->text : "");
        return LATHE_OK;
    }
    TRY(status);
    *found = true;
    return describe(kernel, arch, err);
}

/* The sentence of offline mode, with the lines that would provide the kernel. */
static lathe_status fail_offline(const struct lathe_kernel *kernel, lathe_error *err)
{
    const struct lathe_ctx *ctx = kernel->ctx;
    const char *const system = ctx->system_cache.dir_fd >= 0 ? ctx->system_cache.path : "";
    const char *const user = ctx->cache.dir_fd >= 0 ? ctx->cache.path : "";
    struct text_buf words = {0};
    const struct ir *ir = kernel->spec->ir;
    spec_words(kernel->spec->shipped ? ir->name : ir->file[ir->n_files - 1], kernel->sig, &kernel->built,
               &words);
    if (plan_asks_keys(kernel->pass, &kernel->built, &ctx->device) && lathe__many_keys(&kernel->built))
        text_add(&words, ",kv=%lld", (long long)kernel->built.dim[SYM_KV]);
    const char *const w = words.data ? words.data : ir->name;
    const char *const pass = kernel->pass == LATHE_BACKWARD ? "backward" : "forward";
    const lathe_status status = lathe__fail(
        err, LATHE_COMPILE,
        "kernel %s for %s is in no cache (%s%s%s), and offline mode (options.offline, LATHE_OFFLINE) forbids "
        "compiling it; `lathe compile %s --pass %s --arch %s --cache %s`, where NVRTC is, provides it, "
        "`lathe "
        "cache import FILE` brings it from another machine, and `lathe aot %s --pass %s --arch %s -o DIR` "
        "makes it part of a program",
        kernel->source->label, ctx->device.arch, system, system[0] && user[0] ? ", " : "",
        system[0] || user[0] ? user : "none is open", w, pass, ctx->device.arch,
        user[0]     ? user
        : system[0] ? system
                    : "DIR",
        w, pass, ctx->device.arch);
    text_free(&words);
    return status;
}

static lathe_status compile_module(struct lathe_kernel *kernel, lathe_error *err)
{
    struct lathe_ctx *ctx = kernel->ctx;
    const struct compiler *compiler;
    bool found = false;
    lathe_error failure = {0};
    lathe_status status = lathe__ctx_compiler_known(ctx, &compiler, &failure);
    if (status != LATHE_OK) { /* no NVRTC: what others compiled still serves */
        TRY(find_module(kernel, &ctx->cache, &found, err));
        if (found)
            return LATHE_OK;
        if (err)
            *err = failure;
        return status;
    }
    status = make_module(kernel, compiler, err);
    if (status == LATHE_CACHE) { /* the note was about another NVRTC: now the real one is open */
        TRY(lathe__ctx_compiler(ctx, &compiler, err));
        status = make_module(kernel, compiler, err);
    }
    return status;
}

/* What `lathe tune` has measured, here or on another machine of the kind. */
static bool find_tuned(struct lathe_kernel *kernel)
{
    struct lathe_ctx *ctx = kernel->ctx;
    struct text_buf holds = {0};
    if (ctx->device.tile[0]) /* being measured */
        return false;
    tuning_text(kernel->spec->ir, kernel->pass, kernel->sig, &kernel->built, &ctx->device, &holds);
    const bool found =
        !holds.failed && (lathe__tuned_read(&ctx->cache, holds.data, holds.size, &kernel->tuned) ||
                          lathe__tuned_read(&ctx->system_cache, holds.data, holds.size, &kernel->tuned));
    text_free(&holds);
    return found;
}

static lathe_status pick_plan(struct lathe_kernel *kernel, lathe_error *err)
{
    const struct ir *ir = kernel->spec->ir;
    const struct device *device = &kernel->ctx->device;
    const struct tuned *tuned = &kernel->tuned;
    kernel->is_tuned = find_tuned(kernel) && plan_measured(ir, kernel->pass, &kernel->built, device,
                                                           tuned->template_name, tuned->tile, kernel->plan);
    if (kernel->is_tuned)
        return LATHE_OK;
    return plan_pick(ir, kernel->pass, &kernel->built, device, kernel->plan, err);
}

static lathe_status fill_kernel(struct lathe_kernel *kernel, lathe_error *err)
{
    struct lathe_ctx *ctx = kernel->ctx;
    const struct ir *ir = kernel->spec->ir;
    bool found = false;
    TRY(pick_plan(kernel, err));
    TRY(emit(ir, kernel->pass, kernel->sig, &kernel->built, &ctx->device, kernel->plan, kernel->source, err));
    TRY(find_module(kernel, &ctx->system_cache, &found, err));
    if (!found && ctx->offline)
        TRY(find_module(kernel, &ctx->cache, &found, err));
    if (found)
        return LATHE_OK;
    return ctx->offline ? fail_offline(kernel, err) : compile_module(kernel, err);
}

static struct lathe_kernel *kernel_new(struct lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                                       const struct problem *problem)
{
    struct lathe_kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel)
        return NULL;
    atomic_init(&kernel->references, 1);
    kernel->ctx = ctx;
    kernel->spec = (struct lathe_spec *)(uintptr_t)spec; /* immutable but for its count */
    atomic_fetch_add(&kernel->spec->references, 1);
    kernel->pass = pass;
    kernel->sig = &spec->sig[pass];
    kernel->built = *problem;
    return kernel;
}

void lathe__kernel_drop(void *value)
{
    struct lathe_kernel *kernel = value;
    if (!kernel || atomic_fetch_sub(&kernel->references, 1) != 1)
        return;
    source_free(kernel->source);
    free(kernel->source);
    free(kernel->plan);
    free(kernel->info);
    spec_release(kernel->spec);
    free(kernel);
}

static lathe_status build_gpu_kernel(struct lathe_kernel **out, struct lathe_ctx *ctx, const lathe_spec *spec,
                                     lathe_pass pass, const struct problem *problem, lathe_error *err)
{
    struct lathe_kernel *kernel = kernel_new(ctx, spec, pass, problem);
    lathe_status status = LATHE_MEMORY;
    if (kernel) {
        kernel->source = calloc(1, sizeof *kernel->source);
        kernel->plan = calloc(1, sizeof *kernel->plan);
    }
    if (kernel && kernel->source && kernel->plan)
        status = fill_kernel(kernel, err);
    else
        lathe__fail_memory(err);
    if (status != LATHE_OK) {
        lathe__kernel_drop(kernel);
        kernel = NULL;
    }
    *out = kernel;
    return status;
}

static lathe_status build_host_kernel(struct lathe_kernel **out, struct lathe_ctx *ctx,
                                      const lathe_spec *spec, lathe_pass pass, const struct problem *problem,
                                      lathe_error *err)
{
    struct text_buf text = {0};
    struct lathe_kernel *kernel = kernel_new(ctx, spec, pass, problem);
    *out = NULL;
    text_add(&text, "kernel: %s, %s\ndevice: host (double precision)\n", spec->ir->name,
             pass == LATHE_FORWARD ? "forward" : "backward");
    if (!kernel || text.failed) {
        text_free(&text);
        lathe__kernel_drop(kernel);
        return lathe__fail_memory(err);
    }
    kernel->info = text.data;
    *out = kernel;
    return LATHE_OK;
}

/* ---- the public functions ------------------------------------------------------------------------- */

lathe_status lathe_supported(lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass, const lathe_arg *args,
                             int n, lathe_error *err)
{
    struct problem problem;
    struct bound_args bound;
    struct plan plan;
    lathe__error_clear(err);
    TRY(check_call(ctx, spec, pass, err));
    TRY(bind_problem(ctx, &spec->sig[pass], args, n, &problem, &bound, err));
    if (on_host(ctx))
        return LATHE_OK;
    return plan_pick(spec->ir, pass, &problem, &ctx->device, &plan, err);
}

static lathe_status get_gpu_kernel(struct lathe_kernel **out, struct lathe_ctx *ctx, const lathe_spec *spec,
                                   lathe_pass pass, const struct problem *problem, lathe_error *err)
{
    unsigned char key[FLIGHT_KEY_BYTES];
    struct flight_slot *slot;
    struct lathe_kernel *built = NULL;
    lathe_error failure = {0};
    void *value;
    fast_key_make(&ctx->device, spec, pass, problem, key);
    TRY(lathe__flight_begin(&ctx->kernels, key, &value, &slot, err));
    if (!value) {
        const lathe_status status = build_gpu_kernel(&built, ctx, spec, pass, problem, &failure);
        lathe__flight_end(&ctx->kernels, slot, built, status, &failure);
        if (status != LATHE_OK) {
            if (err)
                *err = failure;
            return status;
        }
        value = built;
    }
    *out = value;
    atomic_fetch_add(&(*out)->references, 1); /* the table keeps its own */
    return LATHE_OK;
}

lathe_status lathe_kernel_get(lathe_kernel **out, lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                              const lathe_arg *args, int n, lathe_error *err)
{
    struct problem problem;
    struct bound_args bound;
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a lathe_kernel pointer, given NULL");
    *out = NULL;
    lathe__error_clear(err);
    TRY(check_call(ctx, spec, pass, err));
    TRY(bind_problem(ctx, &spec->sig[pass], args, n, &problem, &bound, err));
    if (on_host(ctx))
        TRY(build_host_kernel(out, ctx, spec, pass, &problem, err));
    else
        TRY(get_gpu_kernel(out, ctx, spec, pass, &problem, err));
    atomic_fetch_add(&ctx->references, 1); /* one for each reference that a user holds */
    return LATHE_OK;
}

void lathe_kernel_release(lathe_kernel *kernel)
{
    if (!kernel)
        return;
    struct lathe_ctx *ctx = kernel->ctx;
    lathe__kernel_drop(kernel);
    lathe__ctx_release(ctx);
}

const char *lathe_kernel_info(const lathe_kernel *kernel)
{
    return kernel ? kernel->info : "";
}

const struct source *lathe__kernel_source(const lathe_kernel *kernel)
{
    return kernel->source;
}

lathe_status lathe_workspace_size(size_t *out, const lathe_kernel *kernel, const lathe_arg *args, int n,
                                  lathe_error *err)
{
    struct problem problem;
    size_t offset[MAX_BUFFERS];
    if (!out || !kernel)
        return lathe__fail(err, LATHE_ARG, "%s: expected a pointer, given NULL", out ? "kernel" : "out");
    *out = 0;
    lathe__error_clear(err);
    TRY(problem_from_args(kernel->sig, args, n, false, &problem, err));
    if (kernel->source)
        *out = lathe__workspace_layout(kernel->source, &problem, offset);
    return LATHE_OK;
}

static lathe_status launch_host(const lathe_kernel *kernel, const lathe_arg *args, int n, lathe_error *err)
{
    if (kernel->pass == LATHE_FORWARD)
        return host_forward(kernel->spec->ir, kernel->sig, args, n, NULL, 0, err);
    return host_backward(kernel->spec->ir, kernel->sig, args, n, err);
}

lathe_status lathe_launch(const lathe_kernel *kernel, const lathe_arg *args, int n, void *workspace,
                          lathe_stream stream, lathe_error *err)
{
    struct problem problem;
    if (!kernel)
        return lathe__fail(err, LATHE_ARG, "kernel: expected a kernel, given NULL");
    lathe__error_clear(err);
    TRY(problem_from_args(kernel->sig, args, n, true, &problem, err));
    if (!kernel->source)
        return launch_host(kernel, args, n, err);
    const struct callable callable = {kernel->sig,    kernel->spec->presence[kernel->pass],
                                      &kernel->built, kernel->source,
                                      kernel->module, kernel->ctx->context};
    return lathe__launch_checked(&callable, &problem, args, n, workspace, stream, err);
}
