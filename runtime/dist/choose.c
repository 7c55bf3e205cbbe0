/*
 * choose.c: which scheme serves a spec and its shards, by walking through the steps of each that might,
 * without data. In: an object with its sizes. Out: a scheme with kernels, what it sends and keeps, and the
 * words of lathe_dist_info.
 */
#include "runtime/dist/choose.h"
#include "runtime/jit/jit.h"

#include <stdlib.h>
#include <string.h>

static const struct scheme *const SCHEME[] = {
    [LATHE_SCHEME_KEYS] = &lathe__dist_keys,     [LATHE_SCHEME_HEADS] = &lathe__dist_heads,
    [LATHE_SCHEME_GATHER] = &lathe__dist_gather, [LATHE_SCHEME_RING] = &lathe__dist_ring,
    [LATHE_SCHEME_STATES] = &lathe__dist_states,
};
enum { SCHEMES = sizeof SCHEME / sizeof *SCHEME };

/* ---- what a scheme cannot do ------------------------------------------------------------------------------
 */

static const struct tensor *find(const struct lathe_dist *d, const char *name)
{
    for (int i = 0; i < d->n_args; i++)
        if (strcmp(d->arg[i].name, name) == 0)
            return &d->arg[i];
    return NULL;
}

static bool is_given(const struct lathe_dist *d, const char *name)
{
    return find(d, name) != NULL;
}

/* Arguments that the scheme gives itself, or that say where sequences lie among tokens that are not all here.
 */
static lathe_status check_given(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    static const struct {
        const char *name;
        bool keys, heads; /* schemes that take it as it is */
        const char *why;
    } LIST[] = {
        {"kv_start", false, false, "the scheme gives the places of keys and heads itself"},
        {"len_kv", false, false, "the scheme gives the places of keys and heads itself"},
        {"kv_chunk", false, false, "the scheme gives the places of keys and heads itself"},
        {"kv_step", false, false, "the scheme gives the places of keys and heads itself"},
        {"h_start", false, false, "the scheme gives the places of keys and heads itself"},
        {"n_h", false, false, "the scheme gives the places of keys and heads itself"},
        {"mask_kept", false, false,
         "launches of a scheme share their workspace, and no map of tiles is kept in it"},
        {"part_o", false, false, "parts of rows are merged by the scheme"},
        {"cu_q", false, true, "packed sequences are cut between ranks; give heads, or a mask of documents"},
        {"cu_kv", false, true, "packed sequences are cut between ranks; give heads, or a mask of documents"},
        {"used_kv", true, true, "keys in use count from the first key of all; give heads or keys"},
        {"cu", false, false, "packed sequences are cut between ranks; give each sequence a batch of its own"},
        {"state_index", false, false, "states of a pool are not carried from rank to rank; give state"},
        {"states_index", false, false,
         "states behind tokens are left by a call that has all tokens ahead of them; ask for state_out"},
        {"pages", true, false, "pages are of the keys of one rank; give keys"},
    };
    for (size_t i = 0; i < sizeof LIST / sizeof *LIST; i++) {
        const bool takes = which == LATHE_SCHEME_KEYS    ? LIST[i].keys
                           : which == LATHE_SCHEME_HEADS ? LIST[i].heads
                                                         : false;
        if (!takes && is_given(d, LIST[i].name))
            return lathe__fail(err, LATHE_UNSUPPORTED, "argument '%s' is not taken: %s", LIST[i].name,
                               LIST[i].why);
    }
    return LATHE_OK;
}

/* Lists say of each sequence how many keys this rank has, and not where its queries are among those of all.
 */
static lathe_status check_lists(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    const char *const list = is_given(d, "pages") ? "pages" : "used_kv";
    int line = 0;
    if (is_given(d, "pages") && d->pass == LATHE_BACKWARD)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "argument 'pages' is not taken: ranks have no gradients of keys in pages; give k and "
            "v with a place for each key");
    if (which != LATHE_SCHEME_KEYS || !is_given(d, list))
        return LATHE_OK;
    if (is_given(d, "used_kv") && !lathe__spec_without_length(d->spec, &line))
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "argument 'used_kv' is not taken: line %d of the spec reads at.len_kv, the keys in use of "
            "a sequence, and a rank knows of its own alone; give the lengths as an input of the spec",
            line);
    if (is_given(d, "q_start"))
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG,
                       "argument 'q_start': expected it beside '%s', which says how many keys of a sequence "
                       "this rank has, and not how many there are in all",
                       list);
}

