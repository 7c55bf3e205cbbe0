/*
 * emit_back_pages.c: keys in pages in attention's backward pass, of which the other kernels know nothing:
 * they are copied out of their pages in front of these, and gradients are added to pages behind them. In:
 * where everything lives. Out: launches of attention/backward/pages.cuh, and their parameter struct.
 */
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/arguments/problem.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

enum { PAGE_THREADS = 256, PAGE_TOKENS = 64, WARP = 32, ENTRY_BYTES = 4 };

void back_place_pages(struct recipe *r)
{
    struct emitter *e = r->a.e;
    struct product first = product_of(ENTRY_BYTES);
    struct product next = first;
    struct product starts = product_of(2 * ENTRY_BYTES); /* n + 1 of them */
    if (!keys_are_gathered(e))
        return;
    product_times(&first, SYM_POOL, 1);
    product_times(&next, SYM_SEQS, 1);
    product_times(&next, SYM_MOST, 1);
    product_times(&starts, SYM_SEQS, 1);
    r->page_first = add_buffer(r->out, e, first);
    r->page_next = add_buffer(r->out, e, next);
    e->key_starts = is_packed(e) ? 1 + add_buffer(r->out, e, starts) : 0;
}

static void add_place(struct params *p, bool there, const char *type, const char *name,
                      const struct place *at)
{
    if (there)
        emit_place_pointer(p, type, name, at);
    else
        params_null(p, type, name);
    emit_place_strides(p, name, at);
}

/* All of the kernels have the same parameters. */
static void add_params(struct recipe *r, struct launch *launch)
{
    static const char *const stride[] = {"b", "step"};
    struct emitter *e = r->a.e;
    const struct layout *l = &r->forward;
    const bool dk = gradient_wanted(e, MOD_KEY);
    const bool own_v = !e->w->v_is_k;
    const bool dv = own_v && gradient_wanted(e, MOD_VALUE);
    struct params p;
    params_open_once(&p, e, launch, "page_params");
    add_place(&p, true, "const void", "k", &l->outer[TENSOR_K]);
    add_place(&p, own_v, "const void", "v", &l->outer[TENSOR_V]);
    add_place(&p, true, "void", "k_rows", &l->inner[TENSOR_K]);
    add_place(&p, own_v, "void", "v_rows", &l->inner[TENSOR_V]);
    add_place(&p, dk, "const float", "dk_rows", &r->grad[TENSOR_K]);
    add_place(&p, dv, "const float", "dv_rows", &r->grad[TENSOR_V]);
    add_place(&p, dk, "void", "dk", &r->result[TENSOR_K]);
    add_place(&p, dv, "void", "dv", &r->result[TENSOR_V]);
    const int pages = lathe__arg_find(e->sig, "pages", 0);
    params_pointer(&p, "const int", "pages", PARAM_ARG_DATA, pages);
    params_strides(&p, "pages", stride, pages, 2, 0);
    params_list(&p, e->sig, "used_kv");
    params_pointer(&p, "int", "first", PARAM_WORK_DATA, r->page_first);
    params_pointer(&p, "int", "next", PARAM_WORK_DATA, r->page_next);
    back_optional_pointer(&p, "int", "starts", e->key_starts - 1);
    params_sym(&p, "n_b", SYM_SEQS);
    params_sym(&p, "n_h", SYM_H_KV);
    params_sym(&p, "room", SYM_KV);
    params_sym(&p, "page", SYM_PAGE);
    params_sym(&p, "most_pages", SYM_MOST);
    params_sym(&p, "n_pages", SYM_POOL);
    params_close(&p, "page_params");
}

void back_add_pages_in(struct recipe *r)
{
    struct launch *launch = add_launch(r->out, r->a.e, "pages_in", PAGE_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_SEQS, 1);
    product_times(&launch->grid, SYM_H_KV, 1);
    product_times(&launch->grid, SYM_KV, PAGE_TOKENS);
    add_params(r, launch);
}

void back_add_pages_out(struct recipe *r)
{
    struct launch *find = add_launch(r->out, r->a.e, "pages_find", WARP);
    find->grid = product_of(1);
    product_times(&find->grid, SYM_POOL, WARP);
    add_params(r, find);
    struct launch *out = add_launch(r->out, r->a.e, "pages_out", PAGE_THREADS);
    out->grid = product_of(1);
    product_times(&out->grid, SYM_POOL, 1);
    product_times(&out->grid, SYM_H_KV, 1);
    add_params(r, out);
}
