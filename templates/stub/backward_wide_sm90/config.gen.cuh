// Stub: what the generator writes for the backward pass of causal attention with learned slopes, bf16, d = d_v = 256, on sm_90a.
#pragma once
#include "common/contract.cuh"

#define LATHE_SPLITS 0
#define LATHE_ENTRY(role) slopes_bf16_d256_##role
#define LATHE_CLUSTER __cluster_dims__(2, 1, 1)

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 256, D_V = 256;
constexpr int D_PAD = 256, DV_PAD = 256;
constexpr int BM = 128, BN = 64, WARPS = 4, STAGES = 1;
constexpr bool Q_IN_REGS = false;
constexpr bool O_F32 = false, O_MARKED = false;
constexpr bool BOUND_WAITS = false;
constexpr int BACK_BM = 128, BACK_BN = 64, BACK_WARPS = 8, BACK_STAGES = 1, BACK_SPLIT = 2;
constexpr bool BACK_WGMMA = true;
constexpr int BACK_SEQUENCE_BYTES = 0;
constexpr int BACK_V_STEPS = 0;
constexpr bool BACK_EARLY_DV = true;
constexpr int BACK_PIECES = 0;
constexpr bool BACK_BY_ROWS = false;
constexpr bool BACK_PAIRED = true;
constexpr bool BACK_O_F32 = false;
constexpr bool WANT_DQ = true, WANT_DK = true, WANT_DV = true;
constexpr bool DK_F32 = false, DV_F32 = false;
constexpr bool DETERMINISTIC = false, BACK_DQ_STORED = true;
} // namespace cfg
