/*
 * cases.c: the matrix: which specs meet which sizes, dtypes, layouts and data; attention's forward pass
 * itself, the others from rooms of their own.
 *
 * In: the default or the full run. Out: a list that the caller frees, ordered so that cases which share a
 * kernel are neighbours: a kernel takes a second or two to compile, a case a few hundredths of a second.
 */
#include "cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

struct device device_of(int sm)
{
    /* opt-in shared memory of one block: 227 KiB, 163 KiB, 99 KiB */
    const int bytes = sm >= 90 ? 232448 : sm == 80 ? 166912 : 101376;
    struct device d = {.sm = sm, .sm_count = sm >= 90 ? 132 : 108, .smem_bytes = bytes};
    snprintf(d.arch, sizeof d.arch, sm == 90 ? "sm_90a" : "sm_%d", sm);
    return d;
}

/* ---- specs of this test's own ---------------------------------------------------------------------------
 */

static const struct inline_spec MOD_SPECS[] = {
    {"values", "return attention { mask_mod = causal, value_mod = function(v, at) return v * sigmoid(v) + "
               "0.01 * at.pos end }\n"},
    {"outputs", "return attention { mask_mod = causal, output_mod = function(o, at)\n"
                "  return o * rsqrt(dimsum(o * o) / at.d_v + 1e-6) + 0.01 * at.pos\n"
                "end }\n"},
    {"mods",
     "local function rotate(a, b, at)\n"
     "  local t = at.pos * exp2(-0.25 * at.i)\n"
     "  return a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)\n"
     "end\n"
     "return attention { mask_mod = causal, query_mod = interleaved(rotate), key_mod = interleaved(rotate),\n"
     "  value_mod = function(v, at) return v / (1.0 + dimmax(abs(v))) end, output_mod = function(o, at) "
     "return silu(o) + at.i / 64.0 end }\n"},
    {"stages",
     "local function rotate(a, b, at)\n"
     "  local t = at.pos * exp2(-0.5 * at.i)\n"
     "  return a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)\n"
     "end\n"
     "local function rms(v, at, x) return v * rsqrt(dimsum(v * v) / at.d + 1e-6) * x.gain(at.i) end\n"
     "return attention { inputs = { gain = tensor('float', 'd') }, mask_mod = causal, query_mod = chain(rms, "
     "half(rotate)),\n"
     "  key_mod = chain(rms, half(rotate), function(v) return v * 0.5 end),\n"
     "  output_mod = chain(function(o) return o * 2.0 end, half(function(a, b) return a + b, a - b end)) "
     "}\n"},
};

const char DISTANCES[] =
    "return attention { inputs = { slope = tensor('f32', 'h', { grad = true }) }, mask_mod = causal,\n"
    "  score_mod = function(s, at, x)\n"
    "    local d = f32(abs(at.q - at.kv))\n"
    "    return 0.1 * x.slope(at.h) * (2.0 + d) ^ 0.3 - (0.3 * log(1.0 + d) - s)\n"
    "  end }\n";

