/*
 * embedded.c: the files that travel inside the library: templates, prelude and shipped specs.
 * In: a name such as "templates/common/math.cuh". Out: its bytes, static memory that nobody frees.
 * The table itself is written at build time by embed.cmake, in the order of CMakeLists.txt.
 * A file is followed by a zero byte that its size does not count, so text can be read as a C string.
 * Whoever wants other bytes (a template under development) overrides them at the point of use.
 */
#include "gen/base/embedded.h"
#include "runtime/base/base.h"

#include <stdio.h>
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

static void try_shipped(struct nearest *nearest)
{
    for (const struct embedded *file = embedded_files; file->name != NULL; file++) {
        char name[48];
        const size_t size = strlen(file->name);
        if (strncmp(file->name, "specs/", 6) != 0 || strcmp(file->name, "specs/prelude.lua") == 0 ||
            size > 50)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(size - strlen("specs/.lua")), file->name + 6);
        lathe__nearest_try(nearest, name);
    }
}

/* "causal.lua", where there is no such file, is meant as the shipped causal. */
void embedded_nearest(struct nearest *nearest)
{
    char stem[48];
    struct nearest other = {.word = stem};
    const size_t size = strlen(nearest->word);
    try_shipped(nearest);
    if (nearest->best[0] || size <= 4 || size - 4 >= sizeof stem ||
        strcmp(nearest->word + size - 4, ".lua") != 0)
        return;
    snprintf(stem, sizeof stem, "%.*s", (int)(size - 4), nearest->word);
    try_shipped(&other);
    snprintf(nearest->best, sizeof nearest->best, "%s", other.best);
}
