// attention/backward/split.cuh: rows whose finals are large, before attention's backward pass. Beside an m of 2^12 and
// more (f32: 2^8), m + log(l) has few digits of log(l) left, and beside 1e9 none: exp(s - final) is wrong by a factor
// that the whole row shares. Such a row goes through the online function once more, and its weights become exp(s -
// high) norm, with high = m and norm = 1 / l, say. In all other rows high is the final as it is given, and norm is 1.
//
// That is so seldom that a launch of its own would cost more, and no shared memory: a warp takes 16 rows, and reads q'
// and k' in the order of mma's operands. A final that was given of other keys, too, is another one than these keys
// have: it stands as it is.
#pragma once
//
// LATHE_SPLITS says how many finals a row has that may be so large; 0: everything here is empty.
#include "attention/backward/parts.cuh"
#include "common/mma_f32.cuh"
#if LATHE_SPLITS
#include "attention/score_passes.cuh"
#endif

namespace split
{

constexpr int ROWS = 64; // of a block

#if LATHE_SPLITS

// f32 has 2^-12 of a weight left at 4096, as much as f16 rounds; and 2^-16 at 256, as much as products of f32 are off
// by.
constexpr float FROM = same_type<cfg::operand, float> ? 256.0f : 4096.0f;
constexpr float SAME = 0x1p-20f; // of a final: what rounding may make of it on different ways
constexpr int KEYS = 32;         // of a tile
constexpr int NB = KEYS / 8;
constexpr int SPLITS = LATHE_SPLITS;

struct parts { // in shared memory, of the block's rows
    float high[SPLITS][ROWS];
    float norm[SPLITS][ROWS];
    u32 large[ROWS / 32]; // a bit for each: is one of its finals?
};

DEV bool is_large(float final) { return fabsf(final) > FROM && fabsf(final) < INF; }

// The finals of a row as they are given, by the first ROWS threads, a row each. A barrier has to follow.
template <class PARAMS> DEV void take_given(parts &to, const PARAMS &p, const variant::head &head, int row0)
{
    const int place = static_cast<int>(threadIdx.x);
    if (place >= ROWS) {
        return; // whole warps
    }
    bool large = false;
    if (row0 + place < p.z.len_q) {
        float given[SPLITS];
        variant::given_finals(p, head, variant::make_row(p.x, p.z, head, row0 + place), given);
#pragma unroll
        for (int i = 0; i < SPLITS; i++) {
            to.high[i][place] = given[i];
            to.norm[i][place] = 1.0f;
            large = large || is_large(given[i]);
        }
    }
    const u32 some = __ballot_sync(ALL_LANES, large);
    if (lane_id() == 0) {
        to.large[place / 32] = some;
    }
}
DEV bool some_is_large(const parts &of) { return (of.large[0] | of.large[1]) != 0; }
DEV bool row_is_large(const parts &of, int place) { return (of.large[place / 32] >> place % 32 & 1u) != 0; }

// Two elements of a row as mma takes them; of f32, split. Tokens start at multiples of 16 bytes.
using two = pick<same_type<cfg::operand, float>, split_two, u32>::type;
DEV u32 two_elements(const void *at, u32) { return *static_cast<const u32 *>(at); }
DEV split_two two_elements(const void *at, split_two)
{
    const float2 x = *static_cast<const float2 *>(at);
    return split_two::of(x.x, x.y);
}
DEV two two_elements(const cfg::operand *at) { return two_elements(at, two{}); }

template <class T> DEV void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    mma_16x8x16<T>(c, a, b0, b1);
}
template <class T> DEV void multiply_add(float (&c)[4], const split_two (&a)[4], split_two b0, split_two b1)
{
    const u32 hi[4] = {a[0].hi, a[1].hi, a[2].hi, a[3].hi};
    const u32 lo[4] = {a[0].lo, a[1].lo, a[2].lo, a[3].lo};
    mma_bf16(c, lo, b0.hi, b1.hi);
    mma_bf16(c, hi, b0.lo, b1.lo);
    mma_bf16(c, hi, b0.hi, b1.hi);
}

// <q', k'> of 16 rows and KEYS keys; q: the thread's two rows, k: the head's keys.
DEV void products(float (&s)[1][NB][4], const cfg::element_q *const (&q)[2], const cfg::element_k *k, i64 k_t, int kv0,
                  int len_kv)
{
    const int column = 2 * (lane_id() % 4);
#pragma unroll
    for (int b = 0; b < NB; b++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[0][b][i] = 0.0f;
        }
    }
#pragma unroll 1
    for (int c = column; c < cfg::D; c += 16) {
        const bool more = c - column + 8 < cfg::D; // D is a multiple of 8
        const two a[4] = {two_elements(q[0] + c), two_elements(q[1] + c), more ? two_elements(q[0] + c + 8) : two{},
                          more ? two_elements(q[1] + c + 8) : two{}};
#pragma unroll
        for (int b = 0; b < NB; b++) {
            const cfg::element_k *key = k + min(kv0 + 8 * b + lane_id() / 4, len_kv - 1) * k_t + c;
            multiply_add<cfg::operand>(s[0][b], a, two_elements(key), more ? two_elements(key + 8) : two{});
        }
    }
}

struct sum_of_row {
    __device__ __forceinline__ float operator()(float x) const { return sum4(x); }
};

