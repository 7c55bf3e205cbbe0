/*
 * cases_masks.c: masks whose tiles are judged once a launch: by bounds that divide by scalars, and by a look
 * at pairs where nothing is known of a tile. Each by every kernel of attention, in both passes. In: the
 * default or the full run. Out: cases at the end of the list.
 */
#include "cases.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const struct inline_spec SPECS[] = {
    {"grid", SPEC_grid /* planes of grid_h x grid_w */},
    {"diffusion",
     SPEC_diffusion /* the first head; the others see all of the second copy's first blocks, too */},
    {"bands", SPEC_bands /* nothing is known of a sine on a tile, which reads nothing */},
    {"selected", SPEC_selected},
    {"documents_selected",
     SPEC_documents_selected /* what is known of one table does not do for the other */},
};

/* A class for each 64 rows: dead, or whole. */
static const char BLOCKS[] =
    "return attention { inputs = { chosen = tensor('u8', 'h', 'tall', 'wide') }, mask_mod = function(at, x)\n"
    "  return ne(x.chosen(at.h, min(at.row // 64, at.n_tall - 1), min(at.kv // 64, at.n_wide - 1)), 0)\n"
    "end }\n";

/* A look at pairs finds dead tiles, whole ones and others. */
static const char TABLE[] =
    "return attention { inputs = { chosen = tensor('u8', 'q', 'kv') }, mask_mod = function(at, x)\n"
    "  return ge(min(x.chosen(at.row, at.kv), 1) + (at.row // 64 + at.kv // 64) % 3, 2)\n"
    "end }\n";

/* Lanes hand on an integer, a bool and a float of a column, and of a row; what else there is each finds for
 * itself. */
static const char STEPS[] =
    "return attention { inputs = { part = scalar('i32') }, mask_mod = function(at, x)\n"
    "  return (le(abs(at.q // x.part - at.kv // x.part), 2) & lt(at.kv % x.part, 5))\n"
    "    | (lt(5.0 * sin(0.08 * at.q), 10.0 * sin(0.05 * at.kv)) & ge(at.kv, x.part) & ne(at.row % x.part, "
    "0))\n"
    "end }\n";

/* Blocks that tiles lie within, beside a mask that cuts rows; the end of the tensors cuts blocks. */
static const char CUT_BLOCKS[] = "return attention { inputs = { chosen = tensor('u8', 'b', 'h', 'tall', "
                                 "'wide') }, mask_mod = function(at, x)\n"
                                 "  local block = x.chosen(at.b, at.h, min(at.row // 128, at.n_tall - 1), "
                                 "min(at.kv // 2 // 32, at.n_wide - 1))\n"
                                 "  return gt(block % 3, 0) & ge(at.q + 40, at.kv) & lt(at.q - at.kv, 333)\n"
                                 "end }\n";

/* Tiles of 128 keys fit into these. */
static const char WIDE_BLOCKS[] =
    "return attention { inputs = { chosen = tensor('u8', 'tall', 'wide') }, mask_mod = function(at, x)\n"
    "  return gt(x.chosen(min(at.row // 128, at.n_tall - 1), min(at.kv // 128, at.n_wide - 1)) % 3, 0)\n"
    "end }\n";

/* Two tables, whose least and largest values on a tile are looked for one after the other. */
static const char TWO_TABLES[] =
    "return attention { inputs = { live = tensor('i32', 'tall', 'wide'), whole = tensor('i32', 'tall', "
    "'wide') },\n"
    "  mask_mod = function(at, x)\n"
    "    local i, j = min(at.row // 8, at.n_tall - 1), min(at.kv // 8, at.n_wide - 1)\n"
    "    return lt(x.live(i, j), 3) & (gt(x.whole(i, j), 2) | ge(at.q, at.kv))\n"
    "end }\n";

/* No tile fits into these. */
static const char ODD_BLOCKS[] =
    "return attention { inputs = { chosen = tensor('u8', 'h', 'tall', 'wide') }, mask_mod = function(at, x)\n"
    "  return gt(x.chosen(at.h, min(at.row // 48, at.n_tall - 1), min(at.kv // 40, at.n_wide - 1)) % 3, 0)\n"
    "end }\n";

