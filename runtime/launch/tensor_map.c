/*
 * tensor_map.c: tensor maps of a launch, for TMA. In: rows of a recipe, and a parameter block whose other
 * fields are filled. Out: 128 bytes of the block for each row, as the driver encodes them; nothing to free. A
 * function of the block and the problem's sizes alone; the driver looks at no memory for it.
 *
 * A map that was encoded once is kept in a slot of the module, and serves every later launch with the same
 * sizes, strides and box: the driver then only puts another address into a copy. Slots are read and
 * written without a lock: `version` is odd while one is written, and a reader that sees two versions takes
 * nothing from it.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/tensor_map.h"
#include "runtime/recipe/bind.h"

/* Of cuda.h. */
enum {
    TENSOR_U16 = 1,
    TENSOR_F16 = 6,
    TENSOR_BF16 = 9,
    SWIZZLE_32B = 1,
    SWIZZLE_64B = 2,
    SWIZZLE_128B = 3,
    L2_256B = 3
};
/* Of a map: two numbers of 8 bits are one element. */
enum { ELEMENT_BYTES = 2, MAX_RANK = 5, KEY_WORDS = 2 * MAX_RANK, MAP_WORDS = TENSOR_MAP_BYTES / 8 };
enum { BATCH, HEAD, TOKEN }; /* strides in the block */

struct tensor {
    void *data;
    int rank;
    int number_bytes;              /* strides in the block count numbers */
    bool taken;                    /* by TMA */
    uint64_t dim[MAX_RANK];        /* the innermost first */
    uint64_t stride[MAX_RANK - 1]; /* bytes, of dims 1 and on */
    uint32_t box[MAX_RANK];
    uint64_t given[3]; /* strides in bytes, for messages */
};

struct map_slot {
    _Atomic uint64_t version;
    _Atomic uint64_t key[KEY_WORDS]; /* dims and strides of the tensor, and the box; of no tensor: all 0 */
    _Atomic uint64_t map[MAP_WORDS];
};

/* The stride of a dim of one element is 0 in the block and never used; TMA wants a multiple of 16 there all
   the same. Other strides of 0, which the driver may take or not, are not given to it. */
static void add_dim(struct tensor *t, int64_t size, int64_t stride, int box)
{
    t->dim[t->rank] = (uint64_t)size;
    t->stride[t->rank - 1] = size > 1 ? (uint64_t)t->number_bytes * (uint64_t)stride : 16;
    t->box[t->rank++] = (uint32_t)box;
    t->taken &= size <= 1 || lathe__tma_takes(t->number_bytes * stride);
}

/* Of sequences, whose tokens are all counted together: runtime/recipe/recipe.h. */
static void add_ragged_dims(struct tensor *t, const int64_t dim[3], const int64_t stride[3], int box)
{
    const int64_t step = lathe__token_stride(stride[TOKEN]);
    const int64_t apart = dim[2] > 1 ? stride[BATCH] / step : 0;
    add_dim(t, RAGGED_ROWS, step, box);
    add_dim(t, dim[1], stride[HEAD], 1);
    add_dim(t, RAGGED_ROWS + 1, step, 1);
    add_dim(t, RAGGED_ROWS + 1, ((int64_t)1 << 34) - step, 1);
    t->taken &= dim[0] == 1 || stride[TOKEN] != 0;
    t->taken &= dim[2] == 1 || (apart > 0 && stride[BATCH] % step == 0);
    t->taken &= lathe__tma_counts(dim[0], apart, dim[2]);
}

/* False: the tensor is empty, and no kernel loads from it. */
static bool read_tensor(const struct tensor_map_row *row, const struct problem *problem,
                        const unsigned char *block, struct tensor *out)
{
    int64_t stride[3];
    int64_t dim[3];
    int32_t pack = 1;
    out->number_bytes = (int)lathe_dtype_size((lathe_dtype)row->dtype);
    memcpy((void *)&out->data, block + row->data, sizeof out->data);
    memcpy(stride, block + row->strides, sizeof stride);
    if (row->pack)
        memcpy(&pack, block + row->pack, sizeof pack);
    for (int i = 0; i < 3; i++) {
        dim[i] = problem->dim[row->dim[i]];
        out->given[i] = (uint64_t)out->number_bytes * (uint64_t)stride[i];
        if (dim[i] <= 0)
            return false;
    }
    out->rank = 1;
    out->taken = true;
    out->dim[0] = (uint64_t)(row->columns * out->number_bytes / ELEMENT_BYTES);
    out->box[0] = (uint32_t)row->swizzle / ELEMENT_BYTES;
    if (row->packed) {
        const bool pages = row->dim[0] == SYM_PAGE;
        add_ragged_dims(out, dim, stride, pages ? lathe__page_box(dim[0], row->box_tokens) : row->box_tokens);
        out->taken &= !pages || lathe__tma_takes_page(dim[0]);
        return true;
    }
    if (row->pack)
        add_dim(out, pack, stride[HEAD], pack);
    add_dim(out, dim[0], stride[TOKEN], row->box_tokens / pack);
    add_dim(out, dim[1] / pack, stride[HEAD] * pack, 1);
    add_dim(out, dim[2], stride[BATCH], 1);
    return true;
}

