/*
 * alone.c: deterministic=batch: a sequence by itself gets the bits that it got among the others. The kernel
 * that a case has passed with runs once more for each of three of its sequences, or batches: its arguments
 * begin there, and are of one.
 *
 * In: a scene whose kernel has passed. Out: a verdict, or a sentence. Kernels whose tensors are read by TMA
 * are left to tests/gpu.
 */
#include "alone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
    lathe_arg arg[MAX_ARGS];
    int64_t shape[MAX_ARGS][MAX_DIMS];
    struct problem problem;
    struct bound_args bound;
    struct block work[MAX_BUFFERS];
    size_t offset[MAX_BUFFERS];
};

/* States are those of sequences where no list says which. */
static bool is_of_sequences(const struct scene *s, int sym)
{
    return sym == SYM_SEQS || (sym == SYM_SLOTS && s->problem.dim[SYM_SLOTS] == s->problem.dim[SYM_SEQS]);
}

/* Is the first dim of an argument one of sequences, as a call of this problem counts them? */
static bool is_by_sequence(const struct scene *s, int i)
{
    const struct sig_arg *a = &s->sig.arg[s->which[i]];
    if (lathe__is_host_value(a) || a->ndim == 0)
        return false;
    const int sym = lathe__dim_here(&s->problem, a->dim[0]).sym;
    return is_of_sequences(s, sym) || (sym == SYM_B && !s->problem.packed);
}

static bool is_judged(const struct scene *s, int i)
{
    const struct sig_arg *a = &s->sig.arg[s->which[i]];
    return tensor_is_output(&s->tensor[i]) && a->ndim > 0 &&
           (a->dim[0].sym == SYM_B || is_of_sequences(s, a->dim[0].sym));
}

/* How many keys the sequence has in use; -1: all that there is room for. */
static int64_t keys_in_use(const struct scene *s, int64_t sequence)
{
    int64_t keys = -1;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, "used_kv") == 0)
            keys = (int64_t)s->tensor[i].value[sequence];
    return keys;
}

/* A cache has room for as many keys as its longest sequence has: for those of one alone it may be smaller. */
static int64_t room_of(const struct problem *p, int sym, int64_t keys, int64_t size)
{
    const int64_t page = p->paged ? p->dim[SYM_PAGE] : 1;
    const int64_t wanted = sym == SYM_MOST ? (keys + page - 1) / page : keys;
    return wanted > 0 && wanted < size && (sym == SYM_MOST || (sym == SYM_KV && !p->paged)) ? wanted : size;
}

static void cut_argument(const struct scene *s, int i, int64_t first, int64_t count, int64_t keys,
                         struct call *c)
{
    const struct sig_arg *a = &s->sig.arg[s->which[i]];
    lathe_arg *arg = &c->arg[i];
    for (int d = 0; d < arg->ndim; d++)
        c->shape[i][d] =
            keys < 0 ? arg->shape[d]
                     : room_of(&s->problem, lathe__dim_here(&s->problem, a->dim[d]).sym, keys, arg->shape[d]);
    if (is_by_sequence(s, i)) {
        const int64_t bytes = first * lathe__tensor_stride(arg, 0) * (int64_t)lathe_dtype_size(arg->dtype);
        c->shape[i][0] = count + a->dim[0].plus;
        arg->data = arg->data ? (char *)arg->data + bytes : NULL;
    }
    arg->shape = c->shape[i];
}

/* The `count` sequences from number `first` on, of a call of all. */
static bool make_call(const struct scene *s, const struct kernel *k, int64_t first, int64_t count,
                      struct call *c, lathe_error *err)
{
    const int64_t keys = count == 1 && !s->problem.packed ? keys_in_use(s, first) : -1;
    memcpy(c->arg, s->arg, sizeof c->arg);
    for (int i = 0; i < s->n; i++)
        if (!lathe__is_host_value(&s->sig.arg[s->which[i]]))
            cut_argument(s, i, first, count, keys, c);
    if (problem_from_args(&s->sig, c->arg, s->n, true, &c->problem, err) != LATHE_OK ||
        lathe__args_bind(&s->sig, c->arg, s->n, &c->bound, err) != LATHE_OK)
        return false;
    c->problem.deterministic = s->problem.deterministic;
    bool good = true;
    for (int i = 0; i < k->source.n_buffers && good; i++) {
        const int64_t bytes = lathe__buffer_bytes(&k->source.buffer[i], &c->problem);
        good = block_open(&c->work[i], bytes > 0 ? (size_t)bytes : 0, 256);
        if (good && k->source.buffer[i].zero && bytes > 0)
            memset(c->work[i].data, 0, (size_t)bytes);
        c->offset[i] = (size_t)(uintptr_t)c->work[i].data;
    }
    return good;
}

static bool launch_one(const struct workshop *w, const struct scene *s, const struct kernel *k, int i,
                       struct call *c, uint64_t seed, char *why, size_t size)
{
    static _Alignas(64) unsigned char block[PARAM_BLOCK_BYTES];
    const struct launch *l = &k->source.launch[i];
    struct emulate_report report = {.address = NULL};
    lathe_error err = {.line = 0};
    struct emulate_launch order = {.thread = k->thread[i],
                                   .params = block,
                                   .threads = (unsigned)l->threads,
                                   .smem_bytes = (unsigned)l->smem_bytes,
                                   .seed = seed + (uint64_t)i,
                                   .cluster = l->cluster > 1 ? (unsigned)l->cluster : 1,
                                   .beside = (unsigned)s->c->beside,
                                   .deterministic = 1,
                                   .memory = memory_range(),
                                   .memory_bytes = MEMORY_BYTES};
    if (lathe__grid_size(l, &c->problem, &order.blocks, &err) != LATHE_OK ||
        lathe__params_fill(l, &s->sig, &c->problem, &c->bound, NULL, c->offset, block, &err) != LATHE_OK) {
        snprintf(why, size, "%s: %s", l->entry, err.text);
        return false;
    }
    if (order.blocks == 0 || w->run(&order, &report) == 0)
        return true;
    snprintf(why, size, "%s: %s", l->entry, report.text);
    return false;
}

