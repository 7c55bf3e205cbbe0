/*
 * device.h: device memory, streams, events and graphs for the GPU tests, through libcuda opened at run time.
 *
 * In dry mode the "device" is host memory, so that every test path runs on a machine without a GPU.
 * A function that returns false or NULL has left its reason in device_error (per thread).
 */
#ifndef LATHE_TESTS_GPU_DEVICE_H
#define LATHE_TESTS_GPU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "lathe.h"

struct device;
struct graph; /* a captured, instantiated graph */
struct event; /* a place in a stream */

/* NULL: no usable GPU; why holds one sentence. Closed with device_close. */
struct device *device_open(bool dry, char *why, size_t why_size);
void device_close(struct device *device);
bool device_is_dry(const struct device *device);
int device_ordinal(const struct device *device); /* for lathe_options.device */
bool device_bind(const struct device *device);   /* make the context current in this thread */
const char *device_error(void);                  /* of the last failure in this thread */

void *device_alloc(const struct device *device, size_t bytes); /* at least 1 byte; device_free */
void device_free(const struct device *device, void *memory);
bool device_upload(const struct device *device, void *to, const void *from, size_t bytes);
bool device_download(const struct device *device, void *to, const void *from, size_t bytes);
bool device_fill(const struct device *device, void *to, unsigned char byte, size_t bytes);

lathe_stream device_stream_new(const struct device *device); /* NULL in dry mode too: not an error there */
void device_stream_free(const struct device *device, lathe_stream stream);
bool device_sync(const struct device *device, lathe_stream stream);

/* In dry mode there is one order of things, and nothing is waited for. */
struct event *device_event_new(const struct device *device);
void device_event_free(const struct device *device, struct event *event);
bool device_event_record(const struct device *device, const struct event *event, lathe_stream on);
bool device_event_wait(const struct device *device, const struct event *event, lathe_stream later);
/* Enqueued; in dry mode done. */
bool device_copy(const struct device *device, void *to, const void *from, size_t bytes, lathe_stream on);

bool device_capture_begin(const struct device *device, lathe_stream stream);
struct graph *device_capture_end(const struct device *device, lathe_stream stream);
bool device_graph_launch(const struct device *device, const struct graph *graph, lathe_stream stream);
void device_graph_free(const struct device *device, struct graph *graph);

#endif
