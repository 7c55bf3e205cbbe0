// attention/decode_narrow.cuh: attention/decode.cuh where k or v has 8 bits in memory (cfg::source_k, source_v): its
// warps bring tiles as they lie there, half the bytes, and numbers become operands on the way from shared memory to the
// tensor cores (attention/narrow_words.cuh). All else is as there: rows, parts of keys, the end of a part, `merge`.
//
// Launch: as there.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"
#include "attention/narrow_words.cuh"

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
constexpr int NB = cfg::BN / 8;
constexpr int DB = cfg::DV_PAD / 8;
constexpr int KSTEPS = cfg::D_PAD / 16;

// ---- shared memory -----------------------------------------------------------------------------------

// Rows of a tile, in pairs of bytes: what is copied is copied as elements of 16 bits.
template <class T, int DIM> inline constexpr int PAIRS_OF_BYTES = IS_NARROW<T> ? DIM / 2 : DIM;
constexpr int K_PAIRS = PAIRS_OF_BYTES<cfg::source_k, cfg::D_PAD>;
constexpr int V_PAIRS = PAIRS_OF_BYTES<cfg::source_v, cfg::DV_PAD>;

struct layout { // offsets in bytes; o of the warps takes the place of the ring
    static constexpr int K_BYTES = cfg::BN * K_PAIRS * 2;
    static constexpr int STAGE_BYTES = K_BYTES + cfg::BN * V_PAIRS * 2;
    static constexpr int WARP_BYTES = cfg::STAGES * STAGE_BYTES;
    static constexpr int O_ROW = cfg::DV_PAD + 8; // floats: rows begin in different banks
    static constexpr int CODES = max_of(cfg::WARPS * WARP_BYTES, cfg::WARPS *WARP_ROWS *O_ROW * 4);
    static constexpr int RECORDS = CODES + cfg::WARPS * cfg::STAGES * 4;
    static constexpr int BYTES = RECORDS + WARP_ROWS * cfg::WARPS * RECORD * 4;

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
        return shared + static_cast<u32>(((warp * WARP_ROWS + row) * O_ROW + column) * 4);
    }
};

// Blocks of a multiprocessor are the planner's choice, which cuts keys for as many: three leave 168 registers to a
// thread, and are faster than two but where elements read inputs by key, which then spill.
static_assert(cfg::BLOCKS >= 1 && cfg::BLOCKS <= 3, "cfg::BLOCKS is 1, 2 or 3");
static_assert(cfg::BLOCKS == 1 || cfg::BLOCKS * (layout::BYTES + 1024) <= 233472, "a multiprocessor has room for them");

// ---- one warp ----------------------------------------------------------------------------------------

struct warp_rows {
    thread_rows<1, packed> rows;
    float o[1][DB][4];
    a_fragments<1, KSTEPS> q;
    float q_lift[2], lift[2]; // of rows of Q, and of weights and so of o
};

// A row of Q becomes f16, lifted. Its lanes are four.
DEV float lift_row(a_fragments<1, KSTEPS> &q, int r)
{
    float most = 0.0f;
#pragma unroll
    for (int k = 0; k < 2 * KSTEPS; k++) {
        float low;
        float high;
        unpack<bf16>(q.r[k / 2][0][2 * (k % 2) + r], low, high);
        most = fmaxf(most, fmaxf(fabsf(low), fabsf(high)));
    }
    const float lift = lift_of<15>(lanes_max<4>(most));
#pragma unroll
    for (int k = 0; k < 2 * KSTEPS; k++) {
        u32 &pair = q.r[k / 2][0][2 * (k % 2) + r];
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
    float most[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < NB * 4; i++) {
        most[i % 4 / 2] = fmaxf(most[i % 4 / 2], fabsf(s[0][i / 4][i % 4]));
    }
    if (__any_sync(ALL_LANES, most[0] * own.lift[0] > MOST || most[1] * own.lift[1] > MOST)) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float of_row = lanes_max<4>(most[r]);
            const float lift = of_row * own.lift[r] > MOST ? lift_of<14>(of_row) : own.lift[r];
            const float less = lift * inverse_of(own.lift[r]);
            own.lift[r] = lift;
#pragma unroll
            for (int i = 0; i < DB * 2; i++) {
                own.o[0][i / 2][2 * r + i % 2] *= less;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < NB * 4; i++) {
        s[0][i / 4][i % 4] *= own.lift[i % 4 / 2];
    }
}

// first: the thread's first row.
DEV void begin_rows(warp_rows &own, const attention_params &p, const work &w, int first)
{
    own.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const int row = i < w.rows ? i : 0;
        const cfg::element_q *from =
            static_cast<const cfg::element_q *>(p.q) + w.b * p.q_b + w.head(row) * p.q_h + w.token(row) * p.q_t;
#pragma unroll
        for (int k = 0; k < 2 * KSTEPS; k++) {
            const u32 pair = *reinterpret_cast<const u32 *>(from + q_column<NARROW_K>(k / 2, k % 2));
            own.q.r[k / 2][0][2 * (k % 2) + r] = i < w.rows ? pair : 0u;
        }
        own.lift[r] = LIFTED && NARROW_V ? 0x1p100f : 1.0f; // the first weights say how much less
        if constexpr (LIFTED && NARROW_K) {
            own.q_lift[r] = lift_row(own.q, r);
        }
        own.rows.row[r] = w.row(p.x, p.z, i);
        own.rows.state[r] = variant::init((lane_id() & 3) == 0);
    }
#pragma unroll
    for (int i = 0; i < DB * 4; i++) {
        own.o[0][i / 4][i % 4] = 0.0f;
    }
}

