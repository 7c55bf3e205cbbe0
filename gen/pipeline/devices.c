/*
 * devices.c: numbers that planning needs where no device is at hand. In: the name of an architecture. Out:
 * the caller's struct device.
 */
#include "gen/pipeline/devices.h"
#include "gen/base/text.h"
#include "runtime/recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shared memory: the opt-in maximum of one block. */
static const struct arch_row {
    int sm;
    int sm_count;
    int smem_bytes;
    const char *suffixes; /* letters that may follow the number */
} ARCHS[] = {
    {80, 108, 163 * 1024, ""},    {86, 84, 99 * 1024, ""},      {87, 16, 163 * 1024, ""},
    {88, 16, 99 * 1024, ""},      {89, 128, 99 * 1024, ""},     {90, 132, 227 * 1024, "a"},
    {100, 148, 227 * 1024, "af"}, {103, 148, 227 * 1024, "af"}, {110, 20, 227 * 1024, "af"},
    {120, 170, 99 * 1024, "af"},  {121, 48, 99 * 1024, "af"},
};

static void add_known(struct text_buf *known)
{
    for (size_t i = 0; i < sizeof ARCHS / sizeof ARCHS[0]; i++) {
        text_add(known, " sm_%d", ARCHS[i].sm);
        for (const char *s = ARCHS[i].suffixes; *s; s++)
            text_add(known, " sm_%d%c", ARCHS[i].sm, *s);
    }
}

bool device_find(const char *text, struct device *out, struct text_buf *known)
{
    char *end = NULL;
    const char *digits = strncmp(text, "sm_", 3) == 0 ? text + 3 : "";
    const long sm = *digits >= '1' && *digits <= '9' ? strtol(digits, &end, 10) : 0;
    for (size_t i = 0; i < sizeof ARCHS / sizeof ARCHS[0]; i++) {
        const struct arch_row *row = &ARCHS[i];
        if (sm != row->sm || !end || (*end && (!strchr(row->suffixes, *end) || end[1])))
            continue;
        *out = (struct device){.sm = row->sm, .sm_count = row->sm_count, .smem_bytes = row->smem_bytes};
        snprintf(out->arch, sizeof out->arch, "%.15s", text);
        return true;
    }
    if (known)
        add_known(known);
    return false;
}
