/*
 * host.c: forward of attention on the host, a row at a time, and the pieces of a row that the
 * backward pass shares (host.h). In: a bound call. Out: o and finals, written into the arguments.
 * Keys and values are converted and modified once per (b, h_kv): 8 * len_kv * (d + d_v) bytes, owned by
 * struct host_head and freed by host_head_free. Products run over live pairs only.
 */
#include "gen/attention/columns.h"
#include "gen/attention/host/host_parts.h"
#include "gen/attention/sequences.h"
#include "gen/host/rows.h"
#include "gen/host/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory of a head ------------------------------------------------------------------------ */

/* Zero doubles are one, so that NULL means out of memory. */
static double *doubles(int64_t n)
{
    return malloc((size_t)(n > 0 ? n : 1) * sizeof(double));
}

/* at.kv of every key. */
static double *key_places(const struct host_call *call, int64_t n)
{
    double *v = doubles(n);
    for (int64_t i = 0; v && i < n; i++)
        v[i] = (double)lathe__place_of_key(&call->keys, i);
    return v;
}

static bool allocate(struct host_head *head)
{
    head->k = doubles(head->len_kv * head->d);
    head->v = doubles(head->len_kv * head->d_v);
    head->q = doubles(head->d);
    head->live = malloc((size_t)(head->len_kv + 1) * sizeof *head->live);
    head->kv = doubles(head->len_kv);
    head->qk = doubles(head->len_kv);
    head->scaled = doubles(head->len_kv);
    head->s = doubles(head->len_kv);
    head->every_kv = key_places(head->call, head->len_kv);
    return head->k && head->v && head->q && head->live && head->kv && head->qk && head->scaled && head->s &&
           head->every_kv;
}

void host_head_free(struct host_head *head)
{
    double *const block[] = {head->k,  head->v,      head->q, head->kv,
                             head->qk, head->scaled, head->s, head->every_kv};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
    free(head->live);
    eval_free(&head->pair);
    host_vectors_close(&head->vector);
    memset(head, 0, sizeof *head);
}

lathe_status host_head_init(struct host_head *head, const struct host_call *call, lathe_error *err)
{
    memset(head, 0, sizeof *head);
    head->call = call;
    host_view_make(&head->q_in, host_arg(call, "q"), 4);
    host_view_make(&head->k_in, host_arg(call, "k"), 4);
    host_view_make(&head->v_in, host_arg(call, call->ir->v_is_k ? "k" : "v"), 4);
    head->len_q = host_dim(call, SYM_Q);
    head->len_kv = host_dim(call, SYM_KV);
    head->page = call->problem.paged ? host_dim(call, SYM_PAGE) : 0;
    head->d1 = (int)host_dim(call, SYM_D);
    head->d = head->d1;
    if (call->ir->qk2) {
        host_view_make(&head->q2_in, host_arg(call, "q2"), 4);
        host_view_make(&head->k2_in, host_arg(call, "k2"), 4);
        head->d += (int)host_dim(call, SYM_D2);
    }
    head->d_v = (int)host_dim(call, SYM_D_V);
    head->b = head->h = head->h_kv = head->row = -1;
    host_env_init(&head->pair, call, SPAN_KV);
    lathe_status status = host_vectors_open(&head->vector, call, head->d, head->d_v, err);
    if (status == LATHE_OK && !allocate(head))
        status = host_out_of_memory(err);
    if (status != LATHE_OK)
        host_head_free(head);
    return status;
}

/* ---- vector mods ----------------------------------------------------------------------------- */

/* Query heads per key head. */
static int64_t group(const struct host_call *call)
{
    return host_dim(call, SYM_H) / host_dim(call, SYM_H_KV);
}

void host_at_head(double *at, const struct host_call *call, int64_t h)
{
    at[AT_H] = (double)(h + call->h_start);
    at[AT_H_KV] = (double)((h + call->h_start) / group(call));
}

void host_mod_enter(struct host_head *head, enum mod which, int64_t b, int64_t tensor_head, int64_t token)
{
    const bool of_query = which == MOD_QUERY || which == MOD_OUTPUT;
    const int64_t position =
        of_query ? token + head->call->q_start : lathe__place_of_key(&head->call->keys, token);
    double *at = head->vector.env.at;
    at[AT_B] = (double)(head->call->sequence + b);
    if (of_query)
        host_at_head(at, head->call, tensor_head);
    else
        at[AT_H] = at[AT_H_KV] = (double)(tensor_head + head->call->h_start / group(head->call));
    at[AT_POS] = (double)position;
    if (of_query) {
        at[AT_ROW] = (double)token;
        at[AT_Q] = (double)position;
    } else {
        at[AT_KV] = (double)position;
    }
}

