/*
 * run.h: what the files of `lathe run` share: the tensors of one run, on the host and on the device.
 */
#ifndef LATHE_GEN_RUN_H
#define LATHE_GEN_RUN_H

#include "tool.h"

struct run_tensor { /* one argument that the run passes; compact, row-major */
    int sig;        /* number in the signature */
    lathe_arg arg;  /* host data; shape points below */
    int64_t shape[MAX_DIMS];
    int64_t count; /* elements */
    size_t bytes;
    void *host;        /* free */
    void *device;      /* NULL on the host device, and of scalars */
    bool is_result;    /* backward: an input that the forward pass gives */
    bool from_forward; /* which the run computes first */
};

struct run {
    const struct options *o;
    struct ir *ir;
    struct signature sig;
    struct problem problem;
    int n;
    struct run_tensor tensor[MAX_ARGS];
};

static inline bool run_is_backward(const struct run *run)
{
    return run->sig.backward;
}

/* ---- run_data.c --------------------------------------------------------------------------------- */

/* Read the problem (sizes that it does not name come from the files of --input), then make every tensor.
   `outputs`: optional outputs too. Returns an exit code, having complained. run_free in any case. */
int run_prepare(struct run *run, bool outputs);
void run_free(struct run *run);
const struct run_tensor *run_find(const struct run *run, const char *name);
bool run_is_output(const struct run *run, const struct run_tensor *t);
/* Host arguments, in the order of run->tensor. */
void run_args(const struct run *run, lathe_arg out[MAX_ARGS]);
/* --output files. Returns an exit code. */
int run_write(const struct run *run);

/* ---- cmd_run.c ---------------------------------------------------------------------------------- */

/* Compile and time o->repeat launches of one plan, on a GPU. Seconds ascend; *label is the kernel's. */
lathe_status run_measure(struct run *run, const struct plan *plan, double *seconds, char label[128],
                         lathe_error *err);

/* ---- run_verify.c ------------------------------------------------------------------------------- */

/* Compare the outputs on the host with the evaluator; a line each on standard output. Exit code. */
int run_verify(const struct run *run);
/* Before the run: can it be verified within some seconds? Exit code, having complained. */
int run_verify_fits(const struct run *run);

/* ---- run_rate.c --------------------------------------------------------------------------------- */

/* Pairs that the mask leaves, over all heads and batches. False: too many to look at; *out is all pairs. */
bool run_live_pairs(const struct run *run, double *out);
/* A line with TFLOP/s or TB/s for a launch that took `seconds`. */
void run_print_rate(const struct run *run, double seconds);

struct random { /* splitmix64 */
    uint64_t state;
};
uint64_t random_next(struct random *r);

#endif
