// attention/score_passes.cuh: runs the variant's passes over a fragment of scores (attention/fragment.cuh).
#pragma once
#include "attention/capped.cuh"
#include "attention/fragment.cuh"
#include "attention/logistic.cuh"
#include "common/concepts.cuh"

// V: whose rows, heads and columns these are; of attention/decode_rows.cuh where rows of several heads share a tile.
template <int MT, class V = variant, class F = mma_fragment<MT>> struct thread_rows {
    typename V::row row[F::ROWS];
    typename V::state state[F::ROWS];
    u32 seen; // bit r: row r has had a live pair
};

// What the variant's functions may look at besides their row and column.
template <class V> struct at_head_of {
    const inputs &x;
    const sizes &z;
    const typename V::head &head;
};
using at_head = at_head_of<variant>;

// ---- values along diagonals --------------------------------------------------------------------------

// make_diag of every at.q - at.kv of a tile of BM rows from `q0` (a position) and BN keys from `kv0`, in
// shared memory: row i and key j read entry i - j + BN - 1. By THREADS threads, each with its number.
template <int BM, int BN, int THREADS> DEV void fill_diagonals(u32 table, const at_head &a, int q0, int kv0, int thread)
{
    for (int i = thread; i < BM + BN - 1; i += THREADS) {
        store_shared(table + static_cast<u32>(i * 4), variant::make_diag(a.x, a.z, a.head, q0 - kv0 - (BN - 1) + i));
    }
}

// ---- values of columns -------------------------------------------------------------------------------

// The columns that a mask is asked about, the thread's n'th of NB blocks. kv0: the thread's first one. Where their
// values take long to find, each is found by one lane of the warp alone, and passed on.
template <class V, class F, int NB, bool SHARED = V::SHARED_COLS> struct tile_cols {
    __device__ __forceinline__ tile_cols(const at_head_of<V> &, int) {}
    __device__ __forceinline__ typename V::col nth(const at_head_of<V> &a, int kv0, int n) const
    {
        return V::make_col(a.x, a.z, a.head, kv0 + F::column(n));
    }
};
template <class V, class F, int NB> struct tile_cols<V, F, NB, true> {
    static constexpr int COLUMNS = F::BLOCK_COLUMNS * NB;
    static constexpr int OWN = (COLUMNS + 31) / 32;
    typename V::col own[OWN];

    __device__ __forceinline__ tile_cols(const at_head_of<V> &a, int kv0)
    {
        const int first = kv0 - F::first_column(lane_id());
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            own[i] = V::make_col(a.x, a.z, a.head, first + min(lane_id() + 32 * i, COLUMNS - 1));
        }
    }
    // By all lanes, with the same n.
    __device__ __forceinline__ typename V::col nth(const at_head_of<V> &a, int kv0, int n) const
    {
        return V::pass_col(a.x, a.z, a.head, own[F::column(n) / 32], kv0 + F::column(n),
                           F::column(n) % 32 + F::first_column(lane_id()));
    }
};

// ---- one tile ----------------------------------------------------------------------------------------

// STEP: what becomes of a row: `variant` itself, or `variant::kept`.
// BOTH: one body for whole tiles and others, where dead pairs can be told once: those of others are marked on the way.
// LEAN: less text to compile, the same instructions for elements; a mask is asked about fewer columns at a time.
template <bool WHOLE, int MT, int NB, class STEP = variant, bool BOTH = false, bool LEAN = false, class V = variant,
          class F = mma_fragment<MT>>
struct score_tile {
    static constexpr int ROWS = F::ROWS;
    static constexpr int COLS = F::BLOCK * NB; // of a thread
    static_assert(!BOTH || (STEP::DEAD_ONCE && !STEP::LOGISTIC && !WHOLE),
                  "one body marks dead pairs once, and before it settles the others");
    static_assert(COLS <= 32, "a thread's live pairs of a row are bits of one word: at most 128 keys a tile");

    // to ask about: where BOTH, more would need registers that are not there
    static constexpr int COLS_AT_ONCE = LEAN ? 2 : BOTH ? 8 : COLS;

    float (&s)[MT][NB][4];
    thread_rows<MT, V, F> &rows;
    const at_head_of<V> &a;
    int kv0;            // the thread's first column, as a key
    u32 entry;          // of the diagonals
    bool whole = WHOLE; // has no dead pair after all: the same for all lanes
    bool cut = false;   // dead pairs lie before a row's first or after its last key alone: the same for all lanes
    typename STEP::tile tile[ROWS];
    u32 live[ROWS];      // bit c: column c of the thread; unused where WHOLE
    u32 some_live = ~0u; // bit r: row r has a live pair, where BOTH
    float red[ROWS][STEP::REDUCTIONS > 0 ? STEP::REDUCTIONS : 1];