void host_token(const struct host_head *head, enum mod which, const struct host_view *view, int64_t b,
                int64_t tensor_head, int64_t token, int n, double *out)
{
    const bool paged = head->page > 0 && (which == MOD_KEY || which == MOD_VALUE);
    const int64_t first = paged ? head->call->page[token / head->page] : b;
    host_view_load(view, first, tensor_head, paged ? token % head->page : token, n, out);
}

/* Token `token` of a tensor, after its mod. */
static lathe_status load_token(struct host_head *head, enum mod which, const struct host_view *view,
                               int64_t b, int64_t tensor_head, int64_t token, int n, double *out,
                               lathe_error *err)
{
    const int n_stages = head->call->ir->mod[which].n_stages;
    if (n_stages == 0) {
        host_token(head, which, view, b, tensor_head, token, n, out);
        return LATHE_OK;
    }
    host_token(head, which, view, b, tensor_head, token, n, head->vector.stage[0]);
    host_mod_enter(head, which, b, tensor_head, token);
    const lathe_status status = host_mod(&head->vector, which, n, err);
    if (status == LATHE_OK)
        memcpy(out, head->vector.stage[n_stages], (size_t)n * sizeof *out);
    return status;
}

/* Of q or k, whose elements q2 or k2 may go on with; mods are not of these. */
static lathe_status load_pair(struct host_head *head, enum mod which, int64_t b, int64_t tensor_head,
                              int64_t token, double *out, lathe_error *err)
{
    const bool key = which == MOD_KEY;
    const lathe_status status =
        load_token(head, which, key ? &head->k_in : &head->q_in, b, tensor_head, token, head->d1, out, err);
    if (head->d > head->d1)
        host_token(head, which, key ? &head->k2_in : &head->q2_in, b, tensor_head, token, head->d - head->d1,
                   out + head->d1);
    return status;
}

/* ---- a head ---------------------------------------------------------------------------------- */

static lathe_status load_keys(struct host_head *head, int64_t b, int64_t h_kv, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int64_t j = 0; j < head->len_kv && status == LATHE_OK; j++) {
        double *const k = head->k + j * head->d;
        double *const v = head->v + j * head->d_v;
        status = load_pair(head, MOD_KEY, b, h_kv, j, k, err);
        if (status == LATHE_OK && head->call->ir->v_is_k)
            memcpy(v, k, (size_t)head->d_v * sizeof *v);
        else if (status == LATHE_OK)
            status = load_token(head, MOD_VALUE, &head->v_in, b, h_kv, j, head->d_v, v, err);
    }
    return status;
}

lathe_status host_head_enter(struct host_head *head, int64_t b, int64_t h, lathe_error *err)
{
    const int64_t h_kv = h / group(head->call);
    if (b != head->b || h_kv != head->h_kv) {
        head->b = head->h = head->h_kv = -1; /* nothing, should this fail */
        const lathe_status status = load_keys(head, b, h_kv, err);
        if (status != LATHE_OK)
            return status;
    }
    head->b = b;
    head->h = h;
    head->h_kv = h_kv;
    head->row = -1;
    head->pair.at[AT_B] = (double)(head->call->sequence + b);
    host_at_head(head->pair.at, head->call, h);
    head->pair.n = 0;
    const lathe_status status = host_eval(&head->pair, head->call->ir->scale.root, 1, err);
    if (status == LATHE_OK)
        head->scale = host_value(&head->pair, head->call->ir->scale.root[0], 0);
    return status;
}

/* ---- a row ----------------------------------------------------------------------------------- */

/* The keys that the mask keeps. */
static lathe_status find_live(struct host_head *head, lathe_error *err)
{
    const struct ir_fn *mask = &head->call->ir->mask;
    head->pair.n = (int)head->len_kv;
    head->pair.at_axis[AT_KV] = head->every_kv;
    if (mask->n_roots > 0 && head->len_kv > 0) { /* without keys nothing may be read, by row neither */
        const lathe_status status = host_eval(&head->pair, mask->root, 1, err);
        if (status != LATHE_OK)
            return status;
    }
    head->n_live = 0;
    for (int64_t j = 0; j < head->len_kv; j++) {
        if (mask->n_roots > 0 && host_value(&head->pair, mask->root[0], j) == 0.0)
            continue;
        head->live[head->n_live] = j;
        head->kv[head->n_live++] = head->every_kv[j];
    }
    return LATHE_OK;
}

