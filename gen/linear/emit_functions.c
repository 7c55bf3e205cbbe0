/*
 * emit_functions.c: the functions of the recurrence as members of struct variant, of both passes: head, row,
 * scale, and the slots of gen/ir/linear_slots.def. In: a lowered spec. Out: their text, and which values are
 * kept for a head and a token.
 */
#include "gen/base/text.h"
#include "gen/linear/emit.h"
#include "gen/linear/lower.h"

#define AT_HEAD "const inputs &x, const sizes &z, const head &h"

bool linear_collect(struct functions *f, const int *more, int n_more)
{
    enum { MOST = LINEAR_FUNCTIONS * (2 + 2 * MAX_SITES) };
    int root[MOST];
    int n = 0;
    f->head = (struct field_set){.type = "head", .object = "h"};
    f->row = (struct field_set){.type = "row", .object = "v"};
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        if (linear_function_of(f->e->w, (enum linear_function)k)->n_roots > 0)
            root[n++] = linear_function_of(f->e->w, (enum linear_function)k)->root[0];
    for (int i = 0; i < n_more; i++)
        root[n++] = more[i];
    return fields_collect(f->e, &f->head, CLASS_HEAD, root, n) &&
           fields_collect(f->e, &f->row, CLASS_ROW, root, n);
}

static void emit_head_and_row(struct functions *f)
{
    struct emitter *e = f->e;
    fields_declare(e, &f->head, "int b, h, h_kv;");
    text_add(e->out,
             "    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)\n    {\n"
             "        head h;\n        h.b = b;\n        h.h = h_;\n        h.h_kv = z.key_head(h_);\n");
    scope_clear(e);
    fields_assign(e, &f->head, NULL);
    text_add(e->out, "        return h;\n    }\n");
    fields_declare(e, &f->row, "int t, pos;");
    text_add(e->out, "    DEV row make_row(" AT_HEAD ", int t, int pos)\n    {\n"
                     "        row v;\n        v.t = t;\n        v.pos = pos;\n");
    scope_clear(e);
    fields_name(e, &f->head);
    fields_assign(e, &f->row, NULL);
    text_add(e->out, "        return v;\n    }\n");
}

void emit_linear_scope(struct functions *f)
{
    scope_clear(f->e);
    fields_name(f->e, &f->head);
    fields_name(f->e, &f->row);
}

/* One that sees keys is there where the spec has it; others give what there is without. */
static bool is_emitted(const struct ir *spec, enum linear_function which)
{
    return !linear_slot_sees_key(which) || linear_has(spec, which);
}

static void emit_function(struct functions *f, enum linear_function which)
{
    const struct ir_fn *fn = linear_function_of(f->e->w, which);
    const struct linear_slot *slot = linear_slot_of(which);
    text_add(f->e->out, "    DEV float %s(" AT_HEAD "%s%s%s)\n    {\n", slot->name,
             (slot->varies & BY_TOKENS) != 0 ? ", const row &v" : "",
             (slot->varies & (BY_KEYS | BY_VALUES)) != 0 ? ", int i" : "",
             (slot->varies & OF_KEY) != 0 ? ", float k" : "");
    emit_linear_scope(f);
    scope_param(f->e, LEAF_X, "k");
    emit_return(f->e, fn->n_roots > 0 ? fn->root[0] : -1, slot->none);
    text_add(f->e->out, "    }\n");
}

void emit_linear_functions(struct functions *f)
{
    emit_head_and_row(f);
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        if (is_emitted(f->e->w, (enum linear_function)k))
            emit_function(f, (enum linear_function)k);
}
