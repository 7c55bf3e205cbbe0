/*
 * memory.h: device memory and timing, for the tool.
 */
#ifndef LATHE_RT_MEMORY_H
#define LATHE_RT_MEMORY_H

#include "runtime/driver/driver.h"

/* The context must be current. Synchronous. bytes 0: *out is NULL. Errors CUDA. */
lathe_status lathe__device_alloc(const struct driver *driver, void **out, size_t bytes, lathe_error *err);
void lathe__device_free(const struct driver *driver, void *data);
lathe_status lathe__device_upload(const struct driver *driver, void *to, const void *from, size_t bytes,
                                  lathe_error *err);
lathe_status lathe__device_download(const struct driver *driver, void *to, const void *from, size_t bytes,
                                    lathe_error *err);
/* Wait for all work of the context: errors of earlier launches appear here. */
lathe_status lathe__device_wait(const struct driver *driver, lathe_error *err);

struct stopwatch { /* device time between two points of a stream */
    struct CUevent_st *from;
    struct CUevent_st *to;
};
lathe_status lathe__stopwatch_create(const struct driver *driver, struct stopwatch *out, lathe_error *err);
void lathe__stopwatch_destroy(const struct driver *driver, struct stopwatch *s);
lathe_status lathe__stopwatch_start(const struct driver *driver, const struct stopwatch *s,
                                    lathe_stream stream, lathe_error *err);
/* Waits for the work in between; *seconds is what it took. */
lathe_status lathe__stopwatch_stop(const struct driver *driver, const struct stopwatch *s,
                                   lathe_stream stream, double *seconds, lathe_error *err);

#endif
