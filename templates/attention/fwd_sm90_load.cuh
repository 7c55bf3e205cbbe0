// attention/fwd_sm90_load.cuh: the warps that load, each in one stream across query tiles: one finds out which of them
// its block takes and loads Q, the other which key tiles the mask leaves of each, and loads K and V.
#pragma once
#include "attention/fwd_sm90_keys.cuh"
#include "attention/sequence_tiles_sm90.cuh"
#include "attention/tile_counter_sm90.cuh"

constexpr int MAP_ROWS = 64; // of a class: a warpgroup's, which passes over what has nothing for its own rows

DEV i64 map_line_bytes(const sizes &z) { return round_up((z.len_kv + cfg::BN - 1) / cfg::BN, MAP_WORD); }

// The part of the map for a query tile: a line of bytes for each warpgroup's rows, or the ranges of the reads, of each
// key tile.
DEV const u8 *find_map_row(const attention_params &p, const hopper_place &at)
{
    if constexpr (variant::MAP) {
        const i64 n_h = variant::MAP_PER_HEAD ? p.z.n_h : 1;
        const i64 map_head = (variant::MAP_PER_BATCH ? at.b : 0) * n_h + (variant::MAP_PER_HEAD ? at.h : 0);
        if constexpr (variant::READ_RANGES) {
            const i64 key_tiles = (p.z.len_kv + cfg::BN - 1) / cfg::BN;
            return p.map + map_head * key_tiles * variant::READS * static_cast<i64>(sizeof(uint2));
        } else {
            return p.map +
                   (map_head * ((p.z.len_q + MAP_ROWS - 1) / MAP_ROWS) + at.row0 / MAP_ROWS) * map_line_bytes(p.z);
        }
    } else {
        return nullptr;
    }
}

// What the mask reads, where tiles are classified by it: on the rows of warpgroup i in lane i, and on the keys of the
// tile that the lane is about to classify.
template <class V, bool USED = V::READ_RANGES> struct tile_reads {
    __device__ __forceinline__ void find_rows(const at_head &, int, int) {}
    __device__ __forceinline__ void find_keys(const u8 *, int) {}
    __device__ __forceinline__ void take_rows(int) {}
    __device__ __forceinline__ int classify(const at_head &a, int row0, int row1, int kv0, int kv1) const
    {
        return static_cast<int>(V::classify(a.x, a.z, a.head, row0, row1, kv0, kv1));
    }
};
template <class V> struct tile_reads<V, true> {
    static constexpr int OWNERS = shared_layout::GROUPS / SHARERS; // warpgroups with rows of their own
    static constexpr int PARTS = 64 / 32;                          // rows of each that a lane looks at
    int mine[2][V::READS];                                         // low and high
    int low[V::READS], high[V::READS];

    __device__ __forceinline__ static constexpr bool by_row(int k) { return (V::READS_BY_ROW >> k & 1u) != 0; }

    // row0: of the query tile; tokens: of a warpgroup.
    __device__ __forceinline__ void find_rows(const at_head &a, int row0, int tokens)
    {
        int read[OWNERS * PARTS][V::READS];
#pragma unroll
        for (int i = 0; i < OWNERS * PARTS; i++) {
            const int row = row0 + i / PARTS * tokens + min(lane_id() + 32 * (i % PARTS), tokens - 1);
            V::row_reads(a.x, a.z, a.head, V::make_row(a.x, a.z, a.head, min(row, a.z.len_q - 1)), read[i]);
        }
#pragma unroll
        for (int i = 0; i < OWNERS; i++) {
#pragma unroll
            for (int k = 0; k < V::READS; k++) {
                if (by_row(k)) {
                    const int least = warp_min(min(read[PARTS * i][k], read[PARTS * i + 1][k]));
                    const int most = warp_max(max(read[PARTS * i][k], read[PARTS * i + 1][k]));
                    mine[0][k] = lane_id() == i ? least : mine[0][k];
                    mine[1][k] = lane_id() == i ? most : mine[1][k];
                }
            }
        }
    }
    // By all lanes; tile: of this one, at least 0 and within the map.
    __device__ __forceinline__ void find_keys(const u8 *map_row, int tile)
    {
        const uint2 *from = reinterpret_cast<const uint2 *>(map_row) + static_cast<i64>(tile) * V::READS;
#pragma unroll
        for (int k = 0; k < V::READS; k++) {
            if (!by_row(k)) {
                const uint2 range = from[k];
                low[k] = static_cast<int>(range.x);
                high[k] = static_cast<int>(range.y);
            }
        }
    }
    // By all lanes: of warpgroup `owner` among those with rows of their own.
    __device__ __forceinline__ void take_rows(int owner)
    {
#pragma unroll
        for (int k = 0; k < V::READS; k++) {
            if (by_row(k)) {
                low[k] = __shfl_sync(ALL_LANES, mine[0][k], owner);
                high[k] = __shfl_sync(ALL_LANES, mine[1][k], owner);
            }
        }
    }
    __device__ __forceinline__ int classify(const at_head &a, int row0, int row1, int kv0, int kv1) const
    {
        return static_cast<int>(V::classify_reads(a.x, a.z, a.head, row0, row1, kv0, kv1, low, high));
    }
};

