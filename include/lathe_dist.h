/*
 * lathe_dist.h: one problem over several ranks, each with a GPU and a part of the tokens or keys: attention
 * of any spec, and linear attention by its states. What a rank computes is an ordinary call whose masks,
 * scores, dropout and tables see the positions and heads of all (kv_start and h_start of lathe_types.h); what
 * lies between is copied, sent and merged here.
 *
 *     scheme    a rank has         what a rank sends                        what is served
 *     keys      all queries        parts: b q h (d_v + states + 1), f32     decoding over sharded caches
 *     heads     its own tokens     q, k, v, o but for its own share         every spec
 *     gather    its own tokens     k, v to all others                       specs that do not count rows
 *     ring      its own tokens     the same, beside computing               those with parts of rows
 *     states    its own tokens     a state and a transition [d,d]           linear attention
 *
 *     lathe_threads_create, lathe_nccl_open    ranks: threads of this process, or NCCL
 *     lathe_dist_create        a scheme, its kernels and its buffers for calls of these shapes
 *     lathe_dist_workspace_size, lathe_dist_launch, lathe_dist_destroy
 *     lathe_dist_info          which scheme it is, what it sends, and why
 *
 * Every rank makes the same calls in the same order with the same options, its own rank and its own tensors.
 * Tensors are named and shaped as of a call without ranks, but for these:
 *
 *     q, o, finals, do, dq     [b,h,q,..]: of the rank's own queries (keys: of all, the same everywhere)
 *     k, v, dk, dv             [b,h_kv,kv,..]: of the rank's own keys
 *     inputs of the spec       of all queries, keys and heads, the same everywhere; those of linear attention
 *                              with a place for each token "t": of the rank's own tokens
 *     d<input>                 shaped as the input: the share of this rank, 0 where it has none. The caller
 *                              adds up the shares, as of other parameters. Of own tokens: whole
 *     q_start                  of query row 0 of all among all keys; by default both end together
 *     used_kv, pages           of keys: those of the rank's own keys, beside a q_start (pages in the forward
 *                              pass alone). The first of them is behind all places of the ranks before, in
 *                              use or not, or, of interleaved shards, in the rank's first chunk. Not of
 *                              specs that read at.len_kv. A sequence without a key in use gives d<input>
 *                              nothing, where one rank counts what ends its rows, such as a sink. Of
 *                              heads: used_kv of all
 *     state, dstate_out        of linear attention: ahead of the first token of all and behind the last one,
 *                              the same everywhere
 *     state_out, dstate        behind the last and ahead of the first token of all, the same everywhere.
 *                              All ranks give, or ask for, one of these four, or none does: what nobody
 *                              asks for is not computed
 *
 * A rank may have no tokens, and all of its pairs may be masked. A backward pass takes o and the finals of
 * the forward pass where that of one rank takes them; ring and keys need them.
 *
 * Results are those of one rank within rounding: parts are merged, and shares of gradients added, in f32 (f64
 * beside f64), in the order of positions and ranks. So a scheme gives the same bits from run to run wherever
 * the engine adds in a fixed order, as threads do. Bit for bit those of one rank: o and finals of heads and
 * gather, on the host device always, on a GPU where the kernels of the parts take the same tiles. dk and dv
 * of gather and ring are sums of shares that have the dtype of dk and dv. A ring with most_bytes merges parts
 * in the order of its steps, so it may give other bits than one without.
 *
 * The rules of lathe.h hold. An object and its transport belong to one thread at a time, and its workspace to
 * one launch at a time. lathe_dist_launch enqueues, and on the host device waits for the other ranks. What it
 * reads of `args` in host memory it reads during the call.
 */
#ifndef LATHE_DIST_H
#define LATHE_DIST_H

#include "lathe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what carries bytes from rank to rank ----------------------------------------------------------- */

/* Functions that every rank calls in the same order; each enqueues on the stream, or waits. Sizes and places
   are in bytes, arrays have an entry for each rank, buffers lie in memory of the device. They return a
   status, with a sentence in *err. A transport of the caller's own fills all of it. */
