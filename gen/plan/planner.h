/*
 * planner.h: what the planners of all kinds share, and the planners that rows of templates name. Seen by the
 * planners' files and tables of templates alone.
 */
#ifndef LATHE_GEN_PLANNER_H
#define LATHE_GEN_PLANNER_H

#include "gen/arguments/signature.h"
#include "gen/ir/spec.h"
#include "gen/plan/request.h"
#include "runtime/recipe/bind.h"

struct plan;

struct tile_row {
    int max_d, max_dv; /* padded dims that it serves */
    int bm, bn, stages, warps;
    bool q_in_regs;
    int min_sm, max_sm;
};

enum { MAX_DIM = ATTENTION_MOST_DIM }; /* of one product's columns */

static inline int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* attention/plan_sm90.c: is code for this device alone made? wgmma and setmaxnreg are in no other: not in
   sm_90, whose code runs on later devices, too. */
bool plan_for_hopper(const struct device *device);
bool plan_needs_hopper(const struct kernel_request *r, char *why);
/* gradients.c: of attention and linear attention, where an input that is left out is a constant once formulas
   are lowered: is each there whose gradient is asked for? */
bool plan_gradients_exist(const struct kernel_request *r, char *why);
/* rowwise/plan_registers.c: rowwise/single.cuh and rowwise/registers.cuh. Fill the plan, or say why not in
 * `why` (REASON_BYTES). */
bool plan_rowwise(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_registers(const struct kernel_request *r, struct plan *plan, char *why);
/* rowwise/plan.c. The pass that is asked for, where row-wise kernels take its dtype, device and length. NULL:
   why not. */
struct row_pass;
const struct row_pass *plan_row_pass(const struct kernel_request *r, char *why);
/* Is a value what a tensor of the same 16 bits as x holds? */
bool plan_is_half(const struct kernel_request *r, const struct ir *w, int node);
/* plan_reread.c: rows that passes read again. */
struct plan_again {
    int each;      /* vectors of a row that a thread has; 0: rows are held */
    int registers; /* of a thread */
    bool beside;   /* elements read inputs beside the rows */
    bool variance; /* variance_take of the formulas: one pass instead of two */
};
void plan_reread(const struct kernel_request *r, const struct row_pass *pass, struct plan_again *again);
/* plan_staged.c: rowwise/staged.cuh, rowwise/inner.cuh. */
bool plan_inner(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_staged(const struct kernel_request *r, struct plan *plan, char *why);
/* rowwise/plan_scan.c: rowwise/inner_scan.cuh, and rowwise/inner_scan_lookback.cuh beside it. */
bool plan_inner_scan(const struct kernel_request *r, struct plan *plan, char *why);

/* elementwise/plan.c: elementwise/map.cuh, for a spec and for its gradient. */
bool plan_elementwise(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_elementwise_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_elementwise_gather(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_sm80.c, plan_backward.c: attention, likewise. */
bool plan_attention_sm80(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_bwd_wide(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_slices.c */
bool plan_attention_bwd_slices(const struct kernel_request *r, struct plan *plan, char *why);

/* attention/plan.c: what every attention template asks and fills in. */
bool plan_attention_begin(const struct kernel_request *r, int most_d, int most_dv, struct plan *plan,
                          char *why);
/* Have head dims the pairs that mods of this tensor, and of those behind it, work on? */
bool plan_mods_fit(const struct kernel_request *r, enum mod first, char *why);
/* Of a template without products of f32: are its tensors f16 or bf16? instead: what takes f32. */
bool plan_halves_alone(const struct kernel_request *r, const char *instead, char *why);
/* What common/mma_f32.cuh does, for `lathe explain`. */
#define PLAN_F32_PRODUCTS                                                                                    \
    "products of f32 are three of bf16 each (hi hi + hi lo + lo hi, f32 sums), off by less than 2^-16; "     \
    "tf32 "                                                                                                  \
    "is not used"
/* Of the tensors that the kernel reads and writes where they are: does TMA take them? */
bool plan_tma_takes(const struct kernel_request *r, char *why);
/* Of tensors whose head dims are no multiples of 8: what it costs, behind plan->reason. */
void plan_say_copies(const struct kernel_request *r, struct plan *plan);
/* Of a second pair of q and k: whether it is read or copied, behind plan->reason. */
void plan_say_pair(const struct kernel_request *r, struct plan *plan);
/* Of attention: no packed sequences and no lengths of batches; or those that attention_fwd_sm80 takes. */
bool plan_no_sequences(const struct kernel_request *r, char *why);
bool plan_sequences_fit(const struct kernel_request *r, char *why);
/* Of a row that serves: is it the one to take? */
bool plan_tile_is_wanted(const struct kernel_request *r, const struct tile_row *t);
void plan_take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag);

/* attention/plan_sm90.c. The second: does a row of its tiles ask whether keys are many? */
bool plan_attention_sm90(const struct kernel_request *r, struct plan *plan, char *why);
bool attention_asks_keys(const struct problem *problem, const struct device *device);
/* attention/plan_mla.c */
bool plan_attention_mla(const struct kernel_request *r, struct plan *plan, char *why);
bool plan_attention_mla_sm90(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_selected.c */
bool plan_attention_selected(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_selected_bwd.c */
bool plan_attention_bwd_selected(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_decode.c: attention_decode; and plan_lengths of pipeline/pick.h. */
bool plan_attention_decode(const struct kernel_request *r, struct plan *plan, char *why);
/* attention/plan_combine.c */
bool plan_attention_combine(const struct kernel_request *r, struct plan *plan, char *why);
int attention_lengths(lathe_pass pass, const struct problem *problem, const struct device *device);
/* linear/plan_delta.c: the same of linear attention. */
int linear_lengths(lathe_pass pass, const struct problem *problem, const struct device *device);

#endif
