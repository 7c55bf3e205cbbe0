/*
 * prove.c: what of the proofs is of rows alone. In: a spec. Out: the row that their kind names.
 */
#include "gen/prove/kind_proofs.h"
#include "gen/prove/prove.h"
#include "gen/rowwise/columns.h"

static int list_contexts(const struct ir *ir, struct index_context *out)
{
    out[0] = (struct index_context){.fn = {&ir->row}, .n_fns = 1};
    return 1;
}

static int root_of(const struct ir *ir, const char *result)
{
    for (int i = 0; i < ir->n_finals; i++)
        if (strcmp(ir->final[i].name, result) == 0)
            return ir->row.root[1 + i];
    return ir->row.root[0];
}

static int line_of(const struct ir *ir, const char *tensor)
{
    (void)tensor;
    return proof_line(ir, ir->row.root[0]);
}

static const char *const TENSORS[] = {"x", NULL};
static const char *const RESULTS[] = {"y", NULL};
static const struct gradient_sizes SIZES[] = {
    {.dim = {[SYM_ONE] = 1, [SYM_ROWS0] = 1, [SYM_ROWS1] = 1, [SYM_ROWS] = 6, [SYM_N] = 13}}};

const struct kind_proofs rowwise_proofs = {.run = prove_results,
                                           .row = SYM_ROWS,
                                           .contexts = list_contexts,
                                           .root_of = root_of,
                                           .tensors = TENSORS,
                                           .results = RESULTS,
                                           .sizes = SIZES,
                                           .n_sizes = 1,
                                           .line_of = line_of};