typedef struct lathe_transport {
    void *user;
    int32_t rank, ranks;
    /* `from` of rank r, bytes[r] of them, to to + place[r] of every rank. */
    lathe_status (*all_gather)(void *user, void *to, const size_t *place, const size_t *bytes,
                               const void *from, lathe_stream stream, lathe_error *err);
    /* from + from_place[r], from_bytes[r] of them, to rank r, which has them at to + to_place[this rank]. */
    lathe_status (*all_to_all)(void *user, void *to, const size_t *to_place, const size_t *to_bytes,
                               const void *from, const size_t *from_place, const size_t *from_bytes,
                               lathe_stream stream, lathe_error *err);
    /* Send to one rank and receive from another, all ranks at once. */
    lathe_status (*exchange)(void *user, void *to, size_t to_bytes, int32_t from_rank, const void *from,
                             size_t from_bytes, int32_t to_rank, lathe_stream stream, lathe_error *err);
    /* Rank r gets the sums over all ranks of count[r] numbers, f32 or f64, that lie place[r] numbers behind
     * `from`. */
    lathe_status (*reduce_scatter)(void *user, void *to, const void *from, const size_t *place,
                                   const size_t *count, lathe_dtype dtype, lathe_stream stream,
                                   lathe_error *err);
    /* This rank gives up: calls of the others end, those under way too, with `why`, where the engine can
       carry a sentence. No call comes after it. */
    void (*fail)(void *user, lathe_status status, const char *why);
} lathe_transport;

/* Ranks that are threads of one process, with tensors in host memory: for tests, for programs on the host
   device. The group outlives its transports. A rank that fails breaks the group: waiting ranks return with
   that rank's sentence. Sums are added up in the order of the ranks. Errors: ARG (1 to LATHE_MOST_RANKS),
   MEMORY. */
