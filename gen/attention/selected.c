/*
 * selected.c: masks that leave a row the blocks of keys of a list. In: a lowered spec of attention, after
 * key_interval_pass. Out: w->lowered.selected.
 *
 * What a row's interval of keys does not say must be, as a whole, `blocks(b, h_kv, row, 0) = kv // keys |
 * blocks(b, h_kv, row, 1) = kv // keys | ...`, with every entry of the list: then a kernel that walks the
 * list and keeps to the interval need not ask about pairs.
 */
#include "gen/attention/lower.h"
#include "gen/ir/spec.h"

enum { MOST_ENTRIES = 128 }; /* threads of attention/selected.cuh, each of which reads one */

struct finder {
    const struct ir *w;
    int load; /* of some entry; -1: none was met */
    int keys;
    bool seen[MOST_ENTRIES];
};

static bool is_at(const struct ir *w, int node, int field)
{
    return w->node[node].op == OP_AT && w->node[node].index == field;
}

static bool is_entry(struct finder *f, int node)
{
    static const int AT[] = {AT_B, AT_H_KV, AT_ROW};
    const struct ir_node *n = &f->w->node[node];
    if (n->op != OP_LOAD || n->n_args != 4 || (f->load >= 0 && f->w->node[f->load].index != n->index))
        return false;
    for (int d = 0; d < 3; d++)
        if (!is_at(f->w, n->arg[d], AT[d]))
            return false;
    const struct ir_node *place = &f->w->node[n->arg[3]];
    if (place->op != OP_CONST || place->value < 0 || place->value >= MOST_ENTRIES)
        return false;
    f->seen[(int)place->value] = true;
    f->load = node;
    return true;
}

static bool is_block_of_key(struct finder *f, int node)
{
    const struct ir_node *n = &f->w->node[node];
    if (n->op != OP_IDIV || !is_at(f->w, n->arg[0], AT_KV) || f->w->node[n->arg[1]].op != OP_CONST)
        return false;
    const int keys = (int)f->w->node[n->arg[1]].value;
    if (f->keys != 0 && f->keys != keys)
        return false;
    f->keys = keys;
    return true;
}

/* Operands of commutative operations come in either order. */
static bool is_choice(struct finder *f, int node)
{
    const struct ir_node *n = &f->w->node[node];
    if (n->op == OP_OR)
        return is_choice(f, n->arg[0]) && is_choice(f, n->arg[1]);
    return n->op == OP_EQ && ((is_entry(f, n->arg[0]) && is_block_of_key(f, n->arg[1])) ||
                              (is_entry(f, n->arg[1]) && is_block_of_key(f, n->arg[0])));
}

/* Has the list these entries and no others? */
static bool is_whole(const struct finder *f)
{
    static const enum sym DIM[] = {SYM_B, SYM_H_KV, SYM_Q};
    const struct input *in = &f->w->input[f->w->node[f->load].index];
    int n = 0;
    while (n < MOST_ENTRIES && f->seen[n])
        n++;
    for (int i = n; i < MOST_ENTRIES; i++)
        if (f->seen[i])
            return false;
    for (int d = 0; d < 3; d++)
        if (in->dim[d].literal > 0 || in->dim[d].sym != DIM[d])
            return false;
    return in->n_dims == 4 && in->dim[3].literal == n && !in->optional;
}

void selected_pass(struct ir *w)
{
    struct finder f = {.w = w, .load = -1};
    w->lowered.selected = (struct selected_blocks){.n = 0};
    if (w->mask.n_roots == 0 || w->lowered.keys_left.n_roots == 0 ||
        !is_choice(&f, w->lowered.keys_left.root[0]) || f.keys <= 0 || !is_whole(&f))
        return;
    const struct ir_node n = w->node[f.load];
    const int index[4] = {n.arg[0], n.arg[1], n.arg[2], ir_param(w, LEAF_PLACE, (struct ir_at){0, 0})};
    w->lowered.selected.n = w->input[n.index].dim[3].literal;
    w->lowered.selected.keys = f.keys;
    w->lowered.selected.entry = ir_load(w, n.index, index, 4, (struct ir_at){n.file, n.line});
}
