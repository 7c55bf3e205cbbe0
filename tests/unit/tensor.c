/*
 * tensor.c: elements of tensors as doubles. Conversions are checked over every 16-bit pattern: against
 * the formula of the format, against midpoints of neighbours, and against stores that would round twice.
 * Each test owns what it makes; nothing outlives it.
 */
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdint.h>

/* Value of a pattern by the definition of the format. */
static double formula(unsigned bits, int exponent_bits, int mantissa_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double fraction = (double)(bits & ((1u << mantissa_bits) - 1u)) / pow(2.0, mantissa_bits);
    const double sign = bits & 0x8000u ? -1.0 : 1.0;
    return exponent == 0 ? sign * fraction * pow(2.0, 1 - bias)
                         : sign * (1.0 + fraction) * pow(2.0, exponent - bias);
}

static uint16_t store16(lathe_dtype dtype, double value)
{
    uint16_t bits = 0x1234;
    dtype_store(dtype, &bits, 0, value);
    return bits;
}

static double load16(lathe_dtype dtype, unsigned bits)
{
    const uint16_t stored = (uint16_t)bits;
    return dtype_load(dtype, &stored, 0);
}

static void every_pattern(lathe_dtype dtype, int exponent_bits, int mantissa_bits)
{
    const unsigned infinity = ((1u << exponent_bits) - 1u) << mantissa_bits;
    for (unsigned bits = 0; bits < 0x10000u; bits++) {
        const unsigned size = bits & 0x7fffu;
        const double value = load16(dtype, bits);
        if (size > infinity) {
            CHECK(isnan(value));
            continue;
        }
        if (size == infinity)
            CHECK(isinf(value) && (value < 0) == (bits > 0x7fffu));
        else
            CHECK(value == formula(bits, exponent_bits, mantissa_bits));
        CHECK_EQ(store16(dtype, value), bits);
    }
    const uint16_t nan_bits = store16(dtype, (double)NAN);
    CHECK((nan_bits & 0x7fffu) > infinity);
}

/* Between two neighbours: below the middle down, above it up, the middle itself to the even one. */
static void every_middle(lathe_dtype dtype, int exponent_bits, int mantissa_bits)
{
    const unsigned infinity = ((1u << exponent_bits) - 1u) << mantissa_bits;
    for (unsigned bits = 0; bits + 1 < infinity; bits++) {
        const double middle = (load16(dtype, bits) + load16(dtype, bits + 1)) / 2.0;
        CHECK_EQ(store16(dtype, nextafter(middle, 0.0)), bits);
        CHECK_EQ(store16(dtype, nextafter(middle, 1e300)), bits + 1);
        CHECK_EQ(store16(dtype, middle), bits % 2 ? bits + 1 : bits);
        CHECK_EQ(store16(dtype, -middle), (bits % 2 ? bits + 1 : bits) | 0x8000u);
    }
}

TEST(f16_is_exact)
{
    every_pattern(LATHE_F16, 5, 10);
    every_middle(LATHE_F16, 5, 10);
}

TEST(bf16_is_exact)
{
    every_pattern(LATHE_BF16, 8, 7);
    every_middle(LATHE_BF16, 8, 7);
}

TEST(sixteen_bits_overflow_to_infinity)
{
    CHECK_EQ(store16(LATHE_F16, 65504.0), 0x7bff);
    CHECK_EQ(store16(LATHE_F16, nextafter(65520.0, 0.0)), 0x7bff);
    CHECK_EQ(store16(LATHE_F16, 65520.0), 0x7c00);
    CHECK_EQ(store16(LATHE_F16, -1e300), 0xfc00);
    CHECK_EQ(store16(LATHE_BF16, 3.4e38), 0x7f80);
    CHECK_EQ(store16(LATHE_BF16, 1e308), 0x7f80);
    CHECK_EQ(store16(LATHE_F16, 1e-300), 0);
    CHECK_EQ(store16(LATHE_F16, -5e-324), 0x8000);
}

