/*
 * aot.c: a library compiled ahead of time, on a GPU: the first call of each kernel against its second, and
 * its results against the JIT's, bit by bit: one launch (causal), a map of tiles before it (document), a
 * backward pass of several kernels with ordered sums, the same in pairs of thread blocks, and a row-wise
 * pair. run.sh makes the library
 * (`gpu_aot`) and compiles this file against it, so it belongs to no CMake target. Exit code 77: no GPU; 1: a
 * result differs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "gpu_aot.h"

enum { HEADS = 4, TOKENS = 500, DIM = 128, ROWS = 64, LENGTH = 1000, MAX_PORTS = 12, DOCUMENT = 170 };
enum { WORKSPACE = 16 << 20, FIRST_CALL_US = 2000 };

static const int64_t TENSOR[] = {1, HEADS, TOKENS, DIM};
static const int64_t WIDE[] = {1, HEADS, TOKENS, 2 * DIM};
static const int64_t STATISTICS[] = {1, HEADS, TOKENS};
static const int64_t IDS[] = {1, TOKENS};
static const int64_t MATRIX[] = {ROWS, LENGTH};
static const int64_t VECTOR[] = {LENGTH};

struct port { /* an argument; results are written by both ways and compared */
    const char *name;
    lathe_dtype dtype;
    int ndim;
    const int64_t *shape;
    bool result;
};

/* A kernel of the library. The two functions take the arguments in the order of `port`. */
struct kernel {
    const char *spec;
    lathe_pass pass;
    lathe_status (*workspace)(size_t *bytes, const lathe_tensor *t, lathe_error *err);
    lathe_status (*run)(const lathe_tensor *t, void *workspace, lathe_error *err);
    struct port port[MAX_PORTS];
};

/* ---- the kernels ---------------------------------------------------------------------------------- */

/* What a kernel of the table calls: its arguments from a list of tensors, its launch, its workspace. */
#define RUNS(name, function, ...)                                                                            \
    static lathe_status name##_run(const lathe_tensor *t, void *workspace, lathe_error *err)                 \
    {                                                                                                        \
        const __VA_ARGS__;                                                                                   \
        return function(&args, workspace, NULL, err);                                                        \
    }
#define ASKS(name, function, ...)                                                                            \
    static lathe_status name##_workspace(size_t *bytes, const lathe_tensor *t, lathe_error *err)             \
    {                                                                                                        \
        const __VA_ARGS__;                                                                                   \
        return function##_workspace(bytes, &args, err);                                                      \
    }                                                                                                        \
    RUNS(name, function, __VA_ARGS__)

ASKS(causal, gpu_aot_causal_forward, gpu_aot_causal_args args = {.q = t[0], .k = t[1], .v = t[2], .o = t[3]})
ASKS(document, gpu_aot_document_forward,
     gpu_aot_document_args args = {.q = t[0], .k = t[1], .v = t[2], .doc = t[3], .o = t[4], .lse = t[5]})
ASKS(gradient, gpu_aot_document_bf16_d128_no_o_no_lse_deterministic_backward,
     gpu_aot_document_backward_args args = {
         .q = t[0], .k = t[1], .v = t[2], .doc = t[3], .do_ = t[4], .dq = t[5], .dk = t[6], .dv = t[7]})
ASKS(wide_gradient, gpu_aot_document_bf16_d256_no_o_no_lse_deterministic_backward,
     gpu_aot_document_backward_args args = {
         .q = t[0], .k = t[1], .v = t[2], .doc = t[3], .do_ = t[4], .dq = t[5], .dk = t[6], .dv = t[7]})
RUNS(norm, gpu_aot_rms_norm_forward, gpu_aot_rms_norm_args args = {.x = t[0], .weight = t[1], .y = t[2]})
ASKS(norm_gradient, gpu_aot_rms_norm_backward,
     gpu_aot_rms_norm_backward_args args = {
         .x = t[0], .weight = t[1], .dy = t[2], .dx = t[3], .dweight = t[4]})

#define BF16(name, result)                                                                                   \
    {                                                                                                        \
        name, LATHE_BF16, 4, TENSOR, result                                                                  \
    }
#define BF16_WIDE(name, result)                                                                              \
    {                                                                                                        \
        name, LATHE_BF16, 4, WIDE, result                                                                    \
    }

