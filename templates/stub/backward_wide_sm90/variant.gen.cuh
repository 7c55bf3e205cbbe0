// Stub: the same variant, for attention/backward/sm90.cuh.
#pragma once
#include "../backward/variant.gen.cuh"
