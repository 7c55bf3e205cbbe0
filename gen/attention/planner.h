/*
 * planner.h: the planners that rows of templates.c name, and what they share. Each fills the plan, or says
 * why not in `why` (REASON_BYTES).
 */
#ifndef LATHE_ATTENTION_PLANNER_H
#define LATHE_ATTENTION_PLANNER_H

#include "gen/plan/planner.h"

struct tile_row {
    int max_d, max_dv; /* padded dims that it serves */
    int bm, bn, stages, warps;
    bool q_in_regs;
    int min_sm, max_sm;
};

enum { MAX_DIM = ATTENTION_MOST_DIM }; /* of one product's columns */

/* plan_sm80.c. The second: of a backward pass, the forward kernel that may have to run first, with whatever
   tile it takes; choices of tiles are those of the main kernel. */
bool plan_attention_sm80(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_before(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_backward.c */
bool plan_attention_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd_wide(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_slices.c */
bool plan_attention_bwd_slices(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd_latent(const struct kernel_request *r, struct plan *plan, char *why);

/* plan.c: what every attention template asks beside the columns of its row (features.h), and fills in. */
bool plan_attention_begin(const struct kernel_request *r, struct plan *plan, char *why);
/* Of portable templates: would a batch of one get another one, whose bits are others? A batch that repeats a
   tensor by a stride of 0 is folded, and a batch of one is not. False: where results may not depend on the
   batch. */
bool plan_serves_any_batch(const struct kernel_request *r, char *why);
/* Have head dims the pairs that mods of this tensor, and of those behind it, work on? */
bool plan_mods_fit(const struct kernel_request *r, enum mod first, char *why);
/* Of templates that read k or v of 8 bits as they lie: is one of them so? And are rows of those that are as
   the kernel reads them: multiples of `step` numbers, without a mod? */
bool plan_is_narrow(const struct kernel_request *r, char *why);
bool plan_narrow_rows_fit(const struct kernel_request *r, int step, char *why);
/* Is each element of a row made from itself alone? */
bool plan_stage_is_of_elements(const struct ir *ir, const struct ir_stage *stage);
/* What common/mma_f32.cuh does, for `lathe explain`. */
#define PLAN_F32_PRODUCTS                                                                                    \
    "products of f32 are three of bf16 each (hi hi + hi lo + lo hi, f32 sums), off by less than 2^-16; "     \
    "tf32 "                                                                                                  \
    "is not used"
/* Of tensors whose head dims are no multiples of 8: what it costs, behind plan->reason. */
void plan_say_copies(const struct kernel_request *r, struct plan *plan);
/* Of a second pair of q and k: whether it is read or copied, behind plan->reason. */
void plan_say_pair(const struct kernel_request *r, struct plan *plan);
/* Of a row that serves: is it the one to take? */
bool plan_tile_is_wanted(const struct kernel_request *r, const struct tile_row *t);
void plan_take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag);
/* The keys of a row are cut into parts: as many as `blocks` blocks of threads at a time want, or, where
   results may not depend on the batch, by a row's own keys alone into parts of `least` or more. Says so
   behind plan->reason. */
void plan_cut_keys(const struct kernel_request *r, int blocks, int least, struct plan *plan);

/* plan_sm90.c */
bool plan_attention_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_fp8_sm90(const struct kernel_request *r, struct plan *plan, char *why);
int attention_sm90_lengths(const struct problem *problem, const struct device *device);
/* plan_pages.c: the same of keys of 8 bits that are copied out of pages ahead of it */
bool plan_attention_gathered(const struct kernel_request *r, struct plan *plan, char *why);
int attention_gathered_lengths(const struct problem *problem, const struct device *device);
/* plan_mla.c */
bool plan_attention_mla(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_mla_narrow(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_mla_narrow_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_mla_sm90(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_sm80.c: the same kernel of k and v of 8 bits, as they lie in memory */
bool plan_attention_fwd_narrow(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_selected.c */
bool plan_attention_selected(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_selected_bwd.c */
bool plan_attention_bwd_selected(const struct kernel_request *r, struct plan *plan, char *why);
/* plan_decode.c: attention_decode; the same of k and v of 8 bits, as they lie in memory. */
bool plan_attention_decode(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_decode_narrow(const struct kernel_request *r, struct plan *plan, char *why);
int attention_decode_lengths(const struct problem *problem, const struct device *device);
int attention_decode_narrow_lengths(const struct problem *problem, const struct device *device);
/* plan_combine.c */
bool plan_attention_combine(const struct kernel_request *r, struct plan *plan, char *why);

#endif
