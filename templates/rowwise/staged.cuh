// rowwise/staged.cuh: kernels: rows of several tensors in, rows of several tensors out, and sums over all rows, like
// rowwise/registers.cuh and for the same `variant`; rows wait in shared memory, where cp.async brings them.
//
// LATHE_ENTRY(rows): BLOCKS blocks of THREADS threads take groups of ROWS_PER_BLOCK rows in turn. A thread copies,
// reads and writes the same PER_THREAD elements of every row, so that nothing but the reductions needs a barrier. There
// is room for STAGES rows of each tensor; as soon as a vector of a row has been used for the last time, that of STAGES
// rows later is on its way into its place. So loads are under way all the time. Rows of one place, which have the same
// KEYS, follow each other in a block; so cells, and sums at computed indices, stay in registers until it changes.
// LATHE_ENTRY(sum): as in rowwise/registers.cuh. contracts/config.md says what the numbers of cfg mean.
// VECTOR elements are 16 bytes of the problem's dtype. Every row starts at a multiple of 16 bytes; a vector of every
// tensor that is read is 16 bytes or a multiple.
#include "rowwise/columns.cuh"
#include "rowwise/cluster_reduce.cuh"
#include "rowwise/vectors.cuh"
#include "rowwise/scatter.cuh"
#include "rowwise/sums.cuh"

namespace many
{

static_assert(cfg::STAGES >= 1 && cfg::PER_THREAD > 0, "cfg::STAGES and cfg::PER_THREAD are positive");
static_assert(V * sizeof(element) == 16 && !INNER, "a vector is 16 bytes, of rows along the last dim");
static_assert(WORDS % 4 == 0, "a vector of every tensor is 16 bytes or a multiple");
static_assert(variant::SCANS == 0, "no sums along a row");
static_assert(variant::IN > 0, "there are rows to read");
static_assert(!cfg::COLUMNS_SHARED || WHOLE_BLOCK, "column sums in shared memory: of a row to a block");
static_assert(variant::PASSES > 0 || variant::OUT + variant::COLUMNS > 0, "something is made of the rows");
static_assert(variant::SCATTERS == 0 || (has_places<variant>() && WHOLE_BLOCK && !cfg::MORE),
              "sums at computed indices: of rows that have places");
static_assert(!cfg::LATE || (cfg::STAGES > 1 && WHOLE_BLOCK && !cfg::MORE),
              "rows written late: of a block, of two that wait");
static_assert(!cfg::LATE || !has_places<variant>(), "rows written late: without places");
static_assert(!cfg::LATE || (variant::OUT + variant::COLUMNS > 0 && variant::PASSES > (cfg::TAKEN ? 1 : 0)),
              "what is written late: rows that were reduced");
static_assert(!cfg::GIVEN_AHEAD || WHOLE_BLOCK, "a warp has one row at a time");
static_assert(!cfg::MORE || !FULL, "rows beyond what is shared are not full");
static_assert(!cfg::MORE || (WHOLE_BLOCK && variant::COLUMNS == 0),
              "rows beyond what is shared: of a block, without column sums");

constexpr int STAGES = cfg::STAGES;
constexpr int UNITS = WORDS / 4; // of 16 bytes, of a vector of every tensor
constexpr u32 UNIT_BYTES = 16 * cfg::THREADS;
constexpr u32 VECTOR_BYTES = UNITS * UNIT_BYTES;
constexpr u32 STAGE_BYTES = VECTORS * VECTOR_BYTES;
constexpr int HELD = TEAM * cfg::PER_THREAD; // elements of a row in shared memory
constexpr u32 SUMS_BYTES = cfg::COLUMNS_SHARED ? 4 * variant::COLUMNS * cfg::PER_THREAD * cfg::THREADS : 0;
// With one stage, the first pass begins before the whole row has come.
constexpr int PARTS_OF_ROW = STAGES == 1 && VECTORS % 4 == 0 ? 4 : STAGES == 1 && VECTORS % 2 == 0 ? 2 : 1;
constexpr int PART = VECTORS / PARTS_OF_ROW;
constexpr bool COLUMNS_HELD = variant::COLUMNS > 0 && !cfg::COLUMNS_SHARED; // in registers: vectors have numbers
constexpr bool PLACED = has_places<variant>();
constexpr int SCATTERS = variant::SCATTERS;
constexpr int UNROLL = COLUMNS_HELD || COLS_HELD || cfg::TAKEN || SCATTERS > 0 ? PART : min_of(PART, 2);
constexpr bool FINISHES = variant::OUT + variant::COLUMNS + SCATTERS > 0; // elements are needed after the reductions
constexpr int TAKES = cfg::LATE ? 1 : 0;                                  // the pass that takes rows into registers
// the pass that frees places; PASSES: the rows out
constexpr int FREED = cfg::TAKEN ? TAKES : FINISHES ? variant::PASSES : variant::PASSES - 1;
// two rows have their places in shared memory: the one that is reduced, the one before
constexpr int WAITS_LATE = cfg::LATE && !cfg::TAKEN ? 1 : 0;
constexpr int HELD_PIECES = cfg::TAKEN ? VECTORS : 1;
constexpr int MORE_VECTORS = max_of(1, 4 / UNITS);

// Of a vector whose number is known at compile time: no row ends before it.
DEV bool is_sure(int v) { return UNROLL == PART && v < cfg::SURE; }

struct row_sums { // of one thread, over the rows of its block
    float column[COLUMNS_HELD ? VECTORS : 1][COLUMNS][V];
    float scattered[max_of(SCATTERS, 1)][SCATTERS > 0 ? VECTORS : 1][V]; // of rows of one place
    float sum[SUMS];
};

struct from_here { // where this thread's elements of a row lie
    const char *unit[variant::IN];
};

DEV from_here find_row(const rows_params &p, const place &row)
{
    from_here from;
    repeat<0, variant::IN>([&]<int K>() {
        from.unit[K] = reinterpret_cast<const char *>(row_of<in_type<K>>(p.in[K], row.at) + lane_in_team() * V);
        if constexpr (PACKED) {
            // its vectors lie so many bytes behind: else each has an address that registers hold over all rows
            keep(from.unit[K]);
        }
    });
    return from;
}

// Vector v of a row goes on its way.
DEV void fetch(u32 stage, const from_here &from, const place &row, int v, int n)
{
    if (row.here && (FULL || is_sure(v) || (lane_in_team() + v * TEAM) * V < n)) {
        repeat<0, variant::IN>([&]<int K>() {
#pragma unroll
            for (int u = 0; u < words_of<K>() / 4; u++) {
                const u32 unit = static_cast<u32>(first_word<K>() / 4 + u);
                copy_unit(stage + static_cast<u32>(v) * VECTOR_BYTES + unit * UNIT_BYTES,
                          from.unit[K] + v * (TEAM * words_of<K>() * 4) + 16 * u);
            }
        });
    }
}

DEV void take(piece &to, u32 stage, int v)
{
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const uint4 x = load_shared16(stage + static_cast<u32>(v) * VECTOR_BYTES + static_cast<u32>(u) * UNIT_BYTES);
        to.word[4 * u] = x.x;
        to.word[4 * u + 1] = x.y;
        to.word[4 * u + 2] = x.z;
        to.word[4 * u + 3] = x.w;
    }
}

