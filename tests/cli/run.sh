#!/bin/sh
# run.sh: `lathe run` on the host device: problems, scalars, tensors from and to .npy files.
. "$(dirname "$0")/common.sh"

small='b=1,h=4,h_kv=2,q=33,kv=70,d=32,d_v=16'
run() { "$LATHE" run --device host "$@"; }

expect 0 'problem    dtype=bf16,b=1,h=4,h_kv=2,q=33,kv=70,d=32,d_v=16' '' run causal --problem $small --verify
for dtype in f32 f16 bf16 f64; do
    expect 0 '132 of 132 rows: ok' '' run causal --problem dtype=$dtype,$small --verify
    expect 0 '7 of 7 rows: ok' '*' run layer_norm --problem dtype=$dtype,rows=7,n=100 --verify
done
for dtype in f8e4m3 f8e5m2 i8; do # k and v have dtypes of their own; their gradients that of q
    expect 0 "problem    dtype=bf16,k=$dtype,b=1" '*' run causal --problem dtype=bf16,k=$dtype,$small --verify
    expect 0 '132 of 132 rows: ok' '*' run sinks --problem dtype=f16,k=f8e4m3,v=$dtype,$small --verify
    expect 0 'dv: max abs' '*' run causal --pass backward --problem dtype=bf16,v=$dtype,$small --verify
    expect 2 '' "expected dv to be f32, f16, bf16 or none, given '$dtype'" \
        run causal --pass backward --problem dtype=bf16,v=$dtype,dv=$dtype,$small
    expect 2 '' "argument 'k': expected dtype f32, f16 or bf16, given $dtype" run linear --problem k=$dtype,t=9
    expect 2 '' "argument 'x': expected dtype f32, f16 or bf16, given $dtype" run rms_norm --problem x=$dtype,rows=9
done
queries=q=f8e4m3,k=f8e4m3,v=f8e4m3 # q, too, beside k and v
for dtype in f32 f16 bf16 f64; do
    expect 0 'relative L2' '*' run sinks --problem dtype=$dtype,$queries,$small --verify
done
expect 0 "problem    dtype=f16,$queries,b=1" '' run causal --problem dtype=bf16,o=f16,$queries,$small
expect 0 '(bound 6e-02), 132 of 132 rows: ok' '' run causal --problem $queries,$small --verify
expect 2 '' "argument 'q': expected dtype f32, f16, bf16 or f8e4m3, given i8" run causal --problem q=i8,$small
expect 2 '' "argument 'v': expected dtype f8e4m3 beside 'q' of f8e4m3, given bf16" run causal --problem q=f8e4m3,k=f8e4m3,$small
expect 2 '' "argument 'q': expected dtype f32, f16 or bf16, given f8e4m3" \
    run causal --pass backward --problem q=f8e4m3,$small
for spec in $("$LATHE" list --names); do
    more=
    case $("$LATHE" explain "$spec" 2>/dev/null | head -n 1) in
    *'(attention, '*) problem=$small ;;
    *'(linear_attention, '*) problem=b=2,h=4,h_k=2,t=33,d=16,d_v=8 ;;
    *'(rowwise, '*) problem=rows=9,rows1=2,n=48 ;;
    *) problem=$("$LATHE" explain "$spec" 2>/dev/null | sed -n '/^problem/{n;s/^ *//;s/=64/=6/g;p;}') ;; # every dim 6
    esac
    case $spec in
    group_*) problem=rows=9,rows1=2,n=48,groups_of=3,channels_of=6 more='--set groups=3' ;; # dims that have no default
    block_mask) problem=$small,q_blocks=1,kv_blocks=2 ;;
    flamingo) problem=$small,images=3 more='--set tokens=20' ;;
    graphormer) problem=$small,distances=7,kinds=5 ;;
    pair_bias) problem=$small,pairs=1 ;;
    sandwich) problem=$small,distances=80 ;;
    shared_prefix) problem=$small,docs=4 ;;
    natten_2d) more='--set n_2=10' ;;
    natten_3d) more='--set n_2=4 --set n_3=5' ;;
    sliding_tile) more='--set n_2=2 --set n_3=3 --set tile=4 --set text=7' ;;
    md_lrpe_2d) more='--set n_2=4' ;;
    md_lrpe_3d) more='--set n_2=4 --set n_3=5' ;;
    lion | adamw | adamw_master) # lists of tensors
        expect 2 '' 'which lathe run does not make; call it from C' run $spec
        continue
        ;;
    esac
    expect 0 ': ok' '*' run "$spec" --problem "$problem" --verify $more