/* Of `count` sequences from `first` on, into outputs that have nothing yet. */
static bool run_call(const struct workshop *w, struct scene *s, const struct kernel *k, int64_t first,
                     int64_t count, uint64_t seed, char *why, size_t size)
{
    struct call *c = calloc(1, sizeof *c);
    lathe_error err = {.line = 0};
    bool good = c != NULL;
    for (int i = 0; i < s->n && good; i++)
        if (tensor_is_output(&s->tensor[i]))
            block_wipe(&s->tensor[i].block);
    if (good && !make_call(s, k, first, count, c, &err)) {
        snprintf(why, size, "%s", err.text);
        good = false;
    }
    for (int i = 0; i < k->source.n_launches && good; i++)
        good = launch_one(w, s, k, i, c, seed, why, size);
    for (int i = 0; i < MAX_BUFFERS && c; i++)
        block_close(&c->work[i]);
    free(c);
    return good;
}

static bool is_poison(const unsigned char *at, size_t bytes)
{
    bool all = true;
    for (size_t i = 0; i < bytes; i++)
        all &= at[i] == POISON;
    return all;
}

/* Which of the tokens along a dim are the sequence's, where they lie one behind the other. False: no other
 * are there. */
static bool tokens_of(const struct scene *s, int sym, int64_t sequence, int64_t range[2])
{
    static const char *const list[][2] = {{"cu", "cu"}, {"cu_q", "cu_q"}, {"cu_kv", "cu_q"}};
    const char *const *name = list[sym == SYM_T ? 0 : sym == SYM_Q ? 1 : 2];
    if (!s->problem.packed || (sym != SYM_T && sym != SYM_Q && sym != SYM_KV))
        return false;
    for (int k = 1; k >= 0; k--)
        for (int i = 0; i < s->n; i++)
            if (strcmp(s->tensor[i].name, name[k]) == 0) {
                range[0] = (int64_t)s->tensor[i].value[sequence];
                range[1] = (int64_t)s->tensor[i].value[sequence + 1];
            }
    return true;
}

/* Is an element of the sequence? What has no sequence a kernel may leave or fill with zeros. */
static bool is_own(const struct scene *s, int i, int64_t flat, int64_t sequence)
{
    const struct tensor *t = &s->tensor[i];
    bool own = true;
    for (int d = t->ndim - 1; d >= 0; d--) {
        int64_t range[2] = {0, 0};
        const int64_t at = flat % t->shape[d];
        flat /= t->shape[d];
        if (tokens_of(s, s->sig.arg[s->which[i]].dim[d].sym, sequence, range))
            own = own && at >= range[0] && at < range[1];
    }
    return own;
}

/* Every element that was written has the bits of `all`; how many there are. -1: one has not. */
static int64_t count_same(const struct scene *s, int i, const unsigned char *all, int64_t sequence)
{
    const struct tensor *t = &s->tensor[i];
    const size_t bytes = lathe_dtype_size(t->dtype);
    int64_t n = 0;
    for (int64_t k = 0; k < t->count; k++) {
        const size_t at = (size_t)tensor_place(t, k) * bytes;
        if (!is_own(s, i, k, sequence) || is_poison(t->block.data + at, bytes))
            continue;
        if (memcmp(t->block.data + at, all + at, bytes) != 0)
            return -1;
        n++;
    }
    return n;
}

static bool is_same(const struct scene *s, unsigned char *const *all, int64_t sequence, char *why,
                    size_t size)
{
    int64_t written = 0;
    for (int i = 0; i < s->n; i++) {
        if (!is_judged(s, i))
            continue;
        const int64_t n = count_same(s, i, all[i], sequence);
        if (n < 0) {
            snprintf(why, size, "%s of sequence %d has other bits where it is alone", s->tensor[i].name,
                     (int)sequence);
            return false;
        }
        written += n;
    }
    if (written == 0 && !s->problem.packed) /* packed ones may be empty */
        snprintf(why, size, "sequence %d got nothing where it was alone", (int)sequence);
    return written > 0 || s->problem.packed;
}

static bool has_maps(const struct kernel *k)
{
    bool any = false;
    for (int i = 0; i < k->source.n_launches; i++)
        any |= k->source.launch[i].n_maps > 0;
    return any;
}

bool scene_is_same_alone(const struct workshop *w, struct scene *s, const struct kernel *k, uint64_t seed,
                         char *why, size_t size)
{
    const int64_t n = s->problem.packed ? s->problem.dim[SYM_SEQS] : s->problem.dim[SYM_B];
    const int64_t sequence[] = {0, n / 2, n - 1};
    unsigned char *all[MAX_ARGS] = {NULL};
    if (has_maps(k) || n < 1)
        return true;
    bool good = run_call(w, s, k, 0, n, seed, why, size);
    for (int i = 0; i < s->n && good; i++) {
        const struct block *b = &s->tensor[i].block;
        all[i] = is_judged(s, i) ? malloc(b->bytes + 1) : NULL;
        if (all[i])
            memcpy(all[i], b->data, b->bytes);
    }
    for (size_t i = 0; i < sizeof sequence / sizeof *sequence && good; i++)
        good = run_call(w, s, k, sequence[i], 1, seed + 64 * (i + 1), why, size) &&
               is_same(s, all, sequence[i], why, size);
    for (int i = 0; i < s->n; i++)
        free(all[i]);
    return good;
}
