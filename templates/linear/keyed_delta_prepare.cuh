// linear/keyed_delta_prepare.cuh: kernel: what of the delta rule behind a decay by key channel is of a chunk of 64
// tokens alone (struct prepared).
//
// Launch: a block of 128 threads for each chunk of each head, smem_bytes::prepare of shared memory. A warp has a step
// of 16 tokens (linear/chunk_decays.cuh).
#pragma once
#include "linear/chunk_decays.cuh"
#include "linear/shrinks.cuh"

namespace linear
{

struct keyed_layout : chunk_layout<3 * prepared::TILE> {
    // where sequences may be cut in pieces: of each step by how much it shrinks a state, then its growth
    static constexpr int SHRINKS = BEHIND, END_AHEAD = SHRINKS + (IN_PIECES ? 8 * CHUNK_STEPS : 0);
    // backward: a block of A of each warp, which is turned around
    static constexpr int TURNED = BEHIND, END_BACK = TURNED + CHUNK_STEPS * prepared::BLOCK;
};
// Where pairs are summed up one by one, before what writes is there: 16 rows of 16 floats, twice.
static_assert(STEP * KEY_PAD * OPERAND >= 2 * 4 * STEP * STEP, "a step of a tile has room for sums");

// BACK: q and A have the scale in them.
template <bool BACK, class P> struct keyed_chunk : chunk_decays<BACK, P, keyed_layout> {
    using base = chunk_decays<BACK, P, keyed_layout>;
    using base::p, base::w, base::place, base::to, base::shared, base::own, base::rows, base::numbers, base::matrix_of;
    using typename base::operand, typename base::layout;

    __device__ __forceinline__ float q_scale() const { return BACK ? w.scale : 1.0f; }
    // f(sum of A, sum of N, row, column), of all pairs of a block.
    template <class F> DEV void each_pair(float (&a)[2][4], float (&n)[2][4], const F &f)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                f(a[b][i], n[b][i], lane_id() / 4 + i / 2 * 8, b * 8 + lane_id() % 4 * 2 + i % 2);
            }
        }
    }
    // Pairs of this warp's step, of groups that are not mild; returns a bit for each that is. q and k are as they came.
    __device__ __forceinline__ u32 sum_steep(channel_logs &logs, float (&a)[2][4], float (&n)[2][4]) const
    {
        const u32 q = rows(layout::READ_Q, own());
        const u32 k = rows(layout::READ_K, own());
        const u32 sums = rows(layout::WRITE_K, own());
        u32 mild = 0;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            const bool some = logs.is_mild(g);
            if (!some) {
                const bool first = mild == (1u << g) - 1u;
                sum_pairs(q, k, sums, logs.x[g], g, first);
                sum_pairs(k, k, sums + 4 * STEP * STEP, logs.x[g], g, first);
            }
            mild |= some ? 1u << g : 0u;
        }
        if (mild != base::EVERY_GROUP) {
            __syncwarp();
            each_pair(a, n, [&](float &x, float &y, int row, int column) {
                x = q_scale() * load_shared(sums + static_cast<u32>(4 * (row * STEP + column)));
                y = load_shared(sums + static_cast<u32>(4 * (STEP * STEP + row * STEP + column)));
            });
            __syncwarp();
        }
        return mild;
    }
    // How much of any state this warp's tokens take away at least, to the base 2: the channel that loses least, of
    // each token; `logs` are of tokens. Of numbers that are not below 0 bits are in the same order. NaN is left out: it
    // comes to the state, and shows there.
    __device__ __forceinline__ void tell_loss(const channel_logs &logs) const
    {
        float sum = 0.0f;
        float highest = 0.0f;
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            float most = -__uint_as_float(0x7f800000u);
#pragma unroll
            for (int k = 0; k < 2 * KEY_GROUPS; k++) {
                const bool some = cfg::D == KEY_PAD || k / 2 * 64 + 2 * lane_id() + k % 2 < cfg::D;
                most = some ? fmaxf(most, logs.x[k / 2][i][k % 2]) : most;
            }
            highest = fmaxf(highest, most);
            const int nearest = warp_max(static_cast<int>(~__float_as_uint(most) & 0x7fffffffu));
            sum += __uint_as_float(~static_cast<u32>(nearest) & 0x7fffffffu);
        }
        const bool above = __any_sync(ALL_LANES, highest > NO_LOSS_FROM) != 0;
        if (lane_id() == 0) {
            numbers(layout::SHRINKS)[own()] = above ? -__uint_as_float(0x7f800000u) : sum;
        }
    }
    // What their writing may add. n: products of their keys, |k|^2 on the diagonal.
    __device__ __forceinline__ void tell_growth(float (&n)[2][4], const float *beta) const
    {
        float grows = 0.0f;
        each_pair(n, n, [&](float &x, float &, int row, int column) {
            grows += growth_of(row == column ? ROUNDED_KEYS * beta[STEP * own() + row] * x : 0.0f);
        });
        const float sum = lanes_sum<32>(grows);
        if (lane_id() == 0) {
            numbers(layout::SHRINKS)[own()] -= sum;
            numbers(layout::SHRINKS)[CHUNK_STEPS + own()] = sum;
        }
    }
    // q and k in their places become what reads, and beside them what writes; the same from the chunk's start and to
    // its end goes to memory.
    __device__ __forceinline__ void weigh(const channel_logs &logs) const
    {
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            float from[2];   // b
            float behind[2]; // L - b
            float before[2]; // all that the chunk has lost ahead of b,
            float after[2];  // and loses from L - b on
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int channel = g * 64 + 2 * lane_id() + c;
                from[c] = base::begin(own(), channel);
                behind[c] = logs.end(g, c) - from[c];
                before[c] = exp2_approx(base::sum_of_ends(0, own(), channel) + from[c]);
                after[c] = exp2_approx(base::sum_of_ends(own() + 1, CHUNK_STEPS, channel) + from[c]);
            }
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                const u32 at = pair_address(static_cast<u32>(own() * STEP * swizzle<KEY_PAD>::ROW_BYTES), i, g);
                float q[2];
                float k[2];
                float x[2];
                load_pair(shared + layout::READ_Q + at, q[0], q[1]);
                load_pair(shared + layout::READ_K + at, k[0], k[1]);
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const float reads = exp2_approx(logs.x[g][i][c] - from[c]);
                    x[c] = k[c] * exp2_approx(behind[c] - logs.x[g][i][c]);
                    q[c] *= q_scale() * reads;
                    k[c] *= reads;
                }
                put(layout::READ_Q, prepared::READ_Q, at, q, before);
                put(layout::READ_K, prepared::READ_K, at, k, before);
                put(layout::WRITE_K, prepared::WRITE_K, at, x, after);
            }
        }
    }
    __device__ __forceinline__ void put(int tile, int which, u32 at, const float (&x)[2], const float (&by)[2]) const
    {
        store_shared(shared + static_cast<u32>(tile) + at, pack<operand>(x[0], x[1]));
        *reinterpret_cast<u32 *>(to + which + at) = pack<operand>(x[0] * by[0], x[1] * by[1]);
    }
    // a += q k' and n += k k', of this warp's step and step j; of the same step, the channels of mild groups.
    __device__ __forceinline__ void multiply(float (&a)[2][4], float (&n)[2][4], int j, u32 mild) const
    {
        const u32 q = rows(layout::READ_Q, own()) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        const u32 k = rows(layout::READ_K, own()) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        const u32 x = rows(layout::WRITE_K, j) + lane_offset_b<KEY_PAD>(lane_id());
        const float *factors = numbers(layout::BETWEEN) + base::between(own(), j);
#pragma unroll
        for (int i = 0; i < KEY_PAD / 16; i++) {
            if (j == own() && (mild >> i / 4 & 1u) == 0) {
                continue;
            }
            u32 of_q[4];
            u32 of_k[4];
            u32 b[4];
            load_matrix4(of_q, swizzle<KEY_PAD>::along(q, 2 * i));
            load_matrix4(of_k, swizzle<KEY_PAD>::along(k, 2 * i));
            load_matrix4(b, swizzle<KEY_PAD>::along(x, 2 * i));
            if (j != own()) {
                base::pass(b, factors + 16 * i);
            }
#pragma unroll
            for (int c = 0; c < 2; c++) {
                mma_16x8x16<operand>(a[c], of_q, b[2 * c], b[2 * c + 1]);
                mma_16x8x16<operand>(n[c], of_k, b[2 * c], b[2 * c + 1]);
            }
        }
    }
    // A of a block, as the first operand; backward as the second one.
    __device__ __forceinline__ void store_pairs(const float (&a)[2][4], int j) const
    {
        u32 word[4] = {pack<operand>(a[0][0], a[0][1]), pack<operand>(a[0][2], a[0][3]),
                       pack<operand>(a[1][0], a[1][1]), pack<operand>(a[1][2], a[1][3])};
        if constexpr (BACK) {
            base::turn(word, shared + static_cast<u32>(layout::TURNED + own() * prepared::BLOCK));
        }
        *reinterpret_cast<uint4 *>(to + prepared::PAIRS + prepared::block(own(), j) + 16 * lane_id()) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
    // diag(beta) N, where nobody needs the tiles any more.
    __device__ __forceinline__ void store_products(const float (&n)[CHUNK_STEPS][2][4], const float *beta) const
    {
#pragma unroll
        for (int j = 0; j < CHUNK_STEPS; j++) {
#pragma unroll
            for (int b = 0; b < 2; b++) {
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int row = own() * STEP + lane_id() / 4 + 8 * r;
                    const int column = j * STEP + 8 * b + lane_id() % 4 * 2;
                    const float two[2] = {column < row ? beta[row] * n[j][b][2 * r] : 0.0f,
                                          column + 1 < row ? beta[row] * n[j][b][2 * r + 1] : 0.0f};
                    store_vec<2, float>(&matrix_of(0)[row][column], two);
                }
            }
        }
    }
    // A block of T, at a place of the first of its two.
    __device__ __forceinline__ void store_words(int place, const two_words (&word)[4]) const
    {
        uint4 *own = reinterpret_cast<uint4 *>(to + place) + lane_id();
        own[0] = make_uint4(word[0].high, word[1].high, word[2].high, word[3].high);
        own[prepared::BLOCKS / 16] = make_uint4(word[0].low, word[1].low, word[2].low, word[3].low);
    }
    // T, as the second operand; this warp's steps of rows are those of its number, so that each has blocks of every
    // length.
    __device__ __forceinline__ void store_inverse(const float *beta) const
    {
        const matrix &t = matrix_of(1);
#pragma unroll
        for (int i = 0; i < CHUNK_STEPS; i++) {
            for (int j = own(); j <= i; j += CHUNK_STEPS) {
                two_words word[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int row = i * STEP + lane_id() / 4 + n / 2 * 8;
                    const int column = j * STEP + lane_id() % 4 * 2 + n % 2 * 8;
                    float two[2];
                    load_vec<2, float>(&t[row][column], two);
                    const float by = base::APART ? beta_power::in(beta[row]).inverse : 1.0f;
                    word[n] = two_words::of(column <= row ? by * beta[column] * two[0] : 0.0f,
                                            column + 1 <= row ? by * beta[column + 1] * two[1] : 0.0f);
                }
                store_words(prepared::INVERSE + prepared::block(i, j), word);
            }
        }
    }
    // T, as the second operand where its rows are the depth.
    __device__ __forceinline__ void store_inverse_back(const float *beta) const
    {
        const matrix &t = matrix_of(1);
#pragma unroll
        for (int i = 0; i < CHUNK_STEPS; i++) {
            for (int j = own(); j <= i; j += CHUNK_STEPS) {
                two_words word[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    const int row = i * STEP + lane_id() % 4 * 2 + n % 2 * 8;
                    const int column = j * STEP + lane_id() / 4 + n / 2 * 8;
                    const float low = column <= row ? t[row][column] : 0.0f;
                    const float high = column <= row + 1 ? t[row + 1][column] : 0.0f;
                    const float by = beta[column] * (base::APART ? beta_power::in(beta[column]).inverse : 1.0f);
                    word[n] = two_words::of(by * low, by * high);
                }
                store_words(prepared::INVERSE_BACK + prepared::block(i, j), word);
            }
        }
    }
    // weight(beta): what stands in the place of a token's beta.
    template <class F> __device__ __forceinline__ void run(const F &weight) const
    {
        float *beta = numbers(layout::BETA);
        float a[2][4] = {};
        float n[CHUNK_STEPS][2][4] = {};
        float diagonal[2][4] = {};
        u32 mild;
        base::load();
        {
            channel_logs logs;
            logs.fetch(p, w, place + STEP * own());
            if (threadIdx.x < CHUNK_TOKENS) {
                beta[threadIdx.x] = weight(w.beta(p, place + static_cast<int>(threadIdx.x)));
            }
            if constexpr (!BACK && IN_PIECES) {
                tell_loss(logs);
            }
            base::finish_load();
            mild = sum_steep(logs, a, diagonal);
            base::tell(logs, mild);
            __syncthreads();
            weigh(logs);
            base::fill_between();
        }
        __syncthreads();
        multiply(a, diagonal, own(), mild);
        if constexpr (!BACK && IN_PIECES) {
            tell_growth(diagonal, beta);
        }
        each_pair(a, diagonal, [&](float &x, float &, int row, int column) { x = column <= row ? x : 0.0f; });
        store_pairs(a, own());
#pragma unroll
        for (int j = 0; j < CHUNK_STEPS; j++) {
            if (j < own()) {
                float other[2][4] = {};
                multiply(other, n[j], j, 0);
                store_pairs(other, j);
            } else if (j == own()) {
                each_pair(n[j], diagonal, [](float &x, float &y, int, int) { x = y; });
            }
        }
        __syncthreads();
        store_products(n, beta);
        if constexpr (!BACK && IN_PIECES) {
            if (threadIdx.x == 0) {
                const float *of = numbers(layout::SHRINKS);
                float *whole = reinterpret_cast<float *>(to + prepared::SHRINKS);
                whole[0] = (of[0] + of[1]) + (of[2] + of[3]);
                whole[1] = (of[4] + of[5]) + (of[6] + of[7]);
            }
        }
        __syncthreads();
        invert_triangle(matrix_of(0), matrix_of(1));
        store_inverse(beta);
        if constexpr (BACK) {
            store_inverse_back(beta);
        }
        base::leave_powers(beta);
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int prepare = linear::keyed_layout::END_AHEAD;
}

#if LATHE_COMPILED(prepare)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS, linear::KEY_PAD <= 128 ? 4 : 0)
    LATHE_ENTRY(prepare)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::prepare_chunk<false, linear::keyed_chunk>(p, shared_bytes, [](float beta) { return beta; });
}
#endif
