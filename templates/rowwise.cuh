// rowwise.cuh: kernel: every row of x [rows0, rows1, rows, n] is reduced in passes and mapped to a row of y.
//
// Launch: rows0 * rows1 * ceil(rows / ROWS_PER_BLOCK) blocks of THREADS threads; no shared memory to ask for. Nothing to do
// for n == 0 or no rows. Blocks take rows by their flat number, so a few of them may find none left.
//
// ROWS_PER_BLOCK == 1: a block per row. > 1: THREADS / ROWS_PER_BLOCK threads per row, a power of two up to a warp.
// PER_THREAD > 0: x is read once and stays in registers as it was loaded; n may be at most (threads per row) * PER_THREAD.
// PER_THREAD == 0: any n, and every pass reads the row again, mostly from L2.
//
// Two bodies: plain, where n and every row start fit vectors of VECTOR elements; ragged, otherwise: vectors are laid on the
// aligned addresses of x, those that stick out at either end of the row go element by element, and every pass reads the
// row again, from L1 and L2. So any n, any strides are right with any configuration that has the room.
//
// What to choose (v = elements of 16 bytes; the rule as code is rowwise_shape below):
//
//       n, 16-bit    n, 32-bit    THREADS   ROWS_PER_BLOCK    VECTOR   PER_THREAD
//       <= 8         <= 4         128       128               v        v
//       <= 16        <= 8         128       64                v        v
//       ...          ...          128       128 / threads     v        v             threads: the power of two >= n / v
//       <= 256       <= 128       128       4                 v        v
//       <= 1024      <= 512       128       4                 v        multiple of v
//       <= 65528     <= 32764     64..1024  1                 v        4 v where that gives 64 to 512 threads, else more
//       beyond       beyond       512       1                 v        0
#include "slots.cuh"

namespace rowwise {

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
static_assert(cfg::VECTOR * sizeof(element) == 4 || cfg::VECTOR * sizeof(element) == 8 || cfg::VECTOR * sizeof(element) == 16,
              "cfg::VECTOR elements are 4, 8 or 16 bytes");
static_assert(cfg::PER_THREAD >= 0 && cfg::PER_THREAD % cfg::VECTOR == 0,
              "cfg::PER_THREAD is 0 or a multiple of cfg::VECTOR");

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
constexpr int REGISTERS = max_of(variant::COLS ? 64 : 48, 32 + 2 * ROW_WORDS);
constexpr int MIN_BLOCKS = max_of(1, min_of(65536 / (cfg::THREADS * REGISTERS), 2048 / cfg::THREADS));
constexpr int PARTS = max_of(WARPS, 4);

static_assert(WHOLE_BLOCK || (TEAM <= 32 && (TEAM & (TEAM - 1)) == 0),
              "with several rows per block, a row belongs to 1, 2, 4, 8, 16 or 32 threads");

using packed = words<BYTES>;

struct place { // where the row of this thread lies
    const element *x;
    element *y;
    int n;     // 0 for a thread without a row
    int shift; // elements between the vector grid's first place and the row's: 0 where plain
    bool x_aligned, y_aligned; // on that grid
};

template <int I, int N, class F> DEV void repeat(const F &f) // f.operator()<I> .. <N - 1>
{
    if constexpr (I < N) {
        f.template operator()<I>();
        repeat<I + 1, N>(f);
    }
}

// ---- memory: x, where it is read once, goes past L1, which so keeps the columns' inputs; y is not read again -----------------------------

template <bool ONCE> DEV packed load_x(const element *p)
{
    if constexpr (!ONCE) {
        return load_words<BYTES, true>(p);
    }
    packed w;
    if constexpr (BYTES == 16) {
        asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w.word[0]), "=r"(w.word[1]), "=r"(w.word[2]), "=r"(w.word[3]) : "l"(p));
    } else if constexpr (BYTES == 8) {
        asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(w.word[0]), "=r"(w.word[1]) : "l"(p));
    } else {
        asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(w.word[0]) : "l"(p));
    }
    return w;
}

DEV void store_y(element *p, const packed &w)
{
    if constexpr (BYTES == 16) {
        __stcs(reinterpret_cast<uint4 *>(p), make_uint4(w.word[0], w.word[1], w.word[2], w.word[3]));
    } else if constexpr (BYTES == 8) {
        __stcs(reinterpret_cast<uint2 *>(p), make_uint2(w.word[0], w.word[1]));
    } else {
        __stcs(reinterpret_cast<u32 *>(p), w.word[0]);
    }
}

DEV void unpack_vector(const packed &w, float (&x)[V])
{
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++) {
        if constexpr (sizeof(element) == 4) {
            x[i] = __uint_as_float(w.word[i]);
        } else {
            unpack<element>(w.word[i], x[2 * i], x[2 * i + 1]);
        }
    }
}

DEV packed pack_vector(const float (&x)[V])
{
    packed w;
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++) {
        if constexpr (sizeof(element) == 4) {
            w.word[i] = __float_as_uint(x[i]);
        } else {
            w.word[i] = pack<element>(x[2 * i], x[2 * i + 1]);
        }
    }
    return w;
}

