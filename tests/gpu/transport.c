/*
 * transport.c: a transport between ranks that are threads and share one device. In: what each rank calls.
 * Out: copies and sums on its stream. Every call tells all ranks where its bytes are, by lathe_threads, which
 * is also where they wait for each other and where a rank that fails leaves its sentence. Nobody waits for
 * the device: a receiver's stream waits for the sender's bytes, the sender's for those who read them, and no
 * stream for more, as with NCCL.
 */
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum collective { ALL_GATHER, ALL_TO_ALL, EXCHANGE, REDUCE_SCATTER };
static const char *const WHAT[] = {"all_gather", "all_to_all", "exchange", "reduce_scatter"};

struct send_places { /* what one rank has for the others */
    enum collective what;
    const char *from;
    size_t place[MOST_RANKS], bytes[MOST_RANKS]; /* for each rank */
};

enum { MOST_SUMS = 256 }; /* of a rank */

struct rank_end { /* of one rank */
    struct thread_transport *transport;
    int rank;
    lathe_transport meeting;    /* by lathe_threads, over host memory */
    struct event *ready, *done; /* its bytes are there; it has read the others' */
    struct send_places sends, seen[MOST_RANKS];
    int received; /* messages of which one is dropped */
    int sums;
    lathe_kernel *sum[MOST_SUMS]; /* until all is done */
};

struct thread_transport {
    const struct device *device;
    lathe_ctx *ctx;
    int ranks;
    enum message_fault fault;
    lathe_threads *threads;
    lathe_spec *add;
    struct rank_end end[MOST_RANKS];
};

static const char ADD[] = "return elementwise { over = { 'n' },\n"
                          "  operands = { x = tensor('f32'), z = tensor('f32') },\n"
                          "  results = { y = tensor('f32', { alias = 'z' }) },\n"
                          "  forward = function(v) return v.x + v.z end }\n";

/* ---- what goes wrong --------------------------------------------------------------------------------------
 */

static lathe_status device_failed(lathe_error *err)
{
    (void)snprintf(err->text, sizeof err->text, "%s", device_error());
    return err->status = LATHE_CUDA;
}

/* Whose bytes a rank reads where it expects those of `source`. */
static int read_from(const struct rank_end *e, int source)
{
    const bool swapped = e->transport->fault == MESSAGES_SWAPPED && e->rank > 1 && source < 2;
    return swapped ? 1 - source : source;
}

static bool is_lost(struct rank_end *e, int source, size_t bytes)
{
    if (e->transport->fault != MESSAGE_DROPPED || e->rank + 1 != e->transport->ranks ||
        source + 1 != e->rank || bytes == 0) {
        return false;
    }
    return e->received++ == 0;
}

/* ---- meeting ----------------------------------------------------------------------------------------------
 */

static lathe_status disagree(const struct rank_end *e, int source, size_t expected, lathe_error *err)
{
    const struct send_places *p = &e->seen[source];
    (void)snprintf(err->text, sizeof err->text,
                   "rank %d calls %s with %zu bytes for rank %d, which calls %s for %zu", source,
                   WHAT[p->what], p->bytes[e->rank], e->rank, WHAT[e->sends.what], expected);
    return err->status = LATHE_ARG;
}

/* All have said what they have, and this rank's stream waits for what it reads; expected: bytes of each. */
static lathe_status begin_collective(struct rank_end *e, enum collective what, const void *from,
                                     const size_t *expected, lathe_stream stream, lathe_error *err)
{
    const struct device *device = e->transport->device;
    size_t place[MOST_RANKS];
    size_t bytes[MOST_RANKS];
    e->sends.what = what;
    e->sends.from = from;
    for (int r = 0; r < e->transport->ranks; r++) {
        place[r] = (size_t)r * sizeof e->sends;
        bytes[r] = sizeof e->sends;
    }
    if (!device_event_record(device, e->ready, stream)) {
        return device_failed(err);
    }
    const lathe_status status =
        e->meeting.all_gather(e->meeting.user, e->seen, place, bytes, &e->sends, NULL, err);
    for (int r = 0; r < e->transport->ranks && status == LATHE_OK; r++) {
        if (e->seen[r].what != what || e->seen[r].bytes[e->rank] != expected[r]) {
            return disagree(e, r, expected[r], err);
        }
        if (r != e->rank && expected[r] > 0 &&
            !device_event_wait(device, e->transport->end[r].ready, stream)) {
            return device_failed(err);
        }
    }
    return status;
}

