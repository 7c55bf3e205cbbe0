/*
 * lathe_inspect.h: what a spec takes, and what becomes of it, as data and as text: for bindings of other
 * languages, and for programs that choose at run time.
 *
 *     lathe_spec_arg        the arguments of a pass: names, dtypes, shapes as sizes by name
 *     lathe_spec_size       the sizes: which follow from others, which are compiled in
 *     lathe_spec_absent     why an argument is not taken that other specs take
 *     lathe_spec_counts     whether a call may have a part of all tokens
 *     lathe_explain         which template serves a call, and why
 *     lathe_source          the CUDA file of a kernel, for any architecture, without a GPU
 *     lathe_prove           what `lathe check` proves
 *     lathe_report          what this machine has, for a report of a fault
 *
 * The rules of lathe.h hold here, too. What is returned as text is the caller's: lathe_text_free.
 */
#ifndef LATHE_INSPECT_H
#define LATHE_INSPECT_H

#include "lathe.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LATHE_MAX_DIMS = 5 };

typedef enum lathe_role {
    LATHE_ROLE_TENSOR = 0, /* a tensor that is read */
    LATHE_ROLE_RESULT = 1, /* a tensor that is written */
    LATHE_ROLE_SCALAR = 2  /* a number in host memory */
} lathe_role;

/* Elements along a dim: times * (the size of that name) + plus; a number alone has the name "" and times 0.
 */
typedef struct lathe_dim {
    const char *name; /* "b", "h_kv", or what an input calls it */
    int32_t times;
    int32_t plus;
} lathe_dim;

/* Strings live as long as the spec. */
typedef struct lathe_arg_info {
    const char *name;
    lathe_role role;
    lathe_dtype dtype;    /* NONE: any of f32, f16, bf16 (host device: f64), and compiled in */
    int32_t shares_dtype; /* 1: all arguments that say so have one dtype, as q, k, v and o do; but q, k
                             and v of attention may have others of 8 bits */
    int32_t takes_halves; /* 1: f16 and bf16 beside `dtype`; all arguments that say so have one dtype, which
                             is `dtype` where nobody says another */
    int32_t optional;     /* 1: may be left out */
    int32_t leading_optional; /* 1: dims may be left out from the left, but for the last one */
    int32_t is_input;         /* 1: the spec declares it as an input */
    int32_t is_list;          /* 1: an array of pointers to tensors */
    const char *alias;        /* the operand over which it is written where it is left out; "" for none */
    double default_value;     /* of a scalar that is left out, or of every element of a tensor */
    int32_t ndim;
    lathe_dim dim[LATHE_MAX_DIMS];
    const char
        *kept_by; /* of a result: the argument beside which a call may leave some elements as they were
                     (o behind an early end of cu, slots that nobody writes); "": it is written whole */
} lathe_arg_info;

/* Fill *out with argument `number` of a pass, counted from 0 in the order in which lookups are fastest.
   1: filled; 0: there are not so many. Shapes are those of a plain call: beside `pages` k and v are pools,
   [pool, h_kv, page, d] and [pool, h_kv, page, d_v], and part_o and part_rows are given in the place of o and
   finals (lathe_types.h). A backward pass without arguments is one that the spec does not have.
 */
LATHE_API int lathe_spec_arg(const lathe_spec *spec, lathe_pass pass, int number, lathe_arg_info *out);

typedef struct lathe_size_info {
    const char *name;
    const char *same_as;    /* the size that it is where no argument says its own; "" for none */
    int32_t is_compiled_in; /* 1: a kernel serves this value alone; 0: any */
    int32_t least;          /* what kernels for GPUs take, in steps of `step`; step 0: any */
    int32_t most;
    int32_t step;
} lathe_size_info;
/* Size `number` of a pass, and below parameter `number` of a spec, counted from 0. 1: *out is filled; 0:
   there are not so many. */
LATHE_API int lathe_spec_size(const lathe_spec *spec, lathe_pass pass, int number, lathe_size_info *out);

