/*
 * serves.h: what a template serves, as columns of its row, and the one function that says why it does not.
 *
 * A *feature* is something that a request may have and that not every template takes: keys in pages, the
 * delta rule. A kind has a table of its features, and bits of a template's columns stand for rows of that
 * table.
 */
#ifndef LATHE_GEN_SERVES_H
#define LATHE_GEN_SERVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lathe_types.h"
#include "runtime/recipe/recipe.h"

struct kernel_request;
struct template_row;
struct text_buf;

enum { SAID_BYTES = 160 };
struct feature {
    const char *name; /* for people: "keys in pages"; NULL: behind the last row */
    /* Has the request it? Then it may say in `said` (SAID_BYTES) how; else a refusal begins with the name. */
    bool (*has)(const struct kernel_request *r, char *said);
    const char *missing; /* a template is for it alone, and the request has it not; NULL: no template is */
    const char *instead; /* what a caller may do; NULL: nothing comes to mind */
};

struct served_dim {
    const char *name; /* NULL: there is none */
    enum sym sym;
    int64_t least, most;
    int step;
};

struct serves {
    unsigned dtypes;          /* bits 1 << lathe_dtype; 0: the row has no columns, and its planner asks all */
    struct served_dim dim[2]; /* dims that are compiled in */
    uint64_t takes;           /* bits 1 << number of features beside which it serves */
    uint64_t only;            /* those without which it does not, though it might */
    const char *chosen_for;   /* sizes for which it is taken before others; NULL: any */
};

#define SERVES_HALVES (1u << LATHE_F16 | 1u << LATHE_BF16)
#define SERVES_FLOATS (SERVES_HALVES | 1u << LATHE_F32)

/* Do the columns of a template take the request? Else says why not in `why` (REASON_BYTES), and which other
   templates of the kind and pass do. */
bool plan_serves(const struct kernel_request *r, const struct template_row *row, char *why);
/* "f16, bf16; d from 16 to 256 by 8; packed sequences, ...": what a template takes, for people. */
void serves_text(const struct serves *s, const struct feature *features, struct text_buf *out);

#endif
