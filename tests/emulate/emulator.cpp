// emulator.cpp: the core: runs the blocks of a launch one after the other, each thread as a fiber, all on one system thread.
//
// In: a launch (emulate.h) and, from the fibers, the calls that emulator.hpp declares. Out: memory as the kernel left it, or
// one sentence about the first thing that no GPU would have to honour. Which fiber goes on is drawn from a seed, in one
// of two ways by block: at random, or one warp as far as it gets before the next one begins.
#include "emulator.hpp"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace {

constexpr unsigned LANES = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / LANES;
constexpr unsigned MAX_CLUSTER = 16; // blocks
constexpr std::size_t STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024;
constexpr unsigned SHARED_LIMIT = 256 * 1024; // dynamic
constexpr unsigned STATIC_LIMIT = 48 * 1024;
constexpr unsigned WINDOW = 1024; // the shared address of the first byte of dynamic shared memory
constexpr unsigned char POISON = 0xff; // a NaN in f32, f16 and bf16
constexpr unsigned SEVERAL = 0xffffffffu; // threads, where one is to be named

enum meeting { MEET_SHUFFLE, MEET_BALLOT, MEET_SYNCWARP, MEET_LDMATRIX, MEET_LDMATRIX_TRANS, MEET_STMATRIX, MEET_STMATRIX_TRANS, MEET_MMA_F16, MEET_MMA_BF16,
               MEET_ELECT, MEET_WGMMA, MEET_WGMMA_FENCE, MEET_WGMMA_COMMIT, MEET_WGMMA_WAIT };
const char *const MEETING_NAME[] = {"a shuffle", "a vote", "__syncwarp", "ldmatrix", "ldmatrix.trans", "stmatrix", "stmatrix.trans", "mma (f16)", "mma (bf16)",
                                   "elect", "wgmma", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group"};

struct lane_call { // what a lane has brought to a collective
    const unsigned *in;
    void *out;
    unsigned a, b;
    int width;
    emulate_shuffle_kind shuffle;
};

struct warp {
    unsigned ready;   // lanes that can go on
    unsigned waiting; // lanes at the collective below
    unsigned deferred; // lanes at another, of none of its lanes: they meet when that is done
    unsigned gone;    // lanes that have returned from the kernel
    meeting what;
    unsigned mask;
    emulate_place at;
    unsigned epoch; // counts __syncwarp: what orders memory within a warp
    lane_call call[LANES];
};

struct copy { // of cp.async: read when issued, written when waited for
    unsigned to;
    int group;
    unsigned char bytes[16];
};

#if defined(__x86_64__)
struct context {
    void *stack_pointer;
};
#else
using context = ucontext_t;
#endif

struct fiber {
    context at;
    int groups; // committed
    bool at_barrier;
    std::vector<copy> copies;
};

struct access { // the last one of its kind to a cell of shared memory
    unsigned epoch;      // of the block; 0: never
    unsigned warp_epoch; // of the thread's warp
    unsigned thread;     // or SEVERAL
    unsigned warp;       // or SEVERAL
    unsigned clock;      // of the warp
};
struct cell {
    access read, write;
    unsigned read_clock[MAX_WARPS]; // of each warp's last read, 0 for none
    unsigned pending;               // thread + 1 whose copy is under way; SEVERAL: TMA
    bool generic;                   // written by a thread, and
    unsigned fences;                // how many proxy fences that had made before
};
constexpr unsigned STATIC_CELLS = SHARED_LIMIT / 4; // where they begin: words of dynamic, then bytes of static shared memory

struct {
    const emulate_launch *launch;
    emulate_report *report;
    context main;
    sigjmp_buf escape;
    unsigned thread; // the one that runs
    unsigned left;   // threads that have not returned
    unsigned warps_ready;
    unsigned at_barrier;
    emulate_place barrier;
    unsigned epoch; // counts barriers and blocks: what orders memory within a block
    bool greedy;    // this block's order: one warp as far as it gets
    bool failed, running;
    std::uint64_t random;
    warp warps[MAX_WARPS];
    fiber fibers[MAX_THREADS];
    cell cells[STATIC_CELLS + STATIC_LIMIT];
    unsigned char *static_from; // the kernel's __shared__ variables
    std::size_t static_bytes;
    unsigned char *stacks;
} core;

} // namespace

extern "C" {
emulate_dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) thread_local unsigned char shared_bytes[SHARED_LIMIT]; // what a kernel declares as extern __shared__
}

