/*
 * nsa.c: the steps of native sparse attention. In: tensors of packed sequences. Out: o, and gradients. A step
 * is a kernel of a spec and a function that names its arguments; all of them work on tensors of tokens, of
 * chunks (blocks of keys, of which a sequence's last may be short) and of weights [h_kv, tokens, chunks].
 */
#include "nsa.h"

#include <stdbool.h>
#include <stdio.h>

enum { MOST_ARGUMENTS = 14 };

enum step {
    POOL_K,
    POOL_V,
    COMPRESSED,
    WEIGHTS, /* of blocks: the gradient of lse by what is added to their scores */
    SELECT,
    SELECTED,
    WINDOW,
    GATES,
    GATES_BACK, /* from here on: nsa_backward */
    COMPRESSED_BACK,
    SELECTED_BACK,
    WINDOW_BACK,
    POOL_K_BACK,
    POOL_V_BACK,
    SUM_Q,
    SUM_K,
    SUM_V,
    STEPS
};

/* What lies between the steps. */
enum buffer {
    CU,    /* [sequences + 1]: where they begin among tokens, */
    CHUNK, /* and among chunks */
    FIRST, /* [chunks]: first token, and how many */
    LENGTH,
    PLACE,     /* [block]: 0, 1, ... */
    OWN,       /* [tokens]: the chunk that a token is in, */
    OWN_FIRST, /* and the first one of its sequence */
    ZERO,      /* [d_v] */
    ONE,       /* [1] */
    K_MEAN,    /* [chunks, h_kv, d] */
    V_MEAN,    /* [chunks, h_kv, d_v] */
    WEIGHT,    /* [h_kv, tokens, chunks] */
    BLOCKS,    /* [h_kv, tokens, blocks] */
    O_CMP,     /* [tokens, h, d_v], of each branch; */
    O_SLC,
    O_SWA,
    LSE_CMP, /* [h, tokens]; */
    LSE_SLC,
    LSE_SWA,
    DO_CMP, /* and gradients of all of this */
    DO_SLC,
    DO_SWA,
    DQ_CMP,
    DQ_SLC,
    DQ_SWA,
    DK_MEAN,
    DK_CMP, /* f32 */
    DK_SLC,
    DK_SWA,
    DV_MEAN,
    DV_CMP, /* f32 */
    DV_SLC,
    DV_SWA,
    BUFFERS
};

struct call {
    lathe_arg arg[MOST_ARGUMENTS];
    int64_t shape[MOST_ARGUMENTS][4], stride[MOST_ARGUMENTS][4];
    int n;
};

struct nsa {
    struct nsa_sizes s;
    struct memory memory;
    int64_t tokens, chunks;
    int32_t window;
    lathe_kernel *kernel[STEPS];
    void *buffer[BUFFERS];
    void *workspace;
};

/* ---- arguments --------------------------------------------------------------------------------------------
 */

static lathe_dtype wide(const struct nsa *n)
{
    return n->s.dtype == LATHE_F64 ? LATHE_F64 : LATHE_F32;
}

/* stride NULL: compact. */
static void add(struct call *c, const char *name, void *data, lathe_dtype dtype, int ndim,
                const int64_t *shape, const int64_t *stride)
{
    const int i = c->n++;
    memcpy(c->shape[i], shape, (size_t)ndim * sizeof *shape);
    if (stride)
        memcpy(c->stride[i], stride, (size_t)ndim * sizeof *stride);
    c->arg[i] = (lathe_arg){name, data, dtype, ndim, c->shape[i], stride ? c->stride[i] : NULL};
}

/* [tokens, heads, d], as attention takes it. */
static void add_heads(struct call *c, const char *name, void *data, lathe_dtype dtype, int64_t tokens,
                      int heads, int d)
{
    const int64_t shape[4] = {1, heads, tokens, d};
    const int64_t stride[4] = {tokens * heads * d, d, (int64_t)heads * d, 1};
    add(c, name, data, dtype, 4, shape, stride);
}

static void add_list(struct call *c, const char *name, const struct nsa *n, enum buffer of, int64_t length)
{
    add(c, name, n->buffer[of], LATHE_I32, 1, &length, NULL);
}

/* An i32 for each token, the same for all key heads. */
static void add_rows(struct call *c, const char *name, const struct nsa *n, enum buffer of)
{
    const int64_t shape[2] = {n->s.h_kv, n->tokens};
    const int64_t stride[2] = {0, 1};
    add(c, name, n->buffer[of], LATHE_I32, 2, shape, stride);
}

