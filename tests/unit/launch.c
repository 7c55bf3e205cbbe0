/*
 * launch.c: parameter blocks, grids and workspaces from hand-made recipes, compared byte by byte with the
 * struct that a kernel would take; the refusals; and launches through a driver that records what it is given.
 * No GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu_time.h"
#include "sizes.h"
#include "runtime/rt.h"

/* What the kernel of the recipe below takes. */
struct block {
    const void *q;
    const void *bias;
    int64_t q_b;
    int64_t q_h;
    int64_t q_t;
    int32_t bias_h;
    int32_t len_q;
    int32_t len_kv;
    int32_t q_start;
    float slope;
    float cap;
    int32_t window;
    void *work;
    int64_t tiles;
    int32_t compact;
    int64_t q_apart;
};

enum { ARG_Q, ARG_K, ARG_LSE, ARG_BIAS, ARG_SLOPE, ARG_CAP, ARG_WINDOW, ARG_START, N_ARGS };

static void describe(struct sig_arg *a, const char *name, enum arg_role role, lathe_dtype dtype, int ndim,
                     const int *sym)
{
    snprintf(a->name, sizeof a->name, "%s", name);
    a->role = (uint8_t)role;
    a->dtype = (uint8_t)dtype;
    a->ndim = (uint8_t)ndim;
    for (int i = 0; i < ndim; i++)
        a->dim[i].sym = (uint8_t)sym[i];
}

static struct signature *make_signature(void)
{
    static const int query[4] = {SYM_B, SYM_H, SYM_Q, SYM_D};
    static const int key[4] = {SYM_B, SYM_H_KV, SYM_KV, SYM_D};
    struct signature *s = calloc(1, sizeof *s);
    CHECK(s != NULL);
    s->n_args = N_ARGS;
    describe(&s->arg[ARG_Q], "q", ROLE_IN, LATHE_NONE, 4, query);
    describe(&s->arg[ARG_K], "k", ROLE_IN, LATHE_NONE, 4, key);
    s->arg[ARG_Q].dtype_role = DTYPE_Q;
    s->arg[ARG_K].dtype_role = DTYPE_K;
    describe(&s->arg[ARG_LSE], "lse", ROLE_OUT_OPTIONAL, LATHE_F32, 3, query);
    describe(&s->arg[ARG_BIAS], "bias", ROLE_INPUT, LATHE_F32, 3, query);
    describe(&s->arg[ARG_SLOPE], "slope", ROLE_SCALAR, LATHE_F32, 0, NULL);
    describe(&s->arg[ARG_CAP], "cap", ROLE_SCALAR, LATHE_F32, 0, NULL);
    s->arg[ARG_CAP].default_value = 30.5;
    describe(&s->arg[ARG_WINDOW], "window", ROLE_SCALAR, LATHE_I32, 0, NULL);
    describe(&s->arg[ARG_START], "q_start", ROLE_Q_START, LATHE_I32, 0, NULL);
    take_sizes(s, "causal");
    return s;
}

static struct param *put(struct launch *l, enum param_kind kind, int arg, int dim, size_t offset)
{
    static struct param rows[16]; /* of the one kernel of this file; the last one made */
    CHECK(l->n_params < 16);
    struct param *p = &rows[l->n_params++];
    l->param = rows;
    *p = (struct param){.kind = (uint8_t)kind};
    p->arg = (int16_t)arg;
    p->dim = (int16_t)dim;
    p->offset = (uint32_t)offset;
    return p;
}

