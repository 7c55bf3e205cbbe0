/*
 * parameters.c: the values that the parameters of templates have. In: units. Out: a value where each place
 * that names the template gives the same one, whichever template of that name it means; a form of a template,
 * what a call deduces, and what a macro names are not known. constants.c evaluates arguments, and asks.
 */
#include "gen/readable/parameters.h"
#include "gen/readable/lists.h"

#include <string.h>

static const struct value UNKNOWN = {.known = false};

enum parameter_state { PARAMETER_BUSY = 1, PARAMETER_OPEN, PARAMETER_KNOWN };

static struct list list_of(const struct units *u, int unit)
{
    if (!u->unit[unit].is_template || !token_is(u->tokens, u->unit[unit].head, "template"))
        return (struct list){.n = 0};
    return read_list(u->tokens, u->unit[unit].head + 1);
}

int parameter_named(const struct units *u, int unit, int word)
{
    const struct list l = list_of(u, unit);
    for (int k = 0; k < l.n && !l.too_long; k++)
        if (u->tokens->token[parameter_name(u->tokens, &l, k)].word == word)
            return k;
    return -1;
}

/* A function whose parameters name a template's parameter may have it from a call. */
static bool is_deduced(const struct units *u, const struct unit *unit, const struct list *l, int word)
{
    int i = l->end;
    for (; unit->is_function && i < unit->last; i++)
        if (u->tokens->token[i].word == u->name[unit->name] && token_is(u->tokens, i + 1, "("))
            break;
    const int end = unit->is_function && i < unit->last ? u->tokens->token[i + 1].pair : i;
    for (; i < end; i++)
        if (u->tokens->token[i].word == word)
            return true;
    return false;
}

struct asked { /* a parameter of a template */
    int unit;
    struct list list;
    int k;
    int word;
    bool is_type;
    bool is_deduced;
    evaluate_fn *evaluate;
};

/* Which parameter of the function is `T *name` or `const T *name`; -1: none. */
static int pointer_parameter(const struct units *u, const struct asked *a)
{
    const struct tokens *t = u->tokens;
    int i = a->list.end;
    while (i < u->unit[a->unit].last &&
           !(t->token[i].word == u->name[u->unit[a->unit].name] && token_is(t, i + 1, "(")))
        i++;
    if (i >= u->unit[a->unit].last)
        return -1;
    const int end = t->token[i + 1].pair;
    int k = 0;
    for (i += 2; i < end; i = token_behind(t, i)) {
        k += token_is(t, i, ",");
        if (t->token[i].word == a->word && token_is(t, i + 1, "*") && token_is(t, i + 3, ","))
            return k;
    }
    return -1;
}

/* What a call gives for `const T *name`: a member, and something behind it or not; the member's own type. */
static struct value deduced(const struct units *u, const struct asked *a, int open, int depth)
{
    const struct tokens *t = u->tokens;
    const int place = pointer_parameter(u, a);
    int i = open + 1;
    for (int k = 0; k < place && i < t->token[open].pair; i++) {
        k += token_is(t, i, ",");
        i = t->token[i].pair > i ? t->token[i].pair : i;
    }
    const bool plain = place >= 0 && token_is(t, i + 1, ".") &&
                       (token_is(t, i + 3, ",") || token_is(t, i + 3, "+") || token_is(t, i + 3, ")"));
    int found = -1;
    for (int k = 0; plain && k < u->n; k++) {
        if (!declares(u, &u->unit[k], t->token[i + 2].word))
            continue;
        if (found >= 0)
            return UNKNOWN;
        found = k;
    }
    const int head = found < 0 ? 0 : u->unit[found].head + token_is(t, u->unit[found].head, "const");
    if (found < 0 || !token_is(t, head + 1, "*") || t->token[head + 2].word != t->token[i + 2].word)
        return UNKNOWN;
    return a->evaluate(u, found, true, head, head + 1, depth + 1);
}

/* What stands at a place that names the template gives the parameter. *skip: nothing new, for it is the
 * template itself. */