/* 1 + half a unit + a bit that a float cannot hold: through a float it would be a tie. */
TEST(stores_round_once)
{
    CHECK_EQ(store16(LATHE_BF16, 1.0 + ldexp(1.0, -8) + ldexp(1.0, -40)), 0x3f81);
    CHECK_EQ(store16(LATHE_F16, 1.0 + ldexp(1.0, -11) + ldexp(1.0, -40)), 0x3c01);
    CHECK_EQ(store16(LATHE_F16, 1.0 + ldexp(1.0, -11)), 0x3c00);
}

TEST(other_dtypes)
{
    float f = 0;
    double d = 0;
    int32_t i = 0;
    uint8_t u = 0;
    dtype_store(LATHE_F32, &f, 0, 0.1);
    CHECK(f == 0.1f && dtype_load(LATHE_F32, &f, 0) == (double)0.1f);
    dtype_store(LATHE_F64, &d, 0, 0.1);
    CHECK(dtype_load(LATHE_F64, &d, 0) == 0.1);
    dtype_store(LATHE_I32, &i, 0, -2.9);
    CHECK_EQ(i, -2);
    dtype_store(LATHE_I32, &i, 0, 1e20);
    CHECK_EQ(i, INT32_MAX);
    dtype_store(LATHE_I32, &i, 0, -1e20);
    CHECK_EQ(i, INT32_MIN);
    CHECK(dtype_load(LATHE_I32, &i, 0) == -2147483648.0);
    dtype_store(LATHE_U8, &u, 0, 300.0);
    CHECK_EQ(u, 255);
    dtype_store(LATHE_U8, &u, 0, -1.0);
    CHECK_EQ(u, 0);
    u = 200;
    CHECK(dtype_load(LATHE_U8, &u, 0) == 200.0);
}

TEST(compact_and_strided)
{
    float data[24];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    const int64_t shape[] = {2, 3, 4};
    const lathe_arg compact = {"t", data, LATHE_F32, 3, shape, NULL};
    const int64_t index[] = {1, 2, 3};
    CHECK_EQ(tensor_stride(&compact, 0), 12);
    CHECK_EQ(tensor_stride(&compact, 1), 4);
    CHECK_EQ(tensor_stride(&compact, 2), 1);
    CHECK(tensor_nth(&compact, 23) == 23.0);
    const int64_t strides[] = {1, 8, 2}; /* any order, and a broadcast dim below */
    const lathe_arg strided = {"t", data, LATHE_F32, 3, shape, strides};
    CHECK(tensor_nth(&strided, 23) == 1.0 + 16.0 + 6.0);
    tensor_set(&strided, index, -1.0);
    CHECK(data[23] == -1.0f);
    const int64_t spread[] = {0, 4, 1};
    const lathe_arg broadcast = {"t", data, LATHE_F32, 3, shape, spread};
    CHECK(tensor_nth(&broadcast, 23) == 11.0);
    const lathe_arg scalar = {"s", &data[5], LATHE_F32, 0, NULL, NULL};
    CHECK(tensor_nth(&scalar, 0) == 5.0);
}

/* Numbers of elements are those of a compact tensor, wherever they lie. */
TEST(all_elements_in_the_order_of_rows)
{
    float data[24] = {0};
    const int64_t shape[] = {2, 3, 4};
    const int64_t strides[] = {1, 8, 2};
    const lathe_arg strided = {"t", data, LATHE_F32, 3, shape, strides};
    double value[24];
    for (int i = 0; i < 24; i++)
        value[i] = 100.0 + i;
    CHECK_EQ(tensor_count(&strided), 24);
    int64_t index[3];
    tensor_index(&strided, 17, index);
    CHECK_EQ(index[0], 1);
    CHECK_EQ(index[1], 1);
    CHECK_EQ(index[2], 1);
    tensor_set_all(&strided, value);
    CHECK(data[1 + 8 + 2] == 117.0f);
    CHECK(data[0] == 100.0f);
    CHECK(data[1 + 16 + 6] == 123.0f);
    const lathe_arg scalar = {"s", &data[5], LATHE_F32, 0, NULL, NULL};
    CHECK_EQ(tensor_count(&scalar), 1);
    tensor_set_all(&scalar, value);
    CHECK(data[5] == 100.0f);
    const int64_t none[] = {2, 0};
    const lathe_arg empty = {"e", data, LATHE_F32, 2, none, NULL};
    CHECK_EQ(tensor_count(&empty), 0);
}