static lathe_status check_whole_q(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    if ((which == LATHE_SCHEME_KEYS) == (d->o.whole_q != 0))
        return LATHE_OK;
    return lathe__fail(err, LATHE_UNSUPPORTED,
                       which == LATHE_SCHEME_KEYS ? "every rank needs all queries (whole_q = 1)"
                                                  : "every rank has queries of its own (whole_q = 0)");
}

/* Are there as many value channels as key channels? */
static bool is_square(const struct lathe_dist *d)
{
    const struct tensor *q = find(d, "q");
    const struct tensor *v = find(d, "v");
    return q && v && q->ndim == 4 && v->ndim == 4 && q->shape[3] == v->shape[3];
}

/* Do all ranks of linear attention compute in parallel, where that is asked for? */
static lathe_status check_parallel_states(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    enum { MOST_CHANNELS = 256 };
    char why[256];
    const struct tensor *q = find(d, "q");
    const struct tensor *v = find(d, "v");
    if (!d->o.parallel_states)
        return LATHE_OK;
    if (which != LATHE_SCHEME_STATES)
        return lathe__fail(err, LATHE_UNSUPPORTED, "parallel_states is of scheme states: give 0");
    if (d->pass == LATHE_BACKWARD)
        return lathe__fail(err, LATHE_UNSUPPORTED,
                           "parallel_states is of the forward pass: give 0 for the backward pass");
    if (!lathe__spec_reads_by_rows(d->spec, why, sizeof why))
        return lathe__fail(err, LATHE_UNSUPPORTED, "parallel_states: %s; parallel_states = 0 serves it", why);
    if (v && v->dtype == LATHE_F16)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "parallel_states: what strong gates leave of a row is below the range of f16; give bf16, or "
            "parallel_states = 0");
    const int64_t channels = v && v->ndim == 4 ? q->shape[3] + v->shape[3] : 0;
    if (channels > MOST_CHANNELS)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "parallel_states: d + d_v is %lld, and no kernel has more than %d value channels but token "
            "by token; parallel_states = 0 serves it",
            (long long)channels, MOST_CHANNELS);
    return LATHE_OK;
}

static lathe_status check_scheme(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    char why[256];
    int line = 0;
    bool reverse;
    const bool cuts_queries = which == LATHE_SCHEME_GATHER || which == LATHE_SCHEME_RING;
    const int carry = lathe__spec_carry(d->spec, is_square(d), &reverse, why, sizeof why);
    if ((carry >= 0) != (which == LATHE_SCHEME_STATES))
        return lathe__fail(err, LATHE_UNSUPPORTED, "it is for %s",
                           which == LATHE_SCHEME_STATES ? "linear attention" : "attention with scores");
    if (carry == 0)
        return lathe__fail(err, LATHE_UNSUPPORTED, "%s", why);
    if (which == LATHE_SCHEME_STATES && d->o.shards != LATHE_SHARDS_CONTIGUOUS)
        return lathe__fail(err, LATHE_UNSUPPORTED, "tokens of a rank follow each other: contiguous shards");
    TRY(check_parallel_states(d, which, err));
    TRY(check_whole_q(d, which, err));
    TRY(check_given(d, which, err));
    TRY(check_lists(d, which, err));
    if (which == LATHE_SCHEME_KEYS && d->o.shards == LATHE_SHARDS_ZIGZAG)
        return lathe__fail(err, LATHE_UNSUPPORTED,
                           "zigzag shards are of queries and keys alike, and every rank has all queries: "
                           "contiguous or interleaved shards");
    if (which != LATHE_SCHEME_KEYS && d->o.shards == LATHE_SHARDS_INTERLEAVED)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "interleaved shards are of caches, which scheme keys takes (whole_q = 1): contiguous "
            "or zigzag shards");
    if (cuts_queries && !lathe__spec_by_query(d->spec, &line))
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "line %d of the spec reads at.row or at.len_q, or finds a row of an input over \"q\" by "
            "something else than at.row: the rows of a call would count anew on each rank; heads serves "
            "it, and so does a spec with at.q",
            line);
    return LATHE_OK;
}

/* ---- trying one
 * -------------------------------------------------------------------------------------------- */

static void forget(struct lathe_dist *d)
{
    for (int i = 0; i < d->n_kernels; i++)
        lathe_kernel_release(d->kernel[i]);
    free(d->kernel);
    d->kernel = NULL;
    d->n_kernels = 0;
    d->n_sends = d->n_own = 0;
    d->sent = d->moved = d->bytes = d->kernel_bytes = 0;
    d->scheme = NULL;
}

/* An address as a workspace has, of which nothing is read: it tells which slices lie at 16 bytes. No tensor
   of a host or a GPU lies there: their addresses have at most 57 bits. */
#define NOWHERE ((uintptr_t)1 << 62)

