/*
 * index_ranges.c: up to which sizes a spec holds: no integer leaves 32 bits, none is divided by 0, no read
 * lies outside its tensor, whatever the data that inputs declare. In: a checked spec; the sizes of one call,
 * or none. Out: a sentence with the spec's line, or a verdict. What depends on integers without a declared
 * range is not judged. Lengths are looked at up to 2^24, which is what a launch takes, batches to 4096, heads
 * to 256, head dims to 1024, everything else to 2^30.
 */
#include "gen/prove/index_ranges.h"
#include "gen/arguments/problem.h"
#include "gen/arguments/signature.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIMEN = 128, ROUNDS = 8 };
static const int64_t LENGTH_MAX = 1 << 24;
static const int64_t SIZE_MAX_TRIED = 1 << 30;

/* ---- functions of a spec ------------------------------------------------------------------------- */

int index_contexts_of_mods(const struct ir *ir, struct index_context *out)
{
    int n = 0;
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            out[n++] = (struct index_context){.fn = {&ir->mod[m].stage[s].fn},
                                              .n_fns = 1,
                                              .pairs = ir->mod[m].stage[s].form != STAGE_ELEMENT,
                                              .dim_sym = m == MOD_QUERY || m == MOD_KEY ? SYM_D : SYM_D_V};
    return n;
}

/* ---- places of trouble --------------------------------------------------------------------------- */

enum trouble_kind { LEAVES_32_BITS, DIVIDES_BY_0, READS_OUTSIDE };
struct trouble {
    enum trouble_kind kind;
    int context;
    int node;
    int arg;               /* READS_OUTSIDE: which index */
    struct interval value; /* of the result, the divisor, the index */
    double size;           /* READS_OUTSIDE: of the dim */
};
struct search {
    const struct ir *ir;
    int n_contexts;
    struct index_context context[INDEX_CONTEXTS];
    bool *used;
    bool *hashed; /* of nodes: only bit operations take what comes of it, so that wrapping around is meant */
    struct interval *value;
    bool one_row; /* of the sizes of the last trouble */
    bool failed;  /* out of memory */
    int unknown;  /* a read whose index is not known; -1: none */
    int unknown_context;
    const int64_t *fixed; /* sizes that are given, or negative; NULL: none is */
    uint64_t own;         /* dims of their own beyond which something is read */
    int64_t *fit;         /* NULL, or sizes to be raised to what is read */
};

static bool is_bit_operation(const struct ir_node *n)
{
    return n->op == OP_RANDOM || (n->type == TYPE_I32 && n->op >= OP_AND && n->op <= OP_SHR);
}

static bool wraps(const struct ir_node *n)
{
    return n->type == TYPE_I32 && (n->op == OP_ADD || n->op == OP_SUB || n->op == OP_MUL || n->op == OP_NEG);
}

/* other[i]: something else takes the value of i, too. */
static void find_hashed(const struct ir *ir, bool *hashed, bool *other)
{
    memset(other, 0, (size_t)ir->n_nodes * sizeof *other);
    for (int i = ir->n_nodes - 1; i >= 0; i--) {
        const struct ir_node *n = &ir->node[i];
        const bool mixes = is_bit_operation(n) || (wraps(n) && hashed[i] && !other[i]);
        for (int k = 0; k < n->n_args; k++)
            *(mixes ? &hashed[n->arg[k]] : &other[n->arg[k]]) = true;
    }
    for (int i = 0; i < ir->n_nodes; i++)
        hashed[i] &= !other[i];
}

static bool search_open(struct search *s, const struct ir *ir)
{
    memset(s, 0, sizeof *s);
    s->ir = ir;
    s->unknown = -1;
    s->n_contexts = proofs_of(ir)->contexts(ir, s->context);
    s->used = calloc((size_t)ir->n_nodes + 1, sizeof *s->used);
    s->value = calloc((size_t)ir->n_nodes + 1, sizeof *s->value);
    s->hashed = calloc((size_t)ir->n_nodes + 1, sizeof *s->hashed);
    s->failed = !s->used || !s->value || !s->hashed;
    if (!s->failed)
        find_hashed(ir, s->hashed, s->used);
    return !s->failed;
}

