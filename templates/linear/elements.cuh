// linear/elements.cuh: the types of q, k, v, o and states in memory, and of what tensor cores multiply, which all have
// a name of their own in cfg.
//
// Gradients have the types of their tensors. Kernels that go token by token (linear/walk.cuh) convert each tensor from
// and to its own type. Those with tiles of cfg::operand copy rows as they lie in memory, which is said here once: a
// template that takes another type stops including this, and converts.
#pragma once
#include "common/elements.cuh"

static_assert(
    same_type<cfg::element_q, cfg::operand> && same_type<cfg::element_k, cfg::operand> &&
        same_type<cfg::element_v, cfg::operand>,
    "q, k and v are multiplied as they lie in memory: cfg::element_q, element_k and element_v are cfg::operand");
static_assert(same_type<cfg::element_o, cfg::operand>,
              "cfg::element_o is cfg::operand: what flows back to o is an operand of the backward pass");

namespace linear
{
constexpr int OPERAND = ELEMENT_BYTES<cfg::operand>; // of tiles
}
