/*
 * launch.c: recipe x arguments -> parameter blocks -> launches. In: a recipe of runtime/recipe/recipe.h, a
 * problem and arguments bound to their signature; out: work on the caller's stream. Knows no operator,
 * allocates nothing, synchronises nothing, formats text on failure alone. A launch from the JIT and one from
 * a library with its kernels compiled in enter by the same function, the last one here.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/launch/launch.h"

enum { WORK_ALIGNMENT = 256 };
static const int64_t POSITION_LIMIT = (int64_t)1 << 24; /* positions are exact in f32 below it */
static const int64_t GRID_LIMIT = INT32_MAX;
/* A block steps from number to number by up to as many as run at once. */
static const int64_t COUNT_LIMIT = UINT32_MAX - (1 << 20);

/* ---- arguments ------------------------------------------------------------------------------------ */

lathe_status lathe__args_bind(const struct signature *sig, const lathe_arg *args, int n,
                              struct bound_args *out, lathe_error *err)
{
    int hint = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < n; i++) {
        const int k = args[i].name ? lathe__arg_find(sig, args[i].name, hint) : -1;
        if (k < 0)
            return lathe__fail(err, LATHE_ARG, "argument '%.48s': this spec takes no argument of that name",
                               args[i].name ? args[i].name : "(NULL)");
        if (out->arg[k])
            return lathe__fail(err, LATHE_ARG, "argument '%s': given twice", sig->arg[k].name);
        out->arg[k] = &args[i];
        hint = k + 1 < sig->n_args ? k + 1 : 0;
    }
    for (int i = 0; i < sig->n_args; i++)
        if (sig->arg[i].alias && !out->arg[i])
            out->arg[i] = out->arg[sig->arg[i].alias - 1]; /* in place */
    return LATHE_OK;
}

static bool is_empty(const lathe_arg *t)
{
    bool empty = false;
    for (int i = 0; i < t->ndim; i++)
        empty |= t->shape[i] == 0;
    return empty;
}

int64_t lathe__arg_stride(const struct signature *sig, const struct bound_args *bound, int arg, int dim)
{
    const lathe_arg *t = bound->arg[arg];
    const int i = t ? dim - (sig->arg[arg].ndim - t->ndim) : -1; /* leading dims may be left out */
    return i < 0 || i >= t->ndim || t->shape[i] <= 1 || is_empty(t) ? 0 : lathe__tensor_stride(t, i);
}

static lathe_status check_lengths(const struct signature *sig, const struct problem *problem,
                                  lathe_error *err)
{
    for (int i = 0; i < sig->n_sizes; i++) {
        const struct sig_size *s = &sig->size[i];
        if (s->below > 0 && problem->dim[s->sym] >= s->below)
            return lathe__fail(
                err, LATHE_ARG,
                "problem: expected %s below 2^%d (positions are exact in f32 up to there), given %" PRId64,
                lathe__sym_text(sig, s->sym), __builtin_ctz((unsigned)s->below), problem->dim[s->sym]);
    }
    return LATHE_OK;
}

/* A block steps from group to group of rows by up to as many as there are: the number after the last one is
   below 2^31. */
static lathe_status check_rows(const struct signature *sig, const struct problem *problem, lathe_error *err)
{
    int64_t rows = 0;
    if (sig->most_counted > 0 && (!lathe__count(sig, problem, &rows) || rows > sig->most_counted))
        return lathe__fail(err, LATHE_ARG,
                           "problem: expected at most 2^%d rows in one launch on a GPU, given %" PRId64
                           "; launch them in parts",
                           __builtin_ctz((unsigned)sig->most_counted), rows);
    return LATHE_OK;
}

lathe_status lathe__args_fit_gpu(const struct signature *sig, const struct problem *problem,
                                 const struct bound_args *bound, lathe_error *err)
{
    TRY(check_lengths(sig, problem, err));
    TRY(check_rows(sig, problem, err));
    for (int i = 0; i < sig->n_args; i++) {
        const lathe_arg *t = bound->arg[i];
        if (!t)
            continue;
        if (t->dtype == LATHE_F64)
            return lathe__fail(
                err, LATHE_UNSUPPORTED,
                "argument '%s': f64 is served by the host device only; a GPU takes f32, f16 or bf16",
                sig->arg[i].name);
    }
    return LATHE_OK;
}

