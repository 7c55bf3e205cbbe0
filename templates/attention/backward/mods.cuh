// attention/backward/mods.cuh: kernels: adjoints of the query, key, value and output mods, on every row of a [b, h,
// token, dim] tensor; and dq' from fp32 in the order of fragments to dq.
//
// Launch: n_b * n_h * ceil(len / MOD_TOKENS) blocks of MOD_THREADS threads (n_h and len of this tensor); no shared
// memory to ask
// for. bwd_q: ceil(len / BACK_BM) instead, and smem_bytes::bwd_q of shared memory unless convert_dq() serves.
//
// Each row's way through the mod is computed again and what enters each stage kept in registers; then the stages'
// adjoints run in reverse order, on the same vectors of the same threads as in heads/vector_mod.cuh.
#pragma once
#include "attention/backward/dq_layout.cuh"
#include "heads/vector_adjoint.cuh"

namespace back
{

constexpr int MOD_WARPS = MOD_THREADS / 32;
constexpr int Q_STRIDE = DK + 8; // floats of a row of dq' in shared memory

// Where row 0 lies of what a mod reads: of a sequence, not in front of all others.
template <class PARAMS> DEV i64 first_row(const PARAMS &p)
{
    if constexpr (requires { p.first; }) {
        return p.first;
    } else {
        return 0;
    }
}

// A kernel's own parameters (own_params), of a result of T. PARAMS is back_mod_params, which has `first` of sequences
// alone: as a parameter of the template, so that its members are looked up where there is one.
template <class T, class PARAMS> struct result_params : PARAMS {
    __device__ __forceinline__ void enter(i64 first_q, i64 first_kv)
    {
        this->first = this->of_queries != 0 ? first_q : first_kv;
        this->dst = this->dst == nullptr ? nullptr : static_cast<T *>(this->dst) + this->first * this->dst_t;
        PARAMS::enter(first_q, first_kv);
    }
};
template <class T, class PARAMS> DEV decltype(auto) own_result(const PARAMS &launched)
{
    if constexpr (HAS_SEQUENCES<PARAMS>) {
        return result_params<T, PARAMS>{launched};
    } else {
        return (launched);
    }
}

// Whether any block had some of the tile of this number.
DEV bool has_dq(const back_mod_params &p, i64 line)
{
    if constexpr (cfg::BACK_DQ_STORED) {
        return *order_word(p, line) != 0;
    } else {
        return true;
    }
}

// dq' of a tile, from the order of fragments to rows in shared memory.
DEV void stage_dq(u32 shared, const float *tile, bool some)
{
    using shape = dq_shape;
#pragma unroll 4
    for (int n = static_cast<int>(threadIdx.x) * 4; n < shape::FLOATS; n += MOD_THREADS * 4) {
        float x[4] = {};
        if (some) {
            load_vec<4, float>(tile + n, x);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const shape::place at = shape::place_of(n + i);
            store_shared(shared + static_cast<u32>((at.row * Q_STRIDE + at.column) * 4), x[i]);
        }
    }
    __syncthreads();
}

template <int V> DEV void load_row(u32 from, float factor, float (&out)[V])
{
    static_assert(V % 4 == 0, "16 bytes at a time");
#pragma unroll
    for (int j = 0; j < V; j += 4) {
        const uint4 four = load_shared16(from + static_cast<u32>(4 * j));
        out[j] = __uint_as_float(four.x) * factor;
        out[j + 1] = __uint_as_float(four.y) * factor;
        out[j + 2] = __uint_as_float(four.z) * factor;
        out[j + 3] = __uint_as_float(four.w) * factor;
    }
}

// To a sequence's tiles of dq', behind `tiles` of others.
template <class PARAMS> DEV void enter_dq(PARAMS &p, i64 tiles)
{
    p.grad = static_cast<const float *>(p.grad) + tiles * dq_shape::FLOATS;
    if constexpr (cfg::BACK_DQ_STORED) {
        enter_order(p, tiles);
    }
}

// dq without a query mod, as attention/backward/sm90.cuh and its wide sibling leave it.
template <class T> DEV void convert_dq(const back_mod_params &launched)
{
    constexpr int PIECES = (dq_piece::COUNT + MOD_WARPS - 1) / MOD_WARPS; // of a warp
    constexpr int AT_ONCE = PIECES % 4 == 0 ? 4 : PIECES % 2 == 0 ? 2 : 1;
    auto &&p = own_result<T>(launched);
    query_work work;
    const auto dense = [&] {
        const int tiles = (p.len + BM - 1) / BM;
        const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x); // what has been added last is still in L2
        return query_work{block / tiles / p.n_h, block / tiles % p.n_h, block % tiles};
    };
    if (p.dst == nullptr || !find_queries<BM>(
                                p, work, [](auto &q, i64 tiles) { enter_dq(q, tiles); }, dense)) {
        return;
    }
    const int tile = work.tile;
    const int h = work.h;
    const int b = work.b;
    const i64 line = tile_line(p.z, own_batch(p, b), h) + tile;
    const float *from = static_cast<const float *>(p.grad) + line * dq_shape::FLOATS;
    const bool some = has_dq(p, line);
    const dq_rows<T> rows(static_cast<T *>(p.dst) + (b * p.dst_b + h * p.dst_h + tile * BM * p.dst_t), p.dst_t,
                          p.len - tile * BM);
    const float factor = variant::ds_factor(p.x, p.z, variant::make_head(p.x, p.z, b, h));
    int number = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
    for (int i = 0; i < PIECES; i += AT_ONCE, number += AT_ONCE * MOD_WARPS) {
        dq_piece piece[AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (some && (dq_piece::COUNT % MOD_WARPS == 0 || number + k * MOD_WARPS < dq_piece::COUNT)) {
                piece[k].load(from, number + k * MOD_WARPS);
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (dq_piece::COUNT % MOD_WARPS == 0 || number + k * MOD_WARPS < dq_piece::COUNT) {
                piece[k].store(rows, number + k * MOD_WARPS, factor);
            }
        }
    }
}

// DQ: the gradient is back_params' dq, and still without ds_factor; `shared`: a place for BM rows of it.
// Elements of a vector from `first` on that a row of LENGTH has, one by one.
template <int LENGTH, int V, class T> DEV void store_within(T *row, int first, const float (&in)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++) {
        if (first + i < LENGTH) {
            row[first + i] = from_float<T>(in[i]);
        }
    }
}

