/*
 * tensor_map.h: tensor maps for TMA, made at launch.
 */
#ifndef LATHE_RT_TENSOR_MAP_H
#define LATHE_RT_TENSOR_MAP_H

#include "runtime/driver/driver.h"

struct map_slot;
/* The tensor maps of a block whose other fields are filled; it is aligned to 64 bytes. `slots`:
   of this kernel, where maps are kept for other launches, on other threads as well; NULL: nothing is. Errors:
   ARG, CUDA. */
lathe_status lathe__maps_fill(const struct driver *driver, const struct launch *launch,
                              const struct problem *problem, struct map_slot *slots, unsigned char *block,
                              lathe_error *err);
/* Slots for n maps, malloc'd; *out is NULL where n is 0. Errors: MEMORY. */
lathe_status lathe__map_slots(struct map_slot **out, int n, lathe_error *err);

#endif
