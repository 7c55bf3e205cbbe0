/*
 * host_linear_served.c: linear attention as servers call it, on the host device: states that are read from
 * one slot of a pool and written to another, packed sequences that end before the tensors do, states behind
 * tokens and in 16 bits.
 */
#include "linear_bench.h"

#include <math.h>
#include <stddef.h>

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

/* Backward, gradients of first states land in the slots that these were read from; those of last states are
   read where the forward pass wrote these. */
static lathe_status run_pool_back(struct pool *p, double *state, double *dstate_out, double *dstate)
{
    lathe_arg args[MOST_ARGS];
    int n = select_args(&p->b, 1, "", args);
    for (int i = 0; i < n; i++) {
        const char *name = args[i].name;
        double *const at = strcmp(name, "state") == 0        ? state
                           : strcmp(name, "dstate_out") == 0 ? dstate_out
                           : strcmp(name, "dstate") == 0     ? dstate
                                                             : NULL;
        if (at) {
            args[i].data = at;
            args[i].shape = p->shape;
        }
    }
    args[n++] = (lathe_arg){"state_index", p->read, LATHE_I32, 1, p->n, NULL};
    args[n++] = (lathe_arg){"state_out_index", p->written, LATHE_I32, 1, p->n, NULL};
    return host_backward(p->b.ir, &p->b.sig[1], args, n, &p->b.err);
}

