// attention_parts.cuh: what the attention kernels have in common around their main loops: where a thread
// works, which key tiles there are, and the end of the rows. o[m][b][2 r + j] is a thread's fragment as in
// rows.cuh.
#pragma once
#include "mma_sm80.cuh"
#include "rows.cuh"

// ---- which rows and tiles -------------------------------------------------------------------------------

// Where a thread works. Computed anew where it is needed, so that nothing of it has to stay in registers
// through the main loop.
struct work_place {
    int b, h, query_tile, n_tiles;
    int row0;      // first row of the block
    int warp_row;  // first row of the warp, from row0
    int first_row; // first row of the thread
    int lane;

    __device__ __forceinline__ int row(int r) const { return first_row + 8 * r; } // of the thread
    __device__ __forceinline__ int head(int) const { return h; }
    __device__ __forceinline__ bool leads() const { return true; } // of the warps with these rows
    static constexpr int column0 = 0;                              // of o
};

// Walks the key tiles that have live pairs, in ascending order. 32 are classified at a time, one a lane; all
// warps of the block get the same answers.
struct tile_cursor {
    static constexpr int IDLE = -2; // before the first tile
    static constexpr int END = -1;  // after the last
    int mine;                       // class of this lane's tile of the current 32

    DEV int classify(const at_head &a, const u8 *map_row, int row0, int row1, int tile)
    {
        const int kv0 = tile * cfg::BN; // len_kv + 31 BN fits
        if (kv0 >= a.z.len_kv) {
            return TILE_NONE;
        }
        int c = TILE_ALL;
        if constexpr (variant::MAP) {
            c = map_row[tile];
        } else if constexpr (variant::MASKED) {
            c = static_cast<int>(variant::classify(a.x, a.z, a.head, row0, row1, kv0,
                                                   min(kv0 + cfg::BN, a.z.len_kv) - 1));
        }
        return c == TILE_ALL && kv0 + cfg::BN > a.z.len_kv ? static_cast<int>(TILE_SOME) : c;
    }

    // What comes after `last` for rows row0 to row1: twice the tile, plus 1 where it is whole; or END.
    __device__ __forceinline__ int next(int last, const at_head &a, const u8 *map_row, int row0, int row1)
    {
        if (last == END) {
            return END;
        }
        int first = (last >> 1) & ~31; // of the current 32; -32 for IDLE
        u32 some = __ballot_sync(ALL_LANES, mine != TILE_NONE && lane_id() > ((last >> 1) & 31));
#pragma unroll 1
        while (some == 0) {
            first += 32;
            if (first >= (a.z.len_kv + cfg::BN - 1) / cfg::BN) {
                return END;
            }
            mine = classify(a, map_row, row0, row1, first + lane_id());
            some = __ballot_sync(ALL_LANES, mine != TILE_NONE);
        }
        const int bit = __ffs(static_cast<int>(some)) - 1;
        return 2 * (first + bit) + static_cast<int>((__ballot_sync(ALL_LANES, mine == TILE_ALL) >> bit) & 1u);
    }
};

// ---- the end of the rows --------------------------------------------------------------------------------

struct sum_of_four {
    __device__ __forceinline__ float operator()(float x) const { return sum4(x); }
};

// o times the variant's factor; finals to memory, by one thread of the four of a row.
template <int MT, int DB, class PLACE>
DEV void finish_rows(thread_rows<MT> &rows, float (&o)[MT][DB][4], const attention_params &p,
                     const at_head &a, const PLACE &at)
{
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        float finals[variant::FINALS > 0 ? variant::FINALS : 1];
        variant::join(rows.state[r], sum_of_four{});
        float factor = variant::finish(rows.state[r], finals, a.x, a.z, a.head, rows.row[r]);
        const bool seen = ((rows.seen >> r) & 1u) != 0;
        if (!seen) {
            variant::empty_finals(finals);
        }
        const int row = at.row(r);
        if ((at.lane & 3) == 0 && row < a.z.len_q && at.leads()) {
            variant::store_finals(p, at.b, at.head(r), row, finals);
        }
#pragma unroll
        for (int d = 0; d < DB; d++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                float &x = o[r / 2][d][2 * (r % 2) + j];
                x = seen ? x * factor : cfg::O_F32 ? __uint_as_float(EMPTY_ROW) : 0.0f;
            }
        }
    }
}

template <int MT, int DB, class PLACE>
DEV void store_o_f32(const float (&o)[MT][DB][4], const attention_params &p, const PLACE &at)
{
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        if (at.row(r) < p.z.len_q) {
            float *to = static_cast<float *>(p.o) + at.b * p.o_b + at.head(r) * p.o_h + at.row(r) * p.o_t +
                        at.column0 + 2 * (at.lane & 3);
#pragma unroll
            for (int d = 0; d < DB; d++) {
                if (cfg::D_V == cfg::DV_PAD || at.column0 + 8 * d < cfg::D_V) {
                    *reinterpret_cast<float2 *>(to + 8 * d) =
                        make_float2(o[r / 2][d][2 * (r % 2)], o[r / 2][d][2 * (r % 2) + 1]);
                }
            }
        }
    }
}

// Through shared memory, which no one reads any more: a warp's rows become whole 16-byte pieces.
// `staging`: shared memory for the rows of this warp.
template <int MT, int DB>
DEV void store_o(const float (&o)[MT][DB][4], u32 staging, cfg::element *out, i64 row_stride,
                 const work_place &at, int len_q)
{
    using shape = swizzle<cfg::DV_PAD>;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const int row = at.lane / 4 + 8 * r;
#pragma unroll
        for (int d = 0; d < DB; d++) {
            store_shared(staging + shape::offset(row, d) + static_cast<u32>(4 * (at.lane & 3)),
                         pack<cfg::element>(o[r / 2][d][2 * (r % 2)], o[r / 2][d][2 * (r % 2) + 1]));
        }
    }
    __syncwarp();
    constexpr int PIECES = cfg::D_V / 8;
#pragma unroll 4
    for (int i = 0; i < (16 * MT * PIECES + 31) / 32; i++) {
        const int piece = at.lane + 32 * i;
        const int row = piece / PIECES;
        if (piece < 16 * MT * PIECES && at.row0 + at.warp_row + row < len_q) {
            *reinterpret_cast<uint4 *>(out + (at.row0 + at.warp_row + row) * row_stride +
                                       piece % PIECES * 8) =
                load_shared16(staging + shape::offset(row, piece % PIECES));
        }
    }
}
