// schedule.hpp: who goes on. A room of emulator.cpp.
//
// Within a block a fiber hands over to another one, drawn from the block's seed. Where several blocks have begun, a block goes on for a slice of
// switches, drawn from the launch's seed, and main chooses the next. A block whose fibers all wait goes on no further than that; where none
// can, it is a deadlock, and nobody who waits spins: so it is one for certain.

bool complete_some(bool must); // hopper.hpp
void flush_writes_now_and_then();
void note_atomic(const void *p, unsigned bytes, bool acquires, bool releases, bool writes); // global.hpp

// ---- turns ------------------------------------------------------------------------------------------------------------------

unsigned load_word(const unsigned *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
bool has_come(const turn_wait &t) { return (load_word(t.word) == t.turn) != t.another; }

bool wake_turns() // was there one
{
    bool any = false;
    for (std::size_t i = now->turns.size(); i-- > 0;) {
        const turn_wait t = now->turns[i];
        if (has_come(t)) {
            now->turns.erase(now->turns.begin() + static_cast<std::ptrdiff_t>(i));
            set_ready(warp_of(t.thread), 1u << lane_of(t.thread));
            any = true;
        }
    }
    return any;
}

bool can_go_on(const block &b)
{
    if (b.warps_ready != 0 || !b.hopper.transfers.empty()) {
        return true;
    }
    return std::any_of(b.turns.begin(), b.turns.end(), has_come);
}

// ---- in a block -----------------------------------------------------------------------------------------------------------------

bool find_ready()
{
    while (now->warps_ready == 0 && complete_some(true)) {
    }
    return now->warps_ready != 0 || wake_turns();
}

unsigned take_ready(unsigned w)
{
    const unsigned lane = one_bit_of(now->warps[w].ready);
    now->warps[w].ready &= ~(1u << lane);
    if (now->warps[w].ready == 0) {
        now->warps_ready &= ~(1u << w);
    }
    return w * LANES + lane;
}

// Suspends the fiber at hand, which is not ready, for one that is; comes back when it is ready again.
void let_another_run()
{
    const unsigned self = core.thread;
    complete_some(false);
    if (!find_ready() || (several() && --core.slice == 0)) {
        switch_context(&now->fibers[self].at, &core.main);
        return;
    }
    unsigned w = warp_of(self);
    if (!now->greedy || now->warps[w].ready == 0) {
        w = one_bit_of(now->warps_ready);
    }
    const unsigned next = take_ready(w);
    become(next);
    if (next != self) {
        switch_context(&now->fibers[self].at, &now->fibers[next].at);
        // `become` has been called for this thread by whoever switched to it
    }
}

void wait_for_turn(const turn_wait &t)
{
    while (!has_come(t)) {
        now->turns.push_back(t);
        let_another_run();
    }
    note_atomic(t.word, sizeof *t.word, !t.another, false, false);
}

// Where other blocks may come in between: beside what they see of each other. Now and then all of them come, and for long.
void let_others_in()
{
    if (!several() || draw_order() % 4 != 0) {
        return;
    }
    core.slice = draw_order() % 2 != 0 ? 1 : core.slice;
    if (draw_order() % 4 == 0) {
        core.slice = 1;
        now->held = 1u << draw_order() % 20;
    }
    set_ready(warp_of(core.thread), 1u << lane_of(core.thread));
    let_another_run();
}

void thread_main()
{
    core.launch->thread(core.launch->params);
    const unsigned self = core.thread;
    if (now->at_barrier > 0) {
        fail("leaves the kernel while %u threads of its block wait at __syncthreads (%s:%d)", now->at_barrier, short_name(now->barrier.file),
             now->barrier.line);
    }
    if (now->at_cluster_barrier > 0) {
        fail("leaves the kernel and a cluster barrier is where not all threads of the block come to: %u wait there (%s:%d)", now->at_cluster_barrier,
             short_name(now->cluster_barrier.file), now->cluster_barrier.line);
    }
    now->warps[warp_of(self)].gone |= 1u << lane_of(self);
    now->left--;
    let_another_run();
    std::abort(); // a thread that has left does not come back
}

// ---- from block to block ------------------------------------------------------------------------------------------------------------

// A kernel's __shared__ variables have one place: they are the block's that runs.
void bring_statics()
{
    if (core.static_bytes == 0 || core.has_statics == now) {
        return;
    }
    for (block *b : core.blocks) {
        if (b == core.has_statics) {
            b->statics.assign(core.static_from, core.static_from + core.static_bytes);
        }
    }
    if (now->statics.size() == core.static_bytes) {
        std::memcpy(core.static_from, now->statics.data(), core.static_bytes);
    }
    core.has_statics = now;
}

// Nor has dynamic shared memory more than one place for who takes it by a pointer: it is the block's that did last.
void bring_dynamic()
{
    if (core.has_dynamic == now) {
        return;
    }
    for (block *b : core.blocks) {
        if (b == core.has_dynamic) {
            b->own_bytes.assign(shared_bytes, shared_bytes + b->own_bytes.size());
            b->bytes = b->own_bytes.data();
        }
    }
    std::memcpy(shared_bytes, now->own_bytes.data(), now->own_bytes.size());
    now->bytes = shared_bytes;
    core.has_dynamic = now;
}

// Until all threads of the block wait or have left, or its slice is over.
void resume(block *b)
{
    now = b;
    blockIdx.x = b->number;
    bring_statics();
    core.slice = 1 + draw_order() % (1u << draw_order() % 12);
    wake_turns();
    if (!find_ready()) {
        return;
    }
    become(take_ready(one_bit_of(now->warps_ready)));
    switch_context(&core.main, &now->fibers[core.thread].at);
}

// How often a block is the one to go on; held: those that are held back, which go on where no other can.
unsigned chance_of(const block &b, bool held) { return b.running && (b.held > 0) == held && can_go_on(b) ? b.often : 0; }

// One that can go on, some of them seldom, so that others get far ahead; nullptr: none can.
block *choose_block()
{
    for (const bool held : {false, true}) {
        unsigned sum = 0;
        for (unsigned i = 0; i < core.beside; i++) {
            sum += chance_of(*core.blocks[i], held);
        }
        unsigned at = sum > 0 && several() ? draw_order() % sum : 0;
        for (unsigned i = 0; i < core.beside && sum > 0; i++) {
            const unsigned chance = chance_of(*core.blocks[i], held);
            if (at < chance) {
                return core.blocks[i];
            }
            at -= chance;
        }
    }
    return nullptr;
}

void let_held_come_nearer()
{
    for (unsigned i = 0; i < core.beside; i++) {
        core.blocks[i]->held -= core.blocks[i]->held > 0 ? 1 : 0;
    }
}
