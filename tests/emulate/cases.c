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

/* Pairs of the first elements: in one vector of a row and across vectors, after stages on all of it, with
   reductions over the pairs and gradients by pair. */
const char PARTIAL_ROTARY[] =
    "local function turn(lo, hi, at, x)\n"
    "  local t = at.pos * (exp2(-0.5 * at.i) + 0.02 * x.turn(at.i))\n"
    "  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)\n"
    "end\n"
    "local function level(lo, hi) local n = rsqrt(dimsum(lo * lo + hi * hi) + 1.0) return lo * n, hi * (n + "
    "0.5) end\n"
    "return attention { inputs = { turn = tensor('f32', 256, { grad = true }) }, mask_mod = causal,\n"
    "  query_mod = chain(half(turn, 20), function(v) return v + 0.1 * v * v end, half(turn)),\n"
    "  key_mod = chain(interleaved(turn, 44), half(level, 32)),\n"
    "  value_mod = half(level, 8), output_mod = chain(interleaved(level, 10), half(turn, 36)) }\n";

static const struct inline_spec MOD_SPECS[] = {
    {"partial_rotary", PARTIAL_ROTARY},
    {"values", SPEC_values},
    {"outputs", SPEC_outputs},
    {"mods", SPEC_mods},
    {"stages", SPEC_stages},
};

const char DISTANCES[] =
    "return attention { inputs = { slope = tensor('f32', 'h', { grad = true }) }, mask_mod = causal,\n"
    "  score_mod = function(s, at, x)\n"
    "    local d = f32(abs(at.q - at.kv))\n"
    "    return 0.1 * x.slope(at.h) * (2.0 + d) ^ 0.3 - (0.3 * log(1.0 + d) - s)\n"
    "  end }\n";

/* Integers that wrap around, by pair, by row and by column, and bits of them. */
const char HASHES[] = "local function hash(a)\n"
                      "  a = (a ~ a >> 16) * 0x7feb352d\n"
                      "  a = (a ~ a >> 15) * i32(0x846ca68b)\n"
                      "  return a ~ a >> 16\n"
                      "end\n"
                      "return attention {\n"
                      "  mask_mod = function(at) return ne(hash(at.q * 65537 ~ at.kv * 40503 ~ at.h << 28) & "
                      "7, 0) ~ (eq(at.kv >> 4, "
                      "3) & gt(at.q, 5)) end,\n"
                      "  score_mod = function(s, at)\n"
                      "    local row, key = hash(at.q), hash(at.kv)\n"
                      "    return s + f32((row ~ key) & 255) / 128.0 - f32((row - key) >> 24) / 256.0 + 0.1 "
                      "* ((~row + key | 1) * 3 % "
                      "5) + random(row, at.b, at.h, key, at.kv)\n"
                      "  end }\n";

static const struct inline_spec DATA_SPECS[] = {
    {"distances", DISTANCES},
    {"hashes", HASHES},
    {"pair_bias", SPEC_pair_bias},
    {"blocks", SPEC_blocks},
    {"own_sizes", SPEC_own_sizes /* of dims that inputs name for themselves, in the mask, its bounds, the score and a mod */},
    {"far_keys", SPEC_far_keys},
    {"mask_values", SPEC_mask_values /* finite ones, in the data */},
    {"sink_window", SPEC_sink_window /* tiles in the middle that only some warpgroups of sm_90 need, and tables of diagonals */},
    {"open_ends", SPEC_open_ends /* the ends of rows of one tile that are added up wrongly are beyond 2^31 */},
    {"stripes", SPEC_stripes},
    {"kinds", SPEC_kinds},
    {"distance", SPEC_distance},
    {"bare", SPEC_bare /* no guard against -inf - -inf: rows without a live pair in a tile, or at all, are the kernel's
                affair */},
    {"logistic_sums", SPEC_logistic_sums /* weights that leave their pass as the exponent of a logistic function, and reductions
                         that follow from them: in the same pass, or in one behind it, where they may not */},
    {"logistic_passes", SPEC_logistic_passes},
    {"mean_abs", SPEC_mean_abs},
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
           a->tile == b->tile && a->dtypes == b->dtypes && a->dim[SYM_D] == b->dim[SYM_D] &&
           a->dim[SYM_D_V] == b->dim[SYM_D_V] && a->dim[SYM_N] == b->dim[SYM_N];
}

