// linear/backward/tokens.cuh: kernels for each token by itself: the gradient of a normaliser, the gradients of inputs
// that the decay, beta, the bonus and the scale are made of, the gradients of q and k from those for each head of v,
// and that of v from parts.
//
// Launch of each: ceil(t / TOKEN_TOKENS) blocks of TOKEN_THREADS threads for each batch and head. Heads are those of v,
// in bwd_heads, and in bwd_tokens where tokens_by_group(), those of k. bwd_decay has a block for each sequence and head
// of v. None uses dynamic shared memory.
#pragma once
#include "heads/input_sums.cuh"
#include "linear/backward/parts.cuh"

namespace linear
{

using back::add_sum;
using back::store_or_add;

constexpr int TOKEN_THREADS = 256, TOKEN_TOKENS = 64;
constexpr int TOKEN_WARPS = TOKEN_THREADS / 32;

struct token_block {
    int b, h, first, left; // tokens

    DEV token_block of_block(const sizes &z, int heads)
    {
        const int tiles = (z.len_q + TOKEN_TOKENS - 1) / TOKEN_TOKENS;
        const int block = static_cast<int>(blockIdx.x);
        const int first = block % tiles * TOKEN_TOKENS;
        return {block / tiles / heads, block / tiles % heads, first, min(TOKEN_TOKENS, z.len_q - first)};
    }
};
DEV i64 token_line(const sizes &z, int b, int h, int t) { return (static_cast<i64>(b) * z.n_h + h) * z.len_q + t; }

// Sum over a warp's lanes of f(i), i < n.
template <class F> DEV float warp_sum(int n, const F &f)
{
    float sum = 0.0f;
    for (int i = lane_id(); i < n; i += 32) {
        sum += f(i);
    }
    return lanes_sum<32>(sum);
}

// ---- a normaliser ------------------------------------------------------------------------------------

// Where the pass goes by chunks of the additive family, what flows back to o is divided at once, and rounded. What
// flows back to a divisor is then of the rounded numbers, too: a score gets the difference of both, which is 0 where a
// token sees itself alone.
template <class P> DEV void back_divisors(const P &p)
{
    const token_block k = token_block::of_block(p.z, p.z.n_h);
    for (int n = static_cast<int>(threadIdx.x) / 32; n < k.left; n += TOKEN_WARPS) {
        const int t = k.first + n;
        const i64 line = token_line(p.z, k.b, k.h, t);
        const dout_element *out =
            static_cast<const dout_element *>(p.dout) + (k.b * p.dout_b + k.h * p.dout_h + t * p.dout_t);
        const float factor = p.divided[2 * line];
        const auto divided = [&](int j) {
            const float x = factor * to_float(out[j]);
            if constexpr (requires { p.divided_out; }) {
                const cfg::operand rounded = from_float<cfg::operand>(x);
                static_cast<cfg::operand *>(p.divided_out)[line * cfg::D_V + j] = rounded;
                return to_float(rounded);
            } else {
                return x;
            }
        };
        const float sum = warp_sum(cfg::D_V, [&](int j) { return divided(j) * p.again_o[line * cfg::D_V + j]; });
        if (lane_id() == 0) {
            p.divided[2 * line + 1] = -sum;
        }
    }
}

// ---- decays, where the pass went by chunks -----------------------------------------------------------

// Over the lanes behind this one.
DEV float sum_behind(float x)
{
    const int lane = lane_id();
    float sum = __shfl_down_sync(ALL_LANES, x, 1);
    sum = lane < 31 ? sum : 0.0f;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const float more = __shfl_down_sync(ALL_LANES, sum, static_cast<u32>(step));
        sum += lane + step < 32 ? more : 0.0f;
    }
    return sum;
}

// q dq less k dk of a token, where it exists: all are loaded ahead of the first that is waited for.
DEV float read_less_written(const linear_back_params &p, const work &w, int place)
{
    const i64 at = line_of(p, w, min(place, w.s.length - 1)) * KEY_SLICES;
    float x = 0.0f;
#pragma unroll
    for (int k = 0; k < KEY_SLICES; k++) {
        x += p.reads[at + k] - p.writes[at + k];
    }
    return w.has(place) ? x : 0.0f;
}

