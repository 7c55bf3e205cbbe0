// rowwise/inner_scan_lookback.cuh: kernel: one plain sum along the dim before the last, of the rows that
// rowwise/inner_scan.cuh leaves to it: few strips, seldom cut.
//
// LATHE_ENTRY(lookback): blocks of LOOKBACK_THREADS threads, one on an SM. Strips are cut into parts of so many places
// as the warps of a block hold in shared memory, wherever segments begin. Blocks take parts from a counter: those of
// one number of all strips, then those of the next one. While a part is summed up and the one before it goes out, the
// next one comes. Three warps hold none of it: one takes parts, and finds out where segments begin in them, two find
// what is before them in what other blocks tell of theirs (rowwise/lookback_parts.cuh). So every row is read once,
// however long it is and however few rows there are.
#include "rowwise/lookback_parts.cuh"
#include "rowwise/inner_scan_reference.cuh"

namespace many
{

static_assert(LOOKS_BACK && (V == 2 || V == 4) && !INNER && WHOLE_BLOCK && !IN_REGISTERS && CLUSTER == 1,
              "a lane has two rows, or four");
static_assert(variant::PASSES == 0 && variant::COLUMNS == 0 && variant::SUMS == 0, "nothing else is summed");
static_assert(PIECE <= 32 && WORKERS >= V,
              "a warp has a lane for each place of a piece, and there is one for each row of a lane");

constexpr int PIECE_BYTES = cfg::LOOKBACK_BATCHES * ONCE_BYTES;

// ---- a piece -----------------------------------------------------------------------------------------

// The warp's piece of a part, of all tensors, goes on its way; of no part nothing does.
DEV void fetch_piece(const rows_params &p, const lookback &c, const lookback_part &at, u32 to)
{
    if (is_part(c, at)) {
        const strip s = strip_of(p, at);
        const int first = piece_of(c, at);
        repeat<0, variant::IN>([&]<int K>() {
            using copy = copies<K>;
            const i64 step = p.in[K].stride[3] * copy::SIZE;
            const char *from = reinterpret_cast<const char *>(row_of<in_type<K>>(p.in[K], s.first)) +
                               lane_of_warp() % copy::UNITS * 16 + (first + lane_of_warp() / copy::UNITS) * step;
#pragma unroll 1
            for (int k = 0; k < cfg::LOOKBACK_BATCHES; k++) {
                fetch_places<K>(to + static_cast<u32>(k * ONCE_BYTES + FIRST_BYTE<K>), from, p, s, first + k * PLACES,
                                policy_of(false));
                from += PLACES * step;
            }
        });
    }
    copy_commit();
}

// What its columns say; by lane, where formulas beside starts read them.
DEV columns columns_of(const rows_params &p, const variant::head &head, const lookback_part &at, int first)
{
    columns known = {};
    known.starts[0] = at.starts[warp_of_block()];
    if constexpr (TOLD) {
        variant::make_cols<1>(p.x, p.z, head, min(first + lane_of_warp(), p.z.n - 1), known.own.c);
    }
    return known;
}

// ---- a batch -----------------------------------------------------------------------------------------

// All places of a batch, of one segment but for where the first one begins it; `walked` moves on. out: rows go out.
DEV void walk_whole(const targets &to, batch &b, float (&walked)[V], const rows_params &p, const variant::head &head,
                    const strip_values &vals, const strip &s, bool out)
{
    const bool begins = b.starts[0] != 0;
    finished y[PLACES];
    packed words[PLACES];
#pragma unroll
    for (int j = 0; j < V; j++) {
        float sum = !in_reverse<0>() && begins ? 0.0f : walked[j];
#pragma unroll
        for (int step = 0; step < PLACES; step++) {
            const int k = place_in_walk<0>(step);
            aggregate one;
            sum += take_term<0, false>(one, b, k, k, p, head, vals, p.z.n, j).value;
            b.q[k].of[0][j] = sum;
        }
        walked[j] = in_reverse<0>() && begins ? 0.0f : sum;
    }
    if (out) {
#pragma unroll
        for (int j = 0; j < V; j++) {
            finish_rows(words, y, b, p, head, vals, j);
        }
        if (s.n > 0) {
            store_places(to, words, p);
        }
    }
}

// The same of any batch, in a loop that is not unrolled: it is seldom asked, and soon compiled.
DEV void walk_any(const targets &to, batch &b, float (&walked)[V], const rows_params &p, const variant::head &head,
                  const strip_values &vals, const strip &s, bool out)
{
    aggregate at[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        at[j] = nothing<0>();
        at[j].sum = walked[j];
    }
    walk_slowly<0, true>(to, b, at, p, head, vals, s, p.z.n, out);
#pragma unroll
    for (int j = 0; j < V; j++) {
        walked[j] = at[j].sum;
    }
}

// ---- a part ------------------------------------------------------------------------------------------

// By a warp that holds a piece of the part: its sums; out: what comes before them is known, and its rows go out.
DEV void walk_piece(const rows_params &p, const variant::head &head, const lookback &c, const lookback_part &at,
                    int buffer, const unsigned char *shared_bytes, lookback_scratch &shared, bool out)
{
    const int first = piece_of(c, at);
    const u32 from = static_cast<u32>((warp_of_block() * BUFFERS + buffer) * PIECE_BYTES);
    strip s = strip_of(p, at);
    strip_values vals;
    begin_rows(vals, p, head, s);
    const columns known = columns_of(p, head, at, first);
    float walked[V] = {};
    if (out) {
        take_before(walked, shared, buffer);
    }
#pragma unroll 1
    for (int step = 0; step < cfg::LOOKBACK_BATCHES; step++) {
        const int k = in_reverse<0>() ? cfg::LOOKBACK_BATCHES - 1 - step : step;
        batch b;
        batch_at_hand hand = {first + k * PLACES, k * PLACES, {}};
        repeat<0, variant::IN>([&]<int K>() {
            hand.own[K] = from + static_cast<u32>(k * ONCE_BYTES + FIRST_BYTE<K>) +
                          static_cast<u32>(lane_of_warp() * (words_of<K>() * 4));
        });
        take_places<0>(b, hand, known, shared_bytes);
        targets to;
        find_targets(to, p, s, b.base);
        if (b.base + PLACES <= p.z.n && b.starts[0] <= 1 && s.rows % V == 0) {
            walk_whole(to, b, walked, p, head, vals, s, out);
        } else {
            walk_any(to, b, walked, p, head, vals, s, out);
        }
    }
    if (!out) {
        leave_piece(walked, c, at, shared, buffer);
    } else if constexpr (variant::KEPT > 0) {
        if (at.number == 0 && warp_of_block() == 0) {
            keep_rows(p, head, vals, s);
        }
    }
}

// A part is summed up ahead of the one before it in the block goes out: others have told what they add by the time that
// is asked.
DEV void walk_parts(const rows_params &p, const lookback &c, unsigned char *shared_bytes, lookback_scratch &shared)
{
    const variant::head head = variant::make_head(p.x, p.z);
    const u32 ring = shared_address(shared_bytes) + static_cast<u32>(warp_of_block() * BUFFERS * PIECE_BYTES);
    const auto fetch = [&](int number) {
        fetch_piece(p, c, shared.part[slot_of(number)], ring + static_cast<u32>(number % BUFFERS * PIECE_BYTES));
    };
    exchange_at(-2);
#pragma unroll 1
    // the first ones are fetched by the same copy of the text
    for (int turn = -BUFFERS; turn < 0 || is_part(c, shared.part[slot_of(turn)]); turn++) {
        if (turn >= -1) {
            copy_wait<1>();
            __syncwarp();
#pragma unroll 1
            for (int way = is_part(c, shared.part[slot_of(turn + 1)]) ? 1 : 0; way >= 0; way--) { // one text for both
                if (way == 0) {
                    exchange_at(turn);
                    if (turn < 0) {
                        break;
                    }
                }
                walk_piece(p, head, c, shared.part[slot_of(turn + way)], (turn + way) % BUFFERS, shared_bytes, shared,
                           way == 0);
            }
            __syncwarp(); // nobody of the warp reads the piece any more
        }
        fetch(turn + BUFFERS);
    }
    copy_wait<0>();
}

} // namespace many

namespace smem_bytes
{
constexpr int lookback = many::WORKERS * many::BUFFERS * many::PIECE_BYTES;
}

#if LATHE_COMPILED(lookback)
extern "C" __global__ void __launch_bounds__(cfg::LOOKBACK_THREADS, 1)
    LATHE_ENTRY(lookback)(const __grid_constant__ rows_params p)
{
    using namespace many;
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ lookback_scratch shared;
    const lookback c(p);
    if (c.strips == 0 || *c.left == 0) {
        return;
    }
    if (warp_of_block() < WORKERS) {
        walk_parts(p, c, shared_bytes, shared);
    } else if (warp_of_block() == WORKERS) {
        look_ahead(p, c, shared);
    } else {
        look_back(c, shared, warp_of_block() - WORKERS - 1);
    }
}
#endif
