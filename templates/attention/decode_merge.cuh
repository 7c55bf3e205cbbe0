// attention/decode_merge.cuh: what kernels leave of a part of a row, and the kernel `merge`, a block for each row,
// which puts a row's parts together by the spec's `combine`, in their order, and ends the row. Of each part there are
// row states and o ahead of the epilogue, in f32; of a part without a live pair only that it has none.
//
// Launch of merge: n_b * n_h * len_q blocks of MERGE_THREADS threads.
#pragma once
#include "attention/decode_rows.cuh"

namespace decode
{

// ---- the end of a part -------------------------------------------------------------------------------

DEV float *record_of(const attention_params &p, const work &w, int i)
{
    return p.part_rows + (w.part * w.all.n() + w.number(i)) * RECORD;
}
DEV float *o_of(const attention_params &p, const work &w, int i)
{
    return p.part_o + (w.part * w.all.n() + w.number(i)) * cfg::D_V;
}

// No row has a live pair in this part.
DEV void write_nothing(const attention_params &p, const work &w)
{
    for (int i = static_cast<int>(threadIdx.x); i < w.rows; i += THREADS) {
        record_of(p, w, i)[variant::STATES] = 0.0f;
    }
}

// ---- parts of a row ----------------------------------------------------------------------------------

constexpr int MERGE_THREADS = 128;
constexpr int MERGE_WARPS = MERGE_THREADS / 32;
constexpr int MOST_PARTS = 128; // in runtime/recipe/signature.c, too
constexpr int OWN = MOST_PARTS / 32;

struct lane_parts { // part 32 u + lane is the lane's u'th
    variant::state state[OWN];
    u32 seen[OWN]; // bit l: lane l's has had a live pair

    __device__ __forceinline__ bool has(int u) const { return (seen[u] >> lane_id() & 1u) != 0; }
    template <class F> __device__ __forceinline__ void operator()(const F &f) const
    {
#pragma unroll
        for (int u = 0; u < OWN; u++) {
            if (has(u)) {
                f(state[u]);
            }
        }
    }
};

DEV void load_parts(lane_parts &own, const attention_params &p, i64 row, i64 rows)
{
#pragma unroll
    for (int u = 0; u < OWN; u++) {
        const int part = 32 * u + lane_id();
        const float *from = p.part_rows + (part * rows + row) * RECORD;
        const bool seen = part < static_cast<int>(p.parts) && from[variant::STATES] != 0.0f;
        own.seen[u] = __ballot_sync(ALL_LANES, seen);
        own.state[u] = variant::init(true);
        if (seen) {
            own.state[u] = merge::read(from);
        }
    }
}

constexpr int PIECES = cfg::D_V / 4;
constexpr int OWN_PIECES = (PIECES + 31) / 32;

// A warp's share of o: every MERGE_WARPS'th part.
DEV void add_parts(float4 (&sum)[OWN_PIECES], const lane_parts &own, const float (&factor)[OWN],
                   const attention_params &p, i64 row, i64 rows)
{
    const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int u = 0; u < OWN; u++) {
        if (own.seen[u] == 0) {
            continue;
        }
#pragma unroll
        for (int k = 0; k < 32 / MERGE_WARPS; k++) {
            const int lane = k * MERGE_WARPS + warp;
            const bool seen = (own.seen[u] >> lane & 1u) != 0;
            const float f = __shfl_sync(ALL_LANES, factor[u], lane);
            const float *from = p.part_o + ((32 * u + lane) * rows + row) * cfg::D_V;
#pragma unroll
            for (int c = 0; c < OWN_PIECES; c++) {
                const int piece = lane_id() + 32 * c;
                float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (seen && piece < PIECES) {
                    x = *reinterpret_cast<const float4 *>(from + piece * 4);
                }
                sum[c].x += x.x * f;
                sum[c].y += x.y * f;
                sum[c].z += x.z * f;
                sum[c].w += x.w * f;
            }
        }
    }
}

// p becomes that of the token's sequence, and a packed token is counted within it. False: no sequence has it.
template <class PARAMS> DEV bool enter_sequence(PARAMS &p, int &b, int &token)
{
    if (is_packed(p)) {
        if (p.z.n_b == 0) {
            return false;
        }
        const sequences::places of = sequences::queries(p);
        b = sequences::last_from(p.z.n_b, token, [&](int i) { return of.at(i); });
        token -= of.at(b);
    }
    sequences::enter(p, b);
    return token >= 0 && token < p.z.len_q;
}

} // namespace decode

// ---- kernel ------------------------------------------------------------------------------------------

#if LATHE_COMPILED(merge)
extern "C" __global__ void __launch_bounds__(decode::MERGE_THREADS)
    LATHE_ENTRY(merge)(const __grid_constant__ attention_params launched)
{
    using namespace decode;
    __shared__ float partial[MERGE_WARPS][PIECES][4];
    auto &&p = own_params(launched);
    const row_places all = places_of_rows(p);
    const i64 rows = all.n();
    const u32 row = blockIdx.x;
    const u32 head_number = row / static_cast<u32>(all.tokens);
    int token = static_cast<int>(row - head_number * static_cast<u32>(all.tokens));
    int b = static_cast<int>(head_number / static_cast<u32>(all.n_h));
    const int h = static_cast<int>(head_number - static_cast<u32>(b) * static_cast<u32>(all.n_h));
    if constexpr (HAS_SEQUENCES<attention_params>) {
        if (!enter_sequence(p, b, token)) {
            wait_for_launch_before();
            return;
        }
    }
    const variant::head head = variant::make_head(p.x, p.z, b, h);
    const variant::row at = variant::make_row(p.x, p.z, head, token);
    wait_for_launch_before();
    lane_parts own;
    load_parts(own, p, row, rows);
    merge t;
    merge_states<warp_share>(t, own, p.x, p.z);
    float factor[OWN];
    u32 any = 0;
#pragma unroll
    for (int u = 0; u < OWN; u++) {
        any |= own.seen[u];
        factor[u] = own.has(u) ? merge::factor(own.state[u], t, p.x, p.z) : 0.0f;
    }
    float4 sum[OWN_PIECES];
#pragma unroll
    for (int c = 0; c < OWN_PIECES; c++) {
        sum[c] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    add_parts(sum, own, factor, p, row, rows);
#pragma unroll
    for (int c = 0; c < OWN_PIECES; c++) {
        const int piece = lane_id() + 32 * c;
        if (piece < PIECES) {
            float *to = partial[threadIdx.x / 32][piece];
            to[0] = sum[c].x;
            to[1] = sum[c].y;
            to[2] = sum[c].z;
            to[3] = sum[c].w;
        }
    }
    __syncthreads();
    float finals[variant::FINALS > 0 ? variant::FINALS : 1];
    const float end = variant::finish(merge::merged(t, p.x, p.z), finals, p.x, p.z, head, at);
    if (any == 0) {
        variant::empty_finals(finals, p.x, p.z, head, at);
    }
    if (threadIdx.x == 0) {
        variant::store_finals(p, b, h, token, finals);
    }
    for (int piece = static_cast<int>(threadIdx.x); piece < PIECES; piece += MERGE_THREADS) {
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = 0.0f;
#pragma unroll
            for (int k = 0; k < MERGE_WARPS; k++) {
                x[j] += partial[k][piece][j];
            }
        }
        store_piece(p, b * p.o_b + h * p.o_h + token * p.o_t + piece * 4, x, end, any != 0);
    }
}
#endif
