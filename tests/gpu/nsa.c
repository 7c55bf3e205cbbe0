/*
 * nsa.c: native sparse attention by lathe_nsa.h on the device, against the same call on the host device.
 *
 * In: the contexts that main opened. Out: a line for each problem, counts in totals. The host computes in f32
 * of the same values with the blocks that the device has chosen, since weights that differ by less than
 * rounding may change places; how many tokens chose otherwise is compared apart.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe_nsa.h"
#include "system.h"

enum { H = 4, H_KV = 2, D = 64, D_V = 32, BLOCK = 32, BLOCKS = 5, WINDOW = 48, TOKENS = 600 };
static const int32_t UNLIKE[] = {251, 0, 33, 1, 315};
static const int32_t ALIKE[] = {300, 300};
enum { UNLIKE_CHUNKS = 8 + 0 + 2 + 1 + 10, ALIKE_CHUNKS = 10 + 10 };

enum tensor_name {
    Q,
    K,
    V,
    G_CMP,
    G_SLC,
    G_SWA,
    K_CMP,
    V_CMP,
    DOUT,
    READ,
    O = READ,
    DQ,
    DK,
    DV,
    DK_CMP,
    DV_CMP,
    DG_CMP,
    DG_SLC,
    DG_SWA,
    TENSORS
};
static const struct { /* elements of a token, or of a chunk */
    const char *name;
    int width;
    bool of_chunks, f32;
    double bound; /* of a result: relative error, L2 */
} TENSOR[TENSORS] = {
    [Q] = {"q", H *D, false, false, 0},
    [K] = {"k", H_KV *D, false, false, 0},
    [V] = {"v", H_KV *D_V, false, false, 0},
    [G_CMP] = {"g_cmp", H, false, false, 0},
    [G_SLC] = {"g_slc", H, false, false, 0},
    [G_SWA] = {"g_swa", H, false, false, 0},
    [K_CMP] = {"k_cmp", H_KV *D, true, false, 0},
    [V_CMP] = {"v_cmp", H_KV *D_V, true, false, 0},
    [DOUT] = {"dout", H *D_V, false, false, 0},
    [O] = {"o", H *D_V, false, false, 1e-2},
    [DQ] = {"dq", H *D, false, false, 2e-2},
    [DK] = {"dk", H_KV *D, false, false, 2e-2},
    [DV] = {"dv", H_KV *D_V, false, false, 2e-2},
    [DK_CMP] = {"dk_cmp", H_KV *D, true, false, 2e-2},
    [DV_CMP] = {"dv_cmp", H_KV *D_V, true, false, 2e-2},
    [DG_CMP] = {"dg_cmp", H, false, true, 2e-2},
    [DG_SLC] = {"dg_slc", H, false, true, 2e-2},
    [DG_SWA] = {"dg_swa", H, false, true, 2e-2},
};

struct problem {
    const char *name;
    int n, chunks;
    const int32_t *length;
    bool counts, compressed;
};
static const struct problem PROBLEM[] = {
    {"sequences of several lengths", 5, UNLIKE_CHUNKS, UNLIKE, false, false},
    {"a batch", 2, ALIKE_CHUNKS, ALIKE, false, false},
    {"counts", 5, UNLIKE_CHUNKS, UNLIKE, true, false},
    {"counts of a batch", 2, ALIKE_CHUNKS, ALIKE, true, false},
    {"blocks that the caller compresses", 5, UNLIKE_CHUNKS, UNLIKE, false, true},
    {"counts, and blocks that the caller compresses, of a batch", 2, ALIKE_CHUNKS, ALIKE, true, true},
};

/* One side's tensors, all in one piece of its memory. */
struct tensors {
    void *at[TENSORS], *blocks, *counts;
    size_t bytes[TENSORS];
    char *memory;
};

enum { CHOSEN = H_KV * TOKENS * BLOCKS, COUNTS = H_KV * TOKENS, ALIGNED = 256 };

