// stub of the generated header: numbers of a kernel that takes the rows that a walk along an inner dim leaves, 131072 x 2048 bf16
#pragma once
#include "common/base.cuh"

#define LATHE_ENTRY(role) stub_bf16_chain_##role
#define LATHE_CLUSTER

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 256, VECTOR = 4;
constexpr int PER_THREAD = 0, ROWS_PER_BLOCK = 1;
constexpr bool ALIGNED = false, FULL = false, KEPT = true;
constexpr bool PREFETCH = false, SHARED_NEXT = false, INNER = false;
constexpr int BLOCKS = 132, COLUMN_PARTS = 1, REGISTERS = 255, AT_ONCE = 1, CLUSTER = 1;
constexpr int PLACES = 16, STAGES = 3, AGAIN_STAGES = 3, PART = 128, HELD_CARRIES = 0, WHOLE_WARPS = 4;
constexpr bool CARRIES_BY_WARP = false;
constexpr int LOOKBACK_THREADS = 352, LOOKBACK_BATCHES = 2, LOOKBACK_GROUP = 8, LOOKBACK_STRIPS = 396;
} // namespace cfg
