#!/bin/sh
# used_code.sh: whether `lathe gen` leaves out only what is not used: the machine code of its text is that of the whole one, `--all`.
# A few kernels of every kind; tests/same_code.sh compares. LATHE: the tool. Exit code 77: there is no nvcc.
set -u
PATH=${PATH}:/usr/local/cuda/bin
LATHE=${LATHE:-build/lathe}
LATHE=$(realpath "$LATHE") || exit 1
cd "$(dirname "$0")/.." || exit 1
command -v nvcc >/dev/null 2>&1 || { echo "used_code: skipped: nvcc (the CUDA toolkit) is not here"; exit 77; }
stamp_name=used
. tests/stamps.sh # what was the same before, of the same code, is known

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
printf '#!/bin/sh\nexec "%s" "$@" --all\n' "$LATHE" >"$temp/whole"
chmod +x "$temp/whole"
stamps_log "$temp/good"

# one SPEC PASS ARCH PROBLEM: prints what differs
one() {
    "$temp/whole" gen "specs/$1.lua" --pass "$2" --arch "$3" --problem "$4" -o "$temp/whole.cu" >/dev/null 2>&1
    "$LATHE" gen "specs/$1.lua" --pass "$2" --arch "$3" --problem "$4" -o "$temp/used.cu" >/dev/null 2>&1
    key=$(cat "$temp/whole.cu" "$temp/used.cu" | stamp_code | stamp_key used "$3")
    stamp_known "$key" && return
    said=$(sh tests/same_code.sh --one "$temp/whole" "$LATHE" "specs/$1.lua" "$2" "$3" "$4" "$temp")
    case $said in
    same*) stamp_add "$key" ;;
    *) echo "$said" ;;
    esac
}

while read -r spec pass arch problem; do
    one "$spec" "$pass" "$arch" "$problem" </dev/null
done >"$temp/said" <<END
causal forward sm_90a dtype=bf16,h=16,q=4096,d=128
softcap backward sm_90a dtype=bf16,h=16,q=4096,d=64
document forward sm_80 dtype=f16,h=16,q=1000,d=128
document forward sm_80 dtype=f16,b=2,h=8,h_kv=2,q=1000,kv=1500,d=64
causal forward sm_90a dtype=bf16,h=32,h_kv=8,q=1,kv=8192,d=128,k=f8e4m3,v=i8
cache_append forward sm_80 dtype=bf16,k_cache=f8e4m3,v_cache=i8
gated_delta forward sm_90a dtype=bf16,h=16,t=4096,d=128
gla backward sm_80 dtype=bf16,h=16,t=4096,d=64
gla backward sm_80 dtype=f32,b=1,h=8,h_k=4,t=1000,seqs=3,d=64,d_v=128
gated_delta backward sm_90a dtype=bf16,b=2,h=8,t=2048,d=128
iplr backward sm_80 dtype=f16,b=2,h=8,t=2048,d=64
layer_norm forward sm_90a dtype=bf16,rows=4096,n=4096
group_norm forward sm_80 dtype=bf16,rows=4096,n=128,groups_of=32,channels_of=8
group_norm backward sm_80 dtype=bf16,rows=4096,n=128,groups_of=32,channels_of=8
softmax backward sm_80 dtype=f16,rows=4096,n=1000
logcumsumexp backward sm_90a dtype=f32,rows=4096,n=1000
swiglu backward sm_90a dtype=bf16
END
cat "$temp/said"
stamps_renew
echo "17 kernels, $(grep -c . "$temp/said") differ"
[ ! -s "$temp/said" ]
