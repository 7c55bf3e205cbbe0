/*
 * dist_states.c: linear attention over ranks that are threads, beside the same on one rank: gates that forget
 * everything or nothing, what is sent, and what is not computed in parallel. Every shipped spec: dist.c.
 */
#include "dist_call.h"

enum { MOST_OF_RANKS = 4 };
static const int64_t EDGE[MOST_OF_RANKS][MOST_OF_RANKS + 1] = {
    {0, TOKENS}, {0, 9, TOKENS}, {0, 0, 16, TOKENS}, {0, 1, 8, 20, TOKENS}};

/* Gates that forget everything, exactly nothing, and either by turns; no state ahead of all tokens and none
   behind them, or both. */
TEST(states_of_strong_gates_and_of_none)
{
    static const char *const SPEC[] = {"gated_delta", "kda", "gla", "simple_gla", "rwkv7", "rwkv6", "comba"};
    static const double GATE[] = {-40.0, 0.0, -800.0};
    for (int i = 0; i < 7; i++)
        for (int form = 0; form < 16; form++) {
            struct bench b;
            if (!CHECK_IS_TAKEN(i + form))
                continue;
            open_bench(&b, SPEC[i], TOKENS);
            struct value *gate = find(&b, "g") ? find(&b, "g") : find(&b, "w");
            CHECK(gate != NULL);
            for (int64_t k = 0; k < gate->count; k++)
                dtype_store(gate->arg.dtype, gate->arg.data, k, GATE[form % 4 < 3 ? form % 4 : k / 3 % 3]);
            if (form & 4)
                find(&b, "state")->name[0] = find(&b, "state_out")->name[0] = '-';
            b.options.parallel_states = form & 8 ? 1 : 0;
            whole(&b, LATHE_FORWARD);
            for (int ranks = 2; ranks <= MOST_OF_RANKS; ranks += 2) {
                run(&b, ranks, EDGE[ranks - 1], EDGE[ranks - 1]);
                compare(&b, SPEC[i], 1e-9);
            }
            close_bench(&b);
        }
}

/* What multiplies nothing is not sent; with a state ahead of all it is. */
TEST(two_ranks_send_a_state_alone)
{
    static const char *const END[] = {"state_out", "state"};
    struct bench b;
    open_bench(&b, "gated_delta", TOKENS);
    for (int i = 0; i < 2; i++) {
        find(&b, END[i])->name[0] = '-';
        whole(&b, LATHE_FORWARD);
        run(&b, 2, EDGE[1], EDGE[1]);
        compare(&b, "gated_delta", 1e-9);
        CHECK_HAS(b.info, i ? "in 1 calls" : "in 2 calls");
    }
    close_bench(&b);
}

static void refuse_parallel(const char *spec, int64_t d_v, lathe_dtype dtype, lathe_pass pass,
                            const char *why)
{
    struct bench b;
    open_bench_sized(&b, spec, TOKENS, H_KV, d_v, dtype);
    b.pass = pass;
    CHECK_EQ(refuse(&b, &(lathe_dist_options){.parallel_states = 1}, why), LATHE_UNSUPPORTED);
    close_bench(&b);
}

TEST(what_is_not_computed_in_parallel_says_why)
{
    refuse_parallel("linear_elu", D, LATHE_F64, LATHE_FORWARD,
                    "parallel_states: with normalise o is divided");
    refuse_parallel("mamba2", D, LATHE_F64, LATHE_FORWARD,
                    "parallel_states: output_mod makes something of o");
    refuse_parallel("gdn2", D, LATHE_F64, LATHE_FORWARD,
                    "parallel_states: value_mod would be applied to rows");
    refuse_parallel("hgrn", D, LATHE_F64, LATHE_FORWARD, "parallel_states: its decay is by value channel");
    refuse_parallel("return linear_attention { inputs = { w = tensor('float', 'h', 'd_v') },\n"
                    "  delta = function(at, x) return x.w(at.h, 0) end }",
                    D, LATHE_F64, LATHE_FORWARD, "parallel_states: it has an input over d_v");
    refuse_parallel("return linear_attention { delta = function(at) return 8.0 / f32(at.d_v) end }", D,
                    LATHE_F64, LATHE_FORWARD, "parallel_states: line 1 of the spec reads at.d_v");
    refuse_parallel("kda", D, LATHE_F16, LATHE_FORWARD, "parallel_states: what strong gates leave of a row");
    refuse_parallel("kda", 256, LATHE_BF16, LATHE_FORWARD, "parallel_states: d + d_v is");
    refuse_parallel("kda", D, LATHE_F64, LATHE_BACKWARD, "parallel_states is of the forward pass");
    refuse_parallel("causal", D, LATHE_F64, LATHE_FORWARD, "parallel_states is of scheme states");
}
