// linear/backward/rows.cuh: kernels that walk with rows of the state, all columns of them: tiles whose rows are the
// columns of the state (and the sum of keys), and whose columns are key channels. What is a sum over value channels is
// so a sum over the rows of a tile.
//
// bwd_queries goes forward: the gradients of q, and of k where the delta rule reads the state by it; bwd_keys goes back
// with the gradient of the state: that of k where it is written, and of decays by token or key channel. Gradients are
// for each head of v, f32, [b, h, t, d] in the workspace.
//
// Launch of both: sequences * h * ROW_SLICES blocks of 32 cfg::WARPS threads; no shared memory to ask for.
#pragma once
#include "linear/backward/parts.cuh"

namespace linear
{

static_assert(cfg::D_V <= 256, "a block has all columns of some rows of the state");

using saved_rows = saved_tile<VALUES, rows::N, ROW_SLICES>;

// The gradient of a decay is a difference in which a token's pair with itself is on both sides, however strong the
// decays are. It is left out of both, and comes to dq and dk behind them.
constexpr bool OWN_APART = GRADIENT_BY_KEY && !cfg::BONUS && cfg::CAUSAL && !ADDS_SEEN;

template <bool DELTA> struct row_loader_of { // DELTA: the delta rule leaves other values, in the workspace
    static constexpr int TOKENS = row_batch::TOKENS;
    using written = typename pick<DELTA, float, cfg::element_v>::type;
    const linear_back_params &p;
    const work &w;
    fetcher<written, rows::PAD, TOKENS> x;
    fetcher<dout_element, rows::PAD, TOKENS> out;
    fetcher<float, DELTA ? rows::PAD : 4, TOKENS> z;
    fetcher<cfg::element_q, rows::COLUMNS, TOKENS> q;
    fetcher<cfg::element_k, rows::COLUMNS, TOKENS> k;

    __device__ __forceinline__ row_loader_of(const linear_back_params &params, const work &of) : p(params), w(of) {}
    __device__ __forceinline__ void get(int place)
    {
        const i64 line = first_line(p, w) * cfg::D_V;
        if constexpr (DELTA) {
            x.get(p.errors + line, cfg::D_V, cfg::D_V, w.s, place);
            z.get(p.dx + line, cfg::D_V, cfg::D_V, w.s, place);
        } else {
            x.get(elements<cfg::element_v>(p.v, w.s.batch * p.v_b + w.h * p.v_h), p.v_t, cfg::D_V, w.s, place);
        }
        out.get(dout_of(p, w, 0), p.dout_t, cfg::D_V, w.s, place);
        q.get(elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h + w.first), p.q_t, w.left, w.s, place);
        k.get(elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h + w.first), p.k_t, w.left, w.s, place);
    }
    // Every thread of the block comes here.
    __device__ __forceinline__ void put(row_batch &to, int place) const
    {
        each_of_batch<TOKENS, 1>(place, [&](int n, int at, int) {
            if constexpr (cfg::DECAY == DECAY_HEAD || cfg::DECAY == DECAY_TOKEN) {
                to.all[n] = w.all(p, at);
            }
            to.beta[n] = cfg::DELTA ? w.beta(p, at) : 1.0f;
            to.divided[n] = cfg::NORMALISE && w.has(at) ? p.divided[2 * line_of(p, w, at)] : 1.0f;
        });
        __syncthreads();
        x.put(to.x, [&](int n) { return to.beta[n]; });
        out.put(to.out, [&](int n) { return to.divided[n]; });
        if constexpr (DELTA) {
            z.put(to.z, [&](int n) { return to.beta[n]; });
        }
        q.put(to.q, [&](int) { return w.scale; });
        k.put(to.k);
        if constexpr (BY_RULE) {
            put_vectors<variant>(*this, to, place, w.first);
        }
        if constexpr (DECAY_BY_KEY) {
            each_of_batch<TOKENS, rows::COLUMNS>(
                place, [&](int n, int at, int i) { to.keys[n][i] = w.channel(p, at, w.first + i, cfg::D); });
        }
        if constexpr (DECAY_BY_VALUE) {
            each_of_batch<TOKENS, rows::PAD>(
                place, [&](int n, int at, int j) { to.values[n][j] = w.channel(p, at, j, cfg::D_V); });
        }
        if constexpr (cfg::NORMALISE) { // the row of the sum of keys, which vectors have left 0
            __syncthreads();
            each_of_batch<TOKENS, 1>(place, [&](int n, int at, int) {
                to.x[n][cfg::D_V] = w.has(at) ? 1.0f : 0.0f;
                to.out[n][cfg::D_V] = w.has(at) ? p.divided[2 * line_of(p, w, at) + 1] : 0.0f;
            });
        }
    }
};

