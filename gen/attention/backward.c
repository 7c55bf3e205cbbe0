/*
 * backward.c: the backward pass of attention as formulas of kernels. In: a spec's IR (a copy of one's own:
 * its pool grows), which seeds are given and which gradients are wanted. Out: struct backward, node numbers.
 *
 * Per pair of a live row, with e = <q', k'> and dw = <do', v'>:
 *     dL/ds = dw dw/ds + sum_k (R_k + dfinal_k) dfinal_k/ds,    R_k = sum over the row of dw dw/dfinal_k
 * R_k is brought to delta = sum_d o' do' = sum over the row of dw w: possible where dw/dfinal_k is seen to be
 * a row value times w. Else a pass over the keys before the others adds it up. dfinal_k/ds comes from the row
 * as one tile, so it mentions row states; states are written as finals where the epilogue allows it, and the
 * rest of them must be saved by the forward kernel. Reductions over keys that diff() adds for leaves without
 * a key axis are taken off again: a kernel adds pairs up itself.
 */
#include "gen/attention/backward.h"
#include "gen/base/diag.h"
#include "gen/base/text.h"
#include "gen/derive/algebra.h"
#include "gen/derive/diff.h"
#include "gen/heads/sites.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct deriver {
    struct ir *ir;
    const struct backward_wanted *wanted;
    struct backward *out;
    char *why;
    bool failed;
    int state_root[MAX_STATE]; /* of the row as one tile, from LEAF_S */
    int n_forms;               /* of finals: ways to write states */
    struct monomial form[2 * MAX_STATE];
};

static void fail(struct deriver *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct deriver *d, const char *fmt, ...)
{
    if (d->failed)
        return;
    va_list args;
    va_start(args, fmt);
    lathe__format(d->why, WHY_BYTES, fmt, args);
    va_end(args);
    d->failed = true;
}

/* Memory ran out. */
static void lose(struct deriver *d)
{
    d->ir->failed = true;
    d->failed = true;
}

static int param(struct deriver *d, int which)
{
    return ir_param(d->ir, which, (struct ir_at){0, 0});
}

static int zero(struct deriver *d)
{
    return ir_const(d->ir, 0, TYPE_F32);
}

static bool is_zero(const struct deriver *d, int node)
{
    return d->ir->node[node].op == OP_CONST && d->ir->node[node].value == 0;
}

static int plus(struct deriver *d, int a, int b)
{
    return is_zero(d, a) ? b : is_zero(d, b) ? a : ir2(d->ir, OP_ADD, a, b);
}

static int times(struct deriver *d, int a, int b)
{
    return is_zero(d, a) || is_zero(d, b) ? zero(d) : ir2(d->ir, OP_MUL, a, b);
}

/* ---- derivatives --------------------------------------------------------------------------------- */

static bool differentiate(struct deriver *d, const int *root, const int *seed, int n, struct diff_result *out)
{
    struct diag diag = {0};
    if (!d->failed && diff(d->ir, root, seed, n, out, &diag))
        return true;
    char place[DIAG_PLACE_BYTES];
    diag_place(diag.entry[0].file, diag.entry[0].line, place);
    fail(d, "%.100s%.150s", place, diag.entry[0].text);
    return false;
}

static int adjoint_of(struct deriver *d, const struct diff_result *g, int which)
{
    for (int i = 0; i < g->n; i++) {
        const struct ir_node *leaf = &d->ir->node[g->item[i].leaf];
        if (leaf->op == OP_PARAM && leaf->index == which)
            return g->item[i].adjoint;
    }
    return zero(d);
}

static bool is_wanted(const struct deriver *d, int leaf)
{
    const struct ir_node *n = &d->ir->node[leaf];
    return n->op != OP_PARAM && d->wanted->input[n->index];
}

static void site_add(struct deriver *d, struct site_list *list, int leaf, int value)
{
    if (is_zero(d, value))
        return;
    for (int i = 0; i < list->n; i++)
        if (list->item[i].leaf == leaf) {
            list->item[i].value = plus(d, list->item[i].value, value);
            return;
        }
    if (list->n == MAX_SITES)
        fail(d, "inputs that want gradients are read in more than %d places", MAX_SITES);
    else
        list->item[list->n++] = (struct site){leaf, value, ADDRESS_ELEMENT, false};
}

/* ---- sums over keys -------------------------------------------------------------------------------- */

enum { MAX_SUMS = 16 };

