// shared.hpp: shared memory, and who may touch a word of it. A room of emulator.cpp.

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
    if (other.epoch != now->epoch || other.thread == thread) {
        return false;
    }
    if (other.warp != warp_of(thread)) {
        return other.warp == SEVERAL || seen_clock(warp_of(thread), other.warp) < other.clock;
    }
    return other.warp_epoch == now->warps[warp_of(thread)].epoch;
}

bool unordered_reads(const cell &x, unsigned thread)
{
    if (x.read.warp != SEVERAL) {
        return unordered(x.read, thread);
    }
    for (unsigned w = 0; x.read.epoch == now->epoch && w < MAX_WARPS; w++) {
        if (w != warp_of(thread) && seen_clock(warp_of(thread), w) < x.read_clock[w]) {
            return true;
        }
    }
    return false;
}

void check_cell(unsigned index, unsigned thread, const char *what, emulate_place at)
{
    cell &x = now->cells[index];
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
    const unsigned warp_epoch = now->warps[w].epoch;
    for (unsigned i = first_cell; i < first_cell + n; i++) {
        check_cell(i, thread, "reads", at);
        access &r = now->cells[i].read;
        const bool first = r.epoch != now->epoch;
        const unsigned clock = seen_clock(w, w);
        if (first) {
            std::memset(now->cells[i].read_clock, 0, sizeof now->cells[i].read_clock);
        }
        now->cells[i].read_clock[w] = clock;
        if (first || (r.warp == w && r.warp_epoch != warp_epoch)) {
            r = {now->epoch, warp_epoch, whole_warp ? SEVERAL : thread, w, clock};
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
    x.write = {now->epoch, now->warps[w].epoch, thread, w, seen_clock(w, w)};
    x.generic = true;
    x.fences = proxy_fences_of(thread);
}

void note_write(unsigned first_cell, unsigned n, unsigned thread, emulate_place at)
{
    check_stores(4 * first_cell, 4 * n, "writes", at);
    for (unsigned i = first_cell; i < first_cell + n; i++) {
        check_cell(i, thread, "writes", at);
        if (unordered_reads(now->cells[i], thread)) {
            fail_race(i, "writes", now->cells[i].read, "read", at);
        }
        note_writer(now->cells[i], thread);
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
    return now->bytes + offset;
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