// Column sums in shared memory, each thread's own.
DEV u32 column_place(u32 sums, int site, int v, int part)
{
    return sums + static_cast<u32>((site * VECTORS + v) * (V / 4) + part) * UNIT_BYTES;
}
DEV void take_sum(float (&sum)[V], u32 sums, int site, int v)
{
#pragma unroll
    for (int k = 0; k < V / 4; k++) {
        const uint4 x = load_shared16(column_place(sums, site, v, k));
        sum[4 * k] = __uint_as_float(x.x);
        sum[4 * k + 1] = __uint_as_float(x.y);
        sum[4 * k + 2] = __uint_as_float(x.z);
        sum[4 * k + 3] = __uint_as_float(x.w);
    }
}
DEV void put_sum(u32 sums, int site, int v, const float (&sum)[V])
{
#pragma unroll
    for (int k = 0; k < V / 4; k++) {
        const float part[4] = {sum[4 * k], sum[4 * k + 1], sum[4 * k + 2], sum[4 * k + 3]};
        store_shared16(column_place(sums, site, v, k), part);
    }
}
DEV void clear_shared(u32 sums)
{
    const float none[4] = {};
#pragma unroll 1
    for (int k = 0; k < variant::COLUMNS * VECTORS * (V / 4); k++) {
        store_shared16(sums + static_cast<u32>(k) * UNIT_BYTES, none);
    }
}
DEV void leave_shared(const rows_params &p, u32 sums)
{
#pragma unroll 1
    for (int v = 0; v < VECTORS; v++) {
        repeat<0, variant::COLUMNS>([&]<int S>() {
            const int i = (lane_in_team() + v * TEAM) * V;
            float sum[V];
            take_sum(sum, sums, S, v);
            if (i < p.z.n) {
                store_vec<V>(p.columns + (static_cast<i64>(blockIdx.x / CLUSTER) * variant::COLUMNS + S) * p.z.n + i,
                             sum);
            }
        });
    }
}

