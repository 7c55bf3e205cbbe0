#!/bin/sh
# smem.sh: a planner's bytes of dynamic shared memory are its kernel's. In the config of a generated text each number is made 128 bytes
# too small: no such text compiles, and the numbers as they were are those of the layouts. Every planner that gives out shared memory of
# a layout has a line below. g++ compiles, with the emulator's headers, so it needs no CUDA toolkit; and as a part that has none of the
# kernels (common/base.cuh), since what is asserted holds in every part.
# LATHE: the tool. Exit code 77: there is no g++.
set -u
LATHE=${LATHE:-build/lathe}
LATHE=$(realpath "$LATHE") || exit 1
cd "$(dirname "$0")/.." || exit 1
command -v g++ >/dev/null 2>&1 || { echo "smem: skipped: g++ is not here"; exit 77; }
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# emulated FILE: its text for g++. Of PTX the emulator has files of its own.
emulated() {
    awk '
        /^\/\/ ==== / {
            skip = $3 ~ /^common\/ptx/
            if (skip)
                print "#include \"" $3 "\""
        }
        !skip { print }' "$1"
}

# one SPEC PASS ARCH PROBLEM TEMPLATE FOLDER: a line that says what is wrong, if anything is
one() {
    name="$1 $2 $3 $4 $5"
    mkdir "$6"
    case $3 in sm_90a) hopper=1 ;; *) hopper=0 ;; esac
    printf '#define EMULATE_HOPPER %d\n#include "emulator.hpp"\n' "$hopper" >"$6/unit.cpp"
    "$LATHE" gen "$1" --pass "$2" --arch "$3" --problem "$4" --template "$5" --all -o "$6/whole.cu" >"$6/said" 2>&1 ||
        { echo "$name: $(head -n 1 "$6/said")"; return; }
    emulated "$6/whole.cu" | awk '/^constexpr int SMEM_BYTES_/ { $5 = $5 - 128 ";" } { print }' >>"$6/unit.cpp"
    sed -n 's/^constexpr int SMEM_BYTES_\(.*\) = \(.*\);/\1 \2/p' "$6/whole.cu" | while read -r role bytes; do
        role=$(echo "$role" | tr '[:upper:]' '[:lower:]')
        echo "static_assert(smem_bytes::$role == $bytes, \"$role has $bytes\");" >>"$6/unit.cpp"
        echo "error: static assertion failed: $role: its layout has other bytes than its launch asks for"
    done | sort >"$6/expected"
    g++ -std=c++20 -w -fsyntax-only -DLATHE_PART=9 -Itests/emulate "$6/unit.cpp" >"$6/log" 2>&1
    sed -n 's/.*\(error: .*\)/\1/p' "$6/log" | sort >"$6/given"
    if [ ! -s "$6/expected" ]; then
        echo "$name: its config has no SMEM_BYTES_ number"
    elif ! cmp -s "$6/expected" "$6/given"; then
        echo "$name: expected $(paste -sd';' "$6/expected")"
        echo "    given: $(head -n 3 "$6/given" | paste -sd';')"
    fi
    rm -r "$6"
}

if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit 0
fi
n=0
while read -r spec pass arch problem template; do
    n=$((n + 1))
    echo "specs/$spec.lua $pass $arch $problem $template $temp/$n"
