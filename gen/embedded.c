/*
 * embedded.c: the files that travel inside the library: templates, prelude and shipped specs.
 * In: a name such as "templates/math.cuh". Out: its bytes, static memory that nobody frees.
 * The table itself is written at build time by embed.cmake, in the order of CMakeLists.txt.
 * A file is followed by a zero byte that its size does not count, so text can be read as a C string.
 * Whoever wants other bytes (a template under development) overrides them at the point of use.
 */
#include "gen.h"

#include <string.h>

const struct embedded *embedded_find(const char *name)
{
    for (const struct embedded *file = embedded_files; file->name != NULL; file++) {
        if (strcmp(file->name, name) == 0) {
            return file;
        }
    }
    return NULL;
}
