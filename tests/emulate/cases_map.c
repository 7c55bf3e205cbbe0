/*
 * cases_map.c: the matrix of elementwise: shipped specs and this test's own, forward and backward. In: the
 * default or the full run. Out: cases at the end of the list.
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

int64_t named_size(const char *sizes, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = sizes; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return strtoll(at + length + 1, NULL, 10);
    }
    return -1;
}

/* Sums of every form: over the rows, the last dim, all of it, of pairs, beside the loop; scatters; operands
 * that lack dims. */
static const char SUMS[] =
    "return elementwise {\n"
    "  over = { 'b', 'rows', 'n' },\n"
    "  inputs = { slope = scalar('f32', { grad = true }), table = tensor('float', 'b', 'n', { grad = true "
    "}),\n"
    "    pick = tensor('f32', 'width', 2, { grad = true }), id = tensor('i32', 'b', 'rows') },\n"
    "  operands = { x = tensor('float'), bias = tensor('float', 'n'), row = tensor('float', 'b', 'rows'),\n"
    "    pair = tensor('float', 'rows', half('n')), turned = tensor('float', 'n', 'b'), near = "
    "tensor('float', interleaved('n')),\n"
    "    idle = tensor('float'), aside = tensor('float', 'b', 'rows'), spare = tensor('float', 'rows', "
    "half('n')) },\n"
    "  results = { y = tensor('float'), total = tensor('f32', 'b'), z = tensor('float', 'n', 'rows', 'b') "
    "},\n"
    "  forward = function(v, at, x)\n"
    "    local s = silu(v.x * x.slope + v.bias) * v.row + v.pair.lo * v.near.hi - v.pair.hi * v.near.lo * "
    "v.turned\n"
    "    local t = x.table(at.b, at.n) * x.pick(x.id(at.b, at.rows), 1) + x.pick(at.n % 7, 0)\n"
    "    return { y = s + t, total = v.x * t, z = s * t + 9.0 }\n"
    "  end }\n";
/* A scale for each token, a shift for each feature, of one dim; an operand that may be left out. */
static const char LINE[] =
    "return elementwise { over = { 'n' },\n"
    "  inputs = { slope = scalar('f32', { grad = true }) },\n"
    "  operands = { x = tensor('float'), shift = tensor('f32', { optional = true }) },\n"
    "  results = { y = tensor('float', { alias = 'x' }), square = tensor('f32', {}) },\n"
    "  forward = function(v, at, x)\n"
    "    local s = tanh(v.x * x.slope) + v.shift + 0.001 * at.n\n"
    "    return { y = s, square = s * s }\n"
    "  end }\n";

/* A number for each point, by its place. */
static const char NOISE[] =
    "return elementwise { over = { 'rows', 'n' }, inputs = { seed = scalar('i32') },\n"
    "  operands = { x = tensor('float') }, results = { y = tensor('float') },\n"
    "  forward = function(v, at, x)\n"
    "    local u = random(x.seed, 0, 1, at.rows * 0x7feb352d, at.n)\n"
    "    return where(ge(u, 0.25), v.x / 0.75, 0.0) + 0.01 * (at.n << 3 & 63)\n"
    "  end }\n";

/* Nothing but sums: in f32 they are as exact as stored results. */
static const char TOTALS[] = "return elementwise { over = { 'rows', 'n' },\n"
                             "  operands = { x = tensor('float') },\n"
                             "  results = { total = tensor('float', 'rows') },\n"
                             "  forward = function(v, at, x) return { total = tanh(v.x) } end }\n";

/* Rows of a table by their numbers, and a second one that is turned. */
static const char EMBEDDING[] =
    "return elementwise { over = { 'b', 't', 'd' },\n"
    "  inputs = { table = tensor('float', 'words', 'd', { grad = true }), id = tensor('i32', 'b', 't'),\n"
    "    place = tensor('f32', 't', 'd', { grad = true }), level = tensor('float', 'd', 'b', { grad = true "
    "}) },\n"
    "  results = { y = tensor('float') },\n"
    "  forward = function(v, at, x)\n"
    "    return x.table(x.id(at.b, at.t), at.d) * x.place(at.t, at.d) + x.level(at.d, at.b)\n"
    "  end }\n";

