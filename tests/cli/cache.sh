#!/bin/sh
# cache.sh: kernels compiled into a cache, caches moved as one file, the system cache and offline mode, on a fake GPU
# (fake_cuda.c: an sm_80) and with an NVRTC that does not work. Needs a C compiler and NVRTC.
. "$(dirname "$0")/common.sh"
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # of NVRTC
export ASAN_OPTIONS

# ---- wrong use: needs nothing --------------------------------------------------------------------
expect 2 '' 'usage: lathe cache export FILE [DIR] (given 0 operands)' "$LATHE" cache export
expect 2 '' 'usage: lathe cache import FILE [DIR] (given 0 operands)' "$LATHE" cache import
expect 2 '' 'usage: lathe cache info (given 1 operands)' "$LATHE" cache info here
expect 2 '' 'usage: lathe cache' "$LATHE" cache export a b c
expect 2 '' "expected the name of a file, given ''" "$LATHE" cache export ''
expect 2 '' "expected the name of a folder, given ''" "$LATHE" cache import a ''
expect 3 '' "--cache-dir: expected the name of a folder, given ''" "$LATHE" cache info --cache-dir ''
expect 2 '' 'expected a folder or --cache-dir, given both' "$LATHE" cache export a b --cache-dir c
expect 2 '' 'expected -o FILE or --cache DIR' "$LATHE" compile softmax
expect 2 '' "--cache: expected a folder, given ''" "$LATHE" compile softmax --cache ''
expect 2 '' "unknown option '--cache'" "$LATHE" gen softmax --cache a
expect 2 '' '--cache is given twice' "$LATHE" compile softmax --cache a --cache b
expect 3 '' 'nowhere: it cannot be opened: No such file' "$LATHE" cache export pack "$work/nowhere"
grep -q 'compiled again' err.txt && complain "an export says what it costs programs: $(cat err.txt)"
expect 2 '' 'nowhere: cannot be opened: No such file' "$LATHE" cache import nowhere
expect 2 '' 'cache info: --texts is for export' "$LATHE" cache info --texts
long=$(printf '/%0200d' 0 0 0 0 0 0)
expect 3 '' 'a path of at most 1023 bytes is expected' env LATHE_CACHE_DIR="$work$long" "$LATHE" cache clear
for command in "compile softmax -o no" "compile softmax --cache no" "aot softmax --problem n=64 -o no"; do
    expect 3 '' "LATHE_OFFLINE is set, which forbids compiling; \`env -u LATHE_OFFLINE lathe ${command%% *} ...\` compiles" \
        env LATHE_OFFLINE=1 "$LATHE" $command
done
expect 1 '' '' test -e no
expect 0 '*' '' env LATHE_OFFLINE=1 "$LATHE" gen softmax -o softmax.cu
for action in info verify clear; do # a wrong name is not made
    expect 3 '' 'nowhere: it cannot be opened: No such file' "$LATHE" cache $action --cache-dir "$work/nowhere"
done
expect 1 '' '' test -e "$work/nowhere"
expect 2 '' 'given a folder' "$LATHE" cache import .
printf 'nonsense' >wrong
expect 2 '' 'wrong: cannot be imported: it is not an exported cache; nothing was changed' "$LATHE" cache import wrong
expect 2 '' 'rows are aligned' "$LATHE" run causal --problem h=2,q=4,d=8,unaligned=q --device host
expect 2 '' 'rows are aligned and apart' "$LATHE" run causal --problem h=2,q=4,d=8,folded=q --device host
expect 2 '' "expected unaligned to be names of tensors with rows joined by +, and none of them is 'lse' of 'q+lse'" "$LATHE" explain causal --problem unaligned=q+lse
expect 2 '' "joined by +, named twice is 'q' of 'q+q'" "$LATHE" explain causal --problem unaligned=q+q

command -v cc >/dev/null || { echo 'skipped: there is no C compiler (cc)'; finish; }
"$LATHE" compile softmax -o softmax.fatbin >out.txt 2>err.txt
[ $? != 3 ] || { echo "skipped: $(cat err.txt)"; finish; }

