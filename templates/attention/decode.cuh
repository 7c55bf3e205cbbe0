// attention/decode.cuh: attention of few queries against many keys, sm_80 and up, in two kernels.
//
// `decode`: time is the bytes of K and V, so they are read once for all rows of a key head (attention/decode_rows.cuh),
// by as many blocks as fill the GPU, each with a part of the keys; a mask cuts what it leaves, not what there is. A
// warp brings its own tiles of BN keys by cp.async, STAGES - 1 ahead, into a ring of its own, and no barrier over the
// block stands in its way. Where rows fill more than one warp (`wide`), warps still bring tiles of their own, but each
// looks at all of them with 16 of the rows. Out: of each part, row states and o ahead of the epilogue, in f32; of parts
// without live pairs only that.
//
// `merge` of attention/decode_merge.cuh ends the rows.
//
// Launch: n_b * n_h_kv * tiles * parts blocks of THREADS threads; of packed sequences (rows / BM + sequences) * n_h_kv
// * parts.
#pragma once
#include "attention/decode_merge.cuh"
#include "attention/decode_warp.cuh"

static_assert(attention_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not fill the slots of an attention kernel: templates/README.md lists them, "
              "and the notes below name the first one that is missing");
static_assert(parts_variant<variant, inputs, attention_params>,
              "variant.gen.cuh does not say how parts of a row are merged");

namespace decode
{

// ---- the end of a part -------------------------------------------------------------------------------

// Each warp has rows of its own. first: the thread's first one.
DEV void end_wide(warp_rows &own, const attention_params &p, const work &w, int first)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + 8 * r;
        const bool seen = (own.rows.seen >> r & 1u) != 0;
        if (i >= w.rows) {
            continue;
        }
        if ((lane_id() & 3) == 0) {
            write_record(record_of(p, w, i), own.rows.state[r], seen);
        }
        float *to = o_of(p, w, i) + 2 * (lane_id() & 3);
#pragma unroll
        for (int d = 0; d < DB; d++) {
            if (cfg::D_V == cfg::DV_PAD || 8 * d < cfg::D_V) {
                *reinterpret_cast<float2 *>(to + 8 * d) =
                    seen ? make_float2(own.o[0][d][2 * r], own.o[0][d][2 * r + 1]) : make_float2(0.0f, 0.0f);
            }
        }
    }
}

// All warps have the same rows, of keys of their own.
DEV void end_narrow(warp_rows &own, const attention_params &p, const work &w, u32 shared)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = lane_id() / 4;
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
        if (warp == 0 && (lane_id() & 3) == 0 && i < w.rows) {
            write_record(record_of(p, w, i), merge::merged(t, p.x, p.z), any);
        }
        share_o(own, shared, i, r, merge::factor(own.rows.state[r], t, p.x, p.z), (own.rows.seen >> r & 1u) != 0);
    }
    __syncthreads();
    constexpr int PIECES = cfg::D_V / 4;
    for (int piece = static_cast<int>(threadIdx.x); piece < w.rows * PIECES; piece += THREADS) {
        const int i = piece / PIECES;
        const int column = piece % PIECES * 4;
        *reinterpret_cast<float4 *>(o_of(p, w, i) + column) = sum_of_warps(shared, i, column);
    }
}

} // namespace decode

// ---- kernels -----------------------------------------------------------------------------------------

namespace smem_bytes
{
constexpr int decode = ::decode::layout::BYTES;
}

#if LATHE_COMPILED(decode)
extern "C" __global__ void __launch_bounds__(decode::THREADS)
    LATHE_ENTRY(decode)(const __grid_constant__ attention_params launched)
{
    using namespace decode;
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const u32 shared = shared_address(shared_bytes);
    auto &&p = own_params(launched);
    let_next_begin();
    work w;
    if (!find_work(p, w)) {
        return;
    }
    const key_tiles keys = find_keys(p, w);
    if (keys.n == 0) {
        write_nothing(p, w);
        return;
    }
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first = (w.wide ? warp * WARP_ROWS : 0) + lane_id() / 4;
    stream<warp_cursor> mine;
    mine.cursor.start(keys);
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
    int stage = 0; // of the tiles at hand
    int fill = cfg::STAGES - 1;
    bool more = true;
#pragma unroll 1
    while (more) {
        copy_wait<cfg::STAGES - 2>();
        if (w.wide) { // the tiles at hand are there, and no one reads those before them
            __syncthreads();
        } else {
            __syncwarp();
        }
        mine.bring_next(p, w, shared, fill);
        more = false;
#pragma unroll 1
        for (int k = w.wide ? 0 : warp; k < (w.wide ? cfg::WARPS : warp + 1); k++) {
            const int code = static_cast<int>(__float_as_uint(load_shared(layout::code(shared, k, stage))));
            if (code >= 0) {
                more = true;
                meet_tile(own, a, layout::stage(shared, k, stage), code);
            }
        }
        fill = stage;
        stage = stage + 1 == cfg::STAGES ? 0 : stage + 1;
    }
    copy_wait<0>();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(own.rows.state[r], sum_of_four{});
    }
    if (w.wide) {
        end_wide(own, p, w, first);
    } else {
        end_narrow(own, p, w, shared);
    }
}
#endif
