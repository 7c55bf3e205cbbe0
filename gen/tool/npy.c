/*
 * npy.c: NumPy's .npy files in and out. In: bytes or a path, and the dtype that is wanted. Out: a compact
 * row-major array of that dtype, owned by the caller (npy_free). Any byte sequence is safe to read: the
 * header is parsed as text, sizes are checked against the bytes that are there before anything is
 * allocated. A header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 */
#include "gen/tool/npy.h"
#include "gen/gen.h"
#include "gen/tool/output.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_HEADER = 65536, DESCR_MAX = 16 };

enum element {
    ELEMENT_F16,
    ELEMENT_F32,
    ELEMENT_F64,
    ELEMENT_BITS16,
    ELEMENT_BITS8,
    ELEMENT_I32,
    ELEMENT_I64,
    ELEMENT_U8,
    ELEMENT_I8
};

static const struct descr {
    const char *text;
    uint8_t element; /* enum element */
    uint8_t bytes;
    lathe_dtype dtype; /* of the elements as they are; I64 has none */
} DESCRS[] = {
    {"<f2", ELEMENT_F16, 2, LATHE_F16},     {"<f4", ELEMENT_F32, 4, LATHE_F32},
    {"<f8", ELEMENT_F64, 8, LATHE_F64},     {"<u2", ELEMENT_BITS16, 2, LATHE_BF16},
    {"|V2", ELEMENT_BITS16, 2, LATHE_BF16}, {"<V2", ELEMENT_BITS16, 2, LATHE_BF16},
    {"<i4", ELEMENT_I32, 4, LATHE_I32},     {"<i8", ELEMENT_I64, 8, LATHE_NONE},
    {"|u1", ELEMENT_U8, 1, LATHE_U8},       {"|b1", ELEMENT_U8, 1, LATHE_U8},
    {"|i1", ELEMENT_I8, 1, LATHE_I8},       {"|V1", ELEMENT_BITS8, 1, LATHE_NONE},
    {"<V1", ELEMENT_BITS8, 1, LATHE_NONE},
};

/* ---- the header -------------------------------------------------------------------------------- */

struct cursor {
    const char *at;
    const char *end;
};

struct header {
    char descr[DESCR_MAX];
    bool fortran_order;
    bool has_order;
    bool has_shape;
    int ndim;
    int64_t shape[NPY_MAX_DIMS];
};

static void skip_space(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

static bool take(struct cursor *c, char wanted)
{
    skip_space(c);
    if (c->at >= c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool take_word(struct cursor *c, const char *word)
{
    const size_t size = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0)
        return false;
    c->at += size;
    return true;
}

static bool take_string(struct cursor *c, char *out, size_t capacity)
{
    skip_space(c);
    if (c->at >= c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    const char quote = *c->at++;
    size_t size = 0;
    while (c->at < c->end && *c->at != quote) {
        if (size + 1 >= capacity || *c->at < ' ' || *c->at > '~' || *c->at == '\\')
            return false;
        out[size++] = *c->at++;
    }
    out[size] = 0;
    return take(c, quote);
}

static bool take_size(struct cursor *c, int64_t *out)
{
    int64_t value = 0;
    skip_space(c);
    const char *start = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *c->at - '0', &value))
            return false;
        c->at++;
    }
    *out = value;
    return c->at > start;
}

static bool take_shape(struct cursor *c, struct header *h)
{
    if (!take(c, '('))
        return false;
    while (!take(c, ')')) {
        if (h->ndim == NPY_MAX_DIMS || !take_size(c, &h->shape[h->ndim]))
            return false;
        h->ndim++;
        if (take(c, ','))
            continue;
        if (!take(c, ')'))
            return false;
        break;
    }
    h->has_shape = true;
    return true;
}

static bool take_entry(struct cursor *c, struct header *h)
{
    char key[16];
    if (!take_string(c, key, sizeof key) || !take(c, ':'))
        return false;
    if (strcmp(key, "descr") == 0 && !h->descr[0])
        return take_string(c, h->descr, sizeof h->descr) && h->descr[0];
    if (strcmp(key, "shape") == 0 && !h->has_shape)
        return take_shape(c, h);
    if (strcmp(key, "fortran_order") != 0 || h->has_order)
        return false;
    h->fortran_order = take_word(c, "True");
    h->has_order = true;
    return h->fortran_order || take_word(c, "False");
}

static bool take_header(struct cursor *c, struct header *h)
{
    memset(h, 0, sizeof *h);
    if (!take(c, '{'))
        return false;
    while (!take(c, '}')) {
        if (!take_entry(c, h))
            return false;
        if (take(c, ','))
            continue;
        if (!take(c, '}'))
            return false;
        break;
    }
    skip_space(c);
    return c->at == c->end && h->descr[0] && h->has_order && h->has_shape;
}

