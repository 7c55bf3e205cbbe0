/*
 * forms.c: the same attention in every form that a call may have: sequences in a batch with keys in use,
 * packed, with keys in pages, and as parts of rows that another launch puts together.
 *
 * In: a bench and a case. Out: a tally; all memory is freed here. The reference is a call for each sequence
 * by itself, of f64 on the host device. Where forms give a kernel the same tiles they must agree bit for bit.
 * Beside keys in use, K and V are NaN.
 */
#include "forms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEQS = 6, TENSORS = 14, PAGED = 1, PACKED = 2, PARTS = 4, FORMS = 8, PARTS_OF_ROW = 2 };

struct form_case {
    const char *name;
    const char *spec, *text; /* a shipped one's name, or a text */
    const char *final;
    int states;   /* of a row, where keys may be cut into parts whatever their places are; 0: they may not */
    bool started; /* it has the input `start`, by sequence */
    bool even;    /* sequences have as many queries, so tiles are alike in every form */
    bool few;     /* queries: the keys of a row are cut into parts, as many as sizes of tensors ask for */
    int n, q[MOST_SEQS], kv[MOST_SEQS];
    int h, h_kv, d, page, most;
    int d2; /* of a second pair of q and k; 0: there is none */
};

#define STARTED                                                                                              \
    "return attention { inputs = { start = tensor('i32', 'b') },\n"                                          \
    "  mask_mod = function(at, x) return ge(at.kv, x.start(at.b)) & ge(at.q, at.kv) end }"
/* q2 and k2 are read where they are, or copied: tiles differ. */
#define PAIR "return attention { qk2 = true }"
#define SPECS(id, even, few, n, q, kv, h, h_kv, d, page, most)                                               \
    {"full " id, "full", NULL, "lse", 2, false, even, few, n, q, kv, h, h_kv, d, page, most, 0},             \
        {"causal " id, "causal", NULL, "lse", 0, false, even, few, n, q, kv, h, h_kv, d, page, most, 0},     \
        {"started " id, "started", STARTED, "lse", 0, true, even, few, n, q, kv, h, h_kv, d, page, most, 0}, \
        {"pair " id, "pair", PAIR, "lse", 2, false, false, few, n, q, kv, h, h_kv, d, page, most, 16},       \
    {                                                                                                        \
        "retention " id, "retention", NULL, "n", 0, false, even, few, n, q, kv, h, h_kv, d, page, most, 0    \
    }
#define LIST(...)                                                                                            \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
static const struct form_case CASES[] = {
    SPECS("one token", true, true, 5, LIST(1, 1, 1, 1, 1), LIST(700, 1, 0, 1040, 513), 8, 2, 64, 16, 65),
    SPECS("four tokens", true, true, 4, LIST(4, 4, 4, 4), LIST(90, 640, 333, 4), 6, 1, 64, 64, 10),
    SPECS("uneven", false, true, 6, LIST(0, 1, 4, 17, 0, 9), LIST(50, 600, 256, 1000, 0, 70), 8, 2, 64, 3,
          334),
    SPECS("many tokens", true, false, 3, LIST(70, 70, 70), LIST(70, 150, 200), 4, 2, 64, 40, 5),
    SPECS("uneven many", false, false, 4, LIST(130, 0, 1, 64), LIST(130, 9, 200, 65), 4, 2, 64, 256, 1),
};

/* ---- values -------------------------------------------------------------------------------------------- */

struct values { /* of all sequences, one behind the other, [tokens, heads, d] */
    double *q, *k, *v, *q2, *k2, *o, *final;
    int first_q[MOST_SEQS + 1], first_kv[MOST_SEQS + 1];
    int most_q;
    int32_t start[MOST_SEQS];
};

static double *draw(int64_t n, uint64_t *random)
{
    double *value = calloc((size_t)n + 1, sizeof *value);
    for (int64_t i = 0; value && random && i < n; i++) {
        value[i] = dtype_round(LATHE_BF16, random_gaussian(random));
    }
    return value;
}

