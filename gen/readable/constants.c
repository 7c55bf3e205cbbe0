/*
 * constants.c: evaluates conditions such as `variant::MAP && !cfg::PACK`. In: units, and the tokens of an
 * expression. Out: a number, or that it is not known: a name that depends on a template's parameters, a call,
 * a floating-point number.
 */
#include "gen/readable/constants.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 24 };

struct reader {
    const struct units *u;
    int unit; /* where the expression stands */
    int at;
    int last;
    int depth; /* of names within names */
    bool lost; /* something that is not read here */
};

static const struct value UNKNOWN = {.known = false};

static struct value number(int64_t n)
{
    return (struct value){.known = true, .number = n};
}

static bool is(const struct reader *r, int i, const char *text)
{
    return i < r->last && token_is(r->u->tokens, i, text);
}

static struct value read_choice(struct reader *r);

static struct value value_of(const struct units *u, int unit, int first, int last, int depth)
{
    struct reader r = {.u = u, .unit = unit, .at = first, .last = last, .depth = depth};
    const struct value v = depth < MOST_DEPTH ? read_choice(&r) : UNKNOWN;
    return r.lost || r.at != last ? UNKNOWN : v;
}

/* ---- names -------------------------------------------------------------------------------------------- */

static int scope_word(const struct units *u, int unit)
{
    return unit >= 0 && u->unit[unit].n_names > 0 ? u->name[u->unit[unit].name] : -1;
}

static bool is_type(const struct units *u, int i)
{
    static const char *const TYPES[] = {"bool", "int", "unsigned", "u32", "i64", "size_t", NULL};
    for (int k = 0; TYPES[k]; k++)
        if (token_is(u->tokens, i, TYPES[k]))
            return true;
    return false;
}

/* The '=' of a variable that is a constant whole number; -1. */
static int initialiser(const struct units *u, const struct unit *unit, int word)
{
    bool constant = false;
    bool whole = false;
    if (unit->kind != UNIT_CODE || unit->is_template || unit->is_function)
        return -1;
    for (int i = unit->head; i < unit->last; i = token_behind(u->tokens, i)) {
        constant |= token_is(u->tokens, i, "constexpr");
        whole |= is_type(u, i);
        if (u->tokens->token[i].word == word && token_is(u->tokens, i + 1, "="))
            return constant && whole ? i + 1 : -1;
    }
    return -1;
}

/* The ',' or ';' behind it. */
static int end_of_initialiser(const struct units *u, int i, int last)
{
    while (i < last && !token_is(u->tokens, i, ";") && !token_is(u->tokens, i, ","))
        i = token_behind(u->tokens, i);
    return i;
}

static bool declares(const struct units *u, const struct unit *unit, int word)
{
    for (int k = 0; k < unit->n_names; k++)
        if (u->name[unit->name + k] == word)
            return true;
    return false;
}

static struct value value_of_unit(const struct units *u, int unit, int word, int depth)
{
    const int from = initialiser(u, &u->unit[unit], word);
    return from < 0 ? UNKNOWN
                    : value_of(u, unit, from + 1, end_of_initialiser(u, from, u->unit[unit].last), depth + 1);
}

/* Of the one variable of that name whose parent is named so; -1 for `scope`: that has no parent. */
static struct value value_of_variable(const struct units *u, int scope, int word, int depth)
{
    int found = -1;
    for (int i = 0; i < u->n; i++) {
        const struct unit *unit = &u->unit[i];
        if (!declares(u, unit, word) || scope_word(u, unit->parent) != scope ||
            (unit->parent >= 0 && u->unit[unit->parent].is_template))
            continue;
        if (found >= 0)
            return UNKNOWN;
        found = i;
    }
    return found < 0 ? UNKNOWN : value_of_unit(u, found, word, depth);
}

static bool is_scope(const struct units *u, int word)
{
    for (int i = 0; i < u->n; i++)
        if ((u->unit[i].kind == UNIT_STRUCT || u->unit[i].kind == UNIT_SCOPE) &&
            declares(u, &u->unit[i], word))
            return true;
    return false;
}

