// tile_order_sm90.cuh: in which order query tiles are taken, so that blocks at work at the same time find
// each other's K and V in L2: heads in sections whose K and V fit there together, and within a section the
// longest rows of all of its heads first.
//
// Where queries are short, the rows of a tile may be those of several query heads of one key head, which take
// turns (cfg::PACK, and attention_params::pack heads at this launch): then a "head" below is a group of them.
#pragma once
#include "slots.cuh"

constexpr i64 SECTION_BYTES = 32ll << 20; // of K and V in L2

struct query_tile {
    int b, h, number; // h: the first head
};

DEV int packed_heads(const attention_params &p)
{
    return cfg::PACK ? p.pack : 1;
}
// Query tokens of a warpgroup's 64 rows.
DEV int group_tokens(const attention_params &p)
{
    return cfg::PACK ? 64 / p.pack : 64;
}
DEV int query_tiles(const attention_params &p) // of one head
{
    const int tokens = cfg::BM / 64 * group_tokens(p);
    return (p.z.len_q + tokens - 1) / tokens;
}
DEV u32 all_heads(const attention_params &p) // of all batches
{
    return static_cast<u32>(p.z.n_b) * static_cast<u32>(p.z.n_h / packed_heads(p));
}
DEV u32 all_query_tiles(const attention_params &p)
{
    return all_heads(p) * static_cast<u32>(query_tiles(p));
}

// Query heads of a section: those of 2^n key heads. Without a mask all rows are as long, and one key head
// after the other is best.
DEV u32 heads_of_section(const attention_params &p)
{
    u32 heads = static_cast<u32>(p.z.n_h / p.z.n_h_kv / packed_heads(p));
    if constexpr (variant::MASKED) {
        i64 bytes = 2 * static_cast<i64>(p.z.len_kv) * (cfg::D + cfg::D_V) * 2;
        while (bytes <= SECTION_BYTES && heads * 2 <= all_heads(p)) {
            heads *= 2;
            bytes *= 2;
        }
    }
    return heads;
}

// n: below all_query_tiles.
DEV query_tile nth_query_tile(const attention_params &p, u32 n)
{
    const u32 tiles = static_cast<u32>(query_tiles(p));
    const u32 heads = heads_of_section(p);
    const u32 section = n / (heads * tiles);
    const u32 rest = n - section * heads * tiles;
    const u32 width = min(heads, all_heads(p) - section * heads); // the last section may be narrower
    const u32 head = section * heads + rest % width;
    const u32 of_batch = static_cast<u32>(p.z.n_h / packed_heads(p));
    query_tile t;
    t.number = static_cast<int>(variant::MASKED ? tiles - 1 - rest / width : rest / width); // the one cut short last
    t.b = static_cast<int>(head / of_batch);
    t.h = static_cast<int>(head % of_batch) * packed_heads(p);
    return t;
}
