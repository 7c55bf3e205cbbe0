// rowwise/registers.cuh: kernels: rows of one tensor or several in, rows of one or several out, and sums over all rows:
// both passes of a row-wise spec. Formulas are those of `variant`; README.md lists its slots.
//
// LATHE_ENTRY(rows): blocks of THREADS threads take groups of ROWS_PER_BLOCK rows in turn: BLOCKS of them where there
// are sums over the rows, or PREFETCH, or params.carries (several walks along a row that does not fit registers), else
// one for each group. Column sums stay in registers over all rows of a block and leave it once, into params.columns
// [block][site][n]; sums over everything into params.sums [block][site].
// LATHE_ENTRY(columns), launched where PER_THREAD == 0 and there are column sums: a row does not fit registers, so
// columns are read again, each by its own thread, which writes the rows, too: COLUMN_PARTS x ceil(n / (128 VECTOR))
// blocks of 128 threads. What the rows' reductions gave is taken from params.values, where the first kernel left it.
// LATHE_ENTRY(sum): adds up what the blocks left, in an order that the plan decides: the same bits in every run. 256
// threads, a multiple of GRADS blocks; a gradient is written whole, also where nothing was added to it.
//
// ROWS_PER_BLOCK == 1: a block per row. > 1: THREADS / ROWS_PER_BLOCK threads per row, a power of two up to a warp.
// INNER: rows run along an inner dim, and those of the last dim are neighbours: a warp has 32 rows, a row a lane of
// every warp.
// PER_THREAD > 0: rows are read once and stay in registers as they were loaded; n <= (threads per row) * PER_THREAD.
// REREAD: every pass reads its rows again, from L1 and L2, so that registers hold a part of them: n as above, no scans.
// PER_THREAD == 0: any n, and every pass reads the row again, mostly from L2.
// VECTOR > 1: n is a multiple of VECTOR and every row of every tensor starts at a multiple of 16 bytes.
// AT_ONCE: vectors of a thread whose formulas may overlap; more would take registers for what the columns read.
// ONCE: a block has one group of rows of one tensor, and makes rows of one other of them: their places are found once.
// AHEAD: L2 is asked for the rows of blocks of later on while those of this one are under way.
// PREFETCH: the next row is on its way while one is worked on; with SHARED_NEXT to shared memory, which takes no
// registers.
#include "rowwise/vectors.cuh"
#include "rowwise/scan.cuh"
#include "rowwise/scatter.cuh"
#include "rowwise/sums.cuh"

namespace many
{

// ---- the variant over the row ------------------------------------------------------------------------

template <int P> DEV void reduce_chunk(float (&red)[SLOTS], const piece (&held)[VECTORS], const rows_params &p,
                                       const variant::head &head, const variant::vals &vals, const place &row,
                                       int first)
{
    float done[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int i = first + v * STEP;
        if (v >= cfg::AT_ONCE) {
            after(i, done[v - cfg::AT_ONCE]);
        }
        variant::col c[V] = {};
        if constexpr (variant::REDUCE_COLS) {
            make_columns(p, head, vals, is_in_row(row, i, p.z.n), i, c);
        }
        done[v] = reduce_piece<P>(red, held[v], c, p, head, vals, row, i, v);
    }
}

constexpr bool REREAD = cfg::REREAD && IN_REGISTERS;
constexpr bool HELD = IN_REGISTERS && !REREAD; // between the passes
static_assert(!REREAD || (variant::SCANS == 0 && !PREFETCH && V > 1),
              "rows that are read again: vectors, without scans");

// else the second kernel writes them: it reads the rows again
constexpr bool OUTPUTS = IN_REGISTERS || variant::COLUMNS == 0;
constexpr int CHUNK = VECTORS * TEAM * V; // elements that the team works on at once
static_assert(IN_REGISTERS || CHUNK == variant::CHUNK, "host and device disagree about the chunks of a row");

DEV void clear_scanned(float (&scanned)[VECTORS][SCANS][V])
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int k = 0; k < SCANS; k++) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                scanned[v][k][j] = 0.0f;
            }
        }
    }
}