// Walks the key tiles of which the mask leaves something for a query tile, from the last one down: where scores fall
// with the distance, the rows' maxima are found early, and the tile that a causal mask cuts is the first one, which is
// weighed by the longer way anyhow. 32 are classified at a time, one a lane, and for each warpgroup's rows, so that no
// computing warp has to.
struct key_tiles {
    static constexpr int CHUNK = 32 * 32; // tiles of 32 groups
    int chunk;                            // its first tile
    u32 groups; // of 32 tiles each, a bit each: those of the chunk with something for the query tile, still to come
    u32 rest;   // of the 32 tiles of the group at hand, those that are still to come: a bit each
    u32 mine;   // this lane's with its classes, as it is told
    tile_reads<variant> reads;

    __device__ __forceinline__ void start(const sizes &z)
    {
        chunk = ((z.len_kv + cfg::BN - 1) / cfg::BN + CHUNK - 1) & ~(CHUNK - 1);
        groups = 0;
        rest = 0;
        mine = 0;
    }
    // Has a map something for the query tile in a group? tile: its first.
    __device__ __forceinline__ static bool group_of_map(const sizes &z, const u8 *map_row, int row0, int tile)
    {
        constexpr int WORDS = 32 / MAP_WORD;
        // what ends the last is not written
        const int words = (z.len_kv + cfg::BN * MAP_WORD - 1) / (cfg::BN * MAP_WORD) - tile / MAP_WORD;
        u32 some = 0;
#pragma unroll 1
        for (int i = 0; i < shared_layout::GROUPS / SHARERS && row0 + i * MAP_ROWS < z.len_q; i++) {
            const u32 *from = reinterpret_cast<const u32 *>(map_row + i * map_line_bytes(z) + tile);
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                some |= w < words ? from[w] : 0;
            }
        }
        return some != 0;
    }
    // Groups are asked about first, 32 of them at a time, so that most of what the mask leaves out of a long row costs
    // nothing. Of what the mask reads nothing is known of a group, but what a map of classes tells. Gives the group's
    // first tile; NONE after the last group.
    static constexpr int NONE = -1;
    __device__ __forceinline__ int next_group(const at_head &a, const u8 *map_row, int row0, int tokens)
    {
#pragma unroll 1
        while (groups == 0) {
            if (chunk == 0) {
                return NONE;
            }
            chunk -= CHUNK;
            const int tile = chunk + 32 * lane_id();
            bool some = tile <= (a.z.len_kv - 1) / cfg::BN;
            if constexpr (variant::MAP && !variant::READ_RANGES) {
                some = some && group_of_map(a.z, map_row, row0, tile);
            } else if constexpr (variant::MASKED) {
                const int row1 = min(row0 + tokens * (shared_layout::GROUPS / SHARERS), a.z.len_q) - 1;
                const int kv0 = some ? tile * cfg::BN : 0; // len_kv + 32 BN fits
                const int kv1 = min(kv0 + 32 * cfg::BN, a.z.len_kv) - 1;
                some = some && static_cast<int>(variant::classify(a.x, a.z, a.head, row0, row1, kv0, kv1)) != TILE_NONE;
            }
            groups = __ballot_sync(ALL_LANES, some);
        }
        const int bit = 31 - __clz(static_cast<int>(groups));
        groups ^= 1u << bit;
        return chunk + 32 * bit;
    }
    // Classes of a map's key tile, a byte for each warpgroup with rows of its own, asked for at once.
    __device__ __forceinline__ static u32 load_classes(const sizes &z, const u8 *map_row, int row0, int tile)
    {
        static_assert(shared_layout::GROUPS / SHARERS <= 4, "their classes are bytes of a word");
        u32 classes = 0;
        if constexpr (variant::MAP && !variant::READ_RANGES) {
            const u8 *from = map_row + tile;
#pragma unroll
            for (int i = 0; i < shared_layout::GROUPS / SHARERS; i++) {
                classes |= row0 + i * MAP_ROWS < z.len_q ? static_cast<u32>(from[i * map_line_bytes(z)]) << (8 * i) : 0;
            }
        }
        return classes;
    }
    // row0: of the query tile; tokens: of a warpgroup.
    __device__ __forceinline__ u32 classify(const at_head &a, const u8 *map_row, int row0, int tokens, int tile)
    {
        const int kv0 = tile * cfg::BN; // len_kv + 31 BN fits
        const int kv1 = min(kv0 + cfg::BN, a.z.len_kv) - 1;
        const bool exists = kv1 >= kv0;
        u32 classes = 0;
        reads.find_keys(map_row, exists ? tile : 0);
        const u32 of_map = exists ? load_classes(a.z, map_row, row0, tile) : 0;
#pragma unroll 1
        for (int i = 0; i < shared_layout::GROUPS; i++) {
            const int row1 = min(row0 + tokens, a.z.len_q) - 1;
            int c = TILE_ALL;
            if constexpr (variant::MAP && !variant::READ_RANGES) {
                c = static_cast<int>(of_map >> (8 * (i / SHARERS)) & 0xffu);
            } else if constexpr (variant::MASKED) {
                reads.take_rows(i / SHARERS);
                c = reads.classify(a, row0, max(row0, row1), kv0, kv1);
            }
            if (c == TILE_ALL && kv1 < kv0 + cfg::BN - 1) { // what len_kv cuts is not whole
                c = TILE_CUT;
            }
            if (c == TILE_CUT && !variant::SCATTERED) { // the same there, and one bit tells more quickly
                c = TILE_SOME;
            }
            classes |= row1 < row0 || !exists ? 0 : static_cast<u32>(c) << (2 * i);
            row0 += i % SHARERS == SHARERS - 1 ? tokens : 0;
        }
        return classes;
    }

    // NO_TILE after the last one.
    __device__ __forceinline__ int next(const at_head &a, const u8 *map_row, int row0, int tokens)
    {
#pragma unroll 1
        while (rest == 0) {
            const int first = next_group(a, map_row, row0, tokens);
            if (first == NONE) {
                return NO_TILE;
            }
            const int tile = first + lane_id();
            const u32 classes = classify(a, map_row, row0, tokens, tile);
            mine = static_cast<u32>(tile * KEY_TILE) + classes;
            rest = __ballot_sync(ALL_LANES, classes != 0);
        }
        const int bit = 31 - __clz(static_cast<int>(rest));
        rest ^= 1u << bit;
        return static_cast<int>(__shfl_sync(ALL_LANES, mine, bit));
    }
};

