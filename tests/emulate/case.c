/*
 * case.c: one case, from its problem to a verdict: the kernels that the generator and the launcher make of it
 * are run by the emulator and compared with the host device. All memory is freed here.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scene { /* a case with everything in memory */
    const struct test_case *c;
    struct test_case sized; /* the case with the dims that it names */
    const struct ir *ir;
    struct signature sig;
    int n;
    int which[MAX_ARGS]; /* argument of the signature */
    struct tensor tensor[MAX_ARGS];
    lathe_arg arg[MAX_ARGS];
    struct problem problem;
    struct bound_args bound;
    struct block work[MAX_BUFFERS];
    size_t work_offset[MAX_BUFFERS];
};

/* ---- arguments ---------------------------------------------------------------------------------------- */

static bool is_left_out(const struct sig_arg *a, const struct test_case *c)
{
    char name[NAME_MAX_BYTES + 2];
    snprintf(name, sizeof name, " %s ", a->name);
    return c->without && strstr(c->without, name) != NULL;
}

static bool is_given(const struct signature *sig, int arg, const struct test_case *c)
{
    const struct sig_arg *a = &sig->arg[arg];
    int gradients = 0;
    for (int i = 0; i < arg; i++)
        gradients += sig->arg[i].role == ROLE_OUT_OPTIONAL;
    if (is_left_out(a, c))
        return false;
    if (c->pass == LATHE_BACKWARD && a->role == ROLE_OUT_OPTIONAL)
        return !(c->unwanted >> gradients & 1u);
    return a->role == ROLE_Q_START ? c->has_q_start : !(a->optional && c->absent);
}

static bool scene_open(struct scene *s, uint64_t seed)
{
    for (int i = 0; i < s->sig.n_args; i++) {
        if (!is_given(&s->sig, i, s->c))
            continue;
        s->which[s->n] = i;
        struct tensor *t = &s->tensor[s->n++];
        if (!tensor_open(t, &s->sig, i, s->c, seed * 64 + (uint64_t)i))
            return false;
        s->arg[s->n - 1] = tensor_arg(t);
    }
    for (int i = 0; i < s->sig.n_args; i++)
        for (int k = 0; k < s->n; k++)
            if (s->sig.arg[i].alias == s->which[k] + 1 && !is_given(&s->sig, i, s->c))
                s->tensor[k].in_place = true;
    return true;
}

static void scene_close(struct scene *s)
{
    for (int i = 0; i < s->n; i++)
        tensor_close(&s->tensor[i]);
    for (int i = 0; i < MAX_BUFFERS; i++)
        block_close(&s->work[i]);
}

/* Results of the forward pass that the backward pass is given: o, lse, statistics. */
static lathe_status fill_results(struct scene *s, lathe_error *err)
{
    struct signature forward;
    lathe_arg arg[MAX_ARGS];
    double *result[MAX_ARGS] = {NULL};
    int n = 0;
    signature_make(s->ir, LATHE_FORWARD, &forward);
    for (int i = 0; i < s->n; i++) {
        const struct sig_arg *a = &s->sig.arg[s->which[i]];
        int k = 0;
        while (k < forward.n_args && strcmp(forward.arg[k].name, a->name) != 0)
            k++;
        if (k == forward.n_args)
            continue;
        arg[n] = tensor_reference(&s->tensor[i], a);
        if (forward.arg[k].role == ROLE_OUT || forward.arg[k].role == ROLE_OUT_OPTIONAL) {
            const size_t count = s->tensor[i].count > 0 ? (size_t)s->tensor[i].count : 1;
            result[i] = calloc(count, sizeof(double));
            arg[n].data = result[i];
        }
        n++;
    }
    bool output[MAX_ARGS] = {false};
    for (int k = 0; k < forward.n_args; k++) /* y, which the backward pass does not take, goes nowhere */
        output[k] = forward.arg[k].role == ROLE_OUT;
    for (int k = 0; k < forward.n_args; k++)
        if (output[k])
            forward.arg[k].role = ROLE_OUT_OPTIONAL, forward.arg[k].optional = true;
    const lathe_status status = host_forward(s->ir, &forward, arg, n, NULL, 0, err);
    for (int i = 0; i < s->n; i++) {
        if (result[i] && status == LATHE_OK)
            tensor_fill(&s->tensor[i], result[i]);
        free(result[i]);
    }
    return status;
}

static lathe_status make_reference(struct scene *s, lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    for (int i = 0; i < s->n; i++)
        arg[i] = tensor_reference(&s->tensor[i], &s->sig.arg[s->which[i]]);
    const lathe_status status = s->c->pass == LATHE_BACKWARD
                                    ? host_backward(s->ir, &s->sig, arg, s->n, err)
                                    : host_forward(s->ir, &s->sig, arg, s->n, NULL, 0, err);
    for (int i = 0; i < s->n; i++)
        tensor_widen(&s->tensor[i]);
    return status;
}