size_t lathe__workspace_layout(const struct source *source, const struct problem *problem,
                               size_t offset[MAX_BUFFERS])
{
    size_t total = 0;
    for (int i = 0; i < source->n_buffers; i++) {
        const int64_t bytes = lathe__buffer_bytes(&source->buffer[i], problem);
        offset[i] = total;
        total += ((bytes > 0 ? (size_t)bytes : 0) + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT;
    }
    return total;
}

/* ---- one parameter -------------------------------------------------------------------------------- */

struct fill {
    const struct signature *sig;
    const struct problem *problem;
    const struct bound_args *bound;
    const char *workspace;
    const size_t *work_offset;
};

static lathe_status fill_stride32(const struct fill *f, const struct param *p, unsigned char *to,
                                  lathe_error *err)
{
    const lathe_arg *t = f->bound->arg[p->arg];
    const int64_t stride = lathe__arg_stride(f->sig, f->bound, p->arg, p->dim);
    const struct sig_arg *a = &f->sig->arg[p->arg];
    const int64_t size = t && stride != 0 ? t->shape[p->dim - (a->ndim - t->ndim)] : 1;
    int64_t reach = 0;
    if (__builtin_mul_overflow(size - 1, stride, &reach) || reach > INT32_MAX || reach < INT32_MIN)
        return lathe__fail(
            err, LATHE_ARG,
            "argument '%s': expected (size - 1) * stride below 2^31 in dim %d, given size %" PRId64
            " and stride %" PRId64,
            a->name, p->dim, size, stride);
    const int32_t value = (int32_t)stride;
    memcpy(to, &value, sizeof value);
    return LATHE_OK;
}

static double scalar_value(const struct fill *f, int arg)
{
    const lathe_arg *t = f->bound->arg[arg];
    float single;
    double twice;
    int32_t integer;
    if (!t || !t->data)
        return f->sig->arg[arg].default_value;
    switch (t->dtype) {
    case LATHE_F32:
        memcpy(&single, t->data, sizeof single);
        return (double)single;
    case LATHE_F64:
        memcpy(&twice, t->data, sizeof twice);
        return twice;
    case LATHE_I32:
        memcpy(&integer, t->data, sizeof integer);
        return integer;
    case LATHE_U8:
        return *(const unsigned char *)t->data;
    case LATHE_F16:
    case LATHE_BF16:
    case LATHE_F8_E4M3:
    case LATHE_F8_E5M2:
    case LATHE_I8:
    case LATHE_NONE:
        break;
    }
    return (double)__builtin_nanf("");
}

static lathe_status fill_scalar(const struct fill *f, const struct param *p, unsigned char *to,
                                lathe_error *err)
{
    const lathe_arg *t = f->bound->arg[p->arg];
    if (t && t->data &&
        (t->dtype == LATHE_F16 || t->dtype == LATHE_BF16 || t->dtype == LATHE_NONE ||
         lathe__is_narrow(t->dtype)))
        return lathe__fail(err, LATHE_ARG, "argument '%s': expected a scalar of dtype f32 or i32, given %s",
                           f->sig->arg[p->arg].name, lathe_dtype_text(t->dtype));
    const double value = scalar_value(f, p->arg);
    if (p->kind == PARAM_SCALAR_F32) {
        const float single = (float)value;
        memcpy(to, &single, sizeof single);
        return LATHE_OK;
    }
    if (!(value >= INT32_MIN && value <= INT32_MAX))
        return lathe__fail(err, LATHE_ARG, "argument '%s': expected a value that an i32 can hold, given %g",
                           f->sig->arg[p->arg].name, value);
    const int32_t integer = (int32_t)value;
    memcpy(to, &integer, sizeof integer);
    return LATHE_OK;
}

/* Where row 0 stands among the keys: given, or end-aligned. */
static lathe_status fill_q_start(const struct fill *f, bool by_length, unsigned char *to, lathe_error *err)
{
    const int64_t first = lathe__place_start(f->sig, f->bound->arg, SYM_ALL_KV);
    int64_t value = f->problem->dim[f->problem->cut_keys ? SYM_ALL_KV : SYM_KV] - f->problem->dim[SYM_Q];
    bool given = false;
    for (int i = 0; i < f->sig->n_args; i++) {
        const lathe_arg *t = f->bound->arg[i];
        if (f->sig->arg[i].role == ROLE_Q_START && t && t->data)
            value = (int64_t)scalar_value(f, i), given = true;
    }
    const int64_t last = value + f->problem->dim[SYM_Q];
    if (value <= -POSITION_LIMIT || last > POSITION_LIMIT)
        return lathe__fail(err, LATHE_ARG,
                           "argument 'q_start': expected positions between -2^24 and 2^24, given %" PRId64
                           " with %" PRId64 " rows",
                           value, f->problem->dim[SYM_Q]);
    value -= first; /* kernels count the keys that are here */
    const int32_t start = by_length && !given ? (int32_t)Q_START_BY_LENGTH : (int32_t)value;
    memcpy(to, &start, sizeof start);
    return LATHE_OK;
}

/* A kernel reads an input at an index that is clamped into it, also where it has no elements and the value
   serves nothing (the documents of no keys): then it gets 4 bytes of another tensor to read. */
static const void *data_of(const struct fill *f, int arg)
{
    const lathe_arg *t = f->bound->arg[arg];
    if (!t || f->sig->arg[arg].role != ROLE_INPUT || !is_empty(t))
        return t ? t->data : NULL;
    for (int i = 0; i < f->sig->n_args; i++) {
        const lathe_arg *other = f->bound->arg[i];
        const bool tensor = f->sig->arg[i].role == ROLE_IN || f->sig->arg[i].role == ROLE_OUT;
        if (tensor && other && other->data && !is_empty(other))
            return (const unsigned char *)other->data - ((uintptr_t)other->data & 3u);
    }
    return NULL;
}

static void fill_pointer(const void *pointer, unsigned char *to)
{
    memcpy(to, (const void *)&pointer, sizeof pointer);
}

static void fill_i64(int64_t value, unsigned char *to)
{
    memcpy(to, &value, sizeof value);
}

static void fill_i32(int32_t value, unsigned char *to)
{
    memcpy(to, &value, sizeof value);
}

static void fill_symbol(const struct fill *f, int sym, int times, unsigned char *to)
{
    const int64_t dim = f->problem->dim[sym] * (times > 1 ? times : 1);
    fill_i32(dim > 0 ? (int32_t)dim : 0,
             to); /* problems hold dims below 2^31, and tokens with updates fewer */
}

static bool is_compact(const struct fill *f, int arg)
{
    const lathe_arg *t = f->bound->arg[arg];
    int64_t stride = 1;
    bool compact = !t || (uintptr_t)t->data % 16 == 0;
    for (int d = f->sig->arg[arg].ndim - 1; d >= 0 && t && compact; d--) {
        const int i = d - (f->sig->arg[arg].ndim - t->ndim);
        const int64_t size = i < 0 ? 1 : t->shape[i];
        compact = size == 1 || lathe__arg_stride(f->sig, f->bound, arg, d) == stride;
        stride *= size;
    }
    return compact;
}

static void fill_compact(const struct fill *f, uint64_t set, unsigned char *to)
{
    bool compact = true;
    for (int i = 0; i < f->sig->n_args; i++)
        compact = compact && (!arg_in(set, i) || is_compact(f, i));
    fill_i32(compact, to);
}

/* More would start again at 0, and results would be left out without a word. */
static lathe_status check_pieces(const struct fill *f, const struct param *p, lathe_error *err)
{
    if (lathe__product_value(&p->product, f->problem) <= COUNT_LIMIT)
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "problem: expected no more pieces of work than kernels number in 32 bits, given more; "
                       "launch it in parts");
}

