/*
 * constants.c: evaluates conditions such as `variant::MAP && !cfg::PACK`. In: units, and the tokens of an
 * expression. Out: a number, or that it is not known. A parameter of a template is known where all that name
 * the template give it the same value, whichever template of that name they mean.
 */
#include "gen/readable/constants.h"
#include "gen/readable/lists.h"
#include "gen/readable/parameters.h"
#include "gen/readable/types.h"

#include <stdlib.h>
#include <string.h>

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

static struct value evaluate(const struct units *u, int unit, bool is_type, int first, int last, int depth);

static struct value value_of_parameter(const struct units *u, int unit, int parameter, int depth)
{
    return parameter_value(u, unit, parameter, depth, evaluate);
}

static struct value type_of(const struct units *u, int unit, int first, int last, int depth)
{
    return type_value(u, unit, first, last, depth, evaluate);
}

static struct value value_of(const struct units *u, int unit, int first, int last, int depth)
{
    enum {
        MOST_STEPS = 1000
    }; /* of one condition: constants that stand on each other in many ways are left */
    int64_t *steps = &u->parameter[(size_t)u->n * MOST_PARAMETERS].number;
    if (depth == 0)
        *steps = 0;
    if (++*steps > MOST_STEPS)
        return UNKNOWN;
    struct reader r = {.u = u, .unit = unit, .at = first, .last = last, .depth = depth};
    const struct value v = depth < MOST_DEPTH ? read_choice(&r) : UNKNOWN;
    return r.lost || r.at != last ? UNKNOWN : v;
}

/* ---- names -------------------------------------------------------------------------------------------- */

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

/* enum NAME { FIRST, SECOND }: their places. */
static struct value value_of_enumerator(const struct units *u, const struct unit *unit, int word)
{
    int n = 0;
    int i = unit->head;
    while (i < unit->last && !token_is(u->tokens, i, "{"))
        i++;
    for (i++; i < unit->last && u->tokens->token[i].word >= 0; i += 2, n++) {
        if (!token_is(u->tokens, i + 1, ",") && !token_is(u->tokens, i + 1, "}"))
            break;
        if (u->tokens->token[i].word == word)
            return number(n);
    }
    return UNKNOWN;
}

