// global.hpp: global memory, and which of what one block writes another may count on. A room of emulator.cpp.
//
// By causality order as the PTX memory model has it. A byte knows the last write to it: by which thread of which block, at which moment of that
// thread. Within a block, barriers, __syncwarp, named barriers and mbarriers put moments in order, as they do for shared memory. From block
// to block, whoever releases (end_turn, take_turn, an atomic behind a fence_global) leaves a message at the word: a snapshot of what its thread
// knows of its block, and all that it has heard of others. Whoever acquires there (wait_turn, take_turn, a fence_global behind an atomic) hears
// all that was left since the word was last stored to; a barrier of a cluster tells all of its blocks everything. Another block's write may be
// counted on by a thread that has heard of a snapshot behind it. Which block happened to be first plays no part in that: blocks that run one
// after the other are judged like others, and an order that is missing is found where the values are right.

// ---- moments of a block -------------------------------------------------------------------------------------------------------

struct view { // what a thread of a block knows of its block
    unsigned thread, epoch, warp_epoch;
    const clocks *heard;
};

moment moment_of(const block &b, unsigned thread)
{
    const unsigned w = warp_of(thread);
    return {thread, b.epoch, b.warps[w].epoch, b.hopper.clock[w].at[w], b.global.releases};
}
moment present() { return moment_of(*now, core.thread); }

bool comes_before(const moment &m, const view &v)
{
    if (m.thread == v.thread || m.epoch != v.epoch) {
        return m.thread == v.thread || m.epoch < v.epoch;
    }
    const unsigned w = warp_of(m.thread);
    return w == warp_of(v.thread) ? m.warp_epoch < v.warp_epoch : m.clock <= v.heard->at[w];
}
bool has_come(const moment &m)
{
    const unsigned w = warp_of(core.thread);
    return comes_before(m, {core.thread, now->epoch, now->warps[w].epoch, &now->hopper.clock[w]});
}

// ---- what is heard of other blocks -----------------------------------------------------------------------------------------------

bool is_in(const moment &m, const snapshot &s)
{
    return m.releases < s.at.releases && comes_before(m, {s.at.thread, s.at.epoch, s.at.warp_epoch, &s.heard});
}

bool is_known(const known *k, unsigned number, const moment &m)
{
    if (k == nullptr) {
        return false;
    }
    auto i = std::lower_bound(k->begin(), k->end(), number, [](const snapshot *s, unsigned n) { return s->block < n; });
    for (; i != k->end() && (*i)->block == number; ++i) {
        if (is_in(m, **i)) {
            return true;
        }
    }
    return false;
}

bool is_elder(const snapshot *a, const snapshot *b) { return a->block != b->block ? a->block < b->block : a->at.thread < b->at.thread; }

// Of each thread the last one.
const known *join(const known *a, const known *b)
{
    if (a == nullptr || b == nullptr || a == b) {
        return a == nullptr ? b : a;
    }
    known all;
    all.reserve(a->size() + b->size());
    for (std::size_t i = 0, j = 0; i < a->size() || j < b->size();) {
        const snapshot *x = i < a->size() ? (*a)[i] : nullptr;
        const snapshot *y = j < b->size() ? (*b)[j] : nullptr;
        const bool left = y == nullptr || (x != nullptr && !is_elder(y, x));
        const bool right = x == nullptr || (y != nullptr && !is_elder(x, y));
        all.push_back(left && right ? (x->at.releases < y->at.releases ? y : x) : left ? x : y);
        i += left;
        j += right;
    }
    core.global.sets.push_back(std::move(all));
    return &core.global.sets.back();
}

// What the thread at hand has heard of others, by what its block has acquired so far. A thread's acquisition holds those it made before.
const known *all_heard()
{
    const known *all = nullptr;
    bool taken[MAX_THREADS] = {};
    const std::vector<acquisition> &list = now->global.acquired;
    for (std::size_t i = list.size(); i-- > 0;) {
        const acquisition &a = list[i];
        if (!taken[a.at.thread] && has_come(a.at)) {
            taken[a.at.thread] = true;
            all = join(all, a.what);
        }
    }
    return all;
}

void acquire(const known *what, unsigned seen)
{
    std::vector<acquisition> &list = now->global.acquired;
    const auto last = std::find_if(list.rbegin(), list.rend(), [](const acquisition &a) { return a.at.thread == core.thread; });
    const known *before = last == list.rend() ? nullptr : last->what;
    const known *all = join(before, what);
    if (all != nullptr && (before == nullptr || *all != *before || last->seen != seen)) {
        list.push_back({present(), all, seen});
    }
}

const snapshot *take_snapshot()
{
    const moment at = present();
    now->global.releases++;
    core.global.snapshots.push_back({now->number, at, now->hopper.clock[warp_of(core.thread)]});
    core.global.snapshots.back().at.releases = now->global.releases;
    return &core.global.snapshots.back();
}

const known *join(const known *a, const snapshot *s)
{
    core.global.sets.push_back({s});
    return join(a, &core.global.sets.back());
}

// ---- writes --------------------------------------------------------------------------------------------------------------------------

