/*
 * text.h: growing strings. A failure sticks; later calls do nothing.
 */
#ifndef LATHE_GEN_TEXT_H
#define LATHE_GEN_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct text_buf {
    char *data; /* zero-terminated once anything was added */
    size_t size;
    size_t capacity;
    bool failed;
    const char *too_many; /* of what there were more than `most`; NULL: memory ran out */
    int most;
};
void text_add(struct text_buf *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_list(struct text_buf *t, const char *fmt, va_list args) __attribute__((format(printf, 2, 0)));
void text_add_bytes(struct text_buf *t, const char *data, size_t size);
void text_free(struct text_buf *t);
/* What the text is about has more than `most` of those. The first failure counts. */
void text_exceed(struct text_buf *t, int most, const char *too_many);
void text_fail_with(struct text_buf *t, const struct text_buf *part); /* where the part has failed */

/* A number as it is to be printed: printf writes a NaN's sign, which says nothing. */
double number_shown(double value);

/* Is the word in a list that a NULL ends? */
bool is_listed(const char *const *words, const char *word);

/* As C++ and Lua write it. */
static inline const char *yes(bool holds)
{
    return holds ? "true" : "false";
}

#endif