static const struct kernel KERNELS[] = {
    {"causal",
     LATHE_FORWARD,
     causal_workspace,
     causal_run,
     {BF16("q", false), BF16("k", false), BF16("v", false), BF16("o", true)}},
    {"document",
     LATHE_FORWARD,
     document_workspace,
     document_run,
     {BF16("q", false),
      BF16("k", false),
      BF16("v", false),
      {"doc", LATHE_I32, 2, IDS, false},
      BF16("o", true),
      {"lse", LATHE_F32, 3, STATISTICS, true}}},
    {"document",
     LATHE_BACKWARD,
     gradient_workspace,
     gradient_run,
     {BF16("q", false),
      BF16("k", false),
      BF16("v", false),
      {"doc", LATHE_I32, 2, IDS, false},
      BF16("do", false),
      BF16("dq", true),
      BF16("dk", true),
      BF16("dv", true)}},
    {"document",
     LATHE_BACKWARD,
     wide_gradient_workspace,
     wide_gradient_run,
     {BF16_WIDE("q", false),
      BF16_WIDE("k", false),
      BF16_WIDE("v", false),
      {"doc", LATHE_I32, 2, IDS, false},
      BF16_WIDE("do", false),
      BF16_WIDE("dq", true),
      BF16_WIDE("dk", true),
      BF16_WIDE("dv", true)}},
    {"rms_norm",
     LATHE_FORWARD,
     NULL,
     norm_run,
     {{"x", LATHE_BF16, 2, MATRIX, false},
      {"weight", LATHE_BF16, 1, VECTOR, false},
      {"y", LATHE_BF16, 2, MATRIX, true}}},
    {"rms_norm",
     LATHE_BACKWARD,
     norm_gradient_workspace,
     norm_gradient_run,
     {{"x", LATHE_BF16, 2, MATRIX, false},
      {"weight", LATHE_BF16, 1, VECTOR, false},
      {"dy", LATHE_BF16, 2, MATRIX, false},
      {"dx", LATHE_BF16, 2, MATRIX, true},
      {"dweight", LATHE_F32, 1, VECTOR, true}}},
};

/* ---- data ----------------------------------------------------------------------------------------- */

struct memory { /* of one kernel: what each way reads and writes; inputs are shared */
    void *library[MAX_PORTS];
    void *jit[MAX_PORTS];
    void *workspace;
};

static int64_t elements(const struct port *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->ndim; i++)
        n *= p->shape[i];
    return n;
}

static size_t bytes_of(const struct port *p)
{
    return (size_t)elements(p) * (p->dtype == LATHE_BF16 ? 2 : 4);
}

/* bf16 between 1/4 and 2 of either sign; ids that grow by one every DOCUMENT tokens. */
static bool fill(const struct device *device, const struct port *p, void *at)
{
    const size_t bytes = bytes_of(p);
    uint16_t *host = malloc(bytes);
    bool good = host != NULL;
    for (int64_t i = 0; good && i < elements(p); i++) {
        const int32_t id = (int32_t)(i / DOCUMENT);
        const int sign = rand() & 1;
        if (p->dtype == LATHE_I32)
            memcpy((char *)host + 4 * i, &id, sizeof id);
        else
            host[i] = (uint16_t)(sign << 15 | (0x3e80 + rand() % 0x180));
    }
    good = good && device_upload(device, at, host, bytes);
    free(host);
    return good;
}

static bool make_memory(const struct device *device, const struct kernel *k, struct memory *m)
{
    bool good = (m->workspace = device_alloc(device, WORKSPACE)) != NULL;
    for (int i = 0; good && i < MAX_PORTS && k->port[i].name; i++) {
        const struct port *p = &k->port[i];
        good = (m->library[i] = device_alloc(device, bytes_of(p))) != NULL;
        if (good && !p->result)
            good = fill(device, p, m->library[i]);
        else if (good) /* different rubbish: what a kernel leaves out differs */
            good = (m->jit[i] = device_alloc(device, bytes_of(p))) != NULL &&
                   device_fill(device, m->library[i], 0x11, bytes_of(p)) &&
                   device_fill(device, m->jit[i], 0x22, bytes_of(p));
    }
    return good;
}

static void free_memory(const struct device *device, const struct memory *m)
{
    for (int i = 0; i < MAX_PORTS; i++) {
        device_free(device, m->library[i]);
        device_free(device, m->jit[i]);
    }
    device_free(device, m->workspace);
}

