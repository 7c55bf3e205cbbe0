// linear/keyed_delta.cuh: kernel: the delta rule behind a decay by key channel, in chunks of 64 tokens by mma.sync: f16
// and bf16, head dims up to 256; also behind one that is the same for all channels, or none, where
// linear/delta_chunks.cuh does not serve the dtype or the head dim.
//
// Launch: sequences * h * VALUE_SLICES blocks of KEYED_THREADS threads, smem_bytes::chunks of shared memory, behind
// `prepare` (linear/keyed_delta_prepare.cuh), which leaves T, A and the keys and queries as they read and write; where
// few long sequences are cut, behind a launch of cfg::PIECES times as many (linear/keyed_delta_runs.cuh). A warp has 16
// columns of the state and goes with them from chunk to chunk: X = T (v - k S), o = scale (q S + A X), S = e^G_end S +
// k' X. All of it but o is kept with columns as rows, so what one product leaves is an operand of the next as it
// stands, and warps share nothing but what has been prepared. Of few tokens linear/recurrent.cuh takes one by one.
#pragma once
#include "linear/forward_walk.cuh"
#include "linear/keyed_delta_runs.cuh"

namespace linear
{

static_assert(cfg::DELTA, "the delta rule");

struct keyed_forward : forward_walk {
    // o of 16 tokens; x: what the tokens write.
    __device__ __forceinline__ void read(float (&o)[2][4], const state_columns &s, float by,
                                         const u32 (&x)[CHUNK_STEPS][4], int t) const
    {
        read_state(o, s, by, t);
        add_pairs(o, x, prepared::PAIRS, t);
        scale_outputs(o);
    }
    // What the first half of a chunk needs comes while the second half of the one before is worked on, and the other
    // way round. OUTPUTS: o is wanted.
    template <bool OUTPUTS> __device__ __forceinline__ void run(state_columns &s, int from, int to) const
    {
        if (from >= to) {
            return;
        }
        load_first(from);
        load_second(from);
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int number = from; number < to; number++) {
            const bool more = number + 1 < to;
            const int kept = OUTPUTS ? kept_behind<CHUNK_TOKENS>(p, w, number * CHUNK_TOKENS) : -1;
            const float by = s.nearer();
            u32 x[CHUNK_STEPS][4];
            correct(x, s, by);
            solve(x);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_first(number + 1);
            }
            if constexpr (OUTPUTS) {
                u32 written[CHUNK_STEPS][4];
                copy_apart(written, x);
#pragma unroll
                for (int t = 0; t < CHUNK_STEPS; t++) {
                    float o[2][4];
                    read(o, s, again(by), written, t);
                    store(o, number * CHUNK_TOKENS + t * STEP);
                }
            }
            s.scale_channels(tile(prepared::FACTORS, 0));
            add(s, x, prepared::WRITE_K);
            leave_kept(s, kept);
            copy_wait<0>();
            __syncthreads();
            if (more) {
                load_second(number + 1);
            }
        }
    }
    __device__ __forceinline__ void run(state_columns &s) const { run<true>(s, 0, chunks_of(w.s.length)); }
};

// Where calls may be cut: a block of a launch of pieces has the run that its piece begins; of the launch behind it, the
// runs of a sequence that have begun with too little, and the last state. Of a call that is not cut there is one run.
template <class P> DEV void keyed_in_pieces(const P &p, unsigned char *bytes)
{
    pieces all = pieces::of<VALUE_SLICES, keyed_runs::LEAST>(p);
    if (keeps_over_states(p)) { // a piece would write what the first one has yet to read
        all.most = 1;
    }
    const bool cut = all.most > 1;
    const bool ahead = p.pieces > 1; // of two launches
    const int block = static_cast<int>(blockIdx.x);
    const int unit = block % max(all.units, 1);
    if (ahead && !cut) {
        return;
    }
    const work w = work::of_number<VALUE_SLICES, VALUE_PAD>(p, cfg::D_V, unit);
    const i64 slot = slot_of(p, w.s);
    if (slot < 0) {
        if (!ahead) {
            store_none<VALUE_PAD, KEYED_THREADS>(p, w);
        }
        return;
    }
    if (goes_by_token(p, w.s)) {
        return;
    }
    const keyed_forward walk{{{p, w, shared_address(bytes)}}};
    const keyed_runs runs = keyed_runs::of<prepared::END_AHEAD>(p, w, all, unit);
    const int column = w.first + keyed_forward::first();
    const int left = w.left - keyed_forward::first();
    const cfg::element_state *from = head_of(p.state, slot * p.state_b + w.h * p.state_h);
    cfg::element_state *to = head_of(p.state_out, slot * p.state_out_b + w.h * p.state_out_h);
    const bool again = cut && !ahead;
    state_columns s = {};
    int number = ahead ? block / max(all.units, 1) : 0;
    int before = 0;
    if (!runs.begins(number)) {
        return;
    }
    if (!again && runs.start(number) == 0 && from != nullptr) {
        s.each_of_memory(p.state_i, p.state_j, column, left, [&](float &a, i64 at) { a = to_float(from[at]); });
    }
#pragma unroll 1
    while (number < runs.count) {
        const int next = runs.next(number);
        if (!again || (number > 0 && !runs.is_right(number, before))) {
            const int begin = runs.first_chunk(number);
            const int start = again ? begin : runs.start(number);
            const int end = runs.first_chunk(next);
            const int last = next < runs.count ? runs.start(next) : end;
            if (again) {
                runs.load(s, before);
            }
            walk.template run<false>(s, start, begin);
            if (cut && ahead) { // other warps may still look at it, and nobody will again
                runs.mark(s, number, keyed_runs::FRONT);
            }
#pragma unroll 1
            for (int half = 0; half < 2; half++) {
                walk.template run<true>(s, half == 0 ? begin : last, half == 0 ? last : end);
                if (half == 0 && next < runs.count) {
                    runs.mark(s, number, keyed_runs::LAST);
                }
            }
            if (cut) {
                runs.store(s, number);
            }
        }
        if (ahead) {
            return;
        }
        before = number;
        number = next;
    }
    if (cut) {
        runs.load(s, before);
    }
    if (to != nullptr) {
        s.each_of_memory(p.state_out_i, p.state_out_j, column, left,
                         [&](float &a, i64 at) { to[at] = from_float<cfg::element_state>(a); });
    }
}

} // namespace linear

namespace smem_bytes
{
constexpr int chunks = linear::keyed_forward::END;
}

#if LATHE_COMPILED(chunks)
extern "C" __global__ void __launch_bounds__(linear::KEYED_THREADS, linear::KEYED_BLOCKS)
    LATHE_ENTRY(chunks)(const __grid_constant__ linear_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    if constexpr (linear::IN_PIECES) {
        linear::keyed_in_pieces(p, shared_bytes);
    } else {
        linear::walk_sequence<linear::keyed_forward>(p, shared_bytes);
    }
}
#endif
