// attention/turned_values.cuh: kernel: V of 8 bits, turned over for attention/fwd_sm90.cuh: of each cfg::BN keys a tile
// of cfg::DV_PAD rows, as it is to lie in shared memory, so that one bulk copy brings it. A row has the keys in the
// order of key_of_place; keys and columns that V has not are 0.
//
// Launch: n_b * n_h * ceil(len / cfg::BN) blocks of 256 threads.
#pragma once
#include "common/wgmma_fp8_sm90.cuh"

namespace turned
{

constexpr int THREADS = 256;
constexpr int WORDS = cfg::DV_PAD / 4; // of a key
constexpr int PIECES = cfg::BN / 16;   // of a row of the tile

// Four columns of a key from `column` on; step: from one to the next.
DEV u32 load_word(const u8 *key, int column, i64 step, bool aligned)
{
    if (aligned && column + 4 <= cfg::D_V) {
        return *reinterpret_cast<const u32 *>(key + column);
    }
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        word |= column + i < cfg::D_V ? static_cast<u32>(key[(column + i) * step]) << (8 * i) : 0u;
    }
    return word;
}

template <class PARAMS> DEV void run(const PARAMS &p)
{
    __shared__ u32 rows[cfg::BN][WORDS + 1];
    const int tiles = (p.len + cfg::BN - 1) / cfg::BN;
    const int block = static_cast<int>(blockIdx.x);
    const int tile = block % tiles;
    const int h = block / tiles % p.n_h;
    const int b = block / tiles / p.n_h;
    const u8 *src = static_cast<const u8 *>(p.src) + (b * p.src_b + h * p.src_h);
    const bool aligned = p.src_d == 1 && ((reinterpret_cast<u64>(src) | static_cast<u64>(p.src_t)) & 3) == 0;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < cfg::BN * WORDS; i += THREADS) {
        const int key = tile * cfg::BN + i / WORDS;
        rows[i / WORDS][i % WORDS] =
            key < p.len ? load_word(src + key * p.src_t, 4 * (i % WORDS), p.src_d, aligned) : 0u;
    }
    __syncthreads();
    u8 *dst = static_cast<u8 *>(p.dst) + (b * p.dst_b + h * p.dst_h + static_cast<i64>(tile) * cfg::DV_PAD * cfg::BN);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < cfg::DV_PAD * PIECES; i += THREADS) {
        const int column = i % cfg::DV_PAD; // of o: neighbours read neighbours
        const int piece = i / cfg::DV_PAD;
        u32 word[4] = {0, 0, 0, 0};
#pragma unroll
        for (int place = 0; place < 16; place++) {
            const u32 four = rows[16 * piece + key_of_place(place)][column / 4];
            word[place / 4] |= (four >> (8 * (column % 4)) & 0xffu) << (8 * (place % 4));
        }
        *reinterpret_cast<uint4 *>(dst + panels<cfg::BN / 2>::offset<cfg::DV_PAD>(column, piece)) =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
}

} // namespace turned

#if LATHE_COMPILED(turn_v)
extern "C" __global__ void __launch_bounds__(turned::THREADS) LATHE_ENTRY(turn_v)(const __grid_constant__ turn_params p)
{
    turned::run(p);
}
#endif
