/*
 * npy.h: NumPy's .npy files (versions 1 to 3), read into and written from compact row-major arrays.
 *
 * Read: little-endian f4 f2 f8 i4 i8 u1 and bool, C or Fortran order, converted to the dtype that the caller
 * wants: floats among floats (rounded to nearest even), whole numbers among whole numbers (refused
 * where one does not fit) and to floats. NumPy has no bf16: an array of u2 or V2 (what ml_dtypes
 * saves) holds the bits of bf16 where bf16 is wanted, and is refused elsewhere. Nor has it float8: V1 (what
 * ml_dtypes saves) and u1 are bits where f8e4m3 or f8e5m2 is wanted; other numbers are rounded to them.
 * Written: f32 f16 i32 u8 f64 i8 as they are; bf16, f8e4m3 and f8e5m2 as f4, exact and readable everywhere.
 */
#ifndef LATHE_NPY_H
#define LATHE_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "lathe.h"

enum { NPY_MAX_DIMS = 8 };

struct npy {
    lathe_dtype dtype; /* of data: what the caller wanted */
    int ndim;
    int64_t shape[NPY_MAX_DIMS];
    int64_t count; /* elements */
    void *data;    /* compact, row-major, never NULL: npy_free */
};

/* Errors: ARG (a sentence that names the file and what is wrong with it), MEMORY. On failure *out is
   empty. `name` names the bytes in messages. */
lathe_status npy_parse(struct npy *out, const char *name, const void *bytes, size_t size, lathe_dtype wanted,
                       lathe_error *err);
lathe_status npy_read(struct npy *out, const char *path, lathe_dtype wanted, lathe_error *err);
void npy_free(struct npy *array);

/* `data` is compact and row-major. Errors: ARG: the file cannot be written. */
lathe_status npy_write(const char *path, lathe_dtype dtype, int ndim, const int64_t *shape, const void *data,
                       lathe_error *err);

#endif