static void add_queries(struct call *c, const char *name, const struct nsa *n, void *data)
{
    add_heads(c, name, data, n->s.dtype, n->tokens, n->s.h, n->s.d);
}

static void add_outputs(struct call *c, const char *name, const struct nsa *n, void *data)
{
    add_heads(c, name, data, n->s.dtype, n->tokens, n->s.h, n->s.d_v);
}

static void add_weights(struct call *c, const char *name, const struct nsa *n)
{
    const int64_t shape[4] = {1, n->s.h_kv, n->tokens, n->chunks};
    add(c, name, n->buffer[WEIGHT], wide(n), 4, shape, NULL);
}

static void add_lse(struct call *c, const struct nsa *n, enum buffer of)
{
    const int64_t shape[3] = {1, n->s.h, n->tokens};
    add(c, "lse", n->buffer[of], wide(n), 3, shape, NULL);
}

static void add_blocks(struct call *c, const struct nsa *n)
{
    const int64_t shape[4] = {1, n->s.h_kv, n->tokens, n->s.blocks};
    add(c, "blocks", n->buffer[BLOCKS], LATHE_I32, 4, shape, NULL);
}

/* ---- the steps --------------------------------------------------------------------------------------------
 */

/* Means over chunks of k or v, or their way back. */
static void pool(struct call *c, const struct nsa *n, void *values, enum buffer mean, int width,
                 enum buffer back, bool backward)
{
    const int64_t all[2] = {n->tokens, (int64_t)n->s.h_kv * width};
    const int64_t means[2] = {n->chunks, (int64_t)n->s.h_kv * width};
    add(c, "values", values, n->s.dtype, 2, all, NULL);
    add_list(c, "first", n, FIRST, n->chunks);
    add_list(c, "length", n, LENGTH, n->chunks);
    add_list(c, "place", n, PLACE, n->s.block);
    add(c, backward ? "dmean" : "mean", n->buffer[mean], n->s.dtype, 2, means, NULL);
    if (backward)
        add(c, "dvalues", n->buffer[back], wide(n), 2, all, NULL);
}

/* q, k, v, o, lse of a branch, and where its sequences lie. */
static void branch(struct call *c, const struct nsa *n, const struct nsa_tensors *t, enum step of)
{
    const bool means = of == COMPRESSED;
    const int64_t keys = means ? n->chunks : n->tokens;
    const int which = of == COMPRESSED ? 0 : of == SELECTED ? 1 : 2;
    add_queries(c, "q", n, t->q);
    add_heads(c, "k", means ? n->buffer[K_MEAN] : t->k, n->s.dtype, keys, n->s.h_kv, n->s.d);
    add_heads(c, "v", means ? n->buffer[V_MEAN] : t->v, n->s.dtype, keys, n->s.h_kv, n->s.d_v);
    add_outputs(c, "o", n, n->buffer[O_CMP + which]);
    add_lse(c, n, (enum buffer)(LSE_CMP + which));
    add_list(c, "cu_q", n, CU, n->s.sequences + 1);
    if (means)
        add_list(c, "cu_kv", n, CHUNK, n->s.sequences + 1);
    if (of == SELECTED)
        add_blocks(c, n);
    if (of == WINDOW)
        add(c, "window", (void *)&n->window, LATHE_I32, 0, NULL, NULL);
}

static void branch_back(struct call *c, const struct nsa *n, const struct nsa_tensors *t, enum step of)
{
    const bool means = of == COMPRESSED;
    const int64_t keys = means ? n->chunks : n->tokens;
    const int which = of == COMPRESSED ? 0 : of == SELECTED ? 1 : 2;
    branch(c, n, t, of);
    add_outputs(c, "do", n, n->buffer[DO_CMP + which]);
    add_queries(c, "dq", n, n->buffer[DQ_CMP + which]);
    add_heads(c, "dk",
              n->buffer[means        ? DK_MEAN
                        : which == 1 ? DK_SLC
                                     : DK_SWA],
              n->s.dtype, keys, n->s.h_kv, n->s.d);
    add_heads(c, "dv",
              n->buffer[means        ? DV_MEAN
                        : which == 1 ? DV_SLC
                                     : DV_SWA],
              n->s.dtype, keys, n->s.h_kv, n->s.d_v);
}

