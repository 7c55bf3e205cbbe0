// attention/sequence_tiles_sm90.cuh: in which order query tiles of sequences are taken: of packed ones, of batches of
// which not all keys are in use, of pages. Lengths are on the device alone, so numbers of tiles are found where they
// are needed, by a warp of each block whose lanes look at a sequence each: a launch has as many numbers as there are
// tiles, and a graph of it stays valid whatever the lists say next time.
//
// Numbers count through sections, each of some heads and of up to 32 neighbouring sequences, so that K and V of a
// section fit into L2 together; in a section through levels, the highest first: how many tiles of keys a query tile
// reaches over, as far as lengths tell; in a level through the sequences that have tiles there, and of a tile through
// the heads. A block's numbers only rise, and its warp goes along with them: it reads lengths where a section begins,
// and from level to level nothing.
#pragma once
#include "attention/scheduler_sm90.cuh"
#include "attention/sequences.cuh"

template <class PARAMS> struct sequence_tiles { // the same in all lanes, but for what is one lane's
    static constexpr int NONE = -1;
    int begin;         // the section's first sequence; lanes look at one each, from there on
    int top, n;        // of this lane's sequence: its highest level, NONE where it has no tiles; how many tiles
    int level, lowest; // those at hand, at each of which the same sequences have a tile
    u32 number, count; // of their first tile of these levels; how many there are of one head and level

    // What is seldom needed has no registers: words of shared memory, from `words` on.
    enum word { ITEMS = 0, END = 4, HEAD = 8, WIDTH = 12 }; // all tiles; behind the section's sequences; its heads
    DEV int read(u32 words, word which) { return static_cast<int>(__float_as_uint(load_shared(words + which))); }
    DEV void write(u32 words, word which, int value)
    {
        __syncwarp();
        if (lane_id() == 0) {
            store_shared(words + which, static_cast<u32>(value));
        }
        __syncwarp();
    }

    __device__ __forceinline__ u32 tiles() const { return count * static_cast<u32>(level - lowest + 1); } // of one head

    DEV u32 tiles_of(const sequences::extent &e) { return (static_cast<u32>(e.len_q) + cfg::BM - 1) / cfg::BM; }

    DEV int sum_of_warp(int x)
    {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            x += __shfl_xor_sync(ALL_LANES, x, step);
        }
        return x;
    }
    // Of this lane and those before it.
    DEV int sum_up_to_lane(int x)
    {
#pragma unroll 1 // this warp has few registers, and seldom comes here
        for (int step = 1; step < 32; step *= 2) {
            const int before = __shfl_sync(ALL_LANES, x, max(lane_id() - step, 0));
            x += lane_id() >= step ? before : 0;
        }
        return x;
    }

    // Keys of one key head whose K and V fill a section; of a sequence no more, so that 32 of them can be added up.
    static constexpr int SECTION_KEYS = static_cast<int>(SECTION_BYTES / (2 * (cfg::D + cfg::D_V)));
    DEV int keys_of(const sequences::extent &e) { return min(e.len_kv, SECTION_KEYS); }

    // How many tiles all sequences and heads have, and how many heads a section of all sequences has.
    DEV void count_all(const PARAMS &p, u32 words)
    {
        int tiles = 0;
        int keys = 0;
#pragma unroll 4
        for (int i = lane_id(); i < p.z.n_b; i += 32) {
            const sequences::extent e = sequences::find_extent(p, i);
            tiles += static_cast<int>(tiles_of(e));
            keys = min(keys + keys_of(e), SECTION_KEYS);
        }
        write(words, ITEMS, sum_of_warp(tiles) * p.z.n_h);
        keys = sum_of_warp(keys);
        int heads = p.z.group();
        while (keys <= SECTION_KEYS / 2 && heads * 2 <= p.z.n_h) {
            heads *= 2;
            keys *= 2;
        }
        write(words, WIDTH, heads);
    }

    // Levels of this lane's sequence: without a mask all of its tiles are of one.
    __device__ __forceinline__ int first() const { return variant::MASKED ? top - n + 1 : top; }
    __device__ __forceinline__ bool here() const { return n > 0 && first() <= level && level <= top; }
    // This lane's tile of the highest level at hand, or NONE; without a mask: how many there are.
    __device__ __forceinline__ int own() const
    {
        return variant::MASKED ? (here() ? level - first() : NONE) : here() ? n : 0;
    }

    // A section of the heads at hand begins with sequence `from`.
    __device__ __forceinline__ void open_section(const PARAMS &p, u32 words, int from)
    {
        const int mine = from + lane_id();
        sequences::extent e = {};
        if (mine < p.z.n_b) {
            e = sequences::find_extent(p, mine);
        }
        const int keys = sum_up_to_lane(keys_of(e));
        const u32 others = __ballot_sync(ALL_LANES, mine >= p.z.n_b || (mine > from && keys > SECTION_KEYS));
        const int end = others != 0 ? from + __ffs(static_cast<int>(others)) - 1 : from + 32;
        const int ahead = p.z.q_start == Q_START_BY_LENGTH ? max(e.len_kv - e.len_q, 0) : 0;
        write(words, END, end);
        begin = from;
        n = mine < end ? static_cast<int>(tiles_of(e)) : 0;
        top = n == 0 ? NONE : variant::MASKED ? ahead / cfg::BM + n - 1 : (e.len_kv + cfg::BN - 1) / cfg::BN;
        level = warp_max(top);
    }
    // Levels are taken together as long as no sequence begins or ends with one of them.
    __device__ __forceinline__ void look()
    {
        lowest = level;
        if constexpr (variant::MASKED) {
            lowest = max(warp_max(here() ? first() : top < level ? top + 1 : 0), 0);
            count = static_cast<u32>(__popc(__ballot_sync(ALL_LANES, here())));
        } else {
            count = static_cast<u32>(sum_of_warp(own()));
        }
    }
    // False: there is nothing more.
    __device__ __forceinline__ bool advance(const PARAMS &p, u32 words)
    {
        number += tiles() * static_cast<u32>(read(words, WIDTH));
        level = warp_max(top < lowest ? top : n > 0 && first() < lowest ? lowest - 1 : NONE);
        if (level == NONE) {
            const int end = read(words, END);
            const bool last = end >= p.z.n_b;
            const int head = read(words, HEAD) + (last ? read(words, WIDTH) : 0);
            if (head >= p.z.n_h) {
                return false;
            }
            const int width = min(read(words, WIDTH), p.z.n_h - head); // the last section may be narrower
            write(words, HEAD, head);
            write(words, WIDTH, width);
            open_section(p, words, last ? 0 : end);
        }
        look();
        return true;
    }

    DEV sequence_tiles start(const PARAMS &p, u32 words)
    {
        sequence_tiles t;
        count_all(p, words);
        write(words, HEAD, 0);
        t.number = 0;
        t.open_section(p, words, 0);
        t.look();
        return t;
    }

    // Tile n of all, which is no lower than the one before; by all lanes. NONE where there are none so many.
    __device__ __forceinline__ query_tile find(const PARAMS &p, u32 words, u32 n)
    {
        if (n >= static_cast<u32>(read(words, ITEMS))) {
            return {query_tile::NONE, 0, 0};
        }
#pragma unroll 1
        while (n - number >= tiles() * static_cast<u32>(read(words, WIDTH))) {
            if (!advance(p, words)) {
                return {query_tile::NONE, 0, 0};
            }
        }
        const u32 rest = n - number;
        const u32 width = static_cast<u32>(read(words, WIDTH));
        const u32 which = rest / width;
        const int h = read(words, HEAD) + static_cast<int>(rest - which * width);
        const int mine = own();
        int owner = 0;     // the lane whose sequence it is of
        int from_lane = 0; // a tile of this lane's sequence, from which on they count
        int from_first = 0;
        if constexpr (variant::MASKED) {
            const u32 down = which / count;
            const u32 there = __ballot_sync(ALL_LANES, mine != NONE);
            const bool is_it =
                mine != NONE && static_cast<u32>(__popc(there & ((1u << lane_id()) - 1u))) == which - down * count;
            owner = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, is_it))) - 1;
            from_lane = mine;
            from_first = -static_cast<int>(down);
        } else {
            const int upto = sum_up_to_lane(mine);
            owner = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, static_cast<int>(which) < upto))) - 1;
            from_lane = mine - upto;
            from_first = static_cast<int>(which);
        }
        return {__shfl_sync(ALL_LANES, from_lane, owner) + from_first, h, begin + owner};
    }
};