const char *const WRITE_NAME[] = {"stored", "added by an atomic", "stored from shared memory", "added from shared memory"};
access_kind sum_of_floats() { return core.launch->deterministic != 0 ? ACCESS_SUM_IN_ORDER : ACCESS_SUM; }
bool is_sum(write_kind how) { return how == WRITE_ATOMIC || how == WRITE_BULK_SUM; }

unsigned add_write(write_kind how, bool under_way)
{
    core.global.writes.push_back({now->number, present(), how, under_way});
    return core.global.next_write++;
}

// The number of this thread's writes of this kind at this moment.
unsigned find_write(write_kind how)
{
    unsigned &id = now->global.last_write[how][core.thread];
    if (id < core.global.first_write || core.global.writes[id - core.global.first_write].at != present()) {
        id = add_write(how, false);
    }
    return id;
}

const char *const ACCESS_NAME[] = {"reads", "stores over", "adds to", "adds to"};

bool has_heard_of(unsigned number)
{
    return std::any_of(now->global.acquired.begin(), now->global.acquired.end(), [&](const acquisition &a) {
        return std::any_of(a.what->begin(), a.what->end(), [&](const snapshot *s) { return s->block == number; });
    });
}

[[noreturn]] void fail_unknown(const written &w, access_kind what, std::size_t offset)
{
    const char *why = w.block == now->number       ? "with no barrier in between"
                      : !has_heard_of(w.block)     ? "with no release and acquire in between: this block has acquired nothing of that one"
                                                   : "with no release and acquire in between: what this block has acquired of that one does not hold it, "
                                                     "or is not this thread's";
    fail_at(core.launch->memory + offset, "%s what thread %u of block %u has %s in this launch%s %s", ACCESS_NAME[what], w.at.thread, w.block,
            WRITE_NAME[w.how], w.under_way ? "," : "", w.under_way ? "which nobody has waited for" : why);
}

// Of the launch before, where that may still run.
void check_launch_before(access_kind what, std::size_t offset)
{
    const std::vector<moment> &waits = now->global.waits;
    if (std::none_of(waits.rbegin(), waits.rend(), [](const moment &m) { return has_come(m); })) {
        fail_at(core.launch->memory + offset, "%s what the launch before has written, which may still run, with no wait_for_launch_before ahead of it",
                ACCESS_NAME[what]);
    }
}

bool hears_of(const written &w, unsigned id, bool bulk)
{
    if (bulk) {
        return is_known(now->global.fenced_bulk[core.thread], w.block, w.at);
    }
    const std::vector<acquisition> &list = now->global.acquired;
    return std::any_of(list.rbegin(), list.rend(),
                       [&](const acquisition &a) { return has_come(a.at) && (a.seen == id || is_known(a.what, w.block, w.at)); });
}

// bulk: by TMA, for which a thread has heard of what it had when it last fenced.
void check_write(unsigned id, access_kind what, bool bulk, std::size_t offset)
{
    if (id < core.global.first_write) {
        check_launch_before(what, offset);
        return;
    }
    const written &w = core.global.writes[id - core.global.first_write];
    const bool own = w.block == now->number;
    if (what == ACCESS_SUM ? is_sum(w.how) : what == ACCESS_STORE && !is_sum(w.how)) {
        return; // sums come in any order, unless it is said; two blocks may store the same value
    }
    if (w.under_way || !(own ? has_come(w.at) : hears_of(w, id, bulk))) {
        fail_unknown(w, what, offset);
    }
    now->global.last_known[bulk][core.thread] = id;
}

void check_bytes(std::size_t offset, std::size_t n, access_kind what, bool bulk)
{
    const unsigned oldest = core.global.oldest_write;
    const unsigned *id = core.global.write_of + offset;
    unsigned known = now->global.last_known[bulk][core.thread];
    for (std::size_t i = 0; i < n; i++) {
        if (id[i] >= oldest && id[i] != known) {
            check_write(id[i], what, bulk, offset + i);
            known = id[i];
        }
    }
}

constexpr unsigned PAGE_BITS = 12;
void mark_bytes(std::size_t offset, std::size_t n, unsigned id)
{
    std::fill_n(core.global.write_of + offset, n, id);
    core.global.last_on_page[offset >> PAGE_BITS] = core.global.last_on_page[(offset + n - 1) >> PAGE_BITS] = id;
}

// ---- accesses ----------------------------------------------------------------------------------------------------------------------------

bool is_global(const void *p, std::size_t &offset)
{
    offset = static_cast<std::size_t>(static_cast<const unsigned char *>(p) - core.launch->memory);
    return offset < core.launch->memory_bytes;
}

bool is_written(std::size_t offset) { return core.global.last_on_page[offset >> PAGE_BITS] >= core.global.oldest_write; }

// Up to a page of them.
void note_global(std::size_t offset, std::size_t n, access_kind what)
{
    if (is_written(offset) || is_written(offset + n - 1)) {
        check_bytes(offset, n, what, false);
    }
    if (what != ACCESS_READ) {
        mark_bytes(offset, n, find_write(what == ACCESS_STORE ? WRITE_PLAIN : WRITE_ATOMIC));
    }
}

