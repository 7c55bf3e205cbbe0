#!/bin/sh
# same_code.sh: whether two builds of the tool generate the same machine code for every shipped spec, both passes, sm_80 and sm_90a.
#     sh tests/same_code.sh OLD/lathe NEW/lathe
# Texts that differ in comments and blanks alone are the same code. Others are compiled with nvcc, and the .text sections compared.
# Prints a line for each kernel that differs, then how many were compared. Exit code 0: none differs; 77: it takes nvcc, which is not here.
set -u
PATH=${PATH}:/usr/local/cuda/bin

# problems SPEC: sizes that reach the templates of its kind, one a line
problems() {
    if grep -q '^return rowwise' "$1"; then
        case $1 in */group_*) more=,groups_of=32,channels_of=8 ;; *) more= ;; esac
        for n in 128 1000 8192 40960 65536; do echo "dtype=bf16,rows=4096,n=$n$more"; done
        echo "dtype=f32,rows=4096,n=4096$more"
    elif grep -q '^return linear_attention' "$1"; then
        case $1 in *_lrpe*) more=,features=32 ;; *) more= ;; esac
        for d in 64 128; do echo "dtype=bf16,b=2,h=8,t=2048,d=$d$more"; done
        echo "dtype=f32,b=1,h=8,h_k=4,t=1000,seqs=3,d=64,d_v=128$more"
    elif grep -q '^return elementwise' "$1"; then
        printf '%s\n' dtype=bf16 dtype=f32
    else
        for d in 64 128 256; do echo "dtype=bf16,b=2,h=8,q=2048,kv=2048,d=$d"; done
        echo dtype=f16,b=2,h=8,h_kv=2,q=1000,kv=1500,d=128
        echo dtype=bf16,b=2,h=8,q=2048,kv=2048,d=64,deterministic=1
        echo dtype=f32,b=2,h=8,q=512,kv=512,d=64
    fi
}

# code FILE: its text without comments, blank lines and blanks at the ends of lines
code() { sed 's|//.*||; s/[[:space:]]*$//; /^$/d' "$1"; }

# machine_code FILE ARCH: the bytes of its .text sections, by name
machine_code() {
    nvcc -x cu -cubin -std=c++20 -arch="$2" -o "$1.cubin" "$1" >"$1.log" 2>&1 || { cat "$1.log"; return 1; }
    readelf -SW "$1.cubin" 2>/dev/null | sed -n 's/.* \(\.text\.[^ ]*\) .*/\1/p' | sort | while read -r section; do
        readelf -x "$section" "$1.cubin" 2>/dev/null
    done
}

# compare OLD NEW SPEC PASS ARCH PROBLEM FOLDER: prints "same", "refused" (by both, with the same words), or how they differ
compare() {
    here=$(mktemp -d "$7/XXXXXX")
    "$1" gen "$3" --pass "$4" --arch "$5" --problem "$6" -o - >"$here/old.cu" 2>"$here/old.txt"
    old=$?
    "$2" gen "$3" --pass "$4" --arch "$5" --problem "$6" -o - >"$here/new.cu" 2>"$here/new.txt"
    new=$?
    if [ $old -ne $new ] || ! cmp -s "$here/old.txt" "$here/new.txt"; then
        echo "DIFFERS $3 $4 $5 $6: $(head -n 1 "$here/old.txt") / $(head -n 1 "$here/new.txt")"
    elif [ $old -ne 0 ]; then
        echo refused
    else
        code "$here/old.cu" >"$here/old.code"
        code "$here/new.cu" >"$here/new.code"
        if cmp -s "$here/old.code" "$here/new.code"; then
            echo same
        else
            machine_code "$here/old.cu" "$5" >"$here/old.hex"
            machine_code "$here/new.cu" "$5" >"$here/new.hex"
            if [ -s "$here/new.hex" ] && cmp -s "$here/old.hex" "$here/new.hex"; then
                echo "same (compiled)"
            else
                echo "DIFFERS $3 $4 $5 $6"
            fi
        fi
    fi
    rm -rf "$here"
}

if [ "${1:-}" = --one ]; then
    shift
    compare "$@"
    exit 0
fi
[ $# -eq 2 ] || { echo "usage: sh tests/same_code.sh OLD/lathe NEW/lathe" >&2; exit 2; }
command -v nvcc >/dev/null 2>&1 || { echo "tests/same_code.sh: skipped: nvcc (the CUDA toolkit) is not here" >&2; exit 77; }
old=$(realpath "$1")
new=$(realpath "$2")
cd "$(dirname "$0")/.." || exit 1
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
for spec in specs/*.lua; do
    problems "$spec" | while read -r problem; do
        for pass in forward backward; do
            for arch in sm_80 sm_90a; do
                echo "$old $new $spec $pass $arch $problem $temp"
            done
        done
    done
done | xargs -P "$(nproc)" -L 1 sh tests/same_code.sh --one >"$temp/results"
grep '^DIFFERS' "$temp/results"
echo "$(grep -c '^same' "$temp/results") kernels are the same, $(grep -c '^refused' "$temp/results") are refused by both," \
    "$(grep -c '^DIFFERS' "$temp/results") differ"
! grep -q '^DIFFERS' "$temp/results"
