// linear/backward/columns.cuh: kernels that walk with columns of the state, all rows of them.
//
// bwd_again goes forward: what the delta rule corrects by, o in f32 and its divisors, and the state at the ends of
// chunks, where a decay varies by value channel. bwd_columns goes back with the gradient of the state: dv, the gradient
// of the initial state, and the gradient of such a decay.
//
// Launch of both: sequences * h * COLUMN_SLICES blocks of 32 cfg::WARPS threads; no shared memory to ask for.
#pragma once
#include "linear/backward/parts.cuh"

namespace linear
{

using saved_columns = saved_tile<cfg::D, WIDE, COLUMN_SLICES>;

// ---- forward once more -------------------------------------------------------------------------------

struct again_outputs {
    const linear_back_params &p;
    const work &w;

    DEV void store_row(float *base, const linear_back_params &p, const work &w, int place, const float (&x)[columns::N])
    {
        if (base != nullptr && w.has(place) && columns::column() < w.left) {
            store_vec<columns::N, float>(base + (line_of(p, w, place) * cfg::D_V + w.first + columns::column()), x);
        }
    }
    __device__ __forceinline__ void store(int place, const float (&o)[WIDE]) const
    {
        const float factor = cfg::NORMALISE ? 1.0f / normaliser(o[WIDE - 1]) : 1.0f;
        float out[columns::N];
#pragma unroll
        for (int n = 0; n < columns::N; n++) {
            out[n] = o[n] * factor;
        }
        store_row(p.again_o, p, w, place, out);
        if (cfg::NORMALISE && w.has(place) && w.first == 0 && columns::column() == 0) {
            p.divided[2 * line_of(p, w, place)] = factor;
        }
    }
    __device__ __forceinline__ void error(int place, const float (&x)[WIDE]) const
    {
        float own[columns::N];
#pragma unroll
        for (int n = 0; n < columns::N; n++) {
            own[n] = x[n];
        }
        if (lane_id() % ROW_LANES == 0) {
            store_row(p.errors, p, w, place, own);
        }
    }
    __device__ __forceinline__ void after(int place, state_tile &state) const
    {
        if constexpr (GRADIENT_BY_VALUE) {
            if (is_end(w, place)) {
                saved_columns::save(p, w, place, state);
            }
        }
    }
};

DEV void again(const linear_back_params &p)
{
    batch(&shared)[2] = *room_for<batch>();
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    column_loader<linear_back_params, cfg::element_v> loader(
        p, w, elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h + w.first), p.v_t);
    state_tile state;
    state.clear();
    load_state(state, w, head_of(p.state, w.s.number * p.state_b + w.h * p.state_h), p.state_i, p.state_j);
    load_norm(state, head_of(p.norm, w.s.number * p.norm_b + w.h * p.norm_h), p.norm_i);
    again_outputs out{p, w};
    if constexpr (cfg::CAUSAL) {
        walk<true, true>(shared, loader, state, out);
    } else {
        walk<false, true>(shared, loader, state, out);
        walk<true, false>(shared, loader, state, out);
    }
}

// ---- back --------------------------------------------------------------------------------------------

// The gradient of the state before one token: `sum` gets that of the token's value, of this thread's rows; with the
// delta rule of all of them.
template <bool READS, bool WRITES>
DEV void step_back(state_tile &state, const batch &b, int n, float factor, float (&sum)[WIDE])
{
    float out[WIDE];
    load_value(b, n, b.beside[n], out);
#pragma unroll
    for (int i = 0; i < columns::N; i++) {
        out[i] *= factor;
    }
    if constexpr (WRITES && !cfg::BONUS) {
        state.add(b.q[n], out);
    }
    if constexpr (READS) {
        state.read(b.k[n], sum);
        if constexpr (cfg::BONUS) {
            add_times(sum, own_weight(b, n), out);
        }
        if constexpr (cfg::DELTA) {
            float back[WIDE];
            sum_rows(sum);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                back[i] = -b.beta[n] * sum[i];
            }
            state.add(b.k[n], back);
        }
        decay_state(state, b, n);
    }
    if constexpr (WRITES && cfg::BONUS) {
        state.add(b.q[n], out);
    }
}

struct column_gradients {
    const linear_back_params &p;
    const work &w;
    sums_to_end<columns::N> decay;

