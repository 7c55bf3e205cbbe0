// rowwise/rows.cuh: for rowwise/registers.cuh: its numbers, and the tensors of rows: where a row lies, how pieces of it
// are read and written.
#pragma once
#include "common/ptx_cluster.cuh"
#include "common/concepts.cuh"

namespace many
{

static_assert(rows_variant<variant, inputs, rows_params>,
              "variant.gen.cuh does not fill the slots of a kernel of rows: templates/README.md lists them, "
              "and the notes below name the first one that is missing");

using element = cfg::element;

static_assert(same_type<element, float> || same_type<element, f16> || same_type<element, bf16>,
              "cfg::element is float, f16 or bf16");
static_assert(cfg::THREADS >= 32 && cfg::THREADS <= 1024 && cfg::THREADS % 32 == 0,
              "cfg::THREADS is a multiple of 32 up to 1024");
static_assert(cfg::ROWS_PER_BLOCK >= 1 && cfg::THREADS % cfg::ROWS_PER_BLOCK == 0,
              "cfg::ROWS_PER_BLOCK divides cfg::THREADS");
static_assert(cfg::CLUSTER == 1 || (cfg::ROWS_PER_BLOCK == 1 && !cfg::INNER && cfg::CLUSTER <= 16),
              "cfg::CLUSTER is 1 or, of rows of a block each, up to 16");
static_assert(cfg::VECTOR <= 2 || cfg::VECTOR * sizeof(element) == 16 || cfg::VECTOR * sizeof(element) == 8,
              "cfg::VECTOR elements are one or two, or 8 or 16 bytes");
static_assert(cfg::PER_THREAD >= 0 && cfg::PER_THREAD % cfg::VECTOR == 0,
              "cfg::PER_THREAD is 0 or a multiple of cfg::VECTOR");
static_assert(cfg::BLOCKS >= 1 && cfg::COLUMN_PARTS >= 1 && cfg::REGISTERS >= 1 && cfg::AT_ONCE >= 1,
              "cfg::BLOCKS, cfg::COLUMN_PARTS, cfg::REGISTERS and cfg::AT_ONCE are positive");

constexpr int V = cfg::VECTOR;
constexpr int CLUSTER = cfg::CLUSTER;                              // blocks that share a row
constexpr int TEAM = cfg::THREADS / cfg::ROWS_PER_BLOCK * CLUSTER; // threads of one row
constexpr bool WHOLE_BLOCK = cfg::ROWS_PER_BLOCK == 1;
constexpr bool IN_REGISTERS = cfg::PER_THREAD > 0;
// TALL: a thread has neighbours along its row, so that a scan meets the other threads once for all of them.
constexpr bool TALL = cfg::INNER && variant::SCANS > 0 && variant::COLUMNS == 0;
// of one thread and tensor at once
constexpr int VECTORS = IN_REGISTERS ? cfg::PER_THREAD / V : TALL ? 8 : V == 1 ? 4 : 1;
// BY_WARP: a warp has neighbours along its row, so that a scan's warps meet once for all vectors of their threads.
constexpr bool BY_WARP = variant::SCANS > 0 && IN_REGISTERS && !cfg::INNER;
constexpr int STEP = TALL ? 1 : BY_WARP ? min_of(TEAM, 32) * V : TEAM * V; // from one of them to the next
constexpr bool PREFETCH = cfg::PREFETCH && IN_REGISTERS;
constexpr bool SHARED_NEXT = cfg::SHARED_NEXT && PREFETCH; // it waits in shared memory
constexpr int WARPS = cfg::THREADS / 32;
// a quarter of an SM: 512 registers x 32 lanes
constexpr int MIN_BLOCKS = max_of(1, min_of(4 * (512 / cfg::REGISTERS) / WARPS, 16));
constexpr int PARTS = cfg::INNER ? cfg::THREADS : max_of(WARPS, 4);
constexpr bool INNER = cfg::INNER;
constexpr bool FULL = cfg::FULL; // every thread has PER_THREAD elements of each row, none beyond its end
constexpr int SLOTS = max_of(variant::REDUCTIONS, 1);
constexpr bool COLUMN_SUMS = variant::COLUMNS > 0 && IN_REGISTERS; // of the first kernel
constexpr int COLUMNS = max_of(variant::COLUMNS, 1);
constexpr int SUMS = max_of(variant::SUMS, 1);
constexpr int OUT = max_of(variant::OUT, 1);
constexpr int COLUMN_THREADS = 128;
// of an SM: 64 registers hold a round of loads. Where nothing is said, ptxas awaits one load before the next one
constexpr int SUM_THREADS = 256, SUM_BLOCKS = 4;

static_assert(INNER || WHOLE_BLOCK || (TEAM <= 32 && (TEAM & (TEAM - 1)) == 0),
              "with several rows per block, a row belongs to 1, 2, 4, 8, 16 or 32 threads");
static_assert(!INNER || (cfg::ROWS_PER_BLOCK == 32 && V == 1),
              "with cfg::INNER, the lanes of a warp have 32 rows, an element each");

DEV int team_of_thread()
{
    const int thread = static_cast<int>(threadIdx.x);
    return INNER ? thread % cfg::ROWS_PER_BLOCK : WHOLE_BLOCK ? 0 : thread / TEAM;
}
DEV int cluster_rank() { return static_cast<int>(blockIdx.x) % CLUSTER; }
DEV int lane_in_team()
{
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (CLUSTER > 1) {
        return cluster_rank() * cfg::THREADS + thread;
    } else {
        return INNER ? thread / cfg::ROWS_PER_BLOCK : WHOLE_BLOCK && cfg::ONCE ? thread : thread % TEAM;
    }
}

DEV int own_first() // of a chunk, the first element of this thread
{
    const int lane = lane_in_team();
    if constexpr (BY_WARP && TEAM > 32) {
        return lane / 32 * (32 * VECTORS * V) + lane % 32 * V;
    } else {
        return lane * (TALL ? VECTORS : V);
    }
}

// ---- the tensors of rows -----------------------------------------------------------------------------

template <int K> using in_type = typename pick_type<K, variant::in_types>::type;
template <int K> using out_type = typename pick_type<K, variant::out_types>::type;

template <int K> __host__ __device__ constexpr int words_of()
{
    return max_of(1, V * static_cast<int>(sizeof(in_type<K>)) / 4);
}
template <int K> __host__ __device__ constexpr int first_word()
{
    if constexpr (K == 0) {
        return 0;
    } else {
        return first_word<K - 1>() + words_of<K - 1>();
    }
}
constexpr int WORDS = max_of(1, first_word<variant::IN>());

struct piece { // V elements of every tensor that is read, as they were loaded
    u32 word[WORDS];
};

// HAS_LEAD: the reference of the row's first scan is that of its first element in the walk.
constexpr bool has_lead()
{
    if constexpr (BY_WARP) {
        return variant::SCAN_FORM[0] == SCAN_LOG && variant::SCAN_STARTS[0] == 0;
    } else {
        return false;
    }
}
constexpr bool HAS_LEAD = has_lead();

// Where a row lies in the tensors is found once, and where there is one row of each outer dim without these: for scans
// with powers, which have few instructions to spare, and for blocks that have a row of one tensor for one of another,
// and nothing else to do until it comes.
constexpr bool found_once()
{
    if constexpr (BY_WARP) {
        return variant::SCAN_FORM[0] == SCAN_LOG || variant::SCAN_FORM[0] == SCAN_WEIGHTED;
    } else {
        return cfg::ONCE;
    }
}
constexpr bool FOUND_ONCE = found_once();
// behind the last row it is asked for once more, and nothing is asked about it
constexpr bool LAST_AGAIN = FOUND_ONCE && WHOLE_BLOCK;

struct place { // a row
    row_at at;
    bool here;                                       // false: the threads have none, and take part in shuffles only
    uint4 *unit;                                     // SHARED_NEXT: the thread's first one in shared memory
    piece lead;                                      // HAS_LEAD: that element of every tensor
    i64 in[FOUND_ONCE ? max_of(variant::IN, 1) : 1]; // FOUND_ONCE: where it begins, in elements
    i64 out[FOUND_ONCE ? OUT : 1];
};

template <class TENSOR> DEV i64 along(const TENSOR &t, int i)
{
    if constexpr (INNER) {
        return i * t.stride[3];
    } else {
        return i;
    }
}
template <class T> DEV T *row_of(const row_target &t, const row_at &at)
{
    return static_cast<T *>(t.data) + (at.row0 * t.stride[0] + at.row1 * t.stride[1] + at.row2 * t.stride[2]);
}
template <class T> DEV const T *row_of(const row_source &t, const row_at &at)
{
    return static_cast<const T *>(t.data) + (at.row0 * t.stride[0] + at.row1 * t.stride[1] + at.row2 * t.stride[2]);
}

DEV row_at place_of(const row_sizes &z, int row)
{
    row_at at = {row, 0, 0, row};
    if (z.rows0 * z.rows1 != 1) {
        const int outer = row / z.rows;
        at.row2 = row - outer * z.rows;
        at.row0 = outer / z.rows1;
        at.row1 = outer - at.row0 * z.rows1;
    }
    return at;
}

template <class TENSOR> DEV i64 offset_of(const TENSOR &t, const row_at &at)
{
    return at.row0 * t.stride[0] + at.row1 * t.stride[1] + at.row2 * t.stride[2];
}
DEV void find_place(place &to, const rows_params &p, int row)
{
    if constexpr (FOUND_ONCE) {
        to.at = {row, 0, 0, row};
        if (p.z.rows0 * p.z.rows1 == 1) {
            repeat<0, variant::IN>([&]<int K>() { to.in[K] = row * p.in[K].stride[2]; });
            repeat<0, variant::OUT>([&]<int K>() { to.out[K] = row * p.out[K].stride[2]; });
        } else {
            to.at = place_of(p.z, row);
            repeat<0, variant::IN>([&]<int K>() { to.in[K] = offset_of(p.in[K], to.at); });
            repeat<0, variant::OUT>([&]<int K>() { to.out[K] = offset_of(p.out[K], to.at); });
        }
    } else {
        to.at = place_of(p.z, row);
    }
}
template <int K> DEV const in_type<K> *row_read(const rows_params &p, const place &row)
{
    if constexpr (FOUND_ONCE) {
        return static_cast<const in_type<K> *>(p.in[K].data) + row.in[K];
    } else {
        return row_of<in_type<K>>(p.in[K], row.at);
    }
}
template <int K> DEV out_type<K> *row_written(const rows_params &p, const place &row)
{
    if constexpr (FOUND_ONCE) {
        return static_cast<out_type<K> *>(p.out[K].data) + row.out[K];
    } else {
        return row_of<out_type<K>>(p.out[K], row.at);
    }
}

template <int BYTES, reading HOW> DEV words<BYTES> load_row(const void *p)
{
    words<BYTES> w;
    if constexpr (HOW == READ_AGAIN || (HOW != READ_ONCE && BYTES < 16)) {
        w = load_words<BYTES, true>(p);
    } else if constexpr (BYTES >= 16) {
#pragma unroll
        for (int k = 0; k < BYTES / 16; k++) {
            const uint4 x = load_as16<HOW>(static_cast<const char *>(p) + 16 * k);
            w.word[4 * k] = x.x;
            w.word[4 * k + 1] = x.y;
            w.word[4 * k + 2] = x.z;
            w.word[4 * k + 3] = x.w;
        }
    } else if constexpr (BYTES == 8) {
        const uint2 x = load_once8(p);
        w.word[0] = x.x;
        w.word[1] = x.y;
    } else {
        w.word[0] = load_once4(p);
    }
    return w;
}

template <int K, reading HOW> DEV void load_piece(piece &to, const in_type<K> *p)
{
    constexpr int FIRST = first_word<K>();
    if constexpr (V == 1) {
        to.word[FIRST] = __float_as_uint(m_load(p, 0));
    } else {
        const words<4 * words_of<K>()> w = load_row<4 * words_of<K>(), HOW>(p);
#pragma unroll
        for (int i = 0; i < words_of<K>(); i++) {
            to.word[FIRST + i] = w.word[i];
        }
    }
}

// The same of element i, of a tensor that has the first COUNT elements of a row alone; zeros come in the place of the
// others.
template <int K, int COUNT> DEV void load_first(piece &to, const in_type<K> *row, int i)
{
    constexpr int FIRST = first_word<K>();
#pragma unroll
    for (int k = 0; k < words_of<K>(); k++) {
        to.word[FIRST + k] = 0;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (i + j < COUNT) {
            if constexpr (V == 1 || sizeof(in_type<K>) == 4) {
                to.word[FIRST + j] = __float_as_uint(m_load(row, i + j));
            } else {
                to.word[FIRST + j / 2] |= static_cast<u32>(row[i + j].bits) << (16 * (j % 2));
            }
        }
    }
}

// What element j of a piece is in every tensor.
DEV void unpack_piece(const piece &from, float (&e)[max_of(variant::IN, 1)], int j)
{
    e[0] = 0.0f;
    repeat<0, variant::IN>([&]<int K>() {
        constexpr int FIRST = first_word<K>();
        if constexpr (V == 1 || sizeof(in_type<K>) == 4) {
            e[K] = __uint_as_float(from.word[FIRST + j]);
        } else {
            e[K] = to_float(in_type<K>{static_cast<u16>(from.word[FIRST + j / 2] >> (16 * (j % 2)))});
        }
    });
}

template <int K> DEV void store_piece(out_type<K> *p, const float (&y)[V]) // streaming: it is not read again here
{
    using T = out_type<K>;
    if constexpr (V == 1) {
        *p = from_float<T>(y[0]);
    } else {
#pragma unroll
        for (int part = 0; part < max_of(1, V * static_cast<int>(sizeof(T)) / 16); part++) {
            constexpr int N = min_of(V, 16 / static_cast<int>(sizeof(T)));
            u32 w[N * sizeof(T) / 4];
#pragma unroll
            for (int i = 0; i < static_cast<int>(N * sizeof(T)) / 4; i++) {
                if constexpr (sizeof(T) == 4) {
                    w[i] = __float_as_uint(y[part * N + i]);
                } else {
                    w[i] = pack<T>(y[part * N + 2 * i], y[part * N + 2 * i + 1]);
                }
            }
            if constexpr (N * sizeof(T) == 16) {
                __stcs(reinterpret_cast<uint4 *>(p) + part, make_uint4(w[0], w[1], w[2], w[3]));
            } else if constexpr (N * sizeof(T) == 8) {
                __stcs(reinterpret_cast<uint2 *>(p) + part, make_uint2(w[0], w[1]));
            } else {
                __stcs(reinterpret_cast<u32 *>(p) + part, w[0]);
            }
        }
    }
}

// Elements i .. i + V - 1 of a row, of a tensor that has its first COUNT ones alone; of integers y has the bits.
template <class T> DEV void store_element(T *p, float y)
{
    if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<u32 *>(p) = __float_as_uint(y);
    } else {
        *p = from_float<T>(y);
    }
}
template <int K, int COUNT> DEV void store_first(out_type<K> *row, const float (&y)[V], int i, int n)
{
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (i + j < min(COUNT, n)) {
            store_element(row + i + j, y[j]);
        }
    }
}

