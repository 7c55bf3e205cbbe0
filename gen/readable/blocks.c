/*
 * blocks.c: braces that folding left around a statement or more. In: units. Out: the text without them, and
 * indented anew. They stay where names of their own could meet others: where something is declared in them,
 * unless they are all that the block around them has.
 */
#include "gen/base/text.h"
#include "gen/readable/fold.h"
#include "gen/readable/units.h"

#include <stdlib.h>
#include <string.h>

enum { INDENT = 4 };

static bool is_no_code(const struct tokens *t, int i)
{
    return t->token[i].kind == TOKEN_COMMENT || t->token[i].kind == TOKEN_DIRECTIVE;
}

static int code_before(const struct tokens *t, int i)
{
    i--;
    while (i >= 0 && is_no_code(t, i))
        i--;
    return i;
}

static int code_from(const struct tokens *t, int i)
{
    while (i < t->n && is_no_code(t, i))
        i++;
    return i;
}

static bool is_one_of(const struct tokens *t, int i, const char *const *list)
{
    for (; *list; list++)
        if (token_is(t, i, *list))
            return true;
    return false;
}

static bool is_word(const struct tokens *t, int i)
{
    return i < t->n && t->token[i].kind == TOKEN_WORD;
}

static const char *const WALKS[] = {"if", "for", "while", "switch", "do", NULL};

/* ---- what a block is ---------------------------------------------------------------------------------- */

/* A block of statements, where a statement may stand; and not the body of anything, nor a list of values. */
static bool is_bare_block(const struct tokens *t, int open)
{
    static const char *const ENDS[] = {";", "{", "}", NULL};
    const int first = code_from(t, open + 1);
    const int last = code_before(t, t->token[open].pair);
    return is_one_of(t, code_before(t, open), ENDS) && last > open &&
           (token_is(t, last, ";") || (token_is(t, last, "}") && is_one_of(t, first, WALKS)));
}

static int end_of_statement(const struct tokens *t, int i, int end)
{
    while (i < end && !token_is(t, i, ";") && !token_is(t, i, "{"))
        i = token_behind(t, i);
    return token_is(t, i, "{") ? token_behind(t, i) : i + 1;
}

/* Does a statement declare a name: two words, or a type's mark and a word, one behind the other? */
static bool declares_name(const struct tokens *t, int i, int end)
{
    static const char *const JUMPS[] = {"return", "break", "continue", "goto", "else", "asm", NULL};
    if (is_one_of(t, i, WALKS) || is_one_of(t, i, JUMPS))
        return false;
    if (is_word(t, i) && (token_is(t, i + 1, "&") || token_is(t, i + 1, "*") ||
                          (token_is(t, i + 1, "(") && (token_is(t, i + 2, "&") || token_is(t, i + 2, "*")))))
        return true;
    for (; i < end && !token_is(t, i, ";") && !token_is(t, i, "="); i = token_behind(t, i))
        if (is_word(t, i + 1) && (is_word(t, i) || token_is(t, i, ">")) && !token_is(t, i - 1, "-") &&
            !token_is(t, i, "template"))
            return true;
    return false;
}

static bool declares_any(const struct tokens *t, int open)
{
    const int end = t->token[open].pair;
    for (int i = code_from(t, open + 1); i < end; i = code_from(t, end_of_statement(t, i, end)))
        if (declares_name(t, i, end))
            return true;
    return false;
}

/* All that the block around it has, whose head, as far as the unit's, does not write a word that stands here
 * behind a word or a mark of a type. */
static bool is_alone(const struct units *u, int unit, int open)
{
    const struct tokens *t = u->tokens;
    const int around = code_before(t, open);
    const int close = t->token[open].pair;
    if (!token_is(t, around, "{") || code_from(t, close + 1) != t->token[around].pair)
        return false;
    for (int i = open + 1; i < close; i++)
        for (int k = u->unit[unit].head; is_word(t, i) && is_word(t, i - 1) && k < around; k++)
            if (t->token[k].word == t->token[i].word)
                return false;
    for (int i = open + 1; i < close; i++)
        for (int k = u->unit[unit].head; is_word(t, i) && k < around; k++)
            if (t->token[k].word == t->token[i].word &&
                (token_is(t, i - 1, "&") || token_is(t, i - 1, "*") || token_is(t, i - 1, ">")) &&
                (token_is(t, i + 1, "=") || token_is(t, i + 1, ";") || token_is(t, i + 1, "[")))
                return false;
    return true;
}

static bool is_needless(const struct units *u, int open)
{
    const int unit = unit_at(u, open);
    return unit >= 0 && u->unit[unit].is_function && open > u->unit[unit].head &&
           is_bare_block(u->tokens, open) && (!declares_any(u->tokens, open) || is_alone(u, unit, open));
}

/* ---- the text without them ---------------------------------------------------------------------------- */

struct unwrapped {
    bool *dropped; /* [n] braces */
    int *depth;    /* [n + 1] how many needless blocks a token stands in */
};

static void find_needless(const struct units *u, struct unwrapped *w)
{
    const struct tokens *t = u->tokens;
    for (int i = 0; i < t->n; i++) {
        if (!token_is(t, i, "{") || !is_needless(u, i))
            continue;
        w->dropped[i] = w->dropped[t->token[i].pair] = true;
        for (int k = i + 1; k < t->token[i].pair; k++)
            w->depth[k]++;
    }
}

/* The blanks before a token, with the indentation behind their last line end less by some levels. */
static void write_gap(struct text_buf *out, const char *text, size_t size, int levels)
{
    size_t line = size;
    while (line > 0 && text[line - 1] != '\n')
        line--;
    const size_t most = size - line;
    const size_t less = line > 0 ? (size_t)(INDENT * levels) : 0;
    text_add_bytes(out, text, line);
    text_add_bytes(out, text + line, most - (less < most ? less : most));
}

/* What stands behind a brace that goes takes its place. */
static void write(const struct tokens *t, const struct unwrapped *w, struct text_buf *out)
{
    int gap = 0; /* the token whose blanks come next */
    for (int i = 0; i < t->n; i++) {
        const bool opens = w->dropped[i] && t->token[i].pair > i;
        if (t->token[i].kind == TOKEN_DIRECTIVE)
            gap = i;
        if (!w->dropped[i]) {
            const size_t from = gap > 0 ? t->token[gap - 1].at + t->token[gap - 1].size : 0;
            write_gap(out, t->text + from, t->token[gap].at - from, w->depth[gap]);
            text_add_bytes(out, t->text + t->token[i].at, t->token[i].size);
        }
        gap = opens ? gap : i + 1;
    }
    text_add(out, "\n");
}

bool unwrap_blocks(const struct units *u, struct text_buf *out)
{
    const size_t n = (size_t)u->tokens->n + 1;
    struct unwrapped w = {.dropped = calloc(n, sizeof(bool)), .depth = calloc(n, sizeof(int))};
    const bool good = w.dropped && w.depth;
    if (good) {
        find_needless(u, &w);
        write(u->tokens, &w, out);
    }
    free(w.dropped);
    free(w.depth);
    return good && !out->failed;
}