static const struct inline_spec DATA_SPECS[] = {
    {"distances", DISTANCES},
    {"pair_bias",
     "return attention { inputs = { bias = tensor('float', 'b', 'h', 'q', 'kv', { optional = true }) },\n"
     "  score_mod = function(s, at, x) return s + x.bias(at.b, at.h, at.row, at.kv) end }\n"},
    {"blocks",
     "return attention { inputs = { block = tensor('u8', 'h', 'q', { optional = true, default = 1 }), shift "
     "= scalar('i32', { default = 0 }) },\n"
     "  mask_mod = function(at, x) return ne(x.block(at.h, at.row), 0) & ge(at.q + x.shift, at.kv) end }\n"},
    {"far_keys",
     "return attention { mask_mod = function(at) return ge(at.kv, 100) & ge(at.q + 40, at.kv) end }\n"},
    {"mask_values", /* finite ones, in the data */
     "return attention { inputs = { big = scalar('f32') },\n"
     "  score_mod = function(s, at, x) return where(lt(at.kv, 64), -exp(x.big + 60.0), s) end }\n"},
    {"sink_window", /* tiles in the middle that only some warpgroups of sm_90 need, and tables of diagonals */
     "return attention { mask_mod = function(at) return lt(at.kv, 30) | (ge(at.q, at.kv) & lt(at.q - at.kv, "
     "40)) end,\n"
     "  score_mod = function(s, at) return s + tanh(0.1 * (at.q - at.kv)) end }\n"},
    {"open_ends", /* the ends of rows of one tile that are added up wrongly are beyond 2^31 */
     "return attention { inputs = { from = tensor('i32', 'b', 'q'), count = tensor('i32', 'b', 'q') },\n"
     "  mask_mod = function(at, x) return lt(at.kv, x.from(at.b, at.row) + x.count(at.b, at.row)) end }\n"},
    {"stripes", "return attention { mask_mod = function(at) return eq(at.kv % 7, at.q % 7) & (gt(at.h, 0) | "
                "lt(at.kv, 30)) end }\n"},
    {"kinds", "return attention { inputs = { row = tensor('float', 'b', 'q'), column = tensor('float', 'h', "
              "'kv'), on = tensor('u8', 'b', 'kv'),\n"
              "    near = tensor('f16', 'h_kv', 'reach'), far = tensor('bf16', 'reach', 3), step = "
              "tensor('i32', 'q') },\n"
              "  mask_mod = function(at, x) return ne(x.on(at.b, at.kv), 0) end,\n"
              "  score_mod = function(s, at, x)\n"
              "    local d = at.q - at.kv\n"
              "    return s + x.row(at.b, at.row) * x.column(at.h, at.kv) + x.near(at.h_kv, clamp(d, 0, 39)) "
              "+ x.far(clamp(-d, 0, 39), 1) * x.step(at.row)\n"
              "  end }\n"},
    {"distance", "return attention { score_mod = function(s, at) return s * cos(0.1 * (at.q - at.kv)) + 0.3 "
                 "* at.h end }\n"},
    {"bare", /* no guard against -inf - -inf: rows without a live pair in a tile, or at all, are the kernel's
                affair */
     "return attention { mask_mod = function(at) return lt(at.q - at.kv, 20) & ge(at.q, at.kv) & ne(at.q % "
     "5, 0) end, online_func = online_func {\n"
     "  online_rowscales = { m = -inf, l = 0.0 },\n"
     "  online_fwd = function(s, r)\n"
     "    local m = max(r.m, detach(rowmax(s)))\n"
     "    local a = where(gt(r.l, 0.0), exp(r.m - m), 0.0)\n"
     "    local p = exp(s - m)\n"
     "    return p, { m = m, l = r.l * a + rowsum(p) }, a\n"
     "  end,\n"
     "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,\n"
     "  forward = function(s, final) return exp(s - final.lse) end } }\n"},
    {"logistic_sums", /* weights that leave their pass as the exponent of a logistic function, and reductions
                         that follow from them: in the same pass, or in one behind it, where they may not */
     "return attention { mask_mod = causal, online_func = online_func {\n"
     "  online_rowscales = { best = 0.0, gap = -1.0 },\n"
     "  online_fwd = function(s, r)\n"
     "    local w = sigmoid(s)\n"
     "    local top = detach(rowmax(w * w))\n"
     "    return w, { best = max(r.best, top), gap = max(r.gap, detach(rowmax(sqrt(w)))) }, 1.0\n"
     "  end,\n"
     "  online_fwd_epilogue = function(r) return 1.0, { best = r.best, gap = r.gap } end,\n"
     "  forward = function(s, final) return sigmoid(s) end } }\n"},
    {"logistic_passes",
     "return attention { mask_mod = causal, online_func = online_func {\n"
     "  online_rowscales = { best = 0.0, gap = -1.0 },\n"
     "  online_fwd = function(s, r)\n"
     "    local w = sigmoid(s)\n"
     "    local top = detach(rowmax(w * w))\n"
     "    return w, { best = max(r.best, top), gap = max(r.gap, detach(rowmax(w * w / top))) }, 1.0\n"
     "  end,\n"
     "  online_fwd_epilogue = function(r) return 1.0, { best = r.best, gap = r.gap } end,\n"
     "  forward = function(s, final) return sigmoid(s) end } }\n"},
    {"mean_abs", "return attention { mask_mod = causal, online_func = online_func {\n"
                 "  online_rowscales = { total = 0.0, best = -inf },\n"
                 "  online_fwd = function(s, r)\n"
                 "    local total = r.total + rowsum(abs(s))\n"
                 "    return s, { total = total, best = max(r.best, rowmax(s)) }, 1.0\n"
                 "  end,\n"
                 "  online_fwd_epilogue = function(r) return 1.0 / max(r.total, 1.0), { total = r.total, "
                 "best = r.best } end,\n"
                 "  forward = function(s, final) return s / max(final.total, 1.0) end } }\n"},
};

