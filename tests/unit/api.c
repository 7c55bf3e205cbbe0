/*
 * api.c: wrong use of every function of lathe.h, on the host device: NULL where an object or an address
 * belongs, counts below 0, records whose fields are nonsense. None may crash; each gives a status, a sentence
 * that names what is wrong, and a NULL out-parameter. Right calls stand beside them, so that no refusal
 * is of everything.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "lathe.h"
#include "lathe_aot.h"

/* ---- calls that are right ------------------------------------------------------------------------- */

enum { B = 2, H = 4, H_KV = 2, Q = 5, KV = 7, D = 8, D_V = 16, MOST_ARGS = 12, SPARE = 16 };

static const int64_t Q_SHAPE[] = {B, H, Q, D};
static const int64_t K_SHAPE[] = {B, H_KV, KV, D};
static const int64_t V_SHAPE[] = {B, H_KV, KV, D_V};
static const int64_t O_SHAPE[] = {B, H, Q, D_V};

/* An argument with room for its shape and strides, so that both can be spoilt. */
struct call {
    const char *spec;
    lathe_pass pass;
    int n;
    lathe_arg arg[MOST_ARGS];
    int64_t shape[MOST_ARGS][SPARE];
    int64_t strides[MOST_ARGS][SPARE];
    float data[MOST_ARGS][B * H * KV * D_V];
};

static void add(struct call *c, const char *name, int ndim, const int64_t *shape)
{
    const int i = c->n++;
    CHECK(i < MOST_ARGS);
    memcpy(c->shape[i], shape, (size_t)ndim * sizeof shape[0]);
    for (size_t k = 0; k < sizeof c->data[i] / sizeof c->data[i][0]; k++)
        c->data[i][k] = (float)(k % 13) * 0.125f;
    c->arg[i] = (lathe_arg){name, c->data[i], LATHE_F32, ndim, c->shape[i], NULL};
}

static void attention_call(struct call *c, lathe_pass pass)
{
    memset(c, 0, sizeof *c);
    c->spec = "causal";
    c->pass = pass;
    add(c, "q", 4, Q_SHAPE);
    add(c, "k", 4, K_SHAPE);
    add(c, "v", 4, V_SHAPE);
    add(c, "o", 4, O_SHAPE);
    add(c, "lse", 3, Q_SHAPE);
    if (pass == LATHE_FORWARD)
        return;
    add(c, "do", 4, O_SHAPE);
    add(c, "dlse", 3, Q_SHAPE);
    add(c, "dq", 4, Q_SHAPE);
    add(c, "dk", 4, K_SHAPE);
    add(c, "dv", 4, V_SHAPE);
}

static void rowwise_call(struct call *c)
{
    static const int64_t shape[] = {3, 2, 5, 8};
    memset(c, 0, sizeof *c);
    c->spec = "rms_norm";
    add(c, "x", 4, shape);
    add(c, "y", 4, shape);
    add(c, "weight", 1, shape + 3);
}