/* All have enqueued what they read, and this rank's stream waits for those who read its bytes. */
static lathe_status end_collective(struct rank_end *e, lathe_stream stream, lathe_error *err)
{
    const struct device *device = e->transport->device;
    static const size_t none[MOST_RANKS];
    char nothing[1];
    if (!device_event_record(device, e->done, stream)) {
        return device_failed(err);
    }
    const lathe_status status =
        e->meeting.all_gather(e->meeting.user, nothing, none, none, nothing, NULL, err);
    for (int r = 0; r < e->transport->ranks && status == LATHE_OK; r++) {
        if (r != e->rank && e->sends.bytes[r] > 0 &&
            !device_event_wait(device, e->transport->end[r].done, stream)) {
            return device_failed(err);
        }
    }
    return status;
}

static lathe_status receive(struct rank_end *e, char *to, int source, size_t bytes, lathe_stream stream,
                            lathe_error *err)
{
    const struct send_places *p = &e->seen[read_from(e, source)];
    const char *from = p->from + p->place[e->rank];
    if (is_lost(e, source, bytes) || bytes == 0 || to == from) {
        return LATHE_OK;
    }
    return device_copy(e->transport->device, to, from, bytes, stream) ? LATHE_OK : device_failed(err);
}

/* ---- the functions of a transport -------------------------------------------------------------------------
 */

static lathe_status all_gather(void *user, void *to, const size_t *place, const size_t *bytes,
                               const void *from, lathe_stream stream, lathe_error *err)
{
    struct rank_end *e = user;
    for (int r = 0; r < e->transport->ranks; r++) {
        e->sends.place[r] = 0;
        e->sends.bytes[r] = bytes[e->rank];
    }
    lathe_status status = begin_collective(e, ALL_GATHER, from, bytes, stream, err);
    for (int r = 0; r < e->transport->ranks && status == LATHE_OK; r++) {
        status = receive(e, (char *)to + place[r], r, bytes[r], stream, err);
    }
    return status == LATHE_OK ? end_collective(e, stream, err) : status;
}

static lathe_status all_to_all(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                               const void *from, const size_t *from_place, const size_t *from_bytes,
                               lathe_stream stream, lathe_error *err)
{
    struct rank_end *e = user;
    const size_t n = (size_t)e->transport->ranks;
    memcpy(e->sends.place, from_place, n * sizeof *from_place);
    memcpy(e->sends.bytes, from_bytes, n * sizeof *from_bytes);
    lathe_status status = begin_collective(e, ALL_TO_ALL, from, to_bytes, stream, err);
    for (int r = 0; r < e->transport->ranks && status == LATHE_OK; r++) {
        status = receive(e, (char *)to + to_place[r], r, to_bytes[r], stream, err);
    }
    return status == LATHE_OK ? end_collective(e, stream, err) : status;
}

static lathe_status exchange(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                             size_t from_bytes, int32_t to_rank, lathe_stream stream, lathe_error *err)
{
    struct rank_end *e = user;
    size_t expected[MOST_RANKS] = {0};
    memset(e->sends.place, 0, sizeof e->sends.place);
    memset(e->sends.bytes, 0, sizeof e->sends.bytes);
    e->sends.bytes[to_rank] = from_bytes;
    expected[from_rank] = to_bytes;
    lathe_status status = begin_collective(e, EXCHANGE, from, expected, stream, err);
    if (status == LATHE_OK) {
        status = receive(e, to, from_rank, to_bytes, stream, err);
    }
    return status == LATHE_OK ? end_collective(e, stream, err) : status;
}

static lathe_status add(struct rank_end *e, char *to, const char *from, int64_t n, lathe_stream stream,
                        lathe_error *err)
{
    const lathe_arg arg[] = {{"x", (void *)(uintptr_t)from, LATHE_F32, 1, &n, NULL},
                             {"z", to, LATHE_F32, 1, &n, NULL}};
    if (e->sums == MOST_SUMS) {
        (void)snprintf(err->text, sizeof err->text, "more than %d sums", (int)MOST_SUMS);
        return err->status = LATHE_UNSUPPORTED;
    }
    lathe_kernel **kernel = &e->sum[e->sums];
    const lathe_status status =
        lathe_kernel_get(kernel, e->transport->ctx, e->transport->add, LATHE_FORWARD, arg, 2, err);
    e->sums += status == LATHE_OK;
    return status == LATHE_OK ? lathe_launch(*kernel, arg, 2, NULL, stream, err) : status;
}