/* ---- the list ------------------------------------------------------------------------------------------ */

void case_add(struct case_list *list, const struct test_case *c)
{
    if (list->n == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 256;
        struct test_case *item = realloc(list->item, (size_t)capacity * sizeof *item);
        if (!item) {
            list->capacity = -1; /* sticky: n no longer grows */
            return;
        }
        list->item = item;
        list->capacity = capacity;
    }
    if (list->capacity > 0)
        list->item[list->n++] = *c;
}

bool same_job(const struct test_case *a, const struct test_case *b)
{
    return strcmp(a->group, b->group) == 0 && a->pass == b->pass && strcmp(a->spec, b->spec) == 0 &&
           a->dtype == b->dtype && a->sm == b->sm && a->template_name == b->template_name &&
           a->tile == b->tile && a->dim[SYM_D] == b->dim[SYM_D] && a->dim[SYM_D_V] == b->dim[SYM_D_V] &&
           a->dim[SYM_N] == b->dim[SYM_N];
}

void case_name(const struct test_case *c, char *out, size_t size)
{
    static const char *const LAYOUT[LAYOUT_COUNT] = {"compact", "swapped", "padded", "misaligned"};
    const int64_t *d = c->dim;
    int used = snprintf(out, size, "%s%s %s sm_%d", c->spec, c->pass == LATHE_BACKWARD ? " backward" : "",
                        lathe_dtype_text(c->dtype), c->sm);
    char *to = out + used;
    size -= (size_t)used;
    if (c->sizes)
        used = snprintf(to, size, " %s%s%s (%d left out)", c->sizes, c->dtypes ? "," : "",
                        c->dtypes ? c->dtypes : "", c->leading);
    else if (d[SYM_N] >= 0)
        used = snprintf(to, size, " rows=%" PRId64 "x%" PRId64 "x%" PRId64 " (%d leading) n=%" PRId64,
                        d[SYM_ROWS0], d[SYM_ROWS1], d[SYM_ROWS], c->leading, d[SYM_N]);
    else
        used = snprintf(to, size,
                        " b=%" PRId64 ",h=%" PRId64 ",h_kv=%" PRId64 ",q=%" PRId64 ",kv=%" PRId64
                        ",d=%" PRId64 ",d_v=%" PRId64,
                        d[SYM_B], d[SYM_H], d[SYM_H_KV], d[SYM_Q], d[SYM_KV], d[SYM_D], d[SYM_D_V]);
    to += used;
    size -= (size_t)used;
    if (c->has_q_start) {
        used = snprintf(to, size, " q_start=%d", c->q_start);
        to += used;
        size -= (size_t)used;
    }
    snprintf(to, size, " %s%s%s%s%s",
             c->blocks > 0      ? "hopper, few blocks, "
             : c->template_name ? "hopper "
                                : "",
             LAYOUT[c->layout], c->skewed ? " skewed" : "", c->infinite ? " -inf" : "",
             c->absent ? " absent" : "");
    if (c->tile)
        snprintf(to + strlen(to), size - strlen(to), " %s", c->tile);
    if (c->hollow)
        snprintf(to + strlen(to), size - strlen(to), " hollow");
    if (c->unwanted)
        snprintf(to + strlen(to), size - strlen(to), " without %u", c->unwanted);
    if (c->deterministic)
        snprintf(to + strlen(to), size - strlen(to), " deterministic");
    if (c->without && c->without[0])
        snprintf(to + strlen(to), size - strlen(to), " without%s", c->without);
    if (c->beside)
        snprintf(to + strlen(to), size - strlen(to), " %d beside", c->beside);
}

