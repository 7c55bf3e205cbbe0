// hopper.hpp: the part of the core that sm_90 adds: mbarriers, named barriers, TMA. A room of emulator.cpp.
//
// Everything asynchronous is as late as it may be: a TMA load's bytes come at some switch of fibers after its issue, a product is
// computed when its group is waited for; until then the places and the accumulators hold NaN. Order between warps is a vector of
// clocks: an arrival gives, a wait takes.

clocks &clock_of(unsigned w) { return now->hopper.clock[w]; }
void take(clocks &to, const clocks &from)
{
    for (unsigned i = 0; i <= MAX_WARPS; i++) {
        to.at[i] = std::max(to.at[i], from.at[i]);
    }
}
void give(clocks &to, unsigned w)
{
    take(to, clock_of(w));
    clock_of(w).at[w]++;
}

void start_hopper()
{
    for (unsigned w = 0; w <= MAX_WARPS; w++) {
        now->hopper.clock[w] = {};
        now->hopper.clock[w].at[w] = 1;
    }
    now->hopper.mbarriers.clear();
    now->hopper.transfers.clear();
    now->hopper.stores.clear();
    std::memset(now->hopper.store_groups, 0, sizeof now->hopper.store_groups);
    for (named_barrier &b : now->hopper.named) {
        b = {};
    }
    for (group_part &p : now->hopper.part) {
        p = {};
    }
    std::memset(now->hopper.proxy_fences, 0, sizeof now->hopper.proxy_fences);
    now->hopper.told = {};
}

// ---- mbarriers ------------------------------------------------------------------------------------------------------------

void wake(std::vector<unsigned> &threads)
{
    for (const unsigned t : threads) {
        set_ready(warp_of(t), 1u << lane_of(t));
    }
    threads.clear();
}

void settle(mbarrier &b)
{
    if (b.pending == 0 && b.bytes == 0) {
        b.phase++;
        b.pending = b.arrivals;
        b.over = b.now;
        b.now = {};
        wake(b.waiting);
    }
}

mbarrier &mbarrier_at(unsigned address, emulate_place at)
{
    shared_at(address, 8, core.thread, "an mbarrier is", at);
    const auto found = now->hopper.mbarriers.find(address - WINDOW);
    if (found == now->hopper.mbarriers.end()) {
        fail("there is no mbarrier at byte %u of shared memory: nobody has made one (%s:%d)", address - WINDOW, short_name(at.file), at.line);
    }
    mbarrier &b = found->second;
    if (b.thread != core.thread && (b.epoch == now->epoch || !b.fenced)) {
        fail("uses the mbarrier at byte %u of shared memory, which thread %u has made with no %s in between (%s:%d)", address - WINDOW, b.thread,
             b.fenced ? "barrier" : "mbarrier_init_fence", short_name(at.file), at.line);
    }
    return b;
}

void arrive(unsigned address, unsigned bytes, emulate_place at)
{
    mbarrier &b = mbarrier_at(address, at);
    if (b.pending == 0) {
        fail("arrives at the mbarrier at byte %u of shared memory, where all %u arrivals of the phase have come (%s:%d)", address - WINDOW, b.arrivals,
             short_name(at.file), at.line);
    }
    b.pending--;
    b.bytes += bytes;
    give(b.now, warp_of(core.thread));
    settle(b);
}

// ---- named barriers -----------------------------------------------------------------------------------------------------------

void open_named(named_barrier &b)
{
    for (const unsigned t : b.waiting) {
        take(b.all, clock_of(warp_of(t)));
    }
    for (const unsigned t : b.waiting) {
        const unsigned w = warp_of(t);
        if (lane_of(t) == 0) {
            now->warps[w].epoch++;
            clock_of(w) = b.all;
            clock_of(w).at[w]++;
        }
    }
    b.arrived = 0;
    b.answer = b.any;
    b.any = false;
    b.all = {};
    wake(b.waiting);
}

bool meet_at_named(unsigned id, unsigned threads, bool vote, emulate_place at)
{
    if (id < 1 || id > 15 || threads % LANES != 0 || threads == 0) {
        fail("bar.sync %u of %u threads; it takes 1 .. 15 and multiples of 32 (%s:%d)", id, threads, short_name(at.file), at.line);
    }
    named_barrier &b = now->hopper.named[id];
    if (b.arrived > 0 && (b.threads != threads || (!b.waiting.empty() && b.at.line != at.line))) {
        fail("named barrier %u of %u threads (%s:%d), where others wait for %u at another place (%s:%d)", id, threads, short_name(at.file), at.line,
             b.threads, short_name(b.at.file), b.at.line);
    }
    b.threads = threads;
    b.at = at;
    b.arrived++;
    b.any |= vote;
    b.waiting.push_back(core.thread);
    if (b.arrived == threads) {
        open_named(b);
    }
    let_another_run();
    return b.answer;
}

