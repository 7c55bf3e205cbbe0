/*
 * forms_call.c: a call in one of its forms: tensors as the form has them, in device memory; one launch, two
 * with parts of the keys and one that puts these together, or a graph. In: a form. Out: results on the
 * device.
 */
#include "forms_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a call ---------------------------------------------------------------------------------------------
 */

void call_close(struct call *call)
{
    for (int i = 0; i < call->n; i++) {
        device_free(call->side->device, call->memory[i]);
    }
}

lathe_arg *call_add(struct call *call, const char *name, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    const int i = call->n++;
    int64_t stride = 1;
    for (int k = ndim - 1; k >= 0; k--) {
        call->shape[i][k] = shape[k];
        call->stride[i][k] = stride;
        stride *= shape[k];
    }
    call->arg[i] = (lathe_arg){name, NULL, dtype, ndim, call->shape[i], call->stride[i]};
    return &call->arg[i];
}

/* Memory for the last argument, with `bytes`, or poison. */
static bool fill(struct call *call, const void *bytes)
{
    const int i = call->n - 1;
    size_t size = lathe_dtype_size(call->arg[i].dtype);
    for (int k = 0; k < call->arg[i].ndim; k++) {
        size *= (size_t)call->shape[i][k];
    }
    const struct device *device = call->side->device;
    call->memory[i] = device_alloc(device, size);
    call->arg[i].data = call->memory[i];
    return call->memory[i] && (bytes ? device_upload(device, call->memory[i], bytes, size)
                                     : device_fill(device, call->memory[i], 0xFF, size));
}

static bool add_list(struct call *call, const char *name, const int32_t *list, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns};
    call_add(call, name, LATHE_I32, columns > 0 ? 2 : 1, shape);
    return fill(call, list);
}

/* [batches, heads, tokens, d] with tokens ahead of heads; d is 0: values of rows. */
lathe_arg *call_add_rows(struct call *call, const char *name, lathe_dtype dtype, int64_t batches,
                         int64_t heads, int64_t tokens, int64_t d)
{
    const int64_t shape[] = {batches, heads, tokens, d};
    const int64_t width = d > 0 ? d : 1;
    lathe_arg *arg = call_add(call, name, dtype, d > 0 ? 4 : 3, shape);
    int64_t *stride = call->stride[call->n - 1];
    stride[0] = tokens * heads * width;
    stride[1] = width;
    stride[2] = heads * width;
    return arg;
}

struct kernel {
    lathe_kernel *kernel;
    void *workspace;
};

static void kernel_close(struct kernel *k, const struct side *side)
{
    device_free(side->device, k->workspace);
    lathe_kernel_release(k->kernel);
}

static lathe_status kernel_open(struct kernel *k, const struct side *side, lathe_spec *spec, lathe_pass pass,
                                const lathe_arg *arg, int n, lathe_error *err)
{
    size_t size = 0;
    *k = (struct kernel){NULL, NULL};
    lathe_status status = lathe_kernel_get(&k->kernel, side->ctx, spec, pass, arg, n, err);
    if (status == LATHE_OK) {
        status = lathe_workspace_size(&size, k->kernel, arg, n, err);
    }
    if (status == LATHE_OK && size > 0) {
        k->workspace = device_alloc(side->device, size);
        status =
            k->workspace && device_fill(side->device, k->workspace, 0xFF, size) ? LATHE_OK : LATHE_MEMORY;
    }
    return status;
}

static lathe_status failed(lathe_error *err)
{
    (void)snprintf(err->text, sizeof err->text, "%s", device_error());
    return LATHE_CUDA;
}

static lathe_status start(const struct kernel *k, const struct side *side, const lathe_arg *arg, int n,
                          lathe_error *err)
{
    const lathe_status status = lathe_launch(k->kernel, arg, n, k->workspace, side->stream, err);
    return status == LATHE_OK && !device_sync(side->device, side->stream) ? failed(err) : status;
}

lathe_status call_launch(const struct side *side, lathe_spec *spec, lathe_pass pass, const lathe_arg *arg,
                         int n, lathe_error *err)
{
    struct kernel k;
    lathe_status status = kernel_open(&k, side, spec, pass, arg, n, err);
    if (status == LATHE_OK) {
        status = start(&k, side, arg, n, err);
    }
    kernel_close(&k, side);
    return status;
}

/* ---- forms ----------------------------------------------------------------------------------------------
 */

/* Queries of a padded batch stand at its end, as positions count from there. */
int64_t form_query_row(const struct form *f, int i, int64_t t)
{
    return f->form & PACKED ? f->x->first_q[i] + t : (int64_t)(i + 1) * f->x->most_q - f->c->q[i] + t;
}

int64_t form_key_row(const struct form *f, int i, int64_t t)
{
    const struct form_case *c = f->c;
    if (f->form & PAGED) {
        return (int64_t)f->pages[i * c->most + t / c->page] * c->page + t % c->page;
    }
    return f->form & PACKED ? f->x->first_kv[i] + t : (int64_t)i * c->page * c->most + t;
}

/* Every page somewhere, and one to spare. */
int64_t form_pool(const struct form_case *c)
{
    return (int64_t)c->n * c->most + 1;
}

