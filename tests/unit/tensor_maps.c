/*
 * tensor_maps.c: tensor maps of a recipe, made by an encoder that leaves what it was asked for; encoded once
 * for sizes that come again, from many threads; query heads that share a tile. No GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "runtime/rt.h"

static _Alignas(256) char memory[8192];

static struct problem make_problem(void)
{
    struct problem p = {.dtype = {LATHE_BF16}};
    for (int i = 0; i < SYM_COUNT; i++)
        p.dim[i] = -1;
    p.dim[SYM_B] = 2;
    p.dim[SYM_H] = 4;
    p.dim[SYM_H_KV] = 4;
    p.dim[SYM_Q] = 300;
    p.dim[SYM_KV] = 1000;
    p.dim[SYM_D] = 64;
    return p;
}

struct map_block { /* as attention/fwd_sm90.cuh lays it out, with one map */
    _Alignas(64) uint64_t map[16];
    void *q;
    int64_t stride[3];
    int32_t pack;
};

/* A kernel with a map of q: boxes of so many tokens, and 64 channels. */
static struct launch launch_of(int box_tokens, int swizzle)
{
    struct launch l = {.entry = "fwd", .n_maps = 1};
    l.map[0] = (struct tensor_map_row){.data = offsetof(struct map_block, q),
                                       .strides = offsetof(struct map_block, stride),
                                       .columns = 64,
                                       .dim = {SYM_Q, SYM_H, SYM_B},
                                       .dtype = LATHE_BF16,
                                       .swizzle = (uint8_t)swizzle,
                                       .box_tokens = (uint16_t)box_tokens};
    return l;
}

static int pretend_result;

/* Leaves what it was asked for where the map would be. */
static int pretend_encode(void *map, int type, unsigned rank, void *data, const uint64_t *dim,
                          const uint64_t *stride, const uint32_t *box, const uint32_t *step, int interleave,
                          int swizzle, int l2, int fill_kind)
{
    uint64_t *out = map;
    CHECK(rank == 4 || rank == 5);
    for (unsigned i = 0; i < rank; i++)
        CHECK_EQ(step[i], 1);
    CHECK_EQ(interleave + fill_kind, 0);
    CHECK(l2 > 0);
    CHECK(data == memory);
    for (unsigned i = 0; i < rank; i++)
        out[i] = dim[i];
    for (unsigned i = 0; i < rank - 1; i++)
        out[rank + i] = stride[i];
    out[2 * rank - 1] = ((uint64_t)box[0] * 1000 + box[1]) * 1000 + box[2];
    out[2 * rank] = (uint64_t)(type * 10 + swizzle);
    return pretend_result;
}

TEST(tensor_maps_are_made_of_the_block)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode};
    const struct driver old = {.library = NULL};
    const struct launch l = launch_of(80, 64);
    struct map_block b = {.q = memory, .stride = {76800, 64, 256}};
    static const uint64_t expected[9] = {64, 300, 4, 2, 512, 128, 153600, 32080001, 9 * 10 + 2};
    struct problem p = make_problem();
    lathe_error err;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(b.map[i], expected[i]);
    p.dim[SYM_H] = 1; /* its stride says nothing, and has to be one that TMA takes */
    b.stride[1] = 0;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(b.map[5], 16);
    pretend_result = 1;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "kernel fwd: expected a tensor that TMA takes");
    pretend_result = 0;
    p.dim[SYM_H] = 2; /* heads that lie on each other: whatever the driver would say */
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "given strides of 153600, 0 and 512 bytes; get a kernel for these arguments");
    CHECK_EQ(lathe__maps_fill(&old, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_CUDA);
    CHECK_HAS(err.text, "cuTensorMapEncodeTiled");
    p.dim[SYM_Q] = 0; /* nothing is loaded from an empty tensor */
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
}