// With what tokens have read, and with its gradient, which goes where the delta rule's has the other sign.
template <class LOADER> struct seen_loader : LOADER {
    static constexpr int TOKENS = row_batch::TOKENS;
    fetcher<float, rows::PAD, TOKENS> u, du;

    __device__ __forceinline__ seen_loader(const linear_back_params &params, const work &of) : LOADER(params, of) {}
    __device__ __forceinline__ void get(int place)
    {
        LOADER::get(place);
        const i64 line = first_line(this->p, this->w) * cfg::D_V;
        u.get(this->p.errors + line, cfg::D_V, cfg::D_V, this->w.s, place);
        du.get(this->p.dx + line, cfg::D_V, cfg::D_V, this->w.s, place);
    }
    template <class B> __device__ __forceinline__ void put(B &to, int place) const
    {
        LOADER::put(to, place);
        u.put(to.u);
        du.put(to.z, [](int) { return -1.0f; });
    }
};

using row_loader = typename pick<ADDS_SEEN, seen_loader<row_loader_of<cfg::DELTA>>, row_loader_of<cfg::DELTA>>::type;

DEV void decay_rows(row_tile &t, const row_batch &b, int n)
{
    if constexpr (DECAY_BY_KEY) {
        float by[rows::N];
        load_vec<rows::N, float>(&b.keys[n][rows::column()], by);
        t.decay_columns(by);
    } else if constexpr (DECAY_BY_VALUE) {
        t.decay_rows(b.values[n]);
    } else if constexpr (DECAYS) {
        t.decay(b.all[n]);
    }
}
template <int W> DEV void column_of(const float (&from)[W], float (&x)[rows::N])
{
    load_vec<rows::N, float>(&from[rows::column()], x);
}

// The state of the other side, with what flows in at one end: [d, d_v] and the sum of keys.
DEV void load_rows(row_tile &t, const work &w, const cfg::element_state *state, i64 s_i, i64 s_j,
                   const cfg::element_state *norm, i64 norm_i)
{
    t.clear();
    t.each_place([&](float &a, int row, int n) {
        const int i = rows::column() + n;
        if (i < w.left && row < cfg::D_V && state != nullptr) {
            a = to_float(state[(w.first + i) * s_i + row * s_j]);
        } else if (cfg::NORMALISE && i < w.left && row == cfg::D_V && norm != nullptr) {
            a = to_float(norm[(w.first + i) * norm_i]);
        }
    });
}

DEV float *key_row(float *base, const linear_back_params &p, const work &w, int place)
{
    return base + (line_of(p, w, place) * cfg::D + w.first + rows::column());
}
DEV bool writes_row(const work &w, int place)
{
    return w.has(place) && rows::column() < w.left && lane_id() % ROW_LANES < 4;
}

// ---- queries -----------------------------------------------------------------------------------------

