// linear/backward/keyed_states.cuh: kernels: the two walks of the backward pass along the chunks of a sequence, of the
// delta rule behind a decay by key channel, and what they take of each chunk.
//
// With the names of linear/chunk_parts.cuh, reads q e^G and k e^G, writes k e^(G_end - G), X what the tokens of a
// chunk write, S the state in front of it and S' that behind it:
//     X = T (v - reads_k S),                     S' = e^G_end S + writes' X
//     dv = T' (scale A' do + writes dS'),        dS = e^G_end dS' + scale reads_q' do - reads_k' dv They leave S and X,
//     dS' and dv of each chunk, with value channels as rows. Where beta is 0, T has what is next to it, so that X /
//     beta is a number. In f16 states are scaled (state_scale of walk.cuh), and X and dv are left without the power of
//     two in their token's beta.
//
// Launch of bwd_prepare: as of linear/keyed_delta_prepare.cuh, smem_bytes::bwd_prepare of shared memory; of bwd_states
// 2 * sequences * h * BANDS * SLICES_V blocks of KEYED_THREADS threads, an odd one goes back, smem_bytes::bwd_states of
// shared memory.
#pragma once
#include "linear/backward/products.cuh"
#include "linear/keyed_delta_prepare.cuh"
#include "linear/keyed_delta_walk.cuh"

