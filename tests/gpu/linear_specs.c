/*
 * linear_specs.c: the shipped specs of linear attention as the GPU tests see them: their tensors and inputs,
 * sizes beside the edges of chunks and of slices of the state, and what data makes sense. A new spec gets a
 * row here.
 */
#include "maps.h"

#define ARG(name, role, dtype, dims, fill, low, high, optional, grad)                                        \
    {                                                                                                        \
        {name, role, dtype, dims, fill, low, high, false, optional, grad}, NULL, false, false                \
    }
#define READ(name, dims, deviation)                                                                          \
    ARG(name, ROLE_TENSOR, LATHE_NONE, dims, FILL_NORMAL, 0.0, deviation, false, true)
#define STATE(name, dims) ARG(name, ROLE_TENSOR, LATHE_F32, dims, FILL_NORMAL, 0.0, 1.0, true, true)
#define OUT(name, dtype, dims, optional)                                                                     \
    ARG(name, ROLE_RESULT, dtype, dims, FILL_NORMAL, 0.0, 0.0, optional, false)
#define GATE(name, dims, low, high)                                                                          \
    ARG(name, ROLE_INPUT, LATHE_NONE, dims, FILL_UNIFORM, low, high, false, true)
#define LEARNED(name, dims, mean, deviation)                                                                 \
    ARG(name, ROLE_INPUT, LATHE_F32, dims, FILL_NORMAL, mean, deviation, false, true)
#define STARTS ARG("cu", ROLE_TENSOR, LATHE_I32, "ends", FILL_STARTS, 0.0, 0.0, false, false)
#define END    ARG("", ROLE_TENSOR, LATHE_NONE, "", FILL_NORMAL, 0.0, 0.0, false, false)

#define QUERIES READ("q", "b h_k t d", 1.0)
#define VALUES  READ("v", "b h t d_v", 1.0), OUT("o", LATHE_NONE, "b h t d_v", false)
#define TOKENS  QUERIES, READ("k", "b h_k t d", 1.0), VALUES
#define STATES  STATE("state", "seqs h d d_v"), OUT("state_out", LATHE_F32, "seqs h d d_v", true)

/* The sequences of a batch, each its own; then packed ones of one batch, some of them empty. */
static const char *const BATCHES[] = {"b=2,h=4,h_k=2,t=130,d=64,d_v=64,seqs=2",
                                      "b=2,h=2,h_k=1,t=17,d=40,d_v=24,seqs=2",
                                      "b=3,h=3,h_k=1,t=1,d=128,d_v=128,seqs=3",
                                      "b=1,h=2,h_k=2,t=64,d=128,d_v=128,seqs=1",
                                      "b=1,h=2,h_k=2,t=321,d=128,d_v=64,seqs=1",
                                      "b=1,h=1,h_k=1,t=65,d=16,d_v=256,seqs=1",
                                      "b=1,h=1,h_k=1,t=63,d=256,d_v=16,seqs=1",
                                      "b=0,h=2,h_k=2,t=9,d=64,d_v=64,seqs=0",
                                      "b=2,h=2,h_k=2,t=0,d=64,d_v=64,seqs=2",
                                      "b=1,h=1,h_k=1,t=70,d=256,d_v=256,seqs=1",
                                      "b=1,h=2,h_k=1,t=2400,d=64,d_v=32,seqs=1", /* in pieces */
                                      "b=1,h=1,h_k=1,t=4095,d=64,d_v=64,seqs=1",
                                      "b=1,h=1,h_k=1,t=32768,d=64,d_v=16,seqs=1",
                                      NULL};
static const char *const PACKED[] = {"b=1,h=4,h_k=2,t=200,d=64,d_v=64,seqs=5,ends=6",
                                     "b=1,h=2,h_k=1,t=7,d=64,d_v=128,seqs=9,ends=10",
                                     "b=1,h=2,h_k=2,t=333,d=128,d_v=128,seqs=3,ends=4",
                                     "b=1,h=1,h_k=1,t=1500,d=64,d_v=16,seqs=1000,ends=1001", NULL};

