/*
 * plan.h: what the files of the planner share. Seen by plan*.c alone.
 */
#ifndef LATHE_GEN_PLAN_H
#define LATHE_GEN_PLAN_H

#include "gen.h"

enum { REASON_BYTES = 256 };

struct request {
    const struct ir *ir;
    lathe_pass pass;
    const struct problem *problem;
    const struct device *device;
    int *skip;        /* so many rows of tiles that serve are passed over, for `lathe tune`; NULL: none */
    const char *only; /* the one template to consider, if it would be taken anyhow; NULL: all */
};

/* Registers of a thread besides scores, weights and o. */
enum register_need {
    NEED_NONE,  /* no running maximum */
    NEED_LEAST, /* one */
    NEED_FEW,   /* and a mask with one end, as the causal one: two ways to weigh a tile */
    NEED_SOME,  /* another mask; values by distance, by row or by column; o as fp32; one row state of which
                   nothing is known */
    NEED_MANY   /* values by pair; more such row states */
};

struct tile_row {
    int max_d, max_dv; /* padded dims that it serves */
    int bm, bn, stages, warps;
    bool q_in_regs;
    int min_sm, max_sm;
};

enum { MAX_DIM = 256 }; /* of one product's columns */

static inline int round_up(int64_t n, int to)
{
    return (int)((n + to - 1) / to * to);
}

/* plan_hopper.c: is code for this device alone made? wgmma and setmaxnreg are in no other: not in sm_90,
   whose code runs on later devices, too. */
bool plan_for_hopper(const struct device *device);
bool plan_needs_hopper(const struct request *r, char *why);
/* plan_rows.c: rowwise.cuh and rowwise_many.cuh. Fill the plan, or say why not in `why` (REASON_BYTES). */
bool plan_rowwise(const struct request *r, struct plan *plan, char *why);
bool plan_rowwise_many(const struct request *r, struct plan *plan, char *why);
/* The pass that is asked for, where row-wise kernels take its dtype, device and length. The caller frees it
   with row_pass_free; false: there is nothing to free. */
struct row_pass;
bool plan_row_pass(const struct request *r, struct row_pass *pass, char *why);
/* plan_reread.c: rows that passes read again. */
struct plan_again {
    int each;      /* vectors of a row that a thread has; 0: rows are held */
    int registers; /* of a thread */
    bool beside;   /* elements read inputs beside the rows */
    bool spreads;  /* spread_take of the formulas: one pass instead of two */
};
void plan_reread(const struct request *r, const struct row_pass *pass, struct plan_again *again);
/* plan_staged.c: rowwise_staged.cuh, rowwise_inner.cuh. */
bool plan_inner(const struct request *r, struct plan *plan, char *why);
bool plan_staged(const struct request *r, struct plan *plan, char *why);
/* Is a value what a tensor of the same 16 bits as x holds? */
bool plan_is_half(const struct request *r, const struct ir *w, int node);
/* plan_walk.c: rowwise_walk.cuh, and rowwise_chain.cuh beside it. */
bool plan_walk(const struct request *r, struct plan *plan, char *why);

/* plan_map.c: elementwise.cuh, for a spec and for its gradient. */
bool plan_elementwise(const struct request *r, struct plan *plan, char *why);
bool plan_elementwise_bwd(const struct request *r, struct plan *plan, char *why);
bool plan_elementwise_gather(const struct request *r, struct plan *plan, char *why);
/* plan.c, plan_backward.c: attention, likewise. */
bool plan_attention_sm80(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd_sm90(const struct request *r, struct plan *plan, char *why);
bool plan_attention_bwd_wide(const struct request *r, struct plan *plan, char *why);

/* plan.c: what every attention template asks and fills in. *diag: the kernel keeps a value per diagonal. */
bool plan_attention_begin(const struct request *r, int most_dv, struct plan *plan, int *diag, char *why);
/* Of the tensors that the kernel reads and writes where they are: does TMA take them? */
bool plan_tma_takes(const struct request *r, char *why);
/* Of a row that serves: is it the one to take? */
bool plan_tile_is_wanted(const struct request *r, const struct tile_row *t);
void plan_take_tile(struct plan *plan, const struct tile_row *t, int smem, bool diag);

/* plan_hopper.c */
bool plan_attention_sm90(const struct request *r, struct plan *plan, char *why);

#endif
