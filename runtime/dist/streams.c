/*
 * streams.c: streams of the caller's beside that of the launch: one for what is sent and received
 * (options.comm_stream), one for every other call (options.second_compute_stream). Out: events by which
 * streams wait for each other. On the host device there is one order of things.
 */
#include "runtime/dist/dist.h"
#include "runtime/driver/driver.h"
#include "runtime/jit/jit.h"

enum { OF_FIRST, OF_COMM, OF_SECOND }; /* events, by the stream that records them */
enum { WITHOUT_TIME = 2 };             /* CU_EVENT_DISABLE_TIMING */

bool lathe__dist_has_second(const struct lathe_dist *d, const struct scheme *scheme)
{
    return d->o.second_compute_stream && scheme->overlaps_calls && d->pass == LATHE_FORWARD;
}

static lathe_status make_events(struct lathe_dist *d, const struct driver *driver, lathe_error *err)
{
    for (int i = 0; i < EVENTS; i++)
        TRY(lathe__driver_check(driver, driver->cuEventCreate(&d->event[i], WITHOUT_TIME), "cuEventCreate",
                                err));
    return LATHE_OK;
}

lathe_status lathe__dist_streams_open(struct lathe_dist *d, lathe_error *err)
{
    const struct driver *driver = d->ctx->driver;
    bool pushed = false;
    if (!driver ||
        ((!d->o.comm_stream || !d->scheme->overlaps_comm) && !lathe__dist_has_second(d, d->scheme)))
        return LATHE_OK;
    if (!driver->cuEventCreate || !driver->cuEventRecord || !driver->cuEventDestroy ||
        !driver->cuStreamWaitEvent)
        return lathe__fail(err, LATHE_CUDA,
                           "dist: libcuda has no events, by which streams wait for each other");
    TRY(lathe__context_enter(driver, d->ctx->context, &pushed, err));
    const lathe_status status = make_events(d, driver, err);
    lathe__context_leave(driver, pushed);
    return status;
}

void lathe__dist_streams_close(struct lathe_dist *d)
{
    bool pushed = false;
    if (!d->event[0] || lathe__context_enter(d->ctx->driver, d->ctx->context, &pushed, NULL) != LATHE_OK)
        return;
    for (int i = 0; i < EVENTS && d->event[i]; i++)
        (void)d->ctx->driver->cuEventDestroy(d->event[i]);
    lathe__context_leave(d->ctx->driver, pushed);
}

/* ---- which there are --------------------------------------------------------------------------------------
 */

static bool are_apart(const struct walk *w)
{
    return !w->dry && (w->d->event[EVENTS - 1] || w->d->seam);
}

static bool has_comm_stream(const struct walk *w)
{
    return are_apart(w) && w->d->o.comm_stream && w->d->scheme->overlaps_comm;
}

static bool has_second(const struct walk *w)
{
    return are_apart(w) && lathe__dist_has_second(w->d, w->d->scheme);
}

lathe_stream lathe__dist_comm_stream(const struct walk *w)
{
    return has_comm_stream(w) ? w->d->o.comm_stream : w->stream;
}

/* Whoever takes the second stream gives it back a few lines later. */
void lathe__dist_take_second(struct walk *w)
{
    if (!has_second(w))
        return;
    w->first = w->stream;
    w->stream = w->d->o.second_compute_stream;
    w->on_second = true;
}

void lathe__dist_take_first(struct walk *w)
{
    if (!w->on_second)
        return;
    w->stream = w->first;
    w->on_second = false;
}

/* ---- what waits for what ----------------------------------------------------------------------------------
 */

/* The device is the current one during a launch. */
static lathe_status record(struct walk *w, int which, lathe_stream earlier)
{
    const struct driver *driver = w->d->ctx->driver;
    if (w->d->seam)
        return w->d->seam->record(w->d->seam->user, which, earlier, w->err);
    return lathe__driver_check(driver, driver->cuEventRecord(w->d->event[which], earlier), "cuEventRecord",
                               w->err);
}

static lathe_status wait_for(struct walk *w, int which, lathe_stream later)
{
    const struct driver *driver = w->d->ctx->driver;
    if (w->d->seam)
        return w->d->seam->wait(w->d->seam->user, which, later, w->err);
    return lathe__driver_check(driver, driver->cuStreamWaitEvent(later, w->d->event[which], 0),
                               "cuStreamWaitEvent", w->err);
}

static lathe_status after(struct walk *w, int which, lathe_stream earlier, lathe_stream later)
{
    TRY(record(w, which, earlier));
    return wait_for(w, which, later);
}

lathe_status lathe__dist_second_waits(struct walk *w)
{
    return has_second(w) ? after(w, OF_FIRST, w->stream, w->d->o.second_compute_stream) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_second(struct walk *w)
{
    return has_second(w) ? after(w, OF_SECOND, w->d->o.second_compute_stream, w->stream) : LATHE_OK;
}

/* Where there is no stream for it, what is sent is sent on the first one. */
lathe_status lathe__dist_comm_waits(struct walk *w)
{
    if (has_comm_stream(w))
        TRY(after(w, OF_FIRST, w->stream, w->d->o.comm_stream));
    if (has_second(w))
        TRY(after(w, OF_SECOND, w->d->o.second_compute_stream, lathe__dist_comm_stream(w)));
    return LATHE_OK;
}

lathe_status lathe__dist_mark_comm(struct walk *w)
{
    return has_comm_stream(w) ? record(w, OF_COMM, w->d->o.comm_stream) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_mark(struct walk *w)
{
    if (!has_comm_stream(w))
        return lathe__dist_second_waits(w);
    TRY(wait_for(w, OF_COMM, w->stream));
    return has_second(w) ? wait_for(w, OF_COMM, w->d->o.second_compute_stream) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_comm(struct walk *w)
{
    TRY(lathe__dist_mark_comm(w));
    return lathe__dist_wait_for_mark(w);
}
