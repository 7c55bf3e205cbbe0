/*
 * host_backward.c: the backward pass of linear attention on the host device, in double precision. In: a spec,
 * and arguments as for host_backward. Out: gradients, overwritten. The recurrence goes backwards by
 * step_back.c, from states that are kept at every root of n-th token and made again in between; the traced
 * functions by diff(), in a copy of the spec's pool that dies with the call.
 */
#include "gen/base/diag.h"
#include "gen/linear/columns.h"
#include "gen/linear/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct linear_gradient { /* one call */
    struct host_gradient g;
    struct host_mod_graphs mods;
    struct host_graph function[LINEAR_FUNCTIONS];
    struct linear_head head;
    struct host_view dout, dq, dk, dv, dstate_out, dnorm_out, dstate, dnorm;
    struct linear_back back;
    int64_t span;            /* tokens between two states that are kept */
    double *kept, *kept_z;   /* [n / span + 1]: the states in front of them */
    double *made, *made_z;   /* [span]: the states in front of the tokens of one span */
    double *dq_sum, *dk_sum; /* [t, d]: of all heads that share them, before their mods */
    double *skip;            /* [t, d_v]: what output_mod gives to v */
    double *out;             /* [t, d_v]: o before output_mod, then its gradient */
    double *v;               /* [d_v]: scratch */
    double *of_key;          /* [d]: the same */
};

/* ---- graphs ------------------------------------------------------------------------------------------ */

/* A traced function of one root; its seed varies as the root does. */
static bool make_graph(struct host_graph *g, struct ir *ir, const struct ir_fn *fn, struct diag *diag)
{
    if (fn->n_roots == 0)
        return true;
    const bool channels = (ir->node[fn->root[0]].span & SPAN_DIM) != 0;
    const int seed = ir_param_of(ir, channels ? LEAF_DX : LEAF_DTOKEN);
    return host_graph_make(g, ir, fn->root, &seed, 1, -1, diag);
}

static bool make_graphs(struct linear_gradient *a, struct diag *diag)
{
    struct ir *ir = a->g.ir;
    bool ok = host_mod_graphs_make(&a->mods, ir, diag);
    for (int k = 0; k < LINEAR_FUNCTIONS && ok; k++)
        ok = make_graph(&a->function[k], ir, linear_function_of(ir, (enum linear_function)k), diag);
    return ok;
}

static void free_graphs(struct linear_gradient *a)
{
    host_mod_graphs_free(&a->mods);
    for (int k = 0; k < LINEAR_FUNCTIONS; k++)
        host_graph_free(&a->function[k]);
}

/* Gradients of a function's inputs, from that of what it gives, n numbers, at the token that linear_at has
   entered. */
static lathe_status function_back(struct linear_gradient *a, const struct host_graph *g, int n,
                                  const double *seed, lathe_error *err)
{
    struct eval_env *env = &a->head.vector.env;
    if (g->adjoint.n == 0)
        return LATHE_OK;
    env->n = n;
    env->at_axis[AT_I] = env->at_axis[AT_J] = a->head.vector.index;
    env->param[LEAF_DX] = env->param[LEAF_DTOKEN] = seed;
    const lathe_status status = host_eval(env, g->eval, g->n_eval, err);
    return status == LATHE_OK ? host_scatter(&a->g, g, env, err) : status;
}

static void add(double *to, const double *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i] += from[i];
}

/* What flows back to a slot, so many numbers: one where its formula is the same for all channels. */
static int seeds_of(const struct linear_gradient *a, int slot)
{
    const struct ir_fn *fn = &a->g.ir->linear.slot[slot];
    const int n = a->head.x.width[slot];
    double *seed = a->back.slot[slot];
    if (n == 0 || fn->n_roots == 0 || (a->g.ir->node[fn->root[0]].span & SPAN_DIM) != 0)
        return n;
    for (int i = 1; i < n; i++)
        seed[0] += seed[i];
    return 1;
}

/* To the key that a slot has just been evaluated at. */
static void key_back(struct linear_gradient *a, int slot)
{
    if (a->function[slot + 1].adjoint.n == 0 || !linear_slot_sees_key((enum linear_function)(slot + 1)))
        return;
    host_graph_values(&a->function[slot + 1], &a->head.vector.env, LEAF_X, a->head.x.d, a->of_key);
    add(a->back.dk, a->of_key, a->head.x.d);
}

