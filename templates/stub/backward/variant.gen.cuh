// Stub: what the generator writes for the backward pass of causal attention whose scores lose slopes[h] (at.q - at.kv), with
// a gradient of slopes, and a gain per head dim on q.
#pragma once
#include "common/math.cuh"
#include "common/contract.cuh"

struct inputs {
    const float *in_slopes;
    int s0_slopes;
    const float *in_gain;
    int s0_gain;
    float scale;
};
struct grads {
    float *d_slopes;
    int s0_slopes;
    float *d_gain;
    int s0_gain;
};

struct back_zero_params {
    float *dst;
    long long s0, s1, s2, s3;
    int n0, n1, n2, n3;
};
struct back_sum_params {
    const exact_sum *src;
    float *dst;
    long long s0, s1, s2, s3;
    int n0, n1, n2, n3;
};
struct back_pre_params {
    const void *o;
    const void *dout;
    void *dout_copy;
    long long o_b, o_h, o_t, dout_b, dout_h, dout_t;
    float *rows;
    sizes z;
    unsigned *order;
    const float *final0;
    long long final0_b, final0_h, final0_t;
    inputs x;
    grads g;
};
struct row_sums_params {
    const void *q;
    const void *k;
    const void *v;
    const void *dout;
    long long q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, dout_b, dout_h, dout_t;
    sizes z;
    const float *final0;
    long long final0_b, final0_h, final0_t;
    float *rowsum0;
    long long rowsum0_b, rowsum0_h, rowsum0_t;
    inputs x;
};
struct back_params {
    const void *q;
    const void *k;
    const void *v;
    const void *dout;
    const float *rows;
    float *dq;
    void *dk;
    void *dv;
    long long q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, dout_b, dout_h, dout_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t;
    sizes z;
    const unsigned char *map;
    const unsigned *tokens;
    unsigned *order;
    float *pieces;
    inputs x;
    grads g;
};
struct back_mod_params {
    const void *src;
    const void *grad;
    void *dst;
    const unsigned *order;
    long long src_b, src_h, src_t, grad_b, grad_h, grad_t, dst_b, dst_h, dst_t;
    int n_h, len;
    int pos0;
    sizes z;
    inputs x;
    grads g;
};
struct map_params {
    unsigned char *map;
    sizes z;
    inputs x;
};
struct mod_params {
    const void *src;
    void *dst;
    long long src_b, src_h, src_t, dst_b, dst_h, dst_t;
    int n_h, len;
    int pos0;
    sizes z;
    inputs x;
};

struct variant {
    struct head {
        int h;
        float slope, scale;
    };
    DEV head make_head(const inputs &x, const sizes &, int, int h)
    {
        return {h, m_load(x.in_slopes, h * x.s0_slopes) * 0x1.715476p+0f, x.scale * 0x1.715476p+0f};
    }
    struct row {
        int q;
    };
    DEV row make_row(const inputs &, const sizes &z, const head &, int row) { return {row + z.q_start}; }
    struct col {
        int kv;
    };
    DEV col make_col(const inputs &, const sizes &, const head &, int kv) { return {kv}; }

    static constexpr bool MASKED = true;
    DEV bool live(const inputs &, const sizes &, const head &, const row &r, const col &c) { return r.q >= c.kv; }
    DEV int first_key(const inputs &, const sizes &, const head &, const row &) { return 0; }
    DEV int last_key(const inputs &, const sizes &, const head &, const row &r) { return r.q; }
    static constexpr bool SCATTERED = false;
    DEV bool among(const inputs &, const sizes &, const head &, const row &, const col &) { return true; }
    static constexpr bool MAP = false, MAP_PER_BATCH = false, MAP_PER_HEAD = false, MAP_BLOCKS = false;
    static constexpr int MAP_LOOK_HEADS = 1, MAP_ROWS = 64, BOXES = 0;
    static constexpr bool MAP_LOOK_COLS = false, SHARED_COLS = false, SHARED_ROWS = false;
    DEV int classify(const inputs &, const sizes &z, const head &, int row0, int row1, int kv0, int kv1)
    {
        const int q0 = row0 + z.q_start;
        const int q1 = row1 + z.q_start;
        if (q0 >= kv1) {
            return TILE_ALL;
        }
        return q1 >= kv0 ? TILE_SOME : TILE_NONE;
    }

    static constexpr int ROW_SUMS = 1, SUM_ROWS = 1;
    DEV void sum_row(const row_sums_params &p, const head &h, const row &r, float *out)
    {
        out[0] = p.final0[h.h * p.final0_h + (r.q - p.z.q_start) * p.final0_t] * 0x1.715476p+0f;
    }
    DEV void sum_pair(float e, float dw, const inputs &, const sizes &, const head &h, const row &, const col &, const float *b, float *sum)
    {
        sum[0] = dw * m_exp2(e * h.scale - b[0]);
    }
    DEV void store_sums(const row_sums_params &p, int b, int h, int row, const float *sum)
    {
        p.rowsum0[b * p.rowsum0_b + h * p.rowsum0_h + row * p.rowsum0_t] = sum[0];
    }

