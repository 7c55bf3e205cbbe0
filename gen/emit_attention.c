/*
 * emit_attention.c: variant.gen.cuh and the launch recipe of attention. In: a lowered spec, a plan. Out: the
 * struct `variant` of templates/README.md, parameter structs, launches in order: query, key and value mods,
 * tile map, the kernel, output mod; only those that the spec needs.
 */
#include "emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT_PAIR "const inputs &x, const sizes &z, const head &h"
#define ELEMENT_ARGS                                                                                         \
    "const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const tile &t"

struct attention {
    struct emitter *e;
    struct schedule s;
    struct field_set head;
    struct field_set row;
    struct field_set col;
    struct field_set tile;
    bool map;
    bool map_per_batch;
    bool map_per_head;
};

/* ---- what stands in which struct ------------------------------------------------------------- */

static int all_roots(const struct ir *w, int *root)
{
    const struct ir_fn *fn[] = {&w->mask, &w->bounds, &w->online, &w->epilogue};
    int n = 0;
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        for (int i = 0; i < fn[f]->n_roots; i++)
            root[n++] = fn[f]->root[i];
    return n;
}

/* The bounds of the mask look like head values, but depend on the corners of a tile. */
static bool is_corner_value(const struct ir *w, int node)
{
    for (int p = PARAM_ROW0; p < PARAM_COUNT; p++)
        if (ir_depends_on(w, node, OP_PARAM, p))
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

static bool collect_structs(struct attention *a)
{
    int root[4 * MAX_ROOTS];
    int n = all_roots(a->e->w, root);
    a->head = (struct field_set){.type = "head", .object = "h"};
    a->row = (struct field_set){.type = "row", .object = "r"};
    a->col = (struct field_set){.type = "col", .object = "c"};
    a->tile = (struct field_set){.type = "tile", .object = "t"};
    bool ok = fields_collect(a->e, &a->head, CLASS_HEAD, root, n);
    ok &= fields_collect(a->e, &a->head, CLASS_HEAD, a->e->w->bounds.root, a->e->w->bounds.n_roots);
    drop_corner_values(a->e->w, &a->head);
    ok &= fields_collect(a->e, &a->row, CLASS_ROW, root, n);
    ok &= fields_collect(a->e, &a->col, CLASS_COL, root, n);
    ok &= fields_collect(a->e, &a->tile, CLASS_DYNAMIC, a->e->w->online.root, a->e->w->online.n_roots);
    for (int i = 0; i < a->s.n_reductions; i++) /* later passes and next() need them */
        ok &= field_add(&a->tile, a->s.reduction[i]);
    for (int i = 1; i < a->e->w->online.n_roots; i++) /* also where they are not dynamic */
        ok &= field_add(&a->tile, a->e->w->online.root[i]);
    return ok;
}

/* Names that hold wherever head, row and column are at hand. */
static void name_static(struct attention *a, bool row, bool col)
{
    scope_clear(a->e);
    fields_name(a->e, &a->head);
    if (row)
        fields_name(a->e, &a->row);
    if (col)
        fields_name(a->e, &a->col);
}

static void name_states(struct attention *a)
{
    for (int k = 0; k < a->e->w->n_states; k++) {
        char text[NODE_NAME_BYTES];
        snprintf(text, sizeof text, "s.s%d", k);
        scope_param(a->e, PARAM_STATE + k, text);
    }
}

/* ---- head, row, column ----------------------------------------------------------------------- */

static void emit_makers(struct attention *a)
{
    struct text_buf *out = a->e->out;
    fields_declare(a->e, &a->head, "int b, h, h_kv;");
    text_add(
        out,
        "    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)\n    {\n        head h;\n"
        "        h.b = b;\n        h.h = h_;\n        h.h_kv = h_ / (z.n_h / z.n_h_kv);\n");
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

static bool is_at(const struct ir *w, int node, int field)
{
    return w->node[node].op == OP_AT && w->node[node].index == field;
}

/* delta = at.q - at.kv stands for every difference of the two. */
static void name_distances(struct emitter *e)
{
    for (int i = 0; i < e->w->n_nodes; i++) {
        const struct ir_node *n = &e->w->node[i];
        if (n->op != OP_SUB)
            continue;
        int left = n->arg[0];
        int right = n->arg[1];
        bool floats = e->w->node[left].op == OP_F32 && e->w->node[right].op == OP_F32;
        if (floats) {
            left = e->w->node[left].arg[0];
            right = e->w->node[right].arg[0];
        }
        if (is_at(e->w, left, AT_Q) && is_at(e->w, right, AT_KV))
            scope_set(e, i, floats ? "(float)delta" : "delta");
        else if (is_at(e->w, left, AT_KV) && is_at(e->w, right, AT_Q))
            scope_set(e, i, floats ? "(float)-delta" : "(-delta)");
    }
}

static void emit_diag(struct attention *a)
{
    char text[128];
    text_add(a->e->out, "    static constexpr bool DIAG = %s;\n", a->s.diag >= 0 ? "true" : "false");
    text_add(a->e->out, "    DEV float make_diag(" AT_PAIR ", int delta)\n    {\n");
    if (a->s.diag >= 0) {
        name_static(a, false, false);
        name_distances(a->e);
        emit_values(a->e, &a->s.diag, 1);
        text_add(a->e->out, "        return %s;\n    }\n\n", node_text(a->e, a->s.diag, text, sizeof text));
    } else {
        text_add(a->e->out, "        return 0.0f;\n    }\n\n");
    }
}

/* ---- mask ------------------------------------------------------------------------------------ */

/* Does any data-dependent part of the mask vary with the batch or the head? */
static void find_map(struct attention *a)
{
    struct ir *w = a->e->w;
    a->map = bounds_mask_reads_data(w);
    a->map_per_batch = a->map && ir_depends_on(w, w->mask.root[0], OP_AT, AT_B);
    a->map_per_head = a->map && (ir_depends_on(w, w->mask.root[0], OP_AT, AT_H) ||
                                 ir_depends_on(w, w->mask.root[0], OP_AT, AT_H_KV));
}

static const char *yes(bool b)
{
    return b ? "true" : "false";
}

static void emit_mask(struct attention *a)
{
    struct emitter *e = a->e;
    const struct ir_fn *mask = &e->w->mask;
    char text[128];
    text_add(e->out, "    static constexpr bool MASKED = %s;\n", yes(mask->n_roots > 0));
    text_add(e->out, "    DEV bool live(" AT_PAIR ", const row &r, const col &c)\n    {\n");
    name_static(a, true, true);
    emit_values(e, mask->root, mask->n_roots);
    text_add(e->out, "        return %s;\n    }\n",
             mask->n_roots ? node_text(e, mask->root[0], text, sizeof text) : "true");
    text_add(e->out, "    static constexpr bool MAP = %s, MAP_PER_BATCH = %s, MAP_PER_HEAD = %s;\n",
             yes(a->map), yes(a->map_per_batch), yes(a->map_per_head));
}

static void emit_classify(struct attention *a)
{
    static const char *const corner[] = {"row0", "row1", "q0", "q1", "kv0", "kv1"};
    struct emitter *e = a->e;
    const struct ir_fn *bounds = &e->w->bounds;
    char certain[128];
    char possible[128];
    text_add(e->out, "    DEV int classify(" AT_PAIR ", int row0, int row1, int kv0, int kv1)\n    {\n");
    if (bounds->n_roots == 0) {
        text_add(e->out, "        return TILE_ALL;\n    }\n\n");
        return;
    }
    text_add(e->out,
             "        [[maybe_unused]] const int q0 = row0 + z.q_start;\n        [[maybe_unused]] const int "
             "q1 = row1 + z.q_start;\n");
    name_static(a, false, false);
    for (int p = PARAM_ROW0; p < PARAM_COUNT; p++)
        scope_param(e, p, corner[p - PARAM_ROW0]);
    emit_values(e, bounds->root, 2);
    text_add(e->out, "        return %s ? TILE_ALL : %s ? TILE_SOME : TILE_NONE;\n    }\n\n",
             node_text(e, bounds->root[0], certain, sizeof certain),
             node_text(e, bounds->root[1], possible, sizeof possible));
}

/* ---- the online function --------------------------------------------------------------------- */

static void emit_state(struct attention *a)
{
    const struct ir *w = a->e->w;
    struct text_buf *out = a->e->out;
    text_add(out, "    struct state {\n");
    for (int k = 0; k < w->n_states; k++)
        text_add(out, "        float s%d; // %s%s\n", k, w->state[k].name,
                 a->s.state_lazy[k] ? ", a part per thread" : "");
    text_add(out, "    };\n    DEV state init(bool leader)\n    {\n        state s;\n");
    for (int k = 0; k < w->n_states; k++) {
        char value[64];
        float_text(w->state[k].init, value, sizeof value);
        text_add(out, "        s.s%d = %s%s;\n", k, a->s.state_lazy[k] ? "!leader ? 0.0f : " : "", value);
    }
    text_add(out, "        return s;\n    }\n");
    fields_declare(a->e, &a->tile, "");
}

static void emit_reductions(struct attention *a)
{
    struct text_buf *out = a->e->out;
    int n = a->s.n_reductions;
    text_add(
        out,
        "    static constexpr int PASSES = %d, REDUCTIONS = %d;\n    static constexpr int REDUCE_PASS[] = {",
        a->s.passes, n);
    for (int i = 0; i < n; i++)
        text_add(out, "%s%d", i ? ", " : "", a->s.pass[i]);
    text_add(out, "%s};\n    static constexpr int REDUCE_OP[] = {", n ? "" : "-1");
    for (int i = 0; i < n; i++)
        text_add(out, "%s%s", i ? ", " : "", reduction_name(a->e->w->node[a->s.reduction[i]].op));
    text_add(out, "%s};\n    static constexpr bool REDUCE_LAZY[] = {", n ? "" : "RED_SUM");
    for (int i = 0; i < n; i++)
        text_add(out, "%s%s", i ? ", " : "", yes(a->s.lazy[i]));
    text_add(out, "%s};\n", n ? "" : "false");
}

/* Pass of the tile after which a field is known; -1: before pass 0. */
static int field_pass(const struct attention *a, int node)
{
    return (int)a->e->w->node[node].phase - 1;
}

/* begin (pass -1) and update<P>: the fields that become known there. */
static void emit_fields_of_pass(struct attention *a, int pass)
{
    bool only[MAX_FIELDS];
    for (int i = 0; i < a->tile.n; i++)
        only[i] = field_pass(a, a->tile.node[i]) == pass;
    name_static(a, true, false);
    name_states(a);
    for (int i = 0; i < a->tile.n; i++)
        if (field_pass(a, a->tile.node[i]) < pass)
            scope_set(a->e, a->tile.node[i], "t.f%d", i);
    for (int i = 0; i < a->s.n_reductions; i++)
        if (a->s.pass[i] == pass)
            scope_set(a->e, a->s.reduction[i], "red[%d]", i);
    fields_assign(a->e, &a->tile, only);
}

static void emit_row_functions(struct attention *a)
{
    struct text_buf *out = a->e->out;
    text_add(out, "    DEV void begin(tile &t, const state &s, " AT_PAIR ", const row &r)\n    {\n");
    emit_fields_of_pass(a, -1);
    text_add(out,
             "    }\n    template <int P> DEV void update(tile &t, const state &s, const float *red, " AT_PAIR
             ", const row &r)\n    {\n");
    for (int p = 0; p < a->s.passes; p++) {
        text_add(out, "        if constexpr (P == %d) {\n", p);
        emit_fields_of_pass(a, p);
        text_add(out, "        }\n");
    }
    text_add(out, "    }\n");
}

/* Row values are fields of the tile; what an element holds has the name e. */
static void name_element(struct attention *a, int held, bool with_diag)
{
    name_static(a, true, true);
    fields_name(a->e, &a->tile);
    if (with_diag && a->s.diag >= 0)
        scope_set(a->e, a->s.diag, "diag");
    if (held >= 0)
        scope_set(a->e, held, "e");
}

static void emit_element(struct attention *a)
{
    struct emitter *e = a->e;
    int product = ir_param(e->w, PARAM_QK, (struct ir_at){0, 0});
    char text[128];
    text_add(e->out, "    template <int P> DEV float element(float e, " ELEMENT_ARGS ")\n    {\n");
    for (int p = 0; p < a->s.passes; p++) {
        int held = p == 0 ? product : p <= a->s.store_pass ? a->s.carry : a->s.weight;
        int gives = p < a->s.store_pass ? a->s.carry : a->s.weight;
        if (held == gives)
            continue;
        text_add(e->out, "        if constexpr (P == %d) {\n", p);
        name_element(a, held, p == 0);
        emit_values(e, &gives, 1);
        text_add(e->out, "        return %s;\n        }\n", node_text(e, gives, text, sizeof text));
    }
    text_add(e->out, "        return e;\n    }\n    template <int R> DEV float operand(float e, " ELEMENT_ARGS
                     ")\n    {\n");
    for (int i = 0; i < a->s.n_reductions; i++) {
        int operand = e->w->node[a->s.reduction[i]].arg[0];
        text_add(e->out, "        if constexpr (R == %d) {\n", i);
        name_element(a, a->s.pass[i] >= a->s.store_pass ? a->s.weight : a->s.carry, a->s.pass[i] == 0);
        emit_values(e, &operand, 1);
        text_add(e->out, "        return %s;\n        }\n", node_text(e, operand, text, sizeof text));
    }
    text_add(e->out, "        return e;\n    }\n");
}

static int tile_field(const struct attention *a, int node)
{
    for (int i = 0; i < a->tile.n; i++)
        if (a->tile.node[i] == node)
            return i;
    return -1;
}

static void emit_next(struct attention *a)
{
    const struct ir *w = a->e->w;
    struct text_buf *out = a->e->out;
    const struct ir_node *scale = &w->node[w->online.root[1]];
    text_add(out, "    static constexpr bool RESCALE = %s;\n",
             yes(!(scale->op == OP_CONST && scale->value == 1)));
    text_add(out, "    DEV float o_scale(const tile &t) { return t.f%d; }\n",
             tile_field(a, w->online.root[1]));
    text_add(out, "    DEV void next(state &s, const tile &t)\n    {\n");
    for (int k = 0; k < w->n_states; k++)
        text_add(out, "        s.s%d = t.f%d;\n", k, tile_field(a, w->online.root[2 + k]));
    text_add(out, "    }\n    template <class SUM4> DEV void join(state &s, const SUM4 &sum4)\n    {\n");
    for (int k = 0; k < w->n_states; k++)
        if (a->s.state_lazy[k])
            text_add(out, "        s.s%d = sum4(s.s%d);\n", k, k);
    text_add(out, "    }\n");
}

static void emit_finish(struct attention *a, const double *empty)
{
    const struct ir *w = a->e->w;
    struct emitter *e = a->e;
    char text[128];
    text_add(
        e->out,
        "    static constexpr int FINALS = %d;\n    DEV float finish(const state &s, float *finals, " AT_PAIR
        ", const row &r)\n    {\n",
        w->n_finals);
    name_static(a, true, false);
    name_states(a);
    emit_values(e, w->epilogue.root, w->epilogue.n_roots);
    for (int i = 0; i < w->n_finals; i++)
        text_add(e->out, "        finals[%d] = %s; // %s\n", i,
                 node_text(e, w->epilogue.root[1 + i], text, sizeof text), w->final[i].name);
    text_add(e->out, "        return %s;\n    }\n    DEV void empty_finals(float *finals)\n    {\n",
             node_text(e, w->epilogue.root[0], text, sizeof text));
    for (int i = 0; i < w->n_finals; i++) {
        float_text(empty[i], text, sizeof text);
        text_add(e->out, "        finals[%d] = %s;\n", i, text);
    }
    text_add(e->out, "    }\n    DEV void store_finals(const attention_params &p, int b, int h, int row, "
                     "const float *finals)\n    {\n");
    for (int i = 0; i < w->n_finals; i++)
        text_add(e->out,
                 "        if (p.final%d) {\n            p.final%d[b * p.final%d_b + h * p.final%d_h + row * "
                 "p.final%d_t] = finals[%d];\n        }\n",
                 i, i, i, i, i, i);
    text_add(e->out, "    }\n");
}

/* ---- parameters and launches ----------------------------------------------------------------- */

static const char *const BHT[] = {"b", "h", "t"};

static int add_buffer(struct source *out, struct product bytes)
{
    out->buffer[out->n_buffers].bytes = bytes;
    return out->n_buffers++;
}

struct place {  /* where a tensor of [b, heads, len, dim] lives */
    int arg;    /* signature argument, or -1: */
    int buffer; /* a compact workspace buffer */
    enum sym heads;
    enum sym len;
    int dim;
};

static struct product compact_stride(const struct place *t, int d)
{
    struct product p = product_of(t->dim);
    if (d < 2)
        product_times(&p, t->len, 1);
    if (d < 1)
        product_times(&p, t->heads, 1);
    return p;
}

static void place_pointer(struct params *p, const char *type, const char *name, const struct place *t)
{
    params_pointer(p, type, name, t->arg >= 0 ? PARAM_ARG_DATA : PARAM_WORK_DATA,
                   t->arg >= 0 ? t->arg : t->buffer);
}

static void place_strides(struct params *p, const char *name, const struct place *t)
{
    if (t->arg >= 0) {
        params_strides(p, name, BHT, t->arg, 3, 0);
        return;
    }
    for (int d = 0; d < 3; d++) {
        char member[32];
        struct product stride = compact_stride(t, d);
        snprintf(member, sizeof member, "%s_%s", name, BHT[d]);
        params_product(p, member, &stride);
    }
}

enum { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O, TENSOR_COUNT };

struct layout {
    bool moved[TENSOR_COUNT];         /* through the workspace: by a mod, or because rows are not aligned */
    struct place outer[TENSOR_COUNT]; /* the arguments */
    struct place inner[TENSOR_COUNT]; /* what the kernel reads and writes: arguments, or what mods made */
    int map_buffer;
};

static void make_layout(const struct attention *a, struct layout *l, struct source *out)
{
    static const char *const name[] = {"q", "k", "v", "o"};
    static const enum mod mod_of[] = {MOD_QUERY, MOD_KEY, MOD_VALUE, MOD_OUTPUT};
    const struct problem *problem = a->e->problem;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        bool key = t == TENSOR_K || t == TENSOR_V;
        int dim = (int)problem->dim[t < TENSOR_V ? SYM_D : SYM_D_V];
        l->outer[t] = (struct place){signature_find(a->e->sig, name[t]), -1, key ? SYM_H_KV : SYM_H,
                                     key ? SYM_KV : SYM_Q, dim};
        l->inner[t] = l->outer[t];
        bool mod = a->e->w->mod[mod_of[t]].n_stages > 0;
        l->moved[t] = mod || (problem->unaligned >> l->outer[t].arg & 1);
        if (!l->moved[t])
            continue;
        struct product bytes = product_of((int64_t)dim * (t == TENSOR_O && mod ? 4 : 2));
        product_times(&bytes, SYM_B, 1);
        product_times(&bytes, l->outer[t].heads, 1);
        product_times(&bytes, l->outer[t].len, 1);
        l->inner[t].arg = -1;
        l->inner[t].buffer = add_buffer(out, bytes);
    }
}

static struct launch *add_launch(struct source *out, const struct emitter *e, const char *role, int threads,
                                 int smem)
{
    struct launch *l = &out->launch[out->n_launches++];
    *l = (struct launch){.threads = threads, .smem_bytes = smem};
    snprintf(l->entry, sizeof l->entry, "%.24s_%s_%s", e->w->name, lathe_dtype_text(e->problem->dtype), role);
    return l;
}

enum {
    MOD_BLOCK_TOKENS = 64,
    MOD_BLOCK_THREADS = 256,
    MAP_BLOCK_THREADS = 256
}; /* vector_mod.cuh, tilemap.cuh */
enum {
    HOPPER_ROWS = 64,
    LOADER_THREADS = 128
}; /* attention_fwd_sm90.cuh: rows of a warpgroup, and who loads */

/* One struct mod_params serves all mods; the rows differ. */
static void add_mod(struct attention *a, const struct layout *l, int tensor, struct source *out,
                    struct text_buf *text)
{
    static const char *const role[] = {"mod_q", "mod_k", "mod_v", "mod_o"};
    const struct place *from = tensor == TENSOR_O ? &l->inner[tensor] : &l->outer[tensor];
    const struct place *to = tensor == TENSOR_O ? &l->outer[tensor] : &l->inner[tensor];
    struct launch *launch = add_launch(out, a->e, role[tensor], MOD_BLOCK_THREADS, 0);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, from->heads, 1);
    product_times(&launch->grid, from->len, MOD_BLOCK_TOKENS);
    struct params p;
    params_open(&p, text, launch, "mod_params");
    place_pointer(&p, "const void", "src", from);
    place_pointer(&p, "void", "dst", to);
    place_strides(&p, "src", from);
    place_strides(&p, "dst", to);
    params_sym(&p, "n_h", from->heads);
    params_sym(&p, "len", from->len);
    params_start(&p, "pos0", tensor == TENSOR_Q || tensor == TENSOR_O);
    params_sizes(&p);
    params_inputs(&p, a->e, "x");
    params_close(&p, "mod_params");
}