    // The three steps of the reductions R, R + 1, ... of pass P.
    template <int R, int P> __device__ __forceinline__ void reset(int r)
    {
        if constexpr (R < STEP::REDUCTIONS) {
            if constexpr (STEP::REDUCE_PASS[R] == P) {
                red[r][R] = red_identity<STEP::REDUCE_OP[R]>();
            }
            reset<R + 1, P>(r);
        }
    }
    template <int R, int P>
    __device__ __forceinline__ void gather(int r, float e, const typename V::col &col, float diag, bool pair)
    {
        if constexpr (R < STEP::REDUCTIONS) {
            if constexpr (STEP::REDUCE_PASS[R] == P) {
                constexpr int OP = STEP::REDUCE_OP[R];
                const float v = STEP::template operand<R>(e, a.x, a.z, a.head, rows.row[r], col, diag, tile[r]);
                red[r][R] = red_combine<OP>(red[r][R], pair ? v : red_identity<OP>());
            }
            gather<R + 1, P>(r, e, col, diag, pair);
        }
    }
    template <int R, int P>
    __device__ __forceinline__ void share(int r) // over the threads of the row, unless it can wait
    {
        if constexpr (R < STEP::REDUCTIONS) {
            if constexpr (STEP::REDUCE_PASS[R] == P && !STEP::REDUCE_LAZY[R]) {
                red[r][R] = F::template reduce<STEP::REDUCE_OP[R]>(red[r][R]);
            }
            share<R + 1, P>(r);
        }
    }

    // Bits of the thread's columns that are keys before `end`.
    __device__ __forceinline__ u32 columns_before(int end) const
    {
        const int ahead = end <= kv0 ? 0 : end - kv0; // end may be a bound that saturated
        const int n = F::columns_in(ahead);
        return n >= COLS ? ~0u >> (32 - COLS) : (1u << n) - 1u;
    }