void arrive_at_named(unsigned id, unsigned threads, emulate_place at) // bar.arrive: it does not wait
{
    if (id < 1 || id > 15 || threads % LANES != 0 || threads == 0) {
        fail("bar.arrive %u of %u threads; it takes 1 .. 15 and multiples of 32 (%s:%d)", id, threads, short_name(at.file), at.line);
    }
    named_barrier &b = now->hopper.named[id];
    if (b.arrived > 0 && b.threads != threads) {
        fail("named barrier %u of %u threads (%s:%d), where others come for %u (%s:%d)", id, threads, short_name(at.file), at.line, b.threads,
             short_name(b.at.file), b.at.line);
    }
    b.threads = threads;
    b.at = b.waiting.empty() ? at : b.at;
    b.arrived++;
    give(b.all, warp_of(core.thread));
    if (b.arrived == threads) {
        open_named(b);
    }
}

// ---- TMA ------------------------------------------------------------------------------------------------------------------

unsigned swizzled(unsigned address, unsigned bits) // bits: how many of them are exchanged
{
    return address ^ ((address >> 7 & ((1u << bits) - 1u)) << 4);
}

// Offset of a box's row in the tensor, but for its first dim; -1: it is outside. Modulo 2^64, which packed sequences rely on.
long long row_offset(const transfer &t, unsigned row)
{
    const emulate_tensor_map &m = t.map;
    const long long place[5] = {t.at[0], t.at[1] + static_cast<long long>(row % m.box[1]), t.at[2] + static_cast<long long>(row / m.box[1]), t.at[3],
                                t.at[4]};
    unsigned long long offset = 0;
    for (unsigned i = 1; i < 5; i++) {
        if (place[i] < 0 || place[i] >= m.dim[i]) {
            return -1;
        }
        offset += static_cast<unsigned long long>(place[i]) * static_cast<unsigned long long>(m.stride[i]);
    }
    return static_cast<long long>(offset);
}

// Calls f(place in the tensor, element of the row) for what is inside.
template <class F> void each_element(const transfer &t, unsigned row, F f)
{
    const long long offset = row_offset(t, row);
    for (unsigned i = 0; offset >= 0 && i < t.map.box[0]; i++) {
        const long long x = t.at[0] + static_cast<long long>(i);
        if (x >= 0 && x < t.map.dim[0]) {
            f(t.map.data + offset + x * t.map.element_bytes, i);
        }
    }
}

// Calls f(place in global memory, bytes) for what a transfer takes or writes there, row by row.
template <class F> void each_line(const transfer &t, F f)
{
    if (t.line_bytes != 0) {
        f(t.sum != nullptr ? reinterpret_cast<unsigned char *>(t.sum) : const_cast<unsigned char *>(t.line), t.line_bytes);
    }
    for (unsigned r = 0; t.line_bytes == 0 && r < t.rows(); r++) {
        const long long offset = row_offset(t, r);
        const long long first = std::max(t.at[0], 0), end = std::min(t.at[0] + static_cast<long long>(t.map.box[0]), t.map.dim[0]);
        if (offset >= 0 && first < end) {
            f(t.map.data + offset + first * t.map.element_bytes, static_cast<std::size_t>(end - first) * t.map.element_bytes);
        }
    }
}

void move_row(const transfer &t, unsigned row, unsigned char *out)
{
    std::memset(out, 0, t.row_bytes());
    each_element(t, row, [&](const unsigned char *from, unsigned i) { std::memcpy(out + i * t.map.element_bytes, from, t.map.element_bytes); });
}

void put(unsigned offset, const void *from, unsigned bytes = 16) // by TMA, or by another block
{
    std::memcpy(now->bytes + offset, from, bytes);
    for (unsigned k = 0; k < bytes / 4; k++) {
        cell &x = now->cells[offset / 4 + k];
        x.pending = 0;
        x.write = {now->epoch, 0, SEVERAL, ENGINE, clock_of(ENGINE).at[ENGINE]};
        x.generic = false;
    }
}

