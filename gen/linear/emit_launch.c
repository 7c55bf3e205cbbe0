/*
 * emit_launch.c: parameter structs and launch recipe of linear attention. In: a lowered spec, a plan. Out:
 * the structs as text, and the launches in order: query, key and value mods, the kernel, output mod; only
 * those that the problem needs. Tensors that a mod or their alignment moves live in the workspace in between.
 */
#include "gen/linear/columns.h"
#include "gen/linear/emit.h"
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
    params_row(p, PARAM_ARG_DATA, cu, 0, 8);
    params_row(p, PARAM_ARG_STRIDE, cu, 0, 8);
    params_row(p, PARAM_SYM, SYM_SEQS, 0, 4);
    if (text)
        text_add(p->out,
                 "    const %s *value;\n    long long value_b, value_h, value_t, value_d;\n"
                 "    const int *cu;\n    long long cu_step;\n    int seqs;\n",
                 element_type(e->problem->dtype[DTYPE_V]));
}

void linear_pointer(struct params *p, const char *type, const char *name, const struct place *t)
{
    params_pointer(p, type, name, t->arg >= 0 ? PARAM_ARG_DATA : PARAM_WORK_DATA,
                   t->arg >= 0 ? t->arg : t->buffer);
}

void linear_strides(struct params *p, const char *name, const struct place *t)
{
    if (t->arg >= 0) {
        params_strides(p, name, BHT, t->arg, 3, 0);
        return;
    }
    for (int d = 0; d < 3; d++) {
        char member[32];
        struct product stride = product_of(t->dim);
        if (d < 2)
            product_times(&stride, SYM_T, 1);
        if (d < 1)
            product_times(&stride, t->heads, 1);
        snprintf(member, sizeof member, "%s_%s", name, BHT[d]);
        params_product(p, member, &stride);
    }
}

void linear_to_workspace(struct place *t, int element_bytes, const struct emitter *e, struct source *out)
{
    struct product bytes = product_of((int64_t)t->dim * element_bytes);
    product_times(&bytes, SYM_B, 1);
    product_times(&bytes, t->heads, 1);
    product_times(&bytes, SYM_T, 1);
    t->arg = -1;
    t->buffer = add_buffer(out, e, bytes);
}

/* A key that its mod makes of nothing but inputs is no argument, or is left out. */
static bool is_absent(const struct emitter *e, const struct place *t)
{
    return t->arg < 0 || !problem_has(e->problem, t->arg);
}

void linear_layout(struct emitter *e, struct layout *l, int n, struct source *out)
{
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const bool value = t == TENSOR_V || t == TENSOR_O;
        const bool mod = e->w->mod[t].n_stages > 0;
        l->outer[t] = (struct place){lathe__arg_find(e->sig, NAME[t], 0), -1, value ? SYM_H : SYM_H_K,
                                     (int)e->problem->dim[value ? SYM_D_V : SYM_D]};
        l->inner[t] = l->outer[t];
        l->prepared[t] = false;
        l->moved[t] = t < n && (mod || (t != TENSOR_O && arg_in(e->problem->unaligned, l->outer[t].arg)));
        if (l->moved[t])
            linear_to_workspace(&l->inner[t],
                                t == TENSOR_O && mod ? 4 : lathe__element_bytes(e->problem, tensor_role(t)),
                                e, out);
    }
    if (is_absent(e, &l->outer[TENSOR_K])) /* something of its shape is read and goes unused */
        l->outer[TENSOR_K] = l->outer[TENSOR_Q];
}

bool linear_has_unaligned_rows(const struct emitter *e)
{
    bool any = false;
    for (int t = 0; t < TENSOR_O; t++)
        any |= arg_in(e->problem->unaligned, lathe__arg_find(e->sig, NAME[t], 0));
    return any;
}

