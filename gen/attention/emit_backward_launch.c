/*
 * emit_backward_launch.c: parameter structs and launch recipe of attention's backward pass. In: lowered
 * formulas, a plan. Out: the structs as text, and the launches in the order of templates/README.md, only
 * those that the problem needs. What kernels hand to each other lives in the workspace.
 */
#include "gen/attention/emit_back_recipe.h"
#include "gen/arguments/problem.h"
#include "runtime/recipe/recipe.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"

#include <stdio.h>

enum { /* of the templates that they are named after */
       BACK_MOD_THREADS = 256,
       BACK_MOD_TOKENS = 64,
       BACK_PRE_THREADS = 256,
       BACK_PRE_ROWS = 64,
       EXACT_SUM_BYTES = 48,
       LIST_RANGE = 1024,
       LIST_THREADS = 1024,
       LIST_WORD_BYTES = 4,
       LOADER_THREADS = 128,
       MOST_PIECES = 16,
       PART_TILES = 32,
       SUMS_THREADS = 128,
       SUMS_ROWS = 64,
       SUMS_KEYS = 32,
       SPLIT_TABLE_BYTES = 4 * 4 * (16 + 32)
};

static const char *const GRADIENT[] = {"dq", "dk", "dv", "do"};

/* ---- what is wanted ---------------------------------------------------------------------------------- */

static int n_mod_sites(const struct emitter *e, enum mod which)
{
    int n = 0;
    for (int s = 0; s < e->w->mod[which].n_stages; s++)
        n += e->back->stage[which][s].site.n;
    return n;
}

bool gradient_wanted(const struct emitter *e, enum mod which)
{
    if (which == MOD_VALUE && e->w->v_is_k)
        return gradient_wanted(e, MOD_KEY); /* it is a part of it */
    const int arg = lathe__arg_find(e->sig, GRADIENT[which], 0);
    const int second =
        e->w->qk2 && which < MOD_VALUE ? lathe__arg_find(e->sig, which == MOD_QUERY ? "dq2" : "dk2", 0) : -1;
    return arg_in(e->problem->present, arg) || arg_in(e->problem->present, second) ||
           n_mod_sites(e, which) > 0;
}

bool gradient_in_floats(const struct emitter *e, const struct plan *plan, enum mod which)
{
    const struct back_plan *back = &plan->attention.back;
    return e->w->mod[which].n_stages > 0 || back->slices || back->selected || is_odd_row(e, (int)which);
}

bool back_mod_runs(const struct emitter *e, const struct plan *plan, enum mod which)
{
    if (which == MOD_OUTPUT)
        return e->w->mod[which].n_stages > 0;
    if (which == MOD_VALUE && e->w->v_is_k)
        return false;
    return gradient_wanted(e, which) && (which == MOD_QUERY || gradient_in_floats(e, plan, which));
}

/* ---- where everything lives ---------------------------------------------------------------------------- */

static int add_zeroed(struct recipe *r, struct product bytes)
{
    const int buffer = add_buffer(r->out, r->a.e, bytes);
    r->out->buffer[buffer].zero = true;
    return buffer;
}

static struct product query_tiles(const struct recipe *r, int64_t scale)
{
    struct product p = product_of(scale);
    emit_times_tiles(&p, r->a.e, SYM_H, SYM_Q, r->plan->attention.back.bm);
    return p;
}

static void place_gradients(struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const struct back_plan *plan = &r->plan->attention.back;
    for (int t = 0; t < TENSOR_O; t++) {
        r->result[t] = r->forward.outer[t];
        r->result[t].arg = lathe__arg_find(e->sig, GRADIENT[t], 0);
        if (gradient_wanted(e, (enum mod)t) && is_copied_pair(&r->a, t))
            emit_place_in_workspace(&r->result[t], (int)lathe_dtype_size(e->problem->dtype), e, r->out);
        r->grad[t] = r->result[t];
        if (!gradient_wanted(e, (enum mod)t))
            continue;
        if (t == TENSOR_Q) {
            r->grad[t].arg = -1;
            const struct product bytes = query_tiles(r, 4ll * plan->bm * plan->dk);
            r->grad[t].buffer = plan->dq_stored ? add_buffer(r->out, e, bytes) : add_zeroed(r, bytes);
        } else if (t == TENSOR_V && e->w->v_is_k) {
            r->grad[t] = r->grad[TENSOR_K];
        } else if (gradient_in_floats(e, r->plan, (enum mod)t)) {
            r->grad[t].dim = r->forward.inner[t].dim;
            emit_place_in_workspace(&r->grad[t], 4, e, r->out);
            r->out->buffer[r->grad[t].buffer].zero = plan->slices || plan->selected;
        }
    }
}

