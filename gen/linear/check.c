/*
 * check.c: rules of linear attention for a whole spec: what each slot may vary with, and which go together.
 * In: traced IR. Out: the same, or diagnostics; and what the formulas say (linear.h).
 */
#include "gen/base/diag.h"
#include "gen/ir/kind.h"
#include "gen/ir/rules.h"
#include "gen/linear/columns.h"
#include "gen/linear/linear.h"

#include <stdio.h>

static bool is_zero(const struct ir *ir, int node)
{
    return ir->node[node].op == OP_CONST && ir->node[node].value == 0;
}

enum decay_form linear_decay_form(const struct ir *ir)
{
    const struct ir_fn *decay = &ir->linear.decay;
    if (decay->n_roots == 0 || is_zero(ir, decay->root[0]))
        return DECAY_NONE;
    const struct ir_node *n = &ir->node[decay->root[0]];
    if (n->span & SPAN_DIM)
        return ir_depends_on(ir, decay->root[0], OP_AT, AT_J) ? DECAY_VALUE : DECAY_KEY;
    return n->span & SPAN_Q ? DECAY_TOKEN : DECAY_HEAD;
}

const char *linear_decay_text(enum decay_form form)
{
    static const char *const text[] = {
        [DECAY_NONE] = "none",           [DECAY_HEAD] = "per head",           [DECAY_TOKEN] = "per token",
        [DECAY_KEY] = "per key channel", [DECAY_VALUE] = "per value channel",
    };
    return text[form];
}

bool linear_has_vectors(const struct ir *ir)
{
    const struct ir_linear *l = &ir->linear;
    return l->reader.n_roots + l->writer.n_roots > 0 || l->read_first;
}

bool linear_reads_key(const struct ir *ir)
{
    const struct ir_mod *key = &ir->mod[MOD_KEY];
    bool read = true;
    for (int s = 0; s < key->n_stages; s++) {
        bool stage = key->stage[s].form != STAGE_ELEMENT; /* elements without a pair leave as they came */
        for (int r = 0; r < key->stage[s].fn.n_roots; r++)
            stage |= ir_depends_on(ir, key->stage[s].fn.root[r], OP_PARAM, LEAF_X);
        read &= stage;
    }
    return read;
}

static bool is_by_batch(const struct ir *ir, const struct ir_node *load)
{
    bool found = false;
    for (int k = 0; load->op == OP_LOAD && k < load->n_args; k++)
        found |= ir->input[load->index].dim[k].literal == 0 &&
                 ir->input[load->index].dim[k].sym == SYM_SEQS &&
                 ir_depends_on(ir, load->arg[k], OP_AT, AT_B);
    return found;
}

int linear_reads_by_batch(const struct ir *ir)
{
    for (int i = 0; i < ir->n_nodes; i++)
        if (is_by_batch(ir, &ir->node[i]))
            return ir->node[i].index;
    return -1;
}

void linear_say_unpacked(const struct ir *ir, int input, char *why, size_t size)
{
    snprintf(why, size,
             "argument 'cu': '%s' is read at at.b, which is 0 in all packed sequences; read it at "
             "packed_sequence(starts, n, at.t), or give a value for each token",
             ir->input[input].name);
}

bool linear_wants_output(const struct ir *ir)
{
    return ir->mod[MOD_OUTPUT].n_stages == 0 && ir_steps(ir) == 1 &&
           (ir->linear.normalise || linear_decay_form(ir) == DECAY_VALUE);
}

/* What its row of linear_slots.def says. */
static void check_slot(struct rule *r, enum linear_function which)
{
    const struct linear_slot *slot = linear_slot_of(which);
    struct ir_fn *fn = &r->ir->linear.slot[which - 1];
    if (fn->n_roots == 0)
        return;
    rule_number(r, fn, 0, linear_slot_span(which), slot->name, slot->shape);
    rule_no_reductions(r, fn, 0, SPAN_DIM, slot->name, slot->sums);
}

static void check_decay(struct rule *r)
{
    const struct ir_fn *decay = &r->ir->linear.decay;
    if (decay->n_roots == 0)
        return;
    if (ir_depends_on(r->ir, decay->root[0], OP_AT, AT_I) &&
        ir_depends_on(r->ir, decay->root[0], OP_AT, AT_J))
        rule_broken(r, decay, 0,
                    "varies with the key channel at.i and with the value channel at.j; it may with one of "
                    "them, which scales the rows or the columns of the state",
                    "decay");
}

static void check_functions(struct rule *r)
{
    check_slot(r, OF_DECAY);
    check_decay(r);
    for (int k = OF_DECAY + 1; k < LINEAR_FUNCTIONS; k++)
        check_slot(r, (enum linear_function)k);
    rule_number(r, &r->ir->scale, 0, 0, "scale", linear_slot_of(OF_SCALE)->shape);
}

/* Slots that do not go together, at the place of the formula that is one too many. */
static void refuse_pair(struct rule *r, const struct ir_fn *at, const char *who, const char *text)
{
    rule_broken(r, at, 0, text, who);
}

/* As it is: a read, and no formula of it. */
static int input_given(const struct ir *ir, const struct ir_fn *fn)
{
    const struct ir_node *n = fn->n_roots > 0 ? &ir->node[fn->root[0]] : NULL;
    return n && (n->op == OP_LOAD || n->op == OP_SCALAR) ? n->index : -1;
}

