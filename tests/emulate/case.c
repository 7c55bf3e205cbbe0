/*
 * case.c: one case, from its problem to a verdict: the kernels that the generator and the launcher make of it
 * are run by the emulator and compared with the host device. All memory is freed here.
 */
#include "alone.h"
#include "budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ---------------------------------------------------------------------------------------- */

static bool is_named(const char *list, const char *name)
{
    char word[NAME_MAX_BYTES + 2];
    snprintf(word, sizeof word, " %s ", name);
    return list && strstr(list, word) != NULL;
}

static bool is_left_out(const struct sig_arg *a, const struct test_case *c)
{
    return is_named(c->without, a->name);
}

bool case_has(const struct test_case *c, const char *name)
{
    return is_named(c->with, name);
}

/* Of linear attention: what a case has only where it says so. */
static bool is_seldom(const struct sig_arg *a)
{
    static const char *const name[] = {"state_out_index", "states", "norms", "states_index"};
    bool found = false;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        found |= strcmp(a->name, name[i]) == 0;
    return found;
}

static bool is_asked_for(const struct sig_arg *a, const struct test_case *c)
{
    const bool pool = c->pass == LATHE_BACKWARD && strcmp(a->name, "state_index") == 0;
    return !(pool || is_seldom(a)) || case_has(c, a->name);
}

/* Of attention. */
static bool is_list_of_sequences(const struct sig_arg *a)
{
    return strcmp(a->name, "cu_q") == 0 || strcmp(a->name, "cu_kv") == 0 || strcmp(a->name, "used_kv") == 0 ||
           strcmp(a->name, "pages") == 0;
}

/* Of attention: parts of rows come in the place of o and the finals. */
static bool is_instead(const struct sig_arg *a, const struct test_case *c)
{
    const bool forward = c->pass == LATHE_FORWARD;
    const bool part = strcmp(a->name, forward ? "part_o" : "merged_o") == 0 ||
                      strcmp(a->name, forward ? "part_rows" : "merged_rows") == 0;
    return c->pass != LATHE_BACKWARD && (c->parts ? a->unless > 0 : part);
}

static bool is_given(const struct signature *sig, int arg, const struct test_case *c)
{
    const struct sig_arg *a = &sig->arg[arg];
    int gradients = 0;
    for (int i = 0; i < arg; i++)
        gradients += sig->arg[i].role == ROLE_OUT_OPTIONAL;
    if (is_left_out(a, c) || !is_asked_for(a, c) || is_instead(a, c) || a->role == ROLE_MASK_KEPT)
        return false;
    const bool pages = strcmp(a->name, "pages") == 0;
    if (is_list_of_sequences(a) && !case_has_pages(c) && (pages || strstr(c->group, "varlen") == NULL))
        return false;
    if (c->pass == LATHE_BACKWARD && a->role == ROLE_OUT_OPTIONAL)
        return !(c->unwanted >> gradients & 1u);
    if (a->role == ROLE_CHUNK || a->role == ROLE_STEP)
        return c->kv_chunk > 0;
    if (a->role == ROLE_START || a->role == ROLE_TOTAL)
        return c->dim[a->dim[0].sym] >= 0;
    return a->role == ROLE_Q_START ? c->has_q_start : !(a->optional && c->absent);
}

/* The tensor in whose place this argument is to lie; NULL: it has its own. */
static struct tensor *place_of(struct scene *s, int arg)
{
    const int over = s->c->in_place ? s->sig.arg[arg].over : 0;
    for (int k = 0; over > 0 && k < s->n; k++)
        if (s->which[k] + 1 == over)
            return &s->tensor[k];
    return NULL;
}

/* A result over an operand: the kernel's memory is the operand's, and what comes to lie there is judged by
 * its name. The host device has memory for both; elements that nothing is written to stay what they were. */
static bool open_over(struct tensor *t, const char *name, struct tensor *place)
{
    const size_t bytes = ((size_t)place->count + 1) * sizeof *t->value;
    *t = *place;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->block = (struct block){.pages = NULL};
    t->value = malloc(bytes);
    if (t->value)
        memcpy(t->value, place->value, bytes - sizeof *t->value);
    place->in_place = true;
    return t->value != NULL;
}

static double unit_of(void *state)
{
    uint64_t *const x = state;
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*x >> 11) + 0.5) / 9007199254740992.0;
}

/* Of specs that are not this test's own, whose names say nothing, and of those with a reader or a writer,
 * which would let states grow: values in the range that an input declares. */
