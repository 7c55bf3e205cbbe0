/*
 * tensor.h: elements of tensors as doubles.
 */
#ifndef LATHE_GEN_TENSOR_H
#define LATHE_GEN_TENSOR_H

#include "runtime/recipe/bind.h"

/* Writes one element of a tensor (rounded to nearest even for f16, bf16). */
void tensor_set(const lathe_arg *t, const int64_t *index, double value);
/* Its elements in the order of rows, the last dim fastest, whatever the strides: how many, where one is, and
   its value, and all of them at once. */
int64_t tensor_count(const lathe_arg *t);
void tensor_index(const lathe_arg *t, int64_t number, int64_t *index);
double tensor_nth(const lathe_arg *t, int64_t number);
void tensor_set_all(const lathe_arg *t, const double *value);
static inline int64_t tensor_stride(const lathe_arg *t,
                                    int dim) /* in elements, also where strides are NULL */
{
    return lathe__tensor_stride(t, dim);
}
double dtype_load(lathe_dtype dtype, const void *data, int64_t element);
void dtype_store(lathe_dtype dtype, void *data, int64_t element, double value);
/* Is `got` what some value within `off` of `wanted` becomes in a dtype of 8 bits, whose steps are large? */
bool dtype_is_rounded(lathe_dtype dtype, double got, double wanted, double off);

#endif
