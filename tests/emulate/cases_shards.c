/*
 * cases_shards.c: calls that have a part of all keys, or of all heads, of every template of attention and
 * both passes: masks, tables by position and by head, random numbers, mods that read positions. In: nothing.
 * Out: cases at the end of the list.
 */
#include "cases.h"

#include <string.h>

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct inline_spec SPECS[] = {
    {"alibi", NULL},
    {"document", NULL},
    {"dropout", NULL},
    {"forgetting", NULL},
    {"sinks", NULL},
    {"tables", /* by key, by head and by key head; sizes of all; a mod that reads a position */
     "return attention { inputs = { bias = tensor('f32', 'h', 'kv', { grad = true }),\n"
     "    slope = tensor('f32', 'h', { grad = true }), gain = tensor('f32', 'h_kv') },\n"
     "  mask_mod = function(at) return le(at.kv, at.q) & lt(at.kv, at.len_kv - 5) end,\n"
     "  key_mod = function(k, at) return k * (1 + 0.001 * at.pos) end,\n"
     "  score_mod = function(s, at, x) return s * x.gain(at.h_kv) + x.bias(at.h, at.kv) +\n"
     "    x.slope(at.h) * (at.q - at.kv) / at.n_h end }\n"},
    {"between", /* tiles of keys that all rows see, some of which they see, and none, by where keys stand
                   among all */
     "return attention { mask_mod = function(at) return ge(at.kv, 110) & lt(at.kv, at.len_kv - 190) end }\n"},
};
enum { BETWEEN = 6 };

static const char BY_HEAD[] =
    "return attention { mask_mod = causal,\n"
    "  inputs = { row = tensor('f32', 'b', 'h', 'q', { grad = true }), gain = tensor('f32', 'h', { grad = "
    "true }),\n"
    "    key_gain = tensor('f32', 'h_kv', { grad = true }) },\n"
    "  score_mod = function(s, at, x)\n"
    "    return s * (1 + 0.2 * x.gain(at.h) * x.key_gain(at.h_kv)) + 0.2 * x.row(at.b, at.h, at.row) end }\n";
static const char BY_KEY[] = "return attention { mask_mod = causal,\n"
                             "  inputs = { of_all = tensor('f32', 'b', 'kv', { grad = true }), of_head = "
                             "tensor('f32', 'h', 'kv', { grad = true }) },\n"
                             "  score_mod = function(s, at, x) return s + 0.2 * x.of_all(at.b, at.kv) + 0.2 "
                             "* x.of_head(at.h, at.kv) end }\n";

static const char *const FORWARD[] = {NULL, "attention_fwd_sm90", "attention_decode"};
static const char *const BACKWARD[] = {NULL, "attention_bwd_sm90", "attention_bwd_wide_sm90"};

enum { PARTS = 3 };
static void set_part(struct test_case *c, int i)
{
    static const struct {
        int b, h, h_kv, q, kv, q_start, kv_start, len_kv, h_start, n_h;
    } PART[PARTS + 1] = {{2, 4, 2, 70, 130, 150, 100, 300, 4, 12}, /* keys of the diagonal in the middle */
                         {1, 2, 2, 65, 96, 160, 0, 256, 2, 4},     /* the first keys */
                         {1, 2, 1, 33, 190, 40, 60, 250, 0, 2},    /* some rows have none */
                         {1, 4, 2, 70, 300, 150, 100, 500, 4, 12}};
    const int p = i < 0 ? PARTS : i % PARTS;
    c->dim[SYM_B] = PART[p].b;
    c->dim[SYM_H] = PART[p].h;
    c->dim[SYM_H_KV] = PART[p].h_kv;
    c->dim[SYM_Q] = PART[p].q;
    c->dim[SYM_KV] = PART[p].kv;
    c->dim[SYM_ALL_KV] = PART[p].len_kv;
    c->dim[SYM_ALL_H] = PART[p].n_h;
    c->dim[SYM_ALL_H_KV] = PART[p].n_h / (PART[p].h / PART[p].h_kv);
    c->has_q_start = true;
    c->q_start = PART[p].q_start;
    c->kv_start = PART[p].kv_start;
    c->h_start = PART[p].h_start;
    c->layout = i % 2 ? LAYOUT_SWAPPED : LAYOUT_PADDED;
}

