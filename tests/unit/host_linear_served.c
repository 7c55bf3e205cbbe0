/*
 * host_linear_served.c: linear attention as servers call it, on the host device: states that are read from
 * one slot of a pool and written to another, packed sequences that end before the tensors do.
 */
#include "linear_bench.h"

#include <math.h>

#define GATED                                                                                                \
    "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't') },\n"                           \
    "decay = function(at, x) return 0.5 * x.g(at.b, at.h, at.t) end }"

enum { SLOTS = 6, STATE = 4 /* elements of one: d = d_v = 2 */ };
static const struct size FOUR = {4, 1, 1, 3, 2, 2, 0};

/* Of four sequences by their first states: what each gives. */
struct pool {
    struct bench b;
    double first[SLOTS * STATE]; /* of the pool */
    double after[SLOTS * STATE];
    int32_t read[4], written[4];
    int64_t shape[4], n[1];
};

static void open_pool(struct pool *p, const int32_t *read, const int32_t *written)
{
    open_bench(&p->b, GATED, &FOUR);
    for (int i = 0; i < 12; i++)
        data(&p->b, "g")[i] = -unit(&p->b);
    for (int i = 0; i < SLOTS * STATE; i++)
        p->first[i] = p->after[i] = 2 * unit(&p->b) - 1;
    memcpy(p->read, read, sizeof p->read);
    memcpy(p->written, written, sizeof p->written);
    memcpy(p->shape, (const int64_t[]){SLOTS, 1, 2, 2}, sizeof p->shape);
    p->n[0] = 4;
}

static lathe_status run_pool(struct pool *p, double *state, double *state_out)
{
    lathe_arg args[MOST_ARGS];
    int n = select_args(&p->b, 0, "", args);
    for (int i = 0; i < n; i++)
        if (strncmp(args[i].name, "state", 5) == 0) {
            args[i].data = strcmp(args[i].name, "state") == 0 ? state : state_out;
            args[i].shape = p->shape;
        }
    args[n++] = (lathe_arg){"state_index", p->read, LATHE_I32, 1, p->n, NULL};
    args[n++] = (lathe_arg){"state_out_index", p->written, LATHE_I32, 1, p->n, NULL};
    return host_forward(p->b.ir, &p->b.sig[0], args, n, NULL, 0, &p->b.err);
}

/* The last states and o as four calls without a pool have them. */
static void run_alone(struct pool *p)
{
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < STATE; k++)
            data(&p->b, "state")[i * STATE + k] = p->read[i] < 0 ? 0.0 : p->first[p->read[i] * STATE + k];
    CHECK(run(&p->b, 0) == LATHE_OK);
}

/* 0 goes from one slot to another, 1 begins without a state, 2 is not kept, 3 begins as 0 does. */
TEST(states_are_read_from_one_slot_and_written_to_another)
{
    static const int32_t read[] = {4, -1, 0, 4};
    static const int32_t written[] = {2, 5, -1, 3};
    struct pool p;
    double o[24];
    open_pool(&p, read, written);
    run_alone(&p);
    memcpy(o, data(&p.b, "o"), sizeof o);
    CHECK(run_pool(&p, p.first, p.after) == LATHE_OK);
    for (int i = 0; i < 24; i++)
        CHECK_CLOSE(data(&p.b, "o")[i], o[i], 1e-15);
    for (int slot = 0; slot < SLOTS; slot++) {
        const int from = slot == 2 ? 0 : slot == 5 ? 1 : slot == 3 ? 3 : -1;
        for (int k = 0; k < STATE; k++)
            CHECK_CLOSE(p.after[slot * STATE + k],
                        from < 0 ? p.first[slot * STATE + k] : data(&p.b, "state_out")[from * STATE + k],
                        1e-15);
    }
    close_bench(&p.b);
}

TEST(a_sequence_without_both_slots_is_skipped)
{
    static const int32_t read[] = {4, -1, 0, 1};
    static const int32_t written[] = {4, -1, -1, 1};
    struct pool p;
    open_pool(&p, read, written);
    data(&p.b, "g")[4] = 1; /* nobody looks at it */
    CHECK(run_pool(&p, p.first, p.first) == LATHE_OK);
    for (int i = 0; i < 6; i++)
        CHECK(data(&p.b, "o")[6 + i] == 0.0);
    close_bench(&p.b);
}

TEST(slots_that_meet_are_refused)
{
    static const int32_t read[] = {4, -1, 0, 1};
    static const int32_t twice[] = {4, 2, -1, 2};
    static const int32_t read_by_another[] = {4, 0, -1, 2};
    struct pool p;
    open_pool(&p, read, twice);
    CHECK(run_pool(&p, p.first, p.after) == LATHE_ARG);
    CHECK_HAS(p.b.err.text,
              "argument 'state_out_index': expected a state of its own for each sequence, given "
              "2 for sequences 1 and 3");
    memcpy(p.written, read_by_another, sizeof p.written);
    CHECK(run_pool(&p, p.first, p.after) == LATHE_OK);
    CHECK(run_pool(&p, p.first, p.first) == LATHE_ARG);
    CHECK_HAS(p.b.err.text, "argument 'state_out_index': expected states that no other sequence reads, as "
                            "'state_out' lies over 'state', given 0 for sequence 1, which sequence 2 reads");
    p.written[1] = SLOTS;
    CHECK(run_pool(&p, p.first, p.after) == LATHE_ARG);
    CHECK_HAS(p.b.err.text, "argument 'state_out_index': expected states from 0 to 5, or -1, given 6 for "
                            "sequence 1");
    close_bench(&p.b);
}

/* Tokens behind the last sequence are not read, and o is left alone there. */
TEST(sequences_may_end_before_the_tensors)
{
    static const struct size size = {1, 2, 1, 9, 3, 2, 4};
    struct bench b;
    open_bench(&b, "return linear_attention {}", &size);
    CHECK(run(&b, 0) == LATHE_OK);
    double o[36];
    memcpy(o, data(&b, "o"), sizeof o);
    ((int32_t *)find(&b, "cu")->data)[4] = 7;
    for (int h = 0; h < 2; h++)
        for (int t = 7; t < 9; t++)
            for (int j = 0; j < 2; j++) {
                data(&b, "v")[(h * 9 + t) * 2 + j] = (double)NAN;
                data(&b, "o")[(h * 9 + t) * 2 + j] = o[(h * 9 + t) * 2 + j] = 5.0;
            }
    CHECK(run(&b, 0) == LATHE_OK);
    for (int i = 0; i < 36; i++)
        CHECK_CLOSE(data(&b, "o")[i], o[i], 1e-15);
    close_bench(&b);
}
