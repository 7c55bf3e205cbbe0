/*
 * emit_split.c: what kernels of attention's backward pass need to take large finals apart. In: lowered
 * formulas (backward.h) and the online function's step, which emit.c has written. Out: the
 * functions of templates/README.md from given_finals() on, as text.
 */
#include "gen/attention/emit/emit.h"
#include "gen/attention/backward.h"
#include "gen/base/text.h"

#include <stdio.h>

void split_name(struct emitter *e)
{
    int n = 0;
    for (int k = 0; k < MAX_STATE; k++) {
        char text[NODE_NAME_BYTES];
        if (!e->back->split[k].found)
            continue;
        snprintf(text, sizeof text, "high[%d]", n);
        scope_param(e, LEAF_HIGH + k, text);
        snprintf(text, sizeof text, "norm[%d]", n++);
        scope_param(e, LEAF_NORM + k, text);
    }
}

int split_roots(const struct backward *b, int *root)
{
    int n = 0;
    for (int k = 0; k < MAX_STATE; k++) {
        if (!b->split[k].found)
            continue;
        root[n++] = b->split[k].high;
        root[n++] = b->split[k].norm;
    }
    return n;
}

/* The finals as they are given, whichever kernel asks. */
static void emit_given(struct emitter *e)
{
    int n = 0;
    text_add(
        e->out,
        "    template <class PARAMS> DEV void given_finals(const PARAMS &p, const head &h, const row &r, "
        "float *final)\n    {\n");
    for (int k = 0; k < MAX_STATE; k++)
        if (e->back->split[k].found)
            text_add(e->out,
                     "        final[%d] = p.final%d[h.b * p.final%d_b + h.h * p.final%d_h + r.row * "
                     "p.final%d_t];\n",
                     n++, k, k, k, k);
    text_add(e->out, "    }\n");
}

static void emit_powers(struct emitter *e)
{
    int n = 0;
    text_add(e->out, "    static constexpr float SPLIT_POWER[] = {");
    for (int k = 0; k < MAX_STATE; k++) {
        char value[64];
        if (!e->back->split[k].found)
            continue;
        float_text(e->back->split[k].power, value, sizeof value);
        text_add(e->out, "%s%s", n++ ? ", " : "", value);
    }
    text_add(e->out, "};\n");
}

void emit_split(struct attention *a)
{
    struct emitter *e = a->e;
    int root[2 * MAX_STATE];
    char text[128];
    const int n = split_roots(e->back, root);
    text_add(e->out, "    static constexpr bool NORM = %s;\n", yes(back_has_norm(e)));
    if (n == 0)
        return;
    emit_powers(e);
    emit_given(e);
    text_add(e->out, "    DEV void split_finals(const state &s, " AT_PAIR
                     ", const row &r, float *high, float *norm)\n    {\n");
    name_static(a, true, false);
    name_states(a);
    emit_values(e, root, n);
    for (int i = 0; i < n; i++)
        text_add(e->out, "        %s[%d] = %s;\n", i % 2 ? "norm" : "high", i / 2,
                 node_text(e, root[i], text, sizeof text));
    text_add(e->out, "    }\n");
}