/* Bytes before the header text, and its length: 2 bytes of length in version 1, 4 in 2 and 3. */
static bool header_place(const unsigned char *bytes, size_t size, size_t *start, size_t *length)
{
    if (size < 10)
        return false;
    if (bytes[6] == 1) {
        *start = 10;
        *length = bytes[8] | (size_t)bytes[9] << 8;
    } else {
        if (size < 12)
            return false;
        *start = 12;
        *length = bytes[8] | (size_t)bytes[9] << 8 | (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    }
    return *length <= MAX_HEADER && *length <= size - *start;
}

/* ---- elements ---------------------------------------------------------------------------------- */

struct source_array {
    const char *name;
    const unsigned char *bytes; /* any alignment */
    const struct descr *descr;
    bool fortran_order;
};

static const struct descr *find_descr(const char *text)
{
    for (size_t i = 0; i < sizeof DESCRS / sizeof DESCRS[0]; i++) {
        if (strcmp(DESCRS[i].text, text) == 0)
            return &DESCRS[i];
    }
    return NULL;
}

static bool is_whole(lathe_dtype dtype)
{
    return dtype == LATHE_I32 || dtype == LATHE_U8;
}

/* NumPy has no name for these: its files have bytes, of either, and the dtype that is wanted says of which.
 */
static bool is_byte_float(lathe_dtype dtype)
{
    return dtype == LATHE_F8_E4M3 || dtype == LATHE_F8_E5M2;
}

static lathe_status check_kinds(const char *name, const struct descr *from, lathe_dtype wanted,
                                lathe_error *err)
{
    const bool from_whole = from->element >= ELEMENT_I32;
    if (from->element == ELEMENT_BITS16 && wanted != LATHE_BF16)
        return lathe__fail(err, LATHE_ARG,
                           "%s: dtype '%s' is read as the bits of bf16 only, expected values for %s", name,
                           from->text, lathe_dtype_text(wanted));
    if (from->element == ELEMENT_BITS8 && !is_byte_float(wanted))
        return lathe__fail(
            err, LATHE_ARG,
            "%s: dtype '%s' is read as the bits of f8e4m3 or f8e5m2 only, expected values for %s", name,
            from->text, lathe_dtype_text(wanted));
    if (!from_whole && is_whole(wanted))
        return lathe__fail(err, LATHE_ARG, "%s: expected whole numbers for %s, given dtype '%s'", name,
                           lathe_dtype_text(wanted), from->text);
    return LATHE_OK;
}

static int64_t whole_value(const struct source_array *s, const unsigned char *at)
{
    int32_t small = 0;
    int64_t large = 0;
    if (s->descr->element == ELEMENT_U8)
        return *at;
    if (s->descr->element == ELEMENT_I8)
        return *(const signed char *)at;
    if (s->descr->element == ELEMENT_I32) {
        memcpy(&small, at, sizeof small);
        return small;
    }
    memcpy(&large, at, sizeof large);
    return large;
}

static double real_value(const struct source_array *s, const unsigned char *at)
{
    uint64_t aligned = 0;
    if (s->descr->element >= ELEMENT_I32)
        return (double)whole_value(s, at);
    memcpy(&aligned, at, s->descr->bytes);
    return dtype_load(s->descr->dtype, &aligned, 0);
}

static lathe_status convert_whole(const struct source_array *s, int64_t from, int64_t to, struct npy *out,
                                  lathe_error *err)
{
    const int64_t value = whole_value(s, s->bytes + from * s->descr->bytes);
    const int64_t least = out->dtype == LATHE_U8 ? 0 : INT32_MIN;
    const int64_t most = out->dtype == LATHE_U8 ? UINT8_MAX : INT32_MAX;
    if (value < least || value > most)
        return lathe__fail(err, LATHE_ARG,
                           "%s: expected values from %" PRId64 " to %" PRId64 " for %s, given %" PRId64
                           " at element %" PRId64,
                           s->name, least, most, lathe_dtype_text(out->dtype), value, to);
    if (out->dtype == LATHE_U8)
        ((uint8_t *)out->data)[to] = (uint8_t)value;
    else
        ((int32_t *)out->data)[to] = (int32_t)value;
    return LATHE_OK;
}

/* What is beyond the largest number of a dtype would become that one, or infinite. */
static lathe_status convert_real(const struct source_array *s, int64_t from, int64_t to, struct npy *out,
                                 lathe_error *err)
{
    uint64_t largest = 0;
    const double value = real_value(s, s->bytes + from * s->descr->bytes);
    dtype_store(out->dtype, out->data, to, value);
    dtype_store(out->dtype, &largest, 0, value < 0 ? -(double)INFINITY : (double)INFINITY);
    const double most = fabs(dtype_load(out->dtype, &largest, 0));
    const bool beyond = isinf(most) ? isinf(dtype_load(out->dtype, out->data, to)) : fabs(value) > most;
    if (isfinite(value) && beyond)
        return lathe__fail(err, LATHE_ARG, "%s: expected values that %s holds, given %g at element %" PRId64,
                           s->name, lathe_dtype_text(out->dtype), value, to);
    return LATHE_OK;
}

/* The next row-major index; returns its place in a column-major file. */
static int64_t next_place(int64_t *index, const int64_t *shape, int ndim)
{
    for (int i = ndim - 1; i >= 0; i--) {
        if (++index[i] < shape[i])
            break;
        index[i] = 0;
    }
    int64_t place = 0;
    for (int i = ndim - 1; i >= 0; i--)
        place = place * shape[i] + index[i];
    return place;
}

static lathe_status convert(const struct source_array *s, struct npy *out, lathe_error *err)
{
    int64_t index[NPY_MAX_DIMS] = {0};
    int64_t from = 0;
    const bool bits = is_byte_float(out->dtype) && s->descr->bytes == 1 && s->descr->element != ELEMENT_I8;
    if (!s->fortran_order && (s->descr->dtype == out->dtype || bits)) {
        memcpy(out->data, s->bytes, (size_t)out->count * s->descr->bytes);
        return LATHE_OK;
    }
    for (int64_t to = 0; to < out->count; to++) {
        if (bits)
            ((unsigned char *)out->data)[to] = s->bytes[from];
        else
            TRY(is_whole(out->dtype) ? convert_whole(s, from, to, out, err)
                                     : convert_real(s, from, to, out, err));
        from = s->fortran_order ? next_place(index, out->shape, out->ndim) : to + 1;
    }
    return LATHE_OK;
}

/* ---- doors ------------------------------------------------------------------------------------- */

static lathe_status check_size(const struct header *h, const struct source_array *s, size_t there,
                               struct npy *out, lathe_error *err)
{
    int64_t count = 1;
    bool zero = false;
    for (int i = 0; i < h->ndim; i++)
        zero = zero || h->shape[i] == 0;
    for (int i = 0; i < h->ndim && !zero; i++) {
        if (__builtin_mul_overflow(count, h->shape[i], &count) || count > INT64_MAX / 16)
            return lathe__fail(err, LATHE_ARG, "%s: the sizes in its header overflow", s->name);
    }
    out->count = zero ? 0 : count;
    const uint64_t need = (uint64_t)out->count * s->descr->bytes;
    if (need != there)
        return lathe__fail(err, LATHE_ARG,
                           "%s: expected %" PRIu64 " bytes of data from its header, given %zu", s->name, need,
                           there);
    return LATHE_OK;
}

static lathe_status parse_header(const char *name, const unsigned char *bytes, size_t size, struct header *h,
                                 size_t *data_at, lathe_error *err)
{
    size_t start = 0;
    size_t length = 0;
    if (size < 8 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return lathe__fail(err, LATHE_ARG, "%s: not a .npy file (it lacks the mark '\\x93NUMPY')", name);
    if (bytes[6] < 1 || bytes[6] > 3)
        return lathe__fail(err, LATHE_ARG, "%s: expected .npy version 1, 2 or 3, given %d.%d", name, bytes[6],
                           bytes[7]);
    if (!header_place(bytes, size, &start, &length))
        return lathe__fail(err, LATHE_ARG, "%s: the .npy header is cut off, or longer than %d bytes", name,
                           MAX_HEADER);
    struct cursor c = {(const char *)bytes + start, (const char *)bytes + start + length};
    if (!take_header(&c, h))
        return lathe__fail(err, LATHE_ARG,
                           "%s: cannot read the .npy header at byte %td (expected descr as one string, "
                           "fortran_order, and shape "
                           "with at most %d dims)",
                           name, c.at - (const char *)bytes, NPY_MAX_DIMS);
    *data_at = start + length;
    return LATHE_OK;
}

lathe_status npy_parse(struct npy *out, const char *name, const void *bytes, size_t size, lathe_dtype wanted,
                       lathe_error *err)
{
    struct header h;
    size_t data_at = 0;
    memset(out, 0, sizeof *out);
    lathe_status status = parse_header(name, bytes, size, &h, &data_at, err);
    if (status != LATHE_OK)
        return status;
    const struct source_array s = {name, (const unsigned char *)bytes + data_at, find_descr(h.descr),
                                   h.fortran_order};
    if (!s.descr)
        return lathe__fail(
            err, LATHE_ARG,
            "%s: dtype '%s' is not read; expected little-endian f2 f4 f8 i1 i4 i8 u1 or bool, V2 or u2 "
            "as bf16, or V1 or u1 as f8e4m3 or f8e5m2",
            name, h.descr);
    status = check_kinds(name, s.descr, wanted, err);
    if (status == LATHE_OK)
        status = check_size(&h, &s, size - data_at, out, err);
    if (status != LATHE_OK)
        return status;
    out->dtype = wanted;
    out->ndim = h.ndim;
    memcpy(out->shape, h.shape, sizeof out->shape);
    out->data = calloc((size_t)out->count + 1, lathe_dtype_size(wanted));
    status = out->data ? convert(&s, out, err)
                       : lathe__fail(err, LATHE_MEMORY, "%s: out of memory for its values", name);
    if (status != LATHE_OK)
        npy_free(out);
    return status;
}

void npy_free(struct npy *array)
{
    free(array->data);
    memset(array, 0, sizeof *array);
}

lathe_status npy_read(struct npy *out, const char *path, lathe_dtype wanted, lathe_error *err)
{
    lathe_status status = LATHE_OK;
    struct stat info;
    unsigned char *bytes = NULL;
    memset(out, 0, sizeof *out);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* opening a pipe would wait for its writer */
        return lathe__fail(err, LATHE_ARG, "%s: not a regular file", path);
    FILE *f = fopen(path, "rb");
    if (!f)
        return lathe__fail(err, LATHE_ARG, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fileno(f), &info) != 0 || !S_ISREG(info.st_mode)) {
        status = lathe__fail(err, LATHE_ARG, "%s: not a regular file", path);
        goto done;
    }
    const size_t size = (size_t)info.st_size;
    bytes = malloc(size + 1);
    if (!bytes)
        status = lathe__fail(err, LATHE_MEMORY, "%s: out of memory for %zu bytes", path, size);
    else if (fread(bytes, 1, size, f) != size)
        status = lathe__fail(err, LATHE_ARG, "%s: cannot be read to its end", path);
    else
        status = npy_parse(out, path, bytes, size, wanted, err);
done:
    free(bytes);
    fclose(f);
    return status;
}

static const char *written_descr(lathe_dtype dtype)
{
    switch (dtype) {
    case LATHE_F16:
        return "<f2";
    case LATHE_I32:
        return "<i4";
    case LATHE_U8:
        return "|u1";
    case LATHE_F64:
        return "<f8";
    case LATHE_I8:
        return "|i1";
    case LATHE_F8_E4M3:
    case LATHE_F8_E5M2:
    case LATHE_NONE:
    case LATHE_F32:
    case LATHE_BF16:
        break;
    }
    return "<f4";
}

/* Version 1: mark, version, length, dict, blanks up to a multiple of 64, newline. */
static bool write_header(FILE *f, lathe_dtype dtype, int ndim, const int64_t *shape)
{
    char text[512];
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                     written_descr(dtype));
    for (int i = 0; i < ndim; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%" PRId64 "%s", shape[i],
                      i + 1 < ndim || ndim == 1 ? "," : "");
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    while ((10 + n + 1) % 64)
        text[n++] = ' ';
    text[n++] = '\n';
    const unsigned char start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    return fwrite(start, 1, sizeof start, f) == sizeof start && fwrite(text, 1, (size_t)n, f) == (size_t)n;
}

