/*
 * tensor.c: values, rounding and memory layouts of the tensors of one case.
 *
 * In: a case and an argument row. Out: logical values (double, row-major) and the bytes that the device
 * sees, with poison (all bits set: NaN in every float format) wherever the tensor has no element.
 * case.c frees both. Rounding and encoding are written here anew, so that they check the library's.
 */
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF, MARGIN = 64 };

/* ---- numbers ------------------------------------------------------------------------------------- */

uint64_t random_bits(uint64_t *state) /* splitmix64 */
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t random_between(uint64_t *state, int64_t low, int64_t high)
{
    const uint64_t width = (uint64_t)(high - low) + 1;
    return low + (int64_t)(random_bits(state) % width);
}

double random_gaussian(uint64_t *state)
{
    const double u = ((double)(random_bits(state) >> 11) + 0.5) / 9007199254740992.0;
    const double w = (double)(random_bits(state) >> 11) / 9007199254740992.0;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * w);
}

/* To the nearest number with `bits` of mantissa, ties to even; below 2^least the spacing stays. */
static double round_to(double value, int bits, int least)
{
    int exponent = 0;
    (void)frexp(value, &exponent); /* |value| in [2^(exponent-1), 2^exponent) */
    const int lead = exponent - 1 > least ? exponent - 1 : least;
    return ldexp(nearbyint(ldexp(value, bits - lead)), lead - bits);
}

double dtype_round(lathe_dtype dtype, double value)
{
    if (!isfinite(value)) {
        return value;
    }
    switch (dtype) {
    case LATHE_F16:
        return round_to(value, 10, -14);
    case LATHE_BF16: /* tiny values become 0: what remains is exact in f16 too */
        return fabs(value) < 0x1p-14 ? 0.0 : round_to(value, 7, -126);
    case LATHE_I32:
    case LATHE_U8:
        return nearbyint(value);
    case LATHE_F64:
        return value;
    default:
        return (double)(float)value;
    }
}

static uint16_t half_bits(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    if (isinf(value)) {
        return (uint16_t)(sign | 0x7C00u);
    }
    const float magnitude = fabsf(value);
    if (magnitude >= 65520.0F) { /* halfway from the largest number to the next power of two */
        return (uint16_t)(sign | 0x7C00u);
    }
    if (magnitude < 0x1p-14f) {
        return (uint16_t)(sign | (uint32_t)lrintf(magnitude * 0x1p24f));
    }
    return (uint16_t)(sign | (((bits & 0x7FFFFFFFu) - 0x38000000u) >> 13));
}

static double half_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31;
    const int mantissa = bits & 1023;
    double magnitude = ldexp(mantissa, -24);
    if (exponent == 31) {
        magnitude = mantissa ? (double)NAN : (double)INFINITY;
    } else if (exponent > 0) {
        magnitude = ldexp(1024 + mantissa, exponent - 25);
    }
    return bits & 0x8000u ? -magnitude : magnitude;
}

void dtype_put(lathe_dtype dtype, void *data, int64_t element, double value)
{
    unsigned char *at = (unsigned char *)data + element * (int64_t)lathe_dtype_size(dtype);
    const float single = (float)value;
    const int32_t whole = dtype == LATHE_I32 || dtype == LATHE_U8 ? (int32_t)value : 0;
    uint32_t bits = 0;
    uint16_t half = 0;
    switch (dtype) {
    case LATHE_F64:
        memcpy(at, &value, sizeof value);
        break;
    case LATHE_I32:
        memcpy(at, &whole, sizeof whole);
        break;
    case LATHE_U8:
        *at = (unsigned char)whole;
        break;
    case LATHE_F16:
        half = half_bits(single);
        memcpy(at, &half, sizeof half);
        break;
    case LATHE_BF16:
        memcpy(&bits, &single, sizeof bits);
        half = (uint16_t)(bits >> 16);
        memcpy(at, &half, sizeof half);
        break;
    default:
        memcpy(at, &single, sizeof single);
        break;
    }
}

double dtype_get(lathe_dtype dtype, const void *data, int64_t element)
{
    const unsigned char *at = (const unsigned char *)data + element * (int64_t)lathe_dtype_size(dtype);
    double wide = 0.0;
    float single = 0.0F;
    int32_t whole = 0;
    uint16_t half = 0;
    uint32_t bits = 0;
    switch (dtype) {
    case LATHE_F64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case LATHE_I32:
        memcpy(&whole, at, sizeof whole);
        return whole;
    case LATHE_U8:
        return *at;
    case LATHE_F16:
        memcpy(&half, at, sizeof half);
        return half_value(half);
    case LATHE_BF16:
        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&single, &bits, sizeof single);
        return (double)single;
    default:
        memcpy(&single, at, sizeof single);
        return (double)single;
    }
}

/* ---- shapes -------------------------------------------------------------------------------------- */