    // Ahead of the passes, so that the mask's values are gone when they begin.
    __device__ __forceinline__ void find_live()
    {
        if (whole) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                live[r] = ~0u >> (32 - COLS);
            }
            return;
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int first = V::first_key(a.x, a.z, a.head, rows.row[r]);
            const int last = V::last_key(a.x, a.z, a.head, rows.row[r]);
            live[r] = columns_before(min(last, a.z.len_kv - 1) + 1) & ~columns_before(first);
        }
        if (V::SCATTERED && !cut) {
            typename V::row row[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                row[r] = rows.row[r];
                if constexpr (BOTH) { // what else was read of the rows needs no registers from tile to tile
                    keep(row[r].row);
                    row[r] = V::make_row(a.x, a.z, a.head, row[r].row);
                }
            }
            const tile_cols<V, F, NB> cols(a, kv0);
#pragma unroll(COLS_AT_ONCE)
            for (int c = 0; c < COLS; c++) {
                const typename V::col col = cols.nth(a, kv0, c);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    live[r] &= V::among(a.x, a.z, a.head, row[r], col) ? ~0u : ~(1u << c);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            keep(live[r]);
        }
    }

    // SMALL: all products of the warp are, as attention/capped.cuh means it.
    template <int P, bool SMALL>
    __device__ __forceinline__ void value(int r, int b, int j, const typename V::col &col, float diag)
    {
        float &e = F::at(s, r, F::BLOCK * b + j);
        if constexpr (P == 0 && STEP::CAPPED) {
            e = capped<SMALL>(e, STEP::CAP_SCALE, STEP::CAP_FACTOR);
        }
        e = STEP::template element<P>(e, a.x, a.z, a.head, rows.row[r], col, diag, tile[r]);
    }

    template <int P> __device__ __forceinline__ void settle(int r, int b, int j, const typename V::col &col, float diag)
    {
        float &e = F::at(s, r, F::BLOCK * b + j);
        const bool pair = WHOLE || (live[r] & 1u << (F::BLOCK * b + j)) != 0;
        if constexpr (STEP::DEAD_ONCE) {
            if constexpr (P == 0 && !BOTH) {
                e = pair ? e : STEP::dead();
            }
            gather<0, P>(r, e, col, diag, true);
        } else {
            gather<0, P>(r, e, col, diag, pair);
            if constexpr (P == STEP::PASSES - 1) {
                e = pair ? e : 0.0f;
            }
        }
    }

    // f(row, column of the block, its values, the diagonal's value)
    template <int P, class EACH>
    __device__ __forceinline__ void for_each_of_block(int b, const typename F::diagonals &diag, const EACH &f)
    {
#pragma unroll
        for (int j = 0; j < F::BLOCK; j++) {
            typename V::col col{};
            if constexpr (STEP::ELEMENT_COLS || !LEAN) {
                col = V::make_col(a.x, a.z, a.head, kv0 + F::BLOCK_COLUMNS * b + j);
            } else { // what is read for the mask alone would be found to be needless, but takes its time to compile
                col.kv = kv0 + F::BLOCK_COLUMNS * b + j;
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float d = 0.0f;
                if constexpr (P == 0 && V::DIAG) {
                    d = diag.value[r][j];
                }
                f(r, j, col, d);
            }
        }
    }

    // Where BOTH: dead pairs of a tile that is not whole.
    __device__ __forceinline__ void mark_dead()
    {
        find_live();
        some_live = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            some_live |= F::any(live[r] != 0) ? 1u << r : 0u;
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                float &e = F::at(s, r, c);
                e = (live[r] & 1u << c) != 0 ? e : STEP::dead();
            }
        }
    }

    template <int P, bool SMALL = false> __device__ __forceinline__ void pass()
    {
        // Elements are settled once all have their values.
        constexpr bool LATE = (STEP::LOGISTIC && P == STEP::PASSES - 1) || (BOTH && P == 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            reset<0, P>(r);
        }
        typename F::diagonals diag;
#pragma unroll
        for (int b = 0; b < NB; b++) {
            if constexpr (P == 0 && V::DIAG) {
                F::diagonals::load(diag, entry, b);
            }
            for_each_of_block<P>(b, diag, [&](int r, int j, const typename V::col &col, float d) {
                value<P, SMALL>(r, b, j, col, d);
                if constexpr (!LATE) {
                    settle<P>(r, b, j, col, d);
                }
            });
        }
        if constexpr (LATE) {
            if constexpr (STEP::LOGISTIC && P == STEP::PASSES - 1) {
                logistic_weights<WHOLE>(s);
            }
            if constexpr (BOTH && P == 0) {
                if (!whole) {
                    mark_dead();
                }
            }
#pragma unroll
            for (int b = 0; b < NB; b++) {
                for_each_of_block<P>(
                    b, diag, [&](int r, int j, const typename V::col &col, float d) { settle<P>(r, b, j, col, d); });
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            share<0, P>(r);
            STEP::template update<P>(tile[r], rows.state[r], red[r], a.x, a.z, a.head, rows.row[r], kv0);
        }
        if constexpr (P + 1 < STEP::PASSES) {
            pass<P + 1>();
        }
    }

    // Scores become weights.
    __device__ __forceinline__ void weigh()
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            STEP::begin(tile[r], rows.state[r], a.x, a.z, a.head, rows.row[r], kv0);
        }
        if constexpr (!WHOLE && !BOTH) {
            find_live();
        }
        if constexpr (STEP::CAPPED) {
            if (all_small(s, STEP::CAP_SCALE)) {
                pass<0, true>();
                return;
            }
        }
        pass<0>();
    }

    // Of `kept`: was the step right, as far as this thread sees?
    __device__ __forceinline__ bool serves() const
    {
        bool all = true;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            all = all & STEP::serves(tile[r], rows.state[r]);
        }
        return all;
    }

    // Rows go to their next state; scale: the factor of what o has gathered so far. A row without a live pair
    // in this tile stays as it is, whatever was computed for it.
    __device__ __forceinline__ void accept(float (&scale)[ROWS])
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            bool some = true;
            if constexpr (BOTH) {
                some = (some_live >> r & 1u) != 0;
            } else if constexpr (!WHOLE) {
                some = F::any(live[r] != 0);
            }
            scale[r] = 1.0f;
            if (some) {
                if constexpr (STEP::RESCALE) {
                    scale[r] = STEP::o_scale(tile[r]);
                }
                STEP::next(rows.state[r], tile[r]);
                rows.seen |= 1u << r;
            }
        }
    }

    __device__ __forceinline__ void run(float (&scale)[ROWS])
    {
        weigh();
        accept(scale);
    }
};

// o *= scale, row by row, unless all rows of the warp keep theirs.
template <int MT, int DB> DEV void rescale(float (&o)[MT][DB][4], const float (&scale)[2 * MT])
{
    bool needed = false;
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        needed = needed | (scale[r] != 1.0f);
    }
    if (__any_sync(ALL_LANES, needed)) {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int b = 0; b < DB; b++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    o[m][b][i] *= scale[2 * m + i / 2];
                }
            }
        }
    }
}