static void search_close(struct search *s)
{
    free(s->used);
    free(s->value);
    free(s->hashed);
}

/* A dim that an input names for itself: its size is the caller's to choose. */
static bool is_own_size(const struct ir *ir, const struct sig_dim *dim)
{
    bool own = dim->literal == 0 && dim->sym >= SYM_FREE;
    for (int m = 0; m < ir->maps.n_maps && own; m++)
        for (int k = 0; k < ir->maps.map[m].n_over; k++)
            own &= ir->maps.map[m].over[k] != dim->sym;
    return own;
}

static double size_of(const struct sig_dim *dim, const int64_t *sizes)
{
    double n = dim->literal > 0 ? dim->literal : sizes[dim->sym] > 0 ? (double)sizes[dim->sym] : 0;
    for (int sym = SYM_ROWS0; dim->literal == 0 && dim->sym == SYM_ROWS && sym <= SYM_ROWS1; sym++)
        n *= sizes[sym] > 0 ? (double)sizes[sym] : 1;
    return n;
}

static bool leaves_32_bits(struct interval v)
{
    return v.low < INT32_MIN || v.high > INT32_MAX;
}

static bool known(struct interval v)
{
    return isfinite(v.low) && isfinite(v.high);
}

static bool is_trouble(const struct search *s, int node, struct trouble *t)
{
    const struct ir_node *n = &s->ir->node[node];
    t->node = node;
    t->value = s->value[node];
    t->kind = LEAVES_32_BITS;
    if (n->type != TYPE_I32 || n->op <= OP_LOAD)
        return false;
    for (int k = 0; k < n->n_args; k++)
        if (s->ir->node[n->arg[k]].type == TYPE_I32 && leaves_32_bits(s->value[n->arg[k]]))
            return false; /* of what is said elsewhere, or not known */
    if ((n->op == OP_IDIV || n->op == OP_MOD) && s->value[n->arg[1]].low <= 0 &&
        s->value[n->arg[1]].high >= 0) {
        t->kind = DIVIDES_BY_0;
        t->value = s->value[n->arg[1]];
        return true;
    }
    return known(t->value) && leaves_32_bits(t->value) && !s->hashed[node];
}

/* The first index of a read that may be outside. */
static bool reads_outside(struct search *s, int node, const int64_t *sizes, struct trouble *t)
{
    const struct ir_node *n = &s->ir->node[node];
    for (int k = 0; n->op == OP_LOAD && k < n->n_args; k++) {
        const struct sig_dim *dim = &s->ir->input[n->index].dim[k];
        const struct interval v = s->value[n->arg[k]];
        const double size = size_of(dim, sizes);
        if (!known(v) && s->unknown < 0) {
            s->unknown = node;
            s->unknown_context = t->context;
        }
        if (leaves_32_bits(v))
            continue;
        if (is_own_size(s->ir, dim) && v.high >= size && !(s->fixed && s->fixed[dim->sym] >= 0)) {
            s->own |= UINT64_C(1) << dim->sym;
            if (s->fit && v.high < 0x1p20 && s->fit[dim->sym] <= (int64_t)v.high)
                s->fit[dim->sym] = (int64_t)v.high + 1;
            if (v.low >= 0)
                continue;
        }
        if (v.low >= 0 && v.high < size)
            continue;
        *t = (struct trouble){READS_OUTSIDE, t->context, node, k, v, size};
        return true;
    }
    return false;
}

static int mark_context(struct search *s, const struct index_context *c)
{
    int root[4 * MAX_ROOTS + 1];
    int n = 0;
    int last = 0;
    for (int f = 0; f < c->n_fns; f++)
        for (int i = 0; i < c->fn[f]->n_roots; i++)
            root[n++] = c->fn[f]->root[i];
    if (c->masked)
        root[n++] = s->ir->mask.root[0];
    for (int i = 0; i < n; i++)
        last = root[i] > last ? root[i] : last;
    memset(s->used, 0, (size_t)s->ir->n_nodes * sizeof *s->used);
    if (n > 0)
        ir_mark(s->ir, root, n, s->used);
    return last;
}

