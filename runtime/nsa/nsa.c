/*
 * nsa.c: native sparse attention as one object: sizes that are checked, a kernel for each step, the places of
 * buffers in the caller's workspace, lists of the sequences. In: a context, sizes, tensors. Out: launches in
 * order. Nothing is allocated on the device.
 */
#include "runtime/nsa/nsa.h"
#include "runtime/driver/memory.h"
#include "runtime/jit/jit.h"

#include <stdlib.h>
#include <string.h>

static const char NO_OBJECT[] = "nsa: expected what lathe_nsa_create made, given NULL";

/* ---- sizes ----------------------------------------------------------------------------------------- */

static lathe_status check_sizes(const lathe_nsa_sizes *s, lathe_error *err)
{
    const struct {
        const char *name;
        int32_t value, least;
    } list[] = {{"h", s->h, 1},           {"h_kv", s->h_kv, 1},          {"d", s->d, 1},
                {"d_v", s->d_v, 1},       {"block", s->block, 1},        {"blocks", s->blocks, 1},
                {"window", s->window, 1}, {"sequences", s->sequences, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].value < list[i].least)
            return lathe__fail(err, LATHE_ARG, "nsa: %s: expected %d or more, given %d", list[i].name,
                               list[i].least, list[i].value);
    if (s->h % s->h_kv != 0)
        return lathe__fail(err, LATHE_ARG, "nsa: h: expected a multiple of h_kv, %d, given %d", s->h_kv,
                           s->h);
    if (s->sequences > 0 && !s->lengths)
        return lathe__fail(err, LATHE_ARG, "nsa: lengths: expected the tokens of %d sequences, given NULL",
                           s->sequences);
    return LATHE_OK;
}

static lathe_status count_tokens(struct lathe_nsa *n, const int32_t *lengths, lathe_error *err)
{
    n->batch = n->s.sequences > 0 ? n->s.sequences : 1;
    for (int i = 0; i < n->s.sequences; i++) {
        if (lengths[i] < 0)
            return lathe__fail(err, LATHE_ARG, "nsa: lengths: expected entry %d to be 0 or more, given %d", i,
                               lengths[i]);
        if (lengths[i] != lengths[0])
            n->batch = 1;
        n->tokens += lengths[i];
        n->chunks += ((int64_t)lengths[i] + n->s.block - 1) / n->s.block;
    }
    if (n->tokens > INT32_MAX)
        return lathe__fail(err, LATHE_ARG, "nsa: lengths: expected fewer than 2^31 tokens in all, given %lld",
                           (long long)n->tokens);
    return LATHE_OK;
}

/* ---- lists ----------------------------------------------------------------------------------------- */

static size_t bytes_of_list(const struct lathe_nsa *n, enum nsa_buffer b)
{
    switch (b) {
    case CU:
    case CHUNK:
        return ((size_t)n->s.sequences + 1) * 4;
    case FIRST:
    case LENGTH:
        return (size_t)n->chunks * 4;
    case PLACE:
        return (size_t)n->s.block * 4;
    case OWN:
    case OWN_FIRST:
        return (size_t)n->tokens * 4;
    case ZERO: /* one is read as lse is stored, too */
        return (size_t)n->s.d_v * lathe_dtype_size(n->s.dtype) + 8;
    default:
        return lathe_dtype_size(lathe__nsa_wide(n));
    }
}

/* Of a sequence with its first token and its first chunk. */
static void fill_sequence(const struct lathe_nsa *n, int length, int token, int chunk)
{
    int32_t *const *list = (int32_t *const *)n->list;
    const int block = n->s.block;
    for (int i = 0; i < length; i++) {
        list[OWN][token + i] = chunk + i / block;
        list[OWN_FIRST][token + i] = chunk;
    }
    for (int i = 0; i < length; i += block) {
        list[FIRST][chunk + i / block] = token + i;
        list[LENGTH][chunk + i / block] = length - i < block ? length - i : block;
    }
}

