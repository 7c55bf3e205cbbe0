/*
 * toeplitz.c: values that depend on at.q - at.kv alone (a Toeplitz matrix), of which a kernel keeps one: it
 * is computed once for each diagonal of a tile, and not for each pair. In: IR of attention. Out: the value
 * that is worth keeping; a score_mod whose terms of the distance are one value, so that none of them is left
 * to the pairs.
 */
#include "gen/ir/spec.h"
#include "gen/attention/lower.h"

#include <stdlib.h>

enum { DIAG_WORTH = 6 }; /* cost above which sharing along a diagonal beats computing per element */

static int cost(const struct ir *w, int node)
{
    switch ((enum ir_op)w->node[node].op) {
    case OP_LOAD:
    case OP_RANDOM:
        return 16;
    case OP_EXP2:
    case OP_EXP:
    case OP_LOG:
    case OP_LOG2:
    case OP_SQRT:
    case OP_RSQRT:
    case OP_SIN:
    case OP_COS:
    case OP_TANH:
    case OP_SIGMOID:
    case OP_SILU:
    case OP_DIV:
    case OP_POW:
    case OP_ERF:
    case OP_NORMAL:
    case OP_GELU:
        return 8;
    case OP_CONST:
    case OP_AT:
    case OP_PARAM:
    case OP_SCALAR:
        return 0;
    default:
        return 1;
    }
}

static bool is_index(const struct ir *w, int node, int field)
{
    if (w->node[node].op == OP_F32)
        node = w->node[node].arg[0];
    return ir_is_at(w, node, field);
}

/* at.q - at.kv or its opposite, as i32 or f32. */
static bool is_distance(const struct ir *w, int node)
{
    const struct ir_node *n = &w->node[node];
    return n->op == OP_SUB && ((is_index(w, n->arg[0], AT_Q) && is_index(w, n->arg[1], AT_KV)) ||
                               (is_index(w, n->arg[0], AT_KV) && is_index(w, n->arg[1], AT_Q)));
}

/* toeplitz[i]: span q and kv, through the distance alone, with head-constant operands otherwise. */
static void mark_toeplitz(const struct ir *w, bool *toeplitz)
{
    for (int i = 0; i < w->n_nodes; i++) {
        const struct ir_node *n = &w->node[i];
        bool both = (n->span & (SPAN_Q | SPAN_KV)) == (SPAN_Q | SPAN_KV) && n->op != OP_PARAM;
        bool ok = both && n->n_args > 0;
        for (int k = 0; ok && k < n->n_args; k++)
            ok = toeplitz[n->arg[k]] || w->node[n->arg[k]].span == 0;
        toeplitz[i] = ok || is_distance(w, i);
    }
}

/* Cost of the Toeplitz nodes below `root`. */
static int toeplitz_cost(const struct ir *w, int root, const bool *toeplitz)
{
    bool *below = calloc((size_t)w->n_nodes, sizeof *below);
    int total = 0;
    if (below) {
        ir_mark(w, &root, 1, below);
        for (int i = 0; i <= root; i++)
            total += below[i] && toeplitz[i] ? cost(w, i) : 0;
    }
    free(below);
    return total;
}

/* The dearest f32 Toeplitz value that an element value outside of the class uses. */
static int find_diagonal(const struct ir *w, const int *root, int n_roots, bool *used, bool *toeplitz)
{
    int best = DIAG_WORTH - 1;
    int diag = -1;
    mark_toeplitz(w, toeplitz);
    ir_mark(w, root, n_roots, used);
    for (int i = 0; i < w->n_nodes; i++)
        for (int k = 0; used[i] && !toeplitz[i] && k < w->node[i].n_args; k++) {
            int a = w->node[i].arg[k];
            if (!toeplitz[a] || w->node[a].type != TYPE_F32)
                continue;
            int total = toeplitz_cost(w, a, toeplitz);
            if (total > best) {
                best = total;
                diag = a;
            }
        }
    return diag;
}

int diagonal_of(const struct ir *w, const int *root, int n_roots)
{
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool *toeplitz = calloc((size_t)w->n_nodes, sizeof *toeplitz);
    const int diag = used && toeplitz ? find_diagonal(w, root, n_roots, used, toeplitz) : -1;
    free(used);
    free(toeplitz);
    return diag;
}