static bool draw_declared(const struct scene *s, struct tensor *t, uint64_t seed)
{
    const struct input *in = NULL;
    for (int i = 0; i < s->ir->n_inputs; i++)
        if (strcmp(s->ir->input[i].name, t->name) == 0 && input_has_range(&s->ir->input[i]))
            in = &s->ir->input[i];
    const bool rule = linear_has(s->ir, OF_READER) || linear_has(s->ir, OF_WRITER);
    if (!in || (!rule && strcmp(s->c->group, "specs") != 0))
        return true;
    const bool whole = t->dtype == LATHE_I32 || t->dtype == LATHE_U8;
    lathe_arg drawn = {t->name,
                       calloc((size_t)t->count + 1, sizeof(double)),
                       whole ? t->dtype : LATHE_F64,
                       t->ndim,
                       t->shape,
                       NULL};
    double *value = calloc((size_t)t->count + 1, sizeof *value);
    const bool ok = drawn.data && value;
    if (ok)
        input_fill(in, s->c->dim, &drawn, unit_of, &seed);
    for (int64_t i = 0; ok && i < t->count; i++)
        value[i] = dtype_load(drawn.dtype, drawn.data, i);
    if (ok)
        tensor_fill(t, value);
    free(drawn.data);
    free(value);
    return ok;
}

/* A result of which parts are not written: tokens behind the last sequence, states that nobody leaves. */
static bool has_gaps(const struct test_case *c, const char *name)
{
    return (c->ends > 0 && strcmp(name, "o") == 0) || strcmp(name, "states") == 0 ||
           strcmp(name, "norms") == 0;
}

static bool open_argument(struct scene *s, int arg, uint64_t seed)
{
    struct tensor *const place = place_of(s, arg);
    s->which[s->n] = arg;
    struct tensor *t = &s->tensor[s->n++];
    if (place ? !open_over(t, s->sig.arg[arg].name, place) : !tensor_open(t, &s->sig, arg, s->c, seed))
        return false;
    for (int64_t i = 0; !place && has_gaps(s->c, t->name) && i < t->count; i++)
        t->value[i] = (double)NAN; /* as its memory */
    if (!place && !tensor_is_output(t) && !t->list && !draw_declared(s, t, seed))
        return false;
    s->arg[s->n - 1] = tensor_arg(place ? place : t);
    s->arg[s->n - 1].name = t->name;
    return true;
}

static bool scene_open(struct scene *s, uint64_t seed)
{
    for (int i = 0; i < s->sig.n_args; i++)
        if (is_given(&s->sig, i, s->c) && !open_argument(s, i, seed * 64 + (uint64_t)i))
            return false;
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
    bool any = false;
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
            any = true;
        }
        n++;
    }
    if (!any)
        return LATHE_OK;
    bool output[MAX_ARGS] = {false};
    for (int k = 0; k < forward.n_args; k++) /* y, which the backward pass does not take, goes nowhere */
        output[k] = forward.arg[k].role == ROLE_OUT;
    for (int k = 0; k < forward.n_args; k++)
        if (output[k])
            forward.arg[k].role = ROLE_OUT_OPTIONAL, forward.arg[k].optional = true;
    const lathe_status status = host_forward(s->plain, &forward, arg, n, NULL, 0, err);
    for (int i = 0; i < s->n; i++) {
        if (result[i] && status == LATHE_OK)
            tensor_fill(&s->tensor[i], result[i]);
        free(result[i]);
    }
    return status;
}

/* What the host device has written beside an operand is what the kernel is to leave in its place. */
static void judge_in_place(struct scene *s)
{
    for (int i = 0; i < s->n; i++) {
        struct tensor *const place = place_of(s, s->which[i]);
        if (place)
            memcpy(place->value, s->tensor[i].value, (size_t)place->count * sizeof *place->value);
    }
}

/* The backward pass of the reference makes results of the forward pass itself: given, they would count. Of a
   part of the keys they have to. */
static bool is_saved(const struct scene *s, const char *name)
{
    struct signature forward;
    signature_make(s->ir, LATHE_FORWARD, &forward);
    const bool makes = s->c->pass == LATHE_BACKWARD && s->c->dim[SYM_ALL_KV] < 0;
    const int arg = makes ? lathe__arg_find(&forward, name, 0) : -1;
    return arg >= 0 && lathe__is_result(&forward.arg[arg]);
}

