/*
 * load.h: the door of the folder that sees Lua. A spec's text becomes a struct ir.
 */
#ifndef LATHE_GEN_LOAD_H
#define LATHE_GEN_LOAD_H

#include <stddef.h>

struct ir;
struct diag;

/* Load, trace and check a spec. `name` names the text in messages; `text` NULL: read the file
   `name`. NULL on failure, with diagnostics. Owned by the caller: ir_free. */
struct ir *spec_load(const char *name, const char *text, size_t size, struct diag *diag);
/* What a spec says, into a new IR; `name` names the text in messages, which say what cannot be traced. */
void trace_spec(struct ir *ir, const char *name, const char *text, size_t size, struct diag *diag);

#endif
