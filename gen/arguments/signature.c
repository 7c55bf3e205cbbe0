/*
 * signature.c: which arguments a pass of a spec takes, with their shapes as symbols: what every kind's
 * sign.c is made of.
 * In: a checked IR. Out: a plain struct that the caller owns; nothing is allocated.
 * Order: tensors of the operator, finals or statistics, the spec's inputs, q_start; the backward pass
 * appends the seeds (do, d<final>) and the gradients (dq, dk, dv, d<input>). Callers find an argument
 * by name, never by position. The bounds of runtime/recipe/recipe.h hold every spec that ir/rules.c lets
 * through.
 */
#include "gen/arguments/signature.h"
#include "gen/arguments/sign.h"
#include "gen/ir/kind.h"

#include <stdio.h>
#include <string.h>

void sign_sizes(struct signature *s, const struct sig_size *size, int n)
{
    memcpy(s->size + s->n_sizes, size, (size_t)n * sizeof *size);
    s->n_sizes += n;
}

void sign_free_sizes(struct signature *s, const struct sig_size *size)
{
    for (int k = 0; k < s->n_free; k++) {
        sign_sizes(s, size, 1);
        s->size[s->n_sizes - 1].sym = (uint8_t)(SYM_FREE + k);
    }
}

struct sig_arg *sign_add(struct signature *s, enum arg_role role, const char *prefix, const char *name)
{
    if (s->n_args >= MAX_ARGS)
        return NULL;
    struct sig_arg *a = &s->arg[s->n_args++];
    memset(a, 0, sizeof *a);
    snprintf(a->name, sizeof a->name, "%s%.*s", prefix, NAME_MAX_BYTES - 2, name);
    a->role = (uint8_t)role;
    return a;
}

struct sig_arg *sign_rare(struct signature *s, enum arg_role role, const char *name, lathe_dtype dtype)
{
    struct sig_arg *a = sign_add(s, role, "", name);
    if (!a)
        return NULL;
    a->dtype = (uint8_t)dtype;
    a->optional = true;
    a->rare = true;
    return a;
}

void sign_places(struct signature *s, enum sym all, const char *start, const char *total)
{
    const uint8_t number = (uint8_t)(1 + s->n_args);
    struct sig_arg *const arg[] = {sign_rare(s, ROLE_START, start, LATHE_I32),
                                   sign_rare(s, ROLE_TOTAL, total, LATHE_I32)};
    for (int i = 0; i < 2; i++) {
        if (!arg[i])
            return;
        arg[i]->presence_built = true;
        arg[i]->dim[0].sym = (uint8_t)all;
        arg[i]->beside = (uint8_t)(number + (i == 0));
    }
}

void sign_chunks(struct signature *s)
{
    const uint8_t number = (uint8_t)(1 + s->n_args);
    struct sig_arg *const arg[] = {sign_rare(s, ROLE_CHUNK, "kv_chunk", LATHE_I32),
                                   sign_rare(s, ROLE_STEP, "kv_step", LATHE_I32)};
    for (int i = 0; i < 2; i++) {
        if (!arg[i])
            return;
        arg[i]->presence_built = true;
        arg[i]->dim[0].sym = SYM_ALL_KV;
        arg[i]->beside = (uint8_t)(number + (i == 0));
    }
}

void sign_dims(struct sig_arg *a, const enum sym *syms, int n)
{
    a->ndim = (uint8_t)n;
    for (int i = 0; i < n; i++)
        a->dim[i] = (struct sig_dim){.sym = (uint8_t)syms[i]};
}

struct sig_arg *sign_main(struct signature *s, enum arg_role role, enum dtype_role dtype, const char *name,
                          const enum sym *syms, int n)
{
    struct sig_arg *a = sign_add(s, role, "", name);
    if (!a)
        return NULL;
    a->dtype_role = (uint8_t)dtype;
    a->unit_last = true;
    a->optional = role == ROLE_OUT_OPTIONAL;
    sign_dims(a, syms, n);
    return a;
}

static const enum sym ROW_X[] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};
static const enum sym INNER_X[] = {SYM_ROWS0, SYM_ROWS1, SYM_N, SYM_ROWS};

void sign_row_dims(struct sig_arg *a, const struct ir *ir, int n)
{
    sign_dims(a, n == 4 && ir->inner ? INNER_X : ROW_X, n);
}

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
    sign_row_dims(a, ir, in->rows == INPUT_ROW ? 4 : 3);
}

void sign_input(struct signature *s, const struct ir *ir, const struct input *in)
{
    struct sig_arg *a = sign_add(s, in->is_scalar ? ROLE_SCALAR : ROLE_INPUT, "", in->name);
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
    struct sig_arg *a = sign_add(s, ROLE_OUT_OPTIONAL, "d", in->name);
    if (!a)
        return;
    a->dtype = in->rows == INPUT_ROW ? LATHE_NONE : LATHE_F32;
    a->dtype_role = in->rows == INPUT_ROW ? DTYPE_X : DTYPE_USUAL;
    a->optional = true;
    set_input_dims(a, ir, in);
}

void sign_inputs(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++)
        sign_input(s, ir, &ir->input[i]);
}

void sign_input_gradients(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        if (ir->input[i].grad)
            add_input_gradient(s, ir, &ir->input[i]);
    }
}

/* ---- the door ---------------------------------------------------------------------------------- */

void sign_presence_built(struct signature *s)
{
    for (int i = 0; i < s->n_args; i++) {
        struct sig_arg *a = &s->arg[i];
        a->presence_built |= a->optional && !lathe__is_host_value(a);
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
    out->combine = pass == LATHE_COMBINE;
    if (!out->combine)
        kinds[ir->kind].sign(out, ir, backward);
    else if (kinds[ir->kind].sign_combine)
        kinds[ir->kind].sign_combine(out, ir);
    else
        snprintf(out->no_parts, sizeof out->no_parts,
                 "it puts parts of rows of attention together, and this is %s", out->kind);
}