// A decay that leaves less than 2^-25: its gradient is beyond the digits of what is a difference here.
constexpr float LOST_LOG = -17.33f;

// The gradient of a logarithm: what reads the state from its token on times its gradient, less what is written, and the
// last state times its gradient.
DEV void back_decay(const linear_back_params &p)
{
    constexpr int EACH = 4, AT_ONCE = EACH * TOKEN_THREADS;
    __shared__ float of_warp[TOKEN_WARPS];
    const work w = work::of_block<1, 1>(p, 1);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float behind = 0.0f; // of all places that have been
    for (int k = 0; k < KEY_SLICES && p.ends != nullptr; k++) {
        behind += p.ends[(static_cast<i64>(w.s.number) * p.z.n_h + w.h) * KEY_SLICES + k];
    }
    for (int first = last_batch(w, AT_ONCE); first >= 0 && w.s.length > 0; first -= AT_ONCE) {
        const int own = first + static_cast<int>(threadIdx.x) * EACH;
        float sum[EACH + 1] = {};
        float log[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            sum[e] = read_less_written(p, w, own + e);
            log[e] = variant::decay(p.x, p.z, w.head, w.row(p, own + e), 0);
        }
#pragma unroll
        for (int e = EACH - 1; e >= 0; e--) {
            sum[e] += sum[e + 1];
        }
        float later = sum_behind(sum[0]);
        if (lane_id() == 0) {
            of_warp[warp] = sum[0] + later;
        }
        __syncthreads();
        float all = 0.0f;
#pragma unroll
        for (int k = TOKEN_WARPS - 1; k >= 0; k--) {
            later += k > warp ? of_warp[k] : 0.0f;
            all += of_warp[k];
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (w.has(own + e)) {
                p.dlog[line_of(p, w, own + e)] = log[e] <= LOST_LOG ? 0.0f : behind + (later + sum[e]);
            }
        }
        behind += all;
        __syncthreads();
    }
}

// ---- gradients of inputs -----------------------------------------------------------------------------

constexpr int SLOTS = max_of(variant::SITES, 1);
constexpr int CHANNELS = max_of(cfg::D, cfg::D_V), PER_LANE = (CHANNELS + 31) / 32;

// Of one token, what flows to the functions of the recurrence.
struct seeds {
    float scale, decay, delta; // decay: of all channels, where it does not vary with them
};

// Does a site or a seed need sums over channels? Else a token is one thread's work, not a warp's.
constexpr bool SITES_HAVE_CHANNELS = !cfg::BY_CHUNK || cfg::BONUS || variant::WANTS[OF_SCALE] ||
                                     (variant::WANTS[OF_DECAY] && (DECAY_BY_KEY || DECAY_BY_VALUE));
constexpr int TOKEN_LANES = SITES_HAVE_CHANNELS ? 32 : 1;
DEV bool leads_token() { return lane_id() % TOKEN_LANES == 0; }

struct site_sums { // over the tokens of a warp, as far as the address allows
    float head[SLOTS];
    float channel[SLOTS][PER_LANE];
};

template <int G> DEV constexpr bool has_channels()
{
    return variant::SITE_OF[G] == OF_BONUS || variant::SITE_OF[G] == OF_READER || variant::SITE_OF[G] == OF_WRITER ||
           (variant::SITE_OF[G] == OF_DECAY && (DECAY_BY_KEY || DECAY_BY_VALUE));
}

struct token {
    const linear_back_params &p;
    int b, h, t;
    i64 line;
    variant::head head;
    variant::row row;
    float scale;
    bool leads_group; // of heads of v that share one of k

