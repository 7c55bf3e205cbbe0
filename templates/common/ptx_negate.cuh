// common/ptx_negate.cuh: a spec's integers where they are negated, or may be, ahead of a minimum or a maximum of three.
// tests/emulate/common/ptx_negate.cuh is the same for the host.
//
// Where x, negated, is the second number of the two of which the least is taken first, ptxas 12.8 and 13.0 lose the
// minus for sm_90 and sm_100, by their instruction with three operands: VIMNMX3. What the compiler makes a negation of
// is the same to them.
#pragma once
#include "common/base.cuh"

// -x, as not and add, which ptxas does not see into here.
DEV int negate(int x)
{
    int y;
    asm("{ .reg .b32 t; not.b32 t, %1; add.s32 %0, t, 1; }" : "=r"(y) : "r"(x));
    return y;
}

// x, whatever it was made by: so that neither the compiler nor ptxas knows. 0xaa: the third operand.
DEV int settled(int x)
{
    int y;
    asm("lop3.b32 %0, %1, %1, %1, 0xaa;" : "=r"(y) : "r"(x));
    return y;
}