static void place_everything(struct recipe *r)
{
    struct emitter *e = r->a.e;
    struct layout *l = &r->forward;
    const struct back_plan *plan = &r->plan->attention.back;
    const bool mod = e->w->mod[MOD_OUTPUT].n_stages > 0;
    r->dout = l->outer[TENSOR_O];
    r->dout.arg = lathe__arg_find(e->sig, "do", 0);
    r->dout.dim = l->inner[TENSOR_O].dim;
    if (mod || is_odd_row(e, TENSOR_O) || arg_in(e->problem->unaligned, r->dout.arg))
        emit_place_in_workspace(&r->dout, (int)lathe_dtype_size(e->problem->dtype), e, r->out);
    if (r->plan->attention.back.forward) {
        emit_place_in_workspace(&l->inner[TENSOR_O], 4, e, r->out);
        for (int k = 0; k < e->w->n_finals; k++)
            emit_place_in_workspace(&l->final[k], 4, e, r->out);
    }
    const int64_t bm = r->plan->attention.back.bm;
    const int64_t norms = back_has_norm(e) ? 4 * bm + back_record_bytes(&r->plan->attention.back) : 0;
    if (r->rows_floats > 0 || norms > 0)
        r->rows = add_buffer(r->out, e, query_tiles(r, 4 * r->rows_floats * bm + norms));
    for (int k = 0; k < e->back->n_sums; k++) {
        r->sums[k] = (struct place){-1, -1, SYM_H, SYM_Q, 1, false};
        emit_place_in_workspace(&r->sums[k], 4, e, r->out);
    }
    place_gradients(r);
    if (plan->dq_stored && has_sequences(e))
        r->order = add_zeroed(r, query_tiles(r, 3 * 4));
    else if (plan->dq_stored)
        r->order = add_buffer(r->out, e, query_tiles(r, (plan->paired ? 4 : 3) * 4)); /* bwd_pre sets it */
    else if (e->problem->deterministic)
        r->order = add_zeroed(r, query_tiles(r, 2 * 4));
    if (plan->pieces > 0) /* a count for each warp, sums of dk', dv' */
        r->pieces = add_buffer(
            r->out, e,
            product_of((int64_t)plan->pieces * 4 * (plan->warps + plan->bn * (plan->dk + plan->dv))));
    for (int i = 0; i < e->w->n_inputs; i++) {
        struct product bytes = product_of(EXACT_SUM_BYTES);
        r->sum[i] = -1;
        if (!grad_wanted(e, i) || !input_is_exact(e, i))
            continue;
        for (int d = 0; d < e->w->input[i].n_dims; d++)
            product_times_dim(&bytes, &e->w->input[i].dim[d], 1);
        r->sum[i] = add_zeroed(r, bytes);
    }
}

/* ---- launches --------------------------------------------------------------------------------------------
 */

static void optional_pointer(struct params *p, const char *type, const char *name, int buffer)
{
    if (buffer >= 0)
        params_pointer(p, type, name, PARAM_WORK_DATA, buffer);
    else
        params_null(p, type, name);
}