// The tile at `stage`, as a cursor gave it.
DEV void meet_tile(warp_rows &own, const at_rows &a, u32 stage, int code)
{
    const int lane = lane_id();
    const u32 k = stage + lane_offset_b<K_PAIRS>(lane);
    const u32 v = stage + layout::K_BYTES + lane_offset_b_transposed<V_PAIRS>(lane);
    float s[1][NB][4];
    if constexpr (NARROW_K) {
        narrow_qk<cfg::source_k, NB, cfg::D_PAD>(s, own.q, k);
        if constexpr (LIFTED) {
#pragma unroll
            for (int i = 0; i < NB * 4; i++) {
                s[0][i / 4][i % 4] *= inverse_of(own.q_lift[i % 4 / 2]);
            }
        }
    } else {
        product_qk<cfg::operand, 1, NB, cfg::D_PAD, true>(s, 0u, own.q, k);
    }
    const int column = tile_cursor::number(code) * cfg::BN + mma_fragment<1>::first_column(lane);
    float scale[2];
    if (tile_cursor::class_of(code) == TILE_ALL) {
        score_tile<true, 1, NB, packed, false, true, packed> scores{s, own.rows, a, column, 0u};
        scores.run(scale);
    } else {
        score_tile<false, 1, NB, packed, false, true, packed> scores{
            s, own.rows, a, column, 0u, false, tile_cursor::class_of(code) == TILE_CUT};
        scores.run(scale);
    }
    if constexpr (variant::RESCALE) {
        rescale(own.o, scale);
    }
    if constexpr (NARROW_V) {
        if constexpr (LIFTED) {
            lift_weights(own, s);
        }
        narrow_pv<cfg::source_v, NB, cfg::DV_PAD>(own.o, s, v);
    } else {
        product_pv<cfg::operand, 1, NB, DB, cfg::DV_PAD>(own.o, s, v);
    }
}

// Rows of one tensor, of which strides are in elements of T, as warp_loader of attention/key_rows.cuh brings them.
// Where a lane's bytes lie is found anew for each tile, since registers are dear from tile to tile.
template <class T, int DIM>
DEV void bring_rows(u32 to, const void *head, i64 of_page, i64 of_row, const page_place &first, int left)
{
    constexpr bool PAGED = HAS_PAGES<attention_params>;
    using shape = swizzle<PAIRS_OF_BYTES<T, DIM>>;
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
            copy16_async(to + shape::offset(own, chunk + c), source + c * 16, own < left ? 16 : 0);
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

    __device__ __forceinline__ void look_ahead(const attention_params &p, const work &w)
    {
        code = cursor.next(p, w);
        if (code >= 0) {
            const int kv0 = tile_cursor::number(code) * cfg::BN;
            place = find_page(p, w.b, kv0 + (HAS_PAGES<attention_params> ? lane_id() % cfg::BN : 0));
        }
    }
    __device__ __forceinline__ void bring_next(const attention_params &p, const work &w, u32 shared, int stage)
    {
        const int warp = static_cast<int>(threadIdx.x / 32);
        const u32 to = layout::stage(shared, warp, stage);
        if (lane_id() == 0) {
            store_shared(layout::code(shared, warp, stage), static_cast<u32>(code));
        }
        if (code >= 0) {
            const int left = p.z.len_kv - tile_cursor::number(code) * cfg::BN;
            bring_rows<cfg::source_k, cfg::D>(to, static_cast<const cfg::source_k *>(p.k) + w.h_kv * p.k_h, p.k_b,
                                              p.k_t, place, left);
            bring_rows<cfg::source_v, cfg::D_V>(to + layout::K_BYTES,
                                                static_cast<const cfg::source_v *>(p.v) + w.h_kv * p.v_h, p.v_b, p.v_t,
                                                place, left);
        }
        copy_commit();
        look_ahead(p, w);
    }
};