static void add_map(struct attention *a, struct layout *l, const struct plan *plan, struct source *out)
{
    struct product tiles = product_of(1);
    if (a->map_per_batch)
        product_times(&tiles, SYM_B, 1);
    if (a->map_per_head)
        product_times(&tiles, SYM_H, 1);
    product_times(&tiles, SYM_Q, plan->bm);
    struct product bytes = tiles;
    product_times(&bytes, SYM_KV, plan->bn);
    l->map_buffer = add_buffer(out, bytes);
    struct launch *launch = add_launch(out, a->e, "map", MAP_BLOCK_THREADS, 0);
    launch->grid = tiles;
    product_times(&launch->grid, SYM_KV, plan->bn * MAP_BLOCK_THREADS / 32);
    struct params p;
    params_open(&p, a->e->out, launch, "map_params");
    params_pointer(&p, "unsigned char", "map", PARAM_WORK_DATA, l->map_buffer);
    params_sizes(&p);
    params_inputs(&p, a->e, "x");
    params_close(&p, "map_params");
}

/* The largest power of two that divides a row is the box's row, up to 128 bytes: panels of wgmma_sm90.cuh. */
static void add_tensor_map(struct launch *launch, const struct params *p, const struct problem *problem,
                           int which, const struct plan *plan)
{
    const bool key = which != TENSOR_Q;
    const int row_bytes = 2 * (which == TENSOR_V ? plan->dv_pad : plan->d_pad);
    struct tensor_map_row *m = &launch->map[launch->n_maps++];
    *m = (struct tensor_map_row){
        .offset = (uint32_t)which * TENSOR_MAP_BYTES,
        .data = p->before + (uint32_t)which * 8,
        .strides = p->before + TENSOR_COUNT * 8 + (uint32_t)which * 24,
        .dim = {which == TENSOR_V ? SYM_D_V : SYM_D, key ? SYM_KV : SYM_Q, key ? SYM_H_KV : SYM_H, SYM_B},
        .dtype = (uint8_t)problem->dtype,
        .swizzle = row_bytes % 128 == 0  ? 128
                   : row_bytes % 64 == 0 ? 64
                                         : 32,
        .box_tokens = (uint16_t)(key ? plan->bn : HOPPER_ROWS)};
}

