/*
 * specialise.c: templates that a number of the text chooses a form of: `template <class V, bool ON = V::ON>
 * struct form` beside `template <class V> struct form<V, true>`. In: units. Out: the tokens of forms that are
 * not chosen are dropped. A parameter counts where its default is known and nobody gives another.
 */
#include "gen/readable/constants.h"
#include "gen/readable/fold.h"
#include "gen/readable/lists.h"

static bool is(const struct units *u, int i, const char *text)
{
    return token_is(u->tokens, i, text);
}

/* The token of a struct's name. */
static int name_token(const struct units *u, const struct unit *x)
{
    for (int i = x->head; i < x->open; i++)
        if (u->tokens->token[i].word == u->name[x->name] && !is(u, i - 1, "class") &&
            !is(u, i - 1, "typename"))
            return i;
    return -1;
}

static bool is_struct_template(const struct unit *x)
{
    return x->kind == UNIT_STRUCT && x->is_template && x->n_names == 1;
}

static bool is_form(const struct units *u, const struct unit *x, int word)
{
    return is_struct_template(x) && u->name[x->name] == word && is(u, name_token(u, x) + 1, "<");
}

/* Somebody who is not a form gives that parameter. */
static bool is_given(const struct units *u, int word, int parameter)
{
    for (int i = 0; i + 1 < u->tokens->n; i++) {
        if (u->tokens->token[i].word != word || !is(u, i + 1, "<") || is(u, i - 1, "struct"))
            continue;
        const struct list l = read_list(u->tokens, i + 1);
        if (l.too_long || l.n > parameter)
            return true;
    }
    return false;
}

/* The value of `bool NAME = ...`. */
static struct value default_of(const struct units *u, int unit, const struct list *l, int parameter)
{
    const int i = l->first[parameter];
    if (!is(u, i, "bool") || !is(u, i + 2, "="))
        return (struct value){.known = false};
    return constant_value(u, unit, i + 3, l->last[parameter]);
}

enum fit { FITS, FITS_NOT, OPEN };

/* template <...> requires CONDITION struct ...: what the condition says. */
static enum fit fit_of_condition(const struct units *u, const struct unit *form)
{
    int first = -1;
    for (int i = form->head; i < form->open; i++) {
        if (first < 0 && is(u, i, "requires"))
            first = i + 1;
        if (first < 0 || !is(u, i, "struct"))
            continue;
        const struct value v = constant_value(u, (int)(form - u->unit), first, i);
        return !v.known ? OPEN : v.number ? FITS : FITS_NOT;
    }
    return FITS;
}

/* Is this form chosen, by the defaults that are known? OPEN: other arguments decide, too. */
static enum fit fit_of(const struct units *u, const struct unit *form, const struct value *known)
{
    const struct list l = read_list(u->tokens, name_token(u, form) + 1);
    enum fit fit = fit_of_condition(u, form);
    if (l.too_long)
        return fit == FITS_NOT ? fit : OPEN;
    for (int k = 0; k < l.n && fit != FITS_NOT; k++) {
        const bool yes = is(u, l.first[k], "true");
        const bool literal = l.last[k] == l.first[k] + 1 && (yes || is(u, l.first[k], "false"));
        const bool parameter =
            l.last[k] == l.first[k] + 1 && u->tokens->token[l.first[k]].kind == TOKEN_WORD && !literal;
        if (literal && known[k].known && (known[k].number != 0) != yes)
            fit = FITS_NOT;
        else if (!(literal && known[k].known) && !parameter)
            fit = OPEN;
    }
    return fit;
}

static void drop(int first, int last, bool *dropped)
{
    for (int i = first; i < last; i++)
        dropped[i] = true;
}

/* Where a struct's bases or its body begin. */
static int end_of_name(const struct units *u, const struct unit *x)
{
    int i = name_token(u, x) + 1;
    while (i < x->open && !(is(u, i, ":") && !is(u, i - 1, ":") && !is(u, i + 1, ":")))
        i++;
    return i;
}

static void choose(const struct units *u, int unit, bool *dropped)
{
    const struct unit *x = &u->unit[unit];
    const int word = u->name[x->name];
    const struct list l = read_list(u->tokens, x->head + 1);
    struct value known[MOST_PARAMETERS] = {{.known = false}};
    for (int k = 0; k < l.n && !l.too_long; k++)
        if (!is_given(u, word, k))
            known[k] = default_of(u, unit, &l, k);
    for (int i = 0; i < u->n; i++) {
        const struct unit *form = &u->unit[i];
        const enum fit fit = is_form(u, form, word) && !dropped[form->head] ? fit_of(u, form, known) : OPEN;
        if (fit == FITS_NOT)
            drop(form->first, form->last, dropped);
        else if (fit == FITS)
            drop(end_of_name(u, x), u->tokens->token[x->open].pair + 1, dropped);
    }
}

void drop_forms(const struct units *u, bool *dropped)
{
    for (int i = 0; i < u->n; i++)
        if (is_struct_template(&u->unit[i]) && !is_form(u, &u->unit[i], u->name[u->unit[i].name]) &&
            is(u, u->unit[i].head, "template"))
            choose(u, i, dropped);
}