void complete(std::size_t which)
{
    const transfer t = now->hopper.transfers[which];
    now->hopper.transfers[which] = now->hopper.transfers.back();
    now->hopper.transfers.pop_back();
    const unsigned row_bytes = t.row_bytes();
    unsigned char row[256];
    clocks &engine = clock_of(ENGINE);
    engine.at[ENGINE]++;
    if (t.arrival) {
        mbarrier &b = now->hopper.mbarriers.find(t.barrier - WINDOW)->second;
        b.pending--;
        settle(b);
        return;
    }
    if (t.from != nullptr) {
        std::vector<transfer> &reading = t.from->hopper.stores;
        reading.erase(std::find_if(reading.begin(), reading.end(), [&](const transfer &x) { return x.copied == t.copied; }));
    }
    if (t.pushed) {
        put(t.place - WINDOW, &t.word, 4);
    }
    for (unsigned i = 0; !t.pushed && i < t.line_bytes; i += 16) {
        put(t.place + i - WINDOW, t.line + i);
    }
    for (unsigned r = 0; t.line_bytes == 0 && r < t.rows(); r++) {
        move_row(t, r, row);
        for (unsigned i = 0; i < row_bytes; i += 16) {
            put(swizzled(t.place + r * row_bytes + i, t.map.swizzle) - WINDOW, row + i);
        }
    }
    mbarrier &b = now->hopper.mbarriers.find(t.barrier - WINDOW)->second;
    b.bytes -= t.bytes();
    b.now.at[ENGINE] = std::max(b.now.at[ENGINE], engine.at[ENGINE]);
    settle(b);
}

// At a switch of fibers. must: there is no other way to go on.
bool complete_some(bool must)
{
    const std::size_t n = now->hopper.transfers.size();
    if (n == 0 || (!must && draw() % now->lazy != 0)) {
        return false;
    }
    complete(draw() % n);
    return true;
}

const product *reader_of(unsigned from, unsigned bytes);

// Ordinary accesses that TMA or wgmma come after: the thread must have seen them, and writes be fenced.
void check_async(unsigned index, bool writes, emulate_place at)
{
    cell &x = now->cells[index];
    if (x.pending != 0) {
        fail("%s byte %u of shared memory, to which %s is still under way (%s:%d)", writes ? "a TMA load to" : "a wgmma that reads", 4 * index,
             x.pending == SEVERAL ? "a TMA load" : "a cp.async", short_name(at.file), at.line);
    }
    if (unordered(x.write, core.thread) || (x.write.epoch == now->epoch && x.write.warp == ENGINE && clock_of(warp_of(core.thread)).at[ENGINE] < x.write.clock)) {
        fail_race(index, writes ? "lets TMA write" : "lets wgmma read", x.write, "written", at);
    }
    if (writes && unordered_reads(x, core.thread)) {
        fail_race(index, "lets TMA write", x.read, "read", at);
    }
    if (x.generic && x.fences == now->hopper.proxy_fences[x.write.thread]) {
        fail("%s byte %u of shared memory, which thread %u has written with no fence_async_proxy after it (%s:%d)",
             writes ? "a TMA load to" : "a wgmma that reads", 4 * index, x.write.thread, short_name(at.file), at.line);
    }
}

emulate_tensor_map read_map(const void *map, unsigned rank, emulate_place at)
{
    if (reinterpret_cast<std::uintptr_t>(map) % 64 != 0) {
        emulate_misaligned(map, 64, at);
    }
    emulate_tensor_map m;
    std::memcpy(&m, map, sizeof m);
    if (m.magic != EMULATE_TENSOR_MAP) {
        fail("TMA through what is no tensor map (%s:%d)", short_name(at.file), at.line);
    }
    if (m.rank != rank) {
        fail("TMA with %u coordinates through a tensor map of rank %u (%s:%d)", rank, m.rank, short_name(at.file), at.line);
    }
    return m;
}

transfer make_transfer(const emulate_tensor_map &map, unsigned place, unsigned barrier, unsigned rank, const int *first)
{
    transfer t = {};
    t.map = map;
    t.place = place;
    t.barrier = barrier;
    t.thread = core.thread;
    t.group = NO_GROUP;
    std::memcpy(t.at, first, rank * sizeof *first);
    return t;
}

