/*
 * explain.h: the parts of `lathe explain`.
 */
#ifndef LATHE_TOOL_EXPLAIN_H
#define LATHE_TOOL_EXPLAIN_H

#include "gen/tool/tool.h"

/* explain_mask.c: a line about the mask, where there is one, without its end. `set`: values of scalars.
 * False: complained of one. */
bool explain_mask(const struct ir *ir, const struct problem *problem, const struct plan *plan,
                  const struct source *source, const struct name_values *set, struct text_buf *out);
/* The kernel that judges the tiles of a mask once a launch; NULL: none does. */
const char *explain_map_kernel(const struct source *source);
/* explain_ranks.c: which scheme serves the problem over options.ranks ranks, on the host device's word. */
int explain_ranks(struct facts *f, const struct options *o, const struct signature *sig,
                  const struct problem *p);

#endif
