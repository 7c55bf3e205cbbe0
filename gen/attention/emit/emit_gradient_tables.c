/*
 * emit_gradient_tables.c: what attention's backward pass adds to struct variant where lanes of a warp may add
 * to the same element of an input. In: lowered formulas, a plan. Out: how large each table is, which of its
 * entries a pair adds to, and where an entry goes, as text. Other kernels get no text from here.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

/* Sizes of the dims whose index varies, one after the other: " * 5 * x.n2_table". */
static void varying_sizes(const struct emitter *e, int leaf, int first, struct text_buf *t)
{
    const struct ir_node *n = &e->w->node[leaf];
    for (int d = first; d < n->n_args; d++) {
        char size[64];
        input_size_text(e, n->index, d, size, sizeof size);
        if (site_varies(e->w, leaf, d))
            text_add(t, " * %s", size);
    }
}

static void emit_entries(struct emitter *e, int leaf)
{
    text_add(e->out, "            return 1ll");
    varying_sizes(e, leaf, 0, e->out);
    text_add(e->out, ";\n");
}

/* The pair's, with the last dim innermost. */
static void emit_index(struct attention *a, const struct site *site)
{
    struct emitter *e = a->e;
    const struct ir_node n = e->w->node[site->leaf];
    name_static(a, true, site->form == ADDRESS_ELEMENT);
    for (int d = 0; d < n.n_args; d++)
        if (site_varies(e->w, site->leaf, d))
            emit_values(e, &n.arg[d], 1);
    text_add(e->out, "        return 0");
    for (int d = 0; d < n.n_args; d++) {
        if (!site_varies(e->w, site->leaf, d))
            continue;
        text_add(e->out, " + (long long)");
        index_text(e, &n, d, e->out);
        varying_sizes(e, site->leaf, d + 1, e->out);
    }
    text_add(e->out, ";\n");
}

/* Of entry i: where it is in the gradient. */
static void emit_place(struct attention *a, int leaf)
{
    struct emitter *e = a->e;
    const struct ir_node n = e->w->node[leaf];
    const char *name = e->w->input[n.index].name;
    name_static(a, false, false);
    for (int d = 0; d < n.n_args; d++)
        if (!site_varies(e->w, leaf, d))
            emit_values(e, &n.arg[d], 1);
    text_add(e->out, "        return g.d_%s", name);
    for (int d = 0; d < n.n_args; d++) {
        char size[64];
        input_size_text(e, n.index, d, size, sizeof size);
        text_add(e->out, " + (long long)");
        if (site_varies(e->w, leaf, d)) {
            text_add(e->out, "(i / (1");
            varying_sizes(e, leaf, d + 1, e->out);
            text_add(e->out, ") %% %s)", size);
        } else {
            index_text(e, &n, d, e->out);
        }
        text_add(e->out, " * g.s%d_%s", d, name);
    }
    text_add(e->out, ";\n");
}

enum part { PART_ENTRIES, PART_INDEX, PART_PLACE };

static void emit_part(struct attention *a, const char *head, enum part part)
{
    const struct site_list *list = &a->e->back->pair;
    text_add(a->e->out, "    template <int G> DEV auto %s\n    {\n", head);
    bool first = true;
    for (int i = 0; i < list->n; i++) {
        if (!site_meets(a->e->w, &list->item[i]))
            continue;
        text_add(a->e->out, "        %sif constexpr (G == %d) {\n", first ? "" : "} else ", i);
        first = false;
        if (part == PART_ENTRIES)
            emit_entries(a->e, list->item[i].leaf);
        else if (part == PART_INDEX)
            emit_index(a, &list->item[i]);
        else
            emit_place(a, list->item[i].leaf);
    }
    text_add(a->e->out, "        }\n    }\n");
}

void emit_meeting_sites(struct attention *a, const struct plan *plan)
{
    struct emitter *e = a->e;
    const struct site_list *list = &e->back->pair;
    struct site_tables tables;
    int room[MAX_SITES];
    bool any = false;
    for (int i = 0; i < list->n; i++)
        any |= site_meets(e->w, &list->item[i]);
    if (!any)
        return;
    site_tables_make(e->w, e->problem, list, &tables);
    site_tables_fit(&tables, plan->attention.back.tables, room);
    text_add(e->out, "    static constexpr bool SITE_MEETS[] = {");
    for (int i = 0; i < list->n; i++)
        text_add(e->out, "%s%s", i ? ", " : "", yes(site_meets(e->w, &list->item[i])));
    text_add(e->out, "};\n    static constexpr int SITE_ENTRIES[] = {");
    for (int i = 0; i < list->n; i++)
        text_add(e->out, "%s%d", i ? ", " : "", tables.entries[i] > 0 ? (int)tables.entries[i] : 0);
    text_add(e->out, "}, SITE_ROOM[] = {");
    for (int i = 0; i < list->n; i++)
        text_add(e->out, "%s%d", i ? ", " : "", room[i]);
    text_add(e->out, "};\n");
    emit_part(a, "site_entries(const inputs &x, const sizes &z)", PART_ENTRIES);
    emit_part(a,
              "site_index(const inputs &x, const sizes &z, const head &h, const row &r, const col &c, int "
              "delta)",
              PART_INDEX);
    emit_part(a, "site_entry(const grads &g, const inputs &x, const sizes &z, const head &h, int i)",
              PART_PLACE);
}
