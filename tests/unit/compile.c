/*
 * compile.c: texts through NVRTC from memory: images for one arch and for several, the log, the message of a
 * broken kernel, archs that NVRTC does not know. Skipped where there is no NVRTC.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "nvrtc.h"
#include "runtime/rt.h"

static const char GOOD[] = "#include \"one.cuh\"\n"
                           "extern \"C\" __global__ void triple(float *x) { x[threadIdx.x] *= FACTOR; }\n";
static const char HEADER[] = "#define FACTOR 3.0f\n";
static const char BAD[] = "extern \"C\" __global__ void triple(float *x)\n{\n    x[0] = unknown_name;\n}\n";

static void add_text(struct source *source, const char *name, const char *data)
{
    struct text *text = &source->text[source->n_texts++];
    snprintf(text->name, sizeof text->name, "%s", name);
    text->data = strdup(data);
    text->size = strlen(data);
    CHECK(text->data != NULL);
}

static struct source *tiny(const char *main_text)
{
    struct source *source = calloc(1, sizeof *source);
    CHECK(source != NULL);
    snprintf(source->label, sizeof source->label, "tiny");
    add_text(source, "tiny.cu", main_text);
    add_text(source, "one.cuh", HEADER);
    return source;
}

static void drop(struct source *source)
{
    source_free(source);
    free(source);
}

static unsigned number(const unsigned char *p, int bytes)
{
    unsigned value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (unsigned)p[i] << (8 * i);
    return value;
}

/* Is there a piece of this kind (1: PTX, 2: cubin) for this arch? A fatbin is a header of 16 bytes and
   entries: kind u16, version u16, header bytes u32, payload bytes u64, ..., arch u32 at 28. */
static bool fatbin_has(const unsigned char *image, size_t size, unsigned kind, unsigned arch)
{
    size_t at = 16;
    while (at + 32 <= size) {
        if (number(image + at, 2) == kind && number(image + at + 28, 4) == arch)
            return true;
        at += number(image + at + 4, 4) + (size_t)number(image + at + 8, 4);
    }
    return false;
}

TEST(one_arch)
{
    static const char *const archs[] = {"sm_80", "sm_90a"};
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    for (int i = 0; i < 2; i++) {
        unsigned char *image;
        size_t size;
        char *log;
        lathe_error err;
        CHECK_EQ(lathe__compile(source, &archs[i], 1, &image, &size, &log, compiler, &err), LATHE_OK);
        CHECK(size > 500);
        CHECK_HAS(log, "Used ");
        CHECK_HAS(log, "registers");
        if (strcmp(lathe__image_kind(image, size), "fatbin") == 0) {
            CHECK_EQ(i, 0); /* sm_90a has no PTX beside its code */
            CHECK(fatbin_has(image, size, 2, 80) && fatbin_has(image, size, 1, 80));
        } else {
            CHECK_STR(lathe__image_kind(image, size), "cubin");
            CHECK_HAS(log, i == 0 ? "bare cubin" : "bundle: 1 piece, as it is\n");
        }
        free(image);
        free(log);
    }
    drop(source);
    lathe__compiler_close(compiler);
}

TEST(several_archs_in_one_image)
{
    static const char *const archs[] = {"sm_80", "sm_90a"};
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    unsigned char *image;
    size_t size;
    lathe_error err;
    if (!compiler->nvfatbin && !compiler->fatbinary[0])
        SKIP("neither nvFatbin nor fatbinary");
    CHECK_EQ(lathe__compile(source, archs, 2, &image, &size, NULL, compiler, &err), LATHE_OK);
    CHECK_STR(lathe__image_kind(image, size), "fatbin");
    CHECK(fatbin_has(image, size, 2, 80));
    CHECK(fatbin_has(image, size, 1, 80)); /* runs forward */
    CHECK(fatbin_has(image, size, 2, 90));
    CHECK(!fatbin_has(image, size, 1, 90)); /* sm_90a does not */
    free(image);
    drop(source);
    lathe__compiler_close(compiler);
}

static bool has_word(const unsigned char *bytes, size_t size, const char *word)
{
    return memmem(bytes, size, word, strlen(word)) != NULL;
}

