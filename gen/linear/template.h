/*
 * template.h: what the generator knows of a template of linear attention: a row of templates.c says which
 * specs it serves, and one file, template_NAME.c, its sizes, what it writes into the config, its workspace
 * and its launches.
 */
#ifndef LATHE_LINEAR_TEMPLATE_H
#define LATHE_LINEAR_TEMPLATE_H

#include "gen/linear/linear.h"
#include "gen/plan/linear_plan.h"
#include "gen/plan/planner.h"

struct forward;
struct linear_plan;
struct recipe;
struct text_buf;

/* ---- which specs: bits of struct serves (gen/plan/serves.h) ----------------------------------------------
 */

/* LINEAR_TAKES(DELTA): of a slot of linear_slots.def; of a decay that varies by channel, of a normaliser; of
   what serves.c says of the others. */
enum linear_feature {
#define LINEAR_SLOT(ID, name, ...) LINEAR_HAS_##ID,
#include "gen/ir/linear_slots.def"
#undef LINEAR_SLOT
    LINEAR_HAS_KEY_DECAY,
    LINEAR_HAS_VALUE_DECAY,
    LINEAR_HAS_NORMALISER,
    LINEAR_HAS_F16_NORMALISER,
    LINEAR_HAS_WIDE_NORMALISER,
    LINEAR_HAS_BONUS_NORMALISED,
    LINEAR_HAS_ALL_TOKENS,
    LINEAR_HAS_SCALE_GRADIENT,
    LINEAR_HAS_VALUE_DECAY_GRADIENT,
    LINEAR_HAS_READ_FIRST,
    LINEAR_HAS_STATES
};
#define LINEAR_TAKES(FEATURE) (UINT64_C(1) << LINEAR_HAS_##FEATURE)
#define LINEAR_SLOTS_ALL      ((UINT64_C(1) << LINEAR_HAS_KEY_DECAY) - 1)

/* ---- a template --------------------------------------------------------------------------------------- */

struct linear_template {
    /* Fill plan->linear and plan->reason, of a spec that its row serves; or say why there is no room. */
    bool (*sizes)(const struct kernel_request *r, struct plan *plan, char *why);
    /* Its constants behind those of all; NULL: there are no others. */
    void (*config)(struct text_buf *t, const struct plan *plan);

    /* forward: buffers and launches of the recurrence, between the mods of q, k, v and that of o */
    void (*launches)(struct forward *f);
    int keeps_every; /* its chunks leave the state behind every so many tokens, where it is wanted; 0: none do
                      */
    bool one_by_one; /* token by token: linear_params has no places for what is made ahead of chunks */

    /* backward: buffers of the workspace; what is made of the forward pass again, and all behind it, in front
       of the adjoint of the output mod; the way back. `gradient`: of the decay. */
    void (*place)(struct recipe *r, bool gradient);
    void (*again)(struct recipe *r);
    void (*back)(struct recipe *r);
    bool wide_dout;   /* the adjoint of an output mod leaves f32, not 16 bits as mma.sync and wgmma take */
    bool by_chunk;    /* cfg::BY_CHUNK: a block makes all gradients of a chunk, and dq_head has the scale */
    bool sums_logs;   /* cfg::SUMS_LOGS: chunks sum gradients of logarithms over channels of one decay */
    bool few_buffers; /* linear_back_params has BUFFERS_OF_ALL alone */
    bool gives_decay; /* the kernel of chunks may write what inputs of the decay get */
    bool groups_dq;   /* dq and dk go by a workspace only where heads share one of k or are read once more */
    bool no_heads;    /* dq and dk of heads that share one of k are added up without bwd_heads */
    bool names_adjoints; /* its files name struct back_mod_params, whether or not an adjoint is launched */

    /* either pass */
    bool takes_mods; /* a kernel ahead of the chunks applies mods of q and k: linear/mod_rows.cuh */
    bool names_mods; /* its files name struct mod_params, whether or not a mod is launched */
};
extern const struct linear_template linear_recurrent, linear_recurrent_kept, linear_recurrent_bwd,
    linear_additive, linear_additive_bwd, linear_additive_bwd_sm90, linear_delta, linear_delta_sm90,
    linear_delta_runs_sm90, linear_delta_bwd, linear_delta_bwd_sm90, linear_keyed_delta,
    linear_keyed_delta_bwd, linear_keyed_rule_bwd, linear_dplr, linear_dplr_bwd;

