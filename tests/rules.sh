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

# files FOLDER NAME: the files below it whose name matches; that there are none is a mistake of this script.
files() {
    found=$(find "$1" -type f -name "$2" | sort)
    [ -n "$found" ] || { echo "tests/rules.sh: there is no $2 below $1" >&2; exit 1; }
    printf '%s\n' "$found"
}
gen_c=$(files gen '*.c') && gen_h=$(files gen '*.h') && runtime_c=$(files runtime '*.c') && runtime_h=$(files runtime '*.h') &&
    templates=$(files templates '*.cuh') || exit 1
# shellcheck disable=SC2086 # below: lists of files, whose names have no blanks

includes() { # includes PATTERN FILE...: lines that include a header whose name matches
    pattern=$1
    shift
    grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($pattern)" "$@" /dev/null
}

includes 'cuda|cuda_runtime|nv|cub/|cutlass|thrust/' $gen_c $gen_h include/*.h | breach 'gen/ and include/ include no CUDA header'
includes '(lua[0-9.]*/)?(lua\.h|luaconf|lauxlib|lualib)' $runtime_c $runtime_h include/*.h |
    breach 'runtime/ and include/ include no Lua header'

# Templates: quoted files of templates/ only; config.gen.cuh and variant.gen.cuh are generated.
grep -nE '^[[:space:]]*#[[:space:]]*include' $templates | while IFS= read -r line; do
    name=$(printf '%s\n' "$line" | sed -n 's/.*include[[:space:]]*"\([^"]*\)".*/\1/p')
    case $name in
    '') printf '%s\n' "$line" ;;
    *.gen.cuh) ;;
    *) [ -f "templates/$name" ] || printf '%s\n' "$line" ;;
    esac
done | breach 'templates/ include only quoted files of templates/'

# ptxas 12.8 and 13.0 leave out the minus of min(min(-x, y), z) of int, and of max, for sm_90 and sm_100, where it is one VIMNMX3.
grep -nE -e '-warp_(min|max)\(|(min|max)\([^()]*(min|max)\(-[a-z]' $templates |
    breach 'no negated int goes into a minimum or maximum of three: warp_min and warp_max are both there'

# Kernels can be compiled apart (common/base.cuh).
awk '/^extern "C" __global__/ && before !~ /^#if LATHE_COMPILED\([a-z_]+\)$/ { print FILENAME ":" FNR ": " $0 } { before = $0 }' $templates |
    breach 'every kernel of templates/ stands behind #if LATHE_COMPILED(role)'