# ---- compile --time ------------------------------------------------------------------------------
expect 0 '  softmax_f32_rows' '' "$LATHE" compile softmax --problem dtype=f32,rows=4,n=128 --time
expect 0 'longest part ' '*' "$LATHE" compile layer_norm --pass backward --problem dtype=bf16,rows=64,n=256 --time --arch sm_90a
line=$(grep '^  part 1 ' out.txt)
case $line in *'  layer_norm_bf16_rows') ;; *) complain "--time: part 1 is not of rows alone: $line" ;; esac

# ---- compile --cache -----------------------------------------------------------------------------
problem=n=128
# each architecture gets its own best kernel: the same in one file for several, alone, and in a cache
compile() { "$LATHE" compile causal --problem dtype=bf16,d=64 "$@"; }
label() { sed -n 's/^.*: \([a-z0-9_]*\), fatbin for .*/\1/p' out.txt; }
for arch in sm_80 sm_90a sm_90 sm_100; do
    expect 0 "fatbin for $arch," '*' compile --arch $arch -o one.fatbin
    own=$(label)
    case $arch in sm_90a) want=attention_fwd_sm90 ;; *) want=attention_fwd_sm80 ;; esac
    case $own in *"$want"*) ;; *) complain "$arch alone is served by '$own'" ;; esac
    for order in "--arch $arch --arch sm_86" "--arch sm_90a,$arch" "--arch $arch,sm_90a"; do
        case $order in *sm_90a*sm_90a*) continue ;; esac
        # shellcheck disable=SC2086
        expect 0 'several.fatbin: ' '*' compile $order -o several.fatbin
        grep -q "^  $arch  *$own\$\|^several.fatbin: $own, fatbin" out.txt || complain "$order: $arch does not get $own: $(cat out.txt)"
    done
    [ $arch != sm_90 ] || continue # as its devices ask: sm_90a
    expect 0 "$own for $arch" '*' compile --arch $arch --cache best
    expect 0 "$own for $arch" '' "$LATHE" cache info --cache-dir best
done
rm -r best
# what is portable where a Hopper GPU has its own is said
expect 0 'sm_80' 'no --arch is given: the code is for sm_80 and, through PTX, for later GPUs, and is the portable attention_fwd_sm80; --arch sm_90a gives a Hopper GPU its own, attention_fwd_sm90' \
    compile -o one.fatbin
expect 0 'sm_90' '--arch sm_90: such code runs on later GPUs, too, and is the portable attention_fwd_sm80; --arch sm_90a gives' compile --arch sm_90 -o one.fatbin
expect 0 'sm_80' '' compile --arch sm_80 -o one.fatbin
expect 0 'sm_90' '' compile --arch sm_90,sm_90a -o one.fatbin
expect 0 'sm_80' '' "$LATHE" compile softmax -o one.fatbin # one template for all
expect 0 'sm_80' '' compile --template attention_fwd_sm80 -o one.fatbin

expect 0 'for sm_80' '*' "$LATHE" compile softmax --problem $problem --cache system
expect 0 'was there' '*' "$LATHE" compile softmax --problem $problem --arch sm_80 --cache system
expect 0 'for sm_90a' '*' "$LATHE" compile softmax --problem $problem --arch sm_90 --cache system # as its devices ask
expect 0 'was there' '*' "$LATHE" compile softmax --problem $problem --arch sm_90a --cache system
expect 0 '3 kernels' '*' sh -c '"$1" compile causal --problem d=64,unaligned=q+k --cache system -o both.fatbin --arch sm_80 >/dev/null
    "$1" cache info --cache-dir system' sh "$LATHE"
expect 0 '' '' test -s both.fatbin
expect 0 '' '' sh -c 'find system -type f -name "*.bin" ! -perm -044 | cmp - /dev/null'
expect 1 '' 'd = 100000' "$LATHE" compile causal --problem d=100000 --cache none
expect 2 '' 'lathe: problem: ' "$LATHE" compile causal --problem d=0 --cache none
printf 'x' >file
expect 3 '' 'Not a directory' "$LATHE" compile softmax --cache file/cache
if [ "$(id -u)" != 0 ]; then
    mkdir closed && chmod 500 closed
    expect 3 '' 'cannot be' "$LATHE" compile softmax --cache closed
    expect 3 '' 'cannot be' "$LATHE" compile softmax --cache closed/cache
fi
mkdir open && chmod 777 open
expect 3 '' 'group or others can write to it' "$LATHE" compile softmax --cache open
expect 3 '' 'group or others can write to it' "$LATHE" cache export pack open

