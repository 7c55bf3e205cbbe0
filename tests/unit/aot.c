/*
 * aot.c: libraries compiled ahead of time: names, which code a device gets, what a struct of arguments
 * becomes, which kernel serves it, when code is loaded, and where a failure to compile is placed. With a
 * driver that pretends; what a whole library does is in tests/cli/aot.sh.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/aot/make.h"
#include "runtime/rt.h"
#include "check.h"
#include "sizes.h"

/* ---- which code a device gets --------------------------------------------------------------------- */

static const struct source SMALL = {.n_launches = 1, .launch = {{.smem_bytes = 1000}}};
static const struct source LARGE = {.n_launches = 1, .launch = {{.smem_bytes = 200000}}};

/* The number of the variant for a device; -1: none. */
static int picked(const struct aot_variant *variants, int n, int sm, int smem)
{
    const struct aot_kernel kernel = {.n_variants = n, .variant = variants};
    const struct device device = {.sm = sm, .smem_bytes = smem};
    const struct aot_variant *v = lathe__aot_pick_variant(&kernel, &device);
    return v ? (int)(v - variants) : -1;
}

TEST(exact_then_same_generation_then_ptx)
{
    static const struct aot_variant v[] = {
        {&SMALL, NULL, 2, {{80, 0, false}, {80, 0, true}}},
        {&SMALL, NULL, 1, {{86, 0, false}}},
        {&SMALL, NULL, 1, {{90, 0, false}}},
        {&SMALL, NULL, 1, {{90, 'a', false}}},
        {&SMALL, NULL, 1, {{100, 'f', false}}},
    };
    static const struct {
        int sm;
        int wanted;
    } cases[] = {{75, -1}, {80, 0},  {86, 1},  {87, 1},  {89, 1},
                 {90, 3},  {100, 4}, {103, 4}, {110, 0}, {120, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ(picked(v, 5, cases[i].sm, 166912), cases[i].wanted);
    CHECK_EQ(picked(v + 3, 1, 100, 166912), -1); /* sm_90a runs there and nowhere else */
    CHECK_EQ(picked(v + 1, 1, 80, 166912), -1);  /* newer code on an older device */
}

TEST(shared_memory_decides_too)
{
    static const struct aot_variant v[] = {{&LARGE, NULL, 1, {{86, 0, false}}},
                                           {&SMALL, NULL, 1, {{80, 0, false}}}};
    CHECK_EQ(picked(v, 2, 86, 250000), 0);
    CHECK_EQ(picked(v, 2, 86, 101376), 1);
    CHECK_EQ(picked(v, 2, 86, 999), -1);
}

/* ---- names ---------------------------------------------------------------------------------------- */

static void describe(struct sig_arg *a, const char *name, enum arg_role role, lathe_dtype dtype, int ndim,
                     bool optional)
{
    static const uint8_t dims[4] = {SYM_B, SYM_H, SYM_Q, SYM_D};
    snprintf(a->name, sizeof a->name, "%s", name);
    a->role = (uint8_t)role;
    a->dtype = (uint8_t)dtype;
    a->dtype_role = role == ROLE_IN || role == ROLE_OUT ? DTYPE_Q : DTYPE_USUAL;
    a->unit_last = a->dtype_role != DTYPE_USUAL;
    a->optional = optional;
    a->ndim = (uint8_t)ndim;
    for (int i = 0; i < ndim; i++)
        a->dim[i].sym = dims[i];
}

enum { ARG_Q, ARG_K, ARG_V, ARG_O, ARG_BIAS, ARG_GAIN, ARG_START, N_ARGS };

static void make_signature(struct signature *s)
{
    memset(s, 0, sizeof *s);
    snprintf(s->kind, sizeof s->kind, "attention");
    s->builds_alignment = true;
    s->n_args = N_ARGS;
    describe(&s->arg[ARG_Q], "q", ROLE_IN, LATHE_NONE, 4, false);
    describe(&s->arg[ARG_K], "k", ROLE_IN, LATHE_NONE, 4, false);
    s->arg[ARG_K].dim[1].sym = SYM_H_KV;
    s->arg[ARG_K].dim[2].sym = SYM_KV;
    s->arg[ARG_V] = s->arg[ARG_K];
    snprintf(s->arg[ARG_V].name, sizeof s->arg[ARG_V].name, "v");
    s->arg[ARG_V].dim[3].sym = SYM_D_V;
    describe(&s->arg[ARG_O], "o", ROLE_OUT, LATHE_NONE, 4, false);
    s->arg[ARG_O].dim[3].sym = SYM_D_V;
    describe(&s->arg[ARG_BIAS], "bias", ROLE_INPUT, LATHE_NONE, 2, true);
    s->arg[ARG_BIAS].presence_built = true;
    describe(&s->arg[ARG_GAIN], "gain", ROLE_SCALAR, LATHE_F32, 0, true);
    s->arg[ARG_GAIN].default_value = 2.5;
    describe(&s->arg[ARG_START], "q_start", ROLE_Q_START, LATHE_I32, 0, true);
    take_sizes(s, "causal");
}

static void make_built(struct problem *p, lathe_dtype dtype, int d, bool bias)
{
    lathe__problem_clear(p);
    lathe__problem_set_dtype(p, dtype);
    p->dim[SYM_D] = d;
    p->dim[SYM_D_V] = d;
    for (int i = 0; i < ARG_GAIN; i++)
        p->arg_dtype[i] = (uint8_t)dtype;
    p->arg_dtype[ARG_GAIN] = LATHE_F32;
    p->arg_dtype[ARG_START] = LATHE_I32;
    p->present = bias ? 0x7f : 0x7f & ~arg_bit(ARG_BIAS);
}

TEST(names_hold_what_is_compiled_in)
{
    struct signature sig;
    struct problem p;
    char name[AOT_SUFFIX_BYTES];
    make_signature(&sig);
    make_built(&p, LATHE_BF16, 64, true);
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64");
    p.dim[SYM_KV] = 16384;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64_long");
    struct phrase of_long = {{0}, 0};
    lathe__aot_problem_text(&sig, &p, &of_long);
    CHECK_STR(of_long.text, "dtype=bf16,d=64,kv=16384");
    p.dim[SYM_H] = 64; /* a decoding step, of which keys of 8 bits tell eight rows of a key head from nine */
    p.dim[SYM_H_KV] = p.dim[SYM_Q] = 1;
    p.dim[SYM_KV] = 512;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64_few");
    p.arg_dtype[ARG_K] = LATHE_I8;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_HAS(name, "bf16_d64_few_nine");
    struct phrase of_nine = {{0}, 0};
    lathe__aot_problem_text(&sig, &p, &of_nine);
    CHECK_HAS(of_nine.text, "dtype=bf16,d=64,h=64,h_kv=1,q=1,kv=512");
    p.arg_dtype[ARG_K] = LATHE_BF16;
    p.dim[SYM_H] = p.dim[SYM_H_KV] = p.dim[SYM_Q] = -1;
    p.dim[SYM_KV] = 1024;
    p.dim[SYM_D_V] = 128;
    p.arg_dtype[ARG_BIAS] = LATHE_F32;
    p.unaligned = arg_bit(ARG_K);
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64_v128_bias_f32_unaligned_k");
    p.present &= ~arg_bit(ARG_BIAS);
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64_v128_no_bias_unaligned_k");
    struct phrase text = {{0}, 0};
    lathe__aot_problem_text(&sig, &p, &text);
    CHECK_STR(text.text, "dtype=bf16,d=64,d_v=128,bias=none,unaligned=k");
    struct phrase in_batch = {{0}, 0};
    p.deterministic = DETERMINISTIC_BATCH;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_d64_v128_no_bias_unaligned_k_batch_invariant");
    lathe__aot_problem_text(&sig, &p, &in_batch);
    CHECK_STR(in_batch.text, "dtype=bf16,d=64,d_v=128,bias=none,unaligned=k,deterministic=batch");
    p.deterministic = DETERMINISTIC_NOT;
    take_sizes(&sig, "softmax");
    p.dim[SYM_N] = 4096;
    p.unaligned = 0;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    CHECK_STR(name, "bf16_n4096_no_bias");
    for (int i = 0; i < N_ARGS; i++) {
        sig.arg[i].role = ROLE_INPUT;
        sig.arg[i].presence_built = true;
        memset(sig.arg[i].name, 'x', 46);
    }
    p.present = 0;
    CHECK(lathe__aot_suffix(&sig, &p, name));
    sig.n_args = 8;
    sig.arg[7] = sig.arg[0];
    CHECK(!lathe__aot_suffix(&sig, &p, name)); /* 11 + 8 * 50 characters */
}

TEST(members_and_library_names)
{
    static const char *const good[] = {"a", "Kernels_2", "abcdefghijklmnopqrstuvwxyz012345"};
    static const char *const bad[] = {
        "",      "2a",         "_a",  "a-b",      "a b",
        "lathe", "lathe_mine", "a/b", "\xc3\xa9", "abcdefghijklmnopqrstuvwxyz0123456"};
    char member[NAME_MAX_BYTES + 2];
    lathe__aot_member("bias", member);
    CHECK_STR(member, "bias");
    lathe__aot_member("do", member);
    CHECK_STR(member, "do_");
    lathe__aot_member("class", member);
    CHECK_STR(member, "class_");
    lathe__aot_member("clas", member);
    CHECK_STR(member, "clas");
    lathe__aot_member("class_", member); /* beside an input called class */
    CHECK_STR(member, "class__");
    lathe__aot_member("clas_", member);
    CHECK_STR(member, "clas_");
    lathe__aot_member("NULL", member);
    CHECK_STR(member, "NULL_");
    lathe__aot_member("errno", member);
    CHECK_STR(member, "errno_");
    lathe__aot_member("lathe_tensor", member);
    CHECK_STR(member, "lathe_tensor_");
    lathe__aot_member("_Bool", member);
    CHECK_STR(member, "_Bool_");
    lathe__aot_member("__LINE__", member);
    CHECK_STR(member, "__LINE___");
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK(lathe__aot_name_error(good[i]) == NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(lathe__aot_name_error(bad[i]) != NULL);
}

/* ---- a library by hand, and a driver that pretends ------------------------------------------------ */

struct args { /* as a generated header would have it */
    lathe_tensor q;
    lathe_tensor k;
    lathe_tensor v;
    lathe_tensor o;
    lathe_tensor bias;
    lathe_optional_f32 gain;
    lathe_optional_i32 q_start;
};
static const struct aot_field FIELDS[] = {
    {FIELD_TENSOR, offsetof(struct args, q)},
    {FIELD_TENSOR, offsetof(struct args, k)},
    {FIELD_TENSOR, offsetof(struct args, v)},
    {FIELD_TENSOR, offsetof(struct args, o)},
    {FIELD_TENSOR, offsetof(struct args, bias)},
    {FIELD_OPTIONAL_F32, offsetof(struct args, gain)},
    {FIELD_OPTIONAL_I32, offsetof(struct args, q_start)},
};

static const struct param ROWS[] = {{PARAM_ARG_DATA, ARG_Q, 0, 0, {0, 0, {{0, 0, 0, 0}}, 0}},
                                    {PARAM_SCALAR_F32, ARG_GAIN, 0, 8, {0, 0, {{0, 0, 0, 0}}, 0}},
                                    {PARAM_Q_START, 0, 0, 12, {0, 0, {{0, 0, 0, 0}}, 0}}};
#define RECIPE(name)                                                                                         \
    {                                                                                                        \
        .n_launches = 1,                                                                                     \
        .launch = {{.entry = name,                                                                           \
                    .grid = {1, 1, {{SYM_B, 1, 0, 0}}, false},                                               \
                    .threads = 128,                                                                          \
                    .n_params = 3,                                                                           \
                    .param_bytes = 16,                                                                       \
                    .param = ROWS}},                                                                         \
        .n_buffers = 1, .buffer = {                                                                          \
            {.bytes = {4, 1, {{SYM_KV, 1, 0, 0}}, false}}                                                    \
        }                                                                                                    \
    }
static const struct source RECIPES[] = {RECIPE("plain"), RECIPE("with_bias"), RECIPE("moves_q")};
static const unsigned char IMAGES[3] = {0, 1, 2};
static const struct aot_variant VARIANTS[] = {{&RECIPES[0], &IMAGES[0], 1, {{80, 0, true}}},
                                              {&RECIPES[1], &IMAGES[1], 1, {{80, 0, true}}},
                                              {&RECIPES[2], &IMAGES[2], 1, {{80, 0, true}}}};

struct library {
    struct signature sig;
    struct problem built[3];
    struct aot_loaded *loaded[3];
    struct aot_kernel kernel[3];
    struct lathe_kernel_set set;
};

static void make_library(struct library *l)
{
    memset(l, 0, sizeof *l);
    make_signature(&l->sig);
    make_built(&l->built[0], LATHE_BF16, 64, false);
    make_built(&l->built[1], LATHE_BF16, 64, true);
    make_built(&l->built[2], LATHE_BF16, 64, false);
    l->built[2].unaligned = arg_bit(ARG_Q);
    for (int i = 0; i < 3; i++)
        l->kernel[i] = (struct aot_kernel){"lib_spec_one", &l->built[i], 1, &VARIANTS[i], &l->loaded[i]};
    l->set = (struct lathe_kernel_set){
        AOT_FORMAT, LATHE_FORWARD, "lib", "lib_spec_forward", "lathe aot spec --arch sm_80", " --name lib",
        &l->sig,    FIELDS,        3,     l->kernel};
}

static const int64_t SHAPE[4] = {3, 2, 10, 64};
static const int64_t BIAS_SHAPE[2] = {3, 2};
static _Alignas(256) char memory[1024];

static struct args make_args(void)
{
    struct args a;
    memset(&a, 0, sizeof a);
    a.q = (lathe_tensor){memory, LATHE_BF16, 4, SHAPE, NULL};
    a.k = a.v = a.o = a.q;
    a.o.data = (void *)((uintptr_t)memory + (1u << 28)); /* never touched */
    return a;
}

static struct {
    int loads;
    int fail_load;
    const unsigned char *image;
    int launches;
    struct {
        const void *q;
        float gain;
        int32_t q_start;
    } block;
    uint64_t context;
} seen;

static int pretend_current(struct CUctx_st **context)
{
    *context = (struct CUctx_st *)(void *)memory;
    return CU_SUCCESS;
}
static int pretend_id(struct CUctx_st *context, unsigned long long *id)
{
    *id = seen.context;
    return context ? CU_SUCCESS : 1;
}
static int pretend_device(int *device)
{
    *device = 0;
    return CU_SUCCESS;
}
static int pretend_get(int *device, int ordinal)
{
    *device = ordinal;
    return CU_SUCCESS;
}
static int pretend_attribute(int *value, int attribute, int device)
{
    *value = attribute == CU_ATTR_CC_MAJOR ? 9 : attribute == CU_ATTR_SMEM_OPTIN ? 232448 : 0;
    return device;
}
static int pretend_mode(int *mode)
{
    return *mode == -1;
}
static int pretend_load(struct CUmod_st **module, const void *image, unsigned n, int *option, void **value)
{
    if (seen.fail_load || n != 2 || !option || !value)
        return 2;
    seen.loads++;
    seen.image = image;
    *module = (struct CUmod_st *)(void *)memory;
    return CU_SUCCESS;
}
static int pretend_function(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    *function = (struct CUfunc_st *)(void *)module;
    return name[0] == 0;
}
static int pretend_function_attribute(int *value, int attribute, struct CUfunc_st *function)
{
    *value = attribute;
    return function ? CU_SUCCESS : 1;
}
static int pretend_launch(const struct cu_launch_config *config, struct CUfunc_st *function, void **params,
                          void **extra)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    seen.launches++;
    memcpy(&seen.block, params[0], 16);
    pthread_mutex_unlock(&lock);
    return config->grid[0] == 3 && function && !extra ? CU_SUCCESS : 1;
}
static int pretend_text(int result, const char **text)
{
    *text = "pretended";
    return result == 0;
}

static const struct driver DRIVER = {.cuCtxGetCurrent = pretend_current,
                                     .cuCtxGetId = pretend_id,
                                     .cuCtxGetDevice = pretend_device,
                                     .cuDeviceGet = pretend_get,
                                     .cuDeviceGetAttribute = pretend_attribute,
                                     .cuThreadExchangeStreamCaptureMode = pretend_mode,
                                     .cuModuleLoadDataEx = pretend_load,
                                     .cuModuleGetFunction = pretend_function,
                                     .cuFuncGetAttribute = pretend_function_attribute,
                                     .cuLaunchKernelEx = pretend_launch,
                                     .cuGetErrorName = pretend_text,
                                     .cuGetErrorString = pretend_text};

static lathe_status launch(struct library *l, int kernel, const struct args *a, lathe_error *err)
{
    return lathe__set_launch_on(&DRIVER, &l->set, kernel, a, memory, NULL, err);
}

TEST(a_zero_member_is_left_out)
{
    static struct library l; /* what is loaded stays, and hangs in it */
    lathe_arg arg[MAX_ARGS];
    struct args a = make_args();
    make_library(&l);
    CHECK_EQ(lathe__aot_args(&l.set, &a, arg), 4);
    CHECK_STR(arg[3].name, "o");
    CHECK(arg[3].shape == SHAPE);
    a.gain = (lathe_optional_f32){1, 0.5f};
    a.q_start = (lathe_optional_i32){1, -3};
    CHECK_EQ(lathe__aot_args(&l.set, &a, arg), 6);
    CHECK_STR(arg[4].name, "gain");
    CHECK_EQ(arg[4].dtype, LATHE_F32);
    CHECK(arg[4].data == &a.gain.value);
    CHECK_EQ(*(const int32_t *)arg[5].data, -3);
}

TEST(arguments_choose_the_kernel)
{
    static struct library l; /* what is loaded stays, and hangs in it */
    lathe_error err;
    struct args a = make_args();
    make_library(&l);
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK(seen.image == &IMAGES[0]);
    CHECK(seen.block.q == memory);
    CHECK_CLOSE(seen.block.gain, 2.5, 0.0);
    CHECK_EQ(seen.block.q_start, 0);
    a.gain = (lathe_optional_f32){1, 0.5f};
    a.q_start = (lathe_optional_i32){1, 5};
    a.bias = (lathe_tensor){memory, LATHE_BF16, 2, BIAS_SHAPE, NULL};
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK(seen.image == &IMAGES[1]);
    CHECK_CLOSE(seen.block.gain, 0.5, 0.0);
    CHECK_EQ(seen.block.q_start, 5);
    a = make_args();
    a.q.data = memory + 2; /* rows that start anywhere */
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK(seen.image == &IMAGES[2]);
    CHECK_EQ(launch(&l, 0, &a, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'q'");
    CHECK_HAS(err.text, "16 bytes");
    CHECK_EQ(seen.loads, 3);
}

/* In either order of the problems; a kernel for other lengths serves where there is none for these. */
TEST(so_do_many_keys)
{
    static const int64_t many[4] = {3, 2, 16384, 64};
    for (int is_long = 0; is_long < 3; is_long += 2) {
        static struct library libraries[3];
        struct library *l = &libraries[is_long];
        lathe_error err;
        struct args a = make_args();
        make_library(l);
        l->built[2].unaligned = 0;
        l->built[is_long].dim[SYM_KV] = 8192;
        CHECK_EQ(launch(l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
        CHECK(seen.image == &IMAGES[2 - is_long]);
        a.k.shape = a.v.shape = many;
        CHECK_EQ(launch(l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
        CHECK(seen.image == &IMAGES[is_long]);
        a.bias = (lathe_tensor){memory, LATHE_BF16, 2, BIAS_SHAPE, NULL};
        CHECK_EQ(launch(l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
        CHECK(seen.image == &IMAGES[1]);
    }
}

TEST(what_is_not_there_is_said)
{
    static struct library l; /* what is loaded stays, and hangs in it */
    lathe_error err;
    struct args a = make_args();
    size_t bytes;
    make_library(&l);
    a.q.dtype = a.k.dtype = a.v.dtype = a.o.dtype = LATHE_F16;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text,
              "lib_spec_forward: liblib has no kernel for dtype=f16,d=64,bias=none; `lathe aot spec "
              "--arch sm_80 --name lib --problem dtype=f16,d=64,bias=none` would add it; it holds "
              "dtype=bf16,d=64,bias=none; dtype=bf16,d=64; dtype=bf16,d=64,bias=none,unaligned=q");
    CHECK_EQ(lathe_set_workspace(&bytes, &l.set, LATHE_ANY_KERNEL, &a, &err), LATHE_UNSUPPORTED);
    a.q.dtype = a.k.dtype = a.v.dtype = a.o.dtype = LATHE_F64; /* no line that would be refused */
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_UNSUPPORTED);
    CHECK_STR(err.text,
              "lib_spec_forward: liblib has no kernel for dtype=f64,d=64,bias=none, and none can be made: "
              "kernels of attention take f32, f16 and bf16; it holds dtype=bf16,d=64,bias=none; "
              "dtype=bf16,d=64; dtype=bf16,d=64,bias=none,unaligned=q");
    static const int64_t odd[4] = {3, 2, 10, 12};
    a = make_args();
    a.q.shape = a.k.shape = a.v.shape = a.o.shape = odd;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "has no kernel for dtype=bf16,d=12,bias=none,unaligned=q+k+v+o, and none can be "
                        "made: kernels of attention take "
                        "d from 16 to 576 in steps of 1, d_v from 16 to 512 in steps of 1; it holds");
    a = make_args();
    a.q.data = NULL; /* for a size, pointers are not needed */
    CHECK_EQ(lathe_set_workspace(&bytes, &l.set, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(bytes, 256);
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_ARG);
    CHECK_HAS(err.text, "'q': expected a data pointer");
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, NULL, &err), LATHE_ARG);
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, NULL, NULL), LATHE_ARG);
    CHECK_EQ(launch(&l, l.set.n_kernels, &a, &err), LATHE_ARG);
    CHECK_HAS(err.text, "kernel: expected LATHE_ANY_KERNEL or a number below 3, given 3");
    CHECK_EQ(lathe_set_workspace(&bytes, &l.set, -2, &a, &err), LATHE_ARG);
    CHECK_EQ(seen.loads, 0);
    l.set.format = AOT_FORMAT + 1;
    a = make_args();
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_ARG);
    char formats[96];
    snprintf(formats, sizeof formats, "of format %u, and liblathe_rt " LATHE_VERSION " reads format %u",
             AOT_FORMAT + 1, AOT_FORMAT);
    CHECK_HAS(err.text, formats);
}

TEST(code_is_loaded_once_for_each_context)
{
    static struct library l; /* what is loaded stays, and hangs in it */
    lathe_error err;
    const struct args a = make_args();
    make_library(&l);
    seen.context = 1;
    seen.fail_load = 1;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_CUDA);
    CHECK(l.loaded[0] == NULL);
    seen.fail_load = 0;
    for (int i = 0; i < 3; i++)
        CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(seen.loads, 1);
    seen.context = 2; /* another context at the same address */
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(seen.loads, 2);
    seen.context = 1;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(seen.loads, 2);
    CHECK_EQ(seen.launches, 5);
}

TEST(a_library_lists_its_kernels)
{
    static struct library l;
    lathe_set_kernel k;
    make_library(&l);
    CHECK_EQ(lathe_set_kernel_at(&l.set, 1, &k), 1);
    CHECK_STR(k.library, "lib");
    CHECK_STR(k.function, "lib_spec_one");
    CHECK_STR(k.problem, "dtype=bf16,d=64");
    CHECK_STR(k.archs, "PTX for sm_80");
    CHECK_EQ(k.pass, LATHE_FORWARD);
    CHECK_EQ(lathe_set_kernel_at(&l.set, 3, &k), 0);
    CHECK_EQ(lathe_set_kernel_at(&l.set, -1, &k), 0);
    CHECK_EQ(lathe_set_kernel_at(NULL, 0, &k), 0);
    l.set.format++;
    CHECK_EQ(lathe_set_kernel_at(&l.set, 0, &k), 0);
}

static struct {
    int lines, level;
    char text[512];
} said;

static void hear(void *user, int level, const char *text)
{
    CHECK(user == &said);
    said.lines++;
    said.level = level;
    snprintf(said.text, sizeof said.text, "%s", text);
}

TEST(loading_is_said_once)
{
    static struct library l;
    static const struct aot_variant code = {&RECIPES[0], &IMAGES[0], 1, {{90, 0, false}}};
    lathe_error err;
    const struct args a = make_args();
    make_library(&l);
    l.kernel[0].variant = &code;
    seen.context = 7;
    lathe_aot_log(hear, &said);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(said.lines, 1);
    CHECK_EQ(said.level, 1);
    CHECK_STR(said.text, "lib_spec_one: loading for compute capability 9.0");
    l.kernel[0].variant = &VARIANTS[0]; /* PTX */
    seen.context = 8;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(said.level, 0);
    CHECK_HAS(said.text,
              "from PTX, which the driver compiles; `lathe aot spec --arch sm_80,sm_90a --name lib`");
    lathe_aot_log(NULL, NULL);
    seen.context = 9;
    CHECK_EQ(launch(&l, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    CHECK_EQ(said.lines, 2);
}

static void *first_call(void *library)
{
    const struct args a = make_args();
    lathe_error err;
    CHECK_EQ(launch(library, LATHE_ANY_KERNEL, &a, &err), LATHE_OK);
    return NULL;
}

TEST(threads_load_once)
{
    enum { N = 16 };
    pthread_t thread[N];
    static struct library l; /* what is loaded stays, and hangs in it */
    make_library(&l);
    for (int i = 0; i < N; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, first_call, &l), 0);
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(seen.loads, 1);
}

/* ---- failures to compile -------------------------------------------------------------------------- */

static void add_text(struct source *s, const char *name, const char *text)
{
    struct text *t = &s->text[s->n_texts++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->size = strlen(text);
    t->data = malloc(t->size + 1);
    CHECK(t->data != NULL);
    memcpy(t->data, text, t->size + 1);
}

static const char MAIN[] =
    "#include \"variant.gen.cuh\"\nextern \"C\" __global__ void one(int *p) { *p = f(); }\n";
static const char BROKEN[] = "// https://nowhere\n__device__ int f() {\n"
                             "    return nonsense; // a: b // mine.lua:12\n}\n";

TEST(a_line_of_text_leads_to_the_spec)
{
    struct source s = {.n_texts = 0};
    char place[64];
    add_text(&s, "kernel.cu", MAIN);
    add_text(&s, "variant.gen.cuh", BROKEN);
    CHECK(lathe__aot_spec_line(&s, "variant.gen.cuh", 3, place, sizeof place));
    CHECK_STR(place, "mine.lua:12");
    CHECK(!lathe__aot_spec_line(&s, "variant.gen.cuh", 2, place, sizeof place));
    CHECK(!lathe__aot_spec_line(&s, "variant.gen.cuh", 99, place, sizeof place));
    CHECK(!lathe__aot_spec_line(&s, "variant.gen.cuh", 0, place, sizeof place));
    CHECK(!lathe__aot_spec_line(&s, "other", 3, place, sizeof place));
    for (int i = 0; i < s.n_texts; i++)
        free(s.text[i].data);
}

static bool folder_is_empty(const char *path)
{
    char command[512];
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s')\"", path);
    return system(command) == 0;
}

TEST(a_kernel_that_does_not_compile_leaves_nothing)
{
    struct compiler *compiler = NULL;
    lathe_error err;
    char folder[512];
    struct aot_library library = {.name = "demo",
                                  .command = "",
                                  .options = "",
                                  .cc = "cc",
                                  .ar = "ar",
                                  .n_archs = 1,
                                  .arch = {"sm_80"},
                                  .ptx_arch = 0,
                                  .n_threads = 2};
    if (lathe__compiler_open(&compiler, "", 0, &err) != LATHE_OK)
        SKIP(err.text);
    snprintf(folder, sizeof folder, "%s/out", check_temp_dir());
    library.folder = folder;
    library.n_specs = 1;
    library.spec = calloc(1, sizeof *library.spec);
    CHECK(library.spec != NULL);
    snprintf(library.spec->name, sizeof library.spec->name, "mine");
    snprintf(library.spec->shown, sizeof library.spec->shown, "mine.lua");
    library.spec->item = calloc(1, sizeof *library.spec->item);
    library.spec->n_items = 1;
    CHECK(library.spec->item != NULL);
    library.spec->item->unit = calloc(1, sizeof *library.spec->item->unit);
    library.spec->item->n_units = 1;
    CHECK(library.spec->item->unit != NULL);
    library.spec->item->unit->n_archs = 1;
    add_text(&library.spec->item->unit->source, "kernel.cu", MAIN);
    add_text(&library.spec->item->unit->source, "variant.gen.cuh", BROKEN);
    snprintf(library.spec->item->unit->source.label, sizeof library.spec->item->unit->source.label, "broken");
    CHECK_EQ(lathe__aot_compile(&library, compiler, &err), LATHE_COMPILE);
    CHECK_HAS(err.text, "spec 'mine.lua', mine.lua:12: broken does not compile for sm_80");
    CHECK_HAS(err.text, "nonsense");
    snprintf(library.arch[0], sizeof library.arch[0], "sm_99");
    CHECK_EQ(lathe__aot_make(&library, compiler, &err), LATHE_ARG);
    CHECK_HAS(err.text, "does not know sm_99");
    CHECK(folder_is_empty(check_temp_dir()));
    lathe__aot_free(&library);
    lathe__compiler_close(compiler);
}
