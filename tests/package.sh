#!/bin/sh
# package.sh: installs into a prefix, and uses it from outside as a user would: examples/aot with CMake (make and Ninja) and
# with plain cc and pkg-config, examples/hello.c with every library; moves the prefix and does it again; checks what is
# rebuilt when. LATHE_BUILD is the build folder. Needs a C compiler and CMake; NVRTC for the kernels.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${LATHE_BUILD:-$here/build}" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH Lathe_DIR
passed=0
failed=0

complain() {
    failed=$((failed + 1))
    echo "FAILED $*"
    sed 's/^/    /' "$work/log" | tail -n 12
}

# ok WHAT COMMAND...: it succeeds. fails WHAT TEXT COMMAND...: it does not, and prints the text.
ok() {
    what=$1
    shift
    if "$@" >"$work/log" 2>&1 </dev/null; then passed=$((passed + 1)); else complain "$what: $*"; fi
}
fails() {
    what=$1
    text=$2
    shift 2
    if "$@" >"$work/log" 2>&1 </dev/null; then
        complain "$what: succeeded: $*"
    elif tr -s '\n ' '  ' <"$work/log" | grep -qF -e "$text"; then
        passed=$((passed + 1))
    else
        complain "$what: the message lacks '$text': $*"
    fi
}
says() { # says WHAT TEXT COMMAND...
    what=$1
    text=$2
    shift 2
    "$@" >"$work/log" 2>&1 </dev/null
    if grep -qF -e "$text" "$work/log"; then passed=$((passed + 1)); else complain "$what: lacks '$text': $*"; fi
}
stamp() { stat -c %y "$@" 2>/dev/null; }
same() { # same WHAT BEFORE FILE...: the times are still those
    what=$1
    same_before=$2
    shift 2
    if [ -n "$same_before" ] && [ "$same_before" = "$(stamp "$@")" ]; then passed=$((passed + 1)); else complain "$what: was made again"; fi
}
newer() {
    what=$1
    same_before=$2
    shift 2
    if [ "$same_before" != "$(stamp "$@")" ]; then passed=$((passed + 1)); else complain "$what: was not made again"; fi
}

command -v cc >/dev/null && command -v cmake >/dev/null || { echo 'skipped: cc and cmake are needed'; exit 77; }
first=$work/first
prefix=$work/a\ moved/prefix # with a space, as some have it
ok 'install' cmake --install "$build" --prefix "$first"
[ -d "$first" ] || { echo "$passed passed, $failed failed"; exit 1; }
lib=$(dirname "$(find "$first" -name lathe-rt.pc)")
lib=${lib#"$first/"}
lib=${lib%/pkgconfig}
shared=$([ -e "$first/$lib/liblathe.so" ] && echo yes)
ok 'no path of this machine' sh -c '! grep -rIF -e "$1" -e "$2" -e "$3" "$4/cmake" "$4/pkgconfig" "$5/include"' sh "$here" "$build" "$work" \
    "$first/$lib" "$first"
for file in "$here"/include/*.h; do
    file=${file##*/}
    ok "header $file" cmp "$here/include/$file" "$first/include/$file"
done

# Each part is an installation of its own: what others have is not asked for.
parts=$work/parts
part() { ok "part $1" cmake --install "$build" --component "$1" --prefix "$parts"; }
uses() { cmake -S "$work/user" -B "$work/user/build" "-DCMAKE_PREFIX_PATH=$parts" "-DWANTED=$1"; }
mkdir "$work/user"
cat >"$work/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(Lathe REQUIRED COMPONENTS ${WANTED})
CMAKE
if [ -n "$shared" ]; then
    part lathe_runtime && part lathe_devel
    ok 'shared libraries alone' uses 'lathe_shared;rt_shared'
    fails 'the tool is elsewhere' 'Lathe::tool is not part of this installation' uses 'lathe_shared;tool'
    part lathe_tool && part lathe_static && part lathe_doc
    ok 'all parts' uses 'lathe;lathe_shared;rt;rt_shared;tool'
    ok 'parts are all' sh -c 'cd "$1" && find . | sort >"$3/1" && cd "$2" && find . | sort | cmp "$3/1" -' sh "$first" "$parts" "$work"
fi

for file in share/man/man1/lathe.1 share/bash-completion/completions/lathe share/lathe/specs/causal.lua share/lathe/specs/reference/attention.md \
    share/doc/lathe/LICENSE share/doc/lathe/THIRD_PARTY; do
    ok "installed $file" test -s "$first/$file"