#define BOTH(name, ...)                                                                                      \
    {name, BATCHES, 0, false, false, false, {__VA_ARGS__, END}},                                             \
    {                                                                                                        \
        name, PACKED, 0, false, false, false,                                                                \
        {                                                                                                    \
            STARTS, __VA_ARGS__, END                                                                         \
        }                                                                                                    \
    }

/* Keys that resemble each other, by 0.9, where betas are up to 2 or beside 1; gates that leave nothing beside
   weak ones. Lengths beside a chunk's. */
static const char *const HARD[] = {"b=1,h=2,h_k=1,t=145,d=128,d_v=64,seqs=1",
                                   "b=2,h=2,h_k=2,t=63,d=64,d_v=128,seqs=2",
                                   "b=1,h=2,h_k=1,t=65,d=128,d_v=128,seqs=1", NULL};
#define ALIKE                                                                                                \
    QUERIES, ARG("k", ROLE_TENSOR, LATHE_NONE, "b h_k t d", FILL_NORMAL, 3.0, 1.0, false, true), VALUES,     \
        STATES
#define HARDER(name, ...)                                                                                    \
    {                                                                                                        \
        name, HARD, 0, false, false, false,                                                                  \
        {                                                                                                    \
            __VA_ARGS__, END                                                                                 \
        }                                                                                                    \
    }

const struct map_spec linear_specs[] = {
    BOTH("linear", TOKENS, STATES),
    BOTH("retention_linear", TOKENS, STATES),
    BOTH("lightning", TOKENS, STATES,
         ARG("depth", ROLE_SCALAR, LATHE_F32, "", FILL_UNIFORM, 0.0, 1.0, true, false)),
    BOTH("linear_elu", TOKENS),
    BOTH("simple_gla", TOKENS, STATES, GATE("g", "b h t", -1.5, 0.0)),
    BOTH("mamba2", TOKENS, STATES, GATE("dt", "b h t", -2.0, 1.0), LEARNED("dt_bias", "h", -1.0, 0.5),
         LEARNED("a_log", "h", -0.5, 0.5), LEARNED("d_skip", "h", 0.5, 0.5)),
    BOTH("gla", TOKENS, STATES, GATE("g", "b h t d", -1.0, 0.0)),
    BOTH("hgrn2", QUERIES, VALUES, STATES, GATE("g", "b h_k t d", -1.5, 0.0)),
    BOTH("rwkv6", TOKENS, STATES, GATE("w", "b h t d", -1.0, 0.0), LEARNED("u", "h d", 0.5, 0.5)),
    BOTH("delta_rule", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0)),
    BOTH("gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t", -1.0, 0.0)),
    BOTH("kda", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t d", -1.0, 0.0)),
    BOTH("flao", TOKENS, GATE("gate", "b h t d_v", -1.0, 1.0)),
    BOTH("flao_lrpe", TOKENS, GATE("gate", "b h t d_v", -1.0, 1.0),
         ARG("offset", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, -10.0, 60.0, true, false)),
    HARDER("delta_rule", ALIKE, GATE("beta", "b h t", 1.5, 2.0)),
    HARDER("delta_rule", ALIKE, GATE("beta", "b h t", 0.9, 1.0)),
    HARDER("gated_delta", ALIKE, GATE("beta", "b h t", 1.5, 2.0), GATE("g", "b h t", -0.05, 0.0)),
    HARDER("gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.5), GATE("g", "b h t", -400.0, 0.0)),
    HARDER("kda", ALIKE, GATE("beta", "b h t", 1.5, 2.0), GATE("g", "b h t d", -0.05, 0.0)),
    HARDER("kda", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.5), GATE("g", "b h t d", -400.0, 0.0)),
};
const int linear_spec_count = (int)(sizeof linear_specs / sizeof linear_specs[0]);
