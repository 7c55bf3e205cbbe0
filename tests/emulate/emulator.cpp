// emulator.cpp: the core: runs the blocks of a launch, each thread as a fiber, all on one system thread.
//
// In: a launch (emulate.h) and, from the fibers, the calls that emulator.hpp declares. Out: memory as the kernel left it, or
// one sentence about the first thing that no GPU would have to honour. Which fiber goes on is drawn from a seed, in one
// of two ways by block: at random, or one warp as far as it gets before the next one begins.
#include "emulator.hpp"
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include "state.hpp"

namespace {

#include "fibers.hpp"
#include "schedule.hpp"
#include "warps.hpp"
#include "shared.hpp"
#include "global.hpp"
#include "hopper.hpp"
#include "wgmma.hpp"
#include "cluster.hpp"
#include "pair.hpp"
#include "meet.hpp"
#include "deadlock.hpp"
#include "launch.hpp"
#include "calls.hpp"
