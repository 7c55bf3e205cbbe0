/*
 * call.c: the host device's door, and what forward and backward share: binding arguments by the
 * signature, tensors as rows of numbers, evaluating with errors in the public form.
 * In: a checked IR, arguments with host data. Out: outputs written in place; nothing is kept.
 * Views and calls point into the caller's arguments and own nothing.
 */
#include "gen/host/host.h"
#include "gen/arguments/input_ranges.h"
#include "gen/arguments/problem.h"
#include "gen/host/call.h"
#include "gen/ir/kind.h"
#include "gen/ir/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

lathe_status host_out_of_memory(lathe_error *err)
{
    if (err) {
        *err = (lathe_error){.status = LATHE_MEMORY};
        snprintf(err->text, sizeof err->text, "out of memory on the host device");
    }
    return LATHE_MEMORY;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static const lathe_arg *find(const lathe_arg *args, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(args[i].name, name) == 0)
            return &args[i];
    return NULL;
}

const lathe_arg *host_arg(const struct host_call *call, const char *name)
{
    for (int i = 0; i < call->sig->n_args; i++)
        if (strcmp(call->sig->arg[i].name, name) == 0)
            return call->arg[i];
    return NULL;
}

int64_t host_dim(const struct host_call *call, enum sym sym)
{
    return call->problem.dim[sym] > 0 ? call->problem.dim[sym] : 0;
}

const lathe_arg *host_turn(struct host_turned *out, const lathe_arg *arg)
{
    const int last = arg->ndim - 1;
    out->arg = *arg;
    for (int d = 0; d < arg->ndim; d++) {
        const int from = d == last ? last - 1 : d == last - 1 ? last : d;
        out->shape[d] = arg->shape[from];
        out->stride[d] = tensor_stride(arg, from);
    }
    out->arg.shape = out->shape;
    out->arg.strides = out->stride;
    return &out->arg;
}

/* Positions that f32 holds exactly, as at a launch of kernels. */
static lathe_status take_q_start(struct host_call *out, const lathe_arg *arg, lathe_error *err)
{
    static const int64_t LIMIT = (int64_t)1 << 24;
    const int64_t rows = host_dim(out, SYM_Q);
    out->q_start = (int64_t)dtype_load(arg->dtype, arg->data, 0);
    if (out->q_start > -LIMIT && out->q_start + rows <= LIMIT)
        return LATHE_OK;
    return lathe__fail(
        err, LATHE_ARG,
        "argument 'q_start': expected positions between -2^24 and 2^24, given %lld with %lld rows",
        (long long)out->q_start, (long long)rows);
}

/* Is a place along dim d found by anything else than at.t? */
static bool is_found_otherwise(const struct ir *ir, int input, int d)
{
    for (int i = 0; i < ir->n_nodes; i++)
        if (ir->node[i].op == OP_LOAD && ir->node[i].index == input && d < ir->node[i].n_args &&
            !ir_is_at(ir, ir->node[i].arg[d], AT_T))
            return true;
    return false;
}

/* Where packed sequences of linear attention end, of all tokens; -1: no list says it. What is wrong with the
   list is said elsewhere. */
static int64_t packed_end(const struct host_call *call)
{
    const lathe_arg *cu = host_arg(call, "cu");
    const int64_t t = host_dim(call, SYM_T);
    if (!cu || call->sig->backward || tensor_count(cu) == 0)
        return -1;
    const int64_t end = (int64_t)tensor_nth(cu, tensor_count(cu) - 1);
    return end >= 0 && end < t ? end : -1;
}

