#!/bin/sh
# draw.sh: `lathe draw`, and `lathe bench` on the host device: the numbers of its panels against those that a formula gives, its pictures, and what it refuses. What its
# pixels show is compared by runtime/python/tests/test_draw.py.
. "$(dirname "$0")/common.sh"

# The numbers without blanks and ends of lines, those within texts included.
draw() {
    "$LATHE" draw "$@" >numbers.txt
    code=$?
    tr -d ' \n' <numbers.txt
    return $code
}

# Causal: (n + 1) / 2n of the pairs. Tiles of 128 x 64: in each of 4 rows of 8 tiles, 2 on the diagonal, and 0, 2, 4, 6 before it.
expect 0 '"live":0.5009765625' '' draw causal --problem q=512,d=128 --json
expect 0 '"none":0.375,"some":0.25,"all":0.375' '' draw causal --problem q=512,d=128 --json
expect 0 '"note":"attention_fwd_sm90"' '' draw causal --problem q=512,d=128 --arch sm_90a --json
expect 0 '"note":"attention_bwd_sm80"' '' draw causal --problem q=512,d=128 --pass backward --json
# queries that are the last of the keys, and sizes that are no multiples of pixels: sum of 301 .. 1300, of 1000 x 1300
expect 0 '"live":0.615769230769' '' draw causal --problem q=1000,kv=1300 --json
expect 0 '"live":1' '' draw causal --problem q=1,kv=4096 --json
# the window of 256 of sliding_window, of 2048: 2048 * 256 - 255 * 256 / 2
expect 0 '"live":0.117218017578125' '' draw sliding_window --problem q=2048 --set window=256 --json
expect 0 '"live":0.117218017578125' '' draw sliding_window --problem q=2048 --set window=256 --json --pixels 100
# a mask that reads data is judged by pairs
# scores: slopes 2^(-8 (h + 1) / n_h), the middle of pixels of 2 x 2: 511 - 1
expect 0 '"title":"score_mod(s)-s,head0","form":"values","note":"s=0,themiddleofapixel","rows":256,"columns":256,"head":0,"least":-127.5,"most":0' '' draw alibi --json
expect 0 '"title":"score_mod(s)","form":"curve"' '' draw softcap --json
expect 0 '"note":"s=1,themiddleofapixel"' '' draw retention --json
expect 0 '"note":"s=2.5,themiddleofapixel"' '' draw alibi --score 2.5 --json
expect 2 '' 'leave len_kv and n_h out' draw causal --json --problem h=1,q=3,kv=4,len_kv=10 --set kv_start=6
# each head says its own least, though all have the colours of one range: head 3 of 4 has the slope 2^-8
expect 0 '"head":3,"least":-1.9921875,"most":0' '' draw alibi --json
# rotary positions are seen where scores are not 0
expect 0 '"note":"allscores4beforeturns;logscale"' '' draw rope --json
expect 0 '"note":"allscores2beforeturns;logscale"' '' draw rope --score 2 --json
# of 16 heads, four
expect 0 '"title":"weights,head15"' '' draw alibi --problem h=16 --json
# what is left of token 0 at token 255, of a decay of exp(-8 h / n_h) a token: head 1 of 2
expect 0 '"title":"weightofjati,head1"' '' draw lightning --problem h=2,t=4,d=16 --json
expect 0 '"least":6.1442123533' '*' draw lightning --problem h=2,t=4,d=16 --json

"$LATHE" list --json | awk -F'"' '$2 == "name" { name = $4 } $2 == "kind" { print name, $4 }' >kinds.txt
[ "$(wc -l <kinds.txt)" -gt 80 ] || complain "lathe list --json names $(wc -l <kinds.txt) specs"
while read -r spec kind; do
    case $kind in
    attention | linear_attention)
        more=
        case $spec in # dims that have no default
        block_mask) more=,q_blocks=8,kv_blocks=8 ;;
        flamingo) more=,images=4 ;;
        graphormer) more=,distances=7,kinds=5 ;;
        pair_bias) more=,b=1,pairs=1 ;;
        sandwich) more=,distances=600 ;;
        shared_prefix) more=,docs=8 ;;
        esac
        expect 0 '"panels":[{' '*' draw "$spec" --json --problem "h=2$more" --seed 3
        ;;
    *) expect 2 '' 'it has no pairs of tokens. Pictures are of attention' draw "$spec" --json ;;
    esac
