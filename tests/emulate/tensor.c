/*
 * tensor.c: the arguments of a case in memory: shapes, layouts, lists; opened, filled, and handed over.
 *
 * In: an argument of the signature and a case. Out: tensors with their rounded values, and the results of an
 * output. Every byte that is not an element is poison, in inputs too. The caller closes what it opened.
 * tensor_values.c says which values.
 */
#include "draw.h"
#include "tensor_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- elements -------------------------------------------------------------------------------------- */

static int64_t element_place(const struct tensor *t, int64_t flat)
{
    int64_t i = 0;
    while (flat >= tensor_list_length(i))
        flat -= tensor_list_length(i++);
    return t->start[i] + flat;
}

/* From the start of its block. */
int64_t tensor_place(const struct tensor *t, int64_t flat)
{
    int64_t at = t->offset;
    if (t->list)
        return element_place(t, flat);
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += flat % t->shape[d] * t->strides[d];
        flat /= t->shape[d];
    }
    return at;
}

/* Elements in their order: `at` is tensor_place of one after the other, without its divisions. */
struct walk {
    int64_t index[MAX_DIMS];
    int64_t flat;
    int64_t at;
};

static struct walk walk_begin(const struct tensor *t)
{
    return (struct walk){.at = t->list && t->count > 0 ? element_place(t, 0) : t->offset};
}

static void walk_on(const struct tensor *t, struct walk *w)
{
    w->flat++;
    if (t->list) {
        w->at = w->flat < t->count ? element_place(t, w->flat) : 0;
        return;
    }
    for (int d = t->ndim - 1; d >= 0; d--) {
        w->at += t->strides[d];
        if (++w->index[d] < t->shape[d])
            return;
        w->at -= t->shape[d] * t->strides[d];
        w->index[d] = 0;
    }
}

void tensor_store(struct tensor *t)
{
    for (struct walk w = walk_begin(t); w.flat < t->count; walk_on(t, &w)) {
        dtype_store(t->dtype, t->block.data, w.at, t->value[w.flat]);
        t->value[w.flat] = dtype_load(t->dtype, t->block.data, w.at);
    }
}

/* Elements of one place are what came there last. */
static void read_back(struct tensor *t)
{
    for (struct walk w = walk_begin(t); w.flat < t->count; walk_on(t, &w))
        t->value[w.flat] = dtype_load(t->dtype, t->block.data, w.at);
}

/* The element, as any dtype of the test holds it exactly: rounded to the narrowest, bf16 with f16's range. */
static void make_values(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    const bool asked = tensor_may_be_unused(t, c);
    bool unused = false;
    for (struct walk w = walk_begin(t); w.flat < t->count; walk_on(t, &w)) {
        if (asked && w.flat % t->shape[3] == 0)
            unused = tensor_is_unused(t, c, w.flat);
        dtype_store(t->dtype, t->block.data, w.at,
                    unused ? (double)NAN : tensor_element(t, c, w.flat, &state));
    }
    read_back(t);
}

void tensor_fill(struct tensor *t, const double *value)
{
    void *const data = t->block.data ? (void *)t->block.data : &t->scalar;
    for (struct walk w = walk_begin(t); w.flat < t->count; walk_on(t, &w)) {
        dtype_store(t->dtype, data, w.at, value[w.flat]);
        t->value[w.flat] = dtype_load(t->dtype, data, w.at);
    }
}

/* ---- layout ---------------------------------------------------------------------------------------- */

static void set_shape(struct tensor *t, const struct sig_arg *a, const struct test_case *c)
{
    const int skip = !a->leading_optional ? 0 : c->sizes ? c->leading : 3 - c->leading;
    t->ndim = a->ndim - skip;
    t->count = 1;
    for (int i = 0; i < t->ndim; i++) {
        const struct problem here = {.paged = case_has_pages(c),
                                     .cut_keys = c->dim[SYM_ALL_KV] >= 0,
                                     .cut_heads = c->dim[SYM_ALL_H] >= 0};
        const struct sig_dim d = lathe__dim_here(&here, a->dim[i + skip]);
        t->shape[i] = d.sym == SYM_ONE ? (d.literal > 0 ? d.literal : 1) : c->dim[d.sym];
        t->shape[i] = t->shape[i] * lathe__times(d) + d.plus;
        t->count *= t->shape[i];
    }
}

