/*
 * diag.h: mistakes, collected. At most DIAG_MAX are kept; more are counted.
 */
#ifndef LATHE_GEN_DIAG_H
#define LATHE_GEN_DIAG_H

#include "lathe_types.h"

enum { DIAG_MAX = 10 };
struct diag_entry {
    char file[256];
    int line;
    char text[512];
};
struct diag {
    int n; /* all mistakes, also those beyond DIAG_MAX */
    struct diag_entry entry[DIAG_MAX];
};
void diag_add(struct diag *d, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* "file:line: ", "file: " or nothing. */
enum { DIAG_PLACE_BYTES = 300 };
void diag_place(const char *file, int line, char place[DIAG_PLACE_BYTES]);
/* "file:line: text" lines into err->text, the first place into err->file and err->line. */
void diag_to_error(const struct diag *d, lathe_status status, lathe_error *err);

#endif