template <int K> constexpr int OUT_WORDS = max_of(1, V *static_cast<int>(sizeof(out_type<K>)) / 4);
// The first n elements of words, in a loop: it is seldom asked, and soon compiled.
template <int K, int COUNT> DEV void store_some_words(out_type<K> *p, const u32 (&words)[COUNT], int n)
{
    using T = out_type<K>;
    constexpr int N = OUT_WORDS<K>;
    u32 w[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        w[i] = words[i];
    }
#pragma unroll 1
    for (int j = 0; j < n; j++) { // the next one comes to the front
        if constexpr (sizeof(T) == 4) {
            p[j] = __uint_as_float(w[0]);
        } else {
            p[j].bits = static_cast<u16>(w[0]);
        }
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 later = i + 1 < N ? w[min_of(i + 1, N - 1)] : 0u;
            w[i] = sizeof(T) == 4 ? later : w[i] >> 16 | later << 16;
        }
    }
}
template <int K> DEV void store_some(out_type<K> *p, const float (&y)[V], int n)
{
    using T = out_type<K>;
    u32 w[OUT_WORDS<K>];
#pragma unroll
    for (int i = 0; i < OUT_WORDS<K>; i++) {
        if constexpr (sizeof(T) == 4) {
            w[i] = __float_as_uint(y[i]);
        } else {
            w[i] = pack<T>(y[2 * i], V > 1 ? y[min_of(2 * i + 1, V - 1)] : 0.0f);
        }
    }
    store_some_words<K>(p, w, n);
}

