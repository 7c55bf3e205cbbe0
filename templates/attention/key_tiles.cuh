// attention/key_tiles.cuh: what the attention kernels have in common around their main loops: where a thread
// works, which key tiles there are, and the end of the rows. o is a thread's
// fragment as attention/fragment.cuh has it.
#pragma once
#include "attention/elements.cuh"
#include "common/mma_sm80.cuh"
#include "attention/score_passes.cuh"

// ---- which rows and tiles ----------------------------------------------------------------------------

// Where a thread works. Computed anew where it is needed, so that nothing of it has to stay in registers
// through the main loop.
struct work_place {
    int b, h, query_tile, n_tiles;
    int row0;      // first row of the block
    int warp_row;  // first row of the warp, from row0
    int first_row; // first row of the thread
    int lane;

    __device__ __forceinline__ int row(int r) const { return first_row + mma_fragment<1>::row(r); } // of the thread
    __device__ __forceinline__ int head(int) const { return h; }
    __device__ __forceinline__ bool leads() const { return true; } // of the warps with these rows
    static constexpr int column0 = 0;                              // of o
};

// Walks the key tiles that have live pairs, from the last one down: where scores fall with the distance, the rows'
// maxima are found early. All warps of the block get the same answers. Each lane classifies a tile, or loads the
// classes of four neighbours from a map, ahead of the walk; 32 tiles at a time are then bits that all lanes know.
struct tile_cursor {
    static constexpr int IDLE = -2; // before the first tile
    static constexpr int END = -1;  // after the last
    static constexpr int OWN = variant::MAP ? 4 : 1;
    int first;     // of the 32 tiles at hand
    u32 low, high; // bits of their classes, of those that are still to come
    // of the 32 OWN tiles that hold those before `first`: the class of this lane's, or OWN in a byte each
    u32 mine = 0;

    // Of the 32 OWN tiles from `from` on, for rows row0 to row1.
    __device__ __forceinline__ void look(const at_head &a, const u8 *map_row, int row0, int row1, int from)
    {
        const int tile = from + OWN * lane_id();
        const int kv0 = tile * cfg::BN; // len_kv + 127 BN fits
        if (kv0 < a.z.len_kv) {         // others are told by their place
            if constexpr (variant::MAP) {
                mine = *reinterpret_cast<const u32 *>(map_row + tile); // lines of a map are whole words
            } else if constexpr (variant::MASKED) {
                mine = static_cast<u32>(
                    variant::classify(a.x, a.z, a.head, row0, row1, kv0, min(kv0 + cfg::BN, a.z.len_kv) - 1));
            } else {
                mine = TILE_ALL;
            }
        }
    }

    // The class of tile first + lane.
    __device__ __forceinline__ u32 class_of_lane(const sizes &z) const
    {
        u32 c = mine;
        if constexpr (variant::MAP) {
            c = __shfl_sync(ALL_LANES, mine, first / OWN % 32 + lane_id() / OWN) >> (lane_id() % OWN * 8) & 0xffu;
        }
        const int left = z.len_kv - (first + lane_id()) * cfg::BN;
        c = left > 0 ? c : static_cast<u32>(TILE_NONE);
        return c == TILE_ALL && left < cfg::BN ? static_cast<u32>(TILE_CUT) : c; // what len_kv cuts is not whole
    }

    __device__ __forceinline__ void start(const at_head &a, const u8 *map_row, int row0, int row1)
    {
        first = static_cast<int>((static_cast<u32>(a.z.len_kv) + (32 * OWN * cfg::BN - 1)) / (32 * OWN * cfg::BN) *
                                 (32 * OWN));
        low = 0;
        high = 0;
        if (first > 0) {
            look(a, map_row, row0, row1, first - 32 * OWN);
        }
    }

    // Of what next() gives.
    DEV int number(int tile) { return tile >> 2; }
    DEV int class_of(int tile) { return tile & 3; }

    // What comes next for rows row0 to row1: four times the tile's number, plus its class; or END.
    __device__ __forceinline__ int next(const at_head &a, const u8 *map_row, int row0, int row1)
    {
#pragma unroll 1
        while ((low | high) == 0) {
            if (first == 0) {
                return END;
            }
            first -= 32;
            const u32 c = class_of_lane(a.z);
            low = __ballot_sync(ALL_LANES, (c & 1u) != 0);
            high = __ballot_sync(ALL_LANES, (c & 2u) != 0);
            if (first > 0 && first % (32 * OWN) == 0) {
                look(a, map_row, row0, row1, first - 32 * OWN);
            }
        }
        const int bit = 31 - __clz(static_cast<int>(low | high));
        const int tile = 4 * (first + bit) + static_cast<int>((high >> bit & 1u) * 2 + (low >> bit & 1u));
        const u32 rest = (1u << bit) - 1u;
        low &= rest;
        high &= rest;
        return tile;
    }
};

// ---- the end of the rows -----------------------------------------------------------------------------

struct sum_of_four {
    __device__ __forceinline__ float operator()(float x) const { return sum4(x); }
};