    __device__ __forceinline__ const cfg::element_q *q() const
    {
        return elements<cfg::element_q>(p.q, b * p.q_b + head.h_kv * p.q_h + t * p.q_t);
    }
    __device__ __forceinline__ const cfg::element_k *k() const
    {
        return elements<cfg::element_k>(p.k, b * p.k_b + head.h_kv * p.k_h + t * p.k_t);
    }
    __device__ __forceinline__ const cfg::element_v *v() const
    {
        return elements<cfg::element_v>(p.v, b * p.v_b + h * p.v_h + t * p.v_t);
    }
    __device__ __forceinline__ const dout_element *out() const
    {
        return static_cast<const dout_element *>(p.dout) + (b * p.dout_b + h * p.dout_h + t * p.dout_t);
    }
};

// What weighs the token's own pair gets: v do; with a normaliser, in which the pair is, too, v do by the divisor and
// what flows back to that.
DEV float back_own(const token &at)
{
    const float sum = warp_sum(cfg::D_V, [&](int j) { return to_float(at.v()[j]) * to_float(at.out()[j]); });
    return cfg::NORMALISE ? at.p.divided[2 * at.line] * sum + at.p.divided[2 * at.line + 1] : sum;
}

// The gradient of beta: chunks have left it times beta^2; else it is what corrects times its gradient.
template <class P> DEV float delta_seed(const P &p, const token &at)
{
    const i64 line = at.line;
    if constexpr (cfg::BY_CHUNK) {
        const float beta = kept_beta(variant::delta(p.x, p.z, at.head, at.row));
        return p.dbeta[line] / (beta * beta);
    } else {
        return warp_sum(cfg::D_V, [&](int j) { return p.errors[line * cfg::D_V + j] * p.dx[line * cfg::D_V + j]; });
    }
}

// Blocks that share the key channels have each left the gradient of a token's logarithm.
DEV float sum_of_parts(const linear_back_params &p, i64 line)
{
    float sum = 0.0f;
    for (int part = 0; part < cfg::KEY_PARTS; part++) {
        sum += p.dlog[part * (static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q) + line];
    }
    return sum;
}

DEV seeds seeds_of(const token &at, float own)
{
    seeds s = {};
    const linear_back_params &p = at.p;
    if constexpr (variant::WANTS[OF_SCALE]) {
        s.scale = warp_sum(cfg::D, [&](int i) {
            const float q = to_float(at.q()[i]);
            const float pair = cfg::BONUS ? own * to_float(at.k()[i]) * variant::bonus(p.x, p.z, at.head, i) : 0.0f;
            return q * (p.dq_head[at.line * cfg::D + i] + pair);
        });
    }
    if constexpr (GRADIENT_BY_KEY && !DECAY_BY_KEY) {
        s.decay = cfg::SUMS_LOGS ? sum_of_parts(p, at.line)
                                 : warp_sum(cfg::D, [&](int i) { return p.dlog[at.line * cfg::D + i]; });
    }
    if constexpr (variant::WANTS[OF_DELTA]) {
        s.delta = delta_seed(p, at);
    }
    return s;
}

// Of channel i.
template <int G> DEV float channel_seed(const token &at, float own, int i)
{
    if constexpr (variant::SITE_OF[G] == OF_BONUS) {
        return at.scale * to_float(at.q()[i]) * to_float(at.k()[i]) * own;
    } else if constexpr (variant::SITE_OF[G] == OF_READER) {
        return at.p.dk_read[at.line * cfg::D + i];
    } else if constexpr (variant::SITE_OF[G] == OF_WRITER) {
        return (ADDS_SEEN ? at.p.own : at.p.dk_head)[at.line * cfg::D + i];
    } else {
        return at.p.dlog[at.line * (DECAY_BY_VALUE ? cfg::D_V : cfg::D) + i];
    }
}

// What a site gets of the gradient of channel i; of a slot that sees keys, with the key.
template <int G> DEV float site_value(const token &at, int i, float seed)
{
    if constexpr (cfg::HAS_READER || cfg::HAS_WRITER) {
        return variant::template site<G>(at.p.x, at.p.z, at.head, at.row, i, seed,
                                         i < cfg::D ? to_float(at.k()[i]) : 0.0f);
    } else {
        return variant::template site<G>(at.p.x, at.p.z, at.head, at.row, i, seed);
    }
}

