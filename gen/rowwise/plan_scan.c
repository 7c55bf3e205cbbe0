/*
 * plan_scan.c: shapes of rowwise/inner_scan.cuh: how many places of a row a warp takes at once, and how many
 * of them are on their way. In: a request. Out: its part of struct plan, or why it does not serve.
 */
#include "gen/rowwise/pass.h"
#include "gen/plan/plan.h"
#include "gen/rowwise/planner.h"
#include "gen/rowwise/kernel.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_POWERS = 2,  /* scans, some of them with powers: what warps hand on meets in static shared memory */
    HELD_WORDS = 128, /* of the places of a batch, in registers */
    MOST_BY_WARP = 2048, /* places of a row of which each warp of the grid has carries; else each strip */
};
enum { /* inner_scan_lookback, as in rowwise/lookback_words.cuh and rowwise/lookback_parts.cuh */
       LOOKBACK_PIECE = 32,  /* places of a warp, of a part */
       LOOKBACK_WORKERS = 8, /* warps that hold such pieces, at most */
       LOOKBACK_BESIDE = 3,  /* and warps beside them */
       LOOKBACK_BUFFERS = 3, /* parts that a block holds, */
       LOOKBACK_KNOWN = 8    /* and that it knows of */
};

static const char *reason_apart(const struct kernel_request *r, const struct row_pass *pass)
{
    return !r->ir->inner              ? "rows along the last dim; it takes those along another"
           : pass->n_scans == 0       ? "no scans"
           : row_pass_has_ranks(pass) ? "ranks of a row"
           : row_pass_has_powers(pass) && pass->n_scans > MOST_POWERS ? "more than two scans with powers"
           : pass->n_sites > 0                                        ? "sums over rows"
           : row_pass_reduces(pass)                                   ? "reductions of rows beside scans"
           : pass->n_in == 0                                          ? "no rows to read"
           : r->problem->unaligned != 0 ? "tensors that do not have 16 bytes of neighbours everywhere"
                                        : NULL;
}

/* Of a place of a row, in all tensors that are read, or in those with a bit in `which`. */
static int place_bytes(const struct kernel_request *r, const struct row_pass *pass, int which)
{
    int bytes = 0;
    for (int k = 0; k < pass->n_in; k++)
        if (which >> k & 1)
            bytes += (int)lathe_dtype_size((lathe_dtype)r->problem->arg_dtype[pass->in[k].arg]);
    return bytes;
}

/* Of the batches of all warps that wait in shared memory. */
static int ring_bytes(const struct kernel_request *r, const struct row_pass *pass, const struct plan *plan)
{
    const int again = row_pass_reads(pass, pass->n_walks - 1);
    return plan->rows.threads * plan->rows.vector * plan->rows.scan.places *
           (plan->rows.scan.again_stages * place_bytes(r, pass, again) +
            plan->rows.stages * place_bytes(r, pass, ~again));
}

static int most_in_walk(const struct row_pass *pass) /* scans */
{
    int most = 0;
    for (int k = 0, n = 0; k < pass->n_scans; k++) {
        n = k > 0 && pass->walk[k] == pass->walk[k - 1] ? n + 1 : 1;
        most = n > most ? n : most;
    }
    return most;
}

/* walk_scratch of the template: of each row, what is handed on, and with powers where each scan of a walk is.
 */
static int scratch_bytes(const struct row_pass *pass, const struct plan *plan)
{
    const int bytes = row_pass_has_powers(pass) ? 12 + 16 * most_in_walk(pass) : 2 * 8;
    return plan->rows.threads * plan->rows.vector * bytes;
}

/* Static shared memory of a block, 24 KiB at most: the device's own, and walk_scratch where it does not share
 * the place of what is held. */
static int static_bytes(const struct row_pass *pass, const struct plan *plan)
{
    return 1024 + (plan->rows.scan.held_carries > 0 ? 0 : scratch_bytes(pass, plan));
}

/* Where walks were, of the batches for which that stays in shared memory. */
static int held_bytes(const struct row_pass *pass, const struct plan *plan)
{
    if (plan->rows.scan.held_carries == 0)
        return 0;
    const int bytes = 4 * row_pass_carried_words(pass) * plan->rows.scan.held_carries * plan->rows.vector *
                      plan->rows.threads;
    const int scratch = scratch_bytes(pass, plan);
    return bytes > scratch ? bytes : scratch;
}

