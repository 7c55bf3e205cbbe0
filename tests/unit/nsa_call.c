/*
 * nsa_call.c: native sparse attention by lathe_nsa.h, on the host device against plain C. Sequences of
 * several lengths, none and one token among them; blocks are chosen among more than there are places for.
 * Compared are o, and gradients by the change of sum(o dout) along a random direction of all of q, k, v and
 * the gates.
 */
#include "check.h"
#include "lathe_nsa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { H = 4, H_KV = 2, D = 16, D_V = 24, BLOCK = 16, BLOCKS = 5, WINDOW = 20, TOKENS = 264 };
enum { CHUNKS = 11 };         /* of the longest sequence */
static const struct lengths { /* TOKENS in all */
    int n;
    int32_t of[5];
} UNLIKE = {5, {70, 0, 33, 1, 160}}, ALIKE = {2, {132, 132}};

enum input { Q, K, V, G_CMP, G_SLC, G_SWA, INPUTS };
static const int WIDTH[INPUTS] = {H * D, H_KV *D, H_KV *D_V, H, H, H};
enum { MOST = TOKENS * H * D_V };
static double x[INPUTS][MOST], direction[INPUTS][MOST], gradient[INPUTS][MOST], dout[MOST];

static double draw(void)
{
    static unsigned state = 1;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        state = state * 1664525u + 1013904223u;
        sum += (double)(state >> 8) / (1 << 24) - 0.5;
    }
    return sum;
}

/* ---- plain C --------------------------------------------------------------------------------------- */

static bool chosen[H_KV][TOKENS][CHUNKS]; /* found once, and a constant from then on */

struct place { /* a token: of a sequence from `first` on, its own number there, a query head */
    int first, t, h;
};

static double at(int input, double step, int token, int i)
{
    const int flat = token * WIDTH[input] + i;
    return x[input][flat] + step * direction[input][flat];
}

/* Of keys from .. to of a sequence: the mean of elements, which are those of head h_kv. */
static double mean(int input, double step, int first, int from, int to, int i)
{
    double sum = 0;
    for (int j = from; j < to; j++)
        sum += at(input, step, first + j, i);
    return sum / (to - from);
}

/* Softmax over n keys or blocks that are `live`: adds gate * o, and gives the weights. */
static void attend(struct place p, double step, int n, const bool *live, bool means, int gate, double *o,
                   double *w)
{
    const int kv = p.h / (H / H_KV);
    double sum = 0;
    for (int j = 0; j < n; j++) {
        double s = 0;
        for (int i = 0; live[j] && i < D; i++)
            s += at(Q, step, p.first + p.t, p.h * D + i) *
                 (means ? mean(K, step, p.first, j * BLOCK, (j + 1) * BLOCK, kv * D + i)
                        : at(K, step, p.first + j, kv * D + i));
        w[j] = live[j] ? exp(s / sqrt(D)) : 0.0;
        sum += w[j];
    }
    for (int j = 0; j < n && sum > 0; j++) {
        w[j] /= sum;
        for (int i = 0; live[j] && i < D_V; i++)
            o[i] += at(gate, step, p.first + p.t, p.h) * w[j] *
                    (means ? mean(V, step, p.first, j * BLOCK, (j + 1) * BLOCK, kv * D_V + i)
                           : at(V, step, p.first + j, kv * D_V + i));
    }
}

static void choose(struct place p, const double *weight)
{
    bool *to = chosen[p.h / (H / H_KV)][p.first + p.t];
    const int own = p.t / BLOCK;
    int n = 0;
    for (int c = 0; c <= own; c++) {
        to[c] = c == 0 || c >= own - 1;
        n += to[c];
    }
    for (; n < BLOCKS && n <= own; n++) {
        int best = -1;
        for (int c = 0; c <= own; c++)
            if (!to[c] && (best < 0 || weight[c] > weight[best]))
                best = c;
        to[best] = true;
    }
}

