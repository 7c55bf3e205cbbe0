// variant.gen.cuh: written by lathe 0.1.0 from qk_norm.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const float *in_k_gain;
    int s0_k_gain;
    const float *in_q_gain;
    int s0_q_gain;
};

struct alignas(8) grads { // gradients of the spec's inputs
    float *d_k_gain;
    long long s0_k_gain;
    float *d_q_gain;
    long long s0_q_gain;
};

struct back_zero_params {
    float *dst;
    long long s0;
    long long s1;
    long long s2;
    long long s3;
    long long n0;
    long long n1;
    long long n2;
    long long n3;
};
static_assert(sizeof(back_zero_params) == 72, "host and device disagree about back_zero_params");

struct mod_params {
    const void *src;
    void *dst;
    long long src_b;
    long long src_h;
    long long src_t;
    long long dst_b;
    long long dst_h;
    long long dst_t;
    int n_h;
    int len;
    int pos0;
    sizes z;
    inputs x;
};
static_assert(sizeof(mod_params) == 136, "host and device disagree about mod_params");

struct attention_params {
    const void *q;
    const void *k;
    const void *v;
    void *o;
    long long q_b;
    long long q_h;
    long long q_t;
    long long k_b;
    long long k_h;
    long long k_t;
    long long v_b;
    long long v_h;
    long long v_t;
    long long o_b;
    long long o_h;
    long long o_t;
    sizes z;
    const unsigned char *map;
    float *final0;
    long long final0_b;
    long long final0_h;
    long long final0_t;
    inputs x;
};
static_assert(sizeof(attention_params) == 224, "host and device disagree about attention_params");

struct back_pre_params {
    const void *o;
    const void *dout;
    const void *q;
    long long q_b;
    long long q_h;
    long long q_t;
    const void *k;
    long long k_b;
    long long k_h;
    long long k_t;
    void *dout_copy;
    long long o_b;
    long long o_h;
    long long o_t;
    long long dout_b;
    long long dout_h;
    long long dout_t;
    float *rows;
    sizes z;
    unsigned *order;
    const float *final0;
    long long final0_b;
    long long final0_h;
    long long final0_t;
    inputs x;
    grads g;
};
static_assert(sizeof(back_pre_params) == 272, "host and device disagree about back_pre_params");

struct back_params {
    const void *q;
    const void *k;
    const void *v;
    const void *dout;
    const float *rows;
    float *dq;
    void *dk;
    void *dv;
    long long q_b;
    long long q_h;
    long long q_t;
    long long k_b;
    long long k_h;
    long long k_t;
    long long v_b;
    long long v_h;
    long long v_t;
    long long dout_b;
    long long dout_h;
    long long dout_t;
    long long dk_b;
    long long dk_h;
    long long dk_t;
    long long dv_b;
    long long dv_h;
    long long dv_t;
    sizes z;
    const unsigned char *map;
    unsigned *order;
    float *pieces;
    inputs x;
    grads g;
};
static_assert(sizeof(back_params) == 320, "host and device disagree about back_params");

struct back_mod_params {
    const void *src;
    const void *grad;
    void *dst;
    const unsigned *order;
    long long src_b;
    long long src_h;
    long long src_t;
    long long grad_b;
    long long grad_h;
    long long grad_t;
    long long dst_b;
    long long dst_h;
    long long dst_t;
    int n_h;
    int len;
    int pos0;
    sizes z;
    inputs x;
    grads g;
};
static_assert(sizeof(back_mod_params) == 208, "host and device disagree about back_mod_params");

struct back_sum_params {
    const exact_sum *src;
    float *dst;
    long long s0, s1, s2, s3, n0, n1, n2, n3;
};

struct variant {
    struct head {
        int b, h, h_kv;
    };
    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
    {
        head h;
        h.b = b;
        h.h = h_;
        h.h_kv = z.key_head(h_);
        return h;
    }

    struct row {
        int row, q;
    };
    DEV row make_row(const inputs &x, const sizes &z, const head &h, int row_)
    {
        row r;
        r.row = row_;
        r.q = row_ + z.q_start;
        return r;
    }

    struct col {
        int kv;
    };
    DEV col make_col(const inputs &x, const sizes &z, const head &h, int kv)
    {
        col c;
        c.kv = kv;
        return c;
    }

    static constexpr bool DIAG = false;
    DEV float make_diag(const inputs &x, const sizes &z, const head &h, int delta)
    {
        return 0.0f;
    }

