#!/bin/sh
# specs.sh: check, list, explain, gen and compile, and the cache commands.
. "$(dirname "$0")/common.sh"

# every shipped spec is listed, and no other file
(cd "$here/specs" && for f in *.lua; do echo "${f%.lua}"; done | grep -vx prelude | sort) >wanted.txt
"$LATHE" list | sort >given.txt
expect 0 '' '' diff wanted.txt given.txt

# check
expect 0 'gradients' '' "$LATHE" check causal softmax
expect 0 'mask bounds' '' "$LATHE" check "$here/specs/sliding_window.lua" --seed 7
expect 2 'gradients' 'neither a shipped spec' "$LATHE" check nowhere causal
expect 0 'causal ' 'prelude.lua: this is the prelude' "$LATHE" check "$here/specs/causal.lua" "$here/specs/prelude.lua"
expect 0 'softmax_one ' '*' sh -c '"$1" check "$2"/specs/*.lua' sh "$LATHE" "$here" # every shipped spec, as a user would
printf 'return attention {\n  mask_mod = function(at) return at.q >= at.kv end,\n}\n' >untraceable.lua
expect 1 '' 'untraceable.lua:2: ' "$LATHE" check untraceable.lua
expect 2 '' 'untraceable.lua:2: ' "$LATHE" explain untraceable.lua
expect 2 '' 'untraceable.lua:2: ' "$LATHE" run untraceable.lua --device host
cat >wrong.lua <<'LUA'
local twice = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local p = exp(s - m)
    return p, { m = m, l = r.l + rowsum(p) }, exp(r.m - m)
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end,
}
return attention { online_func = twice }
LUA
expect 1 'FAILED' 'wrong.lua:' "$LATHE" check wrong.lua
{ printf 'return attention { score_mod = function(s) return ' && printf '(%.0s' $(seq 300) && printf s && printf ')%.0s' $(seq 300) && echo ' end }'; } >deep.lua
expect 1 '' 'deep.lua: brackets, tables or functions lie more than 200 deep' "$LATHE" check deep.lua
printf 'return attention { online_func = elementwise_weights(function(s) return floor(1000 * s) * s end) }\n' >corners.lua
expect 1 'gradients                FAILED' 'differences meet a corner of the function' "$LATHE" check corners.lua
cp err.txt corners.txt
expect 1 '' '' grep 'is above' corners.txt # it is no error that fails
printf 'return rowwise { inputs = { t = tensor("f32", 2000000000) }, forward = function(v, at, x) return v + x.t(3) end }\n' >vast.lua
expect 1 'gradients                FAILED' "vast.lua:1: gradients: input 't' has more than 2^26 elements" "$LATHE" check vast.lua
printf 'return rowwise { forward = function(x) return x * sqrt(-1.0 - x * x) end }\n' >nan.lua
expect 1 'gradients                FAILED' 'is nan derived, nan by finite differences' "$LATHE" check nan.lua
printf 'return attention { score_mod = function(s) return s * 1e7 end }\n' >large.lua
expect 0 'differences left out: of numbers too large' '' "$LATHE" check large.lua
expect 0 'comparisons left out: of scores too large' '' "$LATHE" check large.lua
expect 0 'uniform tiles' '' "$LATHE" check causal
expect 1 'causal' 'wrong.lua:' "$LATHE" check wrong.lua causal
printf 'x' >not_readable.lua
chmod 000 not_readable.lua
[ -r not_readable.lua ] || expect 2 '' 'Permission denied' "$LATHE" check ./not_readable.lua

# explain
expect 0 'dtype=bf16,b=2,h=8,h_kv=2,q=100,kv=100,d=64,d_v=64' '' "$LATHE" explain causal --problem b=2,h=8,h_kv=2,q=100,d=64
expect 0 'template' '' "$LATHE" explain causal
expect 0 'sm_90a' '' "$LATHE" explain causal --arch sm_80 --arch sm_90a
expect 0 'template      attention_fwd_sm90' '' "$LATHE" explain causal --arch sm_90a
expect 0 'not chosen    attention_fwd_sm90: compute capability 8.0; it needs 9.0' '' "$LATHE" explain causal --arch sm_80
expect 0 'template      attention_fwd_sm80' '' "$LATHE" explain causal --arch sm_90a --template attention_fwd_sm80
expect 1 'attention_fwd_sm80: attention_fwd_sm90 was asked for' '' "$LATHE" explain causal --template attention_fwd_sm90
expect 0 'template' '' "$LATHE" explain rms_norm --problem rows=4096,n=8192
expect 1 'not served' '' "$LATHE" explain causal --problem dtype=f64
expect 0 'attention_bwd_sm80' '' "$LATHE" explain causal --pass backward
expect 0 'the forward kernel runs first' '' "$LATHE" explain causal --pass backward --problem dtype=bf16,d=64,o=none
expect 1 'not served' '' "$LATHE" explain causal --pass backward --problem dtype=bf16,d=8
expect 0 'causal_attention_bwd' '' "$LATHE" gen causal --pass backward -o x.cu
expect 1 '' 'lathe: ' "$LATHE" gen causal --pass backward --problem dtype=bf16,d=8 -o x.cu

# gen: one file, the same every time, and every shipped spec
expect 0 'causal.cu: ' '' "$LATHE" gen causal --problem d=64 -o causal.cu
"$LATHE" gen causal --problem d=64 -o - >again.cu
expect 0 '' '' cmp causal.cu again.cu
expect 0 '__global__' '' cat causal.cu
expect 0 'causal_bf16_fwd: blocks b * h * ceil(q / ' '' cat causal.cu
expect 1 '*' '*' grep -n '#include "' causal.cu
expect 0 'softmax.cu: ' '' "$LATHE" gen "$here/specs/softmax.lua" --problem dtype=f32,n=100 -o softmax.cu
for spec in $(cat wanted.txt); do
    sizes=
    case $spec in group_*) sizes='--problem rows=64,n=512,groups_of=4,channels_of=8' ;; esac # dims that have no default
    expect 0 "$spec" '' "$LATHE" gen "$spec" $sizes -o "$spec.cu"
done

# compile: needs NVRTC, whose own memory is not ours to free
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export ASAN_OPTIONS
"$LATHE" compile softmax -o softmax.fatbin >out.txt 2>err.txt
code=$?
if [ "$code" = 3 ]; then
    echo "skipped: compile: $(cat err.txt)"
else
    expect 0 'softmax.fatbin: ' '*' "$LATHE" compile softmax -o softmax.fatbin
    expect 0 '*' '*' test -s softmax.fatbin
    expect 0 'sm_80 sm_90a' '*' "$LATHE" compile softmax --arch sm_80 --arch sm_90a -o two.fatbin
    expect 2 '' 'cannot be written' "$LATHE" compile softmax -o /nowhere/x.fatbin
fi
if command -v nvcc >/dev/null; then
    expect 0 '*' '*' nvcc -cubin -std=c++20 -arch=sm_80 -o causal.cubin causal.cu
    expect 0 '*' '*' nvcc -cubin -std=c++20 -arch=sm_80 -o softmax.cubin softmax.cu
else
    echo 'skipped: nvcc is not there to compile what gen writes'
fi

# cache
expect 0 '0 kernels' '' "$LATHE" cache info
expect 0 '0 broken' '' "$LATHE" cache verify
expect 0 'kernels removed' '' "$LATHE" cache clear
mkdir -m 700 "$work/other"
expect 0 "$work/other: 0 kernels" '' "$LATHE" cache info --cache-dir "$work/other"
expect 3 '' 'lathe: ' "$LATHE" cache info --cache-dir /proc/nowhere

finish