static void weigh(struct call *c, const struct nsa *n, const struct nsa_tensors *t)
{
    const int64_t rows[4] = {1, n->s.h, n->tokens, n->s.d_v};
    const int64_t one_row[4] = {0, 0, 0, 1};
    const int64_t one[3] = {0, 0, 0};
    branch(c, n, t, COMPRESSED);
    add(c, "do", n->buffer[ZERO], n->s.dtype, 4, rows, one_row);
    add(c, "dlse", n->buffer[ONE], wide(n), 3, rows, one);
    const int64_t all[4] = {1, n->s.h_kv, n->tokens, n->chunks};
    const int64_t one_zero[4] = {0, 0, 0, 0};
    add(c, "importance", n->buffer[ZERO], wide(n), 4, all, one_zero);
    add_weights(c, "dimportance", n);
}

static void choose(struct call *c, const struct nsa *n)
{
    const int64_t weights[3] = {n->s.h_kv, n->tokens, n->chunks};
    const int64_t chosen[3] = {n->s.h_kv, n->tokens, n->s.blocks};
    add(c, "x", n->buffer[WEIGHT], wide(n), 3, weights, NULL);
    add_rows(c, "own", n, OWN);
    add_rows(c, "first", n, OWN_FIRST);
    add(c, "blocks", n->buffer[BLOCKS], LATHE_I32, 3, chosen, NULL);
}

static void gates(struct call *c, const struct nsa *n, const struct nsa_tensors *t, bool backward)
{
    static const char *const o[] = {"o_cmp", "o_slc", "o_swa"};
    static const char *const g[] = {"g_cmp", "g_slc", "g_swa"};
    static const char *const dout[] = {"do_cmp", "do_slc", "do_swa"};
    static const char *const dg[] = {"dg_cmp", "dg_slc", "dg_swa"};
    void *const gate[] = {t->g_cmp, t->g_slc, t->g_swa};
    void *const gate_back[] = {t->dg_cmp, t->dg_slc, t->dg_swa};
    const int64_t shape[3] = {1, n->s.h, n->tokens};
    const int64_t stride[3] = {n->s.h * n->tokens, 1, n->s.h};
    for (int i = 0; i < 3; i++) {
        add_outputs(c, o[i], n, n->buffer[O_CMP + i]);
        add(c, g[i], gate[i], n->s.dtype, 3, shape, stride);
        if (backward) {
            add_outputs(c, dout[i], n, n->buffer[DO_CMP + i]);
            add(c, dg[i], gate_back[i], wide(n), 3, shape, stride);
        }
    }
    add_outputs(c, backward ? "do" : "o", n, backward ? t->dout : t->o);
}

/* The three branches' gradients of q, k or v. */
static void sum(struct call *c, const struct nsa *n, int width, enum buffer first, lathe_dtype of_first,
                void *to)
{
    const int64_t shape[2] = {n->tokens, width};
    add(c, "a", n->buffer[first], of_first, 2, shape, NULL);
    add(c, "b", n->buffer[first + 1], n->s.dtype, 2, shape, NULL);
    add(c, "c", n->buffer[first + 2], n->s.dtype, 2, shape, NULL);
    add(c, "y", to, n->s.dtype, 2, shape, NULL);
}

static void make(struct call *c, const struct nsa *n, const struct nsa_tensors *t, enum step step)
{
    const struct nsa_sizes *s = &n->s;
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
        choose(c, n);
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
        sum(c, n, s->h_kv * s->d, DK_CMP, wide(n), t->dk);
        break;
    case SUM_V:
        sum(c, n, s->h_kv * s->d_v, DV_CMP, wide(n), t->dv);
        break;
    case STEPS:
        break;
    }
}

/* ---- kernels ----------------------------------------------------------------------------------------------
 */

static const char SUM[] = "return elementwise { over = { 'rows', 'n' },\n"
                          "  operands = { a = tensor('float'), b = tensor('float'), c = tensor('float') },\n"
                          "  results = { y = tensor('float') },\n"
                          "  forward = function(v) return v.a + v.b + v.c end }\n";

