/*
 * sites.c: what flows back to inputs from a stage of a vector mod, or from a function of tokens and channels.
 * In: formulas of a pool, which grows. Out: adjoints, and a list of reads with what each gets.
 */
#include "gen/heads/sites.h"
#include "gen/base/diag.h"
#include "gen/derive/diff.h"
#include "gen/ir/spec.h"

#include <stdio.h>
#include <stdlib.h>

static bool derive_roots(struct ir *ir, const int *root, const int *seed, int n, struct diff_result *g,
                         char *why)
{
    struct diag diag = {0};
    char place[DIAG_PLACE_BYTES];
    if (diff(ir, root, seed, n, g, &diag))
        return true;
    diag_place(diag.entry[0].file, diag.entry[0].line, place);
    snprintf(why, SITES_WHY_BYTES, "%.90s%.150s", place, diag.entry[0].text);
    return false;
}

int input_tile(int dims_from_last)
{
    return dims_from_last == 1 ? INPUT_THREADS : dims_from_last == 2 ? INPUT_ROWS : 1;
}

static bool is_nothing(const struct ir *ir, int node)
{
    return ir->node[node].op == OP_CONST && ir->node[node].value == 0;
}

static bool list_site(struct ir *ir, struct site_list *list, int leaf, int value, char *why)
{
    if (is_nothing(ir, value))
        return true;
    for (int i = 0; i < list->n; i++)
        if (list->item[i].leaf == leaf) {
            list->item[i].value = ir2(ir, OP_ADD, list->item[i].value, value);
            return true;
        }
    if (list->n == MAX_SITES) {
        snprintf(why, SITES_WHY_BYTES, "inputs that want gradients are read in more than %d places",
                 MAX_SITES);
        return false;
    }
    list->item[list->n++] = (struct site){leaf, value, ADDRESS_ELEMENT, false};
    return true;
}

/* The value of one element where diff() summed over those of a node that lacks their axis. An adjoint is
   linear in its seed, so that it holds one such sum on every path. -1: there are too many. */
static int without_reductions(struct ir *ir, int root)
{
    enum { MOST = 16 };
    int sum[MOST];
    int operand[MOST];
    int n = 0;
    bool *used = calloc((size_t)ir->n_nodes, sizeof *used);
    if (!used) {
        ir->failed = true;
        return root;
    }
    ir_mark(ir, &root, 1, used);
    for (int i = 0; i <= root && n <= MOST; i++) {
        if (!used[i] || !ir_op_is_reduction(ir->node[i].op))
            continue;
        if (n < MOST) {
            sum[n] = i;
            operand[n] = ir->node[i].arg[0];
        }
        n++;
    }
    free(used);
    return n > MOST ? -1 : ir_substitute(ir, root, sum, operand, n);
}

static int adjoint_of_param(struct ir *ir, const struct diff_result *g, int which)
{
    for (int i = 0; i < g->n; i++) {
        const struct ir_node *leaf = &ir->node[g->item[i].leaf];
        if (leaf->op == OP_PARAM && leaf->index == which)
            return g->item[i].adjoint;
    }
    return ir_const(ir, 0, TYPE_F32);
}

static bool list_sites(struct ir *ir, const struct diff_result *g, bool sums, const bool *wanted,
                       struct site_list *out, char *why)
{
    bool ok = true;
    for (int i = 0; i < g->n && ok; i++) {
        const struct ir_node *leaf = &ir->node[g->item[i].leaf];
        if (leaf->op == OP_PARAM || !wanted[leaf->index])
            continue;
        const int value = sums ? g->item[i].adjoint : without_reductions(ir, g->item[i].adjoint);
        if (value < 0)
            snprintf(why, SITES_WHY_BYTES, "the gradient of input '%s' needs too many sums",
                     ir->input[leaf->index].name);
        ok = value >= 0 && list_site(ir, out, g->item[i].leaf, value, why);
    }
    return ok;
}

bool sites_of_stage(struct ir *ir, const struct ir_stage *stage, const bool *wanted, struct stage_back *out,
                    char *why)
{
    const bool pair = stage->form != STAGE_ELEMENT;
    const struct ir_at nowhere = {0, 0};
    const int seed[2] = {ir_param(ir, pair ? LEAF_DLO : LEAF_DX, nowhere), ir_param(ir, LEAF_DHI, nowhere)};
    struct diff_result g;
    if (!derive_roots(ir, stage->fn.root, seed, pair ? 2 : 1, &g, why))
        return false;
    out->root[0] = adjoint_of_param(ir, &g, pair ? LEAF_LO : LEAF_X);
    out->root[1] = pair ? adjoint_of_param(ir, &g, LEAF_HI) : ir_const(ir, 0, TYPE_F32);
    out->value = adjoint_of_param(ir, &g, LEAF_V);
    out->has_value = !is_nothing(ir, out->value);
    const bool ok = list_sites(ir, &g, true, wanted, &out->site, why);
    diff_free(&g);
    return ok;
}

bool sites_of_function(struct ir *ir, const struct ir_fn *fn, int seed, const bool *wanted,
                       struct site_list *out, int *element, char *why)
{
    struct diff_result g;
    if (fn->n_roots == 0)
        return true;
    if (!derive_roots(ir, fn->root, &seed, 1, &g, why))
        return false;
    *element = adjoint_of_param(ir, &g, LEAF_X);
    const bool ok = list_sites(ir, &g, false, wanted, out, why);
    diff_free(&g);
    return ok;
}

void sites_settle(const struct ir *ir, struct site_list *list)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        const struct ir_node *leaf = &ir->node[list->item[i].leaf];
        if (leaf->op != OP_LOAD && leaf->op != OP_SCALAR)
            continue;
        list->item[n] = list->item[i];
        list->item[n++].form = leaf->span == 0              ? ADDRESS_HEAD
                               : leaf->span == SPAN_Q       ? ADDRESS_ROW
                               : (leaf->span & SPAN_Q) == 0 ? ADDRESS_DIM
                                                            : ADDRESS_ELEMENT;
    }
    list->n = n;
}

/* ---- for people ---------------------------------------------------------------------------------------- */

void sites_print(const struct ir *ir, const char *of, const struct site_list *list, struct text_buf *out)
{
    for (int i = 0; i < list->n; i++) {
        char name[NAME_MAX_BYTES + 64];
        const struct site *site = &list->item[i];
        snprintf(name, sizeof name, "%s: d%s, of what is read", of,
                 ir->input[ir->node[site->leaf].index].name);
        ir_print_roots(ir, name, (const int[]){site->value, site->leaf}, 2, out);
    }
}

void stages_print(const struct ir *ir, const struct stage_back (*stage)[MAX_STAGES], struct text_buf *out)
{
    static const char *const mod[] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            char name[32];
            const bool pair = ir->mod[m].stage[s].form != STAGE_ELEMENT;
            snprintf(name, sizeof name, "adjoint of %s", mod[m]);
            ir_print_roots(ir, name, stage[m][s].root, pair ? 2 : 1, out);
            sites_print(ir, name, &stage[m][s].site, out);
        }
}
