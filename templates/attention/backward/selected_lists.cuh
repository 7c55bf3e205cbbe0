// attention/backward/selected_lists.cuh: kernel: of rows that have lists of blocks of keys, the lists the other way
// round: which tokens have chosen a block.
//
// The tokens of a sequence are cut into ranges of LIST_RANGE, and a block of keys has a list of each: what a range's
// tokens bring fits L2, so all blocks of keys go through one range before the next, and a block that every token has
// chosen is shared out. A list names a token once.
//
// Launch: n_b * n_h_kv * ceil(len_q / LIST_RANGE) blocks of LIST_THREADS threads, each of which makes the lists of its
// range; of packed sequences n_h_kv * (floor(tokens / LIST_RANGE) + sequences).
#pragma once
#include "attention/backward/parts.cuh"

constexpr int LIST_RANGE = 1024; // tokens
constexpr int LIST_THREADS = 1024;

namespace lists
{

constexpr int ROOM = LIST_RANGE * variant::SELECTED; // of the lists of a range
constexpr int WARPS = LIST_THREADS / 32;

DEV int ranges(const sizes &z) { return (z.len_q + LIST_RANGE - 1) / LIST_RANGE; }
DEV int key_blocks(const sizes &z) { return (z.len_kv + variant::SELECTED_KEYS - 1) / variant::SELECTED_KEYS; }

// Of a range of a key head, which its first query head stands for: the tokens' choices.
struct choices {
    const list_params &p; // of the sequence
    variant::head head;
    int first_token, count; // of entries

    __device__ __forceinline__ int token(int i) const { return first_token + i / variant::SELECTED; }
    __device__ __forceinline__ int entry(const variant::row &row, int i) const
    {
        return variant::selected(p.x, p.z, head, row, i);
    }
    // The block of choice i, or -1: it is none, or the token has it already.
    __device__ __forceinline__ int block(int i) const
    {
        const variant::row row = variant::make_row(p.x, p.z, head, token(i));
        const int own = i % variant::SELECTED;
        const int block = entry(row, own);
        bool again = false;
#pragma unroll 1
        for (int k = 0; k < own; k++) {
            again = again | (entry(row, k) == block);
        }
        return again || block < 0 || block >= key_blocks(p.z) ? -1 : block;
    }
};

// Whose a block's range is.
struct range {
    int b, h_kv;
    int first; // token
};
// p becomes that of the range's sequence. False: there are no such tokens.
template <class PARAMS> DEV bool find_range(PARAMS &p, range &at)
{
    const int block = static_cast<int>(blockIdx.x);
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        if (p.z.n_b == 0) {
            return false;
        }
        if (p.cu_q != nullptr) {
            const sequences::tile found =
                sequences::find<LIST_RANGE>(sequences::queries(p), p.z.n_b, block / p.z.n_h_kv);
            at = {found.b, block % p.z.n_h_kv, found.number * LIST_RANGE};
            sequences::enter(p, at.b);
            return at.first >= 0 && at.first < p.z.len_q;
        }
    }
    const int line = block / ranges(p.z);
    at.b = line / p.z.n_h_kv;
    at.h_kv = line - at.b * p.z.n_h_kv;
    at.first = (block - line * ranges(p.z)) * LIST_RANGE;
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        sequences::enter(p, at.b);
    }
    return true;
}

// Which list range number `range` of a sequence's key head has: that of the block that made it. launched: not of one
// sequence.
template <class PARAMS> DEV u32 list_of(const PARAMS &launched, int b, int h_kv, int range)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        if (launched.cu_q != nullptr) {
            const int slot = sequences::first_tile<LIST_RANGE>(sequences::queries(launched), b) + range;
            return static_cast<u32>(slot * launched.z.n_h_kv + h_kv);
        }
    }
    return static_cast<u32>((b * launched.z.n_h_kv + h_kv) * ranges(launched.z) + range);
}

// Counts to where lists begin, in place. By all threads.
DEV void add_up(u32 *counts, int n)
{
    __shared__ u32 of_warp[WARPS];
    const int warp = static_cast<int>(threadIdx.x) / 32;
    u32 before = 0; // of the rounds that are done
#pragma unroll 1
    for (int first = 0; first < n; first += LIST_THREADS) {
        const int i = first + static_cast<int>(threadIdx.x);
        const u32 own = i < n ? counts[i] : 0;
        u32 sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const u32 more = __shfl_up_sync(ALL_LANES, sum, static_cast<u32>(step));
            sum += lane_id() >= step ? more : 0;
        }
        if (lane_id() == 31) {
            of_warp[warp] = sum;
        }
        __syncthreads();
        u32 all = 0;
#pragma unroll 1
        for (int w = 0; w < WARPS; w++) {
            sum += w < warp ? of_warp[w] : 0;
            all += of_warp[w];
        }
        if (i < n) {
            counts[i] = before + sum - own;
        }
        before += all;
        __syncthreads();
    }
}

} // namespace lists

// ---- kernel ------------------------------------------------------------------------------------------

#if LATHE_COMPILED(bwd_lists)
extern "C" __global__ void __launch_bounds__(LIST_THREADS)
    LATHE_ENTRY(bwd_lists)(const __grid_constant__ list_params launched)
{
    using namespace lists;
    auto &&p = own_params(launched);
    const sizes &z = p.z;
    const int n = key_blocks(z); // of all keys: so many ends each list has
    range at;
    if (!find_range(p, at)) {
        return;
    }
    const choices of{p, variant::make_head(p.x, z, at.b, at.h_kv * z.group()), at.first,
                     min(LIST_RANGE, z.len_q - at.first) * variant::SELECTED};
    u32 *ends = p.ends + static_cast<i64>(blockIdx.x) * n;
    u32 *tokens = p.tokens + static_cast<i64>(blockIdx.x) * ROOM;
    const int own = key_blocks(z);
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < own; i += LIST_THREADS) {
        ends[i] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < of.count; i += LIST_THREADS) {
        const int block = of.block(i);
        if (block >= 0) {
            (void)take_ticket(ends + block);
        }
    }
    __syncthreads();
    add_up(ends, own);
    __syncthreads();
#pragma unroll 1
    for (int i = thread; i < of.count; i += LIST_THREADS) { // then a list's end stands where its begin stood
        const int block = of.block(i);
        if (block >= 0) {
            tokens[take_ticket(ends + block)] = static_cast<u32>(of.token(i));
        }
    }
}
#endif