done
# The backward pass: the forward pass gives o and the finals, the reference computes them anew.
for spec in causal rope sinks retention relative_bias; do
    expect 0 'elements: ok' '' run $spec --pass backward --problem h=2,q=33,kv=40,d=16 --verify
    expect 0 'elements: ok' '' run $spec --pass backward --problem dtype=f64,h=2,q=33,kv=40,d=16 --verify
done
# What a call gives of the forward pass counts, on both sides of --verify.
run rms_norm --pass backward --problem dtype=f32,rows=3,n=8 --output dx=own.npy >own.txt
expect 0 'dx: max abs' '' run rms_norm --pass backward --problem dtype=f32,rows=3,n=8 --input rstd=random --output dx=given.npy --verify
expect 1 '*' '*' cmp own.npy given.npy
for dtype in f32 bf16; do
    run causal --pass backward --problem dtype=$dtype,h=2,q=5,kv=9,d=16 --output dq=own.npy >own.txt
    expect 0 'dq: max abs' '' run causal --pass backward --problem dtype=$dtype,h=2,q=5,kv=9,d=16 --input o=random --input lse=random \
        --output dq=given.npy --verify
    expect 1 '*' '*' cmp own.npy given.npy
done
expect 2 '' "argument 'lse': expected that of these keys" run causal --pass backward --problem h=2,q=5,kv=9,d=16,o=none --input lse=random
# A bias of all scores of a row cancels in softmax: its gradient is 0, and what is left of it is rounding alone.
echo 'return attention {
  inputs = { bias = tensor("f32", "h", { grad = true }) }, score_mod = function(s, at, x) return s + x.bias(at.h) end }' >cancelled.lua
for dtype in f32 bf16; do
    expect 0 'dbias: it is 0 but for rounding' '' run cancelled.lua --pass backward --problem dtype=$dtype,h=2,q=64,d=32 --verify
done
expect 0 '"of_largest_gradient": true' '' run cancelled.lua --pass backward --problem h=2,q=64,d=32 --verify --json
expect 0 '"of_largest_gradient": false' '' run causal --problem h=2,q=64,d=32 --verify --json
# A row of one key has weight 1, whatever its score: dq and dk are 0, and judged by the terms that cancel.
for dtype in f32 bf16; do
    expect 0 'dq: it is 0 but for rounding' '' run full --pass backward --problem dtype=$dtype,h=2,q=1,kv=1,d=16 --verify
    expect 0 'dq: relative error' '' run nsa --pass backward --problem dtype=$dtype,h=2,h_kv=1,t=3,seqs=3,d=16,block=16,blocks=1,window=4 --verify
done
# An optional input that is left out has no gradient, as kernels refuse to make one.
run hstu --pass backward --problem h=2,q=40,d=16,distances=64 --verify >left_out.txt
expect 0 'dv: max abs' '' cat left_out.txt
expect 1 '' '' grep dbias left_out.txt
run hstu --pass backward --problem h=2,q=40,d=16,distances=64 --input bias=random --verify >given.txt
expect 0 'dbias: max abs' '' cat given.txt
# One that is small is none of rounding, and is measured by itself.
sed 's/x.bias(at.h)/1e-12 * x.bias(at.h) * at.kv/' cancelled.lua >small.lua
run small.lua --pass backward --problem dtype=bf16,h=2,q=64,d=32 --verify >small.txt
expect 0 'dbias: max abs' '' cat small.txt
expect 1 '' '' grep 'dbias: it is 0' small.txt
# linear attention: packed sequences, states, a pool of which one state in eight is not asked for
for spec in linear_elu mamba2 rwkv6 gated_delta gated_delta_product flao_lrpe rwkv7 comba; do
    case $spec in linear_elu) states=state=f32,state_out=f32,norm=f32,norm_out=f32 ;; *) states=state=f32,state_out=f32 ;; esac
    expect 0 'state_out: max abs' '' run $spec --problem dtype=f32,h=2,t=40,d=16,seqs=5,$states --verify
    expect 0 'state_out: max abs' '' run $spec --problem dtype=f16,b=3,h=2,t=1,d=16,slots=9,$states --verify
done
for states in state=bf16,state_out=bf16 state=f16,states=f16,states_index=i32,kept=3; do
    expect 0 'verify     state' '' run simple_gla --problem dtype=bf16,b=2,h=2,t=3,d=16,$states --verify
