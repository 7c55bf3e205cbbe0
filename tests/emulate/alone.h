/*
 * alone.h: a sequence by itself beside the same one among others. It stands apart from harness.h, so that no
 * other case's verdict depends on it.
 */
#ifndef LATHE_TESTS_EMULATE_ALONE_H
#define LATHE_TESTS_EMULATE_ALONE_H

#include "harness.h"

/* Of a case with deterministic=batch: has each of some sequences the bits by itself that it has among all? */
bool scene_is_same_alone(const struct workshop *w, struct scene *s, const struct kernel *k, uint64_t seed,
                         char *why, size_t size);

#endif
