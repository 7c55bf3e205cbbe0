/*
 * tokens.c: the lexer of readable texts. In: CUDA C++ as the templates write it: no raw strings, no digraphs.
 * Out: tokens with brackets paired and words numbered. What it holds belongs to it and is freed by
 * tokens_close; the text is the caller's.
 */
#include "gen/readable/tokens.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

static bool is_word_start(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_word_part(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- how far a token goes ----------------------------------------------------------------------------- */

static size_t end_of_word(const char *text, size_t size, size_t at)
{
    while (at < size && is_word_part(text[at]))
        at++;
    return at;
}

/* A number of any kind: letters, dots, digit separators, and the sign of an exponent. */
static size_t end_of_number(const char *text, size_t size, size_t at)
{
    while (at < size && (is_word_part(text[at]) || text[at] == '.' || text[at] == '\'' ||
                         ((text[at] == '+' || text[at] == '-') && strchr("eEpP", text[at - 1]) && at > 0)))
        at++;
    return at;
}

static size_t end_of_string(const char *text, size_t size, size_t at)
{
    const char quote = text[at++];
    while (at < size && text[at] != quote)
        at += text[at] == '\\' && at + 1 < size ? 2 : 1;
    return at < size ? at + 1 : size;
}

static size_t end_of_line(const char *text, size_t size, size_t at)
{
    while (at < size && text[at] != '\n')
        at++;
    return at;
}

static size_t end_of_comment(const char *text, size_t size, size_t at)
{
    if (text[at + 1] == '/')
        return end_of_line(text, size, at);
    at += 2;
    while (at + 1 < size && !(text[at] == '*' && text[at + 1] == '/'))
        at++;
    return at + 2 < size ? at + 2 : size;
}

/* With the lines that it goes on in; a comment at its end belongs to it. */
static size_t end_of_directive(const char *text, size_t size, size_t at)
{
    size_t end = end_of_line(text, size, at);
    while (end < size && end > at && text[end - 1] == '\\')
        end = end_of_line(text, size, end + 1);
    return end;
}

static enum token_kind kind_at(const char *text, size_t size, size_t at, size_t *end)
{
    const char c = text[at];
    const char next = at + 1 < size ? text[at + 1] : 0;
    if (c == '/' && (next == '/' || next == '*'))
        return *end = end_of_comment(text, size, at), TOKEN_COMMENT;
    if (c == '#')
        return *end = end_of_directive(text, size, at), TOKEN_DIRECTIVE;
    if (c == '"' || c == '\'')
        return *end = end_of_string(text, size, at), TOKEN_STRING;
    if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)next)))
        return *end = end_of_number(text, size, at), TOKEN_NUMBER;
    if (is_word_start(c))
        return *end = end_of_word(text, size, at), TOKEN_WORD;
    return *end = at + 1, TOKEN_MARK;
}

/* ---- words -------------------------------------------------------------------------------------------- */

static unsigned hash_of(const char *word, size_t size)
{
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)word[i]) * 16777619u;
    return hash % BUCKETS;
}

int tokens_word(const struct tokens *t, const char *word, size_t size)
{
    int i = t->bucket[hash_of(word, size)];
    while (i >= 0 && (t->word[i].size != size || memcmp(t->word[i].text, word, size) != 0))
        i = t->word[i].next;
    return i;
}

static bool grow(void **list, int n, int *capacity, size_t element)
{
    if (n < *capacity)
        return true;
    const int more = *capacity ? 2 * *capacity : 1024;
    void *grown = realloc(*list, (size_t)more * element);
    if (!grown)
        return false;
    *list = grown;
    *capacity = more;
    return true;
}

/* -1: memory ran out. */
static int number_word(struct tokens *t, const char *word, size_t size)
{
    const int known = tokens_word(t, word, size);
    void *list = t->word;
    if (known >= 0)
        return known;
    if (!grow(&list, t->n_words, &t->word_capacity, sizeof *t->word))
        return -1;
    t->word = list;
    int *bucket = &t->bucket[hash_of(word, size)];
    t->word[t->n_words] = (struct word){.text = word, .size = size, .next = *bucket};
    return *bucket = t->n_words++;
}

bool next_word(const char *text, size_t size, size_t *at, const char **word, size_t *word_size)
{
    while (*at < size && !is_word_start(text[*at]))
        *at = isdigit((unsigned char)text[*at]) ? end_of_number(text, size, *at) : *at + 1;
    if (*at >= size)
        return false;
    *word = text + *at;
    *at = end_of_word(text, size, *at);
    *word_size = (size_t)(text + *at - *word);
    return true;
}

/* Of a directive, too: its words count where it is kept. */
static bool number_words_of(struct tokens *t, const struct token *token)
{
    const char *text = t->text + token->at;
    const char *word;
    size_t size;
    size_t at = 0;
    bool good = true;
    while (good && next_word(text, token->size, &at, &word, &size))
        good = number_word(t, word, size) >= 0;
    return good;
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static bool add_token(struct tokens *t, enum token_kind kind, size_t at, size_t end)
{
    void *list = t->token;
    if (!grow(&list, t->n, &t->capacity, sizeof *t->token))
        return false;
    t->token = list;
    struct token *token = &t->token[t->n++];
    *token = (struct token){.kind = kind, .at = at, .size = end - at, .word = -1, .pair = -1};
    if (kind == TOKEN_DIRECTIVE)
        return number_words_of(t, token);
    if (kind != TOKEN_WORD)
        return true;
    token->word = number_word(t, t->text + at, end - at);
    return token->word >= 0;
}

static bool pair_brackets(struct tokens *t)
{
    int *open = malloc(((size_t)t->n + 1) * sizeof *open);
    int depth = 0;
    bool paired = true;
    for (int i = 0; open && paired && i < t->n; i++) {
        const char mark = t->token[i].kind == TOKEN_MARK ? t->text[t->token[i].at] : 0;
        if (mark == '(' || mark == '[' || mark == '{')
            open[depth++] = i;
        if (mark != ')' && mark != ']' && mark != '}')
            continue;
        paired = depth > 0;
        if (paired) {
            t->token[i].pair = open[--depth];
            t->token[open[depth]].pair = i;
        }
    }
    t->unpaired = open && (!paired || depth > 0);
    free(open);
    return open && !t->unpaired;
}

bool tokens_open(struct tokens *t, const char *text, size_t size)
{
    *t = (struct tokens){.text = text, .size = size, .bucket = malloc(BUCKETS * sizeof *t->bucket)};
    if (!t->bucket)
        return false;
    for (int i = 0; i < BUCKETS; i++)
        t->bucket[i] = -1;
    for (size_t at = 0, end = 0; at < size; at = end) {
        end = at + 1;
        if (isspace((unsigned char)text[at]))
            continue;
        const enum token_kind kind = kind_at(text, size, at, &end);
        if (!add_token(t, kind, at, end))
            return false;
    }
    return pair_brackets(t);
}

void tokens_close(struct tokens *t)
{
    free(t->token);
    free(t->word);
    free(t->bucket);
    *t = (struct tokens){.n = 0};
}

int token_behind(const struct tokens *t, int i)
{
    if (i >= t->n)
        return t->n;
    return t->token[i].pair > i ? t->token[i].pair + 1 : i + 1;
}

int lines_between(const struct tokens *t, int before, int after)
{
    const size_t from = t->token[before].at + t->token[before].size;
    int lines = 0;
    for (size_t i = from; i < t->token[after].at; i++)
        lines += t->text[i] == '\n';
    return lines;
}