// Makes the compiler forget what it knows of the row: what it derived from it in one pass (the unpacked floats) is then
// derived again in the next one, and not held in registers in between.
template <int COUNT> DEV void forget(piece (&held)[COUNT])
{
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            keep(held[v].word[i]);
        }
    }
}

// READS: of which tensors, as bits; nothing comes in the place of the others.
template <int COUNT, int STEP, reading HOW, int READS = -1>
DEV void load_pieces(piece (&held)[COUNT], const rows_params &p, const place &row, int first)
{
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr ((READS >> K & 1) == 0) {
            return;
        }
        const in_type<K> *from = row_read<K>(p, row);
        // with cfg::ONCE the compiler is told that a thread's vectors are constants apart; elsewhere that takes
        // registers
        [[maybe_unused]] const in_type<K> *from_first = from + along(p.in[K], first);
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const int i = first + v * STEP;
            if constexpr (first_of_in<variant, K>() > 0) {
                load_first<K, first_of_in<variant, K>()>(held[v], from, row.here ? i : first_of_in<variant, K>());
            } else if ((row.here || LAST_AGAIN) && (FULL || i < p.z.n)) {
                load_piece<K, HOW>(held[v], cfg::ONCE ? from_first + v * STEP : from + along(p.in[K], i));
            } else {
#pragma unroll
                for (int k = 0; k < words_of<K>(); k++) {
                    held[v].word[first_word<K>() + k] = 0;
                }
            }
        }
    });
}