# ---- on a fake GPU -------------------------------------------------------------------------------
cc -std=c11 -D_GNU_SOURCE -shared -fPIC -o libcuda.so.1 "$here/tests/cli/fake_cuda.c" || { echo 'FAILED fake_cuda.c'; exit 1; }
LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
LATHE_SYSTEM_CACHE_DIR=
export LD_LIBRARY_PATH LATHE_SYSTEM_CACHE_DIR
run() { "$LATHE" run "$@" --device cuda:0; }
offline() { LATHE_OFFLINE=1 run "$@"; }

line="\`lathe compile softmax --problem dtype=bf16,n=128 --pass forward --arch sm_80 --cache $work/cache\`"
expect 1 '' "$line" offline softmax --problem rows=64,n=128
expect 1 '' 'forbids compiling' offline softmax --problem rows=64,n=128
expect 0 'compiled' '*' sh -c "$(sed -n 's/.*`\(lathe compile .*\)`, where.*/\1/p' err.txt | sed "s|^lathe|$LATHE|")"
expect 0 'from the cache on disk' '' offline softmax --problem rows=64,n=128
expect 0 'compiled' '*' env LATHE_OFFLINE=0 "$LATHE" run softmax --problem rows=64,n=256 --device cuda:0
expect 0 'from the cache on disk' '*' offline softmax --problem rows=64,n=256
mkdir 'a dir' && cp "$here/specs/softmax.lua" 'a dir/mine.lua'
expect 1 '' "lathe compile 'a dir/mine.lua' --problem" offline 'a dir/mine.lua' --problem rows=4,n=128
expect 0 'problem' '*' env LATHE_OFFLINE=1 "$LATHE" run softmax --problem rows=4,n=8 --device host