void case_name(const struct test_case *c, char *out, size_t size)
{
    static const char *const LAYOUT[LAYOUT_COUNT] = {"compact", "swapped", "padded", "misaligned", "spread"};
    const int64_t *d = c->dim;
    static const char *const PASS[] = {"", " backward", " combine"};
    int used =
        snprintf(out, size, "%s%s %s sm_%d", c->spec, PASS[c->pass], lathe_dtype_text(c->dtype), c->sm);
    char *to = out + used;
    size -= (size_t)used;
    if (c->sizes)
        used = snprintf(to, size, " %s%s%s (%d left out)", c->sizes, c->dtypes ? "," : "",
                        c->dtypes ? c->dtypes : "", c->leading);
    else if (d[SYM_N] >= 0)
        used = snprintf(to, size, " rows=%" PRId64 "x%" PRId64 "x%" PRId64 " (%d leading) n=%" PRId64,
                        d[SYM_ROWS0], d[SYM_ROWS1], d[SYM_ROWS], c->leading, d[SYM_N]);
    else if (d[SYM_T] >= 0)
        used = snprintf(to, size,
                        " b=%" PRId64 ",h=%" PRId64 ",h_k=%" PRId64 ",t=%" PRId64 ",seqs=%" PRId64
                        ",d=%" PRId64 ",d_v=%" PRId64,
                        d[SYM_B], d[SYM_H], d[SYM_H_K], d[SYM_T], d[SYM_SEQS], d[SYM_D], d[SYM_D_V]);
    else
        used = snprintf(to, size,
                        " b=%" PRId64 ",h=%" PRId64 ",h_kv=%" PRId64 ",q=%" PRId64 ",kv=%" PRId64
                        ",d=%" PRId64 ",d_v=%" PRId64,
                        d[SYM_B], d[SYM_H], d[SYM_H_KV], d[SYM_Q], d[SYM_KV], d[SYM_D], d[SYM_D_V]);
    to += used;
    size -= (size_t)used;
    used = c->dtypes && !c->sizes ? snprintf(to, size, " %s", c->dtypes) : 0;
    to += used;
    size -= (size_t)used;
    if (c->has_q_start) {
        used = snprintf(to, size, " q_start=%d", c->q_start);
        to += used;
        size -= (size_t)used;
    }
    if (d[SYM_ALL_KV] >= 0 || d[SYM_ALL_H] >= 0) {
        used = snprintf(to, size, " keys from %d of %" PRId64 ", heads from %d of %" PRId64, c->kv_start,
                        d[SYM_ALL_KV], c->h_start, d[SYM_ALL_H]);
        to += used;
        size -= (size_t)used;
    }
    if (c->kv_chunk > 0) {
        used = snprintf(to, size, " in chunks of %d every %d", c->kv_chunk, c->kv_step);
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
    if (c->loud > 0)
        snprintf(to + strlen(to), size - strlen(to), " loud %g", c->loud);
    if (c->hollow)
        snprintf(to + strlen(to), size - strlen(to), " hollow");
    if (c->unwanted)
        snprintf(to + strlen(to), size - strlen(to), " without %u", c->unwanted);
    if (c->deterministic)
        snprintf(to + strlen(to), size - strlen(to), " deterministic");
    if (c->without && c->without[0])
        snprintf(to + strlen(to), size - strlen(to), " without%s", c->without);
    if (c->with)
        snprintf(to + strlen(to), size - strlen(to), " with%s", c->with);
    if (c->ends)
        snprintf(to + strlen(to), size - strlen(to), " up to %" PRId64, c->ends);
    if (c->beside)
        snprintf(to + strlen(to), size - strlen(to), " %d beside", c->beside);
    if (c->in_place)
        snprintf(to + strlen(to), size - strlen(to), " in place");
    if (c->parts)
        snprintf(to + strlen(to), size - strlen(to), " as parts");
    if (c->pass == LATHE_COMBINE)
        snprintf(to + strlen(to), size - strlen(to), " of %" PRId64 " parts", d[SYM_PARTS]);
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

void case_shape(struct test_case *c, int b, int h, int h_kv, int q, int kv)
{
    c->dim[SYM_B] = b;
    c->dim[SYM_H] = h;
    c->dim[SYM_H_KV] = h_kv;
    c->dim[SYM_Q] = q;
    c->dim[SYM_KV] = kv;
}

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
        case_shape(&c, s->b, s->h, s->h_kv, s->q, s->kv);
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
    static const char *const SPEC[] = {"full",         "causal",     "alibi",          "sliding_window",
                                       "prefix_lm",    "document",   "softcap",        "relative_bias",
                                       "sigmoid",      "relu",       "retention",      "softmax_one",
                                       "sinks",        "rope",       "qk_norm",        "dropout",
                                       "rope_partial", "block_mask", "nsa_compressed", "nsa_selected"};
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
    static const char *const SPEC[] = {
        "causal",    "full",    "alibi",      "sliding_window", "document",    "relative_bias", "sigmoid",
        "retention", "softcap", "prefix_lm",  "relu",           "softmax_one", "sinks",         "rope",
        "qk_norm",   "dropout", "block_mask", "nsa_compressed", "nsa_selected"};
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
                 {"full", "64x48s2w8", 128, 512},          {"causal", "64x128s2w4", 128, 128},
                 {"full", "64x128s4w4", 64, 64},           {"softcap", "128x128s3w8", 64, 64}};
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
    {"growing", SPEC_growing},
    {"steep", SPEC_steep},
    {"falling", SPEC_falling},
    {"jumping", SPEC_jumping},
    {"late", SPEC_late},
    {"masked_late", SPEC_masked_late},
    /* what is added to a score is so large that nothing is left of it: the same in every tile */
    {"lost_in_rows", SPEC_lost_in_rows},
    {"lost_in_columns", SPEC_lost_in_columns},
    {"lost", SPEC_lost},
    {"bounded", SPEC_bounded},
    {"capped", SPEC_capped},
    {"logistic_twice", SPEC_logistic_twice /* a later pass reduces the weight, a logistic */},
    {"squares", SPEC_squares /* a sum of squares beside, which is not lazy in every step */},
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

/* ---- jobs -----------------------------------------------------------------------------------------------
 */

static int compare_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "");
}

