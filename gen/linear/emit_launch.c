/*
 * emit_launch.c: parameter structs and launch recipe of linear attention. In: a lowered spec, a plan. Out:
 * the structs as text, and the launches in order: query, key and value mods, the kernel, output mod; only
 * those that the problem needs. Tensors that a mod or their alignment moves live in the workspace in between.
 */
#include "gen/linear/columns.h"
#include "gen/linear/emit.h"
#include "gen/linear/template.h"
#include "gen/arguments/problem.h"
#include "gen/base/text.h"
#include "gen/plan/plan.h"
#include "gen/plan/planner.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { MOD_BLOCK_TOKENS = 64, MOD_BLOCK_THREADS = 256 }; /* heads/vector_mod.cuh */

static const char *const NAME[TENSOR_COUNT] = {"q", "k", "v", "o"};
static const char *const BHT[] = {"b", "h", "t"};

/* Behind the spec's own inputs: v as it was given, which an output mod may read, and where sequences begin.
 */
void emit_linear_inputs(struct params *p, struct emitter *e, bool text)
{
    const int v = lathe__arg_find(e->sig, "v", 0);
    const int cu = lathe__arg_find(e->sig, "cu", 0);
    params_row(p, PARAM_ARG_DATA, v, 0, 8);
    for (int d = 0; d < 4; d++)
        params_row(p, PARAM_ARG_STRIDE, v, d, 8);
    if (e->starts > 0) {
        params_row(p, PARAM_WORK_DATA, e->starts - 1, 0, 8);
        params_row(p, PARAM_PRODUCT, 0, 0, 8)->product = product_of(1);
    } else {
        params_row(p, PARAM_ARG_DATA, cu, 0, 8);
        params_row(p, PARAM_ARG_STRIDE, cu, 0, 8);
    }
    params_row(p, PARAM_SYM, SYM_SEQS, 0, 4);
    if (text)
        text_add(p->out,
                 "    const %s *value;\n    long long value_b, value_h, value_t, value_d;\n"
                 "    const int *cu;\n    long long cu_step;\n    int seqs;\n",
                 element_type(e->problem->dtype[DTYPE_V]));
}

/* A key that its mod makes of nothing but inputs is no argument, or is left out. */
static bool is_absent(const struct emitter *e, const struct place *t)
{
    return t->arg < 0 || !problem_has(e->problem, t->arg);
}

void linear_layout(struct emitter *e, struct layout *l, int n, struct source *out)
{
    updates_starts(e, out);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const bool value = t == TENSOR_V || t == TENSOR_O;
        const bool mod = e->w->mod[t].n_stages > 0;
        l->outer[t] = (struct place){lathe__arg_find(e->sig, NAME[t], 0), -1, value ? SYM_H : SYM_H_K,
                                     (int)e->problem->dim[value ? SYM_D_V : SYM_D]};
        if (t != TENSOR_O && !is_absent(e, &l->outer[t]))
            updates_spread(e, t, &l->outer[t], out);
        if (t == TENSOR_O && n == TENSOR_COUNT)
            updates_leave(e, t, &l->outer[t], out);
        l->inner[t] = l->outer[t];
        l->prepared[t] = false;
        l->moved[t] = t < n && (mod || (t != TENSOR_O && arg_in(e->problem->unaligned, l->outer[t].arg)));
        if (l->moved[t])
            linear_to_workspace(&l->inner[t],
                                t == TENSOR_O && mod ? 4 : lathe__element_bytes(e->problem, tensor_role(t)),
                                e, out);
    }
    if (l->outer[TENSOR_K].buffer < 0 &&
        is_absent(e, &l->outer[TENSOR_K])) /* something of its shape is read and goes unused */
        l->outer[TENSOR_K] = l->outer[TENSOR_Q];
}

bool linear_has_unaligned_rows(const struct emitter *e)
{
    bool any = false;
    for (int t = 0; t < TENSOR_O; t++)
        any |= arg_in(e->problem->unaligned, lathe__arg_find(e->sig, NAME[t], 0));
    return any;
}

/* Is o of tokens behind the last sequence left alone by the output mod? Where tokens are several steps, the
   kernel that takes their rows leaves it. */
