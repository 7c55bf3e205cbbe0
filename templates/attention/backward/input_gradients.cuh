// attention/backward/input_gradients.cuh: sums into gradients of inputs from the pairs of a tile. A thread has COLS
// keys, 8 apart, and of each of NB blocks of 8 queries the two adjacent ones 2 (lane % 4) + {0, 1}; the 8 lanes of one
// lane % 4 have adjacent keys, lane / 4.
#pragma once
#include "attention/backward/parts.cuh"

namespace back
{

constexpr int SLOTS = max_of(variant::SITES, 1);
template <int F> constexpr bool any_site() // of this form
{
    for (int g = 0; g < variant::SITES; g++) {
        if (variant::SITE_FORM[g] == F) {
            return true;
        }
    }
    return false;
}

// ---- tables ------------------------------------------------------------------------------------------
//
// Where an input is read at computed places, lanes of a warp may add to one element at once. A warp has a table in
// shared memory for such a site: of entries that are each lane's own, if they fit, else of one entry for all lanes,
// which sum up what goes to one entry first; or none, and one lane adds that sum in global memory. The size may be
// known at the launch alone.

template <class V> __host__ __device__ constexpr bool site_meets(int site)
{
    if constexpr (requires { V::SITE_MEETS[0]; }) {
        return V::SITE_MEETS[site];
    } else {
        return false;
    }
}
template <class V> __host__ __device__ constexpr int table_start(int site) // floats ahead of it
{
    int floats = 0;
    if constexpr (requires { V::SITE_ROOM[0]; }) {
        for (int g = 0; g < site; g++) {
            floats += V::SITE_ROOM[g];
        }
    }
    return floats;
}
constexpr int TABLE_FLOATS = table_start<variant>(variant::SITES); // of a warp
constexpr int SUMS_BYTES = 4 * TABLE_FLOATS * WARPS;

// The sum over the lanes in `peers`, to the first of them: neighbours among them, then neighbours of those.
DEV float peers_sum(float x, u32 peers)
{
    const int lane = lane_id();
    u32 above = peers & 0xfffffffeu << lane;
    u32 before = static_cast<u32>(__popc(peers & ((1u << lane) - 1u)));
    while (__any_sync(ALL_LANES, above != 0)) {
        const int next = __ffs(static_cast<int>(above));
        const float y = __shfl_sync(ALL_LANES, x, next == 0 ? lane : next - 1);
        x += next == 0 ? 0.0f : y;
        above &= ~__ballot_sync(ALL_LANES, (before & 1u) != 0);
        before >>= 1;
    }
    return x;
}

// What a thread has gathered for each site; only the members of the site's form exist in registers.
template <int NB, int COLS> struct site_sums {
    static constexpr int DIAGONALS = NB + COLS; // blocks of 8 diagonals that the pairs of a warp touch
    float head[SLOTS];
    float column[SLOTS][COLS];
    // block b - c + COLS of the tile's queries and keys; [j]: query 2 (lane % 4) + j
    float diagonal[SLOTS][DIAGONALS][2];
    u64 place[SLOTS];     // where all diagonals of the last such tiles go together
    float waiting[SLOTS]; // what they add there
};

// Lane (g, t) of block D holds what goes to diagonal 8 D + 2 t + j - g. Lanes whose g differs in one bit come
// together, the upper ones moved along; afterwards lanes with g = 0 have block D's diagonals 8 D + 2 t + j.
template <int DIAGONALS> DEV void gather_diagonals(float (&x)[DIAGONALS][2])
{
    const int lane = lane_id();
    const int t = lane % 4;
    const u32 next = static_cast<u32>((lane & ~3) | ((t + 1) & 3)) ^ 4u;
#pragma unroll
    for (int d = 0; d < DIAGONALS; d++) { // by 1: the other place j, or the lane after
        const float beyond = d + 1 < DIAGONALS ? x[d + 1][0] : 0.0f;
        const float first = __shfl_xor_sync(ALL_LANES, x[d][1], 4);
        const float second = __shfl_sync(ALL_LANES, t < 1 ? beyond : x[d][0], static_cast<int>(next));
        x[d][0] += first;
        x[d][1] += second;
    }
#pragma unroll
    for (int step = 1; step <= 2; step++) { // by 2 and 4: 1 and 2 lanes
        const int from = ((lane & ~3) | ((t + step) & 3)) ^ (4 << step);
#pragma unroll
        for (int d = 0; d < DIAGONALS; d++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float beyond = d + 1 < DIAGONALS ? x[d + 1][j] : 0.0f;
                x[d][j] += __shfl_sync(ALL_LANES, t < step ? beyond : x[d][j], from);
            }
        }
    }
}