struct row_at_hand { // which is worked on
    place row;
    u32 stage;
};
struct rows_at_hand : row_at_hand {
    place later;    // the one that comes into places which are free
    from_here from; // of that
    piece held[HELD_PIECES];
};

// Vector v of the row, in pass P.
template <int P> DEV void get(piece &now, rows_at_hand &at, int v)
{
    if constexpr (cfg::TAKEN && P > TAKES) {
        now = at.held[v];
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            keep(now.word[i]); // what was made of it is made again, and not held in registers in between
        }
    } else {
        take(now, at.stage, v);
        if constexpr (cfg::TAKEN && P == TAKES) {
            at.held[v] = now;
        }
    }
}

template <int Q> DEV void wait_for_part(bool frees)
{
    if (WAITS_LATE > 0) {
        copy_wait<max_of(STAGES - 2, 0)>();
    } else if (frees) { // this pass sends the next row's parts, too
        copy_wait<STAGES * PARTS_OF_ROW - 1>();
    } else {
        copy_wait<STAGES * PARTS_OF_ROW - 1 - Q>();
    }
}

DEV void get_columns(variant::col (&c)[V], columns &cols, const rows_params &p, const variant::head &head,
                     const variant::vals &vals, const place &row, int v, int i)
{
    const bool in_row = is_in_row(row, i, p.z.n, is_sure(v));
    if constexpr (COLS_HELD) {
        take_columns(c, cols.of[v]);
        if constexpr (!PLACED) {
            make_cells(p, head, vals, in_row, c);
        }
    } else {
        make_columns(p, head, vals, in_row, i, c);
    }
}

template <int P> DEV void reduce_vector(float (&red)[SLOTS], const rows_params &p, const variant::head &head,
                                        const variant::vals &vals, columns &cols, rows_at_hand &at, int lane, int v)
{
    const int i = (lane + v * TEAM) * V;
    piece now;
    get<P>(now, at, v);
    if constexpr (P == FREED) {
        fetch(at.stage, at.from, at.later, v, p.z.n);
    }
    variant::col c[V] = {};
    if constexpr (variant::REDUCE_COLS) {
        get_columns(c, cols, p, head, vals, at.row, v, i);
    }
    reduce_piece<P>(red, now, c, p, head, vals, at.row, i, v, is_sure(v));
}

template <int P> DEV void reduce_row(float (&red)[SLOTS], const rows_params &p, const variant::head &head,
                                     const variant::vals &vals, columns &cols, rows_at_hand &at)
{
    const int lane = lane_in_team();
    repeat<0, PARTS_OF_ROW>([&]<int Q>() {
        if constexpr (P == 0) {
            wait_for_part<Q>(FREED == 0);
        }
#pragma unroll UNROLL
        for (int v = Q * PART; v < (Q + 1) * PART; v++) {
            reduce_vector<P>(red, p, head, vals, cols, at, lane, v);
        }
        if constexpr (P == FREED) {
            copy_commit();
        }
    });
    if constexpr (cfg::MORE) {
#pragma unroll 1
        for (int base = HELD; base < p.z.n; base += MORE_VECTORS * TEAM * V) {
            piece now[MORE_VECTORS];
            load_pieces<MORE_VECTORS, TEAM * V, READ_ONCE>(now, p, at.row, base + lane * V);
#pragma unroll
            for (int v = 0; v < MORE_VECTORS; v++) {
                const int i = base + (lane + v * TEAM) * V;
                variant::col c[V] = {};
                if constexpr (variant::REDUCE_COLS) {
                    make_columns(p, head, vals, is_in_row(at.row, i, p.z.n), i, c);
                }
                reduce_piece<P>(red, now[v], c, p, head, vals, at.row, i, v);
            }
        }
    }
}