/* Of 8 bits strides are bytes, and two numbers are one element. */
TEST(tensor_maps_of_8_bits)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode};
    struct launch l = launch_of(80, 64);
    struct map_block b = {.q = memory, .stride = {76800, 64, 256}};
    static const uint64_t expected[9] = {32, 300, 4, 2, 256, 64, 76800, 32080001, 1 * 10 + 2};
    struct problem p = make_problem();
    lathe_error err;
    l.map[0].dtype = LATHE_F8_E4M3;
    pretend_result = 0;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    for (int i = 0; i < 9; i++)
        CHECK_EQ(b.map[i], expected[i]);
    b.stride[1] = 0;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "given strides of 76800, 0 and 256 bytes");
}

/* Heads that take turns have a dim of their own, next to the innermost. */
TEST(tensor_maps_of_packed_heads)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode};
    struct launch l = launch_of(64, 128);
    struct map_block b = {.q = memory, .stride = {76800, 64, 256}, .pack = 3};
    static const uint64_t expected[11] = {64, 3, 300, 2, 2, 128, 512, 384, 153600, 64003021, 9 * 10 + 3};
    static const uint64_t alone[11] = {64, 1, 300, 6, 2, 16, 512, 128, 153600, 64001064, 9 * 10 + 3};
    struct problem p = make_problem();
    lathe_error err;
    l.map[0].pack = offsetof(struct map_block, pack);
    pretend_result = 0;
    p.dim[SYM_H] = 6;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    for (int i = 0; i < 11; i++)
        CHECK_EQ(b.map[i], expected[i]);
    b.pack = 1;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    for (int i = 0; i < 11; i++)
        CHECK_EQ(b.map[i], alone[i]);
}

/* Token i of a sequence of `length` behind the first `first`, as a kernel asks for it. */
static uint64_t ragged_place(const uint64_t *dim, const uint64_t *stride, uint64_t first, uint64_t length,
                             uint64_t i)
{
    const uint64_t at[4] = {RAGGED_ROWS - length + i, 1, first + length, RAGGED_ROWS};
    uint64_t place = 0;
    for (int k = 0; k < 4; k++) {
        if (at[k] >= dim[1 + k])
            return UINT64_MAX;
        place += at[k] * stride[k];
    }
    return place;
}

/* A map of packed sequences ends wherever one of them does. */
TEST(tensor_maps_of_packed_sequences)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode};
    struct launch l = launch_of(64, 128);
    struct map_block b = {.q = memory, .stride = {0, 64, 256}};
    struct problem p = make_problem();
    lathe_error err;
    l.map[0].packed = true;
    pretend_result = 0;
    p.dim[SYM_B] = 1;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(b.map[9], 64064001);
    for (int i = 0; i < 4; i++) /* strides are multiples of 16 below 2^40 */
        CHECK(b.map[5 + i] % 16 == 0 && b.map[5 + i] < (uint64_t)1 << 40);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 100, 7, 0), 128 + 100 * 512);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 100, 7, 6), 128 + 106 * 512);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 100, 7, 7), UINT64_MAX);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 0, 300, 299), 128 + 299 * 512);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 300, 0, 0), UINT64_MAX);
    p.dim[SYM_Q] = 1; /* its stride says nothing */
    b.stride[2] = 0;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 0, 1, 0), 128);
    p.dim[SYM_Q] = RAGGED_ROWS + 1;
    b.stride[2] = 64;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "at most 2^30 tokens of sequences");
}

/* Batches with ends of their own, and pages, are counted as tokens of one tensor, whose address is the map's
   (pretend_encode). */
