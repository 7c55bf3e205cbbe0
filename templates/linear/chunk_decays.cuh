// linear/chunk_decays.cuh: what kernels share that make what is of a chunk of 64 tokens alone (struct prepared).
//
// A warp has a step of 16 tokens. With c the sums of a channel's logarithms from its step's start on and L all that the
// step loses, its tokens read with e^(c - b) and write with e^(L - b - c), where b is 0, or half of L in a group of 64
// channels that is mild (linear/channel_logs.cuh). Pairs of one step are products of these in mild groups, for the two
// exponents are c_i - c_j then, and sums one by one in others. Pairs of two steps are products with what is between
// them in the middle, e^(b + .. + b), which is e^0 at most.
#pragma once
#include "linear/channel_logs.cuh"
#include "linear/chunk_parts.cuh"
#include "linear/inverse_tiles.cuh"
#include "linear/mod_rows.cuh"
#include "linear/triangle.cuh"

namespace linear
{

// In shared memory, bytes: TILES of them, where the matrices will be, and numbers.
template <int TILES> struct chunk_layout {
    static constexpr int READ_Q = 0, READ_K = READ_Q + prepared::TILE, WRITE_K = READ_K + prepared::TILE;
    static constexpr int MATRIX = static_cast<int>(sizeof(matrix));
    static constexpr int BETA = max_of(TILES, 2 * MATRIX);
    static constexpr int ENDS = BETA + 4 * CHUNK_TOKENS;               // L of each step and channel,
    static constexpr int BEGINS = ENDS + 4 * CHUNK_STEPS * KEY_PAD;    // b,
    static constexpr int BETWEEN = BEGINS + 4 * CHUNK_STEPS * KEY_PAD; // and what is between two steps
    static constexpr int BEHIND = BETWEEN + 4 * (CHUNK_STEPS * (CHUNK_STEPS - 1) / 2) * KEY_PAD;
};

// BACK: A, as T, is there as an operand whose rows are the depth.
template <bool BACK, class P, class LAYOUT> struct chunk_decays {
    using operand = cfg::operand;
    using layout = LAYOUT;
    static constexpr bool APART = BACK && POWERS_APART;
    static constexpr u32 EVERY_GROUP = (1u << KEY_GROUPS) - 1u;
    const P &p;
    const work &w;
    int place; // of the chunk
    unsigned char *bytes, *to;
    u32 shared;

    DEV int own() { return static_cast<int>(threadIdx.x) / 32; } // the step of this warp
    __device__ __forceinline__ u32 rows(int tile, int step) const
    {
        return shared + static_cast<u32>(tile + step * STEP * swizzle<KEY_PAD>::ROW_BYTES);
    }
    __device__ __forceinline__ float *numbers(int which) const { return reinterpret_cast<float *>(bytes + which); }
    __device__ __forceinline__ matrix &matrix_of(int which) const
    {
        return *reinterpret_cast<matrix *>(bytes + which * layout::MATRIX);
    }

    // Forward, where q and k may come as they were given: this kernel applies their mods then. Of a mod whose rows had
    // to be moved for their alignment nothing is given: it has a launch.
    static constexpr bool MAKES = !BACK && requires(const P &x) { x.given_q; };
    template <class MOD> DEV bool makes(const void *given) { return mod_rows::HAS<MOD> && given != nullptr; }
    struct place_of_rows {
        const void *base;
        i64 by_b, by_h, by_t;
    };
    template <class T> __device__ __forceinline__ void load_rows_of(int tile, const place_of_rows &from) const
    {
        const int left = max(w.s.length - place - STEP * own(), 0);
        const i64 token = sequence::token(w.s, left > 0 ? place + STEP * own() : place);
        const i64 way = cfg::REVERSE ? -1 : 1;
        load_step<KEY_PAD>(rows(tile, own()),
                           elements<T>(from.base, w.s.batch * from.by_b + w.h_kv * from.by_h + token * from.by_t),
                           way * from.by_t, left, cfg::D);
    }
    // This warp's q and k. Tokens that do not exist are zeros.
    __device__ __forceinline__ void load() const
    {
        place_of_rows q = {p.q, p.q_b, p.q_h, p.q_t};
        place_of_rows k = {p.k, p.k_b, p.k_h, p.k_t};
        if constexpr (MAKES) {
            q = makes<typename variant::query_mod>(p.given_q)
                    ? place_of_rows{p.given_q, p.given_q_b, p.given_q_h, p.given_q_t}
                    : q;
            k = makes<typename variant::key_mod>(p.given_k)
                    ? place_of_rows{p.given_k, p.given_k_b, p.given_k_h, p.given_k_t}
                    : k;
        }
        load_rows_of<cfg::element_q>(layout::READ_Q, q);
        load_rows_of<cfg::element_k>(layout::READ_K, k);
        copy_commit();
    }
    __device__ __forceinline__ void finish_load() const
    {
        copy_wait<0>();
        __syncwarp();
        if constexpr (MAKES) {
            make<typename variant::query_mod>(p.given_q, layout::READ_Q);
            make<typename variant::key_mod>(p.given_k, layout::READ_K);
            __syncwarp();
        }
    }
    template <class MOD> __device__ __forceinline__ void make(const void *given, int tile) const
    {
        if constexpr (mod_rows::HAS<MOD>) {
            constexpr int TEAM = mods::shape<cfg::D>::TEAM;
            const mod_rows of_warp = {STEP * own() + lane_id() / TEAM, 32 / TEAM, STEP * own() + STEP};
            if (given != nullptr) {
                of_warp.make<MOD, KEY_PAD, true>(p, w, place, bytes + tile, static_cast<operand *>(nullptr), 0);
            }
        }
    }

    // ---- decays --------------------------------------------------------------------------------------

    // For the other warps: L and b of this one's step.
    __device__ __forceinline__ void tell(channel_logs &logs, u32 mild) const
    {
#pragma unroll
        for (int g = 0; g < KEY_GROUPS; g++) {
            logs.sum(g);
            const float begin = (mild >> g & 1u) != 0 ? 0.5f : 0.0f;
            const int at = own() * KEY_PAD + g * 64 + 2 * lane_id();
            const float ends[2] = {logs.end(g, 0), logs.end(g, 1)};
            const float begins[2] = {begin * ends[0], begin * ends[1]};
            store_vec<2, float>(numbers(layout::ENDS) + at, ends);
            store_vec<2, float>(numbers(layout::BEGINS) + at, begins);
        }
    }
    // Sum of L of the steps from `first` on, ahead of `last`.
    __device__ __forceinline__ float sum_of_ends(int first, int last, int channel) const
    {
        float sum = 0.0f;
#pragma unroll
        for (int step = 0; step < CHUNK_STEPS; step++) {
            sum += step >= first && step < last ? numbers(layout::ENDS)[step * KEY_PAD + channel] : 0.0f;
        }
        return sum;
    }
    __device__ __forceinline__ float begin(int step, int channel) const
    {
        return numbers(layout::BEGINS)[step * KEY_PAD + channel];
    }
    // What is between each two steps, and e^G_end.
    __device__ __forceinline__ void fill_between() const
    {
        for (int n = static_cast<int>(threadIdx.x); n < KEY_PAD; n += THREADS) {
#pragma unroll
            for (int i = 1; i < CHUNK_STEPS; i++) {
#pragma unroll
                for (int j = 0; j < i; j++) {
                    numbers(layout::BETWEEN)[between(i, j) + n] =
                        exp2_approx(begin(i, n) + sum_of_ends(j + 1, i, n) + begin(j, n));
                }
            }
            reinterpret_cast<float *>(to + prepared::FACTORS)[n] = exp2_approx(sum_of_ends(0, CHUNK_STEPS, n));
        }
    }
    DEV int between(int i, int j) { return (i * (i - 1) / 2 + j) * KEY_PAD; }
    // What writes, of another step, times what is between it and this warp's.
    DEV void pass(u32 (&b)[4], const float *factors)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float by[2];
            load_vec<2, float>(factors + 8 * half + lane_id() % 4 * 2, by);
#pragma unroll
            for (int i = half; i < 4; i += 2) {
                float low;
                float high;
                unpack<operand>(b[i], low, high);
                b[i] = pack<operand>(low * by[0], high * by[1]);
            }
        }
    }

    // ---- matrices ------------------------------------------------------------------------------------

    // A first operand becomes a second one whose rows are the depth, by way of a place for a block.
    DEV void turn(u32 (&word)[4], u32 room)
    {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            store_shared(room + swizzle<STEP>::offset(lane_id() / 4 + i % 2 * 8, i / 2) +
                             static_cast<u32>(lane_id() % 4 * 4),
                         word[i]);
        }
        __syncwarp();
        load_matrix4_transposed(word, room + lane_offset_b_transposed<STEP>(lane_id()));
    }
    __device__ __forceinline__ void leave_powers(const float *beta) const
    {
        if (APART && threadIdx.x < CHUNK_TOKENS) {
            reinterpret_cast<float *>(to + prepared::POWERS)[threadIdx.x] = beta_power::in(beta[threadIdx.x]).of;
        }
    }
};

// By a kernel CHUNK of each chunk; weight(beta): what stands in the place of a token's beta.
template <bool BACK, template <bool, class> class CHUNK, class P, class F>
DEV void prepare_chunk(const P &p, unsigned char *bytes, const F &weight)
{
    inverse_work at = find_chunk(p);
    if (at.place >= at.w.s.length) {
        return;
    }
    if constexpr (BACK) {
        at.w.scale = variant::scale(p.x, p.z, at.w.head);
    }
    unsigned char *to = prepared::of < BACK ? prepared::END_BACK : prepared::END_AHEAD > (p, at.w.s, at.w.h, at.place);
    CHUNK<BACK, P>{{p, at.w, at.place, bytes, to, shared_address(bytes)}}.run(weight);
}

} // namespace linear
