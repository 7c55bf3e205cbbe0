/*
 * emit.c: variant.gen.cuh of attention. In: a lowered spec, a plan. Out: the struct `variant` of
 * templates/README.md, in e->out; parameter structs and launches come from emit_launch.c.
 */
#include "gen/attention/columns.h"
#include "gen/attention/emit/emit.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"
#include "gen/attention/kernel.h"
#include "gen/heads/mods.h"
#include "gen/plan/plan.h"
#include "gen/plan/request.h"

#define ELEMENT_ARGS                                                                                         \
    "const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const tile &t"

/* ---- what stands in which struct ------------------------------------------------------------- */

enum { ALL_ROOTS_MAX = 8 * MAX_ROOTS + BACKWARD_ROOTS_MAX + MAX_KEY_STRIDES + 2 * MAX_STATE };

static int all_roots(const struct attention *a, int *root)
{
    const struct ir *w = a->e->w;
    const struct ir_fn *fn[] = {&w->mask,
                                &w->bounds,
                                &w->lowered.key_interval,
                                &w->lowered.keys_left,
                                &a->exact.fn,
                                a->forward ? &w->epilogue : &w->mask,
                                a->forward ? &w->lowered.empty : &w->mask,
                                &a->kept.fn};
    int n = a->e->back ? backward_pair_roots(a->e->back, root) : 0;
    if (a->e->back)
        n += split_roots(a->e->back, root + n);
    for (int k = 0; a->online && k < w->lowered.n_key_strides; k++)
        root[n++] = w->lowered.key_stride[k].slope;
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        for (int i = 0; i < fn[f]->n_roots; i++)
            root[n++] = fn[f]->root[i];
    return n;
}

/* The bounds of the mask look like head values, but depend on the corners of a tile. */
static bool is_corner_value(const struct ir *w, int node)
{
    for (int p = LEAF_ROW0; p < LEAF_COUNT; p++)
        if ((p < LEAF_TENSOR || p >= LEAF_READ) && ir_depends_on(w, node, OP_PARAM, p))
            return true;
    return false;
}

static void drop_corner_values(const struct ir *w, struct field_set *set)
{
    int n = 0;
    for (int i = 0; i < set->n; i++)
        if (!is_corner_value(w, set->node[i]))
            set->node[n++] = set->node[i];
    set->n = n;
}

/* Ramps that elements of the step compute themselves: not those within the value along diagonals. */
static bool collect_key_strides(struct emitter *e, struct step *step)
{
    const struct ir *w = e->w;
    bool ok = true;
    step->n_key_strides = 0;
    ir_mark_until(w, step->fn.root, step->fn.n_roots, &step->s.diag, 1, e->mark);
    for (int k = 0; k < w->lowered.n_key_strides; k++)
        if (e->mark[w->lowered.key_stride[k].node] && w->lowered.key_stride[k].node != step->s.diag) {
            ok &= field_add(e, &step->tile, w->lowered.key_stride[k].node);
            step->n_key_strides++;
        }
    return ok;
}

static bool has_key_stride(const struct ir *w, int node)
{
    for (int k = 0; k < w->lowered.n_key_strides; k++)
        if (w->lowered.key_stride[k].node == node)
            return true;
    return false;
}

static bool collect_tile(struct emitter *e, struct step *step)
{
    step->tile = (struct field_set){.type = "tile", .object = "t"};
    bool ok = fields_collect(e, &step->tile, CLASS_DYNAMIC, step->fn.root, step->fn.n_roots);
    for (int i = 0; i < step->s.reductions.n; i++) /* later passes and next() need them */
        ok &= field_add(e, &step->tile, step->s.reductions.node[i]);
    for (int i = 1; i < step->fn.n_roots; i++) /* also where they are not dynamic */
        ok &= field_add(e, &step->tile, step->fn.root[i]);
    return collect_key_strides(e, step) && ok;
}

