/*
 * parts.c: kernels of one text, compiled at the same time: sets of images and what is damaged in them, the
 * log and the message of parts, and a module whose kernels are in several images. What compiles is skipped
 * where there is no NVRTC.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "nvrtc.h"
#include "runtime/rt.h"

/* ---- sets of images ------------------------------------------------------------------------------- */

TEST(a_set_gives_back_its_images)
{
    static const unsigned char one[] = "first", two[] = "the second image, longer than sixteen",
                               three[] = "3";
    const struct image in[3] = {{one, sizeof one}, {two, sizeof two}, {three, sizeof three}};
    struct image out[MAX_COMPILED_PARTS];
    size_t size = 0;
    unsigned char *set = lathe__images_join(in, 3, &size);
    CHECK(set != NULL);
    CHECK(lathe__images_is_set(set, size));
    CHECK_EQ(lathe__images_split(set, size, out), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(out[i].size, in[i].size);
        CHECK(memcmp(out[i].data, in[i].data, in[i].size) == 0);
        CHECK_EQ((out[i].data - set) % 16, 0);
    }
    free(set);
    set = lathe__images_join(in, 1, &size);
    CHECK(set != NULL && size == sizeof one && memcmp(set, one, size) == 0);
    CHECK_EQ(lathe__images_split(set, size, out), 1);
    CHECK(out[0].data == set && out[0].size == size);
    free(set);
}

TEST(damaged_sets_are_refused)
{
    static const unsigned char one[] = "first", two[] = "second";
    static const struct {
        size_t at;
        unsigned char value;
    } DAMAGE[] = {{8, 0},     {8, 3},  {8, 9},     {9, 1},     {16, 0},
                  {16, 0x40}, {17, 1}, {23, 0xff}, {24, 0x11}, {31, 0x80}};
    const struct image in[2] = {{one, sizeof one}, {two, sizeof two}};
    struct image out[MAX_COMPILED_PARTS];
    size_t size = 0;
    unsigned char *set = lathe__images_join(in, 2, &size);
    CHECK(set != NULL);
    for (size_t i = 0; i < sizeof DAMAGE / sizeof *DAMAGE; i++) {
        const unsigned char before = set[DAMAGE[i].at];
        set[DAMAGE[i].at] = DAMAGE[i].value;
        CHECK_EQ(lathe__images_split(set, size, out), 0);
        set[DAMAGE[i].at] = before;
    }
    for (size_t shorter = 16; shorter < size; shorter++)
        CHECK_EQ(lathe__images_split(set, shorter, out), 0);
    CHECK_EQ(lathe__images_split(set, size, out), 2);
    free(set);
}

/* ---- compiled apart ------------------------------------------------------------------------------- */

static const char PARTED[] =
    "#ifdef LATHE_PART\n"
    "#define IN(n) (LATHE_PART == n)\n"
    "#else\n"
    "#define IN(n) 1\n"
    "#endif\n"
    "static __device__ float both(float x) { int never; return 3.0f * x; }\n"
    "#if IN(0)\n"
    "extern \"C\" __global__ void triple(float *x) { x[threadIdx.x] = both(x[0]); }\n"
    "#endif\n"
    "#if IN(1)\n"
    "extern \"C\" __global__ void again(float *x) { x[0] = both(x[threadIdx.x]); }\n"
    "#endif\n"
    "#if IN(2)\n"
    "extern \"C\" __global__ void third(float *x) { x[0] = both(x[1]); }\n"
    "#endif\n";

static struct source *parted(const char *text)
{
    struct source *source = calloc(1, sizeof *source);
    CHECK(source != NULL);
    snprintf(source->label, sizeof source->label, "parted");
    snprintf(source->text[0].name, sizeof source->text[0].name, "parted.cu");
    source->text[0].data = strdup(text);
    source->text[0].size = strlen(text);
    source->n_texts = 1;
    source->n_parts = 3;
    CHECK(source->text[0].data != NULL);
    return source;
}

