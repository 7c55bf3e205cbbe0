/*
 * problem_text.c: a problem as text: all of it for reports, or the part that is compiled in, as words of a
 * command line. In: a signature and a problem. Out: text that problem_parse reads back, in the caller's
 * buffer (text_free).
 */
#include "gen/arguments/problem.h"
#include "gen/base/text.h"

#include <inttypes.h>
#include <string.h>

const char *sym_name(const struct signature *sig, int sym)
{
    return lathe__sym_text(sig, sym);
}

static void add_size(const struct signature *sig, const struct problem *p, int sym, struct text_buf *out)
{
    if (p->dim[sym] >= 0)
        text_add(out, ",%s=%" PRId64, sym_name(sig, sym), p->dim[sym]);
}

/* Where it is not the usual one. */
static void add_dtype(const struct signature *sig, const struct problem *p, int i, struct text_buf *out)
{
    if (lathe__names_dtype(sig, i) && p->arg_dtype[i] != (uint8_t)p->dtype[DTYPE_USUAL])
        text_add(out, ",%s=%s", sig->arg[i].name, lathe_dtype_text((lathe_dtype)p->arg_dtype[i]));
}

void problem_text(const struct signature *sig, const struct problem *p, struct text_buf *out)
{
    text_add(out, "dtype=%s", lathe_dtype_text(p->dtype[DTYPE_USUAL]));
    for (int i = 0; i < sig->n_args; i++)
        if (lathe__has_role_dtype(&sig->arg[i]))
            add_dtype(sig, p, i, out);
    for (int i = 0; i < sig->n_sizes; i++)
        if (!(sig->size[i].implied && lathe__size_follows(sig, p, i)))
            add_size(sig, p, sig->size[i].sym, out);
}

/* Of arguments whose dtype is free, or that may be left out. */
static void add_choice(const struct signature *sig, const struct problem *p, int i, struct text_buf *out)
{
    const struct sig_arg *a = &sig->arg[i];
    if (a->optional && a->presence_built && !a->rare && !arg_in(p->present, i))
        text_add(out, ",%s=none", a->name);
    else if (a->rare && arg_in(p->present, i))
        text_add(out, ",%s=%s", a->name, lathe_dtype_text(lathe__rare_dtype(a, p->arg_dtype[i])));
    else
        add_dtype(sig, p, i, out);
}

static void add_set(const struct signature *sig, const char *what, uint64_t set, struct text_buf *out)
{
    bool first = true;
    for (int i = 0; i < sig->n_args; i++) {
        if (!arg_in(set, i))
            continue;
        text_add(out, "%s%s%s%s", first ? "," : "+", first ? what : "", first ? "=" : "", sig->arg[i].name);
        first = false;
    }
}

void problem_built_text(const struct signature *sig, const struct problem *p, struct text_buf *out)
{
    text_add(out, "dtype=%s", lathe_dtype_text(p->dtype[DTYPE_USUAL]));
    for (int i = 0; i < sig->n_sizes; i++) {
        const struct sig_size *s = &sig->size[i];
        const bool follows = s->same_as != SYM_ONE && lathe__size_follows(sig, p, i);
        if (s->named || (s->built && !follows))
            add_size(sig, p, s->sym, out);
    }
    for (int i = 0; i < sig->n_args; i++)
        add_choice(sig, p, i, out);
    add_set(sig, "unaligned", p->unaligned, out);
    add_set(sig, "folded", p->folded, out);
    if (p->deterministic)
        text_add(out, ",deterministic=%s", lathe__determinism_text(p->deterministic));
}

/* As one word of a shell. */
static void add_quoted(struct text_buf *out, const char *word)
{
    static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,=+-:@%";
    if (word[0] && word[strspn(word, PLAIN)] == '\0') {
        text_add(out, "%s", word);
        return;
    }
    text_add(out, "'");
    for (; *word; word++) {
        if (*word == '\'')
            text_add(out, "'\\''");
        else
            text_add_bytes(out, word, 1);
    }
    text_add(out, "'");
}

void spec_words(const char *spec, const struct signature *sig, const struct problem *p, struct text_buf *out)
{
    add_quoted(out, spec);
    text_add(out, " --problem ");
    problem_built_text(sig, p, out);
}