static struct source *make_source(void)
{
    struct source *s = calloc(1, sizeof *s);
    CHECK(s != NULL);
    struct launch *l = &s->launch[0];
    s->n_launches = 1;
    snprintf(l->entry, sizeof l->entry, "made_by_hand");
    l->grid = (struct product){1, 3, {{SYM_B, 1, 0, 0}, {SYM_H, 1, 0, 0}, {SYM_Q, 128, 0, 0}}, false};
    l->threads = 128;
    l->smem_bytes = 1024;
    l->param_bytes = sizeof(struct block);
    put(l, PARAM_ARG_DATA, ARG_Q, 0, offsetof(struct block, q));
    put(l, PARAM_ARG_DATA, ARG_BIAS, 0, offsetof(struct block, bias));
    put(l, PARAM_ARG_STRIDE, ARG_Q, 0, offsetof(struct block, q_b));
    put(l, PARAM_ARG_STRIDE, ARG_Q, 1, offsetof(struct block, q_h));
    put(l, PARAM_ARG_STRIDE, ARG_Q, 2, offsetof(struct block, q_t));
    put(l, PARAM_ARG_STRIDE32, ARG_BIAS, 1, offsetof(struct block, bias_h));
    put(l, PARAM_SYM, SYM_Q, 0, offsetof(struct block, len_q));
    put(l, PARAM_SYM, SYM_KV, 0, offsetof(struct block, len_kv));
    put(l, PARAM_Q_START, 0, 0, offsetof(struct block, q_start));
    put(l, PARAM_SCALAR_F32, ARG_SLOPE, 0, offsetof(struct block, slope));
    put(l, PARAM_SCALAR_F32, ARG_CAP, 0, offsetof(struct block, cap));
    put(l, PARAM_SCALAR_I32, ARG_WINDOW, 0, offsetof(struct block, window));
    put(l, PARAM_WORK_DATA, 1, 0, offsetof(struct block, work));
    put(l, PARAM_PRODUCT, 0, 0, offsetof(struct block, tiles))->product =
        (struct product){3, 1, {{SYM_KV, 64, 0, 0}}, false};
    put(l, PARAM_COMPACT, 0, 0, offsetof(struct block, compact))->product.scale =
        (int64_t)(arg_bit(ARG_Q) | arg_bit(ARG_BIAS));
    put(l, PARAM_APART, ARG_Q, 0, offsetof(struct block, q_apart));
    s->n_buffers = 2;
    s->buffer[0].bytes = (struct product){1, 2, {{SYM_Q, 1, 0, 0}, {SYM_B, 1, 0, 0}}, false};
    s->buffer[1].bytes = (struct product){4, 1, {{SYM_KV, 1, 0, 0}}, false};
    return s;
}

static struct problem make_problem(void)
{
    struct problem p = {.dtype = {LATHE_BF16}};
    for (int i = 0; i < SYM_COUNT; i++)
        p.dim[i] = -1;
    p.dim[SYM_B] = 2;
    p.dim[SYM_H] = 4;
    p.dim[SYM_H_KV] = 4;
    p.dim[SYM_Q] = 300;
    p.dim[SYM_KV] = 1000;
    p.dim[SYM_D] = 64;
    return p;
}

/* A call with every kind of argument; fields are changed by the tests. */
struct call {
    struct signature *sig;
    struct source *source;
    struct problem problem;
    int64_t q_shape[4];
    int64_t q_strides[4];
    int64_t bias_shape[3];
    float slope;
    int32_t window;
    int32_t start;
    lathe_arg arg[6];
    int n;
    struct bound_args bound;
};

static _Alignas(256) char memory[8192];

static void make_call(struct call *c)
{
    static const int64_t q_shape[4] = {2, 4, 300, 64};
    static const int64_t q_strides[4] = {76800, 64, 256, 1}; /* [b, q, h, d] in memory */
    static const int64_t bias_shape[3] = {2, 4, 300};
    memset(c, 0, sizeof *c);
    c->sig = make_signature();
    c->source = make_source();
    c->problem = make_problem();
    memcpy(c->q_shape, q_shape, sizeof q_shape);
    memcpy(c->q_strides, q_strides, sizeof q_strides);
    memcpy(c->bias_shape, bias_shape, sizeof bias_shape);
    c->slope = 0.125f;
    c->window = -7;
    c->start = 5;
    c->arg[0] = (lathe_arg){"slope", &c->slope, LATHE_F32, 0, NULL, NULL}; /* in any order */
    c->arg[1] = (lathe_arg){"q", memory, LATHE_BF16, 4, c->q_shape, c->q_strides};
    c->arg[2] = (lathe_arg){"bias", memory + 64, LATHE_F32, 3, c->bias_shape, NULL};
    c->arg[3] = (lathe_arg){"window", &c->window, LATHE_I32, 0, NULL, NULL};
    c->n = 4;
}

static void drop_call(struct call *c)
{
    free(c->sig);
    free(c->source);
}

static lathe_status fill(struct call *c, unsigned char *out, lathe_error *err)
{
    size_t offset[MAX_BUFFERS];
    TRY(lathe__args_bind(c->sig, c->arg, c->n, &c->bound, err));
    lathe__workspace_layout(c->source, &c->problem, offset);
    return lathe__params_fill(&c->source->launch[0], c->sig, &c->problem, &c->bound, memory, offset, out,
                              err);
}

