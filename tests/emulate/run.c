/*
 * run.c: a case on the emulator: launches its kernels, in several orders where they are to give the same, and
 * judges what they have left.
 *
 * In: a scene with expected results, and compiled kernels. Out: a verdict, or a sentence. Verdicts depend on
 * this file; how a scene comes to be is no part of them, since all of it goes into their digests.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory ----------------------------------------------------------------------------------------------
 */

/* Inputs cannot be written until thawed. */
static void freeze(const struct tensor *t, bool frozen)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (t->block.pages && !tensor_is_output(t))
        (void)mprotect(t->block.pages + page, t->block.page_bytes - 2 * page,
                       frozen ? PROT_READ : PROT_READ | PROT_WRITE);
}

/* Each buffer in pages of its own, where the launcher would put one after the other. What an earlier launch
 * left there stays. */
static bool open_workspace(struct scene *s, const struct source *source)
{
    for (int i = 0; i < source->n_buffers; i++) {
        const int64_t bytes = lathe__buffer_bytes(&source->buffer[i], &s->problem);
        if (!s->work[i].pages && !block_open(&s->work[i], bytes > 0 ? (size_t)bytes : 0, 256))
            return false;
        if (source->buffer[i].zero && bytes > 0)
            memset(s->work[i].data, 0, (size_t)bytes);
        s->work_offset[i] = (size_t)(uintptr_t)s->work[i].data;
    }
    return true;
}

static void forget_workspace(struct scene *s)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        block_close(&s->work[i]);
}

/* ---- launches --------------------------------------------------------------------------------------------
 */

/* Which memory a fault was next to. */
static void name_fault(const struct scene *s, const struct emulate_report *report, char *why, size_t size)
{
    const unsigned char *at = report->address;
    const size_t used = strlen(why);
    for (int i = 0; i < s->n + MAX_BUFFERS && at; i++) {
        const struct block *b = i < s->n ? &s->tensor[i].block : &s->work[i - s->n];
        if (!b->pages || at < b->pages || at >= b->pages + b->page_bytes)
            continue;
        char name[64];
        if (i < s->n)
            snprintf(name, sizeof name, "%s", s->tensor[i].name);
        else
            snprintf(name, sizeof name, "workspace buffer %d", i - s->n);
        snprintf(why + used, size - used, ": byte %td of %s, which has %zu", at - b->data, name, b->bytes);
        return;
    }
}

/* bytes: of the numbers that strides count, of which two of 8 bits are one element of the map. */
static void add_dim(struct emulate_tensor_map *m, int64_t size, int64_t stride, int64_t bytes, unsigned box)
{
    m->dim[m->rank] = size;
    m->stride[m->rank] = bytes * stride;
    if (m->rank < 3)
        m->box[m->rank] = box;
    m->rank++;
}

/* What the driver would encode. */
static void make_maps(const struct launch *l, const struct problem *problem, unsigned char *block)
{
    for (int i = 0; i < l->n_maps; i++) {
        const struct tensor_map_row *row = &l->map[i];
        struct emulate_tensor_map m = {.magic = EMULATE_TENSOR_MAP, .element_bytes = 2, .box = {1, 1, 1}};
        int64_t stride[3];
        int32_t pack = 1;
        memcpy((void *)&m.data, block + row->data, sizeof m.data);
        memcpy(stride, block + row->strides, sizeof stride);
        if (row->pack)
            memcpy(&pack, block + row->pack, sizeof pack);
        const int64_t bytes = (int64_t)lathe_dtype_size((lathe_dtype)row->dtype);
        add_dim(&m, row->columns * bytes / m.element_bytes, 1, bytes, row->swizzle / m.element_bytes);
        if (row->pack)
            add_dim(&m, pack, stride[1], bytes, (unsigned)pack);
        const int64_t tokens = problem->dim[row->dim[0]];
        const int box =
            row->dim[0] == SYM_PAGE ? lathe__page_box(tokens, row->box_tokens) : row->box_tokens / pack;
        stride[2] = row->packed ? lathe__token_stride(stride[2]) : stride[2];
        add_dim(&m, row->packed ? RAGGED_ROWS : tokens, stride[2], bytes, (unsigned)box);
        add_dim(&m, problem->dim[row->dim[1]] / pack, stride[1] * pack, bytes, 1);
        if (row->packed) {
            add_dim(&m, RAGGED_ROWS + 1, stride[2], bytes, 1);
            add_dim(&m, RAGGED_ROWS + 1, ((int64_t)1 << 34) - stride[2], bytes, 1);
        } else {
            add_dim(&m, problem->dim[row->dim[2]], stride[0], bytes, 1);
        }
        if (m.rank < 5)
            m.dim[4] = 1;
        m.swizzle = row->swizzle == 128 ? 3 : row->swizzle == 64 ? 2 : 1;
        memcpy(block + row->offset, &m, sizeof m);
    }
}

