/*
 * embedded.h: templates, the prelude and shipped specs, which the build puts into the library.
 */
#ifndef LATHE_GEN_EMBEDDED_H
#define LATHE_GEN_EMBEDDED_H

#include <stddef.h>

struct nearest;

struct embedded {
    const char *name; /* "templates/common/math.cuh", "specs/causal.lua" */
    const char *data;
    size_t size;
};
const struct embedded *embedded_find(const char *name);
extern const struct embedded embedded_files[];  /* ends with a NULL name */
void embedded_nearest(struct nearest *nearest); /* tries the names of the shipped specs */

#endif
