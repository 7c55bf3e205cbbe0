/*
 * parts.c: which kernels of a text are compiled, and which of them apart. In: the recipe, whose kernels
 * are known. Out: how many parts there are, the part of each launch's kernel, and in the config those that
 * are not 0, and which kernels are launched (common/base.cuh says how a template asks): a file has others
 * beside them, which would take time for nothing. The kernels that take long stand alone, all others are part
 * 0: every part costs the front end again, a tenth of a second at most.
 */
#include "gen/emit/emit.h"
#include "gen/base/text.h"

#include <string.h>

/* Roles of kernels that take more than half of the time that the rest of their text takes. */
static const char *const LONG_ROLES[] = {"bwd",      "fwd",    "bwd_rows", "rows",
                                         "lookback", "points", "gather",   "longs"};
enum { LONG_ROLE_COUNT = sizeof LONG_ROLES / sizeof *LONG_ROLES };
_Static_assert((int)LONG_ROLE_COUNT < (int)MAX_COMPILED_PARTS, "a part for each, and one for all others");

static int role_number(const struct launch *launch, const struct ir *ir, lathe_dtype dtype)
{
    char entry[NAME_MAX_BYTES];
    for (int r = 0; r < LONG_ROLE_COUNT; r++) {
        recipe_entry_name(ir, dtype, LONG_ROLES[r], entry, sizeof entry);
        if (strcmp(launch->entry, entry) == 0)
            return r;
    }
    return -1;
}

/* Kernels that are launched several times are named once. */
static void emit_launched(struct text_buf *config, const struct ir *ir, lathe_dtype dtype,
                          const struct source *source)
{
    char before_role[NAME_MAX_BYTES];
    recipe_entry_name(ir, dtype, "", before_role, sizeof before_role);
    text_add(config, "#define LATHE_KERNELS 1\n");
    for (int i = 0; i < source->n_launches; i++) {
        const char *entry = source->launch[i].entry;
        bool named = false;
        for (int k = 0; k < i && !named; k++)
            named = strcmp(source->launch[k].entry, entry) == 0;
        if (!named)
            text_add(config, "#define LATHE_KERNEL_%s 1\n", entry + strlen(before_role));
    }
}

void emit_compiled_parts(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, struct source *out)
{
    int role[MAX_LAUNCHES];
    int part[LONG_ROLE_COUNT] = {0};
    bool here[LONG_ROLE_COUNT] = {false};
    bool others = false;
    for (int i = 0; i < out->n_launches; i++) {
        role[i] = role_number(&out->launch[i], ir, dtype);
        if (role[i] < 0)
            others = true;
        else
            here[role[i]] = true;
    }
    emit_launched(config, ir, dtype, out);
    out->n_parts = others ? 1 : 0;
    for (int r = 0; r < LONG_ROLE_COUNT; r++) {
        part[r] = out->n_parts;
        if (here[r] && part[r] > 0)
            text_add(config, "#define LATHE_PART_%s %d\n", LONG_ROLES[r], part[r]);
        out->n_parts += here[r];
    }
    for (int i = 0; i < out->n_launches; i++)
        out->launch[i].part = role[i] < 0 ? 0 : part[role[i]];
}
