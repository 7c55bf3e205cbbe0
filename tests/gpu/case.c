/*
 * case.c: one case from values to verdict.
 *
 * In: a bench (contexts and memory of one thread) and a case. Out: a tally; all memory is freed here.
 * The reference runs first, on the host context with f64 copies of the values. Then each run lays the same
 * values out in memory, launches twice, and every element, every byte of padding and the two results are
 * compared.
 */
#include "forms.h"
#include "maps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ---------------------------------------------------------------------------------------- */

bool case_data_open(struct case_data *data, const struct test_case *c)
{
    memset(data, 0, sizeof *data);
    data->n = spec_arguments(c->spec, c->pass, data->row);
    for (int i = 0; i < data->n; i++) {
        struct tensor t;
        tensor_shape(&t, &data->row[i], c);
        if (tensor_is_output(&t) || t.row.role == ROLE_SAVED) {
            continue;
        }
        const bool made = tensor_values(&t, c);
        data->value[i] = t.value;
        if (!made) {
            return false;
        }
    }
    return true;
}

void case_data_close(struct case_data *data)
{
    for (int i = 0; i < data->n; i++) {
        free(data->value[i]);
    }
}

/* ---- ready --------------------------------------------------------------------------------------- */

static lathe_status give_up(lathe_error *err, lathe_status status, const char *what)
{
    err->status = status;
    (void)snprintf(err->text, sizeof err->text, "%s", what);
    return status;
}

/* An input of dtype "float" follows the problem, or is f32 beside it in the odd layouts. */
static lathe_dtype dtype_in_run(const struct tensor *t, struct case_run run)
{
    if (run.dtype == LATHE_F64) {
        const bool follows =
            t->dtype == LATHE_NONE || (t->row.role != ROLE_INPUT && t->row.role != ROLE_SCALAR);
        return follows ? LATHE_F64 : t->dtype;
    }
    if (t->dtype != LATHE_NONE) {
        return t->dtype;
    }
    return t->row.role == ROLE_INPUT && run.layout % 2 ? LATHE_F32 : run.dtype;
}

static bool place_tensor(struct tensor *t, const struct side *side)
{
    if (!tensor_pack(t)) {
        return false;
    }
    if (t->row.role == ROLE_SCALAR) {
        return true;
    }
    const size_t size = (size_t)t->span * lathe_dtype_size(t->dtype);
    t->memory = device_alloc(side->device, size);
    return t->memory && device_upload(side->device, t->memory, t->bytes, size);
}

static bool place_arguments(struct ready *r, const struct side *side, const struct test_case *c,
                            const struct case_data *data, struct case_run run)
{
    uint64_t random = c->seed + (uint64_t)run.layout;
    for (int i = 0; i < data->n; i++) {
        struct tensor *t = &r->tensor[i];
        tensor_shape(t, &data->row[i], c);
        r->n_tensors = i + 1;
        t->dtype = dtype_in_run(t, run);
        t->value = data->value[i];
        t->given = t->given && (t->value || tensor_is_output(t)); /* the reference computes what is saved */
        tensor_lay_out(t, run.layout, &random);
        if (t->given && !place_tensor(t, side)) {
            return false;
        }
        if (t->given) {
            r->arg[r->n++] = tensor_arg(t, t->row.role == ROLE_SCALAR ? (void *)t->bytes : t->memory);
        }
    }
    if (c->has_q_start) {
        r->q_start = c->q_start;
        r->arg[r->n++] = (lathe_arg){"q_start", &r->q_start, LATHE_I32, 0, NULL, NULL};
    }
    return true;
}

lathe_status ready_place(struct ready *r, const struct side *side, const struct test_case *c,
                         const struct case_data *data, struct case_run run, lathe_error *err)
{
    memset(r, 0, sizeof *r);
    memset(err, 0, sizeof *err);
    if (place_arguments(r, side, c, data, run)) {
        return LATHE_OK;
    }
    return give_up(err, LATHE_MEMORY, device_is_dry(side->device) ? "out of host memory" : device_error());
}

