// rowwise_many.cuh: kernels: rows of several tensors in, rows of several tensors out, and sums over all rows: the backward
// pass of a row-wise spec. Formulas are those of `variant`; README.md lists its slots.
//
// LATHE_ENTRY(rows): blocks of THREADS threads take groups of ROWS_PER_BLOCK rows in turn: BLOCKS of them where there are sums
// over the rows or PREFETCH, else one for each group. Column sums stay in registers over all rows of a block and leave it once, into
// params.columns [block][site][n]; sums over everything into params.sums [block][site].
// LATHE_ENTRY(columns), launched where PER_THREAD == 0 and there are column sums: a row does not fit registers, so columns are
// read again, each by its own thread: COLUMN_PARTS x ceil(n / (128 VECTOR)) blocks of 128 threads. What the rows' reductions
// gave is taken from params.values, where the first kernel left it.
// LATHE_ENTRY(sum): adds up what the blocks left, in the order of the blocks: the same bits in every run. 256 threads, any
// number of blocks; a gradient is written whole, also where nothing was added to it.
//
// ROWS_PER_BLOCK == 1: a block per row. > 1: THREADS / ROWS_PER_BLOCK threads per row, a power of two up to a warp.
// INNER: rows run along an inner dim, and those of the last dim are neighbours: a warp has 32 rows, a row a lane of every warp.
// PER_THREAD > 0: rows are read once and stay in registers as they were loaded; n <= (threads per row) * PER_THREAD.
// PER_THREAD == 0: any n, and every pass reads the row again, mostly from L2.
// VECTOR > 1: n is a multiple of VECTOR and every row of every tensor starts at a multiple of 16 bytes.
// AT_ONCE: vectors of a thread whose formulas may overlap; more would take registers for what the columns read.
// PREFETCH: the next row is on its way while one is worked on.
#include "slots.cuh"

