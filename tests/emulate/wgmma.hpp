// wgmma.hpp: products of a warpgroup. A room of emulator.cpp.

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

// Address of the 16 bytes that hold k .. k + 7 of row n (K-major), or n .. n + 7 of row k: of 16 bits. Of 8 bits a step
// has as many bytes, and two numbers are one here.
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

unsigned steps_of(const product &p) { return p.values[0].of == EMULATE_E4M3 ? 32 : 16; } // its depth

const product *reader_of(unsigned from, unsigned bytes)
{
    for (unsigned w = 0; w < MAX_WARPS; w++) {
        for (const product &p : now->hopper.part[w].products) {
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
    group_part &part = now->hopper.part[index];
    product p;
    p.at = w.at;
    p.group = NO_GROUP;
    for (unsigned lane = 0; lane < LANES; lane++) {
        p.values[lane] = *static_cast<const emulate_wgmma_call *>(w.call[lane].out);
        const emulate_wgmma_call &c = p.values[lane], &first = p.values[0];
        if (c.n != first.n || c.b != first.b || c.sum != first.sum || c.of != first.of ||
            c.a_turned != first.a_turned || c.b_turned != first.b_turned ||
            (c.a_registers == nullptr) != (first.a_registers == nullptr) ||
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

float from_e4m3(unsigned code)
{
    const unsigned size = code & 0x7f;
    const float x = size < 8 ? static_cast<float>(size) / 512.0f
                             : std::ldexp(static_cast<float>(8 + size % 8), static_cast<int>(size / 8) - 10);
    return size == 0x7f ? std::nanf("") : code >> 7 ? -x : x;
}

void read_operand(float (*out)[256], const operand &o, unsigned n0, unsigned count, bool transposed, emulate_element of)
{
    each_piece(o, n0, count, transposed, [&](unsigned address, unsigned n, unsigned k) {
        unsigned short piece[8];
        std::memcpy(piece, now->bytes + (address - WINDOW), sizeof piece);
        for (unsigned i = 0; i < 8; i++) {
            if (of == EMULATE_E4M3) {
                out[2 * (k + i)][n - n0] = from_e4m3(piece[i] & 0xffu);
                out[2 * (k + i) + 1][n - n0] = from_e4m3(piece[i] >> 8);
            } else {
                (transposed ? out[k][n - n0 + i] : out[k + i][n - n0]) = from_bits(piece[i], of == EMULATE_BF16);
            }
        }
    });
}

// out[k][row]: the warp's rows of A, from shared memory or from registers.
void read_rows(float (*out)[256], const product &p, unsigned index)
{
    const emulate_wgmma_call &c = p.values[0];
    if (c.a_registers == nullptr) {
        read_operand(out, take_apart(c.a, p.at), index % 4 * 16, 16, c.a_turned, c.of);
        return;
    }
    for (unsigned lane = 0; lane < LANES; lane++) {
        const emulate_wgmma_call &mine = p.values[lane];
        if (std::memcmp(mine.a_registers, mine.a_copy, sizeof mine.a_copy) != 0) {
            fail("lane %u: registers of the operand A changed while a wgmma is under way (%s:%d)", lane, short_name(p.at.file), p.at.line);
        }
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned h = 0; h < 4 && c.of == EMULATE_E4M3; h++) {
                out[lane % 4 * 4 + h + i / 2 * 16][lane / 4 + i % 2 * 8] = from_e4m3(mine.a_copy[i] >> (8 * h) & 0xffu);
            }
            for (unsigned h = 0; h < 2 && c.of != EMULATE_E4M3; h++) {
                out[lane % 4 * 2 + h + i / 2 * 8][lane / 4 + i % 2 * 8] =
                    from_bits(static_cast<unsigned short>(mine.a_copy[i] >> (16 * h)), c.of == EMULATE_BF16);
            }
        }
    }
}

// sum += x y, of 8 bits: products are exact, and all terms of a step, the sum so far among them, are cut to E4M3_BITS
// of the largest one. The hardware keeps 14 or so.
constexpr int E4M3_BITS = 14;
float add_cut(float sum, const float *x, const float (*y)[256], unsigned n, unsigned steps)
{
    double term[32], most = std::fabs(static_cast<double>(sum));
    for (unsigned k = 0; k < steps; k++) {
        term[k] = static_cast<double>(x[k]) * static_cast<double>(y[k][n]);
        most = std::max(most, std::fabs(term[k]));
        if (!std::isfinite(term[k])) {
            return std::nanf("");
        }
    }
    if (!(most > 0.0) || !std::isfinite(most)) {
        return sum;
    }
    const double fine = std::ldexp(1.0, std::ilogb(most) + 1 - E4M3_BITS);
    double all = std::trunc(static_cast<double>(sum) / fine);
    for (unsigned k = 0; k < steps; k++) {
        all += std::trunc(term[k] / fine);
    }
    return static_cast<float>(all * fine);
}

void compute(const product &p, accumulator &a, unsigned index)
{
    static float rows[32][256], b[32][256];
    const emulate_wgmma_call &c = p.values[0];
    const unsigned steps = steps_of(p);
    if (c.of == EMULATE_E4M3 && (c.a_turned || c.b_turned)) {
        fail("a wgmma of e4m3 turns an operand over, which the hardware does not (%s:%d)", short_name(p.at.file),
             p.at.line);
    }
    read_rows(rows, p, index);
    read_operand(b, take_apart(c.b, p.at), 0, c.n, c.b_turned, c.of);
    for (unsigned i = 0; i < 16; i++) {
        float *sum = a.c[i];
        if (c.sum == 0) {
            std::memset(sum, 0, sizeof a.c[i]);
        }
        if (c.of == EMULATE_E4M3) {
            float x[32];
            for (unsigned k = 0; k < steps; k++) {
                x[k] = rows[k][i];
            }
            for (unsigned n = 0; n < c.n; n++) {
                sum[n] = add_cut(sum[n], x, b, n, steps);
            }
            continue;
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
            cell &x = now->cells[(address - WINDOW) / 4 + i];
            if (x.read.epoch != now->epoch) {
                std::memset(x.read_clock, 0, sizeof x.read_clock);
            }
            x.read = {now->epoch, 0, SEVERAL, SEVERAL, 0};
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
    group_part &part = now->hopper.part[index];
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
    group_part &part = now->hopper.part[index];
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
    group_part &part = now->hopper.part[index];
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
        const unsigned mine = now->hopper.part[w].registers;
        used = used || mine != 0;
        if (mine != now->hopper.part[w / 4 * 4].registers) {
            fail("setmaxnreg gives %u registers to warp %u and %u to warp %u of the same warpgroup", mine, w, now->hopper.part[w / 4 * 4].registers, w / 4 * 4);
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
    if (!now->hopper.transfers.empty()) {
        fail("the block ends while a TMA load to byte %u of shared memory is under way", now->hopper.transfers[0].place - WINDOW);
    }
    if (!now->hopper.stores.empty()) {
        const transfer &t = now->hopper.stores[0];
        fail("the block ends while a %s from byte %u of shared memory is under way (%s:%d)", t.name(), t.place - WINDOW, short_name(t.issue.file),
             t.issue.line);
    }
    for (unsigned w = 0; w < n_warps; w++) {
        if (!now->hopper.part[w].products.empty()) {
            fail("warp %u ends while a wgmma is under way (%s:%d)", w, short_name(now->hopper.part[w].products[0].at.file), now->hopper.part[w].products[0].at.line);
        }
        if (now->hopper.part[w].history != now->hopper.part[w / 4 * 4].history) {
            fail("warps %u and %u of one warpgroup have not issued the same wgmmas", w / 4 * 4, w);
        }
    }
    check_registers(n_warps);
}
