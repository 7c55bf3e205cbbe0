// attention/fwd_sm90_layout.cuh: what attention kernels for sm_90a take, where everything lies in shared memory,
// how many registers each role has, and which rows a warp works on.
#pragma once
#include "attention/key_tiles.cuh"
#include "attention/scheduler_sm90.cuh"
#include "attention/sequences.cuh"
#include "common/tma_sm90.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
// Of numbers of e4m3 (common/wgmma_fp8_sm90.cuh), whose V comes turned over (attention/turned_values.cuh).
constexpr bool EIGHT_BITS = ELEMENT_BYTES<cfg::operand> == 1;
constexpr int DEPTH = 32 / ELEMENT_BYTES<cfg::operand>; // of one wgmma
static_assert(same_type<cfg::operand, f16> || same_type<cfg::operand, bf16> || EIGHT_BITS,
              "cfg::operand is f16, bf16 or f8_e4m3");
static_assert(cfg::D % (DEPTH / 2) == 0 && cfg::D_V % 8 == 0,
              "rows of cfg::D and of cfg::D_V elements are multiples of 16 bytes, as are strides that TMA takes");
static_assert(cfg::D_PAD == round_up(cfg::D, DEPTH), "cfg::D_PAD is cfg::D rounded up to the depth of one wgmma");
constexpr int QK_WORDS = cfg::D_PAD * ELEMENT_BYTES<cfg::operand> / 2; // of a row, as panels count them
static_assert(cfg::DV_PAD == round_up(cfg::D_V, cfg::D_V > 256 ? 128 : 16) && cfg::DV_PAD <= 512,
              "cfg::DV_PAD is cfg::D_V rounded up to 16, beyond 256 to 128, and at most 512");
static_assert(cfg::WARPS % 4 == 0 && cfg::WARPS >= 4 && cfg::WARPS <= 16,
              "cfg::WARPS, those that compute, is 4, 8, 12 or 16");
static_assert(cfg::BM == (cfg::DV_PAD > 256 ? 8 : 16) * cfg::WARPS,
              "cfg::BM is 16 cfg::WARPS: a warp owns 16 rows; beyond 256 columns of o two warps share them");
static_assert(cfg::BN % DEPTH == 0 && cfg::BN >= 16 && cfg::BN <= 128,
              "cfg::BN is a multiple of the depth of one wgmma in 16 .. 128");
static_assert(cfg::STAGES >= 1 && cfg::STAGES <= 5,
              "cfg::STAGES is 1 .. 5: shared_layout::ROUNDS query tiles are for no more");
static_assert(cfg::Q_STAGES == 1 || cfg::Q_STAGES == 2, "cfg::Q_STAGES is 1 or 2");
static_assert(!cfg::PACK || (!variant::MAP && !variant::DIAG),
              "cfg::PACK: rows of a tile that are one token each cannot share diagonals, nor a map's classes");
constexpr bool SEQUENCES = HAS_SEQUENCES<attention_params>; // packed ones, pages, or batches with keys in use
static_assert(!SEQUENCES || (!cfg::PACK && !variant::MAP && cfg::DYNAMIC),
              "sequences have tiles of one head each, no map, and tiles of all lengths");

static_assert(!EIGHT_BITS || (!SEQUENCES && cfg::D2 == 0 && cfg::DV_PAD <= 256),
              "of 8 bits there are no sequences, no q2 and k2, and no wider v");
static_assert(cfg::D2 == 0 || (cfg::D2 % 64 == 0 && (cfg::D - cfg::D2) % 64 == 0),
              "a panel of Q and K is of one tensor");

// What the kernel takes; the maps are made of the rest at launch.
template <class PARAMS> struct behind_maps {
    tensor_map q, k, v, o; // o: where cfg::OWN_O and not cfg::O_F32
    PARAMS p;
};
template <class PARAMS>
requires requires(PARAMS p) { p.q2; }
struct behind_maps<PARAMS> { // the last cfg::D2 columns of q and k are tensors of their own
    tensor_map q, k, v, o, q2, k2;
    PARAMS p;
};
using hopper_params = behind_maps<attention_params>;

