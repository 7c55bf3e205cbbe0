#!/bin/sh
# specs.sh: check, list, explain, gen and compile, and the cache commands.
. "$(dirname "$0")/common.sh"

# an input that no function reads
echo 'return attention { inputs = { bias = tensor("f32", "h"), w = tensor("f32", "h") }, score_mod = function(s, at, x) return s * x.w(at.h) end }' >unread.lua
expect 0 'gradients' "warning: unread.lua:1: input 'bias' is declared, and no function reads it" "$LATHE" check \
    unread.lua

# every shipped spec is listed, and no other file
(cd "$here/specs" && for f in *.lua; do echo "${f%.lua}"; done | grep -vx prelude | sort) >wanted.txt
"$LATHE" list --names | sort >given.txt
expect 0 '' '' diff wanted.txt given.txt

# each with its kind and a whole sentence, over as many lines as its comment has
expect 0 \
    'dropout             attention        attention whose weights are dropped with probability p, else multiplied by 1 / (1 - p) (dropout_p of scaled_dot_product_attention); lse is that of all weights' \
    '' "$LATHE" list
expect 0 'softmax             rowwise          y = exp(x - max) / sum exp(x - max), per row' '' "$LATHE" list

# check
expect 0 'gradients' '' "$LATHE" check causal softmax
expect 0 'mask bounds' '' "$LATHE" check "$here/specs/sliding_window.lua" --seed 7
expect 2 'gradients' 'neither a shipped spec' "$LATHE" check nowhere causal

# whether an index is inside of what it reads is asked for GPUs alone, where it is clamped; of other numbers both answers are wanted
for asked in 'id' 'id + 7'; do
    cat >guard.lua <<LUA
return elementwise { over = { "n" }, results = { y = tensor("float") },
  inputs = { table = tensor("float", "words", { grad = true }), id = tensor("i32", "n", { range = { 0, "words" } }) },
  forward = function(v, at, x)
    local id = x.id(at.n)
    local asked = $asked
    return where(ge(asked, 0) & lt(id, at.n_words), x.table(id), 0 / 0)
  end }
LUA
    case $asked in
    id) expect 0 'ranges of integers       ok' '' "$LATHE" check --strict guard.lua ;;
    *) expect 1 'line 6: ge was never false' '*' "$LATHE" check --strict guard.lua ;;
    esac
done

# what has more data than proofs can look at
expect 2 '' 'expected tensors of at most 67108864 elements in all' "$LATHE" check linear --problem t=2000000000
expect 2 '' 'expected tensors of at most 67108864 elements in all' "$LATHE" check softmax --problem n=2000000000

# what is no regular file is refused, by every command that reads files, and waits for nobody
mkfifo pipe.lua
for spec in pipe.lua /dev/zero; do
    for command in check explain 'draw --json' 'gen -o x.cu' 'compile -o x.fatbin' 'aot -o x' run tune; do
        expect 2 '' "spec '$spec': is a pipe or a device; a spec is a regular file of text" timeout 20 "$LATHE" \
            $command $spec
    done
    expect 2 '' "$spec: not a regular file" timeout 20 "$LATHE" run causal --problem q=4,d=8 --input q=$spec \
        --device host
    expect 2 '' "$spec: not a regular file" timeout 20 "$LATHE" check causal --input cu_q=$spec
    expect 2 '' 'given something that is not a file' timeout 20 "$LATHE" cache import $spec
done
expect 2 '' "spec '.': is a folder; a spec is a regular file of text" "$LATHE" check .
expect 0 'causal ' 'prelude.lua: this is the prelude' "$LATHE" check "$here/specs/causal.lua" "$here/specs/prelude.lua"
for problem in seqs=3,t=20 h=3 h_k=3 b=3,d=16; do # sizes that are given decide about the others
    expect 0 'chunks = recurrence      ok' '' "$LATHE" check linear_elu --problem $problem
