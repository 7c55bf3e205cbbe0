/*
 * load.h: the door of the folder that sees Lua. A spec's text becomes a struct ir.
 */
#ifndef LATHE_GEN_LOAD_H
#define LATHE_GEN_LOAD_H

#include <stdbool.h>
#include <stddef.h>

struct ir;
struct diag;

/* Numbers that take the place of defaults of a spec's parameters. */
enum { MAX_GIVEN_PARAMS = 32 };
struct spec_param {
    const char *name;
    double value;
    bool used; /* the spec has it: filled by spec_load_with */
};
struct spec_params {
    int n;
    bool may_be_unknown; /* one that the spec lacks is no mistake: it is meant for another spec */
    struct spec_param item[MAX_GIVEN_PARAMS];
};

/* Load, trace and check a spec. `name` names the text in messages; `text` NULL: read the file
   `name`. NULL on failure, with diagnostics. Owned by the caller: ir_free. */
struct ir *spec_load(const char *name, const char *text, size_t size, struct diag *diag);
/* The same with parameters; NULL: none. */
struct ir *spec_load_with(const char *name, const char *text, size_t size, struct spec_params *params,
                          struct diag *diag);
/* What a spec says, into a new IR; `name` names the text in messages, which say what cannot be traced. */
void trace_spec(struct ir *ir, const char *name, const char *text, size_t size, struct spec_params *params,
                struct diag *diag);

#endif
