/*
 * updates.c: tokens that are several steps of the recurrence, for kernels that know one a token: they make
 * several updates of the state, or several heads of q read it, of which the first step is the update and the
 * others read alone. In: a spec, a recipe of one. Out: a spec in which each step is a token; launches that
 * give tensors of tokens a row for each step, and take of those of steps the rows of tokens; a recipe whose
 * tokens are steps.
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/emit.h"
#include "gen/linear/lower.h"

#include <string.h>

enum { COPY_THREADS = 256, COPY_TOKENS = 32 }; /* linear/updates.cuh */

/* ---- the spec ---------------------------------------------------------------------------------------- */

struct fields { /* nodes of at, and what stands for them */
    int from[4], to[4];
};

static void find_fields(struct ir *ir, struct fields *f)
{
    static const int field[] = {AT_T, AT_POS, AT_LEN_T, AT_UPDATE};
    const struct ir_at nowhere = {0, 0};
    const int n = ir_const(ir, ir_steps(ir), TYPE_I32);
    for (int k = 0; k < 4; k++) {
        f->from[k] = ir_at_field(ir, field[k], nowhere);
        f->to[k] = field[k] == AT_UPDATE ? ir2(ir, OP_MOD, f->from[0], n) : ir2(ir, OP_IDIV, f->from[k], n);
    }
}

static void substitute(struct ir *ir, const struct fields *f, struct ir_fn *fn)
{
    for (int r = 0; r < fn->n_roots; r++)
        fn->root[r] = ir_substitute(ir, fn->root[r], f->from, f->to, 4);
}

/* 0 but for a token's first step. */
static void only_first(struct ir *ir, const struct fields *f, struct ir_fn *fn)
{
    const int first = ir->linear.reverse ? ir_steps(ir) - 1 : 0;
    if (fn->n_roots == 0)
        return;
    const int begins = ir2(ir, OP_EQ, f->to[3], ir_const(ir, first, TYPE_I32));
    fn->root[0] = ir3(ir, OP_WHERE, begins, fn->root[0], ir_const(ir, 0, TYPE_F32));
}

/* A key of zeros writes nothing. Without a mod the copy of k has them. */
static void clear_keys(struct ir *ir, const struct fields *f)
{
    struct ir_mod *mod = &ir->mod[MOD_KEY];
    const struct ir_at nowhere = {0, 0};
    if (mod->n_stages == 0)
        return;
    if (mod->stage[mod->n_stages - 1].form != STAGE_ELEMENT) {
        if (mod->n_stages == MAX_STAGES) {
            ir->failed = true;
            return;
        }
        mod->stage[mod->n_stages++] = (struct ir_stage){
            .form = STAGE_ELEMENT, .fn = {.n_roots = 1, .root = {ir_param(ir, LEAF_X, nowhere)}}};
    }
    only_first(ir, f, &mod->stage[mod->n_stages - 1].fn);
}

/* Steps behind a token's first one decay nothing; those that read alone write nothing, either. */
static void limit_to_first(struct ir *ir, const struct fields *f)
{
    only_first(ir, f, &ir->linear.decay);
    if (ir_query_heads(ir) == 1)
        return;
    only_first(ir, f, &ir->linear.delta);
    only_first(ir, f, &ir->linear.reader);
    if (ir->linear.delta.n_roots == 0)
        clear_keys(ir, f);
}

struct ir *linear_by_step(const struct ir *ir)
{
    struct ir *w = ir_clone(ir);
    struct fields f;
    if (!w)
        return NULL;
    find_fields(w, &f);
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < w->mod[m].n_stages; s++)
            substitute(w, &f, &w->mod[m].stage[s].fn);
    substitute(w, &f, &w->scale);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        substitute(w, &f, &w->linear.slot[k]);
    limit_to_first(w, &f);
    if (!w->failed)
        return w;
    ir_free(w);
    return NULL;
}

/* ---- launches ---------------------------------------------------------------------------------------- */

/* updates_params of linear/updates.cuh; `launch` NULL: it is declared. */
static void copy_params(struct emitter *e, struct launch *launch, const struct place *from,
                        const struct place *to)
{
    static const struct product once = {
        .scale = 1, .n = 1, .factor = {{.sym = SYM_T, .tile = 1, .times = 1}}};
    struct params p;
    params_open_once(&p, e, launch, "updates_params");
    linear_pointer(&p, "const void", "src", from);
    linear_pointer(&p, "void", "dst", to);
    linear_strides(&p, "src", from);
    linear_strides(&p, "dst", to);
    linear_element_step(&p, "src", from);
    params_product(&p, "len", &once);
    if (e->starts > 0)
        params_pointer(&p, "const int", "starts", PARAM_WORK_DATA, e->starts - 1);
    else
        params_null(&p, "const int", "starts");
    params_sym(&p, "seqs", SYM_SEQS);
    params_sym(&p, "n_h", from->heads);
    params_close(&p, "updates_params");
}

