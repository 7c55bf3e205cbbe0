// Stub: as in templates/stub/linear.
#pragma once
#include "../linear/variant.gen.cuh"