namespace many {

static_assert(many_variant<variant, inputs, many_params>,
              "variant.gen.cuh does not fill the slots of a kernel of rows: templates/README.md lists them, "
              "and the notes below name the first one that is missing");

using element = cfg::element;

static_assert(same_type<element, float> || same_type<element, f16> || same_type<element, bf16>,
              "cfg::element is float, f16 or bf16");
static_assert(cfg::THREADS >= 32 && cfg::THREADS <= 1024 && cfg::THREADS % 32 == 0,
              "cfg::THREADS is a multiple of 32 up to 1024");
static_assert(cfg::ROWS_PER_BLOCK >= 1 && cfg::THREADS % cfg::ROWS_PER_BLOCK == 0,
              "cfg::ROWS_PER_BLOCK divides cfg::THREADS");
static_assert(cfg::VECTOR == 1 || cfg::VECTOR * sizeof(element) == 16 || cfg::VECTOR * sizeof(element) == 8,
              "cfg::VECTOR elements are one, or 8 or 16 bytes");
static_assert(cfg::PER_THREAD >= 0 && cfg::PER_THREAD % cfg::VECTOR == 0,
              "cfg::PER_THREAD is 0 or a multiple of cfg::VECTOR");
static_assert(cfg::BLOCKS >= 1 && cfg::COLUMN_PARTS >= 1 && cfg::REGISTERS >= 1 && cfg::AT_ONCE >= 1,
              "cfg::BLOCKS, cfg::COLUMN_PARTS, cfg::REGISTERS and cfg::AT_ONCE are positive");

constexpr int V = cfg::VECTOR;
constexpr int TEAM = cfg::THREADS / cfg::ROWS_PER_BLOCK; // threads of one row
constexpr bool WHOLE_BLOCK = cfg::ROWS_PER_BLOCK == 1;
constexpr bool IN_REGISTERS = cfg::PER_THREAD > 0;
constexpr int VECTORS = IN_REGISTERS ? cfg::PER_THREAD / V : V == 1 ? 4 : 1; // of one thread and tensor at once
constexpr bool PREFETCH = cfg::PREFETCH && IN_REGISTERS;
constexpr int WARPS = cfg::THREADS / 32;
constexpr int PARTS = cfg::INNER ? cfg::THREADS : max_of(WARPS, 4);
constexpr bool INNER = cfg::INNER;
constexpr int SLOTS = max_of(variant::REDUCTIONS, 1);
constexpr bool COLUMN_SUMS = variant::COLUMNS > 0 && IN_REGISTERS; // of the first kernel
constexpr int COLUMNS = max_of(variant::COLUMNS, 1);
constexpr int SUMS = max_of(variant::SUMS, 1);
constexpr int OUT = max_of(variant::OUT, 1);
constexpr int COLUMN_THREADS = 128;
constexpr int SUM_THREADS = 256;

static_assert(INNER || WHOLE_BLOCK || (TEAM <= 32 && (TEAM & (TEAM - 1)) == 0),
              "with several rows per block, a row belongs to 1, 2, 4, 8, 16 or 32 threads");
static_assert(!INNER || (cfg::ROWS_PER_BLOCK == 32 && V == 1), "with cfg::INNER, the lanes of a warp have 32 rows, an element each");

DEV int team_of_thread() { return static_cast<int>(threadIdx.x) % (INNER ? cfg::ROWS_PER_BLOCK : cfg::THREADS) / (INNER ? 1 : TEAM); }
DEV int lane_in_team() { return INNER ? static_cast<int>(threadIdx.x) / cfg::ROWS_PER_BLOCK : static_cast<int>(threadIdx.x) % TEAM; }

template <int I, int N, class F> DEV void repeat(const F &f) // f.operator()<I> .. <N - 1>
{
    if constexpr (I < N) {
        f.template operator()<I>();
        repeat<I + 1, N>(f);
    }
}

// ---- the tensors of rows ---------------------------------------------------------------------------------------

template <int K> using in_type = typename pick_type<K, variant::in_types>::type;
template <int K> using out_type = typename pick_type<K, variant::out_types>::type;

template <int K> __host__ __device__ constexpr int words_of() { return max_of(1, V * static_cast<int>(sizeof(in_type<K>)) / 4); }
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

struct place { // a row
    row_at at;
    bool here; // false: the threads have none, and take part in shuffles only
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

// ONCE: the row is not read again; then it goes past L1, which so keeps the inputs of the columns.
template <int BYTES, bool ONCE> DEV words<BYTES> load_row(const void *p)
{
    words<BYTES> w;
    if constexpr (!ONCE) {
        w = load_words<BYTES, true>(p);
    } else if constexpr (BYTES >= 16) {
#pragma unroll
        for (int k = 0; k < BYTES / 16; k++) {
            const uint4 x = load_once16(static_cast<const char *>(p) + 16 * k);
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

template <int K, bool ONCE> DEV void load_piece(piece &to, const in_type<K> *p)
{
    constexpr int FIRST = first_word<K>();
    if constexpr (V == 1) {
        to.word[FIRST] = __float_as_uint(m_load(p, 0));
    } else {
        const words<4 * words_of<K>()> w = load_row<4 * words_of<K>(), ONCE>(p);
#pragma unroll
        for (int i = 0; i < words_of<K>(); i++) {
            to.word[FIRST + i] = w.word[i];
        }
    }
}

// What element j of a piece is in every tensor.
template <int J> DEV void unpack_piece(const piece &from, float (&e)[max_of(variant::IN, 1)])
{
    e[0] = 0.0f;
    repeat<0, variant::IN>([&]<int K>() {
        constexpr int FIRST = first_word<K>();
        if constexpr (V == 1 || sizeof(in_type<K>) == 4) {
            e[K] = __uint_as_float(from.word[FIRST + J]);
        } else {
            e[K] = to_float(in_type<K>{static_cast<u16>(from.word[FIRST + J / 2] >> (16 * (J % 2)))});
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
            } else {
                __stcs(reinterpret_cast<uint2 *>(p) + part, make_uint2(w[0], w[1]));
            }
        }
    }
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

template <int COUNT, int STEP, bool ONCE> DEV void load_pieces(piece (&held)[COUNT], const many_params &p, const place &row, int first)
{
    repeat<0, variant::IN>([&]<int K>() {
        const in_type<K> *from = row_of<in_type<K>>(p.in[K], row.at);
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const int i = first + v * STEP;
            if (row.here && i < p.z.n) {
                load_piece<K, ONCE>(held[v], from + along(p.in[K], i));
            } else {
#pragma unroll
                for (int k = 0; k < words_of<K>(); k++) {
                    held[v].word[first_word<K>() + k] = 0;
                }
            }
        }
    });
}

// ---- the variant over the row ----------------------------------------------------------------------------------

DEV void make_columns(const many_params &p, const variant::head &head, bool wanted, int i, variant::col (&c)[V])
{
    if constexpr (variant::COLS) {
        if (wanted) {
            variant::make_cols<V>(p.x, p.z, head, i, c);
        }
    }
}

// What one chunk adds to the reductions of pass P: a tree inside a vector, so that sums are short and independent.
template <int P>
DEV void reduce_chunk(float (&red)[SLOTS], const piece (&held)[VECTORS], const many_params &p, const variant::head &head,
                      const variant::vals &vals, const place &row, int first)
{
    float done[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        int i = first + v * TEAM * V;
        if (v >= cfg::AT_ONCE) {
            after(i, done[v - cfg::AT_ONCE]);
        }
        const bool in_row = row.here && i < p.z.n;
        variant::col c[V] = {};
        if constexpr (variant::REDUCE_COLS) {
            make_columns(p, head, in_row, i, c);
        }
        float term[SLOTS][V];
        repeat<0, V>([&]<int J>() {
            float e[max_of(variant::IN, 1)];
            unpack_piece<J>(held[v], e);
            repeat<0, variant::REDUCTIONS>([&]<int R>() {
                if constexpr (variant::REDUCE_PASS[R] == P) {
                    term[R][J] = variant::operand<R>(e, i + J, p.x, p.z, head, c[J], vals);
                }
            });
        });
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
#pragma unroll
                for (int step = 1; step < V; step *= 2) {
#pragma unroll
                    for (int j = 0; j + step < V; j += 2 * step) {
                        term[R][j] = red_combine<OP>(term[R][j], term[R][j + step]);
                    }
                }
                done[v] = term[R][0];
                red[R] = in_row ? red_combine<OP>(red[R], term[R][0]) : red[R];
            }
        });
    }
}

struct scratch { // two sets in turn: a pass may write while slow warps still read the one before
    float part[2][SLOTS][PARTS];
};

// Over the team; every thread gets the results. At most one barrier.
template <int P> DEV void reduce_team(float (&red)[SLOTS], scratch &shared, int turn)
{
    constexpr int LANES = WHOLE_BLOCK ? 32 : TEAM;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
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
        return;
    }
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            red[R] = red_lanes<variant::REDUCE_OP[R], LANES>(red[R]);
            if (WHOLE_BLOCK && WARPS > 1 && lane == 0) {
                shared.part[turn][R][warp] = red[R];
            }
        }
    });
    if constexpr (WHOLE_BLOCK && WARPS > 1) {
        __syncthreads();
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
                const float(&part)[PARTS] = shared.part[turn][R];
                if constexpr (WARPS <= 8) { // broadcast reads: shorter than another five shuffles
                    red[R] = part[0];
#pragma unroll
                    for (int w = 1; w < WARPS; w++) {
                        red[R] = red_combine<OP>(red[R], part[w]);
                    }
                } else {
                    red[R] = red_lanes<OP, 32>(lane < WARPS ? part[lane] : red_identity<OP>());
                }
            }
        });
    }
}

