// stub of the generated header: numbers of an elementwise kernel
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) stub_bf16_##role

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 256, VECTOR = 8, UNROLL = 2, STEPS = 16, TURNS = 8;
constexpr int MIN_BLOCKS = 3;
constexpr bool LONG_LOOPS = true, AHEAD = false;
constexpr unsigned BUSY_THREADS = 135168;
} // namespace cfg
