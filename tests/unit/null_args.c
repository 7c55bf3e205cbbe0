/*
 * null_args.c: every function of include/ with NULL in the place of each of its pointers, all others right.
 * None crashes; one that can fail returns LATHE_ARG and a sentence, unless its header says what NULL means
 * there. A function that this file (or api.c, for those of lathe.h) does not name is a mistake, too.
 */
#include "check.h"
#include "lathe.h"
#include "lathe_aot.h"
#include "lathe_inspect.h"
#include "lathe_nsa.h"
#include "lathe_packed.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED(call, part)                                                                                  \
    do {                                                                                                     \
        lathe_error err = {0};                                                                               \
        lathe_error *const e = &err;                                                                         \
        CHECK_EQ((call), LATHE_ARG);                                                                         \
        CHECK_EQ(err.status, LATHE_ARG);                                                                     \
        CHECK_HAS(err.text, part);                                                                           \
    } while (0)

/* With a record for what went wrong, and without one. */
#define TAKEN(call)                                                                                          \
    do {                                                                                                     \
        lathe_error err = {0};                                                                               \
        lathe_error *e = &err;                                                                               \
        CHECK_EQ((call), LATHE_OK);                                                                          \
        e = NULL;                                                                                            \
        CHECK_EQ((call), LATHE_OK);                                                                          \
        CHECK_STR(err.text, "");                                                                             \
    } while (0)

/* ---- lathe_packed.h ------------------------------------------------------------------------------- */

enum { N = 3, TOKENS = 7, CHUNKS = 4 };
static const int32_t LENGTHS[N] = {3, 0, 4}, STARTS[N + 1] = {0, 3, 3, 7}, OFFSETS[N + 1] = {0, 2, 2, 4},
                     IDS[TOKENS] = {0, 0, 0, 2, 2, 2, 2}, POSITIONS[TOKENS] = {0, 1, 2, 0, 1, 2, 3};

TEST(packed)
{
    int32_t a[2 * TOKENS + 2];
    int32_t n = 0;
    REFUSED(lathe_packed_starts(NULL, N, a, e), "lengths");
    REFUSED(lathe_packed_starts(LENGTHS, N, NULL, e), "cu_seqlens");
    REFUSED(lathe_packed_starts(NULL, 0, NULL, e), "cu_seqlens");
    TAKEN(lathe_packed_starts(LENGTHS, N, a, e));
    TAKEN(lathe_packed_starts(NULL, 0, a, e)); /* of no sequence nothing is read */
    REFUSED(lathe_packed_lengths(NULL, N, a, e), "cu_seqlens");
    REFUSED(lathe_packed_lengths(STARTS, N, NULL, e), "lengths");
    TAKEN(lathe_packed_lengths(STARTS, N, a, e));
    REFUSED(lathe_packed_tokens(NULL, N, a, a + TOKENS, e), "cu_seqlens");
    TAKEN(lathe_packed_tokens(STARTS, N, NULL, a, e)); /* either may be NULL */
    TAKEN(lathe_packed_tokens(STARTS, N, a, NULL, e));
    REFUSED(lathe_packed_starts_of_ids(NULL, TOKENS, N, a, e), "sequence_ids");
    REFUSED(lathe_packed_starts_of_ids(IDS, TOKENS, N, NULL, e), "cu_seqlens");
    TAKEN(lathe_packed_starts_of_ids(IDS, TOKENS, N, a, e));
    REFUSED(lathe_packed_starts_of_positions(NULL, TOKENS, &n, a, e), "positions");
    REFUSED(lathe_packed_starts_of_positions(POSITIONS, TOKENS, NULL, a, e), "n:");
    REFUSED(lathe_packed_starts_of_positions(POSITIONS, TOKENS, &n, NULL, e), "cu_seqlens");
    TAKEN(lathe_packed_starts_of_positions(POSITIONS, TOKENS, &n, a, e));
    REFUSED(lathe_packed_chunk_offsets(NULL, N, 2, a, e), "cu_seqlens");
    REFUSED(lathe_packed_chunk_offsets(STARTS, N, 2, NULL, e), "chunk_offsets");
    TAKEN(lathe_packed_chunk_offsets(STARTS, N, 2, a, e));
    REFUSED(lathe_packed_chunk_indices(NULL, N, a, e), "chunk_offsets");
    REFUSED(lathe_packed_chunk_indices(OFFSETS, N, NULL, e), "chunk_indices");
    TAKEN(lathe_packed_chunk_indices(OFFSETS, N, a, e));
}

/* ---- lathe_nsa.h ---------------------------------------------------------------------------------- */

static lathe_ctx *host(void)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    options.device = LATHE_DEVICE_HOST;
    CHECK_EQ(lathe_ctx_create(&ctx, &options, NULL), LATHE_OK);
    return ctx;
}