static struct value value_there(const struct units *u, const struct asked *a, int i, int depth, bool *skip)
{
    const struct token *t = u->tokens->token;
    const int here = unit_at(u, i);
    const bool listed = token_is(u->tokens, i + 1, "<") && t[i + 1].at == t[i].at + t[i].size;
    const struct list l = listed ? read_list(u->tokens, i + 1) : (struct list){.n = 0};
    const int from = parameter_default(u->tokens, &a->list, a->k);
    int within = here;
    while (within >= 0 && within != a->unit)
        within = u->unit[within].parent;
    *skip = within >= 0 && !a->is_deduced &&
            (listed ? a->k < l.n && l.last[a->k] == l.first[a->k] + 1 && t[l.first[a->k]].word == a->word
                    : u->unit[a->unit].kind == UNIT_STRUCT);
    const bool member = token_is(u->tokens, i - 1, ".") ||
                        (token_is(u->tokens, i - 1, ">") && token_is(u->tokens, i - 2, "-"));
    *skip |= member && !listed && !token_is(u->tokens, i + 1, "("); /* data of that name */
    if (l.too_long || here < 0)
        return UNKNOWN;
    if (a->k < l.n)
        return a->evaluate(u, here, a->is_type, l.first[a->k], l.last[a->k], depth + 1);
    const bool call = listed || token_is(u->tokens, i + 1, "(");
    *skip |=
        call && !a->is_deduced && from < 0; /* something else of that name, which has no such parameter */
    const int open = listed ? l.end : i + 1;
    if (a->is_deduced && a->is_type && call && token_is(u->tokens, open, "("))
        return deduced(u, a, open, depth);
    if (a->is_deduced || from < 0 || !call)
        return UNKNOWN;
    return a->evaluate(u, a->unit, a->is_type, from, a->list.last[a->k], depth + 1);
}

static bool is_in_directive(const struct units *u, int word)
{
    const struct word *w = &u->tokens->word[word];
    for (int i = 0; i < u->tokens->n; i++) {
        const struct token *t = &u->tokens->token[i];
        const char *said;
        size_t size;
        size_t at = 0;
        while (t->kind == TOKEN_DIRECTIVE && next_word(u->tokens->text + t->at, t->size, &at, &said, &size))
            if (size == w->size && memcmp(said, w->text, size) == 0)
                return true;
    }
    return false;
}

/* Does this token declare something of that name, and so uses nothing? */
static bool is_own_name(const struct units *u, int i)
{
    const int at = unit_at(u, i);
    const struct unit *unit = at < 0 ? NULL : &u->unit[at];
    if (!unit || !declares(u, unit, u->tokens->token[i].word))
        return false;
    const struct list l = list_of(u, at);
    const int head = l.n > 0 ? l.end : unit->head;
    for (int k = head; k < i; k = token_behind(u->tokens, k))
        if (token_is(u->tokens, k, "{") || token_is(u->tokens, k, "="))
            return false;
    for (int k = head; k < i; k++)
        if (u->tokens->token[k].word == u->tokens->token[i].word)
            return false;
    return true;
}

static bool is_within(const struct units *u, int i, int unit)
{
    int at = unit_at(u, i);
    while (at >= 0 && at != unit)
        at = u->unit[at].parent;
    return at >= 0;
}

/* What all places outside of the template give it. */
static struct value find_from_outside(const struct units *u, const struct asked *a, int name, int depth)
{
    struct value all = UNKNOWN;
    for (int i = 0; i < u->tokens->n; i++) {
        bool skip = false;
        if (u->tokens->token[i].word != name || is_own_name(u, i) || is_within(u, i, a->unit))
            continue;
        const struct value v = value_there(u, a, i, depth, &skip);
        if (skip)
            continue;
        if (!v.known || (all.known && all.number != v.number))
            return UNKNOWN;
        all = v;
    }
    return all;
}

/* Is this place in a branch of `if constexpr` that is not taken? */
static bool is_not_taken(const struct units *u, const struct asked *a, int i, int depth)
{
    const struct tokens *t = u->tokens;
    while (i > u->unit[a->unit].head && !(token_is(t, i, "{") && t->token[i].pair > i))
        i = t->token[i].pair >= 0 && t->token[i].pair < i ? t->token[i].pair - 1 : i - 1;
    const int open = token_is(t, i - 1, ")") ? t->token[i - 1].pair : -1;
    if (open < 2 || !token_is(t, open - 1, "constexpr") || !token_is(t, open - 2, "if"))
        return false;
    const struct value v = a->evaluate(u, a->unit, false, open + 1, i - 1, depth + 1);
    return v.known && v.number == 0;
}

