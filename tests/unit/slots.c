/*
 * slots.c: results of element-wise specs that are written at computed places, on the host device: what
 * rope_half gives, at the slots that a list says, and nothing elsewhere. A list that is wrong gets its
 * sentence.
 */
#include "check.h"
#include "loaded.h"
#include "gen/gen.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { B = 2, T = 3, H = 4, H_KV = 2, PAIRS = 4, D = 2 * PAIRS, SLOTS = 9 };

static double q[B * T * H * D], k[B * T * H_KV * D], v[B * T * H_KV * D];
static double q_out[B * T * H * D], k_out[B * T * H_KV * D];
static double cache[2][SLOTS * H_KV * D];
static int32_t pos[B * T] = {0, 1, 2, 0, 1, 2};
static int32_t slot[B * T] = {4, 0, -1, 8, 2, -7};

static struct ir *load(const char *name, struct signature *sig)
{
    struct ir *ir = load_signed(name, LATHE_FORWARD, sig);
    for (int i = 0; i < B * T * H * D; i++)
        q[i] = sin(0.3 * i);
    for (int i = 0; i < B * T * H_KV * D; i++) {
        k[i] = cos(0.7 * i);
        v[i] = i;
    }
    memset(cache, 0xff, sizeof cache);
    return ir;
}

static const int64_t queries[4] = {B, T, H, D}, keys[4] = {B, T, H_KV, D}, slots[3] = {SLOTS, H_KV, D};
static const int64_t places[2] = {B, T};
/* Heads before slots. */
static const int64_t turned[3] = {D, SLOTS *D, 1};

static lathe_status append(lathe_error *err)
{
    struct signature sig;
    struct ir *ir = load("rope_append", &sig);
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, queries, NULL},
                              {"q_out", q_out, LATHE_F64, 4, queries, NULL},
                              {"k", k, LATHE_F64, 4, keys, NULL},
                              {"v", v, LATHE_F64, 4, keys, NULL},
                              {"slot", slot, LATHE_I32, 2, places, NULL},
                              {"pos", pos, LATHE_I32, 2, places, NULL},
                              {"k_cache", cache[0], LATHE_F64, 3, slots, turned},
                              {"v_cache", cache[1], LATHE_F64, 3, slots, NULL}};
    *err = (lathe_error){0};
    const lathe_status status = host_forward(ir, &sig, args, 8, NULL, 0, err);
    ir_free(ir);
    return status;
}

TEST(points_are_written_at_their_slots_alone)
{
    struct signature sig;
    lathe_error err = {0};
    int written = 0;
    CHECK_EQ(append(&err), LATHE_OK);
    CHECK_STR(err.text, "");
    struct ir *ir = spec_load("rope_half", NULL, 0, &(struct diag){0});
    signature_make(ir, LATHE_FORWARD, &sig);
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, queries, NULL},
                              {"q_out", q, LATHE_F64, 4, queries, NULL},
                              {"k", k, LATHE_F64, 4, keys, NULL},
                              {"k_out", k_out, LATHE_F64, 4, keys, NULL}};
    CHECK_EQ(host_forward(ir, &sig, args, 4, NULL, 0, &err), LATHE_OK);
    CHECK(memcmp(q, q_out, sizeof q) == 0);
    for (int s = 0; s < SLOTS; s++) {
        int token = 0;
        while (token < B * T && slot[token] != s)
            token++;
        for (int h = 0; h < H_KV; h++)
            for (int d = 0; d < D; d++) {
                const double x = cache[0][(h * SLOTS + s) * D + d];
                const double y = cache[1][(s * H_KV + h) * D + d];
                const int from = (token * H_KV + h) * D + d;
                CHECK(token < B * T ? x == k_out[from] && y == v[from] : isnan(x) && isnan(y));
            }
        written += token < B * T;
    }
    CHECK_EQ(written, 4);
    ir_free(ir);
}

TEST(a_slot_that_is_not_there_is_refused)
{
    lathe_error err;
    slot[0] = SLOTS;
    CHECK_EQ(append(&err), LATHE_ARG);
    CHECK_STR(err.text,
              "argument 'slot': expected places below slots=9 of 'k_cache' (or less than 0: none), given 9");
    CHECK(isnan(cache[0][0]) && isnan(cache[1][4 * H_KV * D]));
    slot[0] = 4;
}

TEST(what_has_a_slot_has_no_gradient)
{
    struct signature sig;
    struct ir *ir = load("rope_append", &sig);
    lathe_error err = {0};
    const lathe_arg args[] = {{"q", q, LATHE_F64, 4, queries, NULL}};
    CHECK(ir->maps.gradient == NULL);
    signature_make(ir, LATHE_BACKWARD, &sig);
    CHECK(host_backward(ir, &sig, args, 0, &err) != LATHE_OK);
    ir_free(ir);
}
