// attention/selected.cuh: attention of each token to blocks of keys of a list of its own, which the query heads of a
// key head share; sm_80 and up.
//
// A block has a token and a key head, whose query heads are its rows, 16 at a time. Its warps take turns in the list's
// tiles of BN keys, each with a ring of its own, as in attention/decode.cuh, and put their parts of a row together at
// the end. A key stands at its place among all keys, so the ends of a row (a causal mask, a window) hold within a
// block, too. An entry that is no block, or that came before, is passed over: lists choose keys, they do not count
// them. Time is the bytes of the blocks, which tokens beside each other find in L2.
//
// Launch: n_b * n_h_kv * len_q blocks of THREADS threads; of packed sequences n_h_kv * (tokens + sequences).
#pragma once
#include "attention/decode_warp.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(merged_variant<variant, inputs>, "variant.gen.cuh does not say how parts of a row are merged");
static_assert(variant::SELECTED >= 1 && variant::SELECTED <= decode::THREADS, "a thread reads an entry of the list");
static_assert(variant::SELECTED_KEYS % cfg::BN == 0, "a block of keys is tiles of BN");
static_assert(!variant::SCATTERED, "within the blocks of its list a row's keys are an interval");

namespace decode
{

constexpr int LIST = layout::BYTES; // in shared memory, behind what decode::layout has
constexpr int BLOCK_TILES = variant::SELECTED_KEYS / cfg::BN;
constexpr int NO_BLOCK = -1;

// ---- which token -------------------------------------------------------------------------------------

// Tokens of a key head lie beside each other. p becomes that of the token's sequence. False: there is no token.
template <class PARAMS> DEV bool find_token(PARAMS &p, work &w, int &token)
{
    const u32 block = blockIdx.x;
    w.group = p.z.group();
    w.wide = false;
    w.part = 0;
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        if (p.cu_q != nullptr) {
            if (p.z.n_b == 0) {
                return false;
            }
            const u32 slots = static_cast<u32>(p.z.len_q + p.z.n_b);
            w.h_kv = static_cast<int>(block / slots);
            const sequences::tile found =
                sequences::find<1>(sequences::queries(p), p.z.n_b, static_cast<int>(block % slots));
            w.b = found.b;
            token = found.number;
            sequences::enter(p, w.b);
            return token >= 0 && token < p.z.len_q;
        }
    }
    const u32 tokens = static_cast<u32>(p.z.len_q);
    const u32 head = block / tokens;
    token = static_cast<int>(block - head * tokens);
    w.b = static_cast<int>(head / static_cast<u32>(p.z.n_h_kv));
    w.h_kv = static_cast<int>(head % static_cast<u32>(p.z.n_h_kv));
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        sequences::enter(p, w.b);
    }
    return true;
}

// ---- its list ----------------------------------------------------------------------------------------

DEV int entry_at(u32 shared, int i)
{
    return static_cast<int>(__float_as_uint(load_shared(shared + static_cast<u32>(LIST + i * 4))));
}
DEV void set_entry(u32 shared, int i, int block)
{
    store_shared(shared + static_cast<u32>(LIST + i * 4), static_cast<u32>(block));
}

// To shared memory: every block once.
DEV void read_list(const attention_params &p, const work &w, u32 shared, int token)
{
    const int own = static_cast<int>(threadIdx.x);
    int block = NO_BLOCK;
    if (own < variant::SELECTED) {
        const variant::head head = variant::make_head(p.x, p.z, w.b, w.h_kv * w.group);
        const variant::row row = variant::make_row(p.x, p.z, head, token);
        block = variant::selected(p.x, p.z, head, row, own);
        block = block >= 0 && block <= (p.z.len_kv - 1) / variant::SELECTED_KEYS && p.z.len_kv > 0 ? block : NO_BLOCK;
        set_entry(shared, own, block);
    }
    __syncthreads();
    bool again = false;
    if (own < variant::SELECTED) {
        for (int i = 0; i < own; i++) {
            again = again | (entry_at(shared, i) == block);
        }
    }
    __syncthreads();
    if (again) {
        set_entry(shared, own, NO_BLOCK);
    }
    __syncthreads();
}

// The tiles of a list that are a warp's, every WARPS'th of those of all entries. All lanes get the same answers; each
// looks at a tile ahead of the walk.
struct list_cursor {
    static constexpr int TILES = variant::SELECTED * BLOCK_TILES;
    u32 shared;
    int some_first, some_last; // keys that are live in any of the rows,
    int all_first, all_last;   // and in all of them
    int next_turn;             // the warp's tiles before the 32 at hand
    u32 low, high;             // bits of the classes of those that are still to come

