// attention/decode.cuh: attention of few queries against many keys, sm_80 and up, in two kernels.
//
// `decode`: time is the bytes of K and V, so they are read once for all rows of a key head (attention/decode_rows.cuh), by as
// many blocks as fill the GPU, each with a part of the keys; a mask cuts what it leaves, not what there is. A warp brings its own
// tiles of BN keys by cp.async, STAGES - 1 ahead, into a ring of its own, and no barrier over the block stands in its way. Where
// rows fill more than one warp (`wide`), warps still bring tiles of their own, but each looks at all of them with 16 of the rows.
// Out: of each part, row states and o ahead of the epilogue, in f32; of parts without live pairs only that.
//
// `merge` of attention/decode_merge.cuh ends the rows.
//
// Launch: n_b * n_h_kv * tiles * parts blocks of THREADS threads.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(parts_variant<variant, inputs, attention_params>, "variant.gen.cuh does not say how parts of a row are merged");
static_assert(same_type<cfg::element, f16> || same_type<cfg::element, bf16>, "cfg::element is f16 or bf16");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0, "rows are copied 16 bytes at a time");
static_assert(cfg::D_PAD == round_up(cfg::D, 16) && cfg::DV_PAD == round_up(cfg::D_V, 16), "padded to the depth of one mma.sync");
static_assert(cfg::DV_PAD <= 256, "16 rows of o need DV_PAD / 2 registers of each thread");
static_assert(cfg::WARPS == 2 || cfg::WARPS == 4 || cfg::WARPS == 8, "cfg::WARPS is 2, 4 or 8");
static_assert(cfg::BN == 16 || cfg::BN == 32, "a tile has 16 keys, the depth of P V, or 32, a lane's each");
static_assert(cfg::STAGES >= 2 && cfg::STAGES <= 8, "cfg::STAGES is 2 .. 8");
static_assert(!variant::MAP, "tiles are judged by the blocks that meet them");

namespace decode {

// ---- shared memory --------------------------------------------------------------------------------------------------

// Bytes of dynamic shared memory. As C, for the planner:
//     ring = warps * stages * bn * (d_pad + dv_pad) * 2;  smem = ring + warps * stages * 4 + 16 * warps * (states + 1) * 4;
struct layout { // offsets in bytes; o of the warps takes the place of the ring
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * 2;
    static constexpr int STAGE_BYTES = K_BYTES + cfg::BN * cfg::DV_PAD * 2;
    static constexpr int WARP_BYTES = cfg::STAGES * STAGE_BYTES;
    static constexpr int CODES = cfg::WARPS * WARP_BYTES; // of each warp's stages: which tile lies there
    static constexpr int RECORDS = CODES + cfg::WARPS * cfg::STAGES * 4;
    static constexpr int O_ROW = cfg::DV_PAD + 8; // floats: rows begin in different banks
    static_assert(cfg::WARPS * WARP_ROWS * O_ROW * 4 <= CODES, "o fits where the ring was");

    DEV u32 stage(u32 shared, int warp, int number) { return shared + static_cast<u32>(warp * WARP_BYTES + number * STAGE_BYTES); }
    DEV u32 code(u32 shared, int warp, int number) { return shared + static_cast<u32>(CODES + (warp * cfg::STAGES + number) * 4); }
    DEV u32 record(u32 shared, int row, int warp) { return shared + static_cast<u32>(RECORDS + (row * cfg::WARPS + warp) * RECORD * 4); }
    DEV u32 o(u32 shared, int warp, int row, int column) { return shared + static_cast<u32>(((warp * WARP_ROWS + row) * O_ROW + column) * 4); }
};

// ---- one warp -------------------------------------------------------------------------------------------------------

constexpr int NB = cfg::BN / 8;
constexpr int DB = cfg::DV_PAD / 8;
constexpr int KSTEPS = cfg::D_PAD / 16;

struct warp_rows {
    thread_rows<1, packed> rows;
    float o[1][DB][4];
    a_fragments<1, KSTEPS> q;
};

// Rows of Q as fragments, straight from global memory: each is read once. first: the thread's first row.
DEV void load_queries(a_fragments<1, KSTEPS> &q, const attention_params &p, const work &w, int first)
{
    const int column = 2 * (lane_id() & 3);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const bool exists = i < w.rows;
        const int row = exists ? i : 0;
        const cfg::element *from = static_cast<const cfg::element *>(p.q) + w.b * p.q_b + w.head(row) * p.q_h + w.token(row) * p.q_t;
#pragma unroll
        for (int k = 0; k < KSTEPS; k++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at = 16 * k + 8 * half + column;
                const bool inside = exists && (cfg::D == cfg::D_PAD || 16 * k + 8 * half < cfg::D);
                q.r[k][0][2 * half + r] = inside ? *reinterpret_cast<const u32 *>(from + at) : 0u;
            }
        }
    }
}

