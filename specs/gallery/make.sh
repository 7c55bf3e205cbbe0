#!/bin/sh
# make.sh: the pages and pictures of the gallery, from the specs themselves: `sh specs/gallery/make.sh` writes all of it beside this
# file, `sh specs/gallery/make.sh DIR` into DIR, and with --pages the pages alone, which is what tests/gallery.sh compares. LATHE is
# the tool (build/lathe). Pictures differ in nothing but how zlib packs them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
pictures=1
[ "${1:-}" != --pages ] || { pictures= && shift; }
out=${1:-$here}
LATHE=${LATHE:-$root/build/lathe}
mkdir -p "$out"

kinds=$("$LATHE" list --json | awk -F'"' '$2 == "name" { name = $4 } $2 == "kind" { print name, $4 }')
kind_of() { printf '%s\n' "$kinds" | sed -n "s/^$1 //p"; }

# The first comment of a spec, as one line, without its name.
formula_of() {
    awk '!/^--/ { exit } { sub(/^-- */, ""); line = line (NR > 1 ? " " : "") $0 } END { print line }' "$root/specs/$1.lua" |
        sed "s/^$1\.lua: //; s/|/\\\\|/g; s/\*/\\\\*/g"
}

# How fast beside whom, where that was measured.
speed_of() {
    awk -F'\t' -v name="$1" '$1 == name {
        printf " %s: %s times %s%s (%s, %s).", $4 == "-" ? "Speed" : "Speed forward", $3, $2, $4 == "-" ? "" : ", backward " $4, $5, $6
    }' "$root/tests/bench/peers.tsv"
}

full_stop() { # TEXT, with a full stop where a sentence follows
    case $1 in
    *.) printf '%s' "$1" ;;
    *) printf '%s.' "$1" ;;
    esac
}

wrapped() { fold -s -w 116 | sed 's/ $//'; }

draw() { # draw SPEC KIND
    set -- "$1" "$2" h=2,q=512,d=64
    [ "$2" = attention ] || set -- "$1" "$2" h=2,t=256,d=64
    case $1 in
    sliding_window) "$LATHE" draw "$1" --problem "$3" --set window=128 --pixels 192 -o "$out/$1.png" ;;
    dropout) "$LATHE" draw "$1" --problem h=1,q=96,d=64 --set seed=1 --set p=0.25 --pixels 192 -o "$out/$1.png" ;;
    sinks) "$LATHE" draw "$1" --problem "$3" --score -4 --pixels 192 -o "$out/$1.png" ;; # so that a sink of about 0 weighs
    gated_delta | gated_delta_product | mamba2 | rwkv7 | dplr | iplr | comba | gdn2 | precond_gated_delta | precond_kda) # gates are random: few tokens
        "$LATHE" draw "$1" --problem h=2,t=48,d=64 --pixels 192 -o "$out/$1.png"
        ;;
    # a row is a pixel, so that all panels show the same rows
    nsa_selected) "$LATHE" draw "$1" --param BLOCK=16 --problem h=2,q=192,d=64 --pixels 192 -o "$out/$1.png" ;;
    natten_1d) "$LATHE" draw "$1" --problem h=2,q=192,d=64 --set window_1=25 --pixels 192 -o "$out/$1.png" ;;
    natten_2d) "$LATHE" draw "$1" --problem h=2,q=192,d=64 --set n_2=16 --set window_1=5 --set window_2=5 --pixels 192 -o "$out/$1.png" ;;
    natten_3d)
        "$LATHE" draw "$1" --problem h=2,q=192,d=64 --set n_2=6 --set n_3=8 --set window_1=3 --set window_2=3 --set window_3=5 \
            --pixels 192 -o "$out/$1.png"
        ;;
    sliding_tile) # 24 tiles of 8, and text
        "$LATHE" draw "$1" --problem h=2,q=200,d=64 --set tile=8 --set n_2=2 --set n_3=4 --set text=8 --set window_1=1 --set window_2=1 \
            --set window_3=3 --pixels 192 -o "$out/$1.png"
        ;;
    block_diffusion) "$LATHE" draw "$1" --problem h=2,q=192,d=64 --set block=16 --pixels 192 -o "$out/$1.png" ;;
    global_window) "$LATHE" draw "$1" --problem "$3" --set window=64 --set globals=32 --pixels 192 -o "$out/$1.png" ;;
    flamingo) "$LATHE" draw "$1" --problem "$3,kv=256,images=4" --seed 5 --pixels 192 -o "$out/$1.png" ;;
    shared_prefix) "$LATHE" draw "$1" --problem h=2,q=256,d=64,docs=5 --seed 8 --pixels 192 -o "$out/$1.png" ;;
    graphormer) "$LATHE" draw "$1" --problem h=2,q=48,d=64,distances=6,kinds=4 --pixels 192 -o "$out/$1.png" ;;
    pair_bias) "$LATHE" draw "$1" --problem b=1,h=2,q=48,d=64,pairs=1 --pixels 192 -o "$out/$1.png" ;;
    sandwich) "$LATHE" draw "$1" --problem "$3,distances=512" --pixels 192 -o "$out/$1.png" ;;
    hstu) "$LATHE" draw "$1" --problem "$3,distances=256" --pixels 192 -o "$out/$1.png" ;;
    forgetting | fp8_cache) "$LATHE" draw "$1" --problem h=2,q=48,d=64 --pixels 192 -o "$out/$1.png" ;;
    block_mask) "$LATHE" draw "$1" --problem "$3,q_blocks=8,kv_blocks=8" --pixels 192 -o "$out/$1.png" ;;
    *) "$LATHE" draw "$1" --problem "$3" --pixels 192 -o "$out/$1.png" ;;
    esac >/dev/null 2>"$out/draw.txt" || { cat "$out/draw.txt" >&2; exit 1; }
    rm -f "$out/draw.txt"
}