/* o of a token and a key head, at x + step * direction. */
static void token(struct place p, double step, bool first_time, double *o)
{
    double weight[CHUNKS] = {0};
    double w[TOKENS];
    bool live[TOKENS];
    for (int g = 0; g < H / H_KV; g++, p.h++) {
        double *to = o + (p.first + p.t) * H * D_V + p.h * D_V;
        memset(to, 0, D_V * sizeof *to);
        for (int c = 0; c < CHUNKS; c++)
            live[c] = c < (p.t + 1) / BLOCK;
        attend(p, step, (p.t + 1) / BLOCK, live, true, G_CMP, to, w);
        for (int c = 0; c < (p.t + 1) / BLOCK; c++)
            weight[c] += w[c];
        for (int j = 0; j <= p.t; j++)
            live[j] = p.t - j < WINDOW;
        attend(p, step, p.t + 1, live, false, G_SWA, to, w);
    }
    p.h -= H / H_KV;
    if (first_time)
        choose(p, weight);
    for (int j = 0; j <= p.t; j++)
        live[j] = chosen[p.h / (H / H_KV)][p.first + p.t][j / BLOCK];
    for (int g = 0; g < H / H_KV; g++, p.h++)
        attend(p, step, p.t + 1, live, false, G_SLC, o + (p.first + p.t) * H * D_V + p.h * D_V, w);
}

/* sum(o dout) */
static double reference(const struct lengths *length, double step, bool first_time, double *o)
{
    double sum = 0;
    int first = 0;
    for (int s = 0; s < length->n; first += length->of[s++])
        for (int t = 0; t < length->of[s]; t++)
            for (int kv = 0; kv < H_KV; kv++)
                token((struct place){first, t, kv * (H / H_KV)}, step, first_time, o);
    for (int i = 0; i < MOST; i++)
        sum += o[i] * dout[i];
    return sum;
}

/* ---- the call -------------------------------------------------------------------------------------- */

static lathe_nsa_sizes sizes(const struct lengths *length, int backward)
{
    return (lathe_nsa_sizes){.h = H,
                             .h_kv = H_KV,
                             .d = D,
                             .d_v = D_V,
                             .block = BLOCK,
                             .blocks = BLOCKS,
                             .window = WINDOW,
                             .sequences = length->n,
                             .lengths = length->of,
                             .dtype = LATHE_F64,
                             .backward = backward};
}

static lathe_ctx *host(void)
{
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_error err = {0};
    lathe_ctx *ctx = NULL;
    options.device = LATHE_DEVICE_HOST;
    CHECK_EQ(lathe_ctx_create(&ctx, &options, &err), LATHE_OK);
    return ctx;
}

static void draw_all(void)
{
    for (int i = 0; i < INPUTS; i++)
        for (int k = 0; k < TOKENS * WIDTH[i]; k++) {
            x[i][k] = i < G_CMP ? 2 * draw() : draw() + 0.5;
            direction[i][k] = draw();
        }
    for (int i = 0; i < MOST; i++)
        dout[i] = draw();
}

static lathe_nsa_tensors all_tensors(double *o, int32_t *blocks)
{
    return (lathe_nsa_tensors){.q = x[Q],
                               .k = x[K],
                               .v = x[V],
                               .g_cmp = x[G_CMP],
                               .g_slc = x[G_SLC],
                               .g_swa = x[G_SWA],
                               .o = o,
                               .blocks = blocks,
                               .dout = dout,
                               .dq = gradient[Q],
                               .dk = gradient[K],
                               .dv = gradient[V],
                               .dg_cmp = gradient[G_CMP],
                               .dg_slc = gradient[G_SLC],
                               .dg_swa = gradient[G_SWA]};
}