static bool values_open(struct values *x, const struct form_case *c, uint64_t seed)
{
    uint64_t random = seed;
    memset(x, 0, sizeof *x);
    for (int i = 0; i < c->n; i++) {
        x->first_q[i + 1] = x->first_q[i] + c->q[i];
        x->first_kv[i + 1] = x->first_kv[i] + c->kv[i];
        x->most_q = c->q[i] > x->most_q ? c->q[i] : x->most_q;
        x->start[i] = (int32_t)random_between(&random, 0, c->kv[i]); /* kv: no key is live */
    }
    const int64_t rows = (int64_t)x->first_q[c->n] * c->h;
    const int64_t key_rows = (int64_t)x->first_kv[c->n] * c->h_kv;
    x->q = draw(rows * c->d, &random);
    x->k = draw(key_rows * c->d, &random);
    x->v = draw(key_rows * c->d, &random);
    x->q2 = draw(rows * c->d2, &random);
    x->k2 = draw(key_rows * c->d2, &random);
    x->o = draw(rows * c->d, NULL);
    x->final = draw(rows, NULL);
    return x->q && x->k && x->v && x->q2 && x->k2 && x->o && x->final;
}

static void values_close(struct values *x)
{
    free(x->q);
    free(x->k);
    free(x->v);
    free(x->q2);
    free(x->k2);
    free(x->o);
    free(x->final);
}

/* ---- a call ---------------------------------------------------------------------------------------------
 */

struct call {
    const struct side *side;
    int n;
    lathe_arg arg[TENSORS];
    int64_t shape[TENSORS][CASE_DIMS], stride[TENSORS][CASE_DIMS];
    void *memory[TENSORS];
};

static void call_close(struct call *call)
{
    for (int i = 0; i < call->n; i++) {
        device_free(call->side->device, call->memory[i]);
    }
}

static lathe_arg *add(struct call *call, const char *name, lathe_dtype dtype, int ndim, const int64_t *shape)
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
    add(call, name, LATHE_I32, columns > 0 ? 2 : 1, shape);
    return fill(call, list);
}

/* [batches, heads, tokens, d] with tokens ahead of heads; d is 0: values of rows. */
static lathe_arg *add_rows(struct call *call, const char *name, lathe_dtype dtype, int64_t batches,
                           int64_t heads, int64_t tokens, int64_t d)
{
    const int64_t shape[] = {batches, heads, tokens, d};
    const int64_t width = d > 0 ? d : 1;
    lathe_arg *arg = add(call, name, dtype, d > 0 ? 4 : 3, shape);
    int64_t *stride = call->stride[call->n - 1];
    stride[0] = tokens * heads * width;
    stride[1] = width;
    stride[2] = heads * width;
    return arg;
}

static lathe_status launch(const struct side *side, lathe_spec *spec, lathe_pass pass, const lathe_arg *arg,
                           int n, lathe_error *err)
{
    lathe_kernel *kernel = NULL;
    void *workspace = NULL;
    size_t size = 0;
    lathe_status status = lathe_kernel_get(&kernel, side->ctx, spec, pass, arg, n, err);
    if (status == LATHE_OK) {
        status = lathe_workspace_size(&size, kernel, arg, n, err);
    }
    if (status == LATHE_OK && size > 0) {
        workspace = device_alloc(side->device, size);
        status = workspace && device_fill(side->device, workspace, 0xFF, size) ? LATHE_OK : LATHE_MEMORY;
    }
    if (status == LATHE_OK) {
        status = lathe_launch(kernel, arg, n, workspace, side->stream, err);
    }
    if (status == LATHE_OK && !device_sync(side->device, side->stream)) {
        status = LATHE_CUDA;
        (void)snprintf(err->text, sizeof err->text, "%s", device_error());
    }
    device_free(side->device, workspace);
    lathe_kernel_release(kernel);
    return status;
}

/* ---- the reference ---------------------------------------------------------------------------------------
 */