static lathe_status make_reference(struct scene *s, lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        struct tensor *const t = &s->tensor[i];
        if (!is_saved(s, t->name))
            arg[n++] = place_of(s, s->which[i])
                           ? (lathe_arg){t->name, t->value, t->expects, t->ndim, t->shape, NULL}
                           : tensor_reference(t, &s->sig.arg[s->which[i]]);
    }
    const lathe_status status = s->c->pass == LATHE_BACKWARD
                                    ? host_backward(s->plain, &s->sig, arg, n, err)
                                    : host_forward(s->plain, &s->sig, arg, n, NULL, 0, err);
    judge_in_place(s);
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
        if (lathe__arg_find(&forward, s->tensor[i].name, 0) >= 0)
            arg[n++] = tensor_reference(&s->tensor[i], &s->sig.arg[s->which[i]]);
    }
    if (!o)
        arg[n++] = stand_in_for_o(s);
    const lathe_status status = host_forward(s->plain, &forward, arg, n, NULL, 0, err);
    if (!o)
        free(arg[n - 1].data);
    TRY(status);
    for (int i = 0; i < s->n; i++) {
        const int known = lathe__arg_find(&forward, s->tensor[i].name, 0);
        if (known >= 0 &&
            (forward.arg[known].role == ROLE_OUT || forward.arg[known].role == ROLE_OUT_OPTIONAL))
            tensor_store(&s->tensor[i]);
    }
    return LATHE_OK;
}

/* ---- the kernel ---------------------------------------------------------------------------------------- */

/* A call of which nothing is wanted always is refused. */
static bool is_right_to_refuse(const struct scene *s, lathe_status status, const char *text)
{
    bool wants = false;
    for (int i = 0; i < s->n; i++)
        wants |= tensor_is_output(&s->tensor[i]);
    const bool nothing = strstr(text, "expected a gradient to compute, given none") ||
                         strstr(text, "expected a result to compute, given none");
    return (status == LATHE_UNSUPPORTED && s->c->may_refuse) || (status == LATHE_ARG && !wants && nothing);
}

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

/* So many blocks take tiles in turn, where the case says. */
static void take_blocks(int blocks, struct plan *plan)
{
    struct back_plan *back = &plan->attention.back;
    if (blocks <= 0)
        return;
    if (plan->row->form == PLAN_ATTENTION_BACK && back->thread_blocks > 0) {
        back->thread_blocks = blocks * (back->paired ? 2 : 1);
        back->pieces = back->pieces > 0 ? 2 * back->thread_blocks : 0;
    } else if (plan->row->form <= PLAN_ATTENTION_BACK) {
        plan->attention.blocks = blocks;
    } else if (plan->row->form == PLAN_MAPS) {
        plan->maps.blocks = blocks;
    } else {
        plan->rows.blocks = blocks * (plan->rows.cluster > 1 ? plan->rows.cluster : 1);
    }
}

static lathe_status make_source(struct scene *s, struct source *source, lathe_error *err)
{
    struct device device = device_of(s->c->sm);
    const char *name = s->c->template_name ? s->c->template_name : PORTABLE;
    snprintf(device.template_name, sizeof device.template_name, "%s", name);
    device.sm_count = s->c->beside > 0 ? s->c->beside : device.sm_count;
    if (s->c->tile)
        snprintf(device.tile, sizeof device.tile, "%s", s->c->tile);
    struct kernel_request request;
    struct plan plan;
    TRY(kernel_open(&request, s->ir, s->c->pass, &s->sig, &s->problem, &device, err));
    lathe_status status = plan_pick(&request, &plan, err);
    if (status == LATHE_OK) {
        take_blocks(s->c->blocks, &plan);
        status = emit(&request, &plan, source, err);
    }
    kernel_close(&request);
    return status;
}

/* Products of f32 are off by less than 2^-16 of their terms (templates/common/mma_f32.cuh); of logits of
   deviation 40 that is 2^-13 or so of a weight. A product of bf16 is off by 2^-9, one of tf32 by 2^-11. */
static struct bounds f32_bounds(const struct test_case *c, struct bounds b)
{
    b.row = b.final = c->skewed ? 4e-4 : 4e-5;
    b.mean = 1.0; /* sums whose terms cancel: a score, and o of weights of either sign */
    if (c->pass == LATHE_BACKWARD)
        b.gradient = 2.0 * b.row; /* of a number that all pairs add to, most terms cancel */
    return b;
}

/* Mods round the q and k that they make to 16 bits, which moves a logit by about 2^-9 (bf16) of itself. With
   logits of deviation 40 that is 0.1 and more; the hardware's tanh is off by 2^-11 of softcap's 30. */