TEST(nsa)
{
    const lathe_nsa_tensors none = {.q = NULL};
    lathe_nsa_sizes sizes = {.h = 2,
                             .h_kv = 1,
                             .d = 8,
                             .d_v = 8,
                             .block = 2,
                             .blocks = 2,
                             .window = 3,
                             .sequences = N,
                             .lengths = LENGTHS,
                             .dtype = LATHE_F32,
                             .backward = 1};
    lathe_ctx *ctx = host();
    lathe_nsa *nsa = (lathe_nsa *)(void *)ctx; /* anything but NULL */
    REFUSED(lathe_nsa_create(NULL, ctx, &sizes, e), "out");
    REFUSED(lathe_nsa_create(&nsa, NULL, &sizes, e), "ctx");
    CHECK(nsa == NULL);
    REFUSED(lathe_nsa_create(&nsa, ctx, NULL, e), "sizes");
    sizes.lengths = NULL;
    REFUSED(lathe_nsa_create(&nsa, ctx, &sizes, e), "lengths");
    sizes.lengths = LENGTHS;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &sizes, NULL), LATHE_OK);
    lathe_nsa_destroy(NULL);
    CHECK_EQ(lathe_nsa_workspace_size(NULL), 0);
    char *workspace = calloc(1, lathe_nsa_workspace_size(nsa) + 256);
    CHECK(workspace != NULL);
    REFUSED(lathe_nsa_attach(NULL, workspace, e), "lathe_nsa_create");
    REFUSED(lathe_nsa_attach(nsa, NULL, e), "workspace");
    CHECK_EQ(lathe_nsa_forward(nsa, &none, NULL, NULL), LATHE_ARG); /* nothing is attached */
    CHECK_EQ(lathe_nsa_attach(nsa, workspace, NULL), LATHE_OK);
    REFUSED(lathe_nsa_forward(NULL, &none, NULL, e), "lathe_nsa_create");
    REFUSED(lathe_nsa_forward(nsa, NULL, NULL, e), "tensors");
    REFUSED(lathe_nsa_forward(nsa, &none, NULL, e), "q:");
    REFUSED(lathe_nsa_backward(NULL, &none, NULL, e), "lathe_nsa_create");
    REFUSED(lathe_nsa_backward(nsa, NULL, NULL, e), "tensors");
    REFUSED(lathe_nsa_backward(nsa, &none, NULL, e), "q:");
    lathe_nsa_destroy(nsa);
    free(workspace);
    lathe_ctx_destroy(ctx);
}

/* ---- lathe_inspect.h ------------------------------------------------------------------------------ */

static void ignore(void *user, const lathe_proof *proof)
{
    (void)user;
    (void)proof;
}

TEST(inspect)
{
    static const int64_t SHAPE[] = {4, 8};
    const lathe_arg x[] = {{"x", NULL, LATHE_F32, 2, SHAPE, NULL}, {"y", NULL, LATHE_F32, 2, SHAPE, NULL}};
    lathe_spec *spec = NULL;
    char *text = NULL;
    CHECK_EQ(lathe_spec_load(&spec, "softmax", NULL), LATHE_OK);
    lathe_arg_info arg;
    lathe_size_info size;
    lathe_param_info param;
    CHECK_EQ(lathe_spec_arg(NULL, LATHE_FORWARD, 0, &arg) + lathe_spec_arg(spec, LATHE_FORWARD, 0, NULL), 0);
    CHECK_EQ(lathe_spec_size(NULL, LATHE_FORWARD, 0, &size) + lathe_spec_size(spec, LATHE_FORWARD, 0, NULL),
             0);
    CHECK_EQ(lathe_spec_param(NULL, 0, &param) + lathe_spec_param(spec, 0, NULL), 0);
    CHECK_EQ(lathe_spec_counts(NULL, NULL) + lathe_spec_counts(spec, NULL), 0);
    CHECK_STR(lathe_spec_absent(NULL, LATHE_FORWARD, "x"), "");
    CHECK_STR(lathe_spec_absent(spec, LATHE_FORWARD, NULL), "");
    CHECK_STR(lathe_spec_name(NULL), "");
    CHECK_STR(lathe_spec_kind(NULL), "");
    CHECK_STR(lathe_ctx_arch(NULL), "");
    lathe_text_free(NULL);
    REFUSED(lathe_source(NULL, spec, LATHE_FORWARD, "sm_90a", x, 2, e), "out");
    REFUSED(lathe_source(&text, NULL, LATHE_FORWARD, "sm_90a", x, 2, e), "spec");
    REFUSED(lathe_source(&text, spec, LATHE_FORWARD, NULL, x, 2, e), "arch");
    REFUSED(lathe_source(&text, spec, LATHE_FORWARD, "sm_90a", NULL, 2, e), "list");
    REFUSED(lathe_report(NULL, e), "out");
    REFUSED(lathe_explain(NULL, spec, LATHE_FORWARD, "sm_90a", x, 2, 0, e), "out");
    REFUSED(lathe_explain(&text, NULL, LATHE_FORWARD, "sm_90a", x, 2, 0, e), "spec");
    REFUSED(lathe_explain(&text, spec, LATHE_FORWARD, NULL, x, 2, 0, e), "arch");
    REFUSED(lathe_explain(&text, spec, LATHE_FORWARD, "sm_90a", NULL, 2, 0, e), "list");
    CHECK(text == NULL);
    REFUSED(lathe_prove(NULL, 1, ignore, NULL, e), "spec");
    REFUSED(lathe_prove(spec, 1, NULL, NULL, e), "fn");
    lathe_spec_destroy(spec);
}

