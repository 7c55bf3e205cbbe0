// linear/delta_runs_sm90.cuh: what a block of `chunks` has of a sequence that gates may cut (linear/delta_runs.cuh): a
// whole one, a piece, a run, or what is to be walked again.
#pragma once
#include "linear/delta_pieces_sm90.cuh"
#include "linear/delta_runs.cuh"

namespace linear
{

// Where a walk begins and ends. A part is of a piece (struct delta_parts).
struct delta_way {
    static constexpr int NOTHING = -2, MEMORY = -1; // in the place of a part
    delta_span span;
    int ahead;    // chunks whose outputs are others'
    int leave_at; // the chunk of the walk that the next run begins with; -1: there is none
    int number;   // the piece that it begins with
    int next;     // of the next run
    int from, to; // parts
};

// In the place of matrices, which runs have none of: largest elements of columns in front of a run's piece, and of the
// state that it leaves out.
struct run_marks {
    static constexpr int FRONT = delta_parts::STATE, LOST = FRONT + delta_parts::COLUMNS;
    static_assert(2 * delta_parts::COLUMNS <= delta_parts::MATRIX, "there is room for both");
};

// Bits of numbers that are not below 0 are in the same order, and those of NaN are last.
template <class WALKER, class STATE> DEV void leave_marks(const STATE &state, float *to)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int largest = 0;
#pragma unroll
        for (int b = 0; b < WALKER::DEPTH / 8; b++) {
            largest = max(largest, __float_as_int(fabsf(state[b][2 * h])));
            largest = max(largest, __float_as_int(fabsf(state[b][2 * h + 1])));
        }
        largest = max(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
        largest = max(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
        if (lane_id() % 4 == 0) {
            to[WALKER::row() + 8 * h] = __int_as_float(largest);
        }
    }
}

template <class P> struct delta_run_block {
    using walker = delta_walk<P, DELTA_OUTPUT>;
    static constexpr int NOWHERE = 1 << 30; // a place that no sequence has, so that nothing is stored
    const P &p;
    const work &w;
    const pieces &all;
    int head;
    i64 slot;

    __device__ __forceinline__ float *part(int number) const { return delta_parts::of(p, all, head, number); }
    __device__ __forceinline__ float *marks(int number, int which) const { return part(number) + which + w.first; }

    // The first run that has begun with too little; its count: none has. By all threads, with 64 bytes of their own.
    __device__ __forceinline__ int first_wrong(const delta_runs &runs, int *of_warp) const
    {
        int wrong = runs.count;
        for (int n = static_cast<int>(threadIdx.x); n < runs.count * BLOCK_COLUMNS; n += DELTA_THREADS) {
            const int number = n / BLOCK_COLUMNS;
            if (number > 0 && runs.begins(number)) {
                bool right = true;
                run_rule::judge(right, marks(number, run_marks::LOST)[n % BLOCK_COLUMNS],
                                marks(number, run_marks::FRONT)[n % BLOCK_COLUMNS]);
                wrong = right ? wrong : min(wrong, number);
            }
        }
        wrong = warp_min(wrong);
        if (lane_id() == 0) {
            of_warp[threadIdx.x / 32] = wrong;
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < DELTA_THREADS / 32; n++) {
            wrong = min(wrong, of_warp[n]);
        }
        __syncthreads();
        return wrong;
    }

    // Of a whole sequence, or one by transitions.
    __device__ __forceinline__ delta_way piece_way(const piece &own, bool cut) const
    {
        const int none = own.number == 0 && p.state == nullptr ? delta_way::NOTHING : own.number;
        return {span_of(own),
                0,
                -1,
                own.number,
                0,
                cut ? none : delta_way::MEMORY,
                own.is_last() ? delta_way::MEMORY : delta_way::NOTHING};
    }
    __device__ __forceinline__ delta_way run_way(const delta_runs &runs, int number) const
    {
        const int next = runs.next(number);
        const int start = runs.start(number);
        const int end = next < runs.count ? runs.first_chunk(next) : chunks_of(w.s.length);
        const int leave = next < runs.count ? runs.start(next) - start : -1;
        return {{start, end - start},
                runs.ahead(number),
                leave,
                number,
                next,
                start == 0 ? delta_way::MEMORY : delta_way::NOTHING,
                number};
    }
    // Behind all runs: from the first one that is not right, or the last state alone.
    __device__ __forceinline__ delta_way again_way(const delta_runs &runs, int wrong) const
    {
        const int begin = wrong < runs.count ? runs.first_chunk(wrong) : chunks_of(w.s.length);
        return {{begin, chunks_of(w.s.length) - begin}, 0, -1, 0, 0, runs.before(wrong), delta_way::MEMORY};
    }
    __device__ __forceinline__ void walk(const delta_way &way, unsigned char *bytes) const
    {
        delta_block<DELTA_OUTPUT>(p, w, way.span, w.left, bytes, [&](const delta_ring &ring, u32 shared) {
            const walker walk{p, w, shared};
            float state[walker::DEPTH / 8][4] = {};
            if (way.from == delta_way::MEMORY) {
                walk.load_state(state, slot);
            } else if (way.from >= 0) {
                const float *from = part(way.from) + w.first * CHUNK_PAD;
                walker::each_of_part(state, [&](float &a, int at) { a = from[at]; });
            }
#pragma unroll 1
            for (int n = 0; n < way.span.count; n++) {
                const bool own = n >= way.ahead;
                const int place = (way.span.first + n) * CHUNK_TOKENS;
                const int kept = own ? kept_behind<CHUNK_TOKENS>(p, w, place) : -1;
                if (n == way.ahead && n > 0) {
                    leave_marks<walker>(state, marks(way.number, run_marks::FRONT));
                }
                if (n == way.leave_at) {
                    leave_marks<walker>(state, marks(way.next, run_marks::LOST));
                }
                walk.step(state, ring, n, own ? place : NOWHERE, leave_nothing{});
                leave_kept(walk, state, kept);
            }
            if (way.to == delta_way::MEMORY) {
                walk.store_state(state, slot);
            } else if (way.to >= 0) {
                walker::store_part(state, part(way.to) + w.first * CHUNK_PAD);
            }
        });
    }
};

// Of a launch of pieces, and of the one behind it, which has whole sequences, and what is left of those that gates
// have cut.
template <class P> DEV void delta_in_runs(const P &p, unsigned char *bytes)
{
    const pieces all = pieces::of<BLOCK_SLICES, delta_runs::LEAST>(p);
    const int unit = static_cast<int>(blockIdx.x) % max(all.units, 1);
    const work w = work::of_number<BLOCK_SLICES, BLOCK_COLUMNS>(p, cfg::D_V, unit);
    const piece own = piece::of(static_cast<int>(blockIdx.x) / max(all.units, 1), all.most, w.s.length);
    const i64 slot = slot_of(p, w.s);
    const bool cut = all.most > 1;
    const bool ahead = p.pieces > 1; // of two launches
    if ((ahead && !cut) || !own.exists() || goes_by_token(p, w.s)) {
        return;
    }
    if (slot < 0) {
        if (!ahead && own.number == 0) {
            store_none<BLOCK_COLUMNS, DELTA_THREADS>(p, w);
        }
        return;
    }
    const delta_run_block<P> block{p, w, all, unit / BLOCK_SLICES, slot};
    const bool in_runs = cut && goes_in_runs(p, block.head);
    delta_way way;
    if (!in_runs) {
        if (cut && !ahead) {
            return;
        }
        way = block.piece_way(own, cut);
    } else {
        const delta_runs runs = delta_runs::of(p, all, w.s.length, block.head);
        if (ahead) {
            if (!runs.begins(own.number)) {
                return;
            }
            way = block.run_way(runs, own.number);
        } else {
            const int wrong = block.first_wrong(runs, reinterpret_cast<int *>(bytes));
            if (wrong == runs.count && p.state_out == nullptr) {
                return;
            }
            way = block.again_way(runs, wrong);
        }
    }
    block.walk(way, bytes);
}

} // namespace linear