static bool collect_structs(struct attention *a)
{
    int root[ALL_ROOTS_MAX];
    int n = all_roots(a, root);
    a->head = (struct field_set){.type = "head", .object = "h"};
    a->row = (struct field_set){.type = "row", .object = "r"};
    a->col = (struct field_set){.type = "col", .object = "c"};
    bool ok = fields_collect(a->e, &a->head, CLASS_HEAD, root, n);
    ok &= fields_collect(a->e, &a->head, CLASS_HEAD, a->e->w->bounds.root, a->e->w->bounds.n_roots);
    ok &= fields_collect(a->e, &a->head, CLASS_HEAD, a->e->w->lowered.read_bounds.root,
                         a->e->w->lowered.read_bounds.n_roots);
    ok &= fields_collect(a->e, &a->head, CLASS_HEAD, a->e->w->lowered.blocks.bounds.root,
                         a->e->w->lowered.blocks.bounds.n_roots);
    drop_corner_values(a->e->w, &a->head);
    ok &= fields_collect(a->e, &a->row, CLASS_ROW, root, n);
    ok &= fields_collect(a->e, &a->col, CLASS_COL, root, n);
    if (!a->online)
        return ok;
    return ok && collect_tile(a->e, &a->exact) && (!a->keeps || collect_tile(a->e, &a->kept));
}

/* ---- head, row, column ----------------------------------------------------------------------- */

static void emit_makers(struct attention *a)
{
    struct text_buf *out = a->e->out;
    fields_declare(a->e, &a->head, "int b, h, h_kv;");
    text_add(
        out,
        "    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)\n    {\n        head h;\n"
        "        h.b = b;\n        h.h = h_;\n        h.h_kv = z.key_head(h_);\n");
    scope_clear(a->e);
    fields_assign(a->e, &a->head, NULL);
    text_add(out, "        return h;\n    }\n\n");
    fields_declare(a->e, &a->row, "int row, q;");
    text_add(out,
             "    DEV row make_row(" AT_PAIR ", int row_)\n    {\n        row r;\n        r.row = row_;\n"
             "        r.q = row_ + z.q_start;\n");
    name_static(a, false, false);
    fields_assign(a->e, &a->row, NULL);
    text_add(out, "        return r;\n    }\n\n");
    fields_declare(a->e, &a->col, "int kv;");
    text_add(out, "    DEV col make_col(" AT_PAIR ", int kv)\n    {\n        col c;\n        c.kv = kv;\n");
    name_static(a, false, false);
    fields_assign(a->e, &a->col, NULL);
    text_add(out, "        return c;\n    }\n\n");
}

static void emit_diag(struct attention *a)
{
    text_add(a->e->out, "    static constexpr bool DIAG = %s;\n", yes(a->exact.s.diag >= 0));
    text_add(a->e->out, "    DEV float make_diag(" AT_PAIR ", int delta)\n    {\n");
    if (a->exact.s.diag >= 0) {
        name_static(a, false, false);
        name_distances(a->e);
    }
    emit_return(a->e, a->exact.s.diag, "0.0f");
    text_add(a->e->out, "    }\n\n");
}

/* ---- the online function --------------------------------------------------------------------- */

static void emit_state(struct attention *a)
{
    const struct ir *w = a->e->w;
    struct text_buf *out = a->e->out;
    text_add(out, "    struct state {\n");
    for (int k = 0; k < w->n_states; k++)
        text_add(out, "        float s%d; // %s%s\n", k, w->state[k].name,
                 a->exact.s.state_lazy[k] ? ", a part per thread" : "");
    text_add(out, "    };\n    DEV state init(bool leader)\n    {\n        state s;\n");
    for (int k = 0; k < w->n_states; k++) {
        char value[64];
        float_text(w->state[k].init, value, sizeof value);
        text_add(out, "        s.s%d = %s%s;\n", k, a->exact.s.state_lazy[k] ? "!leader ? 0.0f : " : "",
                 value);
    }
    text_add(out, "        return s;\n    }\n");
}

static void emit_reductions(struct attention *a, const struct step *step)
{
    struct text_buf *out = a->e->out;
    const int n = step->s.reductions.n;
    phases_declare(a->e, &step->s.reductions);
    text_add(out, "    static constexpr bool REDUCE_LAZY[] = {");
    for (int i = 0; i < n; i++)
        text_add(out, "%s%s", i ? ", " : "", yes(step->s.lazy[i]));
    text_add(out, "%s};\n", n ? "" : "false");
}

