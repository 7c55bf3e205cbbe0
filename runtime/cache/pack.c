/*
 * pack.c: the bytes of an exported cache: pure functions, no file. In: bytes that anyone may have damaged or
 * made up; out: records that point into them, each a file of a cache with a name that a cache may have.
 * Numbers are little-endian. A header of 64 bytes, then records one after the other, each a head of 128 bytes
 * and its data:
 *
 *      0  magic "LATHECX\n"    12  header bytes, u32     24  bytes of the file, u64
 *      8  format, u32          16  records, u32; 0, u32  32  SHA-256 (1)
 *
 * (1) of bytes 0..31 and of all records' digests. A head:
 *
 *      0  name (80, zero-padded)  80  data bytes, u64  88  0, u64  96  SHA-256 (2)
 *
 * (2) of bytes 0..95 and the data.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/cache/makers.h"
#include "runtime/cache/pack.h"
#include "runtime/cache/tuned.h"

static const char MAGIC[8] = {'L', 'A', 'T', 'H', 'E', 'C', 'X', '\n'};
enum {
    AT_FORMAT = 8,
    AT_HEADER = 12,
    AT_RECORDS = 16,
    AT_ZERO = 20,
    AT_BYTES = 24,
    AT_DIGEST = 32,
    HEAD_AT_SIZE = 80,
    HEAD_AT_ZERO = 88,
    HEAD_AT_DIGEST = 96,
    HEX_BYTES = KEY_TEXT_BYTES - 1
};

/* ---- write ---------------------------------------------------------------------------------------- */

static void record_digest(const unsigned char *head, const void *data, size_t size,
                          unsigned char digest[KEY_BYTES])
{
    struct sha256 s;
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, head, HEAD_AT_DIGEST);
    lathe__sha256_add(&s, data, size);
    lathe__sha256_finish(&s, digest);
}

void lathe__pack_head(const char *name, const void *data, size_t size, unsigned char head[PACK_HEAD_BYTES])
{
    memset(head, 0, PACK_HEAD_BYTES);
    snprintf((char *)head, PACK_NAME_BYTES, "%s", name);
    lathe__store_le(head + HEAD_AT_SIZE, size, 8);
    record_digest(head, data, size, head + HEAD_AT_DIGEST);
}

/* The digest of the whole: the header's first half, then a digest of the records' digests. */
static void whole_digest(const unsigned char *header, const struct sha256 *digests,
                         unsigned char digest[KEY_BYTES])
{
    struct sha256 records = *digests;
    struct sha256 s;
    unsigned char of_records[KEY_BYTES];
    lathe__sha256_finish(&records, of_records);
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, header, AT_DIGEST);
    lathe__sha256_add(&s, of_records, sizeof of_records);
    lathe__sha256_finish(&s, digest);
}

void lathe__pack_header(uint32_t n, uint64_t file_bytes, const struct sha256 *digests,
                        unsigned char header[PACK_HEADER_BYTES])
{
    memset(header, 0, PACK_HEADER_BYTES);
    memcpy(header, MAGIC, sizeof MAGIC);
    lathe__store_le(header + AT_FORMAT, PACK_FORMAT, 4);
    lathe__store_le(header + AT_HEADER, PACK_HEADER_BYTES, 4);
    lathe__store_le(header + AT_RECORDS, n, 4);
    lathe__store_le(header + AT_BYTES, file_bytes, 8);
    whole_digest(header, digests, header + AT_DIGEST);
}

/* ---- read ----------------------------------------------------------------------------------------- */