    // What flows back to what a token has read.
    __device__ __forceinline__ void store_seen(int place, const float (&x)[WIDE]) const
    {
        float own[columns::N];
#pragma unroll
        for (int i = 0; i < columns::N; i++) {
            own[i] = x[i];
        }
        if (w.has(place) && columns::column() < w.left && lane_id() % ROW_LANES < 4) {
            store_vec<columns::N, float>(p.dx + (line_of(p, w, place) * cfg::D_V + w.first + columns::column()), own);
        }
    }
    // By all lanes; lane % 4 says which of four tokens.
    __device__ __forceinline__ void store(int place, const float (&x)[WIDE], const batch &b, int n)
    {
        float own[columns::N];
        const bool some = w.has(place) && columns::column() < w.left;
        const i64 at = line_of(p, w, some ? place : 0) * cfg::D_V + w.first + columns::column();
#pragma unroll
        for (int i = 0; i < columns::N; i++) {
            own[i] = x[i];
        }
        const bool writes = some && lane_id() % ROW_LANES < 4;
        if (cfg::DELTA && writes) {
            store_vec<columns::N, float>(p.dx + at, own);
        }
#pragma unroll
        for (int i = 0; i < columns::N; i++) {
            own[i] *= cfg::DELTA ? b.beta[n] : 1.0f;
        }
        if constexpr (GRADIENT_BY_VALUE) {
            store_decay(place, some, writes, own, b, n);
        }
        if (writes) {
            using target = dv_element;
            if (p.skip != nullptr && !cfg::DV_F32) {
                float more[columns::N];
                load_vec<columns::N, float>(p.skip + at, more);
                add_times(own, 1.0f, more);
            }
            if (p.dv != nullptr) {
                store_any<columns::N, target>(static_cast<target *>(p.dv) +
                                                  (w.s.batch * p.dv_b + w.h * p.dv_h +
                                                   sequence::token(w.s, place) * p.dv_t + w.first + columns::column()),
                                              own);
            }
        }
    }
    __device__ __forceinline__ void store_decay(int place, bool some, bool writes, const float (&dv)[columns::N],
                                                const batch &b, int n)
    {
        static_assert(!GRADIENT_BY_VALUE || !cfg::BONUS, "a bonus reads the state before the decay");
        float sum[columns::N] = {};
        if (some) {
            float v[columns::N];
            float o[columns::N];
            float back[columns::N];
            const int token = sequence::token(w.s, place);
            load_vec<columns::N, cfg::element_v>(
                elements<cfg::element_v>(p.v,
                                         w.s.batch * p.v_b + w.h * p.v_h + token * p.v_t + w.first + columns::column()),
                v);
            load_vec<columns::N, float>(p.again_o + (line_of(p, w, place) * cfg::D_V + w.first + columns::column()), o);
            load_vec<columns::N, dout_element>(dout_of(p, w, w.first + columns::column()) + token * p.dout_t, back);
#pragma unroll
            for (int i = 0; i < columns::N; i++) {
                sum[i] = o[i] * back[i] - v[i] * dv[i];
            }
        }
        decay.take_four(sum);
        float loss[columns::N];
        load_vec<columns::N, float>(&b.values[n][columns::column()], loss);
#pragma unroll
        for (int i = 0; i < columns::N; i++) {
            sum[i] = forgets(loss[i]) ? 0.0f : sum[i];
        }
        if (writes) {
            store_vec<columns::N, float>(p.dlog + (line_of(p, w, place) * cfg::D_V + w.first + columns::column()), sum);
        }
    }
    // In front of the batch that ends at `place`.
    __device__ __forceinline__ void before(int place, state_tile &state)
    {
        if constexpr (GRADIENT_BY_VALUE) {
            if (is_end(w, place)) {
                saved_columns::products(p, w, min(place, w.s.length), state, decay.behind);
            }
        }
    }
};

// Of four tokens, with the sums over all rows in every lane, this lane's.
template <int W> DEV void pick_of_four(const float (&all)[4][W], float (&own)[W])
{
    const bool odd = (lane_id() & 1) != 0;
    const bool high = (lane_id() & 2) != 0;
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float low = odd ? all[1][i] : all[0][i];
        const float up = odd ? all[3][i] : all[2][i];
        own[i] = high ? up : low;
    }
}