/* Kernels have scores in f32, whatever score_mod makes of them: a score beside a mask value of -1e9 has lost
   its digits, and a row that such values cover whole has equal weights. f64, which no kernel has, keeps them.
 */
static void round_scores(struct host_head *head)
{
    if (head->call->problem.dtype[DTYPE_Q] == LATHE_F64)
        return;
    for (int64_t j = 0; j < head->n_live; j++)
        head->s[j] = (double)(float)head->s[j];
}

static lathe_status score_pairs(struct host_head *head, lathe_error *err)
{
    const struct ir_fn *score = &head->call->ir->score;
    for (int64_t j = 0; j < head->n_live; j++) {
        head->qk[j] = row_dot(head->q, head->k + head->live[j] * head->d, head->d);
        head->scaled[j] = head->scale * head->qk[j];
    }
    head->pair.n = (int)head->n_live;
    head->pair.at_axis[AT_KV] = head->kv;
    head->pair.param[LEAF_QK] = head->qk;
    head->pair.param[LEAF_S] = head->scaled;
    lathe_status status = LATHE_OK;
    if (score->n_roots == 0 || head->n_live == 0)
        memcpy(head->s, head->scaled, (size_t)head->n_live * sizeof *head->s);
    else
        status = host_eval(&head->pair, score->root, 1, err);
    if (status == LATHE_OK && score->n_roots > 0 && head->n_live > 0)
        host_values(&head->pair, score->root[0], head->n_live, head->s);
    round_scores(head);
    head->pair.param[LEAF_S] = head->s;
    return status;
}

lathe_status host_row_enter(struct host_head *head, int64_t row, lathe_error *err)
{
    head->row = row;
    head->pair.at[AT_ROW] = (double)row;
    head->pair.at[AT_Q] = (double)(row + head->call->q_start);
    lathe_status status = load_pair(head, MOD_QUERY, head->b, head->h, row, head->q, err);
    if (status == LATHE_OK)
        status = find_live(head, err);
    if (status == LATHE_OK)
        status = score_pairs(head, err);
    return status;
}

/* ---- the pass -------------------------------------------------------------------------------- */

struct outputs {
    struct host_view o;
    struct host_view final[MAX_STATE]; /* as [b, h, q, 1] */
    struct host_part_views part;
    double *weight; /* [len_kv] */
};

lathe_status host_row_output(struct host_head *head, double factor, double **o, lathe_error *err)
{
    *o = head->vector.stage[0];
    for (int c = 0; c < head->d_v; c++)
        (*o)[c] *= factor;
    host_mod_enter(head, MOD_OUTPUT, head->b, head->h, head->row);
    const lathe_status status = host_mod(&head->vector, MOD_OUTPUT, head->d_v, err);
    *o = head->vector.stage[head->call->ir->mod[MOD_OUTPUT].n_stages];
    return status;
}

/* o of the row that was entered, into head->vector.stage[0]: 0 where no pair is live, whatever the output mod
 * says.
 */
static lathe_status row_output(struct host_head *head, double **o, double *weight, double *finals,
                               lathe_error *err)
{
    *o = head->vector.stage[0];
    memset(*o, 0, (size_t)head->d_v * sizeof **o);
    if (head->n_live == 0)
        return LATHE_OK;
    double factor = 1.0;
    lathe_status status = host_row_online(head, weight, &factor, finals, err);
    if (status != LATHE_OK)
        return status;
    host_row_values(*o, head, weight);
    return host_row_output(head, factor, o, err);
}

static lathe_status forward_row(struct host_head *head, struct outputs *out, int64_t row, lathe_error *err)
{
    double finals[MAX_STATE];
    lathe_status status = host_row_enter(head, row, err);
    if (out->part.o.data)
        return status == LATHE_OK ? host_part_row(head, &out->part, out->weight, err) : status;
    double *o = NULL;
    if (status == LATHE_OK && head->n_live == 0)
        status = host_row_empty(head, finals, err);
    if (status == LATHE_OK)
        status = row_output(head, &o, out->weight, finals, err);
    if (status != LATHE_OK)
        return status;
    if (out->o.data)
        host_view_store(&out->o, head->b, head->h, row, head->d_v, o);
    for (int i = 0; i < head->call->ir->n_finals; i++)
        if (out->final[i].data)
            host_view_store(&out->final[i], head->b, head->h, row, 1, &finals[i]);
    return LATHE_OK;
}

