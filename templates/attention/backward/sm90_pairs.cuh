// attention/backward/sm90_pairs.cuh: a warp's pairs of one tile: s^T becomes weights, dw^T becomes ds^T, and sites get
// their sums. In two steps, so that the products of the weights can start before dw is there.
//
// With g = lane / 4 and t = lane % 4: a thread has the keys g and g + 8 of its warp, and of each block b of 8 queries 8
// b + 2 t + {0, 1}.
#pragma once
#include "attention/backward/sm90_common.cuh"

namespace back
{

using worker_sites = site_context<NB, COLS>;

// Which of a thread's pairs count.
struct live_pairs {
    u32 bits[NB / 8]; // bit 4 (b % 8) + 2 c + j of word b / 8
    __device__ __forceinline__ bool has(int b, int j, int c) const
    {
        return ((bits[b / 8] >> (4 * (b % 8) + 2 * c + j)) & 1u) != 0;
    }
};

// The queries that a mask is asked about, the thread's n'th of NB blocks. first: the thread's first one. Where their
// values take long to find, each is found by one lane of the warp alone, and passed on.
template <class V, bool SHARED = V::SHARED_ROWS> struct tile_queries {
    __device__ __forceinline__ tile_queries(const back_params &, const variant::head &, int) {}
    __device__ __forceinline__ typename V::row nth(const back_params &p, const variant::head &head, int first,
                                                   int n) const
    {
        return V::make_row(p.x, p.z, head, first + n / 2 * 8 + n % 2);
    }
};
template <class V> struct tile_queries<V, true> {
    static constexpr int OWN = (8 * NB + 31) / 32;
    typename V::row own[OWN];

    __device__ __forceinline__ tile_queries(const back_params &p, const variant::head &head, int first)
    {
        first -= 2 * (lane_id() & 3);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            own[i] = V::make_row(p.x, p.z, head, first + min(lane_id() + 32 * i, 8 * NB - 1));
        }
    }
    // By all lanes, with the same n.
    __device__ __forceinline__ typename V::row nth(const back_params &p, const variant::head &head, int first,
                                                   int n) const
    {
        return V::pass_row(p.x, p.z, head, own[n / 8], first + n / 2 * 8 + n % 2,
                           n / 2 * 8 % 32 + n % 2 + 2 * (lane_id() & 3));
    }
};

// Found while products are under way, where that is one register, or where sites ask for them anyway.
constexpr bool KEEPS_LIVE = variant::SITES > 0 || NB == 8;

// A step that reads one value of a row may have it loaded ahead of the wait for its products: shared memory is slow to
// answer while they read it. Where pairs have sites there are no registers for that, nor at 128 queries.
__host__ __device__ constexpr int first_read(u64 reads)
{
    for (int k = 0; k < variant::BACK_ROWS; k++) {
        if ((reads >> k & 1u) != 0) {
            return k;
        }
    }
    return 0;
}
__host__ __device__ constexpr bool loads_ahead(u64 reads)
{
    return cfg::BACK_EARLY_DV && variant::SITES == 0 && reads == 1ull << first_read(reads);
}

constexpr int BACK_SLOTS = max_of(variant::BACK_ROWS, 1);

struct tile_pairs {
    const back_params &p;
    const variant::head &head;
    const variant::col (&col)[COLS];
    u32 position; // shared address of the tile's position
    int kv0;      // its first key
    u32 rows;     // shared addresses: of the first query's row values
    u32 table;    // and of the diagonal of the first query and key