/* The reductions over keys below a root; fails where there are more than MAX_SUMS. */
static int find_reductions(struct deriver *d, int root, int *out)
{
    bool *used = calloc((size_t)d->ir->n_nodes, sizeof *used);
    int n = 0;
    if (!used) {
        lose(d);
        return 0;
    }
    ir_mark(d->ir, &root, 1, used);
    for (int i = 0; i <= root; i++) {
        if (!used[i] || !ir_op_is_reduction(d->ir->node[i].op))
            continue;
        if (n == MAX_SUMS) {
            fail(d, "a gradient needs more than %d sums over a row", MAX_SUMS);
            break;
        }
        out[n++] = i;
    }
    free(used);
    return n;
}

/* The value of one pair where diff() summed over a row. An adjoint is linear in its seed, so that it holds
   one such sum on every path. */
static int without_sums(struct deriver *d, int root)
{
    int sum[MAX_SUMS];
    int operand[MAX_SUMS];
    const int n = find_reductions(d, root, sum);
    for (int i = 0; i < n; i++)
        operand[i] = d->ir->node[sum[i]].arg[0];
    return ir_substitute(d->ir, root, sum, operand, n);
}

/* Every wanted input of a derivative whose seed is a value per pair. */
static void pair_sites(struct deriver *d, const struct diff_result *g)
{
    for (int i = 0; i < g->n && !d->failed; i++)
        if (is_wanted(d, g->item[i].leaf))
            site_add(d, &d->out->pair, g->item[i].leaf, without_sums(d, g->item[i].adjoint));
}

/* ---- row states as finals --------------------------------------------------------------------------- */

static bool depends_on_state(struct deriver *d, int node)
{
    for (int k = 0; k < d->ir->n_states; k++)
        if (ir_depends_on(d->ir, node, OP_PARAM, LEAF_STATE + k))
            return true;
    return false;
}

static int count_states(struct deriver *d, const struct monomial *m)
{
    int n = 0;
    for (int i = 0; i < m->n; i++)
        n += depends_on_state(d, m->term[i].node);
    return n;
}

/* A monomial of states that is 1: what a final is made of, over the final. */
static void add_form(struct deriver *d, const struct monomial *of_states, int final, bool linear)
{
    struct monomial m = *of_states;
    const struct monomial f = {1, 1, {{final, final, linear, 1}}};
    if (count_states(d, &m) > 0 && monomial_times(&m, &f, -1))
        d->form[d->n_forms++] = m;
}

static void find_forms(struct deriver *d)
{
    for (int k = 0; k < d->ir->n_finals && !d->failed; k++) {
        const int root = d->ir->epilogue.root[1 + k];
        const int final = param(d, LEAF_FINAL + k);
        struct poly value;
        struct monomial power;
        if (!poly_expand(d->ir, -1, &root, 1, &value) || !poly_expand_exponential(d->ir, root, &power)) {
            lose(d);
            return;
        }
        add_form(d, &power, final, true);
        if (value.n == 1)
            add_form(d, &value.item[0], final, false);
    }
}

/* Multiply by a form's power such that m's states get fewer; false: no form does. */
static bool reduce_states(struct deriver *d, struct monomial *m)
{
    const int before = count_states(d, m);
    for (int f = 0; f < d->n_forms; f++)
        for (int i = 0; i < m->n; i++)
            for (int j = 0; j < d->form[f].n; j++) {
                const struct log_term *t = &d->form[f].term[j];
                struct monomial trial = *m;
                if (t->node != m->term[i].node || t->linear != m->term[i].linear ||
                    !depends_on_state(d, t->node) ||
                    !monomial_times(&trial, &d->form[f], -m->term[i].by / t->by))
                    continue;
                if (count_states(d, &trial) < before) {
                    *m = trial;
                    return true;
                }
            }
    return false;
}

/* False: states remain. */
static bool states_to_finals(struct deriver *d, struct poly *p)
{
    for (int i = 0; i < p->n; i++) {
        while (reduce_states(d, &p->item[i]))
            continue;
        if (count_states(d, &p->item[i]) > 0)
            return false;
    }
    return true;
}

/* A row value or a value per pair without states, where that is possible; else as it is. */
static int from_finals(struct deriver *d, int node)
{
    struct poly p;
    if (!depends_on_state(d, node))
        return node;
    if (!poly_expand(d->ir, -1, &node, 1, &p)) {
        lose(d);
        return node;
    }
    return states_to_finals(d, &p) ? poly_build(d->ir, &p) : node;
}