lathe_status ready_kernel(struct ready *r, const struct side *side, lathe_spec *spec, lathe_pass pass,
                          lathe_error *err)
{
    lathe_status status = lathe_kernel_get(&r->kernel, side->ctx, spec, pass, r->arg, r->n, err);
    if (status == LATHE_OK) {
        status = lathe_workspace_size(&r->workspace_size, r->kernel, r->arg, r->n, err);
    }
    if (status != LATHE_OK || r->workspace_size == 0) {
        return status;
    }
    r->workspace = device_alloc(side->device, r->workspace_size);
    return r->workspace ? LATHE_OK : give_up(err, LATHE_MEMORY, "no memory for the workspace");
}

lathe_status ready_open(struct ready *r, const struct side *side, lathe_spec *spec, const struct test_case *c,
                        const struct case_data *data, struct case_run run, lathe_error *err)
{
    const lathe_status status = ready_place(r, side, c, data, run, err);
    return status == LATHE_OK ? ready_kernel(r, side, spec, c->pass, err) : status;
}

bool ready_poison(const struct ready *r, const struct side *side)
{
    bool good = r->workspace_size == 0 || device_fill(side->device, r->workspace, 0xFF, r->workspace_size);
    for (int i = 0; i < r->n_tensors; i++) {
        const struct tensor *t = &r->tensor[i];
        if (tensor_is_output(t) && t->memory) {
            good = good &&
                   device_fill(side->device, t->memory, 0xFF, (size_t)t->span * lathe_dtype_size(t->dtype));
        }
    }
    return good;
}

bool ready_fetch(struct ready *r, const struct side *side, bool again)
{
    bool good = device_sync(side->device, side->stream);
    for (int i = 0; i < r->n_tensors && good; i++) {
        struct tensor *t = &r->tensor[i];
        if (tensor_is_output(t) && t->memory) {
            good = device_download(side->device, again ? t->again : t->bytes, t->memory,
                                   (size_t)t->span * lathe_dtype_size(t->dtype));
        }
    }
    return good;
}

lathe_status ready_launch(struct ready *r, const struct side *side, bool again, lathe_error *err)
{
    if (!ready_poison(r, side)) {
        return give_up(err, LATHE_CUDA, device_error());
    }
    const lathe_status status = lathe_launch(r->kernel, r->arg, r->n, r->workspace, side->stream, err);
    if (status != LATHE_OK) {
        return status;
    }
    return ready_fetch(r, side, again) ? LATHE_OK : give_up(err, LATHE_CUDA, device_error());
}

const char *ready_difference(const struct ready *r)
{
    for (int i = 0; i < r->n_tensors; i++) {
        const struct tensor *t = &r->tensor[i];
        if (t->again && memcmp(t->bytes, t->again, (size_t)t->span * lathe_dtype_size(t->dtype)) != 0) {
            return t->row.name;
        }
    }
    return NULL;
}

void ready_close(struct ready *r, const struct side *side)
{
    for (int i = 0; i < r->n_tensors; i++) {
        device_free(side->device, r->tensor[i].memory);
        free(r->tensor[i].bytes);
        free(r->tensor[i].again);
    }
    device_free(side->device, r->workspace);
    lathe_kernel_release(r->kernel);
}

/* ---- verdicts ------------------------------------------------------------------------------------ */

