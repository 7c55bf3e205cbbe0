/*
 * tuned.c: choices that were measured, kept beside the kernels: a file each, named by the digest of what the
 * choice holds for. In: an open cache and that text; out: template and tile. They travel with the cache, and
 * a wrong one costs time, never a result: a plan takes it only if it serves.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cache/tuned.h"

static const char HEAD[] = "lathe tuned 1";
enum { TUNED_DIGITS = 40 };

static void make_name(const char *holds, size_t size, char out[MAKER_NAME_BYTES])
{
    unsigned char digest[KEY_BYTES];
    char text[KEY_TEXT_BYTES];
    struct sha256 sha;
    lathe__sha256_start(&sha);
    lathe__sha256_add(&sha, holds, size);
    lathe__sha256_finish(&sha, digest);
    lathe__key_text(digest, text);
    snprintf(out, MAKER_NAME_BYTES, TUNED_PREFIX "%.*s", TUNED_DIGITS, text);
}

bool lathe__tuned_is_name(const char *name)
{
    const size_t prefix = strlen(TUNED_PREFIX);
    return strncmp(name, TUNED_PREFIX, prefix) == 0 && strlen(name) == prefix + TUNED_DIGITS &&
           strspn(name + prefix, "0123456789abcdef") == TUNED_DIGITS;
}

/* The line at *at, which moves on. False: there is none, or it does not fit. */
static bool take_line(const char **at, char *out, size_t size)
{
    const size_t n = strcspn(*at, "\n");
    if ((*at)[n] != '\n' || n >= size)
        return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + 1;
    return true;
}

static bool is_word(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(text);
}

bool lathe__tuned_parse(const char *data, size_t size, struct tuned *out)
{
    char text[TUNED_BYTES + 1];
    char head[32];
    char nanoseconds[24];
    const char *at = text;
    memset(out, 0, sizeof *out);
    if (size > TUNED_BYTES || memchr(data, 0, size))
        return false;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!take_line(&at, head, sizeof head) || strcmp(head, HEAD) != 0 ||
        !take_line(&at, out->template_name, sizeof out->template_name) ||
        !take_line(&at, out->tile, sizeof out->tile) || !take_line(&at, nanoseconds, sizeof nanoseconds) ||
        !take_line(&at, out->device, sizeof out->device) || !take_line(&at, out->label, sizeof out->label))
        return false;
    out->seconds = 1e-9 * (double)strtoll(nanoseconds, NULL, 10);
    return *at == '\0' && out->template_name[0] && is_word(out->template_name) && is_word(out->tile);
}

bool lathe__tuned_read(struct cache *cache, const char *holds, size_t size, struct tuned *out)
{
    char name[MAKER_NAME_BYTES];
    char data[TUNED_BYTES + 1];
    make_name(holds, size, name);
    const size_t n = lathe__cache_note_read(cache, name, data, sizeof data);
    return n > 0 && lathe__tuned_parse(data, n, out);
}

int lathe__tuned_write(struct cache *cache, const char *holds, size_t size, const struct tuned *tuned)
{
    char name[MAKER_NAME_BYTES];
    char text[TUNED_BYTES];
    struct tuned again;
    make_name(holds, size, name);
    const int n = snprintf(text, sizeof text, "%s\n%s\n%s\n%lld\n%s\n%s\n", HEAD, tuned->template_name,
                           tuned->tile, (long long)(tuned->seconds * 1e9 + 0.5), tuned->device, tuned->label);
    if (n < 0 || (size_t)n >= sizeof text || !lathe__tuned_parse(text, (size_t)n, &again))
        return EINVAL;
    return lathe__cache_file_write(cache, name, text, (size_t)n);
}