static lathe_ctx *host(void)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_error err = {0};
    options.device = LATHE_DEVICE_HOST;
    if (lathe_ctx_create(&ctx, &options, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return ctx;
}

static lathe_spec *load(const char *name)
{
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    if (lathe_spec_load(&spec, name, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    return spec;
}

/* A status and its record agree; `part`: what the sentence must name, NULL: anything. */
static void check_refused(lathe_status given, lathe_status expected, const lathe_error *err, const char *part)
{
    CHECK_EQ(given, expected);
    CHECK_EQ(err->status, expected);
    CHECK(err->text[0] != '\0');
    if (part)
        CHECK_HAS(err->text, part);
}

/* ---- contexts and specs --------------------------------------------------------------------------- */

static void refuse_options(const lathe_options *options, const char *part)
{
    lathe_ctx *ctx = (lathe_ctx *)(uintptr_t)options; /* anything but NULL */
    lathe_error err = {0};
    check_refused(lathe_ctx_create(&ctx, options, &err), LATHE_ARG, &err, part);
    CHECK(ctx == NULL);
    CHECK_EQ(lathe_ctx_create(&ctx, options, NULL), LATHE_ARG);
}

TEST(options_that_are_wrong)
{
    lathe_options o = LATHE_OPTIONS_INIT;
    lathe_error err = {0};
    check_refused(lathe_ctx_create(NULL, &o, &err), LATHE_ARG, &err, "out");
    refuse_options(NULL, "options");
    o.device = -3;
    refuse_options(&o, "options.device: expected a CUDA ordinal");
    o.device = INT_MIN;
    refuse_options(&o, "given -2147483648");
    o.device = LATHE_DEVICE_HOST;
    o.cache_read_only = 2;
    refuse_options(&o, "options.cache_read_only: expected 0 or 1, given 2");
    o.cache_read_only = 0;
    o.offline = -1;
    refuse_options(&o, "options.offline: expected 0 or 1, given -1");
    o.offline = 0;
    o.deterministic = 3;
    refuse_options(&o, "options.deterministic: expected 0, 1 or LATHE_BATCH_INVARIANT (2), given 3");
}

TEST(options_of_other_sizes)
{
    struct {
        lathe_options o;
        int later;
    } longer = {LATHE_OPTIONS_INIT, 0};
    const size_t before = offsetof(lathe_options, offline); /* of a program whose record ended there */
    lathe_ctx *ctx = NULL;
    lathe_error err = {0};
    longer.o.device = LATHE_DEVICE_HOST;
    longer.o.deterministic = longer.o.offline = 7; /* what lay behind it in memory */
    CHECK_EQ(lathe_ctx_open(&ctx, &longer.o, before, &err), LATHE_OK);
    CHECK_EQ(lathe_ctx_device(ctx), LATHE_DEVICE_HOST);
    lathe_ctx_destroy(ctx);
    CHECK_EQ(lathe_ctx_open(&ctx, &longer.o, sizeof longer.o, &err), LATHE_ARG);
    longer.o.deterministic = longer.o.offline = 0;
    CHECK_EQ(lathe_ctx_open(&ctx, &longer.o, sizeof longer, &err), LATHE_OK);
    lathe_ctx_destroy(ctx);
    longer.later = 1;
    check_refused(lathe_ctx_open(&ctx, &longer.o, sizeof longer, &err), LATHE_ARG, &err, "does not know");
    check_refused(lathe_ctx_open(&ctx, &longer.o, 3, &err), LATHE_ARG, &err,
                  "size: expected sizeof(lathe_options)");
    check_refused(lathe_ctx_open(&ctx, NULL, sizeof longer, &err), LATHE_ARG, &err, "options");
    CHECK_EQ(lathe_ctx_create(&ctx, &longer.o, &err), LATHE_OK); /* and what is behind is not read */
    lathe_ctx_destroy(ctx);
}

TEST(specs_that_cannot_be_loaded)
{
    static const char text[] = "return attention {}";
    lathe_spec *spec = NULL;
    lathe_error err = {0};
    char long_name[5000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    check_refused(lathe_spec_load(NULL, "causal", &err), LATHE_ARG, &err, "out");
    check_refused(lathe_spec_load(&spec, NULL, &err), LATHE_ARG, &err, "path");
    check_refused(lathe_spec_load(&spec, "", &err), LATHE_SPEC, &err, NULL);
    check_refused(lathe_spec_load(&spec, "/", &err), LATHE_SPEC, &err, NULL);
    check_refused(lathe_spec_load(&spec, "no_such_spec", &err), LATHE_SPEC, &err, "no_such_spec");
    check_refused(lathe_spec_load(&spec, "casual", &err), LATHE_SPEC, &err, "did you mean 'causal'?");
    check_refused(lathe_spec_load(&spec, long_name, &err), LATHE_SPEC, &err, NULL);
    check_refused(lathe_spec_parse(&spec, "a\n#error b.lua", text, sizeof text - 1, &err), LATHE_SPEC, &err,
                  "line breaks");
    check_refused(lathe_spec_parse(NULL, "a", text, sizeof text - 1, &err), LATHE_ARG, &err, "out");
    check_refused(lathe_spec_parse(&spec, NULL, text, sizeof text - 1, &err), LATHE_ARG, &err, "name");
    check_refused(lathe_spec_parse(&spec, "a", NULL, 3, &err), LATHE_ARG, &err, "text");
    check_refused(lathe_spec_parse(&spec, "a", text, 0, &err), LATHE_SPEC, &err, NULL);
    check_refused(lathe_spec_parse(&spec, "a", "\x1bLua", 4, &err), LATHE_SPEC, &err, NULL);
    check_refused(lathe_spec_parse(&spec, "a", "\0\0\0\0", 4, &err), LATHE_SPEC, &err, NULL);
    CHECK(spec == NULL);
    for (size_t size = 0; size < sizeof text - 1; size++) { /* cut off anywhere */
        CHECK_EQ(lathe_spec_parse(&spec, "a", text, size, NULL), LATHE_SPEC);
        CHECK(spec == NULL);
    }
    CHECK_EQ(lathe_spec_parse(&spec, long_name, text, sizeof text - 1, &err), LATHE_OK);
    lathe_spec_destroy(spec);
    CHECK_EQ(lathe_spec_parse(&spec, "", text, sizeof text - 1, &err), LATHE_OK);
    CHECK_EQ(err.status, LATHE_OK);
    lathe_spec_destroy(spec);
}

TEST(nothing_is_destroyed_and_described)
{
    lathe_ctx_destroy(NULL);
    lathe_spec_destroy(NULL);
    lathe_kernel_release(NULL);
    CHECK_EQ(lathe_ctx_device(NULL), LATHE_DEVICE_AUTO);
    CHECK_STR(lathe_ctx_device_name(NULL), "");
    CHECK_STR(lathe_kernel_info(NULL), "");
    CHECK_STR(lathe_status_text((lathe_status)99), "unknown status");
    CHECK_STR(lathe_dtype_text((lathe_dtype)99), "unknown dtype");
    CHECK_EQ(lathe_dtype_size((lathe_dtype)99), 0);
}

/* ---- kernels -------------------------------------------------------------------------------------- */

TEST(objects_that_are_not_there)
{
    static struct call c;
    lathe_ctx *ctx = host();
    lathe_spec *spec = load("causal");
    lathe_kernel *kernel = (lathe_kernel *)(void *)ctx; /* anything but NULL */
    lathe_error err = {0};
    size_t bytes = 7;
    attention_call(&c, LATHE_FORWARD);
    const lathe_arg *a = c.arg;
    check_refused(lathe_supported(NULL, spec, LATHE_FORWARD, a, c.n, &err), LATHE_ARG, &err,
                  "ctx: expected an object, given NULL");
    check_refused(lathe_supported(ctx, NULL, LATHE_FORWARD, a, c.n, &err), LATHE_ARG, &err, "spec");
    check_refused(lathe_supported(ctx, spec, (lathe_pass)3, a, c.n, &err), LATHE_ARG, &err, "pass");
    check_refused(lathe_kernel_get(NULL, ctx, spec, LATHE_FORWARD, a, c.n, &err), LATHE_ARG, &err, "out");
    check_refused(lathe_kernel_get(&kernel, NULL, spec, LATHE_FORWARD, a, c.n, &err), LATHE_ARG, &err, "ctx");
    CHECK(kernel == NULL);
    check_refused(lathe_kernel_get(&kernel, ctx, spec, (lathe_pass)-1, a, c.n, &err), LATHE_ARG, &err,
                  "pass: expected LATHE_FORWARD, LATHE_BACKWARD or LATHE_COMBINE, given -1");
    check_refused(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, NULL, c.n, &err), LATHE_ARG, &err,
                  "expected a list");
    check_refused(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, a, -1, &err), LATHE_ARG, &err, "n=-1");
    check_refused(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, NULL, 0, &err), LATHE_ARG, &err,
                  "argument 'q': missing");
    check_refused(lathe_workspace_size(&bytes, NULL, a, c.n, &err), LATHE_ARG, &err,
                  "kernel: expected an object, given NULL");
    check_refused(lathe_launch(NULL, a, c.n, NULL, NULL, &err), LATHE_ARG, &err,
                  "kernel: expected an object, given NULL");
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, a, c.n, NULL), LATHE_OK);
    check_refused(lathe_workspace_size(NULL, kernel, a, c.n, &err), LATHE_ARG, &err, "out");
    check_refused(lathe_launch(kernel, NULL, 3, NULL, NULL, &err), LATHE_ARG, &err, "expected a list");
    check_refused(lathe_launch(kernel, a, INT_MIN, NULL, NULL, &err), LATHE_ARG, &err, "n=-2147483648");
    CHECK_EQ(lathe_launch(kernel, a, c.n, NULL, NULL, NULL), LATHE_OK);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

