/*
 * progress.c: a line on the terminal for work that takes over a second. In: what is being done. Out: one
 * line on standard error, rewritten while the work runs and wiped at its end; nothing where standard error
 * is not a terminal that knows how (TERM). A thread of its own writes it, because most long work is one call
 * into a library. progress_start and progress_stop pair up; the struct is the caller's.
 */
#include "gen/tool/tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *show(void *user)
{
    struct progress *p = user;
    pthread_mutex_lock(&p->lock);
    while (p->running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        const int waited = pthread_cond_timedwait(&p->changed, &p->lock, &until);
        if (!p->running || waited != ETIMEDOUT)
            continue;
        fprintf(stderr, "\r\033[K%s ... %.0f s", p->text, tool_seconds_now() - p->start);
        fflush(stderr);
        p->shown = true;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* A terminal that can rewrite a line. */
static bool can_show(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

void progress_start(struct progress *p, const char *text)
{
    memset(p, 0, sizeof *p);
    snprintf(p->text, sizeof p->text, "%s", text);
    if (!can_show())
        return;
    p->start = tool_seconds_now();
    p->running = true;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, show, p) == 0)
        return;
    p->running = false; /* the work matters, the line does not */
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

void progress_text(struct progress *p, const char *fmt, ...)
{
    va_list ap;
    if (!p->running)
        return;
    va_start(ap, fmt);
    pthread_mutex_lock(&p->lock);
    vsnprintf(p->text, sizeof p->text, fmt, ap);
    pthread_mutex_unlock(&p->lock);
    va_end(ap);
}

void progress_stop(struct progress *p)
{
    if (!p->running)
        return;
    pthread_mutex_lock(&p->lock);
    p->running = false;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    if (p->shown)
        fputs("\r\033[K", stderr);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}