// Walk W along the row, from chunk to chunk: its scans, and those of the walks before, of this chunk, once more; the
// last one finishes the elements. Without scans there is one walk.
template <int W> DEV void walk_row(const rows_params &p, const variant::head &head, const variant::vals &vals,
                                   const place &row, piece (&held)[VECTORS], totals &total, scan_scratch &scans,
                                   int &turn)
{
    constexpr bool LAST = W + 1 == WALKS;
    constexpr bool SCANNED = variant::SCANS > 0;
    constexpr bool BACKWARDS = SCANNED && variant::WALK_REVERSE[W];
    const int lane = lane_in_team();
    const int chunks = !OUTPUTS ? 0 : IN_REGISTERS ? 1 : (p.z.n - 1) / CHUNK + 1;
    aggregate carry[SCANS] = {};
    carry_nothing<W>(carry);
#pragma unroll 1
    for (int k = 0; k < chunks; k++) {
        const int chunk = BACKWARDS ? chunks - 1 - k : k;
        const int base = chunk * CHUNK;
        if constexpr (!HELD) {
            load_pieces<VECTORS, STEP, REREAD ? READ_LAST : READ_AGAIN>(held, p, row, base + own_first());
        }
        recall(held, row);
        float scanned[VECTORS][SCANS][V];
        if constexpr (!FOUND_ONCE) {
            clear_scanned(scanned);
        }
        below known[SCANS];
        repeat<0, SCANNED ? W : 0>([&]<int U>() {
            aggregate again[SCANS] = {};
            carry_nothing<U>(again);
            if constexpr (!IN_REGISTERS) {
                take_carries<U>(again, p, chunk, chunks);
            }
            scan_chunk<U>(scanned, known, again, held, p, head, vals, row, base, scans, turn);
        });
        if constexpr (!LAST) {
            leave_carries<W>(carry, p, chunk, chunks);
        }
        if constexpr (SCANNED && (TALL || BY_WARP)) {
            scan_chunk<W>(scanned, known, carry, held, p, head, vals, row, base, scans, turn);
        }
        if constexpr (LAST && BY_WARP) {
            publish_values(scanned, known);
        }
        if constexpr (LAST && SHARED_NEXT) {
            recall(held, row);
        }
        float done[VECTORS];
#pragma unroll
        for (int step = 0; step < VECTORS; step++) {
            const int v = BACKWARDS ? VECTORS - 1 - step : step;
            int i = base + own_first() + v * STEP;
            if (LAST && step >= cfg::AT_ONCE) {
                after(i, done[step - cfg::AT_ONCE]);
            }
            if constexpr (SCANNED && !TALL && !BY_WARP) {
                scan_piece<W>(scanned[v], carry, held[v], p, head, vals, row, i, scans, turn);
            }
            if constexpr (LAST) {
                variant::col c[V] = {};
                make_columns(p, head, vals, is_in_row(row, i, p.z.n), i, c);
                if constexpr (COLUMN_SUMS) {
                    done[step] = finish_piece(held[v], c, scanned[v], total.column[v], p, head, vals, row, i);
                } else {
                    float column[COLUMNS][V] = {};
                    done[step] = finish_piece(held[v], c, scanned[v], column, p, head, vals, row, i);
                }
                if constexpr (variant::SCATTERS > 0) {
                    scatter_piece(held[v], scanned[v], p, head, vals, c, row, i);
                }
            }
        }
    }
}

// What a row is too short for, of tensors that have its first elements alone.
DEV void fill_first(const rows_params &p, const place &row)
{
    repeat<0, variant::OUT>([&]<int K>() {
        if constexpr (first_of_out<variant, K>() > 0) {
#pragma unroll 1
            for (int i = p.z.n + lane_in_team(); row.here && i < first_of_out<variant, K>(); i += TEAM) {
                store_element(row_written<K>(p, row) + i, __int_as_float(fill_of_out<variant, K>()));
            }
        }
    });
}

