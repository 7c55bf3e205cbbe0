#!/bin/sh
# usage.sh: help, wrong use of every command and option, and the exit code of each.
. "$(dirname "$0")/common.sh"

expect 0 'exit codes:' '' "$LATHE" --help
expect 0 'exit codes:' '' "$LATHE" help
expect 0 'exit codes:' '' "$LATHE" -h
expect 0 'lathe 0.' '' "$LATHE" --version
expect 0 'tested with 12.1, 12.4, 12.8 and 13.0' '' "$LATHE" --version
for command in check gen compile aot run cache explain list show translate report manual completion; do
    expect 0 "usage: lathe $command" '' "$LATHE" help "$command"
    expect 0 "usage: lathe $command" '' "$LATHE" "$command" --help
    expect 2 '' "$command: unknown option '--nonsense'" "$LATHE" "$command" --nonsense
done
expect 0 '--arch' '' "$LATHE" help gen
expect 2 '' "help: expected one command, given 'extra' behind it" "$LATHE" help check extra
expect 2 '' "--version: expected nothing behind it, given 'x'" "$LATHE" --version x
expect 2 '' 'expected a command' "$LATHE"
expect 2 '' "unknown command 'polish'" "$LATHE" polish
expect 2 '' "unknown command 'polish'" "$LATHE" help polish
expect 2 '' "unknown command ''" "$LATHE" ''
expect 2 '' "did you mean 'check'?" "$LATHE" chek causal
expect 2 '' "did you mean 'causal'?" "$LATHE" check casual
expect 2 '' "did you mean 'causal'?" "$LATHE" check causal.lua
expect 2 '' "did you mean '--problem'?" "$LATHE" run causal --problm dtype=bf16
expect 2 '' "did you mean 'dtype'?" "$LATHE" run causal --problem dtyp=bf16

# a report of a fault: what there is and what is missing, never a failure
expect 0 'lathe      0.' '' "$LATHE" report
expect 0 'NVRTC      ' '' "$LATHE" report
expect 0 "cache      $PWD/nowhere: not there yet" '' env LATHE_CACHE_DIR="$PWD/nowhere" "$LATHE" report
expect 0 'CUDA_HOME /opt/none' '' env CUDA_HOME=/opt/none "$LATHE" report
expect 2 '' 'usage: lathe report (given 1 operand)' "$LATHE" report now

# translate is Python's; without it the tool says what is missing
printf '#!/bin/sh\nshift 2\nprintf "%%s\\n" "$*"\n' >snake && chmod +x snake
expect 0 'translate a.py:b q=7' '' env LATHE_PYTHON="$PWD/snake" "$LATHE" translate a.py:b q=7
expect 3 '' 'translate: mods are functions of Python, and ./none cannot be run' env LATHE_PYTHON=./none "$LATHE" translate a.py:b
expect 3 '' 'has no package lathe' env PYTHONPATH= LATHE_LIBRARY=/none LATHE_PYTHON=python3 "$LATHE" translate a.py:b
expect 2 '' 'usage: lathe translate FILE.py:NAME...' "$LATHE" translate

# operands
expect 2 '' 'usage: lathe check SPEC...' "$LATHE" check
expect 2 '' 'usage: lathe gen' "$LATHE" gen
expect 2 '' 'usage: lathe run' "$LATHE" run causal alibi
expect 2 '' 'usage: lathe list (given 1 operand)' "$LATHE" list causal
expect 2 '' 'usage: lathe cache' "$LATHE" cache
expect 2 '' "expected info, verify, clear, export or import, given 'polish'" "$LATHE" cache polish
expect 2 '' "neither a shipped spec" "$LATHE" explain nowhere
expect 2 '' "neither a shipped spec" "$LATHE" run ./nowhere.lua
expect 2 '' "neither a shipped spec" "$LATHE" check -- --nowhere

# help is a command that help lists
for word in help --help -h; do
    expect 0 'usage: lathe COMMAND' '' "$LATHE" help $word
done

# help fits a terminal of 120 columns, and names start below each other
for command in '' check gen compile aot run tune bench cache explain draw list show translate report manual completion; do
    expect 0 '*' '' sh -c "\"$LATHE\" help $command | awk 'length > 120 { print; bad = 1 } END { exit bad }'"
