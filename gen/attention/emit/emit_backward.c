/*
 * emit_backward.c: what attention's backward pass adds to struct variant. In: lowered formulas (backward.h).
 * Out: the functions of templates/README.md for pairs, rows and the sites where inputs get gradients, as
 * text; those of vector mods come from emit_mods.c.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <math.h>
#include <stdio.h>

static const char *const FORM_NAME[] = {"SITE_HEAD",     "SITE_ROW",     "SITE_COLUMN",
                                        "SITE_DIAGONAL", "SITE_ELEMENT", "SITE_DIM"};

/* ---- what a pair reads of its row ------------------------------------------------------------------ */

/* A row's values are stored as floats: small integers by their value, such as a hash by its bits. */
static bool is_stored_as_bits(const struct emitter *e, int node)
{
    return e->w->node[node].type == TYPE_I32 && e->most[node] > 0x1p24;
}

static void name_row_values(struct emitter *e, const struct field_set *set)
{
    for (int i = 0; i < set->n; i++) {
        const int type = e->w->node[set->node[i]].type;
        if (type == TYPE_F32)
            scope_set(e, set->node[i], "b[%d]", i);
        else if (is_stored_as_bits(e, set->node[i]))
            scope_set(e, set->node[i], "__float_as_int(b[%d])", i);
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
             "        [[maybe_unused]] const float %s%d = p.%s%d[h.b * p.%s%d_b + h.h * p.%s%d_h + r.row * "
             "p.%s%d_t];\n",
             name, k, name, k, name, k, name, k, name, k);
    snprintf(text, sizeof text, "%s%d", name, k);
    scope_param(e, param, text);
}

static void load_row_params(struct emitter *e)
{
    for (int k = 0; k < MAX_STATE; k++) {
        if (e->back->final[k])
            load_row_param(e, "final", k, LEAF_FINAL + k);
        if (e->back->seed[k])
            load_row_param(e, "dfinal", k, LEAF_DFINAL + k);
        if (e->back->state[k])
            load_row_param(e, "state", k, LEAF_STATE + k);
        if (k < e->back->n_sums)
            load_row_param(e, "rowsum", k, LEAF_ROWSUM + k);
    }
    scope_param(e, LEAF_DELTA, "delta");
    split_name(e);
}

/* o is zero and the finals are those of a row without live pairs, or one of them is no number: where all
   finals of such a row follow from inputs, as a sink's logarithm does, the formulas hold there, too. */
static void emit_empty_test(struct emitter *e)
{
    text_add(e->out, "        const bool dead = zero");
    for (int k = 0; k < e->spec->n_finals; k++) {
        const struct ir_node *n = &e->w->node[e->w->lowered.empty.root[k]];
        char value[64];
        if (!e->back->final[k] || (e->back->empty.n > 0 && n->op != OP_CONST))
            continue;
        float_text(n->op == OP_CONST && !isnan(n->value) ? n->value : -HUGE_VAL, value, sizeof value);
        if (n->op == OP_CONST)
            text_add(e->out, " && final%d == %s", k, value);
        else
            text_add(e->out, " && !(fabsf(final%d) < INF)", k);
    }
    for (int k = 0; k < e->w->n_states; k++) {
        char value[64];
        if (!e->back->state[k])
            continue;
        float_text(e->w->state[k].init, value, sizeof value);
        text_add(e->out, " && state%d == %s", k, value);
    }
    text_add(e->out, ";\n");
}