static lathe_status open_spec(lathe_spec **out, const struct nsa_sizes *s, enum step step, lathe_error *err)
{
    static const char *const name[STEPS] = {"mean_pool_packed",
                                            "mean_pool_packed",
                                            "nsa_compressed",
                                            "nsa_compressed",
                                            "nsa_select",
                                            "nsa_selected",
                                            "sliding_window",
                                            "nsa_gates",
                                            "nsa_gates",
                                            "nsa_compressed",
                                            "nsa_selected",
                                            "sliding_window",
                                            "mean_pool_packed",
                                            "mean_pool_packed",
                                            "sum",
                                            "sum",
                                            "sum"};
    const lathe_param param[] = {{"BLOCK", s->block}, {"BLOCKS", s->blocks}};
    switch (step) {
    case COMPRESSED:
    case WEIGHTS:
    case COMPRESSED_BACK:
        return lathe_spec_open(out, name[step], NULL, 0, param, 1, err);
    case SELECTED:
    case SELECTED_BACK:
        return lathe_spec_open(out, name[step], NULL, 0, param, 2, err);
    case SELECT:
        return lathe_spec_open(out, name[step], NULL, 0, param + 1, 1, err);
    default:
        return step >= SUM_Q ? lathe_spec_parse(out, name[step], SUM, sizeof SUM - 1, err)
                             : lathe_spec_load(out, name[step], err);
    }
}

/* The largest workspace is that of all. */
static lathe_status get_kernel(struct nsa *n, lathe_ctx *ctx, enum step step, size_t *workspace,
                               lathe_error *err)
{
    static const struct nsa_tensors none = {0};
    const bool backward = step == WEIGHTS || (step >= GATES_BACK && step < SUM_Q);
    struct call c;
    lathe_spec *spec = NULL;
    size_t size = 0;
    make(&c, n, &none, step);
    lathe_status status = open_spec(&spec, &n->s, step, err);
    if (status == LATHE_OK)
        status = lathe_kernel_get(&n->kernel[step], ctx, spec, backward ? LATHE_BACKWARD : LATHE_FORWARD,
                                  c.arg, c.n, err);
    if (status == LATHE_OK)
        status = lathe_workspace_size(&size, n->kernel[step], c.arg, c.n, err);
    *workspace = size > *workspace ? size : *workspace;
    if (spec)
        lathe_spec_destroy(spec);
    return status;
}

static lathe_status run(struct nsa *n, const struct nsa_tensors *t, enum step from, enum step to,
                        lathe_stream stream, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    for (unsigned step = from; step < to && status == LATHE_OK; step++) {
        struct call c;
        make(&c, n, t, (enum step)step);
        status = lathe_launch(n->kernel[step], c.arg, c.n, n->workspace, stream, err);
    }
    return status;
}

/* ---- memory -----------------------------------------------------------------------------------------------
 */

static size_t bytes_of(const struct nsa *n, enum buffer b)
{
    const struct nsa_sizes *s = &n->s;
    const size_t tokens = (size_t)n->tokens;
    const size_t chunks = (size_t)n->chunks;
    const size_t element = lathe_dtype_size(s->dtype);
    const size_t real = lathe_dtype_size(wide(n));
    const size_t kv = (size_t)s->h_kv;
    switch (b) {
    case CU:
    case CHUNK:
        return ((size_t)s->sequences + 1) * 4;
    case FIRST:
    case LENGTH:
        return chunks * 4;
    case PLACE:
        return (size_t)s->block * 4;
    case OWN:
    case OWN_FIRST:
        return tokens * 4;
    case ZERO:
        return (size_t)s->d_v * element;
    case ONE:
        return real;
    case K_MEAN:
    case DK_MEAN:
        return chunks * kv * (size_t)s->d * element;
    case V_MEAN:
    case DV_MEAN:
        return chunks * kv * (size_t)s->d_v * element;
    case WEIGHT:
        return kv * tokens * chunks * real;
    case BLOCKS:
        return kv * tokens * (size_t)s->blocks * 4;
    case LSE_CMP:
    case LSE_SLC:
    case LSE_SWA:
        return (size_t)s->h * tokens * real;
    case DQ_CMP:
    case DQ_SLC:
    case DQ_SWA:
        return tokens * (size_t)(s->h * s->d) * element;
    case DK_CMP:
        return tokens * kv * (size_t)s->d * real;
    case DV_CMP:
        return tokens * kv * (size_t)s->d_v * real;
    case DK_SLC:
    case DK_SWA:
        return tokens * kv * (size_t)s->d * element;
    case DV_SLC:
    case DV_SWA:
        return tokens * kv * (size_t)s->d_v * element;
    default:
        return tokens * (size_t)(s->h * s->d_v) * element;
    }
}

