#!/bin/sh
# run.sh: sets up what is missing, builds, and runs every test that this machine can run.
#     sh tests/run.sh [arguments for ctest]
# LATHE_BUILD names the build folder (default: build). Exit code 0: nothing failed. A test that lacks a GPU
# or a tool is skipped and says why; the last lines are ctest's summary.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/setup.sh

build=${LATHE_BUILD:-build}
setup_tools || exit 1
setup_build "$build" -DLATHE_WERROR=ON || exit 1

say "running the tests"
log=$build/ctest.txt
{
    ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "$@" 2>&1
    echo $? >"$build/ctest.status"
} </dev/null | tee "$log" | sed '/^[0-9]*% tests passed/,$d'
status=$(cat "$build/ctest.status")

# Reasons stand in the full log of each test; a room with one skipped test still counts as passed.
last=$build/Testing/Temporary/LastTest.log
if grep -q 'skipped: ' "$last" 2>/dev/null; then
    printf '\nSkipped here:\n'
    sed -n 's|^.*/\(tests/[^ ]*\) skipped: \(.*\)|  \1 \2|p; s|^skipped: \(.*\)|  \1|p' "$last" | sort -u
fi
sed -n '/^The following tests FAILED/,/^Errors while/p' "$log" | sed '/^Errors while/d'
printf '\n'
sed -n '/^[0-9]*% tests passed/,/^Total Test time/p' "$log"
exit "$status"