// Of the rule's vectors, this thread's columns.
template <class B> DEV void reader_column(const B &b, int n, float (&x)[rows::N])
{
    load_vec<rows::N, float>(reader_at(b, n) + rows::column(), x);
}
template <class B> DEV void writer_column(const B &b, int n, float (&x)[rows::N])
{
    load_vec<rows::N, float>(writer_at(b, n) + rows::column(), x);
}

template <class B, class F>
DEV void step_rows_by_rule(row_tile &t, const B &b, int n, float (&dq)[rows::N], float (&da)[rows::N], const F &ahead)
{
    if constexpr (LOOKS && cfg::READS_BEFORE) {
        t.read(b.z[n], da);
    }
    decay_rows(t, b, n);
    if constexpr (LOOKS && !cfg::READS_BEFORE) {
        t.read(b.z[n], da);
    }
    if constexpr (OWN_APART) {
        t.read(b.out[n], dq);
    }
    ahead();
    float under[rows::N];
    writer_column(b, n, under);
    t.add(b.x[n], under);
    if constexpr (ADDS_SEEN) {
        column_of(b.b[n], under);
        t.add(b.u[n], under);
    }
    if constexpr (!OWN_APART) {
        t.read(b.out[n], dq);
    }
}

// ahead(): where the state has been decayed, and the token has not written.
template <bool READS, bool WRITES, class F>
DEV void step_rows(row_tile &t, const row_batch &b, int n, float (&dq)[rows::N], float (&dk)[rows::N], const F &ahead)
{
    if constexpr (READS && cfg::BONUS) {
        t.read(b.out[n], dq);
    }
    if constexpr (BY_RULE) {
        step_rows_by_rule(t, b, n, dq, dk, ahead);
    } else if constexpr (WRITES) {
        float k[rows::N];
        column_of(b.k[n], k);
        decay_rows(t, b, n);
        if constexpr (cfg::DELTA) {
            t.read(b.z[n], dk);
        }
        if constexpr (READS && OWN_APART) {
            t.read(b.out[n], dq);
        }
        ahead();
        t.add(b.x[n], k);
    }
    if constexpr (READS && !cfg::BONUS && !OWN_APART && !BY_RULE) {
        t.read(b.out[n], dq);
    }
}

// q times its gradient, and k times what it reads by; 0 beyond the sequence.
DEV void store_queries(const linear_back_params &p, const work &w, const row_batch &b, int place, int n,
                       const float (&dq)[rows::N], const float (&dk)[rows::N])
{
    if (!writes_row(w, place)) {
        return;
    }
    store_vec<rows::N, float>(key_row(p.dq_head, p, w, place), dq);
    float read[rows::N];
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        read[i] = -dk[i];
    }
    if constexpr (LOOKS) {
        store_vec<rows::N, float>(key_row(p.dk_read, p, w, place), read);
    }
}

template <bool READS, bool WRITES> DEV void walk_rows(row_batch (&shared)[2], row_loader &loader, row_tile &t)
{
    constexpr int TOKENS = row_batch::TOKENS;
    const work &w = loader.w;
    __syncthreads();
    loader.get(0);
    loader.put(shared[0], 0);
    __syncthreads();
#pragma unroll 1
    for (int place = 0, now = 0; place < w.s.length; place += TOKENS, now ^= 1) {
        const bool more = place + TOKENS < w.s.length;
        if (more) {
            loader.get(place + TOKENS);
        }
        const row_batch &b = shared[now];
#pragma unroll 1
        for (int first = 0; first < TOKENS; first += 4) {
            float part_q[4][rows::N] = {};
            float part_k[4][rows::N] = {};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                step_rows<READS, WRITES>(t, b, first + i, part_q[i], part_k[i], [&] {
                    const int end = place + first + i + 1;
                    if (OWN_APART && end <= w.s.length && is_end(w, end)) {
                        saved_rows::save(loader.p, w, end, t);
                    }
                });
            }
            if constexpr (READS) {
                float dq[rows::N];
                float dk[rows::N] = {};
                sum_rows_of_four(part_q, dq);
                if constexpr (LOOKS) {
                    sum_rows_of_four(part_k, dk);
                }
                store_queries(loader.p, w, b, place + first + lane_id() % 4, first + lane_id() % 4, dq, dk);
            }
        }
        if constexpr (GRADIENT_BY_KEY && !OWN_APART) {
            const int end = min(place + TOKENS, w.s.length);
            if (is_end(w, end)) {
                saved_rows::save(loader.p, w, end, t);
            }
        }
        if (more) {
            loader.put(shared[now ^ 1], place + TOKENS);
        }
        __syncthreads();
    }
}

