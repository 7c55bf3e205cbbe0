/*
 * host_mods.c: vector mods on the host device, against rotations and norms written out.
 */
#include "host_call.h"
#include "check.h"
#include "gen/gen.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- vector mods ----------------------------------------------------------------------------- */

/* Turn pairs of every token by pos * 100^(-2 i / d); half: (i, i + d/2), else (2 i, 2 i + 1). */
static void rotate(double *x, int64_t n_heads, int64_t len, int64_t d, int64_t start, bool half)
{
    for (int64_t t = 0; t < n_heads * len; t++)
        for (int64_t i = 0; i < d / 2; i++) {
            double *lo = x + t * d + (half ? i : 2 * i);
            double *hi = x + t * d + (half ? i + d / 2 : 2 * i + 1);
            const double angle = (double)(t % len + start) * pow(100.0, -2.0 * (double)i / (double)d);
            const double turned = *lo * cos(angle) - *hi * sin(angle);
            *hi = *lo * sin(angle) + *hi * cos(angle);
            *lo = turned;
        }
}

/* Pairs of the first n elements of every token, by a plain loop: half: (i, i + n/2), else (2 i, 2 i + 1). */
static void rotate_first(double *x, int64_t n_heads, int64_t len, int64_t d, int64_t n, int64_t start,
                         bool half)
{
    for (int64_t t = 0; t < n_heads * len; t++)
        for (int64_t i = 0; i < n / 2; i++) {
            double *lo = x + t * d + (half ? i : 2 * i);
            double *hi = x + t * d + (half ? i + n / 2 : 2 * i + 1);
            const double angle = (double)(t % len + start) * pow(100.0, -2.0 * (double)i / (double)n);
            const double turned = *lo * cos(angle) - *hi * sin(angle);
            *hi = *lo * sin(angle) + *hi * cos(angle);
            *lo = turned;
        }
}

/* The query's first 6 of 10 elements, the key's first 4, interleaved, then all of them. */
TEST(rope_of_the_first_elements)
{
    static const char text[] = "local function turn(n)\n"
                               "  return function(lo, hi, at)\n"
                               "    local t = at.pos * 100.0 ^ (-2.0 * at.i / n)\n"
                               "    return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
                               "  end\n"
                               "end\n"
                               "return attention { query_mod = half(turn(6), 6), mask_mod = causal,\n"
                               "  key_mod = chain(interleaved(turn(4), 4), half(turn(10))) }";
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 5, 9, 10, 6});
    forward(text, &f);
    rotate_first(f.qs, f.b * f.h, f.q, f.d, 6, f.q_start, true);
    rotate_first(f.ks, f.b * f.h_kv, f.kv, f.d, 4, 0, false);
    rotate(f.ks, f.b * f.h_kv, f.kv, f.d, 0, true);
    naive(&f, live_causal, NULL, default_scale(&f));
    compare(&f, 1e-12);
    teardown(&f);
}

TEST(pairs_beyond_the_head_dim)
{
    static const char text[] = "return attention { key_mod = half(function(a, b) return b, a end, 12) }";
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){1, 1, 1, 2, 2, 10, 6});
    CHECK_EQ(forward_args(text, f.arg, f.n_args, NULL, 0, &err), LATHE_ARG);
    CHECK_STR(err.text,
              "key_mod works on pairs of the first 12 elements: expected a head dim of 12 or more, given 10");
    teardown(&f);
}

static void check_rope(bool half)
{
    char text[600];
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 5, 9, 8, 6});
    snprintf(text, sizeof text,
             "local function turn(lo, hi, at)\n"
             "  local t = at.pos * 100.0 ^ (-2.0 * at.i / at.d)\n"
             "  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
             "end\n"
             "return attention { query_mod = %s(turn), key_mod = %s(turn), mask_mod = causal }",
             half ? "half" : "interleaved", half ? "half" : "interleaved");
    forward(text, &f);
    rotate(f.qs, f.b * f.h, f.q, f.d, f.q_start, half);
    rotate(f.ks, f.b * f.h_kv, f.kv, f.d, 0, half);
    naive(&f, live_causal, NULL, default_scale(&f));
    compare(&f, 1e-12);
    teardown(&f);
}

/* A gate of each query is read at its row, also where keys are ahead of it (decoding: at.q is kv - 1), and
   gates of both ends. */
TEST(gates_by_row)
{
    static const char text[] =
        "return attention { mask_mod = causal,\n"
        "  inputs = { s = tensor('float', 'b', 'h', 'q'), g = tensor('float', 'b', "
        "'h', 'q', 'd_v') },\n"
        "  query_mod = function(q, at, x) return q * x.s(at.b, at.h, at.row) end,\n"
        "  output_mod = function(o, at, x) return o * sigmoid(x.g(at.b, at.h, at.row, at.i)) end }";
    static const int64_t SIZES[][7] = {{2, 4, 2, 1, 9, 8, 6}, {1, 2, 2, 5, 5, 8, 6}, {2, 2, 1, 3, 7, 4, 4}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        struct fixture f;
        setup(&f, SIZES[i]);
        const int64_t rows = f.b * f.h * f.q;
        double *s = noise(rows, 7);
        double *g = noise(rows * f.dv, 8);
        add_arg(&f, "s", s, LATHE_F64, 3, f.q_shape);
        add_arg(&f, "g", g, LATHE_F64, 4, f.o_shape);
        forward(text, &f);
        for (int64_t k = 0; k < rows * f.d; k++)
            f.qs[k] *= s[k / f.d];
        naive(&f, live_causal, NULL, default_scale(&f));
        for (int64_t k = 0; k < rows * f.dv; k++)
            f.expected[k] /= 1 + exp(-g[k]);
        compare(&f, 1e-12);
        free(s);
        free(g);
        teardown(&f);
    }
}