/* ---- the two ways --------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The size is asked for as a program does it: in the time of the call. */
static bool call_library(const struct device *device, const struct kernel *k, const struct memory *m,
                         double *took, lathe_error *err)
{
    lathe_tensor t[MAX_PORTS] = {0};
    size_t bytes = 0;
    for (int i = 0; i < MAX_PORTS && k->port[i].name; i++)
        t[i] = (lathe_tensor){m->library[i], k->port[i].dtype, k->port[i].ndim, k->port[i].shape, NULL};
    const double start = seconds();
    if (k->workspace && k->workspace(&bytes, t, err) != LATHE_OK)
        return false;
    if (bytes > WORKSPACE) {
        snprintf(err->text, sizeof err->text, "%zu bytes of workspace, the test has %d", bytes, WORKSPACE);
        err->status = LATHE_ARG;
        return false;
    }
    const bool good = k->run(t, m->workspace, err) == LATHE_OK && device_sync(device, NULL);
    *took = seconds() - start;
    return good;
}

static bool call_jit(const struct device *device, lathe_ctx *ctx, const struct kernel *k,
                     const struct memory *m, lathe_error *err)
{
    lathe_arg args[MAX_PORTS];
    lathe_spec *spec = NULL;
    lathe_kernel *kernel = NULL;
    int n = 0;
    for (; n < MAX_PORTS && k->port[n].name; n++) {
        const struct port *p = &k->port[n];
        args[n] =
            (lathe_arg){p->name, p->result ? m->jit[n] : m->library[n], p->dtype, p->ndim, p->shape, NULL};
    }
    const bool good = lathe_spec_load(&spec, k->spec, err) == LATHE_OK &&
                      lathe_kernel_get(&kernel, ctx, spec, k->pass, args, n, err) == LATHE_OK &&
                      lathe_launch(kernel, args, n, m->workspace, NULL, err) == LATHE_OK &&
                      device_sync(device, NULL);
    lathe_kernel_release(kernel);
    lathe_spec_destroy(spec);
    return good;
}

static bool same(const struct device *device, const struct port *p, const void *library, const void *jit)
{
    const size_t bytes = bytes_of(p);
    char *a = malloc(2 * bytes);
    const bool equal = a && device_download(device, a, library, bytes) &&
                       device_download(device, a + bytes, jit, bytes) && memcmp(a, a + bytes, bytes) == 0;
    free(a);
    return equal;
}

/* One kernel: false where a result differs or a call failed; says so. */
static bool test_kernel(const struct device *device, lathe_ctx *ctx, const struct kernel *k)
{
    const char *pass = k->pass == LATHE_FORWARD ? "forward" : "backward";
    struct memory m = {0};
    lathe_error err = {.status = LATHE_OK};
    double first = 0;
    double later = 0;
    bool good = make_memory(device, k, &m) && call_library(device, k, &m, &first, &err) &&
                call_library(device, k, &m, &later, &err) && call_jit(device, ctx, k, &m, &err);
    if (!good)
        printf("FAILED %s %s: %s\n", k->spec, pass, err.status == LATHE_OK ? device_error() : err.text);
    for (int i = 0; good && i < MAX_PORTS && k->port[i].name; i++)
        if (k->port[i].result && !same(device, &k->port[i], m.library[i], m.jit[i])) {
            printf("FAILED %s %s: %s DIFFERS from the JIT's\n", k->spec, pass, k->port[i].name);
            good = false;
        }
    if (good)
        printf("%s %s: first call %.2f ms beyond the second (bar: %d ms%s); results equal the JIT's bit by "
               "bit\n",
               k->spec, pass, 1e3 * (first - later), FIRST_CALL_US / 1000,
               1e6 * (first - later) <= FIRST_CALL_US ? "" : ", MISS");
    free_memory(device, &m);
    return good;
}

int main(void)
{
    char why[256];
    lathe_error err = {.status = LATHE_OK};
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    bool good = true;
    struct device *device = device_open(false, why, sizeof why);
    if (!device) {
        printf("skipped: %s\n", why);
        return 77;
    }
    options.device = device_ordinal(device);
    options.deterministic = 1;
    if (lathe_ctx_create(&ctx, &options, &err) != LATHE_OK) {
        printf("FAILED: %s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < sizeof KERNELS / sizeof KERNELS[0]; i++)
        good &= test_kernel(device, ctx, &KERNELS[i]);
    lathe_ctx_destroy(ctx);
    device_close(device);
    return good ? 0 : 1;
}