/* What an input says of its values, of those that are read: padding behind the last sequence is not. */
static lathe_status check_range(const struct host_call *call, int input, const int64_t *dim, lathe_error *err)
{
    const struct ir *ir = call->ir;
    const struct input_range *range = &ir->input[input].range;
    const lathe_arg *many = range->sorted_by[0] ? host_arg(call, range->sorted_by) : NULL;
    const int64_t end = packed_end(call);
    int64_t shape[MAX_DIMS];
    int64_t stride[MAX_DIMS];
    lathe_arg read = *call->input[input];
    for (int d = 0; d < read.ndim; d++) {
        const struct sig_dim *own = &ir->input[input].dim[d];
        const bool cut =
            end >= 0 && own->literal == 0 && own->sym == SYM_T && !is_found_otherwise(ir, input, d);
        shape[d] = cut ? end : read.shape[d];
        stride[d] = tensor_stride(call->input[input], d);
    }
    if (end < 0)
        return input_range_check(ir, input, call->input[input], many, dim, err);
    read.shape = shape;
    read.strides = stride;
    return input_range_check(ir, input, &read, many, dim, err);
}

lathe_status host_bind(struct host_call *out, const struct ir *ir, const struct signature *sig,
                       const lathe_arg *args, int n, lathe_error *err)
{
    memset(out, 0, sizeof *out);
    out->ir = ir;
    out->sig = sig;
    lathe_status status = problem_from_args(sig, args, n, true, &out->problem, err);
    if (status != LATHE_OK)
        return status;
    const bool cut = out->problem.cut_keys;
    out->q_start = host_dim(out, cut ? SYM_ALL_KV : SYM_KV) - host_dim(out, SYM_Q);
    for (int i = 0; i < sig->n_args; i++) {
        if (arg_in(out->problem.present, i))
            out->arg[i] = find(args, n, sig->arg[i].name);
        if (out->arg[i] && sig->arg[i].role == ROLE_Q_START)
            status = take_q_start(out, out->arg[i], err);
    }
    if (status == LATHE_OK)
        status = lathe__starts_check(sig, &out->problem, out->arg, err);
    out->keys = lathe__key_places(sig, out->arg);
    out->h_start = lathe__place_start(sig, out->arg, SYM_ALL_H);
    int64_t dim[SYM_COUNT];
    lathe__dims_of_all(&out->problem, dim);
    for (int i = 0; i < ir->n_inputs; i++) {
        out->input[i] = host_arg(out, ir->input[i].name);
        if (out->input[i] && status == LATHE_OK)
            status = check_range(out, i, dim, err);
        if (out->input[i] && ir->inner && ir->input[i].rows == INPUT_ROW)
            out->input[i] = host_turn(&out->turned[i], out->input[i]);
    }
    return status;
}

/* ---- views ----------------------------------------------------------------------------------- */

void host_view_make(struct host_view *out, const lathe_arg *arg, int ndim)
{
    memset(out, 0, sizeof *out);
    if (!arg)
        return;
    out->data = arg->data;
    out->dtype = arg->dtype;
    for (int i = 0; i < arg->ndim && i < ndim; i++)
        out->stride[ndim - 1 - i] = tensor_stride(arg, arg->ndim - 1 - i);
}

static int64_t row_of(const struct host_view *view, int64_t i0, int64_t i1, int64_t i2)
{
    return i0 * view->stride[0] + i1 * view->stride[1] + i2 * view->stride[2];
}

void host_rows_make(struct host_view *out, const struct host_call *call, const char *name)
{
    host_view_make(out, host_arg(call, name), 4);
    if (!call->ir->inner)
        return;
    const int64_t along = out->stride[2];
    out->stride[2] = out->stride[3];
    out->stride[3] = along;
}

void host_view_load(const struct host_view *view, int64_t i0, int64_t i1, int64_t i2, int64_t n, double *out)
{
    const int64_t first = row_of(view, i0, i1, i2);
    for (int64_t j = 0; j < n; j++)
        out[j] = dtype_load(view->dtype, view->data, first + j * view->stride[3]);
}

