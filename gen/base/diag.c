/*
 * diag.c: mistakes of a spec, collected so that one run shows several. In: place and sentence. Out: a
 * list, or the error record of the public API. Nothing is allocated, so a Lua error that jumps over
 * C code loses nothing. The same mistake at the same place is kept once.
 */
#include "gen/base/diag.h"
#include "runtime/base/base.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_known(const struct diag *d, const struct diag_entry *e)
{
    for (int i = 0; i < d->n && i < DIAG_MAX; i++)
        if (d->entry[i].line == e->line && strcmp(d->entry[i].text, e->text) == 0 &&
            strcmp(d->entry[i].file, e->file) == 0)
            return true;
    return false;
}

void diag_add(struct diag *d, const char *file, int line, const char *fmt, ...)
{
    struct diag_entry e = {.line = line};
    snprintf(e.file, sizeof e.file, "%s", file ? file : "");
    for (char *c = e.file; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?'; /* one mistake is one line */
    va_list args;
    va_start(args, fmt);
    lathe__format(e.text, sizeof e.text, fmt, args);
    va_end(args);
    if (is_known(d, &e))
        return;
    if (d->n < DIAG_MAX)
        d->entry[d->n] = e;
    d->n++;
}

/* Append to err->text; what does not fit is cut. */
static void append(lathe_error *err, const char *text)
{
    size_t used = strlen(err->text);
    if (used + 1 < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, "%s", text);
}

void diag_place(const char *file, int line, char place[DIAG_PLACE_BYTES])
{
    place[0] = '\0';
    if (file[0] && line > 0)
        snprintf(place, DIAG_PLACE_BYTES, "%.256s:%d: ", file, line);
    else if (file[0])
        snprintf(place, DIAG_PLACE_BYTES, "%.256s: ", file);
}

static void append_entry(lathe_error *err, const struct diag_entry *e, bool first)
{
    char place[DIAG_PLACE_BYTES];
    diag_place(e->file, e->line, place);
    if (!first)
        append(err, "\n");
    append(err, place);
    append(err, e->text);
}

void diag_to_error(const struct diag *d, lathe_status status, lathe_error *err)
{
    if (!err)
        return;
    *err = (lathe_error){.status = status};
    int kept = d->n < DIAG_MAX ? d->n : DIAG_MAX;
    for (int i = 0; i < kept; i++)
        append_entry(err, &d->entry[i], i == 0);
    if (d->n > kept) {
        char more[64];
        snprintf(more, sizeof more, "\n... and %d more", d->n - kept);
        append(err, more);
    }
    if (kept > 0) {
        memcpy(err->file, d->entry[0].file, sizeof err->file);
        err->line = d->entry[0].line;
    }
}
