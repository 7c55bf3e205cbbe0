// linear/forward_walk.cuh: what walks along the chunks of a sequence share, forward: loads, what queries read, outputs.
#pragma once
#include "linear/kept.cuh"
#include "linear/keyed_delta_walk.cuh"

namespace linear
{

struct forward_walk : keyed_walk<linear_params, prepared::END_AHEAD> {
    __device__ __forceinline__ void load_first(int number) const
    {
        copy<0, prepared::FIRST>(number);
        load_values<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h, p.v_t, number);
        copy_commit();
    }
    __device__ __forceinline__ void load_second(int number) const
    {
        copy<prepared::FIRST, prepared::SECOND>(number);
        copy_commit();
    }
    // o = q S, of 16 tokens.
    __device__ __forceinline__ void read_state(float (&o)[2][4], const state_columns &s, float by, int t) const
    {
        const u32 q = tile(prepared::READ_Q, t * STEP) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        float part[2][2][4] = {}; // of even and odd channels, 16 of them: chains of sums half as long
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 a[4];
            u32 b[4];
            load_matrix4(a, swizzle<KEY_PAD>::along(q, 2 * k));
            s.pack_rows(b, k, by);
            mma_16x8x16<operand>(part[k % 2][0], a, b[0], b[1]);
            mma_16x8x16<operand>(part[k % 2][1], a, b[2], b[3]);
        }
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            o[e / 4][e % 4] = back * (part[0][e / 4][e % 4] + part[1][e / 4][e % 4]);
        }
    }
    // x as the second operands of mma.sync, whose registers lie in another order than those of first ones, in registers
    // of its own: of one value the compiler copies four registers ahead of most products. No sequence has a number
    // below 0, which it does not know. Beyond 128 key channels there are no registers for a copy.
    __device__ __forceinline__ void copy_apart(u32 (&to)[CHUNK_STEPS][4], const u32 (&x)[CHUNK_STEPS][4]) const
    {
        const u32 zero = KEY_PAD <= 128 ? static_cast<u32>(w.s.number >> 31) : 0u;
#pragma unroll
        for (int n = 0; n < 4 * CHUNK_STEPS; n++) {
            to[n / 4][n % 4] = x[n / 4][n % 4] ^ zero;
        }
    }
    // o += pairs of step t times what tokens write.
    __device__ __forceinline__ void add_pairs(float (&o)[2][4], const u32 (&x)[CHUNK_STEPS][4], int which, int t) const
    {
#pragma unroll
        for (int j = 0; j <= t; j++) {
            const uint4 four = load_shared16(block(which, t, j));
            const u32 a[4] = {four.x, four.y, four.z, four.w};
            mma_16x8x16<operand>(o[0], a, x[j][0], x[j][2]);
            mma_16x8x16<operand>(o[1], a, x[j][1], x[j][3]);
        }
    }
    __device__ __forceinline__ void scale_outputs(float (&o)[2][4]) const
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            o[e / 4][e % 4] *= w.scale;
        }
    }
    __device__ __forceinline__ i64 output_at(int place) const
    {
        return w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, place) * p.o_t + w.first;
    }
    __device__ __forceinline__ void store(const float (&o)[2][4], int place) const
    {
        if constexpr (cfg::O_F32) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = lane_id() / 4 + i % 2 * 8;
                const int column = first() + i / 2 * 8 + lane_id() % 4 * 2;
                if (w.has(place + row) && column < w.left) {
                    const float two[2] = {o[i / 2][i % 2 * 2], o[i / 2][i % 2 * 2 + 1]};
                    store_any<2, float>(static_cast<float *>(p.o) + output_at(place + row) + column, two);
                }
            }
        } else {
            u32 word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                word[i] = pack<operand>(o[i % 2][i / 2 * 2], o[i % 2][i / 2 * 2 + 1]);
            }
            const uint4 eight = transpose_four(word, lane_id());
            const int row = lane_id() / 4 + lane_id() % 4 / 2 * 8;
            const int column = first() + lane_id() % 2 * 8;
            if (w.has(place + row) && column < w.left) {
                store_row(static_cast<cfg::element_o *>(p.o) + output_at(place + row) + column, eight);
            }
        }
    }
    // What is wanted of the state behind a chunk; `to` by kept_behind.
    __device__ __forceinline__ void leave_kept(state_columns &s, int to) const
    {
        keep_state(p, w, to, [&](cfg::element_state *states, i64 s_i, i64 s_j, cfg::element_state *, i64) {
            s.each_of_memory(s_i, s_j, w.first + first(), w.left - first(),
                             [&](float &a, i64 at) { states[at] = from_float<cfg::element_state>(a); });
        });
    }
    // Where registers are few, what is rounded of the state in f16 is rounded again for each product.
    DEV float again(float by)
    {
        u32 bits = __float_as_uint(by);
        if constexpr (KEY_PAD > 128 && state_columns::SCALED) {
            keep(bits);
        }
        return __uint_as_float(bits);
    }
};

// A whole sequence, from the state that it begins with to the last one.
template <class WALK> DEV void walk_sequence(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<VALUE_PAD, KEYED_THREADS>(p, w);
        return;
    }
    if (goes_by_token(p, w.s)) {
        return;
    }
    const WALK walk{{{p, w, shared_address(bytes)}}};
    const int column = w.first + WALK::first();
    const int left = w.left - WALK::first();
    const cfg::element_state *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
    cfg::element_state *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
    state_columns s = {};
    if (from != nullptr) {
        s.each_of_memory(p.state_i, p.state_j, column, left, [&](float &a, i64 at) { a = to_float(from[at]); });
    }
    walk.run(s);
    if (to != nullptr) {
        s.each_of_memory(p.state_out_i, p.state_out_j, column, left,
                         [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
    }
}

} // namespace linear