DEV void back_queries(const linear_back_params &p)
{
    row_batch(&shared)[2] = *room_for<row_batch>();
    const work w = work::of_block<ROW_SLICES, rows::COLUMNS>(p, cfg::D);
    row_loader loader(p, w);
    row_tile t;
    load_rows(t, w, head_of(p.state, w.s.number * p.state_b + w.h * p.state_h), p.state_i, p.state_j,
              head_of(p.norm, w.s.number * p.norm_b + w.h * p.norm_h), p.norm_i);
    if constexpr (cfg::CAUSAL) {
        walk_rows<true, true>(shared, loader, t);
    } else {
        walk_rows<false, true>(shared, loader, t);
        walk_rows<true, false>(shared, loader, t);
    }
}

// ---- keys --------------------------------------------------------------------------------------------

template <bool READS, bool WRITES> DEV void step_rows_back(row_tile &t, const row_batch &b, int n, float (&dk)[rows::N])
{
    float q[rows::N];
    column_of(b.q[n], q);
    if constexpr (WRITES && !cfg::BONUS && !OWN_APART) {
        t.add(b.out[n], q);
    }
    if constexpr (READS) {
        t.read(b.x[n], dk);
        if constexpr (OWN_APART) {
            t.add(b.out[n], q);
        }
        if constexpr (cfg::DELTA) {
            float k[rows::N];
            column_of(b.k[n], k);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                k[i] = -k[i];
            }
            t.add(b.z[n], k);
        }
        decay_rows(t, b, n);
    }
    if constexpr (WRITES && cfg::BONUS) {
        t.add(b.out[n], q);
    }
}

// What a token's pair with itself weighs, of this thread's rows.
DEV float own_pair(const row_batch &b, int n)
{
    float own = 0.0f;
#pragma unroll
    for (int g = 0; g < rows::GROUPS; g++) {
        const int row = 4 * (lane_id() % ROW_LANES + ROW_LANES * g);
        float x[4];
        float out[4];
        load_vec<4, float>(&b.x[n][row], x);
        load_vec<4, float>(&b.out[n][row], out);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            own += x[e] * out[e];
        }
    }
    return own;
}

struct key_gradients {
    const linear_back_params &p;
    const work &w;
    sums_to_end<rows::N> decay;

