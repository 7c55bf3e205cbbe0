#!/bin/sh
# templates.sh: every kernel of templates/ compiles with nvcc for every architecture that launches it, as generated files of tests/stubs.txt
# and of the lists below have it. A warning is an error, and ptxas may not report a spill. What has compiled before is known by its code
# (stamps.sh).
#     LATHE_TEST_FULL=1 ...    kernels of sm_80 for sm_86 and sm_89, too
# LATHE: the tool. Exit code 77: there is no nvcc.
set -u
LATHE=${LATHE:-build/lathe}
LATHE=$(realpath "$LATHE") || exit 1
cd "$(dirname "$0")/.." || exit 1
PATH=${PATH}:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null 2>&1; then
    echo "tests/templates.sh: skipped: nvcc (the CUDA toolkit) is not here" >&2
    exit 77
fi
stamp_name=templates
. tests/stamps.sh

# ---- one compilation: prints nothing where it is good ----------------------------------------------------------------

# judge NAME ARCH SPILLS LOG CODE: what nvcc and ptxas said.
judge() {
    if [ "$5" -ne 0 ]; then
        echo "FAILED $1, $2: does not compile:"
        cat "$4"
    elif awk -v most="$3" '
        /Compiling entry function/ { seldom = /_bwd_(pre|rows)/ } # rows with large finals, hardly ever, in few registers (attention/backward/preprocess.cuh)
        /bytes spill stores/ { for (i = 1; i < NF; i++) if ($(i + 2) == "spill" && $i > (seldom && most < 960 ? 960 : most)) bad = 1 }
        END { exit !bad }' "$4"; then
        grep -E '[1-9][0-9]* bytes spill' "$4"
        echo "FAILED $1, $2: ptxas spills registers"
    elif grep -E '\(C75[0-9][0-9]\)' "$4"; then # waits that ptxas puts between wgmmas, setmaxnreg that it ignores
        echo "FAILED $1, $2: ptxas does not take wgmma as written"
    else
        return 0
    fi
    return 1
}

# compile UNIT ARCH SPILLS [nvcc options] <the text of everything that UNIT includes
compile() {
    unit=$1 arch=$2 spills=$3
    shift 3
    key=$(stamp_code | stamp_key nvcc "$arch" "$spills")
    stamp_known "$key" && return
    nvcc -x cu -std=c++20 -cubin -arch="$arch" -Werror all-warnings -Xptxas -v -o "$unit.cubin" "$@" "$unit" >"$unit.log" 2>&1
    judge "$(basename "$unit" .cu)" "$arch" "$spills" "$unit.log" $? && stamp_add "$key"
}

# sizes SPEC PROBLEM: with dims that have no default
sizes() {
    case $1 in
    block_mask) echo "$2,q_blocks=32,kv_blocks=256" ;;
    flamingo) echo "$2,images=16" ;;
    graphormer) echo "$2,distances=16,kinds=16" ;;
    pair_bias) echo "$2,pairs=1" ;;
    sandwich) echo "$2,distances=32768" ;;
    shared_prefix) echo "$2,docs=64" ;;
    *) echo "$2" ;;
    esac
}