template <int NB, int COLS> struct site_context {
    static constexpr int DIAGONALS = NB + COLS;
    const back_params &p;
    const variant::head &head;
    site_sums<NB, COLS> &sums;
    u32 tables; // shared address of the warp's

    template <int G, class V = variant> __device__ __forceinline__ u32 table() const
    {
        return tables + 4 * table_start<V>(G);
    }
    template <int G, class V = variant> __device__ __forceinline__ i64 entries() const
    {
        return V::SITE_ENTRIES[G] > 0 ? V::SITE_ENTRIES[G] : V::template site_entries<G>(p.x, p.z);
    }
    template <int G, class V = variant> __device__ __forceinline__ bool by_lane() const
    {
        return 32 * entries<G>() <= V::SITE_ROOM[G];
    }
    template <int G, class V = variant> __device__ __forceinline__ bool has_table() const
    {
        return entries<G>() <= V::SITE_ROOM[G];
    }

    template <int G, class V = variant> __device__ __forceinline__ void clear_table() const
    {
        if (has_table<G>()) {
            const int floats = static_cast<int>(entries<G>()) * (by_lane<G>() ? 32 : 1);
            for (int i = lane_id(); i < floats; i += 32) {
                store_shared(table<G>() + static_cast<u32>(4 * i), 0.0f);
            }
            __syncwarp();
        }
    }
    // x of each lane, 0 where it has none: to the element that the pair reads.
    template <int G, class V = variant> __device__ __forceinline__ void
    add_meeting(bool some, float x, const variant::row &row, const variant::col &col, int delta) const
    {
        const i64 index = V::template site_index<G>(p.x, p.z, head, row, col, delta);
        if (by_lane<G>()) {
            if (V::SITE_ENTRIES[G] > 0 || entries<G>() > 0) {
                const u32 to = table<G>() + static_cast<u32>((static_cast<int>(index) * 32 + lane_id()) * 4);
                store_shared(to, load_shared(to) + x);
            }
            return;
        }
        using key = typename pick<(V::SITE_ENTRIES[G] > 0), u32, u64>::type;
        const u32 met = __match_any_sync(ALL_LANES, static_cast<key>(index));
        const u32 others = __ballot_sync(ALL_LANES, some);
        const u32 peers = some ? met & others : 0;
        const float sum = peers_sum(x, peers);
        const bool first = some && __ffs(static_cast<int>(peers)) - 1 == lane_id();
        if (has_table<G>()) {
            if (first) {
                const u32 to = table<G>() + static_cast<u32>(static_cast<int>(index) * 4);
                store_shared(to, load_shared(to) + sum);
            }
            __syncwarp();
        } else if (first) {
            add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, row, col, delta), sum);
        }
    }
    template <int G, class V = variant> __device__ __forceinline__ void leave_table() const
    {
        if (has_table<G>()) {
            __syncwarp();
            const int n = static_cast<int>(entries<G>());
            for (int i = lane_id(); i < n; i += 32) {
                float sum = 0.0f;
                if (by_lane<G>()) {
#pragma unroll 8
                    for (int k = 0; k < 32; k++) { // each lane another bank
                        sum += load_shared(table<G>() + static_cast<u32>((i * 32 + (k + i) % 32) * 4));
                    }
                } else {
                    sum = load_shared(table<G>() + static_cast<u32>(4 * i));
                }
                if (sum != 0.0f) {
                    add_sum(V::template site_entry<G>(p.g, p.x, p.z, head, i), sum);
                }
            }
            __syncwarp();
        }
    }

    __device__ __forceinline__ void clear() const
    {
#pragma unroll
        for (int g = 0; g < SLOTS; g++) {
            sums.head[g] = 0.0f;
#pragma unroll
            for (int c = 0; c < COLS; c++) {
                sums.column[g][c] = 0.0f;
            }
            sums.place[g] = 0;
            sums.waiting[g] = 0.0f;
        }
        repeat<0, variant::SITES>([&]<int G>() {
            if constexpr (site_meets<variant>(G)) {
                clear_table<G>();
            }
        });
    }
    __device__ __forceinline__ void clear_tile() const
    {
#pragma unroll
        for (int g = 0; g < SLOTS; g++) {
#pragma unroll
            for (int d = 0; d < DIAGONALS; d++) {
                sums.diagonal[g][d][0] = 0.0f;
                sums.diagonal[g][d][1] = 0.0f;
            }
        }
    }
    // Of one pair. `row_sum` gathers over the keys of a query.
    __device__ __forceinline__ void pair(const float (&site)[SLOTS], bool live, int b, int c, int j, int delta,
                                         const variant::row &row, const variant::col &col,
                                         float (&row_sum)[SLOTS]) const
    {
        repeat<0, variant::SITES>([&]<int G>() {
            constexpr int FORM = variant::SITE_FORM[G];
            const float x = live ? site[G] : 0.0f;
            if constexpr (FORM == SITE_HEAD) {
                sums.head[G] += x;
            } else if constexpr (FORM == SITE_ROW) {
                row_sum[G] += x;
            } else if constexpr (FORM == SITE_COLUMN) {
                sums.column[G][c] += x;
            } else if constexpr (FORM == SITE_DIAGONAL) {
                sums.diagonal[G][b - c + COLS][j] += x;
            } else {
                static_assert(FORM == SITE_ELEMENT, "a site is SITE_HEAD, _ROW, _COLUMN, _DIAGONAL or _ELEMENT");
                if constexpr (site_meets<variant>(G)) {
                    add_meeting<G>(live, x, row, col, delta);
                } else if (live) {
                    add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, row, col, delta), x);
                }
            }
        });
    }
    // A query's sums over this warp's keys.
    __device__ __forceinline__ void end_row(float (&row_sum)[SLOTS], const variant::row &row, bool exists) const
    {
        repeat<0, variant::SITES>([&]<int G>() {
            if constexpr (variant::SITE_FORM[G] == SITE_ROW) {
                float x = row_sum[G];
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2) {
                    x += __shfl_xor_sync(ALL_LANES, x, lanes);
                }
                const bool mine = lane_id() < 4 && exists;
                if constexpr (site_meets<variant>(G)) {
                    add_meeting<G>(mine, mine ? x : 0.0f, row, variant::col{}, 0);
                } else if (mine) {
                    add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, row, variant::col{}, 0), x);
                }
            }
        });
    }
    template <int G> __device__ __forceinline__ auto *diagonal_address(int delta) const
    {
        return variant::template site_address<G>(p.g, p.x, p.z, head, variant::row{}, variant::col{}, delta);
    }
    // A diagonal of the warp's pairs that is this lane's: blocks `first` to first + 7 are the warp's.
    DEV int lane_diagonal(int first, int j) { return 8 * (first + lane_id() / 4 - COLS) + 2 * (lane_id() % 4) + j; }
    DEV bool is_diagonal(int diagonal) { return diagonal > -8 * COLS && diagonal < 8 * NB; }

    // Far from the query many tables have one element for long distances: tiles that add to the same one are added up
    // in registers, without an exchange between lanes. Was this one of them?
    template <int G> __device__ __forceinline__ bool take_together(int delta) const
    {
        const u64 place = reinterpret_cast<u64>(diagonal_address<G>(delta));
        bool same = true;
#pragma unroll
        for (int first = 0; first < DIAGONALS; first += 8) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int diagonal = lane_diagonal(first, j);
                same = same && (!is_diagonal(diagonal) ||
                                reinterpret_cast<u64>(diagonal_address<G>(delta + diagonal)) == place);
            }
        }
        if (!__all_sync(ALL_LANES, same)) {
            return false;
        }
        if (place != sums.place[G]) {
            leave_together<G>();
            sums.place[G] = place;
        }