# Who may include whom: a folder, then the folders beside itself that its files include from. `include` is include/; a folder `gen` or
# `runtime` alone is that of their doors, gen.h and rt.h. Folders without a row here, and rows without a folder, are mistakes, too.
floor='runtime/base runtime/recipe include'
below="gen/base gen/ir gen/derive gen/arguments gen/lower gen/plan gen/emit gen/heads gen/host gen/prove $floor"
layers="
gen/base: $floor
gen/ir: gen/base $floor
gen/lang: gen/base gen/ir $floor
gen/derive: gen/base gen/ir $floor
gen/arguments: gen/base gen/ir $floor
gen/lower: gen/base gen/ir gen/arguments $floor
gen/plan: gen/base gen/ir gen/arguments $floor
gen/emit: gen/base gen/ir gen/arguments gen/plan $floor
gen/host: gen/base gen/ir gen/arguments gen/derive $floor
gen/prove: gen/base gen/ir gen/derive gen/arguments gen/host $floor
gen/heads: gen/base gen/ir gen/derive gen/arguments gen/plan gen/emit $floor
gen/attention: $below
gen/attention/plan: gen/attention $below
gen/attention/emit: gen/attention $below
gen/attention/host: gen/attention $below
gen/attention/prove: gen/attention $below
gen/rowwise: $below
gen/elementwise: $below
gen/linear: $below
gen/readable: gen/base
gen/pipeline: $below gen/lang gen/attention gen/rowwise gen/elementwise gen/linear
gen: $below gen/lang gen/attention gen/rowwise gen/elementwise gen/linear gen/pipeline
gen/picture:
gen/tool: gen gen/readable gen/ir gen/prove gen/base gen/host gen/picture runtime/driver runtime/compile runtime/cache runtime/aot runtime/jit $floor
runtime/base: include
runtime/recipe: runtime/base include
runtime/driver: $floor
runtime/launch: runtime/driver $floor
runtime/compile: runtime/driver $floor
runtime/cache: runtime/compile $floor
runtime/aot: runtime/driver runtime/compile runtime/cache runtime/launch $floor
runtime/dist: runtime/driver runtime/compile runtime/launch runtime/cache runtime/jit gen/linear $floor
runtime/nsa: runtime/driver runtime/launch runtime/cache runtime/jit $floor
runtime/jit: runtime/driver runtime/compile runtime/cache runtime/launch gen $floor
runtime: runtime/driver runtime/launch runtime/compile runtime/cache runtime/aot runtime/jit $floor
templates/common:
templates/heads: templates/common
templates/attention: templates/common templates/heads
templates/attention/backward: templates/common templates/heads templates/attention
templates/rowwise: templates/common templates/heads
templates/elementwise: templates/common templates/heads
templates/linear: templates/common templates/heads
templates/linear/backward: templates/common templates/heads templates/linear
"
# layered ROOT PREFIX FILE...: FILE:LINE of every include that the table does not allow; what stands before the place of an included file
# that is written from a root is PREFIX.
layered() {
    prefix=$1
    shift
    grep -nE '^#[[:space:]]*include "[^"]+"' "$@" /dev/null | grep -v '\.gen\.cuh"' | LAYERS=$layers awk -v prefix="$prefix" '
        function folder_of(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "include" }
        BEGIN {
            n = split(ENVIRON["LAYERS"], row, "\n")
            for (i = 1; i <= n; i++) {
                words = split(row[i], word, " ")
                sub(/:$/, "", word[1])
                if (words > 0) known[word[1]] = 1
                for (k = 2; k <= words; k++) may[word[1], word[k]] = 1
            }
        }
        {
            file = $0
            sub(/:.*/, "", file)
            header = $0
            sub(/^[^"]*"/, "", header)
            sub(/".*/, "", header)
            header = prefix header
            from = folder_of(file)
            to = folder_of(header)
            if (!(from in known)) print file ": its folder has no row in the table of tests/rules.sh"
            else if (from != to && !((from, to) in may)) print $0
        }'
}
{
    layered '' $gen_c $gen_h $runtime_c $runtime_h
    layered templates/ $templates
} | breach 'folders include those that the table of tests/rules.sh allows'
printf '%s\n' "$layers" | sed -n 's/:.*//p' | while read -r folder; do
    [ -n "$(find "$folder" -maxdepth 1 -type f -name '*.[ch]*' 2>/dev/null)" ] || echo "$folder"
done | breach 'every row of the table of folders has files'

# What differs between kinds of operators is said by struct signature (sizes, sharing, flags).
grep -nE 'str(n?case|n)?cmp\([^,]*\bkind\b|lathe__is_(attention|rowwise|elementwise|linear)|KIND_' $runtime_c $runtime_h \
    $(find gen/arguments -name '*.[ch]') | breach 'runtime/ and gen/arguments/ ask for no kind of operator'
# In gen/ its row in the table of kinds says it (gen/ir/kind.h, gen/prove/kind_proofs.h).
grep -nE 'KIND_(ATTENTION|ROWWISE|ELEMENTWISE|LINEAR)' $(find gen/base gen/ir gen/derive gen/lower gen/plan gen/emit gen/heads gen/host gen/prove gen/pipeline gen/tool -name '*.[ch]') |
    grep -vE '^gen/(ir/(spec|kind)\.h|pipeline/kinds\.c):' | breach 'shared stages of gen/ ask the row of a kind, and not for the kind'

# A name that is exported is nobody's static: neither grep nor a reader tells two functions of one name apart.
awk '
    /^static / && /\(/ { name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); statics[name] = statics[name] " " FILENAME ":" FNR; next }
    /^[a-z_]/ && /\(/ && !/;/ && !/^(typedef|extern|struct [a-z_]+ \{|enum|union)/ {
        name = $0; sub(/\(.*/, "", name)
        if (name !~ /[ *]/ || name ~ /=/) next
        sub(/.*[ *]/, "", name)
        exported[name] = FILENAME ":" FNR
    }
    END { for (name in exported) if (name in statics) print name ": " exported[name] ", static at" statics[name] }
' $gen_c $runtime_c | sort | breach 'no exported function of gen/ and runtime/ has the name of a static one'

# Nor is it exported for nobody: what one file alone calls is static there. Tests are callers, too.
awk '
    { line = $0; gsub(/\/\*.*\*\/|"(\\.|[^"\\])*"/, "", line) }
    FILENAME ~ /^(gen|runtime).*\.c$/ && /^[a-z_]/ && !/^static / && /\(/ && !/;/ && !/^(typedef|extern|struct [a-z_]+ \{|enum|union)/ {
        name = line; sub(/\(.*/, "", name)
        if (name ~ /[ *]/ && name !~ /=/) { sub(/.*[ *]/, "", name); exported[name] = FILENAME; place[name] = FILENAME ":" FNR }
    }
    FILENAME ~ /\.[ch]$/ && FILENAME !~ /^include/ && /^[^[:space:]]/ && !/^#/ && !/[={]/ { next } # a prototype or the head of a function
    {
        n = split(line, word, /[^A-Za-z0-9_]+/)
        for (i = 1; i <= n; i++)
            if (word[i] in first) { if (first[word[i]] != FILENAME) shared[word[i]] }
            else first[word[i]] = FILENAME
    }
    END { for (name in exported) if (!(name in shared) && (!(name in first) || first[name] == exported[name])) print name ": " place[name] }
' $gen_c $runtime_c $gen_h $runtime_h $(find gen runtime -name '*.def') include/*.h $(find tests -name '*.[ch]') | sort |
    breach 'every exported function of gen/ and runtime/ has a caller in another file'

includes '(.*/)?rt\.h' $gen_c $gen_h $runtime_c $runtime_h | breach 'rt.h is for tests: gen/ and runtime/ include the doors that they use'

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
for file in $gen_c $runtime_c $templates specs/*.lua; do
    grep -qE "(^|[ (])$file([ )]|\$)" CMakeLists.txt || echo "$file"
done | breach 'every source, template and spec is named in CMakeLists.txt'
for file in tests/unit/*.c tests/fuzz/*.c; do
    grep -qE "^(    | .* )$(basename "$file" .c)( |\$)" CMakeLists.txt || echo "$file"
done | breach 'every file of tests/unit and tests/fuzz is named in CMakeLists.txt'
grep -oE '(gen|runtime|templates|specs)/[A-Za-z0-9_/]+\.(cuh|lua|c)\b' CMakeLists.txt | sort -u | while read -r file; do
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
sizes $gen_c $runtime_c tests/*.c tests/unit/*.c examples/*.c 2>/dev/null | awk '$1 > 80 && $3 * 3 < $1 { print $2 ": " $1 " lines" }' |
    breach 'no function over 80 lines'
median=$(sizes $gen_c $runtime_c | sort -n | awk '{ lines[NR] = $1 } END { print NR ? lines[int((NR + 1) / 2)] : 0 }')
[ "$median" -lt 15 ] || echo "the median is $median lines" | breach 'functions of gen/ and runtime/ have a median under 15 lines'
# What the READMEs list: constants and slots of templates; the folders of a room.
grep -ohE '(cfg|variant)::[A-Z][A-Z0-9_]*\b' $templates | sort -u | while read -r name; do
    grep -qw "${name##*::}" templates/contracts/config.md templates/common/concepts.cuh || echo "$name"
done | breach 'templates/contracts/config.md has every constant, common/concepts.cuh every slot that templates read'
# mbarrier_try and nanoseconds are parts of others in their file.
for file in templates/common/ptx*.cuh; do
    sed -n 's/^DEV [^(]*[ *]\([a-z_0-9]*\)(.*/\1/p' "$file" | sort -u | while read -r name; do
        case $name in mbarrier_try | nanoseconds) continue ;; esac
        grep -qw "$name" "tests/emulate/common/${file##*/}" || echo "${file##*/}: $name"
    done
done | breach 'tests/emulate/common stands in for every function of templates/common/ptx*.cuh'
for room in gen runtime templates; do
    for folder in "$room"/*/; do
        grep -qF "\`${folder#"$room"/}\`" "$room/README.md" || echo "$folder"
    done
done | breach 'the README of a room names every folder of it'

# Lists of files of tests/: a header goes with the file of its name.
for list in tests/emulate/FILES.md tests/gpu/README.md tests/bench/README.md examples/README.md; do
    folder=${list%/*}
    for file in "$folder"/*.c "$folder"/*.h "$folder"/*.hpp "$folder"/*.py "$folder"/*.lua; do
        [ -f "$file" ] || continue
        name=${file##*/}
        case $name in *.h) [ ! -f "${file%.h}.c" ] || continue ;; esac
        grep -qF "\`$name\`" "$list" || echo "$file"
    done
done | breach 'lists of files of tests/ and examples/ have every file'

long_files() { # long_files LIMIT FILE...
    limit=$1
    shift
    wc -l "$@" | awk -v limit="$limit" '$2 != "total" && $1 > limit { print $2 ": " $1 " lines" }'
}
long_files 700 $gen_c $gen_h $runtime_c $runtime_h include/*.h tests/*.c | breach 'no file over 700 lines'
long_files 750 $templates | breach 'no template over 750 lines, as the formatter breaks them'
for file in specs/*.lua; do
    [ "$file" = specs/prelude.lua ] || long_files 15 "$file"
done | breach 'no shipped spec over 15 lines'
long_files 700 tests/unit/*.c | breach 'no unit test file over 700 lines'

tracked | grep '\(^\|/\)README\.md$' | while IFS= read -r file; do long_files 100 "$file"; done | breach 'no README over 100 lines'
# Prose of 120 columns; tables, code, headings and targets of links are as wide as they have to be, and the log is what it
# was.
tracked | grep '\.md$' | grep -v '^tests/bench/log/' | while IFS= read -r file; do
    awk '/^```/ { code = !code } !code && !/^([|#]|    )/ { gsub(/\]\([^)]*\)/, "]"); if (length > 120) print FILENAME ":" FNR }' "$file"
done | breach 'prose in READMEs has at most 120 columns'
tracked | grep -E '^(gen|templates|runtime)/' | grep -vE '\.(png|svg)$' | while IFS= read -r file; do
    case $file in
    *.md) awk '!/^\|/ { gsub(/\]\([^)]*\)/, "]"); if (length > 120) print FILENAME ":" FNR }' "$file" ;; # tables cannot wrap
    *) awk 'length > 120 { print FILENAME ":" FNR }' "$file" ;;
    esac
done | breach 'no line over 120 columns in gen, templates and runtime'
# What a run leaves behind is committed easily; `git rm` it, or give it a folder.
git ls-files 2>/dev/null | cut -d/ -f1 | sort -u |
    grep -vxE '\..*|CMakeLists\.txt|LICENSE|README\.md|examples|gen|include|runtime|specs|templates|tests' |
    breach "the top level has nothing but its folders, CMakeLists.txt, README.md and LICENSE"

if [ -s "$broken" ]; then
    printf '%s rules broken\n' "$(wc -l <"$broken")"
    exit 1
fi
echo "all rules hold (median function: $median lines)"