namespace {

unsigned warp_of(unsigned thread) { return thread / LANES; }
unsigned lane_of(unsigned thread) { return thread % LANES; }

// ---- reports ---------------------------------------------------------------------------------------------------

const char *short_name(const char *file)
{
    const char *slash = std::strrchr(file, '/');
    return slash ? slash + 1 : file;
}

void write_report(const void *address, const char *format, va_list arguments)
{
    emulate_report &r = *core.report;
    const int used = std::snprintf(r.text, sizeof r.text, "block %u, thread %u (warp %u, lane %u): ", blockIdx.x, core.thread,
                                   warp_of(core.thread), lane_of(core.thread));
    std::vsnprintf(r.text + used, sizeof r.text - static_cast<std::size_t>(used), format, arguments);
    r.address = address;
    core.failed = true;
}

[[noreturn]] void escape() { siglongjmp(core.escape, 1); } // from a fiber, never to come back to it

[[noreturn, gnu::format(printf, 1, 2)]] void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_report(nullptr, format, arguments);
    va_end(arguments);
    escape();
}

[[gnu::format(printf, 2, 3)]] void note_fault(const void *address, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_report(address, format, arguments);
    va_end(arguments);
}

void on_signal(int number, siginfo_t *info, void *)
{
    if (!core.running) {
        std::signal(number, SIG_DFL);
        return; // the same again, without us
    }
    const unsigned char *at = static_cast<const unsigned char *>(info->si_addr);
    const unsigned char *stacks = core.stacks;
    if (number == SIGFPE) {
        note_fault(nullptr, "an integer division by zero or overflow");
    } else if (number == SIGILL) {
        note_fault(nullptr, "an index outside of its array, a misaligned vector or a shift out of range");
    } else if (at >= stacks && at < stacks + MAX_CLUSTER * MAX_THREADS * (STACK_BYTES + GUARD_BYTES)) {
        note_fault(nullptr, "the stack of %zu bytes is too small", STACK_BYTES);
    } else {
        note_fault(at, "accesses memory that is no argument's");
    }
    escape();
}

// ---- random order --------------------------------------------------------------------------------------------------

std::uint64_t mix(std::uint64_t x) // splitmix64
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

unsigned draw() // xorshift
{
    core.random ^= core.random << 13;
    core.random ^= core.random >> 7;
    core.random ^= core.random << 17;
    return static_cast<unsigned>(core.random >> 32);
}

unsigned one_bit_of(unsigned mask) // any of them; mask is not 0
{
    const unsigned turn = draw() % 32;
    const unsigned turned = mask >> turn | (turn ? mask << (32 - turn) : 0);
    return (static_cast<unsigned>(__builtin_ctz(turned)) + turn) % 32;
}

// ---- fibers -----------------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
extern "C" void emulate_switch(void **save, void *load);
asm(".text\n"
    ".type emulate_switch, @function\n"
    "emulate_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulate_switch, . - emulate_switch\n");

void make_context(context *c, void *stack, std::size_t size, void (*entry)())
{
    void **top = reinterpret_cast<void **>(static_cast<unsigned char *>(stack) + size);
    *--top = nullptr; // where entry would return to; leaves the stack as at a function's first instruction
    *--top = reinterpret_cast<void *>(entry);
    top -= 6;
    std::memset(top, 0, 6 * sizeof *top);
    c->stack_pointer = top;
}

void switch_context(context *from, context *to) { emulate_switch(&from->stack_pointer, to->stack_pointer); }
#else
void make_context(context *c, void *stack, std::size_t size, void (*entry)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
}

void switch_context(context *from, context *to) { swapcontext(from, to); }
#endif

void become(unsigned thread)
{
    core.thread = thread;
    threadIdx.x = thread;
}

void set_ready(unsigned w, unsigned lanes)
{
    core.warps[w].ready |= lanes;
    core.warps_ready |= 1u << w;
}

// ---- who goes on ---------------------------------------------------------------------------------------------------------

void describe_waiting(); // hopper.hpp
bool complete_some(bool must);
bool is_parked(); // cluster.hpp
void check_cluster_wait(const char *what);
unsigned stacks_of_block();

[[noreturn]] void fail_deadlock()
{
    describe_waiting();
    check_cluster_wait("deadlock");
    const unsigned n_warps = core.launch->threads / LANES;
    for (unsigned w = 0; w < n_warps; w++) {
        const warp &x = core.warps[w];
        const unsigned missing = x.mask & ~x.waiting;
        if (x.waiting != 0) {
            fail("deadlock: lanes 0x%08x of warp %u wait at %s (%s:%d) for lanes 0x%08x, %s", x.waiting, w, MEETING_NAME[x.what],
                 short_name(x.at.file), x.at.line, missing,
                 (missing & x.gone) != 0 ? "which have left the kernel" : "which wait at __syncthreads");
        }
    }
    fail("deadlock: %u threads wait at __syncthreads (%s:%d) for %u that do not come", core.at_barrier, short_name(core.barrier.file),
         core.barrier.line, core.launch->threads - core.at_barrier);
}

