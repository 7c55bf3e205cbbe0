// pair.hpp: the core's part for clusters of two blocks that hand each other tiles: arrivals at the other's mbarriers, loads for both, copies
// of shared memory. A room of emulator.cpp.
//
// What comes from the other block may come as late as TMA's. Who has to be done with a place before is judged by what this block's warps had
// told the other one when that began: their clocks at their arrivals there.

block &peer_block(const char *what, emulate_place at)
{
    const cluster &c = *now->of;
    if (c.size != 2 || !c.blocks[now->number % 2 ^ 1]->running) {
        fail("%s the other block of a cluster of %u, which is not there or has left (%s:%d)", what, c.size, short_name(at.file), at.line);
    }
    return *c.blocks[now->number % 2 ^ 1];
}

mbarrier &mbarrier_of(block &b, unsigned address, emulate_place at)
{
    const auto found = b.hopper.mbarriers.find(address - WINDOW);
    if (found == b.hopper.mbarriers.end() || !found->second.fenced || found->second.cluster_barriers == now->of->barriers) {
        fail("names the other block's mbarrier at byte %u, which that has not made before a cluster barrier (%s:%d)", address - WINDOW,
             short_name(at.file), at.line);
    }
    return found->second;
}

void arrive_at_peer(unsigned address, emulate_place at)
{
    block &to = peer_block("arrives at", at);
    if (mbarrier_of(to, address, at).pending == 0) {
        fail("arrives at the other block's mbarrier at byte %u, where all arrivals of the phase have come (%s:%d)", address - WINDOW,
             short_name(at.file), at.line);
    }
    take(now->hopper.told, clock_of(warp_of(core.thread)));
    clock_of(warp_of(core.thread)).at[warp_of(core.thread)]++;
    transfer t = {};
    t.arrival = true;
    t.line_bytes = 4;
    t.barrier = address;
    t.place = address;
    to.hopper.transfers.push_back(t);
}

constexpr unsigned STRANGER = MAX_WARPS - 1; // a warp that no kernel here has: in its name the other block writes

// As that block.
template <class F> void in_block(block &b, F f)
{
    block *const self = now;
    const unsigned thread = core.thread;
    now = &b;
    if (&b != self) {
        core.thread = STRANGER * LANES;
        clock_of(STRANGER) = b.hopper.told;
    }
    f();
    now = self;
    core.thread = thread;
}

void load_both(const transfer &t, emulate_place at)
{
    block &other = peer_block("loads for", at);
    mbarrier_of(other, t.barrier, at);
    start_load(t, at);
    in_block(other, [&] { start_load(t, at); });
}

void copy_to_other(unsigned to, unsigned from, unsigned bytes, unsigned barrier, emulate_place at)
{
    block &other = peer_block("copies to", at);
    mbarrier_of(other, barrier, at);
    if (bytes % 16 != 0 || bytes == 0 || to % 16 != 0 || from % 16 != 0) {
        fail("a copy of %u bytes from byte %u to byte %u of shared memory; all are multiples of 16 (%s:%d)", bytes, from - WINDOW, to - WINDOW,
             short_name(at.file), at.line);
    }
    shared_at(from, 16, core.thread, "a copy reads", at);
    shared_at(from + bytes - 16, 16, core.thread, "a copy reads", at);
    transfer t = {};
    t.line_bytes = bytes;
    t.place = from;
    t.thread = core.thread;
    t.group = NO_GROUP;
    t.copied = ++core.copies;
    start_reading(t, at);
    t.line = now->bytes + (from - WINDOW);
    t.place = to;
    t.barrier = barrier;
    t.from = now;
    in_block(other, [&] { start_load(t, at); });
}
