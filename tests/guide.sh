#!/bin/sh
# guide.sh: every block of specs/guide, page after page in one folder: Lua headed `-- NAME.lua` is that file, and is sound unless its
# name begins with wrong; lines of a shell run, and fail where they begin with `!`; C compiles; Python runs where NumPy is there,
# and torch, JAX or transformers, if it imports that.
# Indented lines need a GPU or NVRTC: only that the tool knows their options is looked at. LATHE is the tool, LATHE_BUILD the build folder.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$(pwd)
build=$(cd "${LATHE_BUILD:-build}" && pwd) || exit 1
LATHE=${LATHE:-$build/lathe}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" && ln -s "$LATHE" "$work/bin/lathe"
PATH=$work/bin:$PATH
CUDA_VISIBLE_DEVICES=
LATHE_CACHE_DIR=$work/cache
export PATH CUDA_VISIBLE_DEVICES LATHE_CACHE_DIR
python=${LATHE_PYTHON:-python3}
cd "$work" || exit 1
passed=0
failed=0

complain() {
    failed=$((failed + 1))
    echo "FAILED $page: $*"
    head -n 8 said.txt | sed 's/^/    /'
}
holds() { # holds COMMAND...: what it says is in said.txt
    if "$@" >said.txt 2>&1 </dev/null; then passed=$((passed + 1)); else complain "$*"; fi
}

shell_line() {
    case $1 in
    '! '*)
        if sh -c "${1#! }" >said.txt 2>&1 </dev/null; then complain "succeeds: ${1#! }"; else passed=$((passed + 1)); fi
        grep -q '^lathe: \|not served\|FAILED\|cannot be traced' said.txt || complain "says nothing: ${1#! }"
        ;;
    *) holds sh -c "$1" ;;
    esac
}

block() { # block LANGUAGE FILE
    case $1 in
    lua)
        name=$(sed -n '1s/^-- \([a-z_0-9]*\.lua\)$/\1/p' "$2")
        [ -n "$name" ] || { echo 'its first line names no file' >said.txt; complain "a block of Lua"; return; }
        sed 1d "$2" >"$name"
        case $name in wrong*) ;; *) holds lathe check "$name" ;; esac
        ;;
    sh)
        sed -e ':more' -e '/\\$/{N;s/\\\n *//;bmore' -e '}' "$2" >commands.txt
        while IFS= read -r line; do shell_line "$line"; done <commands.txt
        ;;
    c) cp "$2" block.c && holds cc -std=c11 -Wall -Wextra -Werror -I "$root/include" -c block.c -o block.o ;;
    python)
        [ -n "$blocks" ] || return
        echo "$2" >&3
        code=
        read -r code <&4
        case $code in
        0) passed=$((passed + 1)) ;;
        77) ;;
        *)
            tail -n 8 said.txt >last.txt && mv last.txt said.txt # where Python says what is wrong
            complain "a block of Python: exit code ${code:-none}"
            ;;
        esac
        ;;
    *) echo "$1" >said.txt; complain 'a block of no known language' ;;
    esac
}

# guide_blocks.py runs blocks of Python, for as long as descriptor 3 is open.
blocks=
if [ -e "$build/liblathe.so" ] && "$python" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    mkfifo asked answered
    LATHE_LIBRARY=$build/liblathe.so PYTHONPATH=$root/runtime/python "$python" "$root/tests/guide_blocks.py" <asked >answered 2>blocks.txt &
    blocks=$!
    exec 3>asked 4<answered
fi

for page in "$root"/specs/guide/[0-9]*.md; do
    [ "$(wc -l <"$page")" -le 100 ] || { echo "$(wc -l <"$page") lines" >said.txt; complain 'more than 100 lines'; }
    rm -f block.*.txt
    awk '/^```[a-z]+$/ { n++; language = substr($0, 4); name = sprintf("block.%03d.%s.txt", n, language); next }
        /^```$/ { name = "" }
        name { print >name }' "$page"
    for file in block.*.txt; do
        language=${file#block.*.}
        block "${language%.txt}" "$file"
    done
    sed -n 's/^    lathe \([a-z]*\) .*/\1/p' "$page" | while read -r command; do
        lathe help "$command" >/dev/null || echo "$command"
    done >said.txt
    [ ! -s said.txt ] || complain 'no command of lathe'
    page_name=${page##*/}
    grep -qF "($page_name)" "$root/specs/guide/README.md" || complain 'its README does not name it'
    # links that lead to files
    sed 's/](/\n](/g' "$page" | sed -n 's/^](\([^)#:]*\)).*/\1/p' | while read -r link; do
        [ -e "$root/specs/guide/$link" ] || echo "$link"
    done >said.txt
    [ ! -s said.txt ] || complain 'links that lead nowhere'
done
[ -z "$blocks" ] || exec 3>&- # which ends it
wait
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 40 ]
