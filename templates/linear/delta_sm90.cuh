// linear/delta_sm90.cuh: kernel: the delta rule with no decay or one number a token, in chunks of 64 tokens by wgmma.
//
// Launch: sequences * h * BLOCK_SLICES blocks of DELTA_THREADS threads, smem_bytes::chunks of shared memory, behind
// `inverse` (linear/delta_inverse.cuh), which leaves T; or up to cfg::PIECES times as many, of pieces of few long
// sequences, behind `states` and `scan`, or in runs (linear/delta_runs.cuh), and then as many again as there are
// without pieces. A block has BLOCK_COLUMNS columns of the state of one head. Its first warpgroup loads chunks and
// makes what their tokens see of each other, the pairs scale (q k') e^(G_i - G_j), with G the sum of the logarithms
// from the chunk's start on; the others go with 64 columns of the state each from chunk to chunk
// (linear/delta_walk_sm90.cuh). Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/delta_runs_sm90.cuh"

namespace linear
{

constexpr bool IN_RUNS = CUT_BY_GATES<linear_params>;
// fewer would not gain what it costs to know how each begins
constexpr int LEAST_PIECES = IN_RUNS ? delta_runs::LEAST : 4;
constexpr int SCAN_THREADS = 512, SCAN_COLUMNS = 8;
constexpr int SCAN_SHARES = SCAN_THREADS / CHUNK_PAD, SCAN_EACH = CHUNK_PAD / SCAN_SHARES;
constexpr int SCAN_OWN = CHUNK_PAD * SCAN_COLUMNS / SCAN_THREADS; // elements of a thread
struct scan_layout {                                              // in shared memory
    float before[CHUNK_PAD][SCAN_COLUMNS], sums[SCAN_SHARES][SCAN_COLUMNS][CHUNK_PAD];
};

constexpr int MATRIX_SLICES = (CHUNK_PAD + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS; // of the matrix: blocks
static_assert(MATRIX_SLICES * BLOCK_COLUMNS == CHUNK_PAD || GROUPS == 2, "a column of a matrix is a warpgroup's");

// Of a whole sequence, or of a piece, which begins with what `scan` has left. A launch whose blocks are not as many as
// there are pieces is not meant.
DEV void delta_chunked(const linear_params &p, unsigned char *bytes)
{
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int unit = static_cast<int>(blockIdx.x) % max(all.units, 1);
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, unit);
    const piece own = piece::of(static_cast<int>(blockIdx.x) / max(all.units, 1), all.most, w.s.length);
    const i64 slot = slot_of(p, w.s);
    const bool cut = all.most > 1;
    if (cut != (p.pieces > 1) || !own.exists() || goes_by_token(p, w.s)) {
        return;
    }
    if (slot < 0) {
        if (own.number == 0) {
            store_none<BLOCK_COLUMNS, DELTA_THREADS>(p, w);
        }
        return;
    }
    const delta_span span = span_of(own);
    delta_block<DELTA_OUTPUT>(p, w, span, w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = delta_walk<linear_params, DELTA_OUTPUT>;
        const walker walk{p, w, shared};
        float state[walker::DEPTH / 8][4] = {};
        if (!cut) {
            walk.load_state(state, slot);
        } else if (own.number > 0 || p.state != nullptr) {
            const float *from = delta_parts::of(p, all, unit / BLOCK_SLICES, own.number) + w.first * CHUNK_PAD;
            walker::each_of_part(state, [&](float &a, int at) { a = from[at]; });
        }
        walk_chunks(walk, state, ring, span);
        if (own.is_last()) {
            walk.store_state(state, slot);
        }
    });
}

// What a piece makes of the state in front of it: the first one of the state that was given, which is also kept, as
// what comes out may lie where it was; the others, but the last one, of none, and the matrix by which they multiply
// what was there.
DEV void delta_states(const linear_params &p, unsigned char *bytes)
{
    constexpr int SLICES = BLOCK_SLICES + MATRIX_SLICES;
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int heads = max(p.x.seqs * p.z.n_h, 1);
    const int slice = static_cast<int>(blockIdx.x) % SLICES;
    const int head = static_cast<int>(blockIdx.x) / SLICES % heads;
    const bool matrix = slice >= BLOCK_SLICES;
    const int first = (matrix ? slice - BLOCK_SLICES : slice) * BLOCK_COLUMNS;
    const work w =
        work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, head * BLOCK_SLICES + (matrix ? 0 : slice));
    const piece own = piece::of(static_cast<int>(blockIdx.x) / SLICES / heads, all.most, w.s.length);
    const i64 slot = slot_of(p, w.s);
    const bool adds = !own.is_last();
    const bool keeps = !matrix && own.number == 0 && p.state != nullptr;
    if (all.most == 1 || !own.exists() || slot < 0 || goes_by_token(p, w.s) || goes_in_runs(p, head) ||
        (matrix ? !adds || own.number == 0 : !adds && !keeps)) {
        return;
    }
    const delta_span span = adds ? span_of(own) : delta_span{0, 0};
    delta_block<DELTA_STATE>(p, w, span, matrix ? 0 : w.left, bytes, [&](const delta_ring &ring, u32 shared) {
        using walker = delta_walk<linear_params, DELTA_STATE>;
        const walker walk{p, w, shared};
        float state[walker::DEPTH / 8][4] = {};
        if (matrix) {
            walker::each_of_part(state,
                                 [&](float &a, int at) { a = at / CHUNK_PAD + first == at % CHUNK_PAD ? 1.0f : 0.0f; });
        } else if (keeps) {
            walk.load_state(state, slot);
            walker::store_part(state, delta_parts::of(p, all, head, 0) + first * CHUNK_PAD);
        }
        walk.walk(state, ring, span);
        if (adds && (!matrix || first + walker::row() < CHUNK_PAD)) {
            walker::store_part(state, delta_parts::of(p, all, head, matrix ? own.number : own.number + 1) +
                                          (matrix ? delta_parts::STATE : 0) + first * CHUNK_PAD);
        }
    });
}