TEST(specs_with_parameters)
{
    static const char TEXT[] = "return attention { mask_mod = causal }";
    const lathe_param nameless = {NULL, 1};
    lathe_spec *spec = NULL;
    REFUSED(lathe_spec_open(NULL, "a", TEXT, sizeof TEXT - 1, NULL, 0, e), "out");
    REFUSED(lathe_spec_open(&spec, NULL, TEXT, sizeof TEXT - 1, NULL, 0, e), "name");
    REFUSED(lathe_spec_open(&spec, NULL, NULL, 0, NULL, 0, e), "name");
    REFUSED(lathe_spec_open(&spec, "softcap", NULL, 0, NULL, 1, e), "params");
    REFUSED(lathe_spec_open(&spec, "softcap", NULL, 0, &nameless, 1, e), "name");
    CHECK(spec == NULL);
    CHECK_EQ(lathe_spec_open(&spec, "softcap", NULL, 0, NULL, 0, NULL), LATHE_OK);
    lathe_spec_destroy(spec);
}

/* ---- lathe_aot.h, lathe_types.h ------------------------------------------------------------------- */

TEST(kernel_sets)
{
    static const int args[64];
    lathe_kernel_set *const set = (lathe_kernel_set *)(uintptr_t)args; /* of no format that there is */
    lathe_set_kernel kernel;
    size_t bytes = 1;
    CHECK_EQ(lathe_set_kernel_at(NULL, 0, &kernel) + lathe_set_kernel_at(set, 0, NULL), 0);
    lathe_aot_log(NULL, NULL);
    REFUSED(lathe_set_launch(NULL, 0, args, NULL, NULL, e), "set");
    REFUSED(lathe_set_launch(set, 0, NULL, NULL, NULL, e), "args");
    REFUSED(lathe_set_workspace(NULL, set, 0, args, e), "out");
    REFUSED(lathe_set_workspace(&bytes, NULL, 0, args, e), "set");
    REFUSED(lathe_set_workspace(&bytes, set, 0, NULL, e), "args");
    CHECK_EQ(bytes, 0);
    CHECK(lathe_version()[0] && lathe_status_text((lathe_status)99)[0] &&
          lathe_dtype_text((lathe_dtype)99)[0]);
    CHECK_EQ(lathe_dtype_size((lathe_dtype)99), 0);
}

/* ---- all of them ---------------------------------------------------------------------------------- */

static char *whole_file(const char *path)
{
    enum { MOST = 1 << 20 };
    FILE *f = fopen(check_source_path(path), "rb");
    char *text = calloc(1, MOST + 1);
    CHECK(f != NULL && text != NULL);
    const size_t n = fread(text, 1, MOST, f);
    CHECK(n > 0 && n < MOST);
    fclose(f);
    return text;
}

/* The name in front of the first parenthesis of a declaration that begins by LATHE_API. */
static void name_of(const char *declaration, char *name, size_t size)
{
    const char *end = strchr(declaration, '(');
    if (strncmp(declaration, "LATHE_API LATHE_CHECK", 21) == 0)
        end = strchr(declaration + 21, '(');
    CHECK(end != NULL);
    const char *from = end;
    while (from > declaration && (isalnum((unsigned char)from[-1]) || from[-1] == '_'))
        from--;
    snprintf(name, size, "%.*s(", (int)(end - from), from);
}

TEST(every_function_is_here)
{
    static const char *const HEADERS[] = {"lathe.h",     "lathe_aot.h",    "lathe_inspect.h",
                                          "lathe_nsa.h", "lathe_packed.h", "lathe_types.h"};
    char *const tried[] = {whole_file("tests/unit/null_args.c"), whole_file("tests/unit/api.c")};
    int n = 0;
    for (size_t i = 0; i < sizeof HEADERS / sizeof *HEADERS; i++) {
        char path[64];
        snprintf(path, sizeof path, "include/%s", HEADERS[i]);
        char *text = whole_file(path);
        for (const char *at = text; (at = strstr(at, "\nLATHE_API ")); at++, n++) {
            char name[64];
            name_of(at + 1, name, sizeof name);
            if (!strstr(tried[0], name) && !strstr(tried[1], name))
                check_fail(__FILE__, __LINE__, name);
        }
        free(text);
    }
    CHECK(n > 40);
    free(tried[0]);
    free(tried[1]);
}