/* ---- what a final is worth: R_k + dfinal_k ------------------------------------------------------------ */

static bool is_row_value(const struct deriver *d, int node)
{
    return !(d->ir->node[node].span & SPAN_KV);
}

static bool is_dw(const struct deriver *d, const struct log_term *t)
{
    const struct ir_node *n = &d->ir->node[t->node];
    return n->op == OP_PARAM && n->index == LEAF_DW && !t->linear && t->by == 1;
}

/* m / w where that is a row value, times dw where it may be. False: it is not. */
static bool over_weight(struct deriver *d, struct monomial *m, const struct monomial *w, bool *has_dw)
{
    *has_dw = false;
    if (w->coefficient == 0 || !monomial_times(m, w, -1))
        return false;
    for (int i = 0; i < m->n; i++) {
        bool dw = is_dw(d, &m->term[i]);
        *has_dw |= dw;
        if (!dw && !(is_row_value(d, m->term[i].node) && is_row_value(d, m->term[i].shown)))
            return false;
    }
    return true;
}

/* c, where x = c dw w with a row value c; -1: x is not of that kind. opaque: the weight is not taken apart.
 */
static int over_dw_and_weight(struct deriver *d, int x, int opaque)
{
    const int root[2] = {x, d->out->weight};
    const int dw = param(d, LEAF_DW);
    const struct monomial per_dw = {1, 1, {{dw, dw, false, 1}}};
    struct poly form[2];
    bool has_dw = false;
    if (!poly_expand(d->ir, opaque, root, 2, form)) {
        lose(d);
        return -1;
    }
    if (form[1].n != 1)
        return -1;
    for (int i = 0; i < form[0].n; i++)
        if (!over_weight(d, &form[0].item[i], &form[1].item[0], &has_dw) || !has_dw ||
            !monomial_times(&form[0].item[i], &per_dw, -1))
            return -1;
    return poly_build(d->ir, &form[0]);
}

/* sum over the row of x as c delta; -1: it is not. */
static int sum_as_delta(struct deriver *d, int x)
{
    int c = over_dw_and_weight(d, x, d->out->weight);
    if (c < 0)
        c = over_dw_and_weight(d, x, -1);
    return c < 0 ? -1 : times(d, c, param(d, LEAF_DELTA));
}

/* What a pass over the row adds up; -1: there are too many. */
static int sum_by_pass(struct deriver *d, int k, int x)
{
    struct backward *b = d->out;
    int i = 0;
    if (d->ir->node[x].phase > 0)
        fail(d,
             "'forward' varies with final_rowscale '%s' by a reduction over the row; only the host device "
             "adds that up. Where that gradient is known to cancel, detach(final.%s)",
             d->ir->final[k].name, d->ir->final[k].name);
    while (i < b->n_sums && b->sum[i] != x)
        i++;
    if (i == MAX_STATE)
        fail(d,
             "the gradients of final_rowscales need more than %d sums over a row; where one is known to "
             "cancel, "
             "detach(final.%s)",
             MAX_STATE, d->ir->final[k].name);
    if (d->failed)
        return -1;
    b->sum[i] = x;
    b->n_sums += i == b->n_sums;
    return param(d, LEAF_ROWSUM + i);
}

/* R_k from the adjoint of final k: every sum over keys is a multiple of delta, or of a pass of its own. */
static int row_sum(struct deriver *d, int k, int adjoint)
{
    int sum[MAX_SUMS];
    int value[MAX_SUMS];
    const int n = find_reductions(d, adjoint, sum);
    for (int i = 0; i < n && !d->failed; i++) {
        value[i] = sum_as_delta(d, d->ir->node[sum[i]].arg[0]);
        if (value[i] < 0)
            value[i] = sum_by_pass(d, k, d->ir->node[sum[i]].arg[0]);
    }
    return d->failed ? adjoint : ir_substitute(d->ir, adjoint, sum, value, n);
}

/* ---- finals and states -----------------------------------------------------------------------------------
 */

static void row_sites(struct deriver *d, const struct diff_result *g)
{
    for (int i = 0; i < g->n && !d->failed; i++)
        if (is_wanted(d, g->item[i].leaf))
            site_add(d, &d->out->row, g->item[i].leaf, from_finals(d, g->item[i].adjoint));
}