static void add_forward(struct attention *a, const struct layout *l, const struct plan *plan,
                        struct source *out)
{
    static const char *const name[] = {"q", "k", "v", "o"};
    struct launch *launch =
        add_launch(out, a->e, "fwd", plan->warps * 32 + (plan->tma ? LOADER_THREADS : 0), plan->smem_bytes);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, SYM_H, 1);
    product_times(&launch->grid, SYM_Q, plan->bm);
    if (plan->blocks > 0)
        launch->grid = product_of(plan->blocks);
    struct params p;
    params_open(&p, a->e->out, launch, "attention_params");
    if (plan->tma)
        params_behind_maps(&p, TENSOR_O);
    for (int t = 0; t < TENSOR_O && plan->tma; t++)
        add_tensor_map(launch, &p, a->e->problem, t, plan);
    for (int t = 0; t < TENSOR_COUNT; t++)
        place_pointer(&p, t == TENSOR_O ? "void" : "const void", name[t], &l->inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        place_strides(&p, name[t], &l->inner[t]);
    params_sizes(&p);
    if (a->map)
        params_pointer(&p, "const unsigned char", "map", PARAM_WORK_DATA, l->map_buffer);
    else
        params_null(&p, "const unsigned char", "map");
    for (int i = 0; i < a->e->w->n_finals; i++) {
        char member[32];
        int arg = signature_find(a->e->sig, a->e->w->final[i].name);
        snprintf(member, sizeof member, "final%d", i);
        params_pointer(&p, "float", member, PARAM_ARG_DATA, arg);
        params_strides(&p, member, BHT, arg, 3, 0);
    }
    params_inputs(&p, a->e, "x");
    params_close(&p, "attention_params");
}

