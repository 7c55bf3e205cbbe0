// calls.hpp: what the fibers call. A room of emulator.cpp.

// ---- plain accesses ---------------------------------------------------------------------------------------------------------
//
// Kernels are compiled with -fsanitize=thread, which calls these ahead of every access to memory, and linked without its
// library. What is not a __shared__ variable is left to the pages around it.

namespace {

// Beside other blocks: now and then one of them comes first.
void note_beside(const void *p)
{
    const std::size_t offset = static_cast<std::size_t>(static_cast<const unsigned char *>(p) - shared_bytes);
    if (!core.running) {
        return;
    }
    if (--core.until_pause == 0) {
        core.until_pause = 1 + draw_order() % 4096;
        let_others_in();
    }
    if (offset < core.launch->smem_bytes) {
        bring_dynamic(); // no other block comes between this and the access
    }
}

void note_plain(const void *p, std::size_t bytes, bool write)
{
    if (several()) {
        note_beside(p);
    }
    std::size_t place;
    if (is_global(p, place) && core.running) {
        note_global(place, bytes, write ? ACCESS_STORE : ACCESS_READ);
        return;
    }
    const std::size_t offset = static_cast<std::size_t>(static_cast<const unsigned char *>(p) - core.static_from);
    if (offset >= core.static_bytes || !core.running) {
        return;
    }
    const emulate_place at = {"a __shared__ variable", 0};
    const unsigned n = static_cast<unsigned>(bytes < core.static_bytes - offset ? bytes : core.static_bytes - offset);
    const unsigned first = STATIC_CELLS + static_cast<unsigned>(offset);
    if (write) {
        note_write(first, n, core.thread, at);
    } else {
        note_read(first, n, core.thread, false, at);
    }
}

} // namespace

#define PLAIN(bytes)                                                                                                               \
    void __tsan_read##bytes(void *p) { note_plain(p, bytes, false); }                                                              \
    void __tsan_write##bytes(void *p) { note_plain(p, bytes, true); }                                                              \
    void __tsan_unaligned_read##bytes(void *p) { note_plain(p, bytes, false); }                                                    \
    void __tsan_unaligned_write##bytes(void *p) { note_plain(p, bytes, true); }
extern "C" {
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void *p, std::size_t bytes) { note_plain(p, bytes, false); }
void __tsan_write_range(void *p, std::size_t bytes) { note_plain(p, bytes, true); }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}

// ---- what the fibers call --------------------------------------------------------------------------------------------------