/* ---- numbers of 8 bits ---------------------------------------------------------------------------- */

/* Non-negative numbers of e4m3fn (OCP 8-bit floating point, table 2): code 8 e + m. */
static double e4m3_of(int code)
{
    static const double unit[16] = {0x1p-9, 0x1p-9, 0x1p-8, 0x1p-7, 0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3,
                                    0x1p-2, 0x1p-1, 1.0,    2.0,    4.0,    8.0,    16.0,   32.0};
    const int e = code / 8;
    return code == 127 ? (double)NAN : unit[e] * (e == 0 ? code % 8 : 8 + code % 8);
}

/* Of e5m2: code 4 e + m. */
static double e5m2_of(int code)
{
    if (code >= 124)
        return code == 124 ? (double)INFINITY : (double)NAN;
    return code < 4 ? code * 0x1p-16 : (4 + code % 4) * pow(2.0, code / 4 - 17);
}

static int store8(lathe_dtype dtype, double value)
{
    uint8_t bits = 0x55;
    dtype_store(dtype, &bits, 0, value);
    return bits;
}

static double load8(lathe_dtype dtype, int bits)
{
    const uint8_t stored = (uint8_t)bits;
    return dtype_load(dtype, &stored, 0);
}

static void every_code(lathe_dtype dtype, double (*of)(int), int most)
{
    for (int code = 0; code < 256; code++) {
        const double wanted = (code & 0x80 ? -1.0 : 1.0) * of(code & 0x7f);
        const double got = load8(dtype, code);
        CHECK(isnan(wanted) ? isnan(got) : got == wanted && !signbit(got) == !(code & 0x80));
        if (!isnan(wanted))
            CHECK_EQ(store8(dtype, got), (code & 0x7f) > most ? most | (code & 0x80) : code);
    }
    for (int code = 0; code < most; code++) {
        const double middle = (of(code) + of(code + 1)) / 2.0;
        CHECK_EQ(store8(dtype, nextafter(middle, 0.0)), code);
        CHECK_EQ(store8(dtype, nextafter(middle, 1e300)), code + 1);
        CHECK_EQ(store8(dtype, middle), code % 2 ? code + 1 : code);
        CHECK_EQ(store8(dtype, -middle), (code % 2 ? code + 1 : code) | 0x80);
    }
    CHECK_EQ(store8(dtype, nextafter(of(most), 1e300)), most);
    CHECK_EQ(store8(dtype, 1e300), most);
    CHECK_EQ(store8(dtype, -(double)INFINITY), most | 0x80);
    CHECK(isnan(load8(dtype, store8(dtype, (double)NAN))));
}

TEST(e4m3_is_as_its_table_and_saturates)
{
    every_code(LATHE_F8_E4M3, e4m3_of, 0x7e);
    CHECK(load8(LATHE_F8_E4M3, 0x7e) == 448.0 && load8(LATHE_F8_E4M3, 1) == 0x1p-9);
}

TEST(e5m2_is_as_its_table_and_saturates)
{
    every_code(LATHE_F8_E5M2, e5m2_of, 0x7b);
    CHECK(load8(LATHE_F8_E5M2, 0x7b) == 57344.0 && load8(LATHE_F8_E5M2, 1) == 0x1p-16);
}

TEST(i8_rounds_to_even_and_saturates)
{
    for (int value = -128; value < 128; value++) {
        CHECK(load8(LATHE_I8, value & 0xff) == value);
        CHECK_EQ(store8(LATHE_I8, value), value & 0xff);
        CHECK_EQ((int8_t)store8(LATHE_I8, value + 0.5), value == 127 ? 127 : value % 2 ? value + 1 : value);
        CHECK_EQ((int8_t)store8(LATHE_I8, value + 0.49), value);
    }
    CHECK_EQ((int8_t)store8(LATHE_I8, 1e9), 127);
    CHECK_EQ((int8_t)store8(LATHE_I8, -(double)INFINITY), -128);
    CHECK_EQ(store8(LATHE_I8, (double)NAN), 0);
}
