#!/bin/sh
# circles.sh: no circle of files that call each other, and none of folders that include each other.
# Calls are what the objects of the build define and want (nm), so a static function is never taken for an exported one of the same
# name. Prints the edges of every circle with their names; exit code 0: there is none; 77: there is no nm.
set -u
cd "$(dirname "$0")/.." || exit 1
command -v nm >/dev/null || { echo "skipped: there is no nm"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The table of kinds calls every kind, and is asked by what all of them stand on: its edges are data, not calls.
table=gen/pipeline/kinds.c

# circles: standard input is FROM TO NAME a line; those that are in no circle are left out.
circles() {
    awk '
        $1 == $2 { next }
        !(($1, $2) in edge) { to[$1] = to[$1] " " $2; node[$1]; node[$2] }
        { edge[$1, $2] = edge[$1, $2] " " $3 }
        function walk(from, at,    next_, n, i) { # no recursion deeper than there are nodes
            n = split(to[at], next_, " ")
            for (i = 1; i <= n; i++)
                if (!((from, next_[i]) in reached)) { reached[from, next_[i]] = 1; walk(from, next_[i]) }
        }
        END {
            for (a in node) walk(a, a)
            for (e in edge) {
                split(e, pair, SUBSEP)
                if ((pair[2], pair[1]) in reached) print pair[1] " -> " pair[2] ":" edge[e]
            }
        }' | sort
}

# objects: OBJECT SOURCE a line, each source once, by its newest object: old ones lie about in old builds.
objects() {
    find "${LATHE_BUILD:?the build folder}/CMakeFiles" -name '*.c.o' -printf '%T@ %p\n' | sort -rn | awk '{
        $0 = source = $2
        sub(/.*\.dir\//, "", source)
        sub(/\.o$/, "", source)
        if (source ~ /^(gen|runtime)\// && !(source in seen)) { seen[source] = 1; print $0, source }
    }' | while read -r object source; do
        [ -f "$source" ] && echo "$object $source"
    done
}

objects >"$work/objects"
[ "$(wc -l <"$work/objects")" -gt 100 ] || { echo "the build has objects of $(wc -l <"$work/objects") sources: is it complete?"; exit 1; }
while read -r object source; do
    nm -P -g "$object" | awk -v source="$source" '{ print source, $1, $2 == "U" ? "wants" : "has" }'
done <"$work/objects" >"$work/symbols"
awk -v table="$table" '
    NR == FNR { if ($3 == "has") owner[$2] = $1; next }
    $3 == "wants" && $2 in owner && $1 != table { print $1, owner[$2], $2 }' "$work/symbols" "$work/symbols" >"$work/calls"

# Folders: `gen` is its own doors, gen.h; files name what they include from the root.
find gen runtime -name '*.[ch]' | sort | while IFS= read -r file; do
    sed -n 's/^#include "\(\(gen\|runtime\)\/[^"]*\)".*/\1/p' "$file" | while IFS= read -r header; do
        echo "$file $header"
    done
done | awk '{ from = $1; to = $2; sub(/\/[^\/]*$/, "", from); sub(/\/[^\/]*$/, "", to); print from, to, $1 ":" $2 }' >"$work/includes"

status=0
for what in calls includes; do
    [ "$(wc -l <"$work/$what")" -gt 100 ] || { echo "there are hardly any $what: this script does not see them"; exit 1; }
    circles <"$work/$what" >"$work/found"
    if [ -s "$work/found" ]; then
        printf '%s in circles:\n' "$what"
        cat "$work/found"
        status=1
    fi
done
[ "$status" -ne 0 ] || echo "no circles among $(wc -l <"$work/objects") files"
exit $status
