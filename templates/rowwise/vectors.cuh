// rowwise/vectors.cuh: for the kernels of rows: the variant over one vector of a row, and its reductions over the
// threads of a row.
#pragma once
#include "rowwise/norms.cuh"
#include "rowwise/rows.cuh"

namespace many
{

constexpr int SCANS = max_of(variant::SCANS, 1);

// A vector that begins at column i of a row at hand. `sure`: no row ends before it.
DEV bool is_in_row(const place &row, int i, int n, bool sure = false)
{
    if constexpr (FULL && WHOLE_BLOCK) {
        return true;
    } else {
        return (WHOLE_BLOCK || row.here) && (FULL || sure || i < n);
    }
}

// Elements of 16 bits that are compared as they are: two at once.
template <int R> __host__ __device__ constexpr bool compares_pairs()
{
    constexpr int K = compared_tensor<variant, R>();
    if constexpr (K >= 0 && V > 1) {
        return sizeof(in_type<K>) == 2;
    } else {
        return false;
    }
}

static_assert((FULL && !INNER) || !has_spreads<variant>(), "rows whose parts have spreads are full");

// What one vector adds to the reductions of pass P: a tree, so that sums are short and independent. `number`: of the
// thread's vectors of a row.
template <int P> DEV float reduce_piece(float (&red)[SLOTS], const piece &held, const variant::col (&c)[V],
                                        const rows_params &p, const variant::head &head, const variant::vals &vals,
                                        const place &row, int i, int number, bool sure = false)
{
    const bool in_row = is_in_row(row, i, p.z.n, sure);
    float done = 0.0f;
    float before[SLOTS];
#pragma unroll
    for (int r = 0; r < SLOTS; r++) {
        before[r] = red[r];
    }
    float term[SLOTS][V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        float e[max_of(variant::IN, 1)];
        unpack_piece(held, e, j);
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            constexpr bool SELDOM = adds_seldom<variant, R>() && spread_about<variant, R>() < 0;
            if constexpr (variant::REDUCE_PASS[R] == P && !SELDOM && !compares_pairs<R>()) {
                term[R][j] = variant::operand<R>(e, i + j, p.x, p.z, head, c[j], vals);
            }
        });
    }
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P && compares_pairs<R>()) {
            constexpr int OP = variant::REDUCE_OP[R];
            constexpr int K = compared_tensor<variant, R>();
            u32 both = held.word[first_word<K>()];
#pragma unroll
            for (int w = 1; w < words_of<K>(); w++) {
                both = red_combine_pairs<OP, in_type<K>>(both, held.word[first_word<K>() + w]);
            }
            float other;
            unpack<in_type<K>>(both, done, other);
            done = red_combine<OP>(done, other);
            red[R] = in_row ? red_combine<OP>(red[R], done) : red[R];
        } else if constexpr (variant::REDUCE_PASS[R] == P && spread_about<variant, R>() >= 0) {
            red[R] = done = add_to_spread<V>(red[R], before[spread_about<variant, R>()], term[R], number);
        } else if constexpr (variant::REDUCE_PASS[R] == P && !adds_seldom<variant, R>()) {
            constexpr int OP = variant::REDUCE_OP[R];
#pragma unroll
            for (int step = 1; step < V; step *= 2) {
#pragma unroll
                for (int j = 0; j + step < V; j += 2 * step) {
                    term[R][j] = red_combine<OP>(term[R][j], term[R][j + step]);
                }
            }
            done = term[R][0];
            red[R] = in_row ? red_combine<OP>(red[R], term[R][0]) : red[R];
        } else if constexpr (variant::REDUCE_PASS[R] == P) {
            if (in_row && may_add<variant, R>(i, V, p.x, p.z, head, vals)) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    float e[max_of(variant::IN, 1)];
                    unpack_piece(held, e, j);
                    red[R] = red_combine<variant::REDUCE_OP[R]>(
                        red[R], variant::operand<R>(e, i + j, p.x, p.z, head, c[j], vals));
                }
            }
        }
    });
    return done;
}

template <int P> DEV void clear_reductions(float (&red)[SLOTS])
{
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            red[R] = red_identity<variant::REDUCE_OP[R]>();
        }
    });
}

struct scratch { // two sets in turn: a pass may write while slow warps still read the one before
    float part[2][SLOTS][PARTS];
};

// ---- what the blocks of a cluster tell each other ----------------------------------------------------

