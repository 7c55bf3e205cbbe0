// Stub: the same with the numbers of attention/mla_sm90.cuh.
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) mla_bf16_d576_##role
#define WGMMA_WIDTHS WGMMA_256 WGMMA_64

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 576, D_V = 512;
constexpr int D_PAD = 576, DV_PAD = 512;
constexpr int BM = 64, BN = 64, WARPS = 12, STAGES = 2;
constexpr int D2 = 0;
constexpr bool V_IS_K = true;
constexpr bool O_F32 = false, O_MARKED = false;
constexpr bool BOUND_WAITS = false;
constexpr int THREADS = 256, VECTOR = 8;
constexpr int PER_THREAD = 32;
constexpr int ROWS_PER_BLOCK = 1;
} // namespace cfg
