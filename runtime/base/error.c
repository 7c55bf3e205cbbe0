/*
 * error.c: errors and messages. In: a status and a sentence; out: the caller's error record, or the
 * context's log callback. Nothing is allocated and nothing is kept. Names of statuses and dtypes come
 * from the X-macros of lathe.h, so a new row needs no edit here.
 */
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/base.h"

int lathe__format(char *out, size_t size, const char *fmt, va_list list)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain ? uselocale(plain) : (locale_t)0;
    const int n = vsnprintf(out, size, fmt, list);
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
    return n;
}

int lathe__print(char *out, size_t size, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    const int n = lathe__format(out, size, fmt, list);
    va_end(list);
    return n;
}

static void fill(lathe_error *err, lathe_status status, const char *file, int line, const char *fmt,
                 va_list list) __attribute__((format(printf, 5, 0)));

static void fill(lathe_error *err, lathe_status status, const char *file, int line, const char *fmt,
                 va_list list)
{
    err->status = status;
    err->line = line;
    snprintf(err->file, sizeof err->file, "%s", file);
    lathe__format(err->text, sizeof err->text, fmt, list);
}

lathe_status lathe__fail(lathe_error *err, lathe_status status, const char *fmt, ...)
{
    if (err) {
        va_list list;
        va_start(list, fmt);
        fill(err, status, "", 0, fmt, list);
        va_end(list);
    }
    return status;
}

lathe_status lathe__fail_at(lathe_error *err, lathe_status status, const char *file, int line,
                            const char *fmt, ...)
{
    if (err) {
        va_list list;
        va_start(list, fmt);
        fill(err, status, file, line, fmt, list);
        va_end(list);
    }
    return status;
}

lathe_status lathe__fail_memory(lathe_error *err)
{
    return lathe__fail(err, LATHE_MEMORY, "out of host memory");
}

void lathe__say(struct phrase *s, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    const int n = lathe__format(s->text + s->size, sizeof s->text - s->size, fmt, list);
    va_end(list);
    if (n > 0)
        s->size += (size_t)n;
    if (s->size >= sizeof s->text)
        s->size = sizeof s->text - 1;
}

void lathe__error_clear(lathe_error *err)
{
    if (!err)
        return;
    err->status = LATHE_OK;
    err->line = 0;
    err->file[0] = '\0';
    err->text[0] = '\0';
}

void lathe__report(const struct reporter *r, int level, const char *fmt, ...)
{
    char text[2048]; /* a path, and what is wrong with it */
    va_list list;
    if (!r->log)
        return;
    va_start(list, fmt);
    lathe__format(text, sizeof text, fmt, list);
    va_end(list);
    r->log(r->user, level, text);
}

const char *lathe_status_text(lathe_status s)
{
    switch (s) {
#define STATUS_TEXT(name, value, text)                                                                       \
    case LATHE_##name:                                                                                       \
        return text;
        LATHE_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *lathe_dtype_text(lathe_dtype d)
{
    switch (d) {
#define DTYPE_TEXT(name, value, text, bytes)                                                                 \
    case LATHE_##name:                                                                                       \
        return text;
        LATHE_DTYPE_MAP(DTYPE_TEXT)
#undef DTYPE_TEXT
    }
    return "unknown dtype";
}

size_t lathe_dtype_size(lathe_dtype d)
{
    switch (d) {
#define DTYPE_SIZE(name, value, text, bytes)                                                                 \
    case LATHE_##name:                                                                                       \
        return bytes;
        LATHE_DTYPE_MAP(DTYPE_SIZE)
#undef DTYPE_SIZE
    }
    return 0;
}

const char *lathe_version(void)
{
    return LATHE_VERSION;
}