done
expect 0 'softmax_one ' '*' sh -c '"$1" check --strict "$2"/specs/*.lua' sh "$LATHE" "$here" # every shipped spec, as a user would
expect 0 'vocabulary ' '*' sh -c '"$1" check --strict "$2"/tests/specs/good/*.lua' sh "$LATHE" "$here"
printf 'return attention {\n  mask_mod = function(at) return at.q >= at.kv end,\n}\n' >untraceable.lua
expect 1 '' 'untraceable.lua:2: ' "$LATHE" check untraceable.lua
expect 2 '' 'untraceable.lua:2: ' "$LATHE" explain untraceable.lua
expect 2 '' 'untraceable.lua:2: ' "$LATHE" run untraceable.lua --device host
broken="$(printf 'a\n#error b.lua')"
cp "$here/specs/causal.lua" "$broken"
expect 1 '' 'a?#error b.lua: the name of a spec has no line breaks' "$LATHE" check "$broken"
expect 2 '' 'a?#error b.lua: the name of a spec has no line breaks' "$LATHE" gen "$broken" --arch sm_80 -o broken.out
expect 2 '' 'the name of a spec has no line breaks' "$LATHE" aot "$broken" --arch sm_80 -o broken.out
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
expect 0 'wrong.cu: ' 'warning: wrong.lua:6: online = whole row does not hold: ' "$LATHE" gen wrong.lua -o wrong.cu
expect 0 'compared with itself' 'warning: wrong.lua:6: online = whole row does not hold: ' "$LATHE" run wrong.lua \
    --device host --problem q=4,d=8 --verify
expect 0 'compared with itself' '' "$LATHE" run causal --device host --problem q=4,d=8 --verify
{ printf 'return attention { score_mod = function(s) return ' && printf '(%.0s' $(seq 300) && printf s && printf ')%.0s' $(seq 300) && echo ' end }'; } >deep.lua
expect 1 '' 'deep.lua: brackets, tables or functions lie more than 200 deep' "$LATHE" check deep.lua
printf 'return elementwise { over = { "n" }, operands = { i = tensor("i32") }, results = { y = tensor("f32") }, forward = function(v) return f32(v.i) * 2.0 end }\n' >whole.lua
expect 0 'nothing to prove' '' "$LATHE" check whole.lua # nothing has a gradient
printf 'return attention { online_func = elementwise_weights(function(s) return floor(1000 * s) * s end) }\n' >corners.lua
expect 1 'gradients                FAILED tells nothing' 'differences meet a corner of the function' "$LATHE" check \
    corners.lua
cp err.txt corners.txt
expect 1 '' '' grep 'is above' corners.txt # it is no error that fails
printf 'return rowwise { inputs = { t = tensor("f32", 2000000000) }, forward = function(v, at, x) return v + x.t(3) end }\n' >vast.lua
expect 1 'gradients                FAILED' \
    "vast.lua:1: gradients: with input 't' the inputs have more than 2^26 elements" "$LATHE" check vast.lua
printf 'return rowwise { inputs = { s = tensor("f32", 40000000), t = tensor("f32", 40000000) }, forward = function(v, at, x) return v + x.s(1) + x.t(3) end }\n' >vast.lua # of all inputs together
expect 1 'gradients                FAILED' "with input 't' the inputs have more than 2^26 elements" "$LATHE" check \
    vast.lua
printf 'return rowwise { forward = function(x) return x * sqrt(-1.0 - x * x) end }\n' >nan.lua
expect 1 'gradients                FAILED' 'is nan derived, nan by finite differences' "$LATHE" check nan.lua
printf 'return attention { score_mod = function(s) return s * 1e7 end }\n' >large.lua
expect 0 'differences left out: of numbers too large' '' "$LATHE" check large.lua
expect 0 'comparisons left out: of scores too large' '' "$LATHE" check large.lua
expect 0 'uniform tiles' '' "$LATHE" check causal
# constants that f32 does not hold, as whoever loads the spec sets them; and products of constants that rewriting would make
expect 1 '' "softcap.lua:5: /: parameter 'CAP', which is 1e+39, is beyond the largest number of f32, 3.4e38" \
    "$LATHE" check softcap --param CAP=1e39
expect 2 '' "parameter 'CAP', which is 1e-40, is below 1.2e-38" "$LATHE" gen softcap --param CAP=1e-40 -o no.cu
expect 0 'f32 = double             ok' '' "$LATHE" check softcap --param CAP=1e5
echo 'return attention { score_mod = function(s, at) return s * 1e30 * 1e30 + at.kv * 1e-30 end }' >steps.lua
echo 'return rowwise { forward = function(v) return (v * 1e30) * 1e30 + rowsum(1e30 * (1e30 * v)) / 1e38 / 1e38 end }' >row_steps.lua
for spec in steps row_steps; do
    for pass in forward backward; do
        "$LATHE" gen $spec.lua --pass $pass --arch sm_80 -o - 2>err.txt | sed -n '/struct variant/,$p' >$spec.cu
        expect 0 "/* 1e+30 */" '' cat $spec.cu
        expect 1 '' '' grep -E 'INF \*|\* INF' $spec.cu
    done
