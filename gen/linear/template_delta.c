/*
 * template_delta.c: linear/delta_chunks.cuh and linear/delta_sm90.cuh, the delta rule with no decay or one
 * number a token in chunks of tokens. In: a request. Out: the plan, or why there is none; config and
 * launches.
 */
#include "gen/base/text.h"
#include "gen/ir/spec.h"
#include "gen/linear/columns.h"
#include "gen/linear/emit.h"
#include "gen/linear/linear.h"
#include "gen/linear/lower.h"
#include "gen/linear/template.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>

enum { CHUNK = LINEAR_CHUNK, COLUMNS = 64, STEP = 64 };

/* What both have: T of each chunk in front. */
static void plan_chunks(const struct kernel_request *r, struct plan *plan)
{
    enum { THREADS = 256 };
    struct linear_plan *to = &plan->linear;
    linear_plan_walks(r, plan);
    to->chunk_threads = THREADS;
    linear_plan_four_warps(r, to);
    to->chunk_slices = ((int)r->problem->dim[SYM_D_V] + COLUMNS - 1) / COLUMNS;
    to->inverse = 2 * CHUNK * (CHUNK + 8) * 4 + 8 * CHUNK; /* linear/delta_inverse.cuh */
    to->chunk_bytes = linear_inverse_bytes(r);
    to->stages = 2;
}

static void tell(const struct kernel_request *r, struct plan *plan, const char *how, int columns)
{
    snprintf(
        plan->reason, sizeof plan->reason,
        "decay %s with the delta rule: %d tokens at a time%s, %d blocks a head and sequence, each with %d "
        "value channels; up to 16 tokens one by one",
        linear_decay_text(linear_decay_form(r->ir)), CHUNK, how, plan->linear.chunk_slices, columns);
}

/* As in linear/delta_chunks.cuh. */
static int chunks_smem_bytes(const struct kernel_request *r, int stages, int pad)
{
    const int values = linear_tile(r, CHUNK, COLUMNS);
    const int stage = 2 * linear_tile(r, CHUNK, pad) + values;
    return stages * stage + values + linear_tile(r, pad, COLUMNS) + linear_inverse_bytes(r) + 16 * CHUNK;
}

static bool sizes(const struct kernel_request *r, struct plan *plan, char *why)
{
    struct linear_plan *to = &plan->linear;
    plan_chunks(r, plan);
    const int pad = round_up(r->problem->dim[SYM_D], STEP);
    if (chunks_smem_bytes(r, to->stages, pad) > r->device->smem_bytes)
        to->stages = 1;
    to->smem_bytes = chunks_smem_bytes(r, to->stages, pad);
    tell(r, plan, "", COLUMNS);
    return linear_has_room(r, to->smem_bytes, why);
}

enum { MOST_PIECES = 16, PIECES_FROM = 2304 }; /* of linear/delta_sm90.cuh, whose LEAST_PIECES this is: */
enum { LEAST_PIECES = 4 };

/* As many blocks as run at once; delta_parts there. */
static void choose_pieces(const struct kernel_request *r, struct linear_plan *to, int pad)
{
    linear_plan_pieces(r, to, MOST_PIECES, PIECES_FROM, r->device->sm_count);
    to->part_bytes = 4 * pad * (COLUMNS * to->groups + pad);
}

static int slices_of(int64_t d_v, int groups)
{
    return ((int)d_v + groups * COLUMNS - 1) / (groups * COLUMNS);
}

/* How long the chunks of a sequence take, in tenths of us by tests/bench/log, 2026-11-28: blocks take turns
   on multiprocessors that have room for one, and begin with what takes as long as some chunks: pieces of few
   of them gain little. Pieces of a sequence go through their chunks twice, runs once, and through those ahead
   that leave nothing: as many as gates of -0.1 a token need. */
enum way { BY_TRANSITIONS, BY_TRANSITIONS_OF_THREE, BY_GATES };

static int64_t time_of(const struct problem *p, const struct device *device, int groups, enum way way)
{
    enum { ONE = 20, TWO = 29, BEGIN = 12, AHEAD = 5 };
    static const int LEAST[] = {LEAST_PIECES, 3, 2}; /* of struct delta_runs */
    const int64_t blocks = p->dim[SYM_SEQS] * p->dim[SYM_H] * slices_of(p->dim[SYM_D_V], groups);
    const int64_t room = blocks > 0 ? device->sm_count / blocks : 0;
    const int64_t chunks = (p->dim[SYM_T] + CHUNK - 1) / CHUNK;
    const int64_t pieces = room < MOST_PIECES ? room : MOST_PIECES;
    const int64_t chunk = groups == 1 ? ONE : TWO;
    if (p->dim[SYM_T] >= PIECES_FROM && room >= LEAST[way])
        return (way == BY_GATES ? 1 : 2) * chunk *
               ((chunks + pieces - 1) / pieces + BEGIN + (way == BY_GATES ? AHEAD : 0));
    return chunk * (chunks + BEGIN) * ((blocks + device->sm_count - 1) / device->sm_count);
}

