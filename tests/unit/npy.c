/*
 * npy.c: .npy files of every version and dtype, conversions, and bytes that are no .npy file.
 * Files are made here byte by byte, not by the writer under test.
 */
#include "check.h"
#include "gen/gen.h"
#include "gen/tool/npy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct file {
    unsigned char bytes[2048];
    size_t size;
};

static void make(struct file *f, int version, const char *header, const void *data, size_t size)
{
    const size_t length = strlen(header);
    memcpy(f->bytes, "\x93NUMPY", 6);
    f->bytes[6] = (unsigned char)version;
    f->bytes[7] = 0;
    f->bytes[8] = (unsigned char)length;
    f->bytes[9] = (unsigned char)(length >> 8);
    f->size = 10;
    if (version > 1) {
        f->bytes[10] = 0;
        f->bytes[11] = 0;
        f->size = 12;
    }
    memcpy(f->bytes + f->size, header, length);
    f->size += length;
    if (size)
        memcpy(f->bytes + f->size, data, size);
    f->size += size;
}

static lathe_status parse(struct npy *out, const struct file *f, lathe_dtype wanted, lathe_error *err)
{
    memset(err, 0, sizeof *err);
    return npy_parse(out, "a.npy", f->bytes, f->size, wanted, err);
}

static const float VALUES[6] = {0.0f, -1.5f, 3.25f, 1e-8f, 65504.0f, -0.1f};

TEST(versions)
{
    struct file f;
    struct npy a;
    lathe_error err;
    for (int version = 1; version <= 3; version++) {
        make(&f, version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", VALUES,
             sizeof VALUES);
        CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_OK);
        CHECK_EQ(a.dtype, LATHE_F32);
        CHECK_EQ(a.ndim, 2);
        CHECK_EQ(a.shape[0], 2);
        CHECK_EQ(a.shape[1], 3);
        CHECK_EQ(a.count, 6);
        CHECK_EQ(memcmp(a.data, VALUES, sizeof VALUES), 0);
        npy_free(&a);
    }
    make(&f, 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", VALUES, 4);
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "a.npy: expected .npy version 1, 2 or 3, given 4.0");
}

TEST(shapes)
{
    struct file f;
    struct npy a;
    lathe_error err;
    make(&f, 1, "{'shape': (), 'descr': \"<f4\", 'fortran_order': False}", VALUES, 4);
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_OK);
    CHECK_EQ(a.ndim, 0);
    CHECK_EQ(a.count, 1);
    npy_free(&a);
    make(&f, 1, "{'shape': (6,), 'descr': '<f4', 'fortran_order': False}", VALUES, 24);
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_OK);
    CHECK_EQ(a.ndim, 1);
    npy_free(&a);
    make(&f, 1, "{'shape': (9223372036854775807, 0, 9), 'descr': '<f4', 'fortran_order': False}", NULL, 0);
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_OK);
    CHECK_EQ(a.count, 0);
    npy_free(&a);
}

TEST(fortran_order_is_converted)
{
    struct file f;
    struct npy a;
    lathe_error err;
    int32_t column_major[24];
    int n = 0;
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 3; j++)
            for (int i = 0; i < 2; i++)
                column_major[n++] = i * 100 + j * 10 + k;
    make(&f, 1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4)}", column_major,
         sizeof column_major);
    CHECK_EQ(parse(&a, &f, LATHE_I32, &err), LATHE_OK);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                CHECK_EQ(((int32_t *)a.data)[(i * 3 + j) * 4 + k], i * 100 + j * 10 + k);
    npy_free(&a);
}