    // The first query of the thread. Read anew: what the compiler makes of pairs' places in one step would else stay in
    // registers for the next.
    __device__ __forceinline__ int fresh_row0() const
    {
        const int tile = static_cast<int>(__float_as_uint(load_shared(position)) >> 4);
        return tile * BM + (SPLIT > 1 ? place().query() : 2 * (lane_id() % 4));
    }
    // Value k of the queries of blocks b and b + 1.
    __device__ __forceinline__ float4 load_four(int k, int b) const
    {
        const u32 from = rows + static_cast<u32>((k * BM + 8 * b) * 4);
        if constexpr (ROWS_BY_FOUR) {
            const uint4 four = load_shared16(from);
            return make_float4(__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z),
                               __uint_as_float(four.w));
        } else {
            const float2 two = load_shared8(from);
            const float2 next = load_shared8(from + 32);
            return make_float4(two.x, two.y, next.x, next.y);
        }
    }
    // Of the two queries of block b; `four`: what has been loaded for it and the block beside.
    template <u64 READS>
    __device__ __forceinline__ void load_rows(float (&back)[2][BACK_SLOTS], float4 (&four)[BACK_SLOTS], int b) const
    {
#pragma unroll
        for (int k = 0; k < variant::BACK_ROWS; k++) {
            if ((READS >> k & 1u) != 0) {
                if (b % 2 == 0) {
                    four[k] = load_four(k, b);
                }
                back[0][k] = b % 2 == 0 ? four[k].x : four[k].z;
                back[1][k] = b % 2 == 0 ? four[k].y : four[k].w;
            }
        }
    }

    // Queries 8 on and keys 8 on lie on one diagonal.
    template <bool READS> __device__ __forceinline__ void load_diagonals(float (&diag)[COLS][2], int b) const
    {
        if constexpr (READS) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                diag[1][j] = b > 0 ? diag[0][j] : load_shared(table + static_cast<u32>((j - 8) * 4));
                diag[0][j] = load_shared(table + static_cast<u32>((8 * b + j) * 4));
            }
        }
    }

    // seen: class of what the warpgroup has of the tile.
    __device__ __forceinline__ void find_live(live_pairs &live, int seen) const
    {
        if (seen == TILE_ALL) {
#pragma unroll
            for (int i = 0; i < NB / 8; i++) {
                live.bits[i] = ~0u;
            }
        } else if (variant::MAP_BLOCKS && seen != TILE_SOME) { // TILE_CUT: only the neighbour has some
#pragma unroll
            for (int i = 0; i < NB / 8; i++) {
                live.bits[i] = 0;
            }
        } else if (variant::MAP_BLOCKS || (CUTS && seen == TILE_CUT)) {
            look<true>(live);
        } else {
            look<variant::MAP_BLOCKS>(live);
        }
    }
    // CUT: what the mask reads is not asked for; where blocks are judged, never.
    static constexpr bool CUTS = variant::MAP && variant::READS > 0;
    template <bool CUT> __device__ __forceinline__ void look(live_pairs &live) const
    {
        const int first = fresh_row0();
        const tile_queries<variant, variant::SHARED_ROWS && !CUT> queries(p, head, first);
#pragma unroll
        for (int b = 0; b < NB; b++) {
            live.bits[b / 8] = b % 8 == 0 ? 0 : live.bits[b / 8];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int number = first + 8 * b + j;
                const variant::row row = queries.nth(p, head, first, 2 * b + j);
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    const int key = kv0 + 8 * c;
                    bool yes = number < p.z.len_q && key < p.z.len_kv;
                    if constexpr (CUT) {
                        yes = yes & variant::first_key(p.x, p.z, head, row) <= key &
                              key <= variant::last_key(p.x, p.z, head, row);
                    } else if constexpr (variant::MASKED) {
                        yes = yes & variant::live(p.x, p.z, head, row, col[c]);
                    }
                    live.bits[b / 8] |= yes ? 1u << (4 * (b % 8) + 2 * c + j) : 0u;
                }
            }
        }
    }

    // Dead pairs become 0, rounded as they are.
    __device__ __forceinline__ void drop_dead(u32 (&x)[NB / 2][4], int seen, const live_pairs &found) const
    {
        if (seen == TILE_ALL) {
            return;
        }
        live_pairs live = found;
        if constexpr (!KEEPS_LIVE || variant::SITES > 0) { // beside sites there are no registers for it
            find_live(live, seen);
        }
#pragma unroll
        for (int k = 0; k < NB / 2; k++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const u32 low = live.has(2 * k + i / 2, 0, i % 2) ? 0xffffu : 0u;
                const u32 high = live.has(2 * k + i / 2, 1, i % 2) ? 0xffff0000u : 0u;
                x[k][i] &= low | high;
            }
        }
    }

    template <u64 READS> __device__ __forceinline__ void load_ahead(float2 (&ahead)[NB]) const
    {
        if constexpr (loads_ahead(READS)) {
#pragma unroll
            for (int b = 0; b < NB; b += 2) {
                const float4 four = load_four(first_read(READS), b);
                ahead[b] = make_float2(four.x, four.y);
                ahead[b + 1] = make_float2(four.z, four.w);
            }
        }
    }
    template <u64 READS> __device__ __forceinline__ void
    take_rows(float (&back)[2][BACK_SLOTS], float4 (&four)[BACK_SLOTS], const float2 (&ahead)[NB], int b) const
    {
        if constexpr (loads_ahead(READS)) {
            back[0][first_read(READS)] = ahead[b].x;
            back[1][first_read(READS)] = ahead[b].y;
        } else {
            load_rows<READS>(back, four, b);
        }
    }

    // s to weights, in w.
    __device__ __forceinline__ void weigh(float (&w)[NB][4], const float (&s)[NB][4], const float2 (&ahead)[NB]) const
    {
        float diag[COLS][2] = {};
        float4 four[BACK_SLOTS] = {};
        const int first = fresh_row0();
#pragma unroll
        for (int b = 0; b < NB; b++) {
            float back[2][BACK_SLOTS] = {};
            take_rows<variant::WEIGHT_READS>(back, four, ahead, b);
            load_diagonals<variant::WEIGHT_DIAG>(diag, b);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const variant::row row = variant::make_row(p.x, p.z, head, first + 8 * b + j);
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    w[b][2 * c + j] =
                        variant::weight(s[b][2 * c + j], p.x, p.z, head, row, col[c], diag[c][j], back[j]);
                }
            }
        }
    }

    // The row values of the tile, or of this warpgroup's part of it.
    __device__ __forceinline__ u32 tile_rows() const
    {
        return rows - (SPLIT > 1 ? static_cast<u32>(4 * place().query()) : 16u * (lane_id() % 4));
    }

    // Norms of the queries that load_four has values of, from memory: hardly a tile asks for them.
    __device__ __forceinline__ float4 load_norms(int b) const
    {
        const int row = (SPLIT > 1 ? place().query() : 0) + 8 * b; // of the tile's
        const float *from = norms_of(load_shared16(record_place(tile_rows(), row))) + row % NORM_ROWS;
        if constexpr (ROWS_BY_FOUR) {
            return *reinterpret_cast<const float4 *>(from + 4 * (lane_id() % 4));
        } else {
            return make_float4(from[0], from[1], from[8], from[9]);
        }
    }

    // Weights of a tile that is large.
    __device__ __forceinline__ void normalise(float (&w)[NB][4]) const
    {
#pragma unroll
        for (int b = 0; b < NB; b += 2) {
            const float4 four = load_norms(b);
            const float norm[2][2] = {{fabsf(four.x), fabsf(four.y)}, {fabsf(four.z), fabsf(four.w)}};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                w[b][i] *= norm[0][i % 2];
                w[b + 1][i] *= norm[1][i % 2];
            }
        }
    }
    // The same as they are rounded: half the registers, where there are none to spare.
    __device__ __forceinline__ void normalise(u32 (&x)[NB / 2][4]) const
    {
#pragma unroll
        for (int k = 0; k < NB / 2; k++) {
            const float4 four = load_norms(2 * k);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float low, high;
                unpack<cfg::operand>(x[k][i], low, high);
                x[k][i] =
                    pack<cfg::operand>(low * fabsf(i < 2 ? four.x : four.z), high * fabsf(i < 2 ? four.y : four.w));
                keep(x[k][i]); // one after the other
            }
        }
    }

    // dw to ds, in place, from s and the weights.
    __device__ __forceinline__ void slope(float (&dw)[NB][4], const float (&s)[NB][4], const float (&w)[NB][4],
                                          const float2 (&ahead)[NB], const worker_sites &sites,
                                          const live_pairs &live) const
    {
        float diag[COLS][2] = {};
        float4 four[BACK_SLOTS] = {};
        const int first = fresh_row0();
#pragma unroll
        for (int b = 0; b < NB; b++) {
            float back[2][BACK_SLOTS] = {};
            take_rows<variant::SLOPE_READS>(back, four, ahead, b);
            load_diagonals<variant::SLOPE_DIAG>(diag, b);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int number = first + 8 * b + j;
                const variant::row row = variant::make_row(p.x, p.z, head, number);
                float row_sum[SLOTS] = {};
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    float &x = dw[b][2 * c + j];
                    float ds = 0.0f;
                    float site[SLOTS] = {};
                    variant::slope(s[b][2 * c + j], w[b][2 * c + j], x, p.x, p.z, head, row, col[c], diag[c][j],
                                   back[j], ds, site);
                    x = ds;
                    if constexpr (variant::SITES > 0) {
                        const int delta = number + p.z.q_start - (kv0 + 8 * c);
                        sites.pair(site, live.has(b, j, c), b, c, j, delta, row, col[c], row_sum);
                    }
                }
                sites.end_row(row_sum, row, number < p.z.len_q);
            }
        }
    }
};

// ---- operands ----------------------------------------------------------------------------------------

template <int N> DEV void clear(float (&x)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[n][i] = 0.0f;
        }
    }
}

// Sums of sites may cancel: there slope() gets weights as they are, not as they were rounded.
constexpr bool EXACT_WEIGHTS = variant::SITES > 0;

// Weights as they are after rounding: those that dv' sees, and no registers of their own.
DEV void unpack_weights(float (&w)[NB][4], const u32 (&packed)[NB / 2][4])
{
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unpack<cfg::operand>(packed[k][i], w[2 * k + i / 2][2 * (i % 2)], w[2 * k + i / 2][2 * (i % 2) + 1]);
        }
    }
}

// Made by here, and not where a product that reads them has begun.
DEV void settle(u32 (&x)[NB / 2][4])
{
#pragma unroll
    for (int k = 0; k < NB / 2; k++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            keep(x[k][i]);
        }
    }
}

} // namespace back
