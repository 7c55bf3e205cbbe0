// hopper.hpp: the part of the core that sm_90 adds: mbarriers, TMA loads, wgmma, named barriers, setmaxnreg. A piece of emulator.cpp,
// included inside of it.
//
// Everything asynchronous is as late as it may be: a TMA load's bytes come at some switch of fibers after its issue, a product is
// computed when its group is waited for; until then the places and the accumulators hold NaN. Order between warps is a vector of
// clocks: an arrival gives, a wait takes.

constexpr unsigned ENGINE = MAX_WARPS; // the number of TMA among the warps' clocks
constexpr unsigned NO_GROUP = 0xffffffffu;

struct clocks {
    unsigned at[MAX_WARPS + 1];
};

struct mbarrier {
    bool fenced; // by its thread, after the init
    unsigned epoch, thread; // of the init
    unsigned arrivals, pending;
    long bytes; // announced and not yet there
    unsigned phase;
    clocks now, over; // of those who arrived in this phase, and in the one before
    std::vector<unsigned> waiting;
};

struct named_barrier {
    unsigned arrived, threads;
    emulate_place at;
    bool any, answer; // of the votes that have come; of those before, until all have read it
    clocks all;
    std::vector<unsigned> waiting;
};

struct transfer { // TMA: a box, or bytes in a line; to shared memory, or from there
    emulate_tensor_map map;
    const unsigned char *line; // that is loaded
    float *sum;                // to which a line is added
    bool over;                 // or stored
    unsigned line_bytes;       // 0: a box
    unsigned place, barrier;   // in shared memory
    int at[5];
    unsigned thread, group; // of a store or an addition
    emulate_place issue;
    const char *name() const { return sum == nullptr ? "TMA store" : over ? "bulk store" : "bulk addition"; }
    unsigned rows() const { return map.box[1] * map.box[2]; }
    unsigned row_bytes() const { return map.box[0] * map.element_bytes; }
    unsigned bytes() const { return line_bytes != 0 ? line_bytes : rows() * row_bytes(); }
};

struct product { // a wgmma of one warp: its 16 rows
    emulate_wgmma_call values[LANES];
    unsigned group;
    emulate_place at;
};

struct accumulator { // registers of one warp that products are to change
    float *d[LANES];
    unsigned n;
    float c[16][256];
};
struct fenced { // registers as they were at the last wgmma.fence
    const float *d;
    std::vector<float> values;
};

struct group_part { // what a warp does as a part of its warpgroup
    std::vector<product> products;
    std::vector<accumulator> accumulators;
    std::vector<fenced> fences;
    unsigned groups;
    unsigned registers;
    std::uint64_t history; // of its products: the same in all four warps
};

struct {
    clocks clock[MAX_WARPS + 1];
    std::map<unsigned, mbarrier> mbarriers;
    named_barrier named[16];
    std::vector<transfer> transfers; // loads under way
    std::vector<transfer> stores;    // and additions, whose bytes are still to be read
    unsigned store_groups[MAX_THREADS];
    group_part part[MAX_WARPS];
    unsigned proxy_fences[MAX_THREADS];
} hopper;

