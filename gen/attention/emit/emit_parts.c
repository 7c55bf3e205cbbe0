/*
 * emit_parts.c: attention whose rows are cut by keys (attention/decode.cuh). In: a lowered spec with its
 * `combine`, a plan. Out: of struct variant, how row states of parts become one; the two launches, and the
 * buffers between them.
 */
#include "gen/arguments/signature.h"
#include "gen/attention/emit/emit.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { MERGE_THREADS = 128 }; /* attention/decode.cuh */

/* ---- struct merge ---------------------------------------------------------------------------------------
 */

/* In a function of a part the part's states have names; of all parts, what is reduced in earlier passes. */
static void name_merge(const struct attention *a, const struct phases *p, int pass)
{
    struct emitter *e = a->e;
    char text[NODE_NAME_BYTES];
    scope_clear(e);
    for (int k = 0; k < e->w->n_states; k++) {
        snprintf(text, sizeof text, "s.s%d", k);
        scope_param(e, LEAF_SPLIT_STATE + k, text);
    }
    for (int i = 0; i < p->n; i++)
        if (p->pass[i] < pass)
            scope_set(e, p->node[i], "t.red[%d]", i);
}

static void emit_operands(const struct attention *a, const struct phases *p)
{
    struct emitter *e = a->e;
    text_add(e->out,
             "        template <int R> DEV float operand(const state &s, const merge &t, const inputs &x, "
             "const sizes &z)\n        {\n");
    for (int i = 0; i < p->n; i++) {
        text_add(e->out, "        if constexpr (R == %d) {\n", i);
        name_merge(a, p, p->pass[i]);
        emit_return(e, e->w->node[p->node[i]].arg[0], NULL);
        text_add(e->out, "        }\n");
    }
    text_add(e->out, "        return 0.0f;\n        }\n");
}

/* Of a part: the factor of its o. Of all: their states. */
static void emit_merged(const struct attention *a, const struct phases *p)
{
    struct emitter *e = a->e;
    const struct ir_fn *fn = &e->w->combine;
    char text[128];
    text_add(e->out,
             "        DEV float factor(const state &s, const merge &t, const inputs &x, const sizes &z)\n"
             "        {\n");
    name_merge(a, p, p->passes);
    emit_return(e, fn->root[0], NULL);
    text_add(e->out, "        }\n        DEV state merged(const merge &t, const inputs &x, const sizes &z)\n"
                     "        {\n        state s;\n");
    name_merge(a, p, p->passes);
    emit_values(e, fn->root + 1, fn->n_roots - 1);
    for (int k = 0; k < e->w->n_states; k++)
        text_add(e->out, "        s.s%d = %s;\n", k, node_text(e, fn->root[1 + k], text, sizeof text));
    text_add(e->out, "        return s;\n        }\n");
}

static void emit_records(const struct attention *a)
{
    struct text_buf *out = a->e->out;
    const int n = a->e->w->n_states;
    text_add(out, "        DEV void write(const state &s, float *to)\n        {\n");
    for (int k = 0; k < n; k++)
        text_add(out, "        to[%d] = s.s%d;\n", k, k);
    text_add(out, "        }\n        DEV state read(const float *from)\n        {\n        state s;\n");
    for (int k = 0; k < n; k++)
        text_add(out, "        s.s%d = from[%d];\n", k, k);
    text_add(out, "        return s;\n        }\n");
}

/* Does the class of a tile differ among the query heads of a key head? */
static bool mask_is_by_head(const struct ir *w)
{
    bool found = false;
    for (int i = 0; i < w->bounds.n_roots; i++)
        found = found || ir_depends_on(w, w->bounds.root[i], OP_AT, AT_H);
    return found;
}