TEST(tensor_maps_of_batches_and_pages)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode};
    struct launch l = launch_of(80, 128);
    struct map_block b = {.q = memory, .stride = {256000, 64, 256}};
    struct problem p = make_problem();
    lathe_error err;
    l.map[0].packed = true;
    l.map[0].dim[0] = SYM_KV;
    l.map[0].dim[1] = SYM_H_KV;
    pretend_result = 0;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(b.map[9], 64080001);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 1000, 7, 6), 512000 + 128 + 6 * 512);
    CHECK_EQ(ragged_place(b.map, b.map + 5, 1000, 7, 7), UINT64_MAX);
    static const struct {
        int64_t page;
        int tile, box;
    } pages[] = {{16, 80, 16}, {32, 80, 16}, {256, 80, 16}, {16, 64, 16},
                 {32, 64, 32}, {64, 64, 64}, {256, 64, 64}};
    p.dim[SYM_POOL] = 9;
    l.map[0].dim[0] = SYM_PAGE;
    l.map[0].dim[2] = SYM_POOL;
    for (int i = 0; i < 7; i++) {
        l.map[0].box_tokens = (uint16_t)pages[i].tile;
        p.dim[SYM_PAGE] = pages[i].page;
        CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_OK);
        CHECK_EQ(b.map[9], 64000001 + 1000 * (uint64_t)pages[i].box);
        CHECK_EQ(ragged_place(b.map, b.map + 5, 8000, 3, 2), 8 * 512000 + 128 + 2 * 512);
    }
    p.dim[SYM_PAGE] = 24;
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "pages of 16, 32, 64, 128 or 256 keys");
    p.dim[SYM_PAGE] = 64;
    b.stride[0] += 8; /* no whole tokens */
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
    CHECK_HAS(err.text, "which lie whole tokens apart");
    b.stride[0] = (int64_t)256 << 27; /* 9 of them are more than 2^30 tokens */
    CHECK_EQ(lathe__maps_fill(&driver, &l, &p, NULL, (unsigned char *)&b, &err), LATHE_ARG);
}

static atomic_int n_encoded;

/* 16 words of the sizes and strides, and the address. */
static int encode_words(void *map, int type, unsigned rank, void *data, const uint64_t *dim,
                        const uint64_t *stride, const uint32_t *box, const uint32_t *step, int interleave,
                        int swizzle, int l2, int fill_kind)
{
    uint64_t *out = map;
    (void)type, (void)box, (void)step, (void)interleave, (void)swizzle, (void)l2, (void)fill_kind;
    atomic_fetch_add(&n_encoded, 1);
    for (unsigned i = 0; i < 15; i++)
        out[i] = dim[1] * 1000 + stride[i % (rank - 1)] + i;
    out[15] = (uint64_t)(uintptr_t)data;
    return CU_SUCCESS;
}

static int exchange_address(void *map, void *data)
{
    ((uint64_t *)map)[15] = (uint64_t)(uintptr_t)data;
    return CU_SUCCESS;
}

static const struct driver WORDS = {.cuTensorMapEncodeTiled = encode_words,
                                    .cuTensorMapReplaceAddress = exchange_address};

/* A map of q tokens is right, whether it was encoded now or before. */
static bool fill_is_right(struct map_slot *slots, int64_t q, void *data)
{
    struct map_block b = {.q = data, .stride = {76800, 64, 256}};
    const uint64_t stride[3] = {512, 128, 153600};
    const struct launch l = launch_of(80, 64);
    struct problem p = make_problem();
    p.dim[SYM_Q] = q;
    bool right = lathe__maps_fill(&WORDS, &l, &p, slots, (unsigned char *)&b, NULL) == LATHE_OK &&
                 b.map[15] == (uint64_t)(uintptr_t)data;
    for (unsigned i = 0; i < 15; i++)
        right &= b.map[i] == (uint64_t)q * 1000 + stride[i % 3] + i;
    return right;
}

