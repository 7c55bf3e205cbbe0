/*
 * vectors.c: vectors of q, k, v and o through the stages of their mods on the host device, forwards and
 * backwards. In: numbers in v->stage[0], and where the token is. Out: numbers; adjoints of inputs are added
 * to the sums of the call. Scratch belongs to struct host_vectors.
 */
#include "gen/host/vectors.h"
#include "runtime/recipe/bind.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------------- */

/* Zero doubles are one, so that NULL means out of memory. */
static double *doubles(int64_t n)
{
    return calloc((size_t)(n > 0 ? n : 1), sizeof(double));
}

static bool allocate(struct host_vectors *v, int widest)
{
    double **const block[] = {&v->index, &v->lo, &v->hi, &v->dlo, &v->dhi};
    bool all = true;
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        all &= (*block[i] = doubles(widest)) != NULL;
    for (int s = 0; s <= MAX_STAGES; s++)
        all &= (v->stage[s] = doubles(widest)) != NULL;
    for (int i = 0; v->index && i < widest; i++)
        v->index[i] = i;
    return all;
}

void host_vectors_close(struct host_vectors *v)
{
    double *const block[] = {v->index, v->lo, v->hi, v->dlo, v->dhi};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
    for (int s = 0; s <= MAX_STAGES; s++)
        free(v->stage[s]);
    eval_free(&v->env);
    memset(v, 0, sizeof *v);
}

static lathe_status check_pairs(const struct host_call *call, enum mod which, int dim, lathe_error *err)
{
    static const char *const name[MOD_COUNT] = {"query_mod", "key_mod", "value_mod", "output_mod"};
    const struct ir_mod *mod = &call->ir->mod[which];
    for (int s = 0; s < mod->n_stages; s++) {
        const struct ir_stage *stage = &mod->stage[s];
        const bool odd = stage->form != STAGE_ELEMENT && stage->paired == 0 && dim % 2 != 0;
        if (!odd && stage->paired <= dim)
            continue;
        if (odd)
            return lathe__fail(err, LATHE_ARG, "%s works on pairs: expected an even head dim, given %d",
                               name[which], dim);
        return lathe__fail(
            err, LATHE_ARG,
            "%s works on pairs of the first %d elements: expected a head dim of %d or more, given %d",
            name[which], stage->paired, stage->paired, dim);
    }
    return LATHE_OK;
}

/* Parts of rows have no q, k or v, nor their sizes. */
static lathe_status check_mods(const struct host_call *call, int d, int d_v, lathe_error *err)
{
    const bool of_parts = !host_arg(call, "q") && !host_arg(call, "k");
    lathe_status status = LATHE_OK;
    for (int m = of_parts ? MOD_OUTPUT : MOD_QUERY; m < MOD_COUNT && status == LATHE_OK; m++)
        status = check_pairs(call, (enum mod)m, m == MOD_QUERY || m == MOD_KEY ? d : d_v, err);
    return status;
}

lathe_status host_vectors_open(struct host_vectors *v, const struct host_call *call, int d, int d_v,
                               lathe_error *err)
{
    memset(v, 0, sizeof *v);
    host_env_init(&v->env, call, SPAN_DIM);
    lathe_status status = check_mods(call, d, d_v, err);
    if (status == LATHE_OK && !allocate(v, d > d_v ? d : d_v))
        status = host_out_of_memory(err);
    return status;
}

/* ---- forwards ------------------------------------------------------------------------------------ */

/* Pairs of a vector: which number is the element (which = 0: lo, 1: hi) of pair i? */
static int pair_index(int form, int n, int i, int which)
{
    return form == STAGE_HALF ? i + which * (n / 2) : 2 * i + which;
}

/* The axis (n, or n / 2 for pairs) and LEAF_X or LEAF_LO and LEAF_HI of a stage from the n numbers of `in`.
 */
static void stage_enter(struct host_vectors *v, const struct ir_stage *stage, int n, const double *in)
{
    struct eval_env *env = &v->env;
    env->at_axis[AT_I] = v->index;
    if (stage->form == STAGE_ELEMENT) {
        env->n = n;
        env->param[LEAF_X] = in;
        return;
    }
    const int paired = ir_stage_paired(stage, n);
    env->n = paired / 2;
    env->param[LEAF_LO] = v->lo;
    env->param[LEAF_HI] = v->hi;
    for (int i = 0; i < paired / 2; i++) {
        v->lo[i] = in[pair_index(stage->form, paired, i, 0)];
        v->hi[i] = in[pair_index(stage->form, paired, i, 1)];
    }
}

