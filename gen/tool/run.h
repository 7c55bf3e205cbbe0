/*
 * run.h: what the files of `lathe run` share: the tensors of one run, on the host and on the device.
 */
#ifndef LATHE_GEN_RUN_H
#define LATHE_GEN_RUN_H

#include "gen/base/facts.h"
#include "gen/tool/tool.h"

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
    int64_t *seed_row; /* --verify: the rows whose seeds are left, ascending; NULL: all */
    int64_t n_seed_rows;
    struct facts *facts; /* the report */
    bool inputs_alone;   /* of the spec's own: no q, k, v and no results are made */
};

static inline bool run_is_backward(const struct run *run)
{
    return run->sig.backward;
}

struct random { /* splitmix64 */
    uint64_t state;
};
uint64_t random_next(struct random *r);

/* ---- run_data.c --------------------------------------------------------------------------------- */

/* Read the problem (sizes that it does not name come from the files of --input), then make every tensor.
   `outputs`: optional outputs too. Returns an exit code, having complained. run_free in any case. */
int run_prepare(struct run *run, bool outputs);
/* Of `lathe check`: what the options name alone. run->problem has the sizes that they or the files say (-1:
   nobody does), run->tensor what they give, of the forward pass. */
int run_prepare_given(struct run *run);
/* Are those the names of scalars? False: complained. */
bool run_set_known(const struct signature *sig, const struct name_values *set);
void run_free(struct run *run);
/* Normal values. Exit code, having complained. */
int run_fill_floats(struct run_tensor *t, struct random *r);
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

/* Relative L2 error that rounding and reordering may cause, by the dtype of the problem. */
double run_bound(lathe_dtype dtype);
/* Is a gradient of that squared size 0 but for rounding, where the largest of its pass has the other? */
bool run_cancels(double size, double largest);
/* Compare the outputs on the host with the host device; a line each on standard output. Exit code. */
int run_verify(const struct run *run);
/* Gradients sum over more rows than the host device can look at: true. Then run_verify_sample leaves the
   seeds of some rows and makes all others zero, and gradients of that are what run_verify compares: they are
   linear in the seeds. The results of the run itself are searched for NaN before. Exit code, having
   complained. */
bool run_verify_samples(const struct run *run);
int run_verify_sample(struct run *run);
/* Before the run: can it be verified within some seconds? Exit code, having complained. */
int run_verify_fits(const struct run *run);

/* ---- run_rate.c --------------------------------------------------------------------------------- */

/* What a mask and a score_mod read of a call: its sizes; the place of a head; the position of row 0. */
void run_set_sizes(double at[AT_COUNT], const struct problem *p);
void run_set_head(double at[AT_COUNT], const struct problem *p, int64_t b, int64_t h);
int64_t run_q_start(const struct run *run);
/* What a launch does: arithmetic of attention, else bytes in and out. */
struct run_work {
    double amount; /* flop, or bytes */
    bool is_flop;
    bool counted; /* pairs: those that the mask leaves, and not all */
    double pairs;
};
void run_count_work(const struct run *run, struct run_work *out);
/* A line with TFLOP/s or TB/s for a launch that took `seconds`. */
void run_report_rate(const struct run *run, double seconds);
void run_sort_seconds(double *seconds, int n);
/* "1.234 ms" */
void run_time_text(double seconds, char *out, size_t size);
/* Lines with the time of n launches, which it sorts; returns their median. */
double run_report_time(struct facts *f, double *seconds, int n);

/* ---- run_nsa.c ---------------------------------------------------------------------------------- */

/* `lathe run nsa`. Exit code. */
int run_nsa(const struct options *o);

#endif
