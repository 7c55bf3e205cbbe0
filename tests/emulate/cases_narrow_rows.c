/*
 * cases_narrow_rows.c: keys and values of 8 bits against eight rows of a key head and nine, and packed
 * sequences whose average has so few while some have more: inputs by key of several dtypes, of each head,
 * up to the last byte of their memory, masks by key, V that is K. In: nothing. Out: cases at the end of the
 * list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct inline_spec SPECS[] = {
    {"whole", "return attention {}\n"},
    {"columns", /* several values of a column: of its head, of its key head, of its key alone */
     "return attention { inputs = { gain = tensor('u8', 'b', 'h_kv', 'kv'), bias = tensor('float', 'h', "
     "'kv'),\n"
     "    kind = tensor('i32', 'b', 'kv') }, mask_mod = causal,\n"
     "  score_mod = function(s, at, x) return s * (0.5 + 0.01 * x.gain(at.b, at.h_kv, at.kv))\n"
     "    + where(eq(x.kind(at.b, at.kv) % 3, 0), x.bias(at.h, at.kv), 0.1) end }\n"},
    {"kinds", /* read by the mask alone, and as a condition */
     "return attention { inputs = { kind = tensor('i32', 'b', 'kv'), half = tensor('float', 'kv') },\n"
     "  mask_mod = function(at, x) return ge(at.q, at.kv) & ne(x.kind(at.b, at.kv) % 4, 1) end,\n"
     "  score_mod = function(s, at, x) return where(gt(x.half(at.kv), 0.0), s, -s) end }\n"},
    {"latent", "return attention { v = 'k', mask_mod = causal, scale = 0.07 }\n"},
};
static const struct inline_spec SHIPPED = {"fp8_cache", NULL};
enum { WHOLE, COLUMNS, KINDS, LATENT, CACHE };

static struct test_case of(int spec, int i, lathe_dtype dtype, int d, int d_v)
{
    static const char *const DTYPES[] = {"k=f8e4m3,v=f8e4m3", "k=i8,v=f8e5m2", "k=f8e5m2,v=i8"};
    const struct inline_spec *s = spec == CACHE ? &SHIPPED : &SPECS[spec];
    struct test_case c = case_of_attention("narrow", s->name, s->text, dtype, d, d_v, i % 4 == 3 ? 80 : 90);
    c.template_name = "attention_decode_narrow";
    c.dtypes = spec == LATENT ? "k=i8" : DTYPES[i % COUNT(DTYPES)];
    c.layout = i % 3 == 0 ? LAYOUT_COMPACT : i % 3 == 1 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
    return c;
}

/* One key, a tile less one, tiles and some more. */
static void add_rows(struct case_list *list)
{
    static const struct {
        int spec, d, d_v, h, h_kv, q, kv;
    } OF[] = {
        {WHOLE, 32, 32, 8, 1, 1, 1},      {COLUMNS, 128, 128, 8, 1, 1, 600}, {COLUMNS, 64, 64, 9, 1, 1, 600},
        {KINDS, 96, 96, 8, 2, 2, 333},    {KINDS, 128, 64, 8, 2, 3, 700},    {CACHE, 256, 256, 8, 1, 1, 527},
        {CACHE, 192, 128, 2, 2, 8, 900},  {CACHE, 128, 128, 3, 3, 9, 545},   {LATENT, 128, 128, 8, 1, 1, 610},
        {LATENT, 256, 192, 4, 1, 2, 15},  {LATENT, 64, 32, 5, 1, 2, 777},    {COLUMNS, 96, 224, 4, 2, 4, 17},
        {COLUMNS, 256, 32, 16, 2, 1, 31}, {WHOLE, 192, 256, 6, 1, 1, 1030}};
    for (int i = 0; i < COUNT(OF); i++) {
        struct test_case c = of(OF[i].spec, i, i % 2 ? LATHE_F16 : LATHE_BF16, OF[i].d, OF[i].d_v);
        case_shape(&c, 2, OF[i].h, OF[i].h_kv, OF[i].q, OF[i].kv);
        case_add(list, &c);
    }
}

/* Of 0, 1, 4, 17, 0 and 26 rows: eight on average. */
static void add_packed(struct case_list *list)
{
    static const struct {
        int spec, page, most;
    } OF[] = {{WHOLE, 0, 0},   {COLUMNS, 0, 0},   {CACHE, 0, 0},
              {CACHE, 16, 40}, {COLUMNS, 3, 220}, {LATENT, 64, 10}};
    for (int i = 0; i < COUNT(OF); i++) {
        struct test_case c =
            of(OF[i].spec, i, i % 2 ? LATHE_F16 : LATHE_BF16, i % 3 ? 64 : 128, i % 3 ? 64 : 128);
        c.without = OF[i].page ? " cu_kv " : " used_kv ";
        c.layout = i % 2 ? LAYOUT_SWAPPED : LAYOUT_COMPACT;
        case_shape(&c, 1, 2, 2, 48, OF[i].page ? OF[i].page * OF[i].most : 1400);
        c.dim[SYM_SEQS] = 6;
        if (OF[i].page) {
            c.dim[SYM_PAGE] = OF[i].page;
            c.dim[SYM_MOST] = OF[i].most;
            c.dim[SYM_POOL] = 6 * OF[i].most + 3;
        } else {
            c.group = "narrow_varlen";
        }
        case_add(list, &c);
    }
}

void add_narrow_rows(struct case_list *list)
{
    add_rows(list);
    add_packed(list);
}