extern "C" {

unsigned emulate_shuffle(unsigned mask, unsigned value, int lane, int width, emulate_shuffle_kind kind, emulate_place at)
{
    unsigned out = 0;
    meet(MEET_SHUFFLE, mask, at, {nullptr, &out, value, static_cast<unsigned>(lane), width, kind});
    return out;
}

unsigned emulate_ballot(unsigned mask, bool yes, emulate_place at)
{
    unsigned out = 0;
    meet(MEET_BALLOT, mask, at, {nullptr, &out, yes, 0, 0, EMULATE_SHUFFLE_XOR});
    return out;
}

unsigned emulate_match(unsigned mask, unsigned long long value, emulate_place at)
{
    unsigned out = 0;
    const unsigned low = static_cast<unsigned>(value);
    meet(MEET_MATCH, mask, at, {nullptr, &out, low, static_cast<unsigned>(value >> 32), 0, EMULATE_SHUFFLE_XOR});
    return out;
}

void emulate_syncwarp(unsigned mask, emulate_place at) { meet(MEET_SYNCWARP, mask, at, {}); }

void emulate_load_matrix4(unsigned *r, unsigned address, bool transposed, emulate_place at)
{
    meet(transposed ? MEET_LDMATRIX_TRANS : MEET_LDMATRIX, ALL, at, {nullptr, r, address, 0, 0, EMULATE_SHUFFLE_XOR});
}

void emulate_store_matrix4(const unsigned *r, unsigned address, bool transposed, emulate_place at)
{
    meet(transposed ? MEET_STMATRIX_TRANS : MEET_STMATRIX, ALL, at, {nullptr, const_cast<unsigned *>(r), address, 0, 0, EMULATE_SHUFFLE_XOR});
}

void emulate_mma(float *c, const unsigned *a, unsigned b0, unsigned b1, bool bf16, emulate_place at)
{
    meet(bf16 ? MEET_MMA_BF16 : MEET_MMA_F16, ALL, at, {a, c, b0, b1, 0, EMULATE_SHUFFLE_XOR});
}

void emulate_syncthreads(emulate_place at)
{
    const unsigned threads = core.launch->threads;
    if (now->left != threads) {
        fail("__syncthreads after %u threads of the block have left the kernel (%s:%d)", threads - now->left, short_name(at.file), at.line);
    }
    if (now->at_barrier > 0 && now->barrier.line != at.line) {
        fail("two barriers at once: at __syncthreads (%s:%d), while %u threads wait at another one (%s:%d)", short_name(at.file), at.line,
             now->at_barrier, short_name(now->barrier.file), now->barrier.line);
    }
    now->barrier = at;
    if (++now->at_barrier < threads) {
        let_another_run();
        return;
    }
    now->at_barrier = 0;
    now->epoch++;
    const unsigned self = core.thread;
    for (unsigned w = 0; w < threads / LANES; w++) {
        const unsigned others = w == warp_of(self) ? ALL & ~(1u << lane_of(self)) : ALL;
        set_ready(w, others);
    }
    set_ready(warp_of(self), 1u << lane_of(self)); // the last one has no right to be the first to go on
    let_another_run();
}

void emulate_cluster_barrier(unsigned size, emulate_place at) { wait_for_cluster(size, at); }
void emulate_push(unsigned address, float x, unsigned barrier, unsigned rank, unsigned size, emulate_place at)
{
    push_to_cluster(address, x, barrier, rank, size, at);
}

void emulate_misaligned(const void *p, unsigned bytes, emulate_place at)
{
    fail("a vector of %u bytes at %p, which is no multiple of that (%s:%d)", bytes, p, short_name(at.file), at.line);
}

void emulate_wait_turn(const unsigned *word, unsigned turn, emulate_place at) { wait_for_turn({core.thread, word, turn, false, at}); }
void emulate_wait_told(const unsigned *word, emulate_place at) { wait_for_turn({core.thread, word, 0, true, at}); }
void emulate_tell(unsigned long long *word, unsigned long long x)
{
    note_atomic(word, sizeof *word, false, false, true);
    __atomic_store_n(word, x, __ATOMIC_RELAXED);
}
unsigned long long emulate_observe(const unsigned long long *word)
{
    note_atomic(word, sizeof *word, false, false, false);
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}
void emulate_pause() { let_others_in(); }
void emulate_fence() { note_fence(); }
void emulate_atomic(const void *p, unsigned bytes, emulate_order order, bool writes)
{
    note_atomic(p, bytes, order == EMULATE_ACQ_REL, order != EMULATE_RELAXED, writes);
}
void emulate_sum(const void *p, unsigned bytes, bool floats)
{
    std::size_t offset;
    if (is_global(p, offset)) {
        note_global(offset, bytes, floats ? sum_of_floats() : ACCESS_SUM);
    }
}
void emulate_wait_for_launch() { now->global.waits.push_back(present()); }
void emulate_fence_async_global() { now->global.fenced_bulk[core.thread] = all_heard(); }

unsigned emulate_shared_address(const void *p, emulate_place at)
{
    const std::ptrdiff_t offset = static_cast<const unsigned char *>(p) - shared_bytes;
    if (offset < 0 || offset > static_cast<std::ptrdiff_t>(SHARED_LIMIT)) {
        fail("the shared address of what is not in dynamic shared memory (%s:%d)", short_name(at.file), at.line);
    }
    return WINDOW + static_cast<unsigned>(offset);
}

void emulate_copy(unsigned to, const void *from, int bytes, emulate_place at)
{
    if (bytes < 0 || bytes > 16) {
        fail("cp.async of %d bytes; it takes 0 to 16 (%s:%d)", bytes, short_name(at.file), at.line);
    }
    fiber &f = now->fibers[core.thread];
    copy c = {to - WINDOW, f.groups, {}};
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0 && bytes != 0) {
        emulate_misaligned(from, 16, at);
    }
    if (bytes != 0) {
        note_plain(from, static_cast<std::size_t>(bytes), false);
    }
    std::memcpy(c.bytes, from, static_cast<std::size_t>(bytes));
    unsigned char *place = shared_at(to, 16, core.thread, "cp.async writes", at); // behind the pause above: another block may have moved it
    note_write(c.to / 4, 4, core.thread, at);
    std::memset(place, POISON, 16); // neither what was there nor what will be
    for (unsigned i = 0; i < 4; i++) {
        now->cells[c.to / 4 + i].pending = core.thread + 1;
    }
    f.copies.push_back(c);
}

