/*
 * prove_large.c: the proof of rows whose scores are all one large finite value, as where a mask value covers
 * them whole. In: a prover's spec. Out: a verdict. o is linear in v: with the weights of the forward pass on
 * one side and those of the backward pass on the other, sum(o do) and sum(v dv) are one number, whatever the
 * online function is. Doubles lose log(l) beside 1e16, as f32 does beside 1e9: a final that cannot be taken
 * apart fails here as it would there.
 */
#include "gen/attention/prove/prove.h"
#include "gen/ir/tensor.h"
#include "gen/prove/proof.h"

#include <math.h>

static const double BOUND = 1e-9;
static const double VALUES[] = {-1e4, -1e9, -1e17, -1e30, 1e17};
enum { N_VALUES = sizeof VALUES / sizeof VALUES[0] };

/* The online function alone: no vector mods, and one score for all pairs. */
static struct ir *flat_spec(const struct ir *ir, double score)
{
    struct ir *flat = ir_clone(ir);
    if (!flat)
        return NULL;
    for (int m = 0; m < MOD_COUNT; m++)
        flat->mod[m].n_stages = 0;
    const int nothing = ir2(flat, OP_MUL, ir_param_of(flat, LEAF_S), ir_const(flat, 0, TYPE_F32));
    flat->score.root[0] = ir2(flat, OP_ADD, nothing, ir_const(flat, score, TYPE_F32));
    flat->score.n_roots = 1;
    return flat;
}

/* sum(a b), and that of its terms' sizes. */
static double product(const struct data *d, const char *a, const char *b, double *size)
{
    const lathe_arg *x = data_find(d, a);
    const lathe_arg *y = data_find(d, b);
    double sum = 0;
    *size = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        const double term = dtype_load(x->dtype, x->data, i) * dtype_load(y->dtype, y->data, i);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static void judge(struct prover *p, const struct data *d, double score, struct proof *out)
{
    double size;
    double size_back;
    const double forward = product(d, "o", "do", &size);
    const double backward = product(d, "v", "dv", &size_back);
    if (!isfinite(size) || size == 0) /* no weights, or none that numbers hold: other proofs are about that */
        return;
    if (!proof_record(out, fabs(forward - backward) / size))
        return;
    proof_blame(out, proof_line(p->ir, p->ir->forward.root[0]),
                "where all scores of a row are %g, backward weights are wrong (sum(v dv) = %.6g, sum(o do) = "
                "%.6g): a "
                "final has lost digits beside a large value; write it as m + log(l), or make m and l finals",
                score, proof_shown(backward), proof_shown(forward));
}

static lathe_status try_score(struct prover *p, const struct data *d, double score, struct proof *out,
                              lathe_error *err)
{
    lathe_arg arg[MAX_ARGS];
    struct ir *flat = flat_spec(p->ir, score);
    if (!flat || flat->failed) {
        ir_free(flat);
        return host_out_of_memory(err);
    }
    int n = data_select(d, &p->forward, arg);
    lathe_status status = host_forward(flat, &p->forward, arg, n, NULL, 0, err);
    n = data_select_backward(d, p, arg);
    if (status == LATHE_OK)
        status = host_backward(flat, &p->backward, arg, n, err);
    if (status == LATHE_OK)
        judge(p, d, score, out);
    ir_free(flat);
    return status;
}

void prove_large(struct prover *p, struct proof *out)
{
    static const int64_t dim[SYM_COUNT] = {
        [SYM_ONE] = 1, [SYM_B] = 1, [SYM_H] = 2,  [SYM_H_KV] = 1, [SYM_Q] = 7,
        [SYM_KV] = 5,  [SYM_D] = 8, [SYM_D2] = 8, [SYM_D_V] = 8};
    struct data d;
    lathe_error err = {.status = LATHE_OK};
    proof_begin(out, "large scores", BOUND);
    out->applies = p->ir->forward.n_roots > 0 && !p->ir->v_is_k; /* whose dk is of scores, too */
    if (!out->applies)
        return;
    lathe_status status = data_make(&d, p, dim) ? LATHE_OK : host_out_of_memory(&err);
    for (int i = 0; i < N_VALUES && status == LATHE_OK; i++)
        status = try_score(p, &d, VALUES[i], out, &err);
    if (status != LATHE_OK)
        proof_refused(out, &err);
    data_free(&d);
}
