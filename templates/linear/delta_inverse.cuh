// linear/delta_inverse.cuh: kernel: what the delta rule's tokens of a chunk take from each other: T = (1 + diag(beta)
// N)^-1 diag(beta), N the products of keys below the diagonal, and T times e^(G_i - G_j) where there is a decay: with
// one number a token the decay commutes with the inverse.
//
// Launch: a block of 128 threads for each chunk of each head, smem_bytes::inverse of shared memory. Where gates may cut
// sequences (linear/delta_runs.cuh) it also tells by how much each chunk shrinks a state.
#pragma once
#include "linear/inverse_tiles.cuh"
#include "linear/shrinks.cuh"
#include "linear/triangle.cuh"

namespace linear
{

struct inverse_layout { // in shared memory; keys lie where their products will
    matrix products, inverse;
    float beta[CHUNK_TOKENS], sums[CHUNK_TOKENS];
};
static_assert(CHUNK_PAD <= 128 && sizeof(matrix) >= static_cast<u64>(CHUNK_TOKENS * CHUNK_PAD * OPERAND),
              "there is room for the keys");

// Of a chunk of a head, floats, as float vectors of four: how much the tokens of each warp may make a state larger, and
// how much the gates take of it.
template <class P> constexpr bool TELLS = requires(const P &p) { p.tells; };
struct chunk_tells {
    static constexpr int LOSS = 4, EACH = 8;
    static_assert(CHUNK_TOKENS / 16 == LOSS, "a warp has 16 tokens");
    template <class P> DEV float *of(const P &p, i64 which) { return p.tells + which * EACH; }
};

// m = diag(beta) N, in the place of the keys. see(products of this warp's keys from row0 on with all).
template <class F> DEV void multiply_keys(u32 keys, const float *beta, matrix &m, const F &see)
{
    const int row0 = static_cast<int>(threadIdx.x) / 32 * 16;
    float s[1][CHUNK_TOKENS / 8][4];
    const a_fragments<1, 1> none = {};
    product_qk<cfg::operand, 1, CHUNK_TOKENS / 8, CHUNK_PAD, false>(s, keys + lane_offset_a<CHUNK_PAD>(lane_id(), row0),
                                                                    none, keys + lane_offset_b<CHUNK_PAD>(lane_id()));
    see(s[0], row0);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < CHUNK_TOKENS / 8; n++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = row0 + lane_id() / 4 + r * 8;
            const int column = n * 8 + lane_id() % 4 * 2;
            const float two[2] = {column < row ? beta[row] * s[0][n][2 * r] : 0.0f,
                                  column + 1 < row ? beta[row] * s[0][n][2 * r + 1] : 0.0f};
            store_vec<2, float>(&m[row][column], two);
        }
    }
}

// |k|^2 of a row is in the one lane that has it, on the diagonal.
DEV float growth_of_rows(const float (&n)[CHUNK_TOKENS / 8][4], int row0, const float *beta)
{
    float grows = 0.0f;
#pragma unroll
    for (int b = 0; b < CHUNK_TOKENS / 8; b++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = row0 + lane_id() / 4 + i / 2 * 8;
            if (row == b * 8 + lane_id() % 4 * 2 + i % 2) {
                grows += growth_of(ROUNDED_KEYS * beta[row] * n[b][i]);
            }
        }
    }
    return lanes_sum<32>(grows);
}

// As linear/inverse_tiles.cuh has it.
DEV void store_inverse(cfg::operand *to, const inverse_layout &s)
{
#pragma unroll
    for (int i = 0; i < (INVERSE_UNITS + THREADS - 1) / THREADS; i++) {
        const int n = static_cast<int>(threadIdx.x) + i * THREADS;
        if (n >= INVERSE_UNITS) {
            return;
        }
        const inverse_unit own = inverse_unit::of(n);
        const int row = own.row;
        const int column = own.column;
        float x[8];
        load_vec<4, float>(&s.inverse[row][column], reinterpret_cast<float(&)[4]>(x[0]));
        load_vec<4, float>(&s.inverse[row][column + 4], reinterpret_cast<float(&)[4]>(x[4]));
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const bool below = column + k <= row;
            const float by =
                s.beta[column + k] * (DECAYS ? exp2_approx(below ? s.sums[row] - s.sums[column + k] : 0.0f) : 1.0f);
            x[k] = below ? by * x[k] : 0.0f;
        }
        two_words word[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            word[k] = two_words::of(x[2 * k], x[2 * k + 1]);
        }
        // places are counted in 16 bytes: of elements, the compiler would make four stores of one
        uint4 *first = reinterpret_cast<uint4 *>(to) + (row * CHUNK_TOKENS + column) / 8;
        first[0] = make_uint4(word[0].high, word[1].high, word[2].high, word[3].high);
        first[INVERSE_ELEMENTS / 8] = make_uint4(word[0].low, word[1].low, word[2].low, word[3].low);
    }
}

