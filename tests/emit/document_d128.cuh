// variant.gen.cuh: written by lathe 0.1.0 from document.lua; do not edit
#pragma once
#include "config.gen.cuh"
#include "common/math.cuh"

struct alignas(8) inputs { // data, strides and sizes of the spec's inputs
    const int *in_doc;
    long long s0_doc;
    int s1_doc;
};

struct map_params {
    unsigned char *map;
    sizes z;
    inputs x;
};
static_assert(sizeof(map_params) == 56, "host and device disagree about map_params");

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
    unsigned long long *tile_counter;
    int pack;
    float *final0;
    long long final0_b;
    long long final0_h;
    long long final0_t;
    inputs x;
};
static_assert(sizeof(attention_params) == 232, "host and device disagree about attention_params");

struct variant {
    struct head {
        int b, h, h_kv;
        int f0;
    };
    DEV head make_head(const inputs &x, const sizes &z, int b, int h_)
    {
        head h;
        h.b = b;
        h.h = h_;
        h.h_kv = z.key_head(h_);
        int t0 = (z.len_kv - 1);  // document.lua:3
        h.f0 = t0;
        return h;
    }

    struct row {
        int row, q;
        int f0;
    };
    DEV row make_row(const inputs &x, const sizes &z, const head &h, int row_)
    {
        row r;
        r.row = row_;
        r.q = row_ + z.q_start;
        int t0 = m_clamp(r.q, 0, h.f0);  // document.lua:3
        int t1 = m_load(x.in_doc, (long long)h.b * x.s0_doc + (long long)m_clamp_index(t0, z.len_kv) * x.s1_doc);  // document.lua:4
        r.f0 = t1;
        return r;
    }

    struct col {
        int kv;
        int f0;
    };
    DEV col make_col(const inputs &x, const sizes &z, const head &h, int kv)
    {
        col c;
        c.kv = kv;
        int t0 = m_load(x.in_doc, (long long)h.b * x.s0_doc + (long long)m_clamp_index(c.kv, z.len_kv) * x.s1_doc);  // document.lua:4
        c.f0 = t0;
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
        bool t1 = (r.f0 == c.f0);  // document.lua:4
        bool t2 = (t0 & t1);  // prelude.lua:4
        return t2;
    }
    DEV int first_key(const inputs &x, const sizes &z, const head &h, const row &r)
    {
        return 0;
    }
    DEV int last_key(const inputs &x, const sizes &z, const head &h, const row &r)
    {
        return r.q;
    }
    static constexpr bool SCATTERED = true;
    DEV bool among(const inputs &x, const sizes &z, const head &h, const row &r, const col &c)
    {
        bool t0 = (r.f0 == c.f0);  // document.lua:4
        return t0;
    }
    static constexpr bool SHARED_COLS = true;
    DEV col pass_col(const inputs &x, const sizes &z, const head &h, const col &from, int kv, int lane)
    {
        col c = {};
        c.kv = kv;
        c.f0 = __shfl_sync(ALL_LANES, from.f0, lane);
        return c;
    }
    static constexpr bool MAP = true, MAP_PER_BATCH = true, MAP_PER_HEAD = false, MAP_BLOCKS = false;
    static constexpr int MAP_LOOK_HEADS = 1, MAP_ROWS = 64;
    static constexpr bool MAP_LOOK_COLS = false;
    DEV int classify(const inputs &x, const sizes &z, const head &h, int row0, int row1, int kv0, int kv1)
    {
        [[maybe_unused]] const int q0 = row0 + z.q_start;
        [[maybe_unused]] const int q1 = row1 + z.q_start;
        bool t0 = (q0 >= kv1);
        bool t1 = (q1 >= kv0);
        bool t2 = (t0 & false);
        return t2 ? TILE_ALL : t1 ? TILE_SOME : TILE_NONE;
    }

    static constexpr int READS = 2;
    static constexpr bool READ_RANGES = true;
    static constexpr int BOXES = 0;
    static constexpr unsigned READS_BY_ROW = 0x1; // a bit each
    DEV void row_reads(const inputs &x, const sizes &z, const head &h, const row &r, int *read)
    {
        read[0] = r.f0;
    }
    DEV void col_reads(const inputs &x, const sizes &z, const head &h, const col &c, int *read)
    {
        read[1] = c.f0;
    }
    DEV int classify_reads(const inputs &x, const sizes &z, const head &h, int row0, int row1, int kv0, int kv1, const int *low, const int *high)
    {
        [[maybe_unused]] const int q0 = row0 + z.q_start;
        [[maybe_unused]] const int q1 = row1 + z.q_start;
        bool t0 = (q0 >= kv1);
        bool t1 = (q1 >= kv0);
        bool t2 = (low[0] == high[1]);
        bool t3 = (high[0] == low[1]);
        bool t4 = (t2 & t3);
        bool t5 = (low[0] <= high[1]);
        bool t6 = (low[1] <= high[0]);
        bool t7 = (t5 & t6);
        bool t8 = (t0 & t4);
        bool t9 = (t1 & t7);
        return t8 ? TILE_ALL : !(t9) ? TILE_NONE : t4 ? TILE_CUT : TILE_SOME;
    }
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
        const float t0 = (0x1.6a09e6p-4f /* 0.08838835 */ * red[0]);
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
        const float t0 = (e * 0x1.0527dcp-3f /* 0.1275174 */);
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
    static constexpr bool KEEPS = true;
    struct kept { // a tile in which m stays as it is
    struct tile {
        float f0;
        float f1;
        float f2;
        float f3;
        float f4;
    };
    static constexpr bool DEAD_ONCE = false;
    DEV float dead() { return -INF; }
    static constexpr bool ELEMENT_COLS = false;
    static constexpr bool LOGISTIC = false, RELU_WAITS = false, CAPPED = false;
    static constexpr int PASSES = 1, REDUCTIONS = 1;
    static constexpr int REDUCE_PASS[] = {0};
    static constexpr int REDUCE_OP[] = {RED_SUM};
    static constexpr bool REDUCE_LAZY[] = {true};
    DEV void begin(tile &t, const state &s, const inputs &x, const sizes &z, const head &h, const row &r, int kv0)
    {
        const float t0 = (s.s1 * -1.0f);  // prelude.lua:8
        const float t1 = (0x1.715476p0f /* 1.442695 */ * t0);  // prelude.lua:8
        t.f0 = t1;
        t.f3 = 1.0f;
        t.f4 = s.s1;
    }
    template <int P> DEV void update(tile &t, const state &s, const float *red, const inputs &x, const sizes &z, const head &h, const row &r, int kv0)
    {
        if constexpr (P == 0) {
        const float t0 = (s.s0 + red[0]);  // prelude.lua:18
        t.f1 = t0;
        t.f2 = red[0];
        }
    }
    template <int P> DEV float element(float e, const inputs &x, const sizes &z, const head &h, const row &r, const col &c, float diag, const tile &t)
    {
        if constexpr (P == 0) {
        const float t0 = (e * 0x1.0527dcp-3f /* 0.1275174 */);
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
        return e;
    }
    static constexpr bool RESCALE = false;
    DEV float o_scale(const tile &t) { return t.f3; }
    DEV void next(state &s, const tile &t)
    {
        s.s0 = t.f1;
        s.s1 = t.f4;
    }
    DEV bool serves(const tile &t, const state &s) { return t.f2 < 0x1p80f && s.s1 > -0x1p120f; }
    };
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
    using query_mod = no_mod;
    using key_mod = no_mod;
    using value_mod = no_mod;
    using output_mod = no_mod;
};
