// Stub: what the generator writes for the combine pass of specs/causal.lua at d_v = 128, bf16.
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) causal_bf16_##role

namespace cfg
{
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int D = 128, D_V = 128, WARPS = 4;
constexpr bool PARTS_ALIGNED = true, O_ALIGNED = true;
constexpr bool O_F32 = false, O_MARKED = false;
} // namespace cfg