/* Of one final of the starting state; where that is infinite there is nothing to give. */
static void empty_sites_of(struct deriver *d, int k, int final)
{
    struct diff_result g;
    struct ir *ir = d->ir;
    const int seed = param(d, LEAF_DFINAL + k);
    if (!differentiate(d, &final, &seed, 1, &g))
        return;
    const int size = ir1(ir, OP_ABS, final);
    const int finite = ir2(ir, OP_LT, size, ir_const(ir, HUGE_VAL, TYPE_F32));
    for (int i = 0; i < g.n && !d->failed; i++) {
        const int leaf = g.item[i].leaf;
        if (!is_wanted(d, leaf) || is_zero(d, g.item[i].adjoint))
            continue;
        site_add(d, &d->out->empty, leaf, ir3(ir, OP_WHERE, finite, g.item[i].adjoint, zero(d)));
        if (site_find(&d->out->row, leaf) < 0 && d->out->row.n < MAX_SITES)
            d->out->row.item[d->out->row.n++] = (struct site){leaf, zero(d), ADDRESS_ELEMENT, false};
    }
    diff_free(&g);
}

/* A row without live pairs is told by the finals that are then constants, or, where weights have no such one,
   by those that are infinite, which have nothing to give. */
static void empty_sites(struct deriver *d)
{
    struct ir *ir = d->ir;
    int from[MAX_STATE];
    int to[MAX_STATE];
    int final[MAX_STATE];
    bool told = false;
    bool infinite = false;
    for (int k = 0; k < ir->n_states; k++) {
        from[k] = param(d, LEAF_STATE + k);
        to[k] = ir_const(ir, ir->state[k].init, TYPE_F32);
    }
    for (int k = 0; k < ir->n_finals; k++) {
        final[k] = ir_substitute(ir, ir->epilogue.root[1 + k], from, to, ir->n_states);
        const bool is_read = ir_depends_on(ir, d->out->weight, OP_PARAM, LEAF_FINAL + k);
        told |= is_read && ir->node[final[k]].op == OP_CONST;
        infinite |= is_read && ir->node[final[k]].op != OP_CONST;
    }
    for (int k = 0; k < ir->n_finals && (told || !infinite) && !d->failed; k++)
        if (d->wanted->seed[k])
            empty_sites_of(d, k, final[k]);
}

static void whole_row_states(struct deriver *d)
{
    struct ir *ir = d->ir;
    int from[MAX_STATE];
    int to[MAX_STATE];
    for (int k = 0; k < ir->n_states; k++) {
        from[k] = param(d, LEAF_STATE + k);
        to[k] = ir_const(ir, ir->state[k].init, TYPE_F32);
    }
    for (int k = 0; k < ir->n_states; k++)
        d->state_root[k] = ir_substitute(ir, ir->online.root[2 + k], from, to, ir->n_states);
}

/* Where a formula names what a state is made of, it names the state. */
static int with_states(struct deriver *d, int node)
{
    int from[MAX_STATE];
    int to[MAX_STATE];
    int n = 0;
    for (int k = 0; k < d->ir->n_states; k++) {
        if (d->ir->node[d->state_root[k]].phase == 0)
            continue;
        from[n] = d->state_root[k];
        to[n++] = param(d, LEAF_STATE + k);
    }
    return ir_substitute(d->ir, node, from, to, n);
}

static bool needs_row(struct deriver *d, int node)
{
    const struct ir_node *n = &d->ir->node[node];
    if (n->phase == 0)
        return false;
    char place[DIAG_PLACE_BYTES];
    diag_place(n->line ? d->ir->file[n->file] : "", n->line, place);
    fail(
        d,
        "%.80sthe gradient of a row state needs a row reduction that is no row state (the ties of a maximum, "
        "say); where it cancels, as a stabiliser's does, wrap it in detach()",
        place);
    return true;
}

/* An input that online_fwd reads: of pairs, where diff() adds up what a leaf without a key axis gets; or a
 * row value. */
static void state_site(struct deriver *d, int leaf, int adjoint)
{
    const int value = with_states(d, adjoint);
    const bool is_sum = d->ir->node[value].op == OP_ROWSUM;
    const int inner = is_sum ? d->ir->node[value].arg[0] : value;
    const bool of_pair = is_sum || !is_row_value(d, leaf) || !is_row_value(d, inner);
    if (!needs_row(d, inner))
        site_add(d, of_pair ? &d->out->pair : &d->out->row, leaf, from_finals(d, inner));
}