bool form_make_pages(struct form *f)
{
    const int64_t n = (int64_t)f->c->n * f->c->most;
    f->pages = calloc((size_t)n, sizeof *f->pages);
    for (int64_t i = 0; f->pages && i < n; i++) {
        f->pages[i] = (int32_t)(i % 2 ? i / 2 + 1 : n - i / 2);
    }
    return f->pages != NULL;
}

static int64_t query_tokens(const struct form *f)
{
    return f->form & PACKED ? f->x->first_q[f->c->n] : f->x->most_q;
}

static int64_t query_batches(const struct form *f)
{
    return f->form & PACKED ? 1 : f->c->n;
}

/* Rows of q, k or v to where the form has them, and around them `around`. */
static bool fill_rows(struct call *call, const struct form *f, const double *value, bool keys, int around)
{
    const struct form_case *c = f->c;
    const int64_t *shape = call->shape[call->n - 1];
    const int64_t width = shape[1] * shape[3];
    const size_t size = (size_t)(shape[0] * shape[2] * width) * lathe_dtype_size(f->dtype);
    unsigned char *bytes = malloc(size ? size : 1);
    if (!bytes) {
        return false;
    }
    memset(bytes, around, size);
    for (int i = 0; i < c->n; i++) {
        for (int64_t t = 0; t < (keys ? c->kv[i] : c->q[i]); t++) {
            const int64_t to = (keys ? form_key_row(f, i, t) : form_query_row(f, i, t)) * width;
            const int64_t from = ((keys ? f->x->first_kv[i] : f->x->first_q[i]) + t) * width;
            for (int64_t k = 0; k < width; k++) {
                dtype_put(f->dtype, bytes, to + k, value[from + k]);
            }
        }
    }
    const bool good = fill(call, bytes);
    free(bytes);
    return good;
}

static bool add_keys(struct call *call, const struct form *f, const char *name, int d, const double *value)
{
    const struct form_case *c = f->c;
    const bool paged = f->form & PAGED;
    const bool packed = f->form & PACKED;
    call_add_rows(call, name, f->dtype,
                  paged    ? form_pool(c)
                  : packed ? 1
                           : c->n,
                  c->h_kv,
                  paged    ? c->page
                  : packed ? f->x->first_kv[c->n]
                           : (int64_t)c->page * c->most,
                  d);
    return fill_rows(call, f, value, true, 0xFF);
}

static int find(const struct call *call, const char *name)
{
    int i = 0;
    while (i < call->n && strcmp(call->arg[i].name, name) != 0) {
        i++;
    }
    return i;
}

static bool add_second_pair(struct call *call, const struct form *f)
{
    if (f->c->d2 == 0) {
        return true;
    }
    call_add_rows(call, "q2", f->dtype, query_batches(f), f->c->h, query_tokens(f), f->c->d2);
    return fill_rows(call, f, f->x->q2, false, 0) && add_keys(call, f, "k2", f->c->d2, f->x->k2);
}

/* All but the results. */
bool form_operands(struct call *call, const struct form *f)
{
    const struct form_case *c = f->c;
    int32_t cu_q[MOST_SEQS + 1];
    int32_t cu_kv[MOST_SEQS + 1];
    int32_t used[MOST_SEQS];
    const bool packed = f->form & PACKED;
    const bool paged = f->form & PAGED;
    for (int i = 0; i <= c->n; i++) {
        cu_q[i] = f->x->first_q[i];
        cu_kv[i] = f->x->first_kv[i];
        if (i < c->n) {
            used[i] = c->kv[i];
        }
    }
    call_add_rows(call, "q", f->dtype, query_batches(f), c->h, query_tokens(f), c->d);
    return fill_rows(call, f, f->x->q, false, 0) && add_keys(call, f, "k", c->d, f->x->k) &&
           add_keys(call, f, "v", c->d, f->x->v) && add_second_pair(call, f) &&
           (!packed || add_list(call, "cu_q", cu_q, c->n + 1, 0)) &&
           (!packed || paged || add_list(call, "cu_kv", cu_kv, c->n + 1, 0)) &&
           ((packed && !paged) || add_list(call, "used_kv", used, c->n, 0)) &&
           (!paged || add_list(call, "pages", f->pages, c->n, c->most)) &&
           (!c->started || add_list(call, "start", f->x->start, c->n, 0));
}

bool form_results(struct call *call, const struct form *f)
{
    const struct form_case *c = f->c;
    call_add_rows(call, "o", f->dtype, query_batches(f), c->h, query_tokens(f), c->d);
    if (!fill(call, NULL)) {
        return false;
    }
    call_add_rows(call, c->final, LATHE_F32, query_batches(f), c->h, query_tokens(f), 0);
    return fill(call, NULL);
}

