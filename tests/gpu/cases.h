/*
 * cases.h: what the rooms of the GPU tests share: the table of specs, one case, one tensor, a run.
 *
 * A case is a spec with sizes and kinds of data. Its values are made once and rounded to `rounding`;
 * its reference is one lathe_launch on a host context with f64 copies of those values. A run of the case is
 * one dtype and one memory layout on the device, launched twice and compared.
 */
#ifndef LATHE_TESTS_GPU_CASES_H
#define LATHE_TESTS_GPU_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "lathe.h"

enum dim {
    DIM_B,
    DIM_H,
    DIM_H_KV,
    DIM_Q,
    DIM_KV,
    DIM_D,
    DIM_D_V,
    DIM_ROWS0,
    DIM_ROWS1,
    DIM_ROWS,
    DIM_N,
    DIM_COUNT
};

enum { CASE_DIMS = 5, SPEC_ARGS = 8, CASE_ARGS = 24, CASE_RUNS = 10 };

enum role {
    ROLE_TENSOR,   /* read, of the problem's dtype: q k v x, do dy */
    ROLE_RESULT,   /* written, of the problem's dtype: o y, dq dk dv dx */
    ROLE_FINAL,    /* written, f32, optional: lse and its kind */
    ROLE_INPUT,    /* read: a tensor that the spec declares */
    ROLE_SCALAR,   /* read from host memory */
    ROLE_SAVED,    /* backward: read, optional: a result of the forward pass */
    ROLE_SEED,     /* backward: read, f32, optional: the gradient of a final */
    ROLE_GRADIENT, /* backward: written, f32, optional: the gradient of an input */
};

enum fill {
    FILL_NORMAL,   /* mean low, deviation high */
    FILL_INTEGER,  /* low .. high, both included */
    FILL_DOCUMENT, /* ascending document numbers along the last dim */
    FILL_PREFIX,   /* 0 .. kv + 3 */
    FILL_BLOCK,    /* a block of 64 keys, or -1 */
    FILL_UNIFORM,  /* between low and high */
    FILL_STARTS,   /* 0, then where sequences of t tokens end, some of them empty */
    FILL_SLOTS,    /* slots of a pool of states, each once, in any order; -1 where there are no more */
    FILL_PARTS     /* parts of a row of n: n of them up to 33, else 10, and some elements more */
};

/* What references may be computed with: q or x is 1 % too large; a key, or an element of x, reads as zeros.
 */
enum fault { FAULT_NONE, FAULT_SCALE, FAULT_KEY };

struct arg_row {
    char name[16];
    enum role role;
    lathe_dtype dtype; /* NONE: the problem's, or for an input "float": the problem's or f32 */
    const char *dims;  /* "b h q d"; a number is a fixed size */
    enum fill fill;
    double low;
    double high;
    bool may_be_infinite; /* -inf is a meaningful value: a bias on scores */
    bool optional;
    bool grad; /* declared with grad = true */
};

enum { ROWS_INNER = 2 };
struct spec_row {
    const char *name;
    int rowwise;        /* 1: along the last dim; ROWS_INNER: along the one before; 0: attention */
    bool rows_are_keys; /* indexes a tensor of keys by at.q: q rows must be positions of keys */
    double score_noise; /* roundings of q and k, or what comes to the same, before they are scores: specs.c
                           says which */
    const char
        *seed_noise; /* backward: the gradient of a final that is moved by the rounding of a sum; or NULL */
    int n_args;      /* of the spec alone: finals and inputs */
    struct arg_row arg[SPEC_ARGS];
};

extern const struct spec_row spec_rows[];
extern const int spec_row_count;
const struct spec_row *spec_find(const char *name); /* NULL where there is none */
/* masks.c: the text of a spec that is not shipped, and of the one that its reference is computed of; NULL. */
const char *mask_text(const char *name);
const char *mask_reference(const char *name);
/* A shipped spec by its name, or one that the tests have a text of. */
lathe_status spec_open(lathe_spec **out, const struct spec_row *row, lathe_error *err);
/* Rowwise: is some gradient added up by atomics? Only where it is asked for has it the same bits again. */
bool spec_scatters(const struct spec_row *spec);
/* Has an input an element for each pair, to which the heads of a group, or batches, add? Their order is not
 * to be had. */
