// linear/low_rank_prepare.cuh: kernel: what is of a chunk of 64 tokens alone (struct prepared), where tokens read the
// state and write by vectors of their own: a decay plus low rank.
//
// Launch: a block of 128 threads for each chunk of each head, smem_bytes::prepare_low_rank of shared memory. A warp has
// a step of 16 tokens (linear/chunk_decays.cuh). Where a reads ahead of the decay, its c is that of the token before.
#pragma once
#include "linear/chunk_decays.cuh"

namespace linear
{

static_assert(BY_RULE, "vectors that read or write");

struct low_rank_layout : chunk_layout<3 * prepared::TILE + prepared::VALUE_TILE> {
    static constexpr int WRITE_V = WRITE_K + prepared::TILE;
    // pairs that are summed up one by one; backward a block of pairs of each warp, which is turned around
    static constexpr int SUMS = BEHIND, SUM = 4 * STEP * STEP, END = SUMS + CHUNK_STEPS * SUM;
    static_assert(SUM >= prepared::BLOCK, "a block has room");
};

// sums[i][j] += a_i e^(..) b_j' over the channels of a group, or =, of tiles of readers and writers; `left` is what
// tokens leave. BEFORE: a token reads ahead of its own decay, and then nothing is said of its pair with itself.
template <bool BEFORE>
DEV void sum_low_rank_pairs(u32 readers, u32 writers, u32 sums, const float (&left)[STEP][2], int group, bool first)
{
#pragma unroll 1
    for (int j = 0; j < STEP; j++) {
        float b[2];
        load_pair(pair_address(writers, j, group), b[0], b[1]);
#pragma unroll
        for (int half = 0; half < STEP; half += HALF_STEP) {
            float weight[HALF_STEP];
#pragma unroll
            for (int n = 0; n < HALF_STEP; n++) {
                const int i = half + n;
                const float by[2] = {i > j ? left[i][0] : 1.0f, i > j ? left[i][1] : 1.0f};
                float a[2];
                load_pair(pair_address(readers, i, group), a[0], a[1]);
                const float ahead = a[0] * b[0] + a[1] * b[1];
                b[0] *= by[0];
                b[1] *= by[1];
                weight[n] = i < j ? 0.0f : BEFORE ? ahead : a[0] * b[0] + a[1] * b[1];
            }
            const float sum = sum_of_half(weight);
            const u32 at = sums + static_cast<u32>(4 * ((half + lane_id() % HALF_STEP) * STEP + j));
            if (lane_id() < HALF_STEP) {
                store_shared(at, first ? sum : sum + load_shared(at));
            }
        }
    }
}

// Sums of pairs of two steps in fragments of mma.sync: by q and by a, of each writer.
struct low_rank_pairs {
    float q[WRITERS][2][4];
    float a[WRITERS][2][4];
};

// BACK: backward: q, A and A_v have the scale in them.
template <bool BACK, class P> struct low_rank_chunk : chunk_decays<BACK, P, low_rank_layout> {
    using base = chunk_decays<BACK, P, low_rank_layout>;
    using base::p, base::w, base::place, base::to, base::shared, base::own, base::rows, base::numbers, base::matrix_of;
    using typename base::operand, typename base::layout;

    DEV int writer(int n) { return n == 0 ? layout::WRITE_K : layout::WRITE_V; }
    // f(element, row, column), of all pairs of a block.
    template <class F> DEV void each_pair(float (&x)[2][4], const F &f)
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            f(x[e / 4][e % 4], lane_id() / 4 + e % 4 / 2 * 8, e / 4 * 8 + lane_id() % 4 * 2 + e % 2);
        }
    }

    // ---- vectors of tokens -------------------------------------------------------------------------

    // Makes a and b of this warp's keys, in 16 bits. The loads of AT_ONCE tokens are in flight together.
    __device__ __forceinline__ void make_vectors() const
    {
        constexpr int AT_ONCE = max_of(8 / KEY_GROUPS, 2), N = AT_ONCE * KEY_GROUPS;
        static_assert(STEP % AT_ONCE == 0, "a step is whole rounds of loads");
#pragma unroll 1
        for (int first = 0; first < STEP; first += AT_ONCE) {
            u32 a[N];
            u32 b[N];
            u32 in_tile[N];
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int i = first + n / KEY_GROUPS;
                const int g = n % KEY_GROUPS;
                const int at = place + STEP * own() + i;
                const int channel = g * 64 + 2 * lane_id();
                float k[2];
                in_tile[n] = pair_address(static_cast<u32>(own() * STEP * swizzle<KEY_PAD>::ROW_BYTES), i, g);
                load_pair(shared + layout::READ_K + in_tile[n], k[0], k[1]);
                a[n] = pack<operand>(made_reader<variant>(p, w, at, channel, k[0]),
                                     made_reader<variant>(p, w, at, channel + 1, k[1]));
                b[n] = pack<operand>(made_writer<variant>(p, w, at, channel, k[0]),
                                     made_writer<variant>(p, w, at, channel + 1, k[1]));
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                if constexpr (WRITERS > 1) {
                    store_shared(shared + layout::WRITE_V + in_tile[n],
                                 load_shared(shared + layout::READ_K + in_tile[n]));
                }
                store_shared(shared + layout::READ_K + in_tile[n], a[n]);
                store_shared(shared + layout::WRITE_K + in_tile[n], b[n]);
            }
        }
    }

    // ---- pairs of one step in groups that are not mild -----------------------------------------------

    template <bool BEFORE> __device__ __forceinline__ void sum_groups(float (&x)[2][4], const channel_logs &logs,
                                                                      int readers, int writers, u32 mild) const
    {
        const u32 sums = shared + static_cast<u32>(layout::SUMS + own() * layout::SUM);
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            if ((mild >> g & 1u) == 0) {
                const bool first = (~mild & ((1u << g) - 1u)) == 0;
                sum_low_rank_pairs<BEFORE>(rows(readers, own()), rows(writers, own()), sums, logs.x[g], g, first);
            }
        }
        __syncwarp();
        each_pair(x, [&](float &y, int row, int column) {
            y = load_shared(sums + static_cast<u32>(4 * (row * STEP + column)));
        });
        __syncwarp();
    }
    // Returns a bit for each group that is mild. Vectors are as they were made.
    __device__ __forceinline__ u32 sum_steep(channel_logs &logs, low_rank_pairs &of) const
    {
        u32 mild = 0;
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            mild |= logs.is_mild(g) ? 1u << g : 0u;
        }
        if (mild == base::EVERY_GROUP) {
            return mild;
        }
        each_log(logs, mild, [](float &x) { x = exp2_approx(x); });
