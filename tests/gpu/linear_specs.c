/*
 * linear_specs.c: specs of linear attention as the GPU tests see them: their tensors and inputs, sizes beside
 * the edges of chunks and of slices of the state, and what data makes sense. A new spec gets a row here; what
 * no shipped one has is of the emulator's specs (tests/emulate/specs). Rows are added at the end: a case is
 * drawn by its number.
 */
#include "maps.h"
#include "own_specs.h"

#include <string.h>

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

/* Tokens of two updates each. */
static const char *const UPDATED[] = {"b=2,h=4,h_k=2,t=130,rows=260,n=2,d=64,d_v=64,seqs=2",
                                      "b=3,h=3,h_k=1,t=1,rows=2,n=2,d=128,d_v=128,seqs=3",
                                      "b=1,h=2,h_k=2,t=321,rows=642,n=2,d=128,d_v=64,seqs=1",
                                      "b=1,h=2,h_k=1,t=1300,rows=2600,n=2,d=64,d_v=32,seqs=1",
                                      "b=2,h=2,h_k=2,t=0,rows=0,n=2,d=64,d_v=64,seqs=2",
                                      NULL};
static const char *const UPDATED_PACKED[] = {"b=1,h=4,h_k=2,t=200,rows=400,n=2,d=64,d_v=64,seqs=5,ends=6",
                                             "b=1,h=2,h_k=1,t=7,rows=14,n=2,d=64,d_v=128,seqs=9,ends=10",
                                             NULL};
#define UPDATES                                                                                              \
    QUERIES, READ("k", "b h_k rows d", 1.0), READ("v", "b h rows d_v", 1.0),                                 \
        OUT("o", LATHE_NONE, "b h t d_v", false)
#define UPDATE_GATES GATE("beta", "b h t n", 0.0, 1.0), GATE("g", "b h t", -1.0, 0.0)

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

/* Nearly one key for all tokens, which a beta near 2 never forgets; gates that are mild everywhere, and ones
   that leave 2e-9 everywhere. */
static const char *const EDGES[] = {"b=1,h=4,h_k=4,t=300,d=64,d_v=64,seqs=1",
                                    "b=1,h=2,h_k=1,t=130,d=128,d_v=128,seqs=1", NULL};
#define REPEATED                                                                                             \
    QUERIES, ARG("k", ROLE_TENSOR, LATHE_NONE, "b h_k t d", FILL_NORMAL, 3.0, 0.1, false, true), VALUES,     \
        STATES
#define EDGE(name, ...)                                                                                      \
    {                                                                                                        \
        name, EDGES, 0, false, false, false,                                                                 \
        {                                                                                                    \
            __VA_ARGS__, END                                                                                 \
        }                                                                                                    \
    }

/* Forms that no shipped spec has: walks from the last token on, reads of all tokens, decays by value channel,
   of a number a head, gates of 0 beside ones that leave nothing, sums of keys in and out. */
static const char *const FORMS[] = {"b=2,h=4,h_k=2,t=130,d=64,d_v=72,seqs=2",
                                    "b=1,h=2,h_k=1,t=65,d=128,d_v=128,seqs=1", NULL};
static const char *const FORMS_PACKED[] = {"b=1,h=2,h_k=1,t=200,d=64,d_v=128,seqs=7,ends=8", NULL};
#define FORM(name, ...)                                                                                      \
    {name, FORMS, 0, false, false, false, {__VA_ARGS__, END}},                                               \
    {                                                                                                        \
        name, FORMS_PACKED, 0, false, false, false,                                                          \
        {                                                                                                    \
            STARTS, __VA_ARGS__, END                                                                         \
        }                                                                                                    \
    }
#define NORMED                                                                                               \
    STATE("state", "seqs h d d_v"), OUT("state_out", LATHE_F32, "seqs h d d_v", false),                      \
        ARG("norm", ROLE_TENSOR, LATHE_F32, "seqs h d", FILL_NORMAL, 20.0, 1.0, true, true),                 \
        OUT("norm_out", LATHE_F32, "seqs h d", false)

/* States of a pool, in any order, of which one sequence has none; also of steps of generation. A backward
   pass has no pool. */