/* A table of three dims, in f32 or not, of which a point takes one row in its own position and scale. */
static const char ROWS_OF_ROWS[] = "return elementwise { over = { 'b', 't', 'd' },\n"
                                   "  inputs = { table = tensor('float', 'words', 'heads', 'd', { grad = "
                                   "true }), id = tensor('i32', 'b', 't') },\n"
                                   "  operands = { x = tensor('float', 't', 'd') },\n"
                                   "  results = { y = tensor('float') },\n"
                                   "  forward = function(v, at, x) return tanh(v.x) * at.t * "
                                   "x.table(x.id(at.b, at.t), at.t % 2, at.d) end }\n";

/* A scalar that two maps read, and an input that no gradient reads. */
static const char TWO_MAPS[] = "return rotary(half, { base = scalar('f32', { grad = true }), idle = "
                               "tensor('f32', 'b', { grad = true }) },\n"
                               "  function(at, x)\n"
                               "    local t = at.t * exp2(-log2(x.base) * at.i / at.n_i)\n"
                               "    return cos(t), sin(t)\n"
                               "  end)\n";

/* Beyond the angles of which the nearest multiple of 2 pi is told: the sign of x - 2 n pi has to be right. */
static const char ANGLES[] =
    "return elementwise { over = { 'n' },\n"
    "  results = { low = tensor('f32'), high = tensor('f32'), turned = tensor('f32') },\n"
    "  forward = function(v, at, x)\n"
    "    return { low = sin(2.0 * at.n - 30000000.0), high = sin(2.0 * at.n + 30000000.0),\n"
    "             turned = cos(2.0 * at.n - 30000000.0) }\n"
    "  end }\n";

/* Lists of a dtype of their own, integers among them, read and written. */
static const char LIST[] =
    "return elementwise { list = true, over = { 'n' }, inputs = { lr = scalar('f32') },\n"
    "  operands = { p = tensor('float'), id = tensor('i32'), on = tensor('u8'), z = tensor('f16') },\n"
    "  results = { pn = tensor('float', { alias = 'p' }), count = tensor('i32') },\n"
    "  forward = function(v, at, x)\n"
    "    return { pn = v.p - x.lr * (v.id % 7) * v.z, count = v.id // 3 + v.on }\n"
    "  end }\n";

/* Operands of 16 bits that the spec fixes, beside an open one. */
static const char NARROW[] =
    "return elementwise { over = { 'rows', 'n' },\n"
    "  operands = { x = tensor('float'), z = tensor('f16', 'n'), zb = tensor('bf16') },\n"
    "  results = { y = tensor('float') },\n"
    "  forward = function(v) return tanh(v.x) * v.z + v.zb end }\n";

/* The size of a dim that an input names for itself, and that of a dim of another map. */
static const char OWN_SIZES[] =
    "return elementwise { inputs = { table = tensor('f32', 'words', { grad = true }) },\n"
    "  { over = { 'b', 't' }, operands = { v = tensor('float') }, results = { y = tensor('float') },\n"
    "    forward = function(v, at, x) return v.v * x.table((at.b * 31 + at.t) % at.n_words) end },\n"
    "  { over = { 'b', 'n' }, operands = { w = tensor('float') }, results = { z = tensor('float') },\n"
    "    forward = function(v, at, x) return v.w * (0.1 * at.n_t + at.n_n + at.n_words) end } }\n";

struct map_case {
    const char *spec;
    const char *text;
    const char *sizes;
    int leading;
    enum layout layout;
    bool absent;
    bool grads; /* backward too */
    const char *dtypes;
    bool dithered;
};

