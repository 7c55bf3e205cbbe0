// meet.hpp: where the lanes of a warp come together. A room of emulator.cpp.

unsigned seen_clock(unsigned warp, unsigned other) { return now->hopper.clock[warp].at[other]; }
unsigned proxy_fences_of(unsigned thread) { return now->hopper.proxy_fences[thread]; }

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
    warp &w = now->warps[index];
    switch (w.what) {
    case MEET_SHUFFLE: shuffle_all(w); break;
    case MEET_BALLOT: vote(w); break;
    case MEET_MATCH: match(w); break;
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
    warp &w = now->warps[index];
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

