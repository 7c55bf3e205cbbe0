/*
 * jit.c: spec x arguments -> a kernel that can run. In: a context, a spec, arguments; out: a kernel, the
 * caller's until lathe_kernel_release. The way: problem -> table in memory -> plan -> emit -> key -> module
 * (build.c). On the host device there is nothing to build: a launch evaluates the spec.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen/gen.h"
#include "runtime/jit/jit.h"

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
    if (pass < LATHE_FORWARD || pass > LATHE_COMBINE)
        return lathe__fail(err, LATHE_ARG,
                           "pass: expected LATHE_FORWARD, LATHE_BACKWARD or LATHE_COMBINE, given %d",
                           (int)pass);
    return LATHE_OK;
}

static lathe_status bind_problem(const struct lathe_ctx *ctx, const struct signature *sig,
                                 const lathe_arg *args, int n, struct problem *problem,
                                 struct bound_args *bound, lathe_error *err)
{
    TRY(problem_from_args(sig, args, n, false, problem, err));
    problem->deterministic = lathe__determinism(sig, ctx->deterministic);
    TRY(lathe__args_bind(sig, args, n, bound, err));
    return on_host(ctx) ? LATHE_OK : lathe__args_fit_gpu(sig, problem, bound, err);
}

/* ---- what is compiled in -------------------------------------------------------------------------- */

/* Fields of a problem that code depends on. Lengths are not among them, but those that the signature says are
   compiled in (the length of a row decides how much of it fits into registers), and where keys are many
   attention may take other tiles. An optional tensor that is absent is folded away; scalars and outputs are
   launch parameters. */
struct fast_key {
    const struct lathe_spec *spec; /* kernels hold a reference, so the address names one spec */
    int64_t size[MAX_BUILT_SIZES];
    uint64_t present;
    uint64_t unaligned;
    uint64_t folded;
    uint8_t pass;
    uint8_t deterministic;
    uint8_t dtype;
    uint16_t lengths;
    uint8_t arg_dtype[MAX_ARGS];
};
_Static_assert(sizeof(struct fast_key) <= FLIGHT_KEY_BYTES, "the table's keys are too short");

static void fast_key_make(const struct device *device, const struct lathe_spec *spec, lathe_pass pass,
                          const struct problem *problem, unsigned char out[FLIGHT_KEY_BYTES])
{
    const struct signature *sig = &spec->sig[pass];
    struct fast_key key;
    memset(&key, 0, sizeof key);
    key.spec = spec;
    for (int i = 0, n = 0; i < sig->n_sizes; i++)
        if (sig->size[i].built)
            key.size[n++] = problem->dim[sig->size[i].sym];
    key.present = problem->present & spec->presence[pass];
    key.unaligned = problem->unaligned;
    key.folded = problem->folded;
    key.pass = (uint8_t)pass;
    key.deterministic = problem->deterministic;
    key.dtype = (uint8_t)problem->dtype[DTYPE_USUAL]; /* roles: as their arguments */
    key.lengths = (uint16_t)plan_lengths(spec->ir->kind, pass, problem, device);
    memcpy(key.arg_dtype, problem->arg_dtype, sizeof key.arg_dtype);
    memset(out, 0, FLIGHT_KEY_BYTES);
    memcpy(out, &key, sizeof key);
}

/* ---- build ---------------------------------------------------------------------------------------- */