/* A member of a type that a template is given: of whichever type, where all that have it agree. */
static struct value value_of_member(const struct units *u, int word, int depth)
{
    struct value all = UNKNOWN;
    for (int i = 0; i < u->n; i++) {
        const struct unit *unit = &u->unit[i];
        if (!declares(u, unit, word))
            continue;
        const struct value v = unit->parent < 0 ? UNKNOWN : value_of_unit(u, i, word, depth);
        if (!v.known || (all.known && all.number != v.number))
            return UNKNOWN;
        all = v;
    }
    return all;
}

/* ---- names that a function declares ------------------------------------------------------------------- */

static bool is_declared_at(const struct units *u, const struct unit *unit, int i)
{
    const bool assigned = token_is(u->tokens, i + 1, "=") && !token_is(u->tokens, i + 2, "=");
    const bool behind_word = i > unit->head && u->tokens->token[i - 1].kind == TOKEN_WORD &&
                             !token_is(u->tokens, i - 1, "return") && !token_is(u->tokens, i - 1, "case");
    return assigned || behind_word;
}

/* Where a unit declares a name, as a parameter or a variable, and how often. */
static int declarations(const struct units *u, const struct unit *unit, int word, int *at)
{
    int n = 0;
    for (int i = unit->head; i < unit->last; i++)
        if (u->tokens->token[i].word == word && is_declared_at(u, unit, i)) {
            *at = i;
            n++;
        }
    return n;
}

static struct value value_of_local(const struct units *u, int unit, int at, int depth)
{
    if (!is_type(u, at - 1) || !token_is(u->tokens, at - 2, "constexpr") || !token_is(u->tokens, at + 1, "="))
        return UNKNOWN;
    return value_of(u, unit, at + 2, end_of_initialiser(u, at, u->unit[unit].last), depth + 1);
}

static struct value value_of_name(const struct units *u, int unit, int word, int depth)
{
    const bool own = u->unit[unit].n_names > 0 && u->name[u->unit[unit].name] == word;
    int at = -1;
    const int n = own || u->unit[unit].kind != UNIT_CODE ? 0 : declarations(u, &u->unit[unit], word, &at);
    if (n > 0)
        return n == 1 ? value_of_local(u, unit, at, depth) : UNKNOWN;
    for (int scope = u->unit[unit].parent; scope >= 0; scope = u->unit[scope].parent) {
        const struct value v = value_of_variable(u, scope_word(u, scope), word, depth);
        if (v.known || u->unit[scope].is_template)
            return u->unit[scope].is_template ? UNKNOWN : v;
    }
    return value_of_variable(u, -1, word, depth);
}

/* ---- requirements ------------------------------------------------------------------------------------- */

/* Some declaration, or some macro, has this name. Names of one letter may be of types that no text declares.
 */
static bool may_exist(const struct units *u, int word)
{
    if (u->tokens->word[word].size < 2)
        return true;
    for (int i = 0; i < u->n; i++)
        if (declares(u, &u->unit[i], word))
            return true;
    for (int i = 0; i < u->tokens->n; i++) {
        const struct token *t = &u->tokens->token[i];
        const char *text = u->tokens->text + t->at;
        const char *said;
        size_t size;
        size_t at = 0;
        while (t->kind == TOKEN_DIRECTIVE && next_word(text, t->size, &at, &said, &size))
            if (tokens_word(u->tokens, said, size) == word)
                return true;
    }
    return false;
}

/* requires { X::NAME; x.name; }: does not hold where nothing has such a member; else it is not known. */
static struct value read_requirement(struct reader *r)
{
    r->at++;
    if (is(r, r->at, "("))
        r->at = r->u->tokens->token[r->at].pair + 1;
    if (!is(r, r->at, "{"))
        return r->lost = true, UNKNOWN;
    struct value v = UNKNOWN;
    const int end = r->u->tokens->token[r->at].pair;
    for (int i = r->at + 1; i < end; i++)
        if (r->u->tokens->token[i].kind == TOKEN_WORD && (is(r, i - 1, ".") || is(r, i - 1, ":")) &&
            !may_exist(r->u, r->u->tokens->token[i].word))
            v = number(0);
    r->at = end + 1;
    return v;
}