/* Of a call, or of a sequence of it: row `flat` is (b * n_h + h) * len_q + row. */
static lathe_status forward_flat(struct host_head *head, struct outputs *out, int64_t flat, lathe_error *err)
{
    const int64_t n_h = host_dim(head->call, SYM_H);
    const int64_t b = flat / head->len_q / n_h;
    const int64_t h = flat / head->len_q % n_h;
    if (b != head->b || h != head->h) {
        const lathe_status status = host_head_enter(head, b, h, err);
        if (status != LATHE_OK)
            return status;
    }
    return forward_row(head, out, flat % head->len_q, err);
}

int64_t host_attention_rows(const struct host_call *call)
{
    return host_dim(call, SYM_B) * host_dim(call, SYM_H) * host_dim(call, SYM_Q);
}

int64_t attention_count_rows(const struct problem *problem)
{
    return problem->dim[SYM_B] * problem->dim[SYM_H] * problem->dim[SYM_Q];
}

double attention_row_work(const struct problem *problem)
{
    return (double)problem->dim[SYM_KV] * (double)(problem->dim[SYM_D] + problem->dim[SYM_D_V]) + 1.0;
}

static lathe_status outputs_open(struct host_head *head, struct outputs *out, const struct host_call *call,
                                 lathe_error *err)
{
    *out = (struct outputs){.weight = NULL};
    const lathe_status status = host_head_init(head, call, err);
    if (status != LATHE_OK)
        return status;
    host_view_make(&out->o, host_arg(call, "o"), 4);
    host_view_make(&out->part.o, host_arg(call, "part_o"), 4);
    host_view_make(&out->part.rows, host_arg(call, "part_rows"), 4);
    for (int i = 0; i < call->ir->n_finals; i++)
        host_view_make(&out->final[i], host_arg(call, call->ir->final[i].name), 3);
    out->weight = doubles(head->len_kv);
    return out->weight ? LATHE_OK : host_out_of_memory(err);
}

static void outputs_close(struct host_head *head, struct outputs *out)
{
    free(out->weight);
    host_head_free(head);
}

static lathe_status forward_dense(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                  lathe_error *err)
{
    struct host_head head;
    struct outputs out;
    lathe_status status = outputs_open(&head, &out, call, err);
    for (int64_t i = 0; i < n_rows && status == LATHE_OK; i++)
        status = forward_flat(&head, &out, rows ? rows[i] : i, err);
    outputs_close(&head, &out);
    return status;
}

/* Where token `flat % tokens` of a head is in sequence i: its row there. */
static int64_t row_in_sequence(const struct sequences *s, const struct sequence *one, int64_t flat)
{
    const int64_t tokens = host_dim(s->call, SYM_Q);
    const int64_t h = flat / tokens % host_dim(s->call, SYM_H);
    const int64_t first = s->packed ? one->call.first_row : 0;
    return h * host_dim(&one->call, SYM_Q) + flat % tokens - first;
}

static lathe_status forward_sequences(const struct sequences *s, struct sequence *one, const int64_t *rows,
                                      int64_t n_rows, lathe_error *err)
{
    struct host_head head = {0};
    struct outputs out = {0};
    int64_t entered = -1;
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n_rows && status == LATHE_OK; i++) {
        const int64_t flat = rows ? rows[i] : i;
        const int64_t number = sequence_of_row(s, flat);
        if (i == 0 || number != entered) {
            outputs_close(&head, &out);
            sequence_enter(one, s, number);
            status = outputs_open(&head, &out, &one->call, err);
            entered = number;
        }
        if (status == LATHE_OK)
            status = forward_flat(&head, &out, row_in_sequence(s, one, flat), err);
    }
    outputs_close(&head, &out);
    return status;
}

lathe_status host_attention_forward(const struct host_call *call, const int64_t *rows, int64_t n_rows,
                                    lathe_error *err)
{
    struct sequences s;
    if (!sequences_given(call))
        return forward_dense(call, rows, n_rows, err);
    lathe_status status = sequences_open(&s, call, err);
    struct sequence *one = status == LATHE_OK ? malloc(sizeof *one) : NULL;
    if (status == LATHE_OK)
        status = one ? forward_sequences(&s, one, rows, n_rows, err) : host_out_of_memory(err);
    free(one);
    sequences_close(&s);
    return status;
}
