// rowwise/single.cuh: kernel: every row of x [rows0, rows1, rows, n] is reduced in passes and mapped to a row of y.
//
// Launch: ceil(rows0 * rows1 * rows / ROWS_PER_BLOCK) blocks of THREADS threads; no shared memory to ask for. Nothing
// to do for n == 0 or no rows. Blocks take rows by their flat number.
//
// ROWS_PER_BLOCK == 1: a block per row. > 1: THREADS / ROWS_PER_BLOCK threads per row, a power of two up to a warp.
// PER_THREAD > 0: x is read once and stays in registers as it was loaded; n may be at most (threads per row) *
// PER_THREAD.
// REREAD: every pass reads the row again, from L1 and L2, so that registers hold a part of it: n as above.
// PER_THREAD == 0: any n, and every pass reads the row again, mostly from L2.
//
// ALIGNED: n and the start of every row fit vectors of VECTOR elements. Else single elements are read and written,
// adjacent ones in adjacent threads, and every pass reads the row again, from L1 and L2: any n and any strides.
// FULL: n is exactly (threads per row) * PER_THREAD, and ALIGNED.
//
// What to choose. v: elements of 16 bytes; w = ceil(n / v). No configuration of this table spills, on sm_80 and on
// sm_90a.
//
//     w                    THREADS                  ROWS_PER_BLOCK  VECTOR  PER_THREAD             registers
//     1 .. 32              128                      128 / team      v       v                      32 .. 64   team: the
//     power of two >= w
//     33 .. 128            128                      4               v       v * ceil(w / 32)       48 .. 64
//     129 .. 2048          max(64, 32 ceil(w/128))  1               v       4 v                    48 .. 64
//     2049 .. 4096         32 ceil(w / 256)         1               v       8 v                    71 .. 123
//     .. 8192, 32-bit only 32 ceil(w / 512)         1               v       16 v                   94 .. 116
//     beyond               512                      1               v       0                      56 .. 64
//     512 .. 1024, REREAD  32 ceil(w / 64)          1               v       2 v                    32 .. 48   one pass
//     that reduces: gen/rowwise/plan_reread.c
//     the same             32 ceil(w / 128)         1               v       4 v                    32 .. 48   elements
//     read inputs by row and column
#include "common/concepts.cuh"

