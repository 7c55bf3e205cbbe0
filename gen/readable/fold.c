/*
 * fold.c: each `if` whose condition the text decides. In: a text that compiles. Out: the same without the
 * branches that are not taken. A branch that is taken keeps its braces, since names of its own may stand in
 * them.
 */
#include "gen/readable/fold.h"
#include "gen/base/text.h"
#include "gen/readable/constants.h"
#include "gen/readable/lists.h"

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

/* ---- lambdas: what they capture is laid out in the order in which it is named first ------------------- */

/* The '[' of the innermost lambda that token i stands in; -1. */
static int lambda_around(const struct folder *f, int unit, int i)
{
    for (i--; i > f->u->unit[unit].head; i--) {
        if (f->t->token[i].pair >= 0 && f->t->token[i].pair < i) {
            i = f->t->token[i].pair;
            continue;
        }
        if (!is(f, i, "{"))
            continue;
        int before = i - 1;
        while (before > 0 && !is(f, before, ")") && !is(f, before, "]") && !is(f, before, ";") &&
               !is(f, before, "{"))
            before--;
        if (is(f, before, ")"))
            before = f->t->token[before].pair - 1;
        while (is(f, before, ">") ||
               (before > 0 && !is(f, before, "]") && f->t->token[before].kind == TOKEN_WORD) ||
               is(f, before, "<") || is(f, before, ","))
            before--;
        if (is(f, before, "]") && is(f, f->t->token[before].pair + 1, "&"))
            return f->t->token[before].pair;
    }
    return -1;
}

/* Does the function declare this name ahead of a place? */
static bool is_local(const struct folder *f, int unit, int word, int place)
{
    static const char *const BEHIND[] = {",", ")", "=", ";", "[", "{", NULL};
    for (int i = f->u->unit[unit].head + 1; i < place; i++) {
        const bool type = f->t->token[i - 1].kind == TOKEN_WORD || is(f, i - 1, "&") || is(f, i - 1, "*") ||
                          is(f, i - 1, ">");
        for (int k = 0; f->t->token[i].word == word && type && BEHIND[k]; k++)
            if (is(f, i + 1, BEHIND[k]) && !is(f, i - 1, "return"))
                return true;
    }
    return false;
}

/* Would a lambda capture otherwise without tokens first .. last - 1? */
static bool changes_captures(const struct folder *f, int first, int last)
{
    const int unit = unit_at(f->u, first);
    for (int lambda = lambda_around(f, unit, first); lambda >= 0; lambda = lambda_around(f, unit, lambda))
        for (int i = first; i < last; i++) {
            const int word = f->t->token[i].word;
            bool named = word < 0;
            for (int k = lambda; k < first && !named; k++)
                named = f->t->token[k].word == word && !f->dropped[k];
            if (!named && is_local(f, unit, word, lambda))
                return true;
        }
    return false;
}

/* ---- branches ----------------------------------------------------------------------------------------- */

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
    if (taken ? changes_captures(f, end, last) : changes_captures(f, branch, end))
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

/* ---- choices: `return CONDITION ? A : B;` and `TYPE x = CONDITION ? A : B;`, whose types are said ------ */

/* The token behind the `=` or the `return` that a choice with its '?' at i begins with; -1: elsewhere. */
static int start_of_choice(const struct folder *f, int i)
{
    for (i--; i > 0; i--) {
        if (f->t->token[i].pair >= 0 && f->t->token[i].pair < i) {
            i = f->t->token[i].pair;
            continue;
        }
        if (is(f, i, "return"))
            return i + 1;
        const bool compares = is(f, i - 1, "=") || is(f, i - 1, "!") || is(f, i - 1, "<") ||
                              is(f, i - 1, ">") || is(f, i + 1, "=");
        if (is(f, i, "=") && !compares)
            return f->t->token[i - 1].kind == TOKEN_WORD && f->t->token[i - 2].kind == TOKEN_WORD &&
                           !is(f, i - 2, "auto")
                       ? i + 1
                       : -1;
        if (f->t->token[i].pair >= 0 || is(f, i, ";") || is(f, i, ",") || is(f, i, "?") || is(f, i, ":"))
            if (!(is(f, i, ":") && (is(f, i - 1, ":") || is(f, i + 1, ":"))))
                return -1;
    }
    return -1;
}

