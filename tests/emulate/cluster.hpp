// cluster.hpp: the core's part for clusters of blocks, which run side by side: their barrier, and words that one block pushes to another,
// which come at some later switch of the other one's fibers and count at its mbarrier. A room of emulator.cpp.

void open_cluster_barrier(cluster &c)
{
    block *const self = now;
    for (unsigned k = 0; k < c.size; k++) {
        now = c.blocks[k];
        now->at_cluster_barrier = 0;
        now->epoch++;
        for (unsigned w = 0; w < core.launch->threads / LANES; w++) {
            set_ready(w, ~now->warps[w].gone);
        }
    }
    now = self;
    tell_cluster(c);
    c.here = 0;
    c.barriers++;
}

// Every thread of every block.
void wait_for_cluster(unsigned size, emulate_place at)
{
    cluster &c = *now->of;
    if (size < 2 || c.size != size) {
        fail("a barrier of a cluster of %u blocks in a launch with clusters of %u (%s:%d)", size, c.size, short_name(at.file), at.line);
    }
    if (now->left != core.launch->threads || now->at_barrier > 0) {
        fail("a cluster barrier that not all threads of the block come to (%s:%d)", short_name(at.file), at.line);
    }
    if (c.over > 0) {
        fail("a cluster barrier after %u of %u blocks of the cluster have left the kernel (%s:%d)", c.over, c.size, short_name(at.file), at.line);
    }
    now->cluster_barrier = at;
    if (++now->at_cluster_barrier == core.launch->threads && ++c.here == c.size) {
        open_cluster_barrier(c);
    }
    let_another_run();
}

void push_to_cluster(unsigned address, float x, unsigned barrier, unsigned rank, unsigned size, emulate_place at)
{
    const cluster &c = *now->of;
    shared_at(address, 4, core.thread, "pushes to its cluster", at);
    if (c.size != size || rank >= size || !c.blocks[rank]->running) {
        fail("pushes to block %u of a cluster of %u, which is not there or has left (%s:%d)", rank, size, short_name(at.file), at.line);
    }
    block &to = *c.blocks[rank];
    const auto found = to.hopper.mbarriers.find(barrier - WINDOW);
    if (found == to.hopper.mbarriers.end() || !found->second.fenced || found->second.cluster_barriers == c.barriers) {
        fail("pushes to block %u of its cluster, which has made no mbarrier at byte %u before a cluster barrier (%s:%d)", rank, barrier - WINDOW,
             short_name(at.file), at.line);
    }
    transfer t = {};
    t.pushed = true;
    t.word = x;
    t.line_bytes = 4;
    t.place = address;
    t.barrier = barrier;
    to.hopper.transfers.push_back(t);
}