/* Do the template's own uses of itself give the same, as far as they are reached with that value? */
static bool holds_within(const struct units *u, const struct asked *a, int name, struct value v, int depth)
{
    for (int i = u->unit[a->unit].head; i < u->unit[a->unit].last; i++) {
        bool skip = false;
        if (u->tokens->token[i].word != name || is_own_name(u, i))
            continue;
        const struct value inner = value_there(u, a, i, depth, &skip);
        if (!skip && !(inner.known && inner.number == v.number) && !is_not_taken(u, a, i, depth))
            return false;
    }
    return true;
}

/* struct NAME<...>: a form, whose parameters are not those of the template. */
static bool has_forms(const struct units *u, const struct unit *unit, int word)
{
    for (int i = 0; i < u->n; i++) {
        const struct unit *x = &u->unit[i];
        for (int k = x->head; declares(u, x, word) && x->is_template && !x->is_function && k < x->last; k++)
            if (u->tokens->token[k].word == word && token_is(u->tokens, k + 1, "<") &&
                (x == unit || unit_at(u, k) == (int)(x - u->unit)) && !token_is(u->tokens, k - 1, ":") &&
                (token_is(u->tokens, k - 1, "struct") || token_is(u->tokens, k - 1, "bool")))
                return true;
    }
    return false;
}

/* What was found out on trial stands on the value that was tried: it goes where that does not hold. */
static void end_trial(const struct units *u, int level, bool holds)
{
    for (int i = 0; i < u->n * MOST_PARAMETERS; i++) {
        struct parameter_value *known = &u->parameter[i];
        if (known->level < level || known->state == PARAMETER_BUSY)
            continue;
        known->level = level - 1;
        if (!holds)
            known->state = 0;
    }
}

/* The value that comes from outside is tried within. */
static struct value find_parameter(const struct units *u, const struct asked *a,
                                   struct parameter_value *known, int depth)
{
    enum { MOST_TRIALS = 100 };
    struct parameter_value *trials = &u->parameter[(size_t)u->n * MOST_PARAMETERS];
    const int name = u->name[u->unit[a->unit].name];
    const struct value v = is_in_directive(u, name) ? UNKNOWN : find_from_outside(u, a, name, depth);
    if (!v.known || trials->level >= MOST_TRIALS)
        return UNKNOWN;
    const int level = ++trials->level;
    *known = (struct parameter_value){.state = PARAMETER_KNOWN, .number = v.number};
    const bool holds = holds_within(u, a, name, v, depth);
    end_trial(u, level, holds);
    trials->level--;
    return holds ? v : UNKNOWN;
}

struct value parameter_value(const struct units *u, int unit, int parameter, int depth, evaluate_fn *evaluate)
{
    struct parameter_value *known = &u->parameter[(size_t)unit * MOST_PARAMETERS + (size_t)parameter];
    const struct unit *x = &u->unit[unit];
    struct asked a = {.unit = unit, .list = list_of(u, unit), .k = parameter, .evaluate = evaluate};
    const int first = a.list.first[parameter];
    const bool pack = token_is(u->tokens, first + 1, ".");
    if (known->state == 0 && x->n_names > 0 && !pack && depth < MOST_DEPTH &&
        !has_forms(u, x, u->name[x->name])) {
        a.word = u->tokens->token[parameter_name(u->tokens, &a.list, parameter)].word;
        a.is_type = token_is(u->tokens, first, "class") || token_is(u->tokens, first, "typename");
        a.is_deduced = is_deduced(u, x, &a.list, a.word);
        known->state = PARAMETER_BUSY;
        const struct value v = find_parameter(u, &a, known, depth);
        *known = (struct parameter_value){.state = v.known ? PARAMETER_KNOWN : PARAMETER_OPEN,
                                          .level = u->parameter[(size_t)u->n * MOST_PARAMETERS].level,
                                          .number = v.number};
    }
    return known->state == PARAMETER_KNOWN ? (struct value){.known = true, .number = known->number} : UNKNOWN;
}