done

# Pages that are installed lead to pages that are.
broken_links() { # broken_links FOLDER: PAGE: LINK a line
    find "$1" -name '*.md' | while IFS= read -r page; do
        grep -oE '\]\([^)#:]+[)#]' "$page" | sed 's/^](//; s/[)#]$//' | while IFS= read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "${page#"$1/"}: $link"
        done
    done
}
broken_links "$first/share/lathe" >"$work/links"
ok 'links of installed pages' sh -c 'cat "$1"; [ ! -s "$1" ]' sh "$work/links"

# ---- programs ------------------------------------------------------------------------------------

# A result on a GPU, or the sentence that says what is missing.
runs() {
    "$@" >"$work/log" 2>&1 </dev/null
    code=$?
    case $code in
    0) text='largest error' ;;
    2) text='no GPU: ' ;;
    *) text='exit code 0 or 2' ;;
    esac
    if grep -qE "^.*$text.*[a-z0-9]" "$work/log"; then passed=$((passed + 1)); else complain "exit code $code: $*"; fi
}
# Neither Lua nor a compiler nor the generator, inside or beside it.
bare() {
    ok 'only the small library' sh -c '! nm "$1" | grep -iE " (lua_|luaL_|nvrtc|spec_load|lathe__compile|lathe_kernel_get)" &&
        ! ldd "$1" | grep -iE "lua|nvrtc|liblathe\.so|stdc"' sh "$1"
}

consumer_cmake() { # consumer_cmake PREFIX FOLDER GENERATOR
    ok "configure ($3)" cmake -S "$work/aot" -B "$2" -G "$3" -DCMAKE_PREFIX_PATH="$1"
    ok "build ($3)" cmake --build "$2"
    runs "$2/consumer"
    bare "$2/consumer"
}

rebuilds() { # rebuilds FOLDER: only what changed
    archive=$1/kernels.lathe/libkernels.a
    object=$1/CMakeFiles/consumer.dir/main.c.o
    before=$(stamp "$archive" "$object" "$1/consumer")
    ok 'build again' cmake --build "$1"
    same 'nothing changed, so nothing' "$before" "$archive" "$object" "$1/consumer"
    sleep 0.1
    touch "$work/aot/main.c"
    kernels=$(stamp "$archive")
    before=$(stamp "$object")
    ok 'build after main.c' cmake --build "$1"
    same 'main.c changed, but the library' "$kernels" "$archive"
    newer 'main.c changed, but the object' "$before" "$object"
    touch "$work/aot/soft_sign.lua"
    ok 'build after a spec' cmake --build "$1"
    newer 'a spec changed, but the library' "$kernels" "$archive"
    ok 'only what changed is compiled' test "$(find "$1/CMakeFiles/lathe" -name '*.bin' | wc -l)" = 6
    kernels=$(stamp "$archive")
    before=$(stamp "$1/consumer")
    ok 'build again' cmake --build "$1"
    same 'nothing changed, so the library' "$kernels" "$archive"
    same 'nothing changed, so the program' "$before" "$1/consumer"
}

consumer_cc() { # consumer_cc PREFIX FOLDER: the lines of examples/aot/README.md
    mkdir -p "$2"
    ok 'lathe aot' sh -c 'cd "$1" && "$2/bin/lathe" aot softmax soft_sign.lua --arch sm_80,sm_90a --problem dtype=f32,n=256 \
        --name kernels -o "$3"' sh "$work/aot" "$1" "$2"
    PKG_CONFIG_PATH=$1/$lib/pkgconfig:$2
    export PKG_CONFIG_PATH
    ok 'cc, pkg-config' sh -c 'eval cc "\"$1/main.c\"" -o "\"$2/plain\"" $(pkg-config --cflags --libs kernels) -lm -ldl "\"-Wl,-rpath,$3\""' \
        sh "$work/aot" "$2" "$1/$lib"
    runs "$2/plain"
    bare "$2/plain"
    ok 'cc, pkg-config, static' sh -c 'eval cc "\"$1/main.c\"" -o "\"$2/static\"" \
        $(pkg-config --static --cflags --libs kernels | sed "s/-llathe_rt/-l:liblathe_rt.a/") -lm -ldl' sh "$work/aot" "$2"
    runs "$2/static"
    bare "$2/static"
    unset PKG_CONFIG_PATH
}

