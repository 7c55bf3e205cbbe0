/*
 * run_nsa.c: `lathe run nsa`: native sparse attention by lathe_nsa.h, on random tensors, timed, and compared
 * with the host device. In: parsed options. Out: lines on standard output. Blocks that weigh the same but for
 * rounding may be chosen either way, so results are compared for the blocks that were chosen, and these with
 * those that double precision chooses.
 */
#include "gen/base/text.h"
#include "gen/ir/tensor.h"
#include "gen/tool/run.h"
#include "lathe_nsa.h"
#include "runtime/driver/memory.h"
#include "runtime/jit/jit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum nsa_size { H, H_KV, D, D_V, T, SEQS, BLOCK, BLOCKS, WINDOW, SIZES };
static const char *const SIZE[SIZES] = {"h", "h_kv", "d", "d_v", "t", "seqs", "block", "blocks", "window"};
enum { MOST_SIZE = 1 << 20 };         /* so that counts of elements do not overflow */
static const double MOST_WORK = 4e10; /* of the host device: products of elements, some minutes */
static const double LEAST_ALIKE = 0.9;

/* In the order of struct lathe_nsa_tensors. */
enum nsa_tensor {
    TQ,
    TK,
    TV,
    TG_CMP,
    TG_SLC,
    TG_SWA,
    TO,
    TBLOCKS,
    TDO,
    TDQ,
    TDK,
    TDV,
    TDG_CMP,
    TDG_SLC,
    TDG_SWA,
    TENSORS
};
static const char *const NAME[TENSORS] = {"q",  "k",  "v",  "g_cmp", "g_slc",  "g_swa",  "o",     "blocks",
                                          "do", "dq", "dk", "dv",    "dg_cmp", "dg_slc", "dg_swa"};

struct nsa_run {
    const struct options *o;
    int64_t size[SIZES];
    lathe_dtype dtype;
    int32_t *length;
    struct run_tensor tensor[TENSORS]; /* arg.data: of the device */
    lathe_ctx *ctx;
    const struct driver *driver; /* NULL on the host device */
    bool pushed;
    lathe_nsa *nsa;
    void *workspace;
    struct stopwatch watch;
    double ready_seconds;
    struct text_buf text;
    struct facts facts;
};

static bool is_backward(const struct nsa_run *r)
{
    return r->o->pass == LATHE_BACKWARD;
}

static bool is_result(int tensor)
{
    return tensor == TO || tensor == TBLOCKS || tensor >= TDQ;
}

/* ---- the problem ----------------------------------------------------------------------------------- */

static int unknown_name(const char *word, int length)
{
    fprintf(stderr, "lathe: problem: unknown name '%.*s'; nsa knows dtype", length, word);
    for (int i = 0; i < SIZES; i++)
        fprintf(stderr, ", %s", SIZE[i]);
    fputs("\n", stderr);
    return CODE_USAGE;
}

static int read_dtype(struct nsa_run *r, const char *value, size_t length)
{
    static const lathe_dtype known[] = {LATHE_F16, LATHE_BF16, LATHE_F32, LATHE_F64};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(lathe_dtype_text(known[i])) == length &&
            strncmp(lathe_dtype_text(known[i]), value, length) == 0) {
            r->dtype = known[i];
            return CODE_OK;
        }
    tool_complain("problem: dtype: expected f16, bf16, f32 or f64, given '%.*s'", (int)length, value);
    return CODE_USAGE;
}

/* NAME=VALUE, of `length` characters. */
static int read_word(struct nsa_run *r, const char *word, size_t length)
{
    const char *equals = memchr(word, '=', length);
    const size_t name = equals ? (size_t)(equals - word) : length;
    const size_t value = equals ? length - name - 1 : 0;
    char *end = NULL;
    if (name == 5 && strncmp(word, "dtype", name) == 0)
        return read_dtype(r, word + length - value, value);
    for (int i = 0; i < SIZES; i++) {
        if (strlen(SIZE[i]) != name || strncmp(SIZE[i], word, name) != 0)
            continue;
        r->size[i] = value > 0 ? strtoll(equals + 1, &end, 10) : 0;
        if (end == word + length && r->size[i] >= 1 && r->size[i] <= MOST_SIZE)
            return CODE_OK;
        tool_complain("problem: %s: expected a number from 1 to %d, given '%.*s'", SIZE[i], MOST_SIZE,
                      (int)value, word + length - value);
        return CODE_USAGE;
    }
    return unknown_name(word, (int)name);
}

