/*
 * carry.c: how a state is carried over some tokens. In: a spec of linear attention. Out: the form of what its
 * old state is multiplied by, or why a part of the tokens cannot be computed apart.
 */
#include "gen/linear/carry.h"
#include "gen/ir/shards.h"
#include "gen/linear/columns.h"
#include "gen/linear/linear.h"

#include <stdio.h>
#include <stdlib.h>

/* Is the value 0 where the element that it is made of is? */
static bool is_zero_at_zero(const struct ir *ir, const bool *zero, int i)
{
    const struct ir_node *n = &ir->node[i];
    switch (n->op) {
    case OP_CONST:
        return n->value == 0;
    case OP_PARAM:
        return n->index == LEAF_X;
    case OP_MUL:
        return zero[n->arg[0]] || zero[n->arg[1]];
    case OP_DIV:
    case OP_NEG:
        return zero[n->arg[0]];
    case OP_ADD:
    case OP_SUB:
        return zero[n->arg[0]] && zero[n->arg[1]];
    case OP_WHERE:
        return zero[n->arg[1]] && zero[n->arg[2]];
    default:
        return false;
    }
}

static bool stage_keeps_zero(const struct ir *ir, const struct ir_stage *stage)
{
    bool *zero = calloc((size_t)ir->n_nodes + 1, sizeof *zero);
    bool keeps = zero != NULL;
    for (int i = 0; i < ir->n_nodes && zero; i++)
        zero[i] = is_zero_at_zero(ir, zero, i);
    for (int r = 0; r < stage->fn.n_roots && keeps; r++)
        keeps = zero[stage->fn.root[r]];
    free(zero);
    return keeps;
}

/* Does a v of 0 write nothing? */
static bool writes_nothing(const struct ir *ir)
{
    for (int s = 0; s < ir->mod[MOD_VALUE].n_stages; s++)
        if (!stage_keeps_zero(ir, &ir->mod[MOD_VALUE].stage[s]))
            return false;
    return true;
}

static int line_by(const struct ir *ir, const struct shard_axis *axis)
{
    const struct ir_fn *fn[LINEAR_SLOTS + 1] = {&ir->scale};
    for (int k = 0; k < LINEAR_SLOTS; k++)
        fn[k + 1] = &ir->linear.slot[k];
    const int line = shards_line(ir, fn, LINEAR_SLOTS + 1, axis);
    return line >= 0 ? line : shards_mods_line(ir, axis);
}

int linear_counting_line(const struct ir *ir)
{
    static const struct shard_axis axis = {AT_T, AT_LEN_T, AT_POS, SYM_T};
    return line_by(ir, &axis);
}

/* A matrix over the key channels is a state of d value channels: what reads d_v would come out otherwise. */
static int width_line(const struct ir *ir)
{
    static const struct shard_axis axis = {-1, AT_D_V, -1, -1};
    return line_by(ir, &axis);
}

enum carry linear_carry(const struct ir *ir, bool square, char *why, size_t size)
{
    const struct ir_linear *l = &ir->linear;
    const enum decay_form decay = linear_decay_form(ir);
    const bool mixed = l->delta.n_roots > 0 || linear_has_vectors(ir);
    const int line = linear_counting_line(ir);
    const int width = mixed && !square ? width_line(ir) : -1;
    why[0] = 0;
    if (line >= 0)
        snprintf(
            why, size,
            "line %d of the spec reads at.t, at.pos or at.len_t, or finds a token's place in an input by "
            "something "
            "else than at.t: tokens would count anew in each part; give positions as an input over \"t\"",
            line);
    else if (l->all_tokens)
        snprintf(why, size,
                 "with causal = false every token reads the sum over all tokens, which is not there before "
                 "the last "
                 "part is computed");
    else if (ir_query_heads(ir) > 1)
        snprintf(
            why, size,
            "several heads of q read a state (query_heads), which is not carried over parts; repeat k and v "
            "for each of them");
    else if (width >= 0)
        snprintf(
            why, size,
            "line %d of the spec reads at.d_v, and beside a delta rule or a reader it is found out with d "
            "value channels how a state is carried over tokens; give that number as a scalar input",
            width);
    else if (mixed && (decay == DECAY_VALUE || l->normalise))
        snprintf(why, size,
                 "beside the delta rule or a reader, a decay by value channel or a sum of keys is not "
                 "carried over "
                 "parts");
    else if (l->normalise && decay == DECAY_VALUE)
        snprintf(why, size, "a sum of keys beside a decay by value channel is not carried over parts");
    else if ((mixed || decay != DECAY_NONE) && !writes_nothing(ir))
        snprintf(why, size,
                 "value_mod makes something else than 0 of a v of 0, by which it is found out how a state is "
                 "carried "
                 "over tokens; apply it to v outside");
    if (why[0])
        return CARRY_NO;
    return mixed ? CARRY_MIXED : decay == DECAY_NONE ? CARRY_WHOLE : CARRY_SCALED;
}

bool linear_is_reverse(const struct ir *ir)
{
    return ir->linear.reverse;
}

static bool has_input_by_value(const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++)
        for (int d = 0; d < ir->input[i].n_dims; d++)
            if (ir->input[i].dim[d].sym == SYM_D_V)
                return true;
    return false;
}

bool linear_reads_by_rows(const struct ir *ir, char *why, size_t size)
{
    const int width = width_line(ir);
    why[0] = 0;
    if (ir->mod[MOD_OUTPUT].n_stages > 0)
        snprintf(why, size,
                 "output_mod makes something of o that is no sum of what it makes of the parts of o");
    else if (ir->linear.normalise)
        snprintf(why, size, "with normalise o is divided by what all tokens ahead of it add up to");
    else if (linear_decay_form(ir) == DECAY_VALUE)
        snprintf(why, size, "its decay is by value channel, and no row times a state then");
    else if (ir->mod[MOD_VALUE].n_stages > 0)
        snprintf(why, size, "value_mod would be applied to rows of d + d_v channels; apply it to v outside");
    else if (has_input_by_value(ir))
        snprintf(why, size, "it has an input over d_v, and its rows would be of d + d_v channels");
    else if (width >= 0)
        snprintf(why, size, "line %d of the spec reads at.d_v, which would be d + d_v", width);
    return why[0] == 0;
}
