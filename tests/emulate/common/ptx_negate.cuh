// ptx_negate.cuh: templates/common/ptx_negate.cuh for the host.
#pragma once
#include "common/base.cuh"

DEV int negate(int x) { return static_cast<int>(0u - static_cast<u32>(x)); }
DEV int settled(int x) { return x; }