/* ---- what several ask alike, and the sizes that they share --------------------------------------------- */

/* Bytes of a tile of what tensor cores multiply (cfg::operand), in shared memory or the workspace. */
static inline int linear_tile(const struct kernel_request *r, int rows, int columns)
{
    return plan_tile_bytes(r, DTYPE_Q, rows, columns);
}
/* What linear/inverse_tiles.cuh leaves of a chunk: two numbers an element. */
static inline int linear_inverse_bytes(const struct kernel_request *r)
{
    return 2 * linear_tile(r, LINEAR_CHUNK, LINEAR_CHUNK);
}
/* Has a block of the device so many bytes of shared memory? */
bool linear_has_room(const struct kernel_request *r, int bytes, char *why);
/* Of all: the numbers of kernels that go token by token. */
void linear_plan_walks(const struct kernel_request *r, struct plan *plan);
/* The same of templates that have no others. */
bool linear_plan_one_by_one(const struct kernel_request *r, struct plan *plan, char *why);
enum keyed_use {
    KEYED_WHOLE,
    KEYED_PIECES,
    KEYED_BACK
}; /* forward, few long sequences in pieces, backward */
/* Bytes of struct prepared of linear/chunk_parts.cuh, and of keyed_layout of
 * linear/keyed_delta_prepare.cuh.
 */
int linear_keyed_prepared(const struct kernel_request *r, int pad, enum keyed_use use);
int linear_keyed_layout(const struct kernel_request *r, int pad, enum keyed_use use);
/* Without the delta rule tokens write under two vectors: how many there are beside k. */
int linear_more_writers(const struct kernel_request *r);
/* Of a rule with vectors of its own: bytes of what is prepared of a chunk, and of low_rank_layout of
   linear/low_rank_prepare.cuh. */
int linear_low_rank_prepared(const struct kernel_request *r, int pad, enum keyed_use use);
int linear_low_rank_layout(const struct kernel_request *r, int pad);
/* Then: of those whose blocks have four warps for a chunk of tokens. */
void linear_plan_four_warps(const struct kernel_request *r, struct linear_plan *to);
/* And of those whose warps have 16 value channels each: how many a block has. */
void linear_plan_columns(const struct kernel_request *r, struct linear_plan *to);
/* Of linear/delta_walk_sm90.cuh, for either pass: blocks of 1 or 2 walking warpgroups, and as many chunks in
   shared memory as there is room for, up to four, beside states that are left; the bytes of that. */
int linear_plan_delta_walk(const struct kernel_request *r, struct linear_plan *to, int groups, bool leaves);
int linear_delta_lengths(const struct problem *p, const struct device *device); /* of linear_delta_sm90 */
int linear_run_lengths(const struct problem *p, const struct device *device); /* of linear_delta_runs_sm90 */
int linear_keyed_lengths(const struct problem *p, const struct device *device); /* of linear_keyed_delta */
/* Backward in chunks by mma.sync: value channels that a block's tiles have room for: those of all `values`,
   or beyond 256 those of a band, of which the plan says how many there are. */
int linear_plan_bands(int values, struct linear_plan *to);
/* Behind the reason of a plan: that value channels go in bands, where they do. */
void linear_tell_bands(struct plan *plan);
/* Of templates that cut few long sequences in pieces, which `blocks` blocks have at a time: how many at most,
   of at least `from` tokens. How many there are follows from how many sequences there are: none, where that
   is not to count. */
void linear_plan_pieces(const struct kernel_request *r, struct linear_plan *to, int most, int from,
                        int blocks);
bool linear_has_pieces(const struct linear_plan *plan);
/* The config of what is cut in pieces. */
void linear_config_pieces(struct text_buf *t, const struct linear_plan *plan);

#endif