template <int G> DEV void take_site(site_sums &sums, const token &at, const seeds &s, float own)
{
    constexpr int FORM = variant::SITE_FORM[G];
    constexpr int OF = variant::SITE_OF[G];
    const bool adds = variant::SITE_ADDS[G] || (variant::SITE_GROUPED[G] && !at.leads_group);
    const linear_back_params &p = at.p;
    if constexpr (OF == OF_DECAY && cfg::GIVES_DECAY) {
        return; // bwd_chunks has
    } else if constexpr (has_channels<G>()) {
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < PER_LANE; n++) {
            const int i = lane_id() + 32 * n;
            if (i >= (OF == OF_DECAY && DECAY_BY_VALUE ? cfg::D_V : cfg::D)) {
                continue;
            }
            const float value = site_value<G>(at, i, channel_seed<G>(at, own, i));
            if constexpr (FORM == SITE_DIM) {
                sums.channel[G][n] += value;
            } else if constexpr (FORM == SITE_ELEMENT) {
                store_or_add(variant::template site_address<G>(p.g, p.x, p.z, at.head, at.row, i), value, adds);
            } else {
                sum += value;
            }
        }
        if constexpr (FORM == SITE_HEAD) {
            sums.head[G] += sum;
        } else if constexpr (FORM == SITE_ROW) {
            sum = lanes_sum<32>(sum);
            if (lane_id() == 0) {
                store_or_add(variant::template site_address<G>(p.g, p.x, p.z, at.head, at.row, 0), sum, adds);
            }
        }
    } else {
        const float seed = OF == OF_SCALE ? s.scale : OF == OF_DECAY ? s.decay : s.delta;
        const float value = site_value<G>(at, 0, seed);
        static_assert(FORM == SITE_HEAD || FORM == SITE_ROW, "a value per token is read by head or by token");
        if (FORM == SITE_HEAD) {
            sums.head[G] += leads_token() ? value : 0.0f;
        } else if (leads_token()) {
            store_or_add(variant::template site_address<G>(p.g, p.x, p.z, at.head, at.row, 0), value, adds);
        }
    }
}

template <int G> DEV void leave_site(const site_sums &sums, const linear_back_params &p, const variant::head &head)
{
    if constexpr (variant::SITE_FORM[G] == SITE_HEAD) {
        const float sum = lanes_sum<32>(sums.head[G]);
        if (lane_id() == 0) {
            add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, variant::row{}, 0), sum);
        }
    } else if constexpr (variant::SITE_FORM[G] == SITE_DIM) {
        constexpr int N = variant::SITE_OF[G] == OF_DECAY && DECAY_BY_VALUE ? cfg::D_V : cfg::D;
#pragma unroll
        for (int n = 0; n < PER_LANE; n++) {
            if (lane_id() + 32 * n < N) {
                add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, variant::row{}, lane_id() + 32 * n),
                        sums.channel[G][n]);
            }
        }
    }
}

// A block then loops over all heads of v of a head of k, so that one thread adds to their shared element in order.
DEV constexpr bool tokens_by_group()
{
    bool any = false;
    for (int g = 0; g < variant::SITES; g++) {
        any |= variant::SITE_GROUPED[g];
    }
    return any;
}

