/*
 * sequences.c: a call with packed sequences, or with batches of which not all keys are in use, as one call
 * for each sequence. In: a bound call. Out: calls whose tensors are parts of its tensors; the lists of places
 * are owned by struct sequences.
 */
#include "gen/attention/sequences.h"
#include "gen/ir/tensor.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------- */

static int64_t integer(const lathe_arg *arg, int64_t i)
{
    return (int64_t)dtype_load(arg->dtype, arg->data, i * tensor_stride(arg, 0));
}

static lathe_status take_places(const struct sequences *s, const char *name, const char *size, int64_t tokens,
                                int64_t *first, lathe_error *err)
{
    const lathe_arg *cu = host_arg(s->call, name);
    for (int64_t i = 0; i <= s->n; i++) {
        first[i] = integer(cu, i);
        if (i == 0 && first[0] != 0)
            return lathe__fail(err, LATHE_ARG, "argument '%s': expected it to begin at 0, given %lld", name,
                               (long long)first[0]);
        if (i > 0 && first[i] < first[i - 1])
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected places that do not fall, given %lld behind %lld "
                               "(sequence %lld)",
                               name, (long long)first[i], (long long)first[i - 1], (long long)i - 1);
    }
    if (first[s->n] != tokens)
        return lathe__fail(err, LATHE_ARG, "argument '%s': expected it to end at %s=%lld, given %lld%s", name,
                           size, (long long)tokens, (long long)first[s->n],
                           host_arg(s->call, "cu_kv") || strcmp(size, "kv") != 0
                               ? ""
                               : "; give 'cu_kv' where keys lie at places of their own");
    return LATHE_OK;
}

static void count_batches(const struct sequences *s)
{
    for (int64_t i = 0; i <= s->n; i++) {
        s->first[i] = i * host_dim(s->call, SYM_Q);
        s->first[s->n + 1 + i] = i * host_dim(s->call, SYM_KV);
    }
}

static lathe_status take_lengths(const struct sequences *s, lathe_error *err)
{
    const lathe_arg *used = host_arg(s->call, "used_kv");
    const int64_t *first = s->first + s->n + 1;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t room = s->pages ? host_dim(s->call, SYM_KV) : first[i + 1] - first[i];
        s->length[i] = used ? integer(used, i) : room;
        if (s->length[i] < 0 || s->length[i] > room)
            return lathe__fail(
                err, LATHE_ARG,
                "argument 'used_kv': expected lengths from 0 to the %lld keys of sequence %lld, "
                "given %lld",
                (long long)room, (long long)i, (long long)s->length[i]);
    }
    return LATHE_OK;
}

/* Every page that a key in use lies in, which has to be one of the pool. Each entry is read once: the table
   may be written while the call runs. */
static lathe_status take_pages(struct sequences *s, lathe_error *err)
{
    const lathe_arg *list = host_arg(s->call, "pages");
    const int64_t page = host_dim(s->call, SYM_PAGE);
    const int64_t pool = host_dim(s->call, SYM_POOL);
    const int64_t most = host_dim(s->call, SYM_MOST);
    s->page = calloc((size_t)(s->n * most) + 1, sizeof *s->page);
    if (!s->page)
        return host_out_of_memory(err);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t first = 0; first < s->length[i]; first += page) {
            const int64_t at = i * tensor_stride(list, 0) + first / page * tensor_stride(list, 1);
            const int64_t number = (int64_t)dtype_load(list->dtype, list->data, at);
            const int64_t end = first + page < s->length[i] ? first + page : s->length[i];
            s->page[i * most + first / page] = number;
            if (number < 0 || number >= pool)
                return lathe__fail(err, LATHE_ARG,
                                   "argument 'pages': expected pages from 0 to %lld, given %lld for keys "
                                   "%lld to %lld of sequence %lld",
                                   (long long)pool - 1, (long long)number, (long long)first,
                                   (long long)end - 1, (long long)i);
        }
    return LATHE_OK;
}

bool sequences_given(const struct host_call *call)
{
    return host_arg(call, "cu_q") || host_arg(call, "used_kv") || host_arg(call, "pages");
}

lathe_status sequences_open(struct sequences *s, const struct host_call *call, lathe_error *err)
{
    *s = (struct sequences){.call = call,
                            .packed = host_arg(call, "cu_q") != NULL,
                            .pages = call->problem.paged,
                            .n = host_dim(call, SYM_SEQS)};
    const size_t n = (size_t)s->n + 1;
    s->first = calloc(2 * n, sizeof *s->first);
    s->length = calloc(n, sizeof *s->length);
    if (!s->first || !s->length)
        return host_out_of_memory(err);
    const char *keys = host_arg(call, "cu_kv") ? "cu_kv" : "cu_q";
    lathe_status status = LATHE_OK;
    if (s->packed)
        status = take_places(s, "cu_q", "q", host_dim(call, SYM_Q), s->first, err);
    if (s->packed && !s->pages && status == LATHE_OK)
        status = take_places(s, keys, "kv", host_dim(call, SYM_KV), s->first + n, err);
    if (!s->packed)
        count_batches(s);
    if (status == LATHE_OK)
        status = take_lengths(s, err);
    return status == LATHE_OK && s->pages ? take_pages(s, err) : status;
}

