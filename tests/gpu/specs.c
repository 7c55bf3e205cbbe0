/*
 * specs.c: the shipped specs as the GPU tests see them: which inputs and finals each one has, and what
 * data makes sense for them. A spec that gains an input gets a row here.
 */
#include "cases.h"
#include "own_specs.h"

#include <stdio.h>
#include <string.h>

/* score_noise: mods of query and key leave vectors that are rounded to 16 bits; the hardware tanh of softcap
   is off by 2^-11, two roundings of f16. */
const struct spec_row spec_rows[] = {
#define EPS                                                                                                  \
    {                                                                                                        \
        "eps", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 1e-5, 0.0, false, true, false                        \
    }
#define PARAMETER(name, dims, mean, deviation)                                                               \
    {                                                                                                        \
        name, ROLE_INPUT, LATHE_NONE, dims, FILL_NORMAL, mean, deviation, false, false, true                 \
    }
#define FINAL(name)                                                                                          \
    {                                                                                                        \
        name, ROLE_FINAL, LATHE_F32, "b h q", FILL_NORMAL, 0.0, 0.0, false, true, false                      \
    }
#define STAT(name)                                                                                           \
    {                                                                                                        \
        name, ROLE_FINAL, LATHE_F32, "rows0 rows1 rows", FILL_NORMAL, 0.0, 0.0, false, true, false           \
    }
    {"full", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"causal", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"alibi", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"sliding_window",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"window", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 1.0, 100.0, false, true, false}}},
    {"prefix_lm",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"prefix", ROLE_INPUT, LATHE_I32, "b", FILL_PREFIX, 0.0, 0.0, false, false, false}}},
    {"document",
     false,
     true,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"doc", ROLE_INPUT, LATHE_I32, "b kv", FILL_DOCUMENT, 0.0, 0.0, false, false, false}}},
    {"block_mask",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"),
      {"live", ROLE_INPUT, LATHE_I32, "b h 80 80", FILL_INTEGER, 0.0, 1.0, false, false, false}}},
    {"softcap", false, false, 2.0, "dlse", 1, {FINAL("lse")}},
    {"relative_bias",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"table", ROLE_INPUT, LATHE_F32, "h 32", FILL_NORMAL, 0.0, 1.0, true, false, true}}},
    {"sigmoid",
     false,
     false,
     0.0,
     NULL,
     1,
     {{"bias", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, -2.0, 1.0, true, true, true}}},
    {"relu", false, false, 0.0, NULL, 0, {{.name = ""}}},
    {"retention", false, false, 0.0, NULL, 1, {FINAL("n")}},
    {"softmax_one", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"sinks",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"sink", ROLE_INPUT, LATHE_F32, "h", FILL_NORMAL, 0.0, 2.0, true, false, true}}},
    {"rope", false, false, 1.0, "dlse", 1, {FINAL("lse")}},
    {"rope_partial", false, false, 1.0, "dlse", 1, {FINAL("lse")}},
    {"dropout",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"p", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 0.25, 0.1, false, true, false},
      {"seed", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 1.0, 1000000.0, false, false, false}}},
    {"qk_norm",
     false,
     false,
     1.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"q_gain", ROLE_INPUT, LATHE_F32, "d", FILL_NORMAL, 1.0, 0.3, false, false, true},
      {"k_gain", ROLE_INPUT, LATHE_F32, "d", FILL_NORMAL, 1.0, 0.3, false, false, true}}},
    /* masks whose tiles are judged once a launch */
    {"neighbours",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"grid_h", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 2.0, 9.0, false, false, false},
      {"grid_w", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 2.0, 9.0, false, false, false}}},
    {"two_copies",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"copy", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 30.0, 300.0, false, false, false},
      {"part", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 1.0, 40.0, false, false, false}}},
    {"waves", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"chosen_blocks",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"),
      {"chosen", ROLE_INPUT, LATHE_I32, "h_kv 40 40", FILL_INTEGER, 0.0, 1.0, false, false, false}}},

    {"softmax", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"log_softmax", true, false, 0.0, NULL, 1, {STAT("lse")}},
    {"rms_norm",
     true,
     false,
     0.0,
     "drstd",
     4,
     {STAT("rstd"),
      {"offset", ROLE_SCALAR, LATHE_F32, "", FILL_NORMAL, 0.5, 0.5, false, true, false},
      PARAMETER("weight", "n", 1.0, 0.3),
      EPS}},
    {"layer_norm",
     true,
     false,
     0.0,
     "drstd",
     5,
     {STAT("mean"), STAT("rstd"), PARAMETER("weight", "n", 1.0, 0.3), PARAMETER("bias", "n", 0.0, 1.0), EPS}},
    {"srms_norm", true, false, 0.0, "drstd", 2, {STAT("rstd"), EPS}},
    {"l2_norm", true, false, 0.0, "drnorm", 2, {STAT("rnorm"), EPS}},
    {"cumsum", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"revcumsum", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"largest", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"logcumsumexp", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"revlogcumsumexp", true, false, 0.0, NULL, 0, {{.name = ""}}},
    {"group_norm",
     true,
     false,
     0.0,
     "drstd",
     7,
     {STAT("mean"),
      STAT("rstd"),
      PARAMETER("weight", "7 40", 1.0, 0.3),
      PARAMETER("bias", "7 40", 0.0, 1.0),
      {"groups", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 7.0, 7.0, false, true, false},
      {"channels", ROLE_SCALAR, LATHE_I32, "", FILL_PARTS, 0.0, 0.0, false, true, false},
      EPS}},
    {"softmax_inner", ROWS_INNER, false, 0.0, NULL, 0, {{.name = ""}}},
    {"logcumsumexp_packed",
     ROWS_INNER,
     false,
     0.0,
     NULL,
     2,
     {{"chunk", ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, 0.0, 9.0, false, true, false},
      {"since", ROLE_INPUT, LATHE_I32, "n", FILL_INTEGER, 0.0, 40.0, false, false, false}}},