// One wgmma holds at most 256 columns of o. Where there are more, two warpgroups have the same rows, and so the same
// scores, and half of the columns each.
constexpr int SHARERS = 16 * cfg::WARPS / cfg::BM;
constexpr int O_COLUMNS = cfg::DV_PAD / SHARERS;
// The hardware's sums of products of e4m3 keep some 14 bits along a chain of wgmmas. Where there are registers, a chain
// is of one tile of keys, and o gathers those in fp32.
constexpr bool TILE_SUMS = EIGHT_BITS && O_COLUMNS <= 128;

// ---- shared memory -----------------------------------------------------------------------------------

constexpr int SMEM_LIMIT = 232448;

struct shared_layout {                            // offsets in bytes
    static constexpr int GROUPS = cfg::WARPS / 4; // warpgroups that compute
    static constexpr int K_BYTES = cfg::BN * cfg::D_PAD * ELEMENT_BYTES<cfg::element_k>;
    static constexpr int V_BYTES = cfg::BN * cfg::DV_PAD * ELEMENT_BYTES<cfg::element_v>;
    static constexpr int Q_BYTES = 64 * cfg::D_PAD * ELEMENT_BYTES<cfg::element_q>; // of a warpgroup
    static constexpr int O_BYTES = cfg::OWN_O && !cfg::O_F32 ? 64 * O_COLUMNS * ELEMENT_BYTES<cfg::element_o> : 0;
    static constexpr int ROUNDS = 8;                      // query tiles, see round_place
    static constexpr int DIAG_BYTES = 4 * (64 + cfg::BN); // of one table; a warpgroup has two
    static constexpr int O = cfg::Q_STAGES * Q_BYTES;     // within a warpgroup's slab; Q is first
    static constexpr int SLAB = O + O_BYTES;
    static constexpr int K = GROUPS * SLAB; // stages, one after the other
    static constexpr int V = K + round_up(cfg::STAGES * K_BYTES, 1024);
    static constexpr int TILES = V + round_up(cfg::STAGES * V_BYTES, 1024); // of each stage of K: 8 bytes
    static constexpr int K_RING = TILES + 8 * cfg::STAGES;
    static constexpr int V_RING = K_RING + ring_barriers<cfg::STAGES>::BYTES;
    static constexpr int Q_RING = V_RING + ring_barriers<cfg::STAGES>::BYTES;           // of each warpgroup
    static constexpr int ROUND = Q_RING + GROUPS * ring_barriers<cfg::Q_STAGES>::BYTES; // 16 bytes each
    static constexpr int TOLD = ROUND + 16 * ROUNDS;  // two barriers each: it stands there, and its last K is next
    static constexpr int TOKENS = TOLD + 16 * ROUNDS; // where SEQUENCES: 16 bytes each, as ROUND
    static constexpr int ORDER = TOKENS + (SEQUENCES ? 16 * ROUNDS : 0); // attention/sequence_tiles_sm90.cuh
    static constexpr int DIAG = ORDER + (SEQUENCES ? 16 : 0);
    static constexpr int BYTES = DIAG + (variant::DIAG ? GROUPS * 2 * DIAG_BYTES : 0);
    static_assert(GROUPS <= 4 && Q_BYTES % 1024 == 0 && SLAB % 1024 == 0, "slabs start on multiples of their pattern");
    static_assert(BYTES <= SMEM_LIMIT, "a block has at most 227 KiB of shared memory");
};
namespace smem_bytes
{
constexpr int fwd = shared_layout::BYTES;
}

constexpr int THREADS = 128 + cfg::WARPS * 32;
constexpr int NB = cfg::BN / 8;
constexpr int DB = O_COLUMNS / 8;

// Of a thread, out of 64 K in all: what the loading warpgroup gives up goes to the others.
constexpr bool SHARED_OUT = cfg::WARPS > 4; // else there are as many for each as one can have
constexpr int LOADER_REGISTERS = cfg::WARPS == 8 ? 40 : 32;
constexpr int WORKER_REGISTERS = cfg::WARPS == 8 ? 232 : cfg::WARPS == 12 ? 160 : 112;

