/*
 * mod_factors.c: scales of caches of 8 bits, where mods of k and v are products by them. In: a spec, a call
 * of few queries, or with keys in pages, with k or v of 8 bits. Out: a spec without such mods, whose kernels
 * read what is stored, or none.
 *
 * A factor f of a key that no element tells apart is one of its score, <q, f k> = f <q, k>, and that of a
 * value one of its weight, p (f v) = (p f) v, behind the sum of the weights. The mod would round f k to 16
 * bits; here the product by f is one of f32, and of a weight, which is rounded as any weight.
 */
#include "gen/arguments/problem.h"
#include "gen/attention/lower.h"
#include "gen/ir/log.h"
#include "gen/ir/spec.h"
#include "gen/lower/rewrite.h"
#include "runtime/recipe/bind.h"

/* The same for every element of the row, whatever is in it, and whenever it is asked for. */
static bool is_of_row(const struct ir *w, int node)
{
    bool used[IR_MAX_NODES] = {false};
    bool found = (w->node[node].span & SPAN_DIM) != 0;
    ir_mark(w, &node, 1, used);
    for (int i = 0; i <= node; i++)
        found |= used[i] &&
                 (w->node[i].op == OP_RANDOM || (w->node[i].op == OP_PARAM && w->node[i].index == LEAF_X));
    return !found;
}

/* `node` is LEAF_X times `factor` times what is returned; -1: it is something else. */
static int factor_of(struct ir *w, int node, int factor)
{
    while (w->node[node].op != OP_PARAM) {
        const struct ir_node n = w->node[node];
        const bool right = n.n_args == 2 && is_of_row(w, n.arg[1]);
        const bool left = n.op == OP_MUL && is_of_row(w, n.arg[0]);
        if (n.op == OP_NEG)
            factor = ir1(w, OP_NEG, factor);
        else if ((n.op == OP_MUL || n.op == OP_DIV) && right)
            factor = ir2(w, (enum ir_op)n.op, factor, n.arg[1]);
        else if (left)
            factor = ir2(w, OP_MUL, factor, n.arg[0]);
        else
            return -1;
        node = n.arg[left && !right ? 1 : 0];
    }
    return w->node[node].index == LEAF_X ? factor : -1;
}

/* The factor that a mod is, as a value of its key; -1: the mod is something else. */
static int factor_of_mod(struct ir *w, const struct ir_mod *mod)
{
    int factor = ir_const(w, 1.0, TYPE_F32);
    for (int s = 0; s < mod->n_stages && factor >= 0; s++)
        factor = mod->stage[s].form == STAGE_ELEMENT ? factor_of(w, mod->stage[s].fn.root[0], factor) : -1;
    if (factor < 0)
        return -1;
    const int pos = ir_at_field(w, AT_POS, (struct ir_at){0, 0});
    const int kv = ir_at_field(w, AT_KV, (struct ir_at){0, 0});
    return ir_substitute(w, factor, &pos, &kv, 1);
}

static void multiply_scores(struct ir *w, int factor)
{
    const int s = ir_param(w, LEAF_S, (struct ir_at){0, 0});
    const int scaled = ir2(w, OP_MUL, s, factor);
    w->score.root[0] = w->score.n_roots > 0 ? ir_substitute(w, w->score.root[0], &s, &scaled, 1) : scaled;
    w->score.n_roots = 1;
}

static bool move(struct ir *w, enum mod which)
{
    const int factor = factor_of_mod(w, &w->mod[which]);
    if (factor < 0)
        return false;
    if (which == MOD_KEY)
        multiply_scores(w, factor);
    else
        w->online.root[0] = ir2(w, OP_MUL, w->online.root[0], factor);
    w->mod[which].n_stages = 0;
    return true;
}

/* Keys that are values would want both. Few queries, and any against keys in pages, are those of kernels that
   read 8 bits. Weights of f16 are divided by the largest of their row (hold_weights.c), for which values that
   are not in pages have another way, ahead of the kernel. */
static bool is_wanted(const struct ir *ir, const struct signature *sig, const struct problem *problem,
                      enum mod which)
{
    const lathe_dtype q = problem->dtype[DTYPE_Q];
    const bool few = (lathe__lengths(problem) & LENGTHS_FEW_QUERIES) != 0;
    const bool of_use =
        q == LATHE_BF16 || (q == LATHE_F16 && which == MOD_KEY) || (q != LATHE_F64 && problem->paged);
    return !ir->v_is_k && of_use && (few || problem->paged) && ir->mod[which].n_stages > 0 &&
           lathe__narrow_dtype(sig, problem, which == MOD_KEY ? "k" : "v") != LATHE_NONE;
}

lathe_status attention_move_factors(const struct ir *ir, const struct signature *sig,
                                    const struct problem *problem, bool moved[MOD_COUNT], struct ir **out)
{
    *out = NULL;
    if (!is_wanted(ir, sig, problem, MOD_KEY) && !is_wanted(ir, sig, problem, MOD_VALUE))
        return LATHE_OK;
    struct ir *w = ir_clone(ir);
    if (!w)
        return LATHE_MEMORY;
    ir_log_begin(w, "spec, read as it is stored");
    for (enum mod m = MOD_KEY; m <= MOD_VALUE; m++)
        moved[m] = is_wanted(ir, sig, problem, m) && move(w, m);
    ir_passed(w, "mod_factors");
    const lathe_status status = lower_done(&w);
    if (status == LATHE_OK && (moved[MOD_KEY] || moved[MOD_VALUE]))
        *out = w;
    else
        ir_free(w);
    return status;
}