#define MASK(name)                                                                                           \
    {                                                                                                        \
        name, false, false, 0.0, "dlse", 1,                                                                  \
        {                                                                                                    \
            FINAL("lse")                                                                                     \
        }                                                                                                    \
    } /* masks.c */
    MASK("chosen_1e4"),
    MASK("chosen_1e6"),
    MASK("chosen_1e7"),
    MASK("chosen_1e9"),
    MASK("chosen_1e30"),
    MASK("chosen_lowest"),
    MASK("added_1e9"),
    MASK("added_1e30"),
    MASK("added_lowest"),
    {"mla", false, false, 0.0, "dlse", 1, {FINAL("lse")}},
    {"nsa_compressed",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"past", ROLE_INPUT, LATHE_I32, "b", FILL_INTEGER, 0.0, 300.0, false, true, false},
      {"importance", ROLE_INPUT, LATHE_F32, "b h_kv q kv", FILL_NORMAL, 0.0, 1.0, false, true, true}}},
    {"nsa_selected",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"),
      {"blocks", ROLE_INPUT, LATHE_I32, "b h_kv q 16", FILL_BLOCK, 0.0, 0.0, false, false, false}}},
#define PAIR(width)                                                                                          \
    {"q2", ROLE_TENSOR, LATHE_NONE, "b h q " width, FILL_NORMAL, 0.0, 1.0, false, false, false},             \
    {                                                                                                        \
        "k2", ROLE_TENSOR, LATHE_NONE, "b h_kv kv " width, FILL_NORMAL, 0.0, 1.0, false, false, false        \
    }
    {"second_pair", false, false, 0.0, "dlse", 3, {FINAL("lse"), PAIR("16")}},
    {"mla_decoupled", false, false, 0.0, "dlse", 3, {FINAL("lse"), PAIR("64")}},
    {"row_gates",
     false,
     false,
     1.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"g", ROLE_INPUT, LATHE_NONE, "b h q d_v", FILL_NORMAL, 0.0, 1.0, false, false, true},
      {"s", ROLE_INPUT, LATHE_F32, "b h q", FILL_NORMAL, 1.0, 0.3, false, false, true}}},
