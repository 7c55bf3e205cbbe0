#!/bin/sh
# readme.sh: the program in examples/README.md compiles against the library, runs, and prints the right numbers; specs in
# READMEs load, and those headed "-- specs/NAME.lua" are that file but for its first comment; the reference has every name of
# the prelude. LATHE_BUILD names the build folder.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
build=$(cd "${LATHE_BUILD:-build}" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

block() { # block LANGUAGE FILE: the text of such blocks
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$root/$2" | sed '/^```/d'
}
block c examples/README.md >first.c
block lua README.md | sed -n '/^-- mine.lua/,$p' >mine.lua
cc -std=c11 -Wall -Wextra -Werror -I "$root/include" first.c "$build/liblathe.a" -l:liblua5.4.a -lm -ldl -lpthread -o first

# Token 0 sees itself alone: 0. Token 63 scores token t with 63 t sqrt(32), capped at 50: tokens 1 to 63 reach the cap
# and weigh the same, token 0 weighs exp(-50); the mean of 1 to 63 is 32.
given=$(./first)
echo "$given"
[ "$given" = "token 0: 0.000, token 63: 32.000" ] || {
    echo "expected: token 0: 0.000, token 63: 32.000" >&2
    exit 1
}

# Each block of Lua is a file of its own: README.FOLDER.N.lua.
for readme in README.md specs/README.md $(cd "$root" && echo specs/reference/*.md) examples/README.md examples/aot/README.md; do
    awk -v prefix="$(echo "$readme" | tr / .)" '
        /^```lua$/ { inside = 1; name = prefix "." ++n ".lua"; next }
        /^```$/ { inside = 0 }
        inside { print >name }' "$root/$readme"
done
same=0
for block in *README*.lua; do
    "$build/lathe" check "$block" >check.txt 2>&1 || {
        cat check.txt >&2
        exit 1
    }
    spec=$(sed -n '1s/^-- \(specs\/[a-z0-9_]*\.lua\)$/\1/p' "$block")
    [ -n "$spec" ] || continue
    sed 1d "$root/$spec" >wanted.lua
    sed 1d "$block" | diff wanted.lua - >&2 || {
        echo "$block: the block headed $spec is not that file" >&2
        exit 1
    }
    same=$((same + 1))
done
# Whoever reads the reference finds every name that a spec may use.
for name in $(sed -n 's/^function \([a-z_0-9]*\)(.*/\1/p; s/^\([a-z_0-9]*\) = .*/\1/p' "$root/specs/prelude.lua"); do
    grep -q "\`$name[(\`]" "$root/specs/reference/operations.md" || {
        echo "specs/reference/operations.md does not have the prelude's $name" >&2
        exit 1
    }
done
echo "$same blocks are the files that they name"
[ "$same" -ge 2 ]
