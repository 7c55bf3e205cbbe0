// attention/decode_narrow.cuh: attention/decode.cuh where k or v has 8 bits in memory (cfg::source_k, source_v): its
// warps bring tiles as they lie there, half the bytes, and numbers become operands on the way from shared memory to the
// tensor cores (attention/narrow_words.cuh). Where cfg::BM is 8 of each warp, a warp has 8 rows and not 16
// (attention/narrow_rows.cuh). All else is as there: rows, parts of keys, the end of a part, `merge`.
//
// Launch: as there.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"
#include "attention/narrow_rows.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(parts_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not say how parts of a row are merged");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(IS_NARROW<cfg::source_k> || IS_NARROW<cfg::source_v>, "k or v has 8 bits");
static_assert(cfg::D % 16 == 0 && cfg::D_V % 16 == 0 && cfg::D_PAD == cfg::D && cfg::DV_PAD == cfg::D_V,
              "rows are whole steps of mma.sync");
static_assert((!IS_NARROW<cfg::source_k> || cfg::D % 32 == 0) && (!IS_NARROW<cfg::source_v> || cfg::D_V % 32 == 0),
              "rows of 8 bits are whole steps of ldmatrix");
static_assert(cfg::DV_PAD <= 256, "16 rows of o need DV_PAD / 2 registers of each thread");
static_assert(cfg::WARPS == 2 || cfg::WARPS == 4 || cfg::WARPS == 8, "cfg::WARPS is 2, 4 or 8");
static_assert(cfg::BN == 16 || cfg::BN == 32, "a tile has 16 keys, the depth of P V, or 32, a lane's each");
static_assert(cfg::STAGES >= 2 && cfg::STAGES <= 8, "cfg::STAGES is 2 .. 8");
static_assert(!variant::MAP, "tiles are judged by the blocks that meet them");

namespace decode
{

constexpr bool NARROW_K = IS_NARROW<cfg::source_k>;
constexpr bool NARROW_V = IS_NARROW<cfg::source_v>;
constexpr bool LIFTED = same_type<cfg::operand, bf16>; // where products are of f16
constexpr bool EIGHT = cfg::BM == 8 * cfg::WARPS;

template <bool> struct operands_of {
    using type = sixteen_rows<cfg::source_k, cfg::source_v, cfg::operand, cfg::BN, cfg::D_PAD, cfg::DV_PAD>;
};
template <> struct operands_of<true> {
    using type = eight_rows<cfg::source_k, cfg::source_v, cfg::BN, cfg::D_PAD, cfg::DV_PAD>;
};
using operands = operands_of<EIGHT>::type;
using fragment = operands::fragment;
constexpr int NB = operands::BLOCKS;
constexpr int DB = operands::O_BLOCKS;
constexpr int O_COLUMNS = fragment::BLOCK * DB; // of a thread

// ---- shared memory -----------------------------------------------------------------------------------

// Rows of a tile, in pairs of bytes: what is copied is copied as elements of 16 bits.
constexpr int K_PAIRS = operands::K_PAIRS;
constexpr int V_PAIRS = operands::V_PAIRS;

struct layout { // offsets in bytes; o of the warps takes the place of the ring
    static constexpr int K_BYTES = cfg::BN * K_PAIRS * 2;
    static constexpr int STAGE_BYTES = K_BYTES + cfg::BN * V_PAIRS * 2;
    static constexpr int WARP_BYTES = cfg::STAGES * STAGE_BYTES;
    static constexpr int O_ROW = cfg::DV_PAD + 8; // floats: rows begin in different banks
    static constexpr int CODES = max_of(cfg::WARPS * WARP_BYTES, cfg::WARPS *operands::ROWS *O_ROW * 4);
    static constexpr int RECORDS = CODES + cfg::WARPS * cfg::STAGES * 4;
    static constexpr int BYTES = RECORDS + operands::ROWS * cfg::WARPS * RECORD * 4;