done
# up to which sizes it holds
printf 'return attention { inputs = { b = tensor("f32", "h", 64) },\n  score_mod = function(s, at, x) return s + x.b(at.h, min(at.q - at.kv, 63)) * f32(at.q * at.q) end, mask_mod = causal }\n' >ranges.lua
expect 0 'warn   holds up to q, kv = 46341: at.q * at.q leaves 32 bits beyond (ranges.lua:2)' '' "$LATHE" check \
    ranges.lua
expect 0 'ok     holds for the sizes that are given' '' "$LATHE" check ranges.lua --problem q=40,kv=40
sed 's/min(at.q - at.kv, 63)/at.q - at.kv/' ranges.lua >table.lua
expect 0 \
    'warn   holds up to q, kv = 64: dim 1 of x.b(at.h, at.q - at.kv) is read from 0 to 127, outside 0..63 at q, kv = 128 (table.lua:2)' \
    '' "$LATHE" check table.lua
expect 0 'ok     holds up to q, kv = 16777216' '' "$LATHE" check causal
expect 0 'bytes' \
    'warning: table.lua:2: at these sizes dim 1 of x.b(at.h, at.q - at.kv) is read from 0 to 99, outside 0..63' \
    "$LATHE" gen table.lua --arch sm_90a --problem q=100,kv=100 -o table.cu
