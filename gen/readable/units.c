/*
 * units.c: cuts a text into declarations, without a grammar of C++: a declaration ends at its ';' or behind
 * the body of a function. What it declares is the word before its first parenthesis, or before its '='. In:
 * tokens, which stay. Out: units. A unit whose name is not found counts as used.
 */
#include "gen/readable/units.h"
#include "gen/readable/lists.h"

#include <stdlib.h>
#include <string.h>

static bool parse_region(struct units *u, int first, int last, int parent);

/* ---- what stands where -------------------------------------------------------------------------------- */

static enum token_kind kind_of(const struct units *u, int i)
{
    return u->tokens->token[i].kind;
}

static bool is(const struct units *u, int i, const char *text)
{
    return token_is(u->tokens, i, text);
}

static bool is_word(const struct units *u, int i)
{
    return i >= 0 && i < u->tokens->n && kind_of(u, i) == TOKEN_WORD;
}

/* The token before, comments aside. */
static int before(const struct units *u, int i)
{
    i--;
    while (i >= 0 && kind_of(u, i) == TOKEN_COMMENT)
        i--;
    return i;
}

static bool is_one_of(const struct units *u, int i, const char *const *list)
{
    for (; *list; list++)
        if (is(u, i, *list))
            return true;
    return false;
}

/* Behind the '>' of a '<'. */
static int behind_angles(const struct units *u, int i, int last)
{
    int depth = 0;
    for (; i < last; i = token_behind(u->tokens, i)) {
        depth += is(u, i, "<") ? 1 : is(u, i, ">") ? -1 : 0;
        if (depth == 0)
            return i + 1;
    }
    return last;
}

/* The word that `#define` names; -1: it is another directive. */
static int defined_word(const struct tokens *t, int directive)
{
    const struct token *token = &t->token[directive];
    const char *word = NULL;
    size_t size = 0;
    size_t at = 0;
    if (!next_word(t->text + token->at, token->size, &at, &word, &size) || size != 6 ||
        memcmp(word, "define", 6) != 0)
        return -1;
    return next_word(t->text + token->at, token->size, &at, &word, &size) ? tokens_word(t, word, size) : -1;
}

/* ---- lists -------------------------------------------------------------------------------------------- */

static struct unit *add_unit(struct units *u, enum unit_kind kind, int first, int parent)
{
    if (u->n == u->capacity) {
        const int more = u->capacity ? 2 * u->capacity : 512;
        struct unit *grown = realloc(u->unit, (size_t)more * sizeof *grown);
        if (!grown)
            return NULL;
        u->unit = grown;
        u->capacity = more;
    }
    u->unit[u->n] = (struct unit){
        .kind = kind, .first = first, .head = first, .open = -1, .parent = parent, .name = u->n_names};
    return &u->unit[u->n++];
}

static bool add_name(struct units *u, struct unit *unit, int word)
{
    if (u->n_names == u->name_capacity) {
        const int more = u->name_capacity ? 2 * u->name_capacity : 512;
        int *grown = realloc(u->name, (size_t)more * sizeof *grown);
        if (!grown)
            return false;
        u->name = grown;
        u->name_capacity = more;
    }
    u->name[u->n_names++] = word;
    unit->n_names++;
    return true;
}

/* ---- what a declaration declares ---------------------------------------------------------------------- */

struct head {     /* of a declaration */
    int first;    /* behind template <...> */
    int end;      /* its '{', '=' or ';' */
    int type;     /* struct, class, union, enum, using or concept; -1 */
    int function; /* the word before its parameters; -1 */
    bool is_operator;
};

