/*
 * aot.h: libraries made by `lathe aot`, as the program that links one runs them (their data: recipe/aot.h).
 */
#ifndef LATHE_RT_AOT_H
#define LATHE_RT_AOT_H

#include "lathe.h"
#include "runtime/base/base.h"
#include "runtime/driver/driver.h"
#include "runtime/recipe/recipe.h"

struct aot_kernel;
struct aot_variant;
/* What of a problem is compiled in: "dtype=bf16,d=64,d_v=128,bias=none". Appended. */
void lathe__aot_problem_text(const struct signature *sig, const struct problem *p, struct phrase *out);
/* NULL: none runs on the device. */
const struct aot_variant *lathe__aot_pick_variant(const struct aot_kernel *kernel,
                                                  const struct device *device);
struct lathe_kernel_set;
/* Members of the generated struct that are given, in the order of the signature. Returns how many. */
int lathe__aot_args(const struct lathe_kernel_set *set, const void *args, lathe_arg out[MAX_ARGS]);
/* lathe_set_launch with a driver of the caller's; NULL: the process's own. */
lathe_status lathe__set_launch_on(const struct driver *driver, const struct lathe_kernel_set *set, int kernel,
                                  const void *args, void *workspace, lathe_stream stream, lathe_error *err);

#endif