// Suspends the fiber at hand, which is not ready, for one that is; comes back when it is ready again.
void let_another_run()
{
    const unsigned self = core.thread;
    complete_some(false);
    while (core.warps_ready == 0 && complete_some(true)) {
    }
    if (core.warps_ready == 0) {
        if (core.left > 0 && !is_parked()) {
            fail_deadlock();
        }
        switch_context(&core.fibers[self].at, &core.main);
        return; // of a block that was parked, chosen to go on
    }
    unsigned w = warp_of(self);
    if (!core.greedy || core.warps[w].ready == 0) {
        w = one_bit_of(core.warps_ready);
    }
    const unsigned lane = one_bit_of(core.warps[w].ready);
    core.warps[w].ready &= ~(1u << lane);
    if (core.warps[w].ready == 0) {
        core.warps_ready &= ~(1u << w);
    }
    const unsigned next = w * LANES + lane;
    become(next);
    if (next != self) {
        switch_context(&core.fibers[self].at, &core.fibers[next].at);
        // `become` has been called for this thread by whoever switched to it
    }
}

void thread_main()
{
    core.launch->thread(core.launch->params);
    const unsigned self = core.thread;
    if (core.at_barrier > 0) {
        fail("leaves the kernel while %u threads of its block wait at __syncthreads (%s:%d)", core.at_barrier, short_name(core.barrier.file),
             core.barrier.line);
    }
    check_cluster_wait("leaves the kernel");
    core.warps[warp_of(self)].gone |= 1u << lane_of(self);
    core.left--;
    let_another_run();
    std::abort(); // a thread that has left does not come back
}

// ---- collectives of a warp ---------------------------------------------------------------------------------------------

void shuffle_all(warp &w)
{
    for (unsigned lane = 0; lane < LANES; lane++) {
        if ((w.mask >> lane & 1u) == 0) {
            continue;
        }
        const lane_call &c = w.call[lane];
        const int self = static_cast<int>(lane) % c.width;
        const int base = static_cast<int>(lane) - self;
        int from = self;
        switch (c.shuffle) {
        case EMULATE_SHUFFLE_XOR: from = self ^ static_cast<int>(c.b); break;
        case EMULATE_SHUFFLE_INDEX: from = static_cast<int>(c.b) % c.width; break;
        case EMULATE_SHUFFLE_UP: from = self - static_cast<int>(c.b); break;
        case EMULATE_SHUFFLE_DOWN: from = self + static_cast<int>(c.b); break;
        }
        from = from < 0 || from >= c.width ? self : from;
        if ((w.mask >> (base + from) & 1u) == 0) {
            fail("lane %u shuffles with lane %d, which its mask 0x%08x does not name (%s:%d)", lane, base + from, w.mask, short_name(w.at.file),
                 w.at.line);
        }
        *static_cast<unsigned *>(c.out) = w.call[base + from].a;
    }
}

void vote(warp &w)
{
    unsigned votes = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if ((w.mask >> lane & 1u) != 0 && w.call[lane].a != 0) {
            votes |= 1u << lane;
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        if ((w.mask >> lane & 1u) != 0) {
            *static_cast<unsigned *>(w.call[lane].out) = votes;
        }
    }
}

float from_bits(unsigned short bits, bool bf16)
{
    return bf16 ? __builtin_bit_cast(float, static_cast<unsigned>(bits) << 16) : static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

// The operands' places are those of the PTX manual: "Matrix Fragments for mma.m16n8k16 with floating point type".
template <bool BF16> void multiply(warp &w)
{
    float a[16][16], b[16][8], c[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned g = lane / 4, t = lane % 4;
        const lane_call &call = w.call[lane];
        const unsigned pair[2] = {call.a, call.b};
        const float *sum = static_cast<const float *>(call.out);
        for (unsigned h = 0; h < 2; h++) {
            for (unsigned i = 0; i < 4; i++) {
                a[g + i % 2 * 8][2 * t + h + i / 2 * 8] = from_bits(static_cast<unsigned short>(call.in[i] >> (16 * h)), BF16);
            }
            for (unsigned i = 0; i < 2; i++) {
                b[2 * t + h + 8 * i][g] = from_bits(static_cast<unsigned short>(pair[i] >> (16 * h)), BF16);
                c[g + 8 * i][2 * t + h] = sum[2 * i + h];
            }
        }
    }
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned i = 0; i < 16; i++) {
            for (unsigned j = 0; j < 8; j++) {
                c[i][j] += a[i][k] * b[k][j];
            }
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned g = lane / 4, t = lane % 4;
        float *sum = static_cast<float *>(w.call[lane].out);
        for (unsigned i = 0; i < 4; i++) {
            sum[i] = c[g + i / 2 * 8][2 * t + i % 2];
        }
    }
}