// What the threads of a row reduce: the first half, then what begins when all have sent theirs, with work in between.
template <int P> DEV void start_pass(float (&red)[SLOTS], const rows_params &p, const variant::head &head,
                                     const variant::vals &vals, columns &cols, rows_at_hand &at, scratch &shared,
                                     int turn, const row_exchange &exchange)
{
    if constexpr (P < variant::PASSES) {
        clear_reductions<P>(red);
        reduce_row<P>(red, p, head, vals, cols, at);
        if constexpr (CLUSTER > 1) {
            send_cluster<P>(red, shared, turn, exchange);
        } else {
            send_team<P>(red, shared, turn);
        }
    }
}
template <int P> DEV void end_pass(float (&red)[SLOTS], scratch &shared, int turn, row_exchange &exchange)
{
    if constexpr (CLUSTER > 1) {
        exchange_cluster<P>(red, exchange);
    } else {
        exchange_team<P>(red, shared, turn);
    }
}

// GIVEN_AHEAD. Hides that all lanes have this row: values in uniform registers stall all warps where they are read.
DEV row_at row_of_lanes(row_at at)
{
    if constexpr (cfg::GIVEN_AHEAD) {
        at.row2 = __shfl_sync(ALL_LANES, at.row2, 0);
    }
    return at;
}

// What has come is the same in all lanes: from here on in uniform registers.
template <class VALS> DEV void make_uniform(VALS &vals)
{
    if constexpr (cfg::GIVEN_AHEAD && requires { vals.given[0]; }) {
#pragma unroll
        for (int k = 0; k < static_cast<int>(sizeof vals.given / sizeof vals.given[0]); k++) {
            vals.given[k] = __int_as_float(warp_max(__float_as_int(vals.given[k])));
        }
    }
}

// ---- rows of one place -------------------------------------------------------------------------------

DEV row_at row_of_place(const row_sizes &z, int outer, int row2)
{
    const int row0 = outer / z.rows1;
    return {outer * z.rows + row2, row0, outer - row0 * z.rows1, row2};
}

// Rows of a cluster: of one place, every `step`-th of the outer dims; or one place after the other, each from `base`.
struct way {
    row_at first;
    int rows;
    int step, base;
};

// The rows `begin` to `end` of `outer` rows of each place, one place after the other; `base`: the first of those rows.
DEV way share_of(const row_sizes &z, int begin, int end, int base, int outer)
{
    const int place = begin / outer;
    return {row_of_place(z, base + begin - place * outer, place), end - begin, 1, base};
}

// Equal shares. But where places are a power of two, rows of one place are a power of two apart, which costs 4 % of
// memory's rate: each place then has clusters of its own, which take its rows in turn, so that rows at work lie beside
// each other; other clusters share the rest. Not beside scatters, which store a place's sums at each change of place.
constexpr bool TURNS = SCATTERS == 0;
DEV way way_of(const row_sizes &z, int cluster, int clusters)
{
    const int outer = z.rows0 * z.rows1;
    int taken = 0; // rows of each place by its own clusters,
    int own = 0;   // of which there are so many in all
    if constexpr (TURNS) {
        const int each = (z.rows & (z.rows - 1)) == 0 ? clusters / z.rows : 0;
        taken = min(each * ((outer * z.rows - 1) / clusters + 1), outer);
        own = each * z.rows;
        if (cluster < own) {
            const int turn = cluster / z.rows;
            return {row_of_place(z, turn, cluster - turn * z.rows), (taken - 1 - turn) / each + 1, each, 0};
        }
        if (taken == outer) { // nothing is left
            return {};
        }
    }
    const i64 rest = static_cast<i64>(outer - taken) * z.rows;
    const auto share_before = [&](int c) { return static_cast<int>(rest * c / (clusters - own)); };
    return share_of(z, share_before(cluster - own), share_before(cluster - own + 1), taken, outer - taken);
}

DEV void step_row(row_at &at, const row_sizes &z, const way &by) // behind the last row: to one that is there
{
    at.row += TURNS ? by.step * z.rows : z.rows;
    at.row1 += TURNS ? by.step : 1;
    if (at.row1 < z.rows1) {
        return;
    }
    if constexpr (TURNS) {
        const int outer = at.row0 * z.rows1 + at.row1;
        const bool ends = outer >= z.rows0 * z.rows1;
        at = row_of_place(z, ends ? by.base : outer, ends ? min(at.row2 + 1, z.rows - 1) : at.row2);
    } else {
        at.row1 = 0;
        if (++at.row0 == z.rows0) {
            at.row0 = 0;
            at.row2 = min(at.row2 + 1, z.rows - 1);
            at.row = at.row2;
        }
    }
}

