/*
 * prove.c: what of the proofs is of maps alone. In: a prover, or a spec. Out: the row that their kind names.
 */
#include "gen/base/diag.h"
#include "gen/elementwise/columns.h"
#include "gen/elementwise/gradient.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/prove.h"

/* Of the copy, whose tensors are of other dtypes than the spec's. */
static bool derive(struct prover *p)
{
    struct diag ignored = {0};
    return gradient_make(p->ir, &ignored);
}

static int list_contexts(const struct ir *ir, struct index_context *out)
{
    for (int m = 0; m < ir->maps.n_maps; m++)
        out[m] = (struct index_context){.fn = {&ir->maps.map[m].fn}, .n_fns = 1, .map = &ir->maps.map[m]};
    return ir->maps.n_maps;
}

/* 0 times what a point of an unlikely map overflows with. */
static bool is_by_chance(const struct prover *p, double exact)
{
    (void)p;
    return exact == 0;
}

static int line_of(const struct ir *ir, const char *tensor)
{
    (void)tensor;
    return proof_line(ir, ir->maps.map[0].fn.root[0]);
}

static const char *const NONE[] = {NULL}; /* tensors and results are the spec's own */
static const struct gradient_sizes SIZES[] = {{.dim = {[SYM_ONE] = 1}}};

const struct kind_proofs elementwise_proofs = {.derive = derive,
                                               .run = prove_results,
                                               .contexts = list_contexts,
                                               .says_nothing = is_by_chance,
                                               .tensors = NONE,
                                               .results = NONE,
                                               .sizes = SIZES,
                                               .n_sizes = 1,
                                               .line_of = line_of};