// Rows of K, which are those of k, or with those of k2 behind them: panels of both.
template <class PARAMS> DEV void load_key_rows(u32 to, const PARAMS &params, u32 full, int token, const keys_at &of)
{
    constexpr int D1 = QK_WORDS - cfg::D2;
    of.load<OF_K, D1>(to, &params.k, full, token, params.p, L2_KEEP);
    if constexpr (requires { params.k2; }) {
        of.load<OF_K2, cfg::D2>(to + cfg::BN * D1 * ELEMENT_BYTES<cfg::element_k>, &params.k2, full, token, params.p,
                                L2_KEEP);
    }
}

// Rows of V, or columns where they come turned over.
template <class PARAMS, class KEYS>
DEV void load_values(u32 to, const PARAMS &params, u32 full, int token, const KEYS &of)
{
    if constexpr (EIGHT_BITS) {
        of.load_turned(to, full, token, params.p);
    } else {
        of.template load<OF_V, cfg::DV_PAD>(to, &params.v, full, token, params.p, L2_KEEP);
    }
}

// Rows of Q, likewise. head: where rows of several take turns, the number of their group.
template <class PARAMS>
DEV void load_query_rows(u32 to, const PARAMS &params, u32 full, int token, int head, int b, const tokens_at &of)
{
    constexpr int D1 = QK_WORDS - cfg::D2;
    if constexpr (cfg::PACK) {
        load_packed_tile<64, D1>(to, &params.q, full, token, head, b, L2_STREAM);
    } else {
        load_tile<64, D1>(to, &params.q, full, token, head, of.queries<OF_Q>(params.p, b), L2_STREAM);
    }
    if constexpr (requires { params.q2; }) {
        if constexpr (cfg::PACK) {
            load_packed_tile<64, cfg::D2>(to + 64 * D1 * ELEMENT_BYTES<cfg::element_q>, &params.q2, full, token, head,
                                          b, L2_STREAM);
        } else {
            load_tile<64, cfg::D2>(to + 64 * D1 * ELEMENT_BYTES<cfg::element_q>, &params.q2, full, token, head,
                                   of.queries<OF_Q2>(params.p, b), L2_STREAM);
        }
    }
}