namespace rowwise
{

static_assert(rowwise_variant<variant, inputs, rowwise_params>,
              "variant.gen.cuh does not fill the slots of a row-wise kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");

using element = cfg::element;

static_assert(same_type<element, float> || same_type<element, f16> || same_type<element, bf16>,
              "cfg::element is float, f16 or bf16");
static_assert(cfg::THREADS >= 32 && cfg::THREADS <= 1024 && cfg::THREADS % 32 == 0,
              "cfg::THREADS is a multiple of 32 up to 1024");
static_assert(cfg::ROWS_PER_BLOCK >= 1 && cfg::THREADS % cfg::ROWS_PER_BLOCK == 0,
              "cfg::ROWS_PER_BLOCK divides cfg::THREADS");
static_assert(cfg::VECTOR * sizeof(element) == 4 || cfg::VECTOR * sizeof(element) == 8 ||
                  cfg::VECTOR * sizeof(element) == 16,
              "cfg::VECTOR elements are 4, 8 or 16 bytes");
static_assert(cfg::PER_THREAD >= 0 && cfg::PER_THREAD % cfg::VECTOR == 0,
              "cfg::PER_THREAD is 0 or a multiple of cfg::VECTOR");
static_assert(cfg::ALIGNED || !cfg::FULL, "full rows are aligned");

constexpr int V = cfg::VECTOR;
constexpr int BYTES = V * static_cast<int>(sizeof(element));
constexpr int TEAM = cfg::THREADS / cfg::ROWS_PER_BLOCK; // threads of one row
constexpr bool WHOLE_BLOCK = cfg::ROWS_PER_BLOCK == 1;
constexpr bool IN_REGISTERS = cfg::PER_THREAD > 0;
constexpr int VECTORS = IN_REGISTERS ? cfg::PER_THREAD / V : 4; // of one thread at once
constexpr int WARPS = cfg::THREADS / 32;
constexpr int SLOTS = max_of(variant::REDUCTIONS, 1);
// Registers to live with: the row, one pass over a part of it, addresses. Without a limit the compiler spreads out and
// fewer rows are under way at once, which costs bandwidth.
constexpr int ROW_WORDS = VECTORS * BYTES / 4;
constexpr int REGISTERS = max_of(variant::COLS ? 64 : 48,
                                 32 + 2 * ROW_WORDS + (variant::COLS && ROW_WORDS > (WHOLE_BLOCK ? 16 : 8) ? 16 : 0));
// Rows that are read again: as many threads as an SM takes; fewer where values of columns depend on the row, too.
constexpr int MANY_THREADS = has_cells<variant>() ? 1536 : 2048;
constexpr int MIN_BLOCKS = cfg::REREAD ? max_of(1, MANY_THREADS / cfg::THREADS)
                                       // a quarter of an SM: 512 registers x 32 lanes
                                       : max_of(1, min_of(4 * (512 / REGISTERS) / WARPS, 16));
constexpr int PARTS = max_of(WARPS, 4);

static_assert(WHOLE_BLOCK || (TEAM <= 32 && (TEAM & (TEAM - 1)) == 0),
              "with several rows per block, a row belongs to 1, 2, 4, 8, 16 or 32 threads");

struct place { // where the row of this thread lies
    const element *x;
    element *y;
    int n;    // 0 for a thread without a row
    int row2; // its number among those of its outer dims
};

DEV int lane_in_team()
{
    const int thread = static_cast<int>(threadIdx.x);
    return WHOLE_BLOCK ? thread : thread % TEAM;
}

// A vector of this thread that begins at column i.
DEV bool is_in_row(const place &at, int i)
{
    if constexpr (cfg::FULL && WHOLE_BLOCK) {
        return true;
    } else {
        return i < at.n;
    }
}

// ---- memory: W elements of one thread, V or 1 of them, as they were loaded ---------------------------

template <int W> using packed = words<max_of(4, W *static_cast<int>(sizeof(element)))>;

template <int W, reading HOW> DEV packed<W> load_x(const element *p)
{
    packed<W> w;
    if constexpr (W == 1) {
        w.word[0] = __float_as_uint(m_load(p, 0));
    } else if constexpr (HOW == READ_AGAIN || (HOW != READ_ONCE && BYTES != 16)) {
        w = load_words<BYTES, true>(p);
    } else if constexpr (BYTES == 16) {
        const uint4 x = load_as16<HOW>(p);
        w.word[0] = x.x;
        w.word[1] = x.y;
        w.word[2] = x.z;
        w.word[3] = x.w;
    } else if constexpr (BYTES == 8) {
        const uint2 x = load_once8(p);
        w.word[0] = x.x;
        w.word[1] = x.y;
    } else {
        w.word[0] = load_once4(p);
    }
    return w;
}

template <int W> DEV void unpack_x(const packed<W> &w, float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(w.word) / 4); i++) {
        if constexpr (W == 1 || sizeof(element) == 4) {
            x[i] = __uint_as_float(w.word[i]);
        } else {
            unpack<element>(w.word[i], x[2 * i], x[2 * i + 1]);
        }
    }
}

template <int W> DEV void store_y(element *p, const float (&y)[W]) // streaming: it is not read again here
{
    if constexpr (W == 1) {
        *p = from_float<element>(y[0]);
    } else {
        u32 w[BYTES / 4];
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            if constexpr (sizeof(element) == 4) {
                w[i] = __float_as_uint(y[i]);
            } else {
                w[i] = pack<element>(y[2 * i], y[2 * i + 1]);
            }
        }
        if constexpr (BYTES == 16) {
            __stcs(reinterpret_cast<uint4 *>(p), make_uint4(w[0], w[1], w[2], w[3]));
        } else if constexpr (BYTES == 8) {
            __stcs(reinterpret_cast<uint2 *>(p), make_uint2(w[0], w[1]));
        } else {
            __stcs(reinterpret_cast<u32 *>(p), w[0]);
        }
    }
}

// Makes the compiler forget what it knows of the row: what it derived from it in one pass (the unpacked floats) is then
// derived again in the next one, and not held in registers in between.
template <int W, int COUNT> DEV void forget(packed<W> (&held)[COUNT])
{
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(held[v].word) / 4); i++) {
            keep(held[v].word[i]);
        }
    }
}

// First element of this thread in the chunk at `base`; its next vectors follow at distances of TEAM * W. Signed, so
// that their addresses are known to be constants apart: a pair of registers for all of them.
template <int W> DEV int first_of(int base) { return base + lane_in_team() * W; }

template <int W, reading HOW, int COUNT> DEV void load_chunk(packed<W> (&held)[COUNT], const place &at, int base)
{
    const int first = first_of<W>(base);
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
        const int i = first + v * TEAM * W;
        held[v] = packed<W>{};
        if (is_in_row(at, i)) {
            held[v] = load_x<W, HOW>(at.x + i);
        }
    }
}