/* Two share what they load, and take half as many multiprocessors for 1.45 times as long. */
static int groups_of(const struct problem *p, const struct device *device)
{
    const bool known = p->dim[SYM_T] > 0 && p->dim[SYM_SEQS] > 0 && p->dim[SYM_H] > 0;
    if (p->dim[SYM_D_V] > COLUMNS && p->deterministic == DETERMINISTIC_BATCH)
        return 2; /* for batches that fill the device, as such calls mostly have */
    if (!known || p->dim[SYM_D_V] <= COLUMNS)
        return 1;
    return time_of(p, device, 2, BY_TRANSITIONS) < time_of(p, device, 1, BY_TRANSITIONS) ? 2 : 1;
}

static bool is_known(const struct problem *p)
{
    return p->dim[SYM_T] > 0 && p->dim[SYM_SEQS] > 0 && p->dim[SYM_H] > 0;
}

/* Of runs: what is the faster one where gates are strong, if weak ones are not slower by it. */
static int run_groups_of(const struct problem *p, const struct device *device)
{
    const int today = groups_of(p, device);
    if (!is_known(p) || p->dim[SYM_D_V] <= COLUMNS)
        return today;
    const int other = 3 - today;
    const bool weak = 10 * time_of(p, device, other, BY_TRANSITIONS_OF_THREE) <=
                      11 * time_of(p, device, today, BY_TRANSITIONS);
    return weak && time_of(p, device, other, BY_GATES) < time_of(p, device, today, BY_GATES) ? other : today;
}

/* A size that is not known may be any. */
static bool is_never_cut(const struct problem *p, const struct device *device)
{
    const int groups = run_groups_of(p, device);
    const int64_t blocks = p->dim[SYM_SEQS] * p->dim[SYM_H] * slices_of(p->dim[SYM_D_V], groups);
    return p->deterministic == DETERMINISTIC_BATCH ||
           (is_known(p) && (p->dim[SYM_T] < PIECES_FROM || 2 * blocks > device->sm_count));
}

int linear_run_lengths(const struct problem *p, const struct device *device)
{
    if (p->dtype[DTYPE_Q] != LATHE_BF16 || is_never_cut(p, device))
        return 0;
    return LENGTHS_RUNS | (run_groups_of(p, device) == 2 ? LENGTHS_RUNS_OF_TWO : 0);
}

int linear_delta_lengths(const struct problem *p, const struct device *device)
{
    return p->dtype[DTYPE_Q] == LATHE_BF16 && p->deterministic != DETERMINISTIC_BATCH &&
                   groups_of(p, device) == 2
               ? LENGTHS_MANY_BLOCKS
               : 0;
}

int linear_plan_delta_walk(const struct kernel_request *r, struct linear_plan *to, int groups, bool leaves)
{
    enum { MOST_STAGES = 4, LEAST_STAGES = 2, GROUP = 128, BARRIERS = 16 };
    const int panel = linear_tile(r, CHUNK, COLUMNS);
    const int pad = round_up(r->problem->dim[SYM_D], STEP);
    to->groups = groups;
    to->chunk_threads = GROUP * (1 + to->groups);
    to->chunk_slices = slices_of(r->problem->dim[SYM_D_V], to->groups);
    for (to->stages = MOST_STAGES;; to->stages--) { /* delta_layout of linear/delta_walk_sm90.cuh */
        const int stage = 2 * linear_tile(r, CHUNK, pad) + to->groups * panel + linear_inverse_bytes(r) +
                          3 * CHUNK * 4 + BARRIERS;
        const int walk = to->stages * stage + panel + BARRIERS;
        const int bytes = leaves ? round_up(walk, 128) + to->groups * linear_tile(r, COLUMNS, pad) : walk;
        if (to->stages == LEAST_STAGES || bytes <= r->device->smem_bytes)
            return bytes;
    }
}

static void plan_groups(const struct kernel_request *r, struct plan *plan, int groups)
{
    struct linear_plan *to = &plan->linear;
    plan_chunks(r, plan);
    const int pad = round_up(r->problem->dim[SYM_D], STEP);
    to->smem_bytes = linear_plan_delta_walk(r, to, groups, false);
    choose_pieces(r, to, pad);
}

