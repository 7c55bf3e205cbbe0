/*
 * members.h: what the structs of a C++ text declare, for tests that hold generated headers against contracts.
 *
 * Read are struct, using, template, functions and lists of variables, as generated texts have them; bodies
 * and initialisers are passed over. The contracts of templates/contracts are read by the same rules; there a
 * member is not always there whose line has a comment with "where", "only", "alone" or "optional", in the
 * same line or in the lines above it, nor what stands below a line of comment that ends with ':', up to the
 * next empty line.
 */
#ifndef LATHE_TESTS_MEMBERS_H
#define LATHE_TESTS_MEMBERS_H

#include "check.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 4000, MEMBER_PATH = 96 };

struct member {
    char path[MEMBER_PATH]; /* "variant.head.h_kv"; a struct is a member of what it stands in */
    bool is_struct, sometimes;
    long value; /* of a constant, or of its first element; -1: there is none */
};
struct members {
    int n;
    struct member list[MEMBERS];
};

struct member_reader {
    const char *start, *at, *end;
    struct members *out;
    bool sometimes; /* below a line of comment that says so */
};

static inline const struct member *member_find(const struct members *m, const char *path)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->list[i].path, path) == 0)
            return &m->list[i];
    return NULL;
}

static inline bool member_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Words of types: "float ..." names nothing. */
static inline bool member_is_type(const char *name, size_t size)
{
    static const char *const types[] = {"const", "float", "int", "bool", "void", "auto", "long", "unsigned"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i]) == size && strncmp(types[i], name, size) == 0)
            return true;
    return false;
}

/* Whether a line begins here that is a comment and nothing else. */
static inline bool member_is_comment_line(const char *line)
{
    line += strspn(line, " ");
    return line[0] == '/' && line[1] == '/';
}

/* Over spaces, comments and lines of the preprocessor. */
static inline void member_skip(struct member_reader *r)
{
    bool line = false; /* it began with the comment at hand */
    while (r->at < r->end) {
        if (*r->at == '\n') {
            if (r->at + 1 < r->end && r->at[1] == '\n')
                r->sometimes = false;
            line = true;
            r->at++;
        } else if (isspace((unsigned char)*r->at)) {
            r->at++;
        } else if (*r->at == '#' || (r->at[0] == '/' && r->at[1] == '/')) {
            const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
            stop = stop ? stop : r->end;
            r->sometimes = r->sometimes || (line && stop[-1] == ':' && !member_is_comment_line(stop + 1));
            r->at = stop;
        } else {
            return;
        }
    }
}

/* Behind the bracket that closes the one at hand. */
static inline void member_skip_brackets(struct member_reader *r)
{
    static const char pairs[] = "(){}[]<>";
    const char *const pair = strchr(pairs, *r->at);
    int depth = 0;
    for (; r->at < r->end; r->at++) {
        if (r->at[0] == '/' && r->at[1] == '/')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        depth += *r->at == pair[0] ? 1 : *r->at == pair[1] ? -1 : 0;
        if (depth == 0)
            break;
    }
    r->at += r->at < r->end;
}

/* Whether what stands from `at` to `stop` has a word that says that a member is not always there. */
static inline bool member_has_sometimes(const char *at, const char *stop)
{
    static const char *const words[] = {"where", "Where", "only", "Only", "alone", "optional", "Optional"};
    for (; at < stop; at++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            const size_t size = strlen(words[i]);
            if ((size_t)(stop - at) >= size && strncmp(at, words[i], size) == 0 && !member_is_name(at[-1]) &&
                !member_is_name(at[size]))
                return true;
        }
    return false;
}

/* Whether the comment of the line at hand, or the lines of comment above it, say that of its members. */
static inline bool member_line_is_sometimes(const struct member_reader *r)
{
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    stop = stop ? stop : r->end;
    const char *comment = r->at;
    while (comment < stop && (comment[0] != '/' || comment[1] != '/'))
        comment++;
    if (member_has_sometimes(comment, stop))
        return true;
    const char *line = r->at;
    for (;;) {
        while (line > r->start && line[-1] != '\n')
            line--;
        if (line == r->start)
            return false;
        stop = line - 1;
        line = stop;
        while (line > r->start && line[-1] != '\n')
            line--;
        if (!member_is_comment_line(line))
            return false;
        if (member_has_sometimes(line, stop))
            return true;
    }
}