bool tensor_is_output(const struct tensor *t)
{
    return t->row.role == ROLE_RESULT || t->row.role == ROLE_FINAL || t->row.role == ROLE_GRADIENT;
}

static int64_t dim_size(const char *word, size_t length, const struct test_case *c)
{
    static const char *const NAME[DIM_COUNT] = {"b",   "h",     "h_kv",  "q",    "kv", "d",
                                                "d_v", "rows0", "rows1", "rows", "n"};
    for (int i = 0; i < DIM_COUNT; i++) {
        if (strlen(NAME[i]) == length && strncmp(NAME[i], word, length) == 0) {
            return c->dim[i];
        }
    }
    return strtoll(word, NULL, 10);
}

void tensor_shape(struct tensor *t, const struct arg_row *row, const struct test_case *c)
{
    memset(t, 0, sizeof *t);
    t->row = *row;
    t->dtype = row->dtype;
    t->count = 1;
    int skip = c->spec->rowwise && strncmp(row->dims, "rows0", 5) == 0 ? 3 - c->leading : 0;
    for (const char *word = row->dims; *word;) {
        const size_t length = strcspn(word, " ");
        if (skip > 0) {
            skip--;
        } else {
            t->shape[t->ndim] = dim_size(word, length, c);
            t->count *= t->shape[t->ndim];
            t->ndim++;
        }
        word += length + (word[length] == ' ');
    }
    /* What a forward pass has saved differs from batch to batch with q. */
    const bool wide = t->ndim > 1 && t->shape[0] > 1 && !tensor_is_output(t) && row->role != ROLE_SAVED;
    t->broadcast = c->broadcast && wide && strcmp(row->name, "q") != 0 && strcmp(row->name, "x") != 0;
    t->given = !(c->absent && row->optional) && !(row->role == ROLE_SEED && c->seed % 2 == 0);
}

/* ---- values -------------------------------------------------------------------------------------- */

static double draw(const struct tensor *t, const struct test_case *c, int64_t flat, uint64_t *random)
{
    const struct arg_row *row = &t->row;
    const int64_t slice = t->ndim > 0 && t->shape[0] > 0 ? t->count / t->shape[0] : 1;
    double value = 0.0;
    switch (row->fill) {
    case FILL_INTEGER:
        return (double)random_between(random, (int64_t)row->low, (int64_t)row->high);
    case FILL_PREFIX:
        return (double)random_between(random, 0, c->dim[DIM_KV] + 3);
    case FILL_BLOCK:
        return (double)random_between(random, -1, c->dim[DIM_KV] / 64);
    case FILL_UNIFORM:
        return row->low + (row->high - row->low) * (double)random_between(random, 0, 1 << 20) / (1 << 20);
    case FILL_PARTS:
        return c->dim[DIM_N] <= 33 ? (double)c->dim[DIM_N] : 10.0;
    default:
        value = row->low + row->high * random_gaussian(random);
        break;
    }
    if (c->infinite && row->may_be_infinite && (flat < slice || random_between(random, 0, 9) < 3)) {
        return (double)-INFINITY;
    }
    const bool scaled = c->skewed && (strcmp(row->name, "q") == 0 || strcmp(row->name, "x") == 0);
    return scaled ? 40.0 * value : value;
}

/* Documents of random lengths, the first boundary rarely on a tile. */
static void draw_documents(struct tensor *t, uint64_t *random)
{
    const int64_t length = t->shape[t->ndim - 1];
    for (int64_t row = 0; length > 0 && row < t->count / length; row++) {
        int64_t document = 0;
        for (int64_t i = 0; i < length; i++) {
            document += random_between(random, 0, 39) == 0;
            t->value[row * length + i] = (double)document;
        }
    }
}

bool tensor_values(struct tensor *t, const struct test_case *c)
{
    t->value = calloc(t->count > 0 ? (size_t)t->count : 1, sizeof *t->value);
    if (!t->value) {
        return false;
    }
    uint64_t random = c->seed;
    for (const char *name = t->row.name; *name; name++) {
        random = random * 31 + (unsigned char)*name;
    }
    if (t->row.fill == FILL_DOCUMENT) {
        draw_documents(t, &random);
    } else {
        const lathe_dtype rounding = t->row.dtype == LATHE_NONE ? c->rounding : t->row.dtype;
        for (int64_t i = 0; i < t->count; i++) {
            t->value[i] = dtype_round(rounding, draw(t, c, i, &random));
        }
    }
    const int64_t slice = t->broadcast ? t->count / t->shape[0] : t->count;
    for (int64_t i = slice; i < t->count; i++) {
        t->value[i] = t->value[i - slice];
    }
    return true;
}

/* ---- layouts ------------------------------------------------------------------------------------- */

const char *layout_name(enum layout layout)
{
    static const char *const NAME[LAYOUT_COUNT] = {"compact",      "swapped",    "padded",
                                                   "half-aligned", "misaligned", "columns"};
    return NAME[layout];
}