DEV void load_lead(place &row, const rows_params &p)
{
    if constexpr (HAS_LEAD) {
        repeat<0, variant::IN>([&]<int K>() {
            const in_type<K> *from =
                row_read<K>(p, row) + (variant::WALK_REVERSE[variant::SCAN_WALK[0]] ? p.z.n - 1 : 0);
            if constexpr (V == 1 || sizeof(in_type<K>) == 4) {
                row.lead.word[first_word<K>()] = __float_as_uint(m_load(from, 0));
            } else {
                row.lead.word[first_word<K>()] = from->bits;
            }
        });
    }
}

// cfg::KEPT: L2 gives up last what is read.
DEV void copy_unit(u32 to, const void *from, int bytes = 16)
{
    if constexpr (cfg::KEPT) {
        hold_in_thread(to);
        copy16_as_async<0>(to, from, bytes, keep_policy());
    } else {
        copy16_async(to, from, bytes);
    }
}

// ---- rows in shared memory: each thread has places for what it loads itself, and meets nobody --------

constexpr int PIECE_UNITS = (WORDS + 3) / 4; // of 16 bytes, of a piece
constexpr int ROW_UNITS = VECTORS * PIECE_UNITS * cfg::THREADS;
DEV int unit_at(int v, int u) { return (v * PIECE_UNITS + u) * cfg::THREADS; } // from the thread's first one