// ---- scans -----------------------------------------------------------------------------------------------------

// What a stretch of elements hands on: forward, the sum behind its last start (all of it where there is none); in reverse,
// the sum in front of its first start. start: there is one.
struct stretch {
    float sum;
    int start;
};

// first, then second, in the order of the walk.
DEV stretch join(const stretch &first, const stretch &second)
{
    if constexpr (variant::REVERSE) { // second lies to the left: what it hands on ends at its first start
        return {second.start ? second.sum : second.sum + first.sum, first.start | second.start};
    } else {
        return {second.start ? second.sum : first.sum + second.sum, first.start | second.start};
    }
}

// One element. In reverse, one that begins a segment hands on nothing.
DEV stretch element_stretch(float term, bool start)
{
    return {variant::REVERSE && start ? 0.0f : term, start ? 1 : 0};
}

constexpr int SCANS = max_of(variant::SCANS, 1);
struct scan_scratch {
    stretch part[2][SCANS][variant::SCANS > 0 ? (INNER ? cfg::THREADS : WARPS) : 1];
};

// Of a stretch of each thread of the team: `mine` becomes what comes before it in the walk, `all` what the team hands on.
DEV void scan_team(stretch &mine, stretch &all, stretch (&part)[variant::SCANS > 0 ? (INNER ? cfg::THREADS : WARPS) : 1])
{
    constexpr int LANES = WHOLE_BLOCK ? 32 : TEAM;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    stretch before = {0.0f, 0};
    if constexpr (INNER) {
        part[threadIdx.x] = mine;
        __syncthreads();
        all = before;
        for (int k = 0; k < WARPS; k++) {
            const int w = variant::REVERSE ? WARPS - 1 - k : k;
            if (w == warp) {
                before = all;
            }
            all = join(all, part[w * 32 + lane]);
        }
    } else {
        const int place = variant::REVERSE ? LANES - 1 - lane % LANES : lane % LANES; // in the walk
        stretch sum = mine;
#pragma unroll
        for (int step = 1; step < LANES; step *= 2) {
            stretch other;
            if constexpr (variant::REVERSE) {
                other = {__shfl_down_sync(ALL_LANES, sum.sum, step, LANES), __shfl_down_sync(ALL_LANES, sum.start, step, LANES)};
            } else {
                other = {__shfl_up_sync(ALL_LANES, sum.sum, step, LANES), __shfl_up_sync(ALL_LANES, sum.start, step, LANES)};
            }
            if (place >= step) {
                sum = join(other, sum);
            }
        }
        const int last = variant::REVERSE ? 0 : LANES - 1;
        if constexpr (variant::REVERSE) {
            before = {__shfl_down_sync(ALL_LANES, sum.sum, 1, LANES), __shfl_down_sync(ALL_LANES, sum.start, 1, LANES)};
        } else {
            before = {__shfl_up_sync(ALL_LANES, sum.sum, 1, LANES), __shfl_up_sync(ALL_LANES, sum.start, 1, LANES)};
        }
        if (place == 0) {
            before = {0.0f, 0};
        }
        all = {__shfl_sync(ALL_LANES, sum.sum, last, LANES), __shfl_sync(ALL_LANES, sum.start, last, LANES)};
        if constexpr (WHOLE_BLOCK && WARPS > 1) {
            if (lane == 0) {
                part[warp] = all;
            }
            __syncthreads();
            stretch walked = {0.0f, 0};
            for (int k = 0; k < WARPS; k++) {
                const int w = variant::REVERSE ? WARPS - 1 - k : k;
                if (w == warp) {
                    before = join(walked, before);
                }
                walked = join(walked, part[w]);
            }
            all = walked;
        }
    }
    mine = before;
}

