/*
 * relay.c: forward passes of linear attention whose ranks hand on the state of some heads while they compute
 * the next ones. In: the caller's tensors, by heads. Out: the same results as of one rank, computed once: a
 * rank begins when the one before it has done the first heads, and not all of them.
 */
#include "runtime/dist/dist.h"
#include "runtime/jit/jit.h"

#include <string.h>

enum { STATE, NORM, STATES, MOST_GROUPS = 4 };
enum { LEAST_WORK = 1 << 17 }; /* tokens of all heads of a launch, below which fewer heads take as long */

static const char *const IN[STATES] = {"state", "norm"};
static const char *const OUT[STATES] = {"state_out", "norm_out"};

struct relay {
    int groups;
    int place;         /* of this rank, in the order in which tokens are read */
    int before, after; /* ranks; this one where there is none */
    bool last;
    int n_states;
    bool begins, ends; /* a state ahead of all tokens is given; that behind them is asked for */
    struct tensor in[STATES], out[STATES]; /* of a group; one behind the other */
    size_t bytes;
    struct tensor end[STATES]; /* behind all tokens */
    char *end_data;
    size_t end_bytes;
};

int lathe__dist_relay_groups(const struct walk *w)
{
    const struct lathe_dist *d = w->d;
    const int64_t work = d->b * lathe__dist_arg(w, "v").shape[1] * (d->kv_all / d->t.ranks);
    int64_t groups = 1;
    int line = 0;
    if (d->t.ranks == 1 || d->pass != LATHE_FORWARD || !lathe__spec_by_head(d->spec, &line))
        return 1;
    if (d->o.heads_at_once > 0)
        groups = d->h_kv / d->o.heads_at_once;
    else
        while (2 * groups <= MOST_GROUPS && work / (2 * groups) >= LEAST_WORK)
            groups *= 2;
    while (groups > 1 && d->h_kv % groups != 0)
        groups--;
    return groups < 1 ? 1 : (int)groups;
}

static bool is_head(const char *dim)
{
    return strcmp(dim, "h") == 0 || strcmp(dim, "h_k") == 0;
}

/* The heads of a group. */
static struct tensor of_group(const struct relay *r, struct tensor t, int dim, int group)
{
    const int64_t n = t.shape[dim] / r->groups;
    return lathe__dist_slice(t, dim, group * n, n);
}

static bool is_state(const char *name)
{
    for (int s = 0; s < STATES; s++)
        if (strcmp(name, IN[s]) == 0 || strcmp(name, OUT[s]) == 0)
            return true;
    return false;
}

static char *make_states(struct walk *w, struct relay *r, int64_t heads, struct tensor t[STATES],
                         size_t *bytes)
{
    const struct tensor v = lathe__dist_arg(w, "v");
    const int64_t shape[4] = {v.shape[0], heads, lathe__dist_arg(w, "q").shape[3], v.shape[3]};
    const size_t begin = w->used;
    for (int s = 0; s < r->n_states; s++)
        t[s] = lathe__dist_compact(w, lathe__dist_wide(v.dtype), s == STATE ? 4 : 3, shape);
    *bytes = w->used - begin;
    return w->base ? w->base + begin : NULL;
}

static void describe(struct walk *w, struct relay *r, int groups, bool reverse)
{
    const int rank = w->d->t.rank;
    const int ranks = w->d->t.ranks;
    const int64_t heads = lathe__dist_arg(w, "v").shape[1];
    lathe_arg_info info;
    *r = (struct relay){.groups = groups, .place = reverse ? ranks - 1 - rank : rank, .n_states = 1};
    r->last = r->place == ranks - 1;
    r->before = r->place == 0 ? rank : rank + (reverse ? 1 : -1);
    r->after = r->last ? rank : rank + (reverse ? -1 : 1);
    for (int i = 0; lathe_spec_arg(w->d->spec, LATHE_FORWARD, i, &info); i++)
        if (strcmp(info.name, IN[NORM]) == 0)
            r->n_states = STATES;
    for (int s = 0; s < r->n_states; s++) {
        r->begins |= lathe__dist_arg(w, IN[s]).name != NULL;
        r->ends |= lathe__dist_arg(w, OUT[s]).name != NULL;
    }
    (void)make_states(w, r, heads / groups, r->in, &r->bytes);
    (void)make_states(w, r, heads / groups, r->out, &r->bytes);
    if (r->ends)
        r->end_data = make_states(w, r, heads, r->end, &r->end_bytes);
}

