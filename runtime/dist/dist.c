/*
 * dist.c: objects that compute one problem over several ranks. In: a spec, options, the arguments of a rank.
 * Out: a scheme that serves them, its kernels and its buffers; launches. A rank that fails says so to the
 * others.
 */
#include "runtime/dist/dist.h"
#include "runtime/dist/choose.h"
#include "runtime/driver/driver.h"
#include "runtime/jit/jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what it is made of -----------------------------------------------------------------------------------
 */

static lathe_status keep_arguments(struct lathe_dist *d, const lathe_arg *args, int n, lathe_error *err)
{
    if (n < 0 || n > MOST_IN_CALL || (n > 0 && !args))
        return lathe__fail(err, LATHE_ARG, "dist: args: expected 0 to %d arguments, given %d", MOST_IN_CALL,
                           n);
    for (int i = 0; i < n; i++) {
        if (!args[i].name || args[i].ndim < 0 || args[i].ndim > LATHE_MAX_DIMS ||
            (args[i].ndim > 0 && !args[i].shape))
            return lathe__fail(err, LATHE_ARG,
                               "dist: argument %d: expected a name and a shape of at most %d dims, given %s",
                               i, LATHE_MAX_DIMS, args[i].name ? args[i].name : "NULL");
        d->arg[i] = (struct tensor){.name = args[i].name, .dtype = args[i].dtype, .ndim = args[i].ndim};
        for (int k = 0; k < args[i].ndim; k++)
            d->arg[i].shape[k] = args[i].shape[k];
    }
    d->n_args = n;
    return LATHE_OK;
}

static const struct tensor *find(const struct lathe_dist *d, const char *name)
{
    for (int i = 0; i < d->n_args; i++)
        if (strcmp(d->arg[i].name, name) == 0)
            return &d->arg[i];
    return NULL;
}

/* Names are the caller's until the object is made; behind that the signature's, which has the same. */
static lathe_status name_arguments(struct lathe_dist *d, lathe_error *err)
{
    lathe_arg_info info;
    for (int k = 0; k < d->n_args; k++) {
        const char *found = NULL;
        for (int i = 0; !found && lathe_spec_arg(d->spec, d->pass, i, &info); i++)
            found = strcmp(info.name, d->arg[k].name) == 0 ? info.name : NULL;
        if (find(d, d->arg[k].name) != &d->arg[k])
            return lathe__fail(err, LATHE_ARG, "dist: argument '%s': given twice", d->arg[k].name);
        if (!found)
            return lathe__fail(err, LATHE_ARG, "dist: argument '%s': this pass of %s has none of that name",
                               d->arg[k].name, lathe_spec_name(d->spec));
        d->arg[k].name = found;
    }
    return LATHE_OK;
}

static lathe_status check_transport(const lathe_transport *t, lathe_error *err)
{
    if (!t)
        return lathe__fail(err, LATHE_ARG, "dist: transport: expected one, given NULL");
    if (t->ranks < 1 || t->ranks > LATHE_MOST_RANKS || t->rank < 0 || t->rank >= t->ranks)
        return lathe__fail(err, LATHE_ARG,
                           "dist: transport: expected rank 0 to ranks - 1 of 1 to %d ranks, given %d of %d",
                           LATHE_MOST_RANKS, t->rank, t->ranks);
    return LATHE_OK;
}

