/*
 * prove_tokens.c: single tokens of linear attention at positions and heads that the spec's constants ask for,
 * as a whole recurrence up to there would take too long. In: a prover. Out: a share of a verdict: decays and
 * betas that the kind refuses there fail it; and comparisons of the formulas are seen on both sides.
 */
#include "gen/linear/columns.h"
#include "gen/linear/host.h"
#include "gen/linear/prove.h"
#include "gen/prove/kind_proofs.h"
#include "gen/prove/proof.h"
#include "gen/prove/prove.h"

#include <string.h>

enum { TOKENS = 96, MOST_NUMBERS = 1 << 20 /* of a tensor */, FEW_HEADS = 4 };

static void choose_sizes(const struct prover *p, int64_t *dim)
{
    memset(dim, 0, SYM_COUNT * sizeof *dim);
    dim[SYM_ONE] = dim[SYM_B] = dim[SYM_SEQS] = dim[SYM_SLOTS] = 1;
    dim[SYM_H_K] = 2;
    dim[SYM_H] = p->reach.heads;
    dim[SYM_T] = p->reach.keys;
    dim[SYM_D] = dim[SYM_D_V] = p->reach.head_dim;
    while (dim[SYM_H] * dim[SYM_T] * dim[SYM_D] > MOST_NUMBERS && dim[SYM_H] > FEW_HEADS)
        dim[SYM_H] = dim[SYM_H] / 4 * 2;
    prover_sizes(p, dim);
}

/* The last head and the last token, then those beside constants. */
static lathe_status look_at(struct prover *p, struct linear_head *head, int number, lathe_error *err)
{
    const int64_t n_h = host_dim(head->call, SYM_H);
    const int64_t n = linear_head_tokens(head, 0);
    const int64_t h = number % 3 == 0 ? n_h - 1 : reach_position(p, n_h, 0);
    const int64_t t = number % 4 == 0 ? n - 1 : reach_position(p, n, 0);
    if (n == 0)
        return LATHE_OK;
    const lathe_status status = linear_head_token(head, 0, h, t, err);
    return status == LATHE_OK ? linear_output(head, t, head->x.v + t * head->x.d_v, head->x.value, err)
                              : status;
}

void prove_tokens(struct prover *p, struct proof *out)
{
    int64_t dim[SYM_COUNT];
    struct data data;
    lathe_arg arg[DATA_MAX];
    struct host_call call;
    struct linear_head head = {.call = NULL};
    lathe_error err = {.status = LATHE_OK};
    choose_sizes(p, dim);
    p->mode.refused = false;
    lathe_status status = data_make_forward(&data, p, dim) ? LATHE_OK : host_out_of_memory(&err);
    if (status == LATHE_OK)
        status = host_bind(&call, p->ir, &p->forward, arg, data_select(&data, &p->forward, arg), &err);
    if (status == LATHE_OK) {
        call.mode = &p->mode;
        status = linear_head_init(&head, &call, &err);
    }
    for (int i = 0; i < TOKENS && status == LATHE_OK && proof_goes_on(p, out, "tokens", i); i++)
        status = look_at(p, &head, i, &err);
    if (status == LATHE_MEMORY || (status != LATHE_OK && p->mode.refused)) /* else a table is shorter */
        proof_refused(out, &err);
    if (head.call)
        linear_head_free(&head);
    data_free(&data);
}
