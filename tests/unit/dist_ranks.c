/*
 * dist_ranks.c: as many ranks as a host has GPUs, as threads on the host device, beside one rank: some specs
 * by every scheme.
 */
#include "dist_call.h"

/* As many ranks as a host has GPUs, more than there are heads among them: shards of one length and of any,
   two of them empty; zigzag's pieces of two tokens. */
TEST_TIMEOUT(eight_ranks_and_six, 300)
{
    static const int64_t of_8[] = {0, 3, 6, 9, 12, 15, 18, 21, 24}, any[] = {0, 1, 5, 5, 6, 14, 20, 20, 24};
    static const int64_t of_6[] = {0, 4, 8, 12, 16, 20, 24};
    static const char *const SPEC[] = {"causal", "alibi", "document", "sinks", "softcap", "dropout"};
    static const lathe_scheme LIST[] = {LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER, LATHE_SCHEME_RING,
                                        LATHE_SCHEME_KEYS};
    for (int i = CHECK_FIRST_TAKEN; i < 6; i += LATHE_TEST_EVERY)
        for (int scheme = 0; scheme < 4; scheme++)
            for (int way = 0; way < 3 - (scheme == 3); way++) {
                struct bench b;
                open_bench(&b, SPEC[i], TOKENS);
                b.options.scheme = LIST[scheme];
                b.options.whole_q = scheme == 3;
                b.options.shards = way == 2 ? LATHE_SHARDS_ZIGZAG : LATHE_SHARDS_CONTIGUOUS;
                for (int pass = 0; pass < 2; pass++) {
                    const int64_t *const edge = way == 2 ? of_6 : way == 1 ? any : of_8;
                    whole(&b, (lathe_pass)pass);
                    run(&b, way == 2 ? 6 : 8, edge, edge);
                    compare(&b, SPEC[i], 1e-9);
                }
                close_bench(&b);
            }
}

/* Of k2 as well, on one rank and on several. */
TEST(keys_that_are_not_in_use_have_gradients_of_0)
{
    static const char *const NAME[] = {"dk", "dk2"}; /* v is k */
    static const int64_t edge[] = {0, 0, 16, TOKENS};
    const int32_t used[B] = {20, 5}, q_start = 8;
    struct bench b;
    open_bench(&b, "mla_decoupled", 6);
    give_i32(&b, "used_kv", used);
    give_i32(&b, "q_start", &q_start);
    b.options.whole_q = 1;
    whole(&b, LATHE_FORWARD);
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < find(&b, NAME[i])->count; k++)
            dtype_store(LATHE_F64, find(&b, NAME[i])->arg.data, k, (double)NAN);
    whole(&b, LATHE_BACKWARD);
    for (int i = 0; i < 2; i++) {
        const struct value *v = find(&b, NAME[i]);
        const int64_t d = v->shape[3];
        for (int64_t k = 0; k < v->count; k++)
            CHECK(!isnan(((double *)v->before)[k]) &&
                  (k / d % TOKENS < used[k / d / TOKENS / H_KV] || ((double *)v->before)[k] == 0));
    }
    run(&b, 3, edge, edge);
    compare(&b, "mla_decoupled", 1e-9);
    close_bench(&b);
}

/* Linear attention, too. */
TEST_TIMEOUT(eight_ranks_with_states, 300)
{
    static const int64_t any[] = {0, 1, 5, 5, 6, 14, 20, 20, 24};
    static const char *const SPEC[] = {"gated_delta", "kda", "gla", "linear_elu"};
    for (int i = 0; i < 4; i++) {
        struct bench b;
        open_bench(&b, SPEC[i], TOKENS);
        for (int pass = 0; pass < 2; pass++) {
            whole(&b, (lathe_pass)pass);
            run(&b, 8, any, any);
            compare(&b, SPEC[i], 1e-8);
        }
        close_bench(&b);
    }
}

/* ---- what does not fit ------------------------------------------------------------------------------------
 */