/* Row values that back_row loads: the members that emit_backward.c names. */
static void add_row_values(struct params *p, const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const int n_spec = e->spec->n_finals;
    int saved = n_spec;
    for (int k = 0; k < MAX_STATE; k++) {
        char name[NAME_MAX_BYTES + 2];
        struct place at = r->forward.final[k];
        if (e->back->final[k]) {
            snprintf(name, sizeof name, "final%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (e->back->seed[k]) {
            snprintf(name, sizeof name, "d%s", e->spec->final[k].name);
            at = (struct place){lathe__arg_find(e->sig, name, 0), -1, SYM_H, SYM_Q, 1, false};
            snprintf(name, sizeof name, "dfinal%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (e->back->state[k]) {
            at = r->forward.final[saved++];
            snprintf(name, sizeof name, "state%d", k);
            emit_place_pointer(p, "const float", name, &at);
            emit_place_strides(p, name, &at);
        }
        if (k < e->back->n_sums) {
            snprintf(name, sizeof name, "rowsum%d", k);
            emit_place_pointer(p, "const float", name, &r->sums[k]);
            emit_place_strides(p, name, &r->sums[k]);
        }
    }
}

/* Does bwd_pre copy rows of do to where they are aligned? Of another length they have been copied before. */
static bool pre_copies(const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    return r->dout.arg < 0 && e->w->mod[MOD_OUTPUT].n_stages == 0 && !is_odd_row(e, TENSOR_O);
}

/* do' as it is before bwd_pre copies it. */
static struct place first_dout(const struct recipe *r, bool *copies)
{
    const struct emitter *e = r->a.e;
    *copies = pre_copies(r);
    struct place from = *copies ? r->forward.outer[TENSOR_O] : r->dout;
    if (*copies)
        from.arg = lathe__arg_find(e->sig, "do", 0);
    return from;
}

static bool has_unaligned_do(const struct recipe *r)
{
    return arg_in(r->a.e->problem->unaligned, lathe__arg_find(r->a.e->sig, "do", 0));
}

/* Sums over rows that no product with o gives. */
static void add_row_sums(struct recipe *r)
{
    static const char *const name[] = {"q", "k", "v", "dout"};
    struct emitter *e = r->a.e;
    bool copies;
    const struct place dout = first_dout(r, &copies);
    struct params p;
    const int columns =
        ((int)e->problem->dim[SYM_D] + 15) / 16 * 16 + ((int)e->problem->dim[SYM_D_V] + 15) / 16 * 16;
    struct launch *launch = add_launch(r->out, e, "bwd_rows", SUMS_THREADS);
    launch->smem_bytes =
        (SUMS_ROWS + SUMS_KEYS) * columns *
        (int)lathe_dtype_size(e->problem->dtype); /* row_sums::layout of attention/backward/row_sums.cuh */
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, e, SYM_H, SYM_Q, SUMS_ROWS);
    params_open(&p, e->out, launch, "row_sums_params");
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_pointer(&p, "const void", name[t], t == TENSOR_O ? &dout : &r->forward.inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        emit_place_strides(&p, name[t], t == TENSOR_O ? &dout : &r->forward.inner[t]);
    if (has_unaligned_do(r))
        emit_place_step(&p, "dout", &dout);
    emit_call_sizes(&p, e);
    for (int k = 0; k < MAX_STATE; k++) {
        char member[NAME_MAX_BYTES];
        snprintf(member, sizeof member, "final%d", k);
        if (e->back->sum_final[k]) {
            emit_place_pointer(&p, "const float", member, &r->forward.final[k]);
            emit_place_strides(&p, member, &r->forward.final[k]);
        }
        snprintf(member, sizeof member, "rowsum%d", k);
        if (k < e->back->n_sums) {
            emit_place_pointer(&p, "float", member, &r->sums[k]);
            emit_place_strides(&p, member, &r->sums[k]);
        }
    }
    params_inputs(&p, e, "x");
    if (has_sequences(e)) {
        emit_enter(&p, e);
        emit_enter_operands(e, name, TENSOR_COUNT);
        for (int k = 0; k < MAX_STATE; k++) {
            emit_enter_numbered(e, "final", k, e->back->sum_final[k]);
            emit_enter_numbered(e, "rowsum", k, k < e->back->n_sums);
        }
        emit_enter_end(e);
    }
    params_close(&p, "row_sums_params");
}

/* Rows with large finals go through the online function again. */
static void add_split_operands(struct params *p, const struct recipe *r)
{
    static const char *const name[] = {"q", "k"};
    for (int t = TENSOR_Q; backward_splits(r->a.e->back) && t <= TENSOR_K; t++) {
        emit_place_pointer(p, "const void", name[t], &r->forward.inner[t]);
        emit_place_strides(p, name[t], &r->forward.inner[t]);
    }
}

/* Moves what add_pre() has declared to a sequence. */
static void enter_pre(struct params *p, const struct recipe *r, bool reads_o)
{
    static const char *const name[] = {"q", "k"};
    const struct emitter *e = r->a.e;
    emit_enter(p, e);
    if (reads_o)
        emit_enter_rows(e, r->plan->attention.back.forward ? "const float" : "const cfg::element", "o",
                        false);
    emit_enter_rows(e, "const cfg::element", "dout", false);
    if (backward_splits(e->back))
        emit_enter_operands(e, name, 2);
    for (int k = 0; k < MAX_STATE; k++) {
        emit_enter_numbered(e, "final", k, e->back->final[k]);
        emit_enter_numbered(e, "dfinal", k, e->back->seed[k]);
        emit_enter_numbered(e, "state", k, e->back->state[k]);
        emit_enter_numbered(e, "rowsum", k, k < e->back->n_sums);
    }
    emit_enter_gradients(e);
    emit_enter_end(e);
}

/* runs: else its struct is declared, which back_row() names. */
static void add_pre(struct recipe *r, bool runs)
{
    struct source unused = {0};
    struct emitter *e = r->a.e;
    const bool reads_o = e->back->delta || e->back->row.n > 0;
    bool copies;
    const struct place from = first_dout(r, &copies);
    struct params p;
    struct launch *launch = add_launch(runs ? r->out : &unused, e, "bwd_pre", BACK_PRE_THREADS);
    launch->smem_bytes = backward_splits(e->back) ? SPLIT_TABLE_BYTES : 0;
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, e, SYM_H, SYM_Q, BACK_PRE_ROWS);
    params_open(&p, e->out, launch, "back_pre_params");
    if (reads_o)
        emit_place_pointer(&p, "const void", "o", &r->forward.inner[TENSOR_O]);
    else
        params_null(&p, "const void", "o");
    emit_place_pointer(&p, "const void", "dout", &from);
    add_split_operands(&p, r);
    if (copies)
        emit_place_pointer(&p, "void", "dout_copy", &r->dout);
    else
        params_null(&p, "void", "dout_copy");
    emit_place_strides(&p, "o", &r->forward.inner[TENSOR_O]);
    emit_place_strides(&p, "dout", &from);
    if (has_unaligned_do(r))
        emit_place_step(&p, "dout", &from);
    optional_pointer(&p, "float", "rows", r->rows);
    emit_call_sizes(&p, e);
    if (r->plan->attention.back.dq_stored)
        optional_pointer(&p, "unsigned", "order", r->order);
    if (r->plan->attention.back.pieces > 0)
        optional_pointer(&p, "float", "pieces", r->pieces);
    add_row_values(&p, r);
    params_inputs(&p, e, "x");
    back_add_grads(&p, r);
    if (has_sequences(e))
        enter_pre(&p, r, reads_o);
    params_close(&p, "back_pre_params");
    source_free(&unused);
}

/* Of q', k', v' and do', whose pointers begin the parameters; their strides come behind four pointers more.
   Boxes have a panel's columns (common/wgmma_sm90.cuh) of what one warpgroup works on. */
static void add_map_of(struct launch *launch, const struct params *p, const struct recipe *r, int which)
{
    const struct back_plan *plan = &r->plan->attention.back;
    const bool key = which == TENSOR_K || which == TENSOR_V;
    const bool value = which == TENSOR_V || which == TENSOR_O;
    const int row_bytes = 2 * (value ? plan->dv : plan->dk) / plan->split;
    launch->map[launch->n_maps++] =
        (struct tensor_map_row){.offset = (uint32_t)which * TENSOR_MAP_BYTES,
                                .data = p->before + (uint32_t)which * 8,
                                .strides = p->before + 2 * TENSOR_COUNT * 8 + (uint32_t)which * 24,
                                .columns = (uint16_t)r->a.e->problem->dim[value ? SYM_D_V : SYM_D],
                                .dim = {key ? SYM_KV : SYM_Q, key ? SYM_H_KV : SYM_H, SYM_B},
                                .dtype = (uint8_t)r->a.e->problem->dtype,
                                .packed = has_sequences(r->a.e),
                                .swizzle = row_bytes % 128 == 0  ? 128
                                           : row_bytes % 64 == 0 ? 64
                                                                 : 32,
                                .box_tokens = (uint16_t)(key ? plan->bn : plan->bm)};
}

/* Moves what add_main() has declared to a sequence; rows and dq lie in tiles, and the kernel finds them. */
static void enter_main(struct params *p, const struct recipe *r)
{
    static const char *const in[] = {"q", "k", "v", "dout"};
    static const char *const out[] = {NULL, "dk", "dv"};
    const struct emitter *e = r->a.e;
    emit_enter(p, e);
    emit_enter_operands(e, in, TENSOR_COUNT);
    for (int t = TENSOR_K; t < TENSOR_O; t++)
        if (gradient_wanted(e, (enum mod)t))
            emit_enter_rows(e, gradient_in_floats(e, r->plan, (enum mod)t) ? "float" : "cfg::element", out[t],
                            true);
    emit_enter_gradients(e);
    emit_enter_end(e);
}

/* attention/backward/selected_lists.cuh: of each range of tokens a word for each block of keys, and the
 * lists. */
static void add_lists(struct recipe *r)
{
    struct emitter *e = r->a.e;
    const struct selected_blocks *of = &e->w->selected;
    struct params p;
    struct product ranges = product_of(1);
    emit_times_tiles(&ranges, e, SYM_H_KV, SYM_Q, LIST_RANGE);
    struct product ends = ranges;
    product_times(&ends, SYM_KV, of->keys);
    ends.scale *= LIST_WORD_BYTES;
    struct product tokens = ranges;
    tokens.scale *= (int64_t)LIST_WORD_BYTES * LIST_RANGE * of->n;
    r->map = add_buffer(r->out, e, ends);
    r->tokens = add_buffer(r->out, e, tokens);
    struct launch *launch = add_launch(r->out, e, "bwd_lists", LIST_THREADS);
    launch->grid = ranges;
    launch->kept = true;
    params_open(&p, e->out, launch, "list_params");
    params_pointer(&p, "unsigned", "ends", PARAM_WORK_DATA, r->map);
    params_pointer(&p, "unsigned", "tokens", PARAM_WORK_DATA, r->tokens);
    emit_call_sizes(&p, e);
    params_inputs(&p, e, "x");
    if (has_sequences(e)) {
        emit_enter(&p, e);
        text_add(e->out, "        static_cast<void>(first_q + first_kv);\n");
        emit_enter_end(e);
    }
    params_close(&p, "list_params");
}

/* Has each query head thread blocks of its own? APART of attention/backward/sm80.cuh. */
static bool queries_are_apart(const struct recipe *r)
{
    const struct emitter *e = r->a.e;
    const struct back_plan *plan = &r->plan->attention.back;
    return !plan->wgmma && !plan->slices && !plan->selected && !r->a.map->needed &&
           !e->problem->deterministic && !gradient_wanted(e, MOD_KEY) && !gradient_wanted(e, MOD_VALUE);
}

static void add_main(struct recipe *r)
{
    static const char *const in[] = {"q", "k", "v"};
    static const char *const out[] = {"dq", "dk", "dv"};
    struct emitter *e = r->a.e;
    const struct back_plan *plan = &r->plan->attention.back;
    struct params p;
    struct launch *launch =
        add_launch(r->out, e, "bwd", plan->warps * 32 + (plan->wgmma ? LOADER_THREADS : 0));
    launch->smem_bytes = plan->smem_bytes;
    const int pair = plan->paired ? 2 : 1;
    launch->grid = product_of((plan->pieces > 0 ? MOST_PIECES : 1) * pair);
    const bool apart = queries_are_apart(r);
    emit_times_tiles(&launch->grid, e, apart ? SYM_H : SYM_H_KV, SYM_KV, pair * plan->bn);
    if (apart)
        product_times(&launch->grid, SYM_Q, PART_TILES * plan->bm);
    if (plan->selected)
        product_times(&launch->grid, SYM_Q, LIST_RANGE);
    launch->grid_limit = plan->thread_blocks;
    launch->cluster = plan->paired ? 2 : 0;
    params_open(&p, e->out, launch, "back_params");
    if (plan->wgmma)
        params_behind_maps(&p, TENSOR_COUNT);
    for (int t = 0; t < TENSOR_COUNT && plan->wgmma; t++)
        add_map_of(launch, &p, r, t);
    for (int t = 0; t < TENSOR_O; t++)
        emit_place_pointer(&p, "const void", in[t], &r->forward.inner[t]);
    emit_place_pointer(&p, "const void", "dout", &r->dout);
    optional_pointer(&p, "const float", "rows", r->rows);
    for (int t = 0; t < TENSOR_O; t++) {
        const char *type = t == TENSOR_Q ? "float" : "void";
        if (gradient_wanted(e, (enum mod)t))
            emit_place_pointer(&p, type, out[t], &r->grad[t]);
        else
            params_null(&p, type, out[t]);
    }
    for (int t = 0; t < TENSOR_O; t++)
        emit_place_strides(&p, in[t], &r->forward.inner[t]);
    emit_place_strides(&p, "dout", &r->dout);
    for (int t = TENSOR_K; t < TENSOR_O; t++)
        emit_place_strides(&p, out[t], &r->grad[t]);
    emit_call_sizes(&p, e);
    optional_pointer(&p, "const unsigned char", "map", r->map);
    if (plan->selected)
        optional_pointer(&p, "const unsigned", "tokens", r->tokens);
    optional_pointer(&p, "unsigned", "order", r->order);
    if (plan->wgmma)
        optional_pointer(&p, "float", "pieces", r->pieces);
    params_inputs(&p, e, "x");
    back_add_grads(&p, r);
    if (has_sequences(e))
        enter_main(&p, r);
    params_close(&p, "back_params");
}

/* bwd_q, bwd_k, bwd_v and bwd_o: `src` entered the mod, `grad` is of what left it. */
static void add_back_mod(struct recipe *r, int tensor, const struct place *src, const struct place *grad,
                         const struct place *dst)
{
    static const char *const role[] = {"bwd_q", "bwd_k", "bwd_v", "bwd_o"};
    struct emitter *e = r->a.e;
    struct params p;
    const bool fragments = tensor == TENSOR_Q;
    const bool staged = fragments && !(r->plan->attention.back.wgmma && e->w->mod[tensor].n_stages == 0);
    struct launch *launch = add_launch(r->out, e, role[tensor], BACK_MOD_THREADS);
    if (staged)
        launch->smem_bytes = r->plan->attention.back.bm * (r->plan->attention.back.dk + 8) *
                             4; /* back_q_smem_bytes of attention/backward/mods.cuh */
    launch->grid = product_of(1);
    emit_times_tiles(&launch->grid, e, dst->heads, dst->len,
                     fragments ? r->plan->attention.back.bm : BACK_MOD_TOKENS);
    params_open(&p, r->declared_back ? &r->none : e->out, launch, "back_mod_params");
    if (e->w->mod[tensor].n_stages > 0)
        emit_place_pointer(&p, "const void", "src", src);
    else
        params_null(&p, "const void", "src");
    emit_place_pointer(&p, "const void", "grad", grad);
    emit_place_pointer(&p, "void", "dst", dst);
    optional_pointer(&p, "const unsigned", "order",
                     fragments && r->plan->attention.back.dq_stored ? r->order : -1);
    emit_place_strides(&p, "src", src);
    emit_place_strides(&p, "grad", grad);
    emit_place_strides(&p, "dst", dst);
    if (has_unaligned_rows(e))
        emit_place_step(&p, "src", src);
    if (has_unaligned_do(r))
        emit_place_step(&p, "grad", grad);
    params_sym(&p, "n_h", dst->heads);
    params_sym(&p, "len", dst->len);
    params_start(&p, "pos0", tensor == TENSOR_Q || tensor == TENSOR_O);
    emit_call_sizes(&p, e);
    params_inputs(&p, e, "x");
    back_add_grads(&p, r);
    if (has_sequences(e))
        emit_enter_dq(&p, e, tensor == TENSOR_Q || tensor == TENSOR_O);
    params_close(&p, "back_mod_params");
    r->declared_back = true;
}

/* ---- the pass
 * ---------------------------------------------------------------------------------------------- */

/* attention/backward/mods.cuh names the struct wherever it is included. */
static void declare_mod_params(struct recipe *r)
{
    struct source unused = {0};
    add_mod(&r->a, &r->forward, TENSOR_Q, &unused, r->a.e->out);
    source_free(&unused);
    r->declared_mod = true;
}

static void add_before(struct recipe *r, bool moved[MOD_COUNT])
{
    struct emitter *e = r->a.e;
    struct layout *l = &r->forward;
    const bool mapped = r->a.map->needed;
    back_add_input_kernels(r, false);
    for (int t = 0; t < TENSOR_O; t++) {
        moved[t] = l->moved[t] && !is_copied_pair(&r->a, t);
        if (is_copied_pair(&r->a, t))
            add_pair(&r->a, l, t, r->out, t == TENSOR_Q ? e->out : &r->none);
        if (!moved[t])
            continue;
        add_mod(&r->a, l, t, r->out, r->declared_mod ? &r->none : e->out);
        r->declared_mod = true;
    }
    if (!r->declared_mod)
        declare_mod_params(r);
    moved[MOD_OUTPUT] = e->w->mod[MOD_OUTPUT].n_stages > 0;
    if (!r->plan->attention.back.forward)
        return;
    if (mapped) {
        l->map_buffer = add_map(&r->a, r->plan, r->out);
        r->declared_map = true;
    }
    add_forward(&r->a, l, r->plan, r->out);
}

static void add_after(struct recipe *r)
{
    const struct emitter *e = r->a.e;
    for (int t = 0; t < TENSOR_O; t++)
        if (back_mod_runs(e, r->plan, (enum mod)t))
            add_back_mod(r, t, &r->forward.outer[t], &r->grad[t], &r->result[t]);
    for (int t = 0; t < TENSOR_O; t++)
        if (is_copied_pair(&r->a, t) && gradient_wanted(e, (enum mod)t))
            add_pair_back(&r->a, t, &r->result[t], r->out, &r->none);
    back_add_input_kernels(r, true);
    back_declare_input_params(r);
}

void emit_backward_launches(struct emitter *e, const struct tile_map *map, const struct plan *plan, int rows,
                            struct source *out, bool moved[MOD_COUNT])
{
    struct recipe r = {.a = {e, map, 0},
                       .plan = plan,
                       .out = out,
                       .rows = -1,
                       .order = -1,
                       .map = -1,
                       .tokens = -1,
                       .pieces = -1,
                       .rows_floats = rows};
    struct place dout;
    r.forward.map_buffer = r.forward.counter_buffer = -1;
    emit_grads_struct(e);
    make_layout(&r.a, &r.forward, TENSOR_O, out);
    place_everything(&r);
    add_before(&r, moved);
    dout = r.forward.outer[TENSOR_O];
    dout.arg = lathe__arg_find(e->sig, "do", 0);
    if (e->w->mod[MOD_OUTPUT].n_stages > 0)
        add_back_mod(&r, TENSOR_O, &r.forward.inner[TENSOR_O], &dout, &r.dout);
    if (is_odd_row(e, TENSOR_O))
        add_copy_of_do(&r.a, &dout, &r.dout, out, &r.none);
    if (e->back->n_sums > 0)
        add_row_sums(&r);
    add_pre(&r, rows > 0 || back_has_norm(e) || e->back->row.n > 0 || plan->attention.back.dq_stored ||
                    pre_copies(&r));
    if (map->needed)
        r.map = add_back_map(&r.a, &plan->attention.back, out, r.declared_map ? &r.none : e->out);
    if (plan->attention.back.selected)
        add_lists(&r);
    add_main(&r);
    add_after(&r);
    text_fail_with(e->out, &r.none);
    text_free(&r.none);
}