// ---- shared memory ----------------------------------------------------------------------------------------------------

struct cell_name {
    char text[64];
};

cell_name name_of(unsigned index)
{
    cell_name name;
    const bool dynamic = index < STATIC_CELLS;
    std::snprintf(name.text, sizeof name.text, dynamic ? "byte %u of shared memory" : "byte %u of its __shared__ variables",
                  dynamic ? 4 * index : index - STATIC_CELLS);
    return name;
}

[[noreturn]] void fail_race(unsigned index, const char *what, const access &other, const char *did, emulate_place at)
{
    const bool same_warp = other.warp == warp_of(core.thread);
    char who[64];
    if (other.thread == SEVERAL) {
        std::snprintf(who, sizeof who, other.warp == MAX_WARPS ? "a TMA load" : other.warp == SEVERAL ? "several warps" : "several lanes of warp %u", other.warp);
    } else {
        std::snprintf(who, sizeof who, "thread %u (warp %u)", other.thread, other.warp);
    }
    fail("%s %s, which %s has %s with no %s in between (%s:%d)", what, name_of(index).text, who, did, same_warp ? "__syncwarp" : "barrier",
         short_name(at.file), at.line);
}

unsigned seen_clock(unsigned warp, unsigned other); // hopper.hpp: how much of another warp a warp has heard of

bool unordered(const access &other, unsigned thread)
{
    if (other.epoch != core.epoch || other.thread == thread) {
        return false;
    }
    if (other.warp != warp_of(thread)) {
        return other.warp == SEVERAL || seen_clock(warp_of(thread), other.warp) < other.clock;
    }
    return other.warp_epoch == core.warps[warp_of(thread)].epoch;
}

bool unordered_reads(const cell &x, unsigned thread)
{
    if (x.read.warp != SEVERAL) {
        return unordered(x.read, thread);
    }
    for (unsigned w = 0; x.read.epoch == core.epoch && w < MAX_WARPS; w++) {
        if (w != warp_of(thread) && seen_clock(warp_of(thread), w) < x.read_clock[w]) {
            return true;
        }
    }
    return false;
}

void check_cell(unsigned index, unsigned thread, const char *what, emulate_place at)
{
    cell &x = core.cells[index];
    if (x.pending == SEVERAL) {
        fail("%s %s, to which a TMA load is still under way (%s:%d)", what, name_of(index).text, short_name(at.file), at.line);
    }
    if (x.pending != 0) {
        fail("%s %s, to which a cp.async of thread %u is still under way (%s:%d)", what, name_of(index).text, x.pending - 1, short_name(at.file),
             at.line);
    }
    if (unordered(x.write, thread)) {
        fail_race(index, what, x.write, "written", at);
    }
}

// whole_warp: the value goes to every lane, as with ldmatrix.
void note_read(unsigned first_cell, unsigned n, unsigned thread, bool whole_warp, emulate_place at)
{
    const unsigned w = warp_of(thread);
    const unsigned warp_epoch = core.warps[w].epoch;
    for (unsigned i = first_cell; i < first_cell + n; i++) {
        check_cell(i, thread, "reads", at);
        access &r = core.cells[i].read;
        const bool first = r.epoch != core.epoch;
        const unsigned clock = seen_clock(w, w);
        if (first) {
            std::memset(core.cells[i].read_clock, 0, sizeof core.cells[i].read_clock);
        }
        core.cells[i].read_clock[w] = clock;
        if (first || (r.warp == w && r.warp_epoch != warp_epoch)) {
            r = {core.epoch, warp_epoch, whole_warp ? SEVERAL : thread, w, clock};
        } else {
            r.clock = clock;
            r.thread = r.thread == thread && !whole_warp ? thread : SEVERAL;
            r.warp = r.warp == w ? w : SEVERAL;
        }
    }
}

unsigned proxy_fences_of(unsigned thread); // hopper.hpp
void check_stores(unsigned from, unsigned bytes, const char *what, emulate_place at);