done
expect 0 'dstate: max abs' '' run simple_gla --pass backward --problem h=2,t=7,d=16,state=f16,dstate_out=f16,dstate=f16 --verify
expect 0 'o: max abs' '' run causal --problem dtype=f64,k=i8,v=f8e4m3,h=2,q=9,d=16 --verify
expect 2 '' "problem: expected k to be f32, f16, bf16, f8e4m3, f8e5m2 or i8, given 'u8'" run causal --problem k=u8
expect 0 'slots=300001' '' run linear --problem h=1,t=1,d=1,b=300000,slots=300001 # no two of many have one state
for spec in linear mamba2 kda gated_delta_product gdn2; do
    expect 0 'dstate: max abs' '' run $spec --pass backward --problem dtype=f32,h=2,t=30,d=8,seqs=4,state=f32,dstate_out=f32,dstate=f32 --verify
done
expect 0 'dstate: max abs' '' run simple_gla --pass backward --problem dtype=f32,b=3,h=2,t=9,d=8,slots=7,state=f32,dstate_out=f32,dstate=f32,state_out_index=i32 --verify
# Several heads of q read a state.
echo 'return linear_attention { query_heads = 4, inputs = { g = tensor("float", "b", "h", "t", { grad = true, range = { -1, 0 } }) },
  decay = function(at, x) return x.g(at.b, at.h, at.t) end }' >heads.lua
expect 0 'verify     state_out: max abs' '' run heads.lua --problem dtype=f16,b=3,h=2,t=1,d=16,slots=9,state=f32,state_out=f32 --verify
expect 0 'dstate: max abs' '' run heads.lua --pass backward --problem h=4,h_k=2,t=30,d=8,seqs=4,state=f32,dstate_out=f32,dstate=f32 --verify
expect 0 'gradients                ok' '' "$LATHE" check heads.lua
# An input over the sequences that is read at at.b is that of each batch; packed, at.b is 0, and entry 0 would be that of all.
echo 'return linear_attention { inputs = { t = tensor("f32", "seqs") }, decay = function(at, x) return -abs(x.t(at.b)) end }' >by_batch.lua
expect 0 'o: max abs' '' run by_batch.lua --problem dtype=f32,b=3,h=1,t=9,d=4 --verify
expect 1 '' "argument 'cu': 't' is read at at.b, which is 0 in all packed sequences" run by_batch.lua --problem dtype=f32,h=1,t=9,d=4,seqs=3
expect 1 '' "which is 0 in all packed sequences" run by_batch.lua --pass backward --problem dtype=f32,h=1,t=9,d=4,seqs=3
expect 1 '' "which is 0 in all packed sequences" "$LATHE" gen by_batch.lua --arch sm_80 --problem dtype=bf16,h=1,t=90,d=64,seqs=3 -o by_batch.cu
expect 0 'gradients                ok' '' "$LATHE" check by_batch.lua
echo 'return linear_attention { inputs = { t = tensor("f32", "seqs"), id = tensor("i32", "t") },
  decay = function(at, x) return -abs(x.t(x.id(at.t))) end }' >by_token.lua
expect 0 'o: max abs' '' run by_token.lua --problem dtype=f32,h=1,t=9,d=4,seqs=9 --verify
expect 2 '' 'expected a result to compute, given none; this pass gives' run cross_entropy --problem rows=2,n=4,loss=none,lse=none
# keys in pages, of which the table is drawn; tokens that go to slots of a cache
for problem in page=16,q=1,kv=64,used_kv=i32 page=3,b=3,q=5,kv=33,used_kv=i32 page=1,seqs=3,q=9,used_kv=i32; do
    for spec in causal rope sinks; do
        expect 0 'rows: ok' '' run $spec --problem h=4,h_kv=2,d=16,$problem --verify
    done
done
# packed sequences of which not all keys are in use: no more than each has
for problem in cu_kv=i32,used_kv=i32,q=90,kv=130 used_kv=i32,q=90,kv=90; do
    expect 0 'rows: ok' '' run full --problem h=2,d=16,seqs=7,cu_q=i32,$problem --verify
