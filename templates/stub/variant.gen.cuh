// Stub: what the generator writes for specs/causal.lua.
#pragma once
#include "common/math.cuh"
#include "common/contract.cuh"

struct inputs {
    float scale;
};

struct attention_params {
    const void *q;
    const void *k;
    const void *v;
    void *o;
    long long q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t;
    sizes z;
    const unsigned char *map;
    unsigned long long *tile_counter; // this and the next: sm_90 alone
    int pack;
    float *part_o, *part_rows; // and parts: attention/decode.cuh alone
    long long parts;
    float *final0;
    long long final0_b, final0_h, final0_t;
    inputs x;
};
struct pair_params {
    void *first;
    void *second;
    void *both;
    long long first_b, first_h, first_t, first_d, second_b, second_h, second_t, second_d, both_b, both_h, both_t;
    int n_h, len, d1;
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
        float t4;
    };
    DEV head make_head(const inputs &x, const sizes &, int, int)
    {
        return {x.scale * 0x1.715476p+0f}; // causal.lua:1
    }

    struct row {
        int q;
    };
    DEV row make_row(const inputs &, const sizes &z, const head &, int row) { return {row + z.q_start}; }

    static constexpr int SELECTED = 16, SELECTED_KEYS = 64; // and selected(): attention/selected.cuh alone
    DEV int selected(const inputs &, const sizes &, const head &, const row &r, int i0) { return r.q / 64 - i0; }

    struct col {
        int kv;
    };
    DEV col make_col(const inputs &, const sizes &, const head &, int kv) { return {kv}; }

    static constexpr bool DIAG = false;
    DEV float make_diag(const inputs &, const sizes &, const head &, int) { return 0.0f; }

    static constexpr bool MASKED = true;
    DEV bool live(const inputs &, const sizes &, const head &, const row &r, const col &c)
    {
        return (r.q >= c.kv); // prelude.lua:9
    }
    DEV int first_key(const inputs &, const sizes &, const head &, const row &) { return 0; }
    DEV int last_key(const inputs &, const sizes &, const head &, const row &r) { return r.q; }
    static constexpr bool SCATTERED = false;
    DEV bool among(const inputs &, const sizes &, const head &, const row &, const col &) { return true; }
    static constexpr bool MAP = false, MAP_PER_BATCH = false, MAP_PER_HEAD = false, MAP_BLOCKS = false;
    static constexpr int MAP_LOOK_HEADS = 1, MAP_ROWS = 64, BOXES = 0;
    static constexpr bool MAP_LOOK_COLS = false, SHARED_COLS = false;
    DEV int classify(const inputs &, const sizes &z, const head &, int row0, int row1, int kv0, int kv1)
    {
        const int q0 = row0 + z.q_start;
        const int q1 = row1 + z.q_start;
        if (q0 >= kv1) {
            return TILE_ALL;
        }
        return q1 >= kv0 ? TILE_SOME : TILE_NONE;
    }

    struct state {
        float m, l;
    };
    DEV state init(bool) { return {-INF, 0.0f}; }
    struct tile {
        float m, a, l;
    };
    static constexpr bool LOGISTIC = false, RELU_WAITS = false, CAPPED = false;
    static constexpr int PASSES = 2;
    static constexpr int REDUCTIONS = 2;
    static constexpr int REDUCE_PASS[] = {0, 1};
    static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};
    static constexpr bool REDUCE_LAZY[] = {false, true};
    DEV void begin(tile &, const state &, const inputs &, const sizes &, const head &, const row &, int) {}
    template <int P>
    DEV float element(float e, const inputs &, const sizes &, const head &h, const row &, const col &, float,
                      const tile &t)
    {
        if constexpr (P == 0) {
            return e * h.t4;
        } else {
            return m_exp2(e - t.m); // prelude.lua:20
        }
    }
    template <int R>
    DEV float operand(float e, const inputs &, const sizes &, const head &, const row &, const col &, float,
                      const tile &)
    {
        return e;
    }
    template <int P>
    DEV void update(tile &t, const state &s, const float *red, const inputs &, const sizes &, const head &,
                    const row &, int)
    {
        if constexpr (P == 0) {
            t.m = m_max(s.m, red[0]); // prelude.lua:18
            t.a = m_exp2(s.m - t.m);  // prelude.lua:19
        } else {
            t.l = s.l * t.a + red[1]; // prelude.lua:21
        }
    }
    static constexpr bool RESCALE = true, KEEPS = false;
    static constexpr int READS = 0;
    static constexpr bool READ_RANGES = false;
    static constexpr bool DEAD_ONCE = false, ELEMENT_COLS = false;
    DEV float dead() { return 0.0f; }
    DEV float o_scale(const tile &t) { return t.a; }
    DEV void next(state &s, const tile &t)
    {
        s.m = t.m;
        s.l = t.l;
    }
    template <class SUM> DEV void join(state &s, SUM sum4) { s.l = sum4(s.l); }

    static constexpr int FINALS = 1;
    DEV float finish(const state &s, float *finals, const inputs &, const sizes &, const head &, const row &)
    {
        finals[0] = (s.m + m_log2(s.l)) * 0x1.62e430p-1f; // prelude.lua:24
        return m_rcp(s.l);                                // prelude.lua:24
    }
    DEV void store_finals(const attention_params &p, int b, int h, int row, const float *finals)
    {
        if (p.final0 != nullptr) {
            p.final0[b * p.final0_b + h * p.final0_h + row * p.final0_t] = finals[0];
        }
    }
    DEV void empty_finals(float *finals, const inputs &, const sizes &, const head &, const row &) { finals[0] = -INF; }

    static constexpr bool MASK_BY_HEAD = false;
    static constexpr int STATES = 2;
    struct merge {
        static constexpr int PASSES = 2, REDUCTIONS = 2;
        static constexpr int REDUCE_PASS[] = {0, 1};
        static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};
        float red[2];
        template <int R> DEV float operand(const state &s, const merge &t, const inputs &, const sizes &)
        {
            if constexpr (R == 0) {
                return s.m;
            } else {
                return s.l * m_exp2(s.m - t.red[0]); // prelude.lua:32
            }
        }
        DEV float factor(const state &s, const merge &t, const inputs &, const sizes &) { return m_exp2(s.m - t.red[0]); }
        DEV state merged(const merge &t, const inputs &, const sizes &) { return {t.red[0], t.red[1]}; }
        DEV void write(const state &s, float *to)
        {
            to[0] = s.m;
            to[1] = s.l;
        }
        DEV state read(const float *from) { return {from[0], from[1]}; }
    };

    using query_mod = no_mod;
    using key_mod = no_mod;
    using value_mod = no_mod;
    using output_mod = no_mod;
};