#pragma unroll
        for (int d = 0; d < DIAGONALS; d++) {
            sums.waiting[G] += sums.diagonal[G][d][0] + sums.diagonal[G][d][1];
        }
        return true;
    }
    template <int G> __device__ __forceinline__ void leave_together() const
    {
        const float sum = lanes_sum<32>(sums.waiting[G]);
        if (lane_id() == 0 && sum != 0.0f) { // else the place may be no one's
            add_sum(reinterpret_cast<decltype(diagonal_address<G>(0))>(sums.place[G]), sum);
        }
        sums.waiting[G] = 0.0f;
    }
    // `delta`: at.q - at.kv of the warp's first query and first key.
    __device__ __forceinline__ void end_tile(int delta) const
    {
        repeat<0, variant::SITES>([&]<int G>() {
            if constexpr (variant::SITE_FORM[G] == SITE_DIAGONAL) {
                if (take_together<G>(delta)) {
                    return;
                }
                gather_diagonals(sums.diagonal[G]);
                const int lane = lane_id();
#pragma unroll
                for (int first = 0; first < DIAGONALS; first += 8) { // lanes g take block first + g
                    float mine[2] = {0.0f, 0.0f};
#pragma unroll
                    for (int d = first; d < min_of(first + 8, DIAGONALS); d++) {
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                            const float x = __shfl_sync(ALL_LANES, sums.diagonal[G][d][j], lane % 4);
                            mine[j] = lane / 4 == d - first ? x : mine[j];
                        }
                    }
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        const int diagonal = lane_diagonal(first, j);
                        // beyond the warp's diagonals there is nothing, and the address may be no one's
                        const bool exists = is_diagonal(diagonal) && mine[j] != 0.0f;
                        auto *to = diagonal_address<G>(delta + diagonal);
                        add_sum_of_lanes(exists ? to : decltype(to){nullptr}, mine[j]);
                    }
                }
            }
        });
    }
    __device__ __forceinline__ void end_head(const variant::col (&col)[COLS], int kv0) const
    {
        repeat<0, variant::SITES>([&]<int G>() {
            constexpr int FORM = variant::SITE_FORM[G];
            if constexpr (site_meets<variant>(G)) {
                leave_table<G>();
            } else if constexpr (FORM == SITE_HEAD) {
                const float x = lanes_sum<32>(sums.head[G]);
                if (lane_id() == 0) {
                    add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, variant::row{}, variant::col{}, 0),
                            x);
                }
            } else if constexpr (FORM == SITE_DIAGONAL) {
                leave_together<G>();
            } else if constexpr (FORM == SITE_COLUMN) {
#pragma unroll
                for (int c = 0; c < COLS; c++) {
                    const float x = sum4(sums.column[G][c]);
                    if (lane_id() % 4 == 0 && kv0 + 8 * c < p.z.len_kv) {
                        add_sum(variant::template site_address<G>(p.g, p.x, p.z, head, variant::row{}, col[c], 0), x);
                    }
                }
            }
        });
    }
};

} // namespace back
