#!/bin/sh
# gallery.sh: every shipped spec stands in the gallery, its pages are what specs/gallery/make.sh writes of the specs as they are, each
# picture is there, none is left over, and all of them are small. Pictures are drawn anew where lathe has libpng: of the same size in
# pixels, since zlib may pack them otherwise. LATHE is the tool.
set -u
cd "$(dirname "$0")/.." || exit 1
LATHE=${LATHE:-$(pwd)/build/lathe}
export LATHE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gallery=specs/gallery
failed=0
complain() {
    failed=$((failed + 1))
    echo "FAILED $*"
}
pixels() { od -An -tx1 -j 16 -N 8 "$1"; } # width and height of a PNG

sh $gallery/make.sh --pages "$work" || exit 1
for page in "$work"/*.md; do
    cmp "$page" "$gallery/${page##*/}" || complain "${page##*/} is behind: run sh specs/gallery/make.sh"
done
for name in $("$LATHE" list --names); do
    [ "$(cat $gallery/*.md | grep -c "(\.\./$name\.lua)")" = 1 ] || complain "$name does not stand in the gallery once"
done
cat $gallery/*.md README.md | sed 's/!\[/\n![/g' | sed -n 's/^!\[[^]]*\](\([^)]*\)).*/\1/p' | sed 's/.*\///' | sort -u >"$work/wanted"
for file in $gallery/*.png; do
    [ "$(head -c 8 "$file" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || complain "$file is no PNG"
    echo "${file##*/}"
done | sort -u >"$work/there"
diff "$work/wanted" "$work/there" || complain 'pictures that pages show (<) and those that are there (>)'
bytes=$(cat $gallery/*.png | wc -c)
[ "$bytes" -lt 1500000 ] || complain "the pictures have $bytes bytes"
if "$LATHE" draw causal -o "$work/one.png" >"$work/said" 2>&1; then
    mkdir "$work/new"
    sh $gallery/make.sh "$work/new" || complain 'make.sh'
    for file in "$work"/new/*.png; do
        [ "$(pixels "$file")" = "$(pixels "$gallery/${file##*/}")" ] || complain "${file##*/} is behind"
    done
elif ! grep -q 'without libpng' "$work/said"; then
    complain "$(cat "$work/said")"
fi
echo "$(wc -l <"$work/there") pictures, $bytes bytes, $failed failed"
[ $failed = 0 ]
