// ptx_once.cuh: templates/common/ptx_once.cuh for the host.
#pragma once
#include "common/ptx.cuh"

DEV void prefetch_once(const void *) {}