begin() { # begin PAGE TITLE TEXT
    page=$out/$1
    printf '# %s\n\nPart of [the gallery](README.md). %s\n' "$2" "$3" | wrapped >"$page"
}
entry_with_picture() {
    printf '\n## %s\n\n' "$1" >>"$page"
    formula=$(formula_of "$1")
    printf '%s: [`specs/%s.lua`](../%s.lua)\n' "${formula%.}" "$1" "$1" | wrapped >>"$page"
    speed=$(speed_of "$1")
    [ -z "$speed" ] || printf '\n%s\n' "${speed# }" >>"$page"
    printf '\n![%s](%s.png)\n' "$1" "$1" >>"$page"
}
entry() {
    printf '* [`%s`](../%s.lua): %s\n' "$1" "$1" "$(full_stop "$(formula_of "$1")")$(speed_of "$1")" | wrapped | sed '2,$s/^/  /' >>"$page"
}

# Group: what a name has in common with others.
group_of() {
    case $1 in
    *lrpe* | rope* | sandwich_table) echo 'Positions' ;;
    *_conv | short_conv_*) echo 'Convolutions over time' ;;
    *softmax* | logsumexp | cross_entropy) echo 'Softmax and losses' ;;
    *norm* | differential) echo 'Norms' ;;
    *cumsum* | *cumsumexp*) echo 'Scans' ;;
    block_lists | largest | nsa_select | topk) echo 'Selection' ;;
    mean_pool* | packed_*) echo 'Packed sequences and pooling' ;;
    act_* | *glu | nsa_gates) echo 'Activations and gates' ;;
    *) echo 'Training: optimizers and embeddings' ;;
    esac
}
groups='Softmax and losses
Norms
Scans
Convolutions over time
Selection
Packed sequences and pooling
Activations and gates
Positions
Training: optimizers and embeddings'

names=$("$LATHE" list --names)
begin attention.md Attention 'Live pairs, tiles of the kernel for sm_80, the change of scores, and weights where all scores are the same.'
for name in $names; do
    [ "$(kind_of "$name")" = attention ] || continue
    entry_with_picture "$name"
    [ -z "$pictures" ] || draw "$name" attention
done
begin linear_attention.md 'Linear attention' 'What is left of token j at token i, of equal queries and keys: decays and, with the delta rule, what is replaced. [In FLA](../guide/12-in-fla.md) has them by its names.'
for name in $names; do
    [ "$(kind_of "$name")" = linear_attention ] || continue
    entry_with_picture "$name"
    [ -z "$pictures" ] || draw "$name" linear_attention
done
begin rows_and_points.md 'Rows and points' 'Operators on rows and on elements have no pairs of tokens to be drawn.'
printf '%s\n' "$groups" | while IFS= read -r group; do
    printf '\n## %s\n\n' "$group" >>"$page"
    for name in $names; do
        case $(kind_of "$name") in
        rowwise | elementwise) [ "$(group_of "$name")" != "$group" ] || entry "$name" ;;
        esac
    done
done
# The picture of the README at the top: a head alone, so that all stands in one line.
[ -z "$pictures" ] || "$LATHE" draw alibi --problem h=1,q=512,d=64 --pixels 192 -o "$out/alibi_one_head.png" >/dev/null