static void add(struct case_list *list, int spec, bool backward, int kernel)
{
    static const int DIMS[] = {64, 64, 128};
    const int d = backward && kernel == 2 ? 192 : DIMS[(spec + kernel) % 3];
    const lathe_dtype dtype = (spec + kernel) % 2 ? LATHE_F16 : LATHE_BF16;
    struct test_case c =
        case_of_attention("shards", SPECS[spec].name, SPECS[spec].text,
                          kernel == 0 && spec % 3 == 1 ? LATHE_F32 : dtype, d, d, kernel == 0 ? 80 : 90);
    c.pass = backward ? LATHE_BACKWARD : LATHE_FORWARD;
    c.template_name = (backward ? BACKWARD : FORWARD)[kernel];
    set_part(&c, spec == BETWEEN ? -1 : spec + kernel);
    if (!backward && kernel == 2)
        c.dim[SYM_Q] = 3;
    case_add(list, &c);
}

/* Keys in chunks, as one of three or four ranks has them where a cache grows on all in turn: of one key, of
   less than a tile, of more. */
static void add_chunks(struct case_list *list, int spec, bool backward, int kernel)
{
    static const struct {
        int q, kv, q_start, kv_start, kv_chunk, kv_step, len_kv;
    } CHUNKS[] = {
        {70, 130, 300, 2, 1, 3, 400}, {65, 150, 380, 32, 16, 64, 640}, {33, 190, 350, 160, 80, 240, 700}};
    const int which = (spec + kernel) % COUNT(CHUNKS);
    add(list, spec, backward, kernel);
    struct test_case *const c = &list->item[list->n - 1];
    c->group = "chunks";
    c->dim[SYM_Q] = !backward && kernel == 2 ? 3 : CHUNKS[which].q;
    c->dim[SYM_KV] = CHUNKS[which].kv;
    c->dim[SYM_ALL_KV] = CHUNKS[which].len_kv;
    c->q_start = CHUNKS[which].q_start;
    c->kv_start = CHUNKS[which].kv_start;
    c->kv_chunk = CHUNKS[which].kv_chunk;
    c->kv_step = CHUNKS[which].kv_step;
}

/* The same of pages, with keys in use. */
static void add_chunks_in_pages(struct case_list *list)
{
    for (int k = 0; k < 2; k++) {
        struct test_case c =
            case_of_attention("chunks_paged", SPECS[k].name, SPECS[k].text, LATHE_BF16, 64, 64, 80);
        c.template_name = k == 1 ? FORWARD[2] : NULL;
        set_part(&c, 0);
        c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
        c.dim[SYM_Q] = k == 1 ? 2 : 20;
        c.dim[SYM_PAGE] = 16;
        c.dim[SYM_MOST] = 9;
        c.dim[SYM_POOL] = 29;
        c.dim[SYM_KV] = 9 * 16;
        c.dim[SYM_ALL_KV] = 600;
        c.q_start = 400;
        c.kv_start = 32;
        c.kv_chunk = 32;
        c.kv_step = 128;
        c.without = " cu_q cu_kv ";
        case_add(list, &c);
    }
}

/* Keys in use of a cache that several calls share, one of them the part from 100 on. */
static void add_cache(struct case_list *list)
{
    for (int k = 0; k < 3; k++) {
        struct test_case c = case_of_attention("shards_varlen", SPECS[k].name, SPECS[k].text, LATHE_BF16, 64,
                                               64, k == 1 ? 90 : 80);
        c.template_name = k == 2 ? FORWARD[2] : FORWARD[k];
        set_part(&c, 0);
        c.dim[SYM_B] = c.dim[SYM_SEQS] = 3;
        c.dim[SYM_Q] = k == 2 ? 2 : 20;
        c.without = " cu_q cu_kv ";
        c.parts = k == 2;
        case_add(list, &c);
    }
}

