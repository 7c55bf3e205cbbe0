#!/bin/sh
# quickstart.sh: from nothing to a running kernel: installs what is missing, builds, then checks, generates, compiles
# and runs specs/causal.lua, on the GPU or, where there is none, on the host device.
#     sh examples/quickstart.sh [SPEC]        a file, relative to the folder of the call
# Prints what each stage did and how long it took; the last stage prints the error against the host device.
set -u
spec=${1:-specs/causal.lua}
[ ! -f "$PWD/$spec" ] || spec=$PWD/$spec
cd "$(dirname "$0")/.." || exit 1
. tests/setup.sh

build=${LATHE_BUILD:-build}
out=${LATHE_OUT:-out}
name=$(basename "$spec" .lua)

now() { date +%s%N; }

# stage WHAT COMMAND...: runs it, prints what it printed and the time it took.
stage() {
    what=$1
    shift
    printf '\n-- %s\n' "$what"
    started=$(now)
    "$@" </dev/null
    code=$?
    printf '   %s: %s ms\n' "$([ $code -eq 0 ] && echo done || echo "failed with exit code $code")" $((($(now) - started) / 1000000))
    return $code
}

show() {
    printf '   $ %s\n' "$*"
    "$@"
}

if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
    arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '.')
    [ "$arch" = sm_90 ] && arch=sm_90a # all that this GPU has; code for sm_90 runs on later ones, too
    problem=dtype=bf16,b=2,h=16,q=4096,kv=4096,d=128
    say "GPU: $(nvidia-smi -L | head -n 1 | sed 's/ (UUID.*//')"
else
    arch=sm_90a
    problem=dtype=bf16,b=1,h=2,q=256,kv=256,d=64
    say "no GPU here: the kernel is generated and compiled, and the host device runs the spec in double precision"
fi
compile_problem=dtype=bf16,b=2,h=16,q=4096,kv=4096,d=128

stage "install what is missing" setup_tools || exit 1
stage "build" setup_build "$build" || exit 1
mkdir -p "$out"
lathe=$build/lathe

case $("$lathe" explain "$spec" 2>/dev/null | head -n 1) in
*'(attention,'*) ;;
*) problem=dtype=bf16 compile_problem=dtype=bf16 ;; # rows and maps: sizes as `lathe explain` shows them
esac

stage "check: is the spec sound?" show "$lathe" check "$spec" || exit 1
stage "gen: the kernel as one readable CUDA file" \
    show "$lathe" gen "$spec" --arch "$arch" --problem "$compile_problem" -o "$out/$name.cu" || exit 1
printf '   %s lines in %s\n' "$(wc -l <"$out/$name.cu")" "$out/$name.cu"
stage "compile: to a fatbin, with NVRTC" \
    show "$lathe" compile "$spec" --arch "$arch" --problem "$compile_problem" -o "$out/$name.fatbin"
case $? in
0) ;;
3) say "compiling needs NVRTC from the CUDA toolkit; the host device does not" ;;
*) exit 1 ;;
esac
stage "run: and compare with the host device, in double precision" \
    show "$lathe" run "$spec" --problem "$problem" --device auto --verify || exit 1