done <kinds.txt

expect 2 '' 'draw: expected -o FILE.png, or --json' draw causal
expect 2 '' "draw: pictures are PNG: expected -o FILE.png, given 'a.jpg'" draw causal -o a.jpg
expect 2 '' 'draw: packed sequences lie one behind the other' draw causal --problem seqs=3 --json
expect 2 '' 'draw: pages say where keys lie' draw causal --problem q=64,page=16 --json
expect 2 '' 'draw: the problem has no pair of tokens' draw causal --problem q=0 --json
expect 2 '' "--pixels: expected a whole number from 64 to 1024, given '9'" draw causal --pixels 9 -o no.png
expect 2 '' "--score: expected a number, given 'x'" draw causal --score x -o no.png
expect 0 '*' 'draw: no tiles are drawn, since no kernel on sm_80 serves the problem' draw causal --problem dtype=f32,d=300 --json
expect 2 '' 'would take the host device minutes' draw alibi --problem h=4,q=1000000 --json

if "$LATHE" draw causal -o first.png >out.txt 2>err.txt; then
    expect 0 'livepairs' '' draw causal -o second.png
    cmp -s first.png second.png || complain 'the same picture has other bytes'
    [ "$(head -c 8 first.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || complain 'no PNG'
    expect 2 '' '/nowhere/x.png: cannot be written' draw causal -o /nowhere/x.png
    "$LATHE" draw causal -o - >third.png && cmp -s first.png third.png || complain '-o - is another picture'
else
    expect 3 '' 'built without libpng: install libpng-dev, build it again' draw causal -o first.png
fi

bench() { "$LATHE" bench "$@"; }
expect 0 'host device' 'these are rates of the host device, which say nothing about kernels' bench causal --lengths 32,64 --problem h=1,d=16 --device host
expect 0 '"length": 2048' '*' bench softmax --lengths 1024,2k --problem rows=8 --device host --json --repeat 2
expect 0 '"over": "kv"' '*' bench causal --lengths 64,128 --over kv --problem h=1,q=8,d=16 --device host --json
expect 2 '' 'bench: expected --lengths' bench causal
expect 2 '' "expected whole numbers that rise, such as 512,1k,16k, given '2k,1k'" bench causal --lengths 2k,1k
expect 2 '' "given '64,'" bench causal --lengths 64,
expect 2 '' "given '1m'" bench causal --lengths 1m
expect 2 '' "'q' is what --lengths are of" bench causal --lengths 64 --problem q=3 --device host
expect 2 '' 'swiglu is elementwise, whose dims are its own' bench swiglu --lengths 64 --device host
expect 2 '' "unknown name 'z'" bench causal --lengths 64 --over z --device host
if [ -f first.png ]; then
    expect 0 'TFLOP/s' '*' bench causal --lengths 32,64 --problem h=1,d=16 --device host --png rates.png
    [ "$(head -c 8 rates.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || complain 'no PNG of rates'
fi
expect 2 '' 'none/rates.png: cannot be written: ' bench causal --lengths 32 --problem h=1,d=16 --device host --png none/rates.png
[ ! -s out.txt ] || complain 'rates were measured for a picture that cannot be written'
CUDA_VISIBLE_DEVICES='' "$LATHE" bench causal --lengths 64 >out.txt 2>err.txt
[ $? = 3 ] && grep -q 'there is no GPU to measure on. --device host' err.txt || complain "bench without a GPU: $(cat err.txt)"

finish
