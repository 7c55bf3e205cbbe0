/*
 * ir.c: the node pool. Nodes are hash-consed (one node per distinct value). In: leaves, and nodes that make.c
 * has typed. Out: node numbers that stay valid until ir_free. Relies on operands standing before their users.
 */
#include "gen/ir/pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ir_free(struct ir *ir)
{
    if (!ir)
        return;
    ir_free(ir->maps.gradient); /* whose own is NULL */
    free(ir->node);
    free(ir->table);
    free(ir);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h ^= value + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdu;
}

static uint64_t hash_node(const struct ir_node *n)
{
    uint64_t bits;
    memcpy(&bits, &n->value, sizeof bits);
    uint64_t h = mix(mix(n->op, n->type), (uint64_t)(uint16_t)n->index);
    for (int i = 0; i < n->n_args; i++)
        h = mix(h, (uint64_t)n->arg[i]);
    h = mix(mix(h, bits), (uint64_t)n->span | (uint64_t)n->rounded << 8);
    h = (h ^ h >> 32) *
        0xff51afd7ed558ccdu; /* products carry upwards, and a short double has its bits there */
    return h ^ h >> 29;
}

static bool same_node(const struct ir_node *a, const struct ir_node *b)
{
    return a->op == b->op && a->type == b->type && a->index == b->index && a->n_args == b->n_args &&
           a->span == b->span && a->rounded == b->rounded && memcmp(a->arg, b->arg, sizeof a->arg) == 0 &&
           memcmp(&a->value, &b->value, sizeof a->value) == 0;
}

static bool grow_table(struct ir *ir)
{
    int size = ir->table_size ? ir->table_size * 2 : 1024;
    int32_t *table = calloc((size_t)size, sizeof *table);
    if (!table)
        return false;
    for (int i = 0; i < ir->n_nodes; i++) {
        uint64_t slot = hash_node(&ir->node[i]) & (uint64_t)(size - 1);
        while (table[slot])
            slot = (slot + 1) & (uint64_t)(size - 1);
        table[slot] = i + 1;
    }
    free(ir->table);
    ir->table = table;
    ir->table_size = size;
    return true;
}

static bool grow_pool(struct ir *ir)
{
    int capacity = ir->capacity ? ir->capacity * 2 : 256;
    struct ir_node *node = realloc(ir->node, (size_t)capacity * sizeof *node);
    if (!node)
        return false;
    ir->node = node;
    ir->capacity = capacity;
    return true;
}

/* With room for nodes: 0, which stands for a node that could not be made, can always be looked at. */
struct ir *ir_new(void)
{
    struct ir *ir = calloc(1, sizeof *ir);
    if (!ir)
        return NULL;
    if (!grow_table(ir) || !grow_pool(ir)) {
        ir_free(ir);
        return NULL;
    }
    ir->node[0] = (struct ir_node){.op = OP_CONST};
    return ir;
}

int ir_intern(struct ir *ir, const struct ir_node *n)
{
    if (ir->n_nodes * 2 >= ir->table_size && !grow_table(ir)) {
        ir->failed = true;
        return 0;
    }
    uint64_t mask = (uint64_t)(ir->table_size - 1);
    uint64_t slot = hash_node(n) & mask;
    for (; ir->table[slot]; slot = (slot + 1) & mask)
        if (same_node(&ir->node[ir->table[slot] - 1], n))
            return ir->table[slot] - 1;
    if (ir->n_nodes >= IR_MAX_NODES || (ir->n_nodes == ir->capacity && !grow_pool(ir))) {
        ir->failed = true;
        return 0;
    }
    ir->node[ir->n_nodes] = *n;
    ir->table[slot] = ++ir->n_nodes;
    return ir->n_nodes - 1;
}

struct ir_node ir_blank(enum ir_op op, enum ir_type type, struct ir_at at)
{
    return (struct ir_node){.op = (uint8_t)op,
                            .type = (uint8_t)type,
                            .placed = op == OP_CONST || op == OP_AT,
                            .arg = {-1, -1, -1, -1, -1},
                            .file = at.file,
                            .line = at.line};
}

