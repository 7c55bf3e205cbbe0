// Stub: the same variant without a gradient of slopes, of rows that have lists of blocks of keys, for attention/backward/selected.cuh.
#pragma once
#define variant without_lists
#include "../backward/variant.gen.cuh"
#undef variant

struct list_params {
    unsigned *ends;
    unsigned *tokens;
    sizes z;
    inputs x;
};
struct variant : without_lists {
    static constexpr int SITES = 0;
    static constexpr int SELECTED = 16, SELECTED_KEYS = 64;
    DEV int selected(const inputs &, const sizes &, const head &, const row &r, int i0) { return r.q / 64 - i0; }
};