    DEV u32 stage(u32 shared, int warp, int number)
    {
        return shared + static_cast<u32>(warp * WARP_BYTES + number * STAGE_BYTES);
    }
    DEV u32 code(u32 shared, int warp, int number) // of each warp's stages: which tile lies there
    {
        return shared + static_cast<u32>(CODES + (warp * cfg::STAGES + number) * 4);
    }
    DEV u32 record(u32 shared, int row, int warp)
    {
        return shared + static_cast<u32>(RECORDS + (row * cfg::WARPS + warp) * RECORD * 4);
    }
    DEV u32 o(u32 shared, int warp, int row, int column)
    {
        return shared + static_cast<u32>(((warp * operands::ROWS + row) * O_ROW + column) * 4);
    }
};

// Blocks of a multiprocessor are the planner's choice, which cuts keys for as many: of 16 rows three leave 168
// registers to a thread, and are faster than two but where elements read inputs by key, which then spill.
static_assert(cfg::BLOCKS >= 1 && cfg::BLOCKS <= 4, "cfg::BLOCKS is 1, 2, 3 or 4");
static_assert(cfg::BLOCKS == 1 || cfg::BLOCKS * (layout::BYTES + 1024) <= 233472, "a multiprocessor has room for them");

// ---- what elements read by key -------------------------------------------------------------------------

// Inputs by key, as scales are. L1 returns loads in order, so one that is issued behind the copies of a later tile
// waits for these. So inputs are loaded ahead of the copies, and hit in L1, since each lane has prefetched those of one
// key an iteration before.
struct column_words {
    static constexpr int WORDS = sizeof(variant::col) / 4;
    union {
        variant::col col;
        u32 words[WORDS];
    };

