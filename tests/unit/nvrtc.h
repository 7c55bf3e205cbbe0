/*
 * nvrtc.h: the compiler of a test; the test is skipped where there is none. In: the environment, as a context
 * reads it. Out: an open compiler, the caller's: lathe__compiler_close.
 */
#ifndef LATHE_TESTS_NVRTC_H
#define LATHE_TESTS_NVRTC_H

#include "check.h"
#include "runtime/rt.h"

static inline struct compiler *open_compiler(void)
{
    struct environment environment;
    struct compiler *compiler;
    lathe_error err;
    lathe__environment_read(&environment);
    if (lathe__compiler_open(&compiler, environment.cuda_home, 0, &err) != LATHE_OK)
        SKIP(err.text);
    return compiler;
}

#endif
