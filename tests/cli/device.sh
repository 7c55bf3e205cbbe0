#!/bin/sh
# device.sh: `lathe run` on a fake GPU (fake_cuda.c): the way around a launch, and every CUDA call that
# may fail. Needs a C compiler and NVRTC.
. "$(dirname "$0")/common.sh"
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # of NVRTC
export ASAN_OPTIONS

command -v cc >/dev/null || { echo 'skipped: there is no C compiler (cc)'; exit 77; }
"$LATHE" compile softmax -o softmax.fatbin >out.txt 2>err.txt
[ $? != 3 ] || { echo "skipped: $(cat err.txt)"; exit 77; }
cc -std=c11 -D_GNU_SOURCE -shared -fPIC -o libcuda.so.1 "$here/tests/cli/fake_cuda.c" || { echo 'FAILED fake_cuda.c'; exit 1; }
LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKE_CUDA_LOG=$work/log.txt
export LD_LIBRARY_PATH FAKE_CUDA_LOG

run() { "$LATHE" run "$@" --device cuda:0; }
given_back() { expect 0 '' '' sh -c 'echo "memory 0 events 0 contexts 0" | cmp - log.txt'; }

expect 0 'device     Fake GPU' '*' run softmax --problem rows=64,n=128 --repeat 5
expect 0 'time       2.000 ms (median of 5 launches' '*' run softmax --problem rows=64,n=128 --repeat 5
expect 0 'from the cache on disk' '*' run softmax --problem rows=65,n=128
expect 0 'softmax_rowwise_bf16' '*' "$LATHE" cache info
expect 0 '1 kernels read, 0 broken' '*' "$LATHE" cache verify
given_back
# 2 * 8192 * 1024 bf16 in 2 ms
expect 0 'rate       0.01678 TB/s' '*' run softmax --problem rows=8192,n=1024
# the same over lengths; no data sheet has this device
expect 0 '      1024            2 ms     0.016777  softmax_rowwise_bf16' 'no limit is drawn: what the data sheet of Fake GPU says' \
    "$LATHE" bench softmax --lengths 512,1k --problem rows=8192 --device cuda:0
expect 0 '"tflop_per_second": 8.59' '*' "$LATHE" bench causal --lengths 1k,2k --problem h=16,d=128 --device cuda:0 --json
# kernels that write nothing leave NaN, and that is seen
expect 1 'values are NaN or infinite on one side alone' '*' run softmax --problem rows=64,n=128 --verify
expect 1 'NaN in rows that were not compared' '*' run softmax --problem rows=4096,n=128 --verify
expect 1 'lse: max abs 0.000e+00' '*' run causal --problem h=2,q=64,d=64 --verify
expect 1 'relative L2' '*' run causal --problem h=2,q=64,d=64 --verify --output o=o.npy
expect 0 '*' '*' test -s o.npy
given_back

for call in cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetAttribute \
    cuDevicePrimaryCtxRetain cuCtxPushCurrent cuModuleLoadDataEx cuModuleGetFunction cuLaunchKernelEx cuMemAlloc \
    cuMemcpyHtoD cuMemcpyDtoH cuEventCreate cuEventRecord cuEventSynchronize cuEventElapsedTime cuCtxSynchronize; do
    FAKE_CUDA_FAIL=$call
    export FAKE_CUDA_FAIL
    expect 3 '' 'CUDA_ERROR_FAKE, error 2' run softmax --problem rows=64,n=128
    given_back
    unset FAKE_CUDA_FAIL
done

# a cache that cannot be kept costs a warning
mkdir closed && chmod 500 closed
[ "$(id -u)" = 0 ] || expect 0 'compiled' 'lathe: ' run softmax --problem rows=64,n=128 --cache-dir "$work/closed/cache"
chmod 700 closed
expect 0 'compiled' '*' run softmax --problem rows=64,n=128 --cache-dir ''

# Hopper's template, with tensor maps that the driver takes; the portable one by name
for problem in h=2,q=64,d=64 b=2,h=4,h_kv=2,q=1,kv=77,d=80,d_v=128 h=1,q=5,kv=0,d=96; do
    FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 expect 0 'causal_attention_fwd_sm90' '*' run causal --problem $problem
done
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 expect 0 'causal_attention_fwd_sm80' '*' run causal --template attention_fwd_sm80 --problem h=2,q=64,d=64
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 LATHE_TEMPLATE=attention_fwd_sm80 expect 0 'rope_attention_fwd_sm80' '*' run rope --problem h=2,q=64,d=64
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 LATHE_TILE=192x96s3w12 expect 0 'causal_attention_fwd_sm90_bf16_d64_v64_m192n96s3w12' '*' run causal --problem h=2,q=64,d=64
# few tiles for the multiprocessors: lower ones
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'm64n128s4w4' '*' run causal --problem b=1,h=2,q=256,d=64
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'm256n64s4w16' '*' run causal --problem h=2,q=64,d=64
FAKE_CUDA_FAIL=cuTensorMapEncodeTiled
export FAKE_CUDA_FAIL
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 expect 2 '' 'expected a tensor that TMA takes' run causal --problem h=2,q=64,d=64
unset FAKE_CUDA_FAIL
# a template of the backward pass by name does not concern the forward pass ahead of it
expect 0 'causal_attention_bwd_sm80' '*' run causal --pass backward --template attention_bwd_sm80 --problem h=2,q=64,d=64
expect 1 '' 'compute capability 8.0; it needs 9.0' run causal --template attention_fwd_sm90 --problem h=2,q=64,d=64

