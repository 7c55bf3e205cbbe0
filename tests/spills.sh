#!/bin/sh
# spills.sh: the row-wise kernels over a ladder of lengths, both passes, through NVRTC: each plan has room for its values in registers.
# What the stack of a kernel holds (cuobjdump) is what it spills: up to 32 bytes are forgiven and printed, more is a failure. So is a copy whose
# policy lies in no even register of the warp: ptxas has written an instruction that is none (copy16_as_async in templates/common/ptx.cuh).
# Exit code 77: no NVRTC or no cuobjdump. LATHE names the tool.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=${PATH}:/usr/local/cuda/bin
command -v cuobjdump >/dev/null 2>&1 || { echo "tests/spills.sh: skipped: cuobjdump (the CUDA toolkit) is not here" >&2; exit 77; }
[ -x "${LATHE:-}" ] || { echo "tests/spills.sh: skipped: the tool lathe was not built" >&2; exit 77; }
stamp_name=spills
. tests/stamps.sh # what spilled nothing before, with the same text, is known

# one SPEC PASS LENGTH FOLDER: a line about what it spills, or why it does not compile
one() {
    sizes=dtype=bf16,rows=16384,n=$3
    case $1 in group_*) sizes=$sizes,groups_of=32,channels_of=8 ;; esac
    out=$4/$1.$2.$3
    key=
    if "$LATHE" gen "specs/$1.lua" --all --pass "$2" --arch sm_90a --problem "$sizes" -o "$out.cu" >"$out.log" 2>&1; then
        key=$(stamp_code <"$out.cu" | stamp_key spills)
        stamp_known "$key" && return
    fi
    "$LATHE" compile "specs/$1.lua" --pass "$2" --arch sm_90a --problem "$sizes" -o "$out" >"$out.log" 2>&1
    case $? in
    0) ;;
    1) # refused with a reason: a plan that is not there spills nothing
        grep -q 'does not compile' "$out.log" && echo "FAILED $1, $2, n = $3: $(head -n 1 "$out.log")"
        return ;;
    3) echo "SKIP $(tail -n 1 "$out.log")" && return ;;
    *) echo "FAILED $1, $2, n = $3: $(head -n 1 "$out.log")" && return ;;
    esac
    stack=$(cuobjdump -res-usage "$out" 2>/dev/null | sed -n 's/.*STACK:\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    odd=$(cuobjdump -sass "$out" 2>/dev/null | grep -m 1 -o 'LDGSTS[^;]*desc\[UR[0-9]*[13579]\]')
    rm -f "$out" "$out.cu" "$out.log"
    [ -z "$odd" ] || echo "FAILED $1, $2, n = $3: $odd"
    if [ "${stack:-x}" = x ]; then
        echo "FAILED $1, $2, n = $3: cuobjdump names no stack"
    elif [ "$stack" -gt 32 ]; then
        echo "FAILED $1, $2, n = $3: a stack of $stack bytes, expected at most 32"
    elif [ "$stack" -gt 0 ]; then
        echo "forgiven $1, $2, n = $3: a stack of $stack bytes"
    elif [ -n "$key" ] && [ -z "$odd" ]; then
        stamp_add "$key"
    fi
}

if [ "${1:-}" = --one ]; then
    one "$2" "$3" "$4" "$5"
    exit 0
fi

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
stamps_log "$temp/good"
for file in specs/*.lua; do
    grep -q '^return rowwise' "$file" || continue
    for pass in forward backward; do
        for n in 128 1024 8192 40960 65537; do
            echo "$(basename "$file" .lua) $pass $n $temp"
        done
        [ "$file" != specs/layer_norm.lua ] || for n in 70000 100000 131072 262144; do echo "layer_norm $pass $n $temp"; done # columns are packed
    done
done >"$temp/list"
LATHE=$LATHE xargs -P "$(nproc)" -n 4 sh tests/spills.sh --one <"$temp/list" >"$temp/said"
if grep -q '^SKIP' "$temp/said"; then
    echo "tests/spills.sh: skipped: $(sed -n 's/^SKIP //p' "$temp/said" | head -n 1)" >&2
    exit 77
fi
sort "$temp/said"
stamps_renew
failed=$(grep -c '^FAILED' "$temp/said")
echo "$(wc -l <"$temp/list") kernels' passes, $failed failed"
exit $((failed > 0))
