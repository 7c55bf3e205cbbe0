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
enum { ELEMENT_BYTES = 2, MAX_RANK = 5 };

struct tensor {
    void *data;
    int rank;
    bool taken;                    /* by TMA */
    uint64_t dim[MAX_RANK];        /* the innermost first */
    uint64_t stride[MAX_RANK - 1]; /* bytes, of dims 1 and on */
    uint32_t box[MAX_RANK];
};

/* The stride of a dim of one element is 0 in the block and never used; TMA wants a multiple of 16 there all
   the same. Other strides of 0, which the driver may take or not, are not given to it. */
static void add_dim(struct tensor *t, int64_t size, int64_t stride, int box)
{
    t->dim[t->rank] = (uint64_t)size;
    t->stride[t->rank - 1] = size > 1 ? ELEMENT_BYTES * (uint64_t)stride : 16;
    t->box[t->rank++] = (uint32_t)box;
    t->taken &= size <= 1 || lathe__tma_takes(ELEMENT_BYTES * stride);
}

/* False: the tensor is empty, and no kernel loads from it. */
static bool read_tensor(const struct tensor_map_row *row, const struct problem *problem,
                        const unsigned char *block, struct tensor *out)
{
    enum { BATCH, HEAD, TOKEN };
    int64_t stride[3];
    int64_t dim[4];
    int32_t pack = 1;
    memcpy((void *)&out->data, block + row->data, sizeof out->data);
    memcpy(stride, block + row->strides, sizeof stride);
    if (row->pack)
        memcpy(&pack, block + row->pack, sizeof pack);
    for (int i = 0; i < 4; i++) {
        dim[i] = problem->dim[row->dim[i]];
        if (dim[i] <= 0)
            return false;
    }
    out->rank = 1;
    out->taken = true;
    out->dim[0] = (uint64_t)dim[0];
    out->box[0] = (uint32_t)row->swizzle / ELEMENT_BYTES;
    if (row->pack)
        add_dim(out, pack, stride[HEAD], pack);
    add_dim(out, dim[1], stride[TOKEN], row->box_tokens / pack);
    add_dim(out, dim[2] / pack, stride[HEAD] * pack, 1);
    add_dim(out, dim[3], stride[BATCH], 1);
    return true;
}

static int encode(const struct driver *driver, const struct tensor_map_row *row, const struct tensor *t,
                  void *map)
{
    const uint32_t step[MAX_RANK] = {1, 1, 1, 1, 1};
    const int swizzle = row->swizzle == 128 ? SWIZZLE_128B : row->swizzle == 64 ? SWIZZLE_64B : SWIZZLE_32B;
    return driver->cuTensorMapEncodeTiled(map, row->dtype == LATHE_F16 ? TENSOR_F16 : TENSOR_BF16,
                                          (unsigned)t->rank, t->data, t->dim, t->stride, t->box, step, 0,
                                          swizzle, L2_256B, 0);
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
        if (!t.taken || encode(driver, row, &t, block + row->offset) != CU_SUCCESS)
            return lathe__fail(
                err, LATHE_ARG,
                "kernel %s: expected a tensor that TMA takes (strides of 16 to 2^40 bytes), given "
                "strides of %" PRIu64 ", %" PRIu64 " and %" PRIu64 " bytes; get a kernel for these arguments",
                launch->entry, t.stride[t.rank - 2], t.stride[t.rank - 3], t.stride[t.rank - 4]);
    }
    return LATHE_OK;
}
