#!/bin/sh
# headers.sh: every public header compiles alone, as C11 and as C++17, without a warning. CC and CXX name other
# compilers.
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0
passed=0

alone() { # alone HEADER COMPILER LANGUAGE STANDARD
    if $2 -x "$3" "-std=$4" -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only "$1"; then
        passed=$((passed + 1))
    else
        echo "FAILED $1 as $4 with $2"
        failed=$((failed + 1))
    fi
}

printf 'int main() { return 0; }\n' | ${CXX:-c++} -x c++ -std=c++17 -fsyntax-only - 2>/dev/null && cxx=${CXX:-c++} || cxx=
[ -n "$cxx" ] || echo 'skipped: headers as C++17: there is no C++ compiler (c++)'
for header in include/*.h; do
    alone "$header" "${CC:-cc}" c c11
    [ -z "$cxx" ] || alone "$header" "$cxx" c++ c++17
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
