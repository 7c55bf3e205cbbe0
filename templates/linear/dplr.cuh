// linear/dplr.cuh: kernel: a decay plus low rank, S_t = D_t o S_(t-1) + b' (a S) + k' v, in chunks of 64 tokens by
// mma.sync: f16 and bf16, head dims up to 256.
//
// Launch: sequences * h * VALUE_SLICES blocks of COLUMN_THREADS threads, smem_bytes::chunks of shared memory, behind
// `prepare_rule` (linear/rule_prepare.cuh). As in linear/keyed_delta.cuh a warp has 16 columns of the state and goes
// with them from chunk to chunk, with columns as rows: X = T (a S + N_v v), o = scale (q S + A X + A_v v), S = e^G_end
// S + b' X + k' v. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/rule_parts.cuh"
#include "linear/state_columns.cuh"

namespace linear
{

static_assert(WRITERS == 2, "what is read is written under a vector of its own, beside v under k");

constexpr int COLUMN_WARPS = cfg::COLUMN_WARPS; // 16 columns of the state each
constexpr int COLUMN_THREADS = 32 * COLUMN_WARPS;
constexpr int VALUE_PAD = 16 * COLUMN_WARPS;
constexpr int VALUE_SLICES = (cfg::D_V + VALUE_PAD - 1) / VALUE_PAD;
constexpr int COLUMN_BLOCKS = KEY_PAD <= 128 ? 2 : 1; // that a multiprocessor has registers for
static_assert(COLUMN_WARPS >= 1 && COLUMN_WARPS <= 4, "cfg::COLUMN_WARPS is 1 to 4");

struct low_rank_walk {
    using operand = cfg::operand;
    // What is prepared of a chunk lies in shared memory as in the other, and values behind it.
    static constexpr int VALUES = ruled::END, END = VALUES + CHUNK_TOKENS * VALUE_PAD * OPERAND;
    static_assert(VALUES % 128 == 0, "a tile begins where swizzle wants it");
    using operands = u32[RULE_STEPS][4]; // of 16 tokens each, this warp's columns: for either side of a product
    const linear_params &p;
    const work &w;
    u32 shared;

    DEV int first() { return static_cast<int>(threadIdx.x) / 32 * 16; } // column of the block
    __device__ __forceinline__ u32 tile(int which, int token) const
    {
        return shared + static_cast<u32>(which + token * swizzle<KEY_PAD>::ROW_BYTES);
    }
    __device__ __forceinline__ u32 block(int which, int i, int j) const
    {
        return shared + static_cast<u32>(which + ruled::block(i, j) + 16 * lane_id());
    }

    // ---- loads ---------------------------------------------------------------------------------------

    template <int FROM, int SIZE> __device__ __forceinline__ void copy(int number) const
    {
        static_assert(FROM % 16 == 0 && SIZE % 16 == 0, "pieces of 16 bytes");
        const unsigned char *from = ruled::of<ruled::END>(p, w.s, w.h, number * CHUNK_TOKENS) + FROM;
        for (int at = static_cast<int>(threadIdx.x) * 16; at < SIZE; at += COLUMN_THREADS * 16) {
            copy16_async(shared + static_cast<u32>(FROM + at), from + at, 16);
        }
    }
    // Rows of VALUE_PAD; tokens and channels that do not exist are zeros.
    __device__ __forceinline__ void load_values(int number) const
    {
        constexpr int ACROSS = 2 * COLUMN_WARPS; // 16 bytes each
        const int chunk = static_cast<int>(threadIdx.x) % ACROSS;
        for (int row = static_cast<int>(threadIdx.x) / ACROSS; row < CHUNK_TOKENS; row += COLUMN_THREADS / ACROSS) {
            const int place = number * CHUNK_TOKENS + row;
            const bool some = w.has(place) && chunk * 8 < w.left;
            const i64 token = sequence::token(w.s, some ? place : number * CHUNK_TOKENS);
            const i64 at = w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first + (some ? chunk * 8 : 0);
            copy16_async(shared + static_cast<u32>(VALUES) + swizzle<VALUE_PAD>::offset(row, chunk),
                         elements<cfg::element_v>(p.v, at), some ? 16 : 0);
        }
    }
    __device__ __forceinline__ void load_first(int number) const
    {
        copy<0, ruled::FIRST>(number);
        load_values(number);
        copy_commit();
    }
    __device__ __forceinline__ void load_second(int number) const
    {
        copy<ruled::FIRST, ruled::SECOND>(number);
        copy_commit();
    }
    // Values of this warp's columns, which are operands as they lie there.
    __device__ __forceinline__ void load_own(operands &v) const
    {
#pragma unroll
        for (int t = 0; t < RULE_STEPS; t++) {
            u32 x[4];
            load_matrix4_transposed(
                x, shared + static_cast<u32>(VALUES) +
                       swizzle<VALUE_PAD>::offset(t * STEP + (lane_id() & 15), first() / 8 + (lane_id() >> 4)));
            v[t][0] = x[0];
            v[t][1] = x[2];
            v[t][2] = x[1];
            v[t][3] = x[3];
        }
    }