TEST(floats_convert)
{
    struct file f;
    struct npy a;
    lathe_error err;
    static const lathe_dtype wanted[] = {LATHE_F32, LATHE_F16, LATHE_BF16, LATHE_F64};
    static const double tolerance[] = {0, 1e-3, 4e-3, 0};
    make(&f, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", VALUES, sizeof VALUES);
    for (int w = 0; w < 4; w++) {
        CHECK_EQ(parse(&a, &f, wanted[w], &err), LATHE_OK);
        for (int i = 0; i < 6; i++)
            CHECK(fabs(dtype_load(a.dtype, a.data, i) - (double)VALUES[i]) <=
                  tolerance[w] * fabs((double)VALUES[i]) + (tolerance[w] > 0 ? 6e-8 : 0));
        npy_free(&a);
    }
}

TEST(rounding_is_to_nearest_even)
{
    struct file f;
    struct npy a;
    lathe_error err;
    /* halfway between two bf16: 1 + 2^-8 goes down to 1, 1 + 3 * 2^-8 up to 1 + 2^-6 */
    static const double halfway[3] = {1.00390625, 1.01171875, 1.00390626};
    static const uint16_t bits[3] = {0x3f80, 0x3f82, 0x3f81};
    make(&f, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", halfway, sizeof halfway);
    CHECK_EQ(parse(&a, &f, LATHE_BF16, &err), LATHE_OK);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(((uint16_t *)a.data)[i], bits[i]);
    npy_free(&a);
}

TEST(bits_of_bf16)
{
    struct file f;
    struct npy a;
    lathe_error err;
    static const uint16_t bits[4] = {0x3f80, 0xc040, 0x7f80, 0x0000};
    static const char *const descr[] = {"<u2", "|V2", "<V2"};
    char header[128];
    for (int i = 0; i < 3; i++) {
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2, 2)}", descr[i]);
        make(&f, 1, header, bits, sizeof bits);
        CHECK_EQ(parse(&a, &f, LATHE_BF16, &err), LATHE_OK);
        CHECK_EQ(memcmp(a.data, bits, sizeof bits), 0);
        npy_free(&a);
        CHECK_EQ(parse(&a, &f, LATHE_F16, &err), LATHE_ARG);
        CHECK_HAS(err.text, "is read as the bits of bf16 only, expected values for f16");
    }
}

