/*
 * parts.c: which kernels of a text are compiled, and which of them apart. In: the recipe, whose kernels
 * are known. Out: how many parts there are, the part of each launch's kernel, and in the config which kernels
 * are launched (common/base.cuh says how a template asks): a file has others beside them, which would take
 * time for nothing. The kernels that take long stand alone, all others are part 0: every part costs the front
 * end again, a tenth of a second at most.
 */
#include "gen/emit/emit.h"
#include "gen/base/text.h"

#include <stdio.h>
#include <string.h>

/* Roles of kernels that take more than half of the time that the rest of their text takes. The config says
   which part is theirs. */
static const char *const LONG_ROLES[] = {"bwd",      "fwd",    "bwd_rows", "rows",
                                         "lookback", "points", "gather",   "longs"};
/* Roles of kernels several of which are in one text and take long, the longest first. Options of the compiler
   say which part is theirs, so that a text does not change with how it is cut. */
static const char *const SEVERAL_LONG_ROLES[] = {"bwd_chunks",
                                                 "bwd_chunks_low_rank",
                                                 "bwd_chunks_dplr",
                                                 "bwd_prepare_low_rank",
                                                 "bwd_states",
                                                 "bwd_states_dplr",
                                                 "bwd_prepare",
                                                 "prepare",
                                                 "prepare_low_rank",
                                                 "chunks",
                                                 "states",
                                                 "bwd_columns",
                                                 "bwd_back",
                                                 "bwd_again",
                                                 "bwd_inverse",
                                                 "inverse",
                                                 "bwd_keys",
                                                 "bwd_queries",
                                                 "decode"};
enum {
    LONG_ROLE_COUNT = sizeof LONG_ROLES / sizeof *LONG_ROLES,
    SEVERAL_LONG_ROLE_COUNT = sizeof SEVERAL_LONG_ROLES / sizeof *SEVERAL_LONG_ROLES
};
_Static_assert((int)LONG_ROLE_COUNT < (int)MAX_COMPILED_PARTS, "a part for each, and one for all others");

/* Kernels that are launched several times are named once. */
static void emit_launched(struct text_buf *config, const char *const *role, int n)
{
    text_add(config, "#define LATHE_KERNELS 1\n");
    for (int i = 0; i < n; i++) {
        bool named = false;
        for (int k = 0; k < i && !named; k++)
            named = strcmp(role[k], role[i]) == 0;
        if (!named)
            text_add(config, "#define LATHE_KERNEL_%s 1\n", role[i]);
    }
}

/* Gives launches of that role, which are in part 0, another part. False: there are none. */
static bool move(const char *const *role, const char *wanted, int part, struct source *out)
{
    bool here = false;
    for (int i = 0; i < out->n_launches; i++)
        if (strcmp(role[i], wanted) == 0) {
            out->launch[i].part = part;
            here = true;
        }
    return here;
}

static bool is_long(const char *role)
{
    bool found = false;
    for (int r = 0; r < LONG_ROLE_COUNT && !found; r++)
        found = strcmp(role, LONG_ROLES[r]) == 0;
    return found;
}

/* Are there kernels of other roles in part 0? */
static bool has_others(const char *const *role, const char *than, const struct source *out)
{
    bool found = false;
    for (int i = 0; i < out->n_launches && !found; i++)
        found = out->launch[i].part == 0 && strcmp(role[i], than) != 0;
    return found;
}

static void cut_named(struct text_buf *config, const char *const *role, struct source *out)
{
    out->n_parts = 0;
    for (int i = 0; i < out->n_launches; i++) {
        out->launch[i].part = 0;
        if (!is_long(role[i]))
            out->n_parts = 1;
    }
    for (int r = 0; r < LONG_ROLE_COUNT; r++) {
        const int part = out->n_parts;
        if (!move(role, LONG_ROLES[r], part, out))
            continue;
        if (part > 0)
            text_add(config, "#define LATHE_PART_%s %d\n", LONG_ROLES[r], part);
        out->n_parts++;
    }
}

/* Part 0 keeps one of them where it would have none else. */
static void cut_by_options(const char *const *role, struct source *out)
{
    for (int r = 0; r < SEVERAL_LONG_ROLE_COUNT && out->n_parts < MAX_COMPILED_PARTS; r++) {
        const char *const one = SEVERAL_LONG_ROLES[r];
        if (has_others(role, one, out) && move(role, one, out->n_parts, out))
            snprintf(out->part_role[out->n_parts++], ROLE_BYTES, "%s", one);
    }
}

void emit_compiled_parts(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, struct source *out)
{
    const char *role[MAX_LAUNCHES];
    char before_role[NAME_MAX_BYTES];
    recipe_entry_name(ir, dtype, "", before_role, sizeof before_role);
    for (int i = 0; i < out->n_launches; i++)
        role[i] = out->launch[i].entry + strlen(before_role);
    emit_launched(config, role, out->n_launches);
    cut_named(config, role, out);
    cut_by_options(role, out);
}