// The scans at the V elements of a piece; carry: what the pieces before it handed on.
DEV void scan_piece(float (&q)[SCANS][V], stretch (&carry)[SCANS], const piece &held, const many_params &p, const variant::head &head,
                    const variant::vals &vals, const place &row, int i, scan_scratch &shared, int &turn)
{
    const bool in_row = row.here && i < p.z.n;
    variant::col c[V] = {};
    make_columns(p, head, in_row, i, c);
    float term[SCANS][V];
    bool start[SCANS][V];
    repeat<0, V>([&]<int J>() {
        float e[max_of(variant::IN, 1)];
        unpack_piece<J>(held, e);
        repeat<0, variant::SCANS>([&]<int S>() {
            const float t = variant::scan_term<S>(e, i + J, p.x, p.z, head, c[J], vals, start[S][J]);
            term[S][J] = in_row ? t : 0.0f;
            start[S][J] &= in_row;
        });
    });
    repeat<0, variant::SCANS>([&]<int S>() {
        stretch mine = {0.0f, 0};
        stretch all;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = variant::REVERSE ? V - 1 - k : k;
            mine = join(mine, element_stretch(term[S][j], start[S][j]));
        }
        scan_team(mine, all, shared.part[turn][S]);
        stretch walked = join(carry[S], mine);
        carry[S] = join(carry[S], all);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int j = variant::REVERSE ? V - 1 - k : k;
            q[S][j] = variant::REVERSE || !start[S][j] ? walked.sum + term[S][j] : term[S][j];
            walked = join(walked, element_stretch(term[S][j], start[S][j]));
        }
    });
    turn ^= 1;
}

struct totals { // of one thread, over the rows of its block
    float column[COLUMNS][VECTORS][V];
    float sum[SUMS];
};