/* In the order of the ranks. */
static lathe_status add_up(struct rank_end *e, char *to, size_t bytes, lathe_stream stream, lathe_error *err)
{
    lathe_status status = receive(e, to, 0, bytes, stream, err);
    for (int r = 1; r < e->transport->ranks && status == LATHE_OK && bytes > 0; r++) {
        const struct send_places *p = &e->seen[r];
        if (!is_lost(e, r, bytes)) {
            status = add(e, to, p->from + p->place[e->rank], (int64_t)(bytes / sizeof(float)), stream, err);
        }
    }
    return status;
}

static lathe_status reduce_scatter(void *user, void *to, const void *from, const size_t *place,
                                   const size_t *count, lathe_dtype dtype, lathe_stream stream,
                                   lathe_error *err)
{
    struct rank_end *e = user;
    size_t expected[MOST_RANKS];
    if (dtype != LATHE_F32) {
        (void)snprintf(err->text, sizeof err->text, "sums are of f32 here");
        return err->status = LATHE_UNSUPPORTED;
    }
    for (int r = 0; r < e->transport->ranks; r++) {
        e->sends.place[r] = place[r] * sizeof(float);
        e->sends.bytes[r] = count[r] * sizeof(float);
        expected[r] = count[e->rank] * sizeof(float);
    }
    lathe_status status = begin_collective(e, REDUCE_SCATTER, from, expected, stream, err);
    if (status == LATHE_OK) {
        status = add_up(e, to, expected[0], stream, err);
    }
    return status == LATHE_OK ? end_collective(e, stream, err) : status;
}

static void fail(void *user, lathe_status status, const char *why)
{
    struct rank_end *e = user;
    e->meeting.fail(e->meeting.user, status, why);
}

/* ---- all ends ---------------------------------------------------------------------------------------------
 */

static bool rank_end_open(struct thread_transport *transport, int rank, lathe_error *err)
{
    struct rank_end *e = &transport->end[rank];
    e->transport = transport;
    e->rank = rank;
    e->ready = device_event_new(transport->device);
    e->done = device_event_new(transport->device);
    if (!e->ready || !e->done) {
        return device_failed(err) == LATHE_OK;
    }
    return lathe_threads_rank(transport->threads, rank, &e->meeting, err) == LATHE_OK;
}

struct thread_transport *thread_transport_open(const struct device *device, lathe_ctx *ctx, int ranks,
                                               enum message_fault fault, lathe_error *err)
{
    struct thread_transport *transport = calloc(1, sizeof *transport);
    if (!transport) {
        (void)snprintf(err->text, sizeof err->text, "out of host memory");
        return NULL;
    }
    transport->device = device;
    transport->ctx = ctx;
    transport->ranks = ranks;
    transport->fault = fault;
    bool good = lathe_threads_create(&transport->threads, ranks, err) == LATHE_OK &&
                lathe_spec_parse(&transport->add, "add", ADD, sizeof ADD - 1, err) == LATHE_OK;
    for (int r = 0; r < ranks && good; r++) {
        good = rank_end_open(transport, r, err);
    }
    if (!good) {
        thread_transport_close(transport);
        transport = NULL;
    }
    return transport;
}

void thread_transport_close(struct thread_transport *transport)
{
    if (!transport) {
        return;
    }
    for (int r = 0; r < transport->ranks; r++) {
        struct rank_end *e = &transport->end[r];
        for (int i = 0; i < e->sums; i++) {
            lathe_kernel_release(e->sum[i]);
        }
        device_event_free(transport->device, e->ready);
        device_event_free(transport->device, e->done);
    }
    lathe_spec_destroy(transport->add);
    lathe_threads_destroy(transport->threads);
    free(transport);
}

lathe_transport thread_transport_of(struct thread_transport *transport, int rank)
{
    return (lathe_transport){.user = &transport->end[rank],
                             .rank = rank,
                             .ranks = transport->ranks,
                             .all_gather = all_gather,
                             .all_to_all = all_to_all,
                             .exchange = exchange,
                             .reduce_scatter = reduce_scatter,
                             .fail = fail};
}
