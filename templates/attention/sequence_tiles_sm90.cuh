// attention/sequence_tiles_sm90.cuh: in which order query tiles of sequences are taken: of packed ones, of batches of
// which not all keys are in use, of pages. Lengths are on the device alone, so numbers of tiles are found where they
// are needed, by a warp of each block whose lanes look at a sequence each: a launch has as many numbers as there are
// tiles, and a graph of it stays valid whatever the lists say next time.
//
// Numbers count through sections, each of some heads and of neighbouring sequences, so that K and V of a section fit
// into L2 together; in a section through levels, the highest first: how many tiles of keys a query tile reaches over,
// as far as lengths tell; in a level through the sequences that have tiles there, and of a tile through the heads. A
// block's numbers only rise, and its warp goes along with them.
#pragma once
#include "attention/scheduler_sm90.cuh"
#include "attention/sequences.cuh"

template <class PARAMS> struct sequence_tiles { // the same in all lanes, but for what is one lane's
    static constexpr int NONE = -1;
    static constexpr int ABOVE = 0x7fffffff; // all levels
    int end;                                 // of the section's sequences
    int level, lowest;                       // those at hand, at each of which the same sequences have a tile
    int below;                               // the next one that has tiles, as far as it has been looked at
    int chunk;                               // the first of the 32 sequences that lanes look at
    u32 number, count; // of their first tile of these levels; how many there are of one head and level
    int own;           // of this lane's sequence: which tile is of the highest level, or NONE; without a mask: how many

    // What is seldom needed has no registers: words of shared memory, from `words` on.
    enum word { ITEMS = 0, BEGIN = 4, HEAD = 8, WIDTH = 12 }; // all tiles; the section's first sequence; its heads
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

    // A section of the heads at hand begins with sequence `from`.
    __device__ __forceinline__ void open_section(const PARAMS &p, u32 words, int from)
    {
        write(words, BEGIN, from);
        chunk = from;
        level = ABOVE;
        below = NONE;
        end = p.z.n_b;
        int keys = 0;
#pragma unroll 1
        for (int i = from; i < p.z.n_b; i += 32) {
            const int mine = i + lane_id();
            const int upto = sum_up_to_lane(mine < p.z.n_b ? keys_of(sequences::find_extent(p, mine)) : 0);
            const u32 others = __ballot_sync(ALL_LANES, mine > from && mine < p.z.n_b && upto > SECTION_KEYS - keys);
            if (others != 0) {
                end = i + __ffs(static_cast<int>(others)) - 1;
                break;
            }
            keys += __shfl_sync(ALL_LANES, upto, 31);
        }
    }
    // What the chunk's sequences have of the level at hand, and below. Where the section has no other ones, levels are
    // taken together as long as no sequence begins or ends with one of them.
    __device__ __forceinline__ void look(const PARAMS &p, u32 words)
    {
        const int i = chunk + lane_id();
        int first = 0; // levels of this lane's sequence
        int last = NONE;
        int n = 0;
        if (i < end) {
            const sequences::extent e = sequences::find_extent(p, i);
            const int ahead = p.z.q_start == Q_START_BY_LENGTH ? max(e.len_kv - e.len_q, 0) : 0;
            n = static_cast<int>(tiles_of(e));
            first = variant::MASKED ? ahead / cfg::BM : (e.len_kv + cfg::BM - 1) / cfg::BM;
            last = n == 0 ? NONE : variant::MASKED ? first + n - 1 : first;
        }
        const bool here = first <= level && level <= last;
        lowest = level;
        if (variant::MASKED && chunk + 32 >= end && chunk == read(words, BEGIN)) {
            lowest = max(warp_max(here ? first : last < level ? last + 1 : 0), 0);
        }
        own = variant::MASKED ? (here ? level - first : NONE) : here ? n : 0;
        count = variant::MASKED ? static_cast<u32>(__popc(__ballot_sync(ALL_LANES, here)))
                                : static_cast<u32>(sum_of_warp(own));
        below = max(below, warp_max(last < lowest ? last : first < lowest ? lowest - 1 : NONE));
    }
    // False: there is nothing more.
    __device__ __forceinline__ bool advance(const PARAMS &p, u32 words)
    {
        number += tiles() * static_cast<u32>(read(words, WIDTH));
        chunk += 32;
        if (chunk >= end) {
            chunk = read(words, BEGIN);
            level = below;
            below = NONE;
        }
        if (level == NONE) {
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
        look(p, words);
        return true;
    }

    DEV sequence_tiles start(const PARAMS &p, u32 words)
    {
        sequence_tiles t;
        count_all(p, words);
        write(words, HEAD, 0);
        t.number = 0;
        t.open_section(p, words, 0);
        t.look(p, words);
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
        int owner = 0; // the lane whose sequence it is of
        int first = 0; // a tile of this lane's sequence, from which on they count
        int from_first = 0;
        if constexpr (variant::MASKED) {
            const u32 down = which / count;
            const u32 there = __ballot_sync(ALL_LANES, own != NONE);
            const bool mine =
                own != NONE && static_cast<u32>(__popc(there & ((1u << lane_id()) - 1u))) == which - down * count;
            owner = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, mine))) - 1;
            first = own;
            from_first = -static_cast<int>(down);
        } else {
            const int upto = sum_up_to_lane(own);
            owner = __ffs(static_cast<int>(__ballot_sync(ALL_LANES, static_cast<int>(which) < upto))) - 1;
            first = own - upto;
            from_first = static_cast<int>(which);
        }
        return {__shfl_sync(ALL_LANES, first, owner) + from_first, h, chunk + owner};
    }
};