void case_name(const struct test_case *c, char *out, size_t size)
{
    const int64_t *d = c->dim;
    const char *pass = c->pass == LATHE_FORWARD ? ""
                       : c->deterministic       ? " deterministic backward"
                                                : " backward";
    if (c->map) {
        map_name(c, pass, out, size);
        return;
    }
    if (c->forms) {
        forms_name(c, out, size);
        return;
    }
    if (c->spec->rowwise) {
        (void)snprintf(out, size, "%s%s rows=%" PRId64 "x%" PRId64 "x%" PRId64 " (%d leading) n=%" PRId64,
                       c->spec->name, pass, d[DIM_ROWS0], d[DIM_ROWS1], d[DIM_ROWS], c->leading, d[DIM_N]);
        return;
    }
    char start[32] = "";
    if (c->has_q_start) {
        (void)snprintf(start, sizeof start, " q_start=%d", c->q_start);
    }
    (void)snprintf(out, size,
                   "%s%s b=%" PRId64 ",h=%" PRId64 ",h_kv=%" PRId64 ",q=%" PRId64 ",kv=%" PRId64 ",d=%" PRId64
                   ",d_v=%" PRId64 "%s%s%s%s%s seed %" PRIu64,
                   c->spec->name, pass, d[DIM_B], d[DIM_H], d[DIM_H_KV], d[DIM_Q], d[DIM_KV], d[DIM_D],
                   d[DIM_D_V], start, c->skewed ? " skewed" : "", c->infinite ? " -inf" : "",
                   c->broadcast ? " broadcast" : "", c->absent ? " absent" : "", c->seed);
}

void one_line(char *text)
{
    enum { LONGEST = 480 };
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '\n') {
            text[i] = text[i + 1] ? '|' : 0;
        }
        if (i == LONGEST) {
            text[i] = 0;
        }
    }
}

void case_fail(struct tally *tally, const struct test_case *c, const char *where, const char *why)
{
    tally->failed++;
    if (tally->first[0]) {
        return;
    }
    char name[256];
    case_name(c, name, sizeof name);
    (void)snprintf(tally->first, sizeof tally->first, "%s, %s: %s", name, where, why);
    one_line(tally->first);
}

void case_judged(const struct bench *bench, struct tally *tally, const struct test_case *c, const char *where,
                 double worst, const char *wrong)
{
    tally->worst = worst > tally->worst ? worst : tally->worst;
    if (bench->verbose) {
        char name[256];
        case_name(c, name, sizeof name);
        (void)printf("  %.3f of its bound: %s, %s\n", worst, name, where);
    }
    if (wrong) {
        case_fail(tally, c, where, wrong);
    } else {
        tally->passed++;
    }
}

/* The references of a case: of its values, and of values moved by roundings. */
struct references {
    struct ready exact;
    struct ready moved[SAMPLES];
    bool has_moved;
};

static const double *numbers_of(const struct ready *r, int tensor)
{
    return (const double *)(const void *)r->tensor[tensor].bytes;
}

/* One output after both launches: NULL or what is wrong. */
static const char *judge(const struct tensor *t, int number, const struct references *references,
                         const struct test_case *c, struct case_run run, double *worst, char *why,
                         size_t why_size)
{
    struct test_case one = *c;
    one.run[0] = run;
    struct spread spread = {{NULL}, noise_size(c, run.dtype), 0.0};
    for (int s = 0; s < SAMPLES && references->has_moved; s++) {
        spread.sample[s] = numbers_of(&references->moved[s], number);
    }
    const char *wrong =
        result_compare(t, numbers_of(&references->exact, number), &spread, &one, worst, why, why_size);
    if (wrong) {
        return wrong;
    }
    const int64_t spilled = tensor_spilled(t);
    if (spilled == 0) {
        return NULL;
    }
    (void)snprintf(why, why_size, "%s: %" PRId64 " elements of the padding were overwritten", t->row.name,
                   spilled);
    return why;
}

/* Atomic additions of an attention's backward pass come in any order, unless it is asked to be deterministic.
 */
static bool repeats(const struct test_case *c)
{
    return c->pass == LATHE_FORWARD || c->deterministic || (c->spec->rowwise && !spec_scatters(c->spec));
}

static void check_outputs(const struct bench *bench, const struct ready *r,
                          const struct references *references, const struct test_case *c, struct case_run run,
                          const char *where, struct tally *tally)
{
    char why[320] = "";
    const char *wrong = NULL;
    double worst = 0.0;
    for (int i = 0; i < r->n_tensors && !wrong; i++) {
        if (tensor_is_output(&r->tensor[i]) && r->tensor[i].given) {
            wrong = judge(&r->tensor[i], i, references, c, run, &worst, why, sizeof why);
        }
    }
    const char *differs = wrong || bench->fault || !repeats(c) ? NULL : ready_difference(r);
    if (differs) {
        (void)snprintf(why, sizeof why, "%s: a second launch gave other bits", differs);
        wrong = why;
    }
    case_judged(bench, tally, c, where, worst, wrong);
}

