/*
 * lists.c: one case of lists of tensors from values to verdict.
 *
 * In: a bench and a case. Out: a tally; all memory is freed here. Each argument is one allocation that holds
 * its tensors with poison between them, in the order of the list; what the library gets is an array of
 * pointers into it. Compared is the list as one long tensor, and every byte between its tensors. What is
 * rounded at random has a reference in the dtype of the run, and all but a few elements must have the same
 * bits.
 */
#include "maps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 24 }; /* elements of poison between tensors, at least */

struct column {          /* one argument */
    struct tensor flat;  /* all its tensors as one, compact; of a result: what came back */
    int64_t *start;      /* in the slab, by tensor */
    int64_t span;        /* elements of the slab */
    unsigned char *slab; /* as the device sees it at first; of a result: after the launch */
    unsigned char *again;
    void *memory;   /* the slab in device memory */
    void *pointers; /* the array, in device memory */
};

struct listed { /* the arguments of one run */
    const struct map_arg *arg[MAP_ARGS];
    struct column column[MAP_ARGS];
    int home[MAP_ARGS];
    bool passed[MAP_ARGS];
    int n_columns;
    int64_t tensors;
    int32_t *length;
    void *lengths; /* in device memory */
    int32_t seed;
    lathe_arg given[MAP_ARGS + 2];
    int n;
    lathe_kernel *kernel;
    void *workspace;
    size_t workspace_size;
};

/* ---- layout ---------------------------------------------------------------------------------------- */

/* Empty ones, parts of a vector, of a tile, several tiles. */
static int32_t length_of(int64_t i)
{
    static const int32_t LENGTH[] = {257, 0, 1, 2048, 5, 8192, 8193, 4097, 0, 64, 31, 33, 1025};
    return i == 7 ? 65537 : LENGTH[i % 13];
}

static bool is_list(const struct column *c)
{
    return c->flat.row.role != ROLE_SCALAR;
}

static size_t slab_bytes(const struct column *c)
{
    return (size_t)c->span * lathe_dtype_size(c->flat.dtype);
}

static bool lay_out(struct column *c, const struct listed *l, bool ragged)
{
    const int64_t grain = 16 / (int64_t)lathe_dtype_size(c->flat.dtype);
    int64_t at = GAP;
    c->start = calloc((size_t)l->tensors + 1, sizeof *c->start);
    if (!c->start) {
        return false;
    }
    for (int64_t i = 0; i < l->tensors; i++) {
        at = (at + grain - 1) / grain * grain;
        at += ragged && i % 3 != 0 ? i % 3 : 0;
        c->start[i] = at;
        at += l->length[i] + GAP;
    }
    c->span = at;
    c->slab = malloc(slab_bytes(c));
    c->again = malloc(slab_bytes(c));
    if (c->slab && c->again) {
        memset(c->slab, 0xFF, slab_bytes(c));
    }
    return c->slab && c->again;
}

/* Between the slab and the compact tensor. */
static void exchange(struct column *c, const struct listed *l, bool to_slab)
{
    const size_t element = lathe_dtype_size(c->flat.dtype);
    unsigned char *flat = c->flat.bytes;
    for (int64_t i = 0; i < l->tensors; i++) {
        const size_t size = (size_t)l->length[i] * element;
        unsigned char *at = c->slab + (size_t)c->start[i] * element;
        memcpy(to_slab ? at : flat, to_slab ? flat : at, size);
        flat += size;
    }
}

static bool gaps_are_poison(const struct column *c, const struct listed *l)
{
    const size_t element = lathe_dtype_size(c->flat.dtype);
    size_t at = 0;
    for (int64_t i = 0; i <= l->tensors; i++) {
        const size_t end = i < l->tensors ? (size_t)c->start[i] * element : slab_bytes(c);
        for (; at < end; at++) {
            if (c->slab[at] != 0xFF) {
                return false;
            }
        }
        at += i < l->tensors ? (size_t)l->length[i] * element : 0;
    }
    return true;
}

