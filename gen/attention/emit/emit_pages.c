/*
 * emit_pages.c: keys in pages, of which an attention kernel behind knows nothing: they are copied out of
 * their pages ahead of it. In: where everything lives. Out: the launch of attention/pages.cuh that copies
 * them, and the struct of parameters that all kernels there have.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/emit/emit.h"
#include "gen/emit/emit.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { PAGE_THREADS = 256, PAGE_TOKENS = 64, ENTRY_BYTES = 4 };

void emit_key_starts(struct emitter *e, struct source *out)
{
    struct product starts = product_of(2 * ENTRY_BYTES); /* n + 1 of them */
    product_times(&starts, SYM_SEQS, 1);
    e->key_starts = is_packed(e) ? 1 + add_buffer(out, e, starts) : 0;
}

static void add_place(struct params *p, const char *type, const char *name, const struct place *at)
{
    static const char *const stride[] = {"b", "h", "t"};
    const struct product none = product_of(0);
    if (at) {
        emit_place_pointer(p, type, name, at);
        emit_place_strides(p, name, at);
        return;
    }
    params_null(p, type, name);
    for (int d = 0; d < 3; d++) {
        char member[32];
        snprintf(member, sizeof member, "%s_%s", name, stride[d]);
        params_product(p, member, &none);
    }
}

static void add_buffer_pointer(struct params *p, const char *name, int buffer)
{
    if (buffer < 0)
        params_null(p, "int", name);
    else
        params_pointer(p, "int", name, PARAM_WORK_DATA, buffer);
}

void emit_page_params(struct emitter *e, const struct layout *l, const struct page_gradients *g,
                      struct launch *launch)
{
    static const char *const stride[] = {"b", "step"};
    const struct product fill = product_of(e->sig->backward);
    const bool own_v = !e->w->v_is_k;
    struct params p;
    params_open_once(&p, e, launch, "page_params");
    add_place(&p, "const void", "k", &l->outer[TENSOR_K]);
    add_place(&p, "const void", "v", own_v ? &l->outer[TENSOR_V] : NULL);
    add_place(&p, "void", "k_rows", &l->inner[TENSOR_K]);
    add_place(&p, "void", "v_rows", own_v ? &l->inner[TENSOR_V] : NULL);
    add_place(&p, "const float", "dk_rows", g->dk_rows);
    add_place(&p, "const float", "dv_rows", g->dv_rows);
    add_place(&p, "void", "dk", g->dk);
    add_place(&p, "void", "dv", g->dv);
    const int pages = lathe__arg_find(e->sig, "pages", 0);
    params_pointer(&p, "const int", "pages", PARAM_ARG_DATA, pages);
    params_strides(&p, "pages", stride, pages, 2, 0);
    params_list(&p, e->sig, "used_kv");
    add_buffer_pointer(&p, "first", g->first);
    add_buffer_pointer(&p, "next", g->next);
    add_buffer_pointer(&p, "starts", e->key_starts - 1);
    params_product(&p, "fill", &fill);
    params_sym(&p, "n_b", SYM_SEQS);
    params_sym(&p, "n_h", SYM_H_KV);
    params_sym(&p, "room", SYM_KV);
    params_sym(&p, "page", SYM_PAGE);
    params_sym(&p, "most_pages", SYM_MOST);
    params_sym(&p, "n_pages", SYM_POOL);
    params_close(&p, "page_params");
}

void emit_pages_in(struct emitter *e, const struct layout *l, const struct page_gradients *g,
                   struct source *out)
{
    struct launch *launch = add_launch(out, e, "pages_in", PAGE_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_SEQS, 1);
    product_times(&launch->grid, SYM_H_KV, 1);
    product_times(&launch->grid, SYM_KV, PAGE_TOKENS);
    emit_page_params(e, l, g, launch);
}