// One vector of columns: rows out, and what it adds to the sums of its columns.
template <bool OUTPUTS>
DEV float finish_piece(const piece &held, const float (&scanned)[SCANS][V], float (&column)[COLUMNS][V], const many_params &p, const variant::head &head,
                      const variant::vals &vals, const place &row, int i)
{
    const bool in_row = row.here && i < p.z.n;
    variant::col c[V] = {};
    make_columns(p, head, in_row, i, c);
    float out[OUT][V];
    repeat<0, V>([&]<int J>() {
        float e[max_of(variant::IN, 1)];
        float y[OUT];
        float site[COLUMNS];
        float q[SCANS];
        unpack_piece<J>(held, e);
#pragma unroll
        for (int s = 0; s < SCANS; s++) {
            q[s] = scanned[s][J];
        }
        variant::output(e, i + J, p.x, p.z, head, c[J], vals, q, y, site);
        repeat<0, variant::OUT>([&]<int K>() { out[K][J] = y[K]; });
        repeat<0, variant::COLUMNS>([&]<int S>() { column[S][J] += in_row ? site[S] : 0.0f; });
    });
    if constexpr (OUTPUTS) {
        if (in_row) {
            repeat<0, variant::OUT>([&]<int K>() { store_piece<K>(row_of<out_type<K>>(p.out[K], row.at) + along(p.out[K], i), out[K]); });
        }
    }
    return variant::OUT > 0 ? out[0][V - 1] : column[0][V - 1];
}

// One row of each team, which is in `held` where it fits registers.
DEV void run(const many_params &p, const variant::head &head, variant::vals &vals, const place &row, piece (&held)[VECTORS],
             totals &total, scratch &shared, scan_scratch &scans, int &turn)
{
    constexpr int CHUNK = VECTORS * TEAM * V; // elements that the team works on at once
    const int lane = lane_in_team();
    repeat<0, variant::PASSES>([&]<int P>() {
        float red[SLOTS] = {};
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                red[R] = red_identity<variant::REDUCE_OP[R]>();
            }
        });
        if constexpr (IN_REGISTERS) {
            forget(held);
            reduce_chunk<P>(red, held, p, head, vals, row, lane * V);
        } else {
#pragma unroll 1
            for (int base = 0; base < p.z.n; base += CHUNK) {
                load_pieces<VECTORS, TEAM * V, false>(held, p, row, base + lane * V);
                reduce_chunk<P>(red, held, p, head, vals, row, base + lane * V);
            }
        }
        reduce_team<P>(red, shared, turn);
        turn ^= 1;
        variant::update<P>(vals, red, p.x, p.z, head);
    });
    stretch carry[SCANS] = {};
    constexpr bool BACKWARDS = variant::SCANS > 0 && variant::REVERSE;
    const int chunks = IN_REGISTERS ? 1 : (p.z.n - 1) / CHUNK + 1;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int base = (BACKWARDS ? chunks - 1 - chunk : chunk) * CHUNK;
        if constexpr (!IN_REGISTERS) {
            load_pieces<VECTORS, TEAM * V, false>(held, p, row, base + lane * V);
        }
        forget(held);
        float done[VECTORS];
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            const int v = BACKWARDS ? VECTORS - 1 - k : k;
            float column[COLUMNS][V] = {};
            float scanned[SCANS][V] = {};
            int i = base + (lane + v * TEAM) * V;
            if (k >= cfg::AT_ONCE) {
                after(i, done[k - cfg::AT_ONCE]);
            }
            if constexpr (variant::SCANS > 0) {
                scan_piece(scanned, carry, held[v], p, head, vals, row, i, scans, turn);
            }
            done[k] = finish_piece<true>(held[v], scanned, column, p, head, vals, row, i);
            if constexpr (COLUMN_SUMS) {
                repeat<0, variant::COLUMNS>([&]<int S>() {
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        total.column[S][v][j] += column[S][j];
                    }
                });
            }
        }
    }
    if constexpr (variant::SUMS > 0) {
        float sum[SUMS];
        variant::sums(p.x, p.z, head, vals, sum);
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            total.sum[s] += row.here ? sum[s] : 0.0f;
        }
    }
    if (row.here && lane == 0) {
        if constexpr (variant::KEPT > 0) {
            float kept[max_of(variant::KEPT, 1)];
            variant::keep_row(p.x, p.z, head, vals, kept);
            repeat<0, variant::KEPT>([&]<int K>() { *row_of<float>(p.kept[K], row.at) = kept[K]; });
        }
        if constexpr (variant::COLUMNS > 0 && !IN_REGISTERS) {
            static_cast<variant::vals *>(p.values)[row.at.row] = vals;
        }
    }
}