/* variants of papers */
#define NUMBER(name, low, high)                                                                              \
    {                                                                                                        \
        name, ROLE_SCALAR, LATHE_I32, "", FILL_INTEGER, low, high, false, false, false                       \
    }
#define WHOLE(name, dims, low, high)                                                                         \
    {                                                                                                        \
        name, ROLE_INPUT, LATHE_I32, dims, FILL_INTEGER, low, high, false, false, false                      \
    }
#define LEARNED(name, dims)                                                                                  \
    {                                                                                                        \
        name, ROLE_INPUT, LATHE_F32, dims, FILL_NORMAL, 0.0, 1.0, false, false, true                         \
    }
    {"natten_1d",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"), NUMBER("window_1", 1.0, 90.0), NUMBER("dilation_1", 1.0, 3.0)}},
    {"natten_2d",
     false,
     false,
     0.0,
     "dlse",
     6,
     {FINAL("lse"), NUMBER("n_2", 1.0, 20.0), NUMBER("window_1", 1.0, 9.0), NUMBER("dilation_1", 1.0, 2.0),
      NUMBER("window_2", 1.0, 9.0), NUMBER("dilation_2", 1.0, 3.0)}},
    {"natten_3d",
     false,
     false,
     0.0,
     "dlse",
     7,
     {FINAL("lse"), NUMBER("n_2", 1.0, 9.0), NUMBER("n_3", 1.0, 9.0), NUMBER("window_1", 1.0, 5.0),
      NUMBER("window_2", 1.0, 5.0), NUMBER("window_3", 1.0, 5.0), NUMBER("dilation_2", 1.0, 2.0)}},
    {"sliding_tile",
     false,
     false,
     0.0,
     "dlse",
     8,
     {FINAL("lse"), NUMBER("n_2", 1.0, 3.0), NUMBER("n_3", 1.0, 3.0), NUMBER("window_1", 1.0, 3.0),
      NUMBER("window_2", 1.0, 2.0), NUMBER("window_3", 1.0, 2.0), NUMBER("tile", 4.0, 64.0),
      NUMBER("text", 0.0, 20.0)}},
    {"shared_prefix",
     false,
     true,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"doc", ROLE_INPUT, LATHE_I32, "b kv", FILL_DOCUMENT, 0.0, 0.0, false, false, false},
      WHOLE("prefix", "b 3000", -1.0, 20.0)}},
    {"block_diffusion", false, false, 0.0, "dlse", 2, {FINAL("lse"), NUMBER("block", 1.0, 40.0)}},
    {"global_window",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"), NUMBER("window", 0.0, 90.0), NUMBER("globals", 0.0, 20.0)}},
    {"graphormer",
     false,
     false,
     0.0,
     "dlse",
     5,
     {FINAL("lse"), WHOLE("distance", "b q kv", 0.0, 6.0), LEARNED("spatial", "h 7"),
      WHOLE("path", "b q kv 4", -1.0, 4.0), LEARNED("edge", "h 4 5")}},
    {"sandwich",
     false,
     false,
     0.0,
     "dlse",
     2,
     {FINAL("lse"), {"cosines", ROLE_INPUT, LATHE_F32, "4000", FILL_NORMAL, 0.0, 1.0, false, false, false}}},
    {"forgetting", false, true, 0.0, "dlse", 2, {FINAL("lse"), LEARNED("gates", "b h kv")}},
    {"fp8_cache",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"k_scale", ROLE_INPUT, LATHE_F32, "b h_kv kv", FILL_NORMAL, 0.0, 1.0, false, false, false},
      {"v_scale", ROLE_INPUT, LATHE_F32, "b h_kv kv", FILL_NORMAL, 0.0, 1.0, false, false, false}}},
    {"hstu",
     false,
     false,
     0.0,
     NULL,
     3,
     {NUMBER("n", 40.0, 400.0), WHOLE("targets", "b", 0.0, 20.0), LEARNED("bias", "h 60")}},
    {"pair_bias",
     false,
     false,
     0.0,
     "dlse",
     3,
     {FINAL("lse"),
      {"bias", ROLE_INPUT, LATHE_NONE, "1 h q kv", FILL_NORMAL, 0.0, 1.0, true, false, true},
      {"keep", ROLE_INPUT, LATHE_I32, "b kv", FILL_INTEGER, 0.0, 1.0, false, true, false}}},
    {"max_score", false, false, 0.0, "dlse", 2, {FINAL("lse"), FINAL("max_score")}},
