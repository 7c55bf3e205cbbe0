/*
 * cache_reader.c: libFuzzer target for the parser of cache entries and of the sets of images in them. In: any
 * bytes; must neither read beyond them nor accept what lathe__entry_header did not write. The digest stops
 * most inputs, so each one is also given a valid one.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size)
{
    struct entry_view view;
    if (!lathe__entry_parse(data, size, NULL, &view))
        return;
    if (view.image_size + view.log_size + CACHE_HEADER_BYTES != size ||
        view.image != data + CACHE_HEADER_BYTES || memchr(view.label, 0, sizeof view.label) == NULL)
        abort();
}

/* The header as given, with the digest that it would need: the length checks alone decide then. */
static void parse_signed(const uint8_t *data, size_t size)
{
    struct sha256 s;
    uint8_t *copy = malloc(size);
    if (!copy)
        return;
    memcpy(copy, data, size);
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, copy, CACHE_HEADER_BYTES - KEY_BYTES);
    lathe__sha256_add(&s, copy + CACHE_HEADER_BYTES, size - CACHE_HEADER_BYTES);
    lathe__sha256_finish(&s, copy + CACHE_HEADER_BYTES - KEY_BYTES);
    parse(copy, size);
    free(copy);
}

/* The bytes as an image: what is written is read back. */
static void round_trip(const uint8_t *data, size_t size)
{
    unsigned char key[KEY_BYTES] = {1};
    struct cache_blob blob = {.image = (unsigned char *)(uintptr_t)data, .image_size = size};
    struct entry_view view;
    uint8_t *file = malloc(size + CACHE_HEADER_BYTES);
    if (!file)
        return;
    lathe__entry_header(&blob, key, file);
    memcpy(file + CACHE_HEADER_BYTES, data, size);
    if (!lathe__entry_parse(file, size + CACHE_HEADER_BYTES, key, &view) ||
        memcmp(view.image, data, size) != 0)
        abort();
    free(file);
}

/* The bytes as a set of images, and as the sizes of one: each lies within them, behind the one before. */
static void split(const uint8_t *data, size_t size)
{
    struct image image[MAX_COMPILED_PARTS];
    const uint8_t *end = data;
    const int n = lathe__images_split(data, size, image);
    for (int i = 0; i < n; i++) {
        if (image[i].data < end || image[i].size > size || image[i].data + image[i].size > data + size)
            abort();
        end = image[i].data + image[i].size;
    }
}
static void split_signed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 8);
    if (!copy)
        return;
    memcpy(copy, "LATHESET", 8);
    memcpy(copy + 8, data, size);
    split(copy, size + 8);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    split(data, size);
    split_signed(data, size);
    parse(data, size);
    if (size >= CACHE_HEADER_BYTES)
        parse_signed(data, size);
    if (size > 0)
        round_trip(data, size);
    return 0;
}
