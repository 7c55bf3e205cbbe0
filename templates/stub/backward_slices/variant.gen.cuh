// Stub: the same variant, for attention/backward/slices.cuh.
#pragma once
#include "../backward/variant.gen.cuh"