/* dL/ds through the states, whose adjoints are seeds: a value per pair. */
static int through_states(struct deriver *d, const int *seed)
{
    struct diff_result g;
    if (d->ir->n_states == 0 || !differentiate(d, d->state_root, seed, d->ir->n_states, &g))
        return zero(d);
    const int ds = with_states(d, adjoint_of(d, &g, LEAF_S));
    for (int i = 0; i < g.n && !d->failed; i++)
        if (is_wanted(d, g.item[i].leaf))
            state_site(d, g.item[i].leaf, g.item[i].adjoint);
    diff_free(&g);
    return needs_row(d, ds) ? zero(d) : ds;
}

/* dL/ds through the finals; worth[k] = R_k + dfinal_k. */
static int through_finals(struct deriver *d, const int *worth)
{
    struct diff_result g;
    int root[MAX_STATE];
    int seed[MAX_STATE];
    int n = 0;
    for (int k = 0; k < d->ir->n_finals; k++) {
        if (is_zero(d, worth[k]))
            continue;
        root[n] = d->ir->epilogue.root[1 + k];
        seed[n++] = worth[k];
    }
    if (n == 0 || !differentiate(d, root, seed, n, &g))
        return zero(d);
    row_sites(d, &g);
    empty_sites(d);
    for (int k = 0; k < d->ir->n_states; k++)
        seed[k] = adjoint_of(d, &g, LEAF_STATE + k);
    diff_free(&g);
    return through_states(d, seed);
}

/* ---- one value per pair ------------------------------------------------------------------------------- */

/* direct + indirect as w (dw c + r), where both are of that kind: one product instead of two, and dw - delta
   is taken before it is scaled. -1: they are not. */
static int as_weighted(struct deriver *d, int opaque, const int *part, int n_parts)
{
    struct poly form[3];
    int root[3] = {d->out->weight, part[0], part[n_parts - 1]};
    int row = zero(d);
    int seeded = zero(d);
    if (!poly_expand(d->ir, opaque, root, 1 + n_parts, form) || form[0].n != 1)
        return -1;
    for (int p = 1; p <= n_parts; p++) {
        if (depends_on_state(d, root[p]) && !states_to_finals(d, &form[p]))
            return -1;
        for (int i = 0; i < form[p].n; i++) {
            bool has_dw;
            if (!over_weight(d, &form[p].item[i], &form[0].item[0], &has_dw))
                return -1;
            int value = monomial_build(d->ir, &form[p].item[i]);
            if (has_dw)
                seeded = plus(d, seeded, value);
            else
                row = plus(d, row, value);
        }
    }
    return times(d, d->out->weight, plus(d, seeded, row));
}

static int join_parts(struct deriver *d, int direct, int indirect)
{
    const int part[2] = {direct, indirect};
    int joint = as_weighted(d, -1, part, 2);
    if (joint < 0)
        joint = as_weighted(d, d->out->weight, part, 2);
    if (joint >= 0)
        return joint;
    return plus(d, direct, from_finals(d, indirect));
}

/* dL/ds, where s is what online_func is given. */
static int derive_online(struct deriver *d)
{
    struct ir *ir = d->ir;
    struct diff_result g;
    int worth[MAX_STATE];
    const int seed = param(d, LEAF_DW);
    d->out->weight = ir->forward.root[0];
    if (!differentiate(d, ir->forward.root, &seed, 1, &g))
        return zero(d);
    pair_sites(d, &g);
    const int direct = adjoint_of(d, &g, LEAF_S);
    for (int k = 0; k < ir->n_finals; k++) {
        worth[k] = row_sum(d, k, adjoint_of(d, &g, LEAF_FINAL + k));
        if (d->wanted->seed[k])
            worth[k] = plus(d, worth[k], param(d, LEAF_DFINAL + k));
    }
    diff_free(&g);
    return join_parts(d, direct, through_finals(d, worth));
}

/* ---- score, scale -----------------------------------------------------------------------------------------
 */

/* Put `to` for LEAF_S in everything per pair. */
static void replace_score(struct deriver *d, int to, int *ds)
{
    const int from = param(d, LEAF_S);
    d->out->weight = ir_substitute(d->ir, d->out->weight, &from, &to, 1);
    for (int i = 0; i < d->out->pair.n; i++)
        d->out->pair.item[i].value = ir_substitute(d->ir, d->out->pair.item[i].value, &from, &to, 1);
    for (int i = 0; i < d->out->n_sums; i++)
        d->out->sum[i] = ir_substitute(d->ir, d->out->sum[i], &from, &to, 1);
    *ds = ir_substitute(d->ir, *ds, &from, &to, 1);
}