void note_bulk_read(const void *p, std::size_t n)
{
    std::size_t offset;
    if (is_global(p, offset)) {
        check_bytes(offset, n, ACCESS_READ, true);
    }
}

// From its issue on nobody may count on the bytes; its thread does when it has waited for them.
void note_bulk_write(void *p, std::size_t n, unsigned id)
{
    std::size_t offset;
    if (is_global(p, offset)) {
        check_bytes(offset, n, core.global.writes[id - core.global.first_write].how == WRITE_BULK_SUM ? sum_of_floats() : ACCESS_STORE, true);
        for (std::size_t i = 0; i < n; i += std::size_t{1} << PAGE_BITS) {
            mark_bytes(offset + i, std::min(n - i, std::size_t{1} << PAGE_BITS), id);
        }
    }
}

void finish_bulk_write(unsigned id)
{
    written &w = core.global.writes[id - core.global.first_write];
    w.at = present();
    w.under_way = false;
}

// ---- words that tell -----------------------------------------------------------------------------------------------------------------------

// The word at p as an atomic finds it: what has been left there since it was last stored to.
const known *read_message(const void *p, std::size_t offset)
{
    const unsigned id = core.global.write_of[offset];
    if (id < core.global.first_write || core.global.writes[id - core.global.first_write].how != WRITE_ATOMIC) {
        core.global.messages.erase(p);
        return nullptr;
    }
    const auto found = core.global.messages.find(p);
    return found == core.global.messages.end() ? nullptr : found->second;
}

// An atomic other than those that add up data, of which nobody waits for a value.
void note_atomic(const void *p, unsigned bytes, bool acquires, bool releases, bool writes)
{
    std::size_t offset;
    if (!is_global(p, offset)) {
        return;
    }
    check_bytes(offset, bytes, ACCESS_SUM, false);
    const known *message = read_message(p, offset);
    block_writes &g = now->global;
    if (acquires) {
        acquire(message, core.global.write_of[offset]);
    } else if (message != nullptr) {
        g.unfenced[core.thread] = join(g.unfenced[core.thread], message);
    }
    if (!writes) {
        return;
    }
    mark_bytes(offset, bytes, find_write(WRITE_ATOMIC)); // which is told of, too
    const fence_made &f = g.fences[core.thread];
    if (releases) {
        message = join(message, join(all_heard(), take_snapshot()));
    } else if (f.at != nullptr) {
        message = join(message, join(f.heard, f.at));
    }
    if (message != nullptr) {
        core.global.messages[p] = message;
    }
}

void note_fence() // of all that the thread has heard and read before, for what it writes next
{
    block_writes &g = now->global;
    acquire(g.unfenced[core.thread], 0);
    g.unfenced[core.thread] = nullptr;
    g.fences[core.thread] = {all_heard(), take_snapshot()};
}

// ---- launches and blocks ----------------------------------------------------------------------------------------------------------------------

void *map_shadow(std::size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        std::perror("emulator: memory");
        std::abort();
    }
    return p;
}

void start_global()
{
    auto &g = core.global;
    const std::size_t bytes = core.launch->memory_bytes;
    if (g.write_of == nullptr) {
        g.write_of = static_cast<unsigned *>(map_shadow(bytes * sizeof(unsigned)));
        g.last_on_page = static_cast<unsigned *>(map_shadow((bytes >> PAGE_BITS) * sizeof(unsigned)));
    }
    if (g.next_write > 0xf0000000u) { // numbers begin anew
        madvise(g.write_of, bytes * sizeof(unsigned), MADV_DONTNEED);
        madvise(g.last_on_page, (bytes >> PAGE_BITS) * sizeof(unsigned), MADV_DONTNEED);
        g.next_write = g.first_write = 1;
    }
    g.oldest_write = core.launch->early != 0 ? g.first_write : g.next_write;
    g.first_write = g.next_write;
    g.writes.clear();
    g.messages.clear();
    g.sets.clear();
    g.snapshots.clear();
}

void start_block_writes()
{
    block_writes &g = now->global;
    const unsigned n = core.launch->threads;
    for (unsigned *list : {g.last_write[0], g.last_write[1], g.last_known[0], g.last_known[1]}) {
        std::fill_n(list, n, 0u);
    }
    std::fill_n(g.fences, n, fence_made{});
    std::fill_n(g.unfenced, n, nullptr);
    std::fill_n(g.fenced_bulk, n, nullptr);
    g.releases = 0;
    g.acquired.clear();
    g.waits.clear();
    g.bulk.clear();
}

// All threads of all blocks of a cluster are at its barrier, and their epochs have gone on.
void tell_cluster(const cluster &c)
{
    block *const self = now;
    const unsigned thread = core.thread;
    const known *all = nullptr;
    core.thread = 0;
    for (const bool telling : {true, false}) {
        for (unsigned k = 0; k < c.size; k++) {
            now = c.blocks[k];
            if (telling) {
                all = join(all, join(all_heard(), take_snapshot()));
            } else {
                acquire(all, 0);
                now->epoch++; // it has come for all threads
            }
        }
    }
    now = self;
    core.thread = thread;
}