/* Tokens of each rank, from the caller's list or as many as this rank has; their sum. */
static lathe_status count_tokens(struct lathe_dist *d, const char *what, const int64_t *list, int64_t own,
                                 bool zigzag, int64_t **out, int64_t *sum, lathe_error *err)
{
    *out = calloc((size_t)d->t.ranks, sizeof **out);
    if (!*out)
        return lathe__fail_memory(err);
    *sum = 0;
    for (int r = 0; r < d->t.ranks; r++) {
        (*out)[r] = list ? list[r] : own;
        *sum += (*out)[r];
        if ((*out)[r] < 0 || *sum > INT32_MAX)
            return lathe__fail(
                err, LATHE_ARG,
                "dist: %s: expected 0 or more of each rank and fewer than 2^31 in all, given %lld of "
                "rank %d",
                what, (long long)(*out)[r], r);
        if (zigzag && ((*out)[r] != (*out)[0] || (*out)[r] % 2 != 0))
            return lathe__fail(
                err, LATHE_ARG,
                "dist: %s: zigzag shards have as many tokens on all ranks, an even number, given %lld "
                "of rank %d and %lld of rank 0",
                what, (long long)(*out)[r], r, (long long)(*out)[0]);
    }
    if ((*out)[d->t.rank] != own)
        return lathe__fail(err, LATHE_ARG,
                           "dist: %s: expected %lld of rank %d, as its tensors have, given %lld", what,
                           (long long)own, d->t.rank, (long long)(*out)[d->t.rank]);
    return LATHE_OK;
}

/* Keys of interleaved shards: those that all tokens leave each rank, or, where the caller says how many are
   in use, any number. There are as many in all as the last of them says. */
static lathe_status count_interleaved(struct lathe_dist *d, lathe_error *err)
{
    const int64_t sum = d->kv_all;
    const bool in_use = find(d, "used_kv") != NULL;
    for (int r = 0; r < d->t.ranks; r++) {
        const int64_t reach = lathe__dist_reach(d, r, d->kv_tokens[r]);
        d->kv_all = reach > d->kv_all ? reach : d->kv_all;
        if (!in_use && d->kv_tokens[r] != lathe__dist_own_of(d, r, sum))
            return lathe__fail(
                err, LATHE_ARG,
                "dist: kv_tokens: expected %lld of rank %d, which chunks of %d of all %lld keys "
                "leave it, given %lld; give used_kv where ranks have room for more",
                (long long)lathe__dist_own_of(d, r, sum), r, d->o.interleave, (long long)sum,
                (long long)d->kv_tokens[r]);
    }
    if (d->kv_all > INT32_MAX)
        return lathe__fail(err, LATHE_ARG, "dist: kv_tokens: expected fewer than 2^31 in all, given %lld",
                           (long long)d->kv_all);
    return LATHE_OK;
}

static bool is_linear(const struct lathe_dist *d)
{
    char why[256];
    bool reverse;
    return lathe__spec_carry(d->spec, false, &reverse, why, sizeof why) >= 0;
}

/* Keys of this rank: in pages, as many as the list of pages has room for. */
static int64_t keys_of_rank(const struct lathe_dist *d, const struct tensor *k)
{
    const struct tensor *pages = find(d, "pages");
    return pages && pages->ndim == 2 ? pages->shape[1] * k->shape[2] : k->shape[2];
}

static lathe_status read_sizes(struct lathe_dist *d, const lathe_dist_options *o, lathe_error *err)
{
    const struct tensor *q = find(d, "q");
    /* Keys of linear attention may be made of inputs alone, or be several of a token. */
    const struct tensor *k = is_linear(d) ? q : find(d, "k");
    const bool zigzag = o->shards == LATHE_SHARDS_ZIGZAG;
    if (!q || !k || q->ndim != 4 || k->ndim != 4)
        return lathe__fail(
            err, LATHE_ARG,
            "dist: expected q and k of 4 dims; attention and linear attention go over ranks, and every "
            "other kind of spec needs none of it: each rank calls it with its own rows");
    d->b = q->shape[0];
    d->h = q->shape[1];
    d->h_kv = k->shape[1];
    if (d->h_kv < 1 || d->h % d->h_kv != 0)
        return lathe__fail(err, LATHE_ARG, "dist: q: expected a multiple of %lld key heads, given %lld",
                           (long long)d->h_kv, (long long)d->h);
    TRY(count_tokens(d, "q_tokens", o->q_tokens, q->shape[2], zigzag && !o->whole_q, &d->q_tokens, &d->q_all,
                     err));
    TRY(count_tokens(d, "kv_tokens", o->kv_tokens, keys_of_rank(d, k), zigzag, &d->kv_tokens, &d->kv_all,
                     err));
    if (o->whole_q)
        d->q_all = q->shape[2];
    return o->shards == LATHE_SHARDS_INTERLEAVED ? count_interleaved(d, err) : LATHE_OK;
}

