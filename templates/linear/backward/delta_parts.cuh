// linear/backward/delta_parts.cuh: what the kernels of the delta rule's backward pass in chunks share: products of
// tiles by mma.sync, what they leave to each other.
//
// With X what the tokens of a chunk write (v as the rule corrects it), S the state in front of it, S' that behind it, G
// the sum of the decays' logarithms from the chunk's start on, A = (q k') Gamma and N = (k k') Gamma below the
// diagonal, Gamma_ij = e^(G_i - G_j), and T the inverse of linear/delta_inverse.cuh:
//     X = T (v - e^G k S),                       S' = e^(G_end) S + k' (e^(G_end - G) X)
//     dX = e^(G_end - G) k dS' + scale A' do,    dv = T' dX,    dS = e^(G_end) dS' + scale q' (e^G do) - k' (e^G dv)
//     These two walk along the chunks (delta_walk.cuh), and leave S, dS', X and dv of each. What is left is of a chunk
//     alone (delta_chunks.cuh).
#pragma once
#include "linear/backward/products.cuh"
#include "linear/delta_prepare.cuh"

namespace linear
{

static_assert(cfg::DECAY == DECAY_NONE || cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN,
              "a decay is one number a token");
static_assert(cfg::DELTA && !cfg::BONUS && !cfg::NORMALISE && cfg::CAUSAL, "the delta rule");
static_assert(same_type<cfg::operand, bf16>, "states in 16 bits have the range of f32");
static_assert(KEY_PARTS == 1 && PAD_V <= 128, "head dims up to 128");

// ---- products ----------------------------------------------------------------------------------------

// As add_product, of some of the steps of 16 tokens of a chunk: the others are of zeros.
template <class LEFT, class RIGHT, int NB>
DEV void add_steps(float (&c)[NB][4], const LEFT &left, const RIGHT &right, int first, int end)
{
#pragma unroll 2
    for (int k = first; k < end; k++) {
        u32 a[4];
        left.load(a, k);
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            u32 b[4];
            right.load(b, n, k);
            mma_16x8x16<cfg::operand>(c[2 * n], a, b[0], b[1]);
            mma_16x8x16<cfg::operand>(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}
// Two products at once of the same columns, which are loaded once.
template <int DEPTH, class LEFT, class RIGHT, int NB>
DEV void add_two_products(float (&c)[NB][4], float (&d)[NB][4], const LEFT &left, const LEFT &other, const RIGHT &right)
{
#pragma unroll 2
    for (int k = 0; k < DEPTH / 16; k++) {
        u32 a[2][4];
        left.load(a[0], k);
        other.load(a[1], k);
#pragma unroll
        for (int n = 0; n < NB / 2; n++) {
            u32 b[4];
            right.load(b, n, k);
            mma_16x8x16<cfg::operand>(c[2 * n], a[0], b[0], b[1]);
            mma_16x8x16<cfg::operand>(c[2 * n + 1], a[0], b[2], b[3]);
            mma_16x8x16<cfg::operand>(d[2 * n], a[1], b[0], b[1]);
            mma_16x8x16<cfg::operand>(d[2 * n + 1], a[1], b[2], b[3]);
        }
    }
}

// ---- a chunk -----------------------------------------------------------------------------------------

struct chunk_logs { // sums of logarithms from the chunk's start on, to the base 2, in shared memory
    u32 at;
    __device__ __forceinline__ float to(int token) const { return load_shared(at + static_cast<u32>(4 * token)); }
    __device__ __forceinline__ float end() const { return DECAYS ? to(CHUNK_TOKENS - 1) : 0.0f; }
    // What is left of the state at the chunk's start when it comes to a token; of a token at the chunk's end.
    __device__ __forceinline__ float from_start(int token) const { return DECAYS ? exp2_approx(to(token)) : 1.0f; }
    __device__ __forceinline__ float to_end(int token) const { return DECAYS ? exp2_approx(end() - to(token)) : 1.0f; }
    __device__ __forceinline__ row_pair rows_from_start(int row0, float by) const
    {
        return row_pair::of(row0, [&](int row) { return by * from_start(row); });
    }
    __device__ __forceinline__ row_pair rows_to_end(int row0) const
    {
        return row_pair::of(row0, [&](int row) { return to_end(row); });
    }
    // The sums of two tokens that follow each other.
    __device__ __forceinline__ float2 two(int token) const
    {
        return DECAYS ? load_shared8(at + static_cast<u32>(4 * token)) : float2{0.0f, 0.0f};
    }
    __device__ __forceinline__ row_pair rows(int row0) const
    {
        return row_pair::of(row0, [&](int row) { return DECAYS ? to(row) : 0.0f; });
    }
    DEV float left_of(float from, float to) { return DECAYS ? exp2_approx(to - from) : 1.0f; } // the later one is `to`
};

// The sums of a chunk's logarithms, which bwd_inverse has left.
DEV void load_sums(u32 to, const linear_back_params &p, const work &w, int place)
{
    if (DECAYS && threadIdx.x < CHUNK_TOKENS / 4) {
        copy16_async(to + static_cast<u32>(16 * threadIdx.x),
                     p.sums + (chunk_of_head(p, w, place) * CHUNK_TOKENS + 4 * threadIdx.x), 16);
    }
}

} // namespace linear
