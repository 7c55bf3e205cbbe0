/*
 * prove.c: what of the proofs is attention's own. In: a prover, or a spec. Out: the row that its kind names.
 */
#include "gen/attention/columns.h"
#include "gen/attention/prove/prove.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"

#include <math.h>
#include <stdlib.h>

static bool open_row(struct prover *p)
{
    p->own = calloc(1, sizeof(struct row_graph));
    if (p->own)
        row_graph_make(p->ir, p->own);
    return p->own != NULL;
}

static int run(struct prover *p, struct proof *out)
{
    prover_allow(p, p->quick ? 0.8 : 0.4);
    prove_rows(p, &out[0], &out[1], &out[2], &out[3]);
    prover_allow(p, p->quick ? 1 : 0.5);
    prove_values(p, &out[3]);
    prover_allow(p, 0.6);
    if (!p->quick)
        prove_gradients_f32(p, &out[3]);
    f32_conclude(&out[3]);
    if (p->quick)
        return 4;
    prover_allow(p, 0.75);
    prove_gradients(p, &out[4]);
    prover_allow(p, 0.85);
    prove_own_backward(p, &out[5]);
    prover_allow(p, 0.95);
    prove_backward(p, &out[6]);
    prover_allow(p, 1);
    prove_mask(p, &out[7]);
    prove_large(p, &out[8]);
    return 9;
}

static int list_contexts(const struct ir *ir, struct index_context *out)
{
    out[0] = (struct index_context){.fn = {&ir->scale, &ir->mask}, .n_fns = 2};
    out[1] = (struct index_context){.fn = {&ir->score, &ir->online, &ir->epilogue, &ir->forward},
                                    .n_fns = 4,
                                    .masked = ir->mask.n_roots > 0};
    return 2 + index_contexts_of_mods(ir, out + 2);
}

static int root_of(const struct ir *ir, const char *result)
{
    for (int i = 0; i < ir->n_finals; i++)
        if (strcmp(ir->final[i].name, result) == 0)
            return ir->epilogue.root[1 + i];
    return ir->mod[MOD_OUTPUT].n_stages > 0 ? ir->mod[MOD_OUTPUT].stage[0].fn.root[0] : ir->online.root[0];
}

/* Sums of large terms may cancel: a result is as wrong as the largest v. */
static double size_of_terms(double read, double result)
{
    (void)result;
    return fmax(read, 1);
}

/* Vector mods alone are judged there: the rest is prove_row_f32.c's, which knows how large weights are. */
static bool is_of_row(const struct prover *p, double exact)
{
    const struct ir *ir = p->ir;
    const int node = p->mode.bad_node;
    bool found = false;
    bool *used = calloc((size_t)ir->n_nodes + 1, sizeof *used);
    (void)exact;
    for (int m = 0; m < MOD_COUNT && used; m++)
        for (int s = 0; s < ir->mod[m].n_stages; s++) {
            ir_mark(ir, ir->mod[m].stage[s].fn.root, ir->mod[m].stage[s].fn.n_roots, used);
            found |= node >= 0 && used[node];
        }
    free(used);
    return !found;
}

static int line_of(const struct ir *ir, const char *tensor)
{
    const enum mod mod = strcmp(tensor, "q") == 0   ? MOD_QUERY
                         : strcmp(tensor, "k") == 0 ? MOD_KEY
                                                    : MOD_VALUE;
    if (ir->mod[mod].n_stages > 0)
        return proof_line(ir, ir->mod[mod].stage[0].fn.root[0]);
    int line = ir->score.n_roots ? proof_line(ir, ir->score.root[0]) : 0;
    if (line == 0 && ir->forward.n_roots)
        line = proof_line(ir, ir->forward.root[0]);
    return line ? line : proof_line(ir, ir->online.root[0]);
}

static const char *const TENSORS[] = {"q", "k", "v", NULL};
static const char *const RESULTS[] = {"o", NULL};
/* Those where some rows have no key in a causal mask come second; a spec that reads its inputs by at.q cannot
   take them (at.q is negative there), which is no mistake. */
static const struct gradient_sizes SIZES[] = {{.dim = {[SYM_ONE] = 1,
                                                       [SYM_B] = 2,
                                                       [SYM_H] = 4,
                                                       [SYM_H_KV] = 2,
                                                       [SYM_Q] = 7,
                                                       [SYM_KV] = 11,
                                                       [SYM_D] = 12,
                                                       [SYM_D2] = 4,
                                                       [SYM_D_V] = 8}},
                                              {.dim = {[SYM_ONE] = 1,
                                                       [SYM_B] = 1,
                                                       [SYM_H] = 2,
                                                       [SYM_H_KV] = 1,
                                                       [SYM_Q] = 6,
                                                       [SYM_KV] = 4,
                                                       [SYM_D] = 6,
                                                       [SYM_D2] = 2,
                                                       [SYM_D_V] = 4},
                                               .may_refuse = true}};

const struct kind_proofs attention_proofs = {.open = open_row,
                                             .run = run,
                                             .row = SYM_Q,
                                             .position = SYM_KV,
                                             .shared_heads = SYM_H_KV,
                                             .length = {SYM_Q, SYM_KV},
                                             .unpacked = true,
                                             .contexts = list_contexts,
                                             .sums = true,
                                             .root_of = root_of,
                                             .terms = "v",
                                             .size = size_of_terms,
                                             .says_nothing = is_of_row,
                                             .tensors = TENSORS,
                                             .results = RESULTS,
                                             .sizes = SIZES,
                                             .n_sizes = 2,
                                             .line_of = line_of,
                                             .rows_apart = true,
                                             .objective = prove_weigh_rows};