// One row of each team, which is in `held` where it fits registers.
DEV void run(const rows_params &p, const variant::head &head, variant::vals &vals, const place &row,
             piece (&held)[VECTORS], totals &total, scratch &shared, scan_scratch &scans, int &turn)
{
    const int lane = lane_in_team();
    find_norms<true>(vals, p, head, row.at, row.here);
    repeat<0, variant::PASSES>([&]<int P>() {
        float red[SLOTS] = {};
        clear_reductions<P>(red);
        if constexpr (REREAD) {
            load_pieces<VECTORS, STEP, READ_FIRST, reads_of_pass<variant, P>()>(held, p, row, own_first());
        }
        if constexpr (IN_REGISTERS) {
            recall(held, row);
            reduce_chunk<P>(red, held, p, head, vals, row, own_first());
        } else {
#pragma unroll 1
            for (int base = 0; base < p.z.n; base += CHUNK) {
                load_pieces<VECTORS, STEP, READ_AGAIN>(held, p, row, base + own_first());
                reduce_chunk<P>(red, held, p, head, vals, row, base + own_first());
            }
        }
        reduce_team<P>(red, shared, turn);
        turn ^= 1;
        if constexpr (P == 0) {
            find_norms<false>(vals, p, head, row.at, row.here);
        }
        variant::update<P>(vals, red, p.x, p.z, head);
    });
    repeat<IN_REGISTERS ? WALKS - 1 : 0, WALKS>(
        [&]<int W>() { walk_row<W>(p, head, vals, row, held, total, scans, turn); });
    fill_first(p, row);
    leave_row(p, head, vals, row, total.sum);
    if (row.here && lane == 0) {
        if constexpr (variant::COLUMNS > 0 && !IN_REGISTERS) {
            static_cast<variant::vals *>(p.values)[row.at.row] = vals;
        }
    }
}

// cfg::REGISTERS to live with: the rows, the sums, one pass over a part of it, addresses. Without a limit the compiler
// spreads out and fewer rows are under way at once, which costs bandwidth.

// What blocks of later on read, or this one's next turn, comes to L2 while the loads of this one are under way: where
// that is a row of the same outer dims.
DEV void prefetch_rows(const rows_params &p, const place &row)
{
    const int blocks = MIN_BLOCKS * count_sms();
    const int ahead = (cfg::ONCE ? blocks : min(static_cast<int>(gridDim.x), blocks)) * cfg::ROWS_PER_BLOCK;
    if (row.here && row.at.row2 + ahead < p.z.rows) {
        repeat<0, variant::IN>([&]<int K>() {
            constexpr int LINE = 128 / static_cast<int>(sizeof(in_type<K>));
            const in_type<K> *from = row_read<K>(p, row) + ahead * p.in[K].stride[2];
#pragma unroll 1
            for (int i = lane_in_team() * LINE; i < (first_of_in<variant, K>() > 0 ? first_of_in<variant, K>() : p.z.n);
                 i += TEAM * LINE) {
                prefetch_line(from + i);
            }
        });
    }
}

} // namespace many

namespace smem_bytes
{
constexpr int rows = many::SHARED_NEXT ? 2 * many::ROW_UNITS * 16 : 0;
}

