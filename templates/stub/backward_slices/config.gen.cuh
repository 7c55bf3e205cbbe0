// Stub: what the generator writes for the backward pass of causal attention with learned slopes, bf16, d = 576, d_v = 512, on sm_86.
#pragma once
#include "common/contract.cuh"

#define LATHE_SPLITS 0
#define LATHE_ENTRY(role) slopes_bf16_d576_##role

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 576, D_V = 512;
constexpr int D_PAD = 576, DV_PAD = 512;
constexpr int BM = 128, BN = 64, WARPS = 4, STAGES = 1;
constexpr bool Q_IN_REGS = false;
constexpr bool O_F32 = false, O_MARKED = false;
constexpr bool BOUND_WAITS = false;
constexpr int BACK_BM = 32, BACK_BN = 64, BACK_WARPS = 4, BACK_STAGES = 2, BACK_SPLIT = 1;
constexpr bool BACK_WGMMA = false;
constexpr int BACK_PIECES = 0;
constexpr bool BACK_BY_ROWS = false;
constexpr bool BACK_PAIRED = false;
constexpr bool BACK_O_F32 = false;
constexpr bool WANT_DQ = true, WANT_DK = true, WANT_DV = true;
constexpr bool DK_F32 = true, DV_F32 = true;
constexpr bool DETERMINISTIC = false, BACK_DQ_STORED = false;
} // namespace cfg
