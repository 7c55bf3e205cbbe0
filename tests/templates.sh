#!/bin/sh
# templates.sh: every kernel of templates/ compiles with nvcc for every architecture of interest, with the stubs in place of
# what the generator writes, and so do a few generated files. A warning is an error, and ptxas may not report a spill.
# Exit code 77: there is no nvcc. LATHE names the tool.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=${PATH}:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null 2>&1; then
    echo "tests/templates.sh: skipped: nvcc (the CUDA toolkit) is not here" >&2
    exit 77
fi
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
failed=0
n=0

# compile FILE ARCH [nvcc options]
compile() {
    unit=$1
    arch=$2
    shift 2
    n=$((n + 1))
    if ! nvcc -x cu -std=c++20 -cubin -arch="$arch" -Werror all-warnings -Xptxas -v -o "$temp/out.cubin" "$@" "$unit" \
        >"$temp/log" 2>&1; then
        echo "$(basename "$unit"), $arch: does not compile:"
        cat "$temp/log"
        failed=$((failed + 1))
    elif awk -v most="${spills:-0}" '/bytes spill stores/ { for (i = 1; i < NF; i++) if ($(i + 2) == "spill" && $i > most) bad = 1 } END { exit !bad }' "$temp/log"; then
        grep -E '[1-9][0-9]* bytes spill' "$temp/log"
        echo "$(basename "$unit"), $arch: ptxas spills registers"
        failed=$((failed + 1))
    elif grep -E '\(C75[0-9][0-9]\)' "$temp/log"; then # waits that ptxas puts between wgmmas, setmaxnreg that it ignores
        echo "$(basename "$unit"), $arch: ptxas does not take wgmma as written"
        failed=$((failed + 1))
    fi
}

