/*
 * environ.h: the one place that reads the environment.
 */
#ifndef LATHE_RT_ENVIRON_H
#define LATHE_RT_ENVIRON_H

#include <stdbool.h>

#include "runtime/base/base.h"

/* A path that is too long is one byte longer than the longest, so that whoever opens it says so. */
struct environment {
    char cache_dir[PATH_BYTES + 1];        /* "" where no home is known: memory only */
    char cuda_home[PATH_BYTES + 1];        /* "" where not set */
    char system_cache_dir[PATH_BYTES + 1]; /* "" where switched off */
    bool system_cache_named;               /* by the environment: that it is missing is worth a warning */
    bool offline;
    char template_name[256]; /* to plan with, where they serve; "": any */
    char tile[24];           /* a row of a template's tiles, likewise */
};
/* For lathe_ctx_create and for the tool's main; nothing else calls it. */
void lathe__environment_read(struct environment *out);

#endif
