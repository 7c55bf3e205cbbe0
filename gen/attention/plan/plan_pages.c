/*
 * plan_pages.c: attention_fwd_sm90 of keys of 8 bits in pages, which are widened and copied out of their
 * pages ahead of it. In: a request and what plan.c has found out about the spec. Out: the plan, or why there
 * is none.
 */
#include "gen/attention/planner.h"
#include "gen/attention/kernel.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A number of k or v costs four bytes more, since it is read, written in 16 bits, and read as such in the
   place of 8: 1.14 ps at 3.5 TB/s. Each row of queries that meets it is two FLOP: attention_fwd_narrow, whose
   tiles have 128 rows, takes 8.7 ms for each 2^40 at 256 rows (122 TFLOP/s), copies and attention_fwd_sm90
   4.2 (256); of one sequence and 128 rows 31 and 6.7 (H200, 2026-11-30). */
enum {
    LEAST_ROWS = 128,
    MOST_COPIES = 2 /* places of the table for each page of the pool: sequences may share pages, or have room
                       for far more keys than any of them uses */
};
/* Of a workspace that nobody asked for: 64 prompts of 16384 keys, eight heads, d 128. Where caches leave a
   GPU little room, a call that is slower is better than one that finds no memory. */
static const int64_t MOST_BYTES = (int64_t)4 << 30;

static bool is_asked_for(const struct kernel_request *r)
{
    return strstr(r->device->template_name, "attention_fwd_gathered_sm90") != NULL;
}

/* Rows of queries that a key meets at most, of packed sequences on average; 0: nobody knows. */
static int64_t rows_of_key(const struct problem *p)
{
    const int64_t *const dim = p->dim;
    const int64_t seqs = p->packed ? dim[SYM_SEQS] : 1;
    return dim[SYM_Q] > 0 && seqs > 0 && dim[SYM_H_KV] > 0 ? dim[SYM_Q] / seqs * (dim[SYM_H] / dim[SYM_H_KV])
                                                           : 0;
}

static int64_t or_none(int64_t dim)
{
    return dim > 0 ? dim : 0;
}

/* Keys of all sequences, as many as their pages hold. */
static int64_t places_of(const struct problem *p)
{
    return or_none(p->dim[SYM_SEQS]) * or_none(p->dim[SYM_KV]);
}

static bool has_few_places(const struct problem *p)
{
    const int64_t pool = or_none(p->dim[SYM_POOL]) * or_none(p->dim[SYM_PAGE]);
    return places_of(p) <= MOST_COPIES * pool;
}

/* TMA counts the copies of all sequences; of batches those of all heads, too. */
static bool counts(const struct problem *p)
{
    const int64_t heads = p->packed ? 1 : or_none(p->dim[SYM_H_KV]);
    const int64_t places = places_of(p);
    return lathe__tma_counts(places, 0, 1) && lathe__tma_counts(places * heads, 0, 1);
}

/* Of keys that TMA counts. */
static int64_t copied_bytes(const struct problem *p)
{
    const int64_t columns = or_none(p->dim[SYM_D]) + or_none(p->dim[SYM_D_V]);
    return places_of(p) * or_none(p->dim[SYM_H_KV]) * columns * 2;
}

static bool pays(const struct problem *p)
{
    return p->deterministic != DETERMINISTIC_BATCH && rows_of_key(p) >= LEAST_ROWS && has_few_places(p) &&
           counts(p) && copied_bytes(p) <= MOST_BYTES;
}

static bool is_wanted(const struct kernel_request *r, char *why)
{
    const struct problem *p = r->problem;
    if (!counts(p))
        snprintf(why, REASON_BYTES,
                 "seqs = %" PRId64 " sequences with room for %" PRId64
                 " keys each; it copies keys of them all "
                 "to places that TMA counts, of which there are 2^30",
                 p->dim[SYM_SEQS], p->dim[SYM_KV]);
    else if (is_asked_for(r) || pays(p))
        return true;
    else if (p->deterministic == DETERMINISTIC_BATCH)
        snprintf(
            why, REASON_BYTES,
            "deterministic=batch is asked for, and whether its copies pay depends on the batch; asked for "
            "by its name it takes that");
    else if (rows_of_key(p) < LEAST_ROWS)
        snprintf(why, REASON_BYTES,
                 "a key meets %" PRId64
                 " rows of queries; it copies keys for %d and more, from which on that "
                 "pays; asked for by its name it takes fewer",
                 rows_of_key(p), (int)LEAST_ROWS);
    else if (has_few_places(p))
        snprintf(why, REASON_BYTES,
                 "its copies have %" PRId64
                 " bytes, and it makes up to 2^32 of them unasked; asked for by its "
                 "name it takes more",
                 copied_bytes(p));
    else
        snprintf(why, REASON_BYTES,
                 "the table has %" PRId64 " places for the %" PRId64
                 " pages of the pool; it copies keys of up "
                 "to %d for each; asked for by its name it takes more",
                 p->dim[SYM_SEQS] * p->dim[SYM_MOST], p->dim[SYM_POOL], (int)MOST_COPIES);
    return false;
}

static void say_why(const struct kernel_request *r, struct plan *plan)
{
    const size_t used = strlen(plan->reason);
    char *const to = plan->reason + used;
    const size_t room = sizeof plan->reason - used;
    const int n = snprintf(to, room, "; keys are copied out of their pages ahead of it, in 16 bits, ");
    if (!pays(r->problem))
        snprintf(to + n, room - (size_t)n, "as it is asked for by its name");
    else
        snprintf(to + n, room - (size_t)n,
                 "since each meets %d rows of queries or more, and there are at most %d copies of a page",
                 (int)LEAST_ROWS, (int)MOST_COPIES);
}

bool plan_attention_gathered(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->attention.gathers = true;
    if (!is_wanted(r, why) || !plan_attention_sm90(r, plan, why))
        return false;
    say_why(r, plan);
    return true;
}

int attention_gathered_lengths(const struct problem *problem, const struct device *device)
{
    const bool gathered = problem->paged && lathe__has_narrow(problem) && pays(problem);
    return attention_sm90_lengths(problem, device) | (gathered ? LENGTHS_GATHERED : 0);
}