// Unsigned: a place before the row's start (ragged) is outside too.
DEV bool inside(const place &at, int i) { return static_cast<u32>(i) < static_cast<u32>(at.n); }

// The elements of a ragged vector that are in the row, as bits.
constexpr u32 ALL = (1u << V) - 1u;
DEV u32 live_bits(const place &at, int i)
{
    const int low = m_clamp(-i, 0, V);
    const int high = m_clamp(at.n - i, 0, V);
    return ((1u << high) - 1u) & ~((1u << low) - 1u);
}

// Makes the compiler forget what it knows of a register: what it derived from it in one pass (the unpacked floats) is then
// derived again in the next one, and not held in registers in between.
DEV void forget(u32 &word) { asm volatile("" : "+r"(word)); }
DEV void forget(int &word) { asm volatile("" : "+r"(word)); }

template <int COUNT> DEV void forget(packed (&held)[COUNT])
{
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
#pragma unroll
        for (int i = 0; i < BYTES / 4; i++) {
            forget(held[v].word[i]);
        }
    }
}

// First element of this thread in the chunk at `base`; its next vectors follow at distances of STRIDE. Signed, so that
// their addresses are known to be constants apart: a pair of registers for all of them.
constexpr int STRIDE = TEAM * V;
template <bool RAGGED> DEV int first_of(const place &at, int base)
{
    const int thread = WHOLE_BLOCK ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) % TEAM;
    int i = base + thread * V - at.shift;
    if constexpr (RAGGED) {
        forget(i); // else every single element gets a pointer and a test of its own that run along with `base`
    }
    return i;
}

template <bool RAGGED, bool ONCE, int COUNT> DEV void load_chunk(packed (&held)[COUNT], const place &at, int base)
{
    const int first = first_of<RAGGED>(at, base);
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
        const int i = first + v * STRIDE;
        held[v] = packed{};
        if constexpr (!RAGGED) {
            if (inside(at, i)) {
                held[v] = load_x<ONCE>(at.x + i);
            }
        } else {
            const u32 live = live_bits(at, i);
            if (at.x_aligned && live == ALL) {
                held[v] = load_x<ONCE>(at.x + i);
            } else {
                float x[V];
#pragma unroll
                for (int j = 0; j < V; j++) {
                    x[j] = live >> j & 1u ? m_load(at.x, i + j) : 0.0f;
                }
                held[v] = pack_vector(x); // exact: the floats are elements
            }
        }
    }
}

template <bool RAGGED> DEV void store_vector(const place &at, int i, const float (&y)[V])
{
    if constexpr (!RAGGED) {
        if (inside(at, i)) {
            store_y(at.y + i, pack_vector(y));
        }
    } else {
        const u32 live = live_bits(at, i);
        if (at.y_aligned && live == ALL) {
            store_y(at.y + i, pack_vector(y));
        } else {
#pragma unroll
            for (int j = 0; j < V; j++) {
                if (live >> j & 1u) {
                    at.y[i + j] = from_float<element>(y[j]);
                }
            }
        }
    }
}

// ---- the variant over the row ----------------------------------------------------------------------------------

struct values { // of the row, in every one of its threads
    variant::head head;
    variant::vals vals;
};

template <bool RAGGED>
DEV void make_columns(const rowwise_params &p, const values &of, const place &at, int i, variant::col (&c)[V])
{
    if constexpr (variant::COLS && !RAGGED) {
        if (inside(at, i)) {
            variant::make_cols<V>(p.in, p.z, of.head, i, c);
        }
    } else if constexpr (variant::COLS) {
#pragma unroll
        for (int j = 0; j < V; j++) { // the grid of x is not the grid of the columns
            variant::col one[1];
            variant::make_cols<1>(p.in, p.z, of.head, m_clamp_index(i + j, at.n), one);
            c[j] = one[0];
        }
    }
}