/* Refusals that pass, with their sentence: sizes that no template takes, or none of those that were asked
 * for. */
static bool may_refuse(const struct bench *bench, const struct test_case *c, lathe_status status,
                       const char *text)
{
    return status == LATHE_UNSUPPORTED && (c->may_refuse || bench->wished) && strlen(text) > 10;
}

/* A run of the case, launched once. ready_close after a failure too. */
static lathe_status run_once(struct ready *r, const struct bench *bench, const struct side *side,
                             const struct test_case *c, const struct case_data *data, struct case_run run,
                             lathe_error *err)
{
    const ptrdiff_t row = c->spec - spec_rows;
    const bool plain = side == &bench->reference && bench->plain[row];
    lathe_spec *const spec = plain ? bench->plain[row] : bench->spec[row];
    const lathe_status status = ready_open(r, side, spec, c, data, run, err);
    return status == LATHE_OK ? ready_launch(r, side, false, err) : status;
}

/* The case in f64 on the host device. */
static lathe_status run_reference(struct ready *r, const struct bench *bench, const struct test_case *c,
                                  const struct case_data *data, lathe_error *err)
{
    const struct case_run exact = {LATHE_F64, LAYOUT_COMPACT};
    return run_once(r, bench, &bench->reference, c, data, exact, err);
}

static double *copy_numbers(const struct tensor *result)
{
    double *copy = calloc(result->count > 0 ? (size_t)result->count : 1, sizeof *copy);
    for (int64_t i = 0; copy && i < result->count; i++) {
        copy[i] = dtype_get(result->dtype, result->bytes, tensor_element(result, i));
    }
    return copy;
}

/* What a training step has kept: o and the finals, of a forward pass on this side. */
static lathe_status save_results(struct case_data *data, const struct bench *bench, const struct side *side,
                                 const struct test_case *c, struct case_run run, lathe_error *err)
{
    struct test_case forward = *c;
    struct case_data inputs;
    struct ready r;
    forward.pass = LATHE_FORWARD;
    memset(&r, 0, sizeof r);
    if (!case_data_open(&inputs, &forward)) {
        case_data_close(&inputs);
        return give_up(err, LATHE_MEMORY, "out of host memory");
    }
    const lathe_status status = run_once(&r, bench, side, &forward, &inputs, run, err);
    for (int i = 0; i < data->n && status == LATHE_OK; i++) {
        for (int k = 0; k < r.n_tensors && data->row[i].role == ROLE_SAVED; k++) {
            if (r.tensor[k].given && strcmp(r.tensor[k].row.name, data->row[i].name) == 0) {
                free(data->value[i]);
                data->value[i] = copy_numbers(&r.tensor[k]);
            }
        }
    }
    ready_close(&r, side);
    case_data_close(&inputs);
    return status;
}

/* Where a kernel rounds on the way to the scores, its statistics belong to the rounded ones: weights made of
   these and of exact statistics would be off by e^(what roundings move lse). So a run takes what the forward
   kernel of its dtype left; elsewhere exact values, rounded, serve. The reference computes its own. */
static bool keeps_own_results(const struct test_case *c)
{
    return c->pass == LATHE_BACKWARD && !c->spec->rowwise && c->spec->score_noise > 0.0;
}

static void drop_saved(struct case_data *data, bool free_them)
{
    for (int i = 0; i < data->n; i++) {
        if (data->row[i].role == ROLE_SAVED) {
            if (free_them) {
                free(data->value[i]);
            }
            data->value[i] = NULL;
        }
    }
}