/* Packed sequences of which each has a part, and which together have more keys than any of them in all. */
static void add_packed(struct case_list *list)
{
    for (int k = 0; k < 5; k++) {
        const bool backward = k > 2;
        struct test_case c = case_of_attention("shards_varlen", SPECS[BETWEEN].name, SPECS[BETWEEN].text,
                                               k % 2 ? LATHE_BF16 : LATHE_F16, 64, 64, k == 0 ? 80 : 90);
        c.pass = backward ? LATHE_BACKWARD : LATHE_FORWARD;
        c.template_name = backward ? BACKWARD[k - 3] : FORWARD[k];
        set_part(&c, -1);
        c.dim[SYM_B] = 1;
        c.dim[SYM_SEQS] = 4;
        c.dim[SYM_Q] = k == 2 ? 7 : 120;
        c.dim[SYM_KV] = 700;
        c.without = " used_kv ";
        case_add(list, &c);
    }
}

/* Gradients that have all heads and all keys, of calls in which sequences have a part of them: keys in use of
   a cache, pages, packed sequences, which alone Hopper's kernels take. */
static void add_gradients(struct case_list *list)
{
    static const struct {
        const char *group, *name, *text, *without;
        int kernel, seqs, q, kv, page;
    } FORM[] = {
        {"shards_varlen", "by_head", BY_HEAD, " cu_q cu_kv ", 0, 3, 20, 150, 0},
        {"shards_varlen", "by_key", BY_KEY, " cu_q cu_kv ", 0, 3, 20, 150, 0},
        {"chunks_paged", "by_head", BY_HEAD, " cu_q cu_kv ", 0, 3, 20, 144, 16},
        {"shards_varlen", "by_head", BY_HEAD, " used_kv ", 0, 4, 120, 400, 0},
        {"shards_varlen", "by_head", BY_HEAD, " used_kv ", 1, 4, 120, 400, 0},
        {"shards_varlen", "by_head", BY_HEAD, " used_kv ", 2, 4, 120, 400, 0},
    };
    for (int i = 0; i < COUNT(FORM); i++) {
        const int d = FORM[i].kernel == 2 ? 192 : 64;
        struct test_case c = case_of_attention(FORM[i].group, FORM[i].name, FORM[i].text,
                                               FORM[i].kernel > 0 ? LATHE_BF16 : LATHE_F32, d, d,
                                               FORM[i].kernel > 0 ? 90 : 80);
        c.pass = LATHE_BACKWARD;
        c.template_name = BACKWARD[FORM[i].kernel];
        set_part(&c, 0);
        c.dim[SYM_B] = strstr(FORM[i].without, "cu_q") ? FORM[i].seqs : 1;
        c.dim[SYM_SEQS] = FORM[i].seqs;
        c.dim[SYM_Q] = FORM[i].q;
        c.dim[SYM_KV] = FORM[i].kv;
        if (FORM[i].page > 0) {
            c.dim[SYM_PAGE] = FORM[i].page;
            c.dim[SYM_MOST] = FORM[i].kv / FORM[i].page;
            c.dim[SYM_POOL] = FORM[i].seqs * c.dim[SYM_MOST] + 3;
        }
        c.without = FORM[i].without;
        case_add(list, &c);
    }
}

void group_shards(struct case_list *list)
{
    for (int spec = 0; spec < COUNT(SPECS); spec++)
        for (int kernel = 0; kernel < 3; kernel++) {
            add(list, spec, false, kernel);
            add(list, spec, true, kernel);
        }
    add_cache(list);
    for (int spec = 0; spec < COUNT(SPECS); spec++)
        for (int kernel = 0; kernel < 3; kernel++) {
            add_chunks(list, spec, false, kernel);
            add_chunks(list, spec, true, kernel);
        }
    add_chunks_in_pages(list);
    add_packed(list);
    add_gradients(list);
}
