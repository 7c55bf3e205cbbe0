// variant.gen.cuh: written by lathe 0.1.0 from mamba2.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const float *in_a_log;
    long long s0_a_log;
    const float *in_d_skip;
    long long s0_d_skip;
    const bf16 *in_dt;
    long long s0_dt;
    long long s1_dt;
    int s2_dt;
    const float *in_dt_bias;
    long long s0_dt_bias;
    const bf16 *value;
    long long value_b, value_h, value_t, value_d;
    const int *cu;
    long long cu_step;
    int seqs;
};

struct alignas(8) grads { // gradients of the spec's inputs
    exact_sum *d_a_log;
    long long s0_a_log;
    exact_sum *d_d_skip;
    long long s0_d_skip;
    exact_sum *d_dt;
    long long s0_dt;
    long long s1_dt;
    long long s2_dt;
    exact_sum *d_dt_bias;
    long long s0_dt_bias;
};

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
static_assert(sizeof(mod_params) == 248, "host and device disagree about mod_params");

struct back_mod_params {
    const void *src;
    const void *grad;
    long long src_b;
    long long src_h;
    long long src_t;
    long long grad_b;
    long long grad_h;
    long long grad_t;
    void *dst;
    long long dst_b;
    long long dst_h;
    long long dst_t;
    float *skip;
    int n_h;
    int len;
    int pos0;
    sizes z;
    inputs x;
    grads g;
    long long src_d;
    long long grad_d;
};
static_assert(sizeof(back_mod_params) == 384, "host and device disagree about back_mod_params");

struct linear_back_params {
    const void *q;
    long long q_b;
    long long q_h;
    long long q_t;
    const void *k;
    long long k_b;
    long long k_h;
    long long k_t;
    const void *v;
    long long v_b;
    long long v_h;
    long long v_t;
    const void *dout;
    long long dout_b;
    long long dout_h;
    long long dout_t;
    void *dq;
    long long dq_b;
    long long dq_h;
    long long dq_t;
    void *dk;
    long long dk_b;
    long long dk_h;
    long long dk_t;
    void *dv;
    long long dv_b;
    long long dv_h;
    long long dv_t;
    const float *state;
    long long state_b;
    long long state_h;
    long long state_i;
    long long state_j;
    const float *norm;
    long long norm_b;
    long long norm_h;
    long long norm_i;
    const float *dstate_out;
    long long dstate_out_b;
    long long dstate_out_h;
    long long dstate_out_i;
    long long dstate_out_j;
    const float *dnorm_out;
    long long dnorm_out_b;
    long long dnorm_out_h;
    long long dnorm_out_i;
    float *dstate;
    long long dstate_b;
    long long dstate_h;
    long long dstate_i;
    long long dstate_j;
    float *dnorm;
    long long dnorm_b;
    long long dnorm_h;
    long long dnorm_i;
    float *again_o;
    float *divided;
    float *errors;
    float *dx;
    float *dq_head;
    float *dk_head;
    float *dk_read;
    float *dlog;
    float *chunks;
    float *ends;
    float *own;
    float *skip;
    float *reads;
    float *writes;
    const int *cu;
    long long cu_step;
    sizes z;
    inputs x;
    grads g;
};
static_assert(sizeof(linear_back_params) == 816, "host and device disagree about linear_back_params");

struct back_sum_params {
    const exact_sum *src;
    float *dst;
    long long s0, s1, s2, s3, n0, n1, n2, n3;
};
static_assert(sizeof(back_sum_params) == 80, "host and device disagree about back_sum_params");

struct back_zero_params {
    float *dst;
    long long s0, s1, s2, s3, n0, n1, n2, n3;
};

