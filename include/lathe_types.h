/*
 * lathe_types.h: what a call of a kernel is made of: statuses, the error record, dtypes, arguments, streams.
 * Shared by lathe.h (specs and kernels at run time) and lathe_aot.h (kernels compiled ahead of time).
 */
#ifndef LATHE_TYPES_H
#define LATHE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch: 0.1.0 */
#define LATHE_VERSION        "0.1.0"

#if defined(__GNUC__)
#define LATHE_API   __attribute__((visibility("default")))
#define LATHE_CHECK __attribute__((warn_unused_result))
#else
#define LATHE_API
#define LATHE_CHECK
#endif

/* Values never change; new ones are added at the end. */
#define LATHE_STATUS_MAP(X)                                                                                  \
    X(OK, 0, "success")                                                                                      \
    X(SPEC, 1, "the spec is wrong")                                                                          \
    X(ARG, 2, "an argument is wrong")                                                                        \
    X(UNSUPPORTED, 3, "no template covers this spec and problem")                                            \
    X(COMPILE, 4, "device code did not compile")                                                             \
    X(CACHE, 5, "the kernel cache cannot be read or written")                                                \
    X(CUDA, 6, "a CUDA call failed")                                                                         \
    X(MEMORY, 7, "out of host memory")

typedef enum lathe_status {
#define LATHE_STATUS_ENUM(name, value, text) LATHE_##name = (value),
    LATHE_STATUS_MAP(LATHE_STATUS_ENUM)
#undef LATHE_STATUS_ENUM
} lathe_status;

typedef struct lathe_error { /* filled on failure; the caller's */
    lathe_status status;
    int line;        /* 1-based line in file, 0 where there is none */
    char file[256];  /* the spec or the generated text, "" where there is none */
    char text[2048]; /* a sentence; several, a line each, where a spec has several mistakes */
} lathe_error;

/* X(name, number, spelling in specs and problems, bytes). As DLPack's {code, bits}: F32 {2, 32},
   F16 {2, 16}, BF16 {4, 16}, I32 {0, 32}, U8 {1, 8}, F64 {2, 64}, F8_E4M3 {10, 8}, F8_E5M2 {12, 8}, I8 {0,
   8}. Numbers become the last three rounded to nearest, ties to even, and saturated: what is beyond the
   largest number, infinities too, becomes 448, 57344, 127 or -128. NaN stays NaN, but is 0 in I8. F8_E4M3 has
   no infinities (torch's float8_e4m3fn); those that F8_E5M2 has are read as such. */
#define LATHE_DTYPE_MAP(X)                                                                                   \
    X(NONE, 0, "none", 0)                                                                                    \
    X(F32, 1, "f32", 4)                                                                                      \
    X(F16, 2, "f16", 2)                                                                                      \
    X(BF16, 3, "bf16", 2)                                                                                    \
    X(I32, 4, "i32", 4)                                                                                      \
    X(U8, 5, "u8", 1)                                                                                        \
    X(F64, 6, "f64", 8)        /* host device only */                                                        \
    X(F8_E4M3, 7, "f8e4m3", 1) /* these three: q, k and v of a forward pass of attention, results of maps */ \
    X(F8_E5M2, 8, "f8e5m2", 1)                                                                               \
    X(I8, 9, "i8", 1)

typedef enum lathe_dtype {
#define LATHE_DTYPE_ENUM(name, value, text, bytes) LATHE_##name = (value),
    LATHE_DTYPE_MAP(LATHE_DTYPE_ENUM)
#undef LATHE_DTYPE_ENUM
} lathe_dtype;

/* COMBINE: parts of rows of attention, computed apart, become rows. */
typedef enum lathe_pass { LATHE_FORWARD = 0, LATHE_BACKWARD = 1, LATHE_COMBINE = 2 } lathe_pass;

/* lathe_options.deterministic: what a sequence gets has the same bits whatever else is in the batch. */
enum { LATHE_BATCH_INVARIANT = 2 };

/* A message of the library: level 0 is a warning, 1 progress ("compiling ..."), 2 detail. Called by whichever
   thread has called the library, perhaps by several at once. */
typedef void lathe_log_fn(void *user, int level, const char *text);

typedef struct CUstream_st
    *lathe_stream; /* the type of CUstream and cudaStream_t; NULL: the legacy default stream */