# the system cache: searched first, never written, also without the user's
LATHE_SYSTEM_CACHE_DIR=$work/system
rm -rf cache
ls -l --time-style=full-iso system >before.txt
expect 0 'from the cache on disk' '' offline softmax --problem rows=64,n=128
expect 0 'from the cache on disk' '' run softmax --problem rows=64,n=128 --cache-dir ''
expect 1 '' "$work/system" offline softmax --problem rows=64,n=8 --cache-dir ''
ls -l --time-style=full-iso system >after.txt
expect 0 '' '' diff before.txt after.txt
expect 0 '0 kernels' '*' "$LATHE" cache info
for file in system/*.bin; do printf 'damage' | dd of="$file" bs=1 seek=4000 conv=notrunc 2>/dev/null; done
expect 1 '' 'is in no cache' offline softmax --problem rows=64,n=128
expect 0 'compiled' '*' run softmax --problem rows=64,n=128
rm -rf system cache
expect 1 '' 'No such file' offline softmax --problem rows=64,n=128
LATHE_SYSTEM_CACHE_DIR=

# ---- export, import ------------------------------------------------------------------------------
expect 0 'compiled' '*' "$LATHE" compile softmax --problem $problem --arch sm_80 --arch sm_90a --cache here
expect 0 'pack: 2 kernels of here' '' "$LATHE" cache export pack here
expect 0 'again: 2 kernels' '' "$LATHE" cache export again here
expect 0 '' '' cmp pack again
expect 0 'compiled' '*' "$LATHE" compile softmax --problem $problem --arch sm_80 --arch sm_90a --cache anew
expect 0 'again: 2 kernels' '' "$LATHE" cache export again anew
expect 0 '' '' cmp pack again # the same kernels, compiled another time
expect 0 'for sm_80' '' "$LATHE" cache info --cache-dir here
expect 0 'for sm_90a' '' "$LATHE" cache info --cache-dir here
expect 0 'texts: 2 kernels' '' "$LATHE" cache export texts here --texts
expect 1 '' '' grep -q '__global__' pack
expect 0 '' '' grep -q '__global__' texts
expect 0 '2 kernels imported' '' "$LATHE" cache import texts "$work/read/cache"
expect 0 '' '' sh -c 'cat read/cache/*.cu | grep -q __global__'
expect 0 '2 kernels imported from pack, 0 were there' '' "$LATHE" cache import pack
expect 0 '0 kernels imported from pack, 2 were there' '' "$LATHE" cache import pack
expect 0 '2 kernels read, 0 broken' '' "$LATHE" cache verify
expect 0 'from the cache on disk' '' offline softmax --problem rows=64,n=128
expect 0 '2 kernels imported' '' "$LATHE" cache import pack "$work/there/cache"
for at in 3 9 20 70 300 40000; do
    cp pack wrong
    printf '\377\376' | dd of=wrong bs=1 seek=$at conv=notrunc 2>/dev/null
    expect 2 '' 'nothing was changed' "$LATHE" cache import wrong empty
done
head -c 3000 pack >wrong
expect 2 '' 'it is cut short' "$LATHE" cache import wrong empty
expect 0 ' 0 kernels' '' "$LATHE" cache info --cache-dir empty
expect 3 '' '/nowhere/pack: the cache cannot be exported there: No such file' "$LATHE" cache export /nowhere/pack here
mkfifo pipe # stays one
expect 3 '' 'pipe: the cache cannot be exported there: it is not a regular file' "$LATHE" cache export pipe here
expect 0 '' '' test -p pipe
if [ -w /dev/full ]; then
    expect 3 '' 'full: the cache cannot be exported there' sh -c 'ulimit -f 8; "$1" cache export full here' sh "$LATHE"
    expect 0 '' '' sh -c 'ls full* 2>/dev/null | cmp - /dev/null'
fi

# ---- pieces of a library: what was compiled before is taken from there, and the result is the same ----
printf 'return rowwise { forward = function(x) return x * 2.0 end }\n' >twice.lua
aot() { "$LATHE" aot softmax twice.lua --arch sm_80,sm_90a --problem n=128 --cc cc "$@"; }
pieces() { "$LATHE" cache info --cache-dir pieces | sed -n '1s/.*: \([0-9]*\) kernels.*/\1/p'; }
expect 0 '2 kernels of 2 specs' '*' aot -o fresh
expect 0 '2 kernels of 2 specs' '*' aot -o one --cache pieces
expect 0 '' '' cmp fresh/libkernels.a one/libkernels.a
expect 0 '6' '' pieces # a cubin for each architecture and the PTX of sm_80
expect 0 'twice_rowwise_bf16' '' "$LATHE" cache info --cache-dir pieces
ls -l --time-style=full-iso pieces/*.cu pieces/nvrtc* >/dev/null 2>&1 && complain 'the pieces are no kernels of the JIT'
expect 0 '2 kernels of 2 specs' '*' aot -o two --cache pieces
expect 0 '' '' diff -r one two
expect 0 '6' '' pieces
printf 'return rowwise { forward = function(x) return x * 3.0 end }\n' >twice.lua
expect 0 '2 kernels of 2 specs' '*' aot -o two --cache pieces
expect 0 '9' '' pieces
rm -r fresh
expect 0 '2 kernels of 2 specs' '*' aot -o fresh
expect 0 '' '' diff -r fresh two
for file in pieces/*.bin; do printf 'damage' | dd of="$file" bs=1 seek=2000 conv=notrunc 2>/dev/null; done
expect 0 '2 kernels of 2 specs' '*' aot -o two --cache pieces
expect 0 '' '' diff -r fresh two
expect 2 '' "--cache: expected a folder, given ''" aot -o three --cache ''
expect 3 '' 'Not a directory' aot -o three --cache file/pieces
grep -q 'compiled again' err.txt && complain "a library says what it costs programs: $(cat err.txt)"
expect 0 '' '' sh -c '! test -e three'

# ---- without NVRTC: one that is older than we can use stands in for none --------------------------
: >empty.c
cc -shared -fPIC -o libnvrtc.so.13 empty.c && cp libnvrtc.so.13 libnvrtc.so.12
expect 3 '' 'libnvrtc has no' "$LATHE" compile softmax --cache more
rm -rf cache
expect 3 '' 'libnvrtc has no' run softmax --problem rows=64,n=128
expect 0 '2 kernels imported' '' "$LATHE" cache import pack
expect 0 'from the cache on disk' '' run softmax --problem rows=64,n=128
expect 0 'from the cache on disk' '' offline softmax --problem rows=64,n=128
expect 3 '' 'libnvrtc has no' run softmax --problem rows=64,n=256
expect 1 '' 'forbids compiling' offline softmax --problem rows=64,n=256

finish