// ---- the end of a part -------------------------------------------------------------------------------

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

// Each warp has rows of its own. first: the thread's first one.
DEV void end_wide(const warp_rows &own, const attention_params &p, const work &w, int first)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        const float lower = inverse_of(own.lift[r]);
        if (i >= w.rows) {
            continue;
        }
        if ((lane_id() & 3) == 0) {
            write_record(record_of(p, w, i), own.rows.state[r], seen);
        }
#pragma unroll
        for (int d = 0; d < DB; d++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                o_of(p, w, i)[o_column<NARROW_V>(d, j)] = seen ? own.o[0][d][2 * r + j] * lower : 0.0f;
            }
        }
    }
}

// The thread's row states, to where shared_parts finds them.
DEV void share_records(const warp_rows &own, u32 shared, int first)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float record[RECORD];
        write_record(record, own.rows.state[r], (own.rows.seen >> r & 1u) != 0);
#pragma unroll
        for (int k = 0; k < RECORD && (lane_id() & 3) == 0; k++) {
            store_shared(layout::record(shared, first + 8 * r, static_cast<int>(threadIdx.x / 32)) +
                             static_cast<u32>(k * 4),
                         record[k]);
        }
    }
}

// The thread's o of its r'th row, times what it counts among all warps, to where the ring was.
DEV void share_o(const warp_rows &own, const attention_params &p, const work &w, u32 shared, int first, int r)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int i = first + 8 * r;
    bool any = false;
    merge t;
    const shared_parts parts{shared, i};
    parts([&](const variant::state &) { any = true; });
    merge_states<no_share>(t, parts, p.x, p.z);
    if (warp == 0 && (lane_id() & 3) == 0 && i < w.rows) {
        write_record(record_of(p, w, i), merge::merged(t, p.x, p.z), any);
    }
    const float factor = merge::factor(own.rows.state[r], t, p.x, p.z);
    const float lower = inverse_of(own.lift[r]);
    const bool seen = (own.rows.seen >> r & 1u) != 0;
#pragma unroll
    for (int d = 0; d < DB; d++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            store_shared(layout::o(shared, warp, i, o_column<NARROW_V>(d, j)),
                         seen ? own.o[0][d][2 * r + j] * lower * factor : 0.0f);
        }
    }
}

// All warps have the same rows, of keys of their own.
DEV void end_narrow(const warp_rows &own, const attention_params &p, const work &w, u32 shared)
{
    const int first = lane_id() / 4;
    __syncthreads(); // no one reads the ring
    share_records(own, shared, first);
    __syncthreads();
    share_o(own, p, w, shared, first, 0);
    share_o(own, p, w, shared, first, 1);
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
    if (!find_work(p, w)) {
        return;
    }
    const key_tiles keys = find_keys(p, w);
    if (keys.n == 0) {
        write_nothing(p, w);
        return;
    }
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = (w.wide ? warp * WARP_ROWS : 0) + lane_id() / 4;
    stream mine;
    mine.cursor.start(keys);
    mine.look_ahead(p, w);
#pragma unroll
    for (int i = 0; i < cfg::STAGES - 1; i++) {
        mine.bring_next(p, w, shared, i);
    }
    warp_rows own;
    begin_rows(own, p, w, first);
    const packed::head none{};
    const at_rows a{p.x, p.z, none};
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
        mine.bring_next(p, w, shared, fill);
        more = false;
#pragma unroll 1
        for (int k = w.wide ? 0 : warp; k < (w.wide ? cfg::WARPS : warp + 1); k++) {
            const int code = static_cast<int>(__float_as_uint(load_shared(layout::code(shared, k, stage))));
            if (code >= 0) {
                more = true;
                meet_tile(own, a, layout::stage(shared, k, stage), code);
            }
        }
        fill = stage;
        stage = stage + 1 == cfg::STAGES ? 0 : stage + 1;
    }
    copy_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(own.rows.state[r], sum_of_four{});
    }
    if (w.wide) {
        end_wide(own, p, w, first);
    } else {
        end_narrow(own, p, w, shared);
    }
}
#endif
