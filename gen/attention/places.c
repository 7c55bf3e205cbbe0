/*
 * places.c: formulas of a call that has a part of all keys or heads. In: the clone of a spec, its problem.
 * Out: the same, with at.kv, at.q and at.pos moved by the first key that is here (and at.kv by what lies
 * between chunks of keys), at.h and at.h_kv by the first head, and the sizes of all in the place of those
 * that are here; and inputs with a place for each of all.
 *
 * Kernels count queries and keys from the first key that is here (the launch moves q_start), so a difference
 * or a comparison of positions is the same moved or not, and stays as it is: masks such as causal and
 * windows, and scores of distances, are then what they are of all keys, and so is everything that is found
 * out about them.
 */
#include "gen/attention/places.h"
#include "gen/attention/columns.h"
#include "gen/attention/backward.h"
#include "gen/ir/shards.h"
#include "gen/ir/spec.h"
#include "runtime/recipe/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct moved { /* value + times * the first key */
    int value; /* node */
    int times;
};

struct mover {
    struct ir *w;
    bool keys, heads, chunked;
    bool of_keys;     /* the function is a mod of keys or values, whose at.pos is one of a key */
    struct moved *of; /* of every node below a root */
};

static int field(struct ir *w, int at)
{
    return ir_at_field(w, at, (struct ir_at){0, 0});
}

static int heads_of_key_head(struct ir *w)
{
    return ir2(w, OP_IDIV, field(w, AT_N_H), field(w, AT_N_H_KV));
}

/* A key of chunks that lie apart: it only ever grows with the key, and so do bounds of tiles. */
static int place_of_key(struct ir *w, int key)
{
    const int chunk = field(w, AT_KV_CHUNK);
    const int apart = ir2(w, OP_SUB, field(w, AT_KV_STEP), chunk);
    return ir2(w, OP_ADD, key, ir2(w, OP_MUL, ir2(w, OP_IDIV, key, chunk), apart));
}

/* Of a position; or of a head and of sizes, as they are of all. */
static struct moved leaf(const struct mover *m, int i)
{
    struct ir *w = m->w;
    const int at = w->node[i].op == OP_AT ? w->node[i].index : AT_COUNT;
    if (m->chunked && (at == AT_KV || (at == AT_POS && m->of_keys)))
        return (struct moved){place_of_key(w, i), 1};
    if (m->keys && (at == AT_KV || at == AT_Q || at == AT_POS))
        return (struct moved){i, 1};
    if (m->keys && at == AT_LEN_KV)
        return (struct moved){field(w, AT_ALL_KV), 0};
    if (!m->heads)
        return (struct moved){i, 0};
    if (at == AT_H)
        return (struct moved){ir2(w, OP_ADD, i, field(w, AT_H_START)), 0};
    if (at == AT_H_KV)
        return (struct moved){ir2(w, OP_ADD, i, ir2(w, OP_IDIV, field(w, AT_H_START), heads_of_key_head(w))),
                              0};
    if (at == AT_N_H)
        return (struct moved){field(w, AT_ALL_H), 0};
    if (at == AT_N_H_KV)
        return (struct moved){ir2(w, OP_IDIV, field(w, AT_ALL_H), heads_of_key_head(w)), 0};
    return (struct moved){i, 0};
}

/* The value where it is. */
static int whole(const struct mover *m, struct moved v)
{
    struct ir *w = m->w;
    if (v.times == 0)
        return v.value;
    int by = field(w, AT_KV_START);
    if (v.times != 1)
        by = ir2(w, OP_MUL, by, ir_const(w, v.times, TYPE_I32));
    return ir2(w, OP_ADD, v.value, by);
}

static bool compares(int op)
{
    return op == OP_LT || op == OP_LE || op == OP_GT || op == OP_GE || op == OP_EQ || op == OP_NE;
}

static bool is_cast(const struct ir *w, int node)
{
    return w->node[node].op == OP_F32 && w->node[w->node[node].arg[0]].type == TYPE_I32;
}

/* The integers below f32(a) and f32(b); a and b themselves. Positions are below 2^24, and so are their casts
   exact. */
static bool take_pair(const struct mover *m, const struct ir_node *n, struct moved out[2], bool *casts)
{
    const struct ir *w = m->w;
    *casts = is_cast(w, n->arg[0]) && is_cast(w, n->arg[1]);
    for (int k = 0; k < 2; k++)
        out[k] = m->of[*casts ? w->node[n->arg[k]].arg[0] : n->arg[k]];
    return out[0].times != 0 || out[1].times != 0;
}

