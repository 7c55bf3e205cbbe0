/*
 * version.c: `lathe --version`: the version, and which NVRTC `lathe compile` would use, beside those that
 * tests/nvrtc.sh compiles with. Without NVRTC it says where it was looked for, and is no failure.
 */
#include <stdio.h>

#include "gen/tool/commands.h"
#include "runtime/base/environ.h"
#include "runtime/compile/compile.h"

static const char TESTED[] = "12.1, 12.4, 12.8 and 13.0";

void print_version(void)
{
    struct environment environment;
    struct compiler *compiler = NULL;
    lathe_error err = {0};
    lathe__environment_read(&environment);
    printf("lathe %s\n", lathe_version());
    if (lathe__compiler_open(&compiler, environment.cuda_home, 0, &err) == LATHE_OK)
        printf("NVRTC %d.%d, %s; tested with %s\n", compiler->major, compiler->minor,
               compiler->path[0] ? compiler->path : "in this program", TESTED);
    else
        printf("NVRTC: none; tested with %s; %s\n", TESTED, err.text);
    lathe__compiler_close(compiler);
}