static struct head read_head(const struct units *u, int i, int last)
{
    static const char *const TYPES[] = {"struct", "class", "union", "enum", "using", "concept", NULL};
    static const char *const NO_NAMES[] = {"__launch_bounds__", "alignas",  "__align__",
                                           "requires",          "decltype", "noexcept",
                                           "explicit",          "if",       NULL};
    struct head h = {.type = -1, .function = -1};
    while (is(u, i, "template") && is(u, i + 1, "<"))
        i = behind_angles(u, i + 1, last);
    h.first = i;
    for (; i < last && !is(u, i, "{") && !is(u, i, "=") && !is(u, i, ";"); i = token_behind(u->tokens, i)) {
        h.is_operator |= is(u, i, "operator");
        if (h.type < 0 && h.function < 0 && is_one_of(u, i, TYPES))
            h.type = i;
        if (h.type < 0 && h.function < 0 && is(u, i, "(") && is_word(u, i - 1) &&
            !is_one_of(u, i - 1, NO_NAMES)) /* or T (*name())[n], which gives the address of an array */
            h.function = is(u, i + 1, "*") && is(u, i + 3, "(") ? i + 2 : i - 1;
    }
    h.end = i;
    return h;
}

/* `using SCOPE::NAME;` declares NAME. -1: of several, or of none. */
static int name_of_opened(const struct units *u, const struct head *h)
{
    for (int i = h->type; i < h->end; i++)
        if (is(u, i, ","))
            return -1;
    return is_word(u, h->end - 1) ? h->end - 1 : -1;
}

/* A type's own name: behind its keyword, alignas(...) and attributes. */
static int name_of_type(const struct units *u, const struct head *h)
{
    int i = h->type + 1;
    if (is(u, h->type, "using") && is(u, h->end, ";") && !is(u, i, "namespace"))
        return name_of_opened(u, h);
    while (i < h->end && (is(u, i, "class") || is(u, i, "alignas") || is(u, i, "__align__") ||
                          is(u, i, "(") || is(u, i, "[")))
        i = token_behind(u->tokens, i);
    return i < h->end && is_word(u, i) ? i : -1;
}

/* The word before '=', '{' or ';', before its array's sizes and the arguments of a specialisation. */
static int name_of_variable(const struct units *u, const struct head *h)
{
    int i = h->end - 1;
    while (i > h->first && is(u, i, "]"))
        i = u->tokens->token[i].pair - 1;
    if (is(u, i, ">"))
        for (int depth = 0; i > h->first; i--) {
            depth += is(u, i, ">") ? 1 : is(u, i, "<") ? -1 : 0;
            if (depth == 0)
                break;
        }
    i -= is(u, i, "<");
    return i >= h->first && is_word(u, i) ? i : -1;
}

/* Names of an enum's values, or of the variables of one declaration. */
static bool add_more_names(struct units *u, struct unit *unit, const struct head *h, int end)
{
    const bool values = h->type >= 0 && is(u, h->type, "enum");
    const int first = values ? h->end + 1 : h->first;
    const int last = values && is(u, h->end, "{") ? u->tokens->token[h->end].pair : end;
    bool good = true;
    if (h->function >= 0 || (h->type >= 0 && !values))
        return true;
    for (int i = first; i < last && good; i = token_behind(u->tokens, i))
        if (is_word(u, i) &&
            (is(u, before(u, i), ",") || (values ? before(u, i) == h->end : is(u, i + 1, ","))))
            good = add_name(u, unit, u->tokens->token[i].word);
    return good;
}

static int word_of_parent(const struct units *u, int parent)
{
    return parent >= 0 && u->unit[parent].n_names > 0 ? u->name[u->unit[parent].name] : -1;
}

/* Whoever uses it: what has no name that is found, members that are data, constructors, operators and
 * kernels. */
static bool is_always(const struct units *u, const struct unit *unit, const struct head *h, int name)
{
    static const char *const NAMED[] = {"constexpr", "using", "typedef", NULL};
    const bool member = unit->parent >= 0 && u->unit[unit->parent].kind == UNIT_STRUCT;
    if (name < 0 || h->is_operator || is(u, h->first, "friend"))
        return true;
    for (int i = h->first; i < h->end; i++)
        if (is(u, i, "__global__"))
            return true;
    if (!member || h->type >= 0)
        return false;
    if (h->function >= 0)
        return u->tokens->token[name].word == word_of_parent(u, unit->parent);
    for (int i = h->first; i < h->end; i++)
        if (is_one_of(u, i, NAMED))
            return false;
    return true;
}