static int read_problem(struct nsa_run *r)
{
    static const int64_t usual[SIZES] = {8, 0, 64, 0, 512, 1, 32, 8, 128};
    const char *at = r->o->problem ? r->o->problem : "";
    memcpy(r->size, usual, sizeof usual);
    r->dtype = LATHE_BF16;
    while (*at) {
        const size_t length = strcspn(at, ",");
        const int code = read_word(r, at, length);
        if (code != CODE_OK)
            return code;
        at += length + (at[length] == ',');
    }
    if (r->size[H_KV] == 0)
        r->size[H_KV] = 1;
    if (r->size[D_V] == 0)
        r->size[D_V] = r->size[D];
    if (r->size[SEQS] <= r->size[T])
        return CODE_OK;
    tool_complain("problem: seqs: expected no more than t, %" PRId64 ", given %" PRId64, r->size[T],
                  r->size[SEQS]);
    return CODE_USAGE;
}

/* What is of specs alone. */
static int check_options(const struct options *o)
{
    const char *name = o->set.n > 0               ? "--set"
                       : o->input.n > 0           ? "--input"
                       : o->output.n > 0          ? "--output"
                       : o->param.n > 0           ? "--param"
                       : o->template_name         ? "--template"
                       : o->pass == LATHE_COMBINE ? "--pass combine"
                                                  : NULL;
    if (!name)
        return CODE_OK;
    tool_complain("run nsa: %s is of a single spec; nsa is several in order, on random tensors", name);
    return CODE_USAGE;
}

/* ---- tensors --------------------------------------------------------------------------------------- */

static int64_t count_of(const struct nsa_run *r, int tensor)
{
    const int64_t *n = r->size;
    switch (tensor) {
    case TQ:
    case TDQ:
        return n[T] * n[H] * n[D];
    case TK:
    case TDK:
        return n[T] * n[H_KV] * n[D];
    case TV:
    case TDV:
        return n[T] * n[H_KV] * n[D_V];
    case TO:
    case TDO:
        return n[T] * n[H] * n[D_V];
    case TBLOCKS:
        return n[T] * n[H_KV] * n[BLOCKS];
    default:
        return n[T] * n[H];
    }
}

static lathe_dtype dtype_of(const struct nsa_run *r, int tensor)
{
    if (tensor == TBLOCKS)
        return LATHE_I32;
    return tensor < TDG_CMP || r->dtype == LATHE_F64 ? r->dtype : LATHE_F32;
}

static int make_tensors(struct nsa_run *r)
{
    r->length = calloc((size_t)r->size[SEQS], sizeof *r->length);
    for (int64_t i = 0; r->length && i < r->size[SEQS]; i++) /* as even as may be */
        r->length[i] = (int32_t)(r->size[T] / r->size[SEQS] + (i < r->size[T] % r->size[SEQS]));
    for (int i = 0; i < TENSORS; i++) {
        struct run_tensor *t = &r->tensor[i];
        struct random random = {r->o->seed * UINT64_C(0x100000001b3) + (uint64_t)i};
        t->count = count_of(r, i);
        t->arg = (lathe_arg){.name = NAME[i], .dtype = dtype_of(r, i)};
        t->bytes = (size_t)t->count * lathe_dtype_size(t->arg.dtype);
        t->host = malloc(t->bytes);
        t->arg.data = t->host;
        if (!t->host || !r->length) {
            tool_complain("run nsa: out of memory for %s, %zu bytes", NAME[i], t->bytes);
            return CODE_ENVIRONMENT;
        }
        memset(t->host, 0xff, t->bytes); /* NaN in every float type */
        const int code = is_result(i) ? CODE_OK : run_fill_floats(t, &random);
        if (code != CODE_OK)
            return code;
    }
    return CODE_OK;
}

static lathe_nsa_tensors tensors_of(const struct run_tensor *t, bool blocks_given)
{
    return (lathe_nsa_tensors){.q = t[TQ].arg.data,
                               .k = t[TK].arg.data,
                               .v = t[TV].arg.data,
                               .g_cmp = t[TG_CMP].arg.data,
                               .g_slc = t[TG_SLC].arg.data,
                               .g_swa = t[TG_SWA].arg.data,
                               .o = t[TO].arg.data,
                               .blocks = t[TBLOCKS].arg.data,
                               .blocks_given = blocks_given,
                               .dout = t[TDO].arg.data,
                               .dq = t[TDQ].arg.data,
                               .dk = t[TDK].arg.data,
                               .dv = t[TDV].arg.data,
                               .dg_cmp = t[TDG_CMP].arg.data,
                               .dg_slc = t[TDG_SLC].arg.data,
                               .dg_swa = t[TDG_SWA].arg.data};
}

