// Stub: the same variant, for attention_bwd_sm90.cuh.
#pragma once
#include "../backward/variant.gen.cuh"