void note_writer(cell &x, unsigned thread)
{
    const unsigned w = warp_of(thread);
    x.write = {core.epoch, core.warps[w].epoch, thread, w, seen_clock(w, w)};
    x.generic = true;
    x.fences = proxy_fences_of(thread);
}

void note_write(unsigned first_cell, unsigned n, unsigned thread, emulate_place at)
{
    check_stores(4 * first_cell, 4 * n, "writes", at);
    for (unsigned i = first_cell; i < first_cell + n; i++) {
        check_cell(i, thread, "writes", at);
        if (unordered_reads(core.cells[i], thread)) {
            fail_race(i, "writes", core.cells[i].read, "read", at);
        }
        note_writer(core.cells[i], thread);
    }
}

unsigned char *shared_at(unsigned address, unsigned bytes, unsigned thread, const char *what, emulate_place at)
{
    const unsigned offset = address - WINDOW;
    const unsigned limit = core.launch->smem_bytes;
    if (address < WINDOW || offset + bytes > limit || offset > limit) {
        fail("lane %u: %s at byte %d of shared memory: the block has %u (%s:%d)", lane_of(thread), what, static_cast<int>(offset), limit,
             short_name(at.file), at.line);
    }
    if (address % bytes != 0) {
        fail("lane %u: %s at byte %u of shared memory: not a multiple of %u (%s:%d)", lane_of(thread), what, offset, bytes,
             short_name(at.file), at.line);
    }
    return shared_bytes + offset;
}

void load_matrices(warp &w, unsigned first_thread, bool transposed)
{
    unsigned short part[4][8][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned thread = first_thread + lane;
        const unsigned char *row = shared_at(w.call[lane].a, 16, thread, "ldmatrix reads", w.at);
        note_read((w.call[lane].a - WINDOW) / 4, 4, thread, true, w.at);
        std::memcpy(part[lane / 8][lane % 8], row, 16);
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned *r = static_cast<unsigned *>(w.call[lane].out);
        for (unsigned i = 0; i < 4; i++) {
            const unsigned x = lane / 4, y = lane % 4 * 2;
            const unsigned short low = transposed ? part[i][y][x] : part[i][x][y];
            const unsigned short high = transposed ? part[i][y + 1][x] : part[i][x][y + 1];
            r[i] = low | static_cast<unsigned>(high) << 16;
        }
    }
}

void store_matrices(warp &w, unsigned first_thread, bool transposed)
{
    unsigned short part[4][8][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const unsigned *r = static_cast<const unsigned *>(w.call[lane].out);
        for (unsigned i = 0; i < 4; i++) {
            const unsigned x = lane / 4, y = lane % 4 * 2;
            (transposed ? part[i][y][x] : part[i][x][y]) = static_cast<unsigned short>(r[i]);
            (transposed ? part[i][y + 1][x] : part[i][x][y + 1]) = static_cast<unsigned short>(r[i] >> 16);
        }
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned char *row = shared_at(w.call[lane].a, 16, first_thread + lane, "stmatrix writes", w.at);
        note_write((w.call[lane].a - WINDOW) / 4, 4, first_thread + lane, w.at);
        std::memcpy(row, part[lane / 8][lane % 8], 16);
    }
}

#include "hopper.hpp"
#include "cluster.hpp"

unsigned seen_clock(unsigned warp, unsigned other) { return hopper.clock[warp].at[other]; }
unsigned proxy_fences_of(unsigned thread) { return hopper.proxy_fences[thread]; }

// ---- coming together -----------------------------------------------------------------------------------------------------

void elect(warp &w) // any lane, but the same one all through the block
{
    const unsigned chosen = static_cast<unsigned>(mix(core.launch->seed ^ blockIdx.x) % LANES);
    for (unsigned lane = 0; lane < LANES; lane++) {
        *static_cast<unsigned *>(w.call[lane].out) = lane == chosen;
    }
}

void finish(unsigned index)
{
    warp &w = core.warps[index];
    switch (w.what) {
    case MEET_SHUFFLE: shuffle_all(w); break;
    case MEET_BALLOT: vote(w); break;
    case MEET_SYNCWARP: w.epoch++; break;
    case MEET_LDMATRIX: load_matrices(w, index * LANES, false); break;
    case MEET_LDMATRIX_TRANS: load_matrices(w, index * LANES, true); break;
    case MEET_STMATRIX: store_matrices(w, index * LANES, false); break;
    case MEET_STMATRIX_TRANS: store_matrices(w, index * LANES, true); break;
    case MEET_MMA_F16: multiply<false>(w); break;
    case MEET_MMA_BF16: multiply<true>(w); break;
    case MEET_ELECT: elect(w); break;
    case MEET_WGMMA: issue(w, index); break;
    case MEET_WGMMA_FENCE: fence_registers(w, index); break;
    case MEET_WGMMA_COMMIT: commit(index); break;
    case MEET_WGMMA_WAIT: retire(index, w.call[0].a, w.at); break;
    }
}

