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

// Walks the key tiles that have live pairs, from the last one down: where scores fall with the distance, the rows' maxima
// are found early. All warps of the block get the same answers. Each lane classifies a few tiles in a row: one, or four
// whose classes are neighbours in a map.
struct tile_cursor {
    static constexpr int IDLE = -2; // before the first tile
    static constexpr int END = -1;  // after the last
    static constexpr int OWN = variant::MAP ? 4 : 1;
    u32 mine; // classes of this lane's tiles of the current 32 OWN, a byte each

    DEV int key_tiles(const sizes &z) { return (z.len_kv + cfg::BN - 1) / cfg::BN; }

    // Of the tiles from `first` on.
    DEV u32 classify(const at_head &a, const u8 *map_row, int row0, int row1, int first)
    {
        const int kv0 = first * cfg::BN; // len_kv + 127 BN fits
        if (kv0 >= a.z.len_kv) {
            return 0;
        }
        if constexpr (variant::MAP) {
            u32 classes = *reinterpret_cast<const u32 *>(map_row + first); // lines of a map are whole words
            const int there = key_tiles(a.z) - first;
            if (there < OWN) {
                classes &= (1u << (8 * there)) - 1u;
            }
            const int cut = a.z.len_kv - kv0; // of the tile that len_kv cuts nothing is whole
            if (cut < OWN * cfg::BN && cut % cfg::BN != 0) {
                const int at = cut / cfg::BN * 8;
                classes = (classes >> at & 0xffu) == TILE_ALL ? classes - (static_cast<u32>(TILE_ALL - TILE_SOME) << at) : classes;
            }
            return classes;
        } else {
            int c = TILE_ALL;
            if constexpr (variant::MASKED) {
                c = static_cast<int>(variant::classify(a.x, a.z, a.head, row0, row1, kv0,
                                                       min(kv0 + cfg::BN, a.z.len_kv) - 1));
            }
            return static_cast<u32>(c == TILE_ALL && kv0 + cfg::BN > a.z.len_kv ? static_cast<int>(TILE_SOME) : c);
        }
    }

    // Those of this lane that come before tile `end`.
    __device__ __forceinline__ u32 before(int end, int first) const
    {
        const int n = end - first - OWN * lane_id();
        return n >= OWN ? mine : n <= 0 ? 0 : mine & ((1u << (8 * n)) - 1u);
    }

    // What comes after `last` for rows row0 to row1: twice the tile, plus 1 where it is whole; or END.
    __device__ __forceinline__ int next(int last, const at_head &a, const u8 *map_row, int row0, int row1)
    {
        constexpr int ALL = 32 * OWN;
        if (last == END) {
            return END;
        }
        const int end = last == IDLE ? (key_tiles(a.z) + ALL - 1) / ALL * ALL : last >> 1;
        int first = last == IDLE ? end : end / ALL * ALL;
        u32 left = last == IDLE ? 0 : before(end, first);
        u32 some = __ballot_sync(ALL_LANES, left != 0);
#pragma unroll 1
        while (some == 0) {
            first -= ALL;
            if (first < 0) {
                return END;
            }
            mine = classify(a, map_row, row0, row1, first + OWN * lane_id());
            left = mine;
            some = __ballot_sync(ALL_LANES, left != 0);
        }
        const int lane = 31 - __clz(static_cast<int>(some));
        left = __shfl_sync(ALL_LANES, left, lane);
        const int byte = (31 - __clz(static_cast<int>(left))) / 8;
        return 2 * (first + OWN * lane + byte) + (left >> (8 * byte) == TILE_ALL ? 1 : 0);
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