    __device__ __forceinline__ void load(const inputs &x, const sizes &z, const variant::head &head, int kv)
    {
        col = variant::make_col(x, z, head, kv);
        static_assert(sizeof col == sizeof words, "words of 32 bits");
        hold();
    }
    __device__ __forceinline__ void hold() // the compiler may not load it later
    {
#pragma unroll
        for (int i = 0; i < WORDS; i++) {
            keep(words[i]);
        }
    }
};
constexpr bool LOADS_COLUMNS = column_words::WORDS > 1; // beside the key's number

// The columns of a thread, of each of its rows: of several heads.
struct tile_columns {
    column_words of[fragment::ROWS][fragment::BLOCK * NB];
    int kv0; // the thread's first one
};

// The variant with a head in each row (packed), whose columns are in registers.
struct preloaded : packed {
    struct head : packed::head {
        const tile_columns &columns;
    };
    struct row : packed::row {
        int number; // of the thread's
    };
    static __device__ __forceinline__ variant::col col_of(const inputs &x, const sizes &z, const head &h, const row &r,
                                                          const col &c)
    {
        if constexpr (LOADS_COLUMNS) {
            column_words found = h.columns.of[r.number][0];
#pragma unroll
            for (int i = 1; i < fragment::BLOCK * NB; i++) { // an index that is computed is not always seen through
                found = c.kv == h.columns.kv0 + fragment::column(i) ? h.columns.of[r.number][i] : found;
            }
            return found.col;
        } else {
            return variant::make_col(x, z, r.head, c.kv);
        }
    }
    template <int P> static __device__ __forceinline__ float
    element(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float, const tile &t)
    {
        return variant::template element<P>(e, x, z, r.head, r.at, col_of(x, z, h, r, c), diagonal<P>(x, z, r, c), t);
    }
    template <int R> static __device__ __forceinline__ float
    operand(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float, const tile &t)
    {
        return variant::template operand<R>(e, x, z, r.head, r.at, col_of(x, z, h, r, c),
                                            diagonal<variant::REDUCE_PASS[R]>(x, z, r, c), t);
    }
};

// ---- one warp ----------------------------------------------------------------------------------------

struct warp_rows {
    thread_rows<1, preloaded, fragment> rows;
    float o[1][DB][4];
    operands of;
    float q_lift[fragment::ROWS], lift[fragment::ROWS]; // of rows of Q, and of weights and so of o
};

// The thread's r'th row of Q becomes f16, lifted. Its lanes are four.
DEV float lift_row(operands &of, int r)
{
    float most = 0.0f;
#pragma unroll
    for (int k = 0; k < 2 * operands::Q_STEPS; k++) {
        float low;
        float high;
        unpack<bf16>(of.pair(k / 2, k % 2, r), low, high);
        most = fmaxf(most, fmaxf(fabsf(low), fabsf(high)));
    }
    const float lift = lift_of<15>(lanes_max<4>(most));
#pragma unroll
    for (int k = 0; k < 2 * operands::Q_STEPS; k++) {
        u32 &pair = of.pair(k / 2, k % 2, r);
        float low;
        float high;
        unpack<bf16>(pair, low, high);
        pair = pack<f16>(low * lift, high * lift);
    }
    return lift;
}

// Weights as f16 has room for them. Seldom are some too large: then their rows, and o, are lifted less.
DEV void lift_weights(warp_rows &own, float (&s)[1][NB][4])
{
    constexpr float MOST = 32768.0f;
    float most[fragment::ROWS];
    bool fits = true;
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        most[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < fragment::BLOCK * NB; c++) {
            most[r] = fmaxf(most[r], fabsf(fragment::at(s, r, c)));
        }
        fits = fits && !(most[r] * own.lift[r] > MOST);
    }
    if (__any_sync(ALL_LANES, !fits)) {
#pragma unroll
        for (int r = 0; r < fragment::ROWS; r++) {
            const float of_row = fragment::reduce<RED_MAX>(most[r]);
            const float lift = of_row * own.lift[r] > MOST ? lift_of<14>(of_row) : own.lift[r];
            const float less = lift * inverse_of(own.lift[r]);
            own.lift[r] = lift;
#pragma unroll
            for (int c = 0; c < O_COLUMNS; c++) {
                fragment::at(own.o, r, c) *= less;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
#pragma unroll
        for (int c = 0; c < fragment::BLOCK * NB; c++) {
            fragment::at(s, r, c) *= own.lift[r];
        }
    }
}

// The compiler does not see that rows of a tile have one key head: so inputs by key would be loaded for each.
DEV variant::head with_key_head(variant::head head, const work &w)
{
    if constexpr (requires { head.h_kv; }) {
        head.h_kv = w.h_kv;
    }
    return head;
}

// first: the warp's first row.
DEV void load_queries(warp_rows &own, const attention_params &p, const work &w, int first)
{
    float lift[operands::Q_ROWS];
#pragma unroll
    for (int r = 0; r < operands::Q_ROWS; r++) {
        const int i = first + operands::q_row(lane_id(), r);
        const int row = i < w.rows ? i : 0;
        const cfg::element_q *from =
            static_cast<const cfg::element_q *>(p.q) + w.b * p.q_b + w.head(row) * p.q_h + w.token(row) * p.q_t;
#pragma unroll
        for (int k = 0; k < 2 * operands::Q_STEPS; k++) {
            const u32 pair = *reinterpret_cast<const u32 *>(from + operands::q_columns(k / 2, k % 2));
            own.of.pair(k / 2, k % 2, r) = i < w.rows ? pair : 0u;
        }
        lift[r] = 1.0f;
        if constexpr (LIFTED && NARROW_K) {
            lift[r] = lift_row(own.of, r);
        }
    }
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        own.q_lift[r] = operands::of_score_row(lift, r);
    }
}

DEV void begin_rows(warp_rows &own, const attention_params &p, const work &w, int first)
{
    load_queries(own, p, w, first);
    own.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        own.lift[r] = LIFTED && NARROW_V ? 0x1p100f : 1.0f; // the first weights say how much less
        own.rows.row[r] = {w.row(p.x, p.z, first + fragment::first_row(lane_id()) + fragment::row(r)), r};
        own.rows.row[r].head = with_key_head(own.rows.row[r].head, w);
        own.rows.state[r] = variant::init(fragment::leads(lane_id()));
    }
#pragma unroll
    for (int i = 0; i < DB * 4; i++) {
        own.o[0][i / 4][i % 4] = 0.0f;
    }
}

// o *= scale, row by row, unless all rows of the warp keep theirs.
DEV void rescale_rows(float (&o)[1][DB][4], const float (&scale)[fragment::ROWS])
{
    bool needed = false;
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        needed = needed | (scale[r] != 1.0f);
    }
    if (__any_sync(ALL_LANES, needed)) {
#pragma unroll
        for (int r = 0; r < fragment::ROWS; r++) {
#pragma unroll
            for (int c = 0; c < O_COLUMNS; c++) {
                fragment::at(o, r, c) *= scale[r];
            }
        }
    }
}

