/*
 * sign.h: how the sign.c of a kind appends arguments to a signature. Where there is no room for one more,
 * which rules of the model exclude, functions that return it return NULL.
 */
#ifndef LATHE_GEN_SIGN_H
#define LATHE_GEN_SIGN_H

#include "gen/arguments/signature.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/recipe.h"

enum { SIZE_POSITIONS = 1 << 24 }; /* integers below it are exact in f32 */
/* d and d_v, which kernels are made for. */
#define SIGN_HEAD_DIMS(most_d, most_d_v, every)                                                              \
    {.sym = SYM_D,                                                                                           \
     .same_as = SYM_D_V,                                                                                     \
     .usual = 128,                                                                                           \
     .built = true,                                                                                          \
     .positive = true,                                                                                       \
     .least = ATTENTION_LEAST_DIM,                                                                           \
     .most = (most_d),                                                                                       \
     .step = (every)},                                                                                       \
    {                                                                                                        \
        .sym = SYM_D_V, .same_as = SYM_D, .built = true, .positive = true, .least = ATTENTION_LEAST_DIM,     \
        .most = (most_d_v), .step = (every)                                                                  \
    }
/* Each batch is a sequence, but where the argument with the number `cu` says otherwise. */
#define SIGN_SEQUENCES(cu)                                                                                   \
    {                                                                                                        \
        .sym = SYM_SEQS, .same_as = SYM_B, .tied = true, .by = (cu), .usual = 4, .implied = true,            \
        .counted = true                                                                                      \
    }
/* Appends the sizes of a kind. */
void sign_sizes(struct signature *s, const struct sig_size *size, int n);
/* Appends the dims that inputs name for themselves, each like *size, whose `sym` says nothing. */
void sign_free_sizes(struct signature *s, const struct sig_size *size);
struct sig_arg *sign_add(struct signature *s, enum arg_role role, const char *prefix, const char *name);
/* Where keys (SYM_ALL_KV) or heads (SYM_ALL_H) that are a part of all begin, and how many all are. */
void sign_places(struct signature *s, enum sym all, const char *start, const char *total);
/* Chunks of keys that lie apart. */
void sign_chunks(struct signature *s);
/* One that few calls have. */
struct sig_arg *sign_rare(struct signature *s, enum arg_role role, const char *name, lathe_dtype dtype);
void sign_dims(struct sig_arg *a, const enum sym *syms, int n);
/* The n dims of a tensor of rows: 4 with its columns, 3 without, which may run along an inner dim. */
void sign_row_dims(struct sig_arg *a, const struct ir *ir, int n);
/* A tensor whose dtype is that of its role, and whose last dim is contiguous. */
struct sig_arg *sign_main(struct signature *s, enum arg_role role, enum dtype_role dtype, const char *name,
                          const enum sym *syms, int n);
void sign_input(struct signature *s, const struct ir *ir, const struct input *in);
void sign_inputs(struct signature *s, const struct ir *ir);
void sign_input_gradients(struct signature *s, const struct ir *ir);
/* Last: whether an optional argument is there is compiled in. A backward pass has code for what is given and
   wanted alone: an absent seed is no zero to add, and a gradient that nobody takes is not computed. */
void sign_presence_built(struct signature *s);

#endif
