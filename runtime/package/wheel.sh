#!/bin/sh
# wheel.sh [-o FOLDER] [x86_64] [aarch64] [sdist]: builds wheels that need neither a compiler nor a library of the
# machine but glibc 2.28, and a source distribution that needs a C compiler alone; by default all three, into dist/.
#
#     sh runtime/package/wheel.sh -o dist
#     pip install "dist/lathe_kernels-0.1.0-py3-none-manylinux_2_28_x86_64.whl[cuda13]"
#
# Needs python3 with venv, and once the network: pip gets what wheel.txt lists (100 MB), apt-get the sources of Lua,
# libpng and zlib, on Debian and its like. They are kept in $LATHE_WHEEL_CACHE (lathe-wheel in the user's cache folder).
# LATHE_THIRD_PARTY=FOLDER has other sources, as lua/src, libpng and zlib. --get: fetches both, and no more; --known:
# exit code 77 where something would have to be fetched.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
package=$here/runtime/package
out=$PWD/dist
wanted=
get=yes
only_get=
cache=${LATHE_WHEEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lathe-wheel}
tools=$cache/tools-$( (python3 -V && cat "$package/wheel.txt") | sha256sum | cut -c 1-16)
sources=${LATHE_THIRD_PARTY:-$cache/third_party}

fail() {
    echo "wheel.sh: $*" >&2
    exit 1
}
while [ $# -gt 0 ]; do
    case $1 in
    -o)
        [ $# -gt 1 ] || fail '-o: expected a folder'
        mkdir -p "$2"
        out=$(cd "$2" && pwd)
        shift
        ;;
    x86_64 | aarch64 | sdist) wanted="$wanted $1" ;;
    --get) only_get=yes ;;
    --known) get= ;;
    *) fail "expected -o FOLDER, x86_64, aarch64, sdist, --get or --known, given '$1'" ;;
    esac
    shift
done
wanted=${wanted:-sdist x86_64 aarch64}

# ---- what it is built with ------------------------------------------------------------------------------------------

may_get() { # may_get WHAT
    [ -n "$get" ] && return
    echo "skipped: $1 is not here: sh runtime/package/wheel.sh --get fetches it"
    exit 77
}

get_tools() {
    [ ! -e "$tools/complete" ] || return 0
    may_get 'what wheel.txt lists'
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/python" -m pip install --disable-pip-version-check --no-input -q -r "$package/wheel.txt"
    : >"$tools/complete"
}

# deb_source PACKAGE FOLDER: the source of a Debian package with Debian's patches, but for those that fit it into
# Debian's folders; of the newest version that can be had.
# apt reads the lists of this machine as if they named sources, in a folder of its own.
deb_source() {
    versions=$(apt-cache madison "$1" | awk '$NF == "Sources" { print $3 }' | sort -ruV)
    [ -n "$versions" ] || fail "apt knows no source package $1; name a folder with the sources in LATHE_THIRD_PARTY"
    for version in $versions; do
        rm -rf "${work:?}/deb" && mkdir "$work/deb"
        (cd "$work/deb" && apt-get source -qq --download-only "$1=$version") >"$work/log" 2>&1 && break
        rm -rf "$work/deb"
    done
    [ -d "$work/deb" ] || { cat "$work/log" >&2; fail "apt-get cannot get the source of $1"; }
    mkdir -p "$2"
    tar -xf "$work"/deb/*.orig.tar.* --strip-components=1 -C "$2"
    tar -xf "$work"/deb/*.debian.tar.* -C "$work/deb"
    for patch in $(sed -E '/^#|build-system|modules-paths/d' "$work/deb/debian/patches/series" 2>/dev/null); do
        patch -s -p1 -d "$2" <"$work/deb/debian/patches/$patch" || fail "$1: Debian's patch $patch does not apply"
    done
    cp "$work/deb/debian/copyright" "$2/debian-copyright"
}

get_sources() {
    [ ! -e "$sources/lua/src/lua.h" ] || return 0
    [ -z "${LATHE_THIRD_PARTY:-}" ] || fail "LATHE_THIRD_PARTY: $sources/lua/src/lua.h is not there"
    may_get 'the source of Lua, libpng and zlib'
    command -v apt-get >/dev/null ||
        fail 'without apt-get, name a folder with lua/src, libpng and zlib in LATHE_THIRD_PARTY'
    mkdir -p "$work/apt/lists/partial" "$work/apt/parts" "$work/got"
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/debian.* /etc/apt/sources.list.d/ubuntu.*; do
        [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$list" >"$work/apt/parts/${list##*/}"
    done
    [ ! -f "$work/apt/parts/sources.list" ] || mv "$work/apt/parts/sources.list" "$work/apt/parts/first.list"
    printf '%s\n' 'Dir::Etc::SourceList "/dev/null";' "Dir::Etc::SourceParts \"$work/apt/parts\";" \
        "Dir::State::Lists \"$work/apt/lists\";" 'APT::Sandbox::User "root";' >"$work/apt/conf"
    APT_CONFIG=$work/apt/conf
    export APT_CONFIG
    apt-get update -qq >"$work/log" 2>&1 || { cat "$work/log" >&2; fail 'apt-get update failed'; }
    deb_source lua5.4 "$work/got/lua"
    deb_source libpng1.6 "$work/got/libpng"
    deb_source zlib "$work/got/zlib"
    rm -rf "$sources" && mkdir -p "$cache" && mv "$work/got" "$sources"
}

