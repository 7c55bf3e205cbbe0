/*
 * rescale.c: may a row keep its running maximum where online_fwd would raise it? In: a lowered spec. Out: the
 * same with w->lowered.rescale, and an online function that raises the maximum lazily or not at all.
 *
 * The algebra. Let m be a row state, m' = max(m, f) its value after the tile, where f is the largest score
 * e_j of the tile. If
 *
 *  - the weights are exp(e_j - m') and the factor of o is exp(m - m'),
 *  - every other row state z has a law c: moving m by t and z to z exp(c t) before the tile, or m' by t',
 *    leaves what comes out on the same law (row sums of weights: c = -1),
 *  - the factor of the epilogue is multiplied by exp(t), and no final changes, where m is moved by t and the
 *    other states follow their laws,
 *
 * then o and the finals are the same for every finite m', and any value that keeps the weights in range
 * will do:
 *
 *  - BOUNDED: scores lie in a known interval, and a constant serves.
 *  - LAZY: m, unless f is above it by more than LAZY_STEP, so no weight is above exp(LAZY_STEP). A kernel
 *    that looks at the sums of the weights afterwards may go further and keep m unasked
 * (w->lowered.rescale.kept).
 *  - BELOW: f less E4M3_STEP in the place of f, where weights become e4m3: the largest one of a row is then
 *    exp(E4M3_STEP) = 2^8, so that those down to 2^-17 of it are numbers that e4m3 has.
 *
 * Laws are found by lower/laws.c, equality of exponents by terms.c. Everything else is EXACT, or DEFERRED
 * where normalise_late.c finds that o may be normalised at the end.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"
#include "gen/lower/laws.h"
#include "gen/lower/terms.h"
#include "gen/lower/ranges.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LN_2 = 0.69314718055994531;
static const double LAZY_STEP = 8 * 0.69314718055994531; /* weights up to 2^8 */
static const double E4M3_STEP = 8 * 0.69314718055994531; /* the same: e4m3 ends at 448 */
static const double E4M3_MOST = 256;

struct search {
    struct ir *w;
    int state;               /* m */
    int now;                 /* m': a node */
    int found;               /* f */
    double times[MAX_STATE]; /* c of the other states */
    bool positive[MAX_STATE];
    struct shift *law;
    bool *given;
    bool *used;
    struct terms *terms;
    struct range *range;
};