static void emit_row_sites(struct emitter *e)
{
    const struct site_list *list = &e->back->row;
    char text[128];
    char empty[128];
    if (list->n > 0)
        emit_empty_test(e);
    for (int i = 0; i < list->n; i++) {
        const int k = site_find(&e->back->empty, list->item[i].leaf);
        emit_values(e, &list->item[i].value, 1);
        if (k >= 0) {
            emit_values(e, &e->back->empty.item[k].value, 1);
            node_text(e, e->back->empty.item[k].value, empty, sizeof empty);
        }
        text_add(e->out, "        site[%d] = dead ? %s : %s;\n", i, k >= 0 ? empty : "0.0f",
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
        "zero, "
        "%sfloat *out, float *site)\n    {\n        [[maybe_unused]] const inputs &x = p.x;\n        "
        "[[maybe_unused]] const sizes &z = p.z;\n",
        yes(e->back->delta), yes(e->back->row.n > 0), set->n,
        backward_splits(e->back) ? "const float *high, const float *norm, " : "");
    name_static(a, true, false);
    load_row_params(e);
    for (int i = 0; i < set->n; i++) {
        emit_values(e, &set->node[i], 1);
        node_text(e, set->node[i], text, sizeof text);
        text_add(e->out,
                 is_stored_as_bits(e, set->node[i]) ? "        out[%d] = __int_as_float(%s);\n"
                                                    : "        out[%d] = %s;\n",
                 i, text);
    }
    int rest;
    const int norm = back_seldom_norm(e, &rest);
    if (norm >= 0)
        text_add(e->out, "        out[%d] = %s;\n", set->n, node_text(e, norm, text, sizeof text));
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
    const int diag = back_find_diagonal(e);
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
    scope_param(a->e, LEAF_QK, "e");
    scope_param(a->e, LEAF_DW, "dw");
    int rest;
    const int norm = back_seldom_norm(a->e, &rest);
    if (norm >= 0 && set->n < MAX_FIELDS)
        scope_set(a->e, norm, "b[%d]", set->n);
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
    const int n = back_value_roots(b, root);
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
    ir_mark_until(e->w, root, n, stop, n_stop, e->mark);
    for (int i = 0; i < set->n; i++)
        bits |= e->mark[set->node[i]] ? 1ull << i : 0;
    text_add(e->out,
             "    static constexpr unsigned long long %s_READS = 0x%llxull;\n    static constexpr bool "
             "%s_DIAG = %s;\n",
             step, bits, step, yes(diag >= 0 && e->mark[diag]));
}

/* pair() in two steps, for kernels in which products come in between. */
static void emit_steps(struct attention *a, const struct field_set *set, int diag)
{
    struct emitter *e = a->e;
    const struct backward *b = e->back;
    int root[BACKWARD_ROOTS_MAX];
    char text[128];
    const int n = back_value_roots(b, root);
    const int handed = back_handed_weight(e, root + 1, n - 1);
    emit_reads_of(e, "WEIGHT", set, diag, -1, root, 1);
    emit_reads_of(e, "SLOPE", set, diag, handed, root + 1, n - 1);
    text_add(e->out, "    DEV float weight(float e, " PAIR_ARGS ")\n    {\n");
    name_pair(a, set, diag);
    (void)back_seldom_norm(e, &root[0]); /* the product is the kernel's */
    emit_values(e, root, 1);
    text_add(e->out, "        return %s;\n    }\n", node_text(e, root[0], text, sizeof text));
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
        "    DEV void sum_row(const row_sums_params &p, const head &h, const row &r, %sfloat *out)\n    {\n"
        "        [[maybe_unused]] const inputs &x = p.x;\n        [[maybe_unused]] const sizes &z = p.z;\n",
        e->back->n_sums, set->n, backward_splits(e->back) ? "const float *high, const float *norm, " : "");
    name_static(a, true, false);
    for (int k = 0; k < MAX_STATE; k++)
        if (e->back->sum_final[k])
            load_row_param(e, "final", k, LEAF_FINAL + k);
    split_name(e);
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
    if (!back_collect_values(e, &set, b->sum, b->n_sums))
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
    if (!back_collect_row(e, &set))
        return;
    text_add(e->out, "\n    // the backward pass\n");
    emit_split(a);
    emit_row_sums(a);
    emit_back_row(a, &set);
    emit_forms(e, "ROW_", &e->back->row);
    emit_addresses(a, "row_", &e->back->row, "");
    const int diag = emit_back_diag(a);
    emit_pair(a, &set, diag);
    if (plan->row->attention->pair_steps)
        emit_steps(a, &set, diag);
    emit_forms(e, "", &e->back->pair);
    emit_addresses(a, "", &e->back->pair, ", const col &c, int delta");
    emit_meeting_sites(a, plan);
    for (int m = 0; m < MOD_COUNT; m++)
        emit_mod_back(e, (enum mod)m, type[m],
                      back_mod_runs(e, plan, (enum mod)m) ? e->back->stage[m] : NULL);
}

/* ---- config.gen.cuh --------------------------------------------------------------------------------- */

void emit_backward_config(struct text_buf *t, const struct emitter *e, const struct plan *plan)
{
    const struct back_plan *b = &plan->attention.back;
    int root[2 * MAX_STATE];
    text_add(t, "\n#define LATHE_SPLITS %d\n", split_roots(e->back, root) / 2);
    text_add(t, "\nnamespace cfg {\n");
    text_add(
        t, "constexpr int BACK_BM = %d, BACK_BN = %d, BACK_WARPS = %d, BACK_STAGES = %d, BACK_SPLIT = %d;\n",
        b->bm, b->bn, b->warps, b->stages, b->split);
    plan->row->attention->constants(t, plan);
    text_add(t, "constexpr bool BACK_O_F32 = %s;\n", yes(b->forward));
    text_add(t, "constexpr bool WANT_DQ = %s, WANT_DK = %s, WANT_DV = %s;\n",
             yes(gradient_wanted(e, MOD_QUERY)), yes(gradient_wanted(e, MOD_KEY)),
             yes(gradient_wanted(e, MOD_VALUE)));
    text_add(t, "constexpr bool DK_F32 = %s, DV_F32 = %s;\n", yes(gradient_in_floats(e, plan, MOD_KEY)),
             yes(gradient_in_floats(e, plan, MOD_VALUE)));
    text_add(t,
             "constexpr bool DETERMINISTIC = %s, BACK_DQ_STORED = %s;\nconstexpr int BACK_PIECES = "
             "%d;\nconstexpr bool BACK_PAIRED = %s, BACK_BY_ROWS = %s;\n",
             yes(e->problem->deterministic), yes(b->dq_stored), b->pieces, yes(b->paired), yes(b->selected));
    if (b->selected)
        text_add(t, "constexpr int BACK_BLOCKS = %d;\n", b->blocks);
    text_add(t, "} // namespace cfg\n");
}