/* ---- terms of a sum ----------------------------------------------------------------------------- */

enum { MOST_TERMS = 32 };
struct sum {
    int n;
    struct signed_term {
        int node;
        bool minus;
    } term[MOST_TERMS];
};

/* The terms below `root`, in order; a value of the distance is one, whatever it is made of. False: too many.
 */
static bool take_apart(const struct ir *w, int root, const bool *toeplitz, struct sum *sum)
{
    struct sum open = {1, {{root, false}}};
    sum->n = 0;
    while (open.n > 0) {
        const struct signed_term t = open.term[--open.n];
        const struct ir_node *n = &w->node[t.node];
        const bool apart = !toeplitz[t.node] && (n->op == OP_ADD || n->op == OP_SUB || n->op == OP_NEG);
        if (sum->n + open.n + 2 > MOST_TERMS)
            return false;
        if (!apart) {
            sum->term[sum->n++] = t;
            continue;
        }
        if (n->op != OP_NEG) /* behind the first operand */
            open.term[open.n++] = (struct signed_term){n->arg[1], t.minus != (n->op == OP_SUB)};
        open.term[open.n++] = (struct signed_term){n->arg[0], t.minus != (n->op == OP_NEG)};
    }
    return true;
}

/* The sum of those terms that are of the distance, or of the others. -1: there are none. */
static int put_together(struct ir *w, const struct sum *sum, const bool *toeplitz, bool of_distance,
                        struct ir_at at)
{
    int total = -1;
    for (int i = 0; i < sum->n; i++) {
        const struct signed_term t = sum->term[i];
        if (toeplitz[t.node] != of_distance)
            continue;
        if (total < 0)
            total = t.minus ? ir_make(w, OP_NEG, &t.node, at) : t.node;
        else
            total = ir_make(w, t.minus ? OP_SUB : OP_ADD, (const int[]){total, t.node}, at);
    }
    return total;
}

/* The sum, its terms of the distance as one behind the others; -1: it is not to be changed. */
static int gathered(struct ir *w, int root, const bool *toeplitz)
{
    struct sum sum;
    const struct ir_at at = {w->node[root].file, w->node[root].line};
    int n = 0;
    if (!take_apart(w, root, toeplitz, &sum))
        return -1;
    for (int i = 0; i < sum.n; i++)
        n += toeplitz[sum.term[i].node];
    const int others = n > 1 ? put_together(w, &sum, toeplitz, false, at) : -1;
    if (others < 0)
        return -1;
    return ir_make(w, OP_ADD, (const int[]){others, put_together(w, &sum, toeplitz, true, at)}, at);
}

/* How many values of the distance the pairs of a score take. -1: memory ran out. */
static int values_taken(const struct ir *w, int root)
{
    bool *used = calloc((size_t)w->n_nodes, sizeof *used);
    bool *toeplitz = calloc((size_t)w->n_nodes, sizeof *toeplitz);
    bool *taken = calloc((size_t)w->n_nodes, sizeof *taken);
    int n = used && toeplitz && taken ? 0 : -1;
    if (n == 0) {
        mark_toeplitz(w, toeplitz);
        ir_mark(w, &root, 1, used);
    }
    for (int i = 0; n >= 0 && i <= root; i++)
        for (int k = 0; used[i] && !toeplitz[i] && k < w->node[i].n_args; k++) {
            const int a = w->node[i].arg[k];
            n += toeplitz[a] && !taken[a];
            taken[a] = true;
        }
    free(used);
    free(toeplitz);
    free(taken);
    return n;
}

void toeplitz_gather(struct ir *w)
{
    if (w->score.n_roots == 0 || diagonal_of(w, w->score.root, 1) < 0)
        return;
    const int root = w->score.root[0];
    bool *toeplitz = calloc((size_t)w->n_nodes, sizeof *toeplitz);
    if (toeplitz) {
        mark_toeplitz(w, toeplitz);
        const int sum = gathered(w, root, toeplitz);
        const int taken = sum >= 0 && !w->failed ? values_taken(w, sum) : -1;
        if (taken >= 0 && taken < values_taken(w, root))
            w->score.root[0] = sum;
    }
    free(toeplitz);
}
