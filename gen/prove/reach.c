/*
 * reach.c: where the proofs look. In: a spec. Out: sizes, positions and numbers around the constants of
 * its formulas, so that every comparison and every choice takes both sides where some input makes it; and
 * after the proofs, what was never taken, with its line. Formulas of the prelude are not listed: they are
 * everybody's.
 */
#include "gen/arguments/slots.h"
#include "gen/prove/prove.h"
#include "gen/arguments/input_ranges.h"
#include "gen/ir/tensor.h"
#include "gen/prove/index_ranges.h"
#include "gen/prove/proof.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_KEYS = 82000,
    LEAST_KEYS = 1500,
    MOST_HEADS = 300,
    MOST_ELEMENTS = 1 << 20,
    MOST_VALUES = 1 << 23,
    MOST_TABLE = (1 << 19) + 2,
    FEW = 8 /* elements of an input */
};
static const double LARGEST = 65504; /* of f16 */
static const double BESIDE = 1e-6;   /* an end of a range, as a part of it */

/* ---- what a spec has ----------------------------------------------------------------------------- */

static void mark_fn(const struct ir *ir, const struct ir_fn *fn, bool *used, bool *scratch)
{
    if (fn->n_roots == 0)
        return;
    ir_mark(ir, fn->root, fn->n_roots, scratch);
    for (int i = 0; i < ir->n_nodes; i++)
        used[i] |= scratch[i];
}