static int encode(const struct driver *driver, const struct tensor_map_row *row, const struct tensor *t,
                  void *map)
{
    const uint32_t step[MAX_RANK] = {1, 1, 1, 1, 1};
    const int swizzle = row->swizzle == 128 ? SWIZZLE_128B : row->swizzle == 64 ? SWIZZLE_64B : SWIZZLE_32B;
    const int type = t->number_bytes == 1 ? TENSOR_U16 : row->dtype == LATHE_F16 ? TENSOR_F16 : TENSOR_BF16;
    return driver->cuTensorMapEncodeTiled(map, type, (unsigned)t->rank, t->data, t->dim, t->stride, t->box,
                                          step, 0, swizzle, L2_256B, 0);
}

/* ---- maps that were encoded before ----------------------------------------------------------------- */

lathe_status lathe__map_slots(struct map_slot **out, int n, lathe_error *err)
{
    *out = n > 0 ? calloc((size_t)n, sizeof **out) : NULL;
    return n > 0 && !*out ? lathe__fail_memory(err) : LATHE_OK;
}

/* What a slot's map depends on, beside the recipe: of pages the box, too, since their dims and strides may be
   the same whatever their size. */
static void key_of(const struct tensor *t, uint64_t key[KEY_WORDS])
{
    memcpy(key, t->dim, sizeof t->dim);
    memcpy(key + MAX_RANK, t->stride, sizeof t->stride);
    key[KEY_WORDS - 1] = (uint64_t)t->box[1] << 32 | t->box[2];
}

/* False: the slot has another tensor's map, or is being written. */
static bool read_slot(const struct map_slot *slot, const uint64_t key[KEY_WORDS], uint64_t map[MAP_WORDS])
{
    const uint64_t version = atomic_load_explicit(&slot->version, memory_order_acquire);
    bool same = version % 2 == 0;
    for (int i = 0; i < KEY_WORDS; i++)
        same &= atomic_load_explicit(&slot->key[i], memory_order_acquire) == key[i];
    for (int i = 0; i < MAP_WORDS; i++)
        map[i] = atomic_load_explicit(&slot->map[i], memory_order_acquire);
    return same && atomic_load_explicit(&slot->version, memory_order_relaxed) == version;
}

/* Who comes while another thread writes has no need to. */
static void write_slot(struct map_slot *slot, const uint64_t key[KEY_WORDS], const uint64_t map[MAP_WORDS])
{
    uint64_t version = atomic_load_explicit(&slot->version, memory_order_relaxed);
    if (version % 2 != 0 || !atomic_compare_exchange_strong(&slot->version, &version, version + 1))
        return;
    for (int i = 0; i < KEY_WORDS; i++)
        atomic_store_explicit(&slot->key[i], key[i], memory_order_release);
    for (int i = 0; i < MAP_WORDS; i++)
        atomic_store_explicit(&slot->map[i], map[i], memory_order_release);
    atomic_store_explicit(&slot->version, version + 2, memory_order_release);
}

/* slot NULL, or a driver that cannot exchange the address of a map: it is encoded every time. */
static int make_map(const struct driver *driver, const struct tensor_map_row *row, const struct tensor *t,
                    struct map_slot *slot, void *map)
{
    uint64_t key[KEY_WORDS];
    uint64_t words[MAP_WORDS];
    if (!slot || !driver->cuTensorMapReplaceAddress)
        return encode(driver, row, t, map);
    key_of(t, key);
    if (read_slot(slot, key, words)) {
        memcpy(map, words, sizeof words);
        return driver->cuTensorMapReplaceAddress(map, t->data);
    }
    const int result = encode(driver, row, t, map);
    memcpy(words, map, sizeof words);
    if (result == CU_SUCCESS)
        write_slot(slot, key, words);
    return result;
}

lathe_status lathe__maps_fill(const struct driver *driver, const struct launch *launch,
                              const struct problem *problem, struct map_slot *slots, unsigned char *block,
                              lathe_error *err)
{
    for (int i = 0; i < launch->n_maps; i++) {
        const struct tensor_map_row *row = &launch->map[i];
        struct tensor t = {.rank = 0};
        if (!driver->cuTensorMapEncodeTiled)
            return lathe__fail(err, LATHE_CUDA,
                               "the CUDA driver has no cuTensorMapEncodeTiled, which kernel %s needs",
                               launch->entry);
        if (!read_tensor(row, problem, block, &t))
            continue;
        if (!t.taken ||
            make_map(driver, row, &t, slots ? &slots[i] : NULL, block + row->offset) != CU_SUCCESS)
            return lathe__fail(
                err, LATHE_ARG,
                "kernel %s: expected a tensor that TMA takes (strides of 16 to 2^40 bytes, at most 2^30 "
                "tokens of sequences, which lie whole tokens apart, pages of 16, 32, 64, 128 or 256 keys), "
                "given strides of %" PRIu64 ", %" PRIu64 " and %" PRIu64
                " bytes; get a kernel for these arguments",
                launch->entry, t.given[BATCH], t.given[HEAD], t.given[TOKEN]);
    }
    return LATHE_OK;
}