    // own: of OWN_APART.
    __device__ __forceinline__ void store(const row_batch &b, int place, int n, const float (&dk)[rows::N], float own)
    {
        const bool writes = writes_row(w, place);
        if (writes) {
            float all[rows::N];
            column_of(b.q[n], all);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                all[i] = OWN_APART ? dk[i] + own * all[i] : dk[i];
            }
            store_vec<rows::N, float>(key_row(p.dk_head, p, w, place), all);
        }
        if constexpr (GRADIENT_BY_KEY) {
            float sum[rows::N] = {};
            if (w.has(place) && rows::column() < w.left) {
                add_terms(b, place, n, dk, sum);
            }
            if constexpr (OWN_APART) {
                __syncwarp(); // others have read it, too
                if (writes) {
                    add_own_pair(b, place, n, own);
                }
            }
            decay.take_four(sum);
            float loss[rows::N];
            if constexpr (DECAY_BY_KEY) {
                column_of(b.keys[n], loss);
            }
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                sum[i] = forgets(DECAY_BY_KEY ? loss[i] : b.all[n]) ? 0.0f : sum[i];
            }
            if (writes) {
                store_vec<rows::N, float>(key_row(p.dlog, p, w, place), sum);
            }
        }
    }
    // The same by the rule. db: of what is read, where that is added under a writer of its own.
    template <class B> __device__ __forceinline__ void
    store_by_rule(const B &b, int place, int n, const float (&dk)[rows::N], const float (&db)[rows::N], float own)
    {
        const bool writes = writes_row(w, place);
        float all[rows::N];
        column_of(b.q[n], all);
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            all[i] = OWN_APART ? dk[i] + own * all[i] : dk[i];
        }
        if (writes) {
            store_vec<rows::N, float>(key_row(p.dk_head, p, w, place), all);
        }
        if (ADDS_SEEN && writes) {
            store_vec<rows::N, float>(key_row(p.own, p, w, place), db);
        }
        if constexpr (GRADIENT_BY_KEY) {
            float sum[rows::N] = {};
            if (w.has(place) && rows::column() < w.left) {
                add_terms_by_rule(b, place, n, dk, db, sum);
            }
            if constexpr (OWN_APART) {
                __syncwarp(); // others have read it, too
                if (writes) {
                    float under[rows::N];
                    writer_column(b, n, under);
                    add_own(place, own, under);
                }
            }
            finish_decay(b, place, n, writes, sum);
        }
    }
    // What the reader reads is of the token before, where that is ahead of the decay.
    template <class B>
    __device__ __forceinline__ void add_terms_by_rule(const B &b, int place, int n, const float (&dk)[rows::N],
                                                      const float (&db)[rows::N], float (&sum)[rows::N])
    {
        const bool last = OWN_APART && is_end(w, place + 1); // what is saved is the state ahead of what it writes
        const int looks = cfg::READS_BEFORE ? place + 1 : place;
        float x[rows::N];
        float dx[rows::N];
        column_of(b.q[n], x); // times the scale
        load_vec<rows::N, float>(key_row(p.dq_head, p, w, place), dx);
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            sum[i] += x[i] * dx[i];
        }
        writer_column(b, n, x);
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            sum[i] -= last ? 0.0f : x[i] * dk[i];
        }
        if constexpr (ADDS_SEEN) {
            column_of(b.b[n], x);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                sum[i] -= x[i] * db[i];
            }
        }
        if (LOOKS && (!cfg::READS_BEFORE || (looks % CHUNK != 0 && w.has(looks)))) {
            next_reader(b, looks, n, x);
            load_vec<rows::N, float>(key_row(p.dk_read, p, w, looks), dx);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                sum[i] += x[i] * dx[i];
            }
        }
    }
    // The reader of the token at `looks`, which is n of the batch or the one behind it.
    template <class B>
    __device__ __forceinline__ void next_reader(const B &b, int looks, int n, float (&x)[rows::N]) const
    {
        if constexpr (cfg::READS_BEFORE) {
            load_vec<rows::N, cfg::element_k>(elements<cfg::element_k>(p.k, w.s.batch * p.k_b + w.h_kv * p.k_h +
                                                                                sequence::token(w.s, looks) * p.k_t +
                                                                                w.first + rows::column()),
                                              x);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                x[i] = made_reader<variant>(p, w, looks, w.first + rows::column() + i, x[i]);
            }
        } else {
            reader_column(b, n, x);
        }
    }
    template <class B>
    __device__ __forceinline__ void finish_decay(const B &b, int place, int n, bool writes, float (&sum)[rows::N])
    {
        decay.take_four(sum);
        float loss[rows::N];
        if constexpr (DECAY_BY_KEY) {
            column_of(b.keys[n], loss);
        }
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            sum[i] = forgets(DECAY_BY_KEY ? loss[i] : b.all[n]) ? 0.0f : sum[i];
        }
        if (writes) {
            store_vec<rows::N, float>(key_row(p.dlog, p, w, place), sum);
        }
    }
    __device__ __forceinline__ void add_own(int place, float own, const float (&under)[rows::N]) const
    {
        float *at = key_row(p.dq_head, p, w, place);
        float dq[rows::N];
        load_vec<rows::N, float>(at, dq);
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            dq[i] += own * under[i];
        }
        store_vec<rows::N, float>(at, dq);
    }
    // To dq.
    __device__ __forceinline__ void add_own_pair(const row_batch &b, int place, int n, float own) const
    {
        float *at = key_row(p.dq_head, p, w, place);
        float k[rows::N];
        float dq[rows::N];
        column_of(b.k[n], k);
        load_vec<rows::N, float>(at, dq);
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            dq[i] += own * k[i];
        }
        store_vec<rows::N, float>(at, dq);
    }
    // Less what is written, and what is read: with a bonus the state ahead of the token's decay, so that it is a matter
    // of the decays before.
    __device__ __forceinline__ void add_terms(const row_batch &b, int place, int n, const float (&dk)[rows::N],
                                              float (&sum)[rows::N])
    {
        float k[rows::N];
        column_of(b.k[n], k);
        const int reader = cfg::BONUS ? place + 1 : place;
        const bool last = OWN_APART && is_end(w, place + 1); // what is saved is the state ahead of what it writes
        if (!cfg::BONUS || (reader % CHUNK != 0 && w.has(reader))) {
            float q[rows::N];
            float dq[rows::N];
            load_vec<rows::N, cfg::element_q>(elements<cfg::element_q>(p.q, w.s.batch * p.q_b + w.h_kv * p.q_h +
                                                                                sequence::token(w.s, reader) * p.q_t +
                                                                                w.first + rows::column()),
                                              q);
            load_vec<rows::N, float>(key_row(p.dq_head, p, w, reader), dq);
#pragma unroll
            for (int i = 0; i < rows::N; i++) {
                sum[i] = w.scale * q[i] * dq[i];
            }
        }
        float read[rows::N] = {};
        if constexpr (cfg::DELTA) {
            load_vec<rows::N, float>(key_row(p.dk_read, p, w, place), read);
        }
#pragma unroll
        for (int i = 0; i < rows::N; i++) {
            sum[i] += k[i] * (last ? read[i] : read[i] - dk[i]);
        }
    }
    __device__ __forceinline__ void before(int place, row_tile &t)
    {
        if constexpr (GRADIENT_BY_KEY) {
            if (is_end(w, place)) {
                saved_rows::products(p, w, min(place, w.s.length), t, decay.behind);
            }
        }
    }
};

