#!/bin/sh
# stubs.sh: what the generator writes is what templates ask for. The kernels of tests/stubs.txt, of whose texts config.gen.cuh,
# variant.gen.cuh and kernel.cu are written into build/stub/TEMPLATE.N, compile with g++ and the emulator's headers; and together they
# have every template, and every kernel for every architecture that launches it. What they define is named in common/concepts.cuh and
# contracts/config.md: a slot that may be left out would else be lost without a word where its name differs.
#     sh tests/stubs.sh              all of them
#     sh tests/stubs.sh TEMPLATE     those of one template, for who works on it
# build/stub/compile_commands.json tells an editor how templates compile: clangd --compile-commands-dir=build/stub.
# LATHE: the tool. LATHE_BUILD: the build folder. Exit code 77: there is no g++.
set -u
LATHE=${LATHE:-build/lathe}
LATHE=$(realpath "$LATHE") || exit 1
build=$(realpath "${LATHE_BUILD:-build}") || exit 1
cd "$(dirname "$0")/.." || exit 1
command -v g++ >/dev/null 2>&1 || { echo "stubs: skipped: g++ is not here"; exit 77; }

# one FOLDER TEMPLATE PASS ARCH SPILLS SPEC PROBLEM: a line that says what is wrong, if anything is; FOLDER/files lists what it includes
one() {
    mkdir -p "$1"
    rm -f "$1"/*
    case $6 in */*) spec=$6 ;; *) spec=specs/$6.lua ;; esac
    case $4 in sm_90a) hopper=1 ;; *) hopper=0 ;; esac
    "$LATHE" gen "$spec" --split "$1" --template "$2" --pass "$3" --arch "$4" --problem "$7" >"$1/said" 2>&1 ||
        { echo "$*: $(head -n 1 "$1/said")"; return; }
    printf '#define EMULATE_HOPPER %s\n#include "emulator.hpp"\n#include "kernel.cu"\n' $hopper >"$1/unit.cpp"
    g++ -std=c++20 -w -fsyntax-only -MD -MF "$1/deps" -MT unit -Itests/emulate "-I$1" -Itemplates "$1/unit.cpp" >"$1/log" 2>&1 || {
        echo "$*: does not compile:"
        grep -m 3 'error: ' "$1/log"
    }
    tr -s ' \\' '\n' <"$1/deps" | grep '^templates/' >"$1/files"
}

# The kernels that a folder compiles: FILE ROLE ARCH
compiled_of() {
    roles=$(sed -n 's/^#define LATHE_KERNEL_\([a-z0-9_]*\) 1$/\1/p' "$1/config.gen.cuh" | paste -sd'|')
    # shellcheck disable=SC2046 # a list of files
    grep -oE "LATHE_COMPILED\(($roles)\)" $(cat "$1/files") /dev/null | sed "s/:LATHE_COMPILED(/ /; s/)\$/ $2/"
}

# Those that are launched. Three are of templates that sm_80 has no shared memory for, or no instructions.
wanted() {
    grep -oE 'LATHE_COMPILED\([a-z0-9_]+\)' -r templates --include='*.cuh' | sed 's/:LATHE_COMPILED(/ /; s/)$//' | grep -v 'base.cuh' | sort -u |
        while read -r file role; do
            echo "$file $role sm_90a"
            case $file,$role in *sm90* | *delta_cuts.cuh,* | *,bwd_decay | *,bwd_values | *,turn_v) ;; *) echo "$file $role sm_80" ;; esac
        done
}

# Names of constants and functions of a generated header
names_of() {
    sed -n 's/^ *static constexpr [a-z0-9]* *//p; s/^constexpr [a-z]* //p' "$@" | sed 's/{[^}]*}//g' | grep -oE '[A-Z][A-Z0-9_]*(\[\])? = ' | sed 's/\[\]//; s/ = //'
    grep -E '^ {4}(template <.*> )?DEV ' "$@" /dev/null | sed 's/^[^:]*://; s/(.*//; s/.*[ *&]//'
}

# What an editor compiles a template with: the first folder that includes it.
commands() {
    while read -r folder _ _ arch _; do
        case $arch in sm_90a) hopper=1 ;; *) hopper=0 ;; esac
        sed "s|\$| $folder $hopper|" "$folder/files"
    done <"$1" | awk -v root="$(pwd)" '
        !seen[$1]++ {
            printf "%s\n{\"directory\": \"%s\", \"file\": \"%s\", \"arguments\": [\"g++\", \"-std=c++20\", \"-xc++\", \"-DEMULATE_HOPPER=%s\", \"-include\", \"tests/emulate/emulator.hpp\", \"-Itests/emulate\", \"-I%s\", \"-Itemplates\", \"-fsyntax-only\", \"%s\"]}", NR == 1 ? "[" : ",", root, $1, $3, $2, $1
        }
        END { print "\n]" }'
}

if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit 0
fi
[ -n "${1:-}" ] || rm -rf "$build/stub" # of templates that are gone
mkdir -p "$build/stub" || exit 1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
awk -v folder="$build/stub" -v only="${1:-}" '!/^#/ { n[$1]++; if (only == "" || $1 == only) print folder "/" $1 "." n[$1], $0 }' tests/stubs.txt >"$temp/list"
[ -s "$temp/list" ] || { echo "stubs: tests/stubs.txt has no row of ${1:-any template}"; exit 1; }
LATHE=$LATHE LATHE_BUILD=$build xargs -P "${LATHE_TEST_JOBS:-$(nproc)}" -L 1 sh tests/stubs.sh --one <"$temp/list" >"$temp/wrong"
if [ -z "${1:-}" ]; then
    while read -r folder _ _ arch _; do compiled_of "$folder" "$(echo "$arch" | sed 's/sm_8[69]/sm_80/')"; done <"$temp/list" | sort -u >"$temp/compiled"
    wanted | sort -u | comm -23 - "$temp/compiled" | sed 's/^/no row has the kernel /' >>"$temp/wrong"
    "$LATHE" gen causal -o - --template ? 2>&1 | sed 's/.*one of \(.*\);.*/\1/' | tr ' ' '\n' | while read -r template; do
        grep -q "^$template " tests/stubs.txt || echo "no row has the template $template"
    done >>"$temp/wrong"
    names_of "$build"/stub/*/variant.gen.cuh "$build"/stub/*/config.gen.cuh | sort -u | while read -r name; do
        grep -qw "$name" templates/common/concepts.cuh templates/contracts/config.md || case $name in SMEM_BYTES_*) ;; *) echo "the contract lacks $name" ;; esac
    done >>"$temp/wrong"
    commands "$temp/list" >"$build/stub/compile_commands.json"
fi
cat "$temp/wrong"
echo "stubs: $(wc -l <"$temp/list") kernels, $(wc -l <"$temp/wrong") lines of what is wrong"
[ ! -s "$temp/wrong" ]