enum { LATHE_MOST_RANKS = 256 };
typedef struct lathe_threads lathe_threads;
LATHE_API LATHE_CHECK lathe_status lathe_threads_create(lathe_threads **out, int32_t ranks, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_threads_rank(lathe_threads *threads, int32_t rank,
                                                      lathe_transport *out, lathe_error *err);
LATHE_API void lathe_threads_destroy(lathe_threads *threads);

/* NCCL, opened at run time: libnccl.so.2 that is loaded, on the loader's path, or of pip beside this library.
   One rank makes an id, which the program carries to the others; all open a communicator with it, with their
   CUDA device current, and wait for each other there. Or the caller has one (ncclComm_t): comm, else NULL,
   which stays the caller's. A rank that fails aborts the communicator, the caller's too, which is not to be
   destroyed then; the others see an error of NCCL's at their next call, and where they wait inside a kernel
   that never ends, ncclCommAbort by the caller or a time-out of the program ends it. An earlier version of
   the schemes has run over NCCL on two GPUs of one host; this one, and ranks that fail, with a stand-in for
   NCCL alone. Without NCCL every scheme of this version has run on a GPU: 4 and 8 ranks as threads that share
   one H200, within the bounds of one rank (lathe_gpu_tests --only ranks). Errors: ARG, CUDA (NCCL is missing,
   or says what is wrong), MEMORY. */
enum { LATHE_NCCL_ID_BYTES = 128 };
typedef struct lathe_nccl lathe_nccl;
LATHE_API LATHE_CHECK lathe_status lathe_nccl_id(void *id, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_nccl_open(lathe_nccl **out, const void *id, void *comm, int32_t rank,
                                                   int32_t ranks, lathe_error *err);
LATHE_API LATHE_CHECK lathe_status lathe_nccl_rank(lathe_nccl *nccl, lathe_transport *out, lathe_error *err);
LATHE_API void lathe_nccl_close(lathe_nccl *nccl);

/* ---- schemes ---------------------------------------------------------------------------------------- */

typedef enum lathe_scheme {
    LATHE_SCHEME_AUTO = 0, /* linear attention: states; whole_q: keys; else which of heads, gather and ring
                              sends least within most_bytes */
    LATHE_SCHEME_KEYS = 1,
    LATHE_SCHEME_HEADS = 2,
    LATHE_SCHEME_GATHER = 3,
    LATHE_SCHEME_RING = 4,
    LATHE_SCHEME_STATES = 5
} lathe_scheme;

typedef enum lathe_shards {
    LATHE_SHARDS_CONTIGUOUS = 0,  /* rank 0 has the first tokens, and so on */
    LATHE_SHARDS_INTERLEAVED = 2, /* keys: of chunks of options.interleave keys rank r has number r, r +
                                     ranks, r + 2 ranks, ..., one behind the other: a cache that grows by a
                                     token grows on all ranks in turn. The last chunk may have fewer keys */
    LATHE_SHARDS_ZIGZAG = 1 /* of 2 ranks pieces of one length rank r has number r, then 2 ranks - 1 - r: work
                               of a causal mask is then even. All ranks have as many tokens, an even number */
} lathe_shards;

/* Zero is the default of every field. What a scheme has no use for is left alone, but for parallel_states,
   which is refused. Errors are those of lathe_dist_create: ARG (a value out of its range), UNSUPPORTED. */
typedef struct lathe_dist_options {
    lathe_scheme scheme;
    lathe_shards shards;
    const int64_t
        *q_tokens;            /* [ranks]: queries of each rank, 0 or more, fewer than 2^31 in all; NULL: all
                                 have as many as this one. Copied. With whole_q = 1: all queries, of every rank */
    const int64_t *kv_tokens; /* [ranks]: the same of keys, or of tokens of linear attention */
    int32_t whole_q; /* 1: every rank has all queries, as in decoding: what AUTO asks, and what keys needs */
    int32_t heads_at_once; /* gather: key heads that are gathered at a time, which bounds its buffers; 0: all
                              of them, or half of them beside a comm_stream */
    size_t most_bytes; /* bytes that lathe_dist_workspace_size should not be above; 0: any. AUTO: no scheme
                          that needs more, where another needs less. Ring, forward: where parts of rows, one
                          for each piece of keys, would need more, there is room for three, which are merged
                          as they come; that is as many bytes of traffic again */
    lathe_stream comm_stream; /* on a GPU: the stream on which ring, gather and heads send and receive while
                                 the stream of the launch computes: of ring the keys of the next rank, of
                                 gather those of the next heads_at_once, of heads what the second half of a
                                 rank's heads needs. NULL, on all ranks or on none: all of it on the stream of
                                 the launch. It must not wait for that one by itself, as a blocking stream
                                 does for the default stream. Give it a higher priority: kernels that fill the
                                 GPU otherwise leave those that send no place until they end */
    lathe_stream second_compute_stream; /* on a GPU, forward pass of ring and gather: every other call of a
                                           rank (pieces of zigzag shards, groups of heads) runs here, and its
                                           first tiles fill what the last ones of the call before leave idle.
                                           A stream like comm_stream, of the launch's priority. It takes the
                                           workspace of a kernel once more. NULL: none */
    int32_t parallel_states; /* states, forward. 0: a rank computes its o when the ranks ahead have left their
                                states. 1: no rank waits. One call with d + d_v value channels, at most 256,
                                from a state of 0 beside the unit matrix, leaves o0 [b,h,t,d_v] and r
                                [b,h,t,d] of each token, and B [b,h,d,d_v] and T [b,h,d,d] of all of them: o
                                = o0 + r S, S behind = B + T S. One all-gather of B and T, and each rank has
                                its S. o0 and r are rounded to the dtype of o before they are added.
                                UNSUPPORTED: f16, whose r would be below its range where gates are strong;
                                specs whose o is no such sum; other schemes; the backward pass */
    int32_t interleave;      /* LATHE_SHARDS_INTERLEAVED: keys of a chunk, 1 or more; else 0 */
} lathe_dist_options;

typedef struct lathe_dist lathe_dist;

/* Choose a scheme, get its kernels, lay out its buffers. pass: LATHE_FORWARD or LATHE_BACKWARD. args: as of
   lathe_kernel_get; data pointers may be NULL. Launches have these shapes; scalars may change. transport:
   copied; NULL functions make an object that only tells what it would do (lathe_dist_info). No rank is waited
   for, but a rank that fails here says so to the others. Errors: ARG, UNSUPPORTED (why, and which scheme
   serves instead), COMPILE, CUDA, MEMORY. */
LATHE_API LATHE_CHECK lathe_status lathe_dist_create(lathe_dist **out, lathe_ctx *ctx, const lathe_spec *spec,
                                                     lathe_pass pass, const lathe_transport *transport,
                                                     const lathe_dist_options *options, const lathe_arg *args,
                                                     int n, lathe_error *err);
LATHE_API void lathe_dist_destroy(lathe_dist *dist);

/* Bytes of device memory that lathe_dist_launch takes, 256-byte aligned; 0 of NULL. */
LATHE_API size_t lathe_dist_workspace_size(const lathe_dist *dist);

/* Lines for people: the scheme and why, what a launch sends and keeps. Lives as long as the object; "" of
 * NULL. */
LATHE_API const char *lathe_dist_info(const lathe_dist *dist);

/* Errors: ARG (an argument; another shape than the object was made for), CUDA, and what another rank said
   when it failed, with its status. Behind an error the transport is of no more use. */
LATHE_API LATHE_CHECK lathe_status lathe_dist_launch(lathe_dist *dist, const lathe_arg *args, int n,
                                                     void *workspace, lathe_stream stream, lathe_error *err);

#ifdef __cplusplus
}
#endif
#endif
