// rowwise/inner_scan_rings.cuh: for rowwise/inner_scan.cuh and rowwise/inner_scan_lookback.cuh: how batches of places
// come to shared memory and from there to registers.
#pragma once
#include "rowwise/inner_scan_tiles.cuh"

namespace many
{

// Does walk W read tensor K? Scans of walks up to it are all that is made but in the last one.
template <int W, int K, class X = variant> __host__ __device__ constexpr bool walk_reads()
{
    if constexpr (W + 1 < WALKS) {
        return (X::WALK_READS[W] >> K & 1) != 0;
    } else {
        return true;
    }
}

// Batches of a warp wait in two rings: of tensors that several walks read, cfg::AGAIN_STAGES of them, each at the place
// of its number, so that a walk back finds the last ones of the walk before; and of the others, cfg::STAGES, in turn.
template <int K, class X = variant> __host__ __device__ constexpr bool read_again()
{
    bool again = false;
    if constexpr (WALKS > 1) {
        for (int w = 0; w + 1 < WALKS; w++) {
            again |= (X::WALK_READS[w] >> K & 1) != 0;
        }
    }
    return again;
}
template <int K> constexpr int TENSOR_BYTES = PLACES *STRIP *static_cast<int>(sizeof(in_type<K>)); // of a batch
template <int K, bool AGAIN> __host__ __device__ constexpr int bytes_before() // of tensor K, in a batch of that ring
{
    if constexpr (K == 0) {
        return 0;
    } else {
        return bytes_before<K - 1, AGAIN>() + (read_again<K - 1>() == AGAIN ? TENSOR_BYTES<K - 1> : 0);
    }
}
template <int K> constexpr int FIRST_BYTE = bytes_before<K, read_again<K>()>();
constexpr int AGAIN_BYTES = bytes_before<variant::IN, true>();
constexpr int ONCE_BYTES = bytes_before<variant::IN, false>();
constexpr int RING_BYTES = cfg::AGAIN_STAGES * AGAIN_BYTES + cfg::STAGES * ONCE_BYTES; // of a warp
static_assert(cfg::AGAIN_STAGES >= cfg::STAGES);

template <int W> constexpr int AHEAD = (W + 1 < WALKS ? cfg::AGAIN_STAGES : cfg::STAGES) - 1; // batches under way

// What the last walk alone reads of its first batches goes on its way beside the end of the walk before.
template <int W> constexpr int EARLY = W > 0 && W + 1 == WALKS ? min_of(cfg::STAGES, cfg::AGAIN_STAGES - 1) : 0;

// Is tensor K of batch k of walk W there, or on its way, from the walk before?
template <int W, int K> DEV bool is_left(int k, int batches)
{
    if constexpr (W == 0) {
        return false;
    } else if constexpr (walk_reads<W - 1, K>()) {
        constexpr bool BACK = variant::WALK_REVERSE[W] != variant::WALK_REVERSE[W - 1];
        return (BACK ? k : batches - 1) < cfg::AGAIN_STAGES;
    } else {
        return !read_again<K>() && k < EARLY<W>;
    }
}
// Will memory be asked once more for tensor K of batch k of walk W?
template <int W, int K> DEV bool comes_again(int k, int batches)
{
    if constexpr (W + 1 == WALKS || !read_again<K>()) {
        return false;
    } else {
        constexpr bool BACK = variant::WALK_REVERSE[W] != variant::WALK_REVERSE[W + 1];
        return !is_left<W + 1, K>(BACK ? batches - 1 - k : k, batches);
    }
}

// Where a walk's next batch lies, for what a lane copies of it: it moves on from batch to batch, since finding it takes
// as long as a scan of it.
template <int K> struct copies { // of tensor K
    static constexpr int SIZE = static_cast<int>(sizeof(in_type<K>));
    static constexpr int UNITS = STRIP * SIZE / 16; // of 16 bytes, of a place
    static constexpr int STEP = 32 / UNITS;         // places that the warp copies at once
    static_assert(32 % UNITS == 0);
};
struct sources {
    const char *of[IN];
    i64 advance[IN]; // to the next batch
};
template <int W> DEV void find_sources(sources &to, const rows_params &p, const strip &s, int base, int advance)
{
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr (walk_reads<W, K>()) {
            using c = copies<K>;
            const i64 step = p.in[K].stride[3] * c::SIZE;
            to.of[K] = reinterpret_cast<const char *>(row_of<in_type<K>>(p.in[K], s.first)) +
                       lane_of_warp() % c::UNITS * 16 + (base + lane_of_warp() / c::UNITS) * step;
            to.advance[K] = advance * step;
        }
    });
}

// cfg::KEPT: L2 gives up last what is read; of several walks, what comes again, and first what does not.
DEV u64 policy_of(bool again) { return WALKS == 1 || again ? keep_policy() : leave_policy(); }
template <int OFFSET> DEV void copy_places(u32 to, const char *from, int bytes, u64 policy)
{
    if constexpr (cfg::KEPT) {
        copy16_as_async<OFFSET>(to, from, bytes, policy);
    } else {
        copy16_async(to + OFFSET, from, bytes);
    }
}