#undef LEARNED
#undef WHOLE
#undef NUMBER
#undef PAIR
#undef MASK
#undef FINAL
#undef STAT
};
const int spec_row_count = (int)(sizeof spec_rows / sizeof spec_rows[0]);

/* Specs that are not shipped. */
static const struct {
    const char *name, *text;
} TEXTS[] = {
    {"neighbours",
     "return attention { inputs = { grid_h = scalar('i32'), grid_w = scalar('i32') }, mask_mod = "
     "function(at, x)\n"
     "  local plane = x.grid_h * x.grid_w\n"
     "  return le(abs(at.q // plane - at.kv // plane), 1) & le(abs(at.q % x.grid_w - at.kv % x.grid_w), 2)\n"
     "    & le(abs(at.q % plane // x.grid_w - at.kv % plane // x.grid_w), 1)\n"
     "end }\n"},
    {"two_copies",
     "return attention { inputs = { copy = scalar('i32'), part = scalar('i32') }, mask_mod = function(at, "
     "x)\n"
     "  local a, b = at.q % x.copy // x.part, at.kv % x.copy // x.part\n"
     "  local clean_q, clean_kv = ge(at.q, x.copy), ge(at.kv, x.copy)\n"
     "  return (eq(a, b) & ((clean_q & clean_kv) | (~clean_q & ~clean_kv))) | (gt(a, b) & clean_kv)\n"
     "end }\n"},
    {"waves", /* nothing is known of an exclusive or on a tile */
     "return attention { mask_mod = function(at)\n"
     "  return lt((at.q ~ at.kv) & 192, 100) & ge(at.q, at.kv) end }\n"},
    {"chosen_blocks",
     "return attention { inputs = { chosen = tensor('i32', 'h_kv', 40, 40) }, mask_mod = function(at, x)\n"
     "  return ne(x.chosen(at.h_kv, clamp(at.row // 32, 0, 39), clamp(at.kv // 64, 0, 39)), 0) end }\n"},
    {"second_pair", "return attention { qk2 = true, mask_mod = causal }\n"},
    {"row_gates", SPEC_row_gates},
};

lathe_status spec_open(lathe_spec **out, const struct spec_row *row, lathe_error *err)
{
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        if (strcmp(TEXTS[i].name, row->name) == 0) {
            return lathe_spec_parse(out, row->name, TEXTS[i].text, strlen(TEXTS[i].text), err);
        }
    }
    return lathe_spec_load(out, row->name, err);
}

const struct spec_row *spec_find(const char *name)
{
    for (int i = 0; i < spec_row_count; i++) {
        if (strcmp(spec_rows[i].name, name) == 0) {
            return &spec_rows[i];
        }
    }
    return NULL;
}

bool spec_scatters(const struct spec_row *spec)
{
    bool any = false;
    for (int i = 0; i < spec->n_args && spec->rowwise; i++) {
        any |= spec->arg[i].grad && spec->arg[i].role == ROLE_INPUT && strcmp(spec->arg[i].dims, "n") != 0;
    }
    return any;
}

bool spec_adds_by_head(const struct spec_row *spec)
{
    return spec && (strcmp(spec->name, "nsa_compressed") == 0 || strcmp(spec->name, "pair_bias") == 0);
}

