/*
 * recipe.c: kernels and buffers of a launch recipe, of every kind of operator. In: what one more is
 * to be. Out: its place in the recipe, which its caller fills in; where there is no room, e->out fails, and
 * says so.
 */
#include "gen/emit/emit.h"
#include "gen/base/text.h"

#include <stdio.h>
#include <string.h>

/* An entry is named SPEC_DTYPE_ROLE. A long spec name is cut; a role never is: it tells the kernels of a spec
 * apart. */
enum { SPEC_LETTERS = 20, ROLE_LETTERS = NAME_MAX_BYTES - SPEC_LETTERS - (int)sizeof "_bf16_" };

void recipe_entry_name(const struct ir *ir, lathe_dtype dtype, const char *role, char *out, size_t size)
{
    snprintf(out, size, "%.*s_%s_%s", SPEC_LETTERS, ir->name, lathe_dtype_text(dtype), role);
}

struct launch *add_launch(struct source *out, const struct emitter *e, const char *role, int threads)
{
    static struct launch none; /* written where there is no room, never read */
    const bool full = out->n_launches == MAX_LAUNCHES;
    if (full)
        text_exceed(e->out, MAX_LAUNCHES, "kernels");
    struct launch *l = full ? &none : &out->launch[out->n_launches++];
    *l = (struct launch){.threads = threads};
    if (strlen(role) > ROLE_LETTERS)
        text_exceed(e->out, ROLE_LETTERS, "letters in the role of a kernel");
    recipe_entry_name(e->w, e->problem->dtype[DTYPE_USUAL], role, l->entry, sizeof l->entry);
    return l;
}

int add_buffer(struct source *out, const struct emitter *e, struct product bytes)
{
    const bool full = out->n_buffers == MAX_BUFFERS;
    if (full)
        text_exceed(e->out, MAX_BUFFERS, "buffers");
    const int buffer = full ? MAX_BUFFERS - 1 : out->n_buffers++;
    out->buffer[buffer] = (struct buffer){.bytes = bytes};
    return buffer;
}