TEST(a_tensor_map_is_encoded_once)
{
    struct map_slot *slots = NULL;
    struct map_slot *none = NULL;
    struct driver old = WORDS;
    const struct launch l = launch_of(80, 64);
    struct problem p = make_problem();
    struct map_block b = {.q = memory, .stride = {76800, 64, 256}};
    lathe_error err;
    CHECK_EQ(lathe__map_slots(&none, 0, &err), LATHE_OK);
    CHECK(none == NULL);
    CHECK_EQ(lathe__map_slots(&slots, 1, &err), LATHE_OK);
    atomic_store(&n_encoded, 0);
    CHECK(fill_is_right(slots, 300, memory));
    CHECK(fill_is_right(slots, 300, memory + 16)); /* the address alone is another */
    CHECK_EQ(atomic_load(&n_encoded), 1);
    CHECK(fill_is_right(slots, 301, memory));
    CHECK(fill_is_right(slots, 300, memory));
    CHECK_EQ(atomic_load(&n_encoded), 3);
    CHECK(fill_is_right(NULL, 300, memory));
    CHECK_EQ(atomic_load(&n_encoded), 4);
    old.cuTensorMapReplaceAddress = NULL;
    CHECK_EQ(lathe__maps_fill(&old, &l, &p, slots, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(atomic_load(&n_encoded), 5);
    b.stride[2] = 128;
    CHECK_EQ(lathe__maps_fill(&WORDS, &l, &p, slots, (unsigned char *)&b, &err), LATHE_OK);
    CHECK_EQ(b.map[0], 300 * 1000 + 256);
    CHECK_EQ(atomic_load(&n_encoded), 6);
    free(slots);
}

/* A pool of [page, token, head, dim] has the strides of any page size, but the boxes of its own. */
TEST(a_tensor_map_of_other_pages_is_encoded_anew)
{
    const struct driver driver = {.cuTensorMapEncodeTiled = pretend_encode,
                                  .cuTensorMapReplaceAddress = exchange_address};
    static const int64_t page[] = {256, 16, 16, 32, 256};
    static const uint64_t box[] = {64, 16, 16, 32, 64};
    struct map_slot *slots = NULL;
    struct launch l = launch_of(64, 128);
    struct problem p = make_problem();
    lathe_error err;
    l.map[0].packed = true;
    l.map[0].dim[0] = SYM_PAGE;
    l.map[0].dim[1] = SYM_H_KV;
    l.map[0].dim[2] = SYM_POOL;
    p.dim[SYM_POOL] = 9;
    pretend_result = 0;
    CHECK_EQ(lathe__map_slots(&slots, 1, &err), LATHE_OK);
    for (int i = 0; i < 5; i++) {
        struct map_block b = {.q = memory, .stride = {256 * page[i], 64, 256}};
        p.dim[SYM_PAGE] = page[i];
        CHECK_EQ(lathe__maps_fill(&driver, &l, &p, slots, (unsigned char *)&b, &err), LATHE_OK);
        CHECK_EQ(b.map[9], 64000001 + 1000 * box[i]);
    }
    free(slots);
}

struct filler {
    struct map_slot *slots;
    int number;
    bool right;
};

static void *fill_often(void *user)
{
    struct filler *f = user;
    for (int i = 0; i < 20000; i++)
        f->right &= fill_is_right(f->slots, 300 + (i + f->number) / 16 % 3, memory + 16 * f->number);
    return NULL;
}

TEST(threads_share_the_slots_of_tensor_maps)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    struct filler filler[THREADS];
    struct map_slot *slots = NULL;
    lathe_error err;
    CHECK_EQ(lathe__map_slots(&slots, 1, &err), LATHE_OK);
    atomic_store(&n_encoded, 0);
    for (int i = 0; i < THREADS; i++) {
        filler[i] = (struct filler){slots, i, true};
        CHECK_EQ(pthread_create(&thread[i], NULL, fill_often, &filler[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
        CHECK(filler[i].right);
    }
    CHECK(atomic_load(&n_encoded) < THREADS * 20000);
    free(slots);
}

/* Where that takes at most nine tenths of the tiles. */
TEST(heads_are_packed_where_queries_are_short)
{
    static const struct {
        int h, h_kv, q, rows, heads;
    } row[] = {{8, 2, 1, 128, 4},    {8, 8, 1, 128, 1},     {32, 8, 32, 128, 4}, {32, 8, 127, 128, 1},
               {32, 8, 129, 128, 4}, {32, 8, 4096, 128, 1}, {6, 2, 25, 192, 3},  {80, 1, 1, 128, 1},
               {64, 1, 2, 128, 64},  {7, 1, 128, 128, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct problem p = make_problem();
        p.dim[SYM_H] = row[i].h;
        p.dim[SYM_H_KV] = row[i].h_kv;
        p.dim[SYM_Q] = row[i].q;
        CHECK_EQ(lathe__heads_packed(&p, row[i].rows), row[i].heads);
    }
}