/* Elements without a pair leave as they came. */
static void stage_leave(const struct host_vectors *v, const struct ir_stage *stage, int n, const double *in,
                        double *out)
{
    if (stage->form == STAGE_ELEMENT) {
        host_values(&v->env, stage->fn.root[0], n, out);
        return;
    }
    const int paired = ir_stage_paired(stage, n);
    memcpy(out + paired, in + paired, (size_t)(n - paired) * sizeof *out);
    for (int i = 0; i < paired / 2; i++)
        for (int half = 0; half < 2; half++)
            out[pair_index(stage->form, paired, i, half)] = host_value(&v->env, stage->fn.root[half], i);
}

lathe_status host_mod(struct host_vectors *v, enum mod which, int n, lathe_error *err)
{
    const struct ir_mod *mod = &v->env.ir->mod[which];
    for (int s = 0; s < mod->n_stages; s++) {
        stage_enter(v, &mod->stage[s], n, v->stage[s]);
        const lathe_status status = host_eval(&v->env, mod->stage[s].fn.root, mod->stage[s].fn.n_roots, err);
        if (status != LATHE_OK)
            return status;
        stage_leave(v, &mod->stage[s], n, v->stage[s], v->stage[s + 1]);
    }
    return LATHE_OK;
}

/* ---- backwards ----------------------------------------------------------------------------------- */

bool host_mod_graphs_make(struct host_mod_graphs *g, struct ir *ir, struct diag *diag)
{
    bool ok = true;
    for (int m = 0; m < MOD_COUNT; m++) {
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            const struct ir_stage *stage = &ir->mod[m].stage[s];
            bool pair = stage->form != STAGE_ELEMENT;
            int seed[2] = {ir_param_of(ir, pair ? LEAF_DLO : LEAF_DX), ir_param_of(ir, LEAF_DHI)};
            ok &= host_graph_make(&g->stage[m][s], ir, stage->fn.root, seed, pair ? 2 : 1, -1, diag);
        }
    }
    return ok;
}

void host_mod_graphs_free(struct host_mod_graphs *g)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < MAX_STAGES; s++)
            host_graph_free(&g->stage[m][s]);
}

static void take_pairs(const struct host_vectors *v, int form, int n, const double *grad)
{
    for (int i = 0; i < n / 2; i++) {
        v->dlo[i] = grad[pair_index(form, n, i, 0)];
        v->dhi[i] = grad[pair_index(form, n, i, 1)];
    }
}

static void give_pairs(const struct host_vectors *v, int form, int n, double *grad)
{
    for (int i = 0; i < n / 2; i++) {
        grad[pair_index(form, n, i, 0)] = v->dlo[i];
        grad[pair_index(form, n, i, 1)] = v->dhi[i];
    }
}

lathe_status host_stage_back(struct host_vectors *v, struct host_gradient *b, const struct ir_stage *stage,
                             const struct host_graph *g, int n, const double *in, double *grad,
                             lathe_error *err)
{
    struct eval_env *env = &v->env;
    bool pair = stage->form != STAGE_ELEMENT;
    const int paired = ir_stage_paired(stage, n);
    stage_enter(v, stage, n, in);
    if (pair)
        take_pairs(v, stage->form, paired, grad);
    env->param[LEAF_DX] = grad;
    env->param[LEAF_DLO] = v->dlo;
    env->param[LEAF_DHI] = v->dhi;
    lathe_status status = host_eval(env, g->eval, g->n_eval, err);
    if (status == LATHE_OK)
        status = host_scatter(b, g, env, err);
    if (status != LATHE_OK)
        return status;
    if (!pair) {
        host_graph_values(g, env, LEAF_X, n, grad);
        return LATHE_OK;
    }
    host_graph_values(g, env, LEAF_LO, paired / 2, v->dlo);
    host_graph_values(g, env, LEAF_HI, paired / 2, v->dhi);
    give_pairs(v, stage->form, paired, grad);
    return LATHE_OK;
}

lathe_status host_mod_back(struct host_vectors *v, struct host_gradient *b, const struct host_mod_graphs *g,
                           enum mod which, int n, double *grad, lathe_error *err)
{
    const struct ir_mod *mod = &b->ir->mod[which];
    lathe_status status = LATHE_OK;
    for (int s = mod->n_stages - 1; s >= 0 && status == LATHE_OK; s--)
        status = host_stage_back(v, b, &mod->stage[s], &g->stage[which][s], n, v->stage[s], grad, err);
    return status;
}
