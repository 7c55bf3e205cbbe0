// tile_order_sm90.cuh: in which order query tiles are taken, so that blocks at work at the same time find
// each other's K and V in L2: heads in sections whose K and V fit there together, and within a section the
// longest rows of all of its heads first.
#pragma once
#include "slots.cuh"

constexpr i64 SECTION_BYTES = 32ll << 20; // of K and V in L2

struct query_tile {
    int b, h, number;
};

DEV int query_tiles(const sizes &z) // of one head
{
    return (z.len_q + cfg::BM - 1) / cfg::BM;
}
DEV u64 all_query_tiles(const sizes &z)
{
    return static_cast<u64>(z.n_b) * static_cast<u64>(z.n_h) * static_cast<u64>(query_tiles(z));
}

// Query heads of a section: those of 2^n key heads. Without a mask all rows are as long, and one key head
// after the other is best.
DEV u32 heads_of_section(const sizes &z)
{
    u32 heads = static_cast<u32>(z.n_h / z.n_h_kv);
    if constexpr (variant::MASKED) {
        const u32 all = static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h);
        i64 bytes = 2 * static_cast<i64>(z.len_kv) * (cfg::D + cfg::D_V) * 2;
        while (bytes <= SECTION_BYTES && heads * 2 <= all) {
            heads *= 2;
            bytes *= 2;
        }
    }
    return heads;
}

// n: below all_query_tiles.
DEV query_tile nth_query_tile(const sizes &z, u32 n)
{
    const u32 tiles = static_cast<u32>(query_tiles(z));
    const u32 heads = heads_of_section(z);
    const u32 all = static_cast<u32>(z.n_b) * static_cast<u32>(z.n_h);
    const u32 section = n / (heads * tiles);
    const u32 rest = n - section * heads * tiles;
    const u32 width = min(heads, all - section * heads); // the last section may be narrower
    const u32 head = section * heads + rest % width;
    query_tile t;
    t.number = static_cast<int>(tiles - 1 - rest / width);
    t.b = static_cast<int>(head / static_cast<u32>(z.n_h));
    t.h = static_cast<int>(head % static_cast<u32>(z.n_h));
    return t;
}