    static constexpr bool MASKED = true;
    DEV bool live(const inputs &x, const sizes &z, const head &h, const row &r, const col &c)
    {
        bool t0 = (r.q >= c.kv);  // prelude.lua:3
        return t0;
    }
    DEV int first_key(const inputs &x, const sizes &z, const head &h, const row &r)
    {
        return 0;
    }
    DEV int last_key(const inputs &x, const sizes &z, const head &h, const row &r)
    {
        return r.q;
    }
    static constexpr bool SCATTERED = false;
    DEV bool among(const inputs &x, const sizes &z, const head &h, const row &r, const col &c)
    {
        return true;
    }
    static constexpr bool SHARED_COLS = false;
    static constexpr bool SHARED_ROWS = false;
    static constexpr bool MAP = false, MAP_PER_BATCH = false, MAP_PER_HEAD = false, MAP_BLOCKS = false;
    DEV int classify(const inputs &x, const sizes &z, const head &h, int row0, int row1, int kv0, int kv1)
    {
        [[maybe_unused]] const int q0 = row0 + z.q_start;
        [[maybe_unused]] const int q1 = row1 + z.q_start;
        bool t0 = (q0 >= kv1);
        bool t1 = (q1 >= kv0);
        return t0 ? TILE_ALL : t1 ? TILE_SOME : TILE_NONE;
    }