static lathe_status fill_param(const struct fill *f, const struct param *p, unsigned char *to,
                               lathe_error *err)
{
    switch ((enum param_kind)p->kind) {
    case PARAM_ARG_DATA:
        fill_pointer(data_of(f, p->arg), to);
        return LATHE_OK;
    case PARAM_ARG_STRIDE:
        fill_i64(lathe__arg_stride(f->sig, f->bound, p->arg, p->dim), to);
        return LATHE_OK;
    case PARAM_ARG_STRIDE32:
        return fill_stride32(f, p, to, err);
    case PARAM_SYM:
        fill_symbol(f, p->arg, p->dim, to);
        return LATHE_OK;
    case PARAM_SCALAR_F32:
    case PARAM_SCALAR_I32:
        return fill_scalar(f, p, to, err);
    case PARAM_Q_START:
        return fill_q_start(f, p->arg != 0, to, err);
    case PARAM_WORK_DATA:
        fill_pointer(f->workspace + f->work_offset[p->arg], to);
        return LATHE_OK;
    case PARAM_PRODUCT:
        fill_i64(lathe__product_value(&p->product, f->problem), to);
        return LATHE_OK;
    case PARAM_PACK:
        fill_i32(p->arg > 0 ? lathe__heads_packed(f->problem, p->arg) : 1, to);
        return LATHE_OK;
    case PARAM_APART:
        fill_i64(lathe__arg_stride(f->sig, f->bound, p->arg, 0) /
                     lathe__token_stride(lathe__arg_stride(f->sig, f->bound, p->arg, 2)),
                 to);
        return LATHE_OK;
    case PARAM_COMPACT:
        fill_compact(f, (uint64_t)p->product.scale, to);
        return LATHE_OK;
    case PARAM_COUNTED:
        return check_pieces(f, p, err);
    }
    return lathe__fail(err, LATHE_ARG, "the recipe has a parameter of the unknown kind %d", p->kind);
}

