/*
 * plan_decode.c: tiles of attention_decode, whose rows are cut by keys. In: a request and what plan.c has
 * found out about the spec. Out: the plan, or why there is none; which lengths ask for it.
 */
#include "gen/attention/kernel.h"
#include "gen/attention/planner.h"
#include "gen/plan/plan.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <string.h>

/* First fit by dims and shared memory, of which two blocks have room on a multiprocessor: one computes while
   the other one begins or ends. BM: rows of a tile whose warps share their keys. As many bytes are under way
   as latency times bandwidth asks for, some 40 KB a multiprocessor, three times over. */
#define COUNT_OF(table) (sizeof(table) / sizeof *(table))
static const struct tile_row TILES[] = {
    {64, 64, 64, 32, 3, 4, true, 90, 999},   {64, 64, 64, 32, 2, 4, true, 80, 999},
    {128, 128, 64, 16, 3, 4, true, 90, 999}, {128, 128, 64, 16, 2, 4, true, 80, 999},
    {256, 256, 32, 16, 3, 2, true, 90, 999}, {256, 256, 32, 16, 2, 2, true, 80, 999},
};

/* Of 8 bits, warps of 16 rows: tiles have as many bytes, and more work for each, so three blocks share a
   multiprocessor (2 stages of D 128: 167 us where 3 stages, of which two blocks have room, take 188); but two
   where elements read by key, and spill in the registers that three leave to a thread (D 128, scales a token:
   241 us where two blocks take 208). So one row stands twice, and of each spec one of the two is left out. */
enum { OF_THREE = 2, OF_TWO = 4 };
static const struct tile_row NARROW_TILES[] = {
    {64, 64, 64, 32, 4, 4, true, 90, 999},
    {64, 64, 64, 32, 3, 4, true, 80, 999},
    [OF_THREE] = {128, 128, 64, 32, 2, 4, true, 80, 999},
    {128, 128, 64, 32, 3, 4, true, 90, 999},
    [OF_TWO] = {128, 128, 64, 32, 2, 4, true, 80, 999},
    {256, 256, 64, 16, 3, 4, true, 90, 999},
    {256, 256, 64, 16, 2, 4, true, 80, 999},
};

/* Warps of 8 rows, which have half the products and registers (attention/narrow_rows.cuh): four blocks share
   a multiprocessor (D 128, 64 x 4096 keys: 150 us, three blocks of 32 keys 152), but three where elements
   read by key (178 and 174 us). */
enum { OF_FOUR = 2 };
static const struct tile_row EIGHT_TILES[] = {
    {64, 64, 32, 32, 4, 4, true, 90, 999},
    {64, 64, 32, 32, 3, 4, true, 80, 999},
    [OF_FOUR] = {128, 128, 32, 16, 3, 4, true, 80, 999},
    {128, 128, 32, 32, 2, 4, true, 80, 999},
    {256, 256, 32, 16, 3, 4, true, 90, 999},
    {256, 256, 32, 16, 2, 4, true, 80, 999},
};

/* decode::layout of attention/decode.cuh. */
static int smem_bytes(const struct kernel_request *r, const struct tile_row *t, int d_pad, int dv_pad)
{
    const int n_states = r->attention->parts->n_states;
    const int ring = t->warps * t->stages * plan_tile_bytes(r, DTYPE_Q, t->bn, d_pad + dv_pad);
    return ring + t->warps * t->stages * 4 + 16 * t->warps * (n_states + 1) * 4;
}

/* The same of attention/decode_narrow.cuh, where k or v has 8 bits. */
static int narrow_smem_bytes(const struct kernel_request *r, const struct tile_row *t)
{
    const char *const v = r->ir->v_is_k ? "k" : "v";
    const int d = (int)r->problem->dim[SYM_D];
    const int dv = (int)r->problem->dim[SYM_D_V];
    const int row = d * (lathe__narrow_dtype(r->sig, r->problem, "k") != LATHE_NONE ? 1 : 2) +
                    dv * (lathe__narrow_dtype(r->sig, r->problem, v) != LATHE_NONE ? 1 : 2);
    const int ring = t->warps * t->stages * t->bn * row;
    const int o = t->bm * (dv + 8) * 4;
    return (ring > o ? ring : o) + t->warps * t->stages * 4 + t->bm * (r->attention->parts->n_states + 1) * 4;
}

enum { LEAST_KEYS = 256 }; /* of a part: attention/decode_rows.cuh */

/* Blocks of a multiprocessor, by shared memory; registers are for `most`. */
static int resident(const struct device *device, int smem, int most)
{
    enum { RESERVED = 1024 };
    const int n = (device->smem_bytes + RESERVED) / (smem + RESERVED);
    return n < most ? n : most;
}

static bool is_asked_for(const struct device *device)
{
    return strstr(device->template_name, "attention_decode") != NULL;
}