DEV place row_of_group(const row_sizes &z, int group, int total_rows)
{
    const int asked = group * cfg::ROWS_PER_BLOCK + team_of_thread();
    return {place_of(z, min(asked, total_rows - 1)), asked < total_rows};
}

template <class VARIANT> DEV bool in_same_place(const rows_params &p, const typename VARIANT::head &head,
                                                const typename VARIANT::vals &a, const typename VARIANT::vals &b)
{
    bool same = true;
    if constexpr (has_places<VARIANT>()) {
        int of_a[max_of(VARIANT::KEYS, 1)] = {};
        int of_b[max_of(VARIANT::KEYS, 1)] = {};
        VARIANT::keys(p.x, p.z, head, a, of_a);
        VARIANT::keys(p.x, p.z, head, b, of_b);
#pragma unroll
        for (int k = 0; k < VARIANT::KEYS; k++) {
            same = same && of_a[k] == of_b[k];
        }
    }
    return same;
}

DEV void add_scattered(row_sums &total, const piece &held, const variant::col (&c)[V], const rows_params &p,
                       const variant::head &head, const variant::vals &vals, const place &row, int v, int i)
{
    const bool in_row = is_in_row(row, i, p.z.n);
    const float none[SCANS] = {};
#pragma unroll
    for (int j = 0; j < V; j++) {
        float e[max_of(variant::IN, 1)];
        unpack_piece(held, e, j);
        repeat<0, SCATTERS>([&]<int K>() {
            float value;
            i64 place;
            const bool adds = variant::scatter<K>(e, i + j, p.x, p.z, head, c[j], vals, none,
                                                  p.scatter[variant::SCATTER_TO[K]], value, place);
            total.scattered[K][v][j] += adds && in_row ? value : 0.0f;
        });
    }
}

// What the rows of the place of `vals` have added up.
DEV void leave_scattered(const rows_params &p, const variant::head &head, const variant::vals &vals, row_sums &total)
{
    const float none[max_of(SCANS, variant::IN)] = {};
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int i = (lane_in_team() + v * TEAM) * V;
        const bool in_row = FULL || i < p.z.n;
        variant::col c[V] = {};
        make_columns(p, head, in_row, i, c);
        repeat<0, SCATTERS>([&]<int K>() {
            constexpr int TO = variant::SCATTER_TO[K];
            i64 place[V];
#pragma unroll
            for (int j = 0; j < V; j++) {
                float value;
                variant::scatter<K>(none, i + j, p.x, p.z, head, c[j], vals, none, p.scatter[TO], value, place[j]);
            }
            scatter_warp<is_steady<variant, K>()>(reinterpret_cast<scatter_sum *>(p.scatter[TO].to),
                                                  total.scattered[K][v], place, in_row && has_elements(p.scatter[TO]));
#pragma unroll
            for (int j = 0; j < V; j++) {
                total.scattered[K][v][j] = 0.0f;
            }
        });
    }
}

// The rows out, the column sums.
DEV void finish_row(const rows_params &p, const variant::head &head, const variant::vals &vals, columns &cols,
                    rows_at_hand &at, row_sums &total, u32 sums)
{
    constexpr int P = variant::PASSES;
    const int lane = lane_in_team();
    const float none[SCANS][V] = {};
    repeat<0, PARTS_OF_ROW>([&]<int Q>() {
        if constexpr (P == 0) {
            wait_for_part<Q>(FREED == 0);
        }
#pragma unroll UNROLL
        for (int v = Q * PART; v < (Q + 1) * PART; v++) {
            const int i = (lane + v * TEAM) * V;
            piece now;
            variant::col c[V] = {};
            get<P>(now, at, v);
            get_columns(c, cols, p, head, vals, at.row, v, i);
            if constexpr (COLUMNS_HELD) {
                finish_piece(now, c, none, total.column[v], p, head, vals, at.row, i, is_sure(v));
            } else {
                float column[COLUMNS][V] = {};
                repeat<0, variant::COLUMNS>([&]<int S>() { take_sum(column[S], sums, S, v); });
                finish_piece(now, c, none, column, p, head, vals, at.row, i, is_sure(v));
                repeat<0, variant::COLUMNS>([&]<int S>() { put_sum(sums, S, v, column[S]); });
            }
            if constexpr (SCATTERS > 0) {
                add_scattered(total, now, c, p, head, vals, at.row, v, i);
            }
            if constexpr (P == FREED) {
                fetch(at.stage, at.from, at.later, v, p.z.n);
            }
        }
        if constexpr (P == FREED) {
            copy_commit();
        }
    });
    if constexpr (cfg::MORE) {
#pragma unroll 1
        for (int base = HELD; base < p.z.n; base += MORE_VECTORS * TEAM * V) {
            piece now[MORE_VECTORS];
            float column[COLUMNS][V] = {};
            load_pieces<MORE_VECTORS, TEAM * V, READ_ONCE>(now, p, at.row, base + lane * V);
#pragma unroll
            for (int v = 0; v < MORE_VECTORS; v++) {
                const int i = base + (lane + v * TEAM) * V;
                variant::col c[V] = {};
                make_columns(p, head, vals, is_in_row(at.row, i, p.z.n), i, c);
                finish_piece(now[v], c, none, column, p, head, vals, at.row, i);
            }
        }
    }
}

