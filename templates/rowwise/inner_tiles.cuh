// rowwise/inner_tiles.cuh: for rowwise/inner.cuh: its numbers, and the strips of rows: which rows a thread has, how its
// places come to shared memory, to registers, and back.
#pragma once
#include "rowwise/vectors.cuh"

namespace many
{

constexpr int WIDE = cfg::UNITS_WIDE;
constexpr int PLACES = cfg::THREADS / WIDE * CLUSTER; // that the block works on at once, or its cluster
constexpr int STRIP = WIDE * V;                       // rows
constexpr int UNITS = variant::IN > 0 ? WORDS / 4 : 0;
constexpr u32 UNIT_BYTES = 16 * cfg::THREADS;
constexpr int HELD = cfg::PER_THREAD / V; // places of a thread in shared memory
constexpr bool TAKEN = cfg::TAKEN;
constexpr int UNROLL = TAKEN ? HELD : 2;
constexpr int MORE = UNITS > 1 ? 2 : 4; // places that are read at once beyond those
constexpr int IN = max_of(variant::IN, 1);
// has a thread the registers to write rows that do not fill a vector by themselves?
constexpr bool PART_LATER = UNITS == 1;

struct strip { // the rows of this thread
    row_at at; // the first
    int n;     // how many: V, fewer at the end, 0
};

struct strip_values { // of the rows
    variant::vals of[V];
};

struct strip_pieces { // TAKEN: all places of a thread, in registers
    piece of[TAKEN ? HELD : 1];
};

struct strip_scratch {
    float part[SLOTS][WARPS][STRIP];
    float all[SLOTS][STRIP];
    u32 zero; // TAKEN
};

DEV int unit_of_thread() { return static_cast<int>(threadIdx.x) % WIDE; }
DEV int place_of_thread()
{
    const int place = static_cast<int>(threadIdx.x) / WIDE;
    return CLUSTER > 1 ? cluster_rank() * (PLACES / CLUSTER) + place : place;
}

// find_norms of the rows of a strip, which every warp has.
template <class VARIANT = variant>
DEV void find_strip_norms(strip_values &vals, const rows_params &p, const typename VARIANT::head &head, const strip &s)
{
    if constexpr (count_norms<VARIANT>() > 0) {
        bool large = false;
#pragma unroll
        for (int j = 0; j < V; j++) {
            large = large || (j < s.n && VARIANT::has_large(vals.of[j]));
        }
        if (__any_sync(ALL_LANES, large)) {
#pragma unroll
            for (int j = 0; j < V; j++) {
                row_at at = s.at;
                at.row += j;
                at.row2 += j;
                add_up_row<VARIANT, true>(vals.of[j], p, head, at, j < s.n);
            }
            exchange_readers();
        }
    }
}

// FULL: every thread has all of its places.
DEV bool is_place(const rows_params &p, int i) { return FULL || i < p.z.n; }

// ---- memory ------------------------------------------------------------------------------------------

template <int K> DEV const in_type<K> *find(const rows_params &p, const strip &s, int i)
{
    return row_of<in_type<K>>(p.in[K], s.at) + i * p.in[K].stride[3];
}

// Where a place is in every tensor; bytes from it to that `places` further on.
struct sources {
    const char *of[IN];
};
struct targets {
    char *of[OUT];
};
DEV sources find_sources(const rows_params &p, const strip &s, int i)
{
    sources from = {};
    repeat<0, variant::IN>([&]<int K>() { from.of[K] = reinterpret_cast<const char *>(find<K>(p, s, i)); });
    return from;
}
DEV targets find_targets(const rows_params &p, const strip &s, int i)
{
    targets to = {};
    repeat<0, variant::OUT>([&]<int K>() {
        to.of[K] = reinterpret_cast<char *>(row_of<out_type<K>>(p.out[K], s.at) + i * p.out[K].stride[3]);
    });
    return to;
}
template <int K> DEV i64 source_step(const rows_params &p, int places)
{
    return p.in[K].stride[3] * (places * static_cast<int>(sizeof(in_type<K>)));
}
template <int K> DEV i64 target_step(const rows_params &p, int places)
{
    return p.out[K].stride[3] * (places * static_cast<int>(sizeof(out_type<K>)));
}

template <int K> DEV void load_elements(u32 (&word)[words_of<K>()], const in_type<K> *from, int n)
{
#pragma unroll
    for (int w = 0; w < words_of<K>(); w++) {
        word[w] = 0;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        if (j < n) {
            if constexpr (sizeof(in_type<K>) == 4) {
                word[j] = __float_as_uint(m_load(from, j));
            } else {
                word[j / 2] |= static_cast<u32>(from[j].bits) << (16 * (j % 2));
            }
        }
    }
}

// Place i goes on its way from `at` into shared memory, to number k of the thread's.
template <int K> DEV u32 shared_place(u32 held, int k)
{
    return held + static_cast<u32>(k) * (UNITS * UNIT_BYTES) + static_cast<u32>(first_word<K>() / 4) * UNIT_BYTES;
}
DEV void fetch_whole(u32 held, const sources &at, const rows_params &p, const strip &s, int k, int i)
{
    if (s.n == V && is_place(p, i)) {
        repeat<0, variant::IN>([&]<int K>() {
#pragma unroll
            for (int u = 0; u < words_of<K>() / 4; u++) {
                copy_unit(shared_place<K>(held, k) + static_cast<u32>(u) * UNIT_BYTES, at.of[K] + 16 * u);
            }
        });
    }
}
DEV void fetch_part(u32 held, const sources &at, const rows_params &p, const strip &s, int k, int i)
{
    if (s.n > 0 && s.n < V && is_place(p, i)) {
        repeat<0, variant::IN>([&]<int K>() {
            using T = in_type<K>;
            constexpr int EACH = 4 / static_cast<int>(sizeof(T));
            const T *from = reinterpret_cast<const T *>(at.of[K]);
#pragma unroll 1
            for (int w = 0; w < words_of<K>(); w++) {
                u32 word = 0;
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    if (w * EACH + j < s.n) {
                        if constexpr (sizeof(T) == 4) {
                            word = __float_as_uint(m_load(from, w));
                        } else {
                            word |= static_cast<u32>(from[w * EACH + j].bits) << (16 * j);
                        }
                    }
                }
                store_shared(shared_place<K>(held, k) + static_cast<u32>(w / 4) * UNIT_BYTES +
                                 4 * static_cast<u32>(w % 4),
                             word);
            }
        });
    }
}
DEV void fetch(u32 held, const sources &at, const rows_params &p, const strip &s, int k, int i)
{
    fetch_whole(held, at, p, s, k, i);
    fetch_part(held, at, p, s, k, i);
}

