/*
 * emit_back_pages.c: keys in pages in attention's backward pass: gradients of their copies are added to
 * pages. In: where everything lives. Out: buffers, and launches of attention/pages.cuh behind all others.
 */
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/arguments/problem.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

enum { PAGE_THREADS = 256, WARP = 32, ENTRY_BYTES = 4 };

void back_place_pages(struct recipe *r)
{
    struct emitter *e = r->a.e;
    struct product first = product_of(ENTRY_BYTES);
    struct product next = first;
    if (!keys_are_gathered(e))
        return;
    product_times(&first, SYM_POOL, 1);
    product_times(&next, SYM_SEQS, 1);
    product_times(&next, SYM_MOST, 1);
    r->page_first = add_buffer(r->out, e, first);
    r->page_next = add_buffer(r->out, e, next);
    emit_key_starts(e, r->out);
}

static struct page_gradients gradients_of(const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const bool dk = gradient_wanted(e, MOD_KEY);
    const bool dv = !e->w->v_is_k && gradient_wanted(e, MOD_VALUE);
    return (struct page_gradients){.dk_rows = dk ? &r->grad[TENSOR_K] : NULL,
                                   .dv_rows = dv ? &r->grad[TENSOR_V] : NULL,
                                   .dk = dk ? &r->result[TENSOR_K] : NULL,
                                   .dv = dv ? &r->result[TENSOR_V] : NULL,
                                   .first = r->page_first,
                                   .next = r->page_next};
}

void back_add_pages_in(struct recipe *r)
{
    const struct page_gradients g = gradients_of(r);
    emit_pages_in(r->a.e, &r->forward, &g, r->out);
}

void back_add_pages_out(struct recipe *r)
{
    const struct page_gradients g = gradients_of(r);
    struct launch *find = add_launch(r->out, r->a.e, "pages_find", WARP);
    find->grid = product_of(1);
    product_times(&find->grid, SYM_POOL, WARP);
    emit_page_params(r->a.e, &r->forward, &g, find);
    struct launch *out = add_launch(r->out, r->a.e, "pages_out", PAGE_THREADS);
    out->grid = product_of(1);
    product_times(&out->grid, SYM_POOL, 1);
    product_times(&out->grid, SYM_H_KV, 1);
    emit_page_params(r->a.e, &r->forward, &g, out);
}