template <class BACK, class MOD, class SOURCE, class GRAD, class OUT, int DIM, bool DQ>
DEV void run(const back_mod_params &launched, u32 shared)
{
    using s = mods::shape<DIM>;
    constexpr int TOKENS = DQ ? BM : MOD_TOKENS; // of a block
    auto &&p = own_result<OUT>(launched);
    query_work work;
    const auto dense = [&] {
        const int tiles = (p.len + TOKENS - 1) / TOKENS;
        const int block = static_cast<int>(blockIdx.x);
        return query_work{block / tiles / p.n_h, block / tiles % p.n_h, block % tiles};
    };
    const auto move = [](auto &q, i64 tiles) { enter_dq(q, tiles); };
    int room = 0; // rows that there are, of which keys may be not in use: their gradients are 0
    if constexpr (HAS_SEQUENCES<back_mod_params> && !DQ) {
        mods::rows at;
        if (!enter_rows<TOKENS>(p, at)) {
            return;
        }
        work = {at.b, at.h, at.tile};
        room = at.room;
    } else {
        if (!find_queries<TOKENS>(p, work, move, dense)) {
            return;
        }
        room = p.len;
    }
    const i64 first = first_row(p);
    const int b = work.b;
    const int h = work.h;
    const int tile = work.tile;
    const int thread = static_cast<int>(threadIdx.x) % s::TEAM;
    const SOURCE *src = static_cast<const SOURCE *>(p.src) + (b * p.src_b + h * p.src_h + first * p.src_t);
    const GRAD *grad = static_cast<const GRAD *>(p.grad) + (DQ ? 0 : b * p.grad_b + h * p.grad_h + first * p.grad_t);
    OUT *dst = static_cast<OUT *>(p.dst) + (b * p.dst_b + h * p.dst_h);
    const i64 step = mods::src_step(p);
    const i64 grad_step = back::grad_step(p);
    const bool src_aligned = step == 1 && rows_aligned(src, p.src_t, s::template MASK<SOURCE>);
    const bool grad_aligned = grad_step == 1 && rows_aligned(grad, p.grad_t, s::template MASK<GRAD>);
    const bool dst_aligned = rows_aligned(dst, p.dst_t, s::template MASK<OUT>);

    float factor = 1.0f;
    if constexpr (DQ) {
        factor = variant::ds_factor(p.x, p.z, variant::make_head(p.x, p.z, b, h));
        const i64 line = tile_line(p.z, own_batch(p, b), h) + tile;
        stage_dq(shared, grad + line * dq_shape::FLOATS, has_dq(p, line));
    }
    const typename BACK::head head = [&] {
        if constexpr (BACK::STAGES > 0) {
            return BACK::make_head(p.x, p.z, b, h);
        } else {
            return typename BACK::head{};
        }
    }();
    mod_sums<BACK, DIM> sums = {};

#pragma unroll 1
    for (int turn = 0; turn < TOKENS; turn += s::AT_ONCE) {
        const int place = turn + static_cast<int>(threadIdx.x) / s::TEAM; // in the block
        const int token = tile * TOKENS + place;
        if (tile * TOKENS + turn >= room) {
            break;
        }
        const bool exists = token < p.len && place < TOKENS;
        mods::row_values<DIM> x[max_of(BACK::STAGES, 1)] = {}; // what enters each stage
        mods::row_values<DIM> d = {};
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (!exists || vector >= s::VECTORS) {
                continue;
            }
            if constexpr (BACK::STAGES > 0) {
                const SOURCE *from = src + (token * p.src_t + vector * s::V * step);
                mods::load<s::V, SOURCE>(from, src_aligned, step, x[0].low[k]);
                mods::load<s::V, SOURCE>(from + s::HALF * step, src_aligned, step, x[0].high[k]);
            }
            if constexpr (DQ) {
                const u32 from = shared + static_cast<u32>((place * Q_STRIDE + vector * s::V) * 4);
                load_row(from, factor, d.low[k]);
                load_row(from + s::HALF * 4, factor, d.high[k]);
            } else {
                const GRAD *from = grad + (token * p.grad_t + vector * s::V * grad_step);
                mods::load<s::V, GRAD>(from, grad_aligned, grad_step, d.low[k]);
                mods::load<s::V, GRAD>(from + s::HALF * grad_step, grad_aligned, grad_step, d.high[k]);
            }
        }
        bool empty = false; // the forward kernel's mark is in the row's first element
        if constexpr (sizeof(SOURCE) == 4 && same_type<MOD, variant::output_mod>) {
            empty = __shfl_sync(ALL_LANES, __float_as_uint(x[0].low[0][0]), lane_id() - thread) == EMPTY_ROW;
        }
        if (empty) {
            x[0] = {};
            d = {};
        }
        if constexpr (BACK::STAGES > 0) {
            const int at = max(min(token, p.len - 1), 0);
            const typename MOD::head mod_head = MOD::make_head(p.x, p.z, b, h);
            const mod_params forward{nullptr, nullptr, 0, 0, 0, 0, 0, 0, p.n_h, p.len, p.pos0, p.z, p.x};
            typename MOD::vals vals = {};
            repeat<1, BACK::STAGES>([&]<int S>() {
                x[S] = x[S - 1];
                mods::run_stage<MOD, S - 1, DIM>(x[S], vals, forward, mod_head, thread, at);
            });
            repeat<0, BACK::STAGES>([&]<int R>() {
                constexpr int S = BACK::STAGES - 1 - R;
                run_adjoint<BACK, S, DIM>(x[S], d, sums, p, head, thread, at, exists && !empty);
            });
        }
        if (empty || !exists) {
            d = {};
        }
#pragma unroll
        for (int k = 0; k < s::PER_THREAD; k++) {
            const int vector = thread + k * s::TEAM;
            if (token < room && place < TOKENS && vector < s::VECTORS && p.dst != nullptr) {
                constexpr int LENGTH = mods::row_of<MOD, DIM>();
                OUT *row = dst + token * p.dst_t;
                if constexpr (LENGTH != DIM) {
                    store_within<LENGTH>(row, vector * s::V, d.low[k]);
                    store_within<LENGTH>(row, vector * s::V + s::HALF, d.high[k]);
                } else {
                    OUT *to = row + vector * s::V;
                    mods::store<s::V, OUT>(to, dst_aligned, d.low[k]);
                    mods::store<s::V, OUT>(to + s::HALF, dst_aligned, d.high[k]);
                }
            }
        }
    }
    if constexpr (BACK::STAGES > 0) {
        repeat<0, BACK::STAGES>([&]<int S>() {
            repeat<0, BACK::template sites<S>()>([&]<int G>() { finish_site<BACK, S, G, DIM>(sums, p, head, thread); });
        });
    }
}