template <class B>
DEV void step_rows_back_by_rule(row_tile &t, const B &b, int n, float (&dk)[rows::N], float (&db)[rows::N])
{
    float q[rows::N];
    float a[rows::N];
    column_of(b.q[n], q);
    reader_column(b, n, a);
#pragma unroll
    for (int i = 0; i < rows::N; i++) {
        a[i] = -a[i];
    }
    if constexpr (!OWN_APART) {
        t.add(b.out[n], q);
    }
    t.read(b.x[n], dk);
    if constexpr (ADDS_SEEN) {
        t.read(b.u[n], db);
    }
    if constexpr (OWN_APART) {
        t.add(b.out[n], q);
    }
    if constexpr (LOOKS && !cfg::READS_BEFORE) {
        t.add(b.z[n], a);
    }
    decay_rows(t, b, n);
    if constexpr (LOOKS && cfg::READS_BEFORE) {
        t.add(b.z[n], a);
    }
}

// Four tokens, from the last on.
template <class B> DEV void four_rows_back_by_rule(row_tile &t, const B &b, int place, int first, key_gradients &out)
{
    float part[4][rows::N] = {};
    float part_b[4][rows::N] = {};
    float own_part[4][1] = {};
#pragma unroll
    for (int i = 3; i >= 0; i--) {
        step_rows_back_by_rule(t, b, first + i, part[i], part_b[i]);
        own_part[i][0] = OWN_APART ? own_pair(b, first + i) : 0.0f;
    }
    float dk[rows::N];
    float db[rows::N] = {};
    float own[1] = {};
    sum_rows_of_four(part, dk);
    if constexpr (ADDS_SEEN) {
        sum_rows_of_four(part_b, db);
    }
    if constexpr (OWN_APART) {
        sum_rows_of_four(own_part, own);
    }
    out.store_by_rule(b, place + first + lane_id() % 4, first + lane_id() % 4, dk, db, own[0]);
}

