/*
 * memory.c: device memory and timing, for the tool `lathe`; the library itself never allocates on a
 * device. In: an opened driver whose context is current. Out: device pointers and events that the caller
 * gives back. Every call is synchronous. The driver's entries are optional there and looked at here.
 */
#include "runtime/driver/memory.h"

/* Call `name` where the driver has it. */
#define CALL(driver, name, args, err)                                                                        \
    ((driver)->name ? lathe__driver_check((driver), (driver)->name args, #name, (err))                       \
                    : lathe__fail((err), LATHE_CUDA, "the CUDA driver has no %s", #name))

lathe_status lathe__device_alloc(const struct driver *driver, void **out, size_t bytes, lathe_error *err)
{
    uint64_t pointer = 0;
    *out = NULL;
    if (bytes == 0)
        return LATHE_OK;
    const lathe_status status = CALL(driver, cuMemAlloc, (&pointer, bytes), err);
    if (status == LATHE_OK)
        *out = (void *)(uintptr_t)
            pointer; // NOLINT(performance-no-int-to-ptr): device addresses are integers there
    return status;
}

void lathe__device_free(const struct driver *driver, void *data)
{
    if (data && driver->cuMemFree)
        driver->cuMemFree((uint64_t)(uintptr_t)data);
}

lathe_status lathe__device_upload(const struct driver *driver, void *to, const void *from, size_t bytes,
                                  lathe_error *err)
{
    return bytes ? CALL(driver, cuMemcpyHtoD, ((uint64_t)(uintptr_t)to, from, bytes), err) : LATHE_OK;
}

lathe_status lathe__device_download(const struct driver *driver, void *to, const void *from, size_t bytes,
                                    lathe_error *err)
{
    return bytes ? CALL(driver, cuMemcpyDtoH, (to, (uint64_t)(uintptr_t)from, bytes), err) : LATHE_OK;
}

lathe_status lathe__device_wait(const struct driver *driver, lathe_error *err)
{
    return CALL(driver, cuCtxSynchronize, (), err);
}

lathe_status lathe__stopwatch_create(const struct driver *driver, struct stopwatch *out, lathe_error *err)
{
    *out = (struct stopwatch){0};
    TRY(CALL(driver, cuEventCreate, (&out->from, 0), err));
    const lathe_status status = CALL(driver, cuEventCreate, (&out->to, 0), err);
    if (status != LATHE_OK)
        lathe__stopwatch_destroy(driver, out);
    return status;
}

void lathe__stopwatch_destroy(const struct driver *driver, struct stopwatch *s)
{
    if (s->from)
        driver->cuEventDestroy(s->from);
    if (s->to)
        driver->cuEventDestroy(s->to);
    *s = (struct stopwatch){0};
}

lathe_status lathe__stopwatch_start(const struct driver *driver, const struct stopwatch *s,
                                    lathe_stream stream, lathe_error *err)
{
    return CALL(driver, cuEventRecord, (s->from, stream), err);
}

lathe_status lathe__stopwatch_stop(const struct driver *driver, const struct stopwatch *s,
                                   lathe_stream stream, double *seconds, lathe_error *err)
{
    float milliseconds = 0;
    *seconds = 0;
    TRY(CALL(driver, cuEventRecord, (s->to, stream), err));
    TRY(CALL(driver, cuEventSynchronize, (s->to), err));
    TRY(CALL(driver, cuEventElapsedTime, (&milliseconds, s->from, s->to), err));
    *seconds = (double)milliseconds * 1e-3;
    return LATHE_OK;
}