static struct block filled(struct call *c)
{
    _Alignas(16) unsigned char raw[PARAM_BLOCK_BYTES];
    struct block b;
    lathe_error err;
    memset(raw, 0xee, sizeof raw);
    CHECK_EQ(fill(c, raw, &err), LATHE_OK);
    CHECK_EQ(raw[sizeof b], 0xee); /* nothing behind it is touched */
    memcpy(&b, raw, sizeof b);
    return b;
}

TEST(every_kind_of_parameter)
{
    struct call c;
    make_call(&c);
    const struct block b = filled(&c);
    CHECK(b.q == memory);
    CHECK(b.bias == memory + 64);
    CHECK_EQ(b.q_b, 76800);
    CHECK_EQ(b.q_h, 64);
    CHECK_EQ(b.q_t, 256);
    CHECK_EQ(b.bias_h, 300); /* compact */
    CHECK_EQ(b.len_q, 300);
    CHECK_EQ(b.len_kv, 1000);
    CHECK_EQ(b.q_start, 700); /* end-aligned */
    CHECK_CLOSE(b.slope, 0.125, 0.0);
    CHECK_CLOSE(b.cap, 30.5, 0.0);
    CHECK_EQ(b.window, -7);
    CHECK(b.work == memory + 768); /* buffer 0 takes 600 bytes */
    CHECK_EQ(b.tiles, 3 * 16);
    drop_call(&c);
}

TEST(absent_and_size_one)
{
    struct call c;
    make_call(&c);
    c.arg[2] = (lathe_arg){"q_start", &c.start, LATHE_I32, 0, NULL, NULL}; /* instead of bias */
    c.q_shape[0] = 1;
    c.problem.dim[SYM_B] = 1;
    struct block b = filled(&c);
    CHECK(b.bias == NULL);
    CHECK_EQ(b.bias_h, 0);
    CHECK_EQ(b.q_b, 0); /* the stride of a dim of size 1 says nothing */
    CHECK_EQ(b.q_start, 5);
    c.start = -3; /* queries before the first key */
    b = filled(&c);
    CHECK_EQ(b.q_start, -3);
    drop_call(&c);
}

TEST(batches_lie_tokens_apart)
{
    struct call c;
    make_call(&c);
    CHECK_EQ(filled(&c).q_apart, 300); /* q lies as [b, q, h, d] */
    c.q_strides[0] = 2 * 300 * 256;
    CHECK_EQ(filled(&c).q_apart, 600);
    c.arg[1].strides = NULL;
    CHECK_EQ(filled(&c).q_apart, 4 * 300);
    c.q_shape[2] = 1; /* a token by itself has 16 bytes */
    CHECK_EQ(filled(&c).q_apart, 4 * 64 / 8);
    drop_call(&c);
}

TEST(compact_are_dense_rows_from_16_bytes_on)
{
    struct call c;
    make_call(&c);
    CHECK_EQ(filled(&c).compact, 0); /* q lies as [b, q, h, d] */
    c.arg[1].strides = NULL;
    CHECK_EQ(filled(&c).compact, 1);
    c.arg[2].data = memory + 72;
    CHECK_EQ(filled(&c).compact, 0);
    c.arg[2].data = memory + 64;
    static const int64_t padded[3] = {1280, 320, 1};
    c.arg[2].strides = padded;
    CHECK_EQ(filled(&c).compact, 0);
    c.n = 2; /* neither bias nor window */
    CHECK_EQ(filled(&c).compact, 1);
    c.q_shape[0] = c.q_shape[1] = 1; /* their strides say nothing */
    c.problem.dim[SYM_B] = 1;
    c.arg[1].strides = c.q_strides;
    c.q_strides[2] = 64;
    CHECK_EQ(filled(&c).compact, 1);
    drop_call(&c);
}

TEST(an_input_without_elements_can_be_read_at_its_clamped_index)
{
    struct call c;
    make_call(&c);
    c.bias_shape[2] = 0;
    const struct block b = filled(&c);
    CHECK(b.bias == memory); /* of q */
    CHECK_EQ(b.bias_h, 0);
    drop_call(&c);
}

