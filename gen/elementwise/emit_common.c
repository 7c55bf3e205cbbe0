/*
 * emit_common.c: what every emitter of an elementwise map asks: which class a value has, how a tensor's
 * elements are declared, what reads and adds to lines, and the names of leaves. In: a map and its classes.
 * Out: answers, names in the emitter's scope, and where a scatter adds, as text.
 */
#include "gen/elementwise/emit.h"
#include "runtime/recipe/bind.h"
#include "gen/base/text.h"

enum value_class map_class(const struct map_emitter *me, unsigned span)
{
    const bool lane = (span >> me->last & 1) != 0;
    const bool step = me->map->n_over == 1 ? lane : me->loop >= 0 && (span >> me->loop & 1) != 0;
    const bool turn = me->outer < 0 || (span >> me->outer & 1) != 0;
    if (lane)
        return step ? CLASS_ELEMENT : turn ? CLASS_COL : CLASS_DYNAMIC;
    return step ? CLASS_ROW : CLASS_HEAD;
}

bool is_operand(const struct map_emitter *me, int v, enum value_class class)
{
    const struct map_tensor *t = map_tensor(me, v / 2);
    return map_uses(me, v / 2, USE_READ) && map_class(me, span_of(t)) == class && (v % 2 == 0 || is_pair(t));
}

const char *map_type(const struct map_emitter *me, int tensor)
{
    const int arg = lathe__arg_find(me->e->sig, map_tensor(me, tensor)->name, 0);
    return element_type((lathe_dtype)me->e->problem->arg_dtype[arg]);
}

const char *map_number(const struct map_emitter *me, int tensor)
{
    const lathe_dtype dtype = map_tensor(me, tensor)->dtype;
    return dtype == LATHE_I32 || dtype == LATHE_U8 ? "int" : "float";
}

void name_leaves(struct map_emitter *me)
{
    static const char *const object[CLASS_COUNT] = {[CLASS_HEAD] = "h.",
                                                    [CLASS_DYNAMIC] = "f.",
                                                    [CLASS_COL] = "c.",
                                                    [CLASS_ROW] = "r.",
                                                    [CLASS_ELEMENT] = ""};
    struct emitter *e = me->e;
    scope_clear(e);
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        const int index = n->index - AT_INDEX0;
        const int size = n->index - AT_SIZE0;
        if (n->op == OP_AT && index >= 0 && index < MAX_OVER)
            scope_set(e, i, index == me->last ? "i" : "at.at[%d]", index);
        else if (n->op == OP_AT && size >= 0 && size < MAX_OVER)
            scope_set(e, i, me->map->list ? "at.length" : "z.n[%d]", size);
        else if (n->op == OP_PARAM && n->index >= LEAF_TENSOR)
            scope_set(e, i, "%sp%d", object[map_class(me, n->span)], n->index - LEAF_TENSOR);
    }
}

bool is_map_line(const struct map_emitter *me, int input, const int *index)
{
    const struct ir *w = me->e->w;
    const struct input *in = &w->input[input];
    const int last = in->n_dims - 1;
    if (last < 0 || in->dim[last].literal > 0 || in->dim[last].sym != me->map->over[me->last] ||
        me->map->list)
        return false;
    for (int d = 0; d < last; d++)
        if (w->node[index[d]].span >> me->last & 1)
            return false;
    return ir_is_at(w, index[last], AT_INDEX0 + me->last);
}

bool is_scatter_line(const struct map_emitter *me, const struct map_scatter *to)
{
    return is_map_line(me, me->e->w->maps.tensor[to->tensor].input, to->index);
}

/* "if (..) " of an input that may have no elements although there are points: a clamped index would be no
   one's. */
void emit_scatter_guard(struct map_emitter *me, const struct map_scatter *to)
{
    const struct input *in = &me->e->w->input[me->e->w->maps.tensor[to->tensor].input];
    bool guarded = false;
    for (int d = 0; d < in->n_dims; d++) {
        bool own = in->dim[d].literal > 0;
        for (int k = 0; k <= me->last; k++)
            own |= in->dim[d].sym == me->map->over[k];
        if (!own)
            text_add(me->e->out, "%sp.h%d.n[%d] > 0", guarded ? " && " : "if (", to->tensor, d),
                guarded = true;
    }
    text_add(me->e->out, "%s", guarded ? ") " : "");
}

/* (.. * n1 + index 1): of the first `n` indices. */
void emit_scatter_place(struct map_emitter *me, const struct map_scatter *to, int n)
{
    struct text_buf *out = me->e->out;
    char text[128];
    for (int d = 0; d < n; d++)
        text_add(out, "(");
    text_add(out, "0ll");
    for (int d = 0; d < n; d++)
        text_add(out, ") * p.h%d.n[%d] + m_clamp_index(%s, static_cast<int>(p.h%d.n[%d]))", to->tensor, d,
                 node_text(me->e, to->index[d], text, sizeof text), to->tensor, d);
}

/* Of what stands in the workspace for the elements of a sum or of a scatter: without rounding where its bits
 * may not depend on the order in which atomics come. */
const char *map_sum_type(const struct emitter *e, int tensor)
{
    return e->w->maps.tensor[tensor].use == USE_SCATTER && e->problem->deterministic ? "exact_sum" : "float";
}
