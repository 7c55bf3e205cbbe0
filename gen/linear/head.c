/*
 * head.c: a head of one sequence on the host device: where it begins, which state it has, and its tokens
 * after query_mod, key_mod and value_mod, with what the slots give. In: a bound call. Out: struct
 * linear_head, which owns t * (2 d + 2 d_v + ...) doubles; linear_head_free.
 */
#include "gen/ir/tensor.h"
#include "gen/linear/host.h"
#include "runtime/base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sequences ----------------------------------------------------------------------------------- */

static int64_t integer(const lathe_arg *arg, int64_t i)
{
    return (int64_t)dtype_load(arg->dtype, arg->data, i * tensor_stride(arg, 0));
}

static lathe_status require_packable(const struct host_call *call, lathe_error *err)
{
    char why[256];
    const int input = linear_reads_by_batch(call->ir);
    if (!host_arg(call, "cu") || input < 0)
        return LATHE_OK;
    linear_say_unpacked(call->ir, input, why, sizeof why);
    return lathe__fail(err, LATHE_UNSUPPORTED, "%s", why);
}

/* Tokens behind the last sequence are nobody's: o is not written there. A gradient would have to be. */
static lathe_status check_end(const struct linear_head *head, int64_t end, lathe_error *err)
{
    const int64_t t = host_dim(head->call, SYM_T);
    if (end == t || (end < t && !head->call->sig->backward))
        return LATHE_OK;
    return lathe__fail(err, LATHE_ARG, "argument 'cu': expected it to end at %st=%lld%s, given %lld",
                       head->call->sig->backward ? "" : "or before ", (long long)t,
                       end < t ? "; a backward pass takes tensors without tokens behind the last sequence"
                               : "",
                       (long long)end);
}

/* Without cu every batch is a sequence, which begins at token 0 of it. */
static lathe_status take_starts(struct linear_head *head, lathe_error *err)
{
    const lathe_arg *cu = host_arg(head->call, "cu");
    const int64_t n = host_dim(head->call, SYM_SEQS);
    for (int64_t i = 0; cu && i <= n; i++) {
        head->start[i] = integer(cu, i);
        const int64_t before = i > 0 ? head->start[i - 1] : 0;
        if (i == 0 && head->start[0] != 0)
            return lathe__fail(err, LATHE_ARG, "argument 'cu': expected it to begin at 0, given %lld",
                               (long long)head->start[0]);
        if (head->start[i] < before)
            return lathe__fail(err, LATHE_ARG,
                               "argument 'cu': expected places that do not fall, given %lld behind %lld "
                               "(sequence %lld)",
                               (long long)head->start[i], (long long)before, (long long)i - 1);
    }
    return cu ? check_end(head, head->start[n], err) : LATHE_OK;
}

struct owner {
    int64_t slot, sequence;
};

