/*
 * gradient.c: what backward passes on the host device share, in double precision, and their door. In: a spec,
 * and arguments as for host_backward. Out: gradients, overwritten; those of inputs are summed in double over
 * all rows and stored at the end.
 */
#include "gen/host/call.h"
#include "gen/base/diag.h"
#include "gen/host/gradient.h"
#include "gen/ir/kind.h"
#include "gen/ir/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- differentiated functions ------------------------------------------------------------------ */

bool host_graph_make(struct host_graph *g, struct ir *ir, const int *root, const int *seed, int n, int more,
                     struct diag *diag)
{
    if (!diff(ir, root, seed, n, &g->adjoint, diag))
        return false;
    g->eval = calloc(2 * (size_t)g->adjoint.n + 1, sizeof *g->eval);
    if (!g->eval) {
        diag_add(diag, ir->file[0], 0, "out of memory");
        return false;
    }
    for (int i = 0; i < g->adjoint.n; i++)
        g->eval[g->n_eval++] = g->adjoint.item[i].adjoint;
    for (int i = 0; i < g->adjoint.n; i++)
        if (ir->node[g->adjoint.item[i].leaf].op != OP_PARAM)
            g->eval[g->n_eval++] = g->adjoint.item[i].leaf;
    if (more >= 0)
        g->eval[g->n_eval++] = more;
    return true;
}

void host_graph_values(const struct host_graph *g, const struct eval_env *env, int param, int64_t n,
                       double *out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < g->adjoint.n; i++) {
        const struct ir_node *leaf = &env->ir->node[g->adjoint.item[i].leaf];
        if (leaf->op == OP_PARAM && leaf->index == param)
            host_values(env, g->adjoint.item[i].adjoint, n, out);
    }
}

/* ---- gradients of inputs ----------------------------------------------------------------------- */

static bool inputs_open(struct host_gradient *b)
{
    for (int i = 0; i < b->ir->n_inputs; i++) {
        char name[NAME_MAX_BYTES + 2];
        snprintf(name, sizeof name, "d%s", b->ir->input[i].name);
        const lathe_arg *out = b->ir->input[i].grad ? host_arg(&b->call, name) : NULL;
        if (!out || !out->data)
            continue;
        const bool turn = b->ir->inner && b->ir->input[i].rows == INPUT_ROW;
        b->input[i].out = turn ? host_turn(&b->input[i].turned, out) : out;
        b->input[i].sum = calloc((size_t)tensor_count(out) + 1, sizeof(double));
        if (!b->input[i].sum)
            return false;
    }
    return true;
}

/* Number of the element that element j of a load reads, or -1 where the gradient has no such element. An
   index by row counts all leading dims, which are one here. */
static int64_t element_of(const struct eval_env *env, const struct ir_node *leaf, const lathe_arg *out,
                          int64_t j)
{
    int64_t element = 0;
    const int leading = out->ndim - leaf->n_args + 1;
    for (int d = 0; d < leaf->n_args; d++) {
        double index = host_value(env, leaf->arg[d], j);
        int64_t size = d > 0 ? out->shape[d + leading - 1] : 1;
        for (int k = 0; d == 0 && k < leading; k++)
            size *= out->shape[k];
        if (!(index >= 0 && index < (double)size))
            return -1;
        element = element * size + (int64_t)index;
    }
    return element;
}

/* The same of a part of the sums, from its beginning on. */
static int64_t element_of_part(const struct eval_env *env, const struct ir_node *leaf, const lathe_arg *part,
                               int64_t j)
{
    int64_t element = 0;
    for (int d = 0; d < leaf->n_args; d++) {
        const double index = host_value(env, leaf->arg[d], j);
        if (!(index >= 0 && index < (double)part->shape[d]))
            return -1;
        element += (int64_t)index * part->strides[d];
    }
    return element;
}

static lathe_status outside(const struct host_gradient *b, const struct ir_node *leaf, lathe_error *err)
{
    if (!err)
        return LATHE_SPEC;
    const char *name = b->ir->input[leaf->index].name;
    *err = (lathe_error){.status = LATHE_SPEC, .line = leaf->line};
    snprintf(err->file, sizeof err->file, "%s", b->ir->file[leaf->file]);
    snprintf(err->text, sizeof err->text, "%.200s:%d: %s: an index is outside argument 'd%s'", err->file,
             err->line, name, name);
    return LATHE_SPEC;
}

