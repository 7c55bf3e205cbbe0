/*
 * signature.c: which arguments a pass of a spec takes, with their shapes as symbols.
 * In: a checked IR. Out: a plain struct that the caller owns; nothing is allocated.
 * Order: tensors of the operator, finals or statistics, the spec's inputs, q_start; the backward pass
 * appends the seeds (do, d<final>) and the gradients (dq, dk, dv, d<input>). Callers find an argument
 * by name, never by position. The bounds of source.h hold every spec that check.c lets through.
 */
#include "kinds.h"
#include "row_pass.h"

#include <stdio.h>
#include <string.h>

static struct sig_arg *add(struct signature *s, enum arg_role role, const char *prefix, const char *name)
{
    if (s->n_args >= MAX_ARGS)
        return NULL;
    struct sig_arg *a = &s->arg[s->n_args++];
    memset(a, 0, sizeof *a);
    snprintf(a->name, sizeof a->name, "%s%.*s", prefix, NAME_MAX_BYTES - 2, name);
    a->role = (uint8_t)role;
    return a;
}

static void set_dims(struct sig_arg *a, const enum sym *syms, int n)
{
    a->ndim = (uint8_t)n;
    for (int i = 0; i < n; i++)
        a->dim[i] = (struct sig_dim){.sym = (uint8_t)syms[i]};
}

/* A tensor of the problem's dtype whose last dim is contiguous. */
static struct sig_arg *add_main(struct signature *s, enum arg_role role, const char *name,
                                const enum sym *syms, int n)
{
    struct sig_arg *a = add(s, role, "", name);
    if (!a)
        return NULL;
    a->problem_dtype = true;
    a->unit_last = true;
    a->optional = role == ROLE_OUT_OPTIONAL;
    set_dims(a, syms, n);
    return a;
}

static void add_f32(struct signature *s, enum arg_role role, const char *prefix, const char *name,
                    const enum sym *syms, int n, bool leading_optional)
{
    struct sig_arg *a = add(s, role, prefix, name);
    if (!a)
        return;
    a->dtype = LATHE_F32;
    a->optional = true;
    a->leading_optional = leading_optional;
    set_dims(a, syms, n);
}

/* Gradients of the finals or statistics, which few losses read. */
static void add_seeds(struct signature *s, const struct ir *ir, const enum sym *syms, bool leading_optional)
{
    for (int i = 0; i < ir->n_finals; i++) {
        add_f32(s, ROLE_IN, "d", ir->final[i].name, syms, 3, leading_optional);
        s->arg[s->n_args - 1].rare = true;
    }
}

static const enum sym ROW_X[] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};
static const enum sym INNER_X[] = {SYM_ROWS0, SYM_ROWS1, SYM_N, SYM_ROWS};

/* The dims of an input, and of its gradient. One by row has the leading dims of x, and rows are dense as x's.
 */
static void set_input_dims(struct sig_arg *a, const struct ir *ir, const struct input *in)
{
    a->ndim = (uint8_t)in->n_dims;
    memcpy(a->dim, in->dim, (size_t)in->n_dims * sizeof in->dim[0]);
    if (in->rows == INPUT_TABLE)
        return;
    a->leading_optional = true;
    a->unit_last = in->rows == INPUT_ROW;
    set_dims(a, in->rows == INPUT_ROW && ir->inner ? INNER_X : ROW_X, in->rows == INPUT_ROW ? 4 : 3);
}

static void add_input(struct signature *s, const struct ir *ir, const struct input *in)
{
    struct sig_arg *a = add(s, in->is_scalar ? ROLE_SCALAR : ROLE_INPUT, "", in->name);
    if (!a)
        return;
    a->dtype = (uint8_t)in->dtype;
    a->optional = in->optional;
    a->presence_built = !in->is_scalar;
    a->grad = in->grad;
    a->default_value = in->default_value;
    set_input_dims(a, ir, in);
}

/* The gradient of an input: f32, of the input's shape; of a scalar one element in device memory. A tensor of
   x's shape has a gradient of x's dtype. */