// ---- which rows --------------------------------------------------------------------------------------

// Number of the thread's warpgroup among those that compute, as one register for the warp.
DEV u32 worker_group() { return __shfl_sync(ALL_LANES, fresh_thread() / 128 - 1, 0); }

// Where a warp of those that compute works in a query tile: row i of a warpgroup's 64 is token i / heads of
// head h + i % heads.
struct hopper_place {
    int b, h, heads;
    int share; // share_of_head
    int query_tile;
    int row0;         // first token of the block's tile
    int tokens;       // of a warpgroup
    int group, first; // the warpgroup among those with rows of their own; the thread's first row in it
    int column0;      // of o
    int lane, len_q;

    __device__ __forceinline__ bool leads() const { return column0 == 0; } // of the warps with these rows
    __device__ __forceinline__ int group_row0() const { return row0 + group * tokens; }
    __device__ __forceinline__ int head(int r) const
    {
        return cfg::PACK ? h + first + mma_fragment<1>::row(r) - token(r) * heads : h;
    }
    // The token of the thread's row r: the warpgroup's n'th,
    __device__ __forceinline__ int token(int r) const
    {
        return (first + mma_fragment<1>::row(r)) * share >> SHARE_BITS;
    }
    // and as a row; len_q where it is none's.
    __device__ __forceinline__ int row(int r) const
    {
        if constexpr (cfg::PACK) {
            return token(r) < tokens ? group_row0() + token(r) : len_q;
        } else {
            return group_row0() + first + mma_fragment<1>::row(r);
        }
    }
};

// share: share_of_head; warp: of those that compute.
DEV hopper_place find_place(const attention_params &p, const query_tile &tile, int share, int warp)
{
    hopper_place at;
    at.b = tile.b;
    at.h = tile.h;
    at.heads = packed_heads(p);
    at.query_tile = tile.number;
    at.share = share;
    at.tokens = 64 * share >> SHARE_BITS;
    at.row0 = at.query_tile * (cfg::BM / 64) * at.tokens;
    at.group = warp / 4 / SHARERS;
    at.column0 = warp / 4 % SHARERS * O_COLUMNS;
    at.lane = lane_id();
    at.first = warp % 4 * 16 + mma_fragment<1>::first_row(at.lane);
    at.len_q = p.z.len_q;
    return at;
}

// ---- what the warps tell each other ------------------------------------------------------------------

using place = ring_place<cfg::STAGES>;
using q_place = ring_place<cfg::Q_STAGES>;

struct rings {
    ring_barriers<cfg::STAGES> k, v;
    DEV rings at(u32 shared) { return {{shared + shared_layout::K_RING}, {shared + shared_layout::V_RING}}; }
    DEV ring_barriers<cfg::Q_STAGES> q(u32 shared, u32 group) // of a warpgroup
    {
        return {shared + shared_layout::Q_RING + ring_barriers<cfg::Q_STAGES>::BYTES * group};
    }
};

// A key tile with what the mask leaves of it: KEY_TILE times its number, and two bits for each warpgroup (enum
// tile_class), of which some are set. Beside each stage of K stands its tile, and then the one after it in the query
// tile, so that those who read know what comes before they wait for it. NO_TILE comes after the last one, and takes a
// stage where there is none at all.
constexpr int KEY_TILE = 256;
constexpr int NO_TILE = 0;
constexpr int WHOLE_BITS = 0xaa; // of all warpgroups
static_assert(TILE_NONE == 0 && TILE_SOME == 1 && TILE_ALL == 2 && TILE_CUT == 3, "two bits tell which");
DEV u32 tile_words(u32 shared, u32 stage) { return shared + shared_layout::TILES + 8 * stage; }

