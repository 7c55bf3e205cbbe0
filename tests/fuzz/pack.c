/*
 * pack.c: libFuzzer target for the reader of exported caches. In: any bytes; must not read beyond them, and
 * every record it gives must lie inside and have a name that stays in the folder. Digests stop most inputs,
 * so each one is also read with the digests that it would need.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Returns records read. */
static int read_all(const uint8_t *data, size_t size)
{
    struct pack pack;
    struct pack_record r;
    const char *why;
    int n = 0;
    if (!lathe__pack_open(&pack, data, size, &why)) {
        if (!why)
            abort();
        return 0;
    }
    int more;
    while ((more = lathe__pack_next(&pack, &r, &why)) > 0) {
        if (r.data < data || r.size > size || (size_t)(r.data - data) > size - r.size ||
            !memchr(r.name, 0, sizeof r.name) || strchr(r.name, '/') || r.name[0] == '.')
            abort();
        n++;
    }
    if ((more < 0) != (why != NULL))
        abort();
    return n;
}

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

/* Lengths as they are, names as they are, digests made right: what is behind the digests decides then. */
static void read_signed(const uint8_t *data, size_t size)
{
    struct sha256 digests;
    uint32_t n = 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return;
    memcpy(copy, data, size);
    lathe__sha256_start(&digests);
    for (size_t at = PACK_HEADER_BYTES; size - at >= PACK_HEAD_BYTES;) {
        uint8_t *head = copy + at;
        const uint64_t bytes = number(head + PACK_NAME_BYTES, 8);
        char name[PACK_NAME_BYTES + 1] = {0};
        if (bytes > size - at - PACK_HEAD_BYTES)
            break;
        memcpy(name, head, PACK_NAME_BYTES);
        lathe__pack_head(name, head + PACK_HEAD_BYTES, (size_t)bytes, head);
        lathe__sha256_add(&digests, head + PACK_HEAD_BYTES - KEY_BYTES, KEY_BYTES);
        at += PACK_HEAD_BYTES + (size_t)bytes;
        n++;
    }
    lathe__pack_header(n, size, &digests, copy);
    (void)read_all(copy, size);
    free(copy);
}

/* The bytes as a source text: what is written is read back. */
static void round_trip(const uint8_t *data, size_t size)
{
    static const char NAME[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.cu";
    struct sha256 digests;
    const size_t all = PACK_HEADER_BYTES + PACK_HEAD_BYTES + size;
    uint8_t *file = malloc(all);
    if (!file)
        return;
    lathe__pack_head(NAME, data, size, file + PACK_HEADER_BYTES);
    memcpy(file + PACK_HEADER_BYTES + PACK_HEAD_BYTES, data, size);
    lathe__sha256_start(&digests);
    lathe__sha256_add(&digests, file + PACK_HEADER_BYTES + PACK_HEAD_BYTES - KEY_BYTES, KEY_BYTES);
    lathe__pack_header(1, all, &digests, file);
    if (read_all(file, all) != 1)
        abort();
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)read_all(data, size);
    if (size >= PACK_HEADER_BYTES)
        read_signed(data, size);
    if (size > 0)
        round_trip(data, size);
    return 0;
}
