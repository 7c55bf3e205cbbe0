// stub of the generated header: numbers of a kernel whose rows are neighbours, 32 x 4096 x 2048 bf16
#pragma once
#include "common/base.cuh"

#define LATHE_ENTRY(role) stub_bf16_inner_##role
#define LATHE_CLUSTER

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 512, VECTOR = 8;
constexpr int PER_THREAD = 128, ROWS_PER_BLOCK = 1;
constexpr bool ALIGNED = false, FULL = false, KEPT = false;
constexpr bool PREFETCH = false, SHARED_NEXT = false, INNER = false;
constexpr int BLOCKS = 132, COLUMN_PARTS = 1, REGISTERS = 128, AT_ONCE = 1, CLUSTER = 1;
constexpr int UNITS_WIDE = 2;
constexpr bool MORE = true, TAKEN = false;
} // namespace cfg
