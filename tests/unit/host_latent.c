/*
 * host_latent.c: tokens of 656 bytes, as FlashMLA keeps them, on the host device: 512 numbers of e4m3, a
 * scale in f32 for each 128 of them, 64 rotary elements of bf16. k, its scales and k2 are views of one
 * buffer; results are compared with loops written out here.
 */
#include "host_call.h"

enum { TOKEN = 656, KV = 37, H = 3, LATENT = 512, ROPE = 64, GROUP = 128, SCALES = LATENT / GROUP };

static const char TEXT[] = "return attention { qk2 = true, v = 'k', mask_mod = causal, scale = 192 ^ -0.5,\n"
                           "  inputs = { k_scale = tensor('f32', 'b', 'h_kv', 'kv', 4) },\n"
                           "  key_mod = function(k, at, x)\n"
                           "    return k * x.k_scale(at.b, at.h_kv, at.kv, clamp(at.i // 128, 0, 3)) end }\n";

static double of_bf16(uint16_t bits)
{
    const uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

static double of_e4m3(uint8_t code)
{
    const int exponent = code >> 3 & 15;
    const double size = exponent > 0 ? ldexp(8 + (code & 7), exponent - 10) : ldexp(code & 7, -9);
    return code & 0x80 ? -size : size;
}

struct cache {
    uint64_t state;
    uint16_t q[H * LATENT], q2[H * ROPE], o[H * LATENT];
    float lse[H];
    _Alignas(16) uint8_t token[KV * TOKEN];
};

static uint32_t draw(struct cache *c)
{
    c->state = c->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->state >> 33);
}

/* A number of bf16 of some size from 1/8 to 1. */
static uint16_t draw_bf16(struct cache *c)
{
    return (uint16_t)((draw(c) & 0x8000u) | (0x3e00u + draw(c) % 0x180u));
}

static void fill(struct cache *c)
{
    for (int i = 0; i < H * LATENT; i++)
        c->q[i] = draw_bf16(c);
    for (int i = 0; i < H * ROPE; i++)
        c->q2[i] = draw_bf16(c);
    for (int t = 0; t < KV; t++) {
        uint8_t *const token = c->token + t * TOKEN;
        for (int i = 0; i < LATENT; i++)
            token[i] = (uint8_t)((draw(c) & 0x80u) | draw(c) % 0x7fu);
        for (int i = 0; i < SCALES; i++) {
            const float scale = 0.001f * (float)(1 + draw(c) % 9);
            memcpy(token + LATENT + 4 * i, &scale, sizeof scale);
        }
        for (int i = 0; i < ROPE; i++) {
            const uint16_t x = draw_bf16(c);
            memcpy(token + LATENT + 4 * SCALES + 2 * i, &x, sizeof x);
        }
    }
}

/* Element i of a token, latents as they are meant, then rotary ones. */
static double element(const struct cache *c, int t, int i)
{
    const uint8_t *const token = c->token + t * TOKEN;
    float scale;
    uint16_t rope;
    if (i < LATENT) {
        memcpy(&scale, token + LATENT + 4 * (i / GROUP), sizeof scale);
        return of_e4m3(token[i]) * (double)scale;
    }
    memcpy(&rope, token + LATENT + 4 * SCALES + 2 * (i - LATENT), sizeof rope);
    return of_bf16(rope);
}

static void check_head(const struct cache *c, int h)
{
    double weight[KV];
    double sum = 0;
    for (int t = 0; t < KV; t++) {
        double s = 0;
        for (int i = 0; i < LATENT + ROPE; i++)
            s += element(c, t, i) * of_bf16(i < LATENT ? c->q[h * LATENT + i] : c->q2[h * ROPE + i - LATENT]);
        weight[t] = exp(s / sqrt(192.0));
        sum += weight[t];
    }
    CHECK_CLOSE((double)c->lse[h], log(sum), 1e-5);
    for (int i = 0; i < LATENT; i++) {
        double o = 0;
        for (int t = 0; t < KV; t++)
            o += weight[t] / sum * element(c, t, i);
        CHECK(fabs(of_bf16(c->o[h * LATENT + i]) - o) <= fabs(o) / 256 + 1e-6); /* rounded to bf16 */
    }
}

TEST(tokens_of_656_bytes_are_views)
{
    static struct cache c = {.state = 5};
    static const int64_t q[] = {1, H, 1, LATENT};
    static const int64_t q2[] = {1, H, 1, ROPE};
    static const int64_t k[] = {1, 1, KV, LATENT};
    static const int64_t k2[] = {1, 1, KV, ROPE};
    static const int64_t k_scale[] = {1, 1, KV, SCALES};
    static const int64_t bytes[] = {KV * TOKEN, KV * TOKEN, TOKEN, 1};
    static const int64_t floats[] = {KV * TOKEN / 4, KV * TOKEN / 4, TOKEN / 4, 1};
    static const int64_t halves[] = {KV * TOKEN / 2, KV * TOKEN / 2, TOKEN / 2, 1};
    const lathe_arg arg[] = {{"q", c.q, LATHE_BF16, 4, q, NULL},
                             {"q2", c.q2, LATHE_BF16, 4, q2, NULL},
                             {"k", c.token, LATHE_F8_E4M3, 4, k, bytes},
                             {"k2", c.token + LATENT + 4 * SCALES, LATHE_BF16, 4, k2, halves},
                             {"k_scale", c.token + LATENT, LATHE_F32, 4, k_scale, floats},
                             {"o", c.o, LATHE_BF16, 4, q, NULL},
                             {"lse", c.lse, LATHE_F32, 3, q, NULL}};
    lathe_error err;
    fill(&c);
    CHECK_EQ(forward_args(TEXT, arg, sizeof arg / sizeof *arg, NULL, 0, &err), LATHE_OK);
    CHECK_STR(err.text, "");
    for (int h = 0; h < H; h++)
        check_head(&c, h);
}
