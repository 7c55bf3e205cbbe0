// rowwise/inner.cuh: kernel: rows along the dim before the last, of several tensors in and out, for the `variant` of
// rowwise/registers.cuh. Rows are neighbours in memory: a thread has VECTOR of them, 16 bytes at each place i.
//
// LATHE_ENTRY(rows): BLOCKS blocks of THREADS threads take strips of UNITS_WIDE * VECTOR rows, in turn but for CLUSTER
// > 1; adjacent threads have adjacent rows, then the next places. PER_THREAD / VECTOR places of each thread wait in
// shared memory, where cp.async brings
// them: those of the next strip as soon as they have been used for the last time. What is beyond is read again in every
// pass.
// TAKEN: the first pass takes a thread's places into registers, so that those of the next strip come while the others
// run. CLUSTER > 1 (sm_90): that many blocks have a strip, whose places they share; what the passes reduce goes to the
// others' shared memory. Not all clusters are equally fast: each takes its first two strips in turn, the others from a
// counter, where that counts so many.
// KEPT: L2 gives up last what is read.
// No scans (rowwise/inner_scan.cuh), no sums over rows. Rows that do not fill a thread's vector are read and written by
// elements.
#include "rowwise/inner_tiles.cuh"
#include "common/work_counter.cuh"
#include "rowwise/vectors.cuh"

namespace many
{

static_assert(V * sizeof(element) == 16 && !INNER && WHOLE_BLOCK, "a thread has 16 bytes of rows");
static_assert(WORDS % 4 == 0 || variant::IN == 0, "a vector of every tensor is 16 bytes or a multiple");
static_assert(!FULL || !cfg::MORE, "all places of full rows wait in shared memory");
static_assert(variant::COLUMNS == 0 && variant::SUMS == 0 && variant::SCANS == 0, "no sums over rows or along them");
static_assert(!cfg::TAKEN || (variant::PASSES > 0 && !cfg::MORE), "the first pass takes all places into registers");
static_assert(cfg::UNITS_WIDE >= 1 && cfg::UNITS_WIDE <= 32 && (cfg::UNITS_WIDE & (cfg::UNITS_WIDE - 1)) == 0,
              "cfg::UNITS_WIDE is a power of two up to a warp");

// ---- the variant -------------------------------------------------------------------------------------

DEV void make_col(const rows_params &p, const variant::head &head, int i, variant::col (&c)[1])
{
    if constexpr (variant::COLS) {
        if (is_place(p, i)) {
            variant::make_cols<1>(p.x, p.z, head, i, c);
        }
    }
}

// Element j of every tensor. `zero`, which the compiler does not know, keeps it from holding what an earlier pass made
// of the places in registers, of which there are none; with what makes an element of bf16 of a word it takes no time.
DEV void unpack_anew(const piece &from, u32 zero, float (&e)[IN], int j)
{
    e[0] = 0.0f;
    repeat<0, variant::IN>([&]<int K>() {
        using T = in_type<K>;
        if constexpr (sizeof(T) == 4) {
            e[K] = __uint_as_float(from.word[first_word<K>() + j] ^ zero);
        } else {
            const u32 word = from.word[first_word<K>() + j / 2];
            if constexpr (same_type<T, bf16>) {
                e[K] = __uint_as_float(j % 2 == 0 ? (word << 16) + zero : (word & 0xffff0000u) | zero);
            } else {
                e[K] = to_float(T{static_cast<u16>((word ^ zero) >> (16 * (j % 2)))});
            }
        }
    });
}

struct pairs_of_rows { // of reductions that compare elements as they are
    u32 of[SLOTS][V / 2];
};

template <int P> DEV void reduce_place(float (&red)[SLOTS][V], pairs_of_rows &pairs, const piece &held, u32 zero,
                                       const rows_params &p, const variant::head &head, const strip_values &vals, int i)
{
    variant::col c[1] = {};
    if constexpr (variant::REDUCE_COLS) {
        make_col(p, head, i, c);
    }
    if (is_place(p, i)) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            float e[IN];
            unpack_anew(held, zero, e, j);
            repeat<0, variant::REDUCTIONS>([&]<int R>() {
                if constexpr (variant::REDUCE_PASS[R] == P && compares_pairs<R>()) {
                    if (j % 2 == 0) {
                        constexpr int K = compared_tensor<variant, R>();
                        pairs.of[R][j / 2] = red_combine_pairs<variant::REDUCE_OP[R], in_type<K>>(
                            pairs.of[R][j / 2], held.word[first_word<K>() + j / 2]);
                    }
                } else if constexpr (variant::REDUCE_PASS[R] == P) {
                    red[R][j] = red_combine<variant::REDUCE_OP[R]>(
                        red[R][j], variant::operand<R>(e, i, p.x, p.z, head, c[0], vals.of[j]));
                }
            });
        }
    }
}