static lathe_status walk_dry(struct lathe_dist *d, lathe_scheme which, const lathe_arg *args, int n,
                             lathe_error *err)
{
    struct walk w = {.d = d, .dry = true, .base = (char *)NOWHERE, .err = err, .args = args, .n_args = n};
    forget(d);
    TRY(SCHEME[which]->steps(&w));
    d->scheme = SCHEME[which];
    d->bytes = w.most;
    return LATHE_OK;
}

/* What a ring needs is known behind its steps alone, whose kernels have a workspace as well: where it is too
   much, the other way of it is tried, and stays where it needs less. */
static lathe_status try_scheme(struct lathe_dist *d, lathe_scheme which, const lathe_arg *args, int n,
                               lathe_error *err)
{
    d->folds = false;
    TRY(check_scheme(d, which, err));
    TRY(walk_dry(d, which, args, n, err));
    const size_t whole = lathe__dist_bytes(d);
    if (which != LATHE_SCHEME_RING || d->pass != LATHE_FORWARD || d->o.most_bytes == 0 ||
        whole <= d->o.most_bytes)
        return LATHE_OK;
    d->folds = true;
    TRY(walk_dry(d, which, args, n, err));
    d->folds = lathe__dist_bytes(d) < whole;
    return d->folds ? LATHE_OK : walk_dry(d, which, args, n, err);
}

/* ---- which
 * ------------------------------------------------------------------------------------------------- */

/* How ranks of scheme states wait for each other. */
static const char *order(const struct lathe_dist *d)
{
    if (d->scheme != &lathe__dist_states)
        return "";
    return d->o.parallel_states
               ? "parallel states: all ranks compute their tokens at once, with d + d_v value channels, and "
                 "add "
                 "what the state ahead of them gives\n"
               : "serial states: a rank computes its o when the ranks ahead of it have left their states\n";
}

static const char *const SHARDS[] = {[LATHE_SHARDS_CONTIGUOUS] = "contiguous",
                                     [LATHE_SHARDS_ZIGZAG] = "zigzag",
                                     [LATHE_SHARDS_INTERLEAVED] = "interleaved"};

static void describe(struct lathe_dist *d, const char *others)
{
    (void)lathe__print(
        d->info, sizeof d->info,
        "scheme %s, rank %d of %d, %s shards: a launch sends %zu bytes to other ranks in %d calls, "
        "launches %d kernels, of which %d compute and the others read and write %zu bytes, and takes a "
        "workspace of %zu bytes\n%s%s",
        d->scheme->name, d->t.rank, d->t.ranks, SHARDS[d->o.shards], d->sent, d->n_sends, d->n_kernels,
        d->n_own, d->moved, lathe__dist_bytes(d), order(d), others);
}

struct trial {
    lathe_status status;
    size_t sent, bytes;
    lathe_error err;
};

/* Is `a` to be taken before `b`? Within the bound of memory, then by what is sent. */
static bool is_better(const struct lathe_dist *d, const struct trial *a, const struct trial *b)
{
    const bool a_fits = d->o.most_bytes == 0 || a->bytes <= d->o.most_bytes;
    const bool b_fits = d->o.most_bytes == 0 || b->bytes <= d->o.most_bytes;
    if (a_fits != b_fits)
        return a_fits;
    return a_fits ? a->sent < b->sent : a->bytes < b->bytes;
}

static void say_trial(struct phrase *words, int which, const struct trial *t)
{
    if (t->status == LATHE_OK)
        lathe__say(words, "%s: serves; a rank of equal shards would send %zu bytes with a workspace of %zu\n",
                   SCHEME[which]->name, t->sent, t->bytes);
    else
        lathe__say(words, "%s: %s\n", SCHEME[which]->name, t->err.text);
}

/* The same problem for a rank 0 of ranks that have equal shards: what every rank comes to alike, whatever its
   own shard is, so that all choose one scheme. */
struct even {
    lathe_arg arg[MOST_IN_CALL];
    int64_t shape[MOST_IN_CALL][LATHE_MAX_DIMS];
    int64_t q[LATHE_MOST_RANKS], kv[LATHE_MOST_RANKS];
};

static void even_shape(const struct lathe_dist *d, const lathe_arg_info *info, const struct even *e,
                       int64_t *shape)
{
    for (int k = 0; k < info->ndim; k++) {
        const char *const dim = info->dim[k].name;
        const bool own = !info->is_input && !lathe__dist_is_share(d, info->name);
        if (strcmp(dim, "t") == 0)
            shape[k] = info->dim[k].times * e->kv[0] + info->dim[k].plus;
        else if (own && strcmp(dim, "kv") == 0 && !is_given(d, "pages"))
            shape[k] = e->kv[0];
        else if (own && strcmp(dim, "q") == 0 && !d->o.whole_q)
            shape[k] = e->q[0];
    }
}

