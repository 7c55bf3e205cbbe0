// attention_store_sm90.cuh: the end of a query tile: o and finals of a warp's rows to memory.
#pragma once
#include "attention_reader_sm90.cuh"

// o and finals of a query tile to memory. Gives Q back where o takes its place.
DEV void store_rows(warp_work &w, const hopper_params &params, tile_reader &reader)
{
    // Found again, so that nothing of it stays in registers meanwhile.
    const attention_params &p = params.p;
    const int warp = static_cast<int>(fresh_thread() / 32) - 4;
    const work_place at = find_place(p.z, reader.number(), warp);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.rows.row[r] = variant::make_row(p.x, p.z, head, at.first_row + 8 * r);
    }
    finish_rows(w.rows, w.o, p, {p.x, p.z, head}, at);
    const i64 o_head = at.b * p.o_b + at.h * p.o_h;
    if constexpr (cfg::O_F32) {
        store_o_f32(w.o, static_cast<float *>(p.o) + o_head, p.o_t, at, p.z.len_q);
    } else {
        if constexpr (cfg::OWN_O) {
            __syncwarp(); // the round before has read its o
        } else {
            barrier_sync(1 + worker_group(), 128); // no one reads this Q any more
        }
        store_o(w.o, reader.slab() + static_cast<u32>(shared_layout::O + warp % 4 * 16 * cfg::DV_PAD * 2),
                static_cast<cfg::element *>(p.o) + o_head, p.o_t, at, p.z.len_q);
        if constexpr (!cfg::OWN_O) {
            fence_async_proxy(); // the next Q comes into this place
            __syncwarp();
            reader.leave_q();
        }
    }
}
