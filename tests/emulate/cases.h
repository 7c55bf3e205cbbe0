/*
 * cases.h: what the rooms of the emulation test share: one case, one tensor, a compiled kernel.
 *
 * A case is a spec with sizes, a dtype, a memory layout and a kind of data. Neighbours in the list that share
 * what is compiled in make a job: one process, which compiles each of its kernels once.
 */
#ifndef LATHE_TESTS_EMULATE_CASES_H
#define LATHE_TESTS_EMULATE_CASES_H

#include "emulate.h"
#include "gen.h"
#include "rt.h"

/* ---- cases.c: which cases there are -------------------------------------------------------------- */

enum layout {
    LAYOUT_COMPACT,
    LAYOUT_SWAPPED,    /* tokens before heads */
    LAYOUT_PADDED,     /* aligned rows with poison before and between them */
    LAYOUT_MISALIGNED, /* the same, rows aligned to their element alone */
    LAYOUT_COUNT
};

#define SKEWED_SPREAD 6.3

struct test_case {
    const char *group;
    lathe_pass pass;
    const char *spec; /* the name of a shipped spec, or of the text below */
    const char *text; /* of a spec; NULL: shipped */
    lathe_dtype dtype;
    int sm;                    /* compute capability that is planned for */
    const char *template_name; /* NULL: a portable one */
    const char *tile;          /* a row of tiles by its name; NULL: any */
    int blocks;                /* that take tiles in turn; 0: as planned */
    int beside;             /* that run at the same time, one on each multiprocessor of a device that has no
                               more; 0: one after the other, of a device as large as there are */
    int64_t dim[SYM_COUNT]; /* -1: not in this problem */
    int leading;            /* rowwise: leading dims, 1 to 3; elementwise: those that are left out */
    const char *sizes;      /* elementwise: "b=2,t=5": dims with names of their own; NULL: other kinds */
    const char *dtypes;     /* the same: "m=f32": dtypes of tensors that are not `dtype` */
    enum layout layout;
    bool has_q_start;
    int32_t q_start;
    bool skewed;   /* logits of deviation 40: q and k of SKEWED_SPREAD */
    bool infinite; /* inputs have values of -inf */
    bool absent;   /* what is optional is left out; of a backward pass, gradients excepted */
    unsigned
        unwanted; /* backward: a bit for each gradient, in the order of the signature, that is left out */
    bool may_refuse;
    const char *without; /* backward: names of arguments that are left out, between spaces; NULL: none */
    bool deterministic;
    bool hollow; /* an input that the spec reads has no elements, which the host device refuses: what a kernel
                    touches is judged, no value */
};
struct inline_spec { /* a spec of this test's own */
    const char *name;
    const char *text;
};
extern const char DISTANCES[]; /* a score of two terms of at.q - at.kv, which become one value */

struct case_list {
    int n;
    int capacity;
    struct test_case *item; /* free() */
};
/* Every case of the default run, or of the full one. False: out of memory. */
bool cases_make(struct case_list *list, bool full);
/* cases_folder.c: of every spec in a folder instead. False: there is none. */
bool cases_of_folder(struct case_list *list, const char *folder);
void case_add(struct case_list *list, const struct test_case *c);
/* Without sizes but head dims; free dims are 40. */
struct test_case case_of_attention(const char *group, const char *spec, const char *text, lathe_dtype dtype,
                                   int d, int d_v, int sm);
void group_backward(struct case_list *list, bool full); /* cases_backward.c */
void group_rows(struct case_list *list, bool full);     /* cases_rows.c */
void group_clusters(struct case_list *list, bool full); /* cases_clusters.c */
void group_beside(struct case_list *list, bool full);   /* cases_beside.c */
void group_pairs(struct case_list *list, bool full);    /* cases_pairs.c */
bool same_job(const struct test_case *a, const struct test_case *b);
void case_name(const struct test_case *c, char *out, size_t size);
struct device device_of(int sm);

/* ---- cases_map.c: the same for elementwise ------------------------------------------------------------ */

void group_elementwise(struct case_list *list, bool full);
void group_rows_beside(struct case_list *list);
void group_deterministic_maps(struct case_list *list);
/* Gradients of inputs without elements. */
void group_hollow(struct case_list *list);
/* The number behind NAME= in "a=1,b=2"; -1: it is not there. */
int64_t named_size(const char *sizes, const char *name);

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

/* ---- tensor.c: arguments of a case ------------------------------------------------------------------- */

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
/* Inputs cannot be written until thawed. */
void tensor_freeze(const struct tensor *t, bool frozen);
/* The results of an output, compact; its elements are poison then. Returns how many bytes that are no
 * element's are not. */
size_t tensor_take(const struct tensor *t, double *result);

/* ---- judge.c: results against what is expected --------------------------------------------------------- */

struct bounds {
    double row;   /* relative error of a row of o or y, or of a gradient, in the Euclidean norm; of the whole
                     tensor half of it */
    double final; /* error of a final or a statistic x, as a part of 1 + |x| */
    double gradient; /* attention backward: of a gradient in the Euclidean norm; of a row twice that, against
                        the mean row */
    double spread;   /* attention backward: deviation of the elements of q and k */
    double least;    /* backward: of a gradient's element, what may be left where terms cancel */
};
/* NULL, or what is wrong with the results of an output, compact; `why` holds the sentence. */
const char *judge_results(const struct tensor *t, const struct bounds *b, const double *result, char *why,
                          size_t size);

/* ---- build.c: the system's C++ compiler ---------------------------------------------------------------- */

struct workshop { /* a temporary folder with the core and the kernels of one process */
    char folder[256];
    const char *sources; /* tests/emulate */
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
enum workshop_state workshop_open(struct workshop *w, const char *sources);
void workshop_close(struct workshop *w);
/* Loads the core into this process. */
bool workshop_start(struct workshop *w, char *why, size_t size);
/* The kernel of these texts, compiled now or earlier; takes the source over. NULL: *why says why not. */
const struct kernel *workshop_kernel(struct workshop *w, struct source *source, char *why, size_t size);
void workshop_end(struct workshop *w);

/* ---- case.c: one case ---------------------------------------------------------------------------------- */

enum verdict { VERDICT_PASSED, VERDICT_REFUSED, VERDICT_FAILED };
enum verdict case_run(struct workshop *w, const struct test_case *c, const struct ir *ir, uint64_t seed,
                      char *why, size_t size);

/* ---- broken.c: kernels that break a rule each, and what the emulator has to say --------------------- */

int broken_count(void);
const char *broken_name(int i);
enum verdict broken_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size);

/* ---- hopper.c: the same for sm_90 ------------------------------------------------------------------- */

extern const int hopper_count;
const char *hopper_name(int i);
enum verdict hopper_run(struct workshop *w, int i, uint64_t seed, char *why, size_t size);

#endif