struct loader { // of the warp that loads K and V; one of its threads, the leader, writes and waits, and mostly loads
    const hopper_params &params;
    u32 shared;
    bool leader;
    place k, v;

    __device__ __forceinline__ bool takes_part() const { return keys_at::BY_WARP || leader; }
    // Of those who take part one opens a place, and then all may load into it.
    template <class F> __device__ __forceinline__ void open(const F &by_leader) const
    {
        if (!keys_at::BY_WARP || leader) {
            by_leader();
        }
        if constexpr (keys_at::BY_WARP) {
            __syncwarp();
        }
    }

    // after: the tile after it.
    __device__ __forceinline__ void load_k(int tile, int after, const keys_at &of)
    {
        const ring_barriers<cfg::STAGES> ring = rings::at(shared).k;
        const u32 full = ring.full(k.stage);
        open([&] {
            ring.wait_empty(k);
            store_shared(tile_words(shared, k.stage), static_cast<u32>(tile));
            store_shared(tile_words(shared, k.stage) + 4, static_cast<u32>(after));
            if (tile == NO_TILE) {
                mbarrier_arrive(full);
            } else {
                mbarrier_arrive_expect(full, shared_layout::K_BYTES);
            }
        });
        if (tile != NO_TILE) {
            load_key_rows(shared + shared_layout::K + k.stage * shared_layout::K_BYTES, params, full,
                          tile / KEY_TILE * cfg::BN, of);
        }
        k = k.next();
    }

