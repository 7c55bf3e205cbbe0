/*
 * signature.h: the arguments of a pass of a spec.
 */
#ifndef LATHE_GEN_SIGNATURE_H
#define LATHE_GEN_SIGNATURE_H

#include "lathe_types.h"

#include <stdint.h>

struct signature;
struct ir;

/* What kernels of attention take, whatever the spec: head dims, in steps; of q and k, of which one template
   takes wider ones, and of v. */
enum {
    ATTENTION_LEAST_DIM = 16,
    ATTENTION_MOST_DIM = 256,
    ATTENTION_WIDEST_DIM = 576,
    ATTENTION_MOST_DV = 512,
    ATTENTION_DIM_STEP = 8
};
/* Elements of a row as kernels see it: one of another length is copied. */
static inline int attention_row(int64_t dim)
{
    return (int)((dim + ATTENTION_DIM_STEP - 1) / ATTENTION_DIM_STEP * ATTENTION_DIM_STEP);
}

/* The arguments of a pass of a spec, and the sizes of its calls. */
void signature_make(const struct ir *ir, lathe_pass pass, struct signature *out);

#endif