static void add_input_gradient(struct signature *s, const struct ir *ir, const struct input *in)
{
    struct sig_arg *a = add(s, ROLE_OUT_OPTIONAL, "d", in->name);
    if (!a)
        return;
    a->dtype = in->rows == INPUT_ROW ? LATHE_NONE : LATHE_F32;
    a->problem_dtype = in->rows == INPUT_ROW;
    a->optional = true;
    set_input_dims(a, ir, in);
}

static void add_inputs(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++)
        add_input(s, ir, &ir->input[i]);
}

static void add_input_gradients(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        if (ir->input[i].grad)
            add_input_gradient(s, ir, &ir->input[i]);
    }
}

static const enum sym QUERY[] = {SYM_B, SYM_H, SYM_Q, SYM_D};
static const enum sym KEY[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D};
static const enum sym VALUE[] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D_V};
static const enum sym OUTPUT[] = {SYM_B, SYM_H, SYM_Q, SYM_D_V};

void sign_attention(struct signature *s, const struct ir *ir, bool backward)
{
    add_main(s, ROLE_IN, "q", QUERY, 4);
    add_main(s, ROLE_IN, "k", KEY, 4);
    add_main(s, ROLE_IN, "v", VALUE, 4);
    struct sig_arg *o = add_main(s, backward ? ROLE_IN : ROLE_OUT, "o", OUTPUT, 4);
    if (o)
        o->optional = backward; /* of the forward pass; recomputed where it is not given */
    for (int i = 0; i < ir->n_finals; i++)
        add_f32(s, backward ? ROLE_IN : ROLE_OUT_OPTIONAL, "", ir->final[i].name, QUERY, 3, false);
    add_inputs(s, ir);
    struct sig_arg *start = add(s, ROLE_Q_START, "", "q_start");
    if (start) {
        start->dtype = LATHE_I32;
        start->optional = true;
    }
    if (!backward)
        return;
    add_main(s, ROLE_IN, "do", OUTPUT, 4);
    add_seeds(s, ir, QUERY, false);
    add_main(s, ROLE_OUT_OPTIONAL, "dq", QUERY, 4);
    add_main(s, ROLE_OUT_OPTIONAL, "dk", KEY, 4);
    add_main(s, ROLE_OUT_OPTIONAL, "dv", VALUE, 4);
    add_input_gradients(s, ir);
}

static void add_rows(struct signature *s, const struct ir *ir, enum arg_role role, const char *name)
{
    struct sig_arg *a = add_main(s, role, name, ir->inner ? INNER_X : ROW_X, 4);
    if (a)
        a->leading_optional = true;
}

/* A result beside y, or its seed: f32 where it is one value per row. */
static struct sig_arg *add_row_result(struct signature *s, const struct ir *ir, int k, enum arg_role role,
                                      const char *prefix)
{
    struct sig_arg *a = add(s, role, prefix, ir->final[k].name);
    if (!a)
        return NULL;
    const bool row = ir_result_is_row(ir, k);
    a->dtype = row ? LATHE_NONE : LATHE_F32;
    a->problem_dtype = row;
    a->unit_last = row;
    a->optional = true;
    a->leading_optional = !ir->final[k].total;
    set_dims(a, row && ir->inner ? INNER_X : ROW_X, ir->final[k].total ? 0 : row ? 4 : 3);
    return a;
}

