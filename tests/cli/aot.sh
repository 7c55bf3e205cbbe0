#!/bin/sh
# aot.sh: `lathe aot`: a library that is the same bytes every time, and that needs neither Lua nor NVRTC nor the
# generator; launches from it, on a fake GPU, that are those of the JIT; and all that it refuses. Needs a C compiler
# and NVRTC.
. "$(dirname "$0")/common.sh"
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # of NVRTC
export ASAN_OPTIONS
unset CC AR

command -v cc >/dev/null || { echo 'skipped: there is no C compiler (cc)'; exit 77; }
"$LATHE" compile softmax -o softmax.fatbin >out.txt 2>err.txt
[ $? != 3 ] || { echo "skipped: $(cat err.txt)"; exit 77; }

# ---- what is written -----------------------------------------------------------------------------

aot() { "$LATHE" aot "$@"; }
problems='--problem dtype=bf16,d=64 --problem dtype=bf16,n=1024'
expect 0 'one/libdemo.a: 2 kernels of 2 specs for sm_80 sm_90a' '' \
    aot rope rms_norm --pass forward --arch sm_80,sm_90a $problems --name demo -j 1 -o one
expect 0 '' '' sh -c 'ls -A one | tr "\n" " " | grep -qx "demo.h demo.manifest demo.pc libdemo.a "'
# again: in another place, with more threads, the archs in another order; then specs from files
cp "$here/specs/rope.lua" "$here/specs/rms_norm.lua" .
mkdir -p there/two
touch there/two/kept
expect 0 'there/two/libdemo.a: 2 kernels' '' \
    aot rope rms_norm --arch sm_90a --arch sm_80 $problems --name=demo -j 2 -o there/two/
for file in libdemo.a demo.h demo.pc demo.manifest; do
    expect 0 '' '' cmp one/$file there/two/$file
done
expect 0 '' '' sh -c 'ls -A there/two | tr "\n" " " | grep -qx "demo.h demo.manifest demo.pc kept libdemo.a "'
expect 0 'again/libkernels.a: 1 kernel of 1 spec for sm_80,' '' aot softmax --problem n=64,rows=5 --problem \
    n=64,rows=9 -o again
# two libraries at once, into a folder that neither of them finds
"$LATHE" aot softmax --problem n=64 --name first -o both >first.txt 2>&1 &
other=$!
expect 0 'both/libsecond.a: 1 kernel' '' aot softmax --problem n=64 --name second -o both
expect 0 '' '' wait $other
expect 0 '' '' sh -c \
    'ls -A both | tr "\n" " " | grep -qx "first.h first.manifest first.pc libfirst.a libsecond.a second.h second.manifest second.pc "'
mkdir elsewhere
expect 0 '*' '' aot rope.lua rms_norm.lua --arch sm_80 --problem d=64 --problem n=64 --name demo -o three
(cd elsewhere && cp ../rope.lua ../rms_norm.lua . &&
    expect 0 '*' '' aot ./rope.lua ./rms_norm.lua --arch sm_80 --problem d=64 --problem n=64 --name demo -o three)
for file in libdemo.a demo.h demo.pc demo.manifest; do
    expect 0 '' '' cmp three/$file elsewhere/three/$file
done
expect 1 '' '' grep -q -e "$work" -e "$here" one/libdemo.a one/demo.h one/demo.manifest one/demo.pc
expect 0 '*' '' grep -q 'lathe aot rope rms_norm --pass forward --arch sm_80,sm_90a --problem dtype=bf16,d=64' \
    one/demo.h
expect 0 '*' '' aot softcap softmax --arch sm_80 --problem d=64 --problem n=64 --param CAP=20 -o capped
for file in kernels.h kernels.manifest; do # what would make it again
    expect 0 '--problem n=64 --param CAP=20 --name kernels' '' grep 'lathe aot' capped/$file
done
expect 0 '*' '' grep -Eq '^ \*     [0-9a-f]{64}  demo_rope_bf16_d64_forward  sm_80' one/demo.h
expect 0 '*' '' grep -q 'lathe_optional_f32 eps; /. scalar; default 1e-06' one/demo.h
expect 0 '*' '' grep -q 'lathe_tensor lse; /. out \[b, h, q\], f32; optional' one/demo.h
expect 0 '*' '' grep -q '^kernel demo_rms_norm_bf16_n1024_forward$' one/demo.manifest

