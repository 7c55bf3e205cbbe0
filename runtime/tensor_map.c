/*
 * tensor_map.c: tensor maps of a launch, for TMA. In: rows of a recipe, and a parameter block whose other
 * fields are filled. Out: 128 bytes of the block for each row, as the driver encodes them; nothing to free. A
 * pure function of the block and the problem's sizes; the driver looks at no memory for it.
 */
#include <inttypes.h>
#include <string.h>

#include "rt.h"

/* Of cuda.h. */
enum { TENSOR_F16 = 6, TENSOR_BF16 = 9, SWIZZLE_32B = 1, SWIZZLE_64B = 2, SWIZZLE_128B = 3, L2_256B = 3 };
enum { ELEMENT_BYTES = 2, RANK = 4 };

struct tensor {
    void *data;
    uint64_t dim[RANK];        /* the innermost first */
    uint64_t stride[RANK - 1]; /* bytes, of dims 1 to 3 */
};

/* False: the tensor is empty, and no kernel loads from it. The stride of a dim of one element is 0 in the
   block and never used; TMA wants a multiple of 16 there all the same. */
static bool read_tensor(const struct tensor_map_row *row, const struct problem *problem,
                        const unsigned char *block, struct tensor *out)
{
    int64_t stride[RANK - 1];
    memcpy((void *)&out->data, block + row->data, sizeof out->data);
    memcpy(stride, block + row->strides, sizeof stride);
    for (int i = 0; i < RANK; i++) {
        const int64_t dim = problem->dim[row->dim[i]];
        if (dim <= 0)
            return false;
        out->dim[i] = (uint64_t)dim;
        if (i > 0)
            out->stride[i - 1] = dim > 1 ? ELEMENT_BYTES * (uint64_t)stride[RANK - 1 - i] : 16;
    }
    return true;
}

static int encode(const struct driver *driver, const struct tensor_map_row *row, const struct tensor *t,
                  void *map)
{
    const uint32_t box[RANK] = {(uint32_t)row->swizzle / ELEMENT_BYTES, row->box_tokens, 1, 1};
    const uint32_t step[RANK] = {1, 1, 1, 1};
    const int swizzle = row->swizzle == 128 ? SWIZZLE_128B : row->swizzle == 64 ? SWIZZLE_64B : SWIZZLE_32B;
    return driver->cuTensorMapEncodeTiled(map, row->dtype == LATHE_F16 ? TENSOR_F16 : TENSOR_BF16, RANK,
                                          t->data, t->dim, t->stride, box, step, 0, swizzle, L2_256B, 0);
}

lathe_status lathe__maps_fill(const struct driver *driver, const struct launch *launch,
                              const struct problem *problem, unsigned char *block, lathe_error *err)
{
    for (int i = 0; i < launch->n_maps; i++) {
        const struct tensor_map_row *row = &launch->map[i];
        struct tensor t;
        if (!driver->cuTensorMapEncodeTiled)
            return lathe__fail(err, LATHE_CUDA,
                               "the CUDA driver has no cuTensorMapEncodeTiled, which kernel %s needs",
                               launch->entry);
        if (!read_tensor(row, problem, block, &t))
            continue;
        if (encode(driver, row, &t, block + row->offset) != CU_SUCCESS)
            return lathe__fail(
                err, LATHE_ARG,
                "kernel %s: expected a tensor that TMA takes (strides of 16 to 2^40 bytes), given "
                "strides of %" PRIu64 ", %" PRIu64 " and %" PRIu64 " bytes",
                launch->entry, t.stride[2], t.stride[1], t.stride[0]);
    }
    return LATHE_OK;
}