// WHOLE: of threads that have V rows, and of no others.
template <bool WHOLE> DEV void finish_place(const piece &held, u32 zero, const targets &to, const rows_params &p,
                                            const variant::head &head, const strip_values &vals, const strip &s, int i)
{
    if ((WHOLE ? s.n < V : s.n <= 0) || !is_place(p, i)) {
        return;
    }
    variant::col c[1] = {};
    make_col(p, head, i, c);
    float out[OUT][V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        float e[IN];
        float y[OUT];
        float site[COLUMNS];
        const float q[SCANS] = {};
        unpack_anew(held, zero, e, j);
        variant::output(e, i, p.x, p.z, head, c[0], vals.of[j], q, y, site);
        repeat<0, variant::OUT>([&]<int K>() { out[K][j] = y[K]; });
    }
    repeat<0, variant::OUT>([&]<int K>() { store_place<WHOLE, K>(to, s, out[K]); });
}

// Of the rows of a strip, of which each thread has one at most: reductions of a pass begin at threads beside each
// other.
static_assert(STRIP <= cfg::THREADS, "a thread has one row");
template <int R> DEV int row_of_thread()
{
    constexpr int BEFORE = number_in_pass<R>() * STRIP % cfg::THREADS;
    const int row = static_cast<int>(threadIdx.x) - BEFORE;
    return row < 0 ? row + cfg::THREADS : row;
}

DEV int strips_across(const rows_params &p) { return (p.z.rows - 1) / STRIP + 1; } // side by side
DEV int count_strips(const rows_params &p) { return p.z.rows <= 0 ? 0 : p.z.rows0 * p.z.rows1 * strips_across(p); }

// Strips that a cluster takes: a thread of its first block asks for one at the beginning of each, when one more is
// known.
struct taken_strip {
    const rows_params &p;
    int after; // the strip after the next
    u64 asked;

    __device__ __forceinline__ static int clusters() { return static_cast<int>(gridDim.x) / CLUSTER; }
    __device__ __forceinline__ static bool asks() { return threadIdx.x == 0 && cluster_rank() == 0; }
    __device__ __forceinline__ item_counter counter() const
    {
        return {static_cast<u64 *>(p.carries), static_cast<u32>(count_strips(p))};
    }
    __device__ __forceinline__ bool counts() const
    {
        return CLUSTER > 1 && p.carries != nullptr && counter().items < item_counter::LIMIT;
    }
    __device__ __forceinline__ void ask(int in_turn)
    {
        after = in_turn;
        if (counts() && asks()) {
            asked = counter().ask();
        }
    }
    __device__ __forceinline__ int number() const
    {
        return counts() ? 2 * clusters() + static_cast<int>(counter().take(asked)) : after;
    }
};

