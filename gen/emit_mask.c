/*
 * emit_mask.c: the mask of attention. In: a lowered spec, whose bounds of a tile and of a row are known. Out:
 * of the struct `variant`: which pairs live, what a tile is told by its corners, and by what the mask reads
 * there.
 */
#include "emit_attention.h"

/* Does any data-dependent part of the mask vary with the batch or the head? */
void find_map(struct attention *a, const struct plan *plan)
{
    struct ir *w = a->e->w;
    a->map.needed = bounds_mask_reads_data(w);
    a->map.ranges = a->map.needed && w->n_reads > 0 && plan->tma && !a->e->back;
    a->map.per_batch = a->map.needed && ir_depends_on(w, w->mask.root[0], OP_AT, AT_B);
    a->map.per_head = a->map.needed && (ir_depends_on(w, w->mask.root[0], OP_AT, AT_H) ||
                                        ir_depends_on(w, w->mask.root[0], OP_AT, AT_H_KV));
}

/* One end of a row's live keys, or the rest of the mask; root -1: true. */
static void emit_end(struct attention *a, const char *head, int root)
{
    text_add(a->e->out, "    DEV %s\n    {\n", head);
    name_static(a, true, true);
    emit_return(a->e, root, "true");
    text_add(a->e->out, "    }\n");
}

static void emit_live_range(struct attention *a)
{
    const struct ir *w = a->e->w;
    emit_end(a, "int first_key(" AT_PAIR ", const row &r)", w->live_range.root[0]);
    emit_end(a, "int last_key(" AT_PAIR ", const row &r)", w->live_range.root[1]);
    text_add(a->e->out, "    static constexpr bool SCATTERED = %s;\n", yes(w->live_rest.n_roots > 0));
    emit_end(a, "bool among(" AT_PAIR ", const row &r, const col &c)",
             w->live_rest.n_roots ? w->live_rest.root[0] : -1);
}

static void emit_live(struct attention *a)
{
    struct emitter *e = a->e;
    const struct ir_fn *mask = &e->w->mask;
    text_add(e->out, "    static constexpr bool MASKED = %s;\n", yes(mask->n_roots > 0));
    text_add(e->out, "    DEV bool live(" AT_PAIR ", const row &r, const col &c)\n    {\n");
    name_static(a, true, true);
    emit_return(e, mask->n_roots > 0 ? mask->root[0] : -1, "true");
    text_add(e->out, "    }\n");
    emit_live_range(a);
    text_add(e->out, "    static constexpr bool MAP = %s, MAP_PER_BATCH = %s, MAP_PER_HEAD = %s;\n",
             yes(a->map.needed), yes(a->map.per_batch), yes(a->map.per_head));
}

/* The body of a function that tells the class of a tile from its corners. */
static void emit_class_of(struct attention *a, const struct ir_fn *bounds)
{
    static const char *const corner[] = {"row0", "row1", "q0", "q1", "kv0", "kv1"};
    struct emitter *e = a->e;
    char text[3][128];
    text_add(e->out,
             "        [[maybe_unused]] const int q0 = row0 + z.q_start;\n        [[maybe_unused]] const int "
             "q1 = row1 + z.q_start;\n");
    name_static(a, false, false);
    for (int p = PARAM_ROW0; p < PARAM_TENSOR; p++)
        scope_param(e, p, corner[p - PARAM_ROW0]);
    for (int p = 0; p < 2 * e->w->n_reads; p++) {
        char read[16];
        snprintf(read, sizeof read, "%s[%d]", p % 2 ? "high" : "low", p / 2);
        scope_param(e, PARAM_READ + p, read);
    }
    emit_values(e, bounds->root, bounds->n_roots);
    for (int i = 0; i < bounds->n_roots; i++)
        node_text(e, bounds->root[i], text[i], sizeof text[i]);
    text_add(e->out, "        return %s ? TILE_ALL : ", text[0]);
    if (bounds->n_roots > 2) /* of what is left some is cut off by first_key() and last_key() alone */
        text_add(e->out, "!(%s) ? TILE_NONE : %s ? TILE_CUT : TILE_SOME;\n    }\n", text[1], text[2]);
    else
        text_add(e->out, "%s ? TILE_SOME : TILE_NONE;\n    }\n", text[1]);
}

static void emit_classify(struct attention *a)
{
    struct emitter *e = a->e;
    text_add(e->out, "    DEV int classify(" AT_PAIR ", int row0, int row1, int kv0, int kv1)\n    {\n");
    if (e->w->bounds.n_roots == 0)
        text_add(e->out, "        return TILE_ALL;\n    }\n");
    else
        emit_class_of(a, &e->w->bounds);
    text_add(e->out, "\n");
}

/* What the mask reads by row (or by column), of one row. */
static void emit_reads_of(struct attention *a, bool rows)
{
    struct emitter *e = a->e;
    char text[128];
    text_add(e->out, "    DEV void %s(" AT_PAIR ", const %s, int *read)\n    {\n",
             rows ? "row_reads" : "col_reads", rows ? "row &r" : "col &c");
    name_static(a, rows, !rows);
    for (int k = 0; k < e->w->n_reads; k++) {
        if ((e->w->node[e->w->read[k]].span == SPAN_Q) != rows)
            continue;
        emit_values(e, &e->w->read[k], 1);
        text_add(e->out, "        read[%d] = %s;\n", k, node_text(e, e->w->read[k], text, sizeof text));
    }
    text_add(e->out, "    }\n");
}

/* The same as classify() from more: the least and the largest value that each read of the mask gives on the
 * tile. */
static void emit_reads(struct attention *a)
{
    struct emitter *e = a->e;
    int n = a->map.needed ? e->w->n_reads : 0;
    text_add(e->out, "    static constexpr int READS = %d;\n    static constexpr bool READ_RANGES = %s;\n", n,
             yes(a->map.ranges));
    if (n == 0)
        return;
    unsigned by_row = 0;
    for (int k = 0; k < n; k++)
        by_row |= (unsigned)(e->w->node[e->w->read[k]].span == SPAN_Q) << k;
    text_add(e->out, "    static constexpr unsigned READS_BY_ROW = %#x; // a bit each\n", by_row);
    emit_reads_of(a, true);
    emit_reads_of(a, false);
    text_add(e->out,
             "    DEV int classify_reads(" AT_PAIR ", int row0, int row1, int kv0, int kv1, const int *low, "
             "const int *high)\n    {\n");
    emit_class_of(a, &e->w->read_bounds);
}

void emit_mask(struct attention *a)
{
    emit_live(a);
    emit_classify(a);
    emit_reads(a);
}