template <class BACK, class MOD, class SOURCE, class GRAD, class OUT, int DIM, bool DQ = false>
DEV void run_if_present(const back_mod_params &p, u32 shared = 0)
{
    if constexpr (BACK::PRESENT && DQ && BACK::STAGES == 0 && cfg::BACK_WGMMA) {
        convert_dq<OUT>(p);
    } else if constexpr (BACK::PRESENT) {
        run<BACK, MOD, SOURCE, GRAD, OUT, DIM, DQ>(p, shared);
    }
}

} // namespace back

namespace smem_bytes
{
constexpr int bwd_q = back::BM * back::Q_STRIDE * 4; // rows of dq'
}

// A kernel that is not present is empty and never launched.
#if LATHE_COMPILED(bwd_q)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_q)(const __grid_constant__ back_mod_params p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    back::run_if_present<variant::query_back, variant::query_mod, cfg::element_q, float, cfg::element_q, cfg::D, true>(
        p, shared_address(shared_bytes));
}
#endif

#if LATHE_COMPILED(bwd_k)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_k)(const __grid_constant__ back_mod_params p)
{
    back::run_if_present<variant::key_back, variant::key_mod, cfg::element_k, float, cfg::element_k, cfg::D>(p);
}
#endif

#if LATHE_COMPILED(bwd_v)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_v)(const __grid_constant__ back_mod_params p)
{
    back::run_if_present<variant::value_back, variant::value_mod, cfg::element_v, float, cfg::element_v, cfg::D_V>(p);
}
#endif

#if LATHE_COMPILED(bwd_o)
extern "C" __global__ void __launch_bounds__(MOD_THREADS) LATHE_ENTRY(bwd_o)(const __grid_constant__ back_mod_params p)
{
    back::run_if_present<variant::output_back, variant::output_mod, float, cfg::element_o, cfg::element_o, cfg::D_V>(p);
}
#endif
