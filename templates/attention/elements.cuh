// attention/elements.cuh: the types of q, k, v and o in memory, and of what tensor cores multiply, which all have a
// name of their own in cfg.
//
// q2 and k2 have those of q and k, gradients those of their tensors. A template loads a tensor as its type, has tiles
// of cfg::operand in shared memory, and stores o as cfg::element_o; so far tiles are copied as they lie in memory,
// which is said here once. Operands of 8 bits are of the forward pass alone, and its o has 16 or 32.
#pragma once
#include "common/elements.cuh"

static_assert(
    same_type<cfg::element_q, cfg::operand> && same_type<cfg::element_k, cfg::operand> &&
        same_type<cfg::element_v, cfg::operand>,
    "q, k and v are multiplied as they lie in memory: cfg::element_q, element_k and element_v are cfg::operand");
static_assert(same_type<cfg::element_o, cfg::operand> || ELEMENT_BYTES<cfg::operand> == 1,
              "cfg::element_o is cfg::operand: o and its gradient are operands of the backward pass");
