#!/bin/sh
# memory.sh: the tool where memory runs out, at one allocation after the other (fail_alloc.c): it says so and ends, or does without;
# it never crashes, ends in silence, finds fault with the spec, or leaves a block that it frees where memory suffices. POINTS: how many
# allocations of each command fail in turn (default 30; 0: all of them); the commit draws which. Needs a C compiler and glibc; a tool
# with a sanitizer has its own allocator.
. "$(dirname "$0")/common.sh"

command -v cc >/dev/null || { echo 'skipped: there is no C compiler (cc)'; exit 77; }
cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -o fail.so "$here/tests/cli/fail_alloc.c" 2>err.txt || { echo "skipped: $(head -n 1 err.txt)"; exit 77; }
FAIL_COUNT=count LD_PRELOAD=./fail.so "$LATHE" list >out.txt 2>err.txt && [ "$(cut -d' ' -f1 count)" -gt 0 ] ||
    { echo 'skipped: allocations of this tool cannot be made to fail'; exit 77; }
points=${POINTS:-30}
draw=$(printf %s "${LATHE_TEST_DRAW:-$(date +%j)}" | cksum | cut -d' ' -f1)
every=8 # of a command's last allocations, which are looked at more closely
[ "$points" != 0 ] || every=1

# measure COMMAND...: sets n, its allocations, and rest, blocks that it does not free
measure() {
    FAIL_COUNT=count LD_PRELOAD=./fail.so "$@" >out.txt 2>err.txt
    code=$?
    [ $code = 0 ] || { complain "exit code $code where memory suffices: $*: $(head -n 1 err.txt)"; return 1; }
    read -r n rest <count
}

# fail_from FIRST STEP COMMAND...: with every STEPth allocation from FIRST on failing
fail_from() {
    i=$1
    step=$2
    shift 2
    before=$failed
    while [ "$i" -le "$n" ]; do
        rm -f count
        FAIL_AT=$i FAIL_COUNT=count LD_PRELOAD=./fail.so "$@" >out.txt 2>err.txt
        code=$?
        if [ $code -gt 3 ]; then
            complain "exit code $code where allocation $i of $n fails: $*"
        elif [ $code -ne 0 ] && ! grep -q 'memory' err.txt; then # also as "Cannot allocate memory"
            complain "not a word of memory where allocation $i of $n fails: $*: $(head -n 1 err.txt)"
        elif ! read -r made left <count || [ "$left" -gt "$rest" ]; then
            complain "${left:-unknown} blocks are left, not $rest, where allocation $i of $n fails: $*"
        fi
        i=$((i + step))
    done
    [ "$failed" -gt "$before" ] || passed=$((passed + 1))
}

# short COMMAND...: with each of its allocations failing, or as many as there are points
short() {
    measure "$@" || return
    if [ "$points" = 0 ]; then
        fail_from 1 1 "$@"
    else
        fail_from $((1 + draw % (n / points + 1))) $((n / points + 1)) "$@"
    fi
}

# short_end COMMAND...: with one in EVERY of the last hundred, when the spec has been loaded
short_end() {
    measure "$@" || return
    fail_from $(((n > 100 ? n - 99 : 1) + draw % every)) $every "$@"
}

# same FILE COMMAND...: what it writes to FILE is what it writes where memory suffices, unless for another template: that a formula has
# too many nodes or that memory ran out is one refusal
same() {
    file=$1
    shift
    measure "$@" || return
    cp "$file" whole
    i=$(((n > 400 ? n - 399 : 1) + draw % every))
    before=$failed
    while [ "$i" -le "$n" ]; do
        FAIL_AT=$i FAIL_COUNT=count LD_PRELOAD=./fail.so "$@" >out.txt 2>err.txt && ! cmp -s "$file" whole &&
            [ "$(grep -m 1 'config.gen.cuh: written by' "$file")" = "$(grep -m 1 'config.gen.cuh: written by' whole)" ] &&
            complain "another text where allocation $i of $n fails: $*"
        i=$((i + every))
    done
    [ "$failed" -gt "$before" ] || passed=$((passed + 1))
}

