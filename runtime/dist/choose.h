/*
 * choose.h: private to dist.c: which scheme serves.
 */
#ifndef LATHE_RT_DIST_CHOOSE_H
#define LATHE_RT_DIST_CHOOSE_H

#include "runtime/dist/dist.h"

/* Set d->scheme, its kernels, sizes and words; or say why none serves. */
lathe_status lathe__dist_choose(struct lathe_dist *d, const lathe_arg *args, int n, lathe_error *err);

#endif