lathe_status host_scatter_site(struct host_gradient *b, const struct eval_env *env, int read, int value,
                               int64_t n, lathe_error *err)
{
    const struct ir_node *leaf = &env->ir->node[read];
    const struct host_input_gradient *to = &b->input[leaf->index];
    for (int64_t j = 0; to->sum && j < n; j++) {
        double *sum = to->part.data ? to->part.data : to->sum;
        int64_t element =
            to->part.data ? element_of_part(env, leaf, &to->part, j) : element_of(env, leaf, to->out, j);
        if (element < 0)
            return outside(b, leaf, err);
        sum[element] += host_value(env, value, j);
    }
    return LATHE_OK;
}

lathe_status host_scatter(struct host_gradient *b, const struct host_graph *g, const struct eval_env *env,
                          lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int i = 0; i < g->adjoint.n && status == LATHE_OK; i++) {
        const int leaf = g->adjoint.item[i].leaf;
        const struct ir_node *n = &env->ir->node[leaf];
        if (n->op != OP_PARAM)
            status = host_scatter_site(b, env, leaf, g->adjoint.item[i].adjoint,
                                       n->span & env->axis ? env->n : 1, err);
    }
    return status;
}

/* ---- a call ------------------------------------------------------------------------------------ */

int64_t host_next_row(const struct host_call *call, int64_t from, int64_t end)
{
    int64_t low = 0;
    int64_t high = call->n_rows;
    if (!call->rows)
        return from < end ? from : end;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (call->rows[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < call->n_rows && call->rows[low] < end ? call->rows[low] : end;
}

lathe_status host_gradient_open(struct host_gradient *b, const struct host_request *r, lathe_error *err)
{
    *b = (struct host_gradient){.ir = ir_clone(r->ir)};
    return b->ir ? LATHE_OK : host_out_of_memory(err);
}

lathe_status host_gradient_bind(struct host_gradient *b, const struct host_request *r, lathe_error *err)
{
    lathe_status status = host_bind(&b->call, b->ir, r->sig, r->args, r->n, err);
    if (status == LATHE_OK && r->rows)
        status = host_check_rows(r->rows, r->n_rows, kinds[b->ir->kind].host_units(&b->call), err);
    b->call.rows = r->rows;
    b->call.n_rows = r->n_rows;
    b->call.mode = r->mode;
    if (status == LATHE_OK && !inputs_open(b))
        status = host_out_of_memory(err);
    return status;
}

void host_gradient_store(const struct host_gradient *b)
{
    for (int i = 0; i < b->ir->n_inputs; i++)
        if (b->input[i].out)
            tensor_set_all(b->input[i].out, b->input[i].sum);
}

void host_gradient_close(struct host_gradient *b)
{
    for (int i = 0; i < MAX_INPUTS; i++)
        free(b->input[i].sum);
    ir_free(b->ir);
}

lathe_status host_refused(const struct diag *diag, lathe_error *err)
{
    if (diag->n == 0)
        return host_out_of_memory(err);
    if (err)
        diag_to_error(diag, LATHE_SPEC, err);
    return LATHE_SPEC;
}

void host_graph_free(struct host_graph *g)
{
    diff_free(&g->adjoint);
    free(g->eval);
}

/* ---- the door ---------------------------------------------------------------------------------- */

lathe_status host_backward_rows(const struct ir *ir, const struct signature *sig, const lathe_arg *args,
                                int n, const int64_t *rows, int64_t n_rows, lathe_error *err)
{
    const struct host_request request = {ir, sig, args, n, rows, n_rows, NULL};
    return kinds[ir->kind].host_backward(&request, err);
}

lathe_status host_backward(const struct ir *ir, const struct signature *sig, const lathe_arg *args, int n,
                           lathe_error *err)
{
    return host_backward_rows(ir, sig, args, n, NULL, 0, err);
}

lathe_status host_backward_mode(const struct ir *ir, const struct signature *sig, const lathe_arg *args,
                                int n, struct eval_mode *mode, lathe_error *err)
{
    const struct host_request request = {ir, sig, args, n, NULL, 0, mode};
    return kinds[ir->kind].host_backward(&request, err);
}