static lathe_nsa_sizes sizes_of(const struct nsa_run *r, lathe_dtype dtype)
{
    return (lathe_nsa_sizes){.h = (int32_t)r->size[H],
                             .h_kv = (int32_t)r->size[H_KV],
                             .d = (int32_t)r->size[D],
                             .d_v = (int32_t)r->size[D_V],
                             .block = (int32_t)r->size[BLOCK],
                             .blocks = (int32_t)r->size[BLOCKS],
                             .window = (int32_t)r->size[WINDOW],
                             .sequences = (int32_t)r->size[SEQS],
                             .lengths = r->length,
                             .dtype = dtype,
                             .backward = is_backward(r)};
}

/* ---- launches -------------------------------------------------------------------------------------- */

static lathe_status open_device(struct nsa_run *r, lathe_error *err)
{
    const lathe_options options = {.device = r->o->device, .cache_dir = r->o->cache_dir};
    const lathe_nsa_sizes sizes = sizes_of(r, r->dtype);
    TRY(lathe_ctx_create(&r->ctx, &options, err));
    const double start = tool_seconds_now();
    TRY(lathe_nsa_create(&r->nsa, r->ctx, &sizes, err));
    r->ready_seconds = tool_seconds_now() - start;
    const size_t bytes = lathe_nsa_workspace_size(r->nsa);
    if (lathe_ctx_device(r->ctx) == LATHE_DEVICE_HOST) {
        r->workspace = malloc(bytes);
        return r->workspace ? lathe_nsa_attach(r->nsa, r->workspace, err) : lathe__fail_memory(err);
    }
    r->driver = r->ctx->driver;
    TRY(lathe__context_enter(r->driver, r->ctx->context, &r->pushed, err));
    for (int i = 0; i < TENSORS; i++) {
        struct run_tensor *t = &r->tensor[i];
        TRY(lathe__device_alloc(r->driver, &t->device, t->bytes, err));
        TRY(lathe__device_upload(r->driver, t->device, t->host, t->bytes, err));
        t->arg.data = t->device;
    }
    TRY(lathe__device_alloc(r->driver, &r->workspace, bytes, err));
    TRY(lathe__stopwatch_create(r->driver, &r->watch, err));
    return lathe_nsa_attach(r->nsa, r->workspace, err);
}

static void close_device(struct nsa_run *r)
{
    if (r->driver) {
        for (int i = 0; i < TENSORS; i++)
            lathe__device_free(r->driver, r->tensor[i].device);
        lathe__device_free(r->driver, r->workspace);
        lathe__stopwatch_destroy(r->driver, &r->watch);
        lathe__context_leave(r->driver, r->pushed);
    } else {
        free(r->workspace);
    }
    lathe_nsa_destroy(r->nsa);
    lathe_ctx_destroy(r->ctx);
    for (int i = 0; i < TENSORS; i++)
        free(r->tensor[i].host);
    free(r->length);
}

static lathe_status launch(struct nsa_run *r, bool backward, lathe_error *err)
{
    const lathe_nsa_tensors t = tensors_of(r->tensor, false);
    return backward ? lathe_nsa_backward(r->nsa, &t, NULL, err) : lathe_nsa_forward(r->nsa, &t, NULL, err);
}

static lathe_status time_once(struct nsa_run *r, double *seconds, lathe_error *err)
{
    if (r->driver) {
        TRY(lathe__stopwatch_start(r->driver, &r->watch, NULL, err));
        TRY(launch(r, is_backward(r), err));
        return lathe__stopwatch_stop(r->driver, &r->watch, NULL, seconds, err);
    }
    const double start = tool_seconds_now();
    TRY(launch(r, is_backward(r), err));
    *seconds = tool_seconds_now() - start;
    return LATHE_OK;
}

static lathe_status run_all(struct nsa_run *r, double *seconds, lathe_error *err)
{
    TRY(open_device(r, err));
    if (r->driver ||
        is_backward(r)) /* a first launch pays for what is lazy; a backward pass comes behind one */
        TRY(launch(r, false, err));
    if (r->driver && is_backward(r))
        TRY(launch(r, true, err));
    for (int i = 0; i < r->o->repeat; i++)
        TRY(time_once(r, &seconds[i], err));
    for (int i = 0; r->driver && i < TENSORS; i++)
        if (is_result(i))
            TRY(lathe__device_download(r->driver, r->tensor[i].host, r->tensor[i].arg.data,
                                       r->tensor[i].bytes, err));
    return LATHE_OK;
}