#pragma unroll
        for (int n = 0; n < WRITERS; n++) {
            sum_groups<false>(of.q[n], logs, layout::READ_Q, writer(n), mild);
            sum_groups<cfg::READS_BEFORE>(of.a[n], logs, layout::READ_K, writer(n), mild);
            if constexpr (BACK) {
                each_pair(of.q[n], [&](float &x, int, int) { x *= w.scale; });
            }
        }
        each_log(logs, mild, [](float &x) { x = again_log2(x); });
        return mild;
    }
    // Of groups that are not mild.
    template <class F> DEV void each_log(channel_logs &logs, u32 mild, const F &f)
    {
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            if ((mild >> g & 1u) == 0) {
#pragma unroll
                for (int i = 0; i < STEP; i++) {
                    f(logs.x[g][i][0]);
                    f(logs.x[g][i][1]);
                }
            }
        }
    }

    // ---- decays --------------------------------------------------------------------------------------

    // Vectors in their places become what reads and writes within a step; the same from the chunk's start and to its
    // end goes to memory.
    __device__ __forceinline__ void weigh(const channel_logs &logs) const
    {
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            float from[2];   // b
            float behind[2]; // L - b
            float before[2]; // all that the chunk has lost ahead of b,
            float after[2];  // and loses from L - b on
            float last[2];   // with what the token before has read
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int channel = g * 64 + 2 * lane_id() + c;
                from[c] = base::begin(own(), channel);
                behind[c] = logs.end(g, c) - from[c];
                before[c] = exp2_approx(base::sum_of_ends(0, own(), channel) + from[c]);
                after[c] = exp2_approx(base::sum_of_ends(own() + 1, CHUNK_STEPS, channel) + from[c]);
                last[c] = exp2_approx(-from[c]);
            }
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                const u32 at = pair_address(static_cast<u32>(own() * STEP * swizzle<KEY_PAD>::ROW_BYTES), i, g);
                float reads[2];
                float writes[2];
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    reads[c] = exp2_approx(logs.x[g][i][c] - from[c]);
                    writes[c] = exp2_approx(behind[c] - logs.x[g][i][c]);
                    last[c] = cfg::READS_BEFORE ? last[c] : reads[c];
                }
                if constexpr (BACK) {
                    const float scaled[2] = {w.scale * reads[0], w.scale * reads[1]};
                    put(layout::READ_Q, prepared::READ_Q, at, scaled, before);
                } else {
                    put(layout::READ_Q, prepared::READ_Q, at, reads, before);
                }
                put(layout::READ_K, prepared::READ_K, at, last, before);
                put(layout::WRITE_K, prepared::WRITE_K, at, writes, after);
                if constexpr (WRITERS > 1) {
                    put(layout::WRITE_V, prepared::WRITE_V, at, writes, after);
                }
                last[0] = reads[0];
                last[1] = reads[1];
            }
        }
    }
    __device__ __forceinline__ void put(int tile, int which, u32 at, const float (&within)[2],
                                        const float (&by)[2]) const
    {
        float x[2];
        load_pair(shared + static_cast<u32>(tile) + at, x[0], x[1]);
        x[0] *= within[0];
        x[1] *= within[1];
        store_shared(shared + static_cast<u32>(tile) + at, pack<operand>(x[0], x[1]));
        *reinterpret_cast<u32 *>(to + which + at) = pack<operand>(x[0] * by[0], x[1] * by[1]);
    }

    // ---- products ------------------------------------------------------------------------------------

    // += what this warp's step reads of step j; of the same step, the channels of mild groups.
    __device__ __forceinline__ void multiply(low_rank_pairs &x, int j, u32 mild) const
    {
        const u32 q = rows(layout::READ_Q, own()) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        const u32 a = rows(layout::READ_K, own()) + lane_offset_a<KEY_PAD>(lane_id(), 0);
        const float *factors = numbers(layout::BETWEEN) + base::between(own(), j);
#pragma unroll
        for (int i = 0; i < KEY_PAD / 16; i++) {
            if (j == own() && (mild >> i / 4 & 1u) == 0) {
                continue;
            }
            u32 of_q[4];
            u32 of_a[4];
            load_matrix4(of_q, swizzle<KEY_PAD>::along(q, 2 * i));
            load_matrix4(of_a, swizzle<KEY_PAD>::along(a, 2 * i));
#pragma unroll
            for (int n = 0; n < WRITERS; n++) {
                u32 b[4];
                load_matrix4(b, swizzle<KEY_PAD>::along(rows(writer(n), j) + lane_offset_b<KEY_PAD>(lane_id()), 2 * i));
                if (j != own()) {
                    base::pass(b, factors + 16 * i);
                }
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    mma_16x8x16<operand>(x.q[n][c], of_q, b[2 * c], b[2 * c + 1]);
                    mma_16x8x16<operand>(x.a[n][c], of_a, b[2 * c], b[2 * c + 1]);
                }
            }
        }
    }
    DEV void copy_pairs(float (&x)[2][4], const float (&from)[2][4])
    {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x[e / 4][e % 4] = from[e / 4][e % 4];
        }
    }
    // Of a step's own pairs those with tokens before, by q also with the token itself.
    DEV void keep_pairs(low_rank_pairs &x)
    {
#pragma unroll
        for (int n = 0; n < WRITERS; n++) {
            each_pair(x.q[n], [](float &y, int row, int column) { y = column <= row ? y : 0.0f; });
            each_pair(x.a[n], [](float &y, int row, int column) { y = column < row ? y : 0.0f; });
        }
    }
    // A block of pairs as the first operand, or as the second one; TURN: as the second one whose rows are the depth.
    template <bool TURN>
    __device__ __forceinline__ void store_pairs(const float (&x)[2][4], int which, int j, bool first) const
    {
        const u32 low = pack<operand>(x[0][2], x[0][3]);
        const u32 high = pack<operand>(x[1][0], x[1][1]);
        u32 word[4] = {pack<operand>(x[0][0], x[0][1]), first ? low : high, first ? high : low,
                       pack<operand>(x[1][2], x[1][3])};
        if constexpr (TURN) {
            base::turn(word, shared + static_cast<u32>(layout::SUMS + own() * layout::SUM));
        }
        *reinterpret_cast<uint4 *>(to + which + prepared::block(own(), j) + 16 * lane_id()) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
    // All that a walk needs of pairs but N of b, of which T is made.
    __device__ __forceinline__ void leave_pairs(const low_rank_pairs &x, int j) const
    {
        store_pairs<BACK>(x.q[0], prepared::PAIRS, j, true);
        if constexpr (WRITERS > 1) {
            store_pairs<BACK>(x.q[WRITERS - 1], prepared::PAIRS_V, j, true);
            store_pairs<false>(x.a[WRITERS - 1], prepared::SEEN_V, j, false);
            if constexpr (BACK) {
                store_pairs<true>(x.a[WRITERS - 1], prepared::SEEN_V_BACK, j, true);
            }
        }
    }
    // diag(beta) N, or -N, where nobody needs the tiles any more.
    __device__ __forceinline__ void store_products(float (&n)[CHUNK_STEPS][2][4], const float *beta) const
    {
#pragma unroll
        for (int j = 0; j < CHUNK_STEPS; j++) {
            each_pair(n[j], [&](float &x, int row, int column) { x *= cfg::DELTA ? beta[own() * STEP + row] : -1.0f; });
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const float two[2] = {n[j][r / 2][r % 2 * 2], n[j][r / 2][r % 2 * 2 + 1]};
                store_vec<2, float>(
                    &matrix_of(0)[own() * STEP + lane_id() / 4 + r % 2 * 8][j * STEP + r / 2 * 8 + lane_id() % 4 * 2],
                    two);
            }
        }
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
                    const float by[2] = {cfg::DELTA ? beta[column] : 1.0f, cfg::DELTA ? beta[column + 1] : 1.0f};
                    if constexpr (base::APART) {
                        const float power = beta_power::in(beta[row]).inverse;
                        two[0] *= power;
                        two[1] *= power;
                    }
                    word[n] =
                        two_words::of(column <= row ? by[0] * two[0] : 0.0f, column + 1 <= row ? by[1] * two[1] : 0.0f);
                }
                uint4 *mine = reinterpret_cast<uint4 *>(to + prepared::INVERSE + prepared::block(i, j)) + lane_id();
                mine[0] = make_uint4(word[0].high, word[1].high, word[2].high, word[3].high);
                mine[prepared::BLOCKS / 16] = make_uint4(word[0].low, word[1].low, word[2].low, word[3].low);
            }
        }
    }
    // The same where its rows are the depth; powers are those of columns.
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
                    const float power = base::APART ? beta_power::in(beta[column]).inverse : 1.0f;
                    const float by = cfg::DELTA ? beta[column] * power : 1.0f;
                    word[n] = two_words::of(column <= row ? by * t[row][column] : 0.0f,
                                            column <= row + 1 ? by * t[row + 1][column] : 0.0f);
                }
                uint4 *mine =
                    reinterpret_cast<uint4 *>(to + prepared::INVERSE_BACK + prepared::block(i, j)) + lane_id();
                mine[0] = make_uint4(word[0].high, word[1].high, word[2].high, word[3].high);
                mine[prepared::BLOCKS / 16] = make_uint4(word[0].low, word[1].low, word[2].low, word[3].low);
            }
        }
    }

    // weight(beta): what stands in the place of a token's beta.
    template <class F> __device__ __forceinline__ void run(const F &weight) const
    {
        float *beta = numbers(layout::BETA);
        low_rank_pairs own_step = {};
        float n[CHUNK_STEPS][2][4] = {};
        u32 mild;
        base::load();
        {
            channel_logs logs;
            logs.fetch(p, w, place + STEP * own());
            if (cfg::DELTA && threadIdx.x < CHUNK_TOKENS) {
                beta[threadIdx.x] = weight(w.beta(p, place + static_cast<int>(threadIdx.x)));
            }
            base::finish_load();
            make_vectors();
            __syncwarp();
            mild = sum_steep(logs, own_step);
            base::tell(logs, mild);
            __syncthreads();
            weigh(logs);
            base::fill_between();
        }
        __syncthreads();
        multiply(own_step, own(), mild);
        keep_pairs(own_step);
        leave_pairs(own_step, own());
#pragma unroll
        for (int j = 0; j < CHUNK_STEPS; j++) {
            if (j < own()) {
                low_rank_pairs other = {};
                multiply(other, j, 0);
                leave_pairs(other, j);
                copy_pairs(n[j], other.a[0]);
            } else if (j == own()) {
                copy_pairs(n[j], own_step.a[0]);
            }
        }
        __syncthreads();
        store_products(n, beta);
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
constexpr int prepare_low_rank = linear::low_rank_layout::END;
}

#if LATHE_COMPILED(prepare_low_rank)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(prepare_low_rank)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::prepare_chunk<false, linear::low_rank_chunk>(p, shared_bytes, [](float beta) { return beta; });
}
#endif