done
# parts of rows, and what puts them together
expect 0 'part_rows: max abs' '' run sinks --problem $small,part_o=f32,part_rows=f32 --verify
expect 0 'part_rows: max abs' '' run causal --problem b=3,h=4,h_kv=2,d=16,page=16,q=1,kv=64,used_kv=i32,part_o=f32,part_rows=f32 --verify
expect 0 'lse: max abs' '' run sinks --pass combine --problem parts=3,h=2,q=8,d_v=16 --verify
expect 0 'o: max abs' '' run rope_partial --pass combine --problem parts=3,h=2,q=8,d_v=8 --verify # its q has 16 or more
# several specs in order
expect 0 'blocks: 100.00 %' '' run nsa --problem dtype=f32,h=4,h_kv=2,t=100,seqs=3,d=16,block=16,blocks=3,window=20 --verify
expect 0 'dg_swa: relative error' '' run nsa --pass backward --problem dtype=f16,h=4,h_kv=2,t=90,d=16,d_v=24,block=16,blocks=3,window=20 --verify
expect 0 '"verified": true' '' run nsa --problem dtype=f64,h=1,t=33,d=8,block=4,blocks=2,window=5 --verify --json
expect 2 '' "problem: unknown name 'q'; nsa knows dtype, h, h_kv, d, d_v, t, seqs, block, blocks, window" run nsa --problem q=7
expect 2 '' "problem: t: expected a number from 1 to 1048576, given '0'" run nsa --problem t=0
expect 2 '' 'nsa: h: expected a multiple of h_kv, 2, given 3' run nsa --problem h=3,h_kv=2
expect 2 '' 'run nsa: --set is of a single spec' run nsa --set window=3
expect 2 '' '--verify would take the host device too long' run nsa --problem t=100000 --verify
expect 2 '' "'part_o': expected 'part_rows' beside it" run sinks --problem $small,part_o=f32
expect 2 '' '--output o: the problem leaves it out' run sinks --problem $small,part_o=f32,part_rows=f32 --output o=o.npy
expect 2 '' 'this spec has no combine pass: it puts parts of rows of attention together, and this is rowwise' run rms_norm --pass combine
expect 0 'dk: max abs' '' run causal --pass backward --problem dtype=bf16,b=2,page=16,kv=64,q=4,h=2,d=16,used_kv=i32 --verify
expect 2 '' 'expected seqs * kv below 2^31 in a backward pass' run causal --pass backward --problem seqs=3,page=256,most=4000000,pool=9,q=4,h=2,d=16
expect 2 '' 'expected kv to be most' run causal --problem page=16,kv=65,q=4,h=2,d=16
expect 2 '' 'expected pages of 1 to 256 keys' run causal --problem page=257,q=4,h=2,d=16
expect 0 'k_cache: max abs' '' run cache_append --problem dtype=bf16,b=3,t=4,h_kv=2,i=8,slots=20,k_cache=f8e4m3,v_cache=i8 --verify
expect 2 '' 'expected k_cache to be f32, f16, bf16, f8e4m3, f8e5m2 or i8' run cache_append --problem dtype=bf16,k_cache=u8
expect 0 'k_cache: max abs' '' run rope_append --problem dtype=f32,b=3,t=4,h=4,h_kv=2,i=8,slots=20 --verify
expect 2 '' '--input cu_kv: the problem leaves it out; bring it in by cu_kv=DTYPE in --problem' run causal --problem $small --input cu_kv=random
expect 2 '' '--input o: the problem leaves it out' run causal --pass backward --problem h=2,q=33,kv=40,d=16,o=none --input o=random
expect 2 '' "argument 'state': expected 'norm' beside it" run linear_elu --problem h=1,t=4,d=8,state=f32
expect 2 '' "expected b=1, since packed sequences lie one behind the other" run linear --problem b=2,h=1,t=4,d=8,cu=i32
{ printf '\223NUMPY\001\000v\000' && printf '%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (0,), }"; } >none.npy
expect 2 '' "argument 'cu': expected 1 or more along dim 0, given 0 in none.npy" run linear --problem h=1,t=4,d=8 --input cu=none.npy
expect 0 'o: max abs' '' run linear --problem h=1,t=4,d=8,seqs=0 --verify # no sequence: all tokens are padding
expect 2 '' "argument 'cu': expected it to end at t=4; a backward pass takes tensors without tokens behind the last sequence, given 0" run linear --pass backward --problem h=1,t=4,d=8,seqs=0
expect 0 'dstate: max abs' '' run gated_delta --pass backward --problem h=2,t=0,d=8,seqs=3,state=f32,dstate_out=f32,dstate=f32 --verify
expect 2 '' 'expected h to be a multiple of h_k' run linear --problem h=3,h_k=2,t=4,d=8
expect 2 '' "problem: 'states' is not taken: a token makes several updates" run gated_delta_product --problem h=1,t=4,d=8,states=f32
expect 2 '' "unknown name 'q'; this spec knows dtype, " run linear --problem q=7
printf 'return linear_attention { inputs = { g = tensor("f32", "b", "h", "t") },\n decay = function(at, x) return -2.0 * x.g(at.b, at.h, at.t) end }\n' >any_sign.lua
expect 2 '' 'any_sign.lua:2: decay: expected the logarithm of a factor of at most 1' run any_sign.lua --problem h=1,t=40,d=8
expect 0 'dweight: max abs' '' run layer_norm --pass backward --problem dtype=f32,rows=9,n=33 --verify
expect 0 'cut by how many it has, whatever else is in the batch' '' "$LATHE" explain causal --arch sm_90a \
    --problem dtype=bf16,h=8,h_kv=2,q=1,kv=9000,d=64,deterministic=batch
expect 0 'steps of generation are faster as batches' '' "$LATHE" explain causal --arch sm_90a \
    --problem dtype=bf16,h=8,h_kv=2,q=4,kv=9000,d=64,seqs=4,deterministic=batch
expect 1 'is a sum over points, which is cut by how many there are' '' "$LATHE" explain embedding --pass backward \
    --problem dtype=bf16,deterministic=batch
expect 0 '3 d + 2 d_v' '' run causal --pass backward --problem h=2,q=4,d=8,dlse=f32,deterministic=1 --verify
expect 0 'dv: max abs' '' run causal --pass backward --problem h=2,q=4,d=8,dq=none,o=none,lse=none --verify --output dv=dv.npy
expect 2 '' "argument 'id': expected no value, since its range" run embedding --pass backward --problem b=2,t=3,d=4,words=0
expect 2 '' 'the problem leaves every result out' run act_relu --problem rows=2,n=8,y=none --verify
expect 2 '' '--output y: the problem leaves it out' run act_relu --problem rows=2,n=8,y=none --output y=y.npy
expect 2 '' "unknown name 'tensors'; this spec knows dtype, a, b, rows, n, x (f32, f16 or bf16), y (f32, f16, bf16 or none)" run act_relu --problem tensors=7
expect 2 '' 'expected dlse to be f32 or none, given' run causal --pass backward --problem dlse=f16
# an argument may be named with the dtype that it has
expect 0 'kernel' '' run causal --problem h=2,q=4,d=8,lse=f32
expect 0 'dq: max abs' '' run causal --pass backward --problem h=2,q=4,d=8,lse=f32 --verify
expect 2 '' 'expected lse to be f32 or none, given' run causal --problem lse=f16
# what the gradient does not read is no result, and neither is what it begins with
expect 0 'dx: max abs' '' run logsumexp --pass backward --problem rows=4,n=8 --verify
cat >apart.lua <<'END'
return elementwise { over = { 'b', 'i' }, operands = { x = tensor('float'), u = tensor('float') },
  results = { y = tensor('float'), z = tensor('f32', 'b') },
  forward = function(v) return { y = sin(v.x), z = 2.0 * v.u } end }
END
expect 0 'dx: max abs' '' run apart.lua --pass backward --problem b=3,i=5 --verify
expect 2 '' 'dq=none' run causal --pass backward --problem h=2,q=4,d=8,dq=none --output dq=dq.npy
expect 2 '' 'expected lse to be given too' run causal --pass backward --problem h=2,q=4,d=8 --input o=random

expect 0 'median of 3 launches' '' run softmax --problem rows=8,n=8 --repeat 3

# empty and odd sizes
printf 'return rowwise { forward = function(x) return x * 1e5 end }\n' >large.lua # f16 ends at 65504
expect 0 '3 of 3 rows: ok' '' run large.lua --problem dtype=f16,rows=3,n=40 --verify
expect 0 '0 of 0 rows: ok' '' run causal --problem q=0,kv=5,d=16 --verify
expect 0 'rows: ok' '' run causal --problem q=5,kv=0,d=16 --verify
expect 0 'rows: ok' '' run causal --problem b=0,q=5,d=16 --verify
expect 0 'rows: ok' '' run softmax --problem rows=0,n=5 --verify

# live pairs: causal 10 x 10 has 55; end-aligned 3 x 10 has 27; start-aligned 6; a window
expect 0 'each of 55 pairs' '' run causal --problem b=1,h=1,q=10,d=16
expect 0 'each of 27 pairs' '' run causal --problem b=1,h=1,q=3,kv=10,d=16
expect 0 'each of 6 pairs' '' run causal --problem b=1,h=1,q=3,kv=10,d=16 --set q_start=0
expect 0 'each of 1.8e+05 pairs' '' run full --problem b=2,h=1,q=300,d=8
expect 0 'each of 9 pairs' '' run causal --problem b=1,h=1,q=3,kv=4,len_kv=10,d=16 --set kv_start=6
expect 0 '12 of 12 rows: ok' '' run document --problem b=2,h=2,q=3,kv=4,len_kv=10,n_h=8,d=16 --set kv_start=6 --set h_start=4 --verify
expect 2 '' 'say where it begins by --set kv_start=VALUE' run causal --problem b=1,h=1,q=3,kv=4,len_kv=10,d=16
expect 2 '' 'say how many there are by len_kv=N in --problem' run causal --problem b=1,h=1,q=3,d=16 --set kv_start=6
expect 2 '' "argument 'kv_start': expected from 0 to 6, with kv=4 of len_kv=10 in this call, given 8" run causal --problem q=3,kv=4,len_kv=10,d=16 --set kv_start=8
cut='causal --problem h=2,q=3,kv=8,len_kv=24,kv_chunk=i32,kv_step=i32,d=16' # keys in chunks of 2, as of one of 3 GPUs
expect 0 '6 of 6 rows: ok' '' run $cut --set kv_start=2 --set kv_chunk=2 --set kv_step=6 --verify
expect 2 '' "argument 'kv_chunk': expected 'kv_step' beside it" run $cut --set kv_start=2 --set kv_chunk=2
expect 2 '' "expected 'kv_chunk', 1 or more, keys or more, given kv_step=1 and kv_chunk=2" run $cut --set kv_start=2 --set kv_chunk=2 --set kv_step=1
expect 2 '' 'is one of len_kv=24, given kv_start=6, where it is key 25' run $cut --set kv_start=6 --set kv_chunk=2 --set kv_step=6

# names and scalars
expect 2 '' "--set: unknown name 'x'; known: q_start kv_start h_start kv_chunk kv_step" run causal --set x=1
expect 2 '' "--input: unknown name 'lse'; known: q k v" run causal --input lse=a.npy
expect 2 '' "--output: unknown name 'q'; known: o lse" run causal --output q=a.npy
expect 2 '' "--set: unknown name 'x'; known: none" run softmax --set x=3
expect 2 '' "--output: expected NAME=FILE.npy, given 'o=-'" run causal --output o=-
expect 2 '' "--input: expected NAME=FILE.npy, given 'q=-'" run causal --input q=-
expect 2 '' "--set q_start: expected a whole number" run causal --set q_start=0.5
expect 2 '' "--set eps: expected a number that f32 holds" run rms_norm --set eps=1e-400
expect 2 '' "--set q_start: expected a whole number" run causal --set q_start=nan
expect 2 '' "--set eps: expected a number, given 'small'" run rms_norm --set eps=small
for value in 1e39 -1e39 1e-39 1e400; do
    expect 2 '' "--set eps: expected a number that f32 holds" run rms_norm --problem rows=3,n=16 --set eps=$value
done
expect 0 'rows: ok' '' run rms_norm --problem rows=3,n=16 --set eps=0 --verify
expect 0 'rows: ok' '' run rms_norm --problem rows=3,n=16 --set eps=0.5 --verify
cat >gain.lua <<'LUA'
return rowwise {
  inputs = { gain = scalar("f32"), shift = scalar("i32") },
  forward = function(x, at, p) return x * p.gain + p.shift end,
}
LUA
expect 0 'rows: ok' "scalar 'gain' is random" run gain.lua --problem rows=2,n=9 --set shift=3 --verify
expect 0 'rows: ok' '' run gain.lua --problem rows=2,n=9 --set shift=-3 --set gain=0x1p-3 --verify
expect 2 '' "--set shift: expected a whole number" run gain.lua --set shift=3000000000
expect 0 'rows: ok' '' run sigmoid --problem $small --set bias=-2 --verify

# devices: there may be a GPU or not, but not a thousandth one
expect 3 '' 'lathe: ' "$LATHE" run causal --device cuda:1000

# a read outside a tensor names the spec line
cat >outside.lua <<'LUA'
return attention {
  inputs = { table = tensor("f32", 4) },
  score_mod = function(s, at, x) return s + x.table(at.kv) end,
}
LUA
expect 2 '' 'outside.lua:3: ' run outside.lua --problem h=1,q=2,kv=9,d=16

# files
expect 2 '' 'nowhere.npy: cannot be opened' run causal --input q=nowhere.npy
printf 'nonsense' >bad.npy
expect 2 '' 'bad.npy: not a .npy file' run causal --input q=bad.npy
expect 2 '*' 'cannot be written' run softmax --problem rows=2,n=4 --output y=/nowhere/y.npy
expect 2 '' "argument 'q_start': expected positions between -2^24 and 2^24, given 2147483647 with 4 rows" run causal --problem h=1,q=4,d=16 --set q_start=2147483647
expect 2 '' "expected positions between -2^24 and 2^24, given -16777216" run causal --problem h=1,q=4,d=16 --set q_start=-16777216
expect 0 '4 of 4 rows: ok' '' run causal --problem h=1,q=4,d=16 --set q_start=16777212 --verify
# no room: half a file is not left behind (a limit of 4 KiB a file in the place of a full disk)
(ulimit -f 8 && run softmax --problem rows=64,n=64 --output y=half.npy) >limit.txt 2>&1
half=$?
expect 0 'half.npy: cannot be written to its end: File too large' '' cat limit.txt
expect 0 '' '' test $half = 2
expect 1 '' '' test -e half.npy
(ulimit -f 8 && "$LATHE" gen softmax -o half.cu) >limit.txt 2>&1
expect 0 'half.cu: cannot be written: File too large' '' cat limit.txt
expect 1 '' '' test -e half.cu
# ... and what was there stays; what replaces a file keeps its mode and links to it
printf 'before' >old.cu && chmod 600 old.cu && ln -s old.cu link.cu && cp old.cu expected.cu
(ulimit -f 8 && "$LATHE" gen softmax -o old.cu) >limit.txt 2>&1
expect 0 'old.cu: cannot be written: File too large' '' cat limit.txt
expect 0 '' '' cmp old.cu expected.cu
expect 0 '*' '' "$LATHE" gen softmax -o link.cu
expect 0 '' '' test -L link.cu
expect 0 '-rw-------' '' ls -l old.cu
expect 1 '' '' cmp -s old.cu expected.cu
expect 1 '' '' sh -c 'ls | grep partial'
expect 0 '*' '' run softmax --problem dtype=f32,rows=2,n=4 --output y=y.npy
expect 0 '' '' cmp -n 6 y.npy "$(printf '\223NUMPY' >mark && echo mark)"

# gradients of more than the host device can look at: of a launch with the seeds of some rows, in full
printf 'return attention { mask_mod = function(at) return eq(at.q // 8, at.kv // 8) end }\n' >near.lua
expect 0 'verify     of a launch with the seeds of 765 of 3400 rows, those of the others zero' '' run near.lua --pass backward \
    --problem dtype=f32,h=1,q=3400,d=128 --verify --output dv=dv.npy
for name in dq dk dv; do
    grep -q "verify     $name: .* 435200 elements: ok" out.txt || complain "$name is not compared: $(cat out.txt)"
done
expect 0 '*' '' run near.lua --pass backward --problem dtype=f32,h=1,q=3400,d=128 --output dv=whole.npy
expect 0 '' '' cmp dv.npy whole.npy # the file has what the run itself gave

# ---- a line of progress, where a terminal can rewrite one --------------------------------------------
if command -v script >/dev/null; then
    for terminal in dumb '' xterm; do
        TERM=$terminal script -qec "'$LATHE' run causal --device host --problem h=16,q=2048,d=64" typescript </dev/null >screen.txt 2>&1
        escapes=$(tr -d -c '\033' <screen.txt | wc -c)
        case $terminal in
        xterm) [ "$escapes" -gt 0 ] || complain 'no line of progress on a terminal' ;;
        *) [ "$escapes" = 0 ] || complain "escape codes on TERM='$terminal'" ;;
        esac
    done