done >"$temp/list" <<END
causal forward sm_80 dtype=bf16,h=16,q=1024,d=128 attention_fwd_sm80
alibi forward sm_80 dtype=f32,h=16,q=1024,d=64 attention_fwd_sm80
causal forward sm_90a dtype=bf16,h=16,q=4096,d=128 attention_fwd_sm90
alibi forward sm_90a dtype=bf16,h=16,q=4096,d=64 attention_fwd_sm90
causal forward sm_90a dtype=bf16,h=16,seqs=4,q=4096,d=256 attention_fwd_sm90
causal forward sm_80 dtype=bf16,b=4,h=32,h_kv=8,q=1,kv=8192,d=128 attention_decode
causal forward sm_90a dtype=bf16,k=f8e4m3,v=i8,b=4,h=32,h_kv=8,q=1,kv=8192,d=128 attention_decode_narrow
causal forward sm_80 dtype=bf16,k=f8e4m3,v=i8,b=4,h=64,h_kv=4,q=1,kv=8192,d=256 attention_decode_narrow
mla forward sm_80 dtype=bf16,b=4,h=128,h_kv=1,q=1,kv=4096,d=576,d_v=512 attention_mla
mla forward sm_90a dtype=bf16,b=4,h=128,h_kv=1,q=1,kv=4096,d=576,d_v=512 attention_mla_sm90
nsa_selected forward sm_80 dtype=bf16,h=16,h_kv=1,q=1024,kv=1024,d=128 attention_selected
nsa_selected backward sm_80 dtype=bf16,h=16,h_kv=1,q=1024,kv=1024,d=128 attention_bwd_selected
alibi backward sm_80 dtype=bf16,h=16,q=1024,d=128 attention_bwd_sm80
sigmoid backward sm_80 dtype=f32,h=16,q=1024,d=64 attention_bwd_sm80
alibi backward sm_90a dtype=bf16,h=16,q=4096,d=128 attention_bwd_sm90
causal backward sm_90a dtype=bf16,h=16,seqs=4,q=4096,d=64 attention_bwd_sm90
alibi backward sm_90a dtype=bf16,h=16,q=4096,d=256 attention_bwd_wide_sm90
causal backward sm_80 dtype=bf16,h=16,q=1024,d=576,d_v=512 attention_bwd_slices
gla forward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_additive
linear_elu forward sm_80 dtype=bf16,h=16,t=1024,d=64 linear_additive
gated_delta forward sm_90a dtype=bf16,h=16,t=4096,d=128 linear_delta_sm90
gated_delta forward sm_90a dtype=bf16,h=16,t=4096,d=128 linear_delta_runs_sm90
delta_rule forward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_delta
kda forward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_keyed_delta
gdn2 forward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_keyed_delta
rwkv7 forward sm_80 dtype=bf16,h=16,t=4096,d=64 linear_dplr
mamba2 backward sm_90a dtype=bf16,h=16,t=4096,d=128 linear_additive_bwd_sm90
gated_delta backward sm_90a dtype=bf16,h=16,t=4096,d=128 linear_delta_bwd_sm90
gated_delta backward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_delta_bwd
kda backward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_keyed_delta_bwd
gdn2 backward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_keyed_rule_bwd
rwkv7 backward sm_80 dtype=bf16,h=16,t=4096,d=64 linear_dplr_bwd
rwkv6 backward sm_80 dtype=bf16,h=16,t=4096,d=128 linear_additive_bwd
logcumsumexp forward sm_90a dtype=bf16,rows=4096,n=8192 rowwise
logcumsumexp backward sm_80 dtype=bf16,rows=4096,n=8192 rowwise_bwd
softmax forward sm_80 dtype=bf16,rows=4096,n=32768 rowwise_staged
softmax forward sm_90a dtype=bf16,rows=4096,n=131072 rowwise_staged
layer_norm_residual forward sm_80 dtype=f32,rows=4096,n=65536 rowwise_staged
layer_norm backward sm_90a dtype=bf16,rows=4096,n=1024 rowwise_staged_bwd
layer_norm backward sm_90a dtype=bf16,rows=4096,n=65536 rowwise_staged_bwd
layer_norm backward sm_80 dtype=f32,rows=4096,n=8192 rowwise_staged_bwd
group_rms_norm backward sm_90a dtype=bf16,rows=64,n=8192,groups_of=8,channels_of=4 rowwise_staged_bwd
group_rms_norm backward sm_90a dtype=bf16,rows=4096,n=16384,groups_of=8,channels_of=4 rowwise_staged_bwd
logsumexp backward sm_90a dtype=bf16,rows=4096,n=131072 rowwise_staged_bwd
softmax_inner forward sm_80 dtype=bf16,rows=2048,n=300 rowwise_inner
softmax_inner forward sm_90a dtype=bf16,rows=2048,n=4096 rowwise_inner
log_softmax_inner backward sm_90a dtype=bf16,rows=2048,n=4096 rowwise_inner_bwd
cumsum_packed forward sm_90a dtype=bf16,rows=2048,n=131072 rowwise_inner_scan
cumsum_packed backward sm_80 dtype=f32,rows=64,n=32768 rowwise_inner_scan_bwd
logcumsumexp_packed forward sm_80 dtype=f32,rows=256,n=2000 rowwise_inner_scan
logcumsumexp_packed backward sm_90a dtype=bf16,rows=2048,n=131072 rowwise_inner_scan_bwd
END
xargs -P "$(nproc)" -L 1 sh tests/smem.sh --one <"$temp/list" >"$temp/wrong"
cat "$temp/wrong"
echo "smem: $n kernels' launches, $(grep -c '^specs' "$temp/wrong") wrong"
[ ! -s "$temp/wrong" ]
