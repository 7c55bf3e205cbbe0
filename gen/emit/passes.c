/*
 * passes.c: what is reduced of a row, a tile or a head dim, in passes over its elements. In: roots. Out: the
 * tables PASSES, REDUCTIONS, REDUCE_PASS and REDUCE_OP of a variant, and names for what a pass has made.
 */
#include "gen/base/text.h"
#include "gen/emit/emit.h"

bool phases_collect(struct emitter *e, const int *root, int n_roots, struct phases *out)
{
    ir_mark(e->w, root, n_roots, e->mark);
    if (phases_find(e->w, e->mark, out))
        return true;
    text_exceed(e->out, MAX_REDUCTIONS, "reductions of a row");
    return false;
}

void phases_declare(struct emitter *e, const struct phases *p)
{
    struct text_buf *out = e->out;
    text_add(
        out,
        "    static constexpr int PASSES = %d, REDUCTIONS = %d;\n    static constexpr int REDUCE_PASS[] = {",
        p->passes, p->n);
    for (int i = 0; i < p->n; i++)
        text_add(out, "%s%d", i ? ", " : "", p->pass[i]);
    text_add(out, "%s};\n    static constexpr int REDUCE_OP[] = {", p->n ? "" : "-1");
    for (int i = 0; i < p->n; i++)
        text_add(out, "%s%s", i ? ", " : "", reduction_name(e->w->node[p->node[i]].op));
    text_add(out, "%s};\n", p->n ? "" : "RED_SUM");
}

void phases_name(struct emitter *e, const struct phases *p, int pass)
{
    for (int i = 0; i < p->n; i++)
        if (p->pass[i] == pass)
            scope_set(e, p->node[i], "red[%d]", i);
}

static int reduction_kind(int op)
{
    return op == OP_ROWMAX || op == OP_DIMMAX || op == OP_SPLITMAX ? 1 : op == OP_ROWMIN ? 2 : 0;
}

const char *reduction_name(int op)
{
    static const char *const name[] = {"RED_SUM", "RED_MAX", "RED_MIN"};
    return name[reduction_kind(op)];
}