# keys of 8 bits: up to eight rows of a key head and nine have a kernel each, whatever the order; those in pages are
# copied out of them ahead only where the problem says how large the pool is, since that takes a workspace
narrow=dtype=bf16,d=64,h=8,h_kv=2,k=i8,v=i8
expect 0 'rows/libkernels.a: 2 kernels of 1 spec' '*' aot causal --arch sm_80 --problem $narrow,q=3,kv=2048 --problem \
    $narrow,q=2,kv=2048 --problem $narrow,q=1,kv=4096 --problem $narrow,q=4,kv=4096 -o rows
expect 0 '' '' grep -q '^kernel kernels_causal_bf16_d64_few_nine_k_i8_v_i8_forward$' rows/kernels.manifest
expect 0 '' '' grep -q '  problem dtype=bf16,d=64,h=8,h_kv=2,q=3,kv=2048,k=i8,v=i8$' rows/kernels.manifest
for way in narrow_bf16: gathered_sm90:,pool=64; do
    expect 0 '1 kernel of 1 spec' '*' aot causal --arch sm_90a --problem $narrow,q=512,kv=4096,page=64${way#*:} -o pages
    expect 0 "causal_attention_fwd_${way%:*}" '' grep '^  code ' pages/kernels.manifest
done

# names: absent inputs, dtypes of inputs, dims and unaligned rows
cat >mixed.lua <<'LUA'
return attention {
  inputs = { bias = tensor("float", "h", { default = 0.0 }), table = tensor("f32", "any"), gain = scalar("f32"), int = scalar("i32", { default = 3 }) },
  score_mod = function(s, at, x) return s * x.gain + x.bias(at.h) + x.table(at.h) * x.int end,
}
LUA
expect 0 '4 kernels of 1 spec for sm_90a' '' aot mixed.lua --arch sm_90a --problem d=64,d_v=32 --problem \
    d=64,bias=none \
    --problem d=64,bias=f32 --problem d=64,unaligned=q+k -o mixed
# a kernel of its own for many keys, where some arch has other tiles for them, in whatever order problems come
for order in 'd=64,q=16384,kv=16384 d=64,q=1024,kv=1024' 'd=64,q=1024,kv=1024 d=64,q=16384,kv=16384'; do
    expect 0 '2 kernels of 1 spec for sm_80 sm_90a' '' aot causal --arch sm_80,sm_90a --problem "${order% *}" \
        --problem "${order#* }" --problem d=64 -o long
    expect 0 '*' '' grep -q '^kernel kernels_causal_bf16_d64_long_forward' long/kernels.manifest
    expect 0 '1 kernel of 1 spec for sm_80,' '' aot causal --arch sm_80 --problem "${order% *}" --problem \
        "${order#* }" -o short
done
for name in bf16_d64_v32 bf16_d64_no_bias bf16_d64_bias_f32 bf16_d64_unaligned_q_unaligned_k; do
    expect 0 "kernels_mixed_${name}_forward(" '' grep "kernels_mixed_${name}_forward(" mixed/kernels.h
done
expect 0 'lathe_optional_i32 int_;' '' grep 'int_;' mixed/kernels.h
expect 0 '    float gain; /' '' grep 'gain' mixed/kernels.h
expect 1 '' '' grep -q PTX mixed/kernels.h # sm_90a alone has none that runs elsewhere

# ---- headers -------------------------------------------------------------------------------------

warnings='-Wall -Wextra -Wpedantic -Werror'
for header in one/demo.h mixed/kernels.h "$here/include/lathe.h" "$here/include/lathe_aot.h" \
    "$here/include/lathe_types.h"; do
    expect 0 '' '' cc -std=c11 $warnings -I"$here/include" -fsyntax-only -x c "$header"
    if command -v c++ >/dev/null; then
        expect 0 '' '' c++ -std=c++17 $warnings -I"$here/include" -fsyntax-only -x c++ "$header"
    fi
done

# ---- the product ---------------------------------------------------------------------------------

runtime=${LATHE_BUILD:-$here/build}/liblathe_rt.a
sanitizer=
nm "$runtime" | grep -q __asan_ && sanitizer=-fsanitize=address,undefined
nm "$runtime" | grep -q __tsan_ && sanitizer=-fsanitize=thread
link() { # link PROGRAM OBJECT...
    program=$1
    shift
    cc -std=c11 -D_GNU_SOURCE $warnings $sanitizer -I"$here/include" -Ione -o "$program" \
        "$here/tests/cli/aot_program.c" "$@"
}
expect 0 '' '' link product one/libdemo.a "$runtime" -ldl -lm -lpthread
unknown='lua_|luaL_|nvrtc|nvFatbin|plan_pick|spec_load|ir_make|text_add|lower$|emit|problem_parse|eval_run|host_forward|sha256|lathe__compile|lathe__cache'
expect 1 '' '' sh -c 'nm product | grep -iE "$1"' sh " ($unknown)"
expect 1 '' '' sh -c 'nm -u one/libdemo.a | grep -v "lathe_set_\|demo_\|:$\|^$\|GLOBAL_OFFSET_TABLE"'
expect 1 '' '' sh -c 'ldd product | grep -iE "lua|nvrtc|nvfatbin|cuda|lathe"'
bytes=$(size -t "$runtime" | awk 'END { print $1 }')
[ -n "$sanitizer" ] || [ "$bytes" -le 153600 ] || complain "liblathe_rt.a has $bytes bytes of text; 150 KiB is the limit"

# ---- launches ------------------------------------------------------------------------------------

cc -std=c11 -D_GNU_SOURCE -shared -fPIC -o libcuda.so.1 "$here/tests/cli/fake_cuda.c" || { echo \
    'FAILED fake_cuda.c'; exit 1; }
plain=${LD_LIBRARY_PATH:-}
LD_LIBRARY_PATH=$work${plain:+:$plain}
FAKE_CUDA_PARAMS=200
FAKE_CUDA_LAUNCHES=$work/launches.txt
export LD_LIBRARY_PATH FAKE_CUDA_PARAMS FAKE_CUDA_LAUNCHES
grep -o '[0-9]* parameters' one/demo.manifest | while read -r n rest; do
    [ "$n" -ge 64 ] && [ "$n" -le 4096 ] || echo "unexpected: $n bytes of parameters"
done >sizes.txt
expect 0 '' '' test ! -s sizes.txt

launches() { # launches N: how many there were
    expect 0 '' '' sh -c '[ "$(wc -l <launches.txt)" = "$1" ]' sh "$1"
}
shared=${LATHE_BUILD:-$here/build}/liblathe.so
if [ -z "$sanitizer" ] && [ -f "$shared" ]; then
    expect 0 '' '' link jit -DWITH_JIT "$shared" -Wl,-rpath,"$(dirname "$shared")"
fi
for what in attention norm defaults; do
    n=$(awk -v kernel="$([ $what = attention ] && echo rope || echo rms_norm)" \
        '$1 == "kernel" { of = index($2, "demo_" kernel "_") } $1 == "archs" { on = of && / sm_80/ }
         on && $1 == "launch" { print $(NF - 1) }' one/demo.manifest) # of the code that the fake GPU, an sm_80, gets
    for FAKE_CUDA_PARAMS in $(echo "$n" | sort -un); do # every kernel of the recipe by its own size
        rm -f launches.txt
        expect 0 'workspace ' '' ./product $what
        launches "$(echo "$n" | wc -l)"
        mv launches.txt product.txt
        cp out.txt product.out
        [ -x jit ] || continue
        expect 0 'workspace ' '' ./jit $what
        expect 0 '' '' cmp out.txt product.out
        mv launches.txt jit.txt
        # lines of kernels with fewer bytes than asked for end in what lay behind: compare those that are whole
        for list in product jit; do
            awk -v size="$FAKE_CUDA_PARAMS" 'NR == FNR { if ($1 == "archs") on = / sm_80/
                    if (on && $1 == "launch") bytes[$2] = $(NF - 1)
                    next }
                bytes[$1] >= size' one/demo.manifest $list.txt >$list.whole
        done
        expect 0 '' '' cmp product.whole jit.whole
        expect 0 '' '' test -s product.whole
    done
done
[ -x jit ] || echo 'skipped: comparison with the JIT: no liblathe.so in the build folder, or a build with sanitizers'
FAKE_CUDA_PARAMS=0

rm -f launches.txt
expect 0 'workspace ' '' ./product typed
expect 0 '' '' ./product threads
launches 27 # 3 kernels, 1 + 8 times

# what it holds, and what it says when it loads: code of its own, or PTX
expect 0 'demo_rope_bf16_d64_forward: dtype=bf16,d=64 (sm_80, PTX for sm_80, sm_90a)' '' ./product list
expect 0 '' 'log 1: demo_rope_bf16_d64_forward: loading for compute capability 8.0' ./product log
expect 0 '' \
    'log 0: demo_rope_bf16_d64_forward: loading for compute capability 12.0, from PTX, which the driver compiles; `lathe aot rope rms_norm --pass forward --arch sm_80,sm_90a,sm_120' \
    env FAKE_CUDA_SM=120 ./product log

# which device runs it: exact, a generation's older code, PTX
for sm in 80 86 89 90 100 120; do
    expect 0 '*' '' env FAKE_CUDA_SM=$sm ./product attention
done
expect 13 '*' \
    'demo_rope_bf16_d64_forward: libdemo has code for sm_80, PTX for sm_80, sm_90a, none of which this device runs (compute capability 7.5' \
    env FAKE_CUDA_SM=75 ./product attention
expect 13 '*' '`lathe aot rope rms_norm --pass forward --arch sm_80,sm_90a,sm_75 --problem' env FAKE_CUDA_SM=75 \
    ./product attention
expect 13 '*' '1000 bytes of shared memory' env FAKE_CUDA_SMEM=1000 ./product attention

# what does not fit
expect 13 '' \
    'demo_rope_forward: libdemo has no kernel for dtype=bf16,d=96; `lathe aot rope rms_norm --pass forward --arch sm_80,sm_90a --problem dtype=bf16,d=64 --problem dtype=bf16,n=1024 --name demo -o DIR --problem dtype=bf16,d=96` would add it; it holds dtype=bf16,d=64' \
    ./product odd
expect 13 '' 'has no kernel for dtype=bf16,d=64,unaligned=q;' ./product unaligned
expect 12 '' "argument 'k': expected dtype bf16 as of 'q', given f16" ./product wrong
expect 12 '' "argument 'v': missing; expected shape [b=2,h_kv=2,kv=333,d_v=64]" ./product null
expect 12 '*' 'workspace: expected' ./product workspace

# trouble with the driver is said, every time
for call in cuInit cuDriverGetVersion cuCtxGetCurrent cuDeviceGet cuDevicePrimaryCtxRetain cuCtxPushCurrent \
    cuCtxGetDevice \
    cuDeviceGetAttribute cuModuleLoadDataEx cuModuleGetFunction cuLaunchKernelEx; do
    expect 16 '*' 'error' env FAKE_CUDA_FAIL=$call ./product attention
done
expect 16 '*' 'asks for 32768 bytes of shared memory' env FAKE_CUDA_FAIL=cuFuncSetAttribute ./product attention
mv libcuda.so.1 hidden
LD_LIBRARY_PATH=$plain ./product attention >out.txt 2>err.txt
[ $? = 16 ] && grep -q 'libcuda.so.1' err.txt || [ -e /dev/nvidiactl ] || complain 'a machine without a driver is not said'
grep -q 'host device' err.txt && complain "a program without the host device is told to use it: $(cat err.txt)"
mv hidden libcuda.so.1

# linear attention: a pool of states of packed sequences; both passes
expect 0 '2 kernels of 1 spec' '' aot gated_delta --pass forward,backward --arch sm_80 --problem dtype=bf16,d=16 \
    --name pairs -o linear
expect 0 '1 kernel of 1 spec' '' aot gated_delta --arch sm_80 --problem \
    dtype=bf16,d=16,state=f32,state_out=f32,slots=9,seqs=3 --name pool -o linear
for name in 'lathe_tensor state; /. in \[slots, h, d, d_v\], f32; optional' \
    'lathe_tensor state_index; /. in \[seqs\], i32; optional' \
    pool_gated_delta_bf16_d16_state_state_out_cu_state_index_forward; do
    grep -q "$name" linear/pool.h || complain "pool.h lacks $name"
done
expect 0 '1 kernel of 1 spec' '' aot gated_delta --arch sm_80 --problem dtype=bf16,d=16,state=bf16,state_out=bf16 \
    --name half -o linear
for name in 'lathe_tensor state; /. in \[slots, h, d, d_v\], bf16; optional' \
    half_gated_delta_bf16_d16_state_bf16_state_out_bf16_forward; do
    grep -q "$name" linear/half.h || complain "half.h lacks $name"
done
grep -q 'lathe_tensor dbeta; /. out \[b, h, t\], f32; optional' linear/pairs.h || complain 'pairs.h lacks dbeta'
expect 0 '' '' cc -std=c11 $warnings -I"$here/include" -fsyntax-only -x c linear/pool.h

# both passes of a spec are two sets of functions with arguments of their own
expect 0 '5 kernels of 2 specs' '*' aot rms_norm causal --pass forward,backward --problem dtype=bf16,d=64 \
    --problem dtype=bf16,d=64,deterministic=1 --problem dtype=bf16,n=256 --name train -o train
expect 0 '*' '' grep -q \
    '^command lathe aot rms_norm causal --pass forward,backward --arch sm_80 --problem dtype=bf16,d=64' \
    train/train.manifest
for name in train_causal_forward train_causal_backward train_causal_backward_workspace \
    train_causal_bf16_d64_deterministic_backward \
    train_rms_norm_bf16_n256_backward 'typedef struct train_causal_backward_args' 'lathe_tensor do_;' 'lathe_tensor dweight;'; do
    grep -q "$name" train/train.h || complain "train.h lacks $name"
done
sed -n 's/^lathe_status \(train_[a-z0-9_]*\).*/\1/p; s/^const lathe_kernel_set \*\(train_[a-z0-9_]*\).*/\1/p' train/train.h | sort -u >declared.txt
nm train/libtrain.a 2>/dev/null | awk '$2 == "T" { print $3 }' | sort >defined.txt
expect 0 '' '' cmp declared.txt defined.txt # each function once, of both passes
printf '#include "train.h"\nint main(void) { lathe_error e; train_causal_backward_args a = {0}; return train_causal_backward(&a, NULL, NULL, &e) == LATHE_ARG ? 0 : 1; }\n' >train.c
cc -std=c11 $sanitizer -I"$here/include" -Itrain -o trained train.c train/libtrain.a "$runtime" -ldl -lpthread -lm \
    2>err.txt && ./trained || complain "the backward functions of a library: $(head -n 3 err.txt)"

# parts of rows, and the pass that puts them together
expect 0 '3 kernels of 1 spec' '*' aot sinks --pass combine,forward --problem dtype=bf16,d=64 --problem \
    dtype=bf16,d=64,part_o=f32,part_rows=f32 \
    --problem dtype=bf16,parts=2,d_v=64 --name whole -o whole
expect 0 '*' '' grep -q '^command lathe aot sinks --pass forward,combine --arch' whole/whole.manifest
for name in whole_sinks_forward whole_sinks_combine 'typedef struct whole_sinks_combine_args' \
    'lathe_tensor part_rows; /. in .parts, b, h, q, 3.' 'left out beside part_o'; do
    grep -q "$name" whole/whole.h || complain "whole.h lacks $name"
done
printf '#include "whole.h"\nint main(void) { lathe_error e; whole_sinks_combine_args a = {0}; return whole_sinks_combine(&a, NULL, NULL, &e) == LATHE_ARG ? 0 : 1; }\n' >whole.c
cc -std=c11 $sanitizer -I"$here/include" -Iwhole -o joined whole.c whole/libwhole.a "$runtime" -ldl -lpthread -lm \
    2>err.txt && ./joined || complain "the combine functions of a library: $(head -n 3 err.txt)"

# Heads or keys that are a part of all: what arrives is what the JIT sends, and the lines of the manifest and of what
# is refused make such kernels.
expect 0 '2 kernels of 1 spec' '' aot alibi --arch sm_80 --problem dtype=bf16,d=64,h=4,n_h=8 --problem \
    dtype=bf16,d=64,kv=128,len_kv=300 --name part -o part
part() { # part PROGRAM OPTION...
    program=$1
    shift
    cc -std=c11 $warnings $sanitizer -I"$here/include" -Ipart -o "$program" "$here/tests/cli/aot_part.c" "$@"
}
expect 0 '' '' part part_product part/libpart.a "$runtime" -ldl -lm -lpthread
[ ! -x jit ] || expect 0 '' '' part part_jit -DWITH_JIT "$shared" -Wl,-rpath,"$(dirname "$shared")"
for what in heads keys; do
    for FAKE_CUDA_PARAMS in $(awk '$1 == "launch" { print $(NF - 1) }' part/part.manifest | sort -un); do
        rm -f launches.txt
        expect 0 '' '' ./part_product $what
        launches 1
        mv launches.txt product.txt
        [ -x part_jit ] || continue
        expect 0 '' '' ./part_jit $what
        expect 0 '' '' cmp launches.txt product.txt
    done
done
FAKE_CUDA_PARAMS=0
sed -n 's/^  problem //p' part/part.manifest >lines.txt
while read -r line; do
    expect 0 '1 kernel of 1 spec' '' aot alibi --arch sm_80 --problem "$line" --name again -o part
done <lines.txt
expect 0 '1 kernel of 1 spec' '' aot alibi --arch sm_80 --problem dtype=bf16,d=64 --name part -o whole
expect 0 '' '' cc -std=c11 $sanitizer -I"$here/include" -Ipart -o part_missing "$here/tests/cli/aot_part.c" whole/libpart.a \
    "$runtime" -ldl -lm -lpthread
expect 3 '' 'has no kernel for dtype=bf16,d=64,h_start=i32,h=4,h_kv=4,n_h=8; `lathe aot alibi' ./part_missing heads
expect 3 '' 'has no kernel for dtype=bf16,d=64,kv_start=i32,kv=128,len_kv=300; `lathe aot alibi' ./part_missing keys

# A workspace's size has its function, whatever the architectures of the library: code stays as it is.
for archs in sm_80 sm_80,sm_90a; do
    expect 0 '1 kernel of 1 spec' '*' aot causal --arch $archs --problem dtype=bf16,d=64 --name sized -o sized
    printf '#include "sized.h"\nint main(void) { size_t n = 1; sized_causal_args a = {0}; return !sized_causal_forward_workspace(&n, &a, NULL) || !sized_causal_bf16_d64_forward_workspace(&n, &a, NULL); }\n' >sized.c
    expect 0 '' '' cc -std=c11 $warnings $sanitizer -I"$here/include" -Isized -o size sized.c sized/libsized.a \
        "$runtime" -ldl -lpthread -lm
    expect 0 '' '' ./size
done

# ---- which kernels -------------------------------------------------------------------------------

expect 0 'for sm_80,' \
    'no --arch is given: the code is for sm_80 and, through PTX, for later GPUs, and is the portable attention_fwd_sm80; --arch sm_90a gives a Hopper GPU its own' \
    aot causal --problem d=64 -o portable
expect 0 'for sm_90,' '--arch sm_90: such code runs on later GPUs, too, and is the portable attention_fwd_sm80' aot \
    causal --arch sm_90 --problem d=64 -o portable
expect 0 'for sm_80 sm_90a,' '' aot causal --arch sm_80,sm_90a --problem d=64 -o portable
expect 0 'for sm_80,' '' aot softmax --problem n=64 -o portable

# ---- ended from outside --------------------------------------------------------------------------

printf '#!/bin/sh\ntouch "%s/begun"\nsleep 20\nexec cc "$@"\n' "$work" >slow && chmod +x slow
printf '#!/bin/sh\nsleep 4\nexec cc "$@"\n' >late && chmod +x late
begin() { # begin FOLDER: a library that takes long; its process is $slow, which may be ended
    rm -f begun
    env --default-signal=INT,TERM,HUP "$LATHE" aot softmax --problem n=64 --cc "$work/slow" -o "$1" >/dev/null 2>&1 &
    slow=$!
    while [ ! -e begun ]; do sleep 0.05; done
}
mkdir full
for folder in gone full; do
    for signal in INT=130 TERM=143 HUP=129; do
        begin $folder
        kill -${signal%=*} $slow
        wait $slow
        code=$?
        [ $code = ${signal#*=} ] || complain "exit code $code after SIG${signal%=*}"
        expect 0 '' '' sh -c 'ls -d gone* .gone* full/* full/.l* 2>/dev/null | cmp - /dev/null'
    done
    # what SIGKILL leaves is swept by the next one, unless its maker lives or it is young
    begin $folder
    kill -KILL $slow
    wait $slow 2>/dev/null
    expect 0 'lathe-aot-' '' sh -c 'ls -d "$1".lathe-aot-* "$1"/.lathe-aot-* 2>/dev/null | head -n 1' sh $folder
    "$LATHE" aot softmax --problem n=64 --cc "$work/late" --name other -o $folder >late.txt 2>&1 &
    late=$!
    while [ "$(find . -maxdepth 2 -name '*lathe-aot-*' | wc -l)" -lt 2 ]; do sleep 0.05; done
    find . -maxdepth 2 -name '*lathe-aot-*' -exec touch -d '1 hour ago' {} +
    expect 0 '1 kernel' '' aot softmax --problem n=64 -o $folder
    expect 0 '1' '' sh -c 'find . -maxdepth 2 -name "*lathe-aot-*" | wc -l'
    expect 0 '' '' wait $late
    expect 0 '' '' sh -c 'find . -maxdepth 2 -name "*lathe-aot-*" | cmp - /dev/null'
    expect 0 'other.h' '' ls $folder
    rm -r $folder && mkdir full 2>/dev/null
done

# ---- bad input: nothing is left ------------------------------------------------------------------

refused() { # refused CODE TEXT ARGUMENT...
    wanted=$1
    text=$2
    shift 2
    expect "$wanted" '' "$text" aot "$@"
    for left in no no.* .no* no/.??*; do
        [ ! -e "$left" ] || complain "left behind: $left after aot $*"
    done
}
refused 2 'usage: lathe aot SPEC...' -o no
refused 2 'expected -o DIR' causal
refused 2 'neither a shipped spec' nowhere -o no
refused 2 "--arch: expected one of sm_80" causal --arch sm_81 -o no
refused 2 "--arch: expected one of sm_80" causal --arch sm_80, -o no
refused 2 '--arch: sm_80 is given twice' causal --arch sm_80,sm_80 -o no
refused 2 "specs 'rope' and './rope.lua' are both called rope in the library" rope ./rope.lua --problem d=64 -o no
refused 1 "spec 'causal', problem 'dtype=f64,d=64', sm_80: no template serves it:" causal --problem dtype=f64,d=64 -o no
refused 1 'attention_fwd_sm80: dtype f64' causal --problem dtype=f64,d=64 -o no
refused 1 'attention_fwd_sm80: d = 12' causal --problem d=12 -o no
refused 2 "spec 'causal', problem 'h=3,h_kv=2', sm_80: problem: expected h to be a multiple" causal --problem h=3,h_kv=2 -o no
refused 2 "--problem 'q=5,z=3' is of none of the specs: problem: unknown name 'z'" causal --problem d=64 --problem q=5,z=3 -o no
refused 2 "spec 'softmax' knows the names of no --problem that is given ('d=64': problem: unknown name 'd'; this spec knows dtype" causal softmax --problem d=64 -o no
refused 2 "; it takes dtype=bf16,n=1024" causal softmax --problem d=64 -o no
refused 2 "--pass: expected forward, backward, combine or several of them with commas, each once, given 'sideways'" causal --pass sideways -o no
refused 2 "given 'forward,forward'" causal --pass forward,forward -o no
refused 2 'this spec has no combine pass' rms_norm --pass combine -o no
for name in 9lives a-b '' lathe lathe_x "it's" _x very_long_names_are_not_taken_here; do
    refused 2 '--name: expected' causal --name "$name" -o no
done
refused 2 '-j: expected a whole number from 1' causal -j 0 -o no
cp rope.lua rope_bf16_d64.lua
refused 2 "two functions would be called kernels_rope_bf16_d64_forward; rename the spec 'rope_bf16_d64.lua'" rope rope_bf16_d64.lua --problem d=64 -o no
touch file
refused 2 '-o file: expected a folder, and it is a file' causal -o file
refused 2 '-o /nowhere/no: cannot be written: No such file' causal -o /nowhere/no
refused 3 "the C compiler: 'no-such-compiler' cannot be started" causal --problem d=64 --cc no-such-compiler -o no
refused 3 "the C compiler: 'false' failed" causal --problem d=64 --cc false -o no
CC='cc -DX -Werror -include nowhere.h'
export CC
refused 3 "the C compiler: 'cc' failed: " causal --problem d=64 -o no
unset CC
AR=no-such-archiver
export AR
refused 3 "the archiver: 'no-such-archiver' cannot be started" softmax --problem n=64 -o no
unset AR
mkdir -p closed && chmod 555 closed
[ "$(id -u)" = 0 ] || refused 2 '-o closed: cannot be written: Permission denied' causal -o closed
[ "$(id -u)" = 0 ] || refused 2 '-o closed/no: cannot be written: Permission denied' causal -o closed/no
chmod 755 closed
printf 'return attention {\n  mask_mod = function(at) return at.q >= at.kv end,\n}\n' >untraceable.lua
refused 2 'untraceable.lua:2: ' causal untraceable.lua -o no

finish
