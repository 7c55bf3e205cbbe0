// rowwise/cluster_reduce.cuh: for rowwise/staged.cuh: what the blocks of a cluster reduce, in two halves.
#pragma once
#include "rowwise/vectors.cuh"

namespace many
{

// Beside column sums, and where rows are written late, each warp pushes what it has to every block, unless they are
// many; else the first one what its block has. All threads get the same, in the order of ranks and warps. There may be
// other work in between.
constexpr int PUSHING = (variant::COLUMNS > 0 || cfg::LATE) && CLUSTER * WARPS <= 128 ? WARPS : 1;
using row_exchange = cluster_exchange<PUSHING>;
template <int P> DEV void send_cluster(float (&red)[SLOTS], scratch &shared, int turn, const row_exchange &exchange)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    exchange.expect<P>();
    if constexpr (PUSHING < WARPS) {
        reduce_team<P>(red, shared, turn);
    } else {
        reduce_lanes<P, 32>(red, cfg::PER_THREAD);
    }
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            if (lane < CLUSTER && warp < PUSHING) {
                exchange.push<R>(red[R], warp, lane);
            }
        }
    });
}
template <int P> DEV void exchange_cluster(float (&red)[SLOTS], row_exchange &exchange)
{
    constexpr int MEMBERS = CLUSTER * PUSHING;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    exchange.wait();
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            constexpr int OP = variant::REDUCE_OP[R];
            constexpr int SPREAD = variance_beside<variant, R>();
            if constexpr (SPREAD >= 0) {
                const auto word = [&]<int OF>(int k) { return load_shared(exchange.word(number_in_pass<OF>(), 0, k)); };
                parts_spread<MEMBERS>(
                    red[R], red[SPREAD], cfg::THREADS / PUSHING * cfg::PER_THREAD,
                    [&](int k) { return word.template operator()<R>(k); },
                    [&](int k) { return word.template operator()<SPREAD>(k); });
            } else if constexpr (spread_about<variant, R>() < 0) {
                red[R] = red_identity<OP>();
#pragma unroll
                for (int first = 0; first < MEMBERS; first += 32) {
                    if (MEMBERS % 32 == 0 || first + lane < MEMBERS) {
                        red[R] =
                            red_combine<OP>(red[R], load_shared(exchange.word(number_in_pass<R>(), 0, first + lane)));
                    }
                }
            }
        }
    });
    reduce_lanes<P, 32>(red, 0);
    exchange.passes++;
}

} // namespace many