static const struct map_case MAPS[] = {
    {"act_silu", NULL, "a=1,b=1,rows=1,n=1", 3, LAYOUT_COMPACT, false, true, NULL, false},
    {"act_silu", NULL, "a=2,b=3,rows=5,n=33", 0, LAYOUT_COMPACT, true, true, NULL, false},
    {"act_silu", NULL, "a=2,b=2,rows=7,n=40", 0, LAYOUT_SWAPPED, false, true, NULL, false},
    {"act_silu", NULL, "a=1,b=2,rows=7,n=37", 1, LAYOUT_PADDED, true, true, NULL, false},
    {"act_silu", NULL, "a=1,b=2,rows=9,n=31", 1, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"act_silu", NULL, "a=1,b=1,rows=1,n=20011", 3, LAYOUT_COMPACT, false, true, NULL, false},
    {"act_gelu", NULL, "a=1,b=1,rows=3,n=257", 2, LAYOUT_COMPACT, false, true, NULL, false},
    {"act_relu", NULL, "a=1,b=1,rows=3,n=255", 2, LAYOUT_COMPACT, false, true, NULL, false},
    {"act_sigmoid", NULL, "a=1,b=1,rows=0,n=5", 2, LAYOUT_COMPACT, false, true, NULL, false},
    {"act_none", NULL, "a=1,b=1,rows=2,n=1025", 2, LAYOUT_MISALIGNED, true, true, NULL, false},
    {"swiglu", NULL, "a=1,b=2,rows=5,n=264", 1, LAYOUT_COMPACT, false, true, NULL, false},
    {"swiglu", NULL, "a=1,b=2,rows=5,n=36", 1, LAYOUT_PADDED, false, true, NULL, false},
    {"geglu", NULL, "a=1,b=1,rows=5,n=33", 2, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"rope_half", NULL, "b=2,t=5,h=3,h_kv=1,i=16", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"rope_half", NULL, "b=1,t=9,h=2,h_kv=4,i=17", 0, LAYOUT_PADDED, true, true, NULL, false},
    {"rope_half", NULL, "b=2,t=5,h=3,h_kv=0,i=24", 0, LAYOUT_SWAPPED, true, true, NULL, false},
    {"rope_interleaved", NULL, "b=2,t=5,h=3,h_kv=2,i=16", 0, LAYOUT_SWAPPED, true, true, NULL, false},
    {"rope_interleaved", NULL, "b=1,t=5,h=3,h_kv=2,i=33", 0, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"rope_table", NULL, "b=2,t=5,h=3,h_kv=2,i=32", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"lrpe", NULL, "b=2,h=3,n=37,d=16", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"lrpe_silu", NULL, "b=1,h=3,n=37,d=33", 0, LAYOUT_PADDED, true, true, NULL, false},
    {"lrpe_relu", NULL, "b=1,h=2,n=5,d=64", 0, LAYOUT_SWAPPED, false, true, NULL, false},
    {"lrpe_softmax_d", NULL, "b=1,h=2,n=21,d=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"lrpe_softmax_n", NULL, "b=1,h=2,n=21,d=33", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"md_lrpe_1d", NULL, "b=1,h=2,n=21,d=64,e_dim=64", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"md_lrpe_2d", NULL, "b=2,h=2,n=17,d=33,e_dim=17", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"md_lrpe_3d", NULL, "b=1,h=2,n=40,d=64,e_dim=22", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"sums", SUMS, "b=2,rows=70,n=16,width=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"sums", SUMS, "b=1,rows=18,n=512,width=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"sums", SUMS, "b=1,rows=33,n=45,width=40", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"sums", SUMS, "b=3,rows=5,n=11,width=40", 0, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"totals", TOTALS, "rows=40,n=3", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding", EMBEDDING, "b=2,t=9,d=40,words=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding", EMBEDDING, "b=2,t=9,d=33,words=40", 0, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"embedding", EMBEDDING, "b=3,t=5,d=41,words=40", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"two_maps", TWO_MAPS, "b=3,t=9,h=3,h_kv=2,i=24", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"own_sizes", OWN_SIZES, "b=2,t=9,n=33,words=7", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"noise", NOISE, "rows=7,n=203", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"noise", NOISE, "rows=5,n=64", 0, LAYOUT_MISALIGNED, true, true, NULL, false},
    {"line", LINE, "n=10007", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"line", LINE, "n=33", 0, LAYOUT_MISALIGNED, true, true, NULL, false},
    {"line", LINE, "n=4096", 0, LAYOUT_COMPACT, true, true, NULL, false},
    {"line", LINE, "n=0", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"packed_tokens", NULL, "tokens=30,ends=12", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"packed_tokens", NULL, "tokens=8,ends=5", 0, LAYOUT_MISALIGNED, false, false, NULL, false},
    {"packed_chunks", NULL, "chunks=25,ends=12", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"packed_offsets", NULL, "ends=34,n=33", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"mean_pool_packed", NULL, "chunks=9,steps=4,d=40,tokens=36", 0, LAYOUT_COMPACT, false, true, NULL,
     false},
    {"mean_pool_packed", NULL, "chunks=5,steps=6,d=33,tokens=21", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"mean_pool_packed", NULL, "chunks=0,steps=4,d=8,tokens=3", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"lion", NULL, "tensors=10", 0, LAYOUT_COMPACT, true, false, "m=f32", false},
    {"lion", NULL, "tensors=10", 0, LAYOUT_COMPACT, false, false, NULL, true},
    {"lion", NULL, "tensors=300", 0, LAYOUT_MISALIGNED, true, false, NULL, false},
    {"lion", NULL, "tensors=0", 0, LAYOUT_COMPACT, true, false, NULL, false},
    {"adamw", NULL, "tensors=17", 0, LAYOUT_COMPACT, true, false, "m=f32,s=f32", true},
    {"adamw_master", NULL, "tensors=8", 0, LAYOUT_COMPACT, true, false, NULL, false},
    {"list", LIST, "tensors=10", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"list", LIST, "tensors=12", 0, LAYOUT_MISALIGNED, true, false, NULL, false},
    {"narrow", NARROW, "rows=9,n=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"narrow", NARROW, "rows=5,n=33", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"embedding", NULL, "b=2,t=9,d=40,words=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding", NULL, "b=1,t=7,d=601,words=41", 0, LAYOUT_PADDED, false, true, NULL, false},
    {"embedding", NULL, "b=2,t=70,d=1100,words=45", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding", NULL, "b=2,t=90,d=3,words=300", 0, LAYOUT_SWAPPED, false, true, NULL, false},
    {"embedding", NULL, "b=4,t=800,d=20,words=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding", NULL, "b=1,t=3100,d=7,words=43", 0, LAYOUT_MISALIGNED, false, true, NULL, false},
    {"embedding", NULL, "b=3,t=0,d=16,words=50", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"embedding rows", ROWS_OF_ROWS, "b=2,t=9,d=40,heads=3,words=40", 0, LAYOUT_COMPACT, false, true, NULL,
     false},
    {"embedding rows", ROWS_OF_ROWS, "b=1,t=80,d=21,heads=2,words=44", 0, LAYOUT_PADDED, false, true, NULL,
     false},
    {"angles", ANGLES, "n=100", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"rope_append", NULL, "b=2,t=5,h=3,h_kv=2,i=32,slots=23", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"rope_append", NULL, "b=7,t=1,h=4,h_kv=1,i=64,slots=7", 0, LAYOUT_SWAPPED, true, false, NULL, false},
    {"rope_append", NULL, "b=3,t=4,h=2,h_kv=4,i=17,slots=40", 0, LAYOUT_PADDED, true, false, NULL, false},
    {"rope_append", NULL, "b=2,t=3,h=2,h_kv=2,i=24,slots=9", 0, LAYOUT_MISALIGNED, true, false, NULL, false},
    {"block_lists", NULL, "lines=28,kv_blocks=21,most=7", 0, LAYOUT_COMPACT, false, false, NULL, false},
    {"block_lists", NULL, "lines=12,kv_blocks=33,most=7", 0, LAYOUT_MISALIGNED, false, false, NULL, false},
    {"nsa_gates", NULL, "b=2,h=3,n=21,d=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
    {"nsa_gates", NULL, "b=1,h=2,n=35,d=33", 0, LAYOUT_PADDED, false, true, NULL, false},
};

static void add_map(struct case_list *list, const struct map_case *m, lathe_dtype dtype, lathe_pass pass)
{
    struct test_case c;
    memset(&c, 0, sizeof c);
    for (int i = 0; i < SYM_COUNT; i++)
        c.dim[i] = -1;
    c.group = "elementwise";
    c.pass = pass;
    c.spec = m->spec;
    c.text = m->text;
    c.dtype = dtype;
    c.sm = 90;
    c.leading = m->leading;
    c.sizes = m->sizes;
    c.layout = m->layout;
    c.absent = m->absent;
    c.dtypes = m->dtypes;
    c.skewed = m->dithered;
    if (pass == LATHE_BACKWARD && !m->grads)
        return;
    case_add(list, &c);
}

/* Numbers of rows of which some are outside of the table: NaN, and nothing for any row. The host device
   refuses such a read, so its reference keeps inside. */
#define BEYOND(read)                                                                                         \
    "return elementwise { over = { 'b', 't', 'd' }, results = { y = tensor('float') },\n"                    \
    "  inputs = { table = tensor('float', 'words', 'd', { grad = true }), id = tensor('i32', 'b', 't') },\n" \
    "  forward = function(v, at, x)\n"                                                                       \
    "    local id = 5 * x.id(at.b, at.t) - 7\n"                                                              \
    "    local near = clamp(id, 0, at.n_words - 1)\n"                                                        \
    "    return where(eq(near, id), x.table(" read ", at.d), 0 / 0) end }\n"

static void add_beyond(struct case_list *list)
{
    static const char *const SIZES[] = {"b=2,t=9,d=40,words=9", "b=1,t=80,d=33,words=6"};
    for (int i = 0; i < COUNT(SIZES); i++)
        for (int pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++) {
            const struct map_case m = {"beyond", BEYOND("id"), SIZES[i], 0,    LAYOUT_COMPACT,
                                       false,    true,         NULL,     false};
            add_map(list, &m, i ? LATHE_F32 : LATHE_BF16, (lathe_pass)pass);
            list->item[list->n - 1].reference = BEYOND("near");
        }
}

void group_elementwise(struct case_list *list, bool full)
{
    add_beyond(list);
    static const lathe_dtype DTYPE[] = {LATHE_BF16, LATHE_F32, LATHE_F16};
    for (int t = 0; t < COUNT(DTYPE); t++)
        for (int pass = LATHE_FORWARD; pass <= LATHE_BACKWARD; pass++)
            for (int i = 0; i < COUNT(MAPS); i++)
                if (full || t < 2 || i % 5 == 0)
                    add_map(list, &MAPS[i], DTYPE[t], (lathe_pass)pass);
}

/* On a device so small that a team has the same part of several rows beside each other: rows are no multiple
 * of them, and a row has two parts, or one. */
void group_rows_beside(struct case_list *list)
{
    static const struct map_case BESIDE[] = {
        {"mean_pool_packed", NULL, "chunks=25,steps=64,d=1030,tokens=1537", 0, LAYOUT_COMPACT, false, true,
         NULL, false},
        {"mean_pool_packed", NULL, "chunks=400,steps=8,d=132,tokens=3099", 0, LAYOUT_COMPACT, false, true,
         NULL, false},
        {"embedding", NULL, "b=2,t=900,d=130,words=1801", 0, LAYOUT_COMPACT, false, true, NULL, false}};
    for (int i = 0; i < COUNT(BESIDE); i++) {
        add_map(list, &BESIDE[i], LATHE_BF16, LATHE_BACKWARD);
        list->item[list->n - 1].beside = 1;
    }
}

/* The same bits, whatever the order of atomics. */
void group_deterministic_maps(struct case_list *list)
{
    static const struct map_case DETERMINISTIC[] = {
        {"embedding", EMBEDDING, "b=2,t=9,d=40,words=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
        {"embedding", EMBEDDING, "b=3,t=50,d=33,words=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
        {"sums", SUMS, "b=2,rows=70,n=16,width=40", 0, LAYOUT_COMPACT, false, true, NULL, false},
        {"two_maps", TWO_MAPS, "b=3,t=9,h=3,h_kv=2,i=24", 0, LAYOUT_COMPACT, false, true, NULL, false},
        {"mean_pool_packed", NULL, "chunks=9,steps=4,d=40,tokens=36", 0, LAYOUT_COMPACT, false, true, NULL,
         false}};
    for (int i = 0; i < COUNT(DETERMINISTIC); i++) {
        add_map(list, &DETERMINISTIC[i], i % 2 ? LATHE_F32 : LATHE_BF16, LATHE_BACKWARD);
        list->item[list->n - 1].deterministic = true;
    }
}

/* ---- inputs without elements -----------------------------------------------------------------------------
 */

/* Gradients that are added up: of a line, of single elements, kept over the steps of a thread, by data, by
 * row, by column, by distance, of an element of all rows. */
static const char HOLLOW_ROWS[] =
    "return rowwise { inputs = { id = tensor('i32', 'rows'), table = tensor('float', 'words', 'n', { grad = "
    "true }),\n"
    "    far = tensor('f32', 'words', 7, { grad = true }), pick = tensor('f32', 'words', { grad = true }) "
    "},\n"
    "  forward = function(x, at, p)\n"
    "    return x * p.table(p.id(at.row), at.i) + p.far(at.row % 3, at.i % 7) * x + p.pick(2)\n"
    "  end }\n";
static const char HOLLOW_PAIRS[] = "return attention { inputs = { r = tensor('f32', 'b', 'words', { grad = "
                                   "true }), c = tensor('f32', 'h', 'words', { grad = "
                                   "true }),\n"
                                   "    t = tensor('f32', 'h_kv', 'words', { grad = true }), e = "
                                   "tensor('f32', 'words', 'words', { grad = true }), g = "
                                   "tensor('f32', 'words', { grad = true }) },\n"
                                   "  query_mod = function(q, at, x) return q * x.g(at.i) end,\n"
                                   "  score_mod = function(s, at, x)\n"
                                   "    return s * x.t(at.h_kv, clamp(at.q - at.kv, 0, 39)) + x.r(at.b, "
                                   "at.row) * x.c(at.h, at.kv) + x.e(at.row, at.kv) * x.g(3)\n"
                                   "  end }\n";

void group_hollow(struct case_list *list)
{
    static const char *const SIZES[] = {"b=2,t=9,d=40,words=0", "b=1,t=5,d=33,words=0"};
    for (int i = 0; i < COUNT(SIZES); i++) {
        const struct map_case m = {"embedding", EMBEDDING, SIZES[i], 0,    LAYOUT_COMPACT,
                                   false,       true,      NULL,     false};
        add_map(list, &m, i ? LATHE_F32 : LATHE_BF16, LATHE_BACKWARD);
        list->item[list->n - 1].hollow = true;
    }
    const struct map_case sums = {"sums", SUMS, "b=2,rows=18,n=16,width=0", 0, LAYOUT_COMPACT, false, true,
                                  NULL,   false};
    add_map(list, &sums, LATHE_BF16, LATHE_BACKWARD);
    list->item[list->n - 1].hollow = true;
    for (int n = 40; n <= 3000; n += 2960) {
        struct test_case c =
            case_of_attention("backward", "hollow_rows", HOLLOW_ROWS, LATHE_BF16, -1, -1, 90);
        c.pass = LATHE_BACKWARD;
        c.dim[SYM_ROWS0] = c.dim[SYM_ROWS1] = 1;
        c.dim[SYM_ROWS] = 21;
        c.dim[SYM_N] = n;
        c.leading = 1;
        c.dim[SYM_FREE] = 0;
        c.hollow = true;
        case_add(list, &c);
    }
    for (int i = 0; i < 3; i++) {
        struct test_case c =
            case_of_attention("gradients", "hollow_pairs", HOLLOW_PAIRS, LATHE_BF16, 64, 64, i ? 90 : 80);
        c.pass = LATHE_BACKWARD;
        c.template_name = i ? "attention_bwd_sm90" : NULL;
        c.dim[SYM_B] = c.dim[SYM_H_KV] = 1;
        c.dim[SYM_H] = 2;
        c.dim[SYM_Q] = c.dim[SYM_KV] = 70;
        c.dim[SYM_FREE] = 0;
        c.deterministic = i == 2;
        c.hollow = true;
        case_add(list, &c);
    }
}