/* The first keys are seen by all queries, others by few: their block is long, and comes first. */
static const char HOT_BLOCKS[] =
    "return attention { inputs = { chosen = tensor('u8', 'b', 'h', 'tall', "
    "'wide') }, mask_mod = function(at, x)\n"
    "  local block = x.chosen(at.b, at.h, min(at.row // 64, at.n_tall - 1), "
    "min(at.kv // 64, at.n_wide - 1))\n"
    "  return lt(at.kv // 64, 1) | eq((block + 5 * (at.row // 64) + 3 * (at.kv // 64)) % 32, 0)\n"
    "end }\n";

/* Warpgroups of sm_90a pass over tiles that have nothing for their 64 rows, and lanes find values of columns
   and rows for each other. */
static const struct {
    const char *name, *text, *template_name;
    lathe_pass pass;
    int sm, d;
} BY_WARPGROUP[] = {
    {"blocks", BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"blocks", BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 128},
    {"table", TABLE, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"table", TABLE, "attention_fwd_sm90", LATHE_FORWARD, 90, 128},
    {"table", TABLE, "attention_fwd_sm90", LATHE_FORWARD, 90, 256},
    {"table", TABLE, NULL, LATHE_FORWARD, 80, 64},
    {"table", TABLE, "attention_bwd_sm90", LATHE_BACKWARD, 90, 64},
    {"table", TABLE, "attention_bwd_wide_sm90", LATHE_BACKWARD, 90, 128},
    {"table", TABLE, NULL, LATHE_BACKWARD, 80, 64},
    {"steps", STEPS, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"steps", STEPS, "attention_fwd_sm90", LATHE_FORWARD, 90, 96},
    {"steps", STEPS, "attention_fwd_sm90", LATHE_FORWARD, 90, 192},
    {"steps", STEPS, "attention_bwd_sm90", LATHE_BACKWARD, 90, 64},
    {"steps", STEPS, "attention_bwd_wide_sm90", LATHE_BACKWARD, 90, 128},
    {"cut_blocks", CUT_BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"cut_blocks", CUT_BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 128},
    {"cut_blocks", CUT_BLOCKS, NULL, LATHE_FORWARD, 80, 64},
    {"cut_blocks", CUT_BLOCKS, "attention_bwd_sm90", LATHE_BACKWARD, 90, 64},
    {"cut_blocks", CUT_BLOCKS, "attention_bwd_sm90", LATHE_BACKWARD, 90, 128},
    {"cut_blocks", CUT_BLOCKS, "attention_bwd_wide_sm90", LATHE_BACKWARD, 90, 136},
    {"cut_blocks", CUT_BLOCKS, NULL, LATHE_BACKWARD, 80, 64},
    {"wide_blocks", WIDE_BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 128},
    {"wide_blocks", WIDE_BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 256},
    {"wide_blocks", WIDE_BLOCKS, NULL, LATHE_FORWARD, 80, 128},
    {"wide_blocks", WIDE_BLOCKS, "attention_bwd_sm90", LATHE_BACKWARD, 90, 128},
    {"wide_blocks", WIDE_BLOCKS, NULL, LATHE_BACKWARD, 80, 128},
    {"two_tables", TWO_TABLES, NULL, LATHE_FORWARD, 80, 64},
    {"two_tables", TWO_TABLES, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"two_tables", TWO_TABLES, "attention_bwd_sm90", LATHE_BACKWARD, 90, 64},
    {"odd_blocks", ODD_BLOCKS, "attention_fwd_sm90", LATHE_FORWARD, 90, 128},
    {"odd_blocks", ODD_BLOCKS, "attention_bwd_sm90", LATHE_BACKWARD, 90, 128},
    {"cut_blocks", CUT_BLOCKS, "attention_bwd_slices", LATHE_BACKWARD, 80, 264},
    {"head_sine", SPEC_head_sine, "attention_fwd_sm90", LATHE_FORWARD, 90, 64},
    {"head_sine", SPEC_head_sine, "attention_bwd_sm90", LATHE_BACKWARD, 90, 128},
    {"head_sine", SPEC_head_sine, "attention_bwd_wide_sm90", LATHE_BACKWARD, 90, 192},
};