void sign_rowwise(struct signature *s, const struct ir *ir, bool backward)
{
    add_rows(s, ir, ROLE_IN, "x");
    if (!backward && !ir->no_y)
        add_rows(s, ir, ROLE_OUT, "y");
    for (int i = 0; i < ir->n_finals; i++)
        if (!backward || !ir->final[i].total)
            add_row_result(s, ir, i, backward ? ROLE_IN : ROLE_OUT_OPTIONAL, "");
    add_inputs(s, ir);
    if (!backward)
        return;
    if (!ir->no_y)
        add_rows(s, ir, ROLE_IN, "dy");
    for (int i = 0; i < ir->n_finals; i++) {
        struct sig_arg *seed = add_row_result(s, ir, i, ROLE_IN, "d");
        if (seed)
            seed->rare = !ir->no_y;
    }
    add_rows(s, ir, ROLE_OUT_OPTIONAL, "dx");
    add_input_gradients(s, ir);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* Dims in front may be left out where a tensor has all of its map's. */
static void set_map_dims(struct sig_arg *a, const struct ir_map *map, const struct map_tensor *t)
{
    bool whole = t->n_dims == map->n_over && t->n_dims > 1;
    a->list = map->list;
    a->ndim = (uint8_t)t->n_dims;
    if (map->list) {
        a->dim[0].sym = SYM_TENSORS;
        return;
    }
    for (int d = 0; d < t->n_dims; d++) {
        const bool pairs = t->form != STAGE_ELEMENT && d == t->n_dims - 1;
        a->dim[d] = (struct sig_dim){.sym = map->over[t->dim[d]], .times = pairs ? 2 : 0};
        whole &= t->dim[d] == d;
    }
    a->leading_optional = whole;
}

static void add_tensor(struct signature *s, const struct ir *ir, int tensor, bool backward)
{
    const struct map_tensor *t = &ir->tensor[tensor];
    const bool in_place = t->alias >= 0;
    const enum arg_role role = t->use == USE_READ     ? ROLE_IN
                               : backward || in_place ? ROLE_OUT_OPTIONAL
                                                      : ROLE_OUT;
    struct sig_arg *a = add(s, role, "", t->name);
    if (!a)
        return;
    a->dtype = (uint8_t)t->dtype;
    a->optional = t->optional || role == ROLE_OUT_OPTIONAL;
    a->presence_built = (t->optional && !t->unread) || (backward && role == ROLE_OUT_OPTIONAL);
    a->grad = t->grad;
    a->default_value = t->default_value;
    a->alias = in_place ? (uint8_t)(1 + signature_find(s, ir->tensor[t->alias].name)) : 0;
    if (t->use != USE_SCATTER) {
        a->points = (uint8_t)(t->map * 4 + t->form);
        set_map_dims(a, &ir->map[t->map], t);
        return;
    }
    const struct input *in = &ir->input[t->input];
    a->ndim = (uint8_t)in->n_dims;
    memcpy(a->dim, in->dim, (size_t)in->n_dims * sizeof in->dim[0]);
}

/* How many tensors there are in the lists, and how many elements each has. */
static void add_lengths(struct signature *s)
{
    struct sig_arg *a = add(s, ROLE_INPUT, "", "lengths");
    if (!a)
        return;
    a->dtype = LATHE_I32;
    a->unit_last = true;
    a->ndim = 1;
    a->dim[0].sym = SYM_TENSORS;
}

void sign_elementwise(struct signature *s, const struct ir *ir, bool backward)
{
    const struct ir *work = backward ? ir->gradient : ir;
    bool list = false;
    if (!work)
        return; /* a list has no backward pass */
    for (int i = 0; i < work->n_tensors; i++)
        if (work->tensor[i].use != USE_NONE)
            add_tensor(s, work, i, backward);
    for (int m = 0; m < work->n_maps; m++)
        list |= work->map[m].list;
    if (list)
        add_lengths(s);
    add_inputs(s, work);
}

/* ---- the door ---------------------------------------------------------------------------------- */

/* A backward pass has code for what is given and wanted alone: an absent seed is no zero to add, and a
   gradient that nobody takes is not computed. */
static void build_presence(struct signature *s)
{
    for (int i = 0; i < s->n_args; i++) {
        struct sig_arg *a = &s->arg[i];
        a->presence_built |= a->optional && a->role != ROLE_SCALAR && a->role != ROLE_Q_START;
    }
}

void signature_make(const struct ir *ir, lathe_pass pass, struct signature *out)
{
    memset(out, 0, sizeof *out);
    const bool backward = pass == LATHE_BACKWARD;
    out->backward = backward;
    snprintf(out->kind, sizeof out->kind, "%s", kinds[ir->kind].name);
    out->n_free = ir->n_free;
    memcpy(out->free_name, ir->free_name, sizeof out->free_name);
    kinds[ir->kind].sign(out, ir, backward);
    out->builds_alignment = ir->kind == KIND_ATTENTION || ir->kind == KIND_ROWWISE;
    if ((backward && ir->kind != KIND_ELEMENTWISE) || (ir->kind == KIND_ROWWISE && row_pass_reason(ir)))
        build_presence(out);
}

int signature_find(const struct signature *sig, const char *name)
{
    for (int i = 0; i < sig->n_args; i++)
        if (strcmp(sig->arg[i].name, name) == 0)
            return i;
    return -1;
}