lathe_status lathe__params_fill(const struct launch *launch, const struct signature *sig,
                                const struct problem *problem, const struct bound_args *bound,
                                const char *workspace, const size_t *work_offset, unsigned char *block,
                                lathe_error *err)
{
    const struct fill fill = {sig, problem, bound, workspace, work_offset};
    if (launch->param_bytes > PARAM_BLOCK_BYTES)
        return lathe__fail(err, LATHE_UNSUPPORTED, "kernel %s takes %u bytes of parameters; %d is the limit",
                           launch->entry, launch->param_bytes, PARAM_BLOCK_BYTES);
    memset(block, 0, launch->param_bytes); /* padding too: a block is the same for the same arguments */
    for (int i = 0; i < launch->n_params; i++)
        TRY(fill_param(&fill, &launch->param[i], block + launch->param[i].offset, err));
    return LATHE_OK;
}

lathe_status lathe__grid_size(const struct launch *launch, const struct problem *problem, unsigned *out,
                              lathe_error *err)
{
    int64_t blocks = lathe__product_value(&launch->grid, problem);
    *out = 0;
    if (launch->grid_share > 1)
        blocks = blocks / launch->grid_share + (blocks % launch->grid_share != 0);
    if (launch->grid_limit > 0 && blocks > launch->grid_limit)
        blocks = launch->grid_limit;
    if (launch->when != SYM_ONE &&
        (problem->dim[launch->when] < launch->least || problem->dim[launch->when] > launch->most))
        blocks = 0;
    if (blocks > GRID_LIMIT)
        return lathe__fail(err, LATHE_ARG,
                           "problem: kernel %s would need %" PRId64 " blocks; a grid holds 2^31 - 1",
                           launch->entry, blocks);
    *out = blocks > 0 ? (unsigned)blocks : 0;
    return LATHE_OK;
}

/* ---- the launches --------------------------------------------------------------------------------- */

static lathe_status check_workspace(const void *workspace, size_t bytes, lathe_error *err)
{
    if (bytes == 0)
        return LATHE_OK;
    if (!workspace)
        return lathe__fail(err, LATHE_ARG, "workspace: expected %zu bytes of device memory, given NULL",
                           bytes);
    if ((uintptr_t)workspace % WORK_ALIGNMENT != 0)
        return lathe__fail(err, LATHE_ARG, "workspace: expected memory aligned to %d bytes, given %p",
                           WORK_ALIGNMENT, workspace);
    return LATHE_OK;
}

/* Does the caller keep the map of the mask's tiles that this kernel would make? */
static bool is_kept(const struct launch *launch, const struct fill *f)
{
    for (int i = 0; launch->kept && i < f->sig->n_args; i++)
        if (f->sig->arg[i].role == ROLE_MASK_KEPT && f->bound->arg[i] && f->bound->arg[i]->data)
            return scalar_value(f, i) != 0;
    return false;
}

/* Early behind the launch of the same recipe alone, which has waited for whatever came before: where that one
   is skipped, it is not early. */
static bool begins_early(const struct module *module, int i, const struct launch *launch,
                         const struct fill *f)
{
    unsigned blocks = 0;
    return i > 0 && module->early[i] && !is_kept(launch - 1, f) &&
           lathe__grid_size(launch - 1, f->problem, &blocks, NULL) == LATHE_OK && blocks > 0;
}

static lathe_status launch_one(const struct module *module, int i, const struct launch *launch,
                               const struct fill *f, lathe_stream stream, lathe_error *err)
{
    _Alignas(64) unsigned char block[PARAM_BLOCK_BYTES]; /* of tensor maps */
    void *params[1] = {block};
    struct cu_launch_config config = {.grid = {0, 1, 1}, .block = {1, 1, 1}, .stream = stream};
    TRY(lathe__grid_size(launch, f->problem, &config.grid[0], err));
    if (config.grid[0] == 0 || is_kept(launch, f))
        return LATHE_OK;
    if (module->resident[i] > 0 && config.grid[0] > (unsigned)module->resident[i])
        config.grid[0] = (unsigned)module->resident[i];
    config.block[0] = (unsigned)launch->threads;
    config.smem_bytes = (unsigned)launch->smem_bytes;
    TRY(lathe__params_fill(launch, f->sig, f->problem, f->bound, f->workspace, f->work_offset, block, err));
    TRY(lathe__maps_fill(module->driver, launch, f->problem, module->slot[i], block, err));
    struct cu_launch_attribute early = {.id = CU_LAUNCH_EARLY, .value = 1};
    config.attributes = &early;
    config.n_attributes = begins_early(module, i, launch, f) ? 1 : 0;
    const int result = module->driver->cuLaunchKernelEx(&config, module->function[i], params, NULL);
    return result == CU_SUCCESS ? LATHE_OK : lathe__driver_check(module->driver, result, launch->entry, err);
}