/* ---- the comparison -------------------------------------------------------------------------------- */

/* Copies in double precision; results are NaN, and blocks those that were chosen. */
static bool widen(const struct nsa_run *r, struct run_tensor *wide)
{
    bool ok = true;
    for (int i = 0; i < TENSORS; i++) {
        const struct run_tensor *t = &r->tensor[i];
        const size_t bytes = (size_t)t->count * (i == TBLOCKS ? 4 : 8);
        wide[i] = *t;
        wide[i].host = wide[i].arg.data = malloc(bytes);
        ok = ok && wide[i].host;
        if (!wide[i].host)
            continue;
        memset(wide[i].host, 0xff, bytes);
        if (i == TBLOCKS)
            memcpy(wide[i].host, t->host, bytes);
        for (int64_t k = 0; k < t->count && !is_result(i); k++)
            ((double *)wide[i].host)[k] = dtype_load(t->arg.dtype, t->host, k);
    }
    return ok;
}

/* Forward, and backward if asked for, on the host device. */
static lathe_status run_host(const struct nsa_run *r, const struct run_tensor *wide, bool blocks_given,
                             lathe_error *err)
{
    const lathe_options options = {.device = LATHE_DEVICE_HOST};
    const lathe_nsa_sizes sizes = sizes_of(r, LATHE_F64);
    const lathe_nsa_tensors t = tensors_of(wide, blocks_given);
    lathe_ctx *ctx = NULL;
    lathe_nsa *nsa = NULL;
    void *workspace = NULL;
    lathe_status status = lathe_ctx_create(&ctx, &options, err);
    if (status == LATHE_OK)
        status = lathe_nsa_create(&nsa, ctx, &sizes, err);
    if (status == LATHE_OK) {
        workspace = malloc(lathe_nsa_workspace_size(nsa));
        status = workspace ? lathe_nsa_attach(nsa, workspace, err) : lathe__fail_memory(err);
    }
    if (status == LATHE_OK)
        status = lathe_nsa_forward(nsa, &t, NULL, err);
    if (status == LATHE_OK && is_backward(r) && blocks_given)
        status = lathe_nsa_backward(nsa, &t, NULL, err);
    lathe_nsa_destroy(nsa);
    lathe_ctx_destroy(ctx);
    free(workspace);
    return status;
}

/* Squared, of what is expected. */
static double size_of(const struct run_tensor *wide)
{
    double size = 0;
    for (int64_t k = 0; k < wide->count; k++)
        size += pow(((const double *)wide->host)[k], 2);
    return size;
}

/* largest: the squared size of the largest gradient; 0: of a forward pass. */
static bool report_tensor(struct nsa_run *r, const struct run_tensor *wide, int tensor, double largest)
{
    const struct run_tensor *t = &r->tensor[tensor];
    const double bound = 2 * run_bound(r->dtype); /* of several steps */
    const double size = size_of(&wide[tensor]);
    double error = 0;
    for (int64_t k = 0; k < t->count; k++)
        error += pow(dtype_load(t->arg.dtype, t->host, k) - ((const double *)wide[tensor].host)[k], 2);
    const double relative = error == 0 ? 0 : sqrt(error / (run_cancels(size, largest) ? largest : size));
    const bool ok = relative <= bound; /* NaN is not */
    facts_open(&r->facts, NULL, '{');
    facts_string(&r->facts, "name", NAME[tensor]);
    facts_number(&r->facts, "relative", relative);
    facts_number(&r->facts, "bound", bound);
    facts_bool(&r->facts, "ok", ok);
    facts_close(&r->facts);
    facts_line(&r->facts, "verify     %s: relative error %.2e, bound %.1e: %s\n", NAME[tensor], relative,
               bound, ok ? "ok" : "FAILED");
    return ok;
}

/* How many entries of the lists are in those of double precision. */
static bool report_blocks(struct nsa_run *r, const struct run_tensor *wide)
{
    const int32_t *chosen = r->tensor[TBLOCKS].host;
    const int32_t *expected = wide[TBLOCKS].host;
    const int64_t n = r->size[BLOCKS];
    int64_t alike = 0;
    for (int64_t i = 0; i < r->tensor[TBLOCKS].count; i++) {
        bool found = false;
        for (int64_t k = 0; k < n; k++)
            found |= expected[i / n * n + k] == chosen[i];
        alike += found;
    }
    const double part = (double)alike / (double)r->tensor[TBLOCKS].count;
    const bool ok = part >= LEAST_ALIKE;
    facts_number(&r->facts, "blocks_alike", part);
    facts_line(&r->facts, "verify     blocks: %.2f %% of them as in double precision, at least %.0f %%: %s\n",
               100 * part, 100 * LEAST_ALIKE, ok ? "ok" : "FAILED");
    return ok;
}

