/*
 * emit_recipe.h: private to the recipe of linear attention's backward pass: what its launches and its
 * workspace know of each other.
 */
#ifndef LATHE_EMIT_LINEAR_RECIPE_H
#define LATHE_EMIT_LINEAR_RECIPE_H

#include "gen/base/text.h"
#include "gen/linear/backward.h"
#include "gen/linear/emit.h"

enum buffer_of { /* of the workspace; -1: there is none */
                 AGAIN_O,
                 DIVIDED,
                 ERRORS,
                 DX,
                 DQ_HEAD,
                 DK_HEAD,
                 DK_READ,
                 DLOG,
                 CHUNKS,
                 ENDS,
                 OWN,
                 SKIP,
                 READS,
                 WRITES,
                 BUFFERS_OF_ALL, /* the others are of kernels in chunks by mma.sync alone */
                 INVERSE = BUFFERS_OF_ALL,
                 STATES,
                 DSTATES,
                 WRITTEN,
                 DWRITTEN,
                 DIVIDED_OUT,
                 SUMS,
                 DBETA,
                 DV_PARTS,
                 NORMS,
                 DNORMS,
                 BUFFERS
};
struct recipe {
    struct emitter *e;
    const struct linear_back *b;
    const struct plan *plan;
    struct source *out;
    struct layout l;
    struct place given_dout;       /* do, as it is given */
    struct place dout;             /* what flows back to o: as given, or what an adjoint left */
    struct place divided;          /* that by the divisors of a normaliser */
    struct place result[TENSOR_O]; /* dq, dk, dv */
    struct place grad[TENSOR_O];   /* the same ahead of the adjoints of mods */
    int buffer[BUFFERS];
    int sum[MAX_INPUTS]; /* exact sums of gradients of inputs */
    bool declared_input[2];
};

/* ---- emit_backward_place.c: where everything lives */

/* Does an input's gradient have an exact sum for each element? */
bool linear_back_is_sum(const struct emitter *e, const struct linear_back *b, int input);
/* *p by a dim of an input, in tiles. */
void linear_back_times(struct product *p, const struct sig_dim *dim, int tile);
/* Do bwd_tokens or bwd_heads read dq and dk of a head of v once more? Else they go by a workspace only where
   heads share one of k. */
bool linear_back_keeps_heads(const struct recipe *r);
/* Does bwd_chunks write what inputs of the decay get? */
bool linear_back_gives(const struct ir *w, const struct plan *plan, const struct linear_back *b);
/* Does the adjoint of the output mod read what enters it, which has to be made again then? */
bool linear_back_reads_output(const struct ir *w, const struct linear_back *b);
/* Of gradients as they are given and ahead of adjoints; buffers; exact sums. */
void linear_back_place(struct recipe *r, struct back_runs *runs);

/* What `place` of a template puts together: so many bytes for each token of each head of v; a buffer of so
   many floats of that, if `has`; a buffer for each sequence and head; for each chunk of each head. */
enum { BACK_SLICE = 64 }; /* rows or columns of the state in a block of a kernel that goes by chunks */
struct product back_lines(int64_t bytes);
void back_place_tokens(struct recipe *r, bool has, enum buffer_of which, int floats);
void back_place_sequences(struct recipe *r, enum buffer_of which, int64_t bytes);
void back_place_chunks(struct recipe *r, enum buffer_of which, int64_t bytes);
/* DQ_HEAD, DK_HEAD: gradients of q and k for each head of v; grouped: only where heads share one of k. */
void back_place_heads(struct recipe *r, struct product bytes, bool grouped);
/* STATES, DSTATES: of each chunk the state in front of it, and the gradient of that behind it, in squares of
   BACK_SLICE by BACK_SLICE in 16 bits; in f16 each has 16 bytes for its scale. */
void back_place_states(struct recipe *r, int squares);

/* ---- emit_backward_launch.c: what `again` and `back` of a template put together */

/* Blocks for each head of each sequence; for each chunk of each head; for 64 tokens of each of `heads`. */
void back_of_heads(struct recipe *r, const char *role, int blocks, int threads, int smem_bytes);
void back_of_chunks(struct recipe *r, const char *role, int blocks, int threads, int smem_bytes);
void back_of_tokens(struct recipe *r, const char *role, enum sym heads, bool grouped);
/* The kernel of chunks of a template whose blocks share key channels and have bands of value channels, and
   the sums over bands. */
void back_of_bands(struct recipe *r, const char *role);
void back_by_token(struct recipe *r, const char *role, int slices); /* of heads, token by token */
enum { BACK_TOKEN_THREADS = 256 };
/* bwd_divisors, where there is a normaliser. */
void back_divisors(struct recipe *r);
/* Does the way back read o of the forward pass, or what its delta rule corrected by? */
bool back_wants_again(const struct recipe *r);
/* bwd_again, token by token, where it does: `again` of a template that makes nothing else again. */
void back_again(struct recipe *r);

#endif