/* The first half of the pages' keys, or the others. */
static bool cut_keys(struct call *call, const struct form *f, int part)
{
    const struct form_case *c = f->c;
    const int64_t before = c->most / 2;
    int32_t used[MOST_SEQS];
    for (int i = 0; i < c->n; i++) {
        const int64_t half = before * c->page;
        const int64_t first = c->kv[i] < half ? c->kv[i] : half;
        used[i] = (int32_t)(part == 0 ? first : c->kv[i] - first);
    }
    static const char *const NAME[] = {"k", "v", "k2"};
    for (int k = 0; k < (c->d2 > 0 ? 3 : 2) && !(f->form & PAGED); k++) {
        const int i = find(call, NAME[k]);
        call->shape[i][2] = (part == 0 ? before : c->most - before) * c->page;
        call->arg[i].data = (char *)call->memory[i] + (part == 0 ? 0 : before) * c->page *
                                                          call->stride[i][2] *
                                                          (int64_t)lathe_dtype_size(f->dtype);
    }
    if (f->form & PAGED) {
        const int i = find(call, "pages");
        call->shape[i][1] = part == 0 ? before : c->most - before;
        call->arg[i].data = (int32_t *)call->memory[i] + (part == 0 ? 0 : before);
    }
    return device_upload(call->side->device, call->memory[find(call, "used_kv")], used,
                         (size_t)c->n * sizeof *used);
}

/* Parts into results, which are the last arguments of `out`. */
lathe_status form_run_parts(struct call *call, struct call *out, const struct form *f, lathe_spec *spec,
                            lathe_error *err)
{
    const struct form_case *c = f->c;
    const int64_t columns[] = {c->d, c->states + 1};
    static const char *const NAME[] = {"part_o", "part_rows"};
    const int n = call->n;
    for (int k = 0; k < 2; k++) {
        const int64_t shape[] = {PARTS_OF_ROW, query_batches(f), c->h, query_tokens(f), columns[k]};
        call_add(out, NAME[k], LATHE_F32, 5, shape);
        if (!fill(out, NULL)) {
            return LATHE_MEMORY;
        }
    }
    for (int part = 0; part < PARTS_OF_ROW; part++) {
        lathe_arg arg[TENSORS];
        if (!cut_keys(call, f, part)) {
            return LATHE_CUDA;
        }
        memcpy(arg, call->arg, sizeof arg);
        for (int k = 0; k < 2; k++) {
            const int64_t *stride = out->stride[k];
            arg[n + k] = (lathe_arg){NAME[k],           (float *)out->memory[k] + part * stride[0],
                                     LATHE_F32,         4,
                                     out->shape[k] + 1, stride + 1};
        }
        const lathe_status status = call_launch(call->side, spec, LATHE_FORWARD, arg, n + 2, err);
        if (status != LATHE_OK) {
            return status;
        }
    }
    return form_results(out, f) ? call_launch(call->side, spec, LATHE_COMBINE, out->arg, out->n, err)
                                : LATHE_MEMORY;
}

/* Lists of other lengths: all queries are the first sequence's, and each has a key; or those of the case. */
static bool set_lists(const struct call *call, const struct form *f, bool others)
{
    const struct form_case *c = f->c;
    int32_t cu_q[MOST_SEQS + 1] = {0};
    int32_t used[MOST_SEQS];
    for (int i = 0; i < c->n; i++) {
        cu_q[i + 1] = f->x->first_q[others ? c->n : i + 1];
        used[i] = others ? 1 : c->kv[i];
    }
    const struct device *device = call->side->device;
    return device_upload(device, call->memory[find(call, "cu_q")], cu_q, (size_t)(c->n + 1) * sizeof *cu_q) &&
           device_upload(device, call->memory[find(call, "used_kv")], used, (size_t)c->n * sizeof *used);
}

static bool poison_results(const struct call *call)
{
    bool good = true;
    for (int i = call->n - 2; i < call->n; i++) {
        size_t size = lathe_dtype_size(call->arg[i].dtype);
        for (int k = 0; k < call->arg[i].ndim; k++) {
            size *= (size_t)call->shape[i][k];
        }
        good = good && device_fill(call->side->device, call->memory[i], 0xFF, size);
    }
    return good;
}

/* Captured while lists say other lengths. */
lathe_status form_run_graph(const struct call *call, const struct form *f, lathe_spec *spec, lathe_error *err)
{
    const struct side *side = call->side;
    struct kernel k;
    struct graph *graph = NULL;
    lathe_status status = kernel_open(&k, side, spec, LATHE_FORWARD, call->arg, call->n, err);
    if (status == LATHE_OK && !set_lists(call, f, true)) {
        status = failed(err);
    }
    if (status == LATHE_OK) {
        status = start(&k, side, call->arg, call->n, err);
    }
    if (status == LATHE_OK && (!poison_results(call) || !device_capture_begin(side->device, side->stream))) {
        status = failed(err);
    }
    if (status == LATHE_OK) {
        status = lathe_launch(k.kernel, call->arg, call->n, k.workspace, side->stream, err);
        graph = device_capture_end(side->device, side->stream);
    }
    if (status == LATHE_OK &&
        !(graph && set_lists(call, f, false) && device_graph_launch(side->device, graph, side->stream) &&
          device_sync(side->device, side->stream))) {
        status = failed(err);
    }
    device_graph_free(side->device, graph);
    kernel_close(&k, side);
    return status;
}