/* dL/d(what score_mod is given), from dL/d(what it gives). */
static int derive_score(struct deriver *d, int ds)
{
    struct diff_result g;
    if (d->ir->score.n_roots == 0)
        return ds;
    replace_score(d, d->ir->score.root[0], &ds);
    if (!differentiate(d, d->ir->score.root, &ds, 1, &g))
        return zero(d);
    pair_sites(d, &g);
    int before = without_sums(d, adjoint_of(d, &g, LEAF_S));
    diff_free(&g);
    return before;
}

/* Does a value vary between the query heads of one key head? */
static bool varies_in_group(struct deriver *d, int node)
{
    return ir_depends_on(d->ir, node, OP_AT, AT_H);
}

static void derive_scale(struct deriver *d, int ds)
{
    struct ir *ir = d->ir;
    struct diff_result g;
    const int scale = ir->scale.root[0];
    const int e = param(d, LEAF_QK);
    replace_score(d, ir2(ir, OP_MUL, e, scale), &ds);
    const int seed = times(d, ds, e);
    if (differentiate(d, &scale, &seed, 1, &g)) {
        pair_sites(d, &g);
        diff_free(&g);
    }
    const bool inside = varies_in_group(d, scale);
    d->out->ds = inside ? times(d, ds, scale) : ds;
    d->out->factor = inside ? ir_const(ir, 1, TYPE_F32) : scale;
}

/* ---- vector mods
 * ------------------------------------------------------------------------------------------- */

static void derive_stage(struct deriver *d, const struct ir_stage *stage, struct stage_back *out)
{
    const bool pair = stage->form != STAGE_ELEMENT;
    const int seed[2] = {param(d, pair ? LEAF_DLO : LEAF_DX), param(d, LEAF_DHI)};
    struct diff_result g;
    if (!differentiate(d, stage->fn.root, seed, pair ? 2 : 1, &g))
        return;
    out->root[0] = adjoint_of(d, &g, pair ? LEAF_LO : LEAF_X);
    out->root[1] = pair ? adjoint_of(d, &g, LEAF_HI) : zero(d);
    for (int i = 0; i < g.n && !d->failed; i++)
        if (is_wanted(d, g.item[i].leaf))
            site_add(d, &out->site, g.item[i].leaf, g.item[i].adjoint);
    diff_free(&g);
}

/* ---- doors ------------------------------------------------------------------------------------------- */

// `why` is written by what it is handed to.
bool backward_derive_online(struct ir *ir, const struct backward_wanted *wanted, struct backward *out,
                            char *why) // NOLINT(readability-non-const-parameter)
{
    struct deriver d = {.ir = ir, .wanted = wanted, .out = out, .why = why};
    *out = (struct backward){0};
    whole_row_states(&d);
    find_forms(&d);
    out->ds = derive_online(&d);
    out->factor = ir_const(ir, 1, TYPE_F32);
    return !d.failed && !ir->failed;
}

// NOLINTNEXTLINE(readability-non-const-parameter): written by what it is handed to
bool backward_derive(struct ir *ir, const struct backward_wanted *wanted, struct backward *out, char *why)
{
    struct deriver d = {.ir = ir, .wanted = wanted, .out = out, .why = why};
    *out = (struct backward){0};
    whole_row_states(&d);
    find_forms(&d);
    int ds = derive_online(&d);
    derive_scale(&d, derive_score(&d, ds));
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            derive_stage(&d, &ir->mod[m].stage[s], &out->stage[m][s]);
    return !d.failed && !ir->failed;
}

/* ---- for people ---------------------------------------------------------------------------------------- */

void backward_print(const void *of, const struct ir *w, struct text_buf *out)
{
    const struct backward *b = of;
    ir_print_roots(w, "sums over a row, ahead of all else", b->sum, b->n_sums, out);
    ir_print_roots(w, "weight of a pair", &b->weight, 1, out);
    ir_print_roots(w, "ds of a pair, without its factor", &b->ds, 1, out);
    ir_print_roots(w, "factor of ds", &b->factor, 1, out);
    for (int k = 0; k < MAX_STATE; k++)
        if (b->split[k].found)
            ir_print_roots(w, "final in two parts: high, norm",
                           (const int[]){b->split[k].high, b->split[k].norm}, 2, out);
    sites_print(w, "of a pair", &b->pair, out);
    sites_print(w, "of a row", &b->row, out);
    sites_print(w, "of a row without live pairs", &b->empty, out);
    stages_print(w, b->stage, out);
}