/*
 * One named argument. `shape` and `strides` have ndim entries, strides in elements (NULL: compact,
 * row-major), as in DLPack's DLTensor, so its fields can be copied over one by one. The last stride
 * of o, x, y and of gradients of q, k and v must be 1; of q, k, v and do it may be any, 0 included: they are
 * then copied in the workspace, as rows that do not start at multiples of 16 bytes are. `data` is a device
 * pointer (a host pointer on the host device); 16-byte aligned rows are fastest. A scalar input has ndim 0
 * and `data` points to its value in HOST memory, read during the call; a result of ndim 0, such as the
 * total() of a rowwise spec, and its seed lie in device memory. What is read is never written, though
 * `data` is not const.
 *
 * Arguments of attention (b batch, h query heads, h_kv key heads, h % h_kv == 0):
 *     q [b,h,q,d]  k [b,h_kv,kv,d]  v [b,h_kv,kv,d_v]  ->  o [b,h,q,d_v], optional lse [b,h,q] f32
 *     (of a spec with qk2 = true also q2 [b,h,q,d2] and k2 [b,h_kv,kv,d2], which q and k go on with)
 *     (and every other final of the spec, by its name), the spec's inputs by their names,
 *     and optionally q_start: an i32 scalar, the position of query row 0 among the keys (default:
 *     the keys in use less the queries, of each sequence: both end together). No result has an element in
 *     common with another tensor, in either pass.
 *     Sequences of their own lengths: cu_q, cu_kv i32 [seqs + 1] (packed: b = 1, tokens one behind the other)
 *     and used_kv i32 [seqs] (keys in use). With pages i32 [seqs, most], k [pool,h_kv,page,d] and
 *     v [pool,h_kv,page,d_v] are pools, of any strides, and key j of a sequence is row j % page of page
 *     pages[sequence][j / page]; a page has 1 to 256 keys, kv is most * page; dk and dv are such pools
 *     (specs/reference/sequences.md).
 *
 *     Forward, of an online function with a combine, a part of each row (some of its keys): in the place of o
 *     and the finals part_o [b,h,q,d_v] and part_rows [b,h,q,states+1], f32 (f64 beside f64), as they are
 *     ahead of online_fwd_epilogue and output_mod. part_o is o without its factor; part_rows has the row
 *     states of online_rowscales, by their names in alphabetical order, and 1, or 0 for a row without a live
 *     pair: the rest of it says nothing. Without kv_start at.kv starts at 0 in a part, so q_start has to be
 *     shifted.
 *
 *     Both passes, where a call has a part of all keys or heads (as one GPU of several has), take i32
 *     scalars: kv_start is the place of key 0 among len_kv keys, h_start the number of query head 0 among
 *     n_h heads; key heads follow. Positions, at.h and sizes of at are those of all; inputs over "kv", "h"
 *     and "h_kv" have all places. Gradients of inputs and dq are the share of this part: the caller adds
 *     them up. A backward pass of a part of the keys needs o and the finals of all. LATHE_COMBINE takes
 *     h_start and n_h.
 *     Keys in chunks, as of a cache that is shared out to several GPUs in turn, take kv_chunk and kv_step
 *     as well, i32 scalars: so many keys follow each other, and so many places lie from the first of them
 *     to the first of the next ones. Key i is then kv_start + i / kv_chunk * kv_step + i % kv_chunk.
 *
 *     k and v may have, each, a dtype of 8 bits (F8_E4M3, F8_E5M2, I8) beside q and o of another one: keys
 * and values are the numbers that are stored, and a spec multiplies them by scales that are its inputs
 *     (specs/reference/attention.md). Their gradients have the dtype of q. Of a forward pass q may have
 * F8_E4M3, too, where k and v have it; weights are then rounded to it.
 *
 * Arguments of LATHE_COMBINE (attention), which merges parts in any number and order:
 *     part_o [parts,b,h,q,d_v]  part_rows [parts,b,h,q,states+1]  ->  o, optional finals, as of one forward
 *     pass over all keys; o is f32 (f64 beside f64) or of 16 bits. Beside them those inputs of the spec that
 *     combine, online_fwd_epilogue or output_mod reads, and q_start where one of these reads at.q or at.pos.
 *     Terms of the epilogue, such as a sink, are applied here, once. Or, in the place of o and the finals, a
 *     part again: merged_o [b,h,q,d_v] and merged_rows [b,h,q,states+1], f32 (f64 beside f64), which have no
 *     element in common with a part that is read. So parts are merged as they come, in the memory of three;
 *     the arguments are the same, and what only ends a row is not read.
 *
 * Arguments of rowwise: x [..., n] -> y [..., n] with up to three leading dims, optional results by
 *     their names (rows [..., n], or one value per row: [...] f32), the spec's inputs, of which those read by
 *     row have the same leading dims.
 *
 * Arguments of elementwise: its operands and results by their names, of any strides; a result with an alias
 *     may be left out and is then written over that operand, whose elements lie apart in that case; the
 *     spec's inputs. A result has no element in common with another tensor, but that its alias may lie at the
 *     same address with the same strides. A result with a slot [slots, ...] is written where its i32 operand
 *     says, and kept elsewhere.
 *     With list = true every operand and result is an array of pointers to compact tensors, shape [tensors],
 *     in memory that the device reads (device, or pinned host memory; on the host device plain memory), and
 *     so is `lengths`, i32 [tensors]: their elements. A tensor that is written has no element in common with
 *     another one, but that a result may lie where its alias of the same number does; the host device looks.
 *
 * Arguments of linear_attention (h_k heads of q and k, h % h_k == 0; t tokens; seqs sequences, as many as b
 *     unless cu is given):
 *     q, k [b,h_k,t,d]  v [b,h,t,d_v]  ->  o [b,h,t,d_v], the spec's inputs by their names, and optionally
 *     state, state_out [seqs,h,d,d_v] f32 (or all states f16, or all bf16): before the first token that is
 *     read, and after the last (with reverse = true the last token of a sequence is read first);
 *     norm, norm_out [seqs,h,d] f32 beside them where the spec has normalise = true;
 *     cu i32 [seqs+1]: packed sequences, b = 1, of which o has nothing behind the last one;
 *     state_index i32 [seqs]: states are a pool, -1 skips a sequence;
 *     state_out_index i32 [seqs]: the slot that is written, where it is another one: -1 in state_index then
 *     begins without a state, -1 here is not kept;
 *     states [kept,h,d,d_v], norms [kept,h,d] and states_index i32 [b,t]: the state behind each token goes to
 *     its place in states, -1: nowhere. state_out or states may lie where state does, no other result may;
 *     neither is then written where another sequence begins.
 *
 * Arguments of LATHE_BACKWARD. Gradients of results are called seeds. "f32" is f64 beside f64 tensors.
 *     required    what the forward pass reads; the seed of its first result: do, dy
 *     optional    results that the forward pass kept: o and finals (attention), statistics (rowwise). What
 *                 is left out is recomputed. Seeds of other results, f32: dlse, d<name>; absent: 0
 *     results     each of them optional: dq, dk, dv, dx as their tensors; d<input> f32 for every input
 *                 declared with grad = true
 *     Attention: o and lse that are given are used as they are, also where they are of more keys than these.
 *     But where lse is above 4096 in size and agrees with these keys' own to 2^-20, relative, the digits that
 *     f32 has lost are recomputed. Without o or a final that the gradients need, with an output_mod, and
 *     where d_v is no multiple of 8, all are made anew from these keys.
 *     Elementwise: operands (those that no gradient reads may be left out), no results; d<result> for every
 *     result (where there are several, 0 where left out); d<operand> of the operand's shape, f32 where it is
 *     a sum.
 *     Linear attention: do, optionally dstate_out and dnorm_out; dq, dk, dv, dstate, dnorm, d<input>. Neither
 *     a pool of states nor results of the forward pass, but o where the spec gains by it.
 */
typedef struct lathe_arg {
    const char *name;
    void *data;
    lathe_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides;
} lathe_arg;

/* Texts are constants of the library. */
LATHE_API const char *lathe_version(void);               /* "0.1.0" */
LATHE_API const char *lathe_status_text(lathe_status s); /* never NULL */
LATHE_API const char *lathe_dtype_text(lathe_dtype d);   /* "bf16"; never NULL */
LATHE_API size_t lathe_dtype_size(lathe_dtype d);        /* bytes of one element */

#ifdef __cplusplus
}
#endif
#endif
