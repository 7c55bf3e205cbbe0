/*
 * emit_mask.c: the mask of attention. In: a lowered spec, whose bounds of a tile and of a row are known. Out:
 * of the struct `variant`: which pairs live, what a tile is told by its corners, and by what the mask reads
 * there.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/traits.h"
#include "gen/attention/tile_map.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>

/* Do all tiles that are judged lie within blocks for which the mask is the same? */
static bool tiles_hold(const struct ir *w, const struct plan *plan, bool back, int rows)
{
    const struct back_plan *t = &plan->attention.back;
    const bool forward = mask_blocks_hold(w, rows, plan->attention.bn);
    if (!back)
        return forward;
    /* ROWS and KEYS of attention/backward/query_lists.cuh */
    const struct attention_traits *of = plan->row->attention;
    return (forward || !t->forward) && mask_blocks_hold(w, of->row_parts > 0 ? t->bm / of->row_parts : t->bm,
                                                        of->key_parts > 0 ? t->bn / of->key_parts : t->bn);
}

/* Does any part of a mask that is judged once a launch vary with the batch or the head? */
void find_map(struct attention *a, const struct plan *plan)
{
    struct ir *w = a->e->w;
    const bool back = a->e->back != NULL;
    const struct attention_traits *forward = attention_forward_traits(plan);
    /* Tiles of sequences, and of parts of rows, are judged one by one. */
    a->selected = back ? plan->attention.back.selected : plan->attention.selected;
    a->map.needed = tile_map_wanted(w) && !has_sequences(a->e) && !plan->attention.parts && !a->selected;
    a->map.ranges = a->map.needed && tile_map_of_ranges(w) && forward->map_ranges;
    a->map.look_heads =
        a->map.needed ? tile_map_look_heads(w, a->e->problem, isas[plan->row->isa].fmas, back) : 1;
    a->map.rows = forward->map_rows > 0 ? forward->map_rows : plan->attention.bm;
    a->map.blocks = a->map.needed && !a->map.ranges && tiles_hold(w, plan, back, a->map.rows);
    a->shares = forward->shares && !a->map.blocks;
    a->shares_rows = back && plan->row->attention->shares;
    a->map.look_cols = a->map.needed && tile_map_reads_pairs(w);
    a->map.per_batch = a->map.needed && ir_depends_on(w, w->mask.root[0], OP_AT, AT_B);
    a->map.per_head = a->map.needed && (ir_depends_on(w, w->mask.root[0], OP_AT, AT_H) ||
                                        ir_depends_on(w, w->mask.root[0], OP_AT, AT_H_KV));
}

/* Does it take a read, a division by what only the launch tells, or a function to find the value? */
static bool takes_long(const struct ir *w, const struct ir_node *n)
{
    const bool divides = n->op == OP_IDIV || n->op == OP_MOD;
    return n->op == OP_LOAD || n->op == OP_RANDOM || (divides && w->node[n->arg[1]].op != OP_CONST) ||
           (n->op >= OP_EXP && n->op <= OP_GELU) || n->op == OP_DIV || n->op == OP_POW;
}

/* Fields of a row or a column that a function of pairs takes: `used`, and those of them that each lane is
   handed: `passed`. Tells whether there are any of the latter. */
static bool find_passed(struct emitter *e, const struct field_set *set, const struct ir_fn *fn, bool *used,
                        bool *passed)
{
    const enum value_class class = set->type[0] == 'r' ? CLASS_ROW : CLASS_COL;
    struct field_set of_fn = {.type = set->type, .object = set->object};
    bool any = false;
    if (fn->n_roots == 0 || !fields_collect(e, &of_fn, class, fn->root, fn->n_roots))
        return false;
    for (int i = 0; i < set->n; i++) {
        used[i] = passed[i] = false;
        for (int k = 0; k < of_fn.n; k++)
            used[i] = used[i] || of_fn.node[k] == set->node[i];
        if (!used[i])
            continue;
        ir_mark(e->w, &set->node[i], 1, e->mark);
        for (int k = 0; k < e->w->n_nodes; k++)
            passed[i] =
                passed[i] || (e->mark[k] && e->class_of[k] == class && takes_long(e->w, &e->w->node[k]));
        any = any || passed[i];
    }
    return any;
}

