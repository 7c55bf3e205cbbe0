// attention/decode_warp.cuh: what a warp does with up to 16 rows of a key head and tiles of keys of its own: it brings
// them by cp.async, STAGES - 1 ahead, into a ring of its own, and the rows meet them. Where all warps have the same
// rows, their row states and o are put together in shared memory.
#pragma once
#include "attention/decode_rows.cuh"
#include "attention/key_rows.cuh"
#include "attention/key_tiles.cuh"

static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D >= 8 && cfg::D % 8 == 0 && cfg::D_V >= 8 && cfg::D_V % 8 == 0,
              "rows are copied 16 bytes at a time");
static_assert(cfg::D_PAD == round_up(cfg::D, 16) && cfg::DV_PAD == round_up(cfg::D_V, 16),
              "padded to the depth of one mma.sync");
static_assert(cfg::DV_PAD <= 256, "16 rows of o need DV_PAD / 2 registers of each thread");
static_assert(cfg::WARPS == 2 || cfg::WARPS == 4 || cfg::WARPS == 8, "cfg::WARPS is 2, 4 or 8");
static_assert(cfg::BN == 16 || cfg::BN == 32, "a tile has 16 keys, the depth of P V, or 32, a lane's each");
static_assert(cfg::STAGES >= 2 && cfg::STAGES <= 8, "cfg::STAGES is 2 .. 8");
static_assert(!variant::MAP, "tiles are judged by the blocks that meet them");

namespace decode
{

// ---- shared memory -----------------------------------------------------------------------------------

struct layout { // offsets in bytes; o of the warps takes the place of the ring
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * ELEMENT_BYTES<cfg::operand>;
    static constexpr int STAGE_BYTES = K_BYTES + cfg::BN * cfg::DV_PAD * ELEMENT_BYTES<cfg::operand>;
    static constexpr int WARP_BYTES = cfg::STAGES * STAGE_BYTES;
    static constexpr int CODES = cfg::WARPS * WARP_BYTES; // of each warp's stages: which tile lies there
    static constexpr int RECORDS = CODES + cfg::WARPS * cfg::STAGES * 4;
    static constexpr int BYTES = RECORDS + WARP_ROWS * cfg::WARPS * RECORD * 4;
    static constexpr int O_ROW = cfg::DV_PAD + 8; // floats: rows begin in different banks
    static_assert(cfg::WARPS * WARP_ROWS * O_ROW * 4 <= CODES, "o fits where the ring was");

    DEV u32 stage(u32 shared, int warp, int number)
    {
        return shared + static_cast<u32>(warp * WARP_BYTES + number * STAGE_BYTES);
    }
    DEV u32 code(u32 shared, int warp, int number)
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

// ---- one warp ----------------------------------------------------------------------------------------

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
        const cfg::element_q *from =
            static_cast<const cfg::element_q *>(p.q) + w.b * p.q_b + w.head(row) * p.q_h + w.token(row) * p.q_t;
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
    product_qk<cfg::operand, 1, NB, cfg::D_PAD, true>(s, 0u, own.q, stage + lane_offset_b<cfg::D_PAD>(lane));
    score_tile<false, 1, NB, packed, false, true, packed> scores{s,
                                                                 own.rows,
                                                                 a,
                                                                 tile_cursor::number(code) * cfg::BN +
                                                                     mma_fragment<1>::first_column(lane),
                                                                 0u,
                                                                 tile_cursor::class_of(code) == TILE_ALL,
                                                                 tile_cursor::class_of(code) == TILE_CUT};
    float scale[2];
    scores.run(scale);
    if constexpr (variant::RESCALE) {
        rescale(own.o, scale);
    }
    product_pv<cfg::operand, 1, NB, DB, cfg::DV_PAD>(
        own.o, s, stage + layout::K_BYTES + lane_offset_b_transposed<cfg::DV_PAD>(lane));
}

// Keys on their way to one warp, in the order of a CURSOR: its next(p, w) gives four times the number of the warp's
// next tile, plus its class; or less than 0.
template <class CURSOR> struct stream {
    CURSOR cursor;
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
            warp_loader<cfg::BN, cfg::D, cfg::D_PAD>::template load<PAGED>(
                to, static_cast<const cfg::element_k *>(p.k) + w.h_kv * p.k_h, p.k_b, p.k_t, place, left);
            warp_loader<cfg::BN, cfg::D_V, cfg::DV_PAD>::template load<PAGED>(
                to + layout::K_BYTES, static_cast<const cfg::element_v *>(p.v) + w.h_kv * p.v_h, p.v_b, p.v_t, place,
                left);
        }
        copy_commit();
        look_ahead(p, w);
    }
};

// ---- what the warps of a block have of one row -------------------------------------------------------

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

// The row states of all warps, to where shared_parts finds them. first: the thread's first row.
DEV void share_records(const warp_rows &own, u32 shared, int first)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float record[RECORD];
        write_record(record, own.rows.state[r], (own.rows.seen >> r & 1u) != 0);
#pragma unroll
        for (int k = 0; k < RECORD && (lane_id() & 3) == 0; k++) {
            store_shared(layout::record(shared, first + 8 * r, warp) + static_cast<u32>(k * 4), record[k]);
        }
    }
}

// The thread's o of its r'th row, times a factor, to where the ring was.
DEV void share_o(const warp_rows &own, u32 shared, int i, int r, float factor, bool seen)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int d = 0; d < DB; d++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            store_shared(layout::o(shared, warp, i, 8 * d + 2 * (lane_id() & 3) + j),
                         seen ? own.o[0][d][2 * r + j] * factor : 0.0f);
        }
    }
}

// Four columns of a row, of all warps.
DEV float4 sum_of_warps(u32 shared, int i, int column)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int k = 0; k < cfg::WARPS; k++) {
        const uint4 x = load_shared16(layout::o(shared, k, i, column));
        sum.x += __uint_as_float(x.x);
        sum.y += __uint_as_float(x.y);
        sum.z += __uint_as_float(x.z);
        sum.w += __uint_as_float(x.w);
    }
    return sum;
}

} // namespace decode
