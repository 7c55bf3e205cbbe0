/*
 * prove.c: the door of `lathe check`: everything about a spec that can be proved without a GPU, on random
 * data in double precision. In: a checked IR, which stays as it is, and a seed. Out: verdicts, the caller's.
 * values.c and gradients.c are proofs of every kind; what is one kind's own, and which proofs it has, stands
 * in prove.c of its folder (kind_proofs.h). Each works on a copy of the IR whose float inputs take any dtype,
 * so that all arguments can be f64.
 */
#include "gen/prove/prove.h"
#include "gen/arguments/signature.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"

#include <stdlib.h>
#include <string.h>

static const double QUICK_SECONDS = 0.2;

static bool open_prover(struct prover *p, const struct ir *ir, unsigned seed, const struct prove_given *given)
{
    memset(p, 0, sizeof *p);
    p->seed = seed;
    p->given = given;
    p->random = ((uint64_t)seed + 1) * 0x9e3779b97f4a7c15u;
    p->ir = ir_clone(ir);
    if (!p->ir)
        return false;
    for (int i = 0; i < p->ir->n_inputs; i++) {
        struct input *in = &p->ir->input[i];
        if (in->dtype != LATHE_I32 && in->dtype != LATHE_U8)
            in->dtype = LATHE_NONE;
    }
    for (int i = 0; i < p->ir->maps.n_tensors; i++) {
        struct map_tensor *t = &p->ir->maps.tensor[i];
        if (t->dtype != LATHE_I32 && t->dtype != LATHE_U8)
            t->dtype = LATHE_NONE;
    }
    const struct kind_proofs *proofs = proofs_of(p->ir);
    if (proofs->derive && !proofs->derive(p))
        return false;
    for (int m = 0; m < p->ir->maps.n_maps; m++)
        p->ir->maps.map[m].list = false; /* a list of one tensor */
    signature_make(p->ir, LATHE_FORWARD, &p->forward);
    signature_make(p->ir, LATHE_BACKWARD, &p->backward);
    if (!reach_open(p) || (proofs->open && !proofs->open(p)))
        return false;
    return !p->ir->failed;
}

/* Every element gets data, at every size that is tried: more are not looked at. */
static const double MOST_ELEMENTS = 0x1p26;

static double size_of(const struct sig_dim *dim, const struct prove_given *given)
{
    if (dim->literal > 0)
        return dim->literal;
    return given && given->dim[dim->sym] > 0 ? (double)given->dim[dim->sym] : 1;
}

/* The input with which there are too many, those before it included. */
static const struct input *too_large(const struct ir *ir, const struct prove_given *given)
{
    double sum = 0;
    for (int i = 0; i < ir->n_inputs; i++) {
        double n = 1;
        for (int d = 0; d < ir->input[i].n_dims; d++)
            n *= size_of(&ir->input[i].dim[d], given);
        sum += n;
        if (sum > MOST_ELEMENTS)
            return &ir->input[i];
    }
    return NULL;
}

static void trying(struct proof *out, const char *text)
{
    for (int i = 0; i < PROOF_MAX; i++)
        out[i].trying = text;
}

void prover_allow(struct prover *p, double share)
{
    p->deadline = p->start + share * p->seconds;
}

int prove_results(struct prover *p, struct proof *out)
{
    prover_allow(p, p->quick ? 1 : 0.5);
    f32_begin(p, &out[0]);
    prove_values(p, &out[0]);
    prover_allow(p, p->quick ? 1 : 0.65);
    if (!p->quick)
        prove_gradients_f32(p, &out[0]);
    f32_conclude(&out[0]);
    if (p->quick)
        return 1;
    prover_allow(p, 1);
    prove_gradients(p, &out[1]);
    return 2;
}

static int prove_within(const struct ir *ir, unsigned seed, const struct prove_given *given, bool quick,
                        struct proof *out)
{
    const struct input *large = too_large(ir, given);
    struct prover p;
    int n = 0;
    memset(out, 0, PROOF_MAX * sizeof *out);
    if (large) {
        proof_begin(&out[n], "gradients", 0);
        proof_blame(&out[n++], large->line,
                    "with input '%s' the inputs have more than 2^26 elements, which all would need data; "
                    "give a dim a name "
                    "in place of its size, or a smaller size in --problem, to have it checked",
                    large->name);
        return n;
    }
    if (!open_prover(&p, ir, seed, given)) {
        proof_begin(&out[n], "gradients", 0);
        out[n].status = p.ir && p.ir->n_nodes >= IR_MAX_NODES ? LATHE_SPEC : LATHE_MEMORY;
        proof_blame(&out[n++], 0, "out of memory, or the spec makes more than %d nodes", IR_MAX_NODES);
    } else {
        p.start = proof_clock();
        p.seconds = quick ? QUICK_SECONDS : given && given->seconds > 0 ? given->seconds : PROVE_SECONDS;
        p.quick = quick;
        trying(out, p.tried);
        const bool alone = given && given->positions_alone;
        n = alone ? 0 : proofs_of(ir)->run(&p, out);
        n += quick ? 0 : prove_positions(&p, out + n);
        n += quick || alone ? 0 : reach_unseen(&p, out + n, PROOF_MAX - n);
    }
    trying(out, NULL);
    reach_close(&p);
    free(p.own);
    ir_free(p.ir);
    return n;
}

int prove(const struct ir *ir, unsigned seed, struct proof *out)
{
    return prove_with(ir, seed, NULL, out);
}

int prove_with(const struct ir *ir, unsigned seed, const struct prove_given *given, struct proof *out)
{
    return prove_within(ir, seed, given, false, out);
}

int prove_quickly(const struct ir *ir, unsigned seed, struct proof *out)
{
    return prove_within(ir, seed, NULL, true, out);
}
