// linear/backward/keyed_rule.cuh: kernels: the backward pass of the delta rule whose tokens read the state by a vector
// a and write under a vector b of their own: what is of a chunk of 64 tokens ahead of the walks, and what is of it
// behind them.
//
// The walks are those of linear/backward/keyed_states.cuh as they stand: a reads in the place of k, b writes. Behind
// them, with the names of linear/backward/keyed_delta.cuh,
//     dq = scale (e^G do S' + dA b),   da = -e^F dv S' + dN b,   db = e^(G_end - G) X dS'' + scale dA' q + dN' a,
// where F is G, or with cfg::READS_BEFORE that of the token before: what a reads then counts for decays of tokens
// before its own alone.
// These, dq without its scale, go to the workspace for each head of v, in f32, and so do what the rule corrects by, X /
// beta, and its gradient, dv / beta: from there kernels of each token (linear/backward/tokens.cuh) have dq, dk and the
// gradients of inputs, as they do where the pass goes token by token. With cfg::GIVES_DECAY, bwd_chunks_low_rank itself
// has those of the inputs of the decay.
//
// Launch of bwd_prepare_low_rank: as of linear/low_rank_prepare.cuh; of bwd_chunks_low_rank: as of bwd_chunks there,
// with smem_bytes::bwd_chunks_low_rank of shared memory.
#pragma once
#include "linear/backward/keyed_delta.cuh"
#include "linear/low_rank_prepare.cuh"

namespace linear
{

static_assert(!cfg::BY_CHUNK, "dq and dk go by the workspace");

// b in the place of keys, a behind all.
struct low_rank_layout_back : keyed_layout_back {
    static constexpr int A = round_up(keyed_layout_back::END, 128), END = A + KEY_BYTES;
};

struct low_rank_gradients : keyed_gradients {
    static constexpr int A = low_rank_layout_back::A;

