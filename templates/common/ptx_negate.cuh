// common/ptx_negate.cuh: the negation of a spec's integers. tests/emulate/common/ptx_negate.cuh is the same for the
// host.
#pragma once
#include "common/base.cuh"

// Where x, negated, goes into a minimum or maximum of three, ptxas 12.8 and 13.0 lose the minus for sm_90 and sm_100,
// by their instruction with three operands. So they do with 0 - x, which the compiler makes the same of. What is not
// and add, which it does not see into here, they keep.
DEV int negate(int x)
{
    int y;
    asm("{ .reg .b32 t; not.b32 t, %1; add.s32 %0, t, 1; }" : "=r"(y) : "r"(x));
    return y;
}