/* Of the slots that vary by token, whose key is at `key`, or of the others. `decays`: the step is the first
   of its token. */
static lathe_status slots_back(struct linear_gradient *a, const double *key, bool decays, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    const bool writes = decays || a->head.x.queries == 1;
    for (int k = 0; k < LINEAR_SLOTS && status == LATHE_OK; k++) {
        if (linear_slot_by_token(k) != (key != NULL) || (key && !(k == OF_DECAY - 1 ? decays : writes)))
            continue;
        a->head.vector.env.param[LEAF_X] = key;
        const int n = seeds_of(a, k);
        status = function_back(a, &a->function[k + 1], n, a->back.slot[k], err);
        if (status == LATHE_OK)
            key_back(a, k);
    }
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static bool take_memory(struct linear_gradient *a)
{
    const struct linear_tokens *x = &a->head.x;
    const int64_t t = host_dim(&a->g.call, SYM_T) * x->steps;
    const int64_t state = (int64_t)x->d * x->d_v;
    struct linear_back *b = &a->back;
    a->span = (int64_t)ceil(sqrt((double)t)) + 1;
    const struct {
        double **to;
        int64_t n;
    } block[] = {
        {&b->ds, state},
        {&b->dz, x->d},
        {&b->dq, x->d},
        {&b->dk, x->d},
        {&b->dv, x->d_v},
        {&b->s, state},
        {&b->z, x->d},
        {&b->decayed, state},
        {&b->z_decayed, x->d},
        {&b->dnum, x->d_v},
        {&b->dvalue, x->d_v},
        {&b->dseen, x->d_v},
        {&a->kept, (t / a->span + 1) * state},
        {&a->made, a->span * state},
        {&a->kept_z, (t / a->span + 1) * x->d},
        {&a->made_z, a->span * x->d},
        {&a->dq_sum, t * x->d},
        {&a->dk_sum, t * x->d},
        {&a->skip, t * x->d_v},
        {&a->out, t * x->d_v},
        {&a->v, x->d_v},
        {&a->of_key, x->d},
    };
    bool all = true;
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        all &= (*block[i].to = calloc((size_t)block[i].n + 1, sizeof(double))) != NULL;
    for (int k = 0; k < LINEAR_SLOTS; k++)
        all &= (b->slot[k] = calloc((size_t)x->width[k] + 1, sizeof *b->slot[k])) != NULL;
    return all;
}

static void free_memory(struct linear_gradient *a)
{
    struct linear_back *b = &a->back;
    double *const block[] = {b->ds,   b->dz,      b->dq,        b->dk,     b->dv,     b->s,
                             b->z,    b->decayed, b->z_decayed, b->dnum,   b->dvalue, a->kept,
                             a->made, a->kept_z,  a->made_z,    a->dq_sum, a->dk_sum, a->skip,
                             a->out,  a->v,       b->dseen,     a->of_key};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        free(b->slot[k]);
    linear_head_free(&a->head);
}

/* ---- output_mod -------------------------------------------------------------------------------------- */

static lathe_status output_stages_back(struct linear_gradient *a, double *grad, double *skip,
                                       lathe_error *err)
{
    const struct ir_mod *mod = &a->g.ir->mod[MOD_OUTPUT];
    struct host_vectors *vector = &a->head.vector;
    const int n = a->head.x.d_v;
    lathe_status status = LATHE_OK;
    for (int s = mod->n_stages - 1; s >= 0 && status == LATHE_OK; s--) {
        const struct host_graph *g = &a->mods.stage[MOD_OUTPUT][s];
        status = host_stage_back(vector, &a->g, &mod->stage[s], g, n, vector->stage[s], grad, err);
        if (status != LATHE_OK || mod->stage[s].form != STAGE_ELEMENT)
            continue;
        host_graph_values(g, &vector->env, LEAF_V, n, a->back.dnum); /* a->v is read by the stages before */
        add(skip, a->back.dnum, n);
    }
    return status;
}

/* a->out of a token: o before output_mod becomes its gradient. */
static lathe_status output_back(struct linear_gradient *a, int64_t t, lathe_error *err)
{
    struct linear_head *head = &a->head;
    const int n = head->x.d_v;
    double *grad = a->out + t * n;
    double *skip = a->skip + t * n;
    memset(skip, 0, (size_t)n * sizeof *skip);
    if (!linear_ends(&head->x, t)) { /* nobody has seen it */
        memset(grad, 0, (size_t)n * sizeof *grad);
        return LATHE_OK;
    }
    const lathe_status status = linear_output(head, t, grad, a->v, err);
    host_view_load(&a->dout, head->b, linear_query_head(head, head->h, t), linear_token_row(head, t), n,
                   grad);
    return status == LATHE_OK ? output_stages_back(a, grad, skip, err) : status;
}

/* ---- the recurrence ---------------------------------------------------------------------------------- */

static void copy_state(const struct linear_gradient *a, double *to, double *to_z)
{
    const struct linear_tokens *x = &a->head.x;
    memcpy(to, a->head.s, (size_t)x->d * (size_t)x->d_v * sizeof *to);
    memcpy(to_z, a->head.z, (size_t)x->d * sizeof *to_z);
}

/* o of all tokens before output_mod, and the states that are kept. */
static void forward_again(struct linear_gradient *a)
{
    struct linear_head *head = &a->head;
    const struct linear_tokens *x = &head->x;
    const int64_t state = (int64_t)x->d * x->d_v;
    for (int64_t i = 0; i < x->n; i++) {
        const int64_t t = linear_token(x, i);
        if (i % a->span == 0 && !x->all_tokens)
            copy_state(a, a->kept + i / a->span * state, a->kept_z + i / a->span * x->d);
        if (x->all_tokens)
            linear_update(x, t, head->s, head->z);
        else
            linear_step(x, t, head->s, head->z, a->out + t * x->d_v);
    }
    for (int64_t t = 0; t < x->n && x->all_tokens; t++)
        linear_read(x, t, head->s, head->z, a->out + t * x->d_v);
}

/* The states in front of `n` tokens from step `first` on. */
static void make_states(struct linear_gradient *a, int64_t first, int64_t n)
{
    struct linear_head *head = &a->head;
    const struct linear_tokens *x = &head->x;
    const int64_t state = (int64_t)x->d * x->d_v;
    memcpy(head->s, a->kept + first / a->span * state, (size_t)state * sizeof *head->s);
    memcpy(head->z, a->kept_z + first / a->span * x->d, (size_t)x->d * sizeof *head->z);
    for (int64_t i = 0; i < n; i++) {
        copy_state(a, a->made + i * state, a->made_z + i * x->d);
        linear_update(x, linear_token(x, first + i), head->s, head->z);
    }
}

/* What a token's step gave goes on to the inputs, to v and to the sums of q and k. */
static lathe_status token_out(struct linear_gradient *a, int64_t t, lathe_error *err)
{
    struct linear_head *head = &a->head;
    const struct linear_tokens *x = &head->x;
    struct linear_back *b = &a->back;
    linear_at(head, t);
    lathe_status status = slots_back(a, x->k + t * x->d, linear_begins(x, t), err);
    if (status != LATHE_OK)
        return status;
    add(a->dq_sum + t * x->d, b->dq, x->d);
    if (x->queries > 1 && !linear_begins(x, t)) /* it has read alone */
        return LATHE_OK;
    add(a->dk_sum + t * x->d, b->dk, x->d);
    host_view_load(&head->v_in, head->b, head->h, linear_update_row(head, t), x->d_v, head->vector.stage[0]);
    status = host_mod(&head->vector, MOD_VALUE, x->d_v, err);
    if (status == LATHE_OK)
        status = host_mod_back(&head->vector, &a->g, &a->mods, MOD_VALUE, x->d_v, b->dv, err);
    if (status == LATHE_OK && a->dv.data) {
        add(b->dv, a->skip + t * x->d_v, x->d_v);
        host_view_store(&a->dv, head->b, head->h, linear_update_row(head, t), x->d_v, b->dv);
    }
    return status;
}

static lathe_status steps_back(struct linear_gradient *a, lathe_error *err)
{
    const struct linear_tokens *x = &a->head.x;
    const int64_t state = (int64_t)x->d * x->d_v;
    lathe_status status = LATHE_OK;
    for (int64_t end = x->n; end > 0 && status == LATHE_OK;) {
        const int64_t first = (end - 1) / a->span * a->span;
        make_states(a, first, end - first);
        for (int64_t i = end - 1; i >= first && status == LATHE_OK; i--) {
            const int64_t t = linear_token(x, i);
            linear_step_back(x, t, a->made + (i - first) * state, a->made_z + (i - first) * x->d,
                             a->out + t * x->d_v, &a->back);
            status = token_out(a, t, err);
        }
        end = first;
    }
    return status;
}

static lathe_status all_back(struct linear_gradient *a, lathe_error *err)
{
    const struct linear_tokens *x = &a->head.x;
    lathe_status status = LATHE_OK;
    for (int64_t t = 0; t < x->n; t++) {
        linear_all_read_back(x, t, a->head.s, a->head.z, a->out + t * x->d_v, &a->back);
        add(a->dq_sum + t * x->d, a->back.dq, x->d);
    }
    for (int64_t t = 0; t < x->n && status == LATHE_OK; t++) {
        linear_all_add_back(x, t, &a->back);
        status = token_out(a, t, err);
    }
    return status;
}

/* ---- a head ------------------------------------------------------------------------------------------ */

/* The gradient of the state behind the last token; 0 where nobody gives it. */
static void load_state_seeds(struct linear_gradient *a)
{
    const struct linear_head *head = &a->head;
    const struct linear_tokens *x = &head->x;
    struct linear_back *b = &a->back;
    memset(b->ds, 0, (size_t)x->d * (size_t)x->d_v * sizeof *b->ds);
    memset(b->dz, 0, (size_t)x->d * sizeof *b->dz);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        memset(b->slot[k], 0, (size_t)x->width[k] * sizeof *b->slot[k]);
    b->scale = 0;
    const int64_t slot = head->slot_out[head->sequence];
    for (int i = 0; i < x->d && a->dstate_out.data && slot >= 0; i++)
        host_view_load(&a->dstate_out, slot, head->h, i, x->d_v, b->ds + i * x->d_v);
    if (a->dnorm_out.data && slot >= 0)
        host_view_load(&a->dnorm_out, 0, slot, head->h, x->d, b->dz);
}

static lathe_status head_out(struct linear_gradient *a, lathe_error *err)
{
    const struct linear_head *head = &a->head;
    const struct linear_tokens *x = &head->x;
    struct linear_back *b = &a->back;
    const int64_t slot = head->slot[head->sequence];
    for (int i = 0; i < x->d && a->dstate.data && slot >= 0; i++)
        host_view_store(&a->dstate, slot, head->h, i, x->d_v, b->ds + i * x->d_v);
    if (a->dnorm.data && slot >= 0)
        host_view_store(&a->dnorm, 0, slot, head->h, x->d, b->dz);
    linear_at(&a->head, 0);
    const lathe_status status = slots_back(a, NULL, false, err);
    return status == LATHE_OK ? function_back(a, &a->function[OF_SCALE], 1, &b->scale, err) : status;
}

static lathe_status unit_back(struct linear_gradient *a, int64_t sequence, int64_t h, lathe_error *err)
{
    lathe_status status = linear_head_enter(&a->head, sequence, h, err);
    if (status != LATHE_OK)
        return status;
    load_state_seeds(a);
    forward_again(a);
    for (int64_t t = 0; t < a->head.x.n && status == LATHE_OK; t++)
        status = output_back(a, t, err);
    if (status == LATHE_OK)
        status = a->head.x.all_tokens ? all_back(a, err) : steps_back(a, err);
    return status == LATHE_OK ? head_out(a, err) : status;
}

/* The sums of the heads that share q and k, through the mod, and out. */
static lathe_status shared_out(struct linear_gradient *a, enum mod which, const struct host_view *in,
                               const struct host_view *out, double *sum, lathe_error *err)
{
    struct linear_head *head = &a->head;
    const int n = head->x.d;
    lathe_status status = LATHE_OK;
    for (int64_t t = 0; t < head->x.n && status == LATHE_OK; t++) {
        const bool query = which == MOD_QUERY;
        const int64_t row = query ? linear_token_row(head, t) : linear_update_row(head, t);
        const int64_t h = query ? linear_query_head(head, head->h_k, t) : head->h_k;
        if (query ? !linear_ends(&head->x, t) : head->x.queries > 1 && !linear_begins(&head->x, t))
            continue;
        linear_at(head, t);
        if (in->data)
            host_view_load(in, head->b, h, row, n, head->vector.stage[0]);
        status = host_mod(&head->vector, which, n, err);
        if (status == LATHE_OK)
            status = host_mod_back(&head->vector, &a->g, &a->mods, which, n, sum + t * n, err);
        if (status == LATHE_OK && out->data)
            host_view_store(out, head->b, h, row, n, sum + t * n);
    }
    return status;
}

/* The heads of a sequence that share q and k, as far as they count. */
static lathe_status group_back(struct linear_gradient *a, int64_t sequence, int64_t h_k, lathe_error *err)
{
    const struct host_call *call = &a->g.call;
    const int64_t group = host_dim(call, SYM_H) / host_dim(call, SYM_H_K);
    const int64_t base = sequence * host_dim(call, SYM_H);
    const int64_t end = base + (h_k + 1) * group;
    const size_t bytes = (size_t)(linear_head_tokens(&a->head, sequence) * a->head.x.d) * sizeof(double);
    int64_t unit = host_next_row(call, base + h_k * group, end);
    if (unit >= end)
        return LATHE_OK;
    memset(a->dq_sum, 0, bytes);
    memset(a->dk_sum, 0, bytes);
    lathe_status status = LATHE_OK;
    for (; unit < end && status == LATHE_OK; unit = host_next_row(call, unit + 1, end))
        status = unit_back(a, sequence, unit - base, err);
    if (status == LATHE_OK)
        status = shared_out(a, MOD_QUERY, &a->head.q_in, &a->dq, a->dq_sum, err);
    return status == LATHE_OK ? shared_out(a, MOD_KEY, &a->head.k_in, &a->dk, a->dk_sum, err) : status;
}

/* ---- the pass ---------------------------------------------------------------------------------------- */

static void open_views(struct linear_gradient *a)
{
    const struct host_call *call = &a->g.call;
    host_view_make(&a->dout, host_arg(call, "do"), 4);
    host_view_make(&a->dq, host_arg(call, "dq"), 4);
    host_view_make(&a->dk, host_arg(call, "dk"), 4);
    host_view_make(&a->dv, host_arg(call, "dv"), 4);
    host_view_make(&a->dstate_out, host_arg(call, "dstate_out"), 4);
    host_view_make(&a->dnorm_out, host_arg(call, "dnorm_out"), 4);
    host_view_make(&a->dstate, host_arg(call, "dstate"), 4);
    host_view_make(&a->dnorm, host_arg(call, "dnorm"), 4);
}

static lathe_status every_group(struct linear_gradient *a, lathe_error *err)
{
    const struct host_call *call = &a->g.call;
    const int64_t n_h_k = host_dim(call, SYM_H_K);
    lathe_status status = linear_head_init(&a->head, call, err);
    open_views(a);
    if (status == LATHE_OK && !take_memory(a))
        status = host_out_of_memory(err);
    for (int64_t i = 0; i < host_dim(call, SYM_SEQS) * n_h_k && status == LATHE_OK; i++)
        status = group_back(a, i / n_h_k, i % n_h_k, err);
    free_memory(a);
    return status;
}

lathe_status host_linear_backward(const struct host_request *r, lathe_error *err)
{
    struct linear_gradient a = {.span = 1};
    struct diag diag = {0};
    lathe_status status = host_gradient_open(&a.g, r, err);
    if (status == LATHE_OK && !make_graphs(&a, &diag))
        status = host_refused(&diag, err);
    if (status == LATHE_OK)
        status = host_gradient_bind(&a.g, r, err);
    if (status == LATHE_OK)
        status = every_group(&a, err);
    if (status == LATHE_OK)
        host_gradient_store(&a.g);
    free_graphs(&a);
    host_gradient_close(&a.g);
    return status;
}