/* From one element of a row to the next. */
void linear_element_step(struct params *p, const char *name, const struct place *t)
{
    static const char *const step[] = {"d"};
    const struct product one = product_of(1);
    char member[32];
    snprintf(member, sizeof member, "%s_d", name);
    if (t->arg >= 0)
        params_strides(p, name, step, t->arg, 1, 3);
    else
        params_product(p, member, &one);
}

/* One struct mod_params serves all mods; the rows differ. */
void linear_add_mod(struct emitter *e, const struct layout *l, int t, struct source *out,
                    struct text_buf *text)
{
    static const char *const role[] = {"mod_q", "mod_k", "mod_v", "mod_o"};
    const struct place *from = t == TENSOR_O ? &l->inner[t] : &l->outer[t];
    const struct place *to = t == TENSOR_O ? &l->outer[t] : &l->inner[t];
    struct launch *launch = add_launch(out, e, role[t], MOD_BLOCK_THREADS);
    struct params p;
    launch->grid = product_of(1);
    product_times(&launch->grid, SYM_B, 1);
    product_times(&launch->grid, from->heads, 1);
    product_times(&launch->grid, SYM_T, MOD_BLOCK_TOKENS);
    params_open(&p, text, launch, "mod_params");
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
    params_close(&p, "mod_params");
}

/* A state, or a gradient of one: [seqs or slots, h, d, d_v], and the sum of keys, without d_v. prefix: "const
   " of what is read. */
void linear_state(struct params *p, const struct emitter *e, const char *prefix, const char *name, int dims)
{
    char type[32];
    static const char *const suffix[] = {"b", "h", "i", "j"};
    const int arg = lathe__arg_find(e->sig, name, 0);
    snprintf(type, sizeof type, "%s%s", prefix, element_type(e->problem->dtype[DTYPE_STATE]));
    if (arg >= 0) {
        params_pointer(p, type, name, PARAM_ARG_DATA, arg);
        params_strides(p, name, suffix, arg, dims, 0);
        return;
    }
    params_null(p, type, name);
    for (int d = 0; d < dims; d++) {
        char member[NAME_MAX_BYTES];
        const struct product none = product_of(0);
        snprintf(member, sizeof member, "%s_%s", name, suffix[d]);
        params_product(p, member, &none);
    }
}

void linear_index(struct params *p, const struct emitter *e, const char *name)
{
    static const char *const suffix = "step";
    const struct product none = product_of(0);
    char member[NAME_MAX_BYTES];
    const int arg = lathe__arg_find(e->sig, name, 0);
    if (arg >= 0)
        params_pointer(p, "const int", name, PARAM_ARG_DATA, arg);
    else
        params_null(p, "const int", name);
    snprintf(member, sizeof member, "%s_step", name);
    if (arg >= 0)
        params_strides(p, name, &suffix, arg, 1, 0);
    else
        params_product(p, member, &none);
}

static bool is_prepared(const struct layout *l)
{
    return l->prepared[TENSOR_Q] || l->prepared[TENSOR_K];
}

/* q or k as it was given, where linear/delta_prepare.cuh applies its mod. */
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

struct beside { /* buffers of the recurrence; -1: there is none */
    int inverse, parts;
    int pieces; /* of a sequence, in this launch */
};

