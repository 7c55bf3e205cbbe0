// linear/chunk.cuh: what kernels share that take a chunk of 64 tokens at a time: where a chunk's numbers are, which
// chunk a block has, rows, sums of logarithms.
#pragma once
#include "common/mma_sm80.cuh"
#include "linear/elements.cuh"
#include "linear/walk.cuh"

namespace linear
{

constexpr int CHUNK_TOKENS = 64, CHUNK_COLUMNS = 64;
constexpr int CHUNK_PAD = round_up(cfg::D, 64);
constexpr int INVERSE_ELEMENTS = CHUNK_TOKENS * CHUNK_TOKENS; // of a chunk of a head (linear/delta_inverse.cuh)
static_assert(WARPS == 4, "the planner says the same");

DEV int chunks_of(int tokens) { return (tokens + CHUNK_TOKENS - 1) / CHUNK_TOKENS; }

// Which of all chunks, of all sequences, holds `place`, a chunk's first token. Packed sequences have one number more
// than they need where they begin inside of 64 tokens: there are as many as chunks of all tokens, and as many again as
// sequences.
template <class P> DEV i64 chunk_number(const P &p, const sequence &s, int place)
{
    const int before = cfg::PACKED ? s.first / CHUNK_TOKENS + s.number : s.number * chunks_of(p.z.len_q);
    return before + place / CHUNK_TOKENS;
}

struct inverse_work {
    work w;
    int place; // the chunk's first token in its sequence; beyond the end: there is no such chunk
};

// The last sequence whose chunks begin at `number` or before.
template <class P> DEV int sequence_of_chunk(const P &p, int number)
{
    int low = 0;
    int high = p.x.seqs - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        const int begins = max(0, min(p.cu[middle * p.cu_step], p.z.len_q)) / CHUNK_TOKENS + middle;
        low = begins <= number ? middle : low;
        high = begins <= number ? high : middle - 1;
    }
    return low;
}

template <class P> DEV inverse_work find_chunk(const P &p, int block = static_cast<int>(blockIdx.x))
{
    inverse_work at;
    const int number = block / p.z.n_h;
    at.w.h = block % p.z.n_h;
    at.w.h_kv = p.z.key_head(at.w.h);
    at.w.s =
        sequence_of(p.cu, p.cu_step, p.z, cfg::PACKED ? sequence_of_chunk(p, number) : number / chunks_of(p.z.len_q));
    at.w.head = variant::make_head(p.x, p.z, at.w.s.batch, at.w.h);
    at.place = (number - static_cast<int>(chunk_number(p, at.w.s, 0))) * CHUNK_TOKENS;
    return at;
}

// Rows of a chunk, 64 of COLS; zeros beyond `rows` and `columns`.
template <int COLS, int THREADS, class T> DEV void load_rows(u32 tile, const T *from, i64 stride, int rows, int columns)
{
    constexpr int CHUNKS = COLS / 8;
    constexpr int STEP = THREADS / CHUNKS;
    static_assert(CHUNK_TOKENS % STEP == 0 && STEP % 8 == 0, "8, 16 .. rows at a time");
    const int thread = static_cast<int>(fresh_thread()); // found again for each tile: registers less in between
    const int chunk = thread % CHUNKS;
    const int row = thread / CHUNKS;
    const u32 to = tile + swizzle<COLS>::offset(row, chunk);
    const i64 step = stride * static_cast<i64>(sizeof(T));
    const char *base = reinterpret_cast<const char *>(from);
    const char *source = base + (row * step + chunk * 16);
#pragma unroll
    for (int i = 0; i < CHUNK_TOKENS / STEP; i++) {
        const bool some = row + i * STEP < rows && chunk * 8 < columns;
        copy16_async(to + static_cast<u32>(i * STEP * swizzle<COLS>::ROW_BYTES), some ? source : base, some ? 16 : 0);
        source += STEP * step;
        keep(source);
    }
}

// Sums of the logarithms from a chunk's start on, to the base 2, by the first warp.
struct logs {
    float x[2];

    template <class P> __device__ __forceinline__ void fetch(const P &p, const work &w, int place)
    {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int at = place + 2 * lane_id() + k;
            x[k] = w.has(at) ? w.log2_decay(p, w.row(p, at), 0) : 0.0f;
        }
    }
    __device__ __forceinline__ float sum(float *sums) const // to this lane's second token
    {
        float sum = x[0] + x[1];
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float before = __shfl_up_sync(ALL_LANES, sum, static_cast<u32>(step));
            sum += lane_id() >= step ? before : 0.0f;
        }
        sums[2 * lane_id()] = sum - x[1];
        sums[2 * lane_id() + 1] = sum;
        return sum;
    }
};
template <class P> DEV void sum_logs(const P &p, const work &w, int place, float *sums)
{
    logs own;
    own.fetch(p, w, place);
    own.sum(sums);
}

} // namespace linear
