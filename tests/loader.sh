#!/bin/sh
# loader.sh: what is said where libraries cannot be opened at run time: a fully static program, an NVRTC that is there
# and does not load, and one that is nowhere; that NVRTC of pip's and conda's packages is found, and NCCL of pip's.
# LATHE_BUILD names a build folder of this tree.
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

# Of libnvrtc and libnccl only what lies in $work is found.
cat >"$work/hide.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *path, int flags)
{
    void *(*open)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return open(path && (strstr(path, "libnvrtc") || strstr(path, "libnccl")) && !strstr(path, "/home/") ? "/none/libnvrtc.so" : path, flags);
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

# ---- NVRTC of pip's and conda's packages -----------------------------------------------------------------------------

# One that says which it is, and compiles nothing.
awk -F '[(,]' '/^NVRTC_ENTRY/ { print "void " $2 "(void) {}" }' runtime/driver/driver.def |
    grep -v -e nvrtcVersion -e SupportedArchs >"$work/nvrtc.c"
cat >>"$work/nvrtc.c" <<'C'
int nvrtcVersion(int *major, int *minor) { return *major = MAJOR, *minor = 77, 0; }
int nvrtcGetNumSupportedArchs(int *n) { return *n = 1, 0; }
int nvrtcGetSupportedArchs(int *arch) { return *arch = 80, 0; }
C
sed 's/!strstr(path, "\/home\/")/!strstr(path, "\/none\/") \&\& !strstr(path, "\/venv")/' "$work/hide.c" >"$work/hide_pip.c"
cat >"$work/opens.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int n, char **words)
{
    void *library = dlopen(words[n - 1], RTLD_NOW);
    int (*report)(char **, void *) = library ? (int (*)(char **, void *))dlsym(library, "lathe_report") : NULL;
    char *text = NULL;
    if (!report || report(&text, NULL) != 0)
        return 1;
    puts(text);
    return 0;
}
C
# packaged WHAT NVRTC COMMAND...: the command names this NVRTC.
packaged() {
    what=$1
    text=$2
    shift 2
    env LD_PRELOAD="$work/hide_pip.so" CUDA_HOME= "$@" >"$work/said" 2>&1
    if grep -qF -e "$text" "$work/said"; then
        passed=$((passed + 1))
    else
        echo "FAILED $what: expected '$text': $*"
        cat "$work/said"
        failed=$((failed + 1))
    fi
}
# environment FOLDER NVRTC'S-FOLDER MAJOR: as pip or conda lays it out.
environment() {
    mkdir -p "$work/$1/bin" "$work/$1/lib/python3.12/site-packages/lathe/lib" "$work/$1/$2"
    cp "$build/lathe" "$work/$1/bin/lathe"
    cp "$build/liblathe.so" "$work/$1/lib/python3.12/site-packages/lathe/lib/" 2>/dev/null
    "${CC:-cc}" -shared -fPIC -w -DMAJOR="$3" -o "$work/$1/$2/libnvrtc.so.$3" "$work/nvrtc.c"
}
if "${CC:-cc}" -shared -fPIC -o "$work/hide_pip.so" "$work/hide_pip.c" -ldl 2>/dev/null &&
    "${CC:-cc}" -o "$work/opens" "$work/opens.c" -ldl; then
    packages=lib/python3.12/site-packages
    environment venv12 $packages/nvidia/cuda_nvrtc/lib 12
    environment venv13 $packages/nvidia/cu13/lib 13
    environment venv-conda lib 13
    cp -r "$work/venv13" "$work/venv1-both"
    cp -r "$work/venv12/$packages/nvidia/cuda_nvrtc" "$work/venv1-both/$packages/nvidia/"
    environment venv-fedora $packages/nvidia/cu13/lib 13
    mkdir "$work/venv-fedora/lib64"
    cp -r "$work/venv13/lib/python3.12" "$work/venv-fedora/lib64/" && rm -r "$work/venv-fedora/lib64/python3.12/site-packages/nvidia"
    rm -r "$work/venv-fedora/$packages/lathe"
    [ ! -e "$build/liblathe.so" ] || packaged 'lib64' "$work/venv-fedora/$packages/nvidia/" "$work/opens" \
        "$work/venv-fedora/lib64/python3.12/site-packages/lathe/lib/liblathe.so"
    mkdir "$work/links" "$work/venv-bare" # what is no package has no neighbours
    ln -s "$work/venv12/bin/lathe" "$work/links/lathe"
    cp "$build/lathe" "$work/venv12/lathe"
    for place in venv12/$packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12 venv13/$packages/nvidia/cu13/lib/libnvrtc.so.13 \
        venv-conda/lib/libnvrtc.so.13 venv1-both/$packages/nvidia/cu13/lib/libnvrtc.so.13; do
        packaged "the tool, $place" "NVRTC ${place##*.}.77, $work/$place" "$work/${place%%/*}/bin/lathe" --version
        [ ! -e "$build/liblathe.so" ] || packaged "the library, $place" "$work/$place" "$work/opens" \
            "$work/${place%%/*}/$packages/lathe/lib/liblathe.so"
    done
    packaged 'through a link' "NVRTC 12.77, $work/venv12/" "$work/links/lathe" --version
    packaged 'from elsewhere' 'NVRTC: none' "$work/venv12/lathe" --version
    cat >"$work/ranks.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include "lathe_dist.h"
int main(int n, char **words)
{
    void *library = dlopen(words[n - 1], RTLD_NOW);
    lathe_status (*id)(void *, lathe_error *) = library ? (lathe_status (*)(void *, lathe_error *))dlsym(library, "lathe_nccl_id") : NULL;
    char bytes[LATHE_NCCL_ID_BYTES];
    lathe_error err = {0};
    if (!id)
        return 1;
    puts(id(bytes, &err) == LATHE_OK ? bytes : err.text);
    return 0;
}
C
    if [ -e "$build/liblathe.so" ] && [ -e "$build/tests/libfake_nccl.so" ] &&
        "${CC:-cc}" -w -I include -o "$work/ranks" "$work/ranks.c" -ldl; then
        mkdir -p "$work/venv12/$packages/nvidia/nccl/lib"
        cp "$build/tests/libfake_nccl.so" "$work/venv12/$packages/nvidia/nccl/lib/libnccl.so.2"
        packaged 'NCCL of pip' pretended "$work/ranks" "$work/venv12/$packages/lathe/lib/liblathe.so"
        packaged 'no NCCL' 'NCCL cannot be opened: ' "$work/ranks" "$work/venv13/$packages/lathe/lib/liblathe.so"
    fi
    [ ! -e "$build/liblathe.so" ] || packaged 'a path that is not absolute' "$work/venv13/" sh -c 'cd "$1" && exec "$2" "$3"' sh \
        "$work/venv13/$packages/lathe" "$work/opens" ./lib/liblathe.so
else
    echo 'skipped: a libnvrtc that pretends cannot be made here'
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