/* As on a GPU, with the same sentence. */
TEST(the_host_takes_what_its_kernel_was_got_for)
{
    static struct call c;
    lathe_ctx *ctx = host();
    lathe_spec *spec = load("causal");
    lathe_kernel *kernel = NULL;
    lathe_error err = {0};
    attention_call(&c, LATHE_FORWARD);
    CHECK_EQ(lathe_kernel_get(&kernel, ctx, spec, LATHE_FORWARD, c.arg, c.n, &err), LATHE_OK);
    for (int i = 0; i < c.n; i++)
        c.arg[i].dtype = c.arg[i].ndim == 4 ? LATHE_F16 : c.arg[i].dtype;
    check_refused(lathe_launch(kernel, c.arg, c.n, NULL, NULL, &err), LATHE_ARG, &err,
                  "argument 'q': this kernel was built for f32, given f16; get one for these arguments");
    for (int i = 0; i < c.n; i++) {
        c.arg[i].dtype = LATHE_F32;
        if (c.arg[i].ndim == 4)
            c.shape[i][3] /= 2;
    }
    check_refused(lathe_launch(kernel, c.arg, c.n, NULL, NULL, &err), LATHE_ARG, &err,
                  "problem: this kernel was built for d=");
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

TEST(a_kernel_set_that_is_not_there)
{
    static const int args[64];
    lathe_error err = {0};
    size_t bytes = 0;
    check_refused(lathe_set_launch(NULL, 0, args, NULL, NULL, &err), LATHE_ARG, &err, "set");
    check_refused(lathe_set_workspace(&bytes, NULL, 0, args, &err), LATHE_ARG, &err, "set");
}

/* ---- arguments, spoilt one at a time -------------------------------------------------------------- */

static void refuse_launch(const lathe_kernel *kernel, struct call *c, int i, const char *part)
{
    lathe_error err = {0};
    check_refused(lathe_launch(kernel, c->arg, c->n, NULL, NULL, &err), LATHE_ARG, &err, part);
    if (c->arg[i].name && strlen(c->arg[i].name) < 8)
        CHECK_HAS(err.text, c->arg[i].name);
}

static void spoil_forms(const lathe_kernel *kernel, struct call *c, int i)
{
    static const int dtypes[] = {LATHE_NONE, LATHE_I32, LATHE_U8, LATHE_BF16, 50, 99, -1, 256 + LATHE_F32};
    static const int ndims[] = {-1, 2, 5, 8, 9, INT_MAX, INT_MIN};
    const lathe_arg right = c->arg[i];
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        c->arg[i].dtype = (lathe_dtype)dtypes[k];
        refuse_launch(kernel, c, i, "expected dtype");
    }
    c->arg[i] = right;
    for (size_t k = 0; k < sizeof ndims / sizeof ndims[0]; k++) {
        c->arg[i].ndim = ndims[k];
        refuse_launch(kernel, c, i, "expected");
    }
    c->arg[i] = right;
    c->arg[i].shape = NULL;
    refuse_launch(kernel, c, i, "given NULL");
    c->arg[i] = right;
    c->arg[i].data = (char *)right.data + 1;
    refuse_launch(kernel, c, i, "aligned to its element of 4 bytes");
    c->arg[i] = right;
}