    __device__ __forceinline__ void load_v(int tile, const keys_at &of)
    {
        if (tile != NO_TILE) {
            const ring_barriers<cfg::STAGES> ring = rings::at(shared).v;
            const u32 full = ring.full(v.stage);
            open([&] {
                ring.wait_empty(v);
                mbarrier_arrive_expect(full, shared_layout::V_BYTES);
            });
            load_values(shared + shared_layout::V + v.stage * shared_layout::V_BYTES, params, full,
                        tile / KEY_TILE * cfg::BN, of);
            v = v.next();
        }
    }
};

// All query tiles of the block: K of each key tile together with V of the one before, which may be of another query
// tile. The way from tile to tile is kept short: this warp has a quarter of a scheduler at best, and the others wait
// for it.
DEV void load_keys(const hopper_params &params, u32 shared)
{
    const int share = share_of_head(params.p);
    loader l = {params, shared, elect_one(), {0, 0}, {0, 0}};
    int before = NO_TILE; // the key tile whose V comes next, and where its keys are
    keys_at before_of = {};
    if constexpr (variant::MAP) {
        wait_for_launch_before();
    }
#pragma unroll 1
    for (u32 round = 0;; round++) {
        mbarrier_wait(told_barrier(shared, round), round_parity(round));
        const query_tile query = read_round(shared, round);
        if (query.number == query_tile::NONE) {
            break;
        }
        const tokens_at tokens = tokens_at::read(shared, round);
        auto &&p = tokens.enter(params.p);
        const hopper_place at = find_place(p, query, share, 0);
        keys_at of = keys_at::start(tokens, at.b, shared, round);
        const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
        const at_head a{p.x, p.z, head};
        const u8 *map_row = find_map_row(p, at);
        key_tiles tiles;
        tiles.start(p.z);
        tiles.reads.find_rows(a, at.row0, at.tokens);
        int tile = NO_TILE;
#pragma unroll 1
        for (bool first = true;; first = false) { // one step behind, so that the text of next() is there once
            const int after = tiles.next(a, map_row, at.row0, at.tokens);
            if (!first) {
                if (l.leader && after == NO_TILE) {
                    mbarrier_arrive(ending_barrier(shared, round));
                }
                if (l.takes_part()) {
                    l.load_k(tile, after, of);
                    l.load_v(before, before_of);
                }
                before = tile;
                before_of = of;
                __syncwarp();
                if (after == NO_TILE) {
                    break;
                }
            }
            tile = after;
            of.look_up(params.p, at.b, tile / KEY_TILE * cfg::BN, p.z.len_kv);
        }
    }
    if (l.takes_part()) {
        l.load_v(before, before_of);
    }
}

// Tells of the block's n'th query tile, and loads its Q. By one thread.
DEV void load_round(const hopper_params &params, u32 shared, u32 round, const query_tile &query, const tokens_at &of,
                    int share)
{
    const attention_params &p = params.p;
    const bool none = query.number == query_tile::NONE;
    mbarrier_arrive(told_barrier(shared, round));
    const hopper_place at = find_place(p, query, share, 0);
    const u32 group = static_cast<u32>(query.h) / static_cast<u32>(packed_heads(p));
    const q_place to = q_place::nth(round);
#pragma unroll 1
    for (u32 i = 0; i < shared_layout::GROUPS; i++) {
        const ring_barriers<cfg::Q_STAGES> ring = rings::q(shared, i);
        const u32 full = ring.full(to.stage);
        ring.wait_empty(to);
        const u32 q = shared + i * shared_layout::SLAB + to.stage * shared_layout::Q_BYTES;
        const int token = at.row0 + at.tokens * static_cast<int>(i / SHARERS);
        if (none) {
            mbarrier_arrive(full);
        } else if constexpr (cfg::PACK) {
            mbarrier_arrive_expect(full,
                                   static_cast<u32>(at.tokens * at.heads * cfg::D_PAD * ELEMENT_BYTES<cfg::element_q>));
            load_query_rows(q, params, full, token, static_cast<int>(group), at.b, of);
        } else {
            mbarrier_arrive_expect(full, shared_layout::Q_BYTES);
            load_query_rows(q, params, full, token, at.h, at.b, of);
        }
    }
}