static int64_t padding(const struct tensor *t, const struct sig_arg *a, enum layout layout, uint64_t *state)
{
    const int64_t size = (int64_t)lathe_dtype_size(t->dtype);
    if (layout == LAYOUT_MISALIGNED)
        return between(state, 0, 2) * 2 + 1;
    const bool aligned = a->dtype == LATHE_NONE || tensor_is(t, "part_o") || tensor_is(t, "merged_o");
    return aligned ? 16 / size * between(state, 1, 3) : between(state, 1, 3);
}

/* On Hopper sequences lie whole tokens apart: others have another kernel. */
static bool has_whole_tokens(const struct test_case *c)
{
    return c->template_name && strcmp(c->template_name, "attention_fwd_sm90") == 0 && c->dim[SYM_SEQS] > 0;
}

/* Strides from the innermost dim outwards; SWAPPED exchanges dims 1 and 2, which are heads and tokens. */
static int64_t lay_out(struct tensor *t, const struct sig_arg *a, const struct test_case *c, uint64_t *state)
{
    const bool padded = c->layout == LAYOUT_PADDED || c->layout == LAYOUT_MISALIGNED;
    const bool dense = a->unit_last || t->ndim == 0 || (c->sizes && c->layout == LAYOUT_PADDED);
    const bool spread = c->layout == LAYOUT_SPREAD && a->any_last;
    const bool still = spread && strcmp(t->name, "do") == 0;
    int64_t stride = padded && !dense ? between(state, 1, 2) : spread ? 3 : 1;
    int64_t reach = t->count > 0 ? 1 : 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const bool swap = c->layout == LAYOUT_SWAPPED && t->ndim >= 3 && (i == 1 || i == 2);
        const int dim = swap ? 3 - i : i;
        t->strides[dim] = still ? 0 : stride;
        reach += t->count > 0 ? (t->shape[dim] - 1) * t->strides[dim] : 0;
        stride *= still ? 1 : t->shape[dim] > 0 ? t->shape[dim] : 1;
        stride += padded && i > 0 ? padding(t, a, c->layout, state) : 0;
        if (i == 1 && a->unit_last && t->ndim == 4 && has_whole_tokens(c))
            stride = (stride + t->strides[2] - 1) / t->strides[2] * t->strides[2];
    }
    t->offset = padded ? padding(t, a, c->layout, state) : 0;
    return t->offset + reach;
}

/* ---- lists ------------------------------------------------------------------------------------------- */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Every tensor of the list starts at 16 bytes, or anywhere, and is followed by poison. */
static bool open_list(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    const int64_t n = t->shape[0];
    const int64_t vector = 16 / (int64_t)lathe_dtype_size(t->dtype);
    int64_t at = 0;
    t->list = true;
    t->count = 0;
    t->start = calloc((size_t)n + 1, sizeof *t->start);
    t->reference = calloc((size_t)n + 1, sizeof *t->reference);
    for (int64_t i = 0; i < n && t->start; i++) {
        at += c->layout == LAYOUT_MISALIGNED ? between(&state, 1, 3) : vector;
        t->start[i] = at;
        t->count += tensor_list_length(i);
        at = (int64_t)round_up((size_t)(at + tensor_list_length(i)), (size_t)vector);
    }
    t->value = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *t->value);
    if (!t->start || !t->reference || !t->value ||
        !block_open(&t->block, (size_t)at * lathe_dtype_size(t->dtype), 16) ||
        !block_open(&t->pointers, (size_t)n * sizeof(void *), 16))
        return false;
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++) {
        void *data = t->block.data + (size_t)t->start[i] * lathe_dtype_size(t->dtype);
        memcpy(t->pointers.data + (size_t)i * sizeof data, (const void *)&data, sizeof data);
        t->reference[i] = (unsigned char *)t->value + (size_t)before * lathe_dtype_size(t->expects);
        before += tensor_list_length(i);
    }
    return true;
}

static lathe_dtype named_dtype(const char *dtypes, const char *name)
{
    char item[NAME_MAX_BYTES + 8];
    for (int d = LATHE_F32; d <= LATHE_I8; d++) {
        snprintf(item, sizeof item, "%s=%s", name, lathe_dtype_text((lathe_dtype)d));
        const char *at = strstr(dtypes, item);
        if (at && (at == dtypes || at[-1] == ','))
            return (lathe_dtype)d;
    }
    return LATHE_NONE;
}

/* Where queries, keys and heads stand among all. */
static double place_value(const struct tensor *t, const struct test_case *c)
{
    return (double)(tensor_is(t, "q_start")    ? c->q_start
                    : tensor_is(t, "kv_start") ? c->kv_start
                    : tensor_is(t, "kv_chunk") ? c->kv_chunk
                    : tensor_is(t, "kv_step")  ? c->kv_step
                    : tensor_is(t, "h_start")  ? c->h_start
                    : tensor_is(t, "len_kv")   ? c->dim[SYM_ALL_KV]
                                               : c->dim[SYM_ALL_H]);
}