TEST(leading_dims_may_be_left_out)
{
    static const int rows[4] = {SYM_ROWS0, SYM_ROWS1, SYM_ROWS, SYM_N};
    static const int64_t shape[2] = {10, 96};
    const lathe_arg x = {"x", memory, LATHE_F32, 2, shape, NULL};
    struct bound_args bound;
    struct signature *s = calloc(1, sizeof *s);
    lathe_error err;
    CHECK(s != NULL);
    s->n_args = 1;
    describe(&s->arg[0], "x", ROLE_IN, LATHE_NONE, 4, rows);
    s->arg[0].leading_optional = true;
    CHECK_EQ(lathe__args_bind(s, &x, 1, &bound, &err), LATHE_OK);
    CHECK_EQ(lathe__arg_stride(s, &bound, 0, 0), 0);
    CHECK_EQ(lathe__arg_stride(s, &bound, 0, 1), 0);
    CHECK_EQ(lathe__arg_stride(s, &bound, 0, 2), 96);
    CHECK_EQ(lathe__arg_stride(s, &bound, 0, 3), 1);
    free(s);
}

static void refused(struct call *c, const char *part)
{
    _Alignas(16) unsigned char raw[PARAM_BLOCK_BYTES];
    lathe_error err;
    CHECK_EQ(fill(c, raw, &err), LATHE_ARG);
    CHECK_EQ(err.status, LATHE_ARG);
    CHECK_HAS(err.text, part);
}

TEST(refusals_name_the_argument)
{
    const int64_t wide[3] = {(int64_t)1 << 40, (int64_t)1 << 30, 1};
    struct call c;
    make_call(&c);
    c.arg[2].strides = wide; /* 3 * 2^30 does not fit the 32-bit stride */
    refused(&c, "'bias'");
    c.arg[2].strides = NULL;
    c.slope = 0.5f;
    c.arg[0].name = "slop";
    refused(&c, "'slop'");
    c.arg[0].name = "window";
    refused(&c, "given twice");
    c.arg[0].name = "slope";
    c.arg[0].dtype = LATHE_BF16;
    refused(&c, "bf16");
    c.arg[0].dtype = LATHE_F32;
    c.arg[3].dtype = LATHE_F32; /* the bits of -7 are a NaN */
    refused(&c, "'window'");
    c.arg[3].dtype = LATHE_I32;
    c.arg[2] = (lathe_arg){"q_start", &c.start, LATHE_I32, 0, NULL, NULL};
    c.start = 1 << 24;
    refused(&c, "q_start");
    drop_call(&c);
}

static void does_not_fit(struct call *c, lathe_status expected, const char *part)
{
    lathe_error err;
    CHECK_EQ(lathe__args_bind(c->sig, c->arg, c->n, &c->bound, &err), LATHE_OK);
    CHECK_EQ(lathe__args_fit_gpu(c->sig, &c->problem, &c->bound, &err), expected);
    CHECK_HAS(err.text, part);
}

TEST(lengths_and_dtypes)
{
    struct call c;
    lathe_error err;
    make_call(&c);
    CHECK_EQ(lathe__args_bind(c.sig, c.arg, c.n, &c.bound, &err), LATHE_OK);
    CHECK_EQ(lathe__args_fit_gpu(c.sig, &c.problem, &c.bound, &err), LATHE_OK);
    c.arg[2].dtype = LATHE_F64;
    does_not_fit(&c, LATHE_UNSUPPORTED, "'bias': f64");
    c.arg[2].dtype = LATHE_F32;
    c.problem.dim[SYM_KV] = (1 << 24) - 1;
    CHECK_EQ(lathe__args_fit_gpu(c.sig, &c.problem, &c.bound, &err), LATHE_OK);
    c.problem.dim[SYM_KV] = 1 << 24;
    does_not_fit(&c, LATHE_ARG, "kv below 2^24");
    drop_call(&c);
}