/* Does it count the tokens (attention: the queries) of a call, so that a call with a part of them gives
   others? 1: a formula reads at.row or at.len_q of attention, at.t, at.pos or at.len_t of linear attention
   otherwise than to find a token's place in an input over these tokens. *line: of the spec; 0: memory ran
   out, so it is not known. NULL is allowed. 0: it does not, or tokens of its kind know nothing of each other.
 */
LATHE_API int lathe_spec_counts(const lathe_spec *spec, int *line);

/* Why a pass does not take an argument that other specs of the kind take, or the other pass: "states behind
   tokens have no backward pass; ..."; "" where it takes it, or nothing is known of the name. A constant. */
LATHE_API const char *lathe_spec_absent(const lathe_spec *spec, lathe_pass pass, const char *name);

/* The parameters of a spec: as it was loaded, and by default. */
typedef struct lathe_param_info {
    const char *name;
    double value;
    double default_value;
    int32_t is_integer;
    int32_t line; /* of the spec */
} lathe_param_info;
LATHE_API int lathe_spec_param(const lathe_spec *spec, int number, lathe_param_info *out);

/* Strings live as long as the spec. "causal"; "attention", "rowwise", "elementwise" or "linear_attention". */
LATHE_API const char *lathe_spec_name(const lathe_spec *spec);
LATHE_API const char *lathe_spec_kind(const lathe_spec *spec);

/* "sm_90a", or "host"; lives as long as the context. */
LATHE_API const char *lathe_ctx_arch(const lathe_ctx *ctx);

/* One CUDA file that nvcc compiles by itself: what `lathe gen` writes. arch: "sm_80", "sm_90a", ...; data
   pointers may be NULL. Errors: ARG, UNSUPPORTED (the reason of every template, a line each), MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_source(char **out, const lathe_spec *spec, lathe_pass pass,
                                                const char *arch, const lathe_arg *args, int n,
                                                lathe_error *err);
/* Which template serves a call, with which numbers, and why the others do not: lines for people, or, with
   json 1, one object of JSON. That no template serves it is said there, and is no error. Errors: ARG, MEMORY.
 */
LATHE_API LATHE_CHECK lathe_status lathe_explain(char **out, const lathe_spec *spec, lathe_pass pass,
                                                 const char *arch, const lathe_arg *args, int n, int json,
                                                 lathe_error *err);
/* What a report of a fault should tell: versions, devices, NVRTC, caches and settings of this machine, a line
   each; what is missing with its reason. What `lathe report` prints. Errors: ARG, MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_report(char **out, lathe_error *err);
/* Frees a text of these three; NULL is allowed. */
LATHE_API void lathe_text_free(char *text);

/* What a record of a proof is beside its verdict. */
typedef enum lathe_remark {
    LATHE_REMARK_NONE,
    LATHE_REMARK_WARNING, /* it has passed, and `note` is a warning: `lathe check` prints "warn" */
    LATHE_REMARK_UNSEEN   /* no proof: `note` says which side of a comparison no data took ("not seen") */
} lathe_remark;
/* One proof of `lathe check`. */
typedef struct lathe_proof {
    const char *name; /* "gradients", "online = whole row", "mask bounds", ... */
    int32_t applies;  /* 0: there is nothing to prove */
    int32_t passed;
    int32_t cut_short; /* 1: time ran out, and a part of it was left out */
    int32_t remark;    /* lathe_remark */
    double error;      /* the largest, relative; 0 where nothing is measured */
    double bound;
    int32_t line;    /* of the spec, where one is to blame; 0: none */
    int32_t refused; /* 1: it was not run to its end: the host device refused the spec, and `note` says why */
    const char *note; /* why, or a remark; "" */
} lathe_proof;
/* Called once for each proof; the record lives until it returns. */
typedef void lathe_proof_fn(void *user, const lathe_proof *proof);

/* Prove a spec sound on random data in double precision, which takes up to some seconds. That a proof fails
   is said to `fn` and is no error. Errors: ARG, MEMORY (it is neither proved nor refuted). */
LATHE_API LATHE_CHECK lathe_status lathe_prove(const lathe_spec *spec, unsigned seed, lathe_proof_fn *fn,
                                               void *user, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