int ir_const(struct ir *ir, double value, enum ir_type type)
{
    struct ir_node n = ir_blank(OP_CONST, type, (struct ir_at){0, 0});
    n.value = isnan(value) ? (double)NAN : value;
    return ir_intern(ir, &n);
}

static bool is_corner(enum ir_op op, int index)
{
    return op == OP_PARAM && index >= LEAF_ROW0 && index <= LEAF_KV1;
}

int ir_leaf(struct ir *ir, enum ir_op op, int index, enum ir_type type, uint8_t span, struct ir_at at)
{
    struct ir_node n = ir_blank(op, type, at);
    n.index = (int16_t)index;
    n.span = span;
    n.placed |= (op == OP_SCALAR && !ir->input[index].grad) || is_corner(op, index);
    return ir_intern(ir, &n);
}

static uint8_t param_span(int param)
{
    if (param >= LEAF_STATE && param < LEAF_SPLIT_STATE)
        return SPAN_Q;
    if (param >= LEAF_SPLIT_STATE && param < LEAF_DW)
        return SPAN_Q | SPAN_SPLIT;
    if (((param >= LEAF_DFINAL && param < LEAF_DX) || param >= LEAF_DSTAT) && param != LEAF_V)
        return SPAN_Q;
    switch (param) {
    case LEAF_V:
    case LEAF_X:
    case LEAF_LO:
    case LEAF_HI:
    case LEAF_DX:
    case LEAF_DLO:
    case LEAF_DHI:
        return SPAN_Q | SPAN_DIM;
    default:
        return SPAN_Q | SPAN_KV;
    }
}

int ir_param(struct ir *ir, int param, struct ir_at at)
{
    return ir_leaf(ir, OP_PARAM, param, TYPE_F32, param_span(param), at);
}

int ir_operand(struct ir *ir, int tensor, int half)
{
    const struct map_tensor *t = &ir->maps.tensor[tensor];
    const bool integer = t->dtype == LATHE_I32 || t->dtype == LATHE_U8;
    unsigned span = 0;
    for (int d = 0; d < t->n_dims; d++)
        span |= 1u << t->dim[d];
    return ir_leaf(ir, OP_PARAM, LEAF_TENSOR + 2 * tensor + half, integer ? TYPE_I32 : TYPE_F32,
                   (uint8_t)span, (struct ir_at){0, 0});
}

int ir_at_field(struct ir *ir, int field, struct ir_at at)
{
    static const uint8_t span[AT_COUNT] = {
#define AT_SPAN(id, name, bits) bits,
        AT_MAP(AT_SPAN)
#undef AT_SPAN
    };
    return ir_leaf(ir, OP_AT, field, TYPE_I32, span[field], at);
}

void ir_take_operand(const struct ir *ir, struct ir_node *n, int arg)
{
    const struct ir_node *a = &ir->node[arg];
    n->arg[n->n_args++] = arg;
    n->span |= a->span;
    n->placed &= a->placed;
    if (a->phase > n->phase)
        n->phase = a->phase;
}

int ir_load(struct ir *ir, int input, const int *index, int count, struct ir_at at)
{
    bool is_float = ir->input[input].dtype != LATHE_I32 && ir->input[input].dtype != LATHE_U8;
    struct ir_node n = ir_blank(OP_LOAD, is_float ? TYPE_F32 : TYPE_I32, at);
    n.index = (int16_t)input;
    for (int i = 0; i < count; i++)
        ir_take_operand(ir, &n, index[i]);
    return ir_intern(ir, &n);
}

/* ---- of a spec --------------------------------------------------------------------------------- */

int ir_stage_paired(const struct ir_stage *stage, int n)
{
    return stage->paired > 0 ? stage->paired : n;
}

int ir_dim_for_pairs(const struct ir *ir, int dim)
{
    for (int m = 0; m < MOD_COUNT; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++)
            if (ir->mod[m].stage[s].paired > dim)
                dim = ir->mod[m].stage[s].paired;
    return dim;
}