# tune: 40960 bytes are those of 64x64s2w4, which would not be taken otherwise
tune() { "$LATHE" tune "$@" --device cuda:0; }
expect 0 'causal_attention_fwd_sm80_bf16_d64_v64_m128n64s2w4' '*' run causal --problem h=2,q=64,d=64
FAKE_CUDA_FAST=40960 expect 0 'attention_fwd_sm80   64x64s2w4      1 ms' '*' tune causal --problem h=2,q=64,d=64
FAKE_CUDA_FAST=40960 expect 0 'attention_fwd_sm80   128x64s2w4     2 ms' '*' tune causal --problem h=2,q=64,d=64
FAKE_CUDA_FAST=40960 expect 0 'kept       attention_fwd_sm80 64x64s2w4, for causal with dtype=bf16,d=64' '*' tune causal --problem h=2,q=64,d=64
given_back
expect 0 'causal_attention_fwd_sm80_bf16_d64_v64_m64n64s2w4' '*' run causal --problem h=3,q=100,d=64
expect 0 'tuned         attention_fwd_sm80 64x64s2w4 was the fastest of those measured on Fake GPU: 1 ms' '' "$LATHE" explain causal --problem h=3,q=100,d=64 --arch sm_80
# another dim, dtype, spec, device, or a template by name: not measured
expect 0 'd72_v72_m128n64s2w4' '*' run causal --problem h=2,q=64,d=72
expect 0 'f16_d64_v64_m128n64s2w4' '*' run causal --problem dtype=f16,h=2,q=64,d=64
expect 0 'm128n64s2w4' '*' run alibi --problem h=2,q=64,d=64
FAKE_CUDA_SMEM=101376 expect 0 'm128n64s2w4' '*' run causal --problem h=2,q=64,d=64
expect 0 'm128n64s2w4' '*' run causal --template attention_fwd_sm80 --problem h=2,q=64,d=64
"$LATHE" explain causal --problem h=3,q=100,d=64 --arch sm_86 | grep -q tuned && complain 'a choice of sm_80 is taken on sm_86'
# it travels, and a cache without it forgets
expect 0 'kernels of' '*' "$LATHE" cache export tuned.pack
expect 0 'imported' '*' "$LATHE" cache import tuned.pack "$work/other"
expect 0 'm64n64s2w4' '*' run causal --problem h=3,q=100,d=64 --cache-dir "$work/other"
expect 0 'kernels removed' '*' "$LATHE" cache clear --cache-dir "$work/other"
expect 0 'm128n64s2w4' '*' run causal --problem h=3,q=100,d=64 --cache-dir "$work/other"
# of one that is asked for by name alone: taken where that name is asked for
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'kept       attention_fwd_sm80' '*' tune causal --template attention_fwd_sm80 --problem h=2,q=64,d=64
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'causal_attention_fwd_sm90' '*' run causal --problem h=2,q=64,d=64
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 LATHE_TEMPLATE=attention_fwd_sm80 expect 0 'causal_attention_fwd_sm80' '*' run causal --problem h=2,q=64,d=64
"$LATHE" explain causal --problem h=2,q=64,d=64 --arch sm_90a | grep -q 'tuned  ' && complain 'a measurement by name counts without the name'
expect 0 'tuned         attention_fwd_sm80' '' "$LATHE" explain causal --problem h=2,q=64,d=64 --arch sm_90a --template attention_fwd_sm80
# a record of a template that does not serve, as an imported cache may have it
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'kept       attention_fwd_sm90' '*' tune causal --problem h=2,q=64,d=64
sed -i 's/^attention_fwd_sm90$/attention_bwd_sm90/' cache/tuned-*
FAKE_CUDA_SM=90 FAKE_CUDA_SMEM=232448 FAKE_CUDA_SMS=132 expect 0 'causal_attention_fwd_sm90' '*' run causal --problem h=2,q=64,d=64
expect 0 'kept       rowwise' '*' tune softmax --problem rows=64,n=128
FAKE_CUDA_FAIL=cuLaunchKernelEx expect 1 'CUDA_ERROR_FAKE' 'no plan could be measured' tune softmax --problem rows=64,n=128
expect 3 '*' 'the choice cannot be kept' tune softmax --problem rows=64,n=128 --cache-dir ''

# an entry that is damaged is rebuilt; verify finds the next one
find cache -type f -size +8k | while IFS= read -r file; do printf 'damage' | dd of="$file" bs=1 seek=4000 conv=notrunc 2>/dev/null; done
expect 0 'compiled' '*' run softmax --problem rows=64,n=128
find cache -type f -size +8k | while IFS= read -r file; do printf 'damage' | dd of="$file" bs=1 seek=4000 conv=notrunc 2>/dev/null; done
expect 1 'broken' '*' "$LATHE" cache verify
expect 0 'kernels removed' '*' "$LATHE" cache clear
expect 0 ' 0 kernels' '*' "$LATHE" cache info

finish