/* ---- attention ----------------------------------------------------------------------------------------- */

enum { SKEWED = 1, INFINITE = 2, ABSENT = 4, START = 8 };

struct shape {
    int b, h, h_kv, q, kv;
    enum layout layout;
    int flags;
    int q_start;
};

/* On and beside the edges of tiles; q > kv leaves rows without keys under a causal mask; kv = 0 leaves all of
 * them. */
static const struct shape SHAPES[] = {
    {2, 2, 1, 65, 65, LAYOUT_COMPACT, 0, 0},       {1, 4, 2, 130, 257, LAYOUT_PADDED, 0, 0},
    {1, 2, 2, 130, 63, LAYOUT_SWAPPED, 0, 0},      {2, 3, 1, 1, 127, LAYOUT_SWAPPED, ABSENT, 0},
    {1, 2, 1, 64, 130, LAYOUT_COMPACT, SKEWED, 0}, {1, 2, 1, 70, 140, LAYOUT_PADDED, INFINITE, 0},
    {1, 2, 1, 17, 0, LAYOUT_COMPACT, 0, 0},        {1, 2, 1, 0, 17, LAYOUT_COMPACT, 0, 0},
    {1, 1, 1, 63, 130, LAYOUT_PADDED, START, 20},  {1, 1, 1, 127, 64, LAYOUT_SWAPPED, START, -20},
    {2, 2, 1, 65, 66, LAYOUT_MISALIGNED, 0, 0},
};
static const struct shape MORE_SHAPES[] = {
    {1, 1, 1, 1, 1, LAYOUT_PADDED, 0, 0},          {1, 2, 1, 17, 17, LAYOUT_SWAPPED, 0, 0},
    {1, 2, 2, 257, 257, LAYOUT_COMPACT, 0, 0},     {2, 6, 3, 63, 64, LAYOUT_PADDED, ABSENT, 0},
    {1, 2, 1, 64, 63, LAYOUT_COMPACT, SKEWED, 0},  {1, 2, 1, 257, 1, LAYOUT_COMPACT, 0, 0},
    {1, 1, 1, 10, 100, LAYOUT_PADDED, START, 150}, {1, 1, 1, 130, 130, LAYOUT_COMPACT, START, 0},
    {0, 2, 1, 17, 17, LAYOUT_COMPACT, 0, 0},       {1, 2, 1, 128, 192, LAYOUT_SWAPPED, INFINITE, 0},
    {1, 1, 1, 129, 512, LAYOUT_COMPACT, 0, 0},
};

struct test_case case_of_attention(const char *group, const char *spec, const char *text, lathe_dtype dtype,
                                   int d, int d_v, int sm)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < SYM_COUNT; i++)
        c.dim[i] = i < SYM_FREE ? -1 : 40;
    c.group = group;
    c.spec = spec;
    c.text = text;
    c.dtype = dtype;
    c.sm = sm;
    c.dim[SYM_D] = d;
    c.dim[SYM_D_V] = d_v;
    return c;
}