void meet(meeting what, unsigned mask, emulate_place at, const lane_call &call)
{
    const unsigned index = warp_of(core.thread);
    const unsigned lane = lane_of(core.thread);
    warp &w = core.warps[index];
    if ((mask >> lane & 1u) == 0) {
        fail("%s whose mask 0x%08x does not name the lane itself (%s:%d)", MEETING_NAME[what], mask, short_name(at.file), at.line);
    }
    while (w.waiting != 0 && (w.mask & mask) == 0) { // groups of a warp that have no lane in common meet apart
        w.deferred |= 1u << lane;
        let_another_run();
    }
    if (w.waiting == 0) {
        w.what = what;
        w.mask = mask;
        w.at = at;
    } else if (w.what != what || w.mask != mask || w.at.line != at.line) {
        fail("diverged: at %s with mask 0x%08x (%s:%d), while lanes 0x%08x of its warp wait at %s with mask 0x%08x (%s:%d)", MEETING_NAME[what],
             mask, short_name(at.file), at.line, w.waiting, MEETING_NAME[w.what], w.mask, short_name(w.at.file), w.at.line);
    }
    w.call[lane] = call;
    w.waiting |= 1u << lane;
    if (w.waiting != w.mask) {
        let_another_run();
        return;
    }
    finish(index);
    const unsigned others = (w.waiting & ~(1u << lane)) | w.deferred;
    w.waiting = 0;
    w.deferred = 0;
    if (others != 0) {
        set_ready(index, others);
    }
}

constexpr unsigned ALL = 0xffffffffu;

// ---- one launch ------------------------------------------------------------------------------------------------------------

void make_stacks()
{
    const std::size_t each = STACK_BYTES + GUARD_BYTES;
    void *p = mmap(nullptr, MAX_CLUSTER * MAX_THREADS * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        std::perror("emulator: stacks");
        std::abort();
    }
    core.stacks = static_cast<unsigned char *>(p);
    for (unsigned i = 0; i < MAX_CLUSTER * MAX_THREADS; i++) {
        mprotect(core.stacks + i * each, GUARD_BYTES, PROT_NONE);
    }
}

void take_signals()
{
    static unsigned char stack[64 * 1024];
    stack_t alternate = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        sigaction(number, &action, nullptr);
    }
}

extern "C" void *__tls_get_addr(std::size_t *module_and_offset);

// Static shared memory is all that a kernel's object keeps in thread-local memory.
int find_static(dl_phdr_info *info, std::size_t, void *code)
{
    bool ours = false;
    std::size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = info->dlpi_phdr[i];
        const std::uintptr_t from = info->dlpi_addr + part.p_vaddr;
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(code);
        ours = ours || (part.p_type == PT_LOAD && at >= from && at < from + part.p_memsz);
        bytes = part.p_type == PT_TLS ? part.p_memsz : bytes;
    }
    if (ours && bytes > 0) {
        std::size_t index[2] = {info->dlpi_tls_modid, 0};
        core.static_from = static_cast<unsigned char *>(__tls_get_addr(index));
        core.static_bytes = bytes;
    }
    return ours;
}

void start_block(unsigned block)
{
    const emulate_launch &l = *core.launch;
    const unsigned n_warps = l.threads / LANES;
    blockIdx.x = block;
    core.random = mix(l.seed ^ mix(block)) | 1u;
    core.greedy = draw() % 4 != 0;
    core.epoch++;
    core.left = l.threads;
    core.at_barrier = 0;
    core.warps_ready = 0;
    start_hopper();
    std::memset(shared_bytes, POISON, l.smem_bytes);
    std::memset(core.static_from, POISON, core.static_bytes);
    for (unsigned w = 0; w < n_warps; w++) {
        const unsigned epoch = core.warps[w].epoch;
        core.warps[w] = {};
        core.warps[w].epoch = epoch;
        set_ready(w, ALL);
    }
    for (unsigned i = 0; i < l.threads; i++) {
        fiber &f = core.fibers[i];
        f.groups = 0;
        f.copies.clear();
        const unsigned stack = stacks_of_block() * MAX_THREADS + i;
        make_context(&f.at, core.stacks + stack * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES, STACK_BYTES, thread_main);
    }
}