// The places from `base` on of tensor K go on their way into shared memory.
template <int K>
DEV void fetch_places(u32 to, const char *from, const rows_params &p, const strip &s, int base, u64 policy)
{
    using c = copies<K>;
    const i64 step = p.in[K].stride[3] * c::SIZE;
    keep(to); // of the warp: it takes no register of the thread
    u32 at = to + static_cast<u32>(lane_of_warp() * 16);
    hold_in_thread(at);
    if (s.rows == STRIP && base + PLACES <= end_of(p, s)) {
        repeat<0, PLACES / c::STEP>([&]<int G>() {
            copy_places<G * 512>(at, from, 16, policy);
            from += c::STEP * step;
        });
    } else {
        const int here = min(s.rows * c::SIZE - lane_of_warp() % c::UNITS * 16, 16); // bytes of rows that there are
        const int first = base + lane_of_warp() / c::UNITS;
#pragma unroll 1
        for (int k = 0; k < PLACES / c::STEP; k++) {
            if (here > 0 && first + k * c::STEP < end_of(p, s)) {
                copy_places<0>(at, from, here, policy);
            }
            at += 512;
            from += c::STEP * step;
        }
    }
}

struct ring_place { // of a batch, in both rings, from where the first one begins
    u32 again, once;
};
// of its tensor K
template <int K> DEV u32 byte_of(const ring_place &at)
{
    return (read_again<K>() ? at.again : at.once) + static_cast<u32>(FIRST_BYTE<K>);
}
constexpr u32 FIRST_ONCE = cfg::AGAIN_STAGES * AGAIN_BYTES;
template <int W> DEV ring_place find_in_ring(const route<W> &way, int k)
{
    return {static_cast<u32>(way.number(k) % cfg::AGAIN_STAGES * AGAIN_BYTES),
            FIRST_ONCE + static_cast<u32>(k % cfg::STAGES * ONCE_BYTES)};
}
// It moves on from batch to batch, as all that says where does: finding it takes as long as a scan of it.
template <int W> DEV ring_place move_on_in_ring(const ring_place &at)
{
    constexpr u32 LAST_AGAIN = (cfg::AGAIN_STAGES - 1) * AGAIN_BYTES;
    constexpr u32 LAST_ONCE = FIRST_ONCE + (cfg::STAGES - 1) * ONCE_BYTES;
    const u32 on = at.again == LAST_AGAIN ? 0 : at.again + AGAIN_BYTES;
    const u32 back = at.again == 0 ? LAST_AGAIN : at.again - AGAIN_BYTES;
    return {variant::WALK_REVERSE[W] ? back : on, at.once == LAST_ONCE ? FIRST_ONCE : at.once + ONCE_BYTES};
}

struct coming_batch { // which goes on its way next
    u32 rings;
    sources from;
    ring_place next;
};

template <int W>
DEV void fetch_batch(coming_batch &coming, const rows_params &p, const strip &s, const route<W> &way, int k)
{
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr (walk_reads<W, K>()) {
            if (!is_left<W, K>(k, way.batches)) {
                fetch_places<K>(coming.rings + byte_of<K>(coming.next), coming.from.of[K], p, s, way.base(k),
                                policy_of(comes_again<W, K>(k, way.batches)));
            }
            coming.from.of[K] += coming.from.advance[K];
        }
    });
}

// Of batch k of walk W, what no walk before reads.
template <int W>
DEV void fetch_early(const coming_batch &coming, const rows_params &p, const strip &s, const route<W> &way, int k)
{
    sources from;
    find_sources<W>(from, p, s, way.base(k), way.advance);
    const ring_place at = find_in_ring(way, k);
    repeat<0, variant::IN>([&]<int K>() {
        if constexpr (!read_again<K>()) {
            fetch_places<K>(coming.rings + byte_of<K>(at), from.of[K], p, s, way.base(k), policy_of(false));
        }
    });
}

// Batch k goes on its way. Behind the last one there is none, or one of the next walk; but a group of copies all the
// same: they are counted.
template <int W> DEV void fetch_next(coming_batch &coming, const rows_params &p, const strip &s, const sharing &with,
                                     const route<W> &way, int k)
{
    if constexpr ((EARLY<W + 1>) > 0) {
        const int early = k - way.batches;
        if (early >= 0 && early < EARLY<W + 1> && early < way.batches) {
            fetch_early(coming, p, s, find_route<W + 1>(p, s, with), early);
        }
    }
    if (k < way.batches) {
        fetch_batch<W>(coming, p, s, way, k);
    }
    copy_commit();
    coming.next = move_on_in_ring<W>(coming.next);
}

// own[]: what tensor K's places of a batch have of the lane, from the beginning of shared memory on. The compiler knows
// nothing of it, or it would add it up anew for each place.
DEV void find_own(u32 (&own)[IN], u32 rings, const ring_place &at)
{
    repeat<0, variant::IN>([&]<int K>() {
        u32 first = rings + byte_of<K>(at); // of the warp: it takes no register of the thread
        keep(first);
        own[K] = first + static_cast<u32>(lane_of_warp() * (words_of<K>() * 4));
        if constexpr (TOPS) {
            keep(own[K]);
        }
    });
}
template <int W> DEV void take(piece &to, const unsigned char *shared_bytes, const u32 (&own)[IN], int place)
{
    repeat<0, variant::IN>([&]<int K>() {
        constexpr int COUNT = walk_reads<W, K>() ? words_of<K>() : 0; // of others there may be something on its way
        const unsigned char *from = shared_bytes + own[K] + place * (32 * COUNT * 4);
        if constexpr (COUNT == 4) {
            const uint4 x = *reinterpret_cast<const uint4 *>(from);
            to.word[first_word<K>()] = x.x;
            to.word[first_word<K>() + 1] = x.y;
            to.word[first_word<K>() + 2] = x.z;
            to.word[first_word<K>() + 3] = x.w;
        } else if constexpr (COUNT == 2) {
            const uint2 x = *reinterpret_cast<const uint2 *>(from);
            to.word[first_word<K>()] = x.x;
            to.word[first_word<K>() + 1] = x.y;
        } else if constexpr (COUNT == 1) {
            to.word[first_word<K>()] = *reinterpret_cast<const u32 *>(from);
        }
    });
}

} // namespace many