# generate SPEC PROBLEM ARCH TEMPLATE PASS SPILLS: as one file. It holds every helper of the headers, used or not, and says itself that this is right.
# ARCH sm_80+sm_86: what is planned for the first compiles for both.
generate() {
    unit=$temp/$(basename "$1").$3.$5.$(echo "$2$4" | tr -c 'a-z0-9\n' _).cu
    template=$4
    [ "$template" != - ] || template=
    problem=$(sizes "$1" "$2")
    case $1 in */*) spec=$1 ;; *) spec=specs/$1.lua ;; esac
    if "$LATHE" gen "$spec" --all --arch "${3%%+*}" --problem "$problem" ${template:+--template "$template"} --pass "$5" -o "$unit" >"$unit.log" 2>&1; then
        for arch in $(echo "$3" | tr + ' '); do
            compile "$unit" "$arch" "$6" <"$unit"
        done
    else
        echo "FAILED lathe gen $spec --arch ${3%%+*} --problem $problem:"
        cat "$unit.log"
    fi
}

# jit SPEC PROBLEM: through NVRTC, for the oldest and the newest architecture.
jit() {
    out=$temp/jit.$1
    problem=$(sizes "$1" "$2")
    for arch in sm_80 sm_90a; do
        "$LATHE" gen "specs/$1.lua" --all --arch $arch --problem "$problem" -o "$out.$arch.cu" >"$out.log" 2>&1 || { cat "$out.log"; echo "FAILED lathe gen specs/$1.lua"; return; }
    done
    key=$(cat "$out.sm_80.cu" "$out.sm_90a.cu" | stamp_code | stamp_key nvrtc)
    stamp_known "$key" && return
    "$LATHE" compile "specs/$1.lua" --arch sm_80 --arch sm_90a --problem "$problem" -o "$out.fatbin" >"$out.log" 2>&1
    code=$?
    if [ $code -eq 3 ]; then # no compiler here
        echo "SKIP lathe compile: $(tail -n 1 "$out.log")"
    elif [ $code -ne 0 ] || [ ! -s "$out.fatbin" ]; then
        echo "FAILED lathe compile specs/$1.lua --problem $problem:"
        head -n 3 "$out.log" | cut -c 1-300
    else
        stamp_add "$key"
    fi
}

# Some lines of the list: a process that knows the functions above does several.
if [ "${1:-}" = --some ]; then
    temp=$2
    while read -r line; do
        # shellcheck disable=SC2086 # words
        $line </dev/null
    done <"$3"
    exit 0
fi

# ---- the list ----------------------------------------------------------------------------------------------------------

# Those that stand for all others (tests/stubs.sh).
every_stub() {
    awk -v full="${LATHE_TEST_FULL:-}" '!/^#/ { print "generate", $5, $6, $3 (full && $3 == "sm_80" ? "+sm_86+sm_89" : ""), $1, $2, $4 }' tests/stubs.txt
}

# gen SPEC PROBLEM ARCH [TEMPLATE [PASS]], with the limit of spilled bytes in $spills
gen() {
    echo "generate $1 $2 $3 ${4:--} ${5:-forward} $spills"
}

forward_files() {
    spills=16 # the portable kernel lives on all 255 registers: a place or two is forgiven
    gen alibi dtype=bf16,h=16,q=4096,d=128 sm_90a attention_fwd_sm80
    spills=0
    gen document dtype=f16,h=16,q=4096,d=64 sm_80
    gen rope dtype=bf16,h=16,h_kv=4,q=4096,d=128 sm_89
    gen layer_norm dtype=bf16,rows=16384,n=8192 sm_90a
    for spec in bands head_sine; do # ptxas crashes on sines that loading warps ask for
        gen tests/emulate/specs/$spec.lua dtype=bf16,h=16,q=4096,d=128 sm_90a attention_fwd_sm90
    done
    for dims in d=64 d=96 d=192 d=256 d=192,d_v=128 d=128,d_v=256 d=64,d_v=256 d=64,d_v=512 d=200,d_v=264; do
        gen causal dtype=f16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        gen full dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        gen relative_bias dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
    done
    for spec in $attention; do
        [ $spec != mla_decoupled ] || continue # d2 comes on top of these; below
        spills=0
        [ $spec != dropout ] || spills=192 # ptxas keeps what calls of the generator share for as long as it can
        case $spec in # places of a pair on grids and graphs, beside all that a pair has
        nsa_selected | natten_3d) spills=48 ;; # a row has 16 entries; six coordinates
        graphormer) spills=80 ;;
        fp8_cache) spills=32 ;; # a scale of each key and one of each value
        sliding_tile) spills=160 ;;
        esac
        for dims in d=64 d=64,kv=8192 d=128 d=256; do # each row of tiles has registers for what it serves, or it spills here
            gen $spec dtype=bf16,h=16,q=4096,$dims sm_90a attention_fwd_sm90
        done
        [ $spec != fp8_cache ] || spills=80 # and the largest weight of a row
        gen $spec dtype=f16,h=16,q=4096,d=128 sm_90a attention_fwd_sm90 # as many registers, but other conversions
        [ $spec != fp8_cache ] || spills=32
        gen $spec dtype=bf16,h=32,h_kv=8,q=1,kv=32768,d=128 sm_90a attention_decode
        gen $spec dtype=f32,h=16,q=4096,d=64 sm_80
        gen $spec dtype=f32,h=16,q=4096,d=128 sm_90a
    done
}

fp8_files() {
    spills=0
    for dims in d=64 d=128 d=256 d=192,d_v=128; do
        for spec in causal full alibi softcap sliding_window document relative_bias sinks sigmoid; do
            gen $spec dtype=bf16,h=16,q=4096,q=f8e4m3,k=f8e4m3,v=f8e4m3,$dims sm_90a attention_fwd_fp8_sm90
        done
    done
    gen tests/emulate/specs/bands.lua dtype=f16,h=16,q=4096,q=f8e4m3,k=f8e4m3,v=f8e4m3,d=128 sm_90a attention_fwd_fp8_sm90
}

packed_files() {
    spills=0
    for dims in d=64 d=128 d=192,d_v=128 d=256 d=64,d_v=512; do
        for spec in causal full relative_bias; do
            gen $spec dtype=bf16,h=16,q=16384,seqs=12,$dims sm_90a attention_fwd_sm90
        done
    done
    for spec in alibi softcap sliding_window sinks retention sigmoid; do
        gen $spec dtype=f16,h=16,q=16384,seqs=12,d=128,cu_kv=i32,used_kv=i32 sm_90a attention_fwd_sm90
    done
    for dims in d=64 d=128 d=256; do
        gen causal dtype=bf16,b=4,h=16,q=2048,kv=4096,used_kv=i32,$dims sm_90a attention_fwd_sm90
    done
    # The warp that loads has 32 registers beside three warpgroups, and looks up the page of each lane's box.
    spills=56
    for dims in d=64 d=128 d=192,d_v=128 d=256; do
        for spec in causal full relative_bias; do
            gen $spec dtype=bf16,h=16,q=16384,kv=16384,seqs=12,page=16,$dims sm_90a attention_fwd_sm90
        done
    done
}

decode_files() {
    for dims in d=64 d=128 d=192,d_v=128 d=256; do
        spills=0
        [ $dims != d=256 ] || spills=64 # o and Q of 16 rows are 192 registers of a thread
        gen alibi dtype=f16,h=32,h_kv=8,q=1,kv=32768,$dims sm_80 attention_decode
        spills=16 # as above: a place or two
        [ $dims != d=256 ] || spills=112
        gen causal dtype=bf16,h=32,h_kv=8,q=1,kv=32768,$dims,used_kv=i32 sm_90a attention_decode
        gen causal dtype=bf16,h=32,h_kv=8,q=1,kv=32768,$dims,page=16,used_kv=i32 sm_90a attention_decode
        gen causal dtype=bf16,h=32,h_kv=8,seqs=8,q=8,kv=32768,$dims,page=16,used_kv=i32 sm_90a attention_decode
    done
}

narrow_files() { # k and v of 8 bits, where three blocks share a multiprocessor, and two
    for dims in d=64 d=128 d=256; do
        for spec in causal fp8_cache; do
            spills=48 # as for 168 registers in tests/stubs.txt
            [ $spec != fp8_cache ] || spills=0
            [ $dims != d=256 ] || spills=96 # o and Q of 16 rows, as above,
            [ $spec$dims != fp8_cached=256 ] || spills=224 # and scales of 16 keys
            gen $spec dtype=bf16,h=32,h_kv=8,q=1,kv=32768,$dims,k=f8e4m3,v=f8e4m3,page=64 sm_90a attention_decode_narrow
            [ $spec$dims != fp8_cached=256 ] || spills=240 # and the largest weight of a row
            gen $spec dtype=f16,h=32,h_kv=8,q=1,kv=32768,$dims,k=i8,v=f8e4m3 sm_80 attention_decode_narrow
        done
    done
    for dims in d=64 d=128; do
        spills=96 # scales of each key, as the kernel of 16 bits in pages
        gen fp8_cache dtype=bf16,h=32,h_kv=8,q=1024,$dims,k=f8e4m3,v=f8e4m3,page=64 sm_90a attention_fwd_narrow
        spills=0
        gen causal dtype=bf16,h=32,h_kv=8,q=1024,$dims,k=f8e4m3,v=f8e4m3,page=64 sm_90a attention_fwd_narrow
        [ $dims = d=128 ] && spills=96 || spills=272 # and the largest weight of a row; of d 64 beside all of Q
        gen fp8_cache dtype=f16,h=32,h_kv=8,q=1024,$dims,k=i8,v=f8e4m3,page=64 sm_80 attention_fwd_narrow
    done
    spills=0
    for dims in d=64 d=128 d=256; do
        gen causal dtype=bf16,h=32,h_kv=8,q=4096,kv=4080,$dims,seqs=4,k=f8e4m3,v=i8,page=24,used_kv=i32 sm_90a attention_fwd_gathered_sm90
    done
    spills=64 # gradients, as in tests/stubs.txt
    gen causal dtype=bf16,h=16,h_kv=4,q=4096,kv=4096,d=128,seqs=8,page=64,k=f8e4m3,v=i8 sm_90a attention_bwd_sm90 backward
    gen causal dtype=f16,h=16,h_kv=4,q=4096,kv=4096,d=64,page=16,v=f8e5m2,used_kv=i32 sm_80 attention_bwd_sm80 backward
    gen causal dtype=f32,h=16,h_kv=4,q=4096,kv=4096,d=64,page=16,k=i8 sm_80 attention_bwd_sm80 backward
}

selected_files() {
    for dims in d=64 d=128 d=192,d_v=128 d=256; do
        spills=0
        [ $dims != d=256 ] || spills=64 # as above
        gen nsa_selected dtype=bf16,h=64,h_kv=4,q=4096,$dims sm_80 attention_selected
        gen nsa_selected dtype=f16,h=64,h_kv=4,q=4096,$dims,cu_q=i32,cu_kv=i32 sm_90a attention_selected
        spills=16 # a word or two beside dk' and dv'
        gen nsa_selected dtype=bf16,h=64,h_kv=4,q=4096,$dims sm_90a attention_bwd_selected backward
        gen nsa_selected dtype=f16,h=64,h_kv=4,q=4096,$dims sm_80 attention_bwd_selected backward
    done
}

parts_files() { # rows that end as parts, and parts that become rows
    for spec in causal sinks retention sigmoid; do
        spills=64 # as above, and a row of floats takes registers for where it lies
        gen $spec dtype=bf16,h=16,q=4096,d=128,part_o=f32,part_rows=f32 sm_80
        spills=0
        gen $spec dtype=bf16,h=16,q=4096,d=128,part_o=f32,part_rows=f32 sm_90a attention_fwd_sm90
        gen $spec dtype=f16,h=16,q=4096,d=64,part_o=f32,part_rows=f32 sm_90a attention_fwd_sm90
        gen $spec dtype=bf16,h=32,h_kv=8,q=1,kv=32768,d=128,part_o=f32,part_rows=f32 sm_90a attention_decode
        gen $spec dtype=bf16,parts=4,h=16,q=4096,d_v=128 sm_90a '' combine
        gen $spec dtype=bf16,parts=2,h=16,q=4096,d_v=128,merged_o=f32,merged_rows=f32 sm_90a '' combine
        gen $spec dtype=f32,parts=4,h=16,q=4096,d_v=512,unaligned=part_o+o sm_80 '' combine
    done
}

mla_files() {
    spills=0
    for spec in mla alibi sinks; do
        gen $spec dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512 sm_90a attention_mla
        gen $spec dtype=f16,h=128,h_kv=1,q=4,kv=8192,d=576,d_v=512,page=64,used_kv=i32 sm_80 attention_mla
        gen $spec dtype=bf16,h=16,h_kv=1,q=1,kv=8192,d=576,d_v=512 sm_86 attention_mla
    done
    gen mla_decoupled dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=512,d2=64,d_v=512 sm_90a attention_mla
    gen mla_decoupled dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=512,d2=64,d_v=512,page=64,used_kv=i32 sm_80 attention_mla
    gen mla_decoupled dtype=f16,h=16,q=4096,d=128,d2=64,d_v=128 sm_80 attention_fwd_sm80
    gen mla_decoupled dtype=bf16,h=128,h_kv=1,q=256,kv=8192,d=512,d2=64,d_v=512,seqs=64,page=64,cu_q=i32 sm_90a attention_mla
    gen mla_decoupled dtype=bf16,h=16,q=4096,d=128,d2=64,d_v=128 sm_90a attention_fwd_sm90
    gen mla_decoupled dtype=bf16,h=16,q=4096,d=512,d2=64,d_v=512 sm_80 attention_bwd_slices backward
    gen mla dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512 sm_90a attention_mla_sm90
    gen mla dtype=f16,h=128,h_kv=1,q=4,kv=8192,d=576,d_v=512,page=64,used_kv=i32 sm_90a attention_mla_sm90
    gen mla_decoupled dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=512,d2=64,d_v=512 sm_90a attention_mla_sm90
    for more in '' ,page=64 ,b=3,used_kv=i32; do
        gen tests/specs/good/latent_tokens.lua dtype=bf16,h=16,h_kv=1,q=1,kv=8192,d=512,d2=64,k=f8e4m3$more sm_90a attention_mla_narrow_sm90
        gen mla_decoupled dtype=f16,h=16,h_kv=1,q=2,kv=8192,d=512,d2=64,d_v=512,k=f8e5m2$more sm_90a attention_mla_narrow_sm90
        gen mla dtype=bf16,h=16,h_kv=1,q=1,kv=8192,d=576,d_v=512,k=i8$more sm_90a attention_mla_narrow_sm90
    done
    gen causal dtype=bf16,h=16,q=4096,d=100 sm_80 attention_bwd_sm80 backward
    for spec in mla relative_bias sinks; do
        gen $spec dtype=bf16,h=16,h_kv=1,q=4096,d=576,d_v=512 sm_90a attention_bwd_slices backward
        [ $spec != mla ] || gen $spec dtype=f16,h=16,h_kv=1,q=4096,d=576,d_v=512 sm_90a attention_bwd_latent_sm90 backward
        gen $spec dtype=f16,h=16,h_kv=1,q=4096,d=576,d_v=512 sm_86 attention_bwd_slices backward
    done
}

backward_files() {
    spills=160 # the sine of a double, which calls a function
    for dims in d=128 d=192; do
        gen tests/emulate/specs/head_sine.lua dtype=bf16,h=16,q=4096,$dims sm_90a - backward
    done
    # A row that stays in registers takes all that its bound leaves, and a word more with a given lse.
    # tests/spills.sh looks at more lengths.
    spills=12
    for spec in softmax log_softmax rms_norm layer_norm; do
        for length in 33 128 512 1024 4096 8192 65537; do
            gen $spec dtype=bf16,rows=16384,n=$length sm_90a '' backward
            gen $spec dtype=f32,rows=16384,n=$length sm_80 '' backward
        done
    done
    spills=0
    for dims in d=96 d=128,d_v=256 d=192 d=192,d_v=128 d=256; do
        gen causal dtype=f16,h=16,q=4096,$dims sm_86 '' backward
    done
    for spec in $attention; do
        [ ${spec%_decoupled} != mla ] || continue # has a template of its own
        spills=0
        [ $spec != dropout ] || spills=64 # as above
        [ $spec != block_mask ] || spills=160 # a pair's block is found by two divisions beside all else that it needs
        [ $spec != alibi ] || spills=32 # in f32 a place or two, as above
        [ $spec != nsa_compressed ] || spills=192 # a gradient for each pair, at an address of 64 bits
        [ $spec != nsa_selected ] || spills=960 # a row has 16 entries, which each pair asks about; most of it in rows with large finals, hardly ever
        case $spec in
        natten_2d | natten_3d | sliding_tile) spills=384 ;; # coordinates on a grid, of which each pair makes its neighbours
        pair_bias) spills=256 ;;                            # a gradient for each pair
        graphormer) spills=640 ;;                           # the same, and two tables
        esac
        gen $spec dtype=bf16,h=16,q=4096,d=128 sm_80 '' backward
        gen $spec dtype=f32,h=16,q=4096,d=64 sm_80 '' backward
        gen $spec dtype=f32,h=16,q=4096,d=128 sm_90a '' backward
    done
    spills=16 # 128 columns of dk, dv and dq a warp: a place or two is forgiven
    gen causal dtype=f32,h=16,q=4096,d=256 sm_90a '' backward
    gen causal dtype=f32,h=16,q=4096,d=256 sm_80 '' backward
    spills=0
    gen causal dtype=f32,h=16,q=4096,d=128 sm_86 '' backward
    gen causal dtype=f32,h=16,q=4096,d=96 sm_90a '' backward
    gen causal dtype=f32,h=16,q=4096,d=192 sm_86 '' backward
    for spec in causal document qk_norm relative_bias; do
        spills=0
        gen $spec dtype=bf16,h=16,q=4096,d=64 sm_90a attention_bwd_sm80 backward
        # The warps that load and add have 24 registers a lane: not in a loop of products.
        spills=64
        [ $spec != document ] || spills=136 # lists of query blocks, the long ones first
        gen $spec dtype=bf16,h=16,q=4096,d=128 sm_90a attention_bwd_sm90 backward
        gen $spec dtype=f16,h=16,q=4096,d=64 sm_90a attention_bwd_sm90 backward
        gen $spec dtype=bf16,h=16,q=4096,d=256 sm_90a attention_bwd_wide_sm90 backward # in pairs of thread blocks, which dq=none is not
        gen $spec dtype=bf16,h=16,q=4096,d=256,dq=none sm_90a attention_bwd_wide_sm90 backward
        spills=80 # a sequence is found, too
        [ $spec != document ] || continue # has mask_kept, beside which there are no sequences
        gen $spec dtype=bf16,h=16,q=4096,d=128,seqs=8 sm_90a attention_bwd_sm90 backward
        gen $spec dtype=bf16,h=16,q=4096,d=192,d_v=128,seqs=8 sm_90a attention_bwd_wide_sm90 backward
    done
}

# Every decay with what goes beside it, in the dims whose tiles differ.
linear_files() {
    for spec in $linear; do
        spills=64 # ptxas has registers left and aims at more blocks on an SM; the kernel of chunks is held to two of them
        [ $spec != kda ] || spills=112 # logarithms of 16 tokens of all channels stay in registers
        [ $spec != rwkv6 ] || spills=112 # the same
        case $spec in delta_rule | gated_delta*) spills=96 ;; esac # where a piece of a sequence lies, a few words a chunk
        for dims in d=64 d=128 d=256,d_v=64 d=64,d_v=256; do
            gen $spec dtype=bf16,h=16,t=4096,$dims sm_90a '' forward
        done
        gen $spec dtype=f32,h=16,t=4096,d=128 sm_80 '' forward
        case $spec in gdn2 | comba | precond_*) spills=448 ;; rwkv7 | dplr | iplr) spills=1600 ;; rwkv6) spills=120 ;; esac # a reader and a writer of all channels beside the keys
        for dims in d=64 d=128 d=64,d_v=256; do
            gen $spec dtype=bf16,h=16,t=4096,$dims sm_90a '' backward
        done
        case $spec in delta_rule | gated_delta* | kda) spills=256 ;; esac # keys in parts: 52 bytes, which loops load
        gen $spec dtype=bf16,h=16,t=4096,d=256,d_v=64 sm_90a '' backward
    done
    spills=64 # as above
    for spec in gla hgrn2 rwkv6 linear_elu flao simple_gla; do
        gen $spec dtype=bf16,h=16,t=4096,d=64 sm_80 linear_additive forward
        gen $spec dtype=f16,h=16,t=4096,d=128 sm_90a linear_additive forward
        gen $spec dtype=bf16,h=16,t=4096,d=256,d_v=64 sm_90a linear_additive forward
    done
    for arch in sm_80 sm_90a; do
        spills=64 # where T becomes two numbers; and where a piece of a sequence lies, a few words a chunk
        gen kda dtype=bf16,h=16,t=4096,d=64 $arch linear_keyed_delta forward
        gen kda dtype=f16,h=16,t=4096,d=128 $arch linear_keyed_delta forward
        gen gated_delta dtype=f16,h=16,t=4096,d=128 $arch linear_keyed_delta forward
        gen comba dtype=bf16,h=16,t=4096,d=128 $arch linear_keyed_delta forward
        gen rwkv7 dtype=bf16,h=16,t=4096,d=64 $arch linear_dplr forward
        spills=96 # logarithms of 16 tokens of 256 channels stay in registers, beside T as two numbers
        gen kda dtype=f16,h=16,t=4096,d=256 $arch linear_keyed_delta forward
        [ $arch != sm_80 ] || spills=352 # by mma.sync: some thirty words a chunk
        gen kda dtype=bf16,h=16,t=4096,d=256,d_v=64 $arch linear_keyed_delta forward
        gen gdn2 dtype=f16,h=16,t=4096,d=256 $arch linear_keyed_delta forward
        gen dplr dtype=bf16,h=16,t=4096,d=256,d_v=64 $arch linear_dplr forward
    done
    for spec in gla hgrn2 rwkv6 simple_gla mamba2; do
        spills=96 # held to 512 threads on an SM
        [ $spec != rwkv6 ] || spills=216 # with a bonus logarithms up to a token's reading beside those that count it
        gen $spec dtype=bf16,h=16,t=4096,d=64 sm_80 linear_additive_bwd backward
        gen $spec dtype=bf16,h=16,t=4096,d=128 sm_90a linear_additive_bwd backward
        gen $spec dtype=bf16,h=16,t=4096,d=64,d_v=128 sm_90a linear_additive_bwd backward
        gen $spec dtype=bf16,h=16,t=4096,d=256 sm_90a linear_additive_bwd backward
        gen $spec dtype=f16,h=16,t=4096,d=128 sm_90a linear_additive_bwd backward
    done
    gen linear_elu dtype=bf16,h=16,t=4096,d=128 sm_90a linear_additive_bwd backward
    spills=192 # as above
    gen kda dtype=bf16,h=16,t=4096,d=64 sm_80 linear_keyed_delta_bwd backward
    gen kda dtype=bf16,h=16,t=4096,d=128 sm_90a linear_keyed_delta_bwd backward
    gen kda dtype=bf16,h=16,t=4096,d=64,d_v=128 sm_90a linear_keyed_delta_bwd backward
    gen kda dtype=bf16,h=16,t=4096,d=256 sm_90a linear_keyed_delta_bwd backward
    gen kda dtype=f16,h=16,t=4096,d=128 sm_80 linear_keyed_delta_bwd backward
    gen gated_delta dtype=f16,h=16,t=4096,d=128 sm_90a linear_keyed_delta_bwd backward
    gen gated_delta dtype=f16,h=16,t=4096,d=256,d_v=128 sm_90a linear_keyed_delta_bwd backward
    spills=448 # a reader and a writer of all channels beside the keys
    gen gdn2 dtype=bf16,h=16,t=4096,d=64 sm_80 linear_keyed_rule_bwd backward
    gen gdn2 dtype=bf16,h=16,t=4096,d=256 sm_90a linear_keyed_rule_bwd backward
    gen gdn2 dtype=f16,h=16,t=4096,d=128 sm_80 linear_keyed_rule_bwd backward
    gen precond_gated_delta dtype=f16,h=16,t=4096,d=128,d_v=64 sm_90a linear_keyed_rule_bwd backward
    gen comba dtype=bf16,h=16,t=4096,d=128 sm_90a linear_keyed_rule_bwd backward
    spills=576 # 142 words that are loaded, of what waits while pairs are made for a reader ahead of the decay
    gen comba dtype=f16,h=16,t=4096,d=64 sm_80 linear_keyed_rule_bwd backward
    spills=1600 # and what flows to logarithms stays in registers while two writers take turns
    gen rwkv7 dtype=bf16,h=16,t=4096,d=128 sm_90a linear_dplr_bwd backward
    gen rwkv7 dtype=f16,h=16,t=4096,d=64 sm_80 linear_dplr_bwd backward
    gen dplr dtype=bf16,h=16,t=4096,d=256,d_v=64 sm_90a linear_dplr_bwd backward
    gen iplr dtype=bf16,h=16,t=4096,d=64,d_v=128 sm_90a linear_dplr_bwd backward
    for spec in delta_rule gated_delta; do
        for arch in sm_80 sm_90a; do
            spills=0
            gen $spec dtype=bf16,h=16,t=4096,d=64 $arch linear_delta_bwd backward
            spills=16 # in place of one block on an SM
            gen $spec dtype=bf16,h=16,t=4096,d=128 $arch linear_delta_bwd backward
            spills=48 # as above, and a loop over heads
            gen $spec dtype=bf16,h=16,t=4096,d=128,d_v=64 $arch linear_delta_bwd backward
        done
        spills=32 # of 128 registers, for two blocks on an SM
        for dims in d=64 d=128 d=128,d_v=64; do
            gen $spec dtype=bf16,h=16,t=4096,$dims sm_90a linear_delta_bwd_sm90 backward
        done
    done
}

map_files() {
    spills=0
    for spec in act_silu swiglu rope_half rope_append rope_interleaved rope_table lrpe md_lrpe_3d; do
        for pass in forward backward; do
            [ "$spec $pass" != 'rope_append backward' ] || continue # slots have none
            gen $spec dtype=bf16 sm_90a '' $pass
            gen $spec dtype=f32 sm_80 '' $pass
        done
    done
}

every_jit() {
    for file in specs/*.lua; do
        spec=$(basename "$file" .lua)
        if grep -q '^return rowwise' "$file"; then
            case $spec in
            group_*) echo "jit $spec dtype=bf16,rows=16384,n=8192,groups_of=32,channels_of=8" ;;
            topk | nsa_select) echo "jit $spec dtype=bf16,rows=16384,n=1024" ;; # ranks are counted in registers
            *) echo "jit $spec dtype=bf16,rows=16384,n=8192" ;;
            esac
        elif grep -q '^return linear_attention' "$file"; then
            echo "jit $spec dtype=bf16,h=16,t=4096,d=128"
        elif grep -q '^return attention' "$file"; then
            echo "jit $spec dtype=bf16,h=16,q=4096,d=128"
        elif [ "$spec" != prelude ]; then
            echo "jit $spec dtype=bf16"
        fi
    done
}

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
stamps_prune
stamps_log "$temp/good"
attention=$(grep -l '^return attention' specs/*.lua | sed 's|.*/||; s|\.lua$||')
linear=$(grep -l '^return linear_attention' specs/*.lua | sed 's|.*/||; s|\.lua$||')
{ every_stub; forward_files; fp8_files; packed_files; decode_files; narrow_files; selected_files; parts_files; mla_files; backward_files; map_files; linear_files; every_jit; } |
    awk '!seen[$0]++' >"$temp/list"
mkdir "$temp/some"
split -l 4 -a 4 "$temp/list" "$temp/some/"
find "$temp/some" -type f | sort |
    LATHE=$LATHE stamp_nvcc=$stamp_compiler xargs -P "${LATHE_TEST_JOBS:-$(nproc)}" -n 1 sh tests/templates.sh --some "$temp" >"$temp/said" 2>&1
sed -n 's/^SKIP /tests\/templates.sh: skipped: /p' "$temp/said" | sort -u >&2
grep -v '^SKIP ' "$temp/said"
stamps_renew
failed=$(grep -c '^FAILED' "$temp/said")
echo "$(wc -l <"$temp/list") compiled, $failed failed"
exit $((failed > 0))