static bool ends_early(const struct emitter *e)
{
    return !e->sig->backward && e->w->mod[MOD_OUTPUT].n_stages > 0 && ir_steps(e->spec) == 1 &&
           problem_has(e->problem, lathe__arg_find(e->sig, "cu", 0));
}

/* One struct serves all mods; the rows differ. `launch` NULL: it is declared. */
static void mod_params(struct emitter *e, const struct layout *l, int t, struct launch *launch)
{
    const struct place *from = t == TENSOR_O ? &l->inner[t] : &l->outer[t];
    const struct place *to = t == TENSOR_O ? &l->outer[t] : &l->inner[t];
    struct params p;
    params_open_once(&p, e, launch, "mod_params");
    linear_pointer(&p, "const void", "src", from);
    linear_pointer(&p, "void", "dst", to);
    linear_strides(&p, "src", from);
    linear_strides(&p, "dst", to);
    params_sym(&p, "n_h", from->heads);
    params_sym(&p, "len", SYM_T);
    params_start(&p, "pos0", false);
    params_token_sizes(&p);
    params_inputs(&p, e, "x");
    if (linear_has_unaligned_rows(e))
        linear_element_step(&p, "src", from);
    if (ends_early(e)) {
        linear_index(&p, e, "cu");
        params_sym(&p, "seqs", SYM_SEQS);
    }
    params_close(&p, "mod_params");
}

void linear_declare_mod(struct emitter *e, const struct layout *l)
{
    mod_params(e, l, TENSOR_Q, NULL);
}

void linear_add_mod(struct emitter *e, const struct layout *l, int t, struct source *out)
{
    static const char *const role[] = {"mod_q", "mod_k", "mod_v", "mod_o"};
    const bool packed = t == TENSOR_O && ends_early(e);
    struct launch *launch = add_launch(out, e, packed ? "mod_o_packed" : role[t], MOD_BLOCK_THREADS);
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, (t == TENSOR_O ? l->inner[t] : l->outer[t]).heads, 1);
    product_times(&launch->grid, SYM_T, MOD_BLOCK_TOKENS);
    mod_params(e, l, t, launch);
}

bool linear_is_prepared(const struct layout *l)
{
    return l->prepared[TENSOR_Q] || l->prepared[TENSOR_K];
}

/* q or k as it was given, where a kernel ahead of the chunks applies its mod. */
void linear_given(struct params *p, const struct layout *l, int t)
{
    static const char *const given[] = {"given_q", "given_k"};
    if (l->prepared[t]) {
        linear_pointer(p, "const void", given[t], &l->outer[t]);
        linear_strides(p, given[t], &l->outer[t]);
        return;
    }
    params_null(p, "const void", given[t]);
    for (int d = 0; d < 3; d++) {
        char member[32];
        const struct product none = product_of(0);
        snprintf(member, sizeof member, "%s_%s", given[t], BHT[d]);
        params_product(p, member, &none);
    }
}