static lathe_status run_reference(const struct bench *bench, lathe_spec *spec, const struct form_case *c,
                                  struct values *x, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int i = 0; i < c->n && status == LATHE_OK; i++) {
        struct call call = {.side = &bench->reference};
        const int64_t row = (int64_t)x->first_q[i] * c->h;
        const int64_t key_row = (int64_t)x->first_kv[i] * c->h_kv;
        const int64_t one[] = {1};
        add_rows(&call, "q", LATHE_F64, 1, c->h, c->q[i], c->d)->data = x->q + row * c->d;
        add_rows(&call, "k", LATHE_F64, 1, c->h_kv, c->kv[i], c->d)->data = x->k + key_row * c->d;
        add_rows(&call, "v", LATHE_F64, 1, c->h_kv, c->kv[i], c->d)->data = x->v + key_row * c->d;
        add_rows(&call, "o", LATHE_F64, 1, c->h, c->q[i], c->d)->data = x->o + row * c->d;
        add_rows(&call, c->final, LATHE_F64, 1, c->h, c->q[i], 0)->data = x->final + row;
        if (c->d2 > 0) {
            add_rows(&call, "q2", LATHE_F64, 1, c->h, c->q[i], c->d2)->data = x->q2 + row * c->d2;
            add_rows(&call, "k2", LATHE_F64, 1, c->h_kv, c->kv[i], c->d2)->data = x->k2 + key_row * c->d2;
        }
        if (c->started) {
            add(&call, "start", LATHE_I32, 1, one)->data = &x->start[i];
        }
        status = launch(&bench->reference, spec, LATHE_FORWARD, call.arg, call.n, err);
    }
    return status;
}

/* ---- forms ----------------------------------------------------------------------------------------------
 */

struct form {
    int form; /* PAGED, PACKED, PARTS */
    lathe_dtype dtype;
    const struct form_case *c;
    const struct values *x;
    int32_t *pages;
};

static const char *form_name(int form)
{
    static const char *const NAME[FORMS] = {
        "padded",          "paged",          "packed",          "packed and paged",
        "padded in parts", "paged in parts", "packed in parts", "packed and paged in parts"};
    return NAME[form];
}

/* Queries of a padded batch stand at its end, as positions count from there. */
static int64_t query_row(const struct form *f, int i, int64_t t)
{
    return f->form & PACKED ? f->x->first_q[i] + t : (int64_t)(i + 1) * f->x->most_q - f->c->q[i] + t;
}

static int64_t key_row(const struct form *f, int i, int64_t t)
{
    const struct form_case *c = f->c;
    if (f->form & PAGED) {
        return (int64_t)f->pages[i * c->most + t / c->page] * c->page + t % c->page;
    }
    return f->form & PACKED ? f->x->first_kv[i] + t : (int64_t)i * c->page * c->most + t;
}

/* Every page somewhere, and one to spare. */
static int64_t pool_of(const struct form_case *c)
{
    return (int64_t)c->n * c->most + 1;
}

static bool make_pages(struct form *f)
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
            const int64_t to = (keys ? key_row(f, i, t) : query_row(f, i, t)) * width;
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
    add_rows(call, name, f->dtype,
             paged    ? pool_of(c)
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
    add_rows(call, "q2", f->dtype, query_batches(f), f->c->h, query_tokens(f), f->c->d2);
    return fill_rows(call, f, f->x->q2, false, 0) && add_keys(call, f, "k2", f->c->d2, f->x->k2);
}

/* All but the results. */
static bool add_operands(struct call *call, const struct form *f)
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
    add_rows(call, "q", f->dtype, query_batches(f), c->h, query_tokens(f), c->d);
    return fill_rows(call, f, f->x->q, false, 0) && add_keys(call, f, "k", c->d, f->x->k) &&
           add_keys(call, f, "v", c->d, f->x->v) && add_second_pair(call, f) &&
           (!packed || add_list(call, "cu_q", cu_q, c->n + 1, 0)) &&
           (!packed || paged || add_list(call, "cu_kv", cu_kv, c->n + 1, 0)) &&
           ((packed && !paged) || add_list(call, "used_kv", used, c->n, 0)) &&
           (!paged || add_list(call, "pages", f->pages, c->n, c->most)) &&
           (!c->started || add_list(call, "start", f->x->start, c->n, 0));
}