// o times the variant's factor; finals to memory: of the four threads of a row, each stores those of one of the rows.
template <int MT, int DB, class PLACE> DEV void
finish_rows(thread_rows<MT> &rows, float (&o)[MT][DB][4], const attention_params &p, const at_head &a, const PLACE &at)
{
    using fragment = mma_fragment<MT>;
    constexpr int ROWS = fragment::ROWS, SHARERS = fragment::SHARERS;
    constexpr int FINALS = variant::FINALS > 0 ? variant::FINALS : 1;
    float mine[FINALS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float finals[FINALS];
        variant::join(rows.state[r], sum_of_four{});
        float factor = variant::finish(rows.state[r], finals, a.x, a.z, a.head, rows.row[r]);
        const bool seen = ((rows.seen >> r) & 1u) != 0;
        if (!seen) {
            variant::empty_finals(finals, a.x, a.z, a.head, rows.row[r]);
        }
#pragma unroll
        for (int i = 0; i < variant::FINALS; i++) {
            mine[i] = r % SHARERS == 0 || fragment::sharer(at.lane) == r % SHARERS ? finals[i] : mine[i];
        }
        if (variant::FINALS > 0 && (r % SHARERS == SHARERS - 1 || r + 1 == ROWS)) {
            const int which = r / SHARERS * SHARERS + fragment::sharer(at.lane);
            const int row = at.row(which);
            if (which <= r && row < a.z.len_q && at.leads()) {
                variant::store_finals(p, at.b, at.head(which), row, mine);
            }
        }
#pragma unroll
        for (int d = 0; d < DB; d++) {
#pragma unroll
            for (int j = 0; j < fragment::BLOCK; j++) {
                fragment::at(o, r, fragment::BLOCK * d + j) *= factor;
            }
        }
    }
    if (__all_sync(ALL_LANES, rows.seen == (1u << (2 * MT)) - 1u)) {
        return;
    }
#pragma unroll
    for (int i = 0; i < MT * DB * 4; i++) { // rows without a live pair, whatever they gathered
        float &x = o[i / (DB * 4)][i / 4 % DB][i % 4];
        x = (rows.seen >> (i / (DB * 4) * 2 + i % 4 / 2) & 1u) != 0 ? x
            : cfg::O_MARKED                                         ? __uint_as_float(EMPTY_ROW)
                                                                    : 0.0f;
    }
}

template <int MT, int DB, class PLACE>
DEV void store_o_f32(const float (&o)[MT][DB][4], const attention_params &p, const PLACE &at)
{
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        if (at.row(r) < p.z.len_q) {
            float *to = static_cast<float *>(p.o) + at.b * p.o_b + at.head(r) * p.o_h + at.row(r) * p.o_t + at.column0 +
                        mma_fragment<MT>::first_column(at.lane);
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
template <int MT, int DB> DEV void store_o(const float (&o)[MT][DB][4], u32 staging, cfg::element_o *out,
                                           i64 row_stride, const work_place &at, int len_q)
{
    using shape = swizzle<cfg::DV_PAD>;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        const int row = mma_fragment<MT>::first_row(at.lane) + mma_fragment<MT>::row(r);
#pragma unroll
        for (int d = 0; d < DB; d++) {
            store_shared(staging + shape::offset(row, d) +
                             static_cast<u32>(2 * mma_fragment<MT>::first_column(at.lane)),
                         pack<cfg::element_o>(o[r / 2][d][2 * (r % 2)], o[r / 2][d][2 * (r % 2) + 1]));
        }
    }
    __syncwarp();
    constexpr int PIECES = cfg::D_V / 8;
    const int row0 = at.row0 + at.warp_row;
    // a lane's rows lie STEP apart, and so do its addresses, but for the turn of the rows
    if constexpr (32 % PIECES == 0) {
        constexpr int STEP = 32 / PIECES;
        const int row = at.lane / PIECES;
        const u32 from = staging + shape::offset(row, at.lane % PIECES);
        char *to = reinterpret_cast<char *>(out + (row0 + row) * row_stride + at.lane % PIECES * 8);
        const i64 step = STEP * row_stride * 2;
#pragma unroll
        for (int i = 0; i < 16 * MT / STEP; i++) {
            if (row0 + row + i * STEP < len_q) {
                const uint4 x = load_shared16((from ^ static_cast<u32>(shape::turn(i * STEP) * 16)) +
                                              static_cast<u32>(i * STEP * shape::ROW_BYTES));
                __stcs(reinterpret_cast<uint4 *>(to), x);
            }
            to += step;
        }
    } else {
#pragma unroll 4
        for (int i = 0; i < (16 * MT * PIECES + 31) / 32; i++) {
            const int piece = at.lane + 32 * i;
            const int row = piece / PIECES;
            if (piece < 16 * MT * PIECES && row0 + row < len_q) {
                *reinterpret_cast<uint4 *>(out + (row0 + row) * row_stride + piece % PIECES * 8) =
                    load_shared16(staging + shape::offset(row, piece % PIECES));
            }
        }
    }
}