static int compare(struct nsa_run *r, struct run_tensor *wide)
{
    lathe_error err = {0};
    bool ok = true;
    if (!widen(r, wide)) {
        tool_complain("run nsa: out of memory");
        return CODE_ENVIRONMENT;
    }
    if (run_host(r, wide, true, &err) != LATHE_OK)
        return complain_error(&err);
    double largest = 0;
    for (int i = TDQ; i < TENSORS && is_backward(r); i++)
        largest = fmax(largest, size_of(&wide[i]));
    facts_open(&r->facts, "verify", '[');
    for (int i = 0; i < TENSORS; i++)
        if (i == TO || (is_backward(r) && i >= TDQ))
            ok &= report_tensor(r, wide, i, i == TO ? 0 : largest);
    facts_close(&r->facts);
    if (run_host(r, wide, false, &err) != LATHE_OK)
        return complain_error(&err);
    ok &= report_blocks(r, wide);
    facts_bool(&r->facts, "verified", ok);
    return ok ? CODE_OK : CODE_FAILED;
}

static int verify(struct nsa_run *r)
{
    struct run_tensor wide[TENSORS];
    memset(wide, 0, sizeof wide);
    const int code = compare(r, wide);
    for (int i = 0; i < TENSORS; i++)
        free(wide[i].host);
    return code;
}

/* Before the run. */
static int check_work(const struct nsa_run *r)
{
    const int64_t *n = r->size;
    const double length = (double)n[T] / (double)n[SEQS];
    const double keys = length * (2 + 1.0 / (double)n[BLOCK]);
    const double work =
        (is_backward(r) ? 7 : 2) * (double)n[T] * (double)n[H] * keys * (double)(n[D] + n[D_V]);
    if (!r->o->verify || work <= MOST_WORK)
        return CODE_OK;
    tool_complain("run nsa: --verify would take the host device too long; take fewer tokens or heads");
    return CODE_USAGE;
}

/* ---- report ---------------------------------------------------------------------------------------- */

static int report(struct nsa_run *r, double *seconds)
{
    struct text_buf problem = {0};
    text_add(&problem, "dtype=%s", lathe_dtype_text(r->dtype));
    for (int i = 0; i < SIZES; i++)
        text_add(&problem, ",%s=%" PRId64, SIZE[i], r->size[i]);
    const char *text = problem.data ? problem.data : "";
    facts_begin(&r->facts, &r->text, r->o->json);
    facts_string(&r->facts, "kernel", "nsa");
    facts_string(&r->facts, "device", lathe_ctx_device_name(r->ctx));
    facts_string(&r->facts, "problem", text);
    facts_line(&r->facts, "kernel     nsa, %s\ndevice     %s\nproblem    %s\n",
               is_backward(r) ? "backward" : "forward", lathe_ctx_device_name(r->ctx), text);
    facts_number(&r->facts, "ready_seconds", r->ready_seconds);
    facts_integer(&r->facts, "workspace", (int64_t)lathe_nsa_workspace_size(r->nsa));
    facts_line(&r->facts, "workspace  %zu bytes\n", lathe_nsa_workspace_size(r->nsa));
    run_report_time(&r->facts, seconds, r->o->repeat);
    text_free(&problem);
    const int code = r->o->verify ? verify(r) : CODE_OK;
    facts_end(&r->facts);
    (void)tool_print(&r->text);
    return code;
}

int run_nsa(const struct options *o)
{
    struct nsa_run r = {.o = o};
    lathe_error err = {0};
    double *seconds = calloc((size_t)o->repeat, sizeof *seconds);
    int code = seconds ? check_options(o) : CODE_ENVIRONMENT;
    if (!seconds)
        tool_complain("out of memory");
    if (code == CODE_OK)
        code = read_problem(&r);
    if (code == CODE_OK)
        code = check_work(&r);
    if (code == CODE_OK)
        code = make_tensors(&r);
    if (code == CODE_OK) {
        const lathe_status status = run_all(&r, seconds, &err);
        code = status == LATHE_OK ? report(&r, seconds) : complain_error(&err);
    }
    close_device(&r);
    free(seconds);
    return code;
}
