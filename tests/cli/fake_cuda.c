/*
 * fake_cuda.c: a libcuda.so.1 without a GPU, for tests of what surrounds a launch. Device memory is the
 * host's, kernels do nothing, one launch takes 2 ms of device time. Found through LD_LIBRARY_PATH.
 *     FAKE_CUDA_FAIL  name of a call that fails with error 2
 *     FAKE_CUDA_LOG   file that gets "memory A events B contexts C" at exit: what was not given back
 *     FAKE_CUDA_SM, FAKE_CUDA_SMEM, FAKE_CUDA_SMS   compute capability (80), shared memory of a block
 * (166912), multiprocessors (108) FAKE_CUDA_FAST  bytes of dynamic shared memory: a launch with just so many
 * takes 1 ms FAKE_CUDA_LAUNCHES, FAKE_CUDA_PARAMS   file that gets a line for each launch, with as many bytes
 * of its parameters as the second says
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0,
    OUT_OF_MEMORY = 2,
    NOT_FOUND = 500,
    SM_COUNT = 16,
    CC_MAJOR = 75,
    CC_MINOR = 76,
    SMEM_OPTIN = 97
};

static int memory;
static int events;
static int contexts;
static int current;       /* something to point at */
static int launched_smem; /* of the last launch */

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static int answer(const char *name)
{
    const char *fails = getenv("FAKE_CUDA_FAIL");
    return fails && strcmp(fails, name) == 0 ? OUT_OF_MEMORY : OK;
}
#define ANSWER                                                                                               \
    do {                                                                                                     \
        if (answer(__func__ + 5) != OK) /* behind "fake_" */                                                 \
            return OUT_OF_MEMORY;                                                                            \
    } while (0)

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f)
        return;
    fprintf(f, "memory %d events %d contexts %d\n", memory, events, contexts);
    fclose(f);
}

static int fake_cuInit(unsigned flags)
{
    (void)flags;
    ANSWER;
    return OK;
}
static int fake_cuDriverGetVersion(int *version)
{
    ANSWER;
    *version = 13000;
    return OK;
}
static int fake_cuGetErrorName(int result, const char **text)
{
    (void)result;
    *text = "CUDA_ERROR_FAKE";
    return OK;
}
static int fake_cuGetErrorString(int result, const char **text)
{
    (void)result;
    *text = "a failure on purpose";
    return OK;
}
static int fake_cuDeviceGetCount(int *count)
{
    ANSWER;
    *count = 1;
    return OK;
}
static int fake_cuDeviceGet(int *device, int ordinal)
{
    ANSWER;
    *device = ordinal;
    return OK;
}
static int fake_cuDeviceGetName(char *name, int bytes, int device)
{
    (void)device;
    ANSWER;
    snprintf(name, (size_t)bytes, "Fake GPU");
    return OK;
}
static int fake_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    ANSWER;
    const int sm = number_of("FAKE_CUDA_SM", 80);
    *value = attribute == SM_COUNT     ? number_of("FAKE_CUDA_SMS", 108)
             : attribute == CC_MAJOR   ? sm / 10
             : attribute == CC_MINOR   ? sm % 10
             : attribute == SMEM_OPTIN ? number_of("FAKE_CUDA_SMEM", 166912)
                                       : 0;
    return OK;
}
static int fake_cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    ANSWER;
    contexts++;
    *context = &current;
    return OK;
}
static int fake_cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    contexts--;
    return OK;
}
static int fake_cuCtxGetCurrent(void **context)
{
    ANSWER;
    *context = NULL;
    return OK;
}
static int fake_cuCtxPushCurrent(void *context)
{
    (void)context;
    ANSWER;
    return OK;
}
static int fake_cuCtxPopCurrent(void **context)
{
    *context = &current;
    return OK;
}
static int fake_cuCtxGetDevice(int *device)
{
    ANSWER;
    *device = 0;
    return OK;
}
static int fake_cuCtxGetId(void *context, unsigned long long *id)
{
    (void)context;
    *id = 7;
    return OK;
}
static int fake_cuThreadExchangeStreamCaptureMode(int *mode)
{
    (void)mode;
    return OK;
}
static int fake_cuModuleLoadDataEx(void **module, const void *image, unsigned n, int *option, void **value)
{
    (void)image;
    (void)n;
    (void)option;
    (void)value;
    ANSWER;
    *module = &current;
    return OK;
}
static int fake_cuModuleUnload(void *module)
{
    (void)module;
    return OK;
}
static int fake_cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    ANSWER;
    *function = strdup(name); /* a launch is known by its kernel's name; kept, as code is */
    return *function ? OK : OUT_OF_MEMORY;
}
static int fake_cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function;
    (void)attribute;
    (void)value;
    ANSWER;
    return OK;
}
static int fake_cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute;
    (void)function;
    ANSWER;
    *value = 0;
    return OK;
}
struct launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned smem_bytes;
    void *stream;
};

static int log_launch(const struct launch_config *config, const char *name, const unsigned char *params)
{
    const char *path = getenv("FAKE_CUDA_LAUNCHES");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return OK;
    fprintf(f, "%s grid %u %u %u block %u %u %u shared %u stream %p:", name, config->grid[0], config->grid[1],
            config->grid[2], config->block[0], config->block[1], config->block[2], config->smem_bytes,
            config->stream);
    for (int i = 0; i < number_of("FAKE_CUDA_PARAMS", 0); i++)
        fprintf(f, "%s%02x", i % 8 ? "" : " ", params[i]);
    fprintf(f, "\n");
    return fclose(f) == 0 ? OK : OUT_OF_MEMORY;
}