clocks &clock_of(unsigned w) { return hopper.clock[w]; }
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
        hopper.clock[w] = {};
        hopper.clock[w].at[w] = 1;
    }
    hopper.mbarriers.clear();
    hopper.transfers.clear();
    hopper.stores.clear();
    std::memset(hopper.store_groups, 0, sizeof hopper.store_groups);
    for (named_barrier &b : hopper.named) {
        b = {};
    }
    for (group_part &p : hopper.part) {
        p = {};
    }
    std::memset(hopper.proxy_fences, 0, sizeof hopper.proxy_fences);
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
    const auto found = hopper.mbarriers.find(address - WINDOW);
    if (found == hopper.mbarriers.end()) {
        fail("there is no mbarrier at byte %u of shared memory: nobody has made one (%s:%d)", address - WINDOW, short_name(at.file), at.line);
    }
    mbarrier &b = found->second;
    if (b.thread != core.thread && (b.epoch == core.epoch || !b.fenced)) {
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
            core.warps[w].epoch++;
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
    named_barrier &b = hopper.named[id];
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
    named_barrier &b = hopper.named[id];
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

// Offset of a box's row in the tensor, but for its first dim; -1: it is outside.
long long row_offset(const transfer &t, unsigned row)
{
    const emulate_tensor_map &m = t.map;
    const long long place[5] = {t.at[0], t.at[1] + static_cast<long long>(row % m.box[1]), t.at[2] + static_cast<long long>(row / m.box[1]), t.at[3],
                                t.at[4]};
    long long offset = 0;
    for (unsigned i = 1; i < 5; i++) {
        if (place[i] < 0 || place[i] >= m.dim[i]) {
            return -1;
        }
        offset += place[i] * m.stride[i];
    }
    return offset;
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

void move_row(const transfer &t, unsigned row, unsigned char *out)
{
    std::memset(out, 0, t.row_bytes());
    each_element(t, row, [&](const unsigned char *from, unsigned i) { std::memcpy(out + i * t.map.element_bytes, from, t.map.element_bytes); });
}

void put(unsigned offset, const unsigned char *bytes16) // by TMA
{
    std::memcpy(shared_bytes + offset, bytes16, 16);
    for (unsigned k = 0; k < 4; k++) {
        cell &x = core.cells[offset / 4 + k];
        x.pending = 0;
        x.write = {core.epoch, 0, SEVERAL, ENGINE, clock_of(ENGINE).at[ENGINE]};
        x.generic = false;
    }
}

void complete(std::size_t which)
{
    const transfer t = hopper.transfers[which];
    hopper.transfers.erase(hopper.transfers.begin() + static_cast<std::ptrdiff_t>(which));
    const unsigned row_bytes = t.row_bytes();
    unsigned char row[256];
    clocks &engine = clock_of(ENGINE);
    engine.at[ENGINE]++;
    for (unsigned i = 0; i < t.line_bytes; i += 16) {
        put(t.place + i - WINDOW, t.line + i);
    }
    for (unsigned r = 0; t.line_bytes == 0 && r < t.rows(); r++) {
        move_row(t, r, row);
        for (unsigned i = 0; i < row_bytes; i += 16) {
            put(swizzled(t.place + r * row_bytes + i, t.map.swizzle) - WINDOW, row + i);
        }
    }
    mbarrier &b = hopper.mbarriers.find(t.barrier - WINDOW)->second;
    b.bytes -= t.bytes();
    b.now.at[ENGINE] = std::max(b.now.at[ENGINE], engine.at[ENGINE]);
    settle(b);
}

// At a switch of fibers. must: there is no other way to go on.
bool complete_some(bool must)
{
    const std::size_t n = hopper.transfers.size();
    if (n == 0 || (!must && draw() % 4 != 0)) {
        return false;
    }
    complete(draw() % n);
    return true;
}

const product *reader_of(unsigned from, unsigned bytes);

// Ordinary accesses that TMA or wgmma come after: the thread must have seen them, and writes be fenced.
void check_async(unsigned index, bool writes, emulate_place at)
{
    cell &x = core.cells[index];
    if (x.pending != 0) {
        fail("%s byte %u of shared memory, to which %s is still under way (%s:%d)", writes ? "a TMA load to" : "a wgmma that reads", 4 * index,
             x.pending == SEVERAL ? "a TMA load" : "a cp.async", short_name(at.file), at.line);
    }
    if (unordered(x.write, core.thread) || (x.write.epoch == core.epoch && x.write.warp == ENGINE && clock_of(warp_of(core.thread)).at[ENGINE] < x.write.clock)) {
        fail_race(index, writes ? "lets TMA write" : "lets wgmma read", x.write, "written", at);
    }
    if (writes && unordered_reads(x, core.thread)) {
        fail_race(index, "lets TMA write", x.read, "read", at);
    }
    if (x.generic && x.fences == hopper.proxy_fences[x.write.thread]) {
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
    transfer t = {map, nullptr, nullptr, false, 0, place, barrier, {0, 0, 0, 0, 0}, core.thread, NO_GROUP, {}};
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
    for (const transfer &t : hopper.stores) {
        if (from < t.place - WINDOW + t.bytes() && t.place - WINDOW < from + bytes) {
            fail("%s byte %u of shared memory, which a %s that nobody has waited for still reads (%s:%d; it: %s:%d)", what, from, t.name(),
                 short_name(at.file), at.line, short_name(t.issue.file), t.issue.line);
        }
    }
}

void start_load(const transfer &t, emulate_place at)
{
    if (t.line_bytes == 0) {
        check_box(t, at);
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
        core.cells[i].pending = SEVERAL;
    }
    std::memset(shared_bytes + from, POISON, t.bytes());
    hopper.transfers.push_back(t);
}

// ---- TMA stores and additions: read when their thread waits for it, and not before ----------------------------------------------

void start_reading(transfer t, emulate_place at)
{
    t.issue = at;
    for (unsigned i = (t.place - WINDOW) / 4; i < (t.place - WINDOW + t.bytes()) / 4; i++) {
        check_async(i, false, at);
    }
    hopper.stores.push_back(t);
}

void start_store(const transfer &t, emulate_place at)
{
    check_box(t, at);
    start_reading(t, at);
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
    start_reading(t, at);
}

void commit_stores(unsigned thread)
{
    for (transfer &t : hopper.stores) {
        if (t.thread == thread && t.group == NO_GROUP) {
            t.group = hopper.store_groups[thread];
        }
    }
    hopper.store_groups[thread]++;
}

void store_row(const transfer &t, unsigned row)
{
    unsigned char bytes[256];
    for (unsigned i = 0; i < t.row_bytes(); i += 16) {
        std::memcpy(bytes + i, shared_bytes + (swizzled(t.place + row * t.row_bytes() + i, t.map.swizzle) - WINDOW), 16);
    }
    each_element(t, row, [&](unsigned char *to, unsigned i) { std::memcpy(to, bytes + i * t.map.element_bytes, t.map.element_bytes); });
}

void add_line(const transfer &t)
{
    for (unsigned i = 0; i < t.line_bytes / 4; i++) {
        float x;
        std::memcpy(&x, shared_bytes + (t.place - WINDOW) + 4 * i, sizeof x);
        t.sum[i] = t.over ? x : t.sum[i] + x;
    }
}

// Later writers must have heard of the wait.
void note_store(const transfer &t)
{
    const unsigned w = warp_of(t.thread);
    for (unsigned i = (t.place - WINDOW) / 4; i < (t.place - WINDOW + t.bytes()) / 4; i++) {
        cell &x = core.cells[i];
        if (x.read.epoch != core.epoch) {
            std::memset(x.read_clock, 0, sizeof x.read_clock);
        }
        x.read = {core.epoch, 0, SEVERAL, SEVERAL, 0};
        x.read_clock[w] = seen_clock(w, w);
    }
}

void finish_stores(unsigned thread, unsigned pending)
{
    for (std::size_t i = 0; i < hopper.stores.size();) {
        const transfer t = hopper.stores[i];
        if (t.thread != thread || t.group == NO_GROUP || t.group + pending >= hopper.store_groups[thread]) {
            i++;
            continue;
        }
        if (t.sum != nullptr) {
            add_line(t);
        }
        for (unsigned r = 0; t.sum == nullptr && r < t.rows(); r++) {
            store_row(t, r);
        }
        note_store(t);
        hopper.stores.erase(hopper.stores.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

// ---- wgmma ------------------------------------------------------------------------------------------------------------------

struct operand { // a matrix descriptor, taken apart
    unsigned address, leading, stride, bits;
    unsigned span() const { return 16u << bits; }
};

operand take_apart(unsigned long long descriptor, emulate_place at)
{
    static const unsigned BITS[] = {0, 3, 2, 1};
    const unsigned kind = static_cast<unsigned>(descriptor >> 62);
    if (kind == 0 || (descriptor & 0x3fffc000c000c000ull) != 0) {
        fail("a matrix descriptor 0x%016llx: without a swizzle, or with bits that are to be 0 (%s:%d)", descriptor, short_name(at.file), at.line);
    }
    return {static_cast<unsigned>(descriptor & 0x3fff) << 4, static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4,
            static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4, BITS[kind]};
}

// Address of the 16 bytes that hold k .. k + 7 of row n (K-major), or n .. n + 7 of row k.
unsigned place_of(const operand &o, unsigned n, unsigned k, bool transposed)
{
    const unsigned row = transposed ? k : n;
    const unsigned along = transposed ? n % (o.span() / 2) * 2 : k * 2;
    const unsigned panel = transposed ? n / (o.span() / 2) * o.leading : 0;
    return swizzled(o.address + panel + row / 8 * o.stride + row % 8 * o.span() + along, o.bits);
}

// Calls f(address, n, k) for each 16 bytes of rows n0 .. n0 + count - 1.
template <class F> void each_piece(const operand &o, unsigned n0, unsigned count, bool transposed, F f)
{
    for (unsigned n = n0; n < n0 + count; n += transposed ? 8 : 1) {
        for (unsigned k = 0; k < 16; k += transposed ? 1 : 8) {
            f(place_of(o, n, k, transposed), n, k);
        }
    }
}

const product *reader_of(unsigned from, unsigned bytes)
{
    for (unsigned w = 0; w < MAX_WARPS; w++) {
        for (const product &p : hopper.part[w].products) {
            const emulate_wgmma_call &c = p.values[0];
            bool hit = false;
            const auto look = [&](unsigned address, unsigned, unsigned) {
                hit = hit || (address - WINDOW + 16 > from && address - WINDOW < from + bytes);
            };
            each_piece(take_apart(c.b, p.at), 0, c.n, c.b_turned, look);
            if (c.a_registers == nullptr) {
                each_piece(take_apart(c.a, p.at), w % 4 * 16, 16, c.a_turned, look);
            }
            if (hit) {
                return &p;
            }
        }
    }
    return nullptr;
}

void check_operand(const operand &o, unsigned n0, unsigned count, bool transposed, unsigned first_thread, emulate_place at)
{
    each_piece(o, n0, count, transposed, [&](unsigned address, unsigned, unsigned) {
        shared_at(address, 16, first_thread, "wgmma reads", at);
        for (unsigned i = 0; i < 4; i++) {
            check_async((address - WINDOW) / 4 + i, false, at);
        }
    });
}

bool is_poison(const float *d, unsigned n)
{
    for (unsigned i = 0; i < n / 2; i++) {
        if (__builtin_bit_cast(unsigned, d[i]) != 0xffffffffu) {
            return false;
        }
    }
    return true;
}

unsigned column_of(unsigned lane, unsigned i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }
unsigned row_of(unsigned lane, unsigned i) { return lane / 4 + i / 2 % 2 * 8; }

// The accumulator of a product, with its registers as they are before it.
void open_accumulator(group_part &part, const product &p)
{
    const unsigned n = p.values[0].n;
    for (accumulator &a : part.accumulators) {
        if (a.d[0] == p.values[0].d) {
            for (unsigned lane = 0; lane < LANES; lane++) {
                if (!is_poison(a.d[lane], n)) {
                    fail("lane %u: registers of an accumulator changed while a wgmma is under way (%s:%d)", lane, short_name(p.at.file), p.at.line);
                }
            }
            return;
        }
    }
    std::size_t f = 0;
    while (f < part.fences.size() && part.fences[f].d != p.values[0].d) {
        f++;
    }
    if (f == part.fences.size()) {
        fail("a wgmma whose accumulator has seen no wgmma.fence (%s:%d)", short_name(p.at.file), p.at.line);
    }
    accumulator a;
    a.n = n;
    for (unsigned lane = 0; lane < LANES; lane++) {
        a.d[lane] = p.values[lane].d;
        if (std::memcmp(a.d[lane], &part.fences[f].values[lane * n / 2], n / 2 * sizeof(float)) != 0) {
            fail("lane %u: registers of an accumulator changed between wgmma.fence and wgmma (%s:%d)", lane, short_name(p.at.file), p.at.line);
        }
        for (unsigned i = 0; i < n / 2; i++) {
            a.c[row_of(lane, i)][column_of(lane, i)] = a.d[lane][i];
        }
        std::memset(a.d[lane], POISON, n / 2 * sizeof(float));
    }
    part.fences.erase(part.fences.begin() + static_cast<std::ptrdiff_t>(f));
    part.accumulators.push_back(a);
}

void issue(warp &w, unsigned index)
{
    group_part &part = hopper.part[index];
    product p;
    p.at = w.at;
    p.group = NO_GROUP;
    for (unsigned lane = 0; lane < LANES; lane++) {
        p.values[lane] = *static_cast<const emulate_wgmma_call *>(w.call[lane].out);
        const emulate_wgmma_call &c = p.values[lane], &first = p.values[0];
        if (c.n != first.n || c.b != first.b || c.sum != first.sum || c.a_turned != first.a_turned || c.b_turned != first.b_turned || (c.a_registers == nullptr) != (first.a_registers == nullptr) ||
            (c.a_registers == nullptr && c.a != first.a)) {
            fail("lanes 0 and %u bring different descriptors to a wgmma (%s:%d)", lane, short_name(p.at.file), p.at.line);
        }
    }
    const emulate_wgmma_call &c = p.values[0];
    check_operand(take_apart(c.b, p.at), 0, c.n, c.b_turned, index * LANES, p.at);
    if (c.a_registers == nullptr) {
        check_operand(take_apart(c.a, p.at), index % 4 * 16, 16, c.a_turned, index * LANES, p.at);
    }
    part.history = mix(part.history ^ mix(c.b) ^ mix(c.a_registers ? 1 : c.a) ^ static_cast<std::uint64_t>(c.n * 2 + (c.sum != 0)));
    open_accumulator(part, p);
    part.products.push_back(p);
}

void read_operand(float (*out)[256], const operand &o, unsigned n0, unsigned count, bool transposed, bool bf16, emulate_place at)
{
    each_piece(o, n0, count, transposed, [&](unsigned address, unsigned n, unsigned k) {
        unsigned short piece[8];
        std::memcpy(piece, shared_bytes + (address - WINDOW), sizeof piece);
        for (unsigned i = 0; i < 8; i++) {
            (transposed ? out[k][n - n0 + i] : out[k + i][n - n0]) = from_bits(piece[i], bf16);
        }
    });
    (void)at;
}

// out[k][row]: the warp's rows of A, from shared memory or from registers.
void read_rows(float (*out)[256], const product &p, unsigned index)
{
    const emulate_wgmma_call &c = p.values[0];
    if (c.a_registers == nullptr) {
        read_operand(out, take_apart(c.a, p.at), index % 4 * 16, 16, c.a_turned, c.bf16, p.at);
        return;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const emulate_wgmma_call &mine = p.values[lane];
        if (std::memcmp(mine.a_registers, mine.a_copy, sizeof mine.a_copy) != 0) {
            fail("lane %u: registers of the operand A changed while a wgmma is under way (%s:%d)", lane, short_name(p.at.file), p.at.line);
        }
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned h = 0; h < 2; h++) {
                out[lane % 4 * 2 + h + i / 2 * 8][lane / 4 + i % 2 * 8] = from_bits(static_cast<unsigned short>(mine.a_copy[i] >> (16 * h)), c.bf16);
            }
        }
    }
}

void compute(const product &p, accumulator &a, unsigned index)
{
    static float rows[16][256], b[16][256];
    const emulate_wgmma_call &c = p.values[0];
    read_rows(rows, p, index);
    read_operand(b, take_apart(c.b, p.at), 0, c.n, c.b_turned, c.bf16, p.at);
    for (unsigned i = 0; i < 16; i++) {
        float *sum = a.c[i];
        if (c.sum == 0) {
            std::memset(sum, 0, sizeof a.c[i]);
        }
        for (unsigned k = 0; k < 16; k++) {
            const float x = rows[k][i];
            for (unsigned n = 0; n < c.n; n++) {
                sum[n] += x * b[k][n];
            }
        }
    }
}

// The operands are read for as long as nobody has waited: a later writer must have heard of the wait.
void note_operand(const operand &o, unsigned n0, unsigned count, bool transposed, unsigned w)
{
    each_piece(o, n0, count, transposed, [&](unsigned address, unsigned, unsigned) {
        for (unsigned i = 0; i < 4; i++) {
            cell &x = core.cells[(address - WINDOW) / 4 + i];
            if (x.read.epoch != core.epoch) {
                std::memset(x.read_clock, 0, sizeof x.read_clock);
            }
            x.read = {core.epoch, 0, SEVERAL, SEVERAL, 0};
            x.read_clock[w] = seen_clock(w, w);
        }
    });
}

void note_product(const product &p, unsigned w)
{
    const emulate_wgmma_call &c = p.values[0];
    note_operand(take_apart(c.b, p.at), 0, c.n, c.b_turned, w);
    if (c.a_registers == nullptr) {
        note_operand(take_apart(c.a, p.at), w % 4 * 16, 16, c.a_turned, w);
    }
}

void close_accumulator(const accumulator &a, emulate_place at)
{
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (!is_poison(a.d[lane], a.n)) {
            fail("lane %u: registers of an accumulator changed while a wgmma is under way (%s:%d)", lane, short_name(at.file), at.line);
        }
        for (unsigned i = 0; i < a.n / 2; i++) {
            a.d[lane][i] = a.c[row_of(lane, i)][column_of(lane, i)];
        }
    }
}

// Groups retire in order; an accumulator comes back when none of its products is left.
void retire(unsigned index, unsigned pending, emulate_place at)
{
    group_part &part = hopper.part[index];
    std::size_t done = 0;
    while (done < part.products.size() && part.products[done].group != NO_GROUP && part.products[done].group + pending < part.groups) {
        for (accumulator &a : part.accumulators) {
            if (a.d[0] == part.products[done].values[0].d) {
                compute(part.products[done], a, index);
            }
        }
        note_product(part.products[done], index);
        done++;
    }
    part.products.erase(part.products.begin(), part.products.begin() + static_cast<std::ptrdiff_t>(done));
    for (std::size_t i = part.accumulators.size(); i-- > 0;) {
        bool busy = false;
        for (const product &p : part.products) {
            busy = busy || p.values[0].d == part.accumulators[i].d[0];
        }
        if (!busy) {
            close_accumulator(part.accumulators[i], at);
            part.accumulators.erase(part.accumulators.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

void fence_registers(warp &w, unsigned index)
{
    group_part &part = hopper.part[index];
    const emulate_wgmma_call &first = *static_cast<const emulate_wgmma_call *>(w.call[0].out);
    for (const accumulator &a : part.accumulators) {
        if (a.d[0] == first.d) {
            return; // still under way: nothing to order
        }
    }
    for (std::size_t i = part.fences.size(); i-- > 0;) {
        if (part.fences[i].d == first.d) {
            part.fences.erase(part.fences.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    fenced f;
    f.d = first.d;
    for (unsigned lane = 0; lane < LANES; lane++) {
        const emulate_wgmma_call &c = *static_cast<const emulate_wgmma_call *>(w.call[lane].out);
        f.values.insert(f.values.end(), c.d, c.d + c.n / 2);
    }
    part.fences.push_back(f);
}

void commit(unsigned index)
{
    group_part &part = hopper.part[index];
    for (product &p : part.products) {
        p.group = p.group == NO_GROUP ? part.groups : p.group;
    }
    part.groups++;
}

// ---- the end of a block -----------------------------------------------------------------------------------------------------

void check_registers(unsigned n_warps)
{
    const unsigned entry = std::min(255u, 65536 / (n_warps * LANES)) / 8 * 8;
    unsigned total = 0;
    bool used = false;
    for (unsigned w = 0; w < n_warps; w++) {
        const unsigned mine = hopper.part[w].registers;
        used = used || mine != 0;
        if (mine != hopper.part[w / 4 * 4].registers) {
            fail("setmaxnreg gives %u registers to warp %u and %u to warp %u of the same warpgroup", mine, w, hopper.part[w / 4 * 4].registers, w / 4 * 4);
        }
        total += mine != 0 ? mine : entry;
    }
    if (used && total > entry * n_warps) {
        fail("setmaxnreg asks for %u registers in each lane of the block's %u warps together; it has %u", total, n_warps, entry * n_warps);
    }
}

void end_hopper()
{
    const unsigned n_warps = core.launch->threads / LANES;
    if (!hopper.transfers.empty()) {
        fail("the block ends while a TMA load to byte %u of shared memory is under way", hopper.transfers[0].place - WINDOW);
    }
    if (!hopper.stores.empty()) {
        const transfer &t = hopper.stores[0];
        fail("the block ends while a %s from byte %u of shared memory is under way (%s:%d)", t.name(), t.place - WINDOW, short_name(t.issue.file),
             t.issue.line);
    }
    for (unsigned w = 0; w < n_warps; w++) {
        if (!hopper.part[w].products.empty()) {
            fail("warp %u ends while a wgmma is under way (%s:%d)", w, short_name(hopper.part[w].products[0].at.file), hopper.part[w].products[0].at.line);
        }
        if (hopper.part[w].history != hopper.part[w / 4 * 4].history) {
            fail("warps %u and %u of one warpgroup have not issued the same wgmmas", w / 4 * 4, w);
        }
    }
    check_registers(n_warps);
}

// A sentence about those who wait at mbarriers or named barriers, where nobody can go on.
void describe_waiting()
{
    for (unsigned id = 0; id < 16; id++) {
        const named_barrier &b = hopper.named[id];
        if (!b.waiting.empty()) {
            fail("deadlock: %zu threads wait at named barrier %u for %u that do not come (%s:%d)", b.waiting.size(), id, b.threads - b.arrived,
                 short_name(b.at.file), b.at.line);
        }
    }
    for (auto &[offset, b] : hopper.mbarriers) {
        if (!b.waiting.empty()) {
            fail("deadlock: thread %u and %zu more wait at the mbarrier at byte %u of shared memory for the end of phase %u: %u of %u arrivals and %ld bytes "
                 "are missing",
                 b.waiting[0], b.waiting.size() - 1, offset, b.phase, b.pending, b.arrivals, b.bytes);
        }
    }
}