struct bounds case_bounds(const struct scene *s)
{
    const struct test_case *c = s->c;
    struct bounds b = {.row = 2e-5,
                       .final = 1e-5,
                       .mean = s->ir->kind == KIND_LINEAR ? 0.25 : 0.02, /* o is a sum whose terms cancel */
                       .spread = c->skewed ? SKEWED_SPREAD : 1.0,
                       .least = c->pass == LATHE_BACKWARD ? 1e-5 : 0.0};
    if (c->dim[SYM_N] == 1)
        b.least *= 10.0; /* all that is left is what cancels */
    const bool tokens = c->pass == LATHE_BACKWARD && s->ir->kind == KIND_LINEAR; /* sums that cancel */
    if (tokens)
        b.gradient = b.row;
    if (c->dtype == LATHE_F32 && s->ir->kind == KIND_ATTENTION)
        return f32_bounds(c, b);
    if (c->dtype == LATHE_F32)
        return b;
    b.row = c->dtype == LATHE_BF16 ? 2e-2 : 4e-3;
    b.final = 1e-3;
    b.least *= c->dtype == LATHE_BF16 ? 100.0 : 20.0;
    for (int i = 0; s->ir->kind == KIND_ROWWISE && c->pass == LATHE_BACKWARD && i < s->ir->n_finals; i++)
        if (ir_result_is_row(s->ir, i))
            b.final = b.row;                          /* a saved row has 16 bits */
    if (c->dtypes && strstr(c->dtypes, "q=f8e4m3")) { /* weights of 4 bits; scores of 14 */
        b.row = 8e-2;
        b.final = 1e-2;
    }
    const bool rounds = s->ir->mod[MOD_QUERY].n_stages + s->ir->mod[MOD_KEY].n_stages > 0;
    const bool inexact = strcmp(c->spec, "softcap") == 0;
    if (rounds)
        b.final *= c->dtype == LATHE_BF16 ? 8.0 : 2.0;
    if (s->ir->kind == KIND_LINEAR) /* one row is as exact as its q, k and v, whichever has been rounded */
        b.row *= rounds || s->ir->mod[MOD_VALUE].n_stages > 0 ? 2.0 : 1.0;
    if (c->parts && inexact)
        b.final *= 8.0; /* a row's sum, and not its logarithm */
    if (c->skewed && (rounds || inexact)) {
        b.row *= rounds ? 30.0 : 8.0;
        b.final *= rounds ? 30.0 : 8.0;
    }
    b.row *= c->exact > 0.0 ? c->exact : 1.0;
    if (c->pass == LATHE_BACKWARD && (s->ir->kind == KIND_ATTENTION || s->ir->kind == KIND_LINEAR))
        b.gradient = b.row;
    return b;
}

/* ---- from a scene to a verdict ---------------------------------------------------------------------------
 */

/* From arguments to what is expected of the kernel, which `source` gets. */
static lathe_status prepare(struct scene *s, struct source *source, lathe_error *err)
{
    const bool backward = s->c->pass == LATHE_BACKWARD && !s->c->hollow;
    if (backward && s->ir->kind != KIND_ELEMENTWISE)
        TRY(fill_results(s, err));
    TRY(bind(s, err));
    TRY(make_source(s, source, err));
    if (backward && s->ir->kind == KIND_ATTENTION)
        TRY(make_forward(s, err));
    return s->c->hollow ? LATHE_OK : make_reference(s, err);
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
    const lathe_status status = prepare(s, source, &err);
    enum verdict verdict = VERDICT_FAILED;
    if (status == LATHE_OK) {
        struct sha256 digest;
        char hex[STORE_HEX];
        case_digest(&digest, w, s, source, seed);
        if (store_has_passed(&w->store, s->c->group, &digest, hex)) {
            source_free(source);
            free(source);
            return VERDICT_PASSED;
        }
        if (!budget_begin()) {
            source_free(source);
            free(source);
            return (enum verdict)VERDICT_NOT_RUN;
        }
        w->hopper = s->c->sm >= 90;
        const struct kernel *k = workshop_kernel(w, source, why, size);
        const bool alone = s->c->deterministic == DETERMINISTIC_BATCH;
        if (k && scene_run(w, s, k, seed, why, size) &&
            (!alone || scene_is_same_alone(w, s, k, seed + 3000, why, size))) {
            verdict = VERDICT_PASSED;
            store_passed(&w->store, s->c->group, hex);
        }
        budget_end();
    } else {
        snprintf(why, size, "%s", err.text);
        verdict = is_right_to_refuse(s, status, err.text) ? VERDICT_REFUSED : VERDICT_FAILED;
        source_free(source);
    }
    free(source);
    return verdict;
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
    if (ir->kind == KIND_ATTENTION && s->sized.dim[SYM_SEQS] < 0) /* sequences are batches */
        s->sized.dim[SYM_SEQS] = s->sized.dim[SYM_B];
    if (c->sizes || ir->kind == KIND_ATTENTION)
        s->c = &s->sized;
    struct diag diag = {0};
    struct ir *reference =
        c->reference ? spec_load("reference.lua", c->reference, strlen(c->reference), &diag) : NULL;
    s->plain = reference ? reference : ir;
    enum verdict verdict = VERDICT_FAILED;
    if (c->reference && !reference)
        snprintf(why, size, "its reference: %s", diag.entry[0].text);
    else
        verdict = run_scene(w, s, seed, why, size);
    scene_close(s);
    ir_free(reference);
    free(s);
    return verdict;
}
