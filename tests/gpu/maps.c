/*
 * maps.c: one element-wise case from values to verdict.
 *
 * In: a bench and a case. Out: a tally; all memory is freed here. As in case.c the reference runs first, on
 * the host context with f64 copies of the values; but here a result may lie in the memory of an operand, so
 * that every launch starts from the same bytes, uploaded anew.
 */
#include "maps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct placed { /* the arguments of one run */
    struct map_given given;
    struct tensor tensor[CASE_ARGS]; /* of a result in an operand's memory: that operand's layout */
    int home[CASE_ARGS];             /* whose memory it has: its own number, or that of the operand */
    bool passed[CASE_ARGS];          /* it is given to the library */
    lathe_arg arg[CASE_ARGS];
    int n;
    lathe_kernel *kernel;
    void *workspace;
    size_t workspace_size;
};

/* ---- values -------------------------------------------------------------------------------------- */

/* Starts of packed sequences, some of them empty, up to `total`. */
static void draw_starts(double *value, int64_t ends, int64_t total, uint64_t *random)
{
    int64_t at = 0;
    for (int64_t i = 0; i < ends; i++) {
        value[i] = (double)(i + 1 == ends ? total : at);
        const int64_t most = 2 * total / (ends > 1 ? ends - 1 : 1) + 1;
        at += random_between(random, 0, 2) == 0 ? 0 : random_between(random, 0, most);
        at = at > total ? total : at;
    }
}

/* Numbers below `slots`, each once, and -1 for the rest. */
static void draw_slots(double *value, int64_t n, int64_t slots, uint64_t *random)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t other = random_between(random, 0, i);
        value[i] = value[other];
        value[other] = i < slots ? (double)i : -1.0;
    }
}

/* cu_seqlens and chunk_offsets belong together: chunks of 2 tokens, the last of a sequence of 1 or 2. */
static void draw_packed(struct tensor *t, const struct test_case *c)
{
    const int64_t ends = map_size(c->map->sizes, "ends");
    if (t->row.fill == FILL_STARTS) {
        uint64_t seed = c->seed;
        draw_starts(t->value, ends, map_size(c->map->sizes, "t"), &seed);
        return;
    }
    if (t->row.fill == FILL_SLOTS) {
        uint64_t seed = c->seed;
        draw_slots(t->value, t->count, map_size(c->map->sizes, "slots"), &seed);
        return;
    }
    const int64_t chunks = map_size(c->map->sizes, "chunks");
    const bool tokens = strcmp(t->row.name, "cu_seqlens") == 0 && chunks >= 0;
    uint64_t random = c->seed;
    if (strcmp(t->row.name, "n") == 0) {
        t->value[0] = (double)(ends - 1);
        return;
    }
    if (strcmp(t->row.name, "cu_seqlens") != 0 && strcmp(t->row.name, "chunk_offsets") != 0) {
        return;
    }
    draw_starts(t->value, ends, chunks >= 0 ? chunks : map_size(c->map->sizes, "tokens"), &random);
    int64_t short_by = 0;
    int64_t before = 0;
    for (int64_t i = 0; tokens && i < ends; i++) {
        const int64_t here = (int64_t)t->value[i];
        short_by += here > before && i % 2 == 0;
        before = here;
        t->value[i] = (double)(2 * here - short_by);
    }
}

static void shape_of(struct tensor *t, const struct map_arg *arg)
{
    memset(t, 0, sizeof *t);
    t->row = arg->row;
    t->dtype = arg->row.dtype;
    t->count = 1;
    for (const char *word = arg->row.dims; *word; word += strcspn(word, " "), word += *word == ' ') {
        t->shape[t->ndim] = strtoll(word, NULL, 10);
        t->count *= t->shape[t->ndim++];
    }
    t->given = true;
}

static bool values_of(struct tensor *t, const struct test_case *c)
{
    const bool made = tensor_values(t, c);
    if (made && (c->map->spec->slow || t->row.fill == FILL_STARTS || t->row.fill == FILL_SLOTS)) {
        draw_packed(t, c);
    }
    return made;
}