bool spec_adds_by_head(const struct spec_row *spec);
/* Attention: is v no argument, but the first elements of k? */
bool spec_values_in_keys(const struct spec_row *spec);
/* Arguments of a pass of a spec: those of its kind, its own, seeds and gradients. Returns how many; at most
   CASE_ARGS. */
int spec_arguments(const struct spec_row *spec, lathe_pass pass, struct arg_row *out);

enum layout {
    LAYOUT_COMPACT,    /* exact allocation: compute-sanitizer sees a read past the end */
    LAYOUT_SWAPPED,    /* tokens before heads; tables and finals transposed */
    LAYOUT_PADDED,     /* 16-byte aligned rows with NaN before, between and after them */
    LAYOUT_HALF,       /* the same, rows aligned to 4 elements */
    LAYOUT_MISALIGNED, /* the same, rows aligned to their element alone */
    LAYOUT_COLUMNS,    /* q, k, v and do with tokens innermost; others compact */
    LAYOUT_COUNT
};
const char *layout_name(enum layout layout);

struct case_run {
    lathe_dtype dtype;
    enum layout layout;
};

struct map_case;  /* maps.h */
struct form_case; /* forms.c */

struct test_case {
    const struct spec_row *spec;   /* NULL where it is element-wise */
    const struct map_case *map;    /* element-wise: what takes the place of spec and dim */
    const struct form_case *forms; /* the same, of attention in several forms of a call */
    lathe_pass pass;
    bool deterministic; /* backward: the same bits from both launches */
    int64_t dim[DIM_COUNT];
    int leading; /* rowwise: leading dims, 1 to 3 */
    uint64_t seed;
    lathe_dtype rounding; /* BF16: also exact in f16, so that both share one reference */
    bool has_q_start;
    int32_t q_start;
    bool skewed;     /* logits of deviation 40 */
    bool infinite;   /* some biases are -inf, in head 0 all of them */
    bool broadcast;  /* k, v and inputs are equal along their first dim, given with stride 0 */
    bool absent;     /* optional inputs and finals are left out */
    bool sums;       /* linear attention: results are sums along tokens, whose terms may cancel */
    bool may_refuse; /* an UNSUPPORTED answer with a reason passes */
    int n_runs;
    struct case_run run[CASE_RUNS];
};

/* ---- tensor.c ---------------------------------------------------------------------------------- */

struct tensor {
    struct arg_row row;
    lathe_dtype dtype;
    int ndim;
    int64_t shape[CASE_DIMS];
    int64_t strides[CASE_DIMS];
    int64_t count;  /* logical elements */
    int64_t offset; /* elements before the first */
    int64_t span;   /* elements of the allocation */
    bool broadcast; /* dim 0 has stride 0 */
    bool given;
    double *value;        /* count values, row-major; borrowed by layouts of the same case */
    unsigned char *bytes; /* span elements, as the device sees them */
    unsigned char *again; /* the same after the second launch; outputs only */
    void *memory;         /* device memory, span elements */
};

double dtype_round(lathe_dtype dtype, double value);
void dtype_put(lathe_dtype dtype, void *data, int64_t element, double value); /* of a value rounded before */
double dtype_get(lathe_dtype dtype, const void *data, int64_t element);

uint64_t random_bits(uint64_t *state);
int64_t random_between(uint64_t *state, int64_t low, int64_t high); /* both included */
double random_gaussian(uint64_t *state);                            /* of mean 0 and deviation 1 */

