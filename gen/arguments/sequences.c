/*
 * sequences.c: random packed sequences, lengths, and states or pages of a pool, for `lathe run`, the proofs
 * and tests.
 * In: sizes, a tensor of i32 in host memory. Out: numbers that attention takes. Nothing is kept.
 */
#include "gen/arguments/sequences.h"
#include "runtime/recipe/bind.h"

#include <stdlib.h>
#include <string.h>

static int64_t below(int64_t n, double (*unit)(void *state), void *state)
{
    const int64_t i = (int64_t)(unit(state) * (double)n);
    return i < n ? i : n - 1;
}

static int compare(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* One place in four is that of its neighbour: an empty sequence. */
static void fill_places(int32_t *place, int64_t n, int64_t t, double (*unit)(void *state), void *state)
{
    place[0] = 0;
    for (int64_t i = 1; i < n; i++)
        place[i] = unit(state) < 0.25 ? place[i - 1] : (int32_t)below(t + 1, unit, state);
    if (n > 0) /* no sequence ends at 0 */
        place[n] = (int32_t)t;
    qsort(place, (size_t)n + 1, sizeof *place, compare);
}

static void swap(int32_t *list, int64_t i, int64_t k)
{
    const int32_t mine = list[i];
    list[i] = list[k];
    list[k] = mine;
}

/* In any order, each page once where the pool has so many. */
static void fill_pages(int32_t *page, int64_t n, int64_t pool, double (*unit)(void *state), void *state)
{
    for (int64_t i = 0; i < n; i++)
        page[i] = (int32_t)(n <= pool ? i * pool / n : i % pool);
    for (int64_t i = 0; i < n; i++)
        swap(page, i, i + below(n - i, unit, state));
}

/* From none to all: of `kv` keys, or of those between two places. */
static void fill_lengths(int32_t *length, int64_t n, int64_t kv, const int32_t *place,
                         double (*unit)(void *state), void *state)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t room = place ? (int64_t)place[i + 1] - place[i] : kv;
        length[i] = room > 0 ? (int32_t)below(room + 1, unit, state) : 0;
    }
}

/* Slot i changes places with one behind it, among those that are left. */
void sequences_draw_slots(int32_t *index, int64_t n, int64_t slots, double (*unit)(void *state), void *state)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = i < slots ? (int32_t)i : -1;
    for (int64_t i = 0; i < n; i++)
        swap(index, i, i + below(n - i, unit, state));
    for (int64_t i = 0; i < n; i++)
        index[i] = unit(state) < 0.125 ? -1 : index[i];
}

bool sequences_fill(const struct signature *sig, const int64_t *dim, const lathe_arg *t,
                    const lathe_arg *keys, double (*unit)(void *state), void *state)
{
    const int arg = lathe__arg_find(sig, t->name, 0);
    if (arg < 0 || sig->arg[arg].role != ROLE_IN || t->dtype != LATHE_I32)
        return false;
    if (strcmp(t->name, "cu") == 0)
        fill_places(t->data, t->shape[0] - 1, dim[SYM_T], unit, state);
    else if (strcmp(t->name, "cu_q") == 0)
        fill_places(t->data, t->shape[0] - 1, dim[SYM_Q], unit, state);
    else if (strcmp(t->name, "cu_kv") == 0)
        fill_places(t->data, t->shape[0] - 1, dim[SYM_KV], unit, state);
    else if (strcmp(t->name, "pages") == 0)
        fill_pages(t->data, t->shape[0] * t->shape[1], dim[SYM_POOL], unit, state);
    else if (strcmp(t->name, "used_kv") == 0 && (keys || dim[SYM_PAGE] >= 0 || dim[SYM_SEQS] == dim[SYM_B]))
        fill_lengths(t->data, t->shape[0], dim[SYM_KV], keys && dim[SYM_PAGE] < 0 ? keys->data : NULL, unit,
                     state);
    else if (strcmp(t->name, "state_index") == 0 || strcmp(t->name, "state_out_index") == 0)
        sequences_draw_slots(t->data, t->shape[0], dim[SYM_SLOTS], unit, state);
    else if (strcmp(t->name, "states_index") == 0)
        sequences_draw_slots(t->data, t->shape[0] * t->shape[1], dim[SYM_KEPT], unit, state);
    else
        return false;
    return true;
}
