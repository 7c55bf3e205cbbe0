// Stub: what the generator writes for linear attention with a decay per key channel, without the delta rule, bf16, d = 256, d_v = 128.
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) kda_bf16_##role

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 256, D_V = 128;
constexpr int WARPS = 4;
constexpr int DECAY = DECAY_KEY;
constexpr bool DELTA = false, BONUS = false, NORMALISE = false, CAUSAL = true, REVERSE = false, PACKED = true;
constexpr bool O_F32 = true;
constexpr int CHUNK_STAGES = 2, CHUNK_STEPS = 4, COLUMN_WARPS = 4;
constexpr int PIECES = 16, PIECES_FROM = 2304, PIECE_BLOCKS = 264;
constexpr int BACK_CHUNK = 64;
constexpr bool BY_CHUNK = false;
constexpr bool DECAY_GRADIENT = true, SKIP = true, READS_O = true;
constexpr bool GIVES_DECAY = false;
constexpr bool DOUT_F32 = true, DQ_F32 = false, DK_F32 = true, DV_F32 = false;
} // namespace cfg