static lathe_status make_lists(struct lathe_nsa *n, const int32_t *lengths, lathe_error *err)
{
    for (int b = 0; b < LISTS; b++) {
        n->list[b] = calloc(1, bytes_of_list(n, (enum nsa_buffer)b) + 4);
        if (!n->list[b])
            return lathe__fail_memory(err);
    }
    int32_t *const token = n->list[CU];
    int32_t *const chunk = n->list[CHUNK];
    for (int i = 0; i < n->s.sequences; i++) {
        fill_sequence(n, lengths[i], token[i], chunk[i]);
        token[i + 1] = token[i] + lengths[i];
        chunk[i + 1] = chunk[i] + (int32_t)(((int64_t)lengths[i] + n->s.block - 1) / n->s.block);
    }
    for (int i = 0; i < n->s.block; i++)
        ((int32_t *)n->list[PLACE])[i] = i;
    if (n->s.dtype == LATHE_F64)
        *(double *)n->list[ONE] = 1;
    else
        *(float *)n->list[ONE] = 1;
    return LATHE_OK;
}

/* ---- the workspace --------------------------------------------------------------------------------- */

static bool is_of_means(enum nsa_buffer b)
{
    return b == K_MEAN || b == V_MEAN || b == DK_MEAN || b == DV_MEAN || b == DK_CMP || b == DV_CMP;
}

static size_t bytes_of(const struct lathe_nsa *n, enum nsa_buffer b)
{
    const size_t tokens = (size_t)n->tokens;
    const size_t chunks = (size_t)n->chunks;
    const size_t element = lathe_dtype_size(n->s.dtype);
    const size_t wide = lathe_dtype_size(lathe__nsa_wide(n));
    const size_t kv = (size_t)n->s.h_kv;
    const size_t d = (size_t)n->s.d;
    const size_t dv = (size_t)n->s.d_v;
    if (b >= DO_CMP && b < KERNELS && !n->s.backward)
        return 0;
    if (n->s.compressed && is_of_means(b))
        return 0;
    switch (b) {
    case K_MEAN:
    case DK_MEAN:
        return chunks * kv * d * element;
    case V_MEAN:
    case DV_MEAN:
        return chunks * kv * dv * element;
    case WEIGHT:
        return kv * tokens * chunks * wide;
    case BLOCKS:
        return kv * tokens * (size_t)n->s.blocks * 4;
    case LSE_CMP:
    case LSE_SLC:
    case LSE_SWA:
        return (size_t)n->s.h * tokens * wide;
    case DQ_CMP:
    case DQ_SLC:
    case DQ_SWA:
        return tokens * (size_t)n->s.h * d * element;
    case DK_CMP:
    case DK_SLC:
    case DK_SWA:
        return tokens * kv * d * (b == DK_CMP ? wide : element);
    case DV_CMP:
    case DV_SLC:
    case DV_SWA:
        return tokens * kv * dv * (b == DV_CMP ? wide : element);
    case KERNELS:
        return n->kernel_bytes;
    default:
        return b <= ONE ? bytes_of_list(n, b) : tokens * (size_t)n->s.h * dv * element;
    }
}

static void place_buffers(struct lathe_nsa *n)
{
    for (int b = 0; b < BUFFERS; b++) {
        n->offset[b] = n->bytes;
        n->bytes += (bytes_of(n, (enum nsa_buffer)b) + 255) / 256 * 256;
    }
}

static lathe_status copy_lists(const struct lathe_nsa *n, lathe_error *err)
{
    for (int b = 0; b < LISTS; b++) {
        void *to = n->workspace + n->offset[b];
        const size_t bytes = bytes_of_list(n, (enum nsa_buffer)b);
        if (n->ctx->driver)
            TRY(lathe__device_upload(n->ctx->driver, to, n->list[b], bytes, err));
        else
            memcpy(to, n->list[b], bytes);
    }
    return LATHE_OK;
}

lathe_status lathe_nsa_attach(lathe_nsa *n, void *workspace, lathe_error *err)
{
    bool pushed = false;
    if (!n)
        return lathe__fail(err, LATHE_ARG, NO_OBJECT);
    n->workspace = NULL;
    if (!workspace)
        return lathe__fail(err, LATHE_ARG, "nsa: workspace: expected %zu bytes of the device, given NULL",
                           n->bytes);
    if (n->ctx->driver)
        TRY(lathe__context_enter(n->ctx->driver, n->ctx->context, &pushed, err));
    n->workspace = workspace;
    const lathe_status status = copy_lists(n, err);
    if (status != LATHE_OK)
        n->workspace = NULL;
    if (n->ctx->driver)
        lathe__context_leave(n->ctx->driver, pushed);
    return status;
}

size_t lathe_nsa_workspace_size(const lathe_nsa *n)
{
    return n ? n->bytes : 0;
}

/* ---- kernels --------------------------------------------------------------------------------------- */

