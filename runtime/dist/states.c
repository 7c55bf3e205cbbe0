/*
 * states.c: linear attention of tokens in shards. S behind a shard is T S ahead + B: B is what it leaves
 * where it begins with 0, T what it leaves of the unit matrix (of ones, where T has a number for each
 * element) where v is 0. One all-gather of both, then everybody walks along the ranks in the order of tokens
 * up to its own S, and computes its tokens. What nobody reads is not computed: the first rank, ahead of which
 * is nothing, has its o at once. Backward the same from the end: dS ahead is T' dS behind + C, where C is the
 * gradient of a shard behind which nothing counts.
 *
 * Where options.parallel_states asks for it, a forward pass goes through the tokens of a rank once, and that
 * waits for nobody: o = o0 + r S for a row r of each token, since each column of S goes its way alone and
 * adds up with what tokens write. So d columns more, which begin with the unit matrix and write nothing,
 * leave r and T beside o0 and B.
 */
#include "runtime/dist/dist.h"
#include "gen/linear/carry.h"
#include "runtime/jit/jit.h"

#include <string.h>

enum { STATE, NORM, STATES }; /* S [seqs,h,d,d_v]; the sum of keys beside it [seqs,h,d] */

struct lead { /* what all ranks know of each other's shards */
    enum carry carry;
    bool reverse, norm;
    bool first, last;  /* this rank's tokens are read first of all, last of all */
    bool begins, ends; /* a state ahead of all tokens is given; that behind them is asked for */
    bool back_begins,
        back_ends; /* backward: the gradient of the state behind all is given; that ahead is asked for */
    struct tensor like[STATES]; /* shapes, without data */
    struct tensor left[STATES]; /* [ranks,..]: B; then C */
    struct tensor carried;      /* [ranks,seqs,h,d,d_v or d]: T */
    struct tensor both;         /* parallel: [ranks,seqs,h,d,d_v + d], B and T side by side */
};

/* Names by STATE and NORM. */
static const char *const IN[STATES] = {"state", "norm"};
static const char *const OUT[STATES] = {"state_out", "norm_out"};
static const char *const D_IN[STATES] = {"dstate", "dnorm"};
static const char *const D_OUT[STATES] = {"dstate_out", "dnorm_out"};

/* ---- tensors ----------------------------------------------------------------------------------------------
 */

static struct tensor like(struct walk *w, struct tensor t)
{
    t = lathe__dist_compact(w, t.dtype, t.ndim, t.shape);
    return t;
}

/* A tensor [ranks,..] of tensors like t. */
static struct tensor for_ranks(struct walk *w, struct tensor t)
{
    int64_t shape[LATHE_MAX_DIMS] = {w->d->t.ranks};
    memcpy(shape + 1, t.shape, (size_t)t.ndim * sizeof *shape);
    return lathe__dist_compact(w, t.dtype, t.ndim + 1, shape);
}

static struct tensor of_rank(struct tensor t, int rank)
{
    t = lathe__dist_slice(t, 0, rank, 1);
    for (int k = 0; k + 1 < t.ndim; k++) {
        t.shape[k] = t.shape[k + 1];
        t.stride[k] = t.stride[k + 1];
    }
    t.ndim--;
    return t;
}

/* Zeros of a shape, one element in memory. */
static lathe_status make_zeros(struct walk *w, struct tensor shaped, struct tensor *out)
{
    const int64_t one[1] = {1};
    struct tensor t = lathe__dist_compact(w, shaped.dtype, 1, one);
    TRY(lathe__dist_zero(w, t));
    *out = shaped;
    out->data = t.data;
    memset(out->stride, 0, sizeof out->stride);
    return LATHE_OK;
}

static bool has_tokens(const struct walk *w)
{
    return lathe__dist_tokens(w->d, true, w->d->t.rank) > 0;
}

/* Results of the call's that nobody takes. */
static void put_unused(struct walk *w, struct call *c, const char *const *name, const struct lead *l)
{
    for (int s = 0; s < STATES; s++)
        if (lathe__dist_arg(w, name[s]).name)
            lathe__dist_put(c, lathe__dist_named(like(w, l->like[s]), name[s]));
}

static void put_states(struct call *c, const struct lead *l, const char *const *name,
                       const struct tensor t[STATES])
{
    for (int s = 0; s < STATES; s++)
        if (s == STATE || l->norm)
            lathe__dist_put(c, lathe__dist_named(t[s], name[s]));
}

/* ---- what a shard leaves ----------------------------------------------------------------------------------
 */