/* linear_params, of every kernel of the recurrence. */
static void add_params(struct emitter *e, struct launch *launch, const struct layout *l,
                       const struct plan *plan, const struct beside *beside, struct text_buf *text)
{
    struct params p;
    params_open(&p, text, launch, "linear_params");
    for (int t = 0; t < TENSOR_COUNT; t++)
        linear_pointer(&p, t == TENSOR_O ? "void" : "const void", NAME[t], &l->inner[t]);
    for (int t = 0; t < TENSOR_COUNT; t++)
        linear_strides(&p, NAME[t], &l->inner[t]);
    linear_state(&p, e, "const ", "state", 4);
    linear_state(&p, e, "", "state_out", 4);
    linear_state(&p, e, "const ", "norm", 3);
    linear_state(&p, e, "", "norm_out", 3);
    linear_index(&p, e, "cu");
    linear_index(&p, e, "state_index");
    params_sym(&p, "slots", SYM_SLOTS);
    if (beside->inverse >= 0)
        params_pointer(&p, "void", "inverse", PARAM_WORK_DATA, beside->inverse);
    else if (plan->linear.way != LINEAR_RECURRENT)
        params_null(&p, "void", "inverse");
    for (int t = TENSOR_Q; t <= TENSOR_K && is_prepared(l); t++)
        linear_given(&p, l, t);
    if (beside->parts >= 0) {
        const struct product pieces = product_of(beside->pieces);
        params_pointer(&p, "float", "parts", PARAM_WORK_DATA, beside->parts);
        params_product(&p, "pieces", &pieces);
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

/* One kernel of the recurrence. */
static struct launch *add_kernel(struct emitter *e, const struct layout *l, const struct plan *plan,
                                 const char *role, int slices, const struct beside *beside,
                                 struct source *out, struct text_buf *text)
{
    struct launch *launch = add_launch(out, e, role, 32 * plan->linear.warps);
    launch->grid = product_of(slices);
    product_times(&launch->grid, SYM_SEQS, 1);
    product_times(&launch->grid, SYM_H, 1);
    add_params(e, launch, l, plan, beside, text);
    return launch;
}

static void only_where(struct launch *launch, enum sym size, int32_t least, int32_t most)
{
    launch->when = (uint8_t)size;
    launch->least = least;
    launch->most = most;
}

/* Of pieces of few long sequences. */
static struct launch *add_of_pieces(struct emitter *e, const struct layout *l, const struct plan *plan,
                                    const char *role, int slices, const struct beside *beside,
                                    struct source *out, struct text_buf *again)
{
    const struct linear_plan *to = &plan->linear;
    struct launch *launch = add_kernel(e, l, plan, role, slices, beside, out, again);
    launch->grid.scale *= to->pieces;
    launch->grid_limit = to->piece_blocks / to->chunk_slices * slices;
    launch->threads = to->chunk_threads;
    launch->smem_bytes = to->smem_bytes;
    only_where(launch, SYM_T, to->pieces_from, INT32_MAX);
    return launch;
}

/* Of a whole sequence a block; or of a piece, behind what each piece adds to the state. With the delta rule a
   piece also has a matrix by which it multiplies what was there, and a scan gives all first states. */
static void add_pieces(struct emitter *e, const struct layout *l, const struct plan *plan,
                       struct beside beside, struct source *out, struct text_buf *again)
{
    enum { SCAN_THREADS = 512, SCAN_COLUMNS = 8 }; /* linear/delta_sm90.cuh */
    const struct linear_plan *to = &plan->linear;
    const int columns = LINEAR_CHUNK * to->groups;
    const int pad = round_up(e->problem->dim[SYM_D], LINEAR_CHUNK);
    const int matrix = columns > 0 ? (pad + columns - 1) / columns : 0;
    beside.pieces = to->pieces;
    (void)add_of_pieces(e, l, plan, "states", to->chunk_slices + matrix, &beside, out, again);
    if (matrix > 0) {
        struct launch *scan =
            add_kernel(e, l, plan, "scan", to->chunk_slices * columns / SCAN_COLUMNS, &beside, out, again);
        scan->threads = SCAN_THREADS;
        scan->smem_bytes = 4 * SCAN_COLUMNS * (pad + SCAN_THREADS);
        only_where(scan, SYM_T, to->pieces_from, INT32_MAX);
    }
    (void)add_of_pieces(e, l, plan, "chunks", to->chunk_slices, &beside, out, again);
}

/* part_layout of linear/additive_tiles.cuh: of the blocks that there are at most, and one a sequence. */
static int add_part_buffer(const struct emitter *e, const struct linear_plan *to, struct source *out)
{
    struct product bytes = product_of((int64_t)to->part_bytes * (to->pieces + 1) * to->chunk_slices);
    product_times(&bytes, SYM_SEQS, 1);
    product_times(&bytes, SYM_H, 1);
    const int buffer = add_buffer(out, e, bytes);
    out->buffer[buffer].most = product_of(2ll * to->part_bytes * to->piece_blocks);
    return buffer;
}

enum { FEW = 16 }; /* tokens that are taken one by one where others are taken by chunks */

/* By chunks, but one by one where tokens are few; with the delta rule what chunks need is made in front of
 * them. */
static void add_by_chunk(struct emitter *e, const struct layout *l, const struct plan *plan,
                         struct source *out, struct text_buf *again)
{
    const struct linear_plan *to = &plan->linear;
    struct beside beside = {-1, -1, 1};
    struct launch *launch = NULL;
    if (to->inverse > 0)
        beside.inverse = add_buffer(out, e, linear_chunks(e, to->chunk_bytes, SYM_H));
    if (to->pieces > 0)
        beside.parts = add_part_buffer(e, to, out);
    only_where(add_kernel(e, l, plan, "fwd", to->slices, &beside, out, e->out), SYM_T, 0, FEW);
    if (to->inverse > 0) {
        launch =
            add_kernel(e, l, plan, to->way == LINEAR_KEYED_DELTA || is_prepared(l) ? "prepare" : "inverse",
                       to->slices, &beside, out, again);
        launch->grid = linear_chunks(e, 1, SYM_H);
        launch->smem_bytes = to->inverse;
        only_where(launch, SYM_T, FEW + 1, INT32_MAX);
    }
    if (to->pieces > 0)
        add_pieces(e, l, plan, beside, out, again);
    launch = add_kernel(e, l, plan, "chunks", to->chunk_slices, &beside, out, again);
    launch->threads = to->chunk_threads;
    launch->smem_bytes = to->smem_bytes;
    only_where(launch, SYM_T, FEW + 1, INT32_MAX);
}

static void add_recurrence(struct emitter *e, const struct layout *l, const struct plan *plan,
                           struct source *out)
{
    struct text_buf again = {0}; /* the struct is declared already */
    const struct beside none = {-1, -1, 1};
    if (plan->linear.way != LINEAR_RECURRENT)
        add_by_chunk(e, l, plan, out, &again);
    else
        (void)add_kernel(e, l, plan, "fwd", plan->linear.slices, &none, out, e->out);
    text_fail_with(e->out, &again);
    text_free(&again);
}

void linear_choose_prepared(const struct emitter *e, const struct plan *plan, struct layout *l)
{
    const struct linear_plan *to = &plan->linear;
    for (int t = TENSOR_Q; t <= TENSOR_K; t++)
        l->prepared[t] = to->inverse > 0 && to->way != LINEAR_KEYED_DELTA && e->w->mod[t].n_stages > 0 &&
                         !arg_in(e->problem->unaligned, l->outer[t].arg);
}

void emit_linear_launches(struct emitter *e, const struct plan *plan, struct source *out,
                          bool moved[MOD_COUNT])
{
    struct layout l;
    struct text_buf again = {0}; /* structs that are declared already */
    bool declared = false;
    linear_layout(e, &l, TENSOR_COUNT, out);
    linear_choose_prepared(e, plan, &l);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        moved[t] = l.moved[t];
        if (t == TENSOR_O)
            add_recurrence(e, &l, plan, out);
        if (!l.moved[t])
            continue;
        linear_add_mod(e, &l, t, out, declared ? &again : e->out);
        if (l.prepared[t])
            only_where(&out->launch[out->n_launches - 1], SYM_T, 0, FEW);
        declared = true;
    }
    text_fail_with(e->out, &again);
    text_free(&again);
}
