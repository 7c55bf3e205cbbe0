// Stub: what the generator writes for linear attention with a decay per token and the delta rule, backward, bf16, d = d_v = 128.
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
constexpr int CHUNK_STAGES = 2, CHUNK_BLOCKS = 1;
constexpr bool STATE_BY_COLUMN = false;
constexpr int BACK_CHUNK = 64, KEY_PARTS = 1;
constexpr bool BY_CHUNK = true;
constexpr bool DECAY_GRADIENT = true, SKIP = true, READS_O = true;
constexpr bool GIVES_DECAY = false;
constexpr bool ADJOINT_Q = false, ADJOINT_K = false;
constexpr bool DOUT_F32 = false, DQ_F32 = false, DK_F32 = true, DV_F32 = false;
} // namespace cfg