bool tensor_is_output(const struct tensor *t);
void tensor_shape(struct tensor *t, const struct arg_row *row, const struct test_case *c);
bool tensor_values(struct tensor *t, const struct test_case *c); /* false: out of memory */
void tensor_lay_out(struct tensor *t, enum layout layout, uint64_t *random);
bool tensor_pack(struct tensor *t); /* poison everywhere, then the values; outputs: poison alone */
int64_t tensor_element(const struct tensor *t, int64_t flat); /* place of logical element `flat` */
/* Elements of an output's allocation outside the tensor that are no longer poison. */
int64_t tensor_spilled(const struct tensor *t);
lathe_arg tensor_arg(const struct tensor *t, void *data);

/* ---- case.c ------------------------------------------------------------------------------------ */

struct side { /* one context with memory and a stream of its own kind */
    const struct device *device;
    lathe_ctx *ctx;
    lathe_stream stream;
};

struct bench { /* what the cases of one thread share */
    struct side tested;
    struct side strict;       /* the same device with options.deterministic */
    struct side reference;    /* the host device on host memory */
    lathe_spec *const *spec;  /* by row of spec_rows */
    lathe_spec *const *plain; /* the same: of references, where that is another one; NULL */
    enum fault fault;         /* of the references, that must be found */
    bool verbose;             /* a line per run: its error as a fraction of its bound */
    bool wished; /* LATHE_TEMPLATE names templates: what they refuse is counted, and no failure */
};

struct case_data { /* the arguments of a case and their values; NULL for outputs */
    int n;
    struct arg_row row[CASE_ARGS];
    double *value[CASE_ARGS];
};
/* False: out of memory. What is saved of a forward pass has no values yet: case.c computes them. */
bool case_data_open(struct case_data *data, const struct test_case *c);
void case_data_close(struct case_data *data);

/* ---- noise.c: what roundings move --------------------------------------------------------------------- */

enum { SAMPLES = 3 };
struct spread { /* of one output */
    const double
        *sample[SAMPLES]; /* what the reference gives of moved values; NULL: no rounding on the way counts */
    double size;          /* one rounding of the run's, in those of the samples */
    double least;         /* what may be left of an element where the terms of a sum cancel */
};
bool noise_matters(const struct test_case *c);
double noise_size(const struct test_case *c, lathe_dtype dtype);
/* Linear attention: one rounding of a dtype, in those of the samples; and an operand whose roundings count,
 * moved. */
double sums_noise_size(lathe_dtype dtype);
void sums_noise(double *moved, const double *value, int64_t count, const char *name, uint64_t *random);
/* What may be left of the gradient of a decay's input as a whole. In: the norm of all products q dq, k dk and
 * v dv; the tokens of a sequence; whether each token has elements of its own. */
double sums_left(double products, int64_t tokens, bool each);
/* The values of `data`, moved. False: out of memory. case_data_close either way. */
bool noise_data_open(struct case_data *noisy, const struct test_case *c, const struct case_data *data,
                     int sample);
/* faults.c: values with a fault that a kernel might have, to see whether the bounds catch it. Of a map all
 * tensors are rows. NULL: out of memory; the caller frees the copy. */
enum fault_kind { FAULT_ROWS /* attention and rowwise */, FAULT_SUMS /* linear attention */, FAULT_MAP };
void fault_values(double *value, const struct tensor *t, enum fault_kind kind, enum fault fault);
double *fault_copy(const double *value, const struct tensor *t, enum fault_kind kind, enum fault fault);
/* All values of `data`. False: out of memory. case_data_close either way. */
bool fault_data_open(struct case_data *wrong, const struct test_case *c, const struct case_data *data,
                     enum fault fault);

/* One run of a case with its memory in place, ready to launch. */
struct ready {
    struct tensor tensor[CASE_ARGS];
    int n_tensors;
    lathe_arg arg[CASE_ARGS + 1];
    int n;
    int32_t q_start;
    lathe_kernel *kernel;
    void *workspace;
    size_t workspace_size;
};
/* Memory with values and poison; then the kernel and its workspace; or both in one. The status of
   lathe_kernel_get, or MEMORY with err filled. ready_close after a failure too. */
lathe_status ready_place(struct ready *r, const struct side *side, const struct test_case *c,
                         const struct case_data *data, struct case_run run, lathe_error *err);
