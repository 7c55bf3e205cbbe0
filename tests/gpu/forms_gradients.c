/*
 * forms_gradients.c: gradients of packed sequences, whose keys are packed, too, or lie in pages. In: a bench,
 * a case and its values, o and the final among them. Out: a tally; all memory is freed here. The reference is
 * a backward pass for each sequence by itself, of f64 on the host device. Queries and do of a sequence
 * without keys, and keys of one without queries, are NaN: nothing may come of them, neither there nor beside
 * them.
 */
#include "forms_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum gradient { DQ, DK, DV, GRADIENTS };
#define CANCELLED 1e-6
static const char *const NAME[GRADIENTS] = {"dq", "dk", "dv"};

struct gradients { /* as struct values has its tensors */
    double *dout, *of[GRADIENTS];
};

static bool gradients_open(struct gradients *g, const struct form_case *c, const struct values *x)
{
    const size_t rows = (size_t)x->first_q[c->n] * (size_t)(c->h * c->d);
    const size_t key_rows = (size_t)x->first_kv[c->n] * (size_t)(c->h_kv * c->d);
    uint64_t random = 11;
    g->dout = calloc(rows + 1, sizeof *g->dout);
    for (size_t i = 0; g->dout && i < rows; i++) {
        g->dout[i] = dtype_round(LATHE_BF16, random_gaussian(&random));
    }
    for (int k = 0; k < GRADIENTS; k++) {
        g->of[k] = calloc((k == DQ ? rows : key_rows) + 1, sizeof *g->of[k]);
    }
    return g->dout && g->of[DQ] && g->of[DK] && g->of[DV];
}

static void gradients_close(struct gradients *g)
{
    free(g->dout);
    for (int k = 0; k < GRADIENTS; k++) {
        free(g->of[k]);
    }
}

static void add_part(struct call *call, const char *name, int64_t heads, int64_t tokens, int64_t d,
                     double *value)
{
    call_add_rows(call, name, LATHE_F64, 1, heads, tokens, d)->data = value;
}

static lathe_status run_reference(const struct bench *bench, lathe_spec *spec, const struct form_case *c,
                                  struct values *x, struct gradients *g, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int i = 0; i < c->n && status == LATHE_OK; i++) {
        struct call call = {.side = &bench->reference};
        const int64_t row = (int64_t)x->first_q[i] * c->h;
        const int64_t at = row * c->d;
        const int64_t key = (int64_t)x->first_kv[i] * c->h_kv * c->d;
        const int64_t one[] = {1};
        add_part(&call, "q", c->h, c->q[i], c->d, x->q + at);
        add_part(&call, "k", c->h_kv, c->kv[i], c->d, x->k + key);
        add_part(&call, "v", c->h_kv, c->kv[i], c->d, x->v + key);
        add_part(&call, "o", c->h, c->q[i], c->d, x->o + at);
        add_part(&call, c->final, c->h, c->q[i], 0, x->final + row);
        add_part(&call, "do", c->h, c->q[i], c->d, g->dout + at);
        add_part(&call, "dq", c->h, c->q[i], c->d, g->of[DQ] + at);
        add_part(&call, "dk", c->h_kv, c->kv[i], c->d, g->of[DK] + key);
        add_part(&call, "dv", c->h_kv, c->kv[i], c->d, g->of[DV] + key);
        if (c->started) {
            call_add(&call, "start", LATHE_I32, 1, one)->data = &x->start[i];
        }
        status = call_launch(&bench->reference, spec, LATHE_BACKWARD, call.arg, call.n, err);
    }
    return status;
}

/* Rows of all sequences, packed, or pools of pages; poison without values. */
static bool add_rows(struct call *call, const char *name, lathe_dtype dtype, int64_t batches, int64_t heads,
                     int64_t tokens, int64_t d, const double *value)
{
    const int64_t count = batches * heads * tokens * (d > 0 ? d : 1);
    const size_t size = (size_t)count * lathe_dtype_size(dtype);
    const struct device *device = call->side->device;
    unsigned char *bytes = malloc(size + 1);
    lathe_arg *arg = call_add_rows(call, name, dtype, batches, heads, tokens, d);
    void *memory = device_alloc(device, size);
    call->memory[call->n - 1] = memory;
    arg->data = memory;
    bool good = memory && bytes;
    for (int64_t k = 0; good && value && k < count; k++) {
        dtype_put(dtype, bytes, k, isfinite(value[k]) ? dtype_round(dtype, value[k]) : value[k]);
    }
    good = good &&
           (value ? device_upload(device, memory, bytes, size) : device_fill(device, memory, 0xFF, size));
    free(bytes);
    return good;
}