/* The lists of a sequence with its first token and its first chunk. */
static void fill_lists(const struct nsa *n, int32_t *list[], int sequence, int token, int chunk)
{
    const int block = n->s.block;
    const int length = n->s.length[sequence];
    for (int i = 0; i < length; i++) {
        list[OWN][token + i] = chunk + i / block;
        list[OWN_FIRST][token + i] = chunk;
    }
    for (int i = 0; i * block < length; i++) {
        list[FIRST][chunk + i] = token + i * block;
        list[LENGTH][chunk + i] = length - i * block < block ? length - i * block : block;
    }
}

static void fill_all(const struct nsa *n, int32_t *list[])
{
    list[CU][0] = list[CHUNK][0] = 0;
    for (int i = 0; i < n->s.sequences; i++) {
        fill_lists(n, list, i, list[CU][i], list[CHUNK][i]);
        list[CU][i + 1] = list[CU][i] + n->s.length[i];
        list[CHUNK][i + 1] = list[CHUNK][i] + (n->s.length[i] + n->s.block - 1) / n->s.block;
    }
    for (int i = 0; i < n->s.block; i++)
        list[PLACE][i] = i;
}

/* Of what the steps only read. */
static bool upload(struct nsa *n)
{
    int32_t *list[OWN_FIRST + 1] = {NULL};
    bool ok = true;
    for (int b = 0; b <= OWN_FIRST; b++) {
        list[b] = malloc(bytes_of(n, (enum buffer)b) + 4);
        ok = ok && list[b];
    }
    if (ok)
        fill_all(n, list);
    for (int b = 0; b <= OWN_FIRST; b++) {
        ok = ok && memory_upload(&n->memory, n->buffer[b], list[b], bytes_of(n, (enum buffer)b));
        free(list[b]);
    }
    void *zeros = calloc(1, bytes_of(n, ZERO));
    const float one = 1;
    const double exact = 1;
    const void *unit = n->s.dtype == LATHE_F64 ? (const void *)&exact : (const void *)&one;
    ok = ok && zeros && memory_upload(&n->memory, n->buffer[ZERO], zeros, bytes_of(n, ZERO)) &&
         memory_upload(&n->memory, n->buffer[ONE], unit, bytes_of(n, ONE));
    free(zeros);
    return ok;
}

static lathe_status no_memory(lathe_error *err)
{
    err->status = LATHE_MEMORY;
    snprintf(err->text, sizeof err->text, "nsa: there is not enough memory");
    return LATHE_MEMORY;
}

lathe_status nsa_open(struct nsa **out, lathe_ctx *ctx, const struct memory *memory,
                      const struct nsa_sizes *sizes, lathe_error *err)
{
    struct nsa *n = *out = calloc(1, sizeof *n);
    if (!n)
        return no_memory(err);
    n->s = *sizes;
    n->memory = *memory;
    n->window = sizes->window;
    for (int i = 0; i < sizes->sequences; i++) {
        n->tokens += sizes->length[i];
        n->chunks += (sizes->length[i] + sizes->block - 1) / sizes->block;
    }
    for (int b = 0; b < BUFFERS; b++) {
        n->buffer[b] = memory_allocate(memory, bytes_of(n, (enum buffer)b) + 16);
        if (!n->buffer[b])
            return no_memory(err);
    }
    if (!upload(n))
        return no_memory(err);
    n->s.length = NULL; /* the caller's */
    size_t workspace = 0;
    for (int step = 0; step < STEPS; step++) {
        const lathe_status status = get_kernel(n, ctx, (enum step)step, &workspace, err);
        if (status != LATHE_OK)
            return status;
    }
    n->workspace = memory_allocate(memory, workspace + 1);
    return n->workspace ? LATHE_OK : no_memory(err);
}

void nsa_close(struct nsa *n)
{
    if (!n)
        return;
    for (int step = 0; step < STEPS; step++)
        if (n->kernel[step])
            lathe_kernel_release(n->kernel[step]);
    for (int b = 0; b < BUFFERS; b++)
        if (n->buffer[b])
            memory_release(&n->memory, n->buffer[b]);
    if (n->workspace)
        memory_release(&n->memory, n->workspace);
    free(n);
}

lathe_status nsa_forward(struct nsa *n, const struct nsa_tensors *t, lathe_stream stream, lathe_error *err)
{
    return run(n, t, POOL_K, GATES_BACK, stream, err);
}

lathe_status nsa_backward(struct nsa *n, const struct nsa_tensors *t, lathe_stream stream, lathe_error *err)
{
    return run(n, t, GATES_BACK, STEPS, stream, err);
}
