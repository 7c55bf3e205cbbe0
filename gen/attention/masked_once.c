/*
 * masked_once.c: may a dead pair be told once? In: a lowered online function with its schedule. Out: the
 * value that an element of a dead pair takes in pass 0, such that everything that follows gives what a kernel
 * would select: the identity of every reduction, and weight 0. Then later passes need not ask which pairs are
 * live.
 *
 * A score of -inf does that for weights exp(score - m), if nothing becomes inf - inf where m is -inf too; a
 * weight of 0 does where the weight is known in pass 0.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"
#include "gen/lower/laws.h"
#include "gen/lower/terms.h"

#include <math.h>
#include <stdlib.h>

static bool is_value(const struct ir *w, int node, double value)
{
    return w->node[node].op == OP_CONST && w->node[node].value == value;
}

/* What reduction r reduces, where elements hold `held` = value. */
static int operand_at(struct ir *w, int reduction, int held, double value)
{
    int constant = ir_const(w, value, TYPE_F32);
    return ir_substitute(w, w->node[reduction].arg[0], &held, &constant, 1);
}

static double identity(const struct ir *w, int reduction)
{
    return w->node[reduction].op == OP_ROWMAX ? -HUGE_VAL : w->node[reduction].op == OP_ROWMIN ? HUGE_VAL : 0;
}

/* Reductions from pass `first` to `last` get their identities of such an element. */
static bool reductions_are_neutral(struct ir *w, const struct schedule *s, int first, int last, int held,
                                   double value)
{
    for (int i = 0; i < s->reductions.n; i++)
        if (s->reductions.pass[i] >= first && s->reductions.pass[i] <= last &&
            !is_value(w, operand_at(w, s->reductions.node[i], held, value),
                      identity(w, s->reductions.node[i])))
            return false;
    return true;
}

/* exp(c carry + row values) with a constant c > 0. */
static bool falls_with_carry(const struct ir *w, const struct schedule *s)
{
    const struct ir_node *n = &w->node[s->weight];
    if (n->op != OP_EXP && n->op != OP_EXP2)
        return false;
    struct shift *law = calloc((size_t)w->n_nodes, sizeof *law); /* nothing is decided */
    struct terms *terms = calloc((size_t)w->n_nodes, sizeof *terms);
    bool ok = law && terms;
    int found = 0;
    if (ok)
        terms_of_all(w, n->arg[0], s->carry, law, terms);
    for (int i = 0; ok && i < terms[n->arg[0]].n; i++) {
        const struct term *t = &terms[n->arg[0]].term[i];
        for (int k = 0; k < t->n && ok; k++) {
            bool is_carry = t->atom[k] == s->carry;
            found += is_carry;
            ok = is_carry ? t->n == 1 && t->by > 0 : !(w->node[t->atom[k]].span & SPAN_KV);
        }
    }
    free(law);
    free(terms);
    return ok && found == 1;
}

/* Where the row's maximum is -inf as well. */
static bool is_zero_at_the_bottom(struct ir *w, const struct schedule *s)
{
    int bottom = ir_const(w, -HUGE_VAL, TYPE_F32);
    const int from[2] = {s->carry, w->lowered.rescale.now};
    const int to[2] = {bottom, bottom};
    return is_value(w, ir_substitute(w, s->weight, from, to, 2), 0);
}

void masked_once_pass(struct ir *w)
{
    struct schedule s;
    w->lowered.rescale.masked_once = false;
    if (!schedule_online(w, &s))
        return;
    if (s.store_pass == 0) {
        w->lowered.rescale.dead = 0;
        w->lowered.rescale.masked_once = reductions_are_neutral(w, &s, 0, s.reductions.passes, s.weight, 0);
    } else if (w->lowered.rescale.path == ROWS_LAZY || w->lowered.rescale.path == ROWS_BELOW) {
        w->lowered.rescale.dead = -HUGE_VAL;
        w->lowered.rescale.masked_once =
            reductions_are_neutral(w, &s, 0, s.store_pass - 1, s.carry, w->lowered.rescale.dead) &&
            falls_with_carry(w, &s) && is_zero_at_the_bottom(w, &s) &&
            reductions_are_neutral(w, &s, s.store_pass, s.reductions.passes, s.weight, 0);
    }
}
