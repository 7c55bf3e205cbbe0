#!/bin/sh
# symbols.sh: the shared libraries show what tests/symbols/NAME.txt lists and nothing else, have a versioned soname, and
# need nothing but libc; every global name of the static ones begins with lathe_; liblathe_rt is small.
# LATHE_BUILD is the build folder; exit code 77: there is no shared library.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${LATHE_BUILD:-build}
version=$(sed -n 's/^project(lathe VERSION \([0-9]*\.[0-9]*\)\..*/\1/p' CMakeLists.txt)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
    echo "FAILED $*"
    failed=1
}

command -v nm >/dev/null && command -v readelf >/dev/null || { echo 'skipped: nm and readelf are not installed (binutils)'; exit 77; }
[ -e "$build/liblathe.so" ] || { echo 'skipped: the shared libraries are not built (LATHE_SHARED)'; exit 77; }

for name in lathe lathe_rt; do
    library=$build/lib$name.so
    LC_ALL=C nm -D --defined-only "$library" | awk '{ print $NF }' | LC_ALL=C sort >"$work/$name.txt"
    diff "tests/symbols/$name.txt" "$work/$name.txt" ||
        complain "$library: its symbols are not those of tests/symbols/$name.txt (< listed, > in the library)"
    soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    [ "$soname" = "lib$name.so.$version" ] || complain "$library: its soname is $soname, expected lib$name.so.$version"
    readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libdl|libpthread|ld-linux[^.]*)\.so' &&
        complain "$library: needs what is named above"
    readelf -d "$library" | grep -qE 'TEXTREL|RPATH|RUNPATH' && complain "$library: text relocations or a run path"
done

# A static library shares its names with the program: all of them are ours.
for library in liblathe.a liblathe_rt.a; do
    nm -P -g --defined-only "$build/$library" 2>/dev/null | awk '$2 ~ /^[A-Z]$/ && $1 !~ /^lathe_/ { print $1 }' >"$work/foreign.txt"
    [ ! -s "$work/foreign.txt" ] || complain "$library: names that a program may use for itself: $(head -n 5 "$work/foreign.txt" | tr '\n' ' ')..."
done

# What a program with its kernels compiled in carries: at most 150 KiB of code and constants, without a compiler.
text=$(size "$build/liblathe_rt.so" | awk 'NR == 2 { print $1 }')
[ "$text" -le $((150 * 1024)) ] || complain "liblathe_rt.so: $text bytes of text, expected at most $((150 * 1024))"
for library in liblathe_rt.so liblathe_rt.a; do
    nm "$build/$library" 2>/dev/null | grep -iE ' (lua_|luaL_|nvrtc|lathe__compile|lathe__cache|lathe__spec|spec_load|emit$)' &&
        complain "$library: Lua, NVRTC, the cache or the generator is in it"
done

[ $failed = 0 ] && echo "symbols as listed; liblathe_rt has $text bytes of text"
exit $failed