TEST(numbers_that_a_dtype_does_not_hold)
{
    static const struct {
        double value;
        lathe_dtype dtype;
        const char *refusal;
    } cases[] = {
        {1e300, LATHE_F32, "expected values that f32 holds, given 1e+300 at element 1"},
        {-1e5, LATHE_F16, "expected values that f16 holds, given -100000 at element 1"},
        {3.392e38, LATHE_BF16, ""}, /* the largest one is 3.3895e38: rounds to it */
        {500, LATHE_F8_E4M3, "expected values that f8e4m3 holds, given 500 at element 1"},
        {447, LATHE_F8_E4M3, ""}, /* rounds to 448 */
        {-6e4, LATHE_F8_E5M2, "expected values that f8e5m2 holds"},
        {-128, LATHE_I8, ""},
        {128, LATHE_I8, "expected values that i8 holds, given 128"},
        {(double)INFINITY, LATHE_F16, ""},
        {(double)NAN, LATHE_F16, ""},
        {1e-300, LATHE_F32, ""}, /* rounds to 0 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double values[2] = {1, cases[i].value};
        struct file f;
        struct npy a;
        lathe_error err = {0};
        make(&f, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", values, sizeof values);
        const bool refused = cases[i].refusal[0] != 0;
        CHECK_EQ(parse(&a, &f, cases[i].dtype, &err), refused ? LATHE_ARG : LATHE_OK);
        CHECK_HAS(err.text, cases[i].refusal);
        npy_free(&a);
    }
}

TEST(whole_numbers)
{
    struct file f;
    struct npy a;
    lathe_error err;
    int64_t wide[3] = {-5, 7, 255};
    make(&f, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", wide, sizeof wide);
    CHECK_EQ(parse(&a, &f, LATHE_I32, &err), LATHE_OK);
    CHECK_EQ(((int32_t *)a.data)[0], -5);
    npy_free(&a);
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_OK);
    CHECK_CLOSE(((float *)a.data)[1], 7.0, 0);
    npy_free(&a);
    CHECK_EQ(parse(&a, &f, LATHE_U8, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected values from 0 to 255 for u8, given -5 at element 0");
    wide[0] = INT64_C(1) << 31;
    make(&f, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", wide, sizeof wide);
    CHECK_EQ(parse(&a, &f, LATHE_I32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "given 2147483648 at element 0");
    make(&f, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", VALUES, sizeof VALUES);
    CHECK_EQ(parse(&a, &f, LATHE_I32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "expected whole numbers for i32, given dtype '<f4'");
    make(&f, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\1\0", 2);
    CHECK_EQ(parse(&a, &f, LATHE_U8, &err), LATHE_OK);
    npy_free(&a);
}

TEST(bad_files)
{
    static const struct {
        const char *header;
        const char *part;
    } cases[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (6,)}", "dtype '>f4' is not read"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (6,)}", "dtype '<c8' is not read"},
        {"{'descr': '', 'fortran_order': False, 'shape': (6,)}", "cannot read the .npy header"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False}", "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}", "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}", "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6)}", "at most 8 dims"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}", "cannot read the .npy header"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
         "cannot read the .npy header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}",
         "expected 28 bytes of data from its header, given 24"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,)}",
         "expected 20 bytes of data from its header, given 24"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "overflow"},
        {"", "cannot read the .npy header"},
    };
    struct file f;
    struct npy a;
    lathe_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make(&f, 1, cases[i].header, VALUES, sizeof VALUES);
        CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_ARG);
        CHECK_HAS(err.text, cases[i].part);
        CHECK(a.data == NULL);
    }
    f = (struct file){.bytes = "PK\3\4", .size = 4};
    CHECK_EQ(parse(&a, &f, LATHE_F32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "not a .npy file");
}

TEST(every_cut_is_refused)
{
    struct file f;
    struct npy a;
    lathe_error err;
    make(&f, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", VALUES, sizeof VALUES);
    for (size_t size = f.size; size-- > 0;)
        CHECK_EQ(npy_parse(&a, "cut", f.bytes, size, LATHE_F32, &err), LATHE_ARG);
}

TEST(files_that_cannot_be_read)
{
    struct npy a;
    lathe_error err = {0};
    CHECK_EQ(npy_read(&a, "/nowhere/x.npy", LATHE_F32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "/nowhere/x.npy: cannot be opened: No such file");
    CHECK_EQ(npy_read(&a, check_temp_dir(), LATHE_F32, &err), LATHE_ARG);
    CHECK_HAS(err.text, "not a regular file");
    CHECK_EQ(npy_write("/nowhere/x.npy", LATHE_F32, 0, NULL, VALUES, &err), LATHE_ARG);
    CHECK_HAS(err.text, "/nowhere/x.npy: cannot be written");
}

TEST(round_trips)
{
    static const lathe_dtype dtypes[] = {LATHE_F32, LATHE_F16, LATHE_BF16,    LATHE_I32,    LATHE_U8,
                                         LATHE_F64, LATHE_I8,  LATHE_F8_E4M3, LATHE_F8_E5M2};
    static const int64_t shape[3] = {2, 1, 3};
    char path[512];
    double data[6];
    struct npy a;
    lathe_error err = {0};
    snprintf(path, sizeof path, "%s/a.npy", check_temp_dir());
    for (int i = 0; i < (int)(sizeof dtypes / sizeof *dtypes); i++) {
        for (int k = 0; k < 6; k++)
            dtype_store(dtypes[i], data, k, dtypes[i] == LATHE_U8 ? k * 50 : k * 3 - 7);
        for (int ndim = 0; ndim <= 3; ndim++) {
            CHECK_EQ(npy_write(path, dtypes[i], ndim, shape, data, &err), LATHE_OK);
            CHECK_EQ(npy_read(&a, path, dtypes[i], &err), LATHE_OK);
            CHECK_EQ(a.ndim, ndim);
            CHECK_EQ(a.count, ndim == 0 ? 1 : ndim == 3 ? 6 : 2);
            CHECK_EQ(memcmp(a.data, data, (size_t)a.count * lathe_dtype_size(dtypes[i])), 0);
            npy_free(&a);
        }
    }
}

/* NumPy writes float8 as bytes without a name, and torch's go through uint8. */
TEST(bytes_are_the_bits_of_eight_bit_floats)
{
    static const char *const descr[] = {"|V1", "|u1"};
    static const unsigned char byte[4] = {0x38, 0xb8, 0x7e, 0x01};
    static const double e4m3[4] = {1.0, -1.0, 448.0, 0x1p-9};
    for (int d = 0; d < 2; d++) {
        char file[160];
        char header[96];
        const int n = snprintf(header, sizeof header,
                               "{'descr': '%s', 'fortran_order': False, 'shape': (4,), }", descr[d]);
        struct npy a;
        lathe_error err = {0};
        memcpy(file, "\x93NUMPY\1\0", 8);
        file[8] = (char)n;
        file[9] = 0;
        memcpy(file + 10, header, (size_t)n);
        memcpy(file + 10 + n, byte, 4);
        CHECK_EQ(npy_parse(&a, "x", file, (size_t)n + 14, LATHE_F8_E4M3, &err), LATHE_OK);
        for (int i = 0; i < 4; i++)
            CHECK(dtype_load(a.dtype, a.data, i) == e4m3[i]);
        npy_free(&a);
        CHECK_EQ(npy_parse(&a, "x", file, (size_t)n + 14, LATHE_F8_E5M2, &err), LATHE_OK);
        CHECK(dtype_load(a.dtype, a.data, 0) == 0.5);
        npy_free(&a);
        if (d == 0) {
            CHECK_EQ(npy_parse(&a, "x", file, (size_t)n + 14, LATHE_BF16, &err), LATHE_ARG);
            CHECK_HAS(err.text, "read as the bits of f8e4m3 or f8e5m2 only");
        }
    }
}