done
expect 0 '  bench      SPEC --lengths N,...   measure' '' "$LATHE" help
expect 0 '  cache      info|verify|clear|...  look at' '' "$LATHE" help
expect 0 '  --pass forward|backward|combine' '' "$LATHE" help run

# a dim with a name of the spec's own, which may have been meant for another
echo 'return attention { inputs = { bias = tensor("f32", "heads") }, score_mod = function(s, at, x) return s + x.bias(at.h) end }' >heads.lua
expect 2 '' "add heads=SIZE (the spec's own name for a size: those of every call are in specs/reference/inputs.md)" "$LATHE" run heads.lua --device host

# what ships with the tool
expect 0 'return attention' '' "$LATHE" show causal
expect 2 '' "did you mean 'causal'?" "$LATHE" show casual
expect 0 'softcap             attention        causal, scores kept' '' "$LATHE" list
expect 0 '.SS lathe explain' '' "$LATHE" manual
expect 0 'complete -o filenames -F _lathe lathe' '' "$LATHE" completion bash
expect 0 '#compdef lathe' '' "$LATHE" completion zsh
expect 0 'complete -c lathe' '' "$LATHE" completion fish
expect 0 "seen_subcommand_from gen' -s o -r" '' "$LATHE" completion fish
expect 0 "seen_subcommand_from cache' -a 'info verify" '' "$LATHE" completion fish
expect 0 "help) words='check gen" '' "$LATHE" completion bash
expect 0 '  verify               read every entry, remove what is damaged' '' "$LATHE" manual
expect 0 '.ad l' '' "$LATHE" manual # lines with a problem, which cannot be broken, leave gaps elsewhere
expect 0 '  CC, AR                  the C compiler' '' "$LATHE" manual
expect 2 '' "completion: expected bash, zsh or fish, given 'csh'" "$LATHE" completion csh

# parameters of a spec
expect 0 'CAP          param   20 (line 2; default 30)' '' "$LATHE" explain softcap --param CAP=20
part='explain causal --problem q=1024,kv=1024,len_kv=4096,h=2,d=64 --set q_start=2048' # a call that has some of the keys
expect 0 '0 % are left out, 100 % need no mask' '' "$LATHE" $part --set kv_start=1024
expect 0 '44 % are left out, 44 % need no mask' '' "$LATHE" $part --set kv_start=2048
expect 0 '100 % are left out' '' "$LATHE" $part --set kv_start=3072
expect 0 'scheme heads, rank 0 of 4' '' "$LATHE" explain causal --problem h=4,q=64,d=16 --ranks 4
expect 0 'scheme keys, rank 0 of 3' '' "$LATHE" explain causal --problem h=4,q=1,kv=64,d=16 --ranks 3
expect 0 'scheme keys, rank 0 of 3' '' "$LATHE" explain causal --problem b=2,h=4,q=1,d=16,pages=i32,most=7,page=16,pool=14,used_kv=i32 --ranks 3
expect 0 'is not taken: ranks have no gradients of keys in pages' '' "$LATHE" explain causal --problem h=4,q=64,d=16,page=16 --ranks 2 --pass backward
expect 0 'scheme states, rank 0 of 4' '' "$LATHE" explain gated_delta --problem h=4,t=64,d=16 --ranks 4 --pass backward
expect 0 'parallel states: all ranks compute' '' "$LATHE" explain gated_delta --problem h=4,t=64,d=16 --ranks 2
expect 0 'parallel_states: with normalise o is divided' '' "$LATHE" explain linear_elu --problem h=4,t=64,d=16 --ranks 2
expect 0 'each rank calls it with its own rows' '' "$LATHE" explain rms_norm --ranks 2
expect 2 '' '--ranks: expected a whole number from 1 to 256' "$LATHE" explain causal --ranks 257
expect 2 '' '--ranks: expected a whole number from 1 to 256' "$LATHE" explain causal --ranks 0
expect 0 'dist: one rank has all of hstu, which an ordinary call serves' '' "$LATHE" explain hstu --ranks 1
expect 0 'caches        k is of 8 bits' '' "$LATHE" explain causal --problem k=i8,h=2,q=64,d=64
expect 0 'caches        v is of 8 bits' '' "$LATHE" explain causal --problem v=f8e4m3,h=2,q=64,d=64
expect 0 'caches        k and v are of 8 bits' '' "$LATHE" explain causal --problem k=i8,v=i8,h=2,q=64,d=64
expect 2 '' "parameter 'GAP': this spec has none of that name; it has CAP; did you mean 'CAP'?" "$LATHE" explain softcap --param GAP=20
expect 2 '*' "--param GAP: none of the specs has a parameter of that name" "$LATHE" check softcap softmax --param CAP=20 --param GAP=20
expect 2 '' "--param GAP: none of the specs has a parameter of that name" "$LATHE" aot softcap softmax --arch sm_80 --param GAP=20 -o none
expect 2 '' "--param CAP: expected a number, given 'x'" "$LATHE" explain softcap --param CAP=x
expect 2 '' "--param: 'CAP' is given twice" "$LATHE" explain softcap --param CAP=1 --param CAP=2
expect 0 '// Parameter: CAP = 20 (specs/softcap.lua:2)' '' "$LATHE" gen softcap --arch sm_80 --param CAP=20 -o -
expect 0 'relative L2' '' "$LATHE" run softcap --device host --problem q=9,d=16,h=1 --param CAP=20 --verify

