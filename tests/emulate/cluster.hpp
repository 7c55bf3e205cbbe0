// cluster.hpp: the core's part for clusters of blocks, included in emulator.cpp. A block that waits for its cluster, at a cluster barrier or
// an exchange, is parked: what the core knows of it, its memory and its fibers are put aside for another block of its cluster, until all
// of them wait. Then each goes on to where it waits next, in an order drawn from the seed, so that who still reads what another overwrites
// by then gets wrong numbers.

struct exchange { // an mbarrier that counts the bytes which a cluster pushes
    unsigned phase, expected, come;
    bool expects;
};

struct parked_block {
    bool begun, over;
    unsigned block;
    warp warps[MAX_WARPS];
    std::vector<fiber> fibers;
    std::vector<unsigned char> dynamic_bytes, static_bytes;
    std::vector<std::pair<unsigned, unsigned>> pending; // cells with copies under way
    std::map<unsigned, exchange> exchanges; // by address
    std::uint64_t random;
    bool greedy;
    unsigned left;
};

struct {
    unsigned size; // of the cluster at hand; 0: no block of it has come to a barrier
    unsigned rank;
    unsigned stacks;  // which set of stacks the block that begins gets
    unsigned waiting; // threads of the block that runs, at:
    unsigned exchange; // 0: a cluster barrier
    unsigned awaited[MAX_CLUSTER]; // the same of each that is parked
    emulate_place at;
    parked_block blocks[MAX_CLUSTER];
    std::map<unsigned, struct exchange> opened; // of a block that has not come to a cluster barrier yet
} cluster;

unsigned stacks_of_block() { return cluster.stacks; }

// A block that some of its threads keep from being parked.
void check_cluster_wait(const char *what)
{
    if (cluster.waiting > 0) {
        fail("%s: %u of %u threads of the block wait for their cluster (%s:%d)", what, cluster.waiting, core.left, short_name(cluster.at.file), cluster.at.line);
    }
}

bool is_parked() { return cluster.waiting > 0 && cluster.waiting == core.left; }

void park(parked_block &to)
{
    const unsigned threads = core.launch->threads;
    if (!hopper.mbarriers.empty()) {
        fail("mbarriers in a cluster of %u blocks, which the emulator does not have (%s:%d)", cluster.size, short_name(cluster.at.file), cluster.at.line);
    }
    std::memcpy(to.warps, core.warps, sizeof to.warps);
    to.fibers.resize(threads);
    for (unsigned i = 0; i < threads; i++) {
        std::swap(to.fibers[i], core.fibers[i]);
    }
    to.dynamic_bytes.assign(shared_bytes, shared_bytes + core.launch->smem_bytes);
    to.static_bytes.assign(core.static_from, core.static_from + core.static_bytes);
    to.pending.clear();
    for (unsigned i = 0; i < core.launch->smem_bytes / 4; i++) {
        if (core.cells[i].pending != 0) {
            to.pending.push_back({i, core.cells[i].pending});
        }
        core.cells[i].pending = 0;
        core.cells[i].generic = false;
    }
    cluster.awaited[cluster.rank] = cluster.exchange;
    to.random = core.random;
    to.greedy = core.greedy;
    to.left = core.left;
}

void unpark(parked_block &from)
{
    const unsigned threads = core.launch->threads;
    blockIdx.x = from.block;
    core.epoch++;
    core.left = from.left;
    core.at_barrier = 0;
    core.warps_ready = 0;
    core.random = from.random;
    core.greedy = from.greedy;
    start_hopper();
    std::memcpy(core.warps, from.warps, sizeof from.warps);
    for (unsigned i = 0; i < threads; i++) {
        std::swap(from.fibers[i], core.fibers[i]);
    }
    std::memcpy(shared_bytes, from.dynamic_bytes.data(), from.dynamic_bytes.size());
    if (!from.static_bytes.empty()) {
        std::memcpy(core.static_from, from.static_bytes.data(), from.static_bytes.size());
    }
    for (const auto &[index, pending] : from.pending) {
        core.cells[index].pending = pending;
    }
    for (unsigned w = 0; w < threads / LANES; w++) {
        set_ready(w, ~core.warps[w].gone);
    }
    cluster.waiting = 0;
    if (cluster.awaited[cluster.rank] != 0) {
        exchange &x = from.exchanges[cluster.awaited[cluster.rank]];
        if (!x.expects || x.come != x.expected) {
            fail("waits for %u bytes of its cluster, and %u have come when all others wait (%s:%d)", x.expected, x.come, short_name(cluster.at.file), cluster.at.line);
        }
        x = {x.phase + 1, 0, 0, false};
    }
}

void start_block(unsigned block);
void resume_block(); // until it is over or parked