static void add_shapes(struct case_list *list, struct test_case c, const struct shape *shape, int n)
{
    for (int i = 0; i < n; i++) {
        const struct shape *s = &shape[i];
        c.dim[SYM_B] = s->b;
        c.dim[SYM_H] = s->h;
        c.dim[SYM_H_KV] = s->h_kv;
        c.dim[SYM_Q] = s->q;
        c.dim[SYM_KV] = s->kv;
        c.layout = s->layout;
        c.skewed = (s->flags & SKEWED) != 0;
        c.infinite = (s->flags & INFINITE) != 0;
        c.absent = (s->flags & ABSENT) != 0;
        c.has_q_start = (s->flags & START) != 0;
        c.q_start = s->q_start;
        case_add(list, &c);
    }
}

static void add_attention(struct case_list *list, const struct test_case *c, bool full)
{
    add_shapes(list, *c, SHAPES, COUNT(SHAPES));
    if (full)
        add_shapes(list, *c, MORE_SHAPES, COUNT(MORE_SHAPES));
}

static void group_specs(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"full",      "causal",   "alibi",     "sliding_window",
                                       "prefix_lm", "document", "softcap",   "relative_bias",
                                       "sigmoid",   "relu",     "retention", "softmax_one",
                                       "sinks",     "rope",     "qk_norm"};
    for (int i = 0; i < COUNT(SPEC); i++) {
        for (int wide = 0; wide < 2; wide++) {
            if (!full && wide != i % 2)
                continue;
            const int d = wide ? 128 : 64;
            const struct test_case bf16 =
                case_of_attention("specs", SPEC[i], NULL, LATHE_BF16, d, d, i % 3 == 0 ? 80 : 90);
            const struct test_case f16 = case_of_attention("specs", SPEC[i], NULL, LATHE_F16, d, d, 90);
            add_attention(list, &bf16, full);
            if (full || i % 4 == 1)
                add_attention(list, &f16, full);
        }
    }
}

static void group_inline(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(MOD_SPECS); i++) {
        const struct inline_spec *s = &MOD_SPECS[i];
        const struct test_case c = case_of_attention("mods", s->name, s->text, i % 2 ? LATHE_F16 : LATHE_BF16,
                                                     64, i % 2 ? 64 : 40, 90);
        const struct test_case odd =
            case_of_attention("mods", s->name, s->text, i % 2 ? LATHE_BF16 : LATHE_F16, 72, 96, 80);
        add_attention(list, &c, full);
        if (full)
            add_attention(list, &odd, full);
    }
    for (int i = 0; i < COUNT(DATA_SPECS); i++) {
        const struct inline_spec *s = &DATA_SPECS[i];
        const struct test_case c =
            case_of_attention("data", s->name, s->text, i % 2 ? LATHE_F16 : LATHE_BF16, 64, 64, 90);
        add_attention(list, &c, full);
    }
}

/* Each dim has its own swizzle, tile and ring; those of sm_86 are the small ones. */
static void group_dims(struct case_list *list, bool full)
{
    static const int DIMS[][3] = {{16, 16, 80},   {24, 24, 80},   {40, 40, 80},   {72, 72, 80},
                                  {96, 96, 80},   {128, 128, 86}, {160, 160, 80}, {192, 192, 90},
                                  {256, 256, 90}, {256, 256, 86}, {192, 128, 80}, {128, 256, 80},
                                  {64, 256, 86},  {64, 512, 90},  {8, 8, 90},     {264, 264, 80}};
    static const struct shape FEW[] = {{1, 2, 1, 65, 130, LAYOUT_COMPACT, 0, 0},
                                       {1, 2, 1, 130, 127, LAYOUT_PADDED, 0, 0},
                                       {1, 1, 1, 17, 257, LAYOUT_SWAPPED, SKEWED, 0}};
    for (int i = 0; i < COUNT(DIMS); i++) {
        for (int sm = 80; sm <= 90; sm++) {
            if (sm != 80 && sm != 86 && sm != 90)
                continue;
            if (!full && sm != DIMS[i][2])
                continue;
            struct test_case c = case_of_attention("dims", "causal", NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                                   DIMS[i][0], DIMS[i][1], sm);
            c.may_refuse = DIMS[i][0] < 16 || DIMS[i][0] > 256 || DIMS[i][1] > 256;
            add_shapes(list, c, FEW, COUNT(FEW));
            if (full)
                add_shapes(list, c, MORE_SHAPES, COUNT(MORE_SHAPES));
        }
    }
}

