// common/ptx_once.cuh: one-instruction wrappers for memory that a kernel reads once, beside those of common/ptx.cuh.
// tests/emulate/common/ptx_once.cuh is the same list for the host: keep them alike.
#pragma once
#include "common/ptx.cuh"

// The line of 128 bytes comes to L2, which gives it up as any other.
DEV void prefetch_once(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory"); }
