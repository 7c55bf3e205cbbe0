/*
 * lists.h: lists of tensors, as optimizers take them, on the host device.
 */
#ifndef LATHE_ELEMENTWISE_LISTS_H
#define LATHE_ELEMENTWISE_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "lathe_types.h"

struct tensor_list {
    const char *name;
    const lathe_arg *arg;  /* whose data is an array of pointers */
    const lathe_arg *over; /* the list in whose place it may be written, tensor by tensor; NULL: none */
    bool is_written;
};

/* Tensors of `length` elements: does one that is written lie in memory that another tensor of the call has?
 */
lathe_status check_tensor_lists(const struct tensor_list *list, int n_lists, const int32_t *length, int64_t n,
                                lathe_error *err);

#endif
