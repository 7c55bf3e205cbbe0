/*
 * backward.c: derives what the backward pass of linear attention computes of formulas. In: a pool that grows.
 * Out: the roots of the derivatives in it.
 */
#include "gen/linear/backward.h"
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>

void linear_back_find_wanted(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                             struct linear_back *out)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", ir->input[i].name);
        out->wanted[i] = ir->input[i].grad && problem_has(problem, lathe__arg_find(sig, name, 0));
    }
}

bool linear_back_derive(struct ir *w, struct linear_back *out, char *why)
{
    const struct ir_at nowhere = {0, 0};
    bool ok = true;
    for (int f = 0; f < LINEAR_FUNCTIONS && ok; f++) {
        const struct ir_fn *fn = linear_function_of(w, (enum linear_function)f);
        ok = sites_of_function(w, fn, ir_param(w, LEAF_DX, nowhere), out->wanted, &out->site[f], &out->key[f],
                               why);
    }
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages && ok; s++)
            ok = sites_of_stage(w, &w->mod[m].stage[s], out->wanted, &out->stage[m][s], why);
    return ok;
}

static void each_of_list(struct site_list *list, void (*f)(void *context, int *root), void *context)
{
    for (int i = 0; i < list->n; i++) {
        f(context, &list->item[i].leaf);
        f(context, &list->item[i].value);
    }
}

void linear_back_each_root(struct linear_back *b, const struct ir *ir, void (*f)(void *context, int *root),
                           void *context)
{
    for (int k = 0; k < LINEAR_FUNCTIONS; k++) {
        each_of_list(&b->site[k], f, context);
        if (linear_slot_sees_key((enum linear_function)k) && linear_has(ir, (enum linear_function)k))
            f(context, &b->key[k]);
    }
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            f(context, &b->stage[m][s].root[0]);
            f(context, &b->stage[m][s].root[1]);
            f(context, &b->stage[m][s].value);
            each_of_list(&b->stage[m][s].site, f, context);
        }
}

void linear_back_settle(const struct ir *w, struct linear_back *b)
{
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        sites_settle(w, &b->site[k]);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            sites_settle(w, &b->stage[m][s].site);
    linear_back_find_stores(w, b);
}

bool linear_back_has_sites(const struct ir *ir, const struct linear_back *b, enum mod which)
{
    bool any = false;
    for (int s = 0; s < ir->mod[which].n_stages; s++)
        any |= b->stage[which][s].site.n > 0;
    return any;
}

/* ---- for people ---------------------------------------------------------------------------------------- */

void linear_back_print(const void *of, const struct ir *ir, struct text_buf *out)
{
    const struct linear_back *b = of;
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        sites_print(ir, k == OF_SCALE ? "of scale" : linear_slot_of((enum linear_function)k)->name,
                    &b->site[k], out);
    stages_print(ir, b->stage, out);
}