/* A row of `columns` for each token, as o has them. */
static struct tensor output(struct walk *w, int64_t columns)
{
    struct tensor t = lathe__dist_arg(w, "v");
    const struct tensor o = lathe__dist_arg(w, "o");
    t.dtype = o.name ? o.dtype : t.dtype;
    t.shape[2] = lathe__dist_arg(w, "q").shape[2]; /* a token may have several rows of v */
    t.shape[3] = columns;
    return lathe__dist_named(like(w, t), "o");
}

static lathe_status forward_call(struct walk *w, struct call *c, bool results)
{
    TRY(lathe__dist_add_rest(w, c, LATHE_FORWARD, results));
    return lathe__dist_launch_spec(w, w->d->spec, LATHE_FORWARD, c);
}

/* Of the last rank nobody reads it but who asks for the state behind all. Where nothing is ahead of the
   tokens, this is the forward pass itself: results. */
static lathe_status find_left(struct walk *w, const struct lead *l, bool results)
{
    struct tensor zero[STATES];
    struct tensor left[STATES];
    struct call c = {0};
    const size_t mark = w->used;
    if (l->last && !l->ends && !results)
        return LATHE_OK;
    for (int s = 0; s < (l->norm ? STATES : NORM); s++) {
        left[s] = of_rank(l->left[s], w->d->t.rank);
        zero[s] = like(w, l->like[s]);
        TRY(lathe__dist_zero(w, has_tokens(w) ? zero[s] : left[s]));
    }
    put_states(&c, l, IN, zero);
    put_states(&c, l, OUT, left);
    lathe__dist_put(&c, results ? lathe__dist_arg(w, "o") : output(w, l->like[STATE].shape[3]));
    if (has_tokens(w))
        TRY(forward_call(w, &c, false));
    w->used = mark;
    return LATHE_OK;
}

/* Is T of a rank multiplied by anything that is not 0, for anybody? */
static bool needs_carried(const struct walk *w, const struct lead *l, int rank)
{
    const int end = w->d->t.ranks - 1;
    const bool first = rank == (l->reverse ? end : 0);
    const bool last = rank == (l->reverse ? 0 : end);
    const bool ahead = (!first || l->begins) && (!last || l->ends);
    const bool back = w->d->pass == LATHE_BACKWARD && (!last || l->back_begins) && (!first || l->back_ends);
    return l->carry != CARRY_WHOLE && (ahead || back);
}

static lathe_status find_carried(struct walk *w, const struct lead *l)
{
    const struct tensor own = of_rank(l->carried, w->d->t.rank);
    const enum map unit = l->carry == CARRY_MIXED ? MAP_UNIT : MAP_ONE;
    const size_t mark = w->used;
    struct tensor v = lathe__dist_arg(w, "v");
    struct call c = {0};
    v.shape[3] = own.shape[3];
    if (!has_tokens(w))
        return lathe__dist_set(w, own, unit);
    struct tensor state[STATES] = {like(w, own), like(w, l->like[NORM])};
    const struct tensor after[STATES] = {own, like(w, l->like[NORM])};
    TRY(lathe__dist_set(w, state[STATE], unit));
    if (l->norm)
        TRY(lathe__dist_zero(w, state[NORM]));
    TRY(make_zeros(w, v, &v));
    lathe__dist_put(&c, lathe__dist_named(v, "v"));
    lathe__dist_put(&c, output(w, v.shape[3]));
    put_states(&c, l, IN, state);
    put_states(&c, l, OUT, after);
    TRY(forward_call(w, &c, false));
    w->used = mark;
    return LATHE_OK;
}

static lathe_status gather(struct walk *w, struct tensor t)
{
    size_t place[LATHE_MOST_RANKS];
    size_t bytes[LATHE_MOST_RANKS];
    const size_t each = (size_t)t.stride[0] * lathe_dtype_size(t.dtype);
    for (int r = 0; r < w->d->t.ranks; r++) {
        place[r] = (size_t)r * each;
        bytes[r] = each;
    }
    return lathe__dist_all_gather(w, t.data, place, bytes, of_rank(t, w->d->t.rank).data);
}

static lathe_status gather_left(struct walk *w, const struct lead *l)
{
    TRY(gather(w, l->left[STATE]));
    return l->norm ? gather(w, l->left[NORM]) : LATHE_OK;
}

/* ---- along the ranks --------------------------------------------------------------------------------------
 */

