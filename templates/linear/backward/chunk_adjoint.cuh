// linear/backward/chunk_adjoint.cuh: the adjoint of a query or key mod on the 64 rows of a chunk, in the kernel that
// has made what flows back to them: that never goes to memory in f32, and no kernel behind it reads it again.
//
// The rows go through shared memory, ADJOINT_ROWS at a time, from fragments to the teams of threads of
// heads/vector_mod.cuh.
#pragma once
#include "heads/vector_adjoint.cuh"
#include "linear/backward/products.cuh"

namespace linear
{

constexpr int ADJOINT_ROWS = 32;
constexpr int ADJOINT_BYTES = ADJOINT_ROWS * PAD_D * 4;
static_assert(MOD_THREADS == WALK_THREADS, "the threads of a block are teams");

template <class T> struct adjoint_tensor { // q or k as it was given, or its gradient; where a head begins
    T *head;
    i64 stride;
};

template <class BACK, class MOD, class T> struct chunk_adjoint {
    using s = mods::shape<cfg::D>;
    static constexpr int STAGES = BACK::STAGES, AT_ONCE = s::AT_ONCE < ADJOINT_ROWS ? s::AT_ONCE : ADJOINT_ROWS;
    using values = mods::row_values<cfg::D>;
    const linear_back_params &p;
    const work &w;
    int place;
    u32 rows; // in shared memory, ADJOINT_BYTES

    // Of four floats: those of eight rows beside each other lie in all banks.
    DEV u32 offset(int row, int channel)
    {
        return static_cast<u32>(row * PAD_D * 4 + ((channel / 4) ^ (row % 8)) * 16 + channel % 4 * 4);
    }
    // By the warps whose 16 rows are among those that are next, NB blocks of eight channels from `channel0` on.
    template <int NB> __device__ __forceinline__ void put(float (&x)[NB][4], int half, int channel0) const
    {
        if (quarter() / 2 == half) {
            each_pair(x, quarter() % 2 * 16, channel0, [&](int, int row, int channel, float a, float b) {
                const u32 at = rows + offset(row, channel);
                store_shared(at, a);
                store_shared(at + 4, b);
            });
        }
    }
    template <int V> __device__ __forceinline__ void take(float (&x)[V], int row, int channel) const
    {
#pragma unroll
        for (int i = 0; i < V; i += 4) {
            const uint4 four = load_shared16(rows + offset(row, channel + i));
            x[i] = __uint_as_float(four.x);
            x[i + 1] = __uint_as_float(four.y);
            x[i + 2] = __uint_as_float(four.z);
            x[i + 3] = __uint_as_float(four.w);
        }
    }
    // f(number of a vector of this thread, its first channel in the low half of a row).
    template <class F> DEV void each_vector(int thread, const F &f)
    {
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (vector < s::VECTORS) {
                f(k, vector * s::V);
            }
        }
    }
    __device__ __forceinline__ void turn_row(const adjoint_tensor<T> &given, const adjoint_tensor<T> &result, int row,
                                             int half, int thread, bool exists) const
    {
        const int token = sequence::token(w.s, exists ? place + half * ADJOINT_ROWS + row : place);
        values x[STAGES] = {}; // what enters each stage
        values d = {};
        const T *from = given.head + token * given.stride;
        const bool from_aligned =
            back::rows_aligned(static_cast<const T *>(given.head), given.stride, s::template MASK<T>);
        each_vector(thread, [&](int k, int channel) {
            mods::load<s::V, T>(from + channel, from_aligned, 1, x[0].low[k]);
            mods::load<s::V, T>(from + channel + s::HALF, from_aligned, 1, x[0].high[k]);
            take(d.low[k], row, channel);
            take(d.high[k], row, channel + s::HALF);
        });
        run_stages(x, d, token, thread, exists);
        T *to = result.head + token * result.stride;
        const bool to_aligned =
            back::rows_aligned(static_cast<const T *>(result.head), result.stride, s::template MASK<T>);
        each_vector(thread, [&](int k, int channel) {
            if (exists) {
                mods::store<s::V, T>(to + channel, to_aligned, d.low[k]);
                mods::store<s::V, T>(to + channel + s::HALF, to_aligned, d.high[k]);
            }
        });
    }
    __device__ __forceinline__ void run_stages(values (&x)[STAGES], values &d, int token, int thread, bool exists) const
    {
        back_mod_params adjoint = {};
        mod_params forward = {};
        adjoint.x = forward.x = p.x;
        adjoint.z = forward.z = p.z;
        const typename BACK::head head = BACK::make_head(p.x, p.z, w.s.batch, w.h_kv);
        const typename MOD::head mod_head = MOD::make_head(p.x, p.z, w.s.batch, w.h_kv);
        back::mod_sums<BACK, cfg::D> none = {};
        typename MOD::vals vals = {};
        repeat<1, STAGES>([&]<int S>() {
            x[S] = x[S - 1];
            mods::run_stage<MOD, S - 1, cfg::D>(x[S], vals, forward, mod_head, thread, token);
        });
        repeat<0, STAGES>([&]<int R>() {
            constexpr int S = STAGES - 1 - R;
            static_assert(BACK::FORM[S] == FORM_ELEMENT && BACK::template sites<S>() == 0,
                          "elements by themselves, and no gradient of an input");
            back::run_adjoint<BACK, S, cfg::D>(x[S], d, none, adjoint, head, thread, token, exists);
        });
    }
    // By all threads of a block, each with its fragments of what flows back.
    template <int NB> __device__ __forceinline__ void
    run(float (&x)[NB][4], int channel0, const adjoint_tensor<T> &given, const adjoint_tensor<T> &result) const
    {
        const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
#pragma unroll 1
        for (int half = 0; half < CHUNK_TOKENS / ADJOINT_ROWS; half++) {
            __syncthreads();
            put(x, half, channel0);
            __syncthreads();
#pragma unroll 1
            for (int first = 0; first < ADJOINT_ROWS; first += AT_ONCE) {
                const int row = first + static_cast<int>(threadIdx.x) / s::TEAM;
                if (row < ADJOINT_ROWS) { // the same for all lanes of a warp
                    turn_row(given, result, row, half, thread, w.has(place + half * ADJOINT_ROWS + row));
                }
            }
        }
    }
};

} // namespace linear
