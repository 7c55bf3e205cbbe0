// linear/keyed_delta.cuh: kernel: the delta rule behind a decay by key channel, in chunks of 64 tokens by mma.sync: f16 and bf16, head dims up to 256; also
// behind one that is the same for all channels, or none, where linear/delta_chunks.cuh does not serve the dtype or the head dim.
//
// Launch: sequences * h * VALUE_SLICES blocks of KEYED_THREADS threads, keyed_walk_smem_bytes() of shared memory, behind `prepare`
// (linear/keyed_delta_prepare.cuh), which leaves T, A and the keys and queries as they read and write. A warp has 16 columns of the state and goes with them
// from chunk to chunk: X = T (v - k S), o = scale (q S + A X), S = e^G_end S + k' X. All of it but o is kept with columns as rows, so what one product leaves is
// an operand of the next as it stands, and warps share nothing but what has been prepared. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/keyed_delta_parts.cuh"
#include "linear/state_columns.cuh"

namespace linear {

constexpr int COLUMN_WARPS = cfg::COLUMN_WARPS; // 16 columns of the state each
constexpr int KEYED_THREADS = 32 * COLUMN_WARPS;
constexpr int VALUE_PAD = 16 * COLUMN_WARPS;
constexpr int VALUE_SLICES = (cfg::D_V + VALUE_PAD - 1) / VALUE_PAD;
constexpr int KEYED_BLOCKS = KEY_PAD <= 128 ? 2 : 1; // that a multiprocessor has registers for
static_assert(COLUMN_WARPS >= 1 && COLUMN_WARPS <= 4, "cfg::COLUMN_WARPS is 1 to 4");

struct walk_layout { // in shared memory, bytes: what is prepared, v
    static constexpr int VALUES = prepared::END, END = VALUES + CHUNK_TOKENS * VALUE_PAD * 2;
};
static_assert(walk_layout::VALUES % 128 == 0, "a tile begins where swizzle wants it");
// As C, for the planner: 388 pad + 10240 + 2048 warps
constexpr int keyed_walk_smem_bytes() { return walk_layout::END; }

struct keyed_walk {
    using element = cfg::element;
    const linear_params &p;
    const work &w;
    u32 shared;

    DEV int first() { return static_cast<int>(threadIdx.x) / 32 * 16; } // column of the block
    __device__ __forceinline__ u32 tile(int which, int token) const { return shared + static_cast<u32>(which + token * swizzle<KEY_PAD>::ROW_BYTES); }
    __device__ __forceinline__ u32 block(int which, int i, int j) const { return shared + static_cast<u32>(which + prepared::block(i, j) + 16 * lane_id()); }

    template <int FROM, int BYTES> __device__ __forceinline__ void copy(int number) const
    {
        static_assert(FROM % 16 == 0 && BYTES % 16 == 0, "pieces of 16 bytes");
        const unsigned char *from = prepared::of(p, w.s, w.h, number * CHUNK_TOKENS) + FROM;
        for (int at = static_cast<int>(threadIdx.x) * 16; at < BYTES; at += KEYED_THREADS * 16) {
            copy16_async(shared + static_cast<u32>(FROM + at), from + at, 16);
        }
    }
    // Rows of 16 VALUE_PAD; tokens and channels that do not exist are zeros.
    __device__ __forceinline__ void load_first(int number) const
    {
        const int place = number * CHUNK_TOKENS;
        copy<0, prepared::FIRST>(number);
        for (int row = static_cast<int>(threadIdx.x) / (2 * COLUMN_WARPS); row < CHUNK_TOKENS; row += KEYED_THREADS / (2 * COLUMN_WARPS)) {
            const int chunk = static_cast<int>(threadIdx.x) % (2 * COLUMN_WARPS);
            const bool some = w.has(place + row) && chunk * 8 < w.left;
            const i64 token = sequence::token(w.s, some ? place + row : place);
            const element *from = elements(p.v, w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first + (some ? chunk * 8 : 0));
            copy16_async(shared + static_cast<u32>(walk_layout::VALUES) + swizzle<VALUE_PAD>::offset(row, chunk), from, some ? 16 : 0);
        }
        copy_commit();
    }
    __device__ __forceinline__ void load_second(int number) const
    {
        copy<prepared::FIRST, prepared::SECOND>(number);
        copy_commit();
    }
    // Two blocks of 8 tokens as the first operand of a product over tokens.
    DEV void round(u32 (&to)[4], const float (&x)[4], const float (&y)[4])
    {
        to[0] = pack<element>(x[0], x[1]);
        to[1] = pack<element>(x[2], x[3]);
        to[2] = pack<element>(y[0], y[1]);
        to[3] = pack<element>(y[2], y[3]);
    }
    // v - k S, with columns as rows, of each 16 tokens.
    __device__ __forceinline__ void correct(u32 (&r)[CHUNK_STEPS][4], const state_columns &s, float by) const
    {
        const u32 keys = tile(prepared::READ_K, 0) + lane_offset_b<KEY_PAD>(lane_id());
        float x[2 * CHUNK_STEPS][4] = {};
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 b[4];
            s.pack_rows(b, k, by);
            const u32 a[4] = {b[0], b[2], b[1], b[3]};
#pragma unroll
            for (int t = 0; t < CHUNK_STEPS; t++) {
                load_matrix4(b, swizzle<KEY_PAD>::along(keys, 2 * k) + static_cast<u32>(t * STEP * swizzle<KEY_PAD>::ROW_BYTES));
                mma_16x8x16<element>(x[2 * t], a, b[0], b[1]);
                mma_16x8x16<element>(x[2 * t + 1], a, b[2], b[3]);
            }
        }
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            u32 v[4]; // tokens 0 .. 7 and 8 .. 15 of 8 columns, then of the other 8
            load_matrix4_transposed(v, shared + static_cast<u32>(walk_layout::VALUES) + swizzle<VALUE_PAD>::offset(t * STEP + (lane_id() & 15), first() / 8 + (lane_id() >> 4)));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float two[2];
                unpack<element>(v[i], two[0], two[1]);
                float *of = &x[2 * t + i % 2][i / 2 * 2];
                of[0] = two[0] - back * of[0];
                of[1] = two[1] - back * of[1];
            }
            round(r[t], x[2 * t], x[2 * t + 1]);
        }
    }
    // r becomes T r.
    __device__ __forceinline__ void solve(u32 (&r)[CHUNK_STEPS][4]) const
    {
#pragma unroll
        for (int i = CHUNK_STEPS - 1; i >= 0; i--) { // the last ones are needed no more
            float x[2][4] = {};
#pragma unroll
            for (int j = 0; j <= i; j++) {
                const uint4 b = load_shared16(block(prepared::INVERSE, i, j));
                mma_16x8x16<element>(x[0], r[j], b.x, b.y);
                mma_16x8x16<element>(x[1], r[j], b.z, b.w);
            }
            round(r[i], x[0], x[1]);
        }
    }
    // o of 16 tokens; x: what the tokens write.
    __device__ __forceinline__ void read(float (&o)[2][4], const state_columns &s, float by, const u32 (&x)[CHUNK_STEPS][4], int t) const
    {
        const u32 q = tile(prepared::READ_Q, t * STEP) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        float part[2][2][4] = {}; // of even and odd channels, 16 of them: chains of sums half as long
#pragma unroll
        for (int k = 0; k < KEY_PAD / 16; k++) {
            u32 a[4];
            u32 b[4];
            load_matrix4(a, swizzle<KEY_PAD>::along(q, 2 * k));
            s.pack_rows(b, k, by);
            mma_16x8x16<element>(part[k % 2][0], a, b[0], b[1]);
            mma_16x8x16<element>(part[k % 2][1], a, b[2], b[3]);
        }
        const float back = state_columns::SCALED ? 1.0f / by : 1.0f;
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[n][i] = back * (part[0][n][i] + part[1][n][i]);
            }
        }
