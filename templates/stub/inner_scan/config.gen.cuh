// stub of the generated header: numbers of a kernel that walks along an inner dim, 32 x 4096 x 2048 bf16
#pragma once
#include "common/base.cuh"

#define LATHE_ENTRY(role) stub_bf16_walk_##role
#define LATHE_CLUSTER

namespace cfg {
using element = bf16;
constexpr bool FAST_MATH = true;
constexpr int THREADS = 256, VECTOR = 2;
constexpr int PER_THREAD = 0, ROWS_PER_BLOCK = 1;
constexpr bool ALIGNED = false, FULL = false, KEPT = false;
constexpr bool PREFETCH = false, SHARED_NEXT = false, INNER = false;
constexpr int BLOCKS = 132, COLUMN_PARTS = 1, REGISTERS = 255, AT_ONCE = 1, CLUSTER = 1;
constexpr int PLACES = 8, STAGES = 8, AGAIN_STAGES = 8, PART = 0, HELD_CARRIES = 0, WHOLE_WARPS = 8;
constexpr bool CARRIES_BY_WARP = true;
constexpr int LOOKBACK_THREADS = 0, LOOKBACK_BATCHES = 0, LOOKBACK_GROUP = 8, LOOKBACK_STRIPS = 0;
} // namespace cfg