void lathe_dist_destroy(lathe_dist *dist)
{
    if (!dist)
        return;
    for (int i = 0; i < dist->n_kernels; i++)
        lathe_kernel_release(dist->kernel[i]);
    for (int i = 0; i < MAPS; i++)
        lathe_spec_destroy(dist->map[i]);
    lathe_spec_destroy(dist->product);
    lathe_spec_destroy(dist->sum);
    lathe__dist_streams_close(dist);
    free(dist->kernel);
    free(dist->q_tokens);
    free(dist->kv_tokens);
    lathe__spec_release((lathe_spec *)dist->spec);
    free(dist);
}

static lathe_status check_flag(const char *name, int32_t given, lathe_error *err)
{
    return given == 0 || given == 1
               ? LATHE_OK
               : lathe__fail(err, LATHE_ARG, "dist: %s: expected 0 or 1, given %d", name, given);
}

static lathe_status check_options(const lathe_dist_options *o, int ranks, lathe_error *err)
{
    const bool interleaved = o->shards == LATHE_SHARDS_INTERLEAVED;
    if ((int)o->shards < 0 || o->shards > LATHE_SHARDS_INTERLEAVED)
        return lathe__fail(err, LATHE_ARG, "dist: shards: expected 0 to %d, given %d",
                           LATHE_SHARDS_INTERLEAVED, (int)o->shards);
    if (o->heads_at_once < 0)
        return lathe__fail(err, LATHE_ARG, "dist: heads_at_once: expected 0 or more, given %d",
                           o->heads_at_once);
    if (interleaved ? o->interleave < 1 || o->interleave > INT32_MAX / ranks : o->interleave != 0)
        return lathe__fail(err, LATHE_ARG,
                           interleaved ? "dist: interleave: expected the keys of a chunk, 1 to %d, given %d"
                                       : "dist: interleave: expected 0 beside other shards than "
                                         "LATHE_SHARDS_INTERLEAVED, which has at most %d, given %d",
                           INT32_MAX / ranks, o->interleave);
    TRY(check_flag("whole_q", o->whole_q, err));
    return check_flag("parallel_states", o->parallel_states, err);
}

static lathe_status build(struct lathe_dist *d, const lathe_dist_options *o, const lathe_arg *args, int n,
                          lathe_error *err)
{
    TRY(check_options(o, d->t.ranks, err));
    TRY(keep_arguments(d, args, n, err));
    TRY(name_arguments(d, err));
    d->o = *o;
    d->o.q_tokens = d->o.kv_tokens = NULL;
    TRY(read_sizes(d, o, err));
    TRY(lathe__dist_check_shapes(d, err));
    TRY(lathe__dist_choose(d, args, n, err));
    return lathe__dist_streams_open(d, err);
}

/* The others wait for this rank, which will not come. */
static lathe_status tell_others(const lathe_transport *t, lathe_status status, const lathe_error *err)
{
    if (status != LATHE_OK && t->fail)
        t->fail(t->user, status, err->text);
    return status;
}

