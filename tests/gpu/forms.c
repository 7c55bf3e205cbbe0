/*
 * forms.c: the same attention in every form that a call may have: sequences in a batch with keys in use,
 * packed, with keys in pages, as parts of rows that another launch puts together, and in a graph that was
 * captured when sequences had other lengths.
 *
 * In: a bench and a case. Out: a tally; all memory is freed here. The reference is a call for each sequence
 * by itself, of f64 on the host device. Where forms give a kernel the same tiles they must agree bit for bit.
 * Beside keys in use, K and V are NaN.
 */
#include "forms.h"
#include "forms_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STARTED                                                                                              \
    "return attention { inputs = { start = tensor('i32', 'b') },\n"                                          \
    "  mask_mod = function(at, x) return ge(at.kv, x.start(at.b)) & ge(at.q, at.kv) end }"
/* Mods of q and o, which know where a row is; a part of a row has no o. That of q changes signs and halves
   alone: kernels round what a mod gives, which finals do not allow for. */
#define ENDS                                                                                                 \
    "return attention { mask_mod = causal,\n"                                                                \
    "  query_mod = half(function(a, b, at)\n"                                                                \
    "    return where(eq(at.pos % 2, 0), -b, 0.5 * a), where(eq(at.pos % 3, 0), a, -b) end),\n"              \
    "  output_mod = function(o, at) return o * (1 + 0.01 * at.i) end }"
/* The same by rows, which count from 0 in each sequence however many keys are ahead. */
#define ROWS                                                                                                 \
    "return attention { mask_mod = causal,\n"                                                                \
    "  query_mod = function(q, at) return where(eq(at.row % 3, 0), -q, q) end,\n"                            \
    "  output_mod = function(o, at) return o * (1 + 0.125 * (at.row % 5)) end }"
/* q2 and k2 are read where they are, or copied: tiles differ. */
#define PAIR "return attention { qk2 = true }"
#define SPECS(id, even, n, q, kv, h, h_kv, d, page, most)                                                    \
    {"full " id, "full", NULL, "lse", 2, false, even, n, q, kv, h, h_kv, d, page, most, 0},                  \
        {"causal " id, "causal", NULL, "lse", 0, false, even, n, q, kv, h, h_kv, d, page, most, 0},          \
        {"started " id, "started", STARTED, "lse", 0, true, even, n, q, kv, h, h_kv, d, page, most, 0},      \
        {"ends " id, "ends", ENDS, "lse", 0, false, even, n, q, kv, h, h_kv, d, page, most, 0},              \
        {"pair " id, "pair", PAIR, "lse", 2, false, false, n, q, kv, h, h_kv, d, page, most, 16},            \
    {                                                                                                        \
        "retention " id, "retention", NULL, "n", 0, false, even, n, q, kv, h, h_kv, d, page, most, 0         \
    }
#define LIST(...)                                                                                            \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
static const struct form_case CASES[] = {
    SPECS("one token", true, 5, LIST(1, 1, 1, 1, 1), LIST(700, 1, 0, 1040, 513), 8, 2, 64, 16, 65),
    SPECS("four tokens", true, 4, LIST(4, 4, 4, 4), LIST(90, 640, 333, 4), 6, 1, 64, 64, 10),
    SPECS("uneven", false, 6, LIST(0, 1, 4, 17, 0, 9), LIST(50, 600, 256, 1000, 0, 70), 8, 2, 64, 3, 334),
    SPECS("many tokens", true, 3, LIST(70, 70, 70), LIST(70, 150, 200), 4, 2, 64, 32, 7),
    SPECS("uneven many", false, 4, LIST(130, 0, 1, 64), LIST(130, 9, 200, 65), 4, 2, 64, 256, 1),
    SPECS("long", false, 6, LIST(700, 64, 0, 333, 1025, 200), LIST(700, 64, 90, 400, 1025, 0), 4, 2, 128, 256,
          5),
    SPECS("small pages", false, 4, LIST(300, 0, 64, 130), LIST(500, 20, 0, 900), 4, 2, 128, 16, 57),
    SPECS("odd pages", false, 3, LIST(70, 5, 130), LIST(100, 90, 1), 4, 2, 64, 40, 3),
    {"rows one token", "rows", ROWS, "lse", 0, false, true, 5, LIST(1, 1, 1, 1, 1),
     LIST(700, 1, 0, 1040, 513), 8, 2, 64, 16, 65, 0},
    {"rows many tokens", "rows", ROWS, "lse", 0, false, true, 3, LIST(70, 70, 70), LIST(70, 150, 200), 4, 2,
     64, 32, 7, 0},
    {"rows uneven", "rows", ROWS, "lse", 0, false, false, 6, LIST(0, 1, 4, 17, 0, 9),
     LIST(50, 600, 256, 1000, 0, 70), 8, 2, 64, 3, 334, 0},
    {"rows long", "rows", ROWS, "lse", 0, false, false, 6, LIST(700, 64, 0, 333, 1025, 200),
     LIST(700, 64, 90, 400, 1025, 0), 4, 2, 128, 256, 5, 0},
};