# JSON: one object, whatever is asked
if command -v python3 >/dev/null; then
    json() { "$LATHE" "$@" --json >answer.json 2>err.txt; python3 -c 'import json, sys; json.load(open("answer.json"))' || echo "FAILED lathe $* --json"; }
    [ -z "$(json list)" ] && [ -z "$(json explain causal --arch sm_80,sm_90a)" ] && [ -z "$(json explain causal --template attention_fwd_sm90)" ] &&
        [ -z "$(json explain rms_norm --pass backward)" ] && [ -z "$(json run causal --device host --problem q=9,d=16 --verify)" ] &&
        [ -z "$(json run causal --pass backward --device host --problem q=9,d=16 --verify)" ] && [ -z "$(mkdir -m 700 kernels; json cache info --cache-dir kernels)" ] || {
        echo 'FAILED what --json prints is no JSON'
        exit 1
    }
fi

expect 2 '' "parameter 'GAP': this spec has no parameters; local W = param" "$LATHE" explain causal --param GAP=20

# values
expect 2 '' "--arch: expected one of sm_80" "$LATHE" explain causal --arch sm_81
for arch in 80 sm_ sm_80a sm_90b sm_90aa sm_090 compute_80 sm_75 sm_-80 'sm_ 80' ''; do
    expect 2 '' "--arch: expected one of sm_80" "$LATHE" explain causal --arch "$arch"
done
expect 2 '' '--arch: sm_80 is given twice' "$LATHE" explain causal --arch sm_80 --arch sm_80
expect 2 '' '--arch: expected a value' "$LATHE" explain causal --arch
expect 2 '' 'gen: expected one --arch' "$LATHE" gen causal --arch sm_80 --arch sm_90 -o -
expect 2 '' 'gen: expected -o FILE' "$LATHE" gen causal
expect 2 '' 'aot: expected -o DIR' "$LATHE" aot causal
expect 2 '' "--cc is given twice" "$LATHE" aot causal --cc a --cc b
expect 2 '' 'gen: --split DIR stands alone, without -o and --all' "$LATHE" gen causal --split "$work" -o "$work/x.cu"
expect 0 'causal_attention_fwd_sm80' '' "$LATHE" gen causal --split "$work" --arch sm_80
for file in kernel.cu config.gen.cuh variant.gen.cuh; do
    [ -s "$work/$file" ] || complain "gen --split: there is no $file"