expect 0 'bytes' '' "$LATHE" gen table.lua --arch sm_90a --problem q=64,kv=64 -o table.cu
# what it is checked on: --problem, --input and --set, as of run; a failure says what was tried
cat >pages.lua <<'LUA'
return attention {
  inputs = { page = tensor("i32", "b", "slots"), bias = tensor("f32", "leaves"), wide = scalar("i32") },
  score_mod = function(s, at, x) return s + x.bias(x.page(at.b, at.kv // x.wide)) end,
}
LUA
expect 1 'FAILED not run to its end' 'page: index 16 of dim 1 (slots) is outside 0..15' "$LATHE" check pages.lua
cp err.txt tried.txt
expect 0 'tried on b=2,h=4,h_kv=2,q=9,kv=40,d=8,d_v=8,leaves=16,slots=16; page from ' '' cat tried.txt
expect 0 '(made up); wide = 1; seed 1' '' cat tried.txt
expect 0 'gradients' '' "$LATHE" check pages.lua --problem slots=400 --set wide=4
expect 1 'FAILED' 'wide = 0; seed 3' "$LATHE" check pages.lua --set wide=0 --seed 3
# a name that the other pass knows is no mistake, and changes nothing
"$LATHE" gen causal --problem d=64 --arch sm_80 -o plain.cu
expect 0 'seeded.cu: ' '' "$LATHE" gen causal --problem d=64,dlse=f32,dq=none --arch sm_80 -o seeded.cu
expect 0 '' '' cmp plain.cu seeded.cu
expect 0 'template' '' "$LATHE" explain causal --problem d=64,dlse=f32
expect 0 'rate' '' "$LATHE" run causal --device host --problem q=4,d=8,dlse=f32
expect 0 'gradients' '' "$LATHE" check causal --problem dlse=f32
expect 2 '' "problem: unknown name 'dlze'" "$LATHE" gen causal --problem dlze=f32 --arch sm_80 -o no.cu
cat >pairs.lua <<'LUA'
return attention { inputs = { shared = tensor("f32", "q", "kv", { grad = true }), own = tensor("f32", "b", "h", "q", "kv", { grad = true }) },
  score_mod = function(s, at, x) return s + x.shared(at.row, at.kv) + x.own(at.b, at.h, at.row, at.kv) end }
LUA
expect 1 '' 'Give it dims b, h, q and kv, or leave dshared out' "$LATHE" gen pairs.lua \
    --arch sm_80 --pass backward --problem dtype=bf16,deterministic=1,dq=bf16,dshared=f32 -o no.cu
expect 1 '' 'Give it dims b, h, q and kv, or leave dshared out' "$LATHE" gen pairs.lua --arch sm_80 --pass backward \
    --problem dtype=bf16,deterministic=1,len_kv=9000,kv_start=i32,down=none,dshared=f32 -o no.cu
expect 1 '' 'Give all heads and keys to one call, or leave down out' "$LATHE" gen pairs.lua \
    --arch sm_80 --pass backward --problem dtype=bf16,deterministic=1,h=2,n_h=4,h_start=i32,dq=bf16,down=f32 -o no.cu
expect 2 '' "problem: unknown name 'slot'" "$LATHE" check pages.lua --problem slot=400
expect 2 '' 'problem: expected kv to be at least 1' "$LATHE" check pages.lua --problem kv=0
expect 2 '' 'problem: expected at most 1048576 pairs' "$LATHE" check pages.lua --problem q=3000,kv=3000
expect 2 '' 'problem: expected h to be a multiple of h_kv' "$LATHE" check pages.lua --problem h=3,h_kv=2
expect 2 '' '--set wide: expected a whole number' "$LATHE" check pages.lua --set wide=x
cat >ids.lua <<'LUA'
return elementwise { over = { "b", "t" }, operands = { page = tensor("i32") }, results = { out = tensor("i32") }, forward = function(v) return v.page end }
LUA
expect 0 'kernel' '' "$LATHE" run ids.lua --device host --problem b=2,t=12 --output out=page.npy # 0 to 3
expect 0 'gradients' '' "$LATHE" check pages.lua --input page=page.npy --problem kv=48,leaves=4 --set wide=4
expect 1 'FAILED' 'slots=12; page from 0 to 3 (given); wide = 4' "$LATHE" check pages.lua --input page=page.npy \
    --problem kv=49,leaves=4 --set wide=4
# one batch that is asked for is no packed sequences; each sequence has a state; an end of a range is a number like others
expect 0 'steps = whole            ok' '' "$LATHE" check simple_gla --problem b=1,t=6
cat >twice.lua <<'LUA'
return linear_attention { inputs = { g = tensor("f32", "b", "t", "h", "t") }, decay = function(at, x) return -exp(x.g(at.b, at.t, at.h, at.t)) end }
LUA
expect 0 'steps = whole            ok' '' "$LATHE" check twice.lua --problem b=1,t=6 # a part has less of both dims
cat >named.lua <<'LUA'
return linear_attention { inputs = { state_gain = tensor("f32", "h") }, decay = function(at, x) return -exp(x.state_gain(at.h)) end }
LUA
expect 0 'steps = whole            ok' '' "$LATHE" check named.lua --problem b=1,t=6
expect 0 'kernel' '' "$LATHE" run linear --device host --problem b=2,h=2,t=3,d=4,state_out=f32 --output \
    state_out=state.npy
expect 0 'chunks = recurrence      ok' '' "$LATHE" check linear --input state=state.npy
expect 2 '' 'problem: expected slots to be 5, since proofs have a state for each sequence' "$LATHE" check linear \
    --input state=state.npy --problem b=5
expect 0 'kernel' '' "$LATHE" run ids.lua --device host --problem b=1,t=1 --output out=one.npy
expect 2 '' '--input used_kv: proofs go without it' "$LATHE" check causal --input used_kv=one.npy
{ printf '\223NUMPY\001\000v\000' && printf '%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }" &&
    printf '\000\000\000\000\002\000\000\000\006\000\000\000'; } >places.npy
expect 0 'chunks = recurrence      ok' '' "$LATHE" check simple_gla --input cu=places.npy
expect 2 '' '--input cu_q: proofs go without it' "$LATHE" check causal --input cu_q=places.npy
expect 2 '' 'problem: expected seqs to be at least 1, of which something can be proved' "$LATHE" check simple_gla \
    --problem seqs=0
expect 2 '' 'problem: expected t to be at least 1, of which something can be proved' "$LATHE" check simple_gla \
    --problem t=0
expect 2 '' 'problem: expected rows to be at least 1, of which something can be proved' "$LATHE" check swiglu \
    --problem rows=0
expect 2 '' '--input cu: expected b=1, since packed sequences lie' "$LATHE" check simple_gla --input cu=places.npy \
    --problem b=2
expect 2 '' '--input cu: expected it to end at t=7, given 6' "$LATHE" check simple_gla --input cu=places.npy \
    --problem t=7
cat >zeros.lua <<'LUA'
return elementwise { over = { "b", "h", "t" }, operands = { a = tensor("float") }, results = { g = tensor("f32") }, forward = function(v) return 0.0 * v.a end }
LUA
expect 0 'kernel' '' "$LATHE" run zeros.lua --device host --problem b=1,h=2,t=6 --output g=zeros.npy
expect 0 'gradients                ok' '' "$LATHE" check simple_gla --input g=zeros.npy
expect 0 'gradients                ok' '' "$LATHE" check delta_rule --input beta=zeros.npy
expect 0 'f32 = double             ok' '' "$LATHE" check lightning --set depth=1
expect 1 'causal' 'wrong.lua:' "$LATHE" check wrong.lua causal
printf 'x' >not_readable.lua
chmod 000 not_readable.lua
[ -r not_readable.lua ] || expect 2 '' 'Permission denied' "$LATHE" check ./not_readable.lua

expect 0 'uniform tiles, the others at the launch, by what the mask reads' '' "$LATHE" check document
cat >grid.lua <<'EOF'
local function near(at, x)
  local plane = x.h * x.w
  return le(abs(at.q // plane - at.kv // plane), 1) & le(abs(at.q % x.w - at.kv % x.w), 2)
    & le(abs(at.q % plane // x.w - at.kv % plane // x.w), 2)
end
return attention { inputs = { h = scalar("i32", { default = 16 }), w = scalar("i32", { default = 16 }) }, mask_mod = near }
EOF
cat >wave.lua <<'EOF'
return attention { mask_mod = function(at)
  return lt(sin(0.01 * at.q), 0.5) end }
EOF
expect 0 'uniform tiles, the others at the launch, by their pairs' '' "$LATHE" check grid.lua
expect 0 'uniform tiles, the others at the launch, by their pairs' '' "$LATHE" check wave.lua

# what was not looked at is said, and a mistake if that is asked for
printf 'return attention { score_mod = function(s)\n  return where(gt(s, 1e30), 0.0, s) end }\n' >unseen.lua
expect 0 'not seen                 line 2: gt was never true' '' "$LATHE" check unseen.lua
expect 1 'not seen ' 'unseen.lua:2: not seen: gt was never true' "$LATHE" check unseen.lua --strict
expect 0 'f32 = double ' '' "$LATHE" check causal softmax --strict
printf 'return attention { score_mod = function(s)\n  for i = 1, 1000 do s = s + 1e-4 * exp(-s) end\n  return s end }\n' >slow.lua
expect 0 ' part ' '' "$LATHE" check slow.lua --seconds 1
expect 1 ' part ' 'gradients: time ran out before all of it was looked at; --seconds gives it more' "$LATHE" check \
    slow.lua --seconds 1 --strict
expect 2 '' '--seconds' "$LATHE" check causal --seconds 0

# explain
expect 0 \
    'each tile is judged once a launch, by grid_bf16_map: with h = 16, w = 16, of the tiles 87 % are left out, 0 % need no mask, 13 % are masked' \
    '' "$LATHE" explain grid.lua --problem q=4096
expect 0 'mask_kept    scalar  i32' '' "$LATHE" explain grid.lua
"$LATHE" explain causal | grep -q mask_kept && complain 'a mask without a map has one to keep'
expect 0 'kernel        grid_bf16_map: ' '' "$LATHE" explain grid.lua --problem q=4096
expect 0 'kernel        grid_bf16_bwd_map: ' '' "$LATHE" explain grid.lua --problem q=4096 --pass backward
expect 0 'once a launch, by wave_bf16_map: of the tiles 0 % are left out, 0 % need no mask, ' '' "$LATHE" explain \
    wave.lua --problem q=4096
expect 0 'dtype=bf16,b=2,h=8,h_kv=2,q=100,kv=100,d=64,d_v=64' '' "$LATHE" explain causal --problem \
    b=2,h=8,h_kv=2,q=100,d=64
expect 0 'template' '' "$LATHE" explain causal
expect 0 'sm_90a' '' "$LATHE" explain causal --arch sm_80 --arch sm_90a
expect 0 'template      attention_fwd_sm90' '' "$LATHE" explain causal --arch sm_90a
expect 0 'not chosen    attention_fwd_sm90: compute capability 8.0; it needs 9.0' '' "$LATHE" explain causal --arch \
    sm_80
expect 0 'template      attention_fwd_sm80' '' "$LATHE" explain causal --arch sm_90a --template attention_fwd_sm80
expect 1 'attention_fwd_sm80: attention_fwd_sm90 was asked for' '' "$LATHE" explain causal --template attention_fwd_sm90
expect 1 'attention_bwd_sm80: computes the backward pass only' '' "$LATHE" explain causal --template attention_bwd_sm80
expect 1 'attention_fwd_sm80: computes the forward pass only' '' "$LATHE" explain causal --pass backward --template \
    attention_fwd_sm80
expect 0 'template' '' "$LATHE" explain rms_norm --problem rows=4096,n=8192
expect 1 'not served' '' "$LATHE" explain causal --problem dtype=f64
expect 0 'attention_bwd_sm80' '' "$LATHE" explain causal --pass backward
expect 0 'busy          8 of 132 multiprocessors (6 %): there are 8 query tiles' '' "$LATHE" explain causal --arch \
    sm_90a --template attention_fwd_sm90 --problem h=8,q=1,kv=4096
expect 0 'busy          2 of 132 multiprocessors (2 %): there are 2 query tiles' '' "$LATHE" explain full --arch \
    sm_90a --template attention_fwd_sm90 --problem h=64,h_kv=2,q=1,kv=4096
expect 0 'busy          6 of 108 multiprocessors (6 %): there are 6 blocks of keys' '' "$LATHE" explain causal \
    --problem h=6,h_kv=2,q=300 --pass backward
expect 0 \
    'where the kernel meets it: of the tiles 44 % are left out, 44 % need no mask, 12 % are masked pair by pair' '' \
    "$LATHE" explain causal
expect 0 'once a launch, by document_bf16_map: the tables that the mask reads decide what is left out' '' "$LATHE" \
    explain document
expect 0 'by its corners, where the kernel meets it: the tables that the mask reads' '' "$LATHE" explain prefix_lm
expect 0 'meets it: with window = 1024, of the tiles 44 % are left out, 44 % need no mask' '' "$LATHE" explain \
    sliding_window
expect 0 'meets it: with window = 128, of the tiles 77 % are left out, 0 % need no mask, 23 % are masked' '' \
    "$LATHE" explain sliding_window --set window=128
for value in wide 1.5 1e39; do
    expect 2 '*' "--set window: expected a whole number in the range of its dtype, given '$value'" "$LATHE" explain \
        sliding_window --set window=$value
    expect 2 '*' "--set q_start: expected a whole number in the range of its dtype, given '$value'" "$LATHE" explain \
        causal --set q_start=$value
done
expect 2 '*' "--set: unknown name 'windows'; known: window q_start" "$LATHE" explain sliding_window --set windows=1
expect 1 '' "parameter 'CAP', which is 1e+39, is beyond the largest number of f32" "$LATHE" check softcap --param \
    CAP=1e39
expect 1 '' "--param CAP: expected a number, given 'nan'" "$LATHE" check softcap --param CAP=nan
"$LATHE" explain full | grep -q '^  mask ' && complain 'a spec without a mask has a line about it'
expect 0 'the forward kernel runs first' '' "$LATHE" explain causal --pass backward --problem dtype=bf16,d=64,o=none
expect 1 'not served' '' "$LATHE" explain causal --pass backward --problem dtype=bf16,d=8
expect 0 'causal_attention_bwd' '' "$LATHE" gen causal --pass backward --arch sm_80 -o x.cu
expect 1 '' 'lathe: ' "$LATHE" gen causal --pass backward --problem dtype=bf16,d=8 -o x.cu

# gen: one file, the same every time, and every shipped spec
expect 0 'causal.cu: ' 'no --arch is given: the code is for sm_80' "$LATHE" gen causal --problem d=64 -o causal.cu
"$LATHE" gen causal --problem d=64 --arch sm_80 -o - >again.cu
expect 0 '' '' cmp causal.cu again.cu
expect 0 '__global__' '' cat causal.cu
expect 0 'causal_bf16_fwd: blocks b * h * ceil(q / ' '' cat causal.cu
expect 1 '*' '*' grep -n '#include "' causal.cu
expect 0 'softmax.cu: ' '' "$LATHE" gen "$here/specs/softmax.lua" --problem dtype=f32,n=100 -o softmax.cu
for spec in $(cat wanted.txt); do
    sizes=
    case $spec in # dims that have no default
    group_*) sizes='--problem rows=64,n=512,groups_of=4,channels_of=8' ;;
    block_mask) sizes='--problem q_blocks=16,kv_blocks=16' ;;
    flamingo) sizes='--problem images=4' ;;
    graphormer) sizes='--problem distances=7,kinds=5' ;;
    pair_bias) sizes='--problem pairs=1' ;;
    sandwich) sizes='--problem distances=1024' ;;
    shared_prefix) sizes='--problem docs=8' ;;
    esac
    expect 0 "$spec" '' "$LATHE" gen "$spec" $sizes --arch sm_80 -o "$spec.cu"
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