static void spoil_sizes(const lathe_kernel *kernel, struct call *c, int i)
{
    static const int64_t sizes[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 31, 3000, 0};
    for (int d = 0; d < c->arg[i].ndim; d++) {
        const int64_t right = c->shape[i][d];
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            c->shape[i][d] = sizes[k]; /* each size is also another argument's: then that one differs */
            lathe_error err = {0};
            check_refused(lathe_launch(kernel, c->arg, c->n, NULL, NULL, &err), LATHE_ARG, &err, "expected");
        }
        c->shape[i][d] = right;
    }
}

static void spoil_strides(const lathe_kernel *kernel, struct call *c, int i)
{
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 60};
    for (int d = 0; d < c->arg[i].ndim; d++) {
        int64_t stride = 1;
        for (int k = c->arg[i].ndim - 1; k >= 0; k--) {
            c->strides[i][k] = stride;
            stride *= c->shape[i][k];
        }
        c->arg[i].strides = c->strides[i];
        for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
            c->strides[i][d] = wrong[k];
            refuse_launch(kernel, c, i, "argument '");
        }
    }
    c->arg[i].strides = NULL;
}

static void spoil_names(const lathe_kernel *kernel, struct call *c, int i)
{
    static const char *const names[] = {NULL, "", "%s%n",
                                        "a name that is far longer than any name may ever be"};
    const lathe_arg right = c->arg[i];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        c->arg[i].name = names[k];
        refuse_launch(kernel, c, i, "unknown name; this spec takes");
    }
    c->arg[i].name = c->arg[i ? 0 : 1].name;
    refuse_launch(kernel, c, i, "given twice");
    c->arg[i] = right;
}