/* One dim of one argument is not as the others say. */
static void refuse_shape(const char *spec, lathe_scheme scheme, lathe_pass pass, const char *name, int dim,
                         int64_t size, const char *text)
{
    struct part *p = calloc(1, sizeof *p);
    const lathe_dist_options o = {.scheme = scheme, .whole_q = scheme == LATHE_SCHEME_KEYS};
    const lathe_transport nobody = {.ranks = 1};
    lathe_dist *dist;
    struct bench b;
    lathe_error err = {0};
    CHECK(p != NULL);
    open_bench(&b, spec, TOKENS);
    b.pass = pass;
    b.q_edge = b.kv_edge = (const int64_t[]){0, TOKENS};
    p->b = &b;
    take(p);
    for (int k = 0; k < p->n; k++)
        if (strcmp(p->arg[k].name, name) == 0)
            p->shape[k][dim] = size;
    CHECK_EQ(lathe_dist_create(&dist, b.ctx, b.spec, pass, &nobody, &o, p->arg, p->n, &err), LATHE_ARG);
    CHECK_HAS(err.text, text);
    for (int k = 0; k < p->n; k++)
        free(p->arg[k].data);
    free(p);
    close_bench(&b);
}

/* Schemes cut tensors before a call looks at them, which would read beyond the end of one. */
TEST(shapes_that_do_not_fit_each_other)
{
    static const lathe_scheme LIST[] = {LATHE_SCHEME_KEYS, LATHE_SCHEME_HEADS, LATHE_SCHEME_GATHER,
                                        LATHE_SCHEME_RING};
    for (int i = 0; i < 4; i++) {
        refuse_shape("sinks", LIST[i], LATHE_FORWARD, "v", 2, TOKENS - 1,
                     "dist: argument 'v': expected kv=24 in dim 2, as 'k' has, given 23");
        refuse_shape("sinks", LIST[i], LATHE_FORWARD, "v", 1, 1,
                     "dist: argument 'v': expected h_kv=2 in dim 1, as 'k' has, given 1");
        refuse_shape("sinks", LIST[i], LATHE_FORWARD, "o", 2, 0,
                     "dist: argument 'o': expected q=24 in dim 2, as 'q' has, given 0");
        refuse_shape("sinks", LIST[i], LATHE_BACKWARD, "do", 2, 7,
                     "dist: argument 'do': expected q=24 in dim 2, as 'q' has, given 7");
        refuse_shape("pair_bias", LIST[i], LATHE_FORWARD, "bias", 2, 7,
                     "dist: argument 'bias': expected q=24 in dim 2, the queries of all ranks, given 7");
    }
    refuse_shape("gated_delta", LATHE_SCHEME_STATES, LATHE_FORWARD, "state_out", 2, 0,
                 "dist: argument 'state_out': expected d=16 in dim 2, as 'q' has, given 0");
}

TEST(an_argument_twice_and_one_without_data)
{
    static _Alignas(256) double data[1024];
    const int64_t shape[] = {1, 1, 4, 16};
    lathe_arg arg[] = {{"q", data, LATHE_F64, 4, shape, NULL},
                       {"k", data, LATHE_F64, 4, shape, NULL},
                       {"v", data, LATHE_F64, 4, shape, NULL},
                       {"o", data + 512, LATHE_F64, 4, shape, NULL},
                       {"k", data, LATHE_F64, 4, shape, NULL}};
    lathe_threads *group;
    lathe_transport t;
    lathe_dist *dist;
    lathe_error err = {0};
    struct bench b;
    open_bench(&b, "causal", TOKENS);
    CHECK_EQ(lathe_threads_create(&group, 1, &err), LATHE_OK);
    CHECK_EQ(lathe_threads_rank(group, 0, &t, &err), LATHE_OK);
    CHECK_EQ(lathe_dist_create(&dist, b.ctx, b.spec, LATHE_FORWARD, &t, NULL, arg, 4, &err), LATHE_OK);
    arg[2].data = NULL;
    CHECK_EQ(lathe_dist_launch(dist, arg, 4, data, NULL, &err), LATHE_ARG);
    CHECK_STR(err.text, "dist: argument 'v': expected a data pointer, given NULL");
    lathe_dist_destroy(dist);
    CHECK_EQ(lathe_dist_create(&dist, b.ctx, b.spec, LATHE_FORWARD, &t, NULL, arg, 5, &err), LATHE_ARG);
    CHECK_STR(err.text, "dist: argument 'k': given twice");
    lathe_threads_destroy(group);
    close_bench(&b);
}
