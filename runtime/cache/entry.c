/*
 * entry.c: keys, and the bytes of one cache entry: pure functions, no file. In: a source, or the bytes of a
 * file that anyone may have damaged; out: a key, or a view into those bytes. An entry is a header of 224
 * bytes, the image and the log; its digest covers all of it, and its length is exact.
 *
 *      0  magic "LATHEKC\n"       16  key (32)           64  label (128, zero-padded)
 *      8  format, u32             48  image bytes, u64  192  SHA-256 of bytes 0..191 and all after 223
 *     12  header bytes, u32       56  log bytes, u64    224  image, then log
 * Numbers are little-endian whatever the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cache/entry.h"

static const char MAGIC[8] = {'L', 'A', 'T', 'H', 'E', 'K', 'C', '\n'};
enum {
    AT_FORMAT = 8,
    AT_HEADER = 12,
    AT_KEY = 16,
    AT_IMAGE = 48,
    AT_LOG = 56,
    AT_LABEL = CACHE_LABEL_AT,
    AT_DIGEST = 192
};

static void add_sized(struct sha256 *s, const void *data, size_t size)
{
    unsigned char length[8];
    lathe__store_le(length, size, 8);
    lathe__sha256_add(s, length, sizeof length);
    lathe__sha256_add(s, data, size);
}

void lathe__key_make(const struct source *source, const char (*options)[OPTION_BYTES], int n_options,
                     const char *compiler_identity, unsigned char key[KEY_BYTES])
{
    struct sha256 s;
    char format[32];
    char cut[MAX_COMPILED_PARTS][OPTION_BYTES];
    const int n_cut = lathe__part_options(source, cut);
    lathe__sha256_start(&s);
    snprintf(format, sizeof format, "lathe cache %d", CACHE_FORMAT);
    add_sized(&s, format, strlen(format));
    add_sized(&s, compiler_identity, strlen(compiler_identity));
    for (int i = 0; i < n_options; i++)
        add_sized(&s, options[i], strlen(options[i]));
    for (int i = 0; i < n_cut; i++)
        add_sized(&s, cut[i], strlen(cut[i])); /* an entry's images stand in the order of the parts */
    add_sized(&s, "", 0);                      /* no option is empty: this ends the list */
    for (int i = 0; i < source->n_texts; i++) {
        add_sized(&s, source->text[i].name, strlen(source->text[i].name));
        add_sized(&s, source->text[i].data, source->text[i].size);
    }
    lathe__sha256_finish(&s, key);
}

void lathe__key_text(const unsigned char key[KEY_BYTES], char out[KEY_TEXT_BYTES])
{
    for (int i = 0; i < KEY_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", key[i]);
}

void lathe__key_from_text(const char *text, unsigned char key[KEY_BYTES])
{
    for (int i = 0; i < KEY_BYTES; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        key[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

static void entry_digest(const unsigned char *header, const void *image, size_t image_size, const void *log,
                         size_t log_size, unsigned char digest[KEY_BYTES])
{
    struct sha256 s;
    lathe__sha256_start(&s);
    lathe__sha256_add(&s, header, AT_DIGEST);
    lathe__sha256_add(&s, image, image_size);
    lathe__sha256_add(&s, log, log_size);
    lathe__sha256_finish(&s, digest);
}

void lathe__entry_header(const struct cache_blob *blob, const unsigned char key[KEY_BYTES],
                         unsigned char header[CACHE_HEADER_BYTES])
{
    memset(header, 0, CACHE_HEADER_BYTES);
    memcpy(header, MAGIC, sizeof MAGIC);
    lathe__store_le(header + AT_FORMAT, CACHE_FORMAT, 4);
    lathe__store_le(header + AT_HEADER, CACHE_HEADER_BYTES, 4);
    memcpy(header + AT_KEY, key, KEY_BYTES);
    lathe__store_le(header + AT_IMAGE, blob->image_size, 8);
    lathe__store_le(header + AT_LOG, blob->log_size, 8);
    snprintf((char *)header + AT_LABEL, CACHE_LABEL_BYTES, "%s", blob->label);
    entry_digest(header, blob->image, blob->image_size, blob->log, blob->log_size, header + AT_DIGEST);
}

static bool header_fits(const unsigned char *data, size_t size, const unsigned char *key)
{
    if (size < CACHE_HEADER_BYTES || memcmp(data, MAGIC, sizeof MAGIC) != 0)
        return false;
    if (lathe__load_le(data + AT_FORMAT, 4) != CACHE_FORMAT ||
        lathe__load_le(data + AT_HEADER, 4) != CACHE_HEADER_BYTES)
        return false;
    if (data[AT_LABEL + CACHE_LABEL_BYTES - 1] != 0 || (key && memcmp(data + AT_KEY, key, KEY_BYTES) != 0))
        return false;
    const uint64_t rest = size - CACHE_HEADER_BYTES;
    const uint64_t image_size = lathe__load_le(data + AT_IMAGE, 8);
    return image_size > 0 && image_size <= rest && lathe__load_le(data + AT_LOG, 8) == rest - image_size;
}

bool lathe__entry_parse(const unsigned char *data, size_t size, const unsigned char *key,
                        struct entry_view *out)
{
    unsigned char digest[KEY_BYTES];
    if (!header_fits(data, size, key))
        return false;
    out->key = data + AT_KEY;
    out->image = data + CACHE_HEADER_BYTES;
    out->image_size = (size_t)lathe__load_le(data + AT_IMAGE, 8);
    out->log = (const char *)out->image + out->image_size;
    out->log_size = (size_t)lathe__load_le(data + AT_LOG, 8);
    memcpy(out->label, data + AT_LABEL, CACHE_LABEL_BYTES);
    entry_digest(data, out->image, out->image_size, out->log, out->log_size, digest);
    return memcmp(digest, data + AT_DIGEST, KEY_BYTES) == 0;
}

void lathe__blob_free(struct cache_blob *blob)
{
    free(blob->image);
    free(blob->log);
    free(blob->readable);
    memset(blob, 0, sizeof *blob);
}