/* Counters and sums that kernels begin from, in stream order: a captured graph repeats it. */
static lathe_status zero_buffers(const struct driver *driver, const struct source *source,
                                 const struct fill *f, lathe_stream stream, lathe_error *err)
{
    for (int i = 0; i < source->n_buffers; i++) {
        const int64_t bytes = lathe__buffer_bytes(&source->buffer[i], f->problem);
        if (!source->buffer[i].zero || bytes <= 0)
            continue;
        if (!driver->cuMemsetD8Async)
            return lathe__fail(err, LATHE_CUDA,
                               "the CUDA driver has no cuMemsetD8Async, which this kernel needs");
        const uint64_t to = (uint64_t)(uintptr_t)(f->workspace + f->work_offset[i]);
        TRY(lathe__driver_check(driver, driver->cuMemsetD8Async(to, 0, (size_t)bytes, stream),
                                "cuMemsetD8Async", err));
    }
    return LATHE_OK;
}

lathe_status lathe__launch_all(const struct module *module, struct CUctx_st *context,
                               const struct source *source, const struct signature *sig,
                               const struct problem *problem, const struct bound_args *bound,
                               const void *workspace, lathe_stream stream, lathe_error *err)
{
    size_t offset[MAX_BUFFERS];
    const struct fill fill = {sig, problem, bound, workspace, offset};
    lathe_status status = LATHE_OK;
    bool pushed = false;
    TRY(check_workspace(workspace, lathe__workspace_layout(source, problem, offset), err));
    TRY(lathe__context_enter(module->driver, context, &pushed, err));
    status = zero_buffers(module->driver, source, &fill, stream, err);
    for (int i = 0; i < source->n_launches && status == LATHE_OK; i++)
        status = launch_one(module, i, &source->launch[i], &fill, stream, err);
    lathe__context_leave(module->driver, pushed);
    return status;
}

/* ---- what both ways in share ------------------------------------------------------------------------ */

/* A kernel launched with what it was not built for would read through the wrong types. */
lathe_status lathe__check_built(const struct callable *c, const struct problem *given, lathe_error *err)
{
    const struct problem *built = c->built;
    for (int i = 0; i < c->sig->n_sizes; i++) {
        const int sym = c->sig->size[i].sym;
        if (c->sig->size[i].built && built->dim[sym] != given->dim[sym])
            return lathe__fail(
                err, LATHE_ARG,
                "problem: this kernel was built for %s=%lld, given %lld; get one for these arguments",
                lathe__sym_text(c->sig, sym), (long long)built->dim[sym], (long long)given->dim[sym]);
    }
    for (int i = 0; i < c->sig->n_args; i++) {
        const struct sig_arg *a = &c->sig->arg[i];
        if (built->arg_dtype[i] != given->arg_dtype[i])
            return lathe__fail(
                err, LATHE_ARG,
                "argument '%s': this kernel was built for %s, given %s; get one for these arguments", a->name,
                lathe_dtype_text((lathe_dtype)built->arg_dtype[i]),
                lathe_dtype_text((lathe_dtype)given->arg_dtype[i]));
        if (arg_in((built->present ^ given->present) & c->presence, i))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': this kernel was built %s it; get one for these arguments",
                               a->name, arg_in(built->present, i) ? "with" : "without");
        if (arg_in(given->unaligned & ~built->unaligned, i))
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': its rows do not start at multiples of 16 bytes, or their last "
                               "stride is not 1, for "
                               "which this kernel was not built; get one for these arguments",
                               a->name);
    }
    return LATHE_OK;
}

lathe_status lathe__launch_checked(const struct callable *c, const struct problem *given,
                                   const lathe_arg *args, int n, const void *workspace, lathe_stream stream,
                                   lathe_error *err)
{
    struct bound_args bound;
    TRY(lathe__check_built(c, given, err));
    TRY(lathe__args_bind(c->sig, args, n, &bound, err));
    TRY(lathe__args_fit_gpu(c->sig, given, &bound, err));
    TRY(lathe__starts_check(c->sig, given, bound.arg, err));
    return lathe__launch_all(c->module, c->context, c->source, c->sig, given, &bound, workspace, stream, err);
}