/* NAME<...>: a concept, or a variable by a type. */
static struct value read_template(struct reader *r, int word)
{
    int depth = 0;
    do {
        depth += is(r, r->at, "<") ? 1 : is(r, r->at, ">") ? -1 : 0;
        r->at++;
    } while (depth > 0 && r->at < r->last);
    int found = -1;
    for (int i = 0; i < r->u->n; i++)
        if (declares(r->u, &r->u->unit[i], word)) {
            if (found >= 0)
                return UNKNOWN;
            found = i;
        }
    const struct unit *unit = found < 0 ? NULL : &r->u->unit[found];
    int from = found < 0 ? 0 : unit->head;
    while (found >= 0 && from < unit->last && !token_is(r->u->tokens, from, "="))
        from++;
    if (found < 0 || from == unit->last || unit->kind != UNIT_CODE || unit->is_function)
        return UNKNOWN;
    return value_of(r->u, found, from + 1, end_of_initialiser(r->u, from, unit->last), r->depth + 1);
}

/* NAME, SCOPE::NAME, or NAME<...>. */
static struct value read_name(struct reader *r)
{
    const struct token *t = r->u->tokens->token;
    const int word = t[r->at++].word;
    if (is(r, r->at, "<") && r->u->tokens->text[t[r->at].at - 1] != ' ') {
        const struct value v = read_template(r, word);
        r->lost |= is(r, r->at, "(") || is(r, r->at, ":");
        return v;
    }
    if (is(r, r->at, ":") && is(r, r->at + 1, ":") && r->at + 2 < r->last &&
        t[r->at + 2].kind == TOKEN_WORD) {
        const int member = t[r->at + 2].word;
        r->at += 3;
        if (!is(r, r->at, ":") && !is(r, r->at, "(") && !is(r, r->at, "["))
            return is_scope(r->u, word) ? value_of_variable(r->u, word, member, r->depth)
                                        : value_of_member(r->u, member, r->depth);
    } else if (!is(r, r->at, "(") && !is(r, r->at, "[") && !is(r, r->at, "{") && !is(r, r->at, ".")) {
        return value_of_name(r->u, r->unit, word, r->depth);
    }
    r->lost = true;
    return UNKNOWN;
}

/* ---- expressions, the loosest operator last ----------------------------------------------------------- */

static struct value read_number(struct reader *r)
{
    const struct token *t = &r->u->tokens->token[r->at++];
    char text[32];
    char *end;
    if (t->size >= sizeof text)
        return r->lost = true, UNKNOWN;
    memcpy(text, r->u->tokens->text + t->at, t->size);
    text[t->size] = 0;
    const int64_t n = strtoll(text, &end, 0);
    end += strspn(end, "uUlL");
    r->lost |= *end != 0;
    return number(n);
}

static struct value read_primary(struct reader *r)
{
    if (r->at >= r->last)
        return r->lost = true, UNKNOWN;
    const struct token *t = &r->u->tokens->token[r->at];
    if (is(r, r->at, "(")) {
        const int first = r->at + 1;
        const int last = t->pair;
        r->at = last + 1;
        return value_of(r->u, r->unit, first, last, r->depth + 1);
    }
    if (is(r, r->at, "true") || is(r, r->at, "false"))
        return number(is(r, r->at++, "true"));
    if (t->kind == TOKEN_NUMBER)
        return read_number(r);
    if (is(r, r->at, "requires"))
        return read_requirement(r);
    if (t->kind == TOKEN_WORD)
        return read_name(r);
    r->lost = true;
    return UNKNOWN;
}