for template in templates/*.cuh; do
    grep -q 'extern "C"' "$template" || continue
    stub=templates/stub
    archs='sm_80 sm_86 sm_89 sm_90a'
    spills=0
    case $template in
    templates/attention_fwd_sm80.cuh) spills=16 ;; # as below
    templates/rowwise_many* | templates/rowwise_staged*) stub=templates/stub/many ;;
    templates/rowwise_inner*) stub=templates/stub/inner ;;
    templates/elementwise_gather*) stub=templates/stub/gather ;;
    templates/rowwise_walk*) stub=templates/stub/walk ;;
    templates/rowwise_chain*) stub=templates/stub/chain ;;
    templates/elementwise*) stub=templates/stub/elementwise ;;
    templates/rowwise*) stub=templates/stub/rowwise ;;
    templates/attention_bwd_sm90.cuh) stub=templates/stub/backward_sm90 archs=sm_90a spills=64 ;; # see below
    templates/attention_bwd_wide_sm90.cuh) stub=templates/stub/backward_wide_sm90 archs=sm_90a spills=120 ;; # learned slopes, in pairs
    templates/back_* | templates/attention_bwd*) stub=templates/stub/backward ;;
    *_sm90.cuh) stub=templates/stub/sm90 archs=sm_90a ;;
    esac
    # Through a file that includes it: a header that is compiled directly warns of its #pragma once.
    wrapper=$temp/$(basename "$template" .cuh).cu
    echo "#include \"${template#templates/}\"" >"$wrapper"
    for arch in $archs; do
        compile "$wrapper" $arch -I "$stub" -I templates/stub -I templates
    done
done

# generate SPEC PROBLEM ARCH [TEMPLATE [PASS]]: as one file, through nvcc. It holds every helper of the headers, used or not, and says itself that this is right.
generate() {
    if "$LATHE" gen "specs/$1.lua" --arch "$3" --problem "$2" ${4:+--template "$4"} ${5:+--pass "$5"} -o "$temp/$1.cu" >"$temp/log" 2>&1; then
        compile "$temp/$1.cu" "$3"
    else
        echo "lathe gen specs/$1.lua --arch $3 --problem $2 fails:"
        cat "$temp/log"
        failed=$((failed + 1))
    fi
}

# jit SPEC PROBLEM: through NVRTC, for the oldest and the newest architecture.
jit() {
    n=$((n + 1))
    "$LATHE" compile "specs/$1.lua" --arch sm_80 --arch sm_90a --problem "$2" -o "$temp/$1.fatbin" >"$temp/log" 2>&1
    code=$?
    if [ $code -eq 3 ]; then # no compiler here
        echo "tests/templates.sh: skipped: lathe compile: $(tail -n 1 "$temp/log")" >&2
    elif [ $code -ne 0 ] || [ ! -s "$temp/$1.fatbin" ]; then
        echo "lathe compile specs/$1.lua --problem $2 fails:"
        head -n 3 "$temp/log" | cut -c 1-300
        failed=$((failed + 1))
    fi
}

if [ -x "${LATHE:-}" ]; then
    spills=16 # the portable kernel lives on all 255 registers: a place or two is forgiven
    generate alibi dtype=bf16,h=16,q=4096,d=128 sm_90a attention_fwd_sm80
    spills=0
    generate document dtype=f16,h=16,q=4096,d=64 sm_80
    generate rope dtype=bf16,h=16,h_kv=4,q=4096,d=128 sm_89
    generate layer_norm dtype=bf16,rows=16384,n=8192 sm_90a
    spills=8 # a row that stays in registers takes all that its bound leaves; tests/spills.sh looks at more lengths
    for spec in softmax log_softmax rms_norm layer_norm; do
        for length in 33 128 512 1024 4096 8192 65537; do
            generate $spec dtype=bf16,rows=16384,n=$length sm_90a '' backward
            generate $spec dtype=f32,rows=16384,n=$length sm_80 '' backward
        done
    done
    spills=0
    for dims in d=64 d=96 d=192 d=256 d=192,d_v=128 d=128,d_v=256 d=64,d_v=256 d=64,d_v=512 d=200,d_v=264; do
        generate causal dtype=f16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        generate full dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        generate relative_bias dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
    done
    for file in specs/*.lua; do
        grep -q '^return attention' "$file" || continue
        for dims in d=64 d=64,kv=8192 d=128 d=256; do # each row of tiles has registers for what it serves, or it spills here
            generate "$(basename "$file" .lua)" dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        done
        generate "$(basename "$file" .lua)" dtype=f16,h=16,q=4096,d=128 sm_90a attention_fwd_sm90 # as many registers, but other conversions
    done
    for dims in d=96 d=128,d_v=256 d=192 d=192,d_v=128 d=256; do
        generate causal dtype=f16,h=16,q=4096,$dims sm_86 '' backward
    done
    for file in specs/*.lua; do
        grep -q '^return attention' "$file" || continue
        generate "$(basename "$file" .lua)" dtype=bf16,h=16,q=4096,d=128 sm_80 '' backward
    done
    for spec in causal document qk_norm relative_bias; do
        generate $spec dtype=bf16,h=16,q=4096,d=64 sm_90a attention_bwd_sm80 backward
        # The warps that load and add have 24 registers a lane: not in a loop of products.
        spills=64
        [ $spec != document ] || spills=96
        generate $spec dtype=bf16,h=16,q=4096,d=128 sm_90a attention_bwd_sm90 backward
        generate $spec dtype=f16,h=16,q=4096,d=64 sm_90a attention_bwd_sm90 backward
        generate $spec dtype=bf16,h=16,q=4096,d=256 sm_90a attention_bwd_wide_sm90 backward # in pairs of thread blocks, which dq=none is not
        generate $spec dtype=bf16,h=16,q=4096,d=256,dq=none sm_90a attention_bwd_wide_sm90 backward
        spills=0
    done
    for spec in act_silu swiglu rope_half rope_interleaved rope_table lrpe md_lrpe_3d; do
        for pass in forward backward; do
            generate $spec dtype=bf16 sm_90a '' $pass
            generate $spec dtype=f32 sm_80 '' $pass
        done
    done
    for file in specs/*.lua; do
        spec=$(basename "$file" .lua)
        if grep -q '^return rowwise' "$file"; then
            case $spec in
            group_*) jit "$spec" dtype=bf16,rows=16384,n=8192,groups_of=32,channels_of=8 ;;
            *) jit "$spec" dtype=bf16,rows=16384,n=8192 ;;
            esac
        elif grep -q '^return attention' "$file"; then
            jit "$spec" dtype=bf16,h=16,q=4096,d=128
        elif [ "$spec" != prelude ]; then
            jit "$spec" dtype=bf16
        fi
    done
else
    echo "tests/templates.sh: skipped: generated files, since the tool lathe was not built" >&2
fi
echo "$n compiled, $failed failed"
exit $((failed > 0))
