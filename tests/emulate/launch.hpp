// launch.hpp: one launch, from its first block to its last. A room of emulator.cpp.
//
// As many clusters (a block without one is a cluster of one) as the launch says run side by side, each from its first line to its last; where one
// is over, the next begins, in an order drawn from the seed. By default it is one at a time.

constexpr std::size_t STACK_STEP = STACK_BYTES + GUARD_BYTES;

unsigned char *map_memory(std::size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        std::perror("emulator: memory");
        std::abort();
    }
    return static_cast<unsigned char *>(p);
}

void make_stacks()
{
    core.stacks = map_memory(GUARDED_STACKS * STACK_STEP);
    for (unsigned i = 0; i < GUARDED_STACKS; i++) {
        mprotect(core.stacks + i * STACK_STEP, GUARD_BYTES, PROT_NONE);
    }
}

unsigned char *stack_of(unsigned n)
{
    if (n < GUARDED_STACKS) {
        return core.stacks + n * STACK_STEP + GUARD_BYTES;
    }
    if (core.more_stacks == nullptr) {
        core.more_stacks = map_memory((MAX_BESIDE * MAX_THREADS - GUARDED_STACKS) * STACK_STEP);
    }
    return core.more_stacks + (n - GUARDED_STACKS) * STACK_STEP;
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

void start_warps()
{
    const emulate_launch &l = *core.launch;
    for (unsigned w = 0; w < l.threads / LANES; w++) {
        const unsigned epoch = now->warps[w].epoch;
        now->warps[w] = {};
        now->warps[w].epoch = epoch;
        set_ready(w, ALL);
    }
    for (unsigned i = 0; i < l.threads; i++) {
        fiber &f = now->fibers[i];
        f.groups = 0;
        f.copies.clear();
        make_context(&f.at, stack_of(now->place * l.threads + i), STACK_BYTES, thread_main);
    }
}

void start_memory()
{
    const std::size_t bytes = core.launch->smem_bytes;
    now->bytes = shared_bytes;
    if (several()) {
        now->own_bytes.resize(bytes);
        now->bytes = now->own_bytes.data();
        now->statics.assign(core.static_bytes, POISON);
    } else {
        std::memset(core.static_from, POISON, core.static_bytes);
        core.has_statics = now;
    }
    std::memset(now->bytes, POISON, bytes);
}

void start_block(unsigned number, cluster *of)
{
    const emulate_launch &l = *core.launch;
    now->number = blockIdx.x = number;
    now->of = of;
    now->running = true;
    now->random = mix(l.seed ^ mix(number)) | 1u;
    now->greedy = draw() % 4 != 0;
    now->lazy = several() ? 4u << draw() % 4 * 3 : 4;
    now->often = several() ? 1u << draw() % 3 * 3 : 1;
    now->held = 0;
    now->epoch++;
    now->left = l.threads;
    now->at_barrier = now->at_cluster_barrier = 0;
    now->warps_ready = 0;
    now->turns.clear();
    start_hopper();
    start_block_writes();
    start_memory();
    start_warps();
}

void clear_copies() // that nobody waited for
{
    for (unsigned i = 0; i < core.launch->smem_bytes / 4; i++) {
        now->cells[i].pending = 0;
        now->cells[i].generic = false;
    }
}

void end_block()
{
    end_hopper();
    clear_copies();
    now->running = false;
    now->of->over++;
    core.has_statics = core.has_statics == now ? nullptr : core.has_statics;
    core.has_dynamic = core.has_dynamic == now ? nullptr : core.has_dynamic;
}

// In the places that are free: those of a cluster that is over.
bool start_cluster(cluster &c, unsigned first)
{
    unsigned found = 0;
    for (unsigned i = 0; i < core.beside && found < c.size; i++) {
        if (!core.blocks[i]->running) {
            c.blocks[found++] = core.blocks[i];
        }
    }
    if (found < c.size) {
        return false;
    }
    c.here = c.over = c.barriers = 0;
    for (unsigned k = 0; k < c.size; k++) {
        now = c.blocks[k];
        start_block(first + k, &c);
    }
    return true;
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
    if (l.cluster > MAX_CLUSTER || (l.cluster > 1 && l.blocks % l.cluster != 0)) {
        std::snprintf(core.report->text, sizeof core.report->text, "clusters of %u blocks in a grid of %u; it takes 2 to %u that divide the grid", l.cluster,
                      l.blocks, MAX_CLUSTER);
        return false;
    }
    return true;
}

void make_places()
{
    while (core.blocks.size() < core.beside) {
        block *b = new (map_memory(sizeof(block))) block; // pages that are never touched are none: not to be cleared
        b->place = static_cast<unsigned>(core.blocks.size());
        core.blocks.push_back(b);
    }
}

void run_launch()
{
    const emulate_launch &l = *core.launch;
    const unsigned size = l.cluster > 1 ? l.cluster : 1;
    const std::vector<unsigned> order = shuffled(l.blocks / size, l.seed);
    std::vector<cluster> clusters(order.size());
    std::size_t next = 0;
    unsigned over = 0;
    while (over < l.blocks) {
        for (; next < order.size(); next++) {
            clusters[next].size = size;
            if (!start_cluster(clusters[next], order[next] * size)) {
                break;
            }
        }
        block *b = choose_block();
        if (b == nullptr) {
            fail_deadlock();
        }
        let_held_come_nearer();
        resume(b);
        if (now->left == 0) {
            end_block();
            over++;
        }
        flush_writes_now_and_then();
    }
    while (!core.writes.empty()) {
        flush_write(core.writes.size() - 1);
    }
}

void begin_launch(const emulate_launch &l)
{
    const unsigned size = l.cluster > 1 ? l.cluster : 1;
    core.beside = std::min(std::min(std::max(l.beside / size, 1u) * size, l.blocks), MAX_BESIDE / size * size);
    core.random = mix(l.seed) | 1u;
    core.until_pause = 1;
    core.lazy = 4u << draw_order() % 3 * 5;
    core.has_statics = nullptr;
    core.has_dynamic = nullptr;
    core.writes.clear();
    make_places();
    start_global();
    blockDim = {l.threads, 1, 1};
    gridDim = {l.blocks, 1, 1};
}

// Whatever has been left as it was.
void give_up()
{
    for (block *b : core.blocks) {
        now = b;
        clear_copies();
        std::memset(b->cells + STATIC_CELLS, 0, core.static_bytes * sizeof(cell));
        b->running = false;
    }
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
    begin_launch(*launch);
    if (sigsetjmp(core.escape, 1) == 0) {
        core.running = true;
        run_launch();
    } else {
        give_up();
    }
    core.running = false;
    return core.failed;
}