    // Makes a and b of this warp's keys. All global loads are issued before the first result is stored.
    __device__ __forceinline__ void make_vectors() const
    {
        fragments a;
        fragments b;
        each_two([&](int m, int n, int r) {
            float k[2];
            load_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), k[0], k[1]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int at = place + token(m, r);
                const int i = first_channel() + channel(n) + e;
                a[m][n][2 * r + e] = made_reader<variant>(p, w, at, i, k[e]);
                b[m][n][2 * r + e] = made_writer<variant>(p, w, at, i, k[e]);
            }
        });
        each_two([&](int m, int n, int r) {
            store_pair<PAD_D>(tile(A), token(m, r), channel(n), a[m][n][2 * r], a[m][n][2 * r + 1]);
            store_pair<PAD_D>(tile(layout::K), token(m, r), channel(n), b[m][n][2 * r], b[m][n][2 * r + 1]);
        });
    }
    __device__ __forceinline__ void weigh_vectors() const
    {
        const key_ends from = own_ends(share);
        const key_ends to = own_ends(1.0f - share);
        const auto reads = [&](int m, int n, int i) { return exp2_approx(logs.x[m][n][i] - from.x[m][n][i % 2]); };
        weigh(layout::READS, layout::Q, [&](int m, int n, int i) { return w.scale * reads(m, n, i); });
        weigh(layout::KEYS_READ, A, [&](int m, int n, int i) {
            return exp2_approx(logs.read(m, n, i, cfg::READS_BEFORE) - from.x[m][n][i % 2]);
        });
        weigh(layout::WRITES, layout::K,
              [&](int m, int n, int i) { return exp2_approx(to.x[m][n][i % 2] - logs.x[m][n][i]); });
    }

    // ---- gradients -----------------------------------------------------------------------------------

    // Rows of a head in the workspace, of this block's channels; `adds`: to what this lane has left there.
    __device__ __forceinline__ void leave_channels(fragments &x, float *base, bool adds = false) const
    {
        float *of = of_band<cfg::D>(p, w, base) + (first_line(p, w) * cfg::D + first_channel());
        if (adds) {
            fragments left = {};
            each_two([&](int m, int n, int r) {
                const int at = place + token(m, r);
                if (w.has(at) && channel(n) < cfg::D - first_channel()) {
                    float two[2];
                    load_vec<2, float>(of + (static_cast<i64>(sequence::token(w.s, at)) * cfg::D + channel(n)), two);
                    left[m][n][2 * r] = two[0];
                    left[m][n][2 * r + 1] = two[1];
                }
            });
#pragma unroll
            for (int e = 0; e < 8 * OWN_BLOCKS; e++) {
                x[e / 8][e / 4 % 2][e % 4] += left[e / 8][e / 4 % 2][e % 4];
            }
        }
        store_columns<float>(x, of, cfg::D, 16 * own, cfg::D - first_channel());
    }
    // X or dv by what is in them of beta.
    __device__ __forceinline__ void leave_by_beta(int values, float *base) const
    {
        float by[OWN_BLOCKS][2];
#pragma unroll
        for (int k = 0; k < 2 * OWN_BLOCKS; k++) {
            const int n = token(k / 2, k % 2);
            by[k / 2][k % 2] = power(n) / kept_beta(w.beta(p, place + n));
        }
#pragma unroll 1
        for (int first = 16 * own; first < columns_of_band(w); first += 16 * OWN_WARPS) {
            fragments x;
#pragma unroll
            for (int m = 0; m < OWN_BLOCKS; m++) {
                u32 a[4];
                left_columns<CHUNK_TOKENS>::of(tile(values), BLOCK * block(m)).load(a, first / 16);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float *two = &x[m][i / 2][i % 2 * 2];
                    unpack<operand>(a[i], two[0], two[1]);
                    two[0] *= by[m][i % 2];
                    two[1] *= by[m][i % 2];
                }
            }
            store_columns<float>(x, base + (first_line(p, w) * cfg::D_V + first_of_band(w)), cfg::D_V, first,
                                 columns_of_band(w));
        }
    }
    // What comes to those that write from queries and readers.
    __device__ __forceinline__ void add_from_readers(fragments &x)
    {
        const pair_sum readers[2] = {{layout::BACK, layout::READS, layout::Q, w.scale},
                                     {layout::KEYS_BACK, layout::KEYS_READ, A, 1.0f, cfg::READS_BEFORE}};
        sum_readers(x, readers);
        add_own_pairs(x, layout::Q, w.scale);
    }
    // db.
    __device__ __forceinline__ void give_writers(float *to)
    {
        fragments x = {};
        read_values(x, layout::BEHIND, p.dstates, layout::V);
        if constexpr (GRADIENT_BY_KEY) {
            leave_crossings(x);
        }
        add_from_readers(x);
        leave_channels(x, to);
    }
    // Leaves da, and adds what flows to the logarithms to `to`. `adds`: of a second writer; the first has the state's.
    __device__ __forceinline__ void give_readers(fragments &to, bool adds = false)
    {
        fragments x = {};
        if (!adds) {
            read_values(x, layout::FRONT, p.states, layout::Z);
        }
#pragma unroll
        for (int e = 0; e < 8 * OWN_BLOCKS; e++) {
            const float all = x[e / 8][e / 4 % 2][e % 4];
            x[e / 8][e / 4 % 2][e % 4] = cfg::DELTA ? -all : all;
        }
        sum_writers(x, to, {A, 1.0f, cfg::READS_BEFORE}, {layout::KEYS_BACK, layout::WRITES, layout::K, 1.0f});
        leave_channels(x, p.dk_read, adds);
    }
    // dq without its scale.
    __device__ __forceinline__ void give_queries(bool adds = false)
    {
        fragments x = {};
        if (!adds) {
            read_columns(x, layout::FRONT, p.states,
                         [&](int block) { return left_rows<PAD_V>::of(tile(layout::DO), BLOCK * block); });
        }
        sum_writers(x, flow, {layout::Q, w.scale}, {layout::BACK, layout::WRITES, layout::K, 1.0f});
        add_own_pairs(x, layout::K, 1.0f);
        leave_channels(x, p.dq_head, adds);
    }
    __device__ __forceinline__ void renew_writers() const
    {
        if (is_strong()) {
            weigh_writers_again();
            __syncthreads();
        }
    }
    // To the logarithms. ahead: what has flowed from readers before their own decay.
    __device__ __forceinline__ void give_logs(const fragments &ahead)
    {
        if constexpr (GRADIENT_BY_KEY) {
            sum_blocks(ahead);
            __syncthreads();
            give_decays();
        }
    }

    // ---- the chunk -----------------------------------------------------------------------------------

    __device__ __forceinline__ void begin()
    {
        fetch();
        leave_ends();
        copy_wait<1>();
        __syncthreads();
        choose_share();
        make_vectors();
        __syncwarp();
    }
    __device__ __forceinline__ void run()
    {
        begin();
        weigh_vectors();
        make_pairs();
        if (part == 0) {
            give_values();
            if constexpr (variant::WANTS[OF_DELTA]) {
                leave_by_beta(layout::V, p.errors);
                leave_by_beta(layout::Z, p.dx);
            }
        }
        copy_wait<0>();
        __syncthreads();
        give_writers(p.dk_head);
        if constexpr (GRADIENT_BY_KEY) {
            cross_states();
        }
        fragments ahead = {};
        give_readers(cfg::READS_BEFORE ? ahead : flow);
        renew_writers();
        give_queries();
        give_logs(ahead);
    }
};

} // namespace linear

namespace smem_bytes
{
constexpr int bwd_prepare_low_rank = linear::low_rank_layout::END;
constexpr int bwd_chunks_low_rank = linear::low_rank_layout_back::END;
} // namespace smem_bytes

#if LATHE_COMPILED(bwd_prepare_low_rank)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_prepare_low_rank)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::prepare_chunk<true, linear::low_rank_chunk>(p, shared_bytes,
                                                        [](float beta) { return linear::kept_beta(beta); });
}
#endif

#if LATHE_COMPILED(bwd_chunks_low_rank)
extern "C" __global__ void __launch_bounds__(linear::OWN_THREADS, 512 / linear::OWN_THREADS)
    LATHE_ENTRY(bwd_chunks_low_rank)(const __grid_constant__ linear_back_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    linear::back_of_chunk<linear::low_rank_gradients>(p, shared_bytes);
}
#endif