/* The forward pass wants an o also where the case has none. */
static lathe_arg stand_in_for_o(const struct scene *s)
{
    lathe_arg o = {.name = "o", .dtype = LATHE_F64, .ndim = 4};
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->tensor[i].name, "do") == 0) {
            o.shape = s->tensor[i].shape;
            o.data = calloc((size_t)s->tensor[i].count + 1, sizeof(double));
        }
    return o;
}

/* o and the finals that a backward pass is given. */
static lathe_status make_forward(struct scene *s, lathe_error *err)
{
    struct signature forward;
    lathe_arg arg[MAX_ARGS];
    int n = 0;
    signature_make(s->ir, LATHE_FORWARD, &forward);
    bool o = false;
    for (int i = 0; i < s->n; i++) {
        o |= strcmp(s->tensor[i].name, "o") == 0;
        if (signature_find(&forward, s->tensor[i].name) >= 0)
            arg[n++] = tensor_reference(&s->tensor[i], &s->sig.arg[s->which[i]]);
    }
    if (!o)
        arg[n++] = stand_in_for_o(s);
    const lathe_status status = host_forward(s->ir, &forward, arg, n, NULL, 0, err);
    if (!o)
        free(arg[n - 1].data);
    TRY(status);
    for (int i = 0; i < s->n; i++) {
        const int known = signature_find(&forward, s->tensor[i].name);
        if (known >= 0 &&
            (forward.arg[known].role == ROLE_OUT || forward.arg[known].role == ROLE_OUT_OPTIONAL))
            tensor_store(&s->tensor[i]);
    }
    return LATHE_OK;
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

static lathe_status bind(struct scene *s, lathe_error *err)
{
    TRY(problem_from_args(&s->sig, s->arg, s->n, true, &s->problem, err));
    s->problem.deterministic = s->c->deterministic;
    TRY(lathe__args_bind(&s->sig, s->arg, s->n, &s->bound, err));
    return lathe__args_fit_gpu(&s->sig, &s->problem, &s->bound, err);
}

/* Templates of Hopper are named by the cases that mean them, so that the portable ones run as texts of sm_90,
 * too. */
static const char PORTABLE[] = "attention_fwd_sm80,attention_bwd_sm80";

static lathe_status make_source(struct scene *s, struct source *source, lathe_error *err)
{
    struct device device = device_of(s->c->sm);
    const char *name = s->c->template_name ? s->c->template_name : PORTABLE;
    snprintf(device.template_name, sizeof device.template_name, "%s", name);
    device.sm_count = s->c->beside > 0 ? s->c->beside : device.sm_count;
    if (s->c->tile)
        snprintf(device.tile, sizeof device.tile, "%s", s->c->tile);
    struct plan plan;
    TRY(plan_pick(s->ir, s->c->pass, &s->problem, &device, &plan, err));
    if (s->c->blocks > 0 && plan.back.thread_blocks > 0) {
        plan.back.thread_blocks = s->c->blocks * (plan.back.paired ? 2 : 1);
        plan.back.pieces = plan.back.pieces > 0 ? 2 * plan.back.thread_blocks : 0;
    } else {
        plan.blocks = s->c->blocks > 0 ? s->c->blocks * (plan.cluster > 1 ? plan.cluster : 1) : plan.blocks;
    }
    return emit(s->ir, s->c->pass, &s->sig, &s->problem, &device, &plan, source, err);
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

static void add_dim(struct emulate_tensor_map *m, int64_t size, int64_t stride, unsigned box)
{
    m->dim[m->rank] = size;
    m->stride[m->rank] = 2 * stride;
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
        add_dim(&m, problem->dim[row->dim[0]], 1, row->swizzle / m.element_bytes);
        if (row->pack)
            add_dim(&m, pack, stride[1], (unsigned)pack);
        add_dim(&m, problem->dim[row->dim[1]], stride[2], (unsigned)(row->box_tokens / pack));
        add_dim(&m, problem->dim[row->dim[2]] / pack, stride[1] * pack, 1);
        add_dim(&m, problem->dim[row->dim[3]], stride[0], 1);
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
        tensor_freeze(&s->tensor[i], true);
    for (int i = 0; i < k->source.n_launches && good; i++)
        good = launch(w, s, k, i, seed + (uint64_t)i, why, size);
    for (int i = 0; i < s->n; i++)
        tensor_freeze(&s->tensor[i], false);
    return good;
}

/* Mods round the q and k that they make to 16 bits, which moves a logit by about 2^-9 (bf16) of itself. With
   logits of deviation 40 that is 0.1 and more; the hardware's tanh is off by 2^-11 of softcap's 30. */
static struct bounds bounds_of(const struct scene *s)
{
    const struct test_case *c = s->c;
    struct bounds b = {.row = 2e-5,
                       .final = 1e-5,
                       .spread = c->skewed ? SKEWED_SPREAD : 1.0,
                       .least = c->pass == LATHE_BACKWARD ? 1e-5 : 0.0};
    if (c->dim[SYM_N] == 1)
        b.least *= 10.0; /* all that is left is what cancels */
    if (c->dtype == LATHE_F32)
        return b;
    b.row = c->dtype == LATHE_BF16 ? 2e-2 : 4e-3;
    b.final = 1e-3;
    b.least *= c->dtype == LATHE_BF16 ? 100.0 : 20.0;
    for (int i = 0; s->ir->kind == KIND_ROWWISE && c->pass == LATHE_BACKWARD && i < s->ir->n_finals; i++)
        if (ir_result_is_row(s->ir, i))
            b.final = b.row; /* a saved row has 16 bits */
    const bool rounds = s->ir->mod[MOD_QUERY].n_stages + s->ir->mod[MOD_KEY].n_stages > 0;
    const bool inexact = strcmp(c->spec, "softcap") == 0;
    if (rounds)
        b.final *= c->dtype == LATHE_BF16 ? 8.0 : 2.0;
    if (c->skewed && (rounds || inexact)) {
        b.row *= rounds ? 30.0 : 8.0;
        b.final *= rounds ? 30.0 : 8.0;
    }
    if (c->pass == LATHE_BACKWARD && s->ir->kind == KIND_ATTENTION)
        b.gradient = b.row;
    return b;
}

/* NULL, or what is wrong with an output: a value, or poison that is gone. */
static const char *judge_output(const struct tensor *t, const struct bounds *b, char *why, size_t size)
{
    double *result = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *result);
    if (!result)
        return "out of memory";
    const size_t spilled = tensor_take(t, result);
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
    const struct bounds bounds = bounds_of(s);
    for (int i = 0; i < s->n; i++)
        if (tensor_is_output(&s->tensor[i]) && judge_output(&s->tensor[i], &bounds, why, size))
            return false;
    return true;
}

static void forget_workspace(struct scene *s)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        block_close(&s->work[i]);
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

static enum verdict run_scene(struct workshop *w, struct scene *s, uint64_t seed, char *why, size_t size)
{
    struct source *source = calloc(1, sizeof *source);
    lathe_error err = {.line = 0};
    if (!source || !scene_open(s, seed)) {
        free(source);
        snprintf(why, size, "out of memory");
        return VERDICT_FAILED;
    }
    const bool has_results = !s->c->hollow && s->c->pass == LATHE_BACKWARD && s->ir->kind != KIND_ELEMENTWISE;
    lathe_status status = has_results ? fill_results(s, &err) : LATHE_OK;
    if (status == LATHE_OK)
        status = bind(s, &err);
    if (status == LATHE_OK)
        status = make_source(s, source, &err);
    const bool refused = status == LATHE_UNSUPPORTED && s->c->may_refuse;
    w->hopper = s->c->sm >= 90;
    const struct kernel *k = status == LATHE_OK ? workshop_kernel(w, source, why, size) : NULL;
    free(source);
    if (k && !s->c->hollow && s->c->pass == LATHE_BACKWARD && s->ir->kind == KIND_ATTENTION)
        status = make_forward(s, &err);
    if (k && !s->c->hollow && status == LATHE_OK)
        status = make_reference(s, &err);
    if (status != LATHE_OK)
        snprintf(why, size, "%s", err.text);
    if (!k || status != LATHE_OK)
        return refused ? VERDICT_REFUSED : VERDICT_FAILED;
    if (s->c->beside > 0)
        return right_in_every_order(w, s, k, seed, why, size) ? VERDICT_PASSED : VERDICT_FAILED;
    bool good = launch_all(w, s, k, seed, why, size);
    /* few blocks: a launch finds their counter as the one before left it */
    const bool counts =
        s->c->blocks > 0 && (s->ir->inner || (s->c->pass == LATHE_FORWARD && s->ir->kind == KIND_ATTENTION));
    if (good && (s->c->deterministic || counts))
        good = same_again(w, s, k, !counts, seed + 1000, why, size);
    if (good && counts)
        good = same_when_overwritten(w, s, k, seed + 2000, why, size);
    good = good && (s->c->hollow || judge_all(s, why, size)); /* it takes the results away */
    return good ? VERDICT_PASSED : VERDICT_FAILED;
}

enum verdict case_run(struct workshop *w, const struct test_case *c, const struct ir *ir, uint64_t seed,
                      char *why, size_t size)
{
    struct scene *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(why, size, "out of memory");
        return VERDICT_FAILED;
    }
    s->c = c;
    s->ir = ir;
    signature_make(ir, c->pass, &s->sig);
    s->sized = *c;
    for (int k = 0; c->sizes && k < s->sig.n_free; k++)
        s->sized.dim[SYM_FREE + k] = named_size(c->sizes, s->sig.free_name[k]);
    s->sized.dim[SYM_TENSORS] = c->sizes ? named_size(c->sizes, "tensors") : -1;
    if (c->sizes)
        s->c = &s->sized;
    const enum verdict verdict = run_scene(w, s, seed, why, size);
    scene_close(s);
    free(s);
    return verdict;
}