static bool add_all(struct call *call, const struct form *f, const struct gradients *g)
{
    const struct form_case *c = f->c;
    const int64_t rows = f->x->first_q[c->n];
    const int64_t batches = f->form & PAGED ? form_pool(c) : 1;
    const int64_t keys = f->form & PAGED ? c->page : f->x->first_kv[c->n];
    return form_operands(call, f) && add_rows(call, "o", f->dtype, 1, c->h, rows, c->d, f->x->o) &&
           add_rows(call, c->final, LATHE_F32, 1, c->h, rows, 0, f->x->final) &&
           add_rows(call, "do", f->dtype, 1, c->h, rows, c->d, g->dout) &&
           add_rows(call, NAME[DQ], f->dtype, 1, c->h, rows, c->d, NULL) &&
           add_rows(call, NAME[DK], f->dtype, batches, c->h_kv, keys, c->d, NULL) &&
           add_rows(call, NAME[DV], f->dtype, batches, c->h_kv, keys, c->d, NULL);
}

/* What has no partner is NaN. */
static void poison(const struct form_case *c, struct values *x, struct gradients *g)
{
    for (int i = 0; i < c->n; i++) {
        const int64_t width = (int64_t)c->h * c->d;
        const int64_t key_width = (int64_t)c->h_kv * c->d;
        for (int64_t k = x->first_q[i] * width; c->kv[i] == 0 && k < x->first_q[i + 1] * width; k++) {
            x->q[k] = g->dout[k] = (double)NAN;
        }
        for (int64_t k = x->first_kv[i] * key_width; c->q[i] == 0 && k < x->first_kv[i + 1] * key_width;
             k++) {
            x->k[k] = x->v[k] = (double)NAN;
        }
    }
}

/* Rows of a pool as packed ones; every other row of it must be 0. bytes: of the pool; out: of packed rows. */
static const char *take_pages(const struct form *f, const unsigned char *bytes, unsigned char *out)
{
    const struct form_case *c = f->c;
    const size_t row = (size_t)(c->h_kv * c->d) * lathe_dtype_size(f->dtype);
    const int64_t rows = form_pool(c) * c->page;
    bool *taken = calloc((size_t)rows + 1, sizeof *taken);
    const char *wrong = taken ? NULL : "no memory";
    for (int i = 0; i < c->n && taken; i++) {
        for (int64_t t = 0; t < c->kv[i]; t++) {
            const int64_t from = form_key_row(f, i, t);
            taken[from] = true;
            memcpy(out + (size_t)(f->x->first_kv[i] + t) * row, bytes + (size_t)from * row, row);
        }
    }
    for (int64_t r = 0; r < rows && taken && !wrong; r++) {
        for (size_t k = 0; k < row && !taken[r]; k++) {
            wrong = bytes[(size_t)r * row + k] ? "a row that no key in use lies in is not 0" : wrong;
        }
    }
    free(taken);
    return wrong;
}

/* A gradient, packed; the caller frees it. */
static unsigned char *fetch(const struct form *f, const struct call *call, int arg, bool pages,
                            const char **wrong)
{
    size_t size = lathe_dtype_size(f->dtype);
    for (int k = 0; k < call->arg[arg].ndim; k++) {
        size *= (size_t)call->shape[arg][k];
    }
    const size_t packed =
        (size_t)f->x->first_kv[f->c->n] * (size_t)(f->c->h_kv * f->c->d) * lathe_dtype_size(f->dtype);
    unsigned char *bytes = malloc(size + 1);
    unsigned char *out = pages ? malloc(packed + 1) : NULL;
    *wrong = bytes && (out || !pages) && device_download(call->side->device, bytes, call->memory[arg], size)
                 ? NULL
                 : "no memory";
    if (!pages || *wrong) {
        free(out);
        return bytes;
    }
    *wrong = take_pages(f, bytes, out);
    free(bytes);
    return out;
}

