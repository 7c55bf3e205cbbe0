// Stub: a decay per key channel with the delta rule, keys of length 1, and a skip from v to o.
#pragma once
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const float *in_beta;
    long long s0_beta;
    long long s1_beta;
    int s2_beta;
    const float *in_g;
    long long s0_g;
    long long s1_g;
    int s2_g;
    int s3_g;
    const float *in_low;
    long long s0_low;
    int s1_low;
    const float *in_skip;
    long long s0_skip;
    const bf16 *value;
    long long value_b, value_h, value_t, value_d;
    const int *cu;
    long long cu_step;
    int seqs;
};

struct alignas(8) grads { // gradients of the spec's inputs
    float *d_beta;
    long long s0_beta;
    long long s1_beta;
    long long s2_beta;
    float *d_g;
    long long s0_g;
    long long s1_g;
    long long s2_g;
    long long s3_g;
    exact_sum *d_low;
    long long s0_low;
    long long s1_low;
    exact_sum *d_skip;
    long long s0_skip;
};

struct back_zero_params {
    float *dst;
    long long s0, s1, s2, s3, n0, n1, n2, n3;
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
static_assert(sizeof(mod_params) == 272, "host and device disagree about mod_params");

struct linear_params {
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
    const float *state;
    long long state_b;
    long long state_h;
    long long state_i;
    long long state_j;
    float *state_out;
    long long state_out_b;
    long long state_out_h;
    long long state_out_i;
    long long state_out_j;
    const float *norm;
    long long norm_b;
    long long norm_h;
    long long norm_i;
    float *norm_out;
    long long norm_out_b;
    long long norm_out_h;
    long long norm_out_i;
    const int *cu;
    long long cu_step;
    const int *state_index;
    long long state_index_step;
    int slots;
    void *inverse;
    const void *given_q;
    long long given_q_b;
    long long given_q_h;
    long long given_q_t;
    const void *given_k;
    long long given_k_b;
    long long given_k_h;
    long long given_k_t;
    float *parts;
    long long pieces;
    sizes z;
    inputs x;
};
static_assert(sizeof(linear_params) == 592, "host and device disagree about linear_params");

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
    void *inverse;
    void *states;
    void *dstates;
    void *written;
    void *dwritten;
    void *divided_out;
    float *sums;
    float *dbeta;
    float *dv_parts;
    float *norms;
    float *dnorms;
    const void *given_q;
    long long given_q_b;
    long long given_q_h;
    long long given_q_t;
    const void *given_k;
    long long given_k_b;
    long long given_k_h;
    long long given_k_t;
    const int *cu;
    long long cu_step;
    sizes z;
    inputs x;
    grads g;
};
static_assert(sizeof(linear_back_params) == 1024, "host and device disagree about linear_back_params");

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
static_assert(sizeof(back_mod_params) == 440, "host and device disagree about back_mod_params");

struct back_sum_params {
    const exact_sum *src;
    float *dst;
    long long s0, s1, s2, s3, n0, n1, n2, n3;
};
static_assert(sizeof(back_sum_params) == 80, "host and device disagree about back_sum_params");

