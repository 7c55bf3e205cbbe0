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
    for (int i = 0; i < 6; i++)
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
