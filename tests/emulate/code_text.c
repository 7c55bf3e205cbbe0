/*
 * code_text.c: a C++ text as its compiler sees it: tokens, with a blank only where two of them would be read
 * as another one; a directive of the preprocessor is a line of its own. In: a text. Out: the same code, never
 * longer. So neither comments nor the formatter change the digest of a kernel.
 */
#include "code_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct reader {
    const char *at;
    const char *end;
    char *out;
    char *next;
    bool directive; /* a line that begins with # */
    bool blank;     /* between the last token and the next one, in the text */
};

static bool starts_with(const struct reader *r, char first, char second)
{
    return r->end - r->at >= 2 && r->at[0] == first && r->at[1] == second;
}

static char last(const struct reader *r)
{
    return r->next > r->out ? r->next[-1] : '\n';
}

static void skip_line_comment(struct reader *r)
{
    while (r->at < r->end && *r->at != '\n')
        r->at++;
}

static void skip_block_comment(struct reader *r)
{
    r->at += 2;
    while (r->at < r->end && !starts_with(r, '*', '/'))
        r->at++;
    r->at += r->at < r->end ? 2 : 0;
    r->blank = true;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Is the last token a number, which a point would continue? */
static bool ends_in_number(const struct reader *r)
{
    const char *at = r->next;
    while (at > r->out && is_word(at[-1]))
        at--;
    return at < r->next && isdigit((unsigned char)*at);
}

/* Would the last token and the next one be read as one, or as others? */
static bool are_one(const struct reader *r)
{
    const char before = last(r);
    const char next = *r->at;
    if (next == '.')
        return before == '.' || ends_in_number(r);
    if (before == '.')
        return isdigit((unsigned char)next);
    if (is_word(before) || before == '"' || before == '\'')
        return is_word(next) || next == '"' || next == '\'';
    return strchr("+-*/%&|^!=<>:#", before) && strchr("+-*/%&|^!=<>:#", next);
}

/* "#define F (x)" is no macro with an argument: the blank behind the name of a macro counts. */
static bool is_behind_macro(const struct reader *r)
{
    static const char DEFINE[] = "#define ";
    const char *at = r->next;
    while (at > r->out && is_word(at[-1]))
        at--;
    const size_t n = sizeof DEFINE - 1;
    return r->directive && *r->at == '(' && (size_t)(at - r->out) >= n && memcmp(at - n, DEFINE, n) == 0;
}

static void put_blank(struct reader *r)
{
    if (r->blank && last(r) != '\n' && (are_one(r) || is_behind_macro(r)))
        *r->next++ = ' ';
    r->blank = false;
}

static void end_line(struct reader *r)
{
    if (r->directive && last(r) != '\n')
        *r->next++ = '\n';
    r->blank = !r->directive;
    r->directive = false;
    r->at++;
}

/* A directive begins a line, behind whatever stands in front of it. */
static void begin_directive(struct reader *r)
{
    r->directive = true;
    r->blank = false;
    if (last(r) != '\n')
        *r->next++ = '\n';
}

static bool begins_line(const struct reader *r, const char *text)
{
    const char *at = r->at;
    while (at > text && at[-1] != '\n' && isspace((unsigned char)at[-1]))
        at--;
    return at == text || at[-1] == '\n';
}

/* A string or a character, as it stands. */
static void copy_quoted(struct reader *r)
{
    const char quote = *r->at;
    *r->next++ = *r->at++;
    while (r->at < r->end && *r->at != quote && *r->at != '\n') {
        if (*r->at == '\\' && r->at + 1 < r->end)
            *r->next++ = *r->at++;
        *r->next++ = *r->at++;
    }
    if (r->at < r->end && *r->at == quote)
        *r->next++ = *r->at++;
}

/* The quote in 1'000 separates digits. */
static bool is_separator(const struct reader *r)
{
    return *r->at == '\'' && !r->blank && isalnum((unsigned char)last(r));
}

static void copy_token(struct reader *r, const char *text)
{
    if (*r->at == '#' && begins_line(r, text))
        begin_directive(r);
    const bool separator = is_separator(r);
    put_blank(r);
    if ((*r->at == '"' || *r->at == '\'') && !separator)
        copy_quoted(r);
    else
        *r->next++ = *r->at++;
}

size_t code_text(const char *text, size_t size, char *out)
{
    struct reader r = {.at = text, .end = text + size, .out = out, .next = out};
    while (r.at < r.end) {
        if (starts_with(&r, '/', '/'))
            skip_line_comment(&r);
        else if (starts_with(&r, '/', '*'))
            skip_block_comment(&r);
        else if (starts_with(&r, '\\', '\n'))
            r.at += 2, r.blank = true;
        else if (*r.at == '\n')
            end_line(&r);
        else if (isspace((unsigned char)*r.at))
            r.at++, r.blank = true;
        else
            copy_token(&r, text);
    }
    while (r.next > out && isspace((unsigned char)r.next[-1]))
        r.next--;
    return (size_t)(r.next - out);
}