else
    echo 'skipped: the line of progress: there is no program script'
fi

if ! python3 -c 'import numpy' 2>/dev/null; then
    echo 'skipped: exchange with NumPy: python3 has no numpy'
    expect 3 '' 'tune: there is no GPU to measure on' "$LATHE" tune causal --problem h=1,q=4,d=16 --device host

finish
fi

python3 - <<'PY'
import numpy as np
rng = np.random.default_rng(0)
q = rng.standard_normal((2, 4, 5, 8)); k = rng.standard_normal((2, 2, 7, 8)); v = rng.standard_normal((2, 2, 7, 6))
np.save("q32.npy", q.astype("f4")); np.save("k32.npy", k.astype("f4")); np.save("v32.npy", v.astype("f4"))
np.save("q16.npy", q.astype("f2")); np.save("k64.npy", k); np.save("vf.npy", np.asfortranarray(v.astype("f4")))
def bits(x):
    u = x.astype("f4").view("u4")
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("u2")
np.save("qbits.npy", bits(q)); np.save("kvoid.npy", bits(k).view("V2"))
np.save("qwrong.npy", q[:, :3].astype("f4")); np.save("big.npy", q.astype(">f4")); np.save("complex.npy", q.astype("c8"))
np.save("doc.npy", np.array([[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 2, 2, 2]])); np.save("doc_far.npy", np.full((2, 7), 2**40))
np.save("nine.npy", np.zeros((1,) * 9, "f4")); np.save("nan.npy", np.full((2, 4, 5, 8), np.nan, "f4"))
PY

