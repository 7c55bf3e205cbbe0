/*
 * code_text.c: a C++ text as its compiler sees it: without comments, blank lines and blanks that are not
 * inside of a string. In: a text. Out: the same code, never longer. So the digest of a kernel does not change
 * with its comments.
 */
#include "code_text.h"

#include <ctype.h>
#include <stdbool.h>

struct reader {
    const char *at;
    const char *end;
    char *out;
    char *next;
};

static bool starts_with(const struct reader *r, char first, char second)
{
    return r->end - r->at >= 2 && r->at[0] == first && r->at[1] == second;
}

static char last(const struct reader *r)
{
    return r->next > r->out ? r->next[-1] : '\n';
}

/* A blank stands for any number of them, a line end for any number of blank lines, and neither begins a line.
 */
static void put_blank(struct reader *r, char blank)
{
    if (blank == '\n' && last(r) == ' ')
        r->next--;
    if (last(r) != '\n' && last(r) != ' ')
        *r->next++ = blank;
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
    put_blank(r, ' ');
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
    return *r->at == '\'' && isalnum((unsigned char)last(r));
}

size_t code_text(const char *text, size_t size, char *out)
{
    struct reader r = {.at = text, .end = text + size, .out = out, .next = out};
    while (r.at < r.end) {
        if (starts_with(&r, '/', '/'))
            skip_line_comment(&r);
        else if (starts_with(&r, '/', '*'))
            skip_block_comment(&r);
        else if ((*r.at == '"' || *r.at == '\'') && !is_separator(&r))
            copy_quoted(&r);
        else if (isspace((unsigned char)*r.at))
            put_blank(&r, *r.at++ == '\n' ? '\n' : ' ');
        else
            *r.next++ = *r.at++;
    }
    while (r.next > out && isspace((unsigned char)r.next[-1]))
        r.next--;
    return (size_t)(r.next - out);
}