static bool serves(const struct kernel_request *r, char *why)
{
    const struct problem *p = r->problem;
    if (is_asked_for(r->device) || (lathe__lengths(p) & LENGTHS_FEW_QUERIES) != 0)
        return true;
    snprintf(why, REASON_BYTES,
             "it is for up to 64 rows of a key head (q * h / h_kv) against 512 keys and more, 16 for each "
             "query; of packed sequences on average");
    return false;
}

static int warp_rows(const struct tile_row *t)
{
    return t->bm / t->warps;
}

/* For which a thread has registers. */
static int most_resident(const struct kernel_request *r, const struct tile_row *t, const struct plan *plan)
{
    if (!plan->attention.reads_narrow || t->max_d > 128)
        return 2;
    return warp_rows(t) == 8 ? 4 : r->attention->reads_keys ? 2 : 3;
}

static void take(const struct kernel_request *r, const struct tile_row *t, int smem, struct plan *plan)
{
    plan_take_tile(plan, t, smem, false);
    plan->attention.resident = resident(r->device, smem, most_resident(r, t, plan));
    plan_cut_keys(r, plan->attention.resident * r->device->sm_count, LEAST_KEYS, plan);
    const size_t used = strlen(plan->reason);
    snprintf(plan->reason + used, sizeof plan->reason - used,
             "; up to %d rows of a key head are one tile, of which each warp has keys of its own",
             plan->attention.reads_narrow ? warp_rows(t) : 16);
    rescale_say(r->attention->parts, false, plan->attention.rows, sizeof plan->attention.rows);
}

/* without: a row that is none of this spec's; n: there is none. */
static bool take_first(const struct kernel_request *r, const struct tile_row *table, size_t n, size_t without,
                       struct plan *plan, char *why)
{
    for (size_t i = 0; i < n; i++) {
        const struct tile_row *t = &table[i];
        const int smem = plan->attention.reads_narrow
                             ? narrow_smem_bytes(r, t)
                             : smem_bytes(r, t, plan->attention.d_pad, plan->attention.dv_pad);
        if (i == without || plan->attention.d_pad > t->max_d || plan->attention.dv_pad > t->max_dv ||
            smem > r->device->smem_bytes || r->device->sm < t->min_sm || r->device->sm > t->max_sm ||
            !plan_tile_is_wanted(r, t))
            continue;
        take(r, t, smem, plan);
        return true;
    }
    snprintf(why, REASON_BYTES, "no tile of head dims %d, %d fits %d bytes of shared memory",
             plan->attention.d_pad, plan->attention.dv_pad, r->device->smem_bytes);
    return false;
}

bool plan_attention_decode(const struct kernel_request *r, struct plan *plan, char *why)
{
    return serves(r, why) && plan_attention_begin(r, plan, why) &&
           take_first(r, TILES, COUNT_OF(TILES), COUNT_OF(TILES), plan, why);
}

/* ---- k and v of 8 bits ----------------------------------------------------------------------------------
 */

/* A key head, of tensors of which both have 8 bits. */
static bool has_eight_rows(const struct kernel_request *r)
{
    const char *const v = r->ir->v_is_k ? "k" : "v";
    return !lathe__has_nine_rows(r->problem) && lathe__narrow_dtype(r->sig, r->problem, "k") != LATHE_NONE &&
           lathe__narrow_dtype(r->sig, r->problem, v) != LATHE_NONE;
}

bool plan_attention_decode_narrow(const struct kernel_request *r, struct plan *plan, char *why)
{
    enum { STEP = 32 }; /* columns of one ldmatrix */
    if (!plan_is_narrow(r, why) || !plan_narrow_rows_fit(r, STEP, why) || !serves(r, why) ||
        !plan_attention_begin(r, plan, why))
        return false;
    plan->attention.reads_narrow = true;
    if (has_eight_rows(r))
        return take_first(r, EIGHT_TILES, COUNT_OF(EIGHT_TILES),
                          r->attention->reads_keys ? OF_FOUR : COUNT_OF(EIGHT_TILES), plan, why);
    return take_first(r, NARROW_TILES, COUNT_OF(NARROW_TILES), r->attention->reads_keys ? OF_THREE : OF_TWO,
                      plan, why);
}

int attention_decode_lengths(const struct problem *problem, const struct device *device)
{
    (void)device;
    return lathe__lengths(problem) & LENGTHS_FEW_QUERIES;
}

/* Asked for by its name it takes any rows, and its tiles follow from how many there are. */
int attention_decode_narrow_lengths(const struct problem *problem, const struct device *device)
{
    const int usual = lathe__lengths(problem) & (LENGTHS_FEW_QUERIES | LENGTHS_NINE_ROWS);
    return usual | (is_asked_for(device) && lathe__has_nine_rows(problem) ? LENGTHS_NINE_ROWS : 0);
}