/* The ':' of a choice, from behind its '?' on. */
static int middle_of_choice(const struct folder *f, int i)
{
    int depth = 0;
    for (; i < f->t->n && !is(f, i, ";"); i = token_behind(f->t, i)) {
        const bool colon = is(f, i, ":") && !is(f, i - 1, ":") && !is(f, i + 1, ":");
        if (colon && depth == 0)
            return i;
        depth += is(f, i, "?") ? 1 : colon ? -1 : 0;
    }
    return -1;
}

/* Is this choice what `<TYPE NAME =` or `, TYPE NAME =` gives a parameter? */
static bool is_of_parameter(const struct folder *f, int start)
{
    const int before = start - 4;
    return before >= 0 && is(f, start - 1, "=") && (is(f, before, "<") || is(f, before, ","));
}

/* What ends a choice with its ':' at i: a ';', the ',' in front of the next variable, or the bracket around
 * it. -1: a ',' may stand between '<' and '>', and a '>' may end the parameters that the choice stands in. */
static int end_of_choice(const struct folder *f, int start, int i)
{
    const bool parameter = is_of_parameter(f, start);
    bool angles = parameter;
    for (; i < f->t->n && !is(f, i, ";"); i = token_behind(f->t, i)) {
        const int pair = f->t->token[i].pair;
        if (pair >= 0 && pair < i)
            return i;
        if (is(f, i, ",") && !angles)
            return i;
        if (is(f, i, ",") || (is(f, i, ">") && parameter))
            return -1;
        angles |= is(f, i, "<");
    }
    return i;
}

static void fold_choices(struct folder *f)
{
    for (int i = 1; i + 1 < f->t->n; i++) {
        const int start = is(f, i, "?") && !f->dropped[i] ? start_of_choice(f, i) : -1;
        const int unit = start < 0 ? -1 : unit_at(f->u, i);
        const int middle = unit < 0 ? -1 : middle_of_choice(f, i + 1);
        const struct value v =
            middle < 0 ? (struct value){.known = false} : constant_value(f->u, unit, start, i);
        const int end = v.known ? end_of_choice(f, start, middle) : -1;
        const int first = v.number ? i + 1 : middle + 1;
        if (end < 0 || f->dropped[start] ||
            (v.number ? changes_captures(f, middle, end) : changes_captures(f, i, middle)))
            continue;
        drop(f, start, first);
        f->gap[first] = f->gap[start];
        if (v.number)
            drop(f, middle, end);
    }
}

/* ---- calls of what does nothing ----------------------------------------------------------------------- */

/* All functions of that name have empty bodies. */
static bool does_nothing(const struct folder *f, int word)
{
    int n = 0;
    for (int i = 0; i < f->u->n; i++) {
        const struct unit *x = &f->u->unit[i];
        if (!declares(f->u, x, word))
            continue;
        const int close = x->last - 1 - (f->t->token[x->last - 1].kind == TOKEN_COMMENT);
        if (!x->is_function || !is(f, close, "}") || !is(f, close - 1, "{"))
            return false;
        n++;
    }
    return n > 0;
}

/* Behind the ';' of `a.b::name<...>(...);` that begins at i, whose arguments read and compute at most. -1. */
static int end_of_idle_call(const struct folder *f, int i)
{
    int name = i;
    while (f->t->token[name].kind == TOKEN_WORD &&
           (is(f, name + 1, ".") || (is(f, name + 1, ":") && is(f, name + 2, ":"))))
        name += is(f, name + 1, ".") ? 2 : 3;
    const int open = is(f, name + 1, "<") ? read_list(f->t, name + 1).end : name + 1;
    if (f->t->token[name].kind != TOKEN_WORD || !is(f, open, "(") ||
        !is(f, f->t->token[open].pair + 1, ";") || !does_nothing(f, f->t->token[name].word))
        return -1;
    for (int k = open + 1; k < f->t->token[open].pair; k++)
        if (is(f, k, "(") || is(f, k, "=") || is(f, k, "{") || (is(f, k, "+") && is(f, k + 1, "+")) ||
            (is(f, k, "-") && is(f, k + 1, "-")))
            return -1;
    return f->t->token[open].pair + 2;
}