/* Where both are moved alike, their difference and comparison are as if neither were. */
static bool alike(const struct mover *m, const struct ir_node *n, struct moved *out)
{
    struct moved of[2];
    bool casts = false;
    if ((n->op != OP_SUB && !compares(n->op)) || !take_pair(m, n, of, &casts) || of[0].times != of[1].times)
        return false;
    int arg[IR_MAX_ARGS] = {of[0].value, of[1].value};
    for (int k = 0; k < 2 && casts; k++)
        arg[k] = ir1(m->w, OP_F32, arg[k]);
    *out = (struct moved){ir_again(m->w, n, arg), 0};
    return true;
}

/* Sums of integers keep what they are moved by apart. */
static bool sum(const struct mover *m, const struct ir_node *n, struct moved *out)
{
    if (n->type != TYPE_I32 || (n->op != OP_ADD && n->op != OP_SUB))
        return false;
    const struct moved a = m->of[n->arg[0]];
    const struct moved b = m->of[n->arg[1]];
    const int arg[IR_MAX_ARGS] = {a.value, b.value};
    *out = (struct moved){ir_again(m->w, n, arg), n->op == OP_ADD ? a.times + b.times : a.times - b.times};
    return true;
}

static struct moved move(const struct mover *m, int i)
{
    const struct ir_node n = m->w->node[i]; /* a copy: the pool grows below */
    struct moved out;
    int arg[IR_MAX_ARGS] = {0};
    if (n.n_args == 0)
        return leaf(m, i);
    if (m->keys && (alike(m, &n, &out) || sum(m, &n, &out)))
        return out;
    for (int k = 0; k < n.n_args; k++)
        arg[k] = whole(m, m->of[n.arg[k]]);
    return (struct moved){ir_again(m->w, &n, arg), 0};
}

static void move_fn(struct mover *m, struct ir_fn *fn)
{
    for (int r = 0; r < fn->n_roots && !m->w->failed; r++) {
        const int root = fn->root[r];
        bool *used = calloc((size_t)m->w->n_nodes, sizeof *used);
        m->of = calloc((size_t)root + 1, sizeof *m->of);
        if (used && m->of) {
            ir_mark(m->w, &root, 1, used);
            for (int i = 0; i <= root; i++)
                if (used[i])
                    m->of[i] = move(m, i);
            fn->root[r] = whole(m, m->of[root]);
        } else {
            m->w->failed = true;
        }
        free(used);
        free(m->of);
    }
}

/* An input of which this call has a part of the places has them all. */
static void widen_inputs(struct ir *w, const struct mover *m)
{
    for (int i = 0; i < w->n_inputs; i++)
        for (int d = 0; d < w->input[i].n_dims; d++) {
            struct sig_dim *dim = &w->input[i].dim[d];
            const int all = dim->literal > 0 ? SYM_ONE : lathe__whole_sym(dim->sym);
            if (all != SYM_ONE && (all == SYM_ALL_KV ? m->keys : m->heads))
                dim->sym = (uint8_t)all;
        }
}

void places_pass(struct ir *w, const struct problem *problem)
{
    struct mover m = {
        .w = w, .keys = problem->cut_keys, .heads = problem->cut_heads, .chunked = problem->chunked};
    struct ir_fn *const fn[] = {&w->scale,    &w->mask,    &w->score,  &w->online,
                                &w->epilogue, &w->forward, &w->combine};
    if (!m.keys && !m.heads)
        return;
    for (size_t f = 0; f < sizeof fn / sizeof *fn; f++)
        move_fn(&m, fn[f]);
    for (int k = 0; k < MOD_COUNT; k++) {
        m.of_keys = k == MOD_KEY || k == MOD_VALUE;
        for (int s = 0; s < w->mod[k].n_stages; s++)
            move_fn(&m, &w->mod[k].stage[s].fn);
    }
    widen_inputs(w, &m);
}

/* ---- the backward pass ---------------------------------------------------------------------------- */

