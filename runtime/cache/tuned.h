/*
 * tuned.h: choices that `lathe tune` measured, a file each in the cache.
 */
#ifndef LATHE_RT_TUNED_H
#define LATHE_RT_TUNED_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/cache/cache.h"

#define TUNED_PREFIX "tuned-"
enum { TUNED_BYTES = 512 };
struct tuned {
    char template_name[24];
    char tile[24];   /* "": the template has one */
    double seconds;  /* of a launch */
    char device[96]; /* where that was measured */
    char label[128]; /* of the kernel, for people */
};
/* `holds`: the text of what it holds for (tuning_text). False: nothing is known, or it is damaged. */
bool lathe__tuned_read(struct cache *cache, const char *holds, size_t size, struct tuned *out);
/* 0, or an errno. */
int lathe__tuned_write(struct cache *cache, const char *holds, size_t size, const struct tuned *tuned);
bool lathe__tuned_parse(const char *data, size_t size, struct tuned *out);
bool lathe__tuned_is_name(const char *name);

#endif
