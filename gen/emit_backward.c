/*
 * emit_backward.c: what attention's backward pass adds to struct variant. In: lowered formulas (backward.h).
 * Out: the functions of templates/README.md for pairs, rows and the sites where inputs get gradients, as
 * text; those of vector mods come from emit_mods.c.
 */
#include "emit_attention.h"

#include <string.h>

static const char *const FORM_NAME[] = {"SITE_HEAD",     "SITE_ROW",     "SITE_COLUMN",
                                        "SITE_DIAGONAL", "SITE_ELEMENT", "SITE_DIM"};

/* ---- what a pair reads of its row ------------------------------------------------------------------ */

/* Formulas of a pair: the weight, ds and the values of its sites. */
static int value_roots(const struct backward *b, int *root)
{
    int n = 0;
    root[n++] = b->weight;
    root[n++] = b->ds;
    for (int i = 0; i < b->pair.n; i++)
        root[n++] = b->pair.item[i].value;
    return n;
}

/* Also what is given per row and that pairs use as it is. */
static bool collect_values(struct emitter *e, struct field_set *set, const int *root, int n)
{
    *set = (struct field_set){.type = "back_row", .object = "b"};
    bool ok = fields_collect(e, set, CLASS_DYNAMIC, root, n);
    ir_mark(e->w, root, n, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        for (int k = 0; e->mark[i] && e->class_of[i] == CLASS_ELEMENT && k < e->w->node[i].n_args; k++) {
            const int a = e->w->node[i].arg[k];
            if (e->w->node[a].op == OP_PARAM && e->class_of[a] == CLASS_DYNAMIC)
                ok &= field_add(e, set, a);
        }
    return ok;
}

static bool collect_row(struct emitter *e, struct field_set *set)
{
    int root[BACKWARD_ROOTS_MAX];
    return collect_values(e, set, root, value_roots(e->back, root));
}

static int find_back_diagonal(const struct emitter *e)
{
    int root[BACKWARD_ROOTS_MAX];
    int n = value_roots(e->back, root);
    return diagonal_of(e->w, root, n);
}

int back_row_count(struct emitter *e)
{
    struct field_set set;
    return collect_row(e, &set) ? set.n : -1;
}

/* A row's values are stored as floats; integers stay below 2^24. */
static void name_row_values(struct emitter *e, const struct field_set *set)
{
    for (int i = 0; i < set->n; i++) {
        const int type = e->w->node[set->node[i]].type;
        if (type == TYPE_F32)
            scope_set(e, set->node[i], "b[%d]", i);
        else if (type == TYPE_I32)
            scope_set(e, set->node[i], "(int)b[%d]", i);
        else
            scope_set(e, set->node[i], "(b[%d] != 0.0f)", i);
    }
}

/* ---- rows --------------------------------------------------------------------------------------------- */

/* const float final0 = ...: every row value that the formulas read. `name` is also that of the parameters. */
static void load_row_param(struct emitter *e, const char *name, int k, int param)
{
    char text[NODE_NAME_BYTES];
    text_add(e->out,
             "        const float %s%d = p.%s%d[h.b * p.%s%d_b + h.h * p.%s%d_h + r.row * p.%s%d_t];\n", name,
             k, name, k, name, k, name, k, name, k);
    snprintf(text, sizeof text, "%s%d", name, k);
    scope_param(e, param, text);
}

static void load_row_params(struct emitter *e)
{
    for (int k = 0; k < MAX_STATE; k++) {
        if (e->back->final[k])
            load_row_param(e, "final", k, PARAM_FINAL + k);
        if (e->back->seed[k])
            load_row_param(e, "dfinal", k, PARAM_DFINAL + k);
        if (e->back->state[k])
            load_row_param(e, "state", k, PARAM_STATE + k);
        if (k < e->back->n_sums)
            load_row_param(e, "rowsum", k, PARAM_ROWSUM + k);
    }
    scope_param(e, PARAM_DELTA, "delta");
}

/* o is zero and the finals are those of a row without live pairs. */
static void emit_empty_test(struct emitter *e)
{
    double empty[MAX_STATE] = {0};
    host_empty_finals(e->spec, empty);
    text_add(e->out, "        const bool dead = zero");
    for (int k = 0; k < e->spec->n_finals; k++) {
        char value[64];
        float_text(empty[k], value, sizeof value);
        if (e->back->final[k])
            text_add(e->out, " && final%d == %s", k, value);
    }
    text_add(e->out, ";\n");
}

static void emit_row_sites(struct emitter *e)
{
    const struct site_list *list = &e->back->row;
    char text[128];
    if (list->n > 0)
        emit_empty_test(e);
    for (int i = 0; i < list->n; i++) {
        emit_values(e, &list->item[i].value, 1);
        text_add(e->out, "        site[%d] = dead ? 0.0f : %s;\n", i,
                 node_text(e, list->item[i].value, text, sizeof text));
    }
}

static void emit_back_row(struct attention *a, const struct field_set *set)
{
    struct emitter *e = a->e;
    char text[128];
    text_add(
        e->out,
        "    static constexpr bool DELTA = %s, EMPTY_BY_O = %s;\n    static constexpr int BACK_ROWS = %d;\n"
        "    DEV void back_row(const back_pre_params &p, const head &h, const row &r, float delta, bool "
        "zero, float "
        "*out, float *site)\n    {\n        [[maybe_unused]] const inputs &x = p.x;\n        "
        "[[maybe_unused]] const sizes &z = p.z;\n",
        yes(e->back->delta), yes(e->back->row.n > 0), set->n);
    name_static(a, true, false);
    load_row_params(e);
    for (int i = 0; i < set->n; i++) {
        emit_values(e, &set->node[i], 1);
        text_add(e->out, "        out[%d] = %s;\n", i, node_text(e, set->node[i], text, sizeof text));
    }
    emit_row_sites(e);
    text_add(e->out, "    }\n");
}

/* ---- sites -------------------------------------------------------------------------------------------- */

static void emit_forms(struct emitter *e, const char *prefix, const struct site_list *list)
{
    text_add(e->out, "    static constexpr int %sSITES = %d;\n    static constexpr int %sSITE_FORM[] = {",
             prefix, list->n, prefix);
    for (int i = 0; i < list->n; i++)
        text_add(e->out, "%s%s", i ? ", " : "", FORM_NAME[list->item[i].form]);
    text_add(e->out, "%s};\n", list->n ? "" : "-1");
}

/* May dim d be 0 while there are pairs? */
static bool may_be_empty(const struct emitter *e, int input, int d)
{
    const struct sig_dim *dim = &e->w->input[input].dim[d];
    return dim->literal <= 0 && dim->sym >= SYM_FREE;
}

/* Nowhere where the input has no elements: the clamped index would be no one's. */
void emit_address(struct emitter *e, int leaf)
{
    const struct ir_node n = e->w->node[leaf];
    struct text_buf t = {0};
    const char *name = e->w->input[n.index].name;
    if (n.op == OP_LOAD) {
        emit_values(e, n.arg, n.n_args);
        element_text(e, &n, "g", &t);
    }
    text_add(e->out, "        return ");
    bool guarded = false;
    for (int d = 0; n.op == OP_LOAD && d < n.n_args; d++) {
        char size[64];
        input_size_text(e, n.index, d, size, sizeof size);
        if (may_be_empty(e, n.index, d))
            text_add(e->out, "%s%s <= 0", guarded ? " || " : "", size), guarded = true;
    }
    text_add(e->out, "%sg.d_%s + (%s);\n", guarded ? " ? nullptr : " : "", name, t.size ? t.data : "0");
    text_fail_with(e->out, &t);
    text_free(&t);
}

static void emit_addresses(struct attention *a, const char *prefix, const struct site_list *list,
                           const char *more)
{
    struct emitter *e = a->e;
    text_add(e->out,
             "    template <int G> DEV auto %ssite_address(const grads &g, const inputs &x, const sizes &z, "
             "const head &h, const "
             "row &r%s)\n    {\n",
             prefix, more);
    for (int i = 0; i < list->n; i++) {
        const int form = list->item[i].form;
        text_add(e->out, "        %sif constexpr (G == %d) {\n", i ? "} else " : "", i);
        name_static(a, form == ADDRESS_ROW || form == ADDRESS_ELEMENT,
                    form == ADDRESS_COLUMN || form == ADDRESS_ELEMENT);
        if (form == ADDRESS_DIAGONAL)
            name_distances(e);
        emit_address(e, list->item[i].leaf);
    }
    text_add(e->out, "%s    }\n", list->n ? "        }\n" : "");
}

/* ---- pairs ------------------------------------------------------------------------------------------------
 */

static int emit_back_diag(struct attention *a)
{
    struct emitter *e = a->e;
    const int diag = find_back_diagonal(e);
    text_add(e->out,
             "    static constexpr bool BACK_DIAG = %s;\n    DEV float make_back_diag(" AT_PAIR
             ", int delta)\n    {\n",
             yes(diag >= 0));
    name_static(a, false, false);
    name_distances(e);
    emit_return(e, diag, "0.0f");
    text_add(e->out, "    }\n");
    return diag;
}

#define PAIR_ARGS AT_PAIR ", const row &r, const col &c, float diag, const float *b"

static void name_pair(struct attention *a, const struct field_set *set, int diag)
{
    name_static(a, true, true);
    name_row_values(a->e, set);
    if (diag >= 0)
        scope_set(a->e, diag, "diag");
    scope_param(a->e, PARAM_QK, "e");
    scope_param(a->e, PARAM_DW, "dw");
}

static void assign_slopes(struct emitter *e)
{
    char text[128];
    text_add(e->out, "        ds = %s;\n", node_text(e, e->back->ds, text, sizeof text));
    for (int i = 0; i < e->back->pair.n; i++)
        text_add(e->out, "        site[%d] = %s;\n", i,
                 node_text(e, e->back->pair.item[i].value, text, sizeof text));
    text_add(e->out, "    }\n");
}

static void emit_pair(struct attention *a, const struct field_set *set, int diag)
{
    struct emitter *e = a->e;
    const struct backward *b = e->back;
    int root[BACKWARD_ROOTS_MAX];
    char text[128];
    const int n = value_roots(b, root);
    text_add(e->out, "    DEV void pair(float e, float dw, " PAIR_ARGS
                     ", float &w, float &ds, float *site)\n    {\n");
    name_pair(a, set, diag);
    emit_values(e, root, n);
    text_add(e->out, "        w = %s;\n", node_text(e, b->weight, text, sizeof text));
    assign_slopes(e);
    text_add(e->out, "    DEV float ds_factor(" AT_PAIR ")\n    {\n");
    name_static(a, false, false);
    emit_return(e, b->factor, NULL);
    text_add(e->out, "    }\n");
}

/* Which row values a step reads, as bits, and whether it reads the diagonal; `given`: what it is handed, -1:
 * nothing. */
static void emit_reads_of(struct emitter *e, const char *step, const struct field_set *set, int diag,
                          int given, const int *root, int n)
{
    int stop[MAX_FIELDS + 2];
    int n_stop = 0;
    unsigned long long bits = 0;
    for (int i = 0; i < set->n; i++)
        stop[n_stop++] = set->node[i];
    if (diag >= 0)
        stop[n_stop++] = diag;
    if (given >= 0)
        stop[n_stop++] = given;
    reach(e->w, root, n, stop, n_stop, e->mark);
    for (int i = 0; i < set->n; i++)
        bits |= e->mark[set->node[i]] ? 1ull << i : 0;
    text_add(e->out,
             "    static constexpr unsigned long long %s_READS = 0x%llxull;\n    static constexpr bool "
             "%s_DIAG = %s;\n",
             step, bits, step, yes(diag >= 0 && e->mark[diag]));
}

/* What slope() is handed: the weight as it was rounded, where that is as exact as it is, for it is a factor;
   or, for the sake of sites, whose sums may cancel, as it is. -1: neither will do, and slope() finds it anew.
 */
static int handed_weight(const struct emitter *e, const int *root, int n)
{
    const int weight = e->back->weight;
    if (e->w->node[weight].op < OP_LOAD)
        return -1;
    if (e->back->pair.n > 0)
        return weight;
    ir_mark(e->w, root, n, e->mark);
    for (int i = weight + 1; i < e->w->n_nodes; i++)
        for (int k = 0; e->mark[i] && k < e->w->node[i].n_args; k++)
            if (e->w->node[i].arg[k] == weight && e->w->node[i].op != OP_MUL)
                return -1;
    return weight;
}

static bool slope_wants_score(const struct emitter *e)
{
    int root[BACKWARD_ROOTS_MAX];
    const int n = value_roots(e->back, root);
    int stop = handed_weight(e, root + 1, n - 1);
    reach(e->w, root + 1, n - 1, &stop, stop >= 0 ? 1 : 0, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && e->w->node[i].op == OP_PARAM && e->w->node[i].index == PARAM_QK)
            return true;
    return false;
}

static bool mask_reads_data(const struct emitter *e)
{
    ir_mark(e->w, e->w->mask.root, e->w->mask.n_roots, e->mark);
    for (int i = 0; i < e->w->n_nodes; i++)
        if (e->mark[i] && e->w->node[i].op == OP_LOAD)
            return true;
    return false;
}

bool backward_measure(struct ir *w, const struct signature *sig, const struct problem *problem,
                      const struct backward *b, struct pair_needs *out)
{
    struct emitter e = {0};
    struct field_set set = {0};
    bool ok = emitter_open(&e, w, sig, problem, NULL);
    e.back = b;
    ok = ok && collect_row(&e, &set);
    out->rows = set.n;
    out->diag = ok && find_back_diagonal(&e) >= 0;
    out->more = ok && (b->pair.n > 0 || slope_wants_score(&e) || mask_reads_data(&e));
    emitter_close(&e);
    return ok;
}

/* pair() in two steps, for kernels in which products come in between. */
static void emit_steps(struct attention *a, const struct field_set *set, int diag)
{
    struct emitter *e = a->e;
    const struct backward *b = e->back;
    int root[BACKWARD_ROOTS_MAX];
    char text[128];
    const int n = value_roots(b, root);
    const int handed = handed_weight(e, root + 1, n - 1);
    emit_reads_of(e, "WEIGHT", set, diag, -1, root, 1);
    emit_reads_of(e, "SLOPE", set, diag, handed, root + 1, n - 1);
    text_add(e->out, "    DEV float weight(float e, " PAIR_ARGS ")\n    {\n");
    name_pair(a, set, diag);
    emit_values(e, root, 1);
    text_add(e->out, "        return %s;\n    }\n", node_text(e, b->weight, text, sizeof text));
    text_add(e->out, "    DEV void slope(float e, float w, float dw, " PAIR_ARGS
                     ", float &ds, float *site)\n    {\n");
    name_pair(a, set, diag);
    if (handed >= 0)
        scope_set(e, handed, "w");
    emit_values(e, root + 1, n - 1);
    assign_slopes(e);
}

/* ---- the pass over the rows ------------------------------------------------------------------------------
 */

/* Row values that the pairs of the sums read. */
static void emit_sum_row(struct attention *a, const struct field_set *set)
{
    struct emitter *e = a->e;
    char text[128];
    text_add(
        e->out,
        "    static constexpr int ROW_SUMS = %d, SUM_ROWS = %d;\n"
        "    DEV void sum_row(const row_sums_params &p, const head &h, const row &r, float *out)\n    {\n"
        "        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const sizes &z = p.z;\n",
        e->back->n_sums, set->n);
    name_static(a, true, false);
    for (int k = 0; k < MAX_STATE; k++)
        if (e->back->sum_final[k])
            load_row_param(e, "final", k, PARAM_FINAL + k);
    for (int i = 0; i < set->n; i++) {
        emit_values(e, &set->node[i], 1);
        text_add(e->out, "        out[%d] = %s;\n", i, node_text(e, set->node[i], text, sizeof text));
    }
    text_add(e->out, "    }\n");
}

/* What a pair adds to each of the sums, and where they go. */
static void emit_row_sums(struct attention *a)
{
    struct emitter *e = a->e;
    const struct backward *b = e->back;
    struct field_set set;
    char text[128];
    if (b->n_sums == 0)
        return;
    if (!collect_values(e, &set, b->sum, b->n_sums))
        return;
    emit_sum_row(a, &set);
    text_add(e->out, "    DEV void sum_pair(float e, float dw, " AT_PAIR
                     ", const row &r, const col &c, const float *b, float *sum)\n    {\n");
    name_pair(a, &set, -1);
    emit_values(e, b->sum, b->n_sums);
    for (int k = 0; k < b->n_sums; k++)
        text_add(e->out, "        sum[%d] = %s;\n", k, node_text(e, b->sum[k], text, sizeof text));
    text_add(e->out,
             "    }\n    DEV void store_sums(const row_sums_params &p, int b, int h, int row, const float "
             "*sum)\n    {\n");
    for (int k = 0; k < b->n_sums; k++)
        text_add(e->out,
                 "        p.rowsum%d[b * p.rowsum%d_b + h * p.rowsum%d_h + row * p.rowsum%d_t] = sum[%d];\n",
                 k, k, k, k, k);
    text_add(e->out, "    }\n");
}

void emit_backward(struct attention *a, const struct plan *plan)
{
    static const char *const type[] = {"query_back", "key_back", "value_back", "output_back"};
    struct emitter *e = a->e;
    struct field_set set;
    if (!collect_row(e, &set))
        return;
    text_add(e->out, "\n    // the backward pass\n");
    emit_row_sums(a);
    emit_back_row(a, &set);
    emit_forms(e, "ROW_", &e->back->row);
    emit_addresses(a, "row_", &e->back->row, "");
    const int diag = emit_back_diag(a);
    emit_pair(a, &set, diag);
    if (plan->back.wgmma)
        emit_steps(a, &set, diag);
    emit_forms(e, "", &e->back->pair);
    emit_addresses(a, "", &e->back->pair, ", const col &c, int delta");
    for (int m = 0; m < MOD_COUNT; m++)
        emit_mod_back(e, (enum mod)m, type[m], back_mod_runs(e, (enum mod)m));
}

/* ---- config.gen.cuh --------------------------------------------------------------------------------- */

void emit_backward_config(struct text_buf *t, const struct emitter *e, const struct plan *plan)
{
    const struct back_plan *b = &plan->back;
    text_add(t, "\nnamespace cfg {\n");
    text_add(
        t, "constexpr int BACK_BM = %d, BACK_BN = %d, BACK_WARPS = %d, BACK_STAGES = %d, BACK_SPLIT = %d;\n",
        b->bm, b->bn, b->warps, b->stages, b->split);
    text_add(t, "constexpr bool BACK_WGMMA = %s;\n", yes(b->wgmma));
    if (b->wgmma)
        text_add(t,
                 "constexpr int BACK_V_STEPS = %d;\nconstexpr bool BACK_EARLY_DV = %s;\n"
                 "constexpr bool BOUND_WAITS = %s;\n",
                 b->v_steps, yes(b->early_dv), yes(plan->bound_waits));
    text_add(t, "constexpr bool BACK_O_F32 = %s;\n", yes(b->forward));
    text_add(t, "constexpr bool WANT_DQ = %s, WANT_DK = %s, WANT_DV = %s;\n",
             yes(gradient_wanted(e, MOD_QUERY)), yes(gradient_wanted(e, MOD_KEY)),
             yes(gradient_wanted(e, MOD_VALUE)));
    text_add(t, "constexpr bool DK_F32 = %s, DV_F32 = %s;\n", yes(e->w->mod[MOD_KEY].n_stages > 0),
             yes(e->w->mod[MOD_VALUE].n_stages > 0));
    text_add(t,
             "constexpr bool DETERMINISTIC = %s, BACK_DQ_STORED = %s;\nconstexpr int BACK_PIECES = "
             "%d;\nconstexpr bool BACK_PAIRED = %s;\n",
             yes(e->problem->deterministic), yes(b->dq_stored), b->pieces, yes(b->paired));
    text_add(t, "} // namespace cfg\n");
}