// ---- what a block leaves ---------------------------------------------------------------------------------------

// Of several teams: one after the other, through shared memory.
struct gathering {
    float column[WHOLE_BLOCK || !COLUMN_SUMS ? 1 : cfg::THREADS * VECTORS * V];
    float sum[SUMS][cfg::ROWS_PER_BLOCK];
};

DEV void leave_columns(const many_params &p, const totals &total, gathering &shared)
{
    const int lane = lane_in_team();
    const int team = team_of_thread();
    repeat<0, variant::COLUMNS>([&]<int S>() {
        float *to = p.columns + (static_cast<i64>(blockIdx.x) * variant::COLUMNS + S) * p.z.n;
        if constexpr (WHOLE_BLOCK) {
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                const int i = (lane + v * TEAM) * V;
                if (i < p.z.n) {
                    store_vec<V>(to + i, total.column[S][v]);
                }
            }
        } else {
            constexpr int ROW = TEAM * VECTORS * V;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
#pragma unroll
                for (int j = 0; j < V; j++) {
                    shared.column[team * ROW + (lane + v * TEAM) * V + j] = total.column[S][v][j];
                }
            }
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < p.z.n; i += cfg::THREADS) {
                float sum = 0.0f;
                for (int t = 0; t < cfg::ROWS_PER_BLOCK; t++) {
                    sum += shared.column[t * ROW + i];
                }
                to[i] = sum;
            }
            __syncthreads();
        }
    });
}

DEV void leave_sums(const many_params &p, const totals &total, gathering &shared)
{
    const int team = team_of_thread();
    if (lane_in_team() == 0) {
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            shared.sum[s][team] = total.sum[s];
        }
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < variant::SUMS) {
        float sum = 0.0f;
        for (int t = 0; t < cfg::ROWS_PER_BLOCK; t++) {
            sum += shared.sum[threadIdx.x][t];
        }
        p.sums[static_cast<i64>(blockIdx.x) * variant::SUMS + threadIdx.x] = sum;
    }
}

// cfg::REGISTERS to live with: the rows, the sums, one pass over a part of it, addresses. Without a limit the compiler spreads
// out and fewer rows are under way at once, which costs bandwidth.
constexpr int MIN_BLOCKS = max_of(1, min_of(4 * (512 / cfg::REGISTERS) / WARPS, 16)); // a quarter of an SM: 512 registers x 32 lanes

} // namespace many

extern "C" __global__ void __launch_bounds__(cfg::THREADS, many::MIN_BLOCKS)
    LATHE_ENTRY(rows)(const __grid_constant__ many_params p)
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
    const auto row_in = [&](int group) {
        const int asked = group * cfg::ROWS_PER_BLOCK + team;
        return place{place_of(p.z, min(asked, total_rows - 1)), asked < total_rows};
    };
    const int groups = (total_rows - 1) / cfg::ROWS_PER_BLOCK + 1;
    const int first = static_cast<int>(blockIdx.x);
    if (total_rows <= 0 || first >= groups) {
        return;
    }
    place row = row_in(first);
    variant::vals vals;
    if constexpr (PREFETCH) {
        load_pieces<VECTORS, TEAM * V, true>(next, p, row, lane * V);
    }
#pragma unroll 1
    for (int group = first; group < groups; group += static_cast<int>(gridDim.x)) {
        if constexpr (PREFETCH) {
            const place now = row;
            const int after = group + static_cast<int>(gridDim.x);
            row = row_in(after);
            variant::begin(vals, p, head, now.at);
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                held[v] = next[v];
            }
            load_pieces<VECTORS, TEAM * V, true>(next, p, row, lane * V);
            run(p, head, vals, now, held, total, shared, scans, turn);
        } else {
            row = row_in(group);
            if constexpr (IN_REGISTERS) {
                load_pieces<VECTORS, TEAM * V, true>(held, p, row, lane * V);
            }
            variant::begin(vals, p, head, row.at);
            run(p, head, vals, row, held, total, shared, scans, turn);
        }
    }
    if constexpr (COLUMN_SUMS) {
        leave_columns(p, total, gather);
    }
    if constexpr (variant::SUMS > 0) {
        leave_sums(p, total, gather);
    }
}