// What one chunk adds to the reductions of pass P: a tree inside a vector, so that sums are short and independent.
template <int P, bool RAGGED, int COUNT>
DEV void reduce_chunk(float (&red)[SLOTS], const packed (&held)[COUNT], const rowwise_params &p, const values &of,
                      const place &at, int base)
{
    const int first = first_of<RAGGED>(at, base);
#pragma unroll
    for (int v = 0; v < COUNT; v++) {
        const int i = first + v * STRIDE;
        float x[V];
        unpack_vector(held[v], x);
        variant::col c[V] = {};
        make_columns<RAGGED>(p, of, at, i, c);
        const u32 live = RAGGED ? live_bits(at, i) : ALL;
        repeat<0, variant::REDUCTIONS>([&]<int R>() {
            if constexpr (variant::REDUCE_PASS[R] == P) {
                constexpr int OP = variant::REDUCE_OP[R];
                float term[V];
#pragma unroll
                for (int j = 0; j < V; j++) {
                    term[j] = variant::operand<R>(x[j], i + j, p.in, p.z, of.head, c[j], of.vals);
                    if constexpr (RAGGED) {
                        term[j] = live >> j & 1u ? term[j] : red_identity<OP>();
                    }
                }
#pragma unroll
                for (int step = 1; step < V; step *= 2) {
#pragma unroll
                    for (int j = 0; j + step < V; j += 2 * step) {
                        term[j] = red_combine<OP>(term[j], term[j + step]);
                    }
                }
                red[R] = RAGGED || inside(at, i) ? red_combine<OP>(red[R], term[0]) : red[R];
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

template <bool RAGGED>
DEV void run(const rowwise_params &p, const place &at, int row, scratch &shared)
{
    constexpr bool HELD = IN_REGISTERS && !RAGGED;
    constexpr int COUNT = RAGGED ? 2 : VECTORS;
    constexpr int CHUNK = COUNT * STRIDE; // elements that the team works on at once
    packed held[COUNT];
    const int end = at.n + at.shift; // no overflow: n is less than 2^31 - 2^17
    if constexpr (HELD) {
        load_chunk<RAGGED, HELD>(held, at, 0); // before anything else is read
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
            forget(held);
            reduce_chunk<P, RAGGED>(red, held, p, of, at, 0);
        } else {
#pragma unroll 1
            for (int base = 0; base < end; base += CHUNK) {
                load_chunk<RAGGED, HELD>(held, at, base);
                reduce_chunk<P, RAGGED>(red, held, p, of, at, base);
            }
        }
        reduce_team<P>(red, shared);
        variant::update<P>(of.vals, red, p.in, p.z, of.head);
    });

#pragma unroll 1
    for (int base = 0; HELD ? base == 0 : base < end; base += CHUNK) {
        if constexpr (!HELD) {
            load_chunk<RAGGED, HELD>(held, at, base);
        }
        forget(held);
        const int first = first_of<RAGGED>(at, base);
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const int i = first + v * STRIDE;
            float x[V];
            unpack_vector(held[v], x);
            variant::col c[V] = {};
            make_columns<RAGGED>(p, of, at, i, c);
#pragma unroll
            for (int j = 0; j < V; j++) {
                x[j] = variant::output(x[j], i + j, p.in, p.z, of.head, c[j], of.vals);
            }
            store_vector<RAGGED>(at, i, x);
        }
    }
    if constexpr (variant::STATS > 0) {
        if (static_cast<int>(threadIdx.x) % TEAM == 0 && at.n > 0) {
            const int row1 = row / p.z.rows;
            variant::store_stats(p, row1 / p.z.rows1, row1 % p.z.rows1, row % p.z.rows, of.vals);
        }
    }
}

} // namespace rowwise

extern "C" __global__ void __launch_bounds__(cfg::THREADS, rowwise::MIN_BLOCKS)
    LATHE_ENTRY(rowwise)(const __grid_constant__ rowwise_params p)
{
    using namespace rowwise;
    __shared__ scratch shared;
    const row_sizes &z = p.z;
    const int total = z.rows0 * z.rows1 * z.rows;
    const int asked = WHOLE_BLOCK ? static_cast<int>(blockIdx.x)
                                  : static_cast<int>(blockIdx.x) * cfg::ROWS_PER_BLOCK + static_cast<int>(threadIdx.x) / TEAM;
    if (static_cast<int>(blockIdx.x) * cfg::ROWS_PER_BLOCK >= total) {
        return;
    }
    const int row = min(asked, total - 1);

    int row0 = 0;
    int row1 = 0;
    int row2 = row;
    if (z.rows != total) {
        const int outer = row / z.rows;
        row2 = row - outer * z.rows;
        row0 = outer / z.rows1;
        row1 = outer - row0 * z.rows1;
    }
    place at;
    at.x = static_cast<const element *>(p.x) + (row0 * p.x_0 + row1 * p.x_1 + row2 * p.x_2);
    at.y = static_cast<element *>(p.y) + (row0 * p.y_0 + row1 * p.y_1 + row2 * p.y_2);
    at.n = asked < total ? z.n : 0; // threads without a row still take part in the shuffles
    at.shift = 0;
    at.x_aligned = true;
    at.y_aligned = true;

    // The same answer in every thread of the grid: shuffles may not diverge.
    const u64 starts = reinterpret_cast<u64>(p.x) | reinterpret_cast<u64>(p.y) |
                       static_cast<u64>(p.x_0 | p.x_1 | p.x_2 | p.y_0 | p.y_1 | p.y_2) * sizeof(element);
    if (starts % BYTES == 0 && z.n % V == 0) {
        run<false>(p, at, row, shared);
    } else {
        at.shift = static_cast<int>(reinterpret_cast<u64>(at.x) % BYTES / sizeof(element));
        at.x_aligned = is_aligned<BYTES>(at.x - at.shift);
        at.y_aligned = is_aligned<BYTES>(at.y - at.shift);
        run<true>(p, at, row, shared);
    }
}