/* Each architecture has the code of its own source, and no other. */
TEST(a_source_for_each_arch)
{
    static const char other[] =
        "extern \"C\" __global__ void quadruple(float *x) { x[threadIdx.x] *= 4.0f; }\n";
    struct compiler *compiler = open_compiler();
    struct source *source[2] = {tiny(GOOD), tiny(other)};
    const struct compile_job job[2] = {{source[0], "sm_80"}, {source[1], "sm_90a"}};
    unsigned char *image;
    size_t size;
    lathe_error err;
    if (!compiler->nvfatbin && !compiler->fatbinary[0])
        SKIP("neither nvFatbin nor fatbinary");
    CHECK_EQ(lathe__compile_jobs(job, 2, &image, &size, NULL, compiler, &err), LATHE_OK);
    CHECK(fatbin_has(image, size, 2, 80) && fatbin_has(image, size, 2, 90));
    CHECK(has_word(image, size, "triple") && has_word(image, size, "quadruple"));
    free(image);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(lathe__compile_jobs(&job[i], 1, &image, &size, NULL, compiler, &err), LATHE_OK);
        CHECK(has_word(image, size, "triple") == (i == 0) && has_word(image, size, "quadruple") == (i == 1));
        free(image);
        drop(source[i]);
    }
    lathe__compiler_close(compiler);
}

static int temporary_folders(void)
{
    DIR *dir = opendir("/tmp");
    int n = 0;
    CHECK(dir != NULL);
    for (const struct dirent *d = readdir(dir); d; d = readdir(dir))
        n += strncmp(d->d_name, "lathe-", 6) == 0 && strlen(d->d_name) == 12;
    closedir(dir);
    return n;
}

/* The program works on files in memory: it may be killed, or kill us, and leaves nothing. */
TEST(the_program_bundles_as_the_library_does)
{
    static const char *const archs[] = {"sm_80", "sm_90a"};
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    struct compiler alone = *compiler;
    unsigned char *image;
    size_t size;
    char *log;
    lathe_error err;
    const int before = temporary_folders();
    if (!compiler->fatbinary[0])
        SKIP("no fatbinary");
    alone.nvfatbin = NULL;
    CHECK_EQ(lathe__compile(source, archs, 2, &image, &size, &log, &alone, &err), LATHE_OK);
    CHECK_STR(lathe__image_kind(image, size), "fatbin");
    CHECK_HAS(log, "bundle: 3 pieces, by fatbinary");
    CHECK(fatbin_has(image, size, 2, 80));
    CHECK(fatbin_has(image, size, 1, 80));
    CHECK(fatbin_has(image, size, 2, 90));
    CHECK_EQ(temporary_folders(), before);
    free(image);
    free(log);
    drop(source);
    lathe__compiler_close(compiler);
}

/* A log is part of an entry, and equal kernels have equal entries. */
TEST(a_log_says_no_times)
{
    static const char *const arch = "sm_80";
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    unsigned char *image[2];
    size_t size[2];
    char *log[2];
    lathe_error err;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(lathe__compile(source, &arch, 1, &image[i], &size[i], &log[i], compiler, &err), LATHE_OK);
    CHECK_STR(log[0], log[1]);
    CHECK_HAS(log[0], "registers");
    CHECK(strstr(log[0], "ompile time") == NULL);
    CHECK_EQ(size[0], size[1]);
    CHECK(memcmp(image[0], image[1], size[0]) == 0);
    for (int i = 0; i < 2; i++) {
        free(image[i]);
        free(log[i]);
    }
    drop(source);
    lathe__compiler_close(compiler);
}