#if LATHE_COMPILED(rows)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ rows_params p)
{
    using namespace many;
    __shared__ scratch shared;
    __shared__ scan_scratch scans;
    __shared__ gathering gather;
    const int total_rows = p.z.rows0 * p.z.rows1 * p.z.rows;
    const int lane = lane_in_team();
    const int team = team_of_thread();
    const variant::head head = variant::make_head(p.x, p.z);
    totals total = {};
    int turn = 0;
    piece held[VECTORS];
    piece next[VECTORS];
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    uint4 *const own_units = reinterpret_cast<uint4 *>(shared_bytes) + threadIdx.x; // of the first of two rows
    int row_turn = 1;
    const auto row_in = [&](int group) {
        const int asked = group * cfg::ROWS_PER_BLOCK + team;
        place row = {{}, asked < total_rows, own_units + (row_turn ^= 1) * ROW_UNITS};
        find_place(row, p, min(asked, total_rows - 1));
        load_lead(row, p);
        return row;
    };
    const int groups = (total_rows - 1) / cfg::ROWS_PER_BLOCK + 1;
    const int first = static_cast<int>(blockIdx.x);
    if (cfg::ONCE ? static_cast<i64>(first) * cfg::ROWS_PER_BLOCK >= total_rows : total_rows <= 0 || first >= groups) {
        return;
    }
    place row = row_in(first);
    variant::vals vals;
    if constexpr (SHARED_NEXT) {
        fetch_row(p, row, own_first());
    } else if constexpr (PREFETCH) {
        load_pieces<VECTORS, STEP, READ_ONCE>(next, p, row, own_first());
    }
#pragma unroll 1
    for (int group = first; cfg::ONCE || group < groups; group += static_cast<int>(gridDim.x)) {
        if constexpr (PREFETCH) {
            const place now = row;
            const int after = group + static_cast<int>(gridDim.x);
            row = row_in(after);
            variant::begin(vals, p, head, now.at);
            if constexpr (SHARED_NEXT) {
                copy_wait<0>();
                fetch_row(p, row, own_first()); // where the row before was
            } else {
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    held[v] = next[v];
                }
                load_pieces<VECTORS, STEP, READ_ONCE>(next, p, row, own_first());
            }
            run(p, head, vals, now, held, total, shared, scans, turn);
        } else {
            row = row_in(group);
            if constexpr (HELD) {
                load_pieces<VECTORS, STEP, cfg::AHEAD ? READ_ONCE : READ_FIRST>(held, p, row, own_first());
            }
            if constexpr (HELD && V > 1 && cfg::AHEAD) {
                prefetch_rows(p, row);
            }
            variant::begin(vals, p, head, row.at);
            run(p, head, vals, row, held, total, shared, scans, turn);
        }
        if constexpr (cfg::ONCE) {
            break;
        }
    }
    if constexpr (COLUMN_SUMS) {
        leave_columns(p, total, gather);
    }
    if constexpr (variant::SUMS > 0) {
        leave_sums(p, total, gather);
    }
}
#endif

#if LATHE_COMPILED(columns)
extern "C" __global__ void __launch_bounds__(many::COLUMN_THREADS)
    LATHE_ENTRY(columns)(const __grid_constant__ rows_params p)
{
    using namespace many;
    if constexpr (variant::COLUMNS > 0 && !IN_REGISTERS) {
        const int total_rows = p.z.rows0 * p.z.rows1 * p.z.rows;
        const int part = static_cast<int>(blockIdx.x) % cfg::COLUMN_PARTS;
        const int i =
            (static_cast<int>(blockIdx.x) / cfg::COLUMN_PARTS * COLUMN_THREADS + static_cast<int>(threadIdx.x)) * V;
        const variant::head head = variant::make_head(p.x, p.z);
        float column[COLUMNS][V] = {};
        if (part >= total_rows || (variant::SCATTERS == 0 && i >= p.z.n)) { // of scatters the whole warp takes part
            return;
        }
#pragma unroll 2
        for (int r = part; r < total_rows; r += cfg::COLUMN_PARTS) {
            const place row = {place_of(p.z, r), true};
            piece held[1];
            load_pieces<1, V, READ_ONCE>(held, p, row, i);
            const float none[SCANS][V] = {};
            variant::col c[V] = {};
            make_columns(p, head, static_cast<const variant::vals *>(p.values)[r], is_in_row(row, i, p.z.n), i, c);
            finish_piece(held[0], c, none, column, p, head, static_cast<const variant::vals *>(p.values)[r], row, i);
            if constexpr (variant::SCATTERS > 0) {
                scatter_piece(held[0], none, p, head, static_cast<const variant::vals *>(p.values)[r], c, row, i);
            }
        }
        if (i >= p.z.n) {
            return;
        }
        repeat<0, variant::COLUMNS>([&]<int S>() {
            store_vec<V>(p.columns + (static_cast<i64>(part) * variant::COLUMNS + S) * p.z.n + i, column[S]);
        });
    }
}
#endif

#if LATHE_COMPILED(sum)
extern "C" __global__ void __launch_bounds__(many::SUM_THREADS, many::SUM_BLOCKS)
    LATHE_ENTRY(sum)(const __grid_constant__ rows_sum_params p)
{
    many::add_up(p);
}
#endif