// The state in front of each piece from the second on: S = M S + what the piece before has made of none. A block has
// SCAN_COLUMNS columns of a head's state. Threads of a channel have shares of the sum over all channels, and their
// part of the next matrix is under way meanwhile.
DEV void delta_scan(const linear_params &p, unsigned char *bytes)
{
    scan_layout &shared = *reinterpret_cast<scan_layout *>(bytes);
    constexpr int SLICES = delta_parts::COLUMNS / SCAN_COLUMNS;
    const pieces all = pieces::of<BLOCK_SLICES, LEAST_PIECES>(p);
    const int head = static_cast<int>(blockIdx.x) / SLICES;
    const int first = static_cast<int>(blockIdx.x) % SLICES * SCAN_COLUMNS;
    const sequence s = sequence_of(p.cu, p.cu_step, p.z, head / p.z.n_h);
    const int count = piece::of(0, all.most, s.length).count;
    const int channel = static_cast<int>(threadIdx.x) % CHUNK_PAD;
    const int share = static_cast<int>(threadIdx.x) / CHUNK_PAD; // also the first of its own columns
    if (all.most == 1 || count < 3 || slot_of(p, s) < 0 || goes_by_token(p, s) || goes_in_runs(p, head)) {
        return;
    }
    const auto part_of = [&](int n) {
        return delta_parts::of(p, all, head, n) + (first + share) * CHUNK_PAD + channel;
    };
    const auto fetch = [&](float(&m)[SCAN_EACH], int n) {
        const float *matrix =
            delta_parts::of(p, all, head, n) + delta_parts::STATE + share * SCAN_EACH * CHUNK_PAD + channel;
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
            m[c] = matrix[c * CHUNK_PAD];
        }
    };
    float next[SCAN_EACH];
    float x[SCAN_OWN];
    fetch(next, 1);
#pragma unroll
    for (int i = 0; i < SCAN_OWN; i++) {
        x[i] = part_of(1)[i * SCAN_SHARES * CHUNK_PAD];
    }
#pragma unroll 1
    for (int n = 2; n < count; n++) {
        float *part = part_of(n);
        float by[SCAN_EACH];
        float own[SCAN_OWN];
        float sum[SCAN_COLUMNS] = {};
#pragma unroll
        for (int i = 0; i < SCAN_OWN; i++) {
            shared.before[channel][share + i * SCAN_SHARES] = x[i];
            own[i] = part[i * SCAN_SHARES * CHUNK_PAD];
        }
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
            by[c] = next[c];
        }
        if (n + 1 < count) {
            fetch(next, n);
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < SCAN_EACH; c++) {
#pragma unroll
            for (int k = 0; k < SCAN_COLUMNS; k++) {
                sum[k] += by[c] * shared.before[share * SCAN_EACH + c][k];
            }
        }
#pragma unroll
        for (int k = 0; k < SCAN_COLUMNS; k++) {
            shared.sums[share][k][channel] = sum[k];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < SCAN_OWN; i++) {
            x[i] = own[i];
#pragma unroll
            for (int j = 0; j < SCAN_SHARES; j++) {
                x[i] += shared.sums[j][share + i * SCAN_SHARES][channel];
            }
            part[i * SCAN_SHARES * CHUNK_PAD] = x[i];
        }
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int states = linear::delta_layout::END;
constexpr int scan = static_cast<int>(sizeof(linear::scan_layout));
constexpr int chunks = linear::delta_layout::END;
} // namespace smem_bytes

#if LATHE_COMPILED(states)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1)
    LATHE_ENTRY(states)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_states(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(scan)
extern "C" __global__ void __launch_bounds__(linear::SCAN_THREADS)
    LATHE_ENTRY(scan)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::delta_scan(p, shared_bytes);
}
#endif

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::DELTA_THREADS, 1)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    if constexpr (linear::IN_RUNS) {
        linear::delta_in_runs(p, shared_bytes);
    } else {
        linear::delta_chunked(p, shared_bytes);
    }
}
#endif
