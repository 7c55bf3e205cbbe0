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

static bool is_given(const struct lathe_dist *d, const char *name)
{
    for (int i = 0; i < d->n_args; i++)
        if (strcmp(d->arg[i].name, name) == 0)
            return true;
    return false;
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
        {"h_start", false, false, "the scheme gives the places of keys and heads itself"},
        {"n_h", false, false, "the scheme gives the places of keys and heads itself"},
        {"mask_kept", false, false,
         "launches of a scheme share their workspace, and no map of tiles is kept in it"},
        {"part_o", false, false, "parts of rows are merged by the scheme"},
        {"cu_q", true, true, "packed sequences are cut between ranks; give heads, or a mask of documents"},
        {"cu_kv", true, true, "packed sequences are cut between ranks; give heads, or a mask of documents"},
        {"used_kv", true, true, "keys in use count from the first key of all; give heads or keys"},
        {"cu", false, false, "packed sequences are cut between ranks; give each sequence a batch of its own"},
        {"state_index", false, false, "states of a pool are not carried from rank to rank; give state"},
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

static lathe_status check_whole_q(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    if ((which == LATHE_SCHEME_KEYS) == (d->o.whole_q != 0))
        return LATHE_OK;
    return lathe__fail(err, LATHE_UNSUPPORTED,
                       which == LATHE_SCHEME_KEYS ? "every rank needs all queries (whole_q = 1)"
                                                  : "every rank has queries of its own (whole_q = 0)");
}

static lathe_status check_scheme(const struct lathe_dist *d, lathe_scheme which, lathe_error *err)
{
    char why[256];
    int line = 0;
    bool reverse;
    const bool cuts_queries = which == LATHE_SCHEME_GATHER || which == LATHE_SCHEME_RING;
    const int carry = lathe__spec_carry(d->spec, &reverse, why, sizeof why);
    if ((carry >= 0) != (which == LATHE_SCHEME_STATES))
        return lathe__fail(err, LATHE_UNSUPPORTED, "it is for %s",
                           which == LATHE_SCHEME_STATES ? "linear attention" : "attention with scores");
    if (carry == 0)
        return lathe__fail(err, LATHE_UNSUPPORTED, "%s", why);
    if (which == LATHE_SCHEME_STATES && d->o.shards != LATHE_SHARDS_CONTIGUOUS)
        return lathe__fail(err, LATHE_UNSUPPORTED, "tokens of a rank follow each other: contiguous shards");
    TRY(check_whole_q(d, which, err));
    TRY(check_given(d, which, err));
    if (which == LATHE_SCHEME_KEYS && d->o.shards != LATHE_SHARDS_CONTIGUOUS)
        return lathe__fail(err, LATHE_UNSUPPORTED, "keys of a rank follow each other: contiguous shards");
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
    d->n_sends = 0;
    d->sent = d->bytes = d->kernel_bytes = 0;
    d->scheme = NULL;
}

static lathe_status try_scheme(struct lathe_dist *d, lathe_scheme which, const lathe_arg *args, int n,
                               lathe_error *err)
{
    struct walk w = {.d = d, .dry = true, .err = err, .args = args, .n_args = n};
    forget(d);
    TRY(check_scheme(d, which, err));
    TRY(SCHEME[which]->steps(&w));
    d->scheme = SCHEME[which];
    d->bytes = w.most;
    return LATHE_OK;
}

/* ---- which
 * ------------------------------------------------------------------------------------------------- */

static void describe(struct lathe_dist *d, const char *others)
{
    (void)lathe__print(
        d->info, sizeof d->info,
        "scheme %s, rank %d of %d, %s shards: a launch sends %zu bytes to other ranks in %d calls, "
        "launches %d kernels and takes a workspace of %zu bytes\n%s",
        d->scheme->name, d->t.rank, d->t.ranks, d->o.shards == LATHE_SHARDS_ZIGZAG ? "zigzag" : "contiguous",
        d->sent, d->n_sends, d->n_kernels, d->bytes + d->kernel_bytes, others);
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
        lathe__say(words, "%s: serves, would send %zu bytes with a workspace of %zu\n", SCHEME[which]->name,
                   t->sent, t->bytes);
    else
        lathe__say(words, "%s: %s\n", SCHEME[which]->name, t->err.text);
}

/* Every scheme that might serve; a status of the machine (memory, CUDA, compiler) ends the search. */
static lathe_status choose_any(struct lathe_dist *d, const lathe_arg *args, int n, lathe_error *err)
{
    struct trial trial[SCHEMES];
    struct phrase words = {.size = 0};
    int best = 0;
    for (int which = 1; which < SCHEMES; which++) {
        struct trial *t = &trial[which];
        t->status = try_scheme(d, (lathe_scheme)which, args, n, &t->err);
        t->sent = d->sent;
        t->bytes = d->bytes + d->kernel_bytes;
        if (t->status != LATHE_OK && t->status != LATHE_UNSUPPORTED && t->status != LATHE_ARG) {
            if (err)
                *err = t->err;
            return t->status;
        }
        say_trial(&words, which, t);
        if (t->status == LATHE_OK && (best == 0 || is_better(d, t, &trial[best])))
            best = which;
    }
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
