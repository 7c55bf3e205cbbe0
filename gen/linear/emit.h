/*
 * emit.h: private to the emitters of linear attention.
 */
#ifndef LATHE_EMIT_LINEAR_H
#define LATHE_EMIT_LINEAR_H

#include "gen/emit/emit.h"

struct linear_back;
struct plan;
struct text_buf;

/* In the order of enum mod. */
enum { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O, TENSOR_COUNT };

struct functions { /* of the recurrence, and the values that are kept for a head or a token */
    struct emitter *e;
    struct field_set head;
    struct field_set row;
};
/* emit_functions.c. `more`: roots beside those of the functions. */
bool linear_collect(struct functions *f, const int *more, int n_more);
void emit_linear_functions(struct functions *f);
void emit_linear_scope(struct functions *f); /* names for what is at hand in a function of head and row */

/* ---- emit_launch.c: parameter structs into e->out, launches and buffers into out */

struct place { /* where a tensor of [b, heads, t, dim] lives */
    int arg;   /* signature argument, or -1: */
    int buffer;
    enum sym heads;
    int dim;
};
struct layout {
    bool moved[TENSOR_COUNT];    /* through the workspace: by a mod, or because rows are not aligned */
    bool prepared[TENSOR_COUNT]; /* of which: by a kernel ahead of chunks, forward where tokens are many */
    struct place outer[TENSOR_COUNT]; /* the arguments */
    struct place inner[TENSOR_COUNT]; /* what the kernel reads and writes */
};
void linear_layout(struct emitter *e, struct layout *l, int n, struct source *out); /* of the first n */
void linear_pointer(struct params *p, const char *type, const char *name, const struct place *t);
void linear_strides(struct params *p, const char *name, const struct place *t);
void linear_element_step(struct params *p, const char *name, const struct place *t);
void linear_to_workspace(struct place *t, int element_bytes, const struct emitter *e, struct source *out);
bool linear_has_unaligned_rows(const struct emitter *e);
void linear_add_mod(struct emitter *e, const struct layout *l, int t, struct source *out);
/* Their struct, where files name it and none may be launched. */
void linear_declare_mod(struct emitter *e, const struct layout *l);
/* Where a kernel ahead of chunks reads q or k anyway, it applies its mod, too. */
void linear_choose_prepared(const struct emitter *e, const struct plan *plan, struct layout *l);
/* given_q or given_k: as it was given, where it is prepared. */
void linear_given(struct params *p, const struct layout *l, int t);
void linear_index(struct params *p, const struct emitter *e, const char *name);
/* The same of a state, or a gradient of one, that may be in a slot of a pool; which state a sequence has in
   the forward pass, where it may be read from one slot and written to another; and the header of that, ahead
   of all structs. */
void linear_state_of_slot(struct params *p, const struct emitter *e, const char *prefix, const char *name,
                          int dims);
void linear_slots(struct params *p, const struct emitter *e);
void linear_kept(struct params *p, const struct emitter *e); /* states behind tokens, where there are any */
void linear_include_slots(struct emitter *e);
/* `scale` for each chunk of each of these heads, as chunk_number of linear/chunk.cuh counts them. */
struct product linear_chunks(const struct emitter *e, int64_t scale, enum sym heads);
/* What `launches` of a template of a forward pass puts together: buffers first, then kernels. */
enum { LINEAR_FEW = 16 }; /* tokens that are taken one by one where others are taken by chunks */
struct forward {
    struct emitter *e;
    const struct layout *l;
    const struct plan *plan;
    struct source *out;
    int ahead; /* buffers: what is made ahead of chunks, what pieces add to the state; -1: there is none */
    int parts;
    int tells; /* and how much each chunk shrinks a state, and where pieces of a head begin by that */
    int cuts;
    int inside; /* of each sequence: whether states are kept that its chunks do not leave */
    int pieces; /* of a sequence, in the next launch */
};
void forward_place_ahead(struct forward *f); /* chunk_bytes for each chunk of each head */
void forward_place_parts(struct forward *f);
void forward_place_cuts(struct forward *f); /* of few long sequences that gates may cut in runs */
/* A kernel of the recurrence, of so many blocks for each head and sequence. */
struct launch *forward_kernel(struct forward *f, const char *role, int slices);
void forward_only_where(struct launch *launch, enum sym size, int32_t least, int32_t most);
void forward_few(
    struct forward *f); /* token by token, where tokens are few, or chunks leave no wanted state */
/* Where they are more: a block for each chunk, ahead of what goes along them; */
void forward_ahead(struct forward *f, const char *role);
/* blocks that go along the chunks of a piece of few long sequences; */
struct launch *forward_of_pieces(struct forward *f, const char *role, int slices);
void forward_chunks(struct forward *f);          /* or of a whole sequence. */
bool linear_is_prepared(const struct layout *l); /* q or k: by the kernel ahead */
/* moved[m]: the tensor of mod m goes through the workspace. */
void emit_linear_launches(struct emitter *e, const struct plan *plan, struct source *out,
                          bool moved[MOD_COUNT]);

/* ---- updates.c: where a token is several steps of the recurrence; else these do nothing. Kernels see each
   step as a token: of a tensor that is of tokens they get a copy with a row for each step, and what they
   leave for o and gradients is of steps. Where a token makes several updates those are q, o and their
   gradients; where several heads of q read a state, all: heads of q and o become rows. */

/* Where sequences begin among all steps: e->starts. */
void updates_starts(struct emitter *e, struct source *out);
/* *at, an argument (TENSOR_O: do), becomes a copy of it; */
void updates_spread(struct emitter *e, int t, struct place *at, struct source *out);
/* *at, a result (o, or the gradient of another), becomes a place of steps in the workspace, */
void updates_leave(struct emitter *e, int t, struct place *at, struct source *out);
/* from which what is of tokens is taken. */
void updates_gather(struct emitter *e, int t, const struct place *from, const struct place *to,
                    struct source *out);
/* At the end of a recipe: its tokens are steps, but where a product says `times` itself. */
void updates_count(const struct emitter *e, struct source *out);

/* ---- emit_backward.c: the whole variant of a backward pass, emit_backward_launch.c: its launches */

bool emit_linear_backward(struct emitter *e, struct linear_back *b, const struct plan *plan,
                          struct text_buf *config, struct source *out);
struct back_runs { /* which kernels there are */
    bool moved[TENSOR_COUNT];
    bool mod[MOD_COUNT]; /* adjoints */
    /* Of which those of q and k by bwd_chunks. */
    bool in_chunks[MOD_COUNT];
};
void emit_linear_back_launches(struct emitter *e, const struct linear_back *b, const struct plan *plan,
                               struct source *out, struct back_runs *runs);
/* struct grads, and of what type the gradient of an input is on the way. */
void emit_linear_grads(struct emitter *e, const struct linear_back *b);
#endif