// Those of a tile, as a cursor gave it.
DEV void load_columns(tile_columns &to, const warp_rows &own, const attention_params &p, int code)
{
    to.kv0 = tile_cursor::number(code) * cfg::BN + fragment::first_column(lane_id());
    if constexpr (LOADS_COLUMNS) {
#pragma unroll
        for (int r = 0; r < fragment::ROWS; r++) {
#pragma unroll
            for (int c = 0; c < fragment::BLOCK * NB; c++) {
                to.of[r][c].load(p.x, p.z, own.rows.row[r].head, to.kv0 + fragment::column(c));
            }
        }
    }
}

// The tile at `stage`, as a cursor gave it.
DEV void meet_tile(warp_rows &own, const attention_params &p, const tile_columns &columns, u32 stage, int code)
{
    const preloaded::head of_all{{}, columns};
    const at_head_of<preloaded> a{p.x, p.z, of_all};
    float s[1][NB][4];
    own.of.multiply_qk(s, stage);
    if constexpr (LIFTED && NARROW_K) {
#pragma unroll
        for (int r = 0; r < fragment::ROWS; r++) {
#pragma unroll
            for (int c = 0; c < fragment::BLOCK * NB; c++) {
                fragment::at(s, r, c) *= inverse_of(own.q_lift[r]);
            }
        }
    }
    float scale[fragment::ROWS];
    if (tile_cursor::class_of(code) == TILE_ALL) {
        score_tile<true, 1, NB, preloaded, false, true, preloaded, fragment> scores{s, own.rows, a, columns.kv0, 0u};
        scores.run(scale);
    } else {
        score_tile<false, 1, NB, preloaded, false, true, preloaded, fragment> scores{
            s, own.rows, a, columns.kv0, 0u, false, tile_cursor::class_of(code) == TILE_CUT};
        scores.run(scale);
    }
    if constexpr (variant::RESCALE) {
        rescale_rows(own.o, scale);
    }
    if constexpr (LIFTED && NARROW_V) {
        lift_weights(own, s);
    }
    operands::add_pv(own.o, s, stage + layout::K_BYTES);
}

// Rows of one tensor, of which strides are in elements of T, as warp_loader of attention/key_rows.cuh brings them.
// Where a lane's bytes lie is found anew for each tile, since registers are dear from tile to tile.
template <class T, int DIM, int PAIRS>
DEV void bring_rows(u32 to, const void *head, i64 of_page, i64 of_row, const page_place &first, int left)
{
    constexpr bool PAGED = HAS_PAGES<attention_params>;
    using shape = swizzle<PAIRS>;
    constexpr int BYTES = IS_NARROW<T> ? 1 : 2;
    constexpr int ACROSS = shape::CHUNKS % 16 == 0 ? 16 : shape::W; // lanes of a row
    constexpr int STEP = 32 / ACROSS;                               // rows at a time
    static_assert(cfg::BN % STEP == 0, "whole steps of rows");
    const u32 lane = fresh_thread() % 32;
    const int chunk = static_cast<int>(lane % ACROSS);
    const int row = static_cast<int>(lane / ACROSS);
    const char *at = static_cast<const char *>(head) + chunk * 16;
    const char *source = at + (first.page * of_page + (first.row + row) * of_row) * BYTES;
#pragma unroll
    for (int i = 0; i < cfg::BN / STEP; i++) {
        const int own = row + i * STEP;
        if constexpr (PAGED) {
            const i64 page = __shfl_sync(ALL_LANES, first.page, own);
            source = at + (page * of_page + __shfl_sync(ALL_LANES, first.row, own) * of_row) * BYTES;
        }
#pragma unroll
        for (int c = 0; c < shape::CHUNKS; c += ACROSS) {
            copy16_async(to + shape::offset(operands::place(own), chunk + c), source + c * 16, own < left ? 16 : 0);
        }
        if constexpr (!PAGED) {
            source += STEP * of_row * BYTES;
            keep(source);
        }
    }
}

// Keys on their way to one warp, in the order of its cursor.
struct stream {
    warp_cursor cursor;
    int code;         // of the tile that comes next
    page_place place; // and where it is
    column_words prefetched;