// What the online function makes of a row, in the place of the finals that are given: where those are of these keys.
template <class PARAMS> DEV void put_parts(parts &to, const variant::state &state, const PARAMS &p,
                                           const variant::head &head, const variant::row &row, int place)
{
    float high[SPLITS];
    float norm[SPLITS];
    variant::split_finals(state, p.x, p.z, head, row, high, norm);
    repeat<0, SPLITS>([&]<int I>() {
        const float given = to.high[I][place];
        constexpr float INVERSE = 1.0f / variant::SPLIT_POWER[I];
        const float off = given - high[I] - m_log(norm[I]) * INVERSE;
        if (is_large(given) && fabsf(off) <= SAME * fabsf(given)) {
            to.high[I][place] = high[I];
            to.norm[I][place] = norm[I];
        }
    });
}

constexpr int TABLE_BYTES = 4 * (16 + KEYS); // of diagonals, of each warp: 4 TABLE_BYTES of shared memory
// Large rows of row0 to row0 + ROWS - 1, behind take_given and a barrier. By four warps; others have nothing to do.
template <class PARAMS>
DEV void split_rows(parts &to, const PARAMS &p, const variant::head &head, int b, int h, int row0, u32 tables)
{
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= ROWS / 16) {
        return;
    }
    const int lane = lane_id();
    const int place = 16 * warp + lane / 4; // of the thread's first row; the other is 8 on
    const sizes &z = p.z;
    const at_head a{p.x, z, head};
    thread_rows<1> rows;
    bool mine[2];
    const cfg::element_q *q[2];
    int first = 0x7fffffff;
    int last = -1;
    rows.seen = 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = row0 + place + 8 * r;
        const int there = min(row, z.len_q - 1);
        mine[r] = row < z.len_q && row_is_large(to, place + 8 * r);
        rows.row[r] = variant::make_row(p.x, z, head, there);
        rows.state[r] = variant::init(lane % 4 == 0);
        q[r] = static_cast<const cfg::element_q *>(p.q) + b * p.q_b + h * p.q_h + there * p.q_t;
        if (mine[r]) {
            first = min(first, max(variant::first_key(p.x, z, head, rows.row[r]), 0));
            last = max(last, min(variant::last_key(p.x, z, head, rows.row[r]), z.len_kv - 1));
        }
    }
    if (!__any_sync(ALL_LANES, mine[0] || mine[1])) {
        return;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        first = min(first, __shfl_xor_sync(ALL_LANES, first, lanes));
        last = max(last, __shfl_xor_sync(ALL_LANES, last, lanes));
    }
    const cfg::element_k *k = static_cast<const cfg::element_k *>(p.k) + b * p.k_b + z.key_head(h) * p.k_h;
    const u32 table = tables + static_cast<u32>(warp * TABLE_BYTES);
    const u32 entry = table + static_cast<u32>((lane / 4 - 2 * (lane % 4) + KEYS - 1) * 4);
#pragma unroll 1
    // from the last one down, as forward
    for (int kv0 = last / KEYS * KEYS; last >= 0 && kv0 + KEYS > first; kv0 -= KEYS) {
        float s[1][NB][4];
        float scale[2];
        products(s, q, k, p.k_t, kv0, z.len_kv);
        if constexpr (variant::DIAG) {
            __syncwarp();
            fill_diagonals<16, KEYS, 32>(table, a, row0 + 16 * warp + z.q_start, kv0, lane);
            __syncwarp();
        }
        score_tile<false, 1, NB> scores{s, rows, a, kv0 + mma_fragment<1>::first_column(lane), entry, false, false};
        scores.run(scale);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        variant::join(rows.state[r], sum_of_row{});
        if (mine[r] && lane % 4 == 0) {
            put_parts(to, rows.state[r], p, head, rows.row[r], place + 8 * r);
        }
    }
}

// variant::back_row and variant::sum_row of a row of the block, with what has been found of its finals.
DEV void back_row(const parts &of, int place, const back_pre_params &p, const variant::head &head,
                  const variant::row &row, float delta, bool zero, float *out, float *site)
{
    float high[SPLITS];
    float norm[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        high[i] = of.high[i][place];
        norm[i] = of.norm[i][place];
    }
    variant::back_row(p, head, row, delta, zero, high, norm, out, site);
}
template <class V, class PARAMS> DEV void sum_row(const parts &of, int place, const PARAMS &p,
                                                  const variant::head &head, const variant::row &row, float *out)
{
    float high[SPLITS];
    float norm[SPLITS];
#pragma unroll
    for (int i = 0; i < SPLITS; i++) {
        high[i] = of.high[i][place];
        norm[i] = of.norm[i][place];
    }
    V::sum_row(p, head, row, high, norm, out);
}

#else

struct parts {
};
template <class PARAMS> DEV void take_given(parts &, const PARAMS &, const variant::head &, int) {}
DEV bool some_is_large(const parts &) { return false; }
template <class PARAMS> DEV void split_rows(parts &, const PARAMS &, const variant::head &, int, int, int, u32) {}
DEV void back_row(const parts &, int, const back_pre_params &p, const variant::head &head, const variant::row &row,
                  float delta, bool zero, float *out, float *site)
{
    variant::back_row(p, head, row, delta, zero, out, site);
}
template <class V, class PARAMS>
DEV void sum_row(const parts &, int, const PARAMS &p, const variant::head &head, const variant::row &row, float *out)
{
    V::sum_row(p, head, row, out);
}

#endif

} // namespace split