template <int P> __host__ __device__ constexpr int count_reductions() // of pass P
{
    int n = 0;
    for (int r = 0; r < variant::REDUCTIONS; r++) {
        n += variant::REDUCE_PASS[r] == P ? 1 : 0;
    }
    return n;
}
template <int R> __host__ __device__ constexpr int number_in_pass()
{
    int n = 0;
    for (int r = 0; r < R; r++) {
        n += variant::REDUCE_PASS[r] == variant::REDUCE_PASS[R] ? 1 : 0;
    }
    return n;
}
constexpr int most_reductions()
{
    int most = 1;
    for (int r = 0; r < variant::REDUCTIONS; r++) {
        int n = 0;
        for (int k = 0; k < variant::REDUCTIONS; k++) {
            n += variant::REDUCE_PASS[k] == variant::REDUCE_PASS[r] ? 1 : 0;
        }
        most = max_of(most, n);
    }
    return most;
}

// Two sets of words in turn, and an mbarrier of each: who is a pass ahead pushes into one while others still read the
// other. Nobody is
// two ahead: a pass ends when the words of all have come, and who pushes has read those of the pass before.
template <int WORDS> struct cluster_exchange { // WORDS: of one reduction, from each block
    static constexpr u32 TURN_BYTES = 4 * CLUSTER * WORDS * most_reductions();
    static constexpr u32 BYTES = CLUSTER > 1 && variant::PASSES > 0 ? 2 * TURN_BYTES + 16 : 0;
    u32 place;
    u32 passes;

    __device__ __forceinline__ u32 words() const { return place + passes % 2 * TURN_BYTES; }
    __device__ __forceinline__ u32 counter() const { return place + 2 * TURN_BYTES + passes % 2 * 8; }
    __device__ __forceinline__ u32 word(int reduction, int rank, int x) const
    {
        return words() + static_cast<u32>(4 * ((reduction * CLUSTER + rank) * WORDS + x));
    }
    __device__ __forceinline__ void open()
    {
        if constexpr (CLUSTER > 1 && variant::PASSES > 0) {
            if (threadIdx.x == 0) {
                exchange_init(place + 2 * TURN_BYTES);
                exchange_init(place + 2 * TURN_BYTES + 8);
            }
            cluster_barrier<CLUSTER>();
        }
    }
    template <int P> __device__ __forceinline__ void expect(int others = 0) const // words beside them
    {
        if (threadIdx.x == 0) {
            exchange_expect(counter(), 4 * (CLUSTER * WORDS * count_reductions<P>() + others));
        }
    }
    template <int R> __device__ __forceinline__ void push(float mine, int x, int to) const
    {
        exchange_push<CLUSTER>(word(number_in_pass<R>(), cluster_rank(), x), mine, counter(), static_cast<u32>(to));
    }
    __device__ __forceinline__ void wait() const { exchange_wait<CLUSTER>(counter(), passes / 2 % 2); }
};
// Over N adjacent lanes, what pass P reduces beside each other: a chain of shuffles waits longer than it works.
// Of spreads, and of the sums beside them, each lane's is of `count` elements; 0: they are left as they are.
template <int P, int N> DEV void reduce_lanes(float (&red)[SLOTS], int count)
{
#pragma unroll
    for (int i = N / 2; i > 0; i /= 2) {
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            constexpr int SPREAD = variance_beside<variant, R>();
            if constexpr (variant::REDUCE_PASS[R] == P && SPREAD >= 0) {
                if (count > 0) {
                    const float other = __shfl_xor_sync(ALL_LANES, red[R], i);
                    red[SPREAD] = join_spreads(red[SPREAD], __shfl_xor_sync(ALL_LANES, red[SPREAD], i), red[R], other,
                                               static_cast<float>(N / 2 / i * count));
                    red[R] += other;
                }
            } else if constexpr (variant::REDUCE_PASS[R] == P && spread_about<variant, R>() < 0) {
                red[R] = red_combine<variant::REDUCE_OP[R]>(red[R], __shfl_xor_sync(ALL_LANES, red[R], i));
            }
        });
    }
}