# ---- the source distribution ----------------------------------------------------------------------------------------

# What is compiled of the others' sources, with their licences.
copy_sources() {
    mkdir -p "$1/lua/src" "$1/libpng/scripts" "$1/zlib"
    cp "$sources"/lua/src/*.[ch] "$1/lua/src"
    cp "$sources"/libpng/*.[ch] "$1/libpng"
    cp "$sources/libpng/scripts/pnglibconf.h.prebuilt" "$1/libpng/scripts"
    cp "$sources"/zlib/*.[ch] "$1/zlib"
    for name in lua libpng zlib; do
        for licence in LICENSE LICENSE.txt README debian-copyright; do
            [ ! -f "$sources/$name/$licence" ] || cp "$sources/$name/$licence" "$1/$name"
        done
    done
}

make_sdist() {
    stage=$work/stage
    mkdir "$stage"
    (cd "$here" && git ls-files -z -co --exclude-standard CMakeLists.txt LICENSE README.md gen include runtime specs \
        templates examples | xargs -0 tar -cf -) | tar -xf - -C "$stage"
    copy_sources "$stage/third_party"
    # The same package, seen from the root of the tree.
    sed -e 's|^readme = .*|readme = "runtime/python/README.md"|' -e 's|^cmake.source-dir = .*|cmake.source-dir = "."|' \
        -e 's|^wheel.packages = .*|wheel.packages = ["runtime/python/lathe"]|' \
        -e 's|LATHE_PYTHON = "ON"|LATHE_PYTHON = "ON", LATHE_THIRD_PARTY = "third_party"|' \
        -e '/^\[tool.pytest/,$d' "$stage/runtime/python/pyproject.toml" >"$stage/pyproject.toml"
    rm "$stage/runtime/python/pyproject.toml"
    "$tools/bin/python" -m build --sdist --no-isolation --outdir "$work/sdist" "$stage" >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        fail 'the source distribution cannot be made'
    }
}

# ---- wheels ---------------------------------------------------------------------------------------------------------

# Programs that CMake takes for a compiler and its archiver. -s: names of inner functions are no use to anybody here.
compilers() { # compilers ARCH
    zig=$("$tools/bin/python" -c 'import ziglang, os; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
    mkdir -p "$cache/bin"
    for program in "cc -target $1-linux-gnu.2.28" ar ranlib; do
        file=$cache/bin/$1-${program%% *}
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$program" >"$file.$$"
        chmod +x "$file.$$"
        if cmp -s "$file.$$" "$file"; then rm "$file.$$"; else mv "$file.$$" "$file"; fi # ccache looks at its time
    done
    cat >"$work/$1.cmake" <<CMAKE
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $1)
set(CMAKE_C_COMPILER "$cache/bin/$1-cc")
set(CMAKE_AR "$cache/bin/$1-ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "$cache/bin/$1-ranlib" CACHE FILEPATH "")
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
CMAKE
}

make_wheel() { # make_wheel ARCH
    compilers "$1"
    rm -rf "$cache/build" && mkdir -p "$cache/build/source" # always the same names, so that ccache knows them
    tar -xf "$work"/sdist/*.tar.gz --strip-components=1 -C "$cache/build/source"
    [ -z "$(command -v ccache)" ] || export CMAKE_C_COMPILER_LAUNCHER=ccache CCACHE_COMPILERTYPE=clang
    mkdir "$work/$1"
    CMAKE_TOOLCHAIN_FILE=$work/$1.cmake PATH=$tools/bin:$PATH ZIG_GLOBAL_CACHE_DIR=$cache/zig \
        ZIG_LOCAL_CACHE_DIR=$cache/zig "$tools/bin/python" -m pip wheel --disable-pip-version-check --no-deps \
        --no-build-isolation --no-index -w "$work/$1" -C install.strip=false -C cmake.define.LATHE_WERROR=ON \
        -C "build-dir=$cache/build/$1" "$cache/build/source" >"$work/log" 2>&1 || {
        tail -n 30 "$work/log" | cut -c 1-400 >&2
        fail "the wheel for $1 cannot be built"
    }
    "$tools/bin/python" -m wheel tags --remove --platform-tag "manylinux_2_28_$1" "$work/$1"/*.whl >/dev/null
    "$tools/bin/python" "$package/wheel_check.py" "$work/$1"/*.whl
    mv "$work/$1"/*.whl "$out/"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
get_tools
get_sources
[ -z "$only_get" ] || exit 0
mkdir -p "$out"
make_sdist
for name in $wanted; do
    case $name in
    sdist) cp "$work"/sdist/*.tar.gz "$out/" ;;
    *) make_wheel "$name" ;;
    esac
done
ls "$out"