    __device__ __forceinline__ void look_ahead(const attention_params &p, const work &w)
    {
        code = cursor.next(p, w);
        if (code >= 0) {
            const int kv0 = tile_cursor::number(code) * cfg::BN;
            place = find_page(p, w.b, kv0 + (HAS_PAGES<attention_params> ? lane_id() % cfg::BN : 0));
            if constexpr (LOADS_COLUMNS) {
                prefetched.load(p.x, p.z, with_key_head(variant::make_head(p.x, p.z, w.b, w.h_kv * w.group), w),
                                kv0 + lane_id() % cfg::BN);
            }
        }
    }
    __device__ __forceinline__ void bring_next(const attention_params &p, const work &w, u32 shared, int stage)
    {
        const int warp = static_cast<int>(threadIdx.x / 32);
        const u32 to = layout::stage(shared, warp, stage);
        const int own = code;
        const page_place from = place;
        look_ahead(p, w); // L1 returns in order: behind the copies below, what this loads would wait for them
        if (lane_id() == 0) {
            store_shared(layout::code(shared, warp, stage), static_cast<u32>(own));
        }
        if (own >= 0) {
            const int left = p.z.len_kv - tile_cursor::number(own) * cfg::BN;
            bring_rows<cfg::source_k, cfg::D, K_PAIRS>(to, static_cast<const cfg::source_k *>(p.k) + w.h_kv * p.k_h,
                                                       p.k_b, p.k_t, from, left);
            bring_rows<cfg::source_v, cfg::D_V, V_PAIRS>(to + layout::K_BYTES,
                                                         static_cast<const cfg::source_v *>(p.v) + w.h_kv * p.v_h,
                                                         p.v_b, p.v_t, from, left);
        }
        copy_commit();
    }
};

// Which tile lies there, as a cursor gave it.
DEV int tile_at(u32 shared, int warp, int stage)
{
    return static_cast<int>(__float_as_uint(load_shared(layout::code(shared, warp, stage))));
}

// ---- the end of a part -------------------------------------------------------------------------------

struct sum_of_row {
    __device__ __forceinline__ float operator()(float x) const { return fragment::reduce<RED_SUM>(x); }
};

// The parts of a row, one for each warp, in shared memory.
struct shared_parts {
    u32 shared;
    int row;
    template <class F> __device__ __forceinline__ void operator()(const F &f) const
    {
#pragma unroll
        for (int warp = 0; warp < cfg::WARPS; warp++) {
            float record[RECORD];
#pragma unroll
            for (int k = 0; k < RECORD; k++) {
                record[k] = load_shared(layout::record(shared, row, warp) + static_cast<u32>(k * 4));
            }
            if (record[variant::STATES] != 0.0f) {
                f(merge::read(record));
            }
        }
    }
};

// Each warp has rows of its own. first: the warp's first one.
DEV void end_wide(const warp_rows &own, const attention_params &p, const work &w, int first)
{
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        const int i = first + fragment::first_row(lane_id()) + fragment::row(r);
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        const float lower = inverse_of(own.lift[r]);
        if (i >= w.rows) {
            continue;
        }
        if (fragment::leads(lane_id())) {
            write_record(record_of(p, w, i), own.rows.state[r], seen);
        }
#pragma unroll
        for (int c = 0; c < O_COLUMNS; c++) {
            o_of(p, w, i)[operands::o_columns(c)] = seen ? fragment::at(own.o, r, c) * lower : 0.0f;
        }
    }
}

// The thread's row states, to where shared_parts finds them.
DEV void share_records(const warp_rows &own, u32 shared)
{
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        const int row = fragment::first_row(lane_id()) + fragment::row(r);
        float record[RECORD];
        write_record(record, own.rows.state[r], (own.rows.seen >> r & 1u) != 0);
#pragma unroll
        for (int k = 0; k < RECORD && fragment::leads(lane_id()); k++) {
            store_shared(layout::record(shared, row, static_cast<int>(threadIdx.x / 32)) + static_cast<u32>(k * 4),
                         record[k]);
        }
    }
}