#pragma unroll
        for (int j = 0; j <= t; j++) {
            const uint4 four = load_shared16(block(prepared::PAIRS, t, j));
            const u32 a[4] = {four.x, four.y, four.z, four.w};
            mma_16x8x16<element>(o[0], a, x[j][0], x[j][2]);
            mma_16x8x16<element>(o[1], a, x[j][1], x[j][3]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[n][i] *= w.scale;
            }
        }
    }
    __device__ __forceinline__ i64 output_at(int place) const { return w.s.batch * p.o_b + w.h * p.o_h + sequence::token(w.s, place) * p.o_t + w.first; }
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
                word[i] = pack<element>(o[i % 2][i / 2 * 2], o[i % 2][i / 2 * 2 + 1]);
            }
            const uint4 eight = transpose_four(word, lane_id());
            const int row = lane_id() / 4 + lane_id() % 4 / 2 * 8;
            const int column = first() + lane_id() % 2 * 8;
            if (w.has(place + row) && column < w.left) {
                store_row(static_cast<element *>(p.o) + output_at(place + row) + column, eight);
            }
        }
    }
    __device__ __forceinline__ void write(state_columns &s, const u32 (&x)[CHUNK_STEPS][4]) const
    {
        s.scale_channels(tile(prepared::FACTORS, 0));
#pragma unroll
        for (int t = 0; t < CHUNK_STEPS; t++) {
            const u32 k = tile(prepared::WRITE_K, t * STEP) + lane_offset_b_transposed<KEY_PAD>(lane_id());
#pragma unroll
            for (int n = 0; n < state_columns::BLOCKS; n += 2) {
                u32 b[4];
                load_matrix4_transposed(b, swizzle<KEY_PAD>::along(k, n));
                mma_16x8x16<element>(s.x[n], x[t], b[0], b[1]);
                mma_16x8x16<element>(s.x[n + 1], x[t], b[2], b[3]);
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
    // What the first half of a chunk needs comes while the second half of the one before is worked on, and the other way round.
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
            u32 x[CHUNK_STEPS][4];
            correct(x, s, by);
            solve(x);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_first(number + 1);
            }
#pragma unroll
            for (int t = 0; t < CHUNK_STEPS; t++) {
                float o[2][4];
                read(o, s, again(by), x, t);
                store(o, number * CHUNK_TOKENS + t * STEP);
            }
            write(s, x);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_second(number + 1);
            }
        }
    }
};

DEV void keyed_delta(const linear_params &p, unsigned char *bytes)
{
    const work w = work::of_block<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        store_none<VALUE_PAD, KEYED_THREADS>(p, w);
        return;
    }
    const keyed_walk walk{p, w, shared_address(bytes)};
    const int column = w.first + keyed_walk::first();
    const int left = w.left - keyed_walk::first();
    const float *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
    float *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
    state_columns s = {};
    if (from != nullptr) {
        s.each_of_memory(p.state_i, p.state_j, column, left, [&](float &a, i64 at) { a = from[at]; });
    }
    walk.run(s);
    if (to != nullptr) {
        s.each_of_memory(p.state_out_i, p.state_out_j, column, left, [&](float &a, i64 at) { to[at] = a; });
    }
}

} // namespace linear

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::KEYED_THREADS, linear::KEYED_BLOCKS) LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::keyed_delta(p, shared_bytes);
}
#endif
