// attention/backward/wide_sm90_peer.cuh: attention_bwd_wide_sm90 in pairs of thread blocks (cfg::BACK_PAIRED): what the
// two of a cluster tell and send each other.
//
// A pair has two neighbouring blocks of keys and walks the query tiles that either has live pairs with. Both have all
// of Q and dO, by multicast, half of the columns from each. Rank r adds half r of the columns of dq', of the keys of
// both: for that it is sent the other's ds, and loads half r of the other's K, in turns with the half 1 - r of its own
// K, which only scores read.
//
// That nobody waits for ever. Within a pair: a tile's steps, in the order of this list, wait for steps of the same tile
// above them or for steps of tiles before, of either block: Q, dO, own half of K there; scores, dw; weights; dv'
// (W_READ, dO left); ds (MADE); ds sent (its place is free: W_READ there, CREDIT here); dk' (Q left); other half of K;
// dq'; its turn; its additions. Who waits at a turn has given back all places of the tile. The warps that load, add and
// relay do their parts in the same order.
// Between pairs: the ticket of a tile is taken by rank 0, for both, when both have told of all that they stored before
// (finish_last) and stand at this tile. So a pair that waits for its turn has nothing that another pair waits for, and
// one that stores waits for no other. Words of turns are one for each rank: they say that this half of the columns has
// been stored. Under DETERMINISTIC rank r waits for rank r of a pair that was begun before, at the same tile, and all
// walk tiles upwards. No phase of a barrier ends twice while someone waits for it: each is followed by a step of those
// who wait.
#pragma once
#include "attention/backward/sm90_common.cuh"
#include "common/ptx_pair_sm90.cuh"

namespace back
{

template <bool BOUNDED = cfg::BOUND_WAITS> DEV void wait_phase(u32 barrier, u32 parity, const char *what)
{
    if constexpr (BOUNDED) {
        mbarrier_wait_bounded(barrier, parity, what);
    } else {
        mbarrier_wait(barrier, parity);
    }
}

// Words from rank 0 to rank 1, by one thread of each. make(): rank 0's word, made when rank 1 asks for it.
struct peer_mail {
    static constexpr int BYTES = 24;
    u32 address; // full, free, the word

    __device__ __forceinline__ void init() const
    {
        mbarrier_init(address, 1);
        mbarrier_init(address + 8, 1);
    }
    template <class MAKE> __device__ __forceinline__ u32 exchange(u32 nth, MAKE make) const
    {
        if (cluster_rank() == 0) {
            wait_phase(address + 8, nth & 1, "rank 1 to ask");
            const u32 x = make();
            push_to_peer(address + 16, x, address);
            return x;
        }
        mbarrier_arrive_expect(address, 4);
        mbarrier_arrive_peer(address + 8);
        wait_phase(address, nth & 1, "word of rank 0");
        return __float_as_uint(load_shared(address + 16));
    }
};

constexpr int PANEL_WARPS = WARPS / 2;

// BYTES of shared memory at a multiple of 8.
struct peer_places {
    static constexpr int X = 8 * (STAGES + 1), PANELS = X + 16, TURN = PANELS + 2 * 48, NEXT = TURN + peer_mail::BYTES;
    static constexpr int BYTES = round_up(NEXT + peer_mail::BYTES, 32);
    u32 address;

    // Each loading warp tells the other's that its block's place is free and its barrier armed: by stage of Q; of dO.
    __device__ __forceinline__ u32 q(u32 stage) const { return address + 8 * stage; }
    __device__ __forceinline__ u32 dout() const { return address + 8 * STAGES; }
    // the place of two halves of K: own, other's, own, ...
    __device__ __forceinline__ ring_barriers<1> x() const { return {address + X}; }
    __device__ __forceinline__ peer_mail turn() const { return {address + TURN}; }
    __device__ __forceinline__ peer_mail next() const { return {address + NEXT}; }
    // By panel of 64 queries: weights have been read; own ds is there; the other's ds is there; the other has room for
    // ds; and has got it.
    __device__ __forceinline__ u32 w_read(u32 g) const { return address + PANELS + 48 * g; }
    __device__ __forceinline__ u32 made(u32 g) const { return w_read(g) + 8; }
    __device__ __forceinline__ u32 full(u32 g) const { return w_read(g) + 16; }
    __device__ __forceinline__ u32 credit(u32 g) const { return w_read(g) + 24; }
    __device__ __forceinline__ u32 got(u32 g) const { return w_read(g) + 32; }
    __device__ __forceinline__ u32 ended(u32 g) const { return w_read(g) + 40; } // a word: no tile comes any more

    __device__ __forceinline__ void init() const
    {
#pragma unroll
        for (u32 i = 0; i <= STAGES; i++) {
            mbarrier_init(q(i), 1);
        }
        x().init(WARPS);
        turn().init();
        next().init();
#pragma unroll
        for (u32 g = 0; g < 2; g++) {
            mbarrier_init(w_read(g), PANEL_WARPS);
            mbarrier_init(made(g), PANEL_WARPS);
            mbarrier_init(full(g), 1);
            mbarrier_init(credit(g), 1);
            mbarrier_init(got(g), 1);
            store_shared(ended(g), 0u);
        }
    }
    // By the leader of the warp that loads, ahead of its half of a tile for both.
    __device__ __forceinline__ void meet(u32 barrier, u32 parity) const
    {
        mbarrier_arrive_peer(barrier);
        wait_phase(barrier, parity, "place of Q, dO of the other");
    }
};

// By one thread: ds of the queries of panel g, from here and to here, tile after tile. The weights' panel takes it.
DEV void relay_panel(peer_places peer, u32 g, u32 weights, u32 ds, u32 bytes)
{
#pragma unroll 1
    for (u32 parity = 0;; parity ^= 1) {
        wait_phase(peer.w_read(g), parity, "weights read, relay");
        if (__float_as_uint(load_shared(peer.ended(g))) != 0) {
            break;
        }
        mbarrier_arrive_expect(peer.full(g), bytes);
        mbarrier_arrive_peer(peer.credit(g));
        wait_phase(peer.made(g), parity, "own ds, relay");
        wait_phase(peer.credit(g), parity, "room for ds, relay");
        copy_to_peer(weights, ds, bytes, peer.full(g));
        wait_phase(peer.full(g), parity, "ds of the other, relay");
        mbarrier_arrive_peer(peer.got(g));
    }
}

} // namespace back