static const char *const POOLS[] = {"b=9,h=4,h_k=2,t=1,d=128,d_v=128,seqs=9,slots=8",
                                    "b=5,h=2,h_k=2,t=70,d=64,d_v=72,seqs=5,slots=4", NULL};
static const char *const POOLS_PACKED[] = {"b=1,h=2,h_k=1,t=200,d=128,d_v=64,seqs=7,ends=8,slots=6", NULL};
#define POOLED                                                                                               \
    ARG("state_index", ROLE_TENSOR, LATHE_I32, "seqs", FILL_SLOTS, 0.0, 0.0, false, false),                  \
        ARG("state", ROLE_TENSOR, LATHE_F32, "slots h d d_v", FILL_NORMAL, 0.0, 1.0, false, false),          \
        OUT("state_out", LATHE_F32, "slots h d d_v", false)
#define POOL(name, ...)                                                                                      \
    {name, POOLS, 0, false, false, true, {TOKENS, POOLED, __VA_ARGS__}},                                     \
    {                                                                                                        \
        name, POOLS_PACKED, 0, false, false, true,                                                           \
        {                                                                                                    \
            STARTS, TOKENS, POOLED, __VA_ARGS__                                                              \
        }                                                                                                    \
    }

#define OWN(name) #name, SPEC_##name
static const struct {
    const char *name;
    const char *text;
} OWN_SPECS[] = {{OWN(backwards)},       {OWN(all_tokens)},      {OWN(all_normalised)},
                 {OWN(by_value)},        {OWN(learned_head)},    {OWN(with_resets)},
                 {OWN(turned)},          {OWN(normalised)},      {OWN(normalised_bonus)},
                 {OWN(token_bonus)},     {OWN(delta_backwards)}, {OWN(valued_delta)},
                 {OWN(keyed_backwards)}, {OWN(keyed_resets)},    {OWN(delta_with_resets)},
                 {OWN(delta_by_head)}};

