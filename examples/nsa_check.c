/*
 * nsa_check.c: native sparse attention by nsa.h against plain C. Sequences of several lengths, none and one
 * token among them; blocks are chosen among more than there are places for. Compared are o, and gradients by
 * the change of sum(o dout) along a random direction of all of q, k, v and the gates. Double precision on the
 * host device, f32 on a GPU; the exit code is 1 where they differ.
 *
 *     build/nsa
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "nsa.h"

enum { H = 4, H_KV = 2, D = 16, D_V = 24, BLOCK = 16, BLOCKS = 5, WINDOW = 20, SEQUENCES = 5, TOKENS = 264 };
enum { CHUNKS = 11 }; /* of the longest sequence */
static const int32_t LENGTH[SEQUENCES] = {70, 0, 33, 1, 160};

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

static int give_up(const char *why)
{
    fprintf(stderr, "nsa: %s\n", why);
    return 1;
}

/* ---- plain C ----------------------------------------------------------------------------------------------
 */

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
static double reference(double step, bool first_time, double *o)
{
    double sum = 0;
    int first = 0;
    for (int s = 0; s < SEQUENCES; first += LENGTH[s++])
        for (int t = 0; t < LENGTH[s]; t++)
            for (int kv = 0; kv < H_KV; kv++)
                token((struct place){first, t, kv * (H / H_KV)}, step, first_time, o);
    for (int i = 0; i < MOST; i++)
        sum += o[i] * dout[i];
    return sum;
}

/* ---- the device -------------------------------------------------------------------------------------------
 */

struct device {
    struct memory memory;
    lathe_dtype dtype; /* f64, or f32 */
};

static void *put(const struct device *d, const double *from, int n)
{
    static float narrow[MOST];
    const size_t bytes = (size_t)n * lathe_dtype_size(d->dtype);
    for (int i = 0; i < n; i++)
        narrow[i] = (float)from[i];
    void *data = memory_allocate(&d->memory, bytes);
    if (!data || !memory_upload(&d->memory, data, d->dtype == LATHE_F64 ? (const void *)from : narrow, bytes))
        exit(give_up("there is not enough memory"));
    return data;
}

static void get(const struct device *d, void *data, double *to, int n)
{
    static float narrow[MOST];
    const bool exact = d->dtype == LATHE_F64;
    if (!memory_download(&d->memory, exact ? (void *)to : narrow, data,
                         (size_t)n * lathe_dtype_size(d->dtype)))
        exit(give_up("results do not come back"));
    for (int i = 0; i < n && !exact; i++)
        to[i] = (double)narrow[i];
    memory_release(&d->memory, data);
}

static int run(const struct device *d, lathe_ctx *ctx, double *o)
{
    const struct nsa_sizes sizes = {.h = H,
                                    .h_kv = H_KV,
                                    .d = D,
                                    .d_v = D_V,
                                    .block = BLOCK,
                                    .blocks = BLOCKS,
                                    .window = WINDOW,
                                    .sequences = SEQUENCES,
                                    .length = LENGTH,
                                    .dtype = d->dtype};
    struct nsa *nsa = NULL;
    lathe_error err;
    void *in[INPUTS];
    void *back[INPUTS];
    for (int i = 0; i < INPUTS; i++) {
        in[i] = put(d, x[i], TOKENS * WIDTH[i]);
        back[i] = put(d, x[i], TOKENS * WIDTH[i]);
    }
    const struct nsa_tensors t = {in[Q],
                                  in[K],
                                  in[V],
                                  in[G_CMP],
                                  in[G_SLC],
                                  in[G_SWA],
                                  put(d, dout, MOST),
                                  put(d, dout, MOST),
                                  back[Q],
                                  back[K],
                                  back[V],
                                  back[G_CMP],
                                  back[G_SLC],
                                  back[G_SWA]};
    if (nsa_open(&nsa, ctx, &d->memory, &sizes, &err) || nsa_forward(nsa, &t, NULL, &err) ||
        nsa_backward(nsa, &t, NULL, &err))
        return give_up(err.text);
    get(d, t.o, o, MOST);
    for (int i = 0; i < INPUTS; i++) {
        get(d, back[i], gradient[i], TOKENS * WIDTH[i]);
        memory_release(&d->memory, in[i]);
    }
    memory_release(&d->memory, t.dout);
    nsa_close(nsa);
    return 0;
}

int main(void)
{
    static double o[MOST], wanted[MOST], moved[MOST];
    struct device d;
    lathe_options options = LATHE_OPTIONS_INIT;
    lathe_ctx *ctx = NULL;
    lathe_error err;
    if (lathe_ctx_create(&ctx, &options, &err)) { /* no GPU */
        options.device = LATHE_DEVICE_HOST;
        if (lathe_ctx_create(&ctx, &options, &err))
            return give_up(err.text);
    }
    d.dtype = lathe_ctx_device(ctx) == LATHE_DEVICE_HOST ? LATHE_F64 : LATHE_F32;
    if (!memory_open(&d.memory, lathe_ctx_device(ctx)))
        return give_up("the driver lacks an entry");
    for (int i = 0; i < INPUTS; i++)
        for (int k = 0; k < TOKENS * WIDTH[i]; k++) {
            x[i][k] = (double)(float)(i < G_CMP ? 2 * draw() : draw() + 0.5);
            direction[i][k] = draw();
        }
    for (int i = 0; i < MOST; i++)
        dout[i] = (double)(float)draw();
    if (run(&d, ctx, o))
        return 1;
    const double small = 1e-4;
    reference(0, true, wanted);
    const double change = (reference(small, false, moved) - reference(-small, false, moved)) / (2 * small);
    double along = 0, parts = 0, error = 0, norm = 0;
    for (int i = 0; i < INPUTS; i++)
        for (int k = 0; k < TOKENS * WIDTH[i]; k++) {
            along += gradient[i][k] * direction[i][k];
            parts += pow(gradient[i][k] * direction[i][k], 2);
        }
    for (int i = 0; i < MOST; i++) {
        error += pow(o[i] - wanted[i], 2);
        norm += pow(wanted[i], 2);
    }
    error = sqrt(error / norm);
    const double slope = fabs(along - change) / sqrt(parts);
    const double bound = d.dtype == LATHE_F64 ? 1e-6 : 1e-3;
    printf("%s: o is off by %.1e of its norm, gradients along a direction (%.4f) by %.1e\n",
           lathe_ctx_device_name(ctx), error, change, slope);
    lathe_ctx_destroy(ctx);
    return error < bound && slope < bound ? 0 : 1;
}