/* The blocks of o are left in `blocks`, or taken from there. */
// NOLINTNEXTLINE(readability-non-const-parameter): they are written to
static lathe_nsa *run(lathe_ctx *ctx, const struct lengths *length, double *o, int32_t *blocks, bool given)
{
    const lathe_nsa_sizes s = sizes(length, 1);
    lathe_nsa_tensors t = all_tensors(o, blocks);
    t.blocks_given = given;
    lathe_error err = {0};
    lathe_nsa *nsa = NULL;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &s, &err), LATHE_OK);
    void *workspace = malloc(lathe_nsa_workspace_size(nsa));
    CHECK_EQ(lathe_nsa_attach(nsa, workspace, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_backward(nsa, &t, NULL, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    free(workspace);
    return nsa;
}

static void compare_with_plain_c(const struct lengths *length)
{
    static double o[MOST];
    static double wanted[MOST];
    static double moved[MOST];
    const double small = 1e-4;
    lathe_ctx *ctx = host();
    draw_all();
    lathe_nsa *nsa = run(ctx, length, o, NULL, false);
    reference(length, 0, true, wanted);
    for (int i = 0; i < MOST; i++)
        CHECK_CLOSE(o[i], wanted[i], 1e-12);
    const double change =
        (reference(length, small, false, moved) - reference(length, -small, false, moved)) / (2 * small);
    double along = 0;
    double parts = 0;
    for (int i = 0; i < INPUTS; i++)
        for (int k = 0; k < TOKENS * WIDTH[i]; k++) {
            along += gradient[i][k] * direction[i][k];
            parts += pow(gradient[i][k] * direction[i][k], 2);
        }
    CHECK_CLOSE(along, change, 1e-6 * sqrt(parts));
    lathe_nsa_destroy(nsa);
    lathe_ctx_destroy(ctx);
}

TEST_TIMEOUT(o_and_gradients_are_those_of_plain_c, 120)
{
    compare_with_plain_c(&UNLIKE);
}

/* They are a batch, and no lists say where they begin. */
TEST_TIMEOUT(so_are_those_of_sequences_of_one_length, 120)
{
    compare_with_plain_c(&ALIKE);
}

TEST_TIMEOUT(blocks_that_are_given_are_read_and_not_chosen, 120)
{
    static double o[MOST];
    static double again[MOST];
    static double kept[H_KV * D * TOKENS];
    static int32_t blocks[H_KV * TOKENS * BLOCKS];
    lathe_ctx *ctx = host();
    draw_all();
    lathe_nsa *nsa = run(ctx, &UNLIKE, o, blocks, false);
    const int last = TOKENS - 1; /* of the last sequence, of 160 tokens */
    CHECK_EQ(blocks[last * BLOCKS], 159 / BLOCK);
    CHECK_EQ(blocks[last * BLOCKS + 1], 0);
    CHECK_EQ(blocks[last * BLOCKS + 2], 159 / BLOCK - 1);
    memcpy(kept, gradient[K], sizeof kept);
    lathe_nsa_destroy(nsa);
    nsa = run(ctx, &UNLIKE, again, blocks, true);
    CHECK(memcmp(o, again, sizeof o) == 0 && memcmp(kept, gradient[K], sizeof kept) == 0);
    blocks[last * BLOCKS + 4] = -1; /* one less */
    lathe_nsa_destroy(nsa);
    nsa = run(ctx, &UNLIKE, again, blocks, true);
    CHECK(memcmp(o + last * H * D_V, again + last * H * D_V, D_V * sizeof *o) != 0);
    CHECK(memcmp(o, again, (size_t)last * H * D_V * sizeof *o) == 0);
    lathe_nsa_destroy(nsa);
    lathe_ctx_destroy(ctx);
}

/* ---- what a caller may say of its own ---------------------------------------------------------------- */

static void run_both(lathe_ctx *ctx, const lathe_nsa_sizes *s, const lathe_nsa_tensors *t)
{
    lathe_error err = {0};
    lathe_nsa *nsa = NULL;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, s, &err), LATHE_OK);
    void *workspace = malloc(lathe_nsa_workspace_size(nsa));
    CHECK_EQ(lathe_nsa_attach(nsa, workspace, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_forward(nsa, t, NULL, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_backward(nsa, t, NULL, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    free(workspace);
    lathe_nsa_destroy(nsa);
}

/* The first of those that are chosen without counts, and o as of the shorter lists. */
TEST(counts_cut_lists_short)
{
    static double o[MOST];
    static double again[MOST];
    static double kept[H_KV * D * TOKENS];
    static int32_t blocks[H_KV * TOKENS * BLOCKS];
    static int32_t fewer[H_KV * TOKENS * BLOCKS];
    static int32_t counts[H_KV * TOKENS];
    lathe_ctx *ctx = host();
    draw_all();
    lathe_nsa_destroy(run(ctx, &UNLIKE, o, blocks, false));
    for (int i = 0; i < H_KV * TOKENS; i++) {
        counts[i] = i * 5 % (BLOCKS + 1);
        for (int k = counts[i]; k < BLOCKS; k++)
            blocks[i * BLOCKS + k] = -1;
    }
    lathe_nsa_destroy(run(ctx, &UNLIKE, o, blocks, true));
    memcpy(kept, gradient[K], sizeof kept);
    lathe_nsa_sizes s = sizes(&UNLIKE, 1);
    s.counts = 1;
    lathe_nsa_tensors t = all_tensors(again, fewer);
    t.counts = counts;
    run_both(ctx, &s, &t);
    CHECK(memcmp(blocks, fewer, sizeof blocks) == 0);
    CHECK(memcmp(o, again, sizeof o) == 0 && memcmp(kept, gradient[K], sizeof kept) == 0);
    lathe_ctx_destroy(ctx);
}

enum { ALL_CHUNKS = 5 + 0 + 3 + 1 + 10 }; /* of UNLIKE */

/* Means that the caller has made give what the call's own give; their gradients lie apart. */
static void compress(const struct lengths *length, double *k_cmp, double *v_cmp)
{
    int first = 0;
    int chunk = 0;
    for (int s = 0; s < length->n; first += length->of[s++])
        for (int from = 0; from < length->of[s]; from += BLOCK, chunk++) {
            const int to = from + BLOCK < length->of[s] ? from + BLOCK : length->of[s];
            for (int i = 0; i < H_KV * D; i++)
                k_cmp[chunk * H_KV * D + i] = mean(K, 0, first, from, to, i);
            for (int i = 0; i < H_KV * D_V; i++)
                v_cmp[chunk * H_KV * D_V + i] = mean(V, 0, first, from, to, i);
        }
    CHECK_EQ(chunk, ALL_CHUNKS);
}

static void add_back(const struct lengths *length, const double *of_chunks, double *of_tokens, int width)
{
    int first = 0;
    int chunk = 0;
    for (int s = 0; s < length->n; first += length->of[s++])
        for (int from = 0; from < length->of[s]; from += BLOCK, chunk++) {
            const int to = from + BLOCK < length->of[s] ? from + BLOCK : length->of[s];
            for (int t = from; t < to; t++)
                for (int i = 0; i < width; i++)
                    of_tokens[(first + t) * width + i] += of_chunks[chunk * width + i] / (to - from);
        }
}

TEST(blocks_may_be_compressed_by_the_caller)
{
    static double o[MOST];
    static double again[MOST];
    static double kept[2][MOST];
    static double k_cmp[ALL_CHUNKS * H_KV * D];
    static double v_cmp[ALL_CHUNKS * H_KV * D_V];
    static double dk_cmp[ALL_CHUNKS * H_KV * D];
    static double dv_cmp[ALL_CHUNKS * H_KV * D_V];
    lathe_ctx *ctx = host();
    draw_all();
    lathe_nsa_destroy(run(ctx, &UNLIKE, o, NULL, false));
    memcpy(kept[0], gradient[K], sizeof kept[0]);
    memcpy(kept[1], gradient[V], sizeof kept[1]);
    compress(&UNLIKE, k_cmp, v_cmp);
    lathe_nsa_sizes s = sizes(&UNLIKE, 1);
    s.compressed = 1;
    lathe_nsa_tensors t = all_tensors(again, NULL);
    t.k_cmp = k_cmp, t.v_cmp = v_cmp, t.dk_cmp = dk_cmp, t.dv_cmp = dv_cmp;
    run_both(ctx, &s, &t);
    add_back(&UNLIKE, dk_cmp, gradient[K], H_KV * D);
    add_back(&UNLIKE, dv_cmp, gradient[V], H_KV * D_V);
    for (int i = 0; i < MOST; i++)
        CHECK_CLOSE(again[i], o[i], 1e-12);
    for (int i = 0; i < TOKENS * H_KV * D; i++)
        CHECK_CLOSE(gradient[K][i], kept[0][i], 1e-12);
    for (int i = 0; i < TOKENS * H_KV * D_V; i++)
        CHECK_CLOSE(gradient[V][i], kept[1][i], 1e-12);
    lathe_ctx_destroy(ctx);
}

/* ---- what is refused ------------------------------------------------------------------------------- */

static void refused(lathe_ctx *ctx, lathe_nsa_sizes s, lathe_status status, const char *why)
{
    lathe_error err = {0};
    lathe_nsa *nsa = (lathe_nsa *)1;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &s, &err), status);
    CHECK(nsa == NULL);
    CHECK_HAS(err.text, why);
}

TEST(sizes_that_are_wrong_are_said)
{
    static const int32_t negative[5] = {3, -1};
    static const int32_t many[5] = {INT32_MAX, 1};
    lathe_ctx *ctx = host();
    lathe_nsa_sizes s = sizes(&UNLIKE, 0);
    CHECK_EQ(lathe_nsa_workspace_size(NULL), 0);
    s.h = 3;
    refused(ctx, s, LATHE_ARG, "nsa: h: expected a multiple of h_kv, 2, given 3");
    s = sizes(&UNLIKE, 0);
    s.blocks = 0;
    refused(ctx, s, LATHE_ARG, "nsa: blocks: expected 1 or more, given 0");
    s = sizes(&UNLIKE, 0);
    s.lengths = NULL;
    refused(ctx, s, LATHE_ARG, "nsa: lengths: expected the tokens of 5 sequences, given NULL");
    s.lengths = negative;
    refused(ctx, s, LATHE_ARG, "nsa: lengths: expected entry 1 to be 0 or more, given -1");
    s.lengths = many;
    refused(ctx, s, LATHE_ARG, "nsa: lengths: expected fewer than 2^31 tokens in all, given 2147483648");
    s = sizes(&UNLIKE, 0);
    s.dtype = LATHE_I32;
    refused(ctx, s, LATHE_ARG, "expected");
    lathe_ctx_destroy(ctx);
}

TEST(calls_that_lack_something_are_refused)
{
    const lathe_nsa_sizes s = sizes(&UNLIKE, 0);
    lathe_nsa_tensors t = {.q = x[Q]};
    lathe_ctx *ctx = host();
    lathe_error err = {0};
    lathe_nsa *nsa = NULL;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &s, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_ARG);
    CHECK_HAS(err.text, "bytes by lathe_nsa_attach");
    CHECK_EQ(lathe_nsa_attach(nsa, NULL, &err), LATHE_ARG);
    CHECK_HAS(err.text, "bytes of the device, given NULL");
    void *workspace = malloc(lathe_nsa_workspace_size(nsa));
    CHECK_EQ(lathe_nsa_attach(nsa, workspace, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "nsa: k: expected a tensor, given NULL");
    CHECK_EQ(lathe_nsa_backward(nsa, &t, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "nsa: expected backward = 1 in its sizes, given 0");
    lathe_nsa_destroy(nsa);
    free(workspace);
    lathe_nsa_sizes own = sizes(&UNLIKE, 0);
    own.counts = own.compressed = 1;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &own, &err), LATHE_OK);
    workspace = malloc(lathe_nsa_workspace_size(nsa));
    CHECK_EQ(lathe_nsa_attach(nsa, workspace, &err), LATHE_OK);
    static double o[MOST];
    t = all_tensors(o, NULL);
    memset(o, 0xff, sizeof o);
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "nsa: counts: expected a tensor, given NULL");
    t.blocks_given = 1, t.blocks = o;
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "nsa: k_cmp: expected a tensor, given NULL");
    CHECK(isnan(o[0]));
    lathe_nsa_destroy(nsa);
    free(workspace);
    lathe_nsa_destroy(NULL);
    lathe_ctx_destroy(ctx);
}

TEST(no_tokens_are_no_work)
{
    static const int32_t empty[5] = {0};
    const lathe_nsa_tensors t = {.q = NULL};
    lathe_nsa_sizes s = sizes(&UNLIKE, 1);
    lathe_ctx *ctx = host();
    lathe_error err = {0};
    lathe_nsa *nsa = NULL;
    s.lengths = empty;
    CHECK_EQ(lathe_nsa_create(&nsa, ctx, &s, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_forward(nsa, &t, NULL, &err), LATHE_OK);
    CHECK_EQ(lathe_nsa_backward(nsa, &t, NULL, &err), LATHE_OK);
    lathe_nsa_destroy(nsa);
    lathe_ctx_destroy(ctx);
}