extern "C" __global__ void __launch_bounds__(many::COLUMN_THREADS)
    LATHE_ENTRY(columns)(const __grid_constant__ many_params p)
{
    using namespace many;
    if constexpr (variant::COLUMNS > 0 && !IN_REGISTERS) {
        const int total_rows = p.z.rows0 * p.z.rows1 * p.z.rows;
        const int part = static_cast<int>(blockIdx.x) % cfg::COLUMN_PARTS;
        const int i = (static_cast<int>(blockIdx.x) / cfg::COLUMN_PARTS * COLUMN_THREADS + static_cast<int>(threadIdx.x)) * V;
        const variant::head head = variant::make_head(p.x, p.z);
        float column[COLUMNS][V] = {};
        if (part >= total_rows || i >= p.z.n) {
            return;
        }
#pragma unroll 2
        for (int r = part; r < total_rows; r += cfg::COLUMN_PARTS) {
            const place row = {place_of(p.z, r), true};
            piece held[1];
            load_pieces<1, V, true>(held, p, row, i);
            const float none[SCANS][V] = {};
            finish_piece<false>(held[0], none, column, p, head, static_cast<const variant::vals *>(p.values)[r], row, i);
        }
        repeat<0, variant::COLUMNS>([&]<int S>() {
            store_vec<V>(p.columns + (static_cast<i64>(part) * variant::COLUMNS + S) * p.z.n + i, column[S]);
        });
    }
}

extern "C" __global__ void __launch_bounds__(many::SUM_THREADS)
    LATHE_ENTRY(sum)(const __grid_constant__ many_sum_params p)
{
    using namespace many;
    constexpr int STEPS = SUM_THREADS / 32; // warps, each with its share of the parts
    __shared__ float shared[STEPS][32];
    const int rows = p.z.rows0 * p.z.rows1 * p.z.rows;
    const int row_parts = min(cfg::BLOCKS, (rows + cfg::ROWS_PER_BLOCK - 1) / cfg::ROWS_PER_BLOCK);
    const int column_parts = IN_REGISTERS ? row_parts : min(cfg::COLUMN_PARTS, rows);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const variant::head head = variant::make_head(p.x, p.z);
    repeat<0, variant::GRADS>([&]<int G>() {
        const row_gradient &g = p.grad[G];
        const i64 count = g.size[0] * g.size[1] * g.size[2] * g.size[3];
#pragma unroll 1
        for (i64 base = static_cast<i64>(blockIdx.x) * 32; base < count; base += static_cast<i64>(gridDim.x) * 32) {
            const i64 e = base + lane;
            float sum = 0.0f;
            repeat<0, variant::SITES>([&]<int S>() {
                if constexpr (variant::SITE_GRAD[S] == G) {
                    const int column = e < count ? variant::column_of<S>(g, p.x, p.z, head, e) : -1;
                    constexpr int SLOT = variant::SITE_SLOT[S];
                    const bool by_column = variant::SITE_COLUMN[S];
                    const float *from = by_column ? p.columns + static_cast<i64>(SLOT) * p.z.n + max(column, 0) : p.sums + SLOT;
                    const i64 stride = by_column ? static_cast<i64>(variant::COLUMNS) * p.z.n : variant::SUMS;
                    const int parts = column < 0 ? 0 : by_column ? column_parts : row_parts;
#pragma unroll 4
                    for (int k = warp; k < parts; k += STEPS) {
                        sum += from[k * stride];
                    }
                }
            });
            shared[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && e < count) {
                float all = shared[0][lane];
#pragma unroll
                for (int k = 1; k < STEPS; k++) {
                    all += shared[k][lane];
                }
                i64 to = 0;
                i64 rest = e;
#pragma unroll
                for (int d = 3; d >= 0; d--) {
                    const i64 outer = rest / g.size[d];
                    to += (rest - outer * g.size[d]) * g.stride[d];
                    rest = outer;
                }
                g.data[to] = all;
            }
            __syncthreads();
        }
    });
}