bool lathe__pack_open(struct pack *pack, const unsigned char *data, size_t size, const char **why)
{
    *why = NULL;
    if (size < sizeof MAGIC || memcmp(data, MAGIC, sizeof MAGIC) != 0)
        *why = "it is not an exported cache";
    else if (size < PACK_HEADER_BYTES)
        *why = "it is cut short";
    else if (lathe__load_le(data + AT_FORMAT, 4) != PACK_FORMAT)
        *why = "it is of another format, written by another version of lathe";
    else if (lathe__load_le(data + AT_HEADER, 4) != PACK_HEADER_BYTES ||
             lathe__load_le(data + AT_ZERO, 4) != 0)
        *why = "its header is damaged";
    else if (lathe__load_le(data + AT_BYTES, 8) != size)
        *why = lathe__load_le(data + AT_BYTES, 8) > size ? "it is cut short" : "something follows its end";
    if (*why)
        return false;
    *pack = (struct pack){.data = data, .size = size, .at = PACK_HEADER_BYTES};
    pack->left = (uint32_t)lathe__load_le(data + AT_RECORDS, 4);
    lathe__sha256_start(&pack->digests);
    return true;
}

/* A name that a cache may have, and nothing else: no path leads out of the folder. */
static bool known_name(const char *name, enum pack_kind *kind)
{
    const size_t hex = strspn(name, "0123456789abcdef");
    if (hex == HEX_BYTES && (strcmp(name + hex, ".bin") == 0 || strcmp(name + hex, ".cu") == 0)) {
        *kind = name[hex + 1] == 'b' ? PACK_ENTRY : PACK_READABLE;
        return true;
    }
    if (lathe__tuned_is_name(name)) {
        *kind = PACK_TUNED;
        return true;
    }
    *kind = PACK_MAKER;
    return lathe__maker_is_name(name);
}

static bool sound(const struct pack_record *r)
{
    unsigned char key[KEY_BYTES];
    struct entry_view view;
    struct compiler maker;
    struct tuned tuned;
    switch (r->kind) {
    case PACK_ENTRY:
        lathe__key_from_text(r->name, key);
        return lathe__entry_parse(r->data, r->size, key, &view);
    case PACK_MAKER:
        return lathe__maker_parse(r->name, (const char *)r->data, r->size, &maker);
    case PACK_TUNED:
        return lathe__tuned_parse((const char *)r->data, r->size, &tuned);
    case PACK_READABLE:
        break;
    }
    return true;
}

static int finish(const struct pack *pack, const char **why)
{
    unsigned char digest[KEY_BYTES];
    whole_digest(pack->data, &pack->digests, digest);
    if (pack->at != pack->size)
        *why = "its records end before it does";
    else if (memcmp(digest, pack->data + AT_DIGEST, sizeof digest) != 0)
        *why = "its digest is wrong";
    return *why ? -1 : 0;
}

int lathe__pack_next(struct pack *pack, struct pack_record *out, const char **why)
{
    unsigned char digest[KEY_BYTES];
    const unsigned char *head = pack->data + pack->at;
    *why = NULL;
    if (pack->left == 0)
        return finish(pack, why);
    const size_t rest = pack->size - pack->at;
    if (rest < PACK_HEAD_BYTES || lathe__load_le(head + HEAD_AT_SIZE, 8) > rest - PACK_HEAD_BYTES) {
        *why = "a record reaches beyond its end";
        return -1;
    }
    out->data = head + PACK_HEAD_BYTES;
    out->size = (size_t)lathe__load_le(head + HEAD_AT_SIZE, 8);
    memcpy(out->name, head, PACK_NAME_BYTES);
    record_digest(head, out->data, out->size, digest);
    if (memcmp(digest, head + HEAD_AT_DIGEST, sizeof digest) != 0)
        *why = "the digest of a record is wrong";
    else if (out->name[PACK_NAME_BYTES - 1] || lathe__load_le(head + HEAD_AT_ZERO, 8) != 0 ||
             !known_name(out->name, &out->kind))
        *why = "a record has a name that no cache has";
    else if (!sound(out))
        *why = "an entry is not what its name says";
    if (*why)
        return -1;
    lathe__sha256_add(&pack->digests, digest, sizeof digest);
    pack->at += PACK_HEAD_BYTES + out->size;
    pack->left--;
    return 1;
}
