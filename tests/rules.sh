#!/bin/sh
# rules.sh: the rules that keep the rooms apart, and the sizes of functions and files.
# Prints every line that breaks a rule; exit code 0: none does.
set -u
cd "$(dirname "$0")/.." || exit 1
broken=$(mktemp)
trap 'rm -f "$broken"' EXIT

# breach RULE: standard input is the list of places, empty where the rule holds.
breach() {
    places=$(cat)
    if [ -n "$places" ]; then
        printf '%s\n%s\n\n' "$1:" "$places"
        echo "$1" >>"$broken"
    fi
}

includes() { # includes PATTERN FILE...: lines that include a header whose name matches
    pattern=$1
    shift
    grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" "$@" /dev/null
}

includes 'cuda|cuda_runtime|nv|cub/|cutlass|thrust/' gen/*.c gen/*.h include/*.h | breach 'gen/ and include/ include no CUDA header'
includes '(lua[0-9.]*/)?(lua\.h|luaconf|lauxlib|lualib)' runtime/*.c runtime/*.h include/*.h |
    breach 'runtime/ and include/ include no Lua header'

# Templates: quoted files of templates/ only; config.gen.cuh and variant.gen.cuh have their examples in stub/.
grep -nE '^[[:space:]]*#[[:space:]]*include' templates/*.cuh | while IFS= read -r line; do
    name=$(printf '%s\n' "$line" | sed -n 's/.*include[[:space:]]*"\([^"]*\)".*/\1/p')
    case $name in
    '') printf '%s\n' "$line" ;;
    *.gen.cuh) ;;
    *) [ -f "templates/$name" ] || printf '%s\n' "$line" ;;
    esac
done | breach 'templates/ include only quoted files of templates/'

# Kernels can be compiled apart (base.cuh).
awk '/^extern "C" __global__/ && before !~ /^#if LATHE_COMPILED\([a-z_]+\)$/ { print FILENAME ":" FNR ": " $0 } { before = $0 }' templates/*.cuh |
    breach 'every kernel of templates/ stands behind #if LATHE_COMPILED(role)'

# Both sides: the JIT and the tool.
for file in gen/*.c gen/*.h runtime/*.c runtime/*.h; do
    case $file in
    runtime/jit.c | gen/main.c | gen/cmd_*.c) continue ;;
    gen/*) includes '(.*/)?rt\.h' "$file" ;;
    runtime/*) includes '(.*/)?gen\.h' "$file" ;;
    esac
done | breach 'only runtime/jit.c, gen/main.c and gen/cmd_*.c see both gen.h and rt.h'

# Paths of one machine: this checkout, and anybody's home folder.
tracked() {
    git ls-files -co --exclude-standard 2>/dev/null || find . -type f -not -path './.git/*' -not -path './build*'
}
here=$(pwd -P)
tracked | while IFS= read -r file; do
    [ -f "$file" ] && grep -nIE '(^|[^[:alnum:]_.])/(home|Users)/[[:alnum:]]|(^|[^[:alnum:]_.])/root/' "$file" /dev/null
    [ -f "$file" ] && grep -nIF "$here/" "$file" /dev/null
done | grep -vE '^(\./)?tests/rules\.sh:' | breach 'no machine path in a tracked file'

# The lists of sources are explicit: whoever adds a file names it there.
for file in gen/*.c runtime/*.c templates/*.cuh specs/*.lua; do
    grep -qE "(^|[ (])$file([ )]|\$)" CMakeLists.txt || echo "$file"
done | breach 'every source, template and spec is named in CMakeLists.txt'
for file in tests/unit/*.c tests/fuzz/*.c; do
    grep -qE "^(    | .* )$(basename "$file" .c)( |\$)" CMakeLists.txt || echo "$file"
done | breach 'every file of tests/unit and tests/fuzz is named in CMakeLists.txt'
grep -oE '(gen|runtime|templates|specs)/[A-Za-z0-9_]+\.(cuh|lua|c)\b' CMakeLists.txt | sort -u | while read -r file; do
    [ -f "$file" ] || echo "$file"
done | breach 'every file named in CMakeLists.txt is there'

# Sizes. A function longer than 80 lines must be a pure switch: every third line a case.
sizes() {
    awk '
        FNR == 1 { inside = 0 }
        /^\{/ { inside = 1; start = FNR; cases = 0 }
        inside && /(^|[^[:alnum:]_])(case [^:]*|default):/ { cases++ }
        /^\}/ && inside {
            inside = 0
            lines = FNR - start + 1
            print lines, FILENAME ":" start, cases
        }' "$@"
}
sizes gen/*.c runtime/*.c tests/*.c tests/unit/*.c examples/*.c 2>/dev/null | awk '$1 > 80 && $3 * 3 < $1 { print $2 ": " $1 " lines" }' |
    breach 'no function over 80 lines'
median=$(sizes gen/*.c runtime/*.c | sort -n | awk '{ lines[NR] = $1 } END { print NR ? lines[int((NR + 1) / 2)] : 0 }')
[ "$median" -lt 15 ] || echo "the median is $median lines" | breach 'functions of gen/ and runtime/ have a median under 15 lines'
# What the READMEs list: templates, constants and slots; the files of a room, some of them as `host*.c`.
for file in templates/*.cuh; do
    grep -qF "\`$(basename "$file")\`" templates/README.md || echo "$file"
done | breach 'templates/README.md lists every template'
grep -ohE '(cfg|variant)::[A-Z][A-Z0-9_]*\b' templates/*.cuh | sort -u | while read -r name; do
    grep -qw "${name##*::}" templates/README.md || echo "$name"
done | breach 'templates/README.md has every constant and slot that templates read'
for room in gen runtime; do
    patterns=$(grep -oE '`[a-z0-9_*]+\.c`' $room/README.md | tr -d '`')
    for file in "$room"/*.c; do
        listed=
        set -f
        for pattern in $patterns; do
            case ${file#"$room"/} in $pattern) listed=yes ;; esac
        done
        set +f
        [ -n "$listed" ] || echo "$file"
    done
done | breach 'the README of a room lists every file of it'

long_files() { # long_files LIMIT FILE...
    limit=$1
    shift
    wc -l "$@" | awk -v limit="$limit" '$2 != "total" && $1 > limit { print $2 ": " $1 " lines" }'
}
long_files 700 gen/*.c gen/*.h runtime/*.c runtime/*.h templates/*.cuh include/*.h tests/*.c |
    breach 'no file over 700 lines'
for file in specs/*.lua; do
    [ "$file" = specs/prelude.lua ] || long_files 15 "$file"
done | breach 'no shipped spec over 15 lines'
long_files 900 tests/unit/*.c | breach 'no unit test file over 900 lines'

if [ -s "$broken" ]; then
    printf '%s rules broken\n' "$(wc -l <"$broken")"
    exit 1
fi
echo "all rules hold (median function: $median lines)"
