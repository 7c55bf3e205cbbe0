// warps.hpp: collectives of a warp. A room of emulator.cpp.

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

void match(warp &w) // each lane is told which have brought the same
{
    for (unsigned lane = 0; lane < LANES; lane++) {
        unsigned same = 0;
        for (unsigned other = 0; other < LANES && (w.mask >> lane & 1u) != 0; other++) {
            const bool equal = w.call[other].a == w.call[lane].a && w.call[other].b == w.call[lane].b;
            same |= (w.mask >> other & 1u) != 0 && equal ? 1u << other : 0u;
        }
        if ((w.mask >> lane & 1u) != 0) {
            *static_cast<unsigned *>(w.call[lane].out) = same;
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