namespace linear
{

static_assert(VALUE_PAD == CHUNK_COLUMNS && KEY_PAD == KEY_PARTS * PAD_D,
              "blocks have all of what they leave between them");

// With two writers linear/backward/dplr.cuh has what is for the way back in the place of what is for the way there.
using back_walk = keyed_walk<linear_back_params, WRITERS == 1 ? prepared::END_BACK : prepared::END>;

struct keyed_states : back_walk {
    // Returns what the state of this warp is multiplied by before it is an operand; in f16, behind a barrier, all
    // warps' states have one scale for `leave_state`.
    __device__ __forceinline__ float tell_scale(const state_columns &s) const
    {
        if constexpr (STATE_SCALED) {
            const float most = s.largest();
            if (lane_id() == 0) {
                store_shared(largest_at(static_cast<int>(threadIdx.x) / 32), most);
            }
            return state_scale::of(most).by;
        }
        return 1.0f;
    }
    __device__ __forceinline__ u32 largest_at(int warp) const
    {
        return shared + static_cast<u32>(back_walk::END + 4 * warp);
    }
    __device__ __forceinline__ state_scale scale() const
    {
        float most = 0.0f;
#pragma unroll
        for (int k = 0; k < COLUMN_WARPS; k++) {
            most = fmaxf(most, load_shared(largest_at(k)));
        }
        return state_scale::of(most);
    }
    // 16 bytes a lane: eight channels of a column.
    __device__ __forceinline__ void leave_state(const state_columns &s, void *base, int number) const
    {
        operand *of = static_cast<operand *>(base) + state_place(p, w, number * CHUNK_TOKENS);
        operand *to = of + (column_of_band(w) + first() + lane_id() / 4) * PAD_D + lane_id() % 4 * 8;
        state_scale by = {1.0f, 1.0f};
        if constexpr (STATE_SCALED) {
            by = scale();
            if (threadIdx.x < KEY_PARTS) {
                *reinterpret_cast<float *>(of + threadIdx.x * STATE_PITCH + scale_place(0, column_of_band(w))) =
                    by.back;
            }
        }
#pragma unroll
        for (int n = 0; n < state_columns::BLOCKS; n += 4) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 word[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    word[e] = pack<operand>(STATE_SCALED ? by.by * s.x[n + e][2 * r] : s.x[n + e][2 * r],
                                            STATE_SCALED ? by.by * s.x[n + e][2 * r + 1] : s.x[n + e][2 * r + 1]);
                }
                *reinterpret_cast<uint4 *>(to + 8 * n / PAD_D * STATE_PITCH + 8 * r * PAD_D + 8 * n % PAD_D) =
                    transpose_four(word, lane_id());
            }
        }
    }
    // The same: eight tokens of a column.
    __device__ __forceinline__ void leave_values(const u32 (&x)[CHUNK_STEPS][4], void *base, int number) const
    {
        const i64 at = chunk_of_head(p, w, number * CHUNK_TOKENS) * PAD_V;
        operand *to = static_cast<operand *>(base) + (at + column_of_band(w) + first() + lane_id() / 4) * CHUNK_TOKENS +
                      lane_id() % 4 * 8;
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t += 2) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 word[4] = {x[t][r], x[t][2 + r], x[t + 1][r], x[t + 1][2 + r]};
                *reinterpret_cast<uint4 *>(to + 8 * r * CHUNK_TOKENS + STEP * t) = transpose_four(word, lane_id());
            }
        }
    }

    __device__ __forceinline__ void load_powers(int number) const
    {
        if constexpr (POWERS_APART) {
            copy<prepared::POWERS, 4 * CHUNK_TOKENS>(number);
        }
    }
    // By each token's power, which has been kept apart.
    __device__ __forceinline__ void join_powers(u32 (&x)[CHUNK_STEPS][4]) const
    {
#pragma unroll
        for (int n = 0; POWERS_APART && n < 4 * CHUNK_STEPS; n++) {
            const int token = n / 4 * STEP + n % 4 / 2 * 8 + lane_id() % 4 * 2;
            const float2 by = load_shared8(shared + static_cast<u32>(prepared::POWERS + 4 * token));
            float two[2];
            unpack<operand>(x[n / 4][n % 4], two[0], two[1]);
            x[n / 4][n % 4] = pack<operand>(by.x * two[0], by.y * two[1]);
        }
    }

    // ---- forward -------------------------------------------------------------------------------------

    __device__ __forceinline__ void load_forward(int number) const
    {
        copy<prepared::READ_K, prepared::FIRST>(number);
        load_powers(number);
        load_values<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h, p.v_t, number);
        copy_commit();
    }
    __device__ __forceinline__ void load_writers(int number) const
    {
        copy<prepared::WRITE_K, prepared::TILE>(number);
        copy<prepared::FACTORS, 4 * KEY_PAD>(number);
        copy_commit();
    }
    __device__ __forceinline__ void go_forward(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_forward(0);
        load_writers(0);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = 0; number < chunks; number++) {
            const bool more = number + 1 < chunks;
            u32 x[CHUNK_STEPS][4];
            if constexpr (!STATE_SCALED) {
                leave_state(s, p.states, number);
            }
            correct(x, s, tell_scale(s));
            solve(x);
            leave_values(x, p.written, number);
            join_powers(x);
            copy_wait<0>();
            __syncthreads();
            if constexpr (STATE_SCALED) {
                leave_state(s, p.states, number);
            }
            if (more) {
                load_forward(number + 1);
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, x, prepared::WRITE_K);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_writers(number + 1);
            }
        }
    }

    // ---- back ----------------------------------------------------------------------------------------

    __device__ __forceinline__ void load_back(int number) const
    {
        static_assert(WRITERS > 1 || prepared::PAIRS == prepared::WRITE_K + prepared::TILE,
                      "A lies behind what writes");
        copy<prepared::WRITE_K, prepared::TILE + prepared::BLOCKS>(number);
        copy<prepared::INVERSE_BACK, 2 * prepared::BLOCKS>(number);
        load_powers(number);
        load_values<cfg::element_o>(p.dout, w.s.batch * p.dout_b + w.h * p.dout_h, p.dout_t, number);
        copy_commit();
    }
    __device__ __forceinline__ void load_readers(int number) const
    {
        copy<prepared::READ_K, prepared::TILE>(number);
        copy<prepared::READ_Q, prepared::TILE>(number);
        copy<prepared::FACTORS, 4 * KEY_PAD>(number);
        copy_commit();
    }
    // x += blocks (i, t)' of a triangle, i from t on, times y, of 16 tokens.
    __device__ __forceinline__ void add_column(float (&x)[4], float (&y)[4], const u32 (&of)[CHUNK_STEPS][4], int which,
                                               int t) const
    {
#pragma unroll
        for (int i = t; i < CHUNK_STEPS; i++) {
            const uint4 b = load_shared16(block(which, i, t));
            mma_16x8x16<operand>(x, of[i], b.x, b.y);
            mma_16x8x16<operand>(y, of[i], b.z, b.w);
        }
    }
    // dv.
    __device__ __forceinline__ void solve_back(u32 (&z)[CHUNK_STEPS][4], const u32 (&out)[CHUNK_STEPS][4],
                                               const state_columns &s, float by) const
    {
        float x[2 * CHUNK_STEPS][4] = {};
        multiply_state(x, s, by, prepared::WRITE_K);
        const float back = 1.0f / by;
#pragma unroll
        for (int e = 0; STATE_SCALED && e < 8 * CHUNK_STEPS; e++) {
            x[e / 4][e % 4] *= back;
        }
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            add_column(x[2 * t], x[2 * t + 1], out, prepared::PAIRS, t);
        }
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            round(z[t], x[2 * t], x[2 * t + 1]);
        }
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) { // the first ones are needed no more
            float y[2][4] = {};
            add_column(y[0], y[1], z, prepared::INVERSE_BACK + prepared::BLOCKS, t);
            add_column(y[0], y[1], z, prepared::INVERSE_BACK, t);
            round(z[t], y[0], y[1]);
        }
    }
    __device__ __forceinline__ void go_back(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_back(chunks - 1);
        load_readers(chunks - 1);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = chunks - 1; number >= 0; number--) {
            u32 out[CHUNK_STEPS][4];
            u32 z[CHUNK_STEPS][4];
            if constexpr (!STATE_SCALED) {
                leave_state(s, p.dstates, number);
            }
            load_operands(out);
            solve_back(z, out, s, tell_scale(s));
            leave_values(z, p.dwritten, number);
            join_powers(z);
            copy_wait<0>();
            __syncthreads();
            if constexpr (STATE_SCALED) {
                leave_state(s, p.dstates, number);
            }
            if (number > 0) {
                load_back(number - 1);
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, out, prepared::READ_Q);
#pragma unroll
            for (int e = 0; e < 4 * CHUNK_STEPS; e++) {
                z[e / 4][e % 4] ^= 0x80008000u; // the sign of both
            }
            add(s, z, prepared::READ_K);
            copy_wait<0>();
            __syncthreads();
            if (number > 0) {
                load_readers(number - 1);
            }
        }
    }
};