/* wanted: NULL, or the one place to look at. True: there is trouble. */
static bool find_trouble(struct search *s, const int64_t *sizes, const struct trouble *wanted,
                         struct trouble *out)
{
    for (int c = 0; c < s->n_contexts && !s->failed; c++) {
        const struct index_context *context = &s->context[c];
        if (wanted && wanted->context != c)
            continue;
        const int last = mark_context(s, context);
        const struct interval_call call = {.ir = s->ir,
                                           .dim = sizes,
                                           .head_dim = sizes[context->dim_sym] / (context->pairs ? 2 : 1),
                                           .map = context->map,
                                           .condition = context->masked ? s->ir->mask.root[0] : -1};
        s->failed = !intervals_run(&call, s->used, last, s->value);
        for (int i = 0; i <= last && !s->failed; i++) {
            out->context = c;
            if (!s->used[i] || (wanted && wanted->node != i))
                continue;
            if (is_trouble(s, i, out) || reads_outside(s, i, sizes, out))
                return true;
        }
    }
    return false;
}

/* ---- sizes --------------------------------------------------------------------------------------- */

static bool has_heads(const struct ir *ir)
{
    return proofs_of(ir)->shared_heads != SYM_ONE;
}

static int64_t most_of(const struct ir *ir, int sym)
{
    if (!has_heads(ir) || sym >= SYM_FREE)
        return sym == SYM_ONE || sym == SYM_ROWS0 || sym == SYM_ROWS1 ? 1 : SIZE_MAX_TRIED;
    switch (sym) {
    case SYM_B:
    case SYM_SEQS:
        return 4096;
    case SYM_H:
    case SYM_H_KV:
    case SYM_H_K:
        return 256;
    case SYM_Q:
    case SYM_KV:
    case SYM_T:
        return LENGTH_MAX;
    case SYM_D:
    case SYM_D_V:
        return 1024;
    default:
        return 1;
    }
}

struct limits { /* sizes grow up to those */
    int64_t lengths;
    int64_t others;
    bool one_row; /* q = 1, h_kv = 1, h_k = 1 */
};

static bool is_length(const struct ir *ir, int sym)
{
    const int *length = proofs_of(ir)->length;
    return sym != SYM_ONE && (sym == length[0] || sym == length[1]);
}

static void sizes_of(const struct search *s, const struct limits *l, int64_t *dim)
{
    for (int sym = 0; sym < SYM_COUNT; sym++) {
        const bool length = is_length(s->ir, sym);
        const int64_t limit = length ? l->lengths : l->others;
        const int64_t most = most_of(s->ir, sym);
        dim[sym] = most < limit ? most : limit;
    }
    if (l->one_row)
        dim[SYM_Q] = dim[SYM_H_KV] = dim[SYM_H_K] = 1;
    for (int sym = 0; sym < SYM_COUNT && s->fixed; sym++)
        dim[sym] = s->fixed[sym] >= 0 ? s->fixed[sym] : dim[sym];
}

/* With as many rows and key heads as keys and heads, and with one. */
static bool trouble_within(struct search *s, struct limits l, const struct trouble *wanted,
                           struct trouble *out)
{
    for (int one = 0; one < (has_heads(s->ir) ? 2 : 1); one++) {
        int64_t dim[SYM_COUNT];
        s->one_row = l.one_row = one == 1;
        sizes_of(s, &l, dim);
        if (find_trouble(s, dim, wanted, out))
            return true;
    }
    return false;
}

static const struct limits EVERYTHING = {1 << 24, 1 << 30, false};

/* Up to which length, or which size of everything, that one place holds, which does not at `most`; 0:
 * nowhere. */
static int64_t holds_up_to(struct search *s, const struct trouble *place, bool lengths, struct limits most)
{
    struct trouble found;
    int64_t low = 0; /* holds */
    int64_t high = lengths ? most.lengths : most.others;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        struct limits l = most;
        if (lengths || middle < l.lengths)
            l.lengths = middle;
        if (!lengths)
            l.others = middle;
        *(trouble_within(s, l, place, &found) ? &high : &low) = middle;
    }
    return low;
}