static int fake_cuLaunchKernelEx(const void *config, void *function, void **params, void **extra)
{
    (void)extra;
    ANSWER;
    launched_smem = (int)((const struct launch_config *)config)->smem_bytes;
    return log_launch(config, function, params[0]);
}
/* The rules of the driver's manual for swizzled boxes of 16-bit elements. */
static int fake_cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *data, const uint64_t *dim,
                                       const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                                       int interleave, int swizzle, int l2, int fill)
{
    bool legal = (uintptr_t)map % 64 == 0 && (uintptr_t)data % 16 == 0 && data && rank >= 4 && rank <= 5 &&
                 interleave == 0 && fill == 0 && (type == 6 || type == 9) && l2 >= 0 && l2 <= 3 &&
                 swizzle >= 1 && swizzle <= 3;
    ANSWER;
    for (unsigned i = 0; legal && i < rank; i++) {
        legal = dim[i] >= 1 && dim[i] <= UINT64_C(1) << 32 && box[i] >= 1 && box[i] <= 256 && step[i] == 1;
        if (i > 0)
            legal =
                legal && stride[i - 1] % 16 == 0 && stride[i - 1] > 0 && stride[i - 1] < UINT64_C(1) << 40;
    }
    legal = legal && box[0] * 2 == 16u << swizzle;
    memset(map, legal ? 0x5a : 0, 128);
    return legal ? OK : 1;
}
static int fake_cuMemAlloc(uint64_t *pointer, size_t bytes)
{
    ANSWER;
    *pointer = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    memory++;
    return *pointer ? OK : OUT_OF_MEMORY;
}
static int fake_cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    ANSWER;
    memset((void *)(uintptr_t)to, value, bytes);
    return OK;
}
static int fake_cuMemFree(uint64_t pointer)
{
    free((void *)(uintptr_t)pointer);
    memory--;
    return OK;
}
static int fake_cuMemcpyHtoD(uint64_t to, const void *from, size_t bytes)
{
    ANSWER;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}
static int fake_cuMemcpyDtoH(void *to, uint64_t from, size_t bytes)
{
    ANSWER;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}
static int fake_cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    ANSWER;
    events++;
    *event = &current;
    return OK;
}
static int fake_cuEventDestroy(void *event)
{
    (void)event;
    events--;
    return OK;
}
static int fake_cuEventRecord(void *event, void *stream)
{
    (void)event;
    (void)stream;
    ANSWER;
    return OK;
}
static int fake_cuEventSynchronize(void *event)
{
    (void)event;
    ANSWER;
    return OK;
}
static int fake_cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    (void)from;
    (void)to;
    ANSWER;
    *milliseconds = launched_smem == number_of("FAKE_CUDA_FAST", -1) ? 1.0f : 2.0f;
    return OK;
}
static int fake_cuCtxSynchronize(void)
{
    ANSWER;
    return OK;
}

#define ROW(name)                                                                                            \
    {                                                                                                        \
#name, (void (*)(void))fake_##name                                                                   \
    }
static const struct entry {
    const char *name;
    void (*function)(void);
} ENTRIES[] = {
    ROW(cuInit),
    ROW(cuDriverGetVersion),
    ROW(cuGetErrorName),
    ROW(cuGetErrorString),
    ROW(cuDeviceGetCount),
    ROW(cuDeviceGet),
    ROW(cuDeviceGetName),
    ROW(cuDeviceGetAttribute),
    ROW(cuDevicePrimaryCtxRetain),
    ROW(cuDevicePrimaryCtxRelease),
    ROW(cuCtxGetCurrent),
    ROW(cuCtxPushCurrent),
    ROW(cuCtxPopCurrent),
    ROW(cuCtxGetDevice),
    ROW(cuCtxGetId),
    ROW(cuThreadExchangeStreamCaptureMode),
    ROW(cuModuleLoadDataEx),
    ROW(cuModuleUnload),
    ROW(cuModuleGetFunction),
    ROW(cuFuncSetAttribute),
    ROW(cuFuncGetAttribute),
    ROW(cuLaunchKernelEx),
    ROW(cuTensorMapEncodeTiled),
    ROW(cuMemsetD8Async),
    ROW(cuMemAlloc),
    ROW(cuMemFree),
    ROW(cuMemcpyHtoD),
    ROW(cuMemcpyDtoH),
    ROW(cuEventCreate),
    ROW(cuEventDestroy),
    ROW(cuEventRecord),
    ROW(cuEventSynchronize),
    ROW(cuEventElapsedTime),
    ROW(cuCtxSynchronize),
};

int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status);

int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
    (void)version;
    (void)flags;
    *address = NULL;
    *status = 1;
    for (size_t i = 0; i < sizeof ENTRIES / sizeof ENTRIES[0]; i++) {
        if (strcmp(ENTRIES[i].name, name) != 0)
            continue;
        memcpy(address, &ENTRIES[i].function, sizeof *address);
        *status = 0;
        return OK;
    }
    return NOT_FOUND;
}