void resume_block()
{
    const unsigned w = one_bit_of(core.warps_ready);
    const unsigned lane = one_bit_of(core.warps[w].ready);
    core.warps[w].ready &= ~(1u << lane);
    become(w * LANES + lane);
    switch_context(&core.main, &core.fibers[core.thread].at);
    if (is_parked()) {
        return;
    }
    end_hopper();
    for (unsigned i = 0; i < core.launch->smem_bytes / 4; i++) { // copies that nobody waited for
        core.cells[i].pending = 0;
        core.cells[i].generic = false;
    }
}

void run_block(unsigned block, std::vector<bool> &done)
{
    cluster.size = cluster.waiting = cluster.stacks = 0;
    cluster.opened.clear();
    start_block(block);
    resume_block();
    if (is_parked()) {
        run_cluster(block, done);
    }
}

std::vector<unsigned> shuffled(unsigned n, std::uint64_t seed)
{
    std::vector<unsigned> order(n);
    for (unsigned i = 0; i < n; i++) {
        order[i] = i;
    }
    for (unsigned i = n; i > 1; i--) {
        seed = mix(seed);
        std::swap(order[i - 1], order[seed % i]);
    }
    return order;
}

bool fits(const emulate_launch &l)
{
    if (l.threads == 0 || l.threads % LANES != 0 || l.threads > MAX_THREADS) {
        std::snprintf(core.report->text, sizeof core.report->text, "%u threads a block; it takes multiples of 32 up to 1024", l.threads);
        return false;
    }
    core.static_from = shared_bytes;
    core.static_bytes = 0;
    dl_iterate_phdr(find_static, reinterpret_cast<void *>(l.thread));
    if (core.static_bytes > STATIC_LIMIT) {
        std::snprintf(core.report->text, sizeof core.report->text, "%zu bytes of __shared__ variables; it takes up to %u", core.static_bytes,
                      STATIC_LIMIT);
        return false;
    }
    if (l.smem_bytes > SHARED_LIMIT) {
        std::snprintf(core.report->text, sizeof core.report->text, "%u bytes of shared memory; it takes up to %u", l.smem_bytes, SHARED_LIMIT);
        return false;
    }
    return true;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int emulate_run(const emulate_launch *launch, emulate_report *report)
{
    if (core.stacks == nullptr) {
        make_stacks();
        take_signals();
    }
    *report = {};
    core.launch = launch;
    core.report = report;
    core.failed = false;
    if (!fits(*launch)) {
        return 1;
    }
    blockDim = {launch->threads, 1, 1};
    gridDim = {launch->blocks, 1, 1};
    const std::vector<unsigned> order = shuffled(launch->blocks, launch->seed);
    std::vector<bool> done(launch->blocks); // with another block of their cluster
    if (sigsetjmp(core.escape, 1) == 0) {
        core.running = true;
        for (const unsigned block : order) {
            if (!done[block]) {
                run_block(block, done);
            }
        }
    } else {
        std::memset(core.cells, 0, sizeof core.cells);
    }
    core.running = false;
    return core.failed;
}

// ---- plain accesses ---------------------------------------------------------------------------------------------------------
//
// Kernels are compiled with -fsanitize=thread, which calls these ahead of every access to memory, and linked without its
// library. What is not a __shared__ variable is left to the pages around it.

namespace {

void note_plain(const void *p, std::size_t bytes, bool write)
{
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
    if (core.left != threads) {
        fail("__syncthreads after %u threads of the block have left the kernel (%s:%d)", threads - core.left, short_name(at.file), at.line);
    }
    if (core.at_barrier > 0 && core.barrier.line != at.line) {
        fail("two barriers at once: at __syncthreads (%s:%d), while %u threads wait at another one (%s:%d)", short_name(at.file), at.line,
             core.at_barrier, short_name(core.barrier.file), core.barrier.line);
    }
    core.barrier = at;
    if (++core.at_barrier < threads) {
        let_another_run();
        return;
    }
    core.at_barrier = 0;
    core.epoch++;
    const unsigned self = core.thread;
    for (unsigned w = 0; w < threads / LANES; w++) {
        const unsigned others = w == warp_of(self) ? ALL & ~(1u << lane_of(self)) : ALL;
        set_ready(w, others);
    }
    set_ready(warp_of(self), 1u << lane_of(self)); // the last one has no right to be the first to go on
    let_another_run();
}

void emulate_cluster_barrier(unsigned size, emulate_place at) { wait_for_cluster(size, 0, at); }
void emulate_exchange_init(unsigned exchange, emulate_place at) { open_exchange(exchange, at); }
void emulate_exchange_expect(unsigned exchange, unsigned bytes, emulate_place at) { expect_at_exchange(exchange, bytes, at); }
void emulate_exchange_push(unsigned address, float x, unsigned exchange, unsigned rank, unsigned size, emulate_place at)
{
    push_to_cluster(address, x, exchange, rank, size, at);
}
void emulate_exchange_wait(unsigned exchange, unsigned parity, unsigned size, emulate_place at) { wait_at_exchange(exchange, parity, size, at); }

void emulate_misaligned(const void *p, unsigned bytes, emulate_place at)
{
    fail("a vector of %u bytes at %p, which is no multiple of that (%s:%d)", bytes, p, short_name(at.file), at.line);
}

void emulate_endless_wait(unsigned is, unsigned turn, emulate_place at)
{
    fail("waits for turn %u where it is turn %u and no block before it is left to change that (%s:%d)", turn, is, short_name(at.file), at.line);
}

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
    unsigned char *place = shared_at(to, 16, core.thread, "cp.async writes", at);
    fiber &f = core.fibers[core.thread];
    copy c = {to - WINDOW, f.groups, {}};
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0 && bytes != 0) {
        emulate_misaligned(from, 16, at);
    }
    std::memcpy(c.bytes, from, static_cast<std::size_t>(bytes));
    note_write(c.to / 4, 4, core.thread, at);
    std::memset(place, POISON, 16); // neither what was there nor what will be
    for (unsigned i = 0; i < 4; i++) {
        core.cells[c.to / 4 + i].pending = core.thread + 1;
    }
    f.copies.push_back(c);
}

