/*
 * facts.h: one report in two forms: lines for people, or JSON for programs. Whoever reports says both where
 * it stands: facts_line writes for people alone, the others for programs alone.
 */
#ifndef LATHE_GEN_FACTS_H
#define LATHE_GEN_FACTS_H

#include <stdbool.h>
#include <stdint.h>

struct text_buf;

enum { FACTS_DEPTH = 8 };
struct facts {
    struct text_buf *out;
    bool json;
    int depth;
    bool any[FACTS_DEPTH]; /* by depth: something stands before what comes next */
    char close[FACTS_DEPTH];
};

/* Between facts_begin and facts_end of the whole stands one object. */
void facts_begin(struct facts *f, struct text_buf *out, bool json);
void facts_end(struct facts *f);
/* name: NULL in a list. */
void facts_open(struct facts *f, const char *name, char bracket); /* '{' or '[' */
void facts_close(struct facts *f);
void facts_string(struct facts *f, const char *name, const char *value);
void facts_strings(struct facts *f, const char *name, const char *lines); /* a list: one for each line */
void facts_integer(struct facts *f, const char *name, int64_t value);
void facts_number(struct facts *f, const char *name, double value); /* null where it is not finite */
void facts_bool(struct facts *f, const char *name, bool value);
/* For people. */
void facts_line(struct facts *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
