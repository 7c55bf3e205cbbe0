/*
 * emit_backward_launch.c: main kernel, lists and mods of attention's backward pass, and the order of all its
 * launches. In: lowered formulas, a plan. Out: parameter structs as text, and the launches in the order of
 * templates/README.md, only those that the problem needs. What kernels hand to each other lives in the
 * workspace.
 */
#include "gen/attention/emit/emit_back_recipe.h"
#include "gen/arguments/problem.h"
#include "runtime/recipe/recipe.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

enum { /* of the templates that they are named after */
       BACK_MOD_THREADS = 256,
       BACK_MOD_TOKENS = 64,
       LIST_RANGE = 1024,
       LIST_THREADS = 1024,
       LIST_WORD_BYTES = 4,
       WARP_THREADS = 32,
       MOST_PIECES = 16,
       PART_TILES = 32
};

/* Of q', k', v' and do', whose pointers begin the parameters; their strides come behind four pointers more.
   Boxes have a panel's columns (common/wgmma_sm90.cuh) of what one warpgroup works on. */
static void add_map_of(struct launch *launch, const struct params *p, const struct recipe *r, int which)
{
    const struct back_plan *plan = &r->plan->attention.back;
    const bool key = which == TENSOR_K || which == TENSOR_V;
    const bool value = which == TENSOR_V || which == TENSOR_O;
    const struct problem *problem = r->a.e->problem;
    const enum dtype_role role = tensor_role(which);
    const int row_bytes = lathe__element_bytes(problem, role) * (value ? plan->dv : plan->dk) / plan->split;
    launch->map[launch->n_maps++] = (struct tensor_map_row){
        .offset = (uint32_t)which * TENSOR_MAP_BYTES,
        .data = p->before + (uint32_t)which * 8,
        .strides = p->before + 2 * TENSOR_COUNT * 8 + (uint32_t)which * 24,
        .columns = (uint16_t)problem->dim[value ? SYM_D_V : SYM_D],
        .dim = {(uint8_t)(key ? keys_of_call(r->a.e) : SYM_Q), key ? SYM_H_KV : SYM_H, SYM_B},
        .dtype = (uint8_t)problem->dtype[role],
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
    static const char *const element[] = {NULL, "cfg::element_k", "cfg::element_v"};
    const struct emitter *e = r->a.e;
    emit_enter(p, e);
    emit_enter_operands(e, in, TENSOR_COUNT);
    for (int t = TENSOR_K; t < TENSOR_O; t++)
        if (gradient_wanted(e, (enum mod)t))
            emit_enter_rows(e, gradient_in_floats(e, r->plan, (enum mod)t) ? "float" : element[t], out[t],
                            true);
    emit_enter_gradients(e);
    emit_enter_end(e);
}

/* attention/backward/selected_lists.cuh: of each range of tokens a word for each block of keys, and the
 * lists. */
static void add_lists(struct recipe *r)
{
    struct emitter *e = r->a.e;
    const struct selected_blocks *of = &e->w->lowered.selected;
    struct params p;
    struct product ranges = product_of(1);
    emit_times_tiles(&ranges, e, SYM_H_KV, SYM_Q, LIST_RANGE);
    struct product ends = ranges;
    product_times(&ends, keys_of_call(e), of->keys);
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
    return r->plan->row->attention->queries_apart && !r->a.map->needed && !e->problem->deterministic &&
           !gradient_wanted(e, MOD_KEY) && !gradient_wanted(e, MOD_VALUE);
}

static void add_main(struct recipe *r)
{
    static const char *const in[] = {"q", "k", "v"};
    static const char *const out[] = {"dq", "dk", "dv"};
    struct emitter *e = r->a.e;
    const struct back_plan *plan = &r->plan->attention.back;
    const struct attention_traits *traits = r->plan->row->attention;
    struct params p;
    struct launch *launch = add_launch(r->out, e, "bwd", (plan->warps + traits->loader_warps) * WARP_THREADS);
    launch->smem_bytes = plan->smem_bytes;
    const int pair = plan->paired ? 2 : 1;
    launch->grid = product_of((plan->pieces > 0 ? MOST_PIECES : 1) * pair);
    const bool apart = queries_are_apart(r);
    if (plan->walks_keys)
        emit_times_tiles(&launch->grid, e, SYM_H, SYM_Q, plan->bm);
    else
        emit_times_tiles(&launch->grid, e, apart ? SYM_H : SYM_H_KV, keys_of_call(e), pair * plan->bn);
    if (apart)
        product_times(&launch->grid, SYM_Q, PART_TILES * plan->bm);
    if (plan->selected)
        product_times(&launch->grid, SYM_Q, LIST_RANGE);
    struct product blocks = launch->grid;
    blocks.scale = 1;
    launch->grid_limit = plan->thread_blocks;
    launch->cluster = plan->paired ? 2 : 0;
    params_open(&p, e->out, launch, "back_params");
    if (traits->tensor_maps)
        params_behind_maps(&p, TENSOR_COUNT);
    for (int t = 0; t < TENSOR_COUNT && traits->tensor_maps; t++)
        add_map_of(launch, &p, r, t);
    for (int t = 0; t < TENSOR_O; t++)
        emit_place_pointer(&p, "const void", in[t], &r->forward.inner[t]);
    emit_place_pointer(&p, "const void", "dout", &r->dout);
    back_optional_pointer(&p, "const float", "rows", r->rows);
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
    back_optional_pointer(&p, "const unsigned char", "map", r->map);
    if (plan->selected)
        back_optional_pointer(&p, "const unsigned", "tokens", r->tokens);
    back_optional_pointer(&p, "unsigned", "order", r->order);
    if (traits->cuts_blocks)
        back_optional_pointer(&p, "float", "pieces", r->pieces);
    if (launch->grid_limit > 0) /* else a grid has them all */
        params_counted(&p, &blocks);
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
    const bool staged =
        fragments && !(r->plan->row->attention->dq_unstaged && e->w->mod[tensor].n_stages == 0);
    struct launch *launch = add_launch(r->out, e, role[tensor], BACK_MOD_THREADS);
    if (staged)
        launch->smem_bytes = r->plan->attention.back.bm * (r->plan->attention.back.dk + 8) *
                             4; /* smem_bytes::bwd_q of attention/backward/mods.cuh */
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
    back_optional_pointer(&p, "const unsigned", "order",
                          fragments && r->plan->attention.back.dq_stored ? r->order : -1);
    emit_place_strides(&p, "src", src);
    emit_place_strides(&p, "grad", grad);
    emit_place_strides(&p, "dst", dst);
    if (has_unaligned_rows(e))
        emit_place_step(&p, "src", src);
    if (back_has_unaligned_do(r))
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
    if (keys_are_gathered(e))
        back_add_pages_in(r);
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
    if (keys_are_gathered(e) && (gradient_wanted(e, MOD_KEY) || gradient_wanted(e, MOD_VALUE)))
        back_add_pages_out(r);
    back_add_input_kernels(r, true);
    back_declare_input_params(r);
}

void emit_backward_launches(struct emitter *e, const struct tile_map *map, const struct plan *plan, int rows,
                            struct source *out, bool moved[MOD_COUNT])
{
    struct recipe r = {.a = {.e = e, .map = map},
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
    back_place_pages(&r);
    make_layout(&r.a, &r.forward, TENSOR_O, out);
    back_place_everything(&r);
    add_before(&r, moved);
    dout = r.forward.outer[TENSOR_O];
    dout.arg = lathe__arg_find(e->sig, "do", 0);
    if (e->w->mod[MOD_OUTPUT].n_stages > 0)
        add_back_mod(&r, TENSOR_O, &r.forward.inner[TENSOR_O], &dout, &r.dout);
    if (is_odd_row(e, TENSOR_O))
        add_copy_of_do(&r.a, &dout, &r.dout, out, &r.none);
    if (e->back->n_sums > 0)
        back_add_row_sums(&r);
    back_add_pre(&r, rows > 0 || back_has_norm(e) || e->back->row.n > 0 || plan->attention.back.dq_stored ||
                         back_pre_copies(&r));
    if (map->needed)
        r.map = add_back_map(&r.a, &plan->attention.back, out, r.declared_map ? &r.none : e->out);
    if (plan->attention.back.selected)
        add_lists(&r);
    add_main(&r);
    add_after(&r);
    text_fail_with(e->out, &r.none);
    text_free(&r.none);
}