/* A block for some tokens of each head. */
static void add_copy(struct emitter *e, const char *role, const struct place *from, const struct place *to,
                     struct source *out)
{
    struct launch *launch = add_launch(out, e, role, COPY_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, from->heads, 1);
    product_times(&launch->grid, SYM_T, COPY_TOKENS);
    launch->grid.factor[launch->grid.n - 1].times = 1;
    copy_params(e, launch, from, to);
}

/* Are rows of this tensor of tokens, where kernels have a row for each step? */
static bool is_by_token(const struct emitter *e, int t)
{
    const bool read = t == TENSOR_Q || t == TENSOR_O;
    return ir_query_heads(e->spec) > 1 || (read && ir_updates(e->spec) > 1);
}

void updates_leave(struct emitter *e, int t, struct place *at, struct source *out)
{
    if (is_by_token(e, t))
        linear_to_workspace(at, lathe__element_bytes(e->problem, tensor_role(t)), e, out);
}

void updates_spread(struct emitter *e, int t, struct place *at, struct source *out)
{
    static const char *const role[2][TENSOR_COUNT] = {{"spread_q", NULL, NULL, "spread_do"},
                                                      {"join_q", "spread_k", "spread_v", "join_do"}};
    const struct place given = *at;
    if (!is_by_token(e, t))
        return;
    updates_leave(e, t, at, out);
    add_copy(e, role[ir_query_heads(e->spec) > 1][t], &given, at, out);
}

void updates_gather(struct emitter *e, int t, const struct place *from, const struct place *to,
                    struct source *out)
{
    static const char *const role[2][TENSOR_COUNT] = {{"gather_dq", NULL, NULL, "gather_o"},
                                                      {"split_dq", "gather_dk", "gather_dv", "split_o"}};
    if (is_by_token(e, t))
        add_copy(e, role[ir_query_heads(e->spec) > 1][t], from, to, out);
}

void updates_starts(struct emitter *e, struct source *out)
{
    static const char *const step = "step";
    const int cu = lathe__arg_find(e->sig, "cu", 0);
    struct product bytes =
        product_of(2 * (int64_t)sizeof(int32_t)); /* of one sequence and its end, or more */
    struct params p;
    if (ir_steps(e->spec) == 1 || !problem_has(e->problem, cu))
        return;
    product_times(&bytes, SYM_SEQS, 1);
    e->starts = 1 + add_buffer(out, e, bytes);
    struct launch *launch = add_launch(out, e, "starts", COPY_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_SEQS, COPY_THREADS);
    params_open_once(&p, e, launch, "starts_params");
    params_pointer(&p, "const int", "cu", PARAM_ARG_DATA, cu);
    params_strides(&p, "cu", &step, cu, 1, 0);
    params_pointer(&p, "int", "dst", PARAM_WORK_DATA, e->starts - 1);
    params_sym(&p, "seqs", SYM_SEQS);
    params_close(&p, "starts_params");
}

/* ---- the recipe -------------------------------------------------------------------------------------- */

static void count_product(struct product *p, int steps)
{
    for (int i = 0; i < p->n; i++)
        if (p->factor[i].sym == SYM_T && p->factor[i].times == 0)
            p->factor[i].times = (uint8_t)steps;
}

static void count_params(struct launch *l, int steps)
{
    struct param *row = (struct param *)(uintptr_t)l->param; /* the source's own, until it is used */
    for (int i = 0; i < l->n_params; i++) {
        if (row[i].kind == PARAM_SYM && row[i].arg == SYM_T)
            row[i].dim = (int16_t)steps;
        if (row[i].kind == PARAM_PRODUCT)
            count_product(&row[i].product, steps);
    }
}

/* From `least` steps on are from least / steps tokens on. */
static void count_limits(struct launch *l, int steps)
{
    if (l->when != SYM_T)
        return;
    l->least = l->least > 0 ? (l->least - 1) / steps + 1 : l->least;
    l->most = l->most == INT32_MAX || l->most < 0 ? l->most : l->most / steps;
}

void updates_count(const struct emitter *e, struct source *out)
{
    const int steps = ir_steps(e->spec);
    if (steps == 1)
        return;
    for (int i = 0; i < out->n_launches; i++) {
        count_product(&out->launch[i].grid, steps);
        count_params(&out->launch[i], steps);
        count_limits(&out->launch[i], steps);
    }
    for (int i = 0; i < out->n_buffers; i++) {
        count_product(&out->buffer[i].bytes, steps);
        count_product(&out->buffer[i].most, steps);
    }
}
