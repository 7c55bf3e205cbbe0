# setup.sh: sourced, from the root of the repository, by tests/run.sh, examples/quickstart.sh and .ci/run.
# Gives: say, have, need (install packages that are missing), setup_tools, setup_configure and setup_build FOLDER [cmake options].
# Installs with apt-get, and only what is missing; where there is no apt-get it says what to install.

say() { printf '%s\n' "== $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# need PACKAGE...: installs packages; asks nobody.
need() {
    if ! have apt-get; then
        say "missing: $*. Install them with this system's package manager and start again."
        return 1
    fi
    root=
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || { say "missing: $*. Become root, or install sudo, and start again."; return 1; }
        root=sudo
    fi
    say "installing $*"
    $root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >&2 ||
        say "apt-get update failed; trying with the package lists at hand"
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# A C file that includes and links what the build needs, compiled to nothing.
setup_compiles() {
    printf '%s\n' "$1" | cc -x c -o /dev/null - $2 >/dev/null 2>&1
}

# A C compiler, make, CMake 3.25 and Lua 5.4; the toolkit's programs on the path where they are in their usual place.
setup_tools() {
    setup_missing=
    if [ -x /usr/local/cuda/bin/nvcc ]; then
        PATH=${PATH}:/usr/local/cuda/bin
    fi
    have cc && setup_compiles '#include <stdio.h>
int main(void) { return 0; }' '' || setup_missing="$setup_missing gcc libc6-dev"
    have make || have ninja || setup_missing="$setup_missing make"
    have cmake || setup_missing="$setup_missing cmake"
    setup_compiles '#include <lua.h>
#include <lauxlib.h>
int main(void) { return luaL_newstate() == 0; }' '-I/usr/include/lua5.4 -l:liblua5.4.a -lm -ldl' ||
        setup_missing="$setup_missing liblua5.4-dev"
    if [ -n "$setup_missing" ]; then
        need $setup_missing || return 1
    fi
    setup_version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    if [ "${setup_version% *}" -lt 3 ] || { [ "${setup_version% *}" -eq 3 ] && [ "${setup_version#* }" -lt 25 ]; }; then
        say "CMake 3.25 or newer is needed, and this is ${setup_version% *}.${setup_version#* }: install a newer one (Debian 12 and Ubuntu 24.04 have it)."
        return 1
    fi
}

# Objects are taken from ccache where it is installed: also those that another clone has made.
setup_configure() {
    setup_folder=$1
    shift
    mkdir -p "$setup_folder"
    # Where nobody debugs, lines of a backtrace are enough: gcc takes a sixth less time.
    if [ -n "${CI:-}" ]; then
        set -- "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" "$@"
    fi
    if have ccache; then
        export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
        set -- "$@" -DCMAKE_C_COMPILER_LAUNCHER=ccache
    fi
    if ! cmake -S . -B "$setup_folder" "$@" >"$setup_folder/configure.txt" 2>&1; then
        cat "$setup_folder/configure.txt" >&2
        return 1
    fi
}

setup_build() {
    say "building in $1"
    setup_configure "$@" || return 1
    if ! cmake --build "$setup_folder" -j "$(nproc)" >"$setup_folder/build.txt" 2>&1; then
        cat "$setup_folder/build.txt" >&2
        return 1
    fi
}