static inline void member_add(struct member_reader *r, const char *scope, const char *name, size_t size,
                              long value)
{
    if (size == 0 || isdigit((unsigned char)*name) || member_is_type(name, size))
        return;
    char path[2 * MEMBER_PATH];
    snprintf(path, sizeof path, "%s%s%.*s", scope, *scope ? "." : "", (int)size, name);
    CHECK(strlen(path) < MEMBER_PATH);
    struct member *m = (struct member *)member_find(r->out, path);
    const bool is_new = m == NULL;
    CHECK(r->out->n < MEMBERS);
    if (is_new)
        m = &r->out->list[r->out->n++];
    memcpy(m->path, path, strlen(path) + 1);
    m->sometimes = (is_new || m->sometimes) && (r->sometimes || member_line_is_sometimes(r));
    m->value = is_new ? value : m->value;
}

/* Of what stands behind a '='. */
static inline long member_value(const char *at)
{
    at += strspn(at, "= {");
    return strncmp(at, "true", 4) == 0    ? 1
           : strncmp(at, "false", 5) == 0 ? 0
           : isdigit((unsigned char)*at)  ? strtol(at, NULL, 0)
                                          : -1;
}

/* An initialiser. */
static inline void member_skip_value(struct member_reader *r)
{
    while (r->at < r->end && *r->at != ',' && *r->at != ';') {
        if (strchr("({[<", *r->at))
            member_skip_brackets(r);
        else
            r->at++;
    }
}

/* Variables, functions and aliases, up to ';' or behind a body. */
static inline void member_read_names(struct member_reader *r, const char *scope)
{
    const char *name = r->at;
    size_t size = 0;
    bool known = false; /* the declarator at hand has left its name */
    while (r->at < r->end) {
        if (member_is_name(*r->at)) {
            const char *const from = r->at;
            while (r->at < r->end && member_is_name(*r->at))
                r->at++;
            if (!known) {
                name = from;
                size = (size_t)(r->at - from);
            }
        } else if (*r->at == '<' || *r->at == '[') {
            member_skip_brackets(r);
        } else if (strchr("(=,;{", *r->at)) {
            const char what = *r->at;
            if (!known)
                member_add(r, scope, name, size, what == '=' ? member_value(r->at) : -1);
            known = what == '(' || what == '=';
            if (what == '(') {
                member_skip_brackets(r);
            } else if (what == '{') {
                member_skip_brackets(r);
                return;
            } else if (what == '=') {
                member_skip_value(r);
            } else {
                size = 0;
                r->at++;
                if (what == ';')
                    return;
            }
        } else if (*r->at == '}') {
            return; /* what has no ';', as in "..." */
        } else if (r->at[0] == '/' && r->at[1] == '/') {
            member_skip(r);
        } else {
            r->at++;
        }
    }
}

static inline bool member_takes(struct member_reader *r, const char *word)
{
    const size_t size = strlen(word);
    if ((size_t)(r->end - r->at) <= size || strncmp(r->at, word, size) != 0 || member_is_name(r->at[size]))
        return false;
    r->at += size;
    member_skip(r);
    return true;
}

static inline void member_read_scope(struct member_reader *r, const char *scope);

/* Behind the word struct. Members of one without a name are found in what it stands in. */
static inline void member_read_struct(struct member_reader *r, const char *scope)
{
    if (member_takes(r, "alignas"))
        member_skip_brackets(r);
    member_skip(r);
    const char *const name = r->at;
    while (member_is_name(*r->at))
        r->at++;
    const size_t size = (size_t)(r->at - name);
    if (*r->at == '<')
        member_skip_brackets(r);
    member_add(r, scope, name, size, -1);
    member_skip(r);
    if (*r->at != '{')
        return;
    char inner[2 * MEMBER_PATH];
    snprintf(inner, sizeof inner, "%s%s%.*s", scope, *scope ? "." : "", (int)size, name);
    struct member *m = (struct member *)member_find(r->out, inner);
    CHECK(m || size == 0);
    if (m)
        m->is_struct = true;
    r->at++;
    member_read_scope(r, m ? inner : scope);
}

static inline void member_read_scope(struct member_reader *r, const char *scope)
{
    for (;;) {
        member_skip(r);
        if (r->at >= r->end || *r->at == '}') {
            r->at += r->at < r->end;
            r->sometimes = false;
            return;
        }
        if (member_takes(r, "static_assert") || member_takes(r, "template")) {
            member_skip_brackets(r);
        } else if (member_takes(r, "struct")) {
            member_read_struct(r, scope);
        } else if (*r->at == ';' || *r->at == '.') {
            r->at++;
        } else if (!member_takes(r, "using namespace")) {
            member_read_names(r, scope);
        } else {
            r->at = strchr(r->at, ';');
        }
    }
}

static inline void members_read(struct members *out, const char *text, size_t size)
{
    struct member_reader r = {.start = text, .at = text, .end = text + size, .out = out};
    while (r.at < r.end)
        member_read_scope(&r, "");
}

#endif
