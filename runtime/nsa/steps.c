/*
 * steps.c: the arguments of each step of native sparse attention. In: sizes, where buffers lie in the
 * workspace, the caller's tensors. Out: names with data and shapes. All of them work on tensors of tokens, of
 * chunks (blocks of keys, of which a sequence's last may be short) and of weights [h_kv, tokens, chunks].
 */
#include "runtime/nsa/nsa.h"

#include <string.h>

lathe_dtype lathe__nsa_wide(const struct lathe_nsa *n)
{
    return n->s.dtype == LATHE_F64 ? LATHE_F64 : LATHE_F32;
}

/* NULL as long as no workspace is there. */
static void *in_workspace(const struct lathe_nsa *n, enum nsa_buffer of)
{
    return n->workspace ? n->workspace + n->offset[of] : NULL;
}

static void *chosen_blocks(const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    return t->blocks ? t->blocks : in_workspace(n, BLOCKS);
}

/* A key, or a value, of each block: means, or what the caller has made. */
static void *key_of_blocks(const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    return n->s.compressed ? t->k_cmp : in_workspace(n, K_MEAN);
}

static void *value_of_blocks(const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    return n->s.compressed ? t->v_cmp : in_workspace(n, V_MEAN);
}

/* stride NULL: compact. */
static void add(struct nsa_call *c, const char *name, void *data, lathe_dtype dtype, int ndim,
                const int64_t *shape, const int64_t *stride)
{
    const int i = c->n++;
    if (ndim > 0)
        memcpy(c->shape[i], shape, (size_t)ndim * sizeof *shape);
    if (stride)
        memcpy(c->stride[i], stride, (size_t)ndim * sizeof *stride);
    c->arg[i] = (lathe_arg){name, data, dtype, ndim, c->shape[i], stride ? c->stride[i] : NULL};
}

/* [tokens, heads, d], as attention takes it: of each sequence of the batch. */
static void add_heads(struct nsa_call *c, const char *name, const struct lathe_nsa *n, void *data,
                      int64_t tokens, int heads, int d)
{
    const int64_t each = tokens / n->batch;
    const int64_t shape[4] = {n->batch, heads, each, d};
    const int64_t stride[4] = {each * heads * d, d, (int64_t)heads * d, 1};
    add(c, name, data, n->s.dtype, 4, shape, stride);
}

static void add_list(struct nsa_call *c, const char *name, const struct lathe_nsa *n, enum nsa_buffer of,
                     int64_t length)
{
    add(c, name, in_workspace(n, of), LATHE_I32, 1, &length, NULL);
}

/* An i32 for each token, the same for all key heads. */
static void add_rows(struct nsa_call *c, const char *name, const struct lathe_nsa *n, enum nsa_buffer of)
{
    const int64_t shape[2] = {n->s.h_kv, n->tokens};
    const int64_t stride[2] = {0, 1};
    add(c, name, in_workspace(n, of), LATHE_I32, 2, shape, stride);
}

static void add_queries(struct nsa_call *c, const char *name, const struct lathe_nsa *n, void *data)
{
    add_heads(c, name, n, data, n->tokens, n->s.h, n->s.d);
}

static void add_outputs(struct nsa_call *c, const char *name, const struct lathe_nsa *n, void *data)
{
    add_heads(c, name, n, data, n->tokens, n->s.h, n->s.d_v);
}

/* Those of a sequence's tokens for its own chunks, out of [h_kv, tokens, chunks]. */
static void add_weights(struct nsa_call *c, const char *name, const struct lathe_nsa *n)
{
    const int64_t t = n->tokens / n->batch;
    const int64_t own = n->chunks / n->batch;
    const int64_t shape[4] = {n->batch, n->s.h_kv, t, own};
    const int64_t stride[4] = {t * n->chunks + own, n->tokens * n->chunks, n->chunks, 1};
    add(c, name, in_workspace(n, WEIGHT), lathe__nsa_wide(n), 4, shape, stride);
}

static void add_lse(struct nsa_call *c, const struct lathe_nsa *n, enum nsa_buffer of)
{
    const int64_t t = n->tokens / n->batch;
    const int64_t shape[3] = {n->batch, n->s.h, t};
    add(c, "lse", in_workspace(n, of), lathe__nsa_wide(n), 3, shape, NULL);
}

static void add_blocks(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    const int64_t each = n->tokens / n->batch;
    const int64_t shape[4] = {n->batch, n->s.h_kv, each, n->s.blocks};
    const int64_t stride[4] = {each * n->s.blocks, n->tokens * n->s.blocks, n->s.blocks, 1};
    add(c, "blocks", chosen_blocks(n, t), LATHE_I32, 4, shape, stride);
}

