/*
 * whole.h: a problem of which calls or ranks have parts each: its sizes, its tensors as a whole, and the
 * specs that are tried.
 */
#ifndef LATHE_TEST_WHOLE_H
#define LATHE_TEST_WHOLE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gen/gen.h"
#include "gen/ir/spec.h"

enum { B = 2, H = 4, H_KV = 2, D = 16, D2 = 8, FREE = 40, MOST = 40, MOST_SPECS = 64 };

struct value { /* a tensor of the whole problem, compact */
    char name[NAME_MAX_BYTES];
    struct sig_arg is;
    lathe_arg arg;
    int64_t shape[MAX_DIMS];
    int64_t count;
    bool share;   /* a gradient of an input */
    void *before; /* a result, as one rank has it */
};

static inline int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Of a kind, in the order of their names. */
static inline int list_shipped(char name[MOST_SPECS][64], int kind)
{
    DIR *dir = opendir(check_source_path("specs"));
    const struct dirent *entry;
    int n = 0;
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');
        struct diag diag = {0};
        char stem[64];
        if (!dot || strcmp(dot, ".lua") != 0 || strcmp(entry->d_name, "prelude.lua") == 0)
            continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        struct ir *ir = spec_load(stem, NULL, 0, &diag);
        CHECK(n < MOST_SPECS);
        if (ir && (int)ir->kind == kind)
            snprintf(name[n++], sizeof name[0], "%s", stem);
        ir_free(ir);
    }
    closedir(dir);
    qsort(name, (size_t)n, sizeof name[0], by_name);
    return n;
}

#endif
