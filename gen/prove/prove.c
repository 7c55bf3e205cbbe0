/*
 * prove.c: the door of `lathe check`: everything about a spec that can be proved without a GPU, on random
 * data in double precision. In: a checked IR, which stays as it is, and a seed. Out: verdicts, the caller's.
 * The proofs are in rows.c, f32.c, values.c, gradients.c, backward_kernels.c and mask.c;
 * each works on a copy of the IR whose float inputs take any dtype, so that all arguments can be f64.
 */
#include "gen/prove/prove.h"
#include "gen/arguments/signature.h"
#include "gen/base/diag.h"
#include "gen/elementwise/gradient.h"
#include "gen/prove/proof.h"

#include <string.h>
#include <time.h>

static const double SECONDS = 6;
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
    for (int i = 0; i < p->ir->n_tensors; i++) {
        struct map_tensor *t = &p->ir->tensor[i];
        if (t->dtype != LATHE_I32 && t->dtype != LATHE_U8)
            t->dtype = LATHE_NONE;
    }
    struct diag ignored = {0};
    if (p->ir->kind == KIND_ELEMENTWISE && !gradient_make(p->ir, &ignored))
        return false;
    for (int m = 0; m < p->ir->n_maps; m++)
        p->ir->map[m].list = false; /* a list of one tensor */
    signature_make(p->ir, LATHE_FORWARD, &p->forward);
    signature_make(p->ir, LATHE_BACKWARD, &p->backward);
    if (!reach_open(p)) /* of the spec as it is */
        return false;
    if (p->ir->kind == KIND_ATTENTION)
        row_graph_make(p->ir, &p->row);
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

/* Each proof may take what is left of all time up to its own share, so that none starves the ones behind it.
 */
struct clock {
    double start, seconds;
};

static void allow(struct prover *p, const struct clock *c, double share)
{
    p->deadline = c->start + share * c->seconds;
}

static int prove_attention(struct prover *p, const struct clock *c, struct proof *out)
{
    allow(p, c, p->quick ? 0.8 : 0.4);
    prove_rows(p, &out[0], &out[1], &out[2], &out[3]);
    allow(p, c, p->quick ? 1 : 0.5);
    prove_values(p, &out[3]);
    f32_conclude(&out[3]);
    if (p->quick)
        return 4;
    allow(p, c, 0.75);
    prove_gradients(p, &out[4]);
    allow(p, c, 0.85);
    prove_own_backward(p, &out[5]);
    allow(p, c, 0.95);
    prove_backward(p, &out[6]);
    allow(p, c, 1);
    prove_mask(p, &out[7]);
    prove_large(p, &out[8]);
    return 9;
}

static int prove_linear(struct prover *p, const struct clock *c, struct proof *out)
{
    allow(p, c, p->quick ? 0.6 : 0.25);
    prove_chunks(p, &out[0]);
    allow(p, c, p->quick ? 0.8 : 0.4);
    prove_parts(p, &out[1]);
    allow(p, c, p->quick ? 1 : 0.6);
    f32_begin(p, &out[2]);
    prove_values(p, &out[2]);
    f32_conclude(&out[2]);
    if (p->quick)
        return 3;
    allow(p, c, 1);
    prove_gradients(p, &out[3]);
    return 4;
}

static int prove_other(struct prover *p, const struct clock *c, struct proof *out)
{
    allow(p, c, p->quick ? 1 : 0.5);
    f32_begin(p, &out[0]);
    prove_values(p, &out[0]);
    f32_conclude(&out[0]);
    if (p->quick)
        return 1;
    allow(p, c, 1);
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
        const struct clock c = {proof_clock(), quick ? QUICK_SECONDS : SECONDS};
        p.quick = quick;
        trying(out, p.tried);
        n = ir->kind == KIND_ATTENTION ? prove_attention(&p, &c, out)
            : ir->kind == KIND_LINEAR  ? prove_linear(&p, &c, out)
                                       : prove_other(&p, &c, out);
        n += quick ? 0 : reach_unseen(&p, out + n, PROOF_MAX - n);
    }
    trying(out, NULL);
    reach_close(&p);
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