/* The caller's other tensors, the heads of a group of them. */
static void put_rest(struct walk *w, const struct relay *r, struct call *c, int group)
{
    lathe_arg_info info;
    for (int i = 0; lathe_spec_arg(w->d->spec, LATHE_FORWARD, i, &info); i++) {
        struct tensor t = lathe__dist_arg(w, info.name);
        if (!t.name || is_state(info.name))
            continue;
        for (int k = 0; k < info.ndim && t.ndim == info.ndim; k++)
            if (is_head(info.dim[k].name))
                t = of_group(r, t, k, group);
        lathe__dist_put(c, t);
    }
}

/* The state ahead of all tokens, of a group; without one it is 0. */
static lathe_status begin(struct walk *w, const struct relay *r, int group)
{
    for (int s = 0; s < r->n_states && r->place == 0; s++) {
        const struct tensor first = lathe__dist_arg(w, IN[s]);
        TRY(first.name ? lathe__dist_copy(w, r->in[s], of_group(r, first, 1, group))
                       : lathe__dist_zero(w, r->in[s]));
    }
    return LATHE_OK;
}

static lathe_status compute(struct walk *w, const struct relay *r, int group)
{
    const bool has_ahead = r->place > 0 || r->begins;
    const bool has_behind = !r->last || r->ends;
    struct call c = {0};
    const bool has_tokens = lathe__dist_tokens(w->d, true, w->d->t.rank) > 0;
    if (has_ahead || !has_tokens)
        TRY(begin(w, r, group));
    for (int s = 0; s < r->n_states; s++) {
        if (has_ahead)
            lathe__dist_put(&c, lathe__dist_named(r->in[s], IN[s]));
        if (has_behind)
            lathe__dist_put(&c, lathe__dist_named(r->out[s], OUT[s]));
        if (has_behind && !has_tokens)
            TRY(lathe__dist_copy(w, r->out[s], r->in[s]));
    }
    put_rest(w, r, &c, group);
    if (has_tokens)
        TRY(lathe__dist_launch_spec(w, w->d->spec, LATHE_FORWARD, &c));
    for (int s = 0; s < r->n_states && r->last && r->ends; s++)
        TRY(lathe__dist_copy(w, of_group(r, r->end[s], 1, group), r->out[s]));
    return LATHE_OK;
}

/* What the last rank has, to all. */
static lathe_status spread_end(struct walk *w, const struct relay *r, bool reverse)
{
    size_t place[LATHE_MOST_RANKS] = {0};
    size_t bytes[LATHE_MOST_RANKS] = {0};
    if (!r->ends)
        return LATHE_OK;
    bytes[reverse ? 0 : w->d->t.ranks - 1] = r->end_bytes;
    TRY(lathe__dist_all_gather(w, r->end_data, place, bytes, r->end_data));
    for (int s = 0; s < r->n_states; s++)
        if (lathe__dist_arg(w, OUT[s]).name)
            TRY(lathe__dist_copy(w, lathe__dist_arg(w, OUT[s]), r->end[s]));
    return LATHE_OK;
}

/* In round t the rank at place p has group t - p: all ranks make the same calls of the transport. */
lathe_status lathe__dist_relay(struct walk *w, int groups, bool reverse)
{
    struct relay r;
    w->d->groups = groups;
    describe(w, &r, groups, reverse);
    for (int t = 0; t < groups + w->d->t.ranks - 1; t++) {
        const int group = t - r.place;
        const bool has = group >= 0 && group < groups;
        const bool sends = has && !r.last;
        const bool takes = r.place > 0 && group + 1 >= 0 && group + 1 < groups;
        if (has)
            TRY(compute(w, &r, group));
        TRY(lathe__dist_exchange(w, r.in[0].data, takes ? r.bytes : 0, r.before, r.out[0].data,
                                 sends ? r.bytes : 0, r.after, w->stream));
    }
    return spread_end(w, &r, reverse);
}