template <bool READS, bool WRITES>
DEV void walk_rows_back(row_batch (&shared)[2], row_loader &loader, row_tile &t, key_gradients &out)
{
    constexpr int TOKENS = row_batch::TOKENS;
    const work &w = loader.w;
    const int last = last_batch(w, TOKENS);
    __syncthreads();
    loader.get(last);
    loader.put(shared[0], last);
    __syncthreads();
#pragma unroll 1
    for (int place = last, now = 0; place >= 0; place -= TOKENS, now ^= 1) {
        if (place > 0) {
            loader.get(place - TOKENS);
        }
        const row_batch &b = shared[now];
        if constexpr (READS) {
            out.before(place + TOKENS, t);
        }
#pragma unroll 1
        for (int first = TOKENS - 4; first >= 0; first -= 4) {
            if constexpr (BY_RULE) {
                four_rows_back_by_rule(t, b, place, first, out);
            } else {
                float part[4][rows::N] = {};
                float own_part[4][1] = {};
#pragma unroll
                for (int i = 3; i >= 0; i--) {
                    step_rows_back<READS, WRITES>(t, b, first + i, part[i]);
                    own_part[i][0] = OWN_APART ? own_pair(b, first + i) : 0.0f;
                }
                if constexpr (READS) {
                    float dk[rows::N];
                    float own[1] = {};
                    sum_rows_of_four(part, dk);
                    if constexpr (OWN_APART) {
                        sum_rows_of_four(own_part, own);
                    }
                    out.store(b, place + first + lane_id() % 4, first + lane_id() % 4, dk, own[0]);
                }
            }
        }
        if (place > 0) {
            loader.put(shared[now ^ 1], place - TOKENS);
        }
        __syncthreads();
    }
}

DEV void back_keys(const linear_back_params &p)
{
    row_batch(&shared)[2] = *room_for<row_batch>();
    const work w = work::of_block<ROW_SLICES, rows::COLUMNS>(p, cfg::D);
    row_loader loader(p, w);
    row_tile t;
    load_rows(t, w, head_of(p.dstate_out, w.s.number * p.dstate_out_b + w.h * p.dstate_out_h), p.dstate_out_i,
              p.dstate_out_j, head_of(p.dnorm_out, w.s.number * p.dnorm_out_b + w.h * p.dnorm_out_h), p.dnorm_out_i);
    key_gradients out{p, w, {}};
    if constexpr (cfg::CAUSAL) {
        walk_rows_back<true, true>(shared, loader, t, out);
    } else {
        walk_rows_back<false, true>(shared, loader, t, out);
        walk_rows_back<true, false>(shared, loader, t, out);
    }
}

} // namespace linear

#if LATHE_COMPILED(bwd_queries)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_queries)(const __grid_constant__ linear_back_params p)
{
    linear::back_queries(p);
}
#endif

#if LATHE_COMPILED(bwd_keys)
extern "C" __global__ void __launch_bounds__(32 * cfg::WARPS)
    LATHE_ENTRY(bwd_keys)(const __grid_constant__ linear_back_params p)
{
    linear::back_keys(p);
}
#endif