/* ---- sentences ----------------------------------------------------------------------------------- */

/* As the forward pass calls it. */
static void say_size(struct phrase *to, const struct ir *ir, int sym)
{
    struct signature sig;
    signature_make(ir, LATHE_FORWARD, &sig);
    lathe__say(to, "%s", sym_name(&sig, sym));
}

/* Names of the sizes that a value depends on. */
static void add_sym(uint64_t *set, int sym)
{
    *set |= UINT64_C(1) << sym;
}

static void add_field(uint64_t *set, const struct ir *ir, const struct ir_map *map, int field)
{
    static const int sym[AT_COUNT] = {
        [AT_B] = SYM_B,       [AT_H] = SYM_H,         [AT_H_KV] = SYM_H_KV,   [AT_Q] = SYM_KV,
        [AT_KV] = SYM_KV,     [AT_ROW] = SYM_Q,       [AT_I] = SYM_D,         [AT_POS] = SYM_KV,
        [AT_N_B] = SYM_B,     [AT_N_H] = SYM_H,       [AT_N_H_KV] = SYM_H_KV, [AT_LEN_Q] = SYM_Q,
        [AT_LEN_KV] = SYM_KV, [AT_D] = SYM_D,         [AT_D_V] = SYM_D_V,     [AT_COL] = SYM_N,
        [AT_N] = SYM_N,       [AT_N_ROWS] = SYM_ROWS, [AT_T] = SYM_T,         [AT_J] = SYM_D_V,
        [AT_H_K] = SYM_H_K,   [AT_N_H_K] = SYM_H_K,   [AT_LEN_T] = SYM_T};
    if (field >= AT_FREE0)
        add_sym(set, SYM_FREE + field - AT_FREE0);
    else if (field >= AT_INDEX0 && map)
        add_sym(set, map->over[field >= AT_SIZE0 ? field - AT_SIZE0 : field - AT_INDEX0]);
    else
        add_sym(set, field == AT_ROW   ? proofs_of(ir)->row
                     : field == AT_POS ? proofs_of(ir)->position
                                       : sym[field]);
}

static uint64_t sizes_below(struct search *s, const struct trouble *t)
{
    const struct ir *ir = s->ir;
    const struct ir_node *at = &ir->node[t->node];
    uint64_t set = 0;
    const int root = t->kind == READS_OUTSIDE ? at->arg[t->arg] : t->node;
    memset(s->used, 0, (size_t)ir->n_nodes * sizeof *s->used);
    s->used[root] = true;
    for (int i = root; i >= 0; i--) {
        const struct ir_node *n = &ir->node[i];
        for (int k = 0; s->used[i] && n->op != OP_LOAD && k < n->n_args;
             k++) /* where it is read is no matter */
            s->used[n->arg[k]] = true;
        if (s->used[i] && n->op == OP_AT)
            add_field(&set, ir, s->context[t->context].map, n->index);
        if (!s->used[i] || (n->op != OP_LOAD && n->op != OP_SCALAR))
            continue;
        const struct input_range *r = &ir->input[n->index].range;
        for (int end = 0; end < 2 && r->declared; end++)
            if ((end ? r->high : r->low).dim[0])
                add_sym(&set, (end ? r->high : r->low).sym);
    }
    if (t->kind == READS_OUTSIDE && ir->input[at->index].dim[t->arg].literal == 0)
        add_sym(&set, ir->input[at->index].dim[t->arg].sym);
    return set;
}

static void say_sizes(struct phrase *to, struct search *s, const struct trouble *t, int64_t value,
                      bool lengths)
{
    struct signature sig;
    bool first = true;
    uint64_t set = sizes_below(s, t);
    signature_make(s->ir, LATHE_FORWARD, &sig);
    if (lengths && (set & (UINT64_C(1) << SYM_KV)))
        set |= UINT64_C(1) << SYM_Q;
    if (s->one_row)
        set &= ~(UINT64_C(1) << (lengths ? SYM_Q : proofs_of(s->ir)->shared_heads));
    for (int sym = SYM_B; sym < SYM_COUNT; sym++) {
        const bool length = is_length(s->ir, sym);
        if (!(set >> sym & 1) || (lengths && !length))
            continue;
        lathe__say(to, "%s%s", first ? "" : ", ", sym_name(&sig, sym));
        first = false;
    }
    lathe__say(to, "%s%lld", first ? "sizes of " : " = ", (long long)value);
}

