/*
 * emit_parts.c: which kernels of a text are compiled apart. In: the recipe, whose kernels are known. Out: how
 * many parts there are, and in the config the part of each kernel that has one of its own (base.cuh says how
 * a template asks). The kernels that take long stand alone, all others are part 0: every part costs the front
 * end again, a tenth of a second at most.
 */
#include "emit_attention.h"

#include <string.h>

/* Roles of kernels that take more than half of the time that the rest of their text takes. */
static const char *const LONG_ROLES[] = {"bwd", "fwd", "bwd_rows", "rows", "points", "gather", "longs"};
enum { LONG_ROLE_COUNT = sizeof LONG_ROLES / sizeof *LONG_ROLES };
_Static_assert((int)LONG_ROLE_COUNT < (int)MAX_COMPILED_PARTS, "a part for each, and one for all others");

static int role_number(const struct launch *launch, const struct ir *ir, lathe_dtype dtype)
{
    char entry[NAME_MAX_BYTES];
    for (int r = 0; r < LONG_ROLE_COUNT; r++) {
        entry_name(ir, dtype, LONG_ROLES[r], entry, sizeof entry);
        if (strcmp(launch->entry, entry) == 0)
            return r;
    }
    return -1;
}

void emit_compiled_parts(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, struct source *out)
{
    bool here[LONG_ROLE_COUNT] = {false};
    bool others = false;
    for (int i = 0; i < out->n_launches; i++) {
        const int role = role_number(&out->launch[i], ir, dtype);
        if (role < 0)
            others = true;
        else
            here[role] = true;
    }
    out->n_parts = others ? 1 : 0;
    for (int r = 0; r < LONG_ROLE_COUNT; r++) {
        if (here[r] && out->n_parts > 0)
            text_add(config, "#define LATHE_PART_%s %d\n", LONG_ROLES[r], out->n_parts);
        out->n_parts += here[r];
    }
}
