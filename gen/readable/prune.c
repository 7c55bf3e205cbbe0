/*
 * prune.c: declarations that no kernel reaches by name. In: units. Out: the text without the others. A name
 * that is written in what stays keeps all that is declared by it, whichever overload or member is meant; what
 * macros paste together keeps all names that begin so. Top-level assertions go: the kernel was compiled with
 * them.
 */
#include "gen/base/text.h"
#include "gen/readable/fold.h"
#include "gen/readable/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct pruner {
    const struct units *u;
    const struct tokens *t;
    bool *live;          /* [n] units */
    unsigned char *used; /* [n_words] how */
    bool *is_struct;     /* [n_words] some struct has this name */
    bool changed;
    bool opens_scopes; /* some `using namespace` does: names of namespaces are used without their scope */
};

/* ---- what is used ------------------------------------------------------------------------------------- */

enum {                  /* how a name is used */
       USED_MEMBER = 1, /* behind a dot or an arrow */
       USED_NAME = 2,
       USED_CALL =
           4, /* a name in front of a parenthesis or of template arguments, or whose address is taken */
       USED_SCOPED = 8, /* behind SCOPE::, or in a namespace */
       USED_ALL = USED_MEMBER | USED_NAME | USED_CALL | USED_SCOPED
};

static void use(struct pruner *p, int word, int how)
{
    if (word < 0 || (p->used[word] | how) == p->used[word])
        return;
    p->used[word] |= (unsigned char)how;
    p->changed = true;
}

static bool is_part_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool has_word(const char *text, size_t n, const char *part, size_t size)
{
    for (size_t at = 0; at + size <= n; at++)
        if (text[at] == part[0] && memcmp(text + at, part, size) == 0 &&
            (at == 0 || !is_part_of_word(text[at - 1])) &&
            (at + size == n || !is_part_of_word(text[at + size])))
            return true;
    return false;
}

/* Does something that stays give this to a macro, which may paste it? */
static bool is_given(const struct pruner *p, const char *part, size_t size)
{
    for (int i = 0; i < p->u->n; i++) {
        const struct unit *x = &p->u->unit[i];
        for (int k = x->head; p->live[i] && k < (x->open >= 0 ? x->open : x->last); k++) {
            const struct token *token = &p->t->token[k];
            const char *text = p->t->text + token->at;
            const bool same = token->size == size && memcmp(text, part, size) == 0;
            if (token->kind == TOKEN_DIRECTIVE
                    ? has_word(text, token->size, part, size)
                    : same && (token_is(p->t, k - 1, "(") || token_is(p->t, k - 1, ",")))
                return true;
        }
    }
    return false;
}

static void use_prefix(struct pruner *p, const char *prefix, size_t size)
{
    for (int i = 0; i < p->t->n_words; i++) {
        const struct word *w = &p->t->word[i];
        if (w->size > size && memcmp(w->text, prefix, size) == 0 && p->used[i] != USED_ALL &&
            is_given(p, w->text + size, w->size - size))
            use(p, i, USED_ALL);
    }
}

/* The words of a directive. */
static void use_directive(struct pruner *p, const struct token *token)
{
    const char *text = p->t->text + token->at;
    const char *word;
    size_t size;
    size_t at = 0;
    while (next_word(text, token->size, &at, &word, &size)) {
        use(p, tokens_word(p->t, word, size), USED_ALL);
    }
}

/* In directives that stay, WORD##... is any word that begins so and ends in what somebody writes. */
static void use_pasted(struct pruner *p)
{
    for (int i = 0; i < p->u->n; i++) {
        const struct token *token = &p->t->token[p->u->unit[i].head];
        const char *text = p->t->text + token->at;
        const char *word;
        size_t size;
        size_t at = 0;
        while (p->live[i] && token->kind == TOKEN_DIRECTIVE &&
               next_word(text, token->size, &at, &word, &size))
            if (at + 1 < token->size && text[at] == '#' && text[at + 1] == '#')
                use_prefix(p, word, size);
    }
}

static int use_at(const struct pruner *p, int i)
{
    const bool member =
        token_is(p->t, i - 1, ".") || (token_is(p->t, i - 1, ">") && token_is(p->t, i - 2, "-"));
    const bool call = token_is(p->t, i + 1, "(") || token_is(p->t, i + 1, "<") || token_is(p->t, i - 1, "&");
    const bool scoped = token_is(p->t, i - 1, ":");
    return (member ? USED_MEMBER : USED_MEMBER | USED_NAME) | (call && !member ? USED_CALL : 0) |
           (scoped ? USED_SCOPED : 0);
}