static lathe_status describe(struct lathe_kernel *kernel, const char *arch, lathe_error *err)
{
    struct text_buf text = {0};
    char key[KEY_TEXT_BYTES];
    const struct plan *plan = kernel->plan;
    lathe__key_text(kernel->key, key);
    text_add(&text, "kernel: %s\ntemplate: %s\narch: %s\n", kernel->source->label, plan->row->name, arch);
    if (plan->tile[0])
        text_add(&text, "tile: %s\n", plan->tile);
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

/* How many rows a key head has is a matter of its group, too, which alone would leave a query too few keys.
 */
static void say_few_queries(const struct problem *p, int lengths, int64_t seqs, struct text_buf *words)
{
    if (lengths & LENGTHS_NINE_ROWS)
        text_add(words, ",h=%lld,h_kv=%lld,q=%lld", (long long)p->dim[SYM_H], (long long)p->dim[SYM_H_KV],
                 (long long)p->dim[SYM_Q]);
    else
        text_add(words, ",q=%lld", (long long)(seqs > 0 ? seqs : 1));
    if (seqs > 0)
        text_add(words, ",seqs=%lld", (long long)seqs);
}

/* "alibi --problem dtype=bf16,d=128 --pass forward --arch sm_90a": a kernel as commands name it. */
static void say_command(const struct lathe_kernel *kernel, struct phrase *out)
{
    const struct ir *ir = kernel->spec->ir;
    struct text_buf words = {0};
    spec_words(kernel->spec->shipped ? ir->name : ir->file[ir->n_files - 1], kernel->sig, &kernel->built,
               &words);
    const int lengths = plan_lengths(ir->kind, kernel->pass, &kernel->built, &kernel->ctx->device);
    const int64_t seqs = lathe__packed(kernel->sig, &kernel->built);
    if (lengths & LENGTHS_FEW_QUERIES)
        say_few_queries(&kernel->built, lengths, seqs, &words);
    if (lengths & (LENGTHS_ODD_PAGES | LENGTHS_GATHERED))
        text_add(&words, ",page=%lld", (long long)kernel->built.dim[SYM_PAGE]);
    if (lengths & (LENGTHS_MANY_BLOCKS | LENGTHS_NOT_CUT | LENGTHS_RUNS)) {
        const int64_t *dim = kernel->built.dim;
        text_add(&words, ",b=%lld,h=%lld,t=%lld", (long long)dim[SYM_B], (long long)dim[SYM_H],
                 (long long)dim[SYM_T]);
        if (dim[SYM_SEQS] != dim[SYM_B])
            text_add(&words, ",seqs=%lld", (long long)dim[SYM_SEQS]);
    } else if (lengths)
        text_add(&words, ",kv=%lld", (long long)kernel->built.dim[SYM_KV]);
    if (lengths & LENGTHS_GATHERED)
        text_add(&words, ",pool=%lld,h_kv=%lld", (long long)kernel->built.dim[SYM_POOL],
                 (long long)kernel->built.dim[SYM_H_KV]);
    if (lengths & LENGTHS_GATHERED && seqs > 0)
        text_add(&words, ",seqs=%lld", (long long)seqs);
    if (lengths & (LENGTHS_ANY_LOW_TILES | LENGTHS_GATHERED))
        text_add(&words, ",b=%lld,h=%lld,q=%lld", (long long)kernel->built.dim[SYM_B],
                 (long long)kernel->built.dim[SYM_H], (long long)kernel->built.dim[SYM_Q]);
    for (int i = 0; i < ir->n_params; i++)
        if (ir->param[i].value != ir->param[i].usual)
            text_add(&words, " --param %s=%.17g", ir->param[i].name, ir->param[i].value);
    lathe__say(out, "%s --pass %s --arch %s", words.failed ? ir->name : words.data,
               lathe__pass_text(kernel->pass), kernel->ctx->device.arch);
    text_free(&words);
}

static const char *path_of(const struct cache *cache)
{
    return cache->dir_fd >= 0 ? cache->path : NULL;
}

/* What is missing and why it is not made here; then the commands that would provide it. */
static lathe_status fail_offline(const struct lathe_kernel *kernel, lathe_error *err)
{
    const struct lathe_ctx *ctx = kernel->ctx;
    const char *const system = path_of(&ctx->system_cache);
    const char *const user = path_of(&ctx->cache);
    const char *const folder = user ? user : system ? system : "DIR";
    struct phrase command = {{0}, 0};
    struct phrase missing = {{0}, 0};
    struct phrase remedy = {{0}, 0};
    say_command(kernel, &command);
    lathe__say(&missing, "kernel %s for %s is in no cache (", kernel->source->label, ctx->device.arch);
    if (system && user)
        lathe__say(&missing, "%s, ", system);
    lathe__say(&missing, "%s), and offline mode (options.offline, LATHE_OFFLINE) forbids compiling it",
               user     ? user
               : system ? system
                        : "none is open");
    lathe__say(&remedy,
               "`lathe compile %s --cache %s`, where NVRTC is and LATHE_OFFLINE is not set, provides it",
               command.text, folder);
    lathe__say(&remedy, ", `lathe cache import FILE` brings it from another machine");
    lathe__say(&remedy, ", and `lathe aot %s -o DIR` makes it part of a program", command.text);
    return lathe__fail(err, LATHE_COMPILE, "%s; %s", missing.text, remedy.text);
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
static bool find_tuned(struct lathe_kernel *kernel, const struct kernel_request *request)
{
    struct lathe_ctx *ctx = kernel->ctx;
    struct text_buf holds = {0};
    if (ctx->device.tile[0]) /* being measured */
        return false;
    tuning_text(request, &holds);
    const bool found =
        !holds.failed && (lathe__tuned_read(&ctx->cache, holds.data, holds.size, &kernel->tuned) ||
                          lathe__tuned_read(&ctx->system_cache, holds.data, holds.size, &kernel->tuned));
    text_free(&holds);
    return found;
}

static lathe_status make_source(struct lathe_kernel *kernel, lathe_error *err)
{
    const struct tuned *tuned = &kernel->tuned;
    struct kernel_request request;
    lathe_status status = kernel_open(&request, kernel->spec->ir, kernel->pass, kernel->sig, &kernel->built,
                                      &kernel->ctx->device, err);
    if (status != LATHE_OK)
        return status;
    kernel->is_tuned = find_tuned(kernel, &request) &&
                       plan_measured(&request, tuned->template_name, tuned->tile, kernel->plan);
    if (!kernel->is_tuned)
        status = plan_pick(&request, kernel->plan, err);
    if (status == LATHE_OK)
        status = emit(&request, kernel->plan, kernel->source, err);
    kernel_close(&request);
    return status;
}

static lathe_status fill_kernel(struct lathe_kernel *kernel, lathe_error *err)
{
    struct lathe_ctx *ctx = kernel->ctx;
    bool found = false;
    TRY(make_source(kernel, err));
    TRY(find_module(kernel, &ctx->system_cache, &found, err));
    if (!found && ctx->offline)
        TRY(find_module(kernel, &ctx->cache, &found, err));
    if (found)
        return LATHE_OK;
    return ctx->offline ? fail_offline(kernel, err) : compile_module(kernel, err);
}

static lathe_status build_gpu_kernel(struct lathe_kernel **out, struct lathe_ctx *ctx, const lathe_spec *spec,
                                     lathe_pass pass, const struct problem *problem, lathe_error *err)
{
    struct lathe_kernel *kernel = lathe__kernel_new(ctx, spec, pass, problem);
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
    struct lathe_kernel *kernel = lathe__kernel_new(ctx, spec, pass, problem);
    *out = NULL;
    text_add(&text, "kernel: %s, %s\ndevice: host (double precision)\n", spec->ir->name,
             lathe__pass_text(pass));
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
    struct kernel_request request;
    struct plan plan;
    lathe__error_clear(err);
    TRY(check_call(ctx, spec, pass, err));
    TRY(bind_problem(ctx, &spec->sig[pass], args, n, &problem, &bound, err));
    if (on_host(ctx))
        return LATHE_OK;
    TRY(kernel_open(&request, spec->ir, pass, &spec->sig[pass], &problem, &ctx->device, err));
    const lathe_status status = plan_pick(&request, &plan, err);
    kernel_close(&request);
    return status;
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

lathe_status lathe_workspace_size(size_t *out, const lathe_kernel *kernel, const lathe_arg *args, int n,
                                  lathe_error *err)
{
    struct problem problem;
    size_t offset[MAX_BUFFERS];
    if (!out)
        return lathe__fail(err, LATHE_ARG, "out: expected the address of a size_t, given NULL");
    if (!kernel)
        return lathe__fail(err, LATHE_ARG, "kernel: expected an object, given NULL");
    *out = 0;
    lathe__error_clear(err);
    TRY(problem_from_args(kernel->sig, args, n, false, &problem, err));
    if (kernel->source)
        *out = lathe__workspace_layout(kernel->source, &problem, offset);
    return LATHE_OK;
}

static lathe_status launch_host(const lathe_kernel *kernel, const lathe_arg *args, int n, lathe_error *err)
{
    if (kernel->pass != LATHE_BACKWARD)
        return host_forward(kernel->spec->ir, kernel->sig, args, n, NULL, 0, err);
    return host_backward(kernel->spec->ir, kernel->sig, args, n, err);
}

lathe_status lathe_launch(const lathe_kernel *kernel, const lathe_arg *args, int n, void *workspace,
                          lathe_stream stream, lathe_error *err)
{
    struct problem problem;
    if (!kernel)
        return lathe__fail(err, LATHE_ARG, "kernel: expected an object, given NULL");
    lathe__error_clear(err);
    TRY(problem_from_args(kernel->sig, args, n, true, &problem, err));
    const struct callable callable = {kernel->sig,    kernel->spec->presence[kernel->pass],
                                      &kernel->built, kernel->source,
                                      kernel->module, kernel->ctx->context};
    if (!kernel->source) { /* the host device would take others as well, and hide what a GPU refuses */
        TRY(lathe__check_built(&callable, &problem, err));
        return launch_host(kernel, args, n, err);
    }
    return lathe__launch_checked(&callable, &problem, args, n, workspace, stream, err);
}