static int elements(const struct problem *p, int name)
{
    return TENSOR[name].width * (TENSOR[name].of_chunks ? p->chunks : TOKENS);
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static size_t element_bytes(int name, lathe_dtype dtype)
{
    return TENSOR[name].f32 || dtype == LATHE_F32 ? sizeof(float) : sizeof(uint16_t);
}

static bool tensors_place(const struct problem *p, const struct side *side, lathe_dtype dtype,
                          struct tensors *to)
{
    size_t all = 0;
    for (int i = 0; i < TENSORS; i++) {
        to->bytes[i] = (size_t)elements(p, i) * element_bytes(i, dtype);
        all += aligned(to->bytes[i]);
    }
    to->memory =
        device_alloc(side->device, all + aligned(CHOSEN * sizeof(int32_t)) + COUNTS * sizeof(int32_t));
    if (!to->memory) {
        return false;
    }
    char *next = to->memory;
    for (int i = 0; i < TENSORS; next += aligned(to->bytes[i++])) {
        to->at[i] = next;
    }
    to->blocks = next;
    to->counts = next + aligned(CHOSEN * sizeof(int32_t));
    return true;
}

/* A number that bf16 holds, of a deviation of about 0.6 or, of gates, about 0.5. */
static float draw(uint32_t *state, bool gate)
{
    float sum = gate ? 0.5f : 0.0f;
    for (int i = 0; i < 4; i++) {
        *state = *state * 1664525u + 1013904223u;
        sum += (float)(*state >> 8) / (1 << 24) - 0.5f;
    }
    uint32_t bits = 0;
    memcpy(&bits, &sum, sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

static float widened(const void *from, int i, size_t bytes)
{
    float x = 0;
    if (bytes == sizeof x) {
        memcpy(&x, (const char *)from + (size_t)i * sizeof x, sizeof x);
        return x;
    }
    uint16_t half = 0;
    memcpy(&half, (const char *)from + (size_t)i * sizeof half, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void narrowed(void *to, int i, size_t bytes, float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t half = (uint16_t)(bits >> 16);
    if (bytes == sizeof x) {
        memcpy((char *)to + (size_t)i * sizeof x, &x, sizeof x);
    } else {
        memcpy((char *)to + (size_t)i * sizeof half, &half, sizeof half);
    }
}

/* The same values on any side; results begin as NaN. */
static bool tensors_fill(const struct problem *p, const struct side *side, lathe_dtype dtype,
                         const struct tensors *to)
{
    uint32_t state = 7;
    bool good = true;
    for (int name = 0; name < TENSORS && good; name++) {
        char *staging = malloc(to->bytes[name] + 1);
        if (!staging) {
            return false;
        }
        memset(staging, 0xff, to->bytes[name]);
        for (int i = 0; i < elements(p, name) && name < READ; i++) {
            narrowed(staging, i, element_bytes(name, dtype), draw(&state, name >= G_CMP && name <= G_SWA));
        }
        good = device_upload(side->device, to->at[name], staging, to->bytes[name]);
        free(staging);
    }
    int32_t counts[COUNTS];
    for (int i = 0; i < COUNTS; i++) {
        counts[i] = i * 7 % (BLOCKS + 1);
    }
    return good && device_upload(side->device, to->counts, counts, sizeof counts);
}

static lathe_nsa_tensors handed(const struct problem *p, const struct tensors *x, bool given)
{
    lathe_nsa_tensors t = {.q = x->at[Q], .k = x->at[K], .v = x->at[V], .o = x->at[O], .dout = x->at[DOUT]};
    t.g_cmp = x->at[G_CMP], t.g_slc = x->at[G_SLC], t.g_swa = x->at[G_SWA];
    t.dq = x->at[DQ], t.dk = x->at[DK], t.dv = x->at[DV];
    t.dg_cmp = x->at[DG_CMP], t.dg_slc = x->at[DG_SLC], t.dg_swa = x->at[DG_SWA];
    t.blocks = x->blocks;
    t.blocks_given = given;
    t.counts = p->counts ? x->counts : NULL;
    if (p->compressed) {
        t.k_cmp = x->at[K_CMP], t.v_cmp = x->at[V_CMP];
        t.dk_cmp = x->at[DK_CMP], t.dv_cmp = x->at[DV_CMP];
    }
    return t;
}

static lathe_nsa_sizes sizes(const struct problem *p, lathe_dtype dtype)
{
    return (lathe_nsa_sizes){.h = H,
                             .h_kv = H_KV,
                             .d = D,
                             .d_v = D_V,
                             .block = BLOCK,
                             .blocks = BLOCKS,
                             .window = WINDOW,
                             .sequences = p->n,
                             .lengths = p->length,
                             .dtype = dtype,
                             .backward = 1,
                             .counts = p->counts,
                             .compressed = p->compressed};
}

/* Both passes. */
static bool run(const struct problem *p, const struct side *side, lathe_dtype dtype, const struct tensors *x,
                bool given, lathe_error *err)
{
    const lathe_nsa_sizes s = sizes(p, dtype);
    const lathe_nsa_tensors t = handed(p, x, given);
    lathe_nsa *nsa = NULL;
    bool good = lathe_nsa_create(&nsa, side->ctx, &s, err) == LATHE_OK;
    void *workspace = good ? device_alloc(side->device, lathe_nsa_workspace_size(nsa)) : NULL;
    good = good && lathe_nsa_attach(nsa, workspace, err) == LATHE_OK &&
           lathe_nsa_forward(nsa, &t, side->stream, err) == LATHE_OK &&
           lathe_nsa_backward(nsa, &t, side->stream, err) == LATHE_OK &&
           device_sync(side->device, side->stream);
    device_free(side->device, workspace);
    lathe_nsa_destroy(nsa);
    return good;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Lists of a token and a key head that are not of the same blocks. */
static int lists_unlike(const int32_t *a, const int32_t *b)
{
    int unlike = 0;
    for (int row = 0; row < CHOSEN / BLOCKS; row++) {
        int32_t x[BLOCKS];
        int32_t y[BLOCKS];
        memcpy(x, a + (size_t)row * BLOCKS, sizeof x);
        memcpy(y, b + (size_t)row * BLOCKS, sizeof y);
        qsort(x, BLOCKS, sizeof *x, ascending);
        qsort(y, BLOCKS, sizeof *y, ascending);
        unlike += memcmp(x, y, sizeof x) != 0;
    }
    return unlike;
}

/* The error of a result as a fraction of its bound. */
/* Squared, of what is expected. */
static double size_of(const struct problem *p, int name, const float *wanted)
{
    double size = 0;
    for (int i = 0; i < elements(p, name); i++)
        size += pow((double)wanted[i], 2);
    return size;
}

static bool is_left_out(const struct problem *p, int name)
{
    return (name == DK_CMP || name == DV_CMP) && !p->compressed;
}

/* The squared size of the largest gradient. One that cancels, as that of q where a row has one key, is
   measured by it: it is made of the same terms, and what is left of it is their rounding. */
static double largest_gradient(const struct problem *p, const struct tensors *reference)
{
    double largest = 0;
    for (int name = O + 1; name < TENSORS; name++)
        if (!is_left_out(p, name))
            largest = fmax(largest, size_of(p, name, reference->at[name]));
    return largest;
}

static const double CANCELLED = 1e-12; /* of its squared size: the reference is f32 */

static double error_of(const struct problem *p, int name, const void *got, const float *wanted,
                       double largest)
{
    const size_t bytes = element_bytes(name, LATHE_BF16);
    const double size = size_of(p, name, wanted);
    double off = 0;
    for (int i = 0; i < elements(p, name); i++)
        off += pow((double)widened(got, i, bytes) - (double)wanted[i], 2);
    const double base = name != O && size < CANCELLED * largest ? largest : size;
    const double error = off == 0 ? 0 : sqrt(off / base) / TENSOR[name].bound;
    return isnan(error) ? HUGE_VAL : error;
}

static void compare(const struct problem *p, const struct side *side, const struct tensors *tested,
                    const struct tensors *reference, char *note, size_t size, bool *good)
{
    const double largest = largest_gradient(p, reference);
    double worst = 0;
    int which = O;
    for (int name = O; name < TENSORS; name++) {
        if (is_left_out(p, name))
            continue;
        char *got = malloc(tested->bytes[name] + 1);
        const bool read = got && device_download(side->device, got, tested->at[name], tested->bytes[name]);
        const double error = read ? error_of(p, name, got, reference->at[name], largest) : HUGE_VAL;
        free(got);
        if (error > worst) {
            worst = error;
            which = name;
        }
    }
    *good = worst <= 1;
    (void)snprintf(note, size, "%s: %s %.2f of its bound", p->name, TENSOR[which].name, worst);
}

enum { FEW = CHOSEN / BLOCKS / 50 }; /* lists that rounding may change */

static bool check(const struct problem *p, const struct bench *bench, const struct tensors *tested,
                  const struct tensors *reference, char *note, size_t size)
{
    static int32_t chosen[CHOSEN];
    lathe_error err = {0};
    const struct side *host = &bench->reference;
    bool good = tensors_fill(p, &bench->tested, LATHE_BF16, tested) &&
                tensors_fill(p, host, LATHE_F32, reference) &&
                run(p, &bench->tested, LATHE_BF16, tested, false, &err) &&
                run(p, host, LATHE_F32, reference, false, &err) &&
                device_download(bench->tested.device, chosen, tested->blocks, sizeof chosen);
    const int unlike = good ? lists_unlike(chosen, reference->blocks) : 0;
    if (unlike > FEW) {
        (void)snprintf(note, size, "%s: %d of %d lists are of other blocks", p->name, unlike,
                       CHOSEN / BLOCKS);
        return false;
    }
    if (good) {
        memcpy(reference->blocks, chosen, sizeof chosen);
    }
    good = good && run(p, host, LATHE_F32, reference, true, &err);
    if (!good) {
        (void)snprintf(note, size, "%s: %s", p->name, *err.text ? err.text : device_error());
        return false;
    }
    compare(p, &bench->tested, tested, reference, note, size, &good);
    return good;
}

void nsa_run(const struct bench *bench, struct totals *totals)
{
    for (size_t i = 0; i < sizeof PROBLEM / sizeof *PROBLEM; i++) {
        const struct problem *p = &PROBLEM[i];
        struct tensors tested = {0};
        struct tensors reference = {0};
        char note[640] = "out of memory";
        const bool good = tensors_place(p, &bench->tested, LATHE_BF16, &tested) &&
                          tensors_place(p, &bench->reference, LATHE_F32, &reference) &&
                          check(p, bench, &tested, &reference, note, sizeof note);
        verdict(totals, good, "nsa", note);
        device_free(bench->tested.device, tested.memory);
        device_free(bench->reference.device, reference.memory);
    }
}
