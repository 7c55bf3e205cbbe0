/*
 * environ.c: the one function of the library that reads the environment: LATHE_CACHE_DIR, XDG_CACHE_HOME,
 * HOME, LATHE_SYSTEM_CACHE_DIR, LATHE_OFFLINE, LATHE_TEMPLATE, LATHE_TILE and CUDA_HOME. In: nothing; out: a
 * struct of the caller's, whose paths are "" where unknown. Relative paths are ignored, as the XDG base
 * directory specification asks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/environ.h"

/* Decided by the build: where packages of the system put their caches. */
#ifndef LATHE_SYSTEM_CACHE
#define LATHE_SYSTEM_CACHE "/usr/share/lathe/cache"
#endif

static bool join(char out[PATH_BYTES + 1], const char *base, const char *rest)
{
    if (!base || base[0] != '/')
        return false;
    snprintf(out, PATH_BYTES + 1, "%s%s", base, rest);
    return true;
}

static void read_system_cache(struct environment *out)
{
    const char *named = getenv("LATHE_SYSTEM_CACHE_DIR");
    out->system_cache_named = named != NULL;
    snprintf(out->system_cache_dir, sizeof out->system_cache_dir, "%s", named ? named : LATHE_SYSTEM_CACHE);
}

void lathe__environment_read(struct environment *out)
{
    const char *offline = getenv("LATHE_OFFLINE");
    const char *own = getenv("LATHE_CACHE_DIR");
    const char *template_name = getenv("LATHE_TEMPLATE");
    const char *tile = getenv("LATHE_TILE");
    out->cache_dir[0] = '\0';
    out->cuda_home[0] = '\0';
    /* LATHE_CACHE_DIR set but empty: no disk cache, like cache_dir "" in the options */
    if (own)
        snprintf(out->cache_dir, sizeof out->cache_dir, "%s", own);
    else if (!join(out->cache_dir, getenv("XDG_CACHE_HOME"), "/lathe"))
        join(out->cache_dir, getenv("HOME"), "/.cache/lathe");
    join(out->cuda_home, getenv("CUDA_HOME"), "");
    read_system_cache(out);
    out->offline = offline && offline[0] && strcmp(offline, "0") != 0;
    snprintf(out->template_name, sizeof out->template_name, "%s", template_name ? template_name : "");
    snprintf(out->tile, sizeof out->tile, "%s", tile ? tile : "");
}