static struct value value_of_unit(const struct units *u, int unit, int word, int depth)
{
    if (token_is(u->tokens, u->unit[unit].head, "enum"))
        return value_of_enumerator(u, &u->unit[unit], word);
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

/* repeat<0, N>([&]<int NAME>() { ... }): 0, where N is 1. */
static struct value value_of_repetition(const struct units *u, int unit, int at, int depth)
{
    const struct tokens *t = u->tokens;
    const int lambda = at - 5; /* ( [ & ] < int NAME */
    int open = lambda;
    if (!token_is(t, lambda, "[") || !token_is(t, lambda - 1, "(") || !token_is(t, lambda - 2, ">"))
        return UNKNOWN;
    while (open > u->unit[unit].head && !token_is(t, open, "<"))
        open--;
    const struct list l = read_list(t, open);
    if (!token_is(t, open - 1, "repeat") || l.n != 2 || l.end != lambda - 1)
        return UNKNOWN;
    const struct value first = value_of(u, unit, l.first[0], l.last[0], depth + 1);
    const struct value last = value_of(u, unit, l.first[1], l.last[1], depth + 1);
    return first.known && last.known && last.number == first.number + 1 ? first : UNKNOWN;
}

static struct value value_of_local(const struct units *u, int unit, int at, int depth)
{
    if (token_is(u->tokens, at - 2, "<") && token_is(u->tokens, at - 3, "]"))
        return value_of_repetition(u, unit, at, depth);
    if (!is_type(u, at - 1) || !token_is(u->tokens, at - 2, "constexpr") || !token_is(u->tokens, at + 1, "="))
        return UNKNOWN;
    return value_of(u, unit, at + 2, end_of_initialiser(u, at, u->unit[unit].last), depth + 1);
}

/* A member of this very unit, which may be a template. */
static struct value value_of_member_of(const struct units *u, int scope, int word, int depth)
{
    if (!u->unit[scope].is_template)
        return value_of_variable(u, scope_word(u, scope), word, depth);
    for (int i = scope + 1; i < u->n && u->unit[i].first < u->unit[scope].last; i++)
        if (u->unit[i].parent == scope && declares(u, &u->unit[i], word))
            return value_of_unit(u, i, word, depth);
    return UNKNOWN;
}

/* Of a namespace that the function opens: `using namespace NAME;`. */
static struct value value_in_opened(const struct units *u, int unit, int word, int depth)
{
    for (int i = u->unit[unit].head; i + 2 < u->unit[unit].last; i++)
        if (token_is(u->tokens, i, "using") && token_is(u->tokens, i + 1, "namespace"))
            return value_of_variable(u, u->tokens->token[i + 2].word, word, depth);
    return UNKNOWN;
}

static struct value value_of_name(const struct units *u, int unit, int word, int depth)
{
    const bool own = u->unit[unit].n_names > 0 && u->name[u->unit[unit].name] == word;
    int at = -1;
    const int n = own || u->unit[unit].kind != UNIT_CODE ? 0 : declarations(u, &u->unit[unit], word, &at);
    const int parameter = parameter_named(u, unit, word);
    if (n > 1)
        return UNKNOWN;
    if (parameter >= 0)
        return value_of_parameter(u, unit, parameter, depth);
    if (n == 1)
        return value_of_local(u, unit, at, depth);
    for (int scope = u->unit[unit].parent; scope >= 0; scope = u->unit[scope].parent) {
        const int outer = parameter_named(u, scope, word);
        if (outer >= 0)
            return value_of_parameter(u, scope, outer, depth);
        const struct value v = value_of_member_of(u, scope, word, depth);
        if (v.known || u->unit[scope].is_template)
            return v;
    }
    const struct value v = value_of_variable(u, -1, word, depth);
    return v.known ? v : value_in_opened(u, unit, word, depth);
}

static struct value evaluate(const struct units *u, int unit, bool is_type, int first, int last, int depth)
{
    return is_type ? type_of(u, unit, first, last, depth) : value_of(u, unit, first, last, depth);
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

/* TYPE::NAME; alone, of a struct that is known and has such a member. */
static struct value read_member_requirement(const struct reader *r, int first, int end)
{
    const struct token *t = r->u->tokens->token;
    if (end != first + 5 || !is(r, first + 1, ":") || !is(r, first + 4, ";"))
        return UNKNOWN;
    const struct value type = type_of(r->u, r->unit, first, first + 1, r->depth);
    bool many = false;
    return type.known && find_in_scope(r->u, (int)type.number, t[first + 3].word, &many) >= 0 ? number(1)
                                                                                              : UNKNOWN;
}

/* requires { X::NAME; x.name; }: does not hold where nothing has such a member; else it is not known. */
static struct value read_requirement(struct reader *r)
{
    r->at++;
    if (is(r, r->at, "("))
        r->at = r->u->tokens->token[r->at].pair + 1;
    if (!is(r, r->at, "{"))
        return r->lost = true, UNKNOWN;
    const int end = r->u->tokens->token[r->at].pair;
    struct value v = read_member_requirement(r, r->at + 1, end);
    for (int i = r->at + 1; i < end; i++)
        if (r->u->tokens->token[i].kind == TOKEN_WORD && (is(r, i - 1, ".") || is(r, i - 1, ":")) &&
            !may_exist(r->u, r->u->tokens->token[i].word))
            v = number(0);
    r->at = end + 1;
    return v;
}

/* same_type<A, B> */
static struct value read_same_type(const struct reader *r, const struct list *l)
{
    if (l->n != 2)
        return UNKNOWN;
    const struct value a = type_of(r->u, r->unit, l->first[0], l->last[0], r->depth);
    const struct value b = type_of(r->u, r->unit, l->first[1], l->last[1], r->depth);
    return a.known && b.known ? number(a.number == b.number) : UNKNOWN;
}

/* static_cast<int>(...) */
static struct value read_cast(struct reader *r)
{
    const int first = r->at + 1;
    r->lost |= !is(r, r->at, "(");
    r->at = r->lost ? r->last : r->u->tokens->token[r->at].pair + 1;
    return r->lost ? UNKNOWN : value_of(r->u, r->unit, first, r->at - 1, r->depth + 1);
}

static struct value read_size(struct reader *r)
{
    const int first = r->at + 1;
    r->lost |= !is(r, r->at, "(");
    r->at = r->lost ? r->last : r->u->tokens->token[r->at].pair + 1;
    return r->lost ? UNKNOWN : size_of_type(r->u, type_of(r->u, r->unit, first, r->at - 1, r->depth + 1));
}

/* The unit that declares the word; -1: none does, or several do. */
static int only_declaration(const struct units *u, int word)
{
    int found = -1;
    for (int i = 0; i < u->n; i++)
        if (declares(u, &u->unit[i], word)) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return found;
}

/* A function that takes nothing and whose body is `return ...;`. */
static struct value read_call(struct reader *r, int word)
{
    const struct tokens *t = r->u->tokens;
    const int found = only_declaration(r->u, word);
    r->lost |= !is(r, r->at + 1, ")");
    r->at += 2;
    const struct unit *unit = found < 0 ? NULL : &r->u->unit[found];
    int i = found < 0 ? 0 : unit->head;
    while (found >= 0 && i < unit->last && !token_is(t, i, "{"))
        i++;
    while (found >= 0 && i < unit->last && token_is(t, i, "{"))
        i++;
    if (found < 0 || !unit->is_function || !token_is(t, i, "return") || r->lost)
        return UNKNOWN;
    int end = i + 1;
    while (end < unit->last && !token_is(t, end, ";"))
        end = token_behind(t, end);
    return token_is(t, end + 1, "}") ? value_of(r->u, found, i + 1, end, r->depth + 1) : UNKNOWN;
}

/* Behind the parameters of a template. */
static int list_end(const struct units *u, int unit)
{
    const int head = u->unit[unit].head;
    return token_is(u->tokens, head + 1, "<") ? read_list(u->tokens, head + 1).end : head;
}

/* NAME<...>: a concept, or a variable by a type; or a call. */
static struct value read_template(struct reader *r, int word)
{
    const struct list l = read_list(r->u->tokens, r->at);
    const struct word *w = &r->u->tokens->word[word];
    r->at = l.end;
    if (w->size == 9 && memcmp(w->text, "same_type", 9) == 0)
        return read_same_type(r, &l);
    if (w->size == 11 && memcmp(w->text, "static_cast", 11) == 0)
        return is_type(r->u, l.first[0]) && l.n == 1 ? read_cast(r) : (r->lost = true, UNKNOWN);
    if (is(r, r->at, "("))
        return read_call(r, word);
    const int found = only_declaration(r->u, word);
    const struct unit *unit = found < 0 ? NULL : &r->u->unit[found];
    int from = found < 0 ? 0 : unit->head;
    bool constant = false;
    while (found >= 0 && from < unit->last &&
           (from < list_end(r->u, found) || !token_is(r->u->tokens, from, "="))) {
        constant |= token_is(r->u->tokens, from, "constexpr") || token_is(r->u->tokens, from, "concept");
        from++;
    }
    if (found < 0 || !constant || from == unit->last || unit->kind != UNIT_CODE || unit->is_function)
        return UNKNOWN;
    return value_of(r->u, found, from + 1, end_of_initialiser(r->u, from, unit->last), r->depth + 1);
}

/* A '<' behind any other name compares. */
static bool may_be_template(const struct units *u, int word)
{
    bool declared = false;
    for (int i = 0; i < u->n; i++) {
        const bool here = declares(u, &u->unit[i], word);
        if (here && u->unit[i].is_template)
            return true;
        declared |= here;
    }
    return !declared;
}

/* NAME[...] of an array that is written out, where all that it holds are alike, or the place is known. */
static struct value read_element(struct reader *r, int scope, int word)
{
    const struct tokens *t = r->u->tokens;
    const int close = t->token[r->at].pair;
    const struct value place = value_of(r->u, r->unit, r->at + 1, close, r->depth + 1);
    bool many = false;
    const int found = find_in_scope(r->u, scope, word, &many);
    const struct unit *unit = found < 0 ? NULL : &r->u->unit[found];
    int i = found < 0 ? 0 : unit->head;
    r->at = close + 1;
    while (found >= 0 && i < unit->last && !token_is(t, i, "{"))
        i++;
    if (found < 0 || many || i >= unit->last || unit->kind != UNIT_CODE || !token_is(t, i - 1, "="))
        return UNKNOWN;
    const int end = t->token[i].pair;
    struct value all = UNKNOWN;
    for (int n = 0, next = 0; ++i < end; i = next, n++) {
        for (next = i; next < end && !token_is(t, next, ","); next = token_behind(t, next))
            ;
        const struct value v = value_of(r->u, found, i, next, r->depth + 1);
        if (place.known && place.number == n)
            return v;
        if (!place.known && (!v.known || (all.known && all.number != v.number)))
            return UNKNOWN;
        all = v;
    }
    return place.known ? UNKNOWN : all;
}

/* NAME, SCOPE::NAME, or NAME<...>. */
static struct value read_name(struct reader *r)
{
    const struct token *t = r->u->tokens->token;
    const int word = t[r->at++].word;
    if (is(r, r->at - 1, "sizeof"))
        return read_size(r);
    if (is(r, r->at, "<") && r->u->tokens->text[t[r->at].at - 1] != ' ' && may_be_template(r->u, word)) {
        const struct value v = read_template(r, word);
        r->lost |= is(r, r->at, "(") || is(r, r->at, ":");
        return v;
    }
    if (is(r, r->at, ":") && is(r, r->at + 1, ":") && r->at + 2 < r->last &&
        t[r->at + 2].kind == TOKEN_WORD) {
        const int member = t[r->at + 2].word;
        r->at += 3;
        const struct value type =
            is_scope(r->u, word) ? number(word) : type_of_word(r->u, r->unit, word, r->depth, evaluate);
        if (is(r, r->at, "[") && type.known)
            return read_element(r, (int)type.number, member);
        if (!is(r, r->at, ":") && !is(r, r->at, "(") && !is(r, r->at, "["))
            return type.known ? value_of_variable(r->u, (int)type.number, member, r->depth)
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

enum { LEVELS = 7, MARKS = 7 };
static const char *const LEVEL[LEVELS][MARKS] = {
    {"||"}, {"&&"}, {"&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}};

/* The operator of a level that stands here, which is a mark or two. NULL: none. */
static const char *operator_at(const struct reader *r, int level)
{
    for (int k = 0; k < MARKS && LEVEL[level][k]; k++) {
        const char *mark = LEVEL[level][k];
        const char first[2] = {mark[0], 0};
        const char second[2] = {mark[1], 0};
        const bool shift = (mark[0] == '<' || mark[0] == '>') && !mark[1] && is(r, r->at + 1, first);
        const bool logical = mark[0] == '&' && !mark[1] && is(r, r->at + 1, first);
        if (is(r, r->at, first) && (!mark[1] || is(r, r->at + 1, second)) && !shift && !logical)
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
    case '&':
        return number(a & b);
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
    if (mark[1] && (mark[0] == '|' || mark[0] == '&')) {
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
        const bool colon = is(r, i, ":") && !is(r, i - 1, ":") && !is(r, i + 1, ":");
        if (operator_at(&here, 0) || (level > 0 && operator_at(&here, 1)) || is(r, i, "?") || colon)
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