// Four tokens by the rule, from the last on: what they read gets its gradient, and then their values theirs.
template <class S, class B, class OUT> DEV void four_back_by_rule(S &state, const B &b, int place, int first, OUT &out)
{
    float part[4][WIDE] = {};
    float part_seen[4][WIDE] = {};
#pragma unroll
    for (int i = 3; i >= 0; i--) {
        float value[WIDE];
        load_value(b, first + i, 0.0f, value);
        state.add(b.q[first + i], value);
        back_by_rule(state, b, first + i, part[i], part_seen[i]);
    }
    const int n = first + lane_id() % 4;
    float x[WIDE];
    if constexpr (cfg::DELTA) {
        pick_of_four(part, x);
    } else {
        pick_of_four(part_seen, x);
        out.store_seen(place + n, x);
        sum_rows_of_four(part, x);
    }
    out.store(place + n, x, b, n);
}

template <class LOADER> struct divided_loader { // with the divisor of o, and what flows back to it
    LOADER loader;
    DEV void put(const LOADER &l, batch &to, int place)
    {
        l.put(to, place);
        each_of_batch<batch::TOKENS, 1>(place, [&](int n, int at, int) {
            const bool some = cfg::NORMALISE && l.w.has(at);
            to.beside[n] = some ? l.p.divided[2 * line_of(l.p, l.w, at) + 1] : 0.0f;
        });
    }
};

template <bool READS, bool WRITES, class LOADER>
DEV void walk_back(batch (&shared)[2], LOADER &loader, state_tile &state, column_gradients &out)
{
    constexpr int TOKENS = batch::TOKENS;
    const work &w = loader.w;
    const int last = last_batch(w, TOKENS);
    __syncthreads();
    loader.get(last);
    divided_loader<LOADER>::put(loader, shared[0], last);
    loader.put_bonus(shared[0]);
    loader.put_bonus(shared[1]);
    __syncthreads();
#pragma unroll 1
    for (int place = last, now = 0; place >= 0; place -= TOKENS, now ^= 1) {
        if (place > 0) {
            loader.get(place - TOKENS);
        }
        const batch &b = shared[now];
        if constexpr (READS) {
            out.before(place + TOKENS, state);
        }
#pragma unroll 1
        for (int first = TOKENS - 4; first >= 0; first -= 4) {
            if constexpr (BY_RULE) {
                four_back_by_rule(state, b, place, first, out);
            } else {
                float part[4][WIDE] = {};
#pragma unroll
                for (int i = 3; i >= 0; i--) {
                    const int at = place + first + i;
                    const float factor =
                        cfg::NORMALISE && w.has(at) ? loader.p.divided[2 * line_of(loader.p, w, at)] : 1.0f;
                    step_back<READS, WRITES>(state, b, first + i, factor, part[i]);
                }
                if constexpr (READS) {
                    float x[WIDE];
                    if constexpr (cfg::DELTA) {
                        pick_of_four(part, x);
                    } else {
                        sum_rows_of_four(part, x);
                    }
                    out.store(place + first + lane_id() % 4, x, b, first + lane_id() % 4);
                }
            }
        }
        if (place > 0) {
            divided_loader<LOADER>::put(loader, shared[now ^ 1], place - TOKENS);
        }
        __syncthreads();
    }
}

DEV void back_columns(const linear_back_params &p)
{
    batch(&shared)[2] = *room_for<batch>();
    const work w = work::of_block<COLUMN_SLICES, columns::COLUMNS>(p, cfg::D_V);
    column_loader<linear_back_params, dout_element> loader(p, w, dout_of(p, w, w.first), p.dout_t);
    state_tile state;
    state.clear();
    load_state(state, w, head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h), p.dstate_out_i,
               p.dstate_out_j);
    load_norm(state, head_of(p.dnorm_out, w.s.number * p.dnorm_out_b + w.h * p.dnorm_out_h), p.dnorm_out_i);
    column_gradients out{p, w, {}};
    if constexpr (cfg::CAUSAL) {
        walk_back<true, true>(shared, loader, state, out);
    } else {
        walk_back<false, true>(shared, loader, state, out);
        walk_back<true, false>(shared, loader, state, out);
    }
    store_state(state, w, head_of(p.dstate, w.s.number * p.dstate_b + w.h * p.dstate_h), p.dstate_i, p.dstate_j);
    store_norm(state, w, head_of(p.dnorm, w.s.number * p.dnorm_b + w.h * p.dnorm_h), p.dnorm_i);
}

} // namespace linear

#if LATHE_COMPILED(bwd_again)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_again)(const __grid_constant__ linear_back_params p)
{
    linear::again(p);
}
#endif

#if LATHE_COMPILED(bwd_columns)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_columns)(const __grid_constant__ linear_back_params p)
{
    linear::back_columns(p);
}
#endif
