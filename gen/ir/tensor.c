/*
 * tensor.c: one element of a tensor as a double, and back. In: an argument of the public API with host
 * data. Loads are exact. Stores round to nearest, ties to even, in one step from the double (never
 * through a wider format), with subnormals, infinities and NaN; i32 and u8 truncate and saturate, numbers of
 * 8 bits (f8e4m3, f8e5m2, i8) round and saturate. Indices are not checked here: whoever computes them from a
 * spec does (eval.c). Nothing is allocated.
 */
#include "gen/ir/tensor.h"

#include <math.h>
#include <string.h>

/* A binary format: sign, exponent, mantissa. */
struct half_format {
    int exponent_bits;
    int mantissa_bits;
    bool finite; /* no infinities: of the largest exponent all numbers but the last, which is NaN */
};
static const struct half_format F16_FORMAT = {5, 10, false};
static const struct half_format BF16_FORMAT = {8, 7, false};
static const struct half_format E4M3_FORMAT = {4, 3, true};
static const struct half_format E5M2_FORMAT = {5, 2, false};

/* 2^n, of n from -1022 to 1023: products with it are exact, where ldexp is a call. */
static double power_of_two(int n)
{
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Of the leading bit of a size that is a normal double; of 0 and of what is smaller one that no format has.
 */
static int leading_exponent(double size)
{
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

static double half_load(struct half_format f, uint16_t bits)
{
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const int top = (1 << f.exponent_bits) - 1;
    const int exponent = (bits >> f.mantissa_bits) & top;
    const int last = (1 << f.mantissa_bits) - 1;
    const int mantissa = bits & last;
    double value;
    if (exponent == top && (!f.finite || mantissa == last))
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = mantissa * power_of_two(1 - bias - f.mantissa_bits);
    else
        value = (mantissa + (1 << f.mantissa_bits)) * power_of_two(exponent - bias - f.mantissa_bits);
    return bits >> (f.exponent_bits + f.mantissa_bits) & 1 ? -value : value;
}

static uint16_t half_store(struct half_format f, double value)
{
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const int32_t infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return (uint16_t)(sign | infinity | (1 << (f.mantissa_bits - 1)));
    const double size = fabs(value);
    if (!f.finite && size >= power_of_two(bias) * 2.0)
        return (uint16_t)(sign | infinity);
    int lead = leading_exponent(size); /* that of the smallest normal number for subnormals */
    if (lead < 1 - bias)
        lead = 1 - bias;
    /* In units of the last mantissa bit: up to 2^(mantissa_bits + 1), whose carry runs into the exponent. */
    const int32_t units = (int32_t)nearbyint(size * power_of_two(f.mantissa_bits - lead));
    const int32_t bits = ((lead + bias - 1) << f.mantissa_bits) + units;
    return (uint16_t)(sign | (!f.finite && bits > infinity ? infinity : bits));
}

/* What is beyond the largest number becomes that one. */
static uint8_t byte_store(struct half_format f, double value)
{
    const uint8_t nan = 0x7f; /* of either format */
    const double most = half_load(f, f.finite ? nan - 1 : (uint16_t)(nan - (1 << f.mantissa_bits)));
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    if (isnan(value))
        return sign | nan;
    return (uint8_t)(sign | half_store(f, fabs(value) < most ? fabs(value) : most));
}

static double saturate(double value, double low, double high)
{
    if (isnan(value))
        return 0.0;
    return value < low ? low : value > high ? high : trunc(value);
}

double dtype_load(lathe_dtype dtype, const void *data, int64_t element)
{
    switch (dtype) {
    case LATHE_F32:
        return (double)((const float *)data)[element];
    case LATHE_F16:
        return half_load(F16_FORMAT, ((const uint16_t *)data)[element]);
    case LATHE_BF16: { /* the upper half of a float */
        const uint32_t bits = (uint32_t)((const uint16_t *)data)[element] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    case LATHE_I32:
        return ((const int32_t *)data)[element];
    case LATHE_U8:
        return ((const uint8_t *)data)[element];
    case LATHE_F64:
        return ((const double *)data)[element];
    case LATHE_F8_E4M3:
        return half_load(E4M3_FORMAT, ((const uint8_t *)data)[element]);
    case LATHE_F8_E5M2:
        return half_load(E5M2_FORMAT, ((const uint8_t *)data)[element]);
    case LATHE_I8:
        return ((const int8_t *)data)[element];
    case LATHE_NONE:
        break;
    }
    return (double)NAN;
}

void dtype_store(lathe_dtype dtype, void *data, int64_t element, double value)
{
    switch (dtype) {
    case LATHE_F32:
        ((float *)data)[element] = (float)value;
        break;
    case LATHE_F16:
        ((uint16_t *)data)[element] = half_store(F16_FORMAT, value);
        break;
    case LATHE_BF16:
        ((uint16_t *)data)[element] = half_store(BF16_FORMAT, value);
        break;
    case LATHE_I32:
        ((int32_t *)data)[element] = (int32_t)saturate(value, -2147483648.0, 2147483647.0);
        break;
    case LATHE_U8:
        ((uint8_t *)data)[element] = (uint8_t)saturate(value, 0.0, 255.0);
        break;
    case LATHE_F64:
        ((double *)data)[element] = value;
        break;
    case LATHE_F8_E4M3:
        ((uint8_t *)data)[element] = byte_store(E4M3_FORMAT, value);
        break;
    case LATHE_F8_E5M2:
        ((uint8_t *)data)[element] = byte_store(E5M2_FORMAT, value);
        break;
    case LATHE_I8:
        ((int8_t *)data)[element] = (int8_t)saturate(nearbyint(value), -128.0, 127.0);
        break;
    case LATHE_NONE:
        break;
    }
}

bool dtype_is_rounded(lathe_dtype dtype, double got, double wanted, double off)
{
    unsigned char least = 0;
    unsigned char most = 0;
    if (lathe_dtype_size(dtype) != 1 || dtype == LATHE_U8)
        return false;
    dtype_store(dtype, &least, 0, wanted - off);
    dtype_store(dtype, &most, 0, wanted + off);
    return got >= dtype_load(dtype, &least, 0) && got <= dtype_load(dtype, &most, 0);
}

static int64_t element_of(const lathe_arg *t, const int64_t *index)
{
    int64_t element = 0;
    for (int i = 0; i < t->ndim; i++)
        element += index[i] * tensor_stride(t, i);
    return element;
}

void tensor_set(const lathe_arg *t, const int64_t *index, double value)
{
    dtype_store(t->dtype, t->data, element_of(t, index), value);
}

int64_t tensor_count(const lathe_arg *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->ndim; d++)
        count *= t->shape[d];
    return count;
}

void tensor_index(const lathe_arg *t, int64_t number, int64_t *index)
{
    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = number % t->shape[d];
        number /= t->shape[d];
    }
}

double tensor_nth(const lathe_arg *t, int64_t number)
{
    if (!t->strides)
        return dtype_load(t->dtype, t->data, number);
    int64_t element = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        element += number % t->shape[d] * t->strides[d];
        number /= t->shape[d];
    }
    return dtype_load(t->dtype, t->data, element);
}

void tensor_set_all(const lathe_arg *t, const double *value)
{
    const int64_t count = tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        int64_t index[MAX_DIMS] = {0};
        tensor_index(t, i, index);
        tensor_set(t, index, value[i]);
    }
}
