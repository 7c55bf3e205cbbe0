// state.hpp: what the core knows: of a launch, of each block that has begun, of its warps, threads and shared memory. A room of emulator.cpp.

namespace {

constexpr unsigned LANES = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / LANES;
constexpr unsigned MAX_CLUSTER = 16; // blocks
constexpr unsigned MAX_BESIDE = 160; // blocks that have begun and are not over
constexpr unsigned GUARDED_STACKS = 16 * MAX_THREADS; // more would be too many mappings for a process
constexpr std::size_t STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024;
constexpr unsigned SHARED_LIMIT = 256 * 1024; // dynamic
constexpr unsigned STATIC_LIMIT = 48 * 1024;
constexpr unsigned WINDOW = 1024; // the shared address of the first byte of dynamic shared memory
constexpr unsigned char POISON = 0xff; // a NaN in f32, f16 and bf16
constexpr unsigned SEVERAL = 0xffffffffu; // threads, where one is to be named

enum meeting { MEET_SHUFFLE, MEET_BALLOT, MEET_MATCH, MEET_SYNCWARP, MEET_LDMATRIX, MEET_LDMATRIX_TRANS, MEET_STMATRIX, MEET_STMATRIX_TRANS, MEET_MMA_F16, MEET_MMA_BF16,
               MEET_ELECT, MEET_WGMMA, MEET_WGMMA_FENCE, MEET_WGMMA_COMMIT, MEET_WGMMA_WAIT };
const char *const MEETING_NAME[] = {"a shuffle", "a vote", "a match", "__syncwarp", "ldmatrix", "ldmatrix.trans", "stmatrix", "stmatrix.trans", "mma (f16)", "mma (bf16)",
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
    unsigned cluster_barriers; // how many the block had passed at the init
    std::vector<unsigned> waiting;
    emulate_place at; // where they wait
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
    bool pushed;               // by another block of the cluster: 4 bytes,
    float word;                // these
    bool arrival;              // the same: no bytes, and nothing is written
    unsigned copied;           // a number, of shared memory,
    struct block *from;        // of this block
    unsigned place, barrier;   // in shared memory
    int at[5];
    unsigned thread, group; // of a store or an addition
    emulate_place issue;
    const char *name() const { return sum == nullptr ? "TMA store" : over ? "bulk store" : "bulk addition"; }
    unsigned rows() const { return map.box[1] * map.box[2]; }
    unsigned row_bytes() const { return map.box[0] * map.element_bytes; }
    unsigned bytes() const { return line_bytes != 0 ? line_bytes : rows() * row_bytes(); }
};

struct late_write { // a TMA store or addition whose bytes have been read, and are on their way to global memory
    transfer t;
    const struct block *owner;
    unsigned block; // its number: its place may be another one's by now
    std::vector<unsigned char> bytes;
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

struct asynchronous { // all that sm_90 adds to a block
    clocks clock[MAX_WARPS + 1];
    std::map<unsigned, mbarrier> mbarriers;
    named_barrier named[16];
    std::vector<transfer> transfers; // loads under way
    std::vector<transfer> stores;    // and additions, whose bytes are still to be read
    unsigned store_groups[MAX_THREADS];
    group_part part[MAX_WARPS];
    unsigned proxy_fences[MAX_THREADS];
    clocks told; // of warps, when they arrived at another block
};

// ---- global memory ---------------------------------------------------------------------------------------------------------

struct moment { // of a thread of a block
    unsigned thread, epoch, warp_epoch, clock;
    unsigned releases; // of its block, so far
    bool operator==(const moment &) const = default;
};
struct snapshot { // what a thread that releases knows of its block
    unsigned block;
    moment at;
    clocks heard;
};
using known = std::vector<const snapshot *>; // by blocks and threads: what is heard of them

enum write_kind { WRITE_PLAIN, WRITE_ATOMIC, WRITE_BULK, WRITE_BULK_SUM };
enum access_kind { ACCESS_READ, ACCESS_STORE, ACCESS_SUM, ACCESS_SUM_IN_ORDER };
struct written {
    unsigned block;
    moment at;
    write_kind how;
    bool under_way; // by TMA: its thread has not waited for it
};
struct acquisition {
    moment at;
    const known *what;
    unsigned seen; // the number of the write that was found at the word
};
struct fence_made { // what the writes behind a fence tell
    const known *heard;
    const snapshot *at;
};
struct bulk_write {
    unsigned thread, group, number;
};

struct block_writes { // what a block has written and heard of
    unsigned releases;
    std::vector<acquisition> acquired;
    std::vector<moment> waits;                 // for the launch before
    std::vector<bulk_write> bulk;              // under way
    unsigned last_write[2][MAX_THREADS];       // of each thread: the number of its last one, plain or atomic
    unsigned last_known[2][MAX_THREADS];       // that it was found to know, itself and by TMA
    fence_made fences[MAX_THREADS];
    const known *unfenced[MAX_THREADS];        // read by atomics, and not yet acquired
    const known *fenced_bulk[MAX_THREADS];     // heard when it last fenced TMA
};


// ---- blocks ---------------------------------------------------------------------------------------------------------------

struct turn_wait { // of a thread for another block
    unsigned thread;
    const unsigned *word;
    unsigned turn;
    bool another; // than `turn` is waited for
    emulate_place at;
};

struct block;
struct cluster { // a block without one is alone in it
    unsigned size;
    unsigned here;     // blocks of which all threads are at the barrier
    unsigned over;     // that have left the kernel
    unsigned barriers; // that all have passed
    block *blocks[MAX_CLUSTER];
};

struct block {
    unsigned number;
    unsigned place; // among those that run side by side: its stacks
    bool running;   // has begun and is not over
    cluster *of;
    unsigned left; // threads that have not returned
    unsigned warps_ready;
    unsigned at_barrier;
    emulate_place barrier;
    unsigned at_cluster_barrier;
    emulate_place cluster_barrier;
    unsigned epoch; // counts barriers and blocks: what orders memory within a block
    bool greedy;    // this block's order: one warp as far as it gets
    unsigned lazy;  // at one switch of fibers in so many a copy comes to its end
    unsigned often; // beside others: how often it is the one that goes on
    unsigned held;  // so many times others go on, if any can
    std::uint64_t random;
    unsigned char *bytes; // dynamic shared memory
    std::vector<unsigned char> own_bytes;
    std::vector<unsigned char> statics; // the kernel's __shared__ variables, while another block has their place
    std::vector<turn_wait> turns;
    warp warps[MAX_WARPS];
    fiber fibers[MAX_THREADS];
    asynchronous hopper;
    block_writes global;
    cell cells[STATIC_CELLS + STATIC_LIMIT];
};

block *now; // that runs

struct {
    const emulate_launch *launch;
    emulate_report *report;
    context main;
    sigjmp_buf escape;
    unsigned thread; // the one that runs
    bool failed, running;
    unsigned char *static_from; // the kernel's __shared__ variables
    std::size_t static_bytes;
    unsigned char *stacks, *more_stacks; // with guards, and without
    std::vector<block *> blocks; // places for those that run side by side
    unsigned beside;             // how many of them this launch has
    const block *has_statics;    // the one whose __shared__ variables are in their place
    const block *has_dynamic;    // the same of dynamic shared memory, where several run
    unsigned slice, until_pause; // switches of fibers, and plain accesses, until another block goes on
    std::uint64_t random;        // of the order of blocks
    std::vector<late_write> writes;
    unsigned lazy; // at one switch of blocks in so many one of them comes to its end
    unsigned copies; // from block to block
    struct {
        unsigned *write_of;     // of each byte of the launches' memory the number of its last write; 0: none
        unsigned *last_on_page; // the largest of a page
        unsigned first_write, next_write = 1;  // numbers: of this launch, and of the next one made
        unsigned oldest_write;                 // that counts: an early launch looks at those of the one before, too
        std::vector<written> writes;           // of this launch, from first_write on
        std::unordered_map<const void *, const known *> messages; // at words
        std::deque<known> sets;
        std::deque<snapshot> snapshots;
    } global;
} core;

bool several() { return core.beside > 1; }

} // namespace

extern "C" {
emulate_dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) thread_local unsigned char shared_bytes[SHARED_LIMIT]; // what a kernel declares as extern __shared__
}