static void check_run(const struct bench *bench, const struct test_case *c, const struct case_data *data,
                      const struct references *references, struct case_run run, struct tally *tally)
{
    char where[64];
    (void)snprintf(where, sizeof where, "%s %s", lathe_dtype_text(run.dtype), layout_name(run.layout));
    const struct side *side = c->deterministic ? &bench->strict : &bench->tested;
    struct case_data own = *data;
    struct ready ready;
    lathe_error err;
    lathe_status status = LATHE_OK;
    memset(&ready, 0, sizeof ready);
    if (keeps_own_results(c)) {
        drop_saved(&own, false);
        status = save_results(&own, bench, &bench->tested, c, run, &err);
    }
    if (status == LATHE_OK) {
        status = run_once(&ready, bench, side, c, &own, run, &err);
    }
    if (status == LATHE_OK && !bench->fault) { /* a fault shows in the first */
        status = ready_launch(&ready, side, true, &err);
    }
    if (status == LATHE_OK) {
        check_outputs(bench, &ready, references, c, run, where, tally);
    } else if (may_refuse(bench, c, status, err.text)) {
        tally->refused++;
        tally->passed++;
    } else {
        case_fail(tally, c, where, err.text);
    }
    ready_close(&ready, side);
    if (keeps_own_results(c)) {
        drop_saved(&own, true);
    }
}

/* The reference of moved values. Nothing is broadcast there: each batch is moved by itself. */
static lathe_status run_moved(struct references *references, const struct bench *bench,
                              const struct test_case *c, const struct case_data *data, lathe_error *err)
{
    struct test_case apart = *c;
    lathe_status status = LATHE_OK;
    apart.broadcast = false;
    for (int s = 0; s < SAMPLES && status == LATHE_OK; s++) {
        struct case_data noisy;
        status = noise_data_open(&noisy, c, data, s)
                     ? run_reference(&references->moved[s], bench, &apart, &noisy, err)
                     : give_up(err, LATHE_MEMORY, "out of host memory");
        case_data_close(&noisy);
    }
    references->has_moved = status == LATHE_OK;
    return status;
}

/* Of the values, or of wrong ones where the test itself is tested. */
static lathe_status run_references(struct references *references, const struct bench *bench,
                                   const struct test_case *c, const struct case_data *data, lathe_error *err)
{
    struct case_data wrong;
    lathe_status status = LATHE_OK;
    if (!fault_data_open(&wrong, c, data, bench->fault)) {
        status = give_up(err, LATHE_MEMORY, "out of host memory");
    }
    if (status == LATHE_OK) {
        status = run_reference(&references->exact, bench, c, &wrong, err);
    }
    if (status == LATHE_OK && noise_matters(c)) {
        status = run_moved(references, bench, c, &wrong, err);
    }
    case_data_close(&wrong);
    return status;
}

static lathe_status prepare(struct case_data *data, struct references *references, const struct bench *bench,
                            const struct test_case *c, lathe_error *err)
{
    const struct case_run exact = {LATHE_F64, LAYOUT_COMPACT};
    if (!case_data_open(data, c)) {
        return give_up(err, LATHE_MEMORY, "out of host memory");
    }
    const lathe_status status =
        c->pass == LATHE_BACKWARD ? save_results(data, bench, &bench->reference, c, exact, err) : LATHE_OK;
    return status == LATHE_OK ? run_references(references, bench, c, data, err) : status;
}

void case_check(const struct bench *bench, const struct test_case *c, struct tally *tally)
{
    if (c->map) {
        (c->map->spec->list ? list_check : map_check)(bench, c, tally);
        return;
    }
    if (c->forms) {
        forms_check(bench, c, tally);
        return;
    }
    struct case_data data;
    struct references references;
    lathe_error err;
    memset(&references, 0, sizeof references);
    const lathe_status status = prepare(&data, &references, bench, c, &err);
    if (status != LATHE_OK) {
        case_fail(tally, c, "reference", err.text);
    }
    for (int i = 0; i < c->n_runs && status == LATHE_OK; i++) {
        check_run(bench, c, &data, &references, c->run[i], tally);
    }
    ready_close(&references.exact, &bench->reference);
    for (int s = 0; s < SAMPLES; s++) {
        ready_close(&references.moved[s], &bench->reference);
    }
    case_data_close(&data);
}