/* ---- attention_fwd_sm90 ----------------------------------------------------------------------------- */

static const char HOPPER[] = "attention_fwd_sm90";

static void group_hopper(struct case_list *list, bool full)
{
    static const char *const SPEC[] = {"causal",   "full",          "alibi",   "sliding_window",
                                       "document", "relative_bias", "sigmoid", "retention",
                                       "softcap",  "prefix_lm",     "relu",    "softmax_one",
                                       "sinks",    "rope",          "qk_norm"};
    static const int DIMS[][2] = {{64, 64},   {96, 96},   {192, 192}, {256, 256}, {192, 128},
                                  {128, 256}, {64, 256},  {72, 40},   {24, 80},   {128, 128},
                                  {64, 512},  {128, 320}, {200, 264}};
    static const struct shape FEW[] = {{1, 2, 1, 65, 130, LAYOUT_COMPACT, 0, 0},
                                       {1, 2, 1, 130, 257, LAYOUT_PADDED, 0, 0},
                                       {1, 1, 1, 17, 530, LAYOUT_SWAPPED, SKEWED, 0},
                                       {1, 1, 1, 140, 63, LAYOUT_COMPACT, 0, 0},
                                       {1, 1, 1, 450, 450, LAYOUT_COMPACT, 0, 0}};
    /* rows of tiles that specs like these do not get by themselves */
    static const struct {
        const char *spec, *tile;
        int d, d_v;
    } TILES[] = {{"causal", "256x64s4w16", 64, 64},        {"full", "192x128s3w12", 64, 64},
                 {"sliding_window", "128x96s3w8", 64, 64}, {"causal", "128x128s2w8", 96, 96},
                 {"causal", "128x128s2w8", 128, 128},      {"relative_bias", "192x80s3w12", 128, 128},
                 {"causal", "192x64s3w12", 128, 128},      {"full", "128x96s2w8", 128, 128},
                 {"causal", "128x80s2w8", 192, 128},       {"full", "128x80s2w8", 192, 192},
                 {"causal", "128x64s2w8", 128, 256},       {"causal", "128x48s2w8", 256, 256},
                 {"full", "64x48s2w8", 128, 512}};
    /* query heads of a key head in one tile: groups that divide 64 and others, up to more than fit */
    static const char *const PACKED_SPEC[] = {"causal", "full",        "sliding_window",
                                              "rope",   "softmax_one", "sigmoid"};
    static const struct shape PACKED[] = {
        {2, 8, 2, 1, 100, LAYOUT_SWAPPED, 0, 0},       {1, 6, 2, 25, 90, LAYOUT_PADDED, 0, 0},
        {2, 7, 1, 40, 200, LAYOUT_COMPACT, SKEWED, 0}, {1, 64, 1, 2, 66, LAYOUT_SWAPPED, START, 30},
        {1, 80, 1, 3, 40, LAYOUT_COMPACT, 0, 0},       {1, 4, 2, 65, 65, LAYOUT_MISALIGNED, 0, 0}};
    for (int i = 0; i < COUNT(SPEC); i++) {
        const int d = i % 3 == 0 ? 128 : 64;
        struct test_case c =
            case_of_attention("hopper", SPEC[i], NULL, i % 2 ? LATHE_F16 : LATHE_BF16, d, d, 90);
        c.template_name = HOPPER;
        c.blocks = i % 3 == 1 ? 0 : 3;
        if (full || i < 9)
            add_attention(list, &c, full);
        else
            add_shapes(list, c, FEW, COUNT(FEW));
    }
    for (int i = 0; i < COUNT(DIMS); i++) {
        struct test_case c = case_of_attention("hopper", "causal", NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                               DIMS[i][0], DIMS[i][1], 90);
        c.template_name = HOPPER;
        c.blocks = 1;
        add_shapes(list, c, FEW, full ? COUNT(FEW) : 2);
    }
    for (int i = 0; i < COUNT(TILES); i++) {
        struct test_case c = case_of_attention("hopper", TILES[i].spec, NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                               TILES[i].d, TILES[i].d_v, 90);
        c.template_name = HOPPER;
        c.tile = TILES[i].tile;
        c.blocks = 2;
        add_shapes(list, c, FEW, full ? COUNT(FEW) : 3);
    }
    for (int i = 0; i < COUNT(PACKED_SPEC); i++) {
        struct test_case c = case_of_attention("hopper", PACKED_SPEC[i], NULL, i % 2 ? LATHE_F16 : LATHE_BF16,
                                               i == 1 ? 96 : 64, 64, 90);
        c.template_name = HOPPER;
        c.blocks = i;
        add_shapes(list, c, PACKED, COUNT(PACKED));
    }
    for (int i = 0; i < COUNT(MOD_SPECS); i++) {
        struct test_case c =
            case_of_attention("hopper", MOD_SPECS[i].name, MOD_SPECS[i].text, LATHE_BF16, 64, 64, 90);
        c.template_name = HOPPER;
        add_shapes(list, c, FEW, full ? COUNT(FEW) : 2);
    }
    for (int i = 0; i < COUNT(DATA_SPECS); i++) {
        struct test_case c =
            case_of_attention("hopper", DATA_SPECS[i].name, DATA_SPECS[i].text, LATHE_F16, 64, 64, 90);
        c.template_name = HOPPER;
        add_shapes(list, c, FEW, COUNT(FEW));
    }
}

