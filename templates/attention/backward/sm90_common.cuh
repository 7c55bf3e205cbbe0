// attention/backward/sm90_common.cuh: what the kernels of attention backward for sm_90a have in common: what they take,
// how many registers each role has, and how the loading warp tells the others about its tiles.
#pragma once
#include "attention/backward/pairs.cuh"
#include "common/tma_sm90.cuh"

static_assert(backward_variant<variant, inputs, back_params, grads>,
              "variant.gen.cuh does not fill the slots of attention backward: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(split_backward_variant<variant, inputs>,
              "variant.gen.cuh does not give weight() and slope() of attention backward: templates/README.md");
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16>, "cfg::operand is f16 or bf16");
static_assert(cfg::D % 8 == 0 && cfg::D_V % 8 == 0,
              "cfg::D and cfg::D_V are multiples of 8: TMA takes strides of 16 bytes");

struct hopper_back_params { // what the kernel takes; the maps are made of the rest at launch
    tensor_map q, k, v, dout;
    back_params p;
};

namespace back
{

constexpr int HOPPER_THREADS = FIRST_THREAD + THREADS;
static_assert(cfg::BACK_WGMMA && COLS == 2 && WARPS == 8,
              "two warpgroups compute; of each warp, a thread has two keys");

// Of a thread, out of 64 K in all: what the loading warpgroup gives up goes to the others.
constexpr int LOADER_REGISTERS = 24;
constexpr int WORKER_REGISTERS = 240;

constexpr int BACK_SMEM_LIMIT = 232448;

// Whether warps with products, too, say what they wait for: such a call among them makes wgmma wait for each other. The
// warps that load and add know who is missing.
constexpr bool BOUND_WORKERS = false;

// ---- what the warps tell each other ------------------------------------------------------------------

// Beside each stage stands the position of its tile: 16 times the tile, plus what it has for each warpgroup, a
// tile_class of two bits; and the head of the group, with the last one LAST. NO_TILE takes the first stage where there
// is no tile at all.
constexpr u32 LAST = 1u << 31;
constexpr u32 NO_TILE = ~0u;

struct tile_position {
    u32 word;
    int head; // of the group
    bool last;
    __device__ __forceinline__ int row0() const { return static_cast<int>(word >> 4) * BM; }
    __device__ __forceinline__ int tile() const { return static_cast<int>(word >> 4); }
    __device__ __forceinline__ int class_of(u32 group) const { return static_cast<int>(word >> (2 * group) & 3u); }
};
DEV u32 class_bits(int first, int second) { return static_cast<u32>(first | second << 2); }
DEV void put_position(u32 place, const position &now, u32 classes, bool last)
{
    store_shared(place, static_cast<u32>(16 * now.tile) + classes);
    store_shared(place + 4, static_cast<u32>(now.head) | (last ? LAST : 0u));
}
// As registers of the warp.
DEV tile_position get_position(u32 place)
{
    const u32 word = __shfl_sync(ALL_LANES, __float_as_uint(load_shared(place)), 0);
    const u32 head = __shfl_sync(ALL_LANES, __float_as_uint(load_shared(place + 4)), 0);
    return {word, static_cast<int>(head & ~LAST), (head & LAST) != 0};
}

// Number of the thread's warpgroup among those that compute, as one register for the warp.
DEV u32 worker_group() { return __shfl_sync(ALL_LANES, fresh_thread() / 128 - 1, 0); }

// The keys of the block of this number, in shared memory at `place`: found once, by one thread.
DEV void put_block(u32 place, const key_block &at)
{
    store_shared(place, static_cast<u32>(at.b));
    store_shared(place + 4, static_cast<u32>(at.h_kv));
    store_shared(place + 8, static_cast<u32>(at.tile));
    store_shared(place + 12, static_cast<u32>(at.group));
}
DEV void put_no_block(u32 place) { store_shared(place + 12, 0u); } // of no heads
DEV key_block find_block(u32 place)
{
    const uint4 at = load_shared16(place);
    const int tile = static_cast<int>(at.z);
    return {static_cast<int>(at.x), static_cast<int>(at.y), tile, tile * BN, static_cast<int>(at.w)};
}

// Row values of a tile to `to`, announced at `full`.
DEV void load_rows(const back_params &p, u32 to, u32 full, int b, int h, int tile)
{
    const i64 stride = static_cast<i64>(query_tiles(p.z)) * BM * own_batches(p) * p.z.n_h;
    const i64 line = tile_line(p.z, own_batch(p, b), h) + tile;
    const float *from = p.rows + line * BM;
#pragma unroll
    for (int k = 0; k < variant::BACK_ROWS; k++) {
        tma_load_line(to + static_cast<u32>(k * BM * 4), from + k * stride, BM * 4, full);
    }
    if constexpr (NORM_RECORDS) {
        const float *records = p.rows + ROW_VALUES * stride + line * (BM / NORM_ROWS * (RECORD_BYTES / 4));
        tma_load_line(record_place(to, 0), records, BM / NORM_ROWS * RECORD_BYTES, full);
    }
}

} // namespace back
