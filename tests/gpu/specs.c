/*
 * specs.c: the shipped specs as the GPU tests see them: which inputs and finals each one has, and what
 * data makes sense for them. A spec that gains an input gets a row here.
 */
#include "cases.h"

#include <string.h>

/* `loose`, for logits of deviation 40: softcap's hardware tanh is off by 2^-11 of 30, and the mods of rope
   round the rotated vectors to 16 bits, so that a logit of 100 moves by 0.1. */
const struct spec_row spec_rows[] = {
#define FINAL(name)                                                                                          \
    {                                                                                                        \
        name, ROLE_FINAL, LATHE_F32, "b h q", FILL_NORMAL, 0.0, 0.0, false, true                             \
    }
#define STAT(name)                                                                                           \
    {                                                                                                        \
        name, ROLE_FINAL, LATHE_F32, "rows0 rows1 rows", FILL_NORMAL, 0.0, 0.0, false, true                  \
    }
    {"full", false, false, 1.0, 1, {FINAL("lse")}},
    {"causal", false, false, 1.0, 1, {FINAL("lse")}},
    {"alibi", false, false, 1.0, 1, {FINAL("lse")}},
    {"sliding_window",
     false,
     false,
     1.0,
     2,
     {FINAL("lse"), {"window", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 1.0, 100.0, false, true}}},
    {"prefix_lm",
     false,
     false,
     1.0,
     2,
     {FINAL("lse"), {"prefix", ROLE_INPUT, LATHE_I32, "b", FILL_PREFIX, 0.0, 0.0, false, false}}},
    {"document",
     false,
     true,
     1.0,
     2,
     {FINAL("lse"), {"doc", ROLE_INPUT, LATHE_I32, "b kv", FILL_DOCUMENT, 0.0, 0.0, false, false}}},
    {"softcap", false, false, 8.0, 1, {FINAL("lse")}},
    {"relative_bias",
     false,
     false,
     1.0,
     2,
     {FINAL("lse"), {"table", ROLE_INPUT, LATHE_F32, "h 32", FILL_NORMAL, 0.0, 1.0, true, false}}},
    {"sigmoid",
     false,
     false,
     1.0,
     1,
     {{"bias", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, -2.0, 1.0, true, true}}},
    {"relu", false, false, 1.0, 0, {{0}}},
    {"retention", false, false, 1.0, 1, {FINAL("n")}},
    {"softmax_one", false, false, 1.0, 1, {FINAL("lse")}},
    {"sinks",
     false,
     false,
     1.0,
     2,
     {FINAL("lse"), {"sink", ROLE_INPUT, LATHE_F32, "h", FILL_NORMAL, 0.0, 2.0, true, false}}},
    {"rope", false, false, 30.0, 1, {FINAL("lse")}},
    {"qk_norm",
     false,
     false,
     1.0,
     3,
     {FINAL("lse"),
      {"q_gain", ROLE_INPUT, LATHE_F32, "d", FILL_NORMAL, 1.0, 0.3, false, false},
      {"k_gain", ROLE_INPUT, LATHE_F32, "d", FILL_NORMAL, 1.0, 0.3, false, false}}},

    {"softmax", true, false, 1.0, 0, {{0}}},
    {"log_softmax", true, false, 1.0, 1, {STAT("lse")}},
    {"rms_norm",
     true,
     false,
     1.0,
     4,
     {STAT("rstd"),
      {"offset", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 0.5, 0.5, false, true},
      {"weight", ROLE_INPUT, LATHE_NONE, "n", FILL_NORMAL, 1.0, 0.3, false, false},
      {"eps", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 1e-5, 0.0, false, true}}},
    {"layer_norm",
     true,
     false,
     1.0,
     5,
     {STAT("mean"),
      STAT("rstd"),
      {"weight", ROLE_INPUT, LATHE_NONE, "n", FILL_NORMAL, 1.0, 0.3, false, false},
      {"bias", ROLE_INPUT, LATHE_NONE, "n", FILL_NORMAL, 0.0, 1.0, false, false},
      {"eps", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 1e-5, 0.0, false, true}}},
#undef FINAL
#undef STAT
};
const int spec_row_count = (int)(sizeof spec_rows / sizeof spec_rows[0]);

const struct spec_row *spec_find(const char *name)
{
    for (int i = 0; i < spec_row_count; i++) {
        if (strcmp(spec_rows[i].name, name) == 0) {
            return &spec_rows[i];
        }
    }
    return NULL;
}

static const struct arg_row ATTENTION[] = {
    {"q", ROLE_TENSOR, LATHE_NONE, "b h q d", FILL_NORMAL, 0.0, 1.0, false, false},
    {"k", ROLE_TENSOR, LATHE_NONE, "b h_kv kv d", FILL_NORMAL, 0.0, 1.0, false, false},
    {"v", ROLE_TENSOR, LATHE_NONE, "b h_kv kv d_v", FILL_NORMAL, 0.0, 1.0, false, false},
    {"o", ROLE_RESULT, LATHE_NONE, "b h q d_v", FILL_NORMAL, 0.0, 0.0, false, false},
};
static const struct arg_row ROWWISE[] = {
    {"x", ROLE_TENSOR, LATHE_NONE, "rows0 rows1 rows n", FILL_NORMAL, 0.5, 2.0, false, false},
    {"y", ROLE_RESULT, LATHE_NONE, "rows0 rows1 rows n", FILL_NORMAL, 0.0, 0.0, false, false},
};

int spec_arguments(const struct spec_row *spec, struct arg_row *out)
{
    const struct arg_row *common = spec->rowwise ? ROWWISE : ATTENTION;
    const int n = spec->rowwise ? 2 : 4;
    memcpy(out, common, (size_t)n * sizeof *out);
    memcpy(out + n, spec->arg, (size_t)spec->n_args * sizeof *out);
    return n + spec->n_args;
}