// The thread's o of its r'th row, times what it counts among all warps, to where the ring was.
DEV void share_o(const warp_rows &own, const attention_params &p, const work &w, u32 shared, int r)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int i = fragment::first_row(lane_id()) + fragment::row(r);
    bool any = false;
    merge t;
    const shared_parts parts{shared, i};
    parts([&](const variant::state &) { any = true; });
    merge_states<no_share>(t, parts, p.x, p.z);
    if (warp == 0 && fragment::leads(lane_id()) && i < w.rows) {
        write_record(record_of(p, w, i), merge::merged(t, p.x, p.z), any);
    }
    const float factor = merge::factor(own.rows.state[r], t, p.x, p.z);
    const float lower = inverse_of(own.lift[r]);
    const bool seen = (own.rows.seen >> r & 1u) != 0;
#pragma unroll
    for (int c = 0; c < O_COLUMNS; c++) {
        store_shared(layout::o(shared, warp, i, operands::o_columns(c)),
                     seen ? fragment::at(own.o, r, c) * lower * factor : 0.0f);
    }
}

// All warps have the same rows, of keys of their own.
DEV void end_narrow(const warp_rows &own, const attention_params &p, const work &w, u32 shared)
{
    __syncthreads(); // no one reads the ring
    share_records(own, shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        share_o(own, p, w, shared, r);
    }
    __syncthreads();
    for (int piece = static_cast<int>(threadIdx.x); piece < w.rows * PIECES; piece += THREADS) {
        const int i = piece / PIECES;
        const int column = piece % PIECES * 4;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < cfg::WARPS; k++) {
            const uint4 x = load_shared16(layout::o(shared, k, i, column));
            sum.x += __uint_as_float(x.x);
            sum.y += __uint_as_float(x.y);
            sum.z += __uint_as_float(x.z);
            sum.w += __uint_as_float(x.w);
        }
        *reinterpret_cast<float4 *>(o_of(p, w, i) + column) = sum;
    }
}

} // namespace decode

// ---- kernels -----------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int decode = ::decode::layout::BYTES;
}

#if LATHE_COMPILED(decode)
extern "C" __global__ void __launch_bounds__(decode::THREADS, cfg::BLOCKS)
    LATHE_ENTRY(decode)(const __grid_constant__ attention_params launched)
{
    using namespace decode;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    auto &&p = own_params(launched);
    let_next_begin();
    work w;
    if (!find_work<!EIGHT>(p, w)) {
        return;
    }
    w.wide = w.rows > operands::ROWS;
    const key_tiles keys = find_keys(p, w);
    if (keys.n == 0) {
        write_nothing(p, w);
        return;
    }
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = w.wide ? warp * operands::ROWS : 0;
    stream mine;
    mine.cursor.start(keys);
    mine.look_ahead(p, w);
#pragma unroll
    for (int i = 0; i < cfg::STAGES - 1; i++) {
        mine.bring_next(p, w, shared, i);
    }
    warp_rows own;
    begin_rows(own, p, w, first);
    int stage = 0; // of the tiles at hand
    int fill = cfg::STAGES - 1;
    bool more = true;
#pragma unroll 1
    while (more) {
        copy_wait<cfg::STAGES - 2>();
        if (w.wide) { // the tiles at hand are there, and no one reads those before them
            __syncthreads();
        } else {
            __syncwarp();
        }
        tile_columns columns;
        const int at_hand = tile_at(shared, warp, stage);
        if (!w.wide && at_hand >= 0) {
            load_columns(columns, own, p, at_hand);
        }
        mine.bring_next(p, w, shared, fill);
        more = false;
#pragma unroll 1
        for (int k = w.wide ? 0 : warp; k < (w.wide ? cfg::WARPS : warp + 1); k++) {
            const int code = tile_at(shared, k, stage);
            if (code >= 0) {
                more = true;
                if (w.wide) {
                    load_columns(columns, own, p, code);
                }
                meet_tile(own, p, columns, layout::stage(shared, k, stage), code);
            }
        }
        fill = stage;
        stage = stage + 1 == cfg::STAGES ? 0 : stage + 1;
    }
    copy_wait<0>();
#pragma unroll
    for (int r = 0; r < fragment::ROWS; r++) {
        variant::join(own.rows.state[r], sum_of_row{});
    }
    if (w.wide) {
        end_wide(own, p, w, first);
    } else {
        end_narrow(own, p, w, shared);
    }
}
#endif