TEST(products_grids_and_workspace)
{
    const struct product huge = {INT64_MAX / 2, 2, {{SYM_KV, 1, 0, 0}, {SYM_Q, 1, 0, 0}}, false};
    size_t offset[MAX_BUFFERS];
    unsigned blocks;
    lathe_error err;
    struct call c;
    make_call(&c);
    CHECK_EQ(lathe__grid_size(&c.source->launch[0], &c.problem, &blocks, &err), LATHE_OK);
    CHECK_EQ(blocks, 2 * 4 * 3);
    CHECK_EQ(lathe__workspace_layout(c.source, &c.problem, offset), 768 + 4096);
    CHECK_EQ(offset[0], 0);
    CHECK_EQ(offset[1], 768);
    CHECK_EQ(lathe__product_value(&huge, &c.problem), INT64_MAX); /* saturates */
    c.problem.dim[SYM_Q] = 0;
    CHECK_EQ(lathe__product_value(&huge, &c.problem), 0);
    CHECK_EQ(lathe__grid_size(&c.source->launch[0], &c.problem, &blocks, &err), LATHE_OK);
    CHECK_EQ(blocks, 0);
    CHECK_EQ(lathe__workspace_layout(c.source, &c.problem, offset), 4096);
    c.problem.dim[SYM_Q] = 128;
    struct launch shared = c.source->launch[0];
    shared.grid_share = 5;
    c.problem.dim[SYM_H] = 2 * c.problem.dim[SYM_H] + 1;
    CHECK_EQ(lathe__grid_size(&shared, &c.problem, &blocks, &err), LATHE_OK);
    CHECK_EQ(blocks, (lathe__product_value(&shared.grid, &c.problem) + 4) / 5);
    shared.when = SYM_Q;
    shared.least = 128;
    shared.most = 200;
    CHECK_EQ(lathe__grid_size(&shared, &c.problem, &blocks, &err), LATHE_OK);
    CHECK(blocks > 0);
    shared.least = 129;
    CHECK_EQ(lathe__grid_size(&shared, &c.problem, &blocks, &err), LATHE_OK);
    CHECK_EQ(blocks, 0);
    shared.least = 0;
    shared.most = 127;
    CHECK_EQ(lathe__grid_size(&shared, &c.problem, &blocks, &err), LATHE_OK);
    CHECK_EQ(blocks, 0);
    c.problem.dim[SYM_H] = (int64_t)1 << 30;
    CHECK_EQ(lathe__grid_size(&c.source->launch[0], &c.problem, &blocks, &err), LATHE_ARG);
    CHECK_HAS(err.text, "2147483648 blocks");
    drop_call(&c);
}

/* ---- a driver that records ------------------------------------------------------------------------ */

static struct {
    int launches;
    struct cu_launch_config config;
    struct block block;
    struct CUfunc_st *function;
    struct cu_launch_attribute attribute; /* the first one, where there is one */
} seen;

static int fake_launch(const struct cu_launch_config *config, struct CUfunc_st *function, void **params,
                       void **extra)
{
    seen.launches++;
    seen.config = *config;
    seen.function = function;
    seen.attribute = config->n_attributes > 0 ? config->attributes[0] : (struct cu_launch_attribute){0};
    memcpy(&seen.block, params[0], sizeof seen.block);
    return extra ? 1 : CU_SUCCESS;
}

static int fake_current(struct CUctx_st **context)
{
    *context = NULL;
    return CU_SUCCESS;
}

static int fake_push(struct CUctx_st *context)
{
    return context ? 1 : CU_SUCCESS;
}

static int fake_pop(struct CUctx_st **context)
{
    *context = NULL;
    return CU_SUCCESS;
}

static int fake_memset(uint64_t to, unsigned char value, size_t bytes, lathe_stream stream)
{
    CHECK(stream == (lathe_stream)memory);
    CHECK_EQ(seen.launches, 0);                  /* before every kernel */
    memset((void *)(uintptr_t)to, value, bytes); // NOLINT(performance-no-int-to-ptr)
    return CU_SUCCESS;
}

/* early: may the second kernel begin before the first one is done? */
static lathe_status launch_early(struct call *c, bool early, void *workspace, lathe_error *err)
{
    struct CUfunc_st *function = (struct CUfunc_st *)memory;
    const struct driver driver = {.cuLaunchKernelEx = fake_launch,
                                  .cuCtxGetCurrent = fake_current,
                                  .cuCtxPushCurrent = fake_push,
                                  .cuCtxPopCurrent = fake_pop,
                                  .cuMemsetD8Async = fake_memset};
    const struct module module = {
        .driver = &driver, .function = {function, function}, .early = {early, early}};
    TRY(lathe__args_bind(c->sig, c->arg, c->n, &c->bound, err));
    TRY(lathe__args_fit_gpu(c->sig, &c->problem, &c->bound, err));
    return lathe__launch_all(&module, NULL, c->source, c->sig, &c->problem, &c->bound, workspace,
                             (lathe_stream)memory, err);
}