static const char SUM[] = "return elementwise { over = { 'rows', 'n' },\n"
                          "  operands = { a = tensor('float'), b = tensor('float'), c = tensor('float') },\n"
                          "  results = { y = tensor('float') },\n"
                          "  forward = function(v) return v.a + v.b + v.c end }\n";

static const char SUM_OF_TWO[] = "return elementwise { over = { 'rows', 'n' },\n"
                                 "  operands = { b = tensor('float'), c = tensor('float') },\n"
                                 "  results = { y = tensor('float') },\n"
                                 "  forward = function(v) return v.b + v.c end }\n";

static const struct nsa_row {
    const char *spec; /* NULL: a sum */
    int first, n;     /* parameters, of BLOCK and BLOCKS */
    bool backward;    /* the pass */
} STEP[STEPS] = {
    [POOL_K] = {"mean_pool_packed", 0, 0, false},     [POOL_V] = {"mean_pool_packed", 0, 0, false},
    [COMPRESSED] = {"nsa_compressed", 0, 1, false},   [WEIGHTS] = {"nsa_compressed", 0, 1, true},
    [SELECT] = {"nsa_select", 1, 1, false},           [SELECTED] = {"nsa_selected", 0, 2, false},
    [WINDOW] = {"sliding_window", 0, 0, false},       [GATES] = {"nsa_gates", 0, 0, false},
    [GATES_BACK] = {"nsa_gates", 0, 0, true},         [COMPRESSED_BACK] = {"nsa_compressed", 0, 1, true},
    [SELECTED_BACK] = {"nsa_selected", 0, 2, true},   [WINDOW_BACK] = {"sliding_window", 0, 0, true},
    [POOL_K_BACK] = {"mean_pool_packed", 0, 0, true}, [POOL_V_BACK] = {"mean_pool_packed", 0, 0, true},
};

/* Steps that a caller who compresses has none of. */
static bool is_left_out(const struct lathe_nsa *n, enum nsa_step step)
{
    return n->s.compressed &&
           (step == POOL_K || step == POOL_V || step == POOL_K_BACK || step == POOL_V_BACK);
}

static lathe_status open_spec(const struct lathe_nsa *n, enum nsa_step step, lathe_spec **spec,
                              lathe_error *err)
{
    const struct nsa_row *row = &STEP[step];
    const lathe_param param[] = {{"BLOCK", n->s.block}, {"BLOCKS", n->s.blocks}};
    const bool two = n->s.compressed && step != SUM_Q;
    const char *const text = two ? SUM_OF_TWO : SUM;
    return row->spec ? lathe_spec_open(spec, row->spec, NULL, 0, param + row->first, row->n, err)
                     : lathe_spec_parse(spec, "nsa_sum", text, strlen(text), err);
}

static lathe_status get_kernel(struct lathe_nsa *n, enum nsa_step step, lathe_error *err)
{
    static const lathe_nsa_tensors none = {.q = NULL};
    const struct nsa_row *row = &STEP[step];
    struct nsa_call c;
    lathe_spec *spec = NULL;
    size_t size = 0;
    lathe__nsa_arguments(&c, n, &none, step);
    lathe_status status = open_spec(n, step, &spec, err);
    if (status == LATHE_OK)
        status = lathe_kernel_get(&n->kernel[step], n->ctx, spec,
                                  row->backward ? LATHE_BACKWARD : LATHE_FORWARD, c.arg, c.n, err);
    if (status == LATHE_OK)
        status = lathe_workspace_size(&size, n->kernel[step], c.arg, c.n, err);
    n->kernel_bytes = size > n->kernel_bytes ? size : n->kernel_bytes;
    lathe_spec_destroy(spec);
    return status;
}

static lathe_status build(struct lathe_nsa *n, const int32_t *lengths, lathe_error *err)
{
    TRY(count_tokens(n, lengths, err));
    TRY(make_lists(n, lengths, err));
    const int steps = n->tokens == 0 ? 0 : n->s.backward ? STEPS : GATES_BACK;
    for (int step = 0; step < steps; step++)
        if (!is_left_out(n, (enum nsa_step)step))
            TRY(get_kernel(n, (enum nsa_step)step, err));
    place_buffers(n);
    return LATHE_OK;
}