bool emit_row_parts(struct attention *a, const struct plan *plan)
{
    struct emitter *e = a->e;
    struct phases p;
    if (!phases_collect(e, e->w->combine.root, e->w->combine.n_roots, &p))
        return false;
    text_add(e->out, "    static constexpr bool MASK_BY_HEAD = %s;\n    static constexpr int STATES = %d;\n",
             yes(mask_is_by_head(e->w)), e->w->n_states);
    if (plan->attention.own_keys > 0)
        text_add(e->out, "    static constexpr int OWN_KEYS = %d; // of a part, at least\n",
                 plan->attention.own_keys);
    text_add(e->out, "    struct merge { // states of the parts of a row\n");
    phases_declare(e, &p);
    text_add(e->out, "        float red[%d];\n", p.n > 0 ? p.n : 1);
    emit_operands(a, &p);
    emit_merged(a, &p);
    emit_records(a);
    text_add(e->out, "    };\n");
    return true;
}

/* ---- launches ---------------------------------------------------------------------------------------------
 */

static void times_parts(struct product *p, const struct plan *plan)
{
    const int own = plan->attention.own_keys;
    p->factor[p->n].sym = own > 0                      ? FACTOR_OWN_KEY_PARTS
                          : plan->attention.parts_even ? FACTOR_EVEN_KEY_PARTS
                                                       : FACTOR_KEY_PARTS;
    p->factor[p->n].tile = own > 0 ? own : plan->attention.part_blocks;
    p->factor[p->n++].plus = (uint8_t)plan->attention.bm;
}

/* So many floats of each row and part. */
static struct product floats_of_parts(const struct plan *plan, int floats)
{
    struct product p = product_of(4 * (int64_t)floats);
    product_times(&p, SYM_B, 1);
    product_times(&p, SYM_H, 1);
    product_times(&p, SYM_Q, 1);
    times_parts(&p, plan);
    return p;
}

static void add_params(const struct launcher *a, const struct layout *l, const struct plan *plan,
                       struct launch *launch, const int buffer[2])
{
    struct product parts = product_of(1);
    struct params p;
    times_parts(&parts, plan);
    params_open(&p, a->e->out, launch, "attention_params");
    params_tensors(&p, a, l);
    params_null(&p, "const unsigned char", "map");
    params_pointer(&p, "float", "part_o", PARAM_WORK_DATA, buffer[0]);
    params_pointer(&p, "float", "part_rows", PARAM_WORK_DATA, buffer[1]);
    params_product(&p, "parts", &parts);
    params_end(&p, a, l, plan);
    params_close(&p, "attention_params");
}

void add_parts(const struct launcher *a, const struct layout *l, const struct plan *plan, struct source *out,
               struct text_buf *again)
{
    const int buffer[2] = {
        add_buffer(out, a->e, floats_of_parts(plan, attention_row(a->e->problem->dim[SYM_D_V]))),
        add_buffer(out, a->e, floats_of_parts(plan, a->e->w->n_states + 1))};
    struct launch *decode = add_launch(out, a->e, "decode", plan->attention.warps * 32);
    decode->smem_bytes = plan->attention.smem_bytes;
    decode->grid = product_of(1);
    product_times(&decode->grid, SYM_B, 1);
    product_times(&decode->grid, SYM_H_KV, 1);
    decode->grid.factor[decode->grid.n].sym = FACTOR_ROW_TILES;
    decode->grid.factor[decode->grid.n].tile = 1;
    decode->grid.factor[decode->grid.n++].plus = (uint8_t)plan->attention.bm;
    times_parts(&decode->grid, plan);
    add_params(a, l, plan, decode, buffer);
    struct launch *merge = add_launch(out, a->e, "merge", MERGE_THREADS);
    merge->grid = product_of(1);
    product_times(&merge->grid, SYM_B, 1);
    product_times(&merge->grid, SYM_H, 1);
    product_times(&merge->grid, SYM_Q, 1);
    merge->early = true;
    struct text_buf *const text = a->e->out;
    a->e->out = again;
    add_params(a, l, plan, merge, buffer);
    a->e->out = text;
}