// Over the threads of a team in one block; every thread gets the results. At most one barrier, in the second half.
template <int P> DEV void send_team(float (&red)[SLOTS], scratch &shared, int turn)
{
    reduce_lanes<P, WHOLE_BLOCK ? 32 : TEAM>(red, cfg::PER_THREAD);
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            if (WHOLE_BLOCK && WARPS > 1 && threadIdx.x % 32 == 0) {
                shared.part[turn][R][threadIdx.x / 32] = red[R];
            }
        }
    });
}
template <int P> DEV void exchange_team(float (&red)[SLOTS], scratch &shared, int turn)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (WHOLE_BLOCK && WARPS > 1) {
        __syncthreads();
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
                const float(&part)[PARTS] = shared.part[turn][R];
                constexpr int SPREAD = variance_beside<variant, R>();
                if constexpr (SPREAD >= 0) {
                    parts_spread<WARPS>(
                        red[R], red[SPREAD], 32 * cfg::PER_THREAD, [&](int w) { return part[w]; },
                        [&](int w) { return shared.part[turn][SPREAD][w]; });
                } else if constexpr (spread_about<variant, R>() >= 0) {
                    // made beside its sum
                } else if constexpr (WARPS <= 8) { // broadcast reads: shorter than another five shuffles
                    red[R] = part[0];
#pragma unroll
                    for (int w = 1; w < WARPS; w++) {
                        red[R] = red_combine<OP>(red[R], part[w]);
                    }
                } else {
                    red[R] = lane < WARPS ? part[lane] : red_identity<OP>();
                }
            }
        });
        if constexpr (WARPS > 8) {
            reduce_lanes<P, 32>(red, 0);
        }
    }
}
template <int P> DEV void reduce_team(float (&red)[SLOTS], scratch &shared, int turn)
{
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (INNER) { // a row has a lane of every warp
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                shared.part[turn][R][threadIdx.x] = red[R];
            }
        });
        __syncthreads();
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                red[R] = shared.part[turn][R][lane];
#pragma unroll
                for (int w = 1; w < WARPS; w++) {
                    red[R] = red_combine<variant::REDUCE_OP[R]>(red[R], shared.part[turn][R][w * 32 + lane]);
                }
            }
        });
    } else {
        send_team<P>(red, shared, turn);
        exchange_team<P>(red, shared, turn);
    }
}

// One vector of columns: rows out, and what it adds to the sums of its columns.
DEV float finish_piece(const piece &held, const variant::col (&c)[V], const float (&scanned)[SCANS][V],
                       float (&column)[COLUMNS][V], const rows_params &p, const variant::head &head,
                       const variant::vals &vals, const place &row, int i, bool sure = false)
{
    const bool in_row = is_in_row(row, i, p.z.n, sure);
    float out[OUT][V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        float e[max_of(variant::IN, 1)];
        float y[OUT];
        float site[COLUMNS];
        float q[SCANS];
        unpack_piece(held, e, j);
#pragma unroll
        for (int s = 0; s < SCANS; s++) {
            q[s] = scanned[s][j];
        }
        variant::output(e, i + j, p.x, p.z, head, c[j], vals, q, y, site);
        repeat<0, variant::OUT>([&]<int K>() { out[K][j] = y[K]; });
        // beyond a row nobody leaves what is added
        repeat<0, variant::COLUMNS>([&]<int S>() { column[S][j] += WHOLE_BLOCK || in_row ? site[S] : 0.0f; });
    }
    if constexpr (variant::OUT > 0) {
        if (in_row) {
            repeat<0, variant::OUT>([&]<int K>() {
                if constexpr (first_of_out<variant, K>() > 0) {
                    store_first<K, first_of_out<variant, K>()>(row_written<K>(p, row), out[K], i, p.z.n);
                } else {
                    store_piece<K>(row_written<K>(p, row) + along(p.out[K], i), out[K]);
                }
            });
        }
    }
    return variant::OUT > 0 ? out[0][V - 1] : column[0][V - 1];
}

DEV void keep_row(const rows_params &p, const variant::head &head, const variant::vals &vals, const row_at &at)
{
    float kept[max_of(variant::KEPT, 1)];
    variant::keep_row(p.x, p.z, head, vals, kept);
    repeat<0, variant::KEPT>([&]<int K>() {
        if (p.kept[K].data != nullptr) {
            *row_of<float>(p.kept[K], at) = kept[K];
        }
    });
}
// Of the rows of a thread, which are neighbours.
template <class VALUES, class STRIP>
DEV void keep_rows(const rows_params &p, const variant::head &head, const VALUES &vals, const STRIP &s)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (j < s.n) {
            row_at at = s.at;
            at.row += j;
            at.row2 += j;
            keep_row(p, head, vals.of[j], at);
        }
    }
}

// What a row adds to the sums over everything, and the values that are kept of it.
DEV void leave_row(const rows_params &p, const variant::head &head, const variant::vals &vals, const place &row,
                   float (&total)[SUMS])
{
    if constexpr (variant::SUMS > 0) {
        float sum[SUMS];
        variant::sums(p.x, p.z, head, vals, sum);
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            total[s] += row.here ? sum[s] : 0.0f;
        }
    }
    if constexpr (variant::KEPT > 0) {
        if (row.here && lane_in_team() == 0) {
            keep_row(p, head, vals, row.at);
        }
    }
}

} // namespace many