// WALK: keyed_states, or what is made of them.
template <class WALK> DEV void walk_both_ways(const linear_back_params &p, unsigned char *bytes)
{
    const int number = static_cast<int>(blockIdx.x);
    const bool back = number % 2 != 0;
    const work w = work::of_number<BANDS * SLICES_V, VALUE_PAD>(p, cfg::D_V, number / 2);
    const WALK walk{keyed_states{{p, w, shared_address(bytes)}}};
    const int column = w.first + keyed_states::first();
    const int left = w.left - keyed_states::first();
    state_columns s = {};
    if (back) {
        const cfg::element_state *from = head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h);
        cfg::element_state *to = head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h);
        if (from != nullptr) {
            s.each_of_memory(p.dstate_out_i, p.dstate_out_j, column, left,
                             [&](float &a, i64 at) { a = to_float(from[at]); });
        }
        walk.go_back(s);
        if (to != nullptr) {
            s.each_of_memory(p.dstate_i, p.dstate_j, column, left,
                             [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
        }
    } else {
        const cfg::element_state *from = head_of(p.state, w.s.number * p.state_b + w.h * p.state_h);
        if (from != nullptr) {
            s.each_of_memory(p.state_i, p.state_j, column, left, [&](float &a, i64 at) { a = to_float(from[at]); });
        }
        walk.go_forward(s);
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_prepare = linear::keyed_layout::END_BACK;
constexpr int bwd_states = linear::back_walk::END + 4 * linear::COLUMN_WARPS;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_prepare)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_prepare)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::prepare_chunk<true, linear::keyed_chunk>(p, shared_bytes,
                                                     [](float beta) { return linear::kept_beta(beta); });
}
#endif

#if LATHE_COMPILED(bwd_states)
extern "C" __global__ void __launch_bounds__(linear::KEYED_THREADS, linear::KEYED_BLOCKS)
    LATHE_ENTRY(bwd_states)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_both_ways<linear::keyed_states>(p, shared_bytes);
}
#endif
