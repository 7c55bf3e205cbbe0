/*
 * base.h: what every folder of runtime/ writes with: errors and their sentences, words that are nearly right,
 * reports, bytes. Internal names end up in users' static libraries and are therefore prefixed lathe__.
 */
#ifndef LATHE_RT_BASE_H
#define LATHE_RT_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe.h"

#define LONGEST_PATH        1023
#define NUMBER_TEXT(number) NUMBER_WORD(number)
#define NUMBER_WORD(number) #number
enum { PATH_BYTES = LONGEST_PATH + 1 };

/* ---- error.c: sentences ------------------------------------------------------------------------ */

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        lathe_status try_status = (call);                                                                    \
        if (try_status != LATHE_OK)                                                                          \
            return try_status;                                                                               \
    } while (0)

/* Fill *err (may be NULL) and return the status. */
lathe_status lathe__fail(lathe_error *err, lathe_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
lathe_status lathe__fail_at(lathe_error *err, lathe_status status, const char *file, int line,
                            const char *fmt, ...) __attribute__((format(printf, 5, 6)));
lathe_status lathe__fail_memory(lathe_error *err);
void lathe__error_clear(lathe_error *err);

struct reporter { /* the log callback of a context; log NULL: silent */
    lathe_log_fn *log;
    void *user;
};
void lathe__report(const struct reporter *r, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

struct phrase { /* part of a sentence; cut where it is full */
    char text[1024];
    size_t size;
};
/* vsnprintf whose numbers have a point: a program may have set a locale with a decimal comma, and JSON, texts
   and what is typed back from a message know none. */
int lathe__format(char *out, size_t size, const char *fmt, va_list list)
    __attribute__((format(printf, 3, 0)));
int lathe__print(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void lathe__say(struct phrase *s, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* appends */

/* ---- nearest.c: "did you mean" ----------------------------------------------------------------- */

struct nearest { /* begins as {.word = what is not known} */
    const char *word;
    int apart;
    char best[48]; /* "": none so far is like it */
    char text[80];
};
void lathe__nearest_try(struct nearest *n, const char *known); /* known words in any order */
const char *lathe__nearest_text(struct nearest *n);            /* "; did you mean 'tanh'?" or "" */

/* ---- loader.c ---------------------------------------------------------------------------------- */

/* May this program open libraries at run time? what: the library. CUDA, with the way out: a fully static one
 * may not. */
lathe_status lathe__need_loader(const char *what, lathe_error *err);

/* ---- bytes.c, file.c ---------------------------------------------------------------------------- */

/* Numbers in files: little-endian whatever the host. */
void lathe__store_le(unsigned char *p, uint64_t value, int bytes);
uint64_t lathe__load_le(const unsigned char *p, int bytes);
/* 0, or an errno: EFBIG where a limit on the size of files ends it. */
int lathe__write_all(int fd, const void *data, size_t size);
/* The first `size` bytes of a file. 0, or an errno: ENODATA where it has fewer. */
int lathe__read_all(int fd, void *data, size_t size);

#endif
