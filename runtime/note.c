/*
 * note.c: what is known about NVRTC without opening it: its identity and its archs, in a file of the cache.
 * In: a cache, and the environment that decides which library would be opened; out: a struct compiler without
 * entry points, the caller's. Opening the library takes longer than all else of a warm start. A note that is
 * wrong costs a lookup that misses: who then compiles compares the identity with that of the library it
 * opened.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "rt.h"

enum { NOTE_BYTES = 4096 };

/* Everything that decides which file it is: in the text, and compared as text. False: no such file. */
static bool describe(char out[NOTE_BYTES], const char *cuda_home, int driver_version,
                     const struct compiler *c)
{
    struct stat status;
    int n;
    if (c->path[0] != '/' || stat(c->path, &status) != 0)
        return false;
    n = snprintf(out, NOTE_BYTES, "lathe %s %d\n%s\n%d\n%s\n%lld %lld %ld\n%s\n%d %d %d", LATHE_VERSION,
                 CACHE_FORMAT, cuda_home, driver_version, c->path, (long long)status.st_size,
                 (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, c->identity, c->major, c->minor,
                 c->n_archs);
    for (int i = 0; i < c->n_archs && n > 0 && n < NOTE_BYTES; i++)
        n += snprintf(out + n, (size_t)(NOTE_BYTES - n), " %d", c->arch[i]);
    return n > 0 && n < NOTE_BYTES;
}

/* Line `number`, counted from 0, without its end. */
static bool copy_line(const char *text, int number, char *out, size_t size)
{
    while (number > 0 && (text = strchr(text, '\n')) != NULL) {
        text++;
        number--;
    }
    if (!text || strcspn(text, "\n") >= size)
        return false;
    snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text);
    return true;
}

/* The next number of a list; -1 where there is none. */
static int next_number(const char **text)
{
    char *end;
    const long value = strtol(*text, &end, 10);
    const bool there = end != *text && value >= 0 && value < 100000;
    *text = end;
    return there ? (int)value : -1;
}

static bool parse_numbers(const char *text, struct compiler *out)
{
    out->major = next_number(&text);
    out->minor = next_number(&text);
    out->n_archs = next_number(&text);
    if (out->major < 0 || out->minor < 0 || out->n_archs < 1 || out->n_archs > MAX_KNOWN_ARCHS)
        return false;
    for (int i = 0; i < out->n_archs; i++)
        if ((out->arch[i] = next_number(&text)) < 0)
            return false;
    return true;
}

bool lathe__compiler_note_read(struct cache *cache, const char *cuda_home, int driver_version,
                               struct compiler *out)
{
    char text[NOTE_BYTES];
    char now[NOTE_BYTES];
    char numbers[1024];
    const size_t n = lathe__cache_note_read(cache, COMPILER_NOTE, text, sizeof text - 1);
    text[n] = '\0';
    memset(out, 0, sizeof *out);
    return n > 0 && copy_line(text, 3, out->path, sizeof out->path) &&
           copy_line(text, 5, out->identity, sizeof out->identity) &&
           copy_line(text, 6, numbers, sizeof numbers) && parse_numbers(numbers, out) &&
           describe(now, cuda_home, driver_version, out) && strcmp(now, text) == 0;
}

void lathe__compiler_note_write(struct cache *cache, const char *cuda_home, int driver_version,
                                const struct compiler *compiler)
{
    char text[NOTE_BYTES];
    if (describe(text, cuda_home, driver_version, compiler))
        lathe__cache_note_write(cache, COMPILER_NOTE, text, strlen(text));
}