static void say_trouble(struct phrase *to, const struct search *s, const struct trouble *t)
{
    char text[100];
    const struct ir_node *n = &s->ir->node[t->node];
    const struct ir_map *map = s->context[t->context].map;
    expression_text(s->ir, map, t->kind == DIVIDES_BY_0 ? n->arg[1] : t->node, text, sizeof text);
    if (t->kind == LEAVES_32_BITS)
        lathe__say(to, "%s leaves 32 bits", text);
    else if (t->kind == DIVIDES_BY_0)
        lathe__say(to, "the divisor %s may be 0", text);
    else
        lathe__say(to, "dim %d of %s is read from %.0f to %.0f, outside 0..%.0f", t->arg, text, t->value.low,
                   t->value.high, t->size - 1);
}

/* At some sizes where it does not hold. */
static void say_specimen(struct phrase *to, struct search *s, struct trouble *t, int64_t holds, bool lengths)
{
    const int64_t most = lengths ? EVERYTHING.lengths : EVERYTHING.others;
    int64_t at = holds < SPECIMEN ? SPECIMEN : holds + 1;
    at = at > most ? most : at;
    struct trouble found = *t;
    const int one = lengths ? proofs_of(s->ir)->row : proofs_of(s->ir)->shared_heads;
    const struct limits l = {at < EVERYTHING.lengths ? at : EVERYTHING.lengths, at, false};
    if (!trouble_within(s, l, t, &found))
        found = *t;
    say_trouble(to, s, &found);
    if (t->kind != READS_OUTSIDE || s->fixed)
        return;
    lathe__say(to, " at ");
    if (s->one_row && one != SYM_ONE) {
        say_size(to, s->ir, one);
        lathe__say(to, " = 1, ");
    }
    say_sizes(to, s, t, at, lengths);
}

/* ---- doors --------------------------------------------------------------------------------------- */

bool index_trouble(const struct ir *ir, const int64_t *dim, char *text, size_t size, int *line)
{
    struct search s;
    struct trouble t = {.node = 0};
    struct phrase to = {{0}, 0};
    const bool found = search_open(&s, ir) && find_trouble(&s, dim, NULL, &t);
    if (found) {
        say_trouble(&to, &s, &t);
        snprintf(text, size, "%s", to.text);
        *line = proof_line(ir, t.node);
    }
    search_close(&s);
    return found;
}

void index_fit_sizes(const struct ir *ir, int64_t *dim, const int64_t *fixed)
{
    struct search s;
    if (search_open(&s, ir))
        for (int round = 0; round < 2; round++) { /* a size may depend on another */
            int64_t fit[SYM_COUNT];
            struct trouble t = {.node = 0};
            memcpy(fit, dim, sizeof fit);
            s.fit = fit;
            find_trouble(&s, dim, NULL, &t);
            for (int sym = SYM_FREE; sym < SYM_COUNT; sym++)
                dim[sym] = fixed && fixed[sym] >= 0 ? dim[sym] : fit[sym];
        }
    search_close(&s);
}

struct hold { /* how far one place holds */
    int64_t size;
    bool lengths; /* of q and kv; else of all sizes */
};

static struct hold find_hold(struct search *s, const struct trouble *t, struct limits most)
{
    struct trouble found;
    const struct limits shortest = {1, most.others, false};
    const bool lengths = has_heads(s->ir) && !trouble_within(s, shortest, t, &found);
    return (struct hold){holds_up_to(s, t, lengths, most), lengths};
}