TEST(gradients_of_states_land_in_their_slots)
{
    static const int32_t read[] = {4, -1, 0, 1};
    static const int32_t written[] = {2, 5, -1, 3};
    double dlast[SLOTS * STATE];
    double dstate[SLOTS * STATE];
    double dk[24];
    struct pool p;
    open_pool(&p, read, written);
    for (int i = 0; i < SLOTS * STATE; i++) {
        dlast[i] = 2 * unit(&p.b) - 1;
        dstate[i] = 7.0;
    }
    run_alone(&p);
    for (int i = 0; i < 4 * STATE; i++)
        data(&p.b, "dstate_out")[i] =
            written[i / STATE] < 0 ? 0.0 : dlast[written[i / STATE] * STATE + i % STATE];
    CHECK(run(&p.b, 1) == LATHE_OK);
    memcpy(dk, data(&p.b, "dk"), sizeof dk);
    CHECK(run_pool_back(&p, p.first, dlast, dstate) == LATHE_OK);
    for (int i = 0; i < 24; i++)
        CHECK_CLOSE(data(&p.b, "dk")[i], dk[i], 1e-15);
    for (int i = 0; i < SLOTS * STATE; i++) {
        const int slot = i / STATE;
        const int from = slot == 4 ? 0 : slot == 0 ? 2 : slot == 1 ? 3 : -1;
        CHECK_CLOSE(dstate[i], from < 0 ? 7.0 : data(&p.b, "dstate")[from * STATE + i % STATE], 1e-15);
    }
    p.read[3] = 0;
    CHECK(run_pool_back(&p, p.first, dlast, dstate) == LATHE_ARG);
    CHECK_HAS(p.b.err.text,
              "argument 'state_index': expected a state of its own for each sequence, given 0 for "
              "sequences 2 and 3");
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

/* What lies there may be outside of what an input says of its values. */
TEST(values_behind_the_last_sequence_have_no_range)
{
    static const struct size size = {1, 2, 1, 9, 3, 2, 4};
    struct bench b;
    open_bench(&b,
               "return linear_attention { inputs = { g = tensor('float', 'b', 'h', 't') },\n"
               "decay = function(at, x) return x.g(at.b, at.h, at.t) end }",
               &size);
    ((int32_t *)find(&b, "cu")->data)[4] = 7;
    data(&b, "g")[7] = data(&b, "g")[9 + 8] = 7.0;
    CHECK(run(&b, 0) == LATHE_OK);
    data(&b, "g")[9 + 6] = 7.0;
    CHECK(run(&b, 0) == LATHE_ARG);
    CHECK_HAS(b.err.text,
              "argument 'g': expected values from -inf to 0 (its range, t.lua:1), given 7 at [0,1,6]");
    close_bench(&b);
}

/* A place that is found by a number of an input may be behind all sequences. */
TEST(values_that_are_looked_up_have_a_range)
{
    static const struct size size = {1, 1, 1, 9, 3, 2, 4};
    struct bench b;
    open_bench(&b,
               "return linear_attention { inputs = { g = tensor('float', 't', { range = { -inf, 0 } }),\n"
               "  id = tensor('i32', 't', { range = { 0, 9 } }) },\n"
               "  decay = function(at, x) return x.g(x.id(at.t)) end }",
               &size);
    ((int32_t *)find(&b, "cu")->data)[4] = 7;
    data(&b, "g")[8] = 7.0;
    CHECK(run(&b, 0) == LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'g': expected values from -inf to 0");
    close_bench(&b);
}

TEST(all_tokens_may_be_behind_the_last_sequence)
{
    static const struct size size = {1, 2, 1, 9, 3, 2, 1};
    struct bench b;
    open_bench(&b, "return linear_attention {}", &size);
    int32_t none = 0;
    int64_t one = 1;
    lathe_arg args[MOST_ARGS];
    int n = select_args(&b, 0, "cu", args);
    for (int i = 0; i < n; i++)
        if (strncmp(args[i].name, "state", 5) == 0)
            args[i--] = args[--n];
    args[n++] = (lathe_arg){"cu", &none, LATHE_I32, 1, &one, NULL};
    for (int i = 0; i < 36; i++)
        data(&b, "o")[i] = 5.0;
    const lathe_status status = host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err);
    CHECK_STR(b.err.text, "");
    CHECK(status == LATHE_OK);
    for (int i = 0; i < 36; i++)
        CHECK(data(&b, "o")[i] == 5.0);
    close_bench(&b);
}

/* The state behind a token is what the first tokens leave that end with it; nobody else's place is written.
 */
static void check_kept(const char *text, const int32_t (*places)[6])
{
    static const struct size size = {2, 1, 1, 6, 2, 2, 0};
    enum { KEPT = 7, TOKENS = 12 };
    const int64_t kept[] = {KEPT, 1, 2, 2};
    const int64_t tokens[] = {2, 6};
    struct bench b;
    lathe_arg args[MOST_ARGS];
    double states[KEPT * STATE];
    open_bench(&b, text, &size);
    for (int i = 0; find(&b, "g") && i < TOKENS; i++)
        data(&b, "g")[i] = -unit(&b);
    int n = select_args(&b, 0, "", args);
    for (int i = 0; i < KEPT * STATE; i++)
        states[i] = 5.0;
    args[n++] = (lathe_arg){"states", states, LATHE_F64, 4, kept, NULL};
    args[n++] = (lathe_arg){"states_index", (void *)places, LATHE_I32, 2, tokens, NULL};
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_OK);
    bool known[KEPT] = {false};
    for (int i = 0; i < TOKENS; i++) {
        const int at = places[i / 6][i % 6];
        const double *q = data(&b, "q") + (ptrdiff_t)i * 2;
        for (int j = 0; j < 2 && at >= 0; j++) { /* o = scale q S */
            const double read = q[0] * states[at * STATE + j] + q[1] * states[at * STATE + 2 + j];
            CHECK_CLOSE(data(&b, "o")[i * 2 + j], read * sqrt(0.5), 1e-13);
        }
        if (at >= 0)
            known[at] = true;
        for (int k = 0; k < STATE && at >= 0 && i % 6 == (b.ir->linear.reverse ? 0 : 5); k++)
            CHECK_CLOSE(states[at * STATE + k], data(&b, "state_out")[i / 6 * STATE + k], 1e-15);
    }
    for (int i = 0; i < KEPT * STATE; i++)
        CHECK(known[i / STATE] || states[i] == 5.0);
    close_bench(&b);
}

