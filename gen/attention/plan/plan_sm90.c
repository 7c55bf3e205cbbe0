/*
 * plan_sm90.c: tiles of attention_fwd_sm90. In: a request and what plan.c has found out about the spec.
 * Out: the plan, or why there is none. Which row of tiles serves is a matter of registers, of which none may
 * be spilled, and of shared memory. Sizes follow those of a hand-written kernel for plain softmax; on an H200
 * they were timed for plain softmax at 64, 128 and 256 dims.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/attention/sign_parts.h"
#include "gen/ir/spec.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WARPGROUP_ROWS = 64, PANEL = 64 };

/* Warps that compute; stages of K and V each. First fit by dims, registers and shared memory. Registers of a
   thread: BN / 2 scores, BN / 4 weights and DV_PAD / 2 of o (half of that beyond 256), of 232 (8 warps), 160
   (12) or 112 (16); tests/templates.sh looks for spills. A taller tile reads K and V less often; a wider one
   has fewer borders between softmax and products. */
static const struct row {
    struct tile_row tile;
    enum register_need most; /* for which it has registers */
    bool short_rows;         /* for masks that cut rows at both ends, and no others */
    bool table_mask;         /* for masks that read by row and column: often blocks of 64 keys */
    bool many_keys; /* for many keys, a running maximum and no mask: steps are fewer and longer, waste at the
                       ends counts less; where it does not cost another round of tiles */
    bool low;       /* where taller tiles would leave multiprocessors without work: of as many query rows as
                       best_height says, and no others; each stands below, too, to be asked for or measured */
} ROWS[] = {
    {{64, 64, 64, 128, 4, 4, false, 90, 90}, NEED_SOME, false, false, false, true},
    {{64, 64, 128, 128, 3, 8, false, 90, 90}, NEED_SOME, false, false, false, true},
    {{64, 64, 192, 128, 3, 12, false, 90, 90}, NEED_FEW, false, false, true, false},
    {{64, 64, 256, 64, 4, 16, false, 90, 90}, NEED_FEW, false, false, false, false},
    {{64, 64, 192, 96, 3, 12, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{64, 64, 192, 128, 3, 12, false, 90, 90}, NEED_NONE, false, false, false, false},
    {{64, 64, 192, 64, 4, 12, false, 90, 90}, NEED_MANY, false, true, false, false},
    {{64, 64, 128, 96, 3, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{64, 64, 128, 128, 3, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{64, 64, 64, 128, 4, 4, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 128, 64, 128, 2, 4, false, 90, 90}, NEED_SOME, false, false, false, true},
    {{128, 128, 128, 128, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, true},
    {{96, 96, 192, 80, 3, 12, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{96, 96, 128, 128, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 128, 192, 64, 4, 12, false, 90, 90}, NEED_SOME, true, false, false, false},
    {{128, 128, 192, 80, 3, 12, false, 90, 90}, NEED_FEW, false, false, false, false},
    {{128, 128, 128, 128, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 128, 192, 64, 3, 12, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 128, 128, 64, 4, 8, false, 90, 90}, NEED_MANY, false, true, false, false},
    {{128, 128, 128, 96, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{128, 128, 64, 128, 2, 4, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{192, 128, 128, 112, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{192, 128, 128, 80, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{192, 192, 128, 112, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{192, 192, 128, 80, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{64, 256, 128, 96, 2, 8, false, 90, 90}, NEED_FEW, false, false, false, false},
    {{128, 256, 128, 80, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 256, 128, 64, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{256, 256, 128, 64, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{256, 256, 128, 48, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{128, 512, 64, 64, 2, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 512, 64, 48, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{256, 512, 64, 32, 2, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
};

/* The same of numbers of e4m3. A thread has BN / 2 scores, BN / 8 words of weights and DV_PAD / 2 of o, up to
   128 columns twice: of all tiles and of one. */
static const struct row FP8_ROWS[] = {
    {{64, 64, 128, 128, 3, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{128, 128, 128, 128, 3, 8, false, 90, 90}, NEED_FEW, false, false, false, false},
    {{128, 128, 128, 96, 3, 8, false, 90, 90}, NEED_SOME, false, false, false, false},
    {{128, 128, 128, 64, 4, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{256, 128, 128, 64, 3, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
    {{256, 256, 128, 64, 3, 8, false, 90, 90}, NEED_MANY, false, false, false, false},
};

/* shared_layout of attention/fwd_sm90_layout.cuh. */
static int smem_bytes(const struct kernel_request *r, const struct tile_row *t, const struct plan *plan,
                      bool diag, bool sequences)
{
    enum { TOLD_BYTES = 256, TOLD_OF_SEQUENCES_BYTES = 400 };
    const int groups = t->warps / 4;
    const int slices = plan->attention.dv_pad > MAX_DIM ? 2 : 1;
    const int q = plan_tile_bytes(r, DTYPE_Q, 64, plan->attention.d_pad);
    const int o =
        plan->attention.o_f32 ? 0 : plan_tile_bytes(r, DTYPE_O, 64, plan->attention.dv_pad / slices);
    const int tiles = groups * (plan->attention.q_stages * q + (plan->attention.own_o ? o : 0));
    const int k = round_up(plan_tile_bytes(r, DTYPE_K, t->stages * t->bn, plan->attention.d_pad), 1024);
    const int v = round_up(plan_tile_bytes(r, DTYPE_V, t->stages * t->bn, plan->attention.dv_pad), 1024);
    return tiles + k + v + 40 * t->stages + 16 * plan->attention.q_stages * groups +
           (sequences ? TOLD_OF_SEQUENCES_BYTES : TOLD_BYTES) + (diag ? groups * 8 * (64 + t->bn) : 0);
}

static void say_more(const struct kernel_request *r, struct plan *plan, bool many_keys, bool blocks)
{
    static const char *const need[] = {
        "no running maximum", "a running maximum", "a running maximum and a mask that cuts rows on one side",
        "a mask that cuts rows on both sides or in between, values by distance, row or column, or o in f32",
        "values read for each pair, or an online function whose rows have states of their own"};
    size_t used = strlen(plan->reason);
    if (blocks)
        used += (size_t)snprintf(
            plan->reason + used, sizeof plan->reason - used,
            "; within blocks for which the mask is the same, so that no pair is asked about");
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "%s; a thread has registers for %s; a warpgroup loads, %d compute%s with room for %d tile%s of "
             "Q each; o "
             "is stored %s; blocks take query tiles %s; %s%s",
             many_keys ? ", longer steps than for fewer than 8192 keys" : "",
             need[blocks ? r->attention->block_need : r->attention->need], plan->attention.warps / 4,
             plan->attention.dv_pad > MAX_DIM ? ", half of the columns of o each," : "",
             plan->attention.q_stages, plan->attention.q_stages == 1 ? "" : "s",
             plan->attention.o_f32   ? "in f32"
             : plan->attention.own_o ? "by TMA"
                                     : "straight from registers, for want of shared memory",
             plan->attention.dynamic ? "from a counter, since some take longer than others" : "in turn",
             r->attention->why_apart
                 ? "a tile has rows of one query head, since "
                 : "where there are few queries, the query heads of a key head share a tile",
             r->attention->why_apart ? r->attention->why_apart : "");
    const size_t end = strlen(plan->reason);
    if (!r->attention->why_apart && r->problem->dim[SYM_Q] > 0)
        snprintf(plan->reason + end, sizeof plan->reason - end, ", which has %d of them at this length",
                 lathe__heads_packed(r->problem, plan->attention.bm));
}

/* With as much room for Q and o as there is: for two tiles of Q, for one, for no o. */
static bool find_room(const struct kernel_request *r, const struct tile_row *t, bool diag, struct plan *plan)
{
    for (int room = 2; room >= 0; room--) {
        plan->attention.q_stages = room > 1 ? 2 : 1;
        plan->attention.own_o = room > 0;
        plan->attention.smem_bytes = smem_bytes(r, t, plan, diag, attention_has_sequences(r));
        if (plan->attention.smem_bytes <= r->device->smem_bytes)
            return true;
    }
    return false;
}

static bool has_columns(const struct row *row, int64_t d, int64_t d_v)
{
    return d <= row->tile.max_d && d_v <= row->tile.max_dv;
}

/* ---- few tiles ----------------------------------------------------------------------------------------- */

/* What tiles cost, in ns, fitted to graphs of launches on an H200 (tests/bench/prompt.py): a step of bn keys,
   and the launch with all that comes before and after the steps. The first of a dim is of the rows that are
   taken where tiles are many. */
static const struct height {
    int max_d, bm, bn, step, once;
} HEIGHTS[] = {
    {64, 256, 64, 900, 5000},   {64, 128, 128, 1340, 4500},  {64, 64, 128, 840, 3900},
    {128, 192, 80, 1190, 6300}, {128, 128, 128, 1400, 6500}, {128, 64, 128, 1030, 4900},
};

static int64_t quotient(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Steps until all tiles are done whose rows have the keys up to their own place, the longest ones first: with
   an even number of tiles each, multiprocessors end together; of an odd one the last begin together, and not
   all have one. */
static int64_t steps_of_cut(int64_t tiles, int64_t longest, int64_t shortest, int64_t sms)
{
    const int64_t evenly = tiles * (longest + shortest) / 2 / sms;
    const int64_t rounds = quotient(tiles, sms);
    const int64_t last = tiles - (rounds - 1) * sms; /* tiles of the last round */
    const int64_t most = last * longest / tiles;     /* steps of one of them */
    const int64_t all =
        rounds < 2 ? longest : evenly + (rounds % 2 == 0 ? shortest : most - most * last / sms / 2);
    return all > longest ? all : longest;
}

/* ns until all tiles are done; cut: by a mask. */
static int64_t time_of(const struct height *t, const struct problem *p, int sms, bool cut)
{
    const int packed = lathe__heads_packed(p, t->bm);
    const int64_t tokens = packed > 1 ? 64 / packed * (t->bm / 64) : t->bm;
    const int64_t tiles = p->dim[SYM_B] * p->dim[SYM_H] / packed * quotient(p->dim[SYM_Q], tokens);
    const int64_t longest = quotient(p->dim[SYM_KV], t->bn);
    const int64_t steps =
        cut ? steps_of_cut(tiles, longest, quotient(t->bm, t->bn), sms) : quotient(tiles, sms) * longest;
    return t->once + steps * t->step;
}

/* How many tiles are there? Of packed sequences and the like nobody knows. */
static bool knows_tiles(const struct problem *p)
{
    return p->dim[SYM_B] > 0 && p->dim[SYM_H] > 0 && p->dim[SYM_Q] > 0 && p->dim[SYM_KV] > 0 && !p->open &&
           !p->packed && !p->paged;
}

/* Of how many query rows tiles are best where multiprocessors have few of them; 0: there are many, or nobody
   knows or a row's result may not depend on its batch. */
static int best_height(const struct problem *p, const struct device *device, bool cut)
{
    enum { LEAST_ROWS = 256, MANY_TILES = 6, CLEARLY = 97 };
    const int64_t lines = p->dim[SYM_B] * p->dim[SYM_H];
    const int64_t dim = p->dim[SYM_D] > p->dim[SYM_D_V] ? p->dim[SYM_D] : p->dim[SYM_D_V];
    const struct height *first = NULL;
    const struct height *best = NULL;
    int64_t least = INT64_MAX;
    if (!knows_tiles(p) || p->dim[SYM_Q] < LEAST_ROWS || p->deterministic == DETERMINISTIC_BATCH ||
        p->dim[SYM_D] <= 0 ||
        lines * quotient(p->dim[SYM_Q], LEAST_ROWS) > MANY_TILES * (int64_t)device->sm_count)
        return 0;
    for (size_t i = 0; i < sizeof HEIGHTS / sizeof *HEIGHTS; i++) {
        if (dim > HEIGHTS[i].max_d || (best && best->max_d != HEIGHTS[i].max_d))
            continue;
        const int64_t cost = time_of(&HEIGHTS[i], p, device->sm_count, cut);
        if (best && 100 * cost > (best == first ? CLEARLY : 100) * least)
            continue;
        first = first ? first : &HEIGHTS[i];
        best = &HEIGHTS[i];
        least = cost;
    }
    return best ? best->bm : 0;
}

/* Are longer steps by lower tiles no slower? They are by 2 % where rounds are many (H200), and cost 10 %
   where they make one more of a few. */
static bool long_steps_pay(const struct problem *p, const struct device *device)
{
    static const struct height usual = {64, 256, 64, 902, 5000};
    static const struct height longer = {64, 192, 128, 1330, 5000};
    if (!(lathe__lengths(p) & LENGTHS_MANY_KEYS))
        return false;
    return !knows_tiles(p) ||
           time_of(&longer, p, device->sm_count, false) < time_of(&usual, p, device->sm_count, false);
}

/* Heights that rows without `low` have are no matter. */
static int length_bits(const struct problem *p, const struct device *device)
{
    const int whole = best_height(p, device, false);
    const int cut = best_height(p, device, true);
    return (whole == 128  ? LENGTHS_LOW_TILES
            : whole == 64 ? LENGTHS_LOWEST_TILES
                          : 0) |
           (cut == 128  ? LENGTHS_LOW_CUT_TILES
            : cut == 64 ? LENGTHS_LOWEST_CUT_TILES
                        : 0);
}

/* A mask that leaves rows little makes tiles of any height short. */
static int height_wanted(const struct kernel_request *r, const struct plan *plan)
{
    if (plan->attention.short_rows || attention_has_sequences(r))
        return 0;
    return best_height(r->problem, r->device, r->ir->mask.n_roots > 0);
}

/* Dims are not padded here: a row's own are multiples of all that they are padded to. Those of other kinds
   are not bound. */
int attention_sm90_lengths(const struct problem *problem, const struct device *device)
{
    bool asks = false;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS && problem->dim[SYM_D] > 0; i++)
        asks =
            asks || (ROWS[i].many_keys && has_columns(&ROWS[i], problem->dim[SYM_D], problem->dim[SYM_D_V]));
    return (lathe__lengths(problem) & LENGTHS_ODD_PAGES) | length_bits(problem, device) |
           (asks && long_steps_pay(problem, device) ? LENGTHS_MANY_KEYS : 0);
}

/* Do tiles lie within blocks for which the mask is the same, and a whole number of either one in the other? A
   warpgroup passes over tiles that have nothing for its rows, but K and V of these are read all the same. */
static bool is_of_blocks(const struct kernel_request *r, const struct tile_row *t)
{
    const struct ir *w = r->attention->forward;
    const int rows = w->lowered.blocks.rows;
    return mask_blocks_hold(w, WARPGROUP_ROWS, t->bn) &&
           (rows == 0 || rows % t->bm == 0 || t->bm % rows == 0);
}

/* Do tiles of keys come out of pages? */
static bool reads_pages(const struct kernel_request *r, const struct plan *plan)
{
    return r->problem->paged && !plan->attention.gathers;
}

/* A row that is asked for by its name may spill. */
static bool serves(const struct kernel_request *r, const struct row *row, const struct plan *plan,
                   bool blocks)
{
    const enum register_need need = blocks ? r->attention->block_need : r->attention->need;
    const bool shared = plan->attention.dv_pad > MAX_DIM; /* columns of o by two warpgroups */
    if (row->short_rows && !plan->attention.short_rows && !reads_pages(r, plan) && !r->device->tile[0])
        return false;
    if (row->low && row->tile.bm != height_wanted(r, plan))
        return false;
    if (row->table_mask && !r->attention->table_mask && !r->device->tile[0])
        return false;
    if (row->many_keys && !r->device->tile[0] &&
        (need == NEED_NONE || r->ir->mask.n_roots > 0 || !long_steps_pay(r->problem, r->device)))
        return false;
    return has_columns(row, plan->attention.d_pad, plan->attention.dv_pad) &&
           shared == (row->tile.max_dv > MAX_DIM) && (r->device->tile[0] || need <= row->most);
}

/* Is a tile of whole pages, or a page of whole tiles? Else it takes several boxes of few rows. */
static bool is_of_pages(const struct tile_row *t)
{
    return (t->bn & (t->bn - 1)) == 0;
}

struct rows {
    const struct row *row;
    size_t n;
};
#define ROWS_OF(table)                                                                                       \
    (struct rows)                                                                                            \
    {                                                                                                        \
        table, sizeof(table) / sizeof *(table)                                                               \
    }

/* The first row that serves, of those whose tiles lie within blocks of the mask, or of the others; any: of
   pages, whether it is of whole ones or not. */
static bool take_row(const struct kernel_request *r, struct rows rows, bool blocks, bool any,
                     struct plan *plan)
{
    const bool diag = r->attention->diagonal >= 0;
    for (size_t i = 0; i < rows.n; i++) {
        const struct row *row = &rows.row[i];
        const struct tile_row *t = &row->tile;
        if (is_of_blocks(r, t) != blocks || (!any && !is_of_pages(t)) || !serves(r, row, plan, blocks) ||
            !find_room(r, t, diag, plan) || !plan_tile_is_wanted(r, t))
            continue;
        /* Query tiles of one length need no balance, but tall ones are often cut short at the end. */
        plan->attention.dynamic = r->ir->mask.n_roots > 0 || t->bm > 128 || attention_has_sequences(r);
        plan_take_tile(plan, t, plan->attention.smem_bytes, diag);
        say_more(r, plan, row->many_keys, blocks);
        return true;
    }
    return false;
}

/* Panels of 64 columns are of one tensor each. */
static bool has_panels_of_pair(const struct kernel_request *r)
{
    static const char *const name[] = {"q", "k", "q2", "k2"};
    const int64_t d2 = r->problem->dim[SYM_D2];
    bool folded = false;
    if (!r->ir->qk2)
        return false;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        folded |= arg_in(r->problem->folded, lathe__arg_find(r->sig, name[i], 0));
    return d2 % PANEL == 0 && (r->problem->dim[SYM_D] - d2) % PANEL == 0 && !folded;
}

/* Rows that few read are cut by keys, and not copied. */
static bool plan_no_few_queries(const struct kernel_request *r, char *why)
{
    if (!r->ir->qk2 || !r->attention->parts || !(lathe__lengths(r->problem) & LENGTHS_FEW_QUERIES))
        return true;
    snprintf(why, REASON_BYTES,
             "few queries beside q2 and k2, whose keys attention_mla shares out to the whole GPU");
    return false;
}

static bool has_no_room(const struct kernel_request *r, const struct plan *plan, char *why)
{
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory",
             plan->attention.d_pad, plan->attention.dv_pad, r->device->smem_bytes);
    return false;
}

bool plan_attention_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    plan->attention.optimistic =
        r->problem->dim[SYM_D_V] <= 128; /* more columns of o leave no registers for another step */
    plan->attention.pair = has_panels_of_pair(r) ? PAIR_READ : PAIR_COPIED;
    if (!plan_attention_begin(r, plan, why) || !plan_no_few_queries(r, why))
        return false;
    plan->attention.pack = !r->attention->why_apart;
    plan->attention.blocks = r->device->sm_count;
    const bool any = !reads_pages(r, plan);
    const struct rows rows = ROWS_OF(ROWS);
    if (take_row(r, rows, true, any, plan) || take_row(r, rows, false, any, plan) ||
        (!any && (take_row(r, rows, true, true, plan) || take_row(r, rows, false, true, plan)))) {
        plan_say_pair(r, plan);
        return true;
    }
    return has_no_room(r, plan, why);
}

/* ---- numbers of e4m3 ----------------------------------------------------------------------------------- */

/* What such a kernel takes of q, k and v as they lie in memory. */
static bool takes_tensors(const struct kernel_request *r, char *why)
{
    static const char *const name[] = {"q", "k"};
    static const enum mod mod[] = {MOD_QUERY, MOD_KEY, MOD_VALUE};
    const uint64_t odd = r->problem->unaligned | r->problem->folded;
    for (size_t m = 0; m < sizeof mod / sizeof *mod; m++)
        if (r->ir->mod[mod[m]].n_stages > 0) {
            snprintf(
                why, REASON_BYTES,
                "a mod of q, k or v, whose results would be rounded to f8e4m3 once more; multiply scales in "
                "score_mod and output_mod, and quantise what other mods make");
            return false;
        }
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (arg_in(odd, lathe__arg_find(r->sig, name[i], 0))) {
            snprintf(why, REASON_BYTES,
                     "rows of %s of f8e4m3 do not start at multiples of 16 bytes, or lie folded, which TMA "
                     "does not "
                     "take; copy it",
                     name[i]);
            return false;
        }
    return true;
}

/* Are weights numbers that e4m3 has? */
static bool holds_weights(const struct kernel_request *r, char *why)
{
    if (makes_parts(r->sig, r->problem)) {
        snprintf(why, REASON_BYTES, "part_o is asked for, whose weights it does not scale; give q as bf16");
        return false;
    }
    if (!r->attention->forward->lowered.rescale.unheld)
        return true;
    snprintf(
        why, REASON_BYTES,
        "nothing bounds the weights of online_fwd, and f8e4m3 ends at 448: clamp them, or give q as bf16");
    return false;
}

bool plan_attention_fp8_sm90(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { DEPTH = 32 };
    if (!takes_tensors(r, why) || !plan_attention_begin(r, plan, why) || !holds_weights(r, why))
        return false;
    plan->attention.narrow = NULL; /* nothing is widened */
    plan->attention.reads_narrow = true;
    plan->attention.turned = true;
    plan->attention.d_pad = round_up(r->problem->dim[SYM_D], DEPTH);
    plan->attention.pack = !r->attention->why_apart;
    plan->attention.blocks = r->device->sm_count;
    if (!take_row(r, ROWS_OF(FP8_ROWS), true, true, plan) &&
        !take_row(r, ROWS_OF(FP8_ROWS), false, true, plan))
        return has_no_room(r, plan, why);
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; V is turned over in the workspace ahead of the kernel%s",
             plan->attention.dv_pad <= 128 ? ", and o gathers the products of each tile of keys in f32" : "");
    return true;
}
