#!/bin/sh
# readme.sh: the program in the top README compiles against the library, runs, and prints the right numbers.
# LATHE_BUILD names the build folder.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
build=$(cd "${LATHE_BUILD:-build}" && pwd)
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
cd "$temp"

block() { # block LANGUAGE: the text of such blocks
    sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$root/README.md" | sed '/^```/d'
}
block c >first.c
block lua | sed -n '/^-- mine.lua/,$p' >mine.lua
cc -std=c11 -Wall -Wextra -Werror -I "$root/include" first.c "$build/liblathe.a" -l:liblua5.4.a -lm -ldl -lpthread -o first

# Token 0 sees itself alone: 0. Token 63 scores token t with 63 t sqrt(32), capped at 50: tokens 1 to 63 reach the cap
# and weigh the same, token 0 weighs exp(-50); the mean of 1 to 63 is 32.
given=$(./first)
echo "$given"
[ "$given" = "token 0: 0.000, token 63: 32.000" ] || {
    echo "expected: token 0: 0.000, token 63: 32.000" >&2
    exit 1
}