/* linear_params, of every kernel of the recurrence. */
static void add_params(const struct forward *f, struct launch *launch)
{
    const struct layout *l = f->l;
    struct emitter *e = f->e;
    struct params p;
    params_open_once(&p, e, launch, "linear_params");
    for (int t = 0; t < TENSOR_COUNT; t++)
        linear_pointer(&p, t == TENSOR_O ? "void" : "const void", NAME[t], &l->inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        linear_strides(&p, NAME[t], &l->inner[t]);
    linear_state_of_slot(&p, e, "const ", "state", 4);
    linear_state_of_slot(&p, e, "", "state_out", 4);
    linear_state_of_slot(&p, e, "const ", "norm", 3);
    linear_state_of_slot(&p, e, "", "norm_out", 3);
    linear_index(&p, e, "cu");
    linear_slots(&p, e);
    linear_kept(&p, e);
    if (f->inside >= 0) {
        const struct product every = product_of(f->plan->row->linear->keeps_every);
        params_pointer(&p, "int", "kept_inside", PARAM_WORK_DATA, f->inside);
        params_product(&p, "kept_each", &every);
    }
    if (f->ahead >= 0)
        params_pointer(&p, "void", "inverse", PARAM_WORK_DATA, f->ahead);
    else if (!f->plan->row->linear->one_by_one)
        params_null(&p, "void", "inverse");
    for (int t = TENSOR_Q; t <= TENSOR_K && linear_is_prepared(l); t++)
        linear_given(&p, l, t);
    if (f->parts >= 0) {
        const struct product pieces = product_of(f->pieces);
        params_pointer(&p, "float", "parts", PARAM_WORK_DATA, f->parts);
        params_product(&p, "pieces", &pieces);
    }
    if (f->cuts >= 0) {
        params_pointer(&p, "float", "tells", PARAM_WORK_DATA, f->tells);
        params_pointer(&p, "int", "cuts", PARAM_WORK_DATA, f->cuts);
    }
    params_token_sizes(&p);
    params_inputs(&p, e, "x");
    params_close(&p, "linear_params");
}

struct product linear_chunks(const struct emitter *e, int64_t scale, enum sym heads)
{
    struct product p = product_of(scale);
    const bool packed = problem_has(e->problem, lathe__arg_find(e->sig, "cu", 0));
    product_times(&p, SYM_B, 1);
    product_times_sum(&p, SYM_T, LINEAR_CHUNK, packed ? SYM_SEQS : SYM_ONE);
    product_times(&p, heads, 1);
    return p;
}

/* ---- stages of a forward pass ----------------------------------------------------------------------------
 */

struct launch *forward_kernel(struct forward *f, const char *role, int slices)
{
    struct launch *launch = add_launch(f->out, f->e, role, 32 * f->plan->linear.warps);
    launch->grid = product_of(slices);
    product_times(&launch->grid, SYM_SEQS, 1);
    product_times(&launch->grid, SYM_H, 1);
    add_params(f, launch);
    return launch;
}

void forward_only_where(struct launch *launch, enum sym size, int32_t least, int32_t most)
{
    launch->when = (uint8_t)size;
    launch->least = least;
    launch->most = most;
}

/* Up to so many tokens go one by one. Of packed sequences a launch knows how many there are together alone:
   where the rest of a batch is not to count, none do. */
static int32_t few_tokens(const struct emitter *e)
{
    const bool packed = problem_has(e->problem, lathe__arg_find(e->sig, "cu", 0));
    return packed && e->problem->deterministic == DETERMINISTIC_BATCH ? -1 : LINEAR_FEW;
}

void forward_few(struct forward *f)
{
    const int32_t most = few_tokens(f->e);
    const char *const role = f->inside >= 0 ? "kept" : "fwd";
    if (most >= 0)
        forward_only_where(forward_kernel(f, role, f->plan->linear.slices), SYM_T, 0, most);
    if (f->inside >= 0)
        forward_only_where(forward_kernel(f, "kept_inside", f->plan->linear.slices), SYM_T, most + 1,
                           INT32_MAX);
}

void forward_place_ahead(struct forward *f)
{
    f->ahead = add_buffer(f->out, f->e, linear_chunks(f->e, f->plan->linear.chunk_bytes, SYM_H));
}

void forward_ahead(struct forward *f, const char *role)
{
    struct launch *launch = forward_kernel(f, role, f->plan->linear.slices);
    launch->grid = linear_chunks(f->e, 1, SYM_H);
    launch->smem_bytes = f->plan->linear.inverse;
    forward_only_where(launch, SYM_T, few_tokens(f->e) + 1, INT32_MAX);
}

void forward_chunks(struct forward *f)
{
    struct launch *launch = forward_kernel(f, "chunks", f->plan->linear.chunk_slices);
    launch->threads = f->plan->linear.chunk_threads;
    launch->smem_bytes = f->plan->linear.smem_bytes;
    forward_only_where(launch, SYM_T, few_tokens(f->e) + 1, INT32_MAX);
}

/* part_layout of linear/additive_tiles.cuh: of the blocks that there are at most, and one a sequence. */
void forward_place_parts(struct forward *f)
{
    enum { LEAST_BYTES = 256 };
    const struct linear_plan *to = &f->plan->linear;
    if (!linear_has_pieces(to)) { /* kernels name it, and do not touch it */
        f->parts = add_buffer(f->out, f->e, product_of(LEAST_BYTES));
        return;
    }
    struct product bytes = product_of((int64_t)to->part_bytes * (to->pieces + 1) * to->chunk_slices);
    product_times(&bytes, SYM_SEQS, 1);
    product_times(&bytes, SYM_H, 1);
    f->parts = add_buffer(f->out, f->e, bytes);
    f->out->buffer[f->parts].most = product_of(2ll * to->part_bytes * to->piece_blocks);
}

/* chunk_tells of linear/delta_inverse.cuh, and a number for each piece of linear/delta_runs.cuh. */
void forward_place_cuts(struct forward *f)
{
    enum { TOLD = 8 };
    struct product pieces = product_of(4ll * f->plan->linear.pieces);
    product_times(&pieces, SYM_SEQS, 1);
    product_times(&pieces, SYM_H, 1);
    f->tells = add_buffer(f->out, f->e, linear_chunks(f->e, 4ll * TOLD, SYM_H));
    f->cuts = add_buffer(f->out, f->e, pieces);
}

bool linear_has_pieces(const struct linear_plan *plan)
{
    return plan->pieces > 1;
}

void linear_config_pieces(struct text_buf *t, const struct linear_plan *plan)
{
    text_add(t, "constexpr int PIECES = %d, PIECES_FROM = %d, PIECE_BLOCKS = %d;\n", plan->pieces,
             plan->pieces_from, plan->piece_blocks);
}

struct launch *forward_of_pieces(struct forward *f, const char *role, int slices)
{
    const struct linear_plan *to = &f->plan->linear;
    struct launch *launch = forward_kernel(f, role, slices);
    launch->grid.scale *= to->pieces;
    launch->grid_limit = to->piece_blocks / to->chunk_slices * slices;
    launch->threads = to->chunk_threads;
    launch->smem_bytes = to->smem_bytes;
    forward_only_where(launch, SYM_T, to->pieces_from, INT32_MAX);
    return launch;
}

/* Are there states behind tokens, which chunks are to leave? */
static bool keeps_by_chunk(const struct emitter *e, const struct plan *plan)
{
    return plan->row->linear->keeps_every > 0 && problem_has_named(e->sig, e->problem, "states_index");
}

/* Where sequences may go token by token, mods have launches of their own. */
void linear_choose_prepared(const struct emitter *e, const struct plan *plan, struct layout *l)
{
    const bool takes = plan->row->linear->takes_mods && !keeps_by_chunk(e, plan);
    for (int t = TENSOR_Q; t <= TENSOR_K; t++)
        l->prepared[t] =
            takes && e->w->mod[t].n_stages > 0 && !arg_in(e->problem->unaligned, l->outer[t].arg);
}

static void place_inside(struct forward *f)
{
    struct product flags = product_of(4);
    product_times(&flags, SYM_SEQS, 1);
    if (keeps_by_chunk(f->e, f->plan))
        f->inside = add_buffer(f->out, f->e, flags);
}

void emit_linear_launches(struct emitter *e, const struct plan *plan, struct source *out,
                          bool moved[MOD_COUNT])
{
    struct layout l;
    struct forward f = {.e = e,
                        .l = &l,
                        .plan = plan,
                        .out = out,
                        .ahead = -1,
                        .parts = -1,
                        .tells = -1,
                        .cuts = -1,
                        .inside = -1,
                        .pieces = 1};
    const struct place o = {lathe__arg_find(e->sig, "o", 0), -1, SYM_H, (int)e->problem->dim[SYM_D_V]};
    linear_layout(e, &l, TENSOR_COUNT, out);
    linear_choose_prepared(e, plan, &l);
    if (plan->row->linear->names_mods)
        linear_declare_mod(e, &l);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        moved[t] = l.moved[t];
        if (t == TENSOR_O) {
            place_inside(&f);
            plan->row->linear->launches(&f);
        }
        if (!l.moved[t])
            continue;
        if (l.prepared[t] && few_tokens(e) < 0) {
            linear_declare_mod(e, &l);
            continue;
        }
        linear_add_mod(e, &l, t, out);
        if (l.prepared[t])
            forward_only_where(&out->launch[out->n_launches - 1], SYM_T, 0, few_tokens(e));
    }
    updates_gather(e, TENSOR_O, &l.outer[TENSOR_O], &o, out);
}