DEV void back_tokens_of_head(const linear_back_params &p, const token_block &k, int h, bool leads_group)
{
    const variant::head head = variant::make_head(p.x, p.z, k.b, h);
    const float scale = variant::scale(p.x, p.z, head);
    site_sums sums = {};
    for (int n = static_cast<int>(threadIdx.x) / TOKEN_LANES; n < k.left; n += TOKEN_THREADS / TOKEN_LANES) {
        const int t = k.first + n;
        const token at{p,
                       k.b,
                       h,
                       t,
                       token_line(p.z, k.b, h, t),
                       head,
                       variant::make_row(p.x, p.z, head, t, packed_position(p.x.cu, p.x.cu_step, p.x.seqs, t)),
                       scale,
                       leads_group};
        float own = 0.0f;
        if constexpr (cfg::BONUS) {
            own = back_own(at);
            if (lane_id() == 0) {
                p.own[at.line] = own;
            }
        }
        const seeds s = seeds_of(at, own);
        repeat<0, variant::SITES>([&]<int G>() { take_site<G>(sums, at, s, own); });
    }
    repeat<0, variant::SITES>([&]<int G>() { leave_site<G>(sums, p, head); });
}

DEV void back_tokens(const linear_back_params &p)
{
    if constexpr (tokens_by_group()) {
        const token_block k = token_block::of_block(p.z, p.z.n_h_kv);
        const int group = p.z.group();
#pragma unroll 1
        for (int h = k.h * group; h < (k.h + 1) * group; h++) {
            back_tokens_of_head(p, k, h, h == k.h * group);
        }
    } else {
        const token_block k = token_block::of_block(p.z, p.z.n_h);
        back_tokens_of_head(p, k, k.h, true);
    }
}

// ---- q and k -----------------------------------------------------------------------------------------

// Of T, or of f32 in the workspace.
template <bool WIDE_RESULT, class T> DEV void store_four(void *base, i64 place, const float (&x)[4])
{
    if constexpr (WIDE_RESULT) {
        store_vec<4, float>(static_cast<float *>(base) + place, x);
    } else {
        store_any<4, T>(static_cast<T *>(base) + place, x);
    }
}

// What comes to a key from the vectors that the rule has in its place, y and read, and from a writer beside it.
template <class V> struct key_of_rule {
    const linear_back_params &p;
    const typename V::head &head;
    typename V::row row;
    i64 line;

    __device__ __forceinline__ float reader(int i, float k, float d) const
    {
        if constexpr (cfg::HAS_READER) {
            return V::reader_back(p.x, p.z, head, row, i, k, d);
        } else {
            return d;
        }
    }
    __device__ __forceinline__ float writer(int i, float k, float d) const
    {
        if constexpr (ADDS_SEEN) {
            return d + V::writer_back(p.x, p.z, head, row, i, k, p.own[line * cfg::D + i]);
        } else if constexpr (cfg::HAS_WRITER) {
            return V::writer_back(p.x, p.z, head, row, i, k, d);
        } else {
            return d;
        }
    }
};
template <class V> DEV float back_key(const linear_back_params &p, const typename V::head &head, int t, i64 line, int i,
                                      float k, float y, float read)
{
    const key_of_rule<V> of{p, head, V::make_row(p.x, p.z, head, t, packed_position(p.x.cu, p.x.cu_step, p.x.seqs, t)),
                            line};
    return of.writer(i, k, y) + of.reader(i, k, read);
}