done
expect 2 '' 'no_such_folder/kernel.cu: cannot be written' "$LATHE" gen causal --split "$work/no_such_folder" --arch sm_80
expect 2 '' "--ir: expected traced or lowered, given 'raw'" "$LATHE" gen causal --ir raw
expect 2 '' 'gen: --ir writes no CUDA text' "$LATHE" gen causal --ir traced --split "$work"
expect 0 '# traced' '' "$LATHE" gen causal --ir traced
"$LATHE" gen rms_norm --ir lowered --pass backward --problem dtype=bf16,rows=64,n=128 -o "$work/ir.txt"
diff "$here/tests/cli/rms_norm_bwd.ir" "$work/ir.txt" || complain "gen --ir lowered: not tests/cli/rms_norm_bwd.ir"
expect 0 'first and last key:' '' "$LATHE" gen causal --ir lowered --problem dtype=bf16,d=64
expect 0 'ds of a pair, without its factor:' '' "$LATHE" gen alibi --ir lowered --pass backward --problem dtype=bf16,d=64
expect 0 'adjoint of key_mod:' '' "$LATHE" gen kda --ir lowered --pass backward --problem dtype=bf16,d=64
expect 0 '# maps' '' "$LATHE" gen swiglu --ir lowered --pass backward --problem dtype=bf16,rows=4,n=8
expect 2 '' 'compile: expected -o FILE or --cache DIR' "$LATHE" compile causal
expect 2 '' '-o is given twice' "$LATHE" gen causal -o a -o b
expect 2 '' "--pass: expected forward, backward or combine, given 'sideways'" "$LATHE" explain causal --pass sideways
for name in attention attention_fwd_sm80, rowwise,nonsense ''; do
    expect 2 '' "--template: expected one of attention_selected attention_decode_narrow " "$LATHE" explain causal --template "$name"
done
expect 2 '' "--template: expected one of" "$LATHE" run causal --device host --template nonsense --problem q=3
expect 0 'template      attention_fwd_sm80' '' "$LATHE" explain causal --template rowwise,attention_fwd_sm80
expect 2 '' "--device: expected auto, host or cuda:N, given 'gpu'" "$LATHE" run causal --device gpu
expect 2 '' '--device cuda:N: expected a whole number' "$LATHE" run causal --device cuda:
expect 2 '' '--device cuda:N: expected a whole number' "$LATHE" run causal --device cuda:-1
expect 2 '' '--device cuda:N: expected a whole number' "$LATHE" run causal --device cuda:1x
for option in '--pass forward' '--device host' '--seed 1' '--repeat 2' '--template rowwise' '--cache-dir x'; do
    expect 2 '' "${option% *} is given twice" "$LATHE" run softmax $option $option
done
expect 2 '' '--pass is given twice' "$LATHE" aot causal -o no --pass forward --pass backward
expect 2 '' '-j is given twice' "$LATHE" aot causal -o no -j 1 -j 1
expect 2 '' "--seed: expected a whole number from 0" "$LATHE" run causal --seed -1
expect 2 '' "--repeat: expected a whole number from 1" "$LATHE" run causal --repeat 0
expect 2 '' "--repeat: expected a whole number from 1" "$LATHE" run causal --repeat=99999999999999999999
expect 2 '' "--verify takes no value" "$LATHE" run causal --verify=yes
expect 2 '' "--set: expected NAME=VALUE, given 'x'" "$LATHE" run causal --set x
expect 2 '' "--set: expected NAME=VALUE, given '=1'" "$LATHE" run causal --set =1
expect 2 '' "--set: 'q_start' is given twice" "$LATHE" run causal --set q_start=1 --set q_start=2
expect 2 '' "run: unknown option '--arch'" "$LATHE" run causal --arch sm_80

# problems
for problem in 'q=-1' 'q=1,q=2' 'nonsense' 'z=3' 'dtype=i8' 'h=4,h_kv=3' 'd=0' 'q=99999999999' ','; do
    expect 2 '' 'lathe: problem: ' "$LATHE" explain causal --problem "$problem"
    expect 2 '' 'lathe: problem: ' "$LATHE" gen causal --problem "$problem" -o x.cu
    expect 2 '' 'lathe: problem: ' "$LATHE" run causal --problem "$problem" --device host
done
expect 2 '' "unknown name 'q'; this spec knows dtype, rows0, rows1, rows, n" "$LATHE" explain softmax --problem q=1
expect 2 '*' '--problem is given twice' "$LATHE" explain softmax --problem n=8 --problem n=8

"$LATHE" --help >help.txt
expect 0 'a spec that cannot be read' '' cat help.txt

# an output that cannot be written
if [ -w /dev/full ]; then
    expect 3 '' 'standard output cannot be written' sh -c '"$1" --help >/dev/full' sh "$LATHE"
fi
expect 2 '' '/nowhere/x.cu: cannot be written' "$LATHE" gen causal -o /nowhere/x.cu

finish