void places_count_rows(struct ir *w, struct backward *back, const struct problem *problem)
{
    if (!problem->cut_keys || back->row.n == 0)
        return;
    const int zero = ir_const(w, 0, TYPE_I32);
    const int first = ir2(w, OP_EQ, field(w, AT_KV_START), zero);
    const int counts = ir2(w, OP_AND, first, ir2(w, OP_GT, field(w, AT_LEN_KV), zero));
    for (int i = 0; i < back->row.n; i++)
        back->row.item[i].value = ir3(w, OP_WHERE, counts, back->row.item[i].value, ir_const(w, 0, TYPE_F32));
    for (int i = 0; i < back->empty.n; i++)
        back->empty.item[i].value =
            ir3(w, OP_WHERE, counts, back->empty.item[i].value, ir_const(w, 0, TYPE_F32));
}

bool places_sums_fit(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                     const struct backward *back, char *why)
{
    if (!problem->cut_keys)
        return true;
    if (back->n_sums > 0) {
        snprintf(why, WHY_BYTES,
                 "kv_start: the gradients of this online_func need sums over all keys of a row, which a part "
                 "of them does not have; give all keys to one launch");
        return false;
    }
    if (!backward_runs_forward(ir, sig, problem, back))
        return true;
    if (ir->mod[MOD_OUTPUT].n_stages > 0)
        snprintf(why, WHY_BYTES,
                 "kv_start: beside an output_mod the backward pass makes o anew, for which it needs all "
                 "keys; apply the mod to o outside");
    else
        snprintf(why, WHY_BYTES,
                 "kv_start: the gradients of a part of the keys need o and the finals of all of them, which "
                 "combine gives; where d_v is no multiple of 8 or a row state is needed that is no final, "
                 "give all keys to one launch");
    return false;
}

/* ---- the signature ------------------------------------------------------------------------------- */

void sign_whole_inputs(struct signature *s, const struct ir *ir)
{
    for (int i = 0; i < s->n_args; i++) {
        const char *const name = s->arg[i].name;
        bool input = s->arg[i].role == ROLE_INPUT;
        for (int k = 0; k < ir->n_inputs; k++)
            input |= name[0] == 'd' && strcmp(name + 1, ir->input[k].name) == 0;
        for (int d = 0; d < s->arg[i].ndim && input; d++) {
            struct sig_dim *dim = &s->arg[i].dim[d];
            dim->whole = lathe__whole_sym(dim->sym);
        }
    }
}

/* ---- a part of the queries -------------------------------------------------------------------------- */

/* The line of the first formula that counts tokens along an axis; -1: none does; 0: no memory. */
static int counting_line(const struct ir *ir, const struct shard_axis *axis)
{
    const struct ir_fn *const fn[] = {&ir->scale,    &ir->mask,    &ir->score,  &ir->online,
                                      &ir->epilogue, &ir->forward, &ir->combine};
    const int found = shards_line(ir, fn, sizeof fn / sizeof *fn, axis);
    return found >= 0 ? found : shards_mods_line(ir, axis);
}

int places_counting_line(const struct ir *ir)
{
    static const struct shard_axis axis = {AT_ROW, AT_LEN_Q, -1, SYM_Q};
    return counting_line(ir, &axis);
}

bool places_without_length(const struct ir *ir, int *line)
{
    static const struct shard_axis axis = {AT_COUNT, AT_LEN_KV, -1, SYM_COUNT};
    const int found = counting_line(ir, &axis);
    *line = found > 0 ? found : 0;
    return found < 0;
}

bool places_by_query(const struct ir *ir, int *line)
{
    const int found = places_counting_line(ir);
    *line = found > 0 ? found : 0;
    return found < 0;
}

/* Is the node true of no pair whose key is behind its query? */
static bool is_causal(const struct ir *ir, const bool *causal, int i)
{
    const struct ir_node *n = &ir->node[i];
    if (n->op == OP_AND)
        return causal[n->arg[0]] || causal[n->arg[1]];
    if (n->op == OP_GE || n->op == OP_GT)
        return ir_is_at(ir, n->arg[0], AT_Q) && ir_is_at(ir, n->arg[1], AT_KV);
    if (n->op == OP_LE || n->op == OP_LT)
        return ir_is_at(ir, n->arg[0], AT_KV) && ir_is_at(ir, n->arg[1], AT_Q);
    return false;
}

bool places_are_causal(const struct ir *ir)
{
    bool *causal = calloc((size_t)ir->n_nodes + 1, sizeof *causal);
    for (int i = 0; i < ir->n_nodes && causal; i++)
        causal[i] = is_causal(ir, causal, i);
    const bool found = causal && ir->mask.n_roots == 1 && causal[ir->mask.root[0]];
    free(causal);
    return found;
}
