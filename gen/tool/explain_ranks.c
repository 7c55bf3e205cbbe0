/*
 * explain_ranks.c: `lathe explain --ranks N`: which scheme of lathe_dist.h serves a problem over several
 * ranks, what a launch sends and keeps, and why not another. In: a problem of the whole. Out: a paragraph for
 * sharded queries, and one for queries that every rank has, as in decoding. Nothing is computed: no rank, no
 * GPU.
 */
#include "gen/tool/explain.h"
#include "lathe_dist.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shares {
    int ranks;
    int64_t q[LATHE_MOST_RANKS], kv[LATHE_MOST_RANKS];
};

struct rank_call { /* arguments of rank 0 */
    int n;
    lathe_arg arg[MAX_ARGS];
    int64_t shape[MAX_ARGS][MAX_DIMS];
};

static void share(int64_t n, int64_t each, int ranks, int64_t *out)
{
    for (int r = 0; r < ranks; r++)
        out[r] = (n * (r + 1) / ranks - n * r / ranks) * each;
}

/* Ranks share whole pages of keys. */
static void share_all(const struct problem *p, bool linear, struct shares *s)
{
    share(p->dim[linear ? SYM_T : SYM_Q], 1, s->ranks, s->q);
    if (p->paged)
        share(p->dim[SYM_MOST], p->dim[SYM_PAGE], s->ranks, s->kv);
    else
        share(p->dim[linear ? SYM_T : SYM_KV], 1, s->ranks, s->kv);
}

static int64_t own_size(const struct problem *p, const struct sig_arg *a, struct sig_dim dim,
                        const struct shares *s, bool whole_q)
{
    const bool in_pages = p->paged && dim.paged != SYM_ONE;
    const bool of_all = a->role == ROLE_INPUT || a->name[0] == 'd'; /* d<input>: as the input */
    if (dim.sym == SYM_T && dim.literal == 0)
        return s->kv[0] * lathe__times(dim) + dim.plus;
    if (p->paged && lathe__dim_is(dim, SYM_MOST))
        return s->kv[0] / p->dim[SYM_PAGE];
    if (!in_pages && dim.whole == SYM_ONE && lathe__dim_is(dim, SYM_KV) && a->role != ROLE_INPUT)
        return s->kv[0];
    if (lathe__dim_is(dim, SYM_Q) && !whole_q && (!of_all || a->dtype_role != DTYPE_USUAL))
        return s->q[0];
    return lathe__dim_value(p, dim);
}

/* What rank 0 would give; gradients of inputs are left out, which are sent nowhere. */
static void rank_arguments(const struct signature *sig, const struct problem *p, const struct shares *s,
                           bool whole_q, struct rank_call *out)
{
    out->n = 0;
    for (int i = 0; i < sig->n_args; i++) {
        const struct sig_arg *a = &sig->arg[i];
        const bool gradient = lathe__is_result(a) && a->name[0] == 'd' && a->dtype_role == DTYPE_USUAL;
        const bool given =
            arg_in(p->present, i) || (a->role == ROLE_Q_START && whole_q); /* as decoding says it */
        if (!given || a->role > ROLE_Q_START || gradient)
            continue;
        for (int d = 0; d < a->ndim; d++)
            out->shape[out->n][d] = own_size(p, a, a->dim[d], s, whole_q);
        out->arg[out->n] =
            (lathe_arg){a->name, NULL, (lathe_dtype)p->arg_dtype[i], a->ndim, out->shape[out->n], NULL};
        out->n++;
    }
}

static void say_lines(struct facts *f, const char *what, const char *text)
{
    facts_line(f, "ranks, %s\n", what);
    while (*text) {
        const size_t n = strcspn(text, "\n");
        facts_line(f, "  %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

enum ranks_have { OWN_TOKENS, ALL_QUERIES, PARALLEL_STATES };

static void explain_one(struct facts *f, lathe_ctx *ctx, const lathe_spec *spec, lathe_pass pass,
                        const struct signature *sig, const struct problem *p, const struct shares *s,
                        enum ranks_have have)
{
    static const struct {
        const char *fact, *what;
    } SAY[] = {
        [OWN_TOKENS] = {"every rank has its own tokens", "every one has its own tokens"},
        [ALL_QUERIES] = {"every rank has all queries", "every one has all queries and its own keys"},
        [PARALLEL_STATES] = {"parallel states",
                             "every one has its own tokens, and does not wait (parallel_states)"},
    };
    const bool whole_q = have == ALL_QUERIES;
    const lathe_transport nobody = {.rank = 0, .ranks = s->ranks};
    const lathe_dist_options options = {.q_tokens = whole_q ? NULL : s->q,
                                        .kv_tokens = s->kv,
                                        .whole_q = whole_q,
                                        .parallel_states = have == PARALLEL_STATES};
    struct rank_call call;
    lathe_dist *dist = NULL;
    lathe_error err = {0};
    rank_arguments(sig, p, s, whole_q, &call);
    const lathe_status status =
        lathe_dist_create(&dist, ctx, spec, pass, &nobody, &options, call.arg, call.n, &err);
    const char *const text = status == LATHE_OK ? lathe_dist_info(dist) : err.text;
    facts_string(f, SAY[have].fact, text);
    say_lines(f, SAY[have].what, text);
    lathe_dist_destroy(dist);
}

static lathe_status open_spec(const struct options *o, lathe_spec **out, lathe_error *err)
{
    struct spec_params given;
    lathe_param param[MAX_PARAMETERS];
    if (!tool_params(o, &given))
        return LATHE_ARG;
    for (int i = 0; i < given.n && i < MAX_PARAMETERS; i++)
        param[i] = (lathe_param){given.item[i].name, given.item[i].value};
    return lathe_spec_open(out, o->operand[0], NULL, 0, param,
                           given.n < MAX_PARAMETERS ? given.n : MAX_PARAMETERS, err);
}

int explain_ranks(struct facts *f, const struct options *o, const struct signature *sig,
                  const struct problem *p)
{
    lathe_options host = LATHE_OPTIONS_INIT;
    struct shares s = {.ranks = o->ranks};
    lathe_ctx *ctx = NULL;
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    const bool linear = p->dim[SYM_T] >= 0;
    share_all(p, linear, &s);
    host.device = LATHE_DEVICE_HOST;
    host.cache_dir = "";
    lathe_status status = lathe_ctx_create(&ctx, &host, &err);
    if (status == LATHE_OK)
        status = open_spec(o, &spec, &err);
    if (status == LATHE_OK) {
        facts_open(f, "ranks", '{');
        explain_one(f, ctx, spec, o->pass, sig, p, &s, OWN_TOKENS);
        if (!linear)
            explain_one(f, ctx, spec, o->pass, sig, p, &s, ALL_QUERIES);
        else if (o->pass == LATHE_FORWARD)
            explain_one(f, ctx, spec, o->pass, sig, p, &s, PARALLEL_STATES);
        facts_close(f);
    }
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
    return status == LATHE_OK ? CODE_OK : complain_error(&err);
}