struct variant {
    using query_mod = no_mod;
    using query_back = no_back;
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
        int pos, t;
        float f0;
        float f1;
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
        if constexpr (S == 0 && R == 0) {
        const float t0 = (a * a);
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] + 0x1.0c6f7ap-20f /* 1e-06 */);
        const float t1 = m_rsqrt(t0);
        v.f0 = t1;
        v.f1 = red[0];
        }
        }
        template <int S> DEV void output(float &a, float &b, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (a * v.f0);
        const float first = t0;
        a = first;
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
        int pos, t;
        float f0;
        float f1;
        float f2;
        float f3;
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
        const float t0 = (a * a);
        return t0;
        }
        if constexpr (S == 0 && R == 1) {
        const float t0 = (a * da);
        return t0;
        }
            return a;
        }
        template <int S, int P> DEV void update(vals &v, const float *red, const inputs &x, const sizes &z, const head &h)
        {
        if constexpr (S == 0 && P == 0) {
        const float t0 = (red[0] + 0x1.0c6f7ap-20f /* 1e-06 */);
        const float t1 = m_rsqrt(t0);
        v.f0 = t1;
        const float t2 = (t1 * t1);
        const float t3 = (t1 * t2);
        const float t4 = (t3 * -0x1.000000p-1f /* -0.5 */);
        const float t5 = (red[1] * t4);
        const float t6 = (t5 * 2.0f);
        v.f1 = t6;
        v.f2 = red[0];
        v.f3 = red[1];
        }
        }
        template <int S> DEV void output(float a, float b, float &da, float &db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
        if constexpr (S == 0) {
        const float t0 = (v.f0 * da);
        const float t1 = (a * v.f1);
        const float t2 = (t0 + t1);
        const float first = t2;
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
                return 0;
            }
            return 0;
        }
        template <int S> DEV constexpr int site_form(int site)
        {
            return SITE_HEAD;
        }
        template <int S, int G> DEV float site(float a, float b, float da, float db, int i, const inputs &x, const sizes &z, const head &h, const vals &v)
        {
            return 0.0f;
        }
        template <int S, int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const vals &v, int i)
        {
        }
    };
    using value_mod = no_mod;
    using value_back = no_back;
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
        const float t0 = m_load(x.in_skip, (long long)h.h * x.s0_skip);
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
        const float t0 = (m_load(x.value, h.b * x.value_b + h.h * x.value_h + v.t * x.value_t + i * x.value_d) * h.f0);
        const float t1 = (a + t0);
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
        const float t0 = m_load(x.in_skip, (long long)h.h * x.s0_skip);
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
        const float t0 = (m_load(x.value, h.b * x.value_b + h.h * x.value_h + v.t * x.value_t + i * x.value_d) * da);
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
        const float t0 = (h.f0 * da);
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
        return g.d_skip + ((long long)h.h * g.s0_skip);
        }
        }
    };
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
        int t, pos;
        float f0;
    };
    DEV row make_row(const inputs &x, const sizes &z, const head &h, int t, int pos)
    {
        row v;
        v.t = t;
        v.pos = pos;
        const float t0 = m_load(x.in_beta, (long long)h.b * x.s0_beta + (long long)h.h * x.s1_beta + (long long)v.t * x.s2_beta);
        v.f0 = t0;
        return v;
    }
    DEV float scale(const inputs &x, const sizes &z, const head &h)
    {
        return 0x1.6a09e6p-4f /* 0.08838835 */;
    }
    DEV float decay(const inputs &x, const sizes &z, const head &h, const row &v, int i)
    {
        const float t0 = m_load(x.in_g, (long long)h.b * x.s0_g + (long long)h.h * x.s1_g + (long long)v.t * x.s2_g + (long long)m_clamp_index(i, cfg::D) * x.s3_g);
        const float t1 = m_load(x.in_low, (long long)h.h * x.s0_low + (long long)m_clamp_index(i, cfg::D) * x.s1_low);
        const float t2 = (t0 + t1);
        return t2;
    }
    DEV float delta(const inputs &x, const sizes &z, const head &h, const row &v)
    {
        return v.f0;
    }
    DEV float bonus(const inputs &x, const sizes &z, const head &h, int i)
    {
        return 0.0f;
    }
    static constexpr int SITES = 3;
    static constexpr bool WANTS[] = {false, true, true, false};
    static constexpr int SITE_OF[] = {OF_DECAY, OF_DECAY, OF_DELTA, FUNCTIONS};
    static constexpr int SITE_FORM[] = {SITE_ELEMENT, SITE_DIM, SITE_ROW, SITE_HEAD};
    template <int G> DEV float site(const inputs &x, const sizes &z, const head &h, const row &v, int i, float seed)
    {
        if constexpr (G == 0) {
        return seed;
        } else if constexpr (G == 1) {
        return seed;
        } else if constexpr (G == 2) {
        return seed;
        }
    }
    template <int G> DEV auto site_address(const grads &g, const inputs &x, const sizes &z, const head &h, const row &v, int i)
    {
        if constexpr (G == 0) {
        return g.d_g + ((long long)h.b * g.s0_g + (long long)h.h * g.s1_g + (long long)v.t * g.s2_g + (long long)m_clamp_index(i, cfg::D) * g.s3_g);
        } else if constexpr (G == 1) {
        return g.d_low + ((long long)h.h * g.s0_low + (long long)m_clamp_index(i, cfg::D) * g.s1_low);
        } else if constexpr (G == 2) {
        return g.d_beta + ((long long)h.b * g.s0_beta + (long long)h.h * g.s1_beta + (long long)v.t * g.s2_beta);
        }
    }
};