/* Cases of a job come to lie side by side, in the order in which they were made. */
static int compare_jobs(const void *left, const void *right)
{
    const struct test_case *a = left;
    const struct test_case *b = right;
    const int64_t number[][2] = {{a->pass, b->pass},
                                 {a->dtype, b->dtype},
                                 {a->sm, b->sm},
                                 {a->dim[SYM_D], b->dim[SYM_D]},
                                 {a->dim[SYM_D_V], b->dim[SYM_D_V]},
                                 {a->dim[SYM_N], b->dim[SYM_N]}};
    int order = strcmp(a->group, b->group);
    if (order == 0)
        order = strcmp(a->spec, b->spec);
    for (int i = 0; i < COUNT(number) && order == 0; i++)
        order = (number[i][0] > number[i][1]) - (number[i][0] < number[i][1]);
    if (order == 0)
        order = compare_text(a->template_name, b->template_name);
    if (order == 0)
        order = compare_text(a->tile, b->tile);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

static void sort_by_job(struct case_list *list)
{
    for (int i = 0; i < list->n; i++)
        list->item[i].place = i;
    qsort(list->item, (size_t)list->n, sizeof *list->item, compare_jobs);
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
    group_masks(list, full);
    group_scores(list, full);
    group_given(list);
    group_linear(list, full);
    group_served(list);
    group_rules(list);
    group_sequences(list, full);
    group_pages(list, full);
    group_pages_back(list, full);
    group_decode(list, full);
    group_narrow(list);
    group_fp8(list);
    group_gathered(list);
    group_batch(list, full);
    group_f32(list, full);
    group_mla(list, full);
    group_selected(list, full);
    group_row_parts(list);
    group_shards(list);
    group_elementwise(list, full);
    group_rows_beside(list);
    group_deterministic_maps(list);
    group_hollow(list);
    group_backward(list, full);
    group_f32_backward(list, full);
    group_positions(list, full);
    group_variants(list, full);
    sort_by_job(list);
    return list->capacity > 0;
}