void sequences_close(struct sequences *s)
{
    free(s->first);
    free(s->length);
    free(s->page);
}

static int64_t sequence_queries(const struct sequences *s, int64_t i)
{
    return s->first[i + 1] - s->first[i];
}

int64_t sequence_of_row(const struct sequences *s, int64_t flat)
{
    const int64_t tokens = host_dim(s->call, SYM_Q);
    if (!s->packed)
        return flat / tokens / host_dim(s->call, SYM_H);
    int64_t low = 0;
    int64_t high = s->n - 1; /* the last one that begins at the row or before: empty ones begin there, too */
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (s->first[middle] <= flat % tokens)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* ---- a sequence as a call ----------------------------------------------------------------------------- */

/* Sequence i of a tensor: from its first token on, as many as it has. Elements are `bytes` large. What is
   read by at.b has all sequences' number of batches, at one place. */
static void cut(const struct sequences *s, int64_t i, const struct sig_arg *a, size_t bytes, lathe_arg *t,
                int64_t *shape, int64_t *stride)
{
    const int64_t *keys = s->first + s->n + 1;
    const bool batches = !s->packed;
    const struct problem *const p = &s->call->problem;
    int64_t skip = 0;
    for (int d = 0; d < t->ndim; d++) {
        shape[d] = t->shape[d];
        stride[d] = tensor_stride(t, d);
    }
    for (int d = 0; d < t->ndim; d++) {
        const struct sig_dim dim = lathe__dim_here(p, a->dim[d]);
        if (lathe__dim_is(a->dim[d], SYM_B) && (lathe__dim_is(dim, SYM_B) || lathe__dim_is(dim, SYM_SEQS))) {
            skip += batches || dim.sym == SYM_SEQS ? i * stride[d] : 0;
            shape[d] = s->n;
            stride[d] = 0;
        } else if (lathe__dim_is(dim, SYM_Q)) {
            skip += batches ? 0 : s->first[i] * stride[d];
            shape[d] = sequence_queries(s, i);
        } else if (lathe__dim_is(dim, SYM_KV)) {
            skip += batches ? 0 : keys[i] * stride[d];
            shape[d] = s->length[i];
        }
    }
    t->data = t->data ? (char *)t->data + skip * (int64_t)bytes : NULL;
    t->shape = shape;
    t->strides = stride;
}

static void take_arguments(struct sequence *out, const struct sequences *s, int64_t i)
{
    const struct signature *sig = s->call->sig;
    for (int k = 0; k < sig->n_args; k++) {
        if (!out->call.arg[k])
            continue;
        out->arg[k] = *out->call.arg[k];
        out->call.arg[k] = &out->arg[k];
        cut(s, i, &sig->arg[k], lathe_dtype_size(out->arg[k].dtype), &out->arg[k], out->shape[k],
            out->stride[k]);
    }
    for (int k = 0; k < out->call.ir->n_inputs; k++)
        out->call.input[k] = host_arg(&out->call, out->call.ir->input[k].name);
}

void sequence_enter(struct sequence *out, const struct sequences *s, int64_t i)
{
    const int64_t rows = host_dim(s->call, SYM_Q);
    out->call = *s->call;
    struct host_call *call = &out->call;
    call->problem.dim[SYM_B] = s->n; /* at.n_b */
    call->problem.dim[SYM_Q] = sequence_queries(s, i);
    call->problem.dim[SYM_KV] = s->length[i];
    call->sequence = i;
    call->page = s->page ? s->page + i * host_dim(s->call, SYM_MOST) : NULL;
    call->first_row = s->packed ? s->first[i] : i * host_dim(s->call, SYM_H) * rows;
    call->head_rows = rows;
    if (!host_arg(s->call, "q_start"))
        call->q_start = s->length[i] - sequence_queries(s, i);
    take_arguments(out, s, i);
}

void sequence_gradients(struct host_gradient *g, const struct sequences *s, int64_t i)
{
    for (int k = 0; k < g->ir->n_inputs; k++) {
        struct host_input_gradient *to = &g->input[k];
        char name[NAME_MAX_BYTES + 2];
        if (!to->sum)
            continue;
        snprintf(name, sizeof name, "d%s", g->ir->input[k].name);
        to->part = *to->out;
        to->part.strides = NULL; /* sums are compact */
        to->part.data = to->sum;
        cut(s, i, &g->call.sig->arg[lathe__arg_find(g->call.sig, name, 0)], sizeof *to->sum, &to->part,
            to->part_shape, to->part_stride);
    }
}