/* to = a from + more, matrices of the last two dims: tokens are the rows of a, which write nothing. */
static lathe_status multiply_add(struct walk *w, struct tensor to, struct tensor a, struct tensor from,
                                 struct tensor more)
{
    static const char TEXT[] = "return linear_attention { scale = 1.0 }";
    struct tensor o = like(w, to);
    struct tensor k;
    struct tensor v;
    struct call c = {0};
    if (!w->d->product)
        TRY(lathe_spec_parse(&w->d->product, "dist_product", TEXT, sizeof TEXT - 1, w->err));
    TRY(make_zeros(w, a, &k));
    TRY(make_zeros(w, to, &v));
    lathe__dist_put(&c, lathe__dist_named(a, "q"));
    lathe__dist_put(&c, lathe__dist_named(k, "k"));
    lathe__dist_put(&c, lathe__dist_named(v, "v"));
    lathe__dist_put(&c, lathe__dist_named(o, "o"));
    lathe__dist_put(&c, lathe__dist_named(from, "state"));
    TRY(lathe__dist_launch_spec(w, w->d->product, LATHE_FORWARD, &c));
    TRY(lathe__dist_add(w, o, more));
    return lathe__dist_copy(w, to, o);
}

/* T of a rank for a state, or for the sum of keys: its first column. */
static struct tensor carried_of(const struct lead *l, int rank, int s)
{
    struct tensor t = of_rank(l->carried, rank);
    if (s == NORM) {
        t = lathe__dist_slice(t, 3, 0, 1);
        t.ndim = 3;
    }
    return t;
}

static struct tensor transposed(struct tensor t)
{
    const int64_t stride = t.stride[2];
    t.stride[2] = t.stride[3];
    t.stride[3] = stride;
    return t;
}

/* Over one rank's shard: t becomes T t + left, or T' t + left. zero: t is 0, and T may not be there. */
static lathe_status step(struct walk *w, const struct lead *l, int rank, struct tensor t, int s, bool back,
                         bool zero)
{
    const size_t mark = w->used;
    const struct tensor left = of_rank(l->left[s], rank);
    lathe_status status;
    if (zero)
        status = lathe__dist_copy(w, t, left);
    else if (l->carry == CARRY_WHOLE)
        status = lathe__dist_add(w, t, left);
    else if (l->carry == CARRY_SCALED) {
        const struct tensor next = like(w, t);
        status = lathe__dist_scale_add(w, next, t, carried_of(l, rank, s), left);
        if (status == LATHE_OK)
            status = lathe__dist_copy(w, t, next);
    } else {
        const struct tensor a = of_rank(l->carried, rank);
        status = multiply_add(w, t, back ? transposed(a) : a, t, left);
    }
    w->used = mark;
    return status;
}

/* From the caller's tensors of names `begin` (0 where there is none) along all ranks; own: a copy ahead of
   this rank's shard; the caller's of names `end` get what is behind all. */
static lathe_status walk_ranks(struct walk *w, const struct lead *l, bool back, const char *const *begin,
                               const char *const *end, struct tensor own[STATES])
{
    for (int s = 0; s < (l->norm ? STATES : NORM); s++) {
        const struct tensor first = lathe__dist_arg(w, begin[s]);
        const struct tensor last = lathe__dist_arg(w, end[s]);
        const struct tensor t = like(w, l->like[s]);
        own[s] = like(w, l->like[s]);
        TRY(first.name ? lathe__dist_copy(w, t, first) : lathe__dist_zero(w, t));
        for (int i = 0; i < w->d->t.ranks; i++) {
            const int rank = l->reverse != back ? w->d->t.ranks - 1 - i : i;
            if (rank == w->d->t.rank)
                TRY(lathe__dist_copy(w, own[s], t));
            if (rank == w->d->t.rank && !last.name)
                break;
            TRY(step(w, l, rank, t, s, back, i == 0 && !first.name));
        }
        if (last.name)
            TRY(lathe__dist_copy(w, last, t));
    }
    return LATHE_OK;
}

/* ---- what ranks know of each other ------------------------------------------------------------------------
 */

static bool is_given(const struct walk *w, const char *const *name)
{
    return lathe__dist_arg(w, name[STATE]).name || lathe__dist_arg(w, name[NORM]).name;
}

/* Columns of each rank's B and T lie side by side. */
static void place_both(struct walk *w, struct lead *l)
{
    struct tensor both = l->like[STATE];
    const int64_t d = both.shape[2];
    const int64_t d_v = both.shape[3];
    both.shape[3] += d;
    l->carry = CARRY_MIXED;
    l->both = for_ranks(w, both);
    l->left[STATE] = lathe__dist_slice(l->both, 4, 0, d_v);
    l->carried = lathe__dist_slice(l->both, 4, d_v, d);
}