/* ---- values -------------------------------------------------------------------------------------------- */

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
        call_add_rows(&call, "q", LATHE_F64, 1, c->h, c->q[i], c->d)->data = x->q + row * c->d;
        call_add_rows(&call, "k", LATHE_F64, 1, c->h_kv, c->kv[i], c->d)->data = x->k + key_row * c->d;
        call_add_rows(&call, "v", LATHE_F64, 1, c->h_kv, c->kv[i], c->d)->data = x->v + key_row * c->d;
        call_add_rows(&call, "o", LATHE_F64, 1, c->h, c->q[i], c->d)->data = x->o + row * c->d;
        call_add_rows(&call, c->final, LATHE_F64, 1, c->h, c->q[i], 0)->data = x->final + row;
        if (c->d2 > 0) {
            call_add_rows(&call, "q2", LATHE_F64, 1, c->h, c->q[i], c->d2)->data = x->q2 + row * c->d2;
            call_add_rows(&call, "k2", LATHE_F64, 1, c->h_kv, c->kv[i], c->d2)->data =
                x->k2 + key_row * c->d2;
        }
        if (c->started) {
            call_add(&call, "start", LATHE_I32, 1, one)->data = &x->start[i];
        }
        status = call_launch(&bench->reference, spec, LATHE_FORWARD, call.arg, call.n, err);
    }
    return status;
}

/* Of one sequence, [tokens, heads, d]. */
static void do_wrong(double *value, const char *name, int heads, int tokens, int d, enum fault fault)
{
    struct tensor t = {
        .ndim = 2, .shape = {tokens, (int64_t)heads * d}, .count = (int64_t)tokens * heads * d};
    (void)snprintf(t.row.name, sizeof t.row.name, "%s", name);
    fault_values(value, &t, FAULT_ROWS, fault);
}

/* The values once more, with a fault where the test itself is tested, and what the reference makes of them.
 */
static lathe_status open_reference(struct values *exact, const struct bench *bench, lathe_spec *spec,
                                   const struct form_case *c, struct values *x, uint64_t seed,
                                   lathe_error *err)
{
    if (!values_open(exact, c, seed)) {
        return LATHE_MEMORY;
    }
    for (int i = 0; i < c->n; i++) {
        const int64_t row = (int64_t)exact->first_q[i] * c->h * c->d;
        const int64_t key_row = (int64_t)exact->first_kv[i] * c->h_kv * c->d;
        do_wrong(exact->q + row, "q", c->h, c->q[i], c->d, bench->fault);
        do_wrong(exact->k + key_row, "k", c->h_kv, c->kv[i], c->d, bench->fault);
        do_wrong(exact->v + key_row, "v", c->h_kv, c->kv[i], c->d, bench->fault);
    }
    const lathe_status status = run_reference(bench, spec, c, exact, err);
    const size_t rows = (size_t)x->first_q[c->n] * (size_t)c->h;
    memcpy(x->o, exact->o, rows * (size_t)c->d * sizeof *x->o);
    memcpy(x->final, exact->final, rows * sizeof *x->final);
    return status;
}

/* ---- verdicts --------------------------------------------------------------------------------------------
 */

static const char *form_name(int form)
{
    if (form & GRAPH) {
        return "packed and paged, in a graph";
    }
    static const char *const NAME[FORMS] = {
        "padded",          "paged",          "packed",          "packed and paged",
        "padded in parts", "paged in parts", "packed in parts", "packed and paged in parts"};
    return NAME[form];
}

/* A sequence's rows in a result. */
static struct tensor rows_of(const struct form *f, const struct call *call, int arg, unsigned char *bytes,
                             int i)
{
    struct tensor t = {.dtype = call->arg[arg].dtype, .ndim = call->arg[arg].ndim};
    t.bytes = bytes;
    t.row.role = t.ndim == 4 ? ROLE_RESULT : ROLE_FINAL;
    (void)snprintf(t.row.name, sizeof t.row.name, "%s", call->arg[arg].name);
    memcpy(t.shape, call->shape[arg], sizeof t.shape);
    memcpy(t.strides, call->stride[arg], sizeof t.strides);
    t.shape[0] = 1;
    t.shape[2] = f->c->q[i];
    t.offset = form_query_row(f, i, 0) * t.strides[2];
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

/* bits: those of another form, one result behind the other; written where `first`, else compared. */
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
                (void)snprintf(why, why_size, "%s of sequence %d: element %lld is %.9g, in another form %.9g",
                               t.row.name, i, (long long)k, got, **bits);
                wrong = why;
            }
        }
        free(row);
    }
    free(bytes);
    return wrong;
}

