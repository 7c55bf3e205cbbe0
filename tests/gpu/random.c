/*
 * random.c: small problems drawn from a seed: any spec, sizes, head groups, layouts and flags.
 *
 * In: how many, and the seed. Out: cases appended to the caller's list. A failure names its seed and all
 * its sizes, so one case can be written into matrix.c. Head dims come from a short list, because each
 * one is compiled.
 */
#include "cases.h"

#include <string.h>

static bool one_in(uint64_t *random, int n)
{
    return random_between(random, 0, n - 1) == 0;
}

static int64_t random_length(uint64_t *random)
{
    static const int64_t LIMIT[] = {4, 40, 90, 200};
    return random_between(random, 0, LIMIT[random_between(random, 0, 3)]);
}

static void random_attention(struct test_case *c, uint64_t *random)
{
    static const int64_t HEAD_DIM[] = {64, 128, 40, 16};
    c->dim[DIM_B] = random_between(random, 1, 3);
    c->dim[DIM_H_KV] = random_between(random, 1, 3);
    c->dim[DIM_H] = c->dim[DIM_H_KV] * random_between(random, 1, 4);
    c->dim[DIM_KV] = random_length(random);
    c->dim[DIM_Q] = random_length(random);
    c->dim[DIM_D] = c->dim[DIM_D_V] = HEAD_DIM[one_in(random, 2) ? 0 : random_between(random, 0, 3)];
    if (c->spec->rows_are_keys && c->dim[DIM_Q] > c->dim[DIM_KV]) {
        c->dim[DIM_Q] = c->dim[DIM_KV];
    }
    const int64_t slack = c->dim[DIM_KV] - c->dim[DIM_Q];
    c->has_q_start = one_in(random, 3);
    c->q_start = (int32_t)(c->spec->rows_are_keys ? random_between(random, 0, slack)
                                                  : random_between(random, -30, c->dim[DIM_KV] + 10));
    c->infinite = one_in(random, 4);
    c->broadcast = one_in(random, 4);
    c->absent = one_in(random, 4);
}

static void random_rowwise(struct test_case *c, uint64_t *random)
{
    c->leading = (int)random_between(random, 1, 3);
    c->dim[DIM_ROWS0] = c->leading > 2 ? random_between(random, 1, 4) : 1;
    c->dim[DIM_ROWS1] = c->leading > 1 ? random_between(random, 1, 4) : 1;
    c->dim[DIM_ROWS] = random_between(random, 0, 40);
    c->dim[DIM_N] = one_in(random, 2) ? random_between(random, 1, 300) : random_between(random, 1, 9000);
    c->absent = one_in(random, 4);
}

void cases_random(struct case_list *list, int n, uint64_t seed)
{
    static const lathe_dtype DTYPE[] = {LATHE_F16, LATHE_BF16, LATHE_F32};
    for (int i = 0; i < n; i++) {
        uint64_t random = seed * 1000003 + (uint64_t)i;
        struct test_case c;
        memset(&c, 0, sizeof c);
        c.spec = &spec_rows[random_between(&random, 0, spec_row_count - 1)];
        c.rounding = DTYPE[random_between(&random, 0, c.spec->rowwise ? 2 : 1)];
        if (c.spec->rowwise) {
            random_rowwise(&c, &random);
        } else {
            random_attention(&c, &random);
        }
        c.pass = one_in(&random, 2) ? LATHE_BACKWARD : LATHE_FORWARD;
        c.deterministic = c.pass == LATHE_BACKWARD && one_in(&random, 2) && !spec_adds_by_head(c.spec);
        c.n_runs = 1;
        c.run[0] = (struct case_run){c.rounding, (enum layout)random_between(&random, 0, LAYOUT_COUNT - 1)};
        struct test_case *added = case_add(list, &c);
        if (added) {
            added->seed = random;
        }
    }
}
