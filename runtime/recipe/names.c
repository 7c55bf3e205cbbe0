/*
 * names.c: names of passes and of sizes, and arguments by their names. Pure.
 */
#include <string.h>

#include "runtime/recipe/bind.h"

static const char *const SYM_TEXT[] = {
#define SYM_TEXT_ROW(id, text, what) text,
    SYM_MAP(SYM_TEXT_ROW)
#undef SYM_TEXT_ROW
};

const char *lathe__pass_text(lathe_pass pass)
{
    return pass == LATHE_BACKWARD ? "backward" : pass == LATHE_COMBINE ? "combine" : "forward";
}

const char *lathe__sym_text(const struct signature *sig, int sym)
{
    return sym < SYM_FREE ? SYM_TEXT[sym] : sig->free_name[sym - SYM_FREE];
}

int lathe__arg_find(const struct signature *sig, const char *name, int from)
{
    for (int k = 0; k < sig->n_args; k++) {
        const int i = from + k < sig->n_args ? from + k : from + k - sig->n_args;
        if (strcmp(sig->arg[i].name, name) == 0)
            return i;
    }
    return -1;
}