/* The nodes of the functions that the proofs evaluate. NULL: out of memory. */
static bool *mark_spec(const struct ir *ir)
{
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    bool *scratch = calloc((size_t)ir->n_nodes + 1, sizeof *scratch);
    const struct ir_fn *const fn[] = {&ir->scale,   &ir->mask,    &ir->score,    &ir->online, &ir->epilogue,
                                      &ir->forward, &ir->combine, &ir->backward, &ir->row};
    for (size_t i = 0; used && scratch && i < sizeof fn / sizeof fn[0]; i++)
        mark_fn(ir, fn[i], used, scratch);
    for (int k = 0; used && scratch && k < LINEAR_SLOTS; k++)
        mark_fn(ir, &ir->linear.slot[k], used, scratch);
    for (int m = 0; used && scratch && m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            mark_fn(ir, &ir->mod[m].stage[s].fn, used, scratch);
    for (int m = 0; used && scratch && m < ir->maps.n_maps; m++)
        mark_fn(ir, &ir->maps.map[m].fn, used, scratch);
    if (!scratch) {
        free(used);
        used = NULL;
    }
    free(scratch);
    return used;
}

static bool is_comparison(const struct ir_node *n)
{
    return n->op >= OP_LT && n->op <= OP_NE;
}

/* What lies below a comparison of the spec. */
static bool mark_compared(const struct ir *ir, const bool *used, bool *compared)
{
    memset(compared, 0, (size_t)ir->n_nodes * sizeof *compared);
    for (int i = ir->n_nodes - 1; i >= 0; i--) {
        const struct ir_node *n = &ir->node[i];
        const bool compares = is_comparison(n) || n->op == OP_CLAMP || n->op == OP_MOD;
        if (!used[i] || !(compared[i] || compares) || n->op == OP_LOAD) /* an index is not compared */
            continue;
        for (int k = 0; k < n->n_args; k++)
            compared[n->arg[k]] = true;
    }
    return true;
}

/* ---- constants ----------------------------------------------------------------------------------- */

static void add_constant(struct reach *r, double value)
{
    if (value == 0 || !(fabs(value) < 0x1p31))
        return;
    for (int i = 0; i < r->n; i++)
        if (r->constant[i] == value)
            return;
    if (r->n < CONSTANTS_MAX)
        r->constant[r->n++] = value;
}

static void add_constants(struct prover *p, const bool *used)
{
    for (int i = 0; i < p->ir->n_nodes; i++) {
        const struct ir_node *n = &p->ir->node[i];
        if (used[i] && n->op == OP_CONST && n->type != TYPE_BOOL)
            add_constant(&p->reach, n->value);
        if (used[i] && n->op == OP_SCALAR)
            add_constant(&p->reach, p->ir->input[n->index].default_value);
    }
}

static bool compares(const struct ir *ir, const bool *compared, int field, int other)
{
    for (int i = 0; i < ir->n_nodes; i++)
        if (compared[i] && ir->node[i].op == OP_AT &&
            (ir->node[i].index == field || ir->node[i].index == other))
            return true;
    return false;
}

static bool compares_index(const struct ir *ir, const bool *compared)
{
    bool found = false;
    for (int k = 0; k < MAX_OVER; k++)
        found |= compares(ir, compared, AT_INDEX0 + k, AT_SIZE0 + k);
    return found;
}

/* A row state may count tiles, of 16 keys at least, or add up weights of 1 and less. */
static bool compares_state(const struct ir *ir, const bool *compared)
{
    for (int i = 0; i < ir->n_nodes; i++)
        if (compared[i] && ir->node[i].op == OP_PARAM && ir->node[i].index >= LEAF_STATE &&
            ir->node[i].index < LEAF_STATE + MAX_STATE)
            return true;
    return false;
}

static int64_t limit(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* A little beyond the largest constant that is a size, of those below `most`. */
static int64_t beyond(const struct reach *r, int64_t least, int64_t most)
{
    int64_t largest = least;
    for (int i = 0; i < r->n; i++) {
        const double c = fabs(r->constant[i]);
        if (c <= (double)most && (int64_t)c + 2 > largest)
            largest = (int64_t)c + 2;
    }
    return largest;
}

int64_t reach_affordable(const struct prover *p)
{
    const int64_t most = MOST_VALUES / (p->ir->n_nodes + 1);
    return most < 64 ? 64 : most;
}

static void choose_sizes(struct prover *p, const bool *compared)
{
    struct reach *r = &p->reach;
    const bool state = compares_state(p->ir, compared);
    const int64_t tiles = state ? 16 * beyond(r, 1, 4000) : 0;
    const int64_t positions = beyond(r, LEAST_KEYS, 65536) * (state ? 2 : 1);
    const int64_t longest = tiles > positions ? tiles : positions;
    r->keys = limit(longest + longest / 4, LEAST_KEYS, MOST_KEYS);
    r->heads = compares(p->ir, compared, AT_H, AT_N_H) || compares(p->ir, compared, AT_H_KV, AT_N_H_KV)
                   ? limit(beyond(r, 16, MOST_HEADS), 16, MOST_HEADS)
                   : 16;
    r->heads += r->heads % 2;
    r->head_dim = compares(p->ir, compared, AT_D, AT_D_V) || compares(p->ir, compared, AT_I, AT_I)
                      ? limit(beyond(r, 8, 256), 8, 256)
                      : 8;
    r->head_dim += r->head_dim % 2;
    r->by_index = compares_index(p->ir, compared);
    r->table = r->by_index ? beyond(r, 0, MOST_TABLE) : 0;
    const bool columns = compares(p->ir, compared, AT_COL, AT_N) || r->by_index;
    const int64_t most = reach_affordable(p);
    r->keys = r->keys < most ? r->keys : most;
    r->row = columns ? limit(beyond(r, 700, 65536), 700, 65536) : 700;
    r->row = r->row < most ? r->row : most;
}

bool reach_open(struct prover *p)
{
    const int n = p->ir->n_nodes;
    bool *used = mark_spec(p->ir);
    bool *compared = calloc((size_t)n + 1, sizeof *compared);
    p->mode = (struct eval_mode){
        .ir = p->ir, .n_seen = n, .seen = calloc((size_t)n + 1, 1), .bad_node = -1, .bad_op = -1};
    const bool ok = used && compared && p->mode.seen;
    if (ok) {
        mark_compared(p->ir, used, compared);
        add_constants(p, compared);
        p->reach.n_compared = p->reach.n;
        choose_sizes(p, compared);
        add_constants(p, used);
        for (int i = 0; i < n; i++)
            p->reach.n_nodes += used[i];
    }
    free(used);
    free(compared);
    return ok;
}

void reach_close(struct prover *p)
{
    free(p->mode.seen);
    p->mode.seen = NULL;
}

/* ---- sizes --------------------------------------------------------------------------------------- */

int64_t reach_elements(const struct signature *sig, const int64_t *dim)
{
    int64_t sum = 0;
    for (int i = 0; i < sig->n_args; i++) {
        int64_t n = 1;
        for (int d = 0; d < sig->arg[i].ndim; d++) {
            const struct sig_dim *size = &sig->arg[i].dim[d];
            const int64_t value = size->literal > 0 ? size->literal : dim[size->sym];
            n *= value > 0 ? value : 16;
        }
        sum += n;
    }
    return sum;
}

static void enlarge(const struct prover *p, enum reach_size which, int64_t *dim)
{
    dim[SYM_B] = which == SIZE_MIDDLE ? 3 : 1;
    dim[SYM_H] = which == SIZE_MIDDLE ? 8 : p->reach.heads;
    dim[SYM_KV] = which == SIZE_MIDDLE && p->reach.keys > 600 ? 600 : p->reach.keys;
    dim[SYM_Q] = dim[SYM_KV];
    dim[SYM_D] = dim[SYM_D_V] = dim[SYM_D2] = 2;
    while (reach_elements(&p->forward, dim) > MOST_ELEMENTS && dim[SYM_Q] > 4)
        dim[SYM_Q] /= 2;
    while (reach_elements(&p->forward, dim) > MOST_ELEMENTS && dim[SYM_H] > 4)
        dim[SYM_H] = dim[SYM_H] / 4 * 2;
    while (reach_elements(&p->forward, dim) > MOST_ELEMENTS && dim[SYM_KV] > 40)
        dim[SYM_KV] /= 2;
    dim[SYM_Q] = dim[SYM_Q] > dim[SYM_KV] ? dim[SYM_KV] : dim[SYM_Q];
}

void reach_sizes(const struct prover *p, enum reach_size which, int64_t *dim)
{
    static const int64_t small[SYM_COUNT] = {
        [SYM_ONE] = 1, [SYM_B] = 2, [SYM_H] = 4,  [SYM_H_KV] = 2, [SYM_Q] = 9,
        [SYM_KV] = 40, [SYM_D] = 8, [SYM_D2] = 8, [SYM_D_V] = 8};
    memcpy(dim, small, sizeof small);
    if (which != SIZE_SMALL)
        enlarge(p, which, dim);
    prover_sizes(p, dim);
}

/* ---- numbers ------------------------------------------------------------------------------------- */

int64_t reach_position(struct prover *p, int64_t n, int64_t start)
{
    switch (random_below(p, 4)) {
    case 0:
        return random_below(p, 2) ? n - 1 : 0;
    case 1:
        if (p->reach.n > 0) {
            const double c = fabs(p->reach.constant[random_below(p, p->reach.n)]);
            return limit((int64_t)c - start + random_below(p, 5) - 2, 0, n - 1);
        }
        return random_below(p, n);
    default:
        return random_below(p, n);
    }
}

double reach_number(struct prover *p)
{
    static const double power[] = {1e-3, 0.1, 1, 10, 100, 1e3, 1e4};
    const double sign = random_below(p, 2) ? 1 : -1;
    const int64_t n_powers = (int64_t)(sizeof power / sizeof power[0]);
    if (p->reach.n > 0 && random_below(p, 2)) {
        static const double beside[] = {1, 1, 0.9, 1.1, 0.5, 2};
        const double constant = p->reach.constant[random_below(p, p->reach.n)];
        const double c = constant * beside[random_below(p, 6)];
        return fmax(fmin(random_below(p, 4) ? c : -c, LARGEST), -LARGEST);
    }
    if (random_below(p, 8) == 0)
        return 0;
    const double size = power[random_below(p, n_powers)];
    return sign * size * (0.5 + random_unit(p));
}

/* ---- data ---------------------------------------------------------------------------------------- */

bool data_make_forward(struct data *out, struct prover *p, const int64_t *dim)
{
    const int n = p->backward.n_args;
    p->backward.n_args = 0;
    const bool ok = data_make(out, p, dim);
    p->backward.n_args = n;
    return ok;
}

/* A small number, or a whole number of the spec, or one beside it. */
static int32_t reach_integer(struct prover *p)
{
    if (random_below(p, 2))
        return (int32_t)random_below(p, 8);
    const double c = p->reach.n > 0 ? p->reach.constant[random_below(p, p->reach.n)] : 0;
    const double value = trunc(c) + (double)random_below(p, 3) - 1;
    return (int32_t)fmax(fmin(value, 2147483647.0), -2147483648.0);
}

/* Each constant that is compared in turn, then what lies beside it. */
static double reach_scalar(struct prover *p)
{
    static const double beside[] = {0, 1, -1};
    const int n = p->reach.n_compared;
    const int turn = p->reach.turn++;
    return n > 0 ? p->reach.constant[turn % n] + beside[turn / n % 3] : reach_number(p);
}

static void reach_one(struct prover *p, const lathe_arg *t)
{
    const double value = random_below(p, 4) ? reach_scalar(p) : reach_number(p);
    if (t->dtype == LATHE_I32)
        ((int32_t *)t->data)[0] = (int32_t)fmax(fmin(trunc(value), 2147483647.0), -2147483648.0);
    else if (t->dtype == LATHE_F64)
        ((double *)t->data)[0] = value;
}

static const struct input *input_of(const struct ir *ir, const char *name)
{
    for (int i = 0; i < ir->n_inputs; i++)
        if (strcmp(ir->input[i].name, name) == 0)
            return &ir->input[i];
    return NULL;
}

/* One draw of a scalar says little of its range: an end of it says more. */
static void reach_end(struct prover *p, const struct input_range *range, const lathe_arg *t)
{
    const double end = p->reach.turn++ % 2 ? range->most : range->least;
    if (range->real && isfinite(end) && t->dtype == LATHE_F64)
        ((double *)t->data)[0] = end;
}

/* Some elements lie beside an end: at it, a root has no slope. */
static void reach_ends(struct prover *p, const struct input_range *range, const lathe_arg *t)
{
    const int64_t n = range->real && t->dtype == LATHE_F64 ? tensor_count(t) : 0;
    for (int64_t i = 0; i < n; i++) {
        const bool high = random_below(p, 2) != 0;
        const double end = high ? range->most : range->least;
        const double x = end - (high ? BESIDE : -BESIDE) * fmax(fabs(end), 1);
        if (random_below(p, 4) == 0 && isfinite(end) && x >= range->least && x <= range->most)
            ((double *)t->data)[i] = x;
    }
}

void reach_data(struct prover *p, const struct sig_arg *a, const lathe_arg *t)
{
    const struct input *in = input_of(p->ir, a->name);
    if (given_arg(p, a->name) || slots_are(p->ir, a->name))
        return;
    if (in && input_has_range(in)) {
        if (a->role == ROLE_SCALAR)
            reach_end(p, &in->range, t);
        else
            reach_ends(p, &in->range, t);
        return;
    }
    const int64_t n = tensor_count(t);
    const int64_t share = a->role == ROLE_IN ? 2 : n <= FEW ? 1 : 4; /* a number for each head: all of them */
    if (a->role == ROLE_SCALAR) {
        if (random_below(p, 3))
            reach_one(p, t);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == LATHE_U8 || random_below(p, share) != 0)
            continue;
        if (t->dtype == LATHE_I32)
            ((int32_t *)t->data)[i] = reach_integer(p);
        else if (t->dtype == LATHE_F64)
            ((double *)t->data)[i] = reach_number(p);
    }
}

/* ---- what was not taken -------------------------------------------------------------------------- */

static void say_unseen(const struct prover *p, int node, int seen, struct proof *out)
{
    const struct ir_node *n = &p->ir->node[node];
    const char *name = is_comparison(n) ? ir_op_spelling(n->op) : "the condition of where";
    proof_begin(out, "not seen", 0);
    out->unseen = true;
    out->line = n->line;
    if (seen == 0)
        snprintf(out->note, sizeof out->note, "%s was never evaluated", name);
    else
        snprintf(out->note, sizeof out->note, "%s was never %s, at any size and on any data that was tried",
                 name, seen == SEEN_TRUE ? "false" : "true");
}

/* One entry for a line and a side is enough, and a condition is named where its comparisons are not. */
static bool is_said(const struct proof *out, int n, const struct proof *entry, bool comparison)
{
    for (int i = 0; i < n; i++)
        if (out[i].line == entry->line && (!comparison || strcmp(out[i].note, entry->note) == 0))
            return true;
    return false;
}

/* A comparison with infinity, or of a number with itself: no data of a proof is infinite, or NaN. */
static bool compares_with_none(const struct ir *ir, const struct ir_node *n)
{
    bool none = n->arg[0] == n->arg[1];
    for (int k = 0; k < 2 && is_comparison(n); k++) {
        const struct ir_node *a = &ir->node[n->arg[k]];
        none |= a->op == OP_CONST && isinf(a->value);
    }
    return is_comparison(n) && none;
}

/* Is a condition made of guards alone? */
static bool is_guard(const struct ir *ir, int node)
{
    enum { DEPTH = 32 };
    int stack[DEPTH] = {node};
    int n = 1;
    bool all = true;
    while (n > 0 && all) {
        const int i = stack[--n];
        const struct ir_node *at = &ir->node[i];
        const bool joins = at->type == TYPE_BOOL && (at->op == OP_AND || at->op == OP_OR || at->op == OP_NOT);
        all = joins ? n + at->n_args <= DEPTH : index_guard(ir, i) || compares_with_none(ir, at);
        for (int k = 0; k < at->n_args && joins && all; k++)
            stack[n++] = at->arg[k];
    }
    return all;
}

/* A comparison alone decides most conditions: those are named by it. */
static void mark_listed(const struct ir *ir, const bool *used, bool *listed)
{
    for (int i = 0; i < ir->n_nodes; i++) {
        const struct ir_node *n = &ir->node[i];
        if (used[i] && is_comparison(n))
            listed[i] = !is_guard(ir, i);
        if (used[i] && n->op == OP_WHERE && ir->node[n->arg[0]].op != OP_CONST)
            listed[n->arg[0]] = !is_guard(ir, n->arg[0]);
    }
}

int reach_unseen(const struct prover *p, struct proof *out, int most)
{
    const struct ir *ir = p->ir;
    bool *used = mark_spec(ir);
    bool *listed = calloc((size_t)ir->n_nodes + 1, sizeof *listed);
    int n = 0;
    int more = 0;
    if (used && listed)
        mark_listed(ir, used, listed);
    for (int i = 0; used && listed && i < p->mode.n_seen; i++) {
        const int seen = p->mode.seen[i];
        if (!listed[i] || ir->node[i].file != ir->n_files - 1 || seen == (SEEN_TRUE | SEEN_FALSE))
            continue;
        struct proof entry;
        say_unseen(p, i, seen, &entry);
        if (is_said(out, n, &entry, is_comparison(&ir->node[i])))
            continue;
        if (n < most)
            out[n++] = entry;
        else
            more++;
    }
    if (more > 0 && n > 0) {
        proof_begin(&out[n - 1], "not seen", 0);
        out[n - 1].unseen = true;
        snprintf(out[n - 1].note, sizeof out[n - 1].note, "%d more comparisons did not take both sides",
                 more + 1);
    }
    free(used);
    free(listed);
    return n;
}
