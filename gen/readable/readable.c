/*
 * readable.c: a kernel's text as people read it: branches folded, then declarations pruned. In: one CUDA
 * file. Out: a shorter one of the same machine code; the same where brackets do not match.
 */
#include "gen/readable/readable.h"
#include "gen/base/text.h"
#include "gen/readable/fold.h"
#include "gen/readable/units.h"

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

/* What one step takes away may decide what another asks: until nothing changes. */
void readable_text(const char *text, size_t size, struct text_buf *out)
{
    enum { ROUNDS = 4 };
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
    text_fail_with(out, &before);
    text_add_bytes(out, before.data, before.size);
    text_free(&before);
}