void check_box(const transfer &t, emulate_place at)
{
    static const unsigned SPAN[] = {0, 32, 64, 128};
    const emulate_tensor_map &m = t.map;
    const unsigned row = t.row_bytes();
    if (m.swizzle < 1 || m.swizzle > 3 || row != SPAN[m.swizzle] || m.box[1] < 1 || m.box[1] > 256 || m.box[2] < 1 || m.box[2] > 256) {
        fail("a TMA box of %u x %u x %u elements and swizzle %u; rows fill the 32, 64 or 128 bytes of the pattern (%s:%d)", m.box[2], m.box[1], m.box[0],
             m.swizzle, short_name(at.file), at.line);
    }
    if (t.place % (8 * row) != 0) {
        fail("TMA at byte %u of shared memory: not a multiple of %u, the swizzle's pattern (%s:%d)", t.place - WINDOW, 8 * row,
             short_name(at.file), at.line);
    }
    shared_at(t.place, 1, core.thread, "TMA", at);
    shared_at(t.place + t.bytes() - 1, 1, core.thread, "TMA", at);
}

// Bytes that a TMA store has not read yet.
void check_stores(unsigned from, unsigned bytes, const char *what, emulate_place at)
{
    for (const transfer &t : now->hopper.stores) {
        if (from < t.place - WINDOW + t.bytes() && t.place - WINDOW < from + bytes) {
            fail("%s byte %u of shared memory, which a %s that nobody has waited for still reads (%s:%d; it: %s:%d)", what, from, t.name(),
                 short_name(at.file), at.line, short_name(t.issue.file), t.issue.line);
        }
    }
}

// For a box with nothing in it a GPU reads all the same: at the address of the map.
void touch_address(const transfer &t)
{
    bool some = false;
    each_line(t, [&](const unsigned char *, std::size_t) { some = true; });
    if (!some) {
        (void)*static_cast<const volatile unsigned char *>(t.map.data);
    }
}

void start_load(const transfer &t, emulate_place at)
{
    if (t.line_bytes == 0) {
        check_box(t, at);
        touch_address(t);
    }
    shared_at(t.place, 1, core.thread, "a TMA load writes", at);
    shared_at(t.place + t.bytes() - 1, 1, core.thread, "a TMA load writes", at);
    mbarrier_at(t.barrier, at);
    const unsigned from = t.place - WINDOW;
    if (const product *p = reader_of(from, t.bytes())) {
        fail("a TMA load to bytes %u .. %u of shared memory, which a wgmma that nobody has waited for still reads (%s:%d; the wgmma: %s:%d)", from,
             from + t.bytes() - 1, short_name(at.file), at.line, short_name(p->at.file), p->at.line);
    }
    check_stores(from, t.bytes(), "a TMA load to", at);
    for (unsigned i = from / 4; i < (from + t.bytes()) / 4; i++) {
        check_async(i, true, at);
        now->cells[i].pending = SEVERAL;
    }
    std::memset(now->bytes + from, POISON, t.bytes());
    now->hopper.transfers.push_back(t);
}

// ---- TMA stores and additions: read when their thread waits for it, and not before ----------------------------------------------

void start_reading(transfer t, emulate_place at)
{
    t.issue = at;
    for (unsigned i = (t.place - WINDOW) / 4; i < (t.place - WINDOW + t.bytes()) / 4; i++) {
        check_async(i, false, at);
    }
    now->hopper.stores.push_back(t);
}

void start_writing(const transfer &t, emulate_place at)
{
    start_reading(t, at);
    const unsigned number = add_write(t.sum == nullptr || t.over ? WRITE_BULK : WRITE_BULK_SUM, true);
    each_line(t, [&](unsigned char *to, std::size_t bytes) { note_bulk_write(to, bytes, number); });
    now->global.bulk.push_back({t.thread, NO_GROUP, number});
}

void start_store(const transfer &t, emulate_place at)
{
    check_box(t, at);
    start_writing(t, at);
}

void start_addition(float *to, unsigned from, unsigned bytes, bool over, emulate_place at)
{
    if (bytes % 16 != 0 || bytes == 0) {
        fail("a bulk addition of %u bytes; it takes multiples of 16 (%s:%d)", bytes, short_name(at.file), at.line);
    }
    if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) {
        emulate_misaligned(to, 16, at);
    }
    shared_at(from, 16, core.thread, "a bulk addition reads", at);
    shared_at(from + bytes - 16, 16, core.thread, "a bulk addition reads", at);
    transfer t = {};
    t.sum = to;
    t.over = over;
    t.line_bytes = bytes;
    t.place = from;
    t.thread = core.thread;
    t.group = NO_GROUP;
    start_writing(t, at);
}