static int compare_owners(const void *a, const void *b)
{
    const struct owner *x = a;
    const struct owner *y = b;
    const int by_slot = (x->slot > y->slot) - (x->slot < y->slot);
    return by_slot != 0 ? by_slot : (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* No state of a pool is written by two sequences, or tokens. */
static lathe_status require_own_slots(const char *name, const char *whose, const int64_t *slot, int64_t n,
                                      lathe_error *err)
{
    struct owner *owner = calloc((size_t)n + 1, sizeof *owner);
    lathe_status status = LATHE_OK;
    if (!owner)
        return host_out_of_memory(err);
    for (int64_t i = 0; i < n; i++)
        owner[i] = (struct owner){slot[i], i};
    qsort(owner, (size_t)n, sizeof *owner, compare_owners);
    for (int64_t i = 1; i < n && status == LATHE_OK; i++)
        if (owner[i].slot >= 0 && owner[i].slot == owner[i - 1].slot)
            status = lathe__fail(
                err, LATHE_ARG,
                "argument '%s': expected a state of its own for each %s, given %lld for %ss %lld and %lld",
                name, whose, (long long)owner[i].slot, whose, (long long)owner[i - 1].sequence,
                (long long)owner[i].sequence);
    free(owner);
    return status;
}

/* A list of slots; without one sequence n has slot n. */
static lathe_status take_list(const struct linear_head *head, const char *name, int64_t *slot,
                              lathe_error *err)
{
    const lathe_arg *index = host_arg(head->call, name);
    const int64_t slots = host_dim(head->call, SYM_SLOTS);
    const int64_t n = host_dim(head->call, SYM_SEQS);
    for (int64_t i = 0; i < n; i++) {
        slot[i] = index ? integer(index, i) : i;
        if (slot[i] < -1 || slot[i] >= slots)
            return lathe__fail(err, LATHE_ARG,
                               "argument '%s': expected states from 0 to %lld, or -1, given %lld for "
                               "sequence %lld",
                               name, (long long)slots - 1, (long long)slot[i], (long long)i);
    }
    return LATHE_OK;
}

/* Where states are written over those that are read, one sequence's must not be what another still reads. */
static lathe_status require_unread(const struct linear_head *head, int64_t n, lathe_error *err)
{
    const lathe_arg *from = host_arg(head->call, "state");
    const lathe_arg *to = host_arg(head->call, "state_out");
    const bool over = from && to && from->data && from->data == to->data;
    for (int64_t i = 0; i < n && over; i++)
        for (int64_t k = 0; k < n; k++)
            if (i != k && head->slot_out[i] >= 0 && head->slot_out[i] == head->slot[k])
                return lathe__fail(
                    err, LATHE_ARG,
                    "argument 'state_out_index': expected states that no other sequence reads, as "
                    "'state_out' lies over 'state', given %lld for sequence %lld, which sequence "
                    "%lld reads",
                    (long long)head->slot_out[i], (long long)i, (long long)k);
    return LATHE_OK;
}

static lathe_status take_slots(struct linear_head *head, lathe_error *err)
{
    const bool two = host_arg(head->call, "state_out_index") != NULL;
    const char *const written = two ? "state_out_index" : "state_index";
    const bool gradients = host_arg(head->call, "dstate") || host_arg(head->call, "dnorm");
    const int64_t n = host_dim(head->call, SYM_SEQS);
    lathe_status status = take_list(head, "state_index", head->slot, err);
    if (status == LATHE_OK)
        status = take_list(head, written, head->slot_out, err);
    if (status == LATHE_OK && host_arg(head->call, written))
        status = require_own_slots(written, "sequence", head->slot_out, n, err);
    if (status == LATHE_OK && two && gradients) /* these are written where states are read */
        status = require_own_slots("state_index", "sequence", head->slot, n, err);
    return status == LATHE_OK && two ? require_unread(head, n, err) : status;
}

static bool has_token(const struct linear_head *head, int64_t sequence, int64_t token)
{
    const int64_t t = host_dim(head->call, SYM_T);
    return host_arg(head->call, "cu") ? head->start[sequence] <= token && token < head->start[sequence + 1]
                                      : token / t == sequence;
}

/* Where states behind tokens are written over those that are read: the same of these. */
static lathe_status require_unread_places(const struct linear_head *head, int64_t tokens, lathe_error *err)
{
    const lathe_arg *from = host_arg(head->call, "state");
    const lathe_arg *to = host_arg(head->call, "states");
    const bool over = from && to && from->data && from->data == to->data;
    for (int64_t i = 0; i < tokens && over; i++)
        for (int64_t k = 0; k < host_dim(head->call, SYM_SEQS) && head->kept[i] >= 0; k++)
            if (head->kept[i] == head->slot[k] && !has_token(head, k, i))
                return lathe__fail(
                    err, LATHE_ARG,
                    "argument 'states_index': expected places that no other sequence reads, as 'states' lies "
                    "over 'state', given %lld for token %lld, which sequence %lld reads",
                    (long long)head->kept[i], (long long)i, (long long)k);
    return LATHE_OK;
}

/* Places of states behind tokens, each of one token; none beyond the last sequence. */
static lathe_status take_kept(struct linear_head *head, lathe_error *err)
{
    const lathe_arg *index = host_arg(head->call, "states_index");
    const int64_t t = host_dim(head->call, SYM_T);
    const int64_t n = host_dim(head->call, SYM_B) * t;
    const int64_t kept = host_dim(head->call, SYM_KEPT);
    if (!index)
        return LATHE_OK;
    head->kept = calloc((size_t)n + 1, sizeof *head->kept);
    if (!head->kept)
        return host_out_of_memory(err);
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = i / t * tensor_stride(index, 0) + i % t * tensor_stride(index, 1);
        head->kept[i] = (int64_t)dtype_load(index->dtype, index->data, place);
        if (head->kept[i] < -1 || head->kept[i] >= kept)
            return lathe__fail(
                err, LATHE_ARG,
                "argument 'states_index': expected places from 0 to %lld, or -1, given %lld for "
                "token %lld of batch %lld",
                (long long)kept - 1, (long long)head->kept[i], (long long)(i % t), (long long)(i / t));
    }
    TRY(require_own_slots("states_index", "token", head->kept, n, err));
    return require_unread_places(head, n, err);
}

/* ---- memory -------------------------------------------------------------------------------------- */

/* Zero doubles are one, so that NULL means out of memory. */
static double *doubles(int64_t n)
{
    return calloc((size_t)(n > 0 ? n : 1), sizeof(double));
}

static bool allocate_slots(struct linear_tokens *x, const struct ir_linear *linear, int64_t t)
{
    bool all = true;
    for (int k = 0; k < LINEAR_SLOTS; k++) {
        if (linear->slot[k].n_roots == 0)
            continue;
        x->slot[k] = doubles((linear_slot_by_token(k) ? t : 1) * x->width[k]);
        all &= x->slot[k] != NULL;
    }
    return all;
}

static bool allocate(struct linear_head *head)
{
    struct linear_tokens *x = &head->x;
    const int64_t t = host_dim(head->call, SYM_T) * x->steps;
    const int64_t n = host_dim(head->call, SYM_SEQS);
    head->start = calloc((size_t)n + 1, sizeof *head->start);
    head->slot = calloc((size_t)n + 1, sizeof *head->slot);
    head->slot_out = calloc((size_t)n + 1, sizeof *head->slot_out);
    head->s = doubles((int64_t)x->d * x->d_v);
    head->z = doubles(x->d);
    x->q = doubles(t * x->d);
    x->k = doubles(t * x->d);
    x->v = doubles(t * x->d_v);
    x->value = doubles(x->d_v);
    x->seen = doubles(x->d_v);
    return allocate_slots(x, &head->call->ir->linear, t) && head->start && head->slot && head->slot_out &&
           head->s && head->z && x->q && x->k && x->v && x->value && x->seen;
}

void linear_head_free(struct linear_head *head)
{
    double *const block[] = {head->s, head->z, head->x.q, head->x.k, head->x.v, head->x.value, head->x.seen};
    for (size_t i = 0; i < sizeof block / sizeof block[0]; i++)
        free(block[i]);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        free(head->x.slot[k]);
    free(head->start);
    free(head->slot);
    free(head->slot_out);
    free(head->kept);
    host_vectors_close(&head->vector);
    memset(head, 0, sizeof *head);
}

static int width_of(const struct linear_tokens *x, const struct ir *ir, enum linear_function which)
{
    const struct ir_fn *fn = linear_function_of(ir, which);
    if (fn->n_roots == 0 || (which == OF_DECAY && x->form == DECAY_NONE))
        return 0;
    if ((linear_slot_of(which)->varies & (BY_KEYS | BY_VALUES)) == 0 ||
        (which == OF_DECAY && x->form != DECAY_KEY && x->form != DECAY_VALUE))
        return 1;
    return ir_depends_on(ir, fn->root[0], OP_AT, AT_J) ? x->d_v : x->d;
}

static void take_form(struct linear_tokens *x, const struct ir *ir)
{
    x->form = linear_decay_form(ir);
    for (int k = 0; k < LINEAR_SLOTS; k++)
        x->width[k] = width_of(x, ir, (enum linear_function)(k + 1));
    x->normalise = ir->linear.normalise;
    x->all_tokens = ir->linear.all_tokens;
    x->reverse = ir->linear.reverse;
    x->read_first = ir->linear.read_first;
    x->steps = ir_steps(ir);
    x->queries = ir_query_heads(ir);
}

lathe_status linear_head_init(struct linear_head *head, const struct host_call *call, lathe_error *err)
{
    memset(head, 0, sizeof *head);
    head->call = call;
    host_view_make(&head->q_in, host_arg(call, "q"), 4);
    host_view_make(&head->k_in, host_arg(call, "k"), 4);
    host_view_make(&head->v_in, host_arg(call, "v"), 4);
    host_view_make(&head->state, host_arg(call, "state"), 4);
    host_view_make(&head->norm, host_arg(call, "norm"), 4);
    head->x.d = (int)host_dim(call, SYM_D);
    head->x.d_v = (int)host_dim(call, SYM_D_V);
    take_form(&head->x, call->ir);
    lathe_status status = host_vectors_open(&head->vector, call, head->x.d, head->x.d_v, err);
    if (status == LATHE_OK && !allocate(head))
        status = host_out_of_memory(err);
    if (status == LATHE_OK)
        status = require_packable(call, err);
    if (status == LATHE_OK)
        status = take_starts(head, err);
    if (status == LATHE_OK)
        status = take_slots(head, err);
    if (status == LATHE_OK)
        status = take_kept(head, err);
    if (status != LATHE_OK)
        linear_head_free(head);
    return status;
}

/* ---- tokens -------------------------------------------------------------------------------------- */

void linear_at(struct linear_head *head, int64_t t)
{
    double *at = head->vector.env.at;
    at[AT_B] = (double)head->b;
    at[AT_H] = (double)head->h;
    at[AT_H_K] = (double)head->h_k;
    at[AT_T] = (double)linear_token_row(head, t);
    at[AT_POS] = (double)(t / head->x.steps);
    at[AT_UPDATE] = (double)(t % head->x.steps);
}

/* A vector after its mod. `view` without data: k where key_mod makes it of inputs alone. */
static lathe_status load_vector(struct linear_head *head, enum mod which, const struct host_view *view,
                                int64_t tensor_head, int64_t row, int n, double *out, lathe_error *err)
{
    if (view->data)
        host_view_load(view, head->b, tensor_head, row, n, head->vector.stage[0]);
    const lathe_status status = host_mod(&head->vector, which, n, err);
    if (status == LATHE_OK)
        memcpy(out, head->vector.stage[head->call->ir->mod[which].n_stages], (size_t)n * sizeof *out);
    return status;
}

/* A number that the formulas of a spec may not give: with the line, and where it came. */
static lathe_status refuse(const struct linear_head *head, int node, int64_t t, const char *what,
                           double value, const char *rule, lathe_error *err)
{
    const struct ir *ir = head->call->ir;
    const struct ir_node *n = &ir->node[node];
    if (head->call->mode)
        head->call->mode->refused = true;
    if (!err)
        return LATHE_SPEC;
    *err = (lathe_error){.status = LATHE_SPEC, .line = n->line};
    snprintf(err->file, sizeof err->file, "%s", ir->file[n->line ? n->file : 1]);
    lathe__print(err->text, sizeof err->text,
                 "%.200s:%d: %s: %s, given %g at token %" PRId64 " of head %" PRId64 " in batch %" PRId64,
                 err->file, n->line, what, rule, value, linear_token_row(head, t), head->h, head->b);
    return LATHE_SPEC;
}

/* A traced function of the token, n numbers. */
static lathe_status eval_token(struct linear_head *head, const struct ir_fn *fn, int n, double *out,
                               lathe_error *err)
{
    struct eval_env *env = &head->vector.env;
    env->n = n;
    env->at_axis[AT_I] = head->vector.index;
    env->at_axis[AT_J] = head->vector.index;
    const lathe_status status = host_eval(env, fn->root, 1, err);
    if (status == LATHE_OK)
        host_values(env, fn->root[0], n, out);
    return status;
}

/* What a slot gives at the token, or for the head. */
static lathe_status load_slot(struct linear_head *head, int k, int64_t t, lathe_error *err)
{
    const struct linear_slot *slot = linear_slot_of((enum linear_function)(k + 1));
    const struct ir_fn *fn = &head->call->ir->linear.slot[k];
    const int width = head->x.width[k];
    if (width == 0)
        return LATHE_OK;
    double *to = head->x.slot[k] + (linear_slot_by_token(k) ? t * width : 0);
    if ((k == OF_DECAY - 1 || (linear_slot_by_token(k) && head->x.queries > 1)) &&
        !linear_begins(&head->x, t)) {
        memset(to, 0, (size_t)width * sizeof *to);
        return LATHE_OK;
    }
    head->vector.env.param[LEAF_X] = head->x.k + t * head->x.d;
    lathe_status status = eval_token(head, fn, width, to, err);
    for (int i = 0; i < width && status == LATHE_OK && slot->range; i++)
        if (to[i] < slot->least || to[i] > slot->most)
            status = refuse(head, fn->root[0], t, slot->name, to[i], slot->range, err);
    return status;
}

static lathe_status load_slots(struct linear_head *head, bool by_token, int64_t t, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (int k = 0; k < LINEAR_SLOTS && status == LATHE_OK; k++)
        if (linear_slot_by_token(k) == by_token)
            status = load_slot(head, k, t, err);
    return status;
}

static lathe_status load_token(struct linear_head *head, int64_t t, lathe_error *err)
{
    struct linear_tokens *x = &head->x;
    const int64_t row = linear_update_row(head, t);
    linear_at(head, t);
    lathe_status status = load_vector(head, MOD_QUERY, &head->q_in, linear_query_head(head, head->h_k, t),
                                      linear_token_row(head, t), x->d, x->q + t * x->d, err);
    if (status == LATHE_OK)
        status = load_vector(head, MOD_KEY, &head->k_in, head->h_k, row, x->d, x->k + t * x->d, err);
    if (status == LATHE_OK)
        status = load_vector(head, MOD_VALUE, &head->v_in, head->h, row, x->d_v, x->v + t * x->d_v, err);
    if (x->queries > 1 && !linear_begins(x, t))
        memset(x->k + t * x->d, 0, (size_t)x->d * sizeof *x->k);
    return status == LATHE_OK ? load_slots(head, true, t, err) : status;
}

/* ---- a head -------------------------------------------------------------------------------------- */

int64_t linear_head_tokens(const struct linear_head *head, int64_t sequence)
{
    const bool packed = host_arg(head->call, "cu") != NULL;
    return head->x.steps *
           (packed ? head->start[sequence + 1] - head->start[sequence] : host_dim(head->call, SYM_T));
}

/* A backward pass takes every sequence: one without a state begins with 0. */
bool linear_is_skipped(const struct linear_head *head, int64_t sequence)
{
    return head->slot[sequence] < 0 && head->slot_out[sequence] < 0 && !head->call->sig->backward;
}

static void load_state(struct linear_head *head)
{
    const struct linear_tokens *x = &head->x;
    const int64_t slot = head->slot[head->sequence];
    memset(head->s, 0, (size_t)x->d * (size_t)x->d_v * sizeof *head->s);
    memset(head->z, 0, (size_t)x->d * sizeof *head->z);
    for (int i = 0; i < x->d && head->state.data && slot >= 0; i++)
        host_view_load(&head->state, slot, head->h, i, x->d_v, head->s + i * x->d_v);
    if (head->norm.data && slot >= 0)
        host_view_load(&head->norm, 0, slot, head->h, x->d, head->z);
}

/* What is of the head. */
static lathe_status load_head(struct linear_head *head, lathe_error *err)
{
    linear_at(head, 0);
    const lathe_status status = eval_token(head, &head->call->ir->scale, 1, &head->x.scale, err);
    return status == LATHE_OK ? load_slots(head, false, 0, err) : status;
}

static void place(struct linear_head *head, int64_t sequence, int64_t h)
{
    const struct host_call *call = head->call;
    const bool packed = host_arg(call, "cu") != NULL;
    head->sequence = sequence;
    head->b = packed ? 0 : sequence;
    head->h = h;
    head->h_k = h / (host_dim(call, SYM_H) / host_dim(call, SYM_H_K));
    head->first = packed ? head->start[sequence] : 0;
    head->x.n = linear_head_tokens(head, sequence);
}

lathe_status linear_head_token(struct linear_head *head, int64_t sequence, int64_t h, int64_t t,
                               lathe_error *err)
{
    place(head, sequence, h);
    const lathe_status status = load_head(head, err);
    return status == LATHE_OK ? load_token(head, t, err) : status;
}

lathe_status linear_head_enter(struct linear_head *head, int64_t sequence, int64_t h, lathe_error *err)
{
    place(head, sequence, h);
    if (linear_is_skipped(head, sequence))
        return LATHE_OK;
    load_state(head);
    lathe_status status = load_head(head, err);
    for (int64_t t = 0; t < head->x.n && status == LATHE_OK; t++)
        status = load_token(head, t, err);
    return status;
}

lathe_status linear_output(struct linear_head *head, int64_t t, const double *o, double *v, lathe_error *err)
{
    const int n = head->x.d_v;
    linear_at(head, t);
    host_view_load(&head->v_in, head->b, head->h, linear_update_row(head, t), n, v);
    head->vector.env.param[LEAF_V] = v;
    memcpy(head->vector.stage[0], o, (size_t)n * sizeof *o);
    return host_mod(&head->vector, MOD_OUTPUT, n, err);
}
