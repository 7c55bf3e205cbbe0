// stub of the generated header: numbers of a row-wise kernel, 16384 x 8192 bf16
#pragma once
#include "common/base.cuh"

#define LATHE_ENTRY(role) stub_bf16_n8192_##role

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 256;
constexpr int VECTOR = 8;
constexpr int PER_THREAD = 32;
constexpr int ROWS_PER_BLOCK = 1;
constexpr bool ALIGNED = true;
constexpr bool FULL = true;
constexpr bool REREAD = false, KEPT = false;
} // namespace cfg