static void spoil_all(struct call *c)
{
    lathe_ctx *ctx = host();
    lathe_spec *spec = load(c->spec);
    lathe_kernel *kernel = NULL;
    lathe_error err = {0};
    if (lathe_kernel_get(&kernel, ctx, spec, c->pass, c->arg, c->n, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    for (int i = 0; i < c->n; i++) {
        spoil_forms(kernel, c, i);
        spoil_sizes(kernel, c, i);
        spoil_strides(kernel, c, i);
        spoil_names(kernel, c, i);
    }
    if (lathe_launch(kernel, c->arg, c->n, NULL, NULL, &err) != LATHE_OK)
        check_fail(__FILE__, __LINE__, err.text);
    CHECK_EQ(err.text[0], '\0');
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    lathe_ctx_destroy(ctx);
}

TEST(a_spoilt_argument_of_attention)
{
    static struct call c;
    attention_call(&c, LATHE_FORWARD);
    spoil_all(&c);
}

TEST(a_spoilt_argument_of_its_gradients)
{
    static struct call c;
    attention_call(&c, LATHE_BACKWARD);
    spoil_all(&c);
}

/* ---- arguments, spoilt at random ------------------------------------------------------------------ */

static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}

static int64_t draw_size(uint64_t *state)
{
    static const int64_t sizes[] = {0,  1,  2,         5,         7,         8,         16,
                                    -1, -8, INT32_MAX, INT64_MIN, INT64_MAX, 1LL << 31, 1LL << 44};
    return sizes[draw(state, (unsigned)(sizeof sizes / sizeof sizes[0]))];
}

static void spoil_field(struct call *c, uint64_t *state)
{
    static const char *const names[] = {"q", "x", "lse", "", "nothing", NULL};
    const int i = (int)draw(state, (unsigned)c->n);
    lathe_arg *a = &c->arg[i];
    int64_t *size;
    switch (draw(state, 7)) {
    case 0:
        a->name = names[draw(state, 6)];
        break;
    case 1:
        a->data = draw(state, 2) ? NULL : (char *)c->data[i] + draw(state, 8);
        break;
    case 2:
        a->dtype = (lathe_dtype)((int)draw(state, 12) - 2);
        break;
    case 3:
        a->ndim = (int)draw(state, SPARE + 2) - 2;
        break;
    case 4:
        a->shape = draw(state, 4) ? c->shape[i] : NULL;
        break;
    case 5:
        size =
            &c->shape[i][draw(state, SPARE)]; /* which of two draws comes first is not left to the compiler */
        *size = draw_size(state);
        break;
    default:
        a->strides = c->strides[i];
        size = &c->strides[i][draw(state, SPARE)];
        *size = draw_size(state);
        break;
    }
}

/* What a function says and what it leaves behind agree, whichever of the three it is. */
static void check_answer(lathe_status status, const lathe_error *err)
{
    CHECK(status == LATHE_OK || status == LATHE_ARG || status == LATHE_UNSUPPORTED);
    CHECK_EQ(err->status, status);
    CHECK_EQ(err->text[0] == '\0', status == LATHE_OK);
}

static int ask(lathe_ctx *ctx, const lathe_spec *spec, const struct call *c)
{
    lathe_kernel *kernel = (lathe_kernel *)(void *)ctx;
    lathe_error err;
    size_t bytes = 1;
    const lathe_status supported = lathe_supported(ctx, spec, c->pass, c->arg, c->n, &err);
    check_answer(supported, &err);
    const lathe_status got = lathe_kernel_get(&kernel, ctx, spec, c->pass, c->arg, c->n, &err);
    check_answer(got, &err);
    CHECK_EQ(got, supported);
    CHECK_EQ(kernel == NULL, got != LATHE_OK);
    if (!kernel)
        return 0;
    check_answer(lathe_workspace_size(&bytes, kernel, c->arg, c->n, &err), &err);
    CHECK_EQ(bytes, 0);
    lathe_kernel_release(kernel);
    return 1;
}

TEST(arguments_spoilt_at_random)
{
    static struct call right[3];
    static struct call c;
    uint64_t state = 20;
    int served = 0;
    enum { ROUNDS = 3000 };
    attention_call(&right[0], LATHE_FORWARD);
    attention_call(&right[1], LATHE_BACKWARD);
    rowwise_call(&right[2]);
    lathe_ctx *ctx = host();
    for (int k = 0; k < 3; k++) {
        lathe_spec *spec = load(right[k].spec);
        c = right[k];
        for (int i = 0; i < c.n; i++)
            c.arg[i].shape = c.shape[i];
        const struct call whole = c;
        CHECK_EQ(ask(ctx, spec, &c), 1);
        for (int round = 0; round < ROUNDS; round++) {
            for (unsigned mistakes = 1 + draw(&state, 3); mistakes > 0; mistakes--)
                spoil_field(&c, &state);
            served += ask(ctx, spec, &c);
            memcpy(c.arg, whole.arg, sizeof c.arg);
            memcpy(c.shape, whole.shape, sizeof c.shape);
            memcpy(c.strides, whole.strides, sizeof c.strides);
        }
        lathe_spec_destroy(spec);
    }
    lathe_ctx_destroy(ctx);
    CHECK(served > ROUNDS / 10 && served < 3 * ROUNDS * 9 / 10);
}