/* Values that are found by one lane each, and then handed to the others. */
static void emit_passed(struct attention *a, const struct field_set *set, bool *used, const bool *passed)
{
    struct emitter *e = a->e;
    name_static(a, false, false);
    for (int i = 0; i < set->n; i++) {
        if (!passed[i])
            continue;
        const bool flag = e->w->node[set->node[i]].type == TYPE_BOOL;
        text_add(e->out, "        %s.f%d = __shfl_sync(ALL_LANES, %sfrom.f%d, lane)%s;\n", set->object, i,
                 flag ? "(int)" : "", i, flag ? " != 0" : "");
        scope_set(e, set->node[i], "%s.f%d", set->object, i);
        used[i] = false;
    }
    fields_assign(e, set, used);
    text_add(e->out, "        return %s;\n    }\n", set->object);
}

/* Columns that the forward kernel asks about. */
static void emit_shared_cols(struct attention *a)
{
    bool used[MAX_FIELDS] = {false};
    bool passed[MAX_FIELDS] = {false};
    const bool shared = a->shares && find_passed(a->e, &a->col, &a->e->w->lowered.keys_left, used, passed);
    text_add(a->e->out, "    static constexpr bool SHARED_COLS = %s;\n", yes(shared));
    if (!shared)
        return;
    text_add(a->e->out, "    DEV col pass_col(" AT_PAIR ", const col &from, int kv, int lane)\n    {\n"
                        "        col c = {};\n        c.kv = kv;\n");
    emit_passed(a, &a->col, used, passed);
}

/* Rows that the backward kernel asks about. */
static void emit_shared_rows(struct attention *a)
{
    bool used[MAX_FIELDS] = {false};
    bool passed[MAX_FIELDS] = {false};
    const bool shared = a->shares_rows && find_passed(a->e, &a->row, &a->e->w->mask, used, passed);
    text_add(a->e->out, "    static constexpr bool SHARED_ROWS = %s;\n", yes(shared));
    if (!shared)
        return;
    text_add(a->e->out, "    DEV row pass_row(" AT_PAIR ", const row &from, int row_, int lane)\n    {\n"
                        "        row r = {};\n        r.row = row_;\n        r.q = row_ + z.q_start;\n");
    emit_passed(a, &a->row, used, passed);
}

/* One end of a row's live keys, or the rest of the mask; root -1: true. */
static void emit_end(struct attention *a, const char *head, int root)
{
    text_add(a->e->out, "    DEV %s\n    {\n", head);
    name_static(a, true, true);
    emit_return(a->e, root, "true");
    text_add(a->e->out, "    }\n");
}

/* Where classes lie within blocks, or rows have lists, the forward kernel never asks about a pair; kernels of
   the backward pass may do so without a class or a list at hand. */
static void emit_key_interval(struct attention *a)
{
    const struct ir *w = a->e->w;
    const bool scattered =
        w->lowered.keys_left.n_roots > 0 && ((!a->map.blocks && !a->selected) || a->e->back);
    a->e->settles_returned = true;
    emit_end(a, "int first_key(" AT_PAIR ", const row &r)", w->lowered.key_interval.root[0]);
    emit_end(a, "int last_key(" AT_PAIR ", const row &r)", w->lowered.key_interval.root[1]);
    a->e->settles_returned = false;
    text_add(a->e->out, "    static constexpr bool SCATTERED = %s;\n", yes(scattered));
    emit_end(a, "bool among(" AT_PAIR ", const row &r, const col &c)",
             scattered ? w->lowered.keys_left.root[0] : -1);
    emit_shared_cols(a);
    if (a->e->back)
        emit_shared_rows(a);
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
    emit_key_interval(a);
    text_add(e->out,
             "    static constexpr bool MAP = %s, MAP_PER_BATCH = %s, MAP_PER_HEAD = %s, MAP_BLOCKS = %s;\n",
             yes(a->map.needed), yes(a->map.per_batch), yes(a->map.per_head), yes(a->map.blocks));
    if (a->map.needed)
        text_add(e->out,
                 "    static constexpr int MAP_LOOK_HEADS = %d, MAP_ROWS = %d;\n"
                 "    static constexpr bool MAP_LOOK_COLS = %s;\n",
                 a->map.look_heads, a->map.rows, yes(a->map.look_cols));
}