cat >compare.py <<'PY'
# compare.py O.npy LSE.npy or - TOLERANCE [doc]: attention in NumPy, from the files above
import sys
import numpy as np
q, k, v = (np.load(n + "32.npy").astype("f8") for n in "qkv")
k, v = k.repeat(2, 1), v.repeat(2, 1)
s = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(8)
row, key = np.arange(5)[:, None] + 2, np.arange(7)[None]
live = np.broadcast_to(row >= key, s.shape)
if "doc" in sys.argv:
    doc = np.load("doc.npy")
    live = live & (doc[:, None, 2:, None] == doc[:, None, None, :])
s = np.where(live, s, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
wanted = np.einsum("bhqk,bhkd->bhqd", p / p.sum(-1, keepdims=True), v)
given = np.load(sys.argv[1])
assert given.shape == wanted.shape, (given.shape, wanted.shape)
worst = abs(given - wanted).max()
if sys.argv[2] != "-":
    lse = np.log(p.sum(-1)) + s.max(-1)
    worst = max(worst, abs(np.load(sys.argv[2]) - lse).max())
print("worst", worst, given.dtype)
sys.exit(0 if worst < float(sys.argv[3]) else 1)
PY

# sizes come from the files
expect 0 'problem    dtype=f32,b=2,h=4,h_kv=2,q=5,kv=7,d=8,d_v=6' '' run causal --problem dtype=f32 \
    --input q=q32.npy --input k=k32.npy --input v=v32.npy --output o=o.npy --output lse=lse.npy --verify
expect 0 'float32' '' python3 compare.py o.npy lse.npy 2e-6
expect 0 '*' '' run causal --problem dtype=f16 --input q=q16.npy --input k=k64.npy --input v=vf.npy --output o=o.npy
expect 0 'float16' '' python3 compare.py o.npy - 5e-3
expect 0 '*' '' run causal --problem dtype=bf16 --input q=qbits.npy --input k=kvoid.npy --input v=v32.npy --output o=o.npy
expect 0 'float32' '' python3 compare.py o.npy - 4e-2
expect 0 '*' '' run causal --problem dtype=f64 --input q=q32.npy --input k=k32.npy --input v=v32.npy --output o=o.npy
expect 0 'float64' '' python3 compare.py o.npy - 1e-12
expect 0 '*' '' run document --problem dtype=f32 --input q=q32.npy --input k=k32.npy --input v=v32.npy \
    --input doc=doc.npy --output o=o.npy
expect 0 'worst' '' python3 compare.py o.npy - 2e-6 doc

# what is written reads back as it was
expect 0 '*' '' run softmax --problem dtype=f32,rows=3,n=5 --output y=a.npy
expect 0 '*' '' run softmax --problem dtype=f32,rows=3,n=5 --output y=b.npy
expect 0 '' '' cmp a.npy b.npy
expect 0 '*' '' run softmax --problem dtype=f32,rows=3,n=5 --seed 2 --output y=b.npy
expect 1 '*' '*' cmp a.npy b.npy
expect 0 '*' '' run softmax --problem dtype=f32 --input x=a.npy --output y=b.npy
expect 0 '' '' python3 -c '
import numpy as np
x, y = np.load("a.npy"), np.load("b.npy")
e = np.exp(x.astype("f8"))
assert x.shape == (3, 5) and abs(e / e.sum(-1, keepdims=True) - y).max() < 1e-7'

# files that do not fit
expect 2 '' "argument 'q': expected shape" run causal --problem h=4,q=5,d=8 --input q=qwrong.npy
expect 2 '' 'expected h to be a multiple of h_kv' run causal --input q=qwrong.npy --input k=k32.npy
expect 2 '' "big.npy: dtype '>f4' is not read" run causal --input q=big.npy
expect 2 '' "complex.npy: dtype '<c8' is not read" run causal --input q=complex.npy
expect 2 '' 'as the bits of bf16 only' run causal --problem dtype=f32 --input q=qbits.npy
expect 2 '' 'expected whole numbers for i32' run document --input doc=q32.npy
expect 2 '' 'given 1099511627776 at element 0' run document --input doc=doc_far.npy
expect 2 '' 'nine.npy: cannot read the .npy header' run causal --input q=nine.npy
# NaN in, NaN out, on both sides alike
expect 0 'rows: ok' '' run full --problem dtype=f32 --input q=nan.npy --verify

finish