// ---- the variant over the row ------------------------------------------------------------------------

struct values { // of the row, in every one of its threads
    variant::head head;
    variant::vals vals;
};

[[maybe_unused]] constexpr bool REDUCE_COLS = reduces_columns<variant>();

template <int W>
DEV void make_columns(const rowwise_params &p, const values &of, const place &at, int i, variant::col (&c)[W])
{
    if constexpr (variant::COLS) {
        if (is_in_row(at, i)) {
            variant::make_cols<W>(p.in, p.z, of.head, i, c);
            fill_cells<variant, W>(p.in, p.z, of.head, of.vals, c);
        }
    }
}

// What one chunk adds to the reductions of pass P: a tree inside a vector, so that sums are short and independent.
template <int P, int W, int COUNT> DEV void reduce_chunk(float (&red)[SLOTS], const packed<W> (&held)[COUNT],
                                                         const rowwise_params &p, const values &of, const place &at,
                                                         int base)
{
    const int first = first_of<W>(base);
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
        const int i = first + v * TEAM * W;
        float x[W];
        unpack_x<W>(held[v], x);
        variant::col c[W] = {};
        if constexpr (REDUCE_COLS) {
            make_columns<W>(p, of, at, i, c);
        }
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
                if constexpr (adds_seldom<variant, R>()) {
                    if (!is_in_row(at, i) || !may_add<variant, R>(i, W, p.in, p.z, of.head, of.vals)) {
                        return;
                    }
                }
                float term[W];
                if constexpr (compared_tensor<variant, R>() == 0 && W > 1 && sizeof(element) == 2) { // two at once
                    u32 both = held[v].word[0];
#pragma unroll
                    for (int w = 1; w < W / 2; w++) {
                        both = red_combine_pairs<OP, element>(both, held[v].word[w]);
                    }
                    float other;
                    unpack<element>(both, term[0], other);
                    term[0] = red_combine<OP>(term[0], other);
                } else {
#pragma unroll
                    for (int j = 0; j < W; j++) {
                        term[j] = variant::operand<R>(x[j], i + j, p.in, p.z, of.head, c[j], of.vals);
                    }
#pragma unroll
                    for (int step = 1; step < W; step *= 2) {
#pragma unroll
                        for (int j = 0; j + step < W; j += 2 * step) {
                            term[j] = red_combine<OP>(term[j], term[j + step]);
                        }
                    }
                }
                red[R] = is_in_row(at, i) ? red_combine<OP>(red[R], term[0]) : red[R];
            }
        });
    }
}

struct scratch { // two sets in turn: a pass may write while slow warps still read the one before
    float part[2][SLOTS][PARTS];
};

// Over the team; every thread gets the results. At most one barrier.
template <int P> DEV void reduce_team(float (&red)[SLOTS], scratch &shared)
{
    constexpr int LANES = WHOLE_BLOCK ? 32 : TEAM;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    repeat<0, variant::REDUCTIONS>([&]<int R>() {
        if constexpr (variant::REDUCE_PASS[R] == P) {
            red[R] = red_lanes<variant::REDUCE_OP[R], LANES>(red[R]);
            if (WHOLE_BLOCK && WARPS > 1 && lane == 0) {
                shared.part[P % 2][R][warp] = red[R];
            }
        }
    });
    if constexpr (WHOLE_BLOCK && WARPS > 1) {
        __syncthreads();
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
                const float(&part)[PARTS] = shared.part[P % 2][R];
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

// What blocks of later on read comes to L2 while the loads of this one are under way: so their registers wait for L2,
// not for memory. Where that is a row of the same outer dims. Not where an SM has rows enough under way without it: L2
// is then told to keep what is loaded.
constexpr bool AHEAD = variant::COLS ? variant::PASSES > 1 || VECTORS<3 : variant::PASSES> 1 && cfg::THREADS > 256;
constexpr int LINE = 128 / static_cast<int>(sizeof(element));
DEV void prefetch_row(const rowwise_params &p, const place &at)
{
    const int ahead = MIN_BLOCKS * cfg::ROWS_PER_BLOCK * count_sms();
    if (at.row2 + ahead < p.z.rows && at.n > 0) {
        const element *next = at.x + ahead * p.x_2;
#pragma unroll 1
        for (int i = lane_in_team() * LINE; i < at.n; i += TEAM * LINE) {
            prefetch_line(next + i);
        }
    }
}

template <int W> DEV void run(const rowwise_params &p, const place &at, int row, scratch &shared)
{
    constexpr bool HELD = IN_REGISTERS && W == V && !cfg::REREAD;
    constexpr bool ONE_CHUNK = IN_REGISTERS && W == V;
    constexpr int COUNT = W == V ? VECTORS : 4;
    constexpr int CHUNK = COUNT * TEAM * W; // elements that the team works on at once
    packed<W> held[COUNT];
    if constexpr (HELD) {
        // before anything else is read, and what comes later asked for
        load_chunk<W, AHEAD ? READ_ONCE : READ_FIRST>(held, at, 0);
        if constexpr (AHEAD) {
            prefetch_row(p, at);
        }
    }
    values of;
    of.head = variant::make_head(p.in, p.z);
    variant::begin(of.vals, p.in, p.z, of.head, row);

    repeat<0, variant::PASSES>([&]<int P>() {
        float red[SLOTS] = {};
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                red[R] = red_identity<variant::REDUCE_OP[R]>();
            }
        });
        if constexpr (HELD) {
            forget<W>(held);
            reduce_chunk<P, W>(red, held, p, of, at, 0);
        } else {
#pragma unroll 1
            for (int base = 0; ONE_CHUNK ? base == 0 : base < at.n; base += CHUNK) {
                load_chunk<W, ONE_CHUNK ? READ_FIRST : READ_AGAIN>(held, at, base);
                reduce_chunk<P, W>(red, held, p, of, at, base);
            }
        }
        reduce_team<P>(red, shared);
        variant::update<P>(of.vals, red, p.in, p.z, of.head);
    });