lathe_status lathe_dist_create(lathe_dist **out, lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                               const lathe_transport *transport, const lathe_dist_options *options,
                               const lathe_arg *args, int n, lathe_error *err)
{
    static const lathe_dist_options usual;
    lathe_error mine;
    lathe_error *const e = err ? err : &mine;
    if (out)
        *out = NULL;
    if (!out || !ctx || !spec)
        return lathe__fail(e, LATHE_ARG, "dist: %s, given NULL",
                           !out   ? "out: expected a place for the object"
                           : !ctx ? "ctx: expected a context"
                                  : "spec: expected one");
    TRY(check_transport(transport, e));
    if (pass != LATHE_FORWARD && pass != LATHE_BACKWARD)
        return tell_others(
            transport,
            lathe__fail(e, LATHE_ARG, "dist: pass: expected forward or backward, given %d", (int)pass), e);
    struct lathe_dist *d = calloc(1, sizeof *d);
    if (!d)
        return tell_others(transport, lathe__fail_memory(e), e);
    lathe__spec_keep(spec);
    d->ctx = ctx;
    d->spec = spec;
    d->pass = pass;
    d->t = *transport;
    const lathe_status status = build(d, options ? options : &usual, args, n, e);
    if (status == LATHE_OK)
        *out = d;
    else
        lathe_dist_destroy(d);
    return tell_others(transport, status, e);
}

/* ---- launches ---------------------------------------------------------------------------------------------
 */

static lathe_status check_arguments(const struct lathe_dist *d, const lathe_arg *args, int n,
                                    lathe_error *err)
{
    if (n != d->n_args)
        return lathe__fail(err, LATHE_ARG,
                           "dist: expected %d arguments, as the object was made with, given %d", d->n_args,
                           n);
    for (int i = 0; i < n; i++) {
        const struct tensor *t = args[i].name ? find(d, args[i].name) : NULL;
        bool same = t && args[i].dtype == t->dtype && args[i].ndim == t->ndim;
        for (int k = 0; same && k < t->ndim; k++)
            same = args[i].shape[k] == t->shape[k];
        if (!same)
            return lathe__fail(
                err, LATHE_ARG,
                "dist: argument '%s': expected the dtype and the shape that the object was made with",
                args[i].name ? args[i].name : "NULL");
        if (!args[i].data && lathe__dist_count(*t) > 0)
            return lathe__fail(err, LATHE_ARG, "dist: argument '%s': expected a data pointer, given NULL",
                               args[i].name);
    }
    return LATHE_OK;
}

size_t lathe_dist_workspace_size(const lathe_dist *dist)
{
    return dist ? lathe__dist_bytes(dist) : 0;
}

const char *lathe_dist_info(const lathe_dist *dist)
{
    return dist ? dist->info : "";
}

/* The device of the context is the thread's current one for the transport, too: what it sends lies there. */
static lathe_status walk_on_device(struct walk *w)
{
    const lathe_ctx *ctx = w->d->ctx;
    bool pushed = false;
    if (!ctx->driver)
        return w->d->scheme->steps(w);
    TRY(lathe__context_enter(ctx->driver, ctx->context, &pushed, w->err));
    const lathe_status status = w->d->scheme->steps(w);
    lathe__context_leave(ctx->driver, pushed);
    return status;
}

static lathe_status launch(struct lathe_dist *d, const lathe_arg *args, int n, void *workspace,
                           lathe_stream stream, lathe_error *err)
{
    TRY(check_arguments(d, args, n, err));
    if (!d->t.all_gather)
        return lathe__fail(err, LATHE_ARG,
                           "dist: this object has no transport: it only tells what it would do");
    if (!workspace && lathe__dist_bytes(d) > 0)
        return lathe__fail(err, LATHE_ARG, "dist: workspace: expected %zu bytes of the device, given NULL",
                           lathe__dist_bytes(d));
    struct walk w = {.d = d, .base = workspace, .stream = stream, .err = err, .args = args, .n_args = n};
    return walk_on_device(&w);
}

lathe_status lathe_dist_launch(lathe_dist *dist, const lathe_arg *args, int n, void *workspace,
                               lathe_stream stream, lathe_error *err)
{
    lathe_error mine;
    lathe_error *const e = err ? err : &mine;
    if (!dist || !args)
        return lathe__fail(e, LATHE_ARG, "dist: %s, given NULL",
                           dist ? "args: expected the arguments" : "expected what lathe_dist_create made");
    return tell_others(&dist->t, launch(dist, args, n, workspace, stream, e), e);
}