const char *linear_text(const char *name)
{
    const char *text = NULL;
    for (size_t i = 0; i < sizeof OWN_SPECS / sizeof OWN_SPECS[0]; i++)
        text = strcmp(OWN_SPECS[i].name, name) == 0 ? OWN_SPECS[i].text : text;
    return text;
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
    BOTH("rwkv7", TOKENS, STATES, GATE("w", "b h t d", -0.6, 0.0), GATE("kappa", "b h t d", -0.1, 0.1),
         GATE("eta", "b h t d", 0.0, 1.0)),
    BOTH("dplr", TOKENS, STATES, GATE("g", "b h t d", -1.0, 0.0), GATE("kappa", "b h t d", -0.1, 0.1),
         GATE("eta", "b h t d", 0.0, 1.0)),
    BOTH("iplr", TOKENS, STATES, GATE("kappa", "b h t d", -0.1, 0.1), GATE("eta", "b h t d", 0.0, 1.0)),
    BOTH("comba", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t", -1.0, 0.0),
         LEARNED("part", "h", 0.8, 0.05)),
    BOTH("gdn2", TOKENS, STATES, GATE("g", "b h t d", -1.0, 0.0), GATE("erase", "b h t d", 0.0, 1.0),
         GATE("write", "b h t d_v", 0.0, 1.0)),
    BOTH("precond_gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0),
         GATE("g", "b h t", -1.0, 0.0), GATE("m", "b h_k t d", 0.67, 1.5)),
    BOTH("precond_kda", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t d", -1.0, 0.0),
         GATE("m", "b h_k t d", 0.67, 1.5)),
    BOTH("flao", TOKENS, GATE("gate", "b h t d_v", -1.0, 1.0)),
    BOTH("flao_lrpe", TOKENS, GATE("gate", "b h t d_v", -1.0, 1.0),
         ARG("offset", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, -10.0, 60.0, true, false)),
    HARDER("delta_rule", ALIKE, GATE("beta", "b h t", 1.5, 2.0)),
    HARDER("delta_rule", ALIKE, GATE("beta", "b h t", 0.9, 1.0)),
    HARDER("gated_delta", ALIKE, GATE("beta", "b h t", 1.5, 2.0), GATE("g", "b h t", -0.05, 0.0)),
    HARDER("gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.5), GATE("g", "b h t", -400.0, 0.0)),
    HARDER("kda", ALIKE, GATE("beta", "b h t", 1.5, 2.0), GATE("g", "b h t d", -0.05, 0.0)),
    HARDER("kda", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.5), GATE("g", "b h t d", -400.0, 0.0)),
    FORM("backwards", TOKENS, STATES, GATE("dt", "b h t", -1.0, 1.0), LEARNED("a", "h", 0.0, 0.5),
         LEARNED("skip", "h", 0.5, 0.5), LEARNED("w", "d_v", 1.0, 0.3)),
    FORM("all_tokens", TOKENS, GATE("gate", "b h t d_v", -1.0, 1.0)),
    FORM("all_normalised", TOKENS),
    FORM("by_value", TOKENS, STATES, GATE("g", "b h t d_v", -1.0, 0.0)),
    FORM("learned_head", TOKENS, STATES, LEARNED("r", "h", 0.0, 0.5)),
    FORM("with_resets", TOKENS, STATES, GATE("g", "b h t", -2.0, 0.0), LEARNED("s", "h", 0.0, 0.5)),
    FORM("turned", QUERIES, VALUES, STATES, GATE("g", "b h_k t d", -1.5, -0.05)),
    FORM("normalised", TOKENS, NORMED, GATE("g", "b h t", -1.0, 0.0)),
    FORM("normalised_bonus", TOKENS, NORMED, GATE("g", "b h t d", -1.0, 0.0), GATE("u", "h d", -0.5, 0.5)),
    FORM("token_bonus", TOKENS, STATES, GATE("g", "b h t", -1.0, 0.0), GATE("u", "h d", -0.5, 0.5)),
    FORM("delta_backwards", TOKENS, STATES, GATE("r", "b h t", -1.0, 1.0), GATE("g", "b h t", -1.0, 0.0),
         LEARNED("skip", "h", 0.5, 0.5)),
    FORM("valued_delta", TOKENS, STATES, GATE("r", "b h t", -1.0, 1.0), GATE("g", "b h t d_v", -1.0, 0.0)),
    FORM("keyed_backwards", TOKENS, STATES, GATE("r", "b h t", -1.0, 1.0), GATE("g", "b h t d", -1.0, 0.0),
         LEARNED("skip", "h", 0.5, 0.5)),
    FORM("keyed_resets", TOKENS, STATES, GATE("r", "b h t", 0.0, 1.5), GATE("g", "b h t d", -2.5, 0.0)),
    FORM("delta_with_resets", TOKENS, STATES, GATE("r", "b h t", -0.5, 1.5), GATE("g", "b h t", -2.0, 0.0)),
    POOL("linear", END),
    POOL("simple_gla", GATE("g", "b h t", -1.0, 0.0), END),
    POOL("gla", GATE("g", "b h t d", -1.0, 0.0), END),
    POOL("gated_delta", GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t", -1.0, 0.0), END),
    POOL("kda", GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t d", -1.0, 0.0), END),
    EDGE("delta_rule", REPEATED, GATE("beta", "b h t", 0.95, 1.0)),
    EDGE("delta_rule", REPEATED, GATE("beta", "b h t", 1.95, 2.0)),
    EDGE("kda", REPEATED, GATE("beta", "b h t", 1.95, 2.0), GATE("g", "b h t d", -0.002, 0.0)),
    EDGE("simple_gla", TOKENS, STATES, GATE("g", "b h t", -0.12, -0.08)),
    EDGE("gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t", -0.12, -0.08)),
    EDGE("gated_delta", TOKENS, STATES, GATE("beta", "b h t", 0.0, 1.0), GATE("g", "b h t", -21.0, -19.0)),
    FORM("delta_by_head", TOKENS, STATES, GATE("r", "b h t", -1.0, 1.0), LEARNED("a", "h", 0.0, 0.5)),
    {"gated_delta_product", UPDATED, 0, false, false, false, {UPDATES, STATES, UPDATE_GATES, END}},
    {"gated_delta_product",
     UPDATED_PACKED,
     0,
     false,
     false,
     false,
     {STARTS, UPDATES, STATES, UPDATE_GATES, END}},
};
const int linear_spec_count = (int)(sizeof linear_specs / sizeof linear_specs[0]);