    __device__ __forceinline__ void start(const attention_params &p, const work &w, u32 memory)
    {
        shared = memory;
        some_first = p.z.len_kv;
        some_last = -1;
        all_first = 0;
        all_last = p.z.len_kv - 1;
        if (lane_id() < w.rows) {
            const packed::row r = w.row(p.x, p.z, lane_id());
            some_first = all_first = max(variant::first_key(p.x, p.z, r.head, r.at), 0);
            some_last = all_last = min(variant::last_key(p.x, p.z, r.head, r.at), p.z.len_kv - 1);
        }
        some_first = warp_min(some_first);
        some_last = warp_max(some_last);
        all_first = warp_max(all_first);
        all_last = warp_min(all_last);
        next_turn = 0;
        low = 0;
        high = 0;
    }
    __device__ __forceinline__ int tile_of(int turn) const // of those of all entries
    {
        return static_cast<int>(threadIdx.x / 32) + turn * cfg::WARPS;
    }
    __device__ __forceinline__ int number_of(int tile) const // among all keys; less than 0: there is no such tile
    {
        const int block = entry_at(shared, tile / BLOCK_TILES);
        return block == NO_BLOCK ? NO_BLOCK : block * BLOCK_TILES + tile % BLOCK_TILES;
    }
    __device__ __forceinline__ u32 class_of(int number) const
    {
        const int kv0 = number * cfg::BN;
        const int kv1 = kv0 + cfg::BN - 1;
        const bool none = number < 0 || kv0 > some_last || kv1 < some_first;
        const bool all = kv0 >= all_first && kv1 <= all_last;
        return static_cast<u32>(none ? TILE_NONE : all ? TILE_ALL : TILE_CUT);
    }

    // Four times the next tile's number, plus its class; or less than 0.
    __device__ __forceinline__ int next(const attention_params &, const work &)
    {
#pragma unroll 1
        while ((low | high) == 0) {
            if (tile_of(next_turn) >= TILES) {
                return tile_cursor::END;
            }
            const int mine = tile_of(next_turn + lane_id());
            const u32 c = mine < TILES ? class_of(number_of(mine)) : static_cast<u32>(TILE_NONE);
            low = __ballot_sync(ALL_LANES, (c & 1u) != 0);
            high = __ballot_sync(ALL_LANES, (c & 2u) != 0);
            next_turn += 32;
        }
        const int bit = __ffs(static_cast<int>(low | high)) - 1;
        const int code =
            4 * number_of(tile_of(next_turn - 32 + bit)) + static_cast<int>((high >> bit & 1u) * 2 + (low >> bit & 1u));
        low &= ~(1u << bit);
        high &= ~(1u << bit);
        return code;
    }
};

// ---- up to 16 heads ----------------------------------------------------------------------------------

// o and finals of the rows, of what the warps have of them.
DEV void end_rows(warp_rows &own, const attention_params &p, const work &w, u32 shared, int token)
{
    const int first = mma_fragment<1>::first_row(lane_id());
    __syncthreads(); // no one reads the ring
    share_records(own, shared, first);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        bool any = false;
        merge t;
        const shared_parts parts{shared, i};
        parts([&](const variant::state &) { any = true; });
        merge_states<no_share>(t, parts, p.x, p.z);
        float finals[variant::FINALS > 0 ? variant::FINALS : 1];
        const packed::row &row = own.rows.row[r];
        const float end = variant::finish(merge::merged(t, p.x, p.z), finals, p.x, p.z, row.head, row.at);
        if (!any) {
            variant::empty_finals(finals, p.x, p.z, row.head, row.at);
        }
        if (threadIdx.x < 32 && mma_fragment<1>::leads(lane_id()) && i < w.rows) {
            variant::store_finals(p, w.b, w.head(i), token, finals);
        }
        share_o(own, shared, i, r, merge::factor(own.rows.state[r], t, p.x, p.z) * end, (own.rows.seen >> r & 1u) != 0);
    }
    __syncthreads();
    constexpr int PIECES = cfg::D_V / 4;
    for (int piece = static_cast<int>(threadIdx.x); piece < w.rows * PIECES; piece += THREADS) {
        const int i = piece / PIECES;
        const int column = piece % PIECES * 4;
        bool any = false;
        const shared_parts parts{shared, i};
        parts([&](const variant::state &) { any = true; });
        const float4 sum = sum_of_warps(shared, i, column);
        const float x[4] = {sum.x, sum.y, sum.z, sum.w};
        store_piece(p, w.b * p.o_b + w.head(i) * p.o_h + token * p.o_t + column, x, 1.0f, any);
    }
}

DEV void attend(const attention_params &p, const work &w, u32 shared, int token)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = mma_fragment<1>::first_row(lane_id());
    stream<list_cursor> mine;
    mine.cursor.start(p, w, shared);
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
    int stage = 0; // of the tile at hand
    int fill = cfg::STAGES - 1;
#pragma unroll 1
    while (true) {
        copy_wait<cfg::STAGES - 2>();
        __syncwarp();
        mine.bring_next(p, w, shared, fill);
        const int code = static_cast<int>(__float_as_uint(load_shared(layout::code(shared, warp, stage))));
        if (code < 0) {
            break;
        }
        meet_tile(own, a, layout::stage(shared, warp, stage), code);
        fill = stage;
        stage = stage + 1 == cfg::STAGES ? 0 : stage + 1;
    }
    copy_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(own.rows.state[r], sum_of_four{});
    }
    end_rows(own, p, w, shared, token);
}

} // namespace decode

// ---- kernel ------------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int fwd = decode::LIST + variant::SELECTED * 4;
}

#if LATHE_COMPILED(fwd)
extern "C" __global__ void __launch_bounds__(decode::THREADS)
    LATHE_ENTRY(fwd)(const __grid_constant__ attention_params launched)
{
    using namespace decode;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    auto &&p = own_params(launched);
    work w;
    int token = 0;
    if (!find_token(p, w, token)) {
        return;
    }
    read_list(p, w, shared, token);
#pragma unroll 1
    for (int head = 0; head < w.group; head += WARP_ROWS) {
        w.row0 = token * w.group + head;
        w.rows = min(WARP_ROWS, w.group - head);
        attend(p, w, shared, token);
        __syncthreads(); // o has been read where the ring begins anew
    }
}
#endif