/* ---- units -------------------------------------------------------------------------------------------- */

/* A comment that ends the line belongs to what stands before it. */
static int with_comment(const struct units *u, int i, int last)
{
    return i > 0 && i < last && kind_of(u, i) == TOKEN_COMMENT && lines_between(u->tokens, i - 1, i) == 0
               ? i + 1
               : i;
}

/* Behind the ';', or behind the body of a function. */
static int end_of_declaration(const struct units *u, const struct head *h, int last)
{
    const bool body = h->function >= 0 && h->type < 0 && is(u, h->end, "{");
    for (int i = h->end; i < last; i = token_behind(u->tokens, i)) {
        if (is(u, i, ";"))
            return i + 1;
        if (body && is(u, i, "{") && !is(u, token_behind(u->tokens, i), ","))
            return token_behind(u->tokens, i) + is(u, token_behind(u->tokens, i), ";");
    }
    return last;
}

static const char *const RECORDS[] = {"struct", "class", "union", NULL};

static bool parse_declaration(struct units *u, int first, int head, int last, int parent, int *end)
{
    const struct head h = read_head(u, head, last);
    *end = with_comment(u, end_of_declaration(u, &h, last), last);
    struct unit *unit = add_unit(u, is(u, head, "static_assert") ? UNIT_ASSERT : UNIT_CODE, first, parent);
    if (!unit)
        return false;
    const int name = h.function >= 0 ? h.function
                     : h.type >= 0   ? name_of_type(u, &h)
                                     : name_of_variable(u, &h);
    unit->head = head;
    unit->last = *end;
    unit->is_template = h.first > head;
    unit->is_function = h.type < 0 && h.function >= 0;
    unit->always = unit->kind == UNIT_CODE && is_always(u, unit, &h, name);
    if (unit->kind == UNIT_ASSERT)
        return true;
    if ((name >= 0 && !add_name(u, unit, u->tokens->token[name].word)) || !add_more_names(u, unit, &h, *end))
        return false;
    if (h.type < 0 || !is_one_of(u, h.type, RECORDS) || !is(u, h.end, "{"))
        return true;
    unit->kind = UNIT_STRUCT;
    unit->open = h.end;
    return parse_region(u, h.end + 1, u->tokens->token[h.end].pair, u->n - 1);
}

static bool parse_scope(struct units *u, int first, int head, int open, int last, int parent, int *end)
{
    struct unit *unit = add_unit(u, UNIT_SCOPE, first, parent);
    if (!unit)
        return false;
    const int pair = u->tokens->token[open].pair;
    *end = with_comment(u, pair + 1, last);
    unit->head = head;
    unit->last = *end;
    unit->open = open;
    unit->always = true;
    if (is_word(u, head + 1) && !add_name(u, unit, u->tokens->token[head + 1].word))
        return false;
    return parse_region(u, open + 1, pair, u->n - 1);
}

static bool parse_directive(struct units *u, int first, int head, int parent)
{
    struct unit *unit = add_unit(u, UNIT_DIRECTIVE, first, parent);
    if (!unit)
        return false;
    const int word = defined_word(u->tokens, head);
    unit->head = head;
    unit->last = head + 1;
    unit->always = word < 0;
    return word < 0 || add_name(u, unit, word);
}

static bool parse_alone(struct units *u, enum unit_kind kind, int first, int head, int end, int parent)
{
    struct unit *unit = add_unit(u, kind, first, parent);
    if (!unit)
        return false;
    unit->head = head;
    unit->last = end;
    unit->always = kind == UNIT_CODE;
    return true;
}

/* A macro that writes declarations stands in a line of its own: where it ends; else `head`. */
static int end_of_macro(const struct units *u, int head, int last)
{
    if (!is_word(u, head) || !u->defined[u->tokens->token[head].word])
        return head;
    const int end = is(u, head + 1, "(") ? token_behind(u->tokens, head + 1) : head + 1;
    return end >= last || lines_between(u->tokens, end - 1, end) > 0 ? end : head;
}