static bool refuse(struct search *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool refuse(struct search *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    lathe__format(s->w->lowered.rescale.why, sizeof s->w->lowered.rescale.why, fmt, args);
    va_end(args);
    return false;
}

static int state_node(struct ir *w, int k)
{
    return ir_param(w, LEAF_STATE + k, (struct ir_at){0, 0});
}

/* ---- laws ------------------------------------------------------------------------------------ */

/* The states before a tile, or after the last one, as the move `SHIFT_OLD` leaves them. */
static void give_states(struct search *s, bool start)
{
    const struct ir *w = s->w;
    memset(s->given, 0, (size_t)w->n_nodes * sizeof *s->given);
    for (int k = 0; k < w->n_states; k++) {
        int node = state_node(s->w, k);
        struct shift law = {.known = true, .positive = s->positive[k]};
        law.add[SHIFT_OLD] = k == s->state;
        law.times[SHIFT_OLD] = k == s->state ? 0 : s->times[k];
        if (start && k != s->state) {
            law.zero = w->state[k].init == 0;
            law.positive = w->state[k].init > 0;
        }
        s->law[node] = law;
        s->given[node] = true;
    }
}

static void online_laws(struct search *s, bool start)
{
    give_states(s, start);
    s->law[s->now] = (struct shift){.known = true, .add[SHIFT_NEW] = 1};
    s->given[s->now] = true;
    shift_laws(s->w, s->w->online.root, s->w->online.n_roots, s->given, s->law, s->used);
}

static bool root_scales(const struct search *s, int root, double old, double new)
{
    const double add[SHIFT_MOVES] = {0};
    const double times[SHIFT_MOVES] = {[SHIFT_OLD] = old, [SHIFT_NEW] = new};
    const struct shift *law = &s->law[s->w->online.root[root]];
    return shift_has_law(law, add, times);
}

static bool states_follow(const struct search *s)
{
    for (int k = 0; k < s->w->n_states; k++)
        if (k != s->state && !root_scales(s, 2 + k, 0, s->times[k]))
            return false;
    return true;
}

/* Which states are positive once m is finite: those that the first tile makes so, and later ones keep so. */
static void find_positive(struct search *s)
{
    memset(s->positive, 0, sizeof s->positive);
    online_laws(s, true);
    bool from_start = s->w->state[s->state].init == -HUGE_VAL; /* a finite m: there was a tile */
    for (int k = 0; k < s->w->n_states; k++)
        s->positive[k] = k != s->state && (from_start || s->w->state[k].init > 0) &&
                         s->law[s->w->online.root[2 + k]].positive;
    online_laws(s, false);
    for (int k = 0; k < s->w->n_states; k++)
        s->positive[k] = s->positive[k] && s->law[s->w->online.root[2 + k]].positive;
    online_laws(s, false);
}

/* Row sums of weights, values that do not depend on m, row sums of squared weights: the first laws of the
   other states that fit together. */
static bool find_state_laws(struct search *s)
{
    static const double LAWS[] = {-1, 0, -2};
    enum { N_LAWS = 3 };
    int ways = 1;
    for (int k = 1; k < s->w->n_states; k++)
        ways *= N_LAWS;
    for (int way = 0; way < ways; way++) {
        int rest = way;
        for (int k = 0; k < s->w->n_states; k++) {
            if (k == s->state)
                continue;
            s->times[k] = LAWS[rest % N_LAWS];
            rest /= N_LAWS;
        }
        find_positive(s);
        if (states_follow(s))
            return true;
    }
    return refuse(s, "a row state beside %s is no sum of weights", s->w->state[s->state].name);
}

static bool epilogue_follows(struct search *s)
{
    const struct ir *w = s->w;
    static const double none[SHIFT_MOVES];
    const double one[SHIFT_MOVES] = {[SHIFT_OLD] = 1};
    give_states(s, false);
    shift_laws(w, w->epilogue.root, w->epilogue.n_roots, s->given, s->law, s->used);
    if (!shift_has_law(&s->law[w->epilogue.root[0]], none, one))
        return refuse(s, "the epilogue's factor of o does not follow exp(%s)", w->state[s->state].name);
    for (int i = 0; i < w->n_finals; i++)
        if (!shift_is_free(&s->law[w->epilogue.root[1 + i]]))
            return refuse(s, "final %s depends on the value of %s itself", w->final[i].name,
                          w->state[s->state].name);
    return true;
}

/* ---- exponents ------------------------------------------------------------------------------- */

/* What a value is under the assumptions: choices whose condition is decided are what they choose. */
static int decided_value(const struct search *s, int node)
{
    while (s->w->node[node].op == OP_WHERE && s->law[s->w->node[node].arg[0]].truth != 0)
        node = s->w->node[node].arg[s->law[s->w->node[node].arg[0]].truth > 0 ? 1 : 2];
    return node;
}

/* A weight, or 0 where a condition that knows nothing of row states drops it, as dropout does: the weight. */
static int kept_weight(const struct search *s, int node)
{
    const struct ir_node *n = &s->w->node[node];
    if (n->op != OP_WHERE || !shift_is_free(&s->law[n->arg[0]]))
        return node;
    const struct ir_node *otherwise = &s->w->node[n->arg[2]];
    return otherwise->op == OP_CONST && otherwise->value == 0 ? n->arg[1] : node;
}

/* x of exp(x). False: it is no exponential. */
static bool exponent(const struct search *s, int node, struct terms *out)
{
    const struct ir_node *n = &s->w->node[decided_value(s, kept_weight(s, decided_value(s, node)))];
    out->n = 0;
    if (n->op != OP_EXP && n->op != OP_EXP2)
        return false;
    return terms_add(out, &s->terms[n->arg[0]], n->op == OP_EXP ? 1 : LN_2);
}

static double term_size(const struct terms *t)
{
    double size = 0;
    for (int i = 0; i < t->n; i++)
        size = fmax(size, fabs(t->term[i].by));
    return size;
}

/* sum == 0 but for the rounding of constants. `size`: of the terms that went in. */
static bool is_nothing(const struct terms *sum, double size)
{
    return term_size(sum) <= 1e-9 * fmax(size, 1);
}

static bool surely_positive(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    return n->op == OP_EXP || n->op == OP_EXP2 || n->op == OP_RSQRT || (n->op == OP_CONST && n->value > 0);
}

/* One term c a b rowmax(x) of f: the others of its factors must be positive. Adds c a b x; false: it is
 * different. */
static bool add_row_term(const struct search *s, const struct term *t, struct terms *out)
{
    struct terms factor = {.n = 1, .term = {{.by = t->by}}};
    struct terms product;
    int maximum = -1;
    for (int i = 0; i < t->n; i++) {
        const struct ir_node *n = &s->w->node[t->atom[i]];
        struct term *to = &factor.term[0];
        if (n->op == OP_ROWMAX && maximum < 0)
            maximum = t->atom[i];
        else if (n->span & SPAN_KV)
            return false;
        else
            to->atom[to->n++] = t->atom[i];
    }
    if (maximum < 0)
        return terms_add(out, &factor, 1);
    for (int i = 0; i < factor.term[0].n; i++)
        if (!surely_positive(s->w, factor.term[0].atom[i]))
            return false;
    return t->by > 0 && terms_multiply(&factor, &s->terms[s->w->node[maximum].arg[0]], &product) &&
           terms_add(out, &product, 1);
}

/* The score e_j whose maximum f is. */
static bool found_score(const struct search *s, struct terms *out)
{
    const struct terms *f = &s->terms[s->found];
    out->n = 0;
    for (int i = 0; i < f->n; i++)
        if (!add_row_term(s, &f->term[i], out))
            return false;
    return true;
}

static bool exponents_fit(struct search *s)
{
    struct ir *w = s->w;
    const char *m = w->state[s->state].name;
    struct terms score;
    struct terms sum;
    terms_of_all(w, w->n_nodes - 1, s->now, s->law, s->terms);
    if (!found_score(s, &score))
        return refuse(s, "%s is not the maximum of something", m);
    if (!exponent(s, w->online.root[0], &sum))
        return refuse(s, "the weights are no exponential");
    double size = fmax(term_size(&sum), term_size(&score));
    if (!terms_add(&sum, &score, -1) || !terms_add(&sum, &s->terms[s->now], 1) || !is_nothing(&sum, size))
        return refuse(s, "the weights are not exp(score - %s)", m);
    if (!exponent(s, w->online.root[1], &sum) || !terms_add(&sum, &s->terms[s->now], 1) ||
        !terms_add(&sum, &s->terms[state_node(w, s->state)], -1) || !is_nothing(&sum, 1))
        return refuse(s, "the factor of o is not exp(old %s - new %s)", m, m);
    return true;
}

/* Is m' = max(m, f) for row state k? */
static bool is_maximum(struct search *s, int k)
{
    const struct ir *w = s->w;
    int m = state_node(s->w, k);
    s->state = k;
    s->now = w->online.root[2 + k];
    const struct ir_node *n = &w->node[s->now];
    if (n->op != OP_MAX || (n->arg[0] != m && n->arg[1] != m))
        return false;
    s->found = n->arg[n->arg[0] == m ? 1 : 0];
    return true;
}

/* May any number stand in its place? */
static bool maximum_is_free(struct search *s)
{
    const struct ir *w = s->w;
    const char *m = w->state[s->state].name;
    if (!find_state_laws(s))
        return false;
    if (!root_scales(s, 0, 0, -1) || !root_scales(s, 1, 1, -1))
        return refuse(s, "the weights and the factor of o do not follow %s", m);
    if (!shift_is_free(&s->law[s->found]))
        return refuse(s, "%s is the maximum of values that depend on the row state", m);
    return exponents_fit(s) && epilogue_follows(s);
}

static bool find_maximum(struct search *s)
{
    refuse(s, "no row state is a running maximum");
    for (int k = 0; k < s->w->n_states; k++)
        if (is_maximum(s, k) && maximum_is_free(s))
            return true;
    return false;
}

/* ---- rewriting ------------------------------------------------------------------------------- */

enum { REPLACED_MAX = 64 };
struct replaced {
    int n;
    int from[REPLACED_MAX];
    int to[REPLACED_MAX];
};

static bool replace(struct replaced *r, int from, int to)
{
    if (r->n == REPLACED_MAX)
        return false;
    r->from[r->n] = from;
    r->to[r->n++] = to;
    return true;
}

/* exp(x) where x is 0 if m' is m? */
static bool becomes_one(const struct search *s, int node)
{
    const struct ir_node *n = &s->w->node[node];
    struct terms sum = {.n = 0};
    if (n->op != OP_EXP && n->op != OP_EXP2)
        return false;
    const struct terms *x = &s->terms[n->arg[0]];
    int m = state_node(s->w, s->state);
    for (int i = 0; i < x->n; i++) {
        struct term t = x->term[i];
        for (int k = 0; k < t.n; k++)
            t.atom[k] = t.atom[k] == s->now ? m : t.atom[k];
        struct terms one = {.n = 1, .term = {t}};
        if (t.n > 1 || !terms_add(&sum, &one, 1))
            return false;
    }
    return is_nothing(&sum, term_size(x));
}

/* online_fwd where m' is m, under the assumptions of lower/laws.c. */
static bool make_kept(struct search *s, struct ir_fn *kept)
{
    struct ir *w = s->w;
    struct replaced r = {0};
    online_laws(s, false);
    int n = w->n_nodes; /* the constants made below are no part of the graph at hand */
    bool ok = replace(&r, s->now, state_node(w, s->state));
    for (int i = 0; i < n && ok; i++) {
        if (!s->used[i] || i == s->now)
            continue;
        if (s->law[i].truth != 0)
            ok = replace(&r, i, ir_const(w, s->law[i].truth > 0, TYPE_BOOL));
        else if (becomes_one(s, i))
            ok = replace(&r, i, ir_const(w, 1, TYPE_F32));
    }
    *kept = w->online;
    for (int i = 0; i < kept->n_roots && ok; i++)
        kept->root[i] = ir_substitute(w, w->online.root[i], r.from, r.to, r.n);
    const struct ir_node *scale = &w->node[kept->root[1]];
    return ok && !w->failed && scale->op == OP_CONST && scale->value == 1 &&
           w->node[kept->root[0]].phase == 0;
}

/* The row sum of the weights, -1 where there is none. */
static int find_watch(const struct search *s, const struct ir_fn *kept)
{
    struct ir *w = s->w;
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    int sum = -1;
    w->failed |= !used;
    if (used)
        ir_mark(w, kept->root, kept->n_roots, used);
    for (int i = 0; used && i < w->n_nodes; i++)
        if (used[i] && w->node[i].op == OP_ROWSUM && w->node[i].arg[0] == kept->root[0])
            sum = i;
    free(used);
    return sum;
}

/* A constant in the place of m, such that weights stay within what 16 bits hold and their sums within what 32
   bits hold. False: the scores may be too far apart. */
static bool find_constant(struct search *s, lathe_dtype dtype, double *out)
{
    static const double BF16_SPAN = 120; /* in powers of 2: weights of 2^-60 to 2^60; also of f32 */
    static const double F16_SPAN = 22;   /* 2^-14 to 2^8 */
    ranges_of_all(s->w, s->found, s->range);
    const struct range r = s->range[s->found];
    double span = (r.high - r.low) / LN_2;
    s->w->lowered.rescale.low = r.low;
    s->w->lowered.rescale.high = r.high;
    *out = dtype != LATHE_F16 ? (r.low + r.high) / 2 : r.high - LAZY_STEP;
    if (span <= (dtype != LATHE_F16 ? BF16_SPAN : F16_SPAN))
        return true;
    if (isfinite(span))
        return refuse(s, "scores of %g to %g are too far apart for weights in %s", r.low, r.high,
                      lathe_dtype_text(dtype));
    return refuse(s, "nothing bounds the scores");
}

static void substitute_fn(struct ir *w, struct ir_fn *fn, int from, int to)
{
    for (int i = 0; i < fn->n_roots; i++)
        fn->root[i] = ir_substitute(w, fn->root[i], &from, &to, 1);
}

static void fix_maximum(struct search *s, const struct ir_fn *kept, double value)
{
    struct ir *w = s->w;
    int m = state_node(w, s->state);
    int constant = ir_const(w, value, TYPE_F32);
    w->online = *kept;
    substitute_fn(w, &w->online, m, constant);
    substitute_fn(w, &w->epilogue, m, constant);
    w->state[s->state].init = value;
    w->lowered.rescale.path = ROWS_BOUNDED;
}

/* m' = f > m + step ? f : m, which is m too where both are -inf. */
static void raise_lazily(struct search *s, const struct ir_fn *kept)
{
    struct ir *w = s->w;
    const struct ir_at at = {w->node[s->now].file, w->node[s->now].line};
    int m = state_node(w, s->state);
    int growth = ir_make(w, OP_SUB, (int[IR_MAX_ARGS]){s->found, m}, at);
    int much = ir_make(w, OP_GT, (int[IR_MAX_ARGS]){growth, ir_const(w, LAZY_STEP, TYPE_F32)}, at);
    int raised = ir_make(w, OP_WHERE, (int[IR_MAX_ARGS]){much, s->found, m}, at);
    substitute_fn(w, &w->online, s->now, raised);
    w->lowered.rescale.path = ROWS_LAZY;
    w->lowered.rescale.state = s->state;
    w->lowered.rescale.now = raised;
    w->lowered.rescale.kept = *kept;
    w->lowered.rescale.watch = find_watch(s, kept);
}

/* m' = max(m, f - step). What a row starts from, where that is a number, is moved likewise. */
static void stay_below(struct search *s)
{
    struct ir *w = s->w;
    const struct ir_at at = {w->node[s->now].file, w->node[s->now].line};
    const int m = state_node(w, s->state);
    const int found = ir_make(w, OP_SUB, (int[IR_MAX_ARGS]){s->found, ir_const(w, E4M3_STEP, TYPE_F32)}, at);
    const int now = ir_make(w, OP_MAX, (int[IR_MAX_ARGS]){m, found}, at);
    substitute_fn(w, &w->online, s->now, now);
    for (int k = 0; k < w->n_states && isfinite(w->state[s->state].init); k++)
        if (k != s->state)
            w->state[k].init *= exp(-s->times[k] * E4M3_STEP);
    w->state[s->state].init -= E4M3_STEP;
    w->lowered.rescale.path = ROWS_BELOW;
    w->lowered.rescale.state = s->state;
    w->lowered.rescale.now = now;
}

/* Weights in e4m3 that are no exponentials below a maximum: times a power of two, so that the largest one
   that there may be is near E4M3_MOST; o is divided by it at the end. */
static void hold_weights(struct search *s)
{
    struct ir *w = s->w;
    ranges_of_all(w, w->online.root[0], s->range);
    const struct range r = s->range[w->online.root[0]];
    const double most = fmax(fabs(r.low), fabs(r.high));
    w->lowered.rescale.unheld = !isfinite(most);
    if (!isfinite(most) || most == 0)
        return;
    const double by = exp2(floor(log2(E4M3_MOST / most)));
    w->online.root[0] = ir2(w, OP_MUL, w->online.root[0], ir_const(w, by, TYPE_F32));
    w->epilogue.root[0] = ir2(w, OP_MUL, w->epilogue.root[0], ir_const(w, 1 / by, TYPE_F32));
}

static void apply(struct search *s, lathe_dtype dtype)
{
    struct ir_fn kept;
    double constant;
    if (!find_maximum(s))
        return;
    s->w->lowered.rescale.why[0] = 0;
    if (dtype == LATHE_F8_E4M3)
        stay_below(s);
    else if (!make_kept(s, &kept))
        refuse(s, "the online function is too large to be proved");
    else if (find_constant(s, dtype, &constant))
        fix_maximum(s, &kept, constant);
    else
        raise_lazily(s, &kept);
}

void rescale_pass(struct ir *w, lathe_dtype dtype)
{
    struct search s = {.w = w};
    const struct ir_node *scale = &w->node[w->online.root[1]];
    bool fixed = scale->op == OP_CONST && scale->value == 1;
    w->lowered.rescale =
        (struct rescale){.path = w->n_states == 0 && fixed ? ROWS_STATELESS : ROWS_EXACT, .watch = -1};
    for (int k = 0; k < w->n_states; k++)
        (void)state_node(w, k); /* so that the pool does not grow below */
    size_t n = (size_t)w->n_nodes;
    s.law = calloc(n, sizeof *s.law);
    s.given = calloc(n, sizeof *s.given);
    s.used = calloc(n, sizeof *s.used);
    s.terms = calloc(n, sizeof *s.terms);
    s.range = calloc(n, sizeof *s.range);
    if (!s.law || !s.given || !s.used || !s.terms || !s.range)
        w->failed = true;
    else if (w->n_states > 5)
        refuse(&s, "more than 5 row states");
    else if (w->n_states > 0)
        apply(&s, dtype);
    if (w->lowered.rescale.path == ROWS_EXACT && w->n_states > 0 && !w->failed &&
        defer_normaliser(w, dtype)) {
        w->lowered.rescale.path = ROWS_DEFERRED;
        w->lowered.rescale.why[0] = 0;
    }
    if (dtype == LATHE_F8_E4M3 && w->lowered.rescale.path != ROWS_BELOW && !w->failed) {
        struct range *range = realloc(s.range, (size_t)w->n_nodes * sizeof *range);
        s.range = range ? range : s.range;
        w->failed |= !range;
        if (range)
            hold_weights(&s);
    }
    free(s.law);
    free(s.given);
    free(s.used);
    free(s.terms);
    free(s.range);
}

void rescale_say(const struct ir *w, bool optimistic, char *out, size_t size)
{
    const struct rescale *p = &w->lowered.rescale;
    const char *m = p->path == ROWS_LAZY ? w->state[p->state].name : "";
    switch (p->path) {
    case ROWS_STATELESS:
        snprintf(out, size, "stateless: weights by element, without a maximum or a rescaling of o");
        break;
    case ROWS_BOUNDED:
        lathe__print(out, size,
                     "bounded: scores lie in %.6g .. %.6g, so that a constant takes the place of the running "
                     "maximum and o is "
                     "never rescaled",
                     p->low, p->high);
        break;
    case ROWS_LAZY:
        snprintf(out, size,
                 "lazy: weights are exp(score - %s), so %s is raised only where a score is above it by 8 "
                 "powers of two%s%s%s; "
                 "not bounded: %s",
                 m, m, optimistic && p->watch >= 0 ? ", and whole tiles try the " : "",
                 optimistic && p->watch >= 0 ? m : "",
                 optimistic && p->watch >= 0 ? " at hand without looking" : "", p->why);
        break;
    case ROWS_BELOW:
        snprintf(out, size,
                 "below: weights are exp(score - %s) in e4m3, so %s stays 8 powers of two below the largest "
                 "score; "
                 "weights below 2^-17 of a row's largest one are 0 in o",
                 w->state[p->state].name, w->state[p->state].name);
        break;
    case ROWS_DEFERRED:
        snprintf(
            out, size,
            "deferred: weights are values of their pairs times a factor of the row, which o takes once, at "
            "the end");
        break;
    case ROWS_EXACT:
        snprintf(out, size, "exact: every tile as online_fwd says%s%s%s", p->why[0] ? ", for " : "", p->why,
                 p->held
                     ? "; weights are divided by the largest of their row so far, since f16 has no room for "
                       "factors of keys of any size"
                     : "");
        break;
    }
}