lathe_status lathe_nsa_create(lathe_nsa **out, lathe_ctx *ctx, const lathe_nsa_sizes *sizes, lathe_error *err)
{
    if (out)
        *out = NULL;
    if (!out || !ctx || !sizes)
        return lathe__fail(err, LATHE_ARG, "nsa: %s: expected %s, given NULL",
                           !out   ? "out"
                           : !ctx ? "ctx"
                                  : "sizes",
                           !out   ? "a place for the object"
                           : !ctx ? "a context"
                                  : "its sizes");
    TRY(check_sizes(sizes, err));
    struct lathe_nsa *n = calloc(1, sizeof *n);
    if (!n)
        return lathe__fail_memory(err);
    n->s = *sizes;
    n->s.lengths = NULL;
    n->ctx = ctx; /* which the kernels keep */
    const lathe_status status = build(n, sizes->lengths, err);
    if (status == LATHE_OK)
        *out = n;
    else
        lathe_nsa_destroy(n);
    return status;
}

void lathe_nsa_destroy(lathe_nsa *n)
{
    if (!n)
        return;
    for (int step = 0; step < STEPS; step++)
        lathe_kernel_release(n->kernel[step]);
    for (int b = 0; b < LISTS; b++)
        free(n->list[b]);
    free(n);
}

/* ---- launches -------------------------------------------------------------------------------------- */

static lathe_status check_tensors(const struct lathe_nsa *n, const lathe_nsa_tensors *t, bool backward,
                                  lathe_error *err)
{
    const struct {
        const char *name;
        const void *data;
        bool always;
    } list[] = {{"q", t->q, true},
                {"k", t->k, true},
                {"v", t->v, true},
                {"g_cmp", t->g_cmp, true},
                {"g_slc", t->g_slc, true},
                {"g_swa", t->g_swa, true},
                {"o", t->o, !backward},
                {"blocks", t->blocks, t->blocks_given != 0},
                {"counts", t->counts, n->s.counts && !t->blocks_given && !backward},
                {"k_cmp", t->k_cmp, n->s.compressed != 0},
                {"v_cmp", t->v_cmp, n->s.compressed != 0},
                {"dk_cmp", t->dk_cmp, backward && n->s.compressed},
                {"dv_cmp", t->dv_cmp, backward && n->s.compressed},
                {"dout", t->dout, backward},
                {"dq", t->dq, backward},
                {"dk", t->dk, backward},
                {"dv", t->dv, backward},
                {"dg_cmp", t->dg_cmp, backward},
                {"dg_slc", t->dg_slc, backward},
                {"dg_swa", t->dg_swa, backward}};
    if (backward && !n->s.backward)
        return lathe__fail(err, LATHE_ARG, "nsa: expected backward = 1 in its sizes, given 0");
    if (!n->workspace)
        return lathe__fail(err, LATHE_ARG, "nsa: expected a workspace of %zu bytes by lathe_nsa_attach",
                           n->bytes);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].always && !list[i].data)
            return lathe__fail(err, LATHE_ARG, "nsa: %s: expected a tensor, given NULL", list[i].name);
    return LATHE_OK;
}

static lathe_status run(struct lathe_nsa *n, const lathe_nsa_tensors *t, enum nsa_step from, enum nsa_step to,
                        lathe_stream stream, lathe_error *err)
{
    if (!n || !t)
        return n ? lathe__fail(err, LATHE_ARG, "nsa: tensors: expected a record, given NULL")
                 : lathe__fail(err, LATHE_ARG, NO_OBJECT);
    if (n->tokens == 0)
        return LATHE_OK;
    TRY(check_tensors(n, t, from > GATES, err));
    for (unsigned step = from; step < to; step++) {
        struct nsa_call c;
        if (is_left_out(n, (enum nsa_step)step) || (t->blocks_given && (step == WEIGHTS || step == SELECT)))
            continue;
        lathe__nsa_arguments(&c, n, t, (enum nsa_step)step);
        TRY(lathe_launch(n->kernel[step], c.arg, c.n, n->workspace + n->offset[KERNELS], stream, err));
    }
    return LATHE_OK;
}

lathe_status lathe_nsa_forward(lathe_nsa *n, const lathe_nsa_tensors *t, lathe_stream stream,
                               lathe_error *err)
{
    return run(n, t, POOL_K, GATES_BACK, stream, err);
}

lathe_status lathe_nsa_backward(lathe_nsa *n, const lathe_nsa_tensors *t, lathe_stream stream,
                                lathe_error *err)
{
    return run(n, t, GATES_BACK, STEPS, stream, err);
}