    static constexpr int READS = 0;
    static constexpr bool READ_RANGES = false;
    struct state {
        float s0; // l, a part per thread
        float s1; // m
    };
    DEV state init(bool leader)
    {
        state s;
        s.s0 = !leader ? 0.0f : 0.0f;
        s.s1 = -INF;
        return s;
    }
    struct tile {
        float f0;
        float f1;
        float f2;
        float f3;
        float f4;
        float f5;
    };
    static constexpr bool DEAD_ONCE = true;
    DEV float dead() { return -INF; }
    static constexpr bool ELEMENT_COLS = false;
    static constexpr bool LOGISTIC = false, RELU_WAITS = false, CAPPED = false;
    static constexpr int PASSES = 2, REDUCTIONS = 2;
    static constexpr int REDUCE_PASS[] = {0, 1};
    static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};
    static constexpr bool REDUCE_LAZY[] = {false, true};
    DEV void begin(tile &t, const state &s, const inputs &x, const sizes &z, const head &h, const row &r, int kv0)
    {
    }
    template <int P> DEV void update(tile &t, const state &s, const float *red, const inputs &x, const sizes &z, const head &h, const row &r, int kv0)
    {
        if constexpr (P == 0) {
        const float t0 = (0x1.000000p-3f /* 0.125 */ * red[0]);
        const float t1 = (t0 - s.s1);  // prelude.lua:15
        bool t2 = (t1 > 0x1.62e430p2f /* 5.545177 */);  // prelude.lua:15
        const float t3 = (t2 ? t0 : s.s1);  // prelude.lua:15
        bool t4 = (-INF == t3);  // prelude.lua:8
        const float t5 = (t4 ? 0.0f : t3);  // prelude.lua:8
        const float t6 = (-1.0f * t5);  // prelude.lua:8
        const float t7 = (0x1.715476p0f /* 1.442695 */ * t6);  // prelude.lua:8
        t.f0 = t7;
        const float t8 = (s.s1 - t5);  // prelude.lua:16
        const float t9 = (0x1.715476p0f /* 1.442695 */ * t8);  // prelude.lua:16
        const float t10 = m_exp2(t9);  // prelude.lua:16
        t.f1 = t10;
        t.f3 = t3;
        t.f4 = red[0];
        }
        if constexpr (P == 1) {
        const float t0 = (s.s0 * t.f1);  // prelude.lua:16
        const float t1 = (t0 + red[1]);  // prelude.lua:18
        t.f2 = t1;
        t.f5 = red[1];
        }
    }
    template <int P> DEV float element(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const tile &t)
    {
        if constexpr (P == 1) {
        const float t0 = (e * 0x1.715476p-3f /* 0.1803369 */);
        const float t1 = (t0 + t.f0);  // prelude.lua:8
        const float t2 = m_exp2(t1);  // prelude.lua:8
        return t2;
        }
        return e;
    }
    template <int R> DEV float operand(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const tile &t)
    {
        if constexpr (R == 0) {
        return e;
        }
        if constexpr (R == 1) {
        return e;
        }
        return e;
    }
    static constexpr bool RESCALE = true;
    DEV float o_scale(const tile &t) { return t.f1; }
    DEV void next(state &s, const tile &t)
    {
        s.s0 = t.f2;
        s.s1 = t.f3;
    }
    static constexpr bool KEEPS = false;
    template <class SUM4> DEV void join(state &s, const SUM4 &sum4)
    {
        s.s0 = sum4(s.s0);
    }
    static constexpr int FINALS = 1;
    DEV float finish(const state &s, float *finals, const inputs &x, const sizes &z, const head &h, const row &r)
    {
        bool t0 = (s.s0 == 0.0f);  // prelude.lua:10
        const float t1 = (t0 ? 1.0f : s.s0);  // prelude.lua:10
        const float t2 = m_div(1.0f, t1);  // prelude.lua:10
        bool t3 = (s.s1 == -INF);  // prelude.lua:8
        const float t4 = (t3 ? 0.0f : s.s1);  // prelude.lua:8
        const float t5 = m_log(t1);  // prelude.lua:12
        const float t6 = (t0 ? -INF : t5);  // prelude.lua:12
        const float t7 = (t4 + t6);  // prelude.lua:26
        finals[0] = t7; // lse
        return t2;
    }
    DEV void empty_finals(float *finals, const inputs &x, const sizes &z, const head &h, const row &r)
    {
        finals[0] = -INF;
    }
    DEV void store_finals(const attention_params &p, int b, int h, int row, const float *finals)
    {
        if (p.final0) {
            p.final0[b * p.final0_b + h * p.final0_h + row * p.final0_t] = finals[0];
        }
    }
    struct query_mod {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {1};
        static constexpr int REDUCTIONS[] = {1};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {0};
                return table[r];
            }
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {RED_SUM};
                return table[r];
            }
            return 0;
        }
    struct head {
        int b, h, h_kv;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
            return h;
        }
    struct vals {
        int pos;
        float f0;
        float f1;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = pos;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * a);  // qk_norm.lua:2
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] * 0x1.000000p-6f /* 0.015625 */);  // qk_norm.lua:2
        const float t1 = (0x1.0c6f7ap-20f /* 1e-06 */ + t0);  // qk_norm.lua:2
        const float t2 = m_rsqrt(t1);  // qk_norm.lua:2
        v.f0 = t2;
        v.f1 = red[0];
        }
        }
        template <int S> DEV void output(float &a, float &b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_q_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_q_gain);  // qk_norm.lua:5
        const float t1 = (a * v.f0);  // qk_norm.lua:2
        const float t2 = (t0 * t1);  // qk_norm.lua:2
        const float first = t2;
        a = first;
        }
        }
    };
    struct key_mod {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {1};
        static constexpr int REDUCTIONS[] = {1};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {0};
                return table[r];
            }
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {RED_SUM};
                return table[r];
            }
            return 0;
        }
    struct head {
        int b, h, h_kv;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = h_;
            return h;
        }
    struct vals {
        int pos;
        float f0;
        float f1;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = pos;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * a);  // qk_norm.lua:2
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] * 0x1.000000p-6f /* 0.015625 */);  // qk_norm.lua:2
        const float t1 = (0x1.0c6f7ap-20f /* 1e-06 */ + t0);  // qk_norm.lua:2
        const float t2 = m_rsqrt(t1);  // qk_norm.lua:2
        v.f0 = t2;
        v.f1 = red[0];
        }
        }
        template <int S> DEV void output(float &a, float &b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_k_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_k_gain);  // qk_norm.lua:6
        const float t1 = (a * v.f0);  // qk_norm.lua:2
        const float t2 = (t0 * t1);  // qk_norm.lua:2
        const float first = t2;
        a = first;
        }
        }
    };
    using value_mod = no_mod;
    using output_mod = no_mod;

    // the backward pass
    static constexpr bool NORM = true;
    static constexpr float SPLIT_POWER[] = {-1.0f};
    template <class PARAMS> DEV void given_finals(const PARAMS &p, const head &h, const row &r, float *final)
    {
        final[0] = p.final0[h.b * p.final0_b + h.h * p.final0_h + r.row * p.final0_t];
    }
    DEV void split_finals(const state &s, const inputs &x, const sizes &z, const head &h, const row &r, float *high, float *norm)
    {
        bool t0 = (s.s0 == 0.0f);  // prelude.lua:10
        const float t1 = (t0 ? 1.0f : s.s0);  // prelude.lua:10
        const float t2 = m_div(1.0f, t1);  // prelude.lua:10
        bool t3 = (s.s1 == -INF);  // prelude.lua:8
        const float t4 = (t3 ? 0.0f : s.s1);  // prelude.lua:8
        high[0] = t4;
        norm[0] = t2;
    }
    static constexpr bool DELTA = true, EMPTY_BY_O = false;
    static constexpr int BACK_ROWS = 2;
    DEV void back_row(const back_pre_params &p, const head &h, const row &r, float delta, bool zero, const float *high, const float *norm, float *out, float *site)
    {
        [[maybe_unused]] const inputs &x = p.x;
        [[maybe_unused]] const sizes &z = p.z;
        [[maybe_unused]] const float final0 = p.final0[h.b * p.final0_b + h.h * p.final0_h + r.row * p.final0_t];
        const float t0 = (-delta);
        out[0] = t0;
        bool t1 = (-INF == high[0]);  // prelude.lua:8
        const float t2 = (t1 ? 0.0f : high[0]);  // prelude.lua:8
        const float t3 = (-1.0f * t2);  // prelude.lua:8
        const float t4 = (0x1.715476p0f /* 1.442695 */ * t3);  // prelude.lua:8
        out[1] = t4;
        out[2] = norm[0];
    }
    static constexpr int ROW_SITES = 0;
    static constexpr int ROW_SITE_FORM[] = {-1};
    template <int G> DEV auto row_site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const row &r)
    {
    }
    static constexpr bool BACK_DIAG = false;
    DEV float make_back_diag(const inputs &x, const sizes &z, const head &h, int delta)
    {
        return 0.0f;
    }
    DEV void pair(float e, float dw, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const float *b, float &w, float &ds, float *site)
    {
        const float t0 = (dw + b[0]);
        const float t1 = (e * 0x1.715476p-3f /* 0.1803369 */);
        const float t2 = (t1 + b[1]);  // prelude.lua:8
        const float t3 = m_exp2(t2);  // prelude.lua:8
        const float t4 = (b[2] * t3);  // prelude.lua:8
        const float t5 = (t0 * t4);  // prelude.lua:8
        w = t4;
        ds = t5;
    }
    DEV float ds_factor(const inputs &x, const sizes &z, const head &h)
    {
        return 0x1.000000p-3f /* 0.125 */;
    }
    static constexpr unsigned long long WEIGHT_READS = 0x2ull;
    static constexpr bool WEIGHT_DIAG = false;
    static constexpr unsigned long long SLOPE_READS = 0x1ull;
    static constexpr bool SLOPE_DIAG = false;
    DEV float weight(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const float *b)
    {
        const float t0 = (e * 0x1.715476p-3f /* 0.1803369 */);
        const float t1 = (t0 + b[1]);  // prelude.lua:8
        const float t2 = m_exp2(t1);  // prelude.lua:8
        return t2;
    }
    DEV void slope(float e, float w, float dw, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const float *b, float &ds, float *site)
    {
        const float t0 = (dw + b[0]);
        const float t1 = (t0 * w);  // prelude.lua:8
        ds = t1;
    }
    static constexpr int SITES = 0;
    static constexpr int SITE_FORM[] = {-1};
    template <int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, int delta)
    {
    }
    struct query_back {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {1};
        static constexpr int REDUCTIONS[] = {2};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {0, 0};
                return table[r];
            }
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {RED_SUM, RED_SUM};
                return table[r];
            }
            return 0;
        }
    struct head {
        int b, h, h_kv;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
            return h;
        }
    struct vals {
        int pos;
        float f0;
        float f1;
        float f2;
        float f3;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = pos;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * a);  // qk_norm.lua:2
        return t0;
        }
        if constexpr (S == 0 && R == 1) {
        const float t0 = m_load(x.in_q_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_q_gain);  // qk_norm.lua:5
        const float t1 = (t0 * da);  // qk_norm.lua:5
        const float t2 = (a * t1);  // qk_norm.lua:5
        return t2;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] * 0x1.000000p-6f /* 0.015625 */);  // qk_norm.lua:2
        const float t1 = (0x1.0c6f7ap-20f /* 1e-06 */ + t0);  // qk_norm.lua:2
        const float t2 = m_rsqrt(t1);  // qk_norm.lua:2
        v.f0 = t2;
        const float t3 = (t2 * t2);  // qk_norm.lua:2
        const float t4 = (t2 * t3);  // qk_norm.lua:2
        const float t5 = (-0x1.000000p-1f /* -0.5 */ * t4);  // qk_norm.lua:2
        const float t6 = (red[1] * t5);  // qk_norm.lua:5
        const float t7 = (0x1.000000p-6f /* 0.015625 */ * t6);  // qk_norm.lua:5
        const float t8 = (2.0f * t7);  // qk_norm.lua:5
        v.f1 = t8;
        v.f2 = red[0];
        v.f3 = red[1];
        }
        }
        template <int S> DEV void output(float a, float b, float &da, float &db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_q_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_q_gain);  // qk_norm.lua:5
        const float t1 = (t0 * da);  // qk_norm.lua:5
        const float t2 = (t1 * v.f0);  // qk_norm.lua:2
        const float t3 = (a * v.f1);  // qk_norm.lua:5
        const float t4 = (t2 + t3);  // qk_norm.lua:5
        const float first = t4;
        da = first;
        }
        }
        template <int S> DEV constexpr int sites()
        {
            if constexpr (S == 0) {
                return 1;
            }
            return 0;
        }
        template <int S> DEV constexpr int site_form(int site)
        {
            if (S == 0 && site == 0) {
                return SITE_DIM;
            }
            return SITE_HEAD;
        }
        template <int S, int G> DEV float site(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && G == 0) {
        const float t0 = (a * v.f0);  // qk_norm.lua:2
        const float t1 = (da * t0);  // qk_norm.lua:2
        return t1;
        }
            return 0.0f;
        }
        template <int S, int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const vals &v, int i)
        {
        if constexpr (S == 0 && G == 0) {
        return g.d_q_gain + ((long long)m_clamp_index(i, cfg::D) * g.s0_q_gain);
        }
        }
    };
    struct key_back {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {1};
        static constexpr int REDUCTIONS[] = {2};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {0, 0};
                return table[r];
            }
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            if constexpr (S == 0) {
                constexpr int table[] = {RED_SUM, RED_SUM};
                return table[r];
            }
            return 0;
        }
    struct head {
        int b, h, h_kv;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = h_;
            return h;
        }
    struct vals {
        int pos;
        float f0;
        float f1;
        float f2;
        float f3;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = pos;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * a);  // qk_norm.lua:2
        return t0;
        }
        if constexpr (S == 0 && R == 1) {
        const float t0 = m_load(x.in_k_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_k_gain);  // qk_norm.lua:6
        const float t1 = (t0 * da);  // qk_norm.lua:6
        const float t2 = (a * t1);  // qk_norm.lua:6
        return t2;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] * 0x1.000000p-6f /* 0.015625 */);  // qk_norm.lua:2
        const float t1 = (0x1.0c6f7ap-20f /* 1e-06 */ + t0);  // qk_norm.lua:2
        const float t2 = m_rsqrt(t1);  // qk_norm.lua:2
        v.f0 = t2;
        const float t3 = (t2 * t2);  // qk_norm.lua:2
        const float t4 = (t2 * t3);  // qk_norm.lua:2
        const float t5 = (-0x1.000000p-1f /* -0.5 */ * t4);  // qk_norm.lua:2
        const float t6 = (red[1] * t5);  // qk_norm.lua:2
        const float t7 = (0x1.000000p-6f /* 0.015625 */ * t6);  // qk_norm.lua:2
        const float t8 = (2.0f * t7);  // qk_norm.lua:2
        v.f1 = t8;
        v.f2 = red[0];
        v.f3 = red[1];
        }
        }
        template <int S> DEV void output(float a, float b, float &da, float &db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_k_gain, (long long)m_clamp_index(i, cfg::D) * x.s0_k_gain);  // qk_norm.lua:6
        const float t1 = (t0 * da);  // qk_norm.lua:6
        const float t2 = (t1 * v.f0);  // qk_norm.lua:2
        const float t3 = (a * v.f1);  // qk_norm.lua:2
        const float t4 = (t2 + t3);  // qk_norm.lua:6
        const float first = t4;
        da = first;
        }
        }
        template <int S> DEV constexpr int sites()
        {
            if constexpr (S == 0) {
                return 1;
            }
            return 0;
        }
        template <int S> DEV constexpr int site_form(int site)
        {
            if (S == 0 && site == 0) {
                return SITE_DIM;
            }
            return SITE_HEAD;
        }
        template <int S, int G> DEV float site(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && G == 0) {
        const float t0 = (a * v.f0);  // qk_norm.lua:2
        const float t1 = (da * t0);  // qk_norm.lua:2
        return t1;
        }
            return 0.0f;
        }
        template <int S, int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const vals &v, int i)
        {
        if constexpr (S == 0 && G == 0) {
        return g.d_k_gain + ((long long)m_clamp_index(i, cfg::D) * g.s0_k_gain);
        }
        }
    };
    using value_back = no_back;
    using output_back = no_back;
};