/* ---- the steps ------------------------------------------------------------------------------------- */

/* Means over chunks of k or v, or their way back. */
static void pool(struct nsa_call *c, const struct lathe_nsa *n, void *values, enum nsa_buffer mean, int width,
                 enum nsa_buffer back, bool backward)
{
    const int64_t all[2] = {n->tokens, (int64_t)n->s.h_kv * width};
    const int64_t means[2] = {n->chunks, (int64_t)n->s.h_kv * width};
    add(c, "values", values, n->s.dtype, 2, all, NULL);
    add_list(c, "first", n, FIRST, n->chunks);
    add_list(c, "length", n, LENGTH, n->chunks);
    add_list(c, "place", n, PLACE, n->s.block);
    add(c, backward ? "dmean" : "mean", in_workspace(n, mean), n->s.dtype, 2, means, NULL);
    if (backward)
        add(c, "dvalues", in_workspace(n, back), lathe__nsa_wide(n), 2, all, NULL);
}

/* q, k, v, o, lse of a branch, and where its sequences lie. */
static void branch(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t,
                   enum nsa_step of)
{
    const bool means = of == COMPRESSED;
    const int64_t keys = means ? n->chunks : n->tokens;
    const unsigned which = of == COMPRESSED ? 0 : of == SELECTED ? 1 : 2;
    add_queries(c, "q", n, t->q);
    add_heads(c, "k", n, means ? key_of_blocks(n, t) : t->k, keys, n->s.h_kv, n->s.d);
    add_heads(c, "v", n, means ? value_of_blocks(n, t) : t->v, keys, n->s.h_kv, n->s.d_v);
    add_outputs(c, "o", n, in_workspace(n, O_CMP + which));
    add_lse(c, n, (enum nsa_buffer)(LSE_CMP + which));
    if (n->batch != n->s.sequences)
        add_list(c, "cu_q", n, CU, n->s.sequences + 1);
    if (n->batch != n->s.sequences && means)
        add_list(c, "cu_kv", n, CHUNK, n->s.sequences + 1);
    if (of == SELECTED)
        add_blocks(c, n, t);
    if (of == WINDOW)
        add(c, "window", (void *)&n->s.window, LATHE_I32, 0, NULL, NULL);
}

static void branch_back(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t,
                        enum nsa_step of)
{
    const bool means = of == COMPRESSED;
    const int64_t keys = means ? n->chunks : n->tokens;
    const unsigned which = of == COMPRESSED ? 0 : of == SELECTED ? 1 : 2;
    branch(c, n, t, of);
    add_outputs(c, "do", n, in_workspace(n, DO_CMP + which));
    add_queries(c, "dq", n, in_workspace(n, DQ_CMP + which));
    const enum nsa_buffer dk = which == 0 ? DK_MEAN : which == 1 ? DK_SLC : DK_SWA;
    const enum nsa_buffer dv = which == 0 ? DV_MEAN : which == 1 ? DV_SLC : DV_SWA;
    const bool own = means && n->s.compressed;
    add_heads(c, "dk", n, own ? t->dk_cmp : in_workspace(n, dk), keys, n->s.h_kv, n->s.d);
    add_heads(c, "dv", n, own ? t->dv_cmp : in_workspace(n, dv), keys, n->s.h_kv, n->s.d_v);
}

static void weigh(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    const int64_t each = n->tokens / n->batch;
    const int64_t rows[4] = {n->batch, n->s.h, each, n->s.d_v};
    const int64_t one_row[4] = {0, 0, 0, 1};
    const int64_t one[3] = {0, 0, 0};
    branch(c, n, t, COMPRESSED);
    add(c, "do", in_workspace(n, ZERO), n->s.dtype, 4, rows, one_row);
    add(c, "dlse", in_workspace(n, ONE), lathe__nsa_wide(n), 3, rows, one);
    const int64_t all[4] = {n->batch, n->s.h_kv, each, n->chunks / n->batch};
    const int64_t one_zero[4] = {0, 0, 0, 0};
    add(c, "importance", in_workspace(n, ZERO), lathe__nsa_wide(n), 4, all, one_zero);
    add_weights(c, "dimportance", n);
}

