// attention/scheduler_sm90.cuh: in which order query tiles are taken, so that blocks at work at the same time find
// each other's K and V in L2: heads in sections whose K and V fit there together, and within a section the
// longest rows of all of its heads first.
//
// Where queries are short, the rows of a tile may be those of several query heads of one key head, which take
// turns (cfg::PACK, and attention_params::pack heads at this launch): then a "head" below is a group of them.
#pragma once
#include "common/concepts.cuh"

constexpr i64 SECTION_BYTES = 32ll << 20; // of K and V in L2

struct query_tile {
    static constexpr int NONE = -1;
    int number, h, b; // h: the first head. After the last one: NONE
};

DEV int packed_heads(const attention_params &p) { return cfg::PACK ? p.pack : 1; }
// For i / packed_heads without a division, i <= 64: times this, shifted by SHARE_BITS.
constexpr int SHARE_BITS = 16;
DEV int share_of_head(const attention_params &p)
{
    return cfg::PACK ? static_cast<int>((1u << SHARE_BITS) / static_cast<u32>(p.pack)) + 1 : (1 << SHARE_BITS) + 1;
}
// Query tokens of a warpgroup's 64 rows.
DEV int group_tokens(const attention_params &p)
{
    return cfg::PACK ? static_cast<int>(64u / static_cast<u32>(p.pack)) : 64;
}
DEV u32 query_tiles(const attention_params &p) // of one head
{
    const u32 tokens = static_cast<u32>(cfg::BM / 64 * group_tokens(p));
    return (static_cast<u32>(p.z.len_q) + tokens - 1) / tokens;
}
DEV u32 heads_of_batch(const attention_params &p)
{
    return static_cast<u32>(p.z.n_h) / static_cast<u32>(packed_heads(p));
}

// What does not change in a launch, for one thread.
struct tile_order {
    u32 tiles, heads; // of one head; of all batches
    u32 of_batch;     // heads
    u32 of_section;   // heads
    u32 of_key_head;  // query heads, each by itself
};

// How many keys the longest of the first, the middle and the last row reaches over, as far as the bounds of the mask
// tell.
DEV int keys_of_row(const attention_params &p)
{
    const variant::head head = variant::make_head(p.x, p.z, 0, 0);
    int most = 1;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int row = i * ((p.z.len_q - 1) / 2);
        const variant::row at = variant::make_row(p.x, p.z, head, row);
        const int first = max(variant::first_key(p.x, p.z, head, at), 0);
        const int last = min(variant::last_key(p.x, p.z, head, at), p.z.len_kv - 1);
        most = first <= last ? max(most, last - first + 1) : most;
    }
    return most;
}

// Query heads of a section: those of 2^n key heads. Without a mask all rows are as long, and one key head
// after the other is best. Of a window no more of K and V is at work at a time than a tile's rows reach over.
DEV u32 heads_of_section(const attention_params &p, u32 all_heads)
{
    u32 heads = static_cast<u32>(p.z.group()) / static_cast<u32>(packed_heads(p));
    if constexpr (variant::MASKED) {
        const int keys = all_heads > 0 && p.z.len_q > 0 && p.z.len_kv > 0 ? keys_of_row(p) : 1;
        i64 bytes =
            2 * static_cast<i64>(keys < p.z.len_kv - cfg::BM ? keys + cfg::BM : p.z.len_kv) * (cfg::D + cfg::D_V) * 2;
        while (bytes <= SECTION_BYTES && heads * 2 <= all_heads) {
            heads *= 2;
            bytes *= 2;
        }
    }
    return heads;
}

DEV tile_order find_order(const attention_params &p)
{
    const u32 of_batch = heads_of_batch(p);
    const u32 heads = static_cast<u32>(p.z.n_b) * of_batch;
    return {query_tiles(p), heads, of_batch, heads_of_section(p, heads), static_cast<u32>(p.z.group())};
}

// The n'th, or NONE after the last.
DEV query_tile nth_query_tile(const attention_params &p, const tile_order &o, u32 n)
{
    if (n >= o.heads * o.tiles) {
        return {query_tile::NONE, 0, 0};
    }
    const u32 section = n / (o.of_section * o.tiles);
    const u32 rest = n - section * o.of_section * o.tiles;
    const u32 width = min(o.of_section, o.heads - section * o.of_section); // the last section may be narrower
    const u32 row = rest / width;
    const u32 head = section * o.of_section + rest - row * width;
    const u32 batch = head / o.of_batch;
    query_tile t;
    t.number = static_cast<int>(variant::MASKED ? o.tiles - 1 - row : row); // the one cut short last
    t.h = static_cast<int>(head - batch * o.of_batch) * packed_heads(p);
    t.b = static_cast<int>(batch);
    return t;
}