static const struct arg_row ATTENTION[] = {
    {"q", ROLE_TENSOR, LATHE_NONE, "b h q d", FILL_NORMAL, 0.0, 1.0, false, false, false},
    {"k", ROLE_TENSOR, LATHE_NONE, "b h_kv kv d", FILL_NORMAL, 0.0, 1.0, false, false, false},
    {"v", ROLE_TENSOR, LATHE_NONE, "b h_kv kv d_v", FILL_NORMAL, 0.0, 1.0, false, false, false},
    {"o", ROLE_RESULT, LATHE_NONE, "b h q d_v", FILL_NORMAL, 0.0, 0.0, false, false, false},
};
static const struct arg_row ROWWISE[] = {
    {"x", ROLE_TENSOR, LATHE_NONE, "rows0 rows1 rows n", FILL_NORMAL, 0.5, 2.0, false, false, false},
    {"y", ROLE_RESULT, LATHE_NONE, "rows0 rows1 rows n", FILL_NORMAL, 0.0, 0.0, false, false, false},
};

static const struct arg_row INNER[] = {
    {"x", ROLE_TENSOR, LATHE_NONE, "rows0 rows1 n rows", FILL_NORMAL, 0.5, 2.0, false, false, false},
    {"y", ROLE_RESULT, LATHE_NONE, "rows0 rows1 n rows", FILL_NORMAL, 0.0, 0.0, false, false, false},
};

bool spec_values_in_keys(const struct spec_row *spec)
{
    return strcmp(spec->name, "mla") == 0 || strcmp(spec->name, "mla_decoupled") == 0;
}

static int forward_arguments(const struct spec_row *spec, struct arg_row *out)
{
    const struct arg_row *common = spec->rowwise == ROWS_INNER ? INNER : spec->rowwise ? ROWWISE : ATTENTION;
    int n = spec->rowwise ? 2 : 4;
    memcpy(out, common, (size_t)n * sizeof *out);
    if (spec_values_in_keys(spec)) {
        out[2] = out[3];
        n = 3;
    }
    memcpy(out + n, spec->arg, (size_t)spec->n_args * sizeof *out);
    return n + spec->n_args;
}

/* What the forward pass reads and writes, as the backward pass sees it. */
static void turn(struct arg_row *row)
{
    if (row->role == ROLE_RESULT || row->role == ROLE_FINAL) {
        row->role = ROLE_SAVED;
        row->optional = true;
    }
}

static int add_gradients(const struct arg_row *forward, int n, struct arg_row *out)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        struct arg_row row = forward[i];
        const bool scaled = row.role == ROLE_RESULT || row.role == ROLE_FINAL; /* a seed: normal values */
        switch (row.role) {
        case ROLE_RESULT:
            row.role = ROLE_TENSOR;
            break;
        case ROLE_FINAL:
            row.role = ROLE_SEED;
            break;
        case ROLE_TENSOR:
            row.role = ROLE_RESULT;
            break;
        default:
            row.role = ROLE_GRADIENT;
            row.dtype = LATHE_F32;
            break;
        }
        if (row.role == ROLE_GRADIENT && !row.grad) {
            continue;
        }
        (void)snprintf(row.name, sizeof row.name, "d%s", forward[i].name);
        row.low = 0.0;
        row.high = scaled ? 1.0 : 0.0;
        out[count++] = row;
    }
    return count;
}

int spec_arguments(const struct spec_row *spec, lathe_pass pass, struct arg_row *out)
{
    struct arg_row forward[CASE_ARGS];
    const int n = forward_arguments(spec, forward);
    const bool rowwise_backward = pass == LATHE_BACKWARD && spec->rowwise;
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (rowwise_backward && forward[i].role == ROLE_RESULT) {
            continue; /* y is not read */
        }
        out[count] = forward[i];
        if (pass == LATHE_BACKWARD) {
            turn(&out[count]);
        }
        count++;
    }
    return pass == LATHE_BACKWARD ? count + add_gradients(forward, n, out + count) : count;
}