static void describe_states(struct walk *w, struct lead *l)
{
    const struct tensor q = lathe__dist_arg(w, "q");
    const struct tensor v = lathe__dist_arg(w, "v");
    const int64_t shape[4] = {v.shape[0], v.shape[1], q.shape[3], v.shape[3]};
    char why[256];
    lathe_arg_info info;
    *l = (struct lead){.norm = false};
    l->carry = (enum carry)lathe__spec_carry(w->d->spec, shape[2] == shape[3], &l->reverse, why, sizeof why);
    l->first = w->d->t.rank == (l->reverse ? w->d->t.ranks - 1 : 0);
    l->last = w->d->t.rank == (l->reverse ? 0 : w->d->t.ranks - 1);
    l->begins = is_given(w, IN);
    l->ends = is_given(w, OUT);
    l->back_begins = is_given(w, D_OUT);
    l->back_ends = is_given(w, D_IN);
    for (int i = 0; lathe_spec_arg(w->d->spec, LATHE_FORWARD, i, &info); i++)
        l->norm |= strcmp(info.name, "norm") == 0;
    for (int s = 0; s < STATES; s++) {
        l->like[s] =
            (struct tensor){.name = "", .dtype = lathe__dist_wide(v.dtype), .ndim = s == STATE ? 4 : 3};
        memcpy(l->like[s].shape, shape, sizeof shape);
        if ((s == STATE && !w->d->o.parallel_states) || l->norm)
            l->left[s] = for_ranks(w, l->like[s]);
    }
    if (w->d->o.parallel_states) {
        place_both(w, l);
        return;
    }
    struct tensor carried = l->like[STATE];
    carried.shape[3] = l->carry == CARRY_MIXED ? carried.shape[2] : carried.shape[3];
    if (l->carry != CARRY_WHOLE)
        l->carried = for_ranks(w, carried);
}

/* ---- forward, parallel ------------------------------------------------------------------------------------
 */

/* v beside columns of 0, from a state of 0 beside the unit matrix: o0 and r of each token, B and T of all. */
static lathe_status find_both(struct walk *w, const struct lead *l, struct tensor rows)
{
    const struct tensor own = of_rank(l->both, w->d->t.rank);
    const struct tensor given = lathe__dist_arg(w, "v");
    const int64_t d_v = given.shape[3];
    const int64_t d = own.shape[2];
    const size_t mark = w->used;
    struct tensor v = given;
    struct call c = {0};
    v.shape[3] += d;
    v = like(w, v);
    const struct tensor state = like(w, own);
    TRY(lathe__dist_copy(w, lathe__dist_slice(v, 3, 0, d_v), given));
    TRY(lathe__dist_zero(w, lathe__dist_slice(v, 3, d_v, d)));
    TRY(lathe__dist_zero(w, lathe__dist_slice(state, 3, 0, d_v)));
    TRY(lathe__dist_set(w, lathe__dist_slice(state, 3, d_v, d), MAP_UNIT));
    lathe__dist_put(&c, lathe__dist_named(v, "v"));
    lathe__dist_put(&c, lathe__dist_named(rows, "o"));
    lathe__dist_put(&c, lathe__dist_named(state, "state"));
    lathe__dist_put(&c, lathe__dist_named(own, "state_out"));
    TRY(forward_call(w, &c, false));
    w->used = mark;
    return LATHE_OK;
}

/* o = o0 + r S: tokens read S by r and write nothing. */
static lathe_status add_state(struct walk *w, struct tensor rows, struct tensor state)
{
    static const char TEXT[] =
        "return linear_attention { scale = 1.0, inputs = { more = tensor('float', 'b', 'h', 't', 'd_v') },\n"
        "  output_mod = function(o, at, x) return o + x.more(at.b, at.h, at.t, at.i) end }";
    const struct tensor o = lathe__dist_arg(w, "o");
    const int64_t d_v = o.shape[3];
    const struct tensor r = lathe__dist_slice(rows, 3, d_v, rows.shape[3] - d_v);
    struct tensor k;
    struct tensor v;
    struct call c = {0};
    if (!w->d->sum)
        TRY(lathe_spec_parse(&w->d->sum, "dist_sum", TEXT, sizeof TEXT - 1, w->err));
    TRY(make_zeros(w, r, &k));
    TRY(make_zeros(w, o, &v));
    lathe__dist_put(&c, lathe__dist_named(r, "q"));
    lathe__dist_put(&c, lathe__dist_named(k, "k"));
    lathe__dist_put(&c, lathe__dist_named(v, "v"));
    lathe__dist_put(&c, lathe__dist_named(lathe__dist_slice(rows, 3, 0, d_v), "more"));
    lathe__dist_put(&c, lathe__dist_named(state, "state"));
    lathe__dist_put(&c, o);
    return lathe__dist_launch_spec(w, w->d->sum, LATHE_FORWARD, &c);
}