// Which query tiles there are, and Q of each: each warpgroup gives its Q back at a time of its own, for which the loads
// of keys need not wait. What its warp starts with is found while another one sets the barriers up.
template <class PARAMS, bool HERE = HAS_SEQUENCES<PARAMS>> struct query_stream {
    tile_order order;
    query_tile query;

    DEV query_stream start(const PARAMS &p, u32 shared)
    {
        query_stream r;
        r.order = find_order(p);
        r.query = nth_query_tile(p, r.order, fresh_block());
        keep(r.order.tiles); // here, and not where it is used
        keep(r.order.of_section);
        keep(r.query.number);
        if (lane_id() == 0) {
            write_round(shared, 0, r.query, static_cast<u32>(r.query.h) / r.order.of_key_head);
        }
        return r;
    }
    DEV bool takes_part() { return elect_one(); }

    DEV void load(const hopper_params &params, u32 shared, const query_stream &begin)
    {
        const PARAMS &p = params.p;
        const tile_order order = begin.order;
        const int share = share_of_head(p);
        const tile_counter counter = tile_counter::find(p, order);
        u32 number = fresh_block();
        query_tile query = begin.query;
#pragma unroll 1
        for (u32 round = 0;; round++) {
            if (round > 0) {
                write_round(shared, round, query, static_cast<u32>(query.h) / order.of_key_head);
            }
            load_round(params, shared, round, query, {}, share);
            if (query.number == query_tile::NONE) {
                return;
            }
            mbarrier_wait(ending_barrier(shared, round), round_parity(round));
            number = counter.take(counter.ask(), number);
            query = nth_query_tile(p, order, number);
        }
    }
};

// Of sequences: the whole warp finds out.
template <class PARAMS> struct query_stream<PARAMS, true> {
    sequence_tiles<PARAMS> tiles;
    query_tile query;
    tokens_at of;

    DEV u32 words(u32 shared) { return shared + shared_layout::ORDER; }
    __device__ __forceinline__ void find(const PARAMS &p, u32 shared, u32 number)
    {
        query = tiles.find(p, words(shared), number);
        of = {};
        if (query.number != query_tile::NONE) {
            of = {sequences::find_extent(p, query.b)};
        }
    }
    __device__ __forceinline__ void write(const PARAMS &p, u32 shared, u32 round) const
    {
        write_round(shared, round, query, static_cast<u32>(query.h) / static_cast<u32>(p.z.group()));
        of.write(shared, round);
    }
    DEV query_stream start(const PARAMS &p, u32 shared)
    {
        query_stream r;
        r.tiles = sequence_tiles<PARAMS>::start(p, words(shared));
        r.find(p, shared, fresh_block());
        if (lane_id() == 0) {
            r.write(p, shared, 0);
        }
        return r;
    }
    DEV bool takes_part() { return true; }

    DEV void load(const hopper_params &params, u32 shared, const query_stream &begin)
    {
        const PARAMS &p = params.p;
        query_stream at = begin;
        u32 number = fresh_block();
#pragma unroll 1
        for (u32 round = 0;; round++) {
            if (lane_id() == 0) {
                if (round > 0) {
                    at.write(p, shared, round);
                }
                load_round(params, shared, round, at.query, at.of, share_of_head(p));
            }
            __syncwarp();
            if (at.query.number == query_tile::NONE) {
                return;
            }
            mbarrier_wait(ending_barrier(shared, round), round_parity(round));
            if (lane_id() == 0) {
                const tile_counter counter = {{p.tile_counter, static_cast<u32>(sequence_tiles<PARAMS>::read(
                                                                   words(shared), sequence_tiles<PARAMS>::ITEMS))}};
                number = counter.take(counter.ask(), number);
            }
            number = __shfl_sync(ALL_LANES, number, 0);
            at.find(p, shared, number);
        }
    }
};
