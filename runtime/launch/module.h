/*
 * module.h: images -> functions on a device.
 */
#ifndef LATHE_RT_MODULE_H
#define LATHE_RT_MODULE_H

#include <stdbool.h>

#include "runtime/driver/driver.h"
#include "runtime/launch/tensor_map.h"

struct module { /* immutable once loaded, but for the slots */
    const struct driver *driver;
    int n_handles;
    struct CUmod_st *handle[MAX_COMPILED_PARTS]; /* one for each image */
    struct CUfunc_st *function[MAX_LAUNCHES];
    int registers[MAX_LAUNCHES];
    int local_bytes[MAX_LAUNCHES]; /* stack and spills of one thread */
    int resident[MAX_LAUNCHES]; /* of kernels whose clusters take their work in turn: blocks that run at once;
                                   0: not known */
    bool early[MAX_LAUNCHES];   /* kernels that may begin before the launch before them is done, here */
    bool from_disk;
    bool from_system;                    /* from the system cache */
    struct map_slot *slot[MAX_LAUNCHES]; /* of each kernel's tensor maps; NULL: none */
};
/* The driver's context must be current; 1 to MAX_COMPILED_PARTS images, whose sizes are not looked at. Errors
   CUDA, MEMORY. */
lathe_status lathe__module_load(struct module **out, const struct driver *driver, const struct image *image,
                                int n_images, const struct source *source, lathe_error *err);
void lathe__module_unload(struct module *module);
void lathe__module_drop(void *module); /* the same, for a table of modules */

#endif
