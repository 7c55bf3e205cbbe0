// attention/decode_rows.cuh: which rows of queries and which keys a block of attention/decode.cuh has.
//
// The rows of a key head are the tokens of all query heads of its group, heads fastest: row i is token i / group of
// head i % group. Up to 16 of them make one tile, of which every warp has its own keys; more make tiles of 16 WARPS,
// whose warps share their keys. Of packed sequences each has tiles of its own, however many tokens it has. The keys
// that the mask leaves to any of a tile's rows are cut into as many parts as the launch has for a tile, or fewer, where
// they would have less than LEAST_KEYS each: how many follows from lengths that the device knows. Where a variant
// has OWN_KEYS (deterministic=batch), the number of a tile's own keys decides it alone (own_part_tiles).
#pragma once
#include "attention/elements.cuh"
#include "attention/row_states.cuh"
#include "attention/score_passes.cuh"
#include "attention/sequences.cuh"

// What parts of a row ask of a variant, beside what every kernel does.
template <class V, class I>
concept merged_variant = row_states_variant<V, I> && requires
{
    static_cast<bool>(V::MASK_BY_HEAD);
};
// And parts that are merged by another kernel.
template <class V, class I, class P>
concept parts_variant = merged_variant<V, I> && requires(const P &p)
{
    p.part_o;
    p.part_rows;
    p.parts;
};

namespace decode
{

using namespace row_states;

constexpr int THREADS = cfg::WARPS * 32;
constexpr int WARP_ROWS = 16;
constexpr int LEAST_KEYS = 256; // of a part, in runtime/recipe/signature.c, too

// ---- rows of several heads in a tile -----------------------------------------------------------------

// The variant, with a head in each row, and columns that are known by their number alone.
struct packed : variant {
    struct head {
    };
    struct row {
        variant::row at;
        variant::head head;
    };
    struct col {
        int kv;
    };
    static constexpr bool DIAG = false, SHARED_COLS = false, ELEMENT_COLS = true;
    static __device__ __forceinline__ col make_col(const inputs &, const sizes &, const head &, int kv) { return {kv}; }
    static __device__ __forceinline__ variant::col col_of(const inputs &x, const sizes &z, const row &r, const col &c)
    {
        return variant::make_col(x, z, r.head, c.kv);
    }
    static __device__ __forceinline__ int first_key(const inputs &x, const sizes &z, const head &, const row &r)
    {
        return variant::first_key(x, z, r.head, r.at);
    }
    static __device__ __forceinline__ int last_key(const inputs &x, const sizes &z, const head &, const row &r)
    {
        return variant::last_key(x, z, r.head, r.at);
    }
    static __device__ __forceinline__ bool among(const inputs &x, const sizes &z, const head &, const row &r,
                                                 const col &c)
    {
        return variant::among(x, z, r.head, r.at, col_of(x, z, r, c));
    }
    static __device__ __forceinline__ void begin(tile &t, const state &s, const inputs &x, const sizes &z, const head &,
                                                 const row &r, int kv0)
    {
        variant::begin(t, s, x, z, r.head, r.at, kv0);
    }
    template <int P>
    static __device__ __forceinline__ float diagonal(const inputs &x, const sizes &z, const row &r, const col &c)
    {
        if constexpr (P == 0 && variant::DIAG) {
            return variant::make_diag(x, z, r.head, r.at.q - c.kv);
        } else {
            return 0.0f;
        }
    }
    template <int P> static __device__ __forceinline__ float
    element(float e, const inputs &x, const sizes &z, const head &, const row &r, const col &c, float, const tile &t)
    {
        return variant::template element<P>(e, x, z, r.head, r.at, col_of(x, z, r, c), diagonal<P>(x, z, r, c), t);
    }
    template <int R> static __device__ __forceinline__ float
    operand(float e, const inputs &x, const sizes &z, const head &, const row &r, const col &c, float, const tile &t)
    {
        return variant::template operand<R>(e, x, z, r.head, r.at, col_of(x, z, r, c),
                                            diagonal<variant::REDUCE_PASS[R]>(x, z, r, c), t);
    }
    template <int P> static __device__ __forceinline__ void update(tile &t, const state &s, const float *red,
                                                                   const inputs &x, const sizes &z, const head &,
                                                                   const row &r, int kv0)
    {
        variant::template update<P>(t, s, red, x, z, r.head, r.at, kv0);
    }
};
using at_rows = at_head_of<packed>;

// ---- what a block has --------------------------------------------------------------------------------

// All rows of the launch, in each of its parts: those of tensors, of which packed sequences are one batch.
struct row_places {
    int batches, n_h, tokens;
    __device__ __forceinline__ i64 n() const { return static_cast<i64>(batches) * n_h * tokens; }
    __device__ __forceinline__ i64 number(int batch, int h, int token) const
    {
        return (static_cast<i64>(batch) * n_h + h) * tokens + token;
    }
};
template <class PARAMS> DEV bool is_packed(const PARAMS &p)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return p.cu_q != nullptr;
    }
    return false;
}
template <class PARAMS> DEV row_places places_of_rows(const PARAMS &launched)
{
    return {is_packed(launched) ? 1 : launched.z.n_b, launched.z.n_h, launched.z.len_q};
}