/* ---- in place ------------------------------------------------------------------------------------ */

static int number_of(const struct placed *p, const char *name)
{
    const struct map_arg *arg = map_find(&p->given, name);
    return arg ? (int)(arg - p->given.arg) : -1;
}

/* Gradients, but not all of them, are left out of what is tested, of linear attention drawn ones; the
 * reference has them all. */
static bool left_out(const struct placed *p, int i, const struct test_case *c, bool exact)
{
    const struct arg_row *row = &p->given.arg[i].row;
    if (!c->absent || !row->optional) {
        return false;
    }
    uint64_t random = c->seed + (uint64_t)i;
    const bool some = c->sums ? random_bits(&random) % 2 == 0 : i + 1 == p->given.n || i % 2 == 0;
    return !tensor_is_output(&p->tensor[i]) || (!exact && some);
}

static int wanted_results(const struct placed *p)
{
    int n = 0;
    for (int i = 0; i < p->given.n; i++) {
        n += p->passed[i] && tensor_is_output(&p->tensor[i]);
    }
    return n;
}

/* Which arguments there are, and where. */
static void decide(struct placed *p, const struct test_case *c, struct case_run run, enum memory memory)
{
    uint64_t random = c->seed + (uint64_t)run.layout;
    for (int i = 0; i < p->given.n; i++) {
        struct tensor *t = &p->tensor[i];
        shape_of(t, &p->given.arg[i]);
        t->dtype = map_dtype(&p->given.arg[i], i, c, run);
        tensor_lay_out(t, run.layout, &random);
        if (c->map->strided && run.dtype != LATHE_F64 && t->ndim > 0) {
            const int64_t step = 2 + i % 2;
            for (int d = 0; d < t->ndim; d++) {
                t->strides[d] *= step;
            }
            t->span = (t->span > 0 ? (t->span - 1) * step : 0) + 1 + 64;
        }
        p->home[i] = i;
        p->passed[i] = !left_out(p, i, c, run.dtype == LATHE_F64);
    }
    for (int i = 0; i < p->given.n && wanted_results(p) == 0; i++) {
        p->passed[i] |= tensor_is_output(&p->tensor[i]);
    }
    for (int i = 0; i < p->given.n && memory != MEMORY_APART; i++) {
        const int home = number_of(p, p->given.arg[i].alias);
        if (home >= 0) {
            const struct arg_row row = p->tensor[i].row;
            p->tensor[i] = p->tensor[home];
            p->tensor[i].row = row;
            p->home[i] = home;
            p->passed[i] = memory == MEMORY_SAME;
        }
    }
}

/* ---- one run ------------------------------------------------------------------------------------- */

static bool is_result(const struct placed *p, int i)
{
    return tensor_is_output(&p->tensor[i]) && (p->passed[i] || p->home[i] != i);
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)t->span * lathe_dtype_size(t->dtype);
}

static bool place(struct placed *p, const struct side *side, double *const *value)
{
    for (int i = 0; i < p->given.n; i++) {
        struct tensor *t = &p->tensor[i];
        t->value = value[i];
        if ((!p->passed[i] && p->home[i] == i) || !tensor_pack(t)) {
            if (p->passed[i] || p->home[i] != i) {
                return false;
            }
            continue;
        }
        if (t->row.role != ROLE_SCALAR && p->home[i] == i) {
            t->memory = device_alloc(side->device, bytes_of(t));
            if (!t->memory) {
                return false;
            }
        }
    }
    for (int i = 0; i < p->given.n; i++) {
        struct tensor *t = &p->tensor[i];
        void *memory = t->row.role == ROLE_SCALAR ? (void *)t->bytes : p->tensor[p->home[i]].memory;
        if (p->passed[i]) {
            p->arg[p->n++] = tensor_arg(t, memory);
        }
    }
    return true;
}

static lathe_status give_up(lathe_error *err, lathe_status status, const char *what)
{
    err->status = status;
    (void)snprintf(err->text, sizeof err->text, "%s", what);
    return status;
}