DEV void back_heads(const linear_back_params &p)
{
    const token_block k = token_block::of_block(p.z, p.z.n_h_kv);
    constexpr int VECTORS = cfg::D / 4;
    const int group = p.z.group();
    for (int n = static_cast<int>(threadIdx.x); n < k.left * VECTORS; n += TOKEN_THREADS) {
        const int t = k.first + n / VECTORS;
        const int i = n % VECTORS * 4;
        float dq[4] = {};
        float dk[4] = {};
        float q[4] = {};
        float key[4] = {};
        if constexpr (cfg::BONUS) {
            load_vec<4, cfg::element_q>(elements<cfg::element_q>(p.q, k.b * p.q_b + k.h * p.q_h + t * p.q_t + i), q);
        }
        if constexpr (cfg::BONUS || BY_RULE) {
            load_vec<4, cfg::element_k>(elements<cfg::element_k>(p.k, k.b * p.k_b + k.h * p.k_h + t * p.k_t + i), key);
        }
        for (int h = k.h * group; h < (k.h + 1) * group; h++) {
            const variant::head head = variant::make_head(p.x, p.z, k.b, h);
            const float scale = cfg::BY_CHUNK ? 1.0f : variant::scale(p.x, p.z, head); // chunks have it in dq
            const i64 line = token_line(p.z, k.b, h, t);
            float x[4];
            float y[4];
            float read[4] = {};
            load_vec<4, float>(p.dq_head + (line * cfg::D + i), x);
            load_vec<4, float>(p.dk_head + (line * cfg::D + i), y);
            if constexpr (LOOKS && !cfg::BY_CHUNK) {
                load_vec<4, float>(p.dk_read + (line * cfg::D + i), read);
            }
            const float own = cfg::BONUS ? p.own[line] : 0.0f;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float u = cfg::BONUS ? own * variant::bonus(p.x, p.z, head, i + e) : 0.0f;
                dq[e] += scale * (x[e] + u * key[e]);
                if constexpr (BY_RULE) {
                    dk[e] += back_key<variant>(p, head, t, line, i + e, key[e], y[e], read[e]);
                } else {
                    dk[e] += y[e] + read[e] + scale * u * q[e];
                }
            }
        }
        if (p.dq != nullptr) {
            store_four<cfg::DQ_F32, cfg::element_q>(p.dq, k.b * p.dq_b + k.h * p.dq_h + t * p.dq_t + i, dq);
        }
        if (p.dk != nullptr) {
            store_four<cfg::DK_F32, cfg::element_k>(p.dk, k.b * p.dk_b + k.h * p.dk_h + t * p.dk_t + i, dk);
        }
    }
}

// ---- v -----------------------------------------------------------------------------------------------

// dv from what blocks with a part of the key channels each have left.
template <int PARTS, class P> DEV void back_values(const P &p)
{
    const token_block k = token_block::of_block(p.z, p.z.n_h);
    constexpr int VECTORS = cfg::D_V / 4;
    const i64 lines = static_cast<i64>(p.z.n_b) * p.z.n_h * p.z.len_q;
    for (int n = static_cast<int>(threadIdx.x); n < k.left * VECTORS; n += TOKEN_THREADS) {
        const int t = k.first + n / VECTORS;
        const int j = n % VECTORS * 4;
        const i64 line = token_line(p.z, k.b, k.h, t);
        float dv[4] = {};
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            float x[4];
            load_vec<4, float>(p.dv_parts + ((part * lines + line) * cfg::D_V + j), x);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                dv[e] += x[e];
            }
        }
        if constexpr (cfg::SKIP && !cfg::DV_F32) { // what comes to v through the output mod
            float x[4];
            load_vec<4, float>(p.skip + (line * cfg::D_V + j), x);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                dv[e] += x[e];
            }
        }
        if (p.dv != nullptr) {
            store_four<cfg::DV_F32, cfg::element_v>(p.dv, k.b * p.dv_b + k.h * p.dv_h + t * p.dv_t + j, dv);
        }
    }
}

} // namespace linear

#if LATHE_COMPILED(bwd_divisors)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_divisors)(const __grid_constant__ linear_back_params p)
{
    linear::back_divisors(p);
}
#endif

#if LATHE_COMPILED(bwd_decay)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_decay)(const __grid_constant__ linear_back_params p)
{
    linear::back_decay(p);
}
#endif

#if LATHE_COMPILED(bwd_tokens)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_tokens)(const __grid_constant__ linear_back_params p)
{
    linear::back_tokens(p);
}
#endif

#if LATHE_COMPILED(bwd_values)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_values)(const __grid_constant__ linear_back_params p)
{
    linear::back_values<(cfg::D + 127) / 128>(p);
}
#endif

#if LATHE_COMPILED(bwd_heads)
extern "C" __global__ void __launch_bounds__(linear::TOKEN_THREADS)
    LATHE_ENTRY(bwd_heads)(const __grid_constant__ linear_back_params p)
{
    linear::back_heads(p);
}
#endif
