/*
 * backward_use.c: what the formulas of backward.c ask of the recipe and of memory. In: formulas, lowered or
 * not; a signature and a problem. Out: which row values are read, what the addresses of sites depend on,
 * which gradients are compiled in.
 */
#include "gen/arguments/signature.h"
#include "gen/attention/backward.h"
#include "gen/arguments/problem.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what is used
 * -------------------------------------------------------------------------------------------- */

static void each_site(struct site_list *list, void (*f)(void *context, int *root), void *context)
{
    for (int i = 0; i < list->n; i++) {
        f(context, &list->item[i].leaf);
        f(context, &list->item[i].value);
    }
}

static void each_after_sums(struct backward *b, const struct ir *ir, void (*f)(void *context, int *root),
                            void *context)
{
    f(context, &b->weight);
    f(context, &b->ds);
    f(context, &b->factor);
    each_site(&b->pair, f, context);
    each_site(&b->row, f, context);
    each_site(&b->empty, f, context);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            f(context, &b->stage[m][s].root[0]);
            f(context, &b->stage[m][s].root[1]);
            each_site(&b->stage[m][s].site, f, context);
        }
}

void backward_each_root(struct backward *b, const struct ir *ir, void (*f)(void *context, int *root),
                        void *context)
{
    for (int k = 0; k < b->n_sums; k++)
        f(context, &b->sum[k]);
    each_after_sums(b, ir, f, context);
}

struct note {
    const struct ir *ir;
    struct backward *out;
};

/* Also by its parts, which are the final itself in most rows. */
static bool depends_on_final(const struct ir *ir, int root, int k)
{
    return ir_depends_on(ir, root, OP_PARAM, LEAF_FINAL + k) ||
           ir_depends_on(ir, root, OP_PARAM, LEAF_HIGH + k) ||
           ir_depends_on(ir, root, OP_PARAM, LEAF_NORM + k);
}

// NOLINTNEXTLINE(readability-non-const-parameter): the type of backward_each_root's function
static void note_root(void *context, int *root)
{
    const struct note *note = context;
    struct backward *b = note->out;
    b->delta |= ir_depends_on(note->ir, *root, OP_PARAM, LEAF_DELTA);
    for (int k = 0; k < MAX_STATE; k++) {
        b->final[k] |= depends_on_final(note->ir, *root, k);
        b->seed[k] |= ir_depends_on(note->ir, *root, OP_PARAM, LEAF_DFINAL + k);
        b->state[k] |= ir_depends_on(note->ir, *root, OP_PARAM, LEAF_STATE + k);
    }
}

/* ---- what an address depends on -------------------------------------------------------------------- */

/* Is a value of span q and kv one of at.q - at.kv and of values of the head? */
static bool is_diagonal(const struct ir *ir, int root)
{
    bool *ok = calloc((size_t)root + 1, sizeof *ok);
    bool result = false;
    for (int i = 0; ok && i <= root; i++) {
        const struct ir_node *n = &ir->node[i];
        const int left =
            n->n_args > 0 && ir->node[n->arg[0]].op == OP_F32 ? ir->node[n->arg[0]].arg[0] : n->arg[0];
        const int right =
            n->n_args > 1 && ir->node[n->arg[1]].op == OP_F32 ? ir->node[n->arg[1]].arg[0] : n->arg[1];
        bool distance = n->op == OP_SUB && ((ir_is_at(ir, left, AT_Q) && ir_is_at(ir, right, AT_KV)) ||
                                            (ir_is_at(ir, left, AT_KV) && ir_is_at(ir, right, AT_Q)));
        ok[i] = n->span == 0 || distance || (n->n_args > 0 && n->op != OP_PARAM);
        for (int k = 0; k < n->n_args && !distance; k++)
            ok[i] &= ok[n->arg[k]];
    }
    result = ok && ok[root];
    free(ok);
    return result;
}

static int form_of(const struct ir *ir, int leaf)
{
    const struct ir_node *n = &ir->node[leaf];
    bool diagonal = true;
    if (n->span == 0)
        return ADDRESS_HEAD;
    if (n->span & SPAN_DIM)
        return n->span == SPAN_DIM ? ADDRESS_DIM : ADDRESS_ELEMENT;
    if (n->span == SPAN_Q || n->span == SPAN_KV)
        return n->span == SPAN_Q ? ADDRESS_ROW : ADDRESS_COLUMN;
    for (int k = 0; k < n->n_args; k++)
        diagonal &= is_diagonal(ir, n->arg[k]);
    return diagonal ? ADDRESS_DIAGONAL : ADDRESS_ELEMENT;
}