static lathe_status open_run(struct placed *p, const struct side *side, lathe_spec *spec,
                             const struct test_case *c, double *const *value, struct case_run run,
                             lathe_error *err)
{
    const bool exact = run.dtype == LATHE_F64;
    memset(p, 0, sizeof *p);
    memset(err, 0, sizeof *err);
    map_arguments(&p->given, c);
    decide(p, c, run, exact ? MEMORY_APART : c->map->memory);
    if (!place(p, side, value)) {
        return give_up(err, LATHE_MEMORY, "no memory for the tensors");
    }
    lathe_status status = lathe_kernel_get(&p->kernel, side->ctx, spec, c->pass, p->arg, p->n, err);
    if (status == LATHE_OK) {
        status = lathe_workspace_size(&p->workspace_size, p->kernel, p->arg, p->n, err);
    }
    if (status == LATHE_OK && p->workspace_size > 0) {
        p->workspace = device_alloc(side->device, p->workspace_size);
        status = p->workspace ? LATHE_OK : give_up(err, LATHE_MEMORY, "no memory for the workspace");
    }
    return status;
}

/* Operands and poison anew, then a launch, then the results. */
static lathe_status launch_run(struct placed *p, const struct side *side, bool again, lathe_error *err)
{
    bool good = p->workspace_size == 0 || device_fill(side->device, p->workspace, 0xFF, p->workspace_size);
    for (int i = 0; i < p->given.n && good; i++) {
        struct tensor *t = &p->tensor[i];
        if (t->memory && tensor_is_output(t)) {
            good = device_fill(side->device, t->memory, 0xFF, bytes_of(t));
        } else if (t->memory) {
            good = device_upload(side->device, t->memory, t->bytes, bytes_of(t));
        }
    }
    if (!good) {
        return give_up(err, LATHE_CUDA, device_error());
    }
    const lathe_status status = lathe_launch(p->kernel, p->arg, p->n, p->workspace, side->stream, err);
    good = status == LATHE_OK && device_sync(side->device, side->stream);
    for (int i = 0; i < p->given.n && good; i++) {
        struct tensor *t = &p->tensor[i];
        if (is_result(p, i)) {
            good = device_download(side->device, again ? t->again : t->bytes, p->tensor[p->home[i]].memory,
                                   bytes_of(t));
        }
    }
    return status != LATHE_OK || good ? status : give_up(err, LATHE_CUDA, device_error());
}

static void close_run(struct placed *p, const struct side *side)
{
    for (int i = 0; i < p->given.n; i++) {
        if (p->home[i] == i) {
            device_free(side->device, p->tensor[i].memory);
        }
        free(p->tensor[i].bytes);
        free(p->tensor[i].again);
    }
    device_free(side->device, p->workspace);
    lathe_kernel_release(p->kernel);
}

/* ---- the reference ----------------------------------------------------------------------------------- */

/* What the reference gives in double, and, where it was asked for, of moved values (noise.c). */
struct reference {
    const struct side *side;
    lathe_spec *spec;
    const struct test_case *c;
    double *value[CASE_ARGS]; /* its own: they have a fault where the test itself is tested */
    struct placed exact;
    struct placed moved[SAMPLES];
    bool has_moved;
};

/* The reference in double, row-major and compact; NULL: none. */
static double *expected_of(const struct placed *reference, const char *name)
{
    const int i = number_of(reference, name);
    const struct tensor *t = i >= 0 ? &reference->tensor[i] : NULL;
    double *values = t && t->bytes ? calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *values) : NULL;
    for (int64_t k = 0; values && k < t->count; k++) {
        values[k] = dtype_get(t->dtype, t->bytes, tensor_element(t, k));
    }
    return values;
}

/* The reference in double of these values; close_run either way. */
static lathe_status run_reference(struct placed *p, const struct reference *r, double *const *value,
                                  lathe_error *err)
{
    const struct case_run exact = {LATHE_F64, LAYOUT_COMPACT};
    const lathe_status status = open_run(p, r->side, r->spec, r->c, value, exact, err);
    return status == LATHE_OK ? launch_run(p, r->side, false, err) : status;
}