void commit_stores(unsigned thread)
{
    for (bulk_write &x : now->global.bulk) {
        if (x.thread == thread && x.group == NO_GROUP) {
            x.group = now->hopper.store_groups[thread];
        }
    }
    for (transfer &t : now->hopper.stores) {
        if (t.thread == thread && t.group == NO_GROUP) {
            t.group = now->hopper.store_groups[thread];
        }
    }
    now->hopper.store_groups[thread]++;
}

// The bytes of a store or an addition, in the order of rows.
std::vector<unsigned char> bytes_of(const transfer &t)
{
    std::vector<unsigned char> bytes(t.bytes());
    const unsigned char *from = now->bytes - WINDOW;
    if (t.line_bytes != 0) {
        std::memcpy(bytes.data(), from + t.place, t.line_bytes);
        return bytes;
    }
    for (unsigned i = 0; i < t.bytes(); i += 16) {
        std::memcpy(bytes.data() + i, from + swizzled(t.place + i, t.map.swizzle), 16);
    }
    return bytes;
}

void write_out(const transfer &t, const unsigned char *bytes)
{
    for (unsigned i = 0; i < t.line_bytes / 4; i++) {
        float x;
        std::memcpy(&x, bytes + 4 * i, sizeof x);
        t.sum[i] = t.over ? x : t.sum[i] + x;
    }
    for (unsigned r = 0; t.line_bytes == 0 && r < t.rows(); r++) {
        const unsigned char *row = bytes + r * t.row_bytes();
        each_element(t, r, [&](unsigned char *to, unsigned i) { std::memcpy(to, row + i * t.map.element_bytes, t.map.element_bytes); });
    }
}

// Beside other blocks, what has been read comes to global memory later: at the latest when its thread waits for that, or the launch ends.
void flush_write(std::size_t which)
{
    const late_write w = std::move(core.writes[which]);
    core.writes[which] = std::move(core.writes.back());
    core.writes.pop_back();
    write_out(w.t, w.bytes.data());
}

void flush_writes_of(unsigned thread, unsigned pending)
{
    for (std::size_t i = core.writes.size(); i-- > 0;) {
        const late_write &w = core.writes[i];
        if (w.owner == now && w.block == now->number && w.t.thread == thread && w.t.group + pending < now->hopper.store_groups[thread]) {
            flush_write(i);
        }
    }
}

void flush_writes_now_and_then()
{
    if (!core.writes.empty() && draw_order() % core.lazy == 0) {
        flush_write(draw_order() % core.writes.size());
    }
}

// Later writers must have heard of the wait.
void note_store(const transfer &t)
{
    const unsigned w = warp_of(t.thread);
    for (unsigned i = (t.place - WINDOW) / 4; i < (t.place - WINDOW + t.bytes()) / 4; i++) {
        cell &x = now->cells[i];
        if (x.read.epoch != now->epoch) {
            std::memset(x.read_clock, 0, sizeof x.read_clock);
        }
        x.read = {now->epoch, 0, SEVERAL, SEVERAL, 0};
        x.read_clock[w] = seen_clock(w, w);
    }
}

void finish_bulk_writes(unsigned thread, unsigned pending)
{
    std::erase_if(now->global.bulk, [&](const bulk_write &x) {
        const bool over = x.thread == thread && x.group != NO_GROUP && x.group + pending < now->hopper.store_groups[thread];
        if (over) {
            finish_bulk_write(x.number);
        }
        return over;
    });
}

// read: until they have been read; else until they are in global memory.
void finish_stores(unsigned thread, unsigned pending, bool read)
{
    for (std::size_t i = 0; i < now->hopper.stores.size();) {
        const transfer t = now->hopper.stores[i];
        if (t.thread != thread || t.group == NO_GROUP || t.group + pending >= now->hopper.store_groups[thread]) {
            i++;
            continue;
        }
        if (several()) {
            core.writes.push_back({t, now, now->number, bytes_of(t)});
        } else {
            write_out(t, bytes_of(t).data());
        }
        note_store(t);
        now->hopper.stores.erase(now->hopper.stores.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (!read) {
        flush_writes_of(thread, pending);
        finish_bulk_writes(thread, pending);
    }
}