// Rows of a chunk of a head of k, on their way into a tile in shared memory.
template <class T, class P> DEV void load_chunk(const P &p, const inverse_work &at, u32 tile, const void *base,
                                                i64 stride_b, i64 stride_h, i64 stride_t)
{
    const i64 way = cfg::REVERSE ? -1 : 1;
    const i64 token = sequence::token(at.w.s, at.place);
    load_rows<CHUNK_PAD, THREADS>(tile,
                                  elements<T>(base, at.w.s.batch * stride_b + at.w.h_kv * stride_h + token * stride_t),
                                  way * stride_t, at.w.s.length - at.place, cfg::D);
}
struct given_keys { // as the kernels behind this one read them
    template <class P> DEV void load(const P &p, const inverse_work &at, unsigned char *bytes)
    {
        load_chunk<cfg::element_k>(p, at, shared_address(bytes), p.k, p.k_b, p.k_h, p.k_t);
    }
    template <class P> DEV void finish(const P &, const inverse_work &, unsigned char *) {}
};

// The number of a chunk of a head among all.
template <class P> DEV i64 number_of(const P &p, const inverse_work &at)
{
    return chunk_number(p, at.w.s, at.place) * p.z.n_h + at.w.h;
}
// Sums of the logarithms of a chunk, by a warp.
template <class P> DEV void sum_chunk(const P &p, const inverse_work &at, float *sums)
{
    if constexpr (TELLS<P>) {
        logs own;
        own.fetch(p, at.w, at.place);
        const float sum = own.sum(sums);
        const bool above = __any_sync(ALL_LANES, fmaxf(own.x[0], own.x[1]) > NO_LOSS_FROM) != 0;
        if (lane_id() == 31) {
            chunk_tells::of(p, number_of(p, at))[chunk_tells::LOSS] = above ? -INF : -sum;
        }
    } else {
        sum_logs(p, at.w, at.place, sums);
    }
}

// KEYS: load: on their way to where layouts begin; finish, by all threads: what is left to do where they have come.
// weight(beta): what stands in the place of a token's beta; leave(number of the chunk of the head, layout) comes last.
template <class KEYS = given_keys, class P, class F, class G>
DEV void invert(const P &p, unsigned char *bytes, const F &weight, const G &leave)
{
    inverse_layout &s = *reinterpret_cast<inverse_layout *>(bytes);
    const inverse_work at = find_chunk(p);
    if (at.place >= at.w.s.length) {
        return;
    }
    KEYS::load(p, at, bytes);
    copy_commit();
    if (threadIdx.x < CHUNK_TOKENS) {
        s.beta[threadIdx.x] = weight(at.w.beta(p, at.place + static_cast<int>(threadIdx.x)));
    } else if (DECAYS && threadIdx.x >= THREADS - 32) {
        sum_chunk(p, at, s.sums);
    }
    copy_wait<0>();
    __syncthreads();
    KEYS::finish(p, at, bytes);
    multiply_keys(shared_address(bytes), s.beta, s.products, [&](const float(&n)[CHUNK_TOKENS / 8][4], int row0) {
        if constexpr (TELLS<P>) {
            const float grows = growth_of_rows(n, row0, s.beta);
            if (lane_id() == 0) {
                chunk_tells::of(p, number_of(p, at))[row0 / 16] = grows;
            }
        }
    });
    __syncthreads();
    invert_triangle(s.products, s.inverse);
    const i64 which = number_of(p, at);
    store_inverse(static_cast<cfg::operand *>(p.inverse) + which * INVERSE_STORED, s);
    leave(which, s);
}

} // namespace linear

namespace smem_bytes
{
constexpr int inverse = static_cast<int>(sizeof(linear::inverse_layout));
}

#if LATHE_COMPILED(inverse)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(inverse)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::invert(
        p, shared_bytes, [](float beta) { return beta; }, [](i64, const linear::inverse_layout &) {});
}
#endif