static bool unit_last(const struct tensor *t)
{
    return t->row.dtype == LATHE_NONE && t->row.role != ROLE_INPUT;
}

/* order[0] is the outermost dim in memory. */
static void storage_order(const struct tensor *t, enum layout layout, int *order)
{
    for (int i = 0; i < t->ndim; i++) {
        order[i] = i;
    }
    const char *const name = t->row.name;
    static const char *const ANY_LAST[] = {"q", "k", "q2", "k2", "v", "do"};
    bool any_last = false;
    for (size_t i = 0; i < sizeof ANY_LAST / sizeof *ANY_LAST; i++)
        any_last |= strcmp(name, ANY_LAST[i]) == 0;
    if (layout == LAYOUT_COLUMNS && any_last && t->ndim == 4) {
        order[2] = 3;
        order[3] = 2;
    }
    const int movable = unit_last(t) ? t->ndim - 1 : t->ndim;
    if (layout == LAYOUT_SWAPPED && movable >= 2) {
        order[movable - 1] = movable - 2;
        order[movable - 2] = movable - 1;
    }
}

/* Extra elements after each row; rows start at a multiple of `grain` elements. */
static int64_t grain_of(const struct tensor *t, enum layout layout)
{
    if (layout == LAYOUT_PADDED) {
        return 16 / (int64_t)lathe_dtype_size(t->dtype);
    }
    return layout == LAYOUT_HALF ? 4 : 1;
}

static int64_t round_up(int64_t value, int64_t grain)
{
    return (value + grain - 1) / grain * grain;
}

void tensor_lay_out(struct tensor *t, enum layout layout, uint64_t *random)
{
    const bool padded = layout >= LAYOUT_PADDED && layout != LAYOUT_COLUMNS;
    const int64_t grain = grain_of(t, layout);
    int order[CASE_DIMS] = {0};
    storage_order(t, layout, order);
    int64_t stride = padded && !unit_last(t) && t->ndim > 0 ? random_between(random, 1, 2) : 1;
    int64_t reach = t->count > 0 ? 1 : 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int dim = order[i];
        const bool still = t->broadcast && dim == 0;
        t->strides[dim] = still ? 0 : stride;
        reach += t->count > 0 ? (t->shape[dim] - 1) * t->strides[dim] : 0;
        stride *= still ? 1 : (t->shape[dim] > 0 ? t->shape[dim] : 1);
        if (padded && i > 0) {
            const int64_t more = round_up(stride, grain) + grain * random_between(random, 1, 3);
            stride = grain == 1 ? more | 1 : more; /* an odd stride: no two rows share their alignment */
        }
    }
    t->offset = padded ? (layout == LAYOUT_PADDED ? MARGIN : grain) : 0;
    t->span = t->offset + reach + (padded ? MARGIN : 0);
}

int64_t tensor_element(const struct tensor *t, int64_t flat)
{
    int64_t place = t->offset;
    for (int i = t->ndim - 1; i >= 0; i--) {
        place += flat % t->shape[i] * t->strides[i];
        flat /= t->shape[i];
    }
    return place;
}

bool tensor_pack(struct tensor *t)
{
    const size_t size = (size_t)t->span * lathe_dtype_size(t->dtype);
    t->bytes = malloc(size ? size : 1);
    t->again = tensor_is_output(t) ? malloc(size ? size : 1) : NULL;
    if (!t->bytes || (tensor_is_output(t) && !t->again)) {
        return false;
    }
    memset(t->bytes, POISON, size);
    if (tensor_is_output(t)) {
        return true;
    }
    const bool exact = t->row.role != ROLE_SAVED; /* what a forward pass of this dtype would have saved */
    for (int64_t i = 0; i < t->count; i++) {
        const double value = exact ? t->value[i] : dtype_round(t->dtype, t->value[i]);
        dtype_put(t->dtype, t->bytes, tensor_element(t, i), value);
    }
    return true;
}

int64_t tensor_spilled(const struct tensor *t)
{
    const size_t element = lathe_dtype_size(t->dtype);
    unsigned char *own = calloc(t->span > 0 ? (size_t)t->span : 1, 1);
    if (!own) {
        return t->span;
    }
    for (int64_t i = 0; i < t->count; i++) {
        own[tensor_element(t, i)] = 1;
    }
    int64_t spilled = 0;
    for (int64_t i = 0; i < t->span; i++) {
        const unsigned char *at = t->bytes + (size_t)i * element;
        bool poison = true;
        for (size_t byte = 0; byte < element; byte++) {
            poison = poison && at[byte] == POISON;
        }
        spilled += !own[i] && !poison;
    }
    free(own);
    return spilled;
}

lathe_arg tensor_arg(const struct tensor *t, void *data)
{
    const lathe_arg arg = {
        t->row.name, (unsigned char *)data + t->offset * (int64_t)lathe_dtype_size(t->dtype),
        t->dtype,    t->ndim,
        t->shape,    t->strides};
    return arg;
}