static void emit_corners(const struct attention *a)
{
    text_add(a->e->out,
             "        [[maybe_unused]] const int q0 = row0 + z.q_start;\n        [[maybe_unused]] const int "
             "q1 = row1 + z.q_start;\n");
}

/* Corners, and what is known of reads, by their names. */
static void name_tile(struct attention *a)
{
    static const char *const corner[] = {"row0", "row1", "q0", "q1", "kv0", "kv1"};
    struct emitter *e = a->e;
    name_static(a, false, false);
    for (int p = LEAF_ROW0; p < LEAF_TENSOR; p++)
        scope_param(e, p, corner[p - LEAF_ROW0]);
    for (int p = 0; p < 2 * e->w->lowered.n_reads; p++) {
        char read[16];
        snprintf(read, sizeof read, "%s[%d]", p % 2 ? "high" : "low", p / 2);
        scope_param(e, LEAF_READ + p, read);
    }
    for (int p = 0; p < 2 * e->w->lowered.n_boxes; p++) {
        char read[16];
        snprintf(read, sizeof read, "%s[%d]", p % 2 ? "high" : "low", e->w->lowered.n_reads + p / 2);
        scope_param(e, LEAF_BOX + p, read);
    }
}

/* The body of a function that tells the class of a tile from its corners. */
static void emit_class_of(struct attention *a, const struct ir_fn *bounds)
{
    struct emitter *e = a->e;
    char text[3][128];
    emit_corners(a);
    name_tile(a);
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

/* The same of a tile within a block for which the mask is the same, but for the ends of rows. */
static void emit_classify_block(struct attention *a)
{
    text_add(a->e->out,
             "    DEV int classify_block(" AT_PAIR ", int row0, int row1, int kv0, int kv1)\n    {\n");
    emit_class_of(a, &a->e->w->lowered.blocks.bounds);
    text_add(a->e->out, "\n");
}

/* What the mask reads by row (or by column), of one row. */
static void emit_reads_of(struct attention *a, bool rows)
{
    struct emitter *e = a->e;
    char text[128];
    text_add(e->out, "    DEV void %s(" AT_PAIR ", const %s, int *read)\n    {\n",
             rows ? "row_reads" : "col_reads", rows ? "row &r" : "col &c");
    name_static(a, rows, !rows);
    for (int k = 0; k < e->w->lowered.n_reads; k++) {
        if ((e->w->node[e->w->lowered.read[k]].span == SPAN_Q) != rows)
            continue;
        emit_values(e, &e->w->lowered.read[k], 1);
        text_add(e->out, "        read[%d] = %s;\n", k,
                 node_text(e, e->w->lowered.read[k], text, sizeof text));
    }
    text_add(e->out, "    }\n");
}

/* What a warp finds of each box, in their order: the indices of a later one may be made of an earlier one's
 * values. */
/* A call of find() with one box; find() gives the least and the largest of what the box holds. */
static void emit_box(struct attention *a, int k)
{
    struct emitter *e = a->e;
    const struct ir *w = e->w;
    const int at = w->lowered.n_reads + k;
    char text[BOX_DIMS][128];
    name_tile(a);
    emit_values(e, w->lowered.box[k].count, BOX_DIMS);
    for (int d = 0; d < BOX_DIMS; d++) {
        char place[8];
        node_text(e, w->lowered.box[k].count[d], text[d], sizeof text[d]);
        snprintf(place, sizeof place, "i%d", d);
        scope_param(e, LEAF_PLACE + d, place);
    }
    text_add(e->out,
             "        find(low[%d], high[%d], %s, %s, %s, %s, [&]([[maybe_unused]] int i0, "
             "[[maybe_unused]] int i1, "
             "[[maybe_unused]] int i2, [[maybe_unused]] int i3) {\n",
             at, at, text[0], text[1], text[2], text[3]);
    emit_return(e, w->lowered.box[k].load, NULL);
    text_add(e->out, "        });\n");
}

/* What a warp finds of each box, in their order: the indices of a later one may be made of an earlier one's
 * values. Names of values begin anew with each box, so each of several has a scope of its own. */
static void emit_boxes(struct attention *a)
{
    struct emitter *e = a->e;
    const bool scopes = e->w->lowered.n_boxes > 1;
    text_add(e->out, "    template <class FIND> DEV void box_reads(" AT_PAIR
                     ", [[maybe_unused]] int row0, [[maybe_unused]] int row1, "
                     "[[maybe_unused]] int kv0, [[maybe_unused]] int kv1, int *low, int *high, const FIND "
                     "&find)\n    {\n");
    emit_corners(a);
    for (int k = 0; k < e->w->lowered.n_boxes; k++) {
        text_add(e->out, scopes ? "        {\n" : "");
        emit_box(a, k);
        text_add(e->out, scopes ? "        }\n" : "");
    }
    text_add(e->out, "    }\n");
}

/* The same as classify() from more: the least and the largest value that each read of the mask gives on the
 * tile. */
static void emit_reads(struct attention *a)
{
    struct emitter *e = a->e;
    const bool asked = a->map.needed && !a->map.blocks;
    const int n = asked ? e->w->lowered.n_reads : 0;
    const int boxes = asked ? e->w->lowered.n_boxes : 0;
    text_add(e->out, "    static constexpr int READS = %d;\n    static constexpr bool READ_RANGES = %s;\n", n,
             yes(a->map.ranges));
    if (a->map.needed)
        text_add(e->out, "    static constexpr int BOXES = %d;\n", boxes);
    if (n + boxes == 0)
        return;
    unsigned by_row = 0;
    for (int k = 0; k < n; k++)
        by_row |= (unsigned)(e->w->node[e->w->lowered.read[k]].span == SPAN_Q) << k;
    text_add(e->out, "    static constexpr unsigned READS_BY_ROW = %#x; // a bit each\n", by_row);
    emit_reads_of(a, true);
    emit_reads_of(a, false);
    if (boxes > 0)
        emit_boxes(a);
    text_add(e->out,
             "    DEV int classify_reads(" AT_PAIR ", int row0, int row1, int kv0, int kv1, const int *low, "
             "const int *high)\n    {\n");
    emit_class_of(a, &e->w->lowered.read_bounds);
}

/* The lists of attention/selected.cuh. */
static void emit_selected(struct attention *a)
{
    const struct selected_blocks *of = &a->e->w->lowered.selected;
    text_add(a->e->out,
             "    static constexpr int SELECTED = %d, SELECTED_KEYS = %d;\n"
             "    DEV int selected(" AT_PAIR ", const row &r, int i0)\n    {\n",
             of->n, of->keys);
    name_static(a, true, false);
    scope_param(a->e, LEAF_PLACE, "i0");
    emit_return(a->e, of->entry, NULL);
    text_add(a->e->out, "    }\n");
}

void emit_mask(struct attention *a)
{
    emit_live(a);
    emit_classify(a);
    if (a->map.blocks)
        emit_classify_block(a);
    emit_reads(a);
    if (a->selected)
        emit_selected(a);
}
