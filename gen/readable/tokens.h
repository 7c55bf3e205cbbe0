/*
 * tokens.h: a CUDA text as tokens: words, numbers, strings, marks, comments and directives, with their
 * places.
 */
#ifndef LATHE_GEN_READABLE_TOKENS_H
#define LATHE_GEN_READABLE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum token_kind { TOKEN_WORD, TOKEN_NUMBER, TOKEN_STRING, TOKEN_MARK, TOKEN_COMMENT, TOKEN_DIRECTIVE };

struct token {
    enum token_kind kind;
    size_t at; /* in the text */
    size_t size;
    int word; /* of a word: its number, the same wherever it is written the same; else -1 */
    int pair; /* of a bracket: its partner; else -1 */
};
struct word { /* a name, as some token writes it first */
    const char *text;
    size_t size;
    int next; /* of the same hash; -1: none */
};
struct tokens {
    const char *text; /* the caller's */
    size_t size;
    struct token *token; /* [n] */
    int n;
    int capacity;
    struct word *word; /* [n_words] */
    int n_words;
    int word_capacity;
    int *bucket;   /* the words of a hash */
    bool unpaired; /* some bracket has no partner */
};

/* False: a bracket has no partner, or else memory ran out. The caller closes it either way. */
bool tokens_open(struct tokens *t, const char *text, size_t size);
void tokens_close(struct tokens *t);
/* The number of a word; -1: no token is that word. */
int tokens_word(const struct tokens *t, const char *word, size_t size);
/* Does token i read so? False beyond the last one. Here, for half of the time of a text goes into the
   question: a compiler knows the length of what is asked for. */
static inline bool token_is(const struct tokens *t, int i, const char *text)
{
    return i >= 0 && i < t->n && t->token[i].size == strlen(text) &&
           memcmp(t->text + t->token[i].at, text, strlen(text)) == 0;
}
/* The token behind token i, or behind its bracket's partner. */
int token_behind(const struct tokens *t, int i);
/* The next name within a text, from *at on; false where there is none. *at moves behind it. */
bool next_word(const char *text, size_t size, size_t *at, const char **word, size_t *word_size);
/* How many line ends stand between two tokens. */
int lines_between(const struct tokens *t, int before, int after);

#endif
