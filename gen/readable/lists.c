/*
 * lists.c: reads lists of templates. In: tokens. Out: where each part of a list begins and ends. What
 * compares or shifts within an argument stands in parentheses in the templates.
 */
#include "gen/readable/lists.h"
#include "gen/readable/tokens.h"

struct list read_list(const struct tokens *t, int open)
{
    struct list l = {.n = 0, .end = open};
    int depth = 0;
    for (int i = open; i < t->n && !l.too_long; i++) {
        const int pair = t->token[i].pair;
        if (depth == 1 && (i == open + 1 ? !token_is(t, i, ">") : token_is(t, i - 1, ","))) {
            l.too_long = l.n == MOST_PARAMETERS;
            if (!l.too_long)
                l.first[l.n++] = i;
        }
        depth += token_is(t, i, "<") ? 1 : token_is(t, i, ">") ? -1 : 0;
        if (l.n > 0 && depth == (token_is(t, i, ">") ? 0 : 1))
            l.last[l.n - 1] = token_is(t, i, ",") || token_is(t, i, ">") ? i : i + 1;
        l.end = i + 1;
        if (depth == 0)
            break;
        i = pair > i ? pair : i;
        if (pair > 0 && l.n > 0 && depth == 1)
            l.last[l.n - 1] = i + 1;
    }
    return l;
}

static int mark_of_default(const struct tokens *t, const struct list *l, int parameter)
{
    for (int i = l->first[parameter]; i < l->last[parameter]; i++)
        if (token_is(t, i, "="))
            return i;
    return l->last[parameter];
}

int parameter_name(const struct tokens *t, const struct list *l, int parameter)
{
    return mark_of_default(t, l, parameter) - 1;
}

int parameter_default(const struct tokens *t, const struct list *l, int parameter)
{
    const int mark = mark_of_default(t, l, parameter);
    return mark < l->last[parameter] ? mark + 1 : -1;
}