static bool move_values(double **moved, const struct reference *r, const struct map_given *given, int sample)
{
    uint64_t random = r->c->seed * 2 + (uint64_t)sample + 99;
    for (int i = 0; i < given->n; i++) {
        struct tensor t;
        shape_of(&t, &given->arg[i]);
        moved[i] = r->value[i] ? calloc(t.count > 0 ? (size_t)t.count : 1, sizeof **moved) : NULL;
        if (r->value[i] && !moved[i]) {
            return false;
        }
        if (moved[i]) {
            sums_noise(moved[i], r->value[i], t.count, t.row.name, &random);
        }
    }
    return true;
}

static bool run_moved(struct reference *r)
{
    struct map_given given;
    map_arguments(&given, r->c);
    bool good = true;
    for (int s = 0; s < SAMPLES && good && !r->has_moved; s++) {
        double *moved[CASE_ARGS] = {NULL};
        lathe_error err;
        good = move_values(moved, r, &given, s) && run_reference(&r->moved[s], r, moved, &err) == LATHE_OK;
        for (int i = 0; i < CASE_ARGS; i++) {
            free(moved[i]);
        }
    }
    r->has_moved = good;
    return good;
}

/* ---- verdicts ------------------------------------------------------------------------------------ */

static const char *compare_whole(const struct tensor *t, const double *expected, char *why, size_t size)
{
    for (int64_t i = 0; i < t->count; i++) {
        const double got = dtype_get(t->dtype, t->bytes, tensor_element(t, i));
        if (got < expected[i] || got > expected[i]) {
            (void)snprintf(why, size, "%s[%lld] is %.0f, expected %.0f", t->row.name, (long long)i, got,
                           expected[i]);
            return why;
        }
    }
    return NULL;
}

static bool same_bits_wanted(const struct placed *p, int i, const struct test_case *c)
{
    const struct map_arg *of = map_find(&p->given, p->given.arg[i].row.name + 1);
    return c->pass == LATHE_FORWARD || c->deterministic || !of || !of->scattered ||
           p->tensor[i].row.role != ROLE_GRADIENT;
}

/* The squares of all products of an operand and its gradient. */
static double products_of(const struct reference *r, const char *name, const char *gradient)
{
    const int i = number_of(&r->exact, name);
    double *back = i >= 0 ? expected_of(&r->exact, gradient) : NULL;
    double sum = 0.0;
    for (int64_t k = 0; back && k < r->exact.tensor[i].count; k++) {
        sum += r->value[i][k] * back[k] * r->value[i][k] * back[k];
    }
    free(back);
    return sum;
}

/* Token by token a token's pair with itself is on neither side of that difference, but beside a bonus, or of
 * a decay by value channel, or where a token adds what it reads. */
static bool reads_otherwise(const char *name)
{
    static const char *const OTHERWISE[] = {
        "rwkv6", "token_bonus", "normalised_bonus", "by_value", "valued_delta", "rwkv7", "dplr"};
    bool is = false;
    for (size_t i = 0; i < sizeof OTHERWISE / sizeof *OTHERWISE; i++) {
        is |= strcmp(name, OTHERWISE[i]) == 0;
    }
    return is;
}

/* What may be left of an element where the terms of a sum along tokens cancel; of a gradient through a decay
 * it is of the products that cancel. */