// Over the blocks of a cluster, in the order of their ranks. With the first pass of a strip the first block tells
// `strip`, the one after the next.
using strip_exchange = cluster_exchange<STRIP>;
DEV u32 place_of_next(const strip_exchange &exchange)
{
    return exchange.place + strip_exchange::BYTES + exchange.passes % 2 * 4;
}
template <int P> DEV void reduce_cluster_strip(strip_scratch &shared, strip_exchange &exchange, taken_strip &strip)
{
    const auto each = [&](const auto &f) { // f<reduction>(row)
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                if (const int x = row_of_thread<R>(); x < STRIP) {
                    f.template operator()<R>(x);
                }
            }
        });
    };
    exchange.expect<P>(P == 0 ? 1 : 0);
    if (P == 0 && taken_strip::asks()) {
        const float number = __int_as_float(strip.number());
#pragma unroll 1
        for (int k = 0; k < CLUSTER; k++) {
            exchange_push<CLUSTER>(place_of_next(exchange), number, exchange.counter(), k);
        }
    }
    each([&]<int R>(int x) {
#pragma unroll
        for (int k = 0; k < CLUSTER; k++) {
            exchange.push<R>(shared.all[R][x], x, k);
        }
    });
    exchange.wait();
    each([&]<int R>(int x) {
        float part[CLUSTER];
#pragma unroll
        for (int k = 0; k < CLUSTER; k++) {
            part[k] = load_shared(exchange.word(number_in_pass<R>(), k, x));
        }
        float all = part[0];
#pragma unroll
        for (int k = 1; k < CLUSTER; k++) {
            all = red_combine<variant::REDUCE_OP[R]>(all, part[k]);
        }
        shared.all[R][x] = all;
    });
    if constexpr (P == 0) { // before this block takes part in another pass, in which the next number may come
        strip.after = __float_as_int(load_shared(place_of_next(exchange)));
    }
    exchange.passes++;
    __syncthreads();
}

// Lanes with the same rows, of which each keeps some in the end: half of them are handed over at each step. Returns the
// first one, which comes to stand at red[0]; where there are more lanes than rows, V for all but one of those that have
// the same.
constexpr int KEPT_ROWS = max_of(V * WIDE / 32, 1);
template <int OP> DEV int add_lanes(float (&red)[V])
{
    int first = 0;
#pragma unroll
    for (int step = WIDE, rows = V; step < 32; step *= 2, rows = max_of(rows / 2, 1)) {
        const bool upper = (static_cast<int>(threadIdx.x) & step) != 0;
        const int half = rows / 2;
        if (half == 0) {
            red[0] = red_combine<OP>(red[0], __shfl_xor_sync(ALL_LANES, red[0], step));
            first = upper ? V : first;
        }
#pragma unroll
        for (int j = 0; j < half; j++) {
            const float given = upper ? red[j] : red[j + half];
            red[j] = red_combine<OP>(upper ? red[j + half] : red[j], __shfl_xor_sync(ALL_LANES, given, step));
        }
        first += upper ? half : 0;
    }
    return first;
}

// Over the places of the block: lanes with the same rows, then warps. Every thread gets what its rows have.
template <int P> DEV void reduce_strip(float (&red)[SLOTS][V], strip_scratch &shared,
                                       [[maybe_unused]] strip_exchange &exchange, [[maybe_unused]] taken_strip &strip)
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int unit = unit_of_thread();
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            constexpr int OP = variant::REDUCE_OP[R];
            const int first = add_lanes<OP>(red[R]);
#pragma unroll
            for (int j = 0; j < KEPT_ROWS; j++) {
                if (first < V) {
                    shared.part[R][warp][unit * V + first + j] = red[R][j];
                }
            }
        }
    });
    __syncthreads();
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            if (const int x = row_of_thread<R>(); x < STRIP) {
                float all = shared.part[R][0][x];
#pragma unroll
                for (int w = 1; w < WARPS; w++) {
                    all = red_combine<variant::REDUCE_OP[R]>(all, shared.part[R][w][x]);
                }
                shared.all[R][x] = all;
            }
        }
    });
    if constexpr (CLUSTER > 1) {
        reduce_cluster_strip<P>(shared, exchange, strip);
    } else {
        __syncthreads();
    }
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                red[R][j] = shared.all[R][unit * V + j];
            }
        }
    });
}

// The places of a thread out of shared memory, and those of the strip `later` on their way into it: HELD copy groups,
// of which the oldest is waited for.
DEV void take_strip(strip_pieces &taken, const rows_params &p, const strip &later, u32 held)
{
    const auto go_on = [&](sources &from) {
        repeat<0, variant::IN>([&]<int K>() { from.of[K] += source_step<K>(p, PLACES); });
    };
    const sources first = find_sources(p, later, place_of_thread());
    sources from = first;
#pragma unroll
    for (int k = 0; k < HELD; k++) {
        copy_wait<max_of(HELD, 1) - 1>();
        take(taken.of[k], held, k);
        fetch_whole(held, from, p, later, k, place_of_thread() + k * PLACES);
        copy_commit();
        go_on(from);
    }
    if (later.n > 0 && later.n < V) {
        from = first;
#pragma unroll 1
        for (int k = 0; k < HELD; k++) {
            fetch_part(held, from, p, later, k, place_of_thread() + k * PLACES);
            go_on(from);
        }
    }
}

