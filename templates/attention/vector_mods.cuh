// attention/vector_mods.cuh: the kernels of heads/vector_mod.cuh, on tensors whose batches may be sequences.
//
// Launch of each: as there; of packed sequences n_h * (floor(tokens / MOD_TOKENS) + sequences) blocks.
#pragma once
#include "attention/sequences.cuh"
#include "heads/vector_mod.cuh"