#pragma unroll 1
    for (int base = 0; ONE_CHUNK ? base == 0 : base < at.n; base += CHUNK) {
        if constexpr (!HELD) {
            load_chunk<W, ONE_CHUNK ? READ_LAST : READ_AGAIN>(held, at, base);
        }
        forget<W>(held);
        const int first = first_of<W>(base);
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const int i = first + v * TEAM * W;
            float x[W];
            unpack_x<W>(held[v], x);
            variant::col c[W] = {};
            make_columns<W>(p, of, at, i, c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                x[j] = variant::output(x[j], i + j, p.in, p.z, of.head, c[j], of.vals);
            }
            if (is_in_row(at, i)) {
                store_y<W>(at.y + i, x);
            }
        }
    }
    if constexpr (variant::STATS > 0) {
        if (lane_in_team() == 0 && at.n > 0) {
            const int row1 = row / p.z.rows;
            variant::store_stats(p, row1 / p.z.rows1, row1 % p.z.rows1, row % p.z.rows, of.vals);
        }
    }
}

} // namespace rowwise

#if LATHE_COMPILED(rowwise)
extern "C" __global__ void __launch_bounds__(cfg::THREADS, rowwise::MIN_BLOCKS)
    LATHE_ENTRY(rowwise)(const __grid_constant__ rowwise_params p)
{
    using namespace rowwise;
    __shared__ scratch shared;
    const row_sizes &z = p.z;
    const int total = z.rows0 * z.rows1 * z.rows;
    const int asked = WHOLE_BLOCK
                          ? static_cast<int>(blockIdx.x)
                          : static_cast<int>(blockIdx.x) * cfg::ROWS_PER_BLOCK + static_cast<int>(threadIdx.x) / TEAM;
    if (static_cast<i64>(blockIdx.x) * cfg::ROWS_PER_BLOCK >= total) { // `asked` may have gone past 2^31 there
        return;
    }
    const int row = WHOLE_BLOCK ? asked : min(asked, total - 1);

    place at;
    at.row2 = row;
    i64 x = 0; // of the outer dims, where there are any: nothing is loaded before it is known where
    i64 y = 0;
    if (z.rows != total) {
        const int outer = row / z.rows;
        const int row0 = outer / z.rows1;
        const int row1 = outer - row0 * z.rows1;
        at.row2 = row - outer * z.rows;
        x = row0 * p.x_0 + row1 * p.x_1;
        y = row0 * p.y_0 + row1 * p.y_1;
    }
    at.x = static_cast<const element *>(p.x) + (x + at.row2 * p.x_2);
    at.y = static_cast<element *>(p.y) + (y + at.row2 * p.y_2);
    at.n = asked < total ? z.n : 0; // threads without a row still take part in the shuffles
    run<cfg::ALIGNED ? V : 1>(p, at, row, shared);
}
#endif
