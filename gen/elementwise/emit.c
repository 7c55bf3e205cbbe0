/*
 * emit.c: variant.gen.cuh of elementwise. In: a lowered spec, a plan. Out: a struct for each map
 * and each sum, as templates/README.md lists them. Values that do not vary along the loop are computed once
 * per item (head, col), those that do not vary along the last dim once per step (row), the rest once per
 * point.
 */
#include "gen/elementwise/columns.h"
#include "gen/elementwise/emit.h"
#include "gen/base/text.h"
#include "gen/elementwise/lower.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"

#include <string.h>

/* ---- what varies with what ----------------------------------------------------------------------- */

/* Has every point an element of its own in this tensor, in the order of the dims? */
static bool is_whole(const struct map_emitter *me, const struct map_tensor *t)
{
    bool whole = t->n_dims == me->map->n_over && !is_pair(t);
    for (int d = 0; d < t->n_dims; d++)
        whole &= t->dim[d] == d;
    return whole;
}

/* One long line would do: nothing but places of elements tells one point from another, or there is one dim.
 */
static bool is_flat(const struct map_emitter *me)
{
    bool flat = true;
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        const struct map_tensor *t = map_tensor(me, i);
        if (map_uses(me, i, USE_READ) || map_uses(me, i, USE_STORE))
            flat &= is_whole(me, t) && (t->dither < 0 || me->map->n_over == 1);
        if (map_uses(me, i, USE_SUM))
            flat &= t->n_dims == 0;
    }
    for (int r = 0; r < me->n_roots && me->map->n_over > 1; r++)
        for (int k = 0; k < me->map->n_over; k++)
            flat &= !ir_depends_on(me->e->w, me->root[r], OP_AT, AT_INDEX0 + k);
    for (int s = 0; s < me->map->n_scatters; s++)
        flat &= !is_scatter_kept(me, s);
    return flat;
}

static bool collect(struct map_emitter *me)
{
    struct emitter *e = me->e;
    for (int i = 0; i < e->w->n_nodes; i++)
        e->class_of[i] = (uint8_t)map_class(me, e->w->node[i].span);
    for (int i = 0; i < e->w->maps.n_tensors; i++)
        me->reads[i] = operand_used(e, i);
    me->n_roots = me->map->fn.n_roots;
    memcpy(me->root, me->map->fn.root, sizeof me->map->fn.root);
    for (int s = 0; s < me->map->n_scatters; s++) {
        const struct map_scatter *to = &me->map->scatter[s];
        me->root[me->n_roots++] = to->value;
        for (int d = 0;
             d < e->w->input[e->w->maps.tensor[to->tensor].input].n_dims && !is_scatter_kept(me, s); d++)
            me->root[me->n_roots++] = to->index[d];
    }
    me->head = (struct field_set){.type = "head", .object = "h"};
    me->fixed = (struct field_set){.type = "fixed", .object = "f"};
    me->col = (struct field_set){.type = "col", .object = "c"};
    me->row = (struct field_set){.type = "row", .object = "r"};
    bool ok = fields_collect(e, &me->head, CLASS_HEAD, me->root, me->n_roots);
    ok &= fields_collect(e, &me->fixed, CLASS_DYNAMIC, me->root, me->n_roots);
    ok &= fields_collect(e, &me->col, CLASS_COL, me->root, me->n_roots);
    ok &= fields_collect(e, &me->row, CLASS_ROW, me->root, me->n_roots);
    return ok;
}

/* ---- names --------------------------------------------------------------------------------------- */

static void name_all(struct map_emitter *me, bool col, bool row)
{
    name_leaves(me);
    fields_name(me->e, &me->head);
    fields_name(me->e, &me->fixed);
    if (col)
        fields_name(me->e, &me->col);
    if (row)
        fields_name(me->e, &me->row);
}

static void declare_values(struct map_emitter *me, const struct field_set *set, enum value_class class)
{
    text_add(me->e->out, "    struct %s {\n", set->type);
    emit_map_operands(me, class);
    for (int i = 0; i < set->n; i++)
        text_add(me->e->out, "        %s f%d;\n", c_type(me->e->w->node[set->node[i]].type), i);
    text_add(me->e->out, "    };\n");
}

/* ---- values of an item --------------------------------------------------------------------------- */

static const char ENVIRONMENT[] = "        [[maybe_unused]] const inputs &x = p.x;\n"
                                  "        [[maybe_unused]] const map_sizes &z = sizes(p);\n";

