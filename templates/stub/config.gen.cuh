// Stub: what the generator writes for causal attention, bf16, d = d_v = 128, on sm_90.
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) causal_bf16_d128_##role

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 128, D_V = 128;
constexpr int D_PAD = 128, DV_PAD = 128;
constexpr int BM = 128, BN = 64, WARPS = 4, STAGES = 1;
constexpr bool Q_IN_REGS = false, SHORT_ROWS = false;
constexpr bool O_F32 = false, O_MARKED = false;
constexpr bool BOUND_WAITS = false;
constexpr int THREADS = 256, VECTOR = 8;
constexpr int PER_THREAD = 32;
constexpr int ROWS_PER_BLOCK = 1;
} // namespace cfg
