// deadlock.hpp: the sentences about a launch of which nobody can go on: who waits for what. A room of emulator.cpp.

struct sentence {
    char *text;
    std::size_t size, used;
    [[gnu::format(printf, 2, 3)]] void add(const char *format, ...)
    {
        va_list arguments;
        va_start(arguments, format);
        const int n = std::vsnprintf(text + used, size - used, format, arguments);
        va_end(arguments);
        used = std::min(size - 1, used + static_cast<std::size_t>(std::max(n, 0)));
    }
};

// "threads 0 .. 127 and 192 .. 223 wait"
void add_threads(sentence &s, std::vector<unsigned> threads)
{
    std::sort(threads.begin(), threads.end());
    s.add(threads.size() > 1 ? "threads " : "thread ");
    for (std::size_t i = 0; i < threads.size();) {
        std::size_t end = i + 1;
        while (end < threads.size() && threads[end] == threads[end - 1] + 1) {
            end++;
        }
        s.add(end > i + 1 ? "%s%u .. %u" : "%s%u", i > 0 ? ", " : "", threads[i], threads[end - 1]);
        i = end;
    }
    s.add(threads.size() > 1 ? " wait" : " waits");
}

void add_collectives(sentence &s, const block &b)
{
    for (unsigned w = 0; w < core.launch->threads / LANES; w++) {
        const warp &x = b.warps[w];
        const unsigned missing = x.mask & ~x.waiting;
        if (x.waiting != 0) {
            s.add("; lanes 0x%08x of warp %u wait at %s (%s:%d) for lanes 0x%08x, which %s", x.waiting, w, MEETING_NAME[x.what], short_name(x.at.file),
                  x.at.line, missing, (missing & x.gone) != 0 ? "have left the kernel" : "wait elsewhere");
        }
    }
    if (b.at_barrier > 0) {
        s.add("; %u threads wait at __syncthreads (%s:%d) for %u that do not come", b.at_barrier, short_name(b.barrier.file), b.barrier.line,
              core.launch->threads - b.at_barrier);
    }
    if (b.at_cluster_barrier > 0) {
        s.add("; %u of %u threads wait at a cluster barrier (%s:%d)", b.at_cluster_barrier, core.launch->threads, short_name(b.cluster_barrier.file),
              b.cluster_barrier.line);
    }
}

void add_barriers(sentence &s, const block &b)
{
    for (unsigned id = 0; id < 16; id++) {
        const named_barrier &x = b.hopper.named[id];
        if (!x.waiting.empty()) {
            s.add("; ");
            add_threads(s, x.waiting);
            s.add(" at named barrier %u for %u that do not come (%s:%d)", id, x.threads - x.arrived, short_name(x.at.file), x.at.line);
        }
    }
    for (const auto &[offset, x] : b.hopper.mbarriers) {
        if (!x.waiting.empty()) {
            s.add("; ");
            add_threads(s, x.waiting);
            s.add(" at the mbarrier at byte %u of shared memory for the end of phase %u (parity %u): %u of %u arrivals and %ld bytes are missing (%s:%d)",
                  offset, x.phase, x.phase & 1u, x.pending, x.arrivals, x.bytes, short_name(x.at.file), x.at.line);
        }
    }
    for (const turn_wait &x : b.turns) {
        if (x.another) {
            s.add("; thread %u waits for what nobody is left to tell (%s:%d)", x.thread, short_name(x.at.file), x.at.line);
        } else {
            s.add("; thread %u waits for turn %u where it is turn %u and no block before it is left to change that (%s:%d)", x.thread, x.turn,
                  load_word(x.word), short_name(x.at.file), x.at.line);
        }
    }
}

[[noreturn]] void fail_deadlock()
{
    sentence s = {core.report->text, sizeof core.report->text, 0};
    s.add("deadlock (order %llu)", core.launch->seed);
    const char *before = ": block";
    core.report->address = nullptr;
    for (const block *b : core.blocks) {
        if (!b->running) {
            continue;
        }
        s.add("%s %u", before, b->number);
        before = ". Block";
        add_collectives(s, *b);
        add_barriers(s, *b);
        core.report->address = b->turns.empty() ? core.report->address : b->turns[0].word;
    }
    core.failed = true;
    escape();
}