hello_cmake() { # hello_cmake PREFIX FOLDER: every library of the JIT
    mkdir -p "$2/source"
    cp "$here/examples/hello.c" "$here/examples/memory.h" "$2/source"
    cat >"$2/source/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(hello LANGUAGES C)
find_package(Lathe 0.1 REQUIRED COMPONENTS ${WANTED})
foreach(library lathe lathe_shared)
    if(TARGET Lathe::${library})
        add_executable(hello_${library} hello.c)
        target_link_libraries(hello_${library} PRIVATE Lathe::${library} m ${CMAKE_DL_LIBS})
    endif()
endforeach()
CMAKE
    ok 'hello: configure' cmake -S "$2/source" -B "$2" -DCMAKE_PREFIX_PATH="$1" -DWANTED=lathe
    ok 'hello: build' cmake --build "$2"
    ok 'hello: static' "$2/hello_lathe"
    [ -z "$shared" ] || ok 'hello: shared' "$2/hello_lathe_shared"
}

hello_cc() { # hello_cc PREFIX FOLDER
    PKG_CONFIG_PATH=$1/$lib/pkgconfig
    export PKG_CONFIG_PATH
    ok 'hello: cc, pkg-config' sh -c 'eval cc "\"$1\"" -o "\"$2/plain\"" $(pkg-config --cflags --libs lathe) -lm -ldl "\"-Wl,-rpath,$3\""' \
        sh "$here/examples/hello.c" "$2" "$1/$lib"
    ok 'hello: runs' "$2/plain"
    ok 'hello: cc, pkg-config, static' sh -c 'eval cc "\"$1\"" -o "\"$2/static\"" \
        $(pkg-config --static --cflags --libs lathe | sed "s/-llathe /-l:liblathe.a /")' sh "$here/examples/hello.c" "$2"
    ok 'hello: runs, static' "$2/static"
    unset PKG_CONFIG_PATH
}

cp -R "$here/examples/aot" "$work/aot"
hello_cmake "$first" "$work/hello first"
have_pc=$(command -v pkg-config)
[ -n "$have_pc" ] || echo 'skipped: pkg-config is not installed'
"$first/bin/lathe" compile softmax -o "$work/softmax.fatbin" >"$work/log" 2>&1
nvrtc=$?
[ $nvrtc = 0 ] || echo "skipped: kernels: $(cat "$work/log")"

if [ $nvrtc = 0 ]; then
    consumer_cmake "$first" "$work/make" 'Unix Makefiles'
    rebuilds "$work/make"
    if command -v ninja >/dev/null; then
        consumer_cmake "$first" "$work/ninja" Ninja
        rebuilds "$work/ninja"
        says 'Ninja has nothing to do' 'no work to do' cmake --build "$work/ninja"
    else
        echo 'skipped: Ninja is not installed'
    fi
fi

# ---- the same from another place -------------------------------------------------------------------
mkdir "$work/a moved"
mv "$first" "$prefix"
hello_cmake "$prefix" "$work/hello moved"
[ -z "$have_pc" ] || hello_cc "$prefix" "$work/hello moved"
if [ $nvrtc = 0 ]; then
    consumer_cmake "$prefix" "$work/moved" 'Unix Makefiles'
    [ -z "$have_pc" ] || consumer_cc "$prefix" "$work/plain"
fi

# ---- as a folder of another project ----------------------------------------------------------------
mkdir "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C)
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "int main(void) { return 0; }\n")
foreach(name m dl pthread) # names that libraries of the system have
    add_executable(${name} ${CMAKE_BINARY_DIR}/empty.c)
endforeach()
add_subdirectory(${LATHE} lathe)
add_executable(user ${CMAKE_BINARY_DIR}/empty.c)
target_link_libraries(user PRIVATE Lathe::lathe Lathe::rt)
CMAKE
ok 'a parent with targets called m and dl' cmake -S "$work/parent" -B "$work/parent/b" -DLATHE="$here"