    static constexpr bool NORM = false;
    static constexpr bool BACK_DIAG = false;
    DEV float make_back_diag(const inputs &, const sizes &, const head &, int) { return 0.0f; }
    static constexpr bool DELTA = true;
    static constexpr bool EMPTY_BY_O = false;
    static constexpr int BACK_ROWS = 2;
    static constexpr int ROW_SITES = 0;
    static constexpr int ROW_SITE_FORM[] = {SITE_HEAD};
    DEV void back_row(const back_pre_params &p, const head &h, const row &r, float delta, bool, float *out, float *)
    {
        // of a row that exists: r.q - q_start is its number
        const long long at = h.h * p.final0_h + (r.q - p.z.q_start) * p.final0_t;
        out[0] = p.final0[at] * 0x1.715476p+0f;
        out[1] = delta;
    }

    template <int G> DEV float *row_site_address(const grads &, const inputs &, const sizes &, const head &, const row &)
    {
        return nullptr;
    }

    static constexpr int SITES = 1;
    static constexpr int SITE_FORM[] = {SITE_HEAD};
    DEV void pair(float e, float dw, const inputs &, const sizes &, const head &h, const row &r, const col &c, float,
                  const float *b, float &w, float &ds, float *site)
    {
        const float distance = static_cast<float>(r.q - c.kv);
        w = m_exp2(e * h.scale - h.slope * distance - b[0]);
        ds = w * (dw - b[1]);
        site[0] = -ds * distance;
    }
    static constexpr int READS = 0; // of its map
    // pair() in two steps, for sm_90a
    static constexpr unsigned WEIGHT_READS = 1, SLOPE_READS = 2;
    static constexpr bool WEIGHT_DIAG = false, SLOPE_DIAG = false;
    DEV float weight(float e, const inputs &, const sizes &, const head &h, const row &r, const col &c, float, const float *b)
    {
        const float distance = static_cast<float>(r.q - c.kv);
        return m_exp2(e * h.scale - h.slope * distance - b[0]);
    }
    DEV void slope(float, float w, float dw, const inputs &, const sizes &, const head &, const row &r, const col &c, float,
                   const float *b, float &ds, float *site)
    {
        const float distance = static_cast<float>(r.q - c.kv);
        ds = w * (dw - b[1]);
        site[0] = -ds * distance;
    }
    template <int G>
    DEV float *site_address(const grads &g, const inputs &, const sizes &, const head &h, const row &, const col &, int)
    {
        return g.d_slopes == nullptr ? nullptr : g.d_slopes + h.h * g.s0_slopes;
    }
    DEV float ds_factor(const inputs &x, const sizes &, const head &) { return x.scale; }

    struct query_mod {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT}, PASSES[] = {0}, REDUCTIONS[] = {0};
        struct head {
        };
        DEV head make_head(const inputs &, const sizes &, int, int) { return {}; }
        struct vals {
        };
        template <int S> DEV void begin(vals &, const inputs &, const sizes &, const head &, int, int) {}
        template <int S> DEV constexpr int reduce_pass(int) { return 0; }
        template <int S> DEV constexpr int reduce_op(int) { return RED_SUM; }
        template <int S, int R>
        DEV float operand(float a, float, int, const inputs &, const sizes &, const head &, const vals &)
        {
            return a;
        }
        template <int S, int P> DEV void update(vals &, const float *, const inputs &, const sizes &, const head &) {}
        template <int S>
        DEV void output(float &a, float &, int i, const inputs &x, const sizes &, const head &, const vals &)
        {
            a = a * m_load(x.in_gain, i * x.s0_gain);
        }
    };
    struct query_back {
        static constexpr bool PRESENT = true;
        static constexpr int STAGES = 1;
        static constexpr int FORM[] = {FORM_ELEMENT}, PASSES[] = {0}, REDUCTIONS[] = {0};
        struct head {
        };
        DEV head make_head(const inputs &, const sizes &, int, int) { return {}; }
        struct vals {
        };
        template <int S> DEV void begin(vals &, const inputs &, const sizes &, const head &, int, int) {}
        template <int S> DEV constexpr int reduce_pass(int) { return 0; }
        template <int S> DEV constexpr int reduce_op(int) { return RED_SUM; }
        template <int S, int R>
        DEV float operand(float a, float, float, float, int, const inputs &, const sizes &, const head &, const vals &)
        {
            return a;
        }
        template <int S, int P> DEV void update(vals &, const float *, const inputs &, const sizes &, const head &) {}
        template <int S>
        DEV void output(float, float, float &da, float &, int i, const inputs &x, const sizes &, const head &, const vals &)
        {
            da = da * m_load(x.in_gain, i * x.s0_gain);
        }
        template <int S> DEV constexpr int sites() { return 1; }
        template <int S> DEV constexpr int site_form(int) { return SITE_DIM; }
        template <int S, int G>
        DEV float site(float a, float, float da, float, int, const inputs &, const sizes &, const head &, const vals &)
        {
            return a * da;
        }
        template <int S, int G>
        DEV float *site_address(const grads &g, const inputs &, const sizes &, const head &, const vals &, int i)
        {
            return g.d_gain == nullptr ? nullptr : g.d_gain + i * g.s0_gain;
        }
    };
    using key_mod = no_mod;
    using value_mod = no_mod;
    using output_mod = no_mod;
    using key_back = no_back;
    using value_back = no_back;
    using output_back = no_back;
};