/* The place that holds least far, of those found one after the other within what the one before allows. */
static struct hold find_least(struct search *s, struct trouble *t)
{
    struct limits within = EVERYTHING;
    struct hold hold = find_hold(s, t, within);
    for (int i = 0; i < ROUNDS && hold.size > 0; i++) {
        struct trouble next;
        *(hold.lengths ? &within.lengths : &within.others) = hold.size;
        if (!trouble_within(s, within, NULL, &next))
            break;
        *t = next;
        hold = find_hold(s, t, within);
    }
    return hold;
}

static void warn(struct search *s, struct trouble *t, struct proof *out)
{
    struct phrase to = {{0}, 0};
    const struct hold hold = find_least(s, t);
    s->one_row = false;
    if (hold.size > 1) {
        lathe__say(&to, "holds up to ");
        say_sizes(&to, s, t, hold.size, hold.lengths);
        lathe__say(&to, ": ");
    }
    say_specimen(&to, s, t, hold.size, hold.lengths);
    if (t->kind == LEAVES_32_BITS && hold.size > 1)
        lathe__say(&to, " beyond");
    snprintf(out->note, sizeof out->note, "%.*s", (int)sizeof out->note - 1, to.text);
    out->warned = true;
    out->line = proof_line(s->ir, t->node);
}

static void say_lengths(struct phrase *to, const struct search *s)
{
    const int *length = proofs_of(s->ir)->length;
    lathe__say(to, "holds up to ");
    for (int k = 0; k < 2 && length[k] != SYM_ONE; k++) {
        lathe__say(to, "%s", k ? ", " : "");
        say_size(to, s->ir, length[k]);
    }
    if (length[0] == SYM_ONE)
        lathe__say(to, "sizes of 2^30");
    else
        lathe__say(to, " = %lld", (long long)LENGTH_MAX);
}

/* Dims of their own that have to be long enough: those beyond which something is read where they are 1. */
static void find_own(struct search *s)
{
    int64_t dim[SYM_COUNT];
    struct trouble unused;
    sizes_of(s, &EVERYTHING, dim);
    for (int sym = SYM_FREE; sym < SYM_COUNT; sym++)
        dim[sym] = s->fixed && s->fixed[sym] >= 0 ? dim[sym] : 1;
    s->own = 0;
    find_trouble(s, dim, NULL, &unused);
}

/* That it holds everywhere. */
static void say_all(struct phrase *to, const struct search *s)
{
    if (s->fixed)
        lathe__say(to, "holds for the sizes that are given, and the largest of others");
    else
        say_lengths(to, s);
    bool first = true;
    for (int sym = SYM_FREE; sym < SYM_COUNT; sym++) {
        if (!(s->own >> sym & 1))
            continue;
        lathe__say(to, "%s", first ? ", where tensors are long enough in " : ", ");
        say_size(to, s->ir, sym);
        first = false;
    }
}

static void say_unknown(struct search *s, struct proof *out)
{
    char text[100];
    if (s->unknown < 0) {
        struct phrase to = {{0}, 0};
        find_own(s);
        say_all(&to, s);
        snprintf(out->note, sizeof out->note, "%.*s", (int)sizeof out->note - 1, to.text);
        return;
    }
    expression_text(s->ir, s->context[s->unknown_context].map, s->unknown, text, sizeof text);
    snprintf(out->note, sizeof out->note, "an index of %s comes from data without a declared range", text);
}

static bool any_given(const struct prove_given *given)
{
    bool any = false;
    for (int sym = SYM_B; sym < SYM_COUNT && given; sym++)
        any |= given->dim[sym] >= 0;
    return any;
}

void prove_ranges(const struct ir *ir, const struct prove_given *given, struct proof *out)
{
    struct search s;
    struct trouble t = {.node = 0};
    proof_begin(out, "ranges of integers", 0);
    if (search_open(&s, ir)) {
        s.fixed = any_given(given) ? given->dim : NULL;
        if (trouble_within(&s, EVERYTHING, NULL, &t))
            warn(&s, &t, out);
        else
            say_unknown(&s, out);
    }
    if (s.failed) {
        lathe_error err;
        host_out_of_memory(&err);
        proof_refused(out, &err);
    }
    search_close(&s);
}