static double least_of(const struct tensor *t, const struct reference *r, lathe_dtype dtype)
{
    static const double LEAST = 1e-6;
    /* "w" is also the weight of a norm, with one dim, and "r" the delta rule's beta, with three. */
    static const struct {
        const char *gradient;
        int ndim; /* 0: any */
    } OF_DECAY[] = {{"dg", 0}, {"dw", 4}, {"ddt", 0}, {"ddt_bias", 0}, {"da_log", 0}, {"da", 0}, {"dr", 1}};
    bool decays = false;
    for (size_t i = 0; i < sizeof OF_DECAY / sizeof *OF_DECAY; i++) {
        decays |= strcmp(t->row.name, OF_DECAY[i].gradient) == 0 &&
                  (OF_DECAY[i].ndim == 0 || OF_DECAY[i].ndim == t->ndim);
    }
    if (!decays || t->count == 0) {
        return LEAST;
    }
    const char *const sizes = r->c->map->sizes;
    const int64_t tokens = map_size(sizes, "t");
    const bool each = t->count >= tokens * map_size(sizes, "b");
    if (each && dtype == LATHE_F32 && !reads_otherwise(r->c->map->spec->name)) {
        return 0.0; /* so small as decays make it */
    }
    const double products =
        sqrt(products_of(r, "q", "dq") + products_of(r, "k", "dk") + products_of(r, "v", "dv"));
    const double left = sums_left(products, tokens, each);
    return fmax(LEAST, left / sqrt((double)t->count));
}

static const double NEAR = 0.75;
static const double MOVED = 2.0 / 3.0; /* forward: q, k and v are moved at once */

/* A sum along tokens whose terms cancel, as the gradient of a number a head, may be off by more than a part
 * of itself: by what roundings of the operands move in it. That is asked where the plain bound fails, since
 * it takes the reference three runs more. */
static const char *compare_moved(const struct tensor *t, const double *expected, struct reference *r,
                                 const struct test_case *one, double *worst, char *why, size_t size)
{
    double *sample[SAMPLES] = {NULL};
    const double part = r->c->pass == LATHE_FORWARD ? MOVED : 1.0;
    struct spread spread = {
        {NULL}, part * sums_noise_size(one->run[0].dtype), least_of(t, r, one->run[0].dtype)};
    bool good = run_moved(r);
    for (int s = 0; s < SAMPLES && good; s++) {
        spread.sample[s] = sample[s] = expected_of(&r->moved[s], t->row.name);
        good = sample[s] != NULL;
    }
    const char *wrong = good ? result_compare(t, expected, &spread, one, worst, why, size)
                             : "the reference of moved values did not run";
    for (int s = 0; s < SAMPLES; s++) {
        free(sample[s]);
    }
    return wrong;
}

/* One result after both launches: NULL or what is wrong. One that is near its plain bound is judged by what
 * roundings move, too, so that the worst error of a group is a part of what is allowed. */
static const char *judge(const struct placed *p, int i, const double *expected, struct reference *r,
                         struct case_run run, double *worst, char *why, size_t size)
{
    const struct tensor *t = &p->tensor[i];
    const struct test_case *c = r->c;
    const struct spread least = {.least = c->sums ? least_of(t, r, run.dtype) : 0.0};
    struct test_case one = *c;
    one.run[0] = run;
    double part = 0.0;
    const char *wrong = t->dtype == LATHE_I32 ? compare_whole(t, expected, why, size)
                                              : result_compare(t, expected, &least, &one, &part, why, size);
    if ((wrong || part > NEAR) && c->sums && t->dtype != LATHE_I32) {
        part = 0.0;
        wrong = compare_moved(t, expected, r, &one, &part, why, size);
    }
    *worst = fmax(*worst, part);
    if (wrong) {
        return wrong;
    }
    if (tensor_spilled(t) > 0) {
        (void)snprintf(why, size, "%s: elements of the padding were overwritten", t->row.name);
        return why;
    }
    if (same_bits_wanted(p, i, c) && memcmp(t->bytes, t->again, bytes_of(t)) != 0) {
        (void)snprintf(why, size, "%s: a second launch gave other bits", t->row.name);
        return why;
    }
    return NULL;
}

static void check_results(const struct placed *p, const struct bench *bench, struct reference *r,
                          struct case_run run, const char *where, struct tally *tally)
{
    const struct test_case *c = r->c;
    char why[320] = "";
    double worst = 0.0;
    const char *wrong =
        wanted_results(p) == 0 && c->map->memory != MEMORY_LEFT_OUT ? "no result is compared" : NULL;
    for (int i = 0; i < p->given.n && !wrong; i++) {
        if (is_result(p, i)) {
            double *expected = expected_of(&r->exact, p->given.arg[i].row.name);
            wrong = expected ? judge(p, i, expected, r, run, &worst, why, sizeof why)
                             : "the reference has no such result";
            free(expected);
        }
    }
    case_judged(bench, tally, c, where, worst, wrong);
}