/* What reads the state and what writes what was read. */
static void check_rule(struct rule *r)
{
    const struct ir_linear *linear = &r->ir->linear;
    const bool delta = linear->delta.n_roots > 0;
    const struct ir_fn *one = linear->reader.n_roots > 0 ? &linear->reader : &linear->writer;
    if (!delta && linear->reader.n_roots > 0 && linear->writer.n_roots == 0)
        refuse_pair(r, &linear->reader, "reader",
                    "goes with delta, or with a writer, under which what was read is added: writer = "
                    "function(k) return k end");
    if (!delta && linear->reader.n_roots == 0 && linear->writer.n_roots > 0)
        refuse_pair(r, &linear->writer, "writer",
                    "goes with delta, or with a reader, which says what of the state it writes; v alone is "
                    "written under the key, which key_mod makes");
    if (one->n_roots > 0 && linear->bonus.n_roots > 0)
        refuse_pair(r, &linear->bonus, "bonus",
                    "does not go with reader and writer, whose state is read after the update");
    if (one->n_roots > 0 && !delta && linear->normalise)
        refuse_pair(r, one, one == &linear->reader ? "reader" : "writer",
                    "does not go with normalise: what is written has no weights whose sum could divide it");
}

/* A token with several updates has several rows of v, one that several heads of q read several of o. */
static void check_output(struct rule *r)
{
    const struct ir_mod *mod = &r->ir->mod[MOD_OUTPUT];
    for (int s = 0; s < mod->n_stages && ir_steps(r->ir) > 1; s++)
        if (ir_depends_on(r->ir, mod->stage[s].fn.root[0], OP_PARAM, LEAF_V))
            refuse_pair(
                r, &mod->stage[s].fn, "output_mod",
                ir_updates(r->ir) > 1
                    ? "reads v, of which a token has a row for each of its updates; give what is added to o "
                      "as "
                      "an input"
                    : "reads v, which has fewer heads than o with query_heads; give what is added to o as an "
                      "input");
}

static void check_together(struct rule *r)
{
    const struct ir_linear *linear = &r->ir->linear;
    const bool delta = linear->delta.n_roots > 0;
    const bool bonus = linear->bonus.n_roots > 0;
    for (int k = 0; k < LINEAR_SLOTS && linear->all_tokens; k++) {
        const struct linear_slot *slot = linear_slot_of((enum linear_function)(k + 1));
        if (slot->order && linear->slot[k].n_roots > 0)
            refuse_pair(r, &linear->slot[k], slot->name, slot->order);
    }
    if (input_given(r->ir, &linear->delta) >= 0 &&
        input_given(r->ir, &linear->delta) == input_given(r->ir, &linear->decay))
        refuse_pair(r, &linear->delta, "delta",
                    "gives the input that decay gives, too: that is at most 0 there, and from 0 to 2 here, "
                    "so only 0 would "
                    "do; give each an input of its own, or a formula, such as exp(x.g(at.b, at.h, at.t))");
    if (delta && bonus)
        refuse_pair(r, &linear->bonus, "bonus",
                    "does not go with delta, whose state is read after the update");
    if (delta && linear->normalise)
        refuse_pair(r, &linear->delta, "delta",
                    "does not go with normalise: corrected values have no weights "
                    "whose sum could divide them");
    if (linear->normalise && linear->decay.n_roots > 0 && linear_decay_form(r->ir) == DECAY_VALUE)
        refuse_pair(r, &linear->decay, "decay",
                    "does not go with normalise where it varies with the value channel at.j: the sum of "
                    "keys has none");
}

/* An input that a slot gives as it is has the values that the slot may have. */
static void take_range(struct ir *ir, const struct ir_fn *fn, const struct linear_slot *slot)
{
    const struct ir_node *n = fn->n_roots > 0 ? &ir->node[fn->root[0]] : NULL;
    if (!n || !slot->range || (n->op != OP_LOAD && n->op != OP_SCALAR) ||
        ir->input[n->index].range.declared || ir->input[n->index].range.real)
        return;
    ir->input[n->index].range.real = true;
    ir->input[n->index].range.least = slot->least;
    ir->input[n->index].range.most = slot->most;
}

static bool is_key(const struct ir *ir, const struct ir_fn *fn)
{
    return fn->n_roots > 0 && ir->node[fn->root[0]].op == OP_PARAM && ir->node[fn->root[0]].index == LEAF_X;
}

/* A rule that says no more than the delta rule is the delta rule, which more kernels have. */
static void reduce_rule(struct ir *ir)
{
    struct ir_linear *linear = &ir->linear;
    if (linear_decay_form(ir) == DECAY_NONE)
        linear->read_first = false;
    if (linear->delta.n_roots > 0 && is_key(ir, &linear->reader))
        linear->reader.n_roots = 0;
    if (linear->delta.n_roots > 0 && is_key(ir, &linear->writer))
        linear->writer.n_roots = 0;
}

bool check_linear(struct ir *ir, struct diag *diag)
{
    struct rule r = {ir, diag, true};
    for (int k = 0; k < LINEAR_SLOTS; k++)
        take_range(ir, &ir->linear.slot[k], linear_slot_of((enum linear_function)(k + 1)));
    rule_mods(&r);
    check_functions(&r);
    check_together(&r);
    check_rule(&r);
    check_output(&r);
    rule_names(&r);
    if (r.ok)
        reduce_rule(ir);
    return r.ok;
}