TEST(states_behind_tokens_are_kept)
{
    static const int32_t places[2][6] = {{0, -1, 2, -1, -1, 4}, {6, 1, -1, -1, -1, 3}};
    check_kept("return linear_attention {}", places);
    check_kept("return linear_attention { reverse = true }", places);
    check_kept(GATED, places);
}

TEST(places_of_states_are_checked)
{
    int32_t places[4][3] = {{0, 1, -1}, {2, -1, -1}, {-1, -1, -1}, {-1, -1, 1}};
    const int64_t kept[] = {3, 1, 2, 2};
    const int64_t tokens[] = {4, 3};
    double states[12];
    lathe_arg args[MOST_ARGS];
    struct bench b;
    open_bench(&b, "return linear_attention {}", &FOUR);
    int n = select_args(&b, 0, "", args);
    args[n++] = (lathe_arg){"states", states, LATHE_F64, 4, kept, NULL};
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_ARG);
    CHECK_HAS(b.err.text, "argument 'states': expected 'states_index' beside it, which is not given");
    args[n++] = (lathe_arg){"states_index", places, LATHE_I32, 2, tokens, NULL};
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_ARG);
    CHECK_HAS(b.err.text,
              "argument 'states_index': expected a state of its own for each token, given 1 for tokens 1 "
              "and 11");
    places[3][2] = 3;
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_ARG);
    CHECK_HAS(b.err.text,
              "argument 'states_index': expected places from 0 to 2, or -1, given 3 for token 2 of batch 3");
    close_bench(&b);
}

/* A place over the state that a sequence begins with is one of its own tokens. */
TEST(states_behind_tokens_leave_states_of_others)
{
    int32_t places[4][3] = {{0, -1, -1}, {-1, -1, -1}, {-1, 2, -1}, {-1, -1, -1}};
    const int64_t kept[] = {4, 1, 2, 2};
    const int64_t tokens[] = {4, 3};
    lathe_arg args[MOST_ARGS];
    struct bench b;
    open_bench(&b, "return linear_attention {}", &FOUR);
    int n = select_args(&b, 0, "", args);
    args[n++] = (lathe_arg){"states", data(&b, "state"), LATHE_F64, 4, kept, NULL};
    args[n++] = (lathe_arg){"states_index", places, LATHE_I32, 2, tokens, NULL};
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_OK);
    places[1][0] = 3;
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_ARG);
    CHECK_HAS(b.err.text,
              "argument 'states_index': expected places that no other sequence reads, as 'states' "
              "lies over 'state', given 3 for token 3, which sequence 3 reads");
    close_bench(&b);
}

/* A state in bf16 is what its numbers are in f64; beside it all states have 16 bits. */
TEST(states_have_16_bits)
{
    static const struct size size = {1, 1, 1, 3, 2, 2, 0};
    uint16_t state[STATE];
    uint16_t after[STATE];
    lathe_arg args[MOST_ARGS];
    struct bench b;
    open_bench(&b, "return linear_attention {}", &size);
    for (int i = 0; i < STATE; i++) {
        dtype_store(LATHE_BF16, state, i, data(&b, "state")[i]);
        data(&b, "state")[i] = dtype_load(LATHE_BF16, state, i);
    }
    CHECK(run(&b, 0) == LATHE_OK);
    double o[6];
    memcpy(o, data(&b, "o"), sizeof o);
    const int n = select_args(&b, 0, "", args);
    for (int i = 0; i < n; i++)
        if (strncmp(args[i].name, "state", 5) == 0) {
            args[i].data = strcmp(args[i].name, "state") == 0 ? state : after;
            args[i].dtype = LATHE_BF16;
        }
    CHECK(host_forward(b.ir, &b.sig[0], args, n, NULL, 0, &b.err) == LATHE_OK);
    for (int i = 0; i < 6; i++)
        CHECK_CLOSE(data(&b, "o")[i], o[i], 1e-15);
    for (int i = 0; i < STATE; i++)
        CHECK_CLOSE(dtype_load(LATHE_BF16, after, i), data(&b, "state_out")[i], 0x1p-8 * 4);
    close_bench(&b);
}
