/*
 * rt.h: every door of runtime/, for tests. Who is not a test includes the doors that it uses.
 */
#ifndef LATHE_RT_H
#define LATHE_RT_H

#include "runtime/base/base.h"
#include "runtime/base/environ.h"
#include "runtime/base/sha256.h"
#include "runtime/recipe/recipe.h"
#include "runtime/recipe/bind.h"
#include "runtime/driver/driver.h"
#include "runtime/driver/memory.h"
#include "runtime/launch/launch.h"
#include "runtime/compile/compile.h"
#include "runtime/compile/images.h"
#include "runtime/cache/cache.h"
#include "runtime/cache/makers.h"
#include "runtime/cache/pack.h"
#include "runtime/cache/tuned.h"
#include "runtime/aot/aot.h"
#include "runtime/jit/jit.h"

#endif
