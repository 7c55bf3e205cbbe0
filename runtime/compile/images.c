/*
 * images.c: several images in one run of bytes, for a cache entry whose kernels were compiled apart: a fatbin
 * holds one piece of code for an arch, so parts of a text cannot share one. Pure functions, no file. In:
 * images; out: a set, malloc'd, the caller's, or views into one. The bytes come from this process or from an
 * entry whose digest held. One image is its own set.
 *
 *      0  magic "LATHESET"        16  size of each image, u64
 *      8  how many, u32           ..  the images, each from a multiple of 16 bytes on
 * Numbers are little-endian whatever the host; the driver wants images aligned.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/compile/images.h"

static const char MAGIC[8] = {'L', 'A', 'T', 'H', 'E', 'S', 'E', 'T'};
enum { AT_COUNT = 8, AT_SIZES = 16, ALIGNMENT = 16 };

static size_t round_up(size_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Where the images begin. */
static size_t head_bytes(int n)
{
    return round_up(AT_SIZES + 8 * (size_t)n);
}

unsigned char *lathe__images_join(const struct image *image, int n, size_t *size)
{
    size_t at = n > 1 ? head_bytes(n) : 0;
    *size = at;
    for (int i = 0; i < n; i++)
        *size += n > 1 ? round_up(image[i].size) : image[i].size;
    unsigned char *set = *size > 0 ? calloc(*size, 1) : NULL;
    if (!set)
        return NULL;
    if (n > 1) {
        memcpy(set, MAGIC, sizeof MAGIC);
        lathe__store_le(set + AT_COUNT, (uint64_t)n, 4);
    }
    for (int i = 0; i < n; i++) {
        if (n > 1)
            lathe__store_le(set + AT_SIZES + 8 * i, image[i].size, 8);
        memcpy(set + at, image[i].data, image[i].size);
        at += round_up(image[i].size);
    }
    return set;
}

bool lathe__images_is_set(const unsigned char *bytes, size_t size)
{
    return size >= AT_SIZES && memcmp(bytes, MAGIC, sizeof MAGIC) == 0;
}

int lathe__images_split(const unsigned char *bytes, size_t size, struct image out[MAX_COMPILED_PARTS])
{
    if (!lathe__images_is_set(bytes, size)) {
        out[0] = (struct image){bytes, size};
        return 1;
    }
    const uint64_t n = lathe__load_le(bytes + AT_COUNT, 4);
    if (n < 1 || n > MAX_COMPILED_PARTS || size < head_bytes((int)n))
        return 0;
    size_t at = head_bytes((int)n);
    for (int i = 0; i < (int)n; i++) {
        const uint64_t bytes_of = lathe__load_le(bytes + AT_SIZES + 8 * i, 8);
        if (bytes_of < 1 || bytes_of > size - at || round_up((size_t)bytes_of) > size - at)
            return 0;
        out[i] = (struct image){bytes + at, (size_t)bytes_of};
        at += round_up((size_t)bytes_of);
    }
    return at == size ? (int)n : 0;
}