/* As the launcher has it. */
static bool begins_early(const struct scene *s, const struct launch *l, int i)
{
    unsigned blocks = 0;
    return i > 0 && l->early && lathe__grid_size(l - 1, &s->problem, &blocks, NULL) == LATHE_OK && blocks > 0;
}

static bool launch(const struct workshop *w, const struct scene *s, const struct kernel *k, int i,
                   uint64_t seed, char *why, size_t size)
{
    static _Alignas(64) unsigned char block[PARAM_BLOCK_BYTES];
    const struct launch *l = &k->source.launch[i];
    struct emulate_report report = {.address = NULL};
    lathe_error err = {.line = 0};
    struct emulate_launch order = {k->thread[i],
                                   block,
                                   0,
                                   (unsigned)l->threads,
                                   (unsigned)l->smem_bytes,
                                   seed,
                                   l->cluster > 1 ? (unsigned)l->cluster : 1,
                                   (unsigned)s->c->beside,
                                   begins_early(s, l, i),
                                   s->c->deterministic,
                                   memory_range(),
                                   MEMORY_BYTES};
    if (lathe__grid_size(l, &s->problem, &order.blocks, &err) != LATHE_OK ||
        lathe__params_fill(l, &s->sig, &s->problem, &s->bound, NULL, s->work_offset, block, &err) !=
            LATHE_OK) {
        snprintf(why, size, "%s: %s", l->entry, err.text);
        return false;
    }
    make_maps(l, &s->problem, block);
    if (order.blocks == 0 || w->run(&order, &report) == 0)
        return true;
    snprintf(why, size, "%s: %s", l->entry, report.text);
    name_fault(s, &report, why, size);
    return false;
}

static bool launch_all(const struct workshop *w, struct scene *s, const struct kernel *k, uint64_t seed,
                       char *why, size_t size)
{
    bool good = open_workspace(s, &k->source);
    if (!good)
        snprintf(why, size, "no memory for the workspace");
    for (int i = 0; i < s->n; i++)
        freeze(&s->tensor[i], true);
    for (int i = 0; i < k->source.n_launches && good; i++)
        good = launch(w, s, k, i, seed + (uint64_t)i, why, size);
    for (int i = 0; i < s->n; i++)
        freeze(&s->tensor[i], false);
    return good;
}

/* ---- results ---------------------------------------------------------------------------------------------
 */

/* The results of an output, compact; its elements are poison then. Returns how many bytes that are no
   element's are not. */
static size_t take(const struct tensor *t, double *result)
{
    const size_t element = lathe_dtype_size(t->dtype);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t spilled = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t at = tensor_place(t, i);
        result[i] = dtype_load(t->dtype, t->block.data, at);
        memset(t->block.data + (size_t)at * element, POISON, element);
    }
    for (size_t i = page; i < t->block.page_bytes - page; i++)
        spilled += t->block.pages[i] != POISON;
    return spilled;
}

/* NULL, or what is wrong with an output: a value, or poison that is gone. */
/* Slots of a pool that no sequence has stay as they are: the host device has left 0 there. */
static void forget_slots(const struct tensor *t, double *result)
{
    for (int64_t i = 0; i < t->count; i++)
        if (isnan(result[i]) && t->value[i] == 0.0)
            result[i] = 0.0;
}

static const char *judge_output(const struct scene *s, const struct tensor *t, const struct bounds *b,
                                char *why, size_t size)
{
    double *result = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *result);
    if (!result)
        return "out of memory";
    const size_t spilled = take(t, result);
    const bool slots = s->c->dim[SYM_SLOTS] > s->c->dim[SYM_SEQS];
    const bool pool =
        strstr(t->name, "_out") || strcmp(t->name, "dstate") == 0 || strcmp(t->name, "dnorm") == 0;
    if ((slots && pool) || strstr(t->name, "_cache"))
        forget_slots(t, result);
    const char *wrong = judge_results(t, b, result, why, size);
    free(result);
    if (!wrong && spilled > 0) {
        snprintf(why, size, "%s: %zu bytes that are no element's were overwritten", t->name, spilled);
        wrong = why;
    }
    return wrong;
}

static bool judge_all(const struct scene *s, char *why, size_t size)
{
    const struct bounds bounds = case_bounds(s);
    for (int i = 0; i < s->n; i++)
        if (tensor_is_output(&s->tensor[i]) && judge_output(s, &s->tensor[i], &bounds, why, size))
            return false;
    return true;
}

