// attention/fwd_sm90_store.cuh: the end of a query tile: o and finals to memory. o by TMA, through a place of its own
// in shared memory, which leaves out what is beyond the lengths; or straight from registers, where there is no
// room, or an output mod takes it as fp32.
#pragma once
#include "attention/fwd_sm90_reader.cuh"

constexpr bool STORE_BY_TMA = cfg::OWN_O && !cfg::O_F32;

// Until the o of the query tile before has left shared memory. By one thread of the warpgroup.
DEV void wait_for_stores()
{
    if constexpr (STORE_BY_TMA) {
        if (fresh_thread() % 128 == 0) {
            tma_wait_read<0>();
        }
    }
}

// By the whole warpgroup: its slab is written, and then read by one thread's stores until the next query tile.
DEV void store_o_tma(const float (&o)[1][DB][4], const hopper_params &params, u32 slab, const hopper_place &at,
                     const tokens_at &of)
{
    const u32 to = slab + shared_layout::O;
    const u32 barrier = 1 + worker_group();
    wait_for_stores();
    barrier_sync(barrier, 128);
    // Four 8 x 8 pieces at a time: both halves of the warp's 16 rows, by two blocks of 8 columns.
    const int row = (at.first & ~15) + (at.lane & 15);
#pragma unroll
    for (int d = 0; d < DB; d += 2) {
        const u32 piece[4] = {
            pack<cfg::element_o>(o[0][d][0], o[0][d][1]), pack<cfg::element_o>(o[0][d][2], o[0][d][3]),
            pack<cfg::element_o>(o[0][d + 1][0], o[0][d + 1][1]), pack<cfg::element_o>(o[0][d + 1][2], o[0][d + 1][3])};
        store_matrix4(to + panels<O_COLUMNS>::offset<64>(row, d + at.lane / 16), piece);
    }
    fence_async_proxy();
    barrier_sync(barrier, 128);
    if (fresh_thread() % 128 == 0) {
        if constexpr (cfg::PACK) {
            store_packed_tile<64, O_COLUMNS>(&params.o, to, at.column0, at.group_row0(), at.h / at.heads, at.b);
        } else {
            store_tile<64, O_COLUMNS>(&params.o, to, at.column0, at.group_row0(), at.h,
                                      of.queries<OF_O>(params.p, at.b));
        }
    }
}

// The four lanes of a row exchange words until each has 16 bytes in a row, 64 together.
DEV void store_o_direct(const float (&o)[1][DB][4], const attention_params &p, const hopper_place &at)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const bool there = at.row(r) < p.z.len_q;
        cfg::element_o *to = static_cast<cfg::element_o *>(p.o) + at.b * p.o_b + at.head(r) * p.o_h +
                             at.row(r) * p.o_t + at.column0 + 8 * (at.lane & 3);
#pragma unroll
        for (int d = 0; d < DB; d += 4) {
            u32 word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                word[i] = d + i < DB ? pack<cfg::element_o>(o[0][min_of(d + i, DB - 1)][2 * r],
                                                            o[0][min_of(d + i, DB - 1)][2 * r + 1])
                                     : 0;
            }
            const uint4 piece = transpose_four(word, at.lane);
            if (there && (cfg::D_V == cfg::DV_PAD && DB % 4 == 0 || at.column0 + 8 * (d + (at.lane & 3)) < cfg::D_V)) {
                *reinterpret_cast<uint4 *>(to + 8 * d) = piece;
            }
        }
    }
}

DEV void store_rows(warp_work &w, const hopper_params &params, tile_reader &reader)
{
    // Found again, so that nothing of it stays in registers meanwhile.
    const tokens_at of = tokens_at::read(reader.shared, reader.round);
    auto &&p = of.enter(params.p);
    const hopper_place at = find_place(p, reader.query(), reader.share, static_cast<int>(fresh_thread() / 32) - 4);
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        w.rows.row[r] = variant::make_row(p.x, p.z, head, at.row(r));
    }
    finish_rows(w.rows, w.o, p, {p.x, p.z, head}, at);
    if constexpr (cfg::O_F32) {
        store_o_f32(w.o, p, at);
    } else if constexpr (STORE_BY_TMA) {
        store_o_tma(w.o, params, reader.slab(), at, of);
    } else {
        store_o_direct(w.o, p, at);
    }
}
