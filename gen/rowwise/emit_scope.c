/*
 * emit_scope.c: names that values of a row-wise kernel have wherever generated text stands, and what
 * is assigned under them. In: a collected row_emitter. Out: the emitter's scope; fields of rows, as text.
 */
#include "gen/rowwise/emit.h"
#include "gen/base/text.h"

static void row_name_cells(struct row_emitter *r)
{
    for (int i = 0; i < r->cells.n; i++)
        scope_set(r->e, r->cells.node[i], "c.g%d", i);
}

void row_name_all(struct row_emitter *r, bool col, bool vals)
{
    scope_clear(r->e);
    fields_name(r->e, &r->head);
    if (col) {
        fields_name(r->e, &r->col);
        row_name_cells(r);
    }
    if (vals)
        fields_name(r->e, &r->vals);
    if (r->name_elements)
        r->name_elements(r);
    else
        scope_param(r->e, LEAF_ROWX, "e");
}

void row_assign_pass(struct row_emitter *r, int pass)
{
    bool only[MAX_FIELDS];
    row_name_all(r, false, false);
    for (int i = 0; i < r->vals.n; i++) {
        int known = (int)r->e->w->node[r->vals.node[i]].phase - 1;
        only[i] = known == pass;
        if (known < pass)
            scope_set(r->e, r->vals.node[i], "v.f%d", i);
    }
    phases_name(r->e, &r->phases, pass);
    fields_assign(r->e, &r->vals, only);
}

void row_emit_list(struct text_buf *out, const char *type, const char *name, const int *value, int n)
{
    text_add(out, "    static constexpr %s %s[] = {", type, name);
    for (int i = 0; i < n; i++)
        text_add(out, "%s%d", i ? ", " : "", value[i]);
    text_add(out, "%s};\n", n == 0 ? "0" : "");
}