/* A read that became a constant (an input that is absent) has no address. */
static void find_site_forms(const struct ir *ir, struct site_list *list)
{
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        const int op = ir->node[list->item[i].leaf].op;
        if (op != OP_LOAD && op != OP_SCALAR)
            continue;
        list->item[n] = list->item[i];
        list->item[n].form = form_of(ir, list->item[n].leaf);
        n++;
    }
    list->n = n;
}

int site_find(const struct site_list *list, int leaf)
{
    for (int i = 0; i < list->n; i++)
        if (list->item[i].leaf == leaf)
            return i;
    return -1;
}

/* ---- whose sums ------------------------------------------------------------------------------------ */

static int count_reads(const struct ir *ir, const struct site_list *list, int input)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        n += ir->node[list->item[i].leaf].index == input;
    return n;
}

static int count_sites(const struct ir *ir, const struct backward *b, int input)
{
    int n = count_reads(ir, &b->pair, input) + count_reads(ir, &b->row, input);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            n += count_reads(ir, &b->stage[m][s].site, input);
    return n;
}

/* [.. at.b .. at.h .. at.row .. at.kv ..], each over the whole of its dim. */
static bool is_of_one_pair(const struct ir *ir, int leaf)
{
    static const struct {
        int field, sym;
    } OWN[] = {{AT_B, SYM_B}, {AT_H, SYM_H}, {AT_ROW, SYM_Q}, {AT_KV, SYM_KV}};
    const struct ir_node *n = &ir->node[leaf];
    unsigned found = 0;
    for (int d = 0; n->op == OP_LOAD && d < n->n_args; d++)
        for (unsigned k = 0; k < 4; k++)
            if (ir_is_at(ir, n->arg[d], OWN[k].field) && ir->input[n->index].dim[d].sym == OWN[k].sym)
                found |= 1u << k;
    return found == 15;
}

/* [.. at.b .. at.h .. at.row .. at.i ..], each over the whole of its dim: of one number of one row of q or o.
   Mods of k and v have at.kv, the place in a sequence, which rows of several sequences share. */
static bool is_of_one_number(const struct ir *ir, int leaf, enum mod m)
{
    const struct {
        int field, sym;
    } own[] = {{AT_B, SYM_B}, {AT_H, SYM_H}, {AT_ROW, SYM_Q}, {AT_I, m == MOD_QUERY ? SYM_D : SYM_D_V}};
    const struct ir_node *n = &ir->node[leaf];
    unsigned found = 0;
    for (int d = 0; n->op == OP_LOAD && d < n->n_args; d++) {
        const struct sig_dim *dim = &ir->input[n->index].dim[d];
        for (unsigned k = 0; k < 4; k++)
            if (ir_is_at(ir, n->arg[d], own[k].field) && dim->literal <= 0 && dim->sym == own[k].sym)
                found |= 1u << k;
    }
    return found == 15;
}

/* Of an input that one site of a mod reads. */
static bool is_only_read_of_mods(const struct ir *ir, const struct backward *b, int input)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            for (int i = 0; i < b->stage[m][s].site.n; i++) {
                const int leaf = b->stage[m][s].site.item[i].leaf;
                if (ir->node[leaf].index == input)
                    return is_of_one_number(ir, leaf, (enum mod)m) && count_reads(ir, &b->empty, input) == 0;
            }
    return false;
}

bool backward_shares_elements(const struct ir *ir, const struct backward *b, int input)
{
    const int n = count_sites(ir, b, input);
    for (int i = 0; n == 1 && i < b->pair.n; i++)
        if (ir->node[b->pair.item[i].leaf].index == input)
            return !is_of_one_pair(ir, b->pair.item[i].leaf);
    return n > 0 && !(n == 1 && is_only_read_of_mods(ir, b, input));
}

static void find_stores(const struct ir *ir, struct backward *b)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            for (int i = 0; i < b->stage[m][s].site.n; i++) {
                struct site *site = &b->stage[m][s].site.item[i];
                site->stores = !backward_shares_elements(ir, b, ir->node[site->leaf].index);
            }
}

