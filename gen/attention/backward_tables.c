/*
 * backward_tables.c: which sums into gradients of inputs lanes of a warp may bring to one element at once,
 * and how large the tables are in which a warp adds them up in shared memory. In: lowered formulas. Out:
 * sizes, for the planner and the emitter.
 */
#include "gen/attention/backward.h"

enum {
    LANES = 32,
    MOST_BY_LANE = 2048, /* floats of a table that has an entry of its own for each lane */
    UNKNOWN_ROOM = 1024  /* of one whose size is known at the launch: it serves if it turns out to fit */
};

bool site_varies(const struct ir *ir, int leaf, int d)
{
    return ir->node[ir->node[leaf].arg[d]].span != 0;
}

bool site_meets(const struct ir *ir, const struct site *site)
{
    const struct ir_node *n = &ir->node[site->leaf];
    bool row = false;
    bool key = site->form == ADDRESS_ROW; /* lanes with the same query have been added up */
    if (n->op != OP_LOAD || (site->form != ADDRESS_ELEMENT && site->form != ADDRESS_ROW))
        return false;
    for (int d = 0; d < n->n_args; d++) {
        row |= ir_is_at(ir, n->arg[d], AT_ROW) || ir_is_at(ir, n->arg[d], AT_Q);
        key |= ir_is_at(ir, n->arg[d], AT_KV);
    }
    return !(row && key);
}

/* Of one dim of an input; 0: known at the launch; -1: as long as a row is. */
static int64_t size_of(const struct problem *problem, const struct sig_dim *dim)
{
    if (dim->literal > 0)
        return dim->literal;
    if (dim->sym == SYM_D || dim->sym == SYM_D_V)
        return problem->dim[dim->sym];
    return dim->sym == SYM_Q || dim->sym == SYM_KV || dim->sym == SYM_ALL_KV ? -1 : 0;
}

static int64_t entries_of(const struct ir *ir, const struct problem *problem, int leaf)
{
    const struct ir_node *n = &ir->node[leaf];
    int64_t entries = 1;
    for (int d = 0; d < n->n_args; d++) {
        const int64_t size = site_varies(ir, leaf, d) ? size_of(problem, &ir->input[n->index].dim[d]) : 1;
        if (size < 0)
            return -1;
        entries *= size;
        if (entries > INT32_MAX)
            return -1;
    }
    return entries;
}

void site_tables_make(const struct ir *ir, const struct problem *problem, const struct site_list *list,
                      struct site_tables *out)
{
    out->n = list->n;
    for (int i = 0; i < list->n; i++)
        out->entries[i] = site_meets(ir, &list->item[i]) ? entries_of(ir, problem, list->item[i].leaf) : -1;
}

/* An entry for each lane needs no exchange between lanes; else one for all of them. */
static int room_for(int64_t entries, int share)
{
    if (entries < 0)
        return 0;
    if (entries == 0)
        return share < UNKNOWN_ROOM ? share : UNKNOWN_ROOM;
    if (LANES * entries <= MOST_BY_LANE && LANES * entries <= share)
        return (int)(LANES * entries);
    return entries <= share ? (int)entries : 0;
}

int site_tables_fit(const struct site_tables *t, int budget, int room[MAX_SITES])
{
    int left = budget;
    int waiting = 0;
    for (int i = 0; i < t->n; i++)
        waiting += t->entries[i] >= 0;
    for (int i = 0; i < t->n; i++) {
        room[i] = room_for(t->entries[i], waiting > 0 ? left / waiting : 0);
        left -= room[i];
        waiting -= t->entries[i] >= 0;
    }
    return budget - left;
}
