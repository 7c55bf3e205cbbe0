/*
 * scan.c: finds Lua that cannot be traced. Lua decides `if`, `and`, `or`, `not`, `==` on traced values by
 * itself and silently takes them for true, so every Lua function that runs while tracing is looked up in
 * its source and these words are mistakes. In: text and the lines of a function. Out: words and lines.
 */
#include "trace.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    const char *at;
    const char *end;
    int line;
};

struct token {
    char text[16]; /* words and operators; longer words are cut, which no keyword is */
    int line;
};

/* Level of a long bracket "[==[" at p, or -1. */
static int bracket_level(const char *p, const char *end)
{
    const char *q = p + 1;
    while (q < end && *q == '=')
        q++;
    return q < end && *q == '[' ? (int)(q - p - 1) : -1;
}

static void skip_bracket(struct lexer *x, int level)
{
    for (; x->at < x->end; x->at++) {
        if (*x->at == '\n')
            x->line++;
        if (*x->at != ']')
            continue;
        const char *q = x->at + 1;
        while (q < x->end && *q == '=')
            q++;
        if (q < x->end && *q == ']' && q - x->at - 1 == level) {
            x->at = q + 1;
            return;
        }
    }
}

static void skip_string(struct lexer *x)
{
    char quote = *x->at++;
    while (x->at < x->end && *x->at != quote && *x->at != '\n') {
        if (*x->at == '\\' && x->at + 1 < x->end) {
            x->at++;
            x->line += *x->at == '\n';
        }
        x->at++;
    }
    if (x->at < x->end && *x->at == quote)
        x->at++;
}

static void skip_comment(struct lexer *x)
{
    x->at += 2;
    if (x->at < x->end && *x->at == '[' && bracket_level(x->at, x->end) >= 0) {
        skip_bracket(x, bracket_level(x->at, x->end));
        return;
    }
    while (x->at < x->end && *x->at != '\n')
        x->at++;
}

/* Over blanks, comments and strings. */
static void skip_noise(struct lexer *x)
{
    while (x->at < x->end) {
        if (*x->at == '\n')
            x->line++;
        if (isspace((unsigned char)*x->at))
            x->at++;
        else if (x->end - x->at >= 2 && x->at[0] == '-' && x->at[1] == '-')
            skip_comment(x);
        else if (*x->at == '"' || *x->at == '\'')
            skip_string(x);
        else if (*x->at == '[' && bracket_level(x->at, x->end) >= 0)
            skip_bracket(x, bracket_level(x->at, x->end));
        else
            return;
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool next_token(struct lexer *x, struct token *t)
{
    skip_noise(x);
    if (x->at >= x->end)
        return false;
    const char *start = x->at;
    if (is_word(*x->at))
        while (x->at < x->end && is_word(*x->at))
            x->at++;
    else if (x->end - x->at >= 2 && strchr("=~<>", x->at[0]) && x->at[1] == '=')
        x->at += 2;
    else
        x->at++;
    size_t size = (size_t)(x->at - start);
    if (size >= sizeof t->text)
        size = sizeof t->text - 1;
    memcpy(t->text, start, size);
    t->text[size] = 0;
    t->line = x->line;
    return true;
}

static bool is_one_of(const char *word, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(word, *list) == 0)
            return true;
    return false;
}

/* Scan one function body that starts after its `function` word. Returns the line of its `end`. */
static int scan_body(struct lexer *x, struct scan_hit *hit, int max_hits, int *n_hits)
{
    static const char *const forbidden[] = {"if", "and", "or", "not", "==", "~=", "while", "repeat", NULL};
    static const char *const opens[] = {"function", "if", "do", "repeat", NULL};
    static const char *const closes[] = {"end", "until", NULL};
    struct token t;
    int depth = 1;
    while (depth > 0 && next_token(x, &t)) {
        if (is_one_of(t.text, forbidden) && *n_hits < max_hits) {
            hit[*n_hits].line = t.line;
            snprintf(hit[*n_hits].word, sizeof hit[0].word, "%.7s", t.text);
            (*n_hits)++;
        }
        depth += is_one_of(t.text, opens) - is_one_of(t.text, closes);
    }
    return x->line;
}

int scan_function(const char *text, size_t size, int line, int last_line, struct scan_hit *hit, int max_hits)
{
    struct lexer x = {text, text + size, 1};
    struct token t;
    int n_hits = 0;
    while (next_token(&x, &t) && t.line <= line) {
        if (t.line < line || strcmp(t.text, "function") != 0)
            continue;
        struct lexer body = x;
        int before = n_hits;
        if (scan_body(&body, hit, max_hits, &n_hits) != last_line)
            n_hits = before; /* another function that starts on the same line */
    }
    return n_hits;
}

static void report(struct tracer *t, const struct source_text *file, const struct scan_hit *hit)
{
    static const struct {
        const char *word;
        const char *advice;
    } ADVICE[] = {
        {"if", "write where(c, a, b)"},
        {"and", "write a & b"},
        {"or", "write a | b"},
        {"not", "write ~a"},
        {"==", "write eq(a, b)"},
        {"~=", "write ne(a, b)"},
        {"while", "decide it outside of it"},
        {"repeat", "decide it outside of it"},
    };
    const char *advice = "";
    for (size_t i = 0; i < sizeof ADVICE / sizeof *ADVICE; i++)
        if (strcmp(ADVICE[i].word, hit->word) == 0)
            advice = ADVICE[i].advice;
    diag_add(
        t->diag, file->name, hit->line,
        "'%s' cannot be traced: a traced function is a straight-line formula and Lua would silently take a "
        "traced value as true; %s",
        hit->word, advice);
}

void scan_call(lua_State *lua, lua_Debug *call)
{
    struct tracer *t = tracer_of(lua);
    lua_getinfo(lua, "S", call);
    for (int f = 0; f < FILE_COUNT; f++) {
        const struct source_text *file = &t->file[f];
        if (call->source[0] != '@' || strcmp(call->source + 1, file->name) != 0 || call->what[0] != 'L')
            continue;
        int key = f * (1 << 20) + call->linedefined;
        int known = 0;
        for (int i = 0; i < t->n_scanned; i++)
            known = abs(t->scanned[i]) == key ? t->scanned[i] : known;
        if (known > 0)
            return;
        struct scan_hit hit[DIAG_MAX];
        int n = known < 0 ? 0
                          : scan_function(file->data, file->size, call->linedefined, call->lastlinedefined,
                                          hit, DIAG_MAX);
        for (int i = 0; i < n; i++)
            report(t, file, &hit[i]);
        bool bad = known < 0 || n > 0;
        if (known == 0 && t->n_scanned < SCANNED_MAX)
            t->scanned[t->n_scanned++] = bad ? -key : key;
        if (bad) {
            t->scan_failed = true; /* recorded: the message handler adds nothing */
            luaL_error(lua, "cannot be traced");
        }
        return;
    }
}