TEST(without_a_bundler_the_cubin_is_bare)
{
    static const char *const arch = "sm_80"; /* sm_90a has nothing to bundle */
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    struct compiler alone = *compiler;
    unsigned char *image;
    size_t size;
    char *log;
    lathe_error err;
    alone.nvfatbin = NULL;
    alone.fatbinary[0] = '\0';
    CHECK_EQ(lathe__compile(source, &arch, 1, &image, &size, &log, &alone, &err), LATHE_OK);
    CHECK_STR(lathe__image_kind(image, size), "cubin");
    CHECK_HAS(log, "bare cubin");
    free(image);
    free(log);
    snprintf(alone.fatbinary, sizeof alone.fatbinary, "/bin/false"); /* a bundler that fails is no bundler */
    CHECK_EQ(lathe__compile(source, &arch, 1, &image, &size, NULL, &alone, &err), LATHE_OK);
    CHECK_STR(lathe__image_kind(image, size), "cubin");
    free(image);
    drop(source);
    lathe__compiler_close(compiler);
}

TEST(a_broken_text_names_file_and_line)
{
    static const char *const arch = "sm_80";
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(BAD);
    unsigned char *image;
    size_t size;
    char *log;
    lathe_error err;
    CHECK_EQ(lathe__compile(source, &arch, 1, &image, &size, &log, compiler, &err), LATHE_COMPILE);
    CHECK(image == NULL && log == NULL);
    CHECK_STR(err.file, "tiny.cu");
    CHECK_EQ(err.line, 3);
    CHECK_HAS(err.text, "unknown_name");
    drop(source);
    lathe__compiler_close(compiler);
}

TEST(archs_that_nvrtc_does_not_know)
{
    struct compiler *compiler = open_compiler();
    char arch[16];
    char expected[32];
    bool substituted;
    lathe_error err;
    CHECK_EQ(lathe__compiler_arch(compiler, "sm_80", arch, &substituted, &err), LATHE_OK);
    CHECK_STR(arch, "sm_80");
    CHECK(!substituted);
    CHECK_EQ(lathe__compiler_arch(compiler, "sm_999a", arch, &substituted, &err), LATHE_OK);
    snprintf(expected, sizeof expected, "compute_%d", compiler->arch[compiler->n_archs - 1]);
    CHECK_STR(arch, expected);
    CHECK(substituted);
    CHECK_EQ(lathe__compiler_arch(compiler, "sm_20", arch, &substituted, &err), LATHE_UNSUPPORTED);
    CHECK_HAS(err.text, "sm_20");
    lathe__compiler_close(compiler);
}

TEST(a_virtual_arch_gives_ptx)
{
    static const char *const arch = "compute_90";
    static const char *const nonsense = "volta";
    struct compiler *compiler = open_compiler();
    struct source *source = tiny(GOOD);
    unsigned char *image;
    size_t size;
    lathe_error err;
    CHECK_EQ(lathe__compile(source, &arch, 1, &image, &size, NULL, compiler, &err), LATHE_OK);
    if (strcmp(lathe__image_kind(image, size), "fatbin") == 0)
        CHECK(fatbin_has(image, size, 1, 90));
    else
        CHECK_STR(lathe__image_kind(image, size), "PTX");
    free(image);
    CHECK_EQ(lathe__compile(source, &nonsense, 1, &image, &size, NULL, compiler, &err), LATHE_ARG);
    CHECK_HAS(err.text, "volta");
    drop(source);
    lathe__compiler_close(compiler);
}

TEST(keys_depend_on_every_part)
{
    static const char options[2][OPTION_BYTES] = {"-arch=sm_80", "-std=c++20"};
    static const char swapped[2][OPTION_BYTES] = {"-std=c++20", "-arch=sm_80"};
    unsigned char key[KEY_BYTES];
    unsigned char other[KEY_BYTES];
    struct source *source = tiny(GOOD);
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", key);
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) == 0);
    lathe__key_make(source, options, 2, "nvrtc 13.0 2", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    lathe__key_make(source, swapped, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    lathe__key_make(source, options, 1, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    source->text[1].name[0] = 'x';
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    source->text[1].name[0] = 'o';
    source->text[0].data[0] ^= 1;
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    source->text[0].data[0] ^= 1;
    source->n_parts = 2; /* of which the text tells */
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) == 0);
    snprintf(source->part_role[1], ROLE_BYTES, "bwd_chunks");
    lathe__key_make(source, options, 2, "nvrtc 13.0 1", other);
    CHECK(memcmp(key, other, KEY_BYTES) != 0);
    drop(source);
}