void host_view_store(const struct host_view *view, int64_t i0, int64_t i1, int64_t i2, int64_t n,
                     const double *in)
{
    const int64_t first = row_of(view, i0, i1, i2);
    for (int64_t j = 0; j < n; j++)
        dtype_store(view->dtype, view->data, first + j * view->stride[3], in[j]);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

void host_env_init(struct eval_env *env, const struct host_call *call, uint8_t axis)
{
    *env = (struct eval_env){
        .ir = call->ir, .axis = axis, .tape = call->tape, .mode = call->mode, .error_node = -1};
    env->at[AT_N_B] = (double)host_dim(call, SYM_B);
    env->at[AT_N_H] = (double)host_dim(call, call->problem.cut_heads ? SYM_ALL_H : SYM_H);
    env->at[AT_N_H_KV] = (double)host_dim(call, call->problem.cut_heads ? SYM_ALL_H_KV : SYM_H_KV);
    env->at[AT_LEN_Q] = (double)host_dim(call, SYM_Q);
    env->at[AT_LEN_KV] = (double)host_dim(call, call->problem.cut_keys ? SYM_ALL_KV : SYM_KV);
    env->at[AT_D] = (double)(host_dim(call, SYM_D) + (call->ir->qk2 ? host_dim(call, SYM_D2) : 0));
    env->at[AT_D_V] = (double)host_dim(call, SYM_D_V);
    env->at[AT_N_H_K] = (double)host_dim(call, SYM_H_K);
    env->at[AT_LEN_T] = (double)host_dim(call, SYM_T);
    env->at[AT_N] = (double)host_dim(call, SYM_N);
    env->at[AT_N_ROWS] =
        (double)(host_dim(call, SYM_ROWS0) * host_dim(call, SYM_ROWS1) * host_dim(call, SYM_ROWS));
    for (int k = 0; k < MAX_FREE_SYMS; k++)
        env->at[AT_FREE0 + k] = (double)host_dim(call, (enum sym)(SYM_FREE + k));
    memcpy(env->input, call->input, sizeof env->input);
}

lathe_status host_eval_error(const struct eval_env *env, lathe_error *err)
{
    const lathe_status status = env->error_node < 0 ? LATHE_MEMORY : LATHE_SPEC;
    if (!err)
        return status;
    *err = (lathe_error){.status = status};
    snprintf(err->text, sizeof err->text, "%s", env->error);
    if (env->error_node >= 0) {
        const struct ir_node *n = &env->ir->node[env->error_node];
        err->line = n->line;
        if (n->line > 0 && n->file < env->ir->n_files)
            snprintf(err->file, sizeof err->file, "%s", env->ir->file[n->file]);
    }
    return status;
}

lathe_status host_eval(struct eval_env *env, const int *root, int n_roots, lathe_error *err)
{
    return eval_run(env, root, n_roots) ? LATHE_OK : host_eval_error(env, err);
}

double host_value(const struct eval_env *env, int node, int64_t j)
{
    return env->value[node][env->ir->node[node].span & env->axis ? j : 0];
}

void host_values(const struct eval_env *env, int node, int64_t n, double *out)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = host_value(env, node, j);
}

/* ---- the door -------------------------------------------------------------------------------- */

lathe_status host_check_rows(const int64_t *rows, int64_t n_rows, int64_t count, lathe_error *err)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const bool inside = rows[i] >= 0 && rows[i] < count;
        if (inside && (i == 0 || rows[i] > rows[i - 1]))
            continue;
        if (err) {
            *err = (lathe_error){.status = LATHE_ARG};
            snprintf(err->text, sizeof err->text,
                     "rows: entry %lld is %lld; expected ascending row numbers in 0..%lld", (long long)i,
                     (long long)rows[i], (long long)count - 1);
        }
        return LATHE_ARG;
    }
    return LATHE_OK;
}

lathe_status host_forward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                          const int64_t *rows, int64_t n_rows, lathe_error *err)
{
    struct host_call call;
    lathe_status status = host_bind(&call, ir, sig, args, n, err);
    if (status != LATHE_OK)
        return status;
    const int64_t count = kinds[ir->kind].host_units(&call);
    if (rows)
        status = host_check_rows(rows, n_rows, count, err);
    if (status != LATHE_OK)
        return status;
    if (!rows)
        n_rows = count;
    return (sig->combine ? kinds[ir->kind].host_combine : kinds[ir->kind].host_forward)(&call, rows, n_rows,
                                                                                        err);
}