/* ---- rows whose maximum moves ------------------------------------------------------------------------- */

/* By less and by more than what a row may keep, in steps and at once; from -inf, and from mask values. */
static const struct inline_spec ROW_SPECS[] = {
    {"growing", "return attention { score_mod = function(s, at) return s + 0.2 * at.kv end }\n"},
    {"steep",
     "return attention { mask_mod = causal, score_mod = function(s, at) return s + 1.5 * at.kv end }\n"},
    {"falling", "return attention { score_mod = function(s, at) return s - 0.3 * at.kv end }\n"},
    {"jumping",
     "return attention { score_mod = function(s, at)\n"
     "  return s + where(eq(at.kv, 97 + at.row % 400), 300.0, 0.0) + where(eq(at.kv, 40), 70.0, 0.0)\n"
     "end }\n"},
    {"late", "return attention { score_mod = function(s, at) return where(gt(at.kv, 2 * at.row + 60), s, "
             "-inf) end }\n"},
    {"masked_late", "return attention { score_mod = function(s, at)\n"
                    "  return s + where(gt(at.kv, 2 * at.row + 60), 0.0, -1e30)\n"
                    "end }\n"},
    /* what is added to a score is so large that nothing is left of it: the same in every tile */
    {"lost_in_rows", "return attention { inputs = { row = tensor('float', 'b', 'q') }, score_mod = "
                     "function(s, at, x)\n"
                     "  return s + where(lt(x.row(at.b, at.row), 9.0), -1e30, 0.0)\n"
                     "end }\n"},
    {"lost_in_columns", "return attention { inputs = { column = tensor('float', 'h', 'kv') }, score_mod = "
                        "function(s, at, x)\n"
                        "  return s + where(lt(x.column(at.h, at.kv), 9.0), -1e30, 0.0)\n"
                        "end }\n"},
    {"lost", "return attention { inputs = { big = scalar('f32') }, score_mod = function(s, at, x) return s - "
             "exp(x.big + 60.0) end }\n"},
    {"bounded", "return attention { score_mod = function(s) return 3.0 * tanh(s) + 4.0 end }\n"},
    {"capped",
     "return attention { mask_mod = causal, score_mod = function(s) return clamp(s, -40.0, 40.0) end }\n"},
    {"logistic_twice", /* a later pass reduces the weight, a logistic */
     "return attention { mask_mod = causal, online_func = online_func {\n"
     "  online_rowscales = { l = 0.0 },\n"
     "  online_fwd = function(s, r)\n"
     "    local w = sigmoid(s)\n"
     "    local c = max(rowmax(w), 1e-30)\n"
     "    return w, { l = r.l + rowsum(w / c) * c }, 1.0\n"
     "  end,\n"
     "  online_fwd_epilogue = function(r) return 1.0 / (1.0 + r.l), { l = r.l } end,\n"
     "  forward = function(s, final) return sigmoid(s) / (1.0 + final.l) end } }\n"},
    {"squares", /* a sum of squares beside, which is not lazy in every step */
     "return attention { online_func = online_func {\n"
     "  online_rowscales = { m = -inf, l = 0.0, l2 = 0.0 },\n"
     "  online_fwd = function(s, r)\n"
     "    local m = max(r.m, detach(rowmax(s)))\n"
     "    local a = exp(r.m - m)\n"
     "    local p = exp(s - m)\n"
     "    return p, { m = m, l = r.l * a + rowsum(p), l2 = r.l2 * a * a + rowsum(p * p) }, a\n"
     "  end,\n"
     "  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l), n = r.l * r.l / r.l2 } "
     "end,\n"
     "  forward = function(s, final) return exp(s - final.lse) end } }\n"},
};

