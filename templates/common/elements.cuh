// common/elements.cuh: bytes of an element: a layout of shared memory counts those of its type, which cfg says for each
// tensor (element_q, element_k, element_v, element_o) and for what tensor cores multiply (operand).
#pragma once
#include "common/base.cuh"

template <class T> constexpr int ELEMENT_BYTES = static_cast<int>(sizeof(T));
