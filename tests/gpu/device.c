/*
 * device.c: device memory, streams, events and graphs for the GPU tests.
 *
 * In: sizes and bytes. Out: device pointers, owned by the caller until device_free. libcuda is opened
 * at run time and called through a table, so the binary starts on any machine; in dry mode the table
 * stays empty and memory is malloc's.
 */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(name, symbol in libcuda, parameters): CUresult is int, CUdevice int, CUdeviceptr a 64-bit number. */
#define CUDA_MAP(X)                                                                                          \
    X(init, "cuInit", (unsigned))                                                                            \
    X(device_count, "cuDeviceGetCount", (int *))                                                             \
    X(device_get, "cuDeviceGet", (int *, int))                                                               \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                    \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                        \
    X(set_current, "cuCtxSetCurrent", (void *))                                                              \
    X(error_name, "cuGetErrorName", (int, const char **))                                                    \
    X(mem_alloc, "cuMemAlloc_v2", (unsigned long long *, size_t))                                            \
    X(mem_free, "cuMemFree_v2", (unsigned long long))                                                        \
    X(to_device, "cuMemcpyHtoD_v2", (unsigned long long, const void *, size_t))                              \
    X(to_host, "cuMemcpyDtoH_v2", (void *, unsigned long long, size_t))                                      \
    X(fill, "cuMemsetD8_v2", (unsigned long long, unsigned char, size_t))                                    \
    X(context_sync, "cuCtxSynchronize", (void))                                                              \
    X(stream_create, "cuStreamCreate", (lathe_stream *, unsigned))                                           \
    X(stream_destroy, "cuStreamDestroy_v2", (lathe_stream))                                                  \
    X(stream_sync, "cuStreamSynchronize", (lathe_stream))                                                    \
    X(stream_wait, "cuStreamWaitEvent", (lathe_stream, void *, unsigned))                                    \
    X(event_create, "cuEventCreate", (void **, unsigned))                                                    \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                          \
    X(event_record, "cuEventRecord", (void *, lathe_stream))                                                 \
    X(copy, "cuMemcpyDtoDAsync_v2", (unsigned long long, unsigned long long, size_t, lathe_stream))          \
    X(capture_begin, "cuStreamBeginCapture_v2", (lathe_stream, int))                                         \
    X(capture_end, "cuStreamEndCapture", (lathe_stream, void **))                                            \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))               \
    X(graph_launch, "cuGraphLaunch", (void *, lathe_stream))                                                 \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *))                                                    \
    X(graph_destroy, "cuGraphDestroy", (void *))

struct cuda_table {
#define CUDA_MEMBER(name, symbol, parameters) int(*name) parameters;
    CUDA_MAP(CUDA_MEMBER)
#undef CUDA_MEMBER
};

struct device {
    bool dry;
    void *library;
    void *context;
    int ordinal;
    struct cuda_table cuda;
};

struct graph {
    void *exec;
};

struct event {
    void *handle; /* NULL in dry mode */
};

enum {
    STREAM_NON_BLOCKING = 1,
    EVENT_WITHOUT_TIME = 2,
    CAPTURE_THREAD_LOCAL = 1,
    ALIGNMENT = 256 /* as cuMemAlloc */
};

static _Thread_local char last_error[256];

const char *device_error(void)
{
    return last_error;
}

static bool succeed(const struct device *device, int code, const char *what)
{
    if (code == 0) {
        return true;
    }
    const char *name = NULL;
    (void)device->cuda.error_name(code, &name);
    (void)snprintf(last_error, sizeof last_error, "%s failed with %s (%d)", what,
                   name ? name : "an unknown error", code);
    return false;
}

/* The first symbol that libcuda lacks, or NULL when the table is full. */
static const char *load_table(struct device *device)
{
#define CUDA_LOAD(name, symbol, parameters)                                                                  \
    *(void **)&device->cuda.name = dlsym(device->library, symbol);                                           \
    if (!device->cuda.name) {                                                                                \
        return symbol;                                                                                       \
    }
    CUDA_MAP(CUDA_LOAD)
#undef CUDA_LOAD
    return NULL;
}

static bool open_cuda(struct device *device, char *why, size_t why_size)
{
    device->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!device->library) {
        (void)snprintf(why, why_size, "no GPU here: libcuda.so.1 is not installed");
        return false;
    }
    const char *missing = load_table(device);
    if (missing) {
        (void)snprintf(why, why_size, "the CUDA driver is too old: libcuda has no %s", missing);
        return false;
    }
    int count = 0;
    int ordinal = 0;
    if (!succeed(device, device->cuda.init(0), "cuInit") ||
        !succeed(device, device->cuda.device_count(&count), "cuDeviceGetCount") || count < 1) {
        (void)snprintf(why, why_size, "no GPU here: %s",
                       count < 1 && !*last_error ? "the driver lists none" : last_error);
        return false;
    }
    if (!succeed(device, device->cuda.device_get(&ordinal, 0), "cuDeviceGet") ||
        !succeed(device, device->cuda.retain(&device->context, ordinal), "cuDevicePrimaryCtxRetain")) {
        (void)snprintf(why, why_size, "the GPU cannot be used: %s", last_error);
        return false;
    }
    return device_bind(device);
}

struct device *device_open(bool dry, char *why, size_t why_size)
{
    struct device *device = calloc(1, sizeof *device);
    if (!device) {
        (void)snprintf(why, why_size, "out of host memory");
        return NULL;
    }
    device->dry = dry;
    if (!dry && !open_cuda(device, why, why_size)) {
        device_close(device);
        return NULL;
    }
    return device;
}