/* Ahead of the first rank's tokens is nothing: its call is the forward pass itself. */
static lathe_status forward_parallel(struct walk *w)
{
    struct lead l;
    struct tensor state[STATES];
    struct tensor rows = {.name = ""};
    describe_states(w, &l);
    const bool nothing = l.first && !l.begins;
    if (nothing || !has_tokens(w)) {
        TRY(find_left(w, &l, nothing));
        if (!has_tokens(w))
            TRY(lathe__dist_set(w, of_rank(l.carried, w->d->t.rank), MAP_UNIT));
    } else {
        rows = output(w, l.both.shape[4]);
        TRY(find_both(w, &l, rows));
    }
    TRY(gather(w, l.both));
    TRY(walk_ranks(w, &l, false, IN, OUT, state));
    return nothing || !has_tokens(w) ? LATHE_OK : add_state(w, rows, state[STATE]);
}

/* ---- both passes, serially --------------------------------------------------------------------------------
 */

/* What all need for the states ahead of their tokens. */
static lathe_status exchange_states(struct walk *w, const struct lead *l, bool results)
{
    bool anybody = false;
    TRY(find_left(w, l, results));
    if (needs_carried(w, l, w->d->t.rank))
        TRY(find_carried(w, l));
    TRY(gather_left(w, l));
    for (int r = 0; r < w->d->t.ranks; r++)
        anybody |= needs_carried(w, l, r);
    return anybody ? gather(w, l->carried) : LATHE_OK;
}

static lathe_status forward(struct walk *w)
{
    struct lead l;
    struct tensor state[STATES];
    struct call c = {0};
    describe_states(w, &l);
    const bool at_once = l.first && !l.begins;
    TRY(exchange_states(w, &l, at_once));
    TRY(walk_ranks(w, &l, false, IN, OUT, state));
    put_states(&c, &l, IN, state);
    put_unused(w, &c, OUT, &l);
    return has_tokens(w) && !at_once ? forward_call(w, &c, true) : LATHE_OK;
}

/* C: gradients of the states ahead of own tokens where nothing behind them counts. results: nothing does, and
   this is the backward pass itself. */
static lathe_status find_back(struct walk *w, const struct lead *l, const struct tensor state[STATES],
                              bool results)
{
    struct tensor zero[STATES];
    struct tensor back[STATES];
    struct call c = {0};
    const size_t mark = w->used;
    if (l->first && !l->back_ends && !results)
        return LATHE_OK;
    for (int s = 0; s < (l->norm ? STATES : NORM); s++) {
        back[s] = of_rank(l->left[s], w->d->t.rank);
        zero[s] = like(w, l->like[s]);
        TRY(lathe__dist_zero(w, has_tokens(w) ? zero[s] : back[s]));
    }
    put_states(&c, l, IN, state);
    put_states(&c, l, D_OUT, zero);
    put_states(&c, l, D_IN, back);
    TRY(lathe__dist_add_rest(w, &c, LATHE_BACKWARD, results));
    if (has_tokens(w))
        TRY(lathe__dist_launch_spec(w, w->d->spec, LATHE_BACKWARD, &c));
    w->used = mark;
    return LATHE_OK;
}

static lathe_status backward(struct walk *w)
{
    static const char *const none[STATES] = {"", ""};
    struct lead l;
    struct tensor state[STATES];
    struct tensor behind[STATES];
    struct call c = {0};
    describe_states(w, &l);
    const bool at_once = l.last && !l.back_begins;
    TRY(exchange_states(w, &l, false));
    TRY(walk_ranks(w, &l, false, IN, none, state));
    TRY(find_back(w, &l, state, at_once));
    TRY(gather_left(w, &l));
    TRY(walk_ranks(w, &l, true, D_OUT, D_IN, behind));
    put_states(&c, &l, IN, state);
    put_states(&c, &l, D_OUT, behind);
    put_unused(w, &c, D_IN, &l);
    if (!has_tokens(w))
        return lathe__dist_clear_shares(w);
    if (at_once)
        return LATHE_OK;
    TRY(lathe__dist_add_rest(w, &c, LATHE_BACKWARD, true));
    return lathe__dist_launch_spec(w, w->d->spec, LATHE_BACKWARD, &c);
}

static lathe_status steps(struct walk *w)
{
    if (w->d->o.parallel_states)
        return forward_parallel(w);
    return w->d->pass == LATHE_BACKWARD ? backward(w) : forward(w);
}

const struct scheme lathe__dist_states = {"states", steps, false, false};
