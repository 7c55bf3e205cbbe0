/*
 * harness.h: what the rooms that run a case share: guarded memory, one tensor, a verdict, a compiled kernel.
 *
 * Verdicts depend on this file, and not on cases.h: another case or group makes no case run again.
 */
#ifndef LATHE_TESTS_EMULATE_HARNESS_H
#define LATHE_TESTS_EMULATE_HARNESS_H

#include "cases.h"

/* ---- memory.c: memory with an end ---------------------------------------------------------------------- */

enum { POISON = 0xff }; /* a NaN in every format */

struct block { /* pages of its own: the last byte is followed by a page that cannot be touched, as is the
                  first */
    unsigned char *pages;
    size_t page_bytes;
    unsigned char *data; /* `bytes` of it, up to the end but for alignment */
    size_t bytes;
};
bool block_open(struct block *b, size_t bytes, size_t alignment);
void block_wipe(struct block *b); /* as it was opened */
void block_close(struct block *b);
/* Where all of them lie; NULL: there are no such addresses. */
#define MEMORY_BYTES ((size_t)16 << 30)
const unsigned char *memory_range(void);

/* ---- tensor.c, tensor_values.c: arguments of a case ---------------------------------------------------- */

struct tensor {
    char name[NAME_MAX_BYTES];
    uint8_t role; /* enum arg_role */
    lathe_dtype dtype;
    lathe_dtype expects; /* what the host device takes and writes: f64, or the dtype that the spec fixes */
    int ndim;
    int64_t shape[MAX_DIMS];
    int64_t strides[MAX_DIMS];
    int64_t offset; /* of the first element, in elements */
    int64_t count;
    struct block block;
    double *value;  /* compact: of an input the rounded values, of an output room for the expected ones */
    int64_t scalar; /* bytes of a scalar or of q_start */
    bool list; /* of tensors: shape [tensors]; `block` has their elements one behind the other, with gaps */
    int64_t *start; /* of each, in elements from the block's start; the last one is the end */
    struct block pointers;
    void **reference; /* the same into value, whose elements have the dtype `expects` */
    bool by_rows;     /* judged as a result whatever its role */
    bool in_place;    /* an operand that its result is written over */
};
bool tensor_is_output(const struct tensor *t);
/* Shape, layout, memory, values. False: out of memory. */
bool tensor_open(struct tensor *t, const struct signature *sig, int arg, const struct test_case *c,
                 uint64_t seed);
void tensor_close(struct tensor *t);
/* Other values, compact; they are rounded. */
void tensor_fill(struct tensor *t, const double *value);
/* As the kernel gets it, and as the host device does: compact, f64 where the spec leaves the dtype open. */
lathe_arg tensor_arg(const struct tensor *t);
/* Take t->value, rounded, as the elements: of what an earlier pass would have computed. */
void tensor_store(struct tensor *t);
lathe_arg tensor_reference(const struct tensor *t, const struct sig_arg *a);
/* Expected values, which the host device wrote in a dtype that the spec fixes: to doubles, in place. */
void tensor_widen(struct tensor *t);
/* Where an element lies in its block, in elements. */
int64_t tensor_place(const struct tensor *t, int64_t flat);

/* ---- judge.c: results against what is expected --------------------------------------------------------- */

struct bounds {
    double row;   /* relative error of a row of o or y, or of a gradient, in the Euclidean norm; of the whole
                     tensor half of it */
    double final; /* error of a final or a statistic x, as a part of 1 + |x| */
    double gradient; /* attention backward: of a gradient in the Euclidean norm; of a row twice that, against
                        the mean row */
    double spread;   /* attention backward: deviation of the elements of q and k */
    double mean;     /* of a row beside its own norm: a part of the error that the mean row may have */
    double least;    /* backward: of a gradient's element, what may be left where terms cancel */
};
/* NULL, or what is wrong with the results of an output, compact; `why` holds the sentence. */
const char *judge_results(const struct tensor *t, const struct bounds *b, const double *result, char *why,
                          size_t size);

/* ---- store.c: what was compiled and what has passed before ----------------------------------------------
 */

