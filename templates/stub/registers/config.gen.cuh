// stub of the generated header: numbers of a row-wise backward kernel, 16384 x 8192 bf16
#pragma once
#include "common/base.cuh"

#define LATHE_ENTRY(role) stub_bf16_n8192_##role
#define LATHE_CLUSTER

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 512;
constexpr int VECTOR = 8;
constexpr int PER_THREAD = 16;
constexpr int ROWS_PER_BLOCK = 1;
constexpr bool PREFETCH = true, SHARED_NEXT = false;
constexpr bool INNER = false;
constexpr bool FULL = true;
constexpr bool REREAD = false, KEPT = false;
constexpr int BLOCKS = 132;
constexpr int COLUMN_PARTS = 132;
constexpr int REGISTERS = 128;
constexpr int AT_ONCE = 2;
constexpr int CLUSTER = 1;
constexpr int STAGES = 2;          // rowwise_staged
constexpr bool TAKEN = true;
constexpr bool COLS_HELD = true, COLS_PACKED = false;
constexpr int SURE = 0;
constexpr bool GIVEN_AHEAD = false;
constexpr bool MORE = false;
constexpr bool COLUMNS_SHARED = false;
constexpr bool LATE = false;
} // namespace cfg