static void check_run(const struct bench *bench, struct reference *r, double *const *value,
                      struct case_run run, struct tally *tally)
{
    const struct test_case *c = r->c;
    char where[64];
    struct placed p;
    lathe_error err;
    const struct side *side = c->deterministic ? &bench->strict : &bench->tested;
    (void)snprintf(where, sizeof where, "%s %s", lathe_dtype_text(run.dtype),
                   c->map->strided ? "strided" : layout_name(run.layout));
    lathe_status status = open_run(&p, side, r->spec, c, value, run, &err);
    for (int again = 0; again < 2 && status == LATHE_OK; again++) {
        status = launch_run(&p, side, again == 1, &err);
    }
    if (status == LATHE_OK) {
        check_results(&p, bench, r, run, where, tally);
    } else if (status == LATHE_UNSUPPORTED && (c->may_refuse || bench->wished) && strlen(err.text) > 10) {
        tally->refused++;
        tally->passed++;
    } else {
        case_fail(tally, c, where, err.text);
    }
    close_run(&p, side);
}

static bool make_values(double **value, const struct test_case *c)
{
    struct map_given given;
    map_arguments(&given, c);
    for (int i = 0; i < given.n; i++) {
        struct tensor t;
        shape_of(&t, &given.arg[i]);
        if (!tensor_is_output(&t)) {
            const bool made = values_of(&t, c);
            value[i] = t.value;
            if (!made) {
                return false;
            }
        }
    }
    return true;
}

/* The values of the reference; numbers that say where something lies have no faults. */
static bool copy_values(struct reference *r, double *const *value, enum fault fault)
{
    struct map_given given;
    map_arguments(&given, r->c);
    for (int i = 0; i < given.n; i++) {
        struct tensor t;
        shape_of(&t, &given.arg[i]);
        const bool exact =
            t.row.role == ROLE_SCALAR || (t.row.fill != FILL_NORMAL && t.row.fill != FILL_UNIFORM);
        if (!value[i]) {
            continue;
        }
        r->value[i] =
            fault_copy(value[i], &t, r->c->sums ? FAULT_SUMS : FAULT_MAP, exact ? FAULT_NONE : fault);
        if (!r->value[i]) {
            return false;
        }
    }
    return true;
}

static void close_reference(struct reference *r)
{
    close_run(&r->exact, r->side);
    for (int s = 0; s < SAMPLES; s++) {
        close_run(&r->moved[s], r->side);
    }
    lathe_spec_destroy(r->spec);
    for (int i = 0; i < CASE_ARGS; i++) {
        free(r->value[i]);
    }
}

void map_check(const struct bench *bench, const struct test_case *c, struct tally *tally)
{
    double *value[CASE_ARGS] = {NULL};
    struct reference r = {.side = &bench->reference, .c = c};
    lathe_error err;
    const char *const name = c->map->spec->name;
    const char *const text = c->sums ? linear_text(name) : NULL;
    lathe_status status = text ? lathe_spec_parse(&r.spec, name, text, strlen(text), &err)
                               : lathe_spec_load(&r.spec, name, &err);
    if (status == LATHE_OK) {
        status = make_values(value, c) && copy_values(&r, value, bench->fault)
                     ? run_reference(&r.exact, &r, r.value, &err)
                     : give_up(&err, LATHE_MEMORY, "out of host memory");
    }
    if (status != LATHE_OK) {
        case_fail(tally, c, "reference", err.text);
    }
    for (int i = 0; i < c->n_runs && status == LATHE_OK; i++) {
        check_run(bench, &r, value, c->run[i], tally);
    }
    close_reference(&r);
    for (int i = 0; i < CASE_ARGS; i++) {
        free(value[i]);
    }
}