DEV void begin_rows(warp_rows &own, const attention_params &p, const work &w, int first)
{
    own.rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        own.rows.row[r] = w.row(p.x, p.z, first + 8 * r);
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
    float s[1][NB][4];
    product_qk<cfg::element, 1, NB, cfg::D_PAD, true>(s, 0u, own.q, stage + lane_offset_b<cfg::D_PAD>(lane));
    score_tile<false, 1, NB, packed, false, true, packed> scores{
        s, own.rows, a, tile_cursor::number(code) * cfg::BN + 2 * (lane & 3), 0u, tile_cursor::class_of(code) == TILE_ALL, tile_cursor::class_of(code) == TILE_CUT};
    float scale[2];
    scores.run(scale);
    if constexpr (variant::RESCALE) {
        rescale(own.o, scale);
    }
    product_pv<cfg::element, 1, NB, DB, cfg::DV_PAD>(own.o, s, stage + layout::K_BYTES + lane_offset_b_transposed<cfg::DV_PAD>(lane));
}

// Keys on their way to one warp.
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
            constexpr bool PAGED = HAS_PAGES<attention_params>;
            const int left = p.z.len_kv - tile_cursor::number(code) * cfg::BN;
            warp_loader<cfg::BN, cfg::D, cfg::D_PAD>::template load<PAGED>(to, static_cast<const cfg::element *>(p.k) + w.h_kv * p.k_h, p.k_b, p.k_t, place, left);
            warp_loader<cfg::BN, cfg::D_V, cfg::DV_PAD>::template load<PAGED>(to + layout::K_BYTES, static_cast<const cfg::element *>(p.v) + w.h_kv * p.v_h, p.v_b, p.v_t,
                                                                              place, left);
        }
        copy_commit();
        look_ahead(p, w);
    }
};

// ---- the end of a part ------------------------------------------------------------------------------------------------

// Each warp has rows of its own. first: the thread's first one.
DEV void end_wide(warp_rows &own, const attention_params &p, const work &w, int first)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        if (i >= w.rows) {
            continue;
        }
        if ((lane_id() & 3) == 0) {
            write_record(record_of(p, w, i), own.rows.state[r], seen);
        }
        float *to = o_of(p, w, i) + 2 * (lane_id() & 3);
#pragma unroll
        for (int d = 0; d < DB; d++) {
            if (cfg::D_V == cfg::DV_PAD || 8 * d < cfg::D_V) {
                *reinterpret_cast<float2 *>(to + 8 * d) = seen ? make_float2(own.o[0][d][2 * r], own.o[0][d][2 * r + 1]) : make_float2(0.0f, 0.0f);
            }
        }
    }
}

// The parts of a row, one for each warp, in shared memory.
struct shared_parts {
    u32 shared;
    int row;
    template <class F> __device__ __forceinline__ void operator()(const F &f) const
    {
#pragma unroll
        for (int warp = 0; warp < cfg::WARPS; warp++) {
            const u32 from = layout::record(shared, row, warp);
            float record[RECORD];
#pragma unroll
            for (int k = 0; k < RECORD; k++) {
                record[k] = load_shared(from + static_cast<u32>(k * 4));
            }
            if (record[variant::STATES] != 0.0f) {
                f(merge::read(record));
            }
        }
    }
};

// All warps have the same rows, of keys of their own.
DEV void end_narrow(warp_rows &own, const attention_params &p, const work &w, u32 shared)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = lane_id() / 4;
    __syncthreads(); // no one reads the ring
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float record[RECORD];
        write_record(record, own.rows.state[r], (own.rows.seen >> r & 1u) != 0);
#pragma unroll
        for (int k = 0; k < RECORD && (lane_id() & 3) == 0; k++) {
            store_shared(layout::record(shared, first + 8 * r, warp) + static_cast<u32>(k * 4), record[k]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        bool any = false;
        merge t;
        const shared_parts parts{shared, i};
        parts([&](const variant::state &) { any = true; });
        merge_states<no_share>(t, parts, p.x, p.z);
        if (warp == 0 && (lane_id() & 3) == 0 && i < w.rows) {
            write_record(record_of(p, w, i), merge::merged(t, p.x, p.z), any);
        }
        const float factor = merge::factor(own.rows.state[r], t, p.x, p.z);
#pragma unroll
        for (int d = 0; d < DB; d++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                store_shared(layout::o(shared, warp, i, 8 * d + 2 * (lane_id() & 3) + j), seen ? own.o[0][d][2 * r + j] * factor : 0.0f);
            }
        }
    }
    __syncthreads();
    constexpr int PIECES = cfg::D_V / 4;
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

// ---- kernels ------------------------------------------------------------------------------------------------------------

#if LATHE_COMPILED(decode)
extern "C" __global__ void __launch_bounds__(decode::THREADS) LATHE_ENTRY(decode)(const __grid_constant__ attention_params launched)
{
    using namespace decode;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    auto &&p = own_params(launched);
    let_next_begin();
    const work w = find_work(p);
    if constexpr (HAS_SEQUENCES<attention_params>) {
        sequences::enter(p, w.b);
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
    load_queries(own.q, p, w, first);
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