static void emit_head(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    declare_values(me, &me->head, CLASS_HEAD);
    text_add(out, "    DEV void make_head(head &h, const map_params &p, const point &at)\n    {\n%s",
             ENVIRONMENT);
    emit_map_heads(me);
    name_leaves(me);
    fields_assign(me->e, &me->head, NULL);
    text_add(out, "    }\n");
}

/* What a thread keeps from its first turn to its last. */
static void emit_fixed(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    declare_values(me, &me->fixed, CLASS_DYNAMIC);
    text_add(
        out,
        "    template <int W> DEV void make_fixed(fixed (&all)[W], const map_params &p, const point &at, "
        "const head &h)\n    {\n%s",
        ENVIRONMENT);
    emit_map_columns(me, CLASS_DYNAMIC, "all[k].");
    if (me->fixed.n > 0) {
        name_leaves(me);
        fields_name(me->e, &me->head);
        emit_map_lines(me, CLASS_DYNAMIC, me->fixed.node, me->fixed.n);
        text_add(out, "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            [[maybe_unused]] "
                      "const int i = static_cast<int>(at.first) + k;\n            fixed &f = all[k];\n");
        name_map_lines(me, CLASS_DYNAMIC, me->fixed.node, me->fixed.n);
        fields_assign(me->e, &me->fixed, NULL);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

static void emit_cols(struct map_emitter *me)
{
    struct text_buf *out = me->e->out;
    declare_values(me, &me->col, CLASS_COL);
    text_add(out,
             "    template <int W> DEV void make_cols(col (&cols)[W], const map_params &p, const point &at, "
             "const head &h, const fixed (&all)[W])\n    {\n%s",
             ENVIRONMENT);
    emit_map_columns(me, CLASS_COL, "cols[k].");
    if (me->col.n > 0) {
        name_all(me, false, false);
        emit_map_lines(me, CLASS_COL, me->col.node, me->col.n);
        text_add(
            out,
            "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            [[maybe_unused]] "
            "const int i = static_cast<int>(at.first) + k;\n            [[maybe_unused]] const fixed &f = "
            "all[k];\n            col &c = cols[k];\n");
        name_all(me, false, false);
        name_map_lines(me, CLASS_COL, me->col.node, me->col.n);
        fields_assign(me->e, &me->col, NULL);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

/* ---- points -------------------------------------------------------------------------------------- */

/* Calls f with every value of the map that is stored or summed, and its root. */
static void each_value(struct map_emitter *me, void (*f)(struct map_emitter *me, int v, int root))
{
    int r = 0;
    for (int i = 0; i < me->e->w->maps.n_tensors; i++) {
        const struct map_tensor *t = map_tensor(me, i);
        if (!map_uses(me, i, USE_STORE) && !map_uses(me, i, USE_SUM))
            continue;
        for (int half = 0; half < (is_pair(t) ? 2 : 1); half++)
            f(me, 2 * i + half, me->map->fn.root[r++]);
    }
}

static void declare_value(struct map_emitter *me, int v, int root)
{
    (void)root;
    if (map_uses(me, v / 2, USE_STORE))
        text_add(me->e->out, "        %s y%d[W];\n", map_number(me, v / 2), v);
    else if (keeps_loop(me, v / 2))
        text_add(me->e->out, "        float s%d%s = {};\n", v, keeps_lanes(me, v / 2) ? "[W]" : "");
}

static void assign_value(struct map_emitter *me, int v, int root)
{
    const struct map_tensor *t = map_tensor(me, v / 2);
    struct text_buf *out = me->e->out;
    char text[128];
    const bool lanes = keeps_lanes(me, v / 2);
    node_text(me->e, root, text, sizeof text);
    if (t->use == USE_SUM)
        text_add(out, "            %ss%d%s += %s;\n",
                 keeps_loop(me, v / 2) ? ""
                 : lanes               ? "sum."
                                       : "t.",
                 v, lanes ? "[k]" : "", text);
    else
        text_add(out, "            y%d[k] = %s;\n", v, text);
}

/* Behind the lanes: rounding at random, where the launch has a seed. */
static void dither_value(struct map_emitter *me, int v, int root)
{
    const struct map_tensor *t = map_tensor(me, v / 2);
    (void)root;
    if (t->use != USE_STORE || t->dither < 0)
        return;
    const char *seed = me->e->w->input[t->dither].name;
    text_add(me->e->out,
             "        if (x.in_%s) {\n            dither_lanes<%s>(y%d, x.in_%s, %du, line, "
             "static_cast<int>(at.first));\n        }\n",
             seed, map_type(me, v / 2), v, seed, v);
}

static void store_value(struct map_emitter *me, int v, int root)
{
    (void)root;
    if (map_uses(me, v / 2, USE_STORE) && v % 2 == 0)
        emit_map_store(me, v / 2); /* both halves */
    if (map_uses(me, v / 2, USE_SUM) && keeps_loop(me, v / 2))
        emit_step_leave(me, v);
}

/* Inside of the lanes: at once, or kept for the line. */
static void emit_scatters(struct map_emitter *me)
{
    struct emitter *e = me->e;
    for (int s = 0; s < me->map->n_scatters; s++) {
        const struct map_scatter *to = &me->map->scatter[s];
        char text[128];
        node_text(e, to->value, text, sizeof text);
        if (is_scatter_kept(me, s)) {
            text_add(e->out, "            sum.c%d[k] += %s;\n", s, text);
            continue;
        }
        if (is_scatter_line(me, to)) {
            text_add(e->out, "            line%d[k] = %s;\n", s, text);
            continue;
        }
        if (is_scatter_total(me, s)) {
            text_add(e->out, "            t.c%d += %s;\n", s, text);
            continue;
        }
        text_add(e->out, "            ");
        emit_scatter_guard(me, to);
        text_add(e->out, "add_global(p.g%d + ", to->tensor);
        emit_scatter_place(me, to, e->w->input[e->w->maps.tensor[to->tensor].input].n_dims);
        text_add(e->out, ", %s);\n", text);
    }
}

static void declare_scatters(struct map_emitter *me)
{
    for (int s = 0; s < me->map->n_scatters; s++)
        if (is_scatter_line(me, &me->map->scatter[s]) && !is_scatter_kept(me, s))
            text_add(me->e->out, "        float line%d[W];\n", s);
}

/* Behind the lanes: elements side by side are added together where the device can. */
static void emit_scattered_lines(struct map_emitter *me)
{
    struct emitter *e = me->e;
    name_all(me, false, true);
    for (int s = 0; s < me->map->n_scatters; s++) {
        const struct map_scatter *to = &me->map->scatter[s];
        const int last = e->w->input[e->w->maps.tensor[to->tensor].input].n_dims - 1;
        if (!is_scatter_line(me, to) || is_scatter_kept(me, s))
            continue;
        text_add(e->out, "        ");
        emit_scatter_guard(me, to);
        text_add(e->out, "add_lanes<W>(p.g%d + ((", to->tensor);
        emit_scatter_place(me, to, last);
        text_add(e->out, ") * p.h%d.n[%d] + at.first), line%d);\n", to->tensor, last, s);
    }
}

/* The number of the line of points, for rounding at random. */
static void emit_line_number(struct map_emitter *me)
{
    bool any = false;
    for (int i = 0; i < me->e->w->maps.n_tensors; i++)
        any |= map_uses(me, i, USE_STORE) && map_tensor(me, i)->dither >= 0;
    if (!any)
        return;
    text_add(me->e->out, "        u32 line = %s;\n", me->map->list ? "at.at[0]" : "0");
    for (int k = 0; k < me->last; k++)
        text_add(me->e->out, "        line = line * z.n[%d] + at.at[%d];\n", k, k);
}

static void emit_compute(struct map_emitter *me)
{
    struct emitter *e = me->e;
    struct text_buf *out = e->out;
    declare_values(me, &me->row, CLASS_ROW);
    text_add(
        out,
        "    template <bool FLAT, int W>\n    DEV void compute(const map_params &p, const space &s, const "
        "bases &b, "
        "const point &at, int u, const head &h, const fixed (&all)[W], const col (&cols)[W], const held<W> "
        "&m, sums<W> &sum, totals "
        "&t)\n    {\n%s",
        ENVIRONMENT);
    bool rows = me->row.n > 0;
    for (int v = 0; v < 2 * e->w->maps.n_tensors; v++)
        rows |= is_operand(me, v, CLASS_ROW);
    text_add(out, "%s", rows ? "        row r;\n" : "");
    for (int v = 0; v < 2 * e->w->maps.n_tensors; v++)
        if (is_operand(me, v, CLASS_ROW))
            text_add(out, "        r.p%d = m.p%d;\n", v, v);
    name_all(me, false, false);
    fields_assign(e, &me->row, NULL);
    emit_line_number(me);
    name_all(me, false, true);
    emit_map_lines(me, CLASS_ELEMENT, me->root, me->n_roots);
    each_value(me, declare_value);
    declare_scatters(me);
    text_add(
        out,
        "#pragma unroll\n        for (int k = 0; k < W; k++) {\n            [[maybe_unused]] const int i = "
        "static_cast<int>(at.first) + k;\n            [[maybe_unused]] const fixed &f = all[k];\n            "
        "[[maybe_unused]] const col &c = cols[k];\n");
    emit_map_lanes(me);
    name_all(me, true, true);
    name_map_lines(me, CLASS_ELEMENT, me->root, me->n_roots);
    emit_values(e, me->root, me->n_roots);
    each_value(me, assign_value);
    emit_scatters(me);
    text_add(out, "        }\n");
    each_value(me, dither_value);
    each_value(me, store_value);
    emit_scattered_lines(me);
    text_add(out, "    }\n");
}

/* ---- the variant --------------------------------------------------------------------------------- */

static bool emit_map(struct emitter *e, const struct plan *plan, int m)
{
    struct map_emitter me = {.e = e, .m = m, .map = &e->w->maps.map[m]};
    me.last = me.map->n_over - 1;
    me.loop = plan->maps.loop[m];
    me.outer = plan->maps.outer[m];
    me.gather = plan->maps.gather;
    if (!collect(&me))
        return false;
    me.flat = plan->maps.vector > 1 && is_flat(&me);
    text_add(
        e->out,
        "struct map%d {\n    using self = map%d;\n    static constexpr int DIMS = %d, LOOP = %d, OUTER = "
        "%d;\n    static "
        "constexpr bool FLAT = %s, LIST = %s;\n    DEV const map_sizes &sizes(const map_params &p) { return "
        "p.z%d; }\n",
        m, m, me.map->n_over, me.loop, me.outer, yes(me.flat), yes(me.map->list), m);
    if (me.map->list)
        text_add(e->out,
                 "    DEV const int *lengths(const map_params &p) { return p.lengths; }\n    DEV unsigned "
                 "*taken(const map_params &p) { return p.taken + %d; }\n",
                 m);
    emit_map_questions(&me);
    emit_map_bases(&me);
    emit_head(&me);
    emit_fixed(&me);
    emit_cols(&me);
    emit_map_load(&me);
    emit_map_sums(&me);
    emit_compute(&me);
    if (me.gather)
        emit_map_gather(&me);
    text_add(e->out, "};\n\n");
    return true;
}

/* A type by its number: variant_map<0>. */
static void emit_numbered(struct text_buf *out, const char *which, const char *type, int n)
{
    text_add(out, "template <int K> struct numbered_%s;\n", which);
    for (int k = 0; k < n; k++)
        text_add(out, "template <> struct numbered_%s<%d> {\n    using type = %s%d;\n};\n", which, k, type,
                 k);
    text_add(out, "template <int K> using variant_%s = typename numbered_%s<K>::type;\n", which, which);
}

static bool emit_maps(struct emitter *e, const struct plan *plan, struct source *out)
{
    const struct ir *w = e->w;
    int sums = 0;
    emit_inputs_struct(e);
    emit_map_launches(e, plan, out);
    text_add(e->out, "using namespace elementwise;\n\n");
    const int maps = maps_are_alike(e, plan) ? 1 : w->maps.n_maps;
    for (int m = 0; m < maps; m++)
        if (!emit_map(e, plan, m))
            return false;
    for (int i = 0; i < w->maps.n_tensors && !plan->maps.gather; i++)
        if (w->maps.tensor[i].use == USE_SUM || w->maps.tensor[i].use == USE_SCATTER)
            emit_map_total(e, i, sums++);
    text_add(e->out, "struct variant {\n    static constexpr int MAPS = %d, ALIKE = %d, SUMS = %d;\n};\n",
             maps, w->maps.n_maps / maps, sums);
    emit_numbered(e->out, "map", "map", maps);
    emit_numbered(e->out, "sum", "total", sums);
    return true;
}

bool emit_elementwise(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                      struct text_buf *variant, struct source *out)
{
    struct emitter e;
    (void)config;
    bool ok = emitter_open(&e, r->maps->w, r->sig, r->problem, variant);
    e.spec = r->spec;
    ok = ok && emit_maps(&e, plan, out);
    emitter_close(&e);
    return ok;
}