struct variant {
    using query_mod = no_mod;
    using query_back = no_back;
    using key_mod = no_mod;
    using key_back = no_back;
    struct value_mod {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {0};
        static constexpr int REDUCTIONS[] = {0};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            return 0;
        }
    struct head {
        int b, h, h_kv;
        float f0;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
        const float t0 = m_load(x.in_dt_bias, (long long)h.h * x.s0_dt_bias);  // mamba2.lua:2
        h.f0 = t0;
            return h;
        }
    struct vals {
        int pos, t;
        float f0;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = packed_position(x.cu, x.cu_step, x.seqs, token);
            v.t = token;
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_dt, (long long)h.b * x.s0_dt + (long long)h.h * x.s1_dt + (long long)v.t * x.s2_dt);  // mamba2.lua:2
        const float t1 = (t0 + h.f0);  // mamba2.lua:2
        const float t2 = m_max(t1, 0.0f);  // mamba2.lua:7
        const float t3 = m_abs(t1);  // mamba2.lua:7
        const float t4 = (-t3);  // mamba2.lua:7
        const float t5 = (t4 * 0x1.715476p0f /* 1.442695 */);  // mamba2.lua:7
        const float t6 = m_exp2(t5);  // mamba2.lua:7
        const float t7 = (1.0f + t6);  // mamba2.lua:7
        const float t8 = m_log(t7);  // mamba2.lua:7
        const float t9 = (t2 + t8);  // mamba2.lua:7
        v.f0 = t9;
        }
        }
        template <int S, int R> DEV float operand(float a, float b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        }
        template <int S> DEV void output(float &a, float &b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (a * v.f0);  // mamba2.lua:7
        const float first = t0;
        a = first;
        }
        }
    };
    struct value_back {
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
        float f0;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
        const float t0 = m_load(x.in_dt_bias, (long long)h.h * x.s0_dt_bias);  // mamba2.lua:2
        h.f0 = t0;
            return h;
        }
    struct vals {
        int pos, t;
        bool f0;
        bool f1;
        float f2;
        float f3;
        float f4;
        bool f5;
        float f6;
        float f7;
        float f8;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = packed_position(x.cu, x.cu_step, x.seqs, token);
            v.t = token;
        if constexpr (S == 0) {
        const float t0 = m_load(x.in_dt, (long long)h.b * x.s0_dt + (long long)h.h * x.s1_dt + (long long)v.t * x.s2_dt);  // mamba2.lua:2
        const float t1 = (t0 + h.f0);  // mamba2.lua:2
        bool t2 = (t1 == 0.0f);  // mamba2.lua:2
        v.f0 = t2;
        bool t3 = (t1 > 0.0f);  // mamba2.lua:2
        v.f1 = t3;
        const float t4 = m_max(t1, 0.0f);  // mamba2.lua:7
        const float t5 = m_abs(t1);  // mamba2.lua:7
        const float t6 = (-t5);  // mamba2.lua:7
        const float t7 = (t6 * 0x1.715476p0f /* 1.442695 */);  // mamba2.lua:7
        const float t8 = m_exp2(t7);  // mamba2.lua:7
        const float t9 = (1.0f + t8);  // mamba2.lua:7
        const float t10 = m_log(t9);  // mamba2.lua:7
        const float t11 = (t4 + t10);  // mamba2.lua:7
        v.f2 = t11;
        v.f3 = t9;
        v.f4 = t8;
        bool t12 = (t1 < 0.0f);  // mamba2.lua:2
        v.f5 = t12;
        v.f6 = t0;
        }
        }
        template <int S, int R> DEV float operand(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * da);  // mamba2.lua:7
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (0x1.000000p-1f /* 0.5 */ * red[0]);  // mamba2.lua:7
        const float t1 = (v.f0 ? t0 : 0.0f);  // mamba2.lua:2
        const float t2 = (v.f1 ? red[0] : t1);  // mamba2.lua:2
        const float t3 = m_div(red[0], v.f3);  // mamba2.lua:7
        const float t4 = (v.f4 * t3);  // mamba2.lua:7
        const float t5 = (-t4);  // mamba2.lua:7
        const float t6 = (-t5);  // mamba2.lua:7
        const float t7 = (v.f5 ? t6 : 0.0f);  // mamba2.lua:2
        const float t8 = (v.f1 ? t5 : t7);  // mamba2.lua:2
        const float t9 = (t2 + t8);  // mamba2.lua:2
        v.f7 = t9;
        v.f8 = red[0];
        }
        }
        template <int S> DEV void output(float a, float b, float &da, float &db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (da * v.f2);  // mamba2.lua:7
        const float first = t0;
        da = first;
        }
        }
        template <int S> DEV float value(float a, float da, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
            return 0.0f;
        }
        template <int S> DEV constexpr int sites()
        {
            if constexpr (S == 0) {
                return 2;
            }
            return 0;
        }
        template <int S> DEV constexpr int site_form(int site)
        {
            if (S == 0 && site == 0) {
                return SITE_ROW;
            }
            if (S == 0 && site == 1) {
                return SITE_HEAD;
            }
            return SITE_HEAD;
        }
        template <int S, int G> DEV float site(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && G == 0) {
        return v.f7;
        }
        if constexpr (S == 0 && G == 1) {
        return v.f7;
        }
            return 0.0f;
        }
        template <int S, int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const vals &v, int i)
        {
        if constexpr (S == 0 && G == 0) {
        return g.d_dt + ((long long)h.b * g.s0_dt + (long long)h.h * g.s1_dt + (long long)v.t * g.s2_dt);
        } else if constexpr (S == 0 && G == 1) {
        return g.d_dt_bias + ((long long)h.h * g.s0_dt_bias);
        }
        }
    };
    struct output_mod {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT};
        static constexpr int PASSES[] = {0};
        static constexpr int REDUCTIONS[] = {0};
        template <int S> DEV constexpr int reduce_pass(int r)
        {
            return 0;
        }
        template <int S> DEV constexpr int reduce_op(int r)
        {
            return 0;
        }
    struct head {
        int b, h, h_kv;
        float f0;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
        const float t0 = m_load(x.in_d_skip, (long long)h.h * x.s0_d_skip);  // mamba2.lua:9
        h.f0 = t0;
            return h;
        }
    struct vals {
        int pos, t;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = packed_position(x.cu, x.cu_step, x.seqs, token);
            v.t = token;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        }
        template <int S> DEV void output(float &a, float &b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (m_load(x.value, h.b * x.value_b + h.h * x.value_h + v.t * x.value_t + i * x.value_d) * h.f0);  // mamba2.lua:9
        const float t1 = (a + t0);  // mamba2.lua:9
        const float first = t1;
        a = first;
        }
        }
    };
    struct output_back {
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
        float f0;
    };
        DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
        {
            head h;
            h.b = b;
            h.h = h_;
            h.h_kv = z.key_head(h_);
        const float t0 = m_load(x.in_d_skip, (long long)h.h * x.s0_d_skip);  // mamba2.lua:9
        h.f0 = t0;
            return h;
        }
    struct vals {
        int pos, t;
        float f0;
    };
        template <int S> DEV void begin(vals &v, const inputs &x, const sizes &z, const head &h, int token, int pos)
        {
            v.pos = packed_position(x.cu, x.cu_step, x.seqs, token);
            v.t = token;
        if constexpr (S == 0) {
        }
        }
        template <int S, int R> DEV float operand(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && R == 0) {
        const float t0 = (m_load(x.value, h.b * x.value_b + h.h * x.value_h + v.t * x.value_t + i * x.value_d) * da);  // mamba2.lua:9
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        v.f0 = red[0];
        }
        }
        template <int S> DEV void output(float a, float b, float &da, float &db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float first = da;
        da = first;
        }
        }
        template <int S> DEV float value(float a, float da, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (h.f0 * da);  // mamba2.lua:9
        return t0;
        }
            return 0.0f;
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
                return SITE_HEAD;
            }
            return SITE_HEAD;
        }
        template <int S, int G> DEV float site(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0 && G == 0) {
        return v.f0;
        }
            return 0.0f;
        }
        template <int S, int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const vals &v, int i)
        {
        if constexpr (S == 0 && G == 0) {
        return g.d_d_skip + ((long long)h.h * g.s0_d_skip);
        }
        }
    };
    struct head {
        int b, h, h_kv;
        float f0;
        float f1;
        float f2;
        float f3;
    };
    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
    {
        head h;
        h.b = b;
        h.h = h_;
        h.h_kv = z.key_head(h_);
        const float t0 = m_load(x.in_dt_bias, (long long)h.h * x.s0_dt_bias);  // mamba2.lua:2
        h.f0 = t0;
        const float t1 = m_load(x.in_a_log, (long long)h.h * x.s0_a_log);  // mamba2.lua:8
        const float t2 = (t1 * 0x1.715476p0f /* 1.442695 */);  // mamba2.lua:8
        const float t3 = m_exp2(t2);  // mamba2.lua:8
        const float t4 = (-t3);  // mamba2.lua:8
        h.f1 = t4;
        h.f2 = t3;
        h.f3 = t1;
        return h;
    }
    struct row {
        int t, pos;
        float f0;
        float f1;
        bool f2;
        bool f3;
        bool f4;
        float f5;
        float f6;
        float f7;
    };
    DEV row make_row(const inputs &x, const sizes &z, const head &h, int t, int pos)
    {
        row v;
        v.t = t;
        v.pos = pos;
        const float t0 = m_load(x.in_dt, (long long)h.b * x.s0_dt + (long long)h.h * x.s1_dt + (long long)v.t * x.s2_dt);  // mamba2.lua:2
        const float t1 = (t0 + h.f0);  // mamba2.lua:2
        const float t2 = m_abs(t1);  // mamba2.lua:7
        const float t3 = (-t2);  // mamba2.lua:7
        const float t4 = (t3 * 0x1.715476p0f /* 1.442695 */);  // mamba2.lua:7
        const float t5 = m_exp2(t4);  // mamba2.lua:7
        const float t6 = (1.0f + t5);  // mamba2.lua:7
        v.f0 = t6;
        v.f1 = t5;
        bool t7 = (t1 < 0.0f);  // mamba2.lua:2
        v.f2 = t7;
        bool t8 = (t1 > 0.0f);  // mamba2.lua:2
        v.f3 = t8;
        bool t9 = (t1 == 0.0f);  // mamba2.lua:2
        v.f4 = t9;
        const float t10 = m_max(t1, 0.0f);  // mamba2.lua:7
        const float t11 = m_log(t6);  // mamba2.lua:7
        const float t12 = (t10 + t11);  // mamba2.lua:7
        v.f5 = t12;
        const float t13 = (t12 * h.f1);  // mamba2.lua:7
        v.f6 = t13;
        v.f7 = t0;
        return v;
    }
    DEV float scale(const inputs &x, const sizes &z, const head &h)
    {
        return 1.0f;
    }
    DEV float decay(const inputs &x, const sizes &z, const head &h, const row &v, int i)
    {
        return v.f6;
    }
    DEV float delta(const inputs &x, const sizes &z, const head &h, const row &v)
    {
        return 1.0f;
    }
    DEV float bonus(const inputs &x, const sizes &z, const head &h, int i)
    {
        return 0.0f;
    }
    static constexpr int SITES = 3;
    static constexpr bool WANTS[] = {false, true, false, false};
    static constexpr int SITE_OF[] = {OF_DECAY, OF_DECAY, OF_DECAY, FUNCTIONS};
    static constexpr int SITE_FORM[] = {SITE_ROW, SITE_HEAD, SITE_HEAD, SITE_HEAD};
    template <int G> DEV float site(const inputs &x, const sizes &z, const head &h, const row &v, int i, float seed)
    {
        if constexpr (G == 0) {
        const float t0 = (seed * h.f1);  // mamba2.lua:8
        const float t1 = m_div(t0, v.f0);  // mamba2.lua:8
        const float t2 = (v.f1 * t1);  // mamba2.lua:7
        const float t3 = (-t2);  // mamba2.lua:8
        const float t4 = (-t3);  // mamba2.lua:8
        const float t5 = (v.f2 ? t4 : 0.0f);  // mamba2.lua:2
        const float t6 = (v.f3 ? t3 : t5);  // mamba2.lua:2
        const float t7 = (0x1.000000p-1f /* 0.5 */ * t0);  // mamba2.lua:8
        const float t8 = (v.f4 ? t7 : 0.0f);  // mamba2.lua:2
        const float t9 = (v.f3 ? t0 : t8);  // mamba2.lua:2
        const float t10 = (t6 + t9);  // mamba2.lua:2
        return t10;
        } else if constexpr (G == 1) {
        const float t0 = (seed * h.f1);  // mamba2.lua:8
        const float t1 = m_div(t0, v.f0);  // mamba2.lua:8
        const float t2 = (v.f1 * t1);  // mamba2.lua:7
        const float t3 = (-t2);  // mamba2.lua:8
        const float t4 = (-t3);  // mamba2.lua:8
        const float t5 = (v.f2 ? t4 : 0.0f);  // mamba2.lua:2
        const float t6 = (v.f3 ? t3 : t5);  // mamba2.lua:2
        const float t7 = (0x1.000000p-1f /* 0.5 */ * t0);  // mamba2.lua:8
        const float t8 = (v.f4 ? t7 : 0.0f);  // mamba2.lua:2
        const float t9 = (v.f3 ? t0 : t8);  // mamba2.lua:2
        const float t10 = (t6 + t9);  // mamba2.lua:2
        return t10;
        } else if constexpr (G == 2) {
        const float t0 = (seed * v.f5);  // mamba2.lua:7
        const float t1 = (-t0);  // mamba2.lua:7
        const float t2 = (h.f2 * t1);  // mamba2.lua:8
        return t2;
        }
    }
    template <int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const row &v, int i)
    {
        if constexpr (G == 0) {
        return g.d_dt + ((long long)h.b * g.s0_dt + (long long)h.h * g.s1_dt + (long long)v.t * g.s2_dt);
        } else if constexpr (G == 1) {
        return g.d_dt_bias + ((long long)h.h * g.s0_dt_bias);
        } else if constexpr (G == 2) {
        return g.d_a_log + ((long long)h.h * g.s0_a_log);
        }
    }
};