/* A sequence's rows of a gradient, and what they must be, in the order of [heads, tokens, columns]. */
static const char *judge(const struct form *f, const struct call *call, enum gradient which,
                         const double *expected, const struct test_case *one, double *worst, char *why,
                         size_t why_size)
{
    const struct form_case *c = f->c;
    const int *first = which == DQ ? f->x->first_q : f->x->first_kv;
    const int64_t heads = which == DQ ? c->h : c->h_kv;
    const char *wrong = NULL;
    unsigned char *bytes =
        fetch(f, call, call->n - GRADIENTS + (int)which, which != DQ && (f->form & PAGED), &wrong);
    for (int i = 0; i < c->n && !wrong; i++) {
        struct tensor t = {.dtype = f->dtype, .ndim = 4, .bytes = bytes};
        t.row.role = ROLE_RESULT;
        (void)snprintf(t.row.name, sizeof t.row.name, "%s", NAME[which]);
        const int64_t shape[] = {1, heads, first[i + 1] - first[i], c->d};
        const int64_t stride[] = {first[c->n] * heads * c->d, c->d, heads * c->d, 1}; /* tokens ahead */
        memcpy(t.shape, shape, sizeof shape);
        memcpy(t.strides, stride, sizeof stride);
        t.offset = first[i] * t.strides[2];
        t.count = heads * t.shape[2] * c->d;
        /* Of a row with one live key dw and delta cancel; without a partner all is exactly 0. */
        const struct spread spread = {{NULL}, 0.0, c->q[i] > 0 && c->kv[i] > 0 ? CANCELLED : 0.0};
        double *row = calloc((size_t)t.count + 1, sizeof *row);
        for (int64_t k = 0; row && k < t.count; k++) {
            const int64_t token = first[i] + k / c->d % t.shape[2];
            row[k] = expected[(token * heads + k / c->d / t.shape[2]) * c->d + k % c->d];
        }
        wrong = row ? result_compare(&t, row, &spread, one, worst, why, why_size) : "no memory";
        free(row);
    }
    free(bytes);
    return wrong;
}

/* One form's pass, against what the reference has made. */
static void check_form(const struct bench *bench, const struct test_case *whole, const struct form *f,
                       const struct gradients *g, lathe_spec *spec, struct tally *tally)
{
    struct call call = {.side = &bench->tested};
    struct test_case one = *whole;
    lathe_error err = {0};
    char why[320] = "";
    double worst = 0.0;
    one.pass = LATHE_BACKWARD;
    const lathe_status status = add_all(&call, f, g)
                                    ? call_launch(call.side, spec, LATHE_BACKWARD, call.arg, call.n, &err)
                                    : LATHE_MEMORY;
    const char *wrong = status == LATHE_OK ? NULL : err.text[0] ? err.text : "no memory";
    for (int k = 0; k < GRADIENTS && !wrong; k++) {
        wrong = judge(f, &call, (enum gradient)k, g->of[k], &one, &worst, why, sizeof why);
    }
    tally->worst = worst > tally->worst ? worst : tally->worst;
    if (wrong) {
        case_fail(tally, whole,
                  f->form & PAGED ? "gradients of the packed form in pages" : "gradients of the packed form",
                  wrong);
    } else {
        tally->passed++;
    }
    call_close(&call);
}

void forms_check_gradients(const struct bench *bench, const struct test_case *whole, struct form *f,
                           struct values *x, struct values *exact, lathe_spec *spec, struct tally *tally)
{
    struct gradients g = {NULL, {NULL}};
    lathe_error err = {0};
    lathe_status status = LATHE_MEMORY;
    if (f->c->d2 >
        0) { /* rows of a second pair are copied: those of one sequence after the other are the same */
        return;
    }
    if (gradients_open(&g, f->c, x)) {
        status = run_reference(bench, spec, f->c, exact, &g, &err);
        poison(f->c, x, &g);
    }
    if (status != LATHE_OK) {
        case_fail(tally, whole, "gradients", err.text[0] ? err.text : "no memory");
    }
    for (int pages = 0; pages < 2 && status == LATHE_OK; pages++) {
        f->form = pages ? PACKED | PAGED : PACKED;
        check_form(bench, whole, f, &g, spec, tally);
    }
    gradients_close(&g);
}
