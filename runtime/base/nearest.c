/*
 * nearest.c: "did you mean". In: a word that is not known, and the known ones, one after the other. Out: the
 * known word that it most resembles, as the end of a message. Nothing is allocated.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/base.h"

enum { WORD_MAX = 40 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters that are added, left out, changed, or exchanged with their neighbour; case does not count. */
static int distance(const char *a, const char *b)
{
    const int n = (int)strlen(a);
    const int m = (int)strlen(b);
    int row[3][WORD_MAX + 1];
    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3];
        const int *last = row[(i + 2) % 3];
        now[0] = i;
        for (int j = 1; j <= m; j++) {
            const int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + !same);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], row[(i + 1) % 3][j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

void lathe__nearest_try(struct nearest *n, const char *known)
{
    const size_t size = strlen(n->word);
    const size_t known_size = strlen(known);
    if (size == 0 || size > WORD_MAX || known_size == 0 || known_size > WORD_MAX)
        return;
    const int apart = distance(n->word, known);
    const int most = size < 3 ? 0 : size < 6 ? 1 : size < 9 ? 2 : 3;
    const bool better = !n->best[0] || apart < n->apart || (apart == n->apart && strcmp(known, n->best) < 0);
    if (apart > most || !better)
        return;
    n->apart = apart;
    snprintf(n->best, sizeof n->best, "%s", known);
}

const char *lathe__nearest_text(struct nearest *n)
{
    if (n->best[0])
        snprintf(n->text, sizeof n->text, "; did you mean '%s'?", n->best);
    return n->text;
}