# says WORDS COMMAND...: where it succeeds, it says them, whichever of its last allocations fails
says() {
    words=$1
    shift
    measure "$@" || return
    i=$(((n > 150 ? n - 149 : 1) + draw % every))
    before=$failed
    while [ "$i" -le "$n" ]; do
        FAIL_AT=$i FAIL_COUNT=count LD_PRELOAD=./fail.so "$@" >out.txt 2>err.txt && ! grep -q "$words" out.txt &&
            complain "not a word of '$words' where allocation $i of $n fails: $*"
        i=$((i + every))
    done
    [ "$failed" -gt "$before" ] || passed=$((passed + 1))
}

short "$LATHE" list
short "$LATHE" explain document --problem dtype=bf16,d=64 --arch sm_90a --pass backward
short "$LATHE" explain gated_delta --problem dtype=bf16,d=64 --pass backward
short "$LATHE" explain mamba2 --problem dtype=bf16,d=64 --pass backward
short "$LATHE" gen alibi --problem dtype=bf16,d=64 --arch sm_90a -o a.cu
short "$LATHE" gen relative_bias --pass backward --problem dtype=bf16,d=64 --arch sm_90a -o a.cu
short "$LATHE" gen layer_norm --pass backward --problem dtype=bf16,rows=64,n=1024 -o a.cu
short "$LATHE" gen logcumsumexp --problem dtype=bf16,rows=64,n=70000 -o a.cu
short "$LATHE" gen gla --pass backward --problem dtype=bf16,d=64 -o a.cu
short "$LATHE" gen swiglu --pass backward --problem dtype=bf16 -o a.cu
short_end "$LATHE" gen softmax --problem dtype=bf16,rows=64,n=1024 -o a.cu
same a.cu "$LATHE" gen rms_norm --problem dtype=bf16,rows=64,n=8192 --arch sm_90a -o a.cu
same a.cu "$LATHE" gen layer_norm --pass backward --problem dtype=bf16,rows=64,n=65536 --arch sm_90a -o a.cu
same a.cu "$LATHE" gen layer_norm --problem dtype=bf16,rows=64,n=131072 --arch sm_90a -o a.cu
same a.cu "$LATHE" gen group_norm --problem dtype=bf16,rows=64,n=8192 --arch sm_90a -o a.cu
same a.cu "$LATHE" gen logcumsumexp --pass backward --problem dtype=bf16,rows=64,n=70000 -o a.cu
same a.cu "$LATHE" gen cross_entropy --problem dtype=bf16,rows=64,n=65536 --arch sm_90a -o a.cu
short "$LATHE" check sinks
echo 'return attention { mask_mod = function(at) return eq(floor(f32(at.q) * 0.29), floor(f32(at.kv) * 0.29)) end }' >steps.lua
says 'at.q = 100 gives 29 in f32' "$LATHE" check steps.lua
short "$LATHE" run sinks --pass backward --problem h=2,q=8,d=16 --device host --verify
short "$LATHE" run qk_norm --problem h=2,q=8,d=16 --device host --output o=o.npy
short "$LATHE" run qk_norm --problem h=2,q=8,d=16 --device host --input q=o.npy
short "$LATHE" run layer_norm --pass backward --problem rows=4,n=16 --device host --verify
short "$LATHE" run nsa --problem dtype=f64,h=1,t=20,d=8,block=4,blocks=2,window=5 --device host --verify
short "$LATHE" run rope_half --problem dtype=f32,b=1,t=4,h=2,i=8 --device host --verify
short "$LATHE" draw alibi --problem h=2,q=40,d=16 -o a.png
short "$LATHE" draw gla --problem h=2,t=40,d=16 --json
short "$LATHE" cache info
finish