static bool add_results(struct call *call, const struct form *f)
{
    const struct form_case *c = f->c;
    add_rows(call, "o", f->dtype, query_batches(f), c->h, query_tokens(f), c->d);
    if (!fill(call, NULL)) {
        return false;
    }
    add_rows(call, c->final, LATHE_F32, query_batches(f), c->h, query_tokens(f), 0);
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
static lathe_status run_parts(struct call *call, struct call *out, const struct form *f, lathe_spec *spec,
                              lathe_error *err)
{
    const struct form_case *c = f->c;
    const int64_t columns[] = {c->d, c->states + 1};
    static const char *const NAME[] = {"part_o", "part_rows"};
    const int n = call->n;
    for (int k = 0; k < 2; k++) {
        const int64_t shape[] = {PARTS_OF_ROW, query_batches(f), c->h, query_tokens(f), columns[k]};
        add(out, NAME[k], LATHE_F32, 5, shape);
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
        const lathe_status status = launch(call->side, spec, LATHE_FORWARD, arg, n + 2, err);
        if (status != LATHE_OK) {
            return status;
        }
    }
    return add_results(out, f) ? launch(call->side, spec, LATHE_COMBINE, out->arg, out->n, err)
                               : LATHE_MEMORY;
}

/* ---- verdicts --------------------------------------------------------------------------------------------
 */

/* A sequence's rows in a result. */
// NOLINTNEXTLINE(readability-non-const-parameter): what struct tensor has may be written
static struct tensor rows_of(const struct form *f, const struct call *call, int arg, unsigned char *bytes,
                             int i)
{
    struct tensor t = {.dtype = call->arg[arg].dtype, .ndim = call->arg[arg].ndim, .bytes = bytes};
    t.row.role = t.ndim == 4 ? ROLE_RESULT : ROLE_FINAL;
    (void)snprintf(t.row.name, sizeof t.row.name, "%s", call->arg[arg].name);
    memcpy(t.shape, call->shape[arg], sizeof t.shape);
    memcpy(t.strides, call->stride[arg], sizeof t.strides);
    t.shape[0] = 1;
    t.shape[2] = f->c->q[i];
    t.offset = query_row(f, i, 0) * t.strides[2];
    t.count = t.shape[1] * t.shape[2] * (t.ndim == 4 ? t.shape[3] : 1);
    return t;
}

/* Of a sequence, as [heads, tokens, columns]. */
static double *in_order(const struct form_case *c, const double *value, int first, const struct tensor *t)
{
    const int64_t columns = t->ndim == 4 ? t->shape[3] : 1;
    double *out = calloc((size_t)t->count + 1, sizeof *out);
    for (int64_t k = 0; out && k < t->count; k++) {
        const int64_t token = k / columns % t->shape[2];
        const int64_t head = k / columns / t->shape[2];
        out[k] = value[((first + token) * c->h + head) * columns + k % columns];
    }
    return out;
}

/* bits: those of the padded form, one result behind the other; written where `first`, else compared. */
static const char *judge(const struct form *f, const struct call *call, int arg, const double *expected,
                         const struct test_case *one, double *worst, double **bits, bool first, bool exact,
                         char *why, size_t why_size)
{
    const struct form_case *c = f->c;
    const struct spread none = {{NULL}, 0.0, 0.0};
    const char *wrong = NULL;
    size_t size = lathe_dtype_size(call->arg[arg].dtype);
    for (int k = 0; k < call->arg[arg].ndim; k++) {
        size *= (size_t)call->shape[arg][k];
    }
    unsigned char *bytes = malloc(size + 1);
    wrong = bytes && device_download(call->side->device, bytes, call->memory[arg], size) ? NULL : "no memory";
    for (int i = 0; i < c->n && !wrong; i++) {
        struct tensor t = rows_of(f, call, arg, bytes, i);
        double *row = in_order(c, expected, f->x->first_q[i], &t);
        wrong = row ? result_compare(&t, row, &none, one, worst, why, why_size) : "no memory";
        for (int64_t k = 0; k < t.count && !wrong; k++, ++*bits) {
            const double got = dtype_get(t.dtype, bytes, tensor_element(&t, k));
            if (first) {
                **bits = got;
            } else if (exact && memcmp(*bits, &got, sizeof got) != 0) {
                (void)snprintf(why, why_size, "%s of sequence %d: element %lld is %.9g, padded it is %.9g",
                               t.row.name, i, (long long)k, got, **bits);
                wrong = why;
            }
        }
        free(row);
    }
    free(bytes);
    return wrong;
}

static void check_form(const struct bench *bench, const struct test_case *whole, const struct form *f,
                       lathe_spec *spec, double *bits, struct tally *tally)
{
    const struct form_case *c = f->c;
    struct call call = {.side = &bench->tested};
    struct call out = {.side = &bench->tested};
    struct test_case one = *whole;
    lathe_error err = {0};
    lathe_status status = LATHE_MEMORY;
    char why[320] = "";
    double worst = 0.0;
    const bool parts = f->form & PARTS;
    struct call *results = parts ? &out : &call;
    one.run[0].dtype = f->dtype;
    if (add_operands(&call, f) && parts) {
        status = run_parts(&call, &out, f, spec, &err);
    } else if (add_results(&call, f)) {
        status = launch(call.side, spec, LATHE_FORWARD, call.arg, call.n, &err);
    }
    const char *wrong = status == LATHE_OK ? NULL : err.text[0] ? err.text : "no memory";
    const bool exact = c->even && !parts && (!c->few || f->form != PACKED);
    for (int k = 0; k < 2 && !wrong; k++) {
        wrong = judge(f, results, results->n - 2 + k, k ? f->x->final : f->x->o, &one, &worst, &bits,
                      f->form == 0, exact, why, sizeof why);
    }
    tally->worst = worst > tally->worst ? worst : tally->worst;
    if (wrong) {
        case_fail(tally, whole, form_name(f->form), wrong);
    } else {
        tally->passed++;
    }
    call_close(&call);
    call_close(&out);
}

void forms_name(const struct test_case *c, char *out, size_t size)
{
    (void)snprintf(out, size, "forms of %s", c->forms->name);
}

static lathe_status open_spec(lathe_spec **spec, const struct form_case *c, lathe_error *err)
{
    return c->text ? lathe_spec_parse(spec, c->spec, c->text, strlen(c->text), err)
                   : spec_open(spec, spec_find(c->spec), err);
}

void forms_check(const struct bench *bench, const struct test_case *whole, struct tally *tally)
{
    const struct form_case *c = whole->forms;
    struct values x;
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    lathe_status status = open_spec(&spec, c, &err);
    const bool there = values_open(&x, c, whole->seed);
    if (status == LATHE_OK && there) {
        status = run_reference(bench, spec, c, &x, &err);
    }
    double *bits = calloc((size_t)x.first_q[c->n] * (size_t)c->h * (size_t)(c->d + 1) + 1, sizeof *bits);
    struct form f = {.dtype = whole->run[0].dtype, .c = c, .x = &x};
    if (status == LATHE_OK && there && bits && make_pages(&f)) {
        for (f.form = 0; f.form < FORMS; f.form++) {
            if (!(f.form & PARTS) || (c->states > 0 && f.form != (PACKED | PARTS))) {
                check_form(bench, whole, &f, spec, bits, tally);
            }
        }
    } else {
        case_fail(tally, whole, "reference", err.text[0] ? err.text : "out of host memory");
    }
    free(bits);
    free(f.pages);
    values_close(&x);
    lathe_spec_destroy(spec);
}

void cases_of_forms(struct case_list *list, const char *group, bool quick)
{
    const int n = (int)(sizeof CASES / sizeof CASES[0]);
    for (int i = 0; i < n && strcmp(group, "forms") == 0; i += quick ? 3 : 1) {
        struct test_case c;
        memset(&c, 0, sizeof c);
        c.spec = spec_find(CASES[i].text ? "causal" : CASES[i].spec);
        c.forms = &CASES[i];
        c.n_runs = 1;
        c.run[0].dtype = i / 4 % 2 ? LATHE_F16 : LATHE_BF16;
        (void)case_add(list, &c);
    }
}
