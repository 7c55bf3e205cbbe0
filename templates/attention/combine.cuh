// attention/combine.cuh: parts of rows of attention, computed apart, become rows, sm_80 and up: a warp for each row
// puts the row's parts together by the spec's `combine`, in their order, and ends the row. Parts without a live pair
// are not looked at.
//
// Time is the bytes of part_o, which are read once. The states of a part are a few floats, which each reduction of
// `combine` reads again: so there may be any number of parts.
//
// Launch: a warp for each of n_b * n_h * len_q rows, cfg::WARPS to a block.
#pragma once
#include "attention/elements.cuh"
#include "attention/row_states.cuh"

static_assert(row_states_variant<variant, inputs>, "variant.gen.cuh does not say how parts of a row are merged");
static_assert(cfg::D_V >= 1 && cfg::D_V <= 512, "a lane has up to four pieces of a row of o");
static_assert(cfg::WARPS >= 1 && cfg::WARPS <= 32, "cfg::WARPS is 1 .. 32");

namespace combine
{

using namespace row_states;

constexpr int PIECES = (cfg::D_V + 3) / 4; // of four elements of a row
constexpr int OWN = (PIECES + 31) / 32;    // of a lane
constexpr int AT_ONCE = 4;                 // parts on their way
constexpr bool WHOLE = cfg::D_V % 4 == 0;  // the last piece has all four

// ---- one row -----------------------------------------------------------------------------------------

struct place {
    int b, h, token;
    bool exists;
};

DEV place find_row(const combine_params &p)
{
    const u32 number = blockIdx.x * cfg::WARPS + threadIdx.x / 32; // of fewer than 2^31 rows
    const u32 head = number / static_cast<u32>(p.z.len_q);
    place at;
    at.token = static_cast<int>(number - head * static_cast<u32>(p.z.len_q));
    at.b = static_cast<int>(head / static_cast<u32>(p.z.n_h));
    at.h = static_cast<int>(head - static_cast<u32>(at.b) * static_cast<u32>(p.z.n_h));
    at.exists = at.b < p.z.n_b;
    return at;
}

// The states of the lane's parts of a row, every 32nd, that have had a live pair.
struct lane_states {
    const float *rows;
    i64 step; // from part to part
    int parts;

    __device__ __forceinline__ bool is_live(int part) const
    {
        return part < parts && rows[part * step + variant::STATES] != 0.0f;
    }
    __device__ __forceinline__ variant::state of(int part) const { return merge::read(rows + part * step); }
    template <class F> __device__ __forceinline__ void operator()(const F &f) const
    {
        for (int part = lane_id(); part < parts; part += 32) {
            if (is_live(part)) {
                f(of(part));
            }
        }
    }
};

DEV float4 load_piece(const float *row, int piece)
{
    if constexpr (cfg::PARTS_ALIGNED && WHOLE) {
        return *reinterpret_cast<const float4 *>(row + 4 * piece);
    } else {
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = WHOLE || 4 * piece + j < cfg::D_V ? row[4 * piece + j] : 0.0f;
        }
        return make_float4(x[0], x[1], x[2], x[3]);
    }
}

// The first AT_ONCE parts of those that are `left`, of the 32 that begin at `rows`.
DEV void add_parts(float4 (&sum)[OWN], u32 &left, float factor, const float *rows, i64 step)
{
    float4 x[AT_ONCE][OWN];
    float f[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        const bool more = left != 0;
        const int part = more ? __ffs(static_cast<int>(left)) - 1 : 0;
        const float its = __shfl_sync(ALL_LANES, factor, part);
        f[k] = more ? its : 0.0f;
        left &= left - 1;
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            const int piece = lane_id() + 32 * c;
            x[k][c] =
                more && piece < PIECES ? load_piece(rows + part * step, piece) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            sum[c].x += x[k][c].x * f[k];
            sum[c].y += x[k][c].y * f[k];
            sum[c].z += x[k][c].z * f[k];
            sum[c].w += x[k][c].w * f[k];
        }
    }
}

// Four elements of o. seen: the row has had a live pair.
DEV void store_piece(const combine_params &p, i64 row, int piece, const float4 &x, float factor, bool seen)
{
    const float none = cfg::O_MARKED ? __uint_as_float(EMPTY_ROW) : 0.0f;
    const float y[4] = {seen ? x.x * factor : none, seen ? x.y * factor : none, seen ? x.z * factor : none,
                        seen ? x.w * factor : none};
    const i64 at = row + 4 * piece;
    if constexpr (cfg::O_F32 || same_type<cfg::element_o, float>) {
        float *out = static_cast<float *>(p.o) + at;
        if constexpr (cfg::O_ALIGNED && WHOLE) {
            *reinterpret_cast<float4 *>(out) = make_float4(y[0], y[1], y[2], y[3]);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (WHOLE || 4 * piece + j < cfg::D_V) {
                    out[j] = y[j];
                }
            }
        }
    } else {
        cfg::element_o *out = static_cast<cfg::element_o *>(p.o) + at;
        if constexpr (cfg::O_ALIGNED && WHOLE) {
            *reinterpret_cast<uint2 *>(out) =
                make_uint2(pack<cfg::element_o>(y[0], y[1]), pack<cfg::element_o>(y[2], y[3]));
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (WHOLE || 4 * piece + j < cfg::D_V) {
                    out[j] = from_float<cfg::element_o>(y[j]);
                }
            }
        }
    }
}

} // namespace combine

// ---- kernel ------------------------------------------------------------------------------------------

#if LATHE_COMPILED(combine)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(combine)(const __grid_constant__ combine_params p)
{
    using namespace combine;
    const place at = find_row(p);
    if (!at.exists) {
        return;
    }
    const variant::head head = variant::make_head(p.x, p.z, at.b, at.h);
    const variant::row row = variant::make_row(p.x, p.z, head, at.token);
    const lane_states states{p.part_rows + (at.b * p.part_rows_b + at.h * p.part_rows_h + at.token * p.part_rows_t),
                             p.part_rows_p, p.parts};
    const float *o = p.part_o + (at.b * p.part_o_b + at.h * p.part_o_h + at.token * p.part_o_t);
    merge t;
    merge_states<warp_share>(t, states, p.x, p.z);
    float4 sum[OWN];
#pragma unroll
    for (int c = 0; c < OWN; c++) {
        sum[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    bool seen = false;
#pragma unroll 1
    for (int first = 0; first < p.parts; first += 32) {
        const int part = first + lane_id();
        const bool live = states.is_live(part);
        const float factor = live ? merge::factor(states.of(part), t, p.x, p.z) : 0.0f;
        u32 left = __ballot_sync(ALL_LANES, live);
        seen = seen || left != 0;
#pragma unroll 1
        while (left != 0) {
            add_parts(sum, left, factor, o + first * p.part_o_p, p.part_o_p);
        }
    }
    float finals[variant::FINALS > 0 ? variant::FINALS : 1];
    const float end = variant::finish(merge::merged(t, p.x, p.z), finals, p.x, p.z, head, row);
    if (!seen) {
        variant::empty_finals(finals, p.x, p.z, head, row);
    }
    if (lane_id() == 0) {
        variant::store_finals(p, at.b, at.h, at.token, finals);
    }
#pragma unroll
    for (int c = 0; c < OWN; c++) {
        const int piece = lane_id() + 32 * c;
        if (piece < PIECES) {
            store_piece(p, at.b * p.o_b + at.h * p.o_h + at.token * p.o_t, piece, sum[c], end, seen);
        }
    }
}
#endif