static bool parse_unit(struct units *u, int first, int head, int last, int parent, int *end)
{
    const bool linkage = is(u, head, "extern") && is(u, head + 1, "\"C\"") && is(u, head + 2, "{");
    const bool space = is(u, head, "namespace") && (is(u, head + 1, "{") || is(u, head + 2, "{"));
    const bool label =
        is_word(u, head) && is(u, head + 1, ":") && parent >= 0 && u->unit[parent].kind == UNIT_STRUCT;
    const int macro = end_of_macro(u, head, last);
    *end = label ? head + 2 : macro > head ? macro : is(u, head, ";") ? head + 1 : head;
    if (kind_of(u, head) == TOKEN_DIRECTIVE)
        return *end = head + 1, parse_directive(u, first, head, parent);
    if (linkage || space)
        return parse_scope(u, first, head, is(u, head + 1, "{") ? head + 1 : head + 2, last, parent, end);
    if (*end > head)
        return parse_alone(u, UNIT_CODE, first, head, *end, parent);
    return parse_declaration(u, first, head, last, parent, end);
}

/* Comments belong to what they stand above, unless a blank line is between. */
static bool parse_comments(struct units *u, int *first, int *head, int last, int parent)
{
    int i = *first;
    while (i < last && kind_of(u, i) == TOKEN_COMMENT) {
        const int next = i + 1;
        if (next < last && lines_between(u->tokens, i, next) < 2) {
            i = next;
            continue;
        }
        if (!parse_alone(u, UNIT_HEADING, *first, *first, next, parent))
            return false;
        *first = i = next;
    }
    *head = i;
    return true;
}

static bool parse_region(struct units *u, int first, int last, int parent)
{
    while (first < last) {
        int head = first;
        int end = last;
        if (!parse_comments(u, &first, &head, last, parent))
            return false;
        if (head >= last)
            break;
        if (!parse_unit(u, first, head, last, parent, &end))
            return false;
        first = end;
    }
    return true;
}

bool units_open(struct units *u, const struct tokens *t)
{
    *u = (struct units){.tokens = t, .defined = calloc((size_t)t->n_words + 1, sizeof *u->defined)};
    if (!u->defined)
        return false;
    for (int i = 0; i < t->n; i++) {
        const int word = t->token[i].kind == TOKEN_DIRECTIVE ? defined_word(t, i) : -1;
        if (word >= 0)
            u->defined[word] = true;
    }
    if (!parse_region(u, 0, t->n, -1))
        return false;
    u->parameter = calloc((size_t)u->n * MOST_PARAMETERS + 1, sizeof *u->parameter);
    return u->parameter != NULL;
}

void units_close(struct units *u)
{
    free(u->unit);
    free(u->name);
    free(u->defined);
    free(u->parameter);
    *u = (struct units){.n = 0};
}

int unit_at(const struct units *u, int token)
{
    int found = -1;
    for (int i = 0; i < u->n && u->unit[i].first <= token; i++)
        if (token < u->unit[i].last)
            found = i;
    return found;
}

/* ---- questions ---------------------------------------------------------------------------------------- */

bool declares(const struct units *u, const struct unit *unit, int word)
{
    for (int k = 0; k < unit->n_names; k++)
        if (u->name[unit->name + k] == word)
            return true;
    return false;
}

int scope_word(const struct units *u, int unit)
{
    return unit >= 0 && u->unit[unit].n_names > 0 ? u->name[u->unit[unit].name] : -1;
}

int find_in_scope(const struct units *u, int scope, int word, bool *many)
{
    int found = -1;
    for (int i = 0; i < u->n; i++) {
        if (!declares(u, &u->unit[i], word) || scope_word(u, u->unit[i].parent) != scope)
            continue;
        *many |= found >= 0;
        found = i;
    }
    return found;
}

int end_of_initialiser(const struct units *u, int i, int last)
{
    while (i < last && !token_is(u->tokens, i, ";") && !token_is(u->tokens, i, ","))
        i = token_behind(u->tokens, i);
    return i;
}