// The block whose number is `block` has come to its first cluster barrier: it and the others, to their ends.
void run_cluster(unsigned block, std::vector<bool> &done)
{
    const unsigned size = cluster.size;
    const unsigned first = block / size * size;
    for (unsigned k = 0; k < size; k++) {
        cluster.blocks[k].begun = cluster.blocks[k].over = false;
        cluster.blocks[k].block = first + k;
        if (k != block - first) { // that one has opened its own
            cluster.blocks[k].exchanges.clear();
        }
    }
    cluster.blocks[block - first].begun = true;
    park(cluster.blocks[block - first]);
    std::uint64_t turn = core.launch->seed ^ block;
    unsigned over = 0;
    bool first_round = true;
    cluster.stacks = 0;
    while (over < size) {
        turn = mix(turn);
        for (unsigned i = 0; i < size; i++) {
            const unsigned k = (static_cast<unsigned>(turn % size) + ((turn >> 32 & 1u) != 0 ? i : size - 1 - i)) % size;
            parked_block &b = cluster.blocks[k];
            if (b.over || (first_round && b.begun)) {
                continue;
            }
            cluster.rank = k;
            if (b.begun) {
                unpark(b);
            } else {
                cluster.waiting = 0;
                cluster.stacks++;
                b.exchanges.clear();
                start_block(b.block);
                b.begun = true;
            }
            resume_block();
            if (is_parked()) {
                park(b);
            } else {
                b.over = true;
                over++;
            }
        }
        first_round = false;
        if (over > 0 && over < size) {
            fail("%u of %u blocks of a cluster have left the kernel, while the others wait for them (%s:%d)", over, size,
                 short_name(cluster.at.file), cluster.at.line);
        }
    }
    for (unsigned k = 0; k < size; k++) {
        done[first + k] = true;
    }
    cluster.size = 0;
    cluster.waiting = 0;
}

void join_cluster(unsigned size, emulate_place at)
{
    if (size < 2 || size > MAX_CLUSTER || gridDim.x % size != 0 || (cluster.size != 0 && cluster.size != size)) {
        fail("a cluster of %u blocks in a grid of %u; it takes 2 to %u that divide the grid (%s:%d)", size, gridDim.x, MAX_CLUSTER, short_name(at.file), at.line);
    }
    if (cluster.size == 0) {
        cluster.rank = blockIdx.x % size;
        cluster.blocks[cluster.rank].exchanges = std::move(cluster.opened);
        cluster.opened.clear();
    }
    cluster.size = size;
}

// Every thread of the block; exchange 0: at a cluster barrier.
void wait_for_cluster(unsigned size, unsigned exchange, emulate_place at)
{
    join_cluster(size, at);
    if (core.left != core.launch->threads || core.at_barrier > 0 || (cluster.waiting > 0 && cluster.exchange != exchange)) {
        fail("a wait for the cluster that not all threads of the block come to (%s:%d)", short_name(at.file), at.line);
    }
    cluster.at = at;
    cluster.exchange = exchange;
    cluster.waiting++;
    let_another_run();
}

std::map<unsigned, exchange> &own_exchanges() { return cluster.size == 0 ? cluster.opened : cluster.blocks[cluster.rank].exchanges; }

exchange &exchange_at(std::map<unsigned, exchange> &all, unsigned address, emulate_place at)
{
    const auto found = all.find(address);
    if (found == all.end()) {
        fail("no exchange is at byte %u of shared memory (%s:%d)", address - WINDOW, short_name(at.file), at.line);
    }
    return found->second;
}

void open_exchange(unsigned address, emulate_place at)
{
    shared_at(address, 8, core.thread, "an exchange is", at);
    own_exchanges()[address] = {};
}

void expect_at_exchange(unsigned address, unsigned bytes, emulate_place at)
{
    exchange &x = exchange_at(own_exchanges(), address, at);
    if (x.expects) {
        fail("expects bytes twice in one phase of an exchange (%s:%d)", short_name(at.file), at.line);
    }
    x.expects = true;
    x.expected = bytes;
}

void push_to_cluster(unsigned address, float x, unsigned exchange, unsigned rank, unsigned size, emulate_place at)
{
    shared_at(address, 4, core.thread, "pushes to its cluster", at);
    if (cluster.size != size || rank >= size || !cluster.blocks[rank].begun || cluster.blocks[rank].over) {
        fail("pushes to block %u of a cluster of %u, which has not come to a cluster barrier or has left (%s:%d)", rank, size, short_name(at.file), at.line);
    }
    parked_block &b = cluster.blocks[rank];
    exchange_at(b.exchanges, exchange, at).come += 4;
    unsigned char *to = rank == cluster.rank ? shared_bytes + (address - WINDOW) : b.dynamic_bytes.data() + (address - WINDOW);
    std::memcpy(to, &x, 4);
}

void wait_at_exchange(unsigned address, unsigned parity, unsigned size, emulate_place at)
{
    join_cluster(size, at);
    if ((exchange_at(own_exchanges(), address, at).phase & 1u) != parity) {
        fail("waits for a phase of an exchange that is over (%s:%d)", short_name(at.file), at.line);
    }
    wait_for_cluster(size, address, at);
}