/* May rows be cut where all scans begin anew? */
static bool may_cut(const struct row_pass *pass)
{
    for (int k = 0; k < pass->n_scans; k++)
        if (row_scan_starts(pass, k) != STARTS_BY_COLUMN)
            return false;
    return pass->n_scans > 0;
}

/* Plain sums wait for memory alone: they take 256 bytes of a place, and few batches, so that the warps of a
 * block stay beside each other; where rows may be cut, twice the warps for parts of them. Scans with powers
 * have more to compute, and more warps: where rows may be cut, there is work for three times as many, of 168
 * registers. Several walks along a part leave where they were in shared memory, and what each reads as far as
 * there is room: the walk back finds it there. L2 is told what to give up last, but where it was not
 * measured: scans with powers along rows that are not cut. */
static void share_places(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan)
{
    const bool powers = row_pass_has_powers(pass);
    const bool cut = may_cut(pass);
    const bool parts = powers && cut;
    plan->rows.vector = (powers && !parts) || lathe_dtype_size(r->problem->dtype[DTYPE_X]) == 4 ? 2 : 4;
    plan->rows.scan.whole_warps = plan->rows.vector == 4 || parts ? 4 : 8;
    plan->rows.threads = cut && !powers ? 256 : 32 * plan->rows.scan.whole_warps;
    plan->rows.min_blocks = 1;
    plan->rows.scan.places = 16;
    plan->rows.stages = 3;
    plan->rows.scan.part_places = cut ? 128 : 0;
    if (parts) {
        plan->rows.min_blocks = 3;
        plan->rows.scan.places = 8;
        plan->rows.scan.part_places = 64;
        plan->rows.scan.held_carries =
            pass->n_walks > 1 ? plan->rows.scan.part_places / plan->rows.scan.places : 0;
    }
    plan->rows.scan.again_stages =
        plan->rows.scan.held_carries > 0 ? plan->rows.scan.held_carries : plan->rows.stages;
    plan->rows.kept = parts || !powers;
    const int words = plan->rows.vector * (place_bytes(r, pass, ~0) + 4 * pass->n_scans) / 4;
    while (!powers && plan->rows.scan.places > 4 && plan->rows.scan.places * words > HELD_WORDS)
        plan->rows.scan.places /= 2;
}

/* A step towards less shared memory. First, what plain sums have for parts of rows alone, and what a walk
 * back finds; then fewer batches. Then where walks were goes through memory, and batches have its room; in
 * the end shorter ones, fewer warps. False: there is nothing left to give up. */
static bool take_less(struct plan *plan)
{
    enum { STAGES_NOT_HELD = 4, FEWEST_STAGES = 2, FEWEST_PLACES = 4, FEWEST_THREADS = 64 };
    if (plan->rows.threads > 32 * plan->rows.scan.whole_warps)
        plan->rows.threads = 32 * plan->rows.scan.whole_warps;
    else if (plan->rows.scan.again_stages > plan->rows.stages)
        plan->rows.scan.again_stages--;
    else if (plan->rows.stages > FEWEST_STAGES)
        plan->rows.scan.again_stages = --plan->rows.stages;
    else if (plan->rows.scan.held_carries > 0) {
        plan->rows.scan.held_carries = 0;
        plan->rows.scan.again_stages = plan->rows.stages = STAGES_NOT_HELD;
    } else if (plan->rows.scan.places > FEWEST_PLACES)
        plan->rows.scan.places /= 2;
    else if (plan->rows.threads > FEWEST_THREADS) {
        plan->rows.threads /= 2;
        plan->rows.scan.whole_warps /= 2;
    } else
        return false;
    return true;
}

/* lookback_scratch of rowwise/lookback_parts.cuh, and the device's own. */
static int lookback_static_bytes(const struct plan *plan, int workers)
{
    const int rows = 32 * plan->rows.vector;
    return 1024 + LOOKBACK_KNOWN * (24 + 4 * workers) +
           LOOKBACK_BUFFERS * (workers + 4 * rows * (workers + 2 /* what a part adds, what is before it */)) +
           64;
}