lathe_status ready_kernel(struct ready *r, const struct side *side, lathe_spec *spec, lathe_pass pass,
                          lathe_error *err);
lathe_status ready_open(struct ready *r, const struct side *side, lathe_spec *spec, const struct test_case *c,
                        const struct case_data *data, struct case_run run, lathe_error *err);
/* Poison outputs and workspace, launch, wait, and fetch the outputs into bytes, or into again. */
lathe_status ready_launch(struct ready *r, const struct side *side, bool again, lathe_error *err);
bool ready_poison(const struct ready *r, const struct side *side);
bool ready_fetch(struct ready *r, const struct side *side, bool again);
const char *ready_difference(const struct ready *r); /* output whose bytes and again differ, or NULL */
void ready_close(struct ready *r, const struct side *side);

struct tally {
    int passed;
    int failed;
    int refused;     /* allowed refusals; counted in passed too */
    double worst;    /* largest error as a fraction of its bound */
    char first[896]; /* the first failure, "" where there is none */
};
void case_check(const struct bench *bench, const struct test_case *c, struct tally *tally);
void case_name(const struct test_case *c, char *out, size_t size);
void case_fail(struct tally *tally, const struct test_case *c, const char *where, const char *why);
/* A run that was compared: `worst` of what is allowed, and NULL or what is wrong. */
void case_judged(const struct bench *bench, struct tally *tally, const struct test_case *c, const char *where,
                 double worst, const char *wrong);
void one_line(char *text); /* line ends become '|'; a compiler's log is cut */

/* ---- bounds.c: compare, with every bound in one table -------------------------------------------- */

/* The elements of an output against what the reference gave. NULL, or a sentence in `why`. Raises
 *worst to the error as a fraction of its bound. */
const char *result_compare(const struct tensor *t, const double *expected, const struct spread *spread,
                           const struct test_case *c, double *worst, char *why, size_t why_size);

/* ---- matrix.c, random.c, group.c, system.c, nsa.c, ranks.c
 * --------------------------------------------------- */

struct case_list {
    struct test_case *item;
    int n;
    int capacity;
    bool failed; /* out of memory */
};
struct test_case *case_add(struct case_list *list, const struct test_case *c);
/* The fixed groups by name; names end with NULL. */
extern const char *const matrix_groups[];
struct options;
void cases_of_group(struct case_list *list, const char *group, const struct options *options);
/* n small problems with random specs, sizes, layouts and flags. */
void cases_random(struct case_list *list, int n, uint64_t seed);

struct totals {
    int passed;
    int failed;
    int bars_missed;
    int blind; /* groups that did not see the fault */
};

struct options {
    bool dry;
    bool quick;
    enum fault fault;
    bool verbose;
    bool strict; /* a missed time bar counts as a failure */
    int threads;
    uint64_t seed;
    uint64_t draw;      /* dry: which cases of a spec */
    const char *only;   /* run groups whose name contains this */
    const char *chosen; /* cases whose names contain this; NULL: all */
    const char *cache;  /* kernel cache of the matrix; NULL: a temporary folder */
    const char *self;   /* path of this binary, for child processes */
};

/* Does one of the texts between the bars of `chosen` stand in the name? NULL: yes. */
bool text_is_chosen(const char *chosen, const char *name);
void group_run(const char *name, struct case_list *list, const struct bench *shared,
               const struct options *options, struct totals *totals);
/* Threads, graphs, times and races: what is about the library, not about one kernel. */
void system_run(const struct bench *shared, const struct options *options, struct totals *totals);
/* batch.c: deterministic=batch. */
void batch_run(const struct bench *shared, const struct options *options, struct totals *totals);
/* ranks.c: one problem over ranks that share the device, by lathe_dist.h. */
void ranks_run(const struct bench *shared, const struct options *options, struct totals *totals);
/* Native sparse attention by lathe_nsa.h. */
void nsa_run(const struct bench *shared, struct totals *totals);

#endif