void backward_finish(const struct ir *ir, struct backward *b)
{
    struct note note = {ir, b};
    find_site_forms(ir, &b->pair);
    find_site_forms(ir, &b->row);
    find_site_forms(ir, &b->empty);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            find_site_forms(ir, &b->stage[m][s].site);
    find_stores(ir, b);
    b->delta = false;
    for (int k = 0; k < MAX_STATE; k++)
        b->final[k] = b->seed[k] = b->state[k] = b->sum_final[k] = false;
    each_after_sums(b, ir, note_root, &note);
    for (int i = 0; i < b->n_sums; i++)
        for (int k = 0; k < MAX_STATE; k++)
            b->sum_final[k] |= depends_on_final(ir, b->sum[i], k) || b->split[k].found;
    for (int k = 0; k < MAX_STATE; k++)
        b->final[k] |= b->split[k].found;
}

enum { PAIR_BATCH = 1, PAIR_HEAD = 2, PAIR_ROW = 4, PAIR_KEY = 8, PAIR_DIMS = 15 };

static unsigned dim_of_pair(int sym)
{
    switch (sym) {
    case SYM_B:
        return PAIR_BATCH;
    case SYM_H:
    case SYM_ALL_H:
        return PAIR_HEAD;
    case SYM_Q:
        return PAIR_ROW;
    case SYM_KV:
    case SYM_ALL_KV:
        return PAIR_KEY;
    default:
        return 0;
    }
}

bool backward_sums_fit(const struct ir *ir, const struct backward *b, const struct backward_wanted *wanted,
                       char *why)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        const struct input *in = &ir->input[i];
        unsigned dims = 0;
        bool part = false; /* the call has some of the heads or keys that the input is of */
        for (int d = 0; d < in->n_dims; d++) {
            dims |= dim_of_pair(in->dim[d].sym);
            part |= in->dim[d].sym == SYM_ALL_KV || in->dim[d].sym == SYM_ALL_H;
        }
        const bool every_pair = (dims & PAIR_ROW) && (dims & PAIR_KEY);
        if (!wanted->input[i] || !every_pair || !backward_shares_elements(ir, b, i))
            continue;
        snprintf(
            why, WHY_BYTES,
            "deterministic: the gradient of '%s' has an element for every pair, to which several add "
            "(of each batch or head, say): sums without an order take 48 bytes each. %s, or leave d%s out",
            in->name,
            part && dims == PAIR_DIMS ? "Give all heads and keys to one call" : "Give it dims b, h, q and kv",
            in->name);
        return false;
    }
    return true;
}

/* ---- what is compiled in ---------------------------------------------------------------------- */

static bool gradient_wanted_of(const struct signature *sig, const struct problem *problem, const char *name)
{
    char gradient[NAME_MAX_BYTES + 2];
    snprintf(gradient, sizeof gradient, "d%s", name);
    return problem_has_named(sig, problem, gradient);
}

void backward_wanted_make(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                          struct backward_wanted *out)
{
    *out = (struct backward_wanted){0};
    for (int k = 0; k < ir->n_finals; k++)
        out->seed[k] = gradient_wanted_of(sig, problem, ir->final[k].name);
    for (int i = 0; i < ir->n_inputs; i++) {
        const struct input *in = &ir->input[i];
        bool gone = !in->is_scalar && !problem_has_named(sig, problem, in->name);
        out->input[i] = in->grad && !gone && gradient_wanted_of(sig, problem, in->name);
    }
}

bool backward_runs_forward(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                           const struct backward *b)
{
    const bool reads_o = b->delta || b->row.n > 0;
    const bool odd = problem->dim[SYM_D_V] % ATTENTION_DIM_STEP != 0; /* whose rows bwd_pre does not read */
    bool runs =
        ir->mod[MOD_OUTPUT].n_stages > 0 || (reads_o && (odd || !problem_has_named(sig, problem, "o")));
    for (int k = 0; k < ir->n_finals; k++)
        runs |= (b->final[k] || b->sum_final[k]) && !problem_has_named(sig, problem, ir->final[k].name);
    for (int k = 0; k < ir->n_states; k++)
        runs |= b->state[k];
    return runs;
}

int backward_pair_roots(const struct backward *b, int *root)
{
    int n = 0;
    root[n++] = b->weight;
    root[n++] = b->ds;
    root[n++] = b->factor;
    for (int i = 0; i < b->n_sums; i++)
        root[n++] = b->sum[i];
    for (int i = 0; i < b->pair.n; i++) {
        root[n++] = b->pair.item[i].value;
        root[n++] = b->pair.item[i].leaf;
    }
    for (int i = 0; i < b->row.n; i++) {
        root[n++] = b->row.item[i].value;
        root[n++] = b->row.item[i].leaf;
    }
    for (int i = 0; i < b->empty.n; i++)
        root[n++] = b->empty.item[i].value;
    return n;
}
