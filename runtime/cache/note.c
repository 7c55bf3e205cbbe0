/*
 * note.c: what is known about NVRTC without opening it: its identity and its archs, in files of the cache.
 * In: a cache; out: a struct compiler without entry points, the caller's. Two kinds of file: `compiler`,
 * about the library that this machine would open (opening it takes longer than all else of a warm start; a
 * note that is wrong costs a lookup that misses), and one nvrtc-VERSION-SIZE for every compiler that made
 * entries here, which travels with them to machines that have another NVRTC, or none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/cache/makers.h"

enum { NOTE_BYTES = 4096 };

/* "13 0 12 75 80 ...": version, how many archs, which. */
static bool add_numbers(char *out, size_t size, const struct compiler *c)
{
    int n = snprintf(out, size, "%d %d %d", c->major, c->minor, c->n_archs);
    for (int i = 0; i < c->n_archs && n > 0 && n < (int)size; i++)
        n += snprintf(out + n, size - (size_t)n, " %d", c->arch[i]);
    return n > 0 && n < (int)size;
}

/* Everything that decides which file it is: in the text, and compared as text. False: no such file. */
static bool describe(char out[NOTE_BYTES], const char *cuda_home, int driver_version,
                     const struct compiler *c)
{
    struct stat status;
    if (c->path[0] != '/' || stat(c->path, &status) != 0)
        return false;
    const int n = snprintf(out, NOTE_BYTES, "lathe %s %d\n%s\n%d\n%s\n%lld %lld %ld\n%s\n", LATHE_VERSION,
                           CACHE_FORMAT, cuda_home, driver_version, c->path, (long long)status.st_size,
                           (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, c->identity);
    return n > 0 && n < NOTE_BYTES && add_numbers(out + n, (size_t)(NOTE_BYTES - n), c);
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

/* ---- makers --------------------------------------------------------------------------------------- */

/* "nvrtc 13.0 109338064" -> "nvrtc-13.0-109338064". */
bool lathe__maker_name(const char *identity, char out[MAKER_NAME_BYTES])
{
    const size_t size = strlen(identity);
    if (size >= MAKER_NAME_BYTES || strncmp(identity, "nvrtc ", 6) != 0 ||
        strspn(identity + 6, "0123456789. ") != size - 6)
        return false;
    memcpy(out, identity, size + 1);
    for (char *c = out; *c; c++)
        if (*c == ' ')
            *c = '-';
    return true;
}

bool lathe__maker_is_name(const char *name)
{
    const size_t prefix = strlen(MAKER_PREFIX);
    return strncmp(name, MAKER_PREFIX, prefix) == 0 && name[prefix] && strlen(name) < MAKER_NAME_BYTES &&
           strspn(name + prefix, "0123456789.-") == strlen(name + prefix);
}

bool lathe__maker_parse(const char *name, const char *data, size_t size, struct compiler *out)
{
    char text[MAKER_BYTES + 1];
    char numbers[MAKER_BYTES];
    char expected[MAKER_NAME_BYTES];
    memset(out, 0, sizeof *out);
    if (size > MAKER_BYTES || memchr(data, 0, size))
        return false;
    memcpy(text, data, size);
    text[size] = '\0';
    return copy_line(text, 0, out->identity, sizeof out->identity) &&
           copy_line(text, 1, numbers, sizeof numbers) && parse_numbers(numbers, out) &&
           lathe__maker_name(out->identity, expected) && strcmp(expected, name) == 0;
}

static bool maker_read(struct cache *cache, const char *name, struct compiler *out)
{
    char data[MAKER_BYTES + 1];
    return lathe__maker_parse(name, data, lathe__cache_note_read(cache, name, data, sizeof data), out);
}

int lathe__maker_write(struct cache *cache, const struct compiler *compiler)
{
    char name[MAKER_NAME_BYTES];
    char numbers[MAKER_BYTES - 80];
    char text[MAKER_BYTES];
    struct compiler there;
    if (cache->dir_fd < 0 || cache->read_only || !lathe__maker_name(compiler->identity, name) ||
        maker_read(cache, name, &there))
        return 0;
    if (!add_numbers(numbers, sizeof numbers, compiler))
        return 0;
    const int n = snprintf(text, sizeof text, "%s\n%s\n", compiler->identity, numbers);
    return lathe__cache_file_write(cache, name, text, (size_t)n);
}

/* The newest first; builds of one version by their names. */
static int by_version(const void *a, const void *b)
{
    const struct compiler *x = a;
    const struct compiler *y = b;
    if (x->major != y->major)
        return y->major - x->major;
    if (x->minor != y->minor)
        return y->minor - x->minor;
    return strcmp(x->identity, y->identity);
}

int lathe__makers_read(struct cache *cache, struct compiler **out)
{
    char(*name)[MAKER_NAME_BYTES];
    int n = 0;
    const int n_names = lathe__cache_names(cache, lathe__maker_is_name, &name);
    *out = n_names > 0 ? malloc((size_t)n_names * sizeof **out) : NULL;
    for (int i = 0; *out && i < n_names; i++)
        n += maker_read(cache, name[i], &(*out)[n]);
    free(name);
    if (n > 0)
        qsort(*out, (size_t)n, sizeof **out, by_version);
    return n;
}

static bool find_of(struct cache *cache, const struct compiler *maker, const struct source *source,
                    const char *device_arch, unsigned char key[KEY_BYTES], char arch[16],
                    struct cache_blob *out)
{
    char options[MAX_OPTIONS][OPTION_BYTES];
    bool substituted;
    if (lathe__compiler_arch(maker, device_arch, arch, &substituted, NULL) != LATHE_OK)
        return false;
    const int n = lathe__compile_options(arch, options);
    lathe__key_make(source, (const char(*)[OPTION_BYTES])options, n, maker->identity, key);
    return lathe__cache_read(cache, key, out);
}

bool lathe__cache_find_made(struct cache *cache, const struct source *source, const char *device_arch,
                            int driver_version, unsigned char key[KEY_BYTES], char arch[16],
                            struct cache_blob *out)
{
    struct compiler *maker;
    bool found = false;
    const int n = lathe__makers_read(cache, &maker);
    for (int i = 0; i < n && !found; i++)
        if (driver_version == 0 || maker[i].major <= driver_version / 1000) /* a newer major does not load */
            found = find_of(cache, &maker[i], source, device_arch, key, arch, out);
    free(maker);
    return found;
}
