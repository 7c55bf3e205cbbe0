/*
 * emit_finish.c: how a row of attention ends. In: a lowered spec, whose epilogue has the factor of o and the
 * finals, or, where the forward pass gives parts of rows, the row states as they are. Out: the functions of
 * struct variant that compute them, and that store them.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/sign_parts.h"
#include "gen/base/text.h"

#include <math.h>

bool ends_as_part(const struct emitter *e)
{
    return makes_parts(e->sig, e->problem);
}

/* Of a row without live pairs. A state that is saved for the backward pass may have any value there. */
static void emit_empty_finals(struct attention *a)
{
    struct emitter *e = a->e;
    const struct ir_fn *empty = &e->w->lowered.empty;
    char text[128];
    text_add(e->out, "    DEV void empty_finals(float *finals, " AT_PAIR ", const row &r)\n    {\n");
    name_static(a, true, false);
    emit_values(e, empty->root, empty->n_roots);
    for (int i = 0; i < e->w->n_finals; i++) {
        const struct ir_node *n = i < empty->n_roots ? &e->w->node[empty->root[i]] : NULL;
        const bool computed = n && n->op != OP_CONST;
        if (computed)
            node_text(e, empty->root[i], text, sizeof text);
        else
            float_text(!n ? 0 : isnan(n->value) ? -HUGE_VAL : n->value, text, sizeof text);
        text_add(e->out,
                 computed ? "        finals[%d] = not_nan(%s, -INF);\n" : "        finals[%d] = %s;\n", i,
                 text);
    }
    if (ends_as_part(e))
        text_add(e->out, "        finals[%d] = 0.0f; // no live pair\n", e->w->n_finals);
    text_add(e->out, "    }\n");
}

static void emit_end(struct attention *a)
{
    const struct ir *w = a->e->w;
    struct emitter *e = a->e;
    const bool part = ends_as_part(e);
    char text[128];
    text_add(
        e->out,
        "    static constexpr int FINALS = %d;\n    DEV float finish(const state &s, float *finals, " AT_PAIR
        ", const row &r)\n    {\n",
        w->n_finals + part);
    name_static(a, true, false);
    name_states(a);
    emit_values(e, w->epilogue.root, w->epilogue.n_roots);
    for (int i = 0; i < w->n_finals; i++)
        text_add(e->out, "        finals[%d] = %s; // %s\n", i,
                 node_text(e, w->epilogue.root[1 + i], text, sizeof text), w->final[i].name);
    if (part)
        text_add(e->out, "        finals[%d] = 1.0f; // a live pair\n", w->n_finals);
    text_add(e->out, "        return %s;\n    }\n", node_text(e, w->epilogue.root[0], text, sizeof text));
}

/* Finals are tensors of their own, which may be left out; of a part they are neighbours in one. */
static void emit_store(const struct emitter *e)
{
    text_add(e->out,
             "    DEV void store_finals(const %s &p, int b, int h, int row, const float *finals)\n    {\n",
             e->sig->combine ? "combine_params" : "attention_params");
    if (ends_as_part(e)) {
        text_add(e->out, "        float *to = p.ends + (b * p.ends_b + h * p.ends_h + row * p.ends_t);\n");
        for (int i = 0; i <= e->w->n_finals; i++)
            text_add(e->out, "        to[%d] = finals[%d];\n", i, i);
    } else {
        for (int i = 0; i < e->w->n_finals; i++)
            text_add(
                e->out,
                "        if (p.final%d) {\n            p.final%d[b * p.final%d_b + h * p.final%d_h + row * "
                "p.final%d_t] = finals[%d];\n        }\n",
                i, i, i, i, i, i);
    }
    text_add(e->out, "    }\n");
}

void emit_finish(struct attention *a)
{
    emit_end(a);
    emit_empty_finals(a);
    emit_store(a->e);
}
