/*
 * prove.c: what of the proofs is linear attention's own. In: a prover, or a spec. Out: the row that its kind
 * names.
 */
#include "gen/linear/columns.h"
#include "gen/linear/linear.h"
#include "gen/linear/prove.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <math.h>

static int run(struct prover *p, struct proof *out)
{
    prover_allow(p, p->quick ? 0.6 : 0.25);
    prove_chunks(p, &out[0]);
    prover_allow(p, p->quick ? 0.8 : 0.4);
    prove_parts(p, &out[1]);
    prover_allow(p, p->quick ? 1 : 0.6);
    f32_begin(p, &out[2]);
    prove_values(p, &out[2]);
    if (!p->quick && out[2].passed)
        prove_tokens(p, &out[2]);
    if (!p->quick)
        prove_gates(p, &out[2]);
    prover_allow(p, p->quick ? 1 : 0.75);
    if (!p->quick)
        prove_gradients_f32(p, &out[2]);
    f32_conclude(&out[2]);
    if (p->quick)
        return 3;
    prover_allow(p, 1);
    prove_gradients(p, &out[3]);
    return 4;
}

/* at.i of a slot is below d, at.j below d_v; a formula has one of them. */
static int list_contexts(const struct ir *ir, struct index_context *out)
{
    for (int k = 0; k < LINEAR_FUNCTIONS; k++) {
        const struct ir_fn *fn = linear_function_of(ir, (enum linear_function)k);
        out[k] = (struct index_context){.fn = {fn}, .n_fns = 1};
        if (fn->n_roots > 0 && (linear_slot_of((enum linear_function)k)->varies & (BY_KEYS | BY_VALUES)) != 0)
            out[k].dim_sym = ir_depends_on(ir, fn->root[0], OP_AT, AT_J) ? SYM_D_V : SYM_D;
    }
    return LINEAR_FUNCTIONS + index_contexts_of_mods(ir, out + LINEAR_FUNCTIONS);
}

static int root_of(const struct ir *ir, const char *result)
{
    const struct ir_linear *l = &ir->linear;
    (void)result;
    return ir->mod[MOD_OUTPUT].n_stages > 0 ? ir->mod[MOD_OUTPUT].stage[0].fn.root[0]
           : l->decay.n_roots > 0           ? l->decay.root[0]
           : l->delta.n_roots > 0           ? l->delta.root[0]
           : l->reader.n_roots > 0          ? l->reader.root[0]
                                            : ir->scale.root[0];
}

static double size_of_result(double read, double result)
{
    (void)read;
    return fmax(result, 1);
}

static int line_of(const struct ir *ir, const char *tensor)
{
    const struct ir_linear *l = &ir->linear;
    const enum mod mod = strcmp(tensor, "q") == 0   ? MOD_QUERY
                         : strcmp(tensor, "k") == 0 ? MOD_KEY
                                                    : MOD_VALUE;
    if (ir->mod[mod].n_stages > 0)
        return proof_line(ir, ir->mod[mod].stage[0].fn.root[0]);
    return l->delta.n_roots > 0    ? proof_line(ir, l->delta.root[0])
           : l->reader.n_roots > 0 ? proof_line(ir, l->reader.root[0])
           : l->decay.n_roots > 0  ? proof_line(ir, l->decay.root[0])
                                   : 0;
}

static bool reads_by_batch(const struct ir *ir)
{
    return linear_reads_by_batch(ir) >= 0;
}

static const char *const TENSORS[] = {"q", "k", "v", "state", "norm", NULL};
static const char *const RESULTS[] = {"o", "state_out", "norm_out", NULL};
static const struct gradient_sizes SIZES[] = {{.dim = {[SYM_ONE] = 1,
                                                       [SYM_B] = 2,
                                                       [SYM_H] = 4,
                                                       [SYM_H_K] = 2,
                                                       [SYM_T] = 7,
                                                       [SYM_D] = 8,
                                                       [SYM_D_V] = 12,
                                                       [SYM_SEQS] = 2,
                                                       [SYM_SLOTS] = 2}},
                                              {.dim = {[SYM_ONE] = 1, /* packed */
                                                       [SYM_B] = 1,
                                                       [SYM_H] = 2,
                                                       [SYM_H_K] = 1,
                                                       [SYM_T] = 9,
                                                       [SYM_D] = 6,
                                                       [SYM_D_V] = 4,
                                                       [SYM_SEQS] = 4,
                                                       [SYM_SLOTS] = 4}}};

const struct kind_proofs linear_proofs = {.run = run,
                                          .position = SYM_T,
                                          .shared_heads = SYM_H_K,
                                          .length = {SYM_T},
                                          .contexts = list_contexts,
                                          .never_packed = reads_by_batch,
                                          .sums = true,
                                          .mixes = true,
                                          .root_of = root_of,
                                          .size = size_of_result,
                                          .tensors = TENSORS,
                                          .results = RESULTS,
                                          .sizes = SIZES,
                                          .n_sizes = 2,
                                          .line_of = line_of};