static bool open_scalar(struct tensor *t, const struct test_case *c, uint64_t seed)
{
    uint64_t state = seed;
    t->value = calloc(1, sizeof *t->value);
    if (!t->value)
        return false;
    const double value = t->role < ROLE_Q_START ? tensor_input(t, c, 0, &state) : place_value(t, c);
    dtype_store(t->dtype, &t->scalar, 0, value);
    t->value[0] = dtype_load(t->dtype, &t->scalar, 0);
    t->count = 1;
    return true;
}

bool tensor_is_output(const struct tensor *t)
{
    return t->role == ROLE_OUT || t->role == ROLE_OUT_OPTIONAL || t->in_place;
}

/* Of integers and of 16 bits, where the spec fixes them, the host device takes no f64 in their place. */
static lathe_dtype expected_dtype(const struct sig_arg *a)
{
    const lathe_dtype dtype = (lathe_dtype)a->dtype;
    return dtype == LATHE_NONE || dtype == LATHE_F32 ? LATHE_F64 : dtype;
}

bool tensor_open(struct tensor *t, const struct signature *sig, int arg, const struct test_case *c,
                 uint64_t seed)
{
    const struct sig_arg *a = &sig->arg[arg];
    uint64_t state = seed ^ 0x5eedu;
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", a->name);
    t->role = a->role;
    t->by_rows = c->sizes != NULL || c->dim[SYM_T] >= 0 || tensor_is(t, "part_o") || tensor_is(t, "merged_o");
    t->dtype = a->dtype == LATHE_NONE ? c->dtype : (lathe_dtype)a->dtype;
    if (a->role == ROLE_INPUT && a->dtype == LATHE_NONE && c->layout == LAYOUT_SWAPPED)
        t->dtype = LATHE_F32; /* an input whose dtype is open may also be wider than the problem's */
    const lathe_dtype own = c->dtypes ? named_dtype(c->dtypes, t->name) : LATHE_NONE;
    t->dtype = own != LATHE_NONE ? own : t->dtype;
    t->expects = expected_dtype(a);
    if (lathe__is_host_value(a))
        return open_scalar(t, c, seed);
    set_shape(t, a, c);
    if (a->list) {
        const bool opened = open_list(t, c, state);
        if (opened && !tensor_is_output(t))
            make_values(t, c, seed);
        return opened;
    }
    const int64_t span = lay_out(t, a, c, &state);
    t->value = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *t->value);
    if (!t->value || !block_open(&t->block, (size_t)span * lathe_dtype_size(t->dtype), 16))
        return false;
    if (!tensor_is_output(t))
        make_values(t, c, seed);
    return true;
}

void tensor_close(struct tensor *t)
{
    block_close(&t->block);
    block_close(&t->pointers);
    free(t->start);
    free(t->reference);
    free(t->value);
    memset(t, 0, sizeof *t);
}

/* ---- as arguments ---------------------------------------------------------------------------------- */

lathe_arg tensor_arg(const struct tensor *t)
{
    if (!t->block.data)
        return (lathe_arg){t->name, (void *)(uintptr_t)&t->scalar, t->dtype, 0, NULL, NULL};
    if (t->list)
        return (lathe_arg){t->name, t->pointers.data, t->dtype, t->ndim, t->shape, NULL};
    unsigned char *first = t->block.data + (size_t)t->offset * lathe_dtype_size(t->dtype);
    return (lathe_arg){t->name, first, t->dtype, t->ndim, t->shape, t->strides};
}

lathe_arg tensor_reference(const struct tensor *t, const struct sig_arg *a)
{
    const bool fixed = t->expects != LATHE_F64 || (a->role == ROLE_INPUT && a->dtype != LATHE_NONE);
    if (!t->block.data || (fixed && !tensor_is_output(t)))
        return tensor_arg(t);
    if (t->list)
        return (lathe_arg){t->name, t->reference, t->expects, t->ndim, t->shape, NULL};
    return (lathe_arg){t->name, t->value, t->expects, t->ndim, t->shape, NULL};
}

void tensor_widen(struct tensor *t)
{
    if (!tensor_is_output(t) || t->expects == LATHE_F64)
        return;
    for (int64_t i = t->count - 1; i >= 0; i--)
        t->value[i] = dtype_load(t->expects, t->value, i);
}
