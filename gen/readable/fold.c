/*
 * fold.c: each `if` whose condition the text decides. In: a text that compiles. Out: the same without the
 * branches that are not taken. A branch that is taken keeps its braces, since names of its own may stand in
 * them.
 */
#include "gen/readable/fold.h"
#include "gen/base/text.h"
#include "gen/readable/constants.h"

#include <stdlib.h>

struct folder {
    const struct tokens *t;
    const struct units *u;
    bool *dropped; /* [n] tokens */
    int *gap;      /* [n] the token whose blanks stand before this one */
};

static bool is(const struct folder *f, int i, const char *text)
{
    return token_is(f->t, i, text);
}

static bool is_no_code(const struct folder *f, int i)
{
    return i < f->t->n && (f->t->token[i].kind == TOKEN_COMMENT || f->t->token[i].kind == TOKEN_DIRECTIVE);
}

static int skip_no_code(const struct folder *f, int i)
{
    while (is_no_code(f, i))
        i++;
    return i;
}

/* Behind the `else` branch of an `if` whose branch ends there; `end` where it has none. */
static int end_of_statement(const struct folder *f, int i);

static int end_of_if(const struct folder *f, int i)
{
    i += is(f, i + 1, "constexpr") ? 2 : 1;
    const int end = end_of_statement(f, token_behind(f->t, i));
    const int next = skip_no_code(f, end);
    return is(f, next, "else") ? end_of_statement(f, next + 1) : end;
}

static int end_of_statement(const struct folder *f, int i)
{
    i = skip_no_code(f, i);
    if (is(f, i, "{"))
        return token_behind(f->t, i);
    if (is(f, i, "if"))
        return end_of_if(f, i);
    if (is(f, i, "for") || is(f, i, "while") || is(f, i, "switch"))
        return end_of_statement(f, token_behind(f->t, i + 1));
    if (is(f, i, "do"))
        i = end_of_statement(f, i + 1);
    while (i < f->t->n && !is(f, i, ";"))
        i = token_behind(f->t, i);
    return i < f->t->n ? i + 1 : i;
}

static void drop(struct folder *f, int first, int last)
{
    for (int i = first; i < last; i++)
        f->dropped[i] = true;
}

/* What goes before a statement alone: a loop, a branch. There a statement has to stay. */
static bool is_needed(const struct folder *f, int i)
{
    i--;
    while (i >= 0 && is_no_code(f, i))
        i--;
    return is(f, i, ")") || is(f, i, "do");
}

/* An `if` at i, whose value is known. */
static void fold_one(struct folder *f, int i, bool taken)
{
    const int branch = token_behind(f->t, is(f, i + 1, "constexpr") ? i + 2 : i + 1);
    const int end = end_of_statement(f, branch);
    const int otherwise = skip_no_code(f, end);
    const bool has_else = is(f, otherwise, "else");
    const int last = has_else ? end_of_statement(f, otherwise + 1) : end;
    const bool behind_else = i > 0 && is(f, i - 1, "else");
    if (branch >= f->t->n || (!taken && !has_else && is_needed(f, i)))
        return;
    if (taken) {
        drop(f, i, branch);
        f->gap[branch] = f->gap[i];
        drop(f, end, last);
    } else if (has_else && otherwise + 1 < f->t->n) {
        drop(f, i, otherwise + 1);
        f->gap[otherwise + 1] = f->gap[i];
    } else {
        drop(f, behind_else ? i - 1 : i, last);
    }
}

static void write(const struct folder *f, struct text_buf *out)
{
    const struct token *token = f->t->token;
    for (int i = 0; i < f->t->n; i++) {
        const int gap = f->gap[i];
        const size_t from = gap > 0 ? token[gap - 1].at + token[gap - 1].size : 0;
        if (f->dropped[i])
            continue;
        text_add_bytes(out, f->t->text + from, token[gap].at - from);
        text_add_bytes(out, f->t->text + token[i].at, token[i].size);
    }
    text_add(out, "\n");
}

static void fold_all(struct folder *f)
{
    for (int i = 0; i < f->t->n; i++)
        f->gap[i] = i;
    for (int i = 0; i + 3 < f->t->n; i++) {
        const int open = is(f, i + 1, "constexpr") ? i + 2 : i + 1;
        if (f->dropped[i] || !is(f, i, "if") || !is(f, open, "("))
            continue;
        const int unit = unit_at(f->u, i);
        const struct value v = unit < 0 ? (struct value){.known = false}
                                        : constant_value(f->u, unit, open + 1, f->t->token[open].pair);
        if (v.known)
            fold_one(f, i, v.number != 0);
    }
}

bool fold_branches(const struct units *u, struct text_buf *out)
{
    const size_t n = (size_t)u->tokens->n + 1;
    struct folder f = {
        .t = u->tokens, .u = u, .dropped = calloc(n, sizeof(bool)), .gap = calloc(n, sizeof(int))};
    const bool good = f.dropped && f.gap;
    if (good) {
        drop_conditions(u, f.dropped);
        drop_forms(u, f.dropped);
        fold_all(&f);
        write(&f, out);
    }
    free(f.dropped);
    free(f.gap);
    return good && !out->failed;
}