static void drop_idle_calls(struct folder *f)
{
    for (int i = 1; i + 3 < f->t->n; i++) {
        const bool first = is(f, i - 1, ";") || is(f, i - 1, "}") || is(f, i - 1, "{");
        const int end = first && !f->dropped[i] && unit_at(f->u, i) >= 0 ? end_of_idle_call(f, i) : -1;
        if (end > 0 && !(is(f, i - 1, "{") && is(f, end, "}")) && !changes_captures(f, i, end))
            drop(f, i, end);
    }
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

/* How often a directive writes a name, such as `#pragma unroll(NAME)`. */
static int count_in_directive(const struct folder *f, const struct token *directive, int word)
{
    const char *text = f->t->text + directive->at;
    const char *said;
    size_t size;
    size_t at = 0;
    int n = 0;
    while (next_word(text, directive->size, &at, &said, &size))
        n += tokens_word(f->t, said, size) == word;
    return n;
}

static int count_in_unit(const struct folder *f, int unit, int word)
{
    int n = 0;
    for (int i = f->u->unit[unit].head; i < f->u->unit[unit].last; i++) {
        const struct token *token = &f->t->token[i];
        if (!f->dropped[i])
            n += token->kind == TOKEN_DIRECTIVE ? count_in_directive(f, token, word) : token->word == word;
    }
    return n;
}

/* No call but a cast, and nothing that changes. */
static bool is_pure(const struct folder *f, int first, int last)
{
    for (int i = first; i < last; i++)
        if ((f->t->token[i].kind == TOKEN_WORD && is(f, i + 1, "(")) || is(f, i, "=") || is(f, i, "[") ||
            (is(f, i, "<") && !is(f, i - 1, "static_cast")) || (is(f, i, "*") && is(f, i - 1, "=")) ||
            (is(f, i, "+") && is(f, i + 1, "+")) || (is(f, i, "-") && is(f, i + 1, "-")))
            return false;
    return true;
}

/* `constexpr TYPE NAME = ...;`, or `const` of what is pure, in a function that does not read it. */
static void drop_constants(struct folder *f)
{
    for (int i = 1; i + 3 < f->t->n; i++) {
        const bool first = is(f, i - 1, ";") || is(f, i - 1, "}") || is(f, i - 1, "{");
        const int unit =
            first && (is(f, i, "constexpr") || is(f, i, "const")) && is(f, i + 3, "=") && !f->dropped[i]
                ? unit_at(f->u, i)
                : -1;
        if (unit < 0 || !f->u->unit[unit].is_function || i == f->u->unit[unit].head ||
            count_in_unit(f, unit, f->t->token[i + 2].word) != 1)
            continue;
        int end = i;
        while (end < f->t->n && !is(f, end, ";") && !is(f, end, ","))
            end = token_behind(f->t, end);
        const bool comment = end + 1 < f->t->n && f->t->token[end + 1].kind == TOKEN_COMMENT &&
                             lines_between(f->t, end, end + 1) == 0;
        if (is(f, end, ";") && (is(f, i, "constexpr") || is_pure(f, i + 4, end)) &&
            !changes_captures(f, i, end))
            drop(f, i, end + (comment ? 2 : 1));
    }
}

/* The kernel was compiled with its assertions. */
static void drop_assertions(struct folder *f)
{
    for (int i = 1; i + 1 < f->t->n; i++) {
        if (!is(f, i, "static_assert") || !is(f, i + 1, "(") || !is(f, f->t->token[i + 1].pair + 1, ";"))
            continue;
        if (is(f, i - 1, ";") || is(f, i - 1, "{") || is(f, i - 1, "}"))
            drop(f, i, f->t->token[i + 1].pair + 2);
    }
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
        fold_choices(&f);
        drop_assertions(&f);
        drop_idle_calls(&f);
        drop_constants(&f);
        write(&f, out);
    }
    free(f.dropped);
    free(f.gap);
    return good && !out->failed;
}
