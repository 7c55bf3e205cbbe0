/*
 * prove.c: the door of `lathe check`: everything about a spec that can be proved without a GPU, on random
 * data in double precision. In: a checked IR, which stays as it is, and a seed. Out: verdicts, the caller's.
 * The proofs are in prove_rows.c, prove_grad.c, prove_back.c and prove_mask.c; each works on a copy of the IR
 * whose float inputs take any dtype, so that all arguments can be f64.
 */
#include "prove.h"

#include <string.h>

static bool open_prover(struct prover *p, const struct ir *ir, unsigned seed)
{
    memset(p, 0, sizeof *p);
    p->random = ((uint64_t)seed + 1) * 0x9e3779b97f4a7c15u;
    p->ir = ir_clone(ir);
    if (!p->ir)
        return false;
    for (int i = 0; i < p->ir->n_inputs; i++) {
        struct input *in = &p->ir->input[i];
        if (in->dtype != LATHE_I32 && in->dtype != LATHE_U8)
            in->dtype = LATHE_NONE;
    }
    for (int i = 0; i < p->ir->n_tensors; i++) {
        struct map_tensor *t = &p->ir->tensor[i];
        if (t->dtype != LATHE_I32 && t->dtype != LATHE_U8)
            t->dtype = LATHE_NONE;
    }
    struct diag ignored = {0};
    if (p->ir->kind == KIND_ELEMENTWISE && !gradient_make(p->ir, &ignored))
        return false;
    signature_make(p->ir, LATHE_FORWARD, &p->forward);
    signature_make(p->ir, LATHE_BACKWARD, &p->backward);
    if (p->ir->kind == KIND_ATTENTION)
        row_graph_make(p->ir, &p->row);
    return !p->ir->failed;
}

/* Every element gets data, at every size that is tried: an input of more is not looked at. */
static const double MOST_ELEMENTS = 0x1p26;

static const struct input *too_large(const struct ir *ir)
{
    for (int i = 0; i < ir->n_inputs; i++) {
        double n = 1;
        for (int d = 0; d < ir->input[i].n_dims; d++)
            n *= ir->input[i].dim[d].literal > 0 ? ir->input[i].dim[d].literal : 1;
        if (n > MOST_ELEMENTS)
            return &ir->input[i];
    }
    return NULL;
}

int prove(struct ir *ir, unsigned seed, struct proof *out)
{
    const struct input *large = too_large(ir);
    struct prover p;
    int n = 0;
    if (large) {
        proof_begin(&out[n], "gradients", 0);
        proof_blame(
            &out[n++], large->line,
            "input '%s' has more than 2^26 elements by its declaration alone, which all would need data; "
            "give a dim a name in place of its size to have it checked",
            large->name);
        return n;
    }
    if (!open_prover(&p, ir, seed)) {
        proof_begin(&out[n], "gradients", 0);
        proof_blame(&out[n++], 0, "out of memory, or the spec makes more than %d nodes", IR_MAX_NODES);
    } else if (ir->kind == KIND_ATTENTION) {
        prove_rows(&p, &out[0], &out[1], &out[2]);
        prove_gradients(&p, &out[3]);
        prove_own_backward(&p, &out[4]);
        prove_backward(&p, &out[5]);
        prove_mask(&p, &out[6]);
        n = 7;
    } else {
        prove_gradients(&p, &out[n++]);
    }
    ir_free(p.ir);
    return n;
}