static bool write_data(FILE *f, lathe_dtype dtype, int64_t count, const void *data)
{
    if (dtype != LATHE_BF16 && !is_byte_float(dtype))
        return fwrite(data, lathe_dtype_size(dtype), (size_t)count, f) == (size_t)count;
    bool good = true;
    for (int64_t i = 0; i < count && good; i++) {
        const float value = (float)dtype_load(dtype, data, i);
        good = fwrite(&value, sizeof value, 1, f) == 1;
    }
    return good;
}

lathe_status npy_write(const char *path, lathe_dtype dtype, int ndim, const int64_t *shape, const void *data,
                       lathe_error *err)
{
    int64_t count = 1;
    if (ndim < 0 || ndim > NPY_MAX_DIMS || lathe_dtype_size(dtype) == 0)
        return lathe__fail(err, LATHE_ARG, "%s: expected a dtype and at most %d dims, given %s and %d", path,
                           NPY_MAX_DIMS, lathe_dtype_text(dtype), ndim);
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    struct output out;
    if (!output_open(&out, path))
        return lathe__fail(err, LATHE_ARG, "%s: cannot be written: %s", path, strerror(errno));
    const bool good = write_header(out.file, dtype, ndim, shape) && write_data(out.file, dtype, count, data);
    if (!output_close(&out, good))
        return lathe__fail(err, LATHE_ARG, "%s: cannot be written to its end: %s", path, strerror(errno));
    return LATHE_OK;
}