/* In query and output mods at.q is the token's position, in key and value mods at.kv: as pairs call it. */
TEST(position_by_the_names_of_pairs)
{
    static const char text[] =
        "local function turn(name)\n"
        "  return half(function(lo, hi, at)\n"
        "    local t = at[name] * 100.0 ^ (-2.0 * at.i / at.d)\n"
        "    return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
        "  end)\n"
        "end\n"
        "return attention { query_mod = turn('q'), key_mod = turn('kv'), mask_mod = causal,\n"
        "  value_mod = function(v, at) return v * (at.kv + 1) end,\n"
        "  output_mod = function(o, at) return o + at.q end }";
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 5, 9, 8, 6});
    forward(text, &f);
    rotate(f.qs, f.b * f.h, f.q, f.d, f.q_start, true);
    rotate(f.ks, f.b * f.h_kv, f.kv, f.d, 0, true);
    for (int64_t i = 0; i < f.b * f.h_kv * f.kv * f.dv; i++)
        f.vs[i] *= (double)(i / f.dv % f.kv + 1);
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 0; i < f.b * f.h * f.q * f.dv; i++)
        f.expected[i] += (double)(i / f.dv % f.q + f.q_start);
    compare(&f, 1e-12);
    teardown(&f);
}

/* A variant of softmax out of the prelude's parts: each weight is doubled, its sum is not. */
TEST(parts_of_softmax)
{
    static const char text[] = "return attention { mask_mod = causal, online_func = online_func {\n"
                               "  online_rowscales = softmax_states,\n"
                               "  online_fwd = function(s, r)\n"
                               "    local w, state, factor = softmax_step(s, r)\n"
                               "    return 2.0 * w, state, factor\n"
                               "  end,\n"
                               "  online_fwd_epilogue = softmax_epilogue, combine = softmax_combine,\n"
                               "  forward = function(s, final) return 2.0 * softmax_weight(s, final) end } }";
    struct fixture f;
    setup(&f, (int64_t[]){2, 4, 2, 9, 9, 8, 8});
    forward(text, &f);
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t i = 0; i < f.b * f.h * f.q * f.dv; i++)
        f.expected[i] *= 2.0;
    compare(&f, 1e-13);
    teardown(&f);
}

TEST(rope_on_halves)
{
    check_rope(true);
}

TEST(rope_interleaved)
{
    check_rope(false);
}

static void normalise(double *x, int64_t rows, int64_t d, const float *gain)
{
    for (int64_t t = 0; t < rows; t++) {
        double sum = 0.0;
        for (int64_t i = 0; i < d; i++)
            sum += x[t * d + i] * x[t * d + i];
        for (int64_t i = 0; i < d; i++)
            x[t * d + i] *= (double)gain[i] / sqrt(sum / (double)d);
    }
}

/* Reductions over the head dim, a value mod by index and head, an output mod by the largest element. */
TEST(mods_of_every_tensor)
{
    static const char text[] =
        "local function norm(v, at, x) return v * rsqrt(dimsum(v * v) / at.d) * x.gain(at.i) end\n"
        "return attention { inputs = { gain = tensor('f32', 'd') }, query_mod = norm, key_mod = norm, "
        "mask_mod = causal,\n"
        "  value_mod = chain(function(v, at) return v + 0.5 * at.i + at.h_kv end, function(v, at) return v * "
        "(at.pos + 1) end),\n"
        "  output_mod = function(o, at) return o / dimmax(abs(o)) + at.pos end }";
    struct fixture f;
    setup(&f, (int64_t[]){1, 4, 2, 4, 7, 8, 5});
    float gain[8];
    const int64_t shape[] = {8};
    for (int i = 0; i < 8; i++)
        gain[i] = 1.0f + 0.125f * (float)i;
    add_arg(&f, "gain", gain, LATHE_F32, 1, shape);
    forward(text, &f);
    normalise(f.qs, f.b * f.h * f.q, f.d, gain);
    normalise(f.ks, f.b * f.h_kv * f.kv, f.d, gain);
    for (int64_t i = 0; i < 2 * 7 * 5; i++) {
        const int64_t h_kv = i / 35;
        const int64_t token = i / 5 % 7;
        f.vs[i] = (f.vs[i] + 0.5 * (double)(i % 5) + (double)h_kv) * (double)(token + 1);
    }
    naive(&f, live_causal, NULL, default_scale(&f));
    for (int64_t t = 0; t < 4 * 4; t++) {
        double most = 0.0;
        for (int64_t i = 0; i < 5; i++)
            most = fmax(most, fabs(f.expected[t * 5 + i]));
        for (int64_t i = 0; i < 5; i++)
            f.expected[t * 5 + i] = f.expected[t * 5 + i] / most + (double)(t % 4 + 3);
    }
    compare(&f, 1e-12);
    teardown(&f);
}

TEST(pairs_need_an_even_dim)
{
    struct fixture f;
    lathe_error err;
    setup(&f, (int64_t[]){1, 1, 1, 2, 2, 6, 5});
    CHECK_EQ(forward_args("return attention { value_mod = half(function(a, b) return b, a end) }", f.arg,
                          f.n_args, NULL, 0, &err),
             LATHE_ARG);
    CHECK_STR(err.text, "value_mod works on pairs: expected an even head dim, given 5");
    teardown(&f);
}
