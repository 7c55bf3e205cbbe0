/*
 * smem.c: the planner's bytes of dynamic shared memory as text, and that the templates' layouts have as many.
 * In: the recipe, whose kernels are known. Out: a constant for each kernel that asks for some, in the config,
 * and an assertion that compares it with `smem_bytes::ROLE`, which the template of that kernel defines: a
 * wrong number does not compile.
 */
#include "gen/emit/emit.h"
#include "gen/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The role of launch `i`, if its kernel asks for shared memory and no launch before it is of the same kernel;
   else NULL. */
static const char *asking_role(const struct ir *ir, lathe_dtype dtype, const struct source *s, int i)
{
    char before_role[NAME_MAX_BYTES];
    recipe_entry_name(ir, dtype, "", before_role, sizeof before_role);
    for (int k = 0; k < i; k++)
        if (strcmp(s->launch[k].entry, s->launch[i].entry) == 0)
            return NULL;
    return s->launch[i].smem_bytes > 0 ? s->launch[i].entry + strlen(before_role) : NULL;
}

static void add_constant(struct text_buf *t, const char *role)
{
    text_add(t, "SMEM_BYTES_");
    for (const char *c = role; *c; c++)
        text_add(t, "%c", toupper((unsigned char)*c));
}

void emit_smem_bytes(struct text_buf *config, const struct ir *ir, lathe_dtype dtype, const struct source *s)
{
    bool any = false;
    for (int i = 0; i < s->n_launches; i++) {
        const char *role = asking_role(ir, dtype, s, i);
        if (!role)
            continue;
        if (!any)
            text_add(config, "\nnamespace cfg { // bytes of dynamic shared memory that launches ask for\n");
        any = true;
        text_add(config, "constexpr int ");
        add_constant(config, role);
        text_add(config, " = %d;\n", s->launch[i].smem_bytes);
    }
    if (any)
        text_add(config, "} // namespace cfg\n");
}

void emit_smem_asserts(struct text_buf *t, const struct ir *ir, lathe_dtype dtype, const struct source *s)
{
    for (int i = 0; i < s->n_launches; i++) {
        const char *role = asking_role(ir, dtype, s, i);
        if (!role)
            continue;
        text_add(t, "static_assert(smem_bytes::%s == cfg::", role);
        add_constant(t, role);
        text_add(t, ", \"%s: its layout has other bytes than its launch asks for\");\n", role);
    }
}