static bool is_in_scope(const struct pruner *p, int unit)
{
    while (unit >= 0 && p->u->unit[unit].kind != UNIT_SCOPE)
        unit = p->u->unit[unit].parent;
    return unit >= 0;
}

/* What the unit writes itself, not the units in it. */
static void use_unit(struct pruner *p, int unit)
{
    const struct unit *x = &p->u->unit[unit];
    const int end = x->open >= 0 ? x->open : x->last;
    const int inside = is_in_scope(p, x->parent) ? USED_SCOPED : 0;
    for (int i = x->head; i < end; i++) {
        const struct token *token = &p->t->token[i];
        if (token->kind == TOKEN_WORD)
            use(p, token->word, use_at(p, i) | inside);
        else if (token->kind == TOKEN_DIRECTIVE)
            use_directive(p, token);
    }
}

/* Some call gives a value in braces, whose type it does not write. */
static bool is_given_braces(const struct pruner *p, int word)
{
    for (int i = 0; i + 1 < p->t->n; i++) {
        const int end =
            p->t->token[i].word == word && token_is(p->t, i + 1, "(") ? p->t->token[i + 1].pair : 0;
        for (int k = i + 2; k < end; k = token_behind(p->t, k))
            if (token_is(p->t, k, "{") && (k == i + 2 || token_is(p->t, k - 1, ",")))
                return true;
    }
    return false;
}

static bool is_overloaded(const struct pruner *p, int word)
{
    int n = 0;
    for (int i = 0; i < p->u->n; i++)
        n += p->u->unit[i].is_function && declares(p->u, &p->u->unit[i], word);
    return n > 1;
}

/* An overload that nobody calls: its parameters are of a struct that nobody else writes. */
static bool takes_unused_type(const struct pruner *p, const struct unit *x)
{
    if (x->n_names == 0 || !is_overloaded(p, p->u->name[x->name]) || is_given_braces(p, p->u->name[x->name]))
        return false;
    int i = x->head;
    while (x->is_function && i < x->last &&
           !(p->t->token[i].word == p->u->name[x->name] && token_is(p->t, i + 1, "(")))
        i++;
    const int end = x->is_function && i < x->last ? p->t->token[i + 1].pair : i;
    for (i += 2; i < end; i++) {
        const int word = p->t->token[i].word;
        const bool type = word >= 0 && (token_is(p->t, i + 1, "*") || token_is(p->t, i + 1, "&") ||
                                        p->t->token[i + 1].kind == TOKEN_WORD);
        if (type && p->is_struct[word] && !p->used[word])
            return true;
    }
    return false;
}

static bool is_used(const struct pruner *p, const struct unit *x)
{
    const enum unit_kind within = x->parent < 0 ? UNIT_CODE : p->u->unit[x->parent].kind;
    const int how = within == UNIT_STRUCT                      ? USED_MEMBER
                    : within == UNIT_SCOPE && !p->opens_scopes ? USED_SCOPED
                    : x->is_function                           ? USED_CALL
                                                               : USED_NAME;
    bool used = x->always;
    for (int k = 0; k < x->n_names; k++)
        used |= (p->used[p->u->name[x->name + k]] & how) != 0;
    used = used && (x->always || !takes_unused_type(p, x));
    return used && x->kind != UNIT_HEADING && x->kind != UNIT_ASSERT;
}

static bool opens_scopes(const struct tokens *t)
{
    for (int i = 0; i + 1 < t->n; i++)
        if (token_is(t, i, "using") && token_is(t, i + 1, "namespace"))
            return true;
    return false;
}

static void find_live(struct pruner *p)
{
    p->opens_scopes = opens_scopes(p->t);
    for (int i = 0; i < p->u->n; i++)
        if (p->u->unit[i].kind == UNIT_STRUCT && p->u->unit[i].n_names > 0)
            p->is_struct[p->u->name[p->u->unit[i].name]] = true;
    do {
        p->changed = false;
        for (int i = 0; i < p->u->n; i++) {
            const struct unit *x = &p->u->unit[i];
            if (p->live[i] || !is_used(p, x) || (x->parent >= 0 && !p->live[x->parent]))
                continue;
            p->live[i] = p->changed = true;
            use_unit(p, i);
        }
        use_pasted(p);
    } while (p->changed);
}

/* ---- what stands around it ---------------------------------------------------------------------------- */