static lathe_status launch(struct call *c, void *workspace, lathe_error *err)
{
    return launch_early(c, false, workspace, err);
}

TEST(launch_through_a_recording_driver)
{
    lathe_error err;
    struct call c;
    make_call(&c);
    CHECK_EQ(launch(&c, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 1);
    CHECK_EQ(seen.config.grid[0], 24);
    CHECK_EQ(seen.config.grid[1], 1);
    CHECK_EQ(seen.config.grid[2], 1);
    CHECK_EQ(seen.config.block[0], 128);
    CHECK_EQ(seen.config.smem_bytes, 1024);
    CHECK(seen.config.stream == (lathe_stream)memory);
    CHECK(seen.function == (struct CUfunc_st *)memory);
    CHECK_EQ(seen.block.len_kv, 1000);
    CHECK_EQ(launch(&c, NULL, &err), LATHE_ARG);
    CHECK_HAS(err.text, "4864 bytes");
    CHECK_EQ(launch(&c, memory + 16, &err), LATHE_ARG);
    CHECK_HAS(err.text, "256");
    c.problem.dim[SYM_Q] = 0; /* nothing to do */
    CHECK_EQ(launch(&c, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 1);
    drop_call(&c);
}

/* Early behind the kernel before it, which has waited for all others: not as the first, nor where that one
 * has nothing to do. */
TEST(a_kernel_begins_early_behind_another)
{
    lathe_error err;
    struct call c;
    make_call(&c);
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.config.n_attributes, 0);
    c.source->launch[1] = c.source->launch[0];
    c.source->n_launches = 2;
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 3);
    CHECK_EQ(seen.config.n_attributes, 1);
    CHECK_EQ(seen.attribute.id, CU_LAUNCH_EARLY);
    CHECK_EQ(seen.attribute.value, 1);
    CHECK_EQ(launch_early(&c, false, memory, &err), LATHE_OK);
    CHECK_EQ(seen.config.n_attributes, 0);
    c.source->launch[0].grid.scale = 0;
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 6);
    CHECK_EQ(seen.config.n_attributes, 0);
    drop_call(&c);
}

/* The kernel that makes a map is left out where the caller says that the map is there; what follows it then
   waits for whatever came before. */
TEST(a_map_that_is_kept_is_not_made)
{
    lathe_error err;
    struct call c;
    int32_t kept = 1;
    make_call(&c);
    memcpy(c.sig->arg[ARG_START].name, "mask_kept", sizeof "mask_kept");
    c.sig->arg[ARG_START].role = ROLE_MASK_KEPT;
    c.arg[2] = (lathe_arg){"mask_kept", &kept, LATHE_I32, 0, NULL, NULL};
    c.source->launch[1] = c.source->launch[0];
    c.source->n_launches = 2;
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 2); /* neither makes a map */
    c.source->launch[0].kept = true;
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 3);
    CHECK_EQ(seen.config.n_attributes, 0);
    kept = 0;
    CHECK_EQ(launch_early(&c, true, memory, &err), LATHE_OK);
    CHECK_EQ(seen.launches, 5);
    CHECK_EQ(seen.config.n_attributes, 1);
    drop_call(&c);
}

TEST(a_buffer_is_zeroed_before_the_kernels)
{
    lathe_error err;
    struct call c;
    size_t offset[MAX_BUFFERS];
    make_call(&c);
    c.source->buffer[1].zero = true;
    const size_t total = lathe__workspace_layout(c.source, &c.problem, offset);
    const int64_t bytes = lathe__product_value(&c.source->buffer[1].bytes, &c.problem);
    CHECK(total <= sizeof memory && bytes > 0);
    memset(memory, 0x5a, total);
    CHECK_EQ(launch(&c, memory, &err), LATHE_OK);
    for (size_t i = 0; i < total; i++) {
        const bool zeroed = i >= offset[1] && i < offset[1] + (size_t)bytes;
        CHECK_EQ(memory[i], zeroed ? 0 : 0x5a);
    }
    drop_call(&c);
}

static void launch_once(void *data)
{
    lathe_error err;
    CHECK_EQ(launch(data, memory, &err), LATHE_OK);
}

TEST(host_cost_of_a_launch)
{
    struct call c;
    make_call(&c);
    const double us = best_cpu_us(launch_once, &c);
    printf("  %.3f us for binding, checking and filling 14 parameters\n", us);
    CHECK_CPU_US(us, 5.0);
    drop_call(&c);
}
