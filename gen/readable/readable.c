/*
 * readable.c: a kernel's text as people read it: branches folded, then declarations pruned. In: one CUDA
 * file. Out: a shorter one of the same machine code; the same where brackets do not match.
 */
#include "gen/readable/readable.h"
#include "gen/base/text.h"
#include "gen/readable/fold.h"
#include "gen/readable/units.h"

#include <string.h>

typedef bool step_fn(const struct units *u, struct text_buf *out);

/* False, and `out` has failed: memory ran out. False alone: the text is not understood. */
static bool run(step_fn *step, const char *text, size_t size, struct text_buf *out)
{
    struct tokens tokens;
    struct units units = {.n = 0};
    bool good = tokens_open(&tokens, text, size);
    good = good && units_open(&units, &tokens) && step(&units, out);
    out->failed |= !good && !tokens.unpaired;
    units_close(&units);
    tokens_close(&tokens);
    return good;
}

/* ---- headings ----------------------------------------------------------------------------------------- */

static size_t line_size(const char *text, size_t size)
{
    const char *end = memchr(text, '\n', size);
    return end ? (size_t)(end - text) + 1 : size;
}

/* "// ==== NAME" above "// NAME: what it is": one line of both. How much of the second is its name, or 0. */
static size_t repeated(const char *line, size_t n, const char *next, size_t next_n)
{
    static const char RULE[] = "// ==== ";
    const size_t rule = strlen(RULE);
    if (n <= rule || strncmp(line, RULE, rule) != 0)
        return 0;
    const size_t name = n - rule - 1;
    const bool same = next_n > name + 4 && strncmp(next, "// ", 3) == 0 && next[3 + name] == ':' &&
                      strncmp(next + 3, line + rule, name) == 0;
    return same ? 3 + name : 0;
}

static bool begins(const char *line, size_t n, const char *with)
{
    return n >= strlen(with) && strncmp(line, with, strlen(with)) == 0;
}

enum place {
    ELSEWHERE,
    BLANK,
    SECTION,
    OPENING,
    CLOSING
}; /* of a file's opening comment: what is shown, the rest */

/* Where a line stands, which is no first line of an opening comment. */
static enum place place_of(enum place before, const char *line, size_t n)
{
    if (n == 1)
        return BLANK;
    if (before == CLOSING || before == OPENING)
        return !begins(line, n, "//") ? ELSEWHERE : n == 3 ? CLOSING : before;
    return begins(line, n, "// ---- ") ? SECTION : ELSEWHERE;
}

/* A blank line is needed between a file's opening comment and what is not about the file. */
static bool is_shown(enum place before, enum place place, const char *line, size_t n, size_t next)
{
    const bool comment = begins(line + n, next, "//") && !begins(line + n, next, "// ---- ");
    if (place == BLANK)
        return before == ELSEWHERE || ((before == OPENING || before == CLOSING) && comment);
    return place != CLOSING && !begins(line, n, "// clang-format o");
}

/* A file's opening comment as one paragraph: its others are for who works on the file. No two blank lines,
 * and none behind a section's name. */
static void shorten_headings(const char *text, size_t size, struct text_buf *out)
{
    enum place before = ELSEWHERE;
    for (size_t at = 0, n = 0; at < size; at += n) {
        const char *line = text + at;
        n = line_size(line, size - at);
        const size_t next = at + n < size ? line_size(line + n, size - at - n) : 0;
        const size_t name = repeated(line, n, line + n, next);
        if (name > 0) {
            text_add_bytes(out, line, n - 1);
            text_add_bytes(out, line + n + name, next - name);
            n += next;
            before = OPENING;
            continue;
        }
        const enum place place = place_of(before, line, n);
        if (is_shown(before, place, line, n, next))
            text_add_bytes(out, line, n);
        before = place;
    }
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

/* What one step takes away may decide what another asks: until nothing changes. */
void readable_text(const char *text, size_t size, struct text_buf *out)
{
    enum { ROUNDS = 8 };
    struct text_buf before = {0};
    text_add_bytes(&before, text, size);
    for (int round = 0; round < ROUNDS && !before.failed; round++) {
        struct text_buf folded = {0};
        struct text_buf pruned = {0};
        const bool good = run(fold_branches, before.data, before.size, &folded) &&
                          run(prune, folded.data, folded.size, &pruned);
        const bool shorter = good && pruned.size < before.size;
        out->failed |= folded.failed || pruned.failed;
        text_free(&folded);
        text_free(shorter ? &before : &pruned);
        if (!shorter)
            break;
        before = pruned;
    }
    struct text_buf unwrapped = {0};
    const bool plain = !before.failed && run(unwrap_blocks, before.data, before.size, &unwrapped) &&
                       unwrapped.size < before.size;
    out->failed |= unwrapped.failed;
    text_fail_with(out, &before);
    shorten_headings(plain ? unwrapped.data : before.data, plain ? unwrapped.size : before.size, out);
    text_free(&before);
    text_free(&unwrapped);
}