/* The results that forms of one kernel must have bit for bit. A kernel's name says its template and tiles; it
   is "" where there is none, which is another mistake. */
struct agreed {
    char kernel[160];
    double *bits;
};

static void kernel_name(const struct call *call, lathe_spec *spec, char *out, size_t size)
{
    lathe_kernel *kernel = NULL;
    lathe_error err;
    out[0] = 0;
    if (lathe_kernel_get(&kernel, call->side->ctx, spec, LATHE_FORWARD, call->arg, call->n, &err) ==
        LATHE_OK) {
        const char *info = lathe_kernel_info(kernel);
        (void)snprintf(out, size, "%.*s", (int)strcspn(info, "\n"), info);
    }
    lathe_kernel_release(kernel);
}

/* Is it the form that others are compared with? That is the padded one; and that in pages, from there on,
   where the device has another kernel for it. */
static bool is_first(const struct call *call, const struct form *f, lathe_spec *spec, struct agreed *agreed)
{
    char name[sizeof agreed->kernel];
    if (f->form != 0 && f->form != PAGED) {
        return false;
    }
    kernel_name(call, spec, name, sizeof name);
    const bool is_other = strcmp(name, agreed->kernel) != 0;
    memcpy(agreed->kernel, name, sizeof name);
    return f->form == 0 || is_other;
}

static void check_form(const struct bench *bench, const struct test_case *whole, const struct form *f,
                       lathe_spec *spec, struct agreed *agreed, struct tally *tally)
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
    if (form_operands(&call, f) && (parts || form_results(&call, f))) {
        status = parts             ? form_run_parts(&call, &out, f, spec, &err)
                 : f->form & GRAPH ? form_run_graph(&call, f, spec, &err)
                                   : call_launch(call.side, spec, LATHE_FORWARD, call.arg, call.n, &err);
    }
    const char *wrong = status == LATHE_OK ? NULL : err.text[0] ? err.text : "no memory";
    const bool exact = c->even && !parts && f->form != PACKED; /* which Hopper has other tiles for */
    const bool first = is_first(&call, f, spec, agreed);
    double *bits = agreed->bits;
    for (int k = 0; k < 2 && !wrong; k++) {
        wrong = judge(f, results, results->n - 2 + k, k ? f->x->final : f->x->o, &one, &worst, &bits, first,
                      exact, why, sizeof why);
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

/* Parts of keys that lie beside each other would begin within a sequence. Queries of a padded batch stand at
   its end, in other rows than those of the sequence alone. */
static bool is_run(const struct form_case *c, int form, bool dry)
{
    const bool other_rows = !c->even && !(form & PACKED);
    if (other_rows && c->text && strcmp(c->text, ROWS) == 0) {
        return false;
    }
    if (form & GRAPH) {
        return form == (GRAPH | PACKED | PAGED) && !dry;
    }
    return !(form & PARTS) || (c->states > 0 && form != (PACKED | PARTS));
}

void forms_check(const struct bench *bench, const struct test_case *whole, struct tally *tally)
{
    const struct form_case *c = whole->forms;
    struct values x;
    struct values exact;
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    lathe_status status = open_spec(&spec, c, &err);
    memset(&exact, 0, sizeof exact);
    const bool there = values_open(&x, c, whole->seed);
    if (status == LATHE_OK && there) {
        status = open_reference(&exact, bench, spec, c, &x, whole->seed, &err);
    }
    struct agreed agreed = {.kernel = ""};
    agreed.bits =
        calloc((size_t)x.first_q[c->n] * (size_t)c->h * (size_t)(c->d + 1) + 1, sizeof *agreed.bits);
    struct form f = {.dtype = whole->run[0].dtype, .c = c, .x = &x};
    if (status == LATHE_OK && there && agreed.bits && form_make_pages(&f)) {
        for (f.form = 0; f.form < FORMS; f.form++) {
            if (is_run(c, f.form, device_is_dry(bench->tested.device))) {
                check_form(bench, whole, &f, spec, &agreed, tally);
            }
        }
        forms_check_gradients(bench, whole, &f, &x, &exact, spec, tally);
    } else {
        case_fail(tally, whole, "reference", err.text[0] ? err.text : "out of host memory");
    }
    free(agreed.bits);
    free(f.pages);
    values_close(&x);
    values_close(&exact);
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
        c.run[0].dtype = i / 5 % 2 ? LATHE_F16 : LATHE_BF16;
        (void)case_add(list, &c);
    }
}