# ---- what is refused -----------------------------------------------------------------------------
refused() { # refused WHAT TEXT LINE...: a project of these lines does not configure
    mkdir -p "$work/refused"
    rm -rf "$work/refused/b"
    refused_what=$1
    refused_text=$2
    shift 2
    printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(refused LANGUAGES C)' "$@" >"$work/refused/CMakeLists.txt"
    fails "$refused_what" "$refused_text" cmake -S "$work/refused" -B "$work/refused/b" -DCMAKE_PREFIX_PATH="$prefix"
}
found='find_package(Lathe REQUIRED)'
refused 'a later minor version' 'compatible with requested version "0.2"' 'find_package(Lathe 0.2 REQUIRED)'
refused 'an unknown part' 'Lathe::nonsense is not part of this installation' 'find_package(Lathe REQUIRED COMPONENTS nonsense)'
refused 'no Lua' 'install liblua5.4-dev' 'set(CMAKE_FIND_ROOT_PATH /nowhere)' 'set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)' \
    'find_package(Lathe REQUIRED COMPONENTS lathe)'
refused 'no specs' 'expected SPECS with at least one value' "$found" 'lathe_add_kernels(k ARCHS sm_80 PROBLEMS d=64)'
refused 'no archs' 'expected ARCHS' "$found" 'lathe_add_kernels(k SPECS causal PROBLEMS d=64)'
refused 'an unknown word' "given 'WHAT'" "$found" 'lathe_add_kernels(k WHAT SPECS causal ARCHS sm_80 PROBLEMS d=64)'
refused 'a name' "expected NAME to be a C identifier, given 'a b'" "$found" 'lathe_add_kernels(k NAME "a b" SPECS causal ARCHS sm_80 PROBLEMS d=64)'

wrong() { # wrong WHAT TEXT ARGUMENTS: it configures, does not build, and leaves no library
    cat >"$work/refused/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.20)
project(wrong LANGUAGES C)
$found
lathe_add_kernels(k $3)
add_executable(p p.c)
target_link_libraries(p PRIVATE k)
CMAKE
    printf '#include "k.h"\nint main(void) { return 0; }\n' >"$work/refused/p.c"
    rm -rf "$work/refused/b"
    ok "$1: configure" cmake -S "$work/refused" -B "$work/refused/b" -DCMAKE_PREFIX_PATH="$prefix"
    fails "$1" "$2" cmake --build "$work/refused/b"
    ok "$1: nothing is left" sh -c 'test -z "$(ls "$1" 2>/dev/null)"' sh "$work/refused/b/k.lathe"
}
if [ $nvrtc = 0 ]; then
    printf 'return rowwise {\n  forward = function(x) return y end,\n}\n' >"$work/refused/wrong.lua"
    wrong 'a parameter that the spec has not' "parameter 'GAP': this spec has none of that name; it has CAP" \
        'SPECS softcap ARCHS sm_80 PROBLEMS dtype=bf16,d=64 PARAMS GAP=1'
    with_params="lathe_add_kernels(k SPECS softcap ARCHS sm_80 PROBLEMS dtype=bf16,d=64 PARAMS CAP=20)"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.20)' 'project(params LANGUAGES C)' "$found" "$with_params" \
        'add_executable(p p.c)' 'target_link_libraries(p PRIVATE k)' >"$work/refused/CMakeLists.txt"
    rm -rf "$work/refused/b"
    ok 'a parameter: configure' cmake -S "$work/refused" -B "$work/refused/b" -DCMAKE_PREFIX_PATH="$prefix"
    ok 'a parameter: build' cmake --build "$work/refused/b"
    says 'a parameter' '--param CAP=20' cat "$work/refused/b/k.lathe/k.manifest"
    wrong 'a wrong spec' 'wrong.lua:2: ' 'SPECS wrong.lua ARCHS sm_80 PROBLEMS n=64'
    wrong 'no such spec' 'neither a shipped spec' 'SPECS nowhere ARCHS sm_80 PROBLEMS n=64'
    wrong 'an unknown architecture' '--arch: expected one of sm_80' 'SPECS softmax ARCHS sm_12 PROBLEMS n=64'
    wrong 'a wrong problem' 'problem: ' 'SPECS softmax ARCHS sm_80 PROBLEMS n=-1'
fi

# ---- inside another project ------------------------------------------------------------------------
cat >"$work/refused/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(inside LANGUAGES C)
add_subdirectory("$here" lathe)
lathe_add_kernels(kernels SPECS softmax ARCHS sm_80 PROBLEMS n=64)
add_executable(p p.c)
target_link_libraries(p PRIVATE kernels)
CMAKE
printf 'int main(void) { return 0; }\n' >"$work/refused/p.c"
rm -rf "$work/refused/b"
ok 'add_subdirectory' cmake -S "$work/refused" -B "$work/refused/b"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