/* Of three heads two make a section of those that are at work at a time. */
static const struct {
    const char *template_name;
    int b, h, h_kv, d;
} HOT[] = {
    {"attention_bwd_sm90", 1, 3, 3, 64},
    {"attention_bwd_sm90", 3, 2, 1, 128},
    {"attention_bwd_wide_sm90", 1, 3, 3, 192},
};

/* Few columns make a look at pairs dear: of fewer heads the "selected" ones are not looked at. */
static const struct {
    lathe_pass pass;
    const char *template_name;
    int sm, d, d_v;
    bool deterministic;
} KERNELS[] = {
    {LATHE_FORWARD, NULL, 80, 64, 64, false},  {LATHE_FORWARD, "attention_fwd_sm90", 90, 64, 64, false},
    {LATHE_BACKWARD, NULL, 80, 64, 40, false}, {LATHE_BACKWARD, "attention_bwd_sm90", 90, 64, 64, true},
    {LATHE_FORWARD, NULL, 90, 16, 16, false},  {LATHE_BACKWARD, "attention_bwd_wide_sm90", 90, 32, 32, false},
    {LATHE_BACKWARD, NULL, 80, 16, 16, true},
};

static const struct {
    int b, h, h_kv, q, kv;
    enum layout layout;
    bool has_q_start;
    int q_start;
} SIZES[] = {
    {1, 2, 1, 450, 450, LAYOUT_COMPACT, false, 0}, {2, 4, 2, 65, 257, LAYOUT_PADDED, false, 0},
    {1, 1, 1, 130, 300, LAYOUT_SWAPPED, true, 20}, {1, 2, 2, 90, 40, LAYOUT_COMPACT, true, -25},
    {1, 2, 1, 0, 30, LAYOUT_COMPACT, false, 0},
};

static void add_sizes(struct case_list *list, struct test_case *c, bool full)
{
    for (int s = 0; s < (full ? COUNT(SIZES) : 2); s++) {
        case_shape(c, SIZES[s].b, SIZES[s].h, SIZES[s].h_kv, SIZES[s].q, SIZES[s].kv);
        c->layout = SIZES[s].layout;
        c->has_q_start = SIZES[s].has_q_start;
        c->q_start = SIZES[s].q_start;
        case_add(list, c);
    }
}

void group_masks(struct case_list *list, bool full)
{
    for (int i = 0; i < COUNT(SPECS); i++)
        for (int k = 0; k < (full ? COUNT(KERNELS) : 4); k++) {
            struct test_case c =
                case_of_attention("masks", SPECS[i].name, SPECS[i].text, (i + k) % 2 ? LATHE_F16 : LATHE_BF16,
                                  KERNELS[k].d, KERNELS[k].d_v, KERNELS[k].sm);
            c.pass = KERNELS[k].pass;
            c.template_name = KERNELS[k].template_name;
            c.deterministic = KERNELS[k].deterministic;
            add_sizes(list, &c, full);
        }
    for (int i = 0; i < COUNT(BY_WARPGROUP); i++) {
        const int d = BY_WARPGROUP[i].d;
        struct test_case c = case_of_attention("masks", BY_WARPGROUP[i].name, BY_WARPGROUP[i].text,
                                               i % 2 ? LATHE_F16 : LATHE_BF16, d, d, BY_WARPGROUP[i].sm);
        c.pass = BY_WARPGROUP[i].pass;
        c.template_name = BY_WARPGROUP[i].template_name;
        add_sizes(list, &c, full);
    }
    for (int i = 0; i < COUNT(HOT); i++) {
        const int d = HOT[i].d;
        struct test_case c = case_of_attention("masks", "hot_blocks", HOT_BLOCKS, LATHE_BF16, d, d, 90);
        c.pass = LATHE_BACKWARD;
        c.template_name = HOT[i].template_name;
        c.dim[SYM_B] = HOT[i].b;
        c.dim[SYM_H] = HOT[i].h;
        c.dim[SYM_H_KV] = HOT[i].h_kv;
        c.dim[SYM_Q] = 450;
        c.dim[SYM_KV] = 1100;
        case_add(list, &c);
    }
}