static int times_in(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

/* What the compiler says of PARTED, whose three parts are images of one kind: "cubin" or "fatbin". */
static char *compile_parted(struct compiler *compiler, const char *arch, const char *kind)
{
    struct source *source = parted(PARTED);
    struct image image[MAX_COMPILED_PARTS];
    unsigned char *set;
    size_t size;
    char *log;
    lathe_error err = {0};
    CHECK_EQ(lathe__compile_parts(compiler, source, arch, &set, &size, &log, &err), LATHE_OK);
    CHECK_EQ(lathe__images_split(set, size, image), 3);
    for (int i = 0; i < 3; i++)
        CHECK_STR(lathe__image_kind(image[i].data, image[i].size), kind);
    free(set);
    source_free(source);
    free(source);
    return log;
}

TEST(every_part_is_compiled_once)
{
    struct compiler *compiler = open_compiler();
    char *log = compile_parted(compiler, "sm_90a", "cubin"); /* alone, so that there is nothing to choose */
    CHECK_HAS(log, "bundle: 3 parts of 1 piece, as it is\n");
    CHECK_EQ(times_in(log, "'triple'"), 1);
    CHECK_EQ(times_in(log, "'again'"), 1);
    CHECK_EQ(times_in(log, "'third'"), 1);
    CHECK_EQ(times_in(log, "\"never\""), 1); /* a warning about what they share */
    CHECK_EQ(times_in(log, "bundle:"), 1);
    free(log);
    lathe__compiler_close(compiler);
}

TEST(parts_with_ptx_are_bundled_each)
{
    struct compiler *compiler = open_compiler();
    const bool bundles = compiler->nvfatbin || compiler->fatbinary[0];
    char *log = compile_parted(compiler, "sm_80", bundles ? "fatbin" : "cubin");
    CHECK_HAS(log, "bundle: 3 parts of 2 pieces, ");
    free(log);
    lathe__compiler_close(compiler);
}

TEST(a_mistake_that_parts_share_is_told_once)
{
    struct compiler *compiler = open_compiler();
    struct source *source = parted("int x = unknown_name;\n");
    unsigned char *set;
    size_t size;
    char *log;
    lathe_error err = {0};
    CHECK_EQ(lathe__compile_parts(compiler, source, "sm_80", &set, &size, &log, &err), LATHE_COMPILE);
    CHECK(set == NULL && log == NULL);
    CHECK_EQ(times_in(err.text, "is undefined"), 1);
    CHECK_STR(err.file, "parted.cu");
    CHECK_EQ(err.line, 1);
    source_free(source);
    free(source);
    lathe__compiler_close(compiler);
}

TEST(one_core_compiles_in_one_go)
{
    const struct compiler new = {.major = 13};
    const struct compiler old = {.major = 11};
    struct source *source = parted(PARTED);
    cpu_set_t before;
    cpu_set_t one;
    CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    CHECK_EQ(lathe__parts_pay(&new, source), CPU_COUNT(&before) > 1);
    CHECK(!lathe__parts_pay(&old, source));
    source->n_parts = 1;
    CHECK(!lathe__parts_pay(&new, source));
    source->n_parts = 3;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK(!lathe__parts_pay(&new, source));
    source_free(source);
    free(source);
}

/* ---- a module of several images ------------------------------------------------------------------- */

/* A driver whose modules have one kernel each, of the name that the image is. */
static struct {
    const char *loaded[MAX_COMPILED_PARTS];
    int loads;
    int unloads;
    int misses; /* kernels that were looked for in an image that has them not */
    int ptx_version;
    bool refuses_ptx_version;
} seen;

static int fake_load(struct CUmod_st **module, const void *image, unsigned n, int *option, void **value)
{
    (void)n;
    (void)option;
    (void)value;
    if (strcmp(image, "broken") == 0)
        return 200;
    seen.loaded[seen.loads] = image;
    *module = (struct CUmod_st *)(void *)&seen.loaded[seen.loads++];
    return CU_SUCCESS;
}

static int fake_unload(struct CUmod_st *module)
{
    seen.unloads += module != NULL;
    return CU_SUCCESS;
}

static int fake_function(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
    const char *const *loaded = (const char *const *)(void *)module;
    *function = (struct CUfunc_st *)(void *)module;
    seen.misses += strcmp(*loaded, name) != 0;
    return strcmp(*loaded, name) == 0 ? CU_SUCCESS : 500;
}

static int fake_get(int *value, int attribute, struct CUfunc_st *function)
{
    if (attribute == CU_FUNC_PTX_VERSION) {
        *value = seen.ptx_version;
        return function && !seen.refuses_ptx_version ? CU_SUCCESS : 1;
    }
    *value = attribute;
    return function ? CU_SUCCESS : 1;
}

static int fake_mode(int *mode)
{
    return *mode;
}

static int fake_text(int result, const char **text)
{
    *text = "pretended";
    return result ? CU_SUCCESS : 1;
}

static struct driver pretend(void)
{
    return (struct driver){.cuModuleLoadDataEx = fake_load,
                           .cuModuleUnload = fake_unload,
                           .cuModuleGetFunction = fake_function,
                           .cuFuncGetAttribute = fake_get,
                           .cuThreadExchangeStreamCaptureMode = fake_mode,
                           .cuGetErrorName = fake_text,
                           .cuGetErrorString = fake_text};
}

static struct image named(const char *name)
{
    return (struct image){(const unsigned char *)name, strlen(name) + 1};
}

TEST(kernels_are_found_in_the_images_of_their_parts)
{
    const struct driver driver = pretend();
    const struct image images[3] = {named("triple"), named("again"), named("third")};
    const struct image broken[3] = {named("triple"), named("again"), named("broken")};
    struct source *source = parted(PARTED);
    struct module *module = NULL;
    lathe_error err = {0};
    source->n_launches = 2;
    snprintf(source->launch[0].entry, NAME_MAX_BYTES, "third");
    source->launch[0].part = 2;
    snprintf(source->launch[1].entry, NAME_MAX_BYTES, "triple");
    CHECK_EQ(lathe__module_load(&module, &driver, images, 3, source, &err), LATHE_OK);
    CHECK_STR(*(const char *const *)(void *)module->function[0], "third");
    CHECK_STR(*(const char *const *)(void *)module->function[1], "triple");
    CHECK_EQ(seen.misses, 0); /* tools that watch the driver's errors would count them */
    lathe__module_unload(module);
    CHECK_EQ(seen.unloads, 3);
    CHECK_EQ(lathe__module_load(&module, &driver, broken, 3, source, &err), LATHE_CUDA);
    CHECK(module == NULL);
    CHECK_EQ(seen.unloads, 5); /* the two that had been loaded */
    CHECK_EQ(lathe__module_load(&module, &driver, images, 1, source, &err), LATHE_CUDA);
    CHECK_HAS(err.text, "third");
    source_free(source);
    free(source);
}

static lathe_status load_early(struct module **module, const struct driver *driver, int ptx_version,
                               lathe_error *err)
{
    const struct image image = named("triple");
    struct source *source = parted(PARTED);
    source->n_launches = 2;
    for (int i = 0; i < 2; i++)
        snprintf(source->launch[i].entry, NAME_MAX_BYTES, "triple");
    source->launch[1].early = true;
    seen.loads = 0;
    seen.ptx_version = ptx_version;
    const lathe_status status = lathe__module_load(module, driver, &image, 1, source, err);
    source_free(source);
    free(source);
    return status;
}

/* What a driver makes of PTX for sm_80 does not wait for the kernel before it, on whatever device it runs. */
TEST(kernels_are_early_where_their_ptx_waits)
{
    static const struct {
        int driver, ptx;
        bool early;
    } CASE[] = {
        {13000, 80, false}, {13000, 89, false}, {13000, 90, true}, {13000, 100, true}, {12020, 90, false}};
    struct driver driver = pretend();
    struct module *module = NULL;
    lathe_error err = {0};
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        driver.version = CASE[i].driver;
        CHECK_EQ(load_early(&module, &driver, CASE[i].ptx, &err), LATHE_OK);
        CHECK_EQ(module->early[1], CASE[i].early);
        CHECK(!module->early[0]); /* not asked for */
        lathe__module_unload(module);
    }
    driver.version = 13000;
    seen.refuses_ptx_version = true;
    CHECK_EQ(load_early(&module, &driver, 90, &err), LATHE_CUDA);
    CHECK(module == NULL);
    CHECK_HAS(err.text, "cuFuncGetAttribute");
}