/* Pass of the tile after which a field is known; -1: before pass 0. */
static int field_pass(const struct attention *a, int node)
{
    return (int)a->e->w->node[node].phase - 1;
}

/* begin (pass -1) and update<P>: the fields that become known there. */
static void emit_fields_of_pass(struct attention *a, const struct step *step, int pass)
{
    bool only[MAX_FIELDS];
    bool strides = false;
    for (int i = 0; i < step->tile.n; i++) {
        only[i] = field_pass(a, step->tile.node[i]) == pass;
        strides |= only[i] && has_key_stride(a->e->w, step->tile.node[i]);
    }
    if (strides)
        text_add(a->e->out, "        const col c = make_col(x, z, h, kv0);\n");
    name_static(a, true, strides);
    name_states(a);
    for (int i = 0; i < step->tile.n; i++)
        if (field_pass(a, step->tile.node[i]) < pass)
            scope_set(a->e, step->tile.node[i], "t.f%d", i);
    phases_name(a->e, &step->s.reductions, pass);
    fields_assign(a->e, &step->tile, only);
}

static void emit_row_functions(struct attention *a, const struct step *step)
{
    struct text_buf *out = a->e->out;
    text_add(out,
             "    DEV void begin(tile &t, const state &s, " AT_PAIR ", const row &r, int kv0)\n    {\n%s",
             step->n_key_strides ? "        t.kv0 = kv0;\n" : "");
    emit_fields_of_pass(a, step, -1);
    text_add(out,
             "    }\n    template <int P> DEV void update(tile &t, const state &s, const float *red, " AT_PAIR
             ", const row &r, int kv0)\n    {\n");
    for (int p = 0; p < step->s.reductions.passes; p++) {
        text_add(out, "        if constexpr (P == %d) {\n", p);
        emit_fields_of_pass(a, step, p);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

static int tile_field(const struct step *step, int node)
{
    for (int i = 0; i < step->tile.n; i++)
        if (step->tile.node[i] == node)
            return i;
    return -1;
}

/* A field of the tile is what a value with a key stride is at the thread's first key. */
static void name_key_strides(struct emitter *e, const struct step *step)
{
    for (int k = 0; k < e->w->lowered.n_key_strides; k++) {
        const struct key_stride one = e->w->lowered.key_stride[k];
        const int field = tile_field(step, one.node);
        char slope[64];
        if (field >= 0)
            scope_set(e, one.node, "(t.f%d + %s * (float)(c.kv - t.kv0))", field,
                      node_text(e, one.slope, slope, sizeof slope));
    }
}

/* Row values are fields of the tile; what an element holds has the name e. */
static void name_element(struct attention *a, const struct step *step, int held, bool with_diag)
{
    name_static(a, true, true);
    fields_name(a->e, &step->tile);
    name_key_strides(a->e, step);
    if (with_diag && step->s.diag >= 0)
        scope_set(a->e, step->s.diag, "diag");
    if (held >= 0)
        scope_set(a->e, held, "e");
}

static void emit_element(struct attention *a, const struct step *step)
{
    struct emitter *e = a->e;
    int first = step->capped >= 0 ? step->capped : ir_param(e->w, LEAF_QK, (struct ir_at){0, 0});
    text_add(e->out, "    template <int P> DEV float element(float e, " ELEMENT_ARGS ")\n    {\n");
    for (int p = 0; p < step->s.reductions.passes; p++) {
        int held = p == 0 ? first : p <= step->s.store_pass ? step->s.carry : step->s.weight;
        int gives = p < step->s.store_pass ? step->s.carry : step->s.weight;
        if (held == gives)
            continue;
        if (p == step->s.store_pass && (step->logistic >= 0 || step->relu >= 0))
            gives = step->logistic >= 0 ? step->logistic : step->relu;
        text_add(e->out, "        if constexpr (P == %d) {\n", p);
        name_element(a, step, held, p == 0);
        emit_return(e, gives, NULL);
        text_add(e->out, "        }\n");
    }
    text_add(e->out, "        return e;\n    }\n    template <int R> DEV float operand(float e, " ELEMENT_ARGS
                     ")\n    {\n");
    for (int i = 0; i < step->s.reductions.n; i++) {
        int operand = e->w->node[step->s.reductions.node[i]].arg[0];
        text_add(e->out, "        if constexpr (R == %d) {\n", i);
        name_element(a, step,
                     step->s.reductions.pass[i] >= step->s.store_pass ? step->s.weight : step->s.carry,
                     step->s.reductions.pass[i] == 0);
        emit_return(e, operand, NULL);
        text_add(e->out, "        }\n");
    }
    text_add(e->out, "        return e;\n    }\n");
}

static void emit_next(struct attention *a, const struct step *step)
{
    const struct ir *w = a->e->w;
    struct text_buf *out = a->e->out;
    const struct ir_node *scale = &w->node[step->fn.root[1]];
    text_add(out, "    static constexpr bool RESCALE = %s;\n",
             yes(!(scale->op == OP_CONST && scale->value == 1)));
    text_add(out, "    DEV float o_scale(const tile &t) { return t.f%d; }\n",
             tile_field(step, step->fn.root[1]));
    text_add(out, "    DEV void next(state &s, const tile &t)\n    {\n");
    for (int k = 0; k < w->n_states; k++)
        text_add(out, "        s.s%d = t.f%d;\n", k, tile_field(step, step->fn.root[2 + k]));
    text_add(out, "    }\n");
}

/* Of its column an element needs more than the number. */
static bool reads_columns(const struct attention *a, const struct step *step)
{
    struct field_set col = {.type = "col", .object = "c"};
    return !fields_collect(a->e, &col, CLASS_COL, step->fn.root, step->fn.n_roots) || col.n > 0;
}

static void emit_step(struct attention *a, const struct step *step)
{
    const struct rescale *p = &a->e->w->lowered.rescale;
    char dead[64];
    fields_declare(a->e, &step->tile, step->n_key_strides ? "int kv0; // the thread's first key" : "");
    float_text(p->dead, dead, sizeof dead);
    text_add(a->e->out, "    static constexpr bool DEAD_ONCE = %s;\n    DEV float dead() { return %s; }\n",
             yes(p->masked_once && step == &a->exact), p->masked_once ? dead : "0.0f");
    text_add(a->e->out, "    static constexpr bool ELEMENT_COLS = %s;\n", yes(reads_columns(a, step)));
    emit_fused(a, step);
    emit_reductions(a, step);
    emit_row_functions(a, step);
    emit_element(a, step);
    emit_next(a, step);
}

/* Weights in their 16 bits, and o, which gathers them times v, stay finite below this sum. */
static const char *watch_limit(const struct attention *a)
{
    return a->e->problem->dtype[DTYPE_Q] == LATHE_F16 ? "0x1p14f" : "0x1p80f";
}

static void emit_kept(struct attention *a)
{
    const struct rescale *p = &a->e->w->lowered.rescale;
    struct text_buf *out = a->e->out;
    text_add(out, "    static constexpr bool KEEPS = %s;\n", yes(a->keeps));
    if (!a->keeps)
        return;
    text_add(out, "    struct kept { // a tile in which %s stays as it is\n", a->e->w->state[p->state].name);
    emit_step(a, &a->kept);
    text_add(out,
             "    DEV bool serves(const tile &t, const state &s) { return t.f%d < %s && s.s%d > -0x1p120f; "
             "}\n    };\n",
             tile_field(&a->kept, p->watch), watch_limit(a), p->state);
}

static void emit_join(struct attention *a)
{
    struct text_buf *out = a->e->out;
    text_add(out, "    template <class SUM4> DEV void join(state &s, const SUM4 &sum4)\n    {\n");
    for (int k = 0; k < a->e->w->n_states; k++)
        if (a->exact.s.state_lazy[k])
            text_add(out, "        s.s%d = sum4(s.s%d);\n", k, k);
    text_add(out, "    }\n");
}

/* The kept step is worth its text where one pass gives the weights and the sum that is watched. */
static bool make_steps(struct attention *a, const struct plan *plan)
{
    struct ir *w = a->e->w;
    if (!schedule_online(w, &a->exact.s))
        return false;
    a->exact.fn = w->online;
    find_fused(a, plan, &a->exact);
    a->keeps = plan->attention.optimistic && w->lowered.rescale.path == ROWS_LAZY &&
               w->lowered.rescale.watch >= 0 && schedule_kept(w, &a->kept.s) &&
               a->kept.s.reductions.passes == 1;
    for (int k = 0; a->keeps && k < w->n_states; k++)
        a->keeps = a->kept.s.state_lazy[k] == a->exact.s.state_lazy[k];
    if (a->keeps)
        a->kept.fn = w->lowered.rescale.kept;
    a->kept.s.diag = a->exact.s.diag;
    if (a->keeps)
        find_fused(a, plan, &a->kept);
    return true;
}

/* The online function, for kernels that send rows through it. */
static void emit_online(struct attention *a)
{
    emit_state(a);
    emit_step(a, &a->exact);
    if (a->forward)
        emit_kept(a);
    emit_join(a);
}

static bool emit_variant(struct emitter *e, const struct plan *plan, struct source *out)
{
    static const char *const mod_type[] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    struct attention a = {.e = e, .forward = !e->back || plan->attention.back.forward};
    bool moved[MOD_COUNT];
    const bool scores = !e->sig->combine; /* else rows have been through the online function */
    a.online = scores && (a.forward || backward_splits(e->back));
    if ((a.online && !make_steps(&a, plan)) || !collect_structs(&a))
        return false;
    if (scores)
        find_map(&a, plan);
    emit_inputs_struct(e);
    if (e->back)
        emit_backward_launches(e, &a.map, plan, back_row_count(e), out, moved);
    else if (scores)
        emit_attention_launches(e, &a.map, plan, out, moved);
    else
        emit_combine_launches(e, plan, out, moved);
    text_add(e->out, "struct variant {\n");
    emit_makers(&a);
    if (a.online)
        emit_diag(&a);
    if (scores)
        emit_mask(&a);
    else
        emit_state(&a);
    if (a.online)
        emit_online(&a);
    if (a.forward)
        emit_finish(&a);
    if ((plan->attention.parts || plan->attention.selected) && !emit_row_parts(&a, plan))
        return false;
    for (int m = 0; m < MOD_COUNT; m++)
        emit_mod_struct(e, (enum mod)m, mod_type[m],
                        moved[m] ||
                            (m == MOD_KEY && plan->attention.applies_key_mod && e->w->mod[m].n_stages > 0));
    if (e->back)
        emit_backward(&a, plan);
    text_add(e->out, "};\n");
    return true;
}

/* Of input_used: what formulas of the backward pass are made of. */
// NOLINTNEXTLINE(readability-non-const-parameter): the type of backward_each_root's function
static void mark_root(void *context, int *root)
{
    const struct emitter *e = context;
    e->mark[*root] = true;
}

static void mark_backward(const struct emitter *e)
{
    struct backward copy = *e->back; /* its roots stay as they are */
    struct emitter same = *e;
    backward_each_root(&copy, e->w, mark_root, &same);
}

static void mark_combine(const struct emitter *e)
{
    for (int i = 0; i < e->w->combine.n_roots; i++)
        e->mark[e->w->combine.root[i]] = true;
}

bool emit_attention(const struct kernel_request *r, const struct plan *plan, struct text_buf *config,
                    struct text_buf *variant, struct source *out)
{
    const struct attention_kernel *k = r->attention;
    struct emitter e;
    const bool merged = plan->attention.parts || plan->attention.selected;
    const struct ir *lowered = merged ? k->parts : k->backward ? k->backward : k->forward;
    bool ok = emitter_open(&e, lowered, r->sig, r->problem, variant);
    e.spec = r->spec;
    e.back = k->backward ? &k->back : NULL;
    e.gathers = r->problem->paged && (k->backward || plan->attention.gathers);
    e.mark_more = k->backward ? mark_backward : merged ? mark_combine : NULL;
    if (ok && k->backward)
        emit_backward_config(config, &e, plan);
    ok = ok && emit_variant(&e, plan, out);
    emitter_close(&e);
    return ok;
}
