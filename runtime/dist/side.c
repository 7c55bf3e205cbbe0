/*
 * side.c: a second stream, the caller's, on which keys travel while others are computed. In: options.side.
 * Out: two events by which the streams wait for each other. On the host device there is one order of things.
 */
#include "runtime/dist/dist.h"
#include "runtime/driver/driver.h"
#include "runtime/jit/jit.h"

enum { STREAM, SIDE };
enum { WITHOUT_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */

static lathe_status make_events(struct lathe_dist *d, const struct driver *driver, lathe_error *err)
{
    for (int i = 0; i < 2; i++)
        TRY(lathe__driver_check(driver, driver->cuEventCreate(&d->event[i], WITHOUT_TIME), "cuEventCreate",
                                err));
    return LATHE_OK;
}

lathe_status lathe__dist_side_open(struct lathe_dist *d, lathe_error *err)
{
    const struct driver *driver = d->ctx->driver;
    bool pushed = false;
    if (!driver || !d->o.side || !d->scheme->has_side)
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

void lathe__dist_side_close(struct lathe_dist *d)
{
    bool pushed = false;
    if (!d->event[0] || lathe__context_enter(d->ctx->driver, d->ctx->context, &pushed, NULL) != LATHE_OK)
        return;
    for (int i = 0; i < 2 && d->event[i]; i++)
        (void)d->ctx->driver->cuEventDestroy(d->event[i]);
    lathe__context_leave(d->ctx->driver, pushed);
}

lathe_stream lathe__dist_side(const struct walk *w)
{
    return w->d->event[SIDE] ? w->d->o.side : w->stream;
}

/* The device is the current one during a launch. */
static lathe_status record(struct walk *w, int which, lathe_stream earlier)
{
    const struct driver *driver = w->d->ctx->driver;
    if (!w->d->event[SIDE] || w->dry)
        return LATHE_OK;
    return lathe__driver_check(driver, driver->cuEventRecord(w->d->event[which], earlier), "cuEventRecord",
                               w->err);
}

static lathe_status wait_for(struct walk *w, int which, lathe_stream later)
{
    const struct driver *driver = w->d->ctx->driver;
    if (!w->d->event[SIDE] || w->dry)
        return LATHE_OK;
    return lathe__driver_check(driver, driver->cuStreamWaitEvent(later, w->d->event[which], 0),
                               "cuStreamWaitEvent", w->err);
}

lathe_status lathe__dist_side_waits(struct walk *w)
{
    TRY(record(w, STREAM, w->stream));
    return wait_for(w, STREAM, w->d->o.side);
}

lathe_status lathe__dist_mark_side(struct walk *w)
{
    return record(w, SIDE, w->d->o.side);
}

lathe_status lathe__dist_wait_for_mark(struct walk *w)
{
    return wait_for(w, SIDE, w->stream);
}

lathe_status lathe__dist_wait_for_side(struct walk *w)
{
    TRY(lathe__dist_mark_side(w));
    return lathe__dist_wait_for_mark(w);
}