static bool sizes_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    const struct linear_plan *to = &plan->linear;
    plan_groups(r, plan, groups_of(r->problem, r->device));
    tell(r, plan, linear_has_pieces(to) ? " by wgmma, few long sequences in pieces" : " by wgmma",
         to->groups * COLUMNS);
    return linear_has_room(r, to->smem_bytes, why);
}

static bool sizes_runs(const struct kernel_request *r, struct plan *plan, char *why)
{
    if (is_never_cut(r->problem, r->device)) {
        snprintf(why, REASON_BYTES,
                 "sequences of such a call are never cut in pieces: it takes few ones of at least %d tokens, "
                 "without deterministic=batch; linear_delta_sm90 takes others",
                 PIECES_FROM);
        return false;
    }
    plan_groups(r, plan, run_groups_of(r->problem, r->device));
    tell(r, plan, " by wgmma, few long sequences in pieces that begin where the gates leave nothing",
         plan->linear.groups * COLUMNS);
    return linear_has_room(r, plan->linear.smem_bytes, why);
}

static void config(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int CHUNK_STAGES = %d;\n", plan->linear.stages);
}

static void config_sm90(struct text_buf *t, const struct plan *plan)
{
    text_add(t, "constexpr int STAGES = %d, VALUE_GROUPS = %d;\nconstexpr bool BOUND_WAITS = %s;\n",
             plan->linear.stages, plan->linear.groups, yes(plan->bound_waits));
    linear_config_pieces(t, &plan->linear);
}

/* Its barriers are those of linear_delta_sm90, which has run on GPUs: no wait needs a bound. */
static void config_runs(struct text_buf *t, const struct plan *plan)
{
    struct plan proven = *plan;
    proven.bound_waits = false;
    config_sm90(t, &proven);
}

/* ---- launches -------------------------------------------------------------------------------------------
 */

/* The kernel ahead also applies mods of q and k, where there are any. */
static const char *ahead(const struct forward *f)
{
    return linear_is_prepared(f->l) ? "prepare" : "inverse";
}

static void launches(struct forward *f)
{
    forward_place_ahead(f);
    forward_few(f);
    forward_ahead(f, ahead(f));
    forward_chunks(f);
}

/* linear/delta_cuts.cuh: a warp for each piece. */
static void add_cuts(struct forward *f)
{
    struct launch *cuts = forward_kernel(f, "cuts", 1);
    cuts->threads = 32 * f->plan->linear.pieces;
    forward_only_where(cuts, SYM_T, f->plan->linear.pieces_from, INT32_MAX);
}

/* A piece leaves what it adds to the state and a matrix by which it multiplies what was there; a scan makes
   all first states of that. */
static void add_pieces(struct forward *f)
{
    enum { SCAN_THREADS = 512, SCAN_COLUMNS = 8 }; /* linear/delta_sm90.cuh */
    const struct linear_plan *to = &f->plan->linear;
    const int columns = COLUMNS * to->groups;
    const int pad = round_up(f->e->problem->dim[SYM_D], STEP);
    if (!linear_has_pieces(to))
        return;
    f->pieces = to->pieces;
    if (f->cuts >= 0)
        add_cuts(f);
    (void)forward_of_pieces(f, "states", to->chunk_slices + (pad + columns - 1) / columns);
    struct launch *scan = forward_kernel(f, "scan", to->chunk_slices * columns / SCAN_COLUMNS);
    scan->threads = SCAN_THREADS;
    scan->smem_bytes = 4 * SCAN_COLUMNS * (pad + SCAN_THREADS);
    forward_only_where(scan, SYM_T, to->pieces_from, INT32_MAX);
    (void)forward_of_pieces(f, "chunks", to->chunk_slices);
    f->pieces = 1;
}

static void launches_sm90(struct forward *f)
{
    forward_place_ahead(f);
    forward_place_parts(f);
    forward_few(f);
    forward_ahead(f, ahead(f));
    add_pieces(f);
    forward_chunks(f);
}

static void launches_runs(struct forward *f)
{
    forward_place_cuts(f);
    launches_sm90(f);
}

const struct linear_template linear_delta = {
    .sizes = sizes,
    .config = config,
    .launches = launches,
    .keeps_every = CHUNK,
    .takes_mods = true,
};

const struct linear_template linear_delta_sm90 = {
    .sizes = sizes_sm90,
    .config = config_sm90,
    .launches = launches_sm90,
    .keeps_every = CHUNK,
    .takes_mods = true,
};

const struct linear_template linear_delta_runs_sm90 = {
    .sizes = sizes_runs,
    .config = config_runs,
    .launches = launches_runs,
    .keeps_every = CHUNK,
    .takes_mods = true,
};