static void make_even(const struct lathe_dist *d, const lathe_arg *args, int n, struct even *e)
{
    lathe_arg_info info;
    for (int r = 0; r < d->t.ranks; r++) {
        e->q[r] = d->o.whole_q ? d->q_all : (d->q_all + d->t.ranks - 1) / d->t.ranks;
        e->kv[r] = (d->kv_all + d->t.ranks - 1) / d->t.ranks;
    }
    for (int i = 0; i < n; i++) {
        e->arg[i] = args[i];
        if (args[i].ndim == 0)
            continue;
        e->arg[i].data = NULL;
        e->arg[i].strides = NULL;
        memcpy(e->shape[i], args[i].shape, (size_t)args[i].ndim * sizeof *args[i].shape);
        e->arg[i].shape = e->shape[i];
        for (int k = 0; lathe_spec_arg(d->spec, d->pass, k, &info); k++)
            if (strcmp(info.name, args[i].name) == 0 && info.ndim == args[i].ndim)
                even_shape(d, &info, e, e->shape[i]);
    }
}

static lathe_status try_even(struct lathe_dist *d, lathe_scheme which, struct even *e, int n,
                             struct trial *out)
{
    struct lathe_dist even = *d;
    even.t.rank = 0;
    even.q_tokens = e->q;
    even.kv_tokens = e->kv;
    even.kv_all = e->kv[0] * d->t.ranks;
    even.q_all = d->o.whole_q ? d->q_all : e->q[0] * d->t.ranks;
    out->status = try_scheme(&even, which, e->arg, n, &out->err);
    out->sent = even.sent;
    out->bytes = out->status == LATHE_OK ? lathe__dist_bytes(&even) : 0;
    forget(&even);
    memcpy(d->map, even.map, sizeof d->map); /* specs that it has parsed */
    d->product = even.product;
    d->sum = even.sum;
    return out->status;
}

/* The best of the schemes that serve; 0: none does. A status of the machine (memory, CUDA, compiler) ends the
 * search.
 */
static lathe_status find_best(struct lathe_dist *d, struct even *e, int n, struct phrase *words, int *best,
                              lathe_error *err)
{
    struct trial trial[SCHEMES];
    *best = 0;
    for (int which = 1; which < SCHEMES; which++) {
        struct trial *t = &trial[which];
        const lathe_status status = try_even(d, (lathe_scheme)which, e, n, t);
        if (status != LATHE_OK && status != LATHE_UNSUPPORTED && status != LATHE_ARG)
            return lathe__fail(err, status, "%s", t->err.text);
        say_trial(words, which, t);
        if (status == LATHE_OK && (*best == 0 || is_better(d, t, &trial[*best])))
            *best = which;
    }
    return LATHE_OK;
}

static lathe_status choose_any(struct lathe_dist *d, const lathe_arg *args, int n, lathe_error *err)
{
    struct phrase words = {.size = 0};
    int best;
    struct even *e = malloc(sizeof *e);
    if (!e)
        return lathe__fail_memory(err);
    make_even(d, args, n, e);
    const lathe_status status = find_best(d, e, n, &words, &best, err);
    free(e);
    TRY(status);
    if (best == 0 && d->t.ranks == 1)
        return lathe__fail(
            err, LATHE_UNSUPPORTED,
            "dist: one rank has all of %s, which an ordinary call serves (lathe_launch); no scheme "
            "does:\n%s",
            lathe_spec_name(d->spec), words.text);
    if (best == 0)
        return lathe__fail(err, LATHE_UNSUPPORTED, "dist: no scheme serves %s over %d ranks:\n%s",
                           lathe_spec_name(d->spec), d->t.ranks, words.text);
    TRY(try_scheme(d, (lathe_scheme)best, args, n, err));
    describe(d, words.text);
    return LATHE_OK;
}

lathe_status lathe__dist_choose(struct lathe_dist *d, const lathe_arg *args, int n, lathe_error *err)
{
    const lathe_scheme which = d->o.scheme;
    lathe_error why;
    if (which == LATHE_SCHEME_AUTO)
        return choose_any(d, args, n, err);
    if ((int)which < 0 || (int)which >= SCHEMES)
        return lathe__fail(err, LATHE_ARG, "dist: scheme: expected 0 to %d, given %d", SCHEMES - 1,
                           (int)which);
    const lathe_status status = try_scheme(d, which, args, n, &why);
    if (status != LATHE_OK)
        return lathe__fail(err, status, "dist: scheme %s: %s", SCHEME[which]->name, why.text);
    describe(d, "");
    return LATHE_OK;
}
