#!/bin/sh
# parent.sh: Lathe as a folder of another project, by FetchContent, which has targets, variables and options that might clash, asks for optimisation
# while linking and for unity builds, and keeps its own build type; a program of it runs. A default build has no -Werror. What a
# cross build lacks is said when it is configured. Needs a C compiler and CMake; LATHE_BUILD is a build folder of this tree.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
complain() {
    failed=$((failed + 1))
    echo "FAILED $*"
    tail -n 15 "$work/log" | sed 's/^/    /'
}
ok() { # ok WHAT COMMAND...
    what=$1
    shift
    if "$@" >"$work/log" 2>&1 </dev/null; then passed=$((passed + 1)); else complain "$what: $*"; fi
}
says() { # says WHAT TEXT COMMAND...: it fails, and says the text
    what=$1
    text=$2
    shift 2
    if "$@" >"$work/log" 2>&1 </dev/null; then complain "$what: succeeded"; return; fi
    if tr -s '\n ' '  ' <"$work/log" | grep -qF -e "$text"; then passed=$((passed + 1)); else complain "$what: lacks '$text'"; fi
}
command -v cc >/dev/null && command -v cmake >/dev/null || { echo 'skipped: cc and cmake are needed'; exit 77; }
launcher=
if command -v ccache >/dev/null; then
    export CCACHE_BASEDIR="$here" CCACHE_NOHASHDIR=1
    launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
fi

mkdir "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C)
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "int main(void) { return 0; }\n")
foreach(name lua_static gen_objects rt_objects hello)
    add_executable(${name} ${CMAKE_BINARY_DIR}/empty.c)
endforeach()
# What find_package(Lua 5.3) and find_package(PNG) leave behind.
set(LUA_INCLUDE_DIR /nowhere/lua5.3 CACHE PATH "")
set(LUA_STATIC_LIBRARY /nowhere/liblua5.3.a CACHE FILEPATH "")
set(PNG_INCLUDE /nowhere CACHE PATH "")
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
set(CMAKE_UNITY_BUILD ON)
include(FetchContent) # ends in add_subdirectory
FetchContent_Declare(lathe SOURCE_DIR ${LATHE})
FetchContent_MakeAvailable(lathe)
if(CMAKE_BUILD_TYPE OR NOT CMAKE_UNITY_BUILD OR NOT CMAKE_INTERPROCEDURAL_OPTIMIZATION)
    message(FATAL_ERROR "the parent's settings were changed: '${CMAKE_BUILD_TYPE}'")
endif()
add_executable(user ${LATHE}/examples/hello.c)
target_link_libraries(user PRIVATE Lathe::lathe)
CMAKE
ok 'configure' cmake -S "$work/parent" -B "$work/b" -DLATHE="$here" -DCMAKE_C_FLAGS=-flto=auto $launcher
ok 'configure by itself' cmake -S "$here" -B "$work/top"
ok 'no -Werror by default' sh -c '! grep -q -e -Werror "$1" && grep -q embedded_files.c "$1"' sh "$work/top/compile_commands.json"
ok 'a build type by default' grep -q '^CMAKE_BUILD_TYPE:STRING=RelWithDebInfo' "$work/top/CMakeCache.txt"
ok 'build with -flto' cmake --build "$work/b" -j 2 --target user
ok 'a program with -flto' env CUDA_VISIBLE_DEVICES= LATHE_CACHE_DIR= "$work/b/user"

says 'sources that are not there' 'expected a folder with the sources of Lua 5.4 (lua/src), libpng and zlib' \
    cmake -S "$here" -B "$work/third" -DLATHE_THIRD_PARTY=/nowhere

# A cross build, as CMake sees it: the system's name is another one, the compiler is the one at hand.
mkdir "$work/cross"
cat >"$work/cross/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(cross LANGUAGES C)
include($here/runtime/package/LatheKernels.cmake)
add_executable(tool IMPORTED)
set_target_properties(tool PROPERTIES IMPORTED_LOCATION /nowhere/lathe)
add_executable(Lathe::tool ALIAS tool)
add_library(Lathe::rt INTERFACE IMPORTED)
lathe_add_kernels(k SPECS softmax ARCHS sm_80 PROBLEMS n=64)
CMAKE
says 'a cross build without a tool' 'a cross build needs the program lathe of the machine that builds, of the same version: set LATHE_TOOL_PROGRAM' \
    cmake -S "$work/cross" -B "$work/cross/b" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=other
ok 'a cross build with one' cmake -S "$work/cross" -B "$work/cross/c" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=other \
    -DLATHE_TOOL_PROGRAM=/bin/true
ok 'a cross build of this tree' cmake -S "$here" -B "$work/cross/e" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=other \
    -DLATHE_TOOL_PROGRAM=/bin/true -DLATHE_TESTS=OFF
ok 'its manual by that tool' grep -rq --include=build.make --include=build.ninja -e '-DTOOL=/bin/true' "$work/cross/e"
ok 'its manual is installed' grep -q -e 'lathe\.1' "$work/cross/e/cmake_install.cmake"
if command -v clang >/dev/null; then
    machine=$(clang -dumpmachine)
    ok 'a cross build by clang' cmake -S "$work/cross" -B "$work/cross/d" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=other \
        -DLATHE_TOOL_PROGRAM=/bin/true -DCMAKE_C_COMPILER=clang -DCMAKE_C_COMPILER_TARGET="$machine"
    ok 'kernels for the target' grep -q -e "--target=$machine" "$work/cross/d/CMakeFiles/lathe-cc"
    printf 'int f(void) { return 0; }\n' >"$work/f.c"
    ok 'the compiler of kernels' "$work/cross/d/CMakeFiles/lathe-cc" -c "$work/f.c" -o "$work/f.o"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
