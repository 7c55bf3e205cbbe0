/*
 * mask_blocks.c: masks that are the same for whole blocks of queries and keys, as tables of blocks are that
 * are read at `at.row // BLOCK` and `at.kv // BLOCK`. In: a lowered spec, whose keys_left is known. Out:
 * w->lowered.blocks: how many rows and keys keys_left is the same for, from multiples of these on, and the
 * bounds of a tile within such a block, of which no pair has to be asked about but for the ends of its row.
 * Positions are at least 0.
 */
#include "gen/attention/lower.h"
#include "gen/attention/mask_tiles.h"
#include "gen/attention/tile_map.h"
#include "gen/ir/spec.h"

#include <math.h>
#include <stdlib.h>

enum { ANY = 0 /* as long as there are positions */, MOST_POSITION = 1 << 24 /* and none is as large */ };

/* Of a node: its value is the same on blocks of so many rows and keys. */
struct extent {
    int rows, keys;
    int row_step, key_step; /* it is at.row // row_step, or at.kv // key_step; 0: it is not */
};

static int common(int a, int b)
{
    while (b != 0) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The divisor of at.row // a // b. */
static int steps(int a, double b)
{
    const double product = a * b;
    return product < (double)MOST_POSITION ? (int)product : MOST_POSITION;
}

/* What a // or >> divides by; 0: something else. */
static double divisor_of(const struct ir *w, const struct ir_node *n)
{
    const bool divides = n->type == TYPE_I32 && (n->op == OP_IDIV || n->op == OP_SHR);
    if (!divides || w->node[n->arg[1]].op != OP_CONST)
        return 0;
    const double by = w->node[n->arg[1]].value;
    if (n->op == OP_SHR)
        return by >= 0 && by < 31 ? ldexp(1, (int)by) : 0;
    return by >= 1 ? by : 0;
}

static struct extent leaf_extent(const struct ir_node *n)
{
    const bool row = n->op == OP_AT && n->index == AT_ROW;
    const bool key = n->op == OP_AT && n->index == AT_KV;
    return (struct extent){.rows = n->span & SPAN_Q ? 1 : ANY,
                           .keys = n->span & SPAN_KV ? 1 : ANY,
                           .row_step = row,
                           .key_step = key};
}

static struct extent extent_of(const struct ir *w, const struct extent *of, int i)
{
    const struct ir_node *n = &w->node[i];
    const double by = divisor_of(w, n);
    struct extent e = {ANY, ANY, 0, 0};
    if (n->n_args == 0 || n->op == OP_RANDOM)
        return leaf_extent(n);
    for (int k = 0; k < n->n_args; k++) {
        e.rows = common(e.rows, of[n->arg[k]].rows);
        e.keys = common(e.keys, of[n->arg[k]].keys);
    }
    if (by > 0 && of[n->arg[0]].row_step > 0)
        e.rows = e.row_step = steps(of[n->arg[0]].row_step, by);
    else if (by > 0 && of[n->arg[0]].key_step > 0)
        e.keys = e.key_step = steps(of[n->arg[0]].key_step, by);
    return e;
}

/* The same on blocks of rows x keys? */
static bool is_same(const struct extent *e, int rows, int keys)
{
    return (rows == ANY ? e->rows == ANY : e->rows % rows == 0) &&
           (keys == ANY ? e->keys == ANY : e->keys % keys == 0);
}

static void find(struct ir *w, struct extent *of, bool *used, bool *same)
{
    const int rest = w->lowered.keys_left.root[0];
    const int n_nodes = w->n_nodes;
    const int root[2] = {w->mask.root[0], rest};
    ir_mark(w, root, 2, used);
    for (int i = 0; i < n_nodes; i++)
        if (used[i])
            of[i] = extent_of(w, of, i);
    w->lowered.blocks.rows = of[rest].rows;
    w->lowered.blocks.keys = of[rest].keys;
    if (w->lowered.blocks.rows == 1 || w->lowered.blocks.keys == 1)
        return;
    for (int i = 0; i < n_nodes; i++)
        same[i] = used[i] && is_same(&of[i], w->lowered.blocks.rows, w->lowered.blocks.keys);
    w->lowered.blocks.bounds = bounds_of_block(w, same);
}

void mask_blocks_pass(struct ir *w)
{
    w->lowered.blocks = (struct mask_blocks){0};
    if (w->lowered.keys_left.n_roots == 0 || !tile_map_reads_pairs(w))
        return;
    struct extent *of = calloc((size_t)w->n_nodes, sizeof *of);
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool *same = calloc((size_t)w->n_nodes, sizeof *same);
    if (of && used && same)
        find(w, of, used, same);
    else
        w->failed = true;
    free(same);
    free(used);
    free(of);
}

bool mask_blocks_hold(const struct ir *w, int rows, int keys)
{
    return w->lowered.blocks.bounds.n_roots > 0 && w->lowered.blocks.rows % rows == 0 &&
           w->lowered.blocks.keys % keys == 0;
}