DEV u32 load_shared_anew(const u32 &x) { return *static_cast<const volatile u32 *>(&x); }

// Place k of a thread, for one pass.
DEV void get_place(piece &now, const strip_pieces &taken, u32 held, int k)
{
    if constexpr (TAKEN) {
        now = taken.of[k];
    } else {
        take(now, held, k);
    }
}

template <int P> DEV void run_pass(const rows_params &p, const variant::head &head, strip_values &vals, const strip &s,
                                   u32 held, const strip_pieces &taken, strip_scratch &shared, strip_exchange &exchange,
                                   taken_strip &strip)
{
    float red[SLOTS][V];
    pairs_of_rows pairs;
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                red[R][j] = red_identity<variant::REDUCE_OP[R]>();
                if constexpr (compares_pairs<R>()) {
                    pairs.of[R][j / 2] = pack<in_type<compared_tensor<variant, R>()>>(red[R][j], red[R][j]);
                }
            }
        }
    });
    const u32 zero = TAKEN && P > 0 ? load_shared_anew(shared.zero) : 0;
#pragma unroll UNROLL
    for (int k = 0; k < HELD; k++) {
        piece now;
        get_place(now, taken, held, k);
        reduce_place<P>(red, pairs, now, zero, p, head, vals, place_of_thread() + k * PLACES);
    }
    if constexpr (cfg::MORE) {
#pragma unroll 1
        for (int i = HELD * PLACES + place_of_thread(); i < p.z.n; i += MORE * PLACES) {
            piece now[MORE];
#pragma unroll
            for (int k = 0; k < MORE; k++) {
                load_place(now[k], p, s, i + k * PLACES);
            }
#pragma unroll
            for (int k = 0; k < MORE; k++) {
                reduce_place<P>(red, pairs, now[k], 0, p, head, vals, i + k * PLACES);
            }
        }
    }
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P && compares_pairs<R>()) {
#pragma unroll
            for (int j = 0; j < V; j += 2) {
                unpack<in_type<compared_tensor<variant, R>()>>(pairs.of[R][j / 2], red[R][j], red[R][j + 1]);
            }
        }
    });
    reduce_strip<P>(red, shared, exchange, strip);
#pragma unroll
    for (int j = 0; j < V; j++) {
        float mine[SLOTS];
#pragma unroll
        for (int r = 0; r < SLOTS; r++) {
            mine[r] = red[r][j];
        }
        variant::update<P>(vals.of[j], mine, p.x, p.z, head);
    }
}

// The places of a thread that are held, where it has fewer than V rows: they are read again, so that there is one copy
// of the formulas.
DEV void write_part(const rows_params &p, const variant::head &head, const strip_values &vals, const strip &s)
{
    targets to = find_targets(p, s, place_of_thread());
#pragma unroll 1
    for (int i = place_of_thread(); i < min(HELD * PLACES, p.z.n); i += PLACES) {
        piece now;
        load_place(now, p, s, i);
        finish_place<false>(now, 0, to, p, head, vals, s, i);
        repeat<0, variant::OUT>([&]<int K>() { to.of[K] += target_step<K>(p, PLACES); });
    }
}

