#!/bin/sh
# loader.sh: what is said where libraries cannot be opened at run time: a fully static program, an NVRTC that is there
# and does not load, and one that is nowhere. LATHE_BUILD names a build folder of this tree.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(cd "${LATHE_BUILD:-build}" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# says TEXT COMMAND...: fails, and says it.
says() {
    text=$1
    shift
    if ! "$@" >"$work/said" 2>&1 && grep -qF -e "$text" "$work/said"; then
        passed=$((passed + 1))
    else
        echo "FAILED, expected '$text': $*"
        cat "$work/said"
        failed=$((failed + 1))
    fi
}

# ---- a fully static program -----------------------------------------------------------------------------------------

cat >"$work/first.c" <<'C'
#include <stdio.h>
#include "lathe.h"
int main(void)
{
    lathe_ctx *ctx;
    lathe_error err = {0};
    const lathe_options options = {.device = 0};
    const int failed = lathe_ctx_create(&ctx, &options, &err) != LATHE_OK;
    puts(err.text);
    return failed;
}
C
lua=$(sed -n 's/^LATHE_LUA_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")
if [ -f "$build/liblathe.a" ] && "${CC:-cc}" -static -I include "$work/first.c" "$build/liblathe.a" "$lua" -lm \
    -lpthread -o "$work/first" 2>/dev/null; then
    says 'this program is linked statically with all of glibc' "$work/first"
else
    echo 'skipped: a fully static program cannot be linked here'
fi

# ---- NVRTC ----------------------------------------------------------------------------------------------------------

# Of libnvrtc only what lies in $work is found.
cat >"$work/hide.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *path, int flags)
{
    void *(*open)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return open(path && strstr(path, "libnvrtc") && !strstr(path, "/home/") ? "/none/libnvrtc.so" : path, flags);
}
C
mkdir -p "$work/home/lib64"
echo 'no library' >"$work/home/lib64/libnvrtc.so.13"
compile="$build/lathe compile causal --arch sm_80 --problem dtype=bf16,d=64 -o $work/x.fatbin"
if "${CC:-cc}" -shared -fPIC -o "$work/hide.so" "$work/hide.c" -ldl 2>/dev/null; then
    says '/none/libnvrtc.so: cannot open shared object file' env LD_PRELOAD="$work/hide.so" CUDA_HOME= $compile
    says 'is there and cannot be opened' env LD_PRELOAD="$work/hide.so" CUDA_HOME="$work/home" $compile
    says 'home/lib64/libnvrtc.so.13: ' env LD_PRELOAD="$work/hide.so" CUDA_HOME="$work/home" $compile
else
    echo 'skipped: a library that stands in front of the C library cannot be made here'
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
