// stub of the generated header: specs/softmax.lua
#pragma once
#include "common/contract.cuh"
#include "common/math.cuh"

struct inputs {
    char none; // this spec has no inputs
};

struct rowwise_params {
    const void *x;
    void *y;
    long long x_0, x_1, x_2, y_0, y_1, y_2;
    row_sizes z;
    float *stat0;
    long long stat0_0, stat0_1, stat0_2;
    inputs in;
};

struct variant {
    struct head {
    };
    DEV head make_head(const inputs &, const row_sizes &) { return head{}; }

    struct col {
    };
    static constexpr bool COLS = false;
    template <int V> DEV void make_cols(const inputs &, const row_sizes &, const head &, int, col (&)[V]) {}

    struct vals {
        float v0; // the largest x
        float v1; // lse
    };
    DEV void begin(vals &, const inputs &, const row_sizes &, const head &, int) {}

    static constexpr int PASSES = 2;
    static constexpr int REDUCTIONS = 2;
    static constexpr int REDUCE_PASS[] = {0, 1};
    static constexpr int REDUCE_OP[] = {RED_MAX, RED_SUM};

    template <int R>
    DEV float operand(float x, int, const inputs &, const row_sizes &, const head &, const col &, const vals &v)
    {
        if constexpr (R == 0) {
            return x;
        } else {
            return m_exp((x - v.v0));
        }
    }
    template <int P> DEV void update(vals &v, const float *red, const inputs &, const row_sizes &, const head &)
    {
        if constexpr (P == 0) {
            v.v0 = red[0];
        } else {
            v.v1 = (v.v0 + m_log(red[1]));
        }
    }
    DEV float output(float x, int, const inputs &, const row_sizes &, const head &, const col &, const vals &v)
    {
        return m_exp((x - v.v1));
    }

    static constexpr int STATS = 1;
    DEV void store_stats(const rowwise_params &p, int row0, int row1, int row, const vals &v)
    {
        if (p.stat0) {
            p.stat0[row0 * p.stat0_0 + row1 * p.stat0_1 + row * p.stat0_2] = v.v1;
        }
    }
};
