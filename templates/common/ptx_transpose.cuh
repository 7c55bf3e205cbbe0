// common/ptx_transpose.cuh: movmatrix. tests/emulate/common/ptx_transpose.cuh is the same for the host.
#pragma once
#include "common/base.cuh"

// Of a warp's 8 x 8 matrix of 16-bit elements, of which lane 4 i + j has elements 2 j and 2 j + 1 of row i: its
// transpose.
DEV u32 transpose_8x8(u32 pair)
{
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}