void emulate_copy_commit() { now->fibers[core.thread].groups++; }

void emulate_copy_wait(int pending)
{
    fiber &f = now->fibers[core.thread];
    std::size_t kept = 0;
    for (const copy &c : f.copies) {
        if (c.group >= f.groups - pending) {
            f.copies[kept++] = c;
            continue;
        }
        std::memcpy(now->bytes + c.to, c.bytes, 16);
        for (unsigned i = 0; i < 4; i++) {
            cell &x = now->cells[c.to / 4 + i];
            x.pending = 0;
            note_writer(x, core.thread);
        }
    }
    f.copies.resize(kept);
}

void emulate_store_shared(unsigned address, const void *from, unsigned bytes, emulate_place at)
{
    unsigned char *to = shared_at(address, bytes, core.thread, "writes", at);
    note_write((address - WINDOW) / 4, bytes / 4, core.thread, at);
    std::memcpy(to, from, bytes);
}

void emulate_load_shared(void *to, unsigned address, unsigned bytes, emulate_place at)
{
    const unsigned char *from = shared_at(address, bytes, core.thread, "reads", at);
    note_read((address - WINDOW) / 4, bytes / 4, core.thread, false, at);
    std::memcpy(to, from, bytes);
}

unsigned emulate_elect(emulate_place at)
{
    unsigned out = 0;
    meet(MEET_ELECT, ALL, at, {nullptr, &out, 0, 0, 0, EMULATE_SHUFFLE_XOR});
    return out;
}

void emulate_set_registers(unsigned registers, bool up, emulate_place at)
{
    const unsigned entry = std::min(255u, 65536 / core.launch->threads) / 8 * 8;
    if (registers % 8 != 0 || registers < 24 || registers > 256 || (up ? registers < entry : registers > entry)) {
        fail("setmaxnreg %s %u registers, from %u; it takes multiples of 8 in 24 .. 256 (%s:%d)", up ? "up to" : "down to", registers, entry,
             short_name(at.file), at.line);
    }
    emulate_syncwarp(ALL, at);
    now->hopper.part[warp_of(core.thread)].registers = registers;
}

unsigned emulate_named_barrier(unsigned id, unsigned threads, bool vote, emulate_place at) { return meet_at_named(id, threads, vote, at); }
void emulate_named_arrive(unsigned id, unsigned threads, emulate_place at) { arrive_at_named(id, threads, at); }

void emulate_mbarrier_init(unsigned address, unsigned arrivals, emulate_place at)
{
    shared_at(address, 8, core.thread, "an mbarrier is", at);
    mbarrier b = {};
    b.epoch = now->epoch;
    b.thread = core.thread;
    b.arrivals = b.pending = arrivals;
    b.cluster_barriers = now->of->barriers;
    now->hopper.mbarriers[address - WINDOW] = b;
}

void emulate_mbarrier_init_fence()
{
    for (auto &[offset, b] : now->hopper.mbarriers) {
        b.fenced = b.fenced || b.thread == core.thread;
    }
}

void emulate_mbarrier_arrive(unsigned address, unsigned bytes, emulate_place at) { arrive(address, bytes, at); }