// The values of all columns of this thread; `make` fills those of the vector that begins at a column.
template <class MAKE> DEV void hold_all_columns(columns &cols, const MAKE &make)
{
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        const int i = (lane_in_team() + v * TEAM) * V;
        hold_columns(cols.of[v], [&](variant::col(&c)[V]) { make(c, i); });
    }
}

// The row out, and what it adds to sums.
DEV void write_row(const rows_params &p, const variant::head &head, const variant::vals &vals, columns &cols,
                   rows_at_hand &at, row_sums &total, u32 sums)
{
    if constexpr (FINISHES) {
        finish_row(p, head, vals, cols, at, total, sums);
    }
    leave_row(p, head, vals, at.row, total.sum);
}

// LATE: the same of the row before the one at hand.
DEV void write_late(const rows_params &p, const variant::head &head, const variant::vals &vals, columns &cols,
                    rows_at_hand &at, const row_at_hand &before, row_sums &total, u32 sums)
{
    const row_at_hand now = at;
    static_cast<row_at_hand &>(at) = before;
    write_row(p, head, vals, cols, at, total, sums);
    static_cast<row_at_hand &>(at) = now;
}

// What the block has added up over its rows.
DEV void leave_totals(const rows_params &p, row_sums &total, u32 sums, gathering &gather)
{
    if constexpr (COLUMNS_HELD) {
        leave_columns(p, total, gather);
    } else if constexpr (variant::COLUMNS > 0) {
        leave_shared(p, sums);
    }
    if constexpr (variant::SUMS > 0) {
        leave_sums(p, total, gather);
    }
    if constexpr (CLUSTER > 1 && variant::COLUMNS + variant::SUMS > 0) {
        clear_parts(p);
    }
}

} // namespace many

namespace smem_bytes
{
constexpr int rows = static_cast<int>(many::STAGES * many::STAGE_BYTES + many::SUMS_BYTES + many::row_exchange::BYTES);
}