/* Is there anything of a namespace, or between #if and #endif, that stays? */
static bool is_hollow(const struct pruner *p, int first, int last)
{
    for (int i = first; i < last; i++)
        if (p->live[i] && p->u->unit[i].kind != UNIT_SCOPE && !p->u->unit[i].always)
            return false;
    for (int i = first; i < last; i++)
        if (p->live[i] && (p->u->unit[i].kind == UNIT_CODE || p->u->unit[i].kind == UNIT_STRUCT))
            return false;
    return true;
}

static bool is_directive(const struct pruner *p, int unit, const char *name)
{
    const struct unit *x = &p->u->unit[unit];
    const struct token *token = &p->t->token[x->head];
    return x->kind == UNIT_DIRECTIVE && token->size > strlen(name) &&
           memcmp(p->t->text + token->at, name, strlen(name)) == 0;
}

static int end_of_condition(const struct pruner *p, int unit)
{
    int depth = 0;
    for (int i = unit; i < p->u->n; i++) {
        depth += is_directive(p, i, "#if")                                                              ? 1
                 : p->u->unit[i].kind == UNIT_DIRECTIVE && token_is(p->t, p->u->unit[i].head, "#endif") ? -1
                                                                                                        : 0;
        if (depth == 0)
            return i;
    }
    return -1;
}

static bool has_pragma(const struct pruner *p, int first, int last)
{
    for (int i = first; i < last; i++)
        if (is_directive(p, i, "#pragma"))
            return true;
    return false;
}

static void drop_hollow(struct pruner *p)
{
    for (int i = 0; i < p->u->n; i++) {
        const struct unit *x = &p->u->unit[i];
        int last = i + 1;
        if (x->kind == UNIT_SCOPE)
            while (last < p->u->n && p->u->unit[last].first < x->last)
                last++;
        else if (is_directive(p, i, "#if"))
            last = end_of_condition(p, i) + 1;
        if (last <= i + 1 || !is_hollow(p, i, last) || has_pragma(p, i, last))
            continue;
        for (int k = i; k < last; k++)
            p->live[k] = false;
    }
}

/* Of a file, of a section, of what comes next. */
static int heading_level(const struct pruner *p, const struct unit *x)
{
    const char *text = p->t->text + p->t->token[x->first].at;
    return strncmp(text, "// ====", 7) == 0 ? 0 : strncmp(text, "// ----", 7) == 0 ? 1 : 2;
}

/* A heading stays where something of what it stands above stays. */
static void keep_headings(struct pruner *p)
{
    for (int i = p->u->n - 1; i >= 0; i--) {
        const struct unit *x = &p->u->unit[i];
        if (x->kind != UNIT_HEADING)
            continue;
        const int level = heading_level(p, x);
        bool kept = false;
        for (int k = i + 1; k < p->u->n && !kept && p->u->unit[k].parent >= x->parent; k++) {
            const struct unit *other = &p->u->unit[k];
            if (other->kind == UNIT_HEADING && heading_level(p, other) <= level && level < 2)
                break;
            kept = p->live[k] && other->kind != UNIT_HEADING;
            if (level == 2 && other->kind != UNIT_HEADING)
                break;
        }
        p->live[i] = kept;
    }
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static void write(const struct pruner *p, struct text_buf *out, bool *dropped)
{
    const struct token *token = p->t->token;
    for (int i = 0; i < p->u->n; i++)
        for (int k = p->u->unit[i].first; k < p->u->unit[i].last; k++)
            dropped[k] |= !p->live[i];
    for (int i = 0; i < p->t->n; i++) {
        const size_t from = i > 0 ? token[i - 1].at + token[i - 1].size : 0;
        if (!dropped[i])
            text_add_bytes(out, p->t->text + from, token[i].at + token[i].size - from);
    }
    text_add(out, "\n");
}

bool prune(const struct units *u, struct text_buf *out)
{
    struct pruner p = {.u = u,
                       .t = u->tokens,
                       .live = calloc((size_t)u->n + 1, sizeof(bool)),
                       .used = calloc((size_t)u->tokens->n_words + 1, 1),
                       .is_struct = calloc((size_t)u->tokens->n_words + 1, sizeof(bool))};
    bool *dropped = calloc((size_t)u->tokens->n + 1, sizeof *dropped);
    const bool good = p.live && p.used && p.is_struct && dropped;
    if (good) {
        find_live(&p);
        drop_hollow(&p);
        keep_headings(&p);
        write(&p, out, dropped);
    }
    free(p.live);
    free(p.used);
    free(p.is_struct);
    free(dropped);
    return good && !out->failed;
}
