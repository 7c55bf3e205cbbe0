// Stub: what the generator writes for the delta rule behind a decay per token, bf16, d = d_v = 128.
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) kda_bf16_##role

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 128, D_V = 128;
constexpr int WARPS = 4;
constexpr int DECAY = DECAY_TOKEN;
constexpr bool DELTA = true, BONUS = false, NORMALISE = false, CAUSAL = true, REVERSE = false, PACKED = true;
constexpr bool O_F32 = true;
constexpr int CHUNK_STAGES = 2;
constexpr int BACK_CHUNK = 64;
constexpr bool BY_CHUNK = true;
constexpr int STAGES = 3;
constexpr bool BOUND_WAITS = false;
constexpr bool DECAY_GRADIENT = true, SKIP = true, READS_O = true;
constexpr bool GIVES_DECAY = false;
constexpr bool DOUT_F32 = false, DQ_F32 = false, DK_F32 = true, DV_F32 = false;
} // namespace cfg