static void choose(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t)
{
    const int64_t weights[3] = {n->s.h_kv, n->tokens, n->chunks};
    const int64_t chosen[3] = {n->s.h_kv, n->tokens, n->s.blocks};
    add(c, "x", in_workspace(n, WEIGHT), lathe__nsa_wide(n), 3, weights, NULL);
    add_rows(c, "own", n, OWN);
    add_rows(c, "first", n, OWN_FIRST);
    if (n->s.counts)
        add(c, "counts", t->counts, LATHE_I32, 2, chosen, NULL);
    add(c, "blocks", chosen_blocks(n, t), LATHE_I32, 3, chosen, NULL);
}

static void gates(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t, bool backward)
{
    static const char *const o[] = {"o_cmp", "o_slc", "o_swa"};
    static const char *const g[] = {"g_cmp", "g_slc", "g_swa"};
    static const char *const dout[] = {"do_cmp", "do_slc", "do_swa"};
    static const char *const dg[] = {"dg_cmp", "dg_slc", "dg_swa"};
    void *const gate[] = {t->g_cmp, t->g_slc, t->g_swa};
    void *const gate_back[] = {t->dg_cmp, t->dg_slc, t->dg_swa};
    const int64_t each = n->tokens / n->batch;
    const int64_t shape[3] = {n->batch, n->s.h, each};
    const int64_t stride[3] = {n->s.h * each, 1, n->s.h};
    for (unsigned i = 0; i < 3; i++) {
        add_outputs(c, o[i], n, in_workspace(n, O_CMP + i));
        add(c, g[i], gate[i], n->s.dtype, 3, shape, stride);
        if (backward) {
            add_outputs(c, dout[i], n, in_workspace(n, DO_CMP + i));
            add(c, dg[i], gate_back[i], lathe__nsa_wide(n), 3, shape, stride);
        }
    }
    add_outputs(c, backward ? "do" : "o", n, backward ? t->dout : t->o);
}

/* The branches' gradients of q, k or v; where the caller compresses, the first has none of k and v. */
static void sum(struct nsa_call *c, const struct lathe_nsa *n, int width, enum nsa_buffer first,
                lathe_dtype of_first, void *to)
{
    const int64_t shape[2] = {n->tokens, width};
    if (first == DQ_CMP || !n->s.compressed)
        add(c, "a", in_workspace(n, first), of_first, 2, shape, NULL);
    add(c, "b", in_workspace(n, first + 1), n->s.dtype, 2, shape, NULL);
    add(c, "c", in_workspace(n, first + 2), n->s.dtype, 2, shape, NULL);
    add(c, "y", to, n->s.dtype, 2, shape, NULL);
}

void lathe__nsa_arguments(struct nsa_call *c, const struct lathe_nsa *n, const lathe_nsa_tensors *t,
                          enum nsa_step step)
{
    const lathe_nsa_sizes *s = &n->s;
    c->n = 0;
    switch (step) {
    case POOL_K:
        pool(c, n, t->k, K_MEAN, s->d, BUFFERS, false);
        break;
    case POOL_V:
        pool(c, n, t->v, V_MEAN, s->d_v, BUFFERS, false);
        break;
    case COMPRESSED:
        branch(c, n, t, COMPRESSED);
        break;
    case WEIGHTS:
        weigh(c, n, t);
        break;
    case SELECT:
        choose(c, n, t);
        break;
    case SELECTED:
        branch(c, n, t, SELECTED);
        break;
    case WINDOW:
        branch(c, n, t, WINDOW);
        break;
    case GATES:
        gates(c, n, t, false);
        break;
    case GATES_BACK:
        gates(c, n, t, true);
        break;
    case COMPRESSED_BACK:
        branch_back(c, n, t, COMPRESSED);
        break;
    case SELECTED_BACK:
        branch_back(c, n, t, SELECTED);
        break;
    case WINDOW_BACK:
        branch_back(c, n, t, WINDOW);
        break;
    case POOL_K_BACK:
        pool(c, n, t->k, DK_MEAN, s->d, DK_CMP, true);
        break;
    case POOL_V_BACK:
        pool(c, n, t->v, DV_MEAN, s->d_v, DV_CMP, true);
        break;
    case SUM_Q:
        sum(c, n, s->h * s->d, DQ_CMP, s->dtype, t->dq);
        break;
    case SUM_K:
        sum(c, n, s->h_kv * s->d, DK_CMP, lathe__nsa_wide(n), t->dk);
        break;
    case SUM_V:
        sum(c, n, s->h_kv * s->d_v, DV_CMP, lathe__nsa_wide(n), t->dv);
        break;
    case STEPS:
        break;
    }
}