void emulate_mbarrier_wait(unsigned address, unsigned parity, emulate_place at)
{
    mbarrier &b = mbarrier_at(address, at);
    while ((b.phase & 1u) == (parity & 1u)) {
        b.waiting.push_back(core.thread);
        b.at = at;
        let_another_run();
    }
    take(clock_of(warp_of(core.thread)), b.over);
}

void emulate_tma_load(unsigned to, const void *map, unsigned barrier, unsigned rank, const int *first, emulate_place at)
{
    const emulate_tensor_map m = read_map(map, rank, at);
    const transfer t = make_transfer(m, to, barrier, rank, first);
    each_line(t, [](unsigned char *from, std::size_t n) { note_bulk_read(from, n); });
    start_load(t, at);
}
unsigned emulate_cluster_rank() { return now->number % now->of->size; }
void emulate_arrive_peer(unsigned barrier, emulate_place at) { arrive_at_peer(barrier, at); }
void emulate_load_both(unsigned to, const void *map, unsigned barrier, const int *first, emulate_place at)
{
    const transfer t = make_transfer(read_map(map, 4, at), to, barrier, 4, first);
    each_line(t, [](unsigned char *from, std::size_t n) { note_bulk_read(from, n); });
    load_both(t, at);
}
void emulate_copy_to_peer(unsigned to, unsigned from, unsigned bytes, unsigned barrier, emulate_place at) { copy_to_other(to, from, bytes, barrier, at); }

void emulate_tma_store(const void *map, unsigned from, unsigned rank, const int *first, emulate_place at)
{
    const emulate_tensor_map m = read_map(map, rank, at);
    start_store(make_transfer(m, from, 0, rank, first), at);
}

void emulate_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned barrier, emulate_place at)
{
    if (bytes % 16 != 0 || bytes == 0 || to % 16 != 0) {
        fail("a bulk copy of %u bytes to byte %u of shared memory; both are multiples of 16 (%s:%d)", bytes, to - WINDOW, short_name(at.file), at.line);
    }
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
        emulate_misaligned(from, 16, at);
    }
    transfer t = {};
    t.line = static_cast<const unsigned char *>(from);
    t.line_bytes = bytes;
    t.place = to;
    t.barrier = barrier;
    note_bulk_read(from, bytes);
    start_load(t, at);
}

void emulate_bulk_add(float *to, unsigned from, unsigned bytes, emulate_place at) { start_addition(to, from, bytes, false, at); }
void emulate_bulk_store(float *to, unsigned from, unsigned bytes, emulate_place at) { start_addition(to, from, bytes, true, at); }
void emulate_bulk_commit() { commit_stores(core.thread); }
void emulate_bulk_wait(unsigned pending, bool read, emulate_place) { finish_stores(core.thread, pending, read); }

void emulate_fence_async_proxy() { now->hopper.proxy_fences[core.thread]++; }

void emulate_wgmma(emulate_wgmma_call *call, emulate_place at)
{
    if (call->a_registers != nullptr) {
        std::memcpy(call->a_copy, call->a_registers, sizeof call->a_copy);
    }
    meet(MEET_WGMMA, ALL, at, {nullptr, call, 0, 0, 0, EMULATE_SHUFFLE_XOR});
}
void emulate_wgmma_fence(emulate_wgmma_call *call, emulate_place at)
{
    meet(MEET_WGMMA_FENCE, ALL, at, {nullptr, call, 0, 0, 0, EMULATE_SHUFFLE_XOR});
}
void emulate_wgmma_commit(emulate_place at) { meet(MEET_WGMMA_COMMIT, ALL, at, {}); }
void emulate_wgmma_wait(unsigned pending, emulate_place at) { meet(MEET_WGMMA_WAIT, ALL, at, {nullptr, nullptr, pending, 0, 0, EMULATE_SHUFFLE_XOR}); }

float emulate_inexact(float y, float x, float relative)
{
    const unsigned hash = static_cast<unsigned>(mix(__builtin_bit_cast(unsigned, x)) >> 40); // 24 bits
    const float part = static_cast<float>(static_cast<int>(hash) - 0x800000) * 0x1p-23f;
    return y * (1.0f + part * relative); // infinities stay
}

} // extern "C"