static struct value read_unary(struct reader *r)
{
    const bool is_not = is(r, r->at, "!");
    const bool minus = is(r, r->at, "-");
    if (!is_not && !minus)
        return read_primary(r);
    r->at++;
    struct value v = read_unary(r);
    v.number = is_not ? !v.number : -v.number;
    return v;
}

enum { LEVELS = 6, MARKS = 7 };
static const char *const LEVEL[LEVELS][MARKS] = {
    {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};

/* The operator of a level that stands here, which is a mark or two. NULL: none. */
static const char *operator_at(const struct reader *r, int level)
{
    for (int k = 0; k < MARKS && LEVEL[level][k]; k++) {
        const char *mark = LEVEL[level][k];
        const char first[2] = {mark[0], 0};
        const char second[2] = {mark[1], 0};
        const bool shift = (mark[0] == '<' || mark[0] == '>') && !mark[1] && is(r, r->at + 1, first);
        if (is(r, r->at, first) && (!mark[1] || is(r, r->at + 1, second)) && !shift)
            return mark;
    }
    return NULL;
}

static struct value apply(const char *mark, int64_t a, int64_t b)
{
    switch (mark[0]) {
    case '=':
        return number(a == b);
    case '!':
        return number(a != b);
    case '<':
        return number(mark[1] ? a <= b : a < b);
    case '>':
        return number(mark[1] ? a >= b : a > b);
    case '+':
        return number(a + b);
    case '-':
        return number(a - b);
    case '*':
        return number(a * b);
    case '/':
        return b ? number(a / b) : UNKNOWN;
    default:
        return b ? number(a % b) : UNKNOWN;
    }
}

/* One side may decide what both say. */
static struct value combine(const char *mark, struct value a, struct value b)
{
    if (mark[0] == '|' || mark[0] == '&') {
        const bool ends = mark[0] == '|'; /* the value that decides */
        if ((a.known && (a.number != 0) == ends) || (b.known && (b.number != 0) == ends))
            return number(ends);
        return a.known && b.known ? number(!ends) : UNKNOWN;
    }
    return a.known && b.known ? apply(mark, a.number, b.number) : UNKNOWN;
}

/* Behind the operand of `||` or `&&` that begins here, whatever stands in it: an operand that is not read is
 * not known. */
static int end_of_operand(const struct reader *r, int level)
{
    int i = r->at;
    while (i < r->last) {
        const struct reader here = {.u = r->u, .at = i, .last = r->last};
        if (operator_at(&here, 0) || (level > 0 && operator_at(&here, 1)) || is(r, i, "?"))
            break;
        const int pair = r->u->tokens->token[i].pair;
        i = pair > i ? pair + 1 : i + 1;
    }
    return i;
}

static struct value read_level(struct reader *r, int level);

static struct value read_operand(struct reader *r, int level)
{
    if (level > 1)
        return level + 1 < LEVELS ? read_level(r, level + 1) : read_unary(r);
    struct reader inner = *r;
    inner.last = end_of_operand(r, level);
    r->at = inner.last;
    const struct value v = read_level(&inner, level + 1);
    return inner.lost || inner.at != inner.last ? UNKNOWN : v;
}

static struct value read_level(struct reader *r, int level)
{
    struct value v = read_operand(r, level);
    for (const char *mark = operator_at(r, level); mark && !r->lost; mark = operator_at(r, level)) {
        r->at += (int)strlen(mark);
        v = combine(mark, v, read_operand(r, level));
    }
    return v;
}

static struct value read_choice(struct reader *r)
{
    const struct value condition = read_level(r, 0);
    if (r->lost || !is(r, r->at, "?"))
        return condition;
    r->at++;
    const struct value a = read_choice(r);
    r->lost |= !is(r, r->at, ":");
    r->at++;
    const struct value b = read_choice(r);
    return !condition.known ? UNKNOWN : condition.number ? a : b;
}

struct value constant_value(const struct units *u, int unit, int first, int last)
{
    return value_of(u, unit, first, last, 0);
}