struct work {
    int b, h_kv, group;
    int row0, rows; // of the key head's rows: the first one, and how many
    int part;
    bool wide; // rows are shared out among the warps, and keys are not
    row_places all;
    int batch, first; // of token 0 among all rows

    __device__ __forceinline__ int token(int i) const
    {
        return static_cast<int>(static_cast<u32>(row0 + i) / static_cast<u32>(group));
    }
    __device__ __forceinline__ int head(int i) const
    {
        return h_kv * group + static_cast<int>(static_cast<u32>(row0 + i) % static_cast<u32>(group));
    }
    // of all rows
    __device__ __forceinline__ i64 number(int i) const { return all.number(batch, head(i), first + token(i)); }
    __device__ __forceinline__ packed::row row(const inputs &x, const sizes &z, int i) const
    {
        packed::row r;
        r.head = variant::make_head(x, z, b, head(i));
        r.at = variant::make_row(x, z, r.head, token(i));
        return r;
    }
};

// Of packed sequences: the slot's tile of one, if there is one.
template <class PARAMS> DEV int find_packed(const PARAMS &p, work &w, u32 tile)
{
    sequences::places of = sequences::queries(p);
    of.rows = w.group;
    const sequences::tile found =
        sequences::find<cfg::BM>(of, p.z.n_b, static_cast<int>(tile / static_cast<u32>(p.z.n_h_kv)));
    w.b = found.b;
    w.h_kv = static_cast<int>(tile % static_cast<u32>(p.z.n_h_kv));
    w.batch = 0;
    w.first = of.at(w.b);
    return found.number;
}

// BY_WARPS: a tile has 16 rows, or 16 of each warp; else cfg::BM. Parts of a tile of rows lie beside each other. p
// becomes that of the sequence. False: there are no rows, since nothing on the host knows where packed sequences end.
template <bool BY_WARPS = true, class PARAMS> DEV bool find_work(PARAMS &p, work &w)
{
    static_assert(!BY_WARPS || cfg::BM == WARP_ROWS * cfg::WARPS, "tiles of packed sequences are counted by cfg::BM");
    const auto of_tile = [](u32 rows) { return static_cast<u32>(!BY_WARPS || rows > WARP_ROWS ? cfg::BM : WARP_ROWS); };
    const u32 parts = static_cast<u32>(p.parts);
    const u32 tile = blockIdx.x / parts;
    w.part = static_cast<int>(blockIdx.x - tile * parts);
    w.group = p.z.group();
    w.all = places_of_rows(p);
    int number = 0;
    bool packed = false;
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        packed = is_packed(p);
        if (packed && p.z.n_b == 0) {
            return false;
        }
        number = packed ? find_packed(p, w, tile) : 0;
    }
    if (!packed) {
        const u32 all = static_cast<u32>(p.z.len_q * w.group);
        const u32 tiles = (all + of_tile(all) - 1) / of_tile(all);
        const u32 head = tile / tiles;
        w.b = static_cast<int>(head / static_cast<u32>(p.z.n_h_kv));
        w.h_kv = static_cast<int>(head % static_cast<u32>(p.z.n_h_kv));
        w.batch = w.b;
        w.first = 0;
        number = static_cast<int>(tile - head * tiles);
    }
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        sequences::enter(p, w.b);
    }
    const u32 rows = static_cast<u32>(p.z.len_q * w.group);
    const u32 row0 = static_cast<u32>(number) * of_tile(rows);
    w.wide = rows > WARP_ROWS;
    w.row0 = static_cast<int>(row0);
    w.rows = static_cast<int>(min(of_tile(rows), rows - row0));
    return !packed || (number >= 0 && row0 < rows);
}

// The tiles of a part, as follows from how many tiles there are and nothing else: so the sums of a row have one order,
// whatever else is in the batch. For few rows there are as many parts as keep a GPU busy with a few heads, then as many
// as there may be. Where the launch has one part it cuts no row of any length; else it has enough parts
// (lathe__own_key_parts).
template <int LEAST> DEV int own_part_tiles(int tiles, int parts)
{
    constexpr int WANTED = 16, GOOD_KEYS = 1024, MOST_PARTS = 128; // in runtime/recipe/signature.c, too
    const int wanted = min(max((tiles + WANTED - 1) / WANTED, LEAST / cfg::BN), GOOD_KEYS / cfg::BN);
    return parts == 1 ? tiles : max(wanted, (tiles + MOST_PARTS - 1) / MOST_PARTS);
}
template <class V> DEV int part_tiles(int tiles, int parts)
{
    if constexpr (requires { V::OWN_KEYS; }) {
        return own_part_tiles<V::OWN_KEYS>(tiles, parts);
    } else {
        return max((tiles + parts - 1) / parts, LEAST_KEYS / cfg::BN);
    }
}