#if LATHE_COMPILED(rows)
extern "C" __global__ void LATHE_CLUSTER __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ rows_params p)
{
    using namespace many;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    __shared__ scratch shared;
    __shared__ gathering gather;
    const u32 rows = shared_address(shared_bytes) + 16 * threadIdx.x;
    const u32 sums = rows + STAGES * STAGE_BYTES;
    row_exchange exchange = {shared_address(shared_bytes) + STAGES * STAGE_BYTES + SUMS_BYTES, 0};
    const int total_rows = p.z.rows0 * p.z.rows1 * p.z.rows;
    const variant::head head = variant::make_head(p.x, p.z);
    const auto row_in = [&](int group) { return row_of_group(p.z, group, total_rows); };
    const int all = (total_rows - 1) / cfg::ROWS_PER_BLOCK + 1;
    const int cluster = static_cast<int>(blockIdx.x) / CLUSTER;
    const int clusters = static_cast<int>(gridDim.x) / CLUSTER;
    if (total_rows <= 0 || cluster >= all) {
        return;
    }
    way by = {};
    if constexpr (PLACED) {
        by = way_of(p.z, cluster, min(clusters, all));
    }
    const int first = PLACED ? 0 : cluster;
    const int groups = PLACED ? by.rows : all;
    const int step = PLACED ? 1 : clusters;
    row_at coming_at = {}; // PLACED: of the row that comes next, and of that which takes places in shared memory next
    row_at later_at = {};
    if constexpr (PLACED) {
        coming_at = by.first;
        later_at = coming_at;
    }
    const auto take_later = [&](int group) {
        if constexpr (PLACED) {
            const place row = {later_at, group < groups};
            step_row(later_at, p.z, by);
            return row;
        } else {
            return row_in(min(group, groups));
        }
    };
    exchange.open();
    row_sums total = {};
    if constexpr (variant::COLUMNS > 0 && cfg::COLUMNS_SHARED) {
        clear_shared(sums);
    }
#pragma unroll 1
    for (int s = 0; s < STAGES; s++) {
        const place row = take_later(first + s * step);
        const from_here from = find_row(p, row);
        repeat<0, PARTS_OF_ROW>([&]<int Q>() {
#pragma unroll UNROLL
            for (int v = Q * PART; v < (Q + 1) * PART; v++) {
                fetch(rows + static_cast<u32>(s) * STAGE_BYTES, from, row, v, p.z.n);
            }
            copy_commit();
        });
    }
    columns cols;
    if constexpr (COLS_HELD && !PLACED) {
        hold_all_columns(cols, [&](variant::col(&c)[V], int i) { make_columns(p, head, FULL || i < p.z.n, i, c); });
    }
    variant::vals coming;
    variant::vals placed; // of the first row of the place
    variant::begin(coming, p, head, row_of_lanes(PLACED ? coming_at : row_in(first).at));
    rows_at_hand at;
    row_at_hand before; // LATE: the row that is still to be written
    variant::vals vals_before;
    int stage = 0;
    int turn = 0;
    // PLACED, LATE: once more behind the last row, for what is still to be left of it.
#pragma unroll 1
    for (int group = first; PLACED || cfg::LATE || group < groups; group += step) {
        variant::vals vals = coming;
        make_uniform(vals);
        if constexpr (PLACED) {
            if (group == first || group == groups || !in_same_place<variant>(p, head, placed, vals)) {
                if (SCATTERS > 0 && group != first) {
                    leave_scattered(p, head, placed, total);
                }
                if (group == groups) {
                    break;
                }
                placed = vals;
                if constexpr (COLS_HELD) {
                    hold_all_columns(cols, [&](variant::col(&c)[V], int i) {
                        make_columns(p, head, vals, FULL || i < p.z.n, i, c);
                    });
                }
            }
            at.row = place{coming_at, true};
            step_row(coming_at, p.z, by);
        } else {
            at.row = row_in(group);
        }
        find_norms<true>(vals, p, head, at.row.at, group < groups);
        // the values that a row is given come while one is worked on
        variant::begin(coming, p, head, row_of_lanes(PLACED ? coming_at : row_in(min(group + step, groups)).at));
        at.later = take_later(group + (STAGES - WAITS_LATE) * step);
        at.from = find_row(p, at.later);
        at.stage = rows + static_cast<u32>(stage) * STAGE_BYTES;
        float red[SLOTS] = {};
        if (!cfg::LATE || group < groups) {
            start_pass<0>(red, p, head, vals, cols, at, shared, turn, exchange);
        }
        if constexpr (cfg::LATE) {
            if (group != first) {
                write_late(p, head, vals_before, cols, at, before, total, sums);
            }
            if (group >= groups) {
                break;
            }
        }
        repeat<0, variant::PASSES>([&]<int P>() {
            if constexpr (P > 0) {
                start_pass<P>(red, p, head, vals, cols, at, shared, turn, exchange);
            }
            end_pass<P>(red, shared, turn, exchange);
            turn ^= 1;
            if constexpr (P == 0) {
                find_norms<false>(vals, p, head, at.row.at, true);
            }
            variant::update<P>(vals, red, p.x, p.z, head);
        });
        if constexpr (cfg::LATE) {
            before = at;
            vals_before = vals;
        } else {
            write_row(p, head, vals, cols, at, total, sums);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    leave_totals(p, total, sums, gather);
}
#endif

#if LATHE_COMPILED(sum)
extern "C" __global__ void __launch_bounds__(many::SUM_THREADS, many::SUM_BLOCKS)
    LATHE_ENTRY(sum)(const __grid_constant__ rows_sum_params p)
{
    many::add_up(p);
}
#endif