enum { STORE_HEX = 2 * KEY_BYTES + 1, LISTED_HEX = 16 };
struct store {
    char folder[256];         /* "": there is none */
    char lists[400];          /* tests/passed */
    bool known;               /* what has passed before does not run again */
    char emulator[STORE_HEX]; /* digest of the compiler and of what is compiled with every kernel */
    char judge[STORE_HEX];    /* of what is compiled with every kernel and of what judges results: of texts
                                 alone, so that it is the same on every machine */
    char compiler[STORE_HEX];
    char *listed;        /* digests of cases of one group, a line each; NULL: none */
    const char *renewed; /* path of digests that belong into the lists, "group digest" a line; NULL: no */
};
/* False, with a line on standard error: a source that verdicts depend on is missing. */
bool store_open(struct store *s, const char *sources, bool fresh);
/* The list of this group, for the process of one job; store_close frees it. */
void store_take_list(struct store *s, const char *group);
void store_close(struct store *s);
/* A digest of what an object, or a verdict, is made of. Lengths are part of what is added. */
void store_start(const struct store *s, struct sha256 *digest, bool judge);
void store_add(struct sha256 *digest, const void *data, size_t size);
void store_add_text(struct sha256 *digest, const char *text);
/* Code without its comments and blanks. False: memory ran out. */
bool store_add_code(struct sha256 *digest, const char *text, size_t size);
/* Where the object of this digest lies, or would. False: it is not there. */
bool store_object(const struct store *s, struct sha256 *digest, char *path, size_t size);
bool store_keep(const struct store *s, const char *object, const char *path);
bool store_has_passed(const struct store *s, const char *group, struct sha256 *digest, char hex[STORE_HEX]);
void store_passed(const struct store *s, const char *group, const char hex[STORE_HEX]);
/* Writes the list of every group that `renewed` names. False: that cannot be done. */
bool store_write_lists(const struct store *s);

/* ---- build.c: the system's C++ compiler ---------------------------------------------------------------- */

struct workshop { /* a temporary folder with the core and the kernels of one process */
    char folder[256];
    char core[400];      /* the emulator's object */
    const char *sources; /* tests/emulate */
    struct store store;
    emulate_run_fn *run;
    bool hopper;          /* texts stand for sm_90 and up */
    unsigned first_order; /* of blocks side by side, and how many */
    unsigned orders;
    int n_kernels;
    struct kernel *kernel[120];
};
struct kernel {
    struct source source; /* texts and recipe: owned */
    bool hopper;
    void *library;
    emulate_thread_fn *thread[MAX_LAUNCHES];
    unsigned param_bytes[MAX_LAUNCHES];
};
/* MISSING: there is no C++ compiler. Says why on standard error where it is not READY. */
enum workshop_state { WORKSHOP_READY, WORKSHOP_MISSING, WORKSHOP_BROKEN };
enum workshop_state workshop_open(struct workshop *w, const char *sources, bool fresh);
void workshop_close(struct workshop *w);
/* Loads the core into this process. */
bool workshop_start(struct workshop *w, char *why, size_t size);
/* The kernel of these texts, compiled now or earlier; takes the source over. NULL: *why says why not. */
const struct kernel *workshop_kernel(struct workshop *w, struct source *source, char *why, size_t size);
void workshop_end(struct workshop *w);
/* Is it one that the folder tests/emulate has in its own way? */
bool text_is_stood_in_for(const struct text *t);

/* ---- case.c: one case ---------------------------------------------------------------------------------- */

struct scene { /* a case with everything in memory */
    const struct test_case *c;
    struct test_case sized; /* the case with the dims that it names */
    const struct ir *ir;
    const struct ir *plain; /* of references */
    struct signature sig;
    int n;
    int which[MAX_ARGS]; /* argument of the signature */
    struct tensor tensor[MAX_ARGS];
    lathe_arg arg[MAX_ARGS];
    struct problem problem;
    struct bound_args bound;
    struct block work[MAX_BUFFERS];
    size_t work_offset[MAX_BUFFERS];
};

struct bounds case_bounds(const struct scene *s);
enum verdict { VERDICT_PASSED, VERDICT_REFUSED, VERDICT_FAILED };
enum verdict case_run(struct workshop *w, const struct test_case *c, const struct ir *ir, uint64_t seed,
                      char *why, size_t size);

/* ---- run.c: its kernels, launched and judged ------------------------------------------------------------
 */

bool scene_run(const struct workshop *w, struct scene *s, const struct kernel *k, uint64_t seed, char *why,
               size_t size);

/* ---- digest.c: all that decides a verdict -------------------------------------------------------------- */

void case_digest(struct sha256 *digest, const struct workshop *w, const struct scene *s,
                 const struct source *source, uint64_t seed);

/* ---- broken.c: kernels that break a rule each, and what the emulator has to say --------------------- */

int broken_count(void);
const char *broken_name(int i);
enum verdict broken_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size);

/* ---- hopper.c: the same for sm_90 ------------------------------------------------------------------- */

extern const int hopper_count;
const char *hopper_name(int i);
enum verdict hopper_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size);

#endif