static void group_maxima(struct case_list *list, bool full)
{
    static const struct shape FEW[] = {{1, 2, 1, 65, 700, LAYOUT_COMPACT, 0, 0},
                                       {1, 1, 1, 130, 530, LAYOUT_PADDED, SKEWED, 0},
                                       {1, 1, 1, 70, 531, LAYOUT_COMPACT, INFINITE, 0}};
    for (int i = 0; i < COUNT(ROW_SPECS) + 1; i++) {
        const char *name = i < COUNT(ROW_SPECS) ? ROW_SPECS[i].name : "full";
        const char *text = i < COUNT(ROW_SPECS) ? ROW_SPECS[i].text : NULL;
        for (int wide = 0; wide < 2; wide++) {
            for (int hopper = 0; hopper < 2; hopper++) {
                const bool bf16 = (i + wide) % 2 == 0;
                struct test_case c = case_of_attention("maxima", name, text, bf16 ? LATHE_BF16 : LATHE_F16,
                                                       wide ? 128 : 64, wide ? 128 : 64, 90);
                c.template_name = hopper ? HOPPER : NULL;
                if (full || hopper || wide)
                    add_shapes(list, c, FEW, COUNT(FEW));
            }
        }
    }
}

bool cases_make(struct case_list *list, bool full)
{
    memset(list, 0, sizeof *list);
    group_specs(list, full);
    group_inline(list, full);
    group_dims(list, full);
    group_hopper(list, full);
    group_maxima(list, full);
    group_rows(list, full);
    group_clusters(list, full);
    group_beside(list, full);
    group_pairs(list, full);
    group_elementwise(list, full);
    group_rows_beside(list);
    group_deterministic_maps(list);
    group_hollow(list);
    group_backward(list, full);
    return list->capacity > 0;
}
