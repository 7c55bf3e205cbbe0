/*
 * types.c: the type that a name means: a struct of the text, or one that the language has. In: units. Out:
 * its word; aliases and parameters of templates are followed. What is made of types (pointers, arrays, forms
 * of templates) is not known.
 */
#include "gen/readable/types.h"

#include <string.h>

static const struct value UNKNOWN = {.known = false};

static struct value type_number(int n)
{
    return (struct value){.known = true, .number = n};
}

/* Of `using NAME = ...;`, or of a struct. */
static struct value type_of_unit(const struct units *u, int found, int word, int depth, evaluate_fn *evaluate)
{
    const struct unit *unit = &u->unit[found];
    if (unit->kind == UNIT_STRUCT)
        return unit->is_template ? UNKNOWN : type_number(word);
    if (!token_is(u->tokens, unit->head, "using") || !token_is(u->tokens, unit->head + 2, "="))
        return UNKNOWN;
    const int end = end_of_initialiser(u, unit->head + 3, unit->last);
    return evaluate(u, found, true, unit->head + 3, end, depth + 1);
}

static bool has_base(const struct units *u, const struct unit *unit)
{
    for (int i = unit->head; unit->kind == UNIT_STRUCT && i < unit->open; i++)
        if (token_is(u->tokens, i, ":") && !token_is(u->tokens, i - 1, ":") &&
            !token_is(u->tokens, i + 1, ":"))
            return true;
    return false;
}

static bool is_builtin(const struct units *u, int word)
{
    static const char *const NAMES[] = {"float", "int", "double", "bool", NULL};
    for (int i = 0; NAMES[i]; i++)
        if (tokens_word(u->tokens, NAMES[i], strlen(NAMES[i])) == word)
            return true;
    return false;
}

/* How often a unit names a type of its own so: a parameter, or what stands within a function. */
static int types_named(const struct units *u, int unit, int word)
{
    int n = 0;
    for (int i = u->unit[unit].head + 1; i < u->unit[unit].last; i++)
        n += u->tokens->token[i].word == word &&
             (token_is(u->tokens, i - 1, "class") || token_is(u->tokens, i - 1, "typename") ||
              token_is(u->tokens, i - 1, "struct") || token_is(u->tokens, i - 1, "using"));
    return n;
}

/* From the innermost scope outwards. */
struct value type_of_word(const struct units *u, int unit, int word, int depth, evaluate_fn *evaluate)
{
    bool many = false;
    for (int at = unit; at >= 0; at = u->unit[at].parent) {
        const int parameter = parameter_named(u, at, word);
        const int found = find_in_scope(u, scope_word(u, u->unit[at].parent), word, &many);
        if (types_named(u, at, word) > (parameter >= 0) && u->unit[at].kind == UNIT_CODE)
            return UNKNOWN;
        if (parameter >= 0)
            return parameter_value(u, at, parameter, depth, evaluate);
        if (many || has_base(u, &u->unit[at]))
            return UNKNOWN;
        if (found >= 0)
            return type_of_unit(u, found, word, depth, evaluate);
    }
    return is_builtin(u, word) ? type_number(word) : UNKNOWN;
}

struct value type_value(const struct units *u, int unit, int first, int last, int depth,
                        evaluate_fn *evaluate)
{
    const struct token *t = u->tokens->token;
    const bool scoped =
        last == first + 4 && token_is(u->tokens, first + 1, ":") && t[last - 1].kind == TOKEN_WORD;
    bool many = false;
    if (depth >= MOST_DEPTH || t[first].kind != TOKEN_WORD || (last != first + 1 && !scoped))
        return UNKNOWN;
    if (!scoped)
        return type_of_word(u, unit, t[first].word, depth, evaluate);
    const int found = find_in_scope(u, t[first].word, t[last - 1].word, &many);
    return found < 0 || many ? UNKNOWN : type_of_unit(u, found, t[last - 1].word, depth, evaluate);
}

struct value size_of_type(const struct units *u, struct value type)
{
    static const struct {
        const char *name;
        int bytes;
    } SIZES[] = {{"float", 4}, {"int", 4}, {"f16", 2}, {"bf16", 2}, {"double", 8}};
    for (size_t i = 0; type.known && i < sizeof SIZES / sizeof *SIZES; i++)
        if (tokens_word(u->tokens, SIZES[i].name, strlen(SIZES[i].name)) == type.number)
            return type_number(SIZES[i].bytes);
    return UNKNOWN;
}