// Where a query tile stands, of the block's n'th at ROUND, n % ROUNDS: number, head, batch and key head, by the warp
// that loads Q. The one that loads K waits at the place's barrier; the others have learned of it when they have their
// Q, of which a query tile NONE has no bytes. Which one is next is found out when of the one before the last K is about
// to be loaded, and not earlier: blocks that are done sooner take more. A place is written again when all have left the
// Q of the one Q_STAGES + 1 before: 8 are enough.
DEV u32 round_place(u32 shared, u32 round)
{
    return shared + shared_layout::ROUND + 16 * (round % shared_layout::ROUNDS);
}
DEV u32 told_barrier(u32 shared, u32 round)
{
    return shared + shared_layout::TOLD + 16 * (round % shared_layout::ROUNDS);
}
DEV u32 ending_barrier(u32 shared, u32 round) { return told_barrier(shared, round) + 8; }
DEV void write_round(u32 shared, u32 round, const query_tile &tile, u32 h_kv)
{
    const u32 to = round_place(shared, round);
    store_shared(to, static_cast<u32>(tile.number));
    store_shared(to + 4, static_cast<u32>(tile.h));
    store_shared(to + 8, static_cast<u32>(tile.b));
    store_shared(to + 12, h_kv);
}
DEV u32 round_parity(u32 round) { return round / shared_layout::ROUNDS & 1u; }
DEV int read_for_warp(u32 address) // as one register for the warp
{
    return static_cast<int>(__shfl_sync(ALL_LANES, __float_as_uint(load_shared(address)), 0));
}
DEV query_tile read_round(u32 shared, u32 round)
{
    const u32 from = round_place(shared, round);
    return {read_for_warp(from), read_for_warp(from + 4), read_for_warp(from + 8)};
}

// A map of sequences counts the tokens of all: how many of a tensor's lie from one batch, or page, to the next.
enum map_of { OF_Q, OF_K, OF_V, OF_O, OF_Q2, OF_K2 };
template <class PARAMS> constexpr bool HAS_APART = requires(PARAMS p) { p.apart; };
template <map_of TENSOR, class PARAMS> DEV int find_apart(const PARAMS &p)
{
    if constexpr (HAS_APART<PARAMS>) {
        return static_cast<int>(p.apart[TENSOR]);
    } else {
        return 0;
    }
}

// Where the tokens of a query tile's batch are. Of dense tensors: all of that batch, and parameters are those of the
// launch.
template <class PARAMS, bool HERE = HAS_SEQUENCES<PARAMS>> struct round_tokens {
    using rows = int; // of a tensor, as TMA is told
    DEV round_tokens read(u32, u32) { return {}; }
    __device__ __forceinline__ void write(u32, u32) const {}
    __device__ __forceinline__ const PARAMS &enter(const PARAMS &launched) const { return launched; }
    template <map_of> __device__ __forceinline__ rows queries(const PARAMS &, int b) const { return b; }
    __device__ __forceinline__ rows keys(int b) const { return b; }
};
// Of sequences: found by the warp that loads Q, told beside the query tile, and parameters are as of a dense launch of
// that sequence alone.
template <class PARAMS> struct round_tokens<PARAMS, true> {
    using rows = sequence_rows;
    sequences::extent at;
    DEV u32 place(u32 shared, u32 round)
    {
        return shared + shared_layout::TOKENS + 16 * (round % shared_layout::ROUNDS);
    }
    DEV round_tokens read(u32 shared, u32 round)
    {
        const u32 from = place(shared, round);
        return {{read_for_warp(from), read_for_warp(from + 4), read_for_warp(from + 8), read_for_warp(from + 12)}};
    }
    __device__ __forceinline__ void write(u32 shared, u32 round) const
    {
        const u32 to = place(shared, round);
        store_shared(to, static_cast<u32>(at.first_q));
        store_shared(to + 4, static_cast<u32>(at.first_kv));
        store_shared(to + 8, static_cast<u32>(at.len_q));
        store_shared(to + 12, static_cast<u32>(at.len_kv));
    }
    __device__ __forceinline__ PARAMS enter(const PARAMS &launched) const
    {
        PARAMS p = launched;
        sequences::enter(p, at);
        return p;
    }
    template <map_of TENSOR> __device__ __forceinline__ rows queries(const PARAMS &launched, int b) const
    {
        return {at.first_q + b * find_apart<TENSOR>(launched), at.len_q};
    }
    __device__ __forceinline__ rows keys(int) const { return {at.first_kv, at.len_kv}; }
};
using tokens_at = round_tokens<attention_params>;
