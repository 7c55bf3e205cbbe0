/*
 * side.c: further streams, the caller's: one on which keys travel while others are computed (options.side),
 * one for every other call (options.beside). Out: events by which streams wait for each other. On the host
 * device there is one order of things.
 */
#include "runtime/dist/dist.h"
#include "runtime/driver/driver.h"
#include "runtime/jit/jit.h"

enum { STREAM, SIDE, BESIDE };
enum { WITHOUT_TIME = 2 }; /* CU_EVENT_DISABLE_TIMING */

bool lathe__dist_has_beside(const struct lathe_dist *d, const struct scheme *scheme)
{
    return d->o.beside && scheme->has_beside && d->pass == LATHE_FORWARD;
}

static lathe_status make_events(struct lathe_dist *d, const struct driver *driver, lathe_error *err)
{
    for (int i = 0; i < EVENTS; i++)
        TRY(lathe__driver_check(driver, driver->cuEventCreate(&d->event[i], WITHOUT_TIME), "cuEventCreate",
                                err));
    return LATHE_OK;
}

lathe_status lathe__dist_side_open(struct lathe_dist *d, lathe_error *err)
{
    const struct driver *driver = d->ctx->driver;
    bool pushed = false;
    if (!driver || ((!d->o.side || !d->scheme->has_side) && !lathe__dist_has_beside(d, d->scheme)))
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

static bool has_side(const struct walk *w)
{
    return are_apart(w) && w->d->o.side && w->d->scheme->has_side;
}

static bool has_beside(const struct walk *w)
{
    return are_apart(w) && lathe__dist_has_beside(w->d, w->d->scheme);
}

lathe_stream lathe__dist_side(const struct walk *w)
{
    return has_side(w) ? w->d->o.side : w->stream;
}

/* That of the launch; calls beside it are only ever a few lines long. */
void lathe__dist_go_beside(struct walk *w)
{
    if (!has_beside(w))
        return;
    w->main = w->stream;
    w->stream = w->d->o.beside;
    w->beside = true;
}

void lathe__dist_go_back(struct walk *w)
{
    if (!w->beside)
        return;
    w->stream = w->main;
    w->beside = false;
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

lathe_status lathe__dist_beside_waits(struct walk *w)
{
    return has_beside(w) ? after(w, STREAM, w->stream, w->d->o.beside) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_beside(struct walk *w)
{
    return has_beside(w) ? after(w, BESIDE, w->d->o.beside, w->stream) : LATHE_OK;
}

/* Where there is no side, what it would do is done on the stream. */
lathe_status lathe__dist_side_waits(struct walk *w)
{
    if (has_side(w))
        TRY(after(w, STREAM, w->stream, w->d->o.side));
    if (has_beside(w))
        TRY(after(w, BESIDE, w->d->o.beside, lathe__dist_side(w)));
    return LATHE_OK;
}

lathe_status lathe__dist_mark_side(struct walk *w)
{
    return has_side(w) ? record(w, SIDE, w->d->o.side) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_mark(struct walk *w)
{
    if (!has_side(w))
        return lathe__dist_beside_waits(w);
    TRY(wait_for(w, SIDE, w->stream));
    return has_beside(w) ? wait_for(w, SIDE, w->d->o.beside) : LATHE_OK;
}

lathe_status lathe__dist_wait_for_side(struct walk *w)
{
    TRY(lathe__dist_mark_side(w));
    return lathe__dist_wait_for_mark(w);
}