DEV void take(piece &to, u32 held, int k)
{
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const uint4 x =
            load_shared16(held + static_cast<u32>(k) * (UNITS * UNIT_BYTES) + static_cast<u32>(u) * UNIT_BYTES);
        to.word[4 * u] = x.x;
        to.word[4 * u + 1] = x.y;
        to.word[4 * u + 2] = x.z;
        to.word[4 * u + 3] = x.w;
    }
}

DEV void load_place(piece &to, const rows_params &p, const strip &s, int i)
{
    to = piece{};
    if (s.n > 0 && i < p.z.n) {
        repeat<0, variant::IN>([&]<int K>() {
            constexpr int FIRST = first_word<K>();
            const in_type<K> *from = find<K>(p, s, i);
            if (s.n == V) {
                const words<4 * words_of<K>()> w = load_row<4 * words_of<K>(), READ_ONCE>(from);
#pragma unroll
                for (int k = 0; k < words_of<K>(); k++) {
                    to.word[FIRST + k] = w.word[k];
                }
            } else {
                u32 word[words_of<K>()];
                load_elements<K>(word, from, s.n);
#pragma unroll
                for (int k = 0; k < words_of<K>(); k++) {
                    to.word[FIRST + k] = word[k];
                }
            }
        });
    }
}

template <bool WHOLE, int K> DEV void store_place(const targets &at, const strip &s, const float (&y)[V])
{
    out_type<K> *to = reinterpret_cast<out_type<K> *>(at.of[K]);
    if (WHOLE || s.n == V) {
        store_piece<K>(to, y);
    } else {
        store_some<K>(to, y, s.n);
    }
}

} // namespace many
