// stub of the generated header: numbers of elementwise_gather
#pragma once
#include "common/contract.cuh"

#define LATHE_ENTRY(role) stub_bf16_##role

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = false;
constexpr int THREADS = 256, VECTOR = 4, UNROLL = 1, STEPS = 1, TURNS = 8;
constexpr int MIN_BLOCKS = 3;
constexpr bool LONG_LOOPS = false, AHEAD = false;
constexpr unsigned BUSY_THREADS = 33792;
} // namespace cfg
