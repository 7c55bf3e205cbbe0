/*
 * conditions.c: what stands between #if and #endif in a text whose macros are all its own. In: units. Out:
 * the tokens of what is not compiled, and of the directives around it, are dropped. Macros of compilers,
 * which begin with "__", are not decided.
 */
#include "gen/readable/fold.h"
#include "gen/readable/units.h"

#include <string.h>

enum answer { NO, YES, OPEN };

struct words { /* of a directive */
    const char *word[3];
    size_t size[3];
    int n;
};

static struct words words_of(const struct tokens *t, int directive)
{
    struct words w = {.n = 0};
    const struct token *token = &t->token[directive];
    size_t at = 0;
    while (w.n < 3 && next_word(t->text + token->at, token->size, &at, &w.word[w.n], &w.size[w.n]))
        w.n++;
    return w;
}

static bool reads(const struct words *w, int i, const char *text)
{
    return i < w->n && w->size[i] == strlen(text) && memcmp(w->word[i], text, w->size[i]) == 0;
}

static bool is_defined(const struct units *u, int before, const char *name, size_t size)
{
    const int word = tokens_word(u->tokens, name, size);
    for (int i = 0; i < before; i++)
        for (int k = 0; u->unit[i].kind == UNIT_DIRECTIVE && k < u->unit[i].n_names; k++)
            if (u->name[u->unit[i].name + k] == word)
                return true;
    return false;
}

/* Of LATHE_COMPILED(role): that kernel is launched, for which the generated text defines LATHE_KERNEL_role.
 */
static bool is_launched(const struct units *u, int before, const struct words *w)
{
    char name[64] = "LATHE_KERNEL_";
    const size_t n = strlen(name);
    if (w->n < 3 || n + w->size[2] >= sizeof name)
        return true;
    memcpy(name + n, w->word[2], w->size[2]);
    return is_defined(u, before, name, n + w->size[2]);
}

static enum answer answer_of(const struct units *u, int unit)
{
    const struct words w = words_of(u->tokens, u->unit[unit].head);
    const bool own = w.n >= 2 && !(w.size[1] > 2 && memcmp(w.word[1], "__", 2) == 0);
    if (own && w.n == 2 && (reads(&w, 0, "ifdef") || reads(&w, 0, "ifndef")))
        return is_defined(u, unit, w.word[1], w.size[1]) == reads(&w, 0, "ifdef") ? YES : NO;
    if (reads(&w, 0, "if") && reads(&w, 1, "LATHE_COMPILED"))
        return is_launched(u, unit, &w) ? YES : NO;
    return OPEN;
}

static bool is(const struct units *u, int unit, const char *word)
{
    if (u->unit[unit].kind != UNIT_DIRECTIVE)
        return false;
    const struct words w = words_of(u->tokens, u->unit[unit].head);
    return reads(&w, 0, word);
}

static bool opens(const struct units *u, int unit)
{
    return is(u, unit, "if") || is(u, unit, "ifdef") || is(u, unit, "ifndef");
}

/* The #else of an #if, or its #endif, from there on. */
static int next_branch(const struct units *u, int unit)
{
    int depth = 0;
    for (int i = unit + 1; i < u->n; i++) {
        if (depth == 0 && (is(u, i, "else") || is(u, i, "elif") || is(u, i, "endif")))
            return i;
        depth += opens(u, i) ? 1 : is(u, i, "endif") ? -1 : 0;
    }
    return -1;
}

static void drop(const struct units *u, int first, int last, bool *dropped)
{
    for (int i = first; i < last; i++)
        for (int k = u->unit[i].first; k < u->unit[i].last; k++)
            dropped[k] = true;
}

void drop_conditions(const struct units *u, bool *dropped)
{
    for (int i = 0; i < u->n; i++) {
        const enum answer answer = opens(u, i) ? answer_of(u, i) : OPEN;
        const int middle = answer == OPEN ? -1 : next_branch(u, i);
        if (middle < 0 || is(u, middle, "elif") || dropped[u->unit[i].head])
            continue;
        const int end = is(u, middle, "else") ? next_branch(u, middle) : middle;
        if (end < 0)
            continue;
        drop(u, i, answer == YES ? i + 1 : middle, dropped);
        drop(u, middle, answer == YES ? end : middle + 1, dropped);
        drop(u, end, end + 1, dropped);
    }
}