void emulate_copy_commit() { core.fibers[core.thread].groups++; }

void emulate_copy_wait(int pending)
{
    fiber &f = core.fibers[core.thread];
    std::size_t kept = 0;
    for (const copy &c : f.copies) {
        if (c.group >= f.groups - pending) {
            f.copies[kept++] = c;
            continue;
        }
        std::memcpy(shared_bytes + c.to, c.bytes, 16);
        for (unsigned i = 0; i < 4; i++) {
            cell &x = core.cells[c.to / 4 + i];
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
    hopper.part[warp_of(core.thread)].registers = registers;
}

unsigned emulate_named_barrier(unsigned id, unsigned threads, bool vote, emulate_place at) { return meet_at_named(id, threads, vote, at); }
void emulate_named_arrive(unsigned id, unsigned threads, emulate_place at) { arrive_at_named(id, threads, at); }

void emulate_mbarrier_init(unsigned address, unsigned arrivals, emulate_place at)
{
    shared_at(address, 8, core.thread, "an mbarrier is", at);
    mbarrier b = {};
    b.epoch = core.epoch;
    b.thread = core.thread;
    b.arrivals = b.pending = arrivals;
    hopper.mbarriers[address - WINDOW] = b;
}

void emulate_mbarrier_init_fence()
{
    for (auto &[offset, b] : hopper.mbarriers) {
        b.fenced = b.fenced || b.thread == core.thread;
    }
}

void emulate_mbarrier_arrive(unsigned address, unsigned bytes, emulate_place at) { arrive(address, bytes, at); }

void emulate_mbarrier_wait(unsigned address, unsigned parity, emulate_place at)
{
    mbarrier &b = mbarrier_at(address, at);
    while ((b.phase & 1u) == (parity & 1u)) {
        b.waiting.push_back(core.thread);
        let_another_run();
    }
    take(clock_of(warp_of(core.thread)), b.over);
}

void emulate_tma_load(unsigned to, const void *map, unsigned barrier, unsigned rank, const int *first, emulate_place at)
{
    const emulate_tensor_map m = read_map(map, rank, at);
    start_load(make_transfer(m, to, barrier, rank, first), at);
}
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
    start_load(t, at);
}

void emulate_bulk_add(float *to, unsigned from, unsigned bytes, emulate_place at) { start_addition(to, from, bytes, false, at); }
void emulate_bulk_store(float *to, unsigned from, unsigned bytes, emulate_place at) { start_addition(to, from, bytes, true, at); }
void emulate_bulk_commit() { commit_stores(core.thread); }
void emulate_bulk_wait(unsigned pending, emulate_place) { finish_stores(core.thread, pending); }

void emulate_fence_async_proxy() { hopper.proxy_fences[core.thread]++; }

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