void device_close(struct device *device)
{
    if (!device) {
        return;
    }
    if (device->context) {
        (void)device->cuda.release(device->ordinal);
    }
    if (device->library) {
        (void)dlclose(device->library);
    }
    free(device);
}

bool device_is_dry(const struct device *device)
{
    return device->dry;
}

int device_ordinal(const struct device *device)
{
    return device->dry ? LATHE_DEVICE_HOST : device->ordinal;
}

bool device_bind(const struct device *device)
{
    return device->dry || succeed(device, device->cuda.set_current(device->context), "cuCtxSetCurrent");
}

void *device_alloc(const struct device *device, size_t bytes)
{
    const size_t size = bytes ? bytes : 1;
    if (device->dry) {
        return aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    unsigned long long address = 0;
    if (!succeed(device, device->cuda.mem_alloc(&address, size), "cuMemAlloc")) {
        return NULL;
    }
    return (void *)(uintptr_t)address;
}

void device_free(const struct device *device, void *memory)
{
    if (device->dry) {
        free(memory);
    } else if (memory) {
        (void)device->cuda.mem_free((unsigned long long)(uintptr_t)memory);
    }
}

bool device_upload(const struct device *device, void *to, const void *from, size_t bytes)
{
    if (bytes == 0) {
        return true;
    }
    if (device->dry) {
        memcpy(to, from, bytes);
        return true;
    }
    return succeed(device, device->cuda.to_device((unsigned long long)(uintptr_t)to, from, bytes),
                   "cuMemcpyHtoD") &&
           device_sync(device, NULL); /* small copies return before they are done */
}

bool device_download(const struct device *device, void *to, const void *from, size_t bytes)
{
    if (bytes == 0) {
        return true;
    }
    if (device->dry) {
        memcpy(to, from, bytes);
        return true;
    }
    return succeed(device, device->cuda.to_host(to, (unsigned long long)(uintptr_t)from, bytes),
                   "cuMemcpyDtoH");
}

/* Returns after the fill: it runs on the default stream, which the test's streams do not wait for. */
bool device_fill(const struct device *device, void *to, unsigned char byte, size_t bytes)
{
    if (bytes == 0) {
        return true;
    }
    if (device->dry) {
        memset(to, byte, bytes);
        return true;
    }
    return succeed(device, device->cuda.fill((unsigned long long)(uintptr_t)to, byte, bytes), "cuMemsetD8") &&
           device_sync(device, NULL);
}

lathe_stream device_stream_new(const struct device *device)
{
    lathe_stream stream = NULL;
    if (!device->dry) {
        (void)succeed(device, device->cuda.stream_create(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    }
    return stream;
}

void device_stream_free(const struct device *device, lathe_stream stream)
{
    if (stream) {
        (void)device->cuda.stream_destroy(stream);
    }
}

bool device_sync(const struct device *device, lathe_stream stream)
{
    return device->dry || succeed(device, device->cuda.stream_sync(stream), "cuStreamSynchronize");
}

struct event *device_event_new(const struct device *device)
{
    struct event *event = calloc(1, sizeof *event);
    if (event && !device->dry &&
        !succeed(device, device->cuda.event_create(&event->handle, EVENT_WITHOUT_TIME), "cuEventCreate")) {
        free(event);
        event = NULL;
    }
    return event;
}

void device_event_free(const struct device *device, struct event *event)
{
    if (event && event->handle) {
        (void)device->cuda.event_destroy(event->handle);
    }
    free(event);
}

bool device_event_record(const struct device *device, const struct event *event, lathe_stream on)
{
    return device->dry || succeed(device, device->cuda.event_record(event->handle, on), "cuEventRecord");
}

bool device_event_wait(const struct device *device, const struct event *event, lathe_stream later)
{
    return device->dry ||
           succeed(device, device->cuda.stream_wait(later, event->handle, 0), "cuStreamWaitEvent");
}

bool device_copy(const struct device *device, void *to, const void *from, size_t bytes, lathe_stream on)
{
    if (bytes == 0) {
        return true;
    }
    if (device->dry) {
        memcpy(to, from, bytes);
        return true;
    }
    return succeed(
        device,
        device->cuda.copy((unsigned long long)(uintptr_t)to, (unsigned long long)(uintptr_t)from, bytes, on),
        "cuMemcpyDtoDAsync");
}

bool device_capture_begin(const struct device *device, lathe_stream stream)
{
    return succeed(device, device->cuda.capture_begin(stream, CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
}

struct graph *device_capture_end(const struct device *device, lathe_stream stream)
{
    void *captured = NULL;
    if (!succeed(device, device->cuda.capture_end(stream, &captured), "cuStreamEndCapture")) {
        return NULL;
    }
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph &&
        !succeed(device, device->cuda.graph_instantiate(&graph->exec, captured, 0), "cuGraphInstantiate")) {
        free(graph);
        graph = NULL;
    }
    (void)device->cuda.graph_destroy(captured);
    return graph;
}

bool device_graph_launch(const struct device *device, const struct graph *graph, lathe_stream stream)
{
    return succeed(device, device->cuda.graph_launch(graph->exec, stream), "cuGraphLaunch");
}

void device_graph_free(const struct device *device, struct graph *graph)
{
    if (graph) {
        (void)device->cuda.graph_exec_destroy(graph->exec);
        free(graph);
    }
}
