/*
 * text.c: a string that grows. A failed allocation, or a limit that what it describes exceeds, sticks in
 * `failed` and later calls do nothing, so that emitters need no check per line. In: printf formats or bytes.
 * Out: zero-terminated text. Freed by text_free. Never used for floating-point output that compilers read:
 * see emit_float.
 */
#include "gen/base/text.h"
#include "runtime/base/base.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct text_buf *t, size_t more)
{
    if (t->failed)
        return false;
    size_t need = t->size + more + 1;
    if (need <= t->capacity)
        return true;
    size_t capacity = t->capacity ? t->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    char *data = realloc(t->data, capacity);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->capacity = capacity;
    return true;
}

void text_add_bytes(struct text_buf *t, const char *data, size_t size)
{
    if (!reserve(t, size))
        return;
    if (size > 0) /* data may be NULL beside it */
        memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
}

void text_add(struct text_buf *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    text_add_list(t, fmt, args);
    va_end(args);
}

void text_add_list(struct text_buf *t, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int size = lathe__format(NULL, 0, fmt, args);
    if (size < 0)
        t->failed = true;
    else if (reserve(t, (size_t)size)) {
        lathe__format(t->data + t->size, (size_t)size + 1, fmt, again);
        t->size += (size_t)size;
    }
    va_end(again);
}

void text_exceed(struct text_buf *t, int most, const char *too_many)
{
    if (t->failed)
        return;
    t->failed = true;
    t->too_many = too_many;
    t->most = most;
}

void text_fail_with(struct text_buf *t, const struct text_buf *part)
{
    if (part->failed)
        text_exceed(t, part->most, part->too_many);
}

void text_free(struct text_buf *t)
{
    free(t->data);
    *t = (struct text_buf){0};
}

double number_shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}

bool is_listed(const char *const *words, const char *word)
{
    while (*words && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}