/* ---- one run ------------------------------------------------------------------------------------- */

static int column_of(const struct listed *l, const char *name)
{
    for (int i = 0; i < l->n_columns && name; i++) {
        if (strcmp(l->arg[i]->row.name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static lathe_dtype dtype_of(const struct listed *l, int i, const struct test_case *c, struct case_run run)
{
    const int home = column_of(l, l->arg[i]->alias);
    const struct map_arg *arg = home >= 0 ? l->arg[home] : l->arg[i];
    const bool moment = c->map->mixed && run.dtype != LATHE_F64 && arg->row.dtype == LATHE_NONE;
    return moment && (arg->row.name[0] == 'm' || arg->row.name[0] == 's') ? LATHE_F32
                                                                          : map_dtype(arg, 0, c, run);
}

static void decide(struct listed *l, const struct test_case *c, struct case_run run, enum memory memory)
{
    for (const struct map_arg *arg = c->map->spec->arg; arg->row.name[0]; arg++) {
        l->arg[l->n_columns++] = arg;
    }
    for (int i = 0; i < l->n_columns; i++) {
        struct tensor *t = &l->column[i].flat;
        const int home = memory == MEMORY_APART ? -1 : column_of(l, l->arg[i]->alias);
        t->row = l->arg[i]->row;
        t->ndim = t->row.role == ROLE_SCALAR ? 0 : 1;
        t->dtype = t->row.role == ROLE_SCALAR ? t->row.dtype : dtype_of(l, i, c, run);
        t->count = 1;
        for (int64_t k = 0; k < l->tensors && t->ndim; k++) {
            t->count += l->length[k];
        }
        t->count -= t->ndim;
        t->shape[0] = t->count;
        t->strides[0] = 1;
        t->span = t->count;
        t->given = true;
        l->home[i] = home >= 0 ? home : i;
        l->passed[i] = !(c->absent && t->row.optional) && (home < 0 || memory == MEMORY_SAME);
    }
}

static bool place_column(struct listed *l, int i, const struct side *side, const struct test_case *c,
                         bool ragged)
{
    struct column *column = &l->column[i];
    struct tensor *t = &column->flat;
    if ((!tensor_is_output(t) && !tensor_values(t, c)) || !tensor_pack(t)) {
        return false;
    }
    if (!is_list(column)) {
        return true;
    }
    if (!lay_out(column, l, ragged)) {
        return false;
    }
    if (!tensor_is_output(t)) {
        exchange(column, l, true);
    }
    column->memory =
        l->home[i] == i ? device_alloc(side->device, slab_bytes(column)) : l->column[l->home[i]].memory;
    column->pointers = device_alloc(side->device, (size_t)(l->tensors + 1) * sizeof(void *));
    void **pointer = calloc((size_t)l->tensors + 1, sizeof *pointer);
    bool good = pointer && column->memory && column->pointers;
    for (int64_t k = 0; k < l->tensors && good; k++) {
        pointer[k] = (unsigned char *)column->memory + column->start[k] * (int64_t)lathe_dtype_size(t->dtype);
    }
    good =
        good && device_upload(side->device, column->pointers, pointer, (size_t)l->tensors * sizeof *pointer);
    free(pointer);
    return good;
}

static bool place(struct listed *l, const struct side *side, const struct test_case *c, struct case_run run)
{
    bool good = true;
    for (int i = 0; i < l->n_columns && good; i++) {
        struct tensor *t = &l->column[i].flat;
        good = place_column(l, i, side, c, run.layout == LAYOUT_MISALIGNED);
        if (good && l->passed[i]) {
            l->given[l->n++] = (lathe_arg){t->row.name,
                                           t->ndim ? l->column[i].pointers : (void *)t->bytes,
                                           t->dtype,
                                           t->ndim,
                                           t->ndim ? &l->tensors : NULL,
                                           NULL};
        }
    }
    l->lengths = device_alloc(side->device, (size_t)(l->tensors + 1) * sizeof *l->length);
    good = good && l->lengths &&
           device_upload(side->device, l->lengths, l->length, (size_t)l->tensors * sizeof *l->length);
    l->given[l->n++] = (lathe_arg){"lengths", l->lengths, LATHE_I32, 1, &l->tensors, NULL};
    l->seed = 7;
    if (c->map->dithered) {
        l->given[l->n++] = (lathe_arg){"seed", &l->seed, LATHE_I32, 0, NULL, NULL};
    }
    return good;
}

static lathe_status give_up(lathe_error *err, const char *what)
{
    err->status = LATHE_MEMORY;
    (void)snprintf(err->text, sizeof err->text, "%s", what);
    return LATHE_MEMORY;
}

static lathe_status open_run(struct listed *l, const struct side *side, lathe_spec *spec,
                             const struct test_case *c, struct case_run run, enum memory memory,
                             lathe_error *err)
{
    memset(l, 0, sizeof *l);
    memset(err, 0, sizeof *err);
    l->tensors = c->map->tensors;
    l->length = calloc((size_t)l->tensors + 1, sizeof *l->length);
    if (!l->length) {
        return give_up(err, "out of host memory");
    }
    for (int64_t i = 0; i < l->tensors; i++) {
        l->length[i] = length_of(i);
    }
    decide(l, c, run, memory);
    if (!place(l, side, c, run)) {
        return give_up(err, "no memory for the tensors");
    }
    lathe_status status = lathe_kernel_get(&l->kernel, side->ctx, spec, LATHE_FORWARD, l->given, l->n, err);
    if (status == LATHE_OK) {
        status = lathe_workspace_size(&l->workspace_size, l->kernel, l->given, l->n, err);
    }
    if (status == LATHE_OK && l->workspace_size > 0) {
        l->workspace = device_alloc(side->device, l->workspace_size);
        status = l->workspace ? LATHE_OK : give_up(err, "no memory for the workspace");
    }
    return status;
}

static lathe_status launch_run(struct listed *l, const struct side *side, bool again, lathe_error *err)
{
    bool good = l->workspace_size == 0 || device_fill(side->device, l->workspace, 0xFF, l->workspace_size);
    for (int i = 0; i < l->n_columns && good; i++) {
        struct column *c = &l->column[i];
        if (is_list(c) && l->home[i] == i) {
            good = tensor_is_output(&c->flat)
                       ? device_fill(side->device, c->memory, 0xFF, slab_bytes(c))
                       : device_upload(side->device, c->memory, c->slab, slab_bytes(c));
        }
    }
    lathe_status status = good ? lathe_launch(l->kernel, l->given, l->n, l->workspace, side->stream, err)
                               : give_up(err, device_error());
    if (status == LATHE_OK && !device_sync(side->device, side->stream)) {
        status = give_up(err, device_error());
    }
    for (int i = 0; i < l->n_columns && status == LATHE_OK; i++) {
        struct column *c = &l->column[i];
        if (tensor_is_output(&c->flat) &&
            !device_download(side->device, again ? c->again : c->slab, c->memory, slab_bytes(c))) {
            status = give_up(err, device_error());
        }
    }
    return status;
}

static void close_run(struct listed *l, const struct side *side)
{
    for (int i = 0; i < l->n_columns; i++) {
        struct column *c = &l->column[i];
        if (l->home[i] == i) {
            device_free(side->device, c->memory);
        }
        device_free(side->device, c->pointers);
        free(c->start);
        free(c->slab);
        free(c->again);
        free(c->flat.value);
        free(c->flat.bytes);
        free(c->flat.again);
    }
    device_free(side->device, l->lengths);
    device_free(side->device, l->workspace);
    free(l->length);
    lathe_kernel_release(l->kernel);
}

/* ---- verdicts ------------------------------------------------------------------------------------ */

/* Elements whose bits differ from those of a reference of the same dtype, as a share. */
static double differing(const struct tensor *t, const struct tensor *expected)
{
    const size_t element = lathe_dtype_size(t->dtype);
    int64_t n = 0;
    for (int64_t i = 0; i < t->count; i++) {
        n += memcmp(t->bytes + (size_t)i * element, expected->bytes + (size_t)i * element, element) != 0;
    }
    return t->count > 0 ? (double)n / (double)t->count : 0.0;
}

static const char *judge(struct listed *l, int i, const struct listed *reference, const struct test_case *c,
                         struct case_run run, struct tally *tally, char *why, size_t size)
{
    struct column *column = &l->column[i];
    const struct tensor *of = &reference->column[i].flat;
    const bool narrow = lathe_dtype_size(column->flat.dtype) == 2;
    struct test_case one = *c;
    one.run[0] = run;
    exchange(column, l, false);
    double *expected = calloc((size_t)of->count + 1, sizeof *expected);
    for (int64_t k = 0; expected && k < of->count; k++) {
        expected[k] = dtype_get(of->dtype, of->bytes, k);
    }
    const char *wrong = expected ? result_compare(&column->flat, expected, &(const struct spread){0}, &one,
                                                  &tally->worst, why, size)
                                 : "out of host memory";
    free(expected);
    if (!wrong && c->map->dithered && narrow && differing(&column->flat, of) > 0.01) {
        (void)snprintf(why, size, "%s: %.1f %% of the elements are rounded otherwise than on the host device",
                       column->flat.row.name, 100.0 * differing(&column->flat, of));
        return why;
    }
    if (!wrong && !gaps_are_poison(column, l)) {
        (void)snprintf(why, size, "%s: bytes between its tensors were overwritten", column->flat.row.name);
        return why;
    }
    if (!wrong && memcmp(column->slab, column->again, slab_bytes(column)) != 0) {
        (void)snprintf(why, size, "%s: a second launch gave other bits", column->flat.row.name);
        return why;
    }
    return wrong;
}

static void check_run(const struct bench *bench, const struct test_case *c, lathe_spec *spec,
                      struct case_run run, struct tally *tally)
{
    char where[64];
    char why[320] = "";
    struct listed reference;
    struct listed l;
    lathe_error err;
    const char *wrong = NULL;
    const struct case_run exact = {c->map->dithered ? run.dtype : LATHE_F64, LAYOUT_COMPACT};
    memset(&l, 0, sizeof l);
    (void)snprintf(where, sizeof where, "%s %s", lathe_dtype_text(run.dtype), layout_name(run.layout));
    lathe_status status = open_run(&reference, &bench->reference, spec, c, exact, MEMORY_APART, &err);
    if (status == LATHE_OK) {
        status = launch_run(&reference, &bench->reference, false, &err);
    }
    if (status == LATHE_OK) {
        status = open_run(&l, &bench->tested, spec, c, run, c->map->memory, &err);
    }
    for (int again = 0; again < 2 && status == LATHE_OK; again++) {
        status = launch_run(&l, &bench->tested, again == 1, &err);
    }
    for (int i = 0; i < l.n_columns && status == LATHE_OK && !wrong; i++) {
        if (tensor_is_output(&l.column[i].flat)) {
            exchange(&reference.column[i], &reference, false);
            wrong = judge(&l, i, &reference, c, run, tally, why, sizeof why);
        }
    }
    if (status != LATHE_OK || wrong) {
        case_fail(tally, c, where, wrong ? wrong : err.text);
    } else {
        tally->passed++;
    }
    close_run(&l, &bench->tested);
    close_run(&reference, &bench->reference);
}

void list_check(const struct bench *bench, const struct test_case *c, struct tally *tally)
{
    lathe_error err;
    lathe_spec *spec = NULL;
    if (lathe_spec_load(&spec, c->map->spec->name, &err) != LATHE_OK) {
        case_fail(tally, c, "spec", err.text);
        return;
    }
    for (int i = 0; i < c->n_runs; i++) {
        check_run(bench, c, spec, c->run[i], tally);
    }
    lathe_spec_destroy(spec);
}