/* Of one plain sum: the kernel beside it, for few strips that are seldom cut, whose rows the warps of a block
 * would else share: fewer than three quarters of the warps that walk. Eight warps hold 32 places each of
 * three parts, fewer where shared memory has no room. */
static void share_lookback(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan)
{
    if (pass->n_scans > 1 || row_pass_has_powers(pass) || row_scan_starts(pass, 0) == STARTS_ANYWHERE)
        return;
    for (int workers = LOOKBACK_WORKERS; workers >= plan->rows.vector; workers--)
        for (int batches = LOOKBACK_PIECE / plan->rows.scan.places; batches > 0; batches /= 2) {
            const int rows = 32 * plan->rows.vector * workers;
            const int bytes =
                LOOKBACK_BUFFERS * batches * plan->rows.scan.places * rows * place_bytes(r, pass, ~0);
            if (bytes + lookback_static_bytes(plan, workers) > r->device->smem_bytes)
                continue;
            plan->rows.scan.lookback =
                (struct lookback_plan){.threads = 32 * (workers + LOOKBACK_BESIDE),
                                       .blocks = r->device->sm_count,
                                       .strips = plan->rows.blocks * plan->rows.scan.whole_warps * 3 / 4,
                                       .batches = batches,
                                       .places = workers * batches * plan->rows.scan.places,
                                       .smem_bytes = bytes};
            return;
        }
}

static bool is_too_much(const struct kernel_request *r, const struct row_pass *pass, const struct plan *plan)
{
    return plan->rows.smem_bytes + static_bytes(pass, plan) > r->device->smem_bytes / plan->rows.min_blocks;
}

/* As much of that as shared memory has room for. */
static void share_memory(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan)
{
    do
        plan->rows.smem_bytes = ring_bytes(r, pass, plan) + held_bytes(pass, plan);
    while (is_too_much(r, pass, plan) && take_less(plan));
}

static bool shape(const struct kernel_request *r, const struct row_pass *pass, struct plan *plan, char *why)
{
    plan->rows.per_thread = 0;
    plan->rows.rows_per_block = 1;
    share_places(r, pass, plan);
    share_memory(r, pass, plan);
    plan->rows.scan.carries_by_warp = r->problem->dim[SYM_N] <= MOST_BY_WARP;
    plan->rows.registers = plan->rows.min_blocks > 1 ? 168 : 255;
    plan->rows.blocks = plan->rows.min_blocks * r->device->sm_count;
    plan->rows.at_once = 1;
    plan->rows.column_parts = 1;
    share_lookback(r, pass, plan);
    if (plan->rows.smem_bytes + static_bytes(pass, plan) > r->device->smem_bytes) {
        snprintf(why, REASON_BYTES, "two batches of %d places take %d bytes of shared memory; a block has %d",
                 plan->rows.scan.places, plan->rows.smem_bytes + static_bytes(pass, plan),
                 r->device->smem_bytes);
        return false;
    }
    snprintf(plan->reason, sizeof plan->reason,
             "rows of %lld along an inner dim: each of %d warps walks along %d rows, %d places at a time, %d "
             "batches of them under way; %d blocks take rows in turn",
             (long long)r->problem->dim[SYM_N], plan->rows.threads / 32, 32 * plan->rows.vector,
             plan->rows.scan.places, plan->rows.stages - 1, plan->rows.blocks);
    if (plan->rows.scan.lookback.threads > 0) {
        const size_t used = strlen(plan->reason);
        snprintf(plan->reason + used, sizeof plan->reason - used,
                 "; of few rows, seldom cut, blocks take %d places each, and hand their sums on",
                 plan->rows.scan.lookback.places);
    }
    return true;
}

bool plan_inner_scan(const struct kernel_request *r, struct plan *plan, char *why)
{
    const struct row_pass *pass = &r->rows->pass;
    const char *apart = reason_apart(r, pass);
    if (apart)
        snprintf(why, REASON_BYTES, "%s", apart);
    return !apart && shape(r, pass, plan, why);
}