/* mod_params is written once; the structs of further mods go to a text that nobody reads. */
static void emit_launches(struct attention *a, struct layout *l, const struct plan *plan, struct source *out)
{
    struct text_buf again = {0};
    bool declared = false;
    *l = (struct layout){.map_buffer = -1};
    make_layout(a, l, out);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        if (t == TENSOR_O) {
            if (a->map)
                add_map(a, l, plan, out);
            add_forward(a, l, plan, out);
        }
        if (!l->moved[t])
            continue;
        add_mod(a, l, t, out, declared ? &again : a->e->out);
        declared = true;
    }
    a->e->out->failed |= again.failed;
    text_free(&again);
}

bool emit_attention(struct emitter *e, const struct plan *plan, struct source *out)
{
    static const char *const mod_type[] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    struct attention a = {.e = e};
    struct layout layout;
    double empty[MAX_STATE];
    host_empty_finals(e->spec, empty); /* the same for every problem, as on the host */
    if (!schedule_online(e->w, &a.s) || !collect_structs(&a))
        return false;
    find_map(&a);
    emit_inputs_struct(e);
    emit_launches(&a, &layout, plan, out);
    text_add(e->out, "struct variant {\n");
    emit_makers(&a);
    emit_diag(&a);
    emit_mask(&a);
    emit_classify(&a);
    emit_state(&a);
    emit_reductions(&a);
    emit_row_functions(&a);
    emit_element(&a);
    emit_next(&a);
    emit_finish(&a, empty);
    for (int m = 0; m < MOD_COUNT; m++)
        emit_mod_struct(e, (enum mod)m, mod_type[m], layout.moved[m]);
    text_add(e->out, "};\n");
    return true;
}