DEV void write_strip(const rows_params &p, const variant::head &head, const strip_values &vals, const strip &s,
                     const strip &later, u32 held, const strip_pieces &taken, const strip_scratch &shared)
{
    targets to = find_targets(p, s, place_of_thread());
    sources from = find_sources(p, later, place_of_thread());
    const u32 zero = TAKEN ? load_shared_anew(shared.zero) : 0;
    const auto go_on = [&] {
        repeat<0, variant::OUT>([&]<int K>() { to.of[K] += target_step<K>(p, PLACES); });
        repeat<0, variant::IN>([&]<int K>() { from.of[K] += source_step<K>(p, PLACES); });
    };
#pragma unroll UNROLL
    for (int k = 0; k < HELD; k++) {
        const int i = place_of_thread() + k * PLACES;
        piece now;
        get_place(now, taken, held, k);
        finish_place<PART_LATER>(now, zero, to, p, head, vals, s, i);
        if constexpr (!TAKEN) {
            fetch(held, from, p, later, k, i);
        }
        go_on();
    }
    if constexpr (!TAKEN) {
        copy_commit();
    }
    if constexpr (variant::OUT > 0 && HELD > 0 && PART_LATER) {
        if (s.n > 0 && s.n < V) {
            write_part(p, head, vals, s);
        }
    }
    if constexpr (variant::OUT > 0 && cfg::MORE) {
#pragma unroll 1
        for (int i = HELD * PLACES + place_of_thread(); i < p.z.n; i += MORE * PLACES) {
            piece now[MORE];
#pragma unroll
            for (int k = 0; k < MORE; k++) {
                load_place(now[k], p, s, i + k * PLACES);
            }
#pragma unroll
            for (int k = 0; k < MORE; k++) {
                finish_place<false>(now[k], 0, to, p, head, vals, s, i + k * PLACES);
                go_on();
            }
        }
    }
}

} // namespace many

namespace smem_bytes
{
constexpr int rows = static_cast<int>(many::HELD * many::UNITS * many::UNIT_BYTES + many::strip_exchange::BYTES) +
                     (many::CLUSTER > 1 ? 16 : 0); // which strip comes after the next
}

#if LATHE_COMPILED(rows)
extern "C" __global__ void LATHE_CLUSTER __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ rows_params p)
{
    using namespace many;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    __shared__ strip_scratch shared;
    const u32 held = shared_address(shared_bytes) + 16 * threadIdx.x;
    const variant::head head = variant::make_head(p.x, p.z);
    const int across = strips_across(p);
    const int strips = count_strips(p);
    const auto strip_at = [&](int number) {
        const int outer = number / across;
        const int row0 = outer / p.z.rows1;
        const int row2 = (number - outer * across) * STRIP + unit_of_thread() * V;
        strip s = {{outer * p.z.rows + row2, row0, outer - row0 * p.z.rows1, row2}, 0};
        s.n = number < strips ? min(V, p.z.rows - row2) : 0;
        return s;
    };
    strip_exchange exchange = {shared_address(shared_bytes) + HELD * (UNITS * UNIT_BYTES), 0};
    const int first = static_cast<int>(blockIdx.x) / CLUSTER;
    const int step = taken_strip::clusters();
    if (first >= strips) {
        return;
    }
    if (TAKEN && threadIdx.x == 0) {
        shared.zero = 0;
    }
    exchange.open();
    if constexpr (HELD > 0) {
        const strip s = strip_at(first);
        sources from = find_sources(p, s, place_of_thread());
#pragma unroll 1
        for (int k = 0; k < HELD; k++) {
            fetch(held, from, p, s, k, place_of_thread() + k * PLACES);
            repeat<0, variant::IN>([&]<int K>() { from.of[K] += source_step<K>(p, PLACES); });
            copy_commit();
        }
    }
    taken_strip ahead = {p, 0, 0};
    int next = first + step;
#pragma unroll 1
    for (int number = first; number < strips; number = next, next = ahead.after) {
        ahead.ask(next + step);
        const strip s = strip_at(number);
        strip_values vals;
#pragma unroll
        for (int j = 0; j < V; j++) {
            row_at at = s.at;
            const int row = max(min(j, s.n - 1), 0); // of one that exists
            at.row += s.n > 0 ? row : -at.row;
            at.row2 += s.n > 0 ? row : -at.row2;
            variant::begin(vals.of[j], p, head, at);
        }
        strip_pieces taken;
        if constexpr (TAKEN) {
            take_strip(taken, p, strip_at(next), held);
        } else {
            copy_wait<0>();
        }
        find_strip_norms(vals, p, head, s); // what is given has come with the rest
        repeat<0, variant::PASSES>(
            [&]<int P>() { run_pass<P>(p, head, vals, s, held, taken, shared, exchange, ahead); });
        write_strip(p, head, vals, s, strip_at(next), held, taken, shared);
        if constexpr (variant::KEPT > 0) {
            if (place_of_thread() == 0) {
                keep_rows(p, head, vals, s);
            }
        }
    }
}
#endif