DEV void fetch_row(const rows_params &p, const place &row, int first)
{
    repeat<0, variant::IN>([&]<int K>() {
        static_assert(!SHARED_NEXT || (words_of<K>() % 4 == 0 && V > 1), "units of 16 bytes");
        const in_type<K> *from = row_read<K>(p, row);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int i = first + v * STEP;
            const bool here = (row.here || LAST_AGAIN) && (FULL || i < p.z.n);
#pragma unroll
            for (int u = 0; u < words_of<K>() / 4; u++) {
                const void *unit = reinterpret_cast<const char *>(from + (here ? i : 0)) + 16 * u;
                copy_unit(shared_address(row.unit + unit_at(v, first_word<K>() / 4 + u)), unit, here ? 16 : 0); // zeros
            }
        }
    });
    copy_commit();
}

// Makes the compiler forget what it knows of the row; where it is in shared memory, it takes no registers in between.
DEV void recall(piece (&held)[VECTORS], const place &row)
{
    if constexpr (!SHARED_NEXT) {
        forget(held);
        return;
    }
    forget_memory();
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int u = 0; u < WORDS / 4; u++) {
            const uint4 x = row.unit[unit_at(v, u)];
            held[v].word[4 * u] = x.x;
            held[v].word[4 * u + 1] = x.y;
            held[v].word[4 * u + 2] = x.z;
            held[v].word[4 * u + 3] = x.w;
        }
    }
}

DEV void make_columns(const rows_params &p, const variant::head &head, bool wanted, int i, variant::col (&c)[V])
{
    if constexpr (variant::COLS) {
        if (wanted) {
            variant::make_cols<V>(p.x, p.z, head, i, c);
        }
    }
}

// What is read by row and column.
DEV void make_cells(const rows_params &p, const variant::head &head, const variant::vals &vals, bool wanted,
                    variant::col (&c)[V])
{
    if (wanted) {
        fill_cells<variant, V>(p.x, p.z, head, vals, c);
    }
}
DEV void make_columns(const rows_params &p, const variant::head &head, const variant::vals &vals, bool wanted, int i,
                      variant::col (&c)[V])
{
    make_columns(p, head, wanted, i, c);
    make_cells(p, head, vals, wanted, c);
}

} // namespace many