struct key_tiles { // numbers last, last - 1 .. of tiles of BN keys
    int last, n;
};

// The keys between the first and the last one that live in any of the rows, as this block's part of them.
template <class PARAMS> DEV key_tiles find_keys(const PARAMS &p, const work &w)
{
    int first = 0;
    int last = p.z.len_kv - 1;
    if constexpr (variant::MASKED) {
        first = p.z.len_kv;
        last = -1;
        for (int i = lane_id(); i < w.rows; i += 32) {
            const packed::row r = w.row(p.x, p.z, i);
            const int from = max(variant::first_key(p.x, p.z, r.head, r.at), 0);
            const int to = min(variant::last_key(p.x, p.z, r.head, r.at), p.z.len_kv - 1);
            first = from <= to ? min(first, from) : first;
            last = from <= to ? max(last, to) : last;
        }
        first = warp_min(first);
        last = warp_max(last);
    }
    if (first > last) {
        return {0, 0};
    }
    const int end = last / cfg::BN;
    const int tiles = end - first / cfg::BN + 1;
    const int each = part_tiles<variant>(tiles, static_cast<int>(p.parts));
    const int before = w.part * each; // of the tiles, which are below 2^20
    return {end - before, max(min(tiles - before, each), 0)};
}

// Walks those of a part's tiles that are one walker's: every WALKERS'th, from the last down. Walkers are the warps of a
// block, or one, which all warps are. All lanes get the same answers; each classifies a tile ahead of the walk.
template <int WALKERS> struct part_cursor {
    static constexpr int END = -1;
    key_tiles keys;
    int next_turn; // the walker's tiles before the 32 at hand
    u32 low, high; // bits of the classes of those that are still to come

    __device__ __forceinline__ void start(const key_tiles &of)
    {
        keys = of;
        next_turn = 0;
        low = 0;
        high = 0;
    }
    __device__ __forceinline__ int tile_of(int turn) const // of the part's tiles
    {
        return (WALKERS > 1 ? static_cast<int>(threadIdx.x / 32) : 0) + turn * WALKERS;
    }

    // For all rows of the block.
    DEV int classify(const attention_params &p, const work &w, int tile)
    {
        const int kv0 = tile * cfg::BN;
        const int left = p.z.len_kv - kv0;
        int c = TILE_ALL;
        if constexpr (variant::MASKED) {
            const int kv1 = kv0 + min(cfg::BN, left) - 1;
            const int heads = variant::MASK_BY_HEAD ? w.group : 1;
            for (int h = 0; h < heads; h++) {
                const variant::head head = variant::make_head(p.x, p.z, w.b, w.h_kv * w.group + h);
                const int own = variant::classify(p.x, p.z, head, w.token(0), w.token(w.rows - 1), kv0, kv1);
                c = h == 0 || c == own ? own : static_cast<int>(TILE_SOME);
            }
        }
        return c == TILE_ALL && left < cfg::BN ? static_cast<int>(TILE_CUT) : c;
    }

    // Four times the next tile's number, plus its class; or END.
    __device__ __forceinline__ int next(const attention_params &p, const work &w)
    {
#pragma unroll 1
        while ((low | high) == 0) {
            if (tile_of(next_turn) >= keys.n) {
                return END;
            }
            const int mine = tile_of(next_turn + lane_id());
            const u32 c = mine < keys.n ? static_cast<u32>(classify(p, w, keys.last - mine)) : 0u;
            low = __ballot_sync(ALL_LANES, (c & 1u) != 0);
            high = __ballot_sync(ALL_LANES, (c & 2u) != 0);
            next_turn += 32;
        }
        const int bit = __ffs(static_cast<int>(low | high)) - 1;
        const int tile = keys.last - tile_of(next_turn - 32 + bit);
        const int code = 4 * tile + static_cast<int>((high >> bit & 1u) * 2 + (low >> bit & 1u));
        low &= ~(1u << bit);
        high &= ~(1u << bit);
        return code;
    }
};
using warp_cursor = part_cursor<cfg::WARPS>;

// ---- what is written ---------------------------------------------------------------------------------

DEV void write_record(float *to, const variant::state &s, bool seen)
{
    merge::write(s, to);
    to[variant::STATES] = seen ? 1.0f : 0.0f;
}

// Four columns of a row of o, as they are stored. to: in elements.
DEV void store_piece(const attention_params &p, i64 to, const float (&x)[4], float factor, bool seen)
{
    if constexpr (cfg::O_F32) {
        float *out = static_cast<float *>(p.o) + to;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            out[j] = seen ? x[j] * factor : cfg::O_MARKED ? __uint_as_float(EMPTY_ROW) : 0.0f;
        }
    } else {
        uint2 out;
        out.x = seen ? pack<cfg::element_o>(x[0] * factor, x[1] * factor) : 0u;
        out.y = seen ? pack<cfg::element_o>(x[2] * factor, x[3] * factor) : 0u;
        *reinterpret_cast<uint2 *>(static_cast<cfg::element_o *>(p.o) + to) = out;
    }
}

} // namespace decode