    // ---- products ------------------------------------------------------------------------------------

    DEV void round(u32 (&to)[4], const float (&x)[4], const float (&y)[4])
    {
        to[0] = pack<operand>(x[0], x[1]);
        to[1] = pack<operand>(x[2], x[3]);
        to[2] = pack<operand>(y[0], y[1]);
        to[3] = pack<operand>(y[2], y[3]);
    }
    // x and y += a times a block of 16 columns.
    DEV void multiply_block(float (&x)[4], float (&y)[4], const u32 (&a)[4], u32 at)
    {
        const uint4 b = load_shared16(at);
        mma_16x8x16<operand>(x, a, b.x, b.y);
        mma_16x8x16<operand>(y, a, b.z, b.w);
    }
    // a S of all tokens, columns as rows.
    __device__ __forceinline__ void read_state(float (&x)[2 * RULE_STEPS][4], const state_columns &s, float by) const
    {
        const u32 readers = tile(ruled::READ_A, 0) + lane_offset_b<KEY_PAD>(lane_id());
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 b[4];
            s.pack_rows(b, k, by);
            const u32 a[4] = {b[0], b[2], b[1], b[3]};
#pragma unroll
            for (int t = 0; t < RULE_STEPS; t++) {
                load_matrix4(b, swizzle<KEY_PAD>::along(readers, 2 * k) +
                                    static_cast<u32>(t * STEP * swizzle<KEY_PAD>::ROW_BYTES));
                mma_16x8x16<operand>(x[2 * t], a, b[0], b[1]);
                mma_16x8x16<operand>(x[2 * t + 1], a, b[2], b[3]);
            }
        }
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int e = 0; state_columns::SCALED && e < 8 * RULE_STEPS; e++) {
            x[e / 4][e % 4] *= back;
        }
    }
    // X.
    __device__ __forceinline__ void solve(operands &x, const operands &v, const state_columns &s, float by) const
    {
        float sum[2 * RULE_STEPS][4] = {};
        read_state(sum, s, by);
#pragma unroll
        for (int i = 0; i < RULE_STEPS; i++) {
#pragma unroll
            for (int j = 0; j <= i; j++) {
                multiply_block(sum[2 * i], sum[2 * i + 1], v[j], block(ruled::SEEN_V, i, j));
            }
            round(x[i], sum[2 * i], sum[2 * i + 1]);
        }
#pragma unroll
        for (int i = RULE_STEPS - 1; i >= 0; i--) { // the last ones are needed no more
            float y[2][4] = {};
#pragma unroll
            for (int j = 0; j <= i; j++) {
                multiply_block(y[0], y[1], x[j], block(ruled::INVERSE + ruled::BLOCKS, i, j));
                multiply_block(y[0], y[1], x[j], block(ruled::INVERSE, i, j));
            }
            round(x[i], y[0], y[1]);
        }
    }
    // o += pairs of step t times what tokens write.
    __device__ __forceinline__ void add_pairs(float (&o)[2][4], const operands &x, int which, int t) const
    {
#pragma unroll
        for (int j = 0; j <= t; j++) {
            const uint4 four = load_shared16(block(which, t, j));
            const u32 a[4] = {four.x, four.y, four.z, four.w};
            mma_16x8x16<operand>(o[0], a, x[j][0], x[j][2]);
            mma_16x8x16<operand>(o[1], a, x[j][1], x[j][3]);
        }
    }
    // o of 16 tokens.
    __device__ __forceinline__ void read(float (&o)[2][4], const state_columns &s, float by, const operands &x,
                                         const operands &v, int t) const
    {
        const u32 q = tile(ruled::READ_Q, t * STEP) + lane_offset_a<KEY_PAD>(lane_id(), 0);
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
        add_pairs(o, x, ruled::PAIRS_X, t);
        add_pairs(o, v, ruled::PAIRS_V, t);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            o[e / 4][e % 4] *= w.scale;
        }
    }
    // s += the vectors of a tile times what is written under them.
    __device__ __forceinline__ void add(state_columns &s, const operands &x, int which) const
    {
#pragma unroll
        for (int t = 0; t < RULE_STEPS; t++) {
            const u32 k = tile(which, t * STEP) + lane_offset_b_transposed<KEY_PAD>(lane_id());
#pragma unroll
            for (int n = 0; n < state_columns::BLOCKS; n += 2) {
                u32 b[4];
                load_matrix4_transposed(b, swizzle<KEY_PAD>::along(k, n));
                mma_16x8x16<operand>(s.x[n], x[t], b[0], b[1]);
                mma_16x8x16<operand>(s.x[n + 1], x[t], b[2], b[3]);
            }
        }
    }

    // ---- outputs -------------------------------------------------------------------------------------

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
    // Where registers are few, what is rounded of the state in f16 is rounded again for each product.
    DEV float again(float by)
    {
        u32 bits = __float_as_uint(by);
        if constexpr (KEY_PAD > 128 && state_columns::SCALED) {
            keep(bits);
        }
        return __uint_as_float(bits);
    }

    // ---- the walk ------------------------------------------------------------------------------------

    // What the first half of a chunk needs comes while the second half of the one before is worked on, and the other
    // way round; so values wait in registers.
    __device__ __forceinline__ void run(state_columns &s) const
    {
        const int chunks = chunks_of(w.s.length);
        if (chunks == 0) {
            return;
        }
        load_first(0);
        load_second(0);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = 0; number < chunks; number++) {
            const bool more = number + 1 < chunks;
            const float by = s.nearer();
            operands v;
            operands x;
            load_own(v);
            solve(x, v, s, by);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_first(number + 1);
            }
#pragma unroll
            for (int t = 0; t < RULE_STEPS; t++) {
                float o[2][4];
                read(o, s, again(by), x, v, t);
                store(o, number * CHUNK_TOKENS + t * STEP);
            }
            s.scale_channels(tile(ruled::FACTORS, 0));
            add(s, x, ruled::WRITE_X);
            add(s, v, ruled::WRITE_V);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_second(number + 1);
            }
        }
    }
};

DEV void walk_low_rank(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<VALUE_PAD, COLUMN_THREADS>(p, w);
        return;
    }
    const low_rank_walk walk{p, w, shared_address(bytes)};
    const int column = w.first + low_rank_walk::first();
    const int left = w.left - low_rank_walk::first();
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

namespace smem_bytes
{
constexpr int chunks = linear::low_rank_walk::END;
}

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::COLUMN_THREADS, linear::COLUMN_BLOCKS)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::walk_low_rank(p, shared_bytes);
}
#endif