/* The case once more, in another order of blocks and threads: the same bits. `fresh`: in a workspace that
 * nothing is known of, else in the one that the first launch left. */
static bool same_again(const struct workshop *w, struct scene *s, const struct kernel *k, bool fresh,
                       uint64_t seed, char *why, size_t size)
{
    unsigned char *before[MAX_ARGS] = {NULL};
    bool good = true;
    for (int i = 0; i < s->n && good; i++) {
        const struct block *b = &s->tensor[i].block;
        before[i] = malloc(b->bytes + 1);
        good = before[i] != NULL;
        if (good)
            memcpy(before[i], b->data, b->bytes);
        if (good && tensor_is_output(&s->tensor[i]))
            block_wipe(&s->tensor[i].block);
    }
    if (fresh)
        forget_workspace(s);
    good = good && launch_all(w, s, k, seed, why, size);
    for (int i = 0; i < s->n && good; i++) {
        good = memcmp(before[i], s->tensor[i].block.data, s->tensor[i].block.bytes) == 0;
        if (!good)
            snprintf(why, size, "%s has other bits when the case runs again", s->tensor[i].name);
    }
    for (int i = 0; i < s->n; i++)
        free(before[i]);
    return good;
}

/* After each launch somebody else writes a 1 of 1, 2 or 4 bytes to either end of every buffer, as the owner
 * of a pool may: the next launch finds a counter of which the rest is as it was left. */
static bool same_when_overwritten(const struct workshop *w, struct scene *s, const struct kernel *k,
                                  uint64_t seed, char *why, size_t size)
{
    bool good = true;
    for (uint64_t kind = 0; kind < 6 && good; kind++) {
        const size_t bytes = (size_t)1 << kind / 2;
        const uint32_t one = 1;
        for (int i = 0; i < k->source.n_buffers; i++) {
            const struct block *b = &s->work[i];
            if (b->bytes >= bytes)
                memcpy(b->data + (kind % 2 ? b->bytes - bytes : 0), &one, bytes);
        }
        good = same_again(w, s, k, false, seed + kind, why, size);
        const size_t used = strlen(why);
        if (!good)
            snprintf(why + used, size - used, " after the %s %zu bytes of its workspace were overwritten",
                     kind % 2 ? "last" : "first", bytes);
    }
    return good;
}

/* Blocks side by side: in one order after the other. Where it is deterministic with the same bits, else right
 * each time. What an order leaves in the workspace would be right for the next one, where that reads too
 * early.
 */
static bool right_in_every_order(const struct workshop *w, struct scene *s, const struct kernel *k,
                                 uint64_t seed, char *why, size_t size)
{
    for (unsigned i = w->first_order; i < w->first_order + w->orders; i++) {
        const uint64_t order = seed + 64 * (uint64_t)i;
        forget_workspace(s);
        const bool compared = s->c->deterministic && i > w->first_order;
        bool good =
            compared ? same_again(w, s, k, false, order, why, size) : launch_all(w, s, k, order, why, size);
        good = good && (s->c->deterministic || judge_all(s, why, size));
        const size_t used = strlen(why);
        if (!good)
            snprintf(why + used, size - used, " (--from %u --seeds 1)", i);
        if (!good)
            return false;
    }
    return !s->c->deterministic || judge_all(s, why, size);
}

/* A state beyond those that there are is none, as the -1 is that the reference has seen. The first of those
 * and one that is further off take turns. */
static void lose_states(struct scene *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct tensor *t = &s->tensor[i];
        for (int64_t k = 0; k < t->count && strcmp(t->name, "state_index") == 0; k++)
            if (s->c->in_place && t->value[k] < 0.0)
                dtype_store(t->dtype, t->block.data, tensor_place(t, k),
                            (double)(s->c->dim[SYM_SLOTS] + (k % 2 ? 4 : 0)));
    }
}

bool scene_run(const struct workshop *w, struct scene *s, const struct kernel *k, uint64_t seed, char *why,
               size_t size)
{
    lose_states(s);
    if (s->c->beside > 0)
        return right_in_every_order(w, s, k, seed, why, size);
    bool good = launch_all(w, s, k, seed, why, size);
    /* few blocks: a launch finds their counter as the one before left it */
    const bool counts =
        s->c->blocks > 0 && (s->ir->inner || (s->c->pass == LATHE_FORWARD && s->ir->kind == KIND_ATTENTION));
    if (good && (s->c->deterministic || counts))
        good = same_again(w, s, k, !counts, seed + 1000, why, size);
    if (good && counts)
        good = same_when_overwritten(w, s, k, seed + 2000, why, size);
    return good && (s->c->hollow || judge_all(s, why, size)); /* it takes the results away */
}
